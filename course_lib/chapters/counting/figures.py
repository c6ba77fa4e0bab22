"""Figures of chapter 10: where the parameters are, how much memory they take, and what one token costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter

from course_lib.config import TransformerConfig
from course_lib.counting import ParameterCount, count_parameters, forward_flops, inference_memory, training_memory
from course_lib.feed_forward import GATED
from course_lib.live.drawing import Drawing, new_figure
from course_lib.live.numbers import percent, short
from course_lib.live.palette import (
    BLUE,
    FONT,
    GREEN,
    GREY,
    INK,
    LIGHT,
    ORANGE,
    PURPLE,
    SKY,
    TITLE,
    WIDE,
    YELLOW,
    ink_on,
)

COLOURS = {
    "token embedding": SKY,
    "position embedding": PURPLE,
    "segment embedding": GREY,
    "attention": ORANGE,
    "feed-forward": GREEN,
    "norms": INK,
    "output head": BLUE,
}
PHRASE = {"feed-forward": "the feed-forward layers", "attention": "attention", "norms": "the norms"}
BRIEF = {"token embedding": "tokens", "position embedding": "positions", "feed-forward": "FFN", "output head": "head"}
MEMORY_COLOURS = {
    "weights": SKY,
    "key-value cache": YELLOW,
    "gradients": ORANGE,
    "AdamW moments": GREEN,
    "float32 master copy": LIGHT,
}
SMALL = FONT - 1
TABLES = {"token embedding": "token table", "position embedding": "position table"}


def shown_as(component: str) -> str:
    """Return the chapter's name for a component of the library's counts."""
    return TABLES.get(component, component)


def exact(value: int | float) -> str:
    """Return every digit of a number, for lines with enough room: 124,439,808."""
    return f"{value:,}" if abs(value) < 1e15 else f"{value:.3g}"


def largest(count: ParameterCount) -> str:
    """Return the component with the most parameters."""
    return max(count.by_component, key=lambda name: count.by_component[name])


# ----------------------------------------------------------------------------------------------------- one model, whole
RUNS = ("run, 16 bits", "train, 32 bits", "train, mixed")


def memory_rows(config: TransformerConfig) -> dict[str, Mapping[str, int]]:
    """Return the three bars of `parameter_bill`: name -> bytes by item. Running needs a cache of max_seq_len tokens."""
    counts = (
        inference_memory(config, T=config.max_seq_len),
        training_memory(config),
        training_memory(config, mixed_precision=True),
    )
    return {name: count.by_component for name, count in zip(RUNS, counts)}


@dataclass
class ParameterBill(Drawing):
    """A decoder's parameters as one bar with a label for each component; below it the memory to run and to train it,
    and the FLOPs of a token."""

    config: TransformerConfig

    def build(self) -> Figure:
        figure, top = new_figure(WIDE, 3.5)
        figure.set_layout_engine(None)  # fixed positions: nothing jumps when a slider moves
        top.set_position((0.03, 0.47, 0.94, 0.44))
        bottom = figure.add_axes((0.15, 0.09, 0.73, 0.27))
        self.parameters, self.memory = LabelledBar(top), StackedRows(bottom, RUNS)
        return figure

    def move(self) -> None:
        count, rows = count_parameters(self.config), memory_rows(self.config)
        biggest = largest(count)
        self.parameters.move(count)
        self.parameters.title.set_text(
            f"{short(count.total)} parameters, {percent(count.by_component[biggest] / count.total)} of them in "
            + PHRASE.get(biggest, f"the {shown_as(biggest)}")
        )
        self.memory.move(list(rows.values()))
        run, train = (sum(rows[name].values()) for name in RUNS[:2])
        T = self.config.max_seq_len
        bytes_needed = f"{short(run, 'B')} to run it, {short(train, 'B')} to train it"
        self.memory.title.set_text(f"{bytes_needed}, without activations")
        self.memory.note.set_text(
            f"One token of a context of {T:,} costs {short(forward_flops(self.config, T) / T, 'FLOP')} forward"
        )


class LabelledBar:
    """Draw one bar from 0 to 1 with evenly spaced labels below it. A line ties each label to its segment, so none
    overlap."""

    def __init__(self, axes: Axes):
        axes.set_axis_off()
        axes.set(xlim=(0, 1), ylim=(0, 1))
        self.bars, self.lines, self.labels = {}, {}, {}
        for name, colour in COLOURS.items():
            self.bars[name] = axes.barh(0.85, 0, 0.28, color=colour)[0]
            self.lines[name] = axes.plot([0, 0], [0, 0], color=colour, linewidth=1.5)[0]
            self.labels[name] = axes.text(0, 0.46, "", ha="center", va="top", fontsize=SMALL, linespacing=1.0)
        self.title = axes.set_title("", loc="left", fontsize=TITLE)

    def move(self, count: ParameterCount) -> None:
        shown = [name for name, value in count.by_component.items() if value or name != "segment embedding"]
        start = 0.0
        for name, value in count.by_component.items():
            bar, line, label = self.bars[name], self.lines[name], self.labels[name]
            share = value / count.total
            bar.set(x=start, width=share)
            here = (shown.index(name) + 0.5) / len(shown) if name in shown else 0.0
            line.set_data([start + share / 2] * 2 + [here], [0.70, 0.64, 0.48])
            line.set_visible(value > 0)
            words = shown_as(name).replace(" ", "\n")
            text = f"{short(value)}, {percent(share)}\n{words}" if value else f"none\n{words}"
            label.set(x=here, visible=name in shown, text=text, color=INK if value else GREY)
            start += share


class StackedRows:
    """Draw a stacked bar for each name, a label in each part that is wide enough, and the total at its end."""

    def __init__(self, axes: Axes, names: Sequence[str]):
        axes.spines[:].set_visible(False)
        axes.set(ylim=(len(names) - 0.5, -0.5), xlim=(0, 1))
        axes.set_yticks(range(len(names)), names, fontsize=SMALL)
        axes.tick_params(length=0)
        axes.xaxis.set_major_locator(NullLocator())
        rows, items = range(len(names)), MEMORY_COLOURS.items()
        edge: dict[str, Any] = {"edgecolor": INK, "linewidth": 0.5}
        self.bars = [{item: axes.barh(row, 0, 0.7, color=colour, **edge)[0] for item, colour in items} for row in rows]
        middle: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": SMALL}
        self.labels = [{item: axes.text(0, row, "", **middle) for item in MEMORY_COLOURS} for row in rows]
        self.totals = [axes.text(0, row, "", va="center", fontsize=SMALL, weight="bold") for row in rows]
        self.title = axes.set_title("", loc="left", fontsize=TITLE, x=-0.155)
        self.note = axes.text(-0.155, -0.06, "", transform=axes.transAxes, va="top", fontsize=FONT)

    def move(self, rows: Sequence[Mapping[str, int]]) -> None:
        longest = max(sum(row.values()) for row in rows)
        for bars, labels, total, row in zip(self.bars, self.labels, self.totals, rows):
            start = 0.0
            for item in MEMORY_COLOURS:
                width = row.get(item, 0) / longest
                bars[item].set(x=start, width=width)
                text = item.removeprefix("AdamW ").removeprefix("float32 ")
                labels[item].set(x=start + width / 2, text=text if width > 0.013 * len(text) else "")
                start += width
            cache = row.get("key-value cache", 0)
            unlabelled = cache and not labels["key-value cache"].get_text()
            said = f", {short(cache, 'B')} of it key-value cache" if unlabelled else ""
            total.set(x=start + 0.01, text=short(sum(row.values()), "B") + said)


# ----------------------------------------------------------------------------------------- do embeddings hold the most?
WIDTHS = [round(64 * 2 ** (step / 8)) for step in range(57)]  # d_model from 64 to 8,192


def gpt_like(vocab_size: int, n_layers: int, d_model: int, tie_weights: bool) -> TransformerConfig:
    """Return a GPT of these sizes: learned positions for 512 tokens, biases, d_ff = 4 · d_model."""
    return TransformerConfig(
        vocab_size=vocab_size,
        d_model=d_model,
        n_heads=1,
        n_layers=n_layers,
        max_seq_len=512,
        tie_weights=tie_weights,
    )


def three_shares(count: ParameterCount) -> dict[str, float]:
    """Return the fractions of the token tables (with the output head), of attention and of the feed-forward layers."""
    parts = count.by_component
    tables = parts["token embedding"] + parts["output head"]
    of = {"token tables": tables, "attention": parts["attention"], "feed-forward": parts["feed-forward"]}
    return {name: value / count.total for name, value in of.items()}


@dataclass
class EmbeddingShare(Drawing):
    """Draw the fractions of tables, attention and feed-forward layers over d_model, with the chosen d_model marked."""

    vocab_size: int
    n_layers: int
    d_model: int
    tie_weights: bool

    def build(self) -> Figure:
        figure, axes = new_figure(WIDE, 3.6)
        figure.set_layout_engine(None)
        axes.set_position((0.09, 0.16, 0.66, 0.68))
        axes.set(xscale="log", xlim=(WIDTHS[0], WIDTHS[-1]), ylim=(0, 1), xlabel="d_model (features of a token)")
        axes.set_ylabel("fraction of all parameters")
        ticks = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
        axes.xaxis.set_major_locator(FixedLocator(ticks))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticklabels([f"{tick:,}" for tick in ticks])
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.axhline(0.5, color=GREY, linewidth=1, linestyle=":")
        axes.text(WIDTHS[-1], 0.51, "half ", color=GREY, ha="right", fontsize=SMALL)
        styles = {"token tables": (BLUE, "-"), "attention": (ORANGE, "--"), "feed-forward": (GREEN, "-.")}
        side: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "clip_on": False}
        self.lines, self.dots, self.labels, self.leaders, self.values = {}, {}, {}, {}, {}
        white: dict[str, Any] = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.85}
        for name, (colour, style) in styles.items():
            self.lines[name] = axes.plot(WIDTHS, [0] * len(WIDTHS), style, color=colour, linewidth=2.2)[0]
            self.dots[name] = axes.plot([0], [0], "o", color=colour, markersize=8, clip_on=False)[0]
            self.labels[name] = axes.text(1.04, 0, "", color=INK, va="center", fontsize=FONT, **side)
            self.leaders[name] = axes.plot([1, 1.035], [0, 0], color=colour, linewidth=1.2, **side)[0]
            self.values[name] = axes.text(0, 0, "", color=INK, va="center", fontsize=SMALL, bbox=white, zorder=5)
        self.here = axes.axvline(self.d_model, color=INK, linewidth=1)
        self.headline = axes.set_title("", loc="left", fontsize=TITLE, x=-0.09, pad=12)
        return figure

    def move(self) -> None:
        here, *curves = (
            three_shares(count_parameters(gpt_like(self.vocab_size, self.n_layers, width, self.tie_weights)))
            for width in (self.d_model, *WIDTHS)
        )
        at_the_end = curves[-1]
        heights = dict(zip(at_the_end, spread(list(at_the_end.values()), 0.16)))
        at_the_mark = dict(zip(here, spread(list(here.values()), 0.11)))
        right = self.d_model > WIDTHS[len(WIDTHS) // 2]  # then the numbers are to the left of the mark
        for name in self.lines:
            self.lines[name].set_ydata([shares[name] for shares in curves])
            self.dots[name].set_data([self.d_model], [here[name]])
            self.labels[name].set_text(name)
            self.values[name].set(text=percent(here[name]), x=self.d_model * (0.94 if right else 1.065))
            self.values[name].set(y=at_the_mark[name], ha="right" if right else "left")
            self.labels[name].set_y(heights[name])
            self.leaders[name].set_ydata([at_the_end[name], heights[name]])  # from the end of the curve to its label
        self.here.set_xdata([self.d_model, self.d_model])
        self.headline.set_text(f"At d_model = {self.d_model:,} {verdict(here)}")


def verdict(shares: Mapping[str, float]) -> str:
    """Return both readings of "embeddings hold the most parameters": more than half, or more than any other part."""
    tables = shares["token tables"]
    size = f"the token tables make up {percent(tables)}"
    if tables > 0.5:
        return f"{size}: most of the model"
    if tables == max(shares.values()):
        return f"{size}: the largest part, but less than half"
    return f"{size}: less than the {max(shares, key=lambda name: shares[name])} layers"


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Return heights of labels in (0, 1), in the same order and moved so that neighbours are at least `gap` apart."""
    order = sorted(range(len(heights)), key=lambda i: heights[i])
    moved = [min(max(height, gap / 2), 1 - gap / 2) for height in heights]
    for low, high in pairwise(order):
        moved[high] = max(moved[high], moved[low] + gap)
    ceiling = 1 - gap / 2
    for i in reversed(order):
        moved[i] = min(moved[i], ceiling)
        ceiling = moved[i] - gap
    return moved


# ------------------------------------------------------------------------------------------------------- several models
def model_shares(counts: Mapping[str, ParameterCount]) -> Figure:
    """Draw one bar of the same length for each model, divided into its components, with the total at its end."""
    figure, axes = new_figure(WIDE, 0.9 + 0.48 * len(counts))
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set(xlim=(0, 1.13), ylim=(len(counts) - 0.5, -0.5))
    axes.set_yticks(range(len(counts)), counts, fontsize=FONT)
    axes.tick_params(length=0)
    axes.xaxis.set_major_locator(NullLocator())
    for row, count in enumerate(counts.values()):
        start = 0.0
        for name, value in count.by_component.items():
            share = value / count.total
            axes.barh(row, share, 0.78, left=start, color=COLOURS[name])
            text = next((text for text in _texts(name, share) if 0.0122 * len(text) < share), "")
            ink = ink_on(COLOURS[name])
            axes.text(start + share / 2, row, text, ha="center", va="center", fontsize=SMALL, color=ink)
            start += share
        axes.text(1.01, row, short(count.total), va="center", fontsize=FONT, weight="bold")
    (name, first), *_, (last_name, last) = counts.items()
    of_first, of_last = (percent(three_shares(count)["token tables"]) for count in (first, last))
    axes.set_title(f"The token tables make up {of_first} of {name} and {of_last} of {last_name}", loc="left")
    return figure


def model_shares_in_words(counts: Mapping[str, ParameterCount]) -> str:
    """Return a description of `model_shares` for readers who do not see it."""
    totals = ", ".join(f"{short(count.total)} in {name}" for name, count in counts.items())
    parts = {name: three_shares(count) for name, count in counts.items()}
    lists = {
        part: ", ".join(f"{percent(shares[part])} of {name}" for name, shares in parts.items())
        for part in ("token tables", "feed-forward")
    }
    return (
        f"The parts of several models as bars of equal length. The totals are {totals}. The token tables, with the "
        f"output head, make up {lists['token tables']}; the feed-forward layers {lists['feed-forward']}."
    )


def towers(models: Mapping[str, TransformerConfig]) -> Figure:
    """Draw each model as a tower, from its token embedding up to its last norm. The height of each part is its fraction
    of the parameters. All towers have the same height, and the number of parameters is above them."""
    figure, axes = new_figure(WIDE, 5.6)
    axes.set(xlim=(0, len(models)), ylim=(-0.03, 1.14), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    in_blocks = [f"{percent(_tower(axes, x + 0.04, *model))} of {model[0]}" for x, model in enumerate(models.items())]
    axes.set_title(f"The blocks make up {' and '.join(in_blocks)}", loc="left", fontsize=TITLE)
    return figure


def _tower(axes: Axes, x: float, name: str, config: TransformerConfig) -> float:
    """Draw one model at x, and return the fraction of its blocks."""
    count, d, L, width = count_parameters(config), config.d_model, config.n_layers, 0.36
    part = {item: value / count.total for item, value in count.by_component.items()}
    tables, block = part["token embedding"] + part["position embedding"], (part["attention"] + part["feed-forward"]) / L
    levels = [("token embedding", part["token embedding"]), ("position embedding", part["position embedding"])]
    levels += [("attention", part["attention"] / L), ("feed-forward", part["feed-forward"] / L)] * L
    floor = 0.0
    for item, share in [*levels, ("norms", part["norms"])]:
        axes.bar(x, share, width, floor, align="edge", color=COLOURS[item], edgecolor="white", linewidth=0.6)
        floor += share
    matrices = 3 if config.activation in GATED else 2
    first, later = part["attention"] / (2 * L), block - part["feed-forward"] / (2 * L)  # heights within a block
    for item, height, text in (
        ("token embedding", part["token embedding"] / 2, f"{config.vocab_size:,} × {d}"),
        ("attention", tables + L // 4 * block + first, f"{L} × 4 × ({d} × {d})"),
        ("feed-forward", tables + (3 * L // 4 - 1) * block + later, f"{L} × {matrices} × ({d} × {config.d_ff})"),
    ):
        said = f"{shown_as(item)}\n{text}\n{short(count.by_component[item])}, {percent(part[item])}"
        axes.plot([x + width, x + width + 0.03], [height] * 2, color=INK, linewidth=1)
        axes.text(x + width + 0.04, height, said, va="center", fontsize=SMALL, color=INK)
    axes.text(x, 1.075, f"{name}: {short(count.total)}", va="center", fontsize=TITLE, weight="bold")
    axes.text(x, 1.028, f"{L} blocks, d_model = {d}", va="center", fontsize=SMALL)
    return L * block


def _texts(name: str, share: float) -> list[str]:
    """Return the texts that a segment can have, from the longest to the shortest."""
    number = percent(share)
    return [f"{shown_as(name)} {number}", f"{BRIEF.get(name, name)} {number}", number]


# ---------------------------------------------------------------------------------------------------- an itemised count
@dataclass
class ItemisedBill(Drawing):
    """Draw every component with its exact count and the total below; `yours` adds a bar for another total."""

    count: ParameterCount
    title: str
    yours: int | float | None = None

    def build(self) -> Figure:
        names = [*COLOURS, "total", "your count"]
        figure, axes = new_figure(WIDE, 3.9)
        figure.set_layout_engine(None)
        axes.set_position((0.2, 0.04, 0.78, 0.84))
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set(xlim=(0, 1.45), ylim=(len(names) - 0.5, -0.5))
        axes.tick_params(length=0)
        axes.xaxis.set_major_locator(NullLocator())
        colours = [*COLOURS.values(), INK, GREY]
        self.axes = axes
        self.bars = axes.barh(range(len(names)), [0] * len(names), 0.7, color=colours)
        self.texts = [axes.text(0, row, "", va="center", fontsize=FONT) for row in range(len(names))]
        self.headline = axes.set_title("", loc="left", fontsize=TITLE, x=-0.245)
        return figure

    def move(self) -> None:
        names = [*map(shown_as, COLOURS), "total", "your count"]
        values = [*self.count.by_component.values(), self.count.total, self.yours]
        for row, value in enumerate(values):
            share = 0 if value is None else value / self.count.total
            width = min(max(share, 0), 1.15)  # a bar that is far too long ends at the edge; its number is exact
            self.bars[row].set_width(width)
            self.texts[row].set_x(width + 0.01)
            self.texts[row].set_text(_amount(value, share if row < len(COLOURS) else None))
        labels = names if self.yours is not None else [*names[:-1], ""]
        self.axes.set_yticks(range(len(names)), labels, fontsize=FONT)
        self.headline.set_text(self.title)


def _amount(value: int | float | None, share: float | None) -> str:
    if value is None:
        return ""
    if share is None:
        return exact(value)
    return f"{value:,}  ({percent(share)})" if value else "none"
