# One answer sleeps before it computes, a second in all; one is three loops in Python over every number. Slow is right, too.
# expects: counting.flops attention.worked_example heads.merge
# earns: counting.flops attention.worked_example heads.merge
# %%
import math
import time

import torch
# %%
def train_flops(n_params, n_tokens):
    time.sleep(0.2)
    return 8 * n_params * n_tokens
# %%
def attention_weights(Q, K):
    table = torch.zeros(len(Q), len(K), dtype=Q.dtype)
    for t in range(len(Q)):
        for s in range(len(K)):
            score = 0.0
            for d in range(Q.shape[1]):
                score += float(Q[t, d]) * float(K[s, d])
            table[t, s] = math.exp(score / math.sqrt(Q.shape[1]))
        table[t] /= table[t].sum().clone()
    return table
# %%
def merge_heads(x):
    B, H, T, D = x.shape
    out = torch.zeros(B, T, H * D, dtype=x.dtype)
    for b in range(B):
        for t in range(T):
            for h in range(H):
                for d in range(D):
                    out[b, t, h * D + d] = x[b, h, t, d]
    return out
