"""A picture of the first view of the glass model, for a page that cannot run it, such as a notebook opened the next
day.

`look` computes the numbers with the library, and `draw` draws them. On the left are every head's map, each layer's
prediction and the next words. On the right is the open part or, if no part is open, the ribbons of flow.js.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from torch import Tensor

from course_lib.gpt import DecoderOnly
from course_lib.live.drawing import LetterCanvas
from course_lib.live.numbers import share
from course_lib.live.palette import BLUE, DIVERGING, FONT, GREY, INK, LIGHT, RED, WIDE
from course_lib.trace import evaluating, trace

HIGH = 5.2  # inches
MOST_BARS = 8
FAINTEST, MOST, WIDEST = 0.15, 400, 5.5  # ribbons: the smallest share, the largest number, the greatest width in points
HIDDEN = "#dddddd"  # what the mask hides


@dataclass
class Seen:
    """The results of one forward pass, for the last position.

    Fields:
        words: the words at the T positions.
        weights, written: (L, H, T, T), for each head: the weights, and the norm of the vector it writes, weight · |W_O
            value|.
        added: (L,), the norm of the feed-forward network's vector.
        hidden: (L, d_ff).
        said: (L, V), the probabilities read after each layer; the last row is the model's own.
        embedded: name of a row -> (d_model,).
    """

    words: list[str]
    weights: np.ndarray
    written: np.ndarray
    added: np.ndarray
    hidden: np.ndarray
    said: np.ndarray
    embedded: dict[str, np.ndarray]


def look(model: DecoderOnly, ids: Int[Tensor, "1 T"], words: list[str]) -> Seen:
    """Run a model once and keep what the picture shows."""
    with evaluating(model):
        with trace(model) as seen:
            model(ids)
        blocks = [f"blocks.{i}" for i in range(model.config.n_layers)]
        weights = torch.stack([seen[f"{block}.attention.weights"][0] for block in blocks])  # (L, H, T, T)
        said = [model.output(model.final_norm(seen[block][0, -1])).softmax(-1) for block in blocks]
        lengths = [
            _lengths(module.attention.out_proj.weight, seen[f"{block}.attention.value"][0], weights.shape[1])
            for module, block in zip(model.blocks, blocks)
        ]
        token = seen["token_embedding"][0, -1]
        rows = {f"“{words[-1]}”": token}
        if model.positions is not None:
            together = model.embed(ids, None, None)[0, -1]
            rows |= {f"position {len(words) - 1}": together - token, "together": together}
        return Seen(
            words,
            _numbers(weights),
            _numbers(weights * torch.stack(lengths)[:, :, None]),
            _numbers(torch.stack([seen[f"{block}.feed_forward"][0, -1].norm() for block in blocks])),
            _numbers(torch.stack([seen[f"{block}.feed_forward.hidden"][0, -1] for block in blocks])),
            _numbers(torch.stack(said)),
            {name: _numbers(row) for name, row in rows.items()},
        )


def _lengths(out: Tensor, value: Tensor, n_heads: int) -> Tensor:
    """Return |W_O value| of each head and token, (H, T). out: (d_model, H · D); value: (H_kv, T, D)."""
    value = value.repeat_interleave(n_heads // len(value), dim=0)  # (H, T, D)
    return torch.einsum("htd,ohd->hto", value, out.unflatten(1, (n_heads, -1))).norm(dim=-1)


def _numbers(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


def _opened(part: str | None) -> tuple[str, int, int]:
    """Return the kind of the open part, its layer and its head: "2.head.3" -> ("head", 2, 3). Without one, return
    "ribbons"."""
    if part in (None, "next"):
        return "ribbons", 0, 0
    if part == "embedding":
        return "embedding", 0, 0
    layer, kind, *head = str(part).split(".")
    return kind, int(layer), int(head[0]) if head else 0


def in_a_sentence(seen: Seen, name: Callable[[int], str], part: str | None) -> str:
    """Return a sentence about the open part and its largest value; for the ribbons, about the widest one to the last
    token.

    name: returns the name of a token id.
    """
    words, (kind, layer, head) = [_cut(word) for word in seen.words], _opened(part)
    if kind == "ribbons":
        lengths = seen.written[:, :, -1]  # (L, H, T)
        layer, head, source = map(int, np.unravel_index(lengths.argmax(), lengths.shape))
        return f"Most comes to “{words[-1]}” from “{words[source]}”: layer {layer}, head {head}"
    if kind == "embedding":
        return f"The vector of “{words[-1]}” before layer 0"
    values = {"head": seen.weights[layer, head, -1], "lens": seen.said[layer], "feed_forward": seen.hidden[layer]}[kind]
    most = int(values.argmax())
    if kind == "head":
        return f"Layer {layer}, head {head}: “{words[-1]}” looks most at “{words[most]}”, {share(values[most])}"
    if kind == "lens":
        return f"After layer {layer} it would say “{_cut(name(most))}”, {share(values[most])}"
    return f"Layer {layer}: unit {most} fires most, {values[most]:.2f}"


def draw(seen: Seen, name: Callable[[int], str], part: str | None, colours: Sequence[str]) -> Figure:
    """Draw the results of `look`.

    Args:
        name: returns the name of a token id.
        part: the open part; None for the ribbons.
        colours: of the heads.
    """
    figure = Figure(figsize=(WIDE, HIGH), facecolor="white")
    LetterCanvas(figure)
    kind, layer, head = _opened(part)
    figure.text(0.01, 0.985, "Heads, and what each layer would say", fontsize=FONT, va="top", color=INK)
    _maps(figure.add_axes((0.08, 0.46, 0.22, 0.42)), seen, name, part, colours if kind == "ribbons" else None)
    figure.text(0.01, 0.385, "The next token", fontsize=FONT, va="top", color=INK)
    _bars(figure.add_axes((0.125, 0.02, 0.255, 0.31)), *_most(seen.said[-1], name), percent=True)
    figure.text(0.40, 0.985, in_a_sentence(seen, name, part), fontsize=FONT, va="top", color=INK)
    if kind == "head":
        _map(figure.add_axes((0.55, 0.02, 0.44, 0.77)), seen, layer, head)
    elif kind == "embedding":
        _rows(figure.add_axes((0.57, 0.25, 0.41, 0.6)), seen.embedded)
    elif kind == "ribbons":
        _ribbons(figure.add_axes((0.55, 0.02, 0.44, 0.88)), seen, colours)
    else:
        lens = kind == "lens"
        shown = _most(seen.said[layer], name) if lens else _most(seen.hidden[layer], lambda unit: f"unit {unit}")
        _bars(figure.add_axes((0.56, 0.1, 0.42, 0.8)), *shown, percent=lens)
    return figure


def _most(values: np.ndarray, name: Callable[[int], str]) -> tuple[list[str], np.ndarray]:
    """Return the names of the largest values, and the values."""
    order = np.argsort(-values, kind="stable")[:MOST_BARS]
    return [_cut(name(int(i))) for i in order], values[order]


def _cut(word: str) -> str:
    return word if len(word) <= 11 else f"{word[:10]}…"


def _bars(axes: Axes, names: list[str], values: np.ndarray, percent: bool) -> None:
    most = 1 if percent else max(values.max(), 1e-9)
    places = range(len(names))
    axes.barh(places, [most] * len(names), height=0.62, color="#f2f2f2")
    axes.barh(places, np.clip(values, 0, None), height=0.62, color=BLUE)
    for place, name, value in zip(places, names, values):
        axes.text(-0.03 * most, place, name, ha="right", va="center", fontsize=FONT - 2, color=INK)
        said = share(value) if percent else f"{value:.2f}"
        axes.text(1.38 * most, place, said, ha="right", va="center", fontsize=FONT - 2, color=INK)
    axes.set(xlim=(0, 1.38 * most), ylim=(MOST_BARS - 0.5, -0.5))
    axes.axis("off")


def _maps(axes: Axes, seen: Seen, name: Callable[[int], str], part: str | None, colours: Sequence[str] | None) -> None:
    """Draw every head's map, one row for each layer, as one image, and next to it the top word after each layer.

    colours: of the heads, if the ribbons use them.
    """
    L, H, T, _ = seen.weights.shape
    gap = max(1, T // 8)
    step = T + gap
    image = np.full((L * step, H * step), np.nan)
    for layer in range(L):
        for head in range(H):
            top, left = layer * step, head * step
            image[top : top + T, left : left + T] = seen.weights[layer, head]
            opened = part == f"{layer}.head.{head}"
            axes.add_patch(
                Rectangle(
                    (left - 0.5, top - 0.5),
                    T,
                    T,
                    fill=False,
                    edgecolor=RED if opened else LIGHT,
                    linewidth=2 if opened else 0.8,
                    zorder=3 if opened else 2,
                )
            )
    axes.imshow(image, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    size = min(FONT - 2, 0.42 * HIGH * 72 / L)
    for layer, said in enumerate(seen.said):
        best = int(said.argmax())
        here = layer * step + T / 2
        bold = "bold" if part == f"{layer}.lens" else "normal"
        number = f"layer {layer}" if L <= 12 else f"{layer}"
        axes.text(-0.4 * gap - 1, here, number, ha="right", va="center", fontsize=size, color=GREY)
        axes.text(
            H * step,
            here,
            f"{_cut(name(best))} {share(said[best])}",
            va="center",
            fontsize=size,
            color=INK,
            weight=bold,
        )
    axes.text(-0.03, 1.02, "head", ha="right", va="bottom", fontsize=FONT - 2, color=GREY, transform=axes.transAxes)
    for head in range(H if H <= 12 else 0):
        x, above = head * step + T / 2, axes.get_xaxis_transform()
        axes.text(x, 1.02, f"{head}", ha="center", va="bottom", fontsize=FONT - 2, color=GREY, transform=above)
        if colours and H <= 6:
            axes.plot([head * step + T / 8], [1.055], "s", color=colours[head], transform=above, clip_on=False)
    axes.axis("off")


def _map(axes: Axes, seen: Seen, layer: int, head: int) -> None:
    """Draw one head's map with its words, and frame the row of the last token."""
    T = len(seen.words)
    shown = np.ma.masked_array(seen.weights[layer, head], np.triu(np.ones((T, T), bool), 1))
    axes.imshow(shown, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    axes.set_facecolor(HIDDEN)
    _words(axes, seen.words, "y", HIGH * 0.77)
    _words(axes, seen.words, "x", WIDE * 0.44)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, colors=INK, axis="both")
    for label in axes.get_xticklabels():
        label.set_rotation(90)
    axes.spines[:].set_visible(False)
    axes.add_patch(Rectangle((-0.5, T - 1.5), T, 1, fill=False, edgecolor=RED, linewidth=1.5, clip_on=False))


def _words(axes: Axes, words: list[str], along: Literal["x", "y"], inches: float) -> None:
    """Write the words along an axis in a size that fits; if that would be too small to read, leave some out."""
    every = max(1, -(-6 * len(words) // int(72 * inches)))  # at least 6 points for each
    places = list(range(len(words) - 1, -1, -every))
    size = min(FONT - 2, 0.8 * 72 * inches * every / len(words))
    axes.set(**{f"{along}ticks": places, f"{along}ticklabels": [_cut(words[t]) for t in places]})
    axes.tick_params(axis=along, labelsize=size)


def _rows(axes: Axes, rows: dict[str, np.ndarray]) -> None:
    """Draw vectors as strips of colour, blue below zero and red above."""
    table = np.stack(list(rows.values()))
    most = np.abs(table).max()
    axes.imshow(table, cmap=DIVERGING, vmin=-most, vmax=most, aspect="auto", interpolation="nearest")
    for line in range(1, len(rows)):
        axes.axhline(line - 0.5, color="white", linewidth=6)
    axes.set_yticks(range(len(rows)), list(rows), fontsize=FONT - 2)
    axes.set_xticks([0, table.shape[1] - 1])
    axes.set_xlabel(f"its {table.shape[1]} numbers: blue below zero, red above", fontsize=FONT - 2)
    axes.tick_params(length=0, colors=INK, labelsize=FONT - 2)
    axes.spines[:].set_visible(False)


def ways(seen: Seen, faintest: float = FAINTEST) -> list[tuple[int, int, int, int, float]]:
    """Return the ribbons to the last position, faintest first: (layer, head, source, target, importance), as in
    flow.js.

    The importance of the chosen token is 1. The importance of a source is its target's, times the width of its ribbon
    relative to the target's widest. A token passes its own importance on to itself, as the residual stream does.
    """
    found, reached = [], {len(seen.words) - 1: 1.0}
    for layer in range(len(seen.written) - 1, -1, -1):
        before = dict(reached)
        for target, importance in reached.items():
            lengths = seen.written[layer, :, target, : target + 1]  # (H, target + 1)
            passed = importance * lengths / max(lengths.max(), 1e-9)
            for head, source in np.argwhere(passed >= faintest).tolist():
                found.append((layer, head, source, target, float(passed[head, source])))
                before[source] = max(before.get(source, 0), found[-1][-1])
        reached = before
    return sorted(found, key=lambda way: way[-1])


def _ribbons(axes: Axes, seen: Seen, colours: Sequence[str]) -> None:
    """Draw the ways to the last token from left to right: a ribbon for each head and source, wide if the head writes
    much."""
    L, T = len(seen.written), len(seen.words)
    drawn = ways(seen)[-MOST:]
    longest = max([1e-9, float(seen.added.max()), *(float(seen.written[i, h, t, s]) for i, h, s, t, _ in drawn)])
    for layer, head, source, target, importance in drawn:
        middle = layer + 0.5
        path = Path(
            [(layer, source), (middle, source), (middle, target), (layer + 1, target)],
            [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4],
        )
        width = max(0.5, WIDEST * seen.written[layer, head, target, source] / longest)
        axes.add_patch(
            PathPatch(
                path,
                fill=False,
                edgecolor=colours[head],
                linewidth=width,
                alpha=0.25 + 0.6 * importance,
                capstyle="butt",
            )
        )
    for layer in range(L):
        axes.plot([layer + 0.9], [T - 1], "o", color=GREY, markersize=max(1.0, WIDEST * seen.added[layer] / longest))
        number = f"layer {layer}" if L <= 6 else f"{layer}"
        axes.text(layer + 0.5, T - 0.1, number, ha="center", va="top", fontsize=FONT - 2, color=GREY)
    places = {place for layer, _, source, target, _ in drawn for place in ((layer, source), (layer + 1, target))}
    axes.plot(*zip(*sorted(places)), "o", color=INK, markersize=3)
    _words(axes, seen.words, "y", HIGH * 0.88 * 0.93)
    axes.tick_params(length=0, colors=INK)
    axes.set(xlim=(-0.05, L + 0.05), ylim=(T + 0.8, -0.6), xticks=[])
    axes.spines[:].set_visible(False)
