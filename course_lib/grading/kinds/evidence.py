"""The evidence of a failing case: input, expected, got, and the difference."""

import inspect
from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any, NamedTuple

from torch import Tensor

from course_lib.grading.judge.call import Outcome
from course_lib.grading.judge.compare import as_number, compare, differences, same
from course_lib.grading.judge.picture import as_html, as_text
from course_lib.grading.judge.show import DIGITS, MOST_SHOWN, digits_apart, show
from course_lib.grading.judge.trials import Trial
from course_lib.grading.result import WIDTH, wrapped

HEIGHT = 30  # lines of the complete feedback with its heading
AROUND = 2  # lines: the heading, and the pointer to the hints
MOST_OF_A_SKETCH = 9  # lines
LEAST = 8  # lines that a sketch must leave for the case


class Entry(NamedTuple):
    """One value of a case: in full, in one line, and whether it is a result. Inputs are shortened before results."""

    lines: list[str]
    short: str
    result: bool


def evidence(exercise: Any, trial: Trial, outcome: Outcome, said: Sequence[str], mistakes: int = 0) -> tuple[str, str]:
    """Return the failing case (input, expected, got and the difference), and a sketch of the wrong entries.

    Args:
        said: the sentences above the case, which reduce its number of lines.
        mistakes: the number of named mistakes whose result equals the answer's.
    """
    names = list(inspect.signature(exercise.reference).parameters)
    given = trial.case.init if exercise.module else trial.case.args
    entries = [_entry(name, value) for name, value in zip(names, given)]
    if exercise.module:
        entries += [_entry(name, value) for name, value in zip(_of_forward(exercise), trial.case.args)]
    if not outcome.failure and not _is_right_and_changes_its_input(exercise, trial, outcome):
        entries += _pair(exercise, trial.expected, outcome.value, mistakes)
    if outcome.printed:
        entries.append(_in_lines("printed", outcome.printed.rstrip(), "(see above)"))
    room = HEIGHT - AROUND - sum(len(wrapped(sentence)) for sentence in said)
    sketch = pictures(exercise, trial, outcome)[1].splitlines()
    if len(sketch) > min(MOST_OF_A_SKETCH, room - LEAST):
        sketch = []
    return "\n".join(_fitted(entries, room - len(sketch))), "\n".join(sketch)


def _fitted(entries: list[Entry], room: int) -> list[str]:
    """Return the lines of all entries. If there are too many, shorten the longest entries, inputs before results."""
    shown = [entry.lines for entry in entries]
    while sum(map(len, shown)) > room and any(len(lines) > 1 for lines in shown):
        longest = max(range(len(entries)), key=lambda i: (len(shown[i]) > 1, not entries[i].result, len(shown[i])))
        shown[longest] = [entries[longest].short]
    lines = [line if len(line) <= WIDTH else line[: WIDTH - 2] + " …" for lines in shown for line in lines]
    return lines if len(lines) <= room else [*lines[: room - 1], "…"]


def _of_forward(exercise: Any) -> Iterator[str]:
    """Return the names of a module's inputs, and "input" for every input that `forward` does not name."""
    parameters = list(inspect.signature(exercise.reference.forward).parameters.values())[1:]
    return chain((each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD), repeat("input"))


def _is_right_and_changes_its_input(exercise: Any, trial: Trial, outcome: Outcome) -> bool:
    """Return whether the result is right and only an input was changed. Two equal results would then explain
    nothing."""
    return bool(outcome.changed) and same(outcome.value, trial.expected, exercise.rtol, exercise.atol)


def _pair(exercise: Any, expected: Any, got: Any, mistakes: int) -> list[Entry]:
    """Return the entries of the expected value, the answer's value, and their difference."""
    name, expected, got = _differing(exercise, expected, got)
    got_number = as_number(got) is not None and not isinstance(got, Tensor)
    if got_number and isinstance(expected, Tensor) and expected.ndim == 0:
        expected = expected.item()  # show both numbers in the same form
    digits = _digits(exercise, expected, got)
    as_known = f", the result of {'this mistake' if mistakes == 1 else 'these mistakes'}" if mistakes else ""
    both = [_entry(f"expected{name}", expected, digits, True), _entry(f"got{name}{as_known}", got, digits, True)]
    return [*both, *_first_difference(exercise, expected, got)]


def _digits(exercise: Any, expected: Any, got: Any) -> int:
    """Return enough digits to make every wrong number look wrong; the usual number for a tensor too large to print."""
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
    """Return the first differing part of a tuple with its name, the differing parts of a dictionary, or the values
    themselves."""
    if isinstance(expected, dict) and isinstance(got, dict) and expected.keys() == got.keys():
        differ = [key for key in expected if compare(expected[key], got[key], exercise.rtol, exercise.atol)]
        if differ:
            differ = differ[:1] if exercise.kind == "file" else differ  # later ones follow from the first
            return "", {key: expected[key] for key in differ}, {key: got[key] for key in differ}
    if isinstance(expected, tuple) and isinstance(got, (tuple, list)) and len(expected) == len(got):
        for i, (e, g) in enumerate(zip(expected, got)):
            if compare(e, g, exercise.rtol, exercise.atol):
                return f" {exercise.returns[i]}" if exercise.returns else f" [{i}]", e, g
    return "", expected, got


def pictures(exercise: Any, trial: Trial, outcome: Outcome) -> tuple[str, str]:
    """Return target and answer as HTML and as text, if both are matrices."""
    if outcome.failure:
        return "", ""
    _, expected, got = _differing(exercise, trial.expected, outcome.value)
    shown = expected, got, exercise.rtol, exercise.atol
    return as_html(*shown), as_text(*shown)


def _first_difference(exercise: Any, expected: Any, got: Any) -> list[Entry]:
    if not _alike_tensors(expected, got) or expected.ndim == 0:
        return []
    wrong = differences(expected, got, exercise.rtol, exercise.atol)
    if wrong.numel() == 1 or not wrong.any():
        return []
    place = tuple(wrong.nonzero()[0].tolist())
    e, g = expected[place].item(), got[place].item()
    digits = digits_apart(e, g) if isinstance(e, float) and isinstance(g, float) else DIGITS
    return [Entry([f"first difference at {list(place)}: expected {show(e, digits)}, got {show(g, digits)}"], "", True)]


def _alike_tensors(expected: Any, got: Any) -> bool:
    both = isinstance(expected, Tensor) and isinstance(got, Tensor)
    return both and expected.shape == got.shape and expected.device == got.device


def _entry(name: str, value: Any, digits: int = DIGITS, result: bool = False) -> Entry:
    return _in_lines(name, show(value, digits), show(value, digits, 0), result)


def _in_lines(name: str, text: str, short: str, result: bool = True) -> Entry:
    text = text if "\n" not in text else text.replace("\n", "\n  ")
    first, *others = short.splitlines() or [""]
    return Entry(f"{name}: {text}".splitlines(), f"{name}: {first}{' …' if others else ''}", result)
