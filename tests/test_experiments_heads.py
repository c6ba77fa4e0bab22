"""Chapter 4's experiments: the verdicts, and bands for the figures that follow from elsewhere."""

import math

import pytest
import torch
import torch.nn.functional as F

from course_lib.chapters.heads import claims as heads
from course_lib.claims import find
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown, split_words


@pytest.fixture(scope="module")
def trained():
    return load_pretrained("tinytown")


def test_heads_add_no_parameters():
    finding = find("heads.parameters")()
    assert finding.verdict == "refuted"
    assert set(finding.values) == {4 * 512**2 + 4 * 512}


def test_a_heads_query_depends_on_all_features():
    finding = find("heads.slice")()
    assert finding.verdict == "refuted"
    # 56 of 64 independent terms drawn anew: the difference has variance 2 · 56 / 64 of the query's.
    assert finding.mean == pytest.approx(math.sqrt(2 * 56 / 64), rel=0.1)


def test_one_head_cannot_do_what_two_do():
    finding = find("heads.one_big_head")()
    assert finding.verdict == "refuted"
    assert all(0.1 < error < math.sqrt(0.5) for error in finding.values), "leaving one head out would leave √½"


def test_one_head_can_do_what_one_does(monkeypatch):
    """The fit itself is good enough: where both heads look alike, one is enough."""
    drawn = torch.randn

    def same_twice(shape, generator):
        same_twice.calls += 1
        result = drawn(shape, generator=generator)
        if same_twice.calls == 2:
            same_twice.first = result
        return same_twice.first if same_twice.calls == 3 else result

    same_twice.calls = 0
    monkeypatch.setattr(heads.torch, "randn", same_twice)
    assert heads.best_single_head(0, steps=600) < 0.1


def test_training_pulls_the_heads_apart():
    finding = find("heads.specialise")()
    assert finding.verdict == "confirmed"
    assert 0 < finding.mean < 2, "four heads differ by log2 4 bits at most"


def test_difference_of_heads_is_0_for_equal_heads_and_1_bit_for_two_opposite_ones(monkeypatch):
    config = TransformerConfig(vocab_size=5, d_model=8, n_heads=2, n_layers=1, max_seq_len=4)
    model = DecoderOnly(config)

    def looks(first, second):
        weights = torch.eye(3)[torch.tensor([[0, first, first], [0, second, second]])][None]  # (1, 2, 3, 3)
        monkeypatch.setattr(model, "attention_weights", lambda ids: [weights])
        return heads.head_difference(model, [[0, 1, 2]]).tolist()

    assert looks(1, 1) == pytest.approx([0])
    assert looks(0, 1) == pytest.approx([1])


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


def test_some_heads_are_missed_and_looking_is_not_being_needed():
    removal, looking = find("heads.removal")(), find("heads.looking")()
    assert removal.verdict == "depends"
    assert 0.5 < removal.mean < 1
    assert looking.verdict == "depends"
    assert 0.5 < looking.mean < 1


def test_the_verdict_on_many_heads_follows_the_losses(monkeypatch):
    losses = {1: 1.5, 4: 1.4, 16: 1.6}
    monkeypatch.setattr(heads, "loss_with_heads", lambda n_heads, seed: losses[n_heads] + 0.01 * seed)
    worse = find("heads.how_many")()
    assert worse.verdict == "refuted"
    assert worse.values == pytest.approx([0.2] * 3)
    losses[16] = 1.3
    assert find("heads.how_many")().verdict == "confirmed"


@pytest.mark.parametrize("n_heads", [1, 16])
def test_a_few_steps_of_training_already_beat_guessing(n_heads, monkeypatch):
    tokenizer, ids, held_out = heads._stories()
    monkeypatch.setattr(heads, "_stories", lambda: (tokenizer, ids, held_out[:10]))
    assert 1 < heads.loss_with_heads(n_heads, seed=0, steps=25) < math.log(len(tokenizer))


@pytest.mark.parametrize(
    ("seconds", "verdict"), [([1, 1.1, 2.4], "depends"), ([1, 1, 1], "confirmed"), ([1, 2, 9], "refuted")]
)
def test_the_verdict_on_the_time_of_heads_follows_the_times(seconds, verdict, monkeypatch):
    def timed(functions):
        for function, heads_wanted in zip(functions, (1, 8, 64)):
            assert function()[1].shape == (1, heads_wanted, 256, 256)
        return seconds

    monkeypatch.setattr(heads, "best_seconds", timed)
    assert find("heads.time")().verdict == verdict
    assert find("heads.time").timed


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
