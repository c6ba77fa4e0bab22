"""Claims: what is said about Transformers, and the engine of the experiments that settle it.

`registry` says what an experiment is; each chapter's stand in `chapters/<slug>/claims.py`. The chapters print the
findings beside the claims, chapter 16 and `python -m course_lib claims` print them all. `recipes` train the
models that ship with the course.
"""

from course_lib.claims.registry import (
    VERDICTS,
    Experiment,
    Finding,
    Source,
    experiment,
    experiments,
    find,
    in_order,
    recipe,
    recipes,
    record,
    recorded,
    settle,
)
from course_lib.claims.tinytown import HELD_OUT_SEED, TinytownFigures, TinytownRecipe, measure_tinytown, train_tinytown

__all__ = [
    "HELD_OUT_SEED", "VERDICTS", "Experiment", "Finding", "Source", "TinytownFigures", "TinytownRecipe", "experiment",
    "experiments", "find", "in_order", "measure_tinytown", "recipe", "recipes", "record", "recorded", "settle",
    "train_tinytown",
]  # fmt: skip
