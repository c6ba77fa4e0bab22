"""Chapter 7: what normalization holds steady, what it does not, and what it costs."""

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from statistics import fmean

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.blocks import TransformerBlock
from course_lib.claims.letters import held_out_letters, train_on_letters
from course_lib.claims.registry import Finding, Source, experiment
from course_lib.claims.timing import best_seconds
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.training import TrainingDiverged

SEEDS = (0, 1, 2)
STEPS = 150
DEEP_STEPS = 120
DEPTH = 50
LETTERS_ALONE = 2.86  # nats per letter for whoever knows how frequent each letter is, and nothing else
INITIALIZATIONS = ("default", "xavier")
ZHANG_SENNRICH = partial(
    Source,
    "Zhang & Sennrich 2019",
    "Root Mean Square Layer Normalization, abstract",
    "https://arxiv.org/abs/1910.07467",
)


# ------------------------------------------------------------------------------------------------- activations by depth
def spread_by_depth(
    norm: str | None, residual: bool = True, initialization: str = "default", n_blocks: int | None = None, seed: int = 0
) -> list[float]:
    """Standard deviation of the numbers in the stream before the first of n_blocks untrained blocks, and after each.

    Args:
        norm: "pre", "post" or None. residual: False takes x + F(x) away and leaves F(x).
        initialization: "default" (PyTorch's own for a linear layer) or "xavier" (uniform, larger).
        n_blocks: DEPTH unless given.
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


def evenness(spreads: Sequence[float]) -> float:
    """Growth over the second half of the blocks by that over the first, both as logarithms.

    1: exponential, the same factor for each block. About 0.2 over 50 blocks: like the root of the depth.
    """
    middle = len(spreads) // 2
    return math.log(spreads[-1] / spreads[middle]) / math.log(spreads[middle] / spreads[0])


@experiment(
    "normalization.depth",
    claim="Without normalization the output of a residual network grows exponentially with depth.",
    source=Source(
        "Zhang et al. 2019",
        "Fixup Initialization: Residual Learning Without Normalization, § 2",
        "https://arxiv.org/abs/1901.09321",
    ),
    control="the same blocks with pre-norm; two initialisations in daily use",
    threshold="blocks 26 to 50 are compared with 1 to 25, growth as logarithms: confirmed if their ratio is above 0.7 "
    "(1 is exponential) for both initialisations in every seed and below 0.5 with pre-norm, refuted if below 0.5 "
    "without norms, else depends",
    seeds=SEEDS,
)
def depth() -> Finding:
    """Growth of the residual stream over 50 untrained blocks without any norm, for two initialisations."""
    runs = {
        (norm, initialization): [spread_by_depth(norm, initialization=initialization, seed=seed) for seed in SEEDS]
        for norm, initialization in ((None, "default"), (None, "xavier"), ("pre", "xavier"))
    }
    mild, wild = (statistics.median(run[-1] / run[0] for run in runs[None, each]) for each in INITIALIZATIONS)
    even = [evenness(run) for (norm, _), each in runs.items() if norm is None for run in each]
    held = [evenness(run) for run in runs["pre", "xavier"]]
    return Finding(
        measured=f"over {DEPTH} blocks: {mild:.0f} times with PyTorch's initialisation, {wild:.0e} times with "
        f"Xavier's; {mild ** (1 / DEPTH):.2f} and {wild ** (1 / DEPTH):.1f} times per block",
        values=tuple(even),
        verdict="confirmed" if min(even) > 0.7 and max(held) < 0.5 else "refuted" if max(even) < 0.5 else "depends",
        because="What a block adds is proportional to what it reads, so each block multiplies. By how much depends on "
        "the initial weights: a little more per block makes a gulf.",
    )


@experiment(
    "normalization.any_depth",
    claim="At initialisation the mean square of a pre-norm stream grows linearly with depth, that of post-norm does "
    "not.",
    source=Source(
        "Xiong et al. 2020",
        "On Layer Normalization in the Transformer Architecture, Lemma 2",
        "https://arxiv.org/abs/2002.04745",
    ),
    control="the same blocks, Xavier weights and tokens; the place of the norm differs",
    threshold="confirmed if in every seed the mean square after 10, 25 and 50 blocks lies within the lemma's bounds, "
    "1 + l / 2 and 1 + 3 l / 2, with pre-norm and within a tenth of 1 with post-norm, else refuted",
    seeds=SEEDS,
)
def any_depth() -> Finding:
    """Spread of the stream over 50 blocks with pre-norm and with post-norm, Xavier initialisation."""
    pre, post = (
        [spread_by_depth(norm, initialization="xavier", seed=seed) for seed in SEEDS] for norm in ("pre", "post")
    )
    bounded = all(1 + n / 2 <= run[n] ** 2 <= 1 + 3 * n / 2 for run in pre for n in (10, 25, DEPTH))
    steady = all(abs(run[n] ** 2 - 1) < 0.1 for run in post for n in (10, 25, DEPTH))
    return Finding(
        measured=f"standard deviation after {DEPTH} blocks: {fmean(run[-1] for run in post):.1f} with post-norm, about "
        f"{fmean(run[-1] for run in pre):.0f} with pre-norm",
        values=tuple(run[-1] for run in pre),
        verdict="confirmed" if bounded and steady else "refuted",
        because="Post-norm resets the stream after every branch. Pre-norm only resets what the branches read: each "
        "branch adds to the stream, which grows like the root of the depth.",
    )


# ----------------------------------------------------------------------------------------------------------- training
def train_with(norm: str | None, peak: float, seed: int, n_layers: int = 3) -> float:
    """Held-out loss of a small model that spells (nats per letter): norm "layer", "rms" or None; infinity if the
    training diverges."""
    try:
        return train_on_letters(
            seed, STEPS, prepare=None if norm else leave_norms_out, peak=peak, n_layers=n_layers, norm=norm or "layer"
        )[1]
    except TrainingDiverged:
        return math.inf


def leave_norms_out(model: DecoderOnly) -> None:
    """Take every norm out of a decoder."""
    for block in model.blocks:
        block.norm1 = block.norm2 = nn.Identity()
    model.final_norm = nn.Identity()


@experiment(
    "normalization.needed",
    claim="Normalization layers are essential for training a Transformer.",
    source=Source(
        "Zhu et al. 2025", "Transformers without Normalization, abstract", "https://arxiv.org/abs/2503.10622"
    ),
    control="the same model with its norms, at the same two learning rates; seeds, steps and batches equal",
    threshold="to learn is to end 0.1 nats below the frequencies of the letters in every seed; without norms: "
    "confirmed if it learns at neither rate, depends if at 0.01 alone, refuted if at 0.1 as well",
    seeds=SEEDS,
)
def needed() -> Finding:
    """Three blocks with and without their norms, at a usual and at a ten times larger learning rate."""
    loss = {
        (norm, peak): [train_with(norm, peak, seed) for seed in SEEDS]
        for norm in ("layer", None)
        for peak in (1e-2, 1e-1)
    }
    learns = {setting: max(losses) < LETTERS_ALONE - 0.1 for setting, losses in loss.items()}
    said = {setting: "learns" if learns[setting] else "fails" for setting in learns}
    return Finding(
        measured=f"at learning rate 0.01 the model {said[None, 1e-2]} without norms and {said['layer', 1e-2]} with "
        f"them; at 0.1 it {said[None, 1e-1]} without and {said['layer', 1e-1]} with",
        values=tuple(loss[None, 1e-2]),
        verdict="refuted" if learns[None, 1e-1] else "depends" if learns[None, 1e-2] else "confirmed",
        because="A shallow model trains without norms if the steps are small enough. What the norms buy is room: "
        "larger steps and more depth before the training breaks.",
    )


@experiment(
    "normalization.rms_quality",
    claim="RMSNorm achieves comparable performance against LayerNorm.",
    source=ZHANG_SENNRICH(),
    control="the same model, seeds, batches and rate; the norm alone differs",
    threshold="confirmed if the mean loss with RMSNorm is less than 0.1 nats higher, else refuted",
    seeds=SEEDS,
)
def rms_quality() -> Finding:
    """Held-out loss of the same model with either norm."""
    layer, rms = ([train_with(norm, 1e-2, seed, n_layers=2) for seed in SEEDS] for norm in ("layer", "rms"))
    difference = fmean(rms) - fmean(layer)
    return Finding(
        measured=f"the losses differ by {'less' if abs(difference) < 0.1 else 'more'} than 0.1 nats per letter",
        values=tuple(with_rms - with_layer for with_rms, with_layer in zip(rms, layer)),
        verdict="confirmed" if difference < 0.1 else "refuted",
        because="The difference is no larger than that between two seeds. Scaling each token is what matters; centring "
        "it hardly does.",
    )


class ScaledNorm(nn.Module):
    """A norm whose output is multiplied by a constant."""

    def __init__(self, norm: nn.Module, factor: float):
        super().__init__()
        self.norm, self.factor = norm, factor

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.norm(x) * self.factor


def scale_norms(model: DecoderOnly) -> None:
    """Divide what the l-th block's norms say by √l: the LayerNorm Scaling of Sun et al. 2025."""
    for number, block in enumerate(model.blocks, start=1):
        block.norm1, block.norm2 = (ScaledNorm(norm, number**-0.5) for norm in (block.norm1, block.norm2))


def block_costs(model: DecoderOnly, n_rows: int = 40) -> list[float]:
    """How much the held-out loss rises without each block, in nats per letter."""
    inputs, targets = (each[:n_rows] for each in held_out_letters())
    blocks, losses = model.blocks, []
    with evaluating(model):
        for left_out in (None, *blocks):
            model.add_module("blocks", nn.ModuleList(block for block in blocks if block is not left_out))
            losses.append(model(inputs, targets)[1].item())
    model.blocks = blocks
    return [loss - losses[0] for loss in losses[1:]]


def deep_share(
    norm_position: str, seed: int, prepare: Callable[[DecoderOnly], None] | None = None, n_layers: int = 6
) -> float:
    """What removing a block of the deeper half costs, divided by what removing one of the first half costs."""
    model, _ = train_on_letters(
        seed, DEEP_STEPS, peak=3e-3, prepare=prepare, n_layers=n_layers, norm_position=norm_position
    )
    costs = block_costs(model)
    return fmean(costs[n_layers // 2 :]) / fmean(costs[: n_layers // 2])


@experiment(
    "normalization.deep_blocks",
    claim="With pre-norm the deep blocks barely contribute, because the stream's variance grows with depth.",
    source=Source(
        "Sun et al. 2025", "The Curse of Depth in Large Language Models, abstract", "https://arxiv.org/abs/2502.05795"
    ),
    control="post-norm, whose stream does not grow; and the paper's remedy, pre-norm whose norms are divided by the "
    "root of the block's number; seeds, steps, rate equal",
    threshold="what removing a block of the deeper half costs, by what one of the first half costs: confirmed if below "
    "a quarter in every seed with pre-norm and twice as much in every seed with the remedy, depends if only the first, "
    "else refuted",
    seeds=SEEDS,
)
def deep_blocks() -> Finding:
    """Six blocks trained on letters; then each is removed alone."""
    pre, post, scaled = (
        [deep_share(norm_position, seed, prepare) for seed in SEEDS]
        for norm_position, prepare in (("pre", None), ("post", None), ("pre", scale_norms))
    )
    idle, mended = max(pre) < 0.25, all(with_it > 2 * without for with_it, without in zip(scaled, pre))
    return Finding(
        measured=f"removing a block of the deeper half costs {100 * fmean(pre):.0f} % of what one of the first half "
        f"costs with pre-norm, {100 * fmean(scaled):.0f} % with scaled norms, {100 * fmean(post):.0f} % with post-norm",
        values=tuple(pre),
        verdict="confirmed" if idle and mended else "depends" if idle else "refuted",
        because="Here, too, deep pre-norm blocks do little and deep post-norm blocks more. That the growth is the "
        "cause is not borne out: damping it did not wake them, in this small model.",
    )


# -------------------------------------------------------------------------------------------------------------- details
def eps_factor(std: float, eps: float = 1e-6) -> tuple[float, float]:
    """Spread of a normalized token whose features had this spread: eps inside the root, eps added to the deviation."""
    return std / math.sqrt(std**2 + eps), std / (std + eps)


@experiment(
    "normalization.eps",
    claim="eps is a value added to the denominator.",
    source=Source(
        "PyTorch",
        "documentation of LayerNorm, Parameters",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LayerNorm.html",
    ),
    control="PyTorch's kernel itself, beside the formulas with eps in the root and outside; eps = 1e-6 throughout",
    threshold="confirmed if on a nearly constant token the kernel does what eps outside the root does, depends if it "
    "does not and both agree to 0.001 on a token of deviation 1, else refuted",
)
def eps() -> Finding:
    """The spread of the output of a nearly constant token, both ways and by PyTorch's kernel."""
    (inside, outside), (usual_in, usual_out) = eps_factor(1e-6), eps_factor(1.0)
    token = torch.linspace(-1, 1, 768, dtype=torch.float64)
    token = 1e-6 * token / token.std(correction=0)
    kernel = F.layer_norm(token, token.shape, eps=1e-6).std(correction=0).item()
    return Finding(
        measured=f"a token with deviation 0.000001 leaves PyTorch's LayerNorm with {kernel:.3f}: eps in the root gives "
        f"{inside:.3f}, outside {outside:.3f}; with deviation 1: {usual_in:.3f} and {usual_out:.3f}",
        values=(outside / inside,),
        verdict="confirmed"
        if abs(kernel - outside) < 0.01 * outside
        else "depends"
        if abs(usual_in - usual_out) < 1e-3
        else "refuted",
        because="It is added to the variance, under the root. For usual activations that is the same; for a token of "
        "nearly equal features, eps outside blows rounding noise up hundreds of times further.",
    )


class BatchNormOfText(nn.Module):
    """BatchNorm of each feature over all texts and positions, with its remembered means at inference."""

    def __init__(self, d_model: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
        return self.norm(x.transpose(1, 2)).transpose(1, 2)


def use_batch_norm(model: DecoderOnly) -> None:
    """Put BatchNorm in the place of every norm of a decoder."""
    for block in model.blocks:
        for name in ("norm1", "norm2"):
            block.add_module(name, BatchNormOfText(model.config.d_model))
    model.add_module("final_norm", BatchNormOfText(model.config.d_model))


def leak_between_texts(name: str, seed: int) -> float:
    """How far the first token of one text moves when the last token of another text is changed."""
    x = torch.randn(4, 8, 16, generator=torch.Generator().manual_seed(seed))  # (B, T, d_model)
    other = x.clone()
    other[3, 7] += 10
    before, after = (batch_or_layer_norm(name, each)[0, 0] for each in (x, other))
    return (after - before).abs().max().item()


@experiment(
    "normalization.batch",
    claim="Batch normalization is usually less effective than layer normalization on text.",
    source=Source(
        "Zhang et al. 2023",
        "Dive into Deep Learning, § 11.7 The Transformer Architecture",
        "https://d2l.ai/chapter_attention-mechanisms-and-transformers/transformer.html",
    ),
    control="all texts have one length, since varying length is the usual reason; model, batches and rate equal; "
    "judged with the remembered means",
    threshold="confirmed if the held-out loss with BatchNorm is more than 0.1 nats higher in every seed, refuted if it "
    "is lower in every seed, else depends",
    seeds=SEEDS,
)
def batch() -> Finding:
    """The same model with either norm; and whether one text's last token reaches another text's first, in training."""
    by_batch, by_layer = (
        [train_on_letters(seed, STEPS, prepare=prepare, n_layers=2)[1] for seed in SEEDS]
        for prepare in (use_batch_norm, None)
    )
    behind = [with_batch - with_layer for with_batch, with_layer in zip(by_batch, by_layer)]
    leaks = {name: [leak_between_texts(name, seed) for seed in SEEDS] for name in ("batch", "layer")}
    told = {name: "does" if min(moved) > 0.01 else "does not" for name, moved in leaks.items()}
    return Finding(
        measured=f"texts of one length: BatchNorm ends {fmean(behind):+.2f} nats per letter from LayerNorm's "
        f"{fmean(by_layer):.1f}; in training a later token {told['batch']} reach other texts with BatchNorm, "
        f"{told['layer']} with LayerNorm",
        values=tuple(behind),
        verdict="confirmed" if min(behind) > 0.1 else "refuted" if max(behind) < 0 else "depends",
        because="With one length BatchNorm trains about as well here. But while training it mixes texts and positions: "
        "its training loss is not that of a causal model.",
    )


def batch_or_layer_norm(name: str, x: Float[Tensor, "B T d_model"]) -> Float[Tensor, "B T d_model"]:
    """PyTorch's BatchNorm as in training, over all texts and positions, or LayerNorm, over the features."""
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
    """Time of RMSNorm divided by that of LayerNorm at each width, on this machine: "by hand" and "fused"."""
    ratios: dict[str, list[float]] = {"by hand": [], "fused": []}
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
        ratios["fused"].append(fused_rms / fused_layer)
    return ratios


def model_ratio(d_model: int = 512, T: int = 128, rounds: int = 60) -> float:
    """Time of a whole model of two blocks with RMSNorm divided by that with LayerNorm, forward, on this machine."""
    ids = torch.arange(T)[None]
    models = [
        DecoderOnly(TransformerConfig(T, d_model, n_heads=4, n_layers=2, max_seq_len=T, norm=norm))
        for norm in ("layer", "rms")
    ]
    with torch.no_grad():
        layer, rms = best_seconds([partial(model, ids) for model in models], rounds)
    return rms / layer


@experiment(
    "normalization.rms_speed",
    claim="RMSNorm reduces the running time by 7 to 64 % on different models.",
    source=ZHANG_SENNRICH(),
    control="the same tokens and widths, timed in turns; both norms written by hand, both as PyTorch's kernels, and a "
    "whole model with either",
    threshold="confirmed if all ratios of the times are at most 0.93, refuted if none is, else depends",
    timed=True,
)
def rms_speed() -> Finding:
    """Forward pass of 128 tokens, both norms written by hand and as PyTorch's kernels, at three widths; and a model."""
    ratios = compare_speed()
    whole = model_ratio()
    spans = ", ".join(f"{name} {min(values):.2f}–{max(values):.2f}" for name, values in ratios.items())
    everywhere = [*(ratio for values in ratios.values() for ratio in values), whole]
    return Finding(
        measured=f"time of RMSNorm / LayerNorm at widths {', '.join(map(str, WIDTHS))}: {spans}; a whole model "
        f"{whole:.2f}",
        values=tuple(everywhere),
        verdict="confirmed" if max(everywhere) <= 0.93 else "refuted" if min(everywhere) > 0.93 else "depends",
        because="RMSNorm does less arithmetic, which shows when both are written by hand. Between finished kernels the "
        "better written one wins, and a norm is a small part of a model.",
    )
