"""`python -m course_lib site`: build the web edition."""

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "site",
        help="authors: build the web edition, the course as a static site",
        description=(
            "Builds the whole course as pages for a browser, from the notebooks and their committed outputs: it runs "
            "none of them, but draws a dozen live figures for each position of a slider. Then it checks every link and "
            "address. Needs the packages under “The web edition” in requirements.txt. The first page also has a model "
            "in English, if `weights stories15m` has downloaded one. All addresses in the pages follow from "
            "[project.urls] in pyproject.toml: the repository, Colab, Kaggle, Binder, and the site's own address for "
            "search engines, previews and the feed of claims. The site's address is Homepage there; "
            "without Homepage, it is the repository's address on GitHub Pages."
        ),
        epilog="Example: python -m course_lib site --out build/site, then open build/site/index.html",
    )
    parser.add_argument("--out", type=Path, default=Path("build/site"), help="folder to fill (default: %(default)s)")
    parser.add_argument(
        "--large",
        action="store_true",
        help=(
            "add SmolLM2-135M to the first page, for visitors who install nothing and want a model that knows "
            "something about the world: 120 MB in addition to the site's 35, downloaded only on request. Needs "
            "`weights smollm2-135m`"
        ),
    )
    parser.add_argument(
        "--elsewhere",
        type=Path,
        metavar="FOLDER",
        help="write, instead of the site, notebooks that its links to Colab and Kaggle open, which install the course",
    )
    parser.add_argument("--processes", type=int, default=2, help="processes to use (default: %(default)s)")
    parser.set_defaults(run=run, remedy="name another folder with --out")


def run(arguments: argparse.Namespace) -> int:
    """Build the site, check it, and print its size."""
    from course_lib.checks import require_at_least_one
    from course_lib.site.about import course_of, missing
    from course_lib.site.build import build

    require_at_least_one(processes=arguments.processes)
    root = Path.cwd()
    if not (root / "notebooks").is_dir() or not (root / "web").is_dir():
        raise ValueError(f"{root} has no notebooks/ and web/: run this at the top of the course's repository")
    if arguments.elsewhere:
        from course_lib.site.elsewhere import write_elsewhere

        print(f"{arguments.elsewhere}: {len(write_elsewhere(root, arguments.elsewhere))} notebooks")
        return 0
    wrong = build(root, arguments.out, arguments.processes, arguments.large)
    size = sum(path.stat().st_size for path in arguments.out.rglob("*") if path.is_file())
    pages = sum(1 for _ in arguments.out.rglob("*.html"))
    print(f"{arguments.out}: {pages} pages, {size / 1e6:.1f} MB")
    if lost := missing(course_of(root)):
        print(lost)
    print("\n".join(wrong) or "all links work, and nothing is fetched from another server")
    return 1 if wrong else 0
