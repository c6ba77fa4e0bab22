"""Forty histories of a clone: what the teacher released since, and what the learner did in the meantime.

In each of them, `start --pull` keeps all that the learner wrote, brings all that is newer, leaves every notebook
readable, and changes nothing when it runs again. Where it cannot, the learner's files stay as they are, and the error
names a remedy after which it can. nbgitpuller, in the same histories, keeps and brings nothing more.
"""

import difflib
import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_output

from course_lib.course.pull import fetch_newer
from tests.test_pull import LIBRARY, ONE, TWO, School, change, notebook, save
from tests.with_git import git, without_settings

README, NAME, DATA, NEW = "README.md", "texts/größe.md", "assets/figure.bin", "notebooks/03_masks.ipynb"
Step = Callable[[Path], object]  # done in the teacher's package, or in the learner's clone
RELEASED: Step = lambda folder: None  # noqa: E731  # among a learner's steps: those after it follow the release


def edit(name: str, place: int, text: str) -> Step:
    return lambda folder: change(folder / name, place, text)


def add_cell(name: str, text: str, place: int = 99) -> Step:
    def step(folder: Path) -> None:
        content = nbformat.read(folder / name, as_version=4)
        content.cells.insert(place, new_code_cell(text, id=text.split()[0]))
        nbformat.write(content, folder / name)

    return step


def run(name: str) -> Step:
    def step(folder: Path) -> None:
        content = nbformat.read(folder / name, as_version=4)
        for number, cell in enumerate(content.cells, 1):
            cell.execution_count, cell.outputs = number, [new_output("stream", text=f"{number}\n")]
        nbformat.write(content, folder / name)

    return step


def save_with(name: str, version: str) -> Step:
    """Open and save a notebook in JupyterLab with this version of Python."""

    def step(folder: Path) -> None:
        content = nbformat.read(folder / name, as_version=4)
        content.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
        content.metadata["language_info"] = {"name": "python", "version": version}
        nbformat.write(content, folder / name)

    return step


def notebook_of(name: str, *cells: str) -> Step:
    return lambda folder: notebook(folder / name, *cells)


def put(name: str, text: str) -> Step:
    return lambda folder: save(folder / name, text)


def put_bytes(name: str, content: bytes) -> Step:
    return lambda folder: (folder / name).write_bytes(content)


def delete(name: str) -> Step:
    return lambda folder: (folder / name).rmdir() if (folder / name).is_dir() else (folder / name).unlink()


def move(old: str, new: str) -> Step:
    return lambda folder: (folder / old).rename(folder / new)


def link(name: str, target: str) -> Step:
    return lambda folder: (folder / name).symlink_to(target)


def mode(name: str, bits: int) -> Step:
    return lambda folder: (folder / name).chmod(bits)


def with_git(*words: str) -> Step:
    def step(folder: Path) -> None:
        try:
            git(folder, *words)
        except subprocess.CalledProcessError:
            assert words[0] in ("merge", "rebase", "stash"), words  # which ends with a conflict, as intended

    return step


COMMIT = with_git("commit", "--quiet", "--all", "-m", "mine")
OTHER = add_cell(ONE, "new_question = ...")
ANSWER = edit(ONE, 0, "first = 'my answer'")
SAME = edit(ONE, 0, "first = None")


def publish(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", "A week")
    git(folder, "push", "--quiet", "--force", "origin", "HEAD")


def amend(folder: Path) -> None:
    git(folder, "commit", "--quiet", "--amend", "--all", "-m", "Another week")


def begin_anew(folder: Path) -> None:
    shutil.rmtree(folder / ".git")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "remote", "add", "origin", "../far.git")


def rename_branch(folder: Path) -> None:
    git(folder, "branch", "-m", "main", "autumn")
    git(folder, "push", "--quiet", "origin", "autumn")
    git(folder.parent / "far.git", "symbolic-ref", "HEAD", "refs/heads/autumn")
    git(folder, "push", "--quiet", "origin", ":main")


def clone_shallow(folder: Path) -> None:
    shutil.rmtree(folder)
    git(folder.parent, "clone", "--quiet", "--depth", "1", (folder.parent / "far.git").as_uri(), folder.name)


def follow_own(folder: Path) -> None:
    git(folder.parent, "init", "--quiet", "--bare", "own.git")
    git(folder, "remote", "add", "mine", "../own.git")
    git(folder, "push", "--quiet", "--set-upstream", "mine", "main")


def use_crlf(folder: Path) -> None:
    git(folder, "config", "core.autocrlf", "true")
    for name in git(folder, "ls-files", "-z").split("\0")[:-1]:
        (folder / name).unlink()
    git(folder, "checkout", "--quiet", "--", ".")


def make_old(name: str) -> Step:
    return lambda folder: os.utime(folder / name, (0, 0))


def add_hooks(folder: Path) -> None:
    for name in ("pre-commit", "commit-msg", "pre-merge-commit", "post-merge"):
        hook = folder / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)


def fail_to_write(folder: Path) -> None:
    """Git cannot write a file, as if the disk were full."""
    save(folder / ".git/info/attributes", "large.bin filter=full\n")
    git(folder, "config", "filter.full.clean", "cat")
    git(folder, "config", "filter.full.smudge", "false")
    git(folder, "config", "filter.full.required", "true")


# name: (the teacher's steps, the learner's steps, what an error says if there has to be one, its remedy)
HISTORIES: dict[str, tuple] = {
    # cells
    "an answer; another cell is newer": ([edit(ONE, 2, "last = 2")], [ANSWER]),
    "an answer; the same cell is newer": ([SAME, OTHER], [ANSWER]),
    "both add a last cell": ([OTHER], [add_cell(ONE, "mine = 1")]),
    "both add a cell with the same id": ([add_cell(ONE, "twin of theirs", 0)], [add_cell(ONE, "twin of mine")]),
    "only run": ([edit(ONE, 1, "middle = 1"), OTHER], [run(ONE)]),
    "only opened and saved": ([save_with(ONE, "3.11"), OTHER], [save_with(ONE, "3.13")]),
    "notes on the page of a chapter to come": ([notebook_of(TWO, "title", "the chapter")], [edit(TWO, 0, "mine = 1")]),
    "a damaged notebook": ([edit(ONE, 2, "last = 2")], [put(ONE, '{"cells": [oh\n')]),
    # files that come and go
    "a deleted notebook; nothing is newer": ([], [delete(ONE)]),
    "a notebook with a new name, committed": ([SAME, OTHER], [ANSWER, with_git("mv", ONE, "mine.ipynb"), COMMIT]),
    "an answer; the notebook was deleted": ([delete(ONE)], [ANSWER]),
    "an answer; the notebook has a new name": ([OTHER, move(ONE, "exercises/1.ipynb")], [ANSWER]),
    "an edit; the case of the name is new": ([move(README, "Readme.md")], [put(README, "mine\n")]),
    "a file with the name of a newer one": ([notebook_of(NEW, "the chapter")], [notebook_of(NEW, "my own")]),
    "a staged file with that name": ([put("mine.md", "theirs\n")], [put("mine.md", "mine\n"), with_git("add", ".")]),
    "names beyond ASCII": (
        [put("übung.md", "theirs\n"), put(NAME, "Größe\n")],
        [put("übung.md", "mine\n"), put(NAME, "größer\n")],
    ),
    "a folder with the name of a newer file": ([put("extra", "theirs\n"), OTHER], [put("extra/notes.txt", "mine\n")]),
    "a file with the name of a newer folder": ([put("extra/data.txt", "theirs\n"), OTHER], [put("extra", "mine\n")]),
    "a file in place of a folder": ([put_bytes(DATA, b"1")], [delete(DATA), delete("assets"), put("assets", "mine\n")]),
    # unusual files
    "a large binary file": ([put_bytes(DATA, b"\0theirs" * 500_000)], [put_bytes(DATA, b"\0mine" * 500_000)]),
    "a link in place of a notebook": ([SAME], [delete(ONE), link(ONE, "../../elsewhere.ipynb")]),
    "a read-only program": (
        [put(LIBRARY, "1\ntwo\nthree\n")],
        [put(LIBRARY, "one, mine\ntwo\n"), mode(LIBRARY, 0o555)],
    ),
    "the line endings of Windows": ([SAME, put(LIBRARY, "zero\none\ntwo\nthree\n")], [use_crlf, ANSWER]),
    # what git may be in the middle of
    "staged, then edited again": (
        [edit(ONE, 2, "last = 2")],
        [edit(ONE, 1, "staged = 1"), with_git("add", ONE), edit(ONE, 1, "middle = 1"), ANSWER],
    ),
    "committed, with hooks that fail": ([SAME, OTHER], [ANSWER, COMMIT, edit(TWO, 0, "mine = 1"), add_hooks]),
    "a stash": ([SAME], [ANSWER, with_git("stash", "--quiet"), edit(TWO, 0, "mine = 1")]),
    "a stash with a conflict": (
        [SAME],
        [ANSWER, with_git("stash"), edit(ONE, 0, "first = 1"), COMMIT, with_git("stash", "pop")],
        "exercises/01_embeddings.ipynb still has the conflicts of a git command: edit it and `git add` it",
        [notebook_of(ONE, "first = 'my answer'"), with_git("add", ONE)],
    ),
    "a merge with a conflict": (
        [SAME],
        [ANSWER, COMMIT, RELEASED, with_git("fetch"), with_git("merge", "origin/main")],
        "a merge is in progress .* `git merge --abort`",
        [with_git("merge", "--abort")],
    ),
    "a rebase with a conflict": (
        [SAME],
        [ANSWER, COMMIT, RELEASED, with_git("fetch"), with_git("rebase", "origin/main")],
        "a rebase is in progress .* `git rebase --abort`",
        [with_git("rebase", "--abort")],
    ),
    "a detached HEAD": (
        [SAME, OTHER],
        [with_git("checkout", "--quiet", "--detach"), ANSWER, COMMIT],
        "not on a branch: .* `git switch --create mine`",
        [with_git("switch", "--quiet", "--create", "mine")],
    ),
    "a branch of another name": ([SAME, OTHER], [with_git("checkout", "--quiet", "-b", "try"), ANSWER, COMMIT]),
    "a remote of the learner's own": ([SAME, OTHER], [ANSWER, COMMIT, follow_own]),
    "a lock of a git that works": (
        [SAME],
        [ANSWER, put(".git/index.lock", "")],
        "delete .*index.lock",
        [delete(".git/index.lock")],
    ),
    "a lock of a git that was killed": ([SAME], [ANSWER, put(".git/index.lock", ""), make_old(".git/index.lock")]),
    "a shallow clone, two releases later": ([SAME, publish, OTHER], [clone_shallow, ANSWER]),
    # what may go wrong around it
    "no network": (
        [SAME],
        [ANSWER, with_git("remote", "set-url", "origin", "../gone.git")],
        "'../gone.git' does not appear to be a git repository",
        [with_git("remote", "set-url", "origin", "../far.git")],
    ),
    "a file that git cannot write": (
        [put_bytes("large.bin", b"\1"), SAME],
        [ANSWER, fail_to_write],
        "large.bin: .*What you wrote is unchanged: remove the cause and try again",
        [with_git("config", "--unset", "filter.full.required")],
    ),
    "a release that was rewritten": ([amend, SAME, OTHER, amend], [ANSWER]),
    "a repository that was begun anew": ([begin_anew, OTHER, put(LIBRARY, "four\n")], [ANSWER]),
    "a branch that was renamed": ([rename_branch, SAME], [ANSWER]),
}


IN_EVERY_RUN = 8  # the first histories, which every class has; the others are proofs
Files = dict[str, tuple[str, bytes]]  # by name: what kind each file is, and its content


@dataclass
class Outcome:
    """What a tool did in a clone."""

    said: str  # its error
    lost: set[str]  # the learner's files that are no longer in the folder, not even as lines of another file
    unreachable: set[str]  # what the learner had committed, staged or stashed, and git no longer reaches
    missing: set[str]  # the teacher's newer files that are nowhere in the folder
    broken: set[str]  # notebooks that cannot be opened
    again: str  # what a second run said or changed


def files_of(folder: Path) -> Files:
    """Return the files of a folder, without git's."""
    found = {}
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = "link", os.readlink(path).encode()
        elif path.is_file() and not name.startswith(".git/") and path.suffix != ".lock":
            found[name] = "program" if path.stat().st_mode & stat.S_IXUSR else "file", path.read_bytes()
    return found


def not_in(files: Files, wanted: Files, base: Files) -> set[str]:
    """Return the names in `wanted` whose content is in no file, neither as it is nor as lines merged into others."""
    there = {*files.values()}
    return {
        name
        for name, file in wanted.items()
        if file not in there and not (name in base and any(_holds(each, file, base[name]) for each in there))
    }


def _holds(now: tuple[str, bytes], wanted: tuple[str, bytes], base: tuple[str, bytes]) -> bool:
    """Return whether a file has, in their order, all lines of `wanted` that are not in `base`."""
    if b"\0" in wanted[1] or now[0] != wanted[0] != base[0]:
        return False
    old, new, there = ([line.strip(b", \r") for line in each[1].split(b"\n")] for each in (base, wanted, now))
    changes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    rest = iter(there)
    return all(line in rest for kind, _, _, first, last in changes if kind != "equal" for line in new[first:last])


def is_broken(content: bytes) -> bool:
    try:
        ids = [cell["id"] for cell in json.loads(content)["cells"]]
        nbformat.validate(nbformat.reads(content.decode(), as_version=4))
        return len(set(ids)) < len(ids)
    except (ValueError, KeyError, nbformat.ValidationError):
        return True


def own_objects(clone: Path) -> set[str]:
    """Return the hashes of what the learner has committed, staged or stashed."""
    staged = [line.split() for line in git(clone, "diff", "--cached", "--raw", "--no-abbrev").splitlines()]
    commits = git(clone, "rev-list", "--all", "HEAD", "--not", "--remotes").split()
    return {*commits, *(words[3] for words in staged if words[4] != "U" and words[3].strip("0"))}


def play(folder: Path, name: str) -> tuple[Files, Files]:
    """Play a history; return the files of the teacher's release before and after it."""
    theirs, mine, *_ = HISTORIES[name]
    clone, package = folder / "clone", folder / "package"
    base, place = files_of(package), mine.index(RELEASED) if RELEASED in mine else len(mine)
    for where, steps in ((clone, mine[:place]), (package, [*theirs, publish]), (clone, mine[place:])):
        for step in steps:
            step(where)
    return base, files_of(package)


def with_new_names(base: Files, files: Files) -> Files:
    """Return `base` in which a file that is gone from `files` is also found under each new name."""
    gone = [name for name in base if name not in files]
    return base | ({name: base[gone[0]] for name in files if name not in base} if len(gone) == 1 else {})


def outcome(pull: Callable[[Path], object], clone: Path, base: Files, released: Files) -> Outcome:
    """Return what `pull` does in a clone of `base`, after something else was released."""
    before, objects = files_of(clone), own_objects(clone)
    mine = {name: file for name, file in before.items() if file != base.get(name)}
    newer = {name: file for name, file in released.items() if file != base.get(name) or name not in before}
    gone = {name for name in base if name not in released}
    said = _error(pull, clone)
    now, head = files_of(clone), git(clone, "rev-parse", "HEAD")
    there = git(clone, "rev-list", "--all", "HEAD", "--objects", "--indexed-objects")
    damaged = {file for file in mine.values() if b"<<<<<<<" not in file[1]}  # by the learner, not by git
    notebooks = {name: file for name, file in now.items() if name.endswith(".ipynb") and file[0] != "link"}
    again = _error(pull, clone)
    if not again and (files_of(clone), git(clone, "rev-parse", "HEAD")) != (now, head):
        again = "changed"
    contents = (
        {name: ("", file[1]) for name, file in each.items()} for each in (now, newer, with_new_names(base, released))
    )
    return Outcome(
        said=said,
        lost=not_in(now, mine, with_new_names(base, before)),
        unreachable=objects - {line.split()[0] for line in there.splitlines()},
        missing=not_in(*contents) | {name for name in gone if name in now and name not in mine},
        broken={name for name, file in notebooks.items() if file not in damaged and is_broken(file[1])},
        again=again,
    )


def _error(pull: Callable[[Path], object], clone: Path) -> str:
    try:
        pull(clone)
    except Exception as error:
        return str(error) or type(error).__name__
    return ""


@pytest.fixture(scope="module")
def school(tmp_path_factory):
    folder = tmp_path_factory.mktemp("school")
    git(School(folder).clone, "remote", "set-url", "origin", "../far.git")
    return folder


@pytest.fixture
def folder(school, tmp_path, monkeypatch):
    without_settings(monkeypatch)
    return shutil.copytree(school, tmp_path / "school", symlinks=True)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.proof] * (number >= IN_EVERY_RUN)) for number, name in enumerate(HISTORIES)],
)
def test_what_the_learner_wrote_stays_and_what_is_newer_arrives(folder, name):
    files = play(folder, name)
    done = outcome(fetch_newer, folder / "clone", *files)
    if len(HISTORIES[name]) > 2:
        error, remedy = HISTORIES[name][2:]
        assert re.search(error, done.said)
        assert (done.lost, done.unreachable, done.again) == (set(), set(), done.said)
        for step in remedy:
            step(folder / "clone")
        done = outcome(fetch_newer, folder / "clone", *files)
    assert done == Outcome("", set(), set(), set(), set(), "")


@pytest.mark.proof
@pytest.mark.parametrize("name", HISTORIES)
def test_nbgitpuller_keeps_and_brings_nothing_more(folder, name):
    nbgitpuller = pytest.importorskip("nbgitpuller.pull")
    files = play(folder, name)
    copy = shutil.copytree(folder / "clone", folder / "copy", symlinks=True)
    url = folder / "clone" / git(folder / "clone", "remote", "get-url", "origin").strip()
    ours = outcome(fetch_newer, folder / "clone", *files)
    theirs = outcome(lambda clone: [*nbgitpuller.GitPuller(str(url), str(clone)).pull()], copy, *files)
    assert ours.lost | ours.unreachable <= theirs.lost | theirs.unreachable
    assert ours.missing <= theirs.missing
    assert ours.broken <= theirs.broken
