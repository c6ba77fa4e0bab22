"""What is shown of a failing case: input, expected, got, and where they differ."""

import inspect
from typing import Any

from torch import Tensor

from ..judge import as_number, compare, differences
from ..picture import as_html, as_text
from ..run import Outcome
from ..show import DIGITS, MOST_SHOWN, digits_apart, show
from ..trials import Trial


def evidence(exercise: Any, trial: Trial, outcome: Outcome) -> str:
    """Return the failing case: input, expected, got, where they differ."""
    names = list(inspect.signature(exercise.reference).parameters)
    given = trial.case.init if exercise.module else trial.case.args
    lines = [_entry(name, value) for name, value in zip(names, given)]
    if exercise.module:
        lines += [_entry("input", value) for value in trial.case.args]
    if not outcome.failure:
        lines += _pair(exercise, trial.expected, outcome.value)
    if outcome.printed:
        lines.append(_entry("printed", outcome.printed.rstrip()))
    return "\n".join(lines)


def _pair(exercise: Any, expected: Any, got: Any) -> list[str]:
    """Expected beside got, and where they differ."""
    name, expected, got = _differing(exercise, expected, got)
    digits = _digits(exercise, expected, got)
    lines = [_entry(f"expected{name}", expected, digits), _entry(f"got{name}", got, digits)]
    return [*lines, *_first_difference(exercise, expected, got)]


def _digits(exercise: Any, expected: Any, got: Any) -> int:
    """So many that wherever `got` is wrong, it looks wrong: of a tensor that is too large to be printed, the usual."""
    if isinstance(expected, dict) and isinstance(got, dict):
        shared = [key for key in expected if key in got]
        return max((_digits(exercise, expected[key], got[key]) for key in shared), default=DIGITS)
    if _alike_tensors(expected, got):
        if not expected.is_floating_point() or not got.is_floating_point() or expected.numel() > MOST_SHOWN:
            return DIGITS
        wrong = differences(expected, got, exercise.rtol, exercise.atol)
        return max(map(digits_apart, expected[wrong].tolist(), got[wrong].tolist()), default=DIGITS)
    e, g = as_number(expected), as_number(got)
    return DIGITS if e is None or g is None else digits_apart(e, g)


def _differing(exercise: Any, expected: Any, got: Any) -> tuple[str, Any, Any]:
    """Of a tuple the first part that differs, with its name; anything else as it is."""
    if isinstance(expected, tuple) and isinstance(got, (tuple, list)) and len(expected) == len(got):
        for i, (e, g) in enumerate(zip(expected, got)):
            if compare(e, g, exercise.rtol, exercise.atol):
                return f" {exercise.returns[i]}" if exercise.returns else f" [{i}]", e, g
    return "", expected, got


def pictures(exercise: Any, trial: Trial, outcome: Outcome) -> tuple[str, str]:
    """Return target beside answer, as HTML and as text, if both are matrices."""
    if outcome.failure:
        return "", ""
    _, expected, got = _differing(exercise, trial.expected, outcome.value)
    shown = expected, got, exercise.rtol, exercise.atol
    return as_html(*shown), as_text(*shown)


def _first_difference(exercise: Any, expected: Any, got: Any) -> list[str]:
    if not _alike_tensors(expected, got) or expected.ndim == 0:
        return []
    wrong = differences(expected, got, exercise.rtol, exercise.atol)
    if wrong.numel() == 1 or not wrong.any():
        return []
    place = tuple(wrong.nonzero()[0].tolist())
    e, g = expected[place].item(), got[place].item()
    digits = digits_apart(e, g) if isinstance(e, float) and isinstance(g, float) else DIGITS
    return [f"first difference at {list(place)}: expected {show(e, digits)}, got {show(g, digits)}"]


def _alike_tensors(expected: Any, got: Any) -> bool:
    both = isinstance(expected, Tensor) and isinstance(got, Tensor)
    return both and expected.shape == got.shape and expected.device == got.device


def _entry(name: str, value: Any, digits: int = DIGITS) -> str:
    text = value if name == "printed" else show(value, digits)
    return f"{name}: {text}" if "\n" not in text else f"{name}: " + text.replace("\n", "\n  ")
