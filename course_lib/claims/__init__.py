"""Claims: statements that people make about Transformers, and the code that runs the experiments to test them.

`registry` defines experiments, `findings` stores their results, and `card` shows a result in a notebook. `rates` finds
the learning rate of each arm, and `stress` repeats a claim with longer training and wider models. The experiments are
in `chapters/<slug>/claims.py`. The chapters print the findings below the claims; chapter 17 and
`python -m course_lib claims` print them all. `recipes` train the models that ship with the course.
"""

from course_lib.claims.card import Settled, settle
from course_lib.claims.findings import record, record_tried, recorded
from course_lib.claims.rates import Best, at_best_rate
from course_lib.claims.registry import (
    VERDICTS,
    Experiment,
    Finding,
    Measurement,
    Size,
    Source,
    Tried,
    experiment,
    experiments,
    find,
    in_order,
    recipe,
    recipes,
    stated_outcomes,
)
from course_lib.claims.tinytown import HELD_OUT_SEED, TinytownFigures, TinytownRecipe, measure_tinytown, train_tinytown

__all__ = [
    "HELD_OUT_SEED",
    "VERDICTS",
    "Best",
    "Experiment",
    "Finding",
    "Measurement",
    "Settled",
    "Size",
    "Source",
    "TinytownFigures",
    "TinytownRecipe",
    "Tried",
    "at_best_rate",
    "experiment",
    "experiments",
    "find",
    "in_order",
    "measure_tinytown",
    "recipe",
    "recipes",
    "record",
    "record_tried",
    "recorded",
    "settle",
    "stated_outcomes",
    "train_tinytown",
]
