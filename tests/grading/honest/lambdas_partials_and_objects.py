# A lambda, a functools.partial, an object with __call__, a bound method and a function made by another one: each is a
# function for whoever calls it.
# expects: masks.padding heads.merge normalization.layer_norm counting.flops feed_forward.swiglu_width
# earns: masks.padding heads.merge normalization.layer_norm counting.flops feed_forward.swiglu_width
# %%
import math
from functools import partial

import torch
# %%
padding_mask = lambda lengths, S: (torch.arange(S)[None, :] < lengths[:, None])[:, None, None, :]
# %%
def merge(order, x):
    return x.permute(*order).flatten(2)

merge_heads = partial(merge, (0, 2, 1, 3))
# %%
class LayerNorm:
    def __init__(self, correction):
        self.correction = correction

    def __call__(self, x, gamma, beta, eps):
        spread, middle = torch.var_mean(x, dim=-1, correction=self.correction, keepdim=True)
        return (x - middle) * torch.rsqrt(spread + eps) * gamma + beta

layer_norm = LayerNorm(correction=0)
# %%
class Bill:
    per_pair = 8

    def flops(self, n_params, n_tokens):
        return self.per_pair * n_params * n_tokens

train_flops = Bill().flops
# %%
def rounding(factor):
    def width(d_model, multiple_of):
        return math.ceil(factor * d_model / multiple_of / 3) * multiple_of
    return width

swiglu_hidden = rounding(8)
