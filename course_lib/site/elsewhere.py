"""Notebooks for Colab and Kaggle, where the course is not installed: each gets a cell that installs it.

The repository's own notebooks do not need this cell, because a copy of the course includes its installation.
"""

import re
import tomllib
from functools import partial
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from course_lib.course.files import inside, write_whole
from course_lib.site.about import GITHUB, repository_of

NOT_THERE = ("jupyterlab", "ipython")  # the service has its own interface and kernel, which must not change
CELL = """\
# Colab and Kaggle begin each session with an empty machine. This cell installs the course from {address}
# and the packages that its notebooks need and that are missing. If the course is installed, it does nothing.
import importlib.util

if importlib.util.find_spec("course_lib"):
    print("The course is installed.")
else:
    print("Installing the course …")
    %pip install --quiet {packages}
    importlib.invalidate_caches()
    if importlib.util.find_spec("course_lib"):
        print("The course is installed. Your work here is not kept: download the notebook, or save a copy.")
    else:
        print("The course could not be installed. The messages of pip above say why.")"""


def install_cell(root: Path) -> NotebookNode:
    """Return the cell that installs the course from the repository `root`. If the course is installed, it does nothing.

    Errors: ValueError if `pyproject.toml` does not contain the repository's address on GitHub.
    """
    repository = repository_of(root)
    if not repository:
        raise ValueError(
            f"pyproject.toml has no address on GitHub from which a notebook could install the course: write "
            f'Repository = "{GITHUB}OWNER/NAME" under [project.urls]'
        )
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    asked = [line for line in project["optional-dependencies"]["notebooks"] if _name(line) not in NOT_THERE]
    asked = [f"{project['name']} @ git+{GITHUB}{repository}", *asked]
    packages = " ".join(f'"{line}"' for line in asked)
    source = CELL.format(address=f"{GITHUB}{repository}", packages=packages)
    return nbformat.v4.new_code_cell(source, id="install")


def write_elsewhere(root: Path, folder: Path) -> list[Path]:
    """Write the notebooks and exercises of `root` into `folder`, each with the install cell, and return their paths.

    Errors: as for `install_cell`; ValueError if the folder contains anything else.
    """
    cell = install_cell(root)
    if folder.exists() and any(path.name not in ("notebooks", "exercises") for path in folder.iterdir()):
        raise ValueError(f"{folder} holds other files: name an empty folder")
    written = []
    for part in ("notebooks", "exercises"):
        (folder / part).mkdir(parents=True, exist_ok=True)
        for path in sorted((root / part).glob("*.ipynb")):
            notebook = nbformat.read(path, as_version=4)
            first = next(i for i, each in enumerate(notebook.cells) if each.cell_type == "code")
            notebook.cells.insert(first, cell)
            target = inside(folder, f"{part}/{path.name}")
            write_whole(target, partial(nbformat.write, notebook))
            written.append(target)
    return written


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()
