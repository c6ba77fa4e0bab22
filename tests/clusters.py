"""A Dask cluster of real processes on this machine, whose workers and scheduler may be killed."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil

from tests.small_class import ROOT, environment, wait_until


class Cluster:
    """A scheduler and workers, each a process, on a port of 127.0.0.1 that stays the same."""

    def __init__(self, folder):
        self.folder, self.scheduler = folder, None
        self.workers: list[subprocess.Popen] = []
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"

    def _start(self, what: str, *arguments: str) -> subprocess.Popen:
        settings = {
            "PYTHONPATH": os.pathsep.join([str(self.folder), str(ROOT)]),
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1",
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "10s",
            "DASK_TEMPORARY_DIRECTORY": str(self.folder),
        }
        command = [sys.executable, "-m", f"distributed.cli.{what}", "--no-dashboard", *arguments]
        log = open(self.folder / "log", "ab")  # noqa: SIM115 (the process keeps it)
        with log:
            return subprocess.Popen(command, env={**environment(), **settings}, stdout=log, stderr=log)

    def start(self) -> None:
        place = ["--host", "127.0.0.1", "--port", str(self.port), "--dashboard-address", "127.0.0.1:0"]
        self.scheduler = self._start("dask_scheduler", *place)
        wait_until(self._answers, self.scheduler)

    def _answers(self) -> bool:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        return False

    def add_worker(self) -> subprocess.Popen:
        options = ["--no-nanny", "--nthreads", "1", "--host", "127.0.0.1", "--memory-limit", "0"]
        self.workers.append(self._start("dask_worker", self.address, *options))
        return self.workers[-1]

    def close(self) -> None:
        started = [each for each in (*self.workers, self.scheduler) if each]
        family = []
        for process in started:
            with contextlib.suppress(psutil.Error):
                family += psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            for stage in Path(tempfile.gettempdir()).glob(f"course-grading-{process.pid}-*"):
                shutil.rmtree(stage, ignore_errors=True)  # the next grader would clear it away
        for each in family:
            with contextlib.suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(family, timeout=60)
