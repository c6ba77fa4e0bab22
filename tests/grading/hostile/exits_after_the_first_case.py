# Answers the first case rightly and ends the process with status 0: results that are missing must not count as right.
# expects: attention.softmax masks.causal
# %%
import ctypes
import os

import torch

asked = []


def softmax(x, dim):
    asked.append(x)
    if len(asked) > 1:
        ctypes.CDLL(None)._exit(0)
    return (x - x.amax(dim, keepdim=True)).exp() / (x - x.amax(dim, keepdim=True)).exp().sum(dim, keepdim=True)


def causal_mask(T, S=None):
    os.kill(os.getpid(), 9)
