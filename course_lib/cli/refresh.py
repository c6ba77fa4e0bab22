"""`python -m course_lib refresh`: run notebooks again, and write generated files."""

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "refresh",
        help="authors: run notebooks again, keep their outputs, and make the exercises from their pages",
        description=(
            "Runs the notebooks from top to bottom in fresh kernels and keeps their outputs as tests compare them."
            " The notebooks in solutions/ and exercises/ are made from the pages in course_lib/chapters/*/exercises/:"
            " change a page, not the notebooks. The command also writes the glossary, the courses in the instructor's"
            " guide, and the README's table of chapters. A notebook that raises an error stays unchanged."
        ),
        epilog="Example: python -m course_lib refresh notebooks/01_embeddings.ipynb solutions/01_embeddings.ipynb",
    )
    parser.add_argument("notebooks", nargs="*", help="files in notebooks/ or solutions/ (default: all)")
    parser.add_argument(
        "--exercises-only", action="store_true", help="run nothing: write solutions/ and exercises/ from the pages"
    )
    parser.add_argument(
        "--timeout", type=int, default=180, help="seconds that one cell may take (default: %(default)s)"
    )
    parser.set_defaults(run=run, remedy="check that you may write there")


def run(arguments: argparse.Namespace) -> int:
    """Run the given notebooks, or all, and write the files that are generated from them."""
    from tqdm.auto import tqdm

    from course_lib.bench import report
    from course_lib.checks import require_at_least_one
    from course_lib.course.contents import readme
    from course_lib.course.files import write_whole
    from course_lib.course.glossary import glossary
    from course_lib.grading.page import run_notebooks as notebook
    from course_lib.grading.page.catalogue import minutes_by_chapter
    from course_lib.lessons import plan

    require_at_least_one(timeout=arguments.timeout)
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
            raise ValueError(
                f"{path} is generated: change the exercise's page in course_lib/chapters/{path.stem[3:]}/exercises/ "
                f"and refresh solutions/{path.name}"
            )
    for number, path in enumerate(bar := tqdm(paths, desc="running notebooks", unit="notebook", disable=not paths)):
        bar.set_postfix_str(path.name)
        if number:
            arguments.kept = (
                f"This run refreshed {number} of {len(paths)} notebooks; the files made from them are not written yet."
            )
        if path.resolve().parent.name == "solutions":
            notebook.write_solution(path)
        notebook.refresh(path, timeout=arguments.timeout)
    for path in notebook.write_exercises(root / "solutions", root / "exercises"):
        print(f"wrote {path.relative_to(root)}")
    words = root / "notebooks" / "glossary.md"
    if (text := glossary(root / "notebooks")) != (words.read_text("utf-8") if words.exists() else ""):
        write_whole(words, lambda part: part.write_text(text, encoding="utf-8"))
        print(f"wrote {words.relative_to(root)}")
    page = root / "solutions" / "README.md"
    text = page.read_text("utf-8") if page.is_file() else ""
    if plan.GUIDE_BEGIN in text and (made := plan.guide(text, root / "notebooks")) != text:
        write_whole(page, lambda part: part.write_text(made, encoding="utf-8"))
        print("wrote the courses in solutions/README.md")
    page = root / "README.md"
    text = report.readme(readme(page.read_text("utf-8"), root / "exercises", minutes_by_chapter()), report.recorded())
    if text != page.read_text("utf-8"):
        write_whole(page, lambda part: part.write_text(text, encoding="utf-8"))
        print("wrote README.md")
    return 0
