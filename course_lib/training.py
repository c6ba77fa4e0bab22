"""Training: next-token loss, AdamW, warm-up and cosine, clipping; resumable, with a progress bar.

Chapter 12. `train` is one loop of plain PyTorch. The batches bring inputs and targets; the model brings the loss.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from course_lib import checks
from course_lib.files import write_whole
from course_lib.gpt import IGNORED, evaluating


class TrainingDiverged(RuntimeError):
    """The loss or a gradient stopped being a finite number."""


@dataclass
class History:
    """What a training run saw, one entry per step: loss in nats per token, learning rate, gradient norm before
    clipping."""

    losses: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.losses)


def learning_rate(step: int, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """Return the learning rate of a step: warm-up, then cosine.

    peak · step / warmup                                            below warmup
    floor + (peak − floor) · ½(1 + cos(π · (step − warmup) / (total − warmup)))    from warmup to total
    floor                                                           after

    Args:
        step: updates are counted from 1, as in `train`. Step 0 lies before the first update: its rate is 0, or the peak
            where warmup is 0.
        peak, floor: highest and last learning rate.
        warmup, total: in steps.

    Errors: ValueError if step or warmup is negative, total is not above warmup, or not 0 ≤ floor ≤ peak < ∞.
    Source: Loshchilov & Hutter 2017 (cosine); Vaswani et al. 2017 (warm-up).
    """
    checks.require_schedule(step, peak, warmup, total, floor)
    if step < warmup:
        return peak * step / warmup
    progress = min(1.0, (step - warmup) / (total - warmup))
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def make_optimizer(
    model: nn.Module, weight_decay: float = 0.1, betas: tuple[float, float] = (0.9, 0.95)
) -> torch.optim.AdamW:
    """Return AdamW (Loshchilov & Hutter 2019) that decays matrices only: a norm's gain or a bias has no reason to be
    pulled to zero."""
    checks.require_at_least_zero(weight_decay=weight_decay)
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=0.0, betas=betas, fused=True)


def train(
    model: nn.Module,
    batches: Iterator[tuple[Tensor | None, ...]],
    steps: int,
    peak: float = 3e-3,
    warmup: int = 100,
    floor: float = 0.0,
    weight_decay: float = 0.1,
    max_norm: float | None = 1.0,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 500,
    on_step: Callable[[int, nn.Module], None] | None = None,
    progress: bool = True,
) -> History:
    """Train `model` for `steps` updates on `batches`.

    Args:
        model: called as model(*batch) -> (logits, loss). For a `DecoderOnly` a batch is (ids (B, T), targets (B, T)),
            for an `EncoderDecoder` (source_ids, target_ids, source_mask, targets).
        batches: an iterator such as `Batches`; if it has a `generator`, its state is kept in the checkpoint.
        steps: updates in all, those before a resumption counted in.
        peak, warmup, floor: see `learning_rate`; total is `steps`.
        max_norm: gradients with a larger norm are scaled down to it; None: never.
        checkpoint: a file. If it exists, training goes on from it, exactly as if it had never stopped; it is written
            every `checkpoint_every` steps and at the end, and never half. It holds what dropout draws from on a CPU.
        on_step: called with (updates done, model) before the first update and after each.
        progress: show a bar with the loss.

    Errors: ValueError for a setting that makes no sense, before anything is done, or if the batches run out;
        TrainingDiverged as soon as loss or gradient is not finite, with the step and what
        to try.
    """
    checks.require_training_run(batches, steps, max_norm, checkpoint, checkpoint_every)
    warmup = min(warmup, steps - 1)  # a run of a few steps still reaches its peak
    checks.require_schedule(0, peak, warmup, steps, floor)  # refused, if it must be, before anything is done
    optimizer = make_optimizer(model, weight_decay)
    history = History()
    generator = getattr(batches, "generator", None)
    if checkpoint and Path(checkpoint).exists():
        history = _resume(checkpoint, model, optimizer, generator)
    model.train()
    on_step = on_step or (lambda step, model: None)
    if not len(history):
        on_step(0, model)
    bar = tqdm(total=steps, initial=len(history), disable=not progress, desc="training", unit="step")
    for step in range(len(history), steps):
        rate = learning_rate(step + 1, peak, warmup, steps, floor)  # step + 1: an update at rate 0 would be wasted
        for group in optimizer.param_groups:
            group["lr"] = rate
        _, loss = model(*checks.require_next(batches, step, steps))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), math.inf if max_norm is None else max_norm)
        if not (math.isfinite(loss.item()) and math.isfinite(norm.item())):
            bar.close()
            raise TrainingDiverged(
                f"at step {step} the loss is {loss.item()} and the gradient norm {norm.item()}, at learning rate "
                f"{rate:.2e}. The model holds the weights of the step before. Try a lower peak (now {peak}) or a "
                f"longer warmup (now {warmup})."
            )
        optimizer.step()
        history.losses.append(loss.item())
        history.learning_rates.append(rate)
        history.gradient_norms.append(norm.item())
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
        bar.update()
        on_step(step + 1, model)
        if checkpoint and ((step + 1) % checkpoint_every == 0 or step + 1 == steps):
            _save(checkpoint, model, optimizer, generator, history)
    bar.close()
    return history


def _save(path, model, optimizer, generator, history) -> None:
    state = {
        "model": model.state_dict(), "optimizer": optimizer.state_dict(), "history": asdict(history),
        "generator": generator.get_state() if generator else None,
        "torch": torch.get_rng_state(),  # what dropout draws from
    }  # fmt: skip
    write_whole(Path(path), lambda part: torch.save(state, part))


def _resume(path, model, optimizer, generator) -> History:
    try:
        state = torch.load(path, weights_only=True)
        checks.require_finite({n: state["model"][n] for n, _ in model.named_parameters() if n in state["model"]})
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if generator and state["generator"] is not None:
            generator.set_state(state["generator"])
        torch.set_rng_state(state.get("torch", torch.get_rng_state()))  # an older file has none
        return History(**state["history"])
    except Exception as error:
        raise ValueError(
            f"cannot resume from {path}: {type(error).__name__}: {str(error).splitlines()[0]}. "
            "It belongs to another model, or is damaged. Move it away to begin anew, or name another `checkpoint`."
        ) from error


def story_losses(
    model: nn.Module, stories: list[list[int]], batch_size: int = 64, pad_id: int = 0
) -> tuple[Tensor, Tensor]:
    """Measure how well a model predicts whole stories, each from its own beginning.

    Args:
        stories: token ids, each from `<bos>` to `<eos>`.
        pad_id: any id of the vocabulary. It fills the rows after shorter stories, where nothing is predicted.

    Errors: ValueError if there is no story, or one holds no token to predict.
    Returns: (nats (N,), predicted tokens (N,)): −ln P(story) under the model, and len − 1.
    The loss per token of the whole set is nats.sum() / tokens.sum().
    """
    checks.require_stories(stories, batch_size)
    device = next(model.parameters()).device
    nats = []
    for start in range(0, len(stories), batch_size):
        rows = stories[start : start + batch_size]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [pad_id] * (longest - len(row)) for row in rows], device=device)  # (B, T + 1)
        targets = torch.tensor([row[1:] + [IGNORED] * (longest - len(row)) for row in rows], device=device)  # (B, T)
        with evaluating(model):
            logits = model(ids[:, :-1])  # (B, T, V)
        # (B, T), 0 after the end of a story
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
        nats.append(loss.double().sum(dim=1).cpu())
    return torch.cat(nats), torch.tensor([len(row) - 1 for row in stories])
