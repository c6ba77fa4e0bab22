from collections import Counter

import torch

from course_lib.grading.exercise import Case, generator, stage


def train_bpe(words, n_merges):
    """Learn the merges of byte-pair encoding from words and their counts."""
    split, merges = {word: list(word) for word in words}, []
    for _ in range(n_merges):
        counts = Counter()
        for word, n in words.items():
            for pair in zip(split[word], split[word][1:]):
                counts[pair] += n
        if not counts:
            break
        pair = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(pair)
        for tokens in split.values():
            i = 0
            while i < len(tokens) - 1:
                if (tokens[i], tokens[i + 1]) == pair:
                    tokens[i : i + 2] = [pair[0] + pair[1]]
                i += 1
    return merges


@stage
def one_merge(seed):
    "One merge: the most frequent pair, counting each word as often as it occurs."
    return [Case({"low": 3, "lot": 2}, 1), Case({"sat": 1, "mat": 1, "on": 5}, 1)]


@stage
def several_merges(seed):
    "Several merges: pairs are counted again after each merge, including those with joined tokens."
    return [Case({"low": 3, "lot": 2}, 2), Case({"the": 6, "he": 2, "cat": 3, "at": 1}, 4)]


@stage
def equal_counts(seed):
    "Equal counts: the greater pair, whatever the order of the words."
    return [
        Case({"az": 2, "ba": 2}, 2),
        Case({"ba": 2, "az": 2}, 2),
        Case({"abab": 1, "ba": 1, "aab": 1}, 3),
        Case({"ab": 5, "abc": 2, "ad": 2}, 3),
    ]


@stage
def repeated_letters(seed):
    "A pair that occurs more than once in a word. Where it overlaps with itself, the left one is joined."
    return [Case({"aaa": 2, "bc": 3}, 2), Case({"papapa": 1, "ma": 2}, 3), Case({"aaaaa": 1}, 3)]


@stage
def ends_of_tokens(seed):
    "A token that only ends with the left token of the pair: only whole tokens are joined."
    return [Case({"ca": 9, "cab": 1, "ab": 7, "abd": 2}, 3)]


@stage
def within_words(seed):
    "No pair extends from one word into the next."
    return [Case({"ab": 4, "ba": 1}, 2), Case({"a": 9, "b": 9, "cd": 1}, 1)]


@stage
def drawn_words(seed):
    "Random words."
    rng = generator(seed)
    drawn = [torch.randint(0, 3, (int(n),), generator=rng).tolist() for n in torch.randint(2, 8, (12,), generator=rng)]
    words = {"".join("abc"[i] for i in letters): 1 + len(letters) % 4 for letters in drawn}
    return [Case(words, 8)]


@stage
def no_pair_left(seed):
    "No merges are requested, or no pair remains before `n_merges` is reached: return the merges so far."
    return [Case({"cat": 1}, 9), Case({"a": 3}, 2), Case({}, 2), Case({"ab": 1, "cd": 1}, 0)]
