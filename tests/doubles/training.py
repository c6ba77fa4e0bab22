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
    normalizer = exps.sum(dim=-1)
    correct = torch.take_along_dim(x, y[:, None], dim=-1)[:, 0]
    return torch.mean(torch.log(normalizer) - correct)


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
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(steps):
        loss = model(ids, ids)[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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


def summed_and_not_clipped(model, micro_batches, optimizer, max_norm):
    optimizer.zero_grad()
    losses, tokens = [], []
    for ids, targets in micro_batches:
        _, loss = model(ids, targets)
        loss.backward()
        losses.append(loss.item())
        tokens.append(targets.numel())
    optimizer.step()
    return sum(loss * n for loss, n in zip(losses, tokens)) / sum(tokens)


def by_parts_and_never_cleared(model, micro_batches, optimizer, max_norm):
    parts = len(micro_batches)
    all_tokens = sum(y.numel() for _, y in micro_batches)
    mean = 0.0
    for x, y in micro_batches:
        _, loss = model(x, y)
        (loss / parts).backward()
        mean += loss.item() * y.numel() / all_tokens
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return mean


def clipped_each_time_and_last_loss(model, micro_batches, optimizer, max_norm):
    n_tokens = 0
    for _, targets in micro_batches:
        n_tokens += targets.shape[0] * targets.shape[1]
    optimizer.zero_grad(set_to_none=True)
    for ids, targets in micro_batches:
        loss = model(ids, targets)[1]
        weight = targets.numel() / n_tokens
        (weight * loss).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss.item()


def powers_of_the_loss_exchanged(runs, E, N, D):
    data = torch.tensor(runs, dtype=torch.float64)
    n, d, y = data[:, 0], data[:, 1], data[:, 2]
    grid = torch.arange(0.02, 1.5, 0.01, dtype=torch.float64)
    a, b = (g.flatten() for g in torch.meshgrid(grid, grid, indexing="ij"))
    X = torch.stack([n ** -a[:, None], d ** -b[:, None]], dim=2)
    sol = torch.linalg.lstsq(X, y.expand(len(a), -1).unsqueeze(2)).solution
    i = ((X @ sol).squeeze(2) - y).pow(2).sum(1).argmin().item()
    A, B = sol[i].flatten().tolist()
    a, b = a[i].item(), b[i].item()
    return b, a, A * N**-a + B * D**-b


def above_the_floor_without_tokens(runs, E, N, D):
    n, d, y = torch.tensor(runs, dtype=torch.float64).unbind(1)
    target = (y - E)[None, :, None]
    best = (float("inf"), None)
    bs = torch.arange(0.02, 1.5, 0.01, dtype=torch.float64)
    for a in bs.tolist():
        X = torch.stack([(n**-a).expand(len(bs), -1), d ** -bs[:, None]], dim=-1)
        w = torch.linalg.solve(X.mT @ X, X.mT @ target.expand(len(bs), -1, 1))
        errors = (X @ w - target).square().sum((1, 2))
        j = errors.argmin().item()
        if errors[j].item() < best[0]:
            best = (errors[j].item(), (a, bs[j].item(), w[j, 0, 0].item()))
    a, b, A = best[1]
    return a, b, A / N**a


def negative_and_the_wrong_way_round(runs, E, N, D):
    n, d, loss = (torch.tensor(column, dtype=torch.float64) for column in zip(*runs))
    rest = loss - E
    exponents = torch.linspace(-1.5, -0.02, 149, dtype=torch.float64)
    pairs = torch.cartesian_prod(exponents, exponents)
    basis = torch.stack([n ** pairs[:, :1], d ** pairs[:, 1:]], -1)
    coefficients = torch.linalg.lstsq(basis, rest.repeat(len(pairs), 1).unsqueeze(-1)).solution
    residual = ((basis @ coefficients)[..., 0] - rest).square().sum(-1)
    k = int(torch.argmin(residual))
    a, b = pairs[k].tolist()
    A, B = coefficients[k, :, 0].tolist()
    return a, b, E + A * D**a + B * N**b


def muon_orthogonalized(update, a, b, c):
    X = update.mT if update.size(0) > update.size(1) else update
    X = X / (X.norm() + 1e-7)
    for _ in range(5):
        A = torch.matmul(X, X.mT)
        X = a * X + torch.matmul(b * A + c * torch.matmul(A, A), X)
    return X.mT if update.size(0) > update.size(1) else X


def plain_momentum_without_scale(W, gradient, momentum, lr, beta=0.95):
    buffer = momentum.mul(beta).add(gradient)
    return W - lr * muon_orthogonalized(buffer, 3.4445, -4.7750, 2.0315), buffer


def classical_and_uphill(W, gradient, momentum, lr, beta=0.95):
    buffer = beta * momentum + gradient
    update = muon_orthogonalized(gradient + beta * buffer, 1.5, -0.5, 0.0)
    return W.add(update, alpha=lr * math.sqrt(max(1, W.size(0) / W.size(1)))), buffer


def running_mean_and_upside_down(W, gradient, momentum, lr, beta=0.95):
    buffer = momentum.lerp(gradient, 1 - beta)
    update = muon_orthogonalized(gradient.lerp(buffer, beta), 3.4445, -4.7750, 2.0315)
    return W - lr * max(1, W.size(1) / W.size(0)) ** 0.5 * update, buffer


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
    "training.accumulate": [
        (summed_and_not_clipped, ("gradients summed", "not clipped")),
        (by_parts_and_never_cleared, ("mean of the means", "never cleared")),
        (clipped_each_time_and_last_loss, ("clipped for each part", "loss of the last part")),
    ],
    "training.scaling_law": [
        (powers_of_the_loss_exchanged, ("floor left in", "exponents exchanged")),
        (above_the_floor_without_tokens, ("floor not added back", "parameters alone")),
        (negative_and_the_wrong_way_round, ("negative exponents", "parameters and tokens exchanged")),
    ],
    "training.muon": [
        (plain_momentum_without_scale, ("plain momentum", "no scale")),
        (classical_and_uphill, ("classical coefficients", "uphill")),
        (running_mean_and_upside_down, ("mean instead of sum", "columns over rows")),
    ],
}
