import torch

from course_lib.chapters.feed_forward.claims import ASKED, capital_questions, contributions, strongest
from course_lib.chapters.feed_forward.exercises._shared import drawn_ids, small_model
from course_lib.chapters.feed_forward.fixtures import tinytown
from course_lib.gpt import evaluating
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import CAPITALS


def top_units(model, ids, answer, candidates, k):
    """Exact up to rounding in float64, so the order is one: no room for noise."""
    before = chance(model, ids, answer)
    drops = [before - without(model, layer, unit, chance, ids, answer) for layer, unit in candidates]
    return pairs(candidates, drops, k)


def inside(model, ids):
    """Return the hidden units of every block, a list of (B, T, d_ff), and the resulting logits."""
    hidden = []
    handles = [
        block.feed_forward.down_proj.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
        for block in model.blocks
    ]
    logits = model.eval()(ids)
    for handle in handles:
        handle.remove()
    return hidden, logits


def chance(model, ids, answer):
    """Return the probability of `answer` after the last token."""
    model.eval()
    with torch.no_grad():
        return model(ids).softmax(-1)[:, -1, answer]


def without(model, layer, unit, measure, *args, hold=lambda h: 0.0, places=slice(None)):
    """Return measure(model, *args) while one hidden unit is set to hold(hidden), by default 0, at `places` (all)."""

    def silence(_, inputs):
        (hidden,) = inputs  # (B, T, d_ff)
        there = torch.zeros_like(hidden, dtype=torch.bool)
        there[:, places, unit] = True
        return (torch.where(there, hold(hidden[:, :, unit]), hidden),)

    handle = model.blocks[layer].feed_forward.down_proj.register_forward_pre_hook(silence)
    value = measure(model, *args)
    handle.remove()
    return value


def pairs(candidates, drops, k):
    """Return the k candidates with the largest drops, strongest first: (k, 2)."""
    order = sorted(range(len(candidates)), key=lambda i: -drops[i])
    return torch.tensor([candidates[i] for i in order[:k]])


def cut(model, ids, answer, k, units):
    """Return a case whose candidates can be distinguished: no two change the answer's probability by the same amount.

    Two ReLU units that never fire change it by exactly the same amount. An answer that computes in float32 is also
    correct.
    """
    built, kept = model.make(*model.data), {}
    for layer, unit in units:
        left = without(built, layer, unit, chance, ids, answer)
        if all(abs(left - other) > 1e-6 for other in kept.values()):
            kept[layer, unit] = left
    return Case(model, ids, answer, list(kept), min(k, len(kept)))


def all_units(rng, n_layers, d_ff):
    """Return every (layer, unit) of a small model, in random order."""
    units = [(layer, unit) for layer in range(n_layers) for unit in range(d_ff)]
    return [units[i] for i in torch.randperm(len(units), generator=rng)]


@stage
def one_block_three_units(seed):
    "One block with three units: find the one that matters most."
    rng = generator(seed)
    model = small_model(seed, n_layers=1, d_ff=3, activation="gelu")
    return [cut(model, drawn_ids(rng, 4), 5, 1, all_units(rng, 1, 3))]


@stage
def all_units_of_two_blocks(seed):
    "All units of two blocks: find the five that matter most to one token."
    rng = generator(seed)
    model = small_model(seed + 1, activation="gelu", d_ff=8)
    ids, units = drawn_ids(rng, 9), all_units(rng, 2, 8)
    return [cut(model, ids, answer, 5, units) for answer in torch.randperm(23, generator=rng)[:2].tolist()]


@stage
def all_of_them_ranked(seed):
    "All ReLU units of three blocks, in order."
    rng = generator(seed)
    return [cut(small_model(seed + 2, n_layers=3, d_ff=6), drawn_ids(rng, 7), 0, 99, all_units(rng, 3, 6))]


@stage
def one_capital(seed):
    "The trained Tinytown model and one capital: ten units that push it, and five random ones."
    model, tokenizer = load_pretrained("tinytown")
    rng = generator(seed)
    ids, answers = capital_questions(tokenizer, ASKED)
    country = int(torch.randint(len(CAPITALS), (), generator=rng))
    pushing = strongest(contributions(model, ids, answers)[country], 10)  # (layers, d_ff)
    units = (pushing | strongest(torch.rand(pushing.shape, generator=rng), 5)).nonzero()
    units = [tuple(units[i].tolist()) for i in torch.randperm(len(units), generator=rng)]
    model = Given(tinytown, "float64", says="the trained Tinytown model, in float64")
    return [cut(model, ids[[country]], int(answers[country]), 6, units)]


@stage
def training_mode(seed):
    "A model that arrives in training mode with dropout on: measure with dropout off."
    rng = generator(seed)
    model = small_model(seed + 3, dropout=0.3, activation="gelu", d_ff=8)
    return [cut(model, drawn_ids(rng, 6), 7, 8, all_units(rng, 2, 8))]
