"""Pairs of mutants: two slips of one token each, on different lines of a reference or of what it uses.

    python -m tests.mutant_pairs attention --pairs 100      # so many pairs for each exercise, drawn with a fixed seed
    python -m tests.mutant_pairs --all                      # 20 for each

Two changes may cancel, or one may hide the other. A pair that passes, though one of its parts alone does not, either
behaves as the reference does on every legal input, and then stands in EQUIVALENT with the reason, or shows a case that
the exercise lacks.
"""

import argparse
import ast
import inspect
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from course_lib.grading import EXERCISES, Exercise
from tests.mutants import chosen, difference, lines_that_run, made, passes, reached, variants

NUMBER = 20  # of pairs for each exercise, if not told otherwise
TRIES = 5  # of a draw: not every line has a variant, and few have many

# (exercise, a part of either changed line, of the other one, why no legal input shows the change)
TWICE = "two arguments change places, and change back"
EQUIVALENT = [
    ("counting.flops", "backward = 1 * forward", "3 * forward + backward", "3 and 1 passes are as many as 2 and 2"),
    ("counting.flops", "backward = 3 * forward", "1 * forward + backward", "1 and 3 passes are as many as 2 and 2"),
    ("positions.rotary", "positions[:, None] / speed", "theta ** (torch.arange", "1 / speed, divided by, is speed"),
    ("sampling.next_token", "keep_p(top_p, logits)", "nucleus(p, logits)", TWICE),
    ("sampling.next_token", "draw_with(temperature, logits", "heat(temperature, logits)", TWICE),
]


@dataclass(frozen=True)
class Pair:
    """Two changes. lines: how each of the two reads; both: the answer; alone: each of the two."""

    lines: tuple[str, str]
    both: Callable
    alone: tuple[Callable, Callable]


def pairs(exercise: Exercise, seed: int, number: int) -> Iterator[Pair]:
    """So many pairs, drawn from the lines that run; fewer where a reference has too few."""
    reference, rng = exercise.reference, random.Random(f"{exercise.id} {seed}")
    tree = ast.parse(inspect.getsource(sys.modules[reference.__module__]))
    defined = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    used, run = reached(reference.__name__, defined), lines_that_run(exercise, seed)
    lines = [
        (name, line)
        for name in used
        for line in sorted({node.lineno for node in ast.walk(defined[name]) if hasattr(node, "lineno")} & run)
    ]
    seen = set()
    for _ in range(TRIES * number if len(lines) > 1 else 0):
        if len(seen) == number:
            return
        (one, first), (other, second) = rng.sample(lines, 2)
        a = drawn(defined[one], first, rng)
        b = drawn(defined[other], second, rng)
        if a is None or b is None:
            continue
        both = with_both(defined[one], a, second, b) if one == other else b
        if both is None:
            continue
        told = difference(defined[one], a)[1], difference(defined[other], b)[1]
        if told in seen:
            continue
        seen.add(told)
        changed = [{one: a}, {other: b}, {one: a, other: both}]
        answers = [made(reference, [{**defined, **change}[name] for name in used]) for change in changed]
        yield Pair(told, answers[2], (answers[0], answers[1]))


def drawn(function: ast.AST, line: int, rng: random.Random) -> ast.AST | None:
    """One of the variants of a line that are no other way to write the same."""
    found = [mutated for mutated, _ in variants(function, line)]
    rng.shuffle(found)
    return next((mutated for mutated in found if "" not in difference(function, mutated)), None)


def with_both(function: ast.AST, one: ast.AST, line: int, other: ast.AST) -> ast.AST | None:
    """The function with a change, and on top of it the change of this line that `other` has, if there is still room."""
    before, wanted = [mutated for mutated, _ in variants(function, line)], ast.dump(other)
    place = next(number for number, mutated in enumerate(before) if ast.dump(mutated) == wanted)
    after = [mutated for mutated, _ in variants(one, line)]
    fits = len(after) == len(before) and difference(one, after[place]) == difference(function, other)
    return after[place] if fits else None


@dataclass(frozen=True)
class Survivor:
    """A pair that passes. alone: does each of its parts?"""

    lines: tuple[str, str]
    alone: tuple[bool, bool]


def survivors(exercise_id: str, seed: int = 0, number: int = NUMBER) -> tuple[int, list[Survivor]]:
    """How many pairs there are, and which of them pass, though a part of theirs does not."""
    exercise, count, alive = replace(EXERCISES[exercise_id], misconceptions=()), 0, []
    for pair in pairs(exercise, seed, number):
        count += 1
        if passes(exercise, pair.both, seed):
            alone = tuple(passes(exercise, answer, seed) for answer in pair.alone)
            if not all(alone):
                alive.append(Survivor(pair.lines, alone))
    return count, alive


def explained(exercise_id: str, survivor: Survivor) -> str | None:
    """Why the pair is no wrong answer, if EQUIVALENT knows it."""
    for name, one, other, why in EQUIVALENT:
        for first, second in (survivor.lines, survivor.lines[::-1]):
            if name == exercise_id and one in first and other in second:
                return why
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutant_pairs", description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="exercises, or chapters such as attention")
    parser.add_argument("--all", action="store_true", help="every code exercise and experiment")
    parser.add_argument(
        "--pairs", type=int, default=NUMBER, metavar="N", help="for each exercise (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="decides cases and draws (default: those of check)")
    arguments = parser.parse_args()
    if not arguments.ids and not arguments.all:
        parser.error("name exercises, or --all")
    torch.set_num_threads(1)
    totals = [0, 0, 0]
    print(f"{'exercise':<34}{'pairs':>8}{'alike':>8}{'survive':>8}")
    for exercise_id in chosen([] if arguments.all else arguments.ids):
        count, alive = survivors(exercise_id, arguments.seed, arguments.pairs)
        alike = sum(explained(exercise_id, each) is not None for each in alive)
        row = [count, alike, len(alive) - alike]
        totals = [total + each for total, each in zip(totals, row)]
        print(f"{exercise_id:<34}{row[0]:>8}{row[1]:>8}{row[2]:>8}", flush=True)
        for each in alive:
            for line, passed in zip(each.lines, each.alone):
                print(f"    {line}{'' if passed else '    (alone it fails)'}")
            print(f"        {explained(exercise_id, each) or 'PASSES: a case is missing, or a line in EQUIVALENT'}")
    print(f"{'all':<34}{totals[0]:>8}{totals[1]:>8}{totals[2]:>8}")
    return int(totals[2] > 0)


if __name__ == "__main__":
    sys.exit(main())
