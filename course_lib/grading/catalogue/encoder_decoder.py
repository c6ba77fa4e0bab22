"""Chapter 11, encoder–decoder: four exercises.

Shapes: the decoder's stream (B, T, d), the encoder's output (B, S, d). mask: True = may attend.
"""

import math
from functools import partial

import torch

from ..exercise import Case, Exercise, Given, Misconception, Option, generator
from ..given import decoder_block_parts

INF = float("inf")

# --- encoder_decoder.attention ----------------------------------------------------------------------------------------


def cross_attention(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    (B, T, d), S = decoder_x.shape, encoder_out.shape[1]
    D = d // n_heads
    q = (decoder_x @ W_Q).reshape(B, T, n_heads, D).transpose(1, 2)  # (B, H, T, D)
    k = (encoder_out @ W_K).reshape(B, S, n_heads, D).transpose(1, 2)  # (B, H, S, D)
    v = (encoder_out @ W_V).reshape(B, S, n_heads, D).transpose(1, 2)  # (B, H, S, D)
    scores = q @ k.mT / math.sqrt(D)  # (B, H, T, S)
    if encoder_lengths is None:
        weights = scores.softmax(-1)
    else:
        padding = (torch.arange(S) >= encoder_lengths[:, None])[:, None, None]  # (B, 1, 1, S)
        weights = scores.masked_fill(padding, -INF).softmax(-1).nan_to_num(0.0)  # an empty source: nothing to add
    return (weights @ v).transpose(1, 2).reshape(B, T, d) @ W_O  # (B, T, d)


def split(x, n_heads):
    return x.reshape(*x.shape[:2], n_heads, -1).transpose(1, 2)


def merge(heads):
    return heads.transpose(1, 2).flatten(2)


def weigh(scores, real, dim=-1, fill=-INF, empty=True):
    """Softmax over what is real. empty: a row without anything real gets zeros."""
    if real is None:
        return scores.softmax(dim)
    weights = scores.masked_fill(~real, fill).softmax(dim)
    return weights.masked_fill(~real.any(-1, keepdim=True), 0.0) if empty else weights


def split_as(T, x, n_heads):
    """As `split`, by a learner who writes out how many tokens there should be."""
    return x.reshape(len(x), T, n_heads, x.shape[-1] // n_heads).transpose(1, 2)


def cross_with(
    decoder_x,
    encoder_out,
    W_Q,
    W_K,
    W_V,
    W_O,
    n_heads,
    encoder_lengths=None,
    *,
    take=lambda x, y: (x, y, y),
    project=lambda x, W: x @ W,
    cut=split,
    written_out=False,
    scale=lambda scores, d, n_heads: scores / math.sqrt(d // n_heads),
    reach=lambda T, S, S_keys: S_keys,
    real_at=lambda places, lengths: places < lengths[:, None],
    axes=lambda real: real[:, None, None],
    weights=weigh,
    join=merge,
):
    """Cross-attention whose steps can be replaced one by one: most misconceptions below."""
    asks, answers, says = take(decoder_x, encoder_out)
    q, k, v = (project(x, W) for x, W in ((asks, W_Q), (answers, W_K), (says, W_V)))
    if written_out:
        T, S = decoder_x.shape[1], encoder_out.shape[1]
        q, k, v = split_as(T, q, n_heads), split_as(S, k, n_heads), split_as(S, v, n_heads)
    else:
        q, k, v = (cut(part, n_heads) for part in (q, k, v))
    scores = scale(q @ k.mT, decoder_x.shape[-1], n_heads)  # (B, H, T, S)
    real = None
    if encoder_lengths is not None:
        places = torch.arange(reach(decoder_x.shape[1], encoder_out.shape[1], k.shape[2]))
        real = axes(real_at(places, encoder_lengths))
    return project(join(weights(scores, real) @ v), W_O)


def mistaken(*otherwise, careful=weigh, **steps):
    """The same mistake by a learner who sees to an empty source, by one who gets NaN there, and by one with −1e9.

    otherwise: other steps, in which it shows too. careful: a softmax that is part of the mistake.
    """
    softmaxes = careful, partial(careful, empty=False), partial(careful, empty=False, fill=-1e9)
    answers = [partial(cross_with, weights=one, **way) for way in (steps, *otherwise) for one in softmaxes]
    return {"wrong": answers[0], "also": answers[1:]}


def taken_wrongly(take):
    """From the wrong text; some make the mask for the keys that they have, some for the source, some write S out."""
    for_the_source = {"take": take, "reach": lambda T, S, S_keys: S}
    return mistaken(for_the_source, {"take": take, "written_out": True}, take=take)


def unprepared(*args):
    """The plain formula, NaN where the source is empty."""
    return cross_with(*args, weights=partial(weigh, empty=False))


def length_ignored(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    return cross_attention(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads)


def padding_set_to_zero(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    if encoder_lengths is not None:
        real = torch.arange(encoder_out.shape[1]) < encoder_lengths[:, None]  # (B, S)
        encoder_out = encoder_out * real[..., None]
    return cross_attention(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads)


def cut_at_the_longest(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    longest = encoder_out.shape[1] if encoder_lengths is None else int(encoder_lengths.max())
    return cross_attention(decoder_x, encoder_out[:, :longest], W_Q, W_K, W_V, W_O, n_heads)


def cut_at_the_shortest(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None):
    shortest = encoder_out.shape[1] if encoder_lengths is None else int(encoder_lengths.min())
    return cross_attention(decoder_x, encoder_out[:, :shortest], W_Q, W_K, W_V, W_O, n_heads)


def masked_after_softmax(scores, real, **_):
    weights = scores.softmax(-1)
    return weights if real is None else weights * real


def scores_set_to_zero(scores, real, **_):
    return scores.softmax(-1) if real is None else (scores * real).softmax(-1)


def causal_too(scores, real, **how):
    T, S = scores.shape[-2:]
    past = torch.ones(T, S, dtype=torch.bool).tril()
    return weigh(scores, past if real is None else real & past, **how)


def exp_by_hand(scores, real, empty=True, fill=-INF):
    if real is not None:
        scores = scores.masked_fill(~real, fill)
    powers = scores.exp()
    weights = powers / powers.sum(-1, keepdim=True)
    return weights if real is None or not empty else weights.masked_fill(~real.any(-1, keepdim=True), 0.0)


def hard_choice(scores, real, empty=True, fill=-INF):
    weights = weigh(scores, real, empty=True)
    return torch.nn.functional.one_hot(weights.argmax(-1), weights.shape[-1]).to(weights)


def both_texts(x, y):
    joined = torch.cat([y, x], dim=1)
    return x, joined, joined


def with_residual(answer):
    return lambda decoder_x, *rest: decoder_x + answer(decoder_x, *rest)


def without_output(answer):
    return lambda x, y, W_Q, W_K, W_V, W_O, *rest: answer(x, y, W_Q, W_K, W_V, torch.eye(len(W_O)).to(W_O), *rest)


def matrices(rng, d, dtype):
    return [torch.randn(d, d, generator=rng, dtype=dtype) / d**0.5 for _ in range(4)]


def two_texts(rng, B, T, S, n_heads, D, lengths=None, dtype=torch.float32, size=1.0):
    """A call; padding holds numbers like any other token, and larger."""
    d = n_heads * D
    x = size * torch.randn(B, T, d, generator=rng, dtype=dtype)
    y = torch.randn(B, S, d, generator=rng, dtype=dtype)
    args = [x, y, *matrices(rng, d, dtype), n_heads]
    if lengths is not None:
        lengths = torch.tensor(lengths)
        y[torch.arange(S) >= lengths[:, None]] *= 3
        args.append(lengths)
    return Case(*args)


def one_source_token(seed):
    "A source of one token, one head: whatever is asked, the answer is that token's value, through W_O."
    return [two_texts(generator(seed), 1, 2, 1, 1, 3)]


def one_head(seed):
    "One head; more source tokens than target tokens, and fewer."
    rng = generator(seed)
    return [two_texts(rng, 1, 2, 4, 1, 3), two_texts(rng, 1, 5, 3, 1, 4)]


def several_heads(seed):
    "Several heads, each with its own slice of the features."
    rng = generator(seed)
    return [two_texts(rng, 1, 2, 3, 2, 4), two_texts(rng, 1, 5, 4, 3, 2)]


def batches(seed):
    "Several texts at once; and inputs that are transposed views."
    rng = generator(seed)
    case = two_texts(rng, 5, 4, 3, 2, 3)
    x, y, *rest = case.args
    views = [t.transpose(0, 1).contiguous().transpose(0, 1) for t in (x, y)]
    return [two_texts(rng, 2, 5, 7, 3, 4), Case(*views, *[W.T.contiguous().T for W in rest[:4]], 2)]


def padded(seed):
    "Sources of different length: what stands behind a source's end is padding, and gets no weight."
    rng = generator(seed)
    return [
        two_texts(rng, 1, 2, 4, 1, 3, lengths=[2]),
        two_texts(rng, 2, 4, 6, 3, 2, lengths=[6, 1]),
        two_texts(rng, 3, 5, 4, 2, 3, lengths=[1, 3, 2]),
    ]


def all_sizes_equal(seed):
    "As many texts as target tokens, source tokens, heads and features per head, with padding."
    return [two_texts(generator(seed), 3, 3, 3, 3, 3, lengths=[2, 3, 1])]


def large_queries(seed):
    "Large queries: exp of such scores overflows, and the weights are ordinary numbers."
    rng = generator(seed)
    return [two_texts(rng, 2, 3, 5, 2, 3, size=300.0), two_texts(rng, 2, 2, 4, 1, 5, lengths=[2, 3], size=300.0)]


def double_precision(seed):
    "float64 in, float64 out."
    return [two_texts(generator(seed), 2, 4, 5, 2, 3, lengths=[3, 5], dtype=torch.float64)]


def empty_source(seed):
    "A source of length 0: there is nothing to look at, and the result is 0, not NaN."
    return [two_texts(generator(seed), 2, 3, 4, 2, 3, lengths=[0, 3])]


ATTENTION = Exercise(
    id="encoder_decoder.attention",
    chapter=11,
    title="Attention from one text to another",
    kind="code",
    points=5,
    difficulty=4,
    minutes=25,
    signature="cross_attention(decoder_x, encoder_out, W_Q, W_K, W_V, W_O, n_heads, encoder_lengths=None)",
    why="The one new idea of the encoder–decoder. The class in the course notes takes no padding mask.",
    reference=cross_attention,
    stages=[
        one_source_token,
        one_head,
        several_heads,
        batches,
        padded,
        all_sizes_equal,
        large_queries,
        double_precision,
        empty_source,
    ],
    hints=[
        "Which of the two texts asks, and which one answers? So what is multiplied by W_Q, what by W_K and by W_V, and "
        "how many rows has each result?",
        "Cut the features of q, k and v into heads: (B, T, H, D), then put the heads in front of the tokens. For k and "
        "v it is S instead of T. Scores are (B, H, T, S), divided by the root of D, the width of one head.",
        "For the padding compare the places 0 … S − 1 with each source's length: that gives (B, S). The scores have "
        "two axes more. Where do they have to stand, so that all heads and all queries share it?",
        "Blocked scores become −inf before the softmax, so that the rest share 1. A row of nothing but −inf becomes "
        "NaN: such a source should give weights of 0.",
        "At the end bring the heads behind the tokens again before you lay them side by side, and multiply by W_O.",
    ],
    misconceptions=[
        Misconception(
            "self-attention",
            **taken_wrongly(lambda x, y: (x, x, x)),
            sentence="Your keys and values come from the decoder, so it looks at its own text: that is self-attention, "
            "and the source is never read. Multiply `encoder_out` by W_K and W_V.",
        ),
        Misconception(
            "roles exchanged",
            **taken_wrongly(lambda x, y: (y, x, x)),
            sentence="Your queries come from the encoder and your keys from the decoder. The text being written asks, "
            "the source answers: the result has one row for each target token.",
        ),
        Misconception(
            "values from the decoder",
            **taken_wrongly(lambda x, y: (x, y, x)),
            sentence="Your keys come from the source and your values from the decoder. A value is what the token "
            "looked at has to say: both belong to `encoder_out`.",
        ),
        Misconception(
            "keys from the decoder",
            **taken_wrongly(lambda x, y: (x, x, y)),
            sentence="Your keys come from the decoder and your values from the source. A key is how a token of the "
            "source is found: both belong to `encoder_out`.",
        ),
        Misconception(
            "queries from the encoder",
            **taken_wrongly(lambda x, y: (y, y, y)),
            sentence="All three come from the encoder: that is the encoder's own self-attention. The queries belong to "
            "the text being written, `decoder_x`.",
        ),
        Misconception(
            "both texts in one row",
            **mistaken({"take": both_texts, "reach": lambda T, S, S_keys: S}, take=both_texts),
            sentence="You put both texts in one row and attend to all of it. That is a decoder alone. Here the keys "
            "and values are those of the source only.",
        ),
        Misconception(
            "W_K and W_V exchanged",
            lambda x, y, W_Q, W_K, W_V, *rest: cross_attention(x, y, W_Q, W_V, W_K, *rest),
            "You compute the keys with W_V and the values with W_K. Keys, which meet the queries, belong to W_K.",
            also=[lambda x, y, W_Q, W_K, W_V, *rest: unprepared(x, y, W_Q, W_V, W_K, *rest)],
        ),
        Misconception(
            "matrices transposed",
            **mistaken(project=lambda x, W: x @ W.T),
            sentence="You multiply by the transposed matrices, as `nn.Linear` does with its weight. Here they are "
            "applied as they are: x @ W.",
        ),
        Misconception(
            "no output projection",
            without_output(cross_attention),
            "The output projection is missing: multiply the merged heads by W_O.",
            also=[without_output(unprepared)],
        ),
        Misconception(
            "not scaled",
            **mistaken(scale=lambda scores, d, n_heads: scores),
            sentence="You never scale. Divide the scores by √D, the root of the width of one head.",
        ),
        Misconception(
            "scaled by √d_model",
            **mistaken(scale=lambda scores, d, n_heads: scores / math.sqrt(d)),
            sentence="You divide by √d_model. Each head's dot product is a sum over the D = d_model / n_heads features "
            "of that head: divide by √D.",
        ),
        Misconception(
            "scaled by D",
            **mistaken(scale=lambda scores, d, n_heads: scores / (d // n_heads)),
            sentence="You divide by D where the formula divides by √D, so your attention is too even.",
        ),
        Misconception(
            "one head",
            **mistaken(
                {"cut": lambda x, n_heads: x[:, None]},
                cut=lambda x, n_heads: x[:, None],
                scale=lambda scores, d, n_heads: scores / math.sqrt(d),
            ),
            sentence="You attend once, with all features: `n_heads` is not used. Every head has a slice of the "
            "features and weights of its own.",
        ),
        Misconception(
            "cut across the tokens",
            **mistaken(cut=lambda x, n_heads: x.reshape(len(x), n_heads, x.shape[1], -1)),
            sentence="You reshape to (B, H, T, D) directly, which mixes tokens and features. Reshape to (B, T, H, D), "
            "then exchange the two axes.",
        ),
        Misconception(
            "features interleaved",
            **mistaken(
                cut=lambda x, n_heads: x.unflatten(-1, (-1, n_heads)).permute(0, 3, 1, 2),
            ),
            sentence="Your head takes every n_heads-th feature. Heads are slices: the first D features, the next D, "
            "and so on.",
        ),
        Misconception(
            "merged without exchanging the axes",
            **mistaken(join=lambda heads: heads.reshape(heads.shape[0], heads.shape[2], -1)),
            sentence="You reshape (B, H, T, D) to (B, T, d) directly, which puts tokens where heads should be. "
            "Exchange the axes of heads and tokens first.",
        ),
        Misconception(
            "heads averaged",
            **mistaken(join=lambda heads: heads.mean(1).repeat(1, 1, heads.shape[1])),
            sentence="You average the heads. Lay them side by side: each has its own D features of the result.",
        ),
        Misconception(
            "softmax over the target",
            **mistaken(careful=partial(weigh, dim=-2)),
            sentence="You normalise over the queries. Each target token shares out 1 among the source tokens: softmax "
            "along the last axis.",
        ),
        Misconception(
            "no softmax",
            **mistaken(careful=lambda scores, real, fill=-INF, empty=True: scores if real is None else scores * real),
            sentence="You use the scores as weights. They can be negative and do not sum to 1: take the softmax first.",
        ),
        Misconception(
            "only the best token",
            **mistaken(careful=hard_choice),
            sentence="You take the value of the best source token alone. Softmax gives every token a share.",
        ),
        Misconception(
            "causal mask",
            **mistaken(careful=causal_too),
            sentence="You put a causal mask on the source. It is finished before translating begins: every target "
            "token may look at all of it. Only the decoder's self-attention is causal.",
        ),
        Misconception(
            "padding ignored",
            length_ignored,
            "`encoder_lengths` has no effect: padding gets weight like any word. It has a key and a value, and softmax "
            "gives every key a share.",
        ),
        Misconception(
            "padding set to zero",
            padding_set_to_zero,
            "You set the padding to zero and still look at it. A score of 0 is a score: exp(0) = 1, so it takes its "
            "share. Set the blocked scores to −inf.",
            also=[partial(cross_with, weights=scores_set_to_zero)],
        ),
        Misconception(
            "cleared after the softmax",
            partial(cross_with, weights=masked_after_softmax),
            "You clear the weights of the padding after the softmax, so that the others no longer sum to 1. Block the "
            "scores before it.",
        ),
        Misconception(
            "mask inverted",
            **mistaken(real_at=lambda places, lengths: places >= lengths[:, None]),
            sentence="Your mask is inverted: the padding is looked at and the words are hidden. `masked_fill` fills "
            "where its mask is True.",
        ),
        Misconception(
            "one token too many",
            **mistaken(real_at=lambda places, lengths: places <= lengths[:, None]),
            sentence="You let one token of padding through. A source of length n has the places 0 to n − 1.",
        ),
        Misconception(
            "one token too few",
            **mistaken(real_at=lambda places, lengths: places < lengths[:, None] - 1),
            sentence="You hide the last word of each source. A source of length n has the places 0 to n − 1.",
        ),
        Misconception(
            "padding at the front",
            **mistaken(real_at=lambda places, lengths: places >= len(places) - lengths[:, None]),
            sentence="You look for the padding at the front. Here the words come first: what stands at place "
            "`length` and behind it is padding.",
        ),
        Misconception(
            "the first length for all",
            **mistaken(real_at=lambda places, lengths: places < lengths[:1, None]),
            sentence="You use the length of the first source for all of them. Each row of the batch has its own: "
            "compare the places (S,) with the lengths as a column, (B, 1).",
        ),
        Misconception(
            "the longest length for all",
            cut_at_the_longest,
            "You end every source where the longest one ends. Shorter ones keep padding: block it row by row.",
            also=mistaken(real_at=lambda places, lengths: places < lengths.max())["also"],
        ),
        Misconception(
            "the shortest length for all",
            cut_at_the_shortest,
            "You end every source where the shortest one ends, and lose words of the others. Block the padding row by "
            "row.",
        ),
        Misconception(
            "mask for the target",
            **mistaken(
                {"reach": lambda T, S, S_keys: T, "axes": lambda real: real[:, None, :, None]},
                reach=lambda T, S, S_keys: T,
            ),
            sentence="You build the mask over the T target tokens. Padding stands in the source: the mask has S "
            "columns, and is the same for every query.",
        ),
        Misconception(
            "source mask on the rows",
            **mistaken(axes=lambda real: real[:, None, :, None]),
            sentence="Your mask lies along the rows of the scores, which are queries. The source lies along the last "
            "axis: the mask needs the shape (B, 1, 1, S).",
        ),
        Misconception(
            "mask without its axes",
            **mistaken({"axes": lambda real: real[:, None]}, axes=lambda real: real),
            sentence="Your mask (B, S) meets scores (B, H, T, S) from the right, so that its batch axis is taken for "
            "the targets or the heads. Give it its two missing axes: (B, 1, 1, S).",
        ),
        Misconception(
            "exp overflows",
            **mistaken(careful=exp_by_hand),
            sentence="Right for small scores, but exp overflows above 88, and inf / inf is NaN. Subtract each row's "
            "largest score first, or let torch's softmax do it.",
        ),
        Misconception(
            "NaN for an empty source",
            unprepared,
            "Right as long as there is something to look at. A source of length 0 leaves a row of nothing but −inf, "
            "and its softmax is 0 / 0. Such a row should give weights of 0.",
        ),
        Misconception(
            "padding where nothing else is",
            partial(cross_with, weights=partial(weigh, empty=False, fill=-1e9)),
            "Right as long as there is something to look at. With a large negative number in place of −inf an empty "
            "source gives every bit of padding the same weight, and you return the mean of nothing.",
            also=[partial(cross_with, weights=partial(weigh, empty=False, fill=-1e10))],
        ),
        Misconception(
            "residual added",
            with_residual(cross_attention),
            "You add the decoder's stream. That is the block's affair, in a later exercise; attention returns its own "
            "result.",
            also=[with_residual(unprepared)],
        ),
        Misconception(
            "weights returned too",
            lambda *args: (cross_attention(*args), None),
            "You return a tuple. Return the output alone, (B, T, d).",
        ),
    ],
)

# --- encoder_decoder.shape_trace --------------------------------------------------------------------------------------

SHAPE_TRACE = Exercise(
    id="encoder_decoder.shape_trace",
    chapter=11,
    title="Two lengths in one attention",
    kind="shapes",
    points=3,
    difficulty=2,
    minutes=15,
    why="A practice problem of the course notes. Whoever takes S for T builds a mask that fails on some days only.",
    reference={
        "encoded": (3, 9, 40),
        "self_scores": (3, 5, 6, 6),
        "query": (3, 5, 6, 8),
        "key": (3, 5, 9, 8),
        "cross_scores": (3, 5, 6, 9),
        "source_mask": (3, 1, 1, 9),
        "head_outputs": (3, 5, 6, 8),
        "cross_output": (3, 6, 40),
        "logits": (3, 6, 90),
    },
    hints=[
        "Write S or T beside each name before you put numbers in. Which of them has both?",
        "There are as many queries as tokens that ask, as many keys as tokens that answer. The rows of the scores ask.",
        "The features of d_model are shared out among the heads. The mask has an axis for everything that the scores "
        "have: which of these axes may have the size 1, because the mask is the same along them?",
        "What a branch adds to the decoder's stream must have the stream's shape, whatever it has read.",
    ],
    misconceptions=[
        Misconception(
            "scores transposed",
            {"cross_scores": (3, 5, 9, 6)},
            "Rows are queries: those who ask are the target tokens. The source tokens are the columns.",
        ),
        Misconception(
            "queries from the source",
            {"query": (3, 5, 9, 8)},
            "Those would be queries of the source. The text being written asks.",
            also=[
                {"query": (3, 5, 9, 8), "key": (3, 5, 6, 8)},
                {"query": (3, 5, 9, 8), "head_outputs": (3, 5, 9, 8)},
                {"query": (3, 5, 9, 8), "head_outputs": (3, 5, 9, 8), "cross_output": (3, 9, 40)},
            ],
        ),
        Misconception(
            "keys from the target",
            {"key": (3, 5, 6, 8)},
            "Those would be keys of the target, as in self-attention. The source answers, so there is a key for each "
            "of its tokens.",
            also=[{"key": (3, 5, 6, 8), "cross_scores": (3, 5, 6, 6)}],
        ),
        Misconception(
            "square scores",
            {"cross_scores": (3, 5, 6, 6)},
            "That is the decoder's self-attention. In cross-attention the table is T × S, and seldom square.",
            also=[{"cross_scores": (3, 5, 9, 9)}],
        ),
        Misconception(
            "both texts in one table",
            {"cross_scores": (3, 5, 15, 15)},
            "That is a decoder alone, with both texts in one row. Here target tokens look at source tokens only.",
            also=[{"cross_scores": (3, 5, 6, 15)}],
        ),
        Misconception(
            "self-attention reads the source",
            {"self_scores": (3, 5, 6, 9)},
            "The decoder's self-attention compares target tokens with target tokens. The source comes in afterwards.",
            also=[{"self_scores": (3, 5, 9, 9)}],
        ),
        Misconception(
            "no heads in the scores",
            {"cross_scores": (3, 6, 9)},
            "Each head has a table of its own: the scores have an axis for heads.",
            also=[{"self_scores": (3, 6, 6)}, {"cross_scores": (3, 6, 9), "self_scores": (3, 6, 6)}],
        ),
        Misconception(
            "heads behind the tokens",
            {"query": (3, 6, 5, 8)},
            "After the cut it looks like that, and then heads and tokens change places, so that each head has a matrix "
            "of tokens by features.",
            also=[{"query": (3, 6, 5, 8), "key": (3, 9, 5, 8)}],
        ),
        Misconception(
            "full width in every head",
            {"query": (3, 5, 6, 40)},
            "The heads share the features out: each has d_model / n_heads of them.",
            also=[{"query": (3, 5, 6, 40), "key": (3, 5, 9, 40)}],
        ),
        Misconception(
            "mask for the target",
            {"source_mask": (3, 1, 1, 6)},
            "Padding stands in the source, so the mask has as many columns as the source has tokens.",
        ),
        Misconception(
            "mask without its axes",
            {"source_mask": (3, 9)},
            "That says which tokens are real. To meet the scores it needs axes of size 1 for heads and queries.",
            also=[{"source_mask": (3, 1, 9)}],
        ),
        Misconception(
            "mask with more than it needs",
            {"source_mask": (3, 1, 6, 9)},
            "That works, and holds every row six times. The mask is the same for all queries: an axis of size 1 is "
            "enough.",
            also=[{"source_mask": (3, 5, 6, 9)}, {"source_mask": (3, 5, 1, 9)}],
        ),
        Misconception(
            "mask on the rows",
            {"source_mask": (3, 1, 9, 1)},
            "The source lies along the columns of the scores, the last axis.",
        ),
        Misconception(
            "a row for every source token",
            {"cross_output": (3, 9, 40)},
            "The result is added to the decoder's stream: it has a row for each token that asked.",
            also=[
                {"head_outputs": (3, 5, 9, 8)},
                {"head_outputs": (3, 5, 9, 8), "cross_output": (3, 9, 40)},
                {"cross_output": (3, 9, 40), "logits": (3, 9, 90)},
                {"head_outputs": (3, 5, 9, 8), "cross_output": (3, 9, 40), "logits": (3, 9, 90)},
            ],
        ),
        Misconception(
            "encoding of the target",
            {"encoded": (3, 6, 40)},
            "The encoder reads the source: it gives back a vector for each source token.",
            also=[{"encoded": (3, 15, 40)}],
        ),
        Misconception(
            "one vector for the source",
            {"encoded": (3, 40)},
            "That was the recurrent translator before attention: the whole sentence in one vector. Here every source "
            "token keeps its own.",
            also=[{"encoded": (3, 1, 40)}],
        ),
        Misconception(
            "logits of the source",
            {"logits": (3, 9, 90)},
            "Only the target is predicted: a row of logits for each of its places.",
        ),
        Misconception(
            "logits of the last place only",
            {"logits": (3, 90)},
            "One pass gives a prediction at every target place. Writing uses the last of them, training all.",
            also=[{"logits": (3, 1, 90)}],
        ),
    ],
)

# --- encoder_decoder.decoder_block ------------------------------------------------------------------------------------


def decoder_block(x, encoded, parts, source_mask=None):
    T = x.shape[1]
    h = parts.norm1(x)
    x = x + parts.attention(h, h, torch.ones(T, T, dtype=torch.bool).tril())  # what is written so far
    x = x + parts.cross_attention(parts.cross_norm(x), encoded, source_mask)  # what is to be translated
    return x + parts.feed_forward(parts.norm2(x))  # each token by itself


def lower(T):
    return torch.ones(T, T, dtype=torch.bool).tril()


def own_branch(parts, x, mask):
    h = parts.norm1(x)
    return x + parts.attention(h, h, mask)


def cross_branch(parts, x, encoded, source_mask):
    return x + parts.cross_attention(parts.cross_norm(x), encoded, source_mask)


def wide_branch(parts, x):
    return x + parts.feed_forward(parts.norm2(x))


def block_with(
    x, encoded, parts, source_mask=None, *, mask=lower, own=own_branch, cross=cross_branch, wide=wide_branch
):
    """A decoder block whose branches can be replaced one by one: most misconceptions below."""
    return wide(parts, cross(parts, own(parts, x, mask(x.shape[1])), encoded, source_mask))


def post_norm(x, encoded, parts, source_mask=None):
    x = parts.norm1(x + parts.attention(x, x, lower(x.shape[1])))
    x = parts.cross_norm(x + parts.cross_attention(x, encoded, source_mask))
    return parts.norm2(x + parts.feed_forward(x))


def post_norm_inside(x, encoded, parts, source_mask=None):
    x = x + parts.norm1(parts.attention(x, x, lower(x.shape[1])))
    x = x + parts.cross_norm(parts.cross_attention(x, encoded, source_mask))
    return x + parts.norm2(parts.feed_forward(x))


def without_norms(x, encoded, parts, source_mask=None):
    x = x + parts.attention(x, x, lower(x.shape[1]))
    x = x + parts.cross_attention(x, encoded, source_mask)
    return x + parts.feed_forward(x)


def side_by_side(x, encoded, parts, source_mask=None):
    h = parts.norm1(x)
    own = parts.attention(h, h, lower(x.shape[1]))
    cross = parts.cross_attention(parts.cross_norm(x), encoded, source_mask)
    return x + own + cross + parts.feed_forward(parts.norm2(x))


def queries_from_the_layer_before(x, encoded, parts, source_mask=None):
    """The comment of the course notes taken at its word: the cross-attention reads what entered the block."""
    after = own_branch(parts, x, lower(x.shape[1]))
    after = after + parts.cross_attention(parts.cross_norm(x), encoded, source_mask)
    return wide_branch(parts, after)


def cross_first(x, encoded, parts, source_mask=None):
    x = cross_branch(parts, x, encoded, source_mask)
    return wide_branch(parts, own_branch(parts, x, lower(x.shape[1])))


def feed_forward_between(x, encoded, parts, source_mask=None):
    x = wide_branch(parts, own_branch(parts, x, lower(x.shape[1])))
    return cross_branch(parts, x, encoded, source_mask)


def stream_added_once(x, encoded, parts, source_mask=None):
    h = parts.norm1(x)
    out = parts.attention(h, h, lower(x.shape[1]))
    out = parts.cross_attention(parts.cross_norm(out), encoded, source_mask)
    return x + parts.feed_forward(parts.norm2(out))


def no_stream(x, encoded, parts, source_mask=None):
    h = parts.norm1(x)
    out = parts.attention(h, h, lower(x.shape[1]))
    out = parts.cross_attention(parts.cross_norm(out), encoded, source_mask)
    return parts.feed_forward(parts.norm2(out))


def normalised_stream(x, encoded, parts, source_mask=None):
    x = parts.norm1(x)
    x = x + parts.attention(x, x, lower(x.shape[1]))
    x = parts.cross_norm(x)
    x = x + parts.cross_attention(x, encoded, source_mask)
    x = parts.norm2(x)
    return x + parts.feed_forward(x)


def masks_exchanged(x, encoded, parts, source_mask=None):
    return block_with(
        x,
        encoded,
        parts,
        source_mask,
        mask=lambda T: source_mask,
        cross=lambda parts, x, encoded, _: cross_branch(parts, x, encoded, past_of(x, encoded)),
    )


def padding_in_both(x, encoded, parts, source_mask=None):
    return block_with(
        x, encoded, parts, source_mask, mask=lambda T: lower(T) if source_mask is None else lower(T) & source_mask
    )


def past_of(x, encoded):
    return torch.ones(x.shape[1], encoded.shape[1], dtype=torch.bool).tril()


def causal_source(parts, x, encoded, source_mask):
    past = past_of(x, encoded)
    return cross_branch(parts, x, encoded, past if source_mask is None else past & source_mask)


def other_norms(first="norm1", second="cross_norm", third="norm2"):
    def own(parts, x, mask):
        h = getattr(parts, first)(x)
        return x + parts.attention(h, h, mask)

    def cross(parts, x, encoded, source_mask):
        return x + parts.cross_attention(getattr(parts, second)(x), encoded, source_mask)

    def wide(parts, x):
        return x + parts.feed_forward(getattr(parts, third)(x))

    return partial(block_with, own=own, cross=cross, wide=wide)


def source_twice(x, encoded, parts, source_mask=None):
    x = x + parts.attention(parts.norm1(x), encoded, source_mask)
    return wide_branch(parts, cross_branch(parts, x, encoded, source_mask))


def attentions_exchanged(x, encoded, parts, source_mask=None):
    h = parts.norm1(x)
    x = x + parts.cross_attention(h, h, lower(x.shape[1]))
    x = x + parts.attention(parts.cross_norm(x), encoded, source_mask)
    return wide_branch(parts, x)


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


def one_to_one(seed):
    "One target token, one source token: three branches, each with its own norm, each added to the stream."
    return [block_case(generator(seed), LITTLE, 1, 1, 1)]


def written_so_far(seed):
    "Several target tokens, one source token: no place sees a later one."
    rng = generator(seed)
    return [block_case(rng, LITTLE, 1, 3, 1), block_case(rng, MIDDLE, 2, 4, 1)]


def whole_source(seed):
    "Several source tokens: every target token may look at all of them."
    rng = generator(seed)
    return [block_case(rng, LITTLE, 1, 2, 3), block_case(rng, MIDDLE, 2, 5, 4)]


def padded_source(seed):
    "A source with padding: the mask hides it from the cross-attention."
    rng = generator(seed)
    return [
        block_case(rng, LITTLE, 1, 2, 3, lengths=[2]),
        block_case(rng, MIDDLE, 3, 4, 5, lengths=[5, 2, 3]),
        block_case(rng, MODERN, 2, 3, 4, lengths=[1, 3]),
    ]


def as_many_as(seed):
    "As many target tokens as source tokens and texts; and inputs that are transposed views."
    rng = generator(seed)
    square = block_case(rng, LITTLE, 3, 3, 3, lengths=[2, 3, 1])
    other = block_case(rng, MIDDLE, 2, 3, 3)
    x, encoded, parts = other.args
    return [square, Case(x.mT.contiguous().mT, encoded.transpose(0, 1).contiguous().transpose(0, 1), parts)]


def in_float64(seed):
    "float64 in, float64 out."
    return [block_case(generator(seed), MIDDLE, 2, 3, 4, lengths=[4, 2], dtype=torch.float64)]


DECODER_BLOCK = Exercise(
    id="encoder_decoder.decoder_block",
    chapter=11,
    title="A decoder block that reads a source",
    kind="code",
    points=4,
    difficulty=3,
    minutes=20,
    signature="decoder_block(x, encoded, parts, source_mask=None)",
    why="A diagram and a comment of the course notes wire this block wrongly. Once you have wired it, you see it.",
    reference=decoder_block,
    stages=[one_to_one, written_so_far, whole_source, padded_source, as_many_as, in_float64],
    hints=[
        "Three branches. For each: what does it read, through which norm, and where does its result go?",
        "The self-attention takes the normalised stream twice, as x and as context. Which mask keeps it from seeing "
        "later tokens, and of which size is it?",
        "The cross-attention asks on behalf of the stream as the self-attention has left it, not as it came into the "
        "block. The source has been normalised by the encoder already. Does it need a triangle, too?",
        "Pre-norm: a branch reads norm(x), and what it returns is added to x itself. Nothing is normalised on the way "
        "from x to x.",
    ],
    misconceptions=[
        Misconception(
            "no causal mask",
            partial(block_with, mask=lambda T: None),
            "Your self-attention has no mask, so every place sees the words that it should write. Give it a lower "
            "triangle (T, T).",
        ),
        Misconception(
            "causal mask inverted",
            partial(block_with, mask=lambda T: ~lower(T)),
            "Your causal mask is inverted: it allows what comes later. True = may attend: the lower triangle.",
        ),
        Misconception(
            "causal mask transposed",
            partial(block_with, mask=lambda T: lower(T).T),
            "Your causal mask is the upper triangle. Rows are queries: row t is True up to column t.",
        ),
        Misconception(
            "blind to itself",
            partial(block_with, mask=lambda T: torch.ones(T, T, dtype=torch.bool).tril(-1)),
            "Your causal mask leaves the diagonal out. A token may attend to itself: it is the next one that it must "
            "not see.",
        ),
        Misconception(
            "one token too far",
            partial(block_with, mask=lambda T: torch.ones(T, T, dtype=torch.bool).tril(1)),
            "Your causal mask reaches one token too far: each place sees the very word that it should write.",
        ),
        Misconception(
            "causal mask on the source",
            partial(block_with, cross=causal_source),
            "You put the causal mask on the cross-attention as well. The source is finished: every target token may "
            "look at all of it.",
        ),
        Misconception(
            "masks exchanged",
            masks_exchanged,
            "You exchanged the masks. The triangle belongs to the self-attention, the source's mask to the "
            "cross-attention.",
            also=[
                lambda x, encoded, parts, source_mask=None: block_with(
                    x,
                    encoded,
                    parts,
                    source_mask,
                    mask=lambda T: source_mask,
                    cross=lambda parts, x, encoded, _: cross_branch(parts, x, encoded, lower(x.shape[1])),
                )
            ],
        ),
        Misconception(
            "source mask on the self-attention",
            padding_in_both,
            "You apply the source's mask to the self-attention, too. It says which *source* tokens are real; the "
            "decoder's own tokens need the triangle only.",
        ),
        Misconception(
            "padding ignored",
            partial(block_with, cross=lambda parts, x, encoded, _: cross_branch(parts, x, encoded, None)),
            "`source_mask` has no effect, so the padding of the source is looked at. Hand it to the cross-attention.",
        ),
        Misconception(
            "source mask inverted",
            partial(
                block_with,
                cross=lambda parts, x, encoded, mask: cross_branch(parts, x, encoded, None if mask is None else ~mask),
            ),
            "You invert the source's mask. True = may attend already: hand it on as it is.",
        ),
        Misconception(
            "source reads the target",
            partial(
                block_with,
                cross=lambda parts, x, encoded, mask: x + parts.cross_attention(encoded, parts.cross_norm(x), mask),
            ),
            "Your cross-attention asks on behalf of the source. The first argument asks: the decoder's stream. The "
            "second answers.",
        ),
        Misconception(
            "cross-attention reads its own text",
            partial(
                block_with,
                cross=lambda parts, x, encoded, mask: (
                    x + parts.cross_attention(parts.cross_norm(x), parts.cross_norm(x), None)
                ),
            ),
            "Your cross-attention never sees the source: you did not give it `encoded` as context, so it attends to "
            "the stream itself.",
            also=[
                partial(
                    block_with,
                    cross=lambda parts, x, encoded, mask: (
                        x + parts.cross_attention(parts.cross_norm(x), parts.cross_norm(x), mask)
                    ),
                ),
                partial(
                    block_with,
                    cross=lambda parts, x, encoded, mask: (
                        x + parts.cross_attention(parts.cross_norm(x), parts.cross_norm(x), lower(x.shape[1]))
                    ),
                ),
            ],
        ),
        Misconception(
            "self-attention reads the source",
            source_twice,
            "Your self-attention attends to the source. It is there to see what has been written so far: give it the "
            "normalised stream as context, and the triangle as mask.",
        ),
        Misconception(
            "queries from the block's input",
            queries_from_the_layer_before,
            "Your cross-attention asks with what came into the block, as a comment in the course notes says. It must "
            "ask with the stream as this block's self-attention has left it.",
        ),
        Misconception(
            "branches side by side",
            side_by_side,
            "All three branches read what came into the block. They stand one behind the other: each reads the stream "
            "with the results of those before it.",
        ),
        Misconception(
            "cross-attention first",
            cross_first,
            "You look at the source first and at the target afterwards. The order is self-attention, cross-attention, "
            "feed-forward: first what has been written, then what to look for.",
        ),
        Misconception(
            "feed-forward in the middle",
            feed_forward_between,
            "Your feed-forward stands before the cross-attention. It comes last, when the source has been read.",
        ),
        Misconception(
            "no cross-attention",
            partial(block_with, cross=lambda parts, x, encoded, mask: x),
            "The cross-attention is missing: nothing of the source reaches the decoder. This is the block of a decoder "
            "alone.",
        ),
        Misconception(
            "no self-attention",
            partial(block_with, own=lambda parts, x, mask: x),
            "The self-attention is missing: each target token is translated without knowing the others.",
        ),
        Misconception(
            "no feed-forward",
            partial(block_with, wide=lambda parts, x: x),
            "The feed-forward is missing: it is the third branch, and the last.",
        ),
        Misconception(
            "no stream around the self-attention",
            partial(block_with, own=lambda parts, x, mask: own_branch(parts, x, mask) - x),
            "The self-attention's result replaces the stream. Add it to x.",
        ),
        Misconception(
            "no stream around the cross-attention",
            partial(
                block_with,
                cross=lambda parts, x, encoded, mask: parts.cross_attention(parts.cross_norm(x), encoded, mask),
            ),
            "The cross-attention's result replaces the stream: what has been written is forgotten. Add it to x.",
        ),
        Misconception(
            "no stream around the feed-forward",
            partial(block_with, wide=lambda parts, x: parts.feed_forward(parts.norm2(x))),
            "The feed-forward's result replaces the stream. Add it to x.",
        ),
        Misconception(
            "no stream at all",
            no_stream,
            "None of your branches is added to the stream: each replaces what came before. x = x + branch(norm(x)), "
            "three times.",
        ),
        Misconception(
            "stream added once",
            stream_added_once,
            "You add x once, at the end. Every branch adds to the stream by itself: x = x + branch(norm(x)), three "
            "times.",
        ),
        Misconception(
            "post-norm",
            post_norm,
            "You normalise the sums, as the original of 2017 does: post-norm. This block is pre-norm: the norm stands "
            "in front of each branch, and the stream itself is never normalised.",
            also=[post_norm_inside],
        ),
        Misconception(
            "no norms",
            without_norms,
            "The norms are missing. Each branch reads the stream through a norm of its own.",
        ),
        Misconception(
            "normalised stream",
            normalised_stream,
            "You put the norm's result in place of the stream, so that the branch is added to it. Keep x as it is: the "
            "norm is for the branch's eyes only.",
        ),
        Misconception(
            "norms exchanged",
            other_norms(second="norm2", third="cross_norm"),
            "`norm2` belongs to the feed-forward and `cross_norm` to the cross-attention; you have them the other way "
            "round.",
            also=[other_norms("cross_norm", "norm1"), other_norms("norm1", "norm2", "cross_norm")],
        ),
        Misconception(
            "one norm for all",
            other_norms("norm1", "norm1", "norm1"),
            "You use `norm1` more than once. Each branch has a norm of its own, with gains of its own.",
            also=[other_norms("norm1", "norm1", "norm2"), other_norms("norm1", "cross_norm", "norm1")],
        ),
        Misconception(
            "source normalised",
            partial(
                block_with,
                cross=lambda parts, x, encoded, mask: (
                    x + parts.cross_attention(parts.cross_norm(x), parts.cross_norm(encoded), mask)
                ),
            ),
            "You normalise the source with the decoder's norm. The encoder has its own final norm: `encoded` is ready "
            "as it is.",
            also=[
                partial(
                    block_with,
                    cross=lambda parts, x, encoded, mask: (
                        x + parts.cross_attention(parts.cross_norm(x), parts.norm1(encoded), mask)
                    ),
                )
            ],
        ),
        Misconception(
            "keys of the self-attention not normalised",
            partial(block_with, own=lambda parts, x, mask: x + parts.attention(parts.norm1(x), x, mask)),
            "Your queries are normalised, the keys and values of the self-attention are not. They come from the same "
            "normalised stream.",
            also=[partial(block_with, own=lambda parts, x, mask: x + parts.attention(x, parts.norm1(x), mask))],
        ),
        Misconception(
            "cross-attention without its norm",
            partial(block_with, cross=lambda parts, x, encoded, mask: x + parts.cross_attention(x, encoded, mask)),
            "The stream goes into the cross-attention without `cross_norm`.",
        ),
        Misconception(
            "attentions exchanged",
            attentions_exchanged,
            "You use `cross_attention` for the target and `attention` for the source. They have weights of their own: "
            "`attention` is the block's self-attention.",
        ),
    ],
)

# --- encoder_decoder.families -----------------------------------------------------------------------------------------

FAMILIES = Exercise(
    id="encoder_decoder.families",
    chapter=11,
    title="Which family for which task?",
    kind="choice",
    points=2,
    difficulty=2,
    minutes=5,
    why="Before anything is trained, this choice is made. The table in the course notes is a beginning; it is no law.",
    hints=[
        "Several are true. Ask of each: must something be written, and if so, is there a finished text to look at?",
        "Who may see what comes behind a word? Which family can therefore fill a blank with one look at both sides, "
        "and which can go on for ever?",
        "Two of the sentences contradict a measurement of the chapter. Look at the sections on teaching it, and on two "
        "stacks.",
    ],
    options=[
        Option(
            "a",
            "To sort reviews into good and bad, an encoder: the text is complete, and every word may see all others",
            True,
            "Nothing is written, so nothing has to be hidden: each vector can know both of its sides.",
        ),
        Option(
            "b",
            "To go on with a story, an encoder, because it knows both sides of every word",
            False,
            "There is no right side yet. A model that has learned with it cannot write: each place would look at the "
            "words that are to be written.",
        ),
        Option(
            "c",
            "To transcribe speech, an encoder–decoder: one finished sequence goes in, another is written",
            True,
            "The source can be read in both directions, once; the decoder looks at it from every step.",
        ),
        Option(
            "d",
            "To guess a word hidden in the middle, a decoder sees as much as an encoder",
            False,
            "It sees what stands before. Measured in the chapter: with what stands behind, more blanks come out right.",
        ),
        Option(
            "e",
            "To continue any text, code included, a decoder: each place has learned from what came before it alone",
            True,
            "It has never looked ahead, so it misses nothing when there is nothing ahead yet.",
        ),
        Option(
            "f",
            "A decoder alone cannot translate: it has no cross-attention",
            False,
            "Put the source in front of its own text, and its self-attention reaches it. In the chapter it translated "
            "about as well as the two stacks.",
        ),
        Option(
            "g",
            "To compare ten thousand sentences by meaning, an encoder: one pass gives each sentence its vectors",
            True,
            "Each sentence is read once, both ways, and nothing is written. Chapter 15 does it with a published model.",
        ),
        Option(
            "h",
            "A decoder needs one forward pass per token in training",
            False,
            "So say the course notes. One pass teaches at every place, because the causal mask hides the answers. It "
            "is writing that takes a pass per token.",
        ),
        Option(
            "i",
            "While an encoder–decoder writes, the encoder runs again for each new word",
            False,
            "The source does not change. It is encoded once, and all steps look at the same vectors.",
        ),
    ],
)

EXERCISES = [ATTENTION, SHAPE_TRACE, DECODER_BLOCK, FAMILIES]
