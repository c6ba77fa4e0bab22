"""Chapter 7: what normalization holds steady, what it does not, and what it costs."""

import math
import statistics
from collections.abc import Sequence
from functools import partial
from statistics import fmean

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from course_lib.blocks import TransformerBlock
from course_lib.claims.letters import train_on_letters
from course_lib.claims.registry import Finding, experiment
from course_lib.claims.timing import best_seconds
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.training import TrainingDiverged

SEEDS = (0, 1, 2)
STEPS = 150
DEPTH = 50
LETTERS_ALONE = 2.86  # nats per letter for whoever knows how frequent each letter is, and nothing else
INITIALIZATIONS = ("default", "xavier")


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


@experiment(
    "normalization.depth",
    claim="Without normalization, activations grow or shrink exponentially with depth.",
)
def depth() -> Finding:
    """Growth of the residual stream over 50 untrained blocks without any norm, for two initialisations."""
    growth = {}
    for initialization in INITIALIZATIONS:
        runs = [spread_by_depth(None, initialization=initialization, seed=seed) for seed in SEEDS]
        growth[initialization] = [run[-1] / run[0] for run in runs]
    mild, wild = (statistics.median(growth[initialization]) for initialization in INITIALIZATIONS)
    return Finding(
        measured=f"over {DEPTH} blocks: {mild:.0f} times with PyTorch's initialisation, {wild:.0e} times with Xavier's",
        values=tuple(growth["xavier"]),
        verdict="confirmed" if mild > 1e4 else "depends" if wild > 1e4 else "refuted",
        because="The growth per block is multiplied fifty times. How large it is depends on the initial weights: a "
        "little more per block makes a gulf.",
    )


@experiment("normalization.any_depth", claim="LayerNorm keeps the activations at one size at any depth.")
def any_depth() -> Finding:
    """Spread of the stream after 50 blocks with pre-norm and with post-norm, Xavier initialisation."""
    pre, post = (
        [spread_by_depth(norm, initialization="xavier", seed=seed)[-1] for seed in SEEDS] for norm in ("pre", "post")
    )
    return Finding(
        measured=f"standard deviation after {DEPTH} blocks: {fmean(post):.1f} with post-norm, about {fmean(pre):.0f} "
        "with pre-norm",
        values=tuple(pre),
        verdict="confirmed" if max(pre) < 1.5 else "depends" if max(post) < 1.5 else "refuted",
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


@experiment("normalization.needed", claim="Without normalization a Transformer cannot be trained.")
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


@experiment("normalization.rms_quality", claim="RMSNorm trains as well as LayerNorm.")
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


# -------------------------------------------------------------------------------------------------------------- details
def eps_factor(std: float, eps: float = 1e-6) -> tuple[float, float]:
    """Spread of a normalized token whose features had this spread: eps inside the root, eps added to the deviation."""
    return std / math.sqrt(std**2 + eps), std / (std + eps)


@experiment("normalization.eps", claim="It does not matter whether eps stands inside the root or outside.")
def eps() -> Finding:
    """The spread of the output of a nearly constant token, both ways."""
    (inside, outside), (usual_in, usual_out) = eps_factor(1e-6), eps_factor(1.0)
    return Finding(
        measured=f"for a token with deviation 1: {usual_in:.3f} and {usual_out:.3f}; with deviation 0.000001: "
        f"{inside:.3f} and {outside:.3f}",
        values=(outside / inside,),
        verdict="confirmed" if outside / inside < 1.1 else "depends" if abs(usual_in - usual_out) < 1e-3 else "refuted",
        because="For usual activations the two agree. For a token of nearly equal features, eps outside blows rounding "
        "noise up hundreds of times further.",
    )


@experiment("normalization.batch", claim="BatchNorm would do as well as LayerNorm, if all texts had one length.")
def batch() -> Finding:
    """How far the first token of one text moves when the last token of another text is changed; lengths are equal."""
    moved = {}
    for seed in SEEDS:
        x = torch.randn(4, 8, 16, generator=torch.Generator().manual_seed(seed))  # (B, T, d_model)
        other = x.clone()
        other[3, 7] += 10
        for name in ("batch", "layer"):
            before, after = (batch_or_layer_norm(name, each)[0, 0] for each in (x, other))
            moved[name, seed] = (after - before).abs().max().item()
    by_batch, by_layer = ([moved[name, seed] for seed in SEEDS] for name in ("batch", "layer"))
    return Finding(
        measured=f"a change in one text moves another text's first token: "
        f"{'yes' if min(by_batch) > 0.01 else 'no'} with BatchNorm, {'yes' if max(by_layer) > 0 else 'no'} with "
        "LayerNorm",
        values=tuple(by_batch),
        verdict="refuted" if min(by_batch) > 0.01 and max(by_layer) == 0 else "confirmed",
        because="BatchNorm mixes texts and positions while training: later tokens leak into earlier ones, and a text's "
        "result depends on its company. Different lengths are the smaller trouble.",
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


@experiment("normalization.rms_speed", claim="RMSNorm is 10–15 % faster than LayerNorm.", timed=True)
def rms_speed() -> Finding:
    """Forward pass of 128 tokens, both norms written by hand and as PyTorch's kernels, at three widths."""
    ratios = compare_speed()
    spans = ", ".join(f"{name} {min(values):.2f}–{max(values):.2f}" for name, values in ratios.items())
    everywhere = [ratio for values in ratios.values() for ratio in values]
    return Finding(
        measured=f"time of RMSNorm / LayerNorm at widths {', '.join(map(str, WIDTHS))}: {spans}",
        values=tuple(everywhere),
        verdict="confirmed" if max(everywhere) < 0.95 else "refuted" if min(everywhere) > 0.95 else "depends",
        because="RMSNorm does less arithmetic, which shows when both are written by hand. Between finished kernels the "
        "better written one wins, and that need not be RMSNorm's.",
    )
