"""What other services build the course from names what is there, and does what the README says."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course_lib.__main__ import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / ".devcontainer" / "Dockerfile").read_text(encoding="utf-8")
DEVCONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
PYTHON = re.search(r"Python (3\.\d+) or newer", README)[1]


def instructions(name):
    """The arguments of all instructions of one name in the Dockerfile, its continued lines joined."""
    lines = DOCKERFILE.replace("\\\n", " ").splitlines()
    return [line.removeprefix(name).strip() for line in lines if line.startswith(name + " ")]


def starts(arguments, monkeypatch):
    """Run `python -m course_lib` with these arguments up to the command itself, and return what it was given."""
    given = []
    monkeypatch.setattr("course_lib.cli.start.run", lambda arguments: given.append(arguments) or 0)
    assert main(arguments) == 0
    return given[0]


def test_everything_that_the_image_copies_is_there_and_the_installation_needs_no_more():
    copied = [name for each in instructions("COPY") for name in shlex.split(each)[1:-1]]
    assert all((ROOT / name).exists() for name in copied)
    needed = {"requirements.txt", "pyproject.toml", "course_lib", "notebooks", "exercises"}
    assert needed <= set(copied)
    assert not {"solutions", "tests"} & set(copied), "a learner's image holds no answers"


def test_the_dockerfile_is_one_and_its_shell_commands_are_sound():
    hadolint = shutil.which("hadolint", path=Path(sys.executable).parent)
    if hadolint is None:
        pytest.skip("hadolint is not in this environment; there is none for Windows")
    said = subprocess.run([hadolint, ROOT / ".devcontainer" / "Dockerfile"], capture_output=True, text=True)
    assert (said.returncode, said.stdout + said.stderr) == (0, "")


def test_the_image_begins_from_the_files_that_it_copies(tmp_path):
    """The words of CMD, without JupyterLab, in a folder that holds what COPY names and nothing else."""
    for *names, target in (shlex.split(each)[1:] for each in instructions("COPY")):
        for path in (ROOT / name for name in names):
            if path.is_dir():
                shutil.copytree(path, tmp_path / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(path, tmp_path / target)
    _, *arguments = (word for word in json.loads(instructions("CMD")[0]) if not word.startswith("--lab="))
    command = [sys.executable, *arguments, "--no-lab"]
    said = subprocess.run(command, cwd=tmp_path, env={"PYTHONSAFEPATH": ""}, capture_output=True, text=True)
    assert said.stdout.startswith(f"Your copy of the course is in {tmp_path / 'my'}: "), said.stderr
    handed = {path.name for path in (tmp_path / "my").rglob("*.ipynb")}
    assert handed == {path.name for part in ("notebooks", "exercises") for path in (ROOT / part).glob("*.ipynb")}


def test_the_learner_owns_the_folders_in_which_the_image_writes():
    """`install` makes the folders above those that it names for root. WORKDIR takes a folder as it is."""
    made = shlex.split(instructions("RUN")[0].partition(" && ")[2])
    assert made[:4] == ["install", "--directory", "--owner", "learner"]
    (course,) = instructions("WORKDIR")
    assert made[4:] == [course, f"{course}/my"]


def test_the_image_begins_as_a_learner_does_and_not_as_root(monkeypatch):
    assert instructions("USER") == ["learner"]
    _, install = instructions("RUN")
    assert re.sub(r"PIP_\w+=\S+ |--no-cache-dir ", "", " ".join(install.split())) in README
    python, *arguments = json.loads(instructions("CMD")[0])
    assert (python, arguments[:2]) == (".venv/bin/python", ["-m", "course_lib"])
    assert "0.0.0.0" in starts(arguments[2:], monkeypatch).lab


def test_the_dev_container_runs_the_readmes_first_command():
    command = DEVCONTAINER["postCreateCommand"]
    assert command.endswith(" start --no-lab")
    assert command.removesuffix(" --no-lab") in README


@pytest.mark.parametrize(
    "found",
    [
        DEVCONTAINER["image"].removeprefix("python:"),
        instructions("FROM")[0].removeprefix("python:").removesuffix("-slim"),
        (ROOT / ".binder" / "runtime.txt").read_text(encoding="utf-8").strip().removeprefix("python-"),
    ],
    ids=["dev container", "Dockerfile", "Binder"],
)
def test_each_has_the_oldest_python_that_the_course_promises(found):
    assert found == PYTHON


def test_binder_installs_what_every_learner_does():
    """A path after -c is meant from the file that names it, one after -e from where pip runs."""
    lines = (ROOT / ".binder" / "requirements.txt").read_text(encoding="utf-8").splitlines()
    constraints, course = (line for line in lines if not line.startswith("#"))
    assert (ROOT / ".binder" / constraints.removeprefix("-c ")).resolve() == ROOT / "requirements.txt"
    assert f"-c requirements.txt {course.replace('.[learn]', chr(34) + '.[learn]' + chr(34))} " in README


def test_both_licences_are_said_wherever_a_licence_is():
    for name in ("LICENSE", "README.md", "pyproject.toml", "CITATION.cff"):
        said = (ROOT / name).read_text(encoding="utf-8").replace("-", " ")
        assert "MIT" in said, name
        assert "CC BY 4.0" in said, name
