import torch
import torch.nn.functional as F

from course_lib.grading.exercise import Case, generator, stage


def nearest_tokens(weight, index, k):
    """The k rows that point most nearly the same way as row `index`, best first."""
    cosine = F.cosine_similarity(weight, weight[index], dim=-1)  # (V,); 0 for a row of zeros
    cosine[index] = -torch.inf
    return cosine.topk(k).indices


def table(rng, V, D, dtype=torch.float32):
    return torch.randn(V, D, generator=rng, dtype=dtype)


@stage
def four_arrows(seed):
    "Four arrows on paper: one points almost the same way, one is long, one has its tip close by."
    return [Case(torch.tensor([[1.0, 0.0], [5.0, 4.0], [0.6, 0.7], [0.3, 0.02]]), 0, 1)]


@stage
def opposite_arrows(seed):
    "An arrow that points the opposite way is as far as can be, and any number of neighbours may be asked for."
    weight = torch.tensor([[1.0, 0.2], [-2.0, -0.3], [0.4, 0.5], [0.1, -0.9]])
    return [Case(weight, 0, 2), Case(weight, 2, 3)]


@stage
def drawn_tables(seed):
    "Drawn tables of several sizes: indices, best first."
    rng = generator(seed)
    return [Case(table(rng, V, D) * (0.2 + torch.rand(V, 1, generator=rng)), V // 2, k) for V, D, k in SIZES]


SIZES = [(8, 3, 2), (7, 12, 6), (6, 6, 5), (30, 5, 4), (40, 16, 39)]


@stage
def row_of_zeros(seed):
    "A row of zeros, as padding often has: it points nowhere, and its cosine with everything counts as 0."
    rng = generator(seed)
    weight = table(rng, 6, 3)
    weight[0] = 0
    weight[4] = weight[2] + 0.1 * table(rng, 1, 3)[0]
    return [Case(weight, 2, 1), Case(weight, 2, 5)]


@stage
def parallel_rows(seed):
    "A row that is twice the token's own, before it or after it: it has cosine 1, too, and is the nearest neighbour."
    weight = torch.tensor([[0.0, 4.0], [3.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    return [Case(weight, 2, 1), Case(weight, 0, 1), Case(weight, 2, 3), Case(weight, 0, 3)]


@stage
def exact_opposites(seed):
    "A row that points exactly the opposite way has cosine −1 and comes last: the token itself does not come at all."
    weight = torch.tensor([[0.0, -1.0], [3.0, 1.0], [0.0, 2.0], [1.0, 1.0]])
    return [Case(weight, 2, 3), Case(weight, 0, 3)]


@stage
def token_of_zeros(seed):
    "The token itself is a row of zeros. Its cosine with the other row is 0, and that row is still its neighbour."
    weight = torch.tensor([[0.0, 0.0], [3.0, 1.0]])
    return [Case(weight, 0, 1), Case(weight.flip(0), 1, 1)]


@stage
def almost_as_near(seed):
    "Two rows that are almost equally near: half precision does not tell them apart, float32 does."
    weight = torch.tensor([[1.0, 0.0], [0.5, 0.866], [0.5001, 0.866]])
    return [Case(weight, 0, 2), Case(weight.flip(0), 2, 2)]


@stage
def nearest_in_double(seed):
    "A float64 table."
    rng = generator(seed)
    return [Case(table(rng, 12, 7, torch.float64), 11, 5)]
