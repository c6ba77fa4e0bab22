"""`python -m course_lib start`: copy the course into the learner's folder, and open JupyterLab there."""

import argparse
import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import webbrowser
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.course.contents import CHAPTERS, Chapter, released
from course_lib.course.files import COURSE, inside, write_whole
from course_lib.training_options.memory import keeping_freed_memory

if TYPE_CHECKING:
    from course_lib.course.handout import Handed

PROJECTOR = ".projector"  # in the learner's folder: JupyterLab's settings for a lecture hall
LARGE_TYPE = {"code-font-size": "19px", "content-font-size1": "21px", "ui-font-size1": "17px"}
FIRST = f"notebooks/{CHAPTERS[0].notebook}"
# JupyterLab's default settings here, which the learner's own override: it wraps long lines and does not fetch news.
# A control's request waits for the running cell. In a subshell, a parallel thread, both would use the same random
# generator, so that seeds would not reproduce results. You could also not interrupt training that a button started.
SETTINGS = Path(__file__).resolve().parents[1] / "assets/jupyter"
# A kernel runs this file before any cell, unless the learner has a startup file.
STARTUP = Path(__file__).resolve().parents[1] / "live/startup.py"

# A server's warnings would hide the two lines that a learner needs. Without a browser, its log shows the address.
QUIET = ("--log-level=ERROR", "--LabApp.log_level=ERROR")


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "start",
        help="learners: copy the course into your own folder and open it in JupyterLab",
        description=(
            "Copies the notebooks and exercises into my/, next to the course, and opens JupyterLab there. (If you "
            "installed the course with pip and without its repository: into my/ in the current folder.) Run it every "
            "time: it opens the notebook that you saved last. After an update of the course it refreshes the files "
            "that you have not edited, and puts the newer version next to a file that you have edited. It never "
            "overwrites your work. To begin a notebook again, delete or rename your copy and run the command again."
        ),
        epilog="Examples: python -m course_lib start attention · start 2 · start --device cuda · "
        'start --lab="--no-browser"',
    )
    parser.add_argument("page", nargs="?", metavar="CHAPTER", help="a chapter's number or name, or a notebook's path")
    parser.add_argument("--folder", type=Path, help="your folder (default: my, next to the course)")
    parser.add_argument(
        "--pull",
        action="store_true",
        help="first fetch your teacher's new releases with git; all your work stays, also in the clone itself",
    )
    parser.add_argument("--no-lab", action="store_true", help="copy or update, but open nothing")
    parser.add_argument("--lab", metavar="OPTIONS", default="", help="options for JupyterLab, quoted together")
    parser.add_argument(
        "--projector",
        action="store_true",
        help="for a lecture hall: larger type, figures almost one and a half times as large",
    )
    parser.add_argument(
        "--device",
        help="compute on this device: cpu, cuda, mps, or auto for the fastest (default: the environment variable "
        "COURSE_DEVICE, or cpu)",
    )
    parser.set_defaults(run=run, remedy="name another folder with --folder")


def run(arguments: argparse.Namespace) -> int:
    """Fill or update the folder, print the changes, and run JupyterLab until it ends."""
    from course_lib.course.handout import hand_out, last_saved, place

    page = notebook_of(arguments.page) if arguments.page else None
    if arguments.device:
        from course_lib.device import find_device  # imports torch, which takes seconds

        find_device(arguments.device)  # or say at once that there is no such device
    if arguments.pull:
        print("\n".join(pulled()), flush=True)
    folder = arguments.folder or usual_folder()
    if not arguments.folder and folder.is_symlink():  # a cloned repository may contain such a link
        raise ValueError(
            f"{folder} is a link to {folder.readlink()}: name your folder with --folder, or delete the link"
        )
    folder = folder.expanduser().resolve()
    arguments.kept = "The files that were copied are kept; the same command continues with the rest."
    print("\n".join(news(hand_out(COURSE, folder), folder)))
    if page and not is_released(page):
        print("This chapter has not been released yet: its page says what it is about.")
        page = f"notebooks/{page.rpartition('/')[2]}"
    opened = folder / page if page else last_saved(COURSE, folder) or folder / FIRST
    if arguments.no_lab:
        return 0
    # JupyterLab is open already if this is one of its terminals, or a hub's.
    on_hub = os.environ.get("JUPYTERHUB_USER") and os.environ.get("JUPYTERHUB_ROOT_DIR", str(Path.home()))
    if server := os.environ.get("JUPYTER_SERVER_ROOT", on_hub):
        near = opened.relative_to(server) if opened.is_relative_to(server) else opened
        print(f"JupyterLab is running already: open {near} in its file browser.")
        if arguments.device:
            print("Its notebooks keep their device: to change it, set COURSE_DEVICE before JupyterLab starts.")
        return 0
    if not importlib.util.find_spec("jupyterlab"):
        raise ModuleNotFoundError("there is no JupyterLab", name="jupyterlab")
    page = opened.relative_to(folder).as_posix()
    if not arguments.lab and not arguments.projector and (there := _open_already(folder)):
        address = f"{there[0]}lab/tree/{page}?token={there[1]}"
        if arguments.device:
            raise ValueError(
                f"JupyterLab is running already with this folder, on its own device: end it first ({there[0]})"
            )
        print(f"JupyterLab is running already with this folder: {address}")
        webbrowser.open(address)
        return 0
    reached = place(opened.read_bytes())[0] if opened.is_file() else ""
    print(f"Opening {page} in JupyterLab.")
    if reached:
        print(f"You came as far as “{reached}”: run the first cell, which then links to that place.")
    print("To end it, save your notebooks (Ctrl-S), then press Ctrl-C here, and y.", flush=True)
    options = [  # the default URL, because the terminal then shows the same address
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{page}",
        *(() if "--no-browser" in arguments.lab else QUIET),
        "--KernelManager.transport_encryption=auto",  # otherwise each kernel warns about eavesdropping
        *(_projector(folder) if arguments.projector else ()),
        *shlex.split(arguments.lab, posix=os.name == "posix"),
    ]
    searched = [str(SETTINGS), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    # In JupyterLab's terminals and cells, the command `python -m course_lib …` then runs the course's own Python.
    programs = [str(Path(sys.executable).parent), *filter(None, [os.environ.get("PATH")])]
    own = {"JUPYTER_CONFIG_PATH": os.pathsep.join(searched), "PATH": os.pathsep.join(programs)}
    environment = {"PYTHONSTARTUP": str(STARTUP)} | keeping_freed_memory() | os.environ | own
    if arguments.device:
        environment["COURSE_DEVICE"] = arguments.device
    if arguments.projector:
        from course_lib.live.page import ENLARGED

        environment[ENLARGED] = "1.45"
    with subprocess.Popen([sys.executable, "-m", "jupyter", "lab", *options], env=environment) as lab:
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):  # SIGHUP: the terminal closed
            signal.signal(number, lambda *_: lab.terminate())  # this also shuts down its kernels
        while True:
            try:
                return lab.wait()
            except KeyboardInterrupt:  # JupyterLab has also received it, and asks for confirmation
                continue


def _open_already(folder: Path) -> tuple[str, str] | None:
    """Return the address and token of a JupyterLab that has this folder open: two would write the same files."""
    from jupyter_server.serverapp import list_running_servers

    for server in list_running_servers():
        if Path(server["root_dir"]) == folder:
            return server["url"], server["token"]
    return None


def _projector(folder: Path) -> list[str]:
    """Write settings with larger type if there are none yet; return the option that makes JupyterLab use them.

    The user's own settings do not change."""
    path = inside(folder, f"{PROJECTOR}/@jupyterlab/apputils-extension/themes.jupyterlab-settings")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda part: part.write_text(json.dumps({"overrides": LARGE_TYPE}, indent=1), "utf-8"))
    return [f"--LabApp.user_settings_dir={folder / PROJECTOR}"]


def pulled() -> list[str]:
    """Fetch newer files and return lines of news for the learner; a missing network is not an error."""
    from course_lib.course.pull import fetch_newer

    try:
        handed = fetch_newer(COURSE)
    except ConnectionError as error:
        return [f"Nothing could be fetched ({error}); continuing with the files that are here."]
    if not handed:
        return ["Nothing newer has been released."]
    newer = sum(each.done in ("renewed", "merged") for each in handed)
    lines = [f"Fetched {_files(newer)}, new or newer."]
    for each in handed:
        if each.done == "merged" and each.path.suffix == ".ipynb":
            lines.append(f"You have edited {each.name}: your changes stay, and the new parts were added.")
    return lines + [stayed(each) for each in handed if each.done == "beside"]


def _files(count: int) -> str:
    return f"{count} file{'' if count == 1 else 's'}"


def stayed(each: "Handed") -> str:
    """Return a sentence about a file that the learner has edited and that has a newer version."""
    return f"You have edited {each.name}, so your file stays. The newer version is next to it, as {each.path.name}."


def usual_folder() -> Path:
    """Return the learner's folder: `my/` next to the course.

    If the course comes from a wheel or cannot be written to, as on a hub, it is `my/` in the current folder, or the
    current folder if it is the learner's already."""
    from course_lib.course.handout import RECORD

    beside = COURSE / "my"
    if COURSE.name != "handouts" and os.access(beside if beside.exists() else COURSE, os.W_OK):
        return beside
    return Path() if Path(RECORD).is_file() else Path("my")


def notebook_of(name: str) -> str:
    """Return a notebook's path in the folder from "2", "attention", "02_attention.ipynb" or
    "exercises/02_attention.ipynb".

    Errors: ValueError if there is no such chapter.
    """
    part = name.replace("\\", "/").rpartition("/")[0]
    return f"{'exercises' if part.endswith('exercises') else 'notebooks'}/{chapter_of(name).notebook}"


def chapter_of(name: str) -> Chapter:
    """Return the chapter with this number, name or notebook path. Errors: as in `notebook_of`."""
    last = name.replace("\\", "/").rpartition("/")[2]
    for chapter in CHAPTERS:
        if last.lower() in (str(chapter.number), f"{chapter.number:02d}", chapter.slug, chapter.notebook.lower()):
            return chapter
    raise ValueError(
        f"CHAPTER {name!r} is not a chapter of the course: write a number from 0 to {CHAPTERS[-1].number}, a name "
        f"such as {CHAPTERS[2].slug}, or a path such as exercises/{CHAPTERS[2].notebook}"
    )


def is_released(page: str) -> bool:
    """Return whether this course has a notebook's chapter; a learner's package may get it later."""
    has = released()
    return has is None or any(each.notebook == page.rpartition("/")[2] and each.number in has for each in CHAPTERS)


def news(handed: list["Handed"], folder: Path) -> list[str]:
    """Return lines of news for the learner."""
    counts = Counter(each.done for each in handed)
    lines = [f"{each.name} was skipped: {each.why}." for each in handed if each.done == "skipped"]
    if counts["given"] == len(handed) - len(lines):
        return [*lines, f"Your copy of the course is in {folder}: {counts['given']} files. Change whatever you like."]
    if counts["given"] or counts["renewed"]:
        lines.append(f"{folder}: {_files(counts['renewed'])} updated, {counts['given']} new.")
    lines += [stayed(each) for each in handed if each.done == "beside"]
    return lines or [f"Your copy of the course is in {folder}, and up to date."]
