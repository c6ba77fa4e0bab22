"""Chapter 2's claims: what scores do as heads grow wider, what a weight answers to, what attention is and costs."""

import math
import statistics

import torch
import torch.nn.functional as F

from course_lib.attention import scaled_dot_product_attention
from course_lib.claims.letters import held_out_letters, train_on_letters
from course_lib.claims.registry import Finding, Source, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.counting import attention_matrix_bytes
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.masks import causal_mask
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown
from course_lib.trace import trace

SEEDS = (0, 1, 2)
D_KS = (4, 16, 64, 256, 1024)
VASWANI = Source("Vaswani et al. 2017", "Attention Is All You Need, § 3.2.1", "https://arxiv.org/abs/1706.03762")


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """Return unit-normal tensors of these shapes, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


# ---------------------------------------------------------------------------------------------------------- why √d_k
@experiment(
    "attention.spread",
    claim="If the parts of q and k are independent with mean 0 and variance 1, q · k has mean 0 and variance d_k.",
    source=VASWANI,
    control="the same scores divided by √d_k; d_k from 4 to 1024",
    threshold="confirmed if the spread grows like d_k to the power 0.5, within 0.02, and is 1, within 0.1, once "
    "divided; else depends",
    seeds=SEEDS,
)
def spread() -> Finding:
    """Measure the slope of the spread of q · k over d_k, both as logarithms, and the spread once divided."""
    slopes, divided = [], []
    for seed in SEEDS:
        spreads = []
        for d_k in D_KS:
            q, k = drawn(seed, (4000, d_k), (4000, d_k))
            spreads.append((q * k).sum(dim=-1).std().item())
        logs = [[math.log(value) for value in values] for values in (D_KS, spreads)]
        slopes.append(statistics.linear_regression(*logs).slope)
        divided += [value / math.sqrt(d_k) for value, d_k in zip(spreads, D_KS)]
    exact = all(abs(slope - 0.5) < 0.02 for slope in slopes) and all(abs(value - 1) < 0.1 for value in divided)
    return Finding(
        measured=f"d_k from 4 to 1024: the spread of q · k grows like d_k to the power {statistics.fmean(slopes):.1f}; "
        f"divided by √d_k it stays between {min(divided):.1f} and {max(divided):.1f}",
        values=tuple(slopes),
        verdict="confirmed" if exact else "depends",
        because="A score is a sum of d_k products: their variances add, and the size is the root of the variance.",
    )


def gradients_at_queries(d_k: int, scaled: bool, seed: int) -> torch.Tensor:
    """Return the size of the gradient of one output feature at its query, for 500 queries over 64 keys: (500,)."""
    q, k, v = drawn(seed, (500, d_k), (64, d_k), (64, 1))
    q.requires_grad_()
    weights = (q @ k.T / (math.sqrt(d_k) if scaled else 1)).softmax(dim=-1)  # (500, 64)
    (gradient,) = torch.autograd.grad((weights @ v).sum(), q)
    return gradient.norm(dim=-1)


@experiment(
    "attention.vanishing",
    claim="For large d_k, scores that are not scaled push the softmax to where its gradients are extremely small.",
    source=VASWANI,
    control="the same queries, keys and values with scaled scores",
    threshold="at d_k = 1024: confirmed if the middle query gets under a tenth of the gradient that it gets scaled; "
    "depends if, besides, the 95th of 100 gets over twice as much as scaled; else refuted",
    seeds=SEEDS,
)
def vanishing() -> Finding:
    """Measure the middle gradient at d_k = 1024, and the 95th of 100, each relative to the same with scaling."""
    middle, top = [], []
    for seed in SEEDS:
        plain, scaled = (gradients_at_queries(1024, scaling, seed) for scaling in (False, True))
        middle.append((plain.median() / scaled.median()).item())
        top.append((plain.quantile(0.95) / scaled.quantile(0.95)).item())
    vanished, large = max(middle) < 0.1, min(top) > 2
    return Finding(
        measured=f"d_k = 1024, not scaled: the middle query gets less than {_up(max(middle))} of its gradient, the "
        f"luckiest twentieth more than {10 * int(min(top) / 10)} times as much",
        values=tuple(middle),
        verdict="depends" if vanished and large else "confirmed" if vanished else "refuted",
        because="Where one key takes all, nothing moves; where two long keys tie, the gradient is larger than ever: "
        "learning becomes a lottery.",
    )


def _up(value: float) -> str:
    """Return the next larger of 1 %, 10 %, 100 %, in words that do not depend on the last digits."""
    return "a hundredth" if value < 0.01 else "a tenth" if value < 0.1 else "all"


# -------------------------------------------------------------------------------------------- what a weight answers to
@experiment(
    "attention.soft_dictionary",
    claim="Attention is a soft dictionary look-up.",
    source=Source(
        "Murphy 2022",
        "Probabilistic Machine Learning: An Introduction, chapter 15",
        "https://probml.github.io/pml-book/book1.html",
    ),
    control="the same queries, keys and values with all scores 0",
    threshold="confirmed if, within 0.001, scores times a million give the value of the best key, and scores times 0 "
    "the plain average; else refuted",
    seeds=SEEDS,
)
def soft_dictionary() -> Finding:
    """Multiply scores by 0 and by a million: how far from the plain average, and from the best key's value?"""
    distances, from_average = [], []
    for seed in SEEDS:
        q, k, v = drawn(seed, (50, 16), (8, 16), (8, 4))
        best = v[(q @ k.T).argmax(dim=-1)]  # (50, 4)
        found = [scaled_dot_product_attention(sharpness * q, k, v)[0] for sharpness in (0.0, 1e6)]
        average, sharp = found
        distances.append((sharp - best).abs().max().item())
        from_average.append((average - v.mean(dim=0)).abs().max().item())
    looked_up = max(distances + from_average) < 1e-3
    return Finding(
        measured=f"scores × 0: the plain average of all values; scores × a million: the best key's own value to "
        f"{'three digits' if looked_up else f'{max(distances):.1g}'}",
        values=tuple(distances),
        verdict="confirmed" if looked_up else "refuted",
        because="Large scores leave one key, as a dictionary does; small ones blend all values, and every step between "
        "can be differentiated.",
    )


def most_similar_first(model: DecoderOnly, ids: torch.Tensor) -> list[float]:
    """Return the share of the queries whose best key, by q · k, is also the nearest in direction, for each head."""
    layers = range(len(model.blocks))
    with evaluating(model), trace(model, "*.attention.query", "*.attention.key") as seen:
        model(ids)
    hidden = ~causal_mask(ids.shape[1])
    shares: list[float] = []
    for layer in layers:
        query, key = (seen[f"blocks.{layer}.attention.{name}"][0] for name in ("query", "key"))  # (H, T, D) each
        best, nearest = (
            (query @ keys.transpose(-2, -1)).masked_fill(hidden, -torch.inf).argmax(dim=-1)  # (H, T)
            for keys in (key, F.normalize(key, dim=-1))  # of one length, only their direction counts
        )
        shares += (best == nearest)[:, 8:].double().mean(dim=-1).tolist()  # with few keys to choose from it is easy
    return shares


@experiment(
    "attention.resemblance",
    claim="The dot product measures how closely query and key are aligned: the most similar key gets most weight.",
    source=Source(
        "Raschka 2024",
        "Build a Large Language Model (From Scratch), § 3.3.1",
        "https://www.manning.com/books/build-a-large-language-model-from-scratch",
    ),
    control="the same queries with the same keys, all of one length: there the nearest in direction comes first",
    threshold="the key with the most weight is the nearest in direction: confirmed if for over 95 % of the queries of "
    "the trained Tinytown model, in every seed; refuted if for under half; else depends",
    seeds=SEEDS,
)
def resemblance() -> Finding:
    """Measure all heads of the shipped model, over 10 held-out stories for each seed."""
    model, tokenizer = load_pretrained("tinytown")
    same = []
    for seed in SEEDS:
        stories = Tinytown(HELD_OUT_SEED + seed).sample(10)
        heads = [most_similar_first(model, torch.tensor([tokenizer.encode(story)[:96]])) for story in stories]
        same.append([statistics.fmean(head) for head in zip(*heads)])  # (layers · H,)
    shares = [statistics.fmean(each) for each in same]
    least, most = (pick(statistics.fmean(head) for head in zip(*same)) for pick in (min, max))
    return Finding(
        measured=f"for {100 * statistics.fmean(shares):.0f} % of the queries the key with the most weight is the "
        f"nearest in direction ({100 * least:.0f} to {100 * most:.0f} %, by head)",
        values=tuple(shares),
        verdict="confirmed" if min(shares) > 0.95 else "refuted" if max(shares) < 0.5 else "depends",
        because="A dot product counts length as well as direction: a longer key can win over a more similar one.",
    )


# -------------------------------------------------------------------------------------------- what it is, what it costs
@experiment(
    "attention.linear",
    claim="Stacked self-attention is a linear combination of a linear transformation of its input.",
    source=Source(
        "Hewitt 2023",
        "CS224N notes, Self-Attention & Transformers: elementwise nonlinearity",
        "https://web.stanford.edu/class/cs224n/readings/cs224n-self-attention-transformers-2023_draft.pdf",
    ),
    control="the same input doubled, with the attention weights held as they were, and with weights of its own",
    threshold="two layers, x doubled: confirmed if the output doubles to within 5 % with weights of its own, in every "
    "seed; depends if, to a millionth, only with the weights held; else refuted",
    seeds=SEEDS,
)
def linear() -> Finding:
    """Compare A(2x) with 2 A(x) for two layers: with the weights of x held, and as a function of x."""
    free: list[float] = []
    fixed: list[float] = []
    for seed in SEEDS:
        x, *layers = drawn(seed, (12, 8), *[(8, 8)] * 6)
        layers = [W / math.sqrt(8) for W in layers]  # so that no softmax is saturated

        def stack(x, held=(None, None), layers=layers):
            used = []
            for (W_Q, W_K, W_V), weights in zip((layers[:3], layers[3:]), held):
                if weights is None:
                    weights = scaled_dot_product_attention(x @ W_Q, x @ W_K, x)[1]
                x = weights @ x @ W_V
                used.append(weights)
            return x, used

        once, weights = stack(x)
        for errors, held in ((free, (None, None)), (fixed, weights)):
            twice, _ = stack(2 * x, held)
            errors.append(((twice - 2 * once).norm() / (2 * once).norm()).item())
    held = max(fixed) < 1e-6
    return Finding(
        measured=f"two layers, x doubled: with the weights held the output doubles "
        f"({'no error but rounding' if held else f'error {max(fixed):.1g}'}); with weights of its own it is off by "
        f"{100 * min(free):.0f} % or more",
        values=tuple(free),
        verdict="confirmed" if max(free) < 0.05 else "depends" if held and min(free) > 0.05 else "refuted",
        because="For given weights it is, however many layers are stacked. But the input decides the weights, too, so "
        "no matrix does for all inputs what attention does.",
    )


@experiment(
    "attention.score_memory",
    claim="Storing the scores takes memory that grows with n², whatever the number of features.",
    source=Source(
        "ApX Machine Learning",
        "Foundations of Transformers: self-attention complexity",
        "https://apxml.com/courses/foundations-transformers-architecture/chapter-6-advanced-architectural-variants-analysis/self-attention-complexity",
    ),
    control="scores of as many tokens from 64 features and from 1024; and of half as many tokens",
    threshold="confirmed if the features change nothing and half the tokens need a quarter; else refuted",
)
def score_memory() -> Finding:
    """Count the bytes of one head's scores for n = 2048, from 64 features and from 1024; for half of n; in theory."""
    n = 2048
    narrow, wide, half = (
        (torch.zeros(n, d) @ torch.zeros(n, d).T).nbytes for n, d in ((n, 64), (n, 1024), (n // 2, 64))
    )
    config = TransformerConfig(vocab_size=1, d_model=768, n_heads=1, n_layers=1, max_seq_len=n)
    return Finding(
        measured=f"n = {n:,}: {narrow / 1e6:.1f} MB per head from 64 features, {wide / 1e6:.1f} MB from 1024; "
        f"n = {n // 2:,}: {half / 1e6:.1f} MB",
        values=tuple(map(float, [narrow, wide, half, attention_matrix_bytes(config, n)])),
        verdict="confirmed" if narrow == wide == 4 * half else "refuted",
        because="Features are summed away in q · k. What remains is one number for each pair of tokens, in each head.",
    )


# ------------------------------------------------------------------------------------ what a model in training needs
def leave_out_scale(model: DecoderOnly) -> None:
    """Multiply every query by √d_k, which cancels the division of the scores."""
    for block in model.blocks:
        root = math.sqrt(block.attention.d_model // block.attention.n_heads)
        block.attention.q_proj.register_forward_hook(lambda module, inputs, query, root=root: query * root)


def largest_weight(model: DecoderOnly) -> float:
    """Return the mean over queries of the largest attention weight: near 1 where the softmax is saturated."""
    weights = torch.cat(model.attention_weights(held_out_letters()[0][:10]))  # (layers · B, H, T, T)
    return weights.amax(dim=-1).mean().item()


HARM = 0.1  # nats per letter: what counts as harm
RATES = (3e-3, 1e-2)


@experiment(
    "attention.unscaled_training",
    claim="Without the division by √d_k attention does about as well for small d_k, and worse for large d_k.",
    source=VASWANI,
    control=f"the same model, letters, steps and seeds with the division; at d_k = 128 each at the better of the rates "
    f"{RATES[0]} and {RATES[1]}; and 32 heads of d_k = 4 in place of one",
    threshold=f"confirmed if in every seed it costs over {HARM} nats per letter at d_k = 128, each at its better rate, "
    f"and under {HARM} at d_k = 4; depends if it costs more than that at the rate {RATES[1]} alone, or at d_k = 4 as "
    "well; else refuted",
    seeds=SEEDS,
)
def unscaled_training() -> Finding:
    """Train 128 features on letters, 100 steps: what does leaving out the division cost one head, and 32 of 4?"""
    saturated: dict[str, list[float]] = {"first": [], "last": []}

    def loss(seed: int, n_heads: int, divided: bool, peak: float) -> float:
        def prepare(model: DecoderOnly) -> None:
            if not divided:
                leave_out_scale(model)
                saturated["first"].append(largest_weight(model))

        model, found = train_on_letters(seed, 100, d_model=128, n_heads=n_heads, peak=peak, prepare=prepare)
        if not divided:
            saturated["last"].append(largest_weight(model))
        return found

    wide = {
        (divided, peak): [loss(seed, 1, divided, peak) for seed in SEEDS] for divided in (True, False) for peak in RATES
    }
    start, end = (statistics.fmean(each) for each in saturated.values())  # of the wide models
    narrow = [loss(seed, 32, False, RATES[1]) - loss(seed, 32, True, RATES[1]) for seed in SEEDS]
    same_rate = [without - with_it for without, with_it in zip(wide[False, RATES[1]], wide[True, RATES[1]])]
    better = {
        divided: [min(pair) for pair in zip(*(wide[divided, peak] for peak in RATES))] for divided in (True, False)
    }
    cost = [without - with_it for without, with_it in zip(better[False], better[True])]
    harmed, spared = min(cost) > HARM, max(narrow) < HARM
    return Finding(
        measured=f"d_k = 128: without it the loss ends {statistics.fmean(same_rate):.1f} nats per letter higher at the "
        f"rate {RATES[1]}, {statistics.fmean(cost):.1f} with each at its better rate; d_k = 4: "
        f"{round(statistics.fmean(narrow), 1) + 0:.1f}. At d_k = 128 a query's largest weight is {start:.1f} before "
        f"training, {end:.1f} after",
        values=tuple(cost),
        verdict="confirmed" if harmed and spared else "depends" if min(same_rate) > HARM else "refuted",
        because="No softmax is saturated at the start, because weights start small. But wide scores move √d_k times as "
        "far in every step: they saturate the softmax on the way, and smaller steps take most of the harm away.",
    )


def share_query_and_key(model: DecoderOnly) -> None:
    """Use one matrix for both: W_K is W_Q."""
    for block in model.blocks:
        block.attention.k_proj = block.attention.q_proj


def look_elsewhere(model: DecoderOnly) -> None:
    """Hide every token from itself, but for the first, which has no other."""

    def hide(module, inputs, given):
        T = inputs[0].shape[1]
        mask = causal_mask(T) & ~torch.eye(T, dtype=torch.bool)
        mask[0, 0] = True
        return inputs, given | {"mask": mask, "is_causal": False}

    for block in model.blocks:
        block.attention.register_forward_pre_hook(hide, with_kwargs=True)


def share_and_look_elsewhere(model: DecoderOnly) -> None:
    """Use one matrix for both, as Kitaev et al. 2020 train it: no token looks at itself."""
    share_query_and_key(model)
    look_elsewhere(model)


def keep_keys_as_drawn(model: DecoderOnly) -> None:
    """Use two matrices, but train as many numbers as with one: W_K stays as it was drawn."""
    for block in model.blocks:
        block.attention.k_proj.requires_grad_(False)


SAME = 0.03  # nats per letter: losses that differ by less are the same


@experiment(
    "attention.one_matrix",
    claim="One matrix for queries and keys does not affect the performance.",
    source=Source("Kitaev et al. 2020", "Reformer: The Efficient Transformer, § 2", "https://arxiv.org/abs/2001.04451"),
    control="the same model with two matrices, and with two of which W_K stays as drawn, so that as many numbers are "
    "trained; one matrix also as in the paper, where no token looks at itself",
    threshold=f"confirmed if in every seed either form of it costs under {SAME} nats per letter, refuted if both cost "
    "more in every seed, else depends",
    seeds=SEEDS,
)
def one_matrix() -> Finding:
    """Train two blocks on letters, 150 steps: what does W_K = W_Q cost?"""

    def losses(prepare) -> list[float]:
        return [train_on_letters(seed, 150, n_layers=2, prepare=prepare)[1] for seed in SEEDS]

    separate = losses(None)
    shared, elsewhere, drawn_keys = (
        [loss - two for loss, two in zip(losses(prepare), separate)]
        for prepare in (share_query_and_key, share_and_look_elsewhere, keep_keys_as_drawn)
    )
    same = max(map(min, zip(shared, elsewhere))) < SAME
    return Finding(
        measured=f"with W_K = W_Q the loss ends {statistics.fmean(shared):.2f} nats per letter higher, "
        f"{statistics.fmean(elsewhere):.2f} if no token looks at itself; with W_K as drawn "
        f"{statistics.fmean(drawn_keys):.2f}",
        values=tuple(shared),
        verdict="confirmed" if same else "refuted" if min(shared + elsewhere) > SAME else "depends",
        because="One matrix makes every score the same in both directions, and every token the best answer to its own "
        "question. Here that costs, if less than keys that do not learn; the paper's models were larger, and trained "
        "long.",
    )
