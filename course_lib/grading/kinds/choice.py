"""Exercises with options: one or several are right, and each has its reason."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from course_lib.grading.exercise import Option
from course_lib.grading.judge.show import plural, printable
from course_lib.grading.kinds.base import Exercise
from course_lib.grading.result import Result

LAST_NUMBER = 999  # the numbers of a numbered choice are 1 to this one
NUMBERED = re.compile(r"(\d+)\D+")


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice(Exercise):
    """Several options, some of them right. The answer is the key of one option, or several keys in braces.

    A numbered choice asks something else of each learner: keys such as "17c" begin with the learner's number, and
    `numbered(number)` returns all options for that number. `options` has those for number 1.
    """

    kind = "choice"
    options: Sequence[Option] = ()
    numbered: Callable[[int], Sequence[Option]] | None = None

    def __post_init__(self):
        super().__post_init__()
        keys = [option.key for option in self.options]
        self.require(len(keys) == len(set(keys)), f"option keys must differ, got {keys}")
        self.require(len({option.right for option in self.options}) == 2, "options need a right one and a wrong one")

    @property
    def several(self) -> bool:
        """Return whether several options are right. If so, feedback can count the right picks without naming them."""
        return sum(option.right for option in self.options) > 1

    @property
    def same_for_all(self) -> list[Option]:
        """Return the options that do not depend on a learner's number."""
        return [option for option in self.options if not self.numbered or not NUMBERED.fullmatch(option.key)]

    def asked(self, answer: Any) -> "Choice":
        """Return the choice of the number in an answer's keys; itself if there is no such number, or more than one."""
        numbers = _numbers(_picks(answer))
        if not self.numbered or len(numbers) != 1 or not 1 <= min(numbers) <= LAST_NUMBER:
            return self
        return replace(self, options=tuple(self.numbered(min(numbers))))

    def picked(self, answer: Any) -> list[Option]:
        """Return the options that an answer names, in the order of the page; none if the answer has another form."""
        picks = _picks(answer)
        known = {option.key for option in self.options}
        return [option for option in self.options if option.key in picks] if known.issuperset(picks) else []

    def judge_value(self, answer: Any) -> Result:
        """Return the verdict, with the reason for every wrong option picked or, if none is wrong, for every right
        one."""
        picks = _picks(answer)
        if self.numbered and picks:
            if problem := _problem_of_numbers(_numbers(picks)):
                return self.verdict("failed", [problem])
            return replace(self.asked(answer), numbered=None).judge_value(answer)
        keys = ", ".join(f'"{option.key}"' for option in self.options)
        if not picks:
            return self.verdict("failed", [f"Answer with the key of an option, or several in braces: {keys}."])
        picked = self.picked(answer)
        if not picked:
            unknown = next(pick for pick in sorted(picks) if pick not in {option.key for option in self.options})
            return self.verdict("failed", [f'There is no option "{printable(unknown, 40)}". Choose from {keys}.'])
        return self.told(picked)

    def told(self, picked: Sequence[Option], most: int | None = None) -> Result:
        """Return the verdict on the options picked, with at most `most` reasons for wrong ones; by default with all."""
        wrong = [option for option in picked if not option.right]
        if wrong:
            reasons = [_reason(option) for option in wrong[:most]]
            if more := len(wrong) - len(reasons):
                reasons.append(f"{more} more of your picks {'is' if more == 1 else 'are'} wrong.")
            return self.verdict("failed", reasons, misconception=wrong[0].text)
        if missing := self._missing(picked):
            return self.verdict("failed", [f"Nothing that you picked is wrong, and {missing}."])
        return self.verdict("passed", [_reason(option) for option in picked])

    def counted(self, picked: Sequence[Option]) -> Result:
        """Return the verdict with the number of right picks and of missing ones, without naming them."""
        right = sum(option.right for option in picked)
        if len(picked) == 1:
            said = f"Your pick is {'right' if right else 'wrong'}"
        else:
            said = f"{right or 'None'} of your {len(picked)} picks {'is' if right < 2 else 'are'} right"
        again = "Think each option through again. Once your choice differs from this one, you will see the reasons."
        return self.verdict("failed", [f"{said}, and {self._missing(picked) or 'none is missing'}.", again])

    def everything_picked(self) -> Result:
        """Return the verdict on picking every option, which gives no reasons."""
        return self.verdict(
            "failed", ["You picked every option, but not all are right. Leave out those that you doubt."]
        )

    def _missing(self, picked: Sequence[Option]) -> str:
        count = sum(option.right for option in self.options) - sum(option.right for option in picked)
        return f"{plural(count, 'right option')} {'is' if count == 1 else 'are'} missing" if count else ""


def _picks(answer: Any) -> set[str]:
    """Return the keys in an answer; none if it contains anything else."""
    picks = [answer] if isinstance(answer, str) else answer
    if not isinstance(picks, (tuple, list, frozenset)) or not all(isinstance(pick, str) for pick in picks):
        return set()
    return set(picks)


def _numbers(picks: set[str]) -> set[int]:
    """Return the numbers with which keys begin; a number of more than six digits counts as 0."""
    found = {each[1] for each in map(NUMBERED.fullmatch, picks) if each}
    return {int(digits) if len(digits) < 7 else 0 for digits in found}


def _problem_of_numbers(numbers: set[int]) -> str:
    """Return what is wrong with the numbers in an answer's keys, or nothing."""
    if not numbers:
        return "Write your number in front of the letter: with number 17, finding c is 17c."
    if len(numbers) > 1:
        return "Your letters are from findings of different numbers. Use one number."
    if not 1 <= min(numbers) <= LAST_NUMBER:
        return f"Your number must be from 1 to {LAST_NUMBER}."
    return ""


def _reason(option: Option) -> str:
    return f"{option.key}: {option.text} — {option.why}"
