"""A text box of chapter 1 that shows how a tokenizer splits what you type."""

import html
from collections.abc import Mapping, Sequence

import ipywidgets as widgets

from course_lib.live.page import publish
from course_lib.tinytown import BytePairTokenizer, WordTokenizer, split_words

MOST_TOKENS = 80  # number of boxes; a longer text is cut, but counted in full


class TokenizerBox(widgets.VBox):
    """Show a text as tokens with their ids: as words, and as byte pairs of a chosen vocabulary.

    Args:
        words: the word tokenizer; unknown words are shown with a question mark.
        byte_pairs: number of entries -> tokenizer trained to that size.
        text, entries: the first text and the first number of entries.

    `render(text, entries)` returns the boxes as HTML and sets `text_version`. It works without a kernel, for tests.
    """

    def __init__(self, words: WordTokenizer, byte_pairs: Mapping[int, BytePairTokenizer], text: str, entries: int):
        self._words, self._byte_pairs = words, dict(byte_pairs)
        self.text_version = ""
        self._typed = widgets.Text(
            value=text, description="your text", layout=widgets.Layout(width="98%", max_width="860px")
        )
        self._entries = widgets.SelectionSlider(
            options=list(self._byte_pairs),
            value=entries,
            description="byte-pair entries",
            layout=widgets.Layout(width="440px"),
        )
        for control in (self._typed, self._entries):
            control.style.description_width = "initial"
            control.observe(self._changed, names="value")
        self._boxes = widgets.HTML(self.render(text, entries))
        super().__init__([self._typed, self._entries, self._boxes])

    def render(self, text: str, entries: int) -> str:
        """Return the tokens of `text` as HTML boxes. Errors: ValueError if no tokenizer has this number of entries."""
        if entries not in self._byte_pairs:
            raise ValueError(f"entries={entries} must be one of {', '.join(map(str, self._byte_pairs))}")
        tokenizer = self._byte_pairs[entries]
        as_words = [(word, self._words.ids.get(word)) for word in split_words(text.lower())]
        as_pairs = list(zip(tokenizer.pieces(text), tokenizer.encode(text)))
        ways: list[tuple[str, Sequence[tuple[str, int | None]]]]
        ways = [(f"Words, {len(self._words)} entries", as_words), (f"Byte pairs, {len(tokenizer)} entries", as_pairs)]
        self.text_version = "\n".join(_as_text(name, tokens) for name, tokens in ways)
        return "".join(_as_html(name, tokens) for name, tokens in ways)

    def _changed(self, _change) -> None:
        self._boxes.value = self.render(self._typed.value, self._entries.value)

    def __repr__(self) -> str:
        return f"[live tokenizer: text={self._typed.value!r}, entries={self._entries.value}]\n{self.text_version}"

    @property
    def still(self) -> str:
        """Return the tokens as HTML that needs no kernel."""
        return self._boxes.value

    def _ipython_display_(self) -> None:
        publish(self, self.still, repr(self))


def _count(tokens: Sequence[tuple[str, int | None]]) -> str:
    unknown = sum(i is None for _, i in tokens)
    return f"{len(tokens)} token{'' if len(tokens) == 1 else 's'}" + (f", {unknown} of them unknown" if unknown else "")


def _visible(piece: str) -> str:
    return piece.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")


def _cut(tokens: Sequence) -> str:
    return f" … and {len(tokens) - MOST_TOKENS} more" if len(tokens) > MOST_TOKENS else ""


def _as_text(name: str, tokens: Sequence[tuple[str, int | None]]) -> str:
    shown = " | ".join(f"{_visible(piece)} {'?' if i is None else i}" for piece, i in tokens[:MOST_TOKENS])
    return f"{name}: {_count(tokens)}: {shown}{_cut(tokens)}"


def _as_html(name: str, tokens: Sequence[tuple[str, int | None]]) -> str:
    boxes = []
    for n, (piece, i) in enumerate(tokens[:MOST_TOKENS]):
        border = "2px dashed #D55E00" if i is None else "1px solid #7F7F7F"
        style = f"display:inline-block;border:{border};border-radius:4px;margin:2px;padding:1px 6px;text-align:center"
        shade = ("#E3F0FA", "#FFFFFF")[n % 2]
        number = "unknown" if i is None else i
        boxes.append(
            f'<span style="{style};background:{shade};color:#222222"><code style="background:none;color:inherit">'
            f"{html.escape(_visible(piece))}</code><br><small>{number}</small></span>"
        )
    return (
        f'<div style="line-height:1.35;margin:8px 0;max-width:70em"><b>{name}</b>: {_count(tokens)}<br>'
        f"{' '.join(boxes)}{_cut(tokens)}</div>"
    )
