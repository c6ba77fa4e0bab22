"""Positions: the sinusoids against their formula, the learned table, and what happens past the end."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.positions import LearnedPositions, SinusoidalPositions, sinusoidal_encoding


@given(max_seq_len=st.integers(1, 40), d_model=st.integers(1, 33))
def test_every_entry_follows_the_formula_for_even_and_odd_sizes(max_seq_len, d_model):
    table = sinusoidal_encoding(max_seq_len, d_model)
    assert table.shape == (max_seq_len, d_model)
    for p in range(max_seq_len):
        for j in range(d_model):
            angle = p / 10000 ** (2 * (j // 2) / d_model)
            expected = math.cos(angle) if j % 2 else math.sin(angle)
            assert table[p, j].item() == pytest.approx(expected, abs=1e-7)


def test_far_positions_keep_their_digits():
    table = sinusoidal_encoding(100_001, 4)
    assert table[100_000, 0].item() == pytest.approx(math.sin(100_000), abs=1e-7)
    assert table[100_000, 3].item() == pytest.approx(math.cos(1000), abs=1e-7)


@given(p=st.integers(0, 200), k=st.integers(0, 100), half=st.integers(1, 16))
def test_a_step_of_k_is_the_same_rotation_everywhere(p, k, half):
    d_model = 2 * half
    table = sinusoidal_encoding(p + k + 1, d_model).double()
    for i in range(half):
        angle = k / 10000 ** (2 * i / d_model)
        turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]).double()
        pair = slice(2 * i, 2 * i + 2)
        torch.testing.assert_close(table[p + k, pair], turn @ table[p, pair], atol=1e-6, rtol=0)


def test_no_two_positions_look_alike():
    assert torch.pdist(sinusoidal_encoding(2000, 512)).min() > 3.7


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("module", [SinusoidalPositions, LearnedPositions])
def test_positions_follow_the_dtype_of_their_input(module, dtype):
    x = torch.randn(2, 5, 6).to(dtype)
    assert module(8, 6)(x).dtype == dtype


def test_sinusoids_are_added_to_every_row_and_leave_nothing_to_train_or_save():
    module = SinusoidalPositions(10, 6)
    x = torch.randn(3, 7, 6)
    torch.testing.assert_close(module(x), x + sinusoidal_encoding(7, 6))
    assert list(module.parameters()) == []
    assert module.state_dict() == {}


def test_learned_positions_add_their_first_rows_and_train_only_those():
    module = LearnedPositions(10, 4)
    x = torch.randn(3, 7, 4)
    torch.testing.assert_close(module(x), x + module.weight[:7])
    module(x).sum().backward()
    assert module.weight.grad.sum(dim=1).tolist() == [12.0] * 7 + [0.0] * 3  # 3 rows of the batch × 4 features


def test_positions_break_the_symmetry_between_orders():
    x = torch.randn(1, 4, 6)
    swapped = x[:, [1, 0, 2, 3]]
    for module in (SinusoidalPositions(4, 6), LearnedPositions(4, 6)):
        assert not torch.allclose(module(swapped), module(x)[:, [1, 0, 2, 3]], atol=1e-3)


@pytest.mark.usefixtures("as_a_learner")
@pytest.mark.parametrize("module", [SinusoidalPositions, LearnedPositions])
class TestBadInput:
    def test_a_sequence_over_the_end_is_refused(self, module):
        with pytest.raises(ValueError, match="6 positions, but there are only max_seq_len=5"):
            module(5, 4)(torch.randn(2, 6, 4))

    def test_a_wrong_number_of_features_is_refused(self, module):
        with pytest.raises(ValueError, match="last dimension must be d_model=4"):
            module(5, 4)(torch.randn(2, 5, 1))

    @pytest.mark.parametrize("sizes", [(0, 4), (4, 0), (4, 1.5)])
    def test_sizes_must_be_whole_numbers_of_at_least_one(self, module, sizes):
        with pytest.raises(ValueError, match="at least 1"):
            module(*sizes)
