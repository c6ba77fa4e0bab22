"""A class run: what is expected of everyone, equal submissions, and faults of the machine."""

import json
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from course_lib.__main__ import main
from course_lib.classroom.mark import marking
from course_lib.classroom.mark.class_run import expected_exercises
from course_lib.classroom.read.submission_reader import Submission
from course_lib.classroom.read.submissions import find_submissions
from course_lib.classroom.sandbox.remote import Fault
from course_lib.classroom.sandbox.stage import SandboxError
from course_lib.grading.page.catalogue import EXERCISES
from tests.grading import corpus
from tests.pretended_worker import NAMES, Idle, pretend, run, submitted
from tests.small_class import (
    EXERCISE,
    write,
    write_class,
)


@pytest.fixture
def pretended(monkeypatch):
    return pretend(monkeypatch)


def test_equal_submissions_are_graded_once_and_keep_their_names(pretended, tmp_path):
    submissions = [replace(each, digest="the same") for each in submitted("zoe", "anna", "max")]
    submissions.insert(1, *submitted("other"))
    outcome = run(tmp_path, submissions)
    assert sorted(pretended.names) == ["other", "zoe"]
    assert [each.name for each in outcome.marked] == ["zoe", "other", "anna", "max"]
    assert len({each.results for each in outcome.marked}) == 2


def test_a_fault_of_the_machine_is_tried_again_and_never_a_zero(pretended, tmp_path):
    submissions = [*submitted(), replace(submitted("twin")[0], digest="digest of bert")]
    pretended.wrong = {"bert": Fault("the machine is on fire")}
    outcome = run(tmp_path, submissions)
    assert pretended.names.count("bert") == marking.TRIES == Idle.restarts == 3
    assert set(outcome.failed) == {"bert", "twin"}
    assert "on fire (3 tries)" in outcome.failed["bert"]
    assert [each.name for each in outcome.marked] == [name for name in NAMES if name != "bert"]
    pretended.wrong = {}
    again = run(tmp_path, submissions, resume=True)
    assert pretended.names[-1] == "bert"
    assert (again.known, again.failed) == (len(NAMES) - 1, {})
    assert [each.name for each in again.marked] == [*NAMES, "twin"]


@pytest.mark.parametrize("error", [Fault("gone"), SandboxError("no bwrap"), TypeError("our mistake"), MemoryError()])
def test_no_error_over_one_submission_ends_the_class(pretended, tmp_path, monkeypatch, error):
    def restart(worker):
        raise SandboxError("it does not start any more")

    monkeypatch.setattr(Idle, "restart", restart)
    pretended.wrong = {"carl": error}
    outcome = run(tmp_path)
    assert set(outcome.failed) == {"carl"}
    assert "it does not start any more" in outcome.failed["carl"]
    assert len(outcome.marked) == len(NAMES) - 1


def test_what_could_not_be_graded_is_said_and_is_no_success(pretended, tmp_path, capsys):
    pretended.wrong = {"bert": Fault("the machine is on fire")}
    arguments = ["grade", str(write_class(tmp_path / "class")), "--out", str(tmp_path / "out"), "--json"]
    arguments += ["--exercises", EXERCISE]
    assert main(arguments) == 1
    said = capsys.readouterr()
    assert "NOT GRADED, through no fault of its author: 'bert': the machine is on fire (3 tries)" in said.err
    assert "1 could not be graded by this machine; the same command with --resume grades them" in said.err
    table = said.out[said.out.index("learner") :]
    assert "bert" not in table
    assert "7 submissions · mean 100%" in table
    names = [each["name"] for each in json.loads((tmp_path / "out" / "results.json").read_text())["submissions"]]
    assert names == [name for name in NAMES if name != "bert"], "no zero in the results, either"
    pretended.wrong = {}
    assert main([*arguments, "--resume"]) == 0
    said = capsys.readouterr()
    assert "7 were graded before and stay as they are" in said.out
    assert "8 submissions · mean 100%" in said.out


def about(*chapters: int) -> Submission:
    """A submission whose notebook checks an exercise of each chapter."""
    ids = {each.chapter: each.id for each in EXERCISES.values()}
    cells = [("code", f'check("{ids[chapter]}", None)') for chapter in chapters]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "work.ipynb").write_text(corpus.notebook(cells))
        return find_submissions([Path(folder)])[0]


def chapters(submissions, *terms):
    return sorted({exercise.chapter for exercise in expected_exercises(submissions, *terms)})


def test_a_class_is_expected_to_do_what_at_least_half_of_it_is_about():
    assert chapters([about(3, 4), about(3, 4), about(3)]) == [3, 4]
    assert chapters([about(3), about(4)]) == [3, 4]


def test_one_odd_submission_changes_nothing_for_the_others():
    honest = [about(3), about(3), about(3), about(3, 10)]
    everything = about(*range(1, 16))
    assert chapters(honest) == chapters([*honest, everything]) == chapters([everything, *honest]) == [3]


def test_the_loose_notebooks_of_one_learner_count_as_one(tmp_path):
    """Three folders about chapter 2, beside four notebooks without a folder, which may be of one learner."""
    cell = corpus.notebook([("code", 'check("attention.softmax", softmax)')])
    for place in ("ada", "bo", "cy"):
        write(tmp_path / "class" / place, "softmax = 1\ncheck('attention.softmax', softmax)")
    loose = ["03_masks", "04_heads", "06_feed_forward", "07_normalization"]
    for prefix in ("", "dee_"):
        for name in loose:
            (tmp_path / "class" / f"{prefix}{name}.ipynb").write_text(cell.replace("attention.softmax", "nothing"))
        submissions = find_submissions([tmp_path / "class"])
        assert len(submissions) == 7
        assert chapters(submissions) == [2]
        for name in loose:
            (tmp_path / "class" / f"{prefix}{name}.ipynb").unlink()
    named = [replace(about(2 + i % 2), name=f"02_attention ({name})") for i, name in enumerate(("ada", "bo", "cy"))]
    assert chapters(named) == [2], "each of them counts"


def test_those_who_hand_in_nothing_do_not_take_the_exercises_from_the_others():
    nothing = [Submission(f"nobody {number}", (), {}, (), str(number)) for number in range(5)]
    assert chapters([*nothing, about(3), about(3)]) == [3]


def test_expected_exercises_are_those_asked_for_in_the_courses_order():
    submissions = [about(3)]
    assert chapters(submissions, [4, 1]) == [1, 4]
    ids = [each for each in EXERCISES if EXERCISES[each].chapter in (2, 4)][::-1][:2]
    assert [each.id for each in expected_exercises(submissions, (), ids)] == sorted(ids, key=list(EXERCISES).index)
    everything = expected_exercises(submissions, [EXERCISES[ids[0]].chapter], ids)
    assert len(everything) == len({each.id for each in everything}), "none twice"


def test_nothing_to_expect_is_refused_with_a_remedy():
    with pytest.raises(ValueError, match="--chapters 2"):
        expected_exercises([Submission("nobody", (), {}, (), "")])
