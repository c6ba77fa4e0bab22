"""Guesses: questions as pages, the widget in which a learner commits to an answer, and the verdict after measuring.

`chapters/attention/guesses.md` holds the guesses of that chapter, in the order of its notebook, which asks the first
with `guess("attention.sharpness")`:

    ## sharpness
    You multiply every score by 50 before the softmax. What is the answer?

    - [ ] 19.5 °C, the plain average of the four
      That is the other end: scores multiplied by 0.
    - [x] 20.0 °C, only east
      The best score moves away from the others, until its share is 1.

A guess is a name; a question of one paragraph; options, one on each line, with the reply to it below; and a closing
paragraph for every reader, if needed. The text is Markdown with formulas such as $d_k$; an option is shown as plain
text, because a button cannot show any other. The order on the page is for the author: readers see an order that depends
on the id, so no option may refer to the one above it. If the answer is a number, it replaces the options, together with
how close is close enough, as a difference or as a factor:

    = 5.6 ± 0.3 nats
    = 4000 ×÷ 2 tokens

An error in a page is reported with file, line and remedy. The learner's record keeps each guess with the learner's
confidence. `reveal("attention.sharpness")`, after the cell that measures, shows whether the guess was right.
"""

import difflib
import html
import math
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import ipywidgets as widgets
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin

from course_lib.course import record
from course_lib.course.contents import BY_SLUG, CHAPTERS
from course_lib.course.formulas import html_of, text_of
from course_lib.course.told import NoId, UnknownId
from course_lib.live.page import publish

CHAPTER_FOLDERS = Path(__file__).parent.parent / "chapters"
MARKDOWN = MarkdownIt("commonmark", {"html": False}).use(dollarmath_plugin, renderer=lambda tex, _: html_of(tex))
NAME = re.compile(r"[a-z][a-z0-9_]*")
NUMBER = re.compile(r"= *(-?[\d.]+) *(±|×÷) *([\d.]+) *(.*)")
SURE = {"a hunch: 30%": 30, "50%": 50, "70%": 70, "90%": 90, "certain: 99%": 99}
BOX = re.compile(r"\[([ x])\] +(\S.*)")
FORM = (
    "a guess is a question in one paragraph, its options (- [ ] and - [x]) or its number (= 5.6 ± 0.3 nats), and at "
    "most one paragraph after them"
)


def plain(markdown: str) -> str:
    """Return the text of a paragraph of Markdown in one line, without its marks."""
    parts = (part for block in MARKDOWN.parseInline(markdown) for part in block.children or ())
    return "".join(_text(part) for part in parts)


def _text(part: Token) -> str:
    if part.type in ("softbreak", "hardbreak"):
        return " "
    return text_of(part.content) if part.type == "math_inline" else part.content


@dataclass(frozen=True)
class Option:
    """An option of a question: its text, whether it is right, and the reply to learners who pick it (Markdown)."""

    text: str
    right: bool
    reason: str


@dataclass(frozen=True)
class Number:
    """A number that a question asks for: its tolerance, as a difference or, if `factor`, as a factor, and its unit."""

    value: float
    within: float
    factor: bool
    unit: str

    def __str__(self) -> str:
        space = "" if self.unit == "%" else " "
        return f"{self.value:,.6g}{space}{self.unit}".strip()

    def near(self, text: str) -> bool:
        """Return whether the number in this text is within the tolerance."""
        number = float(text)
        if self.factor:
            return self.value / self.within <= number <= self.value * self.within
        return abs(number - self.value) <= self.within * (1 + 1e-9)


@dataclass(frozen=True)
class Question:
    """A question of a page: id, Markdown, options in the page's order or a number, and the closing text for all
    (Markdown)."""

    id: str
    text: str
    options: tuple[Option, ...] = ()
    closing: str = ""
    number: Number | None = None

    @property
    def answer(self) -> str:
        """Return the text of the right option, or the number with its unit."""
        return str(self.number) if self.number else next(option.text for option in self.options if option.right)

    @property
    def shown(self) -> tuple[str, ...]:
        """Return the texts in a random order that depends only on the id, so every reader sees the same order."""
        texts = [option.text for option in self.options]
        return tuple(random.Random(self.id).sample(texts, len(texts)))

    def accepts(self, answer: str) -> bool:
        """Return whether a learner can commit to this answer: one of the options, or a number."""
        if not self.number:
            return answer in self.shown
        try:
            return math.isfinite(float(answer))
        except ValueError:
            return False

    def right(self, answer: str) -> bool:
        """Return whether this is the right option, or a number within the tolerance."""
        return self.number.near(answer) if self.number else answer == self.answer

    def reply(self, answer: str) -> str:
        """Return the reply to learners who committed to this answer, as Markdown in one paragraph."""
        reason = next((option.reason for option in self.options if option.text == answer), "")
        return "\n".join(filter(None, (reason, self.closing)))


# ---------------------------------------------------------------------------------------------------------------- pages
def read_questions(text: str, slug: str, path: str) -> dict[str, Question]:
    """Return the questions of a chapter's page by id, in its order.

    Args:
        text: the page.
        slug: the chapter's slug, with which its ids begin.
        path: the name of the page in error messages.
    Errors: ValueError with file, line and remedy for a page that does not follow the format in this module's docstring.
    """
    tokens = MARKDOWN.parse(text)
    headings = [index for index, token in enumerate(tokens) if token.type == "heading_open" and token.level == 0]
    first = headings[0] if headings else len(tokens)
    if tokens[:first]:
        raise _wrong(path, tokens[0], "a page must begin with the name of its first guess, such as ## sharpness")
    questions: dict[str, Question] = {}
    for start, end in zip(headings, [*headings[1:], len(tokens)]):
        name = tokens[start + 1].content
        if tokens[start].tag != "h2":
            raise _wrong(path, tokens[start], f"{name!r} is a part that no guess has: {FORM}")
        if not NAME.fullmatch(name):
            raise _wrong(
                path, tokens[start], f"{name!r} is not a name: use small letters, digits and _, as in ## row_sums"
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
    number: Number | None = None
    listed = heading
    for index, token in enumerate(tokens):
        if token.level or token.nesting < 0:
            continue
        asked = options is None and number is None
        if token.type == "bullet_list_open" and asked:
            options, listed = _options(tokens[index + 1 :], path), token
        elif token.type == "paragraph_open" and asked and before and tokens[index + 1].content.startswith("="):
            number = _number(tokens[index + 1].content, token, path)
        elif token.type == "paragraph_open" and not (before if asked else after):
            (before if asked else after).append(tokens[index + 1].content)
        else:
            raise _wrong(path, token, f"this is a part that no guess has: {FORM}")
    if not before:
        raise _wrong(path, heading, "the question is missing: write it between the name and the options")
    if number:
        if not after:
            raise _wrong(path, heading, "the number has no explanation: write a paragraph below it")
        return Question(id, before[0], (), after[0], number)
    if options is None or len(options) < 2:
        raise _wrong(path, heading, "there are fewer than two options: write each on a line, - [ ] or, if right, - [x]")
    texts = [option.text for option in options]
    if twice := next((text for text in texts if texts.count(text) > 1), None):
        raise _wrong(path, listed, f"two options read {twice!r}: say how they differ")
    if (right := sum(option.right for option in options)) != 1:
        raise _wrong(path, listed, f"{right} options are marked as right: mark one, with - [x]")
    silent = next((option.text for option in options if not option.reason), None)
    if silent is not None and not after:
        raise _wrong(path, listed, f"the option {silent!r} has no reason: write it below the option, indented")
    return Question(id, before[0], tuple(options), "".join(after))


def _number(text: str, token: Token, path: str) -> Number:
    found = NUMBER.fullmatch(text)
    try:
        assert found
        value, within = float(found[1]), float(found[3])
    except (AssertionError, ValueError):
        raise _wrong(path, token, "write a number as = 5.6 ± 0.3 nats, or as = 4000 ×÷ 2 tokens") from None
    factor = found[2] == "×÷"
    if within <= (1 if factor else 0) or (factor and value <= 0):
        raise _wrong(path, token, "the tolerance must be a difference above 0, or a factor above 1 of a number above 0")
    return Number(value, within, factor, found[4].strip())


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
            raise _wrong(path, token, "an option must be one line of text, with its reason below it, in paragraphs")
    options = []
    for item, paragraphs in items:
        first, _, rest = (paragraphs or [""])[0].partition("\n")
        box = BOX.fullmatch(first)
        if not box:
            raise _wrong(
                path, item, "an option must begin with - [ ] or, if it is right, with - [x], and then its text"
            )
        options.append(Option(plain(box[2]), box[1] == "x", "\n".join(filter(None, [rest, *paragraphs[1:]]))))
    return options


def _wrong(path: str, token: Token, problem: str) -> ValueError:
    return ValueError(f"{path}:{token.map[0] + 1 if token.map else 1}: {problem}")


def questions(slug: str) -> dict[str, Question]:
    """Return the questions of a chapter by id, in the order of its page, or none if it has no page.

    Errors: ValueError as `read_questions`.
    """
    page = CHAPTER_FOLDERS / slug / "guesses.md"
    return read_questions(page.read_text(encoding="utf-8"), slug, str(page)) if page.exists() else {}


def guess(id: str) -> "Guess":
    """Return a question of a chapter, on which the learner commits before the measurement:
    `guess("attention.sharpness")`.

    Errors: KeyError for an unknown id, with the nearest ones.
    """
    return Guess(_find(id))


def reveal(id: str) -> "Revealed":
    """Return the outcome of a guess, for use after the cell that measures: `reveal("attention.sharpness")`.

    Errors: KeyError for an unknown id, with the nearest ones.
    """
    question = _find(id)
    told = Revealed(question, *_kept(question))
    if told.chosen is not None:
        record.change("outcomes", question.id, lambda entry: entry.update(seen=1))
        for asked in _SHOWN.get(question.id, ()):
            asked.retell()
    return told


_SHOWN: dict[str, list["Guess"]] = {}  # question -> its widgets in this kernel, whose saved pages also show the outcome


def _find(id: str) -> Question:
    if not isinstance(id, str):
        first = next(iter(questions("attention")))
        raise NoId(f"Which guess? Write its id in quotes, as in guess({first!r}).")
    id = "".join(id.split()).lower()
    own = questions(slug) if (slug := id.partition(".")[0]) in BY_SLUG else {}
    if id not in own:
        known = [known for chapter in CHAPTERS for known in questions(chapter.slug)]
        near = difflib.get_close_matches(id, known, n=3, cutoff=0.7) or list(own)[:3]
        advice = (
            f"did you mean {' or '.join(map(repr, near))}?" if near else "each chapter's guesses are in its guesses.md"
        )
        raise UnknownId(f"There is no guess {id[:60]!r}: {advice}.".replace("?.", "?"))
    return own[id]


def _quoted(answer: str) -> str:
    """Return an answer in quotation marks; any quotation marks inside it become single ones."""
    return f"“{answer.replace('“', '‘').replace('”', '’')}”"


def _kept(question: Question) -> tuple[str | None, int]:
    """Return the committed answer and the learner's confidence in percent, or (None, 0) without an answer."""
    entry = record.entries("guesses").get(question.id, record.blank("guesses"))
    return (entry["answer"], entry["confidence"]) if question.accepts(entry["answer"]) else (None, 0)


# -------------------------------------------------------------------------------------------------------------- widgets
class Guess(widgets.VBox):
    """A guess before the measurement: an answer, a confidence, a button that commits to both. `reveal` gives the
    verdict."""

    def __init__(self, question: Question):
        self.question = question
        self.chosen, self.confidence = _kept(question)  # perhaps committed on another day
        self.choices: widgets.RadioButtons | widgets.Text
        if question.number:
            unit = question.number.unit
            self.choices = widgets.Text(
                value=self.chosen or "",
                placeholder=f"a number, in {unit}" if unit else "a number",
                layout=widgets.Layout(width="260px"),
            )
        else:
            self.choices = widgets.RadioButtons(
                options=question.shown, value=self.chosen, layout=widgets.Layout(width="auto")
            )
        self.sure = widgets.ToggleButtons(
            options=SURE,
            value=self.confidence if self.confidence in SURE.values() else None,
            description="How sure are you?",
            style={"description_width": "initial", "button_width": "auto"},
        )
        self.button = widgets.Button(
            description="Commit", button_style="primary", tooltip="Fix your guess; then run the cells that measure"
        )
        self.reply = widgets.HTML()
        self.button.on_click(lambda _button: self.commit())
        self._kept: list[Callable[[str, str], None]] = []  # one for each place where the page shows this question
        if self.chosen is not None:
            self._fix()
        super().__init__([widgets.HTML(self._asked), self.choices, self.sure, self.button, self.reply])

    @property
    def _asked(self) -> str:
        return f"<b>{inline_html(self.question.text)}</b>"

    @property
    def _committed(self) -> str:
        if self.chosen is None:
            return ""
        if record.entries("outcomes").get(self.question.id, record.blank("outcomes"))["seen"]:
            return Revealed(self.question, self.chosen, self.confidence).verdict
        kept = f"Kept: {_quoted(self.chosen)}, {self.confidence}% sure."
        return f"{kept} Now measure. Then the cell with reveal shows the verdict."

    def commit(self) -> None:
        """Save the answer and the learner's confidence, and make both unchangeable."""
        answer, confidence = (self.choices.value or "").strip(), self.sure.value
        if not self.question.accepts(answer):
            what = "Type a number, such as 0.5," if self.question.number else "Pick one"
            return self._say(f"{what} first. A wrong guess is worth more here than none.")
        if confidence is None:
            return self._say("How sure are you? progress() shows how well your confidence fits your results.")

        def note(entry: record.Entry) -> None:
            if not entry["answer"]:  # the first one counts
                entry.update(answer=answer, confidence=confidence, right=int(self.question.right(answer)))

        record.change("guesses", self.question.id, note)
        record.announce("guess", self.question.id, answer)
        self.retell()

    def retell(self) -> None:
        """Update the page and its saved copy with what has happened to the guess since it was shown."""
        self.chosen, self.confidence = _kept(self.question)
        if self.chosen is not None:
            self._fix()
        for keep in self._kept:
            keep(self.still, repr(self))

    def _fix(self) -> None:
        self.choices.disabled = self.sure.disabled = self.button.disabled = True
        self._say(self._committed)

    def _say(self, text: str) -> None:
        self.reply.value = f'<div role="status">{html.escape(text)}</div>'

    # In print, on GitHub and without a kernel, the page shows the question and the committed guess.
    def __repr__(self) -> str:
        options = [f"  ({'•' if text == self.chosen else ' '}) {text}" for text in self.question.shown]
        if self.question.number:
            options = [f"  a number: {self.chosen or '…'} {self.question.number.unit}".rstrip()]
        return "\n".join([f"Predict: {plain(self.question.text)}", *options, *filter(None, [self._committed])])

    @property
    def still(self) -> str:
        """Return the same as HTML that needs no kernel: a list in which nothing looks clickable."""
        _, *lines = repr(self).split("\n")
        lines = [html.escape(line.replace("  ( ) ", "– ").replace("  (•) ", "◉ ").strip()) for line in lines]
        return "".join(f"<div>{line}</div>" for line in (self._asked, *lines))

    def _ipython_display_(self) -> None:
        self._kept.append(publish(self, self.still, repr(self)))
        _SHOWN.setdefault(self.question.id, []).append(self)


@dataclass(frozen=True)
class Revealed:
    """The outcome of a guess: right or wrong, and why; only the answer if the learner made no guess."""

    question: Question
    chosen: str | None
    confidence: int

    @property
    def verdict(self) -> str:
        """Return whether the guess was right, and the measured answer."""
        answer = self.question.answer
        if self.chosen is None:
            # Without a saved record there is no learner: the course's own notebooks show only the answer.
            skipped = "" if str(record.where()) == record.IN_MEMORY else "You made no guess. "
            return f"{skipped}Measured: {answer}."
        said = f"You said {_quoted(self.chosen)}, {self.confidence}% sure."
        if self.question.right(self.chosen):
            return f"✓ {said} The measurement agrees."
        return f"✗ {said} Measured: {answer}."

    @property
    def _reason(self) -> str:
        return self.question.reply(self.question.answer if self.chosen is None else self.chosen)

    def __repr__(self) -> str:
        return f"{self.verdict} {plain(self._reason)}"

    def _repr_html_(self) -> str:
        return f'<div role="status"><b>{html.escape(self.verdict)}</b> {inline_html(self._reason)}</div>'


def inline_html(markdown: str) -> str:
    """Return a paragraph of Markdown as HTML in one line."""
    return MARKDOWN.renderInline(markdown).replace("\n", " ")
