"""Chapter 12's measurements: the fast ones whole, the slow ones turned down; verdicts follow the figures."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from course_lib.chapters.training import claims as training
from course_lib.chapters.training import power_law, records
from course_lib.chapters.training.claims import HELD_OUT_SEED
from course_lib.claims import recorded
from course_lib.claims.registry import Size
from course_lib.gpt import IGNORED
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown, WordTokenizer, encode_stories
from course_lib.training import TrainingDiverged

ALL_STORIES = training.story_ids

# Figures that are possible, for each outcome.
OUTCOMES = {
    "training.one_batch": {
        "confirmed": {"right": 0.1, "unlucky": (0.2, 0.1, 0.1)},
        "depends": {"right": 0.1, "unlucky": (2.9, 0.1, 0.1)},
        "refuted": {"right": 0.9, "unlucky": (2.9, 3.0, 1.5)},
    },
    "training.scaling": {
        "by construction": {"straight": (0.45, 0.53, 0.39), "entropy": 0.647},
    },
    "training.resume": {
        "confirmed": {"whole": 0.0, "worse": (0.1, 0.05, 0.3)},
        "depends": {"whole": 0.0, "worse": (-0.02, 0.001, 0.13)},
        "refuted": {"whole": 0.0, "worse": (-0.02, -0.01, 0.0)},
    },
    "training.muon": {
        "confirmed": {"adamw": (0.4, 0.38, 0.39), "muon": (0.35, 0.38, 0.3)},
        "not at this size": {"adamw": (0.4, 0.38, 0.39), "muon": (0.35, 0.39, 0.3)},
    },
    "training.jump": {
        "confirmed": {"rise": (4, 4), "rise_of_table": (4, 8), "wait": (60, 64), "wait_of_table": (12, 12)},
        "depends": {"rise": (16, 4), "rise_of_table": (4, 8), "wait": (60, 64), "wait_of_table": (12, 12)},
        "refuted": {"rise": (16, 4), "rise_of_table": (4, 8), "wait": (20, 64), "wait_of_table": (12, 12)},
    },
}


@pytest.fixture(scope="module")
def ids():
    return encode_stories(Tinytown(0).sample(400), WordTokenizer())


@pytest.fixture(autouse=True)
def few_stories(monkeypatch, ids):
    """Fewer stories: encoding thousands takes longer than the tests."""
    monkeypatch.setattr(training, "story_ids", lambda: ids)


def test_rows_begin_at_the_beginning_of_a_story_and_targets_are_one_step_later():
    inputs, targets = next(training.story_batches(8, seed=3))
    assert inputs.shape == targets.shape == (8, training.ROW)
    assert (inputs[:, 0] == WordTokenizer().bos_id).all()
    assert torch.equal(inputs[:, 1:], targets[:, :-1])


def test_an_untrained_model_has_the_loss_of_guessing_on_held_out_stories():
    model = training.small_model(16)
    assert training.held_out_loss(model, 20) == pytest.approx(math.log(len(WordTokenizer())), rel=0.03)


def test_held_out_stories_are_none_that_were_trained_on():
    assert not set(Tinytown(HELD_OUT_SEED).sample(200)) & set(Tinytown(0).sample(training.STORIES))


@pytest.mark.proof
def test_a_model_without_a_bug_does_not_overfit_a_batch_at_a_rate_that_is_too_low():
    assert training.overfit(0)[0] < training.MEMORIZED < training.overfit(0, rate=0.002)[0]


@pytest.mark.proof
def test_faults_change_the_training_and_only_one_keeps_the_loss_up():
    losses = {fault: training.overfit(0, fault=fault)[0] for fault in ("none", *training.FAULTS)}
    assert len(set(losses.values())) == len(losses)
    assert [fault for fault, loss in losses.items() if loss > training.MEMORIZED] == [training.HINDERS]


@pytest.mark.parametrize("lost", [*training.PIECES, training.ALL_BUT_WEIGHTS])
def test_only_a_whole_checkpoint_goes_on_as_if_nothing_had_happened(lost):
    difference = training.resumed(seed=0, lost=lost)
    assert difference == 0 if lost == "nothing" else difference > 0.02


def test_losing_the_averages_changes_the_losses_and_need_not_harm_the_end():
    """The card once judged by the change alone, which says nothing about the loss at the end."""
    (change, lost), (_, kept) = (
        training.resumed_run(1, piece, 0.002, 30) for piece in ("the optimizer's averages", "nothing")
    )
    assert change > 0.01
    assert lost < kept
    figures = recorded()["training.resume"].figures
    assert min(figures["worse"]) < 0 < max(figures["worse"])


def test_a_straight_law_that_is_near_for_a_nearer_model_says_nothing_against_levelling_off():
    """The verdict once asked for the end of the trend in a model that had not come near the entropy."""
    finding = recorded()["training.scaling"]
    assert finding.verdict == "by construction"
    assert max(finding.figures["straight"]) < finding.figures["entropy"]


def test_a_quarter_of_the_width_is_trained_at_its_own_best_rate(monkeypatch):
    """At the rate of the wide model it ended at 1.7 nats, at its own at about half a nat."""
    best = {32: 0.03, 8: 0.09}
    monkeypatch.setattr(
        training, "overfit", lambda seed, steps, fault, rate, d_model: (abs(rate - best[d_model]), None)
    )
    tenth, quarter_of_steps, quarter_of_width = training.one_batch(Size()).figures["unlucky"]
    assert quarter_of_width == quarter_of_steps == 0
    assert tenth > 0


def test_muon_trains_the_matrices_of_the_blocks_and_adamw_everything_else():
    model = training.small_model(16)
    muon, adamw = training.muon_and_adamw(model)
    assert (type(muon), type(adamw)) == (torch.optim.Muon, torch.optim.AdamW)
    names = {id(p): name for name, p in model.named_parameters()}
    by_muon, by_adamw = (
        [names[id(p)] for group in optimizer.param_groups for p in group["params"]] for optimizer in (muon, adamw)
    )
    assert sorted(by_muon + by_adamw) == sorted(names.values()), "each once"
    assert by_muon == [name for name in names.values() if name.startswith("blocks") and "_proj.weight" in name]


def test_newton_schulz_costs_what_pytorch_counts_in_a_step_of_muon():
    model = training.small_model(16)
    model(*next(training.story_batches(2)))[1].backward()
    muon, _ = training.muon_and_adamw(model)
    with FlopCounterMode(display=False) as counted:
        muon.step()
    assert training.newton_schulz_flops(model.config) == counted.get_total_flops() > 0


def test_muons_steps_need_no_more_operations_than_they_may():
    for share in (1, training.SHARE):
        steps = training.muon_steps(1000, share)
        cost = 1 + training.newton_schulz_share()
        assert steps * cost <= share * 1000 < (steps + 1) * cost


def test_a_run_whose_loss_is_not_a_number_has_diverged(monkeypatch):
    monkeypatch.setattr(training, "small_model", lambda *_, **__: not_a_number)
    not_a_number = load_pretrained("tinytown")[0]
    torch.nn.init.constant_(not_a_number.token_embedding.weight, math.nan)
    with pytest.raises(TrainingDiverged, match="step 1 the loss is nan"):
        training.optimized("AdamW", 0.01, 0, 10)


def test_the_second_half_of_a_copy_row_repeats_the_first_and_alone_is_predicted():
    ids, targets = next(training.CopyBatches(16, seed=5))
    n = training.COPY_LENGTH
    assert ids.shape == targets.shape == (16, 2 * n - 1)
    assert torch.equal(ids[:, n:], ids[:, : n - 1])
    assert (targets[:, : n - 1] == IGNORED).all()
    assert torch.equal(targets[:, n - 1 :], ids[:, :n])


@pytest.mark.proof
def test_copying_is_learnt_from_nothing_to_nearly_all():
    losses, right = training.learn_to_copy(seed=1)
    assert losses[0] == pytest.approx(math.log(training.COPY_LETTERS), rel=0.1)
    assert right[0] < 0.2, "one letter in 24 by chance"
    assert right[-1] > 0.95
    assert len(right) == training.COPY_STEPS // 4 + 1


def test_each_letter_of_the_control_names_one_follower():
    ids, targets = next(training.FollowerBatches(16, seed=5))
    assert ids.shape == targets.shape == (16, 2 * training.COPY_LENGTH - 1)
    followers = {(one, other) for one, other in zip(ids.flatten().tolist(), targets.flatten().tolist())}
    assert len(followers) == training.COPY_LETTERS, "each letter has one"
    assert len({other for _, other in followers}) == training.COPY_LETTERS, "and no two the same"


def test_a_level_is_reached_at_the_first_step_that_shows_it():
    right = [0.0, 0.1, 0.3, 0.2, 0.8]
    assert (training.reached(right, 0.25), training.reached(right, 0.75)) == (8, 16)
    assert training.reached(right, 0.9) == 20, "never"


def test_a_larger_model_has_more_parameters_and_learns_more():
    small, large = (training.train_at_scale(d_model, steps=30, peak=5e-3) for d_model in (8, 32))
    assert small.parameters < large.parameters
    assert small.loss > large.loss > Tinytown().entropy()
    assert large.parameters == sum(parameter.numel() for parameter in training.small_model(32).parameters())
    assert small.tokens == large.tokens == 30 * training.ROWS * training.ROW


@pytest.mark.proof
def test_most_of_the_lead_of_the_wide_model_is_the_learning_rate():
    """With one seed of the three that the chapter measures."""
    same, own = (
        [training.train_at_scale(d_model, 150, training.SEEDS[0], peak).loss for d_model, peak in zip((8, 32), peaks)]
        for peaks in ((5e-3, 5e-3), (0.16, 0.08))
    )
    assert own[0] - own[1] < (same[0] - same[1]) / 2


@pytest.mark.proof
def test_adamws_first_move_is_the_rate_and_later_ones_are_shorter():
    """Step 1: m/√v is the sign of the gradient. A constant gradient would keep it so; those of a text do not."""
    shares = training.moves(seed=1)
    first, tenth, hundredth = shares[0], shares[9], shares[99]
    assert first == pytest.approx(1, abs=1e-3)
    assert 0.2 < tenth < 0.5
    assert 0.08 < hundredth < 0.25


@pytest.mark.proof
def test_the_moves_shrink_without_any_disagreement_of_batches():
    for seed in training.SEEDS:
        shares = training.moves(seed, one_batch=True)
        first, tenth, hundredth = shares[0], shares[9], shares[99]
        assert first == pytest.approx(1, abs=1e-3)
        assert tenth < 0.5
        assert hundredth < 0.2


@pytest.mark.proof
def test_an_outlier_harms_through_adamws_averages_and_restoring_them_undoes_it():
    before, after, later = training.outlier(clipped=False, seed=1)
    clipped = training.outlier(clipped=True, seed=1)
    restored = training.outlier(clipped=False, seed=1, restored="mv")
    assert restored[:2] == [before, after], "until after the step nothing differs"
    assert abs(after - before) < 0.2
    assert later > after + 0.3
    assert restored[2] == pytest.approx(clipped[2], abs=0.15)


@pytest.mark.proof
def test_signs_of_gradients_change_nearly_as_often_as_by_chance():
    shares, changed = training.moves_and_signs(seed=1, one_batch=True)
    assert len(shares) == len(changed) == 100
    assert changed[0] == 0
    assert 0.25 < sum(changed[1:]) / 99 < 0.5


SIZES, TOKENS = (5_000, 12_000, 36_000), (57_600, 115_200, 230_400)


def drawn_from(law):
    return [power_law.Run(n, tokens, law(n, tokens)) for n in SIZES for tokens in TOKENS]


@pytest.mark.parametrize("floor", [0.0, 0.65])
def test_a_law_is_found_again_in_runs_that_follow_it(floor):
    law = power_law.PowerLaw(A=400.0, a=0.9, B=9000.0, b=0.75, floor=floor)
    found = power_law.PowerLaw.fitted(drawn_from(law), floor)
    assert (found.a, found.b) == pytest.approx((0.9, 0.75))
    assert found(1e6, 1e7) == pytest.approx(law(1e6, 1e7), rel=1e-6)


def test_the_shipped_model_is_counted_as_it_was_trained():
    shipped = power_law.shipped_run()
    assert shipped.parameters == sum(p.numel() for p in load_pretrained("tinytown")[0].parameters())
    assert shipped.tokens == 5000 * 24 * 96


def test_the_best_size_has_the_lowest_loss_of_its_compute():
    law = power_law.PowerLaw(A=400.0, a=0.9, B=9000.0, b=0.75, floor=0.65)
    parameters, tokens = law.best_size(1e12)
    assert 6 * parameters * tokens == pytest.approx(1e12)
    others = [law(parameters * share, tokens / share) for share in (0.5, 0.9, 1.1, 2)]
    assert law(parameters, tokens) < min(others)


def test_the_straight_law_of_every_seed_passes_below_the_entropy():
    """So it cannot be asked for the shipped model: its trend has to level off."""
    larger = power_law.shipped_run()
    for seed in training.SEEDS:
        runs, predicted, _ = power_law.law_runs(seed)
        assert (len(runs), len(predicted)) == (12, 1)
        plain = power_law.PowerLaw.fitted(runs, 0.0)
        assert plain(larger.parameters, larger.tokens) < Tinytown().entropy() < larger.loss


def test_the_probe_finds_each_ability_in_the_words_that_show_it():
    probe, tokens = records.AbilityProbe(60), WordTokenizer().tokens

    class Knows(torch.nn.Module):
        def forward(self, ids):
            wanted = probe.targets.clamp(min=0)
            return 30.0 * torch.nn.functional.one_hot(wanted, len(tokens))

    loss, right, given = probe(Knows())
    assert loss < 1e-6
    assert set(right.values()) == {1.0}
    assert min(given.values()) > 0.999

    capitals = {tokens[i] for i in probe.targets[tuple(probe.places["capitals"])]}
    assert {"berlin", "cairo"} <= capitals, capitals
    things = {tokens[i] for i in probe.targets[tuple(probe.places["it: the thing"])]}
    animals = {tokens[i] for i in probe.targets[tuple(probe.places["it: the animal"])]}
    assert "rug" in things
    assert "cat" in animals
    assert not things & animals


def test_counts_of_letters_are_those_that_one_counts_by_hand(monkeypatch):
    own, others = torch.tensor([0, 1, 0, 1, 1]), torch.tensor([0, 1, 1, 0, 1])
    monkeypatch.setattr(records, "letters", lambda: (own, others, 2))
    monkeypatch.setattr(records, "LONGEST_COUNT", 1)
    found = records.letters_by_counting()
    alone = [(2 + 0.05) / 5.1, (3 + 0.05) / 5.1]
    assert found["0"] == pytest.approx(-sum(math.log(alone[i]) for i in others.tolist()) / 5, abs=1e-3)
    after = {(0, 1): 2.05 / 2.1, (0, 0): 0.05 / 2.1, (1, 0): 1.05 / 2.1, (1, 1): 1.05 / 2.1}
    pairs = zip(others.tolist(), others.tolist()[1:])
    assert found["1"] == pytest.approx(-sum(math.log(after[pair]) for pair in pairs) / 4, abs=1e-3)


@pytest.mark.proof
def test_what_the_chapter_shows_as_recorded_is_what_training_gives(monkeypatch):
    """The shortest run of the law and two of the sweep: the others take minutes."""
    monkeypatch.setattr(training, "story_ids", ALL_STORIES)
    first, *_ = records.recorded("scaling")["runs"]
    run = records.scaled(first["d_model"], records.BUDGETS[0], first["seed"])
    assert (run.parameters, run.tokens) == (first["parameters"], first["tokens"])
    assert run.loss == pytest.approx(first["loss"], abs=0.05)
    losses = records.recorded_sweep("decayed, no warm-up")[0.02]
    assert records.swept(0.02, "decayed, no warm-up", seed=1) == pytest.approx(losses[1], abs=0.05)
    for d_model, losses in records.recorded_widths().items():
        found = training.train_at_scale(d_model, records.WIDTH_STEPS, peak=0.04).loss
        assert found == pytest.approx(losses[0.04][0], abs=0.05)
    arm, (optimizer, steps) = list(records.OPTIMIZERS.items())[-1]
    found = training.optimized(optimizer, 0.04, training.SEEDS[0], steps)
    assert found == pytest.approx(records.recorded_optimizers()[arm][0.04][0], abs=0.05)


def test_the_record_holds_what_the_chapter_asks_it_for():
    fitted, others, floor = power_law.law_runs()
    assert {run.parameters for run in fitted}.isdisjoint({run.parameters for run in others})
    assert min(run.loss for run in fitted + others) > floor > 0.6
    assert all(run.tokens % (training.ROWS * training.ROW) == 0 for run in fitted + others)
    abilities = records.recorded("abilities")
    assert set(abilities["seed 0"]["right"]) == set(records.ABILITIES)
    assert len(abilities["steps"]) == len(abilities["seed 0"]["loss"])
    widths = records.recorded_widths()
    assert tuple(widths) == records.WIDTHS
    for rates in widths.values():
        assert tuple(rates) == records.WIDTH_RATES
        assert {len(losses) for losses in rates.values()} == {len(training.SEEDS)}
    optimizers = records.recorded_optimizers()
    assert set(optimizers) == set(records.OPTIMIZERS)
    for rates in optimizers.values():
        assert tuple(rates) == records.WIDTH_RATES
        assert {len(losses) for losses in rates.values()} == {len(training.SEEDS)}
    curves = records.recorded_curves()
    assert list(curves) == list(records.FOUR)
    for name, (peak, shape) in records.FOUR.items():
        rates, losses = curves[name]
        assert len(rates) == len(losses) == records.SWEEP_STEPS // records.CURVE_EVERY + 1
        assert max(rates) == peak
        assert rates[-1] == (peak if shape == "constant" else 0)
        assert losses[-1] == records.recorded_sweep(shape)[peak][0], "the curve ends where the table says"


def test_a_record_is_named_in_the_help_and_an_unknown_one_is_refused(capsys):
    with pytest.raises(SystemExit):
        records.main(["--help"])
    said = capsys.readouterr().out
    assert all(name in said for name in records.RECORDS)
    with pytest.raises(SystemExit):
        records.main(["no_such"])
