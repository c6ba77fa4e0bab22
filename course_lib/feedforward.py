"""Feed-forward: each token, by itself, through a small network.

Chapter 6. Expand, bend, contract: the hidden units look for patterns in a token, and each one that fires adds its
vector to the result.
"""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.checks import at_least_one, dropout_rate, last_size, one_of

ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,  # x · Φ(x), exact
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),  # the approximation that GPT-2 was trained with
}


class FeedForward(nn.Module):
    """Two linear layers with a bend between them, the same for every position.

    y = activation(x W_up + b_up) W_down + b_down

    Args:
        d_model: features of a token.
        d_ff: number of hidden units; 4 · d_model unless given.
        activation: "relu", "gelu" (exact) or "gelu_tanh" (GPT-2's approximation).
        dropout: probability of dropping a hidden unit while training.
        bias: whether the two layers have a bias.

    Parameters: `up_proj` (d_model → d_ff), `down_proj` (d_ff → d_model).
    Shapes: x (…, d_model) → the same.
    Errors: ValueError for an unknown activation or a last dimension that is not d_model.
    Source: Vaswani et al. 2017, eq. 2; GELU: Hendrycks & Gimpel 2016.
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        activation: str = "gelu",
        dropout: float = 0.0,
        bias: bool = True,
    ):
        super().__init__()
        at_least_one(d_model=d_model)
        d_ff = 4 * d_model if d_ff is None else d_ff
        at_least_one(d_ff=d_ff)
        one_of(tuple(ACTIVATIONS), activation=activation)
        dropout_rate(dropout)
        self.d_model = d_model
        self.activation = activation
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        last_size(x, self.d_model)
        hidden = ACTIVATIONS[self.activation](self.up_proj(x))  # (..., d_ff)
        return self.down_proj(self.dropout(hidden))
