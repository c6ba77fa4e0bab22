import torch

from course_lib.grading.exercise import Case, generator, stage


def merge_pair(tokens, pair):
    """Join every place where the two tokens of `pair` stand side by side."""
    merged, i = [], 0
    while i < len(tokens):
        if tuple(tokens[i : i + 2]) == pair:
            merged.append(pair[0] + pair[1])
            i += 2
        else:
            merged.append(tokens[i])
            i += 1
    return merged


def first_only(tokens, pair):
    for i in range(len(tokens) - 1):
        if (tokens[i], tokens[i + 1]) == tuple(pair):
            return [*tokens[:i], tokens[i] + tokens[i + 1], *tokens[i + 2 :]]
    return list(tokens)


def by_steps(tokens, pair, *, matches=None, skip=2, tail=True):
    """A loop over places, with the parts in which learners slip left open."""
    matches = matches or (lambda left, right: (left, right) == tuple(pair))
    merged, i = [], 0
    while i < len(tokens):
        if i + 1 < len(tokens) and matches(tokens[i], tokens[i + 1]):
            merged.append(tokens[i] + tokens[i + 1])
            i += skip
        elif i + 1 < len(tokens) or tail:
            merged.append(tokens[i])
            i += 1
        else:
            break
    return merged


def whatever_the_order(tokens, pair):
    return by_steps(tokens, pair, matches=lambda left, right: {left, right} == set(pair))


def whatever_the_borders(tokens, pair):
    return by_steps(tokens, pair, matches=lambda left, right: left + right == pair[0] + pair[1])


def replaced_in_the_text(tokens, pair):
    return " ".join(tokens).replace(" ".join(pair), "".join(pair)).split()


def from_the_right(tokens, pair):
    turned = merge_pair([token[::-1] for token in tokens[::-1]], tuple(part[::-1] for part in tuple(pair)[::-1]))
    return [token[::-1] for token in turned[::-1]]


def joined_again(tokens, pair):
    return "".join(merge_pair(tokens, pair))


@stage
def one_place(seed):
    "One place where the pair stands."
    return [Case(["c", "a", "t"], ("a", "t"))]


@stage
def every_place(seed):
    "Every place where the pair stands, and the rest as it was."
    return [Case(list("thecatsat"), ("a", "t")), Case([*"mat", *"ten", *"tea"], ("t", "e"))]


@stage
def order_counts(seed):
    "The pair in the other order is another pair."
    return [Case(list("tata"), ("a", "t")), Case(list("abba"), ("b", "a"))]


@stage
def overlapping(seed):
    "From left to right, and no token is used twice: three equal letters hold one pair and a rest."
    return [Case(list("aaa"), ("a", "a")), Case(list("baaaab"), ("a", "a"))]


@stage
def longer_tokens(seed):
    "Tokens that earlier merges made: ('ab', 'c') spells what ('a', 'bc') spells, and is another pair."
    return [
        Case(["ab", "c", "a", "bc"], ("a", "bc")),
        Case(["th", "e", "th", "e", "n", "t", "he"], ("th", "e")),
    ]


@stage
def ends_and_beginnings(seed):
    "A token that ends like the left one of the pair, or begins like the right one, is another token."
    return [Case(["ca", "t"], ("a", "t")), Case(["a", "te"], ("a", "t")), Case(["ca", "a", "t", "te"], ("a", "t"))]


@stage
def nothing_to_merge(seed):
    "Nothing to merge: the same tokens, be there one or none."
    return [Case(["a"], ("a", "a")), Case([], ("a", "b")), Case(list("cab"), ("b", "c"))]


@stage
def drawn_letters(seed):
    "Drawn letters."
    letters = torch.randint(0, 3, (24,), generator=generator(seed)).tolist()
    tokens = ["abc"[i] for i in letters]
    return [Case(tokens, ("a", "b")), Case(tokens, ("c", "c"))]


def turned(order):
    return torch.as_tensor(order).flip(0)
