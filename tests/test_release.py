"""The learner's package, and the stubs that stand in it: what is handed out, and what is not."""

import contextlib
import inspect
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zlib
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.__main__ import main
from course_lib.cli.release import chapters_of
from course_lib.course.contents import named, released
from course_lib.grading import EXERCISES
from course_lib.grading.page.package import left_out, release
from course_lib.grading.page.run_notebooks import exercise_text
from course_lib.grading.page.sealed import NAME

ROOT = Path(__file__).parent.parent


def write(path, *sources, tags=()):
    cells = [new_code_cell(source, metadata={"tags": list(tags)}) for source in sources]
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=cells), path)
    return path


# ---------------------------------------------------------------------------------------------------------------- grade
RIGHT = "def softmax(x, dim):\n    e = (x - x.amax(dim, keepdim=True)).exp()\n    return e / e.sum(dim, keepdim=True)"


WRONG = "def softmax(x, dim):\n    return x.exp() / x.exp().sum(dim, keepdim=True)"


# -------------------------------------------------------------------------------------------------------------- release
@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("for") / "learners"
    release(ROOT, folder)
    return folder


def test_a_learners_package_has_every_chapter_without_the_teachers_notes(package):
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        given = nbformat.read(package / "notebooks" / path.name, as_version=4).cells
        assert [cell.id for cell in given] == [
            cell.id for cell in cells if "teacher" not in cell.metadata.get("tags", [])
        ]
        assert len(given) < len(cells)


def texts(folder):
    """The text files below a folder; what cannot be read as text is none."""
    found = {}
    for path in folder.rglob("*"):
        with contextlib.suppress(UnicodeDecodeError, IsADirectoryError):
            found[path] = path.read_text(encoding="utf-8")
    return found


def test_a_learners_package_holds_the_course_and_neither_solutions_nor_tests(package):
    assert {path.name for path in package.iterdir()} == {
        "README.md", "LICENSE", "requirements.txt", "pyproject.toml", "notebooks", "exercises", "course_lib",
        ".gitignore", ".gitattributes", ".course.json", ".course.json.lock",
    }  # fmt: skip
    assert (package / "course_lib/chapters" / NAME).is_file()
    assert not list(package.glob("course_lib/chapters/*/exercises"))
    assert not [path for path in package.rglob("*") if path.name in ("solutions", "tests", "__pycache__", "right")]
    for name in ("README.md", "requirements.txt", "pyproject.toml"):
        text = (package / name).read_text(encoding="utf-8")
        assert "pytest" not in text
        assert "solutions" not in text
    readme = (package / "README.md").read_text(encoding="utf-8")
    assert "| learners |" in readme
    assert "grade --help" not in readme, "what is for teachers"
    assert "CC BY 4.0" in readme
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    assert f"chapters/{NAME}" in project["tool"]["setuptools"]["package-data"]["course_lib"]
    assert set(project["tool"]) == {"setuptools"}, "contributors' tools are not the learners'"


def test_links_in_a_learners_package_lead_somewhere(package):
    assert len({path for path, _ in links(package)}) > 10
    for path, link in links(package):
        assert (path.parent / link).exists(), f"{path.name} links to {link}"


def test_nothing_in_a_learners_package_gives_an_exercise_away_in_plain_reading(package):
    """Outside of the chapters and their guesses, which show the library's own code and two named mistakes."""
    chapters = {path for path in texts(package) if "notebooks" in path.parts or path.name == "guesses.md"}
    plain = {path: text for path, text in texts(package).items() if path not in chapters}
    everything = "\n".join(plain.values())
    grading = "\n".join(text for path, text in plain.items() if "grading" in path.parts or "exercises" in path.parts)
    for exercise in EXERCISES.values():
        told = [misconception.sentence for misconception in exercise.misconceptions]
        told += [option.why for option in exercise.options] + [exercise.model_answer, *exercise.hints]
        assert not [text for text in told if len(text) > 40 and text in everything], exercise.id
        if callable(exercise.reference):
            lines = [line.partition("#")[0].strip() for line in inspect.getsource(exercise.reference).splitlines()]
            whole = "\n".join(line for line in lines[1:] if line)
            assert whole not in "\n".join(line.strip() for line in grading.splitlines()), exercise.id


@pytest.mark.proof
def test_a_learners_package_checks_answers_and_names_mistakes(package):
    """In a fresh process that can only see the package. And Python itself does not show the reference."""
    code = (
        "import inspect, pathlib, course_lib\n"
        "assert pathlib.Path(course_lib.__file__).is_relative_to(pathlib.Path.cwd()), course_lib.__file__\n"
        "from course_lib.grading import EXERCISES, check\n"
        f"{RIGHT}\n"
        "print(check('attention.softmax', softmax))\n"
        f"{WRONG}\n"
        "print(check('attention.softmax', softmax))\n"
        f"assert len(EXERCISES) == {len(EXERCISES)}\n"
        "try:\n    print(inspect.getsource(EXERCISES['attention.softmax'].reference))\n"
        "except OSError:\n    print('no source')\n"
    )
    seen = subprocess.run([sys.executable, "-c", code], cwd=package, capture_output=True, text=True)
    assert seen.returncode == 0, seen.stderr
    assert "✓ Passed · attention.softmax" in seen.stdout
    assert "exp overflows above 88" in seen.stdout
    assert seen.stdout.endswith("no source\n")


def test_a_learners_package_asks_the_chapters_guesses(package):
    code = "from course_lib.live import guess\nprint(repr(guess('attention.sharpness')))"
    seen = subprocess.run([sys.executable, "-c", code], cwd=package, capture_output=True, text=True)
    assert seen.stdout.startswith("Predict: You keep the direction 30° north"), seen.stderr
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["course_lib"]
    shipped = {path for pattern in patterns for path in (package / "course_lib").glob(pattern)}
    assert {path for path in (package / "course_lib").rglob("*") if path.suffix in (".md", ".toml")} <= shipped


def links(package):
    """Every link to a page of the course, with the page that it stands on."""
    pages = {path: text for path, text in texts(package).items() if path.suffix in (".md", ".ipynb")}
    for path, text in pages.items():
        for link in re.findall(r"\]\(([^)#:\s\\]+\.(?:ipynb|md|py|png))\)", text):
            yield path, link


@pytest.mark.proof
def test_a_package_of_some_chapters_seals_no_others_exercises_and_its_links_lead_to_what_is_to_come(tmp_path):
    """Chapter 0 lets everybody try an exercise of chapter 1 and one of chapter 2, and links to chapter 1's."""
    package = tmp_path / "package"
    release(ROOT, package, [0], {2: "12 October 2026"})
    names = json.loads(zlib.decompress((package / "course_lib/chapters" / NAME).read_bytes()))
    exercises = {name.removesuffix(".md") for name in names if name.endswith(".md") and "/_" not in name}
    assert exercises == {"embeddings/parameters", "attention/softmax"}
    assert len([*links(package)]) > 10
    assert not [(path.name, link) for path, link in links(package) if not (path.parent / link).exists()]
    told = nbformat.read(package / "notebooks/02_attention.ipynb", as_version=4).cells[0].source
    assert "still to come: on 12 October 2026" in told
    code = (
        "from course_lib.grading import EXERCISES, check, progress\n"
        "print(list(EXERCISES), progress(), check('heads.merge', 1))\n"
    )
    seen = subprocess.run([sys.executable, "-c", code], cwd=package, capture_output=True, text=True)
    assert "chapter 4, Multi-head attention, is still to come" in seen.stdout, seen.stderr
    done = Counter(each.done for each in release(ROOT, package, [2], update=True))
    assert done["kept"] > 50 * (done["given"] + done["renewed"]), "what is equal is left alone"
    assert released(package / "course_lib") == [0, 2], "what is released stays released"


def test_chapters_are_named_by_number_name_or_range():
    assert chapters_of(["0-2", "masks,7", "13-sampling"]) == [0, 1, 2, 3, 7, 13]
    assert named([0, 1, 2, 4]) == "chapters 0–2, 4"
    assert named([3]) == "chapter 3"
    for wrong in ("4-2", "99", "-3", "atention", "1-"):
        with pytest.raises(ValueError, match=rf"--chapters {wrong} is not a chapter"):
            chapters_of([wrong])


def test_release_refuses_what_it_might_spoil(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    (tmp_path / "mine.txt").write_text("precious")
    for folder, reason in ((tmp_path, "is not empty"), (ROOT / "runs" / "out", "is inside the repository")):
        assert main(["release", str(folder)]) == 2
        assert reason in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    monkeypatch.chdir(tmp_path)
    assert main(["release", str(tmp_path / "out")]) == 2
    assert "is not the course's repository" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["my_gpt.py", "runs", ".virtual_documents", "mine.ipynb.part"])
def test_what_somebody_made_beside_the_notebooks_reaches_no_learner(name, tmp_path):
    """A teacher's own GPT, and models that were trained there: git does not see them, and learners are not to."""
    (tmp_path / "notebooks").mkdir()
    assert left_out(str(tmp_path / "notebooks"), [name, "18_your_gpt.ipynb", "glossary.md"]) == {name}


def test_answers_in_the_repositorys_own_exercises_reach_no_learner(tmp_path):
    root = tmp_path / "course"
    for name in ("course_lib", "notebooks", "solutions"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, root / name)
    write(root / "exercises" / "03_masks.ipynb", "my_own_answer = 1")
    release(root, tmp_path / "out")
    handed_out = {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "out/exercises").iterdir()}
    assert handed_out.keys() == {path.name for path in (ROOT / "solutions").glob("*.ipynb")}
    assert not [name for name, text in handed_out.items() if "my_own_answer" in text]


# -------------------------------------------------------------------------------------------------- stubs and solutions
@pytest.mark.parametrize("path", sorted(ROOT.glob("solutions/*.ipynb")), ids=lambda path: path.stem)
def test_a_stub_differs_from_its_solution_inside_the_marked_regions_alone(path):
    """Told without the code that makes stubs: outside of the regions every line stands in both, in the same order."""
    shown = [cell for cell in nbformat.read(path, 4).cells if "solution" not in cell.metadata.get("tags", [])]
    stubs = nbformat.reads(exercise_text(path), 4).cells
    assert [cell.cell_type for cell in shown] == [cell.cell_type for cell in stubs]
    regions = 0
    for solution, stub in zip(shown, stubs):
        pieces = re.split(r"^ *### BEGIN SOLUTION\n.*?^ *### END SOLUTION$\n?", solution.source, flags=re.M | re.S)
        regions += len(pieces) - 1
        if len(pieces) == 1:
            assert stub.source == solution.source
            continue
        pattern = r"([\s\S]*?)".join(re.escape(piece.rstrip("\n")) + r"\n?" for piece in pieces)
        found = re.fullmatch(pattern, stub.source)
        assert found, stub.source
        for put in found.groups():
            for line in filter(None, map(str.strip, put.splitlines())):
                assert re.fullmatch(
                    r"raise NotImplementedError|\w+ = \.\.\.  # your answer|# Your answer goes .*", line
                )
    assert regions > 0
