# The learner leans on what check, hint, mine, progress, explore and climb return: asserts that a check passed, prints
# its points, keeps the panel. In the same cells, below, stand answers. Whatever these functions are while a class is
# graded, they let the cell go on.
# expects: attention.softmax attention.memory masks.causal masks.patterns
# earns: attention.softmax attention.memory masks.causal masks.patterns
# %%
import torch

import course_lib.grading as grading
from course_lib.grading import check, hint, mine, progress
from course_lib.ladder import climb
from course_lib.live import explore
# %%
def softmax(x, dim):
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)

assert check("attention.softmax", softmax).passed
hint("attention.softmax")
hint("attention.softmax").text.upper()
attention_memory = 4 * 2048**2
# %%
result = check("attention.memory", attention_memory)
print(result.points, "points;", f"{result.earned:2d} earned;", result.feedback.splitlines()[:1])
if not result.passed:
    raise ValueError(result.feedback)

def causal_mask(T, S=None):
    S = T if S is None else S
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)
# %%
panel = explore("attention.softmax", softmax)
panel
climb("attention", attention=mine("attention.scaled_dot_product")).press("attention")
# %%
print(progress())
done = sum(row.earned for row in progress().rows)
if grading.check("masks.causal", causal_mask).passed and done >= 0:
    masks_patterns = {"b", "d", "i"}
