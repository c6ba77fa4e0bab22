"""The key-value cache: generating in pieces gives what reading at once gives, and computes nothing twice."""

import pytest
import torch
from helpers import seeds, with_real_weights
from hypothesis import given
from hypothesis import strategies as st

from course_lib.cache import KVCache
from course_lib.heads import MultiHeadAttention
from course_lib.masks import padding_mask
from course_lib.positions import alibi_bias, rotary_angles


def attention(n_kv_heads=2, seed=0):
    return with_real_weights(MultiHeadAttention(8, 4, n_kv_heads), seed).double()


def noting_tokens(module, name):
    """How many tokens the projection is given, call by call."""
    seen = []
    module.get_submodule(name).register_forward_hook(lambda _, inputs, output: seen.append(inputs[0].shape[1]))
    return seen


def test_a_cache_lays_new_tokens_behind_the_old_ones():
    cache = KVCache()
    assert len(cache) == 0
    key, value = torch.randn(2, 3, 2, 5, 4).unbind()
    for start, stop in ((0, 2), (2, 3), (3, 5)):
        keys, values = cache.append(key[:, :, start:stop], value[:, :, start:stop])
        assert torch.equal(keys, key[:, :, :stop])
        assert torch.equal(values, value[:, :, :stop])
        assert len(cache) == stop
    assert torch.equal(cache.key, key)
    assert torch.equal(cache.value, value)


def test_rows_are_kept_dropped_and_doubled():
    key, value = torch.randn(2, 3, 2, 5, 4).unbind()
    cache = KVCache()
    cache.select(torch.tensor([0, 0]))  # nothing there yet
    assert len(cache) == 0
    cache.append(key, value)
    cache.select(torch.tensor([2, 0, 2, 2]))
    assert torch.equal(cache.key, key[[2, 0, 2, 2]])
    assert torch.equal(cache.value, value[[2, 0, 2, 2]])
    assert len(cache) == 5


def test_a_step_writes_its_own_tokens_and_moves_no_other():
    """Appending does not copy: the room stays where it is until it is full, and it is full ever more rarely."""
    cache, places = KVCache(), []
    one = torch.randn(1, 2, 1, 4)
    for _ in range(1000):
        keys, values = cache.append(one, -one)
        places.append((keys.data_ptr(), values.data_ptr()))
    assert len(set(places)) <= 5  # 128, 258, 518, 1,038 tokens
    assert torch.equal(cache.key, one.expand(1, 2, 1000, 4))
    assert torch.equal(cache.value, -cache.key)


@pytest.mark.parametrize("n_kv_heads", [2, 4])  # 4: the kernel keeps the cache's own tensors for the backward pass
def test_gradients_flow_through_a_cache_as_through_the_whole(n_kv_heads):
    module = attention(n_kv_heads)
    x = torch.randn(1, 7, 8, dtype=torch.float64, requires_grad=True)
    (whole,) = torch.autograd.grad(module(x, is_causal=True).sin().sum(), x)
    cache = KVCache()
    pieces = [module(x[:, start:stop], is_causal=True, cache=cache) for start, stop in ((0, 3), (3, 4), (4, 7))]
    with torch.no_grad():  # what is written afterwards spoils nothing
        module(x[:, :1], is_causal=True, cache=cache)
    (parts,) = torch.autograd.grad(torch.cat(pieces, dim=1).sin().sum(), x)
    torch.testing.assert_close(parts, whole)


@pytest.mark.parametrize("n_kv_heads", [2, 4])
def test_gradients_flow_from_steps_that_follow_a_prompt_read_without_them(n_kv_heads):
    """As where a prompt is fixed, and what the model writes after it is learned from."""
    module, x = attention(n_kv_heads), torch.randn(1, 7, 8, dtype=torch.float64)
    weights = list(module.parameters())
    steps, results = ((3, 4), (4, 6), (6, 7)), []
    for cached in (True, False):
        cache, outputs = KVCache(), []
        with torch.no_grad():
            module(x[:, :3], is_causal=True, cache=cache)
            prompt = cache.key.clone(), cache.value.clone()
        for start, stop in steps:
            if not cached:  # a new cache for each step, with all before it computed once more
                cache = KVCache()
                cache.append(*prompt)
                if start > 3:
                    module(x[:, 3:start], is_causal=True, cache=cache)
            outputs.append(module(x[:, start:stop], is_causal=True, cache=cache))
        results.append(torch.autograd.grad(torch.cat(outputs, dim=1).sin().sum(), weights))
    for through_one, anew in zip(*results):
        torch.testing.assert_close(through_one, anew)


def test_what_is_tried_without_gradients_and_taken_back_spoils_no_backward_pass():
    module, cache = attention(4), KVCache()
    x = torch.randn(1, 5, 8, dtype=torch.float64, requires_grad=True)
    (whole,) = torch.autograd.grad(module(x, is_causal=True).sin().sum(), x)
    output = module(x, is_causal=True, cache=cache)
    cache.keep(3)
    with torch.no_grad():
        module(torch.randn(1, 2, 8, dtype=torch.float64), is_causal=True, cache=cache)
    torch.testing.assert_close(torch.autograd.grad(output.sin().sum(), x)[0], whole)


def test_what_was_only_tried_is_taken_back():
    module, cache, x = attention(), KVCache(), torch.randn(2, 6, 8, dtype=torch.float64)
    module(x[:, :4], is_causal=True, cache=cache)
    module(torch.randn(2, 2, 8, dtype=torch.float64), is_causal=True, cache=cache)
    cache.keep(4)
    assert len(cache) == 4
    torch.testing.assert_close(module(x[:, 4:], is_causal=True, cache=cache), module(x, is_causal=True)[:, 4:])
    for length in (-1, 7):
        with pytest.raises(ValueError, match="from 0 to 6, the number of tokens in the cache"):
            cache.keep(length)


@given(
    pieces=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    B=st.integers(1, 3),
    n_kv_heads=st.sampled_from([1, 2, 4]),
    scheme=st.sampled_from(["none", "rope", "alibi"]),
    padded=st.booleans(),
    need_weights=st.booleans(),
    seed=seeds,
)
def test_in_pieces_of_any_size_it_is_the_whole(pieces, B, n_kv_heads, scheme, padded, need_weights, seed):
    torch.manual_seed(seed)
    T = sum(pieces)
    module, x = attention(n_kv_heads, seed), torch.randn(B, T, 8, dtype=torch.float64)
    mask = padding_mask(torch.randint(1, T + 1, (B,)), T, left=True) if padded else None

    def run(start, stop, cache=None):
        angles = rotary_angles(torch.arange(start, stop), 2, dtype=torch.float64) if scheme == "rope" else None
        output = module(
            x[:, start:stop],
            mask=None if mask is None else mask[..., :stop],
            is_causal=True,
            rotary=angles,
            cache=cache,
            need_weights=need_weights,
            score_bias=alibi_bias(4, stop - start, stop) if scheme == "alibi" else None,
        )
        return output[0] if need_weights else output

    whole, cache, tokens = run(0, T), KVCache(), noting_tokens(module, "k_proj")
    for size in pieces:
        start = len(cache)
        torch.testing.assert_close(run(start, start + size, cache), whole[:, start : start + size])
    assert tokens == pieces  # of each token the key is computed once
    assert cache.key.shape == cache.value.shape == (B, n_kv_heads, T, 2)


@pytest.mark.parametrize("need_weights", [False, True])
def test_the_keys_and_values_of_a_context_are_computed_once(need_weights):
    module = attention()
    x, context = torch.randn(2, 6, 8, dtype=torch.float64), torch.randn(2, 3, 8, dtype=torch.float64)
    mask = padding_mask([3, 2], 3)
    whole = module(x, context, mask)
    cache, keys, values = KVCache(), noting_tokens(module, "k_proj"), noting_tokens(module, "v_proj")
    for start, stop in ((0, 1), (1, 4), (4, 6)):
        output = module(x[:, start:stop], context, mask, cache=cache, need_weights=need_weights)
        torch.testing.assert_close(output[0] if need_weights else output, whole[:, start:stop])
    assert keys == values == [3]
    assert len(cache) == 3


def test_after_a_selection_each_row_goes_on_from_the_row_it_came_from():
    module, x = attention(), torch.randn(3, 4, 8, dtype=torch.float64)
    rows, following = torch.tensor([1, 1, 2, 0]), torch.randn(4, 2, 8, dtype=torch.float64)
    cache = KVCache()
    module(x, is_causal=True, cache=cache)
    cache.select(rows)
    whole = module(torch.cat([x[rows], following], dim=1), is_causal=True)
    torch.testing.assert_close(module(following, is_causal=True, cache=cache), whole[:, 4:])


@pytest.mark.usefixtures("as_a_learner")
def test_a_cache_of_another_batch_is_refused():
    module, cache = attention(), KVCache()
    x = torch.randn(3, 2, 8, dtype=torch.float64)
    module(x, cache=cache)
    with pytest.raises(ValueError, match="the cache holds 3 rows, but 2 were given: a cache belongs to one batch"):
        module(x[:2], cache=cache)
    with pytest.raises(ValueError, match="x has 2 rows, but the context or its cache has 3"):
        module(x[:2], x[:2], cache=cache)
