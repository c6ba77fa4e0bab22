r'''Exercises as pages: how to write one, and what reads it. This text is for the author of an exercise.

`chapters/heads/exercises/merge.md` is the exercise `heads.merge`: all that is prose, from the statement to what is said
of each mistake. `merge.py` beside it, for code and experiments, is what is not: the reference and the cases.

    ---
    place: 2                        # its order within the chapter
    title: From heads to features
    kind: code                      # code, experiment, number, shapes, choice or reflect
    points: 2
    difficulty: 2                   # 1 to 5
    minutes: 10
    signature: merge_heads(x)       # code and experiment
    ---
    Write `merge_heads(x)`: … A worked case. A fenced python block becomes a cell of the notebook.

    ## Why
    It must undo the split exactly.

    ## Hints
    1. Three or more, in order, never the answer itself.
    2. …
    3. …

    ## Mistakes
    ### no transpose
    `x.transpose(1, 2)` → `x`
    You reshape without letting heads and tokens change places first. …

    ### heads averaged (hint 2)
    `x.mean(1)`
    also `x.sum(1)`
    You take the mean of the heads. They are laid side by side. …

A mistake is a heading, its forms, and the sentence that a good teacher would say. The heading is its name; (hint 2)
after it says that this hint helps with it, and is given first to whoever makes it. Name a hint that goes on from the
sentence and asks nothing that the answer has right already; without one, hints come in turn. A form is the shortest of

    a change of the reference   `old` → `new`, or → nothing; several in one line, with commas between, happen in turn.
                                `old` occurs once in the reference and the helpers that it uses (comments and
                                docstrings do not count), or everywhere is written after the change.
    an expression               in the names of the signature; of a class exercise, one that is a class. It may use what
                                the module holds and the generic slips of `slips.py`: `in_float32(merge_heads)(x)`
    a ```diff block             a change of whole lines: - out, + in, and a space before lines that stay
    a ```python block           that ends with the definition of a function or class

"also" before a form adds another answer in which the same mistake shows. What a mistake does is held against what the
learner's answer does, on every case: so the cases must tell the mistakes apart. The tests prove that they do.

Who makes one mistake often makes a small one beside it: no care for an empty row, −1e9 for −inf. ## Second slips, below
the mistakes, lists such changes, one in a line. Each is tried on top of every mistake that is a change or a diff, where
its words are still found, and the mistake keeps its name.

The module beside a page stands on its own, with absolute imports. It holds the reference under the signature's name:
learners see its signature and docstring, and the rest is cut out (where that is not all of it, ### BEGIN SOLUTION and
### END SOLUTION mark what is). And it holds the stages, in their order:

    from course_lib.grading.exercise import Case, generator, stage

    def merge_heads(x):
        """The inverse of split_heads: (B, H, T, D) -> (B, T, H · D)."""
        B, H, T, D = x.shape
        return x.transpose(1, 2).reshape(B, T, H * D)

    @stage
    def drawn(seed):
        "Drawn numbers, odd sizes."                                 # shown to the learner when this stage fails
        return [Case(torch.randn(3, 5, 2, 4, generator=generator(seed)))]    # the positional arguments of one call

Cases go from small to large, stages from the basic thing to the edge cases: stages that pass earn their share of the
points up to the first that fails, or rather up to the last one before it whose cases depend on the seed: the others
could be typed in. Experiments, and code that is judged by what a probe saw, earn all or nothing. Where no mistake is
recognized, the first failing case is shown.

A class is called as Case(*args, init=(…)): it is built with `init`, given the reference's weights, called
with `args`. What is no plain data, a model or an optimizer, comes as `Given(make, *data)`, `make` from the chapter's
`fixtures.py` or `grading/fixtures.py`.

Where comparing values is not the right question, the front matter may have `rtol`, `atol`, `time_limit` (seconds),
`forbidden` (parts of operations' names: softmax covers torch.softmax and F.log_softmax), `library` (the course's
own functions and classes that are the answer: [attention.softmax]. An answer that calls one is nobody's), `may_change`
(inputs that an answer may alter) and `returns` (names of a tuple's parts). The module may have `judge(case, expected,
got)`, which returns None or a sentence; `probe(answer, *args)`, taken from a `fixtures.py`, which does the calling:
what it returns is judged; and `summary(case, brought)`, which computes what is judged from what a probe brought. Where
a class is graded it runs out of the answer's reach: a verdict belongs there, and only its raw material into the probe.

The other kinds:

    number, shapes      ## Answer: a python block that assigns the answer's name, `heads_parameters = …`. `reference:`
                        in the head holds the figure itself where the block is rough or slow. A mistake's form is
                        an expression for the wrong value, or a dictionary of the wrong parts; within `0.02` after it
                        leaves so much room.
    choice              ## Options: - [x] `key`: text, then on lines of its own or in a paragraph of its own what is
                        said to whoever picks it; - [ ] for a wrong one
    reflect             no points; ## Model answer, ## Rubric; ## Answer for the solutions; `min_words` in the head

## Afterwards holds what follows the check in the notebook, prose and python; ## For teachers stands in the solutions
alone. `_chapter.md` in the same folder opens the chapter's notebook: `notebooks.py`. A page that is not as described
here is refused with file, line and remedy.
'''

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

HEAD = {"place", "title", "kind", "points", "difficulty", "minutes"}
MAY = {  # beside what every page has
    "code": {"signature", "forbidden", "library", "rtol", "atol", "time_limit", "may_change", "returns"},
    "number": {"rtol", "reference"},
    "shapes": {"reference"},
    "choice": set(),
    "reflect": {"min_words"},
}
MAY["experiment"] = MAY["code"]
PARTS = {
    "code": {"Why", "Hints", "Mistakes"},
    "number": {"Why", "Answer", "Hints", "Mistakes"},
    "choice": {"Why", "Options", "Hints"},
    "reflect": {"Why", "Answer", "Hints", "Model answer", "Rubric"},
}
PARTS |= {"experiment": PARTS["code"], "shapes": PARTS["number"]}
OPTIONAL = {"Answer", "Afterwards", "For teachers"}
FEWEST_HINTS = 3
FEWEST_MISTAKES = {"code": 4, "experiment": 4, "number": 2, "shapes": 2}


class PageError(ValueError):
    """A page that is not as it should be; the message gives file, line and remedy."""

    def __init__(self, path: str, line: int, problem: str):
        super().__init__(path, line, problem)

    def __str__(self) -> str:
        return "{}:{}: {}".format(*self.args)


def one_line(text: str) -> str:
    """Return wrapped text in one line."""
    return " ".join(line.strip() for line in text.splitlines())


@dataclass(frozen=True)
class Block:
    """A block of Markdown: a paragraph, a fence, a list or anything else at the top level of a part.

    Fields: line in the file, from 1 · text as it stands there · token that opened it · inline, a paragraph's content ·
    items of a list, each a list of paragraphs.
    """

    line: int
    text: str
    token: Token
    inline: Token | None = None
    items: tuple[tuple[str, ...], ...] = ()

    @property
    def fence(self) -> str | None:
        """The language of a fenced block, None for any other."""
        return self.token.info.strip() if self.token.type == "fence" else None

    @property
    def prose(self) -> str:
        """The text of a paragraph in one line."""
        return one_line(self.text)


@dataclass(frozen=True)
class Section:
    """A heading with the blocks below it, up to the next heading of its level; of level 2, with its own sections."""

    title: str
    line: int
    blocks: tuple[Block, ...]
    sections: tuple["Section", ...] = ()


@dataclass(frozen=True)
class Page:
    """A page as it is read: its head, the statement, and its parts by title."""

    path: str
    head: Mapping[str, Any]
    statement: tuple[Block, ...]
    parts: Mapping[str, Section]

    def error(self, line: int, problem: str) -> PageError:
        """Return the error for a line of this page."""
        return PageError(self.path, line, problem)

    def blocks(self, title: str) -> tuple[Block, ...]:
        """Return the blocks of a part; none where it is missing."""
        return self.parts[title].blocks if title in self.parts else ()

    def prose(self, title: str) -> str:
        """Return the text of a part, its paragraphs apart."""
        return "\n\n".join(block.prose for block in self.blocks(title))

    def items(self, title: str) -> list[str]:
        """Return the items of the list that a part holds."""
        return [one_line("\n".join(item)) for block in self.blocks(title) for item in block.items]


# --- the head ---------------------------------------------------------------------------------------------------------


def read_head(text: str, path: str) -> tuple[dict[str, Any], int]:
    """Return a page's front matter, and the number of lines that it takes.

    Errors: PageError where there is none, or where it is no YAML.
    """
    lines = text.split("\n")
    ends = [number for number, line in enumerate(lines) if line.rstrip() == "---"][:2]
    if len(ends) < 2 or ends[0] != 0:
        raise PageError(path, 1, "a page begins with its front matter: a line ---, `title: …` and so on, a line ---")
    try:
        head = yaml.load("\n".join(lines[1 : ends[1]]), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise PageError(path, mark.line + 2 if mark else 1, f"the front matter is no YAML: {error}") from None
    if not isinstance(head, dict):
        raise PageError(path, 2, "the front matter is a list of `name: value` lines")
    return head, ends[1] + 1


def require_known_head(head: Mapping[str, Any], text: str, path: str) -> None:
    """Raise a PageError for a name in the front matter that an exercise of its kind does not have, or lacks."""

    def at(name: str) -> int:
        return next((n for n, line in enumerate(text.split("\n"), 1) if line.startswith(f"{name}:")), 1)

    kind = head.get("kind")
    if kind not in MAY:
        raise PageError(path, at("kind"), f"kind: {kind} must be one of {', '.join(MAY)}{nearest(kind, MAY)}")
    known = HEAD | MAY[kind]
    for name in head:
        if name not in known:
            raise PageError(
                path,
                at(name),
                f"a page of kind {kind} has no {name!r}{nearest(name, known)}. It may have {listed(known)}",
            )
    needed = HEAD | ({"signature"} if "signature" in known else set())
    if missing := sorted(needed - set(head)):
        raise PageError(path, 1, f"the front matter lacks {listed(missing)}")
    whole = [name for name in ("place", "points", "difficulty", "minutes") if type(head[name]) is not int]
    if whole:
        raise PageError(path, at(whole[0]), f"{whole[0]}: {head[whole[0]]!r} must be a whole number")


def nearest(name: Any, known: Sequence[str] | set | Mapping) -> str:
    """Return "; did you mean …?" with the nearest known name, or nothing."""
    near = difflib.get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def listed(names: Iterable) -> str:
    """Return names with commas, in alphabetical order."""
    return ", ".join(sorted(map(str, names)))


# --- the body ---------------------------------------------------------------------------------------------------------

MARKDOWN = MarkdownIt("commonmark").enable("table")
Opened = tuple[str, int, list[Block], list[Any]]  # a heading while it is read: title, line, blocks, sections likewise


def read_page(text: str, path: str) -> Page:
    """Return a page as it is written; what it means is not looked at."""
    head, taken = read_head(text, path)
    lines = text.split("\n")
    tokens = MARKDOWN.parse("\n".join(["" if n < taken else line for n, line in enumerate(lines)]))
    blocks: list[Block] = []
    parts: dict[str, Opened] = {}
    level2: Opened | None = None
    level3: Opened | None = None
    for index, token in enumerate(tokens):
        if token.level != 0 or token.nesting < 0:
            continue
        if token.type == "heading_open" and token.tag in ("h2", "h3"):
            opened: Opened = (tokens[index + 1].content, _rows(token)[0] + 1, [], [])
            if token.tag == "h2":
                if opened[0] in parts:
                    raise PageError(path, opened[1], f"a second part {opened[0]!r}: put the two together")
                level2, level3 = opened, None
                parts[opened[0]] = opened
            elif level2 is None:
                raise PageError(
                    path, opened[1], f"{opened[0]!r} belongs to no section: a line such as ## Mistakes is missing"
                )
            else:
                level3 = opened
                level2[3].append(opened)
            continue
        block = _block(lines, tokens, index)
        (level3 or level2 or (None, 0, blocks))[2].append(block)
    sections = {
        title: Section(title, line, tuple(own), tuple(Section(t, at, tuple(b)) for t, at, b, _ in inner))
        for title, line, own, inner in (parts[title] for title in parts)
    }
    return Page(path, head, tuple(blocks), sections)


def _rows(token: Token) -> list[int]:
    """The first line of a block, from 0, and the one behind its last."""
    assert token.map is not None  # of tokens that open a block, it never is
    return token.map


def _block(lines: list[str], tokens: list[Token], index: int) -> Block:
    token = tokens[index]
    first, last = _rows(token)
    text = "\n".join(lines[first:last]).rstrip()
    inline = tokens[index + 1] if token.type == "paragraph_open" else None
    items: list[list[str]] = []
    if token.type in ("ordered_list_open", "bullet_list_open"):
        for inner in tokens[index + 1 :]:
            if inner.level == 0:
                break
            if inner.type == "list_item_open" and inner.level == 1:
                items.append([])
            elif inner.type == "inline":
                items[-1].append(inner.content)
    return Block(first + 1, token.content if token.type == "fence" else text, token, inline, tuple(map(tuple, items)))
