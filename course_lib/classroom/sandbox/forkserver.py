"""The process that loads torch once and forks a child for every notebook.

It runs inside the sandbox, has no secrets and never runs learners' code. A "fork" message brings a socket, the child's
connection to the grader. An "end" message ends the child and all processes that it started.
"""

import contextlib
import gc
import json
import os
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import NoReturn

from course_lib.classroom.sandbox import isolation
from course_lib.classroom.sandbox.notebook_run import Shell, warm_up
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.worker import serve
from course_lib.course.files import delete_folder

SELF = "/proc/self/fd"


def main(control_fd: int, inner: str, allowed: dict, readable: list[str], listed: list[str]) -> None:
    """Serve until the grader disconnects.

    Args:
        inner: the isolation between children: "namespaces", "landlock" or "".
    """
    control, quotas = socket.socket(fileno=control_fd), Quotas(**allowed)
    shell = warm_up()
    gc.freeze()  # or each child's garbage collector would visit all objects and copy their memory pages
    isolation.set_dumpable(by_others=False)
    isolation.adopt_orphans()
    _say(control, ready=True)
    child = None
    while True:
        request, fds, _, _ = socket.recv_fds(control, 1, 1)
        if request == b"f":
            try:
                child = _fork(control, fds[0], shell, inner, quotas, (readable, listed))
                _say(control, forked=True)
            except OSError as error:
                _say(control, forked=False, why=str(error))
            finally:
                os.close(fds[0])
        elif request == b"e":
            code, child = _end(child), None
            for left in Path(os.environ["HOME"]).glob("notebook-*"):  # with namespaces they are already gone
                delete_folder(left)
            _say(control, ended=code)
        else:
            _end(child)
            os._exit(0)  # the interpreter would take a second for needless clean-up


def _say(control: socket.socket, **message) -> None:
    control.sendall(json.dumps(message).encode() + b"\n")


def _fork(
    control: socket.socket, line: int, shell: Shell, inner: str, quotas: Quotas, seen: tuple[list[str], list[str]]
) -> tuple[int, int]:
    """Start a child. Return the process to wait for and the one to kill, which differ in namespaces."""
    told, tell = os.pipe()
    outer = os.fork()
    if outer:
        os.close(tell)
        with os.fdopen(told) as pipe:
            answer = pipe.read()
        if not answer.isdigit():
            os.waitpid(outer, 0)
            raise OSError(answer or "the child ended at once")
        return outer, int(answer)
    try:
        control.close()
        isolation.die_with_parent()
        isolation.set_dumpable(by_others=True)  # otherwise it cannot read its own /proc
        if inner == "namespaces":
            isolation.unshare_namespaces()
            first = os.fork()
            if first:
                os.write(tell, str(first).encode())
                os.close(tell)
                os._exit(_code(os.waitpid(first, 0)[1]))
            isolation.die_with_parent()
            os.close(tell)
            isolation.mount_private_folders(quotas.disk)
            _give_up_powers()  # including this process: the learner's process runs as the same user and sees it
            isolation.set_dumpable(by_others=False)
            last = os.fork()
            if last:  # the first process in a namespace: it adopts orphans, and its end ends all others
                while True:
                    pid, status = os.wait()
                    if pid == last:
                        os._exit(_code(status))
            isolation.set_dumpable(by_others=True)
        else:
            os.setsid()
            os.write(tell, str(os.getpid()).encode())
            os.close(tell)
        _become_worker(line, shell, inner, quotas, *seen)
    except BaseException as error:
        with contextlib.suppress(OSError):  # if it is closed, the grader sees the end of the connection
            os.write(tell, f"{type(error).__name__}: {error}".encode())
        os._exit(1)


def _become_worker(
    line: int, shell: Shell, inner: str, quotas: Quotas, readable: list[str], listed: list[str]
) -> NoReturn:
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    for fd in map(int, os.listdir(SELF)):
        if fd > 2 and fd != line:
            with contextlib.suppress(OSError):  # the process that listed them is gone
                os.close(fd)
    folder = Path(tempfile.mkdtemp(prefix="notebook-", dir=os.environ["HOME"]))  # at level none, not next to others'
    os.chdir(folder)
    isolation.set_rlimits(quotas.memory, quotas.processes, quotas.file, quotas.timeout)
    if inner == "landlock":
        isolation.restrict_files(map(Path, readable), [folder], map(Path, listed))
    _give_up_powers()
    serve(line, line, shell, quotas)
    os._exit(0)


def _give_up_powers() -> None:
    isolation.drop_capabilities()
    isolation.deny_system_calls()


def _end(child: tuple[int, int] | None) -> int:
    """Kill a child and everything that it left running; return its exit code."""
    if child is None:
        return 0
    outer, inner = child
    with contextlib.suppress(ProcessLookupError):
        os.kill(inner, signal.SIGKILL)
    status = os.waitpid(outer, 0)[1]
    deadline = time.monotonic() + 5
    while children := _children():  # orphans adopted by this process; a namespace ends its own
        for signal_ in (signal.SIGSTOP, signal.SIGKILL):  # stop them first, or they fork faster than they are killed
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal_)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if time.monotonic() > deadline:
            raise SystemExit("a notebook's processes could not be ended")
    return _code(status)


def _children() -> list[int]:
    mine, found = str(os.getpid()), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue
        if text.rpartition(")")[2].split()[1] == mine:
            found.append(int(folder.name))
    return found


def _code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
