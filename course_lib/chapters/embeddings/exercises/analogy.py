import torch
import torch.nn.functional as F

from course_lib.chapters.embeddings.exercises._shared import table
from course_lib.grading.exercise import Case, generator, stage


def analogy(weight, a, b, c, k):
    """Return the k rows nearest to a − b + c, without the three inputs."""
    target = weight[a] - weight[b] + weight[c]  # (D,)
    cosine = F.cosine_similarity(weight, target, dim=-1)  # (V,)
    cosine[[a, b, c]] = -torch.inf
    return cosine.topk(k).indices


@stage
def parallelogram(seed):
    "A parallelogram on paper with the corners 0, 1 and 2; row 4 is near its fourth corner. The best two are required."
    weight = torch.tensor([[4.0, 1.0], [1.0, 1.0], [1.0, 3.0], [-1.0, 2.0], [4.0, 3.2], [3.0, 0.0], [9.0, 2.0]])
    return [Case(weight, 0, 1, 2, 2)]


@stage
def drawn_analogies(seed):
    "A random table: indices, best first."
    rng = generator(seed)
    cases = [
        Case(table(rng, V, D) * (0.2 + torch.rand(V, 1, generator=rng)), V - 1, 1, V // 2, k)
        for V, D, k in [(9, 4, 3), (8, 11, 5), (31, 6, 4), (24, 3, 21)]
    ]
    cases[-1].args[0][12] *= 0.1  # too short to be far from any sum or difference that it is part of
    return cases


@stage
def answer_is_an_input(seed):
    "If b and c are close or equal, a − b + c is next to a itself, and a may not be an answer."
    rng = generator(seed)
    weight = table(rng, 10, 4)
    weight[5] = weight[3] + 0.05 * table(rng, 1, 4)[0]
    return [Case(weight, 7, 3, 5, 2), Case(weight, 3, 7, 7, 3)]


@stage
def almost_as_near(seed):
    "Two rows that are almost equally near: float32 tells them apart, half precision does not."
    weight = torch.tensor([[1.0, 0.0], [0.5, 0.866], [0.5001, 0.866]])
    return [Case(weight, 0, 0, 0, 2), Case(weight.flip(0), 2, 2, 2, 2)]


@stage
def analogy_beside_zeros(seed):
    "A float64 table with a row of zeros, whose cosine is 0."
    rng = generator(seed)
    by_hand = torch.tensor([[0.0, 0.0], [2.0, 1.0], [1.0, 0.0], [0.0, 0.5], [3.0, 1.0], [1.0, -1.0]])
    weight = table(rng, 8, 3, torch.float64)
    weight[0] = 0
    return [Case(by_hand, 1, 2, 3, 3), Case(weight, 1, 2, 3, 3), Case(weight, 6, 5, 4, 5)]
