r'''Exercises as pages: how to write a page, and the code that reads it. This text is for authors of exercises.

`chapters/heads/exercises/merge.md` is the exercise `heads.merge`. The page has all the prose, from the statement to the
sentence about each mistake. Code and experiments also have `merge.py` next to it, with the reference and the cases.

    ---
    place: 2                        # its order within the chapter
    title: From heads to features
    kind: code                      # code, experiment, file, number, shapes, choice or reflect
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

A mistake is a heading, its forms, and the sentence that a good teacher would say. The heading is its name. "(hint 2)"
after the name means that this hint helps, and learners who make the mistake see it first. Choose a hint that continues
from the sentence and does not ask for anything that is right already. Without one, hints come in order. A form is the
shortest of

    a change of the reference   `old` → `new`, or → nothing; several in one line, with commas, are applied in order.
                                `old` must occur once in the reference and its helpers (comments and docstrings do not
                                count), unless you write "everywhere" after the change.
    an expression               in the names of the signature; for a class exercise, its value is a class. It may use
                                names of the module and the slips of `slips.py`: `in_float32(merge_heads)(x)`
    a ```diff block             a change of whole lines: - removes, + adds, a space keeps a line
    a ```python block           which ends with the definition of a function or class

"also" before a form adds another answer with the same mistake. The results of a mistake are compared with the learner's
results in every case, so the cases must distinguish the mistakes. The tests check that they do.

Learners who make one mistake often make a small second one: they ignore empty rows, or use −1e9 for −inf. The part
## Second slips, below the mistakes, lists such changes, one per line. Each is applied to every mistake that is a change
or a diff, if its words still occur there. The mistake keeps its name.

The module of a page uses only absolute imports. It defines the reference under the signature's name. Learners see its
signature and docstring, and the rest is removed. To remove only a part, put it between ### BEGIN SOLUTION and
### END SOLUTION. The module also defines the stages, in their order:

    from course_lib.grading.exercise import Case, generator, stage

    def merge_heads(x):
        """The inverse of split_heads: (B, H, T, D) -> (B, T, H · D)."""
        B, H, T, D = x.shape
        return x.transpose(1, 2).reshape(B, T, H * D)

    @stage
    def drawn(seed):
        "Drawn numbers, odd sizes."                                 # shown to the learner when this stage fails
        return [Case(torch.randn(3, 5, 2, 4, generator=generator(seed)))]    # the positional arguments of one call

Cases go from small to large, and stages from the basic case to the edge cases. Stages that pass before the first
failing one earn their share of the points. The last stage with points must have cases that depend on the seed, because
answers to fixed cases could be typed in. Experiments, and code judged by the record of a probe, earn all or nothing.
If no mistake is recognized, the learner sees the first failing case.

A class is called as Case(*args, init=(…)): it is built with `init`, receives the reference's weights, and is called
with `args`. An object that is not plain data, such as a model or an optimizer, is `Given(make, *data)`, with `make`
from the chapter's `fixtures.py` or `grading/fixtures.py`.

If comparing values is not enough, the front matter may have

    rtol, atol, time_limit      the tolerance, and seconds
    forbidden                   parts of operations' names: softmax covers torch.softmax and F.log_softmax
    library                     the course's functions and classes that are the answer, such as [attention.softmax]; an
                                answer that calls one does not count
    may_change                  inputs that an answer may change
    returns                     names of a tuple's parts

and the module may have

    judge(case, expected, got)  returns None or a sentence
    probe(answer, *args)        from a `fixtures.py`: it calls the answer, and its result is judged
    summary(case, brought)      computes the value to judge from the probe's result. When a class is graded, the answer
                                cannot reach it. Put verdicts there, and only the raw material into the probe.

A file, such as my_gpt.py, is code with a name of its own: `file` in the head is the name under which `grade` takes it,
next to notebooks or alone, and `functions` names what counts besides the class of the signature. Its stages earn their
points one by one: see `kinds/file.py`.

The other kinds:

    number, shapes      ## Answer: a python block that assigns the answer's name, `heads_parameters = …`. `reference:`
                        in the head is the number itself if the block is rough or slow. A mistake's form is an
                        expression for the wrong value, or a dictionary of the wrong parts; within `0.02` after it
                        sets its tolerance.
    choice              ## Options: - [x] `key`: text, then on separate lines or in a separate paragraph the reply to
                        learners who pick it; - [ ] for a wrong option. `numbered: true` in the head if each learner
                        has a number and options of their own: the page has the options that all share, and
                        `numbered(number, written)` of its module returns all options, with keys such as "17c"
    reflect             no points; ## Model answer, ## Rubric; ## Answer for the solutions; `min_words` in the head

## Afterwards is the prose and python after the check in the notebook. ## For teachers appears only in the solutions.
`_chapter.md` in the same folder opens the chapter's notebook: see `notebooks.py`. Any error in a page is reported with
file, line and remedy.
'''

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

HEAD = {"place", "title", "kind", "points", "difficulty", "minutes"}
MAY = {  # in addition to the names that every page has
    "code": {"signature", "forbidden", "library", "rtol", "atol", "time_limit", "may_change", "returns"},
    "number": {"rtol", "reference"},
    "shapes": {"reference"},
    "choice": {"numbered"},
    "reflect": {"min_words"},
}
MAY["experiment"] = MAY["code"]
MAY["file"] = MAY["code"] | {"file", "functions"}
PARTS = {
    "code": {"Why", "Hints", "Mistakes"},
    "number": {"Why", "Answer", "Hints", "Mistakes"},
    "choice": {"Why", "Options", "Hints"},
    "reflect": {"Why", "Answer", "Hints", "Model answer", "Rubric"},
}
PARTS |= {"experiment": PARTS["code"], "file": PARTS["code"], "shapes": PARTS["number"]}
OPTIONAL = {"Answer", "Afterwards", "For teachers"}
FEWEST_HINTS = 3
FEWEST_MISTAKES = {"code": 4, "experiment": 4, "file": 4, "number": 2, "shapes": 2}


class PageError(ValueError):
    """The error for an invalid page; the message has file, line and remedy."""

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

    Fields:
        line: its line in the file, from 1.
        text: as in the file.
        token: the token that opened it.
        inline: a paragraph's content.
        items: of a list, each a list of paragraphs.
    """

    line: int
    text: str
    token: Token
    inline: Token | None = None
    items: tuple[tuple[str, ...], ...] = ()

    @property
    def fence(self) -> str | None:
        """Return the language of a fenced block, None for any other."""
        return self.token.info.strip() if self.token.type == "fence" else None

    @property
    def prose(self) -> str:
        """Return the text of a paragraph in one line."""
        return one_line(self.text)


@dataclass(frozen=True)
class Section:
    """A heading with the blocks below it, up to the next heading of its level; a level-2 section has its own
    sections."""

    title: str
    line: int
    blocks: tuple[Block, ...]
    sections: tuple["Section", ...] = ()


@dataclass(frozen=True)
class Page:
    """A page after reading: its head, the statement, and its parts by title."""

    path: str
    head: Mapping[str, Any]
    statement: tuple[Block, ...]
    parts: Mapping[str, Section]

    def error(self, line: int, problem: str) -> PageError:
        """Return the error for a line of this page."""
        return PageError(self.path, line, problem)

    def blocks(self, title: str) -> tuple[Block, ...]:
        """Return the blocks of a part, or none if it is missing."""
        return self.parts[title].blocks if title in self.parts else ()

    def prose(self, title: str) -> str:
        """Return the text of a part, with a blank line between paragraphs."""
        return "\n\n".join(block.prose for block in self.blocks(title))

    def items(self, title: str) -> list[str]:
        """Return the items of the list in a part."""
        return [one_line("\n".join(item)) for block in self.blocks(title) for item in block.items]


# --- the head ---------------------------------------------------------------------------------------------------------


def read_head(text: str, path: str) -> tuple[dict[str, Any], int]:
    """Return a page's front matter, and the number of its lines.

    Errors: PageError if it is missing or is not YAML.
    """
    lines = text.split("\n")
    ends = [number for number, line in enumerate(lines) if line.rstrip() == "---"][:2]
    if len(ends) < 2 or ends[0] != 0:
        raise PageError(
            path, 1, "a page must begin with its front matter: a line ---, `title: …` and so on, a line ---"
        )
    try:
        head = yaml.load("\n".join(lines[1 : ends[1]]), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise PageError(path, mark.line + 2 if mark else 1, f"the front matter is not valid YAML: {error}") from None
    if not isinstance(head, dict):
        raise PageError(path, 2, "the front matter must be a list of `name: value` lines")
    return head, ends[1] + 1


def require_known_head(head: Mapping[str, Any], text: str, path: str) -> None:
    """Raise a PageError for an unknown or missing name in the front matter of this kind of page."""

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
    needed = HEAD | ({"signature", "file"} & known)
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
Opened = tuple[str, int, list[Block], list[Any]]  # a heading being read: title, line, blocks, sections


def read_page(text: str, path: str) -> Page:
    """Return a page's structure without interpreting it."""
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
    """Return the first line of a block, from 0, and the line after its last."""
    assert token.map is not None  # tokens that open a block always have one
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
