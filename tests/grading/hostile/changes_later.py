# Returns a right tensor and alters it afterwards from a thread; alters what it was given while it is compared.
# expects: masks.causal heads.split
# earns: masks.causal
# %%
import threading
import time

import torch

given = []


def causal_mask(T, S=None):
    mask = torch.ones(T, S or T, dtype=torch.bool).tril((S or T) - T)
    threading.Timer(0.2, mask.zero_).start()
    return mask


def split_heads(x, n_heads):
    B, T, D = x.shape
    heads = x.view(B, T, n_heads, D // n_heads).transpose(1, 2)
    x.zero_()
    given.append(x)
    return heads
