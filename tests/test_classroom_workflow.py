"""The workflow for GitHub: what it reads, what it runs, and what it says."""

import ast
import json
import os
import re
import runpy
import subprocess
from pathlib import Path

import nbformat
import pytest
import yaml

from course_lib.__main__ import main
from course_lib.classroom.autograder import write_classroom50_autograder, write_workflow
from course_lib.classroom.export.classroom50 import classroom50_fields
from course_lib.grading import EXERCISES
from tests.grading import corpus
from tests.pretended_worker import pretend


def read(path):
    return nbformat.read(path, as_version=4)


COURSE = "a-school/the_course@v1.2"


@pytest.fixture
def workflow(tmp_path):
    return yaml.safe_load(write_workflow(tmp_path / "new" / "grade.yml", [3, 10], COURSE).read_text(encoding="utf-8"))


def steps(workflow):
    return {step["name"]: step for step in workflow["jobs"]["grade"]["steps"]}


def test_the_workflow_reads_only_ends_by_itself_and_knows_no_secret(workflow, tmp_path):
    assert workflow["permissions"] == {"contents": "read"}
    assert set(workflow[True]) == {"push", "workflow_dispatch"}, "YAML reads `on` as True"
    assert workflow["jobs"]["grade"]["timeout-minutes"] <= 60
    assert "permissions" not in workflow["jobs"]["grade"]
    assert "secrets" not in (tmp_path / "new" / "grade.yml").read_text(encoding="utf-8")
    used = [step["uses"] for step in steps(workflow).values() if "uses" in step]
    assert used
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", each) for each in used)
    checkouts = [step["with"] for step in steps(workflow).values() if "checkout" in step.get("uses", "")]
    assert all(each["persist-credentials"] is False for each in checkouts)
    assert [(each.get("repository"), each.get("ref")) for each in checkouts] == [
        (None, None), ("a-school/the_course", "v1.2"),
    ]  # fmt: skip


def test_no_text_of_a_learner_stands_in_a_script_of_the_workflow(workflow):
    """A branch or a repository may have any name: it comes as a variable, never as part of the script."""
    for step in steps(workflow).values():
        if "run" in step:
            assert "${{" not in step["run"], step["name"]
            assert subprocess.run(["bash", "-n"], input=step["run"], text=True).returncode == 0


def test_the_workflow_grades_the_chapters_with_the_courses_command(workflow):
    command = "python -m course_lib grade ../class --out ../results --classroom50 --chapters 3 10"
    assert steps(workflow)["Grade"]["run"] == command
    assert steps(workflow)["Install the course"]["run"] == "python -m pip install -r requirements.txt -e ."


@pytest.mark.parametrize("released", [True, False], ids=["the whole package", "notebooks alone"])
def test_the_workflow_takes_the_exercises_alone(workflow, tmp_path, released):
    place = tmp_path / "handed_in" / "exercises" if released else tmp_path / "handed_in"
    (place / ".git").mkdir(parents=True)
    (place / "02_attention.ipynb").touch()
    if released:
        (tmp_path / "handed_in" / "notebooks").mkdir()
    run_step(steps(workflow)["Take the exercises"], tmp_path, NAME="ada-transformers")
    assert [path.name for path in (tmp_path / "class").iterdir()] == ["ada-transformers"]
    assert [path.name for path in (tmp_path / "class" / "ada-transformers").iterdir()] == ["02_attention.ipynb"]


def test_the_workflow_says_of_a_submission_what_classroom_50_wants_to_know(workflow, tmp_path):
    written = tmp_path / "environment"
    run_step(
        steps(workflow)["Name the submission"], tmp_path,
        OWNER="school", NAME="ada", PAGE="https://example.org/school/ada", COMMIT="0123456789abcdef",
        GITHUB_ENV=str(written),
    )  # fmt: skip
    fields = classroom50_fields(dict(line.split("=", 1) for line in written.read_text().splitlines()))
    assert fields["classroom"] == "school"
    assert fields["assignment"] == "ada"
    assert fields["commit"] == "https://example.org/school/ada/commit/0123456789abcdef"
    assert fields["submission"].endswith("-0123456")
    assert fields["release"] == f"https://example.org/school/ada/releases/tag/{fields['submission']}"


def run_step(step, folder, **variables):
    environment = {"PATH": os.environ["PATH"], **variables}
    assert set(step["env"]) <= set(variables)
    subprocess.run(["bash", "-e", "-o", "pipefail", "-c", step["run"]], cwd=folder, env=environment, check=True)


# --- Classroom 50 -----------------------------------------------------------------------------------------------------
RUNNER = {
    "CLASSROOM": "transformers", "ASSIGNMENT": "attention", "SUBMISSION_TAG": "submit/2026-06-01T14-32-05Z-a1b2c3d",
    "COMMIT_URL": "https://example.org/commit/a1", "RELEASE_URL": "https://example.org/releases/tag/a1",
}  # fmt: skip


def run_autograder(path, checkout, grade, monkeypatch):
    """Run the file as Classroom 50's runner does; what it would start is noted, and `grade` stands for the grader."""
    started = []

    def run(command, **more):
        started.append(command)
        if more.get("check") is None and "grade" in command:
            grade(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.chdir(checkout)
    for name, value in RUNNER.items():
        monkeypatch.setenv(name, value)
    runpy.run_path(str(path), run_name="__main__")
    return started


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    (folder / ".git").mkdir(parents=True)
    (folder / "answers.ipynb").write_text(corpus.notebook([("code", "attention_memory = 2048 * 2048 * 4")]))
    return folder


def test_classroom50s_autograder_leaves_the_graders_result_where_its_runner_looks(tmp_path, checkout, monkeypatch):
    pretend(monkeypatch)
    path = write_classroom50_autograder(tmp_path / "new" / "autograder.py", [2], COURSE, "https://example.org/cpu")

    def grade(command):
        handed_in = Path(command[command.index("grade") + 1])
        assert [each.name for each in handed_in.iterdir()] == ["attention"]
        assert [each.name for each in (handed_in / "attention").iterdir()] == ["answers.ipynb"]
        assert main(command[command.index("grade") :]) == 0

    started = run_autograder(path, checkout, grade, monkeypatch)
    assert ["git", "fetch", "--quiet", "--depth", "1", "https://github.com/a-school/the_course", "v1.2"] in started
    assert any(
        command[-6:] == ["--extra-index-url", "https://example.org/cpu", "-r", "requirements.txt", "-e", "."]
        for command in started
    )
    result = json.loads((checkout / "result.json").read_text("utf-8"))
    points = sum(each.points for each in EXERCISES.values() if each.chapter == 2)
    assert (result["schema"], result["score"], result["max-score"]) == ("classroom50/result/v1", points, points)
    assert (result["classroom"], result["assignment"]) == ("transformers", "attention")
    assert result["submission"] == RUNNER["SUBMISSION_TAG"]


def test_where_the_grader_fails_classroom50_hears_of_an_error_and_of_no_zero(tmp_path, checkout, monkeypatch):
    path = write_classroom50_autograder(tmp_path / "autograder.py", [2], COURSE)
    with pytest.raises(SystemExit, match="no fault of the submission"):
        run_autograder(path, checkout, lambda command: None, monkeypatch)
    assert not (checkout / "result.json").exists()


def test_classroom50s_autograder_holds_no_answer_and_takes_no_other_name(tmp_path):
    text = write_classroom50_autograder(tmp_path / "autograder.py", [2, 3], COURSE).read_text("utf-8")
    ast.parse(text)
    assert len(text) < 4_000
    for arguments, reason in [
        ((tmp_path / "grade.yml", [2], COURSE), "autograder.py"),
        ((tmp_path / "autograder.py", [99], COURSE), "no chapter 99"),
        ((tmp_path / "autograder.py", [2], "a b"), "OWNER/NAME@REF"),
        ((tmp_path / "autograder.py", [2], COURSE, "ftp://x"), "https://"),
    ]:
        with pytest.raises(ValueError, match=reason):
            write_classroom50_autograder(*arguments)
