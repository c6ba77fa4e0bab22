# Results that still hang on a graph, are views of a Parameter, or need a gradient: what counts is their numbers.
# expects: heads.merge feed_forward.swiglu embeddings.lookup
# earns: heads.merge feed_forward.swiglu embeddings.lookup
# %%
import torch
from torch import nn
# %%
def merge_heads(x):
    x = nn.Parameter(x)
    return x.transpose(1, 2).flatten(2)
# %%
def swiglu(x, W_gate, W_up, W_down):
    gate, up, down = (nn.Linear(*W.shape, bias=False, dtype=W.dtype) for W in (W_gate, W_up, W_down))
    for layer, W in ((gate, W_gate), (up, W_up), (down, W_down)):
        layer.weight.data = W.T.clone()
    return down(nn.functional.silu(gate(x)) * up(x))
# %%
def embedding_lookup(weight, ids):
    return torch.gather(weight[None], 1, ids.reshape(1, -1, 1).expand(-1, -1, weight.shape[1])).view(*ids.shape, -1)
