"""The learner's folder: given out, renewed, kept; whatever happens, nothing that the learner wrote is lost."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from filelock import FileLock
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.__main__ import main
from course_lib.classroom.read.submissions import find_submissions
from course_lib.cli import start
from course_lib.course import handout
from course_lib.course.contents import CHAPTERS
from course_lib.course.handout import hand_out, last_saved, place
from course_lib.live.drawing import new_figure
from course_lib.live.figure import size
from course_lib.live.page import ENLARGED

ROOT = Path(__file__).parent.parent
NAMES = ("notebooks/00_start_here.ipynb", "notebooks/02_attention.ipynb", "exercises/02_attention.ipynb")


def notebook(path, *cells):
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=[new_code_cell(text) for text in cells]), path)


def texts(path):
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def edit(path, text):
    """What JupyterLab does when a learner writes into the first cell and saves."""
    content = nbformat.read(path, as_version=4)
    content.cells[0].source = text
    nbformat.write(content, path)


def run(path):
    """What running does to a notebook: outputs, counts, metadata, and an empty cell below the last."""
    content = nbformat.read(path, as_version=4)
    for number, cell in enumerate(content.cells, start=1):
        cell.outputs, cell.execution_count = [new_output("stream", text=f"run {number}\n")], number
        cell.metadata["jupyter"] = {"outputs_hidden": True}
    content.metadata["widgets"] = {"state": {}}
    nbformat.write(content, path)
    content.cells.append(new_code_cell(""))
    nbformat.write(content, path)


def done(handed):
    return {each.name: each.done for each in handed}


@pytest.fixture
def course(tmp_path):
    for name in NAMES:
        notebook(tmp_path / "course" / name, f"{name} as it was", "second cell")
    (tmp_path / "course/notebooks/glossary.md").write_text("token: a piece of text\n", encoding="utf-8")
    (tmp_path / "course/notebooks/.ipynb_checkpoints").mkdir()
    return tmp_path / "course"


@pytest.fixture
def mine(course):
    hand_out(course, course / "my")
    return course / "my"


# ----------------------------------------------------------------------------------------------------------- the rules
def test_the_first_time_everything_is_given_out(course):
    assert set(done(hand_out(course, course / "my")).values()) == {"given"}
    for name in NAMES:
        assert texts(course / "my" / name) == texts(course / name)
    glossary = "notebooks/glossary.md"
    assert (course / "my" / glossary).read_bytes() == (course / glossary).read_bytes()
    assert set(done(hand_out(course, course / "my")).values()) == {"kept"}


def test_the_teachers_notes_are_not_given_out_and_a_change_of_them_is_no_news(course, mine):
    def noted(text):
        content = nbformat.read(course / NAMES[1], as_version=4)
        cells = [cell for cell in content.cells if not cell.metadata.get("tags")]
        content.cells = [*cells, new_markdown_cell(text, metadata={"tags": [handout.TEACHER]})]
        nbformat.write(content, course / NAMES[1])

    before = texts(mine / NAMES[1])
    for text in ("ask this", "ask that"):
        noted(text)
        assert set(done(hand_out(course, mine)).values()) == {"kept"}
        assert texts(mine / NAMES[1]) == before
    (mine / NAMES[1]).unlink()
    assert done(hand_out(course, mine))[NAMES[1]] == "given"
    assert texts(mine / NAMES[1]) == before
    assert last_saved(course, mine) is None


def test_no_cell_looks_as_if_it_had_run_and_what_the_first_shows_comes_when_it_runs(course):
    run(course / NAMES[0])
    hand_out(course, course / "my")
    cells = nbformat.read(course / "my" / NAMES[0], as_version=4).cells
    assert all(cell.execution_count is None for cell in cells)
    assert cells[0].outputs == []
    assert cells[1].outputs[0].text == "run 2\n", "the others' outputs stay, to be seen before"


def test_a_notebook_that_is_read_but_not_run_is_not_the_one_that_was_saved_last(course, mine):
    """Also where the course's own was run again since: such an update leaves the learner's copy as it is."""
    run(course / NAMES[1])
    assert set(done(hand_out(course, mine)).values()) == {"kept"}
    assert last_saved(course, mine) is None
    run(mine / NAMES[0])
    os.utime(mine / NAMES[0], (1e9, 1e9))
    assert last_saved(course, mine) == mine / NAMES[0]


def test_the_place_is_the_last_section_in_which_a_cell_was_run(tmp_path):
    cells = [new_markdown_cell("# Title"), new_code_cell("0")]
    for name in "ABC":
        cells += [new_markdown_cell(f"## {name}\n\nText\n\n### Below"), new_code_cell("1")]
    content = new_notebook(cells=cells)
    found = []
    for cell in content.cells:
        if cell.cell_type == "code":
            found.append(place(nbformat.writes(content).encode())[0])
            cell.execution_count = 1
    assert [*found, place(nbformat.writes(content).encode())[0]] == ["", "", "A", "B", "C"]
    content.cells[3].execution_count = None  # not run this time, but what comes after it was
    assert place(nbformat.writes(content).encode()) == ("C", content.cells[-2].id)
    assert place(b"{") == place(b"[]") == place(b'{"cells": [{}]}') == ("", "")


def test_what_was_only_run_is_renewed_and_its_outputs_are_kept_aside(course, mine):
    run(mine / NAMES[1])
    ran = (mine / NAMES[1]).read_bytes()
    assert set(done(hand_out(course, mine)).values()) == {"kept"}  # nothing newer: the outputs of the run stay
    assert (mine / NAMES[1]).read_bytes() == ran
    notebook(course / NAMES[1], "new")
    assert done(hand_out(course, mine))[NAMES[1]] == "renewed"
    assert texts(mine / NAMES[1]) == ["new"]
    assert (mine / handout.EARLIER / NAMES[1]).read_bytes() == ran


def test_what_was_edited_stays_and_each_newer_version_comes_beside_it_once(course, mine):
    edit(mine / NAMES[2], "my answer")
    assert set(done(hand_out(course, mine)).values()) == {"kept"}
    notebook(course / NAMES[2], "version 2")
    (given,) = (each for each in hand_out(course, mine) if each.done == "beside")
    assert given.path == mine / "exercises/02_attention.new.ipynb"
    assert texts(given.path) == ["version 2"]
    assert texts(mine / NAMES[2]) == ["my answer", "second cell"]
    given.path.unlink()
    assert set(done(hand_out(course, mine)).values()) == {"kept"}  # the learner did not want it
    notebook(course / NAMES[2], "version 3")
    assert done(hand_out(course, mine))[NAMES[2]] == "beside"
    notebook(course / NAMES[2], "version 4")
    hand_out(course, mine)  # version 3 was not edited: it need not stay
    assert texts(given.path) == ["version 4"]
    edit(given.path, "I work in this one now")
    notebook(course / NAMES[2], "version 5")
    hand_out(course, mine)
    assert texts(given.path) == ["I work in this one now"]
    assert texts(mine / "exercises/02_attention.new2.ipynb") == ["version 5"]


def test_a_deleted_or_renamed_notebook_can_be_begun_anew(course, mine):
    edit(mine / NAMES[1], "scribbled over")
    (mine / NAMES[1]).rename(mine / "notebooks/old.ipynb")
    assert done(hand_out(course, mine))[NAMES[1]] == "given"
    assert (mine / NAMES[1]).read_bytes() == (course / NAMES[1]).read_bytes()
    assert texts(mine / "notebooks/old.ipynb")[0] == "scribbled over"


@pytest.mark.parametrize("damage", ["", "{", "[1, 2]", '{"notebooks/00_start_here.ipynb": 3}'])
def test_without_its_record_what_differs_counts_as_edited(course, mine, damage):
    edit(mine / NAMES[0], "mine")
    (mine / handout.RECORD).write_text(damage, encoding="utf-8")
    for name in NAMES:
        notebook(course / name, "new")
    found = done(hand_out(course, mine))
    assert [found[name] for name in NAMES] == ["beside"] * 3
    assert texts(mine / NAMES[0]) == ["mine", "second cell"]


def test_a_link_and_a_damaged_notebook_are_left_alone(course, mine, tmp_path):
    shutil.copy(mine / NAMES[0], tmp_path / "elsewhere.ipynb")
    (mine / NAMES[0]).unlink()
    (mine / NAMES[0]).symlink_to(tmp_path / "elsewhere.ipynb")
    (mine / NAMES[1]).write_text('{"cells": [', encoding="utf-8")
    for name in NAMES:
        notebook(course / name, "new")
    found = done(hand_out(course, mine))
    assert [found[name] for name in NAMES] == ["beside", "beside", "renewed"]
    assert texts(tmp_path / "elsewhere.ipynb")[0].endswith("as it was")
    assert (mine / NAMES[1]).read_text(encoding="utf-8") == '{"cells": ['


def test_what_a_page_saves_at_this_very_moment_is_not_lost(course, mine, monkeypatch):
    """Between the look and the move."""
    move = os.replace

    def saved_meanwhile(old, new):
        if Path(old) == mine / NAMES[0]:
            monkeypatch.setattr(os, "replace", move)
            edit(mine / NAMES[0], "saved just now")
        move(old, new)

    notebook(course / NAMES[0], "new")
    monkeypatch.setattr(os, "replace", saved_meanwhile)
    assert done(hand_out(course, mine))[NAMES[0]] == "beside"
    assert texts(mine / NAMES[0])[0] == "saved just now"


class Learner(RuleBasedStateMachine):
    """A learner who edits, runs, deletes and starts, while the course goes on and `start` may be killed at any step."""

    @initialize()
    def begin(self):
        self.folder = Path(os.environ["HANDOUT_TEST"]) / f"{len(os.listdir(os.environ['HANDOUT_TEST']))}"
        self.course, self.mine = self.folder / "course", self.folder / "mine"
        self.written, self.count = set(), 0
        for name in NAMES:
            notebook(self.course / name, "version 0")
        hand_out(self.course, self.mine)

    def notebooks(self):
        return sorted(self.mine.glob("*/*.ipynb"))

    @precondition(lambda self: self.notebooks())
    @rule(which=st.integers(0, 9))
    def edits(self, which):
        path = self.notebooks()[which % len(self.notebooks())]
        self.count += 1
        self.written -= set(texts(path)[:1])  # the learner replaces a text of their own
        edit(path, f"learner {self.count}")
        self.written.add(f"learner {self.count}")

    @precondition(lambda self: self.notebooks())
    @rule(which=st.integers(0, 9))
    def runs(self, which):
        run(self.notebooks()[which % len(self.notebooks())])

    @precondition(lambda self: self.notebooks())
    @rule(which=st.integers(0, 9))
    def deletes(self, which):
        path = self.notebooks()[which % len(self.notebooks())]
        self.written -= set(texts(path))
        path.unlink()

    @rule(which=st.integers(0, 2))
    def is_updated(self, which):
        self.count += 1
        notebook(self.course / NAMES[which], f"version {self.count}")

    @rule()
    def starts(self):
        hand_out(self.course, self.mine)

    @rule(steps=st.integers(0, 4))
    def is_killed(self, steps):
        move = os.replace

        def dies(old, new):
            nonlocal steps
            if not steps:
                raise KeyboardInterrupt
            steps -= 1
            move(old, new)

        os.replace = dies
        try:
            hand_out(self.course, self.mine)
        except KeyboardInterrupt:
            pass
        finally:
            os.replace = move

    @invariant()
    def nothing_of_the_learners_is_lost(self):
        if hasattr(self, "mine"):
            there = {text for path in self.notebooks() for text in texts(path)}
            assert self.written <= there

    def teardown(self):
        if hasattr(self, "mine"):
            hand_out(self.course, self.mine)
            record = json.loads((self.mine / handout.RECORD).read_text(encoding="utf-8"))
            for name in NAMES:  # and the newest version has come
                newest = handout.fingerprint((self.course / name).read_bytes())
                assert newest in record[name].values()


def test_whatever_happens_nothing_that_the_learner_wrote_is_lost(tmp_path, monkeypatch):
    monkeypatch.setenv("HANDOUT_TEST", str(tmp_path))
    machine = Learner.TestCase
    machine.settings = settings(max_examples=15, stateful_step_count=12, deadline=None)
    machine("runTest").runTest()


# --------------------------------------------------------------------------------------------------------- the places
@pytest.mark.parametrize("place", [".", "notebooks", "exercises/mine", "course_lib", "work"])
def test_the_courses_own_folders_are_refused(course, place):
    with pytest.raises(ValueError, match="is in the course itself"):
        hand_out(course, course / place)
    assert not (course / place / handout.RECORD).exists()


def test_another_copy_of_the_course_is_refused(course, tmp_path):
    (tmp_path / "other/course_lib").mkdir(parents=True)
    with pytest.raises(ValueError, match="already has its own course"):
        hand_out(course, tmp_path / "other")


def test_an_installation_without_notebooks_says_so(tmp_path):
    with pytest.raises(ValueError, match="come with the course's repository"):
        hand_out(tmp_path, tmp_path / "my")
    assert list(tmp_path.iterdir()) == []


def test_two_at_once_are_refused_with_a_sentence(course, mine, monkeypatch):
    monkeypatch.setattr(handout, "LOCK_SECONDS", 0)
    with FileLock(mine / f"{handout.RECORD}.lock"), pytest.raises(ValueError, match="another `start`"):
        hand_out(course, mine)


def test_git_sees_nothing_of_it_and_what_was_solved_in_place_counts_as_edited(course):
    def git(*words):
        who = ("-c", "user.name=A", "-c", "user.email=a@b.c")
        return subprocess.run(["git", *who, *words], cwd=course, capture_output=True, text=True, check=True).stdout

    git("init")
    git("add", "-A")
    git("commit", "-m", "the course")
    edit(course / NAMES[2], "solved in the course's own folder")
    before = git("status", "--porcelain")
    hand_out(course, course / "my")
    assert git("status", "--porcelain") == before
    git("checkout", "--", NAMES[2])
    assert set(done(hand_out(course, course / "my")).values()) == {"kept"}
    notebook(course / NAMES[2], "version 2")
    assert done(hand_out(course, course / "my"))[NAMES[2]] == "beside"
    assert texts(course / "my" / NAMES[2])[0] == "solved in the course's own folder"


# ------------------------------------------------------------------------------------------------------------ the door
class Opened(list):
    """Commands that would have been started, and in which environments."""

    def __init__(self):
        super().__init__()
        self.environments = []


@pytest.fixture
def opened(course, monkeypatch):
    """The command, with the small course in the place of the whole; a list of what it would have started."""
    commands = Opened()

    class Pretended:
        def __init__(self, command, env):
            commands.append(command)
            commands.environments.append(env)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def wait(self):
            return 0

    monkeypatch.delenv("JUPYTER_SERVER_ROOT", raising=False)
    monkeypatch.setattr(start, "COURSE", course)
    monkeypatch.setattr(start.subprocess, "Popen", Pretended)
    monkeypatch.setattr(start.signal, "signal", lambda *_: None)  # that of these tests stays as it is
    return commands


def test_it_opens_the_first_chapter_then_what_was_saved_last(course, opened, capsys):
    folder = course / "my"
    assert main(["start", "--folder", str(folder)]) == 0
    assert "Change whatever you like" in capsys.readouterr().out
    edit(folder / NAMES[2], "mine")
    os.utime(folder / NAMES[2], (2e9, 2e9))
    edit(folder / NAMES[0], "mine, too")
    os.utime(folder / NAMES[0], (1e9, 1e9))
    assert main(["start", "--folder", str(folder), "--lab", "--no-browser --port=9000"]) == 0
    assert main(["start", "2", "--folder", str(folder)]) == 0
    start_of_all = [sys.executable, "-m", "jupyter", "lab", f"--ServerApp.root_dir={folder}"]
    assert all(command[:5] == start_of_all for command in opened)
    assert [command[5] for command in opened] == [f"--LabApp.default_url=/lab/tree/{NAMES[i]}" for i in (0, 2, 1)]
    assert opened[1][-2:] == ["--no-browser", "--port=9000"]
    quiet = ["--log-level=ERROR" in command for command in opened]
    assert quiet == [True, False, True], "without a browser the address must be seen"
    assert last_saved(course, folder) == folder / NAMES[2]


def test_for_a_projector_type_and_figures_are_larger_and_a_teachers_own_settings_stay(course, opened, monkeypatch):
    folder = course / "my"
    assert main(["start", "2", "--folder", str(folder), "--projector"]) == 0
    assert f"--LabApp.user_settings_dir={folder / start.PROJECTOR}" in opened[0]
    monkeypatch.setenv(ENLARGED, opened.environments[0][ENLARGED])
    figure, _ = new_figure(4, 3)
    width, height = size(figure)
    assert 540 < width < 640
    assert width * 3 == pytest.approx(height * 4, abs=4)
    (path,) = (folder / start.PROJECTOR).rglob("*.jupyterlab-settings")
    assert json.loads(path.read_text())["overrides"] == start.LARGE_TYPE
    path.write_text('{"overrides": {"code-font-size": "30px"}}')
    assert main(["start", "2", "--folder", str(folder), "--projector"]) == 0
    assert "30px" in path.read_text()
    assert main(["start", "2", "--folder", str(folder)]) == 0
    assert not [part for part in opened[2] if "settings" in part]
    assert opened.environments[2].get(ENLARGED) == os.environ[ENLARGED]


def test_jupyterlab_begins_with_wrapped_lines_and_without_news_below_what_a_learner_has_set(
    course, opened, monkeypatch, tmp_path
):
    from jupyterlab_server.settings_utils import get_settings

    monkeypatch.setenv("JUPYTER_CONFIG_PATH", "/of/the/learner")
    assert main(["start", "--folder", str(course / "my")]) == 0
    searched = opened.environments[0]["JUPYTER_CONFIG_PATH"]
    assert searched.endswith(f"{os.pathsep}/of/the/learner")
    first = opened.environments[0]["PATH"].partition(os.pathsep)[0]
    assert first == str(Path(sys.executable).parent), "python is the course's own in its terminals"
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", searched)
    lab = Path(sys.prefix) / "share" / "jupyter" / "lab"

    def default(plugin, setting):
        found = get_settings(lab / "settings", lab / "schemas", tmp_path, schema_name=plugin)[0]
        return found["schema"]["properties"][setting]["default"]

    assert default("@jupyterlab/notebook-extension:tracker", "codeCellConfig")["lineWrap"] is True
    assert default("@jupyterlab/apputils-extension:notification", "fetchNews") == "false"


def test_it_says_how_far_the_notebook_was_read_and_a_startup_file_of_the_learners_own_stays(
    course, opened, monkeypatch, capsys
):
    folder = course / "my"
    content = new_notebook(cells=[new_markdown_cell("## 2.1 What a token lacks"), new_code_cell("1")])
    nbformat.write(content, course / NAMES[1])
    monkeypatch.delenv("PYTHONSTARTUP", raising=False)
    assert main(["start", "2", "--folder", str(folder)]) == 0
    assert "as far as" not in capsys.readouterr().out
    content.cells[1].execution_count = 1
    nbformat.write(content, folder / NAMES[1])
    monkeypatch.setenv("PYTHONSTARTUP", "/of/the/learner")
    assert main(["start", "2", "--folder", str(folder)]) == 0
    assert "You came as far as “2.1 What a token lacks”: run the first cell" in capsys.readouterr().out
    startups = [environment["PYTHONSTARTUP"] for environment in opened.environments]
    assert startups == [str(start.STARTUP), "/of/the/learner"]


def test_notebooks_keep_freed_memory_and_what_the_learner_has_set_stays(course, opened, monkeypatch):
    monkeypatch.setattr(start, "keeping_freed_memory", lambda: {"MALLOC_A_": "1", "MALLOC_B_": "1"})
    monkeypatch.setenv("MALLOC_B_", "2")
    assert main(["start", "--folder", str(course / "my")]) == 0
    (environment,) = opened.environments
    assert (environment["MALLOC_A_"], environment["MALLOC_B_"]) == ("1", "2")


def test_where_a_server_runs_already_none_is_started(course, opened, monkeypatch, capsys):
    monkeypatch.setenv("JUPYTER_SERVER_ROOT", str(course))
    assert main(["start", "--folder", str(course / "my")]) == 0
    said = capsys.readouterr().out
    assert "open my/notebooks/00_start_here.ipynb" in said
    assert "COURSE_DEVICE" not in said
    assert main(["start", "--folder", str(course / "my"), "--device", "cpu"]) == 0
    assert "keep their device: to change it, set COURSE_DEVICE" in capsys.readouterr().out
    assert opened == []


def test_where_jupyterlab_has_the_folder_open_its_page_is_opened_and_no_second_server_writes_the_same_files(
    course, opened, monkeypatch, capsys
):
    folder, seen = course / "my", []
    running = [
        {"root_dir": str(course / "other"), "url": "http://localhost:1/", "token": "x"},
        {"root_dir": str(folder), "url": "http://localhost:2/", "token": "y"},
    ]
    monkeypatch.setattr("jupyter_server.serverapp.list_running_servers", lambda: running)
    monkeypatch.setattr(start.webbrowser, "open", seen.append)
    assert main(["start", "2", "--folder", str(folder)]) == 0
    assert seen == [f"http://localhost:2/lab/tree/{NAMES[1]}?token=y"]
    assert opened == []
    assert seen[0] in capsys.readouterr().out
    assert main(["start", "2", "--folder", str(folder), "--device", "cpu"]) != 0
    assert "on its own device: end it first (http://localhost:2/)" in capsys.readouterr().err
    assert (len(seen), opened) == (1, [])
    assert main(["start", "2", "--folder", str(folder), "--lab=--port=9000", "--device", "cpu"]) == 0
    assert [environment["COURSE_DEVICE"] for environment in opened.environments] == ["cpu"]


@pytest.mark.skipif(os.name != "posix", reason="on Windows SIGTERM ends a process before it can do anything")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_whoever_ends_it_by_a_signal_ends_jupyterlab_too(tmp_path, name):
    waits = "import os, signal\nprint('waits', os.getpid(), flush=True)\nsignal.pause()\n"
    (tmp_path / "jupyter.py").write_text(waits)  # in JupyterLab's place
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    environment.pop("JUPYTER_SERVER_ROOT", None)
    command = [sys.executable, "-m", "course_lib", "start", "--folder", str(tmp_path / "my")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True, cwd=ROOT) as started:
        number = next(int(line.split()[1]) for line in started.stdout if line.startswith("waits"))
        started.send_signal(getattr(signal, name))
        started.wait(timeout=30)
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_an_update_says_in_a_sentence_what_it_kept(course, mine, opened, capsys):
    edit(mine / NAMES[2], "mine")
    for name in NAMES:
        notebook(course / name, "new")
    assert main(["start", "--no-lab", "--folder", str(mine)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"{mine}: 2 files updated, 0 new.",
        f"You have edited {NAMES[2]}, so your file stays. The newer version is next to it, as 02_attention.new.ipynb.",
    ]
    assert main(["start", "--no-lab", "--folder", str(mine)]) == 0
    assert capsys.readouterr().out == f"Your copy of the course is in {mine}, and up to date.\n"


@pytest.mark.parametrize("name", ["2", "02", "attention", "Attention", "02_attention.ipynb", r"my\notebooks\attention"])
def test_a_chapter_is_found_by_whatever_it_is_called(name):
    assert start.notebook_of(name) == "notebooks/02_attention.ipynb"
    assert start.notebook_of(f"exercises/{name.rpartition(chr(92))[2]}") == "exercises/02_attention.ipynb"


@pytest.mark.parametrize("name", ["99", "-1", "atention", "exercises/", ""])
def test_an_unknown_chapter_is_a_sentence(course, opened, name, capsys):
    if name:
        assert main(["start", "--folder", str(course / "my"), "--", name]) == 2
        assert f"from 0 to {CHAPTERS[-1].number}" in capsys.readouterr().err
        assert not (course / "my").exists()
    else:
        with pytest.raises(ValueError, match="not a chapter of the course"):
            start.notebook_of(name)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_a_sentence(course, opened, tmp_path, capsys):
    (tmp_path / "closed").mkdir(mode=0o500)
    assert main(["start", "--folder", str(tmp_path / "closed/my")]) == 2
    assert "--folder" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_folder_is_a_sentence(course, opened, tmp_path, capsys):
    (tmp_path / "taken").touch()
    assert main(["start", "--folder", str(tmp_path / "taken")]) == 2
    assert "--folder" in capsys.readouterr().err


# --------------------------------------------------------------------------------------------------- the whole course
def test_every_link_of_the_course_holds_within_the_learners_folder(tmp_path):
    hand_out(ROOT, tmp_path / "my")
    pages = sorted((tmp_path / "my").glob("*/*.ipynb"))
    links = [
        (path, link)
        for path in pages
        for cell in nbformat.read(path, as_version=4).cells
        if cell.cell_type == "markdown"
        for link in re.findall(r"\]\(([^)#:\s]+)\)", cell.source)
    ]
    assert len(links) > len(pages)
    assert [(path.name, link) for path, link in links if not (path.parent / link).exists()] == []


def test_a_learners_whole_folder_can_be_handed_in(course, mine):
    edit(mine / NAMES[2], "def softmax(x, dim): ...")
    notebook(course / NAMES[2], "version 2")
    hand_out(course, mine)
    (submission,) = find_submissions([mine])
    assert "def softmax" in str(submission.notebooks)
