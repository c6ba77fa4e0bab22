"""The grader's side of a worker: start it, fork a child for a notebook, watch its resources, replace it if it fails.

A worker that cannot start or fork is a fault of the machine: `Fault`, which leads to a retry and never to a zero.
Effects of a learner's code on its process raise `Ended`, which is a result (`session`).
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

from course_lib.classroom.sandbox import resources
from course_lib.classroom.sandbox.protocol import Channel
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.resources import Look, Meter, Watcher
from course_lib.classroom.sandbox.stage import (
    LEVELS,
    SandboxError,
    Stage,
    container_command,
    require_platform,
    start_forkserver,
)
from course_lib.course.files import parsed

STARTING = 120.0  # seconds for a worker to get ready on a busy machine
FORKING = 30.0
REMEDY = {
    "bwrap": ". It needs leave to make namespaces, which containers and Ubuntu 24.04 (AppArmor) withhold: grant it, or "
    "take --sandbox docker",
    "none": "",
}


class Fault(Exception):
    """The machine failed, and the learner is not responsible."""


class Ended(Exception):
    """A learner's code ended its process, or its time is up.

    Fields:
        call: the number of the call during which it happened.
        begun: whether a call had begun at all.
    """

    def __init__(self, sentence: str, call: int = 0, begun: bool = True):
        super().__init__(sentence)
        self.sentence, self.call, self.begun = sentence, call, begun


class Worker:
    """A sandboxed process that forks a child for every notebook; a context manager.

    Args:
        sandbox: "bwrap", "docker" (a container for every notebook, without forks) or "none".
        quotas: the limits of a submission.
        slot: different for workers that run in one process at the same time.
        stage: the files that the workers of a run may see; by default, the worker makes its own.

    Set `seed` to the run's seed if the probe should test whether an answer can find it. It is never sent to the worker.
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
        self.group: resources.Group | None = None  # in which the kernel counts, if possible
        self.over = ""  # the sentence on the limit that ended the child, until the next fork
        self._watcher: Watcher | None = None
        self._talking = threading.Lock()  # for the forkserver: the watcher may end a child during judging
        self._lives, self._code = False, 0  # of the child: whether it lives, and its exit code if the watcher ended it
        self._forks = 0  # number of children so far
        self._killed = 0  # processes killed by the kernel for memory before this child began
        self.peak = 0  # bytes of all its processes, as far as measured
        self.doubted: set[str] = (
            set()
        )  # exercises that failed by time, memory or a signal, possibly because of other submissions

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
        """Replace a failed worker with a fresh one. Errors: SandboxError."""
        self._stop()
        self._start()

    def fork(self) -> Channel:
        """Fork a child and return the connection to it. Errors: Fault."""
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
        """Return the seconds on a clock that stops while this worker waits for a core."""
        return time.monotonic() - (self._watcher.meter.waited if self._watcher else 0.0)

    def end(self, channel: Channel) -> int:
        """End the child and return its exit code, which is reported but proves nothing. Errors: Fault."""
        channel.close()
        if self.sandbox == "docker":
            return self._stop_container()
        try:
            with self._talking:
                return self._end_child()
        except (OSError, Fault) as error:
            if self.sandbox != "none":
                raise Fault(f"the worker is gone: {error}") from error
            self.restart()  # without isolation, a learner's code can end the worker: the machine is not at fault
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
        """Return the last line of docker's output, after a colon."""
        if self.sandbox != "docker":
            return ""
        self._errors.seek(0)
        lines = self._errors.read(4000).decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""

    def _start(self) -> None:
        if self.sandbox == "docker":
            container_command(self.stage, "", self.quotas)  # check that docker exists
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

    def _make_group(self) -> resources.Group | None:
        within = resources.delegated_group()
        try:
            return resources.make_group(self.quotas, self.slot, within) if within else None
        except OSError:  # the group was not usable after all: the watcher counts, and the probe reports it
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
        left = self._family()  # as psutil objects, because the system may reuse a process id
        self.control.close()  # a living worker ends its child, and itself
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
        """Report the watcher's findings while the grader waits. Errors: Ended, if it has ended the child."""
        if self.over:
            raise Ended(self.over)
        if self._watcher and self._watcher.error:
            raise Fault(f"the process that watches the memory has stopped: {self._watcher.error}")

    def _seen(self, look: Look, which: int) -> None:
        """End the child if its processes are too many or too large. The watcher calls this.

        Args:
            which: the number of the child that was measured.
        """
        self.peak = max(self.peak, look.memory)
        if look.memory > self.quotas.tree or look.killed > self._killed:
            self._strike(which, self._too_large)
        elif look.processes > self.quotas.processes + resources.HELD:
            self._strike(which, f"It started more than {self.quotas.processes} processes.")

    def _strike(self, which: int, sentence: str) -> None:
        with self._talking:
            if not self._lives or which != self._forks:
                return
            self.over = sentence
            try:
                self._end_child()
            except (OSError, Fault):
                self._lives = True  # the next message to the worker will reveal that it is gone
