"""Test the sandbox from within before grading starts: every promise of isolation and every limit.

`require_isolation` returns the measurements or refuses. Level none has no isolation, so it only reports broken promises
there. A test answer (`SOURCE`) also looks everywhere the seed of the run may appear. It looks from inside; its findings
are searched outside, because the seed is never sent inside.
"""

import contextlib
import ctypes
import json
import os
import random
import re
import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from course_lib.classroom.read.notebook_reader import Cell
from course_lib.classroom.read.submission_reader import Notebook
from course_lib.classroom.sandbox.remote import STARTING, Ended, Fault, Worker
from course_lib.classroom.sandbox.session import Session
from course_lib.classroom.sandbox.stage import SandboxError
from course_lib.course.files import write_whole
from course_lib.grading.cases import prepare
from course_lib.grading.exercise import Case, Given, generator
from course_lib.grading.fixtures import drawn_decoder
from course_lib.grading.judge.seeds import scheme_of, seed_of_stage
from course_lib.grading.judge.trials import Trial
from course_lib.grading.kinds import Code

WALL = "wall.json"  # in the folder of a run
SLACK = 64 << 20  # bytes below a limit on memory: a worker may have returned some memory
PROBE = """
import ctypes, fcntl, glob, mmap, os, signal, socket, sys, sysconfig, time
from importlib.machinery import PathFinder

libc = ctypes.CDLL(None, use_errno=True)
tried, holes = [], []

def tries(what, attempt):
    try:
        done = attempt()
    except OSError:
        done = False
    tried.append(what)
    if done is not False:
        holes.append(what + (f" ({{done}})" if type(done) is str else ""))

def until_refused(attempt, most):
    kept = []
    try:
        while len(kept) < most:
            kept.append(attempt())
    except (OSError, MemoryError):
        pass
    return kept

def connects(family, address):
    with socket.socket(family) as line:
        line.settimeout(2)
        line.connect(address)

def other_families():
    kinds = (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET, socket.SOCK_RAW)
    for family, name in ((40, "AF_VSOCK"), (38, "AF_ALG"), (17, "AF_PACKET")):  # to the machine around, into its kernel
        for kind in kinds:
            try:
                socket.socket(family, kind).close()
                return name
            except OSError:
                pass
    return False

def sends():  # the grader looks whether it came
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
        line.sendto(b"home", ("127.0.0.1", {port}))
    return False

def first_readable(paths):  # of some no more than the name is seen
    for path in paths:
        try:
            open(path, "rb").close()
            return path
        except OSError:
            pass
    return False

def imported_answers():
    for start in (None, *([path] for path in {courses!r} + sys.path)):
        for finder in [finder for finder in sys.meta_path if hasattr(finder, "find_spec")]:
            spec, places = None, start
            for name in ("course_lib", "course_lib.chapters"):
                finder = finder if name == "course_lib" else PathFinder
                spec = finder.find_spec(name, places)
                places = spec.submodule_search_locations if spec else None
                if not places:
                    break
            else:
                found = [path for each in places for path in glob.glob(f"{{each}}/*/exercises/*")]
                found += [path for each in places for path in glob.glob(f"{{each}}/sealed*")]
                if path := first_readable(found):
                    return os.path.dirname(path)
    return False

def other_processes():
    others = {{int(each) for each in os.listdir("/proc") if each.isdigit()}} - {{1, os.getpid(), os.getppid()}}
    return f"{{len(others)}} of them" if others else False

def lock():
    with open(os.__file__) as first, open(os.__file__) as second:
        fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
        try:
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False  # both are said to hold it: neither does
        except OSError:
            return True

def buffers():
    with socket.socket() as line:
        before = line.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * before)
        return line.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) > before

def waits():
    pid = os.fork()
    while not pid:
        signal.pause()
    return pid

def holds(folder, size, most):
    number, held = 0, 0
    try:
        while held < most:
            number += 1
            with open(f"{{folder}}/probe-{{number}}", "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            held += size
    except OSError:
        pass
    for each in glob.glob(f"{{folder}}/probe-*"):
        os.unlink(each)
    return held

def missing():
    found = {{}}
    for path in glob.glob(os.path.join(os.path.dirname(os.__file__), "lib-dynload", "*.so")):
        try:
            ctypes.CDLL(path)
        except OSError as error:
            found[path] = str(error)[:300]
    return found

status = open("/proc/self/status").read()
tries("it reads files outside", lambda: bool(open({outside!r}).read()))
tries("it writes outside", lambda: open({outside!r} + "-written", "w").close())
tries("it reads the answers", lambda: first_readable({answers!r}))
tries("it imports the answers", imported_answers)
tries("it reaches the network", lambda: connects(socket.AF_INET, ("127.0.0.1", {port})))
tries("it reaches the network (UDP)", sends)
tries("it reaches programs outside by a name", lambda: connects(socket.AF_UNIX, "\\0" + {name!r}))
tries("it opens sockets of other families", other_families)
tries("it sees other processes", other_processes)
tries("it signals the grader", lambda: os.kill({grader}, 0))
tries("it has capabilities", lambda: "CapEff:\\t0000000000000000" not in status)
tries("it can win privileges", lambda: "NoNewPrivs:\\t1" not in status)
tries("it is root", lambda: os.getuid() == 0)
settimeofday = {{"x86_64": 164, "aarch64": 170}}.get(os.uname().machine)  # with nothing to set: may it?
tries("it sets the clock", lambda: settimeofday is not None and libc.syscall(settimeofday, None, None) == 0)
tries("it signals to others by locks", lock)
tries("it hears which files others open", lambda: libc.inotify_add_watch(libc.inotify_init(), b"/usr", 32) >= 0)
tries("its sockets hold as much as it likes", buffers)
chunk = 32 << 20
maps = until_refused(lambda: mmap.mmap(-1, chunk), ({memory} + {slack}) // chunk + 2)
memory = len(maps) * chunk
del maps
tries("its memory has no limit", lambda: memory > {memory} + {slack})
pids = until_refused(waits, {processes} + 8)
for pid in pids:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
tries("its processes have no limit", lambda: len(pids) > {processes})
numbers = until_refused(lambda: os.dup(0), 1024)
for number in numbers:
    os.close(number)
tries("its open files have no limit", lambda: len(numbers) >= 1024)
files = holds(".", {file} // 8, {disk} + {file})
shared = holds("/dev/shm", {disk} // 16, {disk})
tries("its files have no limit", lambda: files > {disk} or shared > {disk} // 4)
tries("one file has no limit", lambda: holds(".", {file} + 4096, 1) > 0)
measured = {{"tried": tried, "holes": holes, "missing": missing(), "memory": memory}}
measured |= {{"processes": len(pids), "files": files + shared}}
wall = measured  # last: of a probe that broke off nothing is known
"""
GUESSABLE = 32  # bits: a seed this small was chosen by hand, and other numbers may equal it by chance
HOUR = 3600
SMALL = {"vocab_size": 3, "d_model": 4, "n_heads": 1, "n_layers": 1, "max_seq_len": 2}
SOURCE = """
def seen(*given):
    import glob, os, random, sys, time
    import numpy, torch

    def words(rng):
        return [rng.initial_seed(), *rng.get_state()[: 5056 // 8 * 8].view(torch.int64).tolist()]

    def numbers(start):
        told, todo, known = [], [start], set()
        while todo and len(known) < 20_000:
            value = todo.pop(0)
            if id(value) in known:
                continue
            known.add(id(value))
            if isinstance(value, torch.Generator):
                told += words(value)
            elif isinstance(value, int):
                told.append(int(value))
            elif isinstance(value, dict):
                todo += [*value.keys(), *value.values()]
            elif isinstance(value, (list, tuple)):
                todo += value[:]  # to go through the calls themselves would announce them
            elif isinstance(value, (set, frozenset)):
                todo += value
            elif hasattr(value, "__dict__") and not callable(value):
                todo += vars(value).values()
        return told

    def content(*patterns):
        told = ""
        for path in [path for pattern in patterns for path in glob.glob(pattern)]:
            try:
                with open(path, "rb") as file:
                    told += file.read(20_000).decode("latin-1") + " "
            except OSError:
                pass
        return told[:500_000]

    def callers():
        frame, told = sys._getframe(2), []
        while frame is not None:
            told.append(dict(frame.f_locals))
            frame = frame.f_back
        return numbers(told)

    return {
        "torch.initial_seed()": str(torch.initial_seed()),
        "the state of torch's generator": str(words(torch.default_generator)),
        "the state of `random`": str(random.getstate()),
        "the state of `numpy.random`": str(numpy.random.get_state()[1].tolist()),
        "what it is given": str([numbers(given), given]),
        "the frames that call it": str(callers()),
        "Python's hashes": f"{os.environ.get('PYTHONHASHSEED')} {sys.flags} {hash('seed')}",
        "the environment": str(dict(os.environ)),
        "the command line": str([sys.argv, sys.orig_argv]),
        "/proc": content("/proc/*/cmdline", "/proc/*/environ", "/proc/self/stat*"),
        "its files": content("*", "/tmp/*", "/dev/shm/*"),
        "the clock": str(time.time_ns()),
    }
"""


@dataclass(frozen=True)
class Wall:
    """Measurements from within a sandbox.

    Fields:
        level: the sandbox's level.
        tried: the number of promises tested.
        holes: the broken promises.
        memory: the bytes that one process could get.
        all_memory: the bytes at which all processes are ended, and what counts them.
        processes: how many processes it could start.
        files: the bytes that it could keep in files.
    """

    level: str
    tried: int
    holes: tuple[str, ...]
    memory: int
    all_memory: int
    counted: str
    processes: int
    files: int

    @property
    def sentence(self) -> str:
        held = f"{self.tried - len(self.holes)} of {self.tried} held"
        not_there = f" ({'; '.join(self.holes)})" if self.holes else ""
        name = "no wall" if self.level == "none" else "wall"
        return (
            f"{name} ({self.level}): {held}{not_there} · memory stops at {self.memory / 2**30:.1f} GiB for a process, "
            f"{self.all_memory / 2**30:.3g} GiB for all ({self.counted}) · {self.processes} processes · "
            f"files {self.files >> 20} MB"
        )


def save_wall(wall: Wall, folder: Path) -> None:
    """Save the measurements next to those of other runs into this folder."""
    path, kind = folder / WALL, (wall.level, list(wall.holes), wall.counted)
    others = [each for each in _saved(path) if (each["level"], each["holes"], each["counted"]) != kind]
    text = json.dumps([*others, {**asdict(wall), "said": wall.sentence}], indent=1)
    write_whole(path, lambda part: part.write_text(text + "\n", encoding="utf-8"))


def walls_of(folder: Path) -> list[str]:
    """Return the measurements of every run into a folder, as sentences. Errors: ValueError for an invalid file."""
    return [str(each["said"]) for each in _saved(folder / WALL)]


def _saved(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    try:
        saved = json.loads(path.read_text(encoding="utf-8"))
        if not all(each.keys() >= {"level", "holes", "counted", "said"} for each in saved):
            raise KeyError("said")
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(f"{path} is not what a grader has measured: delete it, and --resume goes on") from error
    return saved


def require_isolation(worker: Worker) -> Wall:
    """Test from within what the sandbox should prevent, and return the measurements.

    Errors: SandboxError that lists the actions not prevented, or the libraries that Python lacks inside. Level none is
        not refused for the former.
    """
    measured, came, seen = _tried_from_within(worker)
    holes = [*measured["holes"], *(["it reaches the network (UDP)"] if came else [])]
    if worker.seed is not None:
        holes += [f"it learns the seed of the run from {place}" for place in told_by(seen, worker.seed)]
    if holes and worker.sandbox != "none":
        raise SandboxError(f"--sandbox {worker.sandbox} does not hold here: {'; '.join(holes)}. Nothing was graded")
    if lacking := [error for path, error in measured["missing"].items() if worker.sandbox != "docker" and _loads(path)]:
        raise SandboxError(
            f"--sandbox {worker.sandbox} does not work here: Python lacks a library in it ({lacking[0]}). Nothing was "
            "graded. Start it with the folder of that library in LD_LIBRARY_PATH, or take --sandbox docker"
        )
    counted = "docker" if worker.sandbox == "docker" else "control group" if worker.group else "watcher"
    return Wall(
        worker.sandbox,
        len(measured["tried"]) + len(seen),
        tuple(holes),
        measured["memory"],
        worker.quotas.tree,
        counted,
        measured["processes"],
        measured["files"],
    )


def _tried_from_within(worker: Worker) -> tuple[dict[str, Any], bool, dict[str, str]]:
    """Return the probe's findings, whether its UDP message arrived, and the places where an answer may see a seed."""
    outside, name = worker.stage.folder / "outside", f"course-grading-{secrets.token_hex(8)}"
    outside.write_text("read by nobody")
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.socket(type=socket.SOCK_DGRAM) as post,
        socket.socket(socket.AF_UNIX) as named,
    ):
        port = listener.getsockname()[1]
        post.bind(("127.0.0.1", port))
        post.setblocking(False)
        with contextlib.suppress(OSError):  # macOS has no abstract socket names
            named.bind(f"\0{name}")
            named.listen()
        here, quotas = worker.stage.here, worker.quotas
        source = PROBE.format(
            outside=str(outside),
            name=name,
            port=port,
            grader=os.getpid(),
            answers=here.answer_paths,
            courses=list(map(str, here.courses)),
            slack=SLACK,
            **quotas.as_dict(),
        )
        notebook = Notebook("probe.ipynb", (Cell(1, "code", source), Cell(2, "code", SOURCE)))
        wanted, seen = {"wall": False, "seen": True}, {}
        try:
            session = Session(worker, notebook, {}, wanted, time.monotonic() + STARTING)
        except Fault as fault:
            raise SandboxError(f"--sandbox {worker.sandbox} does not work here: {fault}") from fault
        try:
            measured = session.read("wall", 0, STARTING).value if "wall" in session.found.answers else None
            why = "it runs nothing" + "".join(f" ({each})" for each in session.found.troubles[:1])
            if isinstance(measured, dict) and worker.seed is not None:
                [outcome] = session.run("seen", 0, call_with_everything(worker.seed), STARTING)
                seen, why = outcome.value, f"an answer is not run ({outcome.failure and outcome.failure.sentence})"
        except Ended as error:
            measured, why = None, str(error)
        finally:
            session.close()
        try:
            came = bool(post.recv(100))
        except BlockingIOError:
            came = False
    if not (isinstance(measured, dict) and isinstance(seen, dict)):
        raise SandboxError(f"--sandbox {worker.sandbox} does not hold here: {why}. Nothing was graded")
    return measured, came, seen


def _loads(path: str) -> bool:
    """Return whether this process can load a library that the sandbox cannot load."""
    try:
        ctypes.CDLL(path)
    except OSError:
        return False
    return Path(path).is_file()


def call_with_everything(seed: int) -> Sequence[Trial]:
    """Return a call with every kind of argument that depends on a seed, prepared like all calls of the run with `seed`.

    Under scheme 1 it has no arguments: the cases of such an earlier run do contain its seed, and must not change.
    """

    def everything(drawn: int) -> list[Case]:
        "Return a case with every kind of argument."
        if scheme_of(seed) == 1:
            return [Case()]
        model = Given(drawn_decoder, SMALL, drawn + 2)
        return [Case(generator(drawn), [drawn + 1], {"seed": drawn}, model)]

    return prepare(
        Code(
            id="wall.seed",
            chapter=0,
            title="What an answer sees",
            points=1,
            difficulty=1,
            minutes=1,
            hints=["None."],
            signature="seen(*given)",
            reference=lambda *given: None,
            stages=[everything],
        ),
        seed,
    )


def told_by(seen: Mapping[str, str], seed: int) -> list[str]:
    """Return the findings that contain the seed of a run or of a stage, in full or its low bits."""
    if seed.bit_length() <= GUESSABLE:
        return []
    secrets = {seed, seed % 2**64, seed % 2**32, seed_of_stage(seed, "wall.seed", "everything")}
    secrets |= {random.Random(each).getstate()[1][1] for each in secrets}  # `random`'s state shows this, not a seed
    telling = []
    for place, text in seen.items():
        numbers = {*map(int, re.findall(r"\d+", text))}
        numbers |= {int(each, 16) for each in re.findall(r"[0-9a-fA-F]{6,}", text)}
        if place == "the clock":
            now = int(text)
            numbers |= {seed for unit in (1, 10**3, 10**6, 10**9) if abs(seed - now * unit // 10**9) < HOUR * unit}
        if numbers & secrets:
            telling.append(place)
    return telling
