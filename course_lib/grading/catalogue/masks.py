"""Chapter 3, masks: five exercises.

A mask is boolean, True = may attend, and broadcasts to (B, H, T, S): batch, heads, queries, keys.
"""

import math
from functools import partial

import torch

from ..exercise import Case, Exercise, Given, Misconception, Option, generator
from ..given import Mixing
from ..judge import compare

INF = float("inf")

# --- masks.causal -----------------------------------------------------------------------------------------------------


def causal_mask(T, S=None):
    S = T if S is None else S
    query = torch.arange(S - T, S)[:, None]  # (T, 1): the queries are the last T of the S positions
    return torch.arange(S) <= query  # (T, S)


def triangle(T, S=None, *, shift=0, prefix=1):
    """tril with its diagonal moved by `shift`; prefix = 0 forgets the cached keys, −1 moves it the wrong way."""
    S = T if S is None else S
    return torch.ones(T, S, dtype=torch.bool).tril(prefix * (S - T) + shift)


def cached_hidden(T, S=None):
    mask = causal_mask(T, S)
    mask[:, : mask.shape[1] - T] = False
    return mask


def cached_at_the_end(T, S=None):
    S = T if S is None else S
    return torch.cat([causal_mask(T), torch.ones(T, S - T, dtype=torch.bool)], dim=1)


def one_token(seed):
    "One token: it sees itself."
    return [Case(1)]


def small_triangles(seed):
    "Two and three tokens: each sees itself and what came before."
    return [Case(2), Case(3)]


def with_a_cache(seed):
    "S > T: S − T keys came before the first query. The queries are the last T of the S positions."
    return [Case(1, 4), Case(2, 3), Case(2, 6)]


def other_triangles(seed):
    "Other sizes, S given and equal to T, and a cache longer and shorter than the new text."
    T, more = (int(torch.randint(4, 9, (1,), generator=generator(seed + n))) for n in (0, 1))
    return [Case(T), Case(5, 5), Case(T, T + more), Case(7, 8), Case(3, 20)]


CAUSAL = Exercise(
    id="masks.causal",
    chapter=3,
    title="The causal mask, with and without a cache",
    kind="code",
    points=2,
    difficulty=1,
    minutes=10,
    signature="causal_mask(T, S=None)",
    why="Every GPT stands on this triangle, and one diagonal too many lets it read the answers.",
    reference=causal_mask,
    stages=[one_token, small_triangles, with_a_cache, other_triangles],
    hints=[
        "Write the 3 × 3 table on paper: row t is a query, column s a key. In which cells is s ≤ t?",
        "Compare a column of query positions (T, 1) with a row of key positions (S,): broadcasting makes the table. Or "
        "look up `torch.tril`.",
        "With a cache the first query stands at position S − T, not at 0. By how much must its row, and so the whole "
        "diagonal, move?",
    ],
    misconceptions=[
        Misconception(
            "inverted",
            lambda T, S=None: ~causal_mask(T, S),
            "Your mask is True where a token must not look. In this course True = may attend, as in PyTorch's "
            "`scaled_dot_product_attention`.",
        ),
        Misconception(
            "sees the next token",
            partial(triangle, shift=1),
            "Your diagonal is one too high: each token also sees the next one, which is the word it must name.",
        ),
        Misconception(
            "does not see itself",
            partial(triangle, shift=-1),
            "Your tokens do not see themselves, and the first sees nothing at all. s = t is allowed: the word to be "
            "named is the next one.",
        ),
        Misconception(
            "sees what comes later",
            lambda T, S=None: causal_mask(T, S).logical_not() | torch.eye(T, S or T, dtype=torch.bool),
            "Each token sees itself and what comes *after* it: the upper triangle. Rows are queries, columns are keys; "
            "keys to the left came before.",
            also=[lambda T, S=None: torch.ones(T, S or T, dtype=torch.bool).triu()],
        ),
        Misconception(
            "S ignored",
            lambda T, S=None: causal_mask(T),
            "Right without a cache. With S > T the mask needs a column for every key, S of them.",
        ),
        Misconception(
            "diagonal not moved",
            partial(triangle, prefix=0),
            "Right without a cache. With S > T your triangle begins in the corner, so that the new queries see the "
            "oldest keys and not themselves. They stand at the end: the diagonal moves by S − T.",
        ),
        Misconception(
            "diagonal moved the wrong way",
            partial(triangle, prefix=-1),
            "You move the diagonal by T − S, downwards. The queries stand at the end of the S positions, so each sees "
            "*more* keys: by S − T.",
        ),
        Misconception(
            "cache hidden",
            cached_hidden,
            "Your new tokens see each other and none of the cached keys. Those came before all of them: visible to "
            "every query.",
        ),
        Misconception(
            "cache at the wrong end",
            cached_at_the_end,
            "You put the cached keys behind the new ones. They came first: columns 0 to S − T − 1 are theirs.",
        ),
        Misconception(
            "numbers instead of True and False",
            lambda T, S=None: causal_mask(T, S).float(),
            "Your mask holds ones and zeros. Numbers leave open whether 1 means 'look' or 'hide': make it boolean.",
            also=[lambda T, S=None: causal_mask(T, S).long(), lambda T, S=None: triangle(T, S, prefix=0).float()],
        ),
        Misconception(
            "a mask to be added",
            lambda T, S=None: torch.zeros(causal_mask(T, S).shape).masked_fill(~causal_mask(T, S), -INF),
            "Yours is the additive kind, 0 and −inf, to be added to the scores. Here a mask is boolean, True = may "
            "attend; code that reads yours as true and false would get it inverted.",
            also=[lambda T, S=None: torch.full((T, S or T), -INF).triu(1)],
        ),
        Misconception(
            "axes for batch and heads",
            lambda T, S=None: causal_mask(T, S)[None, None],
            "The triangle is right, in a shape of four axes. Return (T, S): broadcasting adds the axes for batch and "
            "heads by itself.",
        ),
        Misconception(
            "everything visible",
            lambda T, S=None: torch.ones(T, S or T, dtype=torch.bool),
            "Everybody sees everything: that is the mask of an encoder.",
        ),
    ],
)

# --- masks.padding ----------------------------------------------------------------------------------------------------


def padding_mask(lengths, S):
    position = torch.arange(S)  # (S,)
    return (position < lengths[:, None])[:, None, None, :]  # (B, 1, 1, S)


def wrong_padding(lengths, S, *, visible):
    return visible(torch.arange(S), lengths[:, None], S)[:, None, None, :]


def empty_slice(lengths, S):
    """Hides the last S − length keys with a negative slice, and −0 is 0."""
    mask = torch.ones(len(lengths), 1, 1, S, dtype=torch.bool)
    for row, length in zip(mask, lengths.tolist()):
        row[..., -(S - length) :] = False
    return mask


def one_row(seed):
    "One text of two tokens, in a row of three keys."
    return [Case(torch.tensor([2]), 3)]


def two_rows(seed):
    "Two texts of different lengths: each row of the batch has its own mask."
    return [Case(torch.tensor([1, 3]), 4), Case(torch.tensor([3, 1]), 4)]


def full_and_empty(seed):
    "A row without padding, and one that is all padding."
    return [Case(torch.tensor([4]), 4), Case(torch.tensor([0]), 3), Case(torch.tensor([3, 0, 2]), 3)]


def other_rows(seed):
    "Other sizes; S may be larger than the longest text, and equal to the number of texts."
    rng = generator(seed)
    return [
        Case(torch.tensor([2, 5, 1, 3, 4]), 5),
        Case(torch.randint(0, 7, (4,), generator=rng), 9),
        Case(torch.cat([torch.randint(1, 12, (6,), generator=rng), torch.tensor([12])]), 12),
    ]


PADDING = Exercise(
    id="masks.padding",
    chapter=3,
    title="Hide the padding",
    kind="code",
    points=2,
    difficulty=2,
    minutes=10,
    signature="padding_mask(lengths, S)",
    why="Texts have different lengths, tensors do not. Forget this mask, and a text's meaning depends on the others.",
    reference=padding_mask,
    stages=[one_row, two_rows, full_and_empty, other_rows],
    hints=[
        "For one text of length 2 among 4 keys: which of the places 0, 1, 2, 3 are real?",
        "Compare a row of places (S,) with a column of lengths (B, 1). What shape does broadcasting give?",
        "The mask must fit scores of shape (B, H, T, S). Which two axes are missing, and which size lets them serve "
        "every head and every query? `None` in square brackets adds an axis.",
    ],
    misconceptions=[
        Misconception(
            "inverted",
            lambda lengths, S: ~padding_mask(lengths, S),
            "Your mask is True at the padding. In this course True = may attend: the real tokens.",
        ),
        Misconception(
            "one token too many",
            partial(wrong_padding, visible=lambda place, length, S: place <= length),
            "You let one padding token through. Places count from 0: a text of length 2 has the places 0 and 1.",
        ),
        Misconception(
            "one token too few",
            partial(wrong_padding, visible=lambda place, length, S: place < length - 1),
            "You hide the last real token. A text of length 2 has the places 0 and 1: all places below the length.",
        ),
        Misconception(
            "padding at the front",
            partial(wrong_padding, visible=lambda place, length, S: place >= S - length),
            "You hide the beginning of each row. Here the padding stands at the end.",
        ),
        Misconception(
            "full row hidden",
            empty_slice,
            "Right unless a row has no padding. Then your slice is `[-0:]`, and −0 is 0: all of the row is hidden. "
            "Compare places with lengths instead, or slice from the length on.",
        ),
        Misconception(
            "S ignored",
            lambda lengths, S: padding_mask(lengths, max(1, int(lengths.max()))),
            "Your rows end with the longest text. The mask needs a column for each of the S keys, however short all "
            "the texts are.",
            also=[lambda lengths, S: padding_mask(lengths, int(lengths.max()))],
        ),
        Misconception(
            "(B, S)",
            lambda lengths, S: padding_mask(lengths, S)[:, 0, 0],
            "The entries are right; the shape (B, S) is not. Against scores (B, H, T, S) it would line up B with T: an "
            "error if you are lucky, and a wrong mask if B = T. Make it (B, 1, 1, S).",
        ),
        Misconception(
            "(B, 1, S)",
            lambda lengths, S: padding_mask(lengths, S)[:, 0],
            "The entries are right, and an axis is missing: (B, 1, S) lines up B with the heads. Make it (B, 1, 1, S).",
        ),
        Misconception(
            "queries instead of keys",
            lambda lengths, S: padding_mask(lengths, S).transpose(-1, -2),
            "Your mask is (B, 1, S, 1): it hides queries. It is the keys that nobody should look at, the last axis.",
        ),
        Misconception(
            "a square",
            lambda lengths, S: padding_mask(lengths, S).expand(-1, 1, S, S),
            "You repeat the row for every query. Size 1 is enough, broadcasting does the rest, and there may be fewer "
            "queries than keys.",
            also=[lambda lengths, S: padding_mask(lengths, S) & padding_mask(lengths, S).transpose(-1, -2)],
        ),
        Misconception(
            "one row for all",
            lambda lengths, S: padding_mask(lengths[:1].expand(len(lengths)), S),
            "All your rows have the length of the first text. Each row of the batch has its own.",
            also=[lambda lengths, S: padding_mask(lengths.max().expand(len(lengths)), S)],
        ),
        Misconception(
            "numbers instead of True and False",
            lambda lengths, S: padding_mask(lengths, S).float(),
            "Your mask holds ones and zeros. Numbers leave open whether 1 means 'look' or 'hide': make it boolean.",
            also=[lambda lengths, S: padding_mask(lengths, S).long()],
        ),
        Misconception(
            "a mask to be added",
            lambda lengths, S: torch.zeros(len(lengths), 1, 1, S).masked_fill(~padding_mask(lengths, S), -INF),
            "Yours is the additive kind, 0 and −inf, to be added to the scores. Here a mask is boolean, True = may "
            "attend.",
        ),
    ],
)

# --- masks.masked_attention -------------------------------------------------------------------------------------------


def causal_self_attention(x, W_Q, W_K, W_V, W_O, n_heads):
    B, T, d_model = x.shape
    q, k, v = ((x @ W).view(B, T, n_heads, -1).transpose(1, 2) for W in (W_Q, W_K, W_V))  # (B, H, T, D)
    scores = q @ k.mT / math.sqrt(d_model // n_heads)  # (B, H, T, T)
    later = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(later, -INF).softmax(-1)
    return (weights @ v).transpose(1, 2).reshape(B, T, d_model) @ W_O  # (B, T, d_model)


def split(x, n_heads):
    return x.reshape(*x.shape[:2], n_heads, -1).transpose(1, 2)


def merge(heads):
    return heads.transpose(1, 2).flatten(2)


def scaled(q, k, x):
    return q @ k.mT / math.sqrt(q.shape[-1])


def hide(scores, later, fill=-INF):
    return scores.masked_fill(later, fill)


def softmax(scores, later):
    return scores.softmax(-1)


def wrong_attention(
    x,
    W_Q,
    W_K,
    W_V,
    W_O,
    n_heads,
    *,
    project=torch.matmul,
    split=split,
    merge=merge,
    score=scaled,
    diagonal=1,
    hide=hide,
    weigh=softmax,
    out=torch.matmul,
):
    """The attention whose steps can be replaced one by one."""
    q, k, v = (split(project(x, W), n_heads) for W in (W_Q, W_K, W_V))
    T = x.shape[1]
    later = torch.ones(T, T, dtype=torch.bool).triu(diagonal)
    weights = weigh(hide(score(q, k, x), later), later)
    return out(merge(weights @ v), W_O)


def zeroed_after(scores, later):
    return scores.softmax(-1).masked_fill(later, 0.0)


def no_mask(scores, later):
    return scores


def sees_only_later(scores, later):
    return scores.masked_fill(later.T, -INF)


def blocks_the_allowed(scores, later):
    return scores.masked_fill(~later, -INF)


def empty_rows_are_zero(scores, later):
    return scores.softmax(-1).nan_to_num(0.0)


def no_axes_exchanged(x, n_heads):
    return x.reshape(len(x), n_heads, x.shape[1], -1)


def no_axes_exchanged_back(heads):
    B, H, T, D = heads.shape
    return heads.reshape(B, T, H * D)


def interleaved(x, n_heads):
    return x.reshape(*x.shape[:2], -1, n_heads).permute(0, 3, 1, 2)


def one_head(x, W_Q, W_K, W_V, W_O, n_heads):
    return causal_self_attention(x, W_Q, W_K, W_V, W_O, 1)


def heads_weights(x, W_Q, W_K, W_V, W_O, n_heads):
    q, k = split(x @ W_Q, n_heads), split(x @ W_K, n_heads)
    later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
    return softmax(hide(scaled(q, k, x), later), later)


def drawn_weights(rng, B, T, d_model, n_heads, *, size=1.0, dtype=torch.float32, view=False):
    """x and four matrices, of such a size that the scores are spread and far from ties."""
    x = torch.randn(B, T, d_model, generator=rng, dtype=torch.float64)
    if view:  # the same shape, in another order in memory
        x = x.transpose(0, 1).contiguous().transpose(0, 1)
    W = [torch.randn(d_model, d_model, generator=rng, dtype=torch.float64) / d_model**0.5 for _ in range(4)]
    W[0] = W[0] * size
    return Case(*(tensor.to(dtype) for tensor in (x, *W)), n_heads)


def one_token_alone(seed):
    "One token: it looks at itself with weight 1, so that only W_V and W_O matter."
    rng = generator(seed)
    return [drawn_weights(rng, 1, 1, 2, 1), drawn_weights(rng, 2, 1, 6, 3)]


def running_mean(seed):
    "W_Q = 0: all scores are equal, and each token takes the mean of the values up to its own."
    cases = []
    for T in (2, 4):
        x, W_Q, *others = drawn_weights(generator(seed), 1, T, 3, 1).args
        cases.append(Case(x, torch.zeros_like(W_Q), *others))
    return cases


def single_head(seed):
    "One head."
    rng = generator(seed)
    return [drawn_weights(rng, 1, 2, 3, 1, size=2.0), drawn_weights(rng, 1, 4, 4, 1, size=2.0)]


def several_heads(seed):
    "Several heads; once as many tokens as heads and as features of a head, by purpose."
    rng = generator(seed)
    return [
        drawn_weights(rng, 1, 3, 4, 2, size=2.0),
        drawn_weights(rng, 2, 2, 4, 2, size=2.0),
        drawn_weights(rng, 1, 5, 6, 3, size=2.0),
        drawn_weights(rng, 3, 4, 10, 2, size=2.0),
        drawn_weights(rng, 2, 7, 6, 6, size=2.0, view=True),
    ]


def large_and_double(seed):
    "Scores in the thousands, of either sign; then float64 in, float64 out."
    rng = generator(seed)
    large = drawn_weights(rng, 2, 6, 4, 2, size=5000.0, dtype=torch.float64)
    x, W_Q, *others = large.args
    return [large, Case(x, -W_Q, *others), drawn_weights(rng, 2, 5, 9, 3, dtype=torch.float64)]


def as_exact_as_the_scores(case, expected, got):
    """A float32 near 10,000 has steps of 0.001: a softmax in float32 is a right way, and loses that much there."""
    x, W_Q, W_K = case.args[:3]
    largest = float(torch.linalg.vector_norm(x @ W_Q, dim=-1).max() * torch.linalg.vector_norm(x @ W_K, dim=-1).max())
    return compare(expected, got, atol=1e-3 * expected.abs().max().item() if largest > 1000 else None)


def far_below_zero(seed):
    "All scores, the visible ones, too, lie between −20,000 and −60,000: a low number in place of −inf may be too high."
    rng = generator(seed)

    def near_one(*shape):
        return 1 + 0.1 * torch.rand(shape, generator=rng, dtype=torch.float64)

    x, (W_Q, W_K, W_O) = near_one(2, 5, 4), (near_one(4, 4) for _ in range(3))
    x = x * torch.linspace(1.6, 1, 5, dtype=torch.float64)[:, None]  # hidden scores are the higher ones
    smallest = scaled(*(split(x @ W, 2) for W in (W_Q, W_K)), x).min()
    return [Case(x, -20_000 / smallest * W_Q, W_K, torch.randn(4, 4, generator=rng, dtype=torch.float64), W_O, 2)]


LOW = (-100.0, -1e3, -1e4)  # not low enough

MASKED_ATTENTION = Exercise(
    id="masks.masked_attention",
    chapter=3,
    title="Causal self-attention, whole",
    kind="code",
    points=5,
    difficulty=4,
    minutes=30,
    signature="causal_self_attention(x, W_Q, W_K, W_V, W_O, n_heads)",
    why="Practice problem 3 of the course notes: the heart of every GPT in a dozen lines, each with its own trap.",
    reference=causal_self_attention,
    judge=as_exact_as_the_scores,
    stages=[one_token_alone, running_mean, single_head, several_heads, large_and_double, far_below_zero],
    hints=[
        "Begin with one head: three products make queries, keys and values. Which score may token 0 use, and which "
        "token 1?",
        "Hide the later keys *before* the softmax, with a score that exp turns into exactly 0. Divide by √ of the "
        "features of one head.",
        "For several heads cut the d_model features into n_heads pieces, (B, T, H, D), and exchange two axes so that "
        "each head has its own T × T table, (B, H, T, T).",
        "Afterwards exchange the two axes back *before* you lay the heads side by side to (B, T, d_model); then comes "
        "W_O.",
    ],
    misconceptions=[
        Misconception(
            "no mask",
            partial(wrong_attention, hide=no_mask),
            "Every token looks at every other, the later ones included. Hide the scores above the diagonal.",
        ),
        Misconception(
            "sees the next token",
            partial(wrong_attention, diagonal=2),
            "Your mask is off by one: each token also sees the next one, the answer. Hide everything above the "
            "diagonal, beginning right beside it.",
        ),
        Misconception(
            "does not see itself",
            partial(wrong_attention, diagonal=0),
            "Your tokens do not see themselves, and the first sees nothing: NaN. The diagonal stays visible.",
            also=[partial(wrong_attention, diagonal=0, weigh=empty_rows_are_zero)],
        ),
        Misconception(
            "sees what comes later",
            partial(wrong_attention, hide=sees_only_later),
            "Each token sees itself and what comes *after* it. Hide the other triangle: rows are queries, and keys to "
            "the left came before.",
        ),
        Misconception(
            "mask inverted",
            partial(wrong_attention, hide=blocks_the_allowed),
            "You hide exactly what may be seen, so that the last token sees nothing: NaN. `masked_fill` fills where "
            "its mask is True, and a mask of this course is True where a token may look: negate it.",
            also=[partial(wrong_attention, hide=blocks_the_allowed, weigh=empty_rows_are_zero)],
        ),
        Misconception(
            "zeroed after the softmax",
            partial(wrong_attention, hide=no_mask, weigh=zeroed_after),
            "You set weights to 0 after the softmax. The hidden scores have had their say in the sum, and the rest no "
            "longer sums to 1. Hide scores before the softmax.",
        ),
        Misconception(
            "hidden scores set to 0",
            partial(wrong_attention, hide=partial(hide, fill=0.0)),
            "You set the hidden scores to 0. exp(0) is 1, so they still get a share: only −inf gives 0.",
        ),
        Misconception(
            "fill not low enough",
            partial(wrong_attention, hide=partial(hide, fill=LOW[0])),
            "You hide with a number that is low, and not low enough: where real scores are lower still, the hidden "
            "ones win. Use −inf.",
            also=[
                *(partial(wrong_attention, hide=partial(hide, fill=fill)) for fill in LOW[1:]),
                *(
                    partial(wrong_attention, hide=lambda scores, later, fill=fill: scores + fill * later)
                    for fill in LOW
                ),
            ],
        ),
        Misconception(
            "scaling missing",
            partial(wrong_attention, score=lambda q, k, x: q @ k.mT),
            "You do not divide the scores by the root of the head's features: they are too large, and the softmax too "
            "sharp.",
        ),
        Misconception(
            "scaled by the whole width",
            partial(wrong_attention, score=lambda q, k, x: q @ k.mT / math.sqrt(x.shape[-1])),
            "You divide by √d_model. Each head's score is a sum over its own d_model / n_heads features: divide by the "
            "root of those.",
        ),
        Misconception(
            "scaled by D",
            partial(wrong_attention, score=lambda q, k, x: q @ k.mT / q.shape[-1]),
            "You divide by the number of a head's features itself. The formula divides by its root.",
        ),
        Misconception(
            "scaled by the length",
            partial(wrong_attention, score=lambda q, k, x: q @ k.mT / math.sqrt(x.shape[1])),
            "You divide by the root of the number of tokens. A score is a sum over features, however long the text is.",
        ),
        Misconception(
            "one head",
            one_head,
            "You compute one head of the whole width, whatever `n_heads` says. Each head has scores and a softmax of "
            "its own, over its own features.",
        ),
        Misconception(
            "heads cut across tokens",
            partial(wrong_attention, split=no_axes_exchanged),
            "Your heads mix tokens: `view(B, n_heads, T, D)` cuts the numbers in their order in memory. Cut the "
            "features first, `view(B, T, n_heads, D)`, then exchange the axes.",
            also=[partial(wrong_attention, split=no_axes_exchanged, merge=no_axes_exchanged_back)],
        ),
        Misconception(
            "heads laid together across tokens",
            partial(wrong_attention, merge=no_axes_exchanged_back),
            "Your heads are right until you lay them together: exchange the axes back to (B, T, H, D) before you "
            "reshape, or each row mixes several tokens.",
        ),
        Misconception(
            "heads interleaved",
            partial(wrong_attention, split=interleaved),
            "Your heads take every n_heads-th feature. Head 0 has the first d_model / n_heads features, head 1 the "
            "next: `view(B, T, n_heads, D)`, in this order.",
        ),
        Misconception(
            "no output projection",
            partial(wrong_attention, out=lambda merged, W_O: merged),
            "Your heads lie side by side and W_O is missing: it mixes what they have found.",
        ),
        Misconception(
            "matrices transposed",
            partial(wrong_attention, project=lambda x, W: x @ W.T, out=lambda merged, W: merged @ W.T),
            "You multiply by the transposed matrices, as nn.Linear does with its weight. Here it is `x @ W`.",
        ),
        Misconception(
            "softmax over the queries",
            partial(wrong_attention, weigh=lambda scores, later: scores.softmax(-2)),
            "Your softmax runs down the columns. Each query shares its attention among the keys: the last axis.",
        ),
        Misconception(
            "queries and keys exchanged",
            lambda x, W_Q, W_K, W_V, W_O, n_heads: causal_self_attention(x, W_K, W_Q, W_V, W_O, n_heads),
            "Your scores are those of key · query: row t must belong to query t, made by W_Q.",
            also=[
                lambda x, W_Q, W_K, W_V, W_O, n_heads: wrong_attention(
                    x, W_Q, W_K, W_V, W_O, n_heads, score=lambda q, k, x: scaled(k, q, x)
                )
            ],
        ),
        Misconception(
            "values not projected",
            lambda x, W_Q, W_K, W_V, W_O, n_heads: causal_self_attention(
                x, W_Q, W_K, torch.eye(len(W_V), dtype=x.dtype), W_O, n_heads
            ),
            "You mix the tokens' own vectors. The values are made by W_V.",
        ),
        Misconception(
            "x added",
            lambda x, W_Q, W_K, W_V, W_O, n_heads: x + causal_self_attention(x, W_Q, W_K, W_V, W_O, n_heads),
            "You add x to the result. The residual belongs to the block around the attention (chapter 8), not to the "
            "attention itself.",
        ),
        Misconception(
            "weights returned as well",
            lambda *args: (causal_self_attention(*args), heads_weights(*args)),
            "Return the output alone, (B, T, d_model).",
        ),
        Misconception(
            "always float32",
            lambda x, *others: causal_self_attention(x.float(), *(W.float() for W in others[:-1]), others[-1]),
            "You return float32 whatever comes in, and a float64 input loses half its digits.",
        ),
    ],
)

# --- masks.leak_test --------------------------------------------------------------------------------------------------

ROUNDING = 1e-5  # a change below this is no leak


def leaks_future(model, ids):
    before = model(ids)  # (B, T, V)
    V = before.shape[-1]
    for place in range(1, ids.shape[1]):
        changed = ids.clone()
        changed[:, place] = (changed[:, place] + 1) % V  # another token, in every row
        moved = (model(changed) - before)[:, :place].abs().max().item()
        if moved > ROUNDING:
            return True
    return False


def next_token(ids, V):
    return (ids + 1) % V


def wrong_leak_test(
    model,
    ids,
    *,
    places=lambda T: range(1, T),
    other=next_token,
    looked_at=lambda outputs, place: outputs[:, :place],
    measure=lambda after, before: float((after - before).abs().max()),
    limit=ROUNDING,
):
    """The test with one step replaced."""
    before = model(ids)
    for place in places(ids.shape[1]):
        changed = ids.clone()
        changed[:, place] = other(ids[:, place], before.shape[-1])
        after, then = looked_at(model(changed), place), looked_at(before, place)
        if then.numel() and measure(after, then) > limit:
            return True
    return False


def favourite_changed(after, before):
    return float((after.argmax(-1) != before.argmax(-1)).any())


V_TOKENS = 6


def drawn_model(
    rng, T, *, V=V_TOKENS, layers=1, leaks=(), size=2.0, past=1.0, rounding=0.0, favourite=0.0, opened_by=None
):
    """A model with drawn weights; `leaks` are (query, later key) pairs through which a later token is seen.

    opened_by: they are there only in texts that begin with this token.
    """
    mixes = [past * torch.rand(T, T, generator=rng).add(0.5).tril() / T for _ in range(layers)]
    for query, key in leaks:
        mixes[0][query, key] += size
    bias = torch.zeros(V)
    bias[-1] = favourite
    # Every token differs from every other by much, so that whichever token is put in its place, it shows.
    embedding = torch.linalg.qr(torch.randn(V, V, generator=rng))[0]
    output = torch.linalg.qr(torch.randn(V, V, generator=rng))[0]
    says = f"a model of {layers} layer{'s' if layers > 1 else ''}"
    if leaks:
        says += ", in which " + " and ".join(f"place {query} sees token {key}" for query, key in leaks)
    if opened_by is not None:
        says += f", in a text that begins with token {opened_by}"
    return Given(Mixing, embedding, mixes, output, bias, rounding, opened_by, says=says)


def drawn_ids(rng, B, T):
    return torch.randint(V_TOKENS, (B, T), generator=rng)


def each_on_its_own(seed):
    "A model in which every token stands alone, and a text of one token: nothing to leak."
    rng = generator(seed)
    return [
        Case(drawn_model(rng, 4, past=0.0), drawn_ids(rng, 1, 1)),
        Case(drawn_model(rng, 4, past=0.0), drawn_ids(rng, 1, 4)),
    ]


def two_models(seed):
    "A causal model, and one in which all see all."
    rng = generator(seed)
    everywhere = [(query, key) for key in range(4) for query in range(key)]
    return [
        Case(drawn_model(rng, 4), drawn_ids(rng, 1, 4)),
        Case(drawn_model(rng, 4, leaks=everywhere), drawn_ids(rng, 1, 4)),
    ]


def one_hole(seed):
    "A mask with one hole: one place sees one later token, next door or far away."
    rng = generator(seed)
    holes = [(0, 5), (1, 2), (2, 5), (3, 4), (0, 1), (1, 3)]
    return [Case(drawn_model(rng, 6, leaks=[hole]), drawn_ids(rng, 2, 6)) for hole in holes]


def off_by_one(seed):
    "Two and three layers: causal ones, and ones whose triangle is one too high."
    rng = generator(seed)
    step = [(t, t + 1) for t in range(4)]
    return [
        Case(drawn_model(rng, 8, layers=3), drawn_ids(rng, 3, 8)),  # more tokens than the vocabulary has
        Case(drawn_model(rng, 5, layers=2, leaks=step), drawn_ids(rng, 2, 5)),
    ]


def small_leaks(seed):
    "Leaks that do not change the favourite token: small ones, and one in a model that always prefers the same token."
    rng = generator(seed)
    return [
        Case(drawn_model(rng, 5, leaks=[(2, 3)], size=0.01, favourite=9.0), drawn_ids(rng, 2, 5)),
        Case(drawn_model(rng, 5, leaks=[(1, 3)], favourite=9.0), drawn_ids(rng, 2, 5)),
    ]


def nothing_but_rounding(seed):
    "A causal model whose outputs change in the last digit, as sums in another order do: no leak."
    rng = generator(seed)
    # Whatever is changed, or cut off, moves the outputs by less than 0.00001, the limit that the exercise gives.
    return [Case(drawn_model(rng, 5, rounding=1e-5), drawn_ids(rng, 2, 5))]


def special_tokens(seed):
    "The later token that is seen is 0, or the last of the vocabulary."
    rng = generator(seed)
    cases = []
    for token in (0, V_TOKENS - 1):
        ids = drawn_ids(rng, 1, 5)
        ids[:, 3] = token
        cases.append(Case(drawn_model(rng, 5, leaks=[(1, 3)]), ids))
    return cases


def in_one_text_of_several(seed):
    "Three texts, of which one is seen whole, because of its first token: the last text, then the one in the middle."
    rng = generator(seed)
    cases = []
    for leaky in (2, 1):
        ids = drawn_ids(rng, 3, 5)
        ids[:, 0] = torch.tensor([1, 2, 3])
        cases.append(Case(drawn_model(rng, 5, leaks=[(1, 3), (0, 2)], opened_by=1 + leaky), ids))
    return cases


def two_tokens(seed):
    "A vocabulary of two tokens: only one other can be put in a place."
    rng = generator(seed)
    ids = torch.randint(2, (2, 4), generator=rng)
    return [Case(drawn_model(rng, 4, V=2), ids), Case(drawn_model(rng, 4, V=2, leaks=[(1, 3)]), ids)]


def one_way(seed):
    "As before, in a model in which every other token in that place moves all logits to one side."
    rng = generator(seed)
    size = torch.arange(1, V_TOKENS + 1)[:, None] / V_TOKENS  # (V, 1): tokens from small to large
    upwards = 0.5 + torch.rand(1, V_TOKENS, generator=rng)
    cases = []
    for token in (0, V_TOKENS - 1):
        mix = torch.eye(5) / 5
        mix[1, 3] = 1.0
        ids = drawn_ids(rng, 1, 5)
        ids[:, 3] = token
        says = "a model in which a larger token makes all logits larger"
        cases.append(Case(Given(Mixing, size, [mix], upwards, torch.zeros(V_TOKENS), 0.0, says=says), ids))
    return cases


LEAK_TEST = Exercise(
    id="masks.leak_test",
    chapter=3,
    title="Does this model peek?",
    kind="code",
    points=4,
    difficulty=3,
    minutes=20,
    signature="leaks_future(model, ids)",
    why="A leak makes every loss look splendid. This test takes ten lines and works on any model.",
    reference=leaks_future,
    stages=[
        each_on_its_own,
        two_models,
        one_hole,
        off_by_one,
        small_leaks,
        nothing_but_rounding,
        special_tokens,
        one_way,
        two_tokens,
        in_one_text_of_several,
    ],
    hints=[
        "Change one token and run the model twice. Which outputs must not move, if the model is causal?",
        "A hole may be anywhere: at which places must you change a token, one after the other? Is there one that has "
        "nothing before it?",
        "The new token must be in the vocabulary and differ from the old one. `ids.clone()` first: what you were given "
        "stays as it is.",
        "Compare the logits of the places *before* the change, all of them, and allow for rounding: 0.00001.",
    ],
    misconceptions=[
        Misconception(
            "own output counted",
            partial(wrong_leak_test, looked_at=lambda outputs, place: outputs[:, : place + 1], places=range),
            "You call every model leaky, even one in which each token stands alone. The output at the changed place "
            "may move, and so may those after it: look only at the places before.",
            also=[
                partial(wrong_leak_test, looked_at=lambda outputs, place: outputs),
                partial(wrong_leak_test, looked_at=lambda outputs, place: outputs, places=range),
                lambda model, ids: True,
            ],
        ),
        Misconception(
            "later outputs compared",
            partial(wrong_leak_test, places=range, looked_at=lambda outputs, place: outputs[:, place + 1 :]),
            "You look at the outputs after the change. They may depend on it: that is the past. A leak shows in the "
            "outputs before.",
            also=[
                partial(
                    wrong_leak_test, places=lambda T: range(T - 1), looked_at=lambda outputs, place: outputs[:, -1:]
                )
            ],
        ),
        Misconception(
            "never finds one",
            lambda model, ids: False,
            "You never find a leak. Do you compare two runs on *different* ids? A change in place alters the original, "
            "too, and then both runs are the same.",
            also=[partial(wrong_leak_test, other=lambda ids, V: ids)],
        ),
        Misconception(
            "answer inverted",
            lambda model, ids: not leaks_future(model, ids),
            "You return True for causal models. True means that something leaks.",
        ),
        Misconception(
            "only the last token changed",
            partial(wrong_leak_test, places=lambda T: range(T - 1, T) if T > 1 else ()),
            "You change the last token alone. A hole may let an earlier place see a token in the middle: change every "
            "place but the first, one after the other.",
        ),
        Misconception(
            "only one token changed",
            partial(wrong_leak_test, places=lambda T: range(T // 2, T // 2 + 1) if T > 1 else ()),
            "You change one token in the middle. A hole may lead to any other: change every place but the first, one "
            "after the other.",
        ),
        Misconception(
            "last token never changed",
            partial(wrong_leak_test, places=lambda T: range(1, T - 1)),
            "You never change the last token, and the one before it may see it. The places run from 1 to T − 1.",
        ),
        Misconception(
            "only the first output looked at",
            partial(wrong_leak_test, looked_at=lambda outputs, place: outputs[:, :1]),
            "You look at the first output only. A hole may be in any row: compare all outputs before the change.",
        ),
        Misconception(
            "only next door",
            partial(wrong_leak_test, looked_at=lambda outputs, place: outputs[:, place - 1 : place]),
            "You look at the neighbour on the left only. A hole may let a far place see: compare all outputs before "
            "the change.",
        ),
        Misconception(
            "only one text looked at",
            lambda model, ids: leaks_future(model, ids[:1]),
            "You look at a single text of the batch. What a model shows to a text may depend on its tokens: compare "
            "the outputs of all texts.",
            also=[lambda model, ids: leaks_future(model, ids[-1:])],
        ),
        Misconception(
            "favourites compared",
            partial(wrong_leak_test, measure=favourite_changed, limit=0.5),
            "You compare the most probable token. A leak can move every logit and leave the favourite: compare the "
            "logits themselves.",
        ),
        Misconception(
            "too forgiving",
            partial(wrong_leak_test, limit=0.05),
            "You allow too large a difference, and a small leak goes through. Training will find and widen it. "
            "Rounding is smaller than 0.00001 here.",
        ),
        Misconception(
            "rounding taken for a leak",
            partial(wrong_leak_test, limit=0.0),
            "You ask for outputs that are equal to the last bit. Sums in another order change it without any leak: "
            "allow 0.00001.",
        ),
        Misconception(
            "sign kept",
            partial(wrong_leak_test, measure=lambda after, before: float((after - before).max())),
            "You compare differences with their sign. A leak may push all logits down: absolute values first.",
            also=[partial(wrong_leak_test, measure=lambda after, before: float((before - after).max()))],
        ),
        Misconception(
            "the same token put in",
            partial(wrong_leak_test, other=lambda ids, V: torch.zeros_like(ids)),
            "You put in a fixed token, or a drawn one. Where it stood already, nothing has changed, and a leak stays "
            "hidden: make sure that the new token differs from the old one.",
            also=[
                partial(wrong_leak_test, other=lambda ids, V: torch.full_like(ids, V - 1)),
                partial(wrong_leak_test, other=lambda ids, V: torch.randint(V, ids.shape)),
            ],
        ),
        Misconception(
            "beyond the vocabulary",
            partial(wrong_leak_test, other=lambda ids, V: ids + 1),
            "You add 1 to the id, and the last token of the vocabulary has no next one. `% V` brings it back to 0; V "
            "is the last size of the logits.",
        ),
    ],
)

# --- masks.patterns ---------------------------------------------------------------------------------------------------

PATTERNS = Exercise(
    id="masks.patterns",
    chapter=3,
    title="Whose mask is this?",
    kind="choice",
    points=1,
    difficulty=1,
    minutes=5,
    why="The three families differ by their masks more than by anything else. One look should tell.",
    hints=[
        "Three of the nine are right, one for each model. Which of the three reads only, which writes on, which turns "
        "one text into another?",
        "Look at the first row of each mask: what does the first token see?",
        "In a translation the source is there in full before the first word of the target is written. What does that "
        "say about its rows and columns?",
    ],
    options=[
        Option(
            "a",
            "BERT has mask 1",
            False,
            "In mask 1 no token sees a later one. BERT fills gaps: it reads both sides of each.",
        ),
        Option("b", "BERT has mask 2", True, "All see all: BERT reads a whole text at once, to both sides."),
        Option(
            "c",
            "BERT has mask 3",
            False,
            "In mask 3 some pairs are hidden. BERT is an encoder alone: there is no target in it that must wait.",
        ),
        Option("d", "GPT has mask 1", True, "Each token sees itself and the past: GPT writes on, word by word."),
        Option(
            "e",
            "GPT has mask 2",
            False,
            "In mask 2 every token sees the next one, which is the word that GPT must name.",
        ),
        Option(
            "f",
            "GPT has mask 3",
            False,
            "In mask 3 token 0 sees token 1, which comes later. A GPT's prompt is causal as well.",
        ),
        Option(
            "g",
            "T5 has mask 1",
            False,
            "In mask 1 the source is causal, too. T5's encoder reads the source in both directions.",
        ),
        Option(
            "h",
            "T5 has mask 2",
            False,
            "In mask 2 the source sees the target, and the target its own future: it would read the translation off.",
        ),
        Option(
            "i",
            "T5 has mask 3",
            True,
            "The two source tokens see each other; each target token sees the source and its own past.",
        ),
    ],
)

EXERCISES = [CAUSAL, PADDING, MASKED_ATTENTION, LEAK_TEST, PATTERNS]
