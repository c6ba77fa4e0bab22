"""The running time of the course's notebooks, one after the other and two at a time."""

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tqdm.auto import tqdm

from course_lib.bench.report import Row
from course_lib.bench.rounds import spread
from course_lib.course.contents import CHAPTERS

HOME = Path(__file__).resolve().parents[2]
EACH, TRAINING = 30.0, 90.0  # seconds allowed for a notebook, and for one that trains
RUN = """
import sys, nbformat, nbclient
notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": sys.argv[2]}}).execute()
"""


def seconds_of(notebook: Path) -> float:
    """Run a notebook in its own kernel without changing the file; return the seconds."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", RUN, str(notebook), str(notebook.parent)], check=True, capture_output=True)
    return time.perf_counter() - began


def measure(rounds: int) -> Iterator[Row]:
    """Run all notebooks, once with one worker and once with two."""
    notebooks = [HOME / "notebooks" / chapter.notebook for chapter in CHAPTERS]
    notebooks = [path for path in notebooks if path.exists()]
    totals = {}
    for workers in (1, 2):
        began = time.perf_counter()
        with ThreadPoolExecutor(workers) as pool:
            bar = tqdm(pool.map(seconds_of, notebooks), total=len(notebooks), desc=f"notebooks, {workers} at a time")
            taken = dict(zip(notebooks, bar))
        totals[workers] = time.perf_counter() - began
        if workers == 1:
            for path, seconds in taken.items():
                yield Row("course", path.name, "a fresh kernel", spread([seconds]), sign="s")
    for workers, seconds in totals.items():
        yield Row("course", f"all, {workers} at a time", "", spread([seconds]), sign="s")
    yield Row("course", "two at a time", "one after the other", spread([totals[1] / totals[2]]))
