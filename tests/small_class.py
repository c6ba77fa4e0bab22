"""A small class for tests of the class run: one exercise, eight learners, every kind of answer, two that are slow."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.__main__ import main
from course_lib.classroom.sandbox.quotas import Quotas
from tests.grading.corpus import notebook

ROOT = Path(__file__).parent.parent
EXERCISE = "attention.softmax"
LIMITS = Quotas(cell_timeout=10, exercise_timeout=5, timeout=120)
SEED = 27_182_818
PATIENCE = 300  # seconds for a very slow machine; nothing waits that long unless it is broken

RIGHT = "def softmax(x, dim):\n    e = (x - x.amax(dim, keepdim=True)).exp()\n    return e / e.sum(dim, keepdim=True)"
WRONG = "def softmax(x, dim):\n    return x.exp() / x.exp().sum(dim, keepdim=True)"
ENDLESS = "def softmax(x, dim):\n    while True:\n        pass"
SLOW = "import time\n\nwaited = []\n" + RIGHT.replace(":\n", ":\n    waited or waited.append(time.sleep(1.5))\n", 1)
ANSWERS = {
    "ada": RIGHT,
    "bert": WRONG,
    "carl": SLOW,
    "dora": RIGHT + "\n# her own",
    "emil": "def softmax(x, dim):\n    return x / 0",
    "fritz": SLOW + "\n# his own",
    "gerda": "import os, signal\n\ndef softmax(x, dim):\n    os.kill(os.getpid(), signal.SIGKILL)",
    "hans": None,  # handed in nothing
}
EARNS = {"ada": 2, "bert": 1, "carl": 2, "dora": 2, "emil": 0, "fritz": 2, "gerda": 0, "hans": 0}


def write_class(folder: Path, *names: str) -> Path:
    """A folder of these learners, all by default; returns it."""
    for name in names or ANSWERS:
        write(folder / name, ANSWERS[name])
    return folder


def write(folder: Path, answer: str | None) -> Path:
    """One learner's folder with a notebook of one cell, or an empty one."""
    folder.mkdir(parents=True, exist_ok=True)
    if answer is not None:
        (folder / "answers.ipynb").write_text(notebook([("code", answer)]), encoding="utf-8")
    return folder


def grader(*arguments: object, seconds: int = 5) -> list[str]:
    """The command that grades this class; `seconds` are for each answer."""
    options = ["--exercises", EXERCISE, "--seconds", str(seconds)]
    return [sys.executable, "-m", "course_lib", "grade", *map(str, arguments), *options]


def refused(capsys, *arguments) -> str:
    """What the command says when it does nothing; it must be one line that begins with its name."""
    assert main(["grade", *map(str, arguments)]) == 2
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return said.err


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}


def lines(out: Path) -> list[dict]:
    """What the journal holds, whole lines only."""
    path = out / "marks.jsonl"
    text = path.read_bytes() if path.exists() else b""
    return [json.loads(line) for line in text[: text.rfind(b"\n") + 1].splitlines()]


def wait_until(condition: Callable[[], object], process: subprocess.Popen | None = None) -> None:
    """Until something holds; fails at once if the process that should bring it about has ended."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process is None or process.poll() is None, "the process ended before that"
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)


def _bwrap_works() -> bool:
    if not shutil.which("bwrap"):
        return False
    command = ["bwrap", "--unshare-user", "--unshare-all", "--ro-bind", "/", "/", "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


needs_bwrap = pytest.mark.skipif(not _bwrap_works(), reason="bubblewrap does not work here")
