"""Chapter 5: what a Transformer knows about order, and how far each way of telling it reaches."""

from functools import cache
from itertools import permutations, repeat

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.blocks import Stack
from course_lib.claims.registry import Finding, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating, initialize
from course_lib.heads import MultiHeadAttention
from course_lib.positions import LearnedPositions, sinusoidal_encoding
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import train

SEEDS = (0, 1, 2)


# ------------------------------------------------------------------------------------------------------ shuffled tokens
@experiment("positions.invariance", claim="Self-attention is permutation-invariant.")
def shuffled_tokens() -> Finding:
    follows, same = [], []
    for seed in SEEDS:
        torch.manual_seed(seed)
        attention = MultiHeadAttention(d_model=16, n_heads=4).double()
        x = torch.randn(1, 6, 16, dtype=torch.float64)
        order = torch.tensor([5, 0, 1, 2, 3, 4])  # every token moves
        with torch.no_grad():
            before, after = attention(x), attention(x[:, order])
        follows.append((after - before[:, order]).abs().max().item())
        same.append((after - before).abs().max().item())
    follows_exactly = max(follows) < 1e-9
    verdict = "confirmed" if follows_exactly and max(same) < 1e-9 else "refuted"
    rounding = "nothing but rounding" if follows_exactly else f"{max(follows):.1g}"
    return Finding(
        f"shuffled tokens: the outputs at each place change by {sum(same) / len(same):.1f}, the outputs of each token "
        f"by {rounding}",
        tuple(same),
        verdict,
        "The outputs are shuffled as the tokens are: attention is equivariant. Invariant is what is left after "
        "averaging over the places.",
    )


# --------------------------------------------------------------------------------------------------------- who bit whom
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
    "all see all, no positions, 2 blocks": ("encoder", "none", 2),
    "causal, no positions, 1 block": ("decoder", "none", 1),
    "causal, no positions, 2 blocks": ("decoder", "none", 2),
    "all see all, sinusoids, 1 block": ("encoder", "sinusoidal", 1),
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


@experiment("positions.order", claim="Without position encodings a Transformer cannot tell who bit whom.")
def order_without_positions() -> Finding:
    right = {name: [learn_who_bit(name, seed) for seed in SEEDS] for name in ORDER_MODELS}
    none = [name for name in ORDER_MODELS if "no positions" in name]
    learnt = [name for name in none if min(right[name]) > 0.9]
    verdict = "confirmed" if not learnt else "refuted" if len(learnt) == len(none) else "depends"
    return Finding(
        "right answers: " + "; ".join(f"{name} {100 * sum(r) / len(r):.0f} %" for name, r in right.items()),
        tuple(right["causal, no positions, 2 blocks"]),
        verdict,
        "Where all see all, or in one causal block, the last token meets a bag of words. In a second causal block it "
        "meets tokens that have seen different pasts: the mask tells the order.",
    )


# ------------------------------------------------------------------------------------------------------------ sinusoids
@experiment("positions.slowest_hand", claim="At d_model = 512 the slowest pair turns once in 10,000 tokens.")
def slowest_hand() -> Finding:
    hand = sinusoidal_encoding(10_001, 512)[:, -2:].double()  # (10001, 2): sine and cosine of the slowest pair
    steps = torch.atan2(hand[1:, 0], hand[1:, 1]) - torch.atan2(hand[:-1, 0], hand[:-1, 1])
    turns = (steps.remainder(2 * torch.pi).sum() / (2 * torch.pi)).item()
    return Finding(
        f"after 10,000 tokens it has made {turns:.2f} of a turn",
        (turns,),
        "confirmed" if abs(turns - 1) < 0.05 else "refuted",
        "10,000 is the base of the divisor: the slowest hand turns by one radian in nearly 10,000 tokens, and a full "
        "turn has 2π radians.",
    )


def similarity(d_model: int, furthest: int) -> Tensor:
    """Cosine between the codes of position 0 and of position k, for k = 0 … furthest: the same for every two positions
    k apart."""
    table = sinusoidal_encoding(furthest + 1, d_model).double()
    return F.cosine_similarity(table[:1], table)  # (furthest + 1,)


@experiment("positions.near_and_far", claim="Sinusoidal codes of near positions are similar, those of far ones not.")
def near_and_far() -> Finding:
    curve = similarity(128, 1000)
    rises = curve.diff() > 0
    first_rise = int(rises.nonzero()[0]) if rises.any() else len(rises)
    share = rises[:100].float().mean().item()
    verdict = "confirmed" if not rises.any() else "depends" if curve[1] > 0.9 > curve[100] else "refuted"
    return Finding(
        f"d_model = 128: cosine {curve[1]:.2f} one apart, {curve[10]:.2f} ten apart, {curve[100]:.2f} a hundred apart; "
        f"it falls up to {first_rise} apart, then rises in {100 * share:.0f} of the first 100 steps",
        (share,),
        verdict,
        "The nearest are the most alike, but a sum of cosines goes up and down: further is not always less alike.",
    )


# ----------------------------------------------------------------------------------------------------- longer sequences
TRAINED, LENGTHS, JUDGED = 32, (32, 64, 96, 128), 16
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
def reach(scheme: str, seed: int, steps: int) -> dict[int, float]:
    """Loss (nats per token) on the same JUDGED words, given ever more of the text before them: length -> loss.

    The model has been trained on TRAINED tokens at a time. With `learned`, the rows beyond are as they were drawn.
    """
    torch.manual_seed(seed)
    V = len(WordTokenizer())
    model = DecoderOnly(TransformerConfig(V, 48, 4, 2, LENGTHS[-1], positions=scheme, tie_weights=False))
    tokens = model.token_embedding
    nn.init.normal_(tokens.weight, std=1 / tokens.factor)  # about as large as sinusoids, with every scheme
    if isinstance(model.positions, LearnedPositions):
        nn.init.normal_(model.positions.weight, std=0.5**0.5)  # as large as sinusoids are
    ids, windows = _texts()
    batches = Batches(ids, 8, TRAINED, torch.Generator().manual_seed(seed))
    train(model, batches, steps, peak=5e-3, warmup=20, progress=False)
    losses = {}
    for length in LENGTHS:
        with evaluating(model):
            logits = model(windows[:, -1 - length : -1])[:, -JUDGED:]  # (windows, JUDGED, V)
        losses[length] = F.cross_entropy(logits.flatten(0, 1), windows[:, -JUDGED:].flatten()).item()
    return losses


WORSE = 0.15  # nats: by how much longer texts must be predicted worse to count as such


def _growth(scheme: str, times: int) -> list[float]:
    """By how many nats the loss is higher at `times` the trained length, per seed."""
    losses = [reach(scheme, seed, STEPS) for seed in SEEDS]
    return [each[times * TRAINED] - each[TRAINED] for each in losses]


def _nats(changes: list[float]) -> str:
    """Their mean in words: as many digits as training gives alike on every machine."""
    mean = sum(changes) / len(changes)
    return next((f"over {step}" for step in (0.5, WORSE) if mean > step), f"under {WORSE}")


@experiment("positions.sinusoids_reach", claim="Sinusoids generalise to sequences longer than in training.")
def sinusoids_reach() -> Finding:
    growth = _growth("sinusoidal", 2)
    return Finding(
        f"trained on {TRAINED} tokens, given {2 * TRAINED}: the loss on the same words rises by {_nats(growth)} nats",
        tuple(growth),
        "refuted" if min(growth) > WORSE else "confirmed" if max(growth) < WORSE else "depends",
        "The formula has a value for every position, but the model has never met those values and does not know what "
        "they mean.",
    )


@experiment("positions.relative_reach", claim="RoPE and ALiBi are relative, so they generalise to longer sequences.")
def relative_reach() -> Finding:
    rope, alibi = ({times: _growth(scheme, times) for times in (2, 4)} for scheme in ("rope", "alibi"))
    hold = [max(growth[4]) < WORSE for growth in (rope, alibi)]
    return Finding(
        f"at 2 and 4 times the trained {TRAINED} tokens the loss rises by {_nats(rope[2])} and {_nats(rope[4])} nats "
        f"with RoPE, by {_nats(alibi[2])} and {_nats(alibi[4])} with ALiBi",
        tuple(rope[4]),
        "confirmed" if all(hold) else "depends" if any(hold) else "refuted",
        "Relative is not enough: RoPE meets distances that it has never seen, while ALiBi hardly looks that far.",
    )


@experiment("positions.learned_better", claim="Learned positions do slightly better than sinusoids.")
def learned_better() -> Finding:
    early, later = (
        [reach("learned", seed, steps)[TRAINED] - reach("sinusoidal", seed, steps)[TRAINED] for seed in SEEDS[:2]]
        for steps in (STEPS, LATER)
    )
    closes = sum(later) < 0.75 * sum(early)
    if max(later) < 0:
        verdict, because = "confirmed", f"After {LATER} steps the learned tables are ahead."
    elif closes:
        verdict = "depends"
        because = (
            "On the training: a table has to be learned first, so it starts behind and catches up. Vaswani et al. "
        )
        because += "2017 trained long and found nearly equal results."
    else:
        verdict, because = "refuted", "The learned tables are behind, and training does not close the gap."
    return Finding(
        f"after {STEPS} steps the table's loss is higher by {_nats(early)} nats; after {LATER} that gap has shrunk by "
        f"{'more' if closes else 'less'} than a quarter",
        tuple(later),
        verdict,
        because,
    )
