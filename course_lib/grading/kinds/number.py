"""Exercises whose answer is one number, or several by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.grading.judge.compare import as_number
from course_lib.grading.judge.show import apart, number
from course_lib.grading.kinds.base import Valued, by_name, kind_of_value
from course_lib.grading.result import Result

NEAR = 0.01  # relative to the expected number
MOST_IN_FULL = 10**15  # the limit for a whole number shown in full


@dataclass(frozen=True, kw_only=True, eq=False)
class Number(Valued):
    """A number, or {name: number}, exact unless `rtol` allows a difference. The misconceptions are wrong numbers."""

    kind = "number"
    rtol: float | None = None

    def judge_value(self, answer: Any) -> Result:
        """Return the verdict: right, a known wrong number, or the size of the error."""
        if not isinstance(self.reference, Mapping):
            problem = self._problem("", self.reference, answer)
            return self.unless({"": problem}, lambda wrong, rtol: _is_number(answer, wrong, rtol))
        parts, problem = by_name(self.reference, answer)
        if problem:
            return self.verdict("failed", [problem])
        problems = {f"`{name}`": self._problem(name, self.reference[name], parts[name]) for name in self.reference}

        def made(wrong: Mapping, rtol: float) -> bool:
            return all(_is_number(parts[name], wrong[name], rtol) for name in wrong)

        return self.unless(problems, made)

    def _problem(self, name: str, expected: float, got: Any) -> str | None:
        what = f"`{name}`" if name else "Your answer"
        value = as_number(got)
        if isinstance(got, str):
            return f"{what} is text. Write the number itself, without quotes or commas."
        if value is None:
            comma = " A comma makes a tuple: write 30000 or 30_000." if isinstance(got, tuple) else ""
            return f"{what} should be a number; it is {kind_of_value(got)}.{comma}"
        if value != value:
            return f"{what} is NaN, which is not a number. Look for a division 0 / 0 in your computation."
        if _is_number(value, expected, self.rtol or 0.0):
            return None
        said = _rounded(value, expected)
        if value * expected <= 0:
            return f"{what} is not {said}."
        if abs(value) > 10 * abs(expected) or abs(expected) > 10 * abs(value):
            size = "large" if abs(value) > abs(expected) else "small"
            return f"{what} is not {said}: that is more than ten times too {size}."
        if abs(value - expected) < NEAR * abs(expected):
            return f"{what} is not {said}, though it is less than {100 * NEAR:.0f}% away."
        return f"{what} is not {said}, though that is the right order of magnitude."


def _rounded(value: float, expected: float) -> str:
    """Return a number with enough digits to see that it is not the expected one; a whole number in full, if it is
    short."""
    if abs(value) < MOST_IN_FULL and value == int(value):
        return number(int(value))
    return apart(float(value), float(expected))[0]


def _is_number(value: Any, wanted: float, rtol: float) -> bool:
    value = as_number(value)
    return value is not None and (value == wanted or abs(value - wanted) <= rtol * abs(wanted))
