"""Live figures of chapter 0: reading a story along with the model, and the map of an entire decoder."""

import html
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace

import ipywidgets as widgets
import torch
from torch import nn

from course_lib.chapters.start_here import figures
from course_lib.chapters.start_here.figures import Part
from course_lib.course.contents import BY_SLUG, CHAPTERS
from course_lib.course.files import COURSE
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.live.figure import LiveFigure, dropdown, show, slider
from course_lib.live.page import publish
from course_lib.live.palette import INK, ORANGE, SKY
from course_lib.sampling import sample_next_token
from course_lib.tinytown import EOS, Tinytown, WordTokenizer, join_words, split_words

# The web edition records these figures: call -> the control whose values it records one by one.
RECORDED = {"read_along": "n"}

N_WORDS = 6  # number of bars


# -------------------------------------------------------------------------------------------------------- the next word
def read_along(model: DecoderOnly, tokenizer: WordTokenizer, stories: Mapping[str, str], start: int = 1) -> LiveFigure:
    """Show a slider over the words of a story, and the model's next words with the exact probabilities.

    Args:
        stories: name -> a Tinytown story; all stories have the same number of words.
        start: the number of words that are read at first.

    Errors: ValueError if a text is not a Tinytown story.
    """
    town = Tinytown()
    words = {name: split_words(story) for name, story in stories.items()}
    expected, exact = {}, {}
    for name, story in stories.items():
        town.parse(story)  # raises an error for an impossible story
        with evaluating(model):
            logits = model(torch.tensor([tokenizer.encode(story)[:-1]]))  # (1, 1 + words, V)
        expected[name] = logits[0].softmax(dim=-1)
        exact[name] = [town.next_word(" ".join(words[name][:n])) for n in range(len(words[name]) + 1)]

    def look(n, name):
        probabilities, truth = expected[name][n], exact[name][n]
        best = probabilities.topk(N_WORDS).indices.tolist()
        told = [tokenizer.tokens[i] for i in best]
        return told, probabilities[best].tolist(), [truth.get(word, 0.0) for word in told]

    def draw(n, name):
        told, model_says, truth = look(n, name)
        lead = join_words(words[name][max(0, n - 5) : n]).lstrip(" .,")
        title = f"After “{'… ' if n > 5 else ''}{lead}” the model expects “{_shown(told[0])}” ({model_says[0]:.2f})"
        return figures.NextWords([_shown(word) for word in told], model_says, truth, title)

    def describe(n, name):
        told, model_says, truth = look(n, name)
        came = [*words[name], EOS][n]
        chance = expected[name][n][tokenizer.id(came)].item()
        surprise = f"a surprise of {abs(math.log(chance)):.2f} nats"
        favourite = f"The model gives “{_shown(told[0])}” a probability of {model_says[0]:.2f} (exact: {truth[0]:.2f})"
        if came == told[0]:
            return f"{favourite}, and this word comes next: {surprise}."
        second = f"But “{_shown(came)}” comes next, with probability {chance:.2f} (exact: {exact[name][n][came]:.2f})"
        return f"{favourite}. {second}: {surprise}."

    def also(n, name):
        return f"Read so far: {join_words(words[name][:n])} ▁"

    longest = min(len(story) for story in words.values())
    controls = {
        "n": slider("words read", start, 1, longest, 1),
        "name": dropdown("the story in which", list(stories), next(iter(stories))),
    }
    return LiveFigure(draw, controls, describe, also)


def _shown(word: str) -> str:
    return "(end of story)" if word == EOS else word


# -------------------------------------------------------------------------------------------------------------- the map
NOTEBOOKS = COURSE / "notebooks"

# name, what the part does, dimension letters of its output, slug of its chapter, position on the map (see Part)
PARTS = (
    (
        "text to ids",
        "Cuts the text into words and replaces each by its number in the vocabulary of {V} tokens.",
        "B, T",
        "embeddings",
        "alone",
    ),
    (
        "token embedding",
        "Replaces each id by its row of a table: {d_model} learned numbers.",
        "B, T, d_model",
        "embeddings",
        "alone",
    ),
    (
        "positions",
        "Adds a vector for the token's position: “dog bites man” is not “man bites dog”.",
        "B, T, d_model",
        "positions",
        "adds",
    ),
    (
        "residual stream",
        "One vector per token, from the embedding to the end. The parts read it and add to it.",
        "B, T, d_model",
        "blocks",
        "stream",
    ),
    (
        "norm 1",
        "Brings each token's vector to a steady size before attention reads it.",
        "B, T, d_model",
        "normalization",
        "reads",
    ),
    (
        "attention",
        "Lets each token look at itself and at earlier tokens, and fetch what it needs. No other part passes "
        "information between tokens.",
        "B, T, d_model",
        "attention",
        "adds",
    ),
    (
        "norm 2",
        "Brings each token's vector to a steady size before the feed-forward network reads it.",
        "B, T, d_model",
        "normalization",
        "reads",
    ),
    (
        "feed-forward",
        "Works on each token separately: each of {d_ff} hidden units may add something to the vector.",
        "B, T, d_model",
        "feed_forward",
        "adds",
    ),
    (
        "final norm",
        "Brings the finished vectors to a steady size.",
        "B, T, d_model",
        "normalization",
        "alone",
    ),
    (
        "output",
        "Multiplies each vector by {V} rows, one per token of the vocabulary. The products are the logits, the scores "
        "of the possible next tokens.{tied}",
        "B, T, V",
        "gpt",
        "alone",
    ),
    (
        "last logits",
        "Keeps only the scores at the last token: the tokens that follow the others are known.",
        "B, V",
        "gpt",
        "alone",
    ),
    (
        "sampling",
        "Turns the scores into probabilities and picks one token at random. The text grows by this token, and the "
        "model runs again.",
        "B,",
        "sampling",
        "alone",
    ),
)
TIED = " The rows are the token embedding's: one table with two uses."
IN_BLOCKS = {"norm 1": "norm1", "attention": "attention", "norm 2": "norm2", "feed-forward": "feed_forward"}


def parts_of(model: DecoderOnly, tokenizer: WordTokenizer, text: str) -> list[Part]:
    """Return every part of a decoder on the way from a text to its next token.

    Shapes are taken from the outputs of the modules while the model reads `text`. Parameters are counted in the modules
    of all blocks. A tensor that two modules share counts for the first.
    """
    modules: dict[str, list[nn.Module]] = {
        "token embedding": [model.token_embedding],
        "positions": [model.get_submodule("positions")],
    }
    modules |= {name: [getattr(block, own) for block in model.blocks] for name, own in IN_BLOCKS.items()}
    modules |= {"final norm": [model.final_norm], "output": [model.output]}
    shapes = _shapes(model, {name: same[0] for name, same in modules.items()}, tokenizer.encode(text, end=False))

    counts: dict[str, int] = {}
    counted: set[nn.Parameter] = set()
    for name, same in modules.items():
        own = {parameter for module in same for parameter in module.parameters()} - counted
        counts[name] = sum(parameter.numel() for parameter in own)
        counted |= own

    config = model.config
    tied = TIED if config.tie_weights else ""
    sizes = {"V": config.vocab_size, "d_model": config.d_model, "d_ff": config.d_ff, "tied": tied}
    number = {slug: chapter.number for slug, chapter in BY_SLUG.items()}
    parts = [
        Part(
            name,
            does.format(**sizes, **number),
            letters,
            shapes[name],
            counts.get(name, 0),
            number[slug],
            place,
            name in IN_BLOCKS,
        )
        for name, does, letters, slug, place in PARTS
    ]
    shared = "shares the token embedding"
    return [replace(part, instead=shared) if part.name == "output" and config.tie_weights else part for part in parts]


def _shapes(model: DecoderOnly, modules: Mapping[str, nn.Module], ids: list[int]) -> dict[str, tuple[int, ...]]:
    """Return the output shape of each module, and of each step outside the model, for one text."""
    seen: dict[str, tuple[int, ...]] = {"text to ids": (1, len(ids))}

    def note(name: str) -> Callable:
        return lambda _module, _inputs, output: seen.update({name: tuple(output.shape)})

    with ExitStack() as hooks, evaluating(model):
        for name, module in modules.items():
            hooks.enter_context(module.register_forward_hook(note(name)))
        logits = model(torch.tensor([ids]))[:, -1]  # (1, V)
    following = sample_next_token(logits, temperature=0)  # (1,)
    return seen | {
        "residual stream": seen["positions"],
        "last logits": tuple(logits.shape),
        "sampling": tuple(following.shape),
    }


class ModelMap(widgets.HBox):
    """Show a decoder as a map of buttons. Each button shows what its part does, the shape of its output, and its
    parameters.

    Args:
        model, tokenizer: the decoder and its tokenizer.
        text: the input from which the shapes are taken.
        chosen: the part that is shown first.

    A button calls `select(name)`, which also works without a kernel or a browser, for tests. `text` then contains the
    words on the page.

    Errors: ValueError for a part that is not on the map.
    """

    def __init__(self, model: DecoderOnly, tokenizer: WordTokenizer, text: str, chosen: str = "attention"):
        self.parts = {part.name: part for part in parts_of(model, tokenizer, text)}
        self._layers = len(model.blocks)
        self._require_part(chosen)
        parts = list(self.parts.values())
        self._part = dropdown("part", list(self.parts), chosen)  # stores the choice, which the buttons set
        self._panel = LiveFigure(lambda part: figures.ShareBars(parts, part), {"part": self._part}, self._describe)
        self.chapter = widgets.HTML()
        self._panel.children = [*self._panel.children[1:], self.chapter]
        self._panel.layout.flex = "1 1 280px"  # 568 px with the buttons: side by side if there is room
        self._panel.layout.max_width = "530px"
        self.buttons = {name: widgets.Button(tooltip=f"Show {name}") for name in self.parts}
        for name, button in self.buttons.items():
            button.on_click(lambda _button, name=name: self.select(name))
        alt = f"{chosen}: {self._describe(chosen)}\n{self._table()}"
        self._default = show(figures.model_map(parts, chosen, self._layers), alt)
        super().__init__(
            [self._laid_out(), self._panel], layout=widgets.Layout(flex_flow="row wrap", align_items="flex-start")
        )
        self.select(chosen)

    @property
    def chosen(self) -> str:
        """Return the name of the part that is shown."""
        return self._part.value

    @property
    def text(self) -> str:
        """Return the text under the bars: what the part does, the shape of its output and its parameters."""
        return self._panel.text

    def select(self, name: str) -> None:
        """Show a part."""
        self._require_part(name)
        self._part.value = name
        for other, button in self.buttons.items():
            button.description = f"▸ {other}" if other == name else other
            button.style.font_weight = "bold" if other == name else "normal"
            button.style.button_color = ORANGE if other == name else SKY if other == "residual stream" else None
            button.style.text_color = INK if button.style.button_color else None
        self.chapter.value = _taught(self.parts[name].chapter)

    def _require_part(self, name: str) -> None:
        if name not in self.parts:
            raise ValueError(f"there is no part {name!r} on the map. The parts: {', '.join(self.parts)}")

    def _describe(self, part: str) -> str:
        it = self.parts[part]
        where = f" There is one in each of the {self._layers} blocks." if it.in_blocks else ""
        owner = f"The {self._layers} together have" if it.in_blocks else "It has"
        weight = figures.weight_of(it, figures.total_of(list(self.parts.values())))
        return f"{it.does}{where} Its output has shape {it.shape}: ({it.letters}). {owner} {weight}."

    def _table(self) -> str:
        widths = [max(len(name) for name in self.parts), max(len(str(part.shape)) for part in self.parts.values())]
        return "\n".join(
            f"{name:<{widths[0]}}  {part.shape!s:<{widths[1]}}  {part.parameters:>9,}  chapter {part.chapter}"
            for name, part in self.parts.items()
        )

    def _laid_out(self) -> widgets.GridBox:
        """Return the buttons in the order of the flow, with the stream next to the parts that read it or add to it."""
        rows = [part for part in self.parts.values() if part.place != "stream"]
        beside = [row for row, part in enumerate(rows, start=1) if part.place != "alone"]
        inside = [row for row, part in enumerate(rows, start=1) if part.in_blocks]
        frame = widgets.Box(layout=_cell(inside[0], 2, inside[-1], 4, border="1px dashed #7F7F7F", margin="-2px 0"))
        cells = [_style(), frame, _sign(f"{self._layers} ×", _cell(inside[0], 4, inside[-1], 4))]
        for name, part in self.parts.items():  # this order is also the order of the Tab key
            button = self.buttons[name]
            if part.place == "stream":
                button.add_class("residual-stream")
                cells.append(_placed(button, _cell(beside[0], 1, beside[-1], 1, height="auto")))
                continue
            row = rows.index(part) + 1
            cells.append(_placed(button, _cell(row, 1 if part.place == "alone" else 3, row, 3)))
            if part.place != "alone":
                cells.append(_sign("→" if part.place == "reads" else "← +", _cell(row, 2, row, 2)))
            elif row < len(rows):
                cells.append(_sign("↓", _cell(row, 4, row, 4)))
        layout = widgets.Layout(
            grid_template_columns="36px 40px minmax(120px, 160px) 36px",
            grid_gap="4px 0",
            flex="0 1 auto",
            margin="0 16px 0 0",
        )
        return widgets.GridBox(cells, layout=layout)

    # In print, on GitHub and before the first run, a picture of the entire map replaces the buttons.
    def __repr__(self) -> str:
        return f"[live map] {self._default.alt}"

    @property
    def still(self) -> str:
        """Return the entire map as HTML that needs no kernel."""
        return f"{self._default._repr_html_()}<div>{html.escape(self._default.alt.splitlines()[0])}</div>"

    def _ipython_display_(self) -> None:
        publish(self, self.still, repr(self))


def _taught(chapter: int) -> str:
    """Return the chapter of a part as text, with a link if its notebook exists."""
    name, notebook = html.escape(f"Chapter {chapter}: {CHAPTERS[chapter].title}"), CHAPTERS[chapter].notebook
    return f'<a href="{notebook}" target="_blank">{name}</a>' if (NOTEBOOKS / notebook).is_file() else name


def _cell(top: int, left: int, bottom: int, right: int, **layout) -> widgets.Layout:
    """Return the position of a widget in a grid. Rows and columns are counted from 1; `bottom` and `right` are
    included."""
    return widgets.Layout(grid_area=f"{top} / {left} / {bottom + 1} / {right + 1}", **({"width": "auto"} | layout))


def _placed(widget: widgets.Widget, layout: widgets.Layout) -> widgets.Widget:
    widget.layout = layout
    return widget


def _sign(text: str, layout: widgets.Layout) -> widgets.HTML:
    layout.align_self = "center"
    return widgets.HTML(f'<div style="text-align:center" aria-hidden="true">{text}</div>', layout=layout)


def _style() -> widgets.HTML:
    """Return the style that lets the stream's name run downwards, like the stream."""
    rule = ".residual-stream {writing-mode: vertical-rl; padding: 0; line-height: 36px}"
    return widgets.HTML(f"<style>{rule}</style>", layout=_cell(1, 4, 1, 4))
