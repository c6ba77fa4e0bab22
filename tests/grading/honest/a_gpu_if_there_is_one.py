# The usual opening lines pick a device, empty a cache that may not exist, start threads and ask for the machine's name. On a
# machine without a GPU all of that means: go on.
# expects: masks.causal heads.merge
# earns: masks.causal heads.merge
# %%
import gc
import os
import platform

import torch

device = torch.device("cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu")
print(platform.node(), os.cpu_count(), torch.cuda.device_count(), torch.__version__)
if device.type == "cuda":
    torch.cuda.empty_cache()
gc.collect()
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
torch.set_num_threads(max(1, os.cpu_count() or 1))
# %%
big = torch.randn(400, 400, device=device)
print((big @ big).sum().item(), big.softmax(-1).sum().item())
# %%
def causal_mask(T, S=None):
    S = T if S is None else S
    return (torch.ones(T, S, device=device).tril(S - T) == 1).to("cpu")
# %%
def merge_heads(x):
    return x.to(device).transpose(1, 2).flatten(2).cpu()
