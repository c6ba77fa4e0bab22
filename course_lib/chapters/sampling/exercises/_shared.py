"""What several exercises of this chapter use to make their cases and mistakes."""

import torch

INF = float("inf")


SEVEN_WORDS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0])  # the, a, my, his, some, that, one


CONFIDENT = torch.tensor([5.0, 2.0, 1.0, 0.5, 0.1, -1.0, -2.0, -3.0])


def shuffled(logits, rng, *rows):
    """Rows that hold the same logits, each in an order of its own, raised by a constant of its own."""
    order = torch.rand(*rows, len(logits), generator=rng).argsort(-1)
    return logits[order] + torch.randint(-3, 4, (*rows, 1), generator=rng)


def kth_largest(logits, k):
    return logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]
