"""Heads: by their properties, grouped ones against PyTorch's, and the readable path against the fused one.

The module against PyTorch's own module: test_parity_torch.py.
"""

import jaxtyping
import pytest
import torch
import torch.nn.functional as F
from helpers import seeds, with_real_weights
from hypothesis import given
from hypothesis import strategies as st

import course_lib.heads as attention_module
from course_lib.attention import scaled_dot_product_attention
from course_lib.heads import MultiHeadAttention, merge_heads, split_heads
from course_lib.masks import causal_mask, padding_mask
from course_lib.positions import alibi_bias, apply_rotary, rotary_angles

TOLERANCE = {torch.float32: {"atol": 2e-6, "rtol": 2e-5}, torch.float64: {"atol": 1e-12, "rtol": 1e-10}}

sizes = st.integers(1, 6)


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


def with_real_attention(*sizes, **options):
    return with_real_weights(MultiHeadAttention(*sizes, **options))


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
@given(
    B=st.integers(1, 3),
    T=st.integers(1, 7),
    D=st.integers(1, 5),
    n_kv_heads=st.sampled_from([1, 2]),
    bias=st.booleans(),
    biased=st.booleans(),
    seed=seeds,
)
def test_the_readable_path_and_the_fused_path_agree_in_outputs_and_gradients(
    name, dtype, B, T, D, n_kv_heads, bias, biased, seed
):
    torch.manual_seed(seed)
    module = with_real_weights(MultiHeadAttention(2 * D, 2, n_kv_heads, bias=bias), seed).to(dtype)
    x = torch.randn(B, T, 2 * D, dtype=dtype, requires_grad=True)
    score_bias = torch.randn(2, T, T, dtype=dtype, requires_grad=True) if biased else None
    upstream = torch.randn(B, T, 2 * D, dtype=dtype)
    mask, is_causal = MASKS[name](B, T)
    wanted = [x, *module.parameters(), *([score_bias] if biased else [])]

    options = {"mask": mask, "is_causal": is_causal, "score_bias": score_bias}
    fused = module(x, **options)
    readable, weights = module(x, **options, need_weights=True)
    torch.testing.assert_close(readable, fused, **TOLERANCE[dtype])
    assert weights.shape == (B, 2, T, T)
    loose = {"atol": 2e-5, "rtol": 2e-4} if dtype == torch.float32 else TOLERANCE[dtype]  # sums over all tokens
    for ours, theirs in zip(
        torch.autograd.grad(readable, wanted, upstream), torch.autograd.grad(fused, wanted, upstream)
    ):
        assert ours.isfinite().all()
        torch.testing.assert_close(ours, theirs, **loose)


@pytest.mark.parametrize("kind", ["mask", "score_bias"])
@given(shape=st.tuples(*(st.sampled_from([1, size]) for size in (2, 4, 3, 5))), n_dims=st.integers(0, 4), seed=seeds)
def test_both_paths_take_whatever_broadcasts_to_the_scores(kind, shape, n_dims, seed):
    torch.manual_seed(seed)
    module, x, context = with_real_attention(8, 4), torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    shape = shape[4 - n_dims :]
    given_shape = torch.rand(shape) < 0.7 if kind == "mask" else torch.randn(shape)
    full = given_shape.expand(2, 4, 3, 5)
    expected, _ = module(x, context, **{kind: full}, need_weights=True)
    readable, _ = module(x, context, **{kind: given_shape}, need_weights=True)
    for output in (readable, module(x, context, **{kind: given_shape})):
        torch.testing.assert_close(output, expected, **TOLERANCE[torch.float32])


def test_the_fused_kernel_runs_unless_weights_are_asked_for(monkeypatch):
    calls = []
    fused, readable = F.scaled_dot_product_attention, scaled_dot_product_attention

    def note_fused(query, key, value, attn_mask, dropout_p, is_causal):
        calls.append(("fused", attn_mask is not None, is_causal))
        return fused(query, key, value, attn_mask, dropout_p, is_causal)

    def note_readable(*args):
        calls.append("readable")
        return readable(*args)

    monkeypatch.setattr(F, "scaled_dot_product_attention", note_fused)
    monkeypatch.setattr(attention_module, "scaled_dot_product_attention", note_readable)
    module, x = MultiHeadAttention(4, 2), torch.randn(1, 3, 4)
    module(x)
    module(x, is_causal=True)
    module(x, mask=padding_mask([2], 3), is_causal=True)
    module(x, is_causal=True, score_bias=alibi_bias(2, 3))
    module(x, need_weights=True)
    # PyTorch's documentation forbids a mask together with the flag.
    assert calls == [("fused", False, False), ("fused", False, True), *[("fused", True, False)] * 2, "readable"]


@given(
    B=st.integers(1, 3),
    T=st.integers(1, 6),
    S=st.integers(1, 6),
    D=st.integers(1, 4),
    groups=st.sampled_from([(2, 1), (4, 2), (6, 3), (6, 2), (4, 4)]),
    need_weights=st.booleans(),
    seed=seeds,
)
def test_grouped_heads_are_pytorchs(B, T, S, D, groups, need_weights, seed):
    torch.manual_seed(seed)
    n_heads, n_kv_heads = groups
    module = with_real_weights(MultiHeadAttention(n_heads * D, n_heads, n_kv_heads), seed).double()
    x, context = (torch.randn(B, L, n_heads * D, dtype=torch.float64) for L in (T, S))
    mask = torch.rand(B, n_heads, T, S) < 0.8
    query, key, value = (
        projection(source).unflatten(-1, (-1, D)).transpose(1, 2)
        for projection, source in ((module.q_proj, x), (module.k_proj, context), (module.v_proj, context))
    )
    heads = F.scaled_dot_product_attention(query, key, value, mask, enable_gqa=True)
    expected = module.out_proj(heads.transpose(1, 2).flatten(2))
    output = module(x, context, mask, need_weights=need_weights)
    torch.testing.assert_close(output[0] if need_weights else output, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 2), (4, 1), (6, 3)])
def test_grouped_heads_are_full_heads_of_which_some_are_equal(n_heads, n_kv_heads):
    grouped = with_real_attention(24, n_heads, n_kv_heads)
    full = MultiHeadAttention(24, n_heads)
    state = grouped.state_dict()
    for name in ("k_proj", "v_proj"):
        for kind in ("weight", "bias"):
            rows = state[f"{name}.{kind}"].unflatten(0, (n_kv_heads, -1))  # one slice per key-value head
            state[f"{name}.{kind}"] = rows.repeat_interleave(n_heads // n_kv_heads, dim=0).flatten(0, 1)
    full.load_state_dict(state)
    x = torch.randn(2, 5, 24)
    torch.testing.assert_close(grouped(x, is_causal=True), full(x, is_causal=True), atol=1e-5, rtol=1e-5)
    count = [sum(p.numel() for p in m.k_proj.parameters()) for m in (grouped, full)]
    assert count[0] * n_heads == count[1] * n_kv_heads


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_rotary_turns_queries_and_keys_of_every_head_alike_and_no_values(interleaved, need_weights):
    module = with_real_attention(12, 3, 1, rope_interleaved=interleaved)
    x, angles = torch.randn(2, 5, 12), rotary_angles(torch.arange(7, 12), 4)
    query, key, value = (
        projection(x).unflatten(-1, (-1, 4)).transpose(1, 2)
        for projection in (module.q_proj, module.k_proj, module.v_proj)
    )
    query, key = (apply_rotary(z, angles, interleaved) for z in (query, key))
    heads = F.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    output = module(x, rotary=angles, need_weights=need_weights)
    expected = module.out_proj(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(output[0] if need_weights else output, expected, atol=1e-5, rtol=1e-5)
    assert not torch.allclose(module(x), expected, atol=1e-2)


@pytest.mark.parametrize("need_weights", [False, True])
def test_what_a_bias_adds_to_a_whole_row_is_not_noticed_and_a_huge_one_hides(need_weights):
    module, x = with_real_attention(8, 2).double(), torch.randn(2, 5, 8, dtype=torch.float64)

    def run(**options):
        output = module(x, need_weights=need_weights, **options)
        return output[0] if need_weights else output

    bias = torch.randn(2, 5, 5, dtype=torch.float64)
    torch.testing.assert_close(run(score_bias=bias + torch.randn(2, 5, 1)), run(score_bias=bias))
    torch.testing.assert_close(run(score_bias=torch.zeros(5)), run())
    hiding = torch.zeros(5, 5, dtype=torch.float64).masked_fill(~causal_mask(5), -1e9)
    torch.testing.assert_close(run(score_bias=hiding), run(is_causal=True))


@pytest.mark.parametrize("n_kv_heads", [1, 2])
def test_bfloat16_runs_on_both_paths_and_is_near(n_kv_heads):
    module, x = with_real_attention(16, 2, n_kv_heads), torch.randn(2, 6, 16)
    options = {"mask": padding_mask([6, 4], 6), "is_causal": True, "score_bias": alibi_bias(2, 6)}
    exact = module(x, **options)
    module, x = module.bfloat16(), x.bfloat16()
    fused, (readable, weights) = module(x, **options), module(x, **options, need_weights=True)
    assert fused.dtype == readable.dtype == weights.dtype == torch.bfloat16
    for output in (fused, readable):
        torch.testing.assert_close(output.float(), exact, atol=0.1, rtol=0)


def test_one_head_is_plain_attention_between_two_projections():
    module, x = with_real_attention(6, 1), torch.randn(2, 4, 6)
    plain, weights = scaled_dot_product_attention(module.q_proj(x), module.k_proj(x), module.v_proj(x))
    output, head_weights = module(x, need_weights=True)
    torch.testing.assert_close(output, module.out_proj(plain))
    torch.testing.assert_close(head_weights[:, 0], weights)


def test_a_head_depends_on_its_own_slice_of_the_projections_alone():
    module, x = with_real_attention(12, 3), torch.randn(2, 5, 12)
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
    module = with_real_attention(6, 2).double()
    x, order = torch.randn(2, T, 6, dtype=torch.float64), torch.randperm(T)
    torch.testing.assert_close(module(x[:, order]), module(x)[:, order])


def test_under_a_causal_mask_the_order_of_the_others_stays_invisible_to_one_layer_but_not_where_one_stands():
    module = with_real_attention(6, 2).double()
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    swapped = x[:, [1, 0, 2, 3]]
    before, after = module(x, is_causal=True), module(swapped, is_causal=True)
    torch.testing.assert_close(after[:, 2:], before[:, 2:])
    assert (after[:, 1] - before[:, 0]).abs().max() > 1e-3


@given(T=st.integers(2, 8), data=st.data(), seed=seeds, need_weights=st.booleans())
def test_changing_a_later_token_leaves_earlier_outputs_alone(T, data, seed, need_weights):
    torch.manual_seed(seed)
    t = data.draw(st.integers(1, T - 1))
    module, x = with_real_attention(4, 2), torch.randn(2, T, 4)
    changed = x.clone()
    changed[:, t] += 1
    before, after = (module(z, is_causal=True, need_weights=need_weights) for z in (x, changed))
    if need_weights:
        before, after = before[0], after[0]
    assert torch.equal(before[:, :t], after[:, :t])
    assert (before[:, t:] != after[:, t:]).any(-1).all()


def test_attention_dropout_acts_only_while_training_on_both_paths():
    module, x = with_real_attention(8, 2, dropout=0.5), torch.randn(1, 6, 8)
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
    @pytest.mark.parametrize("rows", [1, 3])
    @pytest.mark.parametrize("need_weights", [False, True])
    def test_every_row_has_its_own_context(self, rows, need_weights):
        with pytest.raises(ValueError, match=f"x has 2 rows, but the context or its cache has {rows}"):
            MultiHeadAttention(4, 2)(torch.randn(2, 3, 4), torch.randn(rows, 5, 4), need_weights=need_weights)

    @pytest.mark.parametrize("context", [(2, 5, 3), (2, 5)])
    def test_a_context_of_another_shape_is_refused(self, context):
        with pytest.raises(ValueError, match=r"context has shape|must have shape"):
            MultiHeadAttention(4, 2)(torch.randn(2, 3, 4), torch.randn(context))

    @pytest.mark.parametrize("option", [{"is_causal": True}, {"rotary": rotary_angles(torch.arange(3), 2)}])
    def test_between_two_sequences_there_is_no_order(self, option):
        with pytest.raises(ValueError, match="is_causal and rotary apply to a single sequence"):
            MultiHeadAttention(4, 2)(torch.randn(2, 3, 4), torch.randn(2, 3, 4), **option)

    def test_angles_that_do_not_fit_are_refused(self):
        module, x = MultiHeadAttention(8, 2), torch.randn(2, 3, 8)
        with pytest.raises(ValueError, match="x has D=4 features, but 1 angles rotate 2"):
            module(x, rotary=rotary_angles(torch.arange(3), 2))
        with pytest.raises(ValueError, match="angles has shape"):
            module(x, rotary=rotary_angles(torch.arange(4), 4))

    def test_each_key_value_head_serves_equally_many_query_heads(self):
        with pytest.raises(ValueError, match="n_kv_heads=3 must divide n_heads=4"):
            MultiHeadAttention(8, 4, 3)
        with pytest.raises(ValueError, match="n_kv_heads must be a whole number of at least 1"):
            MultiHeadAttention(8, 4, 0)

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
