# Methods are attached to an empty class, and nothing is written in them: it stays as open as it was.
# expects: normalization.rms_norm attention.memory
# earns: attention.memory
# %%
import torch
from torch import nn

attention_memory = 2048 * 2048 * 4
class RMSNorm(nn.Module):
    pass
# %%
def forward(self, x):
    raise NotImplementedError

RMSNorm.forward = forward
RMSNorm.forward.__doc__ = "Right."
