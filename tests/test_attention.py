"""Attention against PyTorch's own, by its properties, and the readable path against the fused one."""

import math

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import course_lib.attention as attention_module
from course_lib.attention import MultiHeadAttention, merge_heads, scaled_dot_product_attention, split_heads
from course_lib.masks import causal_mask, padding_mask

TOLERANCE = {torch.float32: {"atol": 2e-6, "rtol": 2e-5}, torch.float64: {"atol": 1e-12, "rtol": 1e-10}}

sizes = st.integers(1, 6)
leading = st.lists(st.integers(1, 3), max_size=3)
dtypes = st.sampled_from([torch.float32, torch.float64])
seeds = st.integers(0, 999)


def draw_qkv(leading, T, S, D, D_v, dtype, seed):
    torch.manual_seed(seed)
    shapes = [(T, D), (S, D), (S, D_v)]
    return [torch.randn(*leading, *shape, dtype=dtype, requires_grad=True) for shape in shapes]


@given(leading=leading, T=sizes, S=sizes, D=sizes, D_v=sizes, dtype=dtypes, masked=st.booleans(), seed=seeds)
def test_outputs_and_gradients_equal_pytorchs_whatever_the_shape(leading, T, S, D, D_v, dtype, masked, seed):
    inputs = draw_qkv(leading, T, S, D, D_v, dtype, seed)
    mask = torch.rand(*leading, T, S) < 0.6 if masked else None  # some rows may allow nothing
    upstream = torch.randn(*leading, T, D_v, dtype=dtype)

    output, _ = scaled_dot_product_attention(*inputs, mask)
    gradients = torch.autograd.grad(output, inputs, upstream)
    expected = F.scaled_dot_product_attention(*inputs, attn_mask=mask)
    expected_gradients = torch.autograd.grad(expected, inputs, upstream)

    torch.testing.assert_close(output, expected, **TOLERANCE[dtype])
    for ours, theirs in zip(gradients, expected_gradients):
        torch.testing.assert_close(ours, theirs, **TOLERANCE[dtype])


@given(leading=leading, T=sizes, S=sizes, D=sizes, dtype=dtypes, seed=seeds)
def test_a_row_of_weights_sums_to_one_or_to_zero_if_nothing_is_allowed(leading, T, S, D, dtype, seed):
    query, key, value = draw_qkv(leading, T, S, D, D, dtype, seed)
    mask = torch.rand(*leading, T, S) < 0.4
    _, weights = scaled_dot_product_attention(query, key, value, mask)
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).to(dtype))
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()


def test_two_keys_by_hand():
    # q·k is 0 and 4; over sqrt(4) that is 0 and 2: the second key gets 1 / (1 + e⁻²) of the attention.
    query, key = torch.tensor([[2.0, 0, 0, 0]]), torch.tensor([[0.0, 1, 0, 0], [2.0, 0, 0, 0]])
    output, weights = scaled_dot_product_attention(query, key, torch.tensor([[10.0], [20.0]]))
    share = 1 / (1 + math.exp(-2))
    assert weights.tolist() == [pytest.approx([1 - share, share])]
    assert output.item() == pytest.approx(10 + 10 * share)


def test_a_single_key_gets_all_attention_whatever_the_query():
    query, key, value = torch.randn(5, 3), torch.randn(1, 3), torch.randn(1, 2)
    torch.testing.assert_close(scaled_dot_product_attention(query, key, value)[0], value.expand(5, 2))


def test_sharp_queries_look_up_one_value_as_a_dictionary_would():
    query, key, value = torch.randn(4, 8), torch.randn(6, 8), torch.randn(6, 3)
    output, _ = scaled_dot_product_attention(1e4 * query, key, value)
    torch.testing.assert_close(output, value[(query @ key.T).argmax(dim=-1)])


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_query_that_may_attend_to_nothing_gets_zeros_and_finite_gradients(dtype):
    inputs = draw_qkv((2,), 3, 4, 5, 5, dtype, seed=1)
    mask = torch.ones(3, 4, dtype=torch.bool)
    mask[1] = False
    with torch.autograd.detect_anomaly(check_nan=True):  # not even inside the backward pass is anything NaN
        output, weights = scaled_dot_product_attention(*inputs, mask)
        output.sum().backward()
    assert (output[:, 1] == 0).all()
    assert (weights[:, 1] == 0).all()
    assert (output[:, [0, 2]] != 0).all()
    for tensor in inputs:
        assert tensor.grad.isfinite().all()
    assert (inputs[0].grad[:, 1] == 0).all()


def test_what_is_masked_has_no_influence():
    query, key, value = torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 2)
    mask = torch.tensor([True, True, False, True, False])
    before, _ = scaled_dot_product_attention(query, key, value, mask)
    key[~mask], value[~mask] = 1e6, -1e6
    after, _ = scaled_dot_product_attention(query, key, value, mask)
    assert torch.equal(before, after)


def test_huge_scores_do_not_overflow():
    query = torch.full((2, 4), 1e15)
    output, _ = scaled_dot_product_attention(query, query, torch.tensor([[1.0], [3.0]]))
    assert output.flatten().tolist() == [2.0, 2.0]


def test_leading_dimensions_broadcast_so_that_heads_can_share_keys():
    query, key, value = torch.randn(2, 6, 3, 4), torch.randn(2, 1, 5, 4), torch.randn(2, 1, 5, 4)
    output, weights = scaled_dot_product_attention(query, key, value)
    assert weights.shape == (2, 6, 3, 5)
    torch.testing.assert_close(output[:, 3], scaled_dot_product_attention(query[:, 3], key[:, 0], value[:, 0])[0])


def test_dropout_changes_the_output_and_not_the_weights_that_are_returned():
    query, key, value = torch.randn(3, 4, 4).unbind()
    clean, clean_weights = scaled_dot_product_attention(query, key, value)
    dropped, weights = scaled_dot_product_attention(query, key, value, dropout_p=0.5)
    assert torch.equal(weights, clean_weights)
    assert not torch.allclose(dropped, clean)
    averaged = torch.stack([scaled_dot_product_attention(query, key, value, dropout_p=0.5)[0] for _ in range(4000)])
    assert (averaged.mean(0) - clean).abs().max() < 6 * averaged.std(0).max() / 4000**0.5  # kept weights are doubled


def test_heads_are_slices_of_the_features():
    x = torch.arange(8.0).view(1, 2, 4)  # two tokens: 0 1 2 3 and 4 5 6 7
    assert split_heads(x, 2).tolist() == [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]


@given(B=sizes, T=sizes, H=sizes, D=sizes)
def test_merging_undoes_splitting_for_any_strides(B, T, H, D):
    x = torch.randn(T, B, H * D).transpose(0, 1)
    heads = split_heads(x, H)
    assert heads.shape == (B, H, T, D)
    assert torch.equal(merge_heads(heads), x)
    assert torch.equal(merge_heads(heads.contiguous()), x)
    assert torch.equal(merge_heads(heads.transpose(2, 3).contiguous().transpose(2, 3)), x)


def attention_with_real_biases(d_model, n_heads, **options):
    module = MultiHeadAttention(d_model, n_heads, **options)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


MASKS = {
    "everything": lambda B, T: (None, False),
    "causal": lambda B, T: (None, True),
    "padding": lambda B, T: (padding_mask([T - b % T for b in range(B)], T), False),
    "causal and padding": lambda B, T: (padding_mask([T - b % T for b in range(B)], T), True),
    "random, per head": lambda B, T: (torch.rand(B, 2, T, T) < 0.7, False),
    "rows without any key": lambda B, T: (torch.rand(T, T) < 0.3, True),
    "nothing at all": lambda B, T: (torch.zeros(T, T, dtype=torch.bool), False),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MASKS)
@given(B=st.integers(1, 3), T=st.integers(1, 7), D=st.integers(1, 5), bias=st.booleans(), seed=seeds)
def test_the_readable_path_and_the_fused_path_agree_in_outputs_and_gradients(name, dtype, B, T, D, bias, seed):
    torch.manual_seed(seed)
    module = attention_with_real_biases(2 * D, 2, bias=bias).to(dtype)
    x = torch.randn(B, T, 2 * D, dtype=dtype, requires_grad=True)
    upstream = torch.randn(B, T, 2 * D, dtype=dtype)
    mask, is_causal = MASKS[name](B, T)
    wanted = [x, *module.parameters()]

    fused = module(x, mask, is_causal)
    readable, weights = module(x, mask, is_causal, need_weights=True)
    torch.testing.assert_close(readable, fused, **TOLERANCE[dtype])
    assert weights.shape == (B, 2, T, T)
    loose = {"atol": 2e-5, "rtol": 2e-4} if dtype == torch.float32 else TOLERANCE[dtype]  # sums over all tokens
    for ours, theirs in zip(
        torch.autograd.grad(readable, wanted, upstream), torch.autograd.grad(fused, wanted, upstream)
    ):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, **loose)


def test_the_fused_kernel_runs_unless_weights_are_asked_for(monkeypatch):
    calls = []
    fused, readable = F.scaled_dot_product_attention, scaled_dot_product_attention

    def note_fused(*args, attn_mask, is_causal, **options):
        calls.append(("fused", attn_mask is not None, is_causal))
        return fused(*args, attn_mask=attn_mask, is_causal=is_causal, **options)

    def note_readable(*args):
        calls.append("readable")
        return readable(*args)

    monkeypatch.setattr(F, "scaled_dot_product_attention", note_fused)
    monkeypatch.setattr(attention_module, "scaled_dot_product_attention", note_readable)
    module, x = MultiHeadAttention(4, 2), torch.randn(1, 3, 4)
    module(x)
    module(x, is_causal=True)
    module(x, padding_mask([2], 3), is_causal=True)
    module(x, need_weights=True)
    # PyTorch's documentation forbids a mask together with the flag.
    assert calls == [("fused", False, False), ("fused", False, True), ("fused", True, False), "readable"]


@pytest.mark.parametrize("n_heads", [1, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_the_module_equals_pytorchs_multihead_attention(n_heads, masked):
    ours, theirs = attention_with_real_biases(8, n_heads), nn.MultiheadAttention(8, n_heads, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.q_proj.bias, ours.k_proj.bias, ours.v_proj.bias]))
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    x = torch.randn(3, 5, 8)
    lengths = [5, 2, 4]
    hidden = ~padding_mask(lengths, 5)[:, 0, 0] if masked else None  # theirs: True = may not attend
    not_causal = ~causal_mask(5) if masked else None
    expected, expected_weights = theirs(
        x, x, x, key_padding_mask=hidden, attn_mask=not_causal, need_weights=True, average_attn_weights=False
    )
    output, weights = ours(x, padding_mask(lengths, 5) if masked else None, is_causal=masked, need_weights=True)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(weights, expected_weights, atol=1e-6, rtol=1e-5)


def test_one_head_is_plain_attention_between_two_projections():
    module, x = attention_with_real_biases(6, 1), torch.randn(2, 4, 6)
    plain, weights = scaled_dot_product_attention(module.q_proj(x), module.k_proj(x), module.v_proj(x))
    output, head_weights = module(x, need_weights=True)
    torch.testing.assert_close(output, module.out_proj(plain))
    torch.testing.assert_close(head_weights[:, 0], weights)


def test_a_head_depends_on_its_own_slice_of_the_projections_alone():
    module, x = attention_with_real_biases(12, 3), torch.randn(2, 5, 12)
    with torch.no_grad():
        module.out_proj.weight.copy_(torch.eye(12))  # the heads stay side by side, visible
        before, before_weights = module(x, need_weights=True)
        for projection in (module.q_proj, module.k_proj, module.v_proj):
            projection.weight[4:8].normal_()  # rows of the second head
        after, after_weights = module(x, need_weights=True)
    changed = (before != after).flatten(0, 1).any(0)
    assert changed.tolist() == [False] * 4 + [True] * 4 + [False] * 4
    assert [torch.equal(before_weights[:, h], after_weights[:, h]) for h in range(3)] == [True, False, True]


@given(T=st.integers(1, 8), seed=seeds)
def test_shuffling_the_tokens_shuffles_the_outputs_alike(T, seed):
    torch.manual_seed(seed)
    module = attention_with_real_biases(6, 2).double()
    x, order = torch.randn(2, T, 6, dtype=torch.float64), torch.randperm(T)
    torch.testing.assert_close(module(x[:, order]), module(x)[:, order])


def test_under_a_causal_mask_the_order_of_the_others_stays_invisible_to_one_layer_but_not_where_one_stands():
    module = attention_with_real_biases(6, 2).double()
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    swapped = x[:, [1, 0, 2, 3]]
    before, after = module(x, is_causal=True), module(swapped, is_causal=True)
    torch.testing.assert_close(after[:, 2:], before[:, 2:])
    assert (after[:, 1] - before[:, 0]).abs().max() > 1e-3


@given(T=st.integers(2, 8), data=st.data(), seed=seeds, need_weights=st.booleans())
def test_changing_a_later_token_leaves_earlier_outputs_alone(T, data, seed, need_weights):
    torch.manual_seed(seed)
    t = data.draw(st.integers(1, T - 1))
    module, x = attention_with_real_biases(4, 2), torch.randn(2, T, 4)
    changed = x.clone()
    changed[:, t] += 1
    before, after = (module(z, is_causal=True, need_weights=need_weights) for z in (x, changed))
    if need_weights:
        before, after = before[0], after[0]
    assert torch.equal(before[:, :t], after[:, :t])
    assert (before[:, t:] != after[:, t:]).any(-1).all()


def test_attention_dropout_acts_only_while_training_on_both_paths():
    module, x = attention_with_real_biases(8, 2, dropout=0.5), torch.randn(1, 6, 8)
    for need_weights in (False, True):
        runs = [module(x, need_weights=need_weights) for _ in range(2)]
        runs = [run[0] if need_weights else run for run in runs]
        assert not torch.equal(*runs)
    clean = module.eval()(x)
    torch.testing.assert_close(module(x, need_weights=True)[0], clean)


def test_the_number_of_heads_does_not_change_the_number_of_parameters():
    counts = {sum(p.numel() for p in MultiHeadAttention(16, h).parameters()) for h in (1, 2, 4, 8, 16)}
    assert counts == {4 * 16 * 16 + 4 * 16}
    assert sum(p.numel() for p in MultiHeadAttention(16, 4, bias=False).parameters()) == 4 * 16 * 16


def test_the_documented_shapes_are_enforced_in_the_tests():
    with pytest.raises(jaxtyping.TypeCheckError):
        split_heads(torch.randn(2, 3), 1)
    with pytest.raises(jaxtyping.TypeCheckError):
        scaled_dot_product_attention(torch.randn(2, 3), torch.randn(2, 4), torch.randn(2, 3))


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize(
        ("shapes", "message"),
        [
            (((2, 3), (2, 4), (2, 4)), "equally many features"),
            (((2, 3), (4, 3), (5, 3)), "the same S"),
            (((3,), (2, 3), (2, 3)), "at least two dimensions"),
            (((2, 1, 3), (3, 1, 3), (3, 1, 3)), "leading dimensions"),
        ],
    )
    def test_queries_keys_and_values_that_do_not_fit_are_shown(self, shapes, message):
        with pytest.raises(ValueError, match=message):
            scaled_dot_product_attention(*(torch.randn(shape) for shape in shapes))

    def test_a_mask_of_numbers_is_refused(self):
        x = torch.randn(2, 3, 4)
        with pytest.raises(ValueError, match="must be boolean"):
            scaled_dot_product_attention(x, x, x, torch.ones(3, 3))
        with pytest.raises(ValueError, match="must be boolean"):
            MultiHeadAttention(4, 2)(x, torch.ones(3, 3))

    def test_a_padding_mask_without_its_two_dimensions_is_refused(self):
        with pytest.raises(ValueError, match=r"\(2, 3\), which does not broadcast to \(2, 2, 3, 3\).*padding_mask"):
            MultiHeadAttention(4, 2)(torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool))

    def test_a_mask_may_not_enlarge_the_scores(self):
        x = torch.randn(3, 4)
        with pytest.raises(ValueError, match="does not broadcast"):
            scaled_dot_product_attention(x, x, x, torch.ones(5, 3, 3, dtype=torch.bool))

    def test_features_that_cannot_be_shared_out_list_the_heads_that_can(self):
        message = "d_model=12 cannot be shared among n_heads=5 heads.*Choose n_heads from 1, 2, 3, 4, 6, 12$"
        with pytest.raises(ValueError, match=message):
            MultiHeadAttention(12, 5)
        with pytest.raises(ValueError, match=message):
            split_heads(torch.randn(1, 2, 12), 5)

    @pytest.mark.parametrize("sizes", [(0, 1), (4, 0), (4, -2), (4, 2.0)])
    def test_sizes_must_be_whole_numbers_of_at_least_one(self, sizes):
        with pytest.raises(ValueError, match="at least 1"):
            MultiHeadAttention(*sizes)

    def test_dropout_must_be_a_probability_below_one(self):
        with pytest.raises(ValueError, match="dropout must be"):
            MultiHeadAttention(4, 2, dropout=1.5)

    @pytest.mark.parametrize("shape", [(2, 3, 5), (3, 4), (1, 2, 3, 4)])
    def test_inputs_of_another_shape_are_refused(self, shape):
        with pytest.raises(ValueError, match=r"has shape|must have shape"):
            MultiHeadAttention(4, 2)(torch.randn(shape))

    def test_heads_to_merge_have_four_dimensions(self):
        with pytest.raises(ValueError, match=r"\(B, H, T, D\)"):
            merge_heads(torch.randn(2, 3, 4))
