"""Normalization: keep every token's vector at a similar scale at every depth.

Chapter 7. LayerNorm (Ba et al. 2016) centres and scales; RMSNorm (Zhang & Sennrich 2019) only scales. Both work on one
token at a time, over its `d_model` features. `by_hand` computes the formula; `forward` uses PyTorch's faster kernel.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.checks import require_last_size, require_positive, require_sizes, require_switches, require_tensors
from course_lib.layers import Layer


class LayerNorm(Layer):
    """Centre each token, divide it by its standard deviation, then scale and shift each feature by learned numbers.

    y = (x − mean(x)) / sqrt(var(x) + eps) · weight + bias

    The variance is divided by d_model, not d_model − 1: the features are the full population, not a sample.

    Args:
        d_model: features of a token. bias: whether to learn a shift.
        eps: added to the variance, inside the root, so that equal features give zeros instead of dividing by zero.

    Parameters: `weight` (d_model,), initialized to ones; `bias` (d_model,), initialized to zeros, or None.
    Shapes: x (…, d_model) → the same. Errors: ValueError if d_model < 1, eps ≤ 0, or a wrong last dimension.
    Source: Ba, Kiros & Hinton 2016, "Layer Normalization".
    """

    def __init__(self, d_model: int, eps: float = 1e-5, bias: bool = True):
        super().__init__()
        require_sizes(d_model=d_model)
        require_positive(eps=eps)
        require_switches(bias=bias)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model)) if bias else None

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        _require_features(x, self.weight)
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)

    def by_hand(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Compute the formula in three steps."""
        _require_features(x, self.weight)
        centred = x - x.mean(dim=-1, keepdim=True)  # (..., d_model), with mean 0
        variance = centred.pow(2).mean(dim=-1, keepdim=True)  # (..., 1)
        y = centred / torch.sqrt(variance + self.eps) * self.weight
        return y if self.bias is None else y + self.bias


class RMSNorm(Layer):
    """Divide each token by its root mean square, then scale each feature by a learned gain.

    y = x / sqrt(mean(x²) + eps) · weight

    Args:
        d_model: features of a token.
        eps: added to the mean square, inside the root, so that a zero vector stays zero and causes no division by 0.

    Parameters: `weight` (d_model,), initialized to ones. There is no bias, and the mean is not subtracted.
    Shapes: x (…, d_model) → the same. Errors: ValueError if d_model < 1, eps ≤ 0, or a wrong last dimension.
    Source: Zhang & Sennrich 2019, "Root Mean Square Layer Normalization", eq. 4.
    """

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        require_sizes(d_model=d_model)
        require_positive(eps=eps)
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        _require_features(x, self.weight)
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)

    def by_hand(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Compute the formula in two steps."""
        _require_features(x, self.weight)
        mean_square = x.pow(2).mean(dim=-1, keepdim=True)  # (..., 1)
        return x / torch.sqrt(mean_square + self.eps) * self.weight


def _require_features(x: Tensor, weight: Tensor) -> None:
    """Raise ValueError unless a norm with this weight can process x; TypeError if x is not a tensor."""
    if not isinstance(x, Tensor):
        require_tensors(x=x)
    if x.shape[-1:] != weight.shape:
        require_last_size(x, len(weight))
    if not x.is_floating_point() or x.device != weight.device:
        raise ValueError(f"x must hold floats and be on {weight.device}, like the weights, got {x.dtype} on {x.device}")
