# A cell imports seaborn and pandas, which the course does not ask for, and a later one draws with them. Those two cells
# fail here; the answers need neither.
# expects: feed_forward.gelu feed_forward.swiglu_width
# earns: feed_forward.gelu feed_forward.swiglu_width
# %%
import math

import torch
# %%
import seaborn as sns
import pandas as pd

sns.set_theme()
# %%
def gelu(x):
    return x * (1 + torch.erf(x * 0.5**0.5)) / 2
# %%
sns.lineplot(x=[-1, 0, 1], y=gelu(torch.tensor([-1.0, 0.0, 1.0])))
# %%
def swiglu_hidden(d_model, multiple_of):
    needed = 8 * d_model / 3
    return math.ceil(needed / multiple_of) * multiple_of
