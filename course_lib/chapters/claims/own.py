"""A learner's own experiment: what it still lacks, its result, and a finished example."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from course_lib.claims import stated_outcomes

SEEDS = range(5)
# 100 times the largest weight, for each seed: with uniform weights, and with one weight of 1.
LEAST, MOST = [1.0] * len(SEEDS), [100.0] * len(SEEDS)


def try_experiment(decide: Callable[..., Any], measure: Callable[[int], Any], control: Callable[[], Any]) -> None:
    """Print what is still to be written, or else the verdict, the measured numbers and the control.

    decide: the numbers of all seeds -> a verdict; its docstring states the outcomes. measure: a seed -> a number.
    control: the same number where the answer is known.
    """
    if missing := still_to_write(decide, measure, control):
        print("still to write:", *(f"- {each}" for each in missing), sep="\n")
        return
    values = [float(measure(seed)) for seed in SEEDS]
    verdict, stated = decide(values), outcomes(decide)
    if verdict not in stated:
        print(
            f"decide returns {verdict!r} for these numbers, but its docstring does not state that outcome: add it there"
        )
        return
    print(f"{verdict}: {stated[verdict]}")
    print(f"measured, for each seed: {', '.join(f'{value:.1f}' for value in values)}")
    print(f"control: {float(control()):.1f}")


def still_to_write(decide: Callable[..., Any], measure: Callable[[int], Any], control: Callable[[], Any]) -> list[str]:
    """Return what the experiment still needs, in the order in which it should be written."""
    missing = []
    stated = outcomes(decide)
    if len(stated) < 2:
        missing.append("the docstring of decide: at least two outcomes, each with a threshold")
    elif len({decide(LEAST), decide(MOST)} & stated.keys()) < 2:
        missing.append("decide: return one of its outcomes if each weight is 1/100, and another if one weight is 1")
    values = [_number(measure, seed) for seed in (*SEEDS, SEEDS[0])]
    if None in values:
        missing.append("measure: return a number for each seed")
    elif values[0] != values[-1] or len({*values}) < 2:
        missing.append("measure: sample with the generator, so that each seed has its own number, the same every time")
    if _number(control) is None:
        missing.append("control: return the same number for scores whose largest weight you know")
    return missing


def outcomes(decide: Callable[..., Any]) -> dict[str, str]:
    """Return verdict -> when it is given, as the docstring states it; without the lines that are still empty."""
    return {verdict: when for verdict, when in stated_outcomes(decide).items() if re.search(r"\w", when)}


def _number(function: Callable[..., Any], *given: Any) -> float | None:
    found = function(*given)
    return None if found is None or found is ... else float(found)


# --------------------------------------------------------------------------------------------------- a finished one
def decide(largest: Sequence[float]) -> str:
    """Return the verdict. largest: 100 times the largest weight, for each seed.

    confirmed: it is below 2 for every seed
    depends: it is below 2 for some seeds
    refuted: it is at least 2 for every seed
    """
    if max(largest) < 2:
        return "confirmed"
    return "refuted" if min(largest) >= 2 else "depends"


def measure(seed: int, std: float = 1.0) -> float:
    """Return the largest of 100 weights, times 100; std: the standard deviation of the scores."""
    generator = torch.Generator().manual_seed(seed)
    scores = std * torch.randn(100, generator=generator)
    return 100 * scores.softmax(dim=0).max().item()


def control() -> float:
    """Return the same number for 100 equal scores."""
    return 100 * torch.zeros(100).softmax(dim=0).max().item()
