"""Stress tests: measure each trained claim again, with longer training and with wider models."""

import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context

import torch

from course_lib.claims.registry import Experiment, Size, Tried, find

LONGER, WIDER = Size(of_steps=4), Size(of_width=2)
WORTH = 120.0  # seconds; the wider models train only if we expect them to take less


def tried_at_other_sizes(each: Experiment) -> list[Tried]:
    """Measure a trained claim with four times the steps, and with twice the width if that takes under two minutes.

    Twice the width means four times the weights, and so takes about as long as four times the steps.
    Errors: ValueError if the claim trains nothing, or does not use `size.steps`.
    """
    longer = Size(LONGER.of_steps)
    began = time.perf_counter()
    found = [(longer, each(longer))]
    if "steps" not in longer.asked:
        raise ValueError(f"{each.id} trains a model but does not use its size: write size.steps(300) in place of 300")
    if "width" in longer.asked and time.perf_counter() - began < WORTH:
        found.append((WIDER, each(WIDER)))
    return [Tried(size.of_steps, size.of_width, finding.verdict, finding.measured) for size, finding in found]


def stress(chosen: Sequence[Experiment], jobs: int = 1) -> Iterator[tuple[str, list[Tried]]]:
    """Yield (id, results at other sizes) for each claim as it finishes. jobs: processes, each with one thread.

    Errors: as in `tried_at_other_sizes`.
    """
    if jobs == 1:
        for each in chosen:
            yield each.id, tried_at_other_sizes(each)
        return
    with get_context("spawn").Pool(min(jobs, len(chosen)), torch.set_num_threads, (1,)) as pool:  # the exit ends them
        yield from pool.imap_unordered(_in_a_worker, [each.id for each in chosen])


def _in_a_worker(id: str) -> tuple[str, list[Tried]]:
    return id, tried_at_other_sizes(find(id))
