import torch

from course_lib.chapters.encoder_decoder.fixtures import decoder_block_parts
from course_lib.grading.exercise import Case, Given, generator, stage


def decoder_block(x, encoded, parts, source_mask=None):
    """Add self-attention, cross-attention, then feed-forward to the residual stream:
    (B, T, d) -> (B, T, d)."""
    T = x.shape[1]
    causal = torch.ones(T, T, dtype=torch.bool).tril()  # (T, T)
    h = parts.norm1(x)
    x = x + parts.attention(h, h, causal)  # what has been written so far
    h = parts.cross_norm(x)
    x = x + parts.cross_attention(h, encoded, source_mask)  # asks with what it now knows
    h = parts.norm2(x)
    return x + parts.feed_forward(h)


def then(first, second):
    """Return a function that applies `second` to the result of `first`."""
    return lambda *args: second(first(*args))


LITTLE = {"d_model": 4, "n_heads": 2, "d_ff": 6}


MIDDLE = {"d_model": 6, "n_heads": 3, "d_ff": 10}


MODERN = {"d_model": 8, "n_heads": 2, "d_ff": 12, "norm": "rms", "activation": "swiglu", "bias": False}


def block_case(rng, sizes, B, T, S, lengths=None, dtype=torch.float32):
    says = f"(the parts of a decoder block: d_model = {sizes['d_model']}, {sizes['n_heads']} heads)"
    name = str(dtype).removeprefix("torch.")
    parts = Given(decoder_block_parts, sizes, int(torch.randint(2**31, (), generator=rng)), name, says=says)
    x, encoded = (torch.randn(B, n, sizes["d_model"], generator=rng, dtype=dtype) for n in (T, S))
    if lengths is None:
        return Case(x, encoded, parts)
    return Case(x, encoded, parts, (torch.arange(S) < torch.tensor(lengths)[:, None])[:, None, None])


@stage
def one_to_one(seed):
    "One target token, one source token: three branches, each with its own norm, each added to the residual stream."
    return [block_case(generator(seed), LITTLE, 1, 1, 1)]


@stage
def written_so_far(seed):
    "Several target tokens, one source token: no position sees a later one."
    rng = generator(seed)
    return [block_case(rng, LITTLE, 1, 3, 1), block_case(rng, MIDDLE, 2, 4, 1)]


@stage
def whole_source(seed):
    "Several source tokens: every target token may look at all of them."
    rng = generator(seed)
    return [block_case(rng, LITTLE, 1, 2, 3), block_case(rng, MIDDLE, 2, 5, 4)]


@stage
def padded_source(seed):
    "A source with padding: the mask hides it from the cross-attention."
    rng = generator(seed)
    return [
        block_case(rng, LITTLE, 1, 2, 3, lengths=[2]),
        block_case(rng, MIDDLE, 3, 4, 5, lengths=[5, 2, 3]),
        block_case(rng, MIDDLE, 3, 4, 5, lengths=[1, 4, 5]),
        block_case(rng, MODERN, 2, 3, 4, lengths=[1, 3]),
    ]


@stage
def as_many_as(seed):
    "The target and the source have the same length, so the shapes of the two masks do not differ."
    rng = generator(seed)
    return [block_case(rng, LITTLE, 3, 3, 3, lengths=[2, 3, 1]), block_case(rng, MIDDLE, 2, 3, 3)]


@stage
def in_float64(seed):
    "float64 in, float64 out."
    return [block_case(generator(seed), MIDDLE, 2, 3, 4, lengths=[4, 2], dtype=torch.float64)]
