# A cell defines an answer, then fails in the learner's own try-out, and a second answer would have come below. The first
# one exists, for Jupyter as well; the second does not. The next cell is not touched by it.
# expects: heads.split heads.merge heads.grouped
# earns: heads.split heads.grouped
# %%
import torch
# %%
def split_heads(x, n_heads):
    return x.view(x.shape[0], x.shape[1], n_heads, -1).movedim(2, 1)

assert split_heads(torch.zeros(2, 3, 8), 4).shape == (2, 3, 4, 2), "I always get this wrong"

def merge_heads(x):
    return x.movedim(1, 2).flatten(2)
# %%
def repeat_kv(k, n_heads):
    return k.repeat_interleave(n_heads // k.shape[1], 1)

raise RuntimeError("stop here for today")
