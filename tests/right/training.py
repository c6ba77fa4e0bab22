"""Chapter 12: right answers in other styles."""

import math
import random

import numpy as np
import torch
import torch.nn.functional as F

from course_lib import training as library
from course_lib.tinytown import Batches, Tinytown
from tests.right import by_way_of


def cross_entropy_of_torch(logits, targets, ignore_index=-100):
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=ignore_index)


def cross_entropy_by_loops(logits, targets, ignore_index=-100):
    total, count = logits.new_zeros(()), 0
    for row, target in zip(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1).tolist()):
        if target != ignore_index:
            total = total + torch.logsumexp(row, dim=0) - row[target]
            count += 1
    return total / count


def cross_entropy_in_float32(logits, targets, ignore_index=-100):
    keep = (targets != ignore_index).flatten()
    log_p = logits.flatten(0, -2)[keep].float().log_softmax(dim=-1)
    return -log_p[torch.arange(len(log_p)), targets.flatten()[keep]].mean().to(logits.dtype)


def cross_entropy_in_numpy(x, wanted, ignored=-100):
    x, wanted = x.numpy(), wanted.numpy()
    x, wanted = x[wanted != ignored], wanted[wanted != ignored]
    x = x - x.max(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        loss = np.mean(np.log(np.exp(x).sum(axis=-1)) - x[np.arange(len(wanted)), wanted])
    return torch.tensor(loss)


def cross_entropy_by_one_hot(logits, targets, ignore_index=-100):
    counts = targets != ignore_index
    log_p = logits.log_softmax(-1).clamp(min=torch.finfo(logits.dtype).min)  # 0 · −inf would be NaN
    hot = F.one_hot(targets.where(counts, 0), logits.shape[-1]) * counts[..., None]
    return -torch.einsum("...v,...v->", hot.to(log_p), log_p) / counts.sum()


def batch_of_slices(ids, batch_size, T, generator):
    inputs, targets = [], []
    for start in torch.randint(0, len(ids) - T, (batch_size,), generator=generator).tolist():
        inputs.append(ids[start : start + T])
        targets.append(ids[start + 1 : start + 1 + T])
    return torch.stack(inputs), torch.stack(targets)


def batch_of_windows(ids, batch_size, T, generator):
    windows = ids.unfold(0, T + 1, 1)  # every row that there is
    chosen = windows[(torch.rand(batch_size, generator=generator) * len(windows)).long()]
    return [chosen[:, :T], chosen[:, 1:]]


def batch_in_numpy(ids, batch_size, T, generator):
    random_places = np.random.default_rng(int(torch.randint(2**31, (), generator=generator)))
    places = random_places.integers(0, len(ids) - T, size=(batch_size, 1)) + np.arange(T)
    return ids.numpy()[places], ids.numpy()[places + 1]


def batch_of_the_library(ids, batch_size, T, generator):
    return next(Batches(ids, batch_size, T, generator))


def rate_by_stretches(step, highest, climb, end, lowest):
    if step >= end:
        return lowest
    if step >= climb:
        turn = math.pi * (step - climb) / (end - climb)
        return (highest + lowest) / 2 + (highest - lowest) / 2 * math.cos(turn)
    return step * (highest / climb)


def rate_in_torch(step, peak, warmup, total, floor):
    share = ((torch.tensor(step, dtype=torch.float64) - warmup) / (total - warmup)).clamp(0, 1)
    cosine = torch.lerp(
        torch.tensor(float(floor)).double(), torch.tensor(float(peak)).double(), share.mul(math.pi / 2).cos() ** 2
    )
    return torch.where(torch.tensor(step < warmup), peak * step / max(1, warmup), cosine)


def step_with_own_loss(model, ids, targets, optimizer, max_norm):
    logits = model(ids)
    loss = F.cross_entropy(logits.transpose(1, 2), targets)
    model.zero_grad()
    loss.backward()
    with torch.no_grad():
        norm = sum((p.grad**2).sum() for p in model.parameters()).sqrt()
        for p in model.parameters():
            p.grad.mul_((max_norm / norm).clamp(max=1))
    optimizer.step()
    return loss


def step_with_autograd(model, ids, targets, optimizer, max_norm):
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    loss = model(ids, targets)[1]
    gradients = torch.autograd.grad(loss, parameters)
    norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(g) for g in gradients]))
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient * min(1.0, max_norm / float(norm))
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def step_with_none(model, ids, targets, optimizer, max_norm):
    for p in model.parameters():
        p.grad = None
    model.train()
    out = model(ids, targets)[-1]
    out.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=max_norm)
    optimizer.step()
    return out.detach()


def accumulated_by_sums(model, micro_batches, optimizer, max_norm):
    """Sums over tokens first; the gradient is divided once, at the end."""
    model.zero_grad(set_to_none=False)
    summed, count = 0.0, 0
    for ids, targets in micro_batches:
        loss = F.cross_entropy(model(ids).transpose(1, 2), targets, reduction="sum")
        loss.backward()
        summed, count = summed + loss.detach(), count + targets.numel()
    for p in model.parameters():
        p.grad /= count
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return summed / count


def accumulated_in_lists(model, micro_batches, optimizer, max_norm):
    """The gradients of each part apart, then mixed."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    tokens = [ids.shape[0] * ids.shape[1] for ids, _ in micro_batches]
    losses, gradients = [], []
    for ids, targets in micro_batches:
        loss = model(ids, targets)[1]
        gradients.append(torch.autograd.grad(loss, parameters))
        losses.append(loss.item())
    for i, parameter in enumerate(parameters):
        parameter.grad = sum(n * each[i] for n, each in zip(tokens, gradients)) / sum(tokens)
    torch.nn.utils.clip_grad_norm_(parameters, max_norm)
    optimizer.step()
    optimizer.zero_grad()
    return sum(n * loss for n, loss in zip(tokens, losses)) / sum(tokens)


def clip_of_torch(parameters, max_norm):
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm)


def clip_one_long_vector(parameters, max_norm):
    parameters = [p for p in parameters if p.grad is not None]
    norm = torch.cat([p.grad.reshape(-1) for p in parameters]).norm().item()
    factor = max_norm / max(norm, max_norm)
    for p in parameters:
        p.grad = p.grad * factor
    return norm


def clip_by_loops(parameters, max_norm):
    parameters, total = list(parameters), 0.0
    for p in parameters:
        if p.grad is not None:
            for entry in p.grad.reshape(-1).tolist():
                total += entry * entry
    if total > max_norm**2:
        for p in parameters:
            if p.grad is not None:
                p.grad.mul_(max_norm).div_(total**0.5)
    return np.float64(total**0.5)


def overfit_with_momentum(model, ids, targets, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return torch.stack([step_with_none(model, ids, targets, optimizer, 1.0) for _ in range(steps)])


def overfit_of_the_library(model, ids, targets, steps):
    batches = iter(lambda: (ids, targets), None)
    return library.train(model, batches, steps, peak=1e-2, warmup=10, weight_decay=0, progress=False).losses


def tinytown_by_its_stories():
    town = Tinytown(random.Random(5).randrange(1000))
    stories = town.sample(500)
    return -sum(map(town.log_prob, stories)) / math.log(2) / len(stories)


def law_by_loops(runs, E, N, D):
    """Every pair of exponents in turn, in steps of 0.02, then finer ones around the best; relative errors."""
    runs = np.array(runs)

    def best(exponents_a, exponents_b):
        found = []
        for a in exponents_a:
            for b in exponents_b:
                terms = np.stack([runs[:, 0] ** -a, runs[:, 1] ** -b], axis=1) / runs[:, 2:]
                aim = (runs[:, 2] - E) / runs[:, 2]
                factors = np.linalg.lstsq(terms, aim, rcond=None)[0]
                found.append((np.sum((terms @ factors - aim) ** 2), a, b, factors))
        return min(found, key=lambda each: each[0])

    _, a, b, _ = best(np.arange(0.02, 1.5, 0.06), np.arange(0.02, 1.5, 0.06))
    _, a, b, (A, B) = best(a + np.arange(-0.06, 0.065, 0.01), b + np.arange(-0.06, 0.065, 0.01))
    return a, b, E + A / N**a + B / D**b


def law_by_gradients(runs, E, N, D):
    """All four unknowns at once, from logarithms, as Hoffmann and others did."""
    n, d, losses = torch.tensor(runs, dtype=torch.float64).T
    unknown = torch.tensor([2.0, 0.3, 2.0, 0.3], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([unknown], max_iter=500, line_search_fn="strong_wolfe", tolerance_change=1e-14)

    def above(n, d):
        log_A, a, log_B, b = unknown
        return torch.logaddexp(log_A - a * torch.log(n), log_B - b * torch.log(d))

    def error():
        optimizer.zero_grad()
        wrong = (above(n, d) - torch.log(losses - E)).square().sum()
        wrong.backward()
        return wrong

    optimizer.step(error)
    _, a, _, b = unknown.tolist()
    return a, b, E + above(torch.tensor(float(N)), torch.tensor(float(D))).exp().item()


def muon_without_transposing(W, gradient, momentum, lr, beta=0.95):
    momentum = momentum * beta + gradient
    update = torch.add(gradient, momentum, alpha=beta)
    X = update / (torch.linalg.norm(update) + 1e-7)
    for _ in range(5):
        gram = X.mT @ X
        X = 3.4445 * X - 4.775 * X @ gram + 2.0315 * X @ gram @ gram
    return W - lr * math.sqrt(max(1, W.shape[0] / W.shape[1])) * X, momentum


def muon_by_singular_values(W, gradient, momentum, lr, beta=0.95):
    """The polynomial of the rounds, applied to the singular values."""
    momentum = beta * momentum + gradient
    U, s, Vh = torch.linalg.svd(gradient + beta * momentum, full_matrices=False)
    if s.any():
        s = s / s.norm()
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    scale = (W.shape[0] / W.shape[1]) ** 0.5 if W.shape[0] > W.shape[1] else 1.0
    return W - lr * scale * (U * s) @ Vh, momentum


def muon_in_numpy(W, gradient, momentum, lr, beta=0.95):
    W, gradient, momentum = W.numpy(), gradient.numpy(), momentum.numpy()
    momentum = beta * momentum + gradient
    X = gradient + beta * momentum
    tall = W.shape[0] > W.shape[1]
    X = X.T if tall else X
    X = X / max(np.sqrt((X * X).sum()), 1e-10)
    for _ in range(5):
        A = np.dot(X, X.T)
        X = 3.4445 * X - 4.7750 * np.dot(A, X) + 2.0315 * np.linalg.multi_dot([A, A, X])
    X = X.T if tall else X
    return W - lr * max(1, W.shape[0] / W.shape[1]) ** 0.5 * X, momentum


def muon_in_float64(W, gradient, momentum, lr, beta=0.95):
    """As lists of two, from computations in float64."""
    m = momentum.double().mul(beta).add(gradient)
    X = torch.nn.functional.normalize((m * beta + gradient).flatten(), dim=0).view(W.shape)
    for _ in range(5):
        AX = X @ X.T @ X
        X = 3.4445 * X - 4.7750 * AX + 2.0315 * X @ X.T @ AX
    step = lr * max(W.size(0), W.size(1)) ** 0.5 / W.size(1) ** 0.5 * X
    return [(W - step).to(W.dtype), m.to(W.dtype)]


RIGHT = {
    "training.cross_entropy": [
        cross_entropy_of_torch,
        cross_entropy_by_loops,
        cross_entropy_in_numpy,
        cross_entropy_by_one_hot,
        cross_entropy_in_float32,
    ],
    "training.get_batch": [batch_of_slices, batch_of_windows, batch_in_numpy],
    "training.learning_rate": [rate_by_stretches, rate_in_torch],
    "training.step": [step_with_own_loss, step_with_autograd, step_with_none],
    "training.scaling_law": [law_by_loops, law_by_gradients],
    "training.accumulate": [accumulated_by_sums, accumulated_in_lists],
    "training.clip": [clip_of_torch, clip_one_long_vector, clip_by_loops],
    "training.muon": [
        muon_without_transposing,
        muon_by_singular_values,
        muon_in_numpy,
        muon_in_float64,
    ],
    "training.overfit": [overfit_with_momentum],
    "training.limit": [43, np.float64(42.5), torch.tensor(43.06), tinytown_by_its_stories()],
}
OF_THE_LIBRARY = {
    "training.get_batch": [batch_of_the_library],
    "training.learning_rate": [by_way_of(library.learning_rate)],
    "training.overfit": [overfit_of_the_library],
}
