# The class of the answer has an empty body: all that it is stands in a class above it. Nothing is left to be written.
# expects: normalization.rms_norm
# earns: normalization.rms_norm
# %%
import torch
from torch import nn
# %%
class Norm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(d_model)), eps

    def forward(self, x):
        return x * (x.pow(2).mean(-1, keepdim=True) + self.eps).rsqrt() * self.weight
# %%
class RMSNorm(Norm):
    """As above, under the name that was asked for."""
