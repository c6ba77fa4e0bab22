"""Right answers in the manner of others: embeddings."""

import heapq
import math
import re
from collections import Counter, defaultdict, deque
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

# --- look-ups ---------------------------------------------------------------------------------------------------------


def lookup_with_asserts(weight: Tensor, ids: Tensor) -> Tensor:
    B, T = ids.size()
    V, D = weight.size()
    assert ids.max().item() < V, "an id is not in the vocabulary"
    return weight[ids.reshape(B * T)].reshape(B, T, D)


def lookup_by_numbers_in_memory(weight, ids):
    """As one who thinks of rows as stretches of one long line."""
    D = weight.shape[1]
    return torch.take(weight, ids.unsqueeze(-1) * D + torch.arange(D))


class Table(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.rows = weight.unbind(0)

    def forward(self, ids):
        found = [self.rows[i] for i in ids.flatten().tolist()]
        return torch.stack(found).view(*ids.shape, -1)


def lookup_by_a_module(weight, ids):
    return Table(weight)(ids)


def lookup_by_comparison(weight, ids):
    """As minimal libraries without an index do: compare with all numbers, multiply, sum."""
    V = weight.shape[0]
    hit = torch.arange(V).reshape(1, 1, V, 1) == ids[:, :, None, None]
    return (hit * weight).sum(2)


def lookup_by_slices(weight, ids):
    texts = []
    for b in range(len(ids)):
        tokens = []
        for t in range(len(ids[b])):
            i = ids[b][t].item()
            tokens.append(weight[i : i + 1])
        texts.append(torch.cat(tokens).unsqueeze(0))
    return torch.cat(texts, dim=0)


def one_hot_by_scatter(weight, ids):
    V = weight.size(0)
    hot = torch.zeros(ids.size(0), ids.size(1), V, dtype=weight.dtype)
    hot.scatter_(2, ids.unsqueeze(2), 1.0)
    return torch.matmul(hot, weight)


def one_hot_by_equality(weight, ids):
    classes = torch.arange(len(weight))
    return (ids[..., None] == classes).type_as(weight) @ weight


def one_hot_by_a_linear_layer(weight, ids):
    V, D = weight.shape
    layer = nn.Linear(V, D, bias=False).to(weight.dtype)
    layer.weight = nn.Parameter(weight.T.contiguous())
    return layer(F.one_hot(ids, num_classes=V).to(weight.dtype))


def one_hot_in_numpy(weight, ids):
    table = weight.numpy()
    return torch.from_numpy(np.eye(table.shape[0], dtype=table.dtype)[ids.numpy()] @ table)


def one_hot_multiplied_out(weight, ids):
    """Every product and every sum in Python."""
    V, D = weight.shape
    out = torch.zeros(*ids.shape, D, dtype=weight.dtype)
    for b in range(ids.shape[0]):
        for t in range(ids.shape[1]):
            hot = [0.0] * V
            hot[ids[b, t]] = 1.0
            for d in range(D):
                out[b, t, d] = sum(hot[v] * weight[v, d] for v in range(V))
    return out


# --- byte pairs -------------------------------------------------------------------------------------------------------


def merge_by_index(tokens, pair):
    """Jumps from one left partner to the next, as GPT-2's encoder does."""
    first, second = pair
    new, i = [], 0
    while i < len(tokens):
        try:
            j = tokens.index(first, i)
        except ValueError:
            new.extend(tokens[i:])
            break
        new.extend(tokens[i:j])
        if j < len(tokens) - 1 and tokens[j + 1] == second:
            new.append(first + second)
            i = j + 2
        else:
            new.append(tokens[j])
            i = j + 1
    return new


def merge_by_regular_expression(tokens, pair):
    """The tokens with spaces between them, and whole tokens replaced."""
    bigram = re.escape(" ".join(pair))
    return re.sub(r"(?<!\S)" + bigram + r"(?!\S)", "".join(pair), " ".join(tokens)).split()


def merge_onto_a_stack(tokens, pair):
    stack = []
    for token in tokens:
        if stack and (stack[-1], token) == pair:
            stack[-1] += token
        else:
            stack.append(token)
    return stack


def merge_from_a_queue(tokens: list[str], pair: tuple[str, str]) -> list[str]:
    def walk():
        queue = deque(tokens)
        while queue:
            token = queue.popleft()
            if queue and token == pair[0] and queue[0] == pair[1]:
                token = token + queue.popleft()
            yield token

    return list(walk())


def merge_by_marks(tokens, pair):
    starts, skipped = set(), set()
    for i in range(len(tokens) - 1):
        if i not in skipped and tokens[i] == pair[0] and tokens[i + 1] == pair[1]:
            starts.add(i)
            skipped.add(i + 1)
    return ["".join(pair) if i in starts else token for i, token in enumerate(tokens) if i not in skipped]


def bpe_with_spaces(words, n_merges):
    """A vocabulary of words with spaces between the tokens, statistics, and a regular expression that joins."""
    vocab = {" ".join(word): freq for word, freq in words.items()}
    merges = []
    for _ in range(n_merges):
        pairs = defaultdict(int)
        for word, freq in vocab.items():
            symbols = word.split()
            for i in range(len(symbols) - 1):
                pairs[symbols[i], symbols[i + 1]] += freq
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        pattern = re.compile(r"(?<!\S)" + re.escape(" ".join(best)) + r"(?!\S)")
        vocab = {pattern.sub("".join(best), word): freq for word, freq in vocab.items()}
        merges.append(best)
    return merges


class Trainer:
    def __init__(self, words):
        self.splits = {word: list(word) for word in words}
        self.freqs = dict(words)

    def pair_freqs(self):
        freqs = Counter()
        for word, freq in self.freqs.items():
            split = self.splits[word]
            for i in range(len(split) - 1):
                freqs[split[i], split[i + 1]] += freq
        return freqs

    def merge(self, a, b):
        for word, split in self.splits.items():
            self.splits[word] = merge_by_index(split, (a, b))

    def train(self, n):
        merges = []
        while len(merges) < n and (freqs := self.pair_freqs()):
            best, top = ("", ""), 0
            for pair, freq in freqs.items():
                if freq > top or (freq == top and pair > best):
                    best, top = pair, freq
            self.merge(*best)
            merges.append(best)
        return merges


def bpe_by_a_trainer(words, n_merges):
    return Trainer(words).train(n_merges)


def bpe_recursively(words, n_merges):
    """One merge, and then the same with words that are tuples of tokens."""

    def train(corpus, n):
        counts = sum((Counter({pair: freq * m for pair, m in met(t).items()}) for t, freq in corpus), Counter())
        if n == 0 or not counts:
            return []
        _, best = max((freq, pair) for pair, freq in counts.items())
        return [best, *train([(tuple(merge_onto_a_stack(t, best)), freq) for t, freq in corpus], n - 1)]

    def met(tokens):
        return Counter(pairwise(tokens))

    return train(list(words.items()), n_merges)


def bpe_with_running_counts(words, n_merges):
    """Counts once, and afterwards only what a merge changes, in the words in which its pair stands."""
    texts, freqs = [list(word) for word in words], list(words.values())
    counts, where = Counter(), defaultdict(set)

    def count(n, sign):
        for pair in pairwise(texts[n]):
            counts[pair] += sign * freqs[n]
            where[pair].add(n)

    for n in range(len(texts)):
        count(n, 1)
    merges = []
    for _ in range(n_merges):
        counts = +counts  # pairs that are gone do not stay with a count of 0
        if not counts:
            break
        best = max(counts.items(), key=lambda item: item[::-1])[0]
        for n in where.pop(best):
            count(n, -1)
            texts[n] = merge_from_a_queue(texts[n], best)
            count(n, 1)
        merges.append(best)
    return merges


# --- neighbours -------------------------------------------------------------------------------------------------------


def nearest_by_unit_rows(weight, index, k):
    unit = F.normalize(weight, p=2, dim=1)
    similarity = torch.matmul(unit, unit[index])
    similarity[index] = float("-inf")
    _, best = torch.topk(similarity, k=k, largest=True, sorted=True)
    return best


def nearest_with_a_small_number(weight, index, k):
    """The usual small number below the fraction."""
    query = weight[index].unsqueeze(0)
    scores = (weight @ query.T).squeeze(1) / (weight.norm(dim=1) * query.norm() + 1e-8)
    keep = torch.arange(weight.size(0)) != index
    candidates = torch.arange(weight.size(0))[keep]
    return candidates[scores[keep].argsort(descending=True)[:k]]


def nearest_in_python(weight, index, k):
    def cosine(u, v):
        length = math.sqrt(sum(a * a for a in u)) * math.sqrt(sum(b * b for b in v))
        return sum(a * b for a, b in zip(u, v, strict=True)) / length if length else 0.0

    rows = weight.tolist()
    return heapq.nlargest(k, (i for i in range(len(rows)) if i != index), key=lambda i: cosine(rows[i], rows[index]))


def nearest_in_a_table_of_all(weight, index, k):
    every = F.cosine_similarity(weight[:, None, :], weight[None, :, :], dim=-1)  # (V, V)
    every.fill_diagonal_(-torch.inf)
    return every[index].sort(descending=True).indices[:k]


def nearest_most_similar(weight, index, k):
    vectors = weight.numpy()
    norms = np.sqrt((vectors**2).sum(-1))
    norms[norms == 0] = 1.0
    dists = (vectors / norms[:, None]) @ (vectors[index] / norms[index])
    best = np.argsort(dists)[::-1]
    return torch.tensor([int(i) for i in best if i != index][:k])


def analogy_most_similar(weight, a, b, c, k):
    positive, negative = [a, c], [b]
    vectors = weight.double().numpy()
    mean = sum(vectors[i] for i in positive) - sum(vectors[i] for i in negative)
    lengths = np.maximum(np.linalg.norm(vectors, axis=1), 1e-12)
    order = np.argsort(-(vectors @ mean) / lengths)
    return torch.as_tensor([i for i in order.tolist() if i not in positive + negative][:k])


def analogy_with_three_spare(weight, a, b, c, k):
    """Three more than are asked for, since at most three are dropped."""
    target = weight[a] - weight[b] + weight[c]
    scores = torch.mv(F.normalize(weight, dim=-1), F.normalize(target, dim=0))
    best = scores.topk(min(k + 3, len(weight))).indices
    return torch.stack([i for i in best if i.item() not in (a, b, c)])[:k]


def analogy_among_the_others(weight, a, b, c, k):
    others = torch.ones(len(weight), dtype=torch.bool)
    others[torch.tensor([a, b, c])] = False
    places = others.nonzero().squeeze(1)
    query = torch.einsum("n,nd->d", torch.tensor([1.0, -1.0, 1.0], dtype=weight.dtype), weight[[a, b, c]])
    return places[torch.cosine_similarity(query.expand(len(places), -1), weight[places]).topk(k).indices]


def analogy_in_python(weight, a, b, c, k):
    rows = weight.tolist()
    goal = [x - y + z for x, y, z in zip(rows[a], rows[b], rows[c], strict=True)]
    scored = []
    for i, row in enumerate(rows):
        if i in {a, b, c}:
            continue
        dot = sum(x * y for x, y in zip(row, goal, strict=True))
        length = math.hypot(*row)
        scored.append((dot / length if length > 0 else 0.0, i))
    return [i for _, i in sorted(scored, reverse=True)[:k]]


def analogy_with_a_fill(weight, a, b, c, k):
    norms = weight.pow(2).sum(1).sqrt().clamp(min=1e-8)
    scores = weight @ (weight[a] + weight[c] - weight[b]) / norms
    return scores.index_fill(0, torch.tensor([a, b, c]), torch.finfo(scores.dtype).min).topk(k)[1]


STRANGERS = {
    "embeddings.lookup": [
        lookup_with_asserts,
        lookup_by_numbers_in_memory,
        lookup_by_a_module,
        lookup_by_comparison,
        lookup_by_slices,
    ],
    "embeddings.one_hot": [
        one_hot_by_scatter,
        one_hot_by_equality,
        one_hot_by_a_linear_layer,
        one_hot_in_numpy,
        one_hot_multiplied_out,
    ],
    "embeddings.merge_pair": [
        merge_by_index,
        merge_by_regular_expression,
        merge_onto_a_stack,
        merge_from_a_queue,
        merge_by_marks,
    ],
    "embeddings.merge_table": [bpe_with_spaces, bpe_by_a_trainer, bpe_recursively, bpe_with_running_counts],
    "embeddings.nearest": [
        nearest_by_unit_rows,
        nearest_with_a_small_number,
        nearest_in_python,
        nearest_in_a_table_of_all,
        nearest_most_similar,
    ],
    "embeddings.analogy": [
        analogy_most_similar,
        analogy_with_three_spare,
        analogy_among_the_others,
        analogy_in_python,
        analogy_with_a_fill,
    ],
}
