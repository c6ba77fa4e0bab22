"""`python -m course_lib speedrun`: how little arithmetic brings a model within 1% of the entropy?"""

import argparse
from pathlib import Path

KEPT = Path("runs/speedrun.json")


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "speedrun",
        help="race: bring a model within 1% of Tinytown's entropy with the least arithmetic",
        description=(
            "Trains the model of a file with three seeds, and measures it on fresh stories. It counts if every seed "
            "ends within 1% of the entropy; the less arithmetic its training needs, the better. The file has a "
            "function train(text, seed) that returns a model, as the records in course_lib/speedrun/records do, or it "
            "is your my_gpt.py. Without a file, the records are printed. You may interrupt it; the same command "
            "continues with the seeds that are missing."
        ),
        epilog=(
            "Rules: the file stands alone, in at most 20,000 characters; it imports torch and the parts of this "
            "course, no text, no weights. Arithmetic is the number of operations in all matrix products of training. "
            "Example: python -m course_lib speedrun my_gpt.py"
        ),
    )
    parser.add_argument("file", nargs="?", metavar="FILE", help="a my_gpt.py, or a file with train(text, seed)")
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds to run (default: %(default)s)")
    parser.add_argument("--records", action="store_true", help="print the records, and what each one teaches")
    parser.add_argument("--again", metavar="NAME", help="run a record again, and print it next to its figures")
    parser.add_argument("--record", action="store_true", help="authors: keep the figures of --again")
    parser.add_argument("--picture", metavar="PNG", help="draw the records and your file into this picture")
    parser.set_defaults(run=run, remedy="check that you may write there")


def run(arguments: argparse.Namespace) -> int:
    """Print the records, or run a file and print its result next to them."""
    from course_lib.checks import require_at_least_one
    from course_lib.speedrun.judge import SEEDS
    from course_lib.speedrun.rules import Entry, Refused
    from course_lib.speedrun.table import files, keep, records

    require_at_least_one(seeds=arguments.seeds)
    if arguments.again and arguments.again not in files():
        raise ValueError(f"there is no record {arguments.again!r}: choose from {', '.join(files())}")
    if not (arguments.file or arguments.again):
        _print_records(lessons=arguments.records)
        return _drawn(arguments, {})
    try:
        entry = files()[arguments.again] if arguments.again else Entry.read(arguments.file)
        runs = _runs(arguments, entry, [*SEEDS, *range(len(SEEDS), arguments.seeds)][: arguments.seeds])
    except Refused as error:
        raise ValueError(str(error)) from None
    _print_result(entry.name, runs)
    if arguments.again and arguments.record:
        keep(entry.name, tuple(runs))
    elif records():
        print()
        _print_records(lessons=False)
    return _drawn(arguments, {} if arguments.again else {entry.name: runs})


def _runs(arguments: argparse.Namespace, entry, seeds: list[int]) -> list:
    """Run the seeds that are missing; keep each one as soon as it has ended."""
    from dataclasses import asdict

    from tqdm import tqdm

    from course_lib.course.files import read_json, save_json
    from course_lib.speedrun.judge import Run, run

    kept = read_json(KEPT) if KEPT.exists() else {}
    own = kept.setdefault(f"{entry.name} {entry.number('file'):010x}", {})
    for seed in seeds:
        if str(seed) in own and not arguments.again:
            continue
        with tqdm(desc=f"seed {seed}: making stories", unit="step") as bar:

            def moved(done: int, total: int, bar=bar, seed=seed) -> None:
                bar.set_description(f"seed {seed}", refresh=False)
                bar.total = total
                bar.update(done - bar.n)

            own[str(seed)] = asdict(run(entry, seed, moved))
        KEPT.parent.mkdir(exist_ok=True)
        save_json(KEPT, kept)
        arguments.kept = f"The same command continues: {len(own)} of {len(seeds)} seeds are in {KEPT}."
    return [Run(**own[str(seed)]) for seed in seeds]


def _print_result(name: str, runs: list) -> None:
    from course_lib.speedrun.judge import entropy
    from course_lib.speedrun.rules import WITHIN

    limit = WITHIN * entropy()
    print(f"{name}: nats per token above the grammar, on 500 fresh stories (within 1% is at most {limit:.4f})")
    for each in runs:
        verdict = "within 1%" if each.within else "not within 1%"
        print(
            f"  seed {each.seed}   {each.above:7.4f}   {verdict:<14} {each.arithmetic / 1e12:7.2f} · 10¹² operations   "
            f"{each.seconds:5.0f} s"
        )
    if all(each.within for each in runs):
        print("It counts." if len(runs) >= 3 else "Run three seeds, so that it counts.")
    else:
        print("It does not count yet: every seed must be within 1%.")


def _print_records(lessons: bool) -> None:
    from course_lib.speedrun.table import records

    kept = records()
    if not kept:
        print("There are no records yet.")
        return
    first = kept[0].arithmetic
    print(f"{'record':<22}{'10¹² operations':>16}{'of the first':>14}{'nats above, each seed':>26}")
    for each in kept:
        seeds = "  ".join(f"{run.above:.4f}" for run in each.runs)
        share = f"{each.arithmetic / first:.2f}"
        print(f"{each.name:<22}{each.arithmetic / 1e12:>16.2f}{share:>14}{seeds:>26}")
        if lessons:
            print(f"    {each.title}. {each.lesson}")


def _drawn(arguments: argparse.Namespace, own: dict) -> int:
    if arguments.picture:
        from course_lib.course.files import write_whole
        from course_lib.live.figure import png
        from course_lib.speedrun.picture import draw
        from course_lib.speedrun.table import records

        image = png(draw(records(), own))
        write_whole(Path(arguments.picture), lambda part: part.write_bytes(image))
        print(f"drew {arguments.picture}")
    return 0
