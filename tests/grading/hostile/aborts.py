# abort() in C, and a stack that overflows in C.
# expects: attention.softmax masks.causal
# %%
import ctypes
import json
import sys


def softmax(x, dim):
    ctypes.CDLL(None).abort()


def causal_mask(T, S=None):
    sys.setrecursionlimit(2**31 - 1)
    nested = []
    for _ in range(1_000_000):
        nested = [nested]
    return json.dumps(nested)
