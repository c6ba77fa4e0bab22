"""A live figure of chapter 18: one tensor gets a fault, and a function looks for the place where it begins."""

from collections.abc import Callable

import numpy as np
import torch

from course_lib.chapters.your_gpt.figures import Differences
from course_lib.live.attempts import went_wrong
from course_lib.live.figure import LiveFigure, slider

NAMES = ("token_embedding", "positions", "blocks.0.attention", "blocks.0", "blocks.1", "logits")
TOLERANCE = 1e-5


def fault_slider(function: Callable) -> LiveFigure:
    """Show which tensor `function(yours, theirs, tolerance)` returns, for a fault that doubles with every later
    layer."""
    rng = torch.Generator().manual_seed(0)
    theirs = {name: torch.randn(2, 8, generator=rng) for name in NAMES}
    noise = {name: 1e-7 * torch.rand(2, 8, generator=rng) for name in NAMES}

    def run(place: int, size: int) -> tuple[np.ndarray, str | None, str]:
        yours = {name: tensor + noise[name] for name, tensor in theirs.items()}
        for later, name in enumerate(NAMES[place:]):
            yours[name][0, 0] -= 10.0**size * 2**later
        largest = np.array([(yours[name] - theirs[name]).abs().max().item() for name in NAMES])
        try:
            found, by = function(yours, theirs, TOLERANCE)
            return largest, found, f"The function returns {found!r}, {float(by):.1g}."
        except Exception as error:
            return largest, None, went_wrong(error)

    def draw(place: int, size: int) -> Differences:
        largest, found, _ = run(place, size)
        return Differences(NAMES, largest, TOLERANCE, found)

    def describe(place: int, size: int) -> str:
        return f"A fault of 1e{size} is planted in {NAMES[place]}. {run(place, size)[2]}"

    controls = {
        "place": slider("tensor with the fault", 2, 0, len(NAMES) - 1, 1),
        "size": slider("size (power of 10)", -2, -7, -1, 1),
    }
    return LiveFigure(draw, controls, describe)


EXPLORERS = {"your_gpt.parity": fault_slider}
