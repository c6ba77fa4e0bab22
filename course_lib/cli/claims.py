"""`python -m course_lib claims`: measure what is said about Transformers."""

import argparse


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "claims",
        help="measure what is said about Transformers",
        description=(
            "Runs the experiments of the course, each under a minute on two cores, and prints for each claim what was "
            "measured and whether it is borne out. Figures with seeds are the same on every machine; times are not."
        ),
        epilog="Example: python -m course_lib claims --chapter 5",
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="experiments (default: all)")
    parser.add_argument("--chapter", type=int, action="append", help="only those of this chapter; may be given again")
    parser.add_argument("--list", action="store_true", help="run nothing: list the claims")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--record", action="store_true", help="authors: keep the findings for chapter 16 and the README"
    )
    parser.add_argument("--threads", type=int, default=1, help="cores to use (default: %(default)s)")
    parser.set_defaults(run=run, remedy="see that you may write there")


def run(arguments: argparse.Namespace) -> int:
    """Run the experiments that are chosen and print what they find."""
    import json
    import textwrap
    from dataclasses import asdict

    import torch
    from tqdm.auto import tqdm

    from course_lib.checks import require_at_least_one
    from course_lib.claims import VERDICTS, find, in_order, record

    require_at_least_one(threads=arguments.threads)
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
    try:
        for each in (bar := tqdm(chosen, desc="measuring", unit="claim")):
            bar.set_postfix_str(each.id)
            finding = found[each.id] = each()
            if not arguments.json:
                where = f"chapter {each.chapter}, {each.id}" + (", this machine" if each.timed else "")
                lines = [
                    textwrap.fill(line, 110, initial_indent="  ", subsequent_indent="    ")
                    for line in each.told(finding)
                ]
                bar.write("\n".join(["", where, *lines]))
            if arguments.record or not arguments.json:
                rest = "and recorded them" if arguments.record else "and printed their findings; it recorded nothing"
                arguments.kept = f"This run measured {len(found)} of {len(chosen)} claims {rest}."
    finally:  # an interruption loses nothing that was measured
        if arguments.record and found:
            from course_lib.chapters.claims.widgets import picture

            record(found)
            print(f"recorded {len(found)} findings; drew {picture()}")
    if arguments.json:
        print(json.dumps({id: asdict(finding) for id, finding in found.items()}, indent=1, ensure_ascii=False))
        return 0
    counts = [f"{sum(f.verdict == v for f in found.values())} {v}" for v in VERDICTS]
    print(f"\n{len(found)} claims: {', '.join(counts)}")
    return 0
