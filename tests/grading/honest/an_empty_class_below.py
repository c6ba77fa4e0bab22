# A solved class, and below it the exercise's own empty class, whose constructor raises; then a solved function and below it
# one that holds only its docstring and dots. The solved ones count.
# expects: normalization.rms_norm normalization.layer_norm
# earns: normalization.rms_norm normalization.layer_norm
# %%
import torch
from torch import nn
# %%
class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x):
        return x / (x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt() * self.weight
# %%
def layer_norm(x, gamma, beta, eps):
    variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt() * gamma + beta
# %%
class RMSNorm(nn.Module):
    """Compute x / √(mean(x²) + eps) · weight for each token."""

    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        # Your answer goes here, in place of the next line.
        raise NotImplementedError

    def forward(self, x):
        # Your answer goes here, in place of the next line.
        raise NotImplementedError
# %%
def layer_norm(x, gamma, beta, eps):
    """(x − mean) / √(variance + eps) · gamma + beta, per token: x (..., d_model), same shape and dtype back."""
    ...
