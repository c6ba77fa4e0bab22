# Seeds in every cell and inside of the answers: torch, NumPy, random, a generator of one's own. An answer that draws from
# the generator which it was given, or whatever else it seeds, is right.
# expects: attention.score_variance training.get_batch sampling.next_token
# earns: attention.score_variance training.get_batch sampling.next_token
# %%
import random

import numpy as np
import torch

torch.manual_seed(1234)
torch.cuda.manual_seed_all(1234)
np.random.seed(1234)
random.seed(1234)
# %%
def score_variance(d_k, n_pairs):
    torch.manual_seed(7)
    rng = np.random.default_rng(7)
    q, k = torch.randn(n_pairs, d_k), torch.as_tensor(rng.standard_normal((n_pairs, d_k)))
    scores = torch.einsum("nd,nd->n", q.double(), k)
    return float(scores.var()), float((scores * d_k**-0.5).var())
# %%
torch.manual_seed(0)

def get_batch(ids, batch_size, T, generator):
    torch.manual_seed(0)
    starts = torch.randint(0, len(ids) - T, size=[batch_size], generator=generator).tolist()
    return torch.stack([ids[i : i + T] for i in starts]), torch.stack([ids[i + 1 : i + T + 1] for i in starts])
# %%
def sample_next_token(logits, temperature, top_k, top_p, generator):
    random.seed(0)
    if temperature == 0:
        return logits.argmax(-1)
    p = (logits / temperature).softmax(-1)
    if top_k is not None:
        p = p * (p >= p.topk(min(top_k, p.shape[-1])).values[:, -1:])
        p = p / p.sum(-1, keepdim=True)
    if top_p is not None:
        ordered, order = p.sort(-1, descending=True)
        ordered = ordered * (ordered.cumsum(-1) - ordered < top_p)
        p = torch.zeros_like(p).scatter(-1, order, ordered)
    return torch.multinomial(p, 1, generator=generator)[:, 0]
