# The first cell turns every warning into an error, for the whole notebook. Nothing that the learner wrote warns, so
# nothing may be lost to a warning of the grader's own, least of all in what carries arrays and weights to and fro.
# expects: normalization.rms_norm normalization.layer_norm normalization.parameters
# earns: normalization.rms_norm normalization.layer_norm normalization.parameters
# %%
import warnings

warnings.filterwarnings("error")

import numpy as np
import torch
from torch import nn
# %%
def layer_norm(x, gamma, beta, eps):
    middle = x.mean(-1, keepdim=True)
    spread = ((x - middle) ** 2).mean(-1, keepdim=True)
    return gamma * (x - middle) / (spread + eps).sqrt() + beta
# %%
class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d_model))
        self.eps = eps

    def forward(self, x):
        return self.weight * x / (x.square().mean(-1, keepdim=True) + self.eps).sqrt()
# %%
normalization_parameters = np.float64(4 * 768)
