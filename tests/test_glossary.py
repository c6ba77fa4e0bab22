"""The glossary: every term stands in bold where its chapter first uses it, and the page of terms is up to date."""

import json
import re
from pathlib import Path

import pytest

from course_lib.course.contents import BY_SLUG, CHAPTERS
from course_lib.course.glossary import Term, all_terms, glossary, read_terms, section
from course_lib.course.handout import for_learners

NOTEBOOKS = Path(__file__).parent.parent / "notebooks"


def prose(term: Term) -> list[str]:
    """The paragraphs of a chapter's notebook after its head; without code, headings and the teacher's notes."""
    cells = json.loads(for_learners((NOTEBOOKS / term.chapter.notebook).read_bytes()))["cells"]
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"][1:]
    return [re.sub(r"```.*?```|`[^`]*`|^#+ [^\n]*$|\$[^$]*\$", " ", text, flags=re.S | re.M) for text in texts]


def test_the_glossary_is_as_the_chapters_have_it():
    found = (NOTEBOOKS / "glossary.md").read_text(encoding="utf-8")
    assert found == glossary(NOTEBOOKS), "run `python -m course_lib refresh --exercises-only`"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
def test_a_term_is_defined_where_its_chapter_first_uses_it(chapter):
    late = []
    for term in [term for term in all_terms() if term.chapter == chapter]:
        word = re.compile(rf"(?<![\w-]){re.escape(term.name)}s?(?![\w-])", re.IGNORECASE)
        text = "\n\n".join(prose(term))
        used, defined = word.search(text), term.bold.search(text)
        assert defined, f"{term.name} is not in bold below the head of {chapter.notebook}"
        if used and used.start() < defined.start() - 2:
            late.append(f"{term.name}: used in “{text[max(0, used.start() - 40) : used.end() + 30]}”")
    assert not late, "\n".join(late)


def test_every_chapter_that_teaches_a_part_defines_terms():
    teaching = CHAPTERS[1:-1]  # the last one puts parts together that earlier chapters taught
    by_chapter = [sum(term.chapter == chapter for term in all_terms()) for chapter in teaching]
    assert min(by_chapter) >= 3, dict(zip([chapter.slug for chapter in teaching], by_chapter))


def test_a_page_is_read_as_it_is_written():
    heads = BY_SLUG["heads"]
    one, two = read_terms("## head\nalso: heads, a head\nOne of several\nattentions.\n\n## W_O\nMixes heads.\n", heads)
    assert one == Term("head", ("heads", "a head"), "One of several attentions.", heads)
    assert two == Term("W_O", (), "Mixes heads.", heads)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Words\n## head\nOne.", r"chapters/heads/glossary.md:1: a page must begin"),
        ("## a\nOne.\n\n## head\n", ":4: 'head'"),
    ],
)
def test_a_page_that_is_wrong_is_refused_with_its_line(text, message):
    with pytest.raises(ValueError, match=message):
        read_terms(text, BY_SLUG["heads"])


def test_a_term_is_found_in_its_section(tmp_path):
    cells = ["# Title", "## 1.1 First\ntext", "## 1.2 Second\nA **Head** is one.\n### later"]
    notebook = tmp_path / "n.ipynb"
    notebook.write_text(
        json.dumps({"cells": [{"cell_type": "markdown", "id": cell[:6], "source": [cell]} for cell in cells]})
    )
    assert section(Term("head", (), "x", BY_SLUG["heads"]), notebook) == ("1.2 Second", "## 1.2")
    with pytest.raises(ValueError, match=r"no \*\*tail\*\* in bold"):
        section(Term("tail", (), "x", BY_SLUG["heads"]), notebook)
