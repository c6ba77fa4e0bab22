"""The table of chapters, and all that bears a chapter's slug, title or number: they say what the table says."""

import ast
import re
from pathlib import Path

import pytest

from course_lib.claims import experiments
from course_lib.course.contents import CHAPTERS, TABLE_BEGIN, chapter_of, readme
from course_lib.grading import EXERCISES
from course_lib.grading.page.catalogue import minutes_by_chapter

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "course_lib"
EVERY = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)


def test_the_readme_holds_the_table_as_it_is():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme(text, ROOT / "exercises", minutes_by_chapter()) == text, (
        "run `python -m course_lib refresh --exercises-only`"
    )


def test_the_readme_says_how_long_the_course_takes():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    chapters = {each.number: each.minutes for each in CHAPTERS}
    short = sum(chapters[number] for number in (0, 1, 2, 3, 4, 5, 13))
    assert f"{sum(chapters.values()) / 60:.0f} hours. The exercises take another" in text
    assert f"another {sum(minutes_by_chapter().values()) / 60:.0f}, and no chapter requires them" in text
    assert short / 60 == 5.5, "the README says five and a half hours"


def test_a_chapter_without_exercises_gets_no_link_to_them(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (tmp_path / "04_heads.ipynb").touch()
    made = readme(text, tmp_path, minutes_by_chapter())
    assert re.findall(r"\[solve\]\((.+?)\)", made) == ["exercises/04_heads.ipynb"]
    assert len(re.findall(r"\[read\]", made)) == len(CHAPTERS)
    assert readme(made, ROOT / "exercises", minutes_by_chapter()) == text, "what stands around the table stays"


def test_a_readme_without_a_place_for_the_table_is_refused():
    with pytest.raises(ValueError, match="needs the lines"):
        readme(f"# Course\n{TABLE_BEGIN}\n", ROOT / "exercises", {})


def test_chapters_have_folders_and_folders_have_chapters():
    folders = {path.parent.name for path in LIBRARY.glob("chapters/*/__init__.py")}
    assert folders == {chapter.slug for chapter in CHAPTERS}
    assert [path.name for path in sorted(ROOT.glob("notebooks/*.ipynb"))] == [each.notebook for each in CHAPTERS]


@pytest.mark.parametrize("folder", ["exercises", "solutions"])
def test_exercises_bear_the_names_of_their_chapters(folder):
    assert {path.name for path in ROOT.glob(f"{folder}/*.ipynb")} <= {chapter.notebook for chapter in CHAPTERS}


def test_what_is_measured_and_what_is_asked_belongs_to_the_chapter_in_its_id():
    assert {id: exercise.chapter for id, exercise in EXERCISES.items()} == {
        id: chapter_of(id).number for id in EXERCISES
    }
    assert {id.partition(".")[0] for id in experiments()} < {chapter.slug for chapter in CHAPTERS}
    with pytest.raises(KeyError, match="no_chapter"):
        chapter_of("no_chapter.exercise")


def numbers_in(path: Path) -> list[int]:
    """The numbers of the chapters that the first sentence about chapters in a file's docstring names."""
    said = re.search(r"[Cc]hapters? ([0-9, and]+)", ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "")
    return [int(number) for number in re.findall(r"\d+", said[1])] if said else []


@EVERY
def test_modules_and_tests_name_the_number_of_their_chapter(chapter):
    paths = [LIBRARY / f"{chapter.slug}.py"] if chapter.slug != "claims" else []
    paths += sorted(LIBRARY.glob(f"chapters/{chapter.slug}/*s.py"))
    paths += [ROOT / "tests" / f"{kind}_{chapter.slug}.py" for kind in ("test_viz", "test_experiments")]
    for path in filter(Path.is_file, paths):
        assert chapter.number in numbers_in(path), f"{path.relative_to(ROOT)} names {numbers_in(path)}"
