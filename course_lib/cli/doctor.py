"""`python -m course_lib doctor`: say whether this environment can run the course, and how to mend it.

It speaks where torch is missing: what it looks at is imported when it is looked at.
"""

import argparse
import importlib.metadata
import importlib.util
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from course_lib.cli import missing as brought_by
from course_lib.files import COURSE

PACKAGES = (
    "torch", "numpy", "matplotlib", "ipywidgets", "jupyterlab", "nbclient", "safetensors", "tokenizers", "tqdm",
)  # fmt: skip
PROGRAMS = ("jupyterlab", "nbclient")  # they are run, not imported: importing them takes seconds


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "doctor",
        help="say whether this environment can run the course, and how to mend it",
        description="Looks at Python, the packages, the sliders, the shipped model and the progress file. "
        "Exit status 1 if something is missing.",
    )
    parser.set_defaults(run=run, remedy="see that it can be used")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if all is well, otherwise 1."""
    return 0 if doctor() else 1


@dataclass
class Finding:
    """One thing that the doctor looked at: whether it is well, and if not, what to do. well=None: it was not looked at,
    because something that it needs is missing."""

    name: str
    well: bool | None
    seen: str
    remedy: str = ""


def examine(announce: Callable[[str], object] = lambda name: None) -> Iterator[Finding]:
    """Look at everything that the course needs, in the order in which it is needed. `announce` is told the name of each
    thing before it is looked at: the first import of torch may take a while."""
    remedy = "install Python 3.11 or newer and make the environment again"
    yield Finding("Python", sys.version_info >= (3, 11), platform.python_version(), remedy)
    missing: set[str] = set()
    for package in PACKAGES:
        announce(package)
        try:
            if package in PROGRAMS and importlib.util.find_spec(package):
                version = importlib.metadata.version(package)
            else:
                version = getattr(importlib.import_module(package), "__version__", "installed")
            yield Finding(package, True, str(version))
        except Exception as error:
            missing.add(package)
            yield Finding(package, False, f"{type(error).__name__}: {error}", _install(package))
    yield _sliders()
    needs: tuple[str, ...]
    for name, needs, look in (
        ("Tinytown model", ("torch", "safetensors", "tokenizers", "tqdm"), _model),
        ("progress file", ("torch", "numpy", "safetensors", "tokenizers", "tqdm"), _progress_file),
    ):
        announce(name)
        if not missing.intersection(needs):
            try:
                yield look()
                continue
            except ImportError as error:  # of a package that has no line of its own
                package = str(error.name).partition(".")[0]
                if package not in missing:
                    yield Finding(package, False, f"{type(error).__name__}: {error}", _install(package))
                missing.add(package)
                needs = (package,)
        yield Finding(name, None, f"not looked at: it needs {' and '.join(need for need in needs if need in missing)}")


def _install(package: str) -> str:
    """Return how to install a package, with all that it is needed for."""
    return f"run `python -m pip install {brought_by.install(package) or package}` in the course's environment"


def _sliders() -> Finding:
    """Sliders need their half in the browser, which the package jupyterlab_widgets brings."""
    remedy = "run `python -m pip install --force-reinstall ipywidgets jupyterlab_widgets`, then restart JupyterLab"
    try:
        importlib.import_module("jupyterlab_widgets")
        return Finding("sliders in JupyterLab", True, "jupyterlab_widgets is there")
    except ImportError:
        return Finding(
            "sliders in JupyterLab", False, "jupyterlab_widgets is missing: sliders would stay blank", remedy
        )


def _model() -> Finding:
    from course_lib.pretrained import load_pretrained

    try:
        model, tokenizer = load_pretrained("tinytown")
    except Exception as error:
        return Finding(
            "Tinytown model", False, str(error), "fetch the repository again: course_lib/assets is not whole"
        )
    count = sum(parameter.numel() for parameter in model.parameters())
    return Finding("Tinytown model", True, f"{count:,} parameters, {len(tokenizer)} tokens")


def _progress_file() -> Finding:
    from course_lib.record import where

    path = where()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            return Finding("progress file", True, "its folder can be written to")
    except OSError as error:
        remedy = "set the environment variable COURSE_PROGRESS to a file that you may write"
        return Finding("progress file", False, f"{path.parent}: {error.strerror}", remedy)


def doctor(versions: bool = True) -> bool:
    """Print what is well and what is missing, with the remedy, each as soon as it is known; True if all is well.
    versions=False prints no version numbers."""
    signs = {True: "✓ well   ", False: "✗ MISSING", None: "– unknown"}
    # A terminal also says what is being looked at; the finding is written over it.
    waits = sys.stdout is not None and sys.stdout.isatty()

    def announce(name: str) -> None:
        if waits:
            print(f"…         {name:<22}", end="\r", flush=True)

    ill = unknown = 0
    for finding in examine(announce):
        seen = f"  {finding.seen}" if versions or not finding.well else ""
        print(f"{signs[finding.well]} {finding.name:<22}{seen}".rstrip(), flush=True)
        if finding.remedy and not finding.well:
            print(f"            → {finding.remedy}", flush=True)
        ill += finding.well is False
        unknown += finding.well is None
    if ill or unknown:
        print(f"{ill} to mend, in this order.")
    elif (COURSE / "notebooks" / "00_start_here.ipynb").is_file():
        print("All is well: `python -m course_lib start` opens the course." if versions else "All is well.")
    else:
        print("All is well. The notebooks are not part of this installation: they come with the course's repository.")
    return not (ill or unknown)
