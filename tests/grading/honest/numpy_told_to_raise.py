# np.seterr(all="raise"), np.set_printoptions and torch.set_printoptions are left on. The answers overflow nowhere.
# expects: counting.flops counting.memory
# earns: counting.flops counting.memory
# %%
import numpy as np
import torch

np.seterr(all="raise")
np.set_printoptions(precision=1, suppress=True, threshold=3)
torch.set_printoptions(precision=1, sci_mode=True, threshold=3, linewidth=20)
torch.autograd.set_detect_anomaly(True)
# %%
def train_flops(n_params, n_tokens):
    return np.float64(8) * n_params * n_tokens
# %%
def training_bytes(n_params, mixed_precision=False):
    per_parameter = np.array([2, 2, 1, 1, 4] if mixed_precision else [4, 4, 1, 1])
    return per_parameter.sum() * n_params
