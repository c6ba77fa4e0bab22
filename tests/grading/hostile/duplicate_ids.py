# Every cell has the same id, and grade ids that stand twice: answers are found by their names.
# expects: attention.softmax attention.memory masks.causal
# earns: attention.memory
# touches: ids
# %%
def softmax(x, dim):
    return x
# %%
attention_memory = 4 * 2048 * 2048
# %%
def causal_mask(T, S=None):
    return T
