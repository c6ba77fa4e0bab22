"""The norms against their formulas, PyTorch's modules and LLaMA's, and what each of them does not notice."""

import pytest
import torch
from helpers import seeds, with_real_weights
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from course_lib.normalization import LayerNorm, RMSNorm


@given(d_model=st.integers(2, 17), T=st.integers(0, 4), bias=st.booleans(), seed=st.integers(0, 99))
def test_the_output_follows_the_formula_with_the_population_variance(d_model, T, bias, seed):
    torch.manual_seed(seed)
    norm = with_real_weights(LayerNorm(d_model, eps=1e-3, bias=bias)).double()
    x = 5 * torch.randn(2, T, d_model, dtype=torch.float64) + 2
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred**2).sum(-1, keepdim=True) / d_model
    expected = centred / (variance + 1e-3).sqrt() * norm.weight + (norm.bias if bias else 0)
    torch.testing.assert_close(norm(x), expected)


@given(d_model=st.integers(1, 17), T=st.integers(0, 4), seed=st.integers(0, 99))
def test_rms_norm_follows_its_formula_and_leaves_the_mean_alone(d_model, T, seed):
    torch.manual_seed(seed)
    norm = with_real_weights(RMSNorm(d_model, eps=1e-3)).double()
    x = 5 * torch.randn(2, T, d_model, dtype=torch.float64) + 2
    mean_square = (x**2).sum(-1, keepdim=True) / d_model
    torch.testing.assert_close(norm(x), x / (mean_square + 1e-3).sqrt() * norm.weight)


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@given(kind=st.sampled_from([LayerNorm, RMSNorm]), bias=st.booleans(), d_model=st.integers(2, 40), seed=seeds)
def test_the_formula_by_hand_and_the_kernel_agree_in_values_and_gradients(dtype, digits, kind, bias, d_model, seed):
    torch.manual_seed(seed)
    norm = with_real_weights(LayerNorm(d_model, bias=bias) if kind is LayerNorm else RMSNorm(d_model), seed).to(dtype)
    # Features spread over four units: a token whose features are all but equal has gradients as large as one likes.
    steps = torch.stack([torch.randperm(d_model) for _ in range(6)])
    x = (4 / d_model * (steps + 0.2 * torch.rand(6, d_model, dtype=dtype))).requires_grad_()
    wanted, upstream = [x, *norm.parameters()], torch.randn(6, d_model, dtype=dtype)
    torch.testing.assert_close(norm.by_hand(x), norm(x), atol=digits, rtol=digits)
    by_hand, kernel = (torch.autograd.grad(way(x), wanted, upstream) for way in (norm.by_hand, norm))
    for ours, theirs in zip(by_hand, kernel, strict=True):
        torch.testing.assert_close(ours, theirs, atol=5 * digits, rtol=5 * digits)  # sums over six tokens


PAIRS = {
    "LayerNorm": lambda: (LayerNorm(6), nn.LayerNorm(6)),
    "LayerNorm without bias": lambda: (LayerNorm(6, bias=False), nn.LayerNorm(6, bias=False)),
    "RMSNorm": lambda: (RMSNorm(6), nn.RMSNorm(6, eps=1e-6)),
    "LLaMA's RMSNorm": lambda: (RMSNorm(6, eps=1e-5), LlamaRMSNorm(6, eps=1e-5)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("pair", PAIRS)
def test_it_equals_the_reference_in_values_and_gradients(pair, dtype):
    ours, theirs = PAIRS[pair]()
    with_real_weights(ours)
    theirs.load_state_dict(ours.state_dict())
    ours, theirs = ours.to(dtype), theirs.to(dtype)
    x1 = torch.randn(3, 4, 6, dtype=dtype, requires_grad=True)
    x2 = x1.detach().clone().requires_grad_()
    upstream = torch.randn(3, 4, 6, dtype=dtype)
    ours(x1).backward(upstream)
    theirs(x2).backward(upstream)
    # LLaMA's computes in float32 whatever it is given; the others to the last digits of their dtype.
    digits = {"atol": 1e-6, "rtol": 1e-6} if pair.startswith("LLaMA") else {}
    torch.testing.assert_close(ours(x1), theirs(x2), **digits)
    torch.testing.assert_close(x1.grad, x2.grad, **digits)
    for mine, reference in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, reference.grad, **digits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_loses_no_more_than_the_rounding_of_its_result(dtype):
    x = (300 * torch.randn(50, 64)).to(dtype)  # squares beyond float16's largest number, 65504
    for norm in (with_real_weights(RMSNorm(64)), with_real_weights(LayerNorm(64))):
        low = norm.to(dtype)(x)
        assert low.dtype == dtype
        last_digit = torch.finfo(dtype).eps
        torch.testing.assert_close(low.double(), norm.double()(x.double()), rtol=2 * last_digit, atol=2 * last_digit)


def test_the_example_of_the_chapter_by_hand():
    x = torch.tensor([10.0, 20.0, 30.0, 40.0])
    # mean 25, variance 125: −15, −5, 5, 15 over sqrt(125)
    torch.testing.assert_close(LayerNorm(4)(x), torch.tensor([-15.0, -5.0, 5.0, 15.0]) / 125**0.5)


@given(scale=st.floats(0.5, 1000), shift=st.floats(-100, 100), seed=st.integers(0, 99))
def test_it_does_not_notice_the_scale_and_shift_of_a_token(scale, shift, seed):
    torch.manual_seed(seed)
    norm = with_real_weights(LayerNorm(16, eps=1e-12)).double()
    x = torch.randn(3, 16, dtype=torch.float64)
    torch.testing.assert_close(norm(scale * x + shift), norm(x), atol=1e-6, rtol=1e-6)


@given(scale=st.floats(0.5, 1000), seed=st.integers(0, 99))
def test_rms_norm_does_not_notice_the_scale_of_a_token_but_its_shift(scale, seed):
    torch.manual_seed(seed)
    norm = with_real_weights(RMSNorm(16, eps=1e-12)).double()
    x = torch.randn(3, 16, dtype=torch.float64)
    torch.testing.assert_close(norm(scale * x), norm(x), atol=1e-6, rtol=1e-6)
    assert (norm(x + scale) - norm(x)).abs().max() > 0.1


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_token_of_zeros_stays_zero_with_finite_gradients():
    norm, x = with_real_weights(RMSNorm(5)), torch.zeros(2, 5, requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True):
        y = norm(x)
        y.sum().backward()
    assert (y == 0).all()
    assert x.grad.isfinite().all()


def test_equal_features_give_the_bias_rather_than_nan():
    norm = with_real_weights(LayerNorm(5))
    torch.testing.assert_close(norm(torch.full((2, 5), 3.0)), norm.bias.expand(2, 5))


@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_each_token_is_normalized_by_itself(kind):
    norm = with_real_weights(kind(5))
    x = torch.randn(2, 3, 5)
    changed = x.clone()
    changed[0, 1] *= 100
    same = torch.ones(2, 3, dtype=torch.bool)
    same[0, 1] = False
    assert torch.equal(norm(x)[same], norm(changed)[same])


@pytest.mark.usefixtures("as_a_learner")
@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
class TestBadInput:
    @pytest.mark.parametrize("d_model", [0, -3, 2.0])
    def test_d_model_must_be_a_whole_number_of_at_least_one(self, kind, d_model):
        with pytest.raises(ValueError, match="d_model must be"):
            kind(d_model)

    def test_a_wrong_number_of_features_is_refused(self, kind):
        with pytest.raises(ValueError, match=r"shape \(2, 5\).*d_model=4"):
            kind(4)(torch.randn(2, 5))

    @pytest.mark.parametrize("eps", [0.0, -1e-5, float("nan"), float("inf"), "1e-5"])
    def test_eps_must_be_positive_or_equal_features_would_give_nan(self, kind, eps):
        with pytest.raises(ValueError, match="eps must be a positive number, got"):
            kind(4, eps=eps)

    def test_lists_are_no_tensors(self, kind):
        with pytest.raises(TypeError, match=r"^x must be a tensor, got list: .*torch\.tensor\(x\)"):
            kind(2)([[1.0, 2.0]])
