# A name first stands for something else, torch's own function or a first guess, and is then bound to the answer. The last
# one counts.
# expects: attention.softmax attention.memory masks.patterns
# earns: attention.softmax attention.memory masks.patterns
# %%
import torch

softmax = torch.softmax  # until I have my own
attention_memory = 2048 * 2048
masks_patterns = set()
# %%
masks_patterns |= {"b"}
masks_patterns.update("di")
# %%
def my_softmax(x, dim):
    e = torch.exp(x - x.max(dim, keepdim=True).values)
    return e / e.sum(dim, keepdim=True)

softmax, unused = my_softmax, None
# %%
attention_memory *= 4
