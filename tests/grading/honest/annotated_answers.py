# Annotations of every kind, some as text, some that name things which do not exist, some checked at run time by jaxtyping
# and beartype.
# expects: heads.merge feed_forward.swiglu counting.flops
# earns: heads.merge feed_forward.swiglu counting.flops
# %%
from __future__ import annotations

from typing import Optional, Union, overload

import torch
from beartype import beartype
from jaxtyping import Float, jaxtyped
from torch import Tensor
# %%
@jaxtyped(typechecker=beartype)
def merge_heads(x: Float[Tensor, "batch heads tokens width"]) -> Float[Tensor, "batch tokens all"]:
    parts: list[Tensor] = list(x.unbind(dim=1))
    return torch.cat(parts, dim=-1)
# %%
def swiglu(x: "torch.Tensor", W_gate: Tensor, W_up: Tensor, W_down: Tensor) -> Tensor:
    gate: Tensor
    up: Union[Tensor, None] = x @ W_up
    gate = torch.nn.functional.silu(x @ W_gate)
    return (gate * up) @ W_down
# %%
def train_flops(n_params: Count, n_tokens: Optional[Count] = None) -> Count | None:
    return 8 * n_params * n_tokens
