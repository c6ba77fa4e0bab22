"""The wall between a learner's code and the machine: how a worker process is started at each level.

bwrap   bubblewrap: no network, no files but Python, the library and an empty /tmp, a process table of its own
docker  a container per notebook, with the same limits; for machines where bubblewrap does not work
none    a process as any other; where the kernel has Landlock, it reaches no files but Python and the library
"""

import json
import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

import course_lib
from course_lib.files import delete_folder

from .bounds import Limits
from .walls import landlock

LEVELS = ("bwrap", "docker", "none")
IMAGE = "transformers-measured"  # of the level docker, unless COURSE_IMAGE names another
STAGE = "course-grading-"  # and the process that made it: the folder's name
INSIDE, VENV = "/opt/course", "/opt/venv"  # where the library and the environment lie in a sandbox
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
    "import json, sys; sys.path.insert(0, {code!r}); from course_lib.grading.classroom.{module} import main; "
    "main(*json.loads(sys.argv[1]))"
)


class SandboxError(RuntimeError):
    """This level does not work here; the message says why, and what to do."""


class Stage:
    """A folder with what workers may see: the library without its catalogue. `close` deletes it."""

    def __init__(self):
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{STAGE}{os.getpid()}-"))
        self.folder.chmod(0o755)
        self.code = self.folder / "code"
        library = Path(course_lib.__file__).parent
        shutil.copytree(library, self.code / "course_lib", ignore=shutil.ignore_patterns("catalogue", "sealed*"))
        for name in ("base", "venv"):  # what root mounts there, a slot's user can reach
            (self.folder / name).mkdir()
        for path in self.folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def room(self, slot: int) -> Path:
        """An empty folder to write to, for a worker at level none."""
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


def start(level: str, stage: Stage, slot: int, control: int, limits: Limits) -> subprocess.Popen:
    """Start the process that forks workers; `control` is its end of the conversation with the grader.

    Errors: ValueError for an unknown level, SandboxError if its program is missing.
    """
    if not sys.platform.startswith("linux"):
        raise SandboxError(f"--sandbox {level} works on Linux alone: use --sandbox docker here")
    if level == "bwrap":
        command, environment = _bubblewrap(stage, slot, control, limits), dict(ENVIRONMENT)
    elif level == "none":
        room = str(stage.room(slot))
        environment = {**ENVIRONMENT, **dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR"), room)}
        inner = "landlock" if landlock() else ""
        command = _python(sys.executable, str(stage.code), control, inner, limits, _readable(stage))
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


def container(stage: Stage, name: str, limits: Limits) -> list[str]:
    """The command that starts a container for one notebook, named `name`, with the grader at its standard input.

    Errors: SandboxError if there is no docker.
    """
    docker = shutil.which("docker")
    if not docker:
        raise SandboxError("docker is not installed, or not in PATH: --sandbox bwrap is the default on Linux")
    command = [docker, "run", "--rm", "--interactive", "--name", name, "--network", "none", "--read-only"]
    command += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--user", "65534:65534", "--cpus", "1"]
    command += ["--memory", str(limits.tree), "--memory-swap", str(limits.tree), "--pids-limit", str(limits.processes)]
    command += ["--ulimit", "core=0", "--ulimit", "nofile=256", "--ulimit", f"fsize={limits.file}"]
    command += ["--tmpfs", f"/tmp:rw,nosuid,nodev,size={limits.disk}", "--shm-size", str(limits.disk // 4)]
    for variable, value in ENVIRONMENT.items():
        if variable != "PATH":
            command += ["--env", f"{variable}={value}"]
    command += ["--volume", f"{stage.code}:{INSIDE}:ro", "--workdir", "/tmp"]
    image = os.environ.get("COURSE_IMAGE", IMAGE)
    return [*command, "--entrypoint", "python3", image, *_run("", INSIDE, "worker", limits.as_dict())[1:]]


def _python(python: str, code: str, control: int, inner: str, limits: Limits, readable: Sequence[str]) -> list[str]:
    return _run(python, code, "zygote", control, inner, limits.as_dict(), list(readable))


def _run(python: str, code: str, module: str, *arguments: object) -> list[str]:
    """The command that calls `main` of a module of this package, in a Python that imports from nowhere else."""
    return [python, "-s", "-P", "-c", START.format(code=code, module=module), json.dumps(arguments)]


def _bubblewrap(stage: Stage, slot: int, control: int, limits: Limits) -> list[str]:
    bwrap = shutil.which("bwrap")
    if not bwrap:
        raise SandboxError(
            "bubblewrap is not installed: `apt-get install bubblewrap` (dnf, pacman: the same name) on Linux. "
            "Elsewhere use --sandbox docker, or --sandbox none for notebooks whose authors you trust"
        )
    as_root = os.geteuid() == 0
    base, venv = Path(sys.base_prefix), Path(sys.prefix)
    python = Path(os.path.realpath(sys.executable))
    binds = []
    if not base.is_relative_to("/usr"):
        binds.append((stage.folder / "base" if as_root else base, base))
    if venv != base:
        binds.append((stage.folder / "venv" if as_root else venv, Path(VENV)))
        python = Path(VENV) / "bin" / "python"
    hidden = [Path(VENV) / path.relative_to(venv) for path in _installed_library() if path.is_relative_to(venv)]
    command = [bwrap, "--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--hostname", "sandbox", "--clearenv"]
    for name, value in ENVIRONMENT.items():
        command += ["--setenv", name, value]
    command += ["--ro-bind", "/usr", "/usr"]
    for name in ("/lib", "/lib64", "/bin"):
        if os.path.islink(name):
            command += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            command += ["--ro-bind", name, name]
    command += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    command += ["--size", str(limits.disk), "--tmpfs", "/tmp"]
    for source, place in [*binds, (stage.code, Path(INSIDE))]:
        command += ["--ro-bind", str(source), str(place)]
    for place in hidden:
        command += ["--tmpfs", str(place)]
    command += ["--proc", "/proc", "--dev", "/dev", "--size", str(limits.disk // 4), "--tmpfs", "/dev/shm"]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]
    command += _python(str(python), INSIDE, control, "namespaces", limits, [])
    if not as_root:
        return command
    user = str(10**9 + 64 * os.getpid() + slot)  # one of its own, that no other grader on this machine has
    command = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *command]
    mounts = " && ".join(f'mount --bind "${2 * i + 1}" "${2 * i + 2}"' for i in range(2))
    pairs = [str(x) for pair in ((base, stage.folder / "base"), (venv, stage.folder / "venv")) for x in pair]
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", f'{mounts} && shift 4 && exec "$@"', "sh"] + (
        pairs + command
    )


def _installed_library() -> list[Path]:
    """Copies of the library among the installed packages: they hold the catalogue."""
    return [place / "course_lib" for place in _packages() if (place / "course_lib").is_dir()]


def _packages() -> list[Path]:
    return [Path(place) for place in dict.fromkeys(site.getsitepackages()) if Path(place).is_dir()]


def _readable(stage: Stage) -> list[str]:
    """What a worker at level none may read: Python, installed packages but not this course, the staged library."""
    whole = ["/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom"]
    whole += ["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"]  # of other processes nothing
    paths = [*map(Path, whole), stage.code]
    for prefix in {Path(sys.prefix), Path(sys.base_prefix)}:
        holding = [place for place in _installed_library() if place.is_relative_to(prefix)]
        paths += _around(prefix, holding)
    return [str(path) for path in paths if path.exists()]


def _around(folder: Path, hidden: Sequence[Path]) -> list[Path]:
    """The folder, or everything in it but what is hidden, in the fewest paths."""
    if folder in hidden:
        return []
    if not any(place.is_relative_to(folder) for place in hidden):
        return [folder]
    return [path for child in sorted(folder.iterdir()) for path in _around(child, hidden)]
