"""`python -m course_lib doctor`: check whether this environment can run the course, and say how to fix it.

The command works without torch: each package is imported only when it is checked.
"""

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.cli import missing as brought_by
from course_lib.course.contents import named, released
from course_lib.course.files import COURSE

PACKAGES = (
    "torch",
    "numpy",
    "matplotlib",
    "ipywidgets",
    "jupyterlab",
    "nbclient",
    "safetensors",
    "tokenizers",
    "tqdm",
)
# Bytes, as solutions/README.md has them: the server and the kernel of one chapter, or of a chapter and its exercises.
FOR_A_CHAPTER, FOR_TWO_NOTEBOOKS = 0.65e9, 1.0e9
PROGRAMS = ("jupyterlab", "nbclient")  # the course runs them and does not import them, which would take seconds


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "doctor",
        help="check whether this environment can run the course, and say how to fix it",
        description=(
            "Checks Python, the packages and their versions, the sliders, the shipped model, the exercises and the "
            "progress file, and reports each result as soon as it is known. Needs no network. A note (•) needs no "
            "action. Exit status 1 if there is a problem."
        ),
    )
    parser.set_defaults(run=run, remedy="see that it can be used")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if there is no problem, otherwise 1."""
    return 0 if doctor() else 1


@dataclass
class Finding:
    """The result of one check, with a remedy if there is a problem.

    well: whether all is well; None if the check could not run because a requirement is missing. is_missing: not
    installed. is_note: needs no action.
    """

    name: str
    well: bool | None
    seen: str
    remedy: str = ""
    is_missing: bool = False
    is_note: bool = False

    @property
    def sign(self) -> str:
        if self.well:
            return "• note   " if self.is_note else "✓ ok     "
        if self.well is None:
            return "– unknown"
        return "✗ MISSING" if self.is_missing else "✗ PROBLEM"


def examine(announce: Callable[[str], object] = lambda name: None) -> Iterator[Finding]:
    """Check everything that the course needs, in the order of use.

    announce: called with the name of each check before it runs, because the first import of torch may take a while.
    """
    remedy = "install Python 3.11 or newer and create the environment again"
    yield Finding("Python", sys.version_info >= (3, 11), platform.python_version(), remedy)
    missing: set[str] = set()
    ranges = _ranges()
    for package in PACKAGES:
        announce(package)
        found = _package(package, ranges.get(package))
        if not found.well:
            missing.add(package)
        yield found
    yield _sliders()
    needs: tuple[str, ...]
    for name, needs, look in (
        ("device", ("torch",), _device),
        ("Tinytown model", ("torch", "safetensors", "tokenizers", "tqdm"), _model),
        ("progress file", (), _progress_file),
        ("exercises", ("torch", "numpy"), _exercises),
    ):
        announce(name)
        if not missing.intersection(needs):
            try:
                yield look()
                continue
            except ImportError as error:  # from a package without its own check
                package = (error.name or "a package").partition(".")[0]
                if package not in missing:
                    yield _not_imported(package, error)
                missing.add(package)
                needs = (package,)
        yield Finding(name, None, f"not checked: it needs {' and '.join(need for need in needs if need in missing)}")
    yield from on_hub()
    yield from _notes()


def _ranges() -> dict[str, Any]:
    """Return the versions of each package that the course accepts, if its installation lists them."""
    try:
        from packaging.requirements import Requirement

        required = [Requirement(each) for each in importlib.metadata.requires(brought_by.NAME) or ()]
    except (ImportError, importlib.metadata.PackageNotFoundError):
        return {}
    return {each.name: each.specifier for each in required}  # from all extras, which agree on one range per package


def _package(package: str, accepted: Any) -> Finding:
    """Check that a package is installed, can be imported, and has a version that the course accepts."""
    try:
        if package in PROGRAMS and importlib.util.find_spec(package):
            version = importlib.metadata.version(package)
        else:
            version = str(getattr(importlib.import_module(package), "__version__", "installed"))
    except Exception as error:
        return _not_imported(package, error)
    if accepted is not None and version != "installed" and not accepted.contains(version, prereleases=True):
        return Finding(package, False, f"{version}, but the course needs {accepted}", _install(package))
    return Finding(package, True, version)


def _not_imported(package: str, error: Exception) -> Finding:
    """Distinguish a package that is not installed from one that cannot be loaded."""
    if isinstance(error, ModuleNotFoundError) and (error.name or package).partition(".")[0] == package:
        return Finding(package, False, "not installed in this environment", _install(package), is_missing=True)
    remedy = f"{_install(package)}, with --force-reinstall"
    if platform.system() == "Windows" and isinstance(error, OSError):  # usually because of a missing DLL of torch
        remedy = "install Microsoft's Visual C++ Redistributable (x64) and try again; if that does not help, " + remedy
    return Finding(package, False, f"installed, but cannot be loaded: {type(error).__name__}: {error}", remedy)


def _notes() -> Iterator[Finding]:
    """Report the kind of this installation, and whether it can grade a class."""
    if not (COURSE / "notebooks").is_dir():
        yield Finding("the course", True, "only the library, without notebooks", is_note=True)
    elif (holds := released()) is not None:
        yield Finding("the course", True, f"a learner's package with {named(holds)}", is_note=True)
    if not (COURSE / "solutions").is_dir():
        return
    if platform.system() == "Linux" and shutil.which("bwrap"):
        yield Finding("grading a class", True, "bubblewrap is installed", is_note=True)
    else:
        what = "bubblewrap is not installed" if platform.system() == "Linux" else "bubblewrap needs Linux"
        yield Finding(
            "grading a class",
            True,
            f"{what}; learners do not need it, and teachers can use `grade --sandbox docker`",
            is_note=True,
        )


def on_hub() -> Iterator[Finding]:
    """On a JupyterHub, say whose server this is, whether its memory is enough, and what `start` does."""
    user, limit = os.environ.get("JUPYTERHUB_USER"), os.environ.get("MEM_LIMIT", "")
    if not user:
        return
    does = "`start` copies the course into my/ and opens nothing: the hub's JupyterLab is open already"
    if not limit.isdecimal() or not int(limit):
        yield Finding(
            "JupyterHub", True, f"the server of {user}, whose memory limit is not known; {does}", is_note=True
        )
        return
    has = f"the server of {user} may use {int(limit) / 1e9:.1f} GB of memory"
    if int(limit) < FOR_A_CHAPTER:
        seen = f"{has}, but a chapter needs {FOR_A_CHAPTER / 1e9:.1f} GB: its kernel would die"
        yield Finding("JupyterHub", False, seen, "ask those who run the hub for a memory limit of 2 GB (mem_limit)")
        return
    enough = "a chapter and its exercises" if int(limit) >= FOR_TWO_NOTEBOOKS else "one open notebook at a time"
    yield Finding("JupyterHub", True, f"{has}, enough for {enough}; {does}", is_note=True)


def _install(package: str) -> str:
    """Return how to install a package, or to use the course's own environment if it exists and this is another."""
    own = COURSE / ".venv"
    if (own / "pyvenv.cfg").is_file() and Path(sys.prefix).resolve() != own.resolve():
        python = own / ("Scripts/python.exe" if platform.system() == "Windows" else "bin/python")
        return f"this is a different Python, {sys.executable}: run the course's own, `{python} -m course_lib doctor`"
    return f"run `python -m pip install {brought_by.install(package) or package}` in the course's environment"


def _sliders() -> Finding:
    """Check for jupyterlab_widgets, the part of the sliders that runs in the browser."""
    remedy = "run `python -m pip install --force-reinstall ipywidgets jupyterlab_widgets`, then restart JupyterLab"
    try:
        importlib.import_module("jupyterlab_widgets")
        return Finding("sliders in JupyterLab", True, "jupyterlab_widgets is installed")
    except ImportError:
        return Finding(
            "sliders in JupyterLab", False, "jupyterlab_widgets is missing: sliders would stay blank", remedy, True
        )


def _device() -> Finding:
    """Report which device the notebooks will use, and whether this machine has a faster one."""
    from course_lib.device import VARIABLE, find_device

    named = os.environ.get(VARIABLE)
    try:
        device, fastest = find_device(named or "cpu").type, find_device("auto").type
    except ValueError as error:
        return Finding("device", False, str(error), f"set {VARIABLE} to cpu or auto, or unset it")
    other = f"; `python -m course_lib start --device {fastest}` uses {fastest}" if fastest != device else ""
    return Finding("device", True, f"notebooks run on {device}{other}", is_note=True)


def _model() -> Finding:
    from course_lib.pretrained import load_pretrained

    try:
        model, tokenizer = load_pretrained("tinytown")
    except ImportError:  # the package's import failed, and not the model
        raise
    except Exception as error:
        return Finding(
            "Tinytown model", False, str(error), "download the repository again: course_lib/assets is incomplete"
        )
    count = sum(parameter.numel() for parameter in model.parameters())
    return Finding("Tinytown model", True, f"{count:,} parameters, {len(tokenizer)} tokens")


def _exercises() -> Finding:
    """Read one page, to check that the pages (or a learner's sealed file of them) exist and are readable."""
    try:
        from course_lib.grading.page.catalogue import EXERCISES

        first = next(iter(EXERCISES.values()), None)
    except ImportError:
        raise
    except Exception as error:
        remedy = "download the course again: its exercises are incomplete"
        return Finding("exercises", False, f"{type(error).__name__}: {error}", remedy)
    return Finding("exercises", True, f"{len(EXERCISES)} can be checked" if first else "none yet", is_note=True)


def _progress_file() -> Finding:
    from course_lib.course.record import where

    path = where()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            return Finding("progress file", True, "its folder can be written to")
    except OSError as error:
        remedy = "set the environment variable COURSE_PROGRESS to a file that you may write"
        return Finding("progress file", False, f"{path.parent}: {error.strerror}", remedy)


def doctor(versions: bool = True) -> bool:
    """Print the result of each check at once, with the remedy for a problem; return True if there is no problem.

    versions: False leaves out version numbers and notes."""
    # A terminal also shows the current check, and the result overwrites this line.
    waits = sys.stdout is not None and sys.stdout.isatty()

    def announce(name: str) -> None:
        if waits:
            print(f"…         {name:<22}", end="\r", flush=True)

    ill = unknown = 0
    for finding in examine(announce):
        if finding.is_note and finding.well and not versions:
            continue
        seen = f"  {finding.seen}" if versions or not finding.well else ""
        print(f"{finding.sign} {finding.name:<22}{seen}".rstrip(), flush=True)
        if finding.remedy and not finding.well:
            print(f"            → {finding.remedy}", flush=True)
        ill += finding.well is False
        unknown += finding.well is None
    if ill or unknown:
        print(f"{ill} {'problem' if ill == 1 else 'problems'} to fix, in this order.")
    elif (COURSE / "notebooks" / "00_start_here.ipynb").is_file():
        print(
            "Everything is ready: `python -m course_lib start` opens the course."
            if versions and not os.environ.get("JUPYTERHUB_USER")
            else "Everything is ready."
        )
    else:
        print("Everything is ready. This installation has no notebooks: they come with the course's repository.")
    return not (ill or unknown)
