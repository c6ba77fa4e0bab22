"""What an exercise's module is written with: cases, the stages that make them, and what stands in for a model.

How to write an exercise: `page/format.py`. The kinds of exercises: `kinds/`.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


def generator(seed: int) -> torch.Generator:
    """Return a CPU generator for a stage's draws: the same seed gives the same cases on every machine."""
    return torch.Generator().manual_seed(seed)


def stage(function: Callable[[int], list]) -> Callable[[int], list]:
    """Mark a function of a page's module as a stage: it makes the cases of one seed. Stages run in order of definition.

    Its docstring is shown to the learner when the stage fails.
    """
    vars(function)["is_stage"] = True
    return function


class Case:
    """The arguments of one call, and those of the constructor (`init`) where the answer is a class."""

    def __init__(self, *args: Any, init: tuple = ()):
        self.args = args
        self.init = init


class Given:
    """An argument that is no plain data, such as a model, told as data: how it is made, and from what.

    Args:
        make: a function of a `fixtures.py`, called anew for every call of an answer, so that none meets what another
            altered. It can be named to another process; the data can be sent there.
        data: its arguments, plain: numbers, text, tensors, lists, dictionaries, or another Given.
        says: what the learner reads in place of the value, "a model of two blocks".

    weights: of a module, as it is when it is made: to see after a call whether the answer altered them.
    """

    weights: dict | None = None

    def __init__(self, make: Callable, *data: Any, says: str = ""):
        self.make, self.data = make, data
        self.says = says or (inspect.getdoc(make) or repr(make)).splitlines()[0]

    def __repr__(self) -> str:
        return self.says


class ArgumentChanged(Exception):
    """Raised by a probe of an answer that changed what the probe gave it; `name` is the argument's."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Misconception:
    """A mistake that learners make.

    Args:
        name: short, for the teacher's report ("mask inverted").
        wrong: what a learner with this mistake hands in: a function, a class, a number, a shape. For an exercise with
            named parts, only the wrong parts: {"ffn": 2_097_152}.
        sentence: what a good teacher says: what was done, and why it is not that.
        also: other answers in which the same mistake shows (the same slip made by someone who also overflows).
        rtol: numbers only: how near a figure must be to count as this mistake.
        hint: the number of the hint that helps with this mistake; 0 where none does more than the others.
    """

    name: str
    wrong: Any
    sentence: str
    also: Sequence[Any] = ()
    rtol: float = 1e-9
    hint: int = 0

    def __post_init__(self):
        if not self.name or not self.sentence:
            raise ValueError(f"a misconception needs a name and a sentence, got {self.name!r}, {self.sentence!r}")

    @property
    def variants(self) -> list:
        return [self.wrong, *self.also]


@dataclass(frozen=True)
class Option:
    """One option of a choice: `why` is said to the learner who picks it, right or wrong."""

    key: str
    text: str
    right: bool
    why: str

    def __post_init__(self):
        if not (self.key and self.text and self.why):
            raise ValueError(f"option {self.key!r} needs a key, a text and a reason")
