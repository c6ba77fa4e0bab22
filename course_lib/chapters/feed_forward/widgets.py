"""Live figures of chapter 6."""

import copy
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor

from course_lib.chapters.feed_forward import figures
from course_lib.chapters.feed_forward.claims import (
    LOST_BELOW,
    TOLD,
    answer_chances,
    capital_questions,
    contributions,
    strongest,
)
from course_lib.feed_forward import ACTIVATIONS
from course_lib.gpt import DecoderOnly
from course_lib.live.attempts import attempt, went_wrong
from course_lib.live.figure import LiveFigure, dropdown, slider
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import CAPITALS, WordTokenizer

# The web edition records these figures: call -> the control whose values it records one by one.
RECORDED = {"piece_builder": "n_units"}


def small_example() -> tuple[Tensor, Tensor, Tensor]:
    """Return the example to do by hand, with numbers of two decimals: x (4,), W_up (4, 16), W_down (16, 4)."""
    generator = torch.Generator().manual_seed(42)
    up, down = ((torch.randn(shape, generator=generator) * 0.5).round(decimals=2) for shape in ((16, 4), (4, 16)))
    return torch.tensor([1.0, -0.5, 0.8, 0.2]), up.T, down.T


# ------------------------------------------------------------------------------------------------------------ unit map
def unit_map() -> LiveFigure:
    """Show sliders for four input features, the units of 16 that fire, and their sum."""
    x, up, down = small_example()
    names = {"relu": "ReLU", "gelu": "GELU"}

    def measure(activation: str, features: dict[str, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        scores = torch.tensor(list(features.values())) @ up  # (16,)
        hidden = ACTIVATIONS[activation](scores)
        return scores.cpu().numpy(), hidden.cpu().numpy(), (hidden @ down).cpu().numpy()

    def draw(activation, **features):
        return figures.UnitMap(*measure(activation, features))

    def describe(activation, **features):
        scores, _, output = measure(activation, features)
        fire = [str(i) for i in np.flatnonzero(scores > 0)]
        given = ", ".join(f"{value:.1f}" for value in features.values())
        added = ", ".join(f"{value + 0.0:.2f}" for value in output.round(2))
        return (
            f"Input ({given}): {len(fire)} of {len(scores)} units fire ({', '.join(fire) or 'none'}). "
            f"Output with {names[activation]}: ({added})."
        )

    controls = {f"x{i}": slider(f"feature {i}", round(x[i].item(), 1), -1.5, 1.5, 0.1) for i in range(4)}
    choices = {"ReLU": "relu", "GELU (section 6.4)": "gelu"}
    return LiveFigure(draw, controls | {"activation": dropdown("activation", choices, "relu")}, describe)


# ------------------------------------------------------------------------------------------ straight pieces that add up
def piece_builder() -> LiveFigure:
    """Show units fitted to a wave, with a slider for their number: every unit adds a straight piece."""
    x = np.linspace(0, 2 * np.pi, 241)
    target = 1.4 * np.sin(x) + 0.8 * np.sin(2.6 * x)

    @cache
    def fit(n_units: int, relu: bool) -> tuple[np.ndarray, np.ndarray, int]:
        """Return each unit's contribution, their sum, and the number of straight pieces in the sum."""
        starts = np.linspace(0, 2 * np.pi, n_units, endpoint=False)  # the point where each unit begins to fire
        scores = x - starts[:, None]  # (n_units, 241)
        hidden = np.maximum(scores, 0) if relu else scores
        features = np.vstack([hidden, np.ones_like(x)]).T  # with the output's bias
        weights = np.linalg.lstsq(features, target, rcond=None)[0]
        # A unit bends the line at its starting point, except at the left edge, where the curve begins.
        kinks = int((np.abs(weights[:-1][starts > 0]) > 1e-6).sum()) if relu else 0
        return weights[:-1, None] * hidden, features @ weights, 1 + kinks

    def draw(n_units, relu):
        shares, total, _ = fit(n_units, relu)
        return figures.StraightPieces(x, target, shares, total)

    def describe(n_units, relu):
        _, total, pieces = fit(n_units, relu)
        kind = "ReLU" if relu else "no activation"
        return (
            f"{n_units} unit{'s' * (n_units > 1)}, {kind}: {pieces} straight {'piece' if pieces == 1 else 'pieces'}, "
            f"mean error {np.abs(total - target).mean():.2f}."
        )

    controls = {
        "n_units": slider("hidden units", 4, 1, 16, 1),
        "relu": dropdown("activation", {"ReLU": True, "none": False}, True),
    }
    return LiveFigure(draw, controls, describe)


# ---------------------------------------------------------------------------------------------------- where a fact is
def fact_eraser(model: DecoderOnly, tokenizer: WordTokenizer, country: str = "france") -> LiveFigure:
    """Show all capitals, asked for with another wording, while the units that contribute most to one are removed."""
    countries = list(CAPITALS)
    contribution = contributions(model, *capital_questions(tokenizer))  # (16, layers, d_ff)
    told = capital_questions(tokenizer, TOLD)

    @cache
    def measure(chosen: int, n_removed: int) -> np.ndarray:
        return answer_chances(model, *told, strongest(contribution[chosen], n_removed)).cpu().numpy()

    def draw(country, n_removed):
        chosen = countries.index(country)
        names = [f"{name} → {capital}" for name, capital in CAPITALS.items()]
        return figures.CapitalChances(names, measure(chosen, n_removed), chosen, n_removed)

    def describe(country, n_removed):
        chosen = countries.index(country)
        chances = measure(chosen, n_removed)
        others = np.delete(chances, chosen)
        n_kept = int((others > LOST_BELOW).sum())
        kept = f"all {n_kept}" if n_kept == len(others) else f"{n_kept} of the {len(others)}"
        return (
            f"{n_removed} of {contribution[0].numel():,} units are removed, chosen for {country}: "
            f"{CAPITALS[country]} has probability {chances[chosen] + 0.0:.1f}; "
            f"{kept} other capitals stay above {LOST_BELOW}."
        )

    controls = {
        "country": dropdown("country", countries, country),
        "n_removed": slider("units removed", 96, 0, 256, 8),
    }
    return LiveFigure(draw, controls, describe)


# ----------------------------------------------------------------------------------------- driven by the learner's code
def explore_ffn(function: Callable) -> LiveFigure:
    """Show your `ffn(x, W1, b1, W2, b2, activation)` on the sixteen units of the chapter.

    The figure calls it with W2 = 1 and b2 = 0 to see its hidden units. The dotted scores are x W1, whatever your
    function does.
    """
    x, up, down = small_example()

    def yours(token: Tensor, W2: Tensor, activation: str, expected: Tensor) -> tuple[Tensor, str]:
        args = token.clone(), up.clone(), torch.zeros(16), W2.clone(), torch.zeros(len(expected))
        got, problem = attempt(function, *args, activation, shape=tuple(expected.shape))
        if got is None or got.is_complex():
            return torch.zeros_like(expected), problem or "Your function returned complex numbers."
        got = got.float().clamp(-99, 99)
        apart = (got - expected).abs()
        if apart.max() > 1e-5:
            what, worst = "Hidden unit" if len(expected) == 16 else "Feature", int(apart.argmax())
            problem = f"{what} {worst} is {got[worst]:.4f} in yours, {expected[worst]:.4f} by the formula."
        return got, problem

    def measure(activation: str, features: dict[str, float]) -> tuple[Tensor, Tensor, Tensor, str]:
        token = torch.tensor(list(features.values()))
        scores = token @ up  # (16,)
        expected = ACTIVATIONS[activation](scores)
        hidden, problem = yours(token, torch.eye(16), activation, expected)
        output, further = yours(token, down, activation, expected @ down)
        return scores, hidden, output, problem or further

    def draw(activation, **features):
        scores, hidden, output, _ = measure(activation, features)
        return figures.UnitMap(scores.cpu().numpy(), hidden.cpu().numpy(), output.cpu().numpy())

    def describe(activation, **features):
        scores, _, output, problem = measure(activation, features)
        fire = ", ".join(map(str, scores.gt(0).nonzero().flatten().tolist())) or "none"
        added = ", ".join(f"{value + 0.0:.2f}" for value in output.cpu().numpy().round(2))
        verdict = problem or "It agrees with the formula (biases 0)."
        return f"Firing: {fire}. Your output with {activation}: ({added}). {verdict}"

    controls = {f"x{i}": slider(f"feature {i}", round(x[i].item(), 1), -1.5, 1.5, 0.1) for i in range(4)}
    return LiveFigure(draw, controls | {"activation": dropdown("activation", ["relu", "gelu"], "relu")}, describe)


CANDIDATES = 128  # units passed to the learner's function: those that push a capital most


def explore_units(function: Callable) -> LiveFigure:
    """Remove units in the order in which your `top_units(model, ids, answer, candidates, k)` returns them."""
    model, tokenizer = load_pretrained("tinytown")
    found, answers = capital_questions(tokenizer)
    contribution = contributions(model, found, answers)  # (16, layers, d_ff)
    told, names = capital_questions(tokenizer, TOLD), [f"{name} → {capital}" for name, capital in CAPITALS.items()]

    @cache
    def ranking(chosen: int) -> tuple[list[tuple[int, int]], str]:
        candidates = [tuple(pair) for pair in strongest(contribution[chosen], CANDIDATES).nonzero().tolist()]
        args = copy.deepcopy(model), found[[chosen]].clone(), int(answers[chosen]), list(candidates), len(candidates)
        try:
            result = function(*args)
        except Exception as error:
            return [], went_wrong(error)
        try:
            order = [(int(layer), int(unit)) for layer, unit in result]
        except (TypeError, ValueError):
            order = []
        if sorted(order) != candidates:
            return [], f"Your function should return each of its {len(candidates)} candidates once, strongest first."
        return order, ""

    @cache
    def measure(chosen: int, n_removed: int) -> np.ndarray:
        removed = torch.zeros(contribution[chosen].shape, dtype=torch.bool)
        for layer, unit in ranking(chosen)[0][:n_removed]:
            removed[layer, unit] = True
        return answer_chances(model, *told, removed).cpu().numpy()

    def draw(country, n_removed):
        chosen = list(CAPITALS).index(country)
        return figures.CapitalChances(names, measure(chosen, n_removed), chosen, n_removed)

    def describe(country, n_removed):
        chosen = list(CAPITALS).index(country)
        chances, problem = measure(chosen, n_removed), ranking(chosen)[1]
        kept = int((np.delete(chances, chosen) > LOST_BELOW).sum())
        return problem or (
            f"The first {n_removed} units of your ranking for {country} removed: {CAPITALS[country]} has probability "
            f"{chances[chosen] + 0.0:.1f}; {kept} of the {len(names) - 1} other capitals stay above {LOST_BELOW}."
        )

    controls = {
        "country": dropdown("country", list(CAPITALS), "france"),
        "n_removed": slider("units removed", 64, 0, CANDIDATES, 8),
    }
    return LiveFigure(draw, controls, describe)


EXPLORERS = {"feed_forward.forward": explore_ffn, "feed_forward.ablate_fact": explore_units}
