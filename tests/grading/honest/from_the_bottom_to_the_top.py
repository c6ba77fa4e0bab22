# All cells stand in reverse: checks first, imports last. A class cannot even be defined before its base is imported, and
# its cell has to be tried again. All three answers are right.
# expects: normalization.rms_norm normalization.layer_norm normalization.batch_vs_layer
# earns: normalization.rms_norm normalization.layer_norm normalization.batch_vs_layer
# %%
check("normalization.batch_vs_layer", normalization_batch_vs_layer)
# %%
normalization_batch_vs_layer = {"a", "c", "e", "g"}
# %%
check("normalization.rms_norm", RMSNorm)
# %%
class RMSNorm(Base):
    def forward(self, x):
        return torch.nn.functional.rms_norm(x, self.weight.shape, self.weight, self.eps)
# %%
class Base(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
# %%
check("normalization.layer_norm", layer_norm)
# %%
def layer_norm(x, gamma, beta, eps):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], gamma, beta, eps)
# %%
from course_lib.grading import check
import torch
from torch import nn
