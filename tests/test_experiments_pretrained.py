"""Chapter 15's claims: what the experiments measure, on models and texts whose answers are known otherwise."""

import math

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from course_lib.chapters.pretrained import claims as measured
from course_lib.claims import find
from course_lib.claims.interventions import patch
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderOnly
from course_lib.gpt import DecoderOnly
from course_lib.grading import EXERCISES
from course_lib.hub.checkpoints import from_hf_state_dict
from course_lib.pretrained import load_pretrained, shipped_figures
from course_lib.tinytown import Tinytown

OUTCOMES = {
    "pretrained.small_mistake": {
        "confirmed": {"right": 1.0, "mistaken": [0.0, 0.4, 0.1]},
        "depends": {"right": 1.0, "mistaken": [0.0, 0.9, 0.9]},
        "refuted": {"right": 1.0, "mistaken": [0.8, 0.9, 0.9]},
    },
    "pretrained.missing_tensor": {
        "confirmed": {"not_worse": 0.0, "small": 0.0},
        "depends": {"not_worse": 0.0, "small": 0.1},
        "refuted": {"not_worse": 0.2, "small": 0.4},
    },
    "pretrained.it_in_a_decoder": {"by construction": {"before": 0.0, "after": 0.4}},
    "pretrained.weights_as_influence": {
        "confirmed": {"by_weight": 0.95, "by_place": 0.3},
        "depends": {"by_weight": 0.5, "by_place": 0.3},
        "refuted": {"by_weight": 0.3, "by_place": 0.3},
    },
    "pretrained.grouped_sentences": {
        "confirmed": {"topic": -0.01, "who": 0.0, "who_strict": 0.04},
        "depends": {"topic": -0.01, "who": 0.0, "who_strict": 0.47},
        "refuted": {"topic": 0.1, "who": 0.2, "who_strict": 0.47},
    },
    "pretrained.referent_learned": {
        "confirmed": {"trained": 1.0, "untrained": [0.5, 0.6, 0.4], "without_it": 0.6},
        "depends": {"trained": 1.0, "untrained": [0.5, 0.6, 0.4], "without_it": 1.0},
        "not at this size": {"trained": 0.6, "untrained": [0.5, 0.6, 0.4], "without_it": 0.5},
    },
    "pretrained.lora_forgets": {
        "confirmed": {"saved": [0.2, 0.3, 0.2], "saved_at_end": [0.4, 0.2, 0.3]},
        "depends": {"saved": [0.0, 0.1, 0.0], "saved_at_end": [0.4, 0.2, 0.3]},
        "not at this size": {"saved": [0.0, 0.1, 0.0], "saved_at_end": [-0.9, -0.6, -0.7]},
    },
}


@pytest.fixture(scope="module")
def tinytown():
    return load_pretrained("tinytown")


def drawn(build, **fields):
    model = build(
        TransformerConfig(**{"vocab_size": 30, "d_model": 16, "n_heads": 2, "n_layers": 2, "max_seq_len": 12} | fields)
    )
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


# ---------------------------------------------------------------------------------------------- a model as others write
@pytest.mark.parametrize(
    "fields", [{}, {"tie_weights": False}, {"activation": "relu", "d_ff": 20}, {"activation": "gelu_tanh"}]
)
def test_a_model_written_as_gpt2_runs_in_transformers(fields):
    model = drawn(DecoderOnly, **fields)
    tensors, settings = measured.gpt2_layout(model)
    theirs = GPT2LMHeadModel(GPT2Config(**settings, bos_token_id=1, eos_token_id=2)).eval()
    head = {"lm_head.weight": tensors.pop("lm_head.weight", tensors["wte.weight"])}
    theirs.load_state_dict({f"transformer.{name}": tensor for name, tensor in tensors.items()} | head)
    ids = torch.randint(30, (2, 9))
    with torch.no_grad():
        torch.testing.assert_close(model(ids), theirs(ids).logits, atol=1e-5, rtol=1e-5)


def test_there_and_back_again_changes_no_bit():
    model = drawn(DecoderOnly)
    again = from_hf_state_dict("gpt2", *measured.gpt2_layout(model)).state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("fields", [{"positions": "rope"}, {"norm": "rms"}, {"norm_position": "post"}, {"bias": False}])
def test_what_gpt2_cannot_be_is_refused_by_name(fields):
    with pytest.raises(ValueError, match=f"a model built like GPT-2.*{next(iter(fields))}"):
        measured.gpt2_layout(drawn(DecoderOnly, **fields))


def test_the_loss_on_held_out_stories_is_the_one_kept_beside_the_weights(tinytown):
    kept = shipped_figures()["figures"]["loss"]
    assert measured.mean_loss(*tinytown, n_stories=60) == pytest.approx(kept, rel=0.06), "another sample of stories"


def test_a_square_matrix_that_is_not_transposed_loads_and_ruins_the_model(tinytown):
    loss = measured.mean_loss(measured.mistaken("square matrices not transposed"), tinytown[1], n_stories=12)
    assert 1.5 < loss < math.log(343) + 1, "far above the entropy of 0.65"


def test_a_parity_test_speaks_for_the_positions_that_it_ran(tinytown):
    model, tokenizer = tinytown
    tensors, settings = measured.gpt2_layout(model)
    table = tensors["wpe.weight"]
    spoilt = from_hf_state_dict("gpt2", tensors | {"wpe.weight": torch.cat([table[:13], table[13:].flip(0)])}, settings)
    ids = torch.tensor([tokenizer.encode(next(Tinytown(5).stories()))[:30]])
    with torch.no_grad():
        difference = (spoilt(ids) - model(ids)).abs().amax(dim=-1)[0]  # (T,)
    assert difference[:13].max() < 1e-5
    assert difference[13:].max() > 1


@pytest.mark.proof
def test_even_the_matrix_that_is_missed_least_raises_the_loss_on_the_same_stories(tinytown):
    """Between samples of stories its 1% is lost, so it was said that no loss gives a warning."""
    model, tokenizer = load_pretrained("tinytown")
    torch.manual_seed(0)
    fresh, rises = DecoderOnly(model.config), {}
    right = measured.mean_loss(model, tokenizer)
    for name in [f"blocks.1.attention.{part}_proj.weight" for part in "qkv"]:
        learned = model.get_parameter(name).data
        model.get_parameter(name).data = fresh.get_parameter(name).data
        rises[name] = measured.mean_loss(model, tokenizer) / right - 1
        model.get_parameter(name).data = learned
    assert 0 < min(rises.values()) < measured.SMALL


@pytest.mark.proof
def test_looking_for_gaps_leaves_no_gap_behind(tinytown, monkeypatch):
    """The experiment exchanges matrices; a model opened afterwards is whole."""
    monkeypatch.setattr(measured, "SEEDS", (0,))
    find("pretrained.missing_tensor")()
    again = load_pretrained("tinytown")[0].state_dict()
    assert all(torch.equal(tensor, again[name]) for name, tensor in tinytown[0].state_dict().items())


# ---------------------------------------------------------------------------------------------------- what a map shows
def test_rows_before_the_difference_are_equal_in_a_decoder_and_free_in_an_encoder():
    one, other = [3, 4, 5, 6, 7, 8], [3, 4, 5, 20, 7, 8]
    causal = measured.rows_that_differ(drawn(DecoderOnly), one, other)
    assert causal[:3].tolist() == [0, 0, 0]
    assert (causal[3:] > 0).all()
    assert (measured.rows_that_differ(drawn(EncoderOnly, family="encoder"), one, other) > 0).all()


def test_texts_of_different_lengths_cannot_be_compared_row_by_row():
    with pytest.raises(ValueError, match="the same number of tokens, got 3 and 2"):
        measured.rows_that_differ(drawn(DecoderOnly), [3, 4, 5], [3, 4])


def test_rank_correlation_knows_order_alone():
    values = torch.tensor([0.1, 3.0, 0.7, 9.0, 2.0])
    assert measured.rank_correlation(values, values**3) == pytest.approx(1)
    assert measured.rank_correlation(values, -values) == pytest.approx(-1)
    # By hand: ranks 0 1 2 3 and 1 0 3 2 differ by 1 each: 1 − 6 · 4 / (4 · 15) = 0.6
    swapped = measured.rank_correlation(torch.tensor([1.0, 2, 3, 4]), torch.tensor([2.0, 1, 4, 3]))
    assert swapped == pytest.approx(0.6)


def test_words_are_exchanged_for_others_that_fit_wherever_they_stand():
    town, words = Tinytown(), ["once", "there", "was", "a", "king", "called", "tom", ".", "tom", "had", "a"]
    swaps = measured.matched_swaps(town, words, torch.Generator().manual_seed(0))
    assert {"king", "tom"} <= swaps.keys()
    assert "called" not in swaps, "nothing else fits there"
    for word, others in swaps.items():
        for other in others:
            assert other != word
            assert town.next_word(" ".join(other if each == word else each for each in words))


def test_weight_on_the_first_token_is_averaged_over_each_half_without_the_first_position():
    even = torch.ones(6, 6).tril() / torch.arange(1, 7)[:, None]
    sink = torch.eye(6)[0].expand(6, 6)
    early = torch.cat([sink[:3], even[3:]])
    (first, shares), (second, later) = measured.weight_on_first(torch.stack([even, sink, early])[None])
    assert (first, second) == pytest.approx(((1 / 2 + 1 / 3) / 2, (1 / 4 + 1 / 5 + 1 / 6) / 3))
    assert shares[0].tolist() == pytest.approx([first, 1, 1])
    assert later[0].tolist() == pytest.approx([second, 1, second])


@pytest.mark.proof
def test_heads_of_tinytown_lean_on_the_first_token_early_in_a_text_and_not_later(tinytown):
    model, tokenizer = tinytown
    torch.manual_seed(0)
    untrained = DecoderOnly(model.config).eval()
    for seed in measured.SEEDS:
        for which, leans in ((model, True), (untrained, False)):
            halves = []
            for story in measured._held_out(seed, 10):
                with torch.no_grad():
                    weights = torch.cat(which.attention_weights(torch.tensor([tokenizer.encode(story)])))
                halves.append([share / even for even, share in measured.weight_on_first(weights)])
            early, late = (torch.stack(half).mean(dim=0) for half in zip(*halves))  # (L, H), 1: an even share
            assert (early > 1.5).any() == leans
            assert early.max() > 2 if leans else early.max() < 1.2
            assert late.mean() < 1.2


def test_the_size_of_a_value_is_the_norm_of_what_its_head_adds():
    model, ids = drawn(DecoderOnly), torch.tensor([[3, 4, 5, 6]])
    sizes = measured.value_sizes(model, ids)
    assert sizes.shape == (2, 2, 4)
    attention = model.blocks[0].attention
    with torch.no_grad():
        value = attention.v_proj(model.blocks[0].norm1(model.token_embedding(ids) + model.positions.weight[:4]))[
            0, 2, 8:
        ]
        added = attention.out_proj.weight[:, 8:] @ value
    assert sizes[0, 1, 2].item() == pytest.approx(added.norm().item(), rel=1e-4)


@pytest.mark.proof
def test_to_count_the_size_of_the_values_as_well_does_not_explain_the_rest():
    plain, _, _, sized = measured.weights_and_influence(0)
    assert abs(plain - sized) < 0.1
    assert max(plain, sized) < 0.8


# ---------------------------------------------------------------------------------------------------- sentence vectors
def test_topics_are_told_by_lines_and_vectors_have_length_one(tinytown):
    story = "once there was a king called tom . the goat said maa . then he went to bed ."
    vectors, topics = measured.topic_vectors(*tinytown, [story])
    assert topics == ["opening", "say", "closing"]
    torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(3))


def test_nearest_neighbours_are_counted_without_the_line_itself():
    angles = torch.tensor([0.0, 0.1, 1.5, 1.6, 3.0])
    vectors = torch.stack([angles.cos(), angles.sin()], dim=-1)
    assert measured.nearest_has_the_topic(vectors, ["a", "a", "b", "b", "c"]) == 0.8
    assert measured.nearest_has_the_topic(vectors, ["a", "b", "a", "b", "c"]) == 0.0


def test_a_probe_finds_what_a_straight_line_separates_and_nothing_in_noise():
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat(50)
    noise = torch.randn(200, 8, generator=generator)
    assert min(measured.probed(torch.eye(4)[labels].repeat(1, 2) + 0.1 * noise, labels, 0).values()) == 1
    assert max(measured.probed(noise, labels, 0).values()) < 0.5


def test_what_trained_blocks_gain_on_a_label_that_words_cannot_tell_depends_on_the_probe():
    """On topics nothing can gain five points over counted words, so that measure alone could not refute the claim."""
    found = measured.who_chased(0)
    assert max(found["word vectors only"].values()) < 0.5
    assert max(found["trained"].values()) - max(found["random blocks"].values()) <= 0.05
    assert found["trained"][measured.STRICT] - found["random blocks"][measured.STRICT] > 0.2


def test_random_blocks_show_who_chased_by_attention_or_by_positions_and_without_both_no_more_than_words():
    found = measured.who_chased(0)
    best = {way: max(by_ridge.values()) for way, by_ridge in found.items()}
    assert min(best["random, no attention"], best["random, no position vectors"]) > 0.95
    assert best["random, neither"] < 0.5


def test_a_part_is_zero_in_the_copy_only(tinytown):
    model, _ = tinytown
    copied = measured.without(model, "positions")
    assert not copied.positions.weight.any()
    assert model.positions.weight.any()
    assert torch.equal(copied.token_embedding.weight, model.token_embedding.weight)


def test_lines_are_counted_word_by_word(tinytown):
    _, tokenizer = tinytown
    vectors = measured.lines_by_words(
        tokenizer, ["once there was a king called tom . the goat said maa . then he went to bed ."], torch.eye(343)
    )
    assert vectors.shape == (3, 343)
    assert vectors[1].nonzero().flatten().tolist() == sorted(
        tokenizer.id(word) for word in ["the", "goat", "said", "maa", "."]
    )


# --------------------------------------------------------------------------------------------- what training brought
def test_the_answer_goes_by_the_kind_of_noun_and_chance_is_a_half(tinytown):
    as_is, moved = (measured.referents_right(tinytown[0], exchanged=each) for each in (False, True))
    assert set(as_is.values()) == {1.0}
    assert moved["its kind"] == 1, "where the nouns are exchanged, too"
    assert moved["most probable word"] < 0.5 < moved["forced choice"], (
        "one of that kind, mostly not the one in the text"
    )
    torch.manual_seed(0)
    untrained = measured.referents_right(DecoderOnly(tinytown[0].config).eval())
    assert untrained["most probable word"] == 0
    assert 0.3 < untrained["forced choice"] < 0.7


def test_random_blocks_on_the_trained_table_keep_the_topics_that_its_vectors_tell(monkeypatch):
    monkeypatch.setattr(measured, "STORIES", 12)
    found = measured.topics_found(0)
    assert found["random blocks on the trained table"] > found["everything random"] + 0.1 > found["chance"] + 0.1


def test_a_rate_at_which_too_little_is_learned_counts_as_no_run(monkeypatch):
    paths = {1e-3: [(4.0, 0.7), (2.0, 1.0)], 2e-3: [(4.0, 0.7), (0.8, 1.5)]}
    monkeypatch.setattr(measured, "losses_on_the_way", lambda way, steps, rate, seed: paths[rate])
    assert measured.forgotten("all", 60, 1e-3, 0) == math.inf
    assert measured.forgotten("all", 60, 2e-3, 0) == pytest.approx(0.7 + 0.8 * (4 - measured.SAME) / 3.2)
    assert measured.at_the_end("all", 60, 2e-3, 0) == (0.8, 1.5)


def test_the_comparison_at_the_end_of_training_is_judged_as_well():
    """LoRA forgets more there, which a comparison at the same gain does not show."""
    decide = find("pretrained.lora_forgets").decide
    assert decide(saved=[0.3, 0.3, 0.3], saved_at_end=[-0.9, -0.6, -0.7]) == "depends"
    assert decide(saved=[0.3, 0.3, 0.3], saved_at_end=[0.2, 0.2, 0.2]) == "confirmed"


def test_one_head_of_block_1_carries_the_answer_and_the_head_of_the_map_less_than_half(tinytown):
    model, _ = tinytown
    assert measured.carried(model, "blocks.1.attention.head.3", positions=[-1]) > 0.9
    assert 0.1 < measured.carried(model, "blocks.2.attention.head.0", positions=[-1]) < 0.5
    assert measured.carried(model, "blocks.2.attention.head.1") < 0.1
    assert measured.carried(model, "blocks.1", positions=[-1]) == pytest.approx(1, abs=0.05), (
        "after block 1 it is there"
    )
    assert abs(measured.carried(model, "blocks.0", positions=[-1])) < 0.05, "and before it is not"


def test_the_attention_of_block_2_decides_between_the_nouns_of_the_story_and_not_between_the_kinds(tinytown):
    (_, _, both, kind), (_, _, looked_up, same_kind), *_ = measured.two_routes(*tinytown)
    assert abs(looked_up) < 0.3 * both
    assert min(kind, same_kind) > 1


# ------------------------------------------------------------------------------------------------------------- patching
def it_stories(tokenizer, *words):
    """The ids of stories in which (animal, thing, adjective) are the words."""
    stories = [measured.IT_STORY.format(animal=a, thing=t, why=why) for a, t, why in words]
    return [torch.tensor([tokenizer.encode(story, end=False)]) for story in stories]


@pytest.mark.parametrize("position", [1, 4, 7])
def test_the_effects_of_the_exercise_are_those_of_hooks_in_transformers_gpt2(position):
    model = drawn(DecoderOnly, n_layers=3)
    tensors, settings = measured.gpt2_layout(model)
    theirs = GPT2LMHeadModel(GPT2Config(**settings, bos_token_id=1, eos_token_id=2)).eval()
    theirs.transformer.load_state_dict(tensors)
    theirs.tie_weights()
    clean, corrupted, control = torch.randint(30, (3, 2, 8))
    answer, other = torch.tensor([3, 9]), torch.tensor([20, 11])

    def leads(ids):
        logits = theirs(ids).logits[:, -1]
        return sum(logits[b, answer[b]] - logits[b, other[b]] for b in range(2)).item() / 2

    def first(output):
        return output[0] if isinstance(output, tuple) else output

    def taken_over(block, source):
        found = []
        handle = block.register_forward_hook(lambda _, inputs, output: found.append(first(output).clone()))
        theirs(source)
        handle.remove()

        def in_place(_, inputs, output):
            first(output)[:, position] = found[0][:, position]

        handle = block.register_forward_hook(in_place)
        lead = leads(corrupted)
        handle.remove()
        return lead

    with torch.no_grad():
        start, end = leads(corrupted), leads(clean)
        expected = {
            name: [(taken_over(block, source) - start) / (end - start) for block in theirs.transformer.h]
            for name, source in (("effect", clean), ("control", control))
        }
    found = EXERCISES["pretrained.patch"].reference(model, clean, corrupted, control, position, answer, other)
    for name, row in expected.items():
        assert found[name].tolist() == pytest.approx(row, abs=1e-4)
        assert max(map(abs, row)) > 0.01


def test_layer_1_brings_the_adjectives_message_and_layer_2_the_noun(tinytown):
    """The teacher's note, and the table after the exercise: with the noun exchanged, a part that has the noun shows."""
    model, tokenizer = tinytown
    for animal, thing, another, tired, soft, warm in (
        ("cat", "mat", "rug", "tired", "soft", "warm"),
        ("dog", "sofa", "box", "hungry", "warm", "new"),
        ("owl", "box", "chair", "clever", "new", "soft"),
    ):
        clean, corrupted, control, moved = it_stories(
            tokenizer, (animal, thing, tired), (animal, thing, soft), (animal, thing, warm), (animal, another, soft)
        )
        last, nouns = clean.shape[1] - 1, [torch.tensor([tokenizer.id(noun)]) for noun in (animal, thing)]
        effects = EXERCISES["pretrained.patch"].reference
        for source, named in ((control, thing), (moved, another)):
            found = effects(model, clean, corrupted, source, last, *nouns)
            assert found["effect"].tolist() == pytest.approx([0, 1, 1, 1], abs=0.05)
            assert found["control"][:2].tolist() == pytest.approx([0, 0], abs=0.02)
            assert source is moved or found["control"].abs().max() < 0.05
            with torch.no_grad():
                logits = model(corrupted) + patch(model, corrupted, source, "blocks.2", [last])
            assert tokenizer.tokens[int(logits[0, -1].argmax())] == named
        at_adjective = effects(model, clean, corrupted, control, last - 4, *nouns)
        assert at_adjective["effect"].tolist() == pytest.approx([1, 0, 0, 0], abs=0.05)
        if animal == "cat":
            assert found["control"][2:].tolist() == pytest.approx([0.25, 0.25], abs=0.01)
