# Someone pressed M in the wrong place: two answers became markdown cells as they were, with no fence.
# expects: feed_forward.gelu feed_forward.swiglu_width
# earns: feed_forward.gelu feed_forward.swiglu_width
# %%
import math

import torch
# %% [markdown]
def gelu(x):
    # Φ(x), by erf
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
# %% [markdown]
def swiglu_hidden(d_model, multiple_of):
    """8/3 · d_model, rounded up."""
    return math.ceil(8 * d_model / (3 * multiple_of)) * multiple_of
