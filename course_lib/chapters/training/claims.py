"""Chapter 12: small models trained on Tinytown, and what is said about training them."""

import math
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from course_lib.claims.registry import Finding, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.gpt import IGNORED, DecoderOnly, evaluating
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import History, make_optimizer, story_losses, train

SEEDS = (0, 1, 2)
ROW = 48  # tokens in a row: about a story
STORIES = 3000


# ------------------------------------------------------------------------------------------------ small models, quickly
@cache
def story_ids(seed: int = 0, n: int = STORIES) -> Tensor:
    """n stories as one row of ids (N,)."""
    return encode_stories(Tinytown(seed).sample(n), WordTokenizer())


def story_batches(batch_size: int = 16, seed: int = 0) -> Batches:
    """Rows of stories, each from its beginning."""
    generator = torch.Generator().manual_seed(seed)
    return Batches(story_ids(), batch_size, ROW, generator, start_id=WordTokenizer().bos_id)


def small_model(d_model: int = 32, n_layers: int = 2, seed: int = 0) -> DecoderOnly:
    """A decoder for Tinytown with heads of 16 features."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=len(WordTokenizer()), d_model=d_model, n_heads=max(1, d_model // 16), n_layers=n_layers,
        max_seq_len=96, positions="rope",
    )  # fmt: skip
    return DecoderOnly(config)


def held_out_loss(model: DecoderOnly, n: int = 200) -> float:
    """Nats per predicted token on held-out stories, to be compared with the exact entropy."""
    tokenizer = WordTokenizer()
    nats, tokens = story_losses(model, [tokenizer.encode(story) for story in Tinytown(HELD_OUT_SEED).sample(n)])
    return (nats.sum() / tokens.sum()).item()


# --------------------------------------------------------------------------------------------------------------- claims
ONE_BATCH_STEPS = 180


def overfit(seed: int, steps: int = ONE_BATCH_STEPS) -> tuple[History, float]:
    """Train on one batch of eight rows, again and again: (history, loss on held-out stories)."""
    model, batch = small_model(seed=seed), next(story_batches(8, seed))
    history = train(model, iter(lambda: batch, None), steps, peak=5e-3, warmup=10, weight_decay=0, progress=False)
    return history, held_out_loss(model, 100)


@experiment("training.one_batch", claim="A training loss near 0 shows that the model has learned the language.")
def one_batch() -> Finding:
    """Loss on the one batch that was trained on, and on stories that were not."""
    found = [overfit(seed) for seed in SEEDS]
    trained = [history.losses[-1] for history, _ in found]
    new = tuple(loss for _, loss in found)
    entropy = Tinytown().entropy()
    memorized = max(trained) < entropy / 2
    if memorized and min(new) > 2 * entropy:
        verdict = "refuted"
    else:
        verdict = "confirmed" if max(new) < 1.1 * entropy else "depends"
    return Finding(
        f"trained on one batch: loss {'below half the entropy' if memorized else f'{max(trained):.1f}'} on it, "
        f"about {statistics.fmean(new):.0f} nats per token on new stories (entropy {entropy:.2f})",
        new,
        verdict,
        "a loss under the entropy of the text can only be memory: what counts is the loss on text that is new",
    )


MOVES_AT = (1, 10, 100)  # steps


def moves(seed: int = 0, rate: float = 3e-3) -> list[float]:
    """How far AdamW moves a parameter in steps 1, 10 and 100, as a share of the learning rate: the median over all.

    The rate is constant and nothing decays, so a move is rate · m/√v, whatever the gradient's size.
    """
    model, batches, found = small_model(seed=seed), story_batches(16, seed), []
    optimizer = make_optimizer(model, weight_decay=0)
    for group in optimizer.param_groups:
        group["lr"] = rate
    for step in range(1, MOVES_AT[-1] + 1):
        _, loss = model(*next(batches))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        before = nn.utils.parameters_to_vector(model.parameters()).detach()
        optimizer.step()
        if step in MOVES_AT:
            moved = nn.utils.parameters_to_vector(model.parameters()).detach() - before
            found.append((moved.abs().median() / rate).item())
    return found


SCALES = (8, 16, 32, 64)  # d_model
SCALE_STEPS = (150, 600)


def train_at_scale(d_model: int, steps: int = SCALE_STEPS[0], seed: int = 0) -> tuple[int, float]:
    """(parameters, held-out loss in nats per token) after so many steps of 16 rows."""
    model = small_model(d_model, seed=seed)
    train(model, story_batches(16, seed), steps, peak=5e-3, warmup=30, progress=False)
    return sum(parameter.numel() for parameter in model.parameters()), held_out_loss(model, 100)


@experiment("training.scaling", claim="Twice the parameters, half the loss.")
def scaling() -> Finding:
    """The narrowest and the widest model after few steps and after more: the factor of the loss for each doubling."""

    def factor(steps: int, seed: int) -> float:
        (small, high), (large, low) = (train_at_scale(d_model, steps, seed) for d_model in (SCALES[0], SCALES[-1]))
        return (low / high) ** (1 / math.log2(large / small))

    few, more = ([factor(steps, seed) for seed in SEEDS] for steps in SCALE_STEPS)
    factors = [*few, *more]
    if max(factors) < 0.55:
        verdict = "confirmed"
    elif min(factors) > 0.6:
        verdict = "refuted"
    else:
        verdict = "depends"
    return Finding(
        f"each doubling of the parameters multiplies the held-out loss by about {statistics.fmean(few):.2f} after "
        f"{SCALE_STEPS[0]} steps, {statistics.fmean(more):.2f} after {SCALE_STEPS[1]}",
        tuple(more),
        verdict,
        "equal steps show who learns faster: with more steps the small model comes nearer, and none falls below the "
        "entropy of the text",
    )


def resumed(seed: int, whole: bool) -> float:
    """Largest difference between the losses of 30 uninterrupted steps and those of 20 that were stopped after 10 and
    taken up again: from a checkpoint, or (whole=False) from the weights alone."""

    def run(model, batches, steps, checkpoint=None):
        return train(model, batches, steps, peak=5e-3, warmup=5, checkpoint=checkpoint, progress=False).losses

    steady = run(small_model(seed=seed), story_batches(8, seed), 30)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.pt"
        half = small_model(seed=seed)

        class Interrupted(Exception):
            pass

        def stop(step, _):
            if step == 11:
                raise Interrupted

        batches = story_batches(8, seed)
        with suppress(Interrupted):
            train(
                half, batches, 30, peak=5e-3, warmup=5, checkpoint=file, checkpoint_every=10, on_step=stop,
                progress=False,
            )  # fmt: skip
        if whole:
            again = run(small_model(seed=seed + 100), story_batches(8, seed + 100), 30, file)[10:]
        else:
            state = torch.load(file, weights_only=True)
            half.load_state_dict(state["model"])
            assert batches.generator is not None  # story_batches gives one
            batches.generator.set_state(state["generator"])
            again = run(half, batches, 20)  # a new optimizer, and a schedule that begins at 0
    return max(abs(one - other) for one, other in zip(steady[10:], again))


@experiment("training.resume", claim="Keep the weights, and an interrupted training can go on as before.")
def resume() -> Finding:
    """The same batches after an interruption, with everything restored and with the weights alone."""
    whole = [resumed(seed, whole=True) for seed in SEEDS]
    weights = tuple(resumed(seed, whole=False) for seed in SEEDS)
    if max(whole) == 0 and min(weights) > 0.02:
        verdict = "refuted"
    else:
        verdict = "confirmed" if max(weights) < 1e-3 else "depends"
    return Finding(
        f"largest difference from the uninterrupted losses: {max(whole):.0f} from a whole checkpoint, "
        f"{'more than 0.02 nats' if min(weights) > 0.02 else 'little'} from the weights alone",
        weights,
        verdict,
        "AdamW keeps two averages per parameter, and the schedule and the batches have a place where they were",
    )


# --------------------------------------------------------------------------------------------- a jump: learning to copy
COPY_LETTERS, COPY_LENGTH, COPY_STEPS = 24, 10, 200


class CopyBatches:
    """Random letters, then the same once more: (inputs (B, 2n − 1), targets), only the second half to be predicted."""

    def __init__(self, batch_size: int = 32, seed: int = 0):
        self.batch_size, self.generator = batch_size, torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        letters = torch.randint(COPY_LETTERS, (self.batch_size, COPY_LENGTH), generator=self.generator)
        rows = torch.cat([letters, letters], dim=1)  # (B, 2n)
        targets = rows[:, 1:].clone()
        targets[:, : COPY_LENGTH - 1] = IGNORED  # drawn at random: nothing could predict them
        return rows[:, :-1], targets


def learn_to_copy(seed: int, steps: int = COPY_STEPS, every: int = 4) -> tuple[list[float], list[float]]:
    """(loss in nats per letter of each step, share of right copies after every so many steps) of a training on
    CopyBatches; the share is measured on letters of its own."""
    torch.manual_seed(seed)
    model = DecoderOnly(
        TransformerConfig(vocab_size=COPY_LETTERS, d_model=32, n_heads=2, n_layers=2, max_seq_len=2 * COPY_LENGTH)
    )
    ids, targets = next(CopyBatches(64, HELD_OUT_SEED + seed))
    wanted, right = targets != IGNORED, []

    def watch(step: int, _: nn.Module) -> None:
        if step % every == 0:
            with evaluating(model):
                right.append((model(ids).argmax(dim=-1) == targets)[wanted].float().mean().item())

    history = train(model, CopyBatches(seed=seed), steps, peak=3e-3, warmup=30, on_step=watch, progress=False)
    return history.losses, right


@experiment("training.jump", claim="Abilities grow evenly while a model is trained.")
def jump() -> Finding:
    """Copying letters: the share of the training in which right copies rise from a quarter to three quarters."""
    shares = []
    for seed in SEEDS:
        _, right = learn_to_copy(seed)
        reached = [next((step for step, r in enumerate(right) if r >= level), len(right)) for level in (0.25, 0.75)]
        shares.append((reached[1] - reached[0]) / len(right) if reached[1] < len(right) else 1.0)
    share = statistics.fmean(shares)
    return Finding(
        "copying rises from a quarter to three quarters right within "
        f"{'less than a sixth' if max(shares) < 1 / 6 else f'{share:.0%}'} of the training",
        tuple(shares),
        "refuted" if max(shares) < 1 / 6 else "confirmed" if min(shares) > 0.4 else "depends",
        "half a copying mechanism copies nothing: its parts pay only together, so the ability comes late and at once",
    )
