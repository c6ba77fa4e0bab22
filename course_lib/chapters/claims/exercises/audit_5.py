"""Five comparisons of recorded runs; the false one hides a condition, or has no control for its cause."""

import random
import statistics

from course_lib.chapters.claims import audits
from course_lib.chapters.claims.audits import Finding
from course_lib.chapters.claims.exercises.audit_3 import on_record, rung, swept, wide
from course_lib.grading.exercise import Option


def schedules(rng: random.Random, false: bool) -> Finding:
    """A constant and a falling rate; each is better at one learning rate."""
    seed = rng.randrange(3)
    rates = ("0.005", "0.02")
    rows = [(rate, swept("constant", rate)[seed], swept("decayed", rate)[seed]) for rate in rates]
    gained = rows[0][2] - rows[0][1]
    shown = "At a rate of 0.02 the falling rate ends with the lower loss. The conclusion leaves out its condition."
    said = f"So a constant rate is better than a falling one: its loss is {gained:.2f} nats lower."
    return Finding(
        "the schedule",
        "We trained the model of chapter 12 with a constant learning rate and with one that falls to the end, at "
        "two rates "
        f"(seed {seed}; the other seeds agree). "
        f"{said if false else 'So which schedule is better depends on the rate.'}",
        rows,
        ("final loss in nats, at a rate of", "constant", "falling"),
        {"rates": rates, "constant": [row[1] for row in rows], "falling": [row[2] for row in rows]},
        shown if false else "This is right: the order is reversed at the other rate, and the conclusion says so.",
        "condition" if false else "",
        digits=3,
    )


def rates(rng: random.Random, false: bool) -> Finding:
    """Two learning rates at two widths; the average favours one of them, and the wide models the other."""
    low, high = "0.005", "0.32"  # of all pairs, the two whose differences are clear at both widths
    means = {width: [statistics.mean(wide(width, rate)) for rate in (low, high)] for width in ("8", "32")}
    both = [statistics.mean(pair) for pair in zip(*means.values())]
    shown = f"At width 32 the rate of {high} is worse. The average over both widths hides it."
    said = (
        f"So, whatever the width, {high} is a better rate than {low}: on average it saves {both[0] - both[1]:.2f} nats."
    )
    rows = [*((f"width {width}", *pair) for width, pair in means.items()), ("average", *both)]
    head = ["mean final loss in nats", f"rate {low}", f"rate {high}"]
    if rng.random() < 0.5:
        rows, head = [(name, second, first) for name, first, second in rows], [head[0], head[2], head[1]]
    return Finding(
        "the learning rate",
        f"We trained models of two widths at a low and at a high learning rate, with three seeds each. "
        f"{said if false else 'So which of the two rates is better depends on the width.'}",
        rows,
        head,
        {f"width {width}, rate {rate}": wide(width, rate) for width in means for rate in (low, high)},
        shown if false else "This is right: the two widths differ, and the conclusion says so.",
        "condition" if false else "",
    )


def questions(rng: random.Random, false: bool) -> Finding:
    """Two checkpoints on two kinds of questions; the later one was asked more of the harder kind.

    The fractions are on record for more questions; here they are rounded to the number asked.
    """
    early, late = rng.choice([(400, 700), (350, 600), (400, 600), (400, 500), (350, 500)])
    seed = on_record("training")["abilities"]["seed 0"]["right"]
    place = on_record("training")["abilities"]["steps"].index
    many, few = rng.choice([(40, 10), (44, 11), (42, 12)])
    rows, totals = [], {early: [0, 0], late: [0, 0]}
    for kind, asked in (("capitals", {early: many, late: few}), ("who bit whom", {early: few, late: many})):
        cells = []
        for step in (early, late):
            right = round(asked[step] * seed[kind][place(step)])
            totals[step][0] += right
            totals[step][1] += asked[step]
            cells.append(f"{right} of {asked[step]}")
        rows.append((kind, *cells))
    rows.append(("all questions", *(f"{right} of {asked}" for right, asked in totals.values())))
    before, after = (right / asked for right, asked in totals.values())
    shown = (
        f"In each kind, step {late} answers a larger fraction. It was asked more questions of the harder kind, so the "
    )
    shown += "sum hides this."
    said = f"So the model became worse: it answered {before:.0%} of its questions before, and {after:.0%} later."
    return Finding(
        "the questions",
        f"During training, a model was asked two kinds of questions, at step {early} and at step {late}. "
        f"{said if false else 'So it became better at both kinds.'}",
        rows,
        ("correct answers", f"step {early}", f"step {late}"),
        {"correct and asked, by step": totals, "rows": rows},
        shown if false else "This is right: in each kind, the later fraction is larger.",
        "condition" if false else "",
    )


def width(rng: random.Random, false: bool) -> Finding:
    """A narrow and a wide model; in the false form the wide one saw more tokens as well."""
    seed = rng.randrange(3)
    runs = {(run["d_model"], run["tokens"]): run["loss"] for run in on_record("training")["scaling"]["runs"]
            if run["seed"] == seed}  # fmt: skip
    few, many = rng.choice([(76_800, 307_200), (153_600, 614_400), (76_800, 614_400)])
    narrow = (8, few if false else many)
    rows = [(size, tokens, runs[size, tokens]) for size, tokens in (narrow, (32, many))]
    gained = rows[0][2] - rows[1][2]
    shown = (
        f"The wider model also saw {many // few} times the number of tokens. The control, a narrow model with all "
        f"these tokens, has {runs[8, many]:.2f} nats."
    )
    return Finding(
        "the width",
        f"We trained a narrow and a wide model (seed {seed}; the other seeds agree). The loss of the wide one is "
        f"{gained:.2f} nats lower, because it is wider.",
        rows,
        ("features", "training tokens", "final loss in nats"),
        {"features": (8, 32), "tokens": (narrow[1], many), "loss": [row[2] for row in rows]},
        shown if false else "This is right: both models saw the same number of tokens, so only the width differs.",
        "control" if false else "",
        digits=3,
    )


def part(rng: random.Random, false: bool) -> Finding:
    """The ladder without and with feed-forward networks; in the false form the learning rate changes as well."""
    after = rung("feed_forward_fast") if false else rung("feed_forward")
    means = [statistics.mean(losses) for losses in (rung("positions"), after)]
    shown = "The second model has four times the learning rate as well. Without the networks, that rate alone gives "
    shown += f"{statistics.mean(rung('positions_fast')):.2f} nats."
    names = ["attention only", "feed-forward"]
    rows = [(name, "4 ×" if false and name != names[0] else "1 ×", mean) for name, mean in zip(names, means)]
    if rng.random() < 0.5:
        rows.reverse()
    return Finding(
        "the feed-forward networks",
        "We trained a model of the ladder without and with feed-forward networks, with three seeds each. With "
        "them, the "
        f"mean loss is {means[0] - means[1]:.2f} nats lower, because of the networks.",
        rows,
        ("model", "learning rate", "mean final loss in nats"),
        {"attention only": rung("positions"), "feed-forward": after},
        shown if false else "This is right: nothing but the networks differs.",
        "control" if false else "",
        digits=3,
    )


MAKERS = (schedules, rates, questions, width, part)


def numbered(number: int, written: tuple[Option, ...]) -> list[Option]:
    """Return the options of a number."""
    return audits.options(audits.chosen(MAKERS, "claims.audit_5", number), number, written)
