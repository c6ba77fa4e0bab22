# NumPy inside, NumPy out, or half of each: an array counts as the tensor that it holds, a NumPy number as a number.
# expects: attention.softmax masks.causal heads.split counting.memory
# earns: attention.softmax masks.causal heads.split counting.memory
# %%
import numpy as np
import torch
# %%
def softmax(x, dim):
    x = np.asarray(x)
    e = np.exp(x - x.max(axis=dim, keepdims=True))
    return e / e.sum(axis=dim, keepdims=True)
# %%
def causal_mask(T, S=None):
    S = T if S is None else S
    keys = torch.arange(S).numpy()
    return np.less_equal.outer(keys, np.arange(S - T, S)).T
# %%
def split_heads(x, n_heads):
    pieces = np.array_split(x.numpy(), n_heads, axis=-1)
    return torch.from_numpy(np.stack(pieces)).swapaxes(0, 1)
# %%
def training_bytes(n_params, mixed_precision=False):
    return np.int64(n_params) * np.array([4, 4, 2]).sum()
