"""The block, part by part, and the stack around it. Against PyTorch's layers: test_parity_torch.py."""

import dataclasses

import pytest
import torch
from helpers import V, configs, draw_ids, seeds, small, with_real_weights
from hypothesis import given
from torch import nn

from course_lib.blocks import Stack, TransformerBlock
from course_lib.feed_forward import FeedForward, SwiGLU
from course_lib.masks import padding_mask
from course_lib.normalization import LayerNorm, RMSNorm
from course_lib.positions import LearnedPositions, alibi_bias, rotary_angles


def real_block(config, cross_attention=False, seed=0):
    return with_real_weights(TransformerBlock(config, cross_attention), seed)


@given(config=configs("decoder"), seed=seeds)
def test_a_block_is_what_its_docstring_says_whatever_the_config(config, seed):
    torch.manual_seed(seed)
    block, x = real_block(config, seed=seed).double(), torch.randn(2, 5, 16, dtype=torch.float64)
    mask = padding_mask([5, 3], 5)
    options = {
        "rotary": rotary_angles(torch.arange(5), 4, dtype=torch.float64) if config.positions == "rope" else None,
        "score_bias": alibi_bias(4, 5) if config.positions in ("alibi", "relative") else None,
    }
    if config.norm_position == "pre":
        y = x + block.attention(block.norm1(x), None, mask, True, **options)
        y = y + block.feed_forward(block.norm2(y))
    else:
        y = block.norm1(x + block.attention(x, None, mask, True, **options))
        y = block.norm2(y + block.feed_forward(y))
    torch.testing.assert_close(block(x, mask, **options), y)


@given(config=configs("encoder-decoder"), seed=seeds)
def test_the_cross_attention_stands_between_the_two_others_and_reads_the_context_as_it_is(config, seed):
    torch.manual_seed(seed)
    block = real_block(config, cross_attention=True, seed=seed).double()
    x, context = (torch.randn(2, length, 16, dtype=torch.float64) for length in (5, 3))
    mask = padding_mask([3, 1], 3)
    if config.norm_position == "pre":
        y = x + block.attention(block.norm1(x), is_causal=True)
        y = y + block.cross_attention(block.cross_norm(y), context, mask)
        y = y + block.feed_forward(block.norm2(y))
    else:
        y = block.norm1(x + block.attention(x, is_causal=True))
        y = block.cross_norm(y + block.cross_attention(y, context, mask))
        y = block.norm2(y + block.feed_forward(y))
    torch.testing.assert_close(block(x, context=context, context_mask=mask), y)


def test_the_config_chooses_the_parts():
    gpt = TransformerBlock(small(activation="gelu_tanh"))
    assert (type(gpt.norm1), type(gpt.norm2), type(gpt.feed_forward)) == (LayerNorm, LayerNorm, FeedForward)
    assert gpt.feed_forward.activation == "gelu_tanh"
    llama = TransformerBlock(
        small(norm="rms", norm_eps=1e-3, activation="swiglu", n_kv_heads=2, bias=False, rope_interleaved=True)
    )
    assert (type(llama.norm1), type(llama.norm2), type(llama.feed_forward)) == (RMSNorm, RMSNorm, SwiGLU)
    assert (llama.norm1.eps, llama.attention.n_kv_heads, llama.attention.rope_interleaved) == (1e-3, 2, True)
    assert [name for name, _ in llama.named_parameters() if name.endswith("bias")] == []
    crossing = TransformerBlock(small("encoder-decoder", norm="rms", n_kv_heads=1), cross_attention=True)
    assert (type(crossing.cross_norm), crossing.cross_attention.n_kv_heads) == (RMSNorm, 1)


@pytest.mark.parametrize(
    ("family", "cross", "is_causal"),
    [
        ("decoder", False, True),
        ("encoder", False, False),
        ("encoder-decoder", False, False),
        ("encoder-decoder", True, True),
    ],
)
def test_who_writes_is_causal_and_who_reads_is_not(family, cross, is_causal):
    block = real_block(small(family), cross)
    x, context = torch.randn(1, 5, 16), torch.randn(1, 3, 16) if cross else None
    changed = x.clone()
    changed[:, 3] += 1
    same = (block(x, context=context) == block(changed, context=context)).all(-1)[0]
    assert same.tolist() == [is_causal] * 3 + [False] * 2


def test_a_block_whose_branches_are_silent_passes_the_stream_through():
    block = real_block(small("encoder-decoder"), cross_attention=True)
    for projection in (block.attention.out_proj, block.cross_attention.out_proj, block.feed_forward.down_proj):
        nn.init.zeros_(projection.weight)
        nn.init.zeros_(projection.bias)
    x = 100 * torch.randn(2, 5, 16)
    assert torch.equal(block(x, context=torch.randn(2, 3, 16)), x)


def test_without_positions_a_bidirectional_block_only_shuffles_and_with_them_it_notices():
    block = real_block(small("encoder")).double()
    x, order = torch.randn(2, 6, 16, dtype=torch.float64), torch.tensor([3, 0, 5, 1, 4, 2])
    torch.testing.assert_close(block(x[:, order]), block(x)[:, order])
    positions = LearnedPositions(6, 16)
    nn.init.normal_(positions.weight)
    assert (block(positions(x[:, order])) - block(positions(x))[:, order]).abs().max() > 0.1


def test_dropout_acts_on_every_branch_and_only_while_training():
    x, context = torch.randn(1, 4, 16), torch.randn(1, 3, 16)
    branches = ("attention.out_proj", "cross_attention.out_proj", "feed_forward.down_proj")
    for loud in branches:
        block = real_block(small("encoder-decoder", dropout=0.5), cross_attention=True)
        block.attention.dropout = block.cross_attention.dropout = 0.0  # of the weights; here the branches are watched
        for silent in set(branches) - {loud}:
            for parameter in block.get_submodule(silent).parameters():
                nn.init.zeros_(parameter)
        assert not torch.equal(block(x, context=context), block(x, context=context)), loud
        undropped = TransformerBlock(small("encoder-decoder"), cross_attention=True)
        undropped.load_state_dict(block.state_dict())
        assert torch.equal(block.eval()(x, context=context), undropped(x, context=context))


@given(config=configs("encoder", n_segments=3), seed=seeds)
def test_a_stack_is_embeddings_then_blocks_then_the_last_norm(config, seed):
    torch.manual_seed(seed)
    stack = with_real_weights(Stack(config), seed).double()
    ids, segments, mask = draw_ids(2, 5), torch.randint(3, (2, 5)), padding_mask([5, 2], 5)
    x = stack.token_embedding.weight[ids]
    if config.positions == "sinusoidal":
        x = x * config.d_model**0.5  # as in Vaswani et al. 2017, section 3.4: beside sinusoids, small rows would drown
    x = x + stack.segment_embedding.weight[segments]
    if config.positions in ("learned", "sinusoidal"):
        x = stack.positions(x)
    if config.norm_position == "post":
        x = stack.embedding_norm(x)
    rotary = rotary_angles(torch.arange(5), 4, dtype=torch.float64) if config.positions == "rope" else None
    score_bias = alibi_bias(4, 5) if config.positions == "alibi" else None
    if config.positions == "relative":
        score_bias = stack.relative_bias(5, 5)
    for block in stack.blocks:
        x = block(x, mask, rotary=rotary, score_bias=score_bias)
    if config.norm_position == "pre":
        x = stack.final_norm(x)
    torch.testing.assert_close(stack(ids, mask, segment_ids=segments), x)


def test_without_segments_all_tokens_belong_to_the_first():
    stack, ids = with_real_weights(Stack(small("encoder", n_segments=2))), draw_ids(2, 5)
    assert torch.equal(stack(ids), stack(ids, segment_ids=torch.zeros_like(ids)))
    assert not torch.allclose(stack(ids), stack(ids, segment_ids=torch.ones_like(ids)), atol=0.01)


@pytest.mark.parametrize(
    ("family", "norm_position", "norms"),
    [
        ("encoder", "pre", ["final_norm"]),
        ("encoder", "post", ["embedding_norm"]),
        ("decoder", "pre", ["final_norm"]),
        ("decoder", "post", []),
        ("encoder-decoder", "pre", ["final_norm"]),
        ("encoder-decoder", "post", []),
    ],
)
def test_norms_outside_the_blocks_stand_where_they_belong(family, norm_position, norms):
    stack = Stack(small(family, norm_position=norm_position))
    assert [name for name, module in stack.named_children() if isinstance(module, LayerNorm)] == norms


def test_rope_turns_with_the_configs_base_and_pairing():
    ids = draw_ids(1, 12)
    outputs = []
    for change in ({}, {"rope_theta": 100.0}, {"rope_interleaved": True}):
        outputs.append(with_real_weights(Stack(small(positions="rope", **change)))(ids))
    assert (outputs[0] - outputs[1]).abs().max() > 0.01
    assert (outputs[0] - outputs[2]).abs().max() > 0.01


def test_dropout_acts_on_the_embeddings():
    stack, ids = with_real_weights(Stack(small(dropout=0.5))), draw_ids(1, 4)
    stack.blocks = nn.ModuleList()
    assert not torch.equal(stack(ids), stack(ids))
    assert torch.equal(stack.eval()(ids), stack(ids))


@pytest.mark.usefixtures("as_a_learner")
class TestBadInput:
    def test_a_context_is_given_where_one_is_read_and_nowhere_else(self):
        x = torch.randn(1, 3, 16)
        with pytest.raises(ValueError, match="needs a context to attend to: give context"):
            TransformerBlock(small("encoder-decoder"), cross_attention=True)(x)
        with pytest.raises(ValueError, match="build it with cross_attention=True"):
            TransformerBlock(small("encoder-decoder"))(x, context=x)

    def test_a_cache_of_another_model_is_refused(self):
        stack, ids = Stack(small(n_layers=3)), draw_ids(1, 2)
        for other in (2, 4):
            cache = Stack(small(n_layers=other)).new_cache()
            with pytest.raises(ValueError, match=f"the cache has {other} blocks, but the model has 3"):
                stack(ids, cache=cache)
            assert all(len(own) == 0 for own, _ in cache)

    @pytest.mark.parametrize(
        ("segment_ids", "message"),
        [
            (torch.zeros(1, 3, dtype=torch.long), r"segment_ids must have the shape of ids, \(2, 3\), got \(1, 3\)"),
            (torch.zeros(3, dtype=torch.long), "the shape of ids"),
            (torch.full((2, 3), 2), "^segment_ids contain 2, but with n_segments=2 they run from 0 to 1$"),
            (torch.zeros(2, 3), "segment_ids must be whole numbers"),
        ],
    )
    def test_segments_that_make_no_sense_are_refused(self, segment_ids, message):
        stack, ids = Stack(small("encoder", n_segments=2)), draw_ids(2, 3)
        with pytest.raises(ValueError, match=message):
            stack(ids, segment_ids=segment_ids)

    def test_segments_are_refused_where_there_are_none(self):
        ids = draw_ids(2, 3)
        with pytest.raises(ValueError, match="segment_ids were given, but this model has n_segments=0"):
            Stack(small("encoder"))(ids, segment_ids=torch.zeros_like(ids))

    @pytest.mark.parametrize(
        ("left_padding", "message"),
        [
            (torch.tensor([1]), r"one count per row, shape \(2,\), got \(1,\)"),
            (torch.tensor([[1], [0]]), r"one count per row, shape \(2,\), got \(2, 1\)"),
            (torch.tensor([0, -1]), "counts tokens, so it must be at least 0, got -1"),
        ],
    )
    def test_left_padding_that_makes_no_sense_is_refused(self, left_padding, message):
        with pytest.raises(ValueError, match=message):
            Stack(small())(draw_ids(2, 3), left_padding=left_padding)

    def test_a_sequence_may_not_outgrow_the_model_in_pieces_either(self):
        stack = Stack(dataclasses.replace(small(positions="rope"), max_seq_len=6))
        cache = stack.new_cache()
        stack(draw_ids(1, 4), cache=cache)
        with pytest.raises(ValueError, match="3 tokens per row after 4 in the cache, more than max_seq_len=6"):
            stack(draw_ids(1, 3), cache=cache)
        assert stack(torch.full((1, 2), V - 1), cache=cache).shape == (1, 2, 16)


@pytest.mark.parametrize("settings", [{"parallel": True}, {"norm_position": "output"}, {"norm_position": "both"}])
def test_a_block_that_would_skip_its_cross_attention_is_refused(settings):
    with pytest.raises(ValueError, match="cross_attention=True needs"):
        TransformerBlock(small(**settings), cross_attention=True)
