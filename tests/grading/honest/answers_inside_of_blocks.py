# Answers are defined under `if __name__ == "__main__":`, inside of try, for, with and if. They are names of the notebook
# all the same.
# expects: feed_forward.gelu heads.grouped heads.split counting.flops counting.changes
# earns: feed_forward.gelu heads.grouped heads.split counting.flops counting.changes
# %%
import contextlib

import torch
# %%
if __name__ == "__main__":
    def gelu(x):
        return x * torch.special.ndtr(x)
# %%
try:
    import einops_is_not_here

    def repeat_kv(k, n_heads):
        return einops_is_not_here.repeat(k, "b h s d -> b (h g) s d", g=n_heads // k.shape[1])
except ImportError:
    def repeat_kv(k, n_heads):
        return torch.repeat_interleave(k, n_heads // k.shape[1], dim=1)
# %%
for attempt in range(2):
    def split_heads(x, n_heads):
        return x.unflatten(-1, (n_heads, -1)).transpose(-2, -3)
# %%
with contextlib.suppress(ValueError):
    train_flops = lambda n_params, n_tokens: 8 * n_tokens * n_params
    raise ValueError("on purpose")
# %%
if torch.cuda.is_available():
    counting_changes = {"a"}
else:
    counting_changes = {"b", "d", "f"}
