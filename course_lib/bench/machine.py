"""The machine: its description, its limits, and a check that it is quiet enough to measure times."""

import os
import platform
import time
from datetime import date
from importlib import metadata
from pathlib import Path

import psutil
import torch

from course_lib.device import chosen

BUSY = 0.10  # fraction of all cores; if other programs use more, the figures mean nothing
LOOK = 1.0  # seconds of observation before the first measurement
SIDE = 2048  # of the matrices for the matmul rate: large enough to keep every core busy


class TooBusy(RuntimeError):
    """Raised when other programs use so much of the machine that times mean nothing."""


def describe() -> dict[str, str | int]:
    """Return the facts that a reader needs to judge the figures: processor, cores, device, versions, date."""
    versions = {name: metadata.version(name) for name in ("torch", "transformers")}
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "device": chosen().type,
        "gpu": gpu,
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        **versions,
        "date": date.today().isoformat(),
    }


def _processor() -> str:
    """Return the processor's name and the instruction sets that matter for matrix products."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not a Linux machine
        return platform.processor() or platform.machine()
    said = dict(line.split(":", 1) for line in lines if ":" in line)
    known = {name.strip(): value for name, value in said.items()}
    formats = [
        name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in known.get("flags", "").split()
    ]
    return f"{known.get('model name', platform.machine()).strip()} ({', '.join(formats)})"


class Watch:
    """A watch on the processor time of other programs, which starts when you create it.

    `others()` is their fraction of all cores since then, 0 … 1. This process and its children do not count.
    """

    def __init__(self) -> None:
        self._began, self._all, self._own = time.monotonic(), _busy(), _own()

    def others(self) -> float:
        """Return the fraction of all cores that others have used, including time stolen by other virtual machines."""
        whole = (os.cpu_count() or 1) * max(time.monotonic() - self._began, 1e-9)
        return min(1.0, max(0.0, (_busy() - self._all) - (_own() - self._own)) / whole)


def _busy() -> float:
    """Return the busy seconds of all cores since the machine started, for all programs together."""
    times = psutil.cpu_times()._asdict()
    return sum(seconds for name, seconds in times.items() if name not in ("idle", "iowait", "guest", "guest_nice"))


def _own() -> float:
    """Return the processor time of this process and its children in seconds, including children that have ended."""
    own = psutil.Process()
    total = sum(own.cpu_times()[:4])
    for child in own.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.Error:  # the child has just ended, so its parent's times include it
            continue
    return total


def require_quiet(watch: Watch, when: str) -> float:
    """Raise TooBusy if others have used more than a tenth of the cores since `watch` began; else return their fraction.

    when: "before measuring" or "while measuring", for the message.
    """
    share = watch.others()
    if share > BUSY:
        raise TooBusy(
            f"{when}, other programs took {share:.0%} of the processor, so the times would mean nothing. "
            "End those programs and run the command again, or add --anyway to measure now."
        )
    return share


def look_before(seconds: float = LOOK) -> float:
    """Watch the idle machine for some seconds and return the others' fraction. Errors: as in `require_quiet`."""
    watch = Watch()
    time.sleep(seconds)
    return require_quiet(watch, "before measuring")


class Matmul:
    """A product of two square matrices, whose rate is the machine's limit for training.

    Calling it computes the product once, which takes `flops` = 2 · SIDE³ operations.
    """

    flops = 2 * SIDE**3

    def __init__(self, dtype: torch.dtype = torch.float32):
        self.left, self.right = torch.randn(2, SIDE, SIDE).to(dtype)

    def __call__(self) -> torch.Tensor:
        return self.left @ self.right
