import torch
import torch.nn.functional as F

from course_lib.chapters.embeddings.exercises._shared import table
from course_lib.grading.exercise import Case, generator, stage


def nearest_tokens(weight, index, k):
    """Return the k rows whose direction is closest to row `index`, best first."""
    cosine = F.cosine_similarity(weight, weight[index], dim=-1)  # (V,); 0 for a row of zeros
    cosine[index] = -torch.inf
    return cosine.topk(k).indices


@stage
def four_arrows(seed):
    "Four arrows on paper: one points almost the same way, one is long, one has its tip close by."
    return [Case(torch.tensor([[1.0, 0.0], [5.0, 4.0], [0.6, 0.7], [0.3, 0.02]]), 0, 1)]


@stage
def arrows_that_point_away(seed):
    "An arrow that points away has a negative cosine and comes last, whatever k is."
    weight = torch.tensor([[1.0, 0.2], [-2.0, -0.3], [0.4, 0.5], [0.1, -0.9]])
    return [Case(weight, 0, 2), Case(weight, 2, 3)]


@stage
def drawn_tables(seed):
    "A random table: indices, best first."
    rng = generator(seed)
    return [Case(table(rng, V, D) * (0.2 + torch.rand(V, 1, generator=rng)), V // 2, k) for V, D, k in SIZES]


SIZES = [(8, 3, 2), (7, 12, 6), (6, 6, 5), (30, 5, 4), (40, 16, 39)]


@stage
def almost_as_near(seed):
    "Two rows that are almost equally near: float32 tells them apart, half precision does not."
    weight = torch.tensor([[1.0, 0.0], [0.5, 0.866], [0.5001, 0.866]])
    return [Case(weight, 0, 2), Case(weight.flip(0), 2, 2)]


@stage
def nearest_in_double(seed):
    "A float64 table."
    rng = generator(seed)
    return [Case(table(rng, 12, 7, torch.float64), 11, 5)]


@stage
def on_one_line(seed):
    "A row parallel to the token's has cosine 1 and comes first; one that points the opposite way has −1 and is last."
    same = torch.tensor([[0.0, 4.0], [3.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    opposite = torch.tensor([[0.0, -1.0], [3.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    return [Case(same, index, k) for k in (1, 3) for index in (2, 0)] + [Case(opposite, index, 3) for index in (2, 0)]


@stage
def rows_of_zeros(seed):
    "A row of zeros, as padding often has: it has no direction, and every cosine with it is 0, even with itself."
    rng = generator(seed)
    weight = table(rng, 6, 3)
    weight[0] = 0
    weight[4] = weight[2] + 0.1 * table(rng, 1, 3)[0]
    pair = torch.tensor([[0.0, 0.0], [3.0, 1.0]])
    return [Case(weight, 2, 1), Case(weight, 2, 5), Case(pair, 0, 1), Case(pair.flip(0), 1, 1)]
