"""Live figures of chapter 3."""

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.attention import scaled_dot_product_attention
from course_lib.chapters.masks import figures
from course_lib.heads import MultiHeadAttention
from course_lib.live.attempts import attempt, attempt_numbers
from course_lib.live.figure import LiveFigure, dropdown, slider
from course_lib.live.shared_figures import Patterns
from course_lib.masks import causal_mask, combine, padding_mask, prefix_mask

# The web edition records these figures: call -> the control whose values it records one by one.
RECORDED = {"leak_test": "position"}

BERT, GPT, T5 = "BERT, bidirectional", "GPT, causal", "T5, source then target"


# ------------------------------------------------------------------------------------------------------------- patterns
def _of(asked: int, most: int) -> str:
    return str(asked) if asked <= most else f"{most} (no more than fit)"


def mask_patterns() -> LiveFigure:
    """Show three families' masks side by side, with sliders for the length, T5's source length, and padding at the
    end."""

    def build(length: int, prefix: int, padding: int) -> dict[str, np.ndarray]:
        real = padding_mask([max(1, length - padding)], length)[0, 0]  # (1, T): the same keys for every query
        everything = torch.ones(length, length, dtype=torch.bool)
        masks = {BERT: everything, GPT: causal_mask(length), T5: prefix_mask(min(prefix, length), length)}
        return {name: combine(mask, real).cpu().numpy() for name, mask in masks.items()}

    def draw(pattern, length, prefix, padding):
        return Patterns(build(length, prefix, padding), pattern, {T5: min(prefix, length)})

    def describe(pattern, length, prefix, padding):
        mask = build(length, prefix, padding)[pattern]
        return (
            f"{pattern}; {length} tokens, source {_of(prefix, length)}, padding {_of(padding, length - 1)}. "
            f"Token 0 sees {mask[0].sum()}, token {length // 2} sees {mask[length // 2].sum()}, "
            f"the last sees {mask[-1].sum()}; {mask.sum()} pairs."
        )

    controls = {
        "pattern": dropdown("count the pairs of", [BERT, GPT, T5], GPT),
        "length": slider("length (tokens)", 8, 2, 16, 1),
        "prefix": slider("T5's source (tokens)", 3, 0, 16, 1),
        "padding": slider("padding at the end", 0, 0, 8, 1),
    }
    return LiveFigure(draw, controls, describe)


# ----------------------------------------------------------------------------------------------------------- one row
BEFORE, AFTER, NONE = "hidden before softmax", "zeroed after softmax", "not masked"


def masked_row(scores: np.ndarray, tokens: Sequence[str]) -> LiveFigure:
    """Show one row of scores (T, T) under a causal mask: hidden before the softmax, zeroed after it, or neither."""
    scores_ = torch.tensor(scores)

    def measure(query: int, how: str) -> tuple[np.ndarray, np.ndarray]:
        hidden = ~causal_mask(len(scores_))[query]  # (S,)
        row = scores_[query].masked_fill(hidden, -torch.inf) if how == BEFORE else scores_[query]
        weights = row.softmax(dim=-1)
        weights = weights.masked_fill(hidden, 0.0) if how == AFTER else weights
        return (hidden.cpu().numpy() if how == BEFORE else np.zeros(len(scores_), dtype=bool)), weights.cpu().numpy()

    def draw(query, how):
        return figures.MaskedRow(scores[query], *measure(query, how), query, how, tokens)

    def describe(query, how):
        weights = measure(query, how)[1]
        shares = ", ".join(f"{weight:.3f}" for weight in weights)
        return f"“{tokens[query]}”, {how}: weights {shares}; sum {weights.sum():.3f}."

    controls = {
        "query": dropdown("query", {f"{t}: {token}": t for t, token in enumerate(tokens)}, 2),
        "how": dropdown("later tokens are", [BEFORE, AFTER, NONE], AFTER),
    }
    return LiveFigure(draw, controls, describe)


# ------------------------------------------------------------------------------------------------------------ leak test
POSITIONS = 10
LEAK_MASKS = {  # name -> (T, T), True = may attend
    "no mask": torch.ones(POSITIONS, POSITIONS, dtype=torch.bool),
    "causal mask": causal_mask(POSITIONS),
    "off by one": torch.ones(POSITIONS, POSITIONS, dtype=torch.bool).tril(diagonal=1),
    "prefix of 4": prefix_mask(4, POSITIONS),
}


class TwoLayers(nn.Module):
    """Two untrained layers of attention, which are enough to show where information can flow."""

    def __init__(self, d_model: int = 16):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(MultiHeadAttention(d_model, 2) for _ in range(2))
        for parameter in self.parameters():  # large enough to make the flow visible
            nn.init.normal_(parameter, std=0.25)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, mask=mask)
        return x


def leak_test() -> LiveFigure:
    """Show which outputs move when one token changes, under four masks."""
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they are
        model = TwoLayers()
        x, other = torch.randn(1, POSITIONS, 16), torch.randn(16)

    @cache
    def moved(mask: str, position: int) -> np.ndarray:
        changed = x.clone()
        changed[0, position] = other
        with torch.no_grad():
            difference = model(changed, LEAK_MASKS[mask]) - model(x, LEAK_MASKS[mask])
        return difference[0].norm(dim=-1).cpu().numpy()  # (T,)

    def draw(mask, position):
        return figures.LeakBars(moved(mask, position), position, mask.capitalize())

    def describe(mask, position):
        changes = moved(mask, position)
        positions = [str(t) for t in range(POSITIONS) if changes[t] > 1e-5]
        return f"{mask.capitalize()}, token {position} changed: the outputs at {', '.join(positions)} move."

    controls = {
        "mask": dropdown("mask", list(LEAK_MASKS), "off by one"),
        "position": slider("changed token (position)", 6, 0, POSITIONS - 1, 1),
    }
    return LiveFigure(draw, controls, describe)


# ----------------------------------------------------------------------------------------------------------- exercises
def explore_causal(function: Callable) -> LiveFigure:
    """Draw your `causal_mask(T, S)` next to the library's, as the T bottom rows of an S × S square."""

    def compare(T: int, cached: int) -> tuple[np.ndarray | None, np.ndarray, str]:
        S = T + cached
        right = causal_mask(T, S)
        yours, problem = attempt(function, *((T, S) if cached else (T,)), shape=(T, S))
        if yours is None:
            return None, right.cpu().numpy(), problem
        if yours.dtype != torch.bool:
            return None, right.cpu().numpy(), f"Your mask has dtype {str(yours.dtype)[6:]}; expected bool."
        wrong = (yours != right).nonzero().tolist()
        if not wrong:
            return yours.cpu().numpy(), right.cpu().numpy(), "The library agrees."
        t, s = wrong[0]
        said = "lets it look" if yours[t, s] else "hides it"
        return yours.cpu().numpy(), right.cpu().numpy(), f"First difference: query {t}, key {s}, where yours {said}."

    def draw(T, cached):
        yours, right, _ = compare(T, cached)
        squares = {}
        for name, mask in {"yours": yours, "the library's": right}.items():
            squares[name] = np.zeros((T + cached, T + cached), dtype=bool)
            if mask is not None:
                squares[name][cached:] = mask
        pairs = "Nothing to show yet" if yours is None else f"Yours lets {yours.sum()} of {yours.size} pairs attend"
        title = f"{pairs}; the library {right.sum()}"
        return Patterns(squares, "yours", dict.fromkeys(squares, cached), title)

    def describe(T, cached):
        yours, _, said = compare(T, cached)
        if yours is None:
            return said
        tokens = f"{T} new token{'s' if T > 1 else ''}, {cached} cached"
        seen = f"your first query sees {yours[0].sum()}, your last {yours[-1].sum()} of {T + cached} keys"
        return f"{tokens}: {seen}. {said}"

    controls = {
        "T": slider("T (new tokens)", 5, 1, 10, 1),
        "cached": slider("S − T (cached tokens)", 3, 0, 6, 1),
    }
    return LiveFigure(draw, controls, describe)


def explore_attention(function: Callable) -> LiveFigure:
    """Show which outputs of your `causal_self_attention` move when one token changes."""
    d_model, rng = 12, torch.Generator().manual_seed(0)
    x, other = torch.randn(1, POSITIONS, d_model, generator=rng), torch.randn(d_model, generator=rng)
    W = [torch.randn(d_model, d_model, generator=rng) / 2 for _ in range(4)]

    def library(n_heads: int) -> Tensor:
        W_Q, W_K, W_V, W_O = W
        q, k, v = ((x @ w).unflatten(-1, (n_heads, -1)).transpose(1, 2) for w in (W_Q, W_K, W_V))
        return scaled_dot_product_attention(q, k, v, causal_mask(POSITIONS))[0].transpose(1, 2).flatten(2) @ W_O

    @cache
    def moved(position: int, n_heads: int) -> tuple[np.ndarray, str]:
        changed = x.clone()
        changed[0, position] = other
        outputs = []
        for text in (x, changed):
            y, problem = attempt_numbers(function, text.clone(), *(w.clone() for w in W), n_heads, shape=tuple(x.shape))
            if y is None:
                return np.zeros(POSITIONS), problem
            outputs.append(y.double().clamp(-1e6, 1e6))
        gap = (outputs[0] - library(n_heads)).abs().max().item()
        verdict = "The library agrees on every output." if gap < 1e-3 else f"The library differs by up to {gap:.2f}."
        return (outputs[1] - outputs[0])[0].norm(dim=-1).cpu().numpy(), verdict

    def draw(position, n_heads):
        changes, said = moved(position, n_heads)
        title = "" if said.startswith("The library") else "Nothing to show yet"
        return figures.LeakBars(changes, position, "Your attention", title)

    def describe(position, n_heads):
        changes, said = moved(position, n_heads)
        if not said.startswith("The library"):
            return said
        positions = ", ".join(str(t) for t in range(POSITIONS) if changes[t] > 1e-5) or "no position"
        heads = f"{n_heads} head{'s' if n_heads > 1 else ''}"
        return f"{heads}, token {position} changed: outputs move at {positions}. {said}"

    controls = {
        "position": slider("changed token (position)", 6, 0, POSITIONS - 1, 1),
        "n_heads": dropdown("heads", [1, 2, 3, 4, 6, 12], 3),
    }
    return LiveFigure(draw, controls, describe)


EXPLORERS = {"masks.causal": explore_causal, "masks.masked_attention": explore_attention}
