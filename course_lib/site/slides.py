"""Make slides from a chapter's notebook: one file that opens in any browser and needs no server.

The slides show headings, guesses with their options, figures, formulas, printed output and verdicts. The prose becomes
presenter notes, in addition to the teacher's notes. The package `sphinx-revealjs` contains reveal.js, and
`sphinx-mathjax-offline` contains MathJax. The slides' style and script are in `web/`.
"""

import ast
import base64
import contextlib
import html
import io
import json
import mimetypes
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from course_lib.claims import find, recorded
from course_lib.course.contents import Chapter
from course_lib.lessons.notes import Note, is_note, read_notes
from course_lib.live.glass import html as glass_page
from course_lib.live.guesses import Question, questions
from course_lib.site import states
from course_lib.site.build import drawn
from course_lib.site.pages import ASKS, IMAGE

NEEDED = ("sphinx_revealjs", "sphinx-mathjax-offline", "mdit_py_plugins", "pygments")
LEAD = 45  # words of prose on a slide
LINES, WIDTH = 17, 96  # limits for printed text
CODE, BOTH = 22, 16  # most lines of code with its output: for a class or a function, for other code
ROWS = 9  # most rows of a table
HEADING = re.compile(r"(#{2,3}) (.+)")
DETAILS = re.compile(r"<details><summary>What happened</summary>\n\n(.+?)\n\n</details>", re.DOTALL)
NEAR = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]+\)")  # links into the repository, replaced by their text
KEY = re.compile(r"\*\*([^*]+)\*\*")
SETTLES = re.compile(r'"(\w+\.\w+)"')
WIDE = """.glass { max-width: none; display: grid; grid-template-columns: 718px minmax(0, 1fr); column-gap: 16px; }
.glass .columns { grid-template-columns: 452px minmax(0, 1fr); }
.glass > * { grid-column: 1; }
.glass > .panel { grid-column: 2; grid-row: 1 / span 9; margin-top: 0; max-height: 620px; overflow: auto; }
"""  # on a slide, the open part is to the right of the model, not below it
PRINT = re.compile(r"@media print\s*\{(?:[^{}]*\{[^{}]*\})*\s*\}")  # in reveal.js; `slides.css` replaces it
SILENT = ("Further reading", "Where to go from here")


@dataclass
class Slide:
    """Hold a slide: its section, its body (HTML), its own title if it has one, and the presenter's notes (HTML)."""

    section: str
    body: str
    title: str = ""
    kind: str = "plain"
    notes: list[str] = field(default_factory=list)

    def as_html(self) -> str:
        """Return the slide as HTML for reveal.js."""
        head = f"<h2>{inline(self.title)}</h2>" if self.title else f'<p class="where">{inline(self.section)}</p>'
        return (
            f'<section class="{self.kind}" data-part="{html.escape(self.section)}">{head}<div class="body">{self.body}'
            f'</div><aside class="notes">{"".join(self.notes)}</aside></section>'
        )


def slides(root: Path, chapter: Chapter) -> str:
    """Return a chapter's slides as one HTML page.

    Errors: ValueError if no cell shows a recorded figure; ModuleNotFoundError if a package is missing.
    """
    if missing := [name for name in NEEDED if not find_spec(name)]:
        raise ModuleNotFoundError(f"{', '.join(missing)}: not installed", name=missing[0])  # the command says how
    notebook = nbformat.read(root / "notebooks" / chapter.notebook, as_version=4)
    maker = _Maker(chapter, notebook, lambda figure: figure_of(figure, root / "notebooks"))
    made = maker.slides()
    notes = {note.section: noted(note) for note in read_notes(notebook, chapter.notebook)}
    return page(chapter, made, notes, maker.glasses, root / "web")


def page(chapter: Chapter, made: list[Slide], notes: Mapping[str, str], glasses: list[str], web: Path) -> str:
    """Return the HTML file with the slides, the notes by section, the glass models, the styles and the scripts."""
    reveal = files("sphinx_revealjs") / "_static" / "revealjs" / "dist"
    mathjax = files("sphinx-mathjax-offline") / "static" / "mathjax" / "tex-svg.js"
    body = "\n".join(slide.as_html() for slide in made)
    data = json.dumps({"notes": notes, "glasses": glasses}, ensure_ascii=False).replace("<", "\\u003c")
    scripts = [(reveal / "reveal.js").read_text(encoding="utf-8")]
    if "\\(" in body or "\\[" in body:
        scripts += ["MathJax = {options: {enableMenu: false}}", mathjax.read_text(encoding="utf-8")]
    scripts += [(web / name).read_text(encoding="utf-8") for name in ("course.js", "slides.js")]
    styles = PRINT.sub("", (reveal / "reveal.css").read_text(encoding="utf-8"))
    styles += (web / "slides.css").read_text(encoding="utf-8")
    safe = (text.replace("</script", "<\\/script") for text in scripts)
    ready = "\n".join(f"<script>{text}</script>" for text in safe)
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{chapter.number} · {html.escape(chapter.title)}</title>
<link rel="icon" href="data:,">
<style>{styles}</style>
<div class="reveal"><div class="slides">
{body}
</div></div>
<script type="application/json" id="more">{data}</script>
{ready}
</html>
"""


def noted(note: Note) -> str:
    """Return a teacher's note as HTML for the presenter."""
    minutes, *said = note.lines()
    lines = "".join(f"<li>{inline(line)}</li>" for line in said)
    return f"<p>{minutes}</p><ul>{lines}</ul>"


# ------------------------------------------------------------------------------------------------------ from a notebook
class _Maker:
    """Make slides from a notebook, cell by cell. draw: a function that returns the HTML of a recorded figure."""

    def __init__(self, chapter: Chapter, notebook: NotebookNode, draw: Callable[[states.Recorded], str]):
        self.chapter, self.draw = chapter, draw
        self.cells = [cell for cell in notebook.cells if not is_note(cell)]
        self.first = next(cell for cell in self.cells if cell.cell_type == "code")
        self.asked = questions(chapter.slug)
        self.made: list[Slide] = []
        self.glasses: list[str] = []
        self.section = chapter.title
        self.waiting: list[str] = []  # prose for the next slide's notes
        self.since = 0  # number of slides when the last guess was asked
        self.last = ""  # the last sentence of prose
        self.guessed = ""  # the text of the guess whose answer has not been shown yet
        self.open = False  # whether the next prose belongs to its heading's slide

    def slides(self) -> list[Slide]:
        """Make the slides and return them."""
        self._title(self.cells[0].source)
        for cell in self.cells[1:]:
            if cell.cell_type == "markdown":
                self._prose(cell.source)
            elif cell is not self.first:
                self._code(cell)
                self.open = False
        self._spend()
        return self.made

    def _add(self, body: str, title: str = "", kind: str = "plain") -> Slide:
        slide = Slide(self.section, body, title, kind, self.waiting)
        self.waiting = []
        self.made.append(slide)
        return slide

    def _below(self, body: str, kind: str = "plain") -> Slide:
        """Add HTML below a heading and its opening text, or on a new slide if that slide already has a block."""
        slide = self.made[-1]
        if not self.open or "<div" in slide.body:
            return self._add(body, kind=kind)
        slide.body += body
        slide.kind = f"section {kind}"
        return slide

    def _spend(self) -> None:
        """Move the waiting prose to the notes of the last slide."""
        if self.made:
            self.made[-1].notes += self.waiting
        self.waiting = []

    # --------------------------------------------------------------------------------------------------------- prose
    def _title(self, source: str) -> None:
        parts = blocks(source)
        self.waiting = [markdown(part) for part in parts[1:]]
        goals = next((part for part in parts if kind_of(part) == "list"), "")
        asked = [part for part in parts[2:] if "?" in part]
        question = [each for part in asked for each in sentences(part) if each.endswith("?")]
        lead = f'<p class="key">{inline(question[-1])}</p>' if question else ""
        promise = f"<p>{inline(self.chapter.promise[:1].upper() + self.chapter.promise[1:])}.</p>"
        self._add(promise + lead + markdown(goals), f"{self.chapter.number} · {self.chapter.title}", "title")

    def _prose(self, source: str) -> None:
        """Read a Markdown cell. Headings and blocks such as formulas go on slides; most prose goes to the notes."""
        happened = DETAILS.search(source)
        if happened and self.made and "verdict" in self.made[-1].kind:
            told = markdown(happened[1])
            if len(happened[1].split()) <= LEAD + 15:
                self.made[-1].body += f'<div class="fragment measured">{told}</div>'
            self.made[-1].notes.append(told)
            source = source.replace(happened[0], "")
        before = ""
        for part in blocks(re.sub(r"</?details>|<summary>.*?</summary>", "", source)):
            heading, kind = HEADING.fullmatch(part), kind_of(part)
            if heading:
                self._spend()
                self.section = heading[2] if heading[1] == "##" else self.section
                self.open = heading[2] not in (*SILENT, "Check yourself")
                if self.open:
                    self._add("", heading[2], "section")
            elif self.section in SILENT:
                self.waiting.append(markdown(part))
            elif kind == "prose":
                self._paragraph(part)
            else:
                self._shown(part, kind, before)
            before = part if kind == "prose" else ""

    def _paragraph(self, text: str) -> None:
        self.last = sentences(text)[-1].replace("\n", " ")
        if self.open:
            slide = self.made[-1]
            if not slide.body:
                slide.body = f"<p>{inline(opening(text))}</p>"
            slide.notes.append(markdown(text))
        else:
            self.waiting.append(markdown(text))
            if key := next((found for found in KEY.findall(text) if len(found.split()) > 5), ""):
                self._add(f'<p class="key">{inline(key[:1].upper() + key[1:].rstrip("."))}.</p>')

    def _shown(self, part: str, kind: str, before: str) -> None:
        """Put a formula, list, table, code or quotation on its heading's slide if there is room, else on a new slide.

        A block that is too long for a slide goes to the notes.
        """
        if part.count("\n") > {"table": ROWS, "code": CODE + 2}.get(kind, 99):
            self.waiting.append(markdown(part))
            return
        body = markdown(part)
        if self.open and "<div" not in self.made[-1].body:
            self.made[-1].body += f'<div class="{kind}">{body}</div>'
            return
        lead = f"<p>{inline(sentences(before)[-1])}</p>" if before else ""
        self._add(f'{lead}<div class="{kind}">{body}</div>')

    # ---------------------------------------------------------------------------------------------------------- code
    def _code(self, cell: NotebookNode) -> None:
        ask = ASKS.fullmatch(cell.source.strip())
        live = states.recorded_in(self.chapter.slug, cell.source)
        if ask and ask[2] in self.asked:
            (self._guess if ask[1] == "guess" else self._reveal)(self.asked[ask[2]])
        elif live:
            figure = self.draw(live)
            (self._below if is_low(figure) else self._add)(figure, kind="figure")
        elif re.match(r"glass\(", cell.source.strip().split("\n")[-1]):
            self._glass(cell.source)
        else:
            for body, kind in shown(cell):
                if kind != "figure" and not self.open:
                    body = self.lead() + body
                small = body.count("\n") <= 12 if kind != "figure" else is_low(body)
                (self._below if small else self._add)(body, kind=kind)
                self.open, self.last = False, ""
            if settled := re.search(r"settle\((.+?)\)", cell.source):
                for id in SETTLES.findall(settled[1]):
                    self._claim(id)

    def lead(self) -> str:
        """Return the lead of a cell's output: the guess that it answers, or the last sentence before the cell."""
        if self.guessed:
            return f'<p class="asked">{inline(self.guessed)}</p>'
        whole = self.last.count("(") == self.last.count(")") and len(self.last.split()) <= 30
        return f"<p>{inline(self.last)}</p>" if self.last and whole else ""

    def _guess(self, question: Question) -> None:
        self._below(asking(question), "guess")
        self.since, self.last, self.guessed = len(self.made), "", question.text

    def _reveal(self, question: Question) -> None:
        """Add the answer, shown at a key press, to the guess's slide, or to a new one if others were made since."""
        last, self.guessed = self.made[-1], ""
        if len(self.made) == self.since and asking(question) in last.body:
            last.body = last.body.replace(asking(question), asking(question, True))
            last.kind = last.kind.replace("guess", "verdict")
            self._spend()
        else:
            self._add(asking(question, True), kind="verdict")

    def _claim(self, id: str) -> None:
        finding = recorded().get(id)
        if finding is None:  # the reader's own experiment
            return
        claim = find(id)
        self._add(
            f"<blockquote>{html.escape(claim.stated)}</blockquote><p class='who'>{html.escape(claim.by)}, "
            f"<cite>{html.escape(claim.source.title)}</cite></p><p><b>Control:</b> {html.escape(claim.control)}</p>"
            f'<div class="fragment"><p><b class="verdict">{finding.verdict}</b> {html.escape(finding.because)}</p>'
            f"<p><b>Measured:</b> {html.escape(finding.measured)}</p></div>",
            kind="claim",
        )

    def _glass(self, source: str) -> None:
        """Add a glass model with the notebook's arguments: of the model that the chapter makes for it, or of the one
        that ships with the course."""
        made = states.glass_model(self.chapter.slug, source)
        told: dict[str, Any] = dict(zip(("model", "tokenizer"), made[1]())) if made else {}
        names: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(self.first.source, names)
            for each in states.recorded_figures():
                if each.slug == self.chapter.slug and "head" in each.prepare:
                    exec(each.prepare, names)
        last = ast.parse(source).body[-1]
        call = last.value if isinstance(last, ast.Expr) else None
        for keyword in call.keywords if isinstance(call, ast.Call) else ():
            told[str(keyword.arg)] = eval(compile(ast.Expression(keyword.value), "notebook", "eval"), names)
        self.glasses.append(glass_page(**told).replace("</style>", f"{WIDE}</style>", 1))
        self._add(
            f'<iframe class="glass" title="The glass model" data-glass="{len(self.glasses) - 1}"></iframe>', kind="live"
        )


def shown(cell: NotebookNode) -> Iterator[tuple[str, str]]:
    """Yield (HTML, kind) for each part of a code cell that a slide shows: pictures, and short code with its output."""
    printed, pictures, quoted = [], [], []
    for output in cell.outputs:
        data = output.get("data", {})
        if output.output_type == "stream":
            printed.append(output.text)
        elif "text/markdown" in data:
            quoted.append(data["text/markdown"].strip())
        elif image := IMAGE.search(data.get("text/html", "")):
            alt = re.search(r'alt="([^"]*)"', image[0])
            size = "".join(re.findall(r'(?:width|height)="\d+" ?', image[0]))
            pictures.append(f'<img alt="{alt[1] if alt else ""}" {size}src="data:image/{image[2]};base64,{image[3]}">')
    text = "".join(printed).strip("\n").split("\n") if "".join(printed).strip() else []
    fits = len(text) <= LINES and max(map(len, text), default=0) <= WIDTH
    code = told_code(cell.source)
    defines = bool(re.match(r"(class|def) ", code[0])) if code else False
    if code and fits and (text or defines) and len(code) + len(text) <= (CODE if defines else BOTH):
        yield coloured("\n".join(code)) + (_pre(text) if text else ""), "code"
    elif text and fits:
        yield _pre(text), "printed"
    for source in quoted:
        inside = source.removeprefix("```python").removesuffix("```").strip("\n")
        if inside.count("\n") < CODE - 2 and max(map(len, inside.split("\n"))) <= WIDTH:
            yield coloured(inside), "code"
    for picture in pictures:
        yield f'<figure class="picture">{picture}</figure>', "figure"


def is_low(figure: str) -> bool:
    """Return whether a figure is at least twice as wide as high, so that a heading fits above it."""
    width, height = (re.search(rf'{name}="(\d+)"', figure) for name in ("width", "height"))
    return bool(width and height and int(width[1]) >= 2 * int(height[1]))


def told_code(source: str) -> list[str]:
    """Return the lines of a cell's code to show: its classes, or all code if it prints little; none if it is long."""
    tree = ast.parse(source)
    lines = source.strip().split("\n")
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    if classes:
        kept = lines[classes[0].lineno - 1 : classes[-1].end_lineno]
    else:
        prints = sum(line.lstrip().startswith(("print(", 'f"', "show(")) for line in lines)
        calls = any(
            ast.unparse(node).startswith(("settle(", "climb(", "source(", "show(", "live.")) for node in tree.body
        )
        kept = [] if calls or prints > len(lines) / 2 else lines
    return kept if len(kept) <= CODE and max(map(len, kept), default=0) <= WIDTH else []


def asking(question: Question, answered: bool = False) -> str:
    """Return a question with its options. answered: add the answer and the reason, shown at a key press."""
    if question.number:
        options = f'<p class="key">… {html.escape(question.number.unit)}</p>'
    else:
        marked = [' class="right"' if answered and option == question.answer else "" for option in question.shown]
        options = "".join(f"<li{mark}>{html.escape(option)}</li>" for mark, option in zip(marked, question.shown))
        options = f'<ol type="A">{options}</ol>'
    number = f"<p><b>{html.escape(question.answer)}</b></p>" if question.number else ""
    told = f'<div class="fragment answer">{number}{markdown(question.reply(question.answer))}</div>'
    return f'<div class="question">{markdown(question.text)}</div>{options}{told if answered else ""}'


def figure_of(figure: states.Recorded, notebooks: Path) -> str:
    """Return a recorded figure with its pictures embedded."""
    with tempfile.TemporaryDirectory() as folder:
        made = drawn(figure, notebooks, Path(folder))
        for path in Path(folder).iterdir():
            code = base64.b64encode(path.read_bytes()).decode()
            inside = f"data:{mimetypes.types_map.get(path.suffix, 'image/webp')};base64,{code}"
            made = made.replace(f"../pictures/{path.name}", inside).replace(path.name, inside)
    return made


# --------------------------------------------------------------------------------------------------------------- text
def blocks(source: str) -> list[str]:
    """Return the blocks of a Markdown cell. A heading is always a separate block."""
    source = re.sub(r"^(#{1,3} .+)$", r"\n\1\n", source, flags=re.MULTILINE)
    found, fence = [], ""
    for part in re.split(r"\n\s*\n", source):
        fence = f"{fence}\n\n{part}" if fence else part
        if fence.count("```") % 2 == 0 and fence.count("$$") % 2 == 0:
            if fence.strip():
                found.append(fence.strip())
            fence = ""
    return found


def kind_of(block: str) -> str:
    """Return the kind of a block: formula, table, list, code, quotation or prose."""
    if block.startswith("$$"):
        return "formula"
    signs = {"|": "table", "- ": "list", "* ": "list", "1. ": "list", "```": "code", "> ": "quotation"}
    return next((kind for sign, kind in signs.items() if block.startswith(sign)), "prose")


def sentences(text: str) -> list[str]:
    """Return the sentences of a paragraph."""
    return re.split(r"(?<=[.?:!])\s+(?=[A-Z“\"*`(])", text.strip()) or [text]


def opening(text: str) -> str:
    """Return the first sentences of a paragraph, at least one and as many as fit on a slide."""
    kept: list[str] = []
    for sentence in sentences(text):
        if kept and len(" ".join([*kept, sentence]).split()) > LEAD:
            break
        kept.append(sentence)
    return " ".join(kept)


def markdown(text: str) -> str:
    """Return Markdown as HTML, with formulas for MathJax."""
    return _parser().render(NEAR.sub(r"\1", text))


def inline(text: str) -> str:
    """Return a line of Markdown as HTML without a <p> element."""
    return _parser().renderInline(NEAR.sub(r"\1", text))


def _parser():
    from markdown_it import MarkdownIt
    from mdit_py_plugins.dollarmath import dollarmath_plugin

    def formula(content: str, config: dict) -> str:
        before, after = ("\\[", "\\]") if config["display_mode"] else ("\\(", "\\)")
        return f"{before}{html.escape(content)}{after}"

    return MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, renderer=formula)


def coloured(code: str) -> str:
    """Return Python code as HTML with syntax highlighting."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    style = HtmlFormatter(noclasses=True, nobackground=True, style="a11y-high-contrast-light")
    return highlight(code, PythonLexer(), style)


def _pre(lines: list[str]) -> str:
    return f'<pre class="output">{html.escape(chr(10).join(lines))}</pre>'
