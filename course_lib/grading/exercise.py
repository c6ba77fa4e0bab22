"""The objects that an exercise's module uses: cases, the stages that make them, and data in place of a model.

How to write an exercise: `page/format.py`. The kinds of exercises: `kinds/`.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch


def generator(seed: int) -> torch.Generator:
    """Return a CPU generator for a stage: the same seed gives the same cases on every machine."""
    return torch.Generator().manual_seed(seed)


def drawn_mask(rng: torch.Generator, *shape: int) -> torch.Tensor:
    """Return a random mask in which every query may attend to at least one key, but not to all of them."""
    order = torch.rand(shape, generator=rng).argsort(-1)
    allowed = torch.randint(1, shape[-1], (*shape[:-1], 1), generator=rng)
    return order < allowed


def stage(function: Callable[[int], list]) -> Callable[[int], list]:
    """Mark a function of a page's module as a stage, which makes the cases for a seed. Stages run in order of
    definition.

    The learner reads the docstring of a stage that fails.
    """
    vars(function)["is_stage"] = True
    return function


class Case:
    """The arguments of one call and, if the answer is a class, the arguments of its constructor (`init`)."""

    def __init__(self, *args: Any, init: tuple = ()):
        self.args = args
        self.init = init


class Given:
    """An argument that is not plain data, such as a model, described as data: the function that makes it, and its
    arguments.

    Args:
        make: a function of a `fixtures.py`, called for every call of an answer, so that no call receives an object that
            another one changed. Another process can find the function by name and receive the data.
        data: its arguments, plain: numbers, text, tensors, lists, dictionaries, or another Given.
        says: the text that the learner reads in place of the value, "a model of two blocks".

    weights: the initial weights of a module, compared after a call, in case the answer changed them.
    """

    weights: dict | None = None

    def __init__(self, make: Callable, *data: Any, says: str = ""):
        self.make, self.data = make, data
        self.says = says or (inspect.getdoc(make) or repr(make)).splitlines()[0]

    def __repr__(self) -> str:
        return self.says


class ArgumentChanged(Exception):
    """The error that a probe raises if an answer changed an argument; `name` is the argument's name."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Misconception:
    """A mistake that learners make.

    Args:
        name: short, for the teacher's report ("mask inverted").
        wrong: the answer of a learner with this mistake: a function, a class, a number, a shape. For an exercise with
            named parts, only the wrong parts: {"ffn": 2_097_152}.
        sentence: a good teacher's comment: what the learner did, and why it is wrong.
        also: other answers with the same mistake, such as the same error combined with an overflow.
        rtol: numbers only: how close a number must be to count as this mistake.
        hint: the number of the hint that helps with this mistake; 0 if no hint helps more than the others.
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

    @property
    def changes(self) -> set[str]:
        """Return the names of the definitions that the mistake changes; a page's mistakes know them."""
        return set()


@dataclass(frozen=True)
class Option:
    """One option of a choice. The learner who picks it, right or wrong, reads `why`."""

    key: str
    text: str
    right: bool
    why: str

    def __post_init__(self):
        if not (self.key and self.text and self.why):
            raise ValueError(f"option {self.key!r} needs a key, a text and a reason")
