"""What several exercises of this chapter use to make their cases."""

import torch

from course_lib.grading.exercise import Case, generator


def table(rng, V, D, dtype=torch.float32):
    return torch.randn(V, D, generator=rng, dtype=dtype)


def drawn_ids(rng, B, T, V):
    """Drawn ids; the first is 0 and the last V − 1, so that both ends of the table are asked for."""
    ids = torch.randint(0, V, (B, T), generator=rng)
    ids[0, 0], ids[-1, -1] = 0, V - 1
    return ids


def several_sequences(seed):
    "A batch of one or more sequences: each keeps its own rows."
    rng = generator(seed)
    return [
        Case(table(rng, 5, 3), drawn_ids(rng, 2, 4, 5)),
        Case(table(rng, 7, 2), drawn_ids(rng, 3, 2, 7)),
        Case(table(rng, 9, 1), drawn_ids(rng, 1, 6, 9)),
        Case(table(rng, 6, 6), drawn_ids(rng, 6, 6, 6)),
    ]


def double_table(seed):
    "float64 in, float64 out."
    rng = generator(seed)
    return [Case(table(rng, 6, 5, torch.float64), drawn_ids(rng, 2, 3, 6))]
