# tqdm in its three forms, in cells and inside of answers, one of them the notebook form, which wants widgets.
# expects: feed_forward.forward feed_forward.swiglu
# earns: feed_forward.forward feed_forward.swiglu
# %%
import time

import torch
from tqdm import tqdm, trange
from tqdm.auto import tqdm as auto
# %%
for _ in auto(range(200), desc="warming up"):
    pass
for _ in trange(100):
    pass
with tqdm(total=10) as bar:
    bar.update(10)
# %%
def ffn(x, W1, b1, W2, b2, activation):
    hidden = x @ W1 + b1
    out = torch.zeros(*x.shape[:-1], W2.shape[1], dtype=x.dtype)
    for j in tqdm(range(hidden.shape[-1]), desc="units", leave=False):
        unit = hidden[..., j]
        fires = unit.relu() if activation == "relu" else torch.nn.functional.gelu(unit)
        out = out + fires.unsqueeze(-1) * W2[j]
    return out + b2
# %%
def swiglu(x, W_gate, W_up, W_down):
    parts = []
    for W in auto([W_gate, W_up], disable=None):
        parts.append(x @ W)
    gate, proposal = parts
    return gate * gate.sigmoid() * proposal @ W_down
