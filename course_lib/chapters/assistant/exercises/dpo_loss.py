import torch
import torch.nn.functional as F

from course_lib.grading.exercise import Case, generator, stage


def dpo_loss(chosen, rejected, ref_chosen, ref_rejected, beta):
    """Return the loss () of compared pairs, and the margin (B,) of each."""
    margins = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))  # (B,)
    loss = -F.logsigmoid(margins).mean()
    return loss, margins


def drawn(rng, B, spread, dtype=torch.float32):
    """Return ln p of B pairs under a model and its reference, which differ by about `spread` nats."""
    ref = -60 + 15 * torch.randn(2, B, generator=rng, dtype=dtype)
    chosen, rejected = ref + spread * torch.randn(2, B, generator=rng, dtype=dtype)
    return chosen, rejected, *ref


@stage
def one_pair(seed):
    "One pair: the example by hand, and others."
    rng = generator(seed)
    example = (torch.tensor([x]) for x in (-3.0, -7.0, -4.0, -4.0))
    others = (torch.tensor([x]) for x in (-2.0, -1.5, -1.0, -3.0))
    return [Case(*example, 0.5), Case(*others, 1.0), Case(*(-3 - torch.rand(4, 1, generator=rng)), 2.0)]


@stage
def several_pairs(seed):
    "Several pairs: the loss is one number, their mean, and each pair has a margin."
    rng = generator(seed)
    return [Case(*drawn(rng, B, spread), beta) for B, spread, beta in ((3, 2.0, 1.0), (8, 6.0, 0.1), (5, 3.0, 0.4))]


@stage
def equal_to_the_reference(seed):
    "A model that still equals its reference: every margin is 0, and the loss is ln 2."
    _, _, ref_chosen, ref_rejected = drawn(generator(seed), 4, 1.0)
    return [Case(ref_chosen.clone(), ref_rejected.clone(), ref_chosen, ref_rejected, 0.3)]


@stage
def large_margins(seed):
    "Long texts and margins in the hundreds, of either sign: the loss is finite."
    rng = generator(seed)
    chosen, rejected, ref_chosen, ref_rejected = torch.randint(-900, -400, (4, 6), generator=rng).float()
    wrong = (torch.tensor([x]) for x in (-900.0, -500.0, -600.0, -700.0))
    return [Case(*wrong, 0.5), Case(chosen - 500, rejected, ref_chosen, ref_rejected, 1.0)]


@stage
def double_pairs(seed):
    "float64 in, float64 out."
    return [Case(*drawn(generator(seed), 5, 3.0, torch.float64), 0.25)]
