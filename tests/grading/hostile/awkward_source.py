# Cells that are hard to read: nested a thousand deep, a megabyte long, with half characters, NUL and Latin-1 headers.
# expects: attention.softmax attention.memory
# earns: attention.memory
# touches: awkward
# %%
attention_memory = 4 * 2048 * 2048
# %%
def softmax(x, dim):
    return NESTED
