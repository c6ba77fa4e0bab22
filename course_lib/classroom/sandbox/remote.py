"""The grader's side of a worker: start it, fork a child for a notebook, watch what it takes, replace it when it breaks.

A worker that cannot start or fork is a fault of the machine: `Fault`, which is tried again and never a zero. What a
learner's code does to its process is `Ended`, which is a result (`session`).
"""

import contextlib
import os
import secrets
import select
import socket
import subprocess
import tempfile
import threading
import time

import psutil

from course_lib.classroom.sandbox import cgroups
from course_lib.classroom.sandbox.protocol import Channel
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.stage import (
    LEVELS,
    SandboxError,
    Stage,
    container_command,
    require_platform,
    start_forkserver,
)
from course_lib.classroom.sandbox.watcher import Look, Meter, Watcher
from course_lib.course.files import parsed

STARTING = 120.0  # seconds in which a worker must be ready, on a busy machine
FORKING = 30.0
REMEDY = {
    "bwrap": ". It needs leave to make namespaces, which containers and Ubuntu 24.04 (AppArmor) withhold: grant it, or "
    "take --sandbox docker",
    "none": "",
}


class Fault(Exception):
    """The machine failed, not the learner."""


class Ended(Exception):
    """A learner's code ended its process, or its time is up. call: the number of the call in which it happened;
    begun: had a call begun at all?"""

    def __init__(self, sentence: str, call: int = 0, begun: bool = True):
        super().__init__(sentence)
        self.sentence, self.call, self.begun = sentence, call, begun


class Worker:
    """A sandboxed process that forks a child for every notebook; a context manager.

    Args:
        sandbox: "bwrap", "docker" (a container for every notebook, nothing forks) or "none". quotas: what a submission
        may use. slot: workers of one process that run at the same time need different ones. stage: what they may see,
        shared by the workers of a run; without, one of its own.
    seed: of the run that it serves, if the probe is to try whether an answer can tell it. It never gets there.
    Errors: ValueError for an unknown sandbox, SandboxError if it does not work here.
    """

    def __init__(self, sandbox: str = "bwrap", quotas: Quotas | None = None, slot: int = 0, stage: Stage | None = None):
        if sandbox not in LEVELS:
            raise ValueError(f"sandbox={sandbox!r} must be one of {', '.join(LEVELS)}")
        require_platform(sandbox)
        self.sandbox, self.quotas, self.slot = sandbox, quotas or Quotas(), slot
        self.seed: int | None = None
        self._own_stage = stage is None
        self.stage = stage or Stage()
        self.process: subprocess.Popen | None = None
        self.control: socket.socket  # to the forkserver, once it runs
        self.group: cgroups.Group | None = None  # in which the kernel counts, where it can
        self.over = ""  # the sentence on the limit that ended the child, until another is forked
        self._watcher: Watcher | None = None
        self._talking = threading.Lock()  # with the forkserver: the watcher ends a child while others are judged
        self._lives, self._code = False, 0  # the child, and the exit code of one that the watcher has ended
        self._forks = 0  # children so far
        self._killed = 0  # what the kernel had ended for its memory when this child began
        self.peak = 0  # bytes of all its processes, as far as they were seen
        self.doubted: set[str] = (
            set()
        )  # exercises that failed by time, memory or a signal: a neighbour may have done it

    def __enter__(self) -> "Worker":
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error) -> None:
        self.close()

    def close(self) -> None:
        self._stop()
        if self._own_stage:
            self.stage.close()

    def restart(self) -> None:
        """Put a fresh worker in place of one that failed. Errors: SandboxError."""
        self._stop()
        self._start()

    def fork(self) -> Channel:
        """Fork a child; return the line to it. Errors: Fault."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._container(theirs) if self.sandbox == "docker" else self._forked(theirs)
        except BaseException:
            ours.close()
            raise
        line = ours.detach()
        channel = Channel(line, line, from_worker=True, idle=self._watch)
        channel.clock = self.clock
        return channel

    def clock(self) -> float:
        """Return seconds on a clock that stands still while this worker waits for a core that others have."""
        return time.monotonic() - (self._watcher.meter.waited if self._watcher else 0.0)

    def end(self, channel: Channel) -> int:
        """End the child; returns its exit code, which is evidence of nothing but may be told. Errors: Fault."""
        channel.close()
        if self.sandbox == "docker":
            return self._stop_container()
        try:
            with self._talking:
                return self._end_child()
        except (OSError, Fault) as error:
            if self.sandbox != "none":
                raise Fault(f"the worker is gone: {error}") from error
            self.restart()  # without a wall a learner's code can end the worker: that is no fault of the machine
            return 128 + 9

    def _end_child(self) -> int:
        if self._lives:
            self._lives = False
            self.control.sendall(b"e")
            self._code = self._hear("ended", FORKING)["ended"]
            if self.group and self.group.killed() > self._killed:
                self.over = self._too_large
        return self._code

    @property
    def _too_large(self) -> str:
        return f"It took more than {self.quotas.tree / 2**30:g} GiB of memory with all its processes."

    def said(self) -> str:
        """Return the last line of what docker said, after a colon."""
        if self.sandbox != "docker":
            return ""
        self._errors.seek(0)
        lines = self._errors.read(4000).decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def _start(self) -> None:
        if self.sandbox == "docker":
            container_command(self.stage, "", self.quotas)  # is there a docker at all?
            return
        ours, theirs = socket.socketpair()
        with theirs:
            self.group = self._make_group()
            self.process = start_forkserver(
                self.sandbox, self.stage, self.slot, theirs.fileno(), self.quotas, self.group
            )
        self.control, self._said, self._lives = ours, b"", False
        try:
            self._hear("ready", STARTING)
        except Fault as fault:
            with contextlib.suppress(OSError):
                self.process.kill()
            assert self.process.stderr is not None  # a pipe
            said = self.process.stderr.read(4000).decode("utf-8", "replace").strip().splitlines()
            why = said[-1] if said else str(fault)
            raise SandboxError(f"--sandbox {self.sandbox} does not work here: {why}{REMEDY[self.sandbox]}") from fault
        meter = Meter(self.process.pid, self.quotas.tree, self.sandbox == "bwrap", self.group)
        self._watcher = Watcher(meter, lambda: self._forks, self._seen)

    def _make_group(self) -> cgroups.Group | None:
        within = cgroups.delegated_group()
        try:
            return cgroups.make_group(self.quotas, self.slot, within) if within else None
        except OSError:  # it looked as if there were one: the watcher counts, and the probe says so
            return None

    def _stop(self) -> None:
        if self.process is None:
            return
        if self.sandbox == "docker":
            self._stop_container()
            return
        if self._watcher:
            self._watcher.close()
            self._watcher = None
        left = self._family()  # as psutil knows them: a number may be another process's by then
        self.control.close()  # a worker that lives ends its child, and itself
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for each in left:
            with contextlib.suppress(psutil.Error):
                each.kill()
        if self.process.stderr:
            self.process.stderr.close()
        if self.group:
            self.group.close()
        self.process = self.group = None

    def _forked(self, line: socket.socket) -> None:
        with self._talking:
            try:
                socket.send_fds(self.control, [b"f"], [line.fileno()])
            except OSError as error:
                raise Fault(f"the worker is gone: {error}") from error
            answer = self._hear("forked", FORKING)
            self.over, self._lives, self._code = "", bool(answer["forked"]), 0
            self._forks, self._killed = self._forks + 1, self.group.killed() if self.group else 0
        if not answer["forked"]:
            raise Fault(f"the worker cannot fork: {answer.get('why')}")

    def _container(self, line: socket.socket) -> None:
        self._name = f"course-grading-{os.getpid()}-{self.slot}-{secrets.token_hex(4)}"
        command = container_command(self.stage, self._name, self.quotas)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read when the container has ended)
        self.process = subprocess.Popen(command, stdin=line.fileno(), stdout=line.fileno(), stderr=self._errors)

    def _stop_container(self) -> int:
        subprocess.run(
            ["docker", "kill", self._name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
        process, self.process = self.process, None
        assert process is not None
        try:
            return process.wait(FORKING)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise Fault("docker does not end a container") from error

    def _hear(self, what: str, seconds: float) -> dict:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._said:
            if not select.select([self.control], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise Fault("the worker is silent")
            try:
                said = self.control.recv(4096)
            except OSError as error:
                raise Fault(str(error)) from error
            if not said or len(self._said) > 1 << 16:
                raise Fault("the worker has ended")
            self._said += said
        line, _, self._said = self._said.partition(b"\n")
        try:
            message = parsed(line)
        except ValueError as error:
            raise Fault("the worker speaks no JSON") from error
        if not isinstance(message, dict) or what not in message:
            raise Fault(f"the worker said {message!r} in place of {what!r}")
        return message

    def _family(self) -> list[psutil.Process]:
        if self.process is None:
            return []
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            return []

    def _watch(self) -> None:
        """Say what the watcher has seen, while the grader waits. Errors: Ended, if it has ended the child."""
        if self.over:
            raise Ended(self.over)
        if self._watcher and self._watcher.error:
            raise Fault(f"the process that watches the memory has stopped: {self._watcher.error}")

    def _seen(self, look: Look, which: int) -> None:
        """End the child if its processes are too many or too large; called by the watcher. which: of the children it
        was."""
        self.peak = max(self.peak, look.memory)
        if look.memory > self.quotas.tree or look.killed > self._killed:
            self._strike(which, self._too_large)
        elif look.processes > self.quotas.processes + cgroups.HELD:
            self._strike(which, f"It started more than {self.quotas.processes} processes.")

    def _strike(self, which: int, sentence: str) -> None:
        with self._talking:
            if not self._lives or which != self._forks:
                return
            self.over = sentence
            try:
                self._end_child()
            except (OSError, Fault):
                self._lives = True  # whoever talks to the worker next finds out that it is gone
