import torch

from course_lib.chapters.training.fixtures import steps_accumulated as probe
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.fixtures import drawn_decoder


def accumulated_step(model, micro_batches, optimizer, max_norm):
    """Make one update from several micro-batches, as from the whole batch;
    return the whole batch's loss before it, a float."""
    total = sum(targets.numel() for _, targets in micro_batches)
    whole = 0.0
    optimizer.zero_grad()
    for ids, targets in micro_batches:
        _, loss = model(ids, targets)  # the mean over this one's tokens
        share = targets.numel() / total
        (loss * share).backward()  # PyTorch adds to the other parts' gradients
        whole += loss.item() * share
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return whole


SMALL = {"vocab_size": 11, "d_model": 8, "n_heads": 2, "n_layers": 1, "max_seq_len": 6}
SGD, STEEP = {"name": "SGD", "lr": 0.5}, {"name": "SGD", "lr": 0.5, "momentum": 0.9, "weight_decay": 0.1}


def some_steps(seed, sizes, optimizer, max_norm, leftover=0.0, steps=1, dtype="float32"):
    rng = generator(seed + 10 * len(sizes) + sum(map(sum, sizes)))
    rows = [torch.randint(SMALL["vocab_size"], (B, T + 1), generator=rng) for B, T in sizes]
    model = Given(drawn_decoder, SMALL, seed, dtype, says="a decoder with one block, V = 11")
    return Case(model, [(each[:, :-1], each[:, 1:]) for each in rows], optimizer, max_norm, leftover, steps)


@stage
def equal_parts(seed):
    "Parts of equal size, nothing clipped: the step equals the whole batch's step."
    return [some_steps(seed, [(1, 3), (1, 3)], SGD, 1e3), some_steps(seed, [(2, 4)] * 3, SGD, 1e3)]


@stage
def a_single_part(seed):
    "A single part is the whole batch."
    return [some_steps(seed, [(2, 3)], SGD, 1e3)]


@stage
def unequal_parts(seed):
    "Parts of different sizes: every token counts the same, whichever part it is in."
    return [some_steps(seed, [(3, 4), (1, 4)], SGD, 1e3), some_steps(seed, [(2, 6), (1, 2), (3, 3)], SGD, 1e3)]


@stage
def clipped_steps(seed):
    "The gradient of the whole batch is longer than max_norm, and old gradients may be left over from before."
    return [some_steps(seed, [(2, 3), (1, 5)], SGD, 0.1), some_steps(seed, [(1, 4), (2, 4)], SGD, 0.05, 0.3)]


@stage
def steps_in_a_row(seed):
    "Several steps, with an optimizer that has momentum, in float32 or float64."
    return [
        some_steps(seed, [(1, 3), (2, 5)], STEEP, 0.3, 0.0, 3),
        some_steps(seed, [(2, 4), (1, 2), (1, 4)], STEEP, 1e3, 0.0, 2, "float64"),
    ]
