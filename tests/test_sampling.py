"""Sampling: filters against transformers' processors, distributions against theory, and text that can be repeated."""

import dataclasses
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from course_lib.config import TransformerConfig
from course_lib.models import DecoderOnly
from course_lib.sampling import (
    generate,
    min_p_filter,
    next_token_distribution,
    sample_next_token,
    top_k_filter,
    top_p_filter,
)

INF = math.inf
shapes = st.tuples(st.integers(1, 3), st.integers(1, 40))
seeds = st.integers(0, 9999)
shares = st.floats(0.01, 1.0)


def random_logits(shape, seed, spread=2.0):
    return spread * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def logits_of(*probabilities):
    return torch.tensor(probabilities).log()


# --- filters against transformers


@given(shape=shapes, k=st.integers(1, 50), seed=seeds)
def test_top_k_keeps_what_transformers_keeps(shape, k, seed):
    logits = random_logits(shape, seed)
    assert torch.equal(top_k_filter(logits, k), TopKLogitsWarper(k)(None, logits))


@given(shape=shapes, p=shares, seed=seeds)
def test_top_p_keeps_what_transformers_keeps(shape, p, seed):
    logits = random_logits(shape, seed)
    assert torch.equal(top_p_filter(logits, p), TopPLogitsWarper(p)(None, logits))


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
    for settings in ({}, {"temperature": 0}, {"top_k": 4}, {"top_p": 0.99}, {"min_p": 0.01}, {"temperature": 1e-3}):
        distribution = next_token_distribution(logits, **settings)
        assert distribution[[0, 3]].tolist() == [0.0, 0.0]
        assert distribution.sum().item() == pytest.approx(1)


@pytest.mark.parametrize(("dtype", "expected"), [(torch.float16, torch.float32), (torch.float64, torch.float64)])
def test_probabilities_are_at_least_float32(dtype, expected):
    assert next_token_distribution(torch.randn(3, 5).to(dtype), top_p=0.9, min_p=0.1).dtype == expected


# --- the draw


def test_tokens_come_as_often_as_their_probability_says():
    logits = logits_of(0.5, 0.25, 0.15, 0.07, 0.03)
    n = 20_000
    draws = sample_next_token(logits.expand(n, 5), generator=torch.Generator().manual_seed(1))
    observed, expected = torch.bincount(draws, minlength=5), n * logits.exp()
    chi_square = ((observed - expected) ** 2 / expected).sum().item()
    assert chi_square < 18.5  # 99.9 % of fair samplers stay below, with 4 degrees of freedom


@pytest.mark.parametrize("u", [0.0, 1 - 2**-53])
def test_the_extreme_draws_land_on_tokens_that_are_possible(monkeypatch, u):
    monkeypatch.setattr(torch, "rand", lambda shape, **kwargs: torch.full(shape, u, dtype=torch.float64))
    for seed in range(200):
        logits = random_logits((1, 7), seed)
        logits[0, [0, 6]] = -INF
        assert sample_next_token(logits).item() == (1 if u == 0 else 5)


def test_the_draw_is_the_inverse_of_the_running_sum(monkeypatch):
    logits = logits_of(0.5, 0.25, 0.25)
    for u, token in ((0.49, 0), (0.51, 1), (0.74, 1), (0.76, 2)):
        monkeypatch.setattr(torch, "rand", lambda shape, u=u, **kwargs: torch.full(shape, u, dtype=torch.float64))
        assert sample_next_token(logits).item() == token


def test_a_small_change_of_the_logits_rarely_changes_the_text():
    logits = random_logits((2000, 50), 3)
    draws = [
        sample_next_token(z, generator=torch.Generator().manual_seed(9)) for z in (logits, logits + 1e-6 * logits.cos())
    ]
    assert (draws[0] != draws[1]).sum() <= 1


@given(leading=st.lists(st.integers(1, 3), max_size=3), seed=seeds)
def test_one_id_per_row_whatever_the_leading_shape(leading, seed):
    logits = random_logits((*leading, 6), seed)
    tokens = sample_next_token(logits, temperature=0)
    assert tokens.shape == tuple(leading)
    assert torch.equal(tokens, logits.argmax(-1))


def test_sampling_uses_and_advances_only_the_generator_it_is_given():
    logits, generator = torch.zeros(4, 1000), torch.Generator().manual_seed(5)
    state = torch.get_rng_state()
    first, second = (sample_next_token(logits, generator=generator) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(first, second)
    assert torch.equal(sample_next_token(logits, generator=generator.manual_seed(5)), first)


# --- generation


class Script(nn.Module):
    """A model that counts: after id i comes i + 1 (mod V) with near certainty. It notes what it was shown."""

    def __init__(self, vocab_size=10, max_seq_len=4):
        super().__init__()
        self.config = TransformerConfig(
            vocab_size=vocab_size, d_model=1, n_heads=1, n_layers=1, max_seq_len=max_seq_len
        )
        self.unused = nn.Parameter(torch.zeros(1))
        self.seen = []

    def forward(self, ids):
        self.seen.append((ids.tolist(), self.training, torch.is_grad_enabled()))
        return 50.0 * nn.functional.one_hot((ids + 1) % self.config.vocab_size, self.config.vocab_size) + self.unused


@pytest.fixture
def model():
    config = TransformerConfig(vocab_size=40, d_model=16, n_heads=2, n_layers=2, max_seq_len=8, dropout=0.3)
    model = DecoderOnly(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def test_each_row_is_continued_and_keeps_its_prompt():
    assert generate(Script(), torch.tensor([[3, 4], [7, 8]]), 3).tolist() == [[3, 4, 5, 6, 7], [7, 8, 9, 0, 1]]
    assert generate(Script(), torch.tensor([[3]]), 0).tolist() == [[3]]


def test_the_model_sees_at_most_its_last_max_seq_len_tokens():
    script = Script(max_seq_len=4)
    generate(script, torch.tensor([[1, 2, 3]]), 3)
    assert [ids for ids, *_ in script.seen] == [[[1, 2, 3]], [[1, 2, 3, 4]], [[2, 3, 4, 5]]]
    script.seen.clear()
    generate(script, torch.tensor([[1, 2, 3, 4, 5, 6]]), 1)
    assert script.seen[0][0] == [[3, 4, 5, 6]]


def test_the_model_runs_without_dropout_and_gradients_and_is_left_as_it_was(model):
    script = Script().train()
    generate(script, torch.tensor([[1]]), 2)
    assert [modes for _, *modes in script.seen] == [[False, False]] * 2
    assert script.training
    model.train()
    model.blocks[1].eval()
    modes = [module.training for module in model.modules()]
    texts = [generate(model, torch.tensor([[1, 2]]), 20, temperature=0) for _ in range(2)]
    assert torch.equal(*texts)
    assert [module.training for module in model.modules()] == modes


def test_between_the_steps_of_a_stream_the_reader_works_in_its_own_mode():
    script = Script().train()
    for _ in generate(script, torch.tensor([[1]]), 3, stream=True):
        assert script.training
        assert torch.is_grad_enabled()


def test_a_row_that_has_stopped_is_filled_with_its_stop_id_until_all_have():
    text = generate(Script(), torch.tensor([[1], [3], [5]]), 9, stop=[4, 7])
    assert text.tolist() == [[1, 2, 3, 4], [3, 4, 4, 4], [5, 6, 7, 7]]
    assert generate(Script(), torch.tensor([[1]]), 2, stop=4).tolist() == [[1, 2, 3]]


@pytest.mark.parametrize("stop", [2, [2], {2}, (2, 9)])
def test_stop_is_an_id_or_a_collection(stop):
    assert generate(Script(), torch.tensor([[0]]), 5, stop=stop).tolist() == [[0, 1, 2]]


@pytest.mark.parametrize("stop", [None, (), []])
def test_without_a_stop_id_all_tokens_are_made(stop):
    assert generate(Script(), torch.tensor([[0]]), 5, stop=stop).shape == (1, 6)


def test_a_stop_id_in_the_prompt_does_not_stop():
    assert generate(Script(), torch.tensor([[4, 1]]), 2, stop=4).tolist() == [[4, 1, 2, 3]]
    assert generate(Script(), torch.tensor([[1, 4]]), 2, stop=4).tolist() == [[1, 4, 5, 6]]


def test_zero_is_a_stop_id_like_any_other():
    assert generate(Script(), torch.tensor([[8]]), 5, stop=0).tolist() == [[8, 9, 0]]


def test_a_stream_yields_the_same_ids_step_by_step(model):
    prompts = torch.tensor([[1, 2], [3, 4]])
    settings = {"temperature": 1.2, "top_k": 10, "stop": [5, 6]}
    whole = generate(model, prompts, 15, generator=torch.Generator().manual_seed(3), **settings)
    steps = list(generate(model, prompts, 15, generator=torch.Generator().manual_seed(3), stream=True, **settings))
    assert all(step.shape == (2,) for step in steps)
    assert torch.equal(torch.stack(steps, dim=1), whole[:, 2:])


def test_the_same_seed_gives_the_same_text_and_another_seed_another(model):
    texts = [
        generate(model, torch.tensor([[1]]), 30, generator=torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    ]
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])


def test_greedy_text_is_the_argmax_at_every_step(model):
    text = generate(model, torch.tensor([[1, 2], [3, 4]]), 12, temperature=0)
    model.eval()
    for t in range(2, 14):
        logits = model(text[:, max(0, t - 8) : t])[:, -1]
        assert torch.equal(logits.argmax(-1), text[:, t])


def test_generated_tokens_follow_the_models_distribution(model):
    prompt = torch.tensor([[1, 2, 3]])
    n = 20_000
    text = generate(model, prompt.expand(n, 3), 1, top_k=5, generator=torch.Generator().manual_seed(2))
    expected = n * TopKLogitsWarper(5)(None, model.eval()(prompt)[:, -1]).softmax(-1)[0].detach()
    observed = torch.bincount(text[:, 3], minlength=40)
    possible = expected > 0
    assert observed[~possible].sum() == 0
    chi_square = ((observed - expected)[possible] ** 2 / expected[possible]).sum().item()
    assert chi_square < 18.5  # 99.9 % of fair samplers stay below, with 4 degrees of freedom


def test_generation_follows_the_dtype_of_its_prompt(model):
    assert generate(model, torch.tensor([[1]], dtype=torch.int32), 2).dtype == torch.int32


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
        for use in (
            lambda **s: next_token_distribution(torch.randn(5), **s),
            lambda **s: sample_next_token(torch.randn(5), **s),
            lambda **s: generate(Script(), torch.tensor([[1]]), 0, **s),
            lambda **s: generate(Script(), torch.tensor([[1]]), 3, stream=True, **s),  # before the first step
            lambda **s: next_token_distribution(torch.randn(5), **{"temperature": 0, **s}),
        ):
            with pytest.raises(ValueError, match=message):
                use(**settings)

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
            sample_next_token,
            lambda logits: top_k_filter(logits, 1),
            lambda logits: top_p_filter(logits, 0.5),
            lambda logits: min_p_filter(logits, 0.5),
        ],
    )
    def test_logits_without_a_distribution_are_refused(self, use, logits, message):
        with pytest.raises(ValueError, match=message):
            use(torch.tensor(logits))

    @pytest.mark.parametrize(
        ("ids", "message"),
        [
            (torch.zeros(1, 0, dtype=torch.long), r"at least one token each, got shape \(1, 0\)"),
            (torch.zeros(0, 3, dtype=torch.long), "at least one token"),
            (torch.zeros(3, dtype=torch.long), r"\(B, T\)"),
            (torch.tensor([[1, 10]]), "ids contain 10, .* 0 to 9"),
            (torch.tensor([[1.0]]), "whole numbers"),
        ],
    )
    @pytest.mark.parametrize("stream", [False, True])
    def test_a_prompt_that_makes_no_sense_is_refused_at_once(self, ids, message, stream):
        with pytest.raises(ValueError, match=message):
            generate(Script(), ids, 3, stream=stream)

    @pytest.mark.parametrize("n", [-1, 1.5])
    def test_the_number_of_tokens_must_be_a_whole_number(self, n):
        with pytest.raises(ValueError, match="max_new_tokens must be a whole number ≥ 0"):
            generate(Script(), torch.tensor([[1]]), n)

    @pytest.mark.parametrize("stop", [10, -1, [1, 10], [2.5]])
    def test_a_stop_id_must_be_in_the_vocabulary(self, stop):
        with pytest.raises(ValueError, match="stop ids"):
            generate(Script(), torch.tensor([[1]]), 3, stop=stop)

    def test_a_model_that_has_diverged_is_named(self):
        script = Script()
        nn.init.constant_(script.unused, math.nan)
        with pytest.raises(ValueError, match="logits contain NaN: the model"):
            generate(script, torch.tensor([[1]]), 3)

    def test_a_prompt_over_max_seq_len_is_cropped_rather_than_refused(self):
        config = dataclasses.replace(Script().config, max_seq_len=3)
        text = generate(DecoderOnly(config), torch.tensor([[1, 2, 3, 4, 5]]), 2)
        assert text.shape == (1, 7)
