"""Exercises whose answer is the shape of a tensor, or several shapes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from course_lib.grading.judge.show import printable
from course_lib.grading.kinds.base import Valued, by_name, kind_of_value
from course_lib.grading.result import Result

LONGEST = 60  # characters of a shape


@dataclass(frozen=True, kw_only=True, eq=False)
class Shapes(Valued):
    """A shape, a list of shapes or {name: shape}. The misconceptions have the same form."""

    kind = "shapes"

    def judge_value(self, answer: Any) -> Result:
        """Return the verdict: right, a known wrong shape, or the wrong axes."""
        reference = self.reference
        if _is_shape(reference):
            problem = _problem("Your shape", reference, answer)
            return self.unless({"": problem}, lambda wrong, rtol: _as_shape(answer) == tuple(wrong))
        named = reference if isinstance(reference, Mapping) else dict(enumerate(reference))
        parts, problem = by_name(named, answer)
        if problem:
            return self.verdict("failed", [problem])
        labels = {key: f"`{key}`" if isinstance(key, str) else f"Shape {key + 1}" for key in named}
        problems = {labels[key]: _problem(labels[key], named[key], parts[key]) for key in named}

        def made(wrong: Any, rtol: float) -> bool:
            wrong = wrong if isinstance(wrong, Mapping) else dict(enumerate(wrong))
            return all(_as_shape(parts[key]) == tuple(wrong[key]) for key in wrong)

        return self.unless(problems, made)


def _problem(label: str, expected: tuple, got: Any) -> str | None:
    shape = _as_shape(got)
    if shape is None:
        return f"{label} should be a tuple of whole numbers such as (2, 3); it is {kind_of_value(got)}."
    if shape == tuple(expected):
        return None
    if len(shape) != len(expected):
        return f"{label} is not {printable(str(shape), LONGEST)}: the number of axes is not {len(shape)}."
    wrong = [str(i) for i, (a, b) in enumerate(zip(shape, expected)) if a != b]
    size = f"the wrong size on {'axis' if len(wrong) == 1 else 'axes'} {', '.join(wrong)}"
    return f"{label} is not {printable(str(shape), LONGEST)}: it has the right number of axes, and {size}."


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(type(size) is int for size in value)


def _as_shape(value: Any) -> tuple | None:
    return tuple(value) if _is_shape(value) else None
