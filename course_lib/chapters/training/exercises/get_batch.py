import torch

from course_lib.chapters.training.fixtures import batches_read as probe
from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare, kind_of


def get_batch(ids, batch_size, T, generator):
    """Sample rows of a text ids (N,): return inputs (B, T) and targets (B, T)."""
    places = len(ids) - T  # positions at which a row may begin
    starts = torch.randint(places, (batch_size,), generator=generator)
    rows = ids[starts[:, None] + torch.arange(T + 1)]  # (B, T + 1)
    inputs, targets = rows[:, :-1], rows[:, 1:]
    return inputs, targets


def a_text(rng, N):
    """Return N different ids in random order, not from 0 to N − 1."""
    return 3 + torch.randperm(N + 4, generator=rng)[:N]


@stage
def barely_long_enough(seed):
    "A text of T + 1 tokens: a row can begin at only one position, so every row is the same."
    rng = generator(seed)
    return [
        Case(a_text(rng, 3), 3, 2, generator(seed)),
        Case(a_text(rng, 6), 2, 5, generator(seed)),
        Case(a_text(rng, 2), 2, 1, generator(seed)),
    ]


@stage
def two_places(seed):
    "A text of T + 2 tokens: half of the rows begin at position 0 and half at position 1."
    rng = generator(seed)
    return [Case(a_text(rng, 5), 4, 3, generator(seed + 1)), Case(a_text(rng, 4), 2, 2, generator(seed + 2))]


@stage
def many_places(seed):
    "A longer text: every position from which T + 1 tokens can be read is equally likely, including the last."
    rng = generator(seed)
    return [
        Case(a_text(rng, 9), 5, 3, generator(seed + 3)),
        Case(a_text(rng, 8), 1, 4, generator(seed + 4)),
        Case(a_text(rng, 8), 3, 3, generator(seed + 7)),  # B equals T: no shape tells the axes apart
        Case(a_text(rng, 7), 50, 1, generator(seed + 5)),
        Case(a_text(rng, 10), 30, 6, generator(seed + 6)),
    ]


def summary(case, brought):
    """Return the positions of a text of different tokens at which the rows begin, and what the generator does.

    By name: the fraction of rows that begin at each position (N,), steps within a row of inputs, steps from an input to
    its target, whether the rows of a batch differ, the fraction of rows that begin at each distance after the previous
    row (N − T,), modulo N − T, whether batches are the same with the same seed and new at the next call. Any other
    result is returned unchanged.
    """
    if not isinstance(brought, dict) or "again" not in brought:
        return brought
    ids = case.args[0]
    batches, targets, repeated = brought.values()
    inputs, targets = batches.flatten(0, 1), targets.flatten(0, 1)  # (calls · B, T)
    places = {token: place for place, token in enumerate(ids.tolist())}
    if not places.keys() >= {*inputs.flatten().tolist(), *targets.flatten().tolist()}:
        return "tokens that are not in the text"
    inputs, targets = (part.cpu().clone().apply_(places.__getitem__).to(part.device) for part in (inputs, targets))
    starts, T = inputs[:, 0], inputs.shape[1]
    after = starts.diff() % (len(ids) - T)  # uniform for independent rows, within a batch and between two
    return {
        "begins at": torch.bincount(starts, minlength=len(ids)) / len(starts),
        "steps in a row of inputs": sorted({*inputs.diff().flatten().tolist()}),
        "from input to target": sorted({*(targets - inputs).flatten().tolist()}),
        "rows of a batch differ": bool((batches != batches[:, :1]).any()),
        "begins after the one before": torch.bincount(after, minlength=len(ids) - T) / len(after),
        "the same with the same seed": torch.equal(batches[: len(repeated)], repeated),
        "new at the next call": not bool((batches == batches[0]).all()),
    }


def judge(case, expected, got):
    """Positions are random, so their frequencies get a tolerance of 0.09, five standard deviations over 600 rows."""
    ids, batch_size, T, _ = case.args
    if isinstance(got, str):
        return f"Your batch holds {got}."
    if isinstance(got, dict) and len(got) == 2:
        shapes = ", ".join(got.values())
        return f"Expected inputs and targets, each of shape {(batch_size, T)}, whole numbers. Yours: {shapes}."
    if not isinstance(got, dict):
        return f"Expected (inputs, targets), two tensors of shape {(batch_size, T)}; got {kind_of(got, True)}."
    share, steps, shift, differ, after, same, new = got.values()
    _, right_steps, right_shift, right_differ, _, right_same, right_new = expected.values()
    if steps != right_steps:
        return "The inputs of a row are not consecutive tokens of the text."
    if shift != right_shift:
        return f"Each target should be one position after its input. Yours: {', '.join(f'{x:+d}' for x in shift[:4])}."
    places = len(ids) - T
    even = (torch.arange(len(ids)) < places) / places  # exact frequencies, not those of another sample
    if compare(even, share, rtol=0.0, atol=ROOM):
        return f"Some positions come too often or too rarely: there are {places}, all equally likely."
    if differ != right_differ:
        return "All rows of a batch are the same: sample a position for each."
    if compare(torch.full((places,), 1 / places), after, rtol=0.0, atol=ROOM):
        return "The beginning of one row determines the next one: sample each row independently."
    if same != right_same:
        return "The same state of the generator should give the same batches, but it does not."
    return None if new == right_new else "Every call returns the same batch: sample again each time."


ROOM = 0.09
