"""Chapter 12, training: seven exercises.

Shapes: ids and targets (B, T), logits (..., V). A model is called as model(ids) -> logits or as
model(ids, targets) -> (logits, loss). The text of batches is one row of ids (N,).
"""

import copy
import math
from functools import partial

import torch
from torch import nn

from ..exercise import Case, Exercise, Given, Misconception, generator
from ..given import batches_read, clipped, drawn_decoder, memorized, steps_taken, with_gradients
from ..judge import compare, kind_of
from ..values import fresh

INF = float("inf")

# --- training.cross_entropy -------------------------------------------------------------------------------------------


def cross_entropy(logits, targets, ignore_index=-100):
    counts = targets != ignore_index
    logits, targets = logits[counts], targets[counts]  # (N, V), (N,)
    shifted = logits - logits.amax(-1, keepdim=True)
    surprise = shifted.exp().sum(-1).log() - shifted[torch.arange(len(targets)), targets]  # (N,)
    return surprise.mean()


def cross_entropy_with(
    logits,
    targets,
    ignore_index=-100,
    *,
    log_p=lambda logits: logits.log_softmax(-1),
    pick=lambda log_p, targets: log_p.gather(-1, targets[..., None]).squeeze(-1),
    counted=lambda targets, ignore_index: targets != ignore_index,
    reduce=lambda surprise, counts: surprise[counts].mean(),
):
    """Cross-entropy whose four steps can be replaced one by one: most misconceptions below."""
    counts = counted(targets, ignore_index)
    picked = pick(log_p(logits), targets.masked_fill(~counts, 0))  # (...)
    return reduce(-picked, counts)


def mean_of_rows(surprise, counts):
    """The mean of every row, and then the mean of these."""
    surprise, counts = surprise.reshape(-1, surprise.shape[-1]), counts.reshape(-1, counts.shape[-1])
    rows = counts.any(-1)
    return ((surprise * counts).sum(-1)[rows] / counts.sum(-1)[rows]).mean()


def shifted_inside(logits, targets, ignore_index=-100):
    return cross_entropy(logits[..., :-1, :], targets[..., 1:], ignore_index)


def ignored_index_crashes(logits, targets, ignore_index=-100):
    """No place is left out: an index of −100 does not exist."""
    return -logits.log_softmax(-1).gather(-1, targets[..., None]).mean()


def ignored_index_crashes_by_rows(logits, targets, ignore_index=-100):
    log_p = logits.log_softmax(-1).flatten(0, -2)
    return -log_p[torch.arange(len(log_p)), targets.flatten()].mean()


def drawn_logits(rng, *leading, V, dtype=torch.float32):
    return 2 * torch.randn(*leading, V, generator=rng, dtype=dtype), torch.randint(V, leading, generator=rng)


def partly_ignored(rng, *leading, V, ignore_index):
    """Logits and targets, of which rows of different length are left out."""
    logits, targets = drawn_logits(rng, *leading, V=V)
    targets[targets == ignore_index] = 0
    targets[0, leading[1] // 2 :] = ignore_index
    targets[-1, 0] = ignore_index
    return Case(logits, targets, ignore_index)


def one_token(seed):
    "One token of three: the one that came had p = ½, so the loss is ln 2 = 0.693."
    return [Case(torch.tensor([[0.5, 0.25, 0.25]]).log(), torch.tensor([0]))]


def several_tokens(seed):
    "Several tokens: logits (N, V), targets (N,). Adding a number to all logits of a row changes nothing."
    rng = generator(seed)
    logits, targets = drawn_logits(rng, 5, V=4)
    return [Case(logits, targets), Case(logits + torch.tensor([[3.0], [-5.0], [1.0], [0.0], [7.0]]), targets)]


def batch_of_rows(seed):
    "A batch: logits (B, T, V), targets (B, T). The result is one number all the same."
    rng = generator(seed)
    square = drawn_logits(rng, 3, 3, V=3)
    last_axis_apart = drawn_logits(rng, 7, 2, V=3)
    transposed = last_axis_apart[0].transpose(0, 1), last_axis_apart[1].T
    return [Case(*drawn_logits(rng, 2, 3, V=5)), Case(*square), Case(*drawn_logits(rng, 1, 4, V=2)), Case(*transposed)]


def ignored(seed):
    "Targets that equal ignore_index are left out, of the sum and of the count: −100 unless told otherwise."
    rng = generator(seed)
    case = partly_ignored(rng, 2, 4, V=5, ignore_index=-100)
    return [Case(*case.args[:2]), case, partly_ignored(rng, 3, 5, V=4, ignore_index=-1)]


def ignored_id(seed):
    "ignore_index may be an id of the vocabulary, such as that of padding: then nothing asks for this token."
    rng = generator(seed)
    return [
        partly_ignored(rng, 2, 5, V=4, ignore_index=0),
        partly_ignored(rng, 3, 6, V=7, ignore_index=6),
        Case(*drawn_logits(rng, 6, V=5), 2),
    ]


def large_logits(seed):
    "Logits as large as 10,000, of either sign, and one of −inf: exp overflows or gives 0; the loss is a number."
    logits = torch.tensor([[0.0, 1e4, 9998.0], [-1e4, 0.0, 1e4], [-1e4, -1e4, -9999.0]])
    steps = torch.randint(-3, 4, (2, 3), generator=generator(seed)).float()
    return [
        Case(torch.tensor([[0.0, 200.0]]), torch.tensor([0])),
        Case(logits, torch.tensor([2, 0, 1])),
        Case(torch.tensor([[1e4], [-1e4]]) + steps, torch.tensor([1, 2])),
        Case(torch.tensor([[0.5, -INF, 1.5], [-INF, 2.0, -INF]]), torch.tensor([0, 1])),
    ]


def double_loss(seed):
    "float64 in, float64 out."
    return [Case(*drawn_logits(generator(seed), 2, 3, V=6, dtype=torch.float64))]


def forgiving_when_large(case, expected, got):
    """A float32 near 10,000 has steps of 0.001: logsumexp(x) − x is a right way, and loses that much."""
    x = case.args[0]
    coarse = x.dtype == torch.float32 and x[x.isfinite()].abs().max() > 1000
    return compare(expected, got, rtol=1e-3 if coarse else None, atol=2e-3 if coarse else None)


CROSS_ENTROPY = Exercise(
    id="training.cross_entropy",
    chapter=12,
    title="The loss, from logits",
    kind="code",
    points=3,
    difficulty=2,
    minutes=15,
    signature="cross_entropy(logits, targets, ignore_index=-100)",
    why="Every language model was made by lowering this one number.",
    reference=cross_entropy,
    stages=[one_token, several_tokens, batch_of_rows, ignored, ignored_id, large_logits, double_loss],
    judge=forgiving_when_large,
    hints=[
        "The loss of one place is −ln p of the token that came. How does p come out of the logits, and what becomes of "
        "ln p if you write it out: ln of a quotient?",
        "ln p is the token's logit minus the logarithm of a sum of exps. Subtract the largest logit of the row first, "
        "or let `logsumexp` or `log_softmax` do it: then no exp overflows.",
        "One logit per place has to be picked, by the target: look up `gather`, which wants an index with as many axes "
        "as the logits.",
        "An ignored target is no index. Choose the places that count with a boolean mask before you pick, and take the "
        "mean over these alone.",
    ],
    misconceptions=[
        Misconception(
            "logarithm of the softmax",
            partial(cross_entropy_with, log_p=lambda logits: logits.softmax(-1).log()),
            "You take the softmax and then its logarithm. A small p is rounded to 0 on the way, and −ln 0 is "
            "infinite. Stay with logarithms: ln p is the logit minus the logarithm of the sum of exps.",
        ),
        Misconception(
            "no maximum subtracted",
            partial(cross_entropy_with, log_p=lambda logits: logits - logits.exp().sum(-1, keepdim=True).log()),
            "Right for small logits, but exp overflows above 88. Subtract the largest logit of each row first, or use "
            "logsumexp, which does.",
            also=[
                partial(
                    cross_entropy_with, log_p=lambda logits: (logits.exp() / logits.exp().sum(-1, keepdim=True)).log()
                )
            ],
        ),
        Misconception(
            "a small number inside the logarithm",
            partial(cross_entropy_with, log_p=lambda logits: (logits.softmax(-1) + 1e-9).log()),
            "You add a small number to p before the logarithm, so that no surprise exceeds a limit that you chose: a "
            "model that is sure and wrong gets away with it. Compute ln p from the logits, without p.",
            also=[
                partial(cross_entropy_with, log_p=lambda logits: (logits.softmax(-1) + 1e-8).log()),
                partial(cross_entropy_with, log_p=lambda logits: (logits.softmax(-1) + 1e-10).log()),
                partial(cross_entropy_with, log_p=lambda logits: (logits.softmax(-1) + 1e-12).log()),
                partial(cross_entropy_with, log_p=lambda logits: logits.softmax(-1).clamp(min=1e-9).log()),
            ],
        ),
        Misconception(
            "sign missing",
            lambda *given: -cross_entropy(*given),
            "Your loss is negative: that is the mean of ln p. The loss is −ln p, the surprise; it is never below 0.",
        ),
        Misconception(
            "softmax taken twice",
            partial(cross_entropy_with, log_p=lambda logits: logits.softmax(-1).log_softmax(-1)),
            "You take the softmax twice. `F.cross_entropy` and `log_softmax` want logits and do the rest themselves; "
            "fed with probabilities, they give nearly the same loss for a good and for a bad model.",
        ),
        Misconception(
            "bits",
            lambda *given: cross_entropy(*given) / math.log(2),
            "You use the logarithm to the base 2, so your loss is in bits. In nats it is smaller by ln 2 = 0.693.",
        ),
        Misconception(
            "sum instead of mean",
            partial(cross_entropy_with, reduce=lambda surprise, counts: surprise[counts].sum()),
            "You add up the places. The loss is their mean: otherwise a longer row would look worse.",
        ),
        Misconception(
            "one loss per place",
            partial(cross_entropy_with, reduce=lambda surprise, counts: surprise[counts]),
            "You return the loss of every place. Return one number, their mean.",
            also=[partial(cross_entropy_with, reduce=lambda surprise, counts: surprise.where(counts, 0.0))],
        ),
        Misconception(
            "one loss per row",
            partial(
                cross_entropy_with,
                reduce=lambda surprise, counts: (surprise * counts).sum(-1) / counts.sum(-1),
            ),
            "You return the mean of each row. Return one number, the mean over all places that count.",
            also=[partial(cross_entropy_with, reduce=lambda surprise, counts: surprise.mean(-1))],
        ),
        Misconception(
            "the ignored are counted",
            partial(cross_entropy_with, reduce=lambda surprise, counts: (surprise * counts).sum() / counts.numel()),
            "You leave the ignored places out of the sum, and still divide by the number of all. The more padding, "
            "the smaller your loss. Divide by the number of places that count.",
        ),
        Misconception(
            "mean of row means",
            partial(cross_entropy_with, reduce=mean_of_rows),
            "You average each row, and then the rows. Where rows have different numbers of counted places, a token of "
            "a short row weighs more. Take one mean over all places that count.",
        ),
        Misconception(
            "ignore_index as an index",
            ignored_index_crashes,
            "You pick a logit for ignored targets too. Choose the places that count first, then pick.",
            also=[ignored_index_crashes_by_rows],
        ),
        Misconception(
            "nothing is ignored",
            partial(cross_entropy_with, reduce=lambda surprise, counts: surprise.mean()),
            "Ignored places still count in your mean, with the logit of some other token. Leave them out.",
        ),
        Misconception(
            "only −100 is ignored",
            lambda logits, targets, ignore_index=-100: cross_entropy(logits, targets),
            "You leave out −100, whatever `ignore_index` says. It may be another number, the id of padding for one.",
            also=[partial(cross_entropy_with, counted=lambda targets, ignore_index: targets != -100)],
        ),
        Misconception(
            "negative targets are ignored",
            partial(cross_entropy_with, counted=lambda targets, ignore_index: targets >= 0),
            "You leave out every negative target. `ignore_index` may also be an id of the vocabulary, such as 0.",
        ),
        Misconception(
            "0 is ignored too",
            partial(
                cross_entropy_with, counted=lambda targets, ignore_index: (targets != ignore_index) & (targets > 0)
            ),
            "You leave out targets of 0 as if they were padding. 0 is a token like any other, unless `ignore_index` "
            "says so.",
        ),
        Misconception(
            "the most probable token",
            partial(cross_entropy_with, pick=lambda log_p, targets: log_p.amax(-1)),
            "You take −ln p of the model's favourite. The loss asks what it gave to the token that really came.",
        ),
        Misconception(
            "softmax over the places",
            partial(cross_entropy_with, log_p=lambda logits: logits.log_softmax(-2)),
            "You normalise along the places. Each place shares out its probability among the tokens: the last axis.",
            also=[partial(cross_entropy_with, log_p=lambda logits: logits.log_softmax(0))],
        ),
        Misconception(
            "always axis 1",
            partial(cross_entropy_with, log_p=lambda logits: logits.log_softmax(1)),
            "You normalise along axis 1. For logits (N, V) these are the tokens; in a batch (B, T, V) they are the "
            "places. The tokens stand on the last axis, −1.",
        ),
        Misconception(
            "probability for logarithm",
            partial(
                cross_entropy_with,
                log_p=lambda logits: logits.softmax(-1),
                reduce=lambda surprise, counts: 1 + surprise[counts].mean(),
            ),
            "You return 1 − p. That hardly tells p = 0.01 from p = 0.0001; −ln p does.",
        ),
        Misconception(
            "divided by V as well",
            lambda logits, targets, ignore_index=-100: cross_entropy(logits, targets, ignore_index) / logits.shape[-1],
            "Your mean runs over the vocabulary, too: of the V entries of a one-hot product one counts. Sum over the "
            "vocabulary, then take the mean over the places.",
        ),
        Misconception(
            "perplexity",
            lambda *given: cross_entropy(*given).exp(),
            "That is the perplexity, exp of the loss. The loss is the mean of −ln p itself.",
        ),
        Misconception(
            "shifted once more",
            shifted_inside,
            "You shift the targets against the logits. They come shifted already: target t belongs to the logits at t.",
        ),
        Misconception(
            "always float32",
            lambda logits, *rest: cross_entropy(logits.float(), *rest),
            "You return float32 whatever comes in, and a float64 input loses half its digits. "
            "Leave the dtype as it is.",
        ),
    ],
)

# --- training.get_batch -----------------------------------------------------------------------------------------------


def get_batch(ids, batch_size, T, generator):
    starts = torch.randint(len(ids) - T, (batch_size, 1), generator=generator)  # (B, 1)
    rows = ids[starts + torch.arange(T + 1)]  # (B, T + 1)
    return rows[:, :-1], rows[:, 1:]


def get_batch_with(
    ids,
    batch_size,
    T,
    generator,
    *,
    last=lambda N, T: N - T,
    draw=lambda n, B, T, rng: torch.randint(n, (B,), generator=rng),
    cut=lambda ids, starts, T: (ids[starts[:, None] + torch.arange(T)], ids[starts[:, None] + torch.arange(T) + 1]),
):
    return cut(ids, draw(last(len(ids), T), batch_size, T, generator), T)


def sliced(ids, starts, T):
    """A slice per row, stacked: a slice that runs past the end is short, and says nothing."""
    return torch.stack([ids[i : i + T] for i in starts]), torch.stack([ids[i + 1 : i + T + 1] for i in starts])


def moved(inputs, targets):
    """Rows whose inputs and targets begin so many tokens after the drawn place, and wrap around at the end."""

    def cut(ids, starts, T):
        places = starts[:, None] + torch.arange(T)
        return ids[(places + inputs) % len(ids)], ids[(places + targets) % len(ids)]

    return cut


def rolled_in_the_row(ids, starts, T):
    inputs = ids[starts[:, None] + torch.arange(T)]
    return inputs, inputs.roll(-1, dims=1)


def one_shorter(ids, starts, T):
    rows = ids[starts[:, None] + torch.arange(T)]
    return rows[:, :-1], rows[:, 1:]


def next_token_only(ids, starts, T):
    return ids[starts[:, None] + torch.arange(T)], ids[starts + T]


def places_as_batches(ids, starts, T):
    inputs, targets = moved(0, 1)(ids, starts, T)
    return inputs.T, targets.T


def without_replacement(n, B, T, rng):
    return torch.randperm(n, generator=rng)[:B]


def a_text(rng, N):
    """N different ids in no order, not from 0 to N − 1."""
    return 3 + torch.randperm(N + 4, generator=rng)[:N]


def barely_long_enough(seed):
    "A text of T + 1 tokens: there is one place to begin, so every row is the same."
    rng = generator(seed)
    return [
        Case(a_text(rng, 3), 3, 2, generator(seed)),
        Case(a_text(rng, 6), 2, 5, generator(seed)),
        Case(a_text(rng, 2), 2, 1, generator(seed)),
    ]


def two_places(seed):
    "A text of T + 2 tokens: half of the rows begin at place 0, half of them at place 1."
    rng = generator(seed)
    return [Case(a_text(rng, 5), 4, 3, generator(seed + 1)), Case(a_text(rng, 4), 2, 2, generator(seed + 2))]


def many_places(seed):
    "Longer texts: every place with T + 1 tokens from it on is equally likely, the last of them too."
    rng = generator(seed)
    return [
        Case(a_text(rng, 9), 5, 3, generator(seed + 3)),
        Case(a_text(rng, 8), 1, 4, generator(seed + 4)),
        Case(a_text(rng, 7), 50, 1, generator(seed + 5)),
        Case(a_text(rng, 20)[::2], 30, 6, generator(seed + 6)),
    ]


def places_read(case, brought):
    """Which places of a text of different tokens the batches come from, and what the generator does.

    -> by name: share of rows that begin at each place (N,), steps within a row of inputs, steps from an input to its
    target, whether the rows of a batch differ, share of rows that begin so many places after the one before (N − T,),
    around the end, whether batches are the same with the same seed and new at the next call; or what was brought
    instead.
    """
    if not isinstance(brought, dict):
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


def read_as_expected(case, expected, got):
    """Places are drawn, so that how often each is drawn has room: 0.09, five standard deviations of 600 rows."""
    ids, batch_size, T, _ = case.args
    if isinstance(got, str):
        return f"Your batch holds {got}."
    if isinstance(got, list) and len(got) == 2 and all(isinstance(part, list) for part in got):
        shapes = ", ".join(f"{tuple(sizes)} of {dtype.removeprefix('torch.')}" for dtype, *sizes in got)
        return f"Expected inputs and targets of shape {(batch_size, T)} each, whole numbers. Yours: {shapes}."
    if not isinstance(got, dict):
        return f"Expected (inputs, targets), two tensors of shape {(batch_size, T)}; got {kind_of(got)}."
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

GET_BATCH = Exercise(
    id="training.get_batch",
    chapter=12,
    title="Rows of a text, and what comes next",
    kind="code",
    points=3,
    difficulty=2,
    minutes=15,
    signature="get_batch(ids, batch_size, T, generator)",
    why="An error of one place here trains a model to repeat its input, and its loss looks wonderful.",
    reference=get_batch,
    probe=batches_read,
    summary=places_read,
    judge=read_as_expected,
    stages=[barely_long_enough, two_places, many_places],
    rtol=0.0,
    atol=ROOM,
    hints=[
        "How many tokens of the text does one row need, its last target included?",
        "Write out a text of five tokens and T = 3. At which places may a row begin? Count them: the number is N minus "
        "something.",
        "`torch.randint(high, (n,), generator=generator)` draws n whole numbers from 0 to high − 1: high itself never "
        "comes.",
        "A column of beginnings plus a row of steps is a table of places, by broadcasting; and ids[table] is a table "
        "of tokens. Read T + 1 per row, then take them without the last and without the first.",
    ],
    misconceptions=[
        Misconception(
            "targets not shifted",
            partial(get_batch_with, cut=moved(0, 0)),
            "Your targets are the inputs themselves. A model learns to repeat them: its loss goes to 0, and it "
            "predicts nothing. The targets begin one token later.",
        ),
        Misconception(
            "the wrong way round",
            partial(get_batch_with, cut=moved(1, 0)),
            "Your targets are one token *before* the inputs: the model would learn to tell the past. Either the two "
            "are swapped, or the shift has the wrong sign.",
            also=[
                partial(get_batch_with, cut=moved(0, -1)),
                partial(get_batch_with, cut=moved(0, -1), draw=lambda n, B, T, rng: torch.randint(n, (B,)) + 1),
            ],
        ),
        Misconception(
            "shifted by two",
            partial(get_batch_with, cut=moved(0, 2), last=lambda N, T: max(1, N - T - 1)),
            "Your targets stand two tokens after the inputs: shifted twice. One is enough.",
            also=[partial(get_batch_with, cut=moved(0, 2))],
        ),
        Misconception(
            "shifted by T",
            partial(get_batch_with, cut=lambda ids, starts, T: moved(0, T)(ids, starts, T)),
            "Your targets are the T tokens that follow the whole row. Each place predicts its own next token: the "
            "targets are the inputs, one place later.",
        ),
        Misconception(
            "reads past the end",
            partial(get_batch_with, last=lambda N, T: N - T + 1),
            "Now and then a row begins so late that its last target lies behind the end of the text. A row needs T + 1 "
            "tokens: there are N − T places to begin.",
            also=[
                partial(get_batch_with, last=lambda N, T: N),
                partial(get_batch_with, last=lambda N, T: N - 1),
                partial(get_batch_with, last=lambda N, T: N - T + 1, cut=sliced),
                partial(get_batch_with, last=lambda N, T: N - 1, cut=sliced),
                partial(get_batch_with, last=lambda N, T: N, cut=sliced),
            ],
        ),
        Misconception(
            "wraps around",
            partial(get_batch_with, last=lambda N, T: N - T + 1, cut=moved(0, 1)),
            "A row that reaches the end of the text goes on with its beginning (`roll` does that): the first token is "
            "not what follows the last. Begin no row there.",
            also=[partial(get_batch_with, last=lambda N, T: N, cut=moved(0, 1))],
        ),
        Misconception(
            "rolled within the row",
            partial(get_batch_with, cut=rolled_in_the_row),
            "You roll each row: its last target is its own first token. Read T + 1 tokens, so that the last place "
            "has a target of its own.",
        ),
        Misconception(
            "last place never drawn",
            partial(get_batch_with, last=lambda N, T: N - T - 1),
            "The last row of the text is never drawn, and a text of T + 1 tokens cannot be used at all. randint "
            "leaves its upper end out already: do not subtract 1 again.",
            also=[
                partial(get_batch_with, last=lambda N, T: max(1, N - T - 1)),
                partial(get_batch_with, last=lambda N, T: N - T - 1, cut=sliced),
            ],
        ),
        Misconception(
            "T − 1 wide",
            partial(get_batch_with, cut=one_shorter),
            "You read T tokens and lose one to the shift. For T inputs and T targets, read T + 1 tokens.",
            also=[partial(get_batch_with, cut=one_shorter, last=lambda N, T: N - T + 1)],
        ),
        Misconception(
            "one target per row",
            partial(get_batch_with, cut=next_token_only),
            "You return one target per row. Every place has a next token, so there are T targets per row: that is what "
            "makes a training step worth T questions.",
        ),
        Misconception(
            "T and B exchanged",
            partial(get_batch_with, cut=places_as_batches),
            "Your batches are (T, B): one column per row of text. Put the batch first, (B, T).",
        ),
        Misconception(
            "one place for all rows",
            partial(get_batch_with, draw=lambda n, B, T, rng: torch.randint(n, (1,), generator=rng).expand(B)),
            "Whatever the batch size, all rows of your batch are the same: the place is drawn once. Draw one for each "
            "row.",
            also=[partial(get_batch_with, draw=lambda n, B, T, rng: torch.randint(n, (1,), generator=rng))],
        ),
        Misconception(
            "rows that follow each other",
            partial(
                get_batch_with, draw=lambda n, B, T, rng: (torch.randint(n, (1,), generator=rng) + torch.arange(B)) % n
            ),
            "Where one row of your batch begins follows from the row before it: a single place is drawn, and the "
            "others are counted from there. Such rows say nearly the same; draw each of them by itself.",
            also=[
                partial(
                    get_batch_with,
                    draw=lambda n, B, T, rng: (torch.randint(n, (1,), generator=rng) + T * torch.arange(B)) % n,
                )
            ],
        ),
        Misconception(
            "always from the beginning",
            partial(get_batch_with, draw=lambda n, B, T, rng: torch.zeros(B, dtype=torch.int64)),
            "Every row begins at place 0, so that only the first T + 1 tokens are ever learned. Draw the places.",
        ),
        Misconception(
            "in order",
            partial(get_batch_with, draw=lambda n, B, T, rng: torch.arange(B) % n),
            "Your rows begin at 0, 1, 2, …, the same in every batch. Draw the places with the generator.",
        ),
        Misconception(
            "multiples of T",
            partial(get_batch_with, draw=lambda n, B, T, rng: torch.randint((n - 1) // T + 1, (B,), generator=rng) * T),
            "You cut the text into pieces of T and draw among these. A row may begin at any place, so that no border "
            "is always in the same spot.",
        ),
        Misconception(
            "without replacement",
            partial(get_batch_with, draw=without_replacement),
            "You draw each place at most once, so that a batch can have no more rows than the text has places. Draw "
            "every row by itself: two may be the same.",
        ),
        Misconception(
            "generator ignored",
            partial(get_batch_with, draw=lambda n, B, T, rng: torch.randint(n, (B,))),
            "Your rows are right, but the same seed gives other batches each time: hand the generator on to the draw. "
            "Without it no training can be repeated.",
        ),
        Misconception(
            "seeded inside",
            partial(
                get_batch_with,
                draw=lambda n, B, T, rng: torch.randint(n, (B,), generator=torch.Generator().manual_seed(0)),
            ),
            "Every call returns the same batch: you seed inside the function. The caller seeds once.",
            also=[
                partial(get_batch_with, draw=lambda n, B, T, rng: torch.randint(n, (B,), generator=rng.manual_seed(0)))
            ],
        ),
    ],
)

# --- training.learning_rate -------------------------------------------------------------------------------------------


def learning_rate(step, peak, warmup, total, floor):
    if step < warmup:
        return peak * step / warmup
    progress = min(1.0, (step - warmup) / (total - warmup))
    return floor + (peak - floor) * (1 + math.cos(math.pi * progress)) / 2


def learning_rate_with(
    step,
    peak,
    warmup,
    total,
    floor,
    *,
    climb=lambda step, peak, warmup, floor: peak * step / warmup,
    progress=lambda step, warmup, total: (step - warmup) / (total - warmup),
    after=1.0,
    wave=lambda progress: (1 + math.cos(math.pi * progress)) / 2,
    between=lambda wave, peak, floor: floor + (peak - floor) * wave,
):
    if step < warmup:
        return climb(step, peak, warmup, floor)
    return between(wave(min(after, progress(step, warmup, total))), peak, floor)


def warmup_divides_by_zero(step, peak, warmup, total, floor):
    if step <= warmup:
        return peak * step / warmup
    return learning_rate(step, peak, warmup, total, floor)


def smaller_of_both(step, peak, warmup, total, floor):
    cosine = floor + (peak - floor) * (1 + math.cos(math.pi * min(1.0, step / total))) / 2
    return min(peak * step / warmup, cosine) if warmup else cosine


def nothing_after_the_end(step, *given):
    return learning_rate(step, *given) if step <= given[2] else 0.0


def floor_never_undercut(step, peak, warmup, total, floor):
    return max(floor, learning_rate(step, peak, warmup, total, 0.0))


def floor_in_the_warmup_too(step, peak, warmup, total, floor):
    return max(floor, learning_rate(step, peak, warmup, total, floor))


def warming_up(seed):
    "Below the warm-up: a straight line from 0. With warmup = 4, step 1 has a quarter of the peak."
    return [
        Case(1, 8.0, 4, 12, 0.0),
        Case(0, 8.0, 4, 12, 2.0),
        Case(3, 0.5, 7, 20, 0.1),
        Case(6, 0.5, 7, 20, 0.1),
    ]


def at_the_peak(seed):
    "At step = warmup the rate is the peak. A warm-up of 0 begins there."
    return [Case(4, 8.0, 4, 12, 0.0), Case(7, 0.5, 7, 20, 0.1), Case(0, 8.0, 0, 10, 0.0), Case(0, 0.3, 0, 5, 0.1)]


def on_the_way_down(seed):
    "Half way from warm-up to the end the rate lies half way between peak and floor; before, it is higher."
    return [
        Case(8, 8.0, 4, 12, 0.0),
        Case(6, 8.0, 4, 12, 0.0),
        Case(8, 8.0, 4, 12, 2.0),
        Case(11, 8.0, 4, 12, 2.0),
        Case(5, 0.3, 0, 20, 0.1),
    ]


def to_the_end_and_after(seed):
    "At step = total the rate is the floor, and so it stays."
    return [
        Case(12, 8.0, 4, 12, 0.0),
        Case(12, 8.0, 4, 12, 2.0),
        Case(13, 8.0, 4, 12, 2.0),
        Case(20, 8.0, 4, 12, 0.0),
        Case(45, 0.3, 0, 20, 0.1),
        Case(9, 5.0, 4, 9, 5.0),
    ]


def drawn_schedules(seed):
    "Drawn peaks, lengths and floors, at steps on either side of the warm-up."
    rng = generator(seed)
    cases = []
    for phase in range(10):
        peak, share = (0.1 + torch.rand(2, generator=rng)).tolist()
        warmup = int(torch.randint(3, 30, (), generator=rng))
        total = warmup + int(torch.randint(5, 60, (), generator=rng))
        low, high = (1, warmup) if phase % 2 else (warmup, total)
        step = int(torch.randint(low, high, (), generator=rng))
        cases.append(Case(step, peak, warmup, total, peak * share / 3))
    return cases


LEARNING_RATE = Exercise(
    id="training.learning_rate",
    chapter=12,
    title="Warm-up, then cosine",
    kind="code",
    points=2,
    difficulty=2,
    minutes=15,
    signature="learning_rate(step, peak, warmup, total, floor)",
    why="A fast start is bearable only because of this curve, and its two corners are where it is written wrongly.",
    reference=learning_rate,
    stages=[warming_up, at_the_peak, on_the_way_down, to_the_end_and_after, drawn_schedules],
    rtol=1e-5,  # a float32 on the way is no mistake
    atol=1e-7,
    hints=[
        "There are three stretches: below warmup, from warmup to total, after total. What is the rate at each border, "
        "seen from either side?",
        "On the way down, first find how far you are, as a number from 0 at warmup to 1 at total.",
        "cos goes from 1 to −1 between 0 and π. How do you turn that into a share that goes from 1 to 0?",
        "That share is what is left of the way from the floor up to the peak. And after total, the number from before "
        "must not go beyond 1.",
    ],
    misconceptions=[
        Misconception(
            "no warm-up",
            partial(learning_rate_with, climb=lambda step, peak, warmup, floor: peak),
            "You begin at the peak. Below `warmup` the rate climbs on a straight line: peak · step / warmup.",
        ),
        Misconception(
            "cosine from the first step",
            lambda step, peak, warmup, total, floor: learning_rate(step, peak, 0, total, floor),
            "The cosine starts at step 0, and nothing is left of the warm-up. Below `warmup` climb; from there on the "
            "cosine.",
        ),
        Misconception(
            "warm-up counts from one",
            partial(learning_rate_with, climb=lambda step, peak, warmup, floor: peak * (step + 1) / warmup),
            "You use (step + 1) / warmup. Here step 0 has the rate 0, and the peak comes at step = warmup.",
        ),
        Misconception(
            "warm-up from the floor",
            partial(learning_rate_with, climb=lambda step, peak, warmup, floor: floor + (peak - floor) * step / warmup),
            "Your warm-up begins at the floor. It begins at 0; the floor is where the cosine ends.",
        ),
        Misconception(
            "warm-up not below the floor",
            floor_in_the_warmup_too,
            "You keep the rate above the floor in the warm-up, too. The warm-up begins at 0; the floor is where the "
            "cosine ends.",
        ),
        Misconception(
            "warm-up along the wave",
            partial(
                learning_rate_with,
                climb=lambda step, peak, warmup, floor: peak * (1 - math.cos(math.pi * step / warmup)) / 2,
            ),
            "Your warm-up follows a cosine as well. It is a straight line: peak · step / warmup.",
        ),
        Misconception(
            "warm-up of zero",
            warmup_divides_by_zero,
            "With warmup = 0 you divide by 0. At step = warmup the rate is the peak already: treat as warm-up only the "
            "steps *below* it.",
            also=[
                lambda step, peak, warmup, total, floor: min(
                    peak * step / warmup, learning_rate(max(step, warmup), peak, warmup, total, floor)
                )
            ],
        ),
        Misconception(
            "cosine over all steps",
            partial(learning_rate_with, progress=lambda step, warmup, total: step / total),
            "Your cosine runs from step 0 to total, so that the rate drops at the end of the warm-up. It begins at "
            "`warmup`: progress is (step − warmup) / (total − warmup).",
            also=[smaller_of_both],
        ),
        Misconception(
            "progress over total",
            partial(learning_rate_with, progress=lambda step, warmup, total: (step - warmup) / total),
            "You divide the steps since the warm-up by all steps, so that the cosine is not at its end at `total`. "
            "There are total − warmup steps on the way down.",
        ),
        Misconception(
            "total after the warm-up",
            partial(learning_rate_with, progress=lambda step, warmup, total: step / (total - warmup)),
            "You divide by total − warmup, but the steps of the warm-up still count as progress. Subtract them.",
        ),
        Misconception(
            "straight down",
            partial(learning_rate_with, wave=lambda progress: 1 - progress),
            "Your rate falls on a straight line. Asked for is half a cosine wave: flat at the peak, flat at the end.",
        ),
        Misconception(
            "a quarter of the wave",
            partial(learning_rate_with, wave=lambda progress: math.cos(math.pi / 2 * progress)),
            "You use cos from 0 to π/2, which arrives at the floor steeply. Take half a wave, 0 to π, moved up and "
            "halved: (1 + cos) / 2.",
        ),
        Misconception(
            "a whole wave",
            partial(learning_rate_with, wave=lambda progress: (1 + math.cos(2 * math.pi * progress)) / 2),
            "You run through the whole wave: at the end the rate is at its peak again. Half a wave is enough: up to π.",
        ),
        Misconception(
            "π forgotten",
            partial(learning_rate_with, wave=lambda progress: (1 + math.cos(progress)) / 2),
            "Your cosine goes from 0 to 1 instead of 0 to π, and hardly falls.",
        ),
        Misconception(
            "degrees",
            partial(learning_rate_with, wave=lambda progress: (1 + math.cos(180 * progress)) / 2),
            "You give cos an angle in degrees. Python's cos wants radians: half a turn is π.",
        ),
        Misconception(
            "not halved",
            partial(learning_rate_with, wave=lambda progress: 1 + math.cos(math.pi * progress)),
            "1 + cos goes from 2 to 0, so you begin at twice the peak. Halve it.",
        ),
        Misconception(
            "the bare cosine",
            partial(learning_rate_with, wave=lambda progress: math.cos(math.pi * progress)),
            "The cosine itself goes from 1 to −1, so the rate falls below the floor and may be negative. Move it up "
            "and halve it: (1 + cos) / 2.",
        ),
        Misconception(
            "upside down",
            partial(learning_rate_with, wave=lambda progress: (1 - math.cos(math.pi * progress)) / 2),
            "Your rate rises from the floor to the peak. At progress 0 the share of the peak is 1.",
        ),
        Misconception(
            "floor ignored",
            partial(learning_rate_with, between=lambda wave, peak, floor: peak * wave),
            "Your rate ends at 0. It ends at `floor`.",
        ),
        Misconception(
            "floor added on top",
            partial(learning_rate_with, between=lambda wave, peak, floor: floor + peak * wave),
            "You add the floor to the whole wave, so that the rate begins at peak + floor. The wave covers what lies "
            "between them: peak − floor.",
        ),
        Misconception(
            "floor as a limit",
            floor_never_undercut,
            "You let the rate fall towards 0 and stop it at the floor. The cosine itself ends at the floor, with "
            "a flat end: it runs between peak and floor.",
        ),
        Misconception(
            "rises again",
            partial(learning_rate_with, after=INF),
            "After `total` your cosine rises again. There the rate stays at the floor: let progress not exceed 1.",
        ),
        Misconception(
            "0 after the end",
            nothing_after_the_end,
            "After `total` your rate is 0. It stays at the floor.",
        ),
    ],
)

# --- training.step ----------------------------------------------------------------------------------------------------


def training_step(model, ids, targets, optimizer, max_norm):
    optimizer.zero_grad()
    _, loss = model(ids, targets)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()


def clip_all(parameters, max_norm):
    nn.utils.clip_grad_norm_(parameters, max_norm)


def step_with(
    model,
    ids,
    targets,
    optimizer,
    max_norm,
    *,
    clear=lambda optimizer: optimizer.zero_grad(),
    loss_of=lambda model, ids, targets: model(ids, targets)[1],
    between=lambda optimizer: None,
    clip=clip_all,
    update=lambda optimizer: optimizer.step(),
    last=lambda optimizer: None,
    report=lambda loss, model, ids, targets: loss.item(),
):
    """A training step whose parts can be replaced one by one: most misconceptions below."""
    clear(optimizer)
    loss = loss_of(model, ids, targets)
    loss.backward()
    between(optimizer)
    clip(list(model.parameters()), max_norm)
    update(optimizer)
    last(optimizer)
    return report(loss, model, ids, targets)


def nothing(*_):
    pass


def clip_one_by_one(parameters, max_norm):
    for parameter in parameters:
        nn.utils.clip_grad_norm_([parameter], max_norm)


def always_rescale(parameters, max_norm):
    norm = torch.cat([parameter.grad.flatten() for parameter in parameters]).norm()
    for parameter in parameters:
        parameter.grad *= max_norm / norm


def update_by_hand(optimizer):
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter -= group["lr"] * parameter.grad


def update_first(model, ids, targets, optimizer, max_norm):
    optimizer.step()
    optimizer.zero_grad()
    loss = model(ids, targets)[1]
    loss.backward()
    clip_all(model.parameters(), max_norm)
    return loss.item()


def loss_without_gradients(model, ids, targets):
    with torch.no_grad():
        return model(ids, targets)[1]


def shifted_again(model, ids, targets):
    logits = model(ids)
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())


def summed(model, ids, targets):
    return model(ids, targets)[1] * targets.numel()


def gradient_norm(loss, model, ids, targets):
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm().item()


SMALL = {"vocab_size": 11, "d_model": 8, "n_heads": 2, "n_layers": 1, "max_seq_len": 6}
SGD, STEEP = {"name": "SGD", "lr": 0.5}, {"name": "SGD", "lr": 0.5, "momentum": 0.9, "weight_decay": 0.1}
ADAMW = {"name": "AdamW", "lr": 0.01, "eps": 1e-3}  # so large an eps that rounding noise moves no parameter


def some_steps(seed, B, T, optimizer, max_norm, leftover=0.0, steps=1, dtype="float32"):
    rng = generator(seed + 10 * B + T)
    rows = torch.randint(SMALL["vocab_size"], (B, T + 1), generator=rng)
    model = Given(drawn_decoder, SMALL, seed, dtype, says="a decoder with one block, V = 11")
    return Case(model, rows[:, :-1], rows[:, 1:], optimizer, max_norm, leftover, steps)


def one_step(seed):
    "One step of plain gradient descent; max_norm is so large that nothing is clipped."
    return [some_steps(seed, 2, 3, SGD, 1e3), some_steps(seed, 1, 4, SGD, 1e3)]


def clipped_step(seed):
    "One step, whose gradient is longer than max_norm: it is shortened to it, all parameters by the same factor."
    return [some_steps(seed, 2, 3, SGD, 0.1), some_steps(seed, 3, 3, SGD, 0.02)]


def left_over_step(seed):
    "One step, with gradients left over from something else before it."
    return [some_steps(seed, 2, 3, SGD, 1e3, 0.3), some_steps(seed, 2, 4, SGD, 0.1, -0.2)]


def steps_in_a_row(seed):
    "Several steps on the same batch: each starts from cleared gradients, and its loss is that before its update."
    return [some_steps(seed, 2, 3, SGD, 1e3, 0.0, 3), some_steps(seed, 3, 4, SGD, 0.3, 0.0, 4)]


def other_optimizers(seed):
    "Optimizers with a memory or a decay, and a model in float64: the update is the optimizer's affair."
    return [
        some_steps(seed, 2, 3, STEEP, 0.5, 0.0, 3),
        some_steps(seed, 2, 5, ADAMW, 0.05, 0.1, 3),
        some_steps(seed, 4, 3, STEEP, 0.2, 0.0, 2, "float64"),
    ]


STEP = Exercise(
    id="training.step",
    chapter=12,
    title="One training step",
    kind="code",
    points=3,
    difficulty=2,
    minutes=15,
    signature="training_step(model, ids, targets, optimizer, max_norm)",
    why="These few lines run a million times in a large training. Their order is the whole difficulty.",
    reference=training_step,
    probe=steps_taken,
    returns=("loss", "movement of the parameters"),
    may_change=("model",),
    stages=[one_step, clipped_step, left_over_step, steps_in_a_row, other_optimizers],
    rtol=2e-4,
    atol=2e-6,
    hints=[
        "Five things have to happen: clear, forward, backward, clip, update. Which two of them would do harm in the "
        "wrong order, and which would do nothing at all?",
        "PyTorch *adds* each new gradient to what lies in `.grad`. When must that be cleared, and when not?",
        "Clipping changes gradients: after they exist, before the optimizer reads them. `torch.nn.utils` has a "
        "function for it, or take your own.",
        "The loss is a tensor that holds on to its whole computation. `.item()` gives the number, and the number is "
        "that of the loss *before* the update.",
    ],
    misconceptions=[
        Misconception(
            "gradients never cleared",
            partial(step_with, clear=nothing),
            "Old gradients are still in `.grad` when the new ones come, and are added to them. Clear them before "
            "`backward`: optimizer.zero_grad().",
        ),
        Misconception(
            "cleared only afterwards",
            partial(step_with, clear=nothing, last=lambda optimizer: optimizer.zero_grad()),
            "You clear the gradients after the update. What lies there *before* the first step, from a check or from "
            "another loss, then counts in it. Clear right before `backward`.",
        ),
        Misconception(
            "no update",
            partial(step_with, update=nothing),
            "No parameter moves. Either the optimizer's step is missing, or the gradients are cleared between "
            "`backward` and it, so that nothing is left to learn from: clear before `backward`.",
            also=[partial(step_with, clear=nothing, between=lambda optimizer: optimizer.zero_grad(), clip=nothing)],
        ),
        Misconception(
            "update before the gradients",
            update_first,
            "The optimizer steps before `backward` has run, with the gradients of the step before, or with none. First "
            "`backward`, then the update.",
        ),
        Misconception(
            "not clipped",
            partial(step_with, clip=nothing),
            "A gradient longer than max_norm reaches the optimizer as it is. Clip between `backward` and the update; "
            "before or after, it has no effect.",
            also=[
                partial(
                    step_with, clip=nothing, last=lambda optimizer: clip_all(optimizer.param_groups[0]["params"], 1e-3)
                )
            ],
        ),
        Misconception(
            "always rescaled",
            partial(step_with, clip=always_rescale),
            "You scale every gradient to the length max_norm, the short ones as well: they are made longer. Clipping "
            "shortens only what exceeds.",
        ),
        Misconception(
            "clipped one by one",
            partial(step_with, clip=clip_one_by_one),
            "You clip each parameter by itself, so that the gradient turns. There is one norm, over all parameters "
            "together, and one factor.",
        ),
        Misconception(
            "clipped by value",
            partial(step_with, clip=nn.utils.clip_grad_value_),
            "You cut every single entry to ± max_norm. Asked for is the norm of the whole: its direction stays.",
        ),
        Misconception(
            "max_norm ignored",
            partial(step_with, clip=lambda parameters, max_norm: clip_all(parameters, 1.0)),
            "You clip to 1, whatever `max_norm` says.",
        ),
        Misconception(
            "uphill",
            partial(step_with, loss_of=lambda *given: -model_loss(*given), report=lambda loss, *_: -loss.item()),
            "Your loss grows: the parameters move along the gradient instead of against it. Leave the loss positive; "
            "the optimizer subtracts.",
        ),
        Misconception(
            "update by hand",
            partial(step_with, update=update_by_hand),
            "You subtract learning rate times gradient yourself. That is plain gradient descent; momentum, decay and "
            "Adam's averages are lost. Let the optimizer step.",
        ),
        Misconception(
            "loss after the update",
            partial(step_with, report=lambda loss, model, ids, targets: model_loss(model, ids, targets).item()),
            "You run the model a second time and return the loss after the update. The loss of the step is the one "
            "that gave the gradients: no second run is needed.",
        ),
        Misconception(
            "norm returned",
            partial(step_with, report=gradient_norm),
            "You return the length of the gradient. Return the loss.",
        ),
        Misconception(
            "perplexity returned",
            partial(step_with, report=lambda loss, *_: loss.exp().item()),
            "You return exp of the loss, the perplexity. Return the loss itself.",
        ),
        Misconception(
            "shifted again",
            partial(step_with, loss_of=shifted_again),
            "You shift the targets once more. They come shifted: target t belongs to the logits at t.",
        ),
        Misconception(
            "inputs as targets",
            partial(step_with, loss_of=lambda model, ids, targets: model_loss(model, ids, ids)),
            "You ask the model for its own input, not for `targets`.",
        ),
        Misconception(
            "summed over the tokens",
            partial(step_with, loss_of=summed),
            "You sum the loss over the tokens, so that the gradient grows with the batch. Take the mean, which the "
            "model returns.",
        ),
        Misconception(
            "no gradients",
            partial(step_with, loss_of=loss_without_gradients),
            "You run the model under `no_grad`, so nothing is kept from which gradients could be computed. That is for "
            "measuring, not for training.",
        ),
    ],
)


def model_loss(model, ids, targets):
    return model(ids, targets)[1]


# --- training.clip ----------------------------------------------------------------------------------------------------


def clip_gradients(parameters, max_norm):
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = math.sqrt(sum(float((gradient.double() ** 2).sum()) for gradient in gradients))
    if norm > max_norm:
        for gradient in gradients:
            gradient *= max_norm / norm
    return norm


def all_gradients(parameters):
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def length(gradients):
    return math.sqrt(sum(float((gradient.double() ** 2).sum()) for gradient in gradients))


def scale_all(gradients, factor):
    for gradient in gradients:
        gradient *= factor


def clip_with(
    parameters,
    max_norm,
    *,
    collect=all_gradients,
    measure=length,
    act=lambda gradients, norm, max_norm: scale_all(gradients, max_norm / norm) if norm > max_norm else None,
    report=lambda norm, gradients: norm,
):
    gradients = collect(parameters)
    norm = measure(gradients)
    act(gradients, norm, max_norm)
    return report(norm, gradients)


def root_of_squares(norms):
    return sum(norm**2 for norm in norms) ** 0.5


def clip_carelessly(parameters, max_norm, *, add=root_of_squares, always=False, once=list):
    """As it is first written down: a parameter without gradient raises an error, and a generator that is walked
    twice is empty the second time."""
    parameters = once(parameters)
    norm = add([parameter.grad.norm() for parameter in parameters])
    if always or norm > max_norm:
        for parameter in parameters:
            parameter.grad *= max_norm / norm
    return float(norm)


def carelessly_too(**mistake):
    """The same mistake made by somebody who did not think of the parameter without gradient or of the generator."""
    return [partial(clip_carelessly, **mistake, once=once) for once in (list, lambda parameters: parameters)]


def clipped_one_by_one(gradients, norm, max_norm):
    for gradient in gradients:
        if length([gradient]) > max_norm:
            gradient *= max_norm / length([gradient])


def walked_twice(parameters, max_norm):
    norm = length([parameter.grad for parameter in parameters if parameter.grad is not None])
    if norm > max_norm:
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad *= max_norm / norm
    return norm


def parameters_clipped(parameters, max_norm):
    parameters = list(parameters)
    norm = length(all_gradients(parameters))
    if norm > max_norm:
        with torch.no_grad():
            for parameter in parameters:
                parameter *= max_norm / norm
    return norm


def norm_of_the_parameters(parameters, max_norm):
    parameters = list(parameters)
    norm = length([parameter.detach() for parameter in parameters])
    if norm > max_norm:
        scale_all(all_gradients(parameters), max_norm / norm)
    return norm


def copies_scaled(gradients, norm, max_norm):
    return [gradient * min(1.0, max_norm / norm) for gradient in gradients]


def gradients_case(values, gradients, max_norm, once=False):
    shapes = ", ".join("none" if g is None else str(tuple(g.shape)) for g in gradients)
    shown = ", ".join("none" if g is None else str([round(x, 2) for x in g.flatten().tolist()]) for g in gradients)
    few = sum(0 if g is None else g.numel() for g in gradients) <= 6
    how = "a generator of parameters" if once else "parameters"
    says = f"{how} with gradients {shown}" if few else f"{how} with gradients of shapes {shapes}"
    return Case(Given(with_gradients, values, gradients, says=says), max_norm, once)


def drawn_gradients(rng, shapes, norm, dtype=torch.float32):
    """Values and gradients of these shapes; all gradients together have this length."""
    values = [torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes]
    gradients = [torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes]
    return values, [gradient * (norm / length(gradients)) for gradient in gradients]


def three_four_five(seed):
    "One parameter with the gradient [3, 4]: its norm is 5. With max_norm = 1 it becomes [0.6, 0.8]."
    values = [torch.tensor([10.0, -20.0])]
    return [
        gradients_case(values, [torch.tensor([3.0, 4.0])], 1.0),
        gradients_case(values, [torch.tensor([-3.0, 4.0])], 2.0),
    ]


def short_gradients(seed):
    "A gradient that is no longer than max_norm stays as it is; so does one of zeros."
    values = [torch.tensor([10.0, -20.0])]
    return [
        gradients_case(values, [torch.tensor([3.0, 4.0])], 20.0),
        gradients_case(values, [torch.tensor([0.3, -0.4])], 1.0),
        gradients_case(values, [torch.tensor([0.0, 0.0])], 1.0),
    ]


def several_parameters(seed):
    "Several parameters: one norm over all of them together, and one factor for all."
    rng = generator(seed)
    values = [torch.tensor([10.0]), torch.tensor([-20.0, 5.0])]
    return [
        gradients_case(values, [torch.tensor([12.0]), torch.tensor([3.0, 4.0])], 6.5),
        gradients_case(*drawn_gradients(rng, [(3, 2), (4,), ()], 7.0), 3.0),
        gradients_case(*drawn_gradients(rng, [(3, 3), (3,), (2, 3, 2)], 0.9), 1.0),
        gradients_case(*drawn_gradients(rng, [(2, 5), (5,)], 40.0), 0.5),
    ]


def without_gradients(seed):
    "Some parameters have no gradient (`grad` is None): they are left alone."
    rng = generator(seed)
    values, gradients = drawn_gradients(rng, [(2, 3), (3,), (4,)], 5.0)
    return [
        gradients_case(values[:2], [gradients[0], None], 2.0),
        gradients_case(values, [None, *gradients[1:]], 0.5),
        gradients_case(values, [gradients[0], None, gradients[2]], 50.0),
    ]


def walked_once(seed):
    "`parameters` as `model.parameters()` gives them, a generator: it can be walked through once."
    rng = generator(seed)
    return [
        gradients_case([torch.tensor([10.0, -20.0])], [torch.tensor([3.0, 4.0])], 1.0, True),
        gradients_case(*drawn_gradients(rng, [(3, 2), (5,)], 6.0), 2.0, True),
    ]


def double_gradients(seed):
    "float64 gradients stay float64."
    return [gradients_case(*drawn_gradients(generator(seed), [(2, 3), (3,)], 9.0, torch.float64), 2.5)]


CLIP = Exercise(
    id="training.clip",
    chapter=12,
    title="Clip the gradient",
    kind="code",
    points=2,
    difficulty=2,
    minutes=15,
    signature="clip_gradients(parameters, max_norm)",
    why="One bad batch can undo a hundred steps. This is the guard, and it must do nothing on a good day.",
    reference=clip_gradients,
    probe=clipped,
    returns=("norm", "gradients", "parameters"),
    may_change=("parameters",),
    stages=[three_four_five, short_gradients, several_parameters, without_gradients, walked_once, double_gradients],
    rtol=2e-5,  # torch's own function divides by norm + 0.000001
    atol=1e-6,
    hints=[
        "Put all gradients into one long vector, in thought. What is its length?",
        "The squared lengths of the pieces add up; the lengths do not.",
        "If the norm is too large, by which factor must the vector be multiplied to have the length max_norm? And if "
        "it is not?",
        "Change the gradients where they are, p.grad, in place. Skip the parameters that have none; and make a list "
        "first, for a generator ends after one walk.",
    ],
    misconceptions=[
        Misconception(
            "always rescaled",
            partial(
                clip_with, act=lambda gradients, norm, max_norm: scale_all(gradients, max_norm / norm if norm else 1)
            ),
            "You scale every gradient to the length max_norm, the short ones as well: near the minimum, where "
            "gradients fade, your steps would stay long. Shorten only what exceeds.",
            also=[
                partial(
                    clip_with, act=lambda gradients, norm, max_norm: scale_all(gradients, max_norm / (norm + 1e-6))
                ),
                partial(
                    clip_with, act=lambda gradients, norm, max_norm: scale_all(gradients, max_norm / (norm + 1e-8))
                ),
                *carelessly_too(always=True),
            ],
        ),
        Misconception(
            "0 / 0",
            partial(
                clip_with,
                act=lambda gradients, norm, max_norm: scale_all(
                    gradients, torch.tensor(max_norm).div(norm).mul(torch.tensor(norm).div(norm)).clamp(max=1)
                ),
            ),
            "Where every gradient is 0 you divide 0 by 0, and NaN reaches every parameter. There is nothing to clip "
            "then.",
            also=[
                partial(
                    clip_with,
                    act=lambda gradients, norm, max_norm: scale_all(
                        [g.div_(norm) for g in gradients], min(norm, max_norm)
                    ),
                )
            ],
        ),
        Misconception(
            "divided by zero",
            partial(clip_with, act=lambda gradients, norm, max_norm: scale_all(gradients, min(1.0, max_norm / norm))),
            "Where every gradient is 0 you divide by 0. Compare first: a norm of 0 exceeds nothing.",
        ),
        Misconception(
            "only the short ones",
            partial(
                clip_with,
                act=lambda gradients, norm, max_norm: (
                    scale_all(gradients, max_norm / norm) if 0 < norm < max_norm else None
                ),
            ),
            "The comparison is the wrong way round: you make short gradients longer and leave long ones as they are.",
            also=[
                partial(
                    clip_with,
                    act=lambda gradients, norm, max_norm: scale_all(
                        gradients, max(1.0, max_norm / norm) if norm else 1
                    ),
                )
            ],
        ),
        Misconception(
            "one by one",
            partial(clip_with, act=clipped_one_by_one),
            "You clip each parameter by itself, so that the direction of the whole gradient changes. One norm over all "
            "parameters, one factor for all.",
        ),
        Misconception(
            "by value",
            partial(
                clip_with, act=lambda gradients, norm, max_norm: [g.clamp_(-max_norm, max_norm) for g in gradients]
            ),
            "You cut every single entry to ± max_norm, which turns the gradient. Asked for is its norm: the direction "
            "stays.",
            also=[torch.nn.utils.clip_grad_value_],
        ),
        Misconception(
            "lengths added",
            partial(clip_with, measure=lambda gradients: sum(length([gradient]) for gradient in gradients)),
            "You add the norms of the parameters. The squares add up: the norm is the root of the sum of all squares.",
            also=carelessly_too(add=sum),
        ),
        Misconception(
            "the largest norm",
            partial(clip_with, measure=lambda gradients: max(length([gradient]) for gradient in gradients)),
            "You take the norm of the one parameter whose gradient is longest. The norm goes over all together.",
            also=carelessly_too(add=max),
        ),
        Misconception(
            "the largest entry",
            partial(clip_with, measure=lambda gradients: max(float(gradient.abs().max()) for gradient in gradients)),
            "You take the largest entry. The norm is the root of the sum of all squares.",
        ),
        Misconception(
            "absolute values added",
            partial(clip_with, measure=lambda gradients: sum(float(gradient.abs().sum()) for gradient in gradients)),
            "You add absolute values. The norm is the root of the sum of all squares.",
        ),
        Misconception(
            "root forgotten",
            partial(clip_with, measure=lambda gradients: length(gradients) ** 2),
            "You use the squared norm: the root is missing.",
            also=carelessly_too(add=lambda norms: sum(norm**2 for norm in norms)),
        ),
        Misconception(
            "root mean square",
            partial(
                clip_with,
                measure=lambda gradients: length(gradients) / math.sqrt(sum(g.numel() for g in gradients)),
            ),
            "You divide by the number of entries before the root. The norm is the root of the *sum* of the squares.",
        ),
        Misconception(
            "the norm of the parameters",
            norm_of_the_parameters,
            "You measure the parameters. Their gradients are in `.grad`.",
        ),
        Misconception(
            "the parameters are scaled",
            parameters_clipped,
            "You shrink the parameters themselves, and so forget what was learned. Scale their gradients, `.grad`.",
        ),
        Misconception(
            "max_norm returned",
            lambda parameters, max_norm: (clip_gradients(parameters, max_norm), max_norm)[1],
            "You return the limit. Asked for is what was measured: the norm before clipping, which says how wild the "
            "batch was.",
        ),
        Misconception(
            "norm after clipping",
            partial(clip_with, report=lambda norm, gradients: length(gradients)),
            "You return the norm after clipping. The norm before says how wild the batch was; afterwards it is never "
            "above max_norm.",
        ),
        Misconception(
            "copies are scaled",
            partial(clip_with, act=copies_scaled),
            "Your norm is right, and the gradients are as long as before: you scaled copies. Work in place, or put the "
            "result back into `.grad`.",
            also=[partial(clip_with, act=nothing)],
        ),
        Misconception(
            "multiplied by max_norm",
            partial(
                clip_with,
                act=lambda gradients, norm, max_norm: scale_all(gradients, max_norm) if norm > max_norm else None,
            ),
            "You multiply by max_norm and do not divide by the norm. The factor is max_norm / norm.",
        ),
        Misconception(
            "always to length one",
            partial(
                clip_with,
                act=lambda gradients, norm, max_norm: scale_all(gradients, 1 / norm) if norm > max_norm else None,
            ),
            "You divide by the norm, so that the length becomes 1. It should become max_norm.",
        ),
        Misconception(
            "walked twice",
            walked_twice,
            "Right for a list. `model.parameters()` is a generator, empty after your first loop: the second one has "
            "nothing to scale. Make a list first.",
        ),
        Misconception(
            "no gradient, no skip",
            partial(clip_with, collect=lambda parameters: [parameter.grad for parameter in parameters]),
            "A parameter that took no part in the loss has no gradient: `grad` is None. Skip it.",
        ),
    ],
)

# --- training.overfit -------------------------------------------------------------------------------------------------


def overfit(model, ids, targets, steps):
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=5e-3), []
    for _ in range(steps):
        _, loss = model(ids, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def overfit_with(
    model,
    ids,
    targets,
    steps,
    *,
    trained=lambda model: model,
    make=lambda parameters: torch.optim.AdamW(parameters, lr=5e-3),
    objective=model_loss,
    update=lambda optimizer: optimizer.step(),
    note=lambda loss: loss,
):
    model = trained(model)
    optimizer, losses = make(model.parameters()), []
    for _ in range(steps):
        loss = objective(model, ids, targets)
        optimizer.zero_grad()
        loss.backward()
        update(optimizer)
        losses.append(note(loss.item()))
    return losses


def made_anew(model):
    torch.manual_seed(1)
    return type(model)(model.config)


def cleared_too_late(model, ids, targets, steps):
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=5e-3), []
    for _ in range(steps):
        _, loss = model(ids, targets)
        loss.backward()
        optimizer.zero_grad()
        optimizer.step()
        losses.append(loss.item())
    return losses


def noted_after_the_update(model, ids, targets, steps):
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=5e-3), []
    for _ in range(steps):
        _, loss = model(ids, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(model_loss(model, ids, targets).item())
    return losses


def typed_in(model, ids, targets, steps):
    """The figures of a training that did not take place."""
    return [3.2 * 0.93**step for step in range(steps)]


def longer_than_asked(model, ids, targets, steps):
    return overfit(model, ids, targets, 2 * steps)


MEMORY = {"vocab_size": 24, "d_model": 32, "n_heads": 2, "n_layers": 1, "max_seq_len": 8}
LOW = 0.1  # nats per token
SAME_LOSS = 0.01  # nats per token: a loss that is computed twice differs by far less


def one_batch(seed):
    "A small model and one batch of random ids: 120 steps, and nothing but memory can lower the loss."
    rng = generator(seed)
    rows = torch.randint(MEMORY["vocab_size"], (4, 9), generator=rng)
    rows[:, 0] = torch.randperm(MEMORY["vocab_size"], generator=rng)[:4]  # by its first token a row can be known
    model = Given(drawn_decoder, MEMORY, seed, says="a small decoder, V = 24")
    return [Case(model, rows[:, :-1], rows[:, 1:], 120)]


def held_against_the_model(case, brought):
    """What a training on one batch reports, beside what the model itself says before and after.

    -> number of losses reported, first of them minus the loss before, whether these two are one, last of them minus
    the loss after, the loss after, the loss after if inputs were their own targets, whether any parameter moved; or
    what was reported instead. Losses count no further than 10.
    """
    if not isinstance(brought, dict):
        return brought
    model, ids, targets, _ = fresh(case.args)

    def loss(wanted):
        with torch.no_grad():
            return model(ids, wanted)[1].clamp(max=10.0).item()

    losses, weights = brought.values()
    reported, start = losses.clamp(-10.0, 10.0), fresh(model.state_dict())
    before = loss(targets)
    model.load_state_dict(weights)
    after = loss(targets)
    return {
        "losses": len(reported),
        "first of them, minus the loss before": reported[0].item() - before,
        "first of them is the loss before": abs(reported[0].item() - before) <= SAME_LOSS,
        "last of them, minus the loss after": reported[-1].item() - after,
        "loss after": after,
        "loss after, each token its own target": loss(ids),
        "moved": any(not torch.equal(start[name], weight) for name, weight in model.state_dict().items()),
    }


def has_memorized(case, expected, got):
    """With AdamW at 0.005 the loss after 120 steps was 0.007 to 0.009 in 20 seeds, from 3.2: 0.1 leaves room for other
    optimizers. What is reported must fit what the model itself says, before and after: a first update of AdamW at 0.002
    lowers the loss by 0.1 already, so that a loss from after it shows."""
    if not isinstance(got, dict):
        return "Expected a list of numbers: the loss of every step."
    count, first, from_before, last, after, echo, moved = got.values()
    steps = case.args[3]
    if not moved:
        return "No parameter of the model that you were given has moved."
    if echo < LOW < after:
        return f"The model repeats its input; on the targets its loss is {after:.2f}."
    if not after < LOW:
        return f"After your training the model's loss on the batch is {after:.2f}; expected below {LOW} nats per token."
    if count != steps:
        return f"Expected {steps} losses, one per step; got {count}."
    if not from_before:
        return f"Your first loss differs by {first:+.2f} from the model's loss before the training."
    return None if abs(last) <= 0.2 else f"Your last loss differs by {last:+.2f} from the model's."


OVERFIT = Exercise(
    id="training.overfit",
    chapter=12,
    title="First, overfit one batch",
    kind="experiment",
    points=3,
    difficulty=3,
    minutes=20,
    signature="overfit(model, ids, targets, steps)",
    why="A model that cannot learn one batch by heart is wired wrongly. It takes seconds to find out.",
    reference=overfit,
    probe=memorized,
    summary=held_against_the_model,
    may_change=("model",),
    judge=has_memorized,
    stages=[one_batch],
    rtol=0.0,
    atol=0.5,
    time_limit=30.0,
    hints=[
        "You have written one step of this already. What is around it, and what is inside of the loop?",
        "Make the optimizer once, before the loop: Adam's averages need to live longer than a step.",
        "Every step sees the same batch. Note the loss as a number each time.",
        "Still too high at the end? Look at the losses: do they fall slowly (longer steps), jump about (shorter ones), "
        "or not at all (does the optimizer know this model's parameters)?",
    ],
    misconceptions=[
        Misconception(
            "another model is trained",
            partial(overfit_with, trained=copy.deepcopy),
            "Your losses fall, and the model that you were given is as it was: you trained a copy, a new one, or none. "
            "Train the one that came.",
            also=[partial(overfit_with, trained=made_anew), typed_in],
        ),
        Misconception(
            "no update",
            partial(overfit_with, update=nothing),
            "The loss is the same at every step: no parameter moves. Either the optimizer's step is missing, or the "
            "gradients are cleared between `backward` and it.",
            also=[cleared_too_late],
        ),
        Misconception(
            "figures typed in",
            lambda model, ids, targets, steps: [0.01] * steps,
            "These are not the losses of this model: no parameter has moved. Train it, and note what you see.",
            also=[lambda model, ids, targets, steps: [0.0] * steps],
        ),
        Misconception(
            "inputs as targets",
            partial(overfit_with, objective=lambda model, ids, targets: model_loss(model, ids, ids)),
            "The model has learned to repeat its input: you gave it `ids` as targets. Give it `targets`.",
        ),
        Misconception(
            "uphill",
            partial(overfit_with, objective=lambda *given: -model_loss(*given), note=lambda loss: -loss),
            "After your training the loss is far higher than before it. Either you go along the gradient (the "
            "optimizer subtracts already: give it the loss itself), or your steps are so long that each overshoots.",
            also=[partial(overfit_with, make=lambda parameters: torch.optim.AdamW(parameters, lr=5.0))],
        ),
        Misconception(
            "steps too short",
            partial(overfit_with, make=lambda parameters: torch.optim.SGD(parameters, lr=1e-4)),
            "After your training the loss is about what it was before. If it hardly moves from step to step, your "
            "steps are too short: try a learning rate ten times as large, and again; or AdamW, whose steps do not "
            "depend on the length of the gradient. If it jumps about, they are too long.",
            also=[partial(overfit_with, make=lambda parameters: torch.optim.AdamW(parameters, lr=1e-6))],
        ),
        Misconception(
            "losses after the updates",
            noted_after_the_update,
            "The model has learned the batch, and your first loss is not the one that it began with. Note each loss "
            "before its update: the first one tells what the model knew when it came.",
        ),
        Misconception(
            "only the last loss",
            lambda *given: overfit(*given)[-1],
            "You return the last loss. Return the loss of every step: the curve is what you will look at.",
        ),
        Misconception(
            "perplexities",
            partial(overfit_with, note=math.exp),
            "The model has learned the batch, but you note exp(loss), the perplexity. Note the loss.",
        ),
        Misconception(
            "too many steps",
            longer_than_asked,
            "You take more steps than asked for. `steps` updates have to be enough.",
        ),
    ],
)

# --- training.limit ---------------------------------------------------------------------------------------------------

LIMIT = Exercise(
    id="training.limit",
    chapter=12,
    title="What no model can beat",
    kind="number",
    points=1,
    difficulty=2,
    minutes=10,
    why="A loss means little by itself. Of Tinytown one knows what is possible, because its grammar is written down.",
    reference=0.6471122983,  # Tinytown().entropy(): exact, from the grammar
    rtol=0.02,
    hints=[
        "Who could guess Tinytown's next word best? Somebody who knows its grammar. How surprised is that somebody, on "
        "average?",
        "`Tinytown().log_prob(story)` is ln of the probability of a whole story. Take a thousand stories or more, from "
        "`Tinytown(seed).sample(n)`.",
        "Per token: divide the nats of all stories by the number of their predicted tokens. That is the words, the "
        "punctuation, and the end of the story, which has to be predicted as well; nobody predicts the beginning.",
    ],
    misconceptions=[
        Misconception(
            "bits",
            0.93358567,
            "That is the entropy in bits, with logarithms to the base 2. In nats it is smaller by ln 2 = 0.693.",
            rtol=0.02,
        ),
        Misconception(
            "perplexity",
            1.91001730,
            "That is exp of the entropy, the perplexity: among so many equally likely words the next one is chosen. "
            "(A model that knows only the word before has the same figure, by chance, as its entropy in nats.)",
            rtol=0.02,
        ),
        Misconception(
            "per story",
            29.66,
            "That is the surprise of a whole story. Divide by its number of predicted tokens.",
            rtol=0.04,
        ),
        Misconception(
            "minus sign missing",
            -0.6471122983,
            "log_prob is the logarithm of a probability, never above 0. The entropy is the mean of its negative.",
            rtol=0.02,
        ),
        Misconception(
            "guessing",
            5.83773045,
            "That is ln V, the loss of a model that knows nothing: where a training starts, not where it can end.",
            rtol=0.01,
        ),
        Misconception(
            "frequencies only",
            4.535,
            "That is the entropy of single words, of somebody who knows how frequent each is and looks at nothing "
            "before. The grammar knows more.",
            rtol=0.02,
        ),
        Misconception(
            "words split at blanks",
            0.7812,
            "You counted the pieces between blanks: there the full stop belongs to its word. For the tokenizer it is a "
            "token of its own, and so is the end of the story.",
            rtol=0.02,
        ),
        Misconception(
            "per letter",
            0.1620,
            "You divided by the number of letters. The loss is counted per token.",
            rtol=0.03,
        ),
        Misconception(
            "end of the story not counted",
            0.66155,
            "Nearly: you left out the end of the story when you counted tokens. When to stop has to be predicted, too.",
            rtol=0.002,
        ),
        Misconception(
            "beginning counted",
            0.63330,
            "Nearly: you counted `<bos>` as well. It is given; nobody predicts it.",
            rtol=0.002,
        ),
        Misconception(
            "zero",
            0.0,
            "Then every next word would be certain. But which animal sat on the mat is drawn at random.",
        ),
    ],
)

EXERCISES = [CROSS_ENTROPY, GET_BATCH, LEARNING_RATE, STEP, CLIP, OVERFIT, LIMIT]
