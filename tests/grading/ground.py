"""What a hostile submission finds around it: a teacher's file and folder, a listener, a process of no concern."""

import contextlib
import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil
import torch

import course_lib
from tests.grading import corpus

NEIGHBOUR = corpus.Case(
    "neighbour",
    "An honest learner, graded by the same worker right after each hostile one.",
    ("attention.softmax", "attention.memory"),
    ("attention.softmax", "attention.memory"),
    corpus.notebook(
        [
            ("code", "def softmax(x, dim):\n    return (x - x.logsumexp(dim, keepdim=True)).exp()"),
            ("code", "attention_memory = 4 * 2048 * 2048"),
        ]
    ),
)


ROOT = Path(course_lib.__file__).parents[1]


class Ground:
    """A teacher's file and folder, a listener and a process of no concern, and the words that lead a case to them."""

    def __init__(self):
        self.folder = Path(tempfile.mkdtemp(prefix="ground-"))
        self.folder.chmod(0o777)
        self.secret = f"canary-{os.urandom(8).hex()}"
        self.mark = f"hc{os.urandom(5).hex()}"
        self.canary = self.folder / "grades.csv"
        self.reset()
        environment = {"COURSE_CANARY": self.secret}
        wait = [sys.executable, "-I", "-S", "-c", "import sys; sys.stdin.read()"]
        self.bystander = subprocess.Popen(wait, env=environment, stdin=subprocess.PIPE)
        self.calls: list[str] = []
        self.doors = self._doors()
        for door in self.doors:
            threading.Thread(target=self._listen, args=(door,), daemon=True).start()
        NEIGHBOUR.write(self.folder)

    def reset(self) -> None:
        self.canary.write_text(self.secret, encoding="utf-8")
        self.canary.chmod(0o666)

    def _doors(self) -> list[socket.socket]:
        tcp = socket.create_server(("127.0.0.1", 0))
        self.port = tcp.getsockname()[1]
        doors = [tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM)]
        doors[1].bind(("127.0.0.1", self.port))
        for name in (f"{self.folder}/door", f"\0{self.mark}-listener"):
            doors.append(socket.socket(socket.AF_UNIX))
            doors[-1].bind(name)
            doors[-1].listen()
        (self.folder / "door").chmod(0o777)
        return doors

    def _listen(self, door: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed at the end
            while True:
                if door.type == socket.SOCK_DGRAM:
                    self.calls.append(f"{door.recvfrom(100)}")
                else:
                    line, caller = door.accept()
                    line.close()
                    self.calls.append(f"{door.getsockname()} from {caller}")

    def close(self) -> None:
        for door in self.doors:
            with contextlib.suppress(OSError):
                door.shutdown(socket.SHUT_RDWR)
            door.close()
        self.bystander.kill()
        self.bystander.communicate()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def words(self) -> dict[str, str]:
        return {
            "{PORT}": str(self.port),
            "{CANARY}": str(self.canary),
            "{OUTSIDE}": str(self.folder),
            "{UNIX}": f"{self.folder}/door",
            "{MARK}": self.mark,
            "{REPO}": str(ROOT),
            "{HOME}": str(Path.home()),
            "{RUNNER}": str(os.getpid()),
            "{PIDNS}": os.readlink("/proc/self/ns/pid"),
        }

    def marked_files(self) -> list[Path]:
        """What bears the mark, in every folder that a case may have tried."""
        folders = {self.folder, ROOT, ROOT / "tests", Path.home(), Path.cwd(), *map(Path, sys.path)}
        folders |= {Path(module.__file__).parent for module in (course_lib, torch, os)}
        folders |= set(map(Path, ("/", "/tmp", "/var/tmp", "/dev/shm", "/dev", "/run", "/etc", "/opt", "/usr/lib")))
        folders |= {Path(sys.prefix), Path(sys.base_prefix), Path("/usr/bin"), Path("/usr/local/lib")}
        found = [path for folder in folders if folder.is_dir() for path in folder.iterdir() if self.mark in path.name]
        return sorted({path.resolve() for path in found})

    def marked_processes(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if self.mark in process.name():
                    found.append(process)
        return found


def filled(case: corpus.Case, words: dict[str, str]) -> corpus.Case:
    """A case with the words put in, and with what its text cannot say."""

    def put(text: str) -> str:
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    files = {put(name): put(text) for name, text in case.files.items()}
    text = put(case.notebook_json)
    for touch in case.touches:
        if touch in BY_HAND:
            whole = json.loads(text)
            BY_HAND[touch](whole)
            text = json.dumps(whole)
    return dataclasses.replace(case, notebook_json=text, files=files)


def claims(whole: dict) -> None:
    """Points in the metadata, in outputs, in attachments."""
    passed = {"score": 100, "earned": 100, "points": 100, "status": "passed", "passed": True}
    graded = {"grade": True, "grade_id": "attention.softmax", "locked": True, "points": 100, "schema_version": 3}
    whole["metadata"] |= {"grades": passed, "attention.softmax": passed, "otter": {"score": 100}}
    for cell in whole["cells"]:
        cell["metadata"] = {
            "nbgrader": {**graded, "solution": False, "task": False},
            "grade": passed,
            "tags": ["passed"],
        }
        data = {"text/plain": "✓ Passed · 2 of 2 points", "application/json": passed}
        cell["outputs"] = [{"output_type": "execute_result", "data": data, "metadata": passed, "execution_count": 1}]


def same_ids(whole: dict) -> None:
    for cell in whole["cells"]:
        cell["id"] = "same"
        cell["metadata"] = {"nbgrader": {"grade": True, "grade_id": "same", "points": 100, "schema_version": 3}}


def awkward(whole: dict) -> None:
    """Sources that no parser likes, around cells that are fine."""
    whole["cells"][1]["source"] = ["def softmax(x, dim):\n    return " + "(" * 5000 + "x" + ")" * 5000]
    model = whole["cells"][0]
    sources = ["x = '" + "y" * 900_000 + "'", "a\0b", "\ud800 = 1", "# -*- coding: latin-1 -*-\nx = 1", "%" * 10_000]
    sources += [
        "-" * 100_000 + "1",
        "lambda: " * 5000 + "0",
        "[" * 10_000,
        "\t\r\f\x0b if x:\n \tpass",
        "!" * 5000,
        "?" * 99,
    ]
    whole["cells"] += [{**model, "source": source} for source in sources]


BY_HAND = {"claims": claims, "ids": same_ids, "awkward": awkward}
