import torch

from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare


def quantize_int8(W):
    """Return whole numbers q (O, I) from −127 to 127, of dtype int8, and a scale per
    row (O,): row ≈ scale · q."""
    largest = W.abs().amax(dim=1)  # (O,)
    scale = torch.where(largest > 0, largest / 127, 1.0)
    q = (W / scale[:, None]).round().to(torch.int8)
    return q, scale


def is_pair(value):
    return isinstance(value, (tuple, list)) and [type(part) for part in value] == [torch.Tensor] * 2


def summary(case, brought):
    """Replace any finite scale above 0 of a row of zeros by 1, because it is free and must not hide a mistake."""
    if not is_pair(brought) or brought[1].shape != case.args[0].shape[:1]:
        return brought
    q, scale = brought
    free = (case.args[0] == 0).all(dim=1) & (scale > 0) & scale.isfinite()
    return q, torch.where(free, torch.ones_like(scale), scale)


def judge(case, expected, got):
    """Require integers of one byte."""
    if is_pair(got) and compare(expected, got) is None and got[0].dtype != torch.int8:
        return f"The numbers in `q` are right, but its dtype is {got[0].dtype}. Expected torch.int8."
    return compare(expected, got, names=("q", "scale"))


def drawn(seed, rows, columns, dtype=torch.float32, sizes=(1.0,)):
    """Return a matrix in which no number is halfway between two steps, where rounding would decide.

    sizes: of a step, for each row, repeated. The largest number in a row is negative half the time.
    """
    rng = generator(seed)
    steps = torch.randint(-120, 121, (rows, columns), generator=rng) + 0.9 * (
        torch.rand(rows, columns, generator=rng) - 0.5
    )
    largest = torch.randint(columns, (rows,), generator=rng)
    steps[torch.arange(rows), largest] = 127.0 * (1 - 2 * (torch.arange(rows) % 2))
    each = torch.tensor(sizes, dtype=torch.float64)[torch.arange(rows) % len(sizes)]
    return (steps.double() * each[:, None]).to(dtype)


@stage
def worked_rows(seed):
    "Rows that you can compute on paper: nearest whole numbers, and a scale for each row."
    return [Case(torch.tensor([[2.54, -1.0, 0.046]])), Case(torch.tensor([[0.5, 0.1, 0.3], [-8.0, 3.0, 4.1]]))]


@stage
def drawn_matrices(seed):
    "Random matrices with rows of different sizes. The largest absolute value of a row may belong to a negative number."
    return [Case(drawn(seed, 4, 4, sizes=(0.1, 0.03))), Case(drawn(seed + 1, 3, 7, sizes=(2.0, 0.5, 0.01)))]


@stage
def small_numbers(seed):
    "Rows of very small numbers, which also use the full range."
    return [Case(drawn(seed + 2, 3, 5, sizes=(1e-3, 1e-7, 1e-12)))]


@stage
def rows_of_zeros(seed):
    "A row of zeros among others: it stays zero, and nothing is divided by zero."
    W = drawn(seed + 3, 3, 4, sizes=(0.2,))
    W[1] = 0.0
    return [Case(W), Case(torch.zeros(1, 3))]


@stage
def other_dtypes(seed):
    "float64: the scale has the dtype of W."
    return [Case(drawn(seed + 4, 2, 6, torch.float64, sizes=(0.3, 4.0)))]
