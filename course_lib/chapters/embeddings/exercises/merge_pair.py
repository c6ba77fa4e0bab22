import torch

from course_lib.grading.exercise import Case, generator, stage


def merge_pair(tokens, pair):
    """Join the two tokens of `pair` wherever they occur next to each other."""
    merged, i = [], 0
    while i < len(tokens):
        if tuple(tokens[i : i + 2]) == pair:
            merged.append(pair[0] + pair[1])
            i += 2
        else:
            merged.append(tokens[i])
            i += 1
    return merged


@stage
def one_place(seed):
    "The pair occurs once."
    return [Case(["c", "a", "t"], ("a", "t"))]


@stage
def every_place(seed):
    "The pair occurs several times: join every occurrence and keep the rest."
    return [Case(list("thecatsat"), ("a", "t")), Case([*"mat", *"ten", *"tea"], ("t", "e"))]


@stage
def order_counts(seed):
    "The same two tokens in the other order are a different pair."
    return [Case(list("tata"), ("a", "t")), Case(list("abba"), ("b", "a"))]


@stage
def overlapping(seed):
    "From left to right, and no token is used twice: of three equal letters in a row, the first two are joined."
    return [Case(list("aaa"), ("a", "a")), Case(list("baaaab"), ("a", "a"))]


@stage
def drawn_letters(seed):
    "Random letters."
    letters = torch.randint(0, 3, (24,), generator=generator(seed)).tolist()
    tokens = ["abc"[i] for i in letters]
    return [Case(tokens, ("a", "b")), Case(tokens, ("c", "c"))]


@stage
def longer_tokens(seed):
    "Tokens from earlier merges. Compare whole tokens, not what two tokens spell together or how they begin."
    return [
        Case(["ca", "t"], ("a", "t")),
        Case(["a", "te"], ("a", "t")),
        Case(["ca", "a", "t", "te"], ("a", "t")),
        Case(["ab", "c", "a", "bc"], ("a", "bc")),
        Case(["th", "e", "th", "e", "n", "t", "he"], ("th", "e")),
    ]


@stage
def nothing_to_merge(seed):
    "Nothing to merge: return the same tokens, however few there are."
    return [Case(["a"], ("a", "a")), Case([], ("a", "b")), Case(list("cab"), ("b", "c"))]
