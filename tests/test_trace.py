"""Looking inside a model while it runs: what is recorded is what happened, and nothing else happens."""

import pytest
import torch
from helpers import MODELS, build, configs, draw_ids, inputs_of, seeds, small
from hypothesis import given, settings
from hypothesis import strategies as st

from course_lib.gpt import DecoderOnly
from course_lib.heads import MultiHeadAttention
from course_lib.masks import causal_mask, padding_mask
from course_lib.positions import apply_rotary, rotary_angles
from course_lib.trace import kept_for_backward, trace

families = pytest.mark.parametrize("family", MODELS)


def test_a_decoder_shows_what_the_docstring_promises_in_the_order_of_computing():
    model = build(small())
    with trace(model) as seen:
        logits = model(draw_ids(2, 5))
    assert torch.equal(seen["output"], logits)
    attention = ["q_proj", "k_proj", "v_proj", "query", "key", "value", "weights", "heads", "out_proj"]
    block = [
        "norm1",
        *(f"attention.{part}" for part in attention),
        "attention",
        "norm2",
        *(f"feed_forward.{part}" for part in ("up_proj", "dropout", "hidden", "down_proj")),
        "feed_forward",
    ]
    expected = ["token_embedding", "positions", "embedding_norm", "dropout"]
    for i in (0, 1):
        expected += [*(f"blocks.{i}.{part}" for part in block), f"blocks.{i}"]
    expected += ["final_norm", "output"]
    assert [name for name in seen if not name.endswith(".dropout") or "feed_forward" in name] == expected


@settings(max_examples=15)
@given(config=configs("decoder"), padded=st.booleans(), seed=seeds)
def test_what_is_recorded_is_what_one_computes_by_hand(config, padded, seed):
    torch.manual_seed(seed)
    model = build(config, dtype=torch.float64, seed=seed)
    ids = draw_ids(2, 6)
    left_padding = torch.tensor([2, 0]) if padded else None
    with trace(model) as seen:
        logits = model(ids, left_padding=left_padding)
    allowed = causal_mask(6)
    if padded:
        allowed = allowed & padding_mask([4, 6], 6, left=True)  # (2, 1, 6, 6)
    stream = seen["dropout"]
    for i, block in enumerate(model.blocks):
        here = f"blocks.{i}.attention"
        group = config.n_heads // config.n_kv_heads
        weights, heads = seen[f"{here}.weights"], seen[f"{here}.heads"]
        query, key, value = seen[f"{here}.query"], seen[f"{here}.key"], seen[f"{here}.value"]
        assert query.shape == heads.shape == (2, 4, 6, 4)
        assert key.shape == value.shape == (2, config.n_kv_heads, 6, 4)
        entered = seen[f"blocks.{i}.norm1"] if config.norm_position == "pre" else stream
        torch.testing.assert_close(value, block.attention.v_proj(entered).unflatten(-1, (-1, 4)).transpose(1, 2))
        torch.testing.assert_close(weights.sum(-1), allowed.any(-1).double().expand(2, 4, 6))
        assert (weights.masked_select(~allowed) == 0).all()
        torch.testing.assert_close(heads, weights @ value.repeat_interleave(group, dim=1))
        if config.positions not in ("alibi", "relative"):
            scores = query @ key.repeat_interleave(group, dim=1).transpose(-2, -1) / 4**0.5
            expected = scores.masked_fill(~allowed, -1e30).softmax(-1)
            torch.testing.assert_close(weights, expected.masked_fill(~allowed, 0))
        torch.testing.assert_close(seen[here], block.attention.out_proj(heads.transpose(1, 2).flatten(2)))
        hidden = seen[f"blocks.{i}.feed_forward.hidden"]
        assert hidden.shape == (2, 6, 20)
        torch.testing.assert_close(seen[f"blocks.{i}.feed_forward"], block.feed_forward.down_proj(hidden))
        if config.norm_position == "pre":
            torch.testing.assert_close(seen[f"blocks.{i}"], stream + seen[here] + seen[f"blocks.{i}.feed_forward"])
        stream = seen[f"blocks.{i}"]
    torch.testing.assert_close(logits, model.output(model.final_norm(stream)))


def test_queries_and_keys_are_shown_as_they_meet_after_rope():
    model, ids = build(small(positions="rope", n_layers=1)), draw_ids(1, 5)
    with trace(model) as seen:
        model(ids)
    for name in ("query", "key"):
        before = seen[f"blocks.0.attention.{name[0]}_proj"].unflatten(-1, (4, 4)).transpose(1, 2)
        turned = apply_rotary(before, rotary_angles(torch.arange(5), 4))
        torch.testing.assert_close(seen[f"blocks.0.attention.{name}"], turned)


def test_a_relu_shows_its_hidden_units_after_the_bend():
    model = build(small(activation="relu"))
    with trace(model, "*.hidden", "*.up_proj") as seen:
        model(draw_ids(2, 5))
    for i in (0, 1):
        before = seen[f"blocks.{i}.feed_forward.up_proj"]
        assert torch.equal(seen[f"blocks.{i}.feed_forward.hidden"], before.clamp(min=0))


@families
@settings(max_examples=10)
@given(data=st.data(), seed=seeds)
def test_results_gradients_and_random_numbers_are_the_same_bit_for_bit(family, data, seed):
    torch.manual_seed(seed)
    config = data.draw(configs(family, dropout=0.3))
    model, inputs = build(config, seed=seed).train(), inputs_of(family)

    def run():
        torch.manual_seed(seed)
        model.zero_grad()
        output = model(*inputs)
        output.square().sum().backward()
        return [output, *(p.grad.clone() for p in model.parameters()), torch.rand(3)]

    plain = run()
    with trace(model) as seen:
        traced = run()
    assert len(seen) > 20
    for ours, theirs in zip(traced, plain, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("family", MODELS)
def test_no_gradient_runs_through_what_is_recorded(family):
    model = build(small(family))
    with trace(model) as seen:
        model(*inputs_of(family))
    assert not any(value.requires_grad for value in seen.values())


def test_after_the_block_nothing_of_it_is_left_even_after_an_error():
    model, ids = build(small()), draw_ids(1, 4)

    def traces_left():
        return [
            module
            for module in model.modules()
            if module._forward_hooks or module._forward_pre_hooks or "attend" in vars(module)
        ]

    with trace(model) as seen:
        assert traces_left()
        model(ids)
    kept = {name: value.clone() for name, value in seen.items()}
    assert traces_left() == []
    with pytest.raises(ValueError, match="contain no token"), trace(model):
        model(ids[:0])
    assert traces_left() == []
    with pytest.raises(KeyError), trace(model) as empty:
        empty["output"]
    assert traces_left() == []
    model(draw_ids(1, 6))
    assert all(torch.equal(seen[name], kept[name]) for name in kept)  # and nothing is recorded any more
    assert len(seen) == len(kept)


def test_one_trace_within_another_each_records_what_runs_while_it_is_open():
    model, short, long = build(small()), draw_ids(1, 3), draw_ids(1, 5)
    with trace(model) as outer:
        with trace(model, "*.weights") as inner:
            model(short)
        assert outer["blocks.0.attention.weights"].shape == (1, 4, 3, 3)
        model(long)
    assert set(inner) == {"blocks.0.attention.weights", "blocks.1.attention.weights"}
    assert inner["blocks.1.attention.weights"].shape == (1, 4, 3, 3)
    assert outer["blocks.1.attention.weights"].shape == (1, 4, 5, 5)  # the last run stays
    assert "attend" not in vars(model.blocks[0].attention)


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["*.weights"], ["blocks.0.attention.weights", "blocks.1.attention.weights"]),
        (["blocks.1"], ["blocks.1"]),
        (["blocks.?", "final_norm"], ["blocks.0", "blocks.1", "final_norm"]),
        (["blocks.0.attention.heads", "nothing"], ["blocks.0.attention.heads"]),
        (["nothing"], []),
    ],
)
def test_patterns_choose_what_is_kept(patterns, expected):
    model = build(small())
    with trace(model, *patterns) as seen:
        model(draw_ids(1, 4))
    assert list(seen) == expected


def test_with_the_cache_the_new_tokens_are_seen_to_look_at_all():
    model, ids = build(small(n_kv_heads=2), dtype=torch.float64), draw_ids(2, 7)
    with trace(model, "*.weights", "*.key", "*.heads") as whole:
        model(ids)
    cache = model.new_cache()
    model(ids[:, :4], cache=cache)
    with trace(model, "*.weights", "*.key", "*.heads") as seen:
        model(ids[:, 4:], cache=cache)
    for i in (0, 1):
        here = f"blocks.{i}.attention"
        assert seen[f"{here}.weights"].shape == (2, 4, 3, 7)
        torch.testing.assert_close(seen[f"{here}.weights"], whole[f"{here}.weights"][:, :, 4:])
        torch.testing.assert_close(seen[f"{here}.heads"], whole[f"{here}.heads"][:, :, 4:])
        torch.testing.assert_close(seen[f"{here}.key"], whole[f"{here}.key"])


def test_a_translator_shows_which_source_token_each_target_token_looks_at():
    model = build(small("encoder-decoder"))
    source, target = inputs_of("encoder-decoder", B=3, S=6, T=4)
    mask = padding_mask([6, 2, 4], 6)
    with trace(model) as seen:
        model(source, target, mask)
    for i in (0, 1):
        alignment = seen[f"decoder.blocks.{i}.cross_attention.weights"]
        assert alignment.shape == (3, 4, 4, 6)
        torch.testing.assert_close(alignment.sum(-1), torch.ones(3, 4, 4))
        assert (alignment.masked_select(~mask) == 0).all()
        assert seen[f"encoder.blocks.{i}.attention.weights"].shape == (3, 4, 6, 6)
        assert seen[f"decoder.blocks.{i}.attention.weights"].shape == (3, 4, 4, 4)
        assert (seen[f"decoder.blocks.{i}.attention.weights"].masked_select(~causal_mask(4)) == 0).all()


def test_a_part_can_be_traced_by_itself():
    attention, x = MultiHeadAttention(8, 2), torch.randn(2, 5, 8)
    with trace(attention) as seen:
        output, weights = attention(x, need_weights=True)
        attention.attend(*torch.randn(3, 1, 2, 4, 4))  # called as it may be without a trace
    assert torch.equal(seen["out_proj"], output)
    assert weights.shape == (2, 2, 5, 5)
    assert seen["weights"].shape == (1, 2, 4, 4)


def test_a_name_that_was_not_recorded_lists_the_nearest():
    model = DecoderOnly(small())
    with trace(model) as seen:
        with pytest.raises(KeyError, match="run the model first"):
            seen["blocks.0"]
        model(draw_ids(1, 3))
    with pytest.raises(KeyError, match=r"'blocks.0.attention.weight'. Nearest: blocks.0.attention.weights"):
        seen["blocks.0.attention.weight"]
    assert seen.get("nowhere") is None


def test_a_trace_prints_as_names_and_shapes():
    model = build(small(n_layers=1))
    with trace(model, "*.weights", "output") as seen:
        model(draw_ids(1, 3))
    lines = [line.split(maxsplit=1) for line in str(seen).splitlines()]
    assert lines == [["blocks.0.attention.weights", "(1, 4, 3, 3)"], ["output", "(1, 3, 31)"]]


class Squared(torch.nn.Module):
    """x · x: autograd keeps x twice, in the same memory."""

    def forward(self, x):
        return x * x


@pytest.mark.parametrize(
    ("layers", "numbers"),
    [
        ([torch.nn.Linear(3, 5)], 2 * 3),  # its input, for the gradient of the weights
        ([torch.nn.Linear(3, 5), torch.nn.Tanh()], 2 * 3 + 2 * 5),  # and a tanh its output
        ([torch.nn.Linear(3, 5), Squared()], 2 * 3 + 2 * 5),
        ([torch.nn.Linear(3, 5), torch.nn.Flatten()], 2 * 3),  # a view needs nothing
    ],
)
def test_what_the_backward_pass_needs_is_counted_once_and_without_the_parameters(layers, numbers):
    model, x = torch.nn.Sequential(*layers), torch.randn(2, 3)
    output, kept = kept_for_backward(model, x)
    assert torch.equal(output, model(x))
    assert kept == 4 * numbers
    with torch.no_grad():
        assert kept_for_backward(model, x)[1] == 0


def test_bytes_are_counted_for_a_module_alone(as_a_learner):
    with pytest.raises(TypeError, match="must be a model"):
        kept_for_backward(torch.tanh, torch.ones(2))
