# Tensors without data, of other layouts, of dtypes that hardly anything can compute with; shapes of a trillion numbers.
# expects: attention.softmax attention.scaled_dot_product attention.worked_example attention.saturation masks.causal masks.padding heads.split heads.merge heads.grouped feed_forward.gelu feed_forward.gelu_tanh feed_forward.swiglu normalization.layer_norm embeddings.one_hot encoder_decoder.attention
# %%
import warnings

import torch

warnings.simplefilter("ignore")


def softmax(x, dim):
    return torch.empty_like(x, device="meta")


def scaled_dot_product_attention(q, k, v, mask=None):
    return (q @ k.mT).to_sparse(), torch.sparse_coo_tensor(size=(10**6, 10**6))


def attention_weights(Q, K):
    return torch.quantize_per_tensor(Q, 0.1, 0, torch.quint8)


def attention_entropy(scores, d_k, scaled):
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def causal_mask(T, S=None):
    return torch.zeros(1, dtype=torch.bool).expand(10**6, 10**6)


def padding_mask(lengths, S):
    return torch.zeros(8, dtype=torch.uint64)


def split_heads(x, n_heads):
    return x.to(torch.float8_e4m3fn).repeat(50, 1, 1)


def merge_heads(x):
    return x.to(torch.complex32)


def repeat_kv(k, n_heads):
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 3)], layout=torch.jagged)


def gelu(x):
    return torch.zeros(10**6, 0, 10**6)


def gelu_tanh(x):
    return torch.complex(x.float(), x.float()).conj().repeat(100)


def swiglu(x, W_gate, W_up, W_down):
    return torch.as_strided(torch.zeros(1), (10**9,), (0,))


def layer_norm(x, gamma, beta, eps):
    return x.to_mkldnn() if x.dtype == torch.float32 else x.to(torch.bfloat16)


def one_hot_lookup(weight, ids):
    return weight.to_sparse_csr() if weight.ndim == 2 else weight


def cross_attention(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    with torch.device("meta"):
        return torch.empty(3), torch.empty(10**12)
