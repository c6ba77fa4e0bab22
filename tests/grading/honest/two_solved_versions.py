# Two finished versions of each: the last one counts, as it does for everyone who runs the cells. The first exercise was
# right and then changed for the worse: it is not earned. The other two were mended: they are.
# expects: feed_forward.gelu feed_forward.swiglu feed_forward.swiglu_width
# earns: feed_forward.swiglu feed_forward.swiglu_width
# %%
import torch
# %%
def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))
# %%
def swiglu(x, W_gate, W_up, W_down):
    return (torch.sigmoid(x @ W_gate) * (x @ W_up)) @ W_down
# %%
swiglu_hidden = lambda d_model, multiple_of: d_model * 4
# %% [markdown]
## Second thoughts
# %%
def gelu(x):
    return x * torch.sigmoid(1.702 * x)
# %%
def swiglu(x, W_gate, W_up, W_down):
    looks = x @ W_gate
    return (looks * torch.sigmoid(looks) * (x @ W_up)) @ W_down
# %%
def swiglu_hidden(d_model, multiple_of):
    return -(-8 * d_model // (3 * multiple_of)) * multiple_of
