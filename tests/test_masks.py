"""Masks, held against slow loops that spell out who may see whom."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers.masking_utils import packed_sequence_mask_function

from course_lib.attention import scaled_dot_product_attention
from course_lib.masks import causal_mask, combine, document_mask, padding_mask, prefix_mask, window_mask


@given(T=st.integers(1, 9), cached=st.integers(0, 9))
def test_a_causal_query_sees_the_cached_keys_itself_and_what_came_before(T, cached):
    S = T + cached
    expected = [[s <= t + cached for s in range(S)] for t in range(T)]
    mask = causal_mask(T, S)
    assert mask.dtype == torch.bool
    assert mask.tolist() == expected


def test_without_s_the_causal_mask_is_square():
    assert causal_mask(3).tolist() == [[True, False, False], [True, True, False], [True, True, True]]


@given(T=st.integers(1, 9), cached=st.integers(0, 9), window=st.integers(1, 12))
def test_a_window_shows_a_query_itself_and_the_keys_just_before_it(T, cached, window):
    S = T + cached
    expected = [[t + cached - window < s <= t + cached for s in range(S)] for t in range(T)]
    assert window_mask(T, S, window).tolist() == expected


def test_a_window_of_no_key_is_refused(as_a_learner):
    with pytest.raises(ValueError, match="window must be a whole number of at least 1, got 0"):
        window_mask(3, window=0)


@given(lengths=st.lists(st.integers(0, 6), min_size=1, max_size=5), extra=st.integers(0, 3))
def test_padding_is_hidden_and_nothing_else(lengths, extra):
    S = max(1, max(lengths)) + extra
    for given_lengths in (lengths, torch.tensor(lengths)):
        mask = padding_mask(given_lengths, S)
        assert mask.shape == (len(lengths), 1, 1, S)
        assert mask.dtype == torch.bool
        assert mask[:, 0, 0].tolist() == [[s < length for s in range(S)] for length in lengths]
        left = padding_mask(given_lengths, S, left=True)
        assert left.shape == mask.shape
        assert left[:, 0, 0].tolist() == [[s >= S - length for s in range(S)] for length in lengths]


@given(T=st.integers(1, 9), data=st.data())
def test_a_prefix_sees_itself_both_ways_and_the_rest_is_causal(T, data):
    prefix_len = data.draw(st.integers(0, T))
    assert prefix_mask(prefix_len, T).tolist() == [[s < prefix_len or s <= t for s in range(T)] for t in range(T)]


@given(B=st.integers(1, 3), T=st.integers(1, 7), data=st.data())
def test_a_token_sees_the_earlier_tokens_of_its_own_document_and_no_others(B, T, data):
    ids = torch.tensor([data.draw(st.lists(st.integers(-1, 2), min_size=T, max_size=T)) for _ in range(B)])
    same = packed_sequence_mask_function(ids)
    expected = [[[[s <= t and bool(same(b, 0, t, s)) for s in range(T)] for t in range(T)]] for b in range(B)]
    mask = document_mask(ids)
    assert mask.dtype == torch.bool
    assert mask.tolist() == expected
    assert document_mask(ids.to(torch.int8)).tolist() == expected


def test_packed_documents_are_read_as_if_each_were_alone():
    rng = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 7, 4, generator=rng, dtype=torch.float64).unbind(0)
    packed, _ = scaled_dot_product_attention(q, k, v, mask=document_mask(torch.tensor([[5, 5, 5, 2, 2, 2, 2]])))
    for part in (slice(0, 3), slice(3, 7)):
        each = [x[:, :, part] for x in (q, k, v)]
        alone, _ = scaled_dot_product_attention(*each, mask=causal_mask(each[0].shape[2]))
        torch.testing.assert_close(packed[:, :, part], alone)


def test_combining_allows_only_what_all_allow():
    causal, padding = causal_mask(4), padding_mask([2, 4], 4)
    mask = combine(causal, None, padding)
    assert mask.shape == (2, 1, 4, 4)
    for b, length in enumerate([2, 4]):
        assert mask[b, 0].tolist() == [[s <= t and s < length for s in range(4)] for t in range(4)]


def test_combining_leaves_its_masks_alone():
    causal, nothing = causal_mask(3), torch.zeros(3, 3, dtype=torch.bool)
    combine(causal, nothing)
    assert causal.tolist() == causal_mask(3).tolist()
    assert combine(causal).tolist() == causal.tolist()


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    def test_fewer_keys_than_queries_leave_a_query_without_any(self):
        with pytest.raises(ValueError, match="S=2 keys are fewer than T=3"):
            causal_mask(3, 2)

    @pytest.mark.parametrize("sizes", [(0,), (2, 0), (1.5,)])
    def test_sizes_must_be_whole_numbers_of_at_least_one(self, sizes):
        with pytest.raises(ValueError, match="at least 1"):
            causal_mask(*sizes)

    @pytest.mark.parametrize("length", [-1, 5])
    def test_a_length_that_does_not_fit_is_named(self, length):
        with pytest.raises(ValueError, match=f"lengths contain {length}"):
            padding_mask([1, length], 4)

    @pytest.mark.parametrize("lengths", [torch.tensor([[1, 2]]), torch.tensor([1.0]), torch.tensor(2)])
    def test_lengths_are_one_whole_number_per_row(self, lengths):
        with pytest.raises(ValueError, match="one whole number per row"):
            padding_mask(lengths, 4)

    @pytest.mark.parametrize("document_ids", [torch.tensor([1, 1]), torch.zeros(2, 3), torch.ones(2, 3).bool()])
    def test_document_ids_are_whole_numbers_in_rows(self, document_ids):
        with pytest.raises(ValueError, match=r"document_ids must be whole numbers of shape \(B, T\), got shape"):
            document_mask(document_ids)

    @pytest.mark.parametrize("prefix_len", [-1, 4])
    def test_a_prefix_must_fit(self, prefix_len):
        with pytest.raises(ValueError, match="prefix_len must be a whole number from 0 to T=3"):
            prefix_mask(prefix_len, 3)

    def test_masks_of_numbers_are_refused_with_the_way_out(self):
        with pytest.raises(ValueError, match=r"boolean with True = may attend.*mask == 0"):
            combine(causal_mask(2), torch.zeros(2, 2))

    def test_masks_that_do_not_fit_together_are_shown(self):
        with pytest.raises(ValueError, match=r"\(2, 2\) and \(3, 3\) do not fit"):
            combine(causal_mask(2), causal_mask(3))

    def test_nothing_to_combine(self):
        with pytest.raises(ValueError, match="at least one mask"):
            combine(None)

    def test_lists_are_no_tensors(self):
        with pytest.raises(TypeError, match=r"^mask must be a tensor, got list: .*torch\.tensor\(mask\)"):
            combine(causal_mask(2), [[True, False], [True, True]])

    @pytest.mark.parametrize("prefix_len", [1.5, "1", None, True])
    def test_a_prefix_has_a_whole_number_of_tokens(self, prefix_len):
        with pytest.raises(ValueError, match="prefix_len must be a whole number from 0 to T=3, got"):
            prefix_mask(prefix_len, 3)


@given(T=st.integers(1, 7), seed=st.integers(0, 99))
def test_a_late_mask_is_the_right_one_once_its_rows_are_divided_by_their_sums(T, seed):
    q, k = torch.randn(2, T, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    _, right = scaled_dot_product_attention(q, k, k, mask=causal_mask(T))
    late = (q @ k.T / 8**0.5).softmax(dim=-1) * causal_mask(T)
    assert T == 1 or (late[:-1].sum(dim=-1) < 1).all(), "without the division they are too small"
    torch.testing.assert_close(late / late.sum(dim=-1, keepdim=True), right)
