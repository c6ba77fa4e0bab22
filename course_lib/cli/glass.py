"""`python -m course_lib glass`: write the glass model as one self-contained page."""

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "glass",
        help="write a trained model as a web page in which you can open and remove every part",
        description=(
            "Writes one HTML file in which the model runs, with the numbers of each head, unit and block. It opens in "
            "any browser and needs no server: you can mail it, project it or put it on a site. Models of up to 200 "
            "million weights run in it, including real ones; those of more than five million are stored in 8 bits. "
            "stories15m, which tells children's stories in English, makes a page of 21 MB. SmolLM2 makes one of 183 "
            "MB, which takes a few seconds to open and a second to read a sentence."
        ),
        epilog=(
            "Examples: python -m course_lib glass --model runs/tinytown --out my_model.html · "
            "python -m course_lib glass --model stories15m --out english.html"
        ),
    )
    parser.add_argument(
        "--model",
        metavar="FOLDER",
        default="tinytown",
        help="a folder that `train` has written, or a name (default: %(default)s, the model of the course)",
    )
    parser.add_argument("--out", type=Path, default=Path("glass.html"), help="file to write (default: %(default)s)")
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    parser.set_defaults(run=run, remedy="name another file with --out")


def run(arguments: argparse.Namespace) -> int:
    """Write the page and print its size."""
    from course_lib.course.files import write_whole
    from course_lib.live.glass import HEADINGS, OF_A_MODEL, html
    from course_lib.pretrained import load_pretrained

    if arguments.out.exists() and not arguments.force:
        raise ValueError(f"{arguments.out} exists already: name another file with --out, or add --force")
    try:
        model, tokenizer = load_pretrained(arguments.model)
        heading = HEADINGS.get(arguments.model, "")
        page = html(model, tokenizer, sentences=OF_A_MODEL.get(arguments.model, ()), heading=heading)
    except TypeError as error:  # the page does not support this family
        raise ValueError(f"--model {arguments.model}: {error}") from error
    write_whole(arguments.out, lambda part: part.write_text(page, encoding="utf-8"))
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.1f} MB. Open it in a browser.")
    return 0
