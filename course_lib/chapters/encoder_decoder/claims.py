"""Chapter 11: claims about cross-attention, and about reading from both sides.

The models of the experiments and the chapter are in `translator` and `masked_reader`, each with its recipe.
"""

import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

from course_lib.chapters.encoder_decoder.masked_reader import MASK, MaskedReader
from course_lib.chapters.encoder_decoder.masked_reader import MaskedBatches as MaskedBatches
from course_lib.chapters.encoder_decoder.masked_reader import fill as fill
from course_lib.chapters.encoder_decoder.translator import TranslatorRecipe as TranslatorRecipe
from course_lib.chapters.encoder_decoder.translator import pair_batch, pair_batches, stack, translate, translator_config
from course_lib.claims.rates import Best, at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderDecoder, EncoderOnly
from course_lib.gpt import IGNORED, DecoderOnly, evaluating
from course_lib.masks import padding_mask
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown, WordTokenizer, split_words
from course_lib.tinytown.french import WORDS, TinytownPairs
from course_lib.trace import trace
from course_lib.training import train

HELD_OUT = tuple(HELD_OUT_SEED + i for i in range(3))  # seeds of pairs and stories that are only for measuring
SEEDS = (0, 1, 2)
RATES = (0.005, 0.01, 0.02)  # peak learning rates that are tried first
STEPS = 200  # updates of a translator that is trained here; most of its words are correct


KINDS = {
    "nouns": ("animal", "animals", "thing", "things", "place", "places"),
    "articles": ("one", "none", "many"),
    "adjectives": ("size", "colour", "mood"),
}
AUXILIARIES = ("a", "ont")  # il a dormi, ils ont dormi: two words in French for one in English


def kind_of(english: str, french: str) -> str:
    """Return the kind of a French word and of the English word that it translates."""
    if french in AUXILIARIES:
        return "auxiliaries"
    return next((kind for kind, slots in KINDS.items() if any(english in WORDS[slot] for slot in slots)), "the rest")


def looked_at(
    model: EncoderDecoder, tokenizer: WordTokenizer, seed: int, n: int = 200
) -> list[tuple[str, Tensor, float, Tensor]]:
    """Return a tuple for each French word of n held-out sentences.

    Its entries: the word's kind; whether each head of the last decoder block puts most weight on the English word that
    it translates (H,); whether the model's guess is correct; whether it is correct without each head (H,).
    """
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
    guesses, targets, favourite, cut = (each.cpu() for each in (guesses, targets, favourite, cut))  # read word by word
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
    """Remove one head of an attention: replace its output by zeros. By default it is the last cross-attention."""
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


def held_out_loss(model: nn.Module, batch: Sequence[Tensor | None]) -> float:
    """Return the loss on a batch on which the model was not trained."""
    with evaluating(model):
        return model(*batch)[1].item()


@cache
def trained_translators(steps: int) -> Best:
    """Train translators like the shipped one, with each seed at the best rate; results are (loss, model)."""
    tokenizer = TinytownPairs().tokenizer()

    def trained(rate: float, seed: int) -> tuple[float, EncoderDecoder]:
        torch.manual_seed(seed)
        model = EncoderDecoder(translator_config(tokenizer))
        train(model, pair_batches(tokenizer, 32, seed), steps, peak=rate, warmup=50, progress=False)
        return held_out_loss(model, next(pair_batches(tokenizer, 300, HELD_OUT_SEED))), model

    return at_best_rate(trained, RATES, SEEDS)


def _shares(found: list[tuple[str, float]]) -> dict[str, float]:
    """Return the mean for each kind of word."""
    kinds = dict.fromkeys(kind for kind, _ in found)
    return {kind: statistics.fmean(value for name, value in found if name == kind) for kind in kinds}


def aligning_head(model: EncoderDecoder, tokenizer: WordTokenizer) -> int:
    """Return the head that puts most weight on the translated word most often, found on separate sentences."""
    found = looked_at(model, tokenizer, HELD_OUT_SEED - 1, 100)
    return int(torch.stack([hit for _, hit, _, _ in found]).mean(dim=0).argmax())


def alignment_verdict(aligned: list[float]) -> str:
    """Judge the fraction of French words for which the best head puts most weight on the corresponding English word.

    confirmed: over 95% in every model
    depends: over half in some model
    refuted: over half in none
    """
    return "confirmed" if min(aligned) > 0.95 else "depends" if max(aligned) > 0.5 else "refuted"


@experiment(
    "encoder_decoder.alignment",
    claim="Attention weights show the alignment between the words of a translation and those of the source sentence.",
    source=Source(
        "Bahdanau et al. 2014",
        "Neural Machine Translation by Jointly Learning to Align and Translate",
        "https://arxiv.org/abs/1409.0473",
        place="§ 5.2.1",
        quote="The proposed approach provides an intuitive way to inspect the (soft-)alignment between the words in a "
        "generated translation and those in a source sentence.",
    ),
    control="the grammar's own alignment; the word at the same position; the best head of three translators that were "
    "trained from other seeds, at the best of at least three learning rates",
    verdict=alignment_verdict,
    seeds=SEEDS,
)
def alignment(size: Size) -> Measurement:
    """Find the words on which the best head puts most weight, in the shipped translator and in three others."""
    shipped, tokenizer = load_pretrained("translator")
    models = [shipped, *(model for _, model in trained_translators(size.steps(STEPS)).results)]
    aligned = []
    for model in models:
        head = aligning_head(model, tokenizer)
        words = [(kind, hit[head].item()) for kind, hit, *_ in looked_at(model, tokenizer, HELD_OUT_SEED)]
        aligned.append(statistics.fmean(hit for _, hit in words))
        if model is shipped:
            by_kind = _shares(words)
    pairs = TinytownPairs(HELD_OUT_SEED)
    same = [i == j for english, _ in pairs.sample(200) for i, j in pairs.alignment(english)]
    return Measurement(
        measured=f"the best head of the course's translator looks most at the translated word for {aligned[0]:.0%} of "
        f"all French words; the best head of three other translators does so for {_tenths(aligned[1:])}",
        values=aligned,
        figures={"aligned": aligned},
        because="It depends on the word and on the training run. An auxiliary (a, ont) often has no separate "
        "English word, and in some runs two heads share the work.",
        rows=(
            ("French words of the course's translator", "most weight on the translated word"),
            *((kind, f"{by_kind[kind]:.0%}") for kind in ("nouns", "adjectives", "articles", "auxiliaries")),
            ("control: the English word at the same position", f"{statistics.fmean(same):.0%}"),
        ),
    )


def _tenths(shares: list[float]) -> str:
    """Round fractions of models that are trained here to tenths, and return the smallest to the largest as text."""
    low, high = (round(10 * bound(shares)) * 10 for bound in (min, max))
    return f"about {low}%" if low == high else f"{low} to {high}%"


ATTENTIONS = {
    "encoder": "encoder.blocks.0.attention",
    "decoder": "decoder.blocks.0.attention",
    "between the two": LAST,
}


def lost_without_heads(model: EncoderDecoder, tokenizer: WordTokenizer, n: int = 200) -> dict[str, tuple[float, float]]:
    """Return for each kind of attention the fraction of correct French words that goes wrong, on n held-out sentences.

    The two numbers are for one head removed (the mean over its heads), and for all heads removed.
    """
    source_ids, target_ids, source_mask, targets = pair_batch(TinytownPairs(HELD_OUT_SEED).sample(n), tokenizer)

    def right() -> Tensor:
        with evaluating(model):
            return model(source_ids, target_ids, source_mask).argmax(dim=-1) == targets  # (B, T)

    before = right()

    def lost(attention: str, *silent: int) -> float:
        with ExitStack() as stack:
            for head in silent:
                stack.enter_context(cut_head(model, head, attention))
            return 1 - right()[before].float().mean().item()

    heads = range(model.config.n_heads)
    return {
        kind: (statistics.fmean(lost(attention, head) for head in heads), lost(attention, *heads))
        for kind, attention in ATTENTIONS.items()
    }


def heads_verdict(between: list[float], self_attention: list[float], all_of_self: list[float]) -> str:
    """Count the words that go wrong in each seed: without one head between the stacks, without one head of the
    self-attention that loses most, and without all heads of a self-attention.

    confirmed: a head between the stacks loses more in every seed, and each self-attention as a whole loses over a fifth
    depends: a head between the stacks loses more in some seeds only
    refuted: it loses more in no seed
    not at this size: it loses more in every seed, but a self-attention as a whole loses less than a fifth, so that
        its heads have little to do here
    """
    more = [one > other for one, other in zip(between, self_attention)]
    if not all(more):
        return "depends" if any(more) else "refuted"
    return "confirmed" if min(all_of_self) > 0.2 else "not at this size"


@experiment(
    "encoder_decoder.heads",
    claim="Encoder-decoder attention is much more dependent on multi-headedness than self-attention.",
    source=Source(
        "Michel et al. 2019",
        "Are Sixteen Heads Really Better than One?",
        "https://arxiv.org/abs/1905.10650",
        place="§ 5, on models for translation",
        quote="In other words, encoder-decoder attention is much more dependent on multi-headedness than "
        "self-attention.",
    ),
    control="the heads of both self-attentions of the same translators, silenced in the same way on the same "
    "sentences; and all heads of an attention, which shows how much it is needed at all",
    verdict=heads_verdict,
    seeds=SEEDS,
)
def heads(size: Size) -> Measurement:
    """Remove one head, and then all heads, of each attention of three trained translators."""
    tokenizer = TinytownPairs().tokenizer()
    models = [model for _, model in trained_translators(size.steps(STEPS)).results]
    lost = [lost_without_heads(model, tokenizer) for model in models]
    rows = [
        (where, *(_tenths([each[kind][i] for each in lost]).removeprefix("about ") for i in (0, 1)))
        for kind, where in zip(ATTENTIONS, ("encoder's self-attention", "decoder's self-attention", "cross-attention"))
    ]
    between = [each["between the two"][0] for each in lost]
    of_self = [[each[kind] for kind in ("encoder", "decoder")] for each in lost]
    return Measurement(
        measured="without all heads of a self-attention only "
        f"{_tenths([each[kind][1] for each in lost for kind in ('encoder', 'decoder')])} of the words go wrong; "
        f"without one head of the cross-attention, {_tenths(between)} do",
        values=between,
        figures={
            "between": between,
            "self_attention": [max(one for one, _ in pair) for pair in of_self],
            "all_of_self": [min(whole for _, whole in pair) for pair in of_self],
        },
        because="Our self-attentions are hardly needed at all, so these figures cannot show how many heads they need.",
        rows=(("words that go wrong, to the nearest 10%", "without one head", "without all"), *rows),
    )


UNMASKED_STEPS = 150  # updates without the mask, for a translator that was trained with it


def exact_padded(model: EncoderDecoder, tokenizer: WordTokenizer, seed: int, use_mask: bool) -> float:
    """Return the fraction of exact translations among the hundred shortest of 300 held-out sentences. They are in a
    batch with a long sentence, which sets the length of all."""
    pairs = sorted(TinytownPairs(seed).sample(300), key=lambda pair: len(split_words(pair[0])))
    written = translate(model, tokenizer, [english for english, _ in (*pairs[:100], pairs[-1])], use_mask)
    return statistics.fmean(ours == french for ours, (_, french) in zip(written[:100], pairs))


def exact_alone(model: EncoderDecoder, tokenizer: WordTokenizer, seed: int) -> float:
    """Return the same fraction with batches of sentences of the same length, which need no padding."""
    pairs = sorted(TinytownPairs(seed).sample(300), key=lambda pair: len(split_words(pair[0])))[:100]
    groups = [list(each) for _, each in groupby(pairs, key=lambda pair: len(split_words(pair[0])))]
    written = [ours for group in groups for ours in translate(model, tokenizer, [e for e, _ in group])]
    return statistics.fmean(ours == french for ours, (_, french) in zip(written, pairs))


def without_mask(batches: Iterator[tuple[Tensor, ...]]) -> Iterator[tuple[Tensor | None, ...]]:
    """Yield the same batches of pairs, with None instead of the padding mask."""
    for source_ids, target_ids, _, targets in batches:
        yield source_ids, target_ids, None, targets


@cache
def trained_without_mask(steps: int) -> Best:
    """Train the shipped translator further without the padding mask, with each seed at the best rate: results are (loss
    without the mask, model)."""
    held_out = next(without_mask(pair_batches(load_pretrained("translator")[1], 300, HELD_OUT_SEED)))

    def trained(rate: float, seed: int) -> tuple[float, EncoderDecoder]:
        model, tokenizer = load_pretrained("translator")
        batches = without_mask(pair_batches(tokenizer, 32, seed + 1))  # the shipped one has seen those of seed 0
        train(model, batches, steps, peak=rate, warmup=20, progress=False)
        return held_out_loss(model, held_out), model

    return at_best_rate(trained, (0.0005, 0.001, 0.002), SEEDS)


def causal_changes(model: DecoderOnly, tokenizer: WordTokenizer, seed: int, n: int = 20) -> float:
    """Return the fraction of words for which a causal decoder's first guess changes when its stories are padded at the
    end to the same length, without a mask."""
    rows = [tokenizer.encode(story)[:-1] for story in Tinytown(seed).sample(n)]
    with evaluating(model):
        together = model(stack(rows, tokenizer.pad_id)).argmax(dim=-1)  # (n, T)
        alone = [model(torch.tensor([row]))[0].argmax(dim=-1) for row in rows]
    changed = [(padded[: len(own)] != own) for padded, own in zip(together, alone)]
    return torch.cat(changed).float().mean().item()


def padding_verdict(alone: float, masked: float, unmasked: float, accustomed: float, causal: float) -> str:
    """Compare the fractions of short sentences that are translated exactly: alone, padded with the mask, without it,
    and without it after training without it. causal: the fraction of a causal decoder's guesses that padding changes.

    confirmed: padding without the mask costs over 10 points, also after training without it, and over 1% of the causal
        decoder's guesses change; with the mask it costs nothing
    depends: padding without the mask costs over 10 points, but one of the others does without a mask, or the mask does
        not undo all of it
    refuted: padding without the mask costs 10 points at most
    """
    if alone - unmasked <= 0.1:
        return "refuted"
    everywhere = alone - accustomed > 0.1 and causal > 0.01
    return "confirmed" if masked == alone and everywhere else "depends"


@experiment(
    "encoder_decoder.padding",
    claim="To get the same result from a padded sentence as without padding, attention must be told to ignore the "
    "padding tokens.",
    source=Source(
        "Hugging Face",
        "LLM Course, Handling multiple sequences",
        "https://huggingface.co/learn/llm-course/chapter2/5",
        place="chapter 2.5, before the section on attention masks",
        quote="To get the same result when passing individual sentences of different lengths through the model or when "
        "passing a batch with the same sentences and padding applied, we need to tell those attention layers to ignore "
        "the padding tokens.",
    ),
    control="the same sentences without any padding, in batches of equal length, and padded with the mask; the same "
    "translator, trained for some more steps without the mask at the best of at least three rates; and the course's "
    "causal decoder, whose stories are padded at the end",
    verdict=padding_verdict,
    seeds=SEEDS,
)
def padding(size: Size) -> Measurement:
    """Translate short sentences separately, and in a batch with a long one, with and without the padding mask."""
    model, tokenizer = load_pretrained("translator")
    steps = size.steps(UNMASKED_STEPS)
    alone = statistics.fmean(exact_alone(model, tokenizer, seed) for seed in HELD_OUT)
    masked = statistics.fmean(exact_padded(model, tokenizer, seed, use_mask=True) for seed in HELD_OUT)
    unmasked = [exact_padded(model, tokenizer, seed, use_mask=False) for seed in HELD_OUT]
    accustomed = statistics.fmean(
        exact_padded(each, tokenizer, seed, use_mask=False)
        for seed, (_, each) in zip(HELD_OUT, trained_without_mask(steps).results)
    )
    causal = max(causal_changes(*load_pretrained("tinytown"), seed) for seed in HELD_OUT)
    return Measurement(
        measured=f"in three samples {statistics.fmean(unmasked):.0%} of the padded short sentences are translated "
        f"exactly without the mask; after {steps} more training steps without it, {accustomed:.0%} are",
        values=unmasked,
        figures={
            "alone": alone,
            "masked": masked,
            "unmasked": statistics.fmean(unmasked),
            "accustomed": accustomed,
            "causal": causal,
        },
        because="It depends on the training and on the attention. A translator that always had the mask needs it. One "
        "that was trained without it ignores the padding. A causal decoder does not see padding at the end of a text.",
        rows=(
            ("short sentences translated exactly", "fraction"),
            ("alone", f"{alone:.0%}"),
            ("padded, with the mask", f"{masked:.0%}"),
            ("padded, without the mask", f"{statistics.fmean(unmasked):.0%}"),
            ("the same, after more training without it", f"{accustomed:.0%}"),
        ),
    )


READERS: dict[str, Any] = {"d_model": 64, "n_heads": 4, "n_layers": 1, "max_seq_len": 24, "positions": "learned"}
READER_STEPS = 400
HIDDEN = 0.3  # of the words, in the encoder's training


def french_tokenizer() -> WordTokenizer:
    """Return a tokenizer for the words of both languages and <mask>."""
    words = TinytownPairs().tokenizer().tokens
    return WordTokenizer([*words[words.index("<eos>") + 1 :], MASK])


def masked_sentences(tokenizer: WordTokenizer, seed: int, n: int = 32) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield batches of n French sentences with hidden words, as `MaskedBatches` does for passages: (ids, mask,
    targets).
    """
    pairs, generator = TinytownPairs(seed).pairs(), torch.Generator().manual_seed(seed)
    while True:
        rows = [tokenizer.encode(french) for _, (_, french) in zip(range(n), pairs)]
        ids = stack(rows, tokenizer.pad_id)  # (B, T)
        hidden = (torch.rand(ids.shape, generator=generator) < HIDDEN) & (ids > tokenizer.eos_id)
        mask = padding_mask([len(row) for row in rows], ids.shape[1])
        yield ids.masked_fill(hidden, tokenizer.id(MASK)), mask, ids.masked_fill(~hidden, IGNORED)


def unmasked(batch: tuple[Tensor, Tensor, Tensor], pad_id: int) -> tuple[Tensor, Tensor]:
    """Return the sentences of a masked batch without hidden words as (ids, targets) for a decoder: each next word."""
    ids, _, targets = batch
    sentences = torch.where(targets == IGNORED, ids, targets)  # (B, T)
    following = sentences[:, 1:]
    return sentences[:, :-1], following.masked_fill(following == pad_id, IGNORED)


def trained_readers(steps: int) -> tuple[Best, Best]:
    """Train an encoder that fills blanks, and a decoder of the same size on the same sentences.

    Each has three seeds at its best rate; results are (loss, model).
    """
    tokenizer = french_tokenizer()
    config = TransformerConfig(vocab_size=len(tokenizer), family="encoder", **READERS)
    held_out = next(masked_sentences(tokenizer, HELD_OUT_SEED, 300))

    def encoder(rate: float, seed: int) -> tuple[float, EncoderOnly]:
        torch.manual_seed(seed)
        model = EncoderOnly(config)
        train(MaskedReader(model), masked_sentences(tokenizer, seed), steps, peak=rate, warmup=20, progress=False)
        return held_out_loss(MaskedReader(model), held_out), model

    def decoder(rate: float, seed: int) -> tuple[float, DecoderOnly]:
        torch.manual_seed(seed)
        model = DecoderOnly(replace(config, family="decoder"))
        batches = (unmasked(batch, tokenizer.pad_id) for batch in masked_sentences(tokenizer, seed))
        train(model, batches, steps, peak=rate, warmup=20, progress=False)
        return held_out_loss(model, unmasked(held_out, tokenizer.pad_id)), model

    return at_best_rate(encoder, (0.0025, 0.005, 0.01), SEEDS), at_best_rate(decoder, RATES, SEEDS)


def both_sides_and_left(
    encoder: EncoderOnly, decoder: DecoderOnly, sentences: Sequence[str], candidates: int = 10
) -> tuple[float, float, float]:
    """Return the fraction of hidden words that are guessed correctly, with one hidden word per sentence at a time.

    The three results: the encoder, which reads both sides; the decoder, which reads the left side; and the same decoder
    when it puts each of its first `candidates` guesses into the blank and chooses the most probable complete sentence.
    """
    tokenizer = french_tokenizer()
    both, left, scored = [], [], []
    for sentence in sentences:
        ids = torch.tensor(tokenizer.encode(sentence))  # (T,)
        blanks = torch.arange(1, len(ids) - 1)  # all positions except <bos> and <eos>
        rows = torch.arange(len(blanks))
        hidden = ids.repeat(len(blanks), 1)  # (T − 2, T): a row for each blank
        hidden[rows, blanks] = tokenizer.id(MASK)
        with evaluating(encoder), evaluating(decoder):
            both += (MaskedReader(encoder)(hidden)[rows, blanks].argmax(dim=-1) == ids[blanks]).tolist()
            first = decoder(ids[None, :-1])[0, rows].topk(candidates).indices  # (T − 2, candidates)
            left += (first[:, 0] == ids[blanks]).tolist()
            filled = ids.repeat(len(blanks), candidates, 1)  # (T − 2, candidates, T)
            filled[rows, :, blanks] = first
            scores = _log_prob(decoder, filled.flatten(0, 1)).view(len(blanks), candidates)
            scored += (first[rows, scores.argmax(dim=-1)] == ids[blanks]).tolist()
    return statistics.fmean(both), statistics.fmean(left), statistics.fmean(scored)


def _log_prob(decoder: DecoderOnly, texts: Tensor) -> Tensor:
    """Return ln p of each text (N, T) -> (N,)."""
    log_p = decoder(texts[:, :-1]).log_softmax(dim=-1)
    return log_p.gather(2, texts[:, 1:, None])[..., 0].sum(dim=-1)


def both_sides_verdict(both: list[float], left: list[float], scored: list[float]) -> str:
    """Compare the fractions of hidden words guessed correctly: by the encoder, by the decoder from the left, and by the
    decoder that scores the complete sentence. Ahead means by over 2 points in every seed.

    confirmed: the encoder is ahead of the decoder, whichever way the decoder is asked
    depends: it is ahead for one of the two ways
    not at this size: it is ahead of neither; an encoder learns from the hidden words only, and needs more training
    """
    ahead = [min(one - other for one, other in zip(both, rival)) > 0.02 for rival in (left, scored)]
    return "confirmed" if all(ahead) else "depends" if any(ahead) else "not at this size"


@experiment(
    "encoder_decoder.both_sides",
    claim="A deep bidirectional model is strictly more powerful than a left-to-right model.",
    source=Source(
        "Devlin et al. 2019",
        "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding",
        "https://arxiv.org/abs/1810.04805",
        place="§ 3.1",
        quote="Intuitively, it is reasonable to believe that a deep bidirectional model is strictly more powerful than "
        "either a left-to-right model or the shallow concatenation of a left-to-right and a right-to-left model.",
    ),
    control="an encoder and a decoder of the same size, trained for the same number of steps on the same French "
    "sentences, each at its best rate; the decoder guesses from the left, and by scoring the whole sentence with each "
    "of its ten first guesses in the blank",
    verdict=both_sides_verdict,
    seeds=SEEDS,
)
def both_sides(size: Size) -> Measurement:
    """Hide each word of held-out French sentences in turn, and let an encoder and a decoder guess it."""
    encoders, decoders = trained_readers(size.steps(READER_STEPS))
    sentences = [french for _, french in TinytownPairs(HELD_OUT_SEED).sample(60)]
    models = zip(encoders.results, decoders.results)
    both, left, scored = zip(
        *(both_sides_and_left(encoder, decoder, sentences) for (_, encoder), (_, decoder) in models)
    )
    said = [f"{statistics.fmean(shares):.0%}" for shares in (both, left, scored)]
    return Measurement(
        measured=f"the encoder guesses {said[0]} of the hidden words from both sides; the decoder guesses {said[1]} "
        f"from the left, and {said[2]} if it scores the whole sentence",
        values=[one - other for one, other in zip(both, left)],
        figures={"both": list(both), "left": list(left), "scored": list(scored)},
        because="It depends on how the decoder is used. The words after a blank often decide what fits, and a decoder "
        "that scores sentences uses them as well. After four times the steps it guesses 52%, and the encoder 55%.",
    )


def decoder_pair_batches(tokenizer: WordTokenizer, batch_size: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the same pairs as one text for a decoder-only model: English <eos> <bos> French <eos>. Only the French part
    is predicted."""
    pairs = TinytownPairs(seed).pairs()
    while True:
        drawn = [next(pairs) for _ in range(batch_size)]
        sources = [tokenizer.encode(english)[1:] for english, _ in drawn]
        rows = [source + tokenizer.encode(french) for source, (_, french) in zip(sources, drawn)]
        targets = [[IGNORED] * len(source) + row[len(source) + 1 :] for source, row in zip(sources, rows)]
        yield stack([row[:-1] for row in rows], tokenizer.pad_id), stack(targets, IGNORED)


COMPARISON_STEPS = 120
LESS = 0.57  # of the steps: for a pair, a decoder of two blocks needs 1 / 0.57 of the encoder–decoder's FLOPs


def translating_arms() -> dict[str, tuple[TransformerConfig, float]]:
    """Return name -> (configuration, fraction of the steps), for an encoder–decoder and decoders that do no more work.

    "same cost": one block, as in each of the two stacks. It has half the parameters, the same FLOPs for a pair, and the
    same steps.
    "same size": two blocks. It has about the same parameters, more FLOPs for a pair, and fewer steps in proportion.
    """
    # Positions are learned, because sinusoids would be too large compared with the decoder's words.
    config = translator_config(TinytownPairs().tokenizer(), positions="learned")
    decoder = replace(config, family="decoder", max_seq_len=32)
    return {
        "encoder–decoder": (config, 1.0),
        "same cost": (decoder, 1.0),
        "same size": (replace(decoder, n_layers=2), LESS),
    }


def translating_loss(arm: str, steps: int, rate: float, seed: int) -> float:
    """Train one of `translating_arms` on pairs; return its loss on held-out pairs, in nats per French token."""
    tokenizer = TinytownPairs().tokenizer()
    config, part = translating_arms()[arm]
    torch.manual_seed(seed)
    encodes = config.family == "encoder-decoder"
    model, supply = (EncoderDecoder(config), pair_batches) if encodes else (DecoderOnly(config), decoder_pair_batches)
    train(model, supply(tokenizer, 32, seed), round(part * steps), peak=rate, warmup=30, progress=False)
    return held_out_loss(model, next(supply(tokenizer, 300, HELD_OUT_SEED)))


def equal_work_verdict(same_cost: list[float], same_size: list[float]) -> str:
    """Judge by how much the decoder's loss is above the encoder–decoder's in each seed, for two decoders.

    depends: the encoder–decoder is ahead of both decoders in every seed, so that it has an advantage here even without
        pretraining
    not at this size: it is not; short training from scratch in one small language decides nothing about large
        pretrained models
    """
    return "depends" if min(*same_cost, *same_size) > 0 else "not at this size"


@experiment(
    "encoder_decoder.decoder_alone",
    claim="For all tasks, the encoder-decoder architecture with the denoising objective performed best.",
    source=Source(
        "Raffel et al. 2020",
        "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer (T5)",
        "https://arxiv.org/abs/1910.10683",
        place="§ 3.2.4",
        quote="For all tasks, the encoder-decoder architecture with the denoising objective performed best. This "
        "variant has the highest parameter count (2P) but the same computational cost as the P-parameter decoder-only "
        "models.",
    ),
    control="equal work on the same pairs, each model at its best rate: a decoder of one block (equal FLOPs for a "
    "pair, half the parameters, equal steps) and one of two blocks (about equal parameters, more FLOPs, fewer steps)",
    verdict=equal_work_verdict,
    seeds=SEEDS,
)
def decoder_alone(size: Size) -> Measurement:
    """Train an encoder–decoder and two decoders on English–French pairs, with the same amount of work."""
    steps = size.steps(COMPARISON_STEPS)
    best = {arm: at_best_rate(partial(translating_loss, arm, steps), RATES, SEEDS) for arm in translating_arms()}
    both, *others = (best[arm].losses for arm in best)
    gaps = [[alone - one for alone, one in zip(losses, both)] for losses in others]
    return Measurement(
        measured=f"after {steps} steps the encoder–decoder's held-out loss is "
        f"{best['encoder–decoder'].mean:.1f} nats per token; after equal work a decoder of the same cost reaches "
        f"{best['same cost'].mean:.1f}, and one of the same size {best['same size'].mean:.1f}",
        values=gaps[0],
        figures={"same_cost": gaps[0], "same_size": gaps[1]},
        because="Early on, the order depends on how the work is made equal. After four times the steps all three are "
        "near 0. No model was pretrained here; the claim is about pretrained models over a thousand times larger.",
    )
