"""The wall between a learner's code and the machine: how a worker process is started at each level.

bwrap   bubblewrap: no network, no files but Python, the library and an empty /tmp, a process table of its own
docker  a container per notebook, with the same limits; for machines where bubblewrap does not work
none    a process as any other; where the kernel has Landlock, it reaches no files but Python and the library

What is seen of this machine is `_seen`; what lies in there and holds answers, wherever the course is installed, is
hidden: `course_folders`.
"""

import importlib.metadata
import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import psutil

import course_lib
from course_lib.files import delete_folder

from .isolation import landlock_version
from .quotas import Quotas

LEVELS = ("bwrap", "docker", "none")
IMAGE = "transformers-measured"  # of the level docker, unless COURSE_IMAGE names another
STAGE = "course-grading-"  # and the process that made it: the folder's name
INSIDE, VENV, MORE = "/opt/course", "/opt/venv", "/opt/packages"  # where library and packages lie in a sandbox
NEEDED = ("bin", "lib", "lib64", "include", "pyvenv.cfg")  # of a Python: beside them may lie anything, even the course
SOURCES = (Path("/usr/src"), Path("/usr/local/src"))  # nothing that runs needs them, and images keep courses there
PARTS = ("course_lib", "solutions", "tests", "exercises", "notebooks", ".git")  # of the course, among other packages
# The folders of a course that hold some.
ANSWERS = ("course_lib/chapters/*/exercises", "solutions", "tests/right")
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "USER": "learner",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "MPLCONFIGDIR": "/tmp",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


START = (
    "import json, sys; sys.path.insert(0, {code!r}); from course_lib.classroom.{module} import main; "
    "main(*json.loads(sys.argv[1]))"
)


class SandboxError(RuntimeError):
    """This level does not work here; the message says why, and what to do."""


class Stage:
    """A folder with what workers may see: the library without its exercises. `close` deletes it."""

    def __init__(self):
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{STAGE}{os.getpid()}-"))
        self.folder.chmod(0o755)
        self.code = self.folder / "code"
        library = Path(course_lib.__file__).parent
        hidden = shutil.ignore_patterns("exercises", "catalogue*", "sealed*")
        shutil.copytree(library, self.code / "course_lib", ignore=hidden)
        tops = dict.fromkeys(view.top for view in _seen() if view.top)
        self.doors = {top: self.folder / f"top-{i}" for i, top in enumerate(tops)}
        for door in self.doors.values():  # what root mounts there, a slot's user can reach
            door.mkdir()
        for path in self.folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def room(self, slot: int) -> Path:
        """Make an empty folder to write to, for a worker at level none."""
        return Path(tempfile.mkdtemp(prefix=f"slot-{slot}-", dir=self.folder))

    def close(self) -> None:
        delete_folder(self.folder)

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *error) -> None:
        self.close()


def _sweep() -> None:
    """Delete what graders that were killed have left behind."""
    for folder in Path(tempfile.gettempdir()).glob(f"{STAGE}*"):
        owner = folder.name.removeprefix(STAGE).partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)) and folder.lstat().st_uid == os.geteuid():
            delete_folder(folder)


def require_platform(level: str) -> None:
    """Raise SandboxError for a level that this operating system does not have."""
    if sys.platform == "win32":
        raise SandboxError(
            "grading a class works on Linux, and with docker on macOS, not on Windows itself: run the same command in "
            "WSL 2 (`wsl --install`), which is a Linux"
        )
    if level != "docker" and not sys.platform.startswith("linux"):
        raise SandboxError(f"--sandbox {level} works on Linux alone: use --sandbox docker here")


def start_forkserver(level: str, stage: Stage, slot: int, control: int, quotas: Quotas) -> subprocess.Popen:
    """Start the process that forks workers; `control` is its end of the conversation with the grader.

    Errors: ValueError for an unknown level, SandboxError if its program is missing.
    """
    if level == "bwrap":
        command, environment = _bubblewrap(stage, slot, control, quotas), dict(ENVIRONMENT)
    elif level == "none":
        room = str(stage.room(slot))
        environment = {**ENVIRONMENT, **dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR"), room)}
        if more := _packages():
            environment["PYTHONPATH"] = os.pathsep.join(map(str, more))
        inner = "landlock" if landlock_version() else ""
        command = _python(sys.executable, str(stage.code), control, inner, quotas, *_readable(stage))
    else:
        raise ValueError(f"sandbox={level!r} must be one of {', '.join(LEVELS)}")
    return subprocess.Popen(
        command,
        env=environment,
        cwd="/" if level == "bwrap" else environment["HOME"],
        pass_fds=[control],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def container_command(stage: Stage, name: str, quotas: Quotas) -> list[str]:
    """Return the command that starts a container, `name`, for one notebook, with the grader at its standard input.

    Errors: SandboxError if there is no docker.
    """
    docker = shutil.which("docker")
    if not docker:
        raise SandboxError("docker is not installed, or not in PATH: --sandbox bwrap is the default on Linux")
    command = [docker, "run", "--rm", "--interactive", "--name", name, "--network", "none", "--read-only"]
    command += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534", "--cpus", "1"]
    command += ["--memory", str(quotas.tree), "--memory-swap", str(quotas.tree), "--pids-limit", str(quotas.processes)]
    command += ["--ulimit", "core=0", "--ulimit", "nofile=256", "--ulimit", f"fsize={quotas.file}"]
    command += ["--tmpfs", f"/tmp:rw,nosuid,nodev,size={quotas.disk}", "--shm-size", str(quotas.disk // 4)]
    for variable, value in ENVIRONMENT.items():
        if variable != "PATH":
            command += ["--env", f"{variable}={value}"]
    command += ["--volume", f"{stage.code}:{INSIDE}:ro", "--workdir", "/tmp"]
    image = os.environ.get("COURSE_IMAGE", IMAGE)
    return [*command, "--entrypoint", "python3", image, *_run("", INSIDE, "worker", quotas.as_dict())[1:]]


def _python(
    python: str,
    code: str,
    control: int,
    inner: str,
    quotas: Quotas,
    readable: Sequence[str] = (),
    listed: Sequence[str] = (),
) -> list[str]:
    return _run(python, code, "forkserver", control, inner, quotas.as_dict(), list(readable), list(listed))


def _run(python: str, code: str, module: str, *arguments: object) -> list[str]:
    """Return the command that calls `main` of a module of this package, in a Python that imports from nowhere else."""
    return [python, "-s", "-P", "-c", START.format(code=code, module=module), json.dumps(arguments)]


def _bubblewrap(stage: Stage, slot: int, control: int, quotas: Quotas) -> list[str]:
    bwrap = shutil.which("bwrap")
    if not bwrap:
        raise SandboxError(
            "bubblewrap is not installed: `apt-get install bubblewrap` (dnf, pacman: the same name) on Linux. "
            "Elsewhere use --sandbox docker, or --sandbox none for notebooks whose authors you trust"
        )
    as_root = os.geteuid() == 0
    python = os.path.realpath(sys.executable) if sys.prefix == sys.base_prefix else f"{VENV}/bin/python"
    views = _seen()
    command = [bwrap, "--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--hostname", "sandbox", "--clearenv"]
    more = [str(view.place) for view in views if view.place.is_relative_to(MORE)]
    for name, value in {**ENVIRONMENT, **({"PYTHONPATH": os.pathsep.join(more)} if more else {})}.items():
        command += ["--setenv", name, value]
    command += ["--size", str(quotas.disk), "--tmpfs", "/tmp"]
    for name in ("/lib", "/lib64", "/bin"):
        if os.path.islink(name):
            command += ["--symlink", os.readlink(name), name]
    command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    masks = []
    for view in views:
        source = view.source
        if as_root and view.top:
            source = stage.doors[view.top] / source.relative_to(view.top)
        command += ["--ro-bind", str(source), str(view.place)]
        for mask in view.masks:
            command += ["--tmpfs", str(mask)]
            masks.append(str(mask))
    command += ["--ro-bind", str(stage.code), INSIDE]
    for place in masks:  # now, because what was bound within one needed a place there
        command += ["--remount-ro", place]
    command += ["--proc", "/proc", "--dev", "/dev", "--size", str(quotas.disk // 4), "--tmpfs", "/dev/shm"]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]
    command += _python(python, INSIDE, control, "namespaces", quotas)
    if not as_root:
        return command
    user = str(10**9 + 64 * os.getpid() + slot)  # one of its own, that no other grader on this machine has
    command = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *command]
    pairs = [str(path) for pair in stage.doors.items() for path in pair]
    mounts = [f'mount --bind "${{{i}}}" "${{{i + 1}}}"' for i in range(1, len(pairs), 2)]
    script = " && ".join([*mounts, f"shift {len(pairs)}", 'exec "$@"'])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *pairs, *command]


# --- what is seen -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """A file or folder of this machine that a worker sees.

    Fields: source, what it is here · place, where it is seen · masks, places within that are empty for it · top, the
    folder of a Python in which it lies, which a slot's user may not be allowed to enter; None for the system's own.
    """

    source: Path
    place: Path
    top: Path | None = None

    @property
    def masks(self) -> list[Path]:
        whole = self.source.resolve()
        return [self.place / each.relative_to(whole) for each in _hidden() if each.is_relative_to(whole)]


def _seen() -> list[View]:
    """Return what a worker needs of this machine, in the order in which it is laid out."""
    base, venv = Path(sys.base_prefix), Path(sys.prefix)
    views = [View(folder, folder) for folder in map(Path, ("/usr", "/lib", "/lib64", "/bin")) if _is_folder(folder)]
    tops = [] if any(_within(base, view.source) and not _hides(base) for view in views) else [(base, base)]
    tops += [(venv, Path(VENV))] if venv != base else []
    for top, place in tops:
        views += [View(top / name, place / name, top) for name in NEEDED if (top / name).exists()]
    return views + [View(folder, Path(MORE, str(i)), folder) for i, folder in enumerate(_packages())]


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _within(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())


def _hides(path: Path) -> bool:
    return any(_within(path, each) for each in _hidden())


def _packages() -> list[Path]:
    """Return folders of packages that Python would not find in a sandbox: of `pip install --user` and `--target`."""
    own = {Path(each).resolve() for each in site.getsitepackages()}
    folders = [Path(each) for each in dict.fromkeys(sys.path) if each]
    return [folder for folder in folders if _holds_packages(folder) and folder.resolve() not in own]


def _holds_packages(folder: Path) -> bool:
    return folder.is_dir() and any(folder.glob("*.dist-info"))


def course_folders() -> list[Path]:
    """Return every folder known to hold the course, answers included, or to have held it when pip took it."""
    folders = [Path(course_lib.__file__).parents[1], *_installed_from()]
    imported_from = [Path(each) for each in (*sys.path, *site.getsitepackages()) if each]
    folders += [folder for folder in imported_from if (folder / "course_lib").is_dir()]
    return [folder for folder in dict.fromkeys(each.resolve() for each in folders) if folder.is_dir()]


def _installed_from() -> Iterator[Path]:
    """Yield the folder from which pip installed the course, editable or not."""
    for distribution in importlib.metadata.distributions(name="transformers-measured"):
        address = urlsplit(json.loads(distribution.read_text("direct_url.json") or "{}").get("url", ""))
        if address.scheme == "file":
            yield Path(url2pathname(address.path))


def _hidden() -> list[Path]:
    """Return the folders that no worker may see, wherever they lie in what it sees."""
    hidden = [folder for folder in SOURCES if folder.is_dir()]
    for folder in course_folders():
        among_packages = _holds_packages(folder) or folder in map(Path.resolve, map(Path, site.getsitepackages()))
        hidden += [folder / part for part in PARTS if (folder / part).is_dir()] if among_packages else [folder]
    # A folder before what lies in it: an empty one that is laid over both would hide the place of the other.
    return sorted({path.resolve() for path in hidden}, key=lambda path: (len(path.parts), path))


def answer_paths() -> list[str]:
    """Return where answers would be found if nothing hid them: every path in this machine and in a sandbox."""
    folders = [
        folder
        for course in course_folders()
        for part in ANSWERS
        for folder in sorted(course.glob(part))
        if folder.is_dir()
    ]
    files = [path for folder in folders for path in sorted(folder.iterdir()) if path.is_file()]
    paths = list(map(str, files))
    for view in _seen():
        whole = view.source.resolve()
        paths += [str(view.place / path.relative_to(whole)) for path in files if path.is_relative_to(whole)]
    return list(dict.fromkeys(paths))


def _readable(stage: Stage) -> tuple[list[str], list[str]]:
    """Return what a worker at level none may read: Python, installed packages but not this course, the staged library;
    and the folders in which it may see no more than names, because something in them is hidden."""
    whole = ["/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom"]
    whole += ["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"]  # of other processes nothing
    paths, listed, hidden = [*map(Path, whole), stage.code], [], _hidden()
    for view in _seen():
        source = view.source.resolve()
        parts = _around(source, [each for each in hidden if each.is_relative_to(source)])
        paths += parts
        listed += [] if parts == [source] else [source]
    return [str(path) for path in paths if path.exists()], list(map(str, listed))


def _around(folder: Path, hidden: Sequence[Path]) -> list[Path]:
    """Return the folder, or everything in it but what is hidden, in the fewest paths."""
    if folder in hidden:
        return []
    if not any(place.is_relative_to(folder) for place in hidden):
        return [folder]
    return [path for child in sorted(folder.iterdir()) for path in _around(child, hidden)]
