# The cell of a helper was deleted by accident. Only the answer that calls it is lost; the one beside it in the same cell,
# which does not, is earned.
# expects: heads.merge heads.split
# earns: heads.merge
# %%
import torch
# %%
def split_heads(x, n_heads):
    return cut(x, n_heads).transpose(1, 2)

def merge_heads(x):
    return x.transpose(1, 2).flatten(2)
