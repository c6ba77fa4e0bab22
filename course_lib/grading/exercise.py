"""How to declare an exercise. This page is for the author of a chapter's exercises.

A chapter's exercises stand in `catalogue/<chapter>.py`, in a list named `EXERCISES`, in the order of the chapter.
An exercise is data; the engine calls, judges, diagnoses, limits time and speaks. Kinds and what each needs:

    code        reference: a function (module=True: a class), stages, misconceptions that are functions
    experiment  as code: reference measures too; a wide rtol, or a judge that knows the theory, leaves room for noise
    number      reference: a number, or {name: number}; misconceptions are wrong numbers (or {name: wrong number})
    shapes      reference: a shape, a list of shapes or {name: shape}; misconceptions likewise
    choice      options: Option(key, text, right, why); every option has its own reason
    reflect     no points: model_answer and rubric, shown once the learner has written

    def one_row(seed):
        "One row of three numbers."                                # shown to the learner when this stage fails
        return [Case(torch.tensor([1.0, 2.0, 3.0]), 0)]            # the positional arguments of one call

    def drawn(seed):
        "Drawn numbers, odd sizes, any axis."
        rng = generator(seed)
        return [Case(torch.randn(3, 5, generator=rng), dim) for dim in (0, 1)]

    Exercise(
        id="attention.softmax", chapter=3, title="Softmax by hand", kind="code", points=2, difficulty=1, minutes=10,
        signature="softmax(x, dim)", reference=softmax, stages=[one_row, drawn], forbidden=["softmax"],
        why="Every attention weight in every Transformer comes out of this function.",
        hints=["What must each slice sum to?", "…", "…"],          # in order, never the answer itself
        misconceptions=[Misconception("ignores dim", ignores_dim, "You always normalise the last axis: …")])

Stages run in order, cases from small to large; the first failing stage gives the case that is shown. So begin with
the case that isolates one thing. A misconception is named only if it does what the learner's answer does on *every*
case, so the cases must tell the misconceptions apart: `pytest tests/test_grading.py` proves that they do, over
several seeds.

Values are judged by type, dtype, device, shape, then numbers, with a tolerance by dtype (`judge.py`). Where that is not
the right question:  rtol, atol replace the tolerance · judge(case, expected, got) -> None or a sentence replaces the
comparison · probe(answer, *args) replaces the single call (many draws, a gradient: what it returns is judged) ·
summary(case, brought) computes what is judged from what a probe brought: where a class is graded it runs out of the
answer's reach, so a verdict belongs here and only its raw material into the probe ·
may_change names inputs that an answer is allowed to alter · returns names the parts of a tuple · forbidden holds parts
of operations' names: "softmax" covers torch.softmax, x.softmax, F.log_softmax, and F.cross_entropy (made of it).
With module=True a case is Case(*args, init=(…)): the class is built with `init`, given the reference's weights,
called with `args`.

An answer is called with arrays and plain data, and what it returns is made plain. What is neither, a model or an
optimizer or a function, comes as `Given(make, *data)`: `make` stands in `given.py`, and so do the probes. (A seeded
`torch.Generator` may stand in a case as it is.) So a case can be sent to another process: `run.Call`.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

KINDS = ("code", "experiment", "number", "shapes", "choice", "reflect")


def generator(seed: int) -> torch.Generator:
    """A CPU generator for a stage's draws: the same seed gives the same cases on every machine."""
    return torch.Generator().manual_seed(seed)


class Case:
    """The arguments of one call, and those of the constructor (`init`) where the answer is a class."""

    def __init__(self, *args: Any, init: tuple = ()):
        self.args = args
        self.init = init


class Given:
    """An argument that is no plain data, such as a model, told as data: how it is made, and from what.

    Args:
        make: a function of `given.py`, called anew for every call of an answer, so that none meets what another
            altered. It can be named to another process; the data can be sent there.
        data: its arguments, plain: numbers, text, tensors, lists, dictionaries, or another Given.
        says: what the learner reads in place of the value, "a model of two blocks".

    weights: of a module, as it is when it is made: to see after a call whether the answer altered them.
    """

    weights: dict | None = None

    def __init__(self, make: Callable, *data: Any, says: str = ""):
        self.make, self.data = make, data
        self.says = says or inspect.getdoc(make).splitlines()[0]

    def __repr__(self) -> str:
        return self.says


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
    """

    name: str
    wrong: Any
    sentence: str
    also: Sequence[Any] = ()
    rtol: float = 1e-9

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Exercise:
    """One graded exercise; the page above says which fields a kind needs.

    Errors: ValueError at construction for a missing or contradictory field, naming the exercise and the field.
    """

    id: str
    chapter: int
    title: str
    kind: str
    points: int
    difficulty: int  # 1 to 5
    minutes: int
    hints: Sequence[str]
    why: str = ""
    signature: str = ""
    reference: Any = None
    stages: Sequence[Callable] = ()
    misconceptions: Sequence[Misconception] = ()
    options: Sequence[Option] = ()
    returns: Sequence[str] = ()
    forbidden: Sequence[str] = ()
    may_change: Sequence[str] = ()
    module: bool = False
    probe: Callable | None = None
    summary: Callable | None = None
    judge: Callable | None = None
    rtol: float | None = None
    atol: float | None = None
    time_limit: float = 20.0  # seconds of computing for all cases: loops in Python may be slow, endless ones end soon
    model_answer: str = ""
    rubric: Sequence[str] = ()
    min_words: int = 20

    def __post_init__(self):
        self._need(re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", self.id), "id must read chapter.name")
        self._need(self.kind in KINDS, f"kind={self.kind!r} must be one of {', '.join(KINDS)}")
        self._need(self.chapter >= 0, f"chapter={self.chapter} must not be negative")
        self._need(self.title, "title is missing")
        self._need(self.difficulty in (1, 2, 3, 4, 5), f"difficulty={self.difficulty} must be 1, 2, 3, 4 or 5")
        self._need(self.minutes > 0, f"minutes={self.minutes} must be positive")
        self._need(self.time_limit > 0, f"time_limit={self.time_limit} must be positive")
        self._need(self.hints and not isinstance(self.hints, str), "hints must be a list of sentences")
        if self.kind == "reflect":
            self._need(self.points == 0, "a reflect exercise has no points")
            self._need(self.model_answer and self.rubric, "a reflect exercise needs model_answer and rubric")
        else:
            self._need(self.points > 0, f"points={self.points} must be positive")
        if self.kind in ("code", "experiment"):
            self._need(callable(self.reference), "reference must be a function or a class")
            self._need(self.signature, "signature is missing")
            self._need(self.stages, "stages is empty")
            self._need(
                all(stage.__doc__ for stage in self.stages), "every stage needs a docstring: the learner reads it"
            )
            self._need(
                all(callable(wrong) for m in self.misconceptions for wrong in m.variants),
                "every misconception must be callable",
            )
        if self.kind == "experiment":
            self._need(self.rtol is not None or self.judge, "an experiment needs rtol or judge: room for noise")
        if self.kind in ("number", "shapes"):
            self._need(self.reference is not None, "reference is missing")
            if isinstance(self.reference, Mapping):
                wrongs = [wrong for m in self.misconceptions for wrong in m.variants]
                known = all(isinstance(wrong, Mapping) and wrong.keys() <= self.reference.keys() for wrong in wrongs)
                self._need(known, "every misconception must be a dictionary with keys of the reference")
        if self.kind == "choice":
            keys = [option.key for option in self.options]
            self._need(len(keys) == len(set(keys)), f"option keys must differ, got {keys}")
            self._need(len({option.right for option in self.options}) == 2, "options need a right one and a wrong one")
        names = [m.name for m in self.misconceptions]
        self._need(len(names) == len(set(names)), f"names of misconceptions must differ, got {names}")

    @property
    def answer_name(self) -> str:
        """The name under which a notebook holds the answer: that of the function or class, otherwise the id with "_"
        for "."."""
        return self.signature.split("(")[0] if self.kind in ("code", "experiment") else self.id.replace(".", "_")

    def _need(self, condition: Any, problem: str) -> None:
        if not condition:
            raise ValueError(f"exercise {self.id!r}: {problem}")
