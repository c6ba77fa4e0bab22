"""Build the site: draw the figures, write the pages, run Sphinx and check the result."""

import contextlib
import io
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.resources import files
from importlib.util import find_spec
from multiprocessing import get_context
from pathlib import Path

from course_lib.course.files import delete_folder, exchange_folder
from course_lib.hub.weights import weights_folder
from course_lib.site import links, pages, sharing, states
from course_lib.site.about import Course, course_of

NEEDED = ("sphinx", "myst_nb", "furo", "sphinx-mathjax-offline")
# Copy only these files of MathJax: no page loads its other input formats, output formats or speech.
MATHJAX = ("tex-chtml-full.js", "output/chtml/fonts/woff-v2")


def build(root: Path, out: Path, processes: int, large: bool = False) -> list[str]:
    """Build the web edition of the repository `root` in the folder `out`, and return its problems, one sentence each.

    Args:
        large: include the large model (see `pages.LARGE`).

    Errors: ValueError if `out` contains files but no site, or if the large model has not been fetched;
        ModuleNotFoundError if a package is missing; RuntimeError with Sphinx's messages if Sphinx fails.
    """
    if large:
        weights_folder(pages.LARGE)  # fail now, not minutes later
    out = out.resolve()
    if out.exists() and any(out.iterdir()) and not (out / "searchindex.js").exists():
        raise ValueError(f"{out} holds other files than a site of this course: name an empty folder with --out")
    if missing := [name for name in NEEDED if not find_spec(name)]:
        raise ModuleNotFoundError(f"{', '.join(missing)}: not installed", name=missing[0])  # the command says how
    course = course_of(root)  # an address that cannot be used is reported now, too
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source"
        pictures = source / "_extra" / "pictures"
        pictures.mkdir(parents=True)
        recorded = states.recorded_figures()
        draw = partial(drawn, notebooks=root / "notebooks", pictures=pictures)
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            figures = dict(zip([each.call for each in recorded], pool.map(draw, recorded)))
        pages.write_pages(root, source, figures, large)
        shutil.copytree(
            root / "web", source / "_own", ignore=shutil.ignore_patterns("*.py", "slides.*", "templates", "__pycache__")
        )
        shutil.copytree(root / "web" / "templates", source / "_templates")
        shutil.copy(root / "web" / "conf.py", source)
        _mathjax(source / "_extra" / "mathjax")
        _sphinx(source, Path(temporary) / "site", Path(temporary) / "doctrees", processes, course)
        sharing.share(Path(temporary) / "site", course, root, before=out)
        # The copy must be next to `out`, because a folder can be renamed only within one file system.
        part = out.with_name(f".{out.name}.part")
        delete_folder(part)
        shutil.copytree(Path(temporary) / "site", part)
        exchange_folder(part, out)
    return links.problems(out)


def drawn(figure: states.Recorded, notebooks: Path, pictures: Path) -> str:
    """Draw the states of a figure in a worker process. The output that its cell prints is discarded."""
    import torch

    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):
        return states.draw(figure, notebooks, pictures)


def _mathjax(target: Path) -> None:
    """Copy MathJax from the Python package that contains it."""
    source = Path(str(files("sphinx-mathjax-offline"))) / "static" / "mathjax"
    for name in MATHJAX:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        else:
            shutil.copy(source / name, target / name)


def _sphinx(source: Path, out: Path, doctrees: Path, processes: int, course: Course) -> None:
    """Run Sphinx. Every warning is an error, including a reference without a target.

    The options -A pass what the templates say about the course.
    """
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-j", str(processes)]
    command += ["-D", f"nb_execution_cache_path={doctrees}"]
    told = {"repository": course.source, "archive": course.archive, "cited": course.cited()}
    command += [word for name, value in told.items() for word in ("-A", f"{name}={value}")]
    done = subprocess.run([*command, "-d", doctrees, source, out], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError("Sphinx could not build the pages:\n" + done.stderr.strip())
