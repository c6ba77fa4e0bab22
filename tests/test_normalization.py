"""LayerNorm against its formula, PyTorch's module and its invariances."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib.normalization import LayerNorm


def with_real_weights(norm):
    """A trained norm has neither ones nor zeros."""
    with torch.no_grad():
        norm.weight.uniform_(0.3, 2.0)
        if norm.bias is not None:
            norm.bias.normal_()
    return norm


@given(d_model=st.integers(2, 17), T=st.integers(0, 4), bias=st.booleans(), seed=st.integers(0, 99))
def test_the_output_follows_the_formula_with_the_population_variance(d_model, T, bias, seed):
    torch.manual_seed(seed)
    norm = with_real_weights(LayerNorm(d_model, eps=1e-3, bias=bias)).double()
    x = 5 * torch.randn(2, T, d_model, dtype=torch.float64) + 2
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred**2).sum(-1, keepdim=True) / d_model
    expected = centred / (variance + 1e-3).sqrt() * norm.weight + (norm.bias if bias else 0)
    torch.testing.assert_close(norm(x), expected)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_equals_pytorchs_module_in_values_and_gradients(dtype, bias):
    ours, theirs = with_real_weights(LayerNorm(6, bias=bias)), nn.LayerNorm(6, bias=bias)
    theirs.load_state_dict(ours.state_dict())
    ours, theirs = ours.to(dtype), theirs.to(dtype)
    x1 = torch.randn(3, 4, 6, dtype=dtype, requires_grad=True)
    x2 = x1.detach().clone().requires_grad_()
    upstream = torch.randn(3, 4, 6, dtype=dtype)
    ours(x1).backward(upstream)
    theirs(x2).backward(upstream)
    torch.testing.assert_close(ours(x1), theirs(x2))
    torch.testing.assert_close(x1.grad, x2.grad)
    torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


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


def test_equal_features_give_the_bias_rather_than_nan():
    norm = with_real_weights(LayerNorm(5))
    torch.testing.assert_close(norm(torch.full((2, 5), 3.0)), norm.bias.expand(2, 5))


def test_each_token_is_normalized_by_itself():
    norm = with_real_weights(LayerNorm(5))
    x = torch.randn(2, 3, 5)
    changed = x.clone()
    changed[0, 1] *= 100
    same = torch.ones(2, 3, dtype=torch.bool)
    same[0, 1] = False
    assert torch.equal(norm(x)[same], norm(changed)[same])


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize("d_model", [0, -3, 2.0])
    def test_d_model_must_be_a_whole_number_of_at_least_one(self, d_model):
        with pytest.raises(ValueError, match="d_model must be"):
            LayerNorm(d_model)

    def test_a_wrong_number_of_features_is_refused(self):
        with pytest.raises(ValueError, match=r"shape \(2, 5\).*d_model=4"):
            LayerNorm(4)(torch.randn(2, 5))
