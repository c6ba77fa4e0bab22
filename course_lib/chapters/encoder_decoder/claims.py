"""Chapter 11: what is said about cross-attention, and about reading both sides.

What the experiments and the chapter use stands beside: `translator` and `masked_reader`, each with its recipe.
"""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import groupby

import torch
from torch import Tensor, nn

from course_lib.chapters.encoder_decoder.masked_reader import MASK, MaskedReader, passage
from course_lib.chapters.encoder_decoder.masked_reader import MaskedBatches as MaskedBatches
from course_lib.chapters.encoder_decoder.masked_reader import fill as fill
from course_lib.chapters.encoder_decoder.translator import TranslatorRecipe as TranslatorRecipe
from course_lib.chapters.encoder_decoder.translator import pair_batch, pair_batches, stack, translate, translator_config
from course_lib.claims.registry import Finding, Source, experiment
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
STEPS = 400  # of a translator that is trained here: most words come out right


def _random_translator(seed: int, n_layers: int = 3) -> tuple[EncoderDecoder, tuple[Tensor, ...]]:
    """Return an untrained translator with weights large enough to matter, and a batch of eight pairs."""
    torch.manual_seed(seed)
    tokenizer = TinytownPairs().tokenizer()
    model = EncoderDecoder(translator_config(tokenizer, n_layers=n_layers)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.2)
    return model, pair_batch(TinytownPairs(HELD_OUT_SEED + seed).sample(8), tokenizer)


def _distance(found: Tensor, wanted: Tensor) -> float:
    """Return how far apart, as a share of the wanted tensor's size."""
    return ((found - wanted).norm() / wanted.norm()).item()


@experiment(
    "encoder_decoder.wiring",
    claim="In encoder–decoder attention the queries come from the previous decoder layer, the keys and values from the "
    "output of the encoder.",
    source=Source("Vaswani et al. 2017", "Attention Is All You Need, § 3.2.3", "https://arxiv.org/abs/1706.03762"),
    control="keys and queries computed by hand from every place they could come from, in untrained models of three "
    "blocks",
    threshold="equal: within a millionth; confirmed if keys equal those of the encoder's output and queries those of "
    "the decoder block below, depends if one of the two, refuted if neither",
    seeds=SEEDS,
)
def wiring() -> Finding:
    """The keys and queries of each decoder block but the outermost, against those that other wirings would give."""
    at_own_height, at_the_top, from_below, from_own = [], [], [], []
    for seed in SEEDS:
        model, (source_ids, target_ids, source_mask, _) = _random_translator(seed)
        with evaluating(model), trace(model) as seen:
            model(source_ids, target_ids, source_mask)
            for i, block in enumerate(model.decoder.blocks[:-1]):  # at the last block the two heights are one
                keys = seen[f"decoder.blocks.{i}.cross_attention.k_proj"]  # (B, S, d_model)
                project = block.get_submodule("cross_attention.k_proj")
                at_own_height.append(_distance(keys, project(model.encoder.final_norm(seen[f"encoder.blocks.{i}"]))))
                at_the_top.append(_distance(keys, project(seen["encoder"])))
            for i, block in enumerate(model.decoder.blocks[1:], start=1):  # below the first block is the embedding
                queries = seen[f"decoder.blocks.{i}.cross_attention.q_proj"]  # (B, T, d_model)
                project, norm = map(block.get_submodule, ("cross_attention.q_proj", "cross_norm"))
                below = seen[f"decoder.blocks.{i - 1}"]
                from_below.append(_distance(queries, project(norm(below))))
                from_own.append(_distance(queries, project(norm(below + seen[f"decoder.blocks.{i}.attention"]))))
    keys_as_said, queries_as_said = max(at_the_top) < 1e-6 < min(at_own_height), max(from_below) < 1e-6
    return Finding(
        f"keys: {max(at_the_top):.0%} away from those of the encoder's output, over {_floor(at_own_height)} from those "
        f"of the encoder block at equal height; queries: over {_floor(from_below)} away from those of the block below, "
        f"{max(from_own):.0%} from those of the same block's self-attention",
        (*at_the_top, *from_below),
        "confirmed"
        if keys_as_said and queries_as_said
        else "depends"
        if keys_as_said or queries_as_said
        else "refuted",
        "Every decoder block reads the top of the encoder, computed once. “The previous decoder layer” is the sublayer "
        "before: the masked self-attention of the same block.",
    )


def _floor(distances: list[float]) -> str:
    """Return the smallest, rounded down to whole per cent."""
    return f"{int(100 * min(distances))}%"


@experiment(
    "encoder_decoder.one_pass",
    claim="In training the decoder predicts the whole target in parallel, though it writes token by token.",
    source=Source(
        "AI Stack Exchange 40119",
        "Are transformer decoder predictions computed in parallel during training?",
        "https://ai.stackexchange.com/questions/40119/are-transformer-decoder-predictions-computed-in-parallel-during-"
        "training",
    ),
    control="the same models without their causal mask",
    threshold="confirmed if the logits of one pass are those of a pass per position, within 0.01 %, else refuted",
    seeds=SEEDS,
)
def one_pass() -> Finding:
    """Logits of all positions in one pass, against one pass per position, with the causal mask and without."""
    differences: list[float] = []
    unmasked: list[float] = []
    for seed in SEEDS:
        model, (source_ids, target_ids, source_mask, _) = _random_translator(seed)
        for found in (differences, unmasked):
            with evaluating(model):
                at_once = model(source_ids, target_ids, source_mask)  # (B, T, V)
                T = target_ids.shape[1]
                one_by_one = [model(source_ids, target_ids[:, : t + 1], source_mask)[:, -1] for t in range(T)]
            found.append(_distance(torch.stack(one_by_one, dim=1), at_once))
            for block in model.decoder.blocks:
                block.is_causal = False
    equal = max(differences) < 1e-4
    return Finding(
        f"one pass gives the logits of all positions, {'less than 0.01 %' if equal else f'{max(differences):.1%}'} "
        f"away from one pass per position; without the causal mask over {_floor(unmasked)} away",
        tuple(round(each, 5) for each in differences),  # what is smaller depends on the processor
        "confirmed" if equal else "refuted",
        "In training the right words before each position are known (teacher forcing) and the mask hides the rest. "
        "Only writing needs a pass per token.",
    )


KINDS = {
    "nouns": ("animal", "animals", "thing", "things", "place", "places"),
    "articles": ("one", "none", "many"),
    "adjectives": ("size", "colour", "mood"),
}
AUXILIARIES = ("a", "ont")  # il a dormi, ils ont dormi: French needs a second word where English has one


def kind_of(english: str, french: str) -> str:
    """Return which kind of word a French word and the English word that it translates are."""
    if french in AUXILIARIES:
        return "auxiliaries"
    return next((kind for kind, slots in KINDS.items() if any(english in WORDS[slot] for slot in slots)), "the rest")


def looked_at(
    model: EncoderDecoder, tokenizer: WordTokenizer, seed: int, n: int = 200
) -> list[tuple[str, Tensor, float, Tensor]]:
    """Return, for each French word of n held-out sentences: (kind, does each head of the last decoder block look most
    at the English word that it translates (H,), is the model's guess right, each head's cut away in turn (H,))."""
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


LAST = "decoder.blocks.{last}.cross_attention"  # of the decoder's last block


@contextmanager
def cut_head(model: EncoderDecoder, head: int, attention: str = LAST) -> Iterator[None]:
    """Silence one head of an attention, the last cross-attention unless named: zeros where it would speak."""
    size = model.config.d_head
    attention = attention.format(last=len(model.decoder.blocks) - 1)

    def silence(_, inputs):
        heads = inputs[0].clone()  # (B, T, H · D)
        heads[..., head * size : (head + 1) * size] = 0
        return (heads,)

    handle = model.get_submodule(f"{attention}.out_proj").register_forward_pre_hook(silence)
    try:
        yield
    finally:
        handle.remove()


@cache
def trained_translator(seed: int) -> EncoderDecoder:
    """Return a translator like the shipped one, trained for STEPS steps with a seed of its own."""
    tokenizer = TinytownPairs().tokenizer()
    torch.manual_seed(seed)
    model = EncoderDecoder(translator_config(tokenizer))
    train(model, pair_batches(tokenizer, 32, seed), STEPS, peak=5e-3, warmup=50, progress=False)
    return model


def _shares(found: list[tuple[str, float]]) -> dict[str, float]:
    """Return the mean for each kind of word."""
    kinds = dict.fromkeys(kind for kind, _ in found)
    return {kind: statistics.fmean(value for name, value in found if name == kind) for kind in kinds}


def _said(shares: dict[str, float], *kinds: str) -> str:
    return ", ".join(f"{kind} {shares[kind]:.0%}" for kind in kinds)


def aligning_head(model: EncoderDecoder, tokenizer: WordTokenizer) -> int:
    """Return the head that looks most often at the translated word, found on sentences of its own."""
    found = looked_at(model, tokenizer, HELD_OUT_SEED - 1, 100)
    return int(torch.stack([hit for _, hit, _, _ in found]).mean(dim=0).argmax())


@experiment(
    "encoder_decoder.alignment",
    claim="The attention weights of a translator show which source words matter for the word it writes.",
    source=Source(
        "Bahdanau et al. 2014",
        "Neural Machine Translation by Jointly Learning to Align and Translate, § 5.2.1",
        "https://arxiv.org/abs/1409.0473",
    ),
    control="the grammar's own alignment; the word at the same position; the best head of three translators trained "
    "with other seeds",
    threshold="share of French words at which the best head looks most at the English word behind them: confirmed if "
    "over 95 % in all four models, depends if over half in any, else refuted",
    seeds=SEEDS,
)
def alignment() -> Finding:
    model, tokenizer = load_pretrained("translator")
    head = aligning_head(model, tokenizer)
    words = [(kind, hit[head].item()) for kind, hit, *_ in looked_at(model, tokenizer, HELD_OUT_SEED)]
    shares = [statistics.fmean(hit for _, hit in words)]
    for seed in SEEDS:
        other = trained_translator(seed)
        head = aligning_head(other, tokenizer)
        shares.append(statistics.fmean(hit[head].item() for _, hit, *_ in looked_at(other, tokenizer, HELD_OUT_SEED)))
    pairs = TinytownPairs(HELD_OUT_SEED)
    same = [i == j for english, _ in pairs.sample(200) for i, j in pairs.alignment(english)]
    by_kind = _said(_shares(words), "nouns", "adjectives", "articles", "auxiliaries")
    return Finding(
        f"the best head looks most at the translated word for {shares[0]:.0%} of the French words ({by_kind}); in "
        f"three other trainings for {_tenths(shares[1:])}; the same position is right for {statistics.fmean(same):.0%}",
        tuple(shares),
        "confirmed" if min(shares) > 0.95 else "depends" if max(shares) > 0.5 else "refuted",
        "Where one head takes it up, it holds for words that have a meaning to fetch; an auxiliary (a, ont) has none. "
        "In other trainings two heads share the work.",
    )


def _tenths(shares: list[float]) -> str:
    """Round to tenths what is trained here: from the least to the most."""
    return f"{round(10 * min(shares)) * 10} to {round(10 * max(shares)) * 10} %"


ATTENTIONS = {
    "encoder": "encoder.blocks.0.attention", "decoder": "decoder.blocks.0.attention", "between the two": LAST,
}  # fmt: skip


def lost_without_a_head(model: EncoderDecoder, tokenizer: WordTokenizer, n: int = 200) -> dict[str, float]:
    """Return, for each kind of attention, the share of right French words that goes wrong if one of its heads is
    silent: the mean over its heads, on n held-out sentences."""
    source_ids, target_ids, source_mask, targets = pair_batch(TinytownPairs(HELD_OUT_SEED).sample(n), tokenizer)

    def right() -> Tensor:
        with evaluating(model):
            return model(source_ids, target_ids, source_mask).argmax(dim=-1) == targets  # (B, T)

    whole = right()
    lost: dict[str, list[float]] = {kind: [] for kind in ATTENTIONS}
    for kind, attention in ATTENTIONS.items():
        for head in range(model.config.n_heads):
            with cut_head(model, head, attention):
                lost[kind].append(1 - right()[whole].float().mean().item())
    return {kind: statistics.fmean(shares) for kind, shares in lost.items()}


@experiment(
    "encoder_decoder.heads",
    claim="Encoder–decoder attention depends more on its several heads than self-attention does.",
    source=Source(
        "Michel et al. 2019", "Are Sixteen Heads Really Better than One?, abstract", "https://arxiv.org/abs/1905.10650"
    ),
    control="each head of the self-attentions of the same translators, silenced in the same way on the same sentences",
    threshold="confirmed if silencing a head between encoder and decoder loses more words than one of either "
    "self-attention with all three translators, depends if with some, refuted if with none",
    seeds=SEEDS,
)
def heads() -> Finding:
    tokenizer = TinytownPairs().tokenizer()
    lost = [lost_without_a_head(trained_translator(seed), tokenizer) for seed in SEEDS]
    between = tuple(each["between the two"] for each in lost)
    more = [each["between the two"] > max(each["encoder"], each["decoder"]) for each in lost]
    said = (f"{kind} {_tenths([each[kind] for each in lost])}" for kind in ATTENTIONS)
    return Finding(
        f"right words that go wrong without one head, three trainings: {', '.join(said)}",
        between,
        "confirmed" if all(more) else "depends" if any(more) else "refuted",
        "What crosses between the two texts crosses there alone, while residual connections lead around every "
        "self-attention.",
    )


@experiment(
    "encoder_decoder.padding",
    claim="Attention takes padding into account, so without a mask a padded sentence gives another result than alone.",
    source=Source(
        "Hugging Face",
        "LLM Course, Handling multiple sequences, § Attention masks",
        "https://huggingface.co/learn/llm-course/chapter2/5",
    ),
    control="the same sentences without any padding, in batches of equal length, and padded with the mask",
    threshold="confirmed if padding without the mask costs over 5 % of the translations (mean) and padding with it "
    "none, else refuted",
    seeds=HELD_OUT,
)
def padding() -> Finding:
    """Translations of short sentences alone, and in a batch with a long one, with the padding mask and without."""
    model, tokenizer = load_pretrained("translator")
    shares: dict[str, list[float]] = {"alone": [], "masked": [], "unmasked": []}
    for seed in HELD_OUT:
        pairs = sorted(TinytownPairs(seed).sample(300), key=lambda pair: len(split_words(pair[0])))
        short, longest = pairs[:100], pairs[-1]
        batches = [list(each) for _, each in groupby(short, key=lambda pair: len(split_words(pair[0])))]
        for name, use_mask, groups in (
            ("alone", True, batches),
            ("masked", True, [[*short, longest]]),  # the last one sets the length of all
            ("unmasked", False, [[*short, longest]]),
        ):
            written = [
                ours for group in groups for ours in translate(model, tokenizer, [e for e, _ in group], use_mask)
            ]
            shares[name].append(statistics.fmean(ours == french for ours, (_, french) in zip(written[:100], short)))
    alone, masked, unmasked = map(statistics.fmean, shares.values())
    return Finding(
        f"short sentences translated exactly: alone {alone:.0%}, padded with the mask {masked:.0%}, without it "
        f"{unmasked:.0%}",
        tuple(shares["unmasked"]),
        "confirmed" if alone - unmasked > 0.05 and masked == alone else "refuted",
        "Softmax gives every key a share, and a padding vector has a value like any other."
        if alone - unmasked > 0.05
        else "This model is not disturbed by it.",
    )


def both_sides_and_left(seed: int, n: int = 20, candidates: int = 10) -> tuple[float, float, float]:
    """Return the share of hidden words that is guessed right in n held-out passages, one word hidden at a time.

    By the reader of blanks from both sides; by the shipped language model from the left alone; and by the same
    language model when it puts each of its first `candidates` guesses into the blank and takes the one that makes the
    whole passage most probable.
    """
    encoder, tokenizer = load_pretrained("masked")
    assert isinstance(encoder, EncoderOnly)
    decoder, words = load_pretrained("tinytown")
    both, left, scored = [], [], []
    for story in Tinytown(seed).sample(n):
        ids = torch.tensor(words.encode(passage(story)))  # (T,); both vocabularies begin alike
        blanks = torch.arange(1, len(ids) - 1)  # all but <bos> and <eos>
        rows = torch.arange(len(blanks))
        hidden = ids.repeat(len(blanks), 1)  # (T − 2, T): a row for each blank
        hidden[rows, blanks] = tokenizer.id(MASK)
        with evaluating(encoder), evaluating(decoder):
            both += (MaskedReader(encoder)(hidden)[rows, blanks].argmax(dim=-1) == ids[blanks]).tolist()
            first = decoder(ids[None, :-1])[0, rows].topk(candidates).indices  # (T − 2, candidates)
            left += (first[:, 0] == ids[blanks]).tolist()
            filled = ids.repeat(len(blanks), candidates, 1)  # (T − 2, candidates, T)
            filled[rows, :, blanks] = first
            scores = torch.stack([_log_prob(decoder, texts) for texts in filled])  # (T − 2, candidates)
            scored += (first[rows, scores.argmax(dim=-1)] == ids[blanks]).tolist()
    return statistics.fmean(both), statistics.fmean(left), statistics.fmean(scored)


def _log_prob(decoder: DecoderOnly, texts: Tensor) -> Tensor:
    """Return ln p of each text (N, T) -> (N,)."""
    log_p = decoder(texts[:, :-1]).log_softmax(dim=-1)
    return log_p.gather(2, texts[:, 1:, None])[..., 0].sum(dim=-1)


@experiment(
    "encoder_decoder.both_sides",
    claim="A bidirectional model is strictly more powerful than one that reads from left to right: it fills blanks "
    "better.",
    source=Source(
        "Devlin et al. 2019",
        "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding, § 3.1",
        "https://arxiv.org/abs/1810.04805",
    ),
    control="the left-to-right model on the left side alone, and the same model scoring the whole passage with each of "
    "its ten first guesses in the blank",
    threshold="ahead: by over 2 points in every sample; confirmed if the encoder is ahead of both, depends if of one, "
    "refuted if of neither",
    seeds=HELD_OUT,
)
def both_sides() -> Finding:
    """The shipped encoder against the shipped decoder, which is larger and was trained for longer."""
    found = [both_sides_and_left(seed) for seed in HELD_OUT]
    ahead = [min(each[0] - each[i] for each in found) > 0.02 for i in (1, 2)]
    both, left, scored = (statistics.fmean(shares) for shares in zip(*found))
    return Finding(
        f"hidden words guessed right: {both:.0%} by an encoder from both sides; by a decoder {left:.0%} from the left, "
        f"{scored:.0%} if it scores the whole passage",
        tuple(both - left for both, left, _ in found),
        "confirmed" if all(ahead) else "depends" if any(ahead) else "refuted",
        "What comes after a blank often decides it. A decoder can use it too, at the price of a pass per candidate.",
    )


def decoder_pair_batches(tokenizer: WordTokenizer, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Return the same pairs as one text for a decoder alone: English <eos> <bos> French <eos>; only French is
    predicted."""
    pairs = TinytownPairs(seed).pairs()
    while True:
        drawn = [next(pairs) for _ in range(batch_size)]
        sources = [tokenizer.encode(english)[1:] for english, _ in drawn]
        rows = [source + tokenizer.encode(french) for source, (_, french) in zip(sources, drawn)]
        targets = [[IGNORED] * len(source) + row[len(source) + 1 :] for source, row in zip(sources, rows)]
        yield stack([row[:-1] for row in rows], tokenizer.pad_id), stack(targets, IGNORED)


COMPARISON_STEPS = 250
PEAKS = (5e-3, 1e-2)  # learning rates: each model is judged by the better one


def compare_with_a_decoder(seed: int, steps: int, peak: float) -> tuple[float, float]:
    """Return the loss on held-out pairs, nats per French token, after equal steps on equal pairs: (encoder–decoder,
    decoder)."""
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
        train(model, supply(seed, 32), steps, peak=peak, warmup=50, progress=False)
        with evaluating(model):
            losses.append(model(*next(supply(HELD_OUT_SEED, 300)))[1].item())
    return losses[0], losses[1]


@experiment(
    "encoder_decoder.decoder_alone",
    claim="For text-to-text tasks an encoder–decoder does better than a decoder alone.",
    source=Source(
        "Raffel et al. 2020",
        "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (T5), § 3.2.4",
        "https://arxiv.org/abs/1910.10683",
    ),
    control="the same pairs, steps and nearly the same size; two learning rates, each model judged by its better one",
    threshold="confirmed if the decoder's held-out loss is over 0.1 nats above with every seed, refuted if with none, "
    "else depends",
    seeds=SEEDS,
)
def decoder_alone() -> Finding:
    """Both trained on the same pairs for the same number of steps, at nearly the same size."""
    best = []
    for seed in SEEDS:
        runs = [compare_with_a_decoder(seed, COMPARISON_STEPS, peak) for peak in PEAKS]
        best.append(tuple(map(min, zip(*runs))))
    gaps = tuple(alone - both for both, alone in best)
    both, alone = (statistics.fmean(losses) for losses in zip(*best))
    return Finding(
        f"held-out loss after {COMPARISON_STEPS} steps on the same pairs, the better of {len(PEAKS)} learning rates: "
        f"{both:.1f} nats per token for the encoder–decoder, {alone:.1f} for a decoder alone of nearly the same size",
        gaps,
        "confirmed" if min(gaps) > 0.1 else "refuted" if max(gaps) < 0.1 else "depends",
        "A decoder that reads the source as the beginning of its own text can look back at every word of it. This is a "
        "toy without pretraining, and says nothing about billions of parameters.",
    )
