"""After the class changed: what an earlier run wrote of people who are gone is gone, in every format."""

import argparse
import os
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from report_pages import small_class

from course_lib.classroom.report import outputs
from course_lib.classroom.report.outputs import write_results
from course_lib.course import files

ENVIRONMENT = {
    "CLASSROOM": "c",
    "ASSIGNMENT": "a",
    "SUBMISSION_TAG": "submit/2026-10-05T10-11-12Z",
    "COMMIT_URL": "https://github.com/a/b/commit",
    "RELEASE_URL": "https://github.com/a/b/release",
    "REVIEW_URL": "https://github.com/a/b/review",
}
GRADED = small_class()
NAMES = ("Ada Lovelace", "Seán O’Brien", "佐藤 花子", "x", "a/b")


def a_class(*names):
    return [replace(GRADED[i % len(GRADED)], name=name, learner="", digest=f"{i}") for i, name in enumerate(names)]


def write(folder, graded, *formats):
    wanted = {name: name in formats for name in outputs.FORMATS}
    wanted |= {"canvas": "" if "canvas" in formats else None, "moodle": None}
    return write_results(
        argparse.Namespace(out=folder, sandbox="bwrap", columns="one", title="", **wanted), graded, [2], []
    )


def held(folder):
    """name -> content of every file that is there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(autouse=True)
def classroom50(monkeypatch):
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


ALL = ("json", "csv", "junit", "gradescope", "classroom50", "canvas")


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.permutations(NAMES), st.integers(0, 5), st.integers(1, 5))
def test_a_class_that_changed_leaves_what_it_would_have_left_alone(tmp_path_factory, names, before, now):
    again, afresh = tmp_path_factory.mktemp("again"), tmp_path_factory.mktemp("afresh")
    write(again, a_class(*names[:before]), *ALL)
    write(again, a_class(*reversed(names[-now:])), *ALL)
    write(afresh, a_class(*reversed(names[-now:])), *ALL)
    assert held(again) == held(afresh)


def test_formats_that_an_earlier_run_wrote_are_written_again(tmp_path):
    write(tmp_path / "again", a_class("Ada", "Bob"), "json", "csv", "junit", "gradescope")
    write(tmp_path / "again", a_class("Ada"))
    write(tmp_path / "afresh", a_class("Ada"), "json", "csv", "junit", "gradescope")
    assert held(tmp_path / "again") == held(tmp_path / "afresh")


def test_a_format_that_needs_a_file_is_told_as_old(tmp_path):
    write(tmp_path, a_class("Ada", "Bob"), "canvas", "classroom50")
    assert outputs.of_an_earlier_run(tmp_path, write(tmp_path, a_class("Ada"))) == ["canvas.csv", "classroom50"]
    assert outputs.of_an_earlier_run(tmp_path, write(tmp_path, a_class("Ada"), "canvas", "classroom50")) == []


def test_what_the_teacher_put_there_stays(tmp_path):
    write(tmp_path, a_class("Ada", "Bob"), *ALL)
    mine = [
        "notes.txt",
        "report/notes.txt",
        "report/learners/Bob.pdf",
        "report/learners/advice.html",
        "gradescope/Bob/rubric.md",
        "report/a/index.html",
    ]
    for name in mine:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    write(tmp_path, a_class("Ada"), *ALL)
    assert [(tmp_path / name).read_text() for name in mine] == mine
    assert not (tmp_path / "report/learners/Bob.html").exists()
    assert not (tmp_path / "gradescope/Bob/results.json").exists()


@pytest.mark.parametrize("step", range(12))
def test_an_interruption_leaves_each_product_whole_and_nothing_lost(step, tmp_path, monkeypatch):
    """Every change of a name is a moment at which the run may end."""
    write(tmp_path, a_class("Ada", "Bob"), *ALL)
    (tmp_path / "report/notes.txt").write_text("mine")
    before = held(tmp_path)
    afresh = tmp_path / "afresh"
    with monkeypatch.context() as broken:
        calls = iter(range(step))
        for name, move in (("rename", os.rename), ("replace", os.replace)):

            def ended(*arguments, move=move):
                if next(calls, None) is None:
                    raise KeyboardInterrupt
                move(*arguments)

            broken.setattr(files.os, name, ended)
        try:
            write(tmp_path, a_class("Ada"), *ALL)
        except KeyboardInterrupt:
            now = held(tmp_path)
            pages = {name for name in now if name.startswith("report/learners")}
            old, new = ({f"report/learners/{name}.html" for name in names} for names in (("Ada", "Bob"), ("Ada",)))
            assert pages in (old, new, set()), "never a mixture"
            assert b"mine" in now.values()
            for name in ("results.json", "results.csv", "junit.xml", "canvas.csv"):
                assert name in now, f"{name} of {sorted(before)} is gone"
    write(tmp_path, a_class("Ada"), *ALL)
    write(afresh, a_class("Ada"), *ALL)
    assert (tmp_path / "report/notes.txt").read_text() == "mine"
    wanted = held(afresh) | {"report/notes.txt": b"mine"}
    assert {name: text for name, text in held(tmp_path).items() if not name.startswith("afresh/")} == wanted
