"""Right answers in the manner of others, chapter 12: a step, clipping, and one batch by heart."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

# --- a step -----------------------------------------------------------------------------------------------------------


def step_with_a_scaler(model, X, Y, optimizer, grad_clip):
    """nanoGPT's loop, with a scaler that is switched off."""
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    optimizer.zero_grad(set_to_none=True)
    logits, loss = model(X, Y)
    assert logits.shape[:2] == Y.shape
    scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()


def step_with_a_closure(model, ids, targets, optimizer, max_norm):
    """Lightning: everything but the update happens in the closure that the optimizer calls."""

    def closure():
        optimizer.zero_grad()
        loss = model(ids, targets)[1]
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type=2.0)
        return loss

    return float(optimizer.step(closure).detach())


def step_text_by_text(model, ids, targets, optimizer, max_norm):
    """Accumulates over the texts of the batch, one after the other."""
    model.zero_grad()
    total = 0.0
    for row, wanted in zip(ids.split(1), targets.split(1)):
        _, loss = model(row, wanted)
        loss = loss / len(ids)
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return total


def step_with_functional_gradients(model, ids, targets, optimizer, max_norm):
    """JAX-ish: a function of the parameters, its value and gradient, then the update."""
    names = [name for name, _ in model.named_parameters()]

    def loss_fn(params):
        return torch.func.functional_call(model, params, (ids, targets))[1]

    params = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    loss = loss_fn(params)
    grads = dict(zip(names, torch.autograd.grad(loss, list(params.values()))))
    norm = torch.sqrt(sum(torch.sum(torch.square(g)) for g in grads.values()))
    trigger = norm < max_norm
    for name, p in model.named_parameters():
        p.grad = torch.where(trigger, grads[name], grads[name] / norm.type_as(grads[name]) * max_norm)
    optimizer.step()
    return loss.detach().cpu().numpy()


def step_with_a_total_norm(model, ids, targets, optimizer, max_norm):
    """torchtitan: the norm and the clipping are two calls."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    _, loss = model(ids, targets)
    optimizer.zero_grad()
    loss.backward()
    total_norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    nn.utils.clip_grads_with_norm_(parameters, max_norm, total_norm)
    optimizer.step()
    return loss.detach()


# --- clipping ---------------------------------------------------------------------------------------------------------


def clip_with_a_coefficient(parameters, max_norm, norm_type=2.0):
    """PyTorch's own manner: norms of norms, a small number below the bar, a factor of at most 1."""
    grads = [p.grad for p in parameters if p.grad is not None]
    total_norm = torch.norm(torch.stack([torch.norm(g.detach(), norm_type) for g in grads]), norm_type)
    clip_coef = max_norm / (total_norm + 1e-6)
    clip_coef_clamped = torch.clamp(clip_coef, max=1.0)
    for g in grads:
        g.detach().mul_(clip_coef_clamped.to(g.device))
    return total_norm


def clip_if_needed(parameters, max_norm):
    """Megatron: squares in float32, a branch on the coefficient, data assigned."""
    params = list(filter(lambda p: p.grad is not None, parameters))
    total = torch.zeros(1, dtype=torch.float32)
    for p in params:
        total += torch.linalg.vector_norm(p.grad.float()) ** 2
    total_norm = total.item() ** 0.5
    clip_coeff = max_norm / (total_norm + 1.0e-6)
    if clip_coeff < 1.0:
        for p in params:
            p.grad.data = p.grad.data * clip_coeff
    return total_norm


def clip_in_bulk(parameters, max_norm):
    """apex: one call for all norms, one for all products."""
    grads = [p.grad for p in parameters if isinstance(p.grad, torch.Tensor)]
    norms = torch._foreach_norm(grads)
    norm = torch.linalg.norm(torch.stack(norms))
    if norm.item() > max_norm:
        torch._foreach_mul_(grads, (max_norm / norm).item())
    return norm.item()


def clip_by_a_trigger(parameters, max_norm):
    """optax: the choice is made element by element; the norm stays a tensor."""
    params = tuple(parameters)
    g_norm = torch.sqrt(sum(p.grad.square().sum() for p in params if p.grad is not None))
    for p in params:
        if p.grad is not None:
            p.grad = torch.where(g_norm < max_norm, p.grad, p.grad / g_norm.clamp(min=1e-30) * max_norm)
    return g_norm


def clip_number_by_number(parameters, max_norm):
    """NumPy views of the gradients, changed where they lie."""
    views = [p.grad.numpy() for p in parameters if p.grad is not None]
    norm = math.hypot(*(float(number) for view in views for number in view.ravel()))
    for view in views:
        for place in np.ndindex(view.shape):
            view[place] *= min(1.0, max_norm / norm) if norm else 1.0
    return norm


# --- one batch by heart -----------------------------------------------------------------------------------------------


def overfit_with_adam(model, ids, targets, steps):
    """The first loop of most tutorials."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.95))
    lossi = []
    for i in range(steps):
        logits, loss = model(ids, targets)
        lossi.append(loss.item())
        if i % 50 == 0:
            print(f"step {i}: loss {lossi[-1]:.4f}")
        model.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    assert logits.ndim == 3
    return lossi


def overfit_with_a_schedule(model, ids, targets, steps):
    """A one-cycle schedule, and the loss from the logits."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.0)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.02, total_steps=steps + 1)
    history = np.zeros(steps)
    for step in range(steps):
        logits, _ = model(ids, targets)
        loss = F.cross_entropy(logits.permute(0, 2, 1), targets)
        history[step] = loss.detach().numpy()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    return history


def overfit_by_hand(model, ids, targets, steps):
    """Adam written out, with gradients from autograd."""
    params = list(model.parameters())
    m, v = ([torch.zeros_like(p) for p in params] for _ in range(2))
    losses = []
    for t in range(1, steps + 1):
        loss = model(ids, targets)[-1]
        losses.append(float(loss))
        for p, g, mean, square in zip(params, torch.autograd.grad(loss, params), m, v):
            mean.lerp_(g, 0.1)
            square.lerp_(g * g, 0.01)
            with torch.no_grad():
                p -= 6e-3 * (mean / (1 - 0.9**t)) / ((square / (1 - 0.99**t)).sqrt() + 1e-8)
    return losses


# --- a batch in parts -------------------------------------------------------------------------------------------------


def accumulated_as_in_transformers(model, micro_batches, optimizer, max_norm):
    """The number of tokens is known beforehand, and every loss is a sum over it."""
    num_items = torch.stack([targets.new_tensor(targets.numel()) for _, targets in micro_batches]).sum()
    tr_loss = torch.tensor(0.0)
    model.zero_grad()
    for ids, targets in micro_batches:
        logits, _ = model(ids, targets)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="sum") / num_items
        loss.backward()
        tr_loss = tr_loss + loss.detach()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    optimizer.zero_grad()
    return tr_loss.item()


def accumulated_as_in_nanogpt(model, micro_batches, optimizer, max_norm):
    """Each part's loss is scaled before its backward pass; the gradients are thrown away at the end."""
    optimizer.zero_grad(set_to_none=True)
    tokens = sum(Y.numel() for _, Y in micro_batches)
    lossf = 0.0
    for micro_step in range(len(micro_batches)):
        X, Y = micro_batches[micro_step]
        _, loss = model(X, Y)
        loss = loss * (Y.numel() / tokens)
        loss.backward()
        lossf += loss.item()
    if max_norm != 0.0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return lossf


def accumulated_with_given_gradients(model, micro_batches, optimizer, max_norm):
    """The share goes into the backward pass as its first gradient."""
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    sizes = [ids.numel() for ids, _ in micro_batches]
    losses = []
    for (ids, targets), size in zip(micro_batches, sizes):
        loss = model(ids, targets)[1]
        loss.backward(gradient=torch.full_like(loss, size / sum(sizes)))
        losses.append(loss.detach())
    torch.nn.utils.clip_grad_norm_(list(model.parameters()), max_norm)
    optimizer.step()
    return np.average([loss.item() for loss in losses], weights=sizes)


def accumulated_as_a_running_mean(model, micro_batches, optimizer, max_norm):
    """Old gradients shrink as new ones come: at each moment the mean of all tokens so far."""
    optimizer.zero_grad()
    seen, mean = 0, 0.0
    for ids, targets in micro_batches:
        new = targets.numel()
        for p in model.parameters():
            if p.grad is not None:
                p.grad.mul_(seen / (seen + new))
        _, loss = model(ids, targets)
        (loss * new / (seen + new)).backward()
        mean = (mean * seen + loss.item() * new) / (seen + new)
        seen += new
    total_norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in model.parameters()]))
    for p in model.parameters():
        p.grad.mul_(torch.clamp(max_norm / (total_norm + 1e-6), max=1.0))
    optimizer.step()
    return mean


# --- scaling laws -----------------------------------------------------------------------------------------------------


def law_by_gauss_newton(runs, E, N, D):
    """Steps from the slopes of each run's error, damped, on the logarithm of the factors; from several starts."""
    n, d, losses = (torch.tensor(column, dtype=torch.float64) for column in zip(*runs))
    n0, d0 = n.log().mean(), d.log().mean()

    def model(x):
        first = torch.exp(x[0] - x[1] * (n.log() - n0))
        second = torch.exp(x[2] - x[3] * (d.log() - d0))
        slopes = torch.stack([first, -(n.log() - n0) * first, second, -(d.log() - d0) * second], dim=1)
        return first + second, slopes

    best = None
    for a, b in ((0.3, 0.5), (0.5, 0.3), (0.4, 0.8)):
        half = torch.log((losses - E).mean() / 2)
        x, damping = torch.stack([half, half.new_tensor(a), half, half.new_tensor(b)]), 1e-2
        value, J = model(x)
        error = (losses - E - value).square().sum()
        for _ in range(200):
            H = J.T @ J
            step = torch.linalg.solve(H + damping * torch.diag(H.diagonal()), J.T @ (losses - E - value))
            new_value, new_J = model(x + step)
            new_error = (losses - E - new_value).square().sum()
            if new_error < error:
                x, value, J, error, damping = x + step, new_value, new_J, new_error, damping / 3
            else:
                damping *= 3
        if best is None or error < best[0]:
            best = error, x
    A, a, B, b = best[1].tolist()
    predicted = E + math.exp(A - a * (math.log(N) - n0.item())) + math.exp(B - b * (math.log(D) - d0.item()))
    return a, b, predicted


def law_by_profiles(runs, E, N, D):
    """The grid gets finer around the best point; two unknowns by Cramer's rule, in NumPy."""
    data = np.asarray(runs, dtype=float)
    y = data[:, 2] - E
    centre, width = np.array([0.75, 0.75]), 0.73
    for _ in range(8):
        side = np.linspace(-width, width, 21)
        a, b = (grid.ravel() for grid in np.meshgrid(centre[0] + side, centre[1] + side, indexing="ij"))
        u = (data[:, 0] / 1e5) ** -a[:, None]
        v = (data[:, 1] / 1e6) ** -b[:, None]
        uu, uv, vv, uy, vy = (u * u).sum(1), (u * v).sum(1), (v * v).sum(1), u @ y, v @ y
        det = uu * vv - uv**2
        A, B = (vv * uy - uv * vy) / det, (uu * vy - uv * uy) / det
        best = np.square(A[:, None] * u + B[:, None] * v - y).sum(1).argmin()
        centre, width = np.array([a[best], b[best]]), width / 3
    loss = E + A[best] * (N / 1e5) ** -centre[0] + B[best] * (D / 1e6) ** -centre[1]
    return float(centre[0]), float(centre[1]), np.float64(loss)


STRANGERS = {
    "training.step": [
        step_with_a_scaler,
        step_with_a_closure,
        step_text_by_text,
        step_with_functional_gradients,
        step_with_a_total_norm,
    ],
    "training.clip": [
        clip_with_a_coefficient,
        clip_if_needed,
        clip_in_bulk,
        clip_by_a_trigger,
        clip_number_by_number,
    ],
    "training.overfit": [overfit_with_adam, overfit_with_a_schedule, overfit_by_hand],
    "training.accumulate": [
        accumulated_as_in_transformers,
        accumulated_as_in_nanogpt,
        accumulated_with_given_gradients,
        accumulated_as_a_running_mean,
    ],
    "training.scaling_law": [law_by_gauss_newton, law_by_profiles],
}
