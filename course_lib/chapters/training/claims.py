"""Chapter 12: small models trained on Tinytown, and popular claims about training them."""

import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import torch
from torch import Tensor, nn

from course_lib.chapters.training.power_law import PowerLaw, Run, law_runs, shipped_run
from course_lib.claims.rates import at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.counting import forward_flops
from course_lib.gpt import IGNORED, DecoderOnly, evaluating
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import TrainingDiverged, learning_rate, make_optimizer, story_losses, train

SEEDS = (0, 1, 2)
ROW = 48  # tokens in a row, about the length of a story
STORIES = 3000


# ---------------------------------------------------------------------------------------- small models that train fast
@cache
def story_ids(seed: int = 0, n: int = STORIES) -> Tensor:
    """Return n stories as one row of ids (N,)."""
    return encode_stories(Tinytown(seed).sample(n), WordTokenizer())


def story_batches(batch_size: int = 16, seed: int = 0) -> Batches:
    """Return batches with rows of stories; each row begins with a story."""
    generator = torch.Generator().manual_seed(seed)
    return Batches(story_ids(), batch_size, ROW, generator, start_id=WordTokenizer().bos_id)


def small_config(d_model: int = 32, n_layers: int = 2, positions: str = "rope") -> TransformerConfig:
    """Return the configuration of a decoder for Tinytown with heads of 16 features."""
    return TransformerConfig(
        vocab_size=len(WordTokenizer()),
        d_model=d_model,
        n_heads=max(1, d_model // 16),
        n_layers=n_layers,
        max_seq_len=96,
        positions=positions,
    )


def small_model(d_model: int = 32, n_layers: int = 2, seed: int = 0, positions: str = "rope") -> DecoderOnly:
    """Return a decoder of that configuration; the seed decides its initial weights."""
    torch.manual_seed(seed)
    return DecoderOnly(small_config(d_model, n_layers, positions))


def held_out_loss(model: DecoderOnly, n: int = 200) -> float:
    """Return the nats per predicted token on held-out stories, for comparison with the exact entropy."""
    tokenizer = WordTokenizer()
    nats, tokens = story_losses(model, [tokenizer.encode(story) for story in Tinytown(HELD_OUT_SEED).sample(n)])
    return (nats.sum() / tokens.sum()).item()


@cache
def grammar_loss(n: int) -> float:
    """Return the grammar's own nats per predicted token on the first n held-out stories."""
    town, tokenizer = Tinytown(HELD_OUT_SEED), WordTokenizer()
    stories = town.sample(n)
    return -sum(map(town.log_prob, stories)) / sum(len(tokenizer.encode(story)) - 1 for story in stories)


# --------------------------------------------------------------------------------------------------------------- claims
ONE_BATCH_STEPS, ONE_BATCH_RATES = 60, (0.01, 0.03, 0.09)
HINDERS = "attention is never added"
FAULTS = (
    HINDERS,
    "the mask leaks",
    "the targets are not shifted",
    "scores are not scaled",
    "there are no positions",
)


def overfit(
    seed: int, steps: int = ONE_BATCH_STEPS, fault: str = "none", rate: float = 0.02, d_model: int = 32
) -> tuple[float, DecoderOnly]:
    """Train repeatedly on one batch of four rows. Return (loss on the batch, model).

    fault: the fault in the model or the batch: "none" or one of FAULTS.
    """
    positions = "none" if fault == "there are no positions" else "rope"
    model, (ids, targets) = small_model(d_model, seed=seed, positions=positions), next(story_batches(4, seed))
    for block in model.blocks:
        block.is_causal = fault != "the mask leaks"
        if fault == HINDERS:
            for parameter in block.attention.out_proj.parameters():
                nn.init.zeros_(parameter).requires_grad_(False)
        if fault == "scores are not scaled":  # cancels the division by the square root of d_head
            root = math.sqrt(model.config.d_head)
            block.attention.q_proj.register_forward_hook(lambda layer, inputs, output, root=root: root * output)
    batch = ids, ids if fault == "the targets are not shifted" else targets
    history = train(
        model, iter(lambda: batch, None), steps, peak=rate, warmup=min(10, steps // 5), weight_decay=0, progress=False
    )
    for block in model.blocks:
        block.is_causal = True  # the model reads new stories as it will write them: from left to right
    return history.losses[-1], model


MEMORIZED = 0.3  # nats per token: half the entropy of the text or less


def one_batch_verdict(right: float, unlucky: Sequence[float]) -> str:
    """Judge models without a fault by their highest loss on the batch over the seeds.

    confirmed: the loss of the model without a bug is below 0.3 nats under all four conditions, so a loss that stays
        high means a bug
    depends: it is below 0.3 at the best rate, but above 0.3 under one of the other conditions
    refuted: it is above 0.3 even at the best rate
    """
    if right > MEMORIZED:
        return "refuted"
    return "confirmed" if max(unlucky) < MEMORIZED else "depends"


@experiment(
    "training.one_batch",
    claim="If a model cannot overfit a single batch to a loss near zero, there is a bug somewhere.",
    source=Source(
        "Karpathy 2019",
        "A Recipe for Training Neural Networks",
        "https://karpathy.github.io/2019/04/25/recipe/",
        place="step 2, “overfit one batch”",
        quote="Overfit a single batch of only a few examples (e.g. as little as two). To do so we increase the "
        "capacity of our model (e.g. add layers or filters) and verify that we can reach the lowest achievable loss "
        "(e.g. zero). … If they do not, there is a bug somewhere and we cannot continue to the next stage.",
    ),
    control="The same batch of four rows. A model without a fault is trained at its best of at least three rates, at a "
    "tenth of that rate, and with a quarter of the steps or of the width, each at its own best rate. Five models with "
    "a fault, each at its own best rate, show what the test does not find.",
    verdict=one_batch_verdict,
    seeds=SEEDS,
)
def one_batch(size: Size) -> Measurement:
    """Measure the loss on one batch: for a model without a fault under four conditions, and for five with one."""
    steps, d_model = size.steps(ONE_BATCH_STEPS), size.width(32)

    def loss(rate: float, seed: int, fault: str = "none", steps: int = steps, d_model: int = d_model) -> float:
        return overfit(seed, steps, fault, rate, d_model)[0]

    right = at_best_rate(loss, ONE_BATCH_RATES, SEEDS)
    quarters = (partial(loss, steps=steps // 4), partial(loss, d_model=d_model // 4))
    unlucky = [
        max(loss(right.rate / 10, seed) for seed in SEEDS),
        *(max(at_best_rate(less, ONE_BATCH_RATES, SEEDS).losses) for less in quarters),
    ]
    faulty = {fault: at_best_rate(partial(loss, fault=fault), ONE_BATCH_RATES, SEEDS) for fault in FAULTS}
    worst = {"no bug": max(right.losses), "no bug, a quarter of the steps": unlucky[1]}
    worst["no bug, a quarter of the width"] = unlucky[2]
    worst |= {f"bug: {fault}": max(found.losses) for fault, found in faulty.items()}
    return Measurement(
        measured=f"a model without a bug reaches {right.mean:.1f} nats on the batch at its best rate, but ends at "
        f"{unlucky[0]:.1f} at a tenth of that rate",
        values=right.losses,
        figures={"right": round(max(right.losses), 3), "unlucky": tuple(round(each, 3) for each in unlucky)},
        rows=(
            ("model, each at its best rate", "nats on the batch, highest of 3 seeds"),
            *((name, f"{loss:.2f}") for name, loss in worst.items()),
        ),
        because="It depends on the rate and the number of steps, and less on the size: if one of them is too low, the "
        "loss stays above 0.3 nats without a bug. A loss below 0.3 does not exclude a bug: only one of the five bugs "
        "keeps it higher.",
    )


def moves(seed: int = 0, rate: float = 3e-3, one_batch: bool = False, steps: int = 100) -> list[float]:
    """Return how far AdamW moves the median parameter in each of the first steps, as a fraction of the learning rate.

    `moves_and_signs` also returns how often gradients change their sign.
    """
    return moves_and_signs(seed, rate, one_batch, steps)[0]


def moves_and_signs(
    seed: int = 0, rate: float = 3e-3, one_batch: bool = False, steps: int = 100
) -> tuple[list[float], list[float]]:
    """Return two numbers for each of the first steps: the median move as a fraction of the learning rate, and the
    fraction of gradients whose sign differs from the step before (0 in the first step).

    The rate is constant and there is no weight decay, so a move is rate · m/√v, whatever the gradient's size.
    one_batch: use the same rows in every step, so that no two batches differ.
    """
    model, batches = small_model(seed=seed), story_batches(16, seed)
    found: list[Tensor] = []
    changed: list[Tensor] = []
    signs: Tensor | None = None  # of the gradients of the step before
    rows = next(batches)
    optimizer = make_optimizer(model, weight_decay=0)
    for group in optimizer.param_groups:
        group["lr"] = rate
    for _ in range(steps):
        _, loss = model(*rows)
        rows = rows if one_batch else next(batches)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        now = torch.cat([p.grad.sign().flatten() for p in model.parameters() if p.grad is not None])
        changed.append(torch.zeros(()) if signs is None else (now != signs).float().mean())
        signs = now
        before = nn.utils.parameters_to_vector(model.parameters()).detach()
        optimizer.step()
        moved = nn.utils.parameters_to_vector(model.parameters()).detach() - before
        found.append(moved.abs().median() / rate)
    return torch.stack(found).tolist(), torch.stack(changed).tolist()


AVERAGES = {"m": "exp_avg", "v": "exp_avg_sq"}  # AdamW's names for its averages of the gradient and of its square


def outlier(clipped: bool, seed: int = 0, at: int = 60, after: int = 40, restored: str = "") -> list[float]:
    """Return the held-out loss before a step whose gradient is a thousand times too long, right after it, and `after`
    steps later.

    clipped: whether gradients longer than 1 are shortened to 1. restored: the averages of AdamW that are set back after
    that step to their values before it: "", "m", "v" or "mv".
    """
    model, batches, found = small_model(seed=seed), story_batches(16, seed), []
    optimizer = make_optimizer(model)
    for step in range(1, at + after + 1):
        for group in optimizer.param_groups:
            group["lr"] = 5e-3 * min(1, step / 10)
        _, loss = model(*next(batches))
        optimizer.zero_grad()
        (1000 * loss if step == at else loss).backward()
        if clipped:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        kept: list[tuple[Tensor, Tensor]] = []  # (an average, a copy of it)
        if step == at:
            found.append(held_out_loss(model, 60))
            kept = [(own[AVERAGES[x]], own[AVERAGES[x]].clone()) for x in restored for own in optimizer.state.values()]
        optimizer.step()
        for average, copy in kept:
            average.copy_(copy)
        if step in (at, at + after):
            found.append(held_out_loss(model, 60))
    return found


# Narrower models get higher rates. With the same rate for all, the small ones learn too slowly.
PEAKS = {8: 0.05, 16: 0.04, 32: 0.02, 64: 0.01}
ROWS = 16


def train_at_scale(d_model: int, steps: int, seed: int = 0, peak: float | None = None) -> Run:
    """Train a model of this width for `steps` steps of ROWS rows, by default at its own peak rate from PEAKS."""
    model, warmup = small_model(d_model, seed=seed), min(30, steps // 5)
    train(model, story_batches(ROWS, seed), steps, peak=peak or PEAKS[d_model], warmup=warmup, progress=False)
    n = sum(parameter.numel() for parameter in model.parameters())
    return Run(n, ROWS * ROW * steps, held_out_loss(model, 100))


def scaling_verdict(straight: Sequence[float], entropy: float) -> str:
    """Compare a straight power law's prediction for the shipped model with the entropy, in nats, for each seed.

    by construction: on average no model's loss is below the entropy, and a straight power law falls below every number
        above 0, so the trend must level off; here it does so before the size of the shipped model
    """
    return "by construction" if max(straight) < entropy else "the straight law does not reach the entropy here"


@experiment(
    "training.scaling",
    claim="Our trends must eventually level off, though, since natural language has non-zero entropy.",
    source=Source(
        "Kaplan et al. 2020",
        "Scaling Laws for Neural Language Models",
        "https://arxiv.org/abs/2001.08361",
        place="§ 6.3, of the law in their abstract: “The loss scales as a power-law with model size, dataset size, and "
        "the amount of compute used for training”",
        quote="We observe no signs of deviation from straight power-law trends at large values of compute, data, or "
        "model size. Our trends must eventually level off, though, since natural language has non-zero entropy.",
    ),
    control="Computed from recorded runs; nothing is trained. Each seed has twelve runs (three widths, four budgets, "
    "each width at its own rate). We fit once to the loss, and once to the part of it above the known entropy. Both "
    "fits predict a model three times as large and the one that ships with the course.",
    verdict=scaling_verdict,
    seeds=SEEDS,
)
def scaling() -> Measurement:
    """Fit both laws to the small runs of each seed, and let them predict two larger models."""
    entropy, larger = Tinytown().entropy(), shipped_run()
    near, far, near_above, far_above, straight = [], [], [], [], []
    for seed in SEEDS:
        runs, (wider,), grammar = law_runs(seed)
        plain, above = (PowerLaw.fitted(runs, floor) for floor in (0.0, grammar))
        near.append(wider.loss / plain(wider.parameters, wider.tokens))
        far.append(larger.loss / plain(larger.parameters, larger.tokens))
        straight.append(plain(larger.parameters, larger.tokens))
        near_above.append(wider.loss / above(wider.parameters, wider.tokens))
        far_above.append(larger.loss / above(larger.parameters, larger.tokens))
    return Measurement(
        measured=f"for the shipped model a straight power law predicts {min(straight):.2f} to {max(straight):.2f} "
        f"nats, less than the entropy of {entropy:.2f}",
        values=tuple(straight),
        figures={"straight": tuple(round(each, 3) for each in straight), "entropy": round(entropy, 3)},
        rows=(
            ("measured loss ÷ predicted loss", "64 features", "shipped model"),
            *(
                (law, f"{statistics.fmean(close):.2f}", f"{statistics.fmean(distant):.2f}")
                for law, close, distant in (
                    ("straight power law", near, far),
                    ("power law of the loss above the entropy", near_above, far_above),
                )
            ),
        ),
        because="A loss cannot stay below the entropy, so a straight law must fail somewhere. Near the "
        "fitted runs its error is still small; for the shipped model it is large. The authors' models were far above "
        "the entropy of their text.",
    )


PIECES = ("nothing", "the optimizer's averages", "the step number", "the generator's state")
ALL_BUT_WEIGHTS = "everything but the weights"


@cache
def uninterrupted(seed: int, rate: float, steps: int) -> list[float]:
    """Return the losses of a run without an interruption."""
    model, batches = small_model(seed=seed), story_batches(8, seed)
    return train(model, batches, steps, peak=rate, warmup=5, progress=False).losses


def resumed(seed: int, lost: str = "nothing", rate: float = 5e-3, steps: int = 30) -> float:
    """Compare an uninterrupted run with a run that stopped after a third of the steps, and return the largest
    difference of their losses. The second run resumes from a checkpoint without one of PIECES, or without
    ALL_BUT_WEIGHTS."""
    return resumed_run(seed, lost, rate, steps)[0]


def resumed_run(seed: int, lost: str, rate: float, steps: int) -> tuple[float, float]:
    """Return the same difference, and the held-out loss at the end of the resumed run."""
    third, steady = steps // 3, uninterrupted(seed, rate, steps)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.pt"

        class Interrupted(Exception):
            pass

        def stop(step, _):
            if step == third + 1:
                raise Interrupted

        with suppress(Interrupted):
            train(
                small_model(seed=seed),
                story_batches(8, seed),
                steps,
                peak=rate,
                warmup=5,
                checkpoint=file,
                checkpoint_every=third,
                on_step=stop,
                progress=False,
            )
        state, to_go = torch.load(file, weights_only=True), steps
        if lost in ("the optimizer's averages", ALL_BUT_WEIGHTS):
            state["optimizer"]["state"] = {}
        if lost in ("the step number", ALL_BUT_WEIGHTS):  # the schedule starts again, with its warm-up
            state["history"], to_go = {name: [] for name in state["history"]}, steps - third
        if lost in ("the generator's state", ALL_BUT_WEIGHTS):  # the batches start again
            state["generator"] = None
        torch.save(state, file)
        model = small_model(seed=seed + 100)
        again = train(
            model, story_batches(8, seed), to_go, peak=rate, warmup=5, checkpoint=file, progress=False
        ).losses[third - steps :]
    return max(abs(one - other) for one, other in zip(steady[third:], again)), held_out_loss(model, 100)


RESUME_RATES = (0.002, 0.005, 0.0125)


def resume_verdict(whole: float, worse: Sequence[float]) -> str:
    """Compare the held-out loss of two resumed runs at their end: without the optimizer's state, and from the full
    checkpoint. There is one difference for each learning rate (mean of the seeds). `whole`: the largest difference in
    loss between the latter run and an uninterrupted run.

    confirmed: the loss is higher without the optimizer's state at every rate, and the full checkpoint changes nothing
    depends: it is higher at some rates only
    refuted: it is higher at no rate
    """
    if whole == 0 and min(worse) > 0:
        return "confirmed"
    return "depends" if max(worse) > 0 else "refuted"


def _signed(change: float) -> str:
    """Return a rounded change with its sign, as text."""
    return f"{round(change, 2) + 0:+.2f}".replace("-", "−")


@experiment(
    "training.resume",
    claim="It is important to also save the optimizer’s state_dict",
    source=Source(
        "PyTorch documentation",
        "Saving and loading a general checkpoint in PyTorch",
        "https://docs.pytorch.org/tutorials/recipes/recipes/saving_and_loading_a_general_checkpoint.html",
        place="introduction",
        quote="When saving a general checkpoint, you must save more than just the model’s state_dict. It is important "
        "to also save the optimizer’s state_dict, as this contains buffers and parameters that are updated as the "
        "model trains.",
    ),
    control="The same batches and the same interruption after a third of the steps, but with the full checkpoint, at "
    "each of three learning rates. The losses of this run are also compared with those of an uninterrupted one.",
    verdict=resume_verdict,
    seeds=SEEDS,
)
def resume(size: Size) -> Measurement:
    """Measure how runs continue after an interruption, from a full checkpoint and from one without a piece."""
    steps = size.steps(30)
    arms = [(rate, seed) for rate in RESUME_RATES for seed in SEEDS]
    whole, without = ([resumed_run(seed, piece, rate, steps) for rate, seed in arms] for piece in PIECES[:2])
    ends = [lost - kept for (_, lost), (_, kept) in zip(without, whole)]
    of_rate = {rate: ends[i * len(SEEDS) : (i + 1) * len(SEEDS)] for i, rate in enumerate(RESUME_RATES)}
    worse = [statistics.fmean(seeds) for seeds in of_rate.values()]
    at_the_end = [_signed(more) for more in worse]
    return Measurement(
        measured=f"losing the optimizer’s averages changes the final held-out loss by {at_the_end[0]} nats at a rate "
        f"of {RESUME_RATES[0]:g}, and by {at_the_end[-1]} at a rate of {RESUME_RATES[-1]:g}",
        values=tuple(ends),
        figures={"whole": max(difference for difference, _ in whole), "worse": tuple(round(each, 3) for each in worse)},
        rows=(
            ("change of the final loss (nats), without the averages", *(f"seed {seed}" for seed in SEEDS)),
            *((f"at a rate of {rate:g}", *map(_signed, seeds)) for rate, seeds in of_rate.items()),
        ),
        because="It depends on the learning rate. AdamW's two averages start at 0 again. For every seed this lowers "
        "the final held-out loss slightly at the lowest of the three rates, and raises it at the highest.",
    )


# ----------------------------------------------------------------------------------------------------- Muon and AdamW
OPTIMIZER_STEPS, OPTIMIZER_RATES = 300, (0.01, 0.02, 0.04, 0.08, 0.16)
SHARE = 0.52  # of AdamW's operations, from Liu et al. 2025
TESTED_STORIES = 400


def muon_and_adamw(model: DecoderOnly) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices of the blocks, and AdamW for the rest: the embedding table, gains and biases.

    Muon's step is scaled so that its root mean square is about that of AdamW, so both use the same rate and weight
    decay (Liu et al. 2025, section 2.2).
    """
    matrices = [p for block in model.blocks for p in block.parameters() if p.dim() == 2]
    rest = make_optimizer(model)
    kept = rest.param_groups[0]
    kept["params"] = [p for p in kept["params"] if all(p is not matrix for matrix in matrices)]
    return [torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"), rest]


def newton_schulz_flops(config: TransformerConfig) -> int:
    """Return the floating-point operations of Muon's five rounds for all matrices of the blocks, in one step.

    A matrix (m, n) with m ≤ n costs 2 m² n for A = X Xᵀ, 2 m³ for A², and 2 m² n for the product with X.
    """
    d = config.d_model
    shapes = [*4 * [(d, d)], *2 * [(d, config.d_ff or 4 * d)]]  # (m, n): W_Q W_K W_V W_O, and the feed-forward's two
    return config.n_layers * sum(5 * (4 * m * m * n + 2 * m**3) for m, n in shapes)


def newton_schulz_share(d_model: int = 32) -> float:
    """Return the operations of Muon's rounds, divided by those of the forward and the backward pass."""
    config = small_config(d_model)
    return newton_schulz_flops(config) / (3 * forward_flops(config, ROW, ROWS))


def muon_steps(steps: int, share: float = 1.0, d_model: int = 32) -> int:
    """Return how many steps of Muon fit into this share of the operations of `steps` steps of AdamW. (AdamW's own
    operations, a few per parameter, are not counted.)"""
    return int(share * steps / (1 + newton_schulz_share(d_model)))


def optimized(optimizer: str, rate: float, seed: int, steps: int, d_model: int = 32) -> float:
    """Train with "AdamW" or "Muon", and return the held-out nats per token above the grammar's own loss.

    The rate rises over the first tenth of the steps, then falls along a cosine to 0.
    Errors: TrainingDiverged as soon as the loss is not finite.
    """
    model, batches = small_model(d_model, seed=seed), story_batches(ROWS, seed)
    optimizers = muon_and_adamw(model) if optimizer == "Muon" else [make_optimizer(model)]
    for step in range(1, steps + 1):
        _, loss = model(*next(batches))
        if not math.isfinite(loss.item()):
            raise TrainingDiverged(f"at step {step} the loss is {loss.item()}, at a peak rate of {rate:g}")
        model.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for each in optimizers:
            for group in each.param_groups:
                group["lr"] = learning_rate(step, rate, steps // 10, steps)
            each.step()
    return held_out_loss(model, TESTED_STORIES) - grammar_loss(TESTED_STORIES)


def muon_verdict(adamw: Sequence[float], muon: Sequence[float]) -> str:
    """Compare the held-out loss above the grammar's of AdamW, and of Muon with 52% of the operations, seed by seed.

    confirmed: Muon's loss is not higher than AdamW's, for every seed
    not at this size: it is higher for some seed; a model this small cannot decide a claim about large models
    """
    return "confirmed" if all(one <= other for one, other in zip(muon, adamw)) else "not at this size"


@experiment(
    "training.muon",
    claim="Muon only requires about 52% training FLOPs to match the performance of AdamW under compute-optimal "
    "setting.",
    source=Source(
        "Liu et al. 2025",
        "Muon is Scalable for LLM Training",
        "https://arxiv.org/abs/2502.16982",
        place="§ 3.2",
        quote="As shown in Figure 1a, Muon only requires about 52% training FLOPs to match the performance of AdamW "
        "under compute-optimal setting.",
    ),
    control="The same model, initial weights, batches, warm-up, cosine schedule, weight decay and clipping. Each "
    "optimizer has its own best of at least five rates. Muon gets 52% of AdamW's operations, including its own "
    "Newton–Schulz rounds. Muon trains the matrices of the blocks; AdamW trains the rest.",
    verdict=muon_verdict,
    seeds=SEEDS,
)
def muon(size: Size) -> Measurement:
    """Measure the held-out loss with AdamW, and with Muon on 52% of the operations, each at its best rate."""
    steps, d_model = size.steps(OPTIMIZER_STEPS), size.width(32)
    budgets = {"AdamW": steps, "Muon": muon_steps(steps, SHARE, d_model)}
    adamw, other = (
        at_best_rate(partial(optimized, name, steps=budget, d_model=d_model), OPTIMIZER_RATES, SEEDS)
        for name, budget in budgets.items()
    )
    return Measurement(
        measured=f"after {budgets['Muon']:,} steps Muon is {other.mean:.2f} nats above the grammar, AdamW after "
        f"{steps:,} steps {adamw.mean:.2f}",
        values=tuple(one - another for one, another in zip(other.losses, adamw.losses)),
        figures={
            "adamw": tuple(round(each, 3) for each in adamw.losses),
            "muon": tuple(round(each, 3) for each in other.losses),
        },
        rows=(
            ("nats above the grammar", *(f"seed {seed}" for seed in SEEDS), "best rate"),
            *(
                (f"{name}, {budgets[name]:,} steps", *(f"{loss:.2f}" for loss in best.losses), f"{best.rate:g}")
                for name, best in (("AdamW", adamw), ("Muon", other))
            ),
        ),
        because="Muon's own rounds add 10% to the operations of a step of this model, so it takes fewer than half of "
        "the steps. The authors' models have at least 399 million parameters; ours, with 36,448, cannot decide their "
        "claim.",
    )


# --------------------------------------------------------------------------------------------- a jump: learning to copy
COPY_LETTERS, COPY_LENGTH, COPY_STEPS = 24, 10, 200


class CopyBatches:
    """Yield random letters, followed by the same letters: (inputs (B, 2n − 1), targets). Only the second half is
    predicted."""

    def __init__(self, batch_size: int = 32, seed: int = 0):
        self.batch_size, self.generator = batch_size, torch.Generator().manual_seed(seed)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return self

    def __next__(self) -> tuple[Tensor, Tensor]:
        letters = torch.randint(COPY_LETTERS, (self.batch_size, COPY_LENGTH), generator=self.generator)
        rows = torch.cat([letters, letters], dim=1)  # (B, 2n)
        targets = rows[:, 1:].clone()
        targets[:, : COPY_LENGTH - 1] = IGNORED  # random, so no model could predict them
        return rows[:, :-1], targets


class FollowerBatches(CopyBatches):
    """Yield random letters whose followers are given by a fixed table, so that the model has nothing to search for."""

    def __next__(self) -> tuple[Tensor, Tensor]:
        letters = torch.randint(COPY_LETTERS, (self.batch_size, 2 * COPY_LENGTH - 1), generator=self.generator)
        return letters, (5 * letters + 7) % COPY_LETTERS  # a permutation, because 5 and 24 have no common factor


def learn_to_copy(
    seed: int,
    steps: int = COPY_STEPS,
    every: int = 4,
    task: type[CopyBatches] = CopyBatches,
    rate: float = 3e-3,
    d_model: int = 32,
) -> tuple[list[float], list[float]]:
    """Train on the task. Return (loss in nats per letter of each step, fraction of correct letters every `every`
    steps). The fraction is measured on separate letters."""
    torch.manual_seed(seed)
    model = DecoderOnly(
        TransformerConfig(vocab_size=COPY_LETTERS, d_model=d_model, n_heads=2, n_layers=2, max_seq_len=2 * COPY_LENGTH)
    )
    ids, targets = next(task(64, HELD_OUT_SEED + seed))
    wanted, right = targets != IGNORED, []

    def watch(step: int, _: nn.Module) -> None:
        if step % every == 0:
            with evaluating(model):
                right.append((model(ids).argmax(dim=-1) == targets)[wanted].float().mean().item())

    history = train(model, task(seed=seed), steps, peak=rate, warmup=30, on_step=watch, progress=False)
    return history.losses, right


def reached(right: Sequence[float], level: float, every: int = 4) -> int:
    """Return the first step at which at least the fraction `level` is correct, or the number of steps if there is
    none."""
    return every * next((i for i, share in enumerate(right) if share >= level), len(right))


def jump_verdict(
    rise: Sequence[int], rise_of_table: Sequence[int], wait: Sequence[int], wait_of_table: Sequence[int]
) -> str:
    """Count, seed by seed, the steps up to a quarter correct (wait), and from there to three quarters (rise).

    confirmed: copying rises in no more steps than the fixed table, for every seed
    depends: copying takes more steps to rise for some seed, and waits at least three times as long for every seed
    refuted: neither of these
    """
    if all(one <= other for one, other in zip(rise, rise_of_table)):
        return "confirmed"
    return "depends" if all(one >= 3 * other for one, other in zip(wait, wait_of_table)) else "refuted"


@experiment(
    "training.jump",
    claim="The ability to copy from the context appears suddenly in training.",
    source=Source(
        "Olsson et al. 2022",
        "In-context Learning and Induction Heads",
        "https://arxiv.org/abs/2209.11895",
        place="abstract",
        quote="We find that induction heads develop at precisely the same point as a sudden sharp increase in "
        "in-context learning ability, visible as a bump in the training loss.",
    ),
    control="The same model, steps and seeds on a task that needs no search: the successor of each letter is in a "
    "fixed table. Each task is learned at its own best of at least three rates. The authors study language models; "
    "ours copies letters, from a fixed distance.",
    verdict=jump_verdict,
    seeds=SEEDS,
)
def jump(size: Size) -> Measurement:
    """Measure the steps at which a quarter and three quarters are correct, for copying and for the fixed table."""
    steps, d_model = size.steps(COPY_STEPS), size.width(32)

    def learned(rate: float, seed: int, task: type[CopyBatches]) -> tuple[float, list[float]]:
        losses, right = learn_to_copy(seed, steps, 4, task, rate, d_model)
        return statistics.fmean(losses[-10:]), right

    waits, rises, rates = [], [], []
    for task in (CopyBatches, FollowerBatches):
        best = at_best_rate(partial(learned, task=task), (0.001, 0.003, 0.01), SEEDS)
        levels = [(reached(right, 0.25), reached(right, 0.75)) for _, right in best.results]
        waits.append([low for low, _ in levels])
        rises.append([high - low for low, high in levels])
        rates.append(best.rate)
    early = [statistics.fmean(wait) for wait in waits]
    late = [statistics.fmean(wait) + statistics.fmean(rise) for wait, rise in zip(waits, rises)]
    return Measurement(
        measured=f"a quarter of the answers are correct at step {early[0]:.0f} when the model copies, and at step "
        f"{early[1]:.0f} when it uses a fixed table",
        values=waits[0],
        figures={"rise": rises[0], "rise_of_table": rises[1], "wait": waits[0], "wait_of_table": waits[1]},
        rows=(
            ("correct answers, at step", "copying", "fixed table"),
            ("a quarter", *(f"{step:.0f}" for step in early)),
            ("three quarters", *(f"{step:.0f}" for step in late)),
        ),
        because="It depends on the meaning of “suddenly”. Once the first answers are correct, both tasks are learned "
        "about equally fast. Only copying has a long wait before the rise; we did not measure why.",
    )
