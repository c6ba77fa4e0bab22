"""Start worker processes at each level of isolation between a learner's code and the machine.

bwrap   bubblewrap: no network, its own process table, and only Python, the library and an empty /tmp as files.
docker  a container per notebook with the same limits, for machines where bubblewrap does not work.
none    an ordinary process; with Landlock in the kernel, it can only open Python's and the library's files.

`visible_files` decides which files of this machine are visible, and which are hidden because they contain answers.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil

import course_lib
from course_lib.classroom.sandbox.isolation import landlock_version
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.resources import Group
from course_lib.classroom.sandbox.visible_files import MORE, VENV, Installation
from course_lib.course.files import delete_folder

LEVELS = ("bwrap", "docker", "none")
IMAGE = "transformers-measured"  # for level docker, unless COURSE_IMAGE gives another
STAGE = "course-grading-"  # beginning of the folder's name, followed by the number of the process that made it
INSIDE = "/opt/course"  # the library's folder in a sandbox
ENVIRONMENT = {
    "PATH": f"{VENV}/bin:/usr/bin:/bin",
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
    "TORCHDYNAMO_DISABLE": "1",  # no compiler is available, so the code runs uncompiled
}


START = (
    "import json, sys; sys.path.insert(0, {code!r}); from course_lib.classroom.sandbox.{module} import main; "
    "main(*json.loads(sys.argv[1]))"
)


class SandboxError(RuntimeError):
    """This level does not work here. The message gives the reason and a remedy."""


class Stage:
    """A folder with the files that workers may see: the library without its exercises. `close` deletes it.

    Args:
        here: the visible files of this machine.
    """

    def __init__(self):
        _sweep()
        self.folder = Path(tempfile.mkdtemp(prefix=f"{STAGE}{os.getpid()}-"))
        self.folder.chmod(0o755)
        self.code = self.folder / "code"
        library = Path(course_lib.__file__).parent
        if not library.is_dir():
            raise SandboxError(f"the course is imported from an archive ({library.parent}): install it as a folder")
        hidden = shutil.ignore_patterns("exercises", "catalogue*", "sealed*")
        shutil.copytree(library, self.code / "course_lib", ignore=hidden)
        self.here = Installation.here()
        tops = dict.fromkeys(view.top for view in self.here.views if view.top)
        self.doors = {top: self.folder / f"top-{i}" for i, top in enumerate(tops)}
        for door in self.doors.values():  # mounts made by root here are readable for a slot's user
            door.mkdir()
        for path in self.folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)

    def room(self, slot: int) -> Path:
        """Make an empty folder that a worker at level none may write to."""
        return Path(tempfile.mkdtemp(prefix=f"slot-{slot}-", dir=self.folder))

    def close(self) -> None:
        delete_folder(self.folder)

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, *error) -> None:
        self.close()


def _sweep() -> None:
    """Delete the folders left by killed graders."""
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
        raise SandboxError(f"--sandbox {level} works only on Linux: use --sandbox docker here")


def start_forkserver(
    level: str, stage: Stage, slot: int, control: int, quotas: Quotas, group: Group | None = None
) -> subprocess.Popen:
    """Start the process that forks workers. `control` is its end of the connection to the grader.

    Args:
        group: the control group in which it starts, if there is one.

    Errors: ValueError for an unknown level, SandboxError if its program is missing.
    """
    if level == "bwrap":
        command, environment = _bubblewrap(stage, slot, control, quotas), _variables()
    elif level == "none":
        room = str(stage.room(slot))
        environment = {**_variables(), **dict.fromkeys(("HOME", "TMPDIR", "MPLCONFIGDIR"), room)}
        if more := stage.here.more:
            environment["PYTHONPATH"] = os.pathsep.join(map(str, more))
        inner = "landlock" if landlock_version() else ""
        command = _python(sys.executable, str(stage.code), control, inner, quotas, *_readable(stage))
    else:
        raise ValueError(f"sandbox={level!r} must be one of {', '.join(LEVELS)}")
    return subprocess.Popen(
        group.joined(command) if group else command,
        env=environment,
        cwd="/" if level == "bwrap" else environment["HOME"],
        pass_fds=[control],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _variables() -> dict[str, str]:
    """Return a worker's environment variables, including the library folders given to this Python."""
    libraries = os.environ.get("LD_LIBRARY_PATH", "")
    return {**ENVIRONMENT, **({"LD_LIBRARY_PATH": libraries} if libraries else {})}


def container_command(stage: Stage, name: str, quotas: Quotas) -> list[str]:
    """Return the command that starts a container, `name`, for one notebook, with the grader at its standard input.

    Errors: SandboxError if docker is missing.
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
    """Return the command that calls a module's `main` in a Python that only imports from the sandbox's own folders."""
    return [python, "-s", "-P", "-c", START.format(code=code, module=module), json.dumps(arguments)]


def _bubblewrap(stage: Stage, slot: int, control: int, quotas: Quotas) -> list[str]:
    bwrap = shutil.which("bwrap")
    if not bwrap:
        raise SandboxError(
            "bubblewrap is not installed: `apt-get install bubblewrap` (dnf, pacman: the same name) on Linux. "
            "Elsewhere use --sandbox docker, or --sandbox none for notebooks whose authors you trust"
        )
    as_root = os.geteuid() == 0
    here = stage.here
    command = [bwrap, "--unshare-user", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    command += ["--hostname", "sandbox", "--clearenv"]
    more = [str(view.place) for view in here.views if view.place.is_relative_to(MORE)]
    for name, value in {**_variables(), **({"PYTHONPATH": os.pathsep.join(more)} if more else {})}.items():
        command += ["--setenv", name, value]
    command += ["--size", str(quotas.disk), "--tmpfs", "/tmp"]
    for name in ("/lib", "/lib64", "/bin"):
        if os.path.islink(name):
            command += ["--symlink", os.readlink(name), name]
    masks = []
    for view in here.views:
        if view.link:
            command += ["--symlink", view.link, str(view.place)]
            continue
        source = view.source
        if as_root and view.top:
            source = stage.doors[view.top] / source.relative_to(view.top)
        command += ["--ro-bind", str(source), str(view.place)]
        for mask in here.masks(view):
            if (view.source.resolve() / mask.relative_to(view.place)).is_file():
                command += ["--ro-bind", "/dev/null", str(mask)]
                continue
            command += ["--tmpfs", str(mask)]
            masks.append(str(mask))
    command += ["--ro-bind", str(stage.code), INSIDE]
    for place in masks:  # only now, because mounts inside a mask had to create their folders
        command += ["--remount-ro", place]
    command += ["--proc", "/proc", "--dev", "/dev", "--size", str(quotas.disk // 4), "--tmpfs", "/dev/shm"]
    command += ["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp", "--"]
    command += _python(here.python, INSIDE, control, "namespaces", quotas)
    if not as_root:
        return command
    user = str(10**9 + 64 * os.getpid() + slot)  # a user id that no other grader on this machine uses
    command = ["setpriv", "--reuid", user, "--regid", user, "--clear-groups", *command]
    pairs = [str(path) for pair in stage.doors.items() for path in pair]
    mounts = [f'mount --bind "${{{i}}}" "${{{i + 1}}}"' for i in range(1, len(pairs), 2)]
    script = " && ".join([*mounts, f"shift {len(pairs)}", 'exec "$@"'])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *pairs, *command]


def _readable(stage: Stage) -> tuple[list[str], list[str]]:
    """Return the paths that a worker at level none may read, and the folders where it only sees names.

    The readable ones are Python, installed packages except this course, and the staged library.
    """
    whole = ["/etc/localtime", "/dev/null", "/dev/urandom"]
    whole += ["/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat"]  # nothing on other processes
    paths, listed = stage.here.readable
    paths = [path for path in (*map(Path, whole), stage.code) if path.exists()] + paths
    return list(map(str, paths)), list(map(str, listed))
