"""A run of the bench: the chosen parts, one after the other, on a machine that is quiet enough."""

import importlib
from collections.abc import Sequence

import torch
from matplotlib.figure import Figure

from course_lib.bench.machine import Matmul, Watch, describe, look_before, require_quiet
from course_lib.bench.report import Point, Report, roofline
from course_lib.bench.rounds import in_turns

READ = 1 << 27  # numbers to sum for the memory bandwidth: half a gigabyte, far more than any cache
MODULES = {"train": "training", "decode": "decoding", "grade": "grading", "import": "imports"}  # if not the part's name


def run_parts(parts: Sequence[str], rounds: int, threads: int | None = None, anyway: bool = False) -> Report:
    """Measure the parts and return the report.

    Args:
        rounds: how often each contestant is timed. threads: cores to use; all unless given.
        anyway: measure even if other programs are busy; the report includes their fraction of the cores.
    Errors: TooBusy unless `anyway`.
    """
    if threads:
        torch.set_num_threads(threads)
    if not anyway:
        look_before()
    report, watch = Report(describe()), Watch()
    for part in parts:
        for found in importlib.import_module(f"course_lib.bench.{MODULES.get(part, part)}").measure(rounds):
            (report.points if isinstance(found, Point) else report.rows).append(found)
    if report.points:
        report.limits = limits(rounds)
    report.others = watch.others() if anyway else require_quiet(watch, "while measuring")
    return report


def limits(rounds: int) -> dict[str, float]:
    """Return the limits of this machine: "flops" per second in float32, and "bytes" per second from memory."""
    product, memory = Matmul(), torch.ones(READ)
    contest = in_turns({"product": product, "reading": memory.sum}, rounds, "the machine's limits")
    return {"flops": product.flops / contest.of("product"), "bytes": 4 * READ / contest.of("reading")}


def roofline_of(report: Report) -> Figure:
    """Return the roofline of a report. Errors: ValueError if the report has neither training nor generation."""
    if not report.points:
        raise ValueError("a roofline needs the part train or decode: add one of them")
    return roofline(report.points, report.limits)
