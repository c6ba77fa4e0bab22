"""What the grader says of every answer that the suite knows, as one file: to hold two states of the course against each
other.

    python -m tests.verdicts before.json          # some minutes on two cores
    python -m tests.verdicts after.json --compare before.json --renamed ffn=feed_forward norm=normalization

For every exercise: the reference, the right answers in other styles, and every mistake in each of its forms, with each
seed. What is kept of a verdict is its status and the name of the mistake. Two files are equal, but for renamed ids, if
a rebuilding changed nothing for learners.
"""

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

SEEDS = (0, 1, 2)


def answers(exercise) -> dict[str, object]:
    """Every answer to an exercise that the suite knows, by a name that says what it is."""
    from test_grading import RIGHT, right_answer

    from tests.confusion import complete

    found = {"reference": right_answer(exercise)}
    for number, answer in enumerate(RIGHT.get(exercise.id, [])):
        found[f"right {number}: {getattr(answer, '__name__', '')}"] = answer
    for mistake in exercise.misconceptions:
        for number, wrong in enumerate(mistake.variants):
            found[f"mistake {mistake.name} {number}"] = complete(exercise, wrong)
    for option in exercise.options:
        found[f"option {option.key}"] = option.key
    return found


def verdicts(exercise_id: str, seeds: tuple[int, ...]) -> tuple[str, dict[str, list]]:
    """For each answer the status and the named mistake, one after the other, for each seed."""
    import torch

    from course_lib.grading import EXERCISES, grade

    torch.set_num_threads(1)
    found = {}
    for name, answer in answers(EXERCISES[exercise_id]).items():
        results = [grade(exercise_id, answer, seed) for seed in seeds]
        found[name] = [[result.status, result.misconception] for result in results]
    return exercise_id, found


def differences(before: dict, after: dict, renamed: dict[str, str]) -> list[str]:
    """In sentences, what is not the same in two records."""

    def known(exercise_id: str) -> str:
        chapter, _, name = exercise_id.partition(".")
        return f"{renamed.get(chapter, chapter)}.{name}"

    before = {known(exercise_id): found for exercise_id, found in before.items()}
    told = [f"{name}: only before" for name in before.keys() - after.keys()]
    told += [f"{name}: only after" for name in after.keys() - before.keys()]
    for exercise_id in sorted(before.keys() & after.keys()):
        one, other = before[exercise_id], after[exercise_id]
        for name in sorted(one.keys() | other.keys()):
            if one.get(name) != other.get(name):
                told.append(f"{exercise_id}, {name}: {one.get(name, 'absent')} → {other.get(name, 'absent')}")
    return told


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.verdicts", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="where the verdicts are written, as JSON")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier file: say what differs")
    parser.add_argument("--renamed", nargs="*", default=[], metavar="OLD=NEW", help="chapters that changed their name")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS), help="default: %(default)s")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    arguments = parser.parse_args()

    from tqdm.auto import tqdm

    from course_lib.grading import EXERCISES

    with ProcessPoolExecutor(arguments.jobs) as pool:
        jobs = [pool.submit(verdicts, exercise_id, tuple(arguments.seeds)) for exercise_id in EXERCISES]
        record = dict(job.result() for job in tqdm(jobs, unit="exercise"))
    arguments.file.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    counted = sum(len(results) for found in record.values() for results in found.values())
    print(f"{counted:,} verdicts on {len(record)} exercises")
    if not arguments.compare:
        return 0
    told = differences(
        json.loads(arguments.compare.read_text("utf-8")), record, dict(x.split("=") for x in arguments.renamed)
    )
    print("\n".join(told) or "the same, one by one")
    return bool(told)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main())
