# The checks without the answers, and answers without the checks' names.
# expects: attention.softmax attention.memory
# %% [markdown]
# # I did it
# %%
from course_lib.grading import check
# %%
check("attention.softmax", softmax)
check("attention.memory", attention_memory)
# %%
Softmax = softmax_ = lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True)
Attention_memory = 16_777_216
