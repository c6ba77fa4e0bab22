# The right numbers in odd clothes: a negated view, a parameter, a view without strides, a sparse tensor, a graph behind it.
# expects: attention.softmax attention.worked_example heads.split heads.merge masks.causal feed_forward.gelu
# earns: attention.softmax attention.worked_example heads.split heads.merge masks.causal feed_forward.gelu
# %%
import torch
from torch import nn


def softmax(x, dim):
    shares = (x - x.logsumexp(dim, keepdim=True)).exp()
    return torch._neg_view(-shares)


def attention_weights(Q, K):
    return nn.Parameter((Q @ K.mT / Q.shape[-1] ** 0.5).softmax(-1))


def split_heads(x, n_heads):
    B, T, D = x.shape
    return x.as_strided((B, n_heads, T, D // n_heads), (x.stride(0), D // n_heads * x.stride(2), x.stride(1), x.stride(2)))


def merge_heads(x):
    return x.transpose(1, 2).flatten(2).to_sparse()


def causal_mask(T, S=None):
    S = S or T
    return (torch.arange(S)[:, None] <= torch.arange(S - T, S)).mT


def gelu(x):
    x = x.clone().requires_grad_()
    return x * (1 + torch.erf(x / 2**0.5)) / 2
