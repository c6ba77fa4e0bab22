"""Live figures of chapter 5."""

import math
from collections.abc import Callable
from functools import cache

import ipywidgets as widgets
import numpy as np
import torch

from course_lib.chapters.positions import figures
from course_lib.chapters.positions.claims import similarity
from course_lib.live.attempts import attempt_numbers
from course_lib.live.figure import LiveFigure, slider
from course_lib.masks import causal_mask
from course_lib.positions import alibi_bias, apply_rotary, rotary_angles, sinusoidal_encoding

# The web edition records these figures: call -> the control whose values it records one by one.
RECORDED = {"clock_hands": "position", "rotary_pair": "t"}

FURTHEST = 100  # last position of the clocks


def clock_hands() -> LiveFigure:
    """Show a clock for each pair of features, and the row of the table that the hands form, at a chosen position."""
    tables = {d_model: sinusoidal_encoding(FURTHEST + 1, d_model).cpu().numpy() for d_model in (4, 8, 12, 16)}

    def draw(position, d_model):
        return figures.ClockHands(tables[d_model], position)

    def describe(position, d_model):
        row = tables[d_model][position, :4]
        code = ", ".join(f"{number:.2f}" for number in row + 0.0)
        return f"Position {position}, d_model {d_model}: {d_model // 2} hands. The code begins {code}."

    return LiveFigure(draw, _clock_controls(), describe)


def _clock_controls() -> dict[str, widgets.Widget]:
    return {
        "position": slider("position (tokens)", 10, 0, FURTHEST, 1),
        "d_model": slider("d_model (features)", 8, 4, 16, 4),
    }


def likeness() -> LiveFigure:
    """Show how similar the codes of two positions are, by their distance."""

    @cache
    def curve(d_model: int, furthest: int) -> np.ndarray:
        return similarity(d_model, furthest).cpu().numpy()

    def draw(d_model, furthest):
        return figures.Likeness(curve(d_model, furthest), d_model)

    def describe(d_model, furthest):
        cosines = curve(d_model, furthest)
        rises = int((np.diff(cosines) > 0).sum())
        return (
            f"d_model {d_model}: cosine {cosines[1]:.2f} at distance 1, {cosines[-1]:.2f} at {furthest}. "
            f"It rises in {rises} of {furthest} steps."
        )

    controls = {
        "d_model": widgets.SelectionSlider(options=[8, 32, 128, 512], value=128, description="d_model (features)"),
        "furthest": slider("furthest distance (tokens)", 100, 20, 1000, 20),
    }
    return LiveFigure(draw, controls, describe)


QUERY, KEY = torch.tensor([1.0, 0.0]), torch.tensor([0.6, 0.8])


def rotary_pair() -> LiveFigure:
    """Show the query and the key of one pair of features under RoPE, with sliders for their positions, and their
    score."""

    def score(t: int, s: int, angle: int) -> float:
        angles = torch.tensor([t, s])[:, None] * math.radians(angle)  # (2, 1)
        q, k = apply_rotary(torch.stack([QUERY, KEY]), angles)
        return (q @ k).item()

    def draw(t, s, angle):
        return figures.RotaryPair(QUERY.cpu().numpy(), KEY.cpu().numpy(), t, s, angle)

    def describe(t, s, angle):
        gap = f"{abs(t - s)} token{'s' * (abs(t - s) > 1)}"
        apart = "at the position of its key" if t == s else f"{gap} {'after' if t > s else 'before'} its key"
        return (
            f"Query at {t} rotated by {t * angle}°, key at {s} by {s * angle}°, {angle}° per token. "
            f"Score {score(t, s, angle):.2f}, the same for every query {apart}."
        )

    controls = {
        "t": slider("position of the query", 10, 0, 40, 1),
        "s": slider("position of the key", 4, 0, 40, 1),
        "angle": slider("rotation per token (°)", 15, 0, 60, 5),
    }
    return LiveFigure(draw, controls, describe)


def eyesight() -> LiveFigure:
    """Show how far each of eight heads sees with ALiBi if only the distance counts."""

    def measure(head: int, T: int) -> tuple[np.ndarray, np.ndarray]:
        bias = alibi_bias(8, T)[head].masked_fill(~causal_mask(T), -torch.inf)  # (T, T)
        return bias.cpu().numpy(), bias[-1].softmax(dim=-1).cpu().numpy()

    def draw(head, T):
        return figures.Eyesight(*measure(head, T), head)

    def describe(head, T):
        _, weights = measure(head, T)
        return (
            f"Head {head}: slope 1/{2 ** (head + 1)}. With equal scores, the last of {T} tokens puts "
            f"{weights[-1]:.2f} on itself, {weights[-2]:.2f} on the token before, {weights[0]:.3f} on the first."
        )

    controls = {
        "head": slider("head (0 to 7)", 2, 0, 7, 1),
        "T": slider("length (tokens)", 16, 4, 32, 1),
    }
    return LiveFigure(draw, controls, describe)


# ----------------------------------------------------------------------------------------------------------- exercises
def explore_sinusoids(function: Callable) -> LiveFigure:
    """Show the clock hands with your `sinusoidal_encoding(max_seq_len, d_model)`."""

    @cache
    def table(d_model: int) -> tuple[np.ndarray, str]:
        yours, said = attempt_numbers(function, FURTHEST + 1, d_model, shape=(FURTHEST + 1, d_model))
        if yours is None:
            return np.zeros((FURTHEST + 1, d_model)), said
        yours, right = yours.double().clamp(-9, 9), sinusoidal_encoding(FURTHEST + 1, d_model).double()
        wrong = ((yours - right).abs() > 1e-4).nonzero()
        if not len(wrong):
            return yours.cpu().numpy(), "Yours agrees with the library's, at every position."
        p, feature = wrong[0].tolist()
        numbers = f"{yours[p, feature]:.3f}, and the library has {right[p, feature]:.3f}"
        return yours.cpu().numpy(), f"First difference: position {p}, feature {feature}, where you have {numbers}."

    def draw(position, d_model):
        numbers, said = table(d_model)
        fine = "" if said.startswith("Yours agrees") else ": not the library's"
        title = f"Your hands at position {position}{fine}" if numbers.any() else "No hands to show yet"
        return figures.ClockHands(numbers, position, title)

    def describe(position, d_model):
        numbers, said = table(d_model)
        if not numbers.any():
            return said
        code = ", ".join(f"{number:.2f}" for number in numbers[position, :4] + 0.0)
        return f"Position {position}, d_model {d_model}: your code begins {code}. {said}"

    return LiveFigure(draw, _clock_controls(), describe)


def explore_rotary(function: Callable) -> LiveFigure:
    """Show the score of one query and one key at each distance, from your `apply_rotary(x, positions, theta)`."""
    distances = torch.arange(-20, 21)
    rng = torch.Generator().manual_seed(4)
    query, key = torch.randn(2, 16, generator=rng)

    def scores(rotate: Callable, t: int, d_head: int, theta: float) -> tuple[np.ndarray, str]:
        """Return the scores (41,) of the query at t with the key at t − distance."""
        both = []
        for vector, positions in ((query, torch.tensor([t])), (key, t - distances)):
            vector = vector[:d_head] / vector[:d_head].norm()
            x = vector.expand(1, 1, len(positions), d_head).clone()
            rotated, problem = attempt_numbers(rotate, x, positions, theta, shape=tuple(x.shape))
            if rotated is None:
                return np.zeros(len(distances)), problem
            both.append(rotated[0, 0].double().clamp(-1e6, 1e6))
        return (both[1] @ both[0][0]).cpu().numpy(), ""

    def library(x, positions, theta):
        return apply_rotary(x, rotary_angles(positions, x.shape[-1], theta))

    def measure(t, d_head, theta):
        yours, problem = scores(function, t, d_head, theta)
        elsewhere, problem_there = scores(function, 100, d_head, theta)
        return yours, elsewhere, scores(library, t, d_head, theta)[0], problem or problem_there

    def draw(t, d_head, theta):
        yours, elsewhere, right, problem = measure(t, d_head, theta)
        spread = np.abs(yours - elsewhere).max()
        if problem:
            title = "No scores to show yet"
        elif spread < 1e-3 < np.abs(yours - right).max():
            title = f"Your scores with the query at {t} and at 100 are the same, but they are not the library's"
        elif spread < 1e-3:
            title = f"Your scores with the query at {t} and at 100 are the same: only the distance counts"
        else:
            title = f"Your scores with the query at {t} and at 100 differ by up to {spread:.2f}: the position counts"
        return figures.RotaryScores(distances.cpu().numpy(), yours, elsewhere, right, title)

    def describe(t, d_head, theta):
        yours, _, right, problem = measure(t, d_head, theta)
        if problem:
            return problem
        here = f"Query at {t}, D = {d_head}, theta {theta:,}: the score is {yours[20]:.3f} at distance 0"
        text = f"{here}, {yours[25]:.3f} with a key 5 before, {yours[15]:.3f} with one 5 after."
        gap = np.abs(yours - right).max()
        return f"{text} {'The library agrees.' if gap < 1e-3 else f'The library differs by up to {gap:.2f}.'}"

    controls = {
        "t": slider("position of the query", 30, 20, 99, 1),
        "d_head": widgets.SelectionSlider(options=[2, 4, 8, 16], value=4, description="D (features)"),
        "theta": widgets.SelectionSlider(options=[10, 100, 10_000, 500_000], value=100, description="theta"),
    }
    return LiveFigure(draw, controls, describe)


EXPLORERS = {"positions.sinusoidal": explore_sinusoids, "positions.rotary": explore_rotary}
