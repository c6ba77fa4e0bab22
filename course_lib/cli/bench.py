"""`python -m course_lib bench`: measure the speed of the library compared with its alternatives."""

import argparse

from course_lib.bench import PARTS


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "bench",
        help="measure how fast the library is, compared with other libraries",
        description=(
            "Times the library and its peers alternately, in one run, and prints the ratios with quartiles. It "
            "compares training and generation with transformers, nn.TransformerEncoder and a model in the style of "
            "nanoGPT, attention with nn.MultiheadAttention, imports with torch's, grading with nbgrader (if "
            "NBGRADER_PYTHON names a Python that has it), and all of them with the machine's limit. Then it measures "
            "how long each notebook takes, and how much memory an open chapter needs. It refuses to measure while "
            "other programs are busy."
        ),
        epilog="Example: python -m course_lib bench train decode --json figures.json --picture roofline.png",
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"what to measure: {', '.join(PARTS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=7, help="how often each part is timed (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="cores to use (default: all)")
    parser.add_argument("--json", metavar="FILE", help="also write all figures to this file")
    parser.add_argument("--picture", metavar="FILE", help="draw the roofline into this file (needs train or decode)")
    parser.add_argument("--record", action="store_true", help="authors: keep the figures for chapter 14 and the README")
    parser.add_argument("--anyway", action="store_true", help="measure on a busy machine; the table then says so")
    parser.set_defaults(run=run, remedy="name a file that you may write to")


def run(arguments: argparse.Namespace) -> int:
    """Measure, and print the table."""
    from pathlib import Path

    from course_lib.bench.report import RECORDED
    from course_lib.bench.run import roofline_of, run_parts
    from course_lib.checks import require_at_least_one

    unknown = [part for part in arguments.parts if part not in PARTS]
    if unknown:
        raise ValueError(f"there is no part {unknown[0]!r}: choose from {', '.join(PARTS)}")
    require_at_least_one(rounds=arguments.rounds)
    for path in filter(None, (arguments.json, arguments.picture)):
        if not Path(path).parent.is_dir():
            raise ValueError(f"{path} cannot be written: there is no folder {Path(path).parent}")
    report = run_parts(arguments.parts or PARTS, arguments.rounds, arguments.threads, arguments.anyway)
    print(report.table())
    if arguments.json:
        report.write(arguments.json)
    if arguments.record:
        report.write(RECORDED)
    if arguments.picture:
        roofline_of(report).savefig(arguments.picture, dpi=200)
    return 0
