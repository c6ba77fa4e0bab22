"""Values as text, the same on every machine and in every run, so that a notebook's output can be compared."""

import math
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.device import chosen
from course_lib.grading.exercise import Given
from course_lib.grading.judge.values import Foreign

DIGITS = 4  # significant digits of a number
MOST_DIGITS = 17  # enough to tell any two float64 apart
MOST_SHOWN = 36  # elements of a tensor that is printed in full
LONG = 60  # characters of a dictionary in one line
LONGEST = 400  # characters of any other value
MOST_MARKS = 4  # above and below one letter; Hebrew with vowel points needs three
JOINERS = "\u200c\u200d"  # invisible, but needed to spell some names and signs


def number(value: int | float, digits: int = DIGITS) -> str:
    """Return a number with four significant digits by default; an integer in full; −0 as 0."""
    if isinstance(value, int):
        return f"{value:,}"
    if math.isfinite(value) and value == int(value) and abs(value) < 1e6:
        return str(int(value))
    return f"{value:.{digits}g}"


def apart(one: int | float, other: int | float) -> tuple[str, str]:
    """Return two numbers with enough digits to see that they differ, at least four."""
    digits = digits_apart(one, other)
    return number(one, digits), number(other, digits)


def digits_apart(one: int | float, other: int | float) -> int:
    """Return the number of significant digits needed to see that two numbers differ: at least four, also for equal
    numbers."""
    return next((d for d in range(DIGITS, MOST_DIGITS + 1) if number(one, d) != number(other, d)), DIGITS)


def shape_of(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def printable(text: str, most: int = 200) -> str:
    """Return arbitrary text made safe for one line, with at most `most` characters; " …" marks a cut.

    Line breaks and tabs become a space. The sign � replaces characters that could affect a terminal or the text around
    them: control characters, changes of writing direction, halves of a character.
    """
    text = without_towers(text)
    text = text if len(text) <= most else text[: most - 2] + " …"
    return "".join(map(_printable, text))


def without_towers(text: str) -> str:
    """Return text with at most `MOST_MARKS` marks per letter: more would cover the lines above and below."""
    if text.isascii():
        return text
    kept, marks = [], 0
    for character in text:
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        if marks <= MOST_MARKS:
            kept.append(character)
    return "".join(kept)


def _printable(character: str) -> str:
    category = unicodedata.category(character)
    if character in "\t\n\r" or category in ("Zl", "Zp"):
        return " "
    return "�" if category in ("Cc", "Cf", "Cs") and character not in JOINERS else character


def show(value: Any, digits: int = DIGITS, most: int = MOST_SHOWN) -> str:
    """Return a value in a few lines. A tensor shows dtype, shape and its numbers, or their range if there are more than
    `most`."""
    if isinstance(value, Tensor):
        return _show_tensor(value, digits, most)
    if isinstance(value, bool) or value is None or isinstance(value, complex):
        return repr(value)
    if isinstance(value, (int, float)):
        return number(value, digits)
    if isinstance(value, Foreign):
        return f"(a value of type {value.type_name})"
    if isinstance(value, nn.Module):
        return f"(a {type(value).__name__}{_unusual_dtype(value)})"
    if isinstance(value, Given):
        return f"{value}{_unusual_dtype(value)}"
    if isinstance(value, torch.Generator):
        return "(a seeded generator)"
    if isinstance(value, (tuple, list)) and any(isinstance(part, Tensor) for part in value):
        return "\n".join(f"[{i}] {show(part, digits, most)}" for i, part in enumerate(value))
    if isinstance(value, dict) and (
        any(isinstance(part, Tensor) for part in value.values()) or _is_long(value, digits)
    ):
        return "\n".join(f"{key!r}: {show(part, digits, most)}" for key, part in value.items())
    if callable(value):
        return f"(the function {getattr(value, '__name__', type(value).__name__)})"
    text = without_addresses(_plain(value, digits))
    return text if len(text) <= LONGEST else text[:LONGEST] + " …"


def _unusual_dtype(value: Any) -> str:
    """Return ", in float64" if the value contains tensors of that dtype; "" for float32, which is usual."""
    dtypes = sorted({_dtype(tensor) for tensor in _floating(value)} - {"float32"})
    untold = [dtype for dtype in dtypes if dtype not in str(value)]
    return f", in {' and '.join(untold)}" if untold else ""


def _floating(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor) and value.is_floating_point():
        yield value
    elif isinstance(value, nn.Module):
        yield from _floating(value.state_dict())
    elif isinstance(value, Given):
        yield from _floating(value.data if value.weights is None else value.weights)
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _floating(part)


def _is_long(value: dict, digits: int) -> bool:
    """Return whether a dictionary is too long for one line."""
    return len(value) > 1 and len(_plain(value, digits)) > LONG


def _plain(value: Any, digits: int) -> str:
    """Return a value as Python writes it, with rounded numbers, and dtype and shape in place of each tensor."""
    if isinstance(value, Tensor):
        return _head(value)
    if type(value) is float:
        return number(value, digits)
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {_plain(part, digits)}" for key, part in value.items()) + "}"
    if type(value) is list:
        return f"[{', '.join(_plain(part, digits) for part in value)}]"
    if type(value) is tuple:
        return f"({', '.join(_plain(part, digits) for part in value)}{',' if len(value) == 1 else ''})"
    return repr(value)


def without_addresses(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _head(tensor: Tensor) -> str:
    return f"{_dtype(tensor)} {shape_of(tensor)}"


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _show_tensor(tensor: Tensor, digits: int, most: int) -> str:
    head = _head(tensor)
    if tensor.device.type != chosen().type:  # otherwise it is where everything is
        head += f" on {tensor.device.type}"
    if tensor.device.type == "meta" or tensor.numel() == 0:
        return head
    if tensor.numel() > most and tensor.ndim:
        if not tensor.is_floating_point():
            return head
        finite = tensor[tensor.isfinite()].double()
        oddities = [f"{int(mask.sum()):,} {name}" for name, mask in _oddities(tensor) if mask.any()]
        low, high = (number(x) for x in (finite.min().item(), finite.max().item())) if finite.numel() else ("", "")
        spread = [f"all {low}" if low == high else f"from {low} to {high}"] if low else []
        return f"{head}, {', '.join(spread + oddities)}"
    cells = [_cell(x, digits) for x in tensor.flatten().tolist()]
    width = max(map(len, cells))
    cells = [cell.rjust(width) for cell in cells]
    if tensor.ndim == 0:
        return f"{head}  {cells[0]}"
    return f"{head}\n" + "\n".join(_rows(cells, list(tensor.shape)))


def _cell(x: Any, digits: int) -> str:
    return str(x) if isinstance(x, (bool, complex)) else number(x, digits)


def _rows(cells: list[str], shape: list[int]) -> list[str]:
    """Return nested brackets, one line for each row of the last axis."""
    if len(shape) == 1:
        return [f"[{'  '.join(cells)}]"]
    step = len(cells) // shape[0]
    lines: list[str] = []
    for i in range(shape[0]):
        lines.extend(_rows(cells[i * step : (i + 1) * step], shape[1:]))
    lines = [" " + line for line in lines]
    lines[0] = "[" + lines[0][1:]
    lines[-1] += "]"
    return lines


def _oddities(tensor: Tensor) -> list[tuple[str, Tensor]]:
    return [("NaN", tensor.isnan()), ("inf", tensor == math.inf), ("−inf", tensor == -math.inf)]
