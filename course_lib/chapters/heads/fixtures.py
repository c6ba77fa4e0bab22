"""What answers of chapter 4 are given that is no plain data, and how they are used: see `grading/fixtures.py`."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from course_lib import gpt
from course_lib.grading.fixtures import drawn_decoder


def model_maker(config: dict) -> Callable:
    """make_model(n_heads, seed): a new decoder with so many heads, its weights drawn from the seed."""
    return lambda n_heads, seed: drawn_decoder({**config, "n_heads": n_heads}, seed)


def losses_and_models(answer, make_model, heads, batches, held_out, lr, seeds):
    """Return what a comparison of head counts reports, and what the models that it has made can do.

    loss of the models: n_heads -> mean over its models of the loss on held_out. If a model was made twice, the later.
    all batches read in training mode: by every model that has dropout.
    """
    made, read = {}, Counter[Any]()

    def make_and_note(n_heads, seed):
        model = made[n_heads, seed] = make_model(n_heads, seed)

        def note(module, *given):
            read[n_heads, seed] += module.training

        next(model.children()).register_forward_hook(note)  # of a part: who calls model.forward passes it, too
        return model

    reported = answer(make_and_note, heads, batches, held_out, lr, seeds)
    losses: dict[int, list[float]] = {}
    for (n_heads, _), model in made.items():
        with gpt.evaluating(model):
            losses.setdefault(n_heads, []).append(model(*held_out)[1].item())
    return {
        "reported": reported,
        "models made": sorted(made),
        "all batches read in training mode": all(
            read[name] >= len(batches) for name, model in made.items() if model.config.dropout > 0
        ),
        "loss of the models": {n_heads: sum(each) / len(each) for n_heads, each in losses.items()},
    }
