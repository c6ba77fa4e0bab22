# One answer calls itself, one is put together from a generator, one uses reduce and itertools.
# expects: embeddings.merge_pair heads.grouped feed_forward.swiglu_width
# earns: embeddings.merge_pair heads.grouped feed_forward.swiglu_width
# %%
import itertools
from functools import reduce

import torch
# %%
def merge_pair(tokens, pair):
    def walk(rest):
        if len(rest) > 1 and (rest[0], rest[1]) == pair:
            yield rest[0] + rest[1]
            yield from walk(rest[2:])
        elif rest:
            yield rest[0]
            yield from walk(rest[1:])
    return [*walk(tokens)]
# %%
def repeat_kv(k, n_heads):
    each = n_heads // k.shape[1]
    heads = itertools.chain.from_iterable(itertools.repeat(head, each) for head in k.unbind(1))
    return reduce(lambda a, b: torch.cat([a, b], 1), (head[:, None] for head in heads))
# %%
def swiglu_hidden(d_model, multiple_of):
    return next(width for width in itertools.count(0, multiple_of) if 3 * width >= 8 * d_model)
