# Some end a notebook's cell early: sys.exit(), exit(), quit(), raise SystemExit, raise KeyboardInterrupt. IPython stays, and
# so do the answers above and below.
# expects: attention.memory masks.causal masks.patterns
# earns: attention.memory masks.causal masks.patterns
# %%
import sys

import torch

attention_memory = 4 * 2048**2
sys.exit("done for today")
# %%
exit()
# %%
def causal_mask(T, S=None):
    S = S if S else T
    return torch.arange(S)[None] <= torch.arange(T)[:, None] + (S - T)
quit()
# %%
raise SystemExit(3)
# %%
raise KeyboardInterrupt
# %%
masks_patterns = frozenset("bdi")
