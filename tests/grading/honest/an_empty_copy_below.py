# The learner solved all three and pasted the empty cells of the exercise below, to try once more from the start some day.
# What is unsolved is no answer: the solved ones above count.
# expects: sampling.top_k sampling.nucleus_size sampling.which_are_true
# earns: sampling.top_k sampling.nucleus_size sampling.which_are_true
# %%
import torch
# %%
def top_k_filter(logits, k):
    """Return the logits (..., V) with −inf outside the k largest of each row."""
    smallest = logits.topk(min(k, logits.shape[-1])).values.min(-1, keepdim=True).values
    return torch.where(logits >= smallest, logits, -torch.inf)
# %%
sampling_nucleus_size = {"confident": 1, "uncertain": 7}
# %%
sampling_which_are_true = ["b", "c", "f"]
# %% [markdown]
## Once more
# %%
def top_k_filter(logits, k):
    """Return the logits (..., V) with −inf outside the k largest of each row."""
    # Your answer goes here, in place of the next line.
    raise NotImplementedError
# %%
sampling_nucleus_size = ...  # your answer
# %%
sampling_which_are_true = ...  # your answer
