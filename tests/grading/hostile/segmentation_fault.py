# Reads address 0, writes to address 1.
# expects: attention.softmax masks.causal
# %%
import ctypes


def softmax(x, dim):
    return ctypes.string_at(0)


def causal_mask(T, S=None):
    ctypes.memset(1, 0, 8)
