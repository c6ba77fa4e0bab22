# Three answers rest on the learner's own softmax, one of them in another chapter's exercise. A learner who solves one well
# builds on it.
# expects: attention.softmax attention.scaled_dot_product attention.saturation sampling.temperature
# earns: attention.softmax attention.scaled_dot_product attention.saturation sampling.temperature
# %%
import torch
# %%
def softmax(x, dim):
    e = (x - x.amax(dim, keepdim=True).clamp(min=torch.finfo(x.dtype).min)).exp()
    return e / e.sum(dim, keepdim=True)
# %%
def scaled_dot_product_attention(q, k, v, mask=None):
    scores = torch.matmul(q, k.transpose(-1, -2)).div(k.size(-1) ** 0.5)
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf"))
    weights = torch.nan_to_num(softmax(scores, -1))
    return torch.matmul(weights, v), weights
# %%
def attention_entropy(scores, d_k, scaled):
    p = softmax(scores / d_k**0.5, -1) if scaled else softmax(scores, -1)
    return torch.special.entr(p).sum(-1)
# %%
def temperature_softmax(logits, temperature):
    if temperature:
        return softmax(logits / temperature, -1)
    return (torch.arange(logits.shape[-1]) == logits.argmax(-1, keepdim=True)).to(logits.dtype)
