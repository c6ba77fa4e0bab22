"""The teacher's notes and the courses planned from them: in their form, true to the exercises, and no learner's."""

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_notebook

from course_lib.__main__ import main
from course_lib.course.contents import BY_SLUG, CHAPTERS
from course_lib.course.handout import for_learners
from course_lib.grading import EXERCISES
from course_lib.lessons import plan
from course_lib.lessons.notes import is_note, notes_of, read_notes

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ROOT / "notebooks"
EVERY = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
GOOD = (
    "- minutes: 8\n- ask: How far?\n- they stumble: on the root (attention.scaled_dot_product: scaled by D). Draw it."
)


def notebook(*lines, heading="## 2.4 Why √d_k?"):
    folded = f"<details><summary>For the teacher</summary>\n\n{chr(10).join(lines)}\n\n</details>"
    cells = [new_markdown_cell(heading), new_markdown_cell(folded, metadata={"tags": ["teacher"]})]
    return new_notebook(cells=cells)


# -------------------------------------------------------------------------------------------------------------- notes
@EVERY
def test_each_section_has_a_note_and_their_minutes_are_the_chapters(chapter):
    notes = notes_of(chapter, NOTEBOOKS)
    assert sum(note.minutes for note in notes) == chapter.minutes
    cells = nbformat.read(NOTEBOOKS / chapter.notebook, as_version=4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    numbered = re.findall(r"^## (\d+\.\d+)", text, flags=re.MULTILINE)
    assert [note.number for note in notes if note.number != note.section] == numbered


@EVERY
def test_each_mistake_that_a_note_names_stands_on_its_exercises_page(chapter):
    named = [mistake for note in notes_of(chapter, NOTEBOOKS) for mistake in note.mistakes]
    unknown = [(id, name) for id, name in named if name not in [m.name for m in EXERCISES[id].misconceptions]]
    assert unknown == []
    mistakes = [mistake for id in plan.exercises_of(chapter) for mistake in EXERCISES[id].misconceptions]
    assert len(named) >= 3 or not mistakes or chapter.slug == "start_here"
    told = " ".join(note.stumble for note in notes_of(chapter, NOTEBOOKS))
    assert len(re.findall(r"[(;] ?[a-z_]+\.\w+: ", told)) == len(named), "what looks like a link is one"


def test_a_note_is_read_as_it_is_written():
    (note,) = read_notes(notebook(GOOD), "x.ipynb")
    assert (note.section, note.number, note.minutes, note.ask) == ("2.4 Why √d_k?", "2.4", 8, "How far?")
    assert note.mistakes == (("attention.scaled_dot_product", "scaled by D"),)
    assert not note.may_go
    assert note.lines()[0] == "8 minutes"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["- ask: How far?"], "minutes are needed"),
        (["- minutes: 8", "- hope: much"], "the keys minutes, ask"),
        (["- ask: How far?", "- minutes: 8"], "in the order"),
        (["- minutes: 8", "- ask: How?", "- ask: Far?"], "may occur once"),
        (["- minutes: eight", "- ask: How far?"], "'eight'"),
        (["- minutes: 8"], "needs a question"),
    ],
)
def test_a_note_of_another_form_is_refused_with_its_place(lines, said):
    with pytest.raises(ValueError, match=said) as error:
        read_notes(notebook(*lines), "02_attention.ipynb")
    assert "02_attention.ipynb, “2.4 Why √d_k?”" in str(error.value)


def test_a_section_has_one_note_below_its_heading():
    twice = notebook(GOOD)
    twice.cells.append(twice.cells[1])
    for wrong in (twice, notebook(GOOD, heading="no heading")):
        with pytest.raises(ValueError, match="one note"):
            read_notes(wrong, "x.ipynb")


@pytest.mark.parametrize("name", ["02_attention.ipynb", "18_your_gpt.ipynb"])
def test_a_learners_copy_differs_by_the_notes_alone(name):
    whole = (NOTEBOOKS / name).read_bytes()
    copy = for_learners(whole)
    cells = [cell for cell in nbformat.reads(whole.decode(), as_version=4).cells if not is_note(cell)]
    given = nbformat.reads(copy.decode(), as_version=4).cells
    assert [(cell.id, cell.source, cell.metadata) for cell in given] == [
        (cell.id, cell.source, cell.metadata) for cell in cells
    ]
    first, *later = [(mine, its) for mine, its in zip(given, cells) if its.cell_type == "code"]
    assert first[0].outputs == []
    shown = [[[output.get("data", output.get("text")) for output in cell.outputs] for cell in pair] for pair in later]
    assert all(mine == its for mine, its in shown)
    assert any(its for _, its in shown)
    kept, lines = set(whole.decode().splitlines()), copy.decode().splitlines()
    assert {line.strip() for line in lines if line not in kept} == {'"execution_count": null,', '"outputs": [],'}, (
        "no line is written in another way"
    )
    assert for_learners(copy) == copy
    assert for_learners(b'TEACHER = "teacher"') == b'TEACHER = "teacher"'
    assert json.loads(copy)["metadata"] == json.loads(whole)["metadata"]


# ------------------------------------------------------------------------------------------------------------ courses
@pytest.mark.parametrize("sessions", [1, 10])
def test_a_course_keeps_the_order_the_time_and_what_must_be_taught(sessions):
    rows = plan.course(NOTEBOOKS, sessions)
    taught = [note for row in rows for note in row.notes]
    whole = [note for chapter in CHAPTERS for note in notes_of(chapter, NOTEBOOKS)]
    assert taught == [note for note in whole if note in taught]
    here = {row.chapter.slug for row in rows}
    for slug in here:
        assert all(note.may_go for note in notes_of(BY_SLUG[slug], NOTEBOOKS) if note not in taught)
    for session in range(1, max(row.session for row in rows) + 1):
        mine = [row for row in rows if row.session == session]
        used = sum(row.minutes + sum(EXERCISES[id].minutes for id in row.in_class) for row in mine)
        assert 0 < used <= plan.MINUTES
    given = [id for row in rows for id in (*row.in_class, *row.at_home)]
    assert sorted(given) == sorted(id for slug in here for id in plan.exercises_of(BY_SLUG[slug]))
    assert max(row.session for row in rows) <= sessions
    assert {row.chapter.slug for row in rows} == set(plan.FIRST[: len(here)])


def test_ten_weeks_hold_all_of_it():
    rows = plan.course(NOTEBOOKS, plan.sessions_of(weeks=10))
    assert sum(row.minutes for row in rows) == sum(chapter.minutes for chapter in CHAPTERS)


def test_the_guide_holds_the_courses_as_they_are():
    text = (ROOT / "solutions" / "README.md").read_text(encoding="utf-8")
    assert plan.guide(text, NOTEBOOKS) == text, "run `python -m course_lib refresh --exercises-only`"
    with pytest.raises(ValueError, match="needs the lines"):
        plan.guide("# Guide", NOTEBOOKS)


def test_the_command_prints_a_course_or_a_chapter(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    assert main(["plan", "--days", "1"]) == 0
    assert "| 3 | 3 · Causal masking |" in capsys.readouterr().out
    assert main(["plan", "--chapter", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"# 2 · Scaled dot-product attention: {BY_SLUG['attention'].minutes} minutes")
    assert all(f"`{id}`" in out for id in plan.exercises_of(BY_SLUG["attention"]))
    assert main(["plan", "--weeks", "0"]) == 2
    assert "weeks must be a whole number of at least 1" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "02_attention.ipynb").write_bytes(
        for_learners((NOTEBOOKS / "02_attention.ipynb").read_bytes())
    )
    assert main(["plan", "--chapter", "2"]) == 2
    assert "not from a learner's copy" in capsys.readouterr().err
    assert main(["plan"]) == 2
    assert "at the top of the course's repository" in capsys.readouterr().err


def test_a_course_is_made_of_the_chapters_that_course_toml_names(capsys, monkeypatch, tmp_path):
    (tmp_path / "notebooks").symlink_to(NOTEBOOKS)
    (tmp_path / "course.toml").write_text('[course]\nchapters = [0, "attention", 13]\n', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "--weeks", "6"]) == 0
    rows = [line.split("|")[2].strip() for line in capsys.readouterr().out.splitlines() if re.match(r"\| \d", line)]
    assert {row.partition(" ")[0] for row in rows} == {"0", "2", "13"}
    with pytest.raises(ValueError, match="chapters must name at least one"):
        plan.course(NOTEBOOKS, 4, [])
