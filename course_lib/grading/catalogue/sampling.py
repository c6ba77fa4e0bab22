"""Chapter 13, sampling: eight exercises.

Shapes: logits (..., V), V tokens in the vocabulary. A logit of −inf forbids a token.
"""

from functools import partial
from types import SimpleNamespace

import torch

from ..exercise import Case, Exercise, Given, Misconception, Option, generator
from ..given import DRAWS, as_two_rows, chain, drawn_many_times, followed, sum_of_all
from ..judge import compare

INF = float("inf")
ROOM = 0.04  # so two honest samplers agree within this, and every mistake below is further off
ROOM_OF_A_ROW = 0.08  # for fewer draws, against the probability itself: some case shows each mistake by 0.17 or more

SEVEN_WORDS = torch.tensor([2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0])  # the, a, my, his, some, that, one
CONFIDENT = torch.tensor([5.0, 2.0, 1.0, 0.5, 0.1, -1.0, -2.0, -3.0])
UNCERTAIN = torch.tensor([1.5, 1.4, 1.3, 1.2, 1.1, 1.0, 0.9, 0.8])


def shuffled(logits, rng, *rows):
    """Rows that hold the same logits, each in an order of its own, raised by a constant of its own."""
    order = torch.rand(*rows, len(logits), generator=rng).argsort(-1)
    return logits[order] + torch.randint(-3, 4, (*rows, 1), generator=rng)


# --- sampling.temperature ---------------------------------------------------------------------------------------------


def temperature_softmax(logits, temperature):
    return greedy(logits) if temperature == 0 else (logits / temperature).softmax(-1)


def greedy(logits):
    """All probability on the largest logit of each row."""
    return torch.zeros_like(logits).scatter(-1, logits.argmax(-1, keepdim=True), 1.0)


def wrong_temperature(logits, temperature, *, tempered=lambda x, t: (x / t).softmax(-1), at_zero=greedy):
    return at_zero(logits) if temperature == 0 else tempered(logits, temperature)


def careless_at_zero(tempered):
    """The same mistake made by a learner who has no answer to temperature 0 either."""
    return [lambda logits, temperature: tempered(logits, temperature)]


def exponentials(logits, temperature):
    powers = (logits / temperature).exp()
    return powers / powers.sum(-1, keepdim=True)


def at_one(seed):
    "Temperature 1: the plain softmax of the seven words of the chapter."
    return [Case(SEVEN_WORDS.clone(), 1.0)]


def sharper_and_flatter(seed):
    "Below 1 the distribution gets sharper, above 1 flatter."
    return [Case(SEVEN_WORDS.clone(), temperature) for temperature in (0.5, 2.0, 0.1)]


def rows_of_logits(seed):
    "Several rows: each is a distribution of its own."
    rng = generator(seed)
    return [Case(torch.randn(3, 3, generator=rng), 0.7), Case(2 * torch.randn(2, 3, 5, generator=rng), 1.5)]


def zero_temperature(seed):
    "Temperature 0 is greedy: probability 1 for the largest logit of each row, 0 for the others."
    rng = generator(seed)
    return [Case(SEVEN_WORDS[torch.randperm(7, generator=rng)], 0), Case(shuffled(CONFIDENT, rng, 3), 0.0)]


def large_logits(seed):
    "Logits in the thousands: exp overflows, the probabilities are ordinary numbers."
    return [Case(torch.tensor([[1e3, 1e3 + 1, 1e3 - 1], [-1e3, -1e3 + 1, -1e3 - 1]]), 2.0)]


def forbidden_token(seed):
    "A logit of −inf: probability exactly 0 at every temperature."
    logits = torch.randn(2, 4, generator=generator(seed))
    logits[:, 1] = -INF
    return [Case(logits, 0.8)]


def double_logits(seed):
    "float64 in, float64 out."
    return [Case(torch.randn(2, 6, generator=generator(seed), dtype=torch.float64), 0.6)]


TEMPERATURE = Exercise(
    id="sampling.temperature",
    chapter=13,
    title="Softmax with a temperature",
    kind="code",
    points=2,
    difficulty=2,
    minutes=10,
    signature="temperature_softmax(logits, temperature)",
    why="The first knob of every text generator, and the one that most stories are told about.",
    reference=temperature_softmax,
    stages=[
        at_one,
        sharper_and_flatter,
        rows_of_logits,
        zero_temperature,
        large_logits,
        forbidden_token,
        double_logits,
    ],
    hints=[
        "The formula has one division more than softmax. Is it made before the exponential, or after it?",
        "Logits may have several rows. Along which axis must the probabilities sum to 1?",
        "You cannot divide by 0. What does the distribution tend to when the temperature falls towards 0? Build that "
        "directly.",
        "`argmax` says where the largest logit stands. You need probabilities: a row of zeros with a single 1 (look "
        "up `scatter`, or `torch.nn.functional.one_hot` and its dtype).",
    ],
    misconceptions=[
        Misconception(
            "multiplied by the temperature",
            partial(wrong_temperature, tempered=lambda x, t: (x * t).softmax(-1)),
            "You multiply the logits by the temperature, so that high temperatures sharpen. Divide: a high "
            "temperature brings the logits closer together, and the distribution gets flatter.",
            also=careless_at_zero(lambda x, t: (x * t).softmax(-1)),
        ),
        Misconception(
            "temperature ignored",
            lambda logits, temperature: logits.softmax(-1),
            "Your distribution is the same at every temperature: it is not used. Divide the logits by it before the "
            "softmax.",
            also=[partial(wrong_temperature, tempered=lambda x, t: x.softmax(-1))],
        ),
        Misconception(
            "probabilities divided",
            partial(wrong_temperature, tempered=lambda x, t: x.softmax(-1) / t),
            "You divide the probabilities, which then sum to 1 / T. Temperature acts before the softmax, on the "
            "logits.",
            also=careless_at_zero(lambda x, t: x.softmax(-1) / t),
        ),
        Misconception(
            "powers not shared out",
            partial(wrong_temperature, tempered=lambda x, t: x.softmax(-1) ** (1 / t)),
            "p to the power 1 / T is the right shape, but the result no longer sums to 1: divide each row by its sum. "
            "Dividing the logits by T before the softmax does both at once.",
            also=careless_at_zero(lambda x, t: x.softmax(-1) ** (1 / t)),
        ),
        Misconception(
            "no softmax",
            partial(wrong_temperature, tempered=lambda x, t: x / t),
            "These are the logits divided by T. One step is left: the softmax, so that they become probabilities.",
            also=careless_at_zero(lambda x, t: x / t),
        ),
        Misconception(
            "log-probabilities",
            partial(wrong_temperature, tempered=lambda x, t: (x / t).log_softmax(-1)),
            "These are the logarithms of the probabilities: they are negative, and do not sum to 1. Use softmax "
            "itself.",
            also=careless_at_zero(lambda x, t: (x / t).log_softmax(-1)),
        ),
        Misconception(
            "division by zero",
            lambda logits, temperature: (logits / temperature).softmax(-1),
            "Right for every temperature above 0. At 0 you divide by 0, and softmax makes NaN of the infinities. "
            "Treat 0 by itself: it means greedy, all probability on the largest logit.",
            also=[lambda logits, temperature: (logits * (1 / temperature)).softmax(-1)],
        ),
        Misconception(
            "zero taken for one",
            partial(wrong_temperature, at_zero=lambda logits: logits.softmax(-1)),
            "At temperature 0 you return the plain softmax, as if no temperature had been given. Zero is a "
            "temperature like the others: it means greedy. (`temperature or 1.0` does this, because 0 counts as "
            "false.)",
        ),
        Misconception(
            "index instead of probabilities",
            partial(wrong_temperature, at_zero=lambda logits: logits.argmax(-1)),
            "At temperature 0 you return the place of the largest logit. Return probabilities there, too: 1 at that "
            "place, 0 elsewhere.",
            also=[partial(wrong_temperature, at_zero=lambda logits: logits.argmax())],
        ),
        Misconception(
            "one winner for all rows",
            partial(wrong_temperature, at_zero=lambda logits: (logits == logits.max()).to(logits.dtype)),
            "At temperature 0 you look for one largest logit in the whole tensor. Each row is a distribution of its "
            "own and needs its own 1.",
            also=[
                partial(
                    wrong_temperature,
                    at_zero=lambda logits: (
                        torch.zeros_like(logits).flatten().index_fill(0, logits.argmax(), 1.0).view_as(logits)
                    ),
                )
            ],
        ),
        Misconception(
            "uniform at zero",
            partial(wrong_temperature, at_zero=lambda logits: torch.full_like(logits, 1 / logits.shape[-1])),
            "At temperature 0 you give all tokens the same probability. That is the other end: it is what a "
            "temperature without bound tends to.",
        ),
        Misconception(
            "softmax over the rows",
            partial(wrong_temperature, tempered=lambda x, t: (x / t).softmax(0)),
            "You normalise along the first axis, across different rows. The tokens lie along the last one.",
            also=careless_at_zero(lambda x, t: (x / t).softmax(0)),
        ),
        Misconception(
            "exp overflows",
            partial(wrong_temperature, tempered=exponentials),
            "Right for small logits, but exp overflows above 88 and underflows far below 0, and inf / inf is NaN. "
            "Subtract each row's largest logit first, or let torch's softmax do it.",
            also=careless_at_zero(exponentials),
        ),
        Misconception(
            "always float32",
            lambda logits, temperature: temperature_softmax(logits.float(), temperature),
            "You return float32 whatever comes in, and a float64 input loses half its digits. Leave the dtype "
            "as it is.",
        ),
    ],
)

# --- sampling.top_k ---------------------------------------------------------------------------------------------------


def top_k_filter(logits, k):
    """Tokens that tie with the k-th are kept."""
    return logits.masked_fill(logits < kth_largest(logits, k), -INF)


def kth_largest(logits, k):
    return logits.topk(min(k, logits.shape[-1]), dim=-1).values[..., -1:]


def top_k_exactly(logits, k, largest=True, fill=-INF):
    """k tokens and no more: of those that tie, the ones that topk happens to name."""
    top = logits.topk(min(k, logits.shape[-1]), dim=-1, largest=largest)
    return torch.full_like(logits, fill).scatter(-1, top.indices, top.values)


def either_way_of_ties(case, expected, got):
    """As compare; but of the tokens that tie with the k-th, an answer may keep all, or as many as make k."""
    logits, k = case.args
    alike = isinstance(got, torch.Tensor) and got.shape == expected.shape and got.dtype == expected.dtype
    if alike and not got.isnan().any():
        threshold, kept = kth_largest(logits, k), got > -INF
        unchanged = bool((got[kept] == logits[kept]).all())
        complete = bool((kept | (logits <= threshold)).all() and (~kept | (logits >= threshold)).all())
        if unchanged and complete and bool((kept.sum(-1) >= min(k, logits.shape[-1])).all()):
            return None
    return compare(expected, got)


def three_of_seven(seed):
    "The seven words of the chapter: the three largest logits stay as they are, the other four become −inf."
    return [Case(SEVEN_WORDS.clone(), 3)]


def in_any_order(seed):
    "The logits in another order: what counts is how large they are, not where they stand."
    rng = generator(seed)
    return [Case(SEVEN_WORDS[torch.randperm(7, generator=rng)], k) for k in (2, 4)]


def each_row_its_own(seed):
    "Several rows on different levels: each keeps its own k."
    rng = generator(seed)
    levels = torch.tensor([[0.0], [20.0], [-20.0]])
    return [
        Case(torch.randn(3, 5, generator=rng) + levels, 2),
        Case(torch.randn(2, 3, 6, generator=rng, dtype=torch.float64) + levels, 3),
    ]


def one_and_all(seed):
    "k = 1 keeps one token. k = V keeps all of them, and so does every larger k."
    logits = torch.randn(2, 5, generator=generator(seed))
    return [Case(logits, k) for k in (1, 5, 50)]


def ties(seed):
    "Equal logits at the edge: keep them all, or as many as make k."
    return [Case(torch.tensor([1.0, 3.0, 1.0, 2.0, 1.0]), 3), Case(torch.tensor([1.0, 1.0, 1.0, 0.0]), 2)]


TOP_K = Exercise(
    id="sampling.top_k",
    chapter=13,
    title="Top-k: a fixed number of candidates",
    kind="code",
    points=2,
    difficulty=2,
    minutes=10,
    signature="top_k_filter(logits, k)",
    why="The oldest way to keep a model from saying something absurd: it may choose among its k favourites only.",
    reference=top_k_filter,
    stages=[three_of_seven, in_any_order, each_row_its_own, one_and_all, ties],
    judge=either_way_of_ties,
    hints=[
        "`torch.topk` finds the k largest along an axis. You do not want them by themselves: you want all V logits "
        "back, with most of them −inf.",
        "If you knew the k-th largest logit of a row, which comparison would tell you what to remove?",
        "A comparison of (..., V) with (..., 1) works row by row. How do you take the last column and keep its axis?",
        "topk complains if k is larger than V. What should happen then?",
    ],
    misconceptions=[
        Misconception(
            "zeros for −inf",
            lambda logits, k: top_k_filter(logits, k).masked_fill(logits < kth_largest(logits, k), 0.0),
            "You set the others to 0. As a logit, 0 is a number like any other: exp(0) = 1, and such a token can be "
            "drawn. Only −inf gives probability 0.",
            also=[partial(top_k_exactly, fill=0.0), lambda logits, k: logits * (logits >= kth_largest(logits, k))],
        ),
        Misconception(
            "a large negative number for −inf",
            lambda logits, k: logits.masked_fill(logits < kth_largest(logits, k), -1e9),
            "You remove with a large negative number. After another filter, or in half precision, it may be the "
            "largest logit that is left. −inf is what no temperature can bring back.",
            also=[
                partial(top_k_exactly, fill=-1e9),
                lambda logits, k: logits.masked_fill(logits < kth_largest(logits, k), -1e10),
            ],
        ),
        Misconception(
            "probabilities",
            lambda logits, k: top_k_filter(logits, k).softmax(-1),
            "You kept the right tokens and went on to the softmax. This function returns logits, so that other "
            "filters can follow.",
            also=[lambda logits, k: top_k_exactly(logits, k).softmax(-1)],
        ),
        Misconception(
            "only the k values",
            lambda logits, k: logits.topk(min(k, logits.shape[-1])).values,
            "You return k logits per row, and nobody can tell any more which tokens they belong to. Return all V "
            "places, with −inf in the others.",
            also=[lambda logits, k: logits.topk(k).values, lambda logits, k: logits.topk(k)],
        ),
        Misconception(
            "the k smallest",
            partial(top_k_exactly, largest=False),
            "You keep the k least likely tokens. Keep the largest logits.",
            also=[lambda logits, k: logits.masked_fill(logits > -kth_largest(-logits, k), -INF)],
        ),
        Misconception(
            "one too few",
            lambda logits, k: logits.masked_fill(logits <= kth_largest(logits, k), -INF),
            "You remove the k-th itself, so that k − 1 tokens stay, and none at k = 1. Remove what is smaller than "
            "the k-th, and only that.",
        ),
        Misconception(
            "one too many",
            lambda logits, k: top_k_filter(logits, k + 1),
            "You keep k + 1 tokens. If you sorted in ascending order, the k-th largest stands at place −k.",
        ),
        Misconception(
            "the first k places",
            lambda logits, k: logits.masked_fill(torch.arange(logits.shape[-1]) >= k, -INF),
            "You keep the first k places. That is right only if the logits come sorted, and a vocabulary is not "
            "sorted by probability.",
        ),
        Misconception(
            "one threshold for all rows",
            lambda logits, k: logits.masked_fill(
                logits < logits.flatten().topk(min(k, logits.numel())).values[-1], -INF
            ),
            "You look for the k largest logits of the whole tensor. Each row chooses its own token, and needs k "
            "candidates of its own.",
        ),
        Misconception(
            "the first row's threshold",
            lambda logits, k: logits.masked_fill(logits < kth_largest(logits, k).flatten()[0], -INF),
            "You take the threshold of the first row for all of them. Each row has its own k-th largest logit.",
        ),
        Misconception(
            "sorted",
            lambda logits, k: top_k_filter(logits, k).sort(-1, descending=True).values,
            "You kept the right logits, but in sorted order, so that each now stands for another token. Leave every "
            "logit in its place.",
            also=[lambda logits, k: top_k_exactly(logits, k).sort(-1, descending=True).values],
        ),
        Misconception(
            "k larger than V",
            lambda logits, k: logits.masked_fill(logits < logits.topk(k).values[..., -1:], -INF),
            "Right, until k is larger than the vocabulary: torch.topk raises there. k candidates of fewer tokens are "
            "all of them.",
            also=[
                lambda logits, k: torch.full_like(logits, -INF).scatter(
                    -1, logits.topk(k).indices, logits.topk(k).values
                )
            ],
        ),
    ],
)

# --- sampling.top_p ---------------------------------------------------------------------------------------------------


def top_p_filter(logits, p):
    return nucleus(logits, p)


def nucleus(logits, p, *, drop=lambda q, total, p: total - q >= p, first_stays=True, descending=True, fill=-INF):
    """Top-p whose parts can be replaced: q are the sorted probabilities, total their running sum, q itself included."""
    q, order = logits.softmax(-1).sort(dim=-1, descending=descending, stable=True)
    dropped = drop(q, q.cumsum(-1), p)
    if first_stays:
        dropped[..., 0] = False
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, order, dropped), fill)


def without_the_crossing_token(q, total, p):
    return total > p


def not_put_back(logits, p):
    """The sorted logits: right values, wrong places."""
    return top_p_filter(logits, p).sort(-1, descending=True).values


def sorted_mask_on_unsorted(logits, p):
    q = logits.softmax(-1).sort(-1, descending=True).values
    return logits.masked_fill(q.cumsum(-1) - q >= p, -INF)


def gathered(logits, p):
    q, order = logits.softmax(-1).sort(-1, descending=True)
    return logits.masked_fill((q.cumsum(-1) - q >= p).gather(-1, order), -INF)


def over_everything(logits, p):
    return top_p_filter(logits.flatten(), p).view_as(logits)


def sum_of_logits(logits, p):
    q, order = logits.sort(-1, descending=True)
    return logits.masked_fill(
        torch.zeros_like(logits, dtype=torch.bool).scatter(-1, order, q.cumsum(-1) - q >= p), -INF
    )


def share_of_the_tokens(logits, p):
    return top_k_filter(logits, max(1, round(p * logits.shape[-1])))


def the_crossing_token(seed):
    "The seven words at p = 0.9: four of them reach 0.89, so the fifth, which crosses 0.9, stays as well."
    return [Case(SEVEN_WORDS.clone(), 0.9)]


def never_empty(seed):
    "A p below the probability of the favourite keeps the favourite: the set is never empty."
    return [Case(CONFIDENT.clone(), 0.9), Case(SEVEN_WORDS.clone(), 0.2), Case(SEVEN_WORDS.clone(), 1e-6)]


def unsorted_logits(seed):
    "The logits in another order: each keeps its place."
    rng = generator(seed)
    first = torch.randint(2, 6, (), generator=rng)  # a permutation that is not its own inverse: gather is not scatter
    cycle = (torch.arange(7) * int(first) + 1) % 7
    return [Case(SEVEN_WORDS[cycle], 0.6), Case(SEVEN_WORDS[torch.randperm(7, generator=rng)], 0.77)]


def rows_of_their_own(seed):
    "Several rows: a sure one keeps few tokens, an unsure one many."
    rng = generator(seed)
    sure = shuffled(CONFIDENT, rng, 2)
    unsure = shuffled(UNCERTAIN, rng, 2)
    return [Case(torch.stack([sure[0], unsure[0]]), 0.9), Case(torch.stack([sure, unsure]), 0.6)]


def all_of_them(seed):
    "p = 1 keeps every token."
    return [Case(shuffled(SEVEN_WORDS[:4], generator(seed), 2), 1.0)]


def after_another_filter(seed):
    "Logits that another filter has set to −inf have no probability, and stay −inf."
    logits = top_k_filter(SEVEN_WORDS[torch.randperm(7, generator=generator(seed))], 4)
    return [Case(logits, 0.77)]


def double_nucleus(seed):
    "float64 in, float64 out."
    return [Case(shuffled(SEVEN_WORDS, generator(seed), 2).double(), 0.7)]


TOP_P = Exercise(
    id="sampling.top_p",
    chapter=13,
    title="Top-p: as many candidates as it takes",
    kind="code",
    points=3,
    difficulty=4,
    minutes=20,
    signature="top_p_filter(logits, p)",
    why=(
        "A sure model should choose among few words, an unsure one among many. This filter counts probability instead "
        "of tokens."
    ),
    reference=top_p_filter,
    stages=[
        the_crossing_token,
        never_empty,
        unsorted_logits,
        rows_of_their_own,
        all_of_them,
        after_another_filter,
        double_nucleus,
    ],
    hints=[
        "Do it on paper for the seven words: write their probabilities in descending order, and beside each the sum "
        "so far.",
        "A token stays if the sum *before* it has not reached p yet. How do you get the sum before from the sum so "
        "far?",
        "You now know which *ranks* to remove. `sort` also returns where each rank stood: its indices.",
        "`scatter` writes to the places that an index names; `gather` reads from them. Which of the two brings a mask "
        "back to the order of the vocabulary?",
    ],
    misconceptions=[
        Misconception(
            "crossing token dropped",
            partial(nucleus, drop=without_the_crossing_token),
            "You drop the token at which the sum crosses p, so that what stays has less than p. The smallest set that "
            "*reaches* p holds it: compare p with the sum before each token.",
            also=[partial(nucleus, drop=lambda q, total, p: total >= p)],
        ),
        Misconception(
            "empty set",
            partial(nucleus, drop=without_the_crossing_token, first_stays=False),
            "You drop the token at which the sum crosses p. Where the favourite alone has more than p, that drops "
            "everything, and the softmax of nothing but −inf is NaN. Compare p with the sum before each token.",
            also=[partial(nucleus, drop=lambda q, total, p: total >= p, first_stays=False)],
        ),
        Misconception(
            "one token too many",
            partial(
                nucleus, drop=lambda q, total, p: (total - q >= p).roll(1, -1).index_fill(-1, torch.tensor([0]), False)
            ),
            "You keep one token more than needed: the set had reached p before it came. Did you shift the mask twice?",
        ),
        Misconception(
            "probability of at least p",
            lambda logits, p: logits.masked_fill(logits.softmax(-1) < p, -INF),
            "You keep the tokens that have probability p each. p belongs to the *sum* of what is kept.",
            also=[partial(nucleus, drop=lambda q, total, p: q < p)],
        ),
        Misconception(
            "min-p",
            lambda logits, p: logits.masked_fill(
                logits.softmax(-1) < p * logits.softmax(-1).amax(-1, keepdim=True), -INF
            ),
            "That is min-p: it compares each token with the favourite. Top-p adds probabilities up, from the "
            "favourite down, until they reach p.",
        ),
        Misconception(
            "share of the tokens",
            share_of_the_tokens,
            "You keep p of the *tokens*, whatever their probability. Keep as many as it takes for their probabilities "
            "to sum to p.",
            also=[lambda logits, p: top_k_filter(logits, max(1, int(p * logits.shape[-1])))],
        ),
        Misconception(
            "from the least probable",
            partial(nucleus, descending=False),
            "You start to add up from the least probable token and keep the tail. Sort in descending order.",
            also=[partial(nucleus, descending=False, first_stays=False)],
        ),
        Misconception(
            "running sum of the logits",
            sum_of_logits,
            "You add up logits. p is a probability: take the softmax first, then sort and add.",
        ),
        Misconception(
            "not put back",
            not_put_back,
            "You return the logits in sorted order, so that each now stands for another token. Bring them back to "
            "their places.",
        ),
        Misconception(
            "mask of the sorted order",
            sorted_mask_on_unsorted,
            "Your mask is in the order of the ranks, your logits in the order of the vocabulary. Scatter the mask "
            "back by the indices that `sort` returned.",
        ),
        Misconception(
            "gather for scatter",
            gathered,
            "You brought the mask back with gather, which applies the permutation once more instead of undoing it. "
            "scatter writes rank i to the place where it came from.",
        ),
        Misconception(
            "one set for all rows",
            over_everything,
            "You take the softmax over all rows together. Each row is a distribution of its own, with a set of its "
            "own.",
        ),
        Misconception(
            "zeros for −inf",
            partial(nucleus, fill=0.0),
            "You set the others to 0. As a logit, 0 is a number like any other: exp(0) = 1, and such a token can be "
            "drawn. Only −inf gives probability 0.",
            also=[lambda logits, p: logits * (top_p_filter(logits, p) > -INF)],
        ),
        Misconception(
            "probabilities",
            lambda logits, p: top_p_filter(logits, p).softmax(-1),
            "You kept the right tokens and went on to the softmax. This function returns logits, so that other "
            "filters can follow.",
            also=[lambda logits, p: logits.softmax(-1) * (top_p_filter(logits, p) > -INF)],
        ),
    ],
)

# --- sampling.next_token ----------------------------------------------------------------------------------------------


def sample_next_token(logits, temperature, top_k, top_p, generator):
    return draw_with(logits, temperature, top_k, top_p, generator)


def draw_with(
    logits,
    temperature,
    top_k,
    top_p,
    generator,
    *,
    heat=temperature_softmax,
    keep_k=top_k_filter,
    keep_p=top_p_filter,
    choose=lambda probabilities, generator: torch.multinomial(probabilities, 1, generator=generator).squeeze(-1),
):
    """Temperature, top-k, top-p, draw: each step can be replaced."""
    logits = heat(logits, temperature).log()
    if top_k is not None:
        logits = keep_k(logits, top_k)
    if top_p is not None:
        logits = keep_p(logits, top_p)
    return choose(logits.softmax(-1), generator)


def top_p_first(logits, temperature, top_k, top_p, generator):
    logits = temperature_softmax(logits, temperature).log()
    logits = logits if top_p is None else top_p_filter(logits, top_p)
    return draw_with(logits, 1.0, top_k, None, generator)


def temperature_last(logits, temperature, top_k, top_p, generator):
    logits = logits if top_k is None else top_k_filter(logits, top_k)
    logits = logits if top_p is None else top_p_filter(logits, top_p)
    return draw_with(logits, temperature, None, None, generator)


def seeded_inside(logits, temperature, top_k, top_p, generator):
    return draw_with(logits, temperature, top_k, top_p, torch.Generator().manual_seed(0))


def rank_instead_of_id(logits, temperature, top_k, top_p, generator):
    return draw_with(logits.sort(-1, descending=True).values, temperature, top_k, top_p, generator)


def as_often_as_probable(case, expected, got, room=ROOM):
    """Ids must be equal, frequencies near; a probe that could not count says why."""
    if isinstance(expected, tuple) and isinstance(got, str):
        return got
    return compare(
        expected, got, rtol=0.0, atol=room, names=DRAWN[: len(expected)] if isinstance(expected, tuple) else ()
    )


def as_often_as_its_probability(case, expected, got):
    """The frequencies are held against the probabilities themselves, not against other draws."""
    if not isinstance(expected, tuple):
        return as_often_as_probable(case, expected, got)
    probabilities = draw_with(*case.args, choose=lambda probabilities, generator: probabilities)  # (B, V)
    return as_often_as_probable(case, (probabilities, *expected[1:]), got, ROOM_OF_A_ROW)


DRAWN = ("frequency", "the same with the same seed", "new at the next call")
FIVE = torch.tensor([0.40, 0.25, 0.18, 0.11, 0.06]).log()


def cases_of_five(seed, *settings):
    """Two rows with the same five probabilities in different orders, for each (temperature, top_k, top_p)."""
    rng = generator(seed)
    return [Case(shuffled(FIVE, rng, 2), *setting, generator(seed + 1)) for setting in settings]


def the_largest(seed):
    "Temperature 0: the id of the largest logit of each row, shape (B,), whatever the generator says."
    rng = generator(seed)
    return [
        Case(shuffled(SEVEN_WORDS, rng, 1), 0, None, None, generator(seed)),
        Case(shuffled(CONFIDENT, rng, 4), 0.0, 3, 0.9, generator(seed)),
    ]


def plain_draws(seed):
    "Temperature 1 without filters: each token comes as often as its probability says (1,500 draws per row)."
    return cases_of_five(seed, (1.0, None, None))


def warm_draws(seed):
    "Other temperatures."
    return cases_of_five(seed, (0.5, None, None), (2.0, None, None))


def filtered_draws(seed):
    "Top-k or top-p: what is removed never comes, and the rest share its part. A k beyond V removes nothing."
    return cases_of_five(seed, (1.0, 2, None), (1.0, None, 0.75), (1.0, None, 0.3), (1.0, 50, None))


def everything_together(seed):
    "Temperature first, then top-k, then top-p on what top-k has left."
    return cases_of_five(seed, (2.0, None, 0.75), (1.0, 3, 0.7), (0.7, 4, 0.8))


NEXT_TOKEN = Exercise(
    id="sampling.next_token",
    chapter=13,
    title="Draw the next token",
    kind="code",
    points=3,
    difficulty=3,
    minutes=20,
    signature="sample_next_token(logits, temperature, top_k, top_p, generator)",
    why="This is what runs once per word behind every chat window.",
    reference=sample_next_token,
    probe=drawn_many_times,
    returns=DRAWN,
    judge=as_often_as_its_probability,
    stages=[the_largest, plain_draws, warm_draws, filtered_draws, everything_together],
    rtol=0.0,
    atol=ROOM_OF_A_ROW,
    hints=[
        "You have three of the four steps from the exercises before this one. In which order does the chapter apply "
        "them?",
        "A setting of None leaves its filter out. Temperature 0 needs no draw at all.",
        "`torch.multinomial` draws from rows of probabilities. What shape does it return for one draw per row, and "
        "which shape is asked for?",
        "Hand the generator on to the draw, as it came: neither a new one, nor the same one seeded again.",
    ],
    misconceptions=[
        Misconception(
            "always the largest",
            lambda logits, temperature, top_k, top_p, generator: logits.argmax(-1),
            "You return the most probable token every time. That is temperature 0; above it, draw: each token as "
            "often as its probability says.",
        ),
        Misconception(
            "generator ignored",
            lambda logits, temperature, top_k, top_p, generator: draw_with(logits, temperature, top_k, top_p, None),
            "Your frequencies are right, but the same seed gives other tokens each time: the draw does not use the "
            "generator that it was given. Hand it on: torch.multinomial(..., generator=generator).",
        ),
        Misconception(
            "seeded inside",
            seeded_inside,
            "Every call draws the same: you seed inside the function. Text made like this repeats itself. The caller "
            "seeds the generator once; you only hand it on.",
            also=[
                lambda logits, temperature, top_k, top_p, generator: draw_with(
                    logits, temperature, top_k, top_p, generator.manual_seed(0)
                )
            ],
        ),
        Misconception(
            "one draw for all rows",
            partial(
                draw_with,
                choose=lambda q, generator: torch.multinomial(q[:1], 1, generator=generator).flatten().expand(len(q)),
            ),
            "You draw once and give every row the same token. Each row has logits of its own and needs a draw of its "
            "own.",
            also=[lambda logits, *settings: draw_with(logits[0], *settings)],
        ),
        Misconception(
            "axis not removed",
            partial(draw_with, choose=lambda q, generator: torch.multinomial(q, 1, generator=generator)),
            "You return shape (B, 1), which is what torch.multinomial gives. One id per row is (B,): squeeze the last "
            "axis.",
        ),
        Misconception(
            "division by zero",
            partial(draw_with, heat=lambda logits, temperature: (logits / temperature).softmax(-1)),
            "At temperature 0 you divide by 0. Treat it by itself: it means the largest logit, without a draw.",
        ),
        Misconception(
            "temperature ignored",
            partial(
                draw_with, heat=lambda logits, temperature: greedy(logits) if temperature == 0 else logits.softmax(-1)
            ),
            "Your draws are those of temperature 1, whatever the temperature. Divide the logits by it first.",
        ),
        Misconception(
            "multiplied by the temperature",
            partial(
                draw_with,
                heat=lambda logits, temperature: (
                    greedy(logits) if temperature == 0 else (logits * temperature).softmax(-1)
                ),
            ),
            "Your draws get more certain as the temperature rises: you multiply the logits by it. Divide.",
        ),
        Misconception(
            "top-k ignored",
            partial(draw_with, keep_k=lambda logits, k: logits),
            "Tokens outside the k most probable are still drawn. Filter the logits with top_k where it is not None.",
        ),
        Misconception(
            "top-p ignored",
            partial(draw_with, keep_p=lambda logits, p: logits),
            "Tokens outside the top-p set are still drawn. Filter the logits with top_p where it is not None.",
        ),
        Misconception(
            "both filters ignored",
            partial(draw_with, keep_k=lambda logits, k: logits, keep_p=lambda logits, p: logits),
            "Every token can be drawn, whatever top_k and top_p say. Filter the logits before you draw.",
        ),
        Misconception(
            "crossing token dropped",
            partial(draw_with, keep_p=partial(nucleus, drop=without_the_crossing_token)),
            "Your top-p set is one token too small: the token at which the sum crosses p belongs to it.",
        ),
        Misconception(
            "top-p before top-k",
            top_p_first,
            "You apply top-p first, to the whole distribution. The order is temperature, top-k, top-p: the "
            "probabilities that top-p adds up are those of the k tokens that are left, shared out anew.",
        ),
        Misconception(
            "temperature last",
            temperature_last,
            "You filter first and apply the temperature afterwards. A higher temperature flattens the distribution, "
            "and top-p must see that: temperature comes first.",
        ),
        Misconception(
            "evenly among the kept",
            partial(
                draw_with,
                choose=lambda q, generator: torch.multinomial((q > 0).float(), 1, generator=generator).squeeze(-1),
            ),
            "You keep the right tokens and draw among them evenly. Draw by their probabilities.",
        ),
        Misconception(
            "rank instead of id",
            rank_instead_of_id,
            "You return the rank of the token in the sorted list: 0 for the favourite. Translate it back to the id "
            "with the indices that `sort` or `topk` returned.",
        ),
    ],
)

# --- sampling.generate ------------------------------------------------------------------------------------------------


def draw(logits, temperature, generator):
    """(B, V) -> (B,)"""
    return draw_with(logits, temperature, None, None, generator)


def generate(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    for _ in range(max_new_tokens):
        logits = model(ids[:, -max_seq_len:])[:, -1]  # (B, V)
        ids = torch.cat([ids, draw(logits, temperature, generator)[:, None]], 1)  # (B, T + 1)
    return ids


def generate_with(
    model,
    ids,
    max_new_tokens,
    max_seq_len,
    temperature,
    generator,
    *,
    see=lambda ids, limit: ids[:, -limit:],
    pick=lambda logits: logits[:, -1],
    draw=draw,
    extend=lambda ids, new, limit: torch.cat([ids, new[:, None]], 1),
):
    for _ in range(max_new_tokens):
        new = draw(pick(model(see(ids, max_seq_len))), temperature, generator)
        ids = extend(ids, new, max_seq_len)
    return ids


def all_from_one_pass(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    logits = model(ids[:, -max_seq_len:])[:, -1]
    new = [draw(logits, temperature, generator) for _ in range(max_new_tokens)]
    return torch.cat([ids, *(token[:, None] for token in new)], 1)


def never_extended(model, ids, max_new_tokens, max_seq_len, temperature, generator):
    for _ in range(max_new_tokens):
        new = draw(model(ids[:, -max_seq_len:])[:, -1], temperature, generator)
    return torch.cat([ids, new[:, None]], 1) if max_new_tokens else ids


def some_ids(rng, B, T, vocab_size=11):
    return torch.randint(vocab_size, (B, T), generator=rng)


def one_more_token(seed):
    "One new token, at temperature 0: the favourite after the last token of the prompt."
    rng = generator(seed)
    return [
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 1, 3), 1, 16, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 3, 4), 1, 16, 0, generator(seed)),
    ]


def several_tokens(seed):
    "Several new tokens: each depends on all before it, the new ones included. For 0 new tokens the prompt comes back."
    rng = generator(seed)
    return [
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 1, 2), 4, 16, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 3, 5), 6, 16, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 16), some_ids(rng, 2, 3), 0, 16, 0, generator(seed)),
    ]


def beyond_the_window(seed):
    "A text longer than max_seq_len: the model sees the last max_seq_len tokens, and the whole text comes back."
    rng = generator(seed)
    return [
        Case(Given(sum_of_all, 11, 4), some_ids(rng, 2, 3), 5, 4, 0, generator(seed)),
        Case(Given(sum_of_all, 11, 4), some_ids(rng, 2, 7), 3, 4, 0, generator(seed)),
    ]


THREE_WORDS = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.6, 0.3], [0.3, 0.1, 0.6]]).log()


def drawn_tokens(seed):
    "Above temperature 0 tokens are drawn: how often each pair of two new tokens comes in 10,000 texts."
    prompt = torch.randint(3, (1, 2), generator=generator(seed))
    return [
        Case(Given(chain, THREE_WORDS), prompt, 2, 8, temperature, generator(seed)) for temperature in (1.0, 0.5, 2.0)
    ]


GENERATE = Exercise(
    id="sampling.generate",
    chapter=13,
    title="Generate text",
    kind="code",
    points=3,
    difficulty=3,
    minutes=20,
    signature="generate(model, ids, max_new_tokens, max_seq_len, temperature, generator)",
    why="Twelve chapters were about one forward pass. This loop makes a writer of it.",
    reference=generate,
    probe=followed,
    returns=DRAWN[:2],
    judge=as_often_as_probable,
    stages=[one_more_token, several_tokens, beyond_the_window, drawn_tokens],
    rtol=0.0,
    atol=ROOM,
    hints=[
        "model(ids) gives logits of shape (B, T, V), one row per position. Which position speaks about the token that "
        "comes next?",
        "The loop has three lines: ask the model, choose a token for each row, append it. What does `torch.cat` need, "
        "so that (B,) can follow (B, T)?",
        "The model cannot see more than max_seq_len tokens. Which ones should it see, the first or the last? And does "
        "the text that you return get shorter by this?",
        "Temperature 0 means argmax. Above it, draw with the generator that you were given.",
    ],
    misconceptions=[
        Misconception(
            "context not cropped",
            partial(generate_with, see=lambda ids, limit: ids),
            "Right, until the text is longer than max_seq_len: the model has no positions beyond. Show it the last "
            "max_seq_len tokens only.",
        ),
        Misconception(
            "the first tokens kept",
            partial(generate_with, see=lambda ids, limit: ids[:, :limit]),
            "When the text gets too long you show the model its beginning, so that it never sees what it wrote last. "
            "Keep the last max_seq_len tokens: ids[:, -max_seq_len:].",
        ),
        Misconception(
            "the text itself cropped",
            partial(generate_with, extend=lambda ids, new, limit: torch.cat([ids[:, -limit:], new[:, None]], 1)),
            "You crop the text that you return, and so lose its beginning. Keep the whole text in one variable and "
            "crop only what goes into the model.",
            also=[partial(generate_with, extend=lambda ids, new, n: torch.cat([ids, new[:, None]], 1)[:, -n:])],
        ),
        Misconception(
            "window one too short",
            partial(generate_with, see=lambda ids, limit: ids[:, -(limit - 1) :]),
            "You show the model max_seq_len − 1 tokens. It can see max_seq_len of them.",
        ),
        Misconception(
            "only the new tokens",
            lambda model, ids, *settings: generate(model, ids, *settings)[:, ids.shape[1] :],
            "You return the continuation alone. Return the prompt and the continuation: (B, T + n).",
        ),
        Misconception(
            "the first position",
            partial(generate_with, pick=lambda logits: logits[:, 0]),
            "You read the logits of the first position, which know the first token only. The last position has seen "
            "the whole text.",
        ),
        Misconception(
            "the position before the last",
            partial(generate_with, pick=lambda logits: logits[:, max(logits.shape[1] - 2, 0)]),
            "You read the position before the last: it predicts the token that is there already.",
        ),
        Misconception(
            "all from one pass",
            all_from_one_pass,
            "You choose all new tokens from one pass of the model, so the second does not know of the first. After "
            "each token, ask again.",
        ),
        Misconception(
            "only the last new token",
            never_extended,
            "You append only once, after the loop. Each new token belongs to the text at once: append it inside the "
            "loop.",
        ),
        Misconception(
            "one token too many",
            lambda model, ids, n, *settings: generate(model, ids, n + 1, *settings),
            "You make one token more than asked for.",
        ),
        Misconception(
            "one row for all",
            partial(
                generate_with,
                draw=lambda logits, temperature, generator: draw(logits[:1], temperature, generator).expand(
                    len(logits)
                ),
            ),
            "All rows get the token of the first one. Each row is a text of its own: choose along the last axis, for "
            "every row.",
        ),
        Misconception(
            "always greedy",
            partial(generate_with, draw=lambda logits, temperature, generator: logits.argmax(-1)),
            "You take the most probable token at every temperature. Above 0, draw.",
        ),
        Misconception(
            "temperature ignored",
            partial(
                generate_with,
                draw=lambda logits, temperature, generator: draw(logits, float(temperature > 0), generator),
            ),
            "Your draws are those of temperature 1. Divide the logits by the temperature before the softmax.",
        ),
        Misconception(
            "multiplied by the temperature",
            partial(
                generate_with,
                draw=lambda logits, temperature, generator: draw(
                    logits, 1 / temperature if temperature else 0, generator
                ),
            ),
            "You multiply the logits by the temperature: your texts get more certain as it rises. Divide.",
        ),
        Misconception(
            "division by zero",
            partial(
                generate_with,
                draw=lambda logits, temperature, generator: torch.multinomial(
                    (logits / temperature).softmax(-1), 1, generator=generator
                ).squeeze(-1),
            ),
            "At temperature 0 you divide by 0, and there is nothing to draw from. Treat 0 by itself: take the largest "
            "logit.",
        ),
        Misconception(
            "generator ignored",
            partial(generate_with, draw=lambda logits, temperature, _: draw(logits, temperature, None)),
            "Your draws are right, but the same seed gives another text each time: hand the generator on to the draw.",
        ),
        Misconception(
            "seeded at every step",
            partial(
                generate_with,
                draw=lambda logits, temperature, _: draw(logits, temperature, torch.Generator().manual_seed(0)),
            ),
            "You seed again before every token, so that each step draws the same random number: a text that meets the "
            "same choice twice decides it the same way. The caller seeds once.",
            also=[
                partial(
                    generate_with,
                    draw=lambda logits, temperature, generator: draw(logits, temperature, generator.manual_seed(0)),
                )
            ],
        ),
    ],
)

# --- sampling.compare -------------------------------------------------------------------------------------------------


def compare_temperatures(model, ids, n_tokens, temperatures, generator):
    return compare_with(model, ids, n_tokens, temperatures, generator)


def by_windows(model, text):
    """The logits (B, T, V) after each place of text (B, T), from as many tokens before it as the model sees."""
    window = model.config.max_seq_len
    return torch.stack([model(text[:, max(0, t - window) : t])[:, -1] for t in range(1, text.shape[1] + 1)], 1)


def in_one_pass(model, text):
    """As by_windows, for a text that fits into the window."""
    return model(text)


def log_probabilities(model, text, temperature=1.0, see=by_windows):
    """ln p of every token of text (B, T) but the first, under the model: (B, T − 1)."""
    logits = see(model, text[:, :-1]) / temperature  # (B, T − 1, V)
    return logits.log_softmax(-1).gather(-1, text[:, 1:, None]).squeeze(-1)


def new_tokens_alone(model, text, start, temperature, see=by_windows):
    return log_probabilities(model, text, see=see)[:, start - 1 :].mean()


def compare_with(
    model,
    ids,
    n_tokens,
    temperatures,
    generator,
    *,
    count=lambda text, start: len(text[:, start:].unique()),
    likelihood=new_tokens_alone,
):
    distinct, likelihoods = [], []
    for temperature in temperatures:
        text = generate(model, ids, n_tokens, model.config.max_seq_len, temperature, generator)
        distinct.append(count(text, ids.shape[1]))
        likelihoods.append(float(likelihood(model, text, ids.shape[1], temperature)))
    return distinct, likelihoods


def under_its_own_temperature(model, text, start, temperature, see=by_windows):
    if temperature == 0:
        return torch.zeros(())
    return log_probabilities(model, text, temperature, see)[:, start - 1 :].mean()


def with_the_prompt(model, text, start, temperature, see=by_windows):
    return log_probabilities(model, text, see=see).mean()


def without_the_first(model, text, start, temperature, see=by_windows):
    return log_probabilities(model, text, see=see)[:, start:].mean()


def by_their_own_places(model, text, start, temperature, see=by_windows):
    return see(model, text).log_softmax(-1).gather(-1, text[..., None]).squeeze(-1)[:, start:].mean()


def summed_up(model, text, start, temperature, see=by_windows):
    return log_probabilities(model, text, see=see)[:, start - 1 :].sum(1).mean()


def probabilities_averaged(model, text, start, temperature, see=by_windows):
    return log_probabilities(model, text, see=see)[:, start - 1 :].exp().mean()


in_one_sight = partial(new_tokens_alone, see=in_one_pass)


def windows_or_not(name, likelihood, sentence):
    """A wrong likelihood, by a learner who minds the window and by one who does not."""
    wrong, careless = partial(compare_with, likelihood=likelihood), partial(likelihood, see=in_one_pass)
    return Misconception(name, wrong, sentence, also=[partial(compare_with, likelihood=careless)])


def window_ignored(model, ids, n_tokens, temperatures, generator):
    model.config = SimpleNamespace(max_seq_len=ids.shape[1] + n_tokens)
    return compare_with(model, ids, n_tokens, temperatures, generator, likelihood=in_one_sight)


# Five words that can follow, two of them only when it is warm, and the prompt's own word, which never comes again.
# No probability lies where 40,000 draws would bring a word in some runs and not in others.
FIVE_WORDS = torch.tensor(
    [
        [0.0, -2.0, -4.0, -21.0, -22.0, -INF],
        [0.0, -4.0, -2.0, -21.0, -22.0, -INF],
        [-3.0, 0.0, -2.0, -22.0, -21.0, -INF],
        [0.0, -1.0, -2.0, -21.0, -21.0, -INF],
        [0.0, -2.0, -1.0, -21.0, -21.0, -INF],
        [1.0, 0.0, 0.0, -21.0, -21.0, -INF],
    ]
)


def four_temperatures(seed):
    "10,000 texts of 4 new tokens from a small model, at temperatures 0.05, 0, 1 and 5."
    order = torch.cat([torch.randperm(5, generator=generator(seed)), torch.tensor([5])])
    model = Given(chain, FIVE_WORDS[order][:, order])
    return [Case(model, torch.full((DRAWS, 2), 5), 4, (0.05, 0, 1.0, 5.0), generator(seed))]


def longer_than_the_window(seed):
    "Three texts that grow longer than the model's window, and a prompt that is longer: it refuses more than 8 tokens."
    rng = generator(seed)
    model = Given(sum_of_all, 7, 8)
    return [Case(model, some_ids(rng, 3, T, 7), 6, (0, 0.01), generator(seed)) for T in (5, 10)]


COMPARE = Exercise(
    id="sampling.compare",
    chapter=13,
    title="Likelihood against diversity",
    kind="experiment",
    points=3,
    difficulty=5,
    minutes=25,
    signature="compare_temperatures(model, ids, n_tokens, temperatures, generator)",
    why="Is a higher temperature more creative? Two numbers per temperature say what it buys and what it costs.",
    reference=compare_temperatures,
    probe=as_two_rows,
    returns=["distinct", "likelihood", "the same with the same seed"],
    stages=[four_temperatures, longer_than_the_window],
    rtol=0.0,
    atol=0.08,
    hints=[
        "For each temperature: generate, then measure. You have written the first half already.",
        "`distinct`: among all new tokens of all rows together, how many different ones are there? The prompt does "
        "not count. Look up `unique`.",
        "`likelihood`: run the finished text through the model once more, window by window where it has grown too "
        "long. log_softmax of its logits gives ln p of every possible token; `gather` picks those that came.",
        "The logits at position t speak about the token at t + 1. So the first new token, at place T, is judged by "
        "position T − 1.",
        "One yardstick for all temperatures: the model's own probabilities, those of temperature 1.",
    ],
    misconceptions=[
        Misconception(
            "window ignored",
            window_ignored,
            "Right as long as the text fits into the window. A longer one the model refuses: show it no more than the "
            "last `model.config.max_seq_len` tokens, when a token is drawn and when it is judged.",
            also=[partial(compare_with, likelihood=in_one_sight)],
        ),
        Misconception(
            "generator ignored",
            lambda model, ids, n_tokens, temperatures, generator: compare_with(
                model, ids, n_tokens, temperatures, None
            ),
            "Your figures are right, but the same seed gives others each time: hand the generator on to the draw.",
        ),
        windows_or_not(
            "each temperature judges itself",
            under_its_own_temperature,
            "You judge each text by the distribution that it was drawn from, so that every temperature has a "
            "yardstick of its own. Use one for all: the model's probabilities at temperature 1.",
        ),
        windows_or_not(
            "prompt counted in the likelihood",
            with_the_prompt,
            "You average over the prompt as well, and the model did not write that. Take the new tokens only.",
        ),
        windows_or_not(
            "first new token left out",
            without_the_first,
            "You leave out the first new token. It is predicted by the last position of the prompt, T − 1.",
        ),
        windows_or_not(
            "shifted by one",
            by_their_own_places,
            "You judge each token by the logits of its own position, which has seen it already. The position before "
            "it made the prediction.",
        ),
        windows_or_not(
            "sum instead of mean",
            summed_up,
            "You add up ln p over each text. Take the mean per token, so that short and long texts can be compared.",
        ),
        windows_or_not(
            "surprise",
            lambda *given, see=by_windows: -new_tokens_alone(*given, see=see),
            "That is the mean surprise, −ln p, which is positive. The log-likelihood is ln p: it is never above 0.",
        ),
        windows_or_not(
            "mean probability",
            probabilities_averaged,
            "You average probabilities. Average their logarithms: a text's probability is a product.",
        ),
        windows_or_not(
            "bits",
            lambda *given, see=by_windows: new_tokens_alone(*given, see=see) / torch.tensor(2.0).log(),
            "You use the logarithm to the base 2, so your figures are in bits. In nats they are smaller by ln 2 = "
            "0.693.",
        ),
        Misconception(
            "prompt counted among the tokens",
            partial(compare_with, count=lambda text, start: len(text.unique())),
            "You count the tokens of the prompt, too. Count the different tokens among the new ones.",
        ),
        Misconception(
            "distinct per text",
            partial(
                compare_with, count=lambda text, start: sum(len(row.unique()) for row in text[:, start:]) / len(text)
            ),
            "You count within each text and average. Count over all rows together: two texts that say different "
            "things are diversity, too.",
        ),
        Misconception(
            "number of tokens",
            partial(compare_with, count=lambda text, start: text[:, start:].numel()),
            "That is the number of new tokens, repeated ones included. Count the different ones.",
        ),
        Misconception(
            "results swapped",
            lambda *given: compare_temperatures(*given)[::-1],
            "You return (likelihood, distinct). The order is (distinct, likelihood).",
        ),
    ],
)

# --- sampling.nucleus_size --------------------------------------------------------------------------------------------

NUCLEUS_SIZE = Exercise(
    id="sampling.nucleus_size",
    chapter=13,
    title="How many tokens does p = 0.9 keep?",
    kind="number",
    points=1,
    difficulty=2,
    minutes=5,
    why="The course notes say that a confident model keeps two or three tokens. Their own logits say something else.",
    reference={"confident": 1, "uncertain": 7},
    hints=[
        "Probabilities first: the softmax of each list. Then add them up from the largest down.",
        "Before you add anything up, look at the largest probability of each list alone.",
        "Stop as soon as the sum has reached 0.9. The token that takes it there belongs to the set.",
    ],
    misconceptions=[
        Misconception(
            "the notes' figure",
            {"confident": 2},
            "The course notes say two or three. Look at the probability of the first token alone: has the sum not "
            "reached 0.9 already?",
            also=[{"confident": 3}],
        ),
        Misconception(
            "crossing token dropped",
            {"confident": 0, "uncertain": 6},
            "You left out the token that crosses 0.9. It belongs to the set; otherwise a very sure model would have "
            "no token to draw.",
        ),
        Misconception(
            "crossing token dropped, but never empty",
            {"uncertain": 6},
            "Six of the uncertain tokens sum to less than 0.9. The one that crosses it belongs to the set.",
        ),
        Misconception(
            "share of the tokens",
            {"confident": 7, "uncertain": 7},
            "You took 90 % of the eight tokens. p is a share of the probability, not of the tokens.",
            also=[{"confident": 8, "uncertain": 8}],
        ),
        Misconception(
            "all of them",
            {"uncertain": 8},
            "Seven of the uncertain tokens reach 0.9 already: the eighth is not needed.",
        ),
        Misconception(
            "exchanged",
            {"confident": 7, "uncertain": 1},
            "You exchanged the two: the surer the model, the fewer tokens it takes to reach 0.9.",
        ),
    ],
)

# --- sampling.which_are_true ------------------------------------------------------------------------------------------

WHICH_ARE_TRUE = Exercise(
    id="sampling.which_are_true",
    chapter=13,
    title="What the knobs do",
    kind="choice",
    points=2,
    difficulty=3,
    minutes=5,
    why="Much of what is said about temperature is nearly right. Which of these sentences are right?",
    hints=[
        "Several are true. Test each against the seven words: which could you refute with one row of the table?",
        "Dividing all logits by the same positive number: what happens to their order?",
        "For the sentence on greedy decoding, invent a story of two words, where the likelier first word leads to "
        "many even continuations.",
    ],
    options=[
        Option(
            "a",
            "At T = 2 the seven words are drawn nearly evenly",
            False,
            "The favourite still comes more than four times as often as the last word. Entropy is near its maximum "
            "long before the probabilities are near each other.",
        ),
        Option(
            "b",
            "No temperature above 0 changes which token is the most probable",
            True,
            "Dividing all logits by the same positive number leaves their order as it is.",
        ),
        Option(
            "c",
            "Top-k with k = 1 gives the same token as temperature 0",
            True,
            "If one token is left, the draw has no choice (ties apart), whatever the temperature.",
        ),
        Option(
            "d",
            "Greedy decoding finds the most probable text",
            False,
            "It takes the best next step. With first words at 0.6 and 0.4, of which the first goes on evenly in three "
            "ways and the second in only one, greedy ends at 0.2, and the other text has 0.4.",
        ),
        Option(
            "e",
            "Top-p with p = 0.9 removes a tenth of the tokens",
            False,
            "It keeps as many as it takes to reach 90 % of the probability: one of the notes' eight where the model "
            "is sure, seven where it is not.",
        ),
        Option(
            "f",
            "Same model, same settings, same seed: the same text",
            True,
            "A seeded generator makes the draw repeatable; nothing else in the loop is random.",
        ),
        Option(
            "g",
            "At temperature 0 a model says what is true",
            False,
            "It says what it holds most probable, every time the same. If that is wrong, it is wrong reliably.",
        ),
    ],
)

EXERCISES = [TEMPERATURE, TOP_K, TOP_P, NEXT_TOKEN, GENERATE, COMPARE, NUCLEUS_SIZE, WHICH_ARE_TRUE]
