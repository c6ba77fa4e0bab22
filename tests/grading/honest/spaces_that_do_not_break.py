# Non-breaking spaces and typographic quotes came along from a web page. In comments and texts they are harmless. In the code
# of the second answer Python refuses them, for the learner as well: that one is lost and no other.
# expects: masks.causal masks.padding masks.patterns
# earns: masks.causal masks.patterns
# %%
import torch
# %%
def causal_mask(T, S=None):
    """Boolean (T, S): “True” = may attend, ‘False’ = may not."""
    # the last query sees all S keys
    S = T if S is None else S
    return torch.ones(T, S).tril(S - T).bool()
# %%
def padding_mask(lengths, S):
    return (torch.arange(S) < lengths[:, None])[:, None, None, :]
# %%
masks_patterns = {"b", "d", "i"}  # zero width ​ here
