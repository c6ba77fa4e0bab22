"""Live figures of chapter 14."""

import functools
import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from course_lib.attention import scaled_dot_product_attention
from course_lib.chapters.efficiency import figures
from course_lib.chapters.efficiency.writing import weights_read
from course_lib.config import preset
from course_lib.counting import count_parameters, forward_flops, kv_cache_bytes
from course_lib.live.attempts import attempt_numbers
from course_lib.live.figure import LiveFigure, dropdown, slider, steps
from course_lib.live.numbers import percent, short
from course_lib.live.shared_figures import Patterns
from course_lib.masks import causal_mask


# ------------------------------------------------------------------------------------------------------ work and length
def length_sliders() -> LiveFigure:
    """Show the work of one token in the linear layers and in comparing pairs, with sliders for T and d_model."""

    def describe(T, d_model):
        linear, pairs = 24 * d_model**2, 4 * T * d_model
        return (
            f"One token in one block: linear layers 24 · {d_model:,}² = {short(linear, 'FLOP')}, "
            f"pairs 4 · {T:,} · {d_model:,} = {short(pairs, 'FLOP')}. They break even at T = {6 * d_model:,}."
        )

    controls = {
        "T": steps("T (tokens)", (64, 256, 512, 1024, 2048, 4096, 8192, 32768, 131072), 512),
        "d_model": steps("d_model", (64, 128, 256, 512, 768, 1024, 2048, 4096, 8192), 512),
    }
    return LiveFigure(figures.WorkByLength, controls, describe)


# ------------------------------------------------------------------------------------------------------- online softmax
SCORES = np.array([1.0, 2.0, 0.5, 3.0, 1.5, 4.0, 0.0, 2.5])
VALUES = np.array([10.0, 20.0, 30.0, 0.0, 10.0, 30.0, 20.0, 0.0])


def online(scores: np.ndarray, values: np.ndarray, block: int) -> list[tuple[float, float, float]]:
    """Return (largest score, sum of exp(score − largest), average) after each block of keys."""
    maximum, total, mixed, states = -math.inf, 0.0, 0.0, []
    for start in range(0, len(scores), block):
        s, v = scores[start : start + block], values[start : start + block]
        larger = max(maximum, s.max())
        shrink, raised = math.exp(maximum - larger), np.exp(s - larger)
        total, mixed = total * shrink + raised.sum(), mixed * shrink + raised @ v
        maximum = larger
        states.append((float(maximum), float(total), float(mixed / total)))
    return states


def online_softmax() -> LiveFigure:
    """Show eight keys, read block by block, and how the average approaches the average over all keys."""

    def look(block: int, share: int):
        states = online(SCORES, VALUES, block)
        blocks = max(1, math.ceil(len(states) * share / 8))
        return states[:blocks], blocks * block, states[-1][2]

    def draw(block, share):
        states, read, final = look(block, share)
        return figures.RunningSoftmax(SCORES, read, states, final)

    def describe(block, share):
        states, read, final = look(block, share)
        maximum, total, average = states[-1]
        kept = f"largest {maximum:.1f}, sum {total:.3f}, average {average:.2f}"
        return f"Blocks of {block}, {read} keys read. Kept: {kept}. Softmax over all eight keys gives {final:.2f}."

    controls = {"block": steps("keys in a block", (1, 2, 4, 8), 2), "share": slider("keys read, at least", 4, 1, 8, 1)}
    return LiveFigure(draw, controls, describe)


# ------------------------------------------------------------------------------------------------- the cost of writing
WRITERS = ("llama-7b", "llama-3-8b")  # both have 32 query heads, and RoPE, which has no maximum length


def cache_sliders() -> LiveFigure:
    """Show memory, bytes of a step and work, for a model, a length, a batch and groups of query heads."""

    def look(model, T, batch, group):
        config = preset(model)
        config = replace(config, n_kv_heads=config.n_heads // group)
        with_cache = forward_flops(config, 1, batch, cached=T - 1)
        return (
            config,
            2 * count_parameters(config).total,
            2 * weights_read(config),
            kv_cache_bytes(config, T, batch),
            with_cache,
            forward_flops(config, T, batch),
        )

    def draw(model, T, batch, group):
        _, weights, read, cache, with_cache, without = look(model, T, batch, group)
        of_weights = percent(cache / weights) + " of" if cache < weights else f"{cache / weights:.1f} times"
        title = f"Cache {short(cache, 'B')}, {of_weights} the weights; "
        title += f"without it a token takes {without / with_cache:,.0f} times the work"
        return figures.Writing(weights, read, cache, with_cache, without, title)

    def describe(model, T, batch, group):
        config, weights, read, cache, with_cache, without = look(model, T, batch, group)
        heads = f"{config.n_heads} query heads, {config.n_kv_heads} key-value heads"
        step = f"A step that writes one token of each text reads {short(read, 'B')} of the weights, and the cache: "
        step += f"{short(read + cache, 'B')} together."
        return (
            f"{model}, {batch} text{'s' * (batch > 1)} of {T:,} tokens, {heads}: cache "
            f"{short(cache / (batch * T), 'B')} per token, {short(cache, 'B')} in total; weights "
            f"{short(weights, 'B')}. {step} The next token of each text costs {short(with_cache / batch, 'FLOP')} with "
            f"the cache, {short(without / batch, 'FLOP')} without."
        )

    controls = {
        "model": dropdown("model", WRITERS, "llama-3-8b"),
        "T": steps("tokens so far", (16, 128, 512, 1024, 2048, 4096, 8192, 32768, 131072), 8192),
        "batch": steps("texts at once", (1, 4, 16, 64), 1),
        "group": steps("query heads per key-value head", (1, 2, 4, 8), 4),
    }
    return LiveFigure(draw, controls, describe)


# ----------------------------------------------------------------------------------------------------------- exercises
def explore_blocks(function: Callable) -> LiveFigure:
    """Show your `blockwise_attention(q, k, v, block_size)` on the eight keys, with its average after each block."""
    key, value = (
        torch.tensor(numbers).float()[:, None] for numbers in (SCORES, VALUES)
    )  # (8, 1): with D = 1 the score is k

    @functools.cache
    def yours(read: int, block: int) -> tuple[float, str]:
        """Return (the average over the first keys, ""), or (0, what went wrong)."""
        arguments = torch.ones(1, 1), key[:read].clone(), value[:read].clone(), block
        result, problem = attempt_numbers(function, *arguments, shape=(1, 1))
        return (0.0, problem) if result is None else (result.clamp(-1, 31).item(), "")

    def look(block: int, share: int) -> tuple[list, int, str]:
        right = online(SCORES, VALUES, block)
        blocks = max(1, math.ceil(len(right) * share / 8))
        averages = [yours((i + 1) * block, block) for i in range(blocks)]
        states = [(*state[:2], average) for state, (average, _) in zip(right, averages)]
        return states, blocks * block, next((problem for _, problem in averages if problem), "")

    def draw(block, share):
        states, read, problem = look(block, share)
        final = online(SCORES, VALUES, 8)[0][2]
        said = "Nothing to show yet" if problem else f"{read} of 8 keys read: your average {states[-1][2]:.2f}"
        return figures.RunningSoftmax(SCORES, read, states, final, f"{said}; over all keys {final:.2f}")

    def describe(block, share):
        states, read, problem = look(block, share)
        if problem:
            return problem
        right = [state[2] for state in online(SCORES, VALUES, block)]
        wrong = [i for i, (state, average) in enumerate(zip(states, right)) if abs(state[2] - average) > 1e-3]
        told = f"Blocks of {block}, {read} keys read. Your average {states[-1][2]:.2f}, softmax over these keys "
        told += f"{right[len(states) - 1]:.2f}."
        return told + (f" They differ from key {wrong[0] * block} on." if wrong else " They agree after every block.")

    controls = {"block": steps("keys in a block", (1, 2, 4, 8), 2), "share": slider("keys read, at least", 4, 1, 8, 1)}
    return LiveFigure(draw, controls, describe)


def explore_cache(function: Callable) -> LiveFigure:
    """Show which tokens the new tokens see in your `cached_attention(q_new, k_new, v_new, cache)`, and the content of
    its cache.
    """

    @functools.cache
    def look(T: int, cached: int) -> tuple[np.ndarray, str]:
        """Return (the weights (T, S), a comment). The value of token s is row s of the identity, so outputs are
        weights.
        """
        S, rng = T + cached, torch.Generator().manual_seed(0)
        q, k, v = (
            torch.randn(1, 1, S, 4, generator=rng),
            torch.randn(1, 1, S, 4, generator=rng),
            torch.eye(S)[None, None],
        )
        old = (k[:, :, :cached].clone(), v[:, :, :cached].clone()) if cached else None
        new = [x[:, :, cached:].clone() for x in (q, k, v)]
        given = []

        def output(*arguments):
            result = function(*arguments)
            if isinstance(result, (tuple, list)) and len(result) == 2:
                given.append(result[1])
                return result[0]
            return result

        output.__name__ = getattr(function, "__name__", "your function")
        weights, problem = attempt_numbers(output, *new, old, shape=(1, 1, T, S))
        if weights is None:
            return np.zeros((T, S), dtype=bool), problem
        right = scaled_dot_product_attention(q, k, v, causal_mask(S))[0][:, :, cached:]
        gap = (weights.double() - right).abs().max().item()
        said = "The full pass gives the same." if gap < 1e-4 else f"The full pass differs by up to {gap:.2f}."
        return (weights[0, 0].abs() > 1e-6).cpu().numpy(), f"{said} {_said_of_cache(given, k, v)}"

    def draw(T, cached):
        seen, _ = look(T, cached)
        squares = {}
        for name, rows in {"yours": seen, "the full pass": causal_mask(T, T + cached).cpu().numpy()}.items():
            squares[name] = np.zeros((T + cached, T + cached), dtype=bool)
            squares[name][cached:] = rows
        pairs = f"With yours {T} new tokens see {seen.sum()} keys" if seen.any() else "Nothing to show yet"
        title = f"{pairs}; in the full pass {squares['the full pass'].sum()}"
        return Patterns(squares, "yours", dict.fromkeys(squares, cached), title)

    def describe(T, cached):
        seen, said = look(T, cached)
        if not seen.any():
            return said
        sees = f"your first new token sees {seen[0].sum()} of {T + cached} keys, your last {seen[-1].sum()}"
        return f"{cached} cached, {T} new: {sees}. {said}"

    controls = {
        "T": slider("new tokens", 3, 1, 8, 1),
        "cached": slider("cached tokens", 4, 0, 6, 1),
    }
    return LiveFigure(draw, controls, describe)


def _said_of_cache(given: list, *right: torch.Tensor) -> str:
    """Return a sentence about whether the returned cache has the keys and values of all tokens."""
    if not given:
        return "No cache came back: return (output, cache)."
    kept = given[0]
    if not isinstance(kept, (tuple, list)) or len(kept) != 2 or not all(isinstance(x, torch.Tensor) for x in kept):
        return "Your cache should be a pair of tensors, (keys, values)."
    alike = all((x.shape, x.dtype, x.device) == (y.shape, y.dtype, y.device) for x, y in zip(kept, right))
    if alike and all(map(torch.equal, kept, right)):
        return f"Your cache holds keys and values of all {right[0].shape[2]} tokens."
    shapes = " and ".join(str(tuple(x.shape)) for x in kept)
    return f"Your cache holds {shapes}, not the keys and values of all {right[0].shape[2]} tokens in their order."


EXPLORERS = {"efficiency.kv_cache": explore_cache, "efficiency.online_softmax": explore_blocks}
