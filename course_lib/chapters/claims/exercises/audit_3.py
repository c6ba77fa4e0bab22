"""Five differences between runs; the conclusion of the false one ignores how far chance moves them.

All numbers are on record: `assets/training.json` and `assets/ladder.json`.
"""

import json
import random
import statistics
from functools import cache, partial
from pathlib import Path
from typing import Any

import course_lib
from course_lib.chapters.claims import audits
from course_lib.chapters.claims.audits import Finding, Maker
from course_lib.grading.exercise import Option

LIMIT = 4.3  # for three seeds: Student's t, as in section 17.5
Runs = tuple[float, ...]


@cache
def on_record(name: str) -> Any:
    """Return a file of recorded numbers."""
    path = Path(course_lib.__file__).parent / "assets" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


def rung(name: str) -> Runs:
    """Return the final losses of a rung of the ladder."""
    return tuple(on_record("ladder")["nats"][name])


def swept(schedule: str, rate: str) -> Runs:
    """Return the final losses of the sweep over learning rates."""
    return tuple(on_record("training")["sweep"][schedule][rate])


def wide(width: str, rate: str) -> Runs:
    """Return the final losses of models of a width."""
    return tuple(on_record("training")["widths"][width][rate])


LADDER = "The model is one of the ladder."
FAST = "The model is one of the ladder, at four times the learning rate."
NARROW = "The model has 32 features."
SWEEP = "The model is from chapter 12."
PAIRS: dict[str, tuple[str, str, str, Runs, Runs]] = {  # title -> the model, two names, and their losses by seed
    "four heads": (LADDER, "one head", "four heads", rung("masks"), rung("heads")),
    "RoPE": (LADDER, "no positions", "RoPE", rung("heads"), rung("positions")),
    "feed-forward": (LADDER, "attention only", "feed-forward", rung("positions"), rung("feed_forward")),
    "four blocks": (LADDER, "two blocks", "four blocks", rung("blocks"), rung("four")),
    "the mask": (LADDER, "no mask", "the mask", rung("attention"), rung("masks")),
    "norms": (LADDER, "no norms", "norms", rung("feed_forward"), rung("normalization")),
    "feed-forward at a high rate": (
        FAST, "attention only", "feed-forward", rung("positions_fast"), rung("feed_forward_fast"),
    ),
    "norms at a high rate": (FAST, "no norms", "norms", rung("feed_forward_fast"), rung("normalization_fast")),
    "a rate of 0.16": (NARROW, "rate 0.005", "rate 0.16", wide("32", "0.005"), wide("32", "0.16")),
    "a rate of 0.04": (NARROW, "rate 0.02", "rate 0.04", wide("32", "0.02"), wide("32", "0.04")),
    "the warm-up": (
        f"{SWEEP} Its rate is 0.005.", "no warm-up", "a warm-up",
        swept("decayed, no warm-up", "0.005"), swept("decayed", "0.005"),
    ),
    "the decay": (
        f"{SWEEP} Its rate is 0.02.", "constant rate", "falling rate",
        swept("constant", "0.02"), swept("decayed", "0.02"),
    ),
    "the highest rate": (SWEEP, "rate 0.04", "rate 0.08", swept("decayed", "0.04"), swept("decayed", "0.08")),
}  # fmt: skip


def errors(before: Runs, after: Runs) -> tuple[float, float]:
    """Return the mean of the differences by seed, and how many standard errors it is from 0."""
    differences = [b - a for a, b in zip(before, after)]
    n, mean = len(differences), statistics.mean(differences)
    return mean, mean / (statistics.stdev(differences) / n**0.5)


def difference(title: str, rng: random.Random, false: bool) -> Finding:
    """Two arms with the same seeds. The true form calls their difference clear or not as section 17.5 does."""
    model, first, second, before, after = PAIRS[title]
    if rng.random() < 0.5:
        first, second, before, after = second, first, after, before
    mean, size = errors(before, after)
    clear = abs(size) > LIMIT
    lower, higher = (first, second) if mean > 0 else (second, first)
    effect = f"So the loss is clearly lower with “{lower}” than with “{higher}”."
    none = "So three seeds show no effect at this precision."
    if clear:
        shown = (
            f"The mean is {abs(size):.1f} standard errors from 0, beyond the limit of {LIMIT}. So the effect is clear."
        )
    else:
        shown = (
            f"The mean is only {abs(size):.1f} standard errors from 0. So three seeds show no effect at this precision."
        )
    return Finding(
        title,
        f"{model} With the same three seeds, we trained it twice: with “{first}” and with “{second}”. On average, the "
        f"second loss is {abs(mean):.3f} nats {'above' if mean > 0 else 'below'} the first. "
        f"{effect if clear != false else none}",
        [(f"seed {seed}", a, b, f"{b - a:+.3f}") for seed, (a, b) in enumerate(zip(before, after))],
        ("final loss in nats", first, second, "second − first"),
        {first: before, second: after},
        shown if false else f"This conclusion about {title} is right. {shown}",
        "seeds" if false else "",
        digits=3,
    )


MAKERS: tuple[Maker, ...] = tuple(partial(difference, title) for title in PAIRS)


def numbered(number: int, written: tuple[Option, ...]) -> list[Option]:
    """Return the options of a number."""
    return audits.options(audits.chosen(MAKERS, "claims.audit_3", number), number, written)
