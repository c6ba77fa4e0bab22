"""Training: next-token loss, AdamW, warm-up and cosine, clipping; resumable, with a progress bar.

Chapter 12. `train` is one loop of plain PyTorch. The batches provide inputs and targets; the model computes the loss.
`training_options` has the rest: `gradients` computes the gradients of an update, `checkpoints` saves and resumes a run,
`processes` distributes it, and `memory` keeps freed memory for the next update.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from course_lib import checks
from course_lib.gpt import IGNORED, evaluating
from course_lib.training_options import processes
from course_lib.training_options.checkpoints import load_checkpoint, save_checkpoint
from course_lib.training_options.gradients import add_gradients, block_options, clip, require_options
from course_lib.training_options.memory import keep_freed_memory


class TrainingDiverged(RuntimeError):
    """Report that the loss or the gradient norm is no longer finite."""


@dataclass
class History:
    """Record a training run, with one entry per step: the loss in nats per token, the learning rate, and the gradient
    norm before clipping."""

    losses: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.losses)


def learning_rate(step: int, peak: float, warmup: int, total: int, floor: float = 0.0) -> float:
    """Return the learning rate of a step: linear warm-up, then cosine decay.

    peak · step / warmup                                            before warmup
    floor + (peak − floor) · ½(1 + cos(π · (step − warmup) / (total − warmup)))    from warmup to total
    floor                                                           after

    Args:
        step: the number of the update, counted from 1 as in `train`. At step 0, before the first update, the rate is 0,
            or the peak if warmup is 0.
        peak, floor: highest and final learning rate.
        warmup, total: in steps.

    Errors: ValueError if step or warmup is negative, total is not above warmup, or not 0 ≤ floor ≤ peak < ∞.
    Source: Loshchilov & Hutter 2017 (cosine); Vaswani et al. 2017 (warm-up).
    """
    _require_schedule(step, peak, warmup, total, floor)
    if step < warmup:
        return peak * step / warmup
    progress = min(1.0, (step - warmup) / (total - warmup))
    return floor + (peak - floor) * 0.5 * (1 + math.cos(math.pi * progress))


def make_optimizer(
    model: nn.Module, weight_decay: float = 0.1, betas: tuple[float, float] = (0.9, 0.95)
) -> torch.optim.AdamW:
    """Return AdamW (Loshchilov & Hutter 2019) with weight decay for matrices only: there is no reason to pull a norm's
    gain or a bias towards zero."""
    checks.require_at_least_zero(weight_decay=weight_decay)
    _require_betas(betas)
    parameters = _require_trainable(model)
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
    precision: str = "float32",
    compile: bool = False,
    accumulate: int = 1,
    checkpoint_activations: bool = False,
    shard: bool = False,
) -> History:
    """Train `model` for `steps` updates on `batches`.

    To train on several processes, start the script with `torchrun` and call `training_options.processes.join_processes`
    first. Each process then calls `train` with the same arguments and seeds. An update uses one batch per process, and
    gives the same result as one process with a single batch of that total size.

    On Linux, the process keeps the memory that it frees, which saves time (COURSE_KEEP_MEMORY=0 prevents this).

    Args:
        model: called as model(*batch) -> (logits, loss). For a `DecoderOnly` a batch is (ids (B, T), targets (B, T)),
            for an `EncoderDecoder` (source_ids, target_ids, source_mask, targets).
        batches: an iterator such as `Batches`; if it has a `generator`, the checkpoint saves its state.
        steps: the total number of updates, including those before the run was resumed.
        peak, warmup, floor: see `learning_rate`; total is `steps`.
        max_norm: gradients with a larger norm are scaled down to it. None: no clipping.
        checkpoint: a file. If it exists, training resumes from it exactly as if it had not been interrupted. It is
            written every `checkpoint_every` steps and at the end; an interruption never leaves an incomplete file. It
            includes the CPU's random state, which dropout uses there.
        on_step: called with (updates done, model) before the first update and after each one.
        progress: show a progress bar with the loss.
        precision: "bf16" multiplies matrices in 16 bits, if the processor supports it; the weights stay float32.
        compile: compile the blocks into a few fused kernels at the first step. Needs a compiler.
        accumulate: batches per process and update, computed in sequence: like a larger batch, but in less memory.
        checkpoint_activations: keep only each block's input, and recompute the rest in the backward pass.
        shard: split weights, gradients and moments among the processes. `on_step` gets the split model; `model` gets
            the trained weights at the end.

    Errors: ValueError before training for an invalid setting or one that the machine does not support, and during
        training if the batches run out. TrainingDiverged as soon as the loss or the gradient norm is not finite.
    """
    _require_training_run(batches, steps, max_norm, checkpoint, checkpoint_every, accumulate)
    _require_schedule(0, peak, warmup, math.inf, floor)  # report an invalid setting before training
    warmup = min(warmup, steps - 1)  # even a run of a few steps reaches the peak
    checks.require_module(model=model)
    checks.require_switches(
        progress=progress, compile=compile, checkpoint_activations=checkpoint_activations, shard=shard
    )
    checks.require_callable(on_step=on_step)
    require_options(model, precision, compile, checkpoint_activations)
    processes.require_company(shard)
    keep_freed_memory()
    optimizer = make_optimizer(model, weight_decay)
    history = History()
    generator = getattr(batches, "generator", None)
    model.train()
    processes.draw_apart()
    if checkpoint and Path(checkpoint).exists():
        history = History(**load_checkpoint(checkpoint, model, optimizer, generator))
    trained, shared = processes.share_model(model, optimizer, shard, len(history))  # one process: `model` twice
    on_step = on_step or (lambda step, model: None)
    if not len(history):
        on_step(0, trained)
    bar = tqdm(
        total=steps, initial=len(history), disable=not progress or processes.rank() > 0, desc="training", unit="step"
    )
    with block_options(trained, compile, checkpoint_activations):
        for step in range(len(history), steps):
            rate = learning_rate(step + 1, peak, warmup, steps, floor)  # step + 1: at step 0 the rate is 0
            for group in optimizer.param_groups:
                group["lr"] = rate
            drawn = [_require_next(batches, step, steps) for _ in range(accumulate * processes.count())]
            optimizer.zero_grad(set_to_none=True)
            loss = add_gradients(shared, drawn, precision)
            norm = clip(trained, max_norm)
            if not (math.isfinite(loss) and math.isfinite(norm)):
                bar.close()
                processes.give_back(trained, model)
                raise TrainingDiverged(
                    f"at step {step} the loss is {loss} and the gradient norm {norm}, at learning rate {rate:.2e}. The "
                    f"model keeps the weights of the step before. Try a lower peak (now {peak}) or a longer warmup "
                    f"(now {warmup})."
                )
            optimizer.step()
            history.losses.append(loss)
            history.learning_rates.append(rate)
            history.gradient_norms.append(norm)
            bar.set_postfix(loss=f"{loss:.3f}", refresh=False)
            bar.update()
            on_step(step + 1, trained)
            if checkpoint and ((step + 1) % checkpoint_every == 0 or step + 1 == steps):
                save_checkpoint(checkpoint, trained, optimizer, generator, asdict(history))
    processes.give_back(trained, model)
    bar.close()
    return history


def story_losses(
    model: nn.Module, stories: list[list[int]], batch_size: int = 64, pad_id: int = 0
) -> tuple[Tensor, Tensor]:
    """Measure how well a model predicts complete stories, each from its beginning.

    Args:
        stories: the token ids of each story, from `<bos>` to `<eos>`.
        pad_id: any id of the vocabulary. It fills the row after a shorter story; these positions do not count.

    Errors: ValueError if there is no story, or a story has no token to predict.
    Returns: (nats (N,), predicted tokens (N,)): −ln P(story) under the model, and len − 1.
        The loss per token of all stories is nats.sum() / tokens.sum().
    """
    checks.require_module(model=model)
    _require_stories(stories, batch_size)
    checks.require_whole([pad_id], "pad_id")
    device = next(model.parameters()).device
    nats = []
    for start in range(0, len(stories), batch_size):
        rows = stories[start : start + batch_size]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [pad_id] * (longest - len(row)) for row in rows], device=device)  # (B, T + 1)
        targets = torch.tensor([row[1:] + [IGNORED] * (longest - len(row)) for row in rows], device=device)  # (B, T)
        with evaluating(model):
            logits = checks.require_called(model, (ids[:, :-1],))  # (B, T, V)
        # (B, T): the loss of each token, 0 after the end of a story
        loss = nn.functional.cross_entropy(logits.transpose(1, 2), targets, ignore_index=IGNORED, reduction="none")
        checks.require_real(loss, logits)
        nats.append(loss.cpu().double().sum(dim=1))
    return torch.cat(nats), torch.tensor([len(row) - 1 for row in stories])


def _require_betas(betas: tuple[float, ...]) -> None:
    """Raise ValueError unless AdamW's two betas are numbers in [0, 1)."""
    pair = isinstance(betas, tuple | list) and len(betas) == 2
    if not pair or not all(checks.is_number(beta) and 0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas must be two numbers in [0, 1), got {betas!r:.80}")


def _require_trainable(model: torch.nn.Module) -> list[Tensor]:
    """Return the trainable parameters. Raise ValueError if there are none: training would change nothing."""
    checks.require_module(model=model)
    parameters: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError(
            f"no parameter of {type(model).__name__} requires a gradient, so there is nothing to train: call "
            "requires_grad_(True) on the model, or on the part that should learn"
        )
    return parameters


def _require_schedule(step: float, peak: float, warmup: float, total: float, floor: float) -> None:
    """Raise ValueError unless the learning rate of this step can be computed."""
    numbers = {"step": step, "warmup": warmup, "total": total, "peak": peak, "floor": floor}
    if wrong := [name for name, value in numbers.items() if not checks.is_number(value) or value is True]:
        raise ValueError(f"{wrong[0]} must be a number, got {numbers[wrong[0]]!r:.80}")
    if not (step >= 0 and 0 <= warmup < total):
        raise ValueError(f"need step ≥ 0 and 0 ≤ warmup < total, got step={step}, warmup={warmup}, total={total}")
    if not 0 <= floor <= peak < math.inf:
        raise ValueError(f"need 0 ≤ floor ≤ peak, both finite, got floor={floor}, peak={peak}")


def _require_training_run(
    batches: object,
    steps: int,
    max_norm: float | None,
    checkpoint: str | Path | None,
    checkpoint_every: int,
    accumulate: int,
) -> None:
    """Raise ValueError or TypeError unless a training run can begin and its checkpoint can be written."""
    checks.require_at_least_one(steps=steps, checkpoint_every=checkpoint_every, accumulate=accumulate)
    checks.require_max_norm(max_norm)
    if checkpoint is not None:
        checks.require_path(checkpoint=checkpoint)
    if checkpoint and not Path(checkpoint).parent.is_dir():
        raise ValueError(
            f"checkpoint={str(checkpoint)!r} cannot be written: there is no folder {Path(checkpoint).parent}"
        )
    if not hasattr(batches, "__next__"):
        raise TypeError(
            f"batches must be an iterator, such as Batches, got {type(batches).__name__}: write iter(batches), or "
            "itertools.cycle(batches) to begin again after the last one"
        )


def _require_next(batches: Iterator, step: int, steps: int) -> tuple:
    """Return the next batch. Raise ValueError if there is none before the end of training."""
    if (batch := next(batches, None)) is not None:
        return batch
    fewer = f", or ask for at most {step} steps" if step else ""
    raise ValueError(f"the batches ran out at step {step} of {steps}: give an endless supply such as Batches{fewer}")


def _require_stories(stories: list[list[int]], batch_size: int) -> None:
    """Raise ValueError unless there is a story, each has a token to predict, and batch_size is at least 1."""
    checks.require_at_least_one(batch_size=batch_size)
    rows = stories if isinstance(stories, list) else []
    whole = all(isinstance(row, list) and len(row) > 1 and all(isinstance(i, int) for i in row) for row in rows)
    if not rows or not whole:
        raise ValueError(f"stories must be lists of at least two ids, and at least one story, got {stories!r:.80}")
