"""Write the input of Sphinx: notebooks that need no kernel, exercises with folded hints, and the claims."""

import base64
import hashlib
import html
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlencode

import nbformat
from nbformat import NotebookNode

from course_lib.claims import VERDICTS, Experiment, Finding, in_order, recorded
from course_lib.claims.card import figure, rows_as_html
from course_lib.course.contents import BY_SLUG, CHAPTERS, Chapter
from course_lib.course.glossary import glossary
from course_lib.gpt import DecoderOnly
from course_lib.grading.page.catalogue import EXERCISES
from course_lib.hub import weights
from course_lib.lessons.notes import is_note
from course_lib.live.glass import HEADINGS, OF_A_MODEL, packed_small
from course_lib.live.glass import html as glass_page
from course_lib.live.guesses import MARKDOWN, questions
from course_lib.live.page import STILL, WAKE
from course_lib.pretrained import load_pretrained
from course_lib.site.about import GITHUB, Course, course_of, places
from course_lib.site.states import glass_model, recorded_in

ASKS = re.compile(r'(guess|reveal)\("([\w.]+)"\)')
CHECKS = re.compile(r'check\("([\w.]+)"')
SCRIPTS = re.compile(r"<(style|script)\b.*?</\1>", re.DOTALL)
IMAGE = re.compile(r'<img\b([^>]*?)src="data:image/(\w+);base64,([^"]+)"([^>]*)>')
LINK = re.compile(r"\(([\w./]*\.ipynb)#([^\s)]+)\)")
FILE = re.compile(r"\[([^\]\n]+)\]\(\.\./((?!(?:notebooks|exercises)/[\w.]+\.(?:ipynb|md))[\w./-]+)\)")
MARKS = re.compile(r"([\\`*_{}\[\]<>$|#~^])")
LIVE_STILL = re.compile(rf'<div class="{STILL}">.*<img', re.DOTALL)  # a picture that replaces a widget
# These lines go above a figure, because the text before it may mention its controls.
MOVES = '<p class="aside">This figure was recorded for one slider. In JupyterLab, all its controls work.</p>'
STANDS = '<p class="aside">This figure is a still picture. In JupyterLab, its sliders, menus and buttons work.</p>'
GLASS = re.compile(r"glass\(.*")  # the last line of a cell that shows the glass model
GLASS_TEXT, GLASS_PART = re.compile(r"\[glass model\] “(.+?)” …"), re.compile(r"Open: ([\w.]+)\.$")
FRAME = '<iframe class="glass" src="{}.html{}" loading="lazy" title="A small trained model, taken apart"></iframe>'
PYTHON = ".venv/bin/python -m"
LEARN = re.compile(r"^python3 -m venv .* start$", re.MULTILINE)  # the README's first command


def write_pages(root: Path, folder: Path, figures: Mapping[str, str], large: bool = False) -> None:
    """Write all pages into an existing folder.

    Args:
        root: the repository. figures: the call of each live figure -> the HTML with its recorded states.
        large: include the large model, whose weights must have been fetched.
    """
    pictures = folder / "_extra" / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    course = course_of(root)
    repository = course.repository
    for kind in ("notebooks", "exercises"):
        (folder / kind).mkdir()
        for path in sorted((root / kind).glob("*.ipynb")):
            notebook = nbformat.read(path, as_version=4)
            chapter = BY_SLUG[path.stem.partition("_")[2]]
            page = prepared(notebook, chapter, pictures, figures, repository)
            commands = any("`python -m course_lib" in cell.source for cell in notebook.cells)
            top = _run_it(f"{kind}/{path.name}", repository, commands)
            page.cells.insert(1, nbformat.v4.new_markdown_cell(top))
            nbformat.write(page, folder / kind / path.name)
    terms = relinked(glossary(root / "notebooks", by_heading=True))
    (folder / "notebooks" / "glossary.md").write_text(terms, encoding="utf-8")
    (folder / "claims").mkdir()
    findings = recorded()
    told = [each for each in in_order() if each.id in findings]
    for each in told:
        (folder / "claims" / f"{each.id}.md").write_text(claim(each, findings[each.id], course), encoding="utf-8")
    (folder / "claims" / "index.md").write_text(claims_index(told, findings), encoding="utf-8")
    (folder / "index.md").write_text(first_page(root, folder, large), encoding="utf-8")


# ---------------------------------------------------------------------------------------------------------- notebooks
def prepared(
    notebook: NotebookNode, chapter: Chapter, pictures: Path, figures: Mapping[str, str], repository: str = ""
) -> NotebookNode:
    """Return a notebook for a page without a kernel, without widgets and scripts. Its pictures are written as files.

    Args:
        pictures: the folder for pictures; its address on the page is `../pictures`.
        figures: as in `write_pages`. repository: "owner/name" on GitHub, for links to other files.
    """
    asked = questions(chapter.slug)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    cells = []
    for cell in notebook.cells:
        if is_note(cell):
            continue
        cells.append(cell)
        if cell.cell_type != "code":
            cell.source = relinked(cell.source, repository)
            continue
        tags = ["hide-output"] if cell.metadata.get("jupyter", {}).get("outputs_hidden") else []
        ask, live = ASKS.fullmatch(cell.source.strip()), recorded_in(chapter.slug, cell.source)
        if ask and ask[1] == "guess" and ask[2] in asked:
            tags, outputs = [], [_shown(guess(asked[ask[2]]))]
        elif live and live.call in figures:
            outputs = [_shown(MOVES + figures[live.call])]
        elif GLASS.fullmatch(cell.source.rsplit("\n", 1)[-1]):
            name = _glass_of(chapter, cell.source, pictures.parent)
            outputs = [_shown(FRAME.format(f"../{name}", _begins(cell)))]
        else:
            outputs = [kept for output in cell.outputs if (kept := _kept(output, pictures))]
        about: dict = {"tags": tags}
        if ask:
            about = {"tags": [*tags, "remove-input"], "mystnb": {"code_prompt_show": "The answer"}}
        elif cell is first:
            about = {"tags": ["hide-input"], "mystnb": {"code_prompt_show": "What this page imports"}}
        cell.outputs = outputs
        cell.metadata = nbformat.from_dict(about)
        for id in CHECKS.findall(cell.source) if not cell.outputs else ():
            cells.append(nbformat.v4.new_markdown_cell(hints(EXERCISES[id].hints)))
    return nbformat.v4.new_notebook(cells=cells, metadata=notebook.metadata)


def _shown(text: str) -> NotebookNode:
    return nbformat.v4.new_output("display_data", {"text/html": text, "text/plain": ""})


def _kept(output: NotebookNode, pictures: Path) -> NotebookNode | None:
    """Return an output without the parts that need a kernel; None if nothing remains."""
    if "data" not in output:
        return output
    data = {kind: text for kind, text in output.data.items() if not kind.startswith("application/")}
    if "text/html" in data:
        still, moves = LIVE_STILL.match(data["text/html"]), WAKE in data["text/html"]
        data["text/html"] = (STANDS if still and moves else "") + tidy(data["text/html"].replace(WAKE, ""), pictures)
        if not re.sub(r"</?div[^>]*>", "", data["text/html"]).strip():
            return None
    output.data = nbformat.from_dict(data)
    return output if data else None


def tidy(text: str, pictures: Path) -> str:
    """Return an output's HTML without styles and scripts. Its pictures are written as files and framed as figures."""

    def as_file(match: re.Match) -> str:
        before, kind, code, after = match.groups()
        image = base64.b64decode(code)
        name = f"{hashlib.sha256(image).hexdigest()[:16]}.{kind}"
        (pictures / name).write_bytes(image)
        shown = f'<img{before}src="../pictures/{name}" loading="lazy"{after}>'
        return shown if framed else f'<figure class="picture">{shown}</figure>'

    text = SCRIPTS.sub("", text)
    framed = "<figure" in text
    return IMAGE.sub(as_file, re.sub(r"<figure\b[^>]*>", '<figure class="picture">', text))


def guess(question) -> str:
    """Return a question as HTML, with its options but without its answer."""
    options = "".join(f"<li>{html.escape(option)}</li>" for option in question.shown)
    return (
        f'<div class="guess"><p><strong>Predict. {MARKDOWN.renderInline(question.text)}</strong></p>'
        + (f"<ul>{options}</ul>" if options else "")
        + "</div>"
    )


def hints(texts) -> str:
    """Return an exercise's hints as Markdown, each folded separately."""
    folded = "\n\n".join(
        f"<details><summary>Hint {number} of {len(texts)}</summary>\n\n{text}\n\n</details>"
        for number, text in enumerate(texts, start=1)
    )
    return f"**Hints**, one at a time\n\n{folded}"


def anchor(title: str) -> str:
    """Return the anchor of a heading: JupyterLab's, without the characters that must be encoded in an address."""
    return re.sub(r"[^\w.-]", "", title.replace(" ", "-"))


def relinked(markdown: str, repository: str = "") -> str:
    """Return Markdown with links that work on the site. Links into notebooks get the anchors of the pages.

    Links to other files lead to GitHub; without a repository, they become plain text.
    """
    to = rf"[\1]({GITHUB}{repository}/blob/main/\2)" if repository else r"\1"
    return LINK.sub(lambda match: f"({match[1]}#{anchor(unquote(match[2]))})", FILE.sub(to, markdown))


def _run_it(path: str, repository: str, commands: bool = False) -> str:
    """Return the box that says how to run this page as a notebook. commands: whether the page has terminal commands."""
    links = (f' · <a href="{html.escape(link)}">Open in {name}</a>' for name, link in places(repository, path).items())
    course = f'<a href="{GITHUB}{repository}">the course</a>' if repository else "the course"
    why = "Solve these exercises in JupyterLab, where each answer is checked at once. Open the notebook"
    if path.startswith("notebooks/"):
        why = "The outputs on this page were recorded. To run and change the notebook, open it in JupyterLab"
    command = f"{PYTHON} course_lib start {path}"
    words = f"commands on this page are for its terminal; in another one, write <code>{PYTHON}</code> for python -m"
    said = f" ({words})" if commands else ""
    return f'<div class="run-it">{why} from your copy of {course}: <code>{command}</code>{said}{"".join(links)}</div>'


# ------------------------------------------------------------------------------------------------------------- claims
def literal(text: str) -> str:
    """Return plain text with its special characters escaped for Markdown."""
    return MARKS.sub(r"\\\1", text)


def claim(experiment: Experiment, finding: Finding, course: Course) -> str:
    """Return the page of a claim: its statement, verdict, measurement and control, the command that runs it, and how to
    cite and share it."""
    chapter, who = CHAPTERS[experiment.chapter], experiment.source
    figures = ", ".join(map(figure, finding.values))
    timed = " The times were measured on the authors’ machine; yours will differ." if experiment.timed else ""
    ours = "" if experiment.verbatim else " The wording of the claim is ours."
    outcomes = "\n".join(f"- **{verdict}**: {literal(when)}" for verdict, when in experiment.outcomes.items())
    sizes = "\n".join(f"- {literal(str(each))}" for each in finding.tried)
    tried = f"**Also tried:**\n\n{sizes}\n\n" if sizes else ""
    rows = f"{rows_as_html(finding.rows)}\n\n" if finding.rows else ""
    path = f"claims/{experiment.id}.html"
    cited = course.cited(path, f"{experiment.stated.removesuffix('.')} (verdict: {finding.verdict})")
    share = (
        f'<p class="share"><strong>Share this page:</strong> <code>{course.page(path)}</code></p>\n\n'
        if course.home
        else ""
    )
    return f"""# {literal(experiment.stated)}

[← All claims](index.md) · chapter [{chapter.number} · {literal(chapter.title)}](../notebooks/{chapter.notebook})

{_badge(finding.verdict)} {literal(finding.because)}

**Measured:** {literal(finding.measured.removesuffix("."))}{experiment.basis(finding)}.{timed}

{rows}**The author’s words:** “{literal(who.quote)}”

{literal(who.author)}, [{literal(who.title)}](<{who.link}>), {literal(who.place)}.{ours}

**Control:** {literal(experiment.control)}

**Possible outcomes, stated before the run:**

{outcomes}

{tried}**Run it yourself:**

```console
{PYTHON} course_lib claims {experiment.id}
```

**Cite this claim:** {literal(cited)}

{share}<details><summary>The figures and the code that measures them</summary>

{figures}

```python
{inspect.getsource(experiment.decide).rstrip()}


{inspect.getsource(experiment.run).rstrip()}
```

</details>
"""


def _badge(verdict: str) -> str:
    """Return a verdict with its mark, as Markdown."""
    sign = BY_SLUG["claims"].part("widgets").SIGNS[verdict]  # type: ignore[union-attr]
    return f"[{sign} {verdict}]{{.verdict .{verdict.replace(' ', '-')}}}"


def claims_index(told: list[Experiment], findings: Mapping[str, Finding]) -> str:
    """Return the page that lists all claims by chapter."""
    verdicts = [findings[each.id].verdict for each in told]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in VERDICTS if verdict in verdicts)
    lines = [
        "# The claims",
        "",
        f"{len(told)} popular claims about Transformers, each tested against a control: {counts}.",
    ]
    for chapter in CHAPTERS:
        own = [each for each in told if each.chapter == chapter.number]
        if own:
            lines += ["", f"## {chapter.number} · {chapter.title}", "", "| verdict | claim |", "|---|---|"]
            lines += [
                f"| {_badge(findings[each.id].verdict)} | [{literal(each.stated)}](<{each.id}.md>)"
                f"<br><small>{literal(findings[each.id].measured)}</small> |"
                for each in own
            ]
    return "\n".join([*lines, "", _toctree("", [each.id for each in told], hidden=True)])


# --------------------------------------------------------------------------------------------------------- first page
def first_page(root: Path, folder: Path, large: bool = False) -> str:
    """Return the first page, and write the file of the glass model. large: as in `write_pages`."""
    chapters = [each for each in CHAPTERS if (root / "notebooks" / each.notebook).is_file()]
    solve = [each for each in CHAPTERS if (root / "exercises" / each.notebook).is_file()]
    rows = [
        f"| {each.number} | [{each.title}](notebooks/{each.notebook}) | {each.promise} | {each.minutes} | "
        + (f"[solve](exercises/{each.notebook}) |" if each in solve else "|")
        for each in chapters
    ]
    course = course_of(root)
    source = f"[the course]({course.source}) ([ZIP file]({course.archive}))"
    copy = f"a copy of {source}" if course.repository else "a copy of the course"
    exercises = [f"{each.number} · {each.title} <exercises/{Path(each.notebook).stem}>" for each in solve]
    return "\n".join(
        [
            "# Transformers, Measured",
            "",
            "An interactive course on the Transformer, from token embeddings to sampling. **You measure most of what "
            "it says about Transformers yourself, on a laptop; each measurement takes about a minute.** Guess first, "
            "run the experiment with its control, and use your own functions in a model that grows through the course.",
            "",
            _top(folder, large),
            "",
            "You can read the course here, with its pictures and outputs. Begin with "
            f"[{chapters[0].title}](notebooks/{chapters[0].notebook}). To run it, change it and have your answers "
            f"checked, get {copy}. With Python 3.11 or newer, this command in its folder installs the course and opens "
            f"it in JupyterLab. The next day, run only `{PYTHON} course_lib start`:",
            "",
            f"```console\n{LEARN.findall((root / 'README.md').read_text(encoding='utf-8'))[0]}\n```",
            "",
            "## The chapters",
            "",
            "| | chapter | what it is about | minutes | exercises |",
            "|---|---|---|---|---|",
            *rows,
            "",
            "## For reference",
            "",
            "- [The claims](claims/index.md): popular claims, each with its source, its control and a verdict.",
            "- [The glossary](notebooks/glossary.md): the terms, and where each is defined.",
            '- <a href="search.html">Search</a> the whole course.',
            "",
            _toctree("Chapters", [f"notebooks/{Path(each.notebook).stem}" for each in chapters]),
            _toctree("Exercises", exercises),
            _toctree("Look up", ["claims/index", "notebooks/glossary"]),
        ]
    )


def _glass_of(chapter: Chapter, source: str, extra: Path) -> str:
    """Return the name of the page of the model that a cell shows in the glass. A chapter's own model gets its page
    here."""
    made = glass_model(chapter.slug, source)
    if made is None:
        return "glass"
    name = f"glass-{chapter.slug}-{made[0]}"
    model, tokenizer = made[1]()
    (extra / f"{name}.html").write_text(glass_page(model, tokenizer, home="index.html"), encoding="utf-8")
    return name


def _begins(cell: NotebookNode) -> str:
    """Return the fragment of the glass model's address that gives it the same text and open part as in the notebook."""
    words = "".join(output.get("data", {}).get("text/plain", "") for output in cell.outputs)
    said, part = GLASS_TEXT.search(words), GLASS_PART.search(words)
    asked = ({"text": said[1]} if said else {}) | ({"part": part[1]} if part else {})
    return html.escape(f"#{urlencode(asked)}") if asked else ""


def _toctree(caption: str, pages: list[str], hidden: bool = True) -> str:
    options = [f":caption: {caption}"] if caption else []
    return "\n".join(["```{toctree}", ":hidden:", ":titlesonly:", *options, *pages, "```", ""])


LARGE = "smollm2-135m"  # more than three times the size of the rest of the site, so only --large includes it
MODELS = '<p class="models">Models for the frame above: {}</p>'
TINYTOWN = (
    '<a href="glass.html" target="glass">Tinytown\'s model</a>, 850,000 weights, trained on a small artificial world '
    "whose entropy is known"
)
IN_ENGLISH = {  # models that `python -m course_lib weights` may have fetched -> (text of the link, text after it)
    "stories15m": (
        "a model of 15 million weights that tells children's stories in English",
        "when you ask for it",
    ),
    LARGE: (
        "a model of 135 million weights that knows something about the world",
        "when you ask for it, and 0.8 GB of memory: for a laptop, not for a phone",
    ),
}


def _top(folder: Path, large: bool) -> str:
    """Write the page of the glass model, and return its frame with links to the English models that were fetched."""
    extra = folder / "_extra"
    (extra / "glass.html").write_text(glass_page(home="index.html"), encoding="utf-8")
    frame = FRAME.format("glass", "").replace(" src", ' name="glass" src')  # so that the links below open in this frame
    here = [name for name in IN_ENGLISH if (large if name == LARGE else weights.state(name) == "here")]
    links = [TINYTOWN, *(_in_english(name, extra) for name in here)]
    return f"{frame}\n{MODELS.format(' · '.join(links)) if here else ''}"


def _in_english(name: str, extra: Path) -> str:
    """Write the page of a model trained on English and the file of its weights, and return a link to the page."""
    model, tokenizer = load_pretrained(name)
    assert isinstance(model, DecoderOnly)
    packed = packed_small(model, tokenizer)
    (extra / f"{name}.bin").write_bytes(packed)
    beside, home = f"{name}.bin", "index.html"
    page = glass_page(model, tokenizer, sentences=OF_A_MODEL[name], beside=beside, heading=HEADINGS[name], home=home)
    (extra / f"{name}.html").write_text(page, encoding="utf-8")
    link, costs = IN_ENGLISH[name]
    return f'<a href="{name}.html" target="glass">{link}</a>, {len(packed) / 1e6:.1f} MB {costs}'
