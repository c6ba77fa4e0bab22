# The notebook leaves its settings behind: float64 as the default, gradients off, a default device, deterministic
# algorithms, another number of threads, flush to zero. Every answer follows its input, and is right.
# expects: masks.masked_attention positions.rotary normalization.rms_norm
# earns: masks.masked_attention positions.rotary normalization.rms_norm
# %%
import sys

import torch
from torch import nn

torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
torch.set_default_device("cpu")
torch.use_deterministic_algorithms(True)
torch.set_num_threads(3)
torch.set_float32_matmul_precision("medium")
torch.backends.cudnn.benchmark = False
sys.setrecursionlimit(100_000)
# %%
def causal_self_attention(x, W_Q, W_K, W_V, W_O, n_heads):
    q, k, v = ((x @ W).unflatten(-1, (n_heads, -1)).transpose(1, 2) for W in (W_Q, W_K, W_V))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    later = torch.ones(scores.shape[-2:]).triu(1) > 0
    return (scores.masked_fill(later, -torch.inf).softmax(-1) @ v).transpose(1, 2).flatten(2) @ W_O
# %%
def apply_rotary(x, positions, theta):
    half = x.shape[-1] // 2
    turn = positions[:, None].double() * theta ** -(torch.arange(half).double() / half)
    sin, cos = turn.sin().to(x.dtype), turn.cos().to(x.dtype)
    first, second = x.split(half, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)
# %%
class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x):
        return self.weight * (x * (x.pow(2).mean(-1, keepdim=True) + self.eps) ** -0.5)
