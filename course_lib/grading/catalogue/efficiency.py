"""Chapter 14, efficiency: five exercises.

Shapes: q (..., T, D), k (..., S, D), v (..., S, D_v). What is timed is judged with a pretended clock, so that the true
cost is known and the verdict does not depend on the machine: what is graded is how the answer measures.
"""

import math
import statistics
import time
from functools import partial

import torch
import torch.nn.functional as F

from ..exercise import Case, Exercise, Given, Misconception, generator
from ..given import (
    held_while_reading,
    pretend_attention,
    pretend_step,
    timed_alone,
    timed_beside,
    tiring_clock,
)
from ..judge import compare

INF = float("inf")
FEATURES = 8  # of what is timed: any number does

# --- efficiency.kv_cache ----------------------------------------------------------------------------------------------


def cached_attention(q_new, k_new, v_new, cache):
    k, v = joined(cache, k_new, v_new)  # (B, H, S + T, D), (B, H, S + T, D_v)
    scores = q_new @ k.mT / math.sqrt(q_new.shape[-1])  # (B, H, T, S + T)
    weights = scores.masked_fill(~seen(*scores.shape[-2:]), -INF).softmax(-1)
    return weights @ v, (k, v)


def joined(cache, k_new, v_new):
    if cache is None:
        return k_new, v_new
    return torch.cat([cache[0], k_new], dim=-2), torch.cat([cache[1], v_new], dim=-2)


def seen(T, S):
    """(T, S), True = may attend: the last of T queries sees all S keys, each earlier one a key less."""
    return torch.ones(T, S, dtype=torch.bool).tril(S - T)


def wrong_cache(
    q_new,
    k_new,
    v_new,
    cache,
    *,
    join=joined,
    score=lambda q, k: q @ k.mT / math.sqrt(q.shape[-1]),
    allow=seen,
    weigh=lambda scores: scores.softmax(-1),
    hand_in=lambda output: output,
    keep=lambda cache, new, whole: whole,
):
    """Attention with a cache, whose steps can be replaced one by one: most misconceptions below."""
    k, v = join(cache, k_new, v_new)
    scores = score(q_new, k)
    weights = weigh(scores.masked_fill(~allow(*scores.shape[-2:]), -INF))
    return hand_in(weights @ v), keep(cache, (k_new, v_new), (k, v))


def joined_along(axis):
    def join(cache, k_new, v_new):
        return (k_new, v_new) if cache is None else tuple(map(partial(torch.cat, dim=axis), zip(cache, (k_new, v_new))))

    return partial(wrong_cache, join=join)


def new_first(cache, k_new, v_new):
    if cache is None:
        return k_new, v_new
    return torch.cat([k_new, cache[0]], dim=-2), torch.cat([v_new, cache[1]], dim=-2)


def new_first_seen_alike(T, S):
    """The new tokens causally among themselves in front, and all cached ones behind."""
    return torch.cat([torch.ones(T, T, dtype=torch.bool).tril(), torch.ones(T, S - T, dtype=torch.bool)], dim=-1)


def new_only(cache, k_new, v_new):
    return k_new, v_new


def cache_kept_but_not_read(q_new, k_new, v_new, cache):
    output, _ = cached_attention(q_new, k_new, v_new, None)
    return output, joined(cache, k_new, v_new)


def masked_after(q_new, k_new, v_new, cache):
    k, v = joined(cache, k_new, v_new)
    weights = (q_new @ k.mT / math.sqrt(q_new.shape[-1])).softmax(-1)
    return (weights * seen(*weights.shape[-2:])) @ v, (k, v)


def in_float32(q_new, k_new, v_new, cache):
    return cached_attention(q_new.float(), k_new.float(), v_new.float(), cache and tuple(x.float() for x in cache))


def everything(T, S):
    return torch.ones(T, S, dtype=torch.bool)


def new_tokens(rng, *leading, T, S, D, D_v, dtype=torch.float32):
    """q_new, k_new, v_new of T tokens, and a cache of S tokens; None for S = 0."""
    shapes = ((T, D), (T, D), (T, D_v), (S, D), (S, D_v))
    q, k, v, k_old, v_old = (torch.randn(*leading, *shape, generator=rng, dtype=dtype) for shape in shapes)
    return q, k, v, (k_old, v_old) if S else None


def first_token(seed):
    "The first token: the cache is None. It can look at itself only, so the output is its own value."
    return [Case(*new_tokens(generator(seed), 1, 1, T=1, S=0, D=3, D_v=2))]


def one_more(seed):
    "One new token, and a cache: it looks at all cached tokens and at itself."
    rng = generator(seed)
    return [Case(*new_tokens(rng, 1, 1, T=1, S=1, D=2, D_v=3)), Case(*new_tokens(rng, 1, 1, T=1, S=3, D=4, D_v=2))]


def a_prompt(seed):
    "A prompt: several tokens at once, and no cache. No token may see a later one."
    rng = generator(seed)
    return [Case(*new_tokens(rng, 1, 1, T=2, S=0, D=3, D_v=4)), Case(*new_tokens(rng, 1, 1, T=4, S=0, D=3, D_v=2))]


def several_more(seed):
    "Several new tokens, and a cache: each sees all cached tokens, and the new ones up to itself."
    rng = generator(seed)
    return [
        Case(*new_tokens(rng, 1, 1, T=2, S=3, D=4, D_v=5)),
        Case(*new_tokens(rng, 1, 1, T=4, S=1, D=3, D_v=2)),
        Case(*new_tokens(rng, 1, 1, T=3, S=3, D=3, D_v=3)),
    ]


def batch_and_heads(seed):
    "A batch, several heads; once the inputs are transposed views, as splitting the heads leaves them."
    rng = generator(seed)
    q, k, v, (k_old, v_old) = new_tokens(rng, 2, 2, T=3, S=5, D=4, D_v=3)
    views = (x.mT.contiguous().mT for x in (q, k, v))
    return [
        Case(*new_tokens(rng, 2, 3, T=2, S=4, D=5, D_v=6)),
        Case(*new_tokens(rng, 3, 2, T=4, S=0, D=2, D_v=3)),
        Case(*new_tokens(rng, 2, 3, T=1, S=6, D=4, D_v=4)),
        Case(*views, (k_old.mT.contiguous().mT, v_old.mT.contiguous().mT)),
    ]


def large_scores(seed):
    "Scores in the thousands: the largest allowed one takes all, and nothing overflows."
    q, k, v, (k_old, v_old) = new_tokens(generator(seed), 1, 2, T=2, S=3, D=4, D_v=2)
    return [Case((q * 64).round(), (k * 64).round(), v, ((k_old * 64).round(), v_old))]


def double_precision(seed):
    "float64 in, float64 out."
    return [Case(*new_tokens(generator(seed), 2, 1, T=2, S=4, D=5, D_v=3, dtype=torch.float64))]


KV_CACHE = Exercise(
    id="efficiency.kv_cache",
    chapter=14,
    title="Attention with a cache",
    kind="code",
    points=4,
    difficulty=4,
    minutes=25,
    signature="cached_attention(q_new, k_new, v_new, cache)",
    why="Every chat answer that you have ever watched appear was written with it, and it changes not one number.",
    reference=cached_attention,
    returns=["output", "cache"],
    stages=[first_token, one_more, a_prompt, several_more, batch_and_heads, large_scores, double_precision],
    hints=[
        "Which keys may the first of the new tokens look at: how many cached ones, how many new ones?",
        "Put the cached keys before the new ones, along the axis of the tokens: `torch.cat` and the second axis from "
        "the end. The values likewise. What is now the length of the axis of keys?",
        "New token t stands at place S + t of the whole text, and may look at places 0 to S + t. Draw the T × (S + T) "
        "mask for S = 3, T = 2 on paper. On which diagonal does the triangle end?",
        "`tril` takes a second argument, the diagonal. Return the output and, as a pair, the keys and values of all "
        "tokens so far: the next call needs them.",
    ],
    misconceptions=[
        Misconception(
            "no mask",
            partial(wrong_cache, allow=everything),
            "Your new tokens look at each other in both directions. One new token needs no mask; of several, the "
            "first must not see the second.",
        ),
        Misconception(
            "mask begins at the left",
            partial(wrong_cache, allow=lambda T, S: torch.ones(T, S, dtype=torch.bool).tril()),
            "Your first new token sees only the first key of all. Its own place is S, not 0: the triangle belongs at "
            "the right end of the keys. (`is_causal=True` of PyTorch's fused function begins at the left, too.)",
        ),
        Misconception(
            "cached tokens hidden",
            cache_kept_but_not_read,
            "Your new tokens attend to the new keys only. The cached ones are what the cache is for: join them before "
            "the scores are computed.",
        ),
        Misconception(
            "cache ignored",
            partial(wrong_cache, join=new_only),
            "You use and return the new keys and values only, as if nothing had been read before. The new tokens must "
            "see the cached ones, and the cache must grow.",
        ),
        Misconception(
            "cache not extended",
            partial(wrong_cache, keep=lambda cache, new, whole: cache),
            "Your output is right, but you return the cache as it came. The next token would not see these ones: "
            "return the joined keys and values.",
            also=[partial(wrong_cache, keep=lambda cache, new, whole: cache or new)],
        ),
        Misconception(
            "only the new ones returned",
            partial(wrong_cache, keep=lambda cache, new, whole: new),
            "Your output is right, but the cache that you return holds the new keys and values only. It must hold "
            "those of all tokens so far.",
        ),
        Misconception(
            "new tokens in front",
            partial(wrong_cache, join=new_first),
            "You put the new keys before the cached ones. The text grows at its end: the order in the cache is the "
            "order of the tokens, and the mask relies on it.",
            also=[partial(wrong_cache, join=new_first, allow=new_first_seen_alike)],
        ),
        Misconception(
            "joined along another axis",
            joined_along(1),
            "You join old and new along an axis that is not that of the tokens, so that there are more heads, texts or "
            "features. The tokens are on the second axis from the end.",
            also=[joined_along(axis) for axis in (0, -1)],
        ),
        Misconception(
            "keys and values exchanged",
            partial(wrong_cache, keep=lambda cache, new, whole: whole[::-1]),
            "Your cache comes back as (values, keys). It came as (keys, values), and the next call expects it so.",
        ),
        Misconception(
            "cache not returned",
            lambda q_new, k_new, v_new, cache: cached_attention(q_new, k_new, v_new, cache)[0],
            "The output alone is returned. Without the new cache the next token cannot be computed: return both.",
        ),
        Misconception(
            "does not see itself",
            partial(wrong_cache, allow=lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(S - T - 1)),
            "Your triangle is one place too small: a token may look at itself. The very first one has nothing else.",
        ),
        Misconception(
            "sees one token too many",
            partial(wrong_cache, allow=lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(S - T + 1)),
            "Your triangle is one place too large: each new token sees the one after it.",
        ),
        Misconception(
            "scaling missing",
            partial(wrong_cache, score=lambda q, k: q @ k.mT),
            "The scores are not divided by √D. With a cache attention is the same as without.",
        ),
        Misconception(
            "masked after the softmax",
            masked_after,
            "You set forbidden weights to 0 after the softmax, so the others sum to less than 1. Block the scores "
            "before it.",
        ),
        Misconception(
            "softmax over the queries",
            partial(wrong_cache, weigh=lambda scores: scores.softmax(-2)),
            "Your weights sum to 1 over the new tokens. Each query shares its attention among the keys: the last axis.",
        ),
        Misconception(
            "softmax overflows",
            partial(wrong_cache, weigh=lambda scores: scores.exp() / scores.exp().sum(-1, keepdim=True)),
            "Right for small scores, but exp overflows above 88 and leaves NaN. Subtract the largest score of each row "
            "first, as in chapter 2, or use torch's softmax.",
        ),
        Misconception(
            "last token only",
            partial(wrong_cache, hand_in=lambda output: output[..., -1:, :]),
            "You return the output of the last token only. All T new tokens need theirs.",
        ),
        Misconception(
            "always float32",
            in_float32,
            "You return float32 whatever comes in, and a float64 input loses half its digits.",
        ),
    ],
)

# --- efficiency.kv_cache_bytes ----------------------------------------------------------------------------------------

KV_CACHE_BYTES = Exercise(
    id="efficiency.kv_cache_bytes",
    chapter=14,
    title="What LLaMA-7B remembers of 4,096 tokens",
    kind="number",
    points=1,
    difficulty=2,
    minutes=6,
    why="With many users at once it is this number, not the size of the model, that decides how many fit.",
    reference=2 * 32 * 4096 * 4096 * 2,
    hints=[
        "What is kept for one token, in one layer: how many vectors, and of which length?",
        "32 heads of 128 features each: how many numbers is one key, all heads together? There are 32 layers and 4,096 "
        "tokens.",
        "A float16 takes two bytes. The product has five factors, and two of them are a 2: one for the bytes, what is "
        "the other for?",
    ],
    misconceptions=[
        Misconception(
            "keys or values only",
            32 * 4096 * 4096 * 2,
            "That is half of it: either the keys without the values, or one byte per number. Each token leaves a key "
            "and a value, and a float16 takes two bytes.",
        ),
        Misconception(
            "float32",
            2 * 32 * 4096 * 4096 * 4,
            "That is the cache in float32, four bytes a number. In float16 a number takes two.",
        ),
        Misconception(
            "queries kept, too",
            3 * 32 * 4096 * 4096 * 2,
            "You keep three vectors per token. An earlier token's query has done its work: only its key and its value "
            "meet later tokens.",
        ),
        Misconception(
            "one layer",
            2 * 4096 * 4096 * 2,
            "That is one layer. Each of the 32 layers has keys and values of its own. (Or have you one head of each "
            "layer? There are 32 heads, too.)",
        ),
        Misconception(
            "one head in one layer",
            2 * 4096 * 128 * 2,
            "That is one head of one layer. There are 32 heads in each of 32 layers.",
        ),
        Misconception(
            "one token",
            2 * 32 * 4096 * 2,
            "That is a single token in all layers. There are 4,096 of them.",
        ),
        Misconception(
            "heads counted twice",
            2 * 32 * 32 * 4096 * 4096 * 2,
            "You multiply by the 32 heads and by all 4,096 features. The features are shared out among the heads: 32 "
            "heads of 128 *are* the 4,096.",
        ),
        Misconception(
            "bits",
            2 * 32 * 4096 * 4096 * 16,
            "That is the number of bits. A byte has eight.",
        ),
        Misconception(
            "grouped heads",
            2 * 32 * 4096 * 8 * 128 * 2,
            "That is a cache with 8 key-value heads, as in Llama 3 8B. LLaMA-7B shares none: it has 32.",
        ),
        Misconception(
            "the weights",
            6_738_415_616 * 2,
            "Those are the weights of the model. The question asks for what 4,096 tokens leave in the cache.",
            also=[14e9, 13.5e9],
            rtol=0.001,
        ),
        Misconception(
            "the table of scores",
            32 * 32 * 4096 * 4096 * 2,
            "That is every score of every head and layer: T² for each. The cache holds keys and values, and grows with "
            "T only.",
        ),
        Misconception(
            "width of the feed-forward network",
            2 * 32 * 4096 * 11008 * 2,
            "You took 11,008, the width inside the feed-forward network. Keys and values are 4,096 wide, all heads "
            "together.",
        ),
        Misconception(
            "giga",
            2.147483648,
            "The size is right, the unit is not: give it in bytes.",
            also=[2.0, 2.1, 2.15, 2048.0, 2147.483648],
            rtol=0.002,
        ),
        Misconception(
            "rounded",
            2.147e9,
            "That is the right size, rounded. The exact figure is a product of whole numbers: give all its digits.",
            also=[2.1e9, 2.15e9, 2e9],
            rtol=0.0015,
        ),
    ],
)

# --- efficiency.quadratic ---------------------------------------------------------------------------------------------


def time_exponent(attention, lengths, rounds, clock):
    seconds = in_turns(attention, lengths, rounds, clock)
    return slope([math.log(T) for T in lengths], [math.log(min(seconds[T])) for T in lengths])


def in_turns(attention, lengths, rounds, clock):
    """Length -> the time of each call; every round calls all lengths once."""
    inputs, seconds = {T: torch.randn(1, T, FEATURES) for T in lengths}, {T: [] for T in lengths}
    for _ in range(rounds):
        for T, x in inputs.items():
            seconds[T].append(stopped(attention, x, clock))
    return seconds


def stopped(function, x, clock):
    start = clock()
    function(x)
    return clock() - start


def slope(x, y):
    """Of the straight line through these points, by least squares."""
    mean = sum(x) / len(x)
    x = [a - mean for a in x]  # they sum to 0, so the mean of y need not be subtracted
    return sum(a * b for a, b in zip(x, y)) / sum(a * a for a in x)


def length_by_length(attention, lengths, rounds, clock):
    inputs = {T: torch.randn(1, T, FEATURES) for T in lengths}
    return {T: [stopped(attention, x, clock) for _ in range(rounds)] for T, x in inputs.items()}


def exponent_with(
    attention, lengths, rounds, clock, *, take=in_turns, sum_up=min, fit=slope, see_x=math.log, see_y=math.log
):
    """The measurement, whose steps can be replaced one by one: most misconceptions below."""
    seconds = take(attention, lengths, rounds, clock)
    return fit([see_x(T) for T in lengths], [see_y(sum_up(seconds[T])) for T in lengths])


def long_reading(attention, lengths, rounds, clock):
    def total(x):
        start = clock()
        for _ in range(rounds):
            attention(x)
        return [clock() - start]

    return {T: total(torch.randn(1, T, FEATURES)) for T in lengths}


def through_the_origin(x, y):
    return sum(a * b for a, b in zip(x, y)) / sum(a * a for a in x)


def intercept(x, y):
    return sum(y) / len(y) - slope(x, y) * sum(x) / len(x)


def ends(x, y):
    return (y[-1] - y[0]) / (x[-1] - x[0])


def shortest_and_longest(x, y):
    return ends(*zip(*sorted(zip(x, y))))


def neighbours(x, y):
    return statistics.fmean((y[i + 1] - y[i]) / (x[i + 1] - x[i]) for i in range(len(x) - 1))


def known_power(seed):
    "An attention whose time is exactly c · T^p, p drawn between 1.5 and 2.4; and one with another p."
    rng = generator(seed)
    first = float(1.9 + 0.5 * torch.rand(1, generator=rng))
    second = float(1.5 + 0.3 * torch.rand(1, generator=rng))
    return [
        Case(*pretended(0.0, 1e-8, first, [64, 128, 256, 512, 1024], seed)),
        Case(*pretended(0.0, 3e-8, second, [1024, 64, 192, 320], seed + 1)),
    ]


def with_overhead(seed):
    "As on a real machine, each call costs something before it begins: the shortest lengths are bent upwards."
    rng = generator(seed)
    overhead = float(8e-4 + 8e-4 * torch.rand(1, generator=rng))
    return [Case(*pretended(overhead, 1e-8, 2.2, [256, 64, 1536, 128, 192, 2048], seed + 2))]


def pretended(overhead, cost, power, lengths, seed):
    attention = Given(pretend_attention, overhead, cost, power, says="a function of x (batch, T, features)")
    return attention, lengths, 20, Given(tiring_clock, seed, 0.003, says="a function: the time in seconds")


def measured(case, expected, got, *, rtol, atol=0.0):
    """As compare, and what keeps a figure from being a measurement is said as it is."""
    if isinstance(got, str) and not isinstance(expected, str):
        return f"This is not measured: {got}."
    return compare(expected, got, rtol, atol)


QUADRATIC = Exercise(
    id="efficiency.quadratic",
    chapter=14,
    title="Is it quadratic? Fit the exponent",
    kind="experiment",
    points=3,
    difficulty=4,
    minutes=20,
    signature="time_exponent(attention, lengths, rounds, clock)",
    why="'Quadratic' is a claim about a slope. Two timings do not show it; a line through logarithms does.",
    reference=time_exponent,
    probe=timed_alone,
    judge=partial(measured, rtol=0.0, atol=0.06),
    # The clock tires by 0.3 % per reading and times waver by 1 %. Over 100 seeds shortest times and medians, taken in
    # turns in any order, lie within 0.03 of the reference; the mistakes below are off by more than 0.06 somewhere.
    rtol=0.04,  # decides only whether a wrong figure is that of a known mistake
    stages=[known_power, with_overhead],
    hints=[
        "If time = c · Tᵖ, what is log time? Which part of that line is p?",
        "Time each length `rounds` times, one call between two readings of the clock. Which summary of 20 times does "
        "not care about a few that are far too long?",
        "The machine slows down while you work. If the long texts come last, who pays? Let the lengths take turns: the "
        "loop over the rounds is the outer one.",
        "Slope by least squares: subtract the mean of the log lengths and of the log times; then sum the products, and "
        "divide by the sum of the squares of the first. (`numpy.polyfit` of degree 1 gives slope, then intercept.)",
    ],
    misconceptions=[
        Misconception(
            "no logarithms",
            partial(exponent_with, see_x=float, see_y=float),
            "You fit a line through times and lengths themselves: its slope is in seconds per token. Take the "
            "logarithm of both; then the slope is the exponent.",
        ),
        Misconception(
            "logarithm of the times only",
            partial(exponent_with, see_x=float),
            "You took the logarithm of the times but not of the lengths. That line would be straight if time grew "
            "exponentially. For a power both axes need it.",
        ),
        Misconception(
            "logarithm of the lengths only",
            partial(exponent_with, see_y=float),
            "You took the logarithm of the lengths but not of the times. For a power both axes need it.",
        ),
        Misconception(
            "axes exchanged",
            partial(exponent_with, fit=lambda x, y: slope(y, x)),
            "Your line gives the length for a time, so its slope is near 1 / p. Times go up, lengths go to the right.",
        ),
        Misconception(
            "intercept",
            partial(exponent_with, fit=intercept),
            "That is the height of the line, log c, which depends on the machine. The exponent is its slope.",
        ),
        Misconception(
            "line through the origin",
            partial(exponent_with, fit=through_the_origin),
            "Your line is forced through the origin: a constant c of 1. Subtract both means first, and the constant "
            "drops out.",
        ),
        Misconception(
            "first and last only",
            partial(exponent_with, fit=ends),
            "You use two of the lengths and throw the others away. Where the points do not lie on one line, and real "
            "ones never do, that is not the fitted line. Use all of them.",
            also=[
                partial(exponent_with, fit=ends, sum_up=statistics.median),
                partial(exponent_with, fit=shortest_and_longest),
                partial(exponent_with, fit=shortest_and_longest, sum_up=statistics.median),
            ],
        ),
        Misconception(
            "mean of the steps",
            partial(exponent_with, fit=neighbours),
            "You average the slopes between neighbours. Lengths close together then weigh as much as those far apart, "
            "with all their noise. Fit one line through all points.",
        ),
        Misconception(
            "growth instead of exponent",
            partial(exponent_with, see_x=float, see_y=float, fit=lambda x, y: y[-1] / y[0]),
            "That is how many times longer the last length takes. How much longer is the text? The exponent relates "
            "the two.",
        ),
        Misconception(
            "mean time",
            partial(exponent_with, sum_up=statistics.fmean),
            "You average the times, or time all rounds together. A call that something got in the way of takes far "
            "longer, and drags the mean of the short texts up most. Take the shortest time, or the median.",
            also=[partial(exponent_with, sum_up=sum), partial(exponent_with, take=long_reading)],
        ),
        Misconception(
            "length after length",
            partial(exponent_with, take=length_by_length),
            "You measure all rounds of one length, then all of the next. A machine that slows down in between bends "
            "your line. Let the lengths take turns, round by round.",
            also=[partial(exponent_with, take=length_by_length, sum_up=statistics.median)],
        ),
        Misconception(
            "slowest call",
            partial(exponent_with, sum_up=max),
            "You use the slowest call of each length. It tells what got in the way, not what the attention costs.",
        ),
        Misconception(
            "first call",
            partial(exponent_with, sum_up=lambda times: times[0]),
            "You use the first call of each length. First calls are slow for reasons of their own: take the shortest "
            "of all rounds, or the median.",
        ),
        Misconception(
            "too few rounds",
            lambda attention, lengths, rounds, clock: time_exponent(attention, lengths, 1, clock),
            "For some length you call the attention fewer than `rounds` times. One measurement is none.",
        ),
        Misconception(
            "another clock",
            lambda attention, lengths, rounds, clock: time_exponent(attention, lengths, rounds, time.perf_counter),
            "You never read the clock that is given, so you timed something else. Call `clock()` before and after.",
        ),
        Misconception(
            "typed in",
            lambda attention, lengths, rounds, clock: 2.0,
            "That is no measurement: the attention was never called. The formula says 2; here the exponent may be "
            "another.",
        ),
    ],
)

# --- efficiency.online_softmax ----------------------------------------------------------------------------------------


def blockwise_attention(q, k, v, block_size):
    q = q / math.sqrt(q.shape[-1])
    largest = q.new_full((*q.shape[:-1], 1), -INF)  # (..., T, 1)
    total = torch.zeros_like(largest)  # (..., T, 1): sum of exp(score − largest)
    mixed = q.new_zeros(*q.shape[:-1], v.shape[-1])  # (..., T, D_v): values, mixed with the same factors
    for start in range(0, k.shape[-2], block_size):
        part = slice(start, start + block_size)
        scores = q @ k[..., part, :].mT  # (..., T, block_size)
        larger = torch.maximum(largest, scores.amax(-1, keepdim=True))
        shrink, raised = (largest - larger).exp(), (scores - larger).exp()
        total = total * shrink + raised.sum(-1, keepdim=True)
        mixed = mixed * shrink + raised @ v[..., part, :]
        largest = larger
    return mixed / total


def wrong_blocks(
    q,
    k,
    v,
    block_size,
    *,
    scale=lambda D: math.sqrt(D),
    begin=-INF,
    blocks=lambda S, size: range(0, S, size),
    compare_with=lambda largest, scores: torch.maximum(largest, scores.amax(-1, keepdim=True)),
    shrink_total=lambda old, new: (old - new).exp(),
    shrink_mixed=lambda old, new: (old - new).exp(),
    close=lambda mixed, total: mixed / total,
):
    """Attention block by block, whose steps can be replaced one by one: most misconceptions below."""
    largest = q.new_full((*q.shape[:-1], 1), begin)
    total, mixed = torch.zeros_like(largest), q.new_zeros(*q.shape[:-1], v.shape[-1])
    for start in blocks(k.shape[-2], block_size):
        part = slice(start, start + block_size)
        scores = q @ k[..., part, :].mT / scale(q.shape[-1])
        larger = compare_with(largest, scores)
        raised = (scores - larger).exp()
        total = total * shrink_total(largest, larger) + raised.sum(-1, keepdim=True)
        mixed = mixed * shrink_mixed(largest, larger) + raised @ v[..., part, :]
        largest = larger
    return close(mixed, total)


def no_shrink(old, new):
    return torch.ones_like(new)


def grow(old, new):
    return (new - old).exp()


def all_at_once(q, k, v, block_size, scale=math.sqrt):
    return (q @ k.mT / scale(q.shape[-1])).softmax(-1) @ v


def joined_scores(q, k, v, block_size):
    parts = k.split(block_size, dim=-2)
    return torch.cat([q @ part.mT / math.sqrt(q.shape[-1]) for part in parts], dim=-1).softmax(-1) @ v


def listed_scores(q, k, v, block_size):
    """The blocks of scores are kept in a list and never joined, but all of them are there at once."""
    listed = [q @ part.mT / math.sqrt(q.shape[-1]) for part in k.split(block_size, dim=-2)]
    largest = torch.stack([scores.amax(-1, keepdim=True) for scores in listed]).amax(0)
    total = sum((scores - largest).exp().sum(-1, keepdim=True) for scores in listed)
    pairs = zip(listed, v.split(block_size, dim=-2))
    return sum((scores - largest).exp() @ values for scores, values in pairs) / total


def fused(q, k, v, block_size):
    four_axes = (x.view((1,) * (4 - x.ndim) + x.shape) for x in (q, k, v))  # with fewer it stores the table
    return F.scaled_dot_product_attention(*four_axes).view(*q.shape[:-1], v.shape[-1])


def two_passes(q, k, v, block_size):
    keys, values = k.split(block_size, dim=-2), v.split(block_size, dim=-2)

    def score(part):
        return q @ part.mT / math.sqrt(q.shape[-1])

    largest = score(keys[0]).amax(-1, keepdim=True)
    for part in keys[1:]:
        largest = torch.maximum(largest, score(part).amax(-1, keepdim=True))
    total, mixed = 0.0, 0.0
    for part, mine in zip(keys, values):
        raised = (score(part) - largest).exp()
        total, mixed = total + raised.sum(-1, keepdim=True), mixed + raised @ mine
    return mixed / total


def outputs_of_blocks(q, k, v, block_size):
    pairs = zip(k.split(block_size, dim=-2), v.split(block_size, dim=-2))
    return torch.stack([all_at_once(q, keys, values, block_size) for keys, values in pairs])


def padded_with_zeros(q, k, v, block_size):
    missing = -k.shape[-2] % block_size
    k, v = (F.pad(x, (0, 0, 0, missing)) for x in (k, v))
    return blockwise_attention(q, k, v, block_size)


def one_query(seed):
    "One query, two blocks of two keys: the larger scores are in the second block, then in the first."
    rising = torch.tensor([[1.0], [2.0], [4.0], [3.0]])
    values = torch.tensor([[10.0], [20.0], [30.0], [0.0]])
    return [Case(torch.ones(1, 1), rising, values, 2), Case(torch.ones(1, 1), rising.flip(0), values, 2)]


def one_block(seed):
    "One block holds all keys, or there would be room for more."
    rng = generator(seed)
    return [Case(*qkv(rng, T=2, S=3, D=4, D_v=5), 3), Case(*qkv(rng, T=3, S=2, D=3, D_v=2), 5)]


def full_blocks(seed):
    "Blocks of one key, of two, of three, until all keys are read."
    rng = generator(seed)
    return [
        Case(*qkv(rng, T=2, S=3, D=4, D_v=3), 1),
        Case(*qkv(rng, T=3, S=6, D=2, D_v=4), 2),
        Case(*qkv(rng, T=4, S=6, D=5, D_v=2), 3),
    ]


def a_short_last_block(seed):
    "The last block is shorter than the others."
    rng = generator(seed)
    return [Case(*qkv(rng, T=2, S=5, D=3, D_v=4), 2), Case(*qkv(rng, T=3, S=7, D=4, D_v=2), 4)]


def leading_axes(seed):
    "A batch, heads, transposed views: every leading axis is only carried along."
    rng = generator(seed)
    views = [x.mT.contiguous().mT for x in qkv(rng, 2, 2, T=3, S=5, D=4, D_v=3)]
    return [
        Case(*qkv(rng, 3, T=3, S=3, D=3, D_v=3), 2),
        Case(*qkv(rng, 2, 3, T=2, S=5, D=4, D_v=6), 3),
        Case(*views, 2),
    ]


def extreme_scores(seed):
    "Scores near 150, near −150, and both in one table; rising and falling by hundreds from block to block."
    rng = generator(seed)
    steps, values = torch.randn(6, 1, generator=rng), 1 + torch.rand(6, 3, generator=rng)
    one, ladder = torch.ones(1, 1), torch.tensor([[0.0], [1.0], [300.0], [301.0], [900.0], [899.0]])
    return [
        Case(one, 150 + steps, values, 2),
        Case(one, -150 + steps, values, 2),
        Case(one, ladder, values, 2),
        Case(one, ladder.flip(0), values, 2),
        Case(torch.tensor([[1.0], [-1.0], [0.01]]), 150 + steps, values, 4),
    ]


def double_softmax(seed):
    "float64 in, float64 out."
    return [Case(*qkv(generator(seed), 2, T=3, S=7, D=5, D_v=2, dtype=torch.float64), 3)]


def long_texts(seed):
    "A long text, watched: is the T × S table ever there, is each block read once, do smaller blocks mean more steps?"
    rng = generator(seed)
    return [
        Case(*qkv(rng, 2, T=24, S=181, D=4, D_v=4), 16),
        Case(*qkv(rng, T=64, S=321, D=4, D_v=4), 16),
    ]


def qkv(rng, *leading, T, S, D, D_v, dtype=torch.float32):
    shapes = ((*leading, T, D), (*leading, S, D), (*leading, S, D_v))
    return tuple(torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes)


def right_and_in_one_pass(case, expected, got):
    """The output first; then what the watch has seen."""
    if not (isinstance(expected, dict) and isinstance(got, dict)):
        return compare(expected, got)
    problem = compare(expected["output"], got["output"])
    if problem:
        return problem
    if got["held T × S"]:
        return (
            "Your output is right, but at some moment you hold as many numbers as the whole table has, T · S per head."
        )
    if got["second pass"]:
        return "Your output is right, but you go over the keys more than once."
    if not got["in blocks"]:
        return "Your output is right, but `block_size` changes nothing: smaller blocks should mean more steps."
    return None


ONLINE_SOFTMAX = Exercise(
    id="efficiency.online_softmax",
    chapter=14,
    title="Attention block by block",
    kind="code",
    points=5,
    difficulty=5,
    minutes=30,
    signature="blockwise_attention(q, k, v, block_size)",
    why="It is the idea inside FlashAttention: the same result to the last digit or two, without the quadratic table.",
    reference=blockwise_attention,
    probe=held_while_reading,
    judge=right_and_in_one_pass,
    stages=[
        one_query,
        one_block,
        full_blocks,
        a_short_last_block,
        leading_axes,
        extreme_scores,
        double_softmax,
        long_texts,
    ],
    hints=[
        "Which three things must you remember of the keys read so far, for each query? Give their shapes.",
        "A new block may bring a larger score. By which factor are the old sum and the old mix too large, now that "
        "they should refer to the new maximum?",
        "Before the first block nothing has been read: a sum of 0, a mix of zeros, and a maximum below every score. "
        "What is exp of (that maximum − any score)?",
        "For every block: scores, new maximum, factor for the old, exp for the new, sum, mix. After the last block "
        "divide once. Slices may run past the end of a tensor: they stop there by themselves.",
    ],
    misconceptions=[
        Misconception(
            "never rescaled",
            partial(wrong_blocks, shrink_total=no_shrink, shrink_mixed=no_shrink),
            "When a larger score arrives, your old sum and old mix stay as they were, relative to the old maximum. "
            "Multiply both by exp(old maximum − new maximum).",
        ),
        Misconception(
            "only the sum rescaled",
            partial(wrong_blocks, shrink_mixed=no_shrink),
            "You rescale the sum when the maximum grows, but not the mix of values. Both refer to the old maximum.",
        ),
        Misconception(
            "only the mix rescaled",
            partial(wrong_blocks, shrink_total=no_shrink),
            "You rescale the mix of values when the maximum grows, but not the sum. Both refer to the old maximum.",
        ),
        Misconception(
            "rescaled the wrong way",
            partial(wrong_blocks, shrink_total=grow, shrink_mixed=grow),
            "You multiply by exp(new − old), which grows. The old terms were exp(s − old) and should be exp(s − new): "
            "the factor is exp(old − new), 1 or less.",
            also=[partial(wrong_blocks, begin=-1e9, shrink_total=grow, shrink_mixed=grow)],
        ),
        Misconception(
            "no maximum",
            partial(wrong_blocks, begin=0.0, compare_with=lambda largest, scores: largest),
            "Right for small scores. Without a maximum subtracted exp overflows above 88 and is 0 far below: keep the "
            "largest score so far and subtract it.",
        ),
        Misconception(
            "maximum begins at 0",
            partial(wrong_blocks, begin=0.0),
            "Your maximum begins at 0, so where all scores lie far below, every exp is 0 and you divide 0 by 0. Begin "
            "below every score: −inf.",
        ),
        Misconception(
            "maximum of the block",
            partial(wrong_blocks, compare_with=lambda largest, scores: scores.amax(-1, keepdim=True)),
            "You take the maximum of the new block alone. If it is far below the old one, the factor for the old part "
            "overflows. The maximum is that of all keys so far.",
        ),
        Misconception(
            "one maximum for all queries",
            partial(wrong_blocks, compare_with=lambda largest, scores: torch.maximum(largest, scores.max())),
            "All your queries share one maximum. A query whose scores lie far below another's is left with 0 / 0. Each "
            "query needs its own.",
        ),
        Misconception(
            "mean of the blocks",
            lambda q, k, v, block_size: outputs_of_blocks(q, k, v, block_size).mean(0),
            "You take a softmax within each block and average the results. A block with small scores then counts as "
            "much as one with large ones. One softmax goes over all keys: keep sums, divide at the end.",
        ),
        Misconception(
            "sum of the blocks",
            lambda q, k, v, block_size: outputs_of_blocks(q, k, v, block_size).sum(0),
            "You take a softmax within each block and add the results, so the weights sum to the number of blocks. "
            "Keep sums over all keys, divide at the end.",
        ),
        Misconception(
            "last block only",
            lambda q, k, v, block_size: outputs_of_blocks(q, k, v, block_size)[-1],
            "Only the last block is left in your output: each one overwrites what was there. Carry sum and mix along.",
        ),
        Misconception(
            "not divided by the sum",
            partial(wrong_blocks, close=lambda mixed, total: mixed),
            "Your mix is right, but the factors do not sum to 1. After the last block divide by their sum.",
        ),
        Misconception(
            "short last block left out",
            partial(wrong_blocks, blocks=lambda S, size: range(0, S - S % size, size)),
            "You read full blocks only, and the keys that are left over are lost. The last block may be shorter.",
            also=[partial(wrong_blocks, blocks=lambda S, size: range(0, S - size + 1, size))],
        ),
        Misconception(
            "filled up with zeros",
            padded_with_zeros,
            "You fill the last block up with keys of zeros. Their scores are 0, not −inf, so they take their share of "
            "the softmax. Leave them out.",
        ),
        Misconception(
            "scaling missing",
            partial(wrong_blocks, scale=lambda D: 1.0),
            "The scores are not divided by √D. Block by block attention is the same as at once.",
            also=[partial(all_at_once, scale=lambda D: 1.0)],
        ),
        Misconception(
            "scaled by D",
            partial(wrong_blocks, scale=lambda D: D),
            "You divide the scores by D. Divide them by its root.",
            also=[partial(all_at_once, scale=lambda D: D)],
        ),
        Misconception(
            "the whole table",
            all_at_once,
            "Your output is right, but the whole T × S table is there at once, which is what was to be avoided. "
            "Keep nothing of a block but its share of maximum, sum and mix.",
            also=[joined_scores, listed_scores],
        ),
        Misconception(
            "two passes",
            two_passes,
            "Your output is right, but you go over the keys twice: once for the maximum, once for the rest. One pass "
            "is enough if you correct the old sums whenever the maximum grows.",
        ),
        Misconception(
            "block_size ignored",
            lambda q, k, v, block_size: blockwise_attention(q, k, v, 4),
            "Your output is right, but `block_size` changes nothing: here you are to write the loop over the blocks "
            "that PyTorch's kernel has inside.",
            also=[fused],
        ),
        Misconception(
            "always float32",
            lambda q, k, v, block_size: blockwise_attention(q.float(), k.float(), v.float(), block_size),
            "You return float32 whatever comes in, and a float64 input loses half its digits.",
        ),
    ],
)

# --- efficiency.rnn_or_attention --------------------------------------------------------------------------------------


def sequence_seconds(step, attention, lengths, batch, rounds, clock):
    times = race(partial(walk, step), attention, lengths, batch, rounds, clock, min)
    return times | {"crossing": first_slower(lengths, times)}


def race(recurrent, attention, lengths, batch, rounds, clock, sum_up):
    """Seconds per sequence for each length, of both layers."""
    times = {"rnn": [], "attention": []}
    for T in lengths:
        x = torch.randn(batch, T, FEATURES)
        both = [], []
        for _ in range(rounds):
            for layer, taken in zip((recurrent, attention), both):
                taken.append(stopped(layer, x, clock))
        for name, taken in zip(times, both):
            times[name].append(sum_up(taken) / batch)
    return times


def walk(step, x):
    state = torch.zeros(len(x), FEATURES)
    for t in range(x.shape[1]):
        state = step(x[:, t], state)


def first_slower(lengths, times):
    slower = [T for T, one, other in zip(lengths, times["rnn"], times["attention"]) if other > one]
    return min(slower, default=None)


def seconds_with(
    step,
    attention,
    lengths,
    batch,
    rounds,
    clock,
    *,
    recurrent=walk,
    sum_up=min,
    share=lambda rnn, attention, batch, T: (rnn, attention),
    cross=first_slower,
):
    """The measurement, whose steps can be replaced one by one: most misconceptions below."""
    times = race(partial(recurrent, step), attention, lengths, batch, rounds, clock, sum_up)
    shared = [share(*pair, batch, T) for *pair, T in zip(*times.values(), lengths)]
    times = dict(zip(times, map(list, zip(*shared))))
    return times | {"crossing": cross(lengths, times)}


def state_lost(step, x):
    for t in range(x.shape[1]):
        step(x[:, t], torch.zeros_like(x[:, 0]))


def one_step(step, x):
    step(x[:, 0], torch.zeros_like(x[:, 0]))


def one_step_less(step, x):
    walk(step, x[:, 1:])


def step_by_step(step, attention, lengths, batch, rounds, clock):
    """The clock is read around every step, and the shortest step is taken T times."""

    def seconds(T):
        x = torch.randn(batch, T, FEATURES)
        steps, whole = [], []
        for _ in range(rounds):
            state = torch.zeros(batch, FEATURES)
            for t in range(T):
                start = clock()
                state = step(x[:, t], state)
                steps.append(clock() - start)
            whole.append(stopped(attention, x, clock))
        return min(steps) / batch, min(whole) / batch

    times = dict(zip(("rnn", "attention"), map(list, zip(*map(seconds, lengths)))))
    return times | {"crossing": first_slower(lengths, times)}


def first_faster(lengths, times):
    faster = [T for T, one, other in zip(lengths, times["rnn"], times["attention"]) if other < one]
    return min(faster, default=None)


def last_faster(lengths, times):
    faster = [T for T, one, other in zip(lengths, times["rnn"], times["attention"]) if other < one]
    return max(faster, default=None)


def between_two_lengths(lengths, times):
    slower = first_slower(lengths, times)
    return None if slower == min(lengths) else slower


def place_of_crossing(lengths, times):
    slower = first_slower(lengths, times)
    return None if slower is None else lengths.index(slower)


def longest_if_never(lengths, times):
    return first_slower(lengths, times) or max(lengths)


def first_in_list(lengths, times):
    pairs = zip(lengths, times["rnn"], times["attention"])
    return next((T for T, one, other in pairs if other > one), None)


def two_layers(seed, crossing, lengths, batch):
    """Costs for which attention takes T / crossing times as long as the recurrent layer."""
    rng = generator(seed)
    per_token = float(2 + 2 * torch.rand(1, generator=rng)) * 1e-6  # of a step, for each text
    overhead = per_token * 0.5 * batch
    pairs = (overhead + per_token * batch) / batch / crossing
    return Case(
        Given(pretend_step, overhead, per_token, says="a function of (token, state): the new state"),
        Given(pretend_attention, 0.0, pairs, 2.0, says="a function of x (batch, T, features)"),
        lengths,
        batch,
        9,
        Given(tiring_clock, seed, 0.0002, says="a function: the time in seconds"),
    )


def one_text(seed):
    "One text at a time: attention is faster for short texts, the recurrent layer for long ones."
    return [two_layers(seed, 32, [4, 16, 64, 128], 1)]


def several_texts(seed):
    "A batch of five, and of three with the lengths in another order: seconds per sequence, not per batch."
    return [two_layers(seed + 1, 8, [4, 16, 64], 5), two_layers(seed + 2, 50, [100, 6, 200, 25], 3)]


def one_sided(seed):
    "A pair in which attention is always faster, and one in which it never is."
    return [two_layers(seed + 3, 500, [8, 32, 128], 2), two_layers(seed + 4, 3, [64, 6, 24], 2)]


def both_measured(case, expected, got):
    """As measured. A crossing that is None was returned, so that nobody is asked for a `return`."""
    problem = measured(case, expected, got, rtol=0.08)
    if problem and isinstance(got, dict) and got.get("crossing", 0) is None and expected["crossing"] is not None:
        others = measured(case, expected | {"crossing": None}, got, rtol=0.08)
        return others or "`crossing` is None, and there is a length at which attention takes longer."
    return problem


RNN_OR_ATTENTION = Exercise(
    id="efficiency.rnn_or_attention",
    chapter=14,
    title="A recurrent layer against attention",
    kind="experiment",
    points=3,
    difficulty=4,
    minutes=20,
    signature="sequence_seconds(step, attention, lengths, batch, rounds, clock)",
    why="'Transformers are faster than RNNs' depends on the length. Find where the two change places.",
    reference=sequence_seconds,
    probe=timed_beside,
    judge=both_measured,
    # Times waver by 1 %, the clock tires by 0.02 % per reading: over 60 seeds shortest times and medians lie within
    # 3 % of the reference. At every length one layer takes at least twice as long as the other.
    rtol=0.08,
    stages=[one_text, several_texts, one_sided],
    hints=[
        "Which of the two layers needs a loop over the tokens, and what does each step get from the step before?",
        "One measurement is a whole sequence: read the clock, let the layer read all T tokens, read the clock. A batch "
        "holds several sequences: by what do you divide?",
        "Something gets in the way now and then, and first calls are slow. Take the shortest of the `rounds` times, or "
        "the median.",
        "For the crossing collect the lengths at which attention took longer, and take the smallest; None if there is "
        "none. The lengths need not come in order.",
    ],
    misconceptions=[
        Misconception(
            "one step for the whole text",
            partial(seconds_with, recurrent=one_step),
            "You time a single step of the recurrent layer, as if it read the text at once. It must walk over all T "
            "tokens, and that walk is what it is known for.",
        ),
        Misconception(
            "too few steps",
            partial(seconds_with, recurrent=one_step_less),
            "Over all lengths and rounds together your recurrent layer takes too few steps. Each text of T "
            "tokens needs T of them, the first and the last token too, and every length is timed `rounds` times.",
        ),
        Misconception(
            "state not handed on",
            partial(seconds_with, recurrent=state_lost),
            "In some round the state is not handed on from the first token to the last: a step that begins with zeros "
            "remembers nothing. Each step gets the state that the step before returned.",
        ),
        Misconception(
            "seconds per batch",
            partial(seconds_with, share=lambda rnn, attention, batch, T: (rnn * batch, attention * batch)),
            "These are seconds for the whole batch. A batch holds several sequences: divide by their number.",
        ),
        Misconception(
            "seconds per token",
            partial(seconds_with, share=lambda rnn, attention, batch, T: (rnn / T, attention / T)),
            "You divide by the number of tokens. Asked are seconds per sequence, that grow with T.",
            also=[
                partial(seconds_with, share=lambda rnn, attention, batch, T: (rnn * batch / T, attention * batch / T))
            ],
        ),
        Misconception(
            "layers exchanged",
            partial(seconds_with, share=lambda rnn, attention, batch, T: (attention, rnn)),
            'The times stand under each other\'s names: those of the recurrent layer under "attention", and the '
            "reverse.",
            also=[
                lambda *args: (
                    seconds_with(*args, share=lambda rnn, attention, batch, T: (attention, rnn))
                    | {"crossing": sequence_seconds(*args)["crossing"]}
                )
            ],
        ),
        Misconception(
            "only the recurrent time shared out",
            partial(seconds_with, share=lambda rnn, attention, batch, T: (rnn, attention * batch)),
            "You divide the time of the recurrent layer by the batch, and not that of attention. Both read the whole "
            "batch at once.",
            also=[partial(seconds_with, share=lambda rnn, attention, batch, T: (rnn * batch, attention))],
        ),
        Misconception(
            "mean time",
            partial(seconds_with, sum_up=statistics.fmean),
            "You average the times. A call that something got in the way of takes far longer, and drags the mean "
            "along. Take the shortest time, or the median.",
            also=[partial(seconds_with, sum_up=sum)],
        ),
        Misconception(
            "slowest call",
            partial(seconds_with, sum_up=max),
            "You report the slowest of the rounds. It tells what got in the way, not what the layer costs.",
        ),
        Misconception(
            "first call",
            partial(seconds_with, sum_up=lambda times: times[0]),
            "You report the first of the rounds. First calls are slow for reasons of their own: take the shortest, or "
            "the median.",
        ),
        Misconception(
            "a single step reported",
            lambda *args: (lambda found: found | {"rnn": [each / T for each, T in zip(found["rnn"], args[2])]})(
                sequence_seconds(*args)
            ),
            "For the recurrent layer you report the time of one step. A sequence takes T of them, one after another.",
            also=[step_by_step],
        ),
        Misconception(
            "where attention is faster",
            partial(seconds_with, cross=first_faster),
            "Your crossing is the smallest length at which attention is *faster*. Asked is the smallest at which it is "
            "slower than the recurrent layer.",
            also=[partial(seconds_with, cross=last_faster)],
        ),
        Misconception(
            "a crossing needs a faster length",
            partial(seconds_with, cross=between_two_lengths),
            "Where attention is slower at every length, your crossing is None. Asked is the smallest of the lengths at "
            "which attention takes longer, with or without one at which it is faster.",
        ),
        Misconception(
            "place instead of length",
            partial(seconds_with, cross=place_of_crossing),
            "Your crossing is a place in the list of lengths. Return the length itself.",
        ),
        Misconception(
            "the longest if there is none",
            partial(seconds_with, cross=longest_if_never),
            "Where attention is faster at every length there is no crossing: return None, not a length.",
        ),
        Misconception(
            "first in the list",
            partial(seconds_with, cross=first_in_list),
            "You take the first length in the list at which attention is slower. The lengths need not come in order: "
            "take the smallest.",
        ),
        Misconception(
            "too few rounds",
            lambda step, attention, lengths, batch, rounds, clock: sequence_seconds(
                step, attention, lengths, batch, 1, clock
            ),
            "For some length you time attention fewer than `rounds` times. One measurement is none.",
        ),
        Misconception(
            "another clock",
            lambda step, attention, lengths, batch, rounds, clock: sequence_seconds(
                step, attention, lengths, batch, rounds, time.perf_counter
            ),
            "You never read the clock that is given, so you timed something else. Call `clock()` before and after.",
        ),
        Misconception(
            "typed in",
            lambda step, attention, lengths, batch, rounds, clock: {
                "rnn": [1e-5 * T for T in lengths],
                "attention": [1e-7 * T * T for T in lengths],
                "crossing": 128,
            },
            "These are no measurements: the attention was never called.",
        ),
    ],
)

EXERCISES = [KV_CACHE, KV_CACHE_BYTES, QUADRATIC, ONLINE_SOFTMAX, RNN_OR_ATTENTION]
