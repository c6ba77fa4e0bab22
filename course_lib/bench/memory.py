"""What an open chapter takes of a machine's memory: for whoever serves the course to a class."""

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

OPEN = (0, 2, 4, 12, 13)  # the first, and four that hold models, figures and trainings
READY = "is running at"  # what a server prints once it listens


def kernel_bytes(notebook: Path) -> tuple[int, int]:
    """Run a notebook and return what its kernel holds: the most after any cell, and at the end what no other process
    shares with it. The file stays as it is."""
    read = nbformat.read(notebook, as_version=4)
    client = NotebookClient(read, timeout=600, resources={"metadata": {"path": str(notebook.parent)}})
    most = 0
    with client.setup_kernel():
        kernel = psutil.Process(client.km.provisioner.pid)  # type: ignore[union-attr]  # of a kernel that runs here
        for number, cell in enumerate(read.cells):
            client.execute_cell(cell, number)
            most = max(most, kernel.memory_info().rss)
        return most, kernel.memory_full_info().uss


def server_bytes() -> int:
    """Start JupyterLab in an empty folder, and return what its server holds as soon as it listens."""
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--ServerApp.port=0", "--allow-root"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as server,
    ):
        try:
            if not any(READY in line for line in server.stderr or ()):
                raise RuntimeError(
                    "JupyterLab ended before it listened: python -m course_lib doctor says what it lacks"
                )
            return psutil.Process(server.pid).memory_info().rss
        finally:
            server.terminate()


def measure(rounds: int) -> Iterator[Row]:
    """Measure the server and some chapters, each once: a kernel's memory hardly differs from run to run."""
    yield Row("memory", "JupyterLab's server", "", spread([server_bytes()]), sign="B")
    opened = [(f"chapter {number}", "notebooks", number) for number in OPEN]
    for what, part, number in [*opened, ("exercises of chapter 2, unsolved", "exercises", 2)]:
        most, own = kernel_bytes(COURSE / part / CHAPTERS[number].notebook)
        note = f"{own / 1e6:,.0f} MB of it are shared with no other process at the end"
        yield Row("memory", what, "", spread([most]), sign="B", note=note)
