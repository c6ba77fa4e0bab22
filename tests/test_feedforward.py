"""The feed-forward network against its formula."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.feedforward import FeedForward

# Written out from the papers, in float64, without torch.nn.functional.
FORMULAS = {
    "relu": lambda x: x * (x > 0),
    "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


@pytest.mark.parametrize("activation", FORMULAS)
@given(
    d_model=st.integers(1, 8), d_ff=st.integers(1, 16), T=st.integers(0, 5), bias=st.booleans(), seed=st.integers(0, 99)
)
def test_the_output_follows_the_formula(activation, d_model, d_ff, T, bias, seed):
    torch.manual_seed(seed)
    module = FeedForward(d_model, d_ff, activation, bias=bias).double()
    x = 3 * torch.randn(2, T, d_model, dtype=torch.float64)
    up, down = module.up_proj, module.down_proj
    hidden = FORMULAS[activation](x @ up.weight.T + (up.bias if bias else 0))
    torch.testing.assert_close(module(x), hidden @ down.weight.T + (down.bias if bias else 0))


def test_exact_and_approximate_gelu_differ_but_hardly():
    exact, approximate = FeedForward(1, 64, "gelu"), FeedForward(1, 64, "gelu_tanh")
    approximate.load_state_dict(exact.state_dict())
    x = torch.linspace(-4, 4, 101)[:, None]
    difference = (exact(x) - approximate(x)).abs().max().item()
    assert 1e-6 < difference < 5e-3


def test_unless_told_otherwise_the_hidden_layer_is_four_times_as_wide():
    module = FeedForward(6)
    assert module.up_proj.weight.shape == (24, 6)
    assert module.down_proj.weight.shape == (6, 24)


def test_tokens_do_not_see_each_other():
    module = FeedForward(5, 9)
    x = torch.randn(2, 4, 5)
    one_by_one = torch.stack([torch.stack([module(token) for token in row]) for row in x])
    torch.testing.assert_close(module(x), one_by_one)


def test_dropout_acts_on_hidden_units_and_only_while_training():
    module = FeedForward(4, 2000, dropout=0.5)
    x = torch.randn(1, 4)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))
    undropped = FeedForward(4, 2000)
    undropped.load_state_dict(module.state_dict())
    torch.testing.assert_close(module(x), undropped(x))


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    def test_an_unknown_activation_lists_the_known_ones(self):
        with pytest.raises(
            ValueError, match="activation='swish' is not known: choose one of 'relu', 'gelu', 'gelu_tanh'"
        ):
            FeedForward(4, activation="swish")

    def test_a_wrong_number_of_features_is_refused(self):
        with pytest.raises(ValueError, match=r"shape \(2, 3\).*d_model=4"):
            FeedForward(4)(torch.randn(2, 3))

    @pytest.mark.parametrize("sizes", [(0,), (4, 0), (4, 2.5)])
    def test_sizes_must_be_whole_numbers_of_at_least_one(self, sizes):
        with pytest.raises(ValueError, match="at least 1"):
            FeedForward(*sizes)

    @pytest.mark.parametrize("dropout", [-0.1, 1.0, "0.1", float("nan")])
    def test_dropout_must_be_a_probability_below_one(self, dropout):
        with pytest.raises(ValueError, match=r"dropout must be a number in \[0, 1\)"):
            FeedForward(4, dropout=dropout)
