"""The memory that an open chapter takes, for teachers who run the course on a server."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import psutil
from nbclient import NotebookClient

from course_lib.bench.report import Row
from course_lib.bench.rounds import spread
from course_lib.course.contents import CHAPTERS
from course_lib.course.files import COURSE

OPEN = (0, 2, 4, 12, 13)  # the first chapter, and four with models, figures and training runs
READY = "is running at"  # a server prints this when it listens


def kernel_bytes(notebook: Path) -> tuple[int, int]:
    """Run a notebook and return its kernel's memory: the maximum after any cell, and the unshared memory at the end.

    The file does not change."""
    read = nbformat.read(notebook, as_version=4)
    client = NotebookClient(read, timeout=600, resources={"metadata": {"path": str(notebook.parent)}})
    most = 0
    with client.setup_kernel():
        kernel = psutil.Process(client.km.provisioner.pid)  # type: ignore[union-attr]  # a local kernel has a pid
        for number, cell in enumerate(read.cells):
            client.execute_cell(cell, number)
            most = max(most, kernel.memory_info().rss)
        return most, kernel.memory_full_info().uss


def server_bytes() -> int:
    """Start JupyterLab in an empty folder, and return the memory of its server as soon as it listens."""
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ServerApp.port=0", "--allow-root"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server,
    ):
        try:
            if not any(READY in line for line in server.stderr or ()):
                raise RuntimeError(
                    "JupyterLab ended before it answered: `python -m course_lib doctor` says what is missing"
                )
            return psutil.Process(server.pid).memory_info().rss
        finally:
            server.terminate()


def measure(rounds: int) -> Iterator[Row]:
    """Measure the server and some chapters, each only once because a kernel's memory hardly differs between runs."""
    yield Row("memory", "JupyterLab's server", "", spread([server_bytes()]), sign="B")
    opened = [(f"chapter {number}", "notebooks", number) for number in OPEN]
    for what, part, number in [*opened, ("exercises of chapter 2, unsolved", "exercises", 2)]:
        most, own = kernel_bytes(COURSE / part / CHAPTERS[number].notebook)
        note = f"{own / 1e6:,.0f} MB of it are shared with no other process at the end"
        yield Row("memory", what, "", spread([most]), sign="B", note=note)
