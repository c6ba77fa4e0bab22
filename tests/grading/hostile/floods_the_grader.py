# Every answer is a tensor of 60 MB, as large as may pass: together they must not stay in the grader's memory.
# expects: attention.softmax attention.scaled_dot_product positions.rotary
# touches: memory
# %%
import torch

large = torch.zeros(15_000_000)


def softmax(x, dim):
    return large


def scaled_dot_product_attention(q, k, v, mask=None):
    return large


def apply_rotary(x, positions, theta):
    return large
