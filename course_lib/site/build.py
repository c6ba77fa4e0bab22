"""Build the site: figures drawn, pages written, Sphinx called, the result checked."""

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
from course_lib.site import links, pages, states

# The files of MathJax that a page asks for; the others (other inputs, other outputs, speech) stay where they are.
NEEDED = ("sphinx", "myst_nb", "furo", "sphinx-mathjax-offline")
MATHJAX = ("tex-chtml-full.js", "output/chtml/fonts/woff-v2")


def build(root: Path, out: Path, processes: int, large: bool = False) -> list[str]:
    """Build the web edition of the repository `root` into `out`; return what is wrong with it, a sentence each.

    Args:
        large: with the large model beside it (see `pages.LARGE`).

    Errors: ValueError if `out` holds something that is no site, or the large model was not fetched;
        ModuleNotFoundError for a package; RuntimeError with what Sphinx says if it fails.
    """
    if large:
        weights_folder(pages.LARGE)  # refuses at once what would fail minutes later
    out = out.resolve()
    if out.exists() and any(out.iterdir()) and not (out / "searchindex.js").exists():
        raise ValueError(f"{out} holds files that are no site of this course: name an empty folder with --out")
    if missing := [name for name in NEEDED if not find_spec(name)]:
        raise ModuleNotFoundError(f"{', '.join(missing)}: not installed", name=missing[0])  # the command says how
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source"
        pictures = source / "_extra" / "pictures"
        pictures.mkdir(parents=True)
        recorded = states.recorded_figures()
        draw = partial(drawn, notebooks=root / "notebooks", pictures=pictures)
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            figures = dict(zip([each.call for each in recorded], pool.map(draw, recorded)))
        pages.write_pages(root, source, figures, large)
        shutil.copytree(root / "web", source / "_own", ignore=shutil.ignore_patterns("*.py", "slides.*", "__pycache__"))
        shutil.copy(root / "web" / "conf.py", source)
        _mathjax(source / "_extra" / "mathjax")
        _sphinx(source, Path(temporary) / "site", Path(temporary) / "doctrees", processes)
        part = out.with_name(f".{out.name}.part")  # beside it: a new name is given within one disk only
        delete_folder(part)
        shutil.copytree(Path(temporary) / "site", part)
        exchange_folder(part, out)
    return links.problems(out)


def drawn(figure: states.Recorded, notebooks: Path, pictures: Path) -> str:
    """Draw a figure's states in a process of its own; what its cell prints is not for this page."""
    import torch

    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):
        return states.draw(figure, notebooks, pictures)


def _mathjax(target: Path) -> None:
    """Copy MathJax, which a package of Python's brings along."""
    source = Path(str(files("sphinx-mathjax-offline"))) / "static" / "mathjax"
    for name in MATHJAX:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name)
        else:
            shutil.copy(source / name, target / name)


def _sphinx(source: Path, out: Path, doctrees: Path, processes: int) -> None:
    """Call Sphinx; every warning is an error, and so is a reference that leads nowhere."""
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-j", str(processes)]
    command += ["-D", f"nb_execution_cache_path={doctrees}"]
    done = subprocess.run([*command, "-d", doctrees, source, out], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError("Sphinx could not build the pages:\n" + done.stderr.strip())
