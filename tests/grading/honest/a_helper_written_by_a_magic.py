# %%writefile makes a module beside the notebook and the next cell imports it, as Jupyter would: the folder of the notebook
# can be written and is where imports look. Both answers are right.
# expects: masks.padding masks.causal
# earns: masks.padding masks.causal
# %%
%%writefile mask_tools.py
import torch


def places(count):
    return torch.arange(count)
# %%
import torch
from mask_tools import places
# %%
def padding_mask(lengths, S):
    return places(S).lt(lengths[:, None])[:, None, None, :]
# %%
def causal_mask(T, S=None):
    S = T if S is None else S
    return places(T)[:, None] + S - T >= places(S)
