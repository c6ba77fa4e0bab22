"""Live figures of chapter 2."""

import math
from collections.abc import Callable
from functools import cache

import ipywidgets as widgets
import numpy as np
import torch
from torch import Tensor

from course_lib.attention import scaled_dot_product_attention
from course_lib.chapters.attention import figures
from course_lib.gpt import DecoderOnly
from course_lib.live.attempts import went_wrong
from course_lib.live.figure import LiveFigure, dropdown, slider
from course_lib.live.shared_figures import WeightBars
from course_lib.masks import causal_mask
from course_lib.tinytown import WordTokenizer

# The web edition records these figures: call -> the control whose values it records one by one.
RECORDED = {
    "soft_dictionary": "angle",
    "saturation_sliders": "d_k",
    "head_viewer": ("query", 'model, tokenizer = load_pretrained("tinytown"); layer, head = 2, 3'),
}

# Thermometers on the shore of a round lake: direction in degrees, anticlockwise from east, and temperature in °C.
STATIONS = {"east": (0, 20.0), "north": (90, 14.0), "west": (180, 18.0), "south": (270, 26.0)}

# Four tokens, few enough to do on paper; the values are the corners of a square.
Q = torch.tensor([[1, 0, 1, 0], [0.5, 0.5, 0, 1], [0, 1, 0.5, 0.5], [1, 1, 0, 0]])
K = torch.tensor([[1, 0, 0.5, 0.5], [0, 1, 0, 1], [0.5, 0.5, 1, 0], [0, 0, 1, 1]])
V = torch.tensor([[4.0, 0], [0, 4], [4, 4], [0, 0]])
TOKENS = ["token 0", "token 1", "token 2", "token 3"]

D_KS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
N_QUERIES = 1000


# ---------------------------------------------------------------------------------------------------- a soft dictionary
def soft_dictionary() -> LiveFigure:
    """Show a lake with four thermometers. You choose a direction, and the look-up always has an answer."""
    names = list(STATIONS)
    key_angles, values = zip(*STATIONS.values())

    def look_up(angle: float, sharpness: float) -> np.ndarray:
        scores = torch.tensor(
            [math.cos(math.radians(angle - key)) for key in key_angles]
        )  # query · key, both of length 1
        return (sharpness * scores).softmax(dim=-1).cpu().numpy()

    def draw(angle, sharpness):
        return figures.SoftLookup(angle, key_angles, names, values, look_up(angle, sharpness))

    def describe(angle, sharpness):
        weights = look_up(angle, sharpness)
        shares = ", ".join(f"{name} {weight:.2f}" for name, weight in zip(names, weights))
        return (
            f"Query at {angle}°, sharpness {sharpness:g}: weights {shares}; answer {weights @ np.array(values):.1f} °C."
        )

    controls = {
        "angle": slider("direction of the query (°)", 30, 0, 355, 5),
        "sharpness": slider("sharpness (× score)", 1.0, 0.0, 50.0, 0.5),
    }
    return LiveFigure(draw, controls, describe)


# ---------------------------------------------------------------------------------------- one query, from scores to mix
def walk_through(function: Callable | None = None) -> LiveFigure:
    """Show four queries and four keys, one query at a time: scores, weights, weighted average.

    Args:
        function: your own attention, (q, k, v, mask=None) -> (output, weights); outlines show the library's result.
    """

    def measure(query: int, hide_later: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, str]:
        mask = causal_mask(len(TOKENS)) if hide_later else None
        scores = Q @ K.T / math.sqrt(Q.shape[-1])
        scores = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        right_output, right = scaled_dot_product_attention(Q, K, V, mask)
        if function is None:
            output, weights, problem = right_output, right, ""
        else:
            output, weights, problem = _try_attention(function, mask)
        return (
            scores[query].cpu().numpy(),
            weights[query].cpu().numpy(),
            output[query].cpu().numpy(),
            right[query].cpu().numpy(),
            problem,
        )

    def draw(query, hide_later):
        scores, weights, output, right, _ = measure(query, hide_later)
        expected = None if function is None else right
        return figures.OneQuery(TOKENS, query, scores, weights, V.cpu().numpy(), output, expected)

    def describe(query, hide_later):
        _, weights, output, right, problem = measure(query, hide_later)
        if problem:
            return problem
        shares = ", ".join(f"{weight:.3f}" for weight in weights)
        result = f"sum {weights.sum():.2f}; output ({output[0]:.2f}, {output[1]:.2f})"
        text = f"Query {TOKENS[query]}: weights {shares}, {result}."
        if function is None:
            return text
        if np.allclose(weights, right, atol=1e-4) and np.allclose(output, right @ V.cpu().numpy(), atol=1e-4):
            return f"{text} Yours agrees with the library (outlines) for this query."
        return f"{text} The library (outlines) has {', '.join(f'{weight:.3f}' for weight in right)}."

    controls = {
        "query": dropdown("query", {token: i for i, token in enumerate(TOKENS)}, 0),
        "hide_later": widgets.Checkbox(value=False, description="hide later tokens (a mask, chapter 3)", indent=False),
    }
    return LiveFigure(draw, controls, describe)


def _try_attention(function: Callable, mask: Tensor | None) -> tuple[Tensor, Tensor, str]:
    """Return (output, weights, what went wrong), with NaN for a result that cannot be drawn."""
    nothing = torch.full((4, 2), torch.nan), torch.full((4, 4), torch.nan)
    try:
        result = function(Q.clone(), K.clone(), V.clone(), mask)
    except Exception as error:
        return *nothing, went_wrong(error)
    if not isinstance(result, tuple) or len(result) != 2 or not all(isinstance(part, Tensor) for part in result):
        return *nothing, f"Your function should return (output, weights), two tensors. It returned {_kind(result)}."
    output, weights = (part.detach().float() for part in result)
    if output.shape != V.shape or weights.shape != (4, 4):
        shapes = f"output {tuple(output.shape)} and weights {tuple(weights.shape)}"
        return (
            *nothing,
            f"For q and k (4, 4) and v (4, 2), output should be (4, 2) and weights (4, 4). Yours: {shapes}.",
        )
    if not (output.isfinite().all() and weights.isfinite().all()):
        return output, weights, "Your result holds NaN or infinity: look for 0 / 0, or for exp of a large number."
    return output, weights, ""


def _kind(result: object) -> str:
    return f"{len(result)} parts" if isinstance(result, tuple) else f"one {type(result).__name__}"


# ------------------------------------------------------------------------------------------------------------- why √d_k
def _drawn(n_queries: int, n_keys: int) -> tuple[Tensor, Tensor]:
    """Return random queries and keys with 1024 features of unit variance; a smaller d_k uses the first of them."""
    rng = torch.Generator().manual_seed(3)
    return torch.randn(n_queries, D_KS[-1], generator=rng), torch.randn(n_keys, D_KS[-1], generator=rng)


def saturation_sliders() -> LiveFigure:
    """Show how d_k and the division by √d_k change a typical query's weights, their entropy, and the slope p (1 − p).

    The query is the one whose sorted weights are nearest to the mean over all queries, with and without the division
    together. So both settings show the same query.
    """
    queries, keys = _drawn(N_QUERIES, 8)

    def weigh(d_k: int, scaled: bool) -> Tensor:
        scores = queries[:, :d_k] @ keys[:, :d_k].T  # (N_QUERIES, 8)
        p = (scores / math.sqrt(d_k) if scaled else scores).softmax(dim=-1)
        return p.sort(dim=-1, descending=True).values

    @cache
    def typical(d_k: int) -> int:
        both = [weigh(d_k, scaled) for scaled in (False, True)]
        return int(sum((p - p.mean(dim=0)).norm(dim=-1) for p in both).argmin())

    def draw(d_k, scaled):
        p = weigh(d_k, scaled)
        return figures.Saturation(p[typical(d_k)].cpu().numpy(), (p * (1 - p)).mean().item(), d_k, scaled)

    def describe(d_k, scaled):
        p = weigh(d_k, scaled)
        query = p[typical(d_k)]
        mean_entropy = -torch.xlogy(p, p).sum(dim=-1).mean().item()
        how = "divided by √d_k" if scaled else "not divided"
        one = f"largest weight {query.max():.2f}, entropy {figures.entropy(query.cpu().numpy()):.2f} nats"
        return (
            f"d_k = {d_k}, scores {how}. A typical query: {one}. "
            f"Means over {N_QUERIES:,} queries: entropy {mean_entropy:.2f} nats, "
            f"p(1 − p) {(p * (1 - p)).mean():.4f} (it can be at most 0.25)."
        )

    controls = {
        "d_k": widgets.SelectionSlider(options=D_KS, value=64, description="d_k"),
        "scaled": widgets.Checkbox(value=False, description="divide the scores by √d_k", indent=False),
    }
    return LiveFigure(draw, controls, describe)


def explore_entropy(function: Callable) -> LiveFigure:
    """Draw your `attention_entropy(scores, d_k, scaled)` over d_k, for 200 random queries."""
    queries, keys = _drawn(200, 64)

    @cache
    def measure(n_keys: int) -> tuple[np.ndarray, np.ndarray, str]:
        curves, nothing = [], np.full(len(D_KS), np.nan)
        for scaled in (True, False):
            curve = []
            for d_k in D_KS:
                scores = queries[:, :d_k] @ keys[:n_keys, :d_k].T  # (200, n_keys)
                try:
                    entropies = function(scores, d_k, scaled)
                except Exception as error:
                    return nothing, nothing, went_wrong(error)
                if not isinstance(entropies, Tensor) or entropies.shape != (200,):
                    got = tuple(entropies.shape) if isinstance(entropies, Tensor) else type(entropies).__name__
                    problem = f"Scores (200, {n_keys}) should give entropies (200,), one per query. Yours gave {got}."
                    return nothing, nothing, problem
                curve.append(entropies.detach().float().mean().item())
            curves.append(np.array(curve))
        return curves[0], curves[1], ""

    def draw(d_k, n_keys):
        scaled, unscaled, problem = measure(n_keys)
        here = D_KS.index(d_k)
        title = f"Your entropies at d_k = {d_k}: {scaled[here]:.2f} nats scaled, {unscaled[here]:.2f} not scaled"
        return figures.EntropyCurve(D_KS, scaled, unscaled, n_keys, d_k, "No entropies to show" if problem else title)

    def describe(d_k, n_keys):
        scaled, unscaled, problem = measure(n_keys)
        if problem:
            return problem
        here, most = D_KS.index(d_k), math.log(n_keys)
        text = f"d_k = {d_k}, {n_keys} keys: {scaled[here]:.2f} nats scaled, {unscaled[here]:.2f} not scaled; "
        text += f"the largest possible entropy is ln {n_keys} = {most:.2f}."
        both = np.concatenate([scaled, unscaled])
        if np.isnan(both).any():
            return f"{text} Yours is NaN at some d_k: a weight of exactly 0 gives 0 · ln 0."
        if both.max() > most + 1e-3:
            return f"{text} Yours is larger at some d_k: is it in nats?"
        if both.min() < -1e-6:
            return f"{text} An entropy is never negative."
        return text

    controls = {
        "d_k": widgets.SelectionSlider(options=D_KS, value=64, description="d_k"),
        "n_keys": slider("number of keys", 16, 2, 64, 1),
    }
    return LiveFigure(draw, controls, describe)


# -------------------------------------------------------------------------------------------------------------- softmax
def explore_softmax(function: Callable) -> LiveFigure:
    """Show your `softmax(x, dim)` on four scores; a slider makes them as large as 10,000."""
    pattern = torch.tensor([1.0, 0.9, 0.5, -1.0])

    def measure(power: float) -> tuple[list[str], np.ndarray, str]:
        scores = pattern * 10**power
        labels = [f"score {score:,.1f}" for score in scores.tolist()]
        nothing = np.full(4, np.nan)
        try:
            weights = function(scores.clone(), 0)
        except Exception as error:
            return labels, nothing, went_wrong(error)
        if not isinstance(weights, Tensor) or weights.shape != (4,):
            got = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
            return labels, nothing, f"Four scores should give four weights, shape (4,). Your function returned {got}."
        weights = weights.detach().float().cpu().numpy()
        if np.isnan(weights).any():
            return (
                labels,
                weights,
                f"NaN at scores up to {scores.max():,.0f}: exp overflows above 88, and inf / inf is not a number.",
            )
        if abs(weights.sum() - 1) > 1e-4:
            return labels, weights, f"Your weights sum to {weights.sum():.3f}; they should sum to exactly 1."
        return labels, weights, ""

    def title(weights, problem):
        return (
            "No weights to show" if problem and np.isnan(weights).any() else f"The largest score gets {weights[0]:.2f}"
        )

    def draw(power):
        labels, weights, problem = measure(power)
        return WeightBars(labels, weights, title(weights, problem))

    def describe(power):
        _, weights, problem = measure(power)
        return (
            problem or f"Weights {', '.join(f'{weight:.3f}' for weight in weights)}; they sum to {weights.sum():.3f}."
        )

    return LiveFigure(draw, {"power": slider("scores up to 10 to the power", 0.0, -1.0, 4.0, 0.25)}, describe)


# ------------------------------------------------------------------------------------------------------- a trained head
def head_viewer(model: DecoderOnly, tokenizer: WordTokenizer, text: str, layer: int = 0, head: int = 0) -> LiveFigure:
    """Show the attention weights of every head of a trained model for one text, at first the last token's weights.

    Args:
        text: the beginning of a story, without `<bos>`, which is added.
        layer, head: the ones shown first, counted from 0.
    """
    ids = tokenizer.encode(text, end=False)
    tokens = [tokenizer.tokens[i] for i in ids]
    layers = [weights[0].cpu().numpy() for weights in model.attention_weights(torch.tensor([ids]))]  # (H, T, T) each

    def draw(layer, head, query):
        return figures.AttentionMap(layers[layer][head], tokens, query, f"layer {layer}, head {head}")

    def describe(layer, head, query):
        row = layers[layer][head][query]
        top = "; ".join(f"“{tokens[i]}” ({i}) {row[i]:.2f}" for i in (-row).argsort(kind="stable")[:3])
        return f"Layer {layer}, head {head}: “{tokens[query]}” (position {query}) attends most to {top}."

    controls = {
        "layer": dropdown("layer", list(range(len(layers))), layer),
        "head": dropdown("head", list(range(len(layers[0]))), head),
        "query": dropdown("query", {f"{i}: {token}": i for i, token in enumerate(tokens)}, len(tokens) - 1),
    }
    return LiveFigure(draw, controls, describe)


EXPLORERS = {
    "attention.scaled_dot_product": walk_through,
    "attention.softmax": explore_softmax,
    "attention.saturation": explore_entropy,
}
