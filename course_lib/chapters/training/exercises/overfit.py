import copy

import torch

from course_lib.chapters.training.fixtures import memorized as probe
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.fixtures import drawn_decoder
from course_lib.grading.judge.values import fresh


def overfit(model, ids, targets, steps):
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr=5e-3), []
    for _ in range(steps):
        _, loss = model(ids, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


MEMORY = {"vocab_size": 24, "d_model": 32, "n_heads": 2, "n_layers": 1, "max_seq_len": 8}


LOW = 0.1  # nats per token


MOST = 5.0  # nats per token: larger losses count as this one


SAME_LOSS = 0.01  # nats per token: a loss that is computed twice differs by far less


@stage
def one_batch(seed):
    "A small model and one batch of random ids: 120 steps, and only memorizing the batch can lower the loss this far."
    rng = generator(seed)
    rows = torch.randint(MEMORY["vocab_size"], (4, 9), generator=rng)
    rows[:, 0] = torch.randperm(MEMORY["vocab_size"], generator=rng)[:4]  # the first token identifies a row
    model = Given(drawn_decoder, MEMORY, seed, says="a small decoder, V = 24")
    return [Case(model, rows[:, :-1], rows[:, 1:], 120)]


def summary(case, brought):
    """Compare the losses reported from training on one batch with the model's own loss before and after.

    Return the number of losses reported, the first of them minus the loss before, whether these two are equal, the last
    of them minus the loss after, the loss after, the loss after if inputs were their own targets, whether any parameter
    moved; or what was reported instead. Losses are clamped to MOST.
    """
    if not isinstance(brought, dict):
        return brought
    model, ids, targets, _ = fresh(case.args)

    def loss(wanted):
        with torch.no_grad():
            return model(ids, wanted)[1].clamp(max=MOST).item()

    losses, weights = brought.values()
    reported, start = losses.clamp(-MOST, MOST), fresh(model.state_dict())
    before = loss(targets)
    model.load_state_dict(weights)
    after = loss(targets)
    return {
        "losses": len(reported),
        "first of them, minus the loss before": reported[0].item() - before,
        "first of them is the loss before": abs(reported[0].item() - before) <= SAME_LOSS,
        "last of them, minus the loss after": reported[-1].item() - after,
        "loss after": after,
        "loss after, each token its own target": loss(ids),
        "moved": any(not torch.equal(start[name], weight) for name, weight in model.state_dict().items()),
    }


def judge(case, expected, got):
    """Require a loss below 0.1. With AdamW at 0.005 the loss fell from 3.2 to between 0.007 and 0.009 in 120 steps, in
    20 seeds, so there is room for other optimizers.

    The reported losses must fit the model's own, before and after. A first update of AdamW at 0.002 already lowers the
    loss by 0.1, so a loss from after the update is noticed."""
    if not isinstance(got, dict):
        return "Expected a list of numbers: the loss of every step."
    count, first, from_before, last, after, echo, moved = got.values()
    steps = case.args[3]
    if not moved:
        return "No parameter of the model that you were given has moved."
    figure = f"{after:.2f}" if after < MOST else f"{MOST:g} or more"
    if echo < LOW < after:
        return f"The model repeats its input; on the targets its loss is {figure}."
    if not after < LOW:
        return f"After your training the model's loss on the batch is {figure}; expected below {LOW} nats per token."
    if count != steps:
        return f"Expected {steps} losses, one per step; got {count}."
    if not from_before:
        return f"Your first loss differs by {first:+.2f} from the model's loss before training."
    return None if abs(last) <= 0.2 else f"Your last loss differs by {last:+.2f} from the model's loss after training."
