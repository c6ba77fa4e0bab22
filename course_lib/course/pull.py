"""Update a clone of the course with git: fetch the newer files and keep the learner's work.

`python -m course_lib start --pull` uses this module. Plain `git pull` is enough for learners who work in `my/`, which
git ignores. This module also works for learners who edited files in the clone itself, where `git pull` would conflict.

The library nbgitpuller has the same purpose, and is not used: where both sides changed the same lines, it drops the
authors', and a notebook that was only run counts as changed. `tests/test_histories.py` runs both on forty histories.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from course_lib.course.files import parsed
from course_lib.course.handout import Handed, fingerprint, git, hand, names_of, require_inside, write

# A file in `.git` while git waits for its user, and the command that began it.
UNFINISHED = {
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
}
LOCK_SECONDS = 600  # no git command takes so long here: an older lock was left by one that was killed


def fetch_newer(course: Path) -> list[Handed]:
    """Fetch and merge the newer files from the repository that `course` was cloned from. Return what was done with each
    new or newer file: "merged" if the learner had edited other lines of it, else a word of `handout.Handed`.

    The learner's changes in the clone are committed first. If learner and authors changed different parts of a
    notebook, it keeps the learner's cells and gets the new ones. If the changes conflict, the rule of `handout`
    decides. A file that the learner deleted is restored. If the authors rewrote their history, the newest version is
    compared with what this clone fetched before.
    Errors: ValueError if this is not a clone, if git is waiting for the learner, or if the files cannot be merged;
        ConnectionError if the other repository cannot be reached.
    """
    if not (course / ".git").exists():
        raise ValueError(
            f"{course} was not cloned with git, so nothing can be fetched: get the newer course as you got this one"
        )
    if not shutil.which("git"):
        raise ValueError("git is not installed here: install it, or leave --pull out")
    try:
        _require_idle(course)
        branches = _fetched(course)
        return [each for name in branches for each in _merged(course, _common(course, name), _hash(course, name))]
    except ConnectionError:
        raise
    except (subprocess.CalledProcessError, OSError) as error:
        raise ValueError(
            f"the newer files cannot be merged ({_said(error)}). What you wrote is unchanged: remove the cause and try "
            "again, or clone the course again next to this one and copy your answers"
        ) from None


def _require_idle(course: Path) -> None:
    """Raise ValueError if git waits for the learner here: a commit would end something that they began."""
    folder = course / os.fsdecode(git(course, "rev-parse", "--git-dir")).strip()
    for file, command in UNFINISHED.items():
        if (folder / file).exists():
            raise ValueError(
                f"a {command} is in progress in {course}: finish it if you have resolved its conflicts, or else end it "
                f"with `git {command} --abort`; then try again"
            )
    if unmerged := names_of(git(course, "diff", "--name-only", "--diff-filter=U", "-z")):
        raise ValueError(
            f"{course / unmerged[0]} still has the conflicts of a git command: edit it and `git add` it, then try again"
        )
    lock = folder / "index.lock"
    if lock.exists() and time.time() - lock.stat().st_mtime > LOCK_SECONDS:
        lock.unlink()
    if lock.exists():
        raise ValueError(f"git is at work in {course}, or was killed: wait for it or delete {lock}, then try again")
    if git(course, "rev-parse", "--abbrev-ref", "HEAD") == b"HEAD\n":  # a commit here would be on no branch
        raise ValueError(
            f"{course} is not on a branch: go back to yours with `git switch -`, or make one here with "
            "`git switch --create mine`, then try again"
        )


def _fetched(course: Path) -> list[str]:
    """Fetch, and return the authors' branches: the one that the learner's branch follows and, if that is not one of
    `origin`, the default branch of `origin`; a learner may follow a copy of their own."""
    known, form = git(course, "remote").decode().split(), "--format=%(upstream:remotename) %(upstream:short)"
    branch = git(course, "symbolic-ref", "HEAD").decode().strip()
    remote, _, followed = git(course, "for-each-ref", form, branch).decode().strip().partition(" ")
    home = "origin" if "origin" in known else remote
    if not home:
        raise ValueError(f"{course} follows no other repository: clone the course again, next to it")
    try:
        for each in sorted({home, remote} - {""}):
            git(course, "fetch", "--quiet", "--prune", each)
        found = [followed] if _hash(course, followed) else []
        if not found or remote != home:
            git(course, "remote", "set-head", home, "--auto")
            found.append(f"{home}/HEAD")
    except subprocess.CalledProcessError as error:
        raise ConnectionError(_said(error)) from None
    return found


def _common(course: Path, newest: str) -> str:
    """Return the authors' newest commit that this clone has already, even if they have rewritten their history since.

    Errors: ValueError if there is none.
    """
    for words in (("--fork-point", newest, "HEAD"), (newest, "HEAD")):
        try:
            return git(course, "merge-base", *words).decode().strip()
        except subprocess.CalledProcessError:
            continue
    raise ValueError(
        f"the newer files cannot be merged: they have no commit in common with {course}. Clone the course again, next "
        "to it, and copy your answers"
    )


def _merged(course: Path, base: str, theirs: str) -> list[Handed]:
    """Commit the learner's changes, take what only the authors changed, and settle what both changed."""
    old, new = ({*names_of(git(course, "ls-tree", "-r", "--name-only", "-z", each))} for each in (base, theirs))
    gone = [name for name in old & new if not _in_the_way(course, name)]
    if base == theirs and not gone:
        return []
    _git_each(course, gone, "checkout", "--quiet", base)
    mine = _committed(course, "What I staged", _hash(course, "HEAD"))
    git(course, "add", "--update")
    mine = _committed(course, "What I wrote", mine)
    incoming = {*_changed(course, base, theirs)}
    known = {*names_of(git(course, "ls-files", "-z"))}
    both = incoming & {*_changed(course, base, mine)}
    both |= {name for name in incoming - known if _in_the_way(course, name)}
    _git_each(course, (incoming & known) - both - new, "rm", "--quiet")
    _git_each(course, (incoming & new) - both, "checkout", "--quiet", theirs)
    handed = []
    for name in sorted(both):
        given = _shown(course, base, name) if name in old else None
        newer = _shown(course, theirs, name) if name in new else None
        handed.append(_settled(course, name, given, newer))
    _git_each(course, [name for name in both if _in_the_way(course, name) == name], "add", "--force")
    if mine == base and _tree(course) == _hash(course, f"{theirs}^{{tree}}"):
        git(course, "update-ref", "HEAD", theirs)
    else:
        _committed(course, "Merge the newer course", mine, theirs)
    renewed = ({*incoming, *gone} - both) & new
    return handed + [Handed(name, "renewed", course / name) for name in sorted(renewed)]


def _changed(course: Path, old: str, new: str) -> list[str]:
    """Return the names of the files that differ between two commits."""
    return names_of(git(course, "diff", "--name-only", "--no-renames", "-z", old, new))


def _committed(course: Path, message: str, *parents: str) -> str:
    """Commit what is staged, without hooks or a signature, and return the commit. If nothing new is staged on top of a
    single parent, return that parent."""
    tree = _tree(course)
    if len(parents) == 1 and tree == _hash(course, f"{parents[0]}^{{tree}}"):
        return parents[0]
    words = [word for parent in parents for word in ("-p", parent)]
    made = git(course, *_as_learner(course), "commit-tree", *words, "-m", message, tree).decode().strip()
    git(course, "update-ref", "-m", message, "HEAD", made)
    return made


def _settled(course: Path, name: str, given: bytes | None, newer: bytes | None) -> Handed:
    """Merge the newer version of a file that the learner has edited line by line, or put it next to the file.

    given: the version that both changed; newer: the authors'. None if there is no such file.
    """
    path, there = course / name, _in_the_way(course, name)
    if newer is None:  # the authors deleted it
        return Handed(name, "kept", path)
    if there and there != name:  # a file of the learner's has the name of a folder
        _settled(course, f"{there}.new{name.removeprefix(there)}", None, newer)
        return Handed(there, "beside", course / f"{there}.new")
    require_inside(course, [name])
    if given is not None and path.is_file() and not path.is_symlink():
        mine = path.read_bytes()
        if mine == newer:
            return Handed(name, "renewed", path)
        lines = _merged_lines(mine, given, newer)
        if lines is not None and (path.suffix != ".ipynb" or _is_notebook(lines)):
            mode = path.stat().st_mode
            write(path, lines)
            path.chmod(mode)
            return Handed(name, "merged", path)
    entry = {"given": fingerprint(given), "beside": fingerprint(given)} if given is not None else {}
    return hand(name, newer, fingerprint(newer), course, entry)


def _merged_lines(mine: bytes, given: bytes, newer: bytes) -> bytes | None:
    """Return a file with the changes of both sides; None if they changed the same lines, or if it is not a text."""
    with TemporaryDirectory() as folder:
        for name, content in (("mine", mine), ("given", given), ("newer", newer)):
            Path(folder, name).write_bytes(content)
        try:
            return git(Path(folder), "merge-file", "--stdout", "mine", "given", "newer")
        except subprocess.CalledProcessError:
            return None


def _is_notebook(content: bytes) -> bool:
    """Return whether merged lines can be used: merging the lines of a notebook can break it."""
    try:
        cells = parsed(content)["cells"]
        ids = [cell["id"] for cell in cells if "id" in cell]
        return len(set(ids)) == len(ids) and all(cell["cell_type"] and "source" in cell for cell in cells)
    except (ValueError, KeyError, TypeError):
        return False


def _in_the_way(course: Path, name: str) -> str:
    """Return the name of what is at a file's path: the file, or a file or link in place of one of its folders; "" if
    there is nothing."""
    parts = name.split("/")
    folders = ["/".join(parts[:count]) for count in range(1, len(parts))]
    for folder in folders:
        if os.path.lexists(course / folder) and ((course / folder).is_symlink() or not (course / folder).is_dir()):
            return folder
    return name if os.path.lexists(course / name) else ""


def _shown(course: Path, commit: str, name: str) -> bytes:
    """Return a file of a commit as git would write it here, such as with the line endings of Windows."""
    return git(course, "cat-file", "--filters", f"{commit}:{name}")


def _hash(course: Path, name: str) -> str:
    """Return the hash of a commit or tree; "" if there is none of this name."""
    try:
        return git(course, "rev-parse", "--verify", "--quiet", name).decode().strip()
    except subprocess.CalledProcessError:
        return ""


def _tree(course: Path) -> str:
    """Return the hash of what is staged."""
    return git(course, "write-tree").decode().strip()


def _git_each(course: Path, names: Iterable[str], *words: str) -> None:
    """Run git on files by name, a hundred at a time: Windows limits the length of a command."""
    files = sorted(names)
    for first in range(0, len(files), 100):
        git(course, "--literal-pathspecs", *words, "--", *files[first : first + 100])


def _said(error: Exception) -> str:
    """Return an error in one line. Of git's output this is the line with the reason: others may be advice."""
    if not isinstance(error, subprocess.CalledProcessError):
        return str(error)
    lines = error.stderr.decode(errors="replace").strip().splitlines() or [str(error)]
    return next((line for sign in ("fatal: ", "error: ") for line in lines if line.startswith(sign)), lines[-1])


def _as_learner(course: Path) -> tuple[str, ...]:
    """Return git options for a commit: a name and an email address if git has none."""
    try:
        git(course, "var", "GIT_COMMITTER_IDENT")
    except subprocess.CalledProcessError:
        return ("-c", "user.name=learner", "-c", "user.email=learner@localhost")
    return ()
