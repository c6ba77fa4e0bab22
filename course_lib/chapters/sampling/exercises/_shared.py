"""Cases and mistakes that several exercises of this chapter share."""

import torch

from course_lib.grading.judge.compare import compare

INF = float("inf")


SEVEN_WORDS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0])  # the, a, my, his, some, that, one


CONFIDENT = torch.tensor([5.0, 2.0, 1.0, 0.5, 0.1, -1.0, -2.0, -3.0])


def shuffled(logits, rng, *rows):
    """Return rows with the same logits, each in a different order and with a different constant added."""
    order = torch.rand(*rows, len(logits), generator=rng).argsort(-1)
    return logits[order] + torch.randint(-3, 4, (*rows, 1), generator=rng)


def greedy(logits):
    """Return all probability on the largest logit of each row."""
    return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)


def kth_largest(logits, k):
    return logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]


def nucleus(logits, p, *, drop=lambda q, total, p: total - q >= p, first_stays=True, descending=True, fill=-INF):
    """Apply top-p with parts that can be replaced. q: sorted probabilities; total: their running sum, including q."""
    q, order = logits.softmax(-1).sort(dim=-1, descending=descending, stable=True)
    dropped = drop(q, q.cumsum(-1), p)
    if first_stays:
        dropped[..., 0] = False
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), fill)


def some_ids(rng, B, T, vocab_size=11):
    return torch.randint(vocab_size, (B, T), generator=rng)


ROOM = 0.04  # two correct samplers agree within this after DRAWS samples each; every mistake differs by more


DRAWN = ("frequency", "the same with the same seed", "new at the next call")


def as_often_as_probable(case, expected, got, room=ROOM):
    """Require equal ids and similar frequencies. A probe that could not count says why."""
    if isinstance(expected, tuple) and isinstance(got, tuple) and isinstance(got[0], str):
        return got[0]
    return compare(
        expected, got, rtol=0.0, atol=room, names=DRAWN[: len(expected)] if isinstance(expected, tuple) else ()
    )
