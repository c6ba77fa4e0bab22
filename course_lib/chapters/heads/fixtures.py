"""How the tests of chapter 4 build arguments that are not plain data, and use an answer: see `grading/fixtures.py`."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from course_lib import gpt
from course_lib.grading.fixtures import drawn_decoder


def model_maker(config: dict) -> Callable:
    """Return make_model(n_heads, seed), which makes a new decoder with this number of heads and weights from the
    seed."""
    return lambda n_heads, seed: drawn_decoder({**config, "n_heads": n_heads}, seed)


def losses_and_models(answer, make_model, heads, batches, held_out, lr, seeds):
    """Return the result of a comparison of head counts, and what its models can do.

    loss of the models: n_heads -> mean loss of its models on held_out. If a model was made twice, the later one counts.
    all batches read in training mode: True if every model with dropout has read all of them.
    """
    made, read = {}, Counter[Any]()

    def make_and_note(n_heads, seed):
        model = made[n_heads, seed] = make_model(n_heads, seed)

        def note(module, *given):
            read[n_heads, seed] += module.training

        next(model.children()).register_forward_hook(note)  # on a part, so that it also notices a call of model.forward
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
