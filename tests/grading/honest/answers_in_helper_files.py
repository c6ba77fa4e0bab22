# One answer stands in a .py file beside the notebook and is imported by name, one under another name from a module in a
# folder, one comes with `import *`. All are bound in the notebook, as they would be for the learner.
# expects: masks.causal masks.padding heads.merge
# earns: masks.causal masks.padding heads.merge
# %%
import torch
from mask_helpers import causal_mask
from tools.padding import by_length as padding_mask
from everything import *
# %% [file mask_helpers.py]
import torch


def causal_mask(T, S=None):
    S = T if S is None else S
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)
# %% [file tools/__init__.py]
"""My tools."""
# %% [file tools/padding.py]
from .ranges import upto


def by_length(lengths, S):
    return (upto(S) < lengths.view(-1, 1, 1, 1))
# %% [file tools/ranges.py]
import torch


def upto(count):
    return torch.arange(count)
# %% [file everything.py]
__all__ = ["merge_heads", "sum"]


def merge_heads(x):
    return x.transpose(1, 2).flatten(start_dim=2)


def sum(*numbers):
    return "not what you think"
