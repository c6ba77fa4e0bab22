"""`python -m course_lib ladder`: measure the course's growing model after each chapter."""

import argparse


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "ladder",
        help="the model that grows through the course, measured after each chapter",
        description=(
            "Prints the ladder: for each rung the loss per token on held-out stories, and how far it is above the "
            "entropy, which no honest predictor can beat. With names of rungs, it trains these rungs again with "
            "three seeds each, and prints them next to the record. A rung takes one to five minutes on two cores."
        ),
        epilog="Example: python -m course_lib ladder masks heads",
    )
    parser.add_argument("rungs", nargs="*", metavar="RUNG", help="rungs to train again (default: none)")
    parser.add_argument("--all", action="store_true", help="train every rung again")
    parser.add_argument("--threads", type=int, default=2, help="cores to use (default: %(default)s)")
    parser.add_argument("--record", action="store_true", help="authors: keep the figures for the chapters")
    parser.set_defaults(run=run, remedy="check that you may write there")


def run(arguments: argparse.Namespace) -> int:
    """Print the record, or train rungs and print their results next to it."""
    import torch

    from course_lib.checks import require_at_least_one
    from course_lib.device import computes_on
    from course_lib.ladder.climb import draw_record
    from course_lib.ladder.picture import told
    from course_lib.ladder.rungs import RUNGS, SEEDS, Height, get_rung, recorded, train_rung, write_record

    require_at_least_one(threads=arguments.threads)
    torch.set_num_threads(arguments.threads)
    chosen = (
        [rung for rung in RUNGS.values() if rung.seconds] if arguments.all else [get_rung(id) for id in arguments.rungs]
    )
    if not chosen:
        for rung in RUNGS.values():
            print(f"{rung.id:<18} {rung.label:<42} {told(recorded()[rung.id])}")
        return 0
    for number, rung in enumerate(chosen, 1):
        print(f"{rung.label}: training with seeds {', '.join(map(str, SEEDS))} on {computes_on()}")
        heights = [train_rung(rung.id, seed, progress=True)[1] for seed in SEEDS]
        found = Height(tuple(height.nats[0] for height in heights), heights[0].grammar)
        print(f"  here       {told(found)}")
        if rung.id in recorded():
            print(f"  on record  {told(recorded()[rung.id])}")
        if arguments.record:
            write_record({rung.id: found})
        rest = "and recorded them" if arguments.record else "and recorded nothing"
        arguments.kept = f"This run trained {number} of {len(chosen)} rungs {rest}."
    if arguments.record:
        print(f"drew {draw_record()}")
    return 0
