"""Chapter 2, scaled dot-product attention: eight exercises.

Shapes: q (..., T, D), k (..., S, D), v (..., S, D_v), mask broadcastable to (..., T, S) with True = may attend.
"""

import math
from functools import partial

import torch

from ..exercise import Case, Exercise, Misconception, generator
from ..given import measured_or_scattered
from ..judge import as_number, compare

INF = float("inf")

# --- attention.softmax ------------------------------------------------------------------------------------------------


def softmax(x, dim):
    exponentials = (x - x.amax(dim, keepdim=True)).exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


def one_row(seed):
    "One row: the shares of [1, 2, 3]."
    return [Case(torch.tensor([1.0, 2.0, 3.0]), 0)]


def rows_and_columns(seed):
    "A table: `dim` says whether the rows or the columns sum to 1."
    rng = generator(seed)
    return [
        Case(torch.randn(2, 3, generator=rng), 1),
        Case(torch.randn(2, 3, generator=rng), 0),
        Case(torch.randn(3, 3, generator=rng), -1),
    ]


def large_numbers(seed):
    "Scores as large as 10,000: exp(10,000) is not a float32, yet the shares are ordinary numbers."
    steps = torch.randint(-3, 4, (2, 3), generator=generator(seed)).float()
    return [
        Case(torch.tensor([1e4, 1e4 + 1, 1e4 + 2]), -1),
        Case(torch.tensor([-1e4, -1e4 + 1, -1e4 + 2]), -1),
        Case(torch.tensor([0.0, 1e4, -1e4, 1e4]), -1),
        Case(torch.tensor([[1e4], [-1e4]]) + steps, -1),
    ]


def more_axes(seed):
    "Three axes: any of them may be the one that sums to 1, and x may be a transposed view."
    rng = generator(seed)
    drawn = [Case(torch.randn(2, 3, 5, generator=rng), dim) for dim in (-1, 1, 0, -2)]
    return [*drawn, Case(torch.randn(2, 3, 5, generator=rng).transpose(0, 2), 1)]


def blocked_scores(seed):
    "A score of −inf: its share is exactly 0 and the others share the rest."
    x = torch.randn(3, 4, generator=generator(seed))
    return [Case(x.masked_fill(torch.eye(3, 4, dtype=torch.bool), -INF), -1)]


def double_precision(seed):
    "float64 in, float64 out."
    return [Case(torch.randn(4, 7, generator=generator(seed), dtype=torch.float64), -1)]


def forgiving_when_large(case, expected, got):
    """A float32 near 10,000 has steps of 0.001: x − logsumexp(x) is a right way, and loses that much."""
    x = case.args[0]
    coarse = x.dtype == torch.float32 and x[x.isfinite()].abs().max() > 1000
    return compare(expected, got, rtol=2e-3 if coarse else None)


SOFTMAX = Exercise(
    id="attention.softmax",
    chapter=2,
    title="Softmax that survives large scores",
    kind="code",
    points=2,
    difficulty=2,
    minutes=10,
    signature="softmax(x, dim)",
    why="Every attention weight of every Transformer is an output of this function.",
    reference=softmax,
    stages=[one_row, rows_and_columns, large_numbers, more_axes, blocked_scores, double_precision],
    forbidden=["softmax", "softmin", "scaled_dot_product"],
    judge=forgiving_when_large,
    hints=[
        "Two properties define it: every share is positive, and along `dim` the shares sum to 1. Which function is "
        "always positive?",
        "Divide by a sum along `dim`. For that sum to line up with x again, its axis must stay, with length 1: look "
        "up `keepdim`.",
        "exp(10,000) overflows. Adding the same number to every score of a slice leaves its shares as they are: "
        "which number makes the largest exponent 0?",
    ],
    misconceptions=[
        Misconception(
            "no maximum subtracted",
            lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True),
            "Right for small scores, but exp overflows above 88 and underflows far below 0: you then divide inf by "
            "inf, or 0 by 0. Subtract the largest score of each slice first: the shares stay the same and no "
            "exponent exceeds 0.",
        ),
        Misconception(
            "mean subtracted",
            lambda x, dim: (x - x.mean(dim, True)).exp() / (x - x.mean(dim, True)).exp().sum(dim, True),
            "You subtract the mean of each slice. Where one score lies far above the others, its exponent is still "
            "large enough to overflow. Subtract the maximum: then no exponent exceeds 0.",
        ),
        Misconception(
            "maximum of the whole tensor",
            lambda x, dim: (x - x.max()).exp() / (x - x.max()).exp().sum(dim, keepdim=True),
            "You subtract one maximum for the whole tensor. A row that lies far below another row then underflows "
            "to 0 / 0. Each slice along `dim` needs its own maximum.",
        ),
        Misconception(
            "ignores dim",
            lambda x, dim: softmax(x, -1),
            "You always normalise along the last axis. `dim` says which axis sums to 1.",
        ),
        Misconception(
            "always the first axis",
            lambda x, dim: softmax(x, 0),
            "You always normalise along the first axis. `dim` says which axis sums to 1.",
        ),
        Misconception(
            "sum over everything",
            lambda x, dim: (x - x.amax(dim, keepdim=True)).exp() / (x - x.amax(dim, keepdim=True)).exp().sum(),
            "You divide by the sum over the whole tensor, so that all entries together sum to 1. "
            "Each slice along `dim` must sum to 1 by itself.",
        ),
        Misconception(
            "sum without keepdim",
            lambda x, dim: (x - x.amax(dim, keepdim=True)).exp() / (x - x.amax(dim, keepdim=True)).exp().sum(dim),
            "The sum loses its axis, so that broadcasting lines it up with the wrong one: an error for most shapes, "
            "and for a square one each row is silently divided by another row's sum. Keep the axis with "
            "keepdim=True.",
        ),
        Misconception(
            "no exponential",
            lambda x, dim: x / x.sum(dim, keepdim=True),
            "You divide the scores themselves by their sum. Scores may be negative, and shares may not: take exp of "
            "each score first.",
        ),
        Misconception(
            "logarithm of the shares",
            lambda x, dim: softmax(x, dim).log(),
            "These are the logarithms of the shares. Softmax returns the shares themselves, which sum to 1.",
        ),
        Misconception(
            "divided by the largest",
            lambda x, dim: (x - x.amax(dim, keepdim=True)).exp(),
            "Your largest share is always 1: you divided by the largest exponential. Divide by the sum of them all.",
        ),
        Misconception(
            "always float32",
            lambda x, dim: softmax(x.float(), dim),
            "You return float32 whatever comes in, and a float64 input loses half its digits. "
            "Leave the input's dtype as it is.",
        ),
    ],
)

# --- attention.scaled_dot_product -------------------------------------------------------------------------------------


def scaled_dot_product_attention(q, k, v, mask=None):
    scores = scaled_scores(q, k)  # (..., T, S)
    weights = shares(block(scores, mask))  # (..., T, S)
    return weights @ v, weights  # (..., T, D_v), (..., T, S)


def raw_scores(q, k):
    return q @ k.transpose(-2, -1)


def scaled_scores(q, k):
    return raw_scores(q, k) / math.sqrt(q.shape[-1])


def block(scores, mask):
    return scores if mask is None else scores.masked_fill(~mask, -INF)


def shares(scores):
    """Softmax over the keys; a query with no key to look at gets zeros."""
    return torch.where(scores.amax(-1, keepdim=True) == -INF, 0.0, scores.softmax(-1))


def wrong_attention(q, k, v, mask=None, *, score=scaled_scores, mask_with=block, weigh=shares, mix=torch.matmul):
    """Attention whose four steps can be replaced one by one: most misconceptions below."""
    weights = weigh(mask_with(score(q, k), mask))
    return mix(weights, v), weights


def careless_too(**steps):
    """The same mistake made by a learner who also forgot the row without keys, with −inf and with −10⁹."""
    empty_rows = [{"weigh": careless}, {"mask_with": block_with_a_billion, "weigh": careless}]
    return [partial(wrong_attention, **(steps | more)) for more in empty_rows]


def careless(scores):
    return scores.softmax(-1)


def block_with_a_billion(scores, mask):
    return scores if mask is None else scores.masked_fill(~mask, -1e9)


def block_the_allowed(scores, mask):
    return scores if mask is None else scores.masked_fill(mask, -INF)


def block_the_allowed_with_a_billion(scores, mask):
    return scores if mask is None else scores.masked_fill(mask, -1e9)


def scaled_too_late(q, k, v, mask=None):
    weights = shares(block(raw_scores(q, k), mask)) / math.sqrt(q.shape[-1])
    return weights @ v, weights


def mask_after(q, k, v, mask=None):
    weights = shares(scaled_scores(q, k))
    weights = weights if mask is None else weights * mask
    return weights @ v, weights


def qkv(rng, *leading, T, S, D, D_v, dtype=torch.float32):
    shapes = ((*leading, T, D), (*leading, S, D), (*leading, S, D_v))
    return tuple(torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes)


def drawn_mask(rng, *shape):
    """A drawn mask in which every query may look at one key or more, and not at all of them."""
    order = torch.rand(shape, generator=rng).argsort(-1)
    allowed = torch.randint(1, shape[-1], (*shape[:-1], 1), generator=rng)
    return order < allowed


def one_key(seed):
    "One key: there is nothing to choose, so every weight is 1 and the output is that key's value."
    return [Case(*qkv(generator(seed), T=2, S=1, D=3, D_v=2))]


def no_mask(seed):
    "No mask: T queries look at S keys."
    rng = generator(seed)
    return [
        Case(*qkv(rng, T=1, S=2, D=4, D_v=3)),
        Case(*qkv(rng, T=2, S=3, D=4, D_v=5)),
        Case(*qkv(rng, T=4, S=4, D=4, D_v=4)),
    ]


def leading_axes(seed):
    "A batch, and a batch of heads: every leading axis is only carried along."
    rng = generator(seed)
    return [
        Case(*qkv(rng, 2, T=3, S=2, D=4, D_v=5)),
        Case(*qkv(rng, 3, T=3, S=3, D=3, D_v=3)),
        Case(*qkv(rng, 2, 3, T=2, S=4, D=5, D_v=3)),
    ]


def masked(seed):
    "A mask: True = may attend. A blocked key gets weight 0, and the allowed ones share the whole."
    rng = generator(seed)
    return [
        Case(*qkv(rng, T=3, S=3, D=2, D_v=2), torch.ones(3, 3, dtype=torch.bool).tril()),
        Case(*qkv(rng, T=2, S=4, D=3, D_v=2), drawn_mask(rng, 2, 4)),
    ]


def masked_batch(seed):
    "A mask that is smaller than the scores is broadcast over the leading axes."
    rng = generator(seed)
    return [
        Case(*qkv(rng, 2, 3, T=3, S=4, D=4, D_v=2), drawn_mask(rng, 3, 4)),
        Case(*qkv(rng, 2, 3, T=3, S=5, D=4, D_v=2), drawn_mask(rng, 2, 1, 1, 5)),
    ]


def nothing_to_see(seed):
    "A query whose every key is blocked: its weights and its output are zeros, never NaN."
    rng = generator(seed)
    mask, masks = drawn_mask(rng, 3, 4), drawn_mask(rng, 2, 2, 3, 4)
    mask[1] = masks[1, 0, 2] = False
    return [Case(*qkv(rng, T=3, S=4, D=2, D_v=2), mask), Case(*qkv(rng, 2, 2, T=3, S=4, D=2, D_v=2), masks)]


def large_scores(seed):
    "Scores in the thousands, of either sign: the largest allowed one takes all, and nothing overflows."
    rng = generator(seed)
    q, k, v = qkv(rng, T=3, S=4, D=4, D_v=2)
    q, k = (q * 64).round(), (k * 64).round()
    return [Case(q, k, v), Case(q, k, v, drawn_mask(rng, 3, 4))]


def double_attention(seed):
    "float64 in, float64 out."
    return [Case(*qkv(generator(seed), 2, T=3, S=5, D=7, D_v=2, dtype=torch.float64))]


ATTENTION = Exercise(
    id="attention.scaled_dot_product",
    chapter=2,
    title="Scaled dot-product attention",
    kind="code",
    points=5,
    difficulty=4,
    minutes=25,
    signature="scaled_dot_product_attention(q, k, v, mask=None)",
    why="This is the one place in a Transformer where tokens exchange information.",
    reference=scaled_dot_product_attention,
    returns=["output", "weights"],
    stages=[one_key, no_mask, leading_axes, masked, masked_batch, nothing_to_see, large_scores, double_attention],
    forbidden=["scaled_dot_product", "multi_head_attention"],
    hints=[
        "Write the shapes down first: q (..., T, D), k (..., S, D). Which product gives one score for each query "
        "and each key, (..., T, S)?",
        "Only the last two axes of k change places; the leading ones stay where they are. `transpose(-2, -1)` "
        "counts from the end.",
        "A score is a sum of D products. By what must you divide it so that its typical size does not grow with D?",
        "Block a key before the softmax, with a score that exp turns into exactly 0. The mask says where a query "
        "*may* look.",
        "A row in which every score is blocked has no shares: softmax gives NaN there. Find these rows and set them "
        "to 0.",
    ],
    misconceptions=[
        Misconception(
            "scaling missing",
            partial(wrong_attention, score=raw_scores),
            "These are the weights of scores that are √D times too large: the scaling is missing. A score is a sum "
            "of D products and grows like √D; divide by √D before the softmax.",
            also=careless_too(score=raw_scores),
        ),
        Misconception(
            "scaled by D",
            partial(wrong_attention, score=lambda q, k: raw_scores(q, k) / q.shape[-1]),
            "Your weights are too flat: you divide by D. The variance of a score is D, so its typical size is √D: "
            "divide by the root.",
            also=careless_too(score=lambda q, k: raw_scores(q, k) / q.shape[-1]),
        ),
        Misconception(
            "multiplied by the root",
            partial(wrong_attention, score=lambda q, k: raw_scores(q, k) * math.sqrt(q.shape[-1])),
            "You multiply the scores by √D, and so make large scores larger still. Divide by √D.",
            also=careless_too(score=lambda q, k: raw_scores(q, k) * math.sqrt(q.shape[-1])),
        ),
        Misconception(
            "scaled by the number of keys",
            partial(wrong_attention, score=lambda q, k: raw_scores(q, k) / math.sqrt(k.shape[-2])),
            "You divide by the root of the number of keys. A score is a sum over D features, however many keys "
            "there are: the size that counts is the last axis of q and k.",
            also=careless_too(score=lambda q, k: raw_scores(q, k) / math.sqrt(k.shape[-2])),
        ),
        Misconception(
            "scaled after the softmax",
            scaled_too_late,
            "You divide the weights by √D, not the scores: each row now sums to 1/√D, and the softmax has already "
            "saturated. Scale the scores, then take the softmax.",
        ),
        Misconception(
            "softmax over the queries",
            partial(wrong_attention, weigh=lambda scores: scores.softmax(-2)),
            "Your columns sum to 1: the softmax runs over the queries. Each query shares its attention among the keys, "
            "so each row, the last axis, must sum to 1.",
        ),
        Misconception(
            "keys not transposed",
            partial(wrong_attention, score=lambda q, k: q @ k / math.sqrt(q.shape[-1])),
            "You multiply q by k as it stands. Where T, S and D happen to be equal this even runs, but it pairs "
            "queries with features. A score is the dot product of a query row and a key row: swap the last two axes "
            "of k.",
            also=[partial(wrong_attention, score=torch.matmul)],
        ),
        Misconception(
            "all axes of k reversed",
            partial(
                wrong_attention, score=lambda q, k: q @ k.permute(*reversed(range(k.ndim))) / math.sqrt(q.shape[-1])
            ),
            "Right without a batch. With leading axes you reverse them all, so that the batch ends up where the "
            "features were. Swap only the last two: k.transpose(-2, -1).",
            also=careless_too(score=lambda q, k: q @ k.permute(*reversed(range(k.ndim))) / math.sqrt(q.shape[-1])),
        ),
        Misconception(
            "weights transposed",
            partial(wrong_attention, mix=lambda weights, v: weights.transpose(-2, -1) @ v),
            "Your weights are right, but you transpose them before they meet v. Row t holds what query t gives to "
            "each key: weights (T, S) times v (S, D_v) fits as it is.",
        ),
        Misconception(
            "mask ignored",
            partial(wrong_attention, mask_with=lambda scores, mask: scores),
            "Your function takes a mask and does not use it: blocked keys still get weight.",
        ),
        Misconception(
            "mask inverted",
            partial(wrong_attention, mask_with=block_the_allowed),
            "Your weights sit exactly where they must not: True means *may attend* here, as in PyTorch's own function. "
            "Block the keys where the mask is False.",
            also=[
                partial(wrong_attention, mask_with=block_the_allowed, weigh=careless),
                partial(wrong_attention, mask_with=block_the_allowed_with_a_billion, weigh=careless),
            ],
        ),
        Misconception(
            "mask after the softmax",
            mask_after,
            "You set weights to 0 after the softmax, so the allowed ones no longer sum to 1: the blocked keys have "
            "taken their part already. Block them before the softmax, with a score of −inf.",
        ),
        Misconception(
            "blocked scores set to 0",
            partial(wrong_attention, mask_with=lambda scores, mask: scores if mask is None else scores * mask),
            "You set blocked scores to 0. exp(0) is 1, so a blocked key still gets a share. Only a score of −inf "
            "gives exp = 0.",
        ),
        Misconception(
            "mask added",
            partial(wrong_attention, mask_with=lambda scores, mask: scores if mask is None else scores + mask),
            "You add the mask to the scores: an allowed key gains 1 and a blocked one stays in. A boolean mask "
            "chooses: where it is False, put −inf.",
        ),
        Misconception(
            "NaN where nothing may be seen",
            partial(wrong_attention, weigh=careless),
            "A query whose every key is blocked gives NaN: softmax of nothing but −inf is 0 / 0, and one NaN "
            "spreads through the whole model. Find the rows without an allowed key and set their weights to 0.",
        ),
        Misconception(
            "a large negative number for −inf",
            partial(wrong_attention, mask_with=block_with_a_billion, weigh=careless),
            "You block with a large negative number. If every key is blocked, all scores are equal again, and the "
            "query attends evenly to everything it must not see. Its weights must be 0.",
        ),
        Misconception(
            "scores returned as weights",
            lambda q, k, v, mask=None: (
                scaled_dot_product_attention(q, k, v, mask)[0],
                block(scaled_scores(q, k), mask),
            ),
            "Your output is right, but your second result is the scores. Return the weights: what the softmax makes "
            "of them.",
        ),
        Misconception(
            "results swapped",
            lambda q, k, v, mask=None: scaled_dot_product_attention(q, k, v, mask)[::-1],
            "You return (weights, output). The order is (output, weights).",
            also=[lambda q, k, v, mask=None: partial(wrong_attention, weigh=careless)(q, k, v, mask)[::-1]],
        ),
        Misconception(
            "weights not returned",
            lambda q, k, v, mask=None: scaled_dot_product_attention(q, k, v, mask)[0],
            "You return the output alone. Return both: (output, weights).",
            also=[lambda q, k, v, mask=None: wrong_attention(q, k, v, mask, weigh=careless)[0]],
        ),
        Misconception(
            "always float32",
            lambda q, k, v, mask=None: scaled_dot_product_attention(q.float(), k.float(), v.float(), mask),
            "You return float32 whatever comes in, and a float64 input loses half its digits. "
            "Leave the dtype of the inputs as it is.",
        ),
    ],
)

# --- attention.worked_example -----------------------------------------------------------------------------------------


def attention_weights(Q, K):
    return (Q @ K.transpose(-2, -1) / math.sqrt(Q.shape[-1])).softmax(-1)


PAPER_Q = torch.tensor([[1, 0, 1, 0], [0.5, 0.5, 0, 1], [0, 1, 0.5, 0.5], [1, 1, 0, 0]])
PAPER_K = torch.tensor([[1, 0, 0.5, 0.5], [0, 1, 0, 1], [0.5, 0.5, 1, 0], [0, 0, 1, 1]])


def the_example(seed):
    "The four queries and four keys of the chapter, the ones you can do on paper."
    return [Case(PAPER_Q.clone(), PAPER_K.clone())]


def other_numbers(seed):
    "Other queries and keys: three queries, five keys, two features; then larger."
    rng = generator(seed)
    return [
        Case(torch.randn(3, 2, generator=rng), torch.randn(5, 2, generator=rng)),
        Case(torch.randn(6, 9, generator=rng), torch.randn(4, 9, generator=rng)),
    ]


WORKED_EXAMPLE = Exercise(
    id="attention.worked_example",
    chapter=2,
    title="The 4 × 4 example by hand",
    kind="code",
    points=2,
    difficulty=1,
    minutes=10,
    signature="attention_weights(Q, K)",
    why="Sixteen scores that you can check with a pencil: after this, no formula for attention is opaque.",
    reference=attention_weights,
    stages=[the_example, other_numbers],
    hints=[
        "On paper first: the score of query 0 and key 0 is the dot product of [1, 0, 1, 0] and [1, 0, ½, ½]. All "
        "sixteen are one matrix product.",
        "Each query has four features. What does the formula divide by, and what is it here?",
        "The last step turns each row of scores into shares. Check a row of yours: are all its entries positive, "
        "and what is its sum?",
    ],
    misconceptions=[
        Misconception(
            "scaling missing",
            lambda Q, K: (Q @ K.T).softmax(-1),
            "You took the softmax of the raw scores. With four features, halve them first: √4 = 2.",
        ),
        Misconception(
            "scaled by D",
            lambda Q, K: (Q @ K.T / Q.shape[-1]).softmax(-1),
            "You divided by the number of features itself. The formula divides by its root.",
        ),
        Misconception(
            "scaled by the number of keys",
            lambda Q, K: (Q @ K.T / math.sqrt(K.shape[0])).softmax(-1),
            "In the 4 × 4 example this comes out right by luck: four keys and four features. Divide by the root of "
            "the number of features, the last axis.",
        ),
        Misconception(
            "always divided by two",
            lambda Q, K: (Q @ K.T / 2).softmax(-1),
            "You divide by 2, which is right for four features only. Take the number of features from Q: √D.",
        ),
        Misconception(
            "softmax over the queries",
            lambda Q, K: (Q @ K.T / math.sqrt(Q.shape[-1])).softmax(0),
            "Your columns sum to 1. Each query, so each row, shares its attention among the keys.",
        ),
        Misconception(
            "queries and keys exchanged",
            lambda Q, K: attention_weights(K, Q),
            "Your row i belongs to key i. Row i must belong to query i: Q stands on the left of the product.",
        ),
        Misconception(
            "keys not transposed",
            lambda Q, K: (Q @ K / math.sqrt(Q.shape[-1])).softmax(-1),
            "You multiplied Q by K as it stands. The 4 × 4 shape hides it: a score pairs a row of Q with a row of "
            "K, so K must be transposed.",
        ),
        Misconception(
            "no softmax",
            lambda Q, K: Q @ K.T / math.sqrt(Q.shape[-1]),
            "These are the scaled scores. One step is left: the softmax of each row, so that it sums to 1.",
        ),
        Misconception(
            "no exponential",
            lambda Q, K: (Q @ K.T) / (Q @ K.T).sum(-1, keepdim=True),
            "You divided each score by the sum of its row. Softmax takes exp of every score first, and only then "
            "divides.",
        ),
        Misconception(
            "table typed in",
            lambda Q, K: attention_weights(PAPER_Q, PAPER_K),
            "The table of the example is right, but you return it for every Q and K. Compute it from the arguments.",
            also=[lambda Q, K: (attention_weights(PAPER_Q, PAPER_K) * 1000).round() / 1000],
        ),
    ],
)

# --- attention.score_variance -----------------------------------------------------------------------------------------


def score_variance(d_k, n_pairs):
    return measured_variance(d_k, n_pairs)


def measured_variance(d_k, n_pairs, draw=torch.randn, divisor=math.sqrt, spread=torch.var):
    scores = (draw(n_pairs, d_k) * draw(n_pairs, d_k)).sum(-1)
    return spread(scores), spread(scores / divisor(d_k))


def products_not_summed(d_k, n_pairs):
    products = torch.randn(n_pairs, d_k) * torch.randn(n_pairs, d_k)
    return products.var(), (products / math.sqrt(d_k)).var()


def theory(d_k, n_pairs):
    """q·k is a sum of d_k products of variance 1; dividing by √d_k divides the variance by d_k."""
    return float(d_k), 1.0


def near_theory_and_noisy(case, expected, got):
    """Within 10 % of theory, and not equal to it: 10,000 pairs miss the true variance by some 1.5 %.

    Of six to 23 pairs a variance is typically off by a third of itself: figures that keep still were not measured.
    """
    if case.args[1] < 100:
        if got == STILL:
            return "With few pairs a variance jumps about, and yours does not: is it measured?"
        return None if got == expected else "With few pairs your figures are not a pair of variances near the theory's."
    truth = theory(*case.args)
    problem = compare(truth, got, rtol=0.1, names=SCORE_VARIANCE.returns)
    if problem is None and tuple(float(part) for part in got) == truth:
        return "This is the theory to the last digit, and no measurement is. Draw q and k, and measure."
    return problem


def three_sizes(seed):
    "10,000 pairs of q and k, at d_k = 16, 64 and 256."
    return [Case(d_k, 10_000) for d_k in (16, 64, 256)]


STILL = "variances that keep still"


def few_pairs(seed):
    "Six pairs, seven, and so on up to 23, at d_k = 4: with so few a measured variance jumps about."
    return [Case(4, 6)]


def scattered(case, brought):
    """Of many pairs the figures themselves. Of few: do the variances differ from one another by more than a tenth?

    Over 20,000 draws measured ones did by 0.15 or more, and none was ten times as large as in theory.
    """
    d_k, n_pairs = case.args
    if n_pairs >= 100:
        return brought
    figures = [[as_number(part) for part in pair] for pair in brought]
    right_form = len(figures) == 3 * n_pairs and all(len(pair) == 2 for pair in figures)
    if not right_form or not all(part is not None and 0 < part < 20 * d_k for pair in figures for part in pair):
        return "no variances"
    before, after = torch.tensor(figures).unbind(1)
    still = any(part.std() < 0.1 * part.mean() for part in (before, after))
    return STILL if still else "variances that jump about"


SCORE_VARIANCE = Exercise(
    id="attention.score_variance",
    chapter=2,
    title="How large is a score?",
    kind="experiment",
    points=3,
    difficulty=2,
    minutes=15,
    signature="score_variance(d_k, n_pairs)",
    why="The √d_k of the formula is not a matter of taste. You can measure where it comes from.",
    reference=score_variance,
    returns=["variance before scaling", "variance after scaling"],
    stages=[three_sizes, few_pairs],
    probe=measured_or_scattered,
    summary=scattered,
    judge=near_theory_and_noisy,
    rtol=0.1,
    hints=[
        "Draw two tables of shape (n_pairs, d_k) from the normal distribution with variance 1: row i of one is q, "
        "of the other k.",
        "You need one score per pair: multiply the tables element by element, then sum over one axis. Which?",
        "Measure the variance of the n_pairs scores twice: as they are, and after the division that the formula makes.",
    ],
    misconceptions=[
        Misconception(
            "standard deviation",
            partial(measured_variance, spread=torch.std),
            "You report the standard deviation, √d_k. The question is the variance, its square.",
        ),
        Misconception(
            "not scaled",
            partial(measured_variance, divisor=lambda d_k: 1),
            "Both your figures belong to the unscaled scores. For the second, divide the scores by √d_k and measure "
            "again.",
        ),
        Misconception(
            "scaled by d_k",
            partial(measured_variance, divisor=lambda d_k: d_k),
            "You divide the scores by d_k. The variance falls with the square of the divisor, so it lands at 1/d_k: "
            "divide by √d_k.",
        ),
        Misconception(
            "variance divided by the root",
            lambda d_k, n_pairs: (lambda before: (before, before / math.sqrt(d_k)))(measured_variance(d_k, n_pairs)[0]),
            "You divide the variance by √d_k. Divide the scores by √d_k: their variance then falls by d_k.",
        ),
        Misconception(
            "uniform draws",
            partial(measured_variance, draw=torch.rand),
            "You draw with torch.rand: numbers between 0 and 1, whose mean is not 0 and whose variance is 1/12. "
            "Unit-normal numbers come from torch.randn.",
        ),
        Misconception(
            "products not summed",
            products_not_summed,
            "You measure the single products q_i·k_i, whose variance is 1. A score is the sum of d_k of them.",
        ),
        Misconception(
            "figures that keep still",
            theory,
            "These figures stay near the theory however few pairs are asked for, and no measurement does. Draw "
            "`n_pairs` queries and keys, and measure.",
            also=[
                lambda d_k, n_pairs: (1.003 * d_k, 1.003),
                lambda d_k, n_pairs: measured_variance(d_k, 10_000),
            ],
        ),
    ],
)

# --- attention.saturation ---------------------------------------------------------------------------------------------


def attention_entropy(scores, d_k, scaled):
    weights = weights_of(scores, d_k, scaled)
    return -torch.xlogy(weights, weights).sum(-1)


def weights_of(scores, d_k, scaled):
    return (scores / math.sqrt(d_k) if scaled else scores).softmax(-1)


def entropy_nan(scores, d_k, scaled):
    weights = weights_of(scores, d_k, scaled)
    return -(weights * weights.log()).sum(-1)


def even_scores(seed):
    "Equal scores: the attention is spread evenly over S keys, and the entropy is ln S, the most there can be."
    return [Case(torch.zeros(1, 4), 16, False), Case(torch.full((2, 7), 3.0), 16, True)]


def the_notes_example(seed):
    "The scores [8, 4, 2, 1] with d_k = 64, before and after scaling."
    scores = torch.tensor([[8.0, 4.0, 2.0, 1.0]])
    return [Case(scores, 64, False), Case(scores, 64, True)]


def drawn_scores(seed):
    "Scores of drawn queries and keys: one entropy per query, whatever the leading axes."
    rng = generator(seed)
    scores = torch.randn(2, 3, 5, generator=rng) * 3
    return [Case(scores[0], 9, True), Case(scores[0], 9, False), Case(scores, 9, True), Case(scores.double(), 9, False)]


def saturated(seed):
    "Scores so far apart that one key takes all: the other weights are exactly 0, and the entropy is 0."
    return [Case(torch.tensor([[1e4, 0.0, -1e4]]), 4, False), Case(torch.tensor([[0.5, -INF, 0.0]]), 4, True)]


SATURATION = Exercise(
    id="attention.saturation",
    chapter=2,
    title="How decided is a query?",
    kind="code",
    points=3,
    difficulty=3,
    minutes=15,
    signature="attention_entropy(scores, d_k, scaled)",
    why="Entropy puts one number on 'saturated': ln S when a query looks everywhere, 0 when it looks at one key only.",
    reference=attention_entropy,
    rtol=1e-4,  # ln(p + 1e-9) is a fair way to spare oneself ln 0
    atol=1e-5,
    stages=[even_scores, the_notes_example, drawn_scores, saturated],
    hints=[
        "First the weights: divide the scores by √d_k if `scaled` says so, then softmax over the keys.",
        "The entropy of a row in nats is minus the sum of p · ln p over its keys. Which axis is summed, and which "
        "shape is left?",
        "A weight can be exactly 0. ln 0 is −inf, and 0 · −inf is NaN, though the limit of p · ln p is 0. Look for "
        "a torch function that knows this.",
    ],
    misconceptions=[
        Misconception(
            "bits",
            lambda scores, d_k, scaled: attention_entropy(scores, d_k, scaled) / math.log(2),
            "Your figures are in bits: log to the base 2. Nats use the natural logarithm, and are smaller by ln 2 = "
            "0.693.",
            also=[lambda scores, d_k, scaled: entropy_nan(scores, d_k, scaled) / math.log(2)],
        ),
        Misconception(
            "minus sign missing",
            lambda scores, d_k, scaled: -attention_entropy(scores, d_k, scaled),
            "Your entropies are negative. ln p is negative for every share below 1: the entropy is *minus* the sum "
            "of p · ln p.",
            also=[lambda scores, d_k, scaled: -entropy_nan(scores, d_k, scaled)],
        ),
        Misconception(
            "NaN at weight 0",
            entropy_nan,
            "Right until a weight is exactly 0: then 0 · ln 0 is computed as 0 · −inf, which is NaN. Such a key "
            "adds nothing: its part must be 0.",
        ),
        Misconception(
            "never scaled",
            lambda scores, d_k, scaled: attention_entropy(scores, d_k, False),
            "You never scale. When `scaled` is True, divide the scores by √d_k before the softmax.",
            also=[lambda scores, d_k, scaled: entropy_nan(scores, d_k, False)],
        ),
        Misconception(
            "always scaled",
            lambda scores, d_k, scaled: attention_entropy(scores, d_k, True),
            "You always scale. When `scaled` is False, the softmax takes the scores as they are.",
            also=[lambda scores, d_k, scaled: entropy_nan(scores, d_k, True)],
        ),
        Misconception(
            "flag inverted",
            lambda scores, d_k, scaled: attention_entropy(scores, d_k, not scaled),
            "You scale when `scaled` is False and leave the scores alone when it is True: `scaled` says what you "
            "are to do.",
            also=[lambda scores, d_k, scaled: entropy_nan(scores, d_k, not scaled)],
        ),
        Misconception(
            "scaled by d_k",
            lambda scores, d_k, scaled: attention_entropy(scores, d_k**2, scaled),
            "You divide by d_k where the formula divides by √d_k, so your attention looks more even than it is.",
            also=[lambda scores, d_k, scaled: entropy_nan(scores, d_k**2, scaled)],
        ),
        Misconception(
            "mean over the rows",
            lambda scores, d_k, scaled: attention_entropy(scores, d_k, scaled).mean(),
            "You return one number for all queries. Every query has its own entropy: sum over the keys only.",
            also=[lambda scores, d_k, scaled: entropy_nan(scores, d_k, scaled).mean()],
        ),
        Misconception(
            "sum over everything",
            lambda scores, d_k, scaled: attention_entropy(scores, d_k, scaled).sum(),
            "You sum over all queries together. Every query has its own entropy: sum over the keys only, the last "
            "axis.",
            also=[lambda scores, d_k, scaled: entropy_nan(scores, d_k, scaled).sum()],
        ),
        Misconception(
            "share of the maximum",
            lambda scores, d_k, scaled: attention_entropy(scores, d_k, scaled) / math.log(scores.shape[-1]),
            "You divide by ln S, which gives the share of the largest possible entropy. The question asks for nats.",
            also=[lambda scores, d_k, scaled: entropy_nan(scores, d_k, scaled) / math.log(scores.shape[-1])],
        ),
    ],
)

# --- attention.why_scale ----------------------------------------------------------------------------------------------

WHY_SCALE = Exercise(
    id="attention.why_scale",
    chapter=2,
    title="Why divide by √d_k?",
    kind="reflect",
    points=0,
    difficulty=3,
    minutes=10,
    why="The most asked question about the formula. An answer in your own words is worth more than the formula.",
    hints=[
        "If the parts of q and k are independent with variance 1, what is the variance of their product, and of a "
        "sum of d_k such products?",
        "What does softmax do to scores that lie far apart, and what is then left of its gradient?",
        "Why the root, and not d_k itself?",
    ],
    model_answer=(
        "A score is a sum of d_k products. If the parts of q and k are independent with mean 0 and variance 1, each "
        "product has variance 1, the sum has variance d_k, and a typical score is about √d_k in size. At d_k = 64 "
        "that is 8, and softmax of scores some 8 apart is nearly a choice of one key. There its gradient, which "
        "contains p · (1 − p), is close to 0, so that training can hardly change where the query looks. Dividing by "
        "√d_k brings the variance back to 1 for every d_k; dividing by d_k would bring it to 1/d_k, so that a wide "
        "head could hardly choose at all. At d_k = 4 or 16 the scaling matters little; it is wide heads that need "
        "it. It is not about overflow: subtracting the maximum takes care of that."
    ),
    rubric=[
        "A score is a sum of d_k products, so its variance grows like d_k and its size like √d_k.",
        "Large scores saturate softmax: one weight near 1, the others near 0.",
        "A saturated softmax passes almost no gradient: p · (1 − p) is near 0.",
        "Why the root: it makes the variance 1 whatever d_k is.",
        "Extra: it assumes independent parts of variance 1, which holds at initialisation and not for ever.",
    ],
)

# --- attention.memory -------------------------------------------------------------------------------------------------

MEMORY = Exercise(
    id="attention.memory",
    chapter=2,
    title="The bytes of one score matrix",
    kind="number",
    points=1,
    difficulty=1,
    minutes=5,
    why="The T × S matrix is what makes long contexts dear, and the figure in the course notes is another matrix's.",
    reference=2048**2 * 4,
    hints=[
        "How many scores are there, when each of 2,048 queries looks at each of 2,048 keys?",
        "How many bytes does a float32 take? There are 32 bits in it.",
        "Do the features of a token, d_model or d_k, still appear in the finished score matrix?",
    ],
    misconceptions=[
        Misconception(
            "the activations",
            2048 * 768 * 4,
            "That is n · d_model · 4, the activation matrix: one vector per token. The score matrix has one number "
            "per pair of tokens.",
            also=[6.291456],
            rtol=0.05,
        ),
        Misconception(
            "entries, not bytes",
            2048**2,
            "That is the number of scores. Each of them is a float32: how many bytes is that?",
        ),
        Misconception(
            "float16",
            2048**2 * 2,
            "That is the matrix in float16, two bytes a number. The question asks for float32.",
        ),
        Misconception(
            "float64",
            2048**2 * 8,
            "That is the matrix in float64, eight bytes a number. The question asks for float32.",
        ),
        Misconception(
            "bits",
            2048**2 * 32,
            "That is the number of bits. A byte has eight.",
        ),
        Misconception(
            "megabytes",
            16.777216,
            "The size is right, the unit is not: that is in megabytes. Give it in bytes.",
            also=[16.0],
            rtol=0.02,
        ),
        Misconception(
            "rounded",
            16_800_000,
            "That is the right size, rounded. The exact figure is a product of whole numbers: give all its digits.",
            also=[16_777_000],
            rtol=0.002,
        ),
        Misconception(
            "one row",
            2048 * 4,
            "That is one row: what a single query needs. There are 2,048 queries.",
        ),
        Misconception(
            "times d_model",
            2048**2 * 768 * 4,
            "You multiply by the number of features. Each score is a sum over them: in the finished matrix they are "
            "gone, one number per pair is left.",
            also=[2048**2 * 64 * 4],
        ),
        Misconception(
            "all twelve heads",
            2048**2 * 4 * 12,
            "That is twelve heads together. The question asks for one.",
        ),
    ],
)

# --- attention.who_is_it ----------------------------------------------------------------------------------------------


def most_attended(tokens, embeddings, query_token):
    weights = token_weights(tokens, embeddings, query_token)
    return tokens[int(weights.argmax())], weights


def token_weights(tokens, embeddings, query_token, scale=None):
    query = embeddings[tokens.index(query_token)]  # (D,)
    return (embeddings @ query / (scale or math.sqrt(len(query)))).softmax(0)  # (S,)


def chosen(tokens, weights):
    return tokens[int(weights.argmax())], weights


def by_cosine(tokens, embeddings, query_token):
    directions = embeddings / embeddings.norm(dim=-1, keepdim=True)
    return most_attended(tokens, directions, query_token)


def by_unscaled_cosine(tokens, embeddings, query_token):
    directions = embeddings / embeddings.norm(dim=-1, keepdim=True)
    return chosen(tokens, token_weights(tokens, directions, query_token, scale=1))


def without_itself(tokens, embeddings, query_token):
    itself = tokens.index(query_token)
    query = embeddings[itself]
    scores = embeddings @ query / math.sqrt(len(query))
    scores[itself] = -INF
    return chosen(tokens, scores.softmax(0))


def by_column(tokens, embeddings, query_token):
    scores = embeddings @ embeddings.T / math.sqrt(embeddings.shape[-1])
    return chosen(tokens, scores.softmax(0)[tokens.index(query_token)])


IT_TOKENS = ["cat", "sat", "mat", "it", "tired"]
IT_EMBEDDINGS = torch.tensor(
    [[1.0, 0.1, 0.0, 0.9], [0.0, 0.8, 0.2, 0.1], [0.1, 0.2, 0.9, 0.0], [0.9, 0.1, 0.0, 0.8], [0.0, 0.1, 0.0, 0.9]]
)


def it_looks(seed):
    "The five tokens of the chapter; the query is 'it'."
    return [Case(list(IT_TOKENS), IT_EMBEDDINGS.clone(), "it")]


def others_look(seed):
    "The same five tokens; the query is another of them."
    return [Case(list(IT_TOKENS), IT_EMBEDDINGS.clone(), token) for token in ("sat", "cat", "mat")]


def drawn_tokens(seed):
    "Other tokens, with drawn embeddings."
    rng = generator(seed)
    tokens = ["a", "dog", "bites", "one", "old", "man"]
    return [
        Case(tokens[:3], torch.randn(3, 7, generator=rng), "dog"),
        Case(tokens, torch.randn(6, 5, generator=rng), "man"),
    ]


WHO_IS_IT = Exercise(
    id="attention.who_is_it",
    chapter=2,
    title="Who is 'it'?",
    kind="code",
    points=3,
    difficulty=2,
    minutes=15,
    signature="most_attended(tokens, embeddings, query_token)",
    why="The course notes print weights for this sentence that cannot come from its vectors. Find the right ones.",
    reference=most_attended,
    returns=["token", "weights"],
    stages=[it_looks, others_look, drawn_tokens],
    hints=[
        "Here the embeddings are queries, keys and values at once. Which row of `embeddings` is the query? "
        "`tokens.index` finds a token.",
        "One query and S keys give S scores: a matrix times a vector. Scale them and take the softmax.",
        "Return two things: the token with the largest weight, and all S weights. The query token is among the "
        "keys, too.",
    ],
    misconceptions=[
        Misconception(
            "scaling missing",
            lambda tokens, embeddings, query_token: chosen(
                tokens, token_weights(tokens, embeddings, query_token, scale=1)
            ),
            "Your favourite may be right, but your weights are too sharp: divide the scores by √D before the softmax.",
        ),
        Misconception(
            "scaled by D",
            lambda tokens, embeddings, query_token: chosen(
                tokens, token_weights(tokens, embeddings, query_token, scale=embeddings.shape[-1])
            ),
            "Your weights are too even: divide the scores by √D, not by D.",
        ),
        Misconception(
            "cosine",
            by_cosine,
            "You compare directions: the cosine divides by the lengths. Attention uses the plain dot product, so a "
            "long key vector gets more weight. That is why 'it' looks at 'cat' more than at itself.",
            also=[by_unscaled_cosine],
        ),
        Misconception(
            "itself left out",
            without_itself,
            "You leave the query token out. In attention a token may look at itself: it is one of the keys.",
        ),
        Misconception(
            "softmax over the queries",
            by_column,
            "You normalised down the columns and then took a row, so your weights do not sum to 1. The query's own "
            "scores share 1 among themselves.",
        ),
        Misconception(
            "always the first token",
            lambda tokens, embeddings, query_token: most_attended(tokens, embeddings, tokens[0]),
            "You ask on behalf of the first token, whoever asks. The query is the embedding of `query_token`.",
        ),
        Misconception(
            "always 'it'",
            lambda tokens, embeddings, query_token: most_attended(tokens, embeddings, tokens[min(3, len(tokens) - 1)]),
            "You ask on behalf of token 3, whoever asks. Find the place of `query_token` in `tokens`.",
        ),
        Misconception(
            "the least attended",
            lambda tokens, embeddings, query_token: (
                tokens[int(token_weights(tokens, embeddings, query_token).argmin())],
                token_weights(tokens, embeddings, query_token),
            ),
            "Your weights are right, but you name the token with the smallest of them.",
        ),
        Misconception(
            "index instead of token",
            lambda tokens, embeddings, query_token: (
                int(token_weights(tokens, embeddings, query_token).argmax()),
                token_weights(tokens, embeddings, query_token),
            ),
            "You return the place of the token. Return the token itself: `tokens` translates.",
        ),
        Misconception(
            "the printed weights",
            lambda tokens, embeddings, query_token: ("cat", torch.tensor([0.412, 0.143, 0.151, 0.156, 0.138])),
            "These are the weights that the course notes print, and these vectors cannot give them. Compute yours "
            "from `embeddings`.",
        ),
        Misconception(
            "weights not returned",
            lambda tokens, embeddings, query_token: most_attended(tokens, embeddings, query_token)[0],
            "The token is right. Return its reasons as well: (token, weights).",
        ),
    ],
)

EXERCISES = [SOFTMAX, ATTENTION, WORKED_EXAMPLE, SCORE_VARIANCE, SATURATION, WHY_SCALE, MEMORY, WHO_IS_IT]
