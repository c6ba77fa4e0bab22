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
from course_lib.config import TransformerConfig, preset
from course_lib.counting import count_parameters
from course_lib.gpt import IGNORED, DecoderOnly, evaluating
from course_lib.pretrained import shipped_figures
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import History, make_optimizer, story_losses, train

SEEDS = (0, 1, 2)
ROW = 48  # tokens in a row: about a story
STORIES = 3000


# ------------------------------------------------------------------------------------------------ small models, quickly
@cache
def story_ids(seed: int = 0, n: int = STORIES) -> Tensor:
    """Return n stories as one row of ids (N,)."""
    return encode_stories(Tinytown(seed).sample(n), WordTokenizer())


def story_batches(batch_size: int = 16, seed: int = 0) -> Batches:
    """Return rows of stories, each from its beginning."""
    generator = torch.Generator().manual_seed(seed)
    return Batches(story_ids(), batch_size, ROW, generator, start_id=WordTokenizer().bos_id)


def small_model(d_model: int = 32, n_layers: int = 2, seed: int = 0) -> DecoderOnly:
    """Return a decoder for Tinytown with heads of 16 features."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=len(WordTokenizer()), d_model=d_model, n_heads=max(1, d_model // 16), n_layers=n_layers,
        max_seq_len=96, positions="rope",
    )  # fmt: skip
    return DecoderOnly(config)


def held_out_loss(model: DecoderOnly, n: int = 200) -> float:
    """Return the nats per predicted token on held-out stories, to be compared with the exact entropy."""
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


def moves(seed: int = 0, rate: float = 3e-3, one_batch: bool = False, steps: int = 100) -> list[float]:
    """Return how far AdamW moves a parameter in each of the first steps, as a share of the learning rate: the median
    over all.

    The rate is constant and nothing decays, so a move is rate · m/√v, whatever the gradient's size.
    one_batch: the same rows in every step, so that no two batches can disagree.
    """
    model, batches, found = small_model(seed=seed), story_batches(16, seed), []
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
        before = nn.utils.parameters_to_vector(model.parameters()).detach()
        optimizer.step()
        moved = nn.utils.parameters_to_vector(model.parameters()).detach() - before
        found.append((moved.abs().median() / rate).item())
    return found


def outlier(clipped: bool, seed: int = 0, at: int = 60, after: int = 40) -> list[float]:
    """Return the held-out loss before a step whose gradient is a thousand times too long, right after it, and so many
    steps later.

    clipped: whether gradients longer than 1 are shortened to 1.
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
        if step == at:
            found.append(held_out_loss(model, 60))
        optimizer.step()
        if step in (at, at + after):
            found.append(held_out_loss(model, 60))
    return found


SCALES = (8, 16, 32)  # d_model: the models that a law is fitted to
SCALE_STEPS = (75, 150, 300)
PEAKS = {8: 0.05, 16: 0.04, 32: 0.02, 64: 0.01}  # the narrower, the higher: at one rate for all the small ones lag
ROWS = 16


@dataclass(frozen=True)
class Run:
    """A trained model: how large, on how many tokens, and its held-out loss in nats per token."""

    parameters: int
    tokens: int
    loss: float


def train_at_scale(d_model: int, steps: int, seed: int = 0, peak: float | None = None) -> Run:
    """Train a model of this width for so many steps of ROWS rows, at its own peak rate from PEAKS unless one is
    given."""
    model, warmup = small_model(d_model, seed=seed), min(30, steps // 5)
    train(model, story_batches(ROWS, seed), steps, peak=peak or PEAKS[d_model], warmup=warmup, progress=False)
    n = sum(parameter.numel() for parameter in model.parameters())
    return Run(n, ROWS * ROW * steps, held_out_loss(model, 100))


def scaled_runs(seed: int) -> list[Run]:
    """Return nine runs: three widths, each with three numbers of steps."""
    return [train_at_scale(d_model, steps, seed) for d_model in SCALES for steps in SCALE_STEPS]


# The losses of `train_at_scale(d_model, 150)`: shown in the chapter, which would otherwise train for some seconds.
AT_THEIR_OWN = {8: 1.861, 32: 1.254}


@cache
def shipped_run() -> Run:
    """Return the model that ships with the course: a hundred times as many tokens as the small ones saw, on average."""
    kept, config = shipped_figures("tinytown"), preset("tinytown")
    recipe = kept["recipe"]
    tokens = recipe["steps"] * recipe["batch_size"] * config.max_seq_len
    return Run(count_parameters(config).total, tokens, kept["figures"]["loss"])


@dataclass(frozen=True)
class PowerLaw:
    """loss = floor + A · parameters^−a + B · tokens^−b: with the entropy as the floor, or with none (0).

    Source: Hoffmann et al. 2022, eq. 2. There the floor is fitted as well; here it is known.
    """

    A: float
    a: float
    B: float
    b: float
    floor: float

    @staticmethod
    def fitted(runs: Sequence[Run], floor: float) -> "PowerLaw":
        """Return the law with the smallest mean square of relative errors of what lies above the floor: exponents by
        trying, A and B by least squares."""
        parameters, tokens, losses = torch.tensor(
            [[run.parameters, run.tokens, run.loss] for run in runs], dtype=torch.float64
        ).T
        exponents = torch.arange(1, 251, dtype=torch.float64) / 100  # (E,)
        # Relative errors: each fraction divided by what it has to explain; the two together should make 1.
        columns = [sizes[:, None] ** -exponents / (losses - floor)[:, None] for sizes in (parameters, tokens)]
        lengths = [column.norm(dim=0) for column in columns]  # (E,) each
        x, y = (column / length for column, length in zip(columns, lengths))  # (runs, E) of unit length
        together = x.T @ y  # (E, E): a down, b across
        to_x, to_y = x.sum(dim=0)[:, None], y.sum(dim=0)[None]
        apart = 1 - together**2
        along_x, along_y = (to_x - together * to_y) / apart, (to_y - together * to_x) / apart  # least squares of two
        error = len(runs) - along_x * to_x - along_y * to_y
        error[(along_x < 0) | (along_y < 0) | (apart < 1e-9)] = math.inf
        i, j = divmod(int(error.argmin()), len(exponents))
        if not error[i, j].isfinite():
            raise ValueError("no law fits: more parameters or more tokens must lower the loss")
        A, B = (along_x[i, j] / lengths[0][i]).item(), (along_y[i, j] / lengths[1][j]).item()
        return PowerLaw(A, exponents[i].item(), B, exponents[j].item(), floor)

    @staticmethod
    def drawn_again(runs: Sequence[Run], floor: float, times: int = 400, seed: int = 0) -> "list[PowerLaw]":
        """Return the laws of so many samples of the runs, each as large as all of them, drawn with replacement.

        Source: Efron 1979, the bootstrap: how far a figure differs among them says how well the runs determine it.
        """
        generator, laws = torch.Generator().manual_seed(seed), []
        for chosen in torch.randint(len(runs), (times, len(runs)), generator=generator).tolist():
            with suppress(ValueError):  # a sample of one width alone has no law
                laws.append(PowerLaw.fitted([runs[i] for i in chosen], floor))
        return laws

    def best_size(self, compute: float) -> tuple[float, float]:
        """Return (parameters, tokens) with the lowest loss among those that cost 6 · parameters · tokens = compute.

        Source: Hoffmann et al. 2022, eq. 4.
        """
        ratio = (self.a * self.A / (self.b * self.B)) ** (1 / (self.a + self.b))
        parameters = ratio * (compute / 6) ** (self.b / (self.a + self.b))
        return parameters, compute / 6 / parameters

    def __call__(self, parameters: float, tokens: float) -> float:
        return self.floor + self.A * parameters**-self.a + self.B * tokens**-self.b


@experiment(
    "training.scaling",
    claim="The loss falls as a power law in the number of parameters and of training tokens.",
    source=Source(
        "Kaplan et al. 2020", "Scaling Laws for Neural Language Models, abstract", "https://arxiv.org/abs/2001.08361"
    ),
    control="Each width at a learning rate of its own. The same nine runs and the same fit twice: through the loss, "
    "and through what of it lies above the known entropy. Both are asked for the model that ships with the course.",
    threshold="Right is: within 10 % of the shipped model's loss in every seed. Confirmed if the power law of the loss "
    "itself is right, depends if only that of the loss above the entropy is, refuted if neither.",
    seeds=SEEDS,
)
def scaling() -> Finding:
    """Both laws, fitted to three widths by three numbers of steps, against a model that is far larger."""
    entropy, larger, laws = Tinytown().entropy(), shipped_run(), []
    for seed in SEEDS:
        runs = scaled_runs(seed)
        laws.append([PowerLaw.fitted(runs, floor) for floor in (0.0, entropy)])
    plain, above = ([law(larger.parameters, larger.tokens) for law in column] for column in zip(*laws))
    right = [all(abs(loss / larger.loss - 1) < 0.1 for loss in losses) for losses in (plain, above)]
    return Finding(
        f"predicted for the shipped model, which has {larger.loss:.2f} nats: from the loss "
        f"{statistics.fmean(plain):.1f}, from the loss above the entropy {statistics.fmean(above):.2f} "
        f"(tokens to the power −{statistics.fmean(law.b for _, law in laws):.1f})",
        tuple(above),
        "confirmed" if right[0] else "depends" if right[1] else "refuted",
        f"A power law of the loss itself passes below the entropy, {entropy:.2f} nats, which no model can. What falls "
        "like one is the rest above it: the form that Hoffmann et al. (2022) fit.",
    )


PIECES = ("nothing", "the optimizer's averages", "the step", "the generator's state")


def resumed(seed: int, lost: str = "nothing") -> float:
    """Return the largest difference between the losses of 30 uninterrupted steps and those of a run that was stopped
    after 10 and taken up again from a checkpoint, from which one of PIECES is lost."""

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


class FollowerBatches(CopyBatches):
    """Random letters, each to be followed by the one that a fixed table names: nothing has to be found."""

    def __next__(self) -> tuple[Tensor, Tensor]:
        letters = torch.randint(COPY_LETTERS, (self.batch_size, 2 * COPY_LENGTH - 1), generator=self.generator)
        return letters, (5 * letters + 7) % COPY_LETTERS  # 5 and 24 share no factor: the table is a permutation


def learn_to_copy(
    seed: int, steps: int = COPY_STEPS, every: int = 4, task: type[CopyBatches] = CopyBatches
) -> tuple[list[float], list[float]]:
    """Return (loss in nats per letter of each step, share of right letters after every so many steps) of a training on
    the task; the share is measured on letters of its own."""
    torch.manual_seed(seed)
    model = DecoderOnly(
        TransformerConfig(vocab_size=COPY_LETTERS, d_model=32, n_heads=2, n_layers=2, max_seq_len=2 * COPY_LENGTH)
    )
    ids, targets = next(task(64, HELD_OUT_SEED + seed))
    wanted, right = targets != IGNORED, []

    def watch(step: int, _: nn.Module) -> None:
        if step % every == 0:
            with evaluating(model):
                right.append((model(ids).argmax(dim=-1) == targets)[wanted].float().mean().item())

    history = train(model, task(seed=seed), steps, peak=3e-3, warmup=30, on_step=watch, progress=False)
    return history.losses, right


def reached(right: Sequence[float], level: float, every: int = 4) -> int:
    """Return the first step at which at least this share is right; the number of steps measured if there is none."""
    return every * next((i for i, share in enumerate(right) if share >= level), len(right))


@experiment(
    "training.jump",
    claim="The ability to copy from the context appears suddenly in training.",
    source=Source(
        "Olsson et al. 2022",
        "In-context Learning and Induction Heads, abstract (a sudden sharp increase)",
        "https://arxiv.org/abs/2209.11895",
    ),
    control="The same model, steps and seeds on a task in which nothing has to be found: each letter's follower stands "
    "in a fixed table.",
    threshold="Confirmed if in every seed copying rises from a quarter to three quarters right in no more steps than "
    "the control; depends if it takes more, but begins at least three times as late; refuted if neither.",
    seeds=SEEDS,
)
def jump() -> Finding:
    """The steps at which a quarter and three quarters are right, for copying and for the fixed table."""

    def found(task: type[CopyBatches]) -> list[tuple[int, int]]:
        rights = [learn_to_copy(seed, task=task)[1] for seed in SEEDS]
        return [(reached(right, 0.25), reached(right, 0.75)) for right in rights]

    copying, table = found(CopyBatches), found(FollowerBatches)
    steep = all(one[1] - one[0] <= other[1] - other[0] for one, other in zip(copying, table))
    late = all(one[0] >= 3 * other[0] for one, other in zip(copying, table))
    told = [
        f"{name} {statistics.fmean(low for low, _ in steps):.0f} and {statistics.fmean(high for _, high in steps):.0f}"
        for name, steps in (("copying", copying), ("the fixed table", table))
    ]
    return Finding(
        f"of {COPY_STEPS} steps, a quarter and three quarters are right at step: {'; '.join(told)}",
        tuple(float(low) for low, _ in copying),
        "confirmed" if steep else "depends" if late else "refuted",
        "Either ability rises steeply once it has begun; only copying has the long wait before. "
        "Whether its two parts, finding and fetching, must come together is not measured here.",
    )
