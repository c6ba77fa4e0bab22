"""The prose is plain English, as far as a pattern or a grammar checker can tell: `.github/ENGLISH.md` has the rules."""

import json

import pytest

from tests.english import CHECKED, LISTS, ROOT, grammar, turns, words

RARE = 1.5  # per 1,000 words of a file


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_prose_has_no_banned_turn_and_few_rare_ones(path):
    banned, rare = list(turns(path, "banned")), list(turns(path, "rare"))
    assert not banned, "\n".join(map(str, banned))
    assert len(rare) <= max(1, RARE * words(path) / 1000), "\n".join(map(str, rare))


# Harper reads code for words and strings for sentences: of Python only the turns are checked.
@pytest.mark.parametrize(
    "path", [path for path in CHECKED if path.suffix != ".py"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_prose_is_spelt_and_built_as_harper_expects(path):
    places = list(grammar(path))
    assert not places, "\n".join(map(str, places))


def test_each_place_is_told_with_its_line_in_the_file(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A title\n\nGood text.\nIt stands here, too.\n`nobody` and “beside” are left out.\n", encoding="utf-8"
    )
    assert [(place.line, place.found) for place in turns(page, "banned")] == [(4, "stands here"), (4, ", too")]
    cells = [
        {"cell_type": "markdown", "source": ["Good text.\n", "Read it anew.\n", "The the end."]},
        {"cell_type": "code", "source": ["x = 1  # anew"]},
    ]
    notebook = tmp_path / "notebook.ipynb"
    notebook.write_text(json.dumps({"cells": cells}, indent=1), encoding="utf-8")
    (anew,), (doubled,) = turns(notebook, "banned"), grammar(notebook)
    lines = notebook.read_text(encoding="utf-8").splitlines()
    assert "Read it anew" in lines[anew.line - 1]
    assert "The the end" in lines[doubled.line - 1]


@pytest.mark.parametrize("kind", ["banned", "rare"])
def test_each_turn_says_what_to_write_instead(kind):
    assert all(instead.strip() for instead in LISTS[kind].values())


def test_words_of_the_field_are_few_and_in_order():
    known = LISTS["spelling"]["words"]
    assert known == sorted(set(known))
    assert all(word == word.lower() for word in known)
