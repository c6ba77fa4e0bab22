"""The glossary: join the terms that the chapters define into `notebooks/glossary.md`.

`chapters/<slug>/glossary.md` has the terms of a chapter, in the order in which its notebook defines them:

    ## self-attention
    also: self attention
    Attention in which queries, keys and values all come from the same sequence.

In the notebook, the term or one of the forms after `also:` is in bold where it is defined. The glossary links there.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from course_lib.course.contents import CHAPTERS, Chapter

PAGE = "glossary.md"
FOLDERS = Path(__file__).parent.parent / "chapters"
SECTION = re.compile(r"^#{2,3} (\S.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Term:
    """Hold a term: its name, its other forms, its definition (Markdown, one paragraph) and its chapter."""

    name: str
    also: tuple[str, ...]
    says: str
    chapter: Chapter

    @property
    def bold(self) -> re.Pattern[str]:
        """Return the pattern that finds the term in bold, where it is defined."""
        forms = "|".join(map(re.escape, (self.name, *self.also)))
        return re.compile(rf"\*\*(?:{forms})[.,:;]?\*\*", re.IGNORECASE)


def read_terms(text: str, chapter: Chapter) -> list[Term]:
    """Return the terms of a chapter's page. Errors: ValueError, with file and line, for a wrong format."""
    where = f"chapters/{chapter.slug}/{PAGE}"
    terms: list[Term] = []
    blocks = re.split(r"^## ", text, flags=re.MULTILINE)
    if blocks[0].strip():
        raise ValueError(f"{where}:1: a page must begin with its first term, such as ## self-attention")
    line = 1
    for block in blocks[1:]:
        name, *rest = (row.strip() for row in block.strip().split("\n"))
        also = rest.pop(0).removeprefix("also:") if rest and rest[0].startswith("also:") else ""
        says = " ".join(filter(None, rest))
        if not says:
            raise ValueError(f"{where}:{line}: {name!r} has no definition: write it below the term, in a sentence")
        forms = tuple(form.strip() for form in also.split(",") if form.strip())
        terms.append(Term(name, forms, says, chapter))
        line += block.count("\n")
    return terms


def all_terms() -> list[Term]:
    """Return the terms of all chapters, in course order. Errors: ValueError if two chapters define the same term."""
    terms: dict[str, Term] = {}
    for chapter in CHAPTERS:
        path = FOLDERS / chapter.slug / PAGE
        for term in read_terms(path.read_text(encoding="utf-8"), chapter) if path.exists() else ():
            if other := terms.get(term.name.lower()):
                raise ValueError(
                    f"chapters/{chapter.slug}/{PAGE} defines {term.name!r}, as {other.chapter.slug} does: keep one"
                )
            terms[term.name.lower()] = term
    return list(terms.values())


def section(term: Term, notebook: Path) -> tuple[str, str]:
    """Return the heading of the section that defines a term ("" before the first heading), and the id of the cell.

    Errors: ValueError if no cell has the term in bold.
    """
    heading = ""
    for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "markdown":
            continue
        text = "".join(cell["source"])
        found = term.bold.search(text)
        headings = [match for match in SECTION.finditer(text) if not found or match.start() < found.start()]
        heading = headings[-1][1] if headings else heading
        if found:
            return heading, cell.get("id", "")
    raise ValueError(
        f"{notebook.name} has no **{term.name}** in bold: set it in bold where it is defined, or take it out of "
        f"chapters/{term.chapter.slug}/{PAGE}"
    )


def glossary(notebooks: Path, by_heading: bool = False) -> str:
    """Return the text of the glossary: the terms of all chapters in `notebooks`, with links to their definitions.

    by_heading: link to headings, for the web edition, which has no cells. JupyterLab finds every cell by its id, but
        finds headings by their text only if they are ASCII.
    """
    lines = [
        "# Glossary",
        "",
        "The terms of the field, as the chapters define them.",
        "",
        "| term | what it is | where |",
        "|---|---|---|",
    ]
    here = [term for term in all_terms() if (notebooks / term.chapter.notebook).is_file()]
    for term in sorted(here, key=lambda term: term.name.lower()):
        heading, cell = section(term, notebooks / term.chapter.notebook)
        anchor = quote(heading.replace(" ", "-")) if by_heading else f"cell-id={cell}"
        number = re.match(r"[\d.]*\d", heading)
        place = f"§\N{NO-BREAK SPACE}{number[0]}" if number else heading or f"chapter {term.chapter.number}"
        link = f"[{term.chapter.number} · {term.chapter.title}, {place}]({term.chapter.notebook}#{anchor})"
        short = [form for form in term.also if sum(map(str.isupper, form)) > 1]  # abbreviations such as LoRA
        name = f"**{term.name}**" + (f" ({', '.join(short)})" if short else "")
        lines.append(f"| {name} | {term.says.replace('|', chr(92) + '|')} | {link} |")
    return "\n".join(lines) + "\n"
