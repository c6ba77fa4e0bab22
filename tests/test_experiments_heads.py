"""Chapter 4's experiments: possible outcomes, the tools that measure, and bands for figures known from elsewhere."""

import math

import pytest
import torch
import torch.nn.functional as F

from course_lib.chapters.heads import claims as heads
from course_lib.claims import find
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.heads import MultiHeadAttention
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown, split_words

YES, NO = [True] * 3, [False] * 3
OUTCOMES = {
    "heads.parameters": {
        "confirmed": {"shared_grows": True, "fixed_grows": True},
        "depends": {"shared_grows": False, "fixed_grows": True},
        "refuted": {"shared_grows": False, "fixed_grows": False},
    },
    "heads.slice": {
        "confirmed": {"moved": [0.0] * 3, "chunked": [0.0] * 3},
        "refuted": {"moved": [1.3] * 3, "chunked": [0.0] * 3},
    },
    "heads.time": {
        "confirmed": {"kept": [1.0, 1.0], "fused": [1.2, 1.1]},
        "refuted": {"kept": [2.0, 9.0], "fused": [1.7, 2.0]},
        "depends": {"kept": [2.0, 9.0], "fused": [1.0, 1.0]},
    },
    "heads.one_big_head": {
        "confirmed": {"one": [0.4] * 3, "two": [0.1] * 3, "itself": [0.01] * 3},
        "refuted": {"one": [0.4] * 3, "two": [0.3] * 3, "itself": [0.01] * 3},
        "depends": {"one": [0.4] * 3, "two": [0.1] * 3, "itself": [0.2] * 3},
    },
    "heads.removal": {
        "confirmed": {"by_loss": [11] * 3, "by_both": [9] * 3, "strictly": [9] * 3, "heads": 16},
        "depends": {"by_loss": [11] * 3, "by_both": [9] * 3, "strictly": [6] * 3, "heads": 16},
        "not at this size": {"by_loss": [8] * 3, "by_both": [8] * 3, "strictly": [6] * 3, "heads": 16},
    },
    "heads.looking": {
        "confirmed": {"confident": [1.0] * 3, "others": [0.4] * 3, "above": [0.2] * 3},
        "not at this size": {"confident": [1.0] * 3, "others": [0.4] * 3, "above": [0.6] * 3},
    },
    "heads.specialise": {
        "confirmed": {"pairs": [4, 5, 4], "always": 4},
        "depends": {"pairs": [1, 0, 2], "always": 0},
        "refuted": {"pairs": [0, 0, 0], "always": 0},
    },
    "heads.copying": {
        "confirmed": {"induction": [0.9] * 3, "ordinal": [0.0] * 3},
        "depends": {"induction": [0.0] * 3, "ordinal": [0.9] * 3},
        "refuted": {"induction": [0.1] * 3, "ordinal": [0.2] * 3},
    },
    "heads.induction": {
        "confirmed": {"plain_one": NO, "plain_two": YES, "smeared_one": NO},
        "depends": {"plain_one": NO, "plain_two": YES, "smeared_one": YES},
        "refuted": {"plain_one": YES, "plain_two": YES, "smeared_one": YES},
        "not at this size": {"plain_one": NO, "plain_two": NO, "smeared_one": NO},
    },
    "heads.gate": {
        "confirmed": {"plain": [0.4] * 3, "gated": [0.1] * 3, "constant": [0.3, 0.5, 1.0], "uniform": 0.06},
        "depends": {"plain": [0.4] * 3, "gated": [0.1] * 3, "constant": [0.1, 0.5, 1.0], "uniform": 0.06},
        "not at this size": {"plain": [0.4, 0.4, 0.2], "gated": [0.11] * 3, "constant": [0.5] * 3, "uniform": 0.06},
    },
    "heads.how_many": {
        "confirmed": {"one": [0.1] * 3, "sixteen": [0.1] * 3},
        "depends": {"one": [-0.1, 0.0, 0.1], "sixteen": [0.1] * 3},
        "not at this size": {"one": [-0.1, 0.0, 0.1], "sixteen": [0.0] * 3},
    },
}


@pytest.fixture(scope="module")
def trained():
    return load_pretrained("tinytown")


def test_heads_add_parameters_only_if_each_keeps_its_size():
    assert set(find("heads.parameters")().values) == {4 * 768**2 + 4 * 768}
    assert heads.attention_parameters(n_heads=12, d_head=64) == 4 * 768**2 + 4 * 768, "12 · 64 = 768: the usual module"
    assert heads.attention_parameters(16, 64) - heads.attention_parameters(8, 64) == 8 * (4 * 768 * 64 + 3 * 64)


def test_a_heads_query_depends_on_all_features():
    # 56 of 64 independent terms are sampled again: the difference has variance 2 · 56 / 64 of the query's.
    assert find("heads.slice")().mean == pytest.approx(math.sqrt(2 * 56 / 64), rel=0.1)


def looks(monkeypatch, model, weights):
    monkeypatch.setattr(model, "attention_weights", lambda ids: [weights])
    return [each.tolist() for each in heads.look_statistics(model, [[0, 1, 2]])]


def test_looks_differ_by_0_for_equal_heads_and_by_1_bit_for_two_opposite_ones(monkeypatch):
    model = DecoderOnly(TransformerConfig(vocab_size=5, d_model=8, n_heads=2, n_layers=1, max_seq_len=4))

    def at(first, second):
        return torch.eye(3)[torch.tensor([[0, first, first], [0, second, second]])][None]  # (1, 2, 3, 3)

    assert looks(monkeypatch, model, at(1, 1)) == [pytest.approx([0]), pytest.approx([0])]
    assert looks(monkeypatch, model, at(0, 1)) == [pytest.approx([1]), pytest.approx([0])]
    even = torch.full((1, 2, 3, 3), 1 / 3)
    assert looks(monkeypatch, model, even) == [pytest.approx([0], abs=1e-6), pytest.approx([math.log2(3)])]


def test_random_heads_as_sharp_as_the_trained_ones_look_more_differently(trained):
    """The control that the difference between trained and untrained heads lacks: sharpness alone makes them differ."""
    model, tokenizer = trained
    stories = [tokenizer.encode(story) for story in Tinytown(heads.HELD_OUT_SEED).sample(6)]

    def means(model):
        return [each.mean().item() for each in heads.look_statistics(model, stories)]

    difference, width = means(model)
    for seed in heads.SEEDS:
        flat, even = means(heads.random_heads(model.config, seed, 1))
        drawn, spread = means(heads.random_heads(model.config, seed))
        assert flat < 0.01
        assert even > width + 1
        assert spread == pytest.approx(width, rel=0.1)
        assert drawn > difference + 0.1


def test_two_heads_are_dissociated_if_each_is_needed_for_what_the_other_is_not():
    costs = torch.zeros(2, 3, 4)  # (layers, H, questions)
    costs[0, 0, 1] = costs[0, 2, 3] = costs[1, 1, 2] = 2
    assert heads.dissociations(costs) == [(0, 0, 2)]
    costs[0, 2, 1] = 0.2
    assert heads.dissociations(costs) == [], "the second matters where the first is needed"
    costs[0, 0, 3] = 2
    assert heads.dissociations(costs) == []


@pytest.mark.parametrize("name", heads.QUESTIONS)
def test_every_question_is_a_story_of_tinytown_with_one_right_answer(name):
    town = Tinytown()
    questions = heads.draw_questions(name, 30)
    assert len({len(split_words(prompt)) for prompt, _ in questions}) == 1
    for prompt, answer in questions:
        possible = town.next_word(prompt)
        assert max(possible, key=possible.get) == answer
        assert possible[answer] > 0.9


def test_a_head_without_a_voice_is_a_head_with_empty_rows_in_W_O(trained):
    model, tokenizer = trained
    ids = torch.tensor([tokenizer.encode("once there was a king called tom .", end=False)])
    copy, _ = load_pretrained("tinytown")
    with torch.no_grad():
        for layer, head in [(0, 1), (0, 3), (2, 0)]:
            copy.blocks[layer].attention.out_proj.weight[:, 32 * head : 32 * head + 32] = 0
        before = model(ids)
        with heads.without_heads(model, [(0, 1), (0, 3), (2, 0)]):
            torch.testing.assert_close(model(ids), copy(ids))
        assert torch.equal(model(ids), before), "the model is whole again"
        said = []
        handle = model.blocks[2].attention.out_proj.register_forward_hook(
            lambda _, inputs, output: said.append(inputs[0])
        )
        with heads.without_heads(model, [(2, 1)], mean=True):
            model(ids)
        model(ids)
        handle.remove()
    always, own = (each[0, :, 32:64] for each in said)
    torch.testing.assert_close(always, own.mean(dim=0).expand_as(own))
    assert torch.equal(said[0][..., :32], said[1][..., :32])


@pytest.mark.proof
def test_costs_of_removal_agree_with_one_measured_by_hand(trained):
    model, tokenizer = trained
    costs, weights = heads.removal_costs()
    assert costs.shape == (4, 4, 10)
    assert weights.shape == (4, 4, 9)
    column = list(heads.QUESTIONS).index("capital")
    ids, answers = heads.encode_questions(tokenizer, heads.draw_questions("capital", 12))
    with torch.no_grad(), heads.without_heads(model, [(0, 0)]):
        lacking = F.cross_entropy(model(ids)[:, -1], answers).item()
    whole = F.cross_entropy(model(ids)[:, -1], answers).item()
    assert costs[0, 0, column + 1].item() == pytest.approx(lacking - whole, abs=1e-4)


def test_the_most_confident_head_is_a_sink_that_nobody_needs(trained):
    """Confidence counts the largest weight on any token, not the weight on an answer."""
    model, tokenizer = trained
    sure = heads.head_confidence(stories=6)
    assert divmod(int(sure.argmax()), 4) == (1, 1)
    assert sure[1, 1] > 0.9
    assert heads.head_confidence(stories=6, without=".")[1, 1] < 0.3
    stories = [tokenizer.encode(story) for story in Tinytown(heads.HELD_OUT_SEED).sample(6)]

    def loss():
        nats, tokens = heads.story_losses(model, stories)
        return (nats.sum() / tokens.sum()).item()

    whole = loss()
    with heads.without_heads(model, [(1, 1)]):
        assert loss() == pytest.approx(whole, abs=0.02)


def test_confidence_is_the_mean_of_the_largest_weight_of_each_query(trained):
    model, tokenizer = trained
    ids = torch.tensor([tokenizer.encode(Tinytown(heads.HELD_OUT_SEED).sample(1)[0], end=False)])
    by_hand = model.attention_weights(ids)[2][0, 3, 1:].amax(dim=-1).mean().item()
    assert heads.head_confidence(stories=1)[2, 3].item() == pytest.approx(by_hand, abs=1e-5)


def test_a_head_is_needed_if_the_stories_or_one_kind_of_question_suffers():
    costs = torch.zeros(2, 2, 10)
    costs[0, 0, 0] = costs[1, 1, 7] = 1
    assert heads.needed_heads(costs).tolist() == [[True, False], [False, True]]


def test_values_of_one_head_differ_in_length(trained):
    model, tokenizer = trained
    ids = torch.tensor([tokenizer.encode(Tinytown(heads.HELD_OUT_SEED).sample(1)[0])])
    with torch.no_grad(), heads.trace(model, "*.value") as seen:
        model(ids)
    lengths = torch.cat([seen[f"blocks.{layer}.attention.value"] for layer in range(4)]).norm(dim=-1)  # (layers, H, T)
    assert (lengths.amax(dim=-1) / lengths.amin(dim=-1)).min() > 2


def test_harm_is_counted_by_the_stories_and_by_the_questions():
    costs = torch.zeros(4, 4, 10)
    costs[0, 0, 0] = 1  # the stories suffer
    costs[1, :2, 5] = 1  # one kind of question does
    assert heads.unharmed(costs) == (15, 13)


@pytest.mark.parametrize("n_heads", [1, 16])
def test_a_few_steps_of_training_already_beat_guessing(n_heads, monkeypatch):
    tokenizer, ids, held_out = heads._stories()
    monkeypatch.setattr(heads, "_stories", lambda: (tokenizer, ids, held_out[:10]))
    assert 1 < heads.loss_with_heads(n_heads, 0, steps=25) < math.log(len(tokenizer))


# --------------------------------------------------------------------------------------------- by which rule one copies
def test_toms_words_in_their_order_are_a_story_of_tinytown_and_in_another_order_they_are_not(trained):
    _, tokenizer = trained
    town = Tinytown()
    for said in ((), (0,), (0, 1)):
        ids, listed = heads.draw_misquotes(tokenizer, said, 20, seed=1)
        for story, words in zip(ids, listed):
            due = next(iter(town.next_word(tokenizer.decode(story[1:]))))
            assert due == tokenizer.tokens[words[len(said)]]
    for said in ((1,), (2,), (2, 0), (1, 0), (0, 0)):
        ids, listed = heads.draw_misquotes(tokenizer, said, 20, seed=1)
        assert ids[:, len(ids[0]) - len(said) :].tolist() == listed[:, list(said)].tolist()
        with pytest.raises(ValueError, match="no Tinytown story begins"):
            town.next_word(tokenizer.decode(ids[0][1:]))


@pytest.mark.parametrize("said", [(1,), (2,), (1, 0), (2, 0), (0, 0), (2, 1)])
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_the_copying_head_goes_by_the_position_in_the_list_and_not_by_what_followed(trained, said, seed):
    model, tokenizer = trained
    ids, listed = heads.draw_misquotes(tokenizer, said, 60, seed)
    due = listed[:, len(said)]
    with torch.no_grad():
        answers = model(ids)[:, -1].argmax(dim=-1)
        looks = model.attention_weights(ids)[2][:, 3, -1]  # (60, T)
    in_the_list = torch.stack([row == word for row, word in zip(ids, due)]).float().argmax(dim=-1)
    assert (answers == due).float().mean() > 0.95, "ordinal"
    if said[-1] < 2 and said[-1] + 1 != len(said):
        assert (answers == listed[:, said[-1] + 1]).float().mean() < 0.05, "induction would say what followed"
    assert looks[torch.arange(60), in_the_list].mean() > 0.7


@pytest.mark.parametrize(("said", "index"), [((0,), 1), ((1, 0), 2), ((2, 0), 2)])
def test_an_exchanged_word_is_toms_and_new(trained, said, index):
    _, tokenizer = trained
    ids, listed = heads.draw_misquotes(tokenizer, said, 20, seed=1)
    source, new = heads.exchanged_word(tokenizer, ids, listed, seed=0, index=index)
    assert ((source != ids).sum(dim=1) == 1).all()
    for row, before, words, word in zip(source, ids, listed, new):
        assert before[row != before].tolist() == [words[index].item()]
        assert before.eq(words[0]).float().argmax() + index == row.ne(before).float().argmax(), "in tom's list"
        assert row[row != before].tolist() == [word.item()]
        assert word not in words


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_exchanging_annas_word_changes_nothing_and_exchanging_toms_changes_the_answer(trained, seed):
    model, tokenizer = trained
    ids, listed = heads.draw_misquotes(tokenizer, (0,), 30, seed)
    with torch.no_grad():
        logits = model(ids)[:, -1]
        source, new = heads.exchanged_word(tokenizer, ids, listed, seed)
        assert (model(source)[:, -1].argmax(dim=-1) == new).float().mean() > 0.95
    moved = torch.stack([heads.swap(model, row[None], -1, words[2].item())[0, -1] for row, words in zip(ids, listed)])
    assert ((logits + moved).argmax(dim=-1) == listed[:, 1]).float().mean() > 0.95, "induction would say a full stop"


@pytest.mark.parametrize("between", ["the cat slept .", "the dog slept .", "the cow slept on the mat ."])
def test_the_copying_head_does_not_go_by_the_distance_between_the_lists(trained, between):
    model, tokenizer = trained
    ids, listed = heads.draw_misquotes(tokenizer, (2, 0), 60, seed=3, between=between)
    assert tokenizer.decode(ids[0]).count(between.replace(" .", ".")) == 1
    with torch.no_grad():
        answers = model(ids)[:, -1].argmax(dim=-1)
    assert (answers == listed[:, 2]).float().mean() > 0.95


@pytest.mark.parametrize("said", [(2, 0), (0, 1)])
def test_a_sentence_about_a_chase_leads_the_copying_head_astray_whatever_the_order(trained, said):
    """It has two jobs, and this sentence calls for the other one."""
    model, tokenizer = trained
    ids, listed = heads.draw_misquotes(tokenizer, said, 60, seed=3, between="the dog chased the cow .")
    with torch.no_grad():
        answers = model(ids)[:, -1].argmax(dim=-1)
    assert (answers == listed[:, 2]).float().mean() < 0.7


def test_no_head_finds_what_followed_a_random_word_the_first_time(trained):
    """The test of Olsson et al. 2022: an induction head has its weight there, and makes the second copy easy."""
    model, tokenizer = trained
    for seed in range(3):
        words = torch.randint(3, len(tokenizer), (50, 12), generator=torch.Generator().manual_seed(seed))
        ids = torch.cat([torch.full((50, 1), tokenizer.bos_id), words, words], dim=1)
        with torch.no_grad():
            matching = torch.zeros(4, 4)
            for layer, weights in enumerate(model.attention_weights(ids)):
                for t in range(13, 25):
                    matching[layer] += weights[:, :, t, t - 11].mean(0) / 12
            log_p = model(ids).log_softmax(dim=-1)
        losses = [-log_p[torch.arange(50), t - 1, ids[:, t]].mean().item() for t in range(1, 25)]
        assert matching.max() < 0.15
        assert sum(losses[13:]) / 11 > sum(losses[1:12]) / 11 - 1


# ------------------------------------------------------------------------------------- where induction heads do form
def test_a_repeated_list_holds_no_token_twice_and_begins_anew_after_its_length():
    ids, lengths = heads.repeated_lists(200, torch.Generator().manual_seed(3))
    assert ids.shape == (200, heads.WINDOW + 1)
    assert set(lengths.tolist()) == set(range(6, 21))
    for row, length in zip(ids.tolist(), lengths.tolist()):
        assert len(set(row[:length])) == length
        assert row[length:] == row[:-length]


def test_smeared_keys_are_between_a_tokens_key_and_the_one_before():
    keys = heads.SmearedKeys(4)
    x = torch.randn(1, 3, 4)
    with torch.no_grad():
        plain = x @ keys.weight.T
        torch.testing.assert_close(keys(x)[0, 1:], (plain[0, 1:] + plain[0, :-1]) / 2)
        keys.mix.fill_(100)
        torch.testing.assert_close(keys(x), plain)


@pytest.mark.parametrize("smeared", [False, True])
def test_a_model_with_only_attention_never_sees_a_later_token(smeared):
    torch.manual_seed(0)
    model = heads.AttentionOnly(2, smeared=smeared)
    ids = torch.randint(heads.TOKENS, (1, 10))
    other = ids.clone()
    other[0, 6] = (ids[0, 6] + 1) % heads.TOKENS
    with torch.no_grad():
        changed = (model(other) - model(ids)).abs().amax(dim=-1)[0] > 1e-6
    assert changed.tolist() == [False] * 6 + [True] * 4


def test_a_head_that_looks_up_what_followed_is_told_from_one_that_does_not():
    """By hand: attention maps that put everything on one token."""

    class Looker(heads.AttentionOnly):
        def __init__(self, shift):
            super().__init__(1)
            self.shift = shift

        def attention_weights(self, ids):
            weights = torch.zeros(*ids.shape, ids.shape[1])
            for b, row in enumerate(ids.tolist()):
                for t, token in enumerate(row):
                    before = [s for s in range(t) if row[s] == token]
                    weights[b, t, before[-1] + self.shift if before else 0] = 1
            return [weights]

    assert heads.repeats_seen(Looker(1), seed=0, number=10)["followed"] == 1
    assert heads.repeats_seen(Looker(0), seed=0, number=10)["followed"] == 0


# --------------------------------------------------------------------------------------------- heads with nothing to do
def test_a_gate_multiplies_each_heads_result_by_a_number_from_the_querys_token():
    torch.manual_seed(0)
    gated, plain, x = heads.GatedHeads(8, n_heads=2), MultiHeadAttention(8, 2, bias=False), torch.randn(3, 5, 8)
    plain.load_state_dict(gated.state_dict(), strict=False)
    for module in (gated, plain):
        module.out_proj.weight.data = torch.eye(8)  # the output is then the heads' results side by side
    with torch.no_grad():
        gates = torch.sigmoid(x @ gated.gate.weight.T)  # (B, T, H)
        expected = plain(x, is_causal=True) * gates.repeat_interleave(4, dim=-1)
        torch.testing.assert_close(gated(x, is_causal=True), expected)


def test_a_gate_that_reads_nothing_is_the_same_for_every_token():
    gated = heads.GatedHeads(8, n_heads=2, reads_token=False)
    gated(torch.randn(3, 5, 8))
    assert (gated.opening == gated.opening[:1, :, :1]).all()
    assert len(gated.opening[0, :, 0].unique()) == 2, "one for each head"


def test_texts_repeat_the_word_before_again_and_nothing_else_needs_an_earlier_token():
    ids = heads.again_texts(200, torch.Generator().manual_seed(0))
    assert ids.shape == (200, heads.WINDOW + 1)
    assert (ids[:, 0] == heads.FIRST).all()
    assert (ids[:, 1:] != heads.FIRST).all()
    again = ids[:, 1:-1] == heads.AGAIN
    assert torch.equal(ids[:, 2:][again], ids[:, :-2][again])
    assert not (again[:, 1:] & again[:, :-1]).any()
    assert 1 / 10 < again.float().mean() < 1 / 8


def test_the_first_tokens_weight_and_value_are_those_of_the_head():
    model = heads.AttentionOnly(n_layers=1)
    torch.nn.init.zeros_(model.layers[0].q_proj.weight)  # uniform weights
    model.layers[0].v_proj.weight.data = torch.eye(64)
    model.token_embedding.weight.data[heads.FIRST] = 0  # and a value of 0
    seen = heads.sink_seen(model, seed=0, number=20)
    assert seen["first"] == pytest.approx(seen["uniform"], abs=1e-5)
    assert seen["length"] == 0
