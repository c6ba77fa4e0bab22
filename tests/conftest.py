"""What every test shares: enforced shapes, seeds, one thread each."""

import os
import random

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the reference models are built from configurations, nothing is fetched

import jaxtyping
import numpy as np
import pytest
import torch
from hypothesis import settings
from jaxtyping import install_import_hook

from course_lib.course.contents import CHAPTERS
from course_lib.device import use_device
from tests import on_device

# Every annotation of the tensor code, shapes included, is checked on every call; this must come before it is imported.
# Tinytown and the other sub-packages are left out: they have words and records rather than shapes, in so many small
# calls that checking them would take longer than the tests.
SHAPED = [
    *("embeddings", "attention", "masks", "heads", "positions", "feed_forward", "normalization", "blocks", "gpt"),
    *("counting", "encoder_decoder", "training", "sampling", "beam", "pretrained", "assistant"),
    *("config", "cache", "trace"),
    *("claims", *(f"chapters.{chapter.slug}.claims" for chapter in CHAPTERS)),
    *("chapters.encoder_decoder.masked_reader", "chapters.encoder_decoder.translator"),
]
install_import_hook([f"course_lib.{name}" for name in SHAPED], "checked_annotations.check")

torch.set_num_threads(1)
settings.register_profile("course", derandomize=True, deadline=None, max_examples=25, database=None)
settings.load_profile("course")


@pytest.fixture(autouse=True)
def seeded():
    """The same random numbers in every run, and one thread, whatever ran before: some commands set more for their whole
    process."""
    random.seed(0)
    np.random.seed(0)
    torch.default_generator.manual_seed(0)  # torch.manual_seed writes down the whole stack for each GPU there may be
    if torch.accelerator.is_available():
        torch.manual_seed(0)
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@pytest.fixture(scope="session", params=["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def device(request):
    """The CPU, and the GPU where there is one: a test that takes it runs on both. With `--device`, that one."""
    return request.config.option.device or request.param


@pytest.fixture(scope="module", autouse=True)
def made_on_the_device(request):
    """With `--device`, the tests of the library make their tensors there, as a notebook does: see `on_device.py`."""
    device = request.config.option.device
    if not device or not on_device.of_the_library(request.path):
        yield
        return
    use_device(device)
    yield
    use_device("cpu")


@pytest.fixture(scope="session")
def worker_at():
    """A sandboxed worker of each level, started where it is first asked for: each takes seconds to start, so the files
    whose limits are the same share it. Skips where the level does not work."""
    from course_lib.classroom.sandbox.quotas import Quotas
    from course_lib.classroom.sandbox.remote import Worker
    from course_lib.classroom.sandbox.stage import SandboxError

    workers: dict[str, Worker] = {}

    def at(level: str) -> Worker:
        if level not in workers:
            # On a machine three times slower than most, a cell that runs another notebook takes more than 3 seconds,
            # and so do answers that seed torch in each of thousands of calls.
            quotas = Quotas(cell_timeout=6, exercise_timeout=8, timeout=120)
            try:
                workers[level] = Worker(level, quotas, slot=50 + len(workers)).__enter__()
            except SandboxError as error:
                pytest.skip(str(error))
        return workers[level]

    yield at
    for worker in workers.values():
        worker.close()


@pytest.fixture
def as_a_learner():
    """Switch the annotation checks off, as in normal use, to see the library's own errors for bad input."""
    before = jaxtyping.config.jaxtyping_disable
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", before)


@pytest.fixture(scope="module", autouse=True)
def readable(request):
    """Every word of a figure stands out from its ground: looked at when a module that draws is through, in the last
    figure that each function made in it."""
    if not request.module.__name__.rpartition(".")[2].startswith(("test_viz_", "test_ladder")):
        yield
        return
    from tests.contrast import drawn, unreadable

    with drawn() as figures:
        yield
    found = {name: told for name, figure in figures.items() if (told := unreadable(figure))}
    assert not found, f"words that are hard to read; use ink_on or another colour of course_lib.live.palette: {found}"


@pytest.fixture
def no_pixels(request, monkeypatch):
    """Live figures without their PNG: most tests are about what is drawn, and a picture takes long."""
    from course_lib.live import figure as live

    if "pixels" not in request.fixturenames:
        monkeypatch.setattr(live, "png", lambda figure: b"")


@pytest.fixture
def pixels(monkeypatch):
    """Real pictures after all, in a module that does without; coarse ones, which take a third of the time."""
    from course_lib.live import figure as live

    monkeypatch.setattr(live, "DPI", 60)


@pytest.fixture
def own_record(monkeypatch, tmp_path):
    """A progress file of the test's own."""
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "progress.sqlite3"))


@pytest.fixture
def toy(monkeypatch, own_record):
    """Puts an exercise into the catalogue for one test, with a progress file of its own."""
    from course_lib.course import record
    from course_lib.grading.page import catalogue
    from tests.toy_exercise import declared

    monkeypatch.setattr(record, "_memory", {})
    monkeypatch.setattr(record, "_said", set())

    def add(**fields):
        exercise = declared(**fields)
        monkeypatch.setitem(catalogue.EXERCISES, exercise.id, exercise)
        return exercise

    return add
