# After its check the learner writes `softmax = softmax(scores, -1)` and goes on with the tensor. Where the check stands the
# name was a function, the check passed, and the function is right: a value that nobody could call is not a second version.
# expects: attention.softmax attention.memory
# earns: attention.softmax attention.memory
# %%
import torch

from course_lib.grading import check
# %%
def softmax(x, dim):
    e = torch.exp(x - x.amax(dim, keepdim=True))
    return e / e.sum(dim, keepdim=True)

check("attention.softmax", softmax)
# %%
scores = torch.tensor([[1.0, 2.0], [0.0, 3.0]])
softmax = softmax(scores, -1)
print(softmax)
# %%
attention_memory = 4 * 2048 * 2048
