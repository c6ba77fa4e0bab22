"""The grader in other people's houses: nbgrader's marks, Gradescope's container.

GitHub's workflow: test_classroom_workflow.py. Real nbgrader is asked where there is one:
`course_lib/bench/nbgrader.py` says how.
"""

import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient

from course_lib.bench import nbgrader
from course_lib.classroom import autograder
from course_lib.classroom.autograder import run_autograder, write_autograder, write_workflow
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark.class_run import ClassResult
from course_lib.classroom.sandbox.stage import SandboxError
from course_lib.course.files import ASSETS
from course_lib.grading import EXERCISES, grade
from course_lib.grading.page.package import for_nbgrader, release
from tests import pupils, rivals

ROOT = Path(__file__).parent.parent
COURSE = "a-school/the_course@v1.2"
NOTEBOOKS = sorted((ROOT / "exercises").glob("*.ipynb"))
NUMBERS = [10]  # the chapter that is graded here: it computes little


def read(path):
    return nbformat.read(path, as_version=4)


def marks(notebook):
    return [cell.metadata["nbgrader"] for cell in notebook.cells if "nbgrader" in cell.metadata]


# ------------------------------------------------------------------------------------------------------------- nbgrader
def test_every_exercise_with_points_is_marked_once_and_with_its_points():
    found = [mark for path in NOTEBOOKS for mark in marks(for_nbgrader(read(path)))]
    points = {mark["grade_id"].replace("__", "."): mark["points"] for mark in found}
    assert len(points) == len(found)
    assert points == {exercise.id: exercise.points for exercise in EXERCISES.values()}
    by_hand = {mark["grade_id"].replace("__", ".") for mark in found if mark["task"]}
    assert by_hand == {exercise.id for exercise in EXERCISES.values() if exercise.kind == "reflect"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_marked_cell_is_a_check_or_the_question_of_a_reflection_and_nothing_else(path):
    """nbgrader writes such a cell back as it was: an answer in it would be lost."""
    for cell in for_nbgrader(read(path)).cells:
        if "nbgrader" in cell.metadata:
            mark = cell.metadata["nbgrader"]
            if mark["task"]:
                assert cell.cell_type == "markdown"
                assert EXERCISES[mark["grade_id"].replace("__", ".")].title in cell.source
                assert (mark["schema_version"], mark["grade"], mark["solution"], mark["points"]) == (3, False, False, 0)
                continue
            named = re.fullmatch(r'check\("([\w.]+)", \w+\)', cell.source)
            assert named, cell.source
            assert mark["grade_id"] == named[1].replace(".", "__")
            assert (mark["schema_version"], mark["grade"], mark["locked"]) == (3, True, True)
            assert (mark["solution"], mark["task"]) == (False, False)
            assert re.fullmatch(r"[\w-]+", mark["grade_id"], flags=re.ASCII)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_marks_change_no_line_of_a_notebook(path):
    before, after = read(path), for_nbgrader(read(path))
    nbformat.validate(after)
    texts = [[line for cell in each.cells for line in cell.source.splitlines() if line] for each in (before, after)]
    assert texts[0] == texts[1]
    known = {cell.id for cell in before.cells}
    assert [cell.id for cell in before.cells] == [cell.id for cell in after.cells if cell.id in known]
    assert all(cell.id.endswith("-check") for cell in after.cells if cell.id not in known)
    assert before == read(path), "what was given stays as it was"


def test_the_released_exercises_carry_the_marks_and_those_of_the_repository_do_not(tmp_path):
    release(ROOT, tmp_path / "package")
    for path in NOTEBOOKS:
        assert marks(read(tmp_path / "package" / "exercises" / path.name)) == marks(for_nbgrader(read(path))) != []
        assert marks(read(path)) == []


def test_marks_survive_a_run_and_are_the_same_when_made_again():
    notebook = for_nbgrader(read(ROOT / "exercises" / "10_counting.ipynb"))
    before = marks(notebook)
    NotebookClient(notebook, timeout=120).execute()
    again = nbformat.reads(nbformat.writes(notebook), as_version=4)
    assert marks(again) == before
    assert marks(for_nbgrader(again)) == before
    assert len(again.cells) == len(for_nbgrader(again).cells)


def right(x, dim):
    return (x - x.logsumexp(dim, keepdim=True)).exp()


@pytest.mark.parametrize(("answer", "text"), [(right, "2"), (lambda x, dim: x, "0"), (..., "0")])
def test_nbgrader_reads_the_points_where_a_learner_reads_the_feedback(answer, text, monkeypatch):
    result = grade("attention.softmax", answer, seed=0)
    show = InteractiveShell.instance().display_formatter.format
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    shown, _ = show(result)
    assert shown.get("text/plain") in (repr(result), None), "a result that is not right shows itself, with a button"
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    shown, _ = show(result)
    assert shown["text/plain"] == text
    assert shown["text/html"] == result._repr_html_()


def of_two_chapters(paths):
    """One has answers and checks in cells of their own, the other in the same ones."""
    return [path for path in paths if path.name.startswith(("03", "10"))]


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    if nbgrader.nbgrader_python() is None:
        pytest.skip("needs nbgrader: course_lib/bench/nbgrader.py says how")
    return nbgrader.Nbgrader(tmp_path_factory.mktemp("nbgrader"), of_two_chapters(NOTEBOOKS))


class TestWithNbgrader:
    def test_the_assignment_that_it_makes_is_the_notebook_that_we_release(self, course):
        for path in of_two_chapters(NOTEBOOKS):
            made = read(course.folder / "release" / nbgrader.ASSIGNMENT / path.name)
            assert [cell.source for cell in made.cells] == [cell.source for cell in for_nbgrader(read(path)).cells]

    def test_autograde_gives_our_points_for_solved_half_solved_and_unsolved_notebooks(self, course, tmp_path):
        solved = tmp_path / "solved"
        solved.mkdir()
        for path in of_two_chapters(sorted(pupils.SOLUTIONS.glob("*.ipynb"))):
            everything = dict.fromkeys(pupils.exercises_of(path), pupils.SOLVED)
            nbformat.write(pupils.submission(path, everything, random.Random(0)), solved / path.name)
        half = pupils.make(tmp_path / "drawn", 2, seed=5, chapters=("03", "10"))
        handed_in = {"solved": solved} | {pupil.name: pupil.folder for pupil in half}
        for name, folder in handed_in.items():
            course.hand_in(name, sorted(folder.glob("*.ipynb")))
        course.hand_in("unsolved", of_two_chapters(NOTEBOOKS))
        theirs = course.autograde()
        for name, folder in handed_in.items():
            ours = {id: points for id, points in rivals.grade_here(folder).items() if EXERCISES[id].points}
            assert {id: theirs[name][id] for id in ours} == ours, name
        assert sum(theirs["solved"].values()) == sum(e.points for e in EXERCISES.values() if e.chapter in (3, 10))
        assert 0 < sum(theirs[half[0].name].values()) < sum(theirs["solved"].values())
        assert not any(theirs["unsolved"].values())

    def test_validate_tells_a_learner_what_is_not_right_yet(self, course):
        path = course.folder / "release" / nbgrader.ASSIGNMENT / "10_counting.ipynb"
        assert "failed" in course.validate(path).lower()


# ----------------------------------------------------------------------------------------------------------- Gradescope
def test_an_autograder_zip_holds_the_scripts_at_its_top_and_the_course(tmp_path):
    path = write_autograder(ROOT, tmp_path / "new" / "autograder.zip", [3, 10])
    with zipfile.ZipFile(path) as archive:
        modes = {entry.filename: stat.S_IMODE(entry.external_attr >> 16) for entry in archive.infolist()}
        packages = archive.read("requirements.txt").decode().splitlines()
        script = archive.read("run_autograder").decode()
    assert {name for name in modes if "/" not in name} == {
        "setup.sh", "run_autograder", "not_graded.json", "requirements.txt",
    }  # fmt: skip
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert {mode for name, mode in modes.items() if name.startswith("course/")} == {0o644}
    assert "course/course_lib/chapters/attention/exercises/softmax.md" in modes
    assert not [name for name in modes if "__pycache__" in name or name.startswith(("/", "course/tests", "course/sol"))]
    assert "torch==2.13.0" in packages
    assert not [line for line in packages if line.startswith(("-e", "pytest"))]
    assert "3 10 --seconds" in script
    assert not list(path.parent.glob("*.part"))


def test_the_same_course_gives_the_same_zip_whatever_the_clock_says(tmp_path):
    one = write_autograder(ROOT, tmp_path / "one.zip", [10, 3])
    for path in (ASSETS / "autograder").iterdir():
        os.utime(path)
    assert one.read_bytes() == write_autograder(ROOT, tmp_path / "other.zip", [3, 10, 3]).read_bytes()


@pytest.mark.parametrize("name", ["setup.sh", "run_autograder"])
def test_scripts_are_bash_without_a_gap_left_open(name, tmp_path):
    with zipfile.ZipFile(write_autograder(ROOT, tmp_path / "a.zip", [1], "https://example.org/whl/cpu")) as archive:
        script = archive.read(name).decode()
    assert subprocess.run(["bash", "-n"], input=script, text=True).returncode == 0
    assert not re.search(r"\b(CHAPTERS|INDEX)\b", script)
    assert (
        name == "run_autograder" or "install --no-cache-dir --extra-index-url https://example.org/whl/cpu -r" in script
    )


@pytest.fixture
def tree(tmp_path):
    """/autograder as Gradescope builds it, elsewhere, with a submission of one chapter."""
    root = tmp_path / "autograder"
    for name in ("source", "submission", "results"):
        (root / name).mkdir(parents=True)
    with zipfile.ZipFile(write_autograder(ROOT, tmp_path / "autograder.zip", NUMBERS)) as archive:
        archive.extractall(root / "source")
    script = root / "run_autograder"
    script.write_bytes((root / "source" / "run_autograder").read_bytes())
    script.chmod(0o755)
    [pupil] = pupils.make(tmp_path / "class", 1, seed=4, chapters=("10",))
    (root / "submission" / "10_counting.ipynb").write_bytes((pupil.folder / "10_counting.ipynb").read_bytes())
    return root, pupil


def start(root, environment=sys.prefix, **variables):
    variables |= {"AUTOGRADER": str(root), "COURSE_ENVIRONMENT": str(environment)}
    return subprocess.run(["./run_autograder"], cwd=root, env=os.environ | variables, capture_output=True, text=True)


def results(root):
    assert [path.name for path in (root / "results").iterdir()] == ["results.json"]
    return json.loads((root / "results" / "results.json").read_text(encoding="utf-8"))


def not_graded(result):
    """No score and no tests: Gradescope then says that the autograder failed, and gives no points, not even zero."""
    return "score" not in result and result["tests"] == [] and "not its fault" in result["output"]


@pytest.mark.proof
def test_a_submission_gets_in_the_container_what_it_earned(tree):
    root, pupil = tree
    (root / "submission" / "10_counting-Copy1.ipynb").write_bytes(
        (root / "submission" / "10_counting.ipynb").read_bytes()
    )  # two notebooks of one chapter are one submission here, whoever's they are elsewhere
    seen = start(root)
    assert seen.returncode == 0, seen.stdout + seen.stderr
    result = results(root)
    assert result["score"] == pupil.earned == sum(test["score"] for test in result["tests"])
    assert 0 < pupil.earned < sum(test["max_score"] for test in result["tests"])
    assert {test["number"] for test in result["tests"]} == {e.id for e in EXERCISES.values() if e.chapter in NUMBERS}
    assert result["extra_data"]["sandbox"] in ("bwrap", "none")
    assert ("sandbox: none" in seen.stdout) == (result["extra_data"]["sandbox"] == "none")


@pytest.mark.parametrize(
    ("python", "code"), [("exit 3", 3), ("kill -9 $$", -signal.SIGKILL), ("rm -r ../../source; exit 1", 1)]
)
def test_a_grader_that_dies_leaves_a_result_without_a_score(tree, tmp_path, python, code):
    root, _ = tree
    (root / "results" / "results.json").write_text('{"score": 100}')  # of an earlier run
    program = tmp_path / "environment" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{python}\n")
    program.chmod(0o755)
    assert start(root, tmp_path / "environment").returncode == code
    assert not_graded(results(root))


def test_an_environment_that_was_never_built_leaves_a_result_without_a_score(tree, tmp_path):
    root, _ = tree
    assert start(root, tmp_path / "nowhere").returncode != 0
    assert not_graded(results(root))


def test_the_grader_sees_nothing_of_the_environment_around_it(tree, tmp_path):
    root, _ = tree
    program = tmp_path / "environment" / "bin" / "python"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$@"\nenv\n')
    program.chmod(0o755)
    said = start(root, tmp_path / "environment", SUBMISSION_URL="https://example.org/secret", TIMEOUT_SECONDS="2400")
    assert "secret" not in said.stdout
    assert said.stdout.splitlines()[0] == f"-m course_lib.classroom.autograder {root} 10 --seconds 2400"


class TestTheGraderInTheContainer:
    """In this process, with the wall and the workers replaced."""

    @pytest.fixture
    def root(self, tree):
        root, _ = tree
        (root / "results" / "results.json").write_bytes((root / "source" / "not_graded.json").read_bytes())
        return root

    def test_without_a_wall_it_says_so_to_the_teacher_and_grades(self, root, monkeypatch, capsys):
        tried = []

        def mark_class(submissions, expected, folder, *, sandbox, jobs, quotas):
            tried.append((sandbox, quotas.timeout))
            if sandbox == "bwrap":
                raise SandboxError("no permission to make\na namespace")
            marked = [unanswered(submission, expected) for submission in submissions]
            return ClassResult(marked, seed=7)

        monkeypatch.setattr(autograder, "mark_class", mark_class)
        assert run_autograder(root, NUMBERS, seconds=900)
        assert tried == [("bwrap", 840), ("none", 840)], "there is a result before Gradescope's time is up"
        result = results(root)
        assert result["extra_data"]["sandbox"] == "none"
        assert "sandbox: none" not in result["output"], "that is nothing for learners to read"
        said = capsys.readouterr().out
        assert "no permission to make a namespace" in said
        assert "seed 7" in said

    @pytest.mark.parametrize("how", ["raises", "fails", "nothing"])
    def test_a_fault_of_ours_is_no_zero(self, root, monkeypatch, capsys, how):
        def mark_class(submissions, expected, folder, **options):
            if how == "raises":
                raise MemoryError("torch needs more")
            return ClassResult([], {"submission": "the worker is gone"} if how == "fails" else {})

        monkeypatch.setattr(autograder, "mark_class", mark_class)
        assert not run_autograder(root, NUMBERS)
        assert not_graded(results(root))
        expected = {"raises": "torch needs more", "fails": "the worker is gone", "nothing": "ValueError"}[how]
        assert expected in capsys.readouterr().out

    def test_a_pipe_in_a_submission_does_not_stop_it(self, root, monkeypatch):
        os.mkfifo(root / "submission" / "11_encoder_decoder.ipynb")
        (root / "submission" / "link").symlink_to("/etc/passwd")
        seen = []

        def mark_class(submissions, expected, folder, **options):
            seen.extend(submissions)
            return ClassResult([unanswered(submission, expected) for submission in submissions])

        monkeypatch.setattr(autograder, "mark_class", mark_class)
        assert run_autograder(root, NUMBERS)
        [submission] = seen
        assert [notebook.path for notebook in submission.notebooks] == ["10_counting.ipynb"]


def unanswered(submission, expected):
    return GradedSubmission(submission.name, submission.digest, tuple(grade(each.id, ..., 1) for each in expected))


# --------------------------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda folder: write_autograder(ROOT, folder / "a.zip", []), "no chapter is named: name some of 1, 2"),
        (lambda folder: write_autograder(ROOT, folder / "a.zip", [3, 0]), "there is no chapter 0 with exercises"),
        (lambda folder: write_autograder(ROOT, folder / "a.tar", [3]), "should end in .zip"),
        (lambda folder: write_autograder(folder, folder / "a.zip", [3]), "is not the course's repository"),
        (lambda folder: write_autograder(ROOT, folder / "a.zip", [3], "http://x; rm"), "begins https://"),
        (lambda folder: write_workflow(folder / "a.yml", [3], "school/course"), "OWNER/NAME@REF"),
        (lambda folder: write_workflow(folder / "a.yml", [3], 'a/b@v1"\n'), "OWNER/NAME@REF"),
        (lambda folder: write_workflow(folder / "a.yml", [], COURSE), "no chapter is named"),
    ],
)
def test_what_cannot_be_made_is_said_and_nothing_is_written(make, part, tmp_path):
    with pytest.raises(ValueError, match=re.escape(part)):
        make(tmp_path)
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------------------- the synthetic class
@pytest.mark.proof
def test_a_drawn_class_earns_what_it_says_and_is_drawn_the_same_again(tmp_path):
    drawn = pupils.make(tmp_path / "one", 4, seed=3, chapters=("03", "10"))
    for pupil in drawn:
        points = rivals.grade_here(pupil.folder)
        assert sum(points.values()) == pupil.earned
        assert {id for id, earned in points.items() if earned} <= {
            id for id, what in pupil.did.items() if what == pupils.SOLVED
        }
    assert {what for pupil in drawn for what in pupil.did.values()} == {pupils.SOLVED, pupils.OPEN, pupils.WRONG}
    again = pupils.make(tmp_path / "other", 4, seed=3, chapters=("03", "10"))
    texts = [{path.name: path.read_bytes() for path in each.folder.iterdir()} for each in (*drawn, *again)]
    assert texts[:4] == texts[4:]
    assert len({str(text) for text in texts}) == 4
