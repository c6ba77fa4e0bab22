"""Chapter 11: what is said about cross-attention, and about reading both sides.

What the experiments and the chapter use stands beside: `translator` and `masked_reader`, each with its recipe.
"""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from course_lib.chapters.encoder_decoder.masked_reader import MASK, MaskedReader, passage
from course_lib.chapters.encoder_decoder.masked_reader import MaskedBatches as MaskedBatches
from course_lib.chapters.encoder_decoder.masked_reader import fill as fill
from course_lib.chapters.encoder_decoder.translator import TranslatorRecipe as TranslatorRecipe
from course_lib.chapters.encoder_decoder.translator import pair_batch, pair_batches, stack, translate, translator_config
from course_lib.claims.registry import Finding, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.encoder_decoder import EncoderDecoder, EncoderOnly
from course_lib.gpt import IGNORED, DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown, WordTokenizer, split_words
from course_lib.tinytown.french import WORDS, TinytownPairs
from course_lib.trace import trace
from course_lib.training import train

HELD_OUT = tuple(HELD_OUT_SEED + i for i in range(3))  # pairs and stories of these seeds are for measuring only
SEEDS = (0, 1, 2)


def _random_translator(seed: int, n_layers: int = 3) -> tuple[EncoderDecoder, tuple[Tensor, ...]]:
    """An untrained translator with weights large enough to matter, and a batch of eight pairs."""
    torch.manual_seed(seed)
    tokenizer = TinytownPairs().tokenizer()
    model = EncoderDecoder(translator_config(tokenizer, n_layers=n_layers)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model, pair_batch(TinytownPairs(HELD_OUT_SEED + seed).sample(8), tokenizer)


def _distance(found: Tensor, wanted: Tensor) -> float:
    """How far apart, as a share of the wanted tensor's size."""
    return ((found - wanted).norm() / wanted.norm()).item()


@experiment("encoder_decoder.wiring", claim="Each decoder layer reads the encoder layer that stands at its own height.")
def wiring() -> Finding:
    """The keys that each decoder block sees, against those that either wiring would give."""
    at_own_height, at_the_top = [], []
    for seed in SEEDS:
        model, (source_ids, target_ids, source_mask, _) = _random_translator(seed)
        with evaluating(model), trace(model) as seen:
            model(source_ids, target_ids, source_mask)
            for i, block in enumerate(model.decoder.blocks[:-1]):  # at the last block the two are one
                keys = seen[f"decoder.blocks.{i}.cross_attention.k_proj"]  # (B, S, d_model)
                project = block.get_submodule("cross_attention.k_proj")
                at_own_height.append(_distance(keys, project(model.encoder.final_norm(seen[f"encoder.blocks.{i}"]))))
                at_the_top.append(_distance(keys, project(seen["encoder"])))
    same = max(at_the_top) < 1e-6 < min(at_own_height)
    return Finding(
        f"keys of the lower decoder blocks: {max(at_the_top):.0%} away from what the top of the encoder gives, "
        f"{'far' if min(at_own_height) > 0.1 else 'not far'} from what the layer of equal height gives",
        tuple(at_the_top),
        "refuted" if same else "confirmed",
        "every decoder layer reads the top of the encoder stack, computed once",
    )


@experiment(
    "encoder_decoder.one_pass", claim="A decoder learns from a text with one forward pass for each of its tokens."
)
def one_pass() -> Finding:
    """Logits of all positions in one pass, against one pass per position."""
    differences = []
    for seed in SEEDS:
        model, (source_ids, target_ids, source_mask, _) = _random_translator(seed)
        with evaluating(model):
            at_once = model(source_ids, target_ids, source_mask)  # (B, T, V)
            T = target_ids.shape[1]
            one_by_one = [model(source_ids, target_ids[:, : t + 1], source_mask)[:, -1] for t in range(T)]
        differences.append(_distance(torch.stack(one_by_one, dim=1), at_once))
    equal = max(differences) < 1e-4
    return Finding(
        f"one pass gives the logits of all positions; {'less than 0.01 %' if equal else f'{max(differences):.1%}'} "
        "away from one pass per position",
        tuple(differences),
        "refuted" if equal else "confirmed",
        "in training the right words before each place are known (teacher forcing) and the mask hides the rest, so one "
        "pass teaches all places; only generating needs a pass per token",
    )


KINDS = {
    "nouns": ("animal", "animals", "thing", "things", "place", "places"),
    "articles": ("one", "none", "many"),
    "adjectives": ("size", "colour", "mood"),
}
AUXILIARIES = ("a", "ont")  # il a dormi, ils ont dormi: French needs a second word where English has one


def kind_of(english: str, french: str) -> str:
    """Which kind of word a French word and the English word behind it are."""
    if french in AUXILIARIES:
        return "auxiliaries"
    return next((kind for kind, slots in KINDS.items() if any(english in WORDS[slot] for slot in slots)), "the rest")


def looked_at(
    model: EncoderDecoder, tokenizer: WordTokenizer, seed: int, n: int = 200
) -> list[tuple[str, Tensor, float, Tensor]]:
    """For each French word of n held-out sentences: (kind, does each head of the last decoder block look most at the
    English word that it translates (H,), is the model's guess right, each head's cut away in turn (H,))."""
    pairs = TinytownPairs(seed)
    sample = pairs.sample(n)
    source_ids, target_ids, source_mask, targets = pair_batch(sample, tokenizer)
    with evaluating(model), trace(model, "*cross_attention.weights") as seen:
        guesses = model(source_ids, target_ids, source_mask).argmax(dim=-1)  # (B, T)
    favourite = list(seen.values())[-1].argmax(dim=-1)  # (B, H, T)
    without = []
    for head in range(model.config.n_heads):
        with cut_head(model, head), evaluating(model):
            without.append(model(source_ids, target_ids, source_mask).argmax(dim=-1))  # (B, T)
    cut = torch.stack(without, dim=-1)  # (B, T, H)
    found = []
    for row, (english, french) in enumerate(sample):
        words, translated = split_words(english), split_words(french)
        for source, t in pairs.alignment(english):
            wanted = targets[row, t]
            hit = (favourite[row, :, t] == source).float()  # (H,)
            kept = (cut[row, t] == wanted).float()  # (H,)
            found.append((kind_of(words[source], translated[t]), hit, float(guesses[row, t] == wanted), kept))
    return found


@contextmanager
def cut_head(model: EncoderDecoder, head: int) -> Iterator[None]:
    """Silence one head of the last decoder block's cross-attention: zeros where it would speak."""
    size = model.config.d_head

    def silence(_, inputs):
        heads = inputs[0].clone()  # (B, T, H · D)
        heads[..., head * size : (head + 1) * size] = 0
        return (heads,)

    handle = model.decoder.blocks[-1].get_submodule("cross_attention.out_proj").register_forward_pre_hook(silence)
    try:
        yield
    finally:
        handle.remove()


def _shares(found: list[tuple[str, float]]) -> dict[str, float]:
    """Mean for each kind of word."""
    kinds = dict.fromkeys(kind for kind, _ in found)
    return {kind: statistics.fmean(value for name, value in found if name == kind) for kind in kinds}


def _said(shares: dict[str, float], *kinds: str) -> str:
    return ", ".join(f"{kind} {shares[kind]:.0%}" for kind in kinds)


def aligning_head(model: EncoderDecoder, tokenizer: WordTokenizer) -> int:
    """The head that looks most often at the translated word, found on sentences of its own."""
    found = looked_at(model, tokenizer, HELD_OUT_SEED - 1, 100)
    return int(torch.stack([hit for _, hit, _, _ in found]).mean(dim=0).argmax())


@experiment("encoder_decoder.alignment", claim="Cross-attention looks at the source word that is being translated.")
def alignment() -> Finding:
    """The weights of the shipped translator's better head against the grammar's own alignment."""
    model, tokenizer = load_pretrained("translator")
    head = aligning_head(model, tokenizer)
    found = [[(kind, hit[head].item()) for kind, hit, *_ in looked_at(model, tokenizer, seed)] for seed in HELD_OUT]
    shares = tuple(statistics.fmean(hit for _, hit in words) for words in found)
    by_kind = _shares([word for words in found for word in words])
    share = statistics.fmean(shares)
    return Finding(
        f"the largest weight of head {head} is on the translated word for {share:.0%} of the French words: "
        + _said(by_kind, "nouns", "adjectives", "articles", "auxiliaries"),
        shares,
        "confirmed" if share > 0.95 else "depends" if share > 0.5 else "refuted",
        "it holds for one head, and for words that have a meaning to fetch; an auxiliary (a, ont) has none, so its "
        "weight may lie anywhere",
    )


@experiment("encoder_decoder.heads", claim="The heads of one cross-attention all do the same work.")
def heads() -> Finding:
    """Silence one head of the shipped translator at a time: which words go wrong?"""
    model, tokenizer = load_pretrained("translator")
    head = aligning_head(model, tokenizer)
    other = next(i for i in range(model.config.n_heads) if i != head)
    gaps: list[float] = []
    without: dict[int, list[tuple[str, float]]] = {head: [], other: []}
    for seed in HELD_OUT:
        words = looked_at(model, tokenizer, seed)
        lost = {i: _shares([(kind, kept[i].item()) for kind, _, _, kept in words]) for i in (head, other)}
        gaps.append(lost[other]["nouns"] - lost[head]["nouns"])
        for i in (head, other):
            without[i] += [(kind, kept[i].item()) for kind, _, _, kept in words]
    kinds = ("nouns", "adjectives", "articles")
    return Finding(
        f"right without head {head}: {_said(_shares(without[head]), *kinds)}; "
        f"without head {other}: {_said(_shares(without[other]), *kinds)}",
        tuple(gaps),
        "refuted" if min(gaps) > 0.2 else "depends" if max(gaps) > 0.05 else "confirmed",
        f"head {head} fetches the word to translate, head {other} the noun whose gender articles and adjectives need",
    )


@experiment(
    "encoder_decoder.padding", claim="Padding in the source needs no mask: its vectors mean nothing to the model."
)
def padding() -> Finding:
    """Translations of short sentences that share a batch with long ones, with the padding mask and without."""
    model, tokenizer = load_pretrained("translator")
    masked: list[float] = []
    unmasked: list[float] = []
    for seed in HELD_OUT:
        pairs = sorted(TinytownPairs(seed).sample(300), key=lambda pair: len(split_words(pair[0])))
        batch = [*pairs[:100], pairs[-1]]  # the last one sets the length of all
        english = [pair[0] for pair in batch]
        for use_mask, shares in ((True, masked), (False, unmasked)):
            found = translate(model, tokenizer, english, use_mask)
            shares.append(statistics.fmean(ours == french for ours, (_, french) in zip(found[:100], batch)))
    lost = statistics.fmean(masked) - statistics.fmean(unmasked)
    return Finding(
        f"short sentences beside a long one: {statistics.fmean(masked):.0%} right with the mask, "
        f"{statistics.fmean(unmasked):.0%} without",
        tuple(unmasked),
        "refuted" if lost > 0.05 else "confirmed",
        "softmax gives every key a share, and a padding vector has a value like any other"
        if lost > 0.05
        else "this model was not disturbed by it",
    )


def both_sides_and_left(seed: int, n: int = 60) -> tuple[float, float]:
    """Share of words that the reader of blanks guesses from both sides, and that the shipped language model guesses
    from the left alone: every word of n held-out passages, one hidden at a time."""
    encoder, tokenizer = load_pretrained("masked")
    assert isinstance(encoder, EncoderOnly)
    decoder, words = load_pretrained("tinytown")
    both, left = [], []
    for story in Tinytown(seed).sample(n):
        ids = torch.tensor(words.encode(passage(story)))  # (T,); both vocabularies begin alike
        places = torch.arange(1, len(ids) - 1)  # all but <bos> and <eos>
        hidden = ids.repeat(len(places), 1)  # (T − 2, T): a row for each place
        hidden[places - 1, places] = tokenizer.id(MASK)
        with evaluating(encoder), evaluating(decoder):
            guesses = MaskedReader(encoder)(hidden)[places - 1, places].argmax(dim=-1)  # (T − 2,)
            both += (guesses == ids[places]).tolist()
            left += (decoder(ids[None, :-1])[0, :-1].argmax(dim=-1) == ids[places]).tolist()
    return statistics.fmean(both), statistics.fmean(left)


@experiment(
    "encoder_decoder.both_sides", claim="A model that sees both sides fills a blank better than one that reads left."
)
def both_sides() -> Finding:
    """The shipped encoder against the shipped decoder, on every word of held-out passages, one hidden at a time."""
    found = [both_sides_and_left(seed) for seed in HELD_OUT]
    gains = tuple(both - left for both, left in found)
    both, left = (statistics.fmean(shares) for shares in zip(*found))
    return Finding(
        f"first guess right for {both:.0%} of hidden words from both sides, {left:.0%} from the left alone",
        gains,
        "confirmed" if min(gains) > 0.02 else "refuted" if max(gains) < 0 else "depends",
        "what stands behind a blank often decides it; the price is that such a model cannot write from left to right",
    )


def decoder_pair_batches(tokenizer: WordTokenizer, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The same pairs as one text for a decoder alone: English <eos> <bos> French <eos>; only French is predicted."""
    pairs = TinytownPairs(seed).pairs()
    while True:
        drawn = [next(pairs) for _ in range(batch_size)]
        sources = [tokenizer.encode(english)[1:] for english, _ in drawn]
        rows = [source + tokenizer.encode(french) for source, (_, french) in zip(sources, drawn)]
        targets = [[IGNORED] * len(source) + row[len(source) + 1 :] for source, row in zip(sources, rows)]
        yield stack([row[:-1] for row in rows], tokenizer.pad_id), stack(targets, IGNORED)


COMPARISON_STEPS = 250


def compare_with_a_decoder(seed: int, steps: int) -> tuple[float, float]:
    """Loss on held-out pairs, nats per French token, after equal steps on equal pairs: (encoder–decoder, decoder)."""
    tokenizer = TinytownPairs().tokenizer()
    config = translator_config(tokenizer, positions="learned")  # sinusoids drown the unscaled embeddings of a decoder
    torch.manual_seed(seed)
    two_stacks = EncoderDecoder(config)
    # Two decoder blocks weigh a little less than one encoder block and one decoder block with its second attention.
    one_stack = DecoderOnly(replace(config, family="decoder", n_layers=2, max_seq_len=32))
    losses = []
    for model, supply in (
        (two_stacks, lambda s, n: pair_batches(tokenizer, n, s)),
        (one_stack, lambda s, n: decoder_pair_batches(tokenizer, n, s)),
    ):
        train(model, supply(seed, 32), steps, peak=5e-3, warmup=50, progress=False)
        with evaluating(model):
            losses.append(model(*next(supply(HELD_OUT_SEED, 300)))[1].item())
    return losses[0], losses[1]


@experiment("encoder_decoder.decoder_alone", claim="A decoder alone cannot translate as well as an encoder–decoder.")
def decoder_alone() -> Finding:
    """Both trained on the same pairs for the same number of steps, at nearly the same size."""
    found = [compare_with_a_decoder(seed, COMPARISON_STEPS) for seed in SEEDS]
    gaps = tuple(alone - both for both, alone in found)
    both, alone = (statistics.fmean(losses) for losses in zip(*found))
    behind = min(gaps) > 0.1
    return Finding(
        f"held-out loss after {COMPARISON_STEPS} steps on the same pairs: "
        f"{both:.1f} nats per token for the encoder–decoder, {alone:.1f} for a decoder alone of nearly the same size",
        gaps,
        "confirmed" if behind else "refuted" if max(gaps) < 0.1 else "depends",
        "a decoder that reads the source as the beginning of its own text can look back at every word of it; this is a "
        "toy, and says nothing about billions of parameters",
    )
