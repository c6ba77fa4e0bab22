"""`python -m course_lib new exercise`: write a working exercise page with its module, or check an existing page."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from course_lib.grading.kinds import Exercise

PAGE = """---
place: 100
title: The mean of each row
kind: code
points: 2
difficulty: 1
minutes: 10
signature: {name}(x)
---
Write `{name}(x)`: the mean of each row of x, (B, T) in, (B,) out.

`{name}(torch.tensor([[1.0, 3.0]]))` is [2.0].

## Why
Say in one sentence what the learner can do afterwards.

## Hints
1. What do the numbers of a row add up to?
2. How many are there in a row, and which axis are they on?
3. Divide the one by the other: which of the two sizes of `x.shape` is it?

## Mistakes
### not divided (hint 3)
`/ x.shape[-1]` → nothing
You add the row up. Divide by the number of its entries.

### columns instead of rows
`x.sum(-1) / x.shape[-1]` → `x.sum(0) / x.shape[0]`
You take the mean of each column. A row runs along the last axis.

### divided by the number of rows (hint 3)
`/ x.shape[-1]` → `/ x.shape[0]`
You divide by the number of rows. A mean is a sum over the number of its terms: the entries of a row.

### one mean for all
`x.mean()`
You take one mean over everything. Each row has its own.
"""
MODULE = '''import torch

from course_lib.grading.exercise import Case, generator, stage


def {name}(x):
    """(B, T) -> (B,): the mean of each row."""
    return x.sum(-1) / x.shape[-1]


@stage
def a_row(seed):
    "One row of two numbers."
    return [Case(torch.tensor([[1.0, 3.0]]))]


@stage
def drawn(seed):
    "Drawn numbers, with fewer rows than columns and with more."
    rng = generator(seed)
    return [Case(torch.randn(shape, generator=rng)) for shape in ((2, 3), (5, 4))]
'''
SEEDS = (0, 1, 2)


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "new",
        help="authors and teachers: start an exercise, and test it",
        description=(
            "Writes DIR/slug/name.md and DIR/slug/name.py, a small exercise that passes immediately and shows every "
            "part of a page. Then it tests the page with three seeds: the reference passes, and each mistake fails and "
            "is recognized. Change both files and run the same command again: an existing page is tested and never "
            "overwritten. Errors in a page are reported with the file, the line and what to do."
        ),
        epilog=(
            "Examples: python -m course_lib new exercise my_pages/heads/count; or, in the course itself, "
            "course_lib/chapters/heads/count. Use your folder with `python -m course_lib --catalogue my_pages grade "
            "…`, in a notebook with COURSE_CATALOGUE=my_pages in the environment."
        ),
    )
    parser.add_argument("what", choices=["exercise"], help="what to start")
    parser.add_argument("path", metavar="DIR/slug/name", help="where; the slug is the chapter's, as in chapters.toml")
    parser.set_defaults(run=run, remedy="name a folder that you may write to")


def run(arguments: argparse.Namespace) -> int:
    """Write the page unless it exists, and check its exercises; return 1 if a check fails."""
    from course_lib.course.contents import BY_SLUG
    from course_lib.course.files import inside
    from course_lib.grading.page import catalogue

    path = Path(arguments.path.removesuffix(".md"))
    name, slug, root = path.name, path.parent.name, path.parent.parent
    if not name.isidentifier() or not slug:
        raise ValueError(
            f"{arguments.path} is not of the form DIR/slug/name: name must be a word of letters, digits and _"
        )
    if slug not in BY_SLUG:
        raise ValueError(f"there is no chapter {slug!r} in {arguments.path}: choose from {', '.join(BY_SLUG)}")
    ours = root.resolve() == catalogue.CHAPTERS
    page = root / slug / "exercises" / f"{name}.md" if ours else root / slug / f"{name}.md"
    inside(root, page.relative_to(root).as_posix())
    if not page.exists():
        if f"{slug}.{name}" in catalogue.EXERCISES:
            raise ValueError(f"the exercise {slug}.{name} exists already: choose another name")
        for file in (page, page.with_suffix(".py")):
            if os.path.lexists(file):  # a module without its page, or a broken link
                raise ValueError(f"{file} exists already, or is a link: choose another name, or delete it")
        page.parent.mkdir(parents=True, exist_ok=True)
        for file, text in ((page, PAGE), (page.with_suffix(".py"), MODULE)):
            with file.open("x", encoding="utf-8") as opened:
                opened.write(text.replace("{name}", name))
            print(f"wrote {file}")
        arguments.kept = f"{page} and its module have been written; the same command tests them."
    found = catalogue.Exercises()
    found.add(catalogue.Folder(root, "exercises" if ours else ""))
    catalogue.EXERCISES[f"{slug}.{name}"] = exercise = found[f"{slug}.{name}"]
    return prove(exercise)


def prove(exercise: "Exercise") -> int:
    """Print whether the reference passes and the check identifies each mistake; return 1 if one is wrong."""
    from course_lib.grading import grade

    wrong = []
    if exercise.kind in ("code", "experiment", "number", "shapes"):
        answers = [(seed, grade(exercise.id, exercise.reference, seed)) for seed in SEEDS]
        wrong += [f"the reference fails with seed {seed}: {result}" for seed, result in answers if not result.passed]
    for mistake in exercise.misconceptions:
        for number, form in enumerate(mistake.variants):
            parts = isinstance(exercise.reference, Mapping) and isinstance(form, Mapping)
            answer = {**exercise.reference, **form} if parts else form
            for seed in SEEDS:
                result = grade(exercise.id, answer, seed)
                if result.misconception != mistake.name:
                    seen = "passes" if result.passed else f"is recognized as {result.misconception!r}"
                    where = f"form {number + 1}, seed {seed}"
                    wrong.append(
                        f"the mistake {mistake.name!r} ({where}) {seen}: add a case that distinguishes this mistake"
                    )
                    break
    for problem in wrong:
        print(f"✗ {problem}")
    if not wrong:
        print(f"✓ {exercise.id}: the reference passes, {len(exercise.misconceptions)} mistakes fail and are recognized")
    return 1 if wrong else 0
