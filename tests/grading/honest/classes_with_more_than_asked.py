# The modules have buffers, methods, properties and a __repr__ of their own, and a dataclass for their settings. Their
# parameters are the ones asked for.
# expects: normalization.rms_norm heads.module
# earns: normalization.rms_norm heads.module
# %%
import math
from dataclasses import dataclass

import torch
from torch import nn
# %%
class RMSNorm(nn.Module):
    calls = 0

    def __init__(self, d_model, eps=1e-6, *, name="norm"):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("eps", torch.tensor(eps, dtype=torch.float64), persistent=False)
        self.name = name
        self.weight = nn.Parameter(torch.empty(d_model))
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.ones_(self.weight)

    @property
    def width(self):
        return len(self.weight)

    def extra_repr(self):
        return f"{self.width} features"

    def forward(self, x):
        type(self).calls += 1
        return x * torch.rsqrt((x * x).sum(-1, keepdim=True) / self.width + self.eps.to(x.dtype)) * self.weight
# %%
@dataclass(frozen=True)
class Shape:
    d_model: int
    n_heads: int

    @property
    def d_head(self):
        return self.d_model // self.n_heads
# %%
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.shape = Shape(d_model, n_heads)
        self.out_proj, self.v_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.k_proj, self.q_proj = nn.Linear(d_model, d_model), nn.Linear(d_model, d_model)
        self.register_buffer("last_weights", None)

    def forward(self, x, mask=None):
        def heads(layer):
            return layer(x).unflatten(2, (self.shape.n_heads, self.shape.d_head)).transpose(1, 2)

        scores = heads(self.q_proj) @ heads(self.k_proj).mT / math.sqrt(self.shape.d_head)
        if mask is not None:
            scores = torch.where(mask, scores, -torch.inf)
        self.last_weights = torch.nan_to_num(scores.softmax(-1))
        return self.out_proj((self.last_weights @ heads(self.v_proj)).transpose(1, 2).flatten(2))
