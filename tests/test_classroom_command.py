"""`course_lib grade`: its errors, its plan, its consoles, and the reports that nothing may lose."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from course_lib.__main__ import main
from course_lib.classroom.report.console import Console
from course_lib.classroom.sandbox import stage as sandbox
from course_lib.classroom.sandbox.remote import Fault
from tests.pretended_worker import NAMES, pretend
from tests.small_class import (
    ANSWERS,
    EXERCISE,
    LIMITS,
    refused,
    write,
    write_class,
)


@pytest.fixture
def pretended(monkeypatch):
    return pretend(monkeypatch)


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        (["--chapters", "99"], ("--chapters 99", "16, 17, 18")),
        (["--exercises", "attention.softmx"], ("--exercises", "attention.softmax")),
        (["--jobs", "0"], ("--jobs 0", "at least 1")),
        (["--seconds", "-1"], ("--seconds -1", "at least 0")),
        (["--seconds", "nan"], ("--seconds nan", "at least")),
        (["--minutes", "0"], ("--minutes 0", "at least")),
        (["--memory", "inf"], ("--memory inf", "leave it out")),
        (["--resume"], ("--resume", "--out results/")),
        (["--json"], ("--json", "--out results/")),
        (["--canvas"], ("--canvas", "--out results/")),
        (["--moodle", "absent.csv", "--out", "OUT"], ("absent.csv is not a file",)),
        (["--out", "CLASS/results"], ("--out", "CLASS", "a folder outside")),
        (["--out", "CLASS"], ("--out", "a folder outside")),
        (["--out", "FILE"], ("FILE", "name another folder")),
        (["--out", "FILE/below"], ("FILE/below", "name another folder")),
        (["--plan", "0"], ("--plan 0",)),
        (["--plan", "5", "--jobs", "0"], ("--jobs 0",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_error_of_the_command_names_the_option_and_the_remedy(pretended, tmp_path, capsys, options, reasons):
    class_ = write_class(tmp_path / "class", "ada", "bert")
    (tmp_path / "file").touch()

    def placed(text):
        for word, path in (("CLASS", class_), ("OUT", tmp_path / "out"), ("FILE", tmp_path / "file")):
            text = text.replace(word, str(path))
        return text

    asked = [] if {"--chapters", "--exercises"} & set(options) else ["--exercises", EXERCISE]
    said = refused(capsys, class_, *map(placed, options), *asked)
    assert all(placed(reason) in said for reason in reasons), said
    assert pretended.names == []


@pytest.mark.parametrize("value", [-1, 0, float("nan")])
def test_a_limit_that_leaves_nothing_is_refused(value):
    with pytest.raises(ValueError, match=r"the limit timeout=.* must be positive"):
        replace(LIMITS, timeout=value)


def test_submissions_that_are_not_there_are_refused(capsys, tmp_path):
    assert "name the submissions" in refused(capsys)
    assert "is not there" in refused(capsys, tmp_path / "absent")
    (tmp_path / "empty").mkdir()
    assert "holds no submission" in refused(capsys, tmp_path / "empty")


def test_the_plan_says_how_long_a_class_will_take(pretended, tmp_path, capsys):
    class_ = write_class(tmp_path / "class", "ada", "bert")
    assert main(["grade", str(class_), "--plan", "1500", "--jobs", "2", "--exercises", EXERCISE]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^1 exercises?, 2 workers \(bwrap\):$", said, flags=re.M)
    assert re.search(
        r"^1,500 submissions will take about \d[\d.]* (seconds|minutes|hours) on this machine\.$", said, re.M
    )
    assert len(pretended.names) == 6, "three for each worker"
    assert pretended.seeds == {0}, "a class's own seed is none of a plan's business"


def test_a_plan_from_a_sample_that_cannot_be_graded_is_refused(pretended, tmp_path, capsys):
    pretended.wrong = {f"{name} {number}": Fault("on fire") for name in ("ada", "bert") for number in range(2)}
    class_ = write_class(tmp_path / "class", "ada", "bert")
    said = refused(capsys, class_, "--plan", "9", "--jobs", "1", "--exercises", EXERCISE)
    assert "could not be graded: on fire" in said


def test_results_that_cannot_be_written_are_kept_as_marks(pretended, tmp_path, capsys):
    class_ = write_class(tmp_path / "class")
    arguments = ["grade", str(class_), "--out", str(tmp_path / "out"), "--json", "--exercises", EXERCISE]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report").write_text("in the way")
    assert main(arguments) == 2
    assert "Every mark is kept" in capsys.readouterr().err
    (tmp_path / "out" / "report").unlink()
    assert main([*arguments, "--resume"]) == 0
    assert len(pretended.names) == len(NAMES)


@pytest.mark.parametrize("resume", [False, True])
def test_what_was_not_taken_is_said_everywhere_and_is_no_success(pretended, tmp_path, capsys, resume):
    class_, out = write_class(tmp_path / "class", "ada", "hans"), tmp_path / "out"
    (class_ / "zoé.docx").write_text("{}")
    (class_ / "yan").symlink_to(class_ / "ada")
    arguments = ["grade", str(class_), "--out", str(out), "--json", "--csv", "--exercises", EXERCISE]
    if resume:
        assert main(arguments) == 1
        capsys.readouterr()
        arguments.append("--resume")
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert "2 submissions, 2 not taken\n" in said.out
    assert "expected of everyone: 1 exercise of chapter 2" in said.out
    assert "NOT TAKEN: yan is a symbolic link, which is not followed" in said.err
    assert "NOT TAKEN: zoé.docx is neither a notebook" in said.err
    content = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [each["name"] for each in content["submissions"]] == ["ada", "hans"]
    assert [each["name"] for each in content["not_taken"]] == ["yan", "zoé.docx"]
    page = (out / "report" / "index.html").read_text(encoding="utf-8")
    assert "zoé.docx" in page
    assert "symbolic link" in page
    assert "zoé.docx,,,,not taken" in (out / "results.csv").read_text(encoding="utf-8")


def test_who_could_not_be_graded_stands_in_the_report(pretended, tmp_path):
    pretended.wrong = {"bert": Fault("the machine is on fire")}
    class_, out = write_class(tmp_path / "class"), tmp_path / "out"
    assert main(["grade", str(class_), "--out", str(out), "--json", "--exercises", EXERCISE]) == 1
    assert "bert</bdi> could not be graded" in (out / "report" / "index.html").read_text(encoding="utf-8")
    [left] = json.loads((out / "results.json").read_text(encoding="utf-8"))["not_taken"]
    assert left["name"] == "bert"
    assert "on fire" in left["why"]


class Gone(io.TextIOBase):
    """A console that takes `lines` lines and no more, in one encoding."""

    def __init__(self, encoding="utf-8", lines=None, error=BrokenPipeError):
        self._encoding, self.lines, self.error, self.text = encoding, lines, error, ""

    @property
    def encoding(self):
        return self._encoding

    def write(self, text):
        if self.lines is not None and self.text.count("\n") >= self.lines:
            raise self.error
        text.encode(self._encoding)
        self.text += text
        return len(text)


CONSOLES = {
    "latin-1": (Gone("latin-1"), Gone("latin-1")),
    "ascii": (Gone("ascii"), Gone("ascii")),
    "head": (Gone(lines=2), Gone()),
    "no line": (Gone(lines=0), Gone(lines=0)),
    "full disk": (Gone(lines=1, error=OSError(28, "No space left on device")), Gone()),
    "closed": (Gone(lines=0, error=ValueError("I/O operation on closed file")), Gone()),
    "none": (None, None),
}


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", CONSOLES)
def test_no_console_loses_the_reports(pretended, tmp_path, monkeypatch, name, resume):
    class_, out = write_class(tmp_path / "class", "ada", "hans"), tmp_path / "out"
    write(class_ / "李 Łukasz", ANSWERS["ada"])
    arguments = ["grade", str(class_), "--out", str(out), "--json", "--exercises", EXERCISE]
    if resume:
        assert main(arguments) == 0
        shutil.rmtree(out / "report")
        (out / "results.json").unlink()
        arguments.append("--resume")
    monkeypatch.setattr(sys, "stdout", CONSOLES[name][0])
    monkeypatch.setattr(sys, "stderr", CONSOLES[name][1])
    assert main(arguments) == 0
    assert len(json.loads((out / "results.json").read_text(encoding="utf-8"))["submissions"]) == 3
    assert len(list((out / "report" / "learners").iterdir())) == 3
    if name in ("latin-1", "ascii"):
        assert re.search("3 submissions . mean", CONSOLES[name][0].text)


def test_the_reports_are_written_before_the_table_is_shown(pretended, tmp_path, monkeypatch):
    class_, out = write_class(tmp_path / "class", "ada", "hans"), tmp_path / "out"
    there = []

    def table(*_):
        there.extend(path.name for path in out.rglob("*") if path.is_file())
        return ""

    monkeypatch.setattr("course_lib.classroom.report.terminal.terminal_table", table)
    assert main(["grade", str(class_), "--out", str(out), "--json", "--csv", "--exercises", EXERCISE]) == 0
    assert {"index.html", "ada.html", "hans.html", "results.json", "results.csv"} <= {*there}


def test_the_table_is_shown_although_the_gradebook_is_gone_when_it_is_written(pretended, tmp_path, capsys, monkeypatch):
    class_, out = write_class(tmp_path / "class", "ada", "hans"), tmp_path / "out"
    book = tmp_path / "book.csv"
    book.write_text("Student,ID,Section\n    Points Possible,,\n")
    monkeypatch.setattr(
        "course_lib.classroom.report.pages.write_reflections", lambda *_: book.write_text("no,gradebook\n") and []
    )
    options = ["--canvas", str(book), "--exercises", EXERCISE]
    assert main(["grade", str(class_), "--out", str(out), *options]) == 2
    said = capsys.readouterr()
    assert "2 submissions" in said.out
    assert "export it in Canvas" in said.err
    assert (out / "report" / "index.html").exists()


def nested(folder: Path, depth: int) -> None:
    """Folders in folders, deeper than a path can say, with a file and a link in each."""
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("below", dir_fd=at)
        os.symlink("/", "link", dir_fd=at)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=at))
        below = os.open("below", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)


@pytest.fixture
def deep(tmp_path):
    """A folder that is emptied in the end, whatever became of it: pytest could not clear such depths away either."""
    yield tmp_path
    subprocess.run(["rm", "-rf", *tmp_path.iterdir()], check=True)


@pytest.mark.proof
def test_folders_of_any_depth_break_neither_this_run_nor_a_later_one(deep, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    left = deep / f"{sandbox.STAGE}{ended.pid}-x"
    nested(left, 1_500)
    beside = deep / "beside"
    nested(beside, 1)
    with sandbox.Stage() as stage:
        assert not left.exists(), "what a killed grader left behind"
        nested(stage.room(0) / "deep", 1_500)
    assert not stage.folder.exists(), "what a notebook of this run made"
    assert (beside / "below").is_dir()
    assert (beside / "file").exists()


def test_where_nobody_listens_no_descriptor_is_lost():
    opened = len(os.listdir("/proc/self/fd"))
    console = Console(None)
    for _ in range(20):
        print("a word", file=console, flush=True)
    assert len(os.listdir("/proc/self/fd")) <= opened
