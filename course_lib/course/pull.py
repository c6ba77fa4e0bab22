"""Update a clone of the course with git: fetch the newer files and keep the learner's work.

`python -m course_lib start --pull` uses this module. Plain `git pull` is enough for learners who work in `my/`, which
git ignores. This module also works for learners who edited files in the clone itself, where `git pull` would conflict.
"""

import os
import shutil
import subprocess
from pathlib import Path

from course_lib.course.files import parsed
from course_lib.course.handout import Handed, fingerprint, git, hand, names_of, require_inside, write


def fetch_newer(course: Path) -> list[Handed]:
    """Fetch and merge the newer files from the repository that `course` was cloned from. Return what was done with each
    new or newer file: "merged" if the learner had edited other parts of it, else a word of `handout.Handed`.

    The learner's changes in the clone are committed first. If learner and authors changed different parts of a
    notebook, it keeps the learner's cells and gets the new ones. If the changes conflict, the rule of `handout`
    decides. A file that the learner deleted is restored.
    Errors: ValueError if this is not a clone, a merge is in progress, or the files cannot be merged; ConnectionError if
        the other repository cannot be reached.
    """
    if not (course / ".git").exists():
        raise ValueError(
            f"{course} was not cloned with git, so nothing can be fetched: get the newer course as you got this one"
        )
    if not shutil.which("git"):
        raise ValueError("git is not installed here: install it, or leave --pull out")
    try:
        git(course, "rev-parse", "--verify", "@{upstream}")
    except subprocess.CalledProcessError as error:
        raise ValueError(
            f"{course} has no repository to fetch from ({_said(error)}): clone the course again, next to this folder"
        ) from None
    if _is_merging(course) or git(course, "ls-files", "--unmerged"):
        raise ValueError(f"a merge is in progress in {course}: end it with `git merge --abort`, then try again")
    try:
        git(course, "fetch", "--quiet")
    except subprocess.CalledProcessError as error:
        raise ConnectionError(_said(error)) from None
    theirs = git(course, "rev-parse", "--verify", "@{upstream}").decode().strip()
    try:
        base = git(course, "merge-base", "HEAD", theirs).decode().strip()
        return _merged(course, base, theirs) if base != theirs else []
    except (subprocess.CalledProcessError, ValueError) as error:
        if _is_merging(course):
            git(course, "merge", "--abort")
        why = str(error) if isinstance(error, ValueError) else _said(error)
        raise ValueError(
            f"the fetched files cannot be merged ({why or 'they have no commit in common with this clone'}). Your "
            "files are unchanged; clone the course again next to them and copy your answers"
        ) from None


def _is_merging(course: Path) -> bool:
    try:
        return bool(git(course, "rev-parse", "--verify", "MERGE_HEAD"))
    except subprocess.CalledProcessError:
        return False


def _said(error: subprocess.CalledProcessError) -> str:
    """Return the last line of git's error output; the first lines may be advice."""
    return (error.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]


def _merged(course: Path, base: str, theirs: str) -> list[Handed]:
    """Commit the learner's changes, merge the authors' version, and resolve files that both changed."""
    held = (set(names_of(git(course, "ls-tree", "-r", "--name-only", "-z", each))) for each in (base, theirs))
    if gone := [name for name in sorted(set.intersection(*held)) if not os.path.lexists(course / name)]:
        git(course, "checkout", "--quiet", theirs, "--", *gone)
    incoming = names_of(git(course, "diff", "--name-only", "--no-renames", "-z", base, theirs))
    known = set(names_of(git(course, "ls-files", "-z")))
    own = [name for name in incoming if name not in known and os.path.lexists(course / name)]
    git(course, "add", "--update")
    if own:  # the learner has an untracked file with the name of an incoming one
        git(course, "add", "--force", "--", *own)
    if git(course, "diff", "--cached", "--name-only"):
        git(course, *_as_learner(course), "commit", "--quiet", "--no-verify", "-m", "What I wrote")
    mine = git(course, "rev-parse", "HEAD").decode().strip()
    both = {*names_of(git(course, "diff", "--name-only", "--no-renames", "-z", base, mine))} & {*incoming}
    if mine == base:
        git(course, "merge", "--quiet", "--ff-only", theirs)
        return [Handed(name, "renewed", course / name) for name in incoming if (course / name).exists()]
    try:
        merge = ("merge", "--quiet", "--no-commit", "--no-ff", "-Xno-renames", theirs)
        git(course, *_as_learner(course), *merge)
    except subprocess.CalledProcessError:
        if not git(course, "ls-files", "--unmerged"):
            raise
    unmerged = {*names_of(git(course, "diff", "--name-only", "--diff-filter=U", "-z"))}
    handed = []
    for name in sorted(both):
        versions = [_shown(course, each, name) for each in (base, mine, theirs)]
        if name in unmerged or not _is_whole(course / name):
            handed.append(_settled(course, name, *versions))
        elif (course / name).exists():
            handed.append(Handed(name, "renewed" if versions[1] == versions[2] else "merged", course / name))
    git(course, *_as_learner(course), "commit", "--quiet", "--no-verify", "--no-edit")
    rest = [name for name in incoming if name not in both and (course / name).exists()]
    return handed + [Handed(name, "renewed", course / name) for name in rest]


def _settled(course: Path, name: str, base: bytes | None, mine: bytes | None, theirs: bytes | None) -> Handed:
    """Restore the learner's version of a file, and put the authors' version in its place or next to it, by the rule."""
    require_inside(course, [name])
    path, given = course / name, fingerprint(base) if base is not None else None
    if mine is not None:
        write(path, mine)
    if theirs is None:  # the authors deleted it, the learner edited it
        done = Handed(name, "kept", path)
    else:
        entry = {"given": given, "beside": given} if given else {}
        done = hand(name, theirs, fingerprint(theirs), course, entry)
    git(course, "add", "--force", "--", name)
    return done


def _is_whole(path: Path) -> bool:
    """Return whether a merged file can be used: merging its lines can break a notebook."""
    if path.suffix != ".ipynb" or path.is_symlink():
        return True
    try:
        cells = parsed(path.read_bytes())["cells"]
        ids = [cell["id"] for cell in cells if "id" in cell]
        return len(set(ids)) == len(ids) and all(cell["cell_type"] and "source" in cell for cell in cells)
    except (OSError, ValueError, KeyError, TypeError):
        return not path.exists()


def _shown(course: Path, commit: str, name: str) -> bytes | None:
    """Return a file's content in a commit; None if it is not there."""
    try:
        return git(course, "show", f"{commit}:{name}")
    except subprocess.CalledProcessError:
        return None


def _as_learner(course: Path) -> tuple[str, ...]:
    """Return git options for an unsigned commit, with a name and an email address if git has none."""
    options: tuple[str, ...] = ("-c", "commit.gpgsign=false")
    try:
        git(course, "config", "user.email")
    except subprocess.CalledProcessError:
        options += ("-c", "user.name=learner", "-c", "user.email=learner@localhost")
    return options
