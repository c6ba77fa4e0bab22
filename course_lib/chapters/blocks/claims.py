"""Chapter 8's claims: residual connections and gradients, the position of the norm, warm-up, and depth."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import product

import torch
from torch import Tensor, nn

from course_lib.blocks import TransformerBlock
from course_lib.claims.rates import at_best_rate
from course_lib.claims.registry import Finding, Measurement, Size, Source, experiment
from course_lib.claims.short_runs import BATCH, T, final, tinytown_ids
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderDecoder
from course_lib.gpt import DecoderOnly
from course_lib.tinytown import Batches, WordTokenizer
from course_lib.training import TrainingDiverged, train

SEEDS = (0, 1, 2)
STEPS = 80  # updates of a small training run
STACKS = tuple(range(20))  # seeds of the stacks of one layer
DEPTH, DIM = 50, 64  # layers and features of such a stack
NARROW, N_NARROW = 4, 200  # features of a narrow stack, and the number of narrow stacks
ARRANGEMENTS = ("pre-norm", "post-norm", "no norm", "no residual")
PARTS = ("q_proj", "k_proj", "v_proj", "up_proj")  # matrices of a block whose gradients are compared
RATES = (0.0025, 0.005, 0.01, 0.04)  # peak learning rates in all settings; 0.005 suits post-norm with large weights
LOWER_RATES = (0.001, 0.004, 0.016)  # rates for eight blocks, some of them without residuals
NAMES = {"xavier": "large", "gpt2": "small"}  # initial weights, as in `start_with`, and our names for them
ORDERS_AND_STARTS = tuple(product(("post-norm", "pre-norm"), NAMES))
WARM_UPS = (0.0, 0.1, 0.5)  # fractions of the steps over which the rate rises
WITHOUT_WARM_UP = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)  # rates that we try without one


# ------------------------------------------------------------------------------------------------- a stack of one layer
def tanh_gradients(
    depth: int, skip: bool, gain: float = 1.0, scale: float = 1.0, seed: int = 0, dim: int = DIM
) -> list[float]:
    """Return the norm of the gradient at the input of each layer, first layer first. The loss is the sum of the last
    output.

    A layer is scale · tanh(gain · (W x + b)), and with `skip` x is added. W and b are initialized as in `nn.Linear`.
    We compute in float64, because fifty layers can make a rounding error of float32 large enough to be seen.
    """
    rng = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(dim)
    x = torch.randn(1, dim, generator=rng).double().requires_grad_()
    inputs = [x]
    for _ in range(depth):
        weight = (2 * torch.rand(dim, dim, generator=rng).double() - 1) * bound
        bias = (2 * torch.rand(dim, generator=rng).double() - 1) * bound
        branch = scale * torch.tanh(gain * (x @ weight.T + bias))  # (1, dim)
        x = x + branch if skip else branch
        inputs.append(x)
    gradients = torch.autograd.grad(x.sum(), inputs[:-1])
    return [gradient.norm().item() for gradient in gradients]


def arrives(gain: float, skip: bool, seeds: Sequence[int] = STACKS, scale: float = 1.0) -> tuple[float, ...]:
    """Return for each stack of 50 layers the gradient at its input, divided by the gradient at the loss. The latter is
    a 1 for each of 64 features, a vector of length √64."""
    return tuple(tanh_gradients(DEPTH, skip, gain, scale, seed)[0] / math.sqrt(DIM) for seed in seeds)


def vanishing_verdict(width: float) -> str:
    """Find the weights for which the gradient stays between a tenth and ten times its size (median of the stacks).

    confirmed: of the weights that keep the gradient within a factor of ten, the largest are at most twice the smallest
    depends: the largest are two to ten times the smallest
    refuted: the largest are over ten times the smallest
    """
    return "confirmed" if width <= 2 else "depends" if width <= 10 else "refuted"


@experiment(
    "blocks.vanishing",
    claim="Without skips the gradient of fifty layers is unstable: it vanishes or explodes for nearly all scales of "
    "the initial weights.",
    source=Source(
        "Nielsen 2015",
        "Neural Networks and Deep Learning",
        "https://neuralnetworksanddeeplearning.com/chap5.html",
        place="chapter 5, “The unstable gradient problem”",
        quote="the gradient in early layers is the product of terms from all the later layers. When there are many "
        "layers, that's an intrinsically unstable situation. The only way all layers can learn at close to the same "
        "speed is if all those products of terms come close to balancing out. Without some mechanism or underlying "
        "reason for that balancing to occur, it's highly unlikely to happen simply by chance.",
    ),
    control="the same 5 stacks of 50 tanh layers, with the weights that nn.Linear draws multiplied by 0.5 to 4",
    verdict=vanishing_verdict,
    seeds=STACKS[:5],
)
def vanishing() -> Measurement:
    gains = [0.5 * 1.2**step for step in range(12)]  # 0.5 to 3.7
    medians = {gain: statistics.median(arrives(gain, skip=False, seeds=STACKS[:5])) for gain in gains}
    balanced = [gain for gain, middle in medians.items() if 0.1 < middle < 10]
    width = max(balanced) / min(balanced) if balanced else 1.0
    default, xaviers = (statistics.median(arrives(gain, skip=False, seeds=STACKS[:5])) for gain in (1.0, math.sqrt(3)))
    return Measurement(
        measured=f"of twelve scales, from {gains[0]:.1f} to {gains[-1]:.1f} times the weights of nn.Linear, only "
        f"{' and '.join(f'{gain:.1f}' for gain in balanced)} keep the gradient within a factor of ten over fifty "
        "layers",
        rows=(
            ("scale of the weights", "a gradient of 1 reaches the input as"),
            ("those of nn.Linear", _order(default)),
            ("× √3 (Xavier’s)", _order(xaviers)),
            *((f"× {gain:.1f}", _short(medians[gain])) for gain in balanced),
            (f"× {gains[-1]:.1f}", _order(medians[gains[-1]])),
        ),
        values=tuple(medians.values()),
        figures={"width": width},
        because="A product of fifty equal factors stays between 0.1 and 10 only if each is between about 0.95 and "
        "1.05. Weights can be tuned for that, but only within a narrow range.",
    )


def unchanged_verdict(whole: float, divided: float) -> str:
    """Compare the gradient at the first layer with that at the last, with branches unscaled and divided by √50.

    confirmed: with either size of the branches, the gradient at the first layer is 0.8 to 1.25 times the gradient at
        the last (median)
    depends: with only one of the two sizes
    refuted: with neither size
    """
    same = [0.8 < factor < 1.25 for factor in (whole, divided)]
    return "confirmed" if all(same) else "depends" if any(same) else "refuted"


@experiment(
    "blocks.unchanged",
    claim="Gradients flow along the residual pathway uninterrupted, so they arrive unchanged.",
    source=Source(
        "Karpathy 2022",
        "Lex Fridman Podcast #333",
        "https://lexfridman.com/andrej-karpathy/",
        place="on the Transformer",
        quote="because of the residual pathway in the backward pass, the gradients sort of flow along it uninterrupted "
        "because addition distributes the gradient equally to all of its branches. So the gradient from the "
        "supervision at the top just floats directly to the first layer. And all the residual connections are arranged "
        "so that in the beginning during initialization, they contribute nothing to the residual pathway.",
    ),
    control="the same 20 stacks of 50 layers, once unscaled and once with each branch divided by √50, as in GPT-2",
    verdict=unchanged_verdict,
    seeds=STACKS,
)
def unchanged() -> Measurement:
    factors = arrives(1.0, skip=True)
    whole = statistics.median(factors)
    divided = statistics.median(arrives(1.0, skip=True, scale=1 / math.sqrt(DEPTH)))
    return Measurement(
        measured=f"the gradient arrives about {10 * round(whole / 10)} times as large, or {divided:.1f} times if each "
        "branch is divided by √50",
        values=factors,
        figures={"whole": whole, "divided": divided},
        because="It depends on the size of the branches. Each layer adds the branch’s gradient to the gradient on the "
        "residual path. So the gradient arrives nearly unchanged if every branch is small, here divided by about 7.",
    )


def two_matrix_gradients(gain: float, seed: int = 0, depth: int = DEPTH, dim: int = DIM) -> tuple[float, float]:
    """Return the gradients in a stack with skips at the input of the first layer, and at its W_1. The branch is W_2
    tanh(W_1 x), with both matrices initialized as in `nn.Linear`, times gain. The loss is the sum of the last
    output."""
    rng = torch.Generator().manual_seed(seed)
    bound = gain / math.sqrt(dim)
    x = torch.randn(1, dim, generator=rng, requires_grad=True)
    stream, first = x, []
    for _ in range(depth):
        inner, outer = ((2 * torch.rand(dim, dim, generator=rng) - 1) * bound for _ in range(2))
        first.append(inner.requires_grad_())
        stream = stream + torch.tanh(stream @ inner.T) @ outer.T  # (1, dim)
    at_input, at_weights = torch.autograd.grad(stream.sum(), [x, first[0]])
    return at_input.double().norm().item() / math.sqrt(dim), at_weights.double().norm().item()


def guarantee_verdict(at_input: float, narrow: float, at_weights: float) -> str:
    """Test untrained stacks of 50 layers with skips.

    at_input: the smallest fraction of the gradient that arrives at the input of any stack of 64 features.
    narrow: the fraction of the stacks of 4 features at whose input at least half of the gradient arrives.
    at_weights: the gradient at the first matrix of the first branch with weights × 0.001, divided by the same with
    usual weights.

    confirmed: at least half of the gradient arrives at the input of every stack, and over a tenth is left at the
        weights
    depends: only part of that is true; it depends on the width, and on whether the input or the weights are meant
    refuted: less than half of the gradient arrives at the input of a stack of 64 features
    """
    if at_input < 0.5:
        return "refuted"
    return "confirmed" if narrow == 1 and at_weights > 0.1 else "depends"


@experiment(
    "blocks.guarantee",
    claim="The gradient of a layer does not vanish even when the weights are arbitrarily small.",
    source=Source(
        "He et al. 2016",
        "Identity Mappings in Deep Residual Networks",
        "https://arxiv.org/abs/1603.05027",
        place="§ 2",
        quote="it is unlikely for the gradient … to be canceled out for a mini-batch, because in general the term … "
        "cannot be always -1 for all samples in a mini-batch. This implies that the gradient of a layer does not "
        "vanish even when the weights are arbitrarily small.",
    ),
    control="untrained stacks of 50 layers with skips. Stacks of 64 features have the weights of nn.Linear multiplied "
    "by 0.001, 0.1, 1 or 3; others have 4 features. We also measure the stacks without skips, and branches of two "
    "matrices for the gradient of a weight",
    verdict=guarantee_verdict,
    seeds=STACKS[:5],
)
def guarantee() -> Measurement:
    """Measure the gradient at the input of wide and of narrow stacks, and at the first layer's inner matrix."""
    wide = [factor for gain in (0.001, 0.1, 1.0, 3.0) for factor in arrives(gain, skip=True, seeds=STACKS[:5])]
    without = statistics.median(arrives(1.0, skip=False, seeds=STACKS[:5]))
    narrow = [tanh_gradients(DEPTH, True, seed=seed, dim=NARROW)[0] / math.sqrt(NARROW) for seed in range(N_NARROW)]
    usual, tiny = (
        statistics.median(two_matrix_gradients(gain, seed)[1] for seed in STACKS[:5]) for gain in (1.0, 0.001)
    )
    lost = sum(factor < 0.5 for factor in narrow)
    return Measurement(
        measured=f"in {lost} of {N_NARROW} narrow stacks the gradient at the input is less than half the gradient at "
        f"the output; in wide stacks the ratio of the two is at least {min(wide):.1f}",
        rows=(
            ("gradients compared", "ratio"),
            (f"at the input ÷ at the output, smallest of {len(wide)} wide stacks", f"{min(wide):.1f}"),
            ("the same without skips, median of 5 stacks", _order(without)),
            ("at a branch’s first matrix, with weights × 0.001 ÷ with usual weights", _order(tiny / usual)),
        ),
        values=tuple(wide),
        figures={
            "at_input": min(wide),
            "narrow": 1 - lost / N_NARROW,
            "at_weights": tiny / usual,
        },
        because="It depends on the width, and on which gradient is meant. With small weights a layer’s input keeps its "
        "gradient. But a branch’s first matrix gets its gradient through the small second matrix. A narrow branch may "
        "cancel the stream.",
    )


# ----------------------------------------------------------------------------------------------- untrained real blocks
@dataclass(frozen=True)
class StackProfile:
    """Describe untrained blocks, with one entry per block.

    The entries: the standard deviation of the stream after the block, the norm of the loss's gradient there, and the
    norm of the gradient at each of its PARTS. cosine: mean over pairs of tokens, after the last block.
    """

    std: list[float]
    stream_gradient: list[float]
    part_gradients: dict[str, list[float]]
    cosine: float

    @property
    def weight_gradient(self) -> list[float]:
        """Return the norm of the gradient at the first matrix of each block's feed-forward network."""
        return self.part_gradients["up_proj"]


def rearrange(model: DecoderOnly, arrangement: str) -> DecoderOnly:
    """Return the same blocks without norms ("no norm"), without x + ("no residual"), or unchanged."""
    for block in model.blocks:
        if arrangement == "no norm":
            block.norm1, block.norm2 = nn.Identity(), nn.Identity()
        elif arrangement == "no residual":
            block.forward = partial(without_residual, block)  # type: ignore[method-assign]  # of this block alone
    return model


def without_residual(block: TransformerBlock, x: Tensor, mask=None, context_cache=None, **who) -> Tensor:
    """Return the output of a pre-norm decoder block if the output of each branch replaces the stream."""
    x = block.attention(block.norm1(x), mask=mask, is_causal=block.is_causal, **who)
    return block.feed_forward(block.norm2(x))


def xavier(blocks: Iterable[TransformerBlock], gain: float = 1.0) -> None:
    """Initialize the matrices of the blocks as in the original Transformer's code (Glorot & Bengio 2010), times
    `gain`."""
    for module in nn.ModuleList(blocks).modules():
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight, gain)


def own_token_first(blocks: Iterable[TransformerBlock]) -> None:
    """Initialize every attention so that each token attends mostly to itself and passes on a rotation of itself.

    With W_Q = W_K = 2 · I, a token's score with itself is about 16, and its other scores are about 0 ± 4.

    Source: the idea is from He et al. 2023, "Deep Transformers without Shortcuts"; these matrices are ours.
    """
    with torch.no_grad():
        for block in blocks:
            for projection in (block.attention.q_proj, block.attention.k_proj):
                projection.weight.copy_(2 * torch.eye(len(projection.weight)))
            for projection in (block.attention.v_proj, block.attention.out_proj):
                nn.init.orthogonal_(projection.weight)


def start_with(model: DecoderOnly, start: str, gain: float = 1.0) -> None:
    """Initialize the weights of the blocks again. start: "gpt2" keeps them (see `gpt.initialize`), "xavier" uses
    Xavier's times gain, and "own token" uses Xavier's with `own_token_first`."""
    if start != "gpt2":
        xavier(model.blocks, gain)
    if start == "own token":
        own_token_first(model.blocks)


def small_model(arrangement: str, n_layers: int, vocab_size: int) -> DecoderOnly:
    """Return a decoder of width 32 with RoPE and two heads, in one of the ARRANGEMENTS."""
    config = TransformerConfig(
        vocab_size=vocab_size,
        d_model=32,
        n_heads=2,
        n_layers=n_layers,
        max_seq_len=T,
        positions="rope",
        norm_position="post" if arrangement == "post-norm" else "pre",
    )
    return rearrange(DecoderOnly(config), arrangement)


def stack_profile(
    arrangement: str,
    depth: int,
    gain: float = 1.0,
    seed: int = 0,
    start: str = "xavier",
    dtype: torch.dtype = torch.float32,
) -> StackProfile:
    """Return the sizes in an untrained stack, for random tokens and targets.

    arrangement: one of ARRANGEMENTS. start, gain: as in `start_with`. The token vectors have variance 1, so the stream
    starts at 1.
    """
    torch.manual_seed(seed)
    model = small_model(arrangement, depth, vocab_size=64)
    start_with(model, start, gain)
    nn.init.normal_(model.token_embedding.weight)
    model.output.weight = nn.Parameter(0.02 * torch.randn(64, 32))
    ids, targets = torch.randint(64, (2, 4, T)).unbind()
    model.to(dtype)
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
    """Return the norm of the gradient at the first matrix of the feed-forward network, for each block of an untrained
    decoder that attends to an encoder of the same depth. Everything else is as in `stack_profile`. order: "pre" or
    "post"."""
    torch.manual_seed(seed)
    config = TransformerConfig(
        vocab_size=64,
        d_model=32,
        n_heads=2,
        n_layers=depth,
        max_seq_len=T,
        norm_position=order,
        positions="sinusoidal",
        family="encoder-decoder",
    )
    model = EncoderDecoder(config)
    xavier([*model.encoder.blocks, *model.decoder.blocks])
    nn.init.normal_(model.encoder.token_embedding.weight)
    model.output.weight = nn.Parameter(0.02 * torch.randn(64, 32))
    source_ids, target_ids, targets = torch.randint(64, (3, 4, T)).unbind()
    _, loss = model(source_ids, target_ids, targets=targets)
    matrices = [block.feed_forward.up_proj.weight for block in model.decoder.blocks]
    return [gradient.double().norm().item() for gradient in torch.autograd.grad(loss, matrices)]


def first_over_last(order: str, depth: int, encoder: bool) -> list[float]:
    """Return for each seed the gradient of the first block's weights divided by the last one's. order: "pre" or
    "post"."""
    norms = (
        beside_an_encoder(order, depth, seed)
        if encoder
        else stack_profile(f"{order}-norm", depth, seed=seed).weight_gradient
        for seed in SEEDS
    )
    return [each[0] / each[-1] for each in norms]


def post_norm_verdict(alone: list[float], beside: list[float], shallow: list[float]) -> str:
    """Divide the first block's gradient by the last one's (median of the seeds): [in post-norm, in pre-norm], in 18
    blocks without cross-attention, in 18 blocks with it and in 6 blocks with it. Below a tenth counts as vanished.

    confirmed: in all three decoders the gradient vanishes in post-norm and not in pre-norm
    depends: in only one or two of the three decoders
    refuted: in none of the three decoders
    """
    vanished = [post < 0.1 <= pre for post, pre in (alone, beside, shallow)]
    return "confirmed" if all(vanished) else "depends" if any(vanished) else "refuted"


@experiment(
    "blocks.post_norm_gradient",
    claim="The LN in Post-LN is the main source of the vanishing gradient problem that leads to unstable training, "
    "whereas Pre-LN prevents it.",
    source=Source(
        "Takase et al. 2022",
        "B2T Connection: Serving Stability and Performance in Deep Transformers",
        "https://arxiv.org/abs/2206.00330",
        place="abstract",
        quote="1, the LN in Post-LN is the main source of the vanishing gradient problem that leads to unstable "
        "training, whereas Pre-LN prevents it",
    ),
    control="the same untrained blocks, tokens and seeds in pre-norm; one decoder of 18 blocks without "
    "cross-attention, and two with cross-attention, as in the paper, of 18 and of 6 blocks",
    verdict=post_norm_verdict,
    seeds=SEEDS,
)
def post_norm_gradient() -> Measurement:
    """Measure the first block's gradient over the last one's, at the first feed-forward matrix, before training."""
    alone, beside, shallow = (
        [statistics.median(first_over_last(order, depth, encoder)) for order in ("post", "pre")]
        for depth, encoder in ((18, False), (18, True), (6, True))
    )
    return Measurement(
        measured="in post-norm with cross-attention, the gradient of the first block is "
        f"{beside[0]:.1g} times the last block’s with 18 blocks, and {shallow[0]:.1g} times with 6 blocks",
        values=(*alone, *beside, *shallow),
        figures={"alone": alone, "beside": beside, "shallow": shallow},
        rows=(
            ("ratio of the gradients, first block to last", "post-norm", "pre-norm"),
            *(
                (kind, f"{post:.1g}", f"{pre:.1g}")
                for kind, (post, pre) in (
                    ("18 blocks with cross-attention", beside),
                    ("18 blocks without cross-attention", alone),
                    ("6 blocks with cross-attention", shallow),
                )
            ),
        ),
        because="It depends on the kind of decoder and its depth. In post-norm with cross-attention the gradient "
        "shrinks to a fiftieth with 18 blocks, as in the paper, and to a third with 6. Without cross-attention, as in "
        "GPT, it does not shrink.",
    )


def why_residual_verdict(ratios: list[float]) -> str:
    """Divide each matrix's gradient without residuals by that with them, at 8 and at 24 blocks, and take the larger;
    one number for queries, keys, values and the feed-forward network. Below a fifth counts as vanished.

    confirmed: all four vanish
    depends: some vanish
    refuted: none vanishes
    """
    vanished = [ratio < 0.2 for ratio in ratios]
    return "confirmed" if all(vanished) else "depends" if any(vanished) else "refuted"


@experiment(
    "blocks.why_residual",
    claim="Without residual connections the gradients of a Transformer vanish.",
    source=Source(
        "Wikipedia",
        "Transformer (deep learning)",
        "https://en.wikipedia.org/wiki/Transformer_(deep_learning)",
        place="§ Sublayers",
        quote="The residual connections are introduced to avoid vanishing gradient issues and stabilize the training "
        "process.",
    ),
    control="the same untrained stacks of 8 and 24 blocks with residuals",
    verdict=why_residual_verdict,
    seeds=SEEDS,
)
def why_residual() -> Measurement:
    """Measure the gradient of four matrices of each block without residuals, over that with them, before training."""
    ratios: dict[str, list[float]] = {part: [] for part in PARTS}
    cosines = []
    for depth in (8, 24):
        without, with_it = (  # in float64: without residuals some gradients are as small as float32's rounding errors
            [stack_profile(arrangement, depth, seed=seed, dtype=torch.float64) for seed in SEEDS]
            for arrangement in ("no residual", "pre-norm")
        )
        for part in PARTS:
            pairs = [
                pair for a, b in zip(without, with_it) for pair in zip(a.part_gradients[part], b.part_gradients[part])
            ]
            ratios[part].append(statistics.median(lone / joined for lone, joined in pairs))
        cosines.append(statistics.fmean(each.cosine for each in without))
    names = zip(("queries", "keys", "values", "feed-forward"), ratios.values())
    return Measurement(
        measured=f"without residuals two tokens have a cosine of {cosines[0]:.2f} after 8 blocks, and queries and keys "
        f"get {_short(max(ratios['q_proj'][0], ratios['k_proj'][0]))} times the gradient that they get with residuals",
        rows=(
            ("gradient without residuals ÷ with residuals (median over all blocks)", "8 blocks", "24 blocks"),
            *((name, _short(few), _short(many)) for name, (few, many) in names),
        ),
        values=tuple(ratio for both in ratios.values() for ratio in both),
        figures={"ratios": [max(both) for both in ratios.values()]},
        because="It depends on the matrix. Values and the feed-forward network get a larger gradient. But it no longer "
        "matters which of the equal tokens a query attends to, so the gradient of queries and keys vanishes (Noci et "
        "al. 2022).",
    )


# ------------------------------------------------------------------------------------------------- small training runs
def frequency_loss() -> float:
    """Return the nats per token of a model that knows only how frequent each word is: the unigram entropy."""
    shares = tinytown_ids().bincount() / len(tinytown_ids())
    return -torch.xlogy(shares, shares).sum().item()


@cache
def training_losses(
    arrangement: str, n_layers: int, peak: float, warmup: int, start: str = "gpt2", seed: int = 0, steps: int = STEPS
) -> tuple[float, ...]:
    """Return the loss of every step of one small run on Tinytown. start: as in `start_with`."""
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


def trained(arrangement: str, n_layers: int, warmup: float, start: str, steps: int, rate: float, seed: int) -> float:
    """Return the final loss of one small run. warmup: the fraction of the steps over which the rate rises."""
    return final(training_losses(arrangement, n_layers, rate, round(warmup * steps), start, seed, steps))


def learned(loss: float) -> bool:
    """Return whether the model has learned more than word frequencies. Half a nat is enough, whatever the batch."""
    return loss < frequency_loss() - 0.5


def no_residual_verdict(usual: list[float], designed: list[float], frequencies: float) -> str:
    """Train eight blocks without residuals, with the usual initial weights and with ones that keep the tokens apart,
    each at its best rate. A run has learned if its loss is half a nat below the loss of word frequencies.

    confirmed: no run with the usual weights learns, and every run with the designed ones does
    depends: some runs with the usual weights learn as well, or some with the designed ones do not
    refuted: no run with the designed weights learns
    """
    plain, kept = ([loss < frequencies - 0.5 for loss in losses] for losses in (usual, designed))
    return "confirmed" if all(kept) and not any(plain) else "depends" if any(kept) else "refuted"


@experiment(
    "blocks.no_residual",
    claim="A deep Transformer without residual connections can be trained, from initial weights designed for it.",
    source=Source(
        "He et al. 2023",
        "Deep Transformers without Shortcuts: Modifying Self-attention for Faithful Signal Propagation",
        "https://arxiv.org/abs/2302.10322",
        place="abstract",
        quote="is it possible to train deep vanilla transformers? We answer this question in the affirmative by "
        "designing several approaches that use combinations of parameter initialisations, bias matrices and "
        "location-dependent rescaling to achieve faithful signal propagation in vanilla transformers.",
    ),
    control="the same 8 blocks (with norms, which the paper's models lack), batches and steps; with residuals as "
    "well, from either initialization; each of the four at its own best rate",
    verdict=no_residual_verdict,
    seeds=SEEDS,
)
def no_residual(size: Size) -> Measurement:
    """Measure the final losses of eight blocks with and without residuals, for two initializations."""
    steps = size.steps(STEPS)
    best = {
        (arrangement, start): at_best_rate(partial(trained, arrangement, 8, 1 / 6, start, steps), LOWER_RATES, SEEDS)
        for arrangement, start in product(("no residual", "pre-norm"), ("xavier", "own token"))
    }
    said = {arm: _half(each.mean) for arm, each in best.items()}
    return Measurement(
        measured=f"without residuals eight blocks end at about {said['no residual', 'own token']} nats from weights "
        f"with which each token attends mostly to itself, and at {said['no residual', 'xavier']} from Xavier’s weights",
        rows=(
            (f"nats after {steps} steps, about", "without residuals", "with residuals"),
            *(
                (name, said["no residual", start], said["pre-norm", start])
                for name, start in (("Xavier’s weights", "xavier"), ("each token attends to itself", "own token"))
            ),
            ("word frequencies alone", *2 * [_half(frequency_loss())]),
        ),
        values=tuple(loss for each in best.values() for loss in each.losses),
        figures={
            "usual": list(best["no residual", "xavier"].losses),
            "designed": list(best["no residual", "own token"].losses),
            "frequencies": frequency_loss(),
        },
        because="Residuals are not the only way to carry a token’s own vector past the attention; suitable weights "
        "can do it as well. From the same weights, the blocks with residuals still end lower.",
    )


def warmup_verdict(
    post_large: Sequence[float], post_small: Sequence[float], pre_large: Sequence[float], pre_small: Sequence[float]
) -> str:
    """Subtract the final loss with a warm-up from that without, each at its best rate (mean of the seeds): for both
    orders of the norm and both initial weights, with a warm-up over a tenth and over half of the steps.

    confirmed: without the warm-up, the loss of post-norm rises by at least 0.25 nats more than the loss of pre-norm,
        from both initializations and for both warm-ups; the loss of pre-norm rises by less than 0.25
    depends: the first is true in some of the four cases, or in all while the loss of pre-norm rises by more as well
    refuted: the first is true in none of the four cases
    """
    pairs = [*zip(post_large, pre_large), *zip(post_small, pre_small)]
    more = [post - pre >= 0.25 for post, pre in pairs]
    if all(more) and all(pre < 0.25 for _, pre in pairs):
        return "confirmed"
    return "depends" if any(more) else "refuted"


@experiment(
    "blocks.warmup",
    claim="The warm-up of the learning rate is essential for Post-LN, and can be removed for Pre-LN.",
    source=Source(
        "Xiong et al. 2020",
        "On Layer Normalization in the Transformer Architecture",
        "https://arxiv.org/abs/2002.04745",
        place="abstract",
        quote="we first study theoretically why the learning rate warm-up stage is essential and show that the "
        "location of layer normalization matters. … This motivates us to remove the warm-up stage for the training of "
        "Pre-LN Transformers.",
    ),
    control="four blocks, the same batches and steps: both orders of the norm, from Xavier's large weights and from "
    "GPT-2's small ones, each without a warm-up and with one over a tenth and over half of the steps; each of the "
    "twelve at its own best rate",
    verdict=warmup_verdict,
    seeds=SEEDS,
)
def warmup(size: Size) -> Measurement:
    """Measure how many nats it costs to leave the warm-up out."""
    steps = size.steps(STEPS)
    losses = {
        (order, start): [
            at_best_rate(partial(trained, order, 4, rise, start, steps), RATES, SEEDS) for rise in WARM_UPS
        ]
        for order, start in ORDERS_AND_STARTS
    }
    costs = {
        f"{order.removesuffix('-norm')}_{NAMES[start]}": [none.mean - each.mean for each in risen]
        for (order, start), (none, *risen) in losses.items()
    }
    return Measurement(
        measured=_with_warmup(steps, costs),
        values=tuple(loss for runs in losses.values() for each in runs for loss in each.losses),
        figures=costs,
        because="It depends on the initial weights. From large weights a warm-up helps post-norm more than pre-norm, "
        "in the mean and for two of three seeds. From small weights it helps post-norm less, for every seed.",
    )


def warm_up_rows(finding: Finding) -> list[tuple[str | float, ...]]:
    """Return the result of `warmup`, with a row for each setting: its name, the mean final loss for each of the
    WARM_UPS, and the nats by which the longest warm-up lowers the loss of each seed."""
    losses = torch.tensor(finding.values).view(len(ORDERS_AND_STARTS), len(WARM_UPS), len(SEEDS))
    saved = losses[:, 0] - losses[:, -1]  # (settings, seeds)
    return [
        (f"{order}, {NAMES[start]} weights", *means, ", ".join(f"{each:.1f}" for each in of_seeds))
        for (order, start), means, of_seeds in zip(ORDERS_AND_STARTS, losses.mean(dim=2).tolist(), saved.tolist())
    ]


def _with_warmup(steps: int, costs: Mapping[str, Sequence[float]]) -> str:
    saved = {arm: _half(long) for arm, (_, long) in costs.items()}
    return (
        f"from large weights, a warm-up for half of the {steps} steps lowers the loss, in nats, by about "
        f"{saved['post_large']} in post-norm and {saved['pre_large']} in pre-norm; from small ones, by "
        f"{saved['post_small']} in post-norm and {saved['pre_small']} in pre-norm"
    )


def large_rates_verdict(rates: Mapping[str, float], runs: Mapping[str, int]) -> str:
    """Train in both orders, from both weights, without a warm-up. rates: the largest rate at which every run still
    learns. runs: how many runs learn, over all rates and seeds. A change helps if it at least doubles the rate, and
    three more runs learn.

    confirmed: pre-norm helps from either weights, and smaller weights help in either order
    depends: only some of the four do
    refuted: none does
    """
    helps = [
        rates[after] >= 2 * rates[before] and runs[after] >= runs[before] + 3
        for before, after in (
            ("post_large", "pre_large"),
            ("post_small", "pre_small"),
            ("post_large", "post_small"),
            ("pre_large", "pre_small"),
        )
    ]
    return "confirmed" if all(helps) else "depends" if any(helps) else "refuted"


def which_learn(arrangement: str, start: str, steps: int) -> dict[float, int]:
    """Train four blocks without a warm-up at six rates. Return rate -> the number of seeds that learn."""
    return {
        rate: sum(learned(trained(arrangement, 4, 0.0, start, steps, rate, seed)) for seed in SEEDS)
        for rate in WITHOUT_WARM_UP
    }


def largest_rate(learn: Mapping[float, int]) -> float:
    """Return the largest rate at which every seed still learns, in the result of `which_learn`; 0 if there is none.

    We count from the smallest rate at which all learn. A larger rate at which they learn again does not count.
    """
    largest = 0.0
    for rate, number in sorted(learn.items()):
        if number == len(SEEDS):
            largest = rate
        elif largest:
            break
    return largest


@experiment(
    "blocks.large_rates",
    claim="Pre-norm residual connections (PreNorm) and smaller initializations enable warmup-free, validation-based "
    "training with large learning rates.",
    source=Source(
        "Nguyen & Salazar 2019",
        "Transformers without Tears: Improving the Normalization of Self-Attention",
        "https://arxiv.org/abs/1910.05895",
        place="abstract",
        quote="First, we show that pre-norm residual connections (PreNorm) and smaller initializations enable "
        "warmup-free, validation-based training with large learning rates.",
    ),
    control="four blocks in both orders, from large and from small weights, with the same batches and steps and no "
    "warm-up; the rate itself is measured, so every model is tried at rates from 0.005 to 0.16; a schedule that "
    "follows the validation loss is not tested",
    verdict=large_rates_verdict,
    seeds=SEEDS,
)
def large_rates(size: Size) -> Measurement:
    """Find the largest rate at which four blocks still learn without a warm-up, and how many runs learn at six
    rates."""
    steps = size.steps(STEPS)
    learn = {
        f"{order.removesuffix('-norm')}_{NAMES[start]}": which_learn(order, start, steps)
        for order, start in ORDERS_AND_STARTS
    }
    rates = {arm: largest_rate(each) for arm, each in learn.items()}
    runs = {arm: sum(each.values()) for arm, each in learn.items()}
    return Measurement(
        measured=f"without a warm-up and from large weights, every run learns up to a rate of {rates['pre_large']:g} "
        f"in pre-norm and up to {rates['post_large']:g} in post-norm",
        rows=(
            (
                f"{steps} steps without a warm-up",
                "all runs learn up to",
                f"runs that learn ({len(WITHOUT_WARM_UP)} rates × {len(SEEDS)} seeds)",
            ),
            *(
                (f"{order}-norm, {weights} weights", f"{rates[arm]:g}", f"{runs[arm]}")
                for order, weights in product(("pre", "post"), ("large", "small"))
                for arm in [f"{order}_{weights}"]
            ),
        ),
        values=tuple(rates.values()),
        figures={"rates": rates, "runs": runs},
        because="It depends on how the two are combined. Pre-norm alone allows a rate of "
        f"{rates['pre_large']:g}, small weights alone {rates['post_small']:g}. Both together allow only "
        f"{rates['pre_small']:g}: at the next rate a run fails, though most runs at higher rates learn.",
    )


def _half(number: float) -> str:
    """Round to the nearest half, so that a short training run gives the same text on every machine."""
    return f"{round(2 * number) / 2:g}"


def _short(number: float) -> str:
    """Round to one digit, or to a whole number. Below 1e-5, float32's rounding errors determine the digit."""
    return f"{number:.0f}" if number > 1 else f"{number:.1g}" if number >= 1e-5 else "below 1e-5"


def _order(number: float) -> str:
    return f"10^{round(math.log10(number))}"
