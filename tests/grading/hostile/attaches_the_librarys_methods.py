# An empty class of its own gets the library's methods attached in a later cell. What they compute is right and nobody's answer.
# expects: normalization.rms_norm attention.memory
# earns: attention.memory
# %%
import torch
from torch import nn
import course_lib.normalization as library

attention_memory = 2048 * 2048 * 4
# %%
class RMSNorm(nn.Module):
    pass
# %%
RMSNorm.__init__ = lambda self, d_model, eps=1e-6: library.RMSNorm.__init__(self, d_model, eps)
RMSNorm.forward = library.RMSNorm.forward
