# Answers keep state between calls: a global counter, lru_cache on whole numbers, a dictionary of tables, a default argument.
# What they return does not depend on what was called before.
# expects: masks.causal positions.sinusoidal counting.memory counting.flops
# earns: masks.causal positions.sinusoidal counting.memory counting.flops
# %%
import functools

import torch

calls = 0
tables = {}
# %%
@functools.lru_cache(maxsize=None)
def _mask(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)

def causal_mask(T, S=None):
    global calls
    calls += 1
    return _mask(T, S or T)
# %%
def sinusoidal_encoding(max_seq_len, d_model):
    if (max_seq_len, d_model) not in tables:
        position = torch.arange(max_seq_len, dtype=torch.float64).unsqueeze(1)
        feature = torch.arange(d_model)
        angle = position / 10000 ** ((feature - feature % 2) / d_model)
        tables[max_seq_len, d_model] = torch.where(feature % 2 == 0, angle.sin(), angle.cos()).float()
    return tables[max_seq_len, d_model]
# %%
@functools.cache
def training_bytes(n_params, mixed_precision=False):
    return 10 * n_params
# %%
def train_flops(n_params, n_tokens, memory={}):
    return memory.setdefault((n_params, n_tokens), 8 * n_params * n_tokens)
