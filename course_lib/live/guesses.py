"""Guesses: questions with options as pages, and the widget in which a learner commits to one before the measurement.

`chapters/attention/guesses.md` holds the guesses of that chapter, in the order of its notebook, which asks the first
with `guess("attention.sharpness")`:

    ## sharpness
    You multiply every score by 50 before the softmax. What is the answer?

    - [ ] 19.5 °C, the plain average of the four
      That is the other end: scores multiplied by 0.
    - [x] 20.0 °C, east alone
      The best score pulls away from the others, until its share is 1.

A name; the question, one paragraph; the options, each on a line of its own, and below it what is said to whoever picks
it; where something should be said to everybody, a paragraph after the options. The text is Markdown; an option is shown
as plain text, because a button holds no other. The page's order is for the author: readers see one that is drawn from
the id, so no option may speak of the one above it. A page that is wrong is refused with file, line and remedy.
"""

import difflib
import html
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ipywidgets as widgets
from markdown_it import MarkdownIt
from markdown_it.token import Token

from course_lib.contents import CHAPTERS
from course_lib.live.page import publish

CHAPTER_FOLDERS = Path(__file__).parent.parent / "chapters"
MARKDOWN = MarkdownIt("commonmark", {"html": False})
NAME = re.compile(r"[a-z][a-z0-9_]*")
BOX = re.compile(r"\[([ x])\] +(\S.*)")
FORM = "a guess is a question in one paragraph, its options (- [ ] and - [x]), and at most one paragraph after them"


def plain(markdown: str) -> str:
    """Return the text of a paragraph of Markdown in one line, without its marks."""
    parts = (part for block in MARKDOWN.parseInline(markdown) for part in block.children or ())
    return "".join(" " if part.type in ("softbreak", "hardbreak") else part.content for part in parts)


@dataclass(frozen=True)
class Option:
    """An option of a question: its text, whether it is right, and what is said to whoever picks it (Markdown)."""

    text: str
    right: bool
    reason: str


@dataclass(frozen=True)
class Question:
    """A question of a page: its id, Markdown, options in the page's order, what is said to all (Markdown)."""

    id: str
    text: str
    options: tuple[Option, ...]
    closing: str = ""

    @property
    def answer(self) -> str:
        """The text of the right option."""
        return next(option.text for option in self.options if option.right)

    @property
    def shown(self) -> tuple[str, ...]:
        """The texts in the order in which they are shown: drawn from the id, the same for everybody."""
        texts = [option.text for option in self.options]
        return tuple(random.Random(self.id).sample(texts, len(texts)))

    def reply(self, chosen: str) -> str:
        """Return what is said once an option is committed, as Markdown in one paragraph."""
        reason = next(option.reason for option in self.options if option.text == chosen)
        return "\n".join(filter(None, (reason, self.closing)))


# ---------------------------------------------------------------------------------------------------------------- pages
def read_questions(text: str, slug: str, path: str) -> dict[str, Question]:
    """Return the questions of a chapter's page by id, in its order.

    Args:
        text: the page. slug: the chapter's, with which ids begin. path: what an error calls the page.
    Errors: ValueError with file, line and remedy for a page that is not written as the head of this module says.
    """
    tokens = MARKDOWN.parse(text)
    headings = [index for index, token in enumerate(tokens) if token.type == "heading_open" and token.level == 0]
    first = headings[0] if headings else len(tokens)
    if tokens[:first]:
        raise _wrong(path, tokens[0], "a page begins with the name of its first guess, such as ## sharpness")
    questions: dict[str, Question] = {}
    for start, end in zip(headings, [*headings[1:], len(tokens)]):
        name = tokens[start + 1].content
        if tokens[start].tag != "h2":
            raise _wrong(path, tokens[start], f"{name!r} is a part that no guess has: {FORM}")
        if not NAME.fullmatch(name):
            raise _wrong(
                path, tokens[start], f"{name!r} is no name: small letters, digits and _ make one, as in ## row_sums"
            )
        if f"{slug}.{name}" in questions:
            raise _wrong(path, tokens[start], f"there is a guess {name!r} above: give this one another name")
        questions[f"{slug}.{name}"] = _question(f"{slug}.{name}", tokens[start], tokens[start + 3 : end], path)
    return questions


def _question(id: str, heading: Token, tokens: list[Token], path: str) -> Question:
    """Read one section: the tokens between its heading and the next."""
    before: list[str] = []
    after: list[str] = []
    options: list[Option] | None = None
    listed = heading
    for index, token in enumerate(tokens):
        if token.level or token.nesting < 0:
            continue
        if token.type == "bullet_list_open" and options is None:
            options, listed = _options(tokens[index + 1 :], path), token
        elif token.type == "paragraph_open" and not (before if options is None else after):
            (before if options is None else after).append(tokens[index + 1].content)
        else:
            raise _wrong(path, token, f"this is a part that no guess has: {FORM}")
    if not before:
        raise _wrong(path, heading, "the question is missing: write it between the name and the options")
    if options is None or len(options) < 2:
        raise _wrong(path, heading, "there are fewer than two options: write each on a line, - [ ] or, if right, - [x]")
    texts = [option.text for option in options]
    if twice := next((text for text in texts if texts.count(text) > 1), None):
        raise _wrong(path, listed, f"two options read {twice!r}: say how they differ")
    if (right := sum(option.right for option in options)) != 1:
        raise _wrong(path, listed, f"{right} options are marked as right: mark one, with - [x]")
    silent = next((option.text for option in options if not option.reason), None)
    if silent is not None and not after:
        raise _wrong(path, listed, f"nothing is said to whoever picks {silent!r}: write it below the option, indented")
    return Question(id, before[0], tuple(options), *after)


def _options(tokens: list[Token], path: str) -> list[Option]:
    """Read a list of options: the tokens after its beginning."""
    items: list[tuple[Token, list[str]]] = []
    for token in tokens:
        if token.level == 0:
            break
        if token.type == "list_item_open":
            items.append((token, []))
        elif token.type == "inline":
            items[-1][1].append(token.content)
        elif token.type not in ("paragraph_open", "paragraph_close", "list_item_close"):
            raise _wrong(path, token, "an option is one line of text, and below it what is said of it, in paragraphs")
    options = []
    for item, paragraphs in items:
        first, _, rest = (paragraphs or [""])[0].partition("\n")
        box = BOX.fullmatch(first)
        if not box:
            raise _wrong(path, item, "an option begins with - [ ] or, if it is right, with - [x]; its text follows")
        options.append(Option(plain(box[2]), box[1] == "x", "\n".join(filter(None, [rest, *paragraphs[1:]]))))
    return options


def _wrong(path: str, token: Token, problem: str) -> ValueError:
    return ValueError(f"{path}:{token.map[0] + 1 if token.map else 1}: {problem}")


def questions(slug: str) -> dict[str, Question]:
    """Return the questions of a chapter by id, in the order of its page; none if it has no page.

    Errors: ValueError as `read_questions`.
    """
    page = CHAPTER_FOLDERS / slug / "guesses.md"
    return read_questions(page.read_text(encoding="utf-8"), slug, str(page)) if page.exists() else {}


def guess(id: str) -> "Guess":
    """Return a question of a chapter, to be committed to before the measurement: `guess("attention.sharpness")`.

    Errors: KeyError for an unknown id, with the nearest ones.
    """
    if (found := questions(id.partition(".")[0]).get(id)) is None:
        known = [known for chapter in CHAPTERS for known in questions(chapter.slug)]
        near = difflib.get_close_matches(id, known, n=3, cutoff=0.5)
        advice = f"did you mean {' or '.join(map(repr, near))}?" if near else "guesses.md of each chapter holds its own"
        raise KeyError(f"there is no guess {id!r}: {advice}")
    return Guess(found)


# --------------------------------------------------------------------------------------------------------------- widget
class Guess(widgets.VBox):
    """A guess, committed before the measurement: choices, a button, and then the reason that belongs to the choice."""

    def __init__(self, question: Question):
        self.question = question
        self.chosen: str | None = None  # the option that was committed
        self.choices = widgets.RadioButtons(options=question.shown, value=None, layout=widgets.Layout(width="auto"))
        self.button = widgets.Button(
            description="Commit", button_style="primary", tooltip="Fix your guess and see the reason"
        )
        self.reply = widgets.HTML()
        self.button.on_click(lambda _button: self.commit())
        self._kept: list[Callable[[str, str], None]] = []  # one for each place of the page that shows this question
        super().__init__([widgets.HTML(self._asked), self.choices, self.button, self.reply])

    @property
    def _asked(self) -> str:
        return f"<b>{_as_html(self.question.text)}</b>"

    @property
    def verdict(self) -> str:
        """What the committed guess is told."""
        right = self.chosen == self.question.answer
        return "✓ The measurement will agree." if right else "✗ The measurement will surprise you."

    def commit(self) -> None:
        """Show the reason for the chosen option and fix the choice."""
        choice = self.choices.value
        if choice is None:
            self.reply.value = "Pick one first. A wrong guess is worth more here than none."
            return
        self.chosen, self.choices.disabled, self.button.disabled = choice, True, True
        said = _as_html(self.question.reply(choice))
        self.reply.value = f'<div role="status"><b>{self.verdict}</b> {said}</div>'
        for keep in self._kept:
            keep(self.still, repr(self))

    # In print, on GitHub and without its kernel: the question, and the guess and its reason once it is committed.
    def __repr__(self) -> str:
        options = [f"  ({'•' if text == self.chosen else ' '}) {text}" for text in self.question.shown]
        said = [f"{self.verdict} {plain(self.question.reply(self.chosen))}"] if self.chosen else []
        return "\n".join([f"Predict: {plain(self.question.text)}", *options, *said])

    @property
    def still(self) -> str:
        """The same as HTML that needs no kernel."""
        options = [f"{'◉' if text == self.chosen else '○'} {html.escape(text)}" for text in self.question.shown]
        said = [self.reply.value] if self.chosen else []
        return "".join(f"<div>{line}</div>" for line in (self._asked, *options, *said))

    def _ipython_display_(self) -> None:
        self._kept.append(publish(self, self.still, repr(self)))


def _as_html(markdown: str) -> str:
    """Return a paragraph of Markdown as HTML in one line."""
    return MARKDOWN.renderInline(markdown).replace("\n", " ")
