"""Faults of the machine: a worker that is gone, a level that is not there, a wall that does not hold."""

import argparse
import glob
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from course_lib.__main__ import main
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.report.outputs import write_results
from course_lib.classroom.sandbox import probe
from course_lib.classroom.sandbox.probe import Wall, require_isolation, save_wall, walls_of
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.remote import Ended, Fault, Worker
from course_lib.classroom.sandbox.session import Session
from course_lib.classroom.sandbox.stage import SandboxError, Stage
from tests.grading.corpus import notebook as written
from tests.one_notebook import LIMITS, asked, notebook
from tests.pretended_worker import WALL, pretend
from tests.small_class import EXERCISE, write_class


@pytest.fixture
def behind(worker_at):
    """A worker at the level bwrap, skipped where that does not work."""
    return worker_at("bwrap")


@pytest.fixture
def beside(worker_at):
    """A worker at the level none."""
    return worker_at("none")


@pytest.mark.proof
def test_a_worker_that_is_gone_is_a_fault_and_no_result():
    with Worker("none", LIMITS, slot=53) as worker:
        worker.process.kill()
        worker.process.wait()
        with pytest.raises(Fault):
            asked(worker, "found = 1")
        worker.restart()
        assert asked(worker, "found = 1")[0] == 1


def test_an_answer_that_is_asked_after_its_time_is_up_says_so(beside):
    session = Session(beside, notebook("found = 1"), {}, {"found": False}, time.monotonic() + 60)
    session.deadline = time.monotonic() - 1
    with pytest.raises(Ended, match="The time for this submission"):
        session.read("found", 0, 3)
    session.close()


@pytest.mark.parametrize("level", ["chroot", "", "BWRAP"])
def test_an_unknown_level_is_refused_before_anything_starts(level):
    with pytest.raises(ValueError, match="must be one of bwrap, docker, none"):
        Worker(level)


def test_a_missing_bubblewrap_is_said_with_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxError, match="apt-get install bubblewrap"), Worker("bwrap", LIMITS):
        pass


def test_another_operating_system_is_told_what_to_do_instead_of_a_traceback(tmp_path):
    """Without the module `resource`, as on Windows; the rest of its differences stay out of this process."""
    (tmp_path / "answers.ipynb").write_text(written([("code", "x = 1")]), encoding="utf-8")
    code = (
        "import sys, psutil, tqdm.auto; sys.modules['resource'] = None\n"
        "import course_lib.classroom.mark.class_run\n"
        "from course_lib.__main__ import main\n"
        "for sys.platform, level in ('win32', 'bwrap'), ('win32', 'docker'), ('darwin', 'bwrap'):\n"
        "    ended = main(['grade', 'answers.ipynb', '--sandbox', level, '--exercises', 'attention.memory'])\n"
        "    print('ended with', ended, file=sys.stderr)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (run.returncode, "Traceback" in run.stderr) == (0, False), run.stderr
    said = run.stderr.split("ended with 2\n")
    assert len(said) == 4, run.stderr
    for remedy, each in zip(("WSL 2", "WSL 2", "use --sandbox docker here"), said):
        assert remedy in each


@pytest.mark.parametrize("level", ["none", "bwrap"])
def test_the_report_and_what_others_read_say_when_there_was_no_wall(tmp_path, level):
    options = dict.fromkeys(("csv", "gradescope", "classroom50"), False)
    options |= {"json": True, "junit": True, "canvas": None, "moodle": None, "sandbox": level, "out": tmp_path}
    options["columns"] = "total"
    write_results(argparse.Namespace(**options), [GradedSubmission("ada", "", (), ())], [3], left=[])
    for name in ("report/index.html", "results.json", "junit.xml"):
        said = (tmp_path / name).read_text(encoding="utf-8")
        assert ("there was no wall" in said) == (level == "none"), name
        assert level in said


def test_a_probe_refuses_a_wall_that_does_not_hold(beside, monkeypatch):
    monkeypatch.setattr(beside, "sandbox", "bwrap")
    with pytest.raises(SandboxError, match="does not hold here") as error:
        require_isolation(beside)
    assert "Nothing was graded" in str(error.value)
    assert "it reaches the network (UDP)" in str(error.value)


@pytest.mark.proof
def test_the_probe_tries_the_sockets_that_no_namespace_parts():
    with Stage() as stage:
        denial = stage.code / "course_lib" / "classroom" / "sandbox" / "isolation.py"
        text = denial.read_text(encoding="utf-8")
        denial.write_text(text.replace("(1, 2, 10, 16)", "(1, 2, 10, 16, 40)"), encoding="utf-8")
        try:
            with Worker("bwrap", LIMITS, slot=55, stage=stage) as worker, pytest.raises(SandboxError) as error:
                require_isolation(worker)
        except SandboxError as missing:
            pytest.skip(str(missing))
    assert "does not hold here: it opens sockets of other families (AF_VSOCK). Nothing" in str(error.value)


def test_a_stage_holds_the_library_and_goes_with_its_owner():
    with Stage() as stage:
        assert (stage.code / "course_lib" / "attention.py").is_file()
        assert list(stage.folder.rglob("*catalogue*")) == []
        assert list(stage.folder.rglob("exercises")) == []
        assert (stage.code / "course_lib" / "attention.py").stat().st_mode & 0o777 == 0o644
    assert not stage.folder.exists()


@pytest.mark.parametrize(("name", "value"), [("cell_timeout", 0), ("memory", -1), ("timeout", 0), ("processes", 0)])
def test_a_limit_that_leaves_nothing_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        Quotas(**{name: value})


def test_without_a_wall_the_probe_refuses_nothing_and_says_what_is_not_kept(beside):
    wall = require_isolation(beside)
    assert wall.level == "none"
    assert wall.tried > 20
    assert set(wall.holes) >= {"it reaches the network (UDP)"}
    assert wall.sentence.startswith(f"no wall (none): {wall.tried - len(wall.holes)} of {wall.tried} held (")
    assert "it reaches the network (UDP)" in wall.sentence
    assert wall.memory <= beside.quotas.memory + probe.SLACK


def test_a_wall_says_what_was_measured(behind):
    wall = require_isolation(behind)
    assert (wall.level, wall.holes) == ("bwrap", ())
    assert 0 < wall.memory <= behind.quotas.memory + probe.SLACK
    assert 20 < wall.processes < behind.quotas.processes
    assert 64 << 20 <= wall.files <= 80 << 20
    assert f"wall (bwrap): {wall.tried} of {wall.tried} held · memory stops at 1.9 GiB for a process, " in wall.sentence
    assert f"{wall.processes} processes · files 80 MB" in wall.sentence


def test_a_library_that_is_not_seen_is_named_before_anything_is_graded(beside, monkeypatch):
    """One that this Python can load: what it never had is missing everywhere."""
    [there, *_] = glob.glob(f"{Path(os.__file__).parent}/lib-dynload/*.so")
    lacking = {there: "libz.so.1: cannot open shared object file", "/nowhere/_tkinter.so": "libtk8.6.so: cannot open"}
    monkeypatch.setattr(probe, "PROBE", probe.PROBE.replace('"missing": missing()', f'"missing": {{{lacking!r}}}'))
    with pytest.raises(SandboxError, match=r"Python lacks a library in it \(libz.so.1: cannot open .* Nothing was"):
        require_isolation(beside)
    monkeypatch.setattr(probe, "_loads", lambda path: False)
    assert require_isolation(beside).level == "none"


def test_what_was_measured_in_each_run_is_kept_and_told(tmp_path):
    none = Wall("none", 22, ("it is root",), 2 << 30, 3 << 30, "watcher", 40, 96 << 20)
    assert walls_of(tmp_path) == []
    for wall in (none, WALL, replace(WALL, processes=35)):
        save_wall(wall, tmp_path)
    assert walls_of(tmp_path) == [none.sentence, replace(WALL, processes=35).sentence]
    (tmp_path / "wall.json").write_text('{"said": 1}')
    with pytest.raises(ValueError, match=r"wall\.json is not what a grader has measured: delete it"):
        walls_of(tmp_path)


def test_the_wall_stands_on_the_terminal_in_the_report_and_in_the_results(monkeypatch, tmp_path, capsys):
    pretend(monkeypatch)
    write_class(tmp_path / "class", "ada", "bert")
    arguments = ["grade", str(tmp_path / "class"), "--out", str(tmp_path / "out"), "--json", "--exercises", EXERCISE]
    main(arguments)
    assert WALL.sentence in capsys.readouterr().err
    assert WALL.sentence in (tmp_path / "out" / "report" / "index.html").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "out" / "results.json").read_text())["about"]["wall"] == WALL.sentence


def test_of_a_probe_that_breaks_off_nothing_is_believed(beside, monkeypatch):
    broken = probe.PROBE.replace("status = open", 'raise ValueError("half way")\nstatus = open')
    assert broken != probe.PROBE
    monkeypatch.setattr(probe, "PROBE", broken)
    monkeypatch.setattr(beside, "sandbox", "bwrap")
    with pytest.raises(SandboxError, match="it runs nothing"):
        require_isolation(beside)
