"""Experiments: one function per claim. Each measures, and returns what it measured as a small dataclass.

One module per chapter; `claims` says what an experiment is. The chapters print the findings beside the claims, chapter
16 and `python -m course_lib claims` print them all. `RECIPES` trains the models that ship with the course.
"""

import importlib
import pkgutil

from course_lib.experiments.claims import (
    CHAPTERS,
    EXPERIMENTS,
    VERDICTS,
    Experiment,
    Finding,
    experiment,
    find,
    in_order,
    record,
    recorded,
    settle,
)
from course_lib.experiments.recipes import RECIPES, recipe
from course_lib.experiments.tinytown import (
    HELD_OUT_SEED,
    TinytownFigures,
    TinytownRecipe,
    measure_tinytown,
    train_tinytown,
)

__all__ = [
    "CHAPTERS", "EXPERIMENTS", "HELD_OUT_SEED", "RECIPES", "VERDICTS", "Experiment", "Finding", "TinytownFigures",
    "TinytownRecipe", "experiment", "find", "in_order", "measure_tinytown", "recipe", "record", "recorded", "settle",
    "train_tinytown",
]  # fmt: skip

# Every module of this folder brings its experiments.
for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
