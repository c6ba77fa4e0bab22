import torch
import torch.nn.functional as F

from course_lib.chapters.embeddings.exercises import _shared
from course_lib.grading.exercise import Case, stage


def one_hot_lookup(weight, ids):
    """Multiply one-hot rows by the table: weight (V, D), ids (B, T) -> (B, T, D)."""
    rows_of_one_one = F.one_hot(ids, num_classes=len(weight)).to(weight.dtype)  # (B, T, V)
    return rows_of_one_one @ weight  # (B, T, V) @ (V, D) = (B, T, D)


INF = float("inf")


@stage
def by_product(seed):
    "One id in a table of three rows: [0, 1, 0] times the table."
    return [Case(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), torch.tensor([[1]]))]


@stage
def every_row_takes_part(seed):
    "A row of infinities that is not looked up. A product contains 0 · ∞, which is NaN; a look-up never reads the row."
    weight = torch.arange(1.0, 9.0).view(4, 2)
    weight[3] = INF
    return [Case(weight, torch.tensor([[1, 0]]))]


@stage
def sequence_by_product(seed):
    "One sequence in which an id occurs twice and the largest id is not the last row of the table."
    return [Case(torch.arange(12.0).view(4, 3), torch.tensor([[2, 0, 2]]))]


several_sequences = stage(_shared.several_sequences)
double_table = stage(_shared.double_table)
