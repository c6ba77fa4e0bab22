"""Set up the course's grader on other platforms: in Gradescope's containers and on GitHub's runners.

The commands are `python -m course_lib autograder` and `workflow`. In Gradescope's container, `run_autograder` calls
this module: `python -m course_lib.classroom.autograder /autograder 3 4`.
"""

import argparse
import json
import os
import re
import shutil
import stat
import sys
import tempfile
import time
import traceback
import zipfile
from collections.abc import Sequence
from pathlib import Path

from course_lib.classroom.export.gradescope import gradescope_failure, gradescope_result
from course_lib.classroom.mark.class_run import expected_exercises, mark_class
from course_lib.classroom.read.submissions import find_submissions
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.stage import SandboxError
from course_lib.course.files import ASSETS, save_json, write_whole
from course_lib.grading.page.catalogue import EXERCISES
from course_lib.grading.page.package import left_out, requirements

TEMPLATES = ASSETS / "autograder"
YEAR_ONE = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip file: the same course gives the same bytes
NOT_ENDED = "grading did not come to its end. The teacher can start it again, and finds the reason in the output."
NO_WALL = (
    "sandbox: none. Bubblewrap does not work in this container ({}), so the answers run without protection. "
    "What they can spoil is thrown away with the container, after this one submission."
)
SPARE = 60.0  # seconds for starting and writing
TIMEOUT = 600.0  # Gradescope's time limit in seconds, unless the teacher sets another one


# ----------------------------------------------------------------------------------------------------------- Gradescope
def write_autograder(root: Path, path: Path, chapters: Sequence[int], index: str = "") -> Path:
    """Write Gradescope's autograder zip for an assignment of these chapters, and return its path.

    It contains the course including exercises, so only the teacher may have it. The same course gives the same bytes.

    Args:
        root: the course's repository, or a learner's package.
        index: the address of an additional package index for pip that has torch without CUDA.

    Errors: ValueError for an unknown chapter, none, a path that does not end in .zip, or a root that is not a course.
    """
    if path.suffix != ".zip":
        raise ValueError(f"{path} should end in .zip: Gradescope takes nothing else")
    library, packages = root / "course_lib", root / "requirements.txt"
    if not (library / "chapters").is_dir() or not packages.is_file():
        raise ValueError(f"{root} is not the course's repository: run this at its top")
    words = {"CHAPTERS": _require_chapters(chapters), "INDEX": _require_index(index)}
    made = {
        "setup.sh": (_filled("setup.sh", words), 0o755),
        "run_autograder": (_filled("run_autograder", words), 0o755),
        "not_graded.json": (json.dumps(gradescope_failure(NOT_ENDED), indent=1) + "\n", 0o644),
        "requirements.txt": (requirements(packages.read_text("utf-8")), 0o644),
    }
    content = {name: (text.encode(), mode) for name, (text, mode) in made.items()}
    for file in _files(library):
        content[f"course/{file.relative_to(root).as_posix()}"] = (file.read_bytes(), 0o644)

    def fill(part: Path) -> None:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for name, (data, mode) in sorted(content.items()):
                entry = zipfile.ZipInfo(name, YEAR_ONE)
                entry.create_system, entry.external_attr = 3, (stat.S_IFREG | mode) << 16  # 3: modes as on Unix
                entry.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(entry, data)

    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, fill)
    return path


def _files(folder: Path) -> list[Path]:
    """Return the files of the library, without the files that Python and editors leave behind."""
    found = []
    for place, folders, names in os.walk(folder):
        unwanted = left_out(place, [*folders, *names])
        folders[:] = sorted(set(folders) - unwanted)
        found += [Path(place) / name for name in sorted(set(names) - unwanted)]
    return found


def run_autograder(root: Path, chapters: Sequence[int], seconds: float = TIMEOUT) -> bool:
    """Grade `root/submission` into `root/results/results.json`, which is replaced atomically; return whether it was.

    Errors are printed for the teacher, and the file then stays unchanged. The script `run_autograder` begins with a
    file without a score, so a submission never gets zero points for an error of the grader.

    Args:
        seconds: Gradescope's time limit. Answers get less, so that there is a result before it ends.
    """
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            # A folder inside a folder is one submission, whatever it contains.
            handed_in = Path(scratch, "class", "submission")
            shutil.copytree(root / "submission", handed_in, symlinks=True, ignore=_special)
            submissions = find_submissions([handed_in.parent])
            expected = expected_exercises(submissions, chapters)
            quotas = Quotas(timeout=max(seconds - SPARE, seconds / 2))
            for level in ("bwrap", "none"):
                try:
                    out = Path(scratch, level)
                    outcome = mark_class(submissions, expected, out, sandbox=level, jobs=1, quotas=quotas)
                    break
                except SandboxError as error:
                    if level == "none":
                        raise
                    print(NO_WALL.format(" ".join(str(error).split())))
            print(f"seed {outcome.seed}", *outcome.failed.values(), sep="\n")
            [marked] = outcome.marked
        result = gradescope_result(marked, time.monotonic() - began)
        result["extra_data"] |= {"sandbox": level}
        save_json(root / "results" / "results.json", result)
    except Exception:
        print(traceback.format_exc())
        return False
    return True


def _special(folder: str, names: list[str]) -> list[str]:
    """Return the names of entries that are not files, folders or links: copying a pipe would never end."""
    modes = {name: os.lstat(os.path.join(folder, name)).st_mode for name in names}
    return [name for name, mode in modes.items() if stat.S_IFMT(mode) not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK)]


# --------------------------------------------------------------------------------------------------------------- GitHub
def write_workflow(path: Path, chapters: Sequence[int], course: str, index: str = "") -> Path:
    """Write a GitHub Actions workflow, `.github/workflows/grade.yml` in a learner's repository, and return its path.

    Args:
        course: the public repository with the learner's package (`release`) from which the runner installs the grader,
            OWNER/NAME@REF. REF is a tag or a commit, so that no push changes how answers are graded.
        index: as in `write_autograder`.

    Errors: ValueError for an unknown chapter, none, or a course that is not OWNER/NAME@REF.
    """
    repository, reference = _require_course(course)
    words = {"COURSE_REPOSITORY": repository, "COURSE_REF": json.dumps(reference)}
    text = _filled("workflow.yml", {**words, "CHAPTERS": _require_chapters(chapters), "INDEX": _require_index(index)})
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path


# --------------------------------------------------------------------------------------------------------- Classroom 50
def write_classroom50_autograder(path: Path, chapters: Sequence[int], course: str, index: str = "") -> Path:
    """Write the `autograder.py` of an assignment for Classroom 50, and return its path.

    It contains no answers: the course comes from a public repository. The arguments are those of `write_workflow`.
    Source: Classroom 50's wiki, Advanced Autograding, "Contract" and "The result.json contract".
    """
    if path.suffix != ".py":
        raise ValueError(f"{path} should be called autograder.py: Classroom 50 looks for that name")
    repository, reference = _require_course(course)
    numbers, index = _require_chapters(chapters).split(), _require_index(index)
    text = (TEMPLATES / "classroom50.txt").read_text(encoding="utf-8")
    for word, value in (
        ("COURSE_REPOSITORY", repository),
        ("COURSE_REF", json.dumps(reference)),
        ("CHAPTERS_LIST", ", ".join(numbers)),
        ("INDEX_LIST", ", ".join(map(json.dumps, index.split()))),
    ):
        text = text.replace(word, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_text(text, encoding="utf-8"))
    return path


# ----------------------------------------------------------------------------------------------------------------- both
def _require_course(course: str) -> tuple[str, str]:
    found = re.fullmatch(r"([\w.-]+/[\w.-]+)@([\w][\w./-]*)", course)
    if not found:
        raise ValueError(f"course={course!r} must read OWNER/NAME@REF, as in school/transformers@v1")
    return found[1], found[2]


def _filled(name: str, words: dict[str, str]) -> str:
    text = (TEMPLATES / name).read_text(encoding="utf-8")
    for word, value in words.items():
        text = text.replace(f" {word} ", f" {value} ".replace("  ", " ")).replace(f" {word}\n", f" {value}\n")
    return text


def _require_chapters(chapters: Sequence[int]) -> str:
    known = sorted({exercise.chapter for exercise in EXERCISES.entries.values()})
    unknown = [chapter for chapter in chapters if chapter not in known]
    if unknown or not chapters:
        what = f"there is no chapter {unknown[0]} with exercises" if unknown else "no chapter is named"
        raise ValueError(f"{what}: name some of {', '.join(map(str, known))}")
    return " ".join(map(str, sorted(set(chapters))))


def _require_index(index: str) -> str:
    if not index:
        return ""
    if not re.fullmatch(r"https://[\w.:/~+-]+", index):
        raise ValueError(f"index={index!r} must be an address that begins https://")
    return f"--extra-index-url {index}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Called by Gradescope's run_autograder.")
    parser.add_argument("root", type=Path)
    parser.add_argument("chapters", type=int, nargs="+")
    parser.add_argument("--seconds", type=float, default=TIMEOUT)
    arguments = parser.parse_args(argv)
    return 0 if run_autograder(arguments.root, arguments.chapters, arguments.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
