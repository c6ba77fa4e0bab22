"""Common arguments of the commands that set up grading for a class."""

import argparse


def add_assignment(parser: argparse.ArgumentParser) -> None:
    """Add the arguments for the assigned chapters, and for the index where pip finds torch."""
    parser.add_argument(
        "--chapters", type=int, nargs="+", required=True, metavar="N", help="chapters of the assignment"
    )
    parser.add_argument("--index", default="", metavar="ADDRESS", help="where pip finds torch without CUDA")
