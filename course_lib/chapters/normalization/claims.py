"""Chapter 7: which sizes normalization keeps steady, which it does not, and what it costs."""

import math
import statistics
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from statistics import fmean, stdev
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.blocks import TransformerBlock
from course_lib.claims.letters import held_out_letters, train_on_letters
from course_lib.claims.rates import Best, at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.claims.timing import best_seconds
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.training import TrainingDiverged

SEEDS = (0, 1, 2)
TEN_SEEDS = tuple(range(10))  # for results that three seeds cannot decide
RATES = (0.01, 0.03, 0.1)
STEPS, ROWS, N_LAYERS = 60, 8, 2
DEEP_LAYERS, DEEP_STEPS = 4, 120
LARGER_TABLE = 0.2  # standard deviation of the larger initial token table; the usual one has 0.02
DEPTH = 50
LETTERS_ALONE = 2.86  # nats per letter for a model that knows only how frequent each letter is
INITIALIZATIONS = ("default", "xavier")
RMS_NORM = Source(
    "Zhang & Sennrich 2019",
    "Root Mean Square Layer Normalization",
    "https://arxiv.org/abs/1910.07467",
    place="abstract",
    quote="RMSNorm achieves comparable performance against LayerNorm but reduces the running time by 7%∼64% on "
    "different models.",
)


# ------------------------------------------------------------------------------------------------- activations by depth
def spread_by_depth(
    norm: str | None, residual: bool = True, initialization: str = "default", n_blocks: int | None = None, seed: int = 0
) -> list[float]:
    """Return the standard deviation of the stream before the first of n_blocks untrained blocks, and after each.

    Args:
        norm: "pre", "post" or None.
        residual: False replaces x + F(x) by F(x).
        initialization: "default" (PyTorch's own for a linear layer) or "xavier" (uniform, larger).
        n_blocks: by default DEPTH.
    """
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=2, d_model=64, n_heads=4, n_layers=1, max_seq_len=16, norm_position=norm or "pre"
    )
    x = torch.randn(1, 16, 64)  # (B, T, d_model)
    spreads = [x.std(correction=0).item()]
    for _ in range(n_blocks or DEPTH):
        block = TransformerBlock(config)
        if initialization == "xavier":
            for parameter in block.parameters():
                if parameter.dim() == 2:
                    nn.init.xavier_uniform_(parameter)
        if norm is None:
            block.norm1 = block.norm2 = nn.Identity()
        with torch.no_grad():
            x = block(x) if residual else _without_residual(block, norm, x)
        spreads.append(x.std(correction=0).item())
    return spreads


def _without_residual(block: TransformerBlock, norm: str | None, x: Tensor) -> Tensor:
    for norm_layer, branch in (
        (block.norm1, lambda h: block.attention(h, is_causal=True)),
        (block.norm2, block.feed_forward),
    ):
        x = norm_layer(branch(x)) if norm == "post" else branch(norm_layer(x))
    return x


def factor_per_block(spreads: Sequence[float], first: int, last: int) -> float:
    """Return the factor by which one block multiplies the values, on average over blocks first + 1 to last.

    The growth over these blocks is this factor to the power last − first.
    """
    return (spreads[last] / spreads[first]) ** (1 / (last - first))


def evenness(spreads: Sequence[float]) -> float:
    """Return the log of the growth over the second half of the blocks, divided by the log for the first half.

    1 means exponential growth, with the same factor for each block. About 0.2 over 50 blocks means growth like the
    square root of the depth.
    """
    middle = len(spreads) // 2
    return math.log(spreads[-1] / spreads[middle]) / math.log(spreads[middle] / spreads[0])


def depth_verdict(without: Sequence[float], with_norms: Sequence[float]) -> str:
    """Compare the growth in blocks 26 to 50 with that in blocks 1 to 25, as logarithms; a ratio of 1 is
    exponential growth. One ratio for each initialization and seed, without norms and with pre-norm.

    confirmed: log(growth, blocks 26–50) / log(growth, blocks 1–25) is above 0.7 without norms, and at least 1.5
        times that with pre-norm, with either initialization
    refuted: this ratio is below 0.5 without norms, with either initialization
    depends: neither of these
    """
    if min(without) > 0.7 and all(bare >= 1.5 * normed for bare, normed in zip(without, with_norms)):
        return "confirmed"
    return "refuted" if max(without) < 0.5 else "depends"


@experiment(
    "normalization.depth",
    claim="Before training, without norms, the values in a residual network increase exponentially with depth.",
    source=Source(
        "Prince 2023",
        "Understanding Deep Learning",
        "https://udlbook.github.io/udlbook/",
        place="§ 11.3",
        quote="However, even if we use He initialization within the residual block, the values in the forward pass "
        "increase exponentially as we move through the network.",
    ),
    control="the same blocks, weights and tokens with pre-norm; two common initializations",
    verdict=depth_verdict,
    seeds=TEN_SEEDS,
)
def depth() -> Measurement:
    """Measure the growth of the residual stream over 50 untrained blocks, without norms and with pre-norm."""
    runs = {
        (norm, initialization): [spread_by_depth(norm, initialization=initialization, seed=seed) for seed in TEN_SEEDS]
        for norm, initialization in product((None, "pre"), INITIALIZATIONS)
    }
    mild, wild = (statistics.median(run[-1] / run[0] for run in runs[None, each]) for each in INITIALIZATIONS)
    ratios = {arm: [evenness(run) for run in each] for arm, each in runs.items()}
    without, with_norms = (
        [each for start in INITIALIZATIONS for each in ratios[norm, start]] for norm in (None, "pre")
    )
    factors = {
        (norm, first): [
            _span([factor_per_block(run, first, first + DEPTH // 2) for run in runs[norm, each]])
            for each in INITIALIZATIONS
        ]
        for norm, first in product((None, "pre"), (0, DEPTH // 2))
    }
    early, late = f"blocks 1–{DEPTH // 2}", f"blocks {DEPTH // 2 + 1}–{DEPTH}"
    return Measurement(
        measured=f"without norms, each of {DEPTH} untrained blocks multiplies the values by about "
        f"{mild ** (1 / DEPTH):.2f} with PyTorch’s weights and by about {wild ** (1 / DEPTH):.1f} with Xavier’s",
        rows=(
            ("untrained blocks", "PyTorch’s weights", "Xavier’s weights"),
            (f"growth over {DEPTH} blocks", f"{mild:.0f}×", f"{wild:.0e}×"),
            (f"factor per block, {early}", *factors[None, 0]),
            (f"factor per block, {late}", *factors[None, DEPTH // 2]),
            (f"with pre-norm, {early}", *factors["pre", 0]),
            (f"with pre-norm, {late}", *factors["pre", DEPTH // 2]),
        ),
        values=without,
        figures={"without": without, "with_norms": with_norms},
        because="Without norms, a block’s output is about proportional to its input. So the factor is similar "
        "at every depth (with PyTorch’s weights it rises slightly, for a reason that we did not test). With pre-norm, "
        "it falls with depth.",
    )


def _span(numbers: Sequence[float]) -> str:
    return f"{min(numbers):.2f}–{max(numbers):.2f}"


def any_depth_verdict(within_bounds: bool, post_steady: bool) -> str:
    """Compare the mean square of the stream with Lemma 2 after 10, 25 and 50 blocks, for every seed.

    confirmed: the mean square is between 1 + l / 2 and 1 + 3 l / 2 with pre-norm, and within a tenth of 1 with
        post-norm
    depends: the mean square is outside these bounds; the lemma assumes that attention averages all tokens equally
    """
    return "confirmed" if within_bounds and post_steady else "depends"


@experiment(
    "normalization.any_depth",
    claim="the scale of the hidden states in the Pre-LN Transformer grows linearly along with the depth",
    source=Source(
        "Xiong et al. 2020",
        "On Layer Normalization in the Transformer Architecture",
        "https://arxiv.org/abs/2002.04745",
        place="§ 3.3, on Lemma 2, at initialization",
        quote="As we can see from Lemma 2, the scale of the hidden states in the Post-LN Transformer keeps to be the "
        "same in expectation while the scale of the hidden states in the Pre-LN Transformer grows linearly along with "
        "the depth.",
    ),
    control="the same untrained blocks, Xavier weights and tokens; only the position of the norm differs; the scale is "
    "the mean square",
    verdict=any_depth_verdict,
    seeds=SEEDS,
)
def any_depth() -> Measurement:
    """Measure the standard deviation of the stream over 50 untrained blocks with pre-norm and with post-norm."""
    pre, post = (
        [spread_by_depth(norm, initialization="xavier", seed=seed) for seed in SEEDS] for norm in ("pre", "post")
    )
    after = (10, 25, DEPTH)
    return Measurement(
        measured=f"after {DEPTH} untrained blocks the stream has a standard deviation of "
        f"{fmean(run[-1] for run in post):.1f} with post-norm and of {min(run[-1] for run in pre):.1f}–"
        f"{max(run[-1] for run in pre):.1f} with pre-norm",
        values=[run[-1] for run in pre],
        figures={
            "within_bounds": all(1 + n / 2 <= run[n] ** 2 <= 1 + 3 * n / 2 for run in pre for n in after),
            "post_steady": all(abs(run[n] ** 2 - 1) < 0.1 for run in post for n in after),
        },
        because="Post-norm resets the stream after every branch. With pre-norm, the stream’s mean square (the "
        "“scale”) is within the paper’s bounds for linear growth: between 1 + l/2 and 1 + 3l/2 after l blocks. We "
        "checked 10, 25 and 50 blocks.",
    )


# ----------------------------------------------------------------------------------------------------------- training
def leave_norms_out(model: DecoderOnly) -> None:
    """Remove every norm from a decoder."""
    for block in model.blocks:
        block.norm1 = block.norm2 = nn.Identity()
    model.final_norm = nn.Identity()


def no_norms_larger_table(model: DecoderOnly) -> None:
    """Remove every norm from a decoder, and make the initial values of its token table ten times as large."""
    leave_norms_out(model)
    nn.init.normal_(model.token_embedding.weight, std=LARGER_TABLE)


WITHOUT_NORMS = {"no norms": leave_norms_out, "no norms, larger initial values": no_norms_larger_table}


def spell(rate: float, seed: int, **settings: Any) -> float:
    """Return the held-out loss of a small model that spells, in nats per letter; infinity if training diverges."""
    settings = {"steps": STEPS, "n_layers": N_LAYERS} | settings
    try:
        return train_on_letters(seed, peak=rate, rows=ROWS, **settings)[1]
    except TrainingDiverged:
        return math.inf


@cache
def best_speller(seeds: tuple[int, ...] = SEEDS, **settings: Any) -> Best:
    """Train a small model that spells at its own best learning rate; settings as in `train_on_letters`."""
    return at_best_rate(partial(spell, **settings), RATES, seeds)


def needed_verdict(behind: float, behind_with_larger_table: float) -> str:
    """Judge by how far the mean loss without norms is above that with norms, in nats per letter.

    confirmed: without norms the loss is more than 0.1 nats higher, with the usual initial values of the token table
        and with the larger ones
    depends: it is more than 0.1 nats higher with only one of the two
    refuted: it is at most 0.1 nats higher with both
    """
    far = [behind > 0.1, behind_with_larger_table > 0.1]
    return "confirmed" if all(far) else "depends" if any(far) else "refuted"


@experiment(
    "normalization.needed",
    claim="Normalization layers are essential for training a Transformer.",
    source=Source(
        "Zhu et al. 2025, who report and dispute it",
        "Transformers without Normalization",
        "https://arxiv.org/abs/2503.10622",
        place="abstract",
        quote="Normalization layers are ubiquitous in modern neural networks and have long been considered essential. "
        "This work demonstrates that Transformers without normalization can achieve the same or better performance "
        "using a remarkably simple technique.",
    ),
    control="the same two blocks with their norms; without norms, also with initial values of the token table ten "
    "times as large; seeds, steps and batches are equal, and each model has its own best learning rate",
    verdict=needed_verdict,
    seeds=SEEDS,
)
def needed(size: Size) -> Measurement:
    """Measure the held-out loss with norms, without them, and without them with larger initial values."""
    arm = partial(best_speller, steps=size.steps(STEPS), d_model=size.width(32))
    norms, none, larger = (arm(prepare=prepare) for prepare in (None, leave_norms_out, no_norms_larger_table))
    return Measurement(
        measured=f"after {size.steps(STEPS)} steps the loss is {norms.mean:.1f} nats per letter with norms and "
        f"{none.mean:.1f} without; it is {larger.mean:.1f} without norms if the token table starts with values ten "
        "times as large",
        values=[without - with_norms for without, with_norms in zip(none.losses, norms.losses)],
        figures={"behind": none.mean - norms.mean, "behind_with_larger_table": larger.mean - norms.mean},
        because="It depends on the initial values of the token table: with larger ones, this small model trains as "
        "well without norms. After 240 steps the losses are 1.5 with norms, 1.8 without, and 1.4 with larger values.",
    )


def rms_quality_verdict(behind: Sequence[float]) -> str:
    """Judge by how far the loss with RMSNorm is above that with LayerNorm, in nats per letter, one for each seed.

    confirmed: the two differ by less than 0.05 for every seed, in either direction
    not at this size: they differ by at least 0.05 for some seed; the authors tested much larger models
    """
    return "confirmed" if max(map(abs, behind)) < 0.05 else "not at this size"


@experiment(
    "normalization.rms_quality",
    claim="RMSNorm achieves comparable performance against LayerNorm",
    source=RMS_NORM,
    control="the same model, seeds and batches; only the norm differs, and each norm has its own best learning rate",
    verdict=rms_quality_verdict,
    seeds=TEN_SEEDS,
)
def rms_quality(size: Size) -> Measurement:
    """Measure the held-out loss of the same model with each norm."""
    arm = partial(best_speller, seeds=TEN_SEEDS, steps=size.steps(STEPS), d_model=size.width(32))
    layer, rms = arm(prepare=None), arm(prepare=None, norm="rms")
    behind = [with_rms - with_layer for with_rms, with_layer in zip(rms.losses, layer.losses)]
    return Measurement(
        measured=f"RMSNorm’s loss differs from LayerNorm’s by {_signed(fmean(behind))} nats per letter on average, and "
        f"by {_signed(min(behind))} to {_signed(max(behind))} for single seeds",
        values=behind,
        figures={"behind": behind},
        because="We call the two comparable if they differ by less than 0.05 nats for every seed. They do not. The "
        f"average difference has a standard error of {stdev(behind) / len(behind) ** 0.5:.2f}, so it may be chance.",
    )


def _signed(number: float) -> str:
    return f"{number:+.2f}".replace("-", "−")


class ScaledNorm(nn.Module):
    """A norm whose output is multiplied by a constant."""

    def __init__(self, norm: nn.Module, factor: float):
        super().__init__()
        self.norm, self.factor = norm, factor

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.norm(x) * self.factor


def scale_norms(model: DecoderOnly) -> None:
    """Divide the output of the l-th block's norms by √l: the LayerNorm Scaling of Sun et al. 2025."""
    for number, block in enumerate(model.blocks, start=1):
        block.norm1, block.norm2 = (ScaledNorm(norm, number**-0.5) for norm in (block.norm1, block.norm2))


def block_costs(model: DecoderOnly, n_rows: int = 40) -> list[float]:
    """Return how much the held-out loss rises without each block, in nats per letter."""
    inputs, targets = (each[:n_rows] for each in held_out_letters())
    blocks, losses = model.blocks, []
    with evaluating(model):
        for left_out in (None, *blocks):
            model.add_module("blocks", nn.ModuleList(block for block in blocks if block is not left_out))
            losses.append(model(inputs, targets)[1].item())
    model.blocks = blocks
    return [loss - losses[0] for loss in losses[1:]]


def deep_share(
    rate: float, seed: int, steps: int, norm_position: str, prepare: Callable[[DecoderOnly], None] | None = None
) -> tuple[float, float]:
    """Return (loss, the deeper half's fraction of the cost of removing one block, summed over all blocks)."""
    model, loss = train_on_letters(
        seed, steps, peak=rate, rows=ROWS, prepare=prepare, n_layers=DEEP_LAYERS, norm_position=norm_position
    )
    costs = [max(cost, 0.0) for cost in block_costs(model)]
    return loss, sum(costs[DEEP_LAYERS // 2 :]) / sum(costs)


def deep_blocks_verdict(pre: Sequence[float], scaled: Sequence[float]) -> str:
    """Judge by the last two blocks' part of the total increase in loss when each block is removed; one for each seed.

    confirmed: the last two blocks account for less than a fifth for every seed with pre-norm, and for at least twice
        as much with scaled norms
    not at this size: any other result; the paper's models have at least 130 million weights
    """
    idle, mended = max(pre) < 0.2, all(with_it >= 2 * without for with_it, without in zip(scaled, pre))
    return "confirmed" if idle and mended else "not at this size"


@experiment(
    "normalization.deep_blocks",
    claim="With pre-norm the deep blocks barely contribute, because the stream's variance grows with depth.",
    source=Source(
        "Sun et al. 2025",
        "The Curse of Depth in Large Language Models",
        "https://arxiv.org/abs/2502.05795",
        place="abstract",
        quote="While Pre-LN stabilizes the training of Transformer LLMs, its output variance exponentially grows with "
        "the model depth, which undesirably causes the derivative of the deep Transformer blocks to be an identity "
        "matrix, and therefore barely contributes to the training.",
    ),
    control="post-norm, whose stream does not grow; and the paper's remedy, which divides the output of a "
    "pre-norm block's norms by the root of its number; seeds and steps are equal, and each model has its own best "
    "learning rate",
    verdict=deep_blocks_verdict,
    seeds=SEEDS,
)
def deep_blocks(size: Size) -> Measurement:
    """Train four blocks on letters, then remove each in turn."""
    pre, post, scaled = (
        [
            share
            for _, share in at_best_rate(
                partial(deep_share, steps=size.steps(DEEP_STEPS), norm_position=position, prepare=prepare), RATES, SEEDS
            ).results
        ]
        for position, prepare in (("pre", None), ("post", None), ("pre", scale_norms))
    )
    return Measurement(
        measured=f"the last two blocks account for {100 * fmean(pre):.0f}% of the total increase in loss with "
        f"pre-norm, {100 * fmean(scaled):.0f}% with scaled norms and {100 * fmean(post):.0f}% with post-norm",
        values=pre,
        figures={"pre": pre, "scaled": scaled},
        because="One half of the claim holds: late pre-norm blocks do little here as well. The cause is not confirmed: "
        "scaled norms did not make them do more. A model of four blocks cannot show what happens in one of thirty.",
    )


# -------------------------------------------------------------------------------------------------------------- details
def eps_factor(std: float, eps: float = 1e-6) -> tuple[float, float]:
    """Return the standard deviation that a norm gives a token of this deviation: with eps inside the root, and
    outside."""
    return std / math.sqrt(std**2 + eps), std / (std + eps)


def eps_verdict(kernel: float, outside: float, usual_gap: float) -> str:
    """Compare PyTorch's kernel with eps added to the standard deviation, on a nearly constant token and on a usual one.

    confirmed: on the nearly constant token the kernel does what eps outside the root does
    depends: on the nearly constant token the kernel differs from eps outside the root, but on a token of standard
        deviation 1 the two agree to 0.001
    refuted: the two differ on both tokens
    """
    if abs(kernel - outside) < 0.01 * outside:
        return "confirmed"
    return "depends" if usual_gap < 1e-3 else "refuted"


@experiment(
    "normalization.eps",
    claim="LayerNorm’s eps acts like a value added to the denominator.",
    source=Source(
        "PyTorch",
        "documentation of LayerNorm",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html",
        place="Parameters, eps",
        quote="a value added to the denominator for numerical stability. Default: 1e-5",
    ),
    control="PyTorch's kernel itself, compared with the formulas with eps inside the root and outside; eps = 1e-6",
    verdict=eps_verdict,
)
def eps() -> Measurement:
    """Measure the output's deviation for a nearly constant token, for both positions of eps and for PyTorch's
    kernel."""
    (inside, outside), (usual_in, usual_out) = eps_factor(1e-6), eps_factor(1.0)
    token = torch.linspace(-1, 1, 768, dtype=torch.float64)
    token = 1e-6 * token / token.std(correction=0)
    kernel = F.layer_norm(token, token.shape, eps=1e-6).std(correction=0).item()
    return Measurement(
        measured=f"with eps = 1e-6, PyTorch’s LayerNorm raises a standard deviation of 0.000001 to {kernel:.3f}; with "
        f"eps outside the root it would be {outside:.3f}",
        rows=(
            ("standard deviation after the norm", "eps inside the root", "eps outside"),
            ("before: 0.000001", f"{inside:.3f}", f"{outside:.3f}"),
            ("before: 1", f"{usual_in:.3f}", f"{usual_out:.3f}"),
        ),
        values=(outside / inside,),
        figures={"kernel": kernel, "outside": outside, "usual_gap": abs(usual_in - usual_out)},
        because="It depends on the token. PyTorch adds eps inside the root. For usual activations that makes "
        "no difference. For nearly equal features, eps outside the root would make rounding noise hundreds of times "
        "larger.",
    )


class BatchNormOfText(nn.Module):
    """BatchNorm of each feature over all texts and positions, with its running statistics at inference."""

    def __init__(self, d_model: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


def use_batch_norm(model: DecoderOnly) -> None:
    """Replace every norm of a decoder by BatchNorm."""
    for block in model.blocks:
        for name in ("norm1", "norm2"):
            block.add_module(name, BatchNormOfText(model.config.d_model))
    model.add_module("final_norm", BatchNormOfText(model.config.d_model))


def leak_between_texts(name: str, seed: int, changed: int = 3) -> float:
    """Return how far the first token of text 0 moves when the last token of text `changed` is changed."""
    x = torch.randn(4, 8, 16, generator=torch.Generator().manual_seed(seed))  # (B, T, d_model)
    other = x.clone()
    other[changed, 7] += 10
    before, after = (batch_or_layer_norm(name, each)[0, 0] for each in (x, other))
    return (after - before).abs().max().item()


def batch_verdict(behind: Sequence[float]) -> str:
    """Judge by how far the held-out loss with BatchNorm is above that with LayerNorm, one for each seed.

    confirmed: with BatchNorm the loss is more than 0.1 nats per letter higher, for every seed
    not at this size: for at least one seed the difference is 0.1 or less; all these texts have the same length
    """
    return "confirmed" if min(behind) > 0.1 else "not at this size"


@experiment(
    "normalization.batch",
    claim="batch normalization is usually empirically less effective than layer normalization in natural language "
    "processing tasks",
    source=Source(
        "Zhang et al. 2023",
        "Dive into Deep Learning",
        "https://d2l.ai/chapter_attention-mechanisms-and-transformers/transformer.html",
        place="§ 11.7.4",
        quote="Despite its pervasive applications in computer vision, batch normalization is usually empirically less "
        "effective than layer normalization in natural language processing tasks, where the inputs are often "
        "variable-length sequences.",
    ),
    control="all texts have the same length, since varying length is the usual argument; model and batches are equal, "
    "each norm has its own best learning rate, and the loss is measured with running statistics",
    verdict=batch_verdict,
    seeds=SEEDS,
)
def batch(size: Size) -> Measurement:
    """Compare the same model with each norm, and test whether one text's last token affects another text's first."""
    arm = partial(best_speller, steps=size.steps(STEPS), d_model=size.width(32))
    by_batch, by_layer = (arm(prepare=prepare) for prepare in (use_batch_norm, None))
    behind = [with_batch - with_layer for with_batch, with_layer in zip(by_batch.losses, by_layer.losses)]

    def reaches(changed: int) -> list[str]:
        moved = [min(leak_between_texts(name, seed, changed) for seed in SEEDS) for name in ("batch", "layer")]
        return ["yes" if each > 0.01 else "no" for each in moved]

    return Measurement(
        measured=f"on new texts of equal length, the loss is {by_batch.mean:.1f} nats per letter with BatchNorm (with "
        f"its running statistics) and {by_layer.mean:.1f} with LayerNorm",
        rows=(
            ("in training, a token’s change reaches", "BatchNorm", "LayerNorm"),
            ("earlier tokens of its text", *reaches(0)),
            ("other texts", *reaches(3)),
        ),
        values=behind,
        figures={"behind": behind},
        because="BatchNorm’s loss is slightly lower for every seed after 60 steps, and lower after 240 (1.3 against "
        "1.5). With token vectors twice as wide it is higher (2.1 against 2.0). So these runs do not rank the two "
        "norms.",
    )


def batch_or_layer_norm(name: str, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
    """Apply PyTorch's BatchNorm as in training, over all texts and positions, or LayerNorm, over the features."""
    if name == "batch":
        return F.batch_norm(x.transpose(1, 2), None, None, training=True).transpose(1, 2)
    return F.layer_norm(x, x.shape[-1:])


# --------------------------------------------------------------------------------------------------------------- speed
WIDTHS = (256, 768, 2048)


def layer_norm_by_hand(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(centred.pow(2).mean(dim=-1, keepdim=True) + eps) * weight + bias


def rms_norm_by_hand(x: Tensor, weight: Tensor, eps: float = 1e-6) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps) * weight


def compare_speed(widths: Sequence[int] = WIDTHS, rounds: int = 30) -> dict[str, list[float]]:
    """Return RMSNorm's time divided by LayerNorm's at each width on this machine, for both implementations."""
    ratios: dict[str, list[float]] = {"by hand": [], "with PyTorch's functions": []}
    for width in widths:
        x, weight, bias = torch.randn(128, width), torch.rand(width), torch.rand(width)
        with torch.no_grad():
            layer, rms, fused_layer, fused_rms = best_seconds(
                [
                    partial(layer_norm_by_hand, x, weight, bias),
                    partial(rms_norm_by_hand, x, weight),
                    partial(F.layer_norm, x, weight.shape, weight, bias),
                    partial(F.rms_norm, x, weight.shape, weight, 1e-6),
                ],
                rounds,
            )
        ratios["by hand"].append(rms / layer)
        ratios["with PyTorch's functions"].append(fused_rms / fused_layer)
    return ratios


def model_ratio(d_model: int = 512, T: int = 128, rounds: int = 60) -> float:
    """Return the forward time of a model of two blocks with RMSNorm divided by that with LayerNorm, on this machine."""
    ids = torch.arange(T)[None]
    models = [
        DecoderOnly(TransformerConfig(T, d_model, n_heads=4, n_layers=2, max_seq_len=T, norm=norm))
        for norm in ("layer", "rms")
    ]
    with torch.no_grad():
        layer, rms = best_seconds([partial(model, ids) for model in models], rounds)
    return rms / layer


def rms_speed_verdict(ratios: Sequence[float]) -> str:
    """Judge by RMSNorm's time divided by LayerNorm's: both norms by hand, both with PyTorch's
    functions, and a complete model.

    confirmed: every ratio is at most 0.93
    depends: some are and some are not; it depends on the implementation
    refuted: none is
    """
    if max(ratios) <= 0.93:
        return "confirmed"
    return "refuted" if min(ratios) > 0.93 else "depends"


@experiment(
    "normalization.rms_speed",
    claim="RMSNorm reduces the running time by 7% to 64% on different models.",
    source=RMS_NORM,
    control="the same tokens and widths, timed alternately; both norms written by hand, both with PyTorch's "
    "functions, and a complete model with each",
    verdict=rms_speed_verdict,
    timed=True,
)
def rms_speed() -> Measurement:
    """Time a forward pass of 128 tokens with both norms, by hand and with PyTorch's functions, at three widths; and a
    model."""
    by_kind = compare_speed()
    whole = model_ratio()
    by_hand, fused = (f"{min(values):.2f}–{max(values):.2f}" for values in by_kind.values())
    ratios = [*(ratio for values in by_kind.values() for ratio in values), whole]
    return Measurement(
        measured=f"RMSNorm takes {by_hand} times as long as LayerNorm when both are written by hand, {fused} times as "
        f"long with PyTorch’s functions, and {whole:.2f} times as long in a complete model",
        values=ratios,
        figures={"ratios": ratios},
        because="It depends on the implementation. RMSNorm does less arithmetic, which shows when both are written by "
        "hand. On the CPU, PyTorch computes LayerNorm in one loop and RMSNorm in several. Norms take little of a "
        "model’s time.",
    )
