"""Chapter 8 measured: skips and gradients, the two places of the norm, warm-up, depth."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product

import torch
from torch import Tensor, nn

from course_lib.blocks import TransformerBlock
from course_lib.claims.registry import Finding, Source, experiment
from course_lib.claims.short_runs import BATCH, T, final, tinytown_ids
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderDecoder
from course_lib.gpt import DecoderOnly
from course_lib.tinytown import Batches, WordTokenizer
from course_lib.training import TrainingDiverged, train

SEEDS = (0, 1, 2)
STEPS = 120  # of a small training run
STACKS = tuple(range(20))  # seeds of the stacks of one layer: they cost next to nothing
DEPTH, DIM = 50, 64  # a stack of one layer
ARRANGEMENTS = ("pre-norm", "post-norm", "no norm", "no residual")
PARTS = ("q_proj", "k_proj", "v_proj", "up_proj")  # matrices of a block whose gradients are compared
HELPS = {  # what may help a training run with large steps: (initial weights, steps of warm-up)
    "no help": ("xavier", 0),
    "warm-up": ("xavier", STEPS // 2),
    "small weights": ("gpt2", 0),
    "both": ("gpt2", STEPS // 2),
}

XIONG = "On Layer Normalization in the Transformer Architecture"


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


@experiment(
    "blocks.vanishing",
    claim="Without skips the gradient fades on its way to the first layers, whatever the initial weights.",
    source=Source(
        "Deep Learning Notes",
        "Skip connections",
        "https://deeplearningnotes-site.pages.dev/deep-nns/vanishing-gradient/skip-connections",
    ),
    control="the same 20 stacks of 50 tanh layers with their weights 1, √3 (Xavier) and 2.4 times as large",
    threshold="faded: less than 1/10 arrives (median); confirmed if faded at all three sizes, depends if at some, "
    "refuted if at none",
    seeds=STACKS,
)
def vanishing() -> Finding:
    arrived = {
        gain: tuple(tanh_gradients(DEPTH, skip=False, gain=gain, seed=seed)[0] for seed in STACKS)
        for gain in (1.0, math.sqrt(3), 2.4)
    }
    size = math.sqrt(DIM)  # of the gradient at the loss: a 1 for each feature
    default, xaviers, tuned = (statistics.median(each) for each in arrived.values())
    faded = [middle < 0.1 * size for middle in (default, xaviers, tuned)]
    return Finding(
        f"of a gradient of {size:.0f}, the input gets about {_order(default)} with the weights of nn.Linear, "
        f"{_order(xaviers)} with Xavier's, √3 times as large, and {tuned:.0f} if they are 2.4 times as large",
        arrived[1.0],
        "confirmed" if all(faded) else "depends" if any(faded) else "refuted",
        "Fifty factors are multiplied, so a little below 1 vanishes and a little above explodes: weights can be tuned "
        "between the two, but in a narrow range.",
    )


@experiment(
    "blocks.unchanged",
    claim="Gradients flow through residual connections almost unchanged.",
    source=Source("Cruxible", "Residual connections", "https://www.cruxible.dev/learn/ml42-residual-connections"),
    control="the same 20 stacks of 50 layers with each branch divided by √50, as GPT-2 divides its own, and as it is",
    threshold="unchanged: 0.8 to 1.25 times as large at the first layer as at the last (median); confirmed if so with "
    "either size of the branches, depends if with one, refuted if with neither",
    seeds=STACKS,
)
def unchanged() -> Finding:
    factors, held = (
        tuple(tanh_gradients(DEPTH, skip=True, scale=scale, seed=seed)[0] / math.sqrt(DIM) for seed in STACKS)
        for scale in (1.0, 1 / math.sqrt(DEPTH))
    )
    whole, divided = statistics.median(factors), statistics.median(held)
    same = [0.8 < middle < 1.25 for middle in (whole, divided)]
    return Finding(
        f"it arrives about {10 * round(whole / 10)} times as large; with branches divided by √50, {divided:.1f} times",
        factors,
        "confirmed" if all(same) else "depends" if any(same) else "refuted",
        "The skip adds the gradient of the branch to the one that passes by. Only where branches are small does it "
        "arrive as it left.",
    )


@experiment(
    "blocks.guarantee",
    claim="With a skip the factor is 1 + F′, so the gradient cannot collapse to zero.",
    source=Source(
        "Interactive Primer",
        "Residual connections",
        "https://interactiveprimer.com/concepts/computer-science/deep-learning/training-deep-networks/"
        "residual-connections.html",
    ),
    control="the same x and loss with the branches F(x) = 0, x and −x/2",
    threshold="refuted if one branch leaves a gradient of 0, else confirmed",
    seeds=(),
)
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
        "F′ can be −1. He et al. 2016 say “unlikely”, for a whole batch of samples, and that is all the 1 gives.",
    )


# ----------------------------------------------------------------------------------------------- untrained real blocks
@dataclass(frozen=True)
class StackProfile:
    """Untrained blocks, one entry per block: std of the stream after it, norm of the loss's gradient there, and norm
    of the gradient at each of its PARTS. cosine: mean over pairs of tokens, after the last block.
    """

    std: list[float]
    stream_gradient: list[float]
    part_gradients: dict[str, list[float]]
    cosine: float

    @property
    def weight_gradient(self) -> list[float]:
        """Norm of the gradient at the first matrix of each block's feed-forward network."""
        return self.part_gradients["up_proj"]


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


def xavier(blocks: Iterable[TransformerBlock], gain: float = 1.0) -> None:
    """Start the matrices of the blocks as the original Transformer's code did (Glorot & Bengio 2010), times `gain`."""
    for module in nn.ModuleList(blocks).modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain)


def own_token_first(blocks: Iterable[TransformerBlock]) -> None:
    """Start every attention so that each token attends to itself above all, and passes on a rotation of itself.

    W_Q = W_K = 2 · I make a token's score with itself about 16, and the others about 0 ± 4. Source: the idea is that of
    He et al. 2023, "Deep Transformers without Shortcuts"; these matrices are ours.
    """
    with torch.no_grad():
        for block in blocks:
            for projection in (block.attention.q_proj, block.attention.k_proj):
                projection.weight.copy_(2 * torch.eye(len(projection.weight)))
            for projection in (block.attention.v_proj, block.attention.out_proj):
                nn.init.orthogonal_(projection.weight)


def start_with(model: DecoderOnly, start: str, gain: float = 1.0) -> None:
    """Draw the weights of the blocks anew: "gpt2" leaves them (see `gpt.initialize`), "xavier", times gain, or "own
    token": Xavier's, with `own_token_first`."""
    if start != "gpt2":
        xavier(model.blocks, gain)
    if start == "own token":
        own_token_first(model.blocks)


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

    arrangement: one of ARRANGEMENTS. start, gain: as in `start_with`. The token vectors have variance 1, so that the
    stream starts at 1.
    """
    torch.manual_seed(seed)
    model = small_model(arrangement, depth, vocab_size=64)
    start_with(model, start, gain)
    nn.init.normal_(model.token_embedding.weight)
    model.output.weight = nn.Parameter(0.02 * torch.randn(64, 32))
    ids, targets = torch.randint(64, (2, 4, T)).unbind()
    streams: list[Tensor] = []
    for block in model.blocks:
        block.register_forward_hook(lambda _module, _inputs, output: streams.append(output))
    _, loss = model(ids, targets)
    matrices = [
        (block.feed_forward if part == "up_proj" else block.attention).get_parameter(f"{part}.weight")
        for part in PARTS
        for block in model.blocks
    ]
    gradients = torch.autograd.grad(loss, [*streams, *matrices])
    norms = [gradient.double().norm().item() for gradient in gradients]
    of_parts = {part: norms[depth * i : depth * (i + 1)] for i, part in enumerate(PARTS, start=1)}
    unit = nn.functional.normalize(streams[-1].detach().double(), dim=-1)  # (B, T, d_model)
    cosine = (unit @ unit.transpose(1, 2))[:, *torch.triu_indices(T, T, offset=1)].mean().item()
    return StackProfile([stream.double().std().item() for stream in streams], norms[:depth], of_parts, cosine)


def beside_an_encoder(order: str, depth: int, seed: int = 0) -> list[float]:
    """Return, for each block of an untrained decoder beside an encoder of the same depth, the norm of the gradient at
    the first matrix of its feed-forward network; the rest as in `stack_profile`. order: "pre" or "post"."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=64, d_model=32, n_heads=2, n_layers=depth, max_seq_len=T, norm_position=order,
        positions="sinusoidal", family="encoder-decoder",
    )  # fmt: skip
    model = EncoderDecoder(config)
    xavier([*model.encoder.blocks, *model.decoder.blocks])
    nn.init.normal_(model.encoder.token_embedding.weight)
    model.output.weight = nn.Parameter(0.02 * torch.randn(64, 32))
    source_ids, target_ids, targets = torch.randint(64, (3, 4, T)).unbind()
    _, loss = model(source_ids, target_ids, targets=targets)
    matrices = [block.feed_forward.up_proj.weight for block in model.decoder.blocks]
    return [gradient.double().norm().item() for gradient in torch.autograd.grad(loss, matrices)]


@experiment(
    "blocks.post_norm_gradient",
    claim="The norms of post-norm make the gradients of the first blocks vanish; pre-norm prevents it.",
    source=Source(
        "Takase et al. 2022",
        "B2T Connection: Serving Stability and Performance in Deep Transformers, abstract",
        "https://arxiv.org/abs/2206.00330",
    ),
    control="the same stacks of 18 blocks, tokens and seeds in pre-norm; a decoder alone and one beside an encoder",
    threshold="vanished: the first block gets less than 1/10 of the last one's gradient (median); confirmed if so in "
    "post-norm, and not in pre-norm, for both kinds of decoder; depends if for one; refuted if for none",
    seeds=SEEDS,
)
def post_norm_gradient() -> Finding:
    """First block's gradient over the last one's, at the first matrix of the feed-forward network, before training."""
    alone, beside = {}, {}
    for order in ("post", "pre"):
        stacks = [stack_profile(f"{order}-norm", 18, seed=seed).weight_gradient for seed in SEEDS]
        decoders = [beside_an_encoder(order, 18, seed) for seed in SEEDS]
        alone[order], beside[order] = (tuple(each[0] / each[-1] for each in kind) for kind in (stacks, decoders))
    middles = [{order: statistics.median(kind[order]) for order in kind} for kind in (alone, beside)]
    vanished = [kind["post"] < 0.1 <= kind["pre"] for kind in middles]
    return Finding(
        "18 blocks, gradient of the first over that of the last: {:.1g} in a decoder alone, {:.1g} in one beside an "
        "encoder (in pre-norm: {:.1g}, {:.1g})".format(*(kind[order] for order in ("post", "pre") for kind in middles)),
        alone["post"] + beside["post"],
        "confirmed" if all(vanished) else "depends" if any(vanished) else "refuted",
        "A decoder that reads an encoder loses its gradient in post-norm, the one the paper looks at; a stack of "
        "self-attention and feed-forward alone does not.",
    )


@experiment(
    "blocks.why_residual",
    claim="A Transformer needs residual connections because without them its gradients vanish.",
    source=Source(
        "Wikipedia",
        "Transformer (deep learning), § Sublayers",
        "https://en.wikipedia.org/wiki/Transformer_(deep_learning)",
    ),
    control="the same stacks of 8 and 24 blocks with residuals; and without, but each attention on its own token at "
    "first",
    threshold="vanished: under 1/5 of the gradient with residuals (median of blocks and seeds) at 8 and at 24 blocks; "
    "confirmed if so for queries, keys, values and the feed-forward network, depends if for some, refuted if for none",
    seeds=SEEDS,
)
def why_residual() -> Finding:
    """Gradient of four matrices of each block without residuals, over that with them, before training."""
    ratios: dict[str, list[float]] = {part: [] for part in PARTS}
    cosines = []
    for depth in (8, 24):
        without, with_it = (
            [stack_profile(arrangement, depth, seed=seed) for seed in SEEDS]
            for arrangement in ("no residual", "pre-norm")
        )
        for part in PARTS:
            pairs = [
                pair for a, b in zip(without, with_it) for pair in zip(a.part_gradients[part], b.part_gradients[part])
            ]
            ratios[part].append(statistics.median(lone / joined for lone, joined in pairs))
        cosines.append(statistics.fmean(each.cosine for each in without))
    apart = statistics.fmean(stack_profile("no residual", 8, seed=seed, start="own token").cosine for seed in SEEDS)
    vanished = [max(both) < 0.2 for both in ratios.values()]
    names = zip(("queries", "keys", "values", "feed-forward"), ratios.values())
    return Finding(
        "gradient without residuals over with, 8 and 24 blocks: "
        + ", ".join(f"{name} {' and '.join(map(_short, both))}" for name, both in names)
        + f"; cosine of two tokens after 8 {cosines[0]:.2f}, {apart:.1f} if attention starts on its own token",
        tuple(ratio for both in ratios.values() for ratio in both),
        "confirmed" if all(vanished) else "depends" if any(vanished) else "refuted",
        "Values and the feed-forward network get more gradient, not less. But the tokens have become alike, so it no "
        "longer matters where a query looks: queries and keys lose theirs (Noci et al. 2022).",
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
    """Loss of every step of one small run on Tinytown. start: as in `start_with`."""
    tokenizer = WordTokenizer()
    torch.manual_seed(seed)
    model = small_model(arrangement, n_layers, len(tokenizer))
    start_with(model, start)
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


@experiment(
    "blocks.no_residual",
    claim="Without residual connections a Transformer of several layers is very hard to train.",
    source=Source(
        "AI Niketan",
        "Dictionary: residual connection",
        "https://www.ainiketan.in/dictionary/residual-connection/",
    ),
    control="the same 8 blocks, batches and steps with residuals; and without, but each attention on its own token at "
    "first",
    threshold="learnt: half a nat below word frequencies; confirmed if runs without residuals learn with neither start "
    "and runs with them do, depends if with one start, refuted if with both",
    seeds=SEEDS,
)
def no_residual() -> Finding:
    with_it, stuck, own_token = (
        _finals(arrangement, 8, 3e-3, STEPS // 6, start)
        for arrangement, start in (("pre-norm", "xavier"), ("no residual", "xavier"), ("no residual", "own token"))
    )
    learn = [all(map(learned, losses)) for losses in (stuck, own_token)]
    words = map(_half, map(statistics.fmean, (stuck, with_it, own_token)))
    return Finding(
        "8 blocks, {} steps: loss about {} without, {} with, {} without but with attention that starts on its own "
        "token; word frequencies alone {}".format(STEPS, *words, _half(frequency_loss())),
        (*stuck, *with_it, *own_token),
        "refuted" if all(learn) else "depends" if any(learn) else "confirmed",
        "Without x + the eight blocks learn how frequent words are and nothing more, unless the initial weights carry "
        "each token's own vector through the attention (He et al. 2023 train deep ones so).",
    )


def order_and_help(peak: float) -> dict[tuple[str, str], list[float]]:
    """Final losses of six blocks, one for each seed: (order, help) -> losses. Each of HELPS is given to both orders."""
    return {
        (order, help): _finals(order, 6, peak, HELPS[help][1], HELPS[help][0])
        for order, help in product(("pre-norm", "post-norm"), HELPS)
    }


@experiment(
    "blocks.warmup",
    claim="A warm-up of the learning rate is essential for post-norm; pre-norm can do without.",
    source=Source("Xiong et al. 2020", f"{XIONG}, abstract", "https://arxiv.org/abs/2002.04745"),
    control="both orders with the same weights, batches and peak rate of 0.01, each with every help: none, a warm-up, "
    "small initial weights, both",
    threshold="confirmed if every run of post-norm is stuck without a warm-up, with large and with small weights, and "
    "learns with it, and every run of pre-norm learns without; refuted if post-norm is not stuck without; else depends",
    seeds=SEEDS,
)
def warmup() -> Finding:
    losses = order_and_help(1e-2)
    cold, warm, small, _ = (losses["post-norm", help] for help in HELPS)
    need, cure, spared = not any(map(learned, cold)), all(map(learned, warm)), all(map(learned, small))
    its_own = all(map(learned, losses["pre-norm", "no help"]))  # pre-norm does without: the need is post-norm's
    return Finding(
        "6 blocks, loss with no help, warm-up, small weights, both: post-norm {}; pre-norm {}".format(
            *(
                ", ".join(f"{statistics.fmean(losses[order, help]):.1f}" for help in HELPS)
                for order in ("post-norm", "pre-norm")
            )
        ),
        tuple(loss for each in losses.values() for loss in each),
        "refuted" if not need else "confirmed" if cure and its_own and not spared else "depends",
        "With the large weights of Xavier's initialisation post-norm needs the warm-up; with GPT-2's small ones it "
        "does without, at this rate.",
    )


@experiment(
    "blocks.large_rates",
    claim="Pre-norm and smaller initial weights allow large learning rates without warm-up.",
    source=Source(
        "Nguyen & Salazar 2019",
        "Transformers without Tears: Improving the Normalization of Self-Attention, abstract",
        "https://arxiv.org/abs/1910.05895",
    ),
    control="both orders with the same weights, batches and peak rate of 0.02, each with every help: none, a warm-up, "
    "small initial weights, both",
    threshold="confirmed if every run of pre-norm with small weights and no warm-up learns and some run of post-norm "
    "does not; depends if post-norm's learn as well; refuted if pre-norm's do not",
    seeds=SEEDS,
)
def large_rates() -> Finding:
    losses = order_and_help(2e-2)
    whole = {
        order: [help for help in HELPS if all(map(learned, losses[order, help]))] for order in ("pre-norm", "post-norm")
    }
    allowed, other = ("small weights" in whole[order] for order in ("pre-norm", "post-norm"))
    return Finding(
        f"rate 0.02: pre-norm learns with every seed in {len(whole['pre-norm'])} of {len(HELPS)} settings, post-norm "
        f"in {len(whole['post-norm'])} ({', '.join(whole['post-norm']) or 'none'})",
        tuple(loss for each in losses.values() for loss in each),
        "refuted" if not allowed else "depends" if other else "confirmed",
        "Pre-norm learns here even with large weights. Such steps throw post-norm off unless it has small weights and "
        "a warm-up together.",
    )


def _half(number: float) -> str:
    """To the nearest half: what a short training run says on every machine."""
    return f"{round(2 * number) / 2:g}"


def _short(number: float) -> str:
    """One digit, or a whole number."""
    return f"{number:.0f}" if number > 1 else f"{number:.1g}"


def _order(number: float) -> str:
    return f"10^{math.floor(math.log10(number))}"
