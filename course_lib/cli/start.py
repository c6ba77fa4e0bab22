"""`python -m course_lib start`: put the course into a folder of the learner's own, and open JupyterLab there."""

import argparse
import importlib.util
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.contents import CHAPTERS
from course_lib.files import COURSE

if TYPE_CHECKING:
    from course_lib.handout import Handed

FIRST = f"notebooks/{CHAPTERS[0].notebook}"


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "start",
        help="learners: copy the course into a folder of your own and open it in JupyterLab",
        description=(
            "Copies the notebooks and exercises into my/, beside the course, and opens JupyterLab there. (Where pip "
            "brought the course without its repository: into my/ where you are.) Run it every time: it opens the "
            "notebook that you saved last. After an update of the course it renews what you have not edited, and puts "
            "the newer version beside what you have; nothing of yours is overwritten. To begin a notebook anew, delete "
            "or rename your copy and run it again."
        ),
        epilog='Examples: python -m course_lib start attention · start 2 · start --lab="--no-browser --port=9000"',
    )
    parser.add_argument("page", nargs="?", metavar="CHAPTER", help="a chapter's number or name, or a notebook's path")
    parser.add_argument("--folder", type=Path, help="your folder (default: my, beside the course)")
    parser.add_argument("--no-lab", action="store_true", help="copy or update, and open nothing")
    parser.add_argument("--lab", metavar="OPTIONS", default="", help="options for JupyterLab, in one pair of quotes")
    parser.set_defaults(run=run, remedy="name another folder with --folder")


def run(arguments: argparse.Namespace) -> int:
    """Fill or update the folder, say what changed, and stay until JupyterLab ends."""
    from course_lib.handout import hand_out, last_saved

    page = notebook_of(arguments.page) if arguments.page else None
    folder = (arguments.folder or usual_folder()).expanduser().resolve()
    print("\n".join(news(hand_out(COURSE, folder), folder)))
    opened = folder / page if page else last_saved(COURSE, folder) or folder / FIRST
    if arguments.no_lab:
        return 0
    if server := os.environ.get("JUPYTER_SERVER_ROOT"):  # a terminal within JupyterLab, a hub: one is open already
        near = opened.relative_to(server) if opened.is_relative_to(server) else opened
        print(f"JupyterLab is running already: open {near} in its file browser.")
        return 0
    if not importlib.util.find_spec("jupyterlab"):
        raise ModuleNotFoundError("there is no JupyterLab", name="jupyterlab")
    page = opened.relative_to(folder).as_posix()
    print(f"Opening {page} in JupyterLab. To end it, press Ctrl-C here, then y.", flush=True)
    options = [  # the address, not the file: so it is also the one that the terminal shows
        f"--ServerApp.root_dir={folder}",
        f"--LabApp.default_url=/lab/tree/{page}",
        "--log-level=WARN",
        "--LabApp.log_level=WARN",
        *shlex.split(arguments.lab, posix=os.name == "posix"),
    ]
    with subprocess.Popen([sys.executable, "-m", "jupyter", "lab", *options]) as lab:
        while True:
            try:
                return lab.wait()
            except KeyboardInterrupt:  # JupyterLab has seen it, too, and asks whether it shall end
                continue


def usual_folder() -> Path:
    """Return the learner's folder: `my/` beside the course. In a wheel nothing of a learner's may stand, so there it is
    `my/` where they are, or where they are if that is theirs already."""
    from course_lib.handout import RECORD

    if COURSE.name != "handouts":
        return COURSE / "my"
    return Path() if Path(RECORD).is_file() else Path("my")


def notebook_of(name: str) -> str:
    """Return the path, within the folder, of the notebook that a learner names: "2", "attention", "02_attention.ipynb"
    or "exercises/02_attention.ipynb".

    Errors: ValueError if there is no such chapter.
    """
    part, _, last = name.replace("\\", "/").rpartition("/")
    for chapter in CHAPTERS:
        if last.lower() in (str(chapter.number), f"{chapter.number:02d}", chapter.slug, chapter.notebook.lower()):
            return f"{'exercises' if part.endswith('exercises') else 'notebooks'}/{chapter.notebook}"
    raise ValueError(
        f"CHAPTER {name!r} is none of the course: write a number from 0 to {CHAPTERS[-1].number}, a name such as "
        f"{CHAPTERS[2].slug}, or a path such as exercises/{CHAPTERS[2].notebook}"
    )


def news(handed: list["Handed"], folder: Path) -> list[str]:
    """Return what to tell the learner, a line each."""
    counts = Counter(each.done for each in handed)
    if counts["given"] == len(handed):
        return [f"Your copy of the course is in {folder}: {len(handed)} files. Change whatever you like."]
    lines = []
    if counts["given"] or counts["renewed"]:
        lines.append(
            f"{folder}: {counts['renewed']} files renewed, {counts['given']} new. You had edited none of them."
        )
    for each in handed:
        if each.done == "beside":
            lines.append(
                f"You have edited {each.name}, so it stays as it is; its newer version is {each.path.name} beside it."
            )
    return lines or [f"{folder} holds all that the course has."]
