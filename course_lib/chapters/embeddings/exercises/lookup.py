import math

import torch

from course_lib.chapters.embeddings.fixtures import rows_and_gradient as probe
from course_lib.grading.exercise import Case, generator, stage


def embedding_lookup(weight, ids):
    """Return the row of each id: weight (V, D), ids (B, T) -> (B, T, D)."""
    return weight[ids]


def table(rng, V, D, dtype=torch.float32):
    return torch.randn(V, D, generator=rng, dtype=dtype)


def drawn_ids(rng, B, T, V):
    """Return random ids; the first is 0 and the last V − 1, so that the cases use both ends of the table."""
    ids = torch.randint(0, V, (B, T), generator=rng)
    ids[0, 0], ids[-1, -1] = 0, V - 1
    return ids


@stage
def one_id(seed):
    "One id gives one row, which keeps its batch axis and its time axis."
    return [Case(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([[1]]))]


@stage
def order_and_repeats(seed):
    "One sequence: the rows are in the order of the ids, and an id that occurs twice gives its row twice."
    weight = torch.arange(12.0).view(4, 3)
    return [Case(weight, torch.tensor([[2, 0, 2]])), Case(weight, torch.tensor([[3, 1, 0, 0, 2]]))]


@stage
def first_row(seed):
    "Id 0 is a token like any other, and the first row belongs to it."
    weight = table(generator(seed), 4, 3)
    return [Case(weight, torch.tensor([[0, 1, 0]]))]


@stage
def several_sequences(seed):
    "A batch of one or more sequences: each keeps its own rows."
    rng = generator(seed)
    return [
        Case(table(rng, 5, 3), drawn_ids(rng, 2, 4, 5)),
        Case(table(rng, 7, 2), drawn_ids(rng, 3, 2, 7)),
        Case(table(rng, 9, 1), drawn_ids(rng, 1, 6, 9)),
        Case(table(rng, 6, 6), drawn_ids(rng, 6, 6, 6)),
    ]


@stage
def double_table(seed):
    "float64 in, float64 out."
    rng = generator(seed)
    return [Case(table(rng, 6, 5, torch.float64), drawn_ids(rng, 2, 3, 6))]


@stage
def learning_table(seed):
    "A table that learns: the gradient must flow back to the rows (the second result is the gradient of the table)."
    rng = generator(seed)
    return [Case(table(rng, 5, 2).requires_grad_(), drawn_ids(rng, 2, 2, 5))]
