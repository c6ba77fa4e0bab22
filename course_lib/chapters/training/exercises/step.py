import torch

from course_lib.chapters.training.fixtures import steps_taken as probe
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.fixtures import drawn_decoder


def training_step(model, ids, targets, optimizer, max_norm):
    """Update the model once; return its loss before the update, a float."""
    optimizer.zero_grad()  # PyTorch adds to old gradients
    _, loss = model(ids, targets)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()


SMALL = {"vocab_size": 11, "d_model": 8, "n_heads": 2, "n_layers": 1, "max_seq_len": 6}


SGD, STEEP = {"name": "SGD", "lr": 0.5}, {"name": "SGD", "lr": 0.5, "momentum": 0.9, "weight_decay": 0.1}


ADAMW = {"name": "AdamW", "lr": 0.01, "eps": 1e-3}  # so large an eps that rounding noise moves no parameter


def some_steps(seed, B, T, optimizer, max_norm, leftover=0.0, steps=1, dtype="float32"):
    rng = generator(seed + 10 * B + T)
    rows = torch.randint(SMALL["vocab_size"], (B, T + 1), generator=rng)
    model = Given(drawn_decoder, SMALL, seed, dtype, says="a decoder with one block, V = 11")
    return Case(model, rows[:, :-1], rows[:, 1:], optimizer, max_norm, leftover, steps)


@stage
def one_step(seed):
    "One step of plain gradient descent; max_norm is so large that nothing is clipped."
    return [some_steps(seed, 2, 3, SGD, 1e3), some_steps(seed, 1, 4, SGD, 1e3)]


@stage
def clipped_step(seed):
    "One step with a gradient longer than max_norm: it is shortened, for all parameters by the same factor."
    return [some_steps(seed, 2, 3, SGD, 0.1), some_steps(seed, 3, 3, SGD, 0.02)]


@stage
def left_over_step(seed):
    "One step, with gradients left over from another computation."
    return [some_steps(seed, 2, 3, SGD, 1e3, 0.3), some_steps(seed, 2, 4, SGD, 0.1, -0.2)]


@stage
def steps_in_a_row(seed):
    "Several steps on the same batch: each starts from cleared gradients, and its loss is the one before its update."
    return [some_steps(seed, 2, 3, SGD, 1e3, 0.0, 3), some_steps(seed, 3, 4, SGD, 0.3, 0.0, 4)]


@stage
def other_optimizers(seed):
    "An optimizer with momentum, averages or weight decay, in float32 or float64: leave the update to it."
    return [
        some_steps(seed, 2, 3, STEEP, 0.5, 0.0, 3),
        some_steps(seed, 2, 5, ADAMW, 0.05, 0.1, 3),
        some_steps(seed, 4, 3, STEEP, 0.2, 0.0, 2, "float64"),
    ]
