"""Chapter 3: what a causal mask guarantees, and what happens without one."""

import statistics
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.blocks import Stack
from course_lib.claims.registry import Finding, Source, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating, initialize, next_token_loss
from course_lib.heads import MultiHeadAttention
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import train

SEEDS = (0, 1, 2)
JURAFSKY_MARTIN = "https://web.stanford.edu/~jurafsky/slp3/"


# ------------------------------------------------------------------------------------------------------------ leak test
def small_decoder(seed: int) -> DecoderOnly:
    """Return an untrained causal model whose weights are large enough for every token to matter."""
    torch.manual_seed(seed)
    model = DecoderOnly(TransformerConfig(vocab_size=50, d_model=32, n_heads=4, n_layers=2, max_seq_len=16))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


def without_mask(model: nn.Module) -> nn.Module:
    """Let every token of a causal model see every other, with the same weights."""
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.register_forward_pre_hook(
                lambda module, inputs, given: (inputs, given | {"is_causal": False}), with_kwargs=True
            )
    return model


def moved_by_a_change(model: nn.Module) -> tuple[float, float]:
    """Return (the most that an output before a changed token moves, the least that its own moves), over 12 tokens."""
    ids = torch.randint(50, (1, 12))
    earlier, own = [0.0], []
    with torch.no_grad():
        before = model(ids)
        for position in range(12):
            changed = ids.clone()
            changed[0, position] = (ids[0, position] + 1) % 50
            moved = (model(changed) - before).abs()[0].amax(dim=-1)  # (T,)
            earlier += moved[:position].tolist()
            own.append(moved[position].item())
    return max(earlier), min(own)


@experiment(
    "masks.leak",
    claim="With a causal mask no output depends on a later token.",
    source=Source("Vaswani et al. 2017", "Attention Is All You Need, § 3.1", "https://arxiv.org/abs/1706.03762"),
    control="the same weights without the mask; and the changed token's own output, which has to move",
    threshold="confirmed if with the mask no earlier output moves by a 10,000th of the changed token's own, and "
    "without it some move by over 0.01; else refuted",
    seeds=SEEDS,
)
def leak() -> Finding:
    masked, own, bare = [], [], []
    for seed in SEEDS:
        earlier, its_own = moved_by_a_change(small_decoder(seed))
        masked.append(earlier)
        own.append(its_own)
        bare.append(moved_by_a_change(without_mask(small_decoder(seed)))[0])
    # The kernel may add the same numbers in another order: that is rounding, not information.
    nothing = max(masked) < 1e-4 * min(own)
    return Finding(
        f"changing a token moves earlier outputs by {'0.0' if nothing else f'{max(masked):.1g}'} with the mask and by "
        f"as much as {max(bare):.1f} without; its own output always moves, by {min(own):.1f} or more",
        tuple(masked),
        "confirmed" if nothing and min(bare) > 0.01 else "refuted",
        "A weight of exactly 0 lets nothing through, in every layer; so no path leads from later to earlier.",
    )


# ------------------------------------------------------------------------------------------------- without a mask
T, STEPS, STORIES = 32, 250, 4000


class NextWord(nn.Module):
    """Name the next word at every position. family: "decoder" is masked, "encoder" sees the whole text."""

    def __init__(self, family: str):
        super().__init__()
        V = len(WordTokenizer())
        self.stack = Stack(TransformerConfig(V, 48, 4, 2, max_seq_len=T, positions="rope", family=family))
        initialize(self.stack)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.stack(ids) @ self.stack.token_embedding.weight.T  # (B, T, V)
        return logits, next_token_loss(logits, targets)


@cache
def train_next_word(masked: bool, seed: int) -> NextWord:
    """Train a model on the next word of Tinytown's stories, with a causal mask or without any."""
    torch.manual_seed(seed)
    ids = encode_stories(Tinytown(0).sample(STORIES), WordTokenizer())
    model = NextWord("decoder" if masked else "encoder")
    train(model, Batches(ids, 8, T, torch.Generator().manual_seed(seed)), STEPS, 5e-3, 20, progress=False)
    return model


def losses_of(model: NextWord) -> tuple[float, float]:
    """Return (loss as training sees it, loss at inference) in nats per word, on held-out stories.

    At inference the model is given only the words before: the text ends where the next word is asked for.
    """
    held_out = encode_stories(Tinytown(HELD_OUT_SEED).sample(250), WordTokenizer())
    windows = held_out.unfold(0, T + 1, T + 1)  # (windows, T + 1)
    at_inference = []
    with evaluating(model):
        as_trained = model(windows[:, :-1], windows[:, 1:])[1].item()
        for known in range(8, T + 1, 8):
            logits, _ = model(windows[:, :known], windows[:, 1 : known + 1])
            at_inference.append(F.cross_entropy(logits[:, -1], windows[:, known]).item())
    return as_trained, sum(at_inference) / len(at_inference)


def learn_next_word(masked: bool, seed: int) -> tuple[float, float]:
    """Train, and return (loss as training sees it, loss at inference) in nats per word."""
    return losses_of(train_next_word(masked, seed))


CHEATS, FAILS = 0.7, 0.5  # of the loss with a mask; nats more than with a mask


@experiment(
    "masks.cheating",
    claim="Without a mask the next word is easy to guess in training, and nothing is learned for inference.",
    source=Source(
        "Jurafsky & Martin", "Speech and Language Processing, Transformers: masking the future", JURAFSKY_MARTIN
    ),
    control="the same model, stories, steps and seeds, with a causal mask",
    threshold=f"confirmed if without the mask, in every seed, the training loss is below {CHEATS} of that with it and "
    f"the loss at inference over {FAILS} nats higher; depends if one of the two, else refuted",
    seeds=SEEDS,
)
def cheating() -> Finding:
    masked, bare = ([learn_next_word(flag, seed) for seed in SEEDS] for flag in (True, False))
    cheats = all(b[0] < CHEATS * m[0] for m, b in zip(masked, bare))
    fails = all(b[1] > m[1] + FAILS for m, b in zip(masked, bare))
    (seen, used), (seen_masked, used_masked) = (map(statistics.fmean, zip(*each)) for each in (bare, masked))
    return Finding(
        f"loss in nats per word without a mask: {seen:.1f} in training, {used:.1f} at inference; with one "
        f"{seen_masked:.1f} and {used_masked:.1f}",
        tuple(b[1] - m[1] for m, b in zip(masked, bare)),
        "confirmed" if cheats and fails else "refuted" if not cheats and not fails else "depends",
        "The next word stands one position to the right, so the model learns to look there. At inference that position "
        "is empty.",
    )


# ----------------------------------------------------------------------------------------------------- one pass for all
def one_pass_against_many(model: nn.Module) -> float:
    """Return the largest difference of a logit between one pass over 12 tokens and 12, each over what stands before."""
    ids = torch.randint(50, (1, 12))
    with torch.no_grad():
        together = model(ids)[0]  # (12, V): all positions in one pass
        alone = torch.stack([model(ids[:, : t + 1])[0, -1] for t in range(12)])  # (12, V): one pass for each
    return (together - alone).abs().max().item()


@experiment(
    "masks.one_pass",
    claim="All predictions of a training text are made in parallel, in one forward pass.",
    source=Source("Jurafsky & Martin", "Speech and Language Processing, Transformers: training", JURAFSKY_MARTIN),
    control="one pass over each beginning of the text; and the same two without the mask",
    threshold="confirmed if the logits of one pass and of 12 agree to 0.0001 with the mask, and differ by over 0.01 "
    "without; else refuted",
    seeds=SEEDS,
)
def one_pass() -> Finding:
    masked, bare = [], []
    for seed in SEEDS:
        masked.append(one_pass_against_many(small_decoder(seed)))
        bare.append(one_pass_against_many(without_mask(small_decoder(seed))))
    same = max(masked) < 1e-4
    return Finding(
        f"one pass over 12 tokens and 12 passes over what stands before give "
        f"{'the same logits, up to rounding' if same else f'logits that differ by {max(masked):.1g}'}; without the "
        f"mask they differ by {min(bare):.1f} or more",
        tuple(round(each, 4) for each in masked),
        "confirmed" if same and min(bare) > 1e-2 else "refuted",
        "Behind a causal mask every position computes what it would compute if the text ended there, so one pass "
        "trains all. It is generating that takes one pass for each token.",
    )


# -------------------------------------------------------------------------------------------------------- the empty row
@experiment(
    "masks.empty_row",
    claim="A very large negative number in place of a hidden score gives it the weight 0.",
    source=Source(
        "Zhang et al.",
        "Dive into Deep Learning, Attention Scoring Functions: masked softmax",
        "https://d2l.ai/chapter_attention-mechanisms-and-transformers/attention-scoring-functions.html",
    ),
    control="the same scores with −inf in the same places",
    threshold="confirmed if it does in every row and in float16; depends if in rows where some key may be seen; else "
    "refuted",
    seeds=SEEDS,
)
def empty_row() -> Finding:
    apart, on_forbidden = [], []
    for seed in SEEDS:
        torch.manual_seed(seed)
        scores, mask = torch.randn(6, 6), torch.ones(6, 6, dtype=torch.bool).tril()
        large, infinite = (scores.masked_fill(~mask, fill).softmax(dim=-1) for fill in (-1e9, -torch.inf))
        apart.append((large - infinite).abs().max().item())
        nothing = torch.zeros(1, 6, dtype=torch.bool)
        on_forbidden.append(scores[:1].masked_fill(~nothing, -1e9).softmax(dim=-1).sum().item())
    try:
        torch.zeros(1, dtype=torch.float16).masked_fill(torch.ones(1, dtype=torch.bool), -1e9)
        fits = True
    except RuntimeError:
        fits = False
    safe = max(on_forbidden) < 1e-6 and fits
    return Finding(
        f"rows with a key differ by {max(apart):.1g}; a row without any key puts {100 * max(on_forbidden):.0f} % of "
        f"its weight on hidden keys; in float16 −1e9 {'can' if fits else 'cannot'} be written",
        tuple(on_forbidden),
        "refuted" if max(apart) > 1e-6 else "confirmed" if safe else "depends",
        "Where something may be seen the two agree. Where nothing may, −1e9 shares the weight out among the hidden "
        "keys without a word, and −inf gives NaN: such a row needs a rule of its own.",
    )
