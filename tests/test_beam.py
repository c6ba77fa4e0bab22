"""Beam search: against transformers on random models, against trying everything, and by hand."""

import itertools
import re

import copies
import pytest
import torch
from helpers import seeds
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib.beam import beam_search
from course_lib.config import TransformerConfig
from course_lib.encoder_decoder import EncoderDecoder
from course_lib.gpt import DecoderOnly
from course_lib.masks import padding_mask
from course_lib.sampling import generate, pad_left

PROMPTS = [[5, 6, 7, 8, 9], [10, 11], [12, 13, 14, 15, 16, 17, 18]]
LENGTH_PENALTIES = [-0.5, 0.0, 1.0, 2.0]


class Chain(nn.Module):
    """A model in which the next token depends on the last alone: `probabilities` (V, V). It counts its calls."""

    def __init__(self, probabilities):
        super().__init__()
        V = len(probabilities)
        self.config = TransformerConfig(vocab_size=V, d_model=1, n_heads=1, n_layers=1, max_seq_len=9)
        self.logits = torch.tensor(probabilities).log()
        self.calls = 0

    def forward(self, ids):
        self.calls += 1
        return self.logits[ids]


def until_stop(row, stops):
    """The ids of a text up to its first stop id."""
    end = next((i + 1 for i, token in enumerate(row) if token in (stops or ())), len(row))
    return row[:end]


def log_p_of(model, prompt, new, source=None):
    """ln p of the new tokens (N, n) after the prompt, summed: (N,). Everything is read at once, without a cache."""
    text = torch.cat([torch.tensor([prompt] * len(new), device=new.device), new], dim=1)
    with torch.no_grad():
        logits = model(text) if source is None else model(source.expand(len(new), -1), text)
    log_p = logits[:, len(prompt) - 1 : -1].log_softmax(-1)  # (N, n, V)
    return log_p.gather(-1, new[..., None]).sum((1, 2))


@pytest.fixture(params=[{}, {"positions": "rope", "n_kv_heads": 2}], ids=["learned", "rope, grouped heads"])
def tiny(request, device):
    sizes = {"vocab_size": 4, "d_model": 16, "n_heads": 4, "n_layers": 2, "max_seq_len": 12, "tie_weights": False}
    return (
        copies.drawn(DecoderOnly(TransformerConfig(**sizes, **request.param)), seed=1, spread=0.3)
        .to(device)
        .eval()
        .double()
    )


@pytest.fixture
def translator():
    sizes = {"vocab_size": 4, "d_model": 16, "n_heads": 4, "n_layers": 2, "max_seq_len": 12, "tie_weights": False}
    config = TransformerConfig(**sizes, family="encoder-decoder", norm_position="post", positions="sinusoidal")
    return copies.drawn(EncoderDecoder(config), seed=2, spread=0.3).eval().double()


# --- against transformers


# Float64, because a search in float32 takes another path where two sums agree to their last digit.
@pytest.mark.parametrize("make", [copies.gpt2, copies.llama])
@pytest.mark.parametrize("length_penalty", LENGTH_PENALTIES)
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.proof) for seed in (2, 3))])
def test_the_best_beam_is_that_of_transformers(make, length_penalty, seed):
    ours, theirs = (model.double() for model in make(seed))
    ids, left_padding = pad_left(PROMPTS, pad_id=0)
    real = (torch.arange(7) >= left_padding[:, None]).long()
    for n_beams, stops in [(2, [3]), (3, [3, 7, 20]), (5, None)]:
        found, scores = beam_search(ours, ids, 12, n_beams, stops, length_penalty, left_padding=left_padding)
        expected = theirs.generate(
            ids, attention_mask=real, pad_token_id=0, max_new_tokens=12, do_sample=False, num_beams=n_beams,
            eos_token_id=stops, length_penalty=length_penalty, early_stopping="never",
            return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
        for row, reference in zip(found[:, 7:].tolist(), expected.sequences[:, 7:].tolist()):
            assert until_stop(row, stops) == until_stop(reference, stops)
        torch.testing.assert_close(scores, expected.sequences_scores.double(), atol=1e-4, rtol=1e-5)


# --- against trying everything


def best_of_all(model, prompt, n, stop, length_penalty, source=None, device="cpu"):
    """Score every text of up to n tokens that ends at its first stop id, or after n tokens."""
    texts = {tuple(until_stop(text, [stop])) for text in itertools.product(range(4), repeat=n)}
    scored = []
    for length in range(1, n + 1):
        new = torch.tensor([text for text in texts if len(text) == length], device=device)
        scored += zip(log_p_of(model, prompt, new, source) / length**length_penalty, new.tolist())
    return max(scored)


@pytest.mark.parametrize("length_penalty", LENGTH_PENALTIES)
def test_with_enough_beams_it_finds_the_best_of_all_texts(tiny, device, length_penalty):
    prompts = [[1, 2], [2, 0], [1, 1]]
    found, scores = beam_search(
        tiny, torch.tensor(prompts, device=device), 4, 4**4, stop=3, length_penalty=length_penalty
    )
    for prompt, row, score in zip(prompts, found.tolist(), scores):
        expected, text = best_of_all(tiny, prompt, 4, 3, length_penalty, device=device)
        assert until_stop(row[2:], [3]) == text
        torch.testing.assert_close(score, expected)


@pytest.mark.parametrize("length_penalty", LENGTH_PENALTIES)
def test_with_enough_beams_it_finds_the_best_of_all_translations(translator, length_penalty):
    source = torch.tensor([[2, 1, 2], [1, 1, 2]])
    found, scores = beam_search(
        translator, torch.tensor([[0], [0]]), 4, 4**4, stop=3, length_penalty=length_penalty, source_ids=source
    )
    for row, score, one in zip(found.tolist(), scores, source):
        expected, text = best_of_all(translator, [0], 4, 3, length_penalty, one)
        assert until_stop(row[1:], [3]) == text
        torch.testing.assert_close(score, expected)


# --- properties


@pytest.mark.parametrize("length_penalty", LENGTH_PENALTIES)
@pytest.mark.parametrize("n_beams", [1, 3])
def test_the_score_is_what_the_model_says_of_the_text(length_penalty, n_beams):
    ours, _ = copies.gpt2(seed=7)
    ids, left_padding = pad_left(PROMPTS, pad_id=0)
    found, scores = beam_search(ours, ids, 9, n_beams, [3, 20, 30], length_penalty, left_padding=left_padding)
    for prompt, row, score in zip(PROMPTS, found[:, 7:].tolist(), scores):
        new = until_stop(row, [3, 20, 30])
        torch.testing.assert_close(score, log_p_of(ours, prompt, torch.tensor([new]))[0] / len(new) ** length_penalty)


@pytest.mark.parametrize("length_penalty", LENGTH_PENALTIES)
@pytest.mark.parametrize("stop", [None, [3, 20, 48]])
def test_one_beam_is_greedy(length_penalty, stop):
    for make in (copies.gpt2, copies.llama):
        ours, _ = make(seed=4)
        ids, left_padding = pad_left(PROMPTS, pad_id=0)
        found, _ = beam_search(ours, ids, 15, 1, stop, length_penalty, left_padding=left_padding)
        greedy = generate(ours, ids, 15, temperature=0, stop=stop, left_padding=left_padding)
        assert found.tolist() == greedy.tolist()


@pytest.mark.parametrize("stop", [None, 3])
def test_the_cache_does_not_change_what_is_found_before_and_after_the_window_slides(tiny, device, stop):
    ids, left_padding = pad_left([torch.tensor(prompt, device=device) for prompt in ([1, 2, 1], [2])], pad_id=0)
    found, scores = zip(
        *(beam_search(tiny, ids, 16, 3, stop, 1.5, left_padding=left_padding, use_cache=use) for use in (True, False))
    )
    assert torch.equal(*found)
    torch.testing.assert_close(*scores)
    assert stop is not None or found[0].shape == (2, 19)


def test_a_row_is_continued_alike_alone_and_in_a_batch(translator):
    source, mask = torch.tensor([[2, 1, 2], [1, 2, 0]]), padding_mask([3, 2], 3)
    settings = {"max_new_tokens": 8, "n_beams": 3, "stop": 3}
    found, scores = beam_search(translator, torch.tensor([[0], [0]]), source_ids=source, source_mask=mask, **settings)
    alone, score = beam_search(translator, torch.tensor([[0]]), source_ids=source[1:, :2], **settings)
    assert until_stop(found[1].tolist(), [3]) == until_stop(alone[0].tolist(), [3])
    torch.testing.assert_close(scores[1], score[0])


def test_the_text_follows_the_dtype_of_its_prompt(tiny, device):
    found, scores = beam_search(tiny, torch.tensor([[1, 2]], dtype=torch.int32, device=device), 3, 2)
    assert found.dtype == torch.int32
    assert scores.dtype == torch.float64


@pytest.mark.parametrize("n", [1, 2, 30])
@pytest.mark.parametrize("sign", [-1, 1])
def test_at_the_edge_of_what_is_allowed_scores_are_still_numbers_that_differ(n, sign):
    chain = Chain([[0.1, 0.2, 0.3, 0.4]] * 4)
    with pytest.raises(ValueError, match="length_penalty") as refused:
        beam_search(chain, torch.tensor([[0]]), n, 2, stop=3, length_penalty=sign * 1e6)
    largest = int(re.search(r"from -(\d+) to \1 ", str(refused.value))[1])
    found, scores = beam_search(chain, torch.tensor([[0]]), n, 2, stop=3, length_penalty=sign * largest)
    assert scores.isfinite().all()
    assert (scores < 0).all()
    # One token more is compared at a great disadvantage (or advantage), and it is the right one that is kept.
    assert found.shape == (1, 1 + (n if sign > 0 else 1))


def to_the_last_step(log_p, first, n_max, n_beams, stops, length_penalty):
    """The same search in plain lists, which never ends early: (score, text) of the best that was complete."""
    beams, complete, V = [(0.0, [first])], [], len(log_p)
    for n in range(1, n_max + 1):
        further = [(total + log_p[text[-1]][token], [*text, token]) for total, text in beams for token in range(V)]
        further.sort(key=lambda each: -each[0])
        ends = [text[-1] in stops or n == n_max for _, text in further]
        complete += [(total / n**length_penalty, text) for (total, text), end in zip(further[:n_beams], ends) if end]
        beams = [each for each, end in zip(further, ends) if not end][:n_beams]
    return max(complete)


@given(
    V=st.integers(3, 6),
    n_max=st.integers(4, 9),
    n_beams=st.integers(2, 3),
    length_penalty=st.sampled_from([2.0, 1.0, 0.5, 0.0, -0.2, -1.0]),
    spread=st.sampled_from([4.0, 2.0]),  # far apart: after an end that looks best, a long sure way may still win
    seed=seeds,
)
def test_ending_early_finds_what_the_search_to_the_last_step_finds(V, n_max, n_beams, length_penalty, spread, seed):
    torch.manual_seed(seed)
    chain = Chain((spread * torch.randn(V, V, dtype=torch.float64)).softmax(dim=-1).tolist())
    chain.logits = chain.logits.double()
    log_p = chain.logits.log_softmax(dim=-1).tolist()
    together, _ = beam_search(chain, torch.arange(V)[:, None], n_max, n_beams, V - 1, length_penalty)
    for first in range(V):
        expected, text = to_the_last_step(log_p, first, n_max, n_beams, [V - 1], length_penalty)
        alone, score = beam_search(chain, torch.tensor([[first]]), n_max, n_beams, V - 1, length_penalty)
        assert score.item() == pytest.approx(expected, rel=1e-6, abs=1e-9)
        for row in (alone[0].tolist(), together[first].tolist()):  # a batch ends with its last row
            assert [first, *until_stop(row[1:], [V - 1])] == text


# --- by hand

# After 0 comes 1 (0.6) or 2 (0.4). After 1 anything may come, after 2 always 3.
TRAP = [[0.0, 0.6, 0.4, 0.0], [0.25, 0.25, 0.25, 0.25], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0]]


def test_a_worse_beginning_wins_if_its_end_is_better():
    greedy, p = beam_search(Chain(TRAP), torch.tensor([[0]]), 2, n_beams=1, length_penalty=0)
    assert greedy[0, 1] == 1
    assert p.exp().item() == pytest.approx(0.6 * 0.25)
    found, p = beam_search(Chain(TRAP), torch.tensor([[0]]), 2, n_beams=2, length_penalty=0)
    assert found.tolist() == [[0, 2, 3]]
    assert p.exp().item() == pytest.approx(0.4)


# After 0: stop (3) with 0.4, or 1 with 0.6; after 1 again stop with 0.5 or 1 with 0.5.
SHORT_OR_LONG = [[0.0, 0.6, 0.0, 0.4], [0.0, 0.5, 0.0, 0.5], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]]


def test_sums_prefer_short_texts_and_means_long_ones():
    texts = {
        penalty: beam_search(Chain(SHORT_OR_LONG), torch.tensor([[0]]), 3, 3, stop=3, length_penalty=penalty)[
            0
        ].tolist()
        for penalty in (0.0, 3.0)
    }
    assert texts[0.0] == [[0, 3]]
    assert texts[3.0] in ([[0, 1, 1, 1]], [[0, 1, 1, 3]])  # both 0.6 · 0.5 · 0.5


def test_the_search_ends_when_no_open_beam_can_win():
    chain = Chain([[0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 1.0], [0.25, 0.25, 0.25, 0.25], [0.25, 0.25, 0.25, 0.25]])
    found, p = beam_search(chain, torch.tensor([[0]]), 9, n_beams=3, stop=3, length_penalty=0)
    assert found.tolist() == [[0, 1, 3]]
    assert p.exp().item() == pytest.approx(0.5)
    assert chain.calls == 2


def test_where_the_best_continuations_all_end_the_next_best_go_on():
    either = [0.0, 0.2, 0.2, 0.3, 0.3]  # 3 and 4 are stop ids: of two beams the four best continuations end
    chain = Chain([[0.0, 0.5, 0.5, 0.0, 0.0], either, either, either, either])
    found, _ = beam_search(chain, torch.tensor([[0]]), 6, n_beams=2, stop=[3, 4], length_penalty=9.0)
    assert found.shape == (1, 7)


def test_a_row_that_ends_sooner_is_filled_with_its_stop_id():
    counting = (torch.eye(6).roll(1, dims=1) * 0.94 + 0.01).tolist()
    found, _ = beam_search(Chain(counting), torch.tensor([[1], [3]]), 5, n_beams=2, stop=4, length_penalty=0)
    assert found.tolist() == [[1, 2, 3, 4], [3, 4, 4, 4]]


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"n_beams": 0}, "n_beams must be a whole number of at least 1, got 0"),
            ({"max_new_tokens": 0}, "max_new_tokens must be a whole number of at least 1, got 0"),
            ({"length_penalty": float("nan")}, "length_penalty must be a finite number"),
            ({"length_penalty": 1e3}, r"length_penalty must be a finite number from -62 to 62 .* got 1000\.0"),
            ({"length_penalty": -1e3}, r"length_penalty must be a finite number from -62 to 62 .* got -1000\.0"),
            ({"length_penalty": 11, "max_new_tokens": 1000}, "length_penalty must be a finite number from -9 to 9 "),
            ({"stop": 4}, "stop ids contain 4"),
            ({"ids": torch.tensor([1, 2])}, r"ids must be prompts of shape \(B, T\)"),
            ({"use_cache": True}, r"use_cache=True needs model.new_cache\(\)"),
        ],
    )
    def test_a_wrong_setting_is_named(self, settings, message):
        with pytest.raises(ValueError, match=message):
            beam_search(Chain(TRAP), **{"ids": torch.tensor([[0]]), "max_new_tokens": 2, **settings})

    def test_a_model_that_has_diverged_is_named(self):
        with pytest.raises(ValueError, match="logits contain NaN: the model"):
            beam_search(Chain([[float("nan")] * 2] * 2), torch.tensor([[0]]), 2)
