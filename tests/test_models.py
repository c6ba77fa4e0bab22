"""The decoder-only model: against a stack of PyTorch's layers, and by the properties that make it a language model."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib.config import TransformerConfig, preset
from course_lib.models import DecoderOnly, evaluating

CONFIG = TransformerConfig(vocab_size=31, d_model=12, n_heads=3, n_layers=2, max_seq_len=10, d_ff=20)


def model_with_real_weights(config=CONFIG, seed=0):
    torch.manual_seed(seed)
    model = DecoderOnly(config)
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.05, std=0.5)
    return model


def ids_for(model, B, T):
    return torch.randint(model.config.vocab_size, (B, T))


@pytest.mark.parametrize("tie_weights", [True, False])
def test_the_model_equals_a_stack_of_pytorchs_layers(tie_weights):
    model = model_with_real_weights(dataclasses.replace(CONFIG, tie_weights=tie_weights))
    ids = ids_for(model, 3, 7)
    x = F.embedding(ids, model.token_embedding.weight) + model.positions.weight[:7]
    for block in model.blocks:
        layer = nn.TransformerEncoderLayer(12, 3, 20, dropout=0, activation="gelu", batch_first=True, norm_first=True)
        attention = block.attention
        with torch.no_grad():
            projections = (attention.q_proj, attention.k_proj, attention.v_proj)
            layer.self_attn.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
            layer.self_attn.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        layer.self_attn.out_proj.load_state_dict(attention.out_proj.state_dict())
        layer.norm1.load_state_dict(block.norm1.state_dict())
        layer.norm2.load_state_dict(block.norm2.state_dict())
        layer.linear1.load_state_dict(block.feed_forward.up_proj.state_dict())
        layer.linear2.load_state_dict(block.feed_forward.down_proj.state_dict())
        x = layer(x, src_mask=torch.ones(7, 7, dtype=torch.bool).triu(1))
    x = F.layer_norm(x, (12,), model.final_norm.weight, model.final_norm.bias)
    head = model.token_embedding.weight if tie_weights else model.output.weight
    torch.testing.assert_close(model(ids), x @ head.T, atol=2e-5, rtol=1e-4)


@given(
    B=st.integers(1, 3),
    T=st.integers(2, 10),
    positions=st.sampled_from(["none", "sinusoidal", "learned"]),
    data=st.data(),
    seed=st.integers(0, 99),
)
def test_changing_a_later_token_leaves_earlier_outputs_alone(B, T, positions, data, seed):
    model = model_with_real_weights(dataclasses.replace(CONFIG, positions=positions), seed)
    t = data.draw(st.integers(1, T - 1))
    ids = ids_for(model, B, T)
    changed = ids.clone()
    changed[:, t] = (ids[:, t] + 1) % CONFIG.vocab_size
    before, after = model(ids), model(changed)
    assert torch.equal(before[:, :t], after[:, :t])
    assert (before[:, t:] != after[:, t:]).any(-1).all()


@pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned"])
def test_the_gradient_reaches_every_earlier_token_and_no_later_one(positions):
    model = model_with_real_weights(dataclasses.replace(CONFIG, positions=positions))
    x = torch.randn(1, 6, 12, requires_grad=True)
    y = model.positions(x)
    for block in model.blocks:
        y = block(y)
    logits = model.output(model.final_norm(y))
    for t in range(6):
        (gradient,) = torch.autograd.grad(logits[0, t].square().sum(), x, retain_graph=True)
        assert (gradient[0, t + 1 :] == 0).all()
        assert (gradient[0, : t + 1].norm(dim=-1) > 1e-6).all()


@pytest.mark.parametrize(("n_layers", "order_is_visible"), [(1, False), (2, True)])
def test_without_positions_two_causal_blocks_see_the_order_of_the_past_and_one_does_not(n_layers, order_is_visible):
    config = dataclasses.replace(CONFIG, positions="none", n_layers=n_layers)
    model = model_with_real_weights(config).double()
    dog_bites_man, man_bites_dog = torch.tensor([[3, 7, 5, 9]]), torch.tensor([[5, 7, 3, 9]])
    difference = (model(dog_bites_man)[0, -1] - model(man_bites_dog)[0, -1]).abs().max().item()
    assert (difference > 1e-3) == order_is_visible
    assert order_is_visible or difference < 1e-12


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_with_positions_one_block_sees_the_order(positions):
    model = model_with_real_weights(dataclasses.replace(CONFIG, positions=positions, n_layers=1))
    nn.init.normal_(model.token_embedding.weight)
    difference = model(torch.tensor([[3, 7, 5, 9]]))[0, -1] - model(torch.tensor([[5, 7, 3, 9]]))[0, -1]
    assert difference.abs().max() > 1e-3


def test_rows_of_a_batch_do_not_see_each_other():
    model = model_with_real_weights()
    ids = ids_for(model, 4, 6)
    one_by_one = torch.cat([model(row[None]) for row in ids])
    torch.testing.assert_close(model(ids), one_by_one, atol=2e-5, rtol=1e-4)


def test_the_loss_is_the_mean_surprise_in_nats_of_the_targets_that_count():
    model = model_with_real_weights()
    ids = ids_for(model, 2, 5)
    targets = torch.tensor([[4, -100, 0, 30, 2], [-100, -100, 7, 7, -100]])
    logits, loss = model(ids, targets)
    assert torch.equal(logits, model(ids))
    probabilities = logits.double().softmax(-1)
    surprise = [
        -math.log(probabilities[b, t, targets[b, t]].item()) for b in range(2) for t in range(5) if targets[b, t] >= 0
    ]
    assert len(surprise) == 6
    assert loss.item() == pytest.approx(sum(surprise) / 6, rel=1e-5)


def test_ignored_targets_send_no_gradient():
    model = model_with_real_weights()
    ids = ids_for(model, 1, 5)
    _, loss = model(ids, torch.tensor([[3, 4, -100, -100, -100]]))
    loss.backward()
    assert (model.positions.weight.grad[2:] == 0).all()
    assert (model.positions.weight.grad[:2] != 0).any(-1).all()


@pytest.mark.parametrize("tie_weights", [True, False])
def test_an_untrained_model_guesses_evenly(tie_weights):
    config = dataclasses.replace(preset("tinytown"), vocab_size=1000, tie_weights=tie_weights)
    model = DecoderOnly(config)
    ids = torch.randint(1000, (4, 64))
    _, loss = model(ids, torch.randint(1000, (4, 64)))
    assert loss.item() == pytest.approx(math.log(1000), rel=0.02)


def test_the_initial_weights_have_gpt2s_spread():
    config = TransformerConfig(vocab_size=500, d_model=128, n_heads=4, n_layers=8, max_seq_len=200, tie_weights=False)
    model = DecoderOnly(config)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith("bias"):
            assert (parameter == 0).all(), name
        else:
            writes_to_stream = name.endswith(("out_proj.weight", "down_proj.weight"))
            expected = 0.02 / 4 if writes_to_stream else 0.02  # sqrt(2 · 8 layers) = 4
            assert parameter.std().item() == pytest.approx(expected, rel=0.03), name
            assert abs(parameter.mean().item()) < 0.03 * expected, name


def test_tied_weights_are_one_tensor_with_one_gradient():
    tied, untied = DecoderOnly(CONFIG), DecoderOnly(dataclasses.replace(CONFIG, tie_weights=False))
    assert tied.output.weight is tied.token_embedding.weight
    assert untied.output.weight is not untied.token_embedding.weight
    tied_count, untied_count = (sum(p.numel() for p in model.parameters()) for model in (tied, untied))
    assert untied_count - tied_count == 31 * 12


def test_attention_weights_are_those_of_the_forward_pass():
    model = model_with_real_weights(dataclasses.replace(CONFIG, dropout=0.5)).train()
    ids = ids_for(model, 2, 6)
    weights = model.attention_weights(ids)
    assert model.training
    model.eval()
    assert len(weights) == 2
    x = model.positions(model.token_embedding(ids))
    for block, ours in zip(model.blocks, weights):
        projections = (block.attention.q_proj, block.attention.k_proj)
        query, key = (proj(block.norm1(x)).unflatten(-1, (3, 4)).transpose(1, 2) for proj in projections)
        identity = torch.eye(6).expand(2, 3, 6, 6)  # with the identity for values, attention returns its weights
        expected = F.scaled_dot_product_attention(query, key, identity, is_causal=True)
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-4)
        assert not ours.requires_grad
        x = block(x)


def test_the_model_computes_in_the_dtype_of_its_weights():
    model = model_with_real_weights(dataclasses.replace(CONFIG, positions="sinusoidal"))
    ids = ids_for(model, 1, 4)
    single, double = model(ids), model.double()(ids)
    assert double.dtype == torch.float64
    torch.testing.assert_close(single, double.float(), atol=2e-5, rtol=1e-4)


def test_saved_weights_bring_back_the_same_model():
    model, other = model_with_real_weights(seed=1), model_with_real_weights(seed=2)
    ids = ids_for(model, 2, 5)
    assert not torch.allclose(model(ids), other(ids))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(ids), other(ids))


def test_without_biases_no_bias_is_left():
    model = DecoderOnly(dataclasses.replace(CONFIG, bias=False))
    assert [name for name, _ in model.named_parameters() if name.endswith("bias")] == []


def test_evaluating_gives_every_module_its_mode_back_even_after_an_error():
    model = DecoderOnly(dataclasses.replace(CONFIG, dropout=0.5)).train()
    model.blocks[0].eval()  # a frozen part
    modes = [module.training for module in model.modules()]
    ids = ids_for(model, 1, 4)
    with evaluating(model):
        assert torch.equal(model(ids), model(ids))
        assert not model(ids).requires_grad
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(ValueError, match="hold no token"), evaluating(model):
        model(ids[:0])
    assert [module.training for module in model.modules()] == modes
    assert model(ids).requires_grad


def test_a_position_that_is_not_built_is_refused_with_what_is_available():
    for positions in ("rope", "alibi"):
        with pytest.raises(
            ValueError, match=f"positions='{positions}' cannot be built yet: available are 'none', 'sin"
        ):
            DecoderOnly(dataclasses.replace(CONFIG, positions=positions))
    with pytest.raises(ValueError, match="family='encoder' cannot be built yet"):
        DecoderOnly(preset("bert-base"))


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    @pytest.mark.parametrize(
        ("ids", "message"),
        [
            (torch.zeros(5, dtype=torch.long), r"\(B, T\), got \(5,\)"),
            (torch.zeros(1, 2, 3, dtype=torch.long), r"\(B, T\), got \(1, 2, 3\)"),
            (torch.zeros(2, 0, dtype=torch.long), "hold no token"),
            (torch.zeros(0, 2, dtype=torch.long), "hold no token"),
            (torch.zeros(1, 11, dtype=torch.long), "11 tokens per row, more than max_seq_len=10"),
            (torch.tensor([[1, 31]]), "ids contain 31, .* from 0 to 30"),
            (torch.tensor([[-1, 3]]), "ids contain -1"),
            (torch.zeros(1, 2), "whole numbers"),
        ],
    )
    @pytest.mark.parametrize("positions", ["none", "sinusoidal", "learned"])
    def test_ids_that_make_no_sense_are_refused(self, positions, ids, message):
        model = DecoderOnly(dataclasses.replace(CONFIG, positions=positions))
        for use in (model, model.attention_weights):
            with pytest.raises(ValueError, match=message):
                use(ids)

    @pytest.mark.parametrize(
        ("targets", "message"),
        [
            (torch.tensor([[1, 2]]), r"the shape of ids, \(1, 3\), got \(1, 2\)"),
            (torch.tensor([1, 2, 3]), "the shape of ids"),
            (torch.tensor([[1, 31, 2]]), "targets contain 31"),
            (torch.tensor([[1, -1, 2]]), "targets contain -1"),
            (torch.tensor([[-100, -100, -100]]), "nothing to predict"),
            (torch.tensor([[1.0, 2.0, 3.0]]), "targets must be whole numbers"),
        ],
    )
    def test_targets_that_make_no_sense_are_refused(self, targets, message):
        with pytest.raises(ValueError, match=message):
            DecoderOnly(CONFIG)(torch.tensor([[1, 2, 3]]), targets)
