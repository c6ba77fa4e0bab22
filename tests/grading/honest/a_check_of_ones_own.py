# The learner has functions of the names check, hint, explore, progress and grade, made for other ends. They are the learner's,
# and the grader does not need the course's.
# expects: feed_forward.gelu attention.memory
# earns: feed_forward.gelu attention.memory
# %%
import torch

def check(condition, message="wrong"):
    assert condition, message
    return condition

hint = "think of the error function"
progress = 0.5
explore = lambda *anything: None
grade = "A"
answer = answers = namespace = result = results = seed = None
# %%
def gelu(x):
    return x * torch.distributions.Normal(0.0, 1.0).cdf(x.double()).to(x.dtype)

check(torch.allclose(gelu(torch.zeros(3)), torch.zeros(3)))
# %%
attention_memory = 2048 * 2048 * 4
check(attention_memory > 0)
check(attention_memory < 0, "this one fails, on purpose")
