"""`python -m course_lib claims`: test claims about Transformers."""

import argparse
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.claims import Experiment, Finding


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "claims",
        help="measure popular claims about Transformers",
        description=(
            "Runs the course's experiments, and prints the measurement and the verdict for each claim. An experiment "
            "takes at most about a minute on one core. Figures with seeds are the same on every machine; times are "
            "not. --stress measures the claims that train models again, with four times the steps and with twice the "
            "width. The exit status is 1 if a claim that was confirmed or refuted gets another verdict."
        ),
        epilog="Examples: python -m course_lib claims --chapter 5 · python -m course_lib claims --stress --jobs 2",
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="experiments (default: all)")
    parser.add_argument("--chapter", type=int, action="append", help="only those of this chapter; may be repeated")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="run nothing: list the claims")
    what.add_argument("--about", action="store_true", help="run nothing: print the record of each claim")
    what.add_argument("--json", action="store_true", help="print the findings as JSON")
    what.add_argument(
        "--record", action="store_true", help="authors: keep the findings for the chapters and the README"
    )
    what.add_argument(
        "--stress",
        action="store_true",
        help="repeat trained claims at other sizes and keep the findings; continues where it was interrupted",
    )
    parser.add_argument("--again", action="store_true", help="with --stress: also repeat those that are recorded")
    parser.add_argument("--jobs", type=int, default=1, help="with --stress: processes to use (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="cores to use (default: %(default)s)")
    parser.set_defaults(run=run, remedy="check that you may write there")


def run(arguments: argparse.Namespace) -> int:
    """Run the chosen experiments and print their findings."""
    import torch

    from course_lib.checks import require_at_least_one
    from course_lib.claims import find, in_order

    require_at_least_one(threads=arguments.threads, jobs=arguments.jobs)
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
    if arguments.about:
        return _about(chosen)
    if arguments.stress:
        return _stress(arguments, chosen)
    return _measure(arguments, chosen)


def _paragraphs(each: "Experiment", finding: "Finding") -> str:
    """Return a claim with its full finding, as text for the terminal."""
    from course_lib.claims.card import rows_as_text

    claim, verdict, *rest = (
        textwrap.fill(line, 110, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
        for line in each.told(finding)
    )
    return "\n".join(["", f"chapter {each.chapter}, {each.id}", claim, verdict, *rows_as_text(finding.rows), *rest])


def _about(chosen: Sequence["Experiment"]) -> int:
    from course_lib.claims import recorded

    known = recorded()
    for each in chosen:
        print(_paragraphs(each, known[each.id]) if each.id in known else f"\n{each.id}: nothing is recorded yet")
    return 0


def _measure(arguments: argparse.Namespace, chosen: Sequence["Experiment"]) -> int:
    import json
    from dataclasses import asdict

    from tqdm.auto import tqdm

    from course_lib.claims import VERDICTS, record

    found: dict[str, Finding] = {}
    try:
        for each in (bar := tqdm(chosen, desc="measuring", unit="claim")):
            bar.set_postfix_str(each.id)
            finding = found[each.id] = each()
            if not arguments.json:
                bar.write(_paragraphs(each, finding))
            if arguments.record or not arguments.json:
                rest = "and recorded them" if arguments.record else "and printed their findings; it recorded nothing"
                arguments.kept = f"This run measured {len(found)} of {len(chosen)} claims {rest}."
    finally:  # record finished measurements even after an interruption
        if arguments.record and found:
            record(found)
            print(f"\nrecorded {len(found)} findings{_picture()}")
            print(_to_refresh(found))
    if arguments.json:
        print(json.dumps({id: asdict(finding) for id, finding in found.items()}, indent=1, ensure_ascii=False))
        return 0
    counts = [f"{sum(f.verdict == v for f in found.values())} {v}" for v in VERDICTS]
    print(f"\n{len(found)} claims: {', '.join(counts)}")
    return 0


def _picture() -> str:
    """Draw the README's picture if all its claims are on record; return a message."""
    from course_lib.chapters.claims.widgets import FOR_THE_README, picture
    from course_lib.claims import recorded

    return f"; drew {picture()}" if set(FOR_THE_README) <= recorded().keys() else ""


def _to_refresh(found: dict[str, "Finding"]) -> str:
    """Return a message with the notebooks that show these findings, and the command that updates their outputs."""
    from course_lib.claims import find
    from course_lib.course.contents import BY_SLUG, CHAPTERS

    numbers = {find(id).chapter for id in found} | {BY_SLUG["claims"].number}
    notebooks = (f"notebooks/{CHAPTERS[number].notebook}" for number in sorted(numbers))
    return f"To show them, run: python -m course_lib refresh {' '.join(notebooks)}"


def _stress(arguments: argparse.Namespace, chosen: Sequence["Experiment"]) -> int:
    from tqdm.auto import tqdm

    from course_lib.claims import find, record, record_tried, recorded
    from course_lib.claims.stress import stress

    known = recorded()
    trained = [each for each in chosen if each.trained]
    waiting = [each for each in trained if arguments.again or each.id not in known or not known[each.id].tried]
    if len(waiting) < len(trained):
        print(f"{len(trained) - len(waiting)} of {len(trained)} trained claims are recorded at other sizes already")
    turned = [each.id for each in trained if each not in waiting and known[each.id].turned]
    bar = tqdm(stress(waiting, arguments.jobs), total=len(waiting), desc="measuring", unit="claim")
    for number, (id, tried) in enumerate(bar if waiting else (), 1):
        if id not in known:
            record({id: find(id)()})
        finding = record_tried(id, tried)
        bar.write(_paragraphs(find(id), finding))
        sys.stdout.flush()  # so that a log shows each finding at once
        arguments.kept = (
            f"This run measured and recorded {number} of {len(waiting)} claims; the same command measures the rest."
        )
        turned += [id] if finding.turned else []
    print(f"\n{len(trained)} trained claims tried at other sizes; {len(turned)} verdicts changed")
    for id in turned:
        print(f"  {id}: make its verdict “depends” and say on what, or let the experiment train longer")
    return 1 if turned else 0
