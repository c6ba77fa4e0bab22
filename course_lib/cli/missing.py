"""The advice of a command when a package is missing: how to install it, together with the rest of its extra.

The extras of pyproject.toml list the packages for each kind of work; pip stores them in the metadata.
"""

import importlib.metadata
import re
from pathlib import Path

from course_lib.course.files import COURSE

NAME = "transformers-measured"
PACKAGES = {  # module -> its package, if the names differ or another package includes it
    "markdown_it": "markdown-it-py",
    "yaml": "pyyaml",
    "jupyter": "jupyterlab",
    "nbclient": "jupyterlab",
}
OF_COMMAND = {
    **dict.fromkeys(("grade", "release", "autograder", "workflow", "room"), "grading"),
    **dict.fromkeys(("refresh", "new", "bench"), "dev"),
    **dict.fromkeys(("site", "slides"), "web"),
}


def install(module: str, command: str = "") -> str | None:
    """Return the arguments of `pip install` for a module; None if the course does not require it.

    In the repository they are the full requirements, elsewhere an extra of the course, or only the package if the
    library itself requires it. command: chooses between several possible extras.
    """
    top = module.partition(".")[0]
    package = PACKAGES.get(top, top.lower().replace("_", "-"))
    extras = _asked_for().get(package)
    if extras is None:
        return None
    listed = COURSE / "requirements.txt"
    if listed.is_file():
        return f"-r {listed.relative_to(Path.cwd()) if listed.is_relative_to(Path.cwd()) else listed}"
    chosen = OF_COMMAND.get(command, extras[0]) if extras else None
    return f'"{NAME}[{chosen}]"' if chosen else package


def _asked_for() -> dict[str, list[str]]:
    """Return the extras that include each package; an empty list for the library's own requirements."""
    found: dict[str, list[str]] = {}
    try:
        lines = importlib.metadata.requires(NAME) or []
    except importlib.metadata.PackageNotFoundError:  # a copy that is not installed
        lines = []
    for line in lines:
        package = re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", line, maxsplit=1)[0]).lower()
        extra = re.search(r"""extra == ['"]([\w-]+)""", line)
        found.setdefault(package, []).extend([extra[1]] if extra else [])
    return found
