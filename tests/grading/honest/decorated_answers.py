# Decorators: functools.wraps, a decorator with arguments, torch.no_grad, torch.inference_mode, a counter of calls. What the
# name is bound to in the end is called, and it is right.
# expects: feed_forward.gelu feed_forward.gelu_tanh heads.grouped masks.causal
# earns: feed_forward.gelu feed_forward.gelu_tanh heads.grouped masks.causal
# %%
import functools
import math
import time

import torch
# %%
def timed(label):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            start = time.perf_counter()
            result = function(*args, **kwargs)
            print(label, time.perf_counter() - start)
            return result
        return wrapper
    return decorate

def counted(function):
    def wrapper(*everything):
        wrapper.calls += 1
        return function(*everything)
    wrapper.calls = 0
    return wrapper
# %%
@timed("gelu")
def gelu(x):
    return x * torch.erfc(-x / math.sqrt(2)) / 2
# %%
@torch.no_grad()
@timed("tanh")
def gelu_tanh(x):
    return x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))
# %%
@torch.inference_mode()
def repeat_kv(k, n_heads):
    return torch.cat([part.expand(-1, n_heads // k.shape[1], -1, -1) for part in k.split(1, dim=1)], dim=1)
# %%
@counted
def causal_mask(T, S=None):
    return torch.ones(T, S or T).tril((S or T) - T) > 0
