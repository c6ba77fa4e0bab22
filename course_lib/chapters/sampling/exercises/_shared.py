"""What several exercises of this chapter use to make their cases and mistakes."""

import torch

from course_lib.grading.judge.compare import compare

INF = float("inf")


SEVEN_WORDS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0])  # the, a, my, his, some, that, one


CONFIDENT = torch.tensor([5.0, 2.0, 1.0, 0.5, 0.1, -1.0, -2.0, -3.0])


def shuffled(logits, rng, *rows):
    """Rows that hold the same logits, each in an order of its own, raised by a constant of its own."""
    order = torch.rand(*rows, len(logits), generator=rng).argsort(-1)
    return logits[order] + torch.randint(-3, 4, (*rows, 1), generator=rng)


def greedy(logits):
    """All probability on the largest logit of each row."""
    return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)


def kth_largest(logits, k):
    return logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]


def nucleus(logits, p, *, drop=lambda q, total, p: total - q >= p, first_stays=True, descending=True, fill=-INF):
    """Top-p whose parts can be replaced: q are the sorted probabilities, total their running sum, q itself included."""
    q, order = logits.softmax(-1).sort(dim=-1, descending=descending, stable=True)
    dropped = drop(q, q.cumsum(-1), p)
    if first_stays:
        dropped[..., 0] = False
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), fill)


def some_ids(rng, B, T, vocab_size=11):
    return torch.randint(vocab_size, (B, T), generator=rng)


ROOM = 0.04  # two honest samplers agree within this after DRAWS draws each, and every mistake is further off


DRAWN = ("frequency", "the same with the same seed", "new at the next call")


def as_often_as_probable(case, expected, got, room=ROOM):
    """Ids must be equal, frequencies near; a probe that could not count says why."""
    if isinstance(expected, tuple) and isinstance(got, tuple) and isinstance(got[0], str):
        return got[0]
    return compare(
        expected, got, rtol=0.0, atol=room, names=DRAWN[: len(expected)] if isinstance(expected, tuple) else ()
    )
