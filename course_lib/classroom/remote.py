"""The grader's side of a worker: start it, hand it a notebook, ask it for outcomes, replace it when it breaks.

Two kinds of trouble are told apart. A learner's cell or answer that ends its process, breaks the protocol or takes all
memory is a result: the child is replaced and the rest goes on. A worker that cannot start or fork is a fault of the
machine: `Fault`, which is tried again and never a zero.
"""

import contextlib
import json
import math
import os
import secrets
import select
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import psutil

from course_lib.grading.limits import BUSY, PATIENCE
from course_lib.grading.run import RESTART, Outcome
from course_lib.grading.show import printable
from course_lib.grading.trials import Trial

from .protocol import GONE, LATE, Broken, Channel, frame, pack_call, unpack_outcome
from .quotas import Quotas
from .sandbox import (
    LEVELS,
    SandboxError,
    Stage,
    answer_paths,
    container_command,
    course_folders,
    require_platform,
    start_forkserver,
)
from .submissions import Cell, Notebook

STARTING = 120.0  # seconds in which a worker must be ready, on a busy machine
FORKING = 30.0
GRACE = 5.0  # beyond the time in which a worker should have stopped an answer itself
LOOKING = 10.0  # seconds from one look at the true memory to the next, as long as it cannot be too much
MOST_ANSWER = 256 << 20  # bytes of arrays in all outcomes of an exercise
CRASHES = 8  # that one notebook may cause; after that the rest of it is not run


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


PROBE = """
import os, socket, sys
from importlib.machinery import PathFinder

def tried(what, attempt):
    try:
        attempt()
    except OSError:
        return []
    return [what]

status = open("/proc/self/status").read()
seen = tried("it reads files outside", lambda: open({outside!r}).read())
seen += tried("it writes outside", lambda: open("/usr/written", "w"))
seen += tried("it reaches the network", lambda: socket.create_connection(("127.0.0.1", {port}), 2))
kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW)
for family, name in ((40, "AF_VSOCK"), (38, "AF_ALG"), (17, "AF_PACKET")):  # to the machine around, into its kernel
    if any(tried(name, lambda: socket.socket(family, kind).close()) for kind in kinds):
        seen.append(f"it opens sockets of {{name}}")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:  # the grader looks whether it came
    tried("", lambda: line.sendto(b"home", ("127.0.0.1", {port})))

def answers():
    for path in {answers!r}:
        if tried("", lambda: open(path, "rb").close()):
            return [f"it reads the answers ({{path}})"]
    for start in (None, *([path] for path in {courses!r} + sys.path)):
        for finder in [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]:
            spec, places = None, start
            for name in ("course_lib", "course_lib.grading", "course_lib.grading.catalogue"):
                finder = finder if name == "course_lib" else PathFinder
                spec = finder.find_spec(name, places)
                places = spec.submodule_search_locations if spec else None
                if not places:
                    break
            else:
                return [f"it imports the answers ({{list(places)[0]}})"]
    return []

seen += answers()
seen += [] if "CapEff:\\t0000000000000000" in status else ["it has capabilities"]
seen += [] if "NoNewPrivs:\\t1" in status else ["it can win privileges"]
seen += ["it is root"] if os.getuid() == 0 else []
holes = seen  # last: of a probe that broke off nothing is known
"""


class Worker:
    """A sandboxed process that forks a child for every notebook; a context manager.

    Args:
        sandbox: "bwrap", "docker" (a container for every notebook, nothing forks) or "none". quotas: what a submission
        may use. slot: workers of one process that run at the same time need different ones. stage: what they may see,
        shared by the workers of a run; without, one of its own.
    Errors: ValueError for an unknown sandbox, SandboxError if it does not work here.
    """

    def __init__(self, sandbox: str = "bwrap", quotas: Quotas | None = None, slot: int = 0, stage: Stage | None = None):
        if sandbox not in LEVELS:
            raise ValueError(f"sandbox={sandbox!r} must be one of {', '.join(LEVELS)}")
        require_platform(sandbox)
        self.sandbox, self.quotas, self.slot = sandbox, quotas or Quotas(), slot
        self._own_stage = stage is None
        self.stage = stage or Stage()
        self.process: subprocess.Popen | None = None
        self.control: socket.socket | None = None
        self._next_look, self._least = time.monotonic(), math.inf
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
        """A fresh worker in place of one that failed. Errors: SandboxError."""
        self._stop()
        self._start()

    def probe(self) -> None:
        """Try from within what the wall should stop. Errors: SandboxError that names what it does not."""
        if self.sandbox == "none":
            return
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(type=socket.SOCK_DGRAM) as post:
            outside = self.stage.folder / "outside"
            outside.write_text("read by nobody")
            port = listener.getsockname()[1]
            post.bind(("127.0.0.1", port))
            post.setblocking(False)
            known = {"answers": answer_paths(), "courses": list(map(str, course_folders()))}
            source = PROBE.format(outside=str(outside), port=port, **known)
            notebook = Notebook("probe.ipynb", (Cell(1, "code", source),))
            try:
                session = Session(self, notebook, {}, {"holes": False}, time.monotonic() + STARTING)
            except Fault as fault:
                raise SandboxError(f"--sandbox {self.sandbox} does not work here: {fault}") from fault
            try:
                holes = session.read("holes", 0, STARTING).value if session.found.answers else ["it runs nothing"]
            except Ended as error:
                holes = [str(error)]
            finally:
                session.close()
            with contextlib.suppress(BlockingIOError):
                post.recv(100)
                holes = [*holes, "it reaches the network (UDP)"]
        if holes:
            raise SandboxError(
                f"--sandbox {self.sandbox} does not hold here: {'; '.join(map(str, holes))}. Nothing was graded"
            )

    def fork(self) -> Channel:
        """A child, and the line to it. Errors: Fault."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                self._container(theirs) if self.sandbox == "docker" else self._forked(theirs)
        except BaseException:
            ours.close()
            raise
        line = ours.detach()
        return Channel(line, line, from_worker=True, idle=self._watch)

    def end(self, channel: Channel) -> int:
        """End the child; returns its exit code, which is evidence of nothing but may be told. Errors: Fault."""
        channel.close()
        if self.sandbox == "docker":
            return self._stop_container()
        try:
            self.control.sendall(b"e")
            return self._hear("ended", FORKING)["ended"]
        except (OSError, Fault) as error:
            if self.sandbox != "none":
                raise Fault(f"the worker is gone: {error}") from error
            self.restart()  # without a wall a learner's code can end the worker: that is no fault of the machine
            return 128 + 9

    def said(self) -> str:
        """The last line of what docker said, after a colon."""
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
            self.process = start_forkserver(self.sandbox, self.stage, self.slot, theirs.fileno(), self.quotas)
        self.control, self._said = ours, b""
        try:
            self._hear("ready", STARTING)
        except Fault as fault:
            with contextlib.suppress(OSError):
                self.process.kill()
            said = self.process.stderr.read(4000).decode("utf-8", "replace").strip().splitlines()
            why = said[-1] if said else str(fault)
            raise SandboxError(f"--sandbox {self.sandbox} does not work here: {why}{REMEDY[self.sandbox]}") from fault

    def _stop(self) -> None:
        if self.process is None:
            return
        if self.sandbox == "docker":
            self._stop_container()
            return
        family = self._family()
        self.control.close()  # a worker that lives ends its child, and itself
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        for each in family:
            with contextlib.suppress(psutil.Error):
                each.kill()
        self.process.stderr.close()
        self.process = None

    def _forked(self, line: socket.socket) -> None:
        try:
            socket.send_fds(self.control, [b"f"], [line.fileno()])
        except OSError as error:
            raise Fault(f"the worker is gone: {error}") from error
        answer = self._hear("forked", FORKING)
        if not answer["forked"]:
            raise Fault(f"the worker cannot fork: {answer.get('why')}")

    def _container(self, line: socket.socket) -> None:
        self._name = f"course-grading-{os.getpid()}-{self.slot}-{secrets.token_hex(4)}"
        command = container_command(self.stage, self._name, self.quotas)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (read when the container has ended)
        self.process = subprocess.Popen(command, stdin=line, stdout=line, stderr=self._errors)

    def _stop_container(self) -> int:
        subprocess.run(
            ["docker", "kill", self._name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )
        process, self.process = self.process, None
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
            message = json.loads(line)
        except ValueError as error:
            raise Fault("the worker speaks no JSON") from error
        if not isinstance(message, dict) or what not in message:
            raise Fault(f"the worker said {message!r} in place of {what!r}")
        return message

    def _family(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.Error:
            return []

    def _watch(self) -> None:
        """Look at the memory and the number of all processes. Errors: Ended if they are too many or too large."""
        family = self._family()
        # "rss" counts shared pages in each process; "pss" shares them out, but takes the kernel a fifth of a second: so
        # that is asked when "rss" has grown, as it does with every process that is forked, and now and then.
        now, rss = time.monotonic(), self._memory(family, "rss")
        self._least = min(self._least, rss)
        if rss - self._least > self.quotas.tree / 4 or now > self._next_look:
            self._next_look = now + LOOKING
            used = self._memory(family, "pss")
            self.peak = max(self.peak, used)
            if used > self.quotas.tree:
                raise Ended(f"It took more than {self.quotas.tree / 2**30:g} GiB of memory with all its processes.")
        if len(family) > self.quotas.processes + 16:
            raise Ended(f"It started more than {self.quotas.processes} processes.")

    @staticmethod
    def _memory(family: Sequence[psutil.Process], what: str) -> int:
        """Bytes of all these processes, "rss" or "pss"; where the system does not tell the second, the first."""
        used = 0
        for each in family:
            with contextlib.suppress(psutil.Error):
                info = each.memory_full_info() if what == "pss" else each.memory_info()
                used += getattr(info, what, info.rss)
        return used


@dataclass(frozen=True)
class Found:
    """What a notebook gave: how many answers of each name; names that are still open; what went wrong in its cells."""

    answers: Mapping[str, int]
    open: frozenset[str]
    troubles: tuple[str, ...]


class Session:
    """One notebook in one worker, replaced with its child as often as that ends.

    Args:
        deadline: on time.monotonic(), of the whole submission.
    Errors: Fault, never anything from the notebook.
    """

    def __init__(
        self, worker: Worker, notebook: Notebook, files: Mapping[str, str], wanted: Mapping[str, bool], deadline: float
    ):
        self.worker, self.notebook, self.files = worker, notebook, files
        self.wanted, self.deadline = dict(wanted), deadline
        self.skipped: dict[int, str] = {}  # cells that ended the process, and how
        self.crashes = self.asked = 0
        self.doubts = 0  # how often time, memory or a signal has ended something
        self.used = False  # has this child answered before?
        self.channel: Channel | None = None
        self.found = Found({}, frozenset(), ())
        self._load()

    def close(self) -> None:
        if self.channel is not None:
            channel, self.channel = self.channel, None
            self.worker.end(channel)

    def run(self, name: str, which: int, trials: Sequence[Trial], seconds: float) -> list[Outcome]:
        """The outcome of every call, in order. Errors: Ended."""
        calls, arrays = [], []
        for trial in trials:
            told, parts = pack_call(trial.call)
            calls.append([told, sum(map(len, parts))])
            arrays += parts
        message = {"do": "run", "name": name, "which": which, "seconds": seconds, "calls": calls}
        return self._ask(message, arrays, seconds, len(trials))

    def read(self, name: str, which: int, seconds: float) -> Outcome:
        """What a name stands for, as plain data. Errors: Ended."""
        message = {"do": "read", "name": name, "which": which, "seconds": seconds}
        return self._ask(message, [], seconds, 1)[0]

    def _ask(self, message: dict, arrays: list[bytes], seconds: float, count: int) -> list[Outcome]:
        """Ask once; and once more in a fresh child, if this one was ended by what earlier answers had left in it."""
        used = self.channel is not None and self.used
        try:
            return self._ask_once(message, arrays, seconds, count)
        except Ended as error:
            if not used or error.begun:
                raise
            return self._ask_once(message, arrays, seconds, count)

    def _ask_once(self, message: dict, arrays: list[bytes], seconds: float, count: int) -> list[Outcome]:
        self.asked += 1  # every answer names its question, so that nothing said too much is taken for the next one
        request = frame({**message, "question": self.asked}, arrays)
        outcomes: list[Outcome] = []
        announced = received = 0
        try:
            self._require_child()
            self.used = True
            until = min(self.deadline, time.monotonic() + BUSY * seconds + PATIENCE + GRACE)
            self.channel.send(request, until - time.monotonic())
            while True:
                message, arrays = self.channel.receive(until - time.monotonic())
                received += len(arrays)
                if received > MOST_ANSWER:
                    raise Broken("its answers are too large")
                if message.get("question") != self.asked:
                    raise Broken("a message came that nobody asked for")
                if "call" in message and announced < count:
                    announced += 1
                elif "outcome" in message and len(outcomes) < count:
                    outcomes.append(unpack_outcome(message["outcome"], arrays))
                elif "end" in message and outcomes:
                    break
                else:
                    raise Broken("a message came that nobody asked for")
        except (Broken, Ended) as error:
            raise Ended(self._told(error), max(0, announced - 1), begun=announced > 0) from error
        self.doubts += any(each.failure and each.failure.behaviour == "memory" for each in outcomes)
        last = outcomes[-1].failure
        if last and last.kind == "time":  # it may be running still
            self.doubts += 1
            self._drop()
            outcomes[-1] = Outcome(
                failure=replace(last, sentence=last.sentence.replace(RESTART, "its process was ended"))
            )
        return outcomes

    def _told(self, error: Broken | Ended) -> str:
        """A sentence on why the child is no more."""
        broken = isinstance(error, Broken)
        code = self._drop()
        self.doubts += not broken or str(error) == LATE or time.monotonic() > self.deadline or bool(_how(code))
        if not broken:
            return error.sentence
        if time.monotonic() > self.deadline:
            return f"The time for this submission, {self.worker.quotas.total:g} seconds, is up."
        if str(error) == LATE:
            return "It was still running long after its time was up, and its process was ended."
        if str(error) == GONE:
            return f"It ended the process in which it ran{_how(code)}. Return the result instead."
        return f"It broke the conversation with the grader ({error})."

    def _drop(self) -> int:
        """End the child; the next question starts another. Returns the exit code."""
        self.crashes += 1
        code = 0
        if self.channel is not None:
            channel, self.channel = self.channel, None
            code = self.worker.end(channel)
        return code

    def _require_child(self) -> None:
        if self.channel is None:
            self._load()
        if self.channel is None:
            raise Ended("The notebook could not be run to the end, so this answer was not asked.")

    def _load(self) -> None:
        """Run the notebook's cells in a fresh child, without those that ended an earlier one."""
        while self.crashes <= CRASHES and time.monotonic() < self.deadline:
            self.channel, self.used = self.worker.fork(), False
            cells = [{"number": cell.number, "kind": cell.kind, "source": cell.source} for cell in self.notebook.cells]
            message = {"do": "load", "cells": cells, "wanted": self.wanted, "files": dict(self.files)}
            running = None  # the cell; 0 before the first; None as long as nothing of the learner's has begun
            try:
                self.channel.send(frame({**message, "skip": list(self.skipped)}), self.deadline - time.monotonic())
                for message in self._loading():
                    if "cell" in message:
                        running = message["cell"] if type(message["cell"]) is int else 0
                    else:
                        self.found = self._understood(message)
                        return
            except (Broken, Ended) as error:
                how = self._told(error)
                if running is None and time.monotonic() < self.deadline:
                    raise Fault(f"a notebook's process ended before it began{self.worker.said()}") from error
                if running in self.skipped or not any(cell.number == running for cell in self.notebook.cells):
                    break  # nothing is known of which cell it was, or it is not the cell
                self.skipped[running] = how
        self.found = self._understood({"found": {}, "open": [], "troubles": []})

    def _loading(self) -> Iterator[dict]:
        quotas = self.worker.quotas
        patience = BUSY * quotas.cell + PATIENCE + GRACE
        for _ in range(4 * len(self.notebook.cells) + 4):  # a cell may run a second time
            yield self.channel.receive(min(patience, self.deadline - time.monotonic()))[0]
        raise Broken("a message came that nobody asked for")

    def _understood(self, message: Mapping) -> Found:
        """What the child says of the notebook, looked at closely. Errors: Broken."""
        found, still_open, troubles = message.get("found"), message.get("open"), message.get("troubles")
        if not (isinstance(found, dict) and isinstance(still_open, list) and isinstance(troubles, list)):
            raise Broken("a notebook's names have no known form")
        known = {name: count for name, count in found.items() if name in self.wanted}
        if not all(type(count) is int and 0 < count < 10_000 for count in known.values()):
            raise Broken("a notebook's names have no known form")
        names = {name for name in still_open if type(name) is str and name in self.wanted}
        ended = [f"cell {number}: {how}" for number, how in sorted(self.skipped.items())]
        told = [printable(str(text), 500) for text in troubles[:60]]
        self.doubts += any(text.endswith(f"stopped after {self.worker.quotas.cell:g} seconds") for text in told)
        return Found(known, frozenset(names), (*ended, *told))


def _how(code: int) -> str:
    return f" (signal {code - 128})" if 128 < code < 160 else ""
