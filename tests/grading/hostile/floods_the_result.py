# Answers, messages and names of a megabyte and more, up to 50 MB; dictionaries of nine thousand long names.
# expects: attention.softmax masks.causal masks.padding heads.split heads.merge attention.memory masks.patterns embeddings.merge_pair attention.who_is_it pretrained.map_gpt2 feed_forward.parameters
# touches: text
# %%
import torch

attention_memory = "9" * 50_000_000
masks_patterns = ["x" * 1_000_000] * 50
feed_forward_parameters = {f"{'x' * 300}{number}": number for number in range(9_000)}


def softmax(x, dim):
    raise ValueError("x" * 50_000_000)


def causal_mask(T, S=None):
    return "x" * 50_000_000


def padding_mask(lengths, S):
    return list(range(9_999)) * 1000


def split_heads(x, n_heads):
    return torch.zeros(4000, 4000, dtype=torch.float64)


def merge_heads(x):
    raise type("E" * 1_000_000, (Exception,), {})("\n" * 1_000_000)


def merge_pair(tokens, pair):
    return ["x" * 300_000] * len(tokens)


def most_attended(tokens, embeddings, query_token):
    return "x" * 1_500_000, embeddings[:, 0]


def from_gpt2(state_dict):
    return {f"{'x' * 150}{number}": number for number in range(9_000)}
