"""Chapter 5: what a Transformer knows about order, and how each position encoding does on longer texts."""

import math
import statistics
from dataclasses import replace
from functools import cache, partial
from itertools import permutations, repeat
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.blocks import Stack
from course_lib.claims.rates import Best, at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating, initialize
from course_lib.heads import MultiHeadAttention
from course_lib.positions import LearnedPositions, sinusoidal_encoding
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import train

SEEDS = (0, 1, 2)


def vaswani(quote: str) -> Source:
    """Return this quotation about positions from the paper that proposed the Transformer."""
    return Source(
        "Vaswani et al. 2017",
        "Attention Is All You Need",
        "https://arxiv.org/abs/1706.03762",
        place="§ 3.5",
        quote=quote,
    )


# ------------------------------------------------------------------------------------------------------ shuffled tokens
def invariance_verdict(by_position: float, by_token: float, by_mean: float) -> str:
    """Compare the outputs for shuffled tokens with those for the tokens in their original order, in three ways.

    confirmed: only rounding changes, position by position, token by token, and in the mean
    depends: each token's output and the mean stay; what is at each position changes
    refuted: the output of a token changes, too, or the mean does
    """
    stays = [change < 1e-9 for change in (by_position, by_token, by_mean)]
    return "confirmed" if all(stays) else "depends" if stays[1] and stays[2] else "refuted"


@experiment(
    "positions.invariance",
    claim="Self-attention operation is permutation invariant.",
    source=Source(
        "Weng 2020",
        "The Transformer Family",
        "https://lilianweng.github.io/posts/2020-04-07-the-transformer-family/",
        place="Positional Encoding",
        quote="Because self-attention operation is permutation invariant, it is important to use proper positional "
        "encoding to provide order information to the model.",
    ),
    control="the same tokens in their original order, compared in three ways: position by position, token by token, "
    "and as the mean over all positions",
    verdict=invariance_verdict,
    seeds=SEEDS,
)
def shuffled_tokens() -> Measurement:
    by_position, by_token, by_mean = [], [], []
    for seed in SEEDS:
        torch.manual_seed(seed)
        attention = MultiHeadAttention(d_model=16, n_heads=4).double()
        x = torch.randn(1, 6, 16, dtype=torch.float64)
        order = torch.tensor([5, 0, 1, 2, 3, 4])  # every token moves
        with torch.no_grad():
            before, after = attention(x), attention(x[:, order])
        by_position.append((after - before).abs().max().item())
        by_token.append((after - before[:, order]).abs().max().item())
        by_mean.append((after.mean(dim=1) - before.mean(dim=1)).abs().max().item())
    at_positions, of_tokens, of_mean = (
        "only by rounding" if max(each) < 1e-9 else f"by {statistics.fmean(each):.1f}"
        for each in (by_position, by_token, by_mean)
    )
    return Measurement(
        measured=f"when the tokens are shuffled, the output of each token changes {of_tokens}, and the output at each "
        f"position {at_positions}",
        rows=(
            ("what is compared", "changes"),
            ("the output at each position", at_positions),
            ("the output of each token", of_tokens),
            ("the mean of all outputs", of_mean),
        ),
        values=by_position,
        figures={
            "by_position": round(max(by_position), 9),
            "by_token": round(max(by_token), 9),
            "by_mean": round(max(by_mean), 9),
        },
        because="It depends on what is compared. Each token's own output and the mean are invariant. The sequence of "
        "outputs is shuffled as the tokens are, which is called equivariant.",
    )


# -------------------------------------------------------------------------------------------------------------- who bit
NOUNS = 6  # ids 0 … 5; then "bit" and "?"


class WhoBit(nn.Module):
    """Read "a bit b ?" and predict a: the logits of the last token, scored against the embedding table.

    family: "encoder" (every token sees every other) or "decoder" (causal). positions: as in TransformerConfig.
    """

    def __init__(self, family: str, positions: str, n_layers: int, d_model: int = 32):
        super().__init__()
        self.stack = Stack(
            TransformerConfig(NOUNS + 2, d_model, 2, n_layers, max_seq_len=4, positions=positions, family=family)
        )
        initialize(self.stack)
        tokens = self.stack.token_embedding
        nn.init.normal_(tokens.weight, std=0.5 / tokens.factor)  # about as large as sinusoids

    def forward(self, ids: Tensor, who: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.stack(ids)[:, -1] @ self.stack.token_embedding.weight.T  # (B, V)
        return logits, F.cross_entropy(logits, who)


def who_bit_whom() -> tuple[Tensor, Tensor]:
    """Return every sentence "a bit b ?" with two different nouns (30, 4), and the noun that did it (30,)."""
    sentences = torch.tensor([[a, NOUNS, b, NOUNS + 1] for a, b in permutations(range(NOUNS), 2)])
    return sentences, sentences[:, 0]


ORDER_MODELS = {  # name -> family, positions, blocks
    "bidirectional, no positions, 2 blocks": ("encoder", "none", 2),
    "causal, no positions, 1 block": ("decoder", "none", 1),
    "causal, no positions, 2 blocks": ("decoder", "none", 2),
    "bidirectional, sinusoids, 1 block": ("encoder", "sinusoidal", 1),
    "causal, sinusoids, 1 block": ("decoder", "sinusoidal", 1),
}


USUAL = Size()


@cache
def who_bit_run(name: str, rate: float, seed: int, size: Size = USUAL) -> tuple[float, float]:
    """Train a model of ORDER_MODELS on all 30 sentences; return (loss, fraction answered correctly) on the same 30.

    We keep no sentences for a test, because a bag of words cannot learn even the training sentences, however long it
    trains.
    """
    torch.manual_seed(seed)
    model = WhoBit(*ORDER_MODELS[name], size.width(32))
    sentences, who = who_bit_whom()
    train(model, repeat((sentences, who)), size.steps(150), peak=rate, warmup=20, progress=False)
    with evaluating(model):
        logits, loss = model(sentences, who)
    return loss.item(), (logits.argmax(dim=-1) == who).float().mean().item()


def learn_who_bit(name: str, seed: int) -> float:
    """Return the fraction of the 30 sentences that a model of ORDER_MODELS answers correctly after training on them."""
    return who_bit_run(name, 3e-3, seed)[1]


KNOWS = 0.9  # a model with at least this fraction of correct answers knows the order


def order_verdict(without: list[float]) -> str:
    """Look at the models without positions: the fewest correct answers of each, over the seeds.

    confirmed: none answers more than 0.9 of the questions
    depends: some do
    refuted: all do
    """
    learnt = [fraction > KNOWS for fraction in without]
    return "refuted" if all(learnt) else "depends" if any(learnt) else "confirmed"


def _described(name: str) -> tuple[str, str, str]:
    mask, positions, blocks = name.split(", ")
    return mask, positions.removeprefix("no ").replace("positions", "none"), blocks.split()[0]


@experiment(
    "positions.order",
    claim="In order for the model to make use of the order of the sequence, we must inject some information about the "
    "relative or absolute position of the tokens in the sequence.",
    source=vaswani(
        "Since our model contains no recurrence and no convolution, in order for the model to make use of the order of "
        "the sequence, we must inject some information about the relative or absolute position of the tokens in the "
        "sequence."
    ),
    control="the same small model with sinusoids; bidirectional and causal, with one block and with two; guessing "
    "gives one half; each model at its best rate",
    verdict=order_verdict,
    seeds=SEEDS,
)
def order_without_positions(size: Size) -> Measurement:
    def run(name: str, rate: float, seed: int) -> tuple[float, float]:
        return who_bit_run(name, rate, seed, size)

    best = {name: at_best_rate(partial(run, name), (0.003, 0.01, 0.03), SEEDS) for name in ORDER_MODELS}
    right = {name: [fraction for _, fraction in best[name].results] for name in ORDER_MODELS}
    known = {name: statistics.fmean(fractions) for name, fractions in right.items()}
    *others, deep = (fraction for name, fraction in known.items() if "no positions" in name)
    return Measurement(
        measured=f"without positions, two causal blocks answer {deep:.0%} of the questions; one causal block, or two "
        f"bidirectional blocks, answer {max(others):.0%} of them, as guessing does",
        rows=(
            ("model", "positions", "blocks", "correct answers"),
            *((*_described(name), f"{fraction:.0%}") for name, fraction in known.items()),
        ),
        values=right["causal, no positions, 2 blocks"],
        figures={"without": [min(r) for name, r in right.items() if "no positions" in name]},
        because="It depends on the mask and on the depth. In a bidirectional model, or in one causal block, the last "
        "token sees a bag of words. In a second causal block it sees tokens with different pasts.",
    )


# ------------------------------------------------------------------------------------------------------------ sinusoids
def wavelengths(d_model: int, furthest: int = 10_000) -> Tensor:
    """Return the tokens per full rotation of each pair of the table, measured over `furthest` tokens: (d_model/2,)."""
    table = sinusoidal_encoding(furthest + 1, d_model).double()
    angles = torch.atan2(table[:, 0::2], table[:, 1::2])  # (furthest + 1, d_model/2)
    rotated = angles.diff(dim=0).remainder(2 * torch.pi).sum(dim=0)
    return furthest * 2 * torch.pi / rotated


def slowest_hand_verdict(geometric: bool, first: list[float], last: list[float]) -> str:
    """Compare the measured wavelengths with the claim.

    first, last: the shortest and the longest, divided by those that the claim names; one number for each d_model.

    confirmed: each is a fixed multiple of the one before, and both ends are within 1%
    depends: the wavelengths form such a progression from 2π, but at some d_model the longest is off by more than 1%
    refuted: the wavelengths form no such progression, or do not begin at 2π
    """
    if not geometric or any(abs(each - 1) > 0.01 for each in first):
        return "refuted"
    return "confirmed" if all(abs(each - 1) <= 0.01 for each in last) else "depends"


@experiment(
    "positions.slowest_hand",
    claim="The wavelengths form a geometric progression from 2π to 10000 · 2π.",
    source=vaswani(
        "That is, each dimension of the positional encoding corresponds to a sinusoid. The wavelengths form a "
        "geometric progression from 2π to 10000 · 2π."
    ),
    control="the same measurement in tables of three sizes: d_model = 512, as in the paper, one larger and one smaller",
    verdict=slowest_hand_verdict,
)
def slowest_hand() -> Measurement:
    measured = {d_model: wavelengths(d_model) for d_model in (2048, 512, 8)}
    last = {d_model: waves[-1].item() for d_model, waves in measured.items()}
    return Measurement(
        measured=f"at d_model = 512 the longest wavelength is {last[512]:,.0f} tokens; according to the paper it is "
        f"{20_000 * torch.pi:,.0f}",
        rows=(
            ("wavelength in tokens", "paper", *(f"d_model = {d_model}" for d_model in measured)),
            ("shortest", f"{2 * torch.pi:.1f}", *(f"{waves[0]:.1f}" for waves in measured.values())),
            ("longest", f"{20_000 * torch.pi:,.0f}", *(f"{wave:,.0f}" for wave in last.values())),
        ),
        values=tuple(last.values()),
        figures={
            "geometric": all((waves[1:] / waves[:-1]).std().item() < 0.01 for waves in measured.values()),
            "first": [waves[0].item() / (2 * torch.pi) for waves in measured.values()],
            "last": [wave / (2 * torch.pi * 10_000) for wave in last.values()],
        },
        because="It depends on d_model. The last of the d_model / 2 hands has the divisor "
        "10000^((d_model − 2) / d_model), one step short of 10000. That step is small only if there are many hands.",
    )


def similarity(d_model: int, furthest: int) -> Tensor:
    """Return the cosine between the codes of position 0 and of position k, for k = 0 … furthest. It is the same for any
    two positions k apart."""
    table = sinusoidal_encoding(furthest + 1, d_model).double()
    return F.cosine_similarity(table[:1], table)  # (furthest + 1,)


def near_and_far_verdict(symmetrical: bool, near: float, far: float, rises: int) -> str:
    """Look at how the cosine of two codes depends on their distance: at 1, at 100, and in how many steps it rises.

    confirmed: it is the same on both sides and falls at every step
    depends: it is the same on both sides and lower at distance 100 than at 1, but does not fall at every step
    refuted: it is not the same on both sides, or does not fall
    """
    if not symmetrical or not near > 0.9 > far:
        return "refuted"
    return "depends" if rises else "confirmed"


@experiment(
    "positions.near_and_far",
    claim="The distance between neighboring time-steps are symmetrical and decays nicely with time.",
    source=Source(
        "Kazemnejad 2019",
        "Transformer Architecture: The Positional Encoding",
        "https://kazemnejad.com/blog/transformer_architecture_positional_encoding/",
        place="Relative Positioning",
        quote="Another property of sinusoidal position encoding is that the distance between neighboring time-steps "
        "are symmetrical and decays nicely with time.",
    ),
    control="what the author's figure shows, the dot product (here divided by the lengths), at every distance up to "
    "1,000, and to the left and to the right of position 500",
    verdict=near_and_far_verdict,
)
def near_and_far() -> Measurement:
    curve = similarity(128, 1000)
    middle = sinusoidal_encoding(1001, 128).double()
    sides = F.cosine_similarity(middle[500:501], middle)  # (1001,)
    same = torch.allclose(sides[:500], sides[501:].flip(0), atol=1e-4)
    rises = curve.diff() > 0
    first_rise = int(rises.nonzero()[0]) if rises.any() else len(rises)
    of_100 = int(rises[:100].sum())
    return Measurement(
        measured=f"the cosine falls up to a distance of {first_rise}, and rises at {of_100} of the first 100 "
        f"distances; it is {'the same' if same else 'not the same'} to the left and to the right",
        rows=(
            ("distance in tokens", "1", "10", "100"),
            ("cosine at d_model = 128", *(f"{curve[distance]:.2f}" for distance in (1, 10, 100))),
        ),
        values=(of_100 / 100,),
        figures={"symmetrical": same, "near": curve[1].item(), "far": curve[100].item(), "rises": of_100},
        because="It depends on how far apart they are: the cosine falls at first, but a sum of cosines goes up and "
        "down, so greater distance does not always mean less similarity.",
    )


# ----------------------------------------------------------------------------------------------------- longer sequences
TRAINED, LENGTHS, JUDGED = 32, (32, 64, 96, 128), 16  # all in tokens
SCHEMES = ("sinusoidal", "learned", "rope", "alibi", "none")
STEPS, STORIES = 250, 4000
RATES = (0.01, 0.02, 0.04)


@cache
def _texts() -> tuple[Tensor, Tensor]:
    """Return ids to train on, and held-out windows of max(LENGTHS) + 1 tokens."""
    tokenizer = WordTokenizer()
    ids = encode_stories(Tinytown(0).sample(STORIES), tokenizer)
    held_out = encode_stories(Tinytown(HELD_OUT_SEED).sample(700), tokenizer)
    return ids, held_out.unfold(0, LENGTHS[-1] + 1, LENGTHS[-1] + 1)  # (windows, 129)


@cache
def _reader(scheme: str, seed: int, rate: float, size: Size) -> DecoderOnly:
    """Train a model on TRAINED tokens at a time. With `learned`, the later rows of the table keep their initial
    values."""
    torch.manual_seed(seed)
    V = len(WordTokenizer())
    model = DecoderOnly(TransformerConfig(V, size.width(48), 4, 2, LENGTHS[-1], positions=scheme, tie_weights=False))
    tokens = model.token_embedding
    nn.init.normal_(tokens.weight, std=1 / tokens.factor)  # about as large as sinusoids, for every scheme
    if isinstance(model.positions, LearnedPositions):
        nn.init.normal_(model.positions.weight, std=0.5**0.5)  # as large as sinusoids
    batches = Batches(_texts()[0], 8, TRAINED, torch.Generator().manual_seed(seed))
    train(model, batches, size.steps(STEPS), peak=rate, warmup=20, progress=False)
    return model


def _judge(model: DecoderOnly, length: int) -> float:
    windows = _texts()[1]
    with evaluating(model):
        logits = model(windows[:, -1 - length : -1])[:, -JUDGED:]  # (windows, JUDGED, V)
    return F.cross_entropy(logits.flatten(0, 1), windows[:, -JUDGED:].flatten()).item()


@cache
def reach(scheme: str, seed: int, rate: float = RATES[1], size: Size = USUAL) -> dict[int, float]:
    """Return the loss (nats per token) on the same JUDGED words, with more and more text before them: length ->
    loss."""
    model = _reader(scheme, seed, rate, size)
    return {length: _judge(model, length) for length in LENGTHS}


def _near() -> Tensor:
    """Return which keys are at distances that occurred in training, in the longest texts: (T, S)."""
    position = torch.arange(LENGTHS[-1])
    return position[:, None] - position < TRAINED


def weight_beyond(scheme: str, seed: int, rate: float = RATES[1], size: Size = USUAL) -> list[float]:
    """Return for each head the weight on keys farther back than in training, averaged over the blocks, the longest
    texts and the tokens that predict the JUDGED words."""
    layers = _reader(scheme, seed, rate, size).attention_weights(_texts()[1][:, :-1])  # (windows, H, T, S) each
    far = torch.stack([(weights * ~_near())[:, :, -JUDGED:].sum(-1).mean(dim=(0, 2)) for weights in layers])
    return far.mean(dim=0).tolist()


def reach_with_a_window(scheme: str, seed: int, rate: float = RATES[1], size: Size = USUAL) -> float:
    """Return the loss on the longest texts if no token sees farther back than in training, so that no distance is
    new."""
    model, near = _reader(scheme, seed, rate, size), _near()  # the model adds its causal mask
    hooks = [
        module.register_forward_pre_hook(lambda _, args, given: (args, {**given, "mask": near}), with_kwargs=True)
        for module in model.modules()
        if isinstance(module, MultiHeadAttention)
    ]
    try:
        return _judge(model, LENGTHS[-1])
    finally:
        for hook in hooks:
            hook.remove()


@cache
def best_reader(scheme: str, size: Size = USUAL) -> Best:
    """Train a scheme at its best learning rate; each result is (loss at the trained length, length -> loss)."""

    def run(rate: float, seed: int) -> tuple[float, dict[int, float]]:
        losses = reach(scheme, seed, rate, size)
        return losses[TRAINED], losses

    return at_best_rate(run, RATES, SEEDS)


WORSE = 0.15  # nats: a smaller increase of the loss does not count as worse


def growth(scheme: str, times: int, size: Size) -> list[float]:
    """Return for each seed how many nats higher the loss is at `times` the trained length."""
    return [losses[times * TRAINED] - losses[TRAINED] for _, losses in best_reader(scheme, size).results]


def sinusoids_reach_verdict(rises: list[float]) -> str:
    """Look at the rise of the loss at twice the trained length, in nats, for each seed.

    confirmed: it is below 0.15 for every seed
    not at this size: it is not; the authors write "may", and a small model cannot refute that a larger one does
    """
    return "confirmed" if max(rises) < WORSE else "not at this size"


@experiment(
    "positions.sinusoids_reach",
    claim="We chose the sinusoidal version because it may allow the model to extrapolate to sequence lengths longer "
    "than the ones encountered during training.",
    source=vaswani(
        "We chose the sinusoidal version because it may allow the model to extrapolate to sequence lengths longer than "
        "the ones encountered during training."
    ),
    control=f"the loss on the same {JUDGED} words with no more text than in training; and ALiBi; each at its best rate",
    verdict=sinusoids_reach_verdict,
    seeds=SEEDS,
)
def sinusoids_reach(size: Size) -> Measurement:
    rises, alibi = growth("sinusoidal", 2, size), growth("alibi", 2, size)
    return Measurement(
        measured=f"with {2 * TRAINED} tokens instead of the trained {TRAINED}, the loss on the same words changes by "
        f"{statistics.fmean(rises):+.1f} nats with sinusoids and by {statistics.fmean(alibi):+.1f} with ALiBi",
        values=rises,
        figures={"rises": rises},
        because="The formula has a value for every position, but training never used the later ones, and this small "
        "model cannot use them. Press et al. 2022 measured the same in larger models.",
    )


def relative_reach_verdict(rope: list[float], alibi: list[float]) -> str:
    """Look at how much less the loss rises than with sinusoids, in nats: the smallest over the seeds, at 2 and 4 times.

    confirmed: by 0.15 or more, with RoPE and with ALiBi, at both lengths
    depends: by that much only with one of them, or only at one of the lengths
    refuted: with neither of them, at neither length
    """
    mitigated = [each > WORSE for each in (*rope, *alibi)]
    return "confirmed" if all(mitigated) else "depends" if any(mitigated) else "refuted"


@experiment(
    "positions.relative_reach",
    claim="RPE helps mitigate performance degradation when dealing with sequences of unseen lengths.",
    source=Source(
        "hchautran",
        "Relative Positional Encoding",
        "https://hchautran.github.io/notes/Relative-Positional-Encoding",
        place="Introduction",
        quote="RPE helps mitigate performance degradation when dealing with sequences of unseen lengths.",
    ),
    control=f"sinusoids; no positions; and the loss on the same {JUDGED} words with no more text than in training; "
    "each at its best rate",
    verdict=relative_reach_verdict,
    seeds=SEEDS,
)
def relative_reach(size: Size) -> Measurement:
    compared = {"rope": "RoPE", "alibi": "ALiBi", "sinusoidal": "sinusoids", "none": "no positions"}
    grown = {scheme: {times: growth(scheme, times, size) for times in (2, 4)} for scheme in compared}
    less = {
        scheme: [min(map(float.__sub__, grown["sinusoidal"][times], grown[scheme][times])) for times in (2, 4)]
        for scheme in ("rope", "alibi")
    }
    changes = [[f"{statistics.fmean(each[times]):+.1f}" for times in (2, 4)] for each in grown.values()]
    rope, alibi, sinusoids, none = (at_four for _, at_four in changes)
    return Measurement(
        measured=f"at four times the trained length the loss changes by {rope} nats with RoPE, by {alibi} with "
        f"ALiBi, by {sinusoids} with sinusoids and by {none} without positions",
        rows=(
            ("change of the loss in nats", *(f"{times * TRAINED} tokens" for times in (2, 4))),
            *((name, *each) for name, each in zip(compared.values(), changes)),
        ),
        values=grown["rope"][4],
        figures=less,
        because="It depends on the encoding and on the length. Distances above 31 are new to both. ALiBi lowers the "
        "scores of distant tokens, so some of its heads hardly see them. RoPE does not.",
    )


NEARLY = 0.05  # nats: results that differ by less are nearly identical


def learned_equal_verdict(differences: list[float]) -> str:
    """Look at the loss with a learned table minus that with sinusoids, in nats, at the trained length.

    confirmed: they differ by less than 0.05 for every seed
    not at this size: they differ by more; the authors trained for 100,000 steps, and a short training cannot refute
        what they found at the end of it
    """
    return "confirmed" if max(map(abs, differences)) < NEARLY else "not at this size"


@experiment(
    "positions.learned_equal",
    claim="The two versions produced nearly identical results.",
    source=vaswani(
        "We also experimented with using learned positional embeddings … instead, and found that the two versions "
        "produced nearly identical results"
    ),
    control="the same model, stories and seeds, both tables equally large at initialization; each at its best rate",
    verdict=learned_equal_verdict,
    seeds=SEEDS,
)
def learned_equal(size: Size) -> Measurement:
    learned, sinusoids = (best_reader(scheme, size).losses for scheme in ("learned", "sinusoidal"))
    differences = [one - other for one, other in zip(learned, sinusoids)]
    return Measurement(
        measured=f"after {size.steps(STEPS):,} steps the loss is {statistics.fmean(learned):.2f} with a learned table "
        f"and {statistics.fmean(sinusoids):.2f} with sinusoids",
        values=differences,
        figures={"differences": differences},
        because="The 250 steps are too few: a table has to be learned first. With four times the steps the two "
        "differ by less than 0.05 nats; the authors trained far longer.",
    )


# ------------------------------------------------------------------------------------------------------ RoPE, stretched
FINE_TUNING = 25  # steps on longer texts, a tenth of those of the training
GENTLE_RATES = (0.003, 0.01, 0.03)
METHODS: dict[str, tuple[Any, ...]] = {  # method -> its settings; the best one is found with the first seed
    "unchanged": (None,),
    "interpolated positions": (None,),
    "larger base": (1, 2, 4),  # factors of the scale: according to Peng et al. it has to be larger than expected
    # rotations in TRAINED tokens at the ends of the ramp: for LLaMA in the paper, in Llama 3.1, and two below them
    "YaRN": ((1.0, 32.0), (1.0, 4.0), (0.25, 1.0), (0.0625, 0.25)),
}


def stretched(model: DecoderOnly, method: str, times: int, setting: Any = None) -> DecoderOnly:
    """Return a copy of a model with RoPE, changed by a method for texts of `times` the trained length.

    interpolated positions: every pair rotates `times` as slowly (Chen et al. 2023).
    larger base: each pair is slowed more than the one before it; the first keeps its speed ("NTK-aware").
    YaRN: only the slow pairs are slowed, and scores are multiplied by (0.1 ln times + 1)² (Peng et al. 2023, § 3.4).
    """
    config, D = model.config, model.config.d_head
    if method == "interpolated positions":  # no pair makes TRAINED rotations in TRAINED tokens, so all are slow
        config = replace(config, rope_scaling=(times, TRAINED, TRAINED + 1, TRAINED))
    elif method == "larger base":
        config = replace(config, rope_theta=config.rope_theta * (setting * times) ** (D / (D - 2)))
    elif method == "YaRN":
        config = replace(config, rope_scaling=(times, *setting, TRAINED))
    copy = DecoderOnly(config)
    copy.load_state_dict(model.state_dict())
    if method == "YaRN":
        with torch.no_grad():
            for name, parameter in copy.named_parameters():
                if ".q_proj." in name:
                    parameter.mul_((0.1 * math.log(times) + 1) ** 2)
    return copy


def best_setting(method: str, times: int, rate: float, size: Size = USUAL) -> Any:
    """Return the setting with the lowest loss at `times` the trained length, for the first seed."""
    model = _reader("rope", SEEDS[0], rate, size)
    return min(METHODS[method], key=lambda setting: _judge(stretched(model, method, times, setting), times * TRAINED))


def loss_by_position(method: str, seed: int, every: int = 8) -> list[float]:
    """Return the loss (nats per token) of the longest texts, averaged over each `every` positions."""
    times, rate = LENGTHS[-1] // TRAINED, RATES[1]
    model = _reader("rope", seed, rate, USUAL)
    windows = _texts()[1]
    with evaluating(changed := stretched(model, method, times, best_setting(method, times, rate))):
        logits = changed(windows[:, :-1])  # (windows, T, V)
    losses = F.cross_entropy(logits.transpose(1, 2), windows[:, 1:], reduction="none")  # (windows, T)
    return losses.mean(dim=0).unflatten(0, (-1, every)).mean(dim=1).tolist()


@cache
def best_stretch(method: str, times: int, size: Size = USUAL) -> tuple[list[float], Best]:
    """Return the loss of each seed at `times` the trained length, and the same after a short fine-tuning there."""
    rate, length = best_reader("rope", size).rate, times * TRAINED
    setting = best_setting(method, times, rate, size)

    def changed(seed: int) -> DecoderOnly:
        return stretched(_reader("rope", seed, rate, size), method, times, setting)

    def tuned(peak: float, seed: int) -> float:
        model = changed(seed)
        batches = Batches(_texts()[0], 8, length, torch.Generator().manual_seed(seed))
        train(model, batches, size.steps(FINE_TUNING), peak=peak, warmup=5, progress=False)
        return _judge(model, length)

    return [_judge(changed(seed), length) for seed in SEEDS], at_best_rate(tuned, GENTLE_RATES, SEEDS)


BETTER = 0.01  # nats: a smaller difference does not count as better


def yarn_verdict(read: list[float], tuned: list[float]) -> str:
    """Look at how much lower the loss is with YaRN than with the best of the other three methods, in nats.

    read, tuned: the smallest over the seeds, without and with fine-tuning, each at 2 and at 4 times the trained length

    confirmed: by 0.01 or more in all four cases
    depends: by that much only in some of them
    not at this size: in none; a small model cannot refute what larger ones showed
    """
    better = [each >= BETTER for each in (*read, *tuned)]
    return "confirmed" if all(better) else "depends" if any(better) else "not at this size"


@experiment(
    "positions.yarn",
    claim="The YaRN method combines all our findings and surpasses all previous methods in both fine-tuned and "
    "non-fine-tuned scenarios.",
    source=Source(
        "Peng et al. 2023",
        "YaRN: Efficient Context Window Extension of Large Language Models",
        "https://arxiv.org/abs/2309.00071",
        place="§ 3.4",
        quote="The YaRN method combines all our findings and surpasses all previous methods in both fine-tuned and "
        "non-fine-tuned scenarios.",
    ),
    control="the same models unchanged, with interpolated positions, and with a larger base (“NTK-aware”); each at its "
    f"best setting and rate; fine-tuning takes a tenth of the steps; the loss on the last {JUDGED} words",
    verdict=yarn_verdict,
    seeds=SEEDS,
)
def yarn(size: Size) -> Measurement:
    found = {(method, times): best_stretch(method, times, size) for method in METHODS for times in (2, 4)}
    read = {case: losses for case, (losses, _) in found.items()}
    tuned = {case: list(best.losses) for case, (_, best) in found.items()}

    def lower(losses: dict[tuple[str, int], list[float]], times: int) -> list[float]:
        *others, of_yarn = (losses[method, times] for method in METHODS)
        return [min(each) - ours for *each, ours in zip(*others, of_yarn)]

    def shown(losses: dict[tuple[str, int], list[float]], method: str, times: int) -> str:
        return f"{statistics.fmean(losses[method, times]):.2f}"

    unchanged, interpolated, larger, ours = (shown(read, method, 4) for method in METHODS)
    return Measurement(
        measured=f"at four times the trained length, the loss is {ours} nats with YaRN, {larger} with a larger "
        f"base, {interpolated} with interpolated positions and {unchanged} unchanged",
        rows=(
            ("loss in nats", *(f"{times * TRAINED}{kind}" for kind in ("", ", tuned") for times in (2, 4))),
            *((m, *(shown(losses, m, times) for losses in (read, tuned) for times in (2, 4))) for m in METHODS),
        ),
        values=lower(read, 4),
        figures={
            "read": [min(lower(read, times)) for times in (2, 4)],
            "tuned": [min(lower(tuned, times)) for times in (2, 4)],
        },
        because="In this small model a larger base does at least as well, with and without fine-tuning. With 64 tokens "
        "the unchanged model loses hardly anything, so no method can do much better.",
    )
