"""Chapter 12: small models trained on Tinytown, and what is said about training them."""

import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor, nn

from course_lib.claims.registry import Finding, Source, experiment
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
FAULTS = ("none", "attention is never added", "the mask leaks", "the targets are not shifted")


def overfit(seed: int, steps: int = ONE_BATCH_STEPS, fault: str = "none") -> tuple[History, float]:
    """Train on one batch of eight rows, again and again: (history, loss on held-out stories).

    fault: one of FAULTS, what is wrong with the model or the batch.
    """
    model, (ids, targets) = small_model(seed=seed), next(story_batches(8, seed))
    for block in model.blocks:
        block.is_causal = fault != "the mask leaks"
        if fault == "attention is never added":
            for parameter in block.attention.out_proj.parameters():
                nn.init.zeros_(parameter).requires_grad_(False)
    batch = ids, ids if fault == "the targets are not shifted" else targets
    history = train(model, iter(lambda: batch, None), steps, peak=5e-3, warmup=10, weight_decay=0, progress=False)
    for block in model.blocks:
        block.is_causal = True  # new stories are read as they will be written: from left to right
    return history, held_out_loss(model, 100)


MEMORIZED = 0.3  # nats per token: half the entropy of the text and less


@experiment(
    "training.one_batch",
    claim="Overfit a single batch: if the loss does not come near zero, there is a bug somewhere.",
    source=Source(
        "Karpathy 2019",
        "A Recipe for Training Neural Networks, step 2 (overfit one batch)",
        "https://karpathy.github.io/2019/04/25/recipe/",
    ),
    control="The same model, batch, steps and seeds with three faults put in: one that hinders, two that tell the "
    "answer. New stories are read beside it.",
    threshold=f"Confirmed if in every seed the right model comes below {MEMORIZED} nats and the one without attention "
    "does not; refuted if in every seed the faulty one does, too; else it depends.",
    seeds=SEEDS,
)
def one_batch() -> Finding:
    """Loss at the end on the one batch, for the right model and each fault; and on stories that are new."""
    runs = {fault: [overfit(seed, fault=fault) for seed in SEEDS] for fault in FAULTS}
    ends = {fault: [history.losses[-1] for history, _ in found] for fault, found in runs.items()}
    means = {fault: statistics.fmean(losses) for fault, losses in ends.items()}
    right, hindered = ends["none"], ends["attention is never added"]
    found = max(right) < MEMORIZED < min(hindered)
    told = ", ".join(f"if {fault} {means[fault]:.1f}" for fault in FAULTS[1:])
    return Finding(
        f"loss on the batch {means['none']:.1f}; {told}; the right one on new stories "
        f"{statistics.fmean(new for _, new in runs['none']):.0f}",
        tuple(right),
        "confirmed" if found else "refuted" if max(hindered) < MEMORIZED else "depends",
        "A fault that hinders learning shows. The test cannot be turned round: with the answer in the input a model "
        "passes it, too, and a batch known by heart says nothing about new text.",
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


SCALES = (8, 16, 32)  # d_model: the models that a power law is fitted to
SCALE_STEPS = (75, 150, 300)
HELD_OUT_SCALE = 64, 300  # d_model and steps of the model that it is asked for
ROWS = 16


@dataclass(frozen=True)
class Run:
    """A trained model: how large, on how many tokens, and its held-out loss in nats per token."""

    parameters: int
    tokens: int
    loss: float


def train_at_scale(d_model: int, steps: int, seed: int = 0) -> Run:
    """Train a model of this width for so many steps, each on ROWS rows that no step before has seen."""
    model = small_model(d_model, seed=seed)
    train(model, story_batches(ROWS, seed), steps, peak=5e-3, warmup=min(30, steps // 5), progress=False)
    return Run(sum(parameter.numel() for parameter in model.parameters()), ROWS * ROW * steps, held_out_loss(model, 100))


@dataclass(frozen=True)
class PowerLaw:
    """loss = floor + scale · parameters^−a · tokens^−b. With floor 0 the loss itself is the power law."""

    scale: float
    a: float
    b: float
    floor: float

    @staticmethod
    def fitted(runs: Sequence[Run], floor: float) -> "PowerLaw":
        """The law nearest to these runs: a plane through the logarithms of loss − floor, by least squares."""
        logs = torch.tensor(
            [[1, math.log(run.parameters), math.log(run.tokens), math.log(run.loss - floor)] for run in runs],
            dtype=torch.float64,
        )
        constant, parameters, tokens = torch.linalg.lstsq(logs[:, :3], logs[:, 3]).solution.tolist()
        return PowerLaw(math.exp(constant), -parameters, -tokens, floor)

    def __call__(self, parameters: float, tokens: float) -> float:
        return self.floor + self.scale * parameters**-self.a * tokens**-self.b


def scaled_runs(seed: int) -> tuple[list[Run], Run]:
    """(nine runs: three widths, each with three numbers of steps; a larger model that they are to predict)."""
    return [train_at_scale(d_model, steps, seed) for d_model in SCALES for steps in SCALE_STEPS], train_at_scale(
        *HELD_OUT_SCALE, seed
    )


@experiment(
    "training.scaling",
    claim="The loss falls as a power law in the number of parameters and of training tokens.",
    source=Source(
        "Kaplan et al. 2020", "Scaling Laws for Neural Language Models, abstract", "https://arxiv.org/abs/2001.08361"
    ),
    control="The same nine runs, the same held-out stories and the same fit, once through the loss and once through "
    "what of it lies above the known entropy; both are asked for a larger model that they have not seen.",
    threshold="Right is: within 5 % of the larger model's loss, on average over the seeds. Confirmed if the power law of "
    "the loss itself is right, depends if only that of the loss above the entropy is, refuted if neither.",
    seeds=SEEDS,
)
def scaling() -> Finding:
    """Both laws, fitted to three widths by three numbers of steps, against the loss of a model with more parameters."""
    entropy, errors, exponents = Tinytown().entropy(), [], []
    for seed in SEEDS:
        runs, larger = scaled_runs(seed)
        laws = [PowerLaw.fitted(runs, floor) for floor in (0.0, entropy)]
        errors.append([law(larger.parameters, larger.tokens) / larger.loss - 1 for law in laws])
        exponents.append((laws[1].a, laws[1].b))
    plain, above = (statistics.fmean(column) for column in zip(*errors))
    a, b = (statistics.fmean(column) for column in zip(*exponents))
    return Finding(
        f"predicted for a model with {larger.parameters / runs[-1].parameters:.0f} times the parameters of the largest: from the loss {100 * plain:+.0f} %, from the "
        f"loss above the entropy {100 * above:+.0f} %; this falls as parameters^−{a:.1f} · tokens^−{b:.1f}",
        tuple(error for _, error in errors),
        "confirmed" if abs(plain) < 0.05 else "depends" if abs(above) < 0.05 else "refuted",
        "A power law of the loss itself would pass below the entropy, which no model can; what falls like one is the "
        "rest above it, the form that Hoffmann et al. (2022) fit.",
    )


PIECES = ("nothing", "the optimizer's averages", "the step", "the generator's state")


def resumed(seed: int, lost: str = "nothing") -> float:
    """Largest difference between the losses of 30 uninterrupted steps and those of a run that was stopped after 10 and
    taken up again from a checkpoint, from which one of PIECES is lost."""

    def run(model, batches, steps, checkpoint=None):
        return train(model, batches, steps, peak=5e-3, warmup=5, checkpoint=checkpoint, progress=False).losses

    steady = run(small_model(seed=seed), story_batches(8, seed), 30)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run.pt"

        class Interrupted(Exception):
            pass

        def stop(step, _):
            if step == 11:
                raise Interrupted

        with suppress(Interrupted):
            train(
                small_model(seed=seed), story_batches(8, seed), 30, peak=5e-3, warmup=5, checkpoint=file,
                checkpoint_every=10, on_step=stop, progress=False,
            )  # fmt: skip
        state, steps = torch.load(file, weights_only=True), 30
        if lost == "the optimizer's averages":
            state["optimizer"]["state"] = {}
        elif lost == "the step":  # the schedule begins anew, with its warm-up
            state["history"], steps = {name: [] for name in state["history"]}, 20
        elif lost == "the generator's state":  # the batches begin anew
            state["generator"] = None
        torch.save(state, file)
        again = run(small_model(seed=seed + 100), story_batches(8, seed), steps, file)[-20:]
    return max(abs(one - other) for one, other in zip(steady[10:], again))


@experiment(
    "training.resume",
    claim="To resume a training, the model's weights are not enough: the optimizer's state must be saved as well.",
    source=Source(
        "PyTorch documentation",
        "Saving and loading a general checkpoint in PyTorch",
        "https://docs.pytorch.org/tutorials/recipes/recipes/saving_and_loading_a_general_checkpoint.html",
    ),
    control="The same interruption with the whole checkpoint; and with one other piece lost at a time.",
    threshold="Confirmed if in every seed the losses after a whole checkpoint are those of the uninterrupted run, bit "
    "for bit, and without the optimizer's state one differs by more than 0.02 nats; refuted if none differs by more "
    "than 0.001; else it depends.",
    seeds=SEEDS,
)
def resume() -> Finding:
    """Twenty steps after an interruption, from a whole checkpoint and from one that has lost a piece."""
    whole, *lost = ([resumed(seed, piece) for seed in SEEDS] for piece in PIECES)
    optimizer = lost[0]
    if max(whole) == 0 and min(optimizer) > 0.02:
        verdict = "confirmed"
    else:
        verdict = "refuted" if max(optimizer) < 1e-3 else "depends"
    each = ", ".join(f"without {piece} {statistics.fmean(found):.1f}" for piece, found in zip(PIECES[1:], lost))
    return Finding(
        f"largest difference from the uninterrupted losses, in nats: {max(whole):.0f} from a whole checkpoint; {each}",
        tuple(optimizer),
        verdict,
        "AdamW keeps two averages per parameter. That is not all: schedule and batches have a place where they were.",
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


def rise(values: Sequence[float], low: float, high: float) -> float:
    """Share of the training in which a rising curve goes from low to high: 1 if it never reaches high."""
    reached = [next((i for i, value in enumerate(values) if value >= level), len(values)) for level in (low, high)]
    return (reached[1] - reached[0]) / len(values) if reached[1] < len(values) else 1.0


@experiment(
    "training.jump",
    claim="The ability to copy what came before appears suddenly in training.",
    source=Source(
        "Olsson et al. 2022",
        "In-context Learning and Induction Heads, abstract and the argument on the phase change",
        "https://arxiv.org/abs/2209.11895",
    ),
    control="The same training, seen through a measure without a threshold: the loss on the letters to be copied, from a "
    "quarter to three quarters of its way from guessing to 0.",
    threshold="Sudden is: less than a sixth of the training, in every seed. Confirmed if the share of right copies "
    "rises from a quarter to three quarters so suddenly and the loss falls as suddenly, depends if only the share of "
    "right copies does, refuted if neither.",
    seeds=SEEDS,
)
def jump() -> Finding:
    """Copying letters: how fast right copies rise, and how fast the loss falls over the same stretch."""
    copies, losses = [], []
    for seed in SEEDS:
        loss, right = learn_to_copy(seed)
        smooth = [statistics.fmean(loss[i : i + 4]) for i in range(0, len(loss), 4)]  # as often as right was measured
        copies.append(rise(right, 0.25, 0.75))
        losses.append(rise([1 - each / math.log(COPY_LETTERS) for each in smooth], 0.25, 0.75))
    sudden = [max(shares) < 1 / 6 for shares in (copies, losses)]
    return Finding(
        f"share of the training in which right copies rise from a quarter to three quarters: "
        f"{100 * statistics.fmean(copies):.0f} %; in which the loss goes the same part of its way: "
        f"{100 * statistics.fmean(losses):.0f} %",
        tuple(copies),
        "confirmed" if all(sudden) else "depends" if sudden[0] else "refuted",
        "For a while hardly anything is seen, then nearly all comes within few steps. Part of a jump can lie in the "
        "measure (Schaeffer et al. 2023): a copy is right or wrong, a probability can grow.",
    )
