"""Answers with two mistakes of the page at once: embeddings."""

import itertools
from collections import Counter, defaultdict

import torch
import torch.nn.functional as F


def flat_and_from_one(weight, ids):
    flat = ids.reshape(-1)
    return torch.stack([weight[i - 1] for i in flat])


def detached_and_scaled(weight, ids):
    d = weight.size(1)
    out = torch.zeros(*ids.shape, d, dtype=weight.dtype)
    for b, row in enumerate(ids.tolist()):
        for t, i in enumerate(row):
            out[b, t] = weight[i].detach()
    return out * d**0.5


def padding_idx_and_float32(weight, ids):
    vectors = torch.index_select(weight.float(), 0, ids.view(-1)).view(*ids.shape, -1)
    keep = (ids > 0).unsqueeze(-1)
    return torch.where(keep, vectors, torch.zeros_like(vectors))


def narrow_and_float32(weight, ids):
    onehot = F.one_hot(ids).float()
    return torch.matmul(onehot, weight.float())


def flat_and_one_too_far_left(weight, ids):
    rows = torch.zeros(ids.numel(), weight.shape[0], dtype=weight.dtype)
    for n, i in enumerate(ids.flatten().tolist()):
        rows[n, i - 1] = 1
    return rows @ weight


def bag_of_words_in_float32(weight, ids):
    hot = torch.eye(weight.shape[0])[ids]
    return torch.einsum("btv,vd->bd", hot, weight)


def one_step_and_no_last_token(tokens, pair):
    out = []
    for i in range(len(tokens) - 1):
        if (tokens[i], tokens[i + 1]) == pair:
            out.append(tokens[i] + tokens[i + 1])
        else:
            out.append(tokens[i])
    return out


def first_place_by_spelling(tokens, pair):
    word = pair[0] + pair[1]
    for i in range(len(tokens) - 1):
        if tokens[i] + tokens[i + 1] == word:
            return [*tokens[:i], word, *tokens[i + 2 :]]
    return list(tokens)


def either_order_and_one_step(tokens, pair):
    result, position = [], 0
    while position < len(tokens):
        two = tokens[position : position + 2]
        if len(two) == 2 and set(two) == set(pair):
            result.append("".join(two))
        else:
            result.append(tokens[position])
        position += 1
    return result


def _glue(symbols, a, b):
    new, j = [], 0
    while j < len(symbols):
        if j + 1 < len(symbols) and symbols[j] == a and symbols[j + 1] == b:
            new.append(a + b)
            j += 2
        else:
            new.append(symbols[j])
            j += 1
    return new


def unweighted_and_first_on_ties(words, n_merges):
    vocab = [list(w) for w in words]
    learned = []
    while len(learned) < n_merges:
        freq = Counter()
        for symbols in vocab:
            freq.update(itertools.pairwise(symbols))
        if not freq:
            return learned
        best = freq.most_common(1)[0][0]
        learned.append(best)
        vocab = [_glue(symbols, *best) for symbols in vocab]
    return learned


def no_end_and_smaller_on_ties(words, n_merges):
    splits = {w: tuple(w) for w in words}
    merges = []
    for _ in range(n_merges):
        stats = defaultdict(int)
        for w, count in words.items():
            s = splits[w]
            for left, right in itertools.pairwise(s):
                stats[left, right] += count
        best = sorted(stats.items(), key=lambda item: (-item[1], item[0]))[0][0]
        merges.append(best)
        splits = {w: tuple(_glue(s, *best)) for w, s in splits.items()}
    return merges


def once_a_word_and_joined(words, n_merges):
    pieces = [(list(w), c) for w, c in words.items()]
    vocabulary = []
    for _ in range(n_merges):
        count = Counter()
        for p, c in pieces:
            for i in range(len(p) - 1):
                count[p[i], p[i + 1]] += c
        if len(count) == 0:
            break
        top = max(count.values())
        a, b = max(pair for pair in count if count[pair] == top)
        for p, _c in pieces:
            for i in range(len(p) - 1):
                if p[i] == a and p[i + 1] == b:
                    p[i : i + 2] = [a + b]
                    break
        vocabulary.append(a + b)
    return vocabulary


def dot_product_with_itself(weight, index, k):
    similarity = weight @ weight[index]
    return torch.topk(similarity, k)[1]


def nan_and_cosines(weight, index, k):
    query = weight[index]
    lengths = torch.sqrt((weight**2).sum(1))
    cos = (weight * query).sum(1) / (lengths * torch.sqrt((query**2).sum()))
    cos[index] = float("-inf")
    values, _ = torch.sort(cos, descending=True)
    return values[:k]


def absolute_and_first_dropped(weight, index, k):
    unit = F.normalize(weight, dim=1)
    sims = torch.abs(unit @ unit[index])
    order = torch.argsort(sims, descending=True)
    return order[1 : k + 1]


def wrong_sign_and_a_left_out(weight, a, b, c, k):
    vector = weight[a] + weight[b] - weight[c]
    scores = F.cosine_similarity(weight, vector.unsqueeze(0), dim=1)
    scores[a] = -2.0
    return scores.topk(k)[1]


def distance_with_inputs(weight, a, b, c, k):
    goal = weight[a] - weight[b] + weight[c]
    dist = ((weight - goal) ** 2).sum(dim=1).sqrt()
    return dist.argsort()[:k]


def nan_and_too_late(weight, a, b, c, k):
    goal = weight[a] - weight[b] + weight[c]
    cos = torch.mv(weight, goal) / weight.norm(dim=1) / goal.norm()
    found = cos.topk(k).indices.tolist()
    return torch.tensor([i for i in found if i not in (a, b, c)])


DOUBLES = {
    "embeddings.lookup": [
        (flat_and_from_one, ("batch flattened", "counting from one")),
        (detached_and_scaled, ("gradient lost", "scaled")),
        (padding_idx_and_float32, ("id 0 taken for padding", "always float32")),
    ],
    "embeddings.one_hot": [
        (narrow_and_float32, ("as wide as the largest id", "always float32")),
        (flat_and_one_too_far_left, ("batch flattened", "ones at the wrong index")),
        (bag_of_words_in_float32, ("one row per sequence", "float32 whatever the table")),
    ],
    "embeddings.merge_pair": [
        (one_step_and_no_last_token, ("a token used twice", "the last token lost")),
        (first_place_by_spelling, ("only the first pair", "borders ignored")),
        (either_order_and_one_step, ("order ignored", "a token used twice")),
    ],
    "embeddings.merge_table": [
        (unweighted_and_first_on_ties, ("counts ignored", "the first pair on ties")),
        (no_end_and_smaller_on_ties, ("no early end", "the smaller pair on ties")),
        (once_a_word_and_joined, ("once in a word", "the joined tokens returned")),
    ],
    "embeddings.nearest": [
        (dot_product_with_itself, ("dot product", "itself included")),
        (nan_and_cosines, ("NaN wins", "cosines returned")),
        (absolute_and_first_dropped, ("opposite counts as near", "always the first left out")),
    ],
    "embeddings.analogy": [
        (wrong_sign_and_a_left_out, ("a + b − c", "not all three left out")),
        (distance_with_inputs, ("Euclidean distance", "inputs included")),
        (nan_and_too_late, ("NaN wins", "inputs left out too late")),
    ],
}
