import torch

from course_lib.chapters.training.fixtures import batches_read as probe
from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge import compare, kind_of


def get_batch(ids, batch_size, T, generator):
    """Rows of a text ids (N,), and what comes next: (inputs (B, T), targets (B, T))."""
    places = len(ids) - T  # where a row may begin: its last target is a token, too
    starts = torch.randint(places, (batch_size,), generator=generator)
    rows = ids[starts[:, None] + torch.arange(T + 1)]  # (B, T + 1)
    inputs, targets = rows[:, :-1], rows[:, 1:]
    return inputs, targets


def a_text(rng, N):
    """N different ids in no order, not from 0 to N − 1."""
    return 3 + torch.randperm(N + 4, generator=rng)[:N]


@stage
def barely_long_enough(seed):
    "A text of T + 1 tokens: there is one position to begin at, so every row is the same."
    rng = generator(seed)
    return [
        Case(a_text(rng, 3), 3, 2, generator(seed)),
        Case(a_text(rng, 6), 2, 5, generator(seed)),
        Case(a_text(rng, 2), 2, 1, generator(seed)),
    ]


@stage
def two_places(seed):
    "A text of T + 2 tokens: half of the rows begin at position 0, half of them at position 1."
    rng = generator(seed)
    return [Case(a_text(rng, 5), 4, 3, generator(seed + 1)), Case(a_text(rng, 4), 2, 2, generator(seed + 2))]


@stage
def many_places(seed):
    "A longer text: every position with T + 1 tokens from it on is equally likely, the last of them too."
    rng = generator(seed)
    return [
        Case(a_text(rng, 9), 5, 3, generator(seed + 3)),
        Case(a_text(rng, 8), 1, 4, generator(seed + 4)),
        Case(a_text(rng, 8), 3, 3, generator(seed + 7)),  # as many rows as tokens: no shape tells them apart
        Case(a_text(rng, 7), 50, 1, generator(seed + 5)),
        Case(a_text(rng, 10), 30, 6, generator(seed + 6)),
    ]


def summary(case, brought):
    """Which places of a text of different tokens the batches come from, and what the generator does.

    -> by name: share of rows that begin at each place (N,), steps within a row of inputs, steps from an input to its
    target, whether the rows of a batch differ, share of rows that begin so many places after the one before (N − T,),
    around the end, whether batches are the same with the same seed and new at the next call; or what was brought
    instead.
    """
    if not isinstance(brought, dict) or "again" not in brought:
        return brought
    ids = case.args[0]
    batches, targets, repeated = brought.values()
    inputs, targets = batches.flatten(0, 1), targets.flatten(0, 1)  # (calls · B, T)
    places = {token: place for place, token in enumerate(ids.tolist())}
    if not places.keys() >= {*inputs.flatten().tolist(), *targets.flatten().tolist()}:
        return "tokens that are not in the text"
    inputs, targets = (part.clone().apply_(places.__getitem__) for part in (inputs, targets))
    starts, T = inputs[:, 0], inputs.shape[1]
    after = starts.diff() % (len(ids) - T)  # of rows drawn by themselves it is even, too, in a batch and between two
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
    """Places are drawn, so that how often each is drawn has room: 0.09, five standard deviations of 600 rows."""
    ids, batch_size, T, _ = case.args
    if isinstance(got, str):
        return f"Your batch holds {got}."
    if isinstance(got, dict) and len(got) == 2:
        shapes = ", ".join(got.values())
        return f"Expected inputs and targets of shape {(batch_size, T)} each, whole numbers. Yours: {shapes}."
    if not isinstance(got, dict):
        return f"Expected (inputs, targets), two tensors of shape {(batch_size, T)}; got {kind_of(got, True)}."
    share, steps, shift, differ, after, same, new = got.values()
    _, right_steps, right_shift, right_differ, _, right_same, right_new = expected.values()
    if steps != right_steps:
        return "The inputs of a row are not neighbours in the text, one after the other."
    if shift != right_shift:
        return f"Each target should stand one place after its input. Yours: {', '.join(f'{x:+d}' for x in shift[:4])}."
    places = len(ids) - T
    even = (torch.arange(len(ids)) < places) / places  # a draw is held against what is exact, not against another draw
    if compare(even, share, rtol=0.0, atol=ROOM):
        return f"Not every place is drawn as often as it should be: there are {places}, equally likely."
    if differ != right_differ:
        return "All rows of a batch are the same: draw a place for each."
    if compare(torch.full((places,), 1 / places), after, rtol=0.0, atol=ROOM):
        return "Where one row begins tells where the next one does: draw each row by itself."
    if same != right_same:
        return "The same generator state should give the same batches, and it does not."
    return None if new == right_new else "Every call returns the same batch: draw anew each time."


ROOM = 0.09
