"""Chapter 8 measured: skips and gradients, the two places of the norm, warm-up, depth."""

import math
import statistics
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor, nn

from course_lib.blocks import TransformerBlock
from course_lib.claims.registry import Finding, experiment
from course_lib.claims.short_runs import BATCH, T, final, tinytown_ids
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.tinytown import Batches, WordTokenizer
from course_lib.training import TrainingDiverged, train

SEEDS = (0, 1, 2)
STEPS = 120  # of a small training run
DEPTH, DIM = 50, 64  # the stack of the course notes
ARRANGEMENTS = ("pre-norm", "post-norm", "no norm", "no residual")


# ------------------------------------------------------------------------------------------------- a stack of one layer
def tanh_gradients(
    depth: int, skip: bool, gain: float = 1.0, scale: float = 1.0, seed: int = 0, dim: int = DIM
) -> list[float]:
    """Norm of the gradient at the input of each layer, first layer first; the loss is the sum of the last output.

    A layer is scale · tanh(gain · (W x + b)), with x added to it if skip; W and b as `nn.Linear` starts them.
    """
    rng = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(dim)
    x = torch.randn(1, dim, generator=rng, requires_grad=True)
    inputs = [x]
    for _ in range(depth):
        weight = (2 * torch.rand(dim, dim, generator=rng) - 1) * bound
        bias = (2 * torch.rand(dim, generator=rng) - 1) * bound
        branch = scale * torch.tanh(gain * (x @ weight.T + bias))  # (1, dim)
        x = x + branch if skip else branch
        inputs.append(x)
    gradients = torch.autograd.grad(x.sum(), inputs[:-1])
    return [gradient.double().norm().item() for gradient in gradients]


@experiment("blocks.vanishing", claim="Without skips, next to no gradient reaches the first of fifty layers.")
def vanishing() -> Finding:
    reached = tuple(tanh_gradients(DEPTH, skip=False, seed=seed)[0] for seed in range(20))
    left = statistics.median(reached) / math.sqrt(DIM)  # the gradient at the loss: a 1 for each feature
    return Finding(
        f"of a gradient of {math.sqrt(DIM):.0f}, about {_order(statistics.median(reached))} reaches the input",
        reached,
        "confirmed" if left < 1e-6 else "depends" if left < 0.1 else "refuted",
        "Every layer passes on a fraction of what reaches it, and fifty fractions are multiplied.",
    )


@experiment("blocks.unchanged", claim="With skips the gradient reaches the first layer unchanged.")
def unchanged() -> Finding:
    factors = tuple(tanh_gradients(DEPTH, skip=True, seed=seed)[0] / math.sqrt(DIM) for seed in range(20))
    middle = statistics.median(factors)
    return Finding(
        f"it arrives about {10 * round(middle / 10)} times as large (median of 20 stacks)",
        factors,
        "confirmed" if 0.9 < middle < 1.1 else "depends" if 0.5 < middle < 2 else "refuted",
        "The skip adds the gradient of the branches to the one that passes by: it arrives, but not as it left.",
    )


@experiment("blocks.guarantee", claim="The 1 in 1 + F′ guarantees that a gradient flows.")
def guarantee() -> Finding:
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    reached = []
    for factor in (0.0, 1.0, -0.5, -1.0):  # F(x) = factor · x
        (gradient,) = torch.autograd.grad((x + factor * x).sum(), x)
        reached.append(gradient.abs().max().item())
    return Finding(
        f"with F(x) = −x the gradient is {reached[-1]:g}",
        tuple(reached),
        "refuted" if min(reached) == 0 else "confirmed",
        "F′ can be −1. The 1 makes a lost gradient unlikely while branches are small; it does not exclude it.",
    )


@experiment("blocks.nesting", claim="A residual network computes x + F3(x + F2(x + F1(x))).")
def nesting() -> Finding:
    distances = []
    for seed in SEEDS:
        rng = torch.Generator().manual_seed(seed)
        weights = [torch.randn(8, 8, generator=rng) / 8**0.5 for _ in range(3)]
        x = torch.randn(8, generator=rng)
        stream = x
        for weight in weights:
            stream = stream + torch.tanh(weight @ stream)
        nested = x
        for weight in weights:
            nested = x + torch.tanh(weight @ nested)
        distances.append(((nested - stream).norm() / stream.norm()).item())
    return Finding(
        f"the two differ by at least {math.floor(10 * min(distances)) * 10} % of the right result",
        tuple(distances),
        "confirmed" if max(distances) < 1e-5 else "refuted",
        "That formula adds the first input at every level. A layer adds to what the layer before handed on.",
    )


# ----------------------------------------------------------------------------------------------- untrained real blocks
@dataclass(frozen=True)
class StackProfile:
    """Untrained blocks, one entry per block: std of the stream behind it, norm of the loss's gradient there, and norm
    of the gradient at the first matrix of its feed-forward. cosine: mean over pairs of tokens, behind the last block.
    """

    std: list[float]
    stream_gradient: list[float]
    weight_gradient: list[float]
    cosine: float


def rearrange(model: DecoderOnly, arrangement: str) -> DecoderOnly:
    """The same blocks without norms ("no norm"), or without x + ("no residual"); otherwise as they are."""
    for block in model.blocks:
        if arrangement == "no norm":
            block.norm1, block.norm2 = nn.Identity(), nn.Identity()
        elif arrangement == "no residual":
            block.forward = partial(without_residual, block)  # type: ignore[method-assign]  # of this block alone
    return model


def without_residual(block: TransformerBlock, x: Tensor, mask=None, context_cache=None, **who) -> Tensor:
    """Return what a pre-norm decoder block makes of x if a branch's answer takes the place of the stream."""
    x = block.attention(block.norm1(x), mask=mask, is_causal=block.is_causal, **who)
    return block.feed_forward(block.norm2(x))


def xavier(model: DecoderOnly, gain: float = 1.0) -> DecoderOnly:
    """Start the matrices of the blocks as the original Transformer's code did (Glorot & Bengio 2010), times `gain`."""
    for module in nn.ModuleList(model.blocks).modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain)
    return model


def small_model(arrangement: str, n_layers: int, vocab_size: int) -> DecoderOnly:
    """A decoder of width 32 with RoPE, two heads, in one of the ARRANGEMENTS."""
    config = TransformerConfig(
        vocab_size=vocab_size, d_model=32, n_heads=2, n_layers=n_layers, max_seq_len=T, positions="rope",
        norm_position="post" if arrangement == "post-norm" else "pre",
    )  # fmt: skip
    return rearrange(DecoderOnly(config), arrangement)


def stack_profile(
    arrangement: str, depth: int, gain: float = 1.0, seed: int = 0, start: str = "xavier"
) -> StackProfile:
    """Sizes in an untrained stack, on tokens and targets drawn at random.

    arrangement: one of ARRANGEMENTS. start: "xavier", times gain, or "gpt2" (see `gpt.initialize`). The token
    vectors have variance 1, so that the stream starts at 1.
    """
    torch.manual_seed(seed)
    model = small_model(arrangement, depth, vocab_size=64)
    if start == "xavier":
        xavier(model, gain)
    nn.init.normal_(model.token_embedding.weight)
    model.output.weight = nn.Parameter(0.02 * torch.randn(64, 32))
    ids, targets = torch.randint(64, (2, 4, T)).unbind()
    streams: list[Tensor] = []
    for block in model.blocks:
        block.register_forward_hook(lambda _module, _inputs, output: streams.append(output))
    _, loss = model(ids, targets)
    matrices = [block.feed_forward.up_proj.weight for block in model.blocks]
    gradients = torch.autograd.grad(loss, [*streams, *matrices])
    norms = [gradient.double().norm().item() for gradient in gradients]
    unit = nn.functional.normalize(streams[-1].detach().double(), dim=-1)  # (B, T, d_model)
    cosine = (unit @ unit.transpose(1, 2))[:, *torch.triu_indices(T, T, offset=1)].mean().item()
    return StackProfile([stream.double().std().item() for stream in streams], norms[:depth], norms[depth:], cosine)


@experiment("blocks.post_norm_gradient", claim="Before training, post-norm starves the first blocks of gradient.")
def post_norm_gradient() -> Finding:
    profiles = [stack_profile("post-norm", 6, seed=seed) for seed in SEEDS]
    ratios = tuple(profile.weight_gradient[0] / profile.weight_gradient[-1] for profile in profiles)
    middle = statistics.median(ratios)
    return Finding(
        f"six blocks, Xavier start: the first gets {_about(middle)} times the gradient of the last",
        ratios,
        "confirmed" if middle < 0.1 else "depends" if middle < 0.5 else "refuted",
        "At this depth the first block gets about as much as the last. The trouble of post-norm lies elsewhere.",
    )


@experiment("blocks.why_residual", claim="Without residuals a Transformer fails because its gradients vanish.")
def why_residual() -> Finding:
    without, with_it = (
        [stack_profile(arrangement, 8, seed=seed, start="gpt2") for seed in SEEDS]
        for arrangement in ("no residual", "pre-norm")
    )
    ratios = tuple(a.weight_gradient[0] / b.weight_gradient[0] for a, b in zip(without, with_it))
    cosine = min(profile.cosine for profile in without)
    return Finding(
        f"8 blocks: the first gets more gradient without residuals than with; any two tokens have cosine {cosine:.2f}"
        if min(ratios) > 1
        else f"8 blocks: without residuals the first gets {_about(min(ratios))} times the gradient",
        ratios,
        "refuted" if min(ratios) > 1 else "depends" if min(ratios) > 0.1 else "confirmed",
        "Gradient is there. But attention has averaged all tokens into one vector, so nothing tells them apart.",
    )


# ------------------------------------------------------------------------------------------------------ small trainings
def frequency_loss() -> float:
    """Nats per token of a model that knows how frequent each word is, and nothing else: the unigram entropy."""
    shares = tinytown_ids().bincount() / len(tinytown_ids())
    return -torch.xlogy(shares, shares).sum().item()


@cache
def training_losses(
    arrangement: str, n_layers: int, peak: float, warmup: int, start: str = "gpt2", seed: int = 0, steps: int = STEPS
) -> tuple[float, ...]:
    """Loss of every step of one small run on Tinytown. start: "gpt2" (see `gpt.initialize`) or "xavier"."""
    tokenizer = WordTokenizer()
    torch.manual_seed(seed)
    model = small_model(arrangement, n_layers, len(tokenizer))
    if start == "xavier":
        xavier(model)
    rng = torch.Generator().manual_seed(seed)
    batches = Batches(tinytown_ids(), BATCH, T, rng, start_id=tokenizer.bos_id)
    try:
        return tuple(train(model, batches, steps, peak, warmup, progress=False).losses)
    except TrainingDiverged:
        return (math.inf,) * steps


def _finals(arrangement: str, n_layers: int, peak: float, warmup: int, start: str) -> list[float]:
    """The final loss of one run for each seed."""
    runs = [training_losses(arrangement, n_layers, peak, warmup, start, seed, STEPS) for seed in SEEDS]
    return [final(losses) for losses in runs]


def learned(loss: float) -> bool:
    """Has the model learnt more than how frequent each word is? Half a nat less says yes, whatever the batch."""
    return loss < frequency_loss() - 0.5


@experiment("blocks.no_residual", claim="Without residual connections a deep Transformer does not learn.")
def no_residual() -> Finding:
    loss = {name: _finals(name, 8, 3e-3, STEPS // 6, "gpt2") for name in ("pre-norm", "no residual")}
    stuck = not any(map(learned, loss["no residual"]))
    helped = all(map(learned, loss["pre-norm"]))
    words = statistics.fmean(loss["no residual"]), statistics.fmean(loss["pre-norm"]), frequency_loss()
    return Finding(
        "8 blocks, {} steps: loss about {} without, {} with; word frequencies alone {}".format(
            STEPS, *map(_half, words)
        ),
        tuple(loss["no residual"]),
        "confirmed" if stuck and helped else "depends" if helped else "refuted",
        "Without x + the eight blocks learn how frequent words are and nothing more; the same blocks with it learn on.",
    )


@experiment("blocks.warmup", claim="Post-norm needs a warm-up of the learning rate.")
def warmup() -> Finding:
    """Post-norm cold, with a warm-up, and with small weights; the control is pre-norm, treated in the same ways."""
    settings = [("xavier", 0), ("xavier", STEPS // 2), ("gpt2", 0)]
    post, pre = (
        [_finals(arrangement, 6, 1e-2, steps, start) for start, steps in settings]
        for arrangement in ("post-norm", "pre-norm")
    )
    cold, warm, small = post
    need, cure, spared = not any(map(learned, cold)), all(map(learned, warm)), all(map(learned, small))
    its_own = all(map(learned, pre[0]))  # pre-norm learns without a warm-up: the need is post-norm's
    return Finding(
        "6 blocks: Xavier start {:.1f} without and {:.1f} with warm-up; GPT-2's small start {:.1f} without "
        "(pre-norm, treated alike: {:.1f}, {:.1f}, {:.1f})".format(*map(statistics.fmean, [*post, *pre])),
        tuple(cold),
        "refuted" if not need else "confirmed" if cure and its_own and not spared else "depends",
        "With the large weights of Xavier's start it needs the warm-up; with GPT-2's small ones it does without, at "
        "this rate.",
    )


@experiment("blocks.large_rates", claim="Pre-norm bears larger learning rates than post-norm.")
def large_rates() -> Finding:
    """At a peak rate of 0.02, both orders are given the same help: none, a warm-up, small initial weights, and both."""
    settings = [(start, steps) for start in ("xavier", "gpt2") for steps in (0, STEPS // 2)]
    pre, post = (
        [sum(map(learned, _finals(arrangement, 6, 2e-2, steps, start))) for start, steps in settings]
        for arrangement in ("pre-norm", "post-norm")
    )
    ahead = sum(one > other for one, other in zip(pre, post))
    whole = [sum(runs == len(SEEDS) for runs in each) for each in (pre, post)]  # settings in which every run learns
    return Finding(
        f"rate 0.02, with and without warm-up, Xavier's and small weights: pre-norm learns with every seed in "
        f"{whole[0]} of {len(settings)} settings, post-norm in {whole[1]}",
        tuple(map(float, whole)),
        "confirmed" if ahead == len(settings) else "depends" if ahead else "refuted",
        "With large weights, or without a warm-up, such steps throw post-norm off; with small weights and a warm-up it "
        "learns as pre-norm does.",
    )


def _about(number: float) -> str:
    """Rounded so far that another machine says the same."""
    return f"{number:.0f}" if number >= 2 else f"{number:.1f}"


def _half(number: float) -> str:
    """To the nearest half: what a short training run says on every machine."""
    return f"{round(2 * number) / 2:g}"


def _order(number: float) -> str:
    return f"10^{math.floor(math.log10(number))}"
