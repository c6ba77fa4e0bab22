"""Chapter 3: what a causal mask guarantees, and what happens without one."""

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from course_lib.blocks import Stack
from course_lib.claims.registry import Finding, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly, evaluating, initialize, next_token_loss
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import train

SEEDS = (0, 1, 2)


# ------------------------------------------------------------------------------------------------------------ leak test
def small_decoder(seed: int) -> DecoderOnly:
    """An untrained causal model whose weights are large enough for every token to matter."""
    torch.manual_seed(seed)
    model = DecoderOnly(TransformerConfig(vocab_size=50, d_model=32, n_heads=4, n_layers=2, max_seq_len=16))
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return model.eval()


@experiment("masks.leak", claim="With a causal mask no output depends on a later token.")
def leak() -> Finding:
    earlier, own = [], []
    for seed in SEEDS:
        model = small_decoder(seed)
        ids = torch.randint(50, (1, 12))
        with torch.no_grad():
            before = model(ids)
            for place in range(12):
                changed = ids.clone()
                changed[0, place] = (ids[0, place] + 1) % 50
                moved = (model(changed) - before).abs()[0].amax(dim=-1)  # (T,)
                earlier.append(moved[:place].max().item() if place else 0.0)
                own.append(moved[place].item())
    # The kernel may add the same numbers in another order: that is rounding, not information.
    nothing = max(earlier) < 1e-4 * min(own)
    return Finding(
        f"changing a token moves earlier outputs by {'0.0' if nothing else f'{max(earlier):.1g}'}, and "
        f"{'always' if min(own) > 0.01 else 'not always'} its own",
        tuple(max(earlier[12 * i : 12 * (i + 1)]) for i in range(len(SEEDS))),
        "confirmed" if nothing and min(own) > 0.01 else "refuted",
        "A weight of exactly 0 lets nothing through, in every layer; so no path leads from later to earlier.",
    )


# ------------------------------------------------------------------------------------------------- without a mask
T, STEPS, STORIES = 32, 250, 4000


class NextWord(nn.Module):
    """Names the next word at every place. family: "decoder" is masked, "encoder" sees the whole text."""

    def __init__(self, family: str):
        super().__init__()
        V = len(WordTokenizer())
        self.stack = Stack(TransformerConfig(V, 48, 4, 2, max_seq_len=T, positions="rope", family=family))
        initialize(self.stack)

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.stack(ids) @ self.stack.token_embedding.weight.T  # (B, T, V)
        return logits, next_token_loss(logits, targets)


@cache
def learn_next_word(masked: bool, seed: int) -> tuple[float, float]:
    """(loss as training sees it, loss in use) in nats per word.

    In use the model is given only the words before: the text ends where the next word is asked for.
    """
    torch.manual_seed(seed)
    tokenizer = WordTokenizer()
    ids = encode_stories(Tinytown(0).sample(STORIES), tokenizer)
    held_out = encode_stories(Tinytown(HELD_OUT_SEED).sample(250), tokenizer)
    model = NextWord("decoder" if masked else "encoder")
    train(model, Batches(ids, 8, T, torch.Generator().manual_seed(seed)), STEPS, 5e-3, 20, progress=False)
    windows = held_out.unfold(0, T + 1, T + 1)  # (windows, T + 1)
    in_use = []
    with evaluating(model):
        as_trained = model(windows[:, :-1], windows[:, 1:])[1].item()
        for known in range(8, T + 1, 8):
            logits, _ = model(windows[:, :known], windows[:, 1 : known + 1])
            in_use.append(F.cross_entropy(logits[:, -1], windows[:, known]).item())
    return as_trained, sum(in_use) / len(in_use)


@experiment("masks.cheating", claim="Without a mask the model cheats while training, and fails in use.")
def cheating() -> Finding:
    masked, bare = ([learn_next_word(flag, seed) for seed in SEEDS] for flag in (True, False))
    cheats = all(b[0] < 0.7 * m[0] for m, b in zip(masked, bare))
    fails = all(b[1] > m[1] + 0.5 for m, b in zip(masked, bare))
    seen, used = (max(b[0] for b in bare), min(b[1] for b in bare))
    return Finding(
        f"without a mask the loss is {'under' if seen < 1 else 'over'} 1 nat per word as training sees it and "
        f"{'over' if used > 2.5 else 'under'} 2.5 in use; with one it is {sum(m[0] for m in masked) / 3:.1f} and "
        f"{sum(m[1] for m in masked) / 3:.1f}",
        tuple(b[1] - m[1] for m, b in zip(masked, bare)),
        "confirmed" if cheats and fails else "refuted" if not cheats and not fails else "depends",
        "The next word stands one place to the right, so the model learns to look there. In use that place is empty.",
    )


# ----------------------------------------------------------------------------------------------------- one pass for all
@experiment("masks.one_pass", claim="Training a decoder takes one forward pass for every token.")
def one_pass() -> Finding:
    difference = []
    for seed in SEEDS:
        model = small_decoder(seed)
        ids = torch.randint(50, (1, 13))
        with torch.no_grad():
            together = model(ids[:, :-1])[0]  # (12, V): all places in one pass
            alone = torch.stack([model(ids[:, : t + 1])[0, -1] for t in range(12)])  # (12, V): one pass for each
        difference.append((together - alone).abs().max().item())
    same = max(difference) < 1e-4
    return Finding(
        f"one pass over 12 tokens and 12 passes over what stands before give "
        f"{'the same logits, up to rounding' if same else f'logits that differ by {max(difference):.1g}'}",
        tuple(round(each, 4) for each in difference),
        "refuted" if same else "confirmed",
        "Behind a causal mask every place computes what it would compute if the text ended there, so one pass trains "
        "all places. One pass per token is what generating takes.",
    )


# -------------------------------------------------------------------------------------------------------- the empty row
@experiment("masks.empty_row", claim="Filling hidden scores with −1e9 is as good as with −inf.")
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
