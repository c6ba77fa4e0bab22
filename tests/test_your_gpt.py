"""Chapter 18: my_gpt.py filled in is a GPT, a planted fault is named where it stands, a lent part is named as lent."""

import math
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from course_lib.chapters.your_gpt import records, workshop
from course_lib.chapters.your_gpt.comparison import cases
from course_lib.chapters.your_gpt.figures import ladder_with_yours, letters_curve
from course_lib.chapters.your_gpt.fixtures import opened
from course_lib.chapters.your_gpt.workshop import (
    SKELETON,
    SMALL,
    STAGES,
    Parity,
    Parts,
    begin,
    difference_at,
    from_library,
    learn,
    load,
    of_the_library,
    parity,
    still_lent,
    tensors_after_a_fault,
    to_library,
)
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.grading import EXERCISES
from course_lib.ladder import rungs
from course_lib.ladder.rungs import Height
from course_lib.pretrained import from_hf_state_dict
from course_lib.tinytown import Batches
from course_lib.training import TrainingDiverged, learning_rate
from tests.your_gpt_faults import FAULTS, RIGHT, with_fault, written_otherwise

FILLED = Path(__file__).parent / "filled_my_gpt.py"


@pytest.fixture
def filled(monkeypatch):
    # feed_forward of the ladder knows gelu alone; an answer to the exercise knows relu, too.
    def feed_forward(x, W1, b1, W2, b2, activation):
        return getattr(nn.functional, activation)(x @ W1 + b1) @ W2 + b2

    monkeypatch.setattr(workshop, "mine", nothing_kept)
    monkeypatch.setitem(workshop.LENT, "feed_forward", feed_forward)
    return FILLED.read_text(encoding="utf-8")


def nothing_kept(exercise):
    raise ValueError(f"no answer to {exercise!r} is kept")


def saved(folder, text):
    path = folder / "my_gpt.py"
    path.write_text(text, encoding="utf-8")
    return load(path)


def test_the_filled_file_equals_the_library_at_every_stage(filled, tmp_path):
    my_gpt = saved(tmp_path, filled)
    found = parity(my_gpt)
    assert found.first is None
    assert tuple(found.equal) == STAGES
    assert still_lent(my_gpt) == ()
    assert repr(found).startswith("Your 9 stages equal the library's")
    assert len(filled.splitlines()) <= 160


def test_the_skeleton_runs_with_every_stage_lent_and_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(workshop, "mine", nothing_kept)
    my_gpt = load(begin(tmp_path))
    found = parity(my_gpt)
    assert still_lent(my_gpt) == found.lent == STAGES
    assert found.first is None
    assert repr(found).count("lent by the library") == len(STAGES)
    assert repr(found).startswith("Nothing of yours to compare yet: all 9 stages are lent")


def test_a_file_that_is_there_is_never_written_over(tmp_path):
    (tmp_path / "my_gpt.py").write_text("mine", encoding="utf-8")
    assert begin(tmp_path).read_text(encoding="utf-8") == "mine"


# ------------------------------------------------------------------------------------------------------ planted faults
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_at_its_stage_and_by_name(name, filled, tmp_path):
    stage, _, _, tensor, where, words = FAULTS[name]
    my_gpt = saved(tmp_path, with_fault(filled, name))
    found = difference_at(stage, my_gpt)
    assert (found.stage, found.name) == (stage, tensor)
    assert where in found.where
    assert words in str(found)
    assert f"{stage}: `{tensor}` at {found.where}" in repr(Parity({}, (), found))


@pytest.mark.parametrize("name", [next(each for each in FAULTS if FAULTS[each][0] == stage) for stage in STAGES])
def test_the_stages_before_a_fault_are_equal_and_it_is_the_first_difference(name, filled, tmp_path):
    stage = FAULTS[name][0]
    found = parity(saved(tmp_path, with_fault(filled, name)))
    assert found.first.stage == stage
    assert tuple(found.equal) == STAGES[: STAGES.index(stage)]


@pytest.mark.proof
@pytest.mark.parametrize("name", FAULTS)
def test_no_fault_shows_before_its_stage(name, filled, tmp_path):
    assert parity(saved(tmp_path, with_fault(filled, name))).first.stage == FAULTS[name][0]


def test_there_are_faults_for_every_stage_and_dozens_of_them():
    assert {fault[0] for fault in FAULTS.values()} == set(STAGES)
    assert len(FAULTS) >= 40
    assert len(RIGHT) >= 10


@pytest.mark.parametrize("name", RIGHT)
def test_a_file_that_is_written_otherwise_is_equal(name, filled, tmp_path):
    my_gpt = saved(tmp_path, written_otherwise(filled, name))
    found = parity(my_gpt)
    assert found.first is None
    ids = torch.randint(SMALL.vocab_size, (2, 5))
    own = from_library(my_gpt, DecoderOnly(SMALL))
    torch.testing.assert_close(to_library(own)(ids), own(ids))


@pytest.mark.proof
@pytest.mark.parametrize("mistake", EXERCISES["your_gpt.file"].misconceptions, ids=lambda mistake: mistake.name)
def test_every_mistake_of_the_exercise_is_named_by_parity(mistake):
    (stage,) = mistake.changes
    for wrong in mistake.variants:
        my_gpt = ModuleType("my_gpt")
        vars(my_gpt).update(opened(wrong))
        found = difference_at(stage, my_gpt)
        assert found.mistake == mistake.name


def test_gradients_are_compared_above_and_below_the_norm_to_which_they_are_clipped():
    norms = {}
    for case in cases("training_step", SMALL, 17):
        model = DecoderOnly(TransformerConfig(**case.config))
        model.load_state_dict(case.weights)
        model(*case.given["batches"][0])[1].backward()
        norms[case.where.partition(",")[0]] = nn.utils.clip_grad_norm_(model.parameters(), 1e9).item()
    assert norms["a gradient below norm 1"] < 0.5
    assert norms["a gradient far above norm 1"] > 10


def test_stages_are_compared_at_three_lengths_in_one_row_and_in_four():
    for stage in STAGES[:7]:
        shapes = set()
        for case in cases(stage, SMALL, 17):
            shapes |= {tuple(tensor.shape[:2]) for tensor in case.given.values()}
        assert shapes == {(B, T) for B in (1, 4) for T in (1, 3, SMALL.max_seq_len)}


def test_what_is_written_is_compared_with_the_librarys_model_and_not_with_yours(monkeypatch, filled, tmp_path):
    my_gpt, models = saved(tmp_path, filled), []
    loop = workshop._write

    def watched(model, *args, **options):
        models.append(type(model))
        return loop(model, *args, **options)

    monkeypatch.setattr(workshop, "_write", watched)
    of_the_library.cache_clear()
    assert difference_at("write", my_gpt) is None
    of_the_library.cache_clear()
    assert set(models) == {DecoderOnly}


def test_nan_and_a_wrong_shape_are_differences(filled, tmp_path):
    right = "P.lookup(self.weight, ids)"
    assert parity(saved(tmp_path, filled.replace(right, f"{right} * float('nan')"))).first.stage == "Embedding"
    assert "shape" in parity(saved(tmp_path, filled.replace(right, f"{right}[:1, :1]"))).first.why
    assert "NameError" in parity(saved(tmp_path, filled.replace(right, "no_such_name"))).first.why


def test_begin_says_what_to_do_only_while_something_is_lent(filled, tmp_path, capsys):
    begin(tmp_path)
    assert "replace each `return lent(…)`" in capsys.readouterr().out
    (tmp_path / "my_gpt.py").write_text(filled, encoding="utf-8")
    begin(tmp_path)
    assert capsys.readouterr().out == "my_gpt.py is here: nothing in it is lent\n"


def test_a_lent_part_is_named_and_yours_is_used(monkeypatch):
    def norm(x, gamma, beta, eps):
        return "mine"

    def kept(exercise):
        return norm if exercise == "normalization.layer_norm" else nothing_kept(exercise)

    monkeypatch.setattr(workshop, "mine", kept)
    found = workshop.parts()
    assert found.norm is norm
    assert found.yours == ("norm",)
    assert "norm" not in found.lent
    assert repr(found).count("lent by the library") == len(workshop.EXERCISES) - 1
    with pytest.raises(AttributeError, match="no part 'nose'"):
        _ = Parts({}).nose


def test_a_misspelt_exercise_is_not_lent_in_silence(monkeypatch):
    monkeypatch.setitem(workshop.EXERCISES, "norm", "normalization.no_such")
    with pytest.raises(KeyError):
        workshop.parts()


def test_the_filled_file_computes_what_torchs_own_layers_compute(filled, tmp_path):
    """Nothing of the library's: nn.TransformerEncoderLayer with a causal mask, the same weights."""
    torch.manual_seed(3)
    own = saved(tmp_path, filled).MyGPT(SMALL).eval()
    for weight in own.parameters():
        nn.init.normal_(weight, std=0.3)
    T = SMALL.max_seq_len
    ids = torch.randint(SMALL.vocab_size, (2, T))
    x = own.token_embedding.weight[ids] + own.positions.weight
    for block in own.blocks:
        sizes = SMALL.d_model, SMALL.n_heads, SMALL.d_ff
        layer = nn.TransformerEncoderLayer(*sizes, activation="gelu", batch_first=True, norm_first=True).eval()
        a, f = block.attention, block.feed_forward
        weights = {
            "self_attn.in_proj_weight": torch.cat([a.q_proj.weight, a.k_proj.weight, a.v_proj.weight]),
            "self_attn.in_proj_bias": torch.cat([a.q_proj.bias, a.k_proj.bias, a.v_proj.bias]),
        }
        for theirs, ours in (
            ("self_attn.out_proj", a.out_proj), ("linear1", f.up_proj), ("linear2", f.down_proj),
            ("norm1", block.norm1), ("norm2", block.norm2),
        ):  # fmt: skip
            weights |= {f"{theirs}.weight": ours.weight, f"{theirs}.bias": ours.bias}
        layer.load_state_dict(weights)
        x = layer(x, torch.full((T, T), -torch.inf).triu(1))
    x = nn.functional.layer_norm(x, x.shape[-1:], own.final_norm.weight, own.final_norm.bias, SMALL.norm_eps)
    torch.testing.assert_close(own(ids), x @ own.token_embedding.weight.T, rtol=1e-5, atol=1e-5)


def test_weights_go_to_the_library_and_back(filled, tmp_path):
    my_gpt = saved(tmp_path, filled)
    theirs = DecoderOnly(SMALL).eval()
    ids = torch.randint(SMALL.vocab_size, (2, 5))
    own = from_library(my_gpt, theirs)
    torch.testing.assert_close(own(ids), theirs(ids))
    torch.testing.assert_close(to_library(own)(ids), theirs(ids))


@pytest.mark.parametrize(
    ("other", "said"),
    [({"positions": "rope"}, "positions='rope'"), ({"norm": "rms"}, "norm='rms'"), ({"n_kv_heads": 1}, "n_kv_heads=1"),
     ({"activation": "relu"}, "activation='relu'"), ({"window": 3}, "window=3"), ({"parallel": True}, "parallel=True")],
)  # fmt: skip
def test_a_model_of_another_shape_is_refused_with_what_differs(other, said):
    sizes = {"vocab_size": 11, "d_model": 12, "n_heads": 2, "n_layers": 1, "max_seq_len": 8}
    with pytest.raises(ValueError, match=said):
        from_library(None, DecoderOnly(TransformerConfig(**sizes | other)))


def test_a_file_that_is_missing_or_lacks_a_stage_says_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="begin"):
        load(tmp_path / "my_gpt.py")
    (tmp_path / "my_gpt.py").write_text("x = 1", encoding="utf-8")
    with pytest.raises(ValueError, match=r"MyGPT.*write: copy it"):
        load(tmp_path / "my_gpt.py")


def test_skeleton_and_filled_file_differ_in_the_bodies_alone():
    def heads(text):
        return [line.split("(")[0] for line in text.splitlines() if line.lstrip().startswith(("class ", "def "))]

    assert heads(SKELETON.read_text("utf-8")) == heads(FILLED.read_text("utf-8"))


# --------------------------------------------------------------------------- trained by its own step, and real weights
def test_it_is_trained_by_its_own_step_at_the_rates_of_chapter_12(filled, tmp_path):
    my_gpt, seen = saved(tmp_path, filled), []
    step = my_gpt.training_step

    def watched(model, ids, targets, optimizer):
        seen.append(optimizer.param_groups[0]["lr"])
        return step(model, ids, targets, optimizer)

    my_gpt.training_step = watched
    torch.manual_seed(0)
    ids = torch.arange(40) % SMALL.vocab_size
    batches = Batches(ids, 4, SMALL.max_seq_len, torch.Generator().manual_seed(0))
    losses = learn(my_gpt, my_gpt.MyGPT(SMALL), batches, 40, peak=0.02, warmup=50)
    assert seen == [learning_rate(i, 0.02, 8, 40) for i in range(1, 41)]
    assert losses[0] > 2 > 1 > losses[-1]


def test_a_loss_that_is_no_number_ends_the_training(filled, tmp_path):
    my_gpt = saved(tmp_path, filled)
    my_gpt.training_step = lambda *_: float("nan")
    batches = iter(lambda: (None, None), 0)
    with pytest.raises(TrainingDiverged, match="step 1 your training_step returns nan"):
        learn(my_gpt, my_gpt.MyGPT(SMALL), batches, 3)


@pytest.mark.proof
@pytest.mark.parametrize("activation", ["gelu", "gelu_new"])
@pytest.mark.parametrize("lent_alone", [False, True], ids=["filled", "skeleton"])
def test_it_computes_what_transformers_gpt2_computes_with_the_same_weights(activation, lent_alone, filled, tmp_path):
    from transformers import GPT2Config, GPT2LMHeadModel  # takes seconds, and no other test of this file needs it

    my_gpt = load(begin(tmp_path)) if lent_alone else saved(tmp_path, filled)
    size = {"vocab_size": 101, "n_positions": 32, "n_embd": 48, "n_head": 4, "n_layer": 3}
    torch.manual_seed(5)
    theirs = GPT2LMHeadModel(GPT2Config(**size, activation_function=activation)).eval()
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.15)
    own = from_library(my_gpt, from_hf_state_dict("gpt2", theirs.state_dict(), theirs.config))
    ids = torch.randint(101, (2, 32))
    with torch.no_grad():
        logits = theirs(ids).logits
        torch.testing.assert_close(own(ids), logits, atol=1e-5, rtol=0)
        assert (own(ids.flip(0)) - logits).abs().max() > 1e-2


@pytest.mark.proof
def test_letters_of_a_text_are_learned_and_written(filled, tmp_path):
    text = "to be or not to be, that is it.\n" * 40
    found = records.learn_letters(saved(tmp_path, filled), text, steps=25, d_model=16, written=40)
    assert found["kinds"] == len(set(text))
    assert len(found["losses"]) == 1
    assert found["held_out"] < math.log(len(set(text)))
    assert len(found["sample"]) == 40
    assert set(found["sample"]) <= set(text)


def test_letters_are_counted_and_no_count_is_zero():
    own, others = torch.tensor([0, 1, 0, 1, 0]), torch.tensor([0, 1, 1])
    # After 0 comes 1, in 2 of 2 cases; after 1 comes 0, in 2 of 2.
    expected = -(math.log(2.1 / 2.2) + math.log(0.1 / 2.2)) / 2
    assert records.count_letters(own, others, 1) == pytest.approx(expected)


def test_a_file_that_is_not_equal_is_refused_before_it_is_trained(filled, tmp_path, capsys):
    saved(tmp_path, with_fault(filled, "no bias in the norm"))
    for path, said in ((tmp_path / "my_gpt.py", "The first difference is in Norm"), (tmp_path / "other.py", "begin()")):
        with pytest.raises(SystemExit):
            records.main([str(path)])
        assert said in capsys.readouterr().err


def test_the_record_lies_between_the_grammar_and_guessing():
    kept = records.recorded()
    assert kept["tinytown"]["grammar"] < min(kept["tinytown"]["nats"]) < max(kept["tinytown"]["nats"]) < 1
    letters = kept["letters"]
    assert letters["held_out"] < letters["pairs"] < math.log(letters["kinds"]) / 2
    assert abs(letters["held_out"] - letters["triples"]) < 0.05, "the chapter calls them about equal"


def test_the_same_model_with_rope_is_between_the_rung_with_four_blocks_and_the_file():
    file, rope = records.recorded_heights().values()
    assert 0.05 < rope.above < 0.15 < min(file.nats) - file.grammar, "the guess has these ranges"
    saved = [learned - turned for learned, turned in zip(file.nats, rope.nats)]
    assert (round(min(saved), 2), round(max(saved), 2)) == (0.05, 0.14), "section 18.4 has these numbers"
    assert rungs.recorded()["four"].above < 0.05


def test_a_missing_residual_changes_every_later_tensor_and_is_removed_again():
    model, ids = DecoderOnly(SMALL).eval(), torch.tensor([[1, 2, 3]])
    before = model(ids)
    later, differ = tensors_after_a_fault(model, ids)
    assert later[0] == "blocks.0"
    assert later == differ
    assert torch.equal(model(ids), before)


def test_your_rungs_stand_on_the_ladder_as_honest_ones_and_the_letters_are_drawn_as_given():
    figure, words = ladder_with_yours({"your GPT": Height((1.9,), 0.65), "another": Height((0.9,), 0.65)})
    assert figure.get_suptitle() == "Your GPT: 1.25 nats above the entropy"
    assert words.splitlines()[-2:] == [
        line for line in words.splitlines() if line.startswith(("your GPT", "another"))
    ], "yours come last"
    axes = figure.axes[0]
    assert {"your GPT", "another"} <= {label.get_text() for label in axes.get_yticklabels()}
    points = [line for line in axes.lines if line.get_marker() == "o" and line.get_xdata()[0] in (1.9, 0.9)]
    assert all(point.get_markerfacecolor() != "white" for point in points), "hollow is who sees later tokens"

    _, words = ladder_with_yours({"your GPT": Height((1.886,), 0.65, digits=1)})
    assert words.splitlines()[-1].endswith("1.9 nats, 1.2 above the entropy"), "a short run is shown to one decimal"

    curve = letters_curve([3.0, 2.0], 2.2, 4.2, every=25).axes[0].lines[0]
    assert curve.get_xydata().tolist() == [[25, 3.0], [50, 2.0]]
