"""Positions against their formulas and against `transformers`: sinusoids, learned table, RoPE, ALiBi."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import normalize
from transformers import LlamaConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from course_lib.positions import (
    LearnedPositions,
    SinusoidalPositions,
    alibi_bias,
    apply_rotary,
    rotary_angles,
    sinusoidal_encoding,
)


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


@pytest.mark.parametrize("make", [SinusoidalPositions, LearnedPositions])
def test_tokens_can_stand_elsewhere_than_at_the_start_and_each_row_at_its_own_place(make):
    module = make(9, 4)
    table = module(torch.zeros(9, 4))
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(module(x, torch.tensor([6, 7, 8])), x + table[6:9])
    per_row = torch.tensor([[0, 0, 1], [4, 5, 6]])
    torch.testing.assert_close(module(x, per_row), x + torch.stack([table[row] for row in per_row]))


def turned(x, positions, theta, interleaved):
    """RoPE in the numbers that turn by themselves: each pair is one complex number a + ib, times e^(i · angle)."""
    D = x.shape[-1]
    first, second = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., : D // 2], x[..., D // 2 :])
    speed = torch.tensor([theta ** (-2 * i / D) for i in range(D // 2)], dtype=torch.float64)
    angles = positions[..., None].double() * speed
    z = torch.complex(first.double(), second.double()) * torch.polar(torch.ones_like(angles), angles)
    result = torch.empty_like(x, dtype=torch.float64)
    if interleaved:
        result[..., 0::2], result[..., 1::2] = z.real, z.imag
    else:
        result[..., : D // 2], result[..., D // 2 :] = z.real, z.imag
    return result


both_pairings = pytest.mark.parametrize("interleaved", [False, True], ids=["half-split", "interleaved"])


class TestRotary:
    @both_pairings
    @given(
        T=st.integers(1, 6),
        half=st.integers(1, 8),
        offset=st.integers(0, 100_000),
        theta=st.sampled_from([10_000.0, 500_000.0, 7]),
    )
    def test_it_multiplies_each_pair_by_a_unit_complex_number(self, interleaved, T, half, offset, theta):
        x, positions = torch.randn(2, 3, T, 2 * half, dtype=torch.float64), torch.arange(offset, offset + T)
        angles = rotary_angles(positions, 2 * half, theta, torch.float64)
        assert angles.dtype == torch.float64
        expected = turned(x, positions, theta, interleaved)
        torch.testing.assert_close(apply_rotary(x, angles, interleaved), expected, atol=1e-9, rtol=0)

    @given(B=st.integers(1, 3), H=st.integers(1, 3), T=st.integers(1, 7), half=st.integers(1, 8))
    def test_half_split_is_what_llama_does(self, B, H, T, half):
        query, key = torch.randn(2, B, H, T, 2 * half).unbind()
        positions = torch.randint(2048, (B, T))  # each row its own
        config = LlamaConfig(
            hidden_size=2 * half * H,
            num_attention_heads=H,
            rope_parameters={"rope_theta": 500_000.0, "rope_type": "default"},
        )
        cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(query, positions)
        expected = modeling_llama.apply_rotary_pos_emb(query, key, cos, sin)
        angles = rotary_angles(positions, 2 * half, theta=500_000.0)[:, None]  # (B, 1, T, D / 2)
        for ours, theirs in zip((query, key), expected):
            torch.testing.assert_close(apply_rotary(ours, angles), theirs, atol=1e-5, rtol=1e-5)

    @given(B=st.integers(1, 3), H=st.integers(1, 3), T=st.integers(1, 7), half=st.integers(1, 8))
    def test_interleaved_is_what_gptj_does(self, B, H, T, half):
        x, positions = torch.randn(B, H, T, 2 * half), torch.randint(500, (B, T))
        sin, cos = modeling_gptj.create_sinusoidal_positions(500, 2 * half)[positions].chunk(2, dim=-1)
        expected = modeling_gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin, cos).transpose(1, 2)
        angles = rotary_angles(positions, 2 * half)[:, None]
        torch.testing.assert_close(apply_rotary(x, angles, interleaved=True), expected, atol=1e-5, rtol=1e-5)

    @both_pairings
    @given(t=st.integers(0, 500), s=st.integers(0, 500), shift=st.integers(0, 1000))
    def test_a_score_depends_on_the_distance_alone(self, interleaved, t, s, shift):
        query, key = torch.randn(2, 1, 12, dtype=torch.float64).unbind()

        def score(t, s):
            angles = [rotary_angles(torch.tensor([p]), 12, dtype=torch.float64) for p in (t, s)]
            return (apply_rotary(query, angles[0], interleaved) * apply_rotary(key, angles[1], interleaved)).sum()

        torch.testing.assert_close(score(t + shift, s + shift), score(t, s), atol=1e-10, rtol=0)
        assert abs(score(t + 1, s) - score(t, s)) > 1e-6  # and it does depend on that

    @both_pairings
    def test_it_changes_directions_and_no_length(self, interleaved):
        x, positions = torch.randn(1, 8, dtype=torch.float64).expand(20, 8), torch.arange(20)
        y = apply_rotary(x, rotary_angles(positions, 8, dtype=torch.float64), interleaved)
        torch.testing.assert_close(y.norm(dim=-1), x.norm(dim=-1))
        assert torch.equal(y[0], x[0])  # position 0 is not turned
        cosine = normalize(y, dim=-1) @ normalize(y, dim=-1).T
        assert cosine.masked_fill(torch.eye(20, dtype=torch.bool), 0).max() < 0.9999  # no two positions look alike

    def test_the_two_pairings_are_one_up_to_the_order_of_the_features(self):
        x, angles = torch.randn(2, 5, 12), rotary_angles(torch.arange(5), 12)
        order = torch.arange(12).view(2, 6).T.flatten()  # 0, 6, 1, 7, …: the half-split partners side by side
        interleaved, half_split = apply_rotary(x[..., order], angles, interleaved=True), apply_rotary(x, angles)
        torch.testing.assert_close(interleaved, half_split[..., order])
        assert not torch.allclose(apply_rotary(x, angles, interleaved=True), half_split, atol=0.1)

    def test_the_first_pair_turns_by_one_radian_per_token_and_the_last_hardly(self):
        angles = rotary_angles(torch.arange(4), 64)
        assert angles[:, 0].tolist() == [0, 1, 2, 3]
        assert angles[3, -1].item() == pytest.approx(3 * 10_000 ** (-62 / 64), rel=1e-5)

    @pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
    def test_the_result_has_the_dtype_of_its_input(self, dtype):
        x, angles = torch.randn(3, 4).to(dtype), rotary_angles(torch.arange(1000, 1003), 4)
        y = apply_rotary(x, angles)
        assert y.dtype == dtype
        torch.testing.assert_close(y.float(), apply_rotary(x.float(), angles), atol=0.05, rtol=0)

    @pytest.mark.usefixtures("as_a_learner")
    def test_bad_input_is_refused(self):
        with pytest.raises(ValueError, match="d_head=5 is odd: choose an even one"):
            rotary_angles(torch.arange(3), 5)
        with pytest.raises(ValueError, match="d_head must be a whole number of at least 1"):
            rotary_angles(torch.arange(3), 0)
        angles = rotary_angles(torch.arange(3), 4)
        with pytest.raises(ValueError, match="x has D=8 features, but 2 angles rotate 4"):
            apply_rotary(torch.randn(3, 8), angles)
        with pytest.raises(ValueError, match=r"angles has shape \(3, 2\), which does not broadcast to \(1, 5, 2\)"):
            apply_rotary(torch.randn(1, 5, 4), angles)
        with pytest.raises(ValueError, match="angles has shape"):  # would make three of one
            apply_rotary(torch.randn(1, 4), angles)

    @pytest.mark.usefixtures("as_a_learner")
    @pytest.mark.parametrize("theta", [0.0, -10_000.0, float("nan"), float("inf"), "10000"])
    def test_a_base_that_is_not_positive_would_turn_by_nan(self, theta):
        with pytest.raises(ValueError, match="theta must be a positive number, got"):
            rotary_angles(torch.arange(3), 4, theta)

    @pytest.mark.usefixtures("as_a_learner")
    def test_lists_are_no_tensors(self):
        angles = rotary_angles(torch.arange(2), 2)
        for wrong, name in (
            (lambda: rotary_angles([0, 1], 2), "positions"),
            (lambda: apply_rotary([[1.0, 2.0]] * 2, angles), "x"),
            (lambda: apply_rotary(torch.randn(2, 2), [[0.0]] * 2), "angles"),
        ):
            with pytest.raises(TypeError, match=rf"^{name} must be a tensor, got list: .*torch\.tensor\({name}\)"):
                wrong()


class TestAlibi:
    @given(n_heads=st.integers(1, 40), T=st.integers(1, 6), cached=st.integers(0, 5))
    def test_for_earlier_keys_it_is_blooms_up_to_a_constant_per_query(self, n_heads, T, cached):
        S = T + cached
        bloom = build_alibi_tensor(torch.ones(1, S, dtype=torch.long), n_heads, torch.float32)  # (H, 1, S): slope · s
        own = bloom[:, 0, cached:, None]  # (H, T, 1); softmax does not notice what a whole row has in common
        earlier = torch.ones(T, S, dtype=torch.bool).tril(cached)
        expected = (bloom - own).where(earlier, 0)
        torch.testing.assert_close(alibi_bias(n_heads, T, S).where(earlier, 0), expected)

    def test_eight_heads_have_the_slopes_of_the_paper(self):
        assert (-alibi_bias(8, 2)[:, 1, 0]).tolist() == [1 / 2**h for h in range(1, 9)]

    @given(n_heads=st.integers(1, 12), T=st.integers(1, 6), cached=st.integers(0, 5))
    def test_it_grows_with_the_distance_to_both_sides_from_zero_at_the_query_itself(self, n_heads, T, cached):
        distance = torch.tensor([[abs(t + cached - s) for s in range(T + cached)] for t in range(T)])
        one_apart = alibi_bias(n_heads, 2)[:, 1, 0]
        assert (one_apart < 0).all()
        torch.testing.assert_close(alibi_bias(n_heads, T, T + cached), one_apart[:, None, None] * distance)

    @pytest.mark.usefixtures("as_a_learner")
    def test_bad_input_is_refused(self):
        for sizes in ((0, 2), (2, 0), (2, 2, 0), (1.5, 2)):
            with pytest.raises(ValueError, match="at least 1"):
                alibi_bias(*sizes)
        with pytest.raises(ValueError, match="S=2 keys are fewer than T=3 queries"):
            alibi_bias(4, 3, 2)


@pytest.mark.usefixtures("as_a_learner")
@pytest.mark.parametrize("module", [SinusoidalPositions, LearnedPositions])
class TestBadInput:
    def test_a_sequence_over_the_end_is_refused(self, module):
        with pytest.raises(ValueError, match="position 0 to 5, but there are only max_seq_len=5 positions, 0 to 4"):
            module(5, 4)(torch.randn(2, 6, 4))

    @pytest.mark.parametrize("positions", [[3, 4, 5], [-1, 0, 1], [[0, 1, 2], [9, 0, 0]]])
    def test_a_position_outside_the_table_is_refused(self, module, positions):
        with pytest.raises(ValueError, match="there are only max_seq_len=5"):
            module(5, 4)(torch.randn(2, 3, 4), torch.tensor(positions))

    def test_every_token_has_one_position(self, module):
        with pytest.raises(ValueError, match=r"positions has shape \(2,\), which does not broadcast to \(2, 3\)"):
            module(5, 4)(torch.randn(2, 3, 4), torch.tensor([0, 1]))

    def test_a_wrong_number_of_features_is_refused(self, module):
        with pytest.raises(ValueError, match="last dimension must be d_model=4"):
            module(5, 4)(torch.randn(2, 5, 1))

    @pytest.mark.parametrize("sizes", [(0, 4), (4, 0), (4, 1.5)])
    def test_sizes_must_be_whole_numbers_of_at_least_one(self, module, sizes):
        with pytest.raises(ValueError, match="at least 1"):
            module(*sizes)

    def test_lists_are_no_tensors(self, module):
        for wrong, name in ((([[[1.0] * 4]],), "x"), ((torch.randn(1, 2, 4), [0, 1]), "positions")):
            with pytest.raises(TypeError, match=rf"^{name} must be a tensor, got list: .*torch\.tensor\({name}\)"):
                module(5, 4)(*wrong)
