"""What a worker sees of a machine, computed on made-up trees: wherever a course lies, its answers are not seen."""

from pathlib import Path

import pytest

from course_lib.classroom.sandbox.visible_files import Installation, find_courses
from tests.grading.installations import WAYS


def seen_at(here: Installation, path: Path) -> list[Path]:
    """Where a worker finds a file of this machine: in each view that holds it, unless something is laid over it."""
    places = []
    for view in here.views:
        source = view.source.resolve()
        if not view.link and path.resolve().is_relative_to(source):
            place = view.place / path.resolve().relative_to(source)
            if not any(place.is_relative_to(mask) for mask in here.masks(view)):
                places.append(place)
    return places


def readable_at_level_none(here: Installation, path: Path) -> bool:
    return any(path.resolve().is_relative_to(each.resolve()) for each in here.readable[0])


@pytest.mark.parametrize("name", WAYS)
def test_however_a_course_is_installed_python_is_seen_and_answers_are_not(name, tmp_path):
    tree = WAYS[name](tmp_path)
    here = tree.installation
    assert len(tree.answers) > 4
    assert [path for path in tree.needed if not seen_at(here, path)] == []
    assert [path for path in tree.answers if seen_at(here, path)] == []
    assert [path for path in tree.needed if not readable_at_level_none(here, path)] == []
    assert [path for path in tree.answers if readable_at_level_none(here, path)] == []


def test_there_are_enough_installations():
    assert len(WAYS) >= 14


@pytest.mark.parametrize("name", WAYS)
def test_an_environment_is_moved_and_all_else_lies_where_its_own_paths_lead(name, tmp_path):
    here = WAYS[name](tmp_path).installation
    moved = [view for view in here.views if view.place != view.source.resolve() and not view.link]
    assert {view.top for view in moved} <= {here.prefix, *here.more}


@pytest.mark.parametrize("name", WAYS)
def test_every_place_where_answers_would_be_is_tried(name, tmp_path):
    """The probe asks for these from within: each answer of a course that is known, in every view that holds it."""
    here = WAYS[name](tmp_path).installation
    for course in here.courses:
        for path in [course] if course.is_file() else course.glob("course_lib/chapters/*/exercises/*.py"):
            assert str(path) in here.answer_paths
            for view in here.views:
                if path.is_relative_to(view.source.resolve()):
                    assert str(view.place / path.relative_to(view.source.resolve())) in here.answer_paths


def test_programs_that_a_cell_calls_without_thinking_are_there_by_the_name_that_they_have(tmp_path):
    (tmp_path / "usr" / "bin").mkdir(parents=True)
    for name in ("dash", "ls", "gcc", "sudo"):
        (tmp_path / "usr" / "bin" / name).touch()
    (tmp_path / "usr" / "bin" / "sh").symlink_to("dash")
    (tmp_path / "bin").symlink_to("usr/bin")
    base = tmp_path / "usr"
    views = {str(view.place): view.source for view in Installation(base, base, base / "x", root=tmp_path).views}
    usual = tmp_path / "usr" / "bin"
    assert views == {f"{usual}/sh": usual / "dash", f"{usual}/ls": usual / "ls"}


def test_a_file_that_is_no_archive_is_no_course(tmp_path):
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 cut off")
    (tmp_path / "text.egg").write_text("a link of setuptools")
    assert find_courses(tmp_path / "missing", [tmp_path, tmp_path / "broken.zip"]) == []
