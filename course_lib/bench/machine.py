"""The machine: what it is, what it can do at most, and whether it is quiet enough for its times to mean anything."""

import os
import platform
import time
from datetime import date
from importlib import metadata
from pathlib import Path

import psutil
import torch

BUSY = 0.10  # of all cores: with more in the hands of other programs, the figures mean nothing
LOOK = 1.0  # seconds for which it is looked at before anything is measured
SIDE = 2048  # of the matrices whose product tells the matmul rate: large enough to keep every core busy


class TooBusy(RuntimeError):
    """Other programs take so much of the machine that times mean nothing."""


def describe() -> dict[str, str | int]:
    """Return what a reader needs to judge figures by: processor, cores, threads, versions, date."""
    versions = {name: metadata.version(name) for name in ("torch", "transformers")}
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {
        "processor": _processor(),
        "cores": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        **versions,
        "date": date.today().isoformat(),
    }


def _processor() -> str:
    """Return the processor's name and the number formats that its instructions know."""
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
    """Watch what other programs take of the processor, from the moment when it is made.

    `others()` is their share of all cores since then, 0 … 1. What this process and its children compute is its own.
    """

    def __init__(self) -> None:
        self._began, self._all, self._own = time.monotonic(), _busy(), _own()

    def others(self) -> float:
        """Return the share of all cores that others have taken, time stolen by other virtual machines included."""
        whole = (os.cpu_count() or 1) * max(time.monotonic() - self._began, 1e-9)
        return min(1.0, max(0.0, (_busy() - self._all) - (_own() - self._own)) / whole)


def _busy() -> float:
    """Return the seconds for which cores have worked, for anybody, since the machine was started."""
    times = psutil.cpu_times()._asdict()
    return sum(seconds for name, seconds in times.items() if name not in ("idle", "iowait", "guest", "guest_nice"))


def _own() -> float:
    """Return the seconds for which this process and its children have computed, those that have ended included."""
    own = psutil.Process()
    total = sum(own.cpu_times()[:4])
    for child in own.children(recursive=True):
        try:
            total += sum(child.cpu_times()[:4])
        except psutil.Error:  # it has just ended: its parent's clock has it now
            continue
    return total


def require_quiet(watch: Watch, when: str) -> float:
    """Raise TooBusy if others took more than a tenth of the cores while `watch` watched; otherwise return their share.

    when: "before measuring" or "while measuring", for the message.
    """
    share = watch.others()
    if share > BUSY:
        raise TooBusy(
            f"{when}, other programs took {share:.0%} of the processor: times mean nothing then. End them and run it "
            "again, or look at the figures all the same with --anyway."
        )
    return share


def look_before(seconds: float = LOOK) -> float:
    """Watch for a while, without doing anything; raise TooBusy as `require_quiet` does."""
    watch = Watch()
    time.sleep(seconds)
    return require_quiet(watch, "before measuring")


class Matmul:
    """A product of two square matrices, the densest work that there is: its rate is the machine's limit for training.

    Calling it computes the product once; `flops` is what that takes, 2 · side³.
    """

    def __init__(self, dtype: torch.dtype = torch.float32, side: int = SIDE, device: str = "cpu"):
        self.left, self.right = torch.randn(2, side, side, device=device).to(dtype)
        self.flops = 2 * side**3

    def __call__(self) -> torch.Tensor:
        return self.left @ self.right
