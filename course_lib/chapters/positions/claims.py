"""Chapter 5: what a Transformer knows about order, and how far each way of telling it reaches."""

import statistics
from functools import cache
from itertools import permutations, repeat

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.blocks import Stack
from course_lib.claims.registry import Finding, Source, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating, initialize
from course_lib.heads import MultiHeadAttention
from course_lib.positions import LearnedPositions, sinusoidal_encoding
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import train

SEEDS = (0, 1, 2)


def vaswani(section: str) -> Source:
    """A section of the paper that proposed the Transformer."""
    return Source("Vaswani et al. 2017", f"Attention Is All You Need, {section}", "https://arxiv.org/abs/1706.03762")


# ------------------------------------------------------------------------------------------------------ shuffled tokens
@experiment(
    "positions.invariance",
    claim="Self-attention is permutation-invariant.",
    source=Source(
        "Weng 2020", "The Transformer Family", "https://lilianweng.github.io/posts/2020-04-07-the-transformer-family/"
    ),
    control="the same tokens in their first order, compared in three ways: position by position, token by token, and "
    "as the mean over all positions",
    threshold="confirmed if nothing changes in any of the three but by rounding, depends if only what stands at each "
    "position changes, else refuted",
    seeds=SEEDS,
)
def shuffled_tokens() -> Finding:
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
    stays = [max(changes) < 1e-9 for changes in (by_position, by_token, by_mean)]
    told = ["nothing but rounding" if fine else f"{statistics.fmean(each):.1f}"
            for fine, each in zip(stays, (by_position, by_token, by_mean))]  # fmt: skip
    return Finding(
        f"shuffled tokens: the outputs at each position change by {told[0]}, those of each token by {told[1]}, their "
        f"mean by {told[2]}",
        tuple(by_position),
        "confirmed" if all(stays) else "depends" if stays[1] and stays[2] else "refuted",
        "Each token's own output and the mean do not care about the order: they are invariant. The sequence of outputs "
        "is shuffled as the tokens are: that is equivariant, and the word to use for self-attention.",
    )


# -------------------------------------------------------------------------------------------------------------- who bit
NOUNS = 6  # ids 0 … 5; then "bit" and "?"


class WhoBit(nn.Module):
    """Reads "a bit b ?" and names a: the logits of the last token, scored against the embedding table.

    family: "encoder" (every token sees every other) or "decoder" (causal). positions: as in TransformerConfig.
    """

    def __init__(self, family: str, positions: str, n_layers: int):
        super().__init__()
        self.stack = Stack(
            TransformerConfig(NOUNS + 2, 32, 2, n_layers, max_seq_len=4, positions=positions, family=family)
        )
        initialize(self.stack)
        tokens = self.stack.token_embedding
        nn.init.normal_(tokens.weight, std=0.5 / tokens.factor)  # about as large as sinusoids

    def forward(self, ids: Tensor, who: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.stack(ids)[:, -1] @ self.stack.token_embedding.weight.T  # (B, V)
        return logits, F.cross_entropy(logits, who)


def who_bit_whom() -> tuple[Tensor, Tensor]:
    """Every sentence "a bit b ?" of two different nouns (30, 4), and who did it (30,)."""
    sentences = torch.tensor([[a, NOUNS, b, NOUNS + 1] for a, b in permutations(range(NOUNS), 2)])
    return sentences, sentences[:, 0]


ORDER_MODELS = {  # name -> family, positions, blocks
    "bidirectional, no positions, 2 blocks": ("encoder", "none", 2),
    "causal, no positions, 1 block": ("decoder", "none", 1),
    "causal, no positions, 2 blocks": ("decoder", "none", 2),
    "bidirectional, sinusoids, 1 block": ("encoder", "sinusoidal", 1),
    "causal, sinusoids, 1 block": ("decoder", "sinusoidal", 1),
}


@cache
def learn_who_bit(name: str, seed: int, steps: int = 150) -> float:
    """Share of the 30 sentences that a model of ORDER_MODELS answers rightly after training on them."""
    torch.manual_seed(seed)
    model = WhoBit(*ORDER_MODELS[name])
    sentences, who = who_bit_whom()
    train(model, repeat((sentences, who)), steps, peak=3e-3, warmup=20, progress=False)
    with evaluating(model):
        return (model(sentences, who)[0].argmax(dim=-1) == who).float().mean().item()


KNOWS = 0.9  # the share of right answers from which a model knows the order


@experiment(
    "positions.order",
    claim="To make use of the order of the sequence, a Transformer must be given positions.",
    source=vaswani("§ 3.5"),
    control="the same small model with sinusoids; bidirectional and causal, with one block and with two; guessing "
    "gives one half",
    threshold=f"confirmed if no model without positions answers over {KNOWS} of the questions in every seed, refuted "
    "if all do, depends if some do",
    seeds=SEEDS,
)
def order_without_positions() -> Finding:
    right = {name: [learn_who_bit(name, seed) for seed in SEEDS] for name in ORDER_MODELS}
    none = [name for name in ORDER_MODELS if "no positions" in name]
    learnt = [name for name in none if min(right[name]) > KNOWS]
    verdict = "confirmed" if not learnt else "refuted" if len(learnt) == len(none) else "depends"
    return Finding(
        "right answers: " + "; ".join(f"{name} {100 * sum(r) / len(r):.0f} %" for name, r in right.items()),
        tuple(right["causal, no positions, 2 blocks"]),
        verdict,
        "In a bidirectional model, or in one causal block, the last token meets a bag of words. In a second causal "
        "block it meets tokens that have seen different pasts: the mask tells the order.",
    )


# ------------------------------------------------------------------------------------------------------------ sinusoids
def wavelengths(d_model: int, furthest: int = 10_000) -> Tensor:
    """Return the tokens per full rotation of each pair of the table, measured over `furthest` tokens: (d_model/2,)."""
    table = sinusoidal_encoding(furthest + 1, d_model).double()
    angles = torch.atan2(table[:, 0::2], table[:, 1::2])  # (furthest + 1, d_model/2)
    rotated = angles.diff(dim=0).remainder(2 * torch.pi).sum(dim=0)
    return furthest * 2 * torch.pi / rotated


@experiment(
    "positions.slowest_hand",
    claim="The wavelengths of the sinusoids form a geometric progression from 2π to 10000 · 2π.",
    source=vaswani("§ 3.5"),
    control="the wavelengths measured in the table, at d_model = 512 as in the paper, and at d_model = 8",
    threshold="confirmed if both first are within 1 % of 2π, each is a fixed multiple of the one before, and both last "
    "are within 1 % of 10000 · 2π; depends if all but the last holds; else refuted",
)
def slowest_hand() -> Finding:
    measured = {d_model: wavelengths(d_model) for d_model in (512, 8)}
    geometric = all(
        abs(waves[0] / (2 * torch.pi) - 1) < 0.01 and (waves[1:] / waves[:-1]).std() < 0.01
        for waves in measured.values()
    )
    last = {d_model: waves[-1].item() for d_model, waves in measured.items()}
    reached = all(abs(wave / (2 * torch.pi * 10_000) - 1) < 0.01 for wave in last.values())
    return Finding(
        f"the first wavelength is {measured[512][0]:.1f} tokens; the last {last[512]:,.0f} at d_model = 512 and "
        f"{last[8]:,.0f} at 8, where 10000 · 2π = {20_000 * torch.pi:,.0f}; after 10,000 tokens the slowest pair of "
        f"512 has made {10_000 / last[512]:.2f} of a rotation",
        tuple(last.values()),
        "confirmed" if geometric and reached else "depends" if geometric else "refuted",
        "The progression ends one step before 10000 · 2π, and that step is small only if there are many: the slowest "
        "of d_model / 2 pairs has the divisor 10000 to the power (d_model − 2) / d_model.",
    )


def similarity(d_model: int, furthest: int) -> Tensor:
    """Cosine between the codes of position 0 and of position k, for k = 0 … furthest: the same for every two positions
    k apart."""
    table = sinusoidal_encoding(furthest + 1, d_model).double()
    return F.cosine_similarity(table[:1], table)  # (furthest + 1,)


@experiment(
    "positions.near_and_far",
    claim="The similarity of sinusoidal positions decays nicely with their distance, the same to both sides.",
    source=Source(
        "Kazemnejad 2019",
        "Transformer Architecture: The Positional Encoding",
        "https://kazemnejad.com/blog/transformer_architecture_positional_encoding/",
    ),
    control="every distance up to 1,000, and the same distances to the left and to the right of position 500",
    threshold="confirmed if it falls at every step and is the same to both sides; depends if it is, and falls below "
    "0.9 from a neighbour to a hundred positions on, but not at every step; else refuted",
)
def near_and_far() -> Finding:
    curve = similarity(128, 1000)
    middle = sinusoidal_encoding(1001, 128).double()
    sides = F.cosine_similarity(middle[500:501], middle)  # (1001,)
    same = torch.allclose(sides[:500], sides[501:].flip(0), atol=1e-4)
    rises = curve.diff() > 0
    first_rise = int(rises.nonzero()[0]) if rises.any() else len(rises)
    share = rises[:100].float().mean().item()
    verdict = "refuted" if not same or not curve[1] > 0.9 > curve[100] else "depends" if rises.any() else "confirmed"
    return Finding(
        f"d_model = 128: cosine {curve[1]:.2f} one apart, {curve[10]:.2f} ten apart, {curve[100]:.2f} a hundred apart; "
        f"it falls up to {first_rise} apart, then rises in {100 * share:.0f} of the first 100 steps; to the left "
        f"{'as' if same else 'other than'} to the right",
        (share,),
        verdict,
        "The nearest are the most alike, but a sum of cosines goes up and down: further is not always less alike.",
    )


# ----------------------------------------------------------------------------------------------------- longer sequences
TRAINED, LENGTHS, JUDGED = 32, (32, 64, 96, 128), 16  # tokens
SCHEMES = ("sinusoidal", "learned", "rope", "alibi")
STEPS, LATER, STORIES = 250, 600, 4000


@cache
def _texts() -> tuple[Tensor, Tensor]:
    """Ids to train on, and held-out windows of max(LENGTHS) + 1 tokens."""
    tokenizer = WordTokenizer()
    ids = encode_stories(Tinytown(0).sample(STORIES), tokenizer)
    held_out = encode_stories(Tinytown(HELD_OUT_SEED).sample(700), tokenizer)
    return ids, held_out.unfold(0, LENGTHS[-1] + 1, LENGTHS[-1] + 1)  # (windows, 129)


@cache
def _reader(scheme: str, seed: int, steps: int) -> DecoderOnly:
    """Train a model on TRAINED tokens at a time. With `learned`, the rows beyond are as they were drawn."""
    torch.manual_seed(seed)
    V = len(WordTokenizer())
    model = DecoderOnly(TransformerConfig(V, 48, 4, 2, LENGTHS[-1], positions=scheme, tie_weights=False))
    tokens = model.token_embedding
    nn.init.normal_(tokens.weight, std=1 / tokens.factor)  # about as large as sinusoids, with every scheme
    if isinstance(model.positions, LearnedPositions):
        nn.init.normal_(model.positions.weight, std=0.5**0.5)  # as large as sinusoids are
    batches = Batches(_texts()[0], 8, TRAINED, torch.Generator().manual_seed(seed))
    train(model, batches, steps, peak=5e-3, warmup=20, progress=False)
    return model


def _judge(model: DecoderOnly, length: int) -> float:
    windows = _texts()[1]
    with evaluating(model):
        logits = model(windows[:, -1 - length : -1])[:, -JUDGED:]  # (windows, JUDGED, V)
    return F.cross_entropy(logits.flatten(0, 1), windows[:, -JUDGED:].flatten()).item()


@cache
def reach(scheme: str, seed: int, steps: int) -> dict[int, float]:
    """Loss (nats per token) on the same JUDGED words, given ever more of the text before them: length -> loss."""
    model = _reader(scheme, seed, steps)
    return {length: _judge(model, length) for length in LENGTHS}


def reach_with_a_window(scheme: str, seed: int, steps: int) -> float:
    """Loss on the longest texts if no token sees further back than it did in training: no distance is new."""
    model, position = _reader(scheme, seed, steps), torch.arange(LENGTHS[-1])
    near = position[:, None] - position < TRAINED  # (T, S); the model adds its causal mask
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


WORSE = 0.15  # nats: by how much longer texts must be predicted worse to count as such


def _growth(scheme: str, times: int) -> list[float]:
    """By how many nats the loss is higher at `times` the trained length, per seed."""
    losses = [reach(scheme, seed, STEPS) for seed in SEEDS]
    return [each[times * TRAINED] - each[TRAINED] for each in losses]


@experiment(
    "positions.sinusoids_reach",
    claim="Sinusoids allow the model to extrapolate to sequences longer than those met in training.",
    source=vaswani("§ 3.5"),
    control=f"the loss on the same {JUDGED} words with no more text than in training; and ALiBi, trained alike",
    threshold=f"confirmed if at twice the trained length the loss rises by less than {WORSE} nats in every seed, "
    "refuted if by more in every seed, else depends",
    seeds=SEEDS,
)
def sinusoids_reach() -> Finding:
    growth, beside = _growth("sinusoidal", 2), _growth("alibi", 2)
    return Finding(
        f"trained on {TRAINED} tokens, given {2 * TRAINED}: the loss on the same words changes by "
        f"{statistics.fmean(growth):+.1f} nats, with ALiBi by {statistics.fmean(beside):+.1f}",
        tuple(growth),
        "refuted" if min(growth) > WORSE else "confirmed" if max(growth) < WORSE else "depends",
        "The formula has a value for every position, but the model has never met those values and does not know what "
        "they mean. (The authors said “may”; Press et al. 2022 measured the same in larger models.)",
    )


@experiment(
    "positions.relative_reach",
    claim="Relative encodings, such as RoPE and ALiBi, mitigate the loss at lengths not seen in training.",
    source=Source(
        "hchautran",
        "Relative Positional Encoding",
        "https://hchautran.github.io/notes/Relative-Positional-Encoding",
    ),
    control=f"sinusoids, trained alike; and the loss on the same {JUDGED} words with no more text than in training",
    threshold=f"confirmed if at 2 and at 4 times the trained length the loss rises by {WORSE} nats less than with "
    "sinusoids, with both and in every seed; refuted if nowhere, else depends",
    seeds=SEEDS,
)
def relative_reach() -> Finding:
    growth = {scheme: {times: _growth(scheme, times) for times in (2, 4)} for scheme in ("rope", "alibi", "sinusoidal")}
    mitigated = [
        min(far - near for far, near in zip(growth["sinusoidal"][times], growth[scheme][times])) > WORSE
        for scheme in ("rope", "alibi")
        for times in (2, 4)
    ]
    rope, alibi, sinusoids = (
        f"{statistics.fmean(each[2]):+.1f} and {statistics.fmean(each[4]):+.1f}" for each in growth.values()
    )
    return Finding(
        f"at 2 and 4 times the trained {TRAINED} tokens the loss changes by {rope} nats with RoPE, by {alibi} with "
        f"ALiBi, by {sinusoids} with sinusoids",
        tuple(growth["rope"][4]),
        "confirmed" if all(mitigated) else "depends" if any(mitigated) else "refuted",
        "Relative is not enough: far on, RoPE meets distances that it has never seen. What ALiBi subtracts goes on "
        "along the same line.",
    )


NEARLY = 0.05  # nats: results that differ by less are nearly identical


@experiment(
    "positions.learned_equal",
    claim="Learned positions and sinusoids give nearly identical results.",
    source=vaswani("§ 3.5 and table 3"),
    control="the same model, stories and seeds, both tables equally large at initialisation; and a longer training",
    threshold=f"confirmed if after {STEPS} and after {LATER} steps the losses differ by less than {NEARLY} nats in "
    f"every seed; depends if the longer training takes a quarter of the difference away; else refuted",
    seeds=SEEDS,
)
def learned_equal() -> Finding:
    early, later = (
        [reach("learned", seed, steps)[TRAINED] - reach("sinusoidal", seed, steps)[TRAINED] for seed in SEEDS]
        for steps in (STEPS, LATER)
    )
    closes = abs(sum(later)) < 0.75 * abs(sum(early))
    equal = max(map(abs, early + later)) < NEARLY
    return Finding(
        f"the loss with a learned table is higher by {statistics.fmean(early):.1f} nats after {STEPS} steps, by "
        f"{statistics.fmean(later):.1f} after {LATER}",
        tuple(later),
        "confirmed" if equal else "depends" if closes else "refuted",
        "A table has to be learned first, so its loss is higher at first, and the gap narrows with training. Vaswani "
        "et al. trained long.",
    )
