"""How the tests of chapter 8 build arguments that are not plain data, and use an answer: see `grading/fixtures.py`."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook


def affine(scale: float, shift: float) -> Callable:
    """Return x · scale + shift as a function, a part of a block that you can follow on paper."""
    return lambda x: x * scale + shift


def feed_forward(W_up: Tensor, W_down: Tensor) -> Callable:
    """Return two layers with a ReLU between them, as a function of x (..., D)."""
    return lambda x: (x @ W_up).relu() @ W_down


def own_layer_norm(gain: Tensor, shift: Tensor) -> Callable:
    """Return a LayerNorm with these parameters, as a function of x (..., D)."""
    return lambda x: nn.functional.layer_norm(x, gain.shape, gain, shift)


class _SmallStack(nn.Module):
    """Apply blocks of causal one-head attention and a feed-forward network to token ids, in either order of the
    norms."""

    def __init__(self, vocab_size, d_model, n_blocks, pre_norm):
        super().__init__()
        self.pre_norm = pre_norm
        self.token_embedding = nn.Embedding(vocab_size, d_model)
        self.blocks: Any = nn.ModuleList(  # of dictionaries
            nn.ModuleDict(
                {
                    "norm1": nn.LayerNorm(d_model),
                    "qkv": nn.Linear(d_model, 3 * d_model),
                    "out": nn.Linear(d_model, d_model),
                    "norm2": nn.LayerNorm(d_model),
                    "up": nn.Linear(d_model, 4 * d_model),
                    "down": nn.Linear(4 * d_model, d_model),
                }
            )
            for _ in range(n_blocks)
        )
        self.final_norm = nn.LayerNorm(d_model) if pre_norm else nn.Identity()
        self.output = nn.Linear(d_model, vocab_size, bias=False)

    def forward(self, ids, targets):
        x = self.token_embedding(ids)  # (B, T, d_model)
        for block in self.blocks:
            x = self._add(x, block["norm1"], lambda h, block=block: self._attend(block, h))
            x = self._add(x, block["norm2"], lambda h, block=block: block["down"](block["up"](h).relu()))
        logits = self.output(self.final_norm(x))  # (B, T, V)
        return logits, nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def _add(self, x, norm, branch):
        return x + branch(norm(x)) if self.pre_norm else norm(x + branch(x))

    @staticmethod
    def _attend(block, h):
        q, k, v = block["qkv"](h).chunk(3, dim=-1)  # (B, T, d_model) each
        return block["out"](nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True))


def small_stack(sizes: dict, seed: int) -> nn.Module:
    """Return an untrained model with a few blocks and Xavier's weights: model(ids, targets) -> (logits, loss)."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _SmallStack(**sizes)
        for module in model.blocks.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                nn.init.zeros_(module.bias)
        nn.init.normal_(model.output.weight, std=0.02)
        return model


def trained_both(answer, pre, post, inputs, targets, learning_rate):
    """Return a report on the training of two models, or the answer's result if it has another form.

    For each model the report has the number of losses, the losses that rounding does not change, the mean of the last
    three, the number of parameters that have moved, whether a gradient was altered between `backward` and a step, and
    the steps of torch's optimizers. Losses above 10 count as 10.
    """
    models = {"pre": pre, "post": post}
    start = {name: [parameter.detach().clone() for parameter in model.parameters()] for name, model in models.items()}
    with _Steps(learning_rate, *models.values()) as steps:
        result = answer(pre, post, inputs, targets, learning_rate)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return result
    summary: dict[str, Any] = {}
    for (name, model), losses in zip(models.items(), result):
        try:
            losses = torch.as_tensor(losses, dtype=torch.float64).detach().clamp(-10.0, 10.0)
        except (TypeError, ValueError, RuntimeError):
            return result
        if losses.ndim != 1 or len(losses) < 4:
            return result
        summary[f"{name}: losses"] = len(losses)
        summary[f"{name}: followed"] = losses[: FOLLOWED[name]].tolist()
        summary[f"{name}: mean of the last three"] = losses[-3:].mean().item()
        moved = [not torch.equal(*both) for both in zip(start[name], model.parameters())]
        summary[f"{name}: moved"] = sum(moved)
        summary[f"{name}: gradients altered"] = not steps.altered.isdisjoint(model.parameters())
        summary[f"{name}: updates"] = sorted({steps.counts.get(parameter, 0) for parameter in model.parameters()})
        other = (steps.settings.get(parameter, set()) for parameter in model.parameters())
        summary[f"{name}: other settings"] = sorted(set().union(*other))
    return summary


# The losses that are compared one by one. At chance, where post-norm stays, rounding changes a loss by up to 0.03.
FOLLOWED = {"pre": None, "post": 4}
SETTINGS = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize")


class _Steps:
    """Record the steps of torch's optimizers.

    altered: the parameters whose gradient at a step is not the one from `backward`. counts: the number of steps for
    each parameter. settings: those that differ from AdamW's with the given learning rate.
    """

    def __init__(self, learning_rate, *models):
        self.parameters = [parameter for model in models for parameter in model.parameters()]
        self.left, self.altered, self.counts, self.settings = {}, set(), {}, {}
        self.usual = torch.optim.AdamW(self.parameters, lr=learning_rate).defaults

    def __enter__(self):
        self.hooks = [each.register_post_accumulate_grad_hook(self._note) for each in self.parameters]
        self.hooks.append(register_optimizer_step_pre_hook(self._compare))
        return self

    def __exit__(self, *error):
        for hook in self.hooks:
            hook.remove()

    def _note(self, parameter):
        self.left[parameter] = parameter.grad.detach().clone()

    def _compare(self, optimizer, args, kwargs):
        for group in optimizer.param_groups:
            if isinstance(optimizer, torch.optim.AdamW):
                other = {key for key in SETTINGS if not _is_the_same(group[key], self.usual[key])}
            else:
                other = {type(optimizer).__name__}
            for parameter in group["params"]:
                self.counts[parameter] = self.counts.get(parameter, 0) + 1
                self.settings.setdefault(parameter, set()).update(other)
        for parameter, gradient in self.left.items():
            if parameter.grad is not None and not torch.equal(parameter.grad, gradient):
                self.altered.add(parameter)


def _is_the_same(setting, usual) -> bool:
    """Return whether two settings of an optimizer are equal, whether they are numbers, pairs or tensors."""
    one, other = (torch.as_tensor(each, dtype=torch.float64) for each in (setting, usual))
    return torch.allclose(one, other, rtol=1e-6, atol=0.0)
