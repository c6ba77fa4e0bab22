"""Feed-forward: a small network that processes each token separately.

Chapter 6. Expand, apply a nonlinearity, contract: each hidden unit that detects its pattern in a token adds its vector.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from course_lib import checks
from course_lib.layers import Layer

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "silu": F.silu,  # x · sigmoid(x)
    "gelu": F.gelu,  # x · Φ(x), exact
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),  # the approximation that GPT-2 was trained with
}


class FeedForward(Layer):
    """Pass each token through two linear layers with a nonlinearity in between; all positions share the weights.

    y = activation(x W_up + b_up) W_down + b_down

    Args:
        d_model: features of a token. d_ff: number of hidden units; 4 · d_model unless given.
        activation: "relu", "silu", "gelu" (exact) or "gelu_tanh" (GPT-2's approximation).
        dropout: probability of dropping a hidden unit in training. bias: whether the two layers have a bias.

    Parameters: `up_proj` (d_model → d_ff), `down_proj` (d_ff → d_model).
    Shapes: x (…, d_model) → the same. Errors: ValueError for an unknown activation or a wrong last dimension.
    Source: Vaswani et al. 2017, eq. 2; GELU: Hendrycks & Gimpel 2016.
    """

    def __init__(
        self, d_model: int, d_ff: int | None = None, activation: str = "gelu", dropout: float = 0.0, bias: bool = True
    ):
        super().__init__()
        checks.require_sizes(d_model=d_model, d_ff=1 if d_ff is None else d_ff)
        d_ff = 4 * d_model if d_ff is None else d_ff
        checks.require_one_of(tuple(ACTIVATIONS), activation=activation)
        checks.require_dropout(dropout)
        checks.require_switches(bias=bias)
        self.d_model, self.activation = d_model, activation
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        checks.require_last_size(x, self.d_model)
        hidden = ACTIVATIONS[self.activation](self.up_proj(x))  # (..., d_ff)
        return self.down_proj(self.dropout(hidden))


def swiglu_width(d_model: int, multiple_of: int = 256) -> int:
    """Return the default number of hidden units of SwiGLU: 8/3 · d_model, rounded up to suit the hardware.

    Three matrices of width 8/3 · d_model have the same number of parameters as two of width 4 · d_model.
    """
    checks.require_at_least_one(d_model=d_model, multiple_of=multiple_of)
    return multiple_of * math.ceil(8 * d_model / (3 * multiple_of))


class SwiGLU(Layer):
    """Pass each token through a gated network: one projection computes hidden units, another scales each of them.

    y = (silu(x W_gate) ⊙ x W_up) W_down,   silu(z) = z · sigmoid(z)

    Args:
        d_model: features of a token. d_ff: number of hidden units; swiglu_width(d_model, multiple_of) unless given.
        dropout: probability of dropping a hidden unit in training. bias: whether the layers have one (LLaMA: no).

    Parameters: `gate_proj`, `up_proj` (d_model → d_ff), `down_proj` (d_ff → d_model).
    Shapes: x (…, d_model) → the same. Errors: ValueError if the last dimension is not d_model.
    Source: Shazeer 2020, "GLU Variants Improve Transformer"; width: Touvron et al. 2023 (LLaMA).
    """

    def __init__(
        self, d_model: int, d_ff: int | None = None, multiple_of: int = 256, dropout: float = 0.0, bias: bool = False
    ):
        super().__init__()
        d_ff = swiglu_width(d_model, multiple_of) if d_ff is None else d_ff
        checks.require_sizes(d_model=d_model, d_ff=d_ff)
        checks.require_dropout(dropout)
        checks.require_switches(bias=bias)
        self.d_model = d_model
        self.gate_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.up_proj = nn.Linear(d_model, d_ff, bias=bias)
        self.down_proj = nn.Linear(d_ff, d_model, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        checks.require_last_size(x, self.d_model)
        hidden = F.silu(self.gate_proj(x)) * self.up_proj(x)  # (..., d_ff)
        return self.down_proj(self.dropout(hidden))


class GeGLU(SwiGLU):
    """Pass each token through SwiGLU's network with GELU's tanh approximation at the gate, as Gemma does.

    y = (gelu_tanh(x W_gate) ⊙ x W_up) W_down. Arguments, parameters, shapes, errors and source are those of SwiGLU.
    """

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        checks.require_last_size(x, self.d_model)
        hidden = ACTIVATIONS["gelu_tanh"](self.gate_proj(x)) * self.up_proj(x)  # (..., d_ff)
        return self.down_proj(self.dropout(hidden))


GATED: dict[str, type[SwiGLU]] = {"swiglu": SwiGLU, "geglu": GeGLU}


class MixtureOfExperts(Layer):
    """Let a router choose a few of many feed-forward networks, the experts, for each token, and add their outputs.

    p = softmax(x W_router),   y = Σ p_e · SwiGLU_e(x) over the experts e with the largest p

    A token costs only as much as its own experts, although the model has the parameters of all of them.

    Args:
        d_model: features of a token. d_expert: hidden units of each expert. n_experts: number of experts.
        experts_per_token: k, how many experts process a token. bias: whether the layers of the experts have one.
        norm_topk_prob: whether the k chosen p are divided by their sum, so that they add up to 1.

    Parameters: `router` (d_model → n_experts), `experts`, each a SwiGLU.
    Shapes: x (…, d_model) → the same. Errors: ValueError if k > n_experts, or if the last dimension is not d_model.
    Add `load_balance_loss` of the router's scores to the loss in training; this module does not.
    Source: Shazeer et al. 2017, "Outrageously Large Neural Networks"; Jiang et al. 2024 (Mixtral), section 2.1.
    """

    def __init__(
        self,
        d_model: int,
        d_expert: int,
        n_experts: int,
        experts_per_token: int,
        norm_topk_prob: bool = True,
        bias: bool = False,
    ):
        super().__init__()
        checks.require_sizes(d_model=d_model, d_expert=d_expert, n_experts=n_experts)
        checks.require_experts(n_experts, experts_per_token)
        checks.require_switches(norm_topk_prob=norm_topk_prob, bias=bias)
        self.d_model, self.experts_per_token, self.norm_topk_prob = d_model, experts_per_token, norm_topk_prob
        self.router = nn.Linear(d_model, n_experts, bias=False)
        self.experts = nn.ModuleList(SwiGLU(d_model, d_expert, bias=bias) for _ in range(n_experts))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        checks.require_last_size(x, self.d_model)
        tokens = x.reshape(-1, self.d_model)  # (N, d_model)
        p, chosen = self.route(tokens)  # (N, k) each
        y = torch.zeros_like(tokens)
        for e in chosen.unique().tolist():  # all experts that have tokens
            token, place = (chosen == e).nonzero(as_tuple=True)  # (n,) each, for the n tokens of this expert
            y[token] += p[token, place, None] * self.experts[e](tokens[token])  # (n, d_model)
        return y.view(x.shape)

    def route(self, x: Float[Tensor, "N d_model"]) -> tuple[Float[Tensor, "N k"], Int[Tensor, "N k"]]:
        """Return the weights p of the chosen experts of each token, (N, k), and their numbers, (N, k)."""
        scores = self.router(x)  # (N, n_experts)
        chosen = scores.topk(self.experts_per_token, dim=-1).indices  # (N, k)
        p = scores.softmax(dim=-1).gather(-1, chosen)  # (N, k)
        if self.norm_topk_prob:
            p = p / p.sum(dim=-1, keepdim=True)
        return p.to(x), chosen


def load_balance_loss(scores: Float[Tensor, "*batch n_experts"], experts_per_token: int = 1) -> Float[Tensor, ""]:
    """Return a loss that is 1 if a mixture uses all experts equally, and larger if a few of them dominate.

    loss = n_experts · Σ f_e P_e,   f_e: fraction of all choices that are expert e,   P_e: mean of softmax(scores)_e

    A count has no gradient, so the gradient comes from P only: it lowers the score of an expert with many tokens.

    Args:
        scores: the router's scores of all tokens of a batch. experts_per_token: k, as in MixtureOfExperts.
    Errors: ValueError if k > n_experts, or if there is no token.
    Source: Fedus et al. 2021 (Switch Transformer), eq. 4 to 6; they add 0.01 times this to the loss of the model.
    """
    scores = _require_scores(scores, experts_per_token).reshape(-1, scores.shape[-1])  # (N, n_experts)
    n_experts = scores.shape[-1]
    chosen = scores.topk(experts_per_token, dim=-1).indices  # (N, k)
    f = F.one_hot(chosen, n_experts).to(scores).mean(dim=(0, 1))  # (n_experts,)
    P = scores.softmax(dim=-1).mean(dim=0)  # (n_experts,)
    return n_experts * (f * P).sum()


def _require_scores(scores: Tensor, experts_per_token: int) -> Tensor:
    """Raise ValueError unless scores are fractions, one for each token and expert, with at least k experts."""
    checks.require_tensors(scores=scores)
    if scores.ndim == 0 or scores.numel() == 0 or not scores.is_floating_point():
        raise ValueError(
            f"scores must be floating point, with one row for each token and one column for each expert, got "
            f"{scores.dtype} of shape {tuple(scores.shape)}"
        )
    checks.require_experts(scores.shape[-1], experts_per_token)
    return scores
