# Functions of the library that are imported to be used, or to compare with, bear the names of answers. They are nobody's
# answers: what is open stays open, and what was written stays written.
# expects: heads.module heads.merge heads.split masks.causal masks.padding positions.rotary
# earns: heads.split masks.causal
# %%
import torch
from torch import nn

from course_lib import masks
from course_lib.heads import merge_heads

from course_lib.positions import apply_rotary
# %%
class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        raise NotImplementedError
# %%
def split_heads(x, n_heads):
    B, T, d_model = x.shape
    return x.view(B, T, n_heads, d_model // n_heads).transpose(1, 2)
# %%
from course_lib.heads import MultiHeadAttention, split_heads

model = MultiHeadAttention(8, 2)
split_heads(torch.ones(1, 3, 8), 2)
# %%
padding_mask = masks.padding_mask
# %%
def causal_mask(T, S=None):
    S = T if S is None else S
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)
# %%
masks.causal_mask = causal_mask  # the library's layers with a mask of one's own
