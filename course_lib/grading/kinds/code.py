"""A function or a class that the learner writes, judged by its results on the cases."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.grading.exercise import Misconception
from course_lib.grading.judge.call import Outcome
from course_lib.grading.judge.compare import OfAnotherType, compare, counted, kind_of, rounded, same
from course_lib.grading.judge.show import plural
from course_lib.grading.judge.trials import Trial, is_drawn
from course_lib.grading.kinds.base import Exercise
from course_lib.grading.kinds.diagnosis import Diagnosis, diagnosis
from course_lib.grading.kinds.evidence import evidence, pictures
from course_lib.grading.result import ALSO, Result

LESS_EXACT = (
    "A note: with float64 input, your result does not have all sixteen digits right. Some step is less exact: it uses "
    "float32, a constant with few digits, or a small number added for safety. That is exact enough here."
)
PASSED, FAILED, UNTRIED = "✓", "✗", "–"


@dataclass(frozen=True, kw_only=True, eq=False)
class Code(Exercise):
    """A function, or with `module` a class, compared with a reference on the cases of its stages.

    Fields for exercises that need more than a comparison of values:
        rtol, atol: replace the tolerance.
        judge(case, expected, got): returns None or a sentence, and replaces the comparison.
        probe(answer, *args): replaces the single call; its result is judged.
        summary(case, brought): computes the value to judge from the probe's result.
        may_change: names of inputs that an answer may change.
        returns: names of the parts of a tuple.
        forbidden: parts of operations' names.
        library: names of the library's own functions and classes that are the answer; an answer must not call them.
    """

    kind = "code"
    called = True
    signature: str
    reference: Any
    stages: Sequence[Callable]
    misconceptions: Sequence[Misconception] = ()
    returns: Sequence[str] = ()
    forbidden: Sequence[str] = ()
    may_change: Sequence[str] = ()
    library: Sequence[str] = ()
    module: bool = False
    probe: Callable | None = None
    summary: Callable | None = None
    judge: Callable | None = None
    rtol: float | None = None
    atol: float | None = None

    def __post_init__(self):
        super().__post_init__()
        self.require(callable(self.reference), "reference must be a function or a class")
        self.require(self.signature, "signature is missing")
        self.require(self.stages, "stages is empty")
        documented = all(stage.__doc__ for stage in self.stages)
        self.require(documented, "every stage needs a docstring: the learner reads it")
        declared = [m for m in self.misconceptions if isinstance(m, Misconception)]  # a page's mistakes are made later
        wrongs = [wrong for m in declared for wrong in m.variants]
        self.require(all(map(callable, wrongs)), "every misconception must be callable")

    def judge_calls(self, trials: Sequence[Trial], outcomes: list[Outcome]) -> Result:
        """Return the verdict on the outcomes of the trials' calls, already summed up."""
        if all(outcome.failure and outcome.failure.kind == "unanswered" for outcome in outcomes):
            return self.unanswered()
        problems = self.problems_of(trials, outcomes)
        if used := next((outcome.library for outcome in outcomes if outcome.library), ""):
            return self.of_the_library(used)
        failing = self.first_of(problems)
        if failing is None and len(outcomes) == len(trials) > 0:
            notes = [LESS_EXACT] if self._lost_digits(trials, outcomes) else []
            types = (counted(t.expected, each.value, each.from_numpy) for t, each in zip(trials, outcomes))
            notes += list(filter(None, types))[:1]
            return self.verdict("passed", [f"Right in {plural(len(trials), 'case')}.", *notes])
        if failing is None:  # an untrusted worker may omit some
            return self.verdict("failed", [f"{len(outcomes)} of {plural(len(trials), 'case')} were answered."])
        problem = problems[failing]
        assert problem is not None  # because this trial failed
        failure = outcomes[failing].failure
        if isinstance(problem, OfAnotherType) or (failure and failure.kind in ("type", "signature")):
            return self.verdict("failed", [problem])
        stages, part = self._by_stage(trials, problems, any(outcome.forbidden for outcome in outcomes))
        found = self.diagnosed(trials, outcomes, problems)
        shown = found.proof if found else failing
        trial, outcome = trials[shown], outcomes[shown]
        number = list(dict.fromkeys(each.stage for each in trials)).index(trial.stage) + 1
        case_of = f"The case (stage {number}): {trial.stage}" if stages else f"The case: {trial.stage}"
        sentences = [*(found.sentences if found else [problem]), *stages]
        said, mistakes = [*sentences, case_of], found.name.count(ALSO) + 1 if found and found.name else 0
        shown_case, sketch = evidence(self, trial, outcome, said, mistakes)
        both = pictures(self, trial, outcome)[0], sketch
        return self.verdict("failed", sentences, shown_case, (found and found.name) or None, both, part, case_of)

    def problems_of(self, trials: Sequence[Trial], outcomes: Sequence[Outcome]) -> list[str | None]:
        """Return the problem with each outcome, or None."""
        return [self.problem_of(trial, outcome) for trial, outcome in zip(trials, outcomes)]

    def first_of(self, problems: Sequence[str | None]) -> int | None:
        """Return the place of the problem to report, or None."""
        return next((i for i, problem in enumerate(problems) if problem is not None), None)

    def diagnosed(
        self, trials: Sequence[Trial], outcomes: Sequence[Outcome], problems: Sequence[str | None]
    ) -> Diagnosis | None:
        """Return the known mistake that the answer makes, or None."""
        return diagnosis(self, trials, outcomes, problems)

    def of_the_library(self, name: str) -> Result:
        """Return the verdict on an answer that calls the library's solution."""
        sentence = f"Your answer calls the library's own `{name}`, but the exercise asks for yours."
        return self.verdict("unanswered", [sentence, "You may use what you have read there."])

    def _by_stage(
        self, trials: Sequence[Trial], problems: Sequence[str | None], forbidden: bool
    ) -> tuple[list[str], int]:
        """Return a line about the stages that pass, and the points for those before the first one that fails.

        The last stage with points must have cases that depend on the seed, because visible results could be typed in.
        There are no points for parts if the exercise judges more than the return value, such as a probe's record of a
        training run or a measurement. Such a result is right as a whole or not at all.
        """
        stages: dict[str, str] = {}  # an answer that ran out of time did not reach the last cases
        for i, trial in enumerate(trials):
            mark = UNTRIED if i >= len(problems) else FAILED if problems[i] else PASSED
            stages[trial.stage] = max(mark, stages.get(trial.stage, mark), key=(PASSED, UNTRIED, FAILED).index)
        if len(stages) < 2:
            return [], 0
        first = list(stages.values()).index(FAILED)
        drawn = [number for number, stage in enumerate(self.stages[:first], 1) if is_drawn(stage)]
        whole = self.kind != "code" or not (self.probe is None or getattr(self.probe, "brings_the_result", False))
        part = 0 if whole or forbidden else self.points * max(drawn, default=0) // len(stages)
        marks = " ".join(stages.values())
        counted = f": {plural(part, 'point')} for those before the first {FAILED}" if part else ""
        left = f" ({UNTRIED} was not tried)" if UNTRIED in stages.values() else ""
        passed = f"{list(stages.values()).count(PASSED)} of {len(stages)} stages passed"
        return [f"{passed}: {marks}{counted}{left}"], part

    def problem_of(self, trial: Trial, outcome: Outcome) -> str | None:
        """Return the problem with one outcome in a sentence, or None."""
        if outcome.failure:
            return outcome.failure.sentence
        if outcome.forbidden:
            return f"You use torch's own `{outcome.forbidden}`. Here the point is to do without it."
        if self.judge:
            try:
                problem = self.judge(trial.case, trial.expected, outcome.value)
            except Exception:  # the value has a form that the author of the judge did not expect
                problem = f"Your result does not have the right form; it is {kind_of(outcome.value, True)}."
        else:
            problem = compare(trial.expected, outcome.value, self.rtol, self.atol, self.returns)
        if problem is None and outcome.changed:
            names = ", ".join(f"`{name}`" for name in outcome.changed)
            return f"Your result is right, but your function changes its input {names}. Work on a copy."
        return problem

    def alike(self, one: Outcome, other: Outcome) -> bool:
        """Return whether two outcomes are the same, within this exercise's tolerance."""
        if one.failure and other.failure:
            return (one.failure.kind, one.failure.behaviour) == (other.failure.kind, other.failure.behaviour)
        if one.failure or other.failure:
            return False
        return one.changed == other.changed and same(one.value, other.value, self.rtol, self.atol)

    def _lost_digits(self, trials: Sequence[Trial], outcomes: list[Outcome]) -> bool:
        """Return whether a float64 is right within the usual tolerance but not exactly. An exercise's own tolerance
        allows that."""
        if self.kind != "code" or self.rtol is not None or self.atol is not None:
            return False
        return any(
            compare(trial.expected, outcome.value) is None and rounded(trial.expected, outcome.value)
            for trial, outcome in zip(trials, outcomes)
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Experiment(Code):
    """A function that measures. A wide rtol, or a judge that knows the theory, allows for noise."""

    kind = "experiment"

    def __post_init__(self):
        super().__post_init__()
        self.require(self.rtol is not None or self.judge, "an experiment needs rtol or judge: room for noise")
