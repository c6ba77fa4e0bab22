"""The fields of every kind of exercise, and the code shared by the kinds that judge a value."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from course_lib.grading.exercise import Misconception, Option
from course_lib.grading.judge.call import Outcome
from course_lib.grading.judge.compare import kind_of
from course_lib.grading.judge.show import plural, printable, show
from course_lib.grading.judge.trials import Trial
from course_lib.grading.result import Result

LONGEST = 4000  # characters of a sentence: some quote an answer's result


class Everything:
    """Empty defaults for the parts that only some kinds of exercise have. They are not fields: each kind defines its
    own."""

    kind: ClassVar[str] = ""
    called: ClassVar[bool] = False  # is the answer a function or a class?
    reference: Any = None
    misconceptions: Sequence[Misconception] = ()
    options: Sequence[Option] = ()
    stages: Sequence[Callable] = ()
    signature: str = ""
    functions: Sequence[str] = ()
    module: bool = False
    model_answer: str = ""
    rubric: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Exercise(Everything):
    """One graded exercise. Parts that a kind does not have are empty, so that all exercises have the same attributes.

    Errors: ValueError at construction for a missing or contradictory field, naming the exercise and the field.
    """

    id: str
    chapter: int
    title: str
    points: int
    difficulty: int  # 1 to 5
    minutes: int
    hints: Sequence[str]
    why: str = ""
    time_limit: float = 20.0  # seconds of computing for all cases: slow Python loops pass, and endless ones end soon

    def __post_init__(self):
        self.require(re.fullmatch(r"[a-z_]+\.[a-z0-9_]+", self.id), "id must read chapter.name")
        self.require(self.chapter >= 0, f"chapter={self.chapter} must not be negative")
        self.require(self.title, "title is missing")
        self.require(self.difficulty in (1, 2, 3, 4, 5), f"difficulty={self.difficulty} must be 1, 2, 3, 4 or 5")
        self.require(self.minutes > 0, f"minutes={self.minutes} must be positive")
        self.require(self.time_limit > 0, f"time_limit={self.time_limit} must be positive")
        self.require(self.hints and not isinstance(self.hints, str), "hints must be a list of sentences")
        self.require_points()
        names = [m.name for m in self.misconceptions]
        self.require(len(names) == len(set(names)), f"names of misconceptions must differ, got {names}")
        hints = [m.hint for m in self.misconceptions]
        self.require(all(0 <= hint <= len(self.hints) for hint in hints), f"misconceptions name hints {hints}")

    def require_points(self) -> None:
        """Raise an error if an exercise of this kind cannot have this number of points."""
        self.require(self.points > 0, f"points={self.points} must be positive")

    def require(self, condition: Any, problem: str) -> None:
        """Raise a ValueError that names the exercise and the problem, unless the condition holds."""
        if not condition:
            raise ValueError(f"exercise {self.id!r}: {problem}")

    @property
    def answer_name(self) -> str:
        """Return the answer's name in a notebook: the name of the function or class, otherwise the id with "_" for
        "."."""
        return self.signature.split("(")[0] if self.called else self.id.replace(".", "_")

    def taken(self, answer: Any) -> Any:
        """Return the answer as it is judged; some kinds take it in several forms."""
        return answer

    def judge_value(self, answer: Any) -> Result:
        """Return the verdict on an answer that is a value. Every kind that judges a value overrides this."""
        raise TypeError(f"exercise {self.id!r} is {self.kind}: its answers are called")

    def judge_calls(self, trials: Sequence[Trial], outcomes: list[Outcome]) -> Result:
        """Return the verdict on the results of calling an answer. Every kind that judges calls overrides this."""
        raise TypeError(f"exercise {self.id!r} is {self.kind}: its answers are not called")

    def verdict(
        self,
        status: str,
        sentences: Sequence[str],
        evidence: str = "",
        misconception: str | None = None,
        pictures: tuple[str, str] = ("", ""),
        part: int = 0,
        case: str = "",
    ) -> Result:
        """Return a `Result` of this exercise."""
        closing = f'Stuck? hint("{self.id}")' if status == "failed" else ""
        named = (self.id, self.title, status, self.points)
        sentences = tuple(sentence[:LONGEST] for sentence in sentences)
        evidence = evidence[: 4 * LONGEST]
        return Result(*named, sentences, evidence, misconception, closing, *pictures, part, case[:LONGEST])

    def unanswered(self) -> Result:
        """Return the verdict on an answer that has not been started."""
        asked = f"Write {self.signature}" if self.signature else "Put your answer in place of the dots"
        return self.verdict("unanswered", [f"{asked}, then run this cell again."])


@dataclass(frozen=True, kw_only=True, eq=False)
class Valued(Exercise):
    """An exercise whose answer is a value, or several values by name, which can match the reference or a known
    mistake."""

    reference: Any
    misconceptions: Sequence[Misconception] = ()

    def __post_init__(self):
        super().__post_init__()
        self.require(self.reference is not None, "reference is missing")
        if isinstance(self.reference, Mapping):
            wrongs = [wrong for m in self.misconceptions for wrong in m.variants]
            known = all(isinstance(wrong, Mapping) and wrong.keys() <= self.reference.keys() for wrong in wrongs)
            self.require(known, "every misconception must be a dictionary with keys of the reference")

    def unless(self, problems: Mapping[str, str | None], made: Callable[[Any, float], bool]) -> Result:
        """Return passed if there are no problems, otherwise the misconception that `made` recognizes, or the problems.

        Args:
            problems: the name of each part, "" for an answer without parts -> its problem, or None.
            made: returns whether the answer equals a wrong value, within a tolerance.
        """
        wrong_parts = {name: problem for name, problem in problems.items() if problem}
        if not wrong_parts:
            return self.verdict("passed", ["Right."])
        where = [f"Not right yet: {', '.join(wrong_parts)}."] if len(problems) > 1 else []
        for misconception in self.misconceptions:
            if any(made(wrong, misconception.rtol) for wrong in misconception.variants):
                return self.verdict("failed", [misconception.sentence, *where], misconception=misconception.name)
        return self.verdict("failed", list(wrong_parts.values()))


def kind_of_value(answer: Any) -> str:
    """Return a short description of the value that a learner gave as an answer."""
    return printable(kind_of(answer), 80)


def by_name(reference: Mapping, answer: Any) -> tuple[dict, str | None]:
    """Return the parts of an answer by name, and the problem with its form, if any.

    The answer is a dictionary with these names or a sequence in their order.
    """
    names = ", ".join(f"`{name}`" for name in reference)
    if isinstance(answer, (tuple, list)) and len(answer) == len(reference):
        return dict(zip(reference, answer)), None
    if isinstance(answer, (tuple, list)):
        return {}, f"Expected {plural(len(reference), 'part')}, got {len(answer)}."
    if not isinstance(answer, dict):
        wanted = f"a dictionary with the keys {names}" if isinstance(next(iter(reference)), str) else "a list"
        return {}, f"Your answer should be {wanted}; it is {kind_of_value(answer)}."
    missing = [f"`{name}`" for name in reference if name not in answer]
    extra = [name for name in answer if name not in reference]
    if missing:
        return {}, f"Your answer lacks {', '.join(missing)}."
    if not extra:
        return answer, None
    key = f"`{printable(extra[0], 60)}`" if isinstance(extra[0], str) else printable(show(extra[0]), 60)
    return answer, f"Your answer has the key {key}; expected only {names}."
