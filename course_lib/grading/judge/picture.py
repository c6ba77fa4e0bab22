"""The target and the answer: two matrices as heat maps side by side, and as a map of signs for a terminal.

This module uses no plotting library. A PNG is a few bytes around compressed rows, and an import would delay grading.
"""

import base64
import struct
import zlib
from html import escape
from typing import Any

import torch
from torch import Tensor

from course_lib.grading.judge.compare import differences
from course_lib.grading.judge.show import number, plural

LARGEST = 64  # rows or columns
WIDTH = 320  # maximum pixels of the longer side
SIGNS = "·✗"  # right, wrong
# Light to dark, so that it is also clear in grey. The picture has its own background and suits any page.
COLOURS = torch.tensor([[247, 251, 255], [158, 202, 225], [49, 130, 189], [8, 48, 107]], dtype=torch.float64)
BLACK, WHITE, GREY = 0, 255, 128


def matrices(
    expected: Any, got: Any, rtol: float | None = None, atol: float | None = None
) -> tuple[Tensor, Tensor, Tensor, str] | None:
    """Return the two matrices, where they differ, and the name of their slice; with more axes, the first slice that
    differs.

    Return None if there is no picture: the values are not tensors of equal shape with at least two axes, or too large.
    """
    alike = isinstance(expected, Tensor) and isinstance(got, Tensor) and expected.shape == got.shape
    if not alike or expected.ndim < 2 or expected.device != got.device or expected.is_complex() or got.is_complex():
        return None
    rows, columns = expected.shape[-2:]
    if not (rows * columns > 1 and max(rows, columns) <= LARGEST):
        return None
    wrong = differences(expected, got, rtol, atol)
    if not wrong.any():
        return None
    place = tuple(wrong.nonzero()[0, :-2].tolist())
    what = f"slice [{', '.join(map(str, place))}]" if place else ""
    return expected[place].double(), got[place].double(), wrong[place], what


def as_text(expected: Any, got: Any, rtol: float | None = None, atol: float | None = None) -> str:
    """Return a line for each row with a sign for each entry, if some entries are wrong and some right."""
    found = matrices(expected, got, rtol, atol)
    if found is None or found[2].all() or len(found[2]) < 2:
        return ""
    _, _, wrong, what = found
    head = f"where you differ{f', {what}' if what else ''} ({SIGNS[0]} right, {SIGNS[1]} wrong):"
    return "\n".join([head, *("  " + " ".join(SIGNS[cell] for cell in row) for row in wrong.tolist())])


def as_html(expected: Any, got: Any, rtol: float | None = None, atol: float | None = None) -> str:
    """Return two heat maps with one scale, in which entries that differ are outlined.

    The scale is the expected matrix's range, or the range of both if the expected one is constant.
    """
    found = matrices(expected, got, rtol, atol)
    if found is None:
        return ""
    wanted, yours, wrong, what = found
    low, high = _range(wanted)
    if low == high:  # a scale of one number would hide the learner's values
        low, high = _range(torch.cat([wanted, yours]))
    shape = f"{wrong.shape[0]} × {wrong.shape[1]}"
    first = wrong.nonzero()[0].tolist()
    where = f"{plural(int(wrong.sum()), 'entry').replace('entrys', 'entries')} of {wrong.numel():,} differ"
    scale = f"from {number(low)} (light) to {number(high)} (dark)" if low < high else f"all {number(low)} where finite"
    maps = [
        ("expected", wanted, f"Heat map of the expected {shape} matrix, {scale}."),
        ("yours", yours, f"Heat map of your {shape} matrix: {where}, the first at {first}; these are outlined."),
    ]
    figures = "".join(
        f'<figure style="margin: 0;"><figcaption>{name}</figcaption><img alt="{escape(alt)}" '
        f'style="image-rendering: pixelated; max-width: none;" '
        f'src="data:image/png;base64,{base64.b64encode(_png(_cells(values, wrong, low, high))).decode()}"></figure>'
        for name, values, alt in maps
    )
    cross = "" if bool(wanted.isfinite().all() and yours.isfinite().all()) else " A cross: NaN or infinite."
    note = f"{what + ': ' if what else ''}{scale}; {where}, outlined.{cross}"
    return (
        f'<div style="display: flex; flex-wrap: wrap; gap: 16px; margin-top: 8px;">{figures}</div>'
        f'<div style="margin-top: 4px; font-size: 90%;">{escape(note)}</div>'
    )


def _range(values: Tensor) -> tuple[float, float]:
    """Return the smallest and the largest finite value; 0 and 0 if there is none."""
    finite = values[values.isfinite()]
    finite = finite if finite.numel() else torch.zeros(1)
    return finite.min().item(), finite.max().item()


def _cells(values: Tensor, wrong: Tensor, low: float, high: float) -> Tensor:
    """Return the pixels (height, width, 3): a square for each entry."""
    size = min(28, max(5, WIDTH // max(values.shape)))
    share = ((values - low) / (high - low) if high > low else (values > low).double()).nan_to_num(0.0, 1.0, 0.0)
    place = share.clamp(0, 1) * (len(COLOURS) - 1)
    step = place.floor().clamp(max=len(COLOURS) - 2).long()
    part = (place - step)[..., None]
    colours = COLOURS[step] * (1 - part) + COLOURS[step + 1] * part  # (rows, columns, 3)
    colours[~values.isfinite()] = GREY
    squares = colours[:, None, :, None].expand(-1, size, -1, size, -1).clone()  # (rows, size, columns, size, 3)
    mark = torch.full((size, size), -1.0)
    mark[[0, -1]] = mark[:, [0, -1]] = WHITE  # white outside and black inside, visible on every colour
    mark[1, 1:-1] = mark[-2, 1:-1] = mark[1:-1, 1] = mark[1:-1, -2] = BLACK
    cross = torch.eye(size, dtype=torch.bool)
    cross = cross | cross.flip(0)
    for row, column in (wrong | ~values.isfinite()).nonzero().tolist():
        square = squares[row, :, column]
        if not values[row, column].isfinite():
            square[cross] = BLACK
        if wrong[row, column]:
            square[mark >= 0] = mark[mark >= 0][:, None].to(square)
    return squares.reshape(values.shape[0] * size, values.shape[1] * size, 3).round().to(torch.uint8)


def _png(pixels: Tensor) -> bytes:
    height, width, _ = pixels.shape
    rows = torch.cat([torch.zeros(height, 1, dtype=torch.uint8), pixels.reshape(height, -1)], 1)  # 0: no filter

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # eight bits, red green blue
    body = zlib.compress(rows.cpu().numpy().tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
