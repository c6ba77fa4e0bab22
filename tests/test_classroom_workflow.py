"""The workflow for GitHub: what it reads, what it runs, and what it says."""

import os
import re
import subprocess

import nbformat
import pytest
import yaml

from course_lib.classroom.autograder import write_workflow
from course_lib.classroom.export.classroom50 import classroom50_fields


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
    assert steps(workflow)["Install the course"]["run"] == "python -m pip install -r requirements.txt"


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
