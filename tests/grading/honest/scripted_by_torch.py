# torch.jit.script reads the source of the function, which Jupyter keeps for every cell. Its result is no Python function,
# has no Python signature, and is right.
# expects: feed_forward.gelu
# earns: feed_forward.gelu
# %%
import torch
# %%
@torch.jit.script
def gelu(x):
    return 0.5 * x * (1.0 + torch.erf(x * 0.7071067811865476))
