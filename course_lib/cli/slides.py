"""`python -m course_lib slides`: write a chapter's slides as one self-contained page."""

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "slides",
        help="teachers: write a chapter's slides, one file for any browser",
        description=(
            "Writes one HTML file, 1280 × 720, from a chapter's notebook: headings, guesses whose answers appear at a "
            "key press, figures with a slider over their recorded states, the glass model at work, formulas, "
            "measurements. It needs no server. Keys: arrows, space, Home, End turn the pages; f fills the screen; p "
            "opens the presenter's window with your notes, the chapter's prose and a clock; o shows all slides; ? "
            "lists the keys. To print, or to make a PDF with a slide on each page, print from the browser. Needs the "
            "packages under “The web edition” in requirements.txt."
        ),
        epilog="Example: python -m course_lib slides attention --out attention.html",
    )
    parser.add_argument("chapter", metavar="CHAPTER", help="its number or its name")
    parser.add_argument("--out", type=Path, metavar="FILE", help="file to write (default: build/slides/NAME.html)")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.set_defaults(run=run, remedy="name another file with --out")


def run(arguments: argparse.Namespace) -> int:
    """Write the slides and print their number."""
    from course_lib.cli.start import chapter_of
    from course_lib.course.files import write_whole
    from course_lib.site.slides import slides

    root, chapter = Path.cwd(), chapter_of(arguments.chapter)
    if not (root / "notebooks").is_dir() or not (root / "web").is_dir():
        raise ValueError(f"{root} holds no notebooks/ and web/: run this at the top of the course's repository")
    out = arguments.out or root / "build" / "slides" / Path(chapter.notebook).with_suffix(".html").name
    if out.exists() and not arguments.force:
        raise ValueError(f"{out} exists already: name another file with --out, or add --force")
    print(
        f"Making the slides of chapter {chapter.number}: its live figures are being drawn, state by state …", flush=True
    )
    made = slides(root, chapter)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, lambda part: part.write_text(made, encoding="utf-8"))
    count = made.count('<section class="')
    print(f"{out}: {count} slides, {out.stat().st_size / 1e6:.1f} MB. Open it in a browser; p opens your notes.")
    return 0
