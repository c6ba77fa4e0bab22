"""What a command says where a package is missing: the words that install it, with all that the same work needs.

Which work needs which package stands in pyproject.toml, as extras; pip keeps them with what it has installed.
"""

import importlib.metadata
import re
from pathlib import Path

from course_lib.course.files import COURSE

NAME = "transformers-measured"
PACKAGES = {  # module -> the package that brings it, where the two have different names
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
    """Return the words after `pip install` that bring a module; None if the course does not ask for it.

    In the repository that is the list of everything, elsewhere one of the course's extras, or the package alone if the
    library itself needs it. command: whose extra is taken where several would do.
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
    """Return, for each package, the extras that bring it; an empty list for those of the library."""
    found: dict[str, list[str]] = {}
    try:
        lines = importlib.metadata.requires(NAME) or []
    except importlib.metadata.PackageNotFoundError:  # a copy that nobody installed
        lines = []
    for line in lines:
        package = re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", line, maxsplit=1)[0]).lower()
        extra = re.search(r"""extra == ['"]([\w-]+)""", line)
        found.setdefault(package, []).extend([extra[1]] if extra else [])
    return found
