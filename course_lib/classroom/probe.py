"""The sandbox, tried from within before anything is graded: files, network, sockets, powers, and the answers."""

import contextlib
import socket
import time

from .notebook_reader import Cell
from .remote import STARTING, Ended, Fault, Worker
from .sandbox import SandboxError
from .session import Session
from .submission_reader import Notebook

PROBE = """
import glob, os, socket, sys
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
            for name in ("course_lib", "course_lib.chapters"):
                finder = finder if name == "course_lib" else PathFinder
                spec = finder.find_spec(name, places)
                places = spec.submodule_search_locations if spec else None
                if not places:
                    break
            else:
                found = [path for each in places for path in glob.glob(f"{{each}}/*/exercises/*")]
                found += [path for each in places for path in glob.glob(f"{{each}}/sealed*")]
                if found:
                    return [f"it imports the answers ({{os.path.dirname(found[0])}})"]
    return []

seen += answers()
seen += [] if "CapEff:\\t0000000000000000" in status else ["it has capabilities"]
seen += [] if "NoNewPrivs:\\t1" in status else ["it can win privileges"]
seen += ["it is root"] if os.getuid() == 0 else []
holes = seen  # last: of a probe that broke off nothing is known
"""


def require_isolation(worker: Worker) -> None:
    """Try from within what the sandbox should stop. Errors: SandboxError that names what it does not."""
    if worker.sandbox == "none":
        return
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(type=socket.SOCK_DGRAM) as post:
        outside = worker.stage.folder / "outside"
        outside.write_text("read by nobody")
        port = listener.getsockname()[1]
        post.bind(("127.0.0.1", port))
        post.setblocking(False)
        here = worker.stage.here
        known = {"answers": here.answer_paths, "courses": list(map(str, here.courses))}
        source = PROBE.format(outside=str(outside), port=port, **known)
        notebook = Notebook("probe.ipynb", (Cell(1, "code", source),))
        try:
            session = Session(worker, notebook, {}, {"holes": False}, time.monotonic() + STARTING)
        except Fault as fault:
            raise SandboxError(f"--sandbox {worker.sandbox} does not work here: {fault}") from fault
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
            f"--sandbox {worker.sandbox} does not hold here: {'; '.join(map(str, holes))}. Nothing was graded"
        )
