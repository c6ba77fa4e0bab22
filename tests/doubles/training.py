"""Answers with two mistakes of the page at once, chapter 12."""

import math

import torch
import torch.nn.functional as F


def negative_and_divided_by_all(logits, targets, ignore_index=-100):
    flat_logits = logits.reshape(-1, logits.size(-1))
    flat_targets = targets.reshape(-1)
    log_probs = F.log_softmax(flat_logits, dim=-1)
    keep = (flat_targets != ignore_index).to(logits.dtype)
    safe = flat_targets.clone()
    safe[flat_targets == ignore_index] = 0
    picked = log_probs.gather(1, safe.unsqueeze(1)).squeeze(1)
    return (picked * keep).sum() / flat_targets.numel()


def log_of_softmax_and_summed(logits, targets, ignore_index=-100):
    vocab = logits.shape[-1]
    probs = torch.softmax(logits.reshape(-1, vocab), dim=1)
    labels = targets.reshape(-1)
    rows = torch.nonzero(labels != ignore_index).flatten()
    p = probs[rows, labels[rows]]
    return -torch.log(p).sum()


def raw_exponentials_and_minus_hundred(logits, targets, ignore_index=-100):
    valid = targets != -100
    x = logits[valid]
    y = targets[valid]
    exps = torch.exp(x)
    normaliser = exps.sum(dim=-1)
    correct = torch.take_along_dim(x, y[:, None], dim=-1)[:, 0]
    return torch.mean(torch.log(normaliser) - correct)


def short_and_unseeded(ids, batch_size, T, generator):
    ix = torch.randint(len(ids) - T - 1, (batch_size,))
    x = torch.stack([ids[i : i + T] for i in ix])
    y = torch.stack([ids[i + 1 : i + 1 + T] for i in ix])
    return x, y


def echo_without_the_last(ids, batch_size, T, generator):
    high = max(ids.shape[0] - T - 1, 1)
    offsets = torch.randint(0, high, (batch_size, 1), generator=generator)
    windows = torch.take(ids, offsets + torch.arange(T))
    return windows, windows.clone()


def one_place_with_columns_first(ids, batch_size, T, generator):
    start = int(torch.randint(0, len(ids) - T, (1,), generator=generator))
    chunk = ids[start : start + T + 1]
    inputs = torch.stack([chunk[:-1]] * batch_size, dim=1)
    targets = torch.stack([chunk[1:]] * batch_size, dim=1)
    return inputs, targets


def from_one_and_up_again(step, peak, warmup, total, floor):
    if step < warmup:
        return peak * (step + 1) / warmup
    decay_ratio = (step - warmup) / (total - warmup)
    coeff = 0.5 * (1.0 + math.cos(math.pi * decay_ratio))
    return floor + coeff * (peak - floor)


def no_floor_and_late_end(step, peak, warmup, total, floor):
    if step < warmup:
        return peak * (step / warmup)
    elif step > total:
        return floor
    t = (step - warmup) / total
    return peak * (math.cos(t * math.pi) + 1) / 2


def line_down_from_a_floor(step, peak, warmup, total, floor):
    if step < warmup:
        lr = floor + (peak - floor) * step / warmup
    elif step < total:
        left = (total - step) / (total - warmup)
        lr = floor + left * (peak - floor)
    else:
        lr = floor
    return lr


def unclipped_and_cleared_late(model, ids, targets, optimizer, max_norm):
    _, loss = model(ids, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss)


def never_cleared_second_loss(model, ids, targets, optimizer, max_norm):
    loss = model(ids, targets)[1]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    with torch.no_grad():
        _, new_loss = model(ids, targets)
    return new_loss.item()


def cut_values_of_a_sum(model, ids, targets, optimizer, max_norm):
    optimizer.zero_grad(set_to_none=True)
    logits, _ = model(ids, targets)
    loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    loss.backward()
    for p in model.parameters():
        if p.grad is not None:
            p.grad.clamp_(min=-max_norm, max=max_norm)
    optimizer.step()
    return loss.item() / targets.numel()


def norms_added_and_limit_told(parameters, max_norm):
    grads = [p.grad for p in parameters if p.grad is not None]
    total = 0.0
    for g in grads:
        total += g.pow(2).sum().sqrt().item()
    if total > max_norm:
        for g in grads:
            g.mul_(max_norm / total)
        total = max_norm
    return total


def stretched_and_none_forgotten(parameters, max_norm):
    params = list(parameters)
    squares = torch.stack([(p.grad**2).sum() for p in params])
    norm = squares.sum().sqrt().item()
    scale = max_norm / norm if norm else 1.0
    for p in params:
        p.grad.mul_(scale)
    return norm


def rootless_on_a_second_walk(parameters, max_norm):
    length = 0.0
    for p in parameters:
        if p.grad is not None:
            length += torch.sum(p.grad * p.grad).item()
    if length > max_norm:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(max_norm / length)
    return length


def tiny_steps_last_loss(model, ids, targets, steps):
    opt = torch.optim.SGD(model.parameters(), lr=1e-5)
    for _ in range(steps):
        opt.zero_grad()
        _, loss = model(ids, targets)
        loss.backward()
        opt.step()
    return loss.item()


def echo_with_late_losses(model, ids, targets, steps):
    history = []
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = model(ids, ids)[1]
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            history.append(float(model(ids, ids)[1]))
    return history


def perplexities_of_a_double_run(model, ids, targets, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    curve = []
    for _ in range(2 * steps):
        logits = model(ids, targets)[0]
        nll = F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))
        optimizer.zero_grad()
        nll.backward()
        optimizer.step()
        curve.append(math.exp(nll.item()))
    return curve


DOUBLES = {
    "training.cross_entropy": [
        (negative_and_divided_by_all, ("sign missing", "the ignored are counted")),
        (log_of_softmax_and_summed, ("logarithm of the softmax", "sum instead of mean")),
        (raw_exponentials_and_minus_hundred, ("no maximum subtracted", "only −100 is ignored")),
    ],
    "training.get_batch": [
        (short_and_unseeded, ("last position never drawn", "generator ignored")),
        (echo_without_the_last, ("targets not shifted", "last position never drawn")),
        (one_place_with_columns_first, ("one position for all rows", "T and B exchanged")),
    ],
    "training.learning_rate": [
        (from_one_and_up_again, ("warm-up counts from one", "rises again")),
        (no_floor_and_late_end, ("floor ignored", "progress over total")),
        (line_down_from_a_floor, ("straight down", "warm-up from the floor")),
    ],
    "training.step": [
        (unclipped_and_cleared_late, ("not clipped", "cleared only afterwards")),
        (never_cleared_second_loss, ("gradients never cleared", "loss after the update")),
        (cut_values_of_a_sum, ("clipped by value", "summed over the tokens")),
    ],
    "training.clip": [
        (norms_added_and_limit_told, ("lengths added", "norm after clipping")),
        (stretched_and_none_forgotten, ("always rescaled", "no gradient, no skip")),
        (rootless_on_a_second_walk, ("root forgotten", "walked twice")),
    ],
    "training.overfit": [
        (tiny_steps_last_loss, ("steps too short", "only the last loss")),
        (echo_with_late_losses, ("inputs as targets", "losses after the updates")),
        (perplexities_of_a_double_run, ("perplexities", "too many steps")),
    ],
}
