# import torch as th, torch2 = torch, `np` for something else, `math` for a number, `random` for a function, `json` for a text.
# expects: heads.split heads.merge attention.memory
# earns: heads.split heads.merge attention.memory
# %%
import torch as th
import torch.nn.functional as f

torch2 = th
np = "no problem"
math = 3.14159
json = "{}"
os = sys = inspect = linecache = traceback = None

def random(*size):
    return th.rand(*size)
# %%
def split_heads(x, n_heads):
    return torch2.stack(torch2.chunk(x, n_heads, -1), 1)
# %%
def merge_heads(x):
    return torch2.cat(torch2.unbind(x, 1), -1)
# %%
attention_memory = 4 * 2048 * 2048
