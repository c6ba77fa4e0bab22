# The arguments are called otherwise than in the text, have defaults, are followed by others of the learner's own, or come as
# *args. Answers are called by position.
# expects: attention.softmax heads.split feed_forward.swiglu counting.flops
# earns: attention.softmax heads.split feed_forward.swiglu counting.flops
# %%
import torch
# %%
def softmax(scores, axis=-1, *, stable=True):
    if stable:
        scores = scores - scores.max(axis, keepdim=True)[0]
    e = torch.e**scores
    return e / e.sum(axis, keepdim=True)
# %%
def split_heads(tensor, /, H, debug=False, **more):
    return tensor.reshape(*tensor.shape[:2], H, -1).permute(0, 2, 1, 3)
# %%
def swiglu(*args):
    x, looks, proposes, back = args
    return torch.mm(
        (torch.nn.SiLU()(x @ looks) * (x @ proposes)).flatten(0, -2) if x.ndim > 1 else
        (torch.nn.SiLU()(x @ looks) * (x @ proposes))[None], back
    ).reshape(*x.shape[:-1], back.shape[1])
# %%
def train_flops(N, D, factor=8):
    return factor * N * D
