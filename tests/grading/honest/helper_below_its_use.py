# The function uses a helper that stands in a lower cell, and a number is computed with one that stands lower still, so that
# its cell fails at first. Both were run in the order of writing; both are right.
# expects: attention.scaled_dot_product attention.memory
# earns: attention.scaled_dot_product attention.memory
# %%
import torch
# %%
attention_memory = table_entries(2048) * BYTES
# %%
def scaled_dot_product_attention(q, k, v, mask=None):
    weights = shares(q @ k.mT / root_of_width(k), mask)
    return weights @ v, weights
# %%
def root_of_width(k):
    return k.shape[-1] ** 0.5

def shares(scores, mask):
    if mask is None:
        return scores.softmax(-1)
    return scores.masked_fill(mask.logical_not(), float("-inf")).softmax(-1).nan_to_num(0.0)
# %%
def table_entries(tokens):
    return tokens * tokens

BYTES = 4
