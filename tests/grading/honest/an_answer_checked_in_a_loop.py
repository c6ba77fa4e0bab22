# All answers are kept in a dictionary and checked in one loop at the end, through the module; the names are bound as well.
# An id that does not exist makes the last cell fail, which costs nothing.
# expects: heads.merge heads.grouped
# earns: heads.merge heads.grouped
# %%
import torch

import course_lib
from course_lib import grading
# %%
def merge_heads(x):
    return torch.cat([x[:, h] for h in range(x.shape[1])], dim=2)

def repeat_kv(k, n_heads):
    return k.repeat_interleave(n_heads // k.shape[1], 1)

mine = {"heads.merge": merge_heads, "heads.grouped": repeat_kv}
# %%
for name, answer in mine.items():
    print(grading.check(name, answer))
# %%
grading.check("heads.does_not_exist", None)
