"""Ask one notebook for its answers in one worker, whose child is replaced whenever it ends.

A cell or answer that ends its process, breaks the protocol or takes all memory is a result.
"""

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from course_lib.classroom.read.submission_reader import Notebook
from course_lib.classroom.sandbox.protocol import GONE, LATE, Broken, Channel, frame, pack_call, unpack_outcome
from course_lib.classroom.sandbox.remote import Ended, Fault, Worker
from course_lib.grading.judge.call import RESTART, Failure, Outcome
from course_lib.grading.judge.limits import BUSY, PATIENCE
from course_lib.grading.judge.show import printable
from course_lib.grading.judge.trials import Trial

GRACE = 5.0  # seconds beyond the time at which a worker should have stopped an answer itself
MOST_ANSWER = 256 << 20  # bytes of arrays in all outcomes of an exercise
# Errors that the machine or other running programs may have caused: memory, processes, disk space, a compiler, an ended
# process of the learner's own.
MACHINES = re.compile(
    r"MemoryError|allocate memory|Cannot allocate|out of memory|can't start new thread|Too many open files"
    r"|Resource temporarily unavailable|No space left|File too large|Inductor|CppCompileError|BackendCompilerFailed"
    r"|BrokenProcessPool|exited unexpectedly",
    flags=re.IGNORECASE,
)
CRASHES = 8  # per notebook; after that, the rest of it is not run


@dataclass(frozen=True)
class Found:
    """The content of a notebook: answers per name, unanswered names, errors in its cells, and repairs."""

    answers: Mapping[str, int]
    open: frozenset[str]
    troubles: tuple[str, ...]
    salvaged: tuple[str, ...] = ()


class Session:
    """One notebook in one worker, whose child is replaced whenever it ends.

    Args:
        deadline: the time.monotonic() value at which the submission's time is up.
        salvage, unfinished: as in `find_handed_in`.

    Errors: Fault, never an error of the notebook.
    """

    def __init__(
        self,
        worker: Worker,
        notebook: Notebook,
        files: Mapping[str, str | bytes],
        wanted: Mapping[str, bool],
        deadline: float,
        salvage: bool = True,
        unfinished: bool = False,
    ):
        self.salvage, self.unfinished = salvage, unfinished
        self.worker, self.notebook, self.files = worker, notebook, files
        self.wanted, self.deadline = dict(wanted), deadline
        self.skipped: dict[int, str] = {}  # cells that ended the process, and the reason
        self.crashes = self.asked = 0
        self.doubts = 0  # how often time, memory or a signal has ended something
        self.used = False  # whether this child has answered before
        self.channel: Channel | None = None
        self.found = Found({}, frozenset(), ())
        self._load()

    def close(self) -> None:
        if self.channel is not None:
            channel, self.channel = self.channel, None
            self.worker.end(channel)

    def run(self, name: str, which: int, trials: Sequence[Trial], seconds: float) -> list[Outcome]:
        """Return the outcome of every call, in order. Errors: Ended."""
        calls, arrays = [], []
        for trial in trials:
            told, parts = pack_call(trial.call)
            calls.append([told, sum(map(len, parts))])
            arrays += parts
        message = {"do": "run", "name": name, "which": which, "seconds": seconds, "calls": calls}
        return self._ask(message, arrays, seconds, len(trials))

    def read(self, name: str, which: int, seconds: float) -> Outcome:
        """Return the value of a name as plain data. Errors: Ended."""
        message = {"do": "read", "name": name, "which": which, "seconds": seconds}
        return self._ask(message, [], seconds, 1)[0]

    def _ask(self, message: dict, arrays: list[bytes], seconds: float, count: int) -> list[Outcome]:
        """Ask once, and again in a fresh child if effects of earlier answers ended this one."""
        used = self.channel is not None and self.used
        try:
            return self._ask_once(message, arrays, seconds, count)
        except Ended as error:
            if not used or error.begun:
                raise
            return self._ask_once(message, arrays, seconds, count)

    def _ask_once(self, message: dict, arrays: list[bytes], seconds: float, count: int) -> list[Outcome]:
        self.asked += 1  # every answer repeats this number, so that no surplus answer is taken for the next one
        request = frame({**message, "question": self.asked}, arrays)
        outcomes: list[Outcome] = []
        announced = received = 0
        try:
            channel = self._require_child()
            self.used, channel.latest = True, self.deadline
            until = channel.clock() + BUSY * seconds + PATIENCE + GRACE
            channel.send(request, until - channel.clock())
            while True:
                answer, parts = channel.receive(until - channel.clock())
                received += len(parts)
                if received > MOST_ANSWER:
                    raise Broken("its answers are too large")
                if answer.get("question") != self.asked:
                    raise Broken("an unexpected message arrived")
                if "call" in answer and announced < count:
                    announced += 1
                elif "outcome" in answer and len(outcomes) < count:
                    outcomes.append(unpack_outcome(answer["outcome"], parts))
                elif "end" in answer and outcomes:
                    break
                else:
                    raise Broken("an unexpected message arrived")
        except (Broken, Ended) as error:
            raise Ended(self._told(error), max(0, announced - 1), begun=announced > 0) from error
        self.doubts += any(each.failure and _is_the_machines(each.failure) for each in outcomes)
        last = outcomes[-1].failure
        if last and last.kind == "time":  # it may still be running
            self.doubts += 1
            self._drop()
            outcomes[-1] = Outcome(
                failure=replace(last, sentence=last.sentence.replace(RESTART, "its process was ended"))
            )
        return outcomes

    def _told(self, error: Broken | Ended) -> str:
        """Return a sentence on why the child ended."""
        code = self._drop()
        self.doubts += isinstance(error, Ended) or str(error) == LATE or time.monotonic() > self.deadline or code != 0
        if isinstance(error, Ended):
            return error.sentence
        if self.worker.over:  # its process was ended before the grader waited for it
            return self.worker.over
        if time.monotonic() > self.deadline:
            return f"The time for this submission, {self.worker.quotas.timeout:g} seconds, is up."
        if str(error) == LATE:
            return "It was still running long after its time was up, and its process was ended."
        if str(error) == GONE:
            return f"It ended the process in which it ran{_how(code)}. Return the result instead."
        return f"It broke the conversation with the grader ({error})."

    def _drop(self) -> int:
        """End the child and return the exit code. The next question starts another child."""
        self.crashes += 1
        code = 0
        if self.channel is not None:
            channel, self.channel = self.channel, None
            code = self.worker.end(channel)
        return code

    def _require_child(self) -> Channel:
        if self.channel is None:
            self._load()
        if self.channel is None:
            self.doubts += 1
            raise Ended("The notebook could not be run to the end, so this answer was not asked.")
        return self.channel

    def _load(self) -> None:
        """Run the notebook's cells in a fresh child, without the cells that ended an earlier one."""
        while self.crashes <= CRASHES and time.monotonic() < self.deadline:
            channel = self.worker.fork()
            self.channel, self.used = channel, False
            channel.latest = self.deadline
            cells = [{"number": cell.number, "kind": cell.kind, "source": cell.source} for cell in self.notebook.cells]
            message: dict[str, Any] = {"do": "load", "cells": cells, "wanted": self.wanted, "salvage": self.salvage}
            files = {name: each.encode() if isinstance(each, str) else each for name, each in self.files.items()}
            message["unfinished"] = self.unfinished
            message["files"] = [[name, len(content)] for name, content in files.items()]
            running: int | None = None  # the running cell; 0 before the first; None until the learner's code begins
            try:
                channel.send(frame({**message, "skip": list(self.skipped)}, list(files.values())), math.inf)
                for message in self._loading(channel):
                    if "cell" in message:
                        running = message["cell"] if type(message["cell"]) is int else 0
                    else:
                        self.found = self._understood(message)
                        return
            except (Broken, Ended) as error:
                how = self._told(error)
                if running is None and time.monotonic() < self.deadline:
                    raise Fault(f"a notebook's process ended before it began{self.worker.said()}") from error
                if (
                    running is None
                    or running in self.skipped
                    or not any(cell.number == running for cell in self.notebook.cells)
                ):
                    break  # the cell is unknown, or the cell was not the cause
                self.skipped[running] = how
        self.found = self._understood({"found": {}, "open": [], "troubles": [], "salvaged": []})

    def _loading(self, channel: Channel) -> Iterator[dict]:
        quotas = self.worker.quotas
        patience = BUSY * quotas.cell_timeout + PATIENCE + GRACE
        for _ in range(4 * len(self.notebook.cells) + 4):  # a cell may run a second time
            yield channel.receive(patience)[0]
        raise Broken("an unexpected message arrived")

    def _understood(self, message: Mapping) -> Found:
        """Read the child's message on the notebook and check it strictly. Errors: Broken."""
        found, still_open = message.get("found"), message.get("open")
        troubles, salvaged = message.get("troubles"), message.get("salvaged")
        if not (isinstance(found, dict) and isinstance(still_open, list) and isinstance(troubles, list)):
            raise Broken("a notebook's names have no known form")
        if not isinstance(salvaged, list):
            raise Broken("a notebook's names have no known form")
        known = {name: count for name, count in found.items() if name in self.wanted}
        if not all(type(count) is int and 0 < count < 10_000 for count in known.values()):
            raise Broken("a notebook's names have no known form")
        names = {name for name in still_open if type(name) is str and name in self.wanted}
        ended = [f"cell {number}: {how}" for number, how in sorted(self.skipped.items())]
        told = [printable(str(text), 500) for text in troubles[:60]]
        stopped = f"stopped after {self.worker.quotas.cell_timeout:g} seconds"
        self.doubts += any(text.endswith(stopped) or MACHINES.search(text) is not None for text in told)
        saved = tuple(printable(str(text), 500) for text in salvaged[:60])
        return Found(known, frozenset(names), (*ended, *told), saved)


def _is_the_machines(failure: Failure) -> bool:
    return failure.behaviour == "memory" or MACHINES.search(failure.behaviour) is not None


def _how(code: int) -> str:
    return f" (signal {code - 128})" if 128 < code < 160 else ""
