"""Filters: against transformers' processors on random logits, by hand, and the distribution against theory."""

import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from course_lib.sampling import (
    log_probabilities,
    min_p_filter,
    next_token_distribution,
    penalize_repetition,
    top_k_filter,
    top_p_filter,
)

INF = math.inf
shapes = st.tuples(st.integers(1, 3), st.integers(1, 40))
seeds = st.integers(0, 9999)
shares = st.floats(0.01, 1.0)
penalties = st.floats(0.2, 5.0)


def random_logits(shape, seed, spread=2.0):
    return spread * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def logits_of(*probabilities):
    return torch.tensor(probabilities).log()


# --- filters against transformers


@settings(max_examples=100)
@given(shape=shapes, k=st.integers(1, 50), seed=seeds)
def test_top_k_keeps_what_transformers_keeps(shape, k, seed):
    logits = random_logits(shape, seed)
    assert torch.equal(top_k_filter(logits, k), TopKLogitsWarper(k)(None, logits))


@settings(max_examples=100)
@given(shape=shapes, p=shares, seed=seeds)
def test_top_p_keeps_what_transformers_keeps(shape, p, seed):
    logits = random_logits(shape, seed)
    assert torch.equal(top_p_filter(logits, p), TopPLogitsWarper(p)(None, logits))


@settings(max_examples=100)
@given(shape=shapes, p=shares, seed=seeds)
def test_min_p_keeps_what_transformers_keeps(shape, p, seed):
    logits = random_logits(shape, seed)
    assert torch.equal(min_p_filter(logits, p), MinPLogitsWarper(p)(None, logits))


@given(shape=shapes, temperature=st.floats(0.05, 20), k=st.integers(1, 50), p=shares, floor=shares, seed=seeds)
def test_the_filters_apply_in_the_order_temperature_top_k_top_p_min_p(shape, temperature, k, p, floor, seed):
    logits = random_logits(shape, seed).double()
    expected = logits
    for warper in (
        TemperatureLogitsWarper(temperature),
        TopKLogitsWarper(k),
        TopPLogitsWarper(p),
        MinPLogitsWarper(floor),
    ):
        expected = warper(None, expected)
    torch.testing.assert_close(next_token_distribution(logits, temperature, k, p, floor), expected.softmax(-1))


# --- ties and repetitions against transformers


@settings(max_examples=100)
@given(shape=shapes, k=st.integers(1, 50), p=shares, seed=seeds)
def test_where_tokens_tie_as_much_is_kept_as_transformers_keeps(shape, k, p, seed):
    logits = random_logits(shape, seed).round()
    assert torch.equal(top_k_filter(logits, k), TopKLogitsWarper(k)(None, logits))
    assert torch.equal(min_p_filter(logits, p), MinPLogitsWarper(p)(None, logits))
    # top-p cuts through a tie: which of the equals stay is each library's own choice, how many is not. Except where
    # the sum meets p to within rounding: there we keep the smaller set, and transformers what the rounding says.
    sums = logits.double().softmax(-1).sort(-1, descending=True).values.cumsum(-1)
    assume(((sums - p).abs() > 1e-5).all())
    kept, expected = top_p_filter(logits, p), TopPLogitsWarper(p)(None, logits)
    assert torch.equal(kept.sort(-1).values, expected.sort(-1).values)


@settings(max_examples=100)
@given(shape=shapes, T=st.integers(1, 60), penalty=penalties, seed=seeds)
def test_repetition_is_penalized_as_transformers_does(shape, T, penalty, seed):
    logits = random_logits(shape, seed)
    ids = torch.randint(shape[1], (shape[0], T), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(
        penalize_repetition(logits, ids, penalty), RepetitionPenaltyLogitsProcessor(penalty)(ids, logits)
    )


def test_a_penalty_lowers_logits_of_either_sign_once_however_often_the_token_occurs():
    logits = torch.tensor([3.0, -3.0, 0.0, 3.0, -INF])
    penalized = penalize_repetition(logits, torch.tensor([0, 1, 2, 0, 4]), 1.5)
    assert penalized.tolist() == [2.0, -4.5, 0.0, 3.0, -INF]
    assert logits[0] == 3.0


@given(shape=shapes, seed=seeds)
def test_log_probabilities_are_the_logarithm_of_the_distribution(shape, seed):
    logits = random_logits(shape, seed).double()
    torch.testing.assert_close(log_probabilities(logits), next_token_distribution(logits).log())


def test_log_probabilities_reach_below_what_a_probability_can_say():
    assert log_probabilities(torch.tensor([0.0, -500.0])).tolist() == [0.0, -500.0]


# --- filters by hand


def test_top_p_keeps_the_token_that_crosses_p():
    logits = logits_of(0.15, 0.5, 0.05, 0.3)
    assert (top_p_filter(logits, 0.6) > -INF).tolist() == [False, True, False, True]
    assert (top_p_filter(logits, 0.4) > -INF).tolist() == [False, True, False, False]
    assert (top_p_filter(logits, 0.96) > -INF).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_sum_that_reaches_p_exactly_is_enough_whatever_the_rounding(dtype):
    for V in range(2, 60):
        for n in range(1, V):
            assert (top_p_filter(torch.zeros(V, dtype=dtype), n / V) > -INF).sum() == n
    assert (top_p_filter(logits_of(0.5, 0.25, 0.125, 0.125), 0.75) > -INF).tolist() == [True, True, False, False]


def test_top_p_of_one_keeps_even_the_least_probable_token():
    logits = torch.cat([torch.zeros(10_000), torch.tensor([-60.0])])
    assert (top_p_filter(logits, 1.0) > -INF).all()


@given(shape=shapes, seed=seeds)
def test_top_p_never_empties_the_set(shape, seed):
    kept = top_p_filter(random_logits(shape, seed), 1e-9) > -INF
    assert (kept.sum(-1) == 1).all()


def test_tokens_that_tie_with_the_kth_stay():
    logits = torch.tensor([1.0, 3.0, 2.0, 2.0])
    assert top_k_filter(logits, 2).tolist() == [-INF, 3.0, 2.0, 2.0]


def test_more_tokens_than_there_are_keeps_all():
    logits = random_logits((2, 5), 0)
    assert torch.equal(top_k_filter(logits, 5), logits)
    assert torch.equal(top_k_filter(logits, 6), logits)


def test_a_token_at_exactly_the_share_min_p_stays_whatever_the_rounding():
    for hundredths in range(1, 100):
        logits = logits_of(0.4, 0.4 * hundredths / 100)
        assert (min_p_filter(logits, hundredths / 100) > -INF).all()


def test_min_p_is_a_share_of_the_largest_probability():
    logits = logits_of(0.4, 0.2, 0.1, 0.04, 0.26)
    assert (min_p_filter(logits, 0.25) > -INF).tolist() == [True, True, True, False, True]  # 0.1 = 0.25 · 0.4 stays
    assert (min_p_filter(logits, 1.0) > -INF).tolist() == [True, False, False, False, False]


@pytest.mark.parametrize(
    "keep", [lambda z: top_k_filter(z, 2), lambda z: top_p_filter(z, 0.9), lambda z: min_p_filter(z, 0.3)]
)
def test_filters_take_any_leading_shape_and_leave_their_input_alone(keep):
    logits = random_logits((2, 3, 4, 7), 5)
    before = logits.clone()
    filtered = keep(logits)
    assert torch.equal(logits, before)
    kept = filtered > -INF
    assert torch.equal(filtered[kept], logits[kept])
    assert torch.equal(filtered[1, 2, 3], keep(logits[1, 2, 3]))


# --- the distribution


@given(shape=shapes, temperature=st.floats(0.05, 20), seed=seeds)
def test_temperature_divides_the_logits(shape, temperature, seed):
    logits = random_logits(shape, seed).double()
    exponentials = (logits / temperature).exp()
    torch.testing.assert_close(
        next_token_distribution(logits, temperature), exponentials / exponentials.sum(-1, keepdim=True)
    )


@given(shape=shapes, seed=seeds)
def test_top_k_of_all_top_p_of_one_and_no_filter_are_the_same(shape, seed):
    logits = random_logits(shape, seed)
    plain = next_token_distribution(logits)
    torch.testing.assert_close(plain, logits.softmax(-1))
    assert torch.equal(next_token_distribution(logits, top_k=shape[-1]), plain)
    assert torch.equal(next_token_distribution(logits, top_p=1.0), plain)


@given(shape=shapes, temperature=st.sampled_from([0, 0.0, 1e-4, 1e-30, 2e-38, 1e-300, 5e-324]), seed=seeds)
def test_a_temperature_towards_zero_is_the_argmax(shape, temperature, seed):
    logits = random_logits(shape, seed, spread=20.0)
    expected = nn.functional.one_hot(logits.argmax(-1), shape[-1]).float()
    torch.testing.assert_close(next_token_distribution(logits, temperature), expected)


def test_a_temperature_towards_infinity_is_uniform_over_what_is_allowed():
    logits = torch.tensor([5.0, -3.0, -INF, 1.0])
    for temperature in (1e9, 1e300):
        distribution = next_token_distribution(logits, temperature)
        torch.testing.assert_close(distribution, torch.tensor([1 / 3, 1 / 3, 0.0, 1 / 3]))


def test_greedy_takes_the_first_of_equal_logits():
    assert next_token_distribution(torch.tensor([1.0, 4.0, 4.0]), temperature=0).tolist() == [0.0, 1.0, 0.0]


def test_a_forbidden_token_keeps_probability_zero_under_every_filter():
    logits = torch.tensor([-INF, 1.0, 2.0, -INF])
    for knobs in ({}, {"temperature": 0}, {"top_k": 4}, {"top_p": 0.99}, {"min_p": 0.01}, {"temperature": 1e-3}):
        distribution = next_token_distribution(logits, **knobs)
        assert distribution[[0, 3]].tolist() == [0.0, 0.0]
        assert distribution.sum().item() == pytest.approx(1)


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float16, torch.float32), (torch.float64, torch.float64)])
def test_probabilities_are_at_least_float32(dtype, expected):
    assert next_token_distribution(torch.randn(3, 5).to(dtype), top_p=0.9, min_p=0.1).dtype == expected


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"temperature": -0.1}, "temperature must be a finite number ≥ 0 .* got -0.1"),
            ({"temperature": math.nan}, "temperature must be"),
            ({"temperature": INF}, "temperature must be"),
            ({"temperature": "hot"}, "temperature must be"),
            ({"top_k": 0}, "top_k must be a whole number of at least 1, got 0"),
            ({"top_k": 2.5}, "top_k must be"),
            ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
            ({"top_p": 1.01}, "top_p must be"),
            ({"top_p": -0.5}, "top_p must be"),
            ({"top_p": math.nan}, "top_p must be"),
            ({"min_p": 0}, r"min_p must be in \(0, 1\], got 0"),
            ({"min_p": 1.5}, "min_p must be"),
        ],
    )
    def test_a_wrong_setting_is_named_even_when_greedy_would_not_need_it(self, settings, message):
        for greedy in ({}, {"temperature": 0}):
            with pytest.raises(ValueError, match=message):
                next_token_distribution(torch.randn(5), **{**greedy, **settings})

    @pytest.mark.parametrize("penalty", [0, -1.5, INF, math.nan, "strong"])
    def test_a_penalty_must_be_positive(self, penalty):
        with pytest.raises(ValueError, match="repetition_penalty must be a positive number"):
            penalize_repetition(torch.randn(5), torch.tensor([1]), penalty)

    def test_ids_that_do_not_fit_the_logits_are_refused(self):
        with pytest.raises(ValueError, match=r"ids contain 5, .* 0 to 4"):
            penalize_repetition(torch.randn(5), torch.tensor([1, 5]), 2.0)
        with pytest.raises(ValueError, match=r"got \(1, 3\) and \(2, 5\)"):
            penalize_repetition(torch.randn(2, 5), torch.tensor([[1, 2, 3]]), 2.0)

    @pytest.mark.parametrize(
        ("logits", "message"),
        [
            ([1.0, math.nan], "contain NaN"),
            ([-INF, math.nan], "contain NaN"),
            ([1.0, INF], r"contain \+inf"),
            ([-INF, -INF], "every token is forbidden"),
            ([[1.0, 2.0], [-INF, -INF]], "every token is forbidden"),
            ([], r"shape \(…, V\), got shape \(0,\)"),
            (3.0, r"got shape \(\)"),
            ([1, 2], "torch.int64"),
        ],
    )
    @pytest.mark.parametrize(
        "use",
        [
            next_token_distribution,
            log_probabilities,
            lambda logits: top_k_filter(logits, 1),
            lambda logits: top_p_filter(logits, 0.5),
            lambda logits: min_p_filter(logits, 0.5),
            lambda logits: penalize_repetition(logits, torch.tensor([0]), 1.5),
        ],
    )
    def test_logits_without_a_distribution_are_refused(self, use, logits, message):
        with pytest.raises(ValueError, match=message):
            use(torch.tensor(logits))

    def test_lists_are_no_tensors(self):
        for wrong, name in (
            (lambda: next_token_distribution([1.0, 2.0]), "logits"),
            (lambda: log_probabilities([1.0, 2.0]), "logits"),
            (lambda: top_k_filter([1.0, 2.0], 1), "logits"),
            (lambda: penalize_repetition(torch.randn(3), [1], 2.0), "ids"),
        ):
            with pytest.raises(TypeError, match=rf"^{name} must be a tensor, got list: .*torch\.tensor\({name}\)"):
                wrong()
