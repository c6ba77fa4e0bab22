# The answers write into tensors in place, but into copies of their inputs, and one returns a view. Inputs stay as they were.
# expects: attention.softmax sampling.top_p heads.grouped
# earns: attention.softmax sampling.top_p heads.grouped
# %%
import torch
# %%
def softmax(x, dim):
    x = x.clone()
    x -= x.amax(dim, keepdim=True)
    x.exp_()
    x /= x.sum(dim, keepdim=True)
    return x
# %%
def top_p_filter(logits, p):
    out = logits.clone()
    for row in out.view(-1, out.shape[-1]):
        shares = row.softmax(-1)
        sum_so_far = 0.0
        for token in shares.argsort(descending=True).tolist():
            if sum_so_far >= p:
                row[token] = float("-inf")
            sum_so_far += shares[token]
    return out
# %%
def repeat_kv(k, n_heads):
    B, few, S, D = k.shape
    return k[:, :, None].expand(B, few, n_heads // few, S, D).reshape(B, n_heads, S, D)
