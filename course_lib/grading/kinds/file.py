"""A complete file that the learner writes, such as `my_gpt.py`: points for every stage that is right."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from course_lib.grading.judge.call import Outcome
from course_lib.grading.judge.show import plural
from course_lib.grading.judge.trials import Trial
from course_lib.grading.kinds.code import FAILED, PASSED, UNTRIED, Code
from course_lib.grading.kinds.diagnosis import Diagnosis, diagnosis
from course_lib.grading.result import Result

LENT = "is lent by the library"  # in the problem of a stage that the learner has not written


@dataclass(frozen=True, kw_only=True, eq=False)
class File(Code):
    """Code that a probe judges stage by stage. Every stage that is right earns its points, also after a wrong one.

    Fields:
        file: the name under which learners hand it in; the answer's name is a class in it.
        functions: names in the file that count as well, in addition to the class and what it uses.
    A case has one argument. Its data begin with the name of the stage, and end with whether the case tests only this
    stage, with other functions in place of the others. These cases decide only if an earlier stage is wrong: the
    mistake of one stage then costs no points in another.
    """

    kind = "file"
    file: str
    functions: Sequence[str] = ()

    def __post_init__(self):
        super().__post_init__()
        self.require(self.probe and self.judge, "an exercise of this kind needs a probe and a judge")

    def judge_calls(self, trials: Sequence[Trial], outcomes: list[Outcome]) -> Result:
        """Return the verdict on the outcomes; a file in which every stage is lent is not answered yet."""
        values = [outcome.value for outcome in outcomes if not outcome.failure]
        if values and len(values) == len(outcomes) and all(isinstance(value, str) for value in values):
            return self.unanswered()
        return super().judge_calls(trials, outcomes)

    def taken(self, answer: Any) -> Any:
        """Return the answer as a probe takes it: a class as it is, and a path, a text or a module in a box."""
        return answer if answer is ... or isinstance(answer, type) else HandedIn(answer)

    def unanswered(self) -> Result:
        """Return the verdict on a file that has not been started."""
        sentence = f"Write the stages of {self.file}: the library computes all of them for you, or nothing is there."
        return self.verdict("unanswered", [sentence])

    def problems_of(self, trials: Sequence[Trial], outcomes: Sequence[Outcome]) -> list[str | None]:
        """Return the problem of each outcome, or None; the cases of one stage that do not decide have none."""
        found = super().problems_of(trials, outcomes)
        wrong_before = False
        for stage in dict.fromkeys(trial.stage for trial in trials):
            places = [i for i, trial in enumerate(trials[: len(found)]) if trial.stage == stage]
            apart = [i for i in places if _is_alone(trials[i])]
            together = [i for i in places if i not in apart]
            is_wrong = any(found[i] for i in together)
            saved = is_wrong and wrong_before and apart and not any(found[i] for i in apart)
            for i in places if saved else apart:
                found[i] = None
            wrong_before = wrong_before or is_wrong
        return found

    def diagnosed(
        self, trials: Sequence[Trial], outcomes: Sequence[Outcome], problems: Sequence[str | None]
    ) -> Diagnosis | None:
        """Return the known mistake of the first stage that is wrong, below the problem in it."""
        first = self.first_of(problems)
        assert first is not None  # there is a problem
        places = [i for i in range(min(len(trials), len(problems))) if trials[i].stage == trials[first].stage]
        places = [i for i in places if not _is_alone(trials[i])]
        found = diagnosis(
            _of_stage(self, trials[first].case.args[0].data[0]),
            [trials[i] for i in places],
            [outcomes[i] for i in places],
            [problems[i] for i in places],
        )
        said = (problems[first] or "").partition("\n")[0]
        return found and replace(found, sentences=(said, *found.sentences), proof=first)

    def first_of(self, problems: Sequence[str | None]) -> int | None:
        """Return the place of the problem to report: the first one, but one of a stage that is lent only if there is
        no other."""
        places = [i for i, problem in enumerate(problems) if problem]
        return next((i for i in places if LENT not in (problems[i] or "")), places[0] if places else None)

    def _by_stage(
        self, trials: Sequence[Trial], problems: Sequence[str | None], forbidden: bool
    ) -> tuple[list[str], int]:
        """Return a line about the stages, and the points for those that are right."""
        marks: dict[str, str] = {}
        for i, trial in enumerate(trials):
            mark = UNTRIED if i >= len(problems) else FAILED if problems[i] else PASSED
            marks[trial.stage] = max(mark, marks.get(trial.stage, mark), key=(PASSED, UNTRIED, FAILED).index)
        right = list(marks.values()).count(PASSED)
        part = 0 if forbidden else min(self.points * right // len(marks), self.points - 1)
        left = f" ({UNTRIED} was not tried)" if UNTRIED in marks.values() else ""
        counted = f": {plural(part, 'point')}" if part else ""
        return [f"{right} of {len(marks)} stages passed: {' '.join(marks.values())}{counted}{left}"], part

    def alike(self, one: Outcome, other: Outcome) -> bool:
        """Return whether two outcomes are the same; of two values, their tensors within the tolerance."""
        if one.failure or other.failure or self.same is None:
            return super().alike(one, other)
        return bool(self.same(one.value, other.value))

    same: Any = None


class HandedIn:
    """A file as a path, a text or a module. It can be called, as every answer can; the probe looks into it."""

    def __init__(self, handed_in: Any):
        self.handed_in = handed_in

    def __call__(self, *args: Any) -> None:
        """Refuse: a file is not called. Errors: TypeError in every case."""
        raise TypeError("this is a file, which cannot be called")


@functools.lru_cache(maxsize=32)
def _of_stage(exercise: File, stage: str) -> File:
    """Return the exercise with those mistakes alone that change this stage."""
    return replace(exercise, misconceptions=[each for each in exercise.misconceptions if stage in each.changes])


def _is_alone(trial: Trial) -> bool:
    return bool(trial.case.args[0].data[-1])
