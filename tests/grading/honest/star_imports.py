# `from torch import *`, `from math import *` and `from torch.nn.functional import *` bring a thousand names along, among
# them those of exercises. The learner's own definitions stand below them, and the learner's sqrt is torch's.
# expects: attention.softmax normalization.layer_norm feed_forward.gelu
# earns: attention.softmax normalization.layer_norm feed_forward.gelu
# %%
from math import *
from torch.nn.functional import *
from torch import *
# %%
def softmax(x, dim):
    e = exp(x - amax(x, dim, keepdim=True))
    return e / sum(e, dim, keepdim=True)
# %%
def layer_norm(x, gamma, beta, eps):
    centred = x - mean(x, -1, keepdim=True)
    return centred / sqrt(mean(centred * centred, -1, keepdim=True) + eps) * gamma + beta
# %%
def gelu(x):
    return x * (1 + erf(x / 1.4142135623730951)) / 2
