import math

import torch

from course_lib.chapters.embeddings.exercises import _shared
from course_lib.chapters.embeddings.exercises._shared import drawn_ids, table
from course_lib.chapters.embeddings.fixtures import rows_and_gradient as probe
from course_lib.grading.exercise import Case, generator, stage


def embedding_lookup(weight, ids):
    """Return the row of each id: weight (V, D), ids (B, T) -> (B, T, D)."""
    return weight[ids]


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


several_sequences = stage(_shared.several_sequences)
double_table = stage(_shared.double_table)


@stage
def learning_table(seed):
    "A table that learns: the gradient must flow back to the rows (the second result is the gradient of the table)."
    rng = generator(seed)
    return [Case(table(rng, 5, 2).requires_grad_(), drawn_ids(rng, 2, 2, 5))]
