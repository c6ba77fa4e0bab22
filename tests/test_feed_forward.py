"""The feed-forward networks against their formulas and LLaMA's."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import GemmaConfig, LlamaConfig, MixtralConfig, Qwen3MoeConfig
from transformers.models.gemma.modeling_gemma import GemmaMLP
from transformers.models.llama.modeling_llama import LlamaMLP
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock, load_balancing_loss_func
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

from course_lib.chapters.feed_forward import fixtures
from course_lib.chapters.feed_forward.exercises.swiglu import swiglu
from course_lib.config import preset
from course_lib.feed_forward import FeedForward, GeGLU, MixtureOfExperts, SwiGLU, load_balance_loss, swiglu_width
from course_lib.grading import EXERCISES

# Written out from the papers, in float64, without torch.nn.functional.
FORMULAS = {
    "relu": lambda x: x * (x > 0),
    "silu": lambda x: x / (1 + torch.exp(-x)),
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


@pytest.mark.parametrize("kind", [FeedForward, SwiGLU])
def test_tokens_do_not_see_each_other(kind):
    module = kind(5, 9)
    x = torch.randn(2, 4, 5)
    one_by_one = torch.stack([torch.stack([module(token) for token in row]) for row in x])
    torch.testing.assert_close(module(x), one_by_one)


@pytest.mark.parametrize("kind", [FeedForward, SwiGLU])
def test_dropout_acts_on_hidden_units_and_only_while_training(kind):
    module = kind(4, 2000, dropout=0.5)
    x = torch.randn(1, 4)
    assert not torch.equal(module(x), module(x))
    module.eval()
    assert torch.equal(module(x), module(x))
    undropped = kind(4, 2000)
    undropped.load_state_dict(module.state_dict())
    torch.testing.assert_close(module(x), undropped(x))


@given(
    d_model=st.integers(1, 8), d_ff=st.integers(1, 16), T=st.integers(0, 5), bias=st.booleans(), seed=st.integers(0, 99)
)
def test_swiglu_follows_its_formula(d_model, d_ff, T, bias, seed):
    torch.manual_seed(seed)
    module = SwiGLU(d_model, d_ff, bias=bias).double()
    x = 3 * torch.randn(2, T, d_model, dtype=torch.float64)
    gate, up, down = (
        lambda z, layer=layer: z @ layer.weight.T + (layer.bias if bias else 0)
        for layer in (module.gate_proj, module.up_proj, module.down_proj)
    )
    expected = down(gate(x) / (1 + torch.exp(-gate(x))) * up(x))
    torch.testing.assert_close(module(x), expected, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_swiglu_is_llamas_in_values_and_gradients(bias, dtype, tolerance):
    ours = SwiGLU(6, 10, bias=bias).to(dtype)
    theirs = LlamaMLP(LlamaConfig(hidden_size=6, num_attention_heads=1, intermediate_size=10, mlp_bias=bias)).to(dtype)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, 4, 6, dtype=dtype, requires_grad=True)
    upstream = torch.randn(3, 4, 6, dtype=dtype)
    names = list(dict(ours.named_parameters()))
    results = []
    for module in (ours, theirs):
        y = module(x)
        parameters = dict(module.named_parameters())
        results.append([y, *torch.autograd.grad(y, [x, *(parameters[name] for name in names)], upstream)])
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)


def test_geglu_is_gemmas_and_its_formula_has_gelu_instead_of_silu():
    ours = GeGLU(6, 10)
    theirs = GemmaMLP(GemmaConfig(hidden_size=6, num_attention_heads=1, intermediate_size=10))
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(3, 4, 6)
    torch.testing.assert_close(ours(x), theirs(x), atol=1e-6, rtol=0)
    gate, up, down = (layer.weight for layer in (ours.gate_proj, ours.up_proj, ours.down_proj))
    torch.testing.assert_close(ours(x), (FORMULAS["gelu_tanh"](x @ gate.T) * (x @ up.T)) @ down.T)


def test_a_closed_gate_lets_nothing_through():
    module = SwiGLU(4, 8, bias=True)
    torch.nn.init.constant_(module.gate_proj.bias, -1e4)
    torch.testing.assert_close(module(torch.randn(3, 4)), module.down_proj.bias.expand(3, 4))


@given(d_model=st.integers(1, 9000), multiple_of=st.sampled_from([1, 2, 7, 64, 256]))
def test_the_width_of_swiglu_is_eight_thirds_of_d_model_rounded_up(d_model, multiple_of):
    width = swiglu_width(d_model, multiple_of)
    assert width % multiple_of == 0
    assert 3 * (width - multiple_of) < 8 * d_model <= 3 * width  # whole numbers, so exact


def test_swiglu_has_the_width_of_the_rule_unless_told_otherwise():
    assert swiglu_width(4096) == preset("llama-7b").d_ff
    assert SwiGLU(100).up_proj.weight.shape == (512, 100)
    assert SwiGLU(100, multiple_of=8).gate_proj.weight.shape == (272, 100)
    three, two = (sum(p.numel() for p in module.parameters()) for module in (SwiGLU(96), FeedForward(96, bias=False)))
    assert three == two  # 3 · 96 · 256 = 2 · 96 · 384


def mixed_by_hand(module, x):
    """The formula of MixtureOfExperts, token by token and in plain numbers; the experts are tested above."""
    y = torch.zeros_like(x)
    for place in torch.cartesian_prod(*map(torch.arange, x.shape[:-1])):
        token = x[*place]
        scores = [(row @ token).item() for row in module.router.weight]
        exps = [math.exp(score) for score in scores]
        best = sorted(range(len(scores)), key=scores.__getitem__)[-module.experts_per_token :]
        total = sum(exps[e] for e in best) if module.norm_topk_prob else sum(exps)
        y[*place] = sum(exps[e] / total * module.experts[e](token) for e in best)
    return y


@given(
    n_experts=st.integers(1, 6), k=st.integers(1, 6), bias=st.booleans(), norm=st.booleans(), seed=st.integers(0, 99)
)
def test_a_mixture_follows_its_formula_token_by_token(n_experts, k, bias, norm, seed):
    torch.manual_seed(seed)
    module = MixtureOfExperts(4, 5, n_experts, min(k, n_experts), norm, bias).double()
    x = 3 * torch.randn(2, 3, 4, dtype=torch.float64)
    torch.testing.assert_close(module(x), mixed_by_hand(module, x), atol=1e-12, rtol=1e-10)


def test_a_token_reaches_its_own_experts_only():
    """Its gradient reaches k experts and every row of the router."""
    module = MixtureOfExperts(4, 5, n_experts=6, experts_per_token=2)
    x = torch.randn(4)
    module(x).sum().backward()
    chosen = module.route(x[None])[1][0].tolist()
    reached = [e for e, expert in enumerate(module.experts) if expert.up_proj.weight.grad is not None]
    assert reached == sorted(chosen)
    assert module.router.weight.grad.any()


def test_all_experts_with_weights_that_add_up_to_one_make_their_mean_if_the_router_is_even():
    module = MixtureOfExperts(4, 5, n_experts=3, experts_per_token=3)
    torch.nn.init.zeros_(module.router.weight)
    x = torch.randn(2, 7, 4)
    torch.testing.assert_close(module(x), sum(expert(x) for expert in module.experts) / 3)


def test_one_expert_is_a_swiglu_and_no_tokens_are_no_mistake():
    module = MixtureOfExperts(4, 5, n_experts=1, experts_per_token=1)
    x = torch.randn(3, 4)
    torch.testing.assert_close(module(x), module.experts[0](x))
    assert module(torch.randn(2, 0, 4)).shape == (2, 0, 4)


@pytest.mark.parametrize("norm", [True, False])
def test_a_mixture_is_qwens_in_values_and_gradients(norm):
    sizes = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 7, "norm_topk_prob": norm}
    config = Qwen3MoeConfig(hidden_size=6, num_attention_heads=1, experts_implementation="eager", **sizes)
    ours, theirs = MixtureOfExperts(6, 7, 5, 2, norm_topk_prob=norm), Qwen3MoeSparseMoeBlock(config)
    with torch.no_grad():
        theirs.gate.weight.copy_(ours.router.weight)
        for e, expert in enumerate(ours.experts):
            theirs.experts.gate_up_proj[e] = torch.cat([expert.gate_proj.weight, expert.up_proj.weight])
            theirs.experts.down_proj[e] = expert.down_proj.weight
    x = torch.randn(3, 4, 6, requires_grad=True)
    upstream = torch.randn(3, 4, 6)
    y, their_y = ours(x), theirs(x)
    torch.testing.assert_close(y, their_y, atol=1e-6, rtol=0)
    found = torch.autograd.grad(y, [x, ours.router.weight], upstream)
    expected = torch.autograd.grad(their_y, [x, theirs.gate.weight], upstream)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("n_experts", "k"), [(5, 1), (5, 2), (8, 3), (4, 4)])
def test_the_router_of_the_exercise_makes_mixtrals_layer_and_that_of_a_loop_over_tokens(n_experts, k):
    sizes = {"hidden_size": 6, "intermediate_size": 6, "num_local_experts": n_experts, "num_experts_per_tok": k}
    theirs = MixtralSparseMoeBlock(MixtralConfig(num_attention_heads=1, experts_implementation="eager", **sizes))
    networks = [[2 * torch.randn(6, 6).mT for _ in range(3)] for _ in range(n_experts)]
    with torch.no_grad():
        theirs.gate.weight.normal_()
        for e, (W_gate, W_up, W_down) in enumerate(networks):
            theirs.experts.gate_up_proj[e] = torch.cat([W_gate.T, W_up.T])
            theirs.experts.down_proj[e] = W_down.T
        x = torch.randn(9, 6)
        weights, experts = EXERCISES["feed_forward.router"].reference(x, theirs.gate.weight, k)
        loop = [
            sum(w * swiglu(token, *networks[e]) for w, e in zip(chosen, who.tolist()))
            for token, chosen, who in zip(x, weights, experts)
        ]
        torch.testing.assert_close(torch.stack(loop), theirs(x[None])[0], atol=1e-4, rtol=1e-5)


def test_the_layer_that_judges_the_router_is_a_loop_over_tokens():
    x, W = torch.randn(7, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    weights, experts = EXERCISES["feed_forward.router"].reference(x, W, 2)
    loop = [
        sum(w * fixtures.expert(token[None], e)[0] for w, e in zip(chosen, who.tolist()))
        for token, chosen, who in zip(x, weights, experts)
    ]
    torch.testing.assert_close(fixtures.layer_of(x, weights, experts, len(W)), torch.stack(loop))


def test_in_16_bits_under_autocast_a_mixture_keeps_the_dtype_of_its_input():
    module = MixtureOfExperts(8, 6, n_experts=3, experts_per_token=2)
    x = torch.randn(2, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        y = module(x)
    assert y.dtype == x.dtype
    torch.testing.assert_close(y, module(x), atol=0.02, rtol=0.05)
    assert module.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.parametrize(("n_experts", "k"), [(5, 1), (5, 2), (8, 3)])
def test_the_load_balancing_loss_is_mixtrals_in_values_and_gradients(n_experts, k):
    scores = torch.randn(3, 20, n_experts, requires_grad=True)
    ours = load_balance_loss(scores, k)
    theirs = load_balancing_loss_func((scores.flatten(0, 1),), n_experts, k) / k  # theirs counts a token k times
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, scores)[0] for loss in (ours, theirs)))


def test_the_load_balancing_loss_is_1_for_equal_loads_and_the_number_of_experts_if_one_takes_all():
    assert load_balance_loss(30 * torch.eye(4)).item() == pytest.approx(1)
    assert load_balance_loss(torch.tensor([[30.0, 0, 0, 0]]).repeat(5, 1)).item() == pytest.approx(4)


def test_the_load_balancing_loss_lowers_the_scores_of_the_busy_expert():
    scores = torch.tensor([[0.2, 0.0, 0.0], [0.1, 0.0, 0.0], [0.0, 0.0, 0.3]], requires_grad=True)
    load_balance_loss(scores).backward()
    assert (scores.grad[:, 0] > 0).all()
    assert (scores.grad[:, 1] < 0).all()


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    def test_a_token_cannot_have_more_experts_than_there_are(self):
        with pytest.raises(ValueError, match="experts_per_token=4 must be at most n_experts=3"):
            MixtureOfExperts(4, 5, n_experts=3, experts_per_token=4)

    @pytest.mark.parametrize("scores", [torch.tensor(1.0), torch.zeros(0, 3), torch.ones(4, 3, dtype=torch.int64)])
    def test_the_load_of_no_tokens_or_of_whole_numbers_is_refused(self, scores):
        with pytest.raises(ValueError, match="scores must be floating point, with one row for each token"):
            load_balance_loss(scores)

    def test_an_unknown_activation_lists_the_known_ones(self):
        with pytest.raises(
            ValueError, match="activation='swish' is not known: choose one of 'relu', 'silu', 'gelu', 'gelu_tanh'"
        ):
            FeedForward(4, activation="swish")

    @pytest.mark.parametrize("kind", [FeedForward, SwiGLU])
    def test_a_wrong_number_of_features_is_refused(self, kind):
        with pytest.raises(ValueError, match=r"shape \(2, 3\).*d_model=4"):
            kind(4)(torch.randn(2, 3))

    @pytest.mark.parametrize("sizes", [(0,), (4, 0), (4, 2.5)])
    @pytest.mark.parametrize("kind", [FeedForward, SwiGLU])
    def test_sizes_must_be_whole_numbers_of_at_least_one(self, kind, sizes):
        with pytest.raises(ValueError, match="at least 1"):
            kind(*sizes)

    def test_a_width_is_rounded_to_a_whole_number_of_at_least_one(self):
        with pytest.raises(ValueError, match="multiple_of must be"):
            SwiGLU(4, multiple_of=0)

    @pytest.mark.parametrize("dropout", [-0.1, 1.0, "0.1", float("nan")])
    @pytest.mark.parametrize("kind", [FeedForward, SwiGLU])
    def test_dropout_must_be_a_probability_below_one(self, kind, dropout):
        with pytest.raises(ValueError, match=r"dropout must be a number in \[0, 1\)"):
            kind(4, dropout=dropout)

    @pytest.mark.parametrize("kind", [FeedForward, SwiGLU])
    def test_lists_are_no_tensors(self, kind):
        with pytest.raises(TypeError, match=r"^x must be a tensor, got list: .*torch\.tensor\(x\)"):
            kind(2)([[1.0, 2.0]])
