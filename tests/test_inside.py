"""No command writes, reads or deletes outside of its folder: not through links, not by `..`, not because a record or an
index names something there; and a notebook that nests too deep is named and skipped."""

import json
import os
import shutil
import socket
from pathlib import Path

import nbformat
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook

from course_lib.__main__ import main
from course_lib.classroom.command import require_own
from course_lib.classroom.sandbox.remote import Fault, Worker
from course_lib.cli import start
from course_lib.course.files import inside, parsed, read_json, write_whole
from course_lib.course.handout import EARLIER, RECORD, fingerprint, hand_out, hand_package
from course_lib.course.pull import fetch_newer
from course_lib.pretrained import load_pretrained, save_pretrained
from course_lib.site.elsewhere import write_elsewhere
from tests.test_pull import ONE, School, save
from tests.with_git import git, without_settings

ROOT = Path(__file__).parent.parent
NAMES = ("notebooks/00_start_here.ipynb", "exercises/02_attention.ipynb")
DEEP = b'{"cells": ' + b"[" * 100_000
OUTSIDE = ["../outside/precious.txt", "/etc/passwd", "a/../../x", "C:/a", "a\\b", "C:a"]


def notebook(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(new_notebook(cells=[new_code_cell(text)]), path)


def everything(folder: Path) -> dict[str, bytes | None]:
    """Return all that is in a folder, byte for byte."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.fixture
def outside(tmp_path):
    """A folder beside the one that a command is given; the test fails if a single byte of it has changed."""
    folder = tmp_path / "outside"
    for name in ("precious.txt", "deep/precious.txt", "00_start_here.ipynb", "02_attention.ipynb"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"precious {name}\n", encoding="utf-8")
    before = everything(folder)
    yield folder
    assert everything(folder) == before


@pytest.fixture
def course(tmp_path):
    for name in NAMES:
        notebook(tmp_path / "course" / name, name)
    return tmp_path / "course"


# ---------------------------------------------------------------------------------------------------------- the helper
@given(st.text(st.sampled_from("ab./\\:\0~ é"), max_size=12) | st.text(max_size=20))
@example("../x")
def test_a_name_is_inside_or_refused(tmp_path_factory, name):
    folder = tmp_path_factory.getbasetemp()
    parts = name.split("/")
    if {"", ".", ".."} & set(parts) or set("\\:\0") & set(name):
        with pytest.raises(ValueError, match="inside"):
            inside(folder, name)
        return
    path = inside(folder, name)
    assert Path(os.path.normpath(path)) == path
    assert path != folder
    assert path.is_relative_to(folder)
    assert path.relative_to(folder).as_posix() == name


@given(st.lists(st.from_regex(r"[a-z0-9_.-]*[a-z0-9]", fullmatch=True), min_size=1, max_size=4))
def test_every_plain_name_is_inside(parts):
    assert inside(Path("folder"), "/".join(parts)) == Path("folder", *parts)


@pytest.mark.parametrize("name", [*OUTSIDE, "..", ".", "", "a//b", "./a", "a\0"])
def test_a_name_that_leads_elsewhere_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match="inside"):
        inside(tmp_path, name)


def test_a_link_on_the_way_is_refused_at_any_depth(tmp_path, outside):
    for depth in range(3):
        folder = tmp_path / f"folder{depth}"
        way = folder.joinpath(*"abc"[:depth])
        way.mkdir(parents=True)
        (way / "link").symlink_to(outside)
        with pytest.raises(ValueError, match="is a link"):
            inside(folder, "/".join((*"abc"[:depth], "link", "deep", "precious.txt")))


def test_a_link_in_the_place_of_the_half_written_file_is_not_written_through(tmp_path, outside):
    (tmp_path / "page.html.part").symlink_to(outside / "precious.txt")
    write_whole(tmp_path / "page.html", lambda part: part.write_text("new", encoding="utf-8"))
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == "new"
    assert not (tmp_path / "page.html").is_symlink()


# ---------------------------------------------------------------------------------------------------------- start
def links(folder: Path, outside: Path) -> None:
    """Plant a link wherever `start` and `release` write, read or delete a single file."""
    for name in (RECORD, ".gitignore", "02_attention.new.ipynb"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(outside / "precious.txt")
    for name in NAMES:
        for ending in ("", ".part"):
            path = folder / f"{name}{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.symlink_to(outside / Path(name).name)


def test_start_writes_through_no_link_in_the_learners_folder(course, tmp_path, outside):
    mine = tmp_path / "my"
    mine.mkdir()
    links(mine, outside)
    assert [each.done for each in hand_out(course, mine)] == ["beside", "beside"]
    assert [each.done for each in hand_out(course, mine)] == ["kept", "kept"]


@pytest.mark.parametrize("name", ["notebooks", "exercises", EARLIER, f"{EARLIER}/notebooks", f"{RECORD}.lock"])
def test_start_refuses_a_folder_whose_parts_are_links(name, course, tmp_path, outside):
    mine = tmp_path / "my"
    hand_out(course, mine)
    for each in NAMES:
        notebook(course / each, "newer")
    shutil.rmtree(mine / name) if (mine / name).is_dir() else (mine / name).unlink(missing_ok=True)
    (mine / name).parent.mkdir(exist_ok=True)
    (mine / name).symlink_to(outside if name != f"{RECORD}.lock" else outside / "precious.txt")
    with pytest.raises(ValueError, match="is a link"):
        hand_out(course, mine)


def test_what_became_a_link_in_the_course_is_named_and_skipped(course, tmp_path, outside, monkeypatch, capsys):
    (course / NAMES[1]).unlink()
    (course / NAMES[1]).symlink_to(outside / "precious.txt")
    monkeypatch.setattr(start, "COURSE", course)
    assert main(["start", "--no-lab", "--folder", str(tmp_path / "my")]) == 0
    assert f"{NAMES[1]} was skipped: it is a link" in capsys.readouterr().out
    assert not os.path.lexists(tmp_path / "my" / NAMES[1])
    (course / "exercises").rename(course / "away")
    (course / "exercises").symlink_to(outside)
    assert main(["start", "--no-lab", "--folder", str(tmp_path / "my")]) == 0
    assert "exercises was skipped: it is a link" in capsys.readouterr().out


def test_a_folder_of_the_learner_that_became_a_link_is_refused(course, outside, monkeypatch, capsys):
    (course / "my").symlink_to(outside)
    monkeypatch.setattr(start, "COURSE", course)
    assert main(["start", "--no-lab"]) == 2
    assert f"my is a link to {outside}" in capsys.readouterr().err


def test_a_notebook_of_100000_brackets_is_named_and_skipped(course, tmp_path, monkeypatch, capsys):
    (course / NAMES[1]).write_bytes(DEEP)
    monkeypatch.setattr(start, "COURSE", course)
    for _ in range(2):
        assert main(["start", "--no-lab", "--folder", str(tmp_path / "my")]) == 0
        assert f"{NAMES[1]} was skipped: it is not a readable notebook" in capsys.readouterr().out
    assert not (tmp_path / "my" / NAMES[1]).exists()
    notebook(course / NAMES[1], "mended")
    (tmp_path / "my" / NAMES[0]).write_bytes(DEEP)  # and a learner's own stays
    hand_out(course, tmp_path / "my")
    assert (tmp_path / "my" / NAMES[0]).read_bytes() == DEEP


CODE = {"cell_type": "code", "source": "1", "metadata": {}, "outputs": []}


@pytest.mark.parametrize(
    "cells",
    [5, [5], {"a": 1}, "ab", [CODE | {"source": 5}], [CODE | {"source": [5]}], [CODE | {"metadata": {"tags": None}}],
     [CODE | {"outputs": 5}], [CODE | {"outputs": [5]}], [CODE | {"cell_type": []}]],
)  # fmt: skip
def test_what_only_looks_like_a_notebook_is_skipped_too(cells, course, tmp_path):
    (course / NAMES[1]).write_text(json.dumps({"cells": cells}), encoding="utf-8")
    assert {each.name: each.done for each in hand_out(course, tmp_path / "my")}[NAMES[1]] == "skipped"


@pytest.mark.parametrize("read", [read_json, lambda path: parsed(path.read_bytes())])
def test_json_that_nests_too_deep_is_an_error_with_a_sentence(read, tmp_path):
    (tmp_path / "deep.json").write_bytes(b"[" * 100_000)
    with pytest.raises(ValueError, match=r"ValueError|too deep"):
        read(tmp_path / "deep.json")


def test_a_worker_that_says_100000_brackets_is_at_fault():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"[" * 60_000 + b"\n")
        worker = object.__new__(Worker)
        worker.control, worker._said, worker.process = ours, b"", None
        with pytest.raises(Fault, match="no JSON"):
            worker._hear("ready", 10)


# ---------------------------------------------------------------------------------------------------- start --pull
@pytest.fixture
def school(tmp_path, monkeypatch):
    without_settings(monkeypatch)
    return School(tmp_path)


def test_what_is_pulled_is_settled_inside_the_clone(school, outside):
    """Their exercises/ became a link to a folder beside the clone, while the learner had written into it."""
    save(school.clone / ONE, "what I wrote")
    git(school.package, "rm", "-r", "--quiet", "exercises")
    (school.package / "exercises").symlink_to("../outside")
    git(school.package, "add", "--all")
    git(school.package, "commit", "--quiet", "-m", "A link")
    git(school.package, "push", "--quiet")
    before = sorted(outside.rglob("*"))
    assert {each.name: each.done for each in fetch_newer(school.clone)} == {ONE: "kept", "exercises": "beside"}
    assert (school.clone / ONE).read_text() == "what I wrote"
    assert (school.clone / "exercises.new").read_text() == "../outside"
    assert not (school.clone / "exercises.new").is_symlink()
    assert sorted(outside.rglob("*")) == before


# -------------------------------------------------------------------------------------------------------- release
def made(folder: Path) -> Path:
    for name in NAMES:
        notebook(folder / name, "new")
    return folder


@pytest.mark.parametrize("name", OUTSIDE)
def test_release_deletes_nothing_that_its_record_names_outside(name, tmp_path, outside):
    package = tmp_path / "package"
    package.mkdir()
    entry = {"given": fingerprint((outside / "precious.txt").read_bytes())}
    (package / RECORD).write_text(json.dumps({name: entry}), encoding="utf-8")
    with pytest.raises(ValueError, match="inside"):
        hand_package(made(tmp_path / "made"), package)
    assert [each.name for each in package.iterdir() if each.suffix != ".lock"] == [RECORD]


@pytest.mark.parametrize("name", ["notebooks", "exercises", EARLIER, f"{EARLIER}/exercises"])
def test_release_refuses_links_on_its_way(name, tmp_path, outside):
    package = tmp_path / "package"
    (package / name).parent.mkdir(parents=True)
    (package / name).symlink_to(outside)
    with pytest.raises(ValueError, match="is a link"):
        hand_package(made(tmp_path / "made"), package)


def test_release_writes_through_no_link_and_removes_none(tmp_path, outside):
    package = tmp_path / "package"
    hand_package(made(tmp_path / "made"), package)
    record = json.loads((package / RECORD).read_text("utf-8"))
    entry = {"given": fingerprint((outside / "precious.txt").read_bytes())}
    (package / RECORD).write_text(json.dumps(record | {"gone.txt": entry}), encoding="utf-8")
    (package / "gone.txt").symlink_to(outside / "precious.txt")
    for name in NAMES:
        notebook(tmp_path / "made" / name, "newer")
        (package / name).unlink()
        (package / name).symlink_to(outside / Path(name).name)
        (package / f"{name}.part").symlink_to(outside / "precious.txt")
    assert {each.done for each in hand_package(tmp_path / "made", package)} == {"beside"}


# ------------------------------------------------------------------------------------------------- the other commands
def test_grade_refuses_results_that_are_links(tmp_path, outside, capsys):
    notebook(tmp_path / NAMES[1], "1 + 1")
    for number, name in enumerate(("marks.jsonl", "run.json", ".lock", "report", "report/learners", "gradescope/ada")):
        out = tmp_path / f"results{number}"
        (out / name).parent.mkdir(parents=True)
        (out / name).symlink_to(outside / "precious.txt" if "." in name else outside)
        assert main(["grade", str(tmp_path / NAMES[1]), "--out", str(out)]) == 2
        assert f"{out / name} is a link: delete it" in capsys.readouterr().err
    require_own(tmp_path / "new")


@pytest.mark.parametrize("kind", ["page", "module", "folder"])
def test_new_exercise_writes_through_no_link_and_over_no_file(kind, tmp_path, outside, capsys):
    pages = tmp_path / "pages"
    (pages / "heads").mkdir(parents=True)
    if kind == "folder":
        (pages / "heads").rmdir()
        (pages / "heads").symlink_to(outside)
    else:
        (pages / "heads" / ("trial.md" if kind == "page" else "trial.py")).symlink_to(outside / "new.txt")
    assert main(["new", "exercise", str(pages / "heads" / "trial")]) == 2
    assert "link" in capsys.readouterr().err


def test_new_exercise_leaves_a_module_that_is_there(tmp_path, capsys):
    save(tmp_path / "heads" / "trial.py", "precious = 1\n")
    assert main(["new", "exercise", str(tmp_path / "heads" / "trial")]) == 2
    assert (tmp_path / "heads" / "trial.py").read_text("utf-8") == "precious = 1\n"


def test_the_notebooks_for_elsewhere_are_written_through_no_link(tmp_path, outside):
    notebook(tmp_path / "root" / NAMES[0], "one")
    (tmp_path / "root" / "exercises").mkdir()
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    save(tmp_path / "root" / "pyproject.toml", text + '\n[project.urls]\nRepository = "https://github.com/a/b"\n')
    target = tmp_path / "elsewhere"
    (target / "notebooks").mkdir(parents=True)
    (target / NAMES[0]).symlink_to(outside / "precious.txt")
    write_elsewhere(tmp_path / "root", target)
    assert not (target / NAMES[0]).is_symlink()
    shutil.rmtree(target / "notebooks")
    (target / "notebooks").symlink_to(outside)
    with pytest.raises(ValueError, match="is a link"):
        write_elsewhere(tmp_path / "root", target)


def test_weights_that_an_index_names_are_read_from_the_folder_only(tmp_path):
    model, tokenizer = load_pretrained("tinytown")
    save_pretrained(tmp_path / "plain", model, tokenizer)
    shutil.copytree(tmp_path / "plain", tmp_path / "indexed")
    (tmp_path / "indexed" / "model.safetensors").unlink()
    index = tmp_path / "indexed" / "model.safetensors.index.json"
    for name in ("../plain/model.safetensors", str(tmp_path / "plain/model.safetensors"), "a/model.safetensors", ".."):
        index.write_text(json.dumps({"weight_map": {"x": name}}), encoding="utf-8")
        with pytest.raises(ValueError, match=r"index\.json|inside"):
            load_pretrained(tmp_path / "indexed")
