"""The block against PyTorch's encoder layer, and the residual stream that runs through it."""

import dataclasses

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from course_lib.blocks import TransformerBlock
from course_lib.config import TransformerConfig
from course_lib.masks import causal_mask, padding_mask
from course_lib.positions import LearnedPositions

CONFIG = TransformerConfig(vocab_size=50, d_model=12, n_heads=3, n_layers=2, max_seq_len=16, d_ff=20)
BIDIRECTIONAL = dataclasses.replace(CONFIG, family="encoder")


def block_with_real_weights(config):
    block = TransformerBlock(config)
    for parameter in block.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.4)
    return block


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("config", [CONFIG, BIDIRECTIONAL], ids=["causal", "bidirectional"])
@pytest.mark.parametrize("padded", [False, True])
def test_the_block_equals_pytorchs_layer_with_the_norm_first(activation, config, padded):
    config = dataclasses.replace(config, activation=activation)
    ours = block_with_real_weights(config)
    theirs = nn.TransformerEncoderLayer(
        config.d_model,
        config.n_heads,
        config.d_ff,
        dropout=0.0,
        activation=activation,
        batch_first=True,
        norm_first=True,
    )
    attention = ours.attention
    with torch.no_grad():
        theirs.self_attn.in_proj_weight.copy_(
            torch.cat([attention.q_proj.weight, attention.k_proj.weight, attention.v_proj.weight])
        )
        theirs.self_attn.in_proj_bias.copy_(
            torch.cat([attention.q_proj.bias, attention.k_proj.bias, attention.v_proj.bias])
        )
    theirs.self_attn.out_proj.load_state_dict(attention.out_proj.state_dict())
    theirs.norm1.load_state_dict(ours.norm1.state_dict())
    theirs.norm2.load_state_dict(ours.norm2.state_dict())
    theirs.linear1.load_state_dict(ours.feed_forward.up_proj.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.down_proj.state_dict())

    x, lengths = torch.randn(3, 6, config.d_model), [6, 3, 1]
    output = ours(x, padding_mask(lengths, 6) if padded else None)
    expected = theirs(
        x,
        src_mask=~causal_mask(6) if config.family == "decoder" else None,
        src_key_padding_mask=~padding_mask(lengths, 6)[:, 0, 0] if padded else None,
    )
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-4)


def test_a_block_whose_branches_are_silent_passes_the_stream_through():
    block = block_with_real_weights(CONFIG)
    for projection in (block.attention.out_proj, block.feed_forward.down_proj):
        nn.init.zeros_(projection.weight)
        nn.init.zeros_(projection.bias)
    x = 100 * torch.randn(2, 5, 12)
    assert torch.equal(block(x), x)


@given(B=st.integers(1, 3), T=st.integers(1, 6), seed=st.integers(0, 99))
def test_asking_for_weights_does_not_change_the_output(B, T, seed):
    torch.manual_seed(seed)
    block = block_with_real_weights(CONFIG)
    x = torch.randn(B, T, 12)
    output, weights = block(x, need_weights=True)
    torch.testing.assert_close(output, block(x), atol=1e-5, rtol=1e-4)
    assert weights.shape == (B, 3, T, T)
    torch.testing.assert_close(weights.sum(-1), torch.ones(B, 3, T))


def test_without_positions_a_bidirectional_block_only_shuffles_and_with_them_it_notices():
    block = block_with_real_weights(BIDIRECTIONAL).double()
    x, order = torch.randn(2, 6, 12, dtype=torch.float64), torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(block(x[:, order]), block(x)[:, order])
    positions = LearnedPositions(6, 12)
    nn.init.normal_(positions.weight)
    assert (block(positions(x[:, order])) - block(positions(x))[:, order]).abs().max() > 0.1


def test_dropout_acts_on_both_branches_and_only_while_training():
    x = torch.randn(1, 4, 12)
    for silent in ("attention.out_proj", "feed_forward.down_proj"):
        block = block_with_real_weights(dataclasses.replace(CONFIG, dropout=0.5))
        block.attention.dropout = 0.0  # of the weights; here only the branches are watched
        for parameter in block.get_submodule(silent).parameters():
            nn.init.zeros_(parameter)
        assert not torch.equal(block(x), block(x))
        undropped = TransformerBlock(CONFIG)
        undropped.load_state_dict(block.state_dict())
        assert torch.equal(block.eval()(x), undropped(x))


@pytest.mark.parametrize(
    "change",
    [
        {"norm": "rms"},
        {"norm_position": "post"},
        {"activation": "swiglu"},
        {"n_kv_heads": 1},
        {"family": "encoder-decoder"},
    ],
)
def test_a_part_that_is_not_built_is_refused_with_what_is_available(change):
    (field, value), *_ = change.items()
    with pytest.raises(ValueError, match=f"{field}={value!r} cannot be built yet: available are"):
        TransformerBlock(dataclasses.replace(CONFIG, **change))
