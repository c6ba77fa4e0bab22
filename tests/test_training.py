"""Training: the schedule against its closed form, the loop by what it must do, the loss of stories against
PyTorch's."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from course_lib.config import preset
from course_lib.gpt import DecoderOnly
from course_lib.grading import EXERCISES
from course_lib.tinytown import Batches
from course_lib.training import History, TrainingDiverged, learning_rate, make_optimizer, story_losses, train
from course_lib.training_options.checkpoints import load_checkpoint, save_checkpoint

SMALL = replace(
    preset("tinytown"), vocab_size=20, d_model=16, n_heads=2, n_layers=2, d_ff=32, n_kv_heads=2, max_seq_len=16
)


def small_model(seed=0):
    torch.manual_seed(seed)
    return DecoderOnly(SMALL)


def small_batches(seed=0):
    ids = torch.randint(20, (300,), generator=torch.Generator().manual_seed(1))
    return Batches(ids, batch_size=4, T=8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.usefixtures("as_a_learner")
def test_a_model_with_nothing_to_train_is_refused_before_anything_is_done(tmp_path):
    model, seen = small_model().requires_grad_(False), []
    with pytest.raises(ValueError, match=r"no parameter of DecoderOnly requires a gradient.*requires_grad_\(True\)"):
        train(model, small_batches(), 2, checkpoint=tmp_path / "run.pt", on_step=lambda *_: seen.append(1))
    assert not seen
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="requires a gradient"):
        make_optimizer(model)
    model.final_norm.requires_grad_(True)
    before = [parameter.clone() for parameter in model.parameters()]
    train(model, small_batches(), 2, warmup=0, progress=False)
    changed = [not torch.equal(*pair) for pair in zip(before, model.parameters())]
    assert sum(changed) == len(list(model.final_norm.parameters()))


def test_a_model_that_was_evaluated_before_is_trained_with_its_dropout():
    torch.manual_seed(0)
    model = DecoderOnly(replace(SMALL, dropout=0.5)).eval()
    seen = []
    train(model, small_batches(), 1, progress=False, on_step=lambda _, model: seen.append(model.training))
    assert seen == [True, True]


@pytest.mark.usefixtures("as_a_learner")
def test_a_loss_that_no_parameter_moves_is_refused():
    model = small_model()
    model.register_forward_hook(lambda _, inputs, output: (output[0], output[1].detach()))
    with pytest.raises(ValueError, match=r"the loss of DecoderOnly does not depend on a parameter"):
        train(model, small_batches(), 2, progress=False)


# ------------------------------------------------------------------------------------------------------------- schedule
def test_learning_rate_at_its_corners():
    rate = lambda step: learning_rate(step, peak=2.0, warmup=10, total=110, floor=0.5)  # noqa: E731
    assert rate(0) == 0
    assert rate(5) == 1.0
    assert rate(10) == 2.0
    assert rate(60) == pytest.approx(1.25), "half-way between peak and floor"
    assert rate(110) == rate(10_000) == 0.5
    assert rate(35) == pytest.approx(0.5 + 1.5 * (1 + math.sqrt(0.5)) / 2), "a quarter of the way: cos 45°"


def test_learning_rate_agrees_with_pytorchs_cosine_after_warm_up():
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=90, eta_min=1e-4)
    for step in range(10, 100):
        assert learning_rate(step, 3e-3, 10, 100, 1e-4) == pytest.approx(schedule.get_last_lr()[0], rel=1e-9)
        optimizer.step()
        schedule.step()


@pytest.mark.usefixtures("as_a_learner")
@pytest.mark.parametrize(
    "bad",
    [
        {"step": -1},
        {"warmup": -1},
        {"total": 10},
        {"floor": 3.0},
        {"floor": -1.0},
        {"peak": math.inf},
        {"step": math.nan},
        {"warmup": math.nan},
    ],
)
def test_learning_rate_refuses_a_schedule_that_makes_no_sense(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        learning_rate(**{"step": 1, "peak": 2.0, "warmup": 10, "total": 100, "floor": 0.0} | bad)


# ----------------------------------------------------------------------------------------------------------------- loop
def test_a_model_learns_a_text_that_repeats_by_heart():
    ids = torch.arange(5).repeat(40)
    history = train(
        small_model(), Batches(ids, 4, 8, torch.Generator().manual_seed(0)), 150, peak=1e-2, warmup=10, progress=False
    )
    assert history.losses[0] == pytest.approx(math.log(20), rel=0.05), "an untrained model guesses evenly"
    assert history.losses[-1] < 0.05


def test_history_holds_the_schedule_and_the_norms():
    history = train(small_model(), small_batches(), 30, peak=1e-3, warmup=10, progress=False)
    assert len(history) == len(history.learning_rates) == len(history.gradient_norms) == 30
    assert history.learning_rates == [learning_rate(step, 1e-3, 10, 30) for step in range(1, 31)]
    assert all(norm > 0 for norm in history.gradient_norms)


def test_one_update_equals_adamw_on_clipped_gradients():
    model, reference = small_model(), small_model()
    train(model, small_batches(), 1, peak=1e-2, warmup=0, max_norm=0.1, weight_decay=0.3, progress=False)

    decayed = [p for p in reference.parameters() if p.dim() >= 2]
    plain = [p for p in reference.parameters() if p.dim() < 2]
    rate = learning_rate(1, 1e-2, 0, 1)
    groups = [{"params": decayed, "weight_decay": 0.3}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), fused=False)
    inputs, targets = next(small_batches())
    F.cross_entropy(reference(inputs).flatten(0, 1), targets.flatten()).backward()
    norm = torch.linalg.vector_norm(torch.stack([p.grad.norm() for p in reference.parameters()]))
    for p in reference.parameters():
        p.grad *= min(1.0, 0.1 / norm.item())
    optimizer.step()
    for (name, p), q in zip(model.named_parameters(), reference.parameters()):
        torch.testing.assert_close(p, q, msg=name)


def test_an_interrupted_run_ends_where_an_uninterrupted_one_does(tmp_path):
    whole = small_model()
    history = train(whole, small_batches(), 24, warmup=5, progress=False)

    class Interrupted(Exception):
        pass

    def stop_after_17(step, model):
        if step == 17:
            raise Interrupted

    checkpoint = tmp_path / "training.pt"
    settings = {"warmup": 5, "checkpoint": checkpoint, "checkpoint_every": 6, "progress": False}
    with pytest.raises(Interrupted):
        train(small_model(), small_batches(), 24, on_step=stop_after_17, **settings)
    resumed = small_model(seed=99)  # its own weights must not matter
    later = train(resumed, small_batches(seed=98), 24, **settings)
    assert later == history
    for (name, p), q in zip(whole.named_parameters(), resumed.parameters()):
        assert torch.equal(p, q), name
    assert not list(tmp_path.glob("*.part"))


def test_a_resumed_training_draws_the_same_dropout(tmp_path):
    def learner(seed):
        torch.manual_seed(seed)
        return DecoderOnly(replace(SMALL, dropout=0.3))

    rows = torch.randint(20, (4, 9), generator=torch.Generator().manual_seed(0))
    batches = iter(lambda: (rows[:, :-1], rows[:, 1:]), None)
    settings = {"warmup": 2, "checkpoint_every": 5, "progress": False}
    whole = train(learner(1), batches, 10, checkpoint=tmp_path / "whole.pt", **settings).losses

    class Interrupted(Exception):
        pass

    def stop(step, _):
        if step == 6:
            raise Interrupted

    with pytest.raises(Interrupted):
        train(learner(1), batches, 10, checkpoint=tmp_path / "half.pt", on_step=stop, **settings)
    torch.manual_seed(99)  # what another program has drawn in between must not matter
    assert train(learner(2), batches, 10, checkpoint=tmp_path / "half.pt", **settings).losses == whole


def test_a_checkpoint_of_another_model_or_a_damaged_one_is_refused_and_kept(tmp_path):
    checkpoint = tmp_path / "training.pt"
    train(small_model(), small_batches(), 2, checkpoint=checkpoint, progress=False)
    other = DecoderOnly(replace(SMALL, d_model=32))
    with pytest.raises(ValueError, match="cannot resume"):
        train(other, small_batches(), 4, checkpoint=checkpoint, progress=False)
    before = checkpoint.read_bytes()[:100]
    checkpoint.write_bytes(before)
    with pytest.raises(ValueError, match=r"training\.pt"):
        train(small_model(), small_batches(), 4, checkpoint=checkpoint, progress=False)
    assert checkpoint.read_bytes() == before


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_weights():
    model = small_model()
    calls = []

    class Diverging(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, inputs, targets):
            calls.append(1)
            logits, loss = self.inner(inputs, targets)
            return logits, loss * (math.nan if len(calls) == 4 else 1.0)

    with pytest.raises(TrainingDiverged, match=r"step 3 .*Try a lower peak"):
        train(Diverging(), small_batches(), 10, progress=False)
    assert all(p.isfinite().all() for p in model.parameters())


def test_only_matrices_decay():
    decayed, plain = make_optimizer(small_model(), weight_decay=0.2).param_groups
    assert decayed["weight_decay"] == 0.2
    assert plain["weight_decay"] == 0.0
    assert {p.dim() for p in decayed["params"]} == {2}
    assert {p.dim() for p in plain["params"]} == {1}


def test_without_a_bound_gradients_stay_as_they_are():
    """Two updates of a run with clipping that never bites, and of runs with none."""
    runs = [small_model() for _ in range(3)]
    for model, max_norm in zip(runs, (1e6, math.inf, None)):
        train(model, small_batches(), 2, warmup=0, max_norm=max_norm, progress=False)
    for found in runs[1:]:
        for p, q in zip(runs[0].parameters(), found.parameters()):
            assert torch.equal(p, q)


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
            ({"steps": -3}, "steps must be a whole number of at least 1, got -3"),
            ({"max_norm": -1.0}, r"max_norm must be a positive number, got -1\.0.*None"),
            ({"max_norm": 0}, r"max_norm must be a positive number, got 0.*None"),
            ({"max_norm": math.nan}, "max_norm must be a positive number, got nan"),
            ({"max_norm": "1"}, "max_norm must be a positive number, got '1'"),
            ({"weight_decay": -0.1}, r"weight_decay must be a finite number of at least 0, got -0\.1"),
            ({"weight_decay": math.inf}, "weight_decay must be a finite number of at least 0, got inf"),
            ({"weight_decay": math.nan}, "weight_decay must be a finite number of at least 0, got nan"),
            ({"checkpoint_every": 0}, "checkpoint_every must be a whole number of at least 1, got 0"),
            ({"checkpoint_every": -5}, "checkpoint_every must be a whole number of at least 1, got -5"),
            ({"peak": -1e-3}, r"peak=-0\.001"),
            ({"peak": math.inf}, "peak=inf"),
            ({"peak": math.nan}, "peak=nan"),
            ({"floor": 1.0}, r"floor=1\.0"),
            ({"warmup": -1}, "warmup=-1"),
            (
                {"checkpoint": "no such folder/x.pt"},
                "checkpoint='no such folder/x.pt' cannot be written: there is no folder",
            ),
        ],
    )
    def test_a_setting_that_makes_no_sense_is_named_before_anything_happens(self, settings, message, tmp_path):
        checkpoint, began = tmp_path / "training.pt", []
        model, batches = small_model(), small_batches()
        before = [parameter.clone() for parameter in model.parameters()]
        arguments = {"steps": 3, "checkpoint": checkpoint, "progress": False} | settings
        with pytest.raises(ValueError, match=message):
            train(model, batches, on_step=lambda step, model: began.append(step), **arguments)
        assert not began
        assert not checkpoint.exists()
        assert all(torch.equal(p, q) for p, q in zip(model.parameters(), before))

    def test_batches_that_run_out_say_when_and_what_to_do(self):
        supply = small_batches()
        seen = []
        with pytest.raises(ValueError, match=r"batches ran out at step 3 of 5.*Batches.*or ask for at most 3 steps"):
            train(
                small_model(), iter([next(supply) for _ in range(3)]), 5, progress=False,
                on_step=lambda step, model: seen.append(step),
            )  # fmt: skip
        assert seen == [0, 1, 2, 3]

    def test_a_list_of_batches_is_no_iterator(self):
        with pytest.raises(TypeError, match=r"batches must be an iterator.*got list.*iter\(batches\)"):
            train(small_model(), [next(small_batches())], 1, progress=False)

    def test_a_checkpoint_that_holds_nan_is_refused_by_the_name_of_the_tensor(self, tmp_path):
        checkpoint = tmp_path / "training.pt"
        train(small_model(), small_batches(), 1, checkpoint=checkpoint, progress=False)
        state = torch.load(checkpoint, weights_only=True)
        state["model"]["blocks.1.norm2.weight"][3] = math.nan
        torch.save(state, checkpoint)
        model = small_model()
        with pytest.raises(ValueError, match=r"cannot resume.*blocks\.1\.norm2\.weight holds NaN"):
            train(model, small_batches(), 2, checkpoint=checkpoint, progress=False)
        assert all(p.isfinite().all() for p in model.parameters())

    @pytest.mark.parametrize("stories", [[], [[1, 5, 2], [1]], [[]]])
    def test_stories_without_a_token_to_predict_are_refused(self, stories):
        with pytest.raises(ValueError, match="stories must be lists of at least two ids"):
            story_losses(small_model(), stories)

    def test_losses_are_measured_in_batches_of_at_least_one(self):
        with pytest.raises(ValueError, match="batch_size must be a whole number of at least 1, got 0"):
            story_losses(small_model(), [[1, 5, 2]], batch_size=0)


def test_progress_is_shown_unless_declined(capsys):
    train(small_model(), small_batches(), 2)
    assert "2/2" in capsys.readouterr().err
    train(small_model(), small_batches(), 2, progress=False)
    assert capsys.readouterr().err == ""


# --------------------------------------------------------------------------------------------------------- story losses
def test_story_losses_equal_pytorchs_cross_entropy_story_by_story():
    model = small_model().eval()
    stories = [[1, *torch.randint(3, 20, (n,)).tolist(), 2] for n in (3, 9, 1, 6)]
    nats, tokens = story_losses(model, stories, batch_size=3)
    assert tokens.tolist() == [len(story) - 1 for story in stories]
    for story, found in zip(stories, nats):
        ids = torch.tensor(story)
        expected = F.cross_entropy(model(ids[None, :-1])[0], ids[1:], reduction="sum").item()
        assert found.item() == pytest.approx(expected, rel=1e-5)


def test_an_id_that_also_serves_as_padding_counts_where_a_story_holds_it():
    """Stories of random ids hold every id of the vocabulary, 0 too. Only what lies behind a story's end is padding."""
    model = small_model().eval()
    stories = [[0, 5, 0, 0, 7, 0], [3, 0], [0, 0, 0, 0]]
    for pad_id in (0, 7):
        nats, _ = story_losses(model, stories, pad_id=pad_id)
        for story, found in zip(stories, nats):
            ids = torch.tensor(story)
            expected = F.cross_entropy(model(ids[None, :-1])[0], ids[1:], reduction="sum").item()
            assert found.item() == pytest.approx(expected, rel=1e-5), (story, pad_id)


def test_measuring_leaves_the_model_in_its_mode():
    model = small_model().train()
    story_losses(model, [[1, 5, 2]])
    assert model.training


def test_history_starts_empty():
    assert len(History()) == 0


class Masked(torch.nn.Module):
    """A model with the usual causal mask, whose −inf are no damage."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(4))
        self.register_buffer("mask", torch.full((4, 4), -torch.inf).triu(1))

    def forward(self, ids, targets):
        return ids, ((ids + self.mask).softmax(-1) @ self.weight).square().mean()


def test_a_buffer_may_hold_what_no_weight_may(tmp_path):
    batches = itertools.repeat((torch.ones(4, 4), None))
    for steps in (3, 6):
        history = train(Masked(), batches, steps, checkpoint=tmp_path / "run.pt", progress=False)
    assert len(history) == 6


def test_a_loop_of_ones_own_saves_and_loads_its_checkpoint(tmp_path):
    """Three steps, stopped after the first, end where three in one go end; what is no checkpoint's is named."""
    path = tmp_path / "own.pt"

    def begin():
        model = small_model(5)
        return model, make_optimizer(model)

    def go_on(model, optimizer, steps, seen):
        for group in optimizer.param_groups:
            group["lr"] = 1e-2
        for step in steps:
            ids = torch.arange(6).view(1, 6) + step
            optimizer.zero_grad()
            _, loss = model(ids[:, :-1], ids[:, 1:])
            loss.backward()
            optimizer.step()
            seen.append(loss.item())
        return seen

    whole = go_on(*begin(), range(3), [])
    model, optimizer = begin()
    save_checkpoint(path, model, optimizer, history={"losses": go_on(model, optimizer, range(1), [])})
    model, optimizer = begin()
    history = load_checkpoint(path, model, optimizer)
    assert go_on(model, optimizer, range(1, 3), history["losses"]) == whole
    with pytest.raises(ValueError, match="no folder"):
        save_checkpoint(tmp_path / "nowhere" / "own.pt", model, optimizer)
    with pytest.raises(ValueError, match="missing"):
        load_checkpoint(tmp_path / "other.pt", model, optimizer)
    with pytest.raises(TypeError, match="optimizer"):
        save_checkpoint(path, model, None)


MATRICES = [(4, 4), (3, 8), (8, 3), (1, 5), (6, 1)]


@pytest.mark.parametrize("shape", MATRICES)
@pytest.mark.parametrize("beta", [0.95, 0.5])
def test_the_exercises_steps_of_muon_are_those_of_torch_up_to_its_bfloat16(shape, beta):
    step = EXERCISES["training.muon"].reference
    rng = torch.Generator().manual_seed(0)
    W, momentum, lr = torch.zeros(shape), torch.zeros(shape), 0.1
    theirs = torch.nn.Parameter(W.clone())
    optimizer = torch.optim.Muon([theirs], lr=lr, momentum=beta, weight_decay=0.0, nesterov=True)
    longest = lr * max(1, shape[0] / shape[1]) ** 0.5
    for _ in range(3):
        while True:  # five rounds in bfloat16 enlarge the rounding of small singular values
            gradient = torch.randn(shape, generator=rng)
            singular = torch.linalg.svdvals(gradient + beta * (beta * momentum + gradient))
            if singular.min() > 0.1 * singular.norm():
                break
        before, theirs.grad = theirs.detach().clone(), gradient
        optimizer.step()
        W_new, momentum = step(W, gradient, momentum, lr, beta)
        torch.testing.assert_close(W_new - W, theirs.detach() - before, atol=0.04 * longest, rtol=0)
        theirs_momentum = optimizer.state[theirs]["momentum_buffer"] / (1 - beta)  # a running mean, ours is a sum
        torch.testing.assert_close(momentum, theirs_momentum)
        W = W_new


@pytest.mark.parametrize("shape", MATRICES)
def test_the_exercises_step_of_muon_has_the_singular_vectors_of_the_momentum_and_nearly_equal_values(shape):
    step, beta, lr = EXERCISES["training.muon"].reference, 0.9, 0.2
    W, gradient, momentum = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    W_new, momentum_new = step(W, gradient, momentum, lr, beta)
    U, s, Vh = torch.linalg.svd(gradient + beta * momentum_new, full_matrices=False)
    assert s.min() > 0.02 * s.norm()  # smaller ones need more than five rounds
    values = U.T @ (W - W_new) @ Vh.T / (lr * max(1, shape[0] / shape[1]) ** 0.5)
    torch.testing.assert_close(values, values.diagonal().diag(), atol=1e-10, rtol=0)
    assert ((values.diagonal() > 0.65) & (values.diagonal() < 1.25)).all()
