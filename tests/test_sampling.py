"""Sampling: draws against theory, and repeatable text: cached or not, streamed or not, alone or in a batch."""

import dataclasses
import math

import copies
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers import TopKLogitsWarper

from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderOnly
from course_lib.gpt import DecoderOnly
from course_lib.masks import padding_mask
from course_lib.sampling import generate, generate_simple, pad_left, sample_next_token

INF = math.inf
seeds = st.integers(0, 9999)


def random_logits(shape, seed, spread=2.0):
    return spread * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def logits_of(*probabilities):
    return torch.tensor(probabilities).log()


def seeded(seed):
    return torch.Generator().manual_seed(seed)


# --- the draw


def test_tokens_come_as_often_as_their_probability_says():
    logits = logits_of(0.5, 0.25, 0.15, 0.07, 0.03)
    n = 20_000
    draws = sample_next_token(logits.expand(n, 5), generator=torch.Generator().manual_seed(1))
    observed, expected = torch.bincount(draws, minlength=5), n * logits.exp()
    chi_square = ((observed - expected) ** 2 / expected).sum().item()
    assert chi_square < 18.5  # 99.9% of fair samplers stay below, with 4 degrees of freedom


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


@pytest.mark.parametrize("use_cache", [True, False])
def test_no_logits_are_computed_but_those_that_are_sampled_from(model, use_cache):
    ids = torch.randint(40, (2, 5), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        torch.testing.assert_close(model.eval()(ids, last_only=True), model(ids)[:, -1:])
    rows = []
    hook = model.output.register_forward_hook(lambda _, inputs, output: rows.append(tuple(output.shape)))
    text = generate(model, ids, 6, temperature=0, use_cache=use_cache)  # past max_seq_len as well
    hook.remove()
    assert rows == [(2, 1, 40)] * 6
    assert torch.equal(text, generate_simple(model, ids, 6, temperature=0))


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


@pytest.mark.parametrize("temperature", [0, 0.7, 1.0])
def test_the_short_function_writes_the_text_of_the_full_one_past_the_models_length_too(model, temperature):
    ids = torch.tensor([[1, 2], [3, 0]])
    longer = model.config.max_seq_len + 3
    short = generate_simple(model.train(), ids, longer, temperature, seeded(3))
    assert model.training
    assert short.shape == (2, 2 + longer)
    assert torch.equal(short, generate(model, ids, longer, temperature, generator=seeded(3), use_cache=False))
    assert torch.equal(short, generate(model, ids, longer, temperature, generator=seeded(3)))


def test_the_short_function_refuses_a_model_that_needs_a_source():
    with pytest.raises(ValueError, match="needs source_ids"):
        generate_simple(copies.translator(), torch.tensor([[1]]), 2)


def test_generated_tokens_follow_the_models_distribution(model):
    prompt = torch.tensor([[1, 2, 3]])
    n = 20_000
    text = generate(model, prompt.expand(n, 3), 1, top_k=5, generator=torch.Generator().manual_seed(2))
    expected = n * TopKLogitsWarper(5)(None, model.eval()(prompt)[:, -1]).softmax(-1)[0].detach()
    observed = torch.bincount(text[:, 3], minlength=40)
    possible = expected > 0
    assert observed[~possible].sum() == 0
    chi_square = ((observed - expected)[possible] ** 2 / expected[possible]).sum().item()
    assert chi_square < 18.5  # 99.9% of fair samplers stay below, with 4 degrees of freedom


def test_generation_follows_the_dtype_of_its_prompt(model):
    assert generate(model, torch.tensor([[1]], dtype=torch.int32), 2).dtype == torch.int32


@pytest.fixture
def translator():
    return copies.translator()


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"temperature": -0.1}, "temperature must be a finite number ≥ 0"),
            ({"top_k": 0}, "top_k must be a whole number of at least 1"),
            ({"top_p": 0.0}, r"top_p must be in \(0, 1\]"),
            ({"min_p": 1.5}, r"min_p must be in \(0, 1\]"),
        ],
    )
    def test_a_wrong_setting_is_named_before_the_first_step(self, settings, message):
        for use in (
            lambda: sample_next_token(torch.randn(5), **settings),
            lambda: generate(Script(), torch.tensor([[1]]), 0, **settings),
            lambda: generate(Script(), torch.tensor([[1]]), 3, stream=True, **settings),
        ):
            with pytest.raises(ValueError, match=message):
                use()

    @pytest.mark.parametrize("stream", [False, True])
    def test_a_wrong_penalty_is_named_before_the_first_step(self, stream):
        with pytest.raises(ValueError, match=r"repetition_penalty must be a positive number, got 0"):
            generate(Script(), torch.tensor([[1]]), 3, repetition_penalty=0, stream=stream)

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
        with pytest.raises(ValueError, match="max_new_tokens must be a whole number from 0"):
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

    @pytest.mark.parametrize("prompts", [[], [[1, 2], []], [[1.5]], [[[1]]]])
    def test_prompts_without_ids_cannot_be_padded(self, prompts):
        with pytest.raises(ValueError, match="prompts must be lists of ids, at least one id in each"):
            pad_left(prompts, 0)

    def test_padding_is_an_id(self):
        with pytest.raises(ValueError, match=r"pad_id must be a whole number, got 0\.5"):
            pad_left([[1], [2, 3]], 0.5)
        with pytest.raises(ValueError, match="ids contain -1"):
            generate(Script(), *pad_left([[1], [2, 3]], -1)[:1], 3)

    @pytest.mark.parametrize(
        ("left_padding", "message"),
        [
            ([0], r"left_padding must have shape \(2,\), one row per prompt, got \(1,\)"),
            ([0, 2], r"left_padding must leave at least one of T=2 tokens: give 0 to 1, got \[0, 2\]"),
            ([-1, 0], "left_padding must leave at least one"),
        ],
    )
    def test_left_padding_must_fit_the_prompts(self, model, left_padding, message):
        with pytest.raises(ValueError, match=message):
            generate(model, torch.tensor([[1, 2], [3, 4]]), 3, left_padding=torch.tensor(left_padding))

    def test_a_cache_is_not_asked_of_a_model_that_has_none(self):
        with pytest.raises(ValueError, match=r"use_cache=True needs model.new_cache\(\), which Script does not have"):
            generate(Script(), torch.tensor([[1]]), 3, use_cache=True)

    def test_a_reader_cannot_write(self):
        config = TransformerConfig(40, 8, n_heads=2, n_layers=1, max_seq_len=8, family="encoder")
        with pytest.raises(ValueError, match="an encoder does not predict a next token"):
            generate(EncoderOnly(config), torch.tensor([[1]]), 3)

    def test_a_source_belongs_to_a_translator_and_only_there(self, model, translator):
        ids, mask = torch.tensor([[1], [2]]), padding_mask([1, 1], 1)
        for wrong in (
            lambda: generate(model, ids, 3, source_ids=ids),
            lambda: generate(model, ids, 3, source_mask=mask),
            lambda: generate(translator, ids, 3),
            lambda: generate(translator, ids, 3, source_mask=mask),
        ):
            with pytest.raises(ValueError, match="an encoder-decoder needs source_ids, and other models"):
                wrong()
        with pytest.raises(ValueError, match=r"source_ids must have shape \(2, 1\), .* got \(1, 1\)"):
            generate(translator, ids, 3, source_ids=ids[:1])
        with pytest.raises(ValueError, match=r"source_mask must have shape \(2, 1, 1, 1\), .* got \(1,\)"):
            generate(translator, ids, 3, source_ids=ids, source_mask=torch.tensor([True]))
        with pytest.raises(ValueError, match="left_padding is only for a decoder"):
            generate(translator, ids, 3, source_ids=ids, left_padding=torch.tensor([0, 0]))

    def test_lists_are_no_tensors(self, model, translator):
        ids = torch.tensor([[1], [2]])
        for wrong, name in (
            (lambda: generate(model, [[1], [2]], 3), "ids"),
            (lambda: generate(model, ids, 3, left_padding=[0, 0]), "left_padding"),
            (lambda: generate(translator, ids, 3, source_ids=[[1], [2]]), "source_ids"),
            (lambda: generate(translator, ids, 3, source_ids=ids, source_mask=[[[[True]]]] * 2), "source_mask"),
            (lambda: sample_next_token([1.0, 2.0]), "logits"),
        ):
            with pytest.raises(TypeError, match=rf"^{name} must be a tensor, got list: .*torch\.tensor\({name}\)"):
                wrong()
