"""Measure a few submissions to estimate how long a class would take on this machine: `grade --plan`."""

import argparse
import tempfile
import time
from pathlib import Path


def tell_plan(arguments: argparse.Namespace, quotas) -> int:
    """Grade a few submissions and print an estimate for a class.

    The first submission of each worker also starts it and draws cases, which happens once per class. The others show
    the speed from then on.
    """
    from course_lib.classroom.mark.class_run import expected_exercises, mark_class
    from course_lib.classroom.read.submissions import find_submissions

    count, jobs = arguments.plan, arguments.jobs
    if count < 1:
        raise ValueError(f"--plan {count}: for how many submissions?")
    sample = arguments.submissions or [Path("solutions")]
    if not arguments.submissions and not sample[0].is_dir():
        raise ValueError("name some submissions as a sample, or run this at the top of the course's repository")
    found = find_submissions(sample)[:jobs]
    expected = expected_exercises(found, arguments.chapters, arguments.exercises)
    submissions = [_renamed(found[i % len(found)], i) for i in range(3 * jobs)]
    began, ends = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="course-plan-") as folder:
        outcome = mark_class(
            submissions,
            expected,
            Path(folder) / "plan",
            sandbox=arguments.sandbox,
            jobs=jobs,
            quotas=quotas,
            seed=0,
            tell=lambda done: ends.append(time.monotonic() - began),
        )
    for name, why in outcome.failed.items():
        raise RuntimeError(f"--plan: {name!r} could not be graded: {why}")
    first, each = ends[jobs - 1], (ends[-1] - ends[jobs - 1]) / (2 * jobs)
    print(f"{len(expected)} exercises, {jobs} workers ({arguments.sandbox}):")
    print(f"  {first:6.1f} s  until the first {jobs} are done, with drawing the cases")
    print(f"  {each:6.1f} s  for each further one, that is {60 / max(each, 1e-3):.0f} a minute")
    print(f"  {outcome.peak / 2**20 * jobs:6.0f} MB for the workers at their largest")
    print(f"{count:,} submissions will take about {_duration(first + each * max(0, count - jobs))} on this machine.")
    return 0


def _renamed(submission, number: int):
    """Return the same submission with one changed word, as if from another learner."""
    from dataclasses import replace

    return replace(submission, name=f"{submission.name} {number}", digest=f"{submission.digest} {number}")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
