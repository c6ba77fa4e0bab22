import torch
from torch import nn

from course_lib.chapters.gpt.fixtures import tied as probe
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.fixtures import drawn_decoder


def tie(model):
    """Let model.output use the token table: one parameter, two uses."""
    model.output.weight = model.token_embedding.weight


def model_for(rng, V, d_model, T, n_layers=1, dtype="float32", tied=False):
    """Return a case with a model, untied unless `tied`, and two texts of T tokens with their targets."""
    sizes = {"vocab_size": V, "d_model": d_model, "n_heads": 2, "n_layers": n_layers, "max_seq_len": 8, "d_ff": 8}
    says = f"(a GPT, {'tied' if tied else 'untied'}: vocab_size = {V}, d_model = {d_model})"
    seed = int(torch.randint(2**31, (), generator=rng))
    model = Given(drawn_decoder, dict(sizes, tie_weights=tied), seed, dtype, says=says)
    return Case(model, *torch.randint(V, (2, 2, T), generator=rng).unbind())


@stage
def small_model(seed):
    "A small model: are both tables one tensor, with the values of the token table? Then one training step."
    return [model_for(generator(seed), 7, 4, 3)]


@stage
def other_sizes(seed):
    "Other sizes, in float32 or float64."
    rng = generator(seed)
    return [
        model_for(rng, 5, 8, 4),
        model_for(rng, 6, 6, 2, n_layers=2),
        model_for(rng, 9, 4, 5, dtype="float64"),
    ]


@stage
def tied_already(seed):
    "A model that is already tied: it stays as it is."
    return [model_for(generator(seed), 8, 6, 3, tied=True)]
