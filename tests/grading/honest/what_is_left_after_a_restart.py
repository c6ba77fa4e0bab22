# Cells lean on what was in the kernel: Out, In and _ of earlier runs, a deleted variable, get_ipython(). They fail or not,
# by themselves; the answers do not need them.
# expects: masks.padding masks.patterns
# earns: masks.padding masks.patterns
# %%
import torch
# %%
_ + 1
# %%
Out[12][0]
# %%
del old_weights
# %%
get_ipython().run_line_magic("matplotlib", "inline")
get_ipython().system("ls")
# %%
def padding_mask(lengths, S):
    """Written in In[31], they say."""
    return torch.stack([torch.arange(S) < n for n in lengths])[:, None, None]
# %%
padding_mask(weights_of_yesterday, 3)
# %%
masks_patterns = {"b", "d", "i"}
del torch.some_attribute_that_never_was
