"""A worker and a marking that only pretend, for tests of a class run that need no processes."""

from pathlib import Path

import pytest

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark import class_run, marking
from course_lib.classroom.mark.class_run import mark_class
from course_lib.classroom.read.submission_reader import Submission
from course_lib.classroom.sandbox.probe import Wall
from course_lib.grading.page.catalogue import EXERCISES
from tests.small_class import (
    ANSWERS,
    EXERCISE,
    LIMITS,
    SEED,
)

EXPECTED = [EXERCISES[EXERCISE]]
NAMES = list(ANSWERS)
WALL = Wall("bwrap", 22, (), 2 << 30, 3 << 30, "watcher", 36, 80 << 20)  # as if it had been measured


class Idle:
    """In place of a worker or a stage: nothing starts, and every restart is counted."""

    restarts = 0
    peak = 0

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def restart(self):
        type(self).restarts += 1

    def close(self):
        pass


class Pretended:
    """In place of `mark`: full points for everybody, unless `wrong` has something to raise for a name."""

    def __init__(self):
        self.names: list[str] = []
        self.seeds: set[int] = set()
        self.wrong: dict[str, Exception] = {}

    def __call__(self, submission, expected, worker, seed):
        self.names.append(submission.name)
        self.seeds.add(seed)
        if submission.name in self.wrong:
            raise self.wrong[submission.name]
        results = tuple(exercise.verdict("passed", [f"{submission.digest} is right."]) for exercise in expected)
        return GradedSubmission(submission.name, submission.digest, results, ("é\n\x1b[1m",))


def pretend(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    """Put both in place of the real ones."""
    monkeypatch.setattr(class_run, "Stage", Idle)
    monkeypatch.setattr(class_run, "_Hurried", Idle)
    monkeypatch.setattr(class_run, "require_isolation", lambda worker: WALL)
    monkeypatch.setattr(Idle, "restarts", 0)
    monkeypatch.setattr(marking, "mark", marks := Pretended())
    return marks


def submitted(*names: str) -> list[Submission]:
    return [Submission(name, (), {}, (), f"digest of {name}") for name in names or NAMES]


def run(folder: Path, submissions=None, **options):
    options = {"expected": EXPECTED, "quotas": LIMITS, "seed": SEED, "jobs": 1, **options}
    return mark_class(submissions or submitted(), options.pop("expected"), folder, **options)
