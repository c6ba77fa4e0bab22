"""The ladder: each rung is what its chapter says, a learner's part takes the library's place, the record is whole."""

import pytest
import torch

from course_lib.course import record
from course_lib.grading import EXERCISES as PAGES
from course_lib.ladder.climb import Climb, climb, ladder
from course_lib.ladder.model import PARTS, LadderModel
from course_lib.ladder.picture import Ladder, draw, told
from course_lib.ladder.rungs import (
    EXERCISES,
    RUNGS,
    SEEDS,
    Height,
    get_rung,
    recorded,
    train_rung,
    write_record,
)  # fmt: skip

V, B, T = 11, 2, 7
TRAINED = [rung for rung in RUNGS.values() if rung.seconds]
each_rung = pytest.mark.parametrize("rung", TRAINED, ids=lambda rung: rung.id)


@pytest.fixture
def ids():
    return torch.randint(V, (B, T))


# ---------------------------------------------------------------------------------------------------- the model
@each_rung
def test_only_an_honest_rung_is_blind_to_later_tokens(rung, ids):
    model, changed = LadderModel(V, rung.shape), ids.clone()
    changed[:, -1] = (changed[:, -1] + 1) % V
    moved = (model(ids) - model(changed))[:, :-1].abs().max().item()
    assert (moved < 1e-6) == rung.honest, f"{rung.id}: earlier logits moved by {moved}"


@pytest.mark.parametrize(("id", "knows"), [("attention", False), ("peeking", True), ("embeddings", False)])
def test_without_positions_a_model_that_sees_all_is_permutation_equivariant(id, knows, ids):
    model, order = LadderModel(V, RUNGS[id].shape), torch.randperm(T)
    difference = (model(ids[:, order]) - model(ids)[:, order]).abs().max().item()
    assert (difference > 1e-3) == knows, f"{id}: {difference}"


def test_one_head_is_pytorchs_attention(ids):
    """Independent of our own functions: the causal rung, with the weights of PyTorch's module."""
    model = LadderModel(V, RUNGS["heads"].shape)
    layer, theirs = model.layers[0], torch.nn.MultiheadAttention(64, 4, bias=False, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([layer.q_proj.weight, layer.k_proj.weight, layer.v_proj.weight]))
        theirs.out_proj.weight.copy_(layer.out_proj.weight)
        x = model.embedding[ids]
        hidden = ~torch.ones(T, T, dtype=torch.bool).tril()
        wanted = model.output(x + theirs(x, x, x, attn_mask=hidden, need_weights=False)[0])
    torch.testing.assert_close(model(ids), wanted)


def test_every_part_has_an_exercise_and_stands_on_a_rung():
    assert PARTS.keys() == EXERCISES.keys() == {part for rung in TRAINED for part in rung.parts}
    assert set(EXERCISES.values()) <= set(PAGES)


@pytest.mark.parametrize("part", PARTS)
def test_the_answer_to_its_exercise_takes_a_parts_place(part, ids):
    """Called at least once, and with the same logits."""
    shape, calls, reference = RUNGS["blocks"].shape, [], PAGES[EXERCISES[part]].reference

    def own(*args):
        calls.append(args)
        return reference(*args)

    ours, theirs = LadderModel(V, shape), LadderModel(V, shape, {part: own})
    theirs.load_state_dict(ours.state_dict())
    torch.testing.assert_close(theirs(ids), ours(ids), atol=1e-5, rtol=1e-5)
    assert calls


def test_the_loss_is_that_of_the_logits(ids):
    model = LadderModel(V, RUNGS["masks"].shape)
    logits, loss = model(ids, ids)
    wanted = -logits.log_softmax(-1).gather(-1, ids[..., None]).mean()
    torch.testing.assert_close(loss, wanted)


# ---------------------------------------------------------------------------------------------------- the record
def test_the_record_holds_each_rung_with_three_seeds():
    found = recorded()
    assert found.keys() == RUNGS.keys()
    assert all(len(found[rung.id].nats) == len(SEEDS) for rung in TRAINED)


def test_what_the_chapters_say_of_the_record():
    """Only the rung that is told the positions of what it sees stands below the entropy, with every seed."""
    found = recorded()
    assert [id for id, height in found.items() if max(height.nats) < height.grammar] == ["peeking"]
    way = [found[rung.id].mean for rung in RUNGS.values() if not rung.aside and rung.honest]
    assert way == sorted(way, reverse=True)
    assert found["shipped"].above < 0.01


def test_a_record_is_written_beside_others(tmp_path):
    path = tmp_path / "ladder.json"
    write_record({"masks": Height((1.0, 1.2), 0.6)}, path)
    write_record({"embeddings": Height((2.0, 2.1), 0.6)}, path)
    assert path.read_text().index("embeddings") < path.read_text().index("masks")


@pytest.mark.proof
def test_training_again_gives_the_recorded_height():
    _, height = train_rung("embeddings", seed=0)
    assert height.mean == pytest.approx(recorded()["embeddings"].nats[0], abs=0.03)


def test_the_same_seed_gives_the_same_height_and_training_lowers_it():
    before, first, second = (train_rung("masks", seed=3, steps=steps)[1].mean for steps in (1, 12, 12))
    assert first == second
    assert first < before - 0.3


def test_what_no_rung_can_be_trained_with_is_refused():
    with pytest.raises(ValueError, match=r"no rung 'tails': choose from embeddings"):
        get_rung("tails")
    with pytest.raises(ValueError, match=r"no part .'rotary'.: its parts are lookup, attention, mask"):
        train_rung("masks", parts={"rotary": lambda *_: None})
    with pytest.raises(ValueError, match="course_lib train"):
        train_rung("shipped")
    with pytest.raises(ValueError, match=r"no part .'tail'."):
        LadderModel(V, RUNGS["masks"].shape, {"tail": len})


# ---------------------------------------------------------------------------------------------------------- the picture
def test_the_picture_says_which_model_cannot_be_honest():
    rungs = [RUNGS["embeddings"], RUNGS["peeking"]]
    assert "below the entropy" in Ladder(rungs, recorded(), {}).title
    assert "BELOW" in told(recorded()["peeking"])
    assert "above" in told(recorded()["masks"])


@pytest.mark.parametrize("chapter", dict.fromkeys(rung.chapter for rung in RUNGS.values()))
def test_each_chapter_shows_the_rungs_up_to_its_own(chapter):
    shown = climb(chapter)
    assert shown.rungs[-1].chapter == chapter
    figure = draw(shown.ladder)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == [rung.label for rung in shown.rungs]
    height = (
        100 * figure.get_size_inches()[1] + 34 * ((len(shown.buttons) + 1) // 2 + 1) + 30
    )  # two buttons side by side, and the bar
    assert height <= 560
    assert 100 * figure.get_size_inches()[0] <= 848


def test_the_riddle_of_chapter_2_is_not_given_away_before_chapter_3():
    captions = {chapter: draw(climb(chapter).ladder).axes[0].get_xlabel() for chapter in ("attention", "masks")}
    assert "later tokens" not in captions["attention"]
    assert "later tokens" in captions["masks"]
    assert "later tokens" not in draw(ladder().ladder).axes[0].get_xlabel()


def test_the_whole_ladder_has_no_button_and_reads_from_the_record():
    shown = ladder()
    assert not shown.buttons
    assert "four heads" in repr(shown)
    assert f"{recorded()['heads'].mean:.2f} nats" in repr(shown)


def test_a_pressed_button_trains_keeps_and_draws_the_rung(own_record):
    shown = climb("masks", mask=PAGES["masks.causal"].reference)
    assert "mask (masks.causal)" in shown._words.value
    shown.press("masks", steps=2)
    kept = record.entries("rungs")["masks"]
    assert kept["own"] == "mask"
    assert kept["nats"] > recorded()["masks"].mean
    assert "yours" in shown._words.value
    assert "own parts" in shown._words.value.lower()
    assert not shown.buttons["masks"].disabled
    texts = [text.get_text() for text in draw(climb("heads").ladder).axes[0].texts]
    assert any("★ yours" in text and "own parts" in text for text in texts)
    assert "yours" not in repr(climb("heads"))  # the words are the same for everybody


def test_what_the_page_keeps_of_the_ladder_has_the_rung_that_was_trained_since(own_record, monkeypatch):
    pages = []
    monkeypatch.setattr("course_lib.ladder.climb.publish", lambda *shown: lambda *kept: pages.append(kept))
    shown = climb("masks")
    shown._ipython_display_()
    before = shown._picture.value
    shown.press("masks", steps=2)
    assert pages == [(shown._picture.value, repr(shown))]
    assert shown._picture.value != before


def test_a_part_that_fails_is_told_below_the_picture(own_record):
    shown = climb("masks", mask=lambda T: 1 / 0)
    shown.press("masks", steps=2)
    assert "ZeroDivisionError" in shown._words.value
    assert not shown.buttons["masks"].disabled
    assert not record.entries("rungs")


def test_a_chapter_without_a_rung_and_a_part_without_a_place_are_refused():
    with pytest.raises(ValueError, match=r"no rung of the ladder belongs to the chapter 'sampling'"):
        climb("sampling")
    with pytest.raises(ValueError, match=r"no part .'rotary'.: choose from"):
        climb("masks", rotary=len)
    assert isinstance(climb("training"), Climb)
    assert not climb("training").buttons
