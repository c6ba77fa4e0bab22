# Some cells end with a name that exists nowhere, a typo in a try-out. What stands above it in these cells has happened, once:
# the number was multiplied once, and the first versions of the helper and of the function stay older than the second ones
# below. "Restart and run all, whatever fails" gives three right answers.
# expects: attention.memory feed_forward.gelu_tanh counting.flops
# earns: attention.memory feed_forward.gelu_tanh counting.flops
# %%
import math

import torch

attention_memory = 2048
# %%
attention_memory *= 2048 * 4
print(atention_memory)
# %%
def scale(x):
    return math.sqrt(2 / math.pi) * x

print(scale(torch.ones(2)), skale)
# %%
def train_flops(n_params, n_tokens):
    return 2 * n_params * n_tokens

train_flops(n_params, 3)
# %%
def scale(x):
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)

def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(scale(x)))
# %%
def train_flops(n_params, n_tokens):
    return 8 * n_params * n_tokens
