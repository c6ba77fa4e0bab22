"""Attention against PyTorch's operation, by its properties, and the plain steps against the kernel."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import seeds, with_real_weights
from hypothesis import given
from hypothesis import strategies as st

from course_lib.attention import fused_attention, scaled_dot_product_attention
from course_lib.heads import MultiHeadAttention, merge_heads, split_heads
from course_lib.masks import causal_mask

TOLERANCE = {torch.float32: {"atol": 2e-6, "rtol": 2e-5}, torch.float64: {"atol": 1e-12, "rtol": 1e-10}}

sizes = st.integers(1, 6)
leading = st.lists(st.integers(1, 3), max_size=3)
dtypes = st.sampled_from([torch.float32, torch.float64])


def draw_qkv(leading, T, S, D, D_v, dtype, seed):
    torch.manual_seed(seed)
    shapes = [(T, D), (S, D), (S, D_v)]
    return [torch.randn(*leading, *shape, dtype=dtype, requires_grad=True) for shape in shapes]


@given(
    leading=leading,
    T=sizes,
    S=sizes,
    D=sizes,
    D_v=sizes,
    dtype=dtypes,
    masked=st.booleans(),
    biased=st.booleans(),
    seed=seeds,
)
def test_outputs_and_gradients_equal_pytorchs_whatever_the_shape(leading, T, S, D, D_v, dtype, masked, biased, seed):
    inputs = draw_qkv(leading, T, S, D, D_v, dtype, seed)
    mask = torch.rand(*leading, T, S) < 0.6 if masked else None  # some rows may allow nothing
    score_bias = torch.randn(T, S, dtype=dtype, requires_grad=True) if biased else None
    theirs = mask  # PyTorch takes numbers in place of the mask
    if biased:
        theirs = score_bias if mask is None else score_bias.masked_fill(~mask, -torch.inf)
        inputs.append(score_bias)
    upstream = torch.randn(*leading, T, D_v, dtype=dtype)

    output, _ = scaled_dot_product_attention(*inputs[:3], mask, score_bias=score_bias)
    gradients = torch.autograd.grad(output, inputs, upstream)
    expected = F.scaled_dot_product_attention(*inputs[:3], attn_mask=theirs)
    expected_gradients = torch.autograd.grad(expected, inputs, upstream)

    torch.testing.assert_close(output, expected, **TOLERANCE[dtype])
    for ours, theirs in zip(gradients, expected_gradients):
        torch.testing.assert_close(ours, theirs, **TOLERANCE[dtype])


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@given(leading=leading, T=sizes, S=sizes, D=sizes, D_v=sizes, masked=st.booleans(), biased=st.booleans(), seed=seeds)
def test_the_plain_steps_and_the_kernel_give_the_same_output(
    leading, T, S, D, D_v, masked, biased, seed, dtype, digits
):
    with torch.no_grad():
        query, key, value = draw_qkv(leading, T, S, D, D_v, dtype, seed)
        mask = torch.rand(T, S) < 0.6 if masked else None  # some rows may allow nothing
        score_bias = torch.randn(*leading, T, 1) if biased else None
        plain, _ = scaled_dot_product_attention(query, key, value, mask, score_bias=score_bias)
        fused = fused_attention(query, key, value, mask, score_bias=score_bias)
        torch.testing.assert_close(fused, plain, atol=digits, rtol=digits)
        if T == S:
            plain, _ = scaled_dot_product_attention(query, key, value, causal_mask(T))
            fused = fused_attention(query, key, value, is_causal=True)
            torch.testing.assert_close(fused, plain, atol=digits, rtol=digits)


@given(leading=leading, T=sizes, S=sizes, D=sizes, dtype=dtypes, seed=seeds)
def test_a_row_of_weights_sums_to_one_or_to_zero_if_nothing_is_allowed(leading, T, S, D, dtype, seed):
    query, key, value = draw_qkv(leading, T, S, D, D, dtype, seed)
    mask = torch.rand(*leading, T, S) < 0.4
    _, weights = scaled_dot_product_attention(query, key, value, mask)
    torch.testing.assert_close(weights.sum(-1), mask.any(-1).to(dtype))
    assert (weights >= 0).all()
    assert (weights[~mask] == 0).all()


@given(
    leading=leading, T=sizes, S=sizes, dtype=st.sampled_from([torch.float16, torch.bfloat16, torch.float32]),
    masked=st.booleans(), learned=st.booleans(), seed=seeds,
)  # fmt: skip
def test_minus_infinity_in_a_score_bias_hides_as_a_mask_does_also_a_whole_row(
    leading, T, S, dtype, masked, learned, seed
):
    query, key, value = draw_qkv(leading, T, S, 4, 3, dtype, seed)
    hidden, bias = torch.rand(T, S) < 0.6, torch.randn(T, S)
    hidden[0] = True
    mask = torch.rand(T, S) < 0.6 if masked else None
    both = ~hidden if mask is None else mask & ~hidden
    upstream = torch.randn(*leading, T, 3)
    for attend in (lambda *a, **kw: scaled_dot_product_attention(*a, **kw)[0], fused_attention):
        results = []
        for given_mask, given_bias in ((both, bias), (mask, bias.masked_fill(hidden, -torch.inf))):
            given_bias = given_bias.requires_grad_(learned)
            output = attend(query, key, value, given_mask, score_bias=given_bias)
            inputs = [query, key, value, *([given_bias] if learned else [])]
            results.append([output, *torch.autograd.grad(output, inputs, upstream.to(dtype))])
        for masked_out, minus_infinity in zip(*results):
            assert minus_infinity.isfinite().all()
            assert torch.equal(minus_infinity, masked_out)
        assert not results[1][0][..., 0, :].any(), "a query whose keys are all hidden gets zeros"


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [1.0, 8.0, 60.0])
def test_in_every_precision_the_error_is_that_of_pytorchs_own_operation(dtype, spread):
    """Both against float64 on the same rounded inputs. With spread 60 the largest product q·k is above 65504, the end
    of float16, and the largest score q·k / √64 below: the division must come first."""
    query, key, value = (x.to(dtype) for x in torch.randn(3, 6, 64))
    query, key = spread * query, spread * key
    exact, ours, theirs = (
        attend(*(x.to(wide) for x in (query, key, value))).double()
        for attend, wide in (
            (F.scaled_dot_product_attention, torch.float64),
            (lambda *qkv: scaled_dot_product_attention(*qkv)[0], dtype),
            (F.scaled_dot_product_attention, dtype),
        )
    )
    assert (query.double() @ key.double().T).abs().max() > 65504 or spread < 60
    assert ours.isfinite().all()
    # A score of size s is right to s · eps, and so is its weight: what rounding itself costs, whoever computes.
    largest = (query.double() @ key.double().T).abs().max().item() / 8
    allowed = 4 * (1 + largest) * torch.finfo(dtype).eps * value.abs().max().item()
    assert (ours - exact).abs().max() <= max(allowed, 2 * (theirs - exact).abs().max())


def test_leading_dimensions_broadcast_so_that_heads_can_share_keys():
    query, key, value = torch.randn(2, 6, 3, 4), torch.randn(2, 1, 5, 4), torch.randn(2, 1, 5, 4)
    output, weights = scaled_dot_product_attention(query, key, value)
    assert weights.shape == (2, 6, 3, 5)
    torch.testing.assert_close(output[:, 3], scaled_dot_product_attention(query[:, 3], key[:, 0], value[:, 0])[0])


def test_dropout_drops_weights_at_its_rate_scales_the_others_up_and_returns_those_before():
    query, key = torch.randn(2, 20, 8).unbind()
    clean, clean_weights = scaled_dot_product_attention(query, key, torch.eye(20))
    assert torch.equal(clean, clean_weights)  # with the identity for values, the output is what the values see
    copies = query.expand(500, 20, 8)
    seen, weights = scaled_dot_product_attention(copies, key, torch.eye(20), dropout_p=0.3)
    assert torch.equal(weights[0], clean_weights)
    dropped = seen == 0
    assert dropped.double().mean().item() == pytest.approx(0.3, abs=0.005)  # 200,000 draws: ± 0.001
    torch.testing.assert_close(seen, (weights / 0.7).masked_fill(dropped, 0.0))


@pytest.mark.parametrize("need_weights", [False, True])
def test_on_average_dropout_changes_nothing_on_either_path(need_weights):
    module = with_real_weights(MultiHeadAttention(8, 2, dropout=0.3))
    x = torch.randn(1, 5, 8)
    clean = module.eval()(x)
    runs = module.train()(x.expand(20_000, 5, 8), need_weights=need_weights)
    runs = runs[0] if need_weights else runs
    standard_error = runs.std(0) / len(runs) ** 0.5
    assert ((runs.mean(0) - clean).abs() < 5 * standard_error).all()
    assert (runs.std(0) > 0.01).any()


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize(
        ("shapes", "message"),
        [
            (((2, 3), (2, 4), (2, 4)), "the same number of features"),
            (((2, 3), (4, 3), (5, 3)), "the same S"),
            (((3,), (2, 3), (2, 3)), "at least two dimensions"),
            (((2, 3), (2, 3), (3,)), "at least two dimensions"),
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
            MultiHeadAttention(4, 2)(x, mask=torch.ones(3, 3))

    def test_a_padding_mask_without_its_two_dimensions_is_refused(self):
        with pytest.raises(ValueError, match=r"\(2, 3\), which does not broadcast to \(2, 2, 3, 3\).*padding_mask"):
            MultiHeadAttention(4, 2)(torch.randn(2, 3, 4), mask=torch.ones(2, 3, dtype=torch.bool))

    @pytest.mark.parametrize("need_weights", [False, True])
    def test_a_mask_of_three_dimensions_that_may_mean_rows_or_heads_is_refused(self, need_weights):
        """Where B = H it fits both ways, and broadcasting takes it for heads without a word."""
        attention, mask = MultiHeadAttention(4, 2), torch.ones(2, 3, 3, dtype=torch.bool).tril()
        mask[1] = True
        with pytest.raises(ValueError, match=r"\(2, 3, 3\) fits.*2 rows.*2 heads.*mask\[:, None\].*mask\[None\]"):
            attention(torch.randn(2, 3, 4), mask=mask, need_weights=need_weights)
        q = torch.randn(2, 2, 3, 4)
        with pytest.raises(ValueError, match=r"mask\[:, None\].*mask\[None\]"):
            scaled_dot_product_attention(q, q, q, mask)

    @pytest.mark.parametrize("need_weights", [False, True])
    def test_where_three_dimensions_can_mean_one_thing_alone_they_are_taken(self, need_weights):
        attention, per_head = MultiHeadAttention(4, 2).eval(), torch.rand(2, 3, 3) < 0.5
        run = lambda x, mask: attention(x, mask=mask, need_weights=True)[1]  # noqa: E731
        for rows in (1, 3):
            x = torch.randn(rows, 3, 4)
            assert torch.equal(run(x, per_head), run(x, per_head[None]))
        x = torch.randn(2, 3, 4)
        assert torch.equal(run(x, per_head[:1]), run(x, per_head[:1, None]))

    def test_lists_are_no_tensors(self):
        x, rows = torch.randn(2, 3, 4), [[[0.0] * 4] * 3] * 2
        attention = MultiHeadAttention(4, 2)
        for wrong, name in (
            (lambda: scaled_dot_product_attention(rows, x, x), "query"),
            (lambda: scaled_dot_product_attention(x, rows, x), "key"),
            (lambda: scaled_dot_product_attention(x, x, rows), "value"),
            (lambda: scaled_dot_product_attention(x, x, x, [[True] * 3] * 3), "mask"),
            (lambda: scaled_dot_product_attention(x, x, x, score_bias=[[0.0] * 3] * 3), "score_bias"),
            (lambda: split_heads(rows, 2), "x"),
            (lambda: merge_heads(rows), "x"),
            (lambda: attention(rows), "x"),
            (lambda: attention(x, rows), "context"),
            (lambda: attention(x, mask=[[True] * 3] * 3), "mask"),
            (lambda: attention(x, score_bias=[[0.0] * 3] * 3), "score_bias"),
            (lambda: attention(x, rotary=[[0.0]] * 3), "angles"),
        ):
            with pytest.raises(TypeError, match=rf"^{name} must be a tensor, got list: .*torch\.tensor\({name}\)"):
                wrong()

    def test_a_mask_may_not_enlarge_the_scores(self):
        x = torch.randn(3, 4)
        with pytest.raises(ValueError, match="does not broadcast"):
            scaled_dot_product_attention(x, x, x, torch.ones(5, 3, 3, dtype=torch.bool))

    @pytest.mark.parametrize("need_weights", [False, True])
    def test_a_bias_that_does_not_fit_the_scores_is_refused(self, need_weights):
        x = torch.randn(2, 3, 4)
        for shape in ((3, 3, 3), (2, 2), (2, 2, 2, 3, 3)):
            with pytest.raises(ValueError, match=r"score_bias has shape .* does not broadcast to \(2, 2, 3, 3\)"):
                MultiHeadAttention(4, 2)(x, score_bias=torch.zeros(shape), need_weights=need_weights)
        with pytest.raises(ValueError, match="score_bias"):
            scaled_dot_product_attention(x, x, x, score_bias=torch.zeros(5, 1, 3, 3))
