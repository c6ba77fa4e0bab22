"""Careless answers and pairs of mutants leave no survivor without a reason; and each slip does what it says."""

from fnmatch import fnmatch

import pytest
import torch
from torch import nn

from course_lib.grading import EXERCISES, Case, Code
from tests import careless, mutant_pairs, mutants
from tests.careless_slips import SLIPS, Seen

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # wrong code is what is run here
CALLED = mutants.chosen([])
SLOW = {  # seconds for each, in training, in models or in thousands of draws: `python -m tests.careless --all` has them
    "attention.score_variance",
    "blocks.pre_or_post",
    "efficiency.rnn_or_attention",
    "efficiency.speculative",
    "feed_forward.ablate_fact",
    "feed_forward.sparsity",
    "gpt.tie_weights",
    "heads.how_many",
    "positions.equivariance",
    "sampling.compare",
    "training.get_batch",
    "training.overfit",
    "training.step",
}
ENDLESS = {"embeddings.merge_pair", "embeddings.merge_table"}  # many a pair never ends, and takes all of its seconds
QUICK = [exercise_id for exercise_id in CALLED if exercise_id not in SLOW]


# --- over the catalogue -----------------------------------------------------------------------------------------------


@pytest.mark.proof
@pytest.mark.parametrize("exercise_id", QUICK)
@pytest.mark.usefixtures("as_a_learner")
def test_no_careless_answer_passes_without_a_reason(exercise_id):
    found = careless.run(exercise_id)
    assert found.tried > 0
    assert found.silent, "what no case can show is not tried, and named"
    assert [name for name in found.alive if not careless.explained(exercise_id, name)] == []
    stale = [
        f"{where}, {what}"
        for where, what, _ in careless.EQUIVALENT
        if where == exercise_id and not any(fnmatch(name, what) for name in found.alive)
    ]
    assert stale == [], "lines of EQUIVALENT that fit no survivor"


@pytest.mark.proof
@pytest.mark.parametrize("exercise_id", [exercise_id for exercise_id in QUICK if exercise_id not in ENDLESS])
@pytest.mark.usefixtures("as_a_learner")
def test_no_pair_of_mutants_passes_without_a_reason(exercise_id):
    count, alive = mutant_pairs.survivors(exercise_id)
    assert count <= mutant_pairs.NUMBER
    assert [each.lines for each in alive if not mutant_pairs.explained(exercise_id, each)] == []


def test_reasons_belong_to_exercises_and_slips():
    slips = {slip.__name__.replace("_", " ") for slip in SLIPS}
    for where, what, why in careless.EQUIVALENT:
        assert any(fnmatch(exercise_id, where) for exercise_id in CALLED), where
        assert any(fnmatch(slip, what.partition(":")[0]) for slip in slips), what
        assert why
    assert {name for name, *_ in mutant_pairs.EQUIVALENT} <= set(CALLED)


def test_every_slip_says_what_it_is():
    assert all(slip.__doc__ for slip in SLIPS)
    assert len({slip.__name__ for slip in SLIPS}) == len(SLIPS)


# --- each slip, on toys -----------------------------------------------------------------------------------------------


def weighted(x, w, dim=-1):
    return (x * w).softmax(dim)


def numbered(tokens, step):
    return [f"{token}{step}" for token in tokens]


def filled(x, mask):
    return x.masked_fill(~mask, -torch.inf).softmax(-1)


def largest(x):
    return x.argmax(-1), sorted([1.0, 1, 0.5], reverse=True)


def chosen_rows(x, generator):
    return x[torch.randperm(len(x), generator=generator)]


def laid_out(x):
    return x.transpose(0, 1).reshape(-1)


def evaluated(model, x):
    result = model.eval()(x)
    model.train()
    return result


class Gain(nn.Module):
    def __init__(self, d, power=1.0):
        super().__init__()
        self.weight, self.power = nn.Parameter(torch.full((d,), 2.0)), power

    def forward(self, x):
        return x * self.weight**self.power


def seen(reference, *calls, built=None):
    found = Seen(reference, built is not None)
    for arguments in calls:
        bound = found.signature.bind(*([None] * (built is not None)), *arguments).arguments
        found.calls.append({name: value for name, value in bound.items() if name != "self"})
        function = reference(**built) if built is not None else reference
        found.results.append(function(*arguments))
        found.built += [built] if built is not None else []
    return found


def slipped(name, label, reference, *calls, built=None):
    """What a slip makes of a reference: its results on these calls, one after the other."""
    (slip,) = (each for each in SLIPS if each.__name__ == name)
    answers = dict(slip(seen(reference, *calls, built=built)))
    answer = answers[label](**built) if built is not None else answers[label]
    return [answer(*arguments) for arguments in calls]


X = torch.tensor([[1.0, 2.0], [5.0, 3.0]])
W = torch.tensor([0.5, 1.0])
FULL = torch.tensor([[True, False], [True, True]])


@pytest.mark.parametrize(
    ("name", "label", "arguments", "expected"),
    [
        ("first_for_all", "result, axis 0", (X, W), weighted(X, W)[:1].expand(2, 2)),
        ("first_for_all", "x, axis 0", (X, W), weighted(X[:1].expand(2, 2), W)),
        ("last_for_all", "w, axis 0", (X, W), weighted(X, W[1:].expand(2))),
        ("end_left_out", "last of axis 0", (X, W), weighted(X, W) * torch.tensor([[1.0], [0.0]])),
        ("end_left_out", "first of axis 1", (X, W), weighted(X, W) * torch.tensor([0.0, 1.0])),
        ("end_not_worked_on", "x, axis 0", (X, W), torch.cat([weighted(X, W)[:1], X[1:]])),
        ("argument_cut_short", "x, axis 0, last", (X, W), weighted(X[:-1], W)),
        ("argument_cut_short", "x, axis 0, first", (X, W), weighted(X[1:], W)),
        ("one_off", "dim -1", (X, W, 1), weighted(X, W, 0)),
        ("argument_ignored", "dim, its default", (X, W, 0), weighted(X, W, -1)),
        ("argument_ignored", "w is ones", (X, W), X.softmax(-1)),
        ("arguments_exchanged", "w for x", (X, W), weighted(W, W)),
        ("less_exact", "x by torch.bfloat16", (X / 3, W), weighted((X / 3).bfloat16().float(), W)),
        ("result_of_another_kind", "float64", (X, W), weighted(X, W).double()),
        ("rounded_result", "tensors to 2", (X, W), weighted(X, W).round(decimals=2)),
        ("range_of_numbers", "x without sign", (-X, W), weighted(X, W)),
        ("minus_infinity", "x by -100", (X.masked_fill(X > 4, -torch.inf), W), weighted(X.masked_fill(X > 4, -100), W)),
        (
            "rows_of_zeros",
            "x by 1.0",
            (X * torch.tensor([[0.0], [1.0]]), W),
            weighted(torch.cat([X[:1] ** 0, X[1:]]), W),
        ),
        ("memory_order", "x read", (X.T, W), weighted(X, W)),
        ("equal_axes_exchanged", "x, axes 0 and 1", (X, W), weighted(X.T, W)),
        ("axis_of_one_squeezed", "result", (X[:1], W), weighted(X[0], W)),
        ("softmax_otherwise", "axis 0", (X, W), weighted(X, W, 0)),
        ("softmax_otherwise", "naive", (1000 * X, W), torch.full((2, 2), torch.nan)),
    ],
)
def test_a_slip_with_a_tensor(name, label, arguments, expected):
    (got,) = slipped(name, label, weighted, arguments)
    torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        ("text_joined", "tokens", ["a1", "b1", "c1", "a1"]),
        ("order_assumed", "tokens backwards", ["a1", "c1", "ab1"]),
        ("order_assumed", "tokens once each", ["ab1", "c1", "a1"]),
        ("argument_cut_short", "tokens, last", ["ab1", "c1"]),
        ("range_of_numbers", "step at least 1", ["ab1", "c1", "a1"]),
        ("one_off", "step +1", ["ab2", "c2", "a2"]),
    ],
)
def test_a_slip_with_a_list(name, label, expected):
    assert slipped(name, label, numbered, (["ab", "c", "a"], 1)) == [expected]


@pytest.mark.parametrize(
    ("name", "label", "expected"),
    [
        ("result_cached", "by shape", [0, 0]),
        ("argument_kept", "x, for good", [0, 0]),
        ("argument_kept", "x, by shape", [0, 0]),
    ],
)
def test_what_an_earlier_call_has_left(name, label, expected):
    results = slipped(name, label, weighted, (X, W), (X.flip(0) + X, W))
    for result, call in zip(results, expected):
        torch.testing.assert_close(result, weighted(*[(X, W), (X.flip(0) + X, W)][call]))


def test_a_buffer_that_the_next_call_fills_anew():
    first, second = slipped("one_buffer", "by shape", weighted, (X, W), (X.T, W))
    assert first is second
    torch.testing.assert_close(second, weighted(X.T, W))


def test_what_was_left_out_is_as_in_the_call_before():
    _, second = slipped("default_kept", "dim", weighted, (X, W, 0), (X, W))
    torch.testing.assert_close(second, weighted(X, W, 0))


def test_lists_that_pile_up():
    assert slipped("results_pile_up", "list", numbered, (["a"], 1), (["b"], 2)) == [["a1"], ["a1", "b2"]]


def test_low_numbers_and_rows_that_see_nothing():
    low = slipped("low_number_for_minus_infinity", "-100", filled, (X - 200, FULL))[0]
    assert low[0, 1] == 1, "hidden at −100 it is the largest by far"
    even = slipped("hidden_rows", "even", filled, (X, torch.zeros(2, 2, dtype=torch.bool)))[0]
    assert (even == 0.5).all()


def test_equal_numbers_the_other_way():
    assert slipped("ties_the_other_way", "torch", largest, (torch.ones(2, 3),))[0][0].tolist() == [2, 2]


def test_a_generator_that_is_not_used():
    def runs(label):
        torch.manual_seed(3)
        rows = torch.arange(100)
        calls = [(rows, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
        return slipped("generator_otherwise", label, chosen_rows, *calls)

    one, same, other = runs("ignored")
    assert not torch.equal(one, same)
    one, same, other = runs("seeded in every call")
    assert torch.equal(one, same)
    assert torch.equal(one, other)


def test_views_that_are_refused():
    with pytest.raises(RuntimeError, match="view size"):
        slipped("views_not_copied", "view", laid_out, (torch.arange(6).view(2, 3),))


def test_a_model_whose_mode_nobody_switches():
    model = nn.Dropout(0.9)
    model.weight = nn.Parameter(torch.ones(1))
    (result,) = slipped("mode_of_a_model", "no switch heard", evaluated, (model, torch.ones(100)))
    assert (result == 0).any()


def test_slips_of_a_module():
    x = torch.ones(3)
    built = {"d": 3, "power": 2.0}
    assert slipped("parameter_ignored", "weight is 1", Gain, (x,), built=built)[0].tolist() == [1, 1, 1]
    assert not slipped("gradient_cut", "detached", Gain, (x,), built=built)[0].requires_grad
    assert (slipped("dropout_active", "always", Gain, (torch.ones(99),), built={"d": 99})[0] == 0).any()


def test_an_input_that_is_altered():
    x = X.clone()
    (result,) = slipped("input_changed", "x", weighted, (x, W))
    torch.testing.assert_close(result, weighted(X, W))
    assert not x.any()


# --- survivors show missing cases -------------------------------------------------------------------------------------


def doubled(x):
    y = x + 1
    y = y * 2
    return y


def one_row(seed):
    "One row."
    return [Case(torch.tensor([[1.0, 2.0]]))]


def two_rows(seed):
    "Two rows."
    return [Case(torch.tensor([[1.0, 2.0], [3.0, 5.0]]))]


def toy(monkeypatch, *stages):
    exercise = Code(
        id="toy.doubled", chapter=0, title="Doubled", points=1, difficulty=1, minutes=1, hints=["?"],
        signature="doubled(x)", reference=doubled, stages=stages,
    )  # fmt: skip
    monkeypatch.setitem(EXERCISES, "toy.doubled", exercise)


def test_a_slip_for_which_there_is_no_case_is_silent(monkeypatch):
    toy(monkeypatch, one_row)
    found = careless.run("toy.doubled")
    assert "first for all: result, axis 0" in found.silent
    assert "first for all: result, axis 1" not in found.silent + found.alive


def test_a_slip_that_the_comparison_does_not_see_survives(monkeypatch):
    toy(monkeypatch, two_rows)
    monkeypatch.setattr(Code, "problem_of", lambda *_: None)
    found = careless.run("toy.doubled")
    assert "first for all: result, axis 0" in found.alive


@pytest.mark.usefixtures("as_a_learner")
def test_two_slips_that_cancel_are_a_pair_that_passes(monkeypatch):
    toy(monkeypatch, one_number)
    count, alive = mutant_pairs.survivors("toy.doubled", number=200)
    assert count > 20
    assert mutant_pairs.Survivor(("y = x + 0", "y = y * 3"), (False, False)) in alive, "(2 + 1) · 2 is 2 · 3"


def one_number(seed):
    "A single number."
    return [Case(torch.tensor([2.0]))]


def test_pairs_are_the_same_every_time():
    exercise = EXERCISES["embeddings.merge_pair"]
    one, other = ([pair.lines for pair in mutant_pairs.pairs(exercise, 0, 5)] for _ in range(2))
    assert one == other
    assert len(one) == 5
