"""Chapter 11's measurements: against hand-made models whose answers are known, and the shipped models once more."""

import math
import re
import statistics
from dataclasses import replace

import pytest
import torch

from course_lib.chapters.encoder_decoder import claims as cross
from course_lib.chapters.encoder_decoder import masked_reader as reading
from course_lib.chapters.encoder_decoder import translator as translating
from course_lib.claims import recorded
from course_lib.config import TransformerConfig
from course_lib.counting import count_parameters, forward_flops
from course_lib.encoder_decoder import EncoderDecoder, EncoderOnly
from course_lib.gpt import IGNORED, DecoderOnly, evaluating
from course_lib.pretrained import load_pretrained, shipped_figures
from course_lib.tinytown import CLASSES, split_words
from course_lib.tinytown.french import TinytownPairs
from course_lib.trace import trace

# Claim -> outcome -> figures that a measurement could give.
OUTCOMES = {
    "encoder_decoder.alignment": {
        "confirmed": {"aligned": [0.97, 0.96, 0.99, 0.98]},
        "depends": {"aligned": [0.91, 0.5, 0.8, 0.7]},
        "refuted": {"aligned": [0.4, 0.3, 0.2, 0.5]},
    },
    "encoder_decoder.heads": {
        "confirmed": {"between": [0.3] * 3, "self_attention": [0.1] * 3, "all_of_self": [0.5, 0.4, 0.3]},
        "depends": {"between": [0.3, 0.3, 0.1], "self_attention": [0.1, 0.1, 0.2], "all_of_self": [0.5, 0.4, 0.3]},
        "refuted": {"between": [0.1] * 3, "self_attention": [0.2] * 3, "all_of_self": [0.5, 0.4, 0.3]},
        "not at this size": {"between": [0.3] * 3, "self_attention": [0.1] * 3, "all_of_self": [0.5, 0.4, 0.02]},
    },
    "encoder_decoder.padding": {
        "confirmed": {"alone": 1.0, "masked": 1.0, "unmasked": 0.3, "accustomed": 0.4, "causal": 0.2},
        "depends": {"alone": 1.0, "masked": 1.0, "unmasked": 0.3, "accustomed": 1.0, "causal": 0.0},
        "refuted": {"alone": 1.0, "masked": 1.0, "unmasked": 0.98, "accustomed": 1.0, "causal": 0.0},
    },
    "encoder_decoder.both_sides": {
        "confirmed": {"both": [0.7] * 3, "left": [0.6] * 3, "scored": [0.65] * 3},
        "depends": {"both": [0.7] * 3, "left": [0.6] * 3, "scored": [0.75] * 3},
        "not at this size": {"both": [0.5] * 3, "left": [0.6, 0.6, 0.4], "scored": [0.75] * 3},
    },
    "encoder_decoder.decoder_alone": {
        "depends": {"same_cost": [0.1, 0.2, 0.1], "same_size": [0.1, 0.1, 0.1]},
        "not at this size": {"same_cost": [-0.6, -0.7, -0.7], "same_size": [0.1, 0.1, 0.1]},
    },
}


@pytest.fixture(scope="module")
def translator():
    return load_pretrained("translator")


def test_a_batch_of_pairs_holds_the_sentences_and_the_decoder_predicts_the_next_word():
    tokenizer = TinytownPairs().tokenizer()
    pairs = [("tom slept in a garden.", "tom a dormi dans un jardin."), ("she was sad.", "elle était triste.")]
    source_ids, target_ids, source_mask, targets = translating.pair_batch(pairs, tokenizer)
    for row, (english, french) in enumerate(pairs):
        real = source_ids[row][source_mask[row, 0, 0]]
        assert tokenizer.decode(real) == english
        assert real[-1] == tokenizer.eos_id
        predicted = targets[row][targets[row] != IGNORED]
        assert tokenizer.decode(predicted) == french
        assert predicted[-1] == tokenizer.eos_id
        assert target_ids[row, 0] == tokenizer.bos_id
        assert target_ids[row, 1 : len(predicted)].tolist() == predicted[:-1].tolist()
    assert (source_ids[1][~source_mask[1, 0, 0]] == tokenizer.pad_id).all()


def test_translating_is_always_taking_the_most_probable_next_word(translator):
    model, tokenizer = translator
    english = ["the old cow was white.", "his small grey wolves did not chase a beautiful hen."]
    for sentence, written in zip(english, translating.translate(model, tokenizer, english)):
        source, _ = translating.source_batch([sentence], tokenizer)
        ids = [tokenizer.bos_id]
        while ids[-1] != tokenizer.eos_id:
            with evaluating(model):
                ids.append(int(model(source, torch.tensor([ids]))[0, -1].argmax()))
        assert written == tokenizer.decode(ids)


def test_the_shipped_translator_translates_new_draws_exactly(translator):
    assert translating.share_right(*translator, TinytownPairs(31_000).sample(200)) >= 0.98
    assert shipped_figures("translator")["figures"]["exactly_right"] >= 0.98


def test_the_share_of_right_translations_counts_whole_sentences(translator):
    pairs = TinytownPairs(31_001).sample(20)
    spoiled = [(english, french if i % 2 else "le chat.") for i, (english, french) in enumerate(pairs)]
    assert translating.share_right(*translator, spoiled) <= 0.5 <= translating.share_right(*translator, spoiled[1::2])


def test_cutting_a_head_is_the_same_as_zeros_in_its_columns_of_the_output_projection(translator):
    model, tokenizer = translator
    batch = translating.pair_batch(TinytownPairs(31_002).sample(5), tokenizer)[:3]
    with evaluating(model):
        before = model(*batch)
        with cross.cut_head(model, 1):
            cut = model(*batch)
        assert torch.equal(model(*batch), before), "the model is whole again"
        weight = model.decoder.blocks[-1].cross_attention.out_proj.weight
        kept = weight.detach().clone()
        weight[:, model.config.d_head :] = 0
        zeroed = model(*batch)
        weight.copy_(kept)
    torch.testing.assert_close(cut, zeroed)
    assert not torch.allclose(cut, before)


def test_kinds_of_words_are_those_of_a_grammar_book():
    kinds = {("mice", "souris"): "nouns", ("the", "la"): "articles", ("grey", "grises"): "adjectives"}
    kinds |= {("took", "a"): "auxiliaries", ("took", "pris"): "the rest", ("did", "ont"): "auxiliaries"}
    for (english, french), kind in kinds.items():
        assert cross.kind_of(english, french) == kind


def test_what_was_looked_at_covers_every_word_once_and_a_random_model_does_not_align():
    torch.manual_seed(0)
    tokenizer = TinytownPairs().tokenizer()
    model = EncoderDecoder(translating.translator_config(tokenizer))
    found = cross.looked_at(model, tokenizer, 31_003, 60)
    pairs = TinytownPairs(31_003).sample(60)
    assert len(found) == sum(len(split_words(french)) for _, french in pairs)
    even = statistics.fmean(1 / (len(split_words(english)) + 1) for english, _ in pairs)
    for head in range(2):
        assert statistics.fmean(hit[head].item() for _, hit, _, _ in found) < even + 0.25


# --------------------------------------------------------------------------------------------------------------- blanks
def test_hidden_words_and_nothing_else_are_to_be_guessed():
    tokenizer = reading.masked_tokenizer()
    batches = reading.MaskedBatches(tokenizer, n_stories=50, batch_size=40, share=0.3, seed=4)
    ids, mask, targets = next(batches)
    hidden = ids == tokenizer.id(reading.MASK)
    assert torch.equal(hidden, targets != IGNORED)
    assert (targets[hidden] > tokenizer.eos_id).all(), "no special token is hidden"
    restored = torch.where(hidden, targets, ids)
    passages = {tuple(passage) for passage in batches.passages}
    for row, real in zip(restored, mask[:, 0, 0]):
        assert tuple(row[real].tolist()) in passages
    words = (restored > tokenizer.eos_id).sum().item()
    assert abs(hidden.sum().item() / words - 0.3) < 4 * math.sqrt(0.3 * 0.7 / words)


def test_the_same_generator_state_gives_the_same_hidden_words():
    tokenizer = reading.masked_tokenizer()
    batches = reading.MaskedBatches(tokenizer, 30, 4, 0.2)
    state = batches.generator.get_state()
    first = next(batches)
    batches.generator.set_state(state)
    assert all(torch.equal(one, other) for one, other in zip(first, next(batches)))


def test_the_readers_logits_are_dot_products_with_the_token_table():
    torch.manual_seed(0)
    tokenizer = reading.masked_tokenizer()
    config = TransformerConfig(
        vocab_size=len(tokenizer), d_model=16, n_heads=2, n_layers=1, max_seq_len=20, family="encoder"
    )
    encoder = EncoderOnly(config)
    ids = torch.randint(3, 100, (2, 9))
    table = encoder.token_embedding.weight
    with evaluating(encoder):
        logits = reading.MaskedReader(encoder)(ids)
        assert logits[1, 4, 77].item() == pytest.approx(float(encoder(ids)[1, 4] @ table[77]), abs=1e-5)


def test_the_shipped_reader_uses_what_stands_behind_the_blank():
    model, tokenizer = load_pretrained("masked")

    def guess(text, k=1):
        return reading.fill(model, tokenizer, text, k)[0]

    for capital, country in (("oslo", "norway"), ("madrid", "spain"), ("lima", "peru")):
        assert guess(f"what is the capital of {reading.MASK}? it is {capital}.")[0][0] == country
    animals = set(CLASSES["animal"])
    for word, share in (("hungry", 0.9), ("soft", 0.0)):
        text = (
            f"the white cat sat on the grey mat because it was {word}. yes, the white {reading.MASK} was very {word}."
        )
        assert sum(p for name, p in guess(text, len(tokenizer)) if name in animals) == pytest.approx(share, abs=0.1)


# --------------------------------------------------------------------------------------------------------------- claims
def test_an_attention_is_needed_at_least_as_much_as_its_heads(translator):
    """The encoder's self-attention is hardly needed, so its heads cannot be: the control of the claim on heads."""
    lost = cross.lost_without_heads(*translator, n=60)
    assert lost["between the two"][0] > 0.2 > lost["decoder"][1] > lost["encoder"][1]
    assert all(one <= whole + 0.01 for one, whole in lost.values())


def test_a_head_of_any_attention_can_be_silenced(translator):
    model, tokenizer = translator
    batch = translating.pair_batch(TinytownPairs(31_002).sample(5), tokenizer)[:3]
    for attention in cross.ATTENTIONS.values():
        with evaluating(model), cross.cut_head(model, 0, attention), trace(model, "*attention*") as seen:
            model(*batch)
        name = attention.format(last=0)
        module = model.get_submodule(name)
        heads = seen[f"{name}.heads"].clone()  # (B, H, T, D)
        heads[:, 0] = 0
        with torch.no_grad():
            torch.testing.assert_close(seen[name], module.out_proj(heads.transpose(1, 2).flatten(2)))


def test_the_two_heads_of_the_shipped_translator_fail_differently_when_cut(translator):
    found = cross.looked_at(*translator, 31_005, 100)
    head = cross.aligning_head(*translator)
    nouns = torch.stack([kept for kind, _, _, kept in found if kind == "nouns"]).mean(dim=0)  # (H,)
    assert nouns[1 - head] > nouns[head] + 0.2


@pytest.mark.parametrize(("accustomed", "causal"), [(1.0, 0.2), (0.4, 0.0)])
def test_one_model_that_needs_no_padding_mask_is_enough_for_depends(accustomed, causal):
    """The card once measured a single model, which had always had the mask, and said confirmed."""
    assert cross.padding_verdict(1.0, 1.0, 0.27, accustomed, causal) == "depends"


def test_padding_after_a_causal_decoders_texts_changes_no_guess_and_without_causality_it_does():
    model, tokenizer = load_pretrained("tinytown")
    assert cross.causal_changes(model, tokenizer, 31_008, 5) == 0
    for block in model.blocks:
        block.is_causal = False
    assert cross.causal_changes(model, tokenizer, 31_008, 5) > 0.01


def test_a_few_steps_without_the_mask_teach_the_translator_to_ignore_padding(translator, monkeypatch):
    monkeypatch.setattr(cross, "SEEDS", (0,))
    batch = next(cross.without_mask(translating.pair_batches(translator[1], 8, 0)))
    assert batch[2] is None
    best = cross.trained_without_mask(10)
    (_, accustomed) = best.results[0]
    before, after = (cross.exact_padded(model, translator[1], 31_009, False) for model in (translator[0], accustomed))
    assert before < 0.6 < after
    assert cross.exact_padded(*translator, 31_009, True) == cross.exact_alone(*translator, 31_009) == 1


def test_after_four_times_the_steps_the_encoder_has_caught_up_with_the_decoder_that_scores():
    """At the usual length the decoder leads by 13 points, because the encoder has learned little."""
    finding = recorded()["encoder_decoder.both_sides"]
    assert [each.steps for each in finding.tried] == [4]
    both, _, scored = map(int, re.findall(r"(\d+)%", finding.tried[0].measured))
    assert abs(both - scored) <= 4
    assert "four times the steps" in finding.because


@pytest.fixture(scope="module")
def readers():
    """An untrained encoder and decoder as `trained_readers` makes them."""
    torch.manual_seed(0)
    config = TransformerConfig(vocab_size=len(cross.french_tokenizer()), family="encoder", **cross.READERS)
    return EncoderOnly(config), DecoderOnly(replace(config, family="decoder"))


def test_encoder_and_decoder_have_the_same_size(readers):
    """The claim on both sides once compared an encoder with a decoder of five times its size."""
    encoder, decoder = (sum(parameter.numel() for parameter in model.parameters()) for model in readers)
    assert encoder == decoder


def test_the_decoder_reads_the_sentences_in_which_the_encoder_guesses():
    tokenizer = cross.french_tokenizer()
    masked = next(cross.masked_sentences(tokenizer, 31_007, 40))
    ids, targets = cross.unmasked(masked, tokenizer.pad_id)
    for row, following, (_, french) in zip(ids, targets, TinytownPairs(31_007).sample(40)):
        real = following[following != IGNORED].tolist()
        assert [row[0].item(), *real] == tokenizer.encode(french)
        assert row[1 : len(real)].tolist() == real[:-1]
    hidden = masked[0] == tokenizer.id(reading.MASK)
    assert torch.equal(hidden, masked[2] != IGNORED)
    assert abs(hidden.sum().item() / (targets > tokenizer.eos_id).sum().item() - cross.HIDDEN) < 0.1


def test_with_one_candidate_scoring_the_sentence_is_guessing_from_the_left(readers):
    sentences = [french for _, french in TinytownPairs(31_006).sample(4)]
    _, left, scored = cross.both_sides_and_left(*readers, sentences, candidates=1)
    assert left == scored


def test_a_decoder_that_knows_the_sentence_finds_each_word_when_it_scores():
    """From the left nothing is known of the first word; the score of the sentence tells."""
    tokenizer = cross.french_tokenizer()
    sentence = "une belle chèvre."
    ids = tokenizer.encode(sentence)

    class Knows(DecoderOnly):
        def forward(self, texts):
            """Each next word of the sentence is sure after the right word before it, else all are equal."""
            logits = torch.zeros(*texts.shape, len(tokenizer))
            for t in range(texts.shape[1]):
                logits[texts[:, t] == ids[t], t, ids[t + 1]] = 9.0 if t else 0.0
            return logits

    config = TransformerConfig(len(tokenizer), family="encoder", **cross.READERS)
    encoder, knows = EncoderOnly(config), Knows(replace(config, family="decoder"))
    _, left, scored = cross.both_sides_and_left(encoder, knows, [sentence], candidates=len(tokenizer))
    assert left < scored == 1


def test_a_decoder_reads_the_source_as_its_own_beginning_and_predicts_the_french_alone():
    tokenizer = TinytownPairs().tokenizer()
    ids, targets = next(cross.decoder_pair_batches(tokenizer, 6, 31_004))
    for row, (english, french) in enumerate(TinytownPairs(31_004).sample(6)):
        predicted = targets[row][targets[row] != IGNORED]
        assert tokenizer.decode(predicted) == french
        n = len(split_words(english)) + 1
        assert tokenizer.decode(ids[row, :n]) == english
        assert (targets[row, :n] == IGNORED).all()
        assert ids[row, n] == tokenizer.bos_id


def test_the_translators_do_equal_work():
    """Equal steps were 2.5 against 4.4 MFLOP for a pair."""
    S, T = 9, 9
    work = {}
    for arm, (config, part) in cross.translating_arms().items():
        encodes = config.family == "encoder-decoder"
        work[arm] = part * (forward_flops(config, T, S=S) if encodes else forward_flops(config, S + T))
    for arm in ("same cost", "same size"):
        assert work[arm] == pytest.approx(work["encoder–decoder"], rel=0.05), arm
    sizes = {arm: count_parameters(config).total for arm, (config, _) in cross.translating_arms().items()}
    assert sizes["same cost"] == pytest.approx(sizes["encoder–decoder"] / 2, rel=0.05)
    assert sizes["same size"] == pytest.approx(sizes["encoder–decoder"], rel=0.15)


@pytest.mark.parametrize("arm", cross.translating_arms())
def test_an_untrained_translator_of_each_kind_guesses_among_all_words(arm, monkeypatch):
    seen = []
    monkeypatch.setattr(cross, "train", lambda model, batches, steps, **settings: seen.append(steps))
    untrained = math.log(len(TinytownPairs().tokenizer()))
    assert cross.translating_loss(arm, 100, 1e-3, 0) == pytest.approx(untrained, rel=0.1)
    assert seen == [57 if arm == "same size" else 100]


# -------------------------------------------------------------------------------------------------------------- recipes
def test_the_recipes_write_models_that_open_again(tmp_path):
    translating.train_translator(tmp_path / "t", False, translating.TranslatorRecipe(steps=2, batch_size=4))
    model, tokenizer = load_pretrained(tmp_path / "t")
    assert isinstance(model, EncoderDecoder)
    assert model.config.vocab_size == len(tokenizer)
    plan = reading.MaskedRecipe(steps=2, batch_size=4, stories=20, d_model=16, n_layers=1)
    reading.train_masked(tmp_path / "m", False, plan)
    model, tokenizer = load_pretrained(tmp_path / "m")
    assert isinstance(model, EncoderOnly)
    assert reading.MASK in tokenizer.ids
    assert shipped_figures(tmp_path / "m")["recipe"]["steps"] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "t"], "nothing unfinished is left"


def test_an_interrupted_reader_goes_on_as_if_it_had_never_stopped(tmp_path, monkeypatch):
    plan = reading.MaskedRecipe(steps=4, batch_size=4, stories=20, d_model=16, n_layers=1)
    reading.train_masked(tmp_path / "whole", False, plan)
    real = reading.train

    def interrupted(*arguments, **settings):
        settings["checkpoint_every"] = 2
        calls = iter(range(3))

        def stop(step, model):
            if next(calls) == 2:
                raise KeyboardInterrupt

        # The checkpoint of step 2 is written after this call, so stop in the third step.
        return real(*arguments, **settings, on_step=lambda step, model: stop(step, model) if step != 2 else None)

    with monkeypatch.context() as patch:
        patch.setattr(reading, "train", interrupted)
        with pytest.raises((KeyboardInterrupt, StopIteration)):
            reading.train_masked(tmp_path / "cut", False, plan)
    assert (tmp_path / "cut.part").exists()
    reading.train_masked(tmp_path / "cut", False, plan)
    (one, _), (other, _) = load_pretrained(tmp_path / "whole"), load_pretrained(tmp_path / "cut")
    for name, tensor in one.state_dict().items():
        torch.testing.assert_close(tensor, other.state_dict()[name], rtol=0, atol=0, msg=name)
