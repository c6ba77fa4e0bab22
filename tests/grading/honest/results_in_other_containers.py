# A namedtuple for a pair, a list for a pair, a tuple for a list of tokens, a defaultdict and an OrderedDict for a table, an
# IntEnum for a number. What they hold is what was asked.
# expects: attention.scaled_dot_product efficiency.kv_cache embeddings.merge_pair feed_forward.parameters counting.bert_layer normalization.parameters
# earns: attention.scaled_dot_product efficiency.kv_cache embeddings.merge_pair feed_forward.parameters counting.bert_layer normalization.parameters
# %%
from collections import OrderedDict, defaultdict, namedtuple
from enum import IntEnum

import torch
# %%
Attention = namedtuple("Attention", "mixed shares")

def scaled_dot_product_attention(q, k, v, mask=None):
    scores = q @ k.mT / k.shape[-1] ** 0.5
    if mask is not None:
        scores = scores + torch.zeros_like(scores).masked_fill(~mask, -torch.inf)
    shares = scores.softmax(-1).nan_to_num(0.0)
    return Attention(shares @ v, shares)
# %%
def cached_attention(q_new, k_new, v_new, cache):
    k, v = (torch.cat([old, new], 2) for old, new in zip(cache or (k_new[:, :, :0], v_new[:, :, :0]), (k_new, v_new)))
    may = torch.ones(q_new.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q_new.shape[2])
    return [scaled_dot_product_attention(q_new, k, v, may).mixed, [k, v]]
# %%
def merge_pair(tokens, pair):
    out = ()
    for token in tokens:
        out = (*out[:-1], out[-1] + token) if out and (out[-1], token) == pair else (*out, token)
    return out
# %%
feed_forward_parameters = defaultdict(int, ratio=3 * 4096 * 11008 / (8 * 4096 * 4096 + 5 * 4096))
feed_forward_parameters["ffn"] += 512 * 2048 + 2048
feed_forward_parameters["ffn"] += 512 * 2048 + 512
# %%
counting_bert_layer = OrderedDict(q_head=1025 * 64, attention=4 * 1025 * 1024, ffn=1024 * 4096 * 2 + 4096 + 1024)
counting_bert_layer.update(layer=sum(list(counting_bert_layer.values())[1:]) + 4 * 1024)
counting_bert_layer["all_layers"] = counting_bert_layer["layer"] * 24
# %%
class Norms(IntEnum):
    PRE_NORM_BLOCK = 4 * 768

normalization_parameters = Norms.PRE_NORM_BLOCK
