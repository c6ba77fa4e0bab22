"""How the tests of chapter 12 build arguments that are not plain data, and use an answer: see `grading/fixtures.py`."""

import contextlib

import torch
from torch import Tensor, nn

from course_lib.grading.judge.values import plain


def with_gradients(values: list[Tensor], gradients: list[Tensor | None]) -> list[nn.Parameter]:
    """Return parameters that already have their gradients."""
    parameters = [nn.Parameter(value) for value in values]
    for parameter, gradient in zip(parameters, gradients):
        parameter.grad = gradient
    return parameters


def batches_read(answer, ids, batch_size, T, generator):
    """Return many batches, and the first twenty again from the same state of the generator.

    The result has, by name, inputs and targets (calls, B, T), and again (20, B, T). If these are not batches, it has
    their shapes in words, or the answer's result.
    """
    again = generator.clone_state()

    def batch_from(rng):
        batch = plain(answer(ids, batch_size, T, rng))
        if isinstance(batch, (tuple, list)) and all(isinstance(part, list) for part in batch):
            with contextlib.suppress(TypeError, ValueError, RuntimeError):
                return tuple(map(torch.tensor, batch))  # lists of ids are allowed
        return batch

    calls = 40 if len(ids) == T + 1 else min(600, max(40, 2000 // batch_size))  # one position: nothing to count
    batches = [batch_from(generator) for _ in range(calls)]
    for batch in batches:
        if not isinstance(batch, (tuple, list)) or len(batch) != 2 or not all(isinstance(x, Tensor) for x in batch):
            return batch
        if any(part.shape != (batch_size, T) or part.is_floating_point() for part in batch):
            kinds = (f"{tuple(part.shape)} of {str(part.dtype).removeprefix('torch.')}" for part in batch)
            return dict(zip(("inputs", "targets"), kinds))
    inputs, targets = (torch.stack(parts) for parts in zip(*batches))
    return {"inputs": inputs, "targets": targets, "again": torch.stack([batch_from(again)[0] for _ in batches[:20]])}


def steps_taken(answer, model, ids, targets, optimizer, max_norm, leftover=0.0, steps=1):
    """Return training steps: (the answer's result, a list for several steps; how far all steps moved each parameter).

    optimizer: the name of one of torch's optimizers, and its settings. leftover: gradients that exist before the first
    step.
    """
    return _stepped(lambda made: answer(model, ids, targets, made, max_norm), model, optimizer, leftover, steps)


def steps_accumulated(answer, model, micro_batches, optimizer, max_norm, leftover=0.0, steps=1):
    """Return the result of steps_taken, and the most tokens whose graph was kept at one time for a backward pass."""
    waiting, most = [0], [0]

    def forward(_, given, found):
        tokens = given[0].numel()
        waiting[0] += tokens
        most[0] = max(most[0], waiting[0])
        logits = found[0] if isinstance(found, tuple) else found  # the answer may compute its own loss from them
        if logits.requires_grad:
            logits.register_hook(lambda _: waiting.__setitem__(0, waiting[0] - tokens))

    watch = model.register_forward_hook(forward)
    losses, moved = _stepped(
        lambda made: answer(model, micro_batches, made, max_norm), model, optimizer, leftover, steps
    )
    watch.remove()
    return losses, moved, most[0]


def _stepped(step, model, optimizer, leftover, steps):
    settings = dict(optimizer)
    parameters = list(model.parameters())
    made = getattr(torch.optim, settings.pop("name"))(parameters, **settings)
    before = [parameter.detach().clone() for parameter in parameters]
    if leftover:
        for parameter in parameters:
            parameter.grad = torch.full_like(parameter, leftover)
    losses = [step(made) for _ in range(steps)]
    moved = torch.cat([(after - old).flatten() for after, old in zip(parameters, before)])
    return losses[0] if steps == 1 else losses, moved


def clipped(answer, parameters, max_norm, once=False):
    """Return (the answer's result, the gradients afterwards, the values afterwards).

    once: pass the parameters as a generator, which can be read only once."""
    norm = answer(iter(parameters) if once else parameters, max_norm)
    return norm, [parameter.grad for parameter in parameters], [parameter.detach() for parameter in parameters]


def memorized(answer, model, ids, targets, steps):
    """Return the result of training on one batch: the reported losses and the weights after it, or the answer's result
    if it has another form."""
    losses = answer(model, ids, targets, steps)
    try:
        reported = torch.as_tensor(losses, dtype=torch.float64).detach()
    except (TypeError, ValueError, RuntimeError):
        return losses
    if reported.ndim > 1 or not reported.numel():
        return losses
    return {"losses": reported.reshape(-1), "weights": dict(model.state_dict())}
