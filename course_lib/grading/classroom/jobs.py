"""Grading one submission as a job: told as data, done anywhere, tried again if the machine fails.

A job that failed through no fault of its learner never counts as a zero.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..catalogue import get
from .bounds import Limits
from .marked import Marked
from .marking import mark
from .remote import Fault, Worker
from .sandbox import SandboxError
from .submissions import Submission

TRIES = 3  # of a submission, when workers fail


@dataclass(frozen=True)
class Job:
    """A submission to be graded, with all that is needed to do it anywhere."""

    key: str
    submission: Submission
    exercises: tuple[str, ...]
    seed: int
    sandbox: str
    limits: Limits


@dataclass(frozen=True)
class Done:
    """What became of a job: its marks, or why there are none. seconds: how long it took. peak: bytes of memory."""

    key: str
    marked: Marked | None
    fault: str = ""
    seconds: float = 0.0
    peak: int = 0


def do_job(job: Job, worker: Worker, closing: Callable[[], bool] = lambda: False) -> Done:
    """Grade a submission with a worker; a fault is tried again with a fresh one.

    A mistake of the grader's own, whatever it is, is a fault as well: the class goes on without this submission.
    """
    torch.set_num_threads(1)
    began, fault = time.monotonic(), "the run was ended"
    for _ in range(TRIES):
        if closing():
            break
        worker.peak = 0
        try:
            marked = mark(job.submission, [get(each) for each in job.exercises], worker, job.seed)
            return Done(job.key, marked, seconds=time.monotonic() - began, peak=worker.peak)
        except Exception as error:
            fault = f"{error if isinstance(error, Fault) else repr(error)} ({TRIES} tries)"
        if not closing():
            try:
                worker.restart()
            except SandboxError as error:
                fault = f"{error} ({TRIES} tries)"
    return Done(job.key, None, fault)
