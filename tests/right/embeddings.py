"""Right answers of chapter 1 in other styles."""

from collections import Counter
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F

from course_lib import embeddings as library


def merge_by_scanning(tokens, pair):
    """Holds the last token back until its right neighbour is known."""
    merged, held = [], None
    for token in tokens:
        if held is not None and (held, token) == pair:
            merged.append(held + token)
            held = None
        else:
            merged += [] if held is None else [held]
            held = token
    return merged if held is None else [*merged, held]


def merge_in_place(tokens, pair):
    out, i = list(tokens), 0
    while i < len(out) - 1:
        if out[i : i + 2] == list(pair):
            out[i : i + 2] = ["".join(pair)]
        i += 1
    return out


def merge_recursively(tokens, pair):
    if len(tokens) < 2:
        return list(tokens)
    if tuple(tokens[:2]) == pair:
        return [tokens[0] + tokens[1], *merge_recursively(tokens[2:], pair)]
    return [tokens[0], *merge_recursively(tokens[1:], pair)]


def bpe_on_tuples(words, n_merges):
    """Keeps every word as a tuple of tokens, with its count, and joins with the merges of this file."""
    corpus = {tuple(word): n for word, n in words.items()}
    merges = []
    while len(merges) < n_merges:
        met = Counter()
        for tokens, n in corpus.items():
            for pair in pairwise(tokens):
                met[pair] += n
        if not met:
            return merges
        most = max(met.values())
        merges.append(max(pair for pair, count in met.items() if count == most))
        corpus = {tuple(merge_by_scanning(tokens, merges[-1])): n for tokens, n in corpus.items()}
    return merges


def bpe_by_sorting(words, n_merges):
    """One list of tokens per word, sorted counts."""
    texts, merges = [(list(word), n) for word, n in words.items()], []
    for _ in range(n_merges):
        met = {}
        for tokens, n in texts:
            for i in range(len(tokens) - 1):
                met[tokens[i], tokens[i + 1]] = met.get((tokens[i], tokens[i + 1]), 0) + n
        if met:
            pair = sorted(met.items(), key=lambda item: (item[1], item[0]))[-1][0]
            merges.append(pair)
            texts = [(merge_in_place(tokens, pair), n) for tokens, n in texts]
    return merges


def lookup_by_index_select(weight, ids):
    return weight.index_select(0, ids.flatten()).unflatten(0, ids.shape)


def lookup_by_gather(weight, ids):
    places = ids.reshape(-1, 1).expand(-1, weight.shape[1])
    return weight.gather(0, places).reshape(*ids.shape, -1)


def lookup_by_loops(weight, ids):
    return torch.stack([torch.stack([weight[int(i)] for i in row]) for row in ids])


def one_hot_by_torch(weight, ids):
    return F.one_hot(ids, num_classes=weight.size(0)).to(weight) @ weight


def one_hot_by_einsum(weight, ids):
    return torch.einsum("btv,vd->btd", torch.eye(len(weight), dtype=weight.dtype)[ids], weight)


def one_hot_in_float32(weight, ids):
    rows = torch.nn.functional.one_hot(ids, weight.shape[0])
    return torch.matmul(rows.float(), weight.float()).type_as(weight)


def one_hot_by_loops(weight, ids):
    rows = torch.zeros(*ids.shape, len(weight), dtype=weight.dtype)
    for place in np.ndindex(*ids.shape):
        rows[(*place, int(ids[place]))] = 1
    return torch.tensordot(rows, weight, dims=1)


def nearest_by_cosine_similarity(weight, index, k):
    scores = F.cosine_similarity(weight[index][None], weight, dim=-1)
    scores[index] = -2
    return scores.topk(k).indices


def nearest_in_numpy(weight, index, k):
    rows = weight.double().numpy()
    lengths = np.linalg.norm(rows, axis=1)
    cosines = rows @ rows[index] / np.where(lengths > 0, lengths, 1)
    return [i for i in np.argsort(-cosines, kind="stable").tolist() if i != index][:k]


def nearest_of_the_library(weight, index, k):
    return library.nearest_tokens(weight, index, k)[0]


def analogy_by_cosine_similarity(weight, a, b, c, k):
    scores = F.cosine_similarity((weight[a] - weight[b] + weight[c])[None], weight, dim=-1)
    return torch.tensor([i for i in scores.argsort(descending=True).tolist() if i not in {a, b, c}][:k])


def analogy_of_the_library(weight, a, b, c, k):
    return library.analogy(weight, a, b, c, k)[0]


RIGHT = {
    "embeddings.merge_pair": [merge_by_scanning, merge_in_place, merge_recursively],
    "embeddings.merge_table": [bpe_on_tuples, bpe_by_sorting],
    "embeddings.lookup": [lookup_by_index_select, lookup_by_gather, lookup_by_loops],
    "embeddings.one_hot": [one_hot_by_torch, one_hot_by_einsum, one_hot_by_loops, one_hot_in_float32],
    "embeddings.nearest": [nearest_by_cosine_similarity, nearest_in_numpy],
    "embeddings.analogy": [analogy_by_cosine_similarity],
    "embeddings.parameters": [30_000.0 * 512, torch.empty(30_000, 512, device="meta").numel()],
}
OF_THE_LIBRARY = {"embeddings.nearest": [nearest_of_the_library], "embeddings.analogy": [analogy_of_the_library]}
