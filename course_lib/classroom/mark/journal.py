"""Save results as they come: one line of JSON each, appended and synced, so that a killed grader loses nothing.

`run.json` describes the run: its secret seed, for marking again, the scheme that draws the cases from it, and the
settings that must not change when the run continues.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import filelock
import torch

import course_lib
from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.read.submission_reader import Submission
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.course.files import parsed, write_whole
from course_lib.grading.judge.seeds import new_secret, scheme_of
from course_lib.grading.kinds import Exercise

RUN, LINES = "run.json", "marks.jsonl"
SCHEMES = {
    1: "scheme 1, of earlier versions and small seeds: one seed draws all cases, and an answer may come to know it",
    2: "scheme 2: a keyed hash of the run's secret draws the cases of each stage of an exercise",
}


@cache
def version() -> str:
    """Return the grader's version: a hash of the library's code and of torch's version."""
    digest = hashlib.sha256(torch.__version__.encode())
    root = Path(course_lib.__file__).parent
    for path in sorted((*root.rglob("*.py"), *root.rglob("*.bin"))):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def scheme_told(folder: Path) -> str:
    """Return in words the scheme that drew the cases of the run in a folder; nothing if no run is recorded."""
    try:
        return SCHEMES[parsed((folder / RUN).read_text(encoding="utf-8"))["scheme"]]
    except (OSError, ValueError, KeyError, TypeError):
        return ""


class Journal:
    """The results of one run in a folder; a context manager, because only one grader may write there.

    Args:
        folder: created if needed.
        expected: the exercises that every submission is graded on.
        quotas: the limits of a submission.
        resume: whether to continue the run in the folder.
        seed: the seed, for marking again; by default the run's own, or a fresh secret one.
        salvage: whether damaged files are read. Results with other settings are graded again.

    Errors: ValueError if the folder has results and `resume` is not set, if they cannot be continued, or if nothing can
        be written there; RuntimeError if writing fails later.
    """

    def __init__(
        self,
        folder: Path,
        expected: Sequence[Exercise],
        quotas: Quotas,
        resume: bool = False,
        seed: int | None = None,
        salvage: bool | str = True,
    ):
        self.folder = Path(folder)
        ids = [each.id for each in expected]
        self.about = {"exercises": ids, "quotas": quotas.as_dict(), "salvage": salvage, "grader": version()}
        self._resume, self._asked = resume, seed
        self.seed = 0
        self.marks: dict[str, GradedSubmission] = {}  # by key

    def __enter__(self) -> "Journal":
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = filelock.FileLock(self.folder / ".lock")
            self._lock.acquire(timeout=0)
            try:
                self._open()
            except BaseException:
                self._lock.release()
                raise
        except filelock.Timeout as error:
            raise ValueError(f"another grader is writing to {self.folder}: wait, or name another folder") from error
        except OSError as error:
            raise ValueError(
                f"results cannot be kept in {self.folder} ({error.strerror}): name another folder"
            ) from error
        return self

    def __exit__(self, *error) -> None:
        self._file.close()
        self._lock.release()

    def _open(self) -> None:
        path = self.folder / LINES
        lines = path.read_bytes() if path.exists() else b""
        if lines and not self._resume:
            raise ValueError(
                f"{self.folder} holds the results of a run: add --resume to go on with it, or name another folder "
                "(each week, and each choice of chapters, needs its own folder)"
            )
        run = self._read_run() if lines else {}
        if self._asked is not None and run and run["seed"] != self._asked:
            raise ValueError(f"the run in {self.folder} has seed {run['seed']}: leave --seed out, or start a new run")
        self.seed = run.get("seed", new_secret() if self._asked is None else self._asked)
        write_whole(self.folder / RUN, self._write_run)
        whole = lines.rfind(b"\n") + 1  # any bytes after this are incomplete: the grader was killed while writing
        for line in lines[:whole].split(b"\n"):
            self._take(line)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed in __exit__)
        self._file.truncate(whole)

    def _read_run(self) -> dict[str, Any]:
        path = self.folder / RUN
        try:
            run = parsed(path.read_text(encoding="utf-8"))
            seed, scheme = int(run["seed"]), run.get("scheme", 1)  # the first versions did not write it
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path} is missing or damaged, and with it the seed of these results: name another folder"
            ) from error
        if scheme != scheme_of(seed):
            raise ValueError(
                f"{path} draws its cases by scheme {scheme!r}, which this version of the course does not do with its "
                "seed: go on with the version that began the run, or name another folder"
            )
        return {"seed": seed}

    def _write_run(self, part: Path) -> None:
        part.unlink(missing_ok=True)
        private = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)  # the class may still be submitting
        with open(private, "w", encoding="utf-8") as file:
            json.dump({"seed": self.seed, "scheme": scheme_of(self.seed), **self.about}, file, indent=1)
            file.flush()
            os.fsync(private)

    def _take(self, line: bytes) -> None:
        try:
            entry = parsed(line)
            self.marks[entry["key"]] = GradedSubmission.from_dict(entry["marked"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return  # from another version, or damaged: it is graded again

    def key(self, submission: Submission) -> str:
        """Return a key that is equal for the same content, settings and version of the grader."""
        terms = json.dumps([self.seed, self.about, submission.digest], sort_keys=True)
        return hashlib.sha256(terms.encode()).hexdigest()

    def add(self, key: str, marked: GradedSubmission, **beside: Any) -> None:
        """Save a result; when this returns, it is on the disk. Errors: RuntimeError if it cannot be written."""
        line = memoryview(json.dumps({"key": key, "marked": marked.as_dict(), **beside}).encode() + b"\n")
        try:
            while line:
                line = line[self._file.write(line) :]
            os.fsync(self._file.fileno())
        except OSError as error:
            raise RuntimeError(
                f"results cannot be written to {self.folder} any more ({error.strerror}). Those written before are "
                "kept: correct it, and continue with --resume"
            ) from error
        self.marks[key] = marked

    def of(self, submissions: Iterable[Submission]) -> list[GradedSubmission]:
        """Return the existing results of these submissions, in their order and under their names."""
        named = ((submission, self.marks.get(self.key(submission))) for submission in submissions)
        return [
            replace(marked, name=submission.name, learner=submission.learner) for submission, marked in named if marked
        ]
