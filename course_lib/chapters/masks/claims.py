"""Chapter 3: what a causal mask guarantees, and what happens without one."""

import math
import statistics
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.blocks import Stack
from course_lib.claims.rates import at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.claims.short_runs import tinytown_ids
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.gpt import IGNORED, DecoderOnly, evaluating, initialize, next_token_loss
from course_lib.heads import MultiHeadAttention
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import train

SEEDS = (0, 1, 2)


# ------------------------------------------------------------------------------------------------------------ leak test
def small_decoder(seed: int) -> DecoderOnly:
    """Return an untrained causal model whose weights are so large that every token matters."""
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
    """Change a token among 12. Return (the most that an earlier output changes, the least that its own output
    changes)."""
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


def leak_verdict(masked: float, own: float, unmasked: float) -> str:
    """State what a mask guarantees: a weight of exactly 0 lets nothing through, in any layer.

    by construction: no sum contains a later token; only a mistake in the code could let one through

    Errors: ValueError if this code has such a mistake, or if the same weights do not leak without the mask.
    """
    if masked > 1e-4 * own or unmasked < 0.01:  # a kernel may add the same numbers in another order: that is rounding
        raise ValueError(f"earlier outputs move by {masked:.1g} with the mask and by {unmasked:.1g} without it")
    return "by construction"


@experiment(
    "masks.leak",
    claim="With a causal mask no prediction depends on a later token.",
    source=Source(
        "Vaswani et al. 2017",
        "Attention Is All You Need",
        "https://arxiv.org/abs/1706.03762",
        place="§ 3.1",
        quote="This masking, combined with fact that the output embeddings are offset by one position, ensures that "
        "the predictions for position i can depend only on the known outputs at positions less than i.",
    ),
    control="the same weights without the mask; and the output at the changed token, which has to move",
    verdict=leak_verdict,
    seeds=SEEDS,
)
def leak() -> Measurement:
    masked, own, unmasked = [], [], []
    for seed in SEEDS:
        earlier, its_own = moved_by_a_change(small_decoder(seed))
        masked.append(earlier)
        own.append(its_own)
        unmasked.append(moved_by_a_change(without_mask(small_decoder(seed)))[0])
    return Measurement(
        measured=f"changing a token moves earlier outputs by {max(masked):.1f} with the mask, and by as much as "
        f"{max(unmasked):.1f} without it",
        values=[round(each, 4) for each in masked],
        figures={"masked": round(max(masked), 4), "own": min(own), "unmasked": min(unmasked)},
        because="A weight of exactly 0 lets nothing through, in any layer, so no path leads from a later token to an "
        "earlier one. The test is for your own code: it finds a mask that is wrong or missing.",
    )


# ------------------------------------------------------------------------------------------------- without a mask
T, STEPS, RATES = 32, 180, (0.01, 0.02, 0.04)
USUAL = Size()
MASKED, UNMASKED, NEVER_ASKED = "with a causal mask", "without a mask", "without a mask, last position not counted"


class NextWord(nn.Module):
    """Predict the next word at every position, with a causal mask or without any.

    The last position of a row has no answer to its right. With NEVER_ASKED it does not count in the loss.
    """

    def __init__(self, kind: str, d_model: int = 48):
        super().__init__()
        family = "decoder" if kind == MASKED else "encoder"
        self.counts_last = kind != NEVER_ASKED
        self.stack = Stack(TransformerConfig(len(WordTokenizer()), d_model, 4, 2, T, positions="rope", family=family))
        initialize(self.stack)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.stack(ids) @ self.stack.token_embedding.weight.T  # (B, T, V)
        if not self.counts_last:
            targets = torch.cat([targets[:, :-1], torch.full_like(targets[:, -1:], IGNORED)], dim=1)
        return logits, next_token_loss(logits, targets)


@cache
def train_next_word(kind: str, seed: int, rate: float = 0.008, size: Size = USUAL) -> NextWord:
    """Train a model on the next word of Tinytown's stories. kind: MASKED, UNMASKED or NEVER_ASKED.

    rate: the learning rate, by default the chapter's; the claim finds the best rate of each kind.
    """
    torch.manual_seed(seed)
    model = NextWord(kind, size.width(48))
    batches = Batches(tinytown_ids(), 8, T, torch.Generator().manual_seed(seed))
    train(model, batches, size.steps(STEPS), rate, 20, progress=False)
    return model


@cache
def _held_out() -> Tensor:
    stories = encode_stories(Tinytown(HELD_OUT_SEED).sample(250), WordTokenizer())
    return stories.unfold(0, T + 1, T + 1)  # (windows, T + 1)


ASKED = range(8, T + 1, 8)  # at inference: the number of words before the predicted one


def losses_of(model: NextWord) -> tuple[float, float]:
    """Return (loss as training sees it, loss at inference) in nats per word, on held-out stories.

    At inference the text ends before the predicted word, so the model reads only earlier words.
    """
    windows = _held_out()
    with evaluating(model):
        in_training = model(windows[:, :-1], windows[:, 1:])[1].item()
        logits = [
            model(windows[:, :known], windows[:, 1 : known + 1])[0][:, -1] for known in ASKED
        ]  # (windows, V) each
    losses = [F.cross_entropy(each, windows[:, known]).item() for each, known in zip(logits, ASKED)]
    return in_training, statistics.fmean(losses)


def loss_of_word_frequencies() -> float:
    """Return the loss on the same words, in nats per word, if we predict by frequency and read no text at all."""
    counts = torch.bincount(tinytown_ids(), minlength=len(WordTokenizer())).float() + 1
    return -(counts / counts.sum()).log()[_held_out()[:, ASKED]].mean().item()


def cheating_verdict(cheats: bool, unmasked: list[float], never_asked: list[float], uniform: float) -> str:
    """Compare the losses at inference with the loss of a uniform guess.

    confirmed: in training the loss without a mask is under half the loss with one, and at inference it is above a
        uniform guess's in every seed
    depends: the training loss is as low; at inference the loss is above a uniform guess's only if the last position
        of each row, which has no answer to its right, does not count in training
    refuted: the training loss is not as low, or at inference the loss is below a uniform guess's in both cases
    """
    fails, fails_unasked = min(unmasked) > uniform, min(never_asked) > uniform
    if not cheats or not (fails or fails_unasked):
        return "refuted"
    return "confirmed" if fails else "depends"


@experiment(
    "masks.cheating",
    claim="Without it, your model would cheat during training by looking ahead, and fail catastrophically at "
    "inference when future tokens don't exist yet.",
    source=Source(
        "The Neural Base",
        "The causal mask: upper triangle",
        "https://theneuralbase.com/attention-mechanisms/learn/beginner/the-causal-mask-upper-triangle/",
        place="Why this matters",
        quote="The causal mask was invented to enforce during training the exact constraint that exists at inference: "
        "each token can only depend on itself and its past, never its future. … Without it, your model would cheat "
        "during training by looking ahead, and fail catastrophically at inference when future tokens don't exist yet.",
    ),
    control="the same model, stories, steps and seeds with a causal mask; the same without a mask where the last "
    "position of each row does not count; a uniform guess and word frequencies; each model at its best rate",
    verdict=cheating_verdict,
    seeds=SEEDS,
)
def cheating(size: Size) -> Measurement:
    def losses(kind: str, rate: float, seed: int) -> tuple[float, float]:
        return losses_of(train_next_word(kind, seed, rate, size))

    kinds = MASKED, UNMASKED, NEVER_ASKED
    best = {kind: at_best_rate(partial(losses, kind), RATES, SEEDS) for kind in kinds}
    used = {kind: [at_inference for _, at_inference in best[kind].results] for kind in kinds}
    uniform = math.log(len(WordTokenizer()))
    seen, at_inference = best[UNMASKED].mean, {kind: statistics.fmean(used[kind]) for kind in kinds}
    return Measurement(
        measured=f"without a mask the loss is {seen:.1f} nats per word in training but {at_inference[UNMASKED]:.1f} at "
        f"inference; with a mask it is {best[MASKED].mean:.1f} and {at_inference[MASKED]:.1f}",
        values=used[UNMASKED],
        figures={
            "cheats": max(best[UNMASKED].losses) < min(best[MASKED].losses) / 2,
            "unmasked": used[UNMASKED],
            "never_asked": used[NEVER_ASKED],
            "uniform": uniform,
        },
        rows=(
            ("loss in nats per word", "at inference"),
            ("with a causal mask", f"{at_inference[MASKED]:.1f}"),
            ("word frequencies, no text read", f"{loss_of_word_frequencies():.1f}"),
            ("without a mask", f"{at_inference[UNMASKED]:.1f}"),
            ("a uniform guess", f"{uniform:.1f}"),
            ("without a mask, last positions not counted", f"{at_inference[NEVER_ASKED]:.1f}"),
        ),
        because="It depends on the last position of each row. At all others the model learns to read the next word one "
        "position to the right. Only the last positions teach it something for inference.",
    )


# -------------------------------------------------------------------------------------------------------- the empty row
def empty_row_verdict(apart: float, on_hidden: float, fits: list[bool]) -> str:
    """Compare a large negative number with −∞.

    confirmed: the weights are those of −∞ wherever a key is visible, a row without one puts no weight on hidden keys,
        and each format of numbers can hold the number
    depends: the weights are those of −∞ wherever a key is visible; a row without one, or a format, is an exception
    refuted: the weights differ where a key is visible
    """
    if apart > 1e-6:
        return "refuted"
    return "confirmed" if on_hidden < 1e-6 and all(fits) else "depends"


def can_hold(number: float, dtype: torch.dtype) -> bool:
    """Return whether `masked_fill` can write the number into scores of this format."""
    try:
        torch.zeros(1, dtype=dtype).masked_fill(torch.ones(1, dtype=torch.bool), number)
    except RuntimeError:
        return False
    return True


@experiment(
    "masks.empty_row",
    claim="Replace masked elements with a very large negative value, whose exponentiation outputs 0.",
    source=Source(
        "Zhang et al.",
        "Dive into Deep Learning",
        "https://d2l.ai/chapter_attention-mechanisms-and-transformers/attention-scoring-functions.html",
        place="Attention Scoring Functions, a comment in masked_softmax",
        quote="On the last axis, replace masked elements with a very large negative value, whose exponentiation "
        "outputs 0",
    ),
    control="the same scores with −∞ at the same positions; −1e6, the authors' value, and −1e9",
    verdict=empty_row_verdict,
    seeds=SEEDS,
)
def empty_row() -> Measurement:
    apart, on_hidden = [], []
    for seed in SEEDS:
        torch.manual_seed(seed)
        scores, mask = torch.randn(6, 6), torch.ones(6, 6, dtype=torch.bool).tril()
        infinite = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)
        nothing = torch.zeros(1, 6, dtype=torch.bool)
        for value in (-1e6, -1e9):
            apart.append((scores.masked_fill(~mask, value).softmax(dim=-1) - infinite).abs().max().item())
            on_hidden.append(scores[:1].masked_fill(~nothing, value).softmax(dim=-1).sum().item())
    formats = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    fits = {name: all(can_hold(value, dtype) for value in (-1e6, -1e9)) for name, dtype in formats.items()}
    return Measurement(
        measured=f"rows with a visible key differ by {max(apart):.1g} from those with −∞, but a row without one puts "
        f"{100 * max(on_hidden):.0f}% of its weight on hidden keys",
        values=on_hidden,
        figures={"apart": max(apart), "on_hidden": max(on_hidden), "fits": list(fits.values())},
        rows=(
            ("number format", "can hold −1e6 and −1e9"),
            *((name, "yes" if fit else "no") for name, fit in fits.items()),
        ),
        because="It depends on the row and on the number format. In a row without a visible key the weight goes to "
        "hidden keys, and −∞ gives NaN. In place of a score, the format's lowest number, torch.finfo(dtype).min, "
        "always fits.",
    )
