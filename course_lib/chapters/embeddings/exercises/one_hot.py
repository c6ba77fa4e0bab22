import torch
import torch.nn.functional as F

from course_lib.grading.exercise import Case, generator, stage


def one_hot_lookup(weight, ids):
    """Multiply one-hot rows by the table: weight (V, D), ids (B, T) -> (B, T, D)."""
    rows_of_one_one = F.one_hot(ids, num_classes=len(weight)).to(weight.dtype)  # (B, T, V)
    return rows_of_one_one @ weight  # (B, T, V) @ (V, D) = (B, T, D)


INF = float("inf")


def table(rng, V, D, dtype=torch.float32):
    return torch.randn(V, D, generator=rng, dtype=dtype)


def drawn_ids(rng, B, T, V):
    """Return random ids; the first is 0 and the last V − 1, so that the cases use both ends of the table."""
    ids = torch.randint(0, V, (B, T), generator=rng)
    ids[0, 0], ids[-1, -1] = 0, V - 1
    return ids


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
