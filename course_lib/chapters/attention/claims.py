"""Chapter 2's claims: what happens to scores in wide heads, what a dot product measures, and attention's cost."""

import math
import statistics
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from course_lib.attention import scaled_dot_product_attention
from course_lib.claims.letters import held_out_letters, train_on_letters
from course_lib.claims.rates import at_best_rate
from course_lib.claims.registry import Measurement, Size, Source, experiment
from course_lib.claims.tinytown import HELD_OUT_SEED
from course_lib.config import TransformerConfig
from course_lib.counting import attention_matrix_bytes
from course_lib.gpt import DecoderOnly, evaluating
from course_lib.masks import causal_mask
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Tinytown
from course_lib.trace import trace

SEEDS = (0, 1, 2)
RATES = (0.003, 0.01, 0.03)
D_KS = (4, 16, 64, 256, 1024)


def vaswani(place: str, quote: str) -> Source:
    """Return Vaswani et al. as the source of this quotation."""
    return Source("Vaswani et al. 2017", "Attention Is All You Need", "https://arxiv.org/abs/1706.03762", place, quote)


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """Return random tensors of these shapes with unit variance, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


# ---------------------------------------------------------------------------------------------------------- why √d_k
def variance_verdict(slopes: list[float], divided: list[float]) -> str:
    """Check a theorem on random numbers.

    by construction: variances of independent products add, so the standard deviation is √d_k, and 1 when divided
    """
    exact = all(abs(slope - 0.5) < 0.02 for slope in slopes) and all(abs(value - 1) < 0.1 for value in divided)
    return "by construction" if exact else "an error in the measurement"


@experiment(
    "attention.spread",
    claim="their dot product … has mean 0 and variance d_k",
    source=vaswani(
        "§ 3.2.1, footnote 4",
        "To illustrate why the dot products get large, assume that the components of q and k are independent random "
        "variables with mean 0 and variance 1. Then their dot product … has mean 0 and variance d_k.",
    ),
    control="the same scores divided by √d_k; d_k from 4 to 1024",
    verdict=variance_verdict,
    seeds=SEEDS,
)
def spread() -> Measurement:
    """Measure how the standard deviation of q · k grows with d_k, as a power of d_k, and its size after the
    division."""
    slopes, divided = [], []
    for seed in SEEDS:
        sizes = []
        for d_k in D_KS:
            q, k = drawn(seed, (4000, d_k), (4000, d_k))
            sizes.append((q * k).sum(dim=-1).std().item())
        logs = [[math.log(value) for value in values] for values in (D_KS, sizes)]
        slopes.append(statistics.linear_regression(*logs).slope)
        divided += [value / math.sqrt(d_k) for value, d_k in zip(sizes, D_KS)]
    return Measurement(
        measured=f"the standard deviation of q · k grows like d_k to the power {statistics.fmean(slopes):.1f}, and "
        f"divided by √d_k it is {statistics.fmean(divided):.1f} from d_k = {D_KS[0]} to {D_KS[-1]}",
        values=slopes,
        figures={"slopes": slopes, "divided": divided},
        because="A score is a sum of d_k products. Their variances add, and the standard deviation is the square root "
        "of the variance. Whether trained queries and keys are independent is another question.",
    )


def gradient_at_scores(d_k: int, scaled: bool, seed: int) -> torch.Tensor:
    """Return the norm of the output's gradient with respect to each query's scores, (500,)."""
    q, k, v = drawn(seed, (500, d_k), (64, d_k), (64, 1))  # random, variance 1
    scores = q @ k.T / (math.sqrt(d_k) if scaled else 1)  # (500, 64)
    scores.requires_grad_()
    output = scores.softmax(dim=-1) @ v  # (500, 1)
    (gradient,) = torch.autograd.grad(output.sum(), scores)  # (500, 64)
    return gradient.norm(dim=-1)


def vanishing_verdict(median: list[float], mean: list[float]) -> str:
    """Divide the gradient without scaling at d_k = 1024 by the gradient with it: the median query, and the mean.

    confirmed: both ratios are below 0.1 for every seed
    depends: only one of the ratios is below 0.1 for every seed, or a ratio is below 0.1 for only some seeds
    refuted: both are 0.1 or more for every seed
    """
    small = [ratio < 0.1 for ratio in (*median, *mean)]
    return "confirmed" if all(small) else "depends" if any(small) else "refuted"


@experiment(
    "attention.vanishing",
    claim="for large values of d_k, the dot products grow large in magnitude, pushing the softmax function into "
    "regions where it has extremely small gradients",
    source=vaswani(
        "§ 3.2.1",
        "We suspect that for large values of d_k, the dot products grow large in magnitude, pushing the softmax "
        "function into regions where it has extremely small gradients. To counteract this effect, we scale the dot "
        "products by 1/√d_k.",
    ),
    control="the same queries, keys and values with scaled scores; the gradient is taken with respect to the "
    "scores, so that it depends only on the softmax",
    verdict=vanishing_verdict,
    seeds=SEEDS,
)
def vanishing() -> Measurement:
    """Measure the gradient that the softmax passes on at d_k = 1024 and 64, relative to the same with scaling."""
    d_ks = 64, 1024
    found: list[dict[int, list[float]]] = [{d_k: [] for d_k in d_ks} for _ in range(3)]
    median, mean, fewer = found
    for seed in SEEDS:
        for d_k in d_ks:
            plain, scaled = (gradient_at_scores(d_k, scaling, seed) for scaling in (False, True))
            median[d_k].append((plain.median() / scaled.median()).item())
            mean[d_k].append((plain.mean() / scaled.mean()).item())
            fewer[d_k].append((plain < scaled / 10).double().mean().item())

    def share(values: list[float]) -> str:
        return "less than 0.001" if max(values) < 1e-3 else f"{statistics.fmean(values):.1f}"

    lost = {d_k: f"{round(statistics.fmean(fewer[d_k]), 1):.0%}" for d_k in d_ks}
    return Measurement(
        measured=f"at d_k = 1024, {lost[1024]} of the queries have less than a tenth of the gradient that scaling "
        f"gives them, but the mean gradient is {share(mean[1024])} of the scaled one",
        values=median[1024],
        figures={"median": median[1024], "mean": mean[1024]},
        rows=(
            ("gradient left without the division", *(f"d_k = {d_k}" for d_k in d_ks)),
            ("median of the queries", *(share(median[d_k]) for d_k in d_ks)),
            ("mean of the queries", *(share(mean[d_k]) for d_k in d_ks)),
            ("queries with less than a tenth left", *(lost[d_k] for d_k in d_ks)),
        ),
        because="It depends on the query and on d_k. Where one key gets nearly all the weight, a small change in the "
        "scores has almost no effect. Queries whose two best keys have similar scores keep a gradient.",
    )


# -------------------------------------------------------------------------------------------- what a score measures
def most_similar_first(model: DecoderOnly, ids: torch.Tensor) -> list[float]:
    """Return for each head the fraction of queries whose best key, by q · k, is also the nearest in direction."""
    layers = range(len(model.blocks))
    with evaluating(model), trace(model, "*.attention.query", "*.attention.key") as seen:
        model(ids)
    hidden = ~causal_mask(ids.shape[1])
    shares: list[float] = []
    for layer in layers:
        query, key = (seen[f"blocks.{layer}.attention.{name}"][0] for name in ("query", "key"))  # (H, T, D) each
        best, nearest = (
            (query @ keys.transpose(-2, -1)).masked_fill(hidden, -torch.inf).argmax(dim=-1)  # (H, T)
            for keys in (key, F.normalize(key, dim=-1))  # keys of the same length, so that only their directions count
        )
        shares += (best == nearest)[:, 8:].double().mean(dim=-1).tolist()  # the first queries have few keys
    return shares


def alignment_verdict(shares: list[float]) -> str:
    """Count the queries whose highest score belongs to the key that is nearest in direction, in the trained model.

    confirmed: over 95% of the queries, for every seed
    depends: fewer, but at least half of the queries for some seed
    refuted: less than half, for every seed
    """
    return "confirmed" if min(shares) > 0.95 else "refuted" if max(shares) < 0.5 else "depends"


@experiment(
    "attention.resemblance",
    claim="a higher dot product indicates a greater degree of alignment or similarity between the vectors",
    source=Source(
        "Raschka 2024",
        "Build a Large Language Model (From Scratch)",
        "https://www.manning.com/books/build-a-large-language-model-from-scratch",
        place="§ 3.3.1, “Understanding dot products”",
        quote="the dot product is a measure of similarity because it quantifies how closely two vectors are aligned: a "
        "higher dot product indicates a greater degree of alignment or similarity between the vectors.",
    ),
    control="the same queries with the same keys at equal lengths: the key nearest in direction then has the highest "
    "score",
    verdict=alignment_verdict,
    seeds=SEEDS,
)
def resemblance() -> Measurement:
    """Measure all heads of the shipped model, over 10 held-out stories for each seed."""
    model, tokenizer = load_pretrained("tinytown")
    same = []
    for seed in SEEDS:
        stories = Tinytown(HELD_OUT_SEED + seed).sample(10)
        heads = [most_similar_first(model, torch.tensor([tokenizer.encode(story)[:96]])) for story in stories]
        same.append([statistics.fmean(head) for head in zip(*heads)])  # (layers · H,)
    shares = [statistics.fmean(each) for each in same]
    least, most = (pick(statistics.fmean(head) for head in zip(*same)) for pick in (min, max))
    return Measurement(
        measured=f"for {statistics.fmean(shares):.0%} of the queries the key with the highest score is also the "
        f"nearest in direction; the heads range from {least:.0%} to {most:.0%}",
        values=shares,
        figures={"shares": shares},
        because="It depends on the lengths of the keys: a longer key can have a higher score than a better-aligned "
        "one. If similarity means the dot product itself, the sentence is a definition.",
    )


# -------------------------------------------------------------------------------------------- what it is, what it costs
def linear_verdict(rebuilt: list[float]) -> str:
    """Recompute the output of two layers with a single matrix product, given their attention weights.

    by construction: the two are equal up to rounding, because matrix products can be regrouped
    """
    return "by construction" if max(rebuilt) < 1e-6 else "an error in the measurement"


@experiment(
    "attention.linear",
    claim="this is just a linear combination of a linear transformation of the input, much like a single layer of "
    "self-attention",
    source=Source(
        "Hewitt 2023",
        "CS224N notes, Self-Attention & Transformers",
        "https://web.stanford.edu/class/cs224n/readings/cs224n-self-attention-transformers-2023_draft.pdf",
        place="section on elementwise nonlinearity",
        quote="In fact, if we stack two self-attention layers, we get something that looks a lot like a single "
        "self-attention layer: … So, this is just a linear combination of a linear transformation of the input, much "
        "like a single layer of self-attention!",
    ),
    control="the same two layers as a function of their input: the input doubled",
    verdict=linear_verdict,
    seeds=SEEDS,
)
def linear() -> Measurement:
    """Recompute two layers' output with the product of their weights, and compare A(2x) with 2 A(x) for these
    layers."""
    rebuilt, doubled = [], []
    for seed in SEEDS:
        x, *layers = drawn(seed, (12, 8), *[(8, 8)] * 6)
        layers = [W / math.sqrt(8) for W in layers]  # so that no softmax is saturated

        def stack(x: torch.Tensor, layers=layers) -> tuple[torch.Tensor, list[torch.Tensor]]:
            used = []
            for W_Q, W_K, W_V in (layers[:3], layers[3:]):
                x, weights = scaled_dot_product_attention(x @ W_Q, x @ W_K, x @ W_V)
                used.append(weights)
            return x, used

        once, (first, second) = stack(x)
        one_layer = (second @ first) @ x @ (layers[2] @ layers[5])
        rebuilt.append(((one_layer - once).norm() / once.norm()).item())
        doubled.append(((stack(2 * x)[0] - 2 * once).norm() / (2 * once).norm()).item())
    return Measurement(
        measured="with their weights fixed, two layers "
        f"{'equal one layer' if max(rebuilt) < 1e-6 else f'are {max(rebuilt):.0%} off one layer'}, but when their "
        f"input doubles, the output differs from twice the old one by {min(doubled):.0%} or more",
        values=doubled,
        figures={"rebuilt": rebuilt},
        because="With fixed weights both layers are products of matrices, which can be regrouped into one. But the "
        "input decides the weights as well, so no single matrix replaces attention for all inputs.",
    )


def memory_verdict(narrow: float, wide: float, half: float) -> str:
    """Count the bytes of the scores of n tokens with 64 and with 1024 features, and of half the tokens.

    by construction: the features change nothing, and half the tokens need a quarter
    """
    return "by construction" if narrow == wide == 4 * half else "an error in the count"


@experiment(
    "attention.score_memory",
    claim="the time and memory complexity of self-attention are quadratic in sequence length",
    source=Source(
        "Dao et al. 2022",
        "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
        "https://arxiv.org/abs/2205.14135",
        place="abstract",
        quote="Transformers are slow and memory-hungry on long sequences, since the time and memory complexity of "
        "self-attention are quadratic in sequence length.",
    ),
    control="scores of the same number of tokens with 64 and with 1024 features; and of half that number of tokens",
    verdict=memory_verdict,
)
def score_memory() -> Measurement:
    """Count the bytes of one head's scores for n = 2048, with 64 features and with 1024; for n / 2; and in theory."""
    n = 2048
    narrow, wide, half = (
        (torch.zeros(n, d) @ torch.zeros(n, d).T).nbytes for n, d in ((n, 64), (n, 1024), (n // 2, 64))
    )
    config = TransformerConfig(vocab_size=1, d_model=768, n_heads=1, n_layers=1, max_seq_len=n)
    return Measurement(
        measured=f"twice the tokens need {narrow / half:.0f} times the memory for the scores of a head; 16 times the "
        f"features need {'no more' if wide == narrow else f'{wide / narrow:.0f} times as much'}",
        values=list(map(float, [narrow, wide, half, attention_matrix_bytes(config, n)])),
        figures={"narrow": float(narrow), "wide": float(wide), "half": float(half)},
        rows=(
            ("scores of one head", "memory"),
            (f"{n // 2:,} tokens, 64 features", f"{half / 1e6:.1f} MB"),
            (f"{n:,} tokens, 64 features", f"{narrow / 1e6:.1f} MB"),
            (f"{n:,} tokens, 1,024 features", f"{wide / 1e6:.1f} MB"),
        ),
        because="q · k sums over the features. If the scores are stored, one number remains for each pair of tokens, "
        "in each head. The paper's own algorithm does not store them, so its memory is proportional to the "
        "number of tokens.",
    )


# ------------------------------------------------------------------------------------------- what training needs
def leave_out_scale(model: DecoderOnly) -> None:
    """Multiply every query by √d_k, which cancels the division of the scores."""
    for block in model.blocks:
        root = math.sqrt(block.attention.d_model // block.attention.n_heads)
        block.attention.q_proj.register_forward_hook(lambda module, inputs, query, root=root: query * root)


def largest_weight(model: DecoderOnly) -> float:
    """Return the mean over queries of the largest attention weight: near 1 if the softmax is saturated."""
    weights = torch.cat(model.attention_weights(held_out_letters()[0][:10]))  # (layers · B, H, T, T)
    return weights.amax(dim=-1).mean().item()


HARM = 0.1  # nats per letter: a larger increase of the loss counts as harm


def scale_verdict(wide: list[float], narrow: list[float]) -> str:
    """Measure how much higher the loss ends without the division, in nats per letter, each at its best rate.

    confirmed: by more than 0.1 for every seed with wide heads, and by less with narrow ones
    depends: by more than 0.1 for only some seeds, or with narrow heads as well
    refuted: by no more than 0.1 for any seed, with wide heads
    """
    harmed = [cost > HARM for cost in wide]
    if not any(harmed):
        return "refuted"
    return "confirmed" if all(harmed) and max(narrow) < HARM else "depends"


@experiment(
    "attention.unscaled_training",
    claim="Dot-product attention without scaling does well for small values of d_k and falls behind for larger ones.",
    source=vaswani(
        "§ 3.2.1",
        "While for small values of d_k the two mechanisms perform similarly, additive attention outperforms dot "
        "product attention without scaling for larger values of d_k.",
    ),
    control="the same model, letters, steps and seeds with the division, each at its own best rate; one head of 64 "
    "features, and 8 heads of 4",
    verdict=scale_verdict,
    seeds=SEEDS,
)
def unscaled_training(size: Size) -> Measurement:
    """Train on letters with the division and without it, to measure the cost for one wide head and for narrow ones."""

    def train(rate: float, seed: int, d_model: int, d_k: int, divided: bool) -> tuple[float, float]:
        model, loss = train_on_letters(
            seed,
            size.steps(150),
            d_model=d_model,
            n_heads=d_model // d_k,
            peak=rate,
            prepare=None if divided else leave_out_scale,
        )
        return loss, largest_weight(model)

    wide, narrow = size.width(64), size.width(32)
    best = {
        (d_model, divided): at_best_rate(partial(train, d_model=d_model, d_k=d_k, divided=divided), RATES, SEEDS)
        for d_model, d_k in ((wide, wide), (narrow, 4))
        for divided in (True, False)
    }
    costs = {
        d_model: [
            without - with_it for without, with_it in zip(best[d_model, False].losses, best[d_model, True].losses)
        ]
        for d_model in (wide, narrow)
    }
    mean = {d_model: round(statistics.fmean(values), 1) + 0 for d_model, values in costs.items()}
    full = statistics.fmean(largest for _, largest in best[wide, False].results)
    where = "nearly all the weight" if full > 0.95 else f"{full:.1f} of the weight"
    side = {d_model: "lower" if mean[d_model] < 0 else "higher" for d_model in (wide, narrow)}
    return Measurement(
        measured=f"without the division the final loss is {abs(mean[wide]):.1f} nats per letter {side[wide]} at d_k = "
        f"{wide}, and {abs(mean[narrow]):.1f} {side[narrow]} at d_k = 4; at d_k = {wide} {where} of a query ends on "
        "one key",
        values=costs[wide],
        figures={"wide": costs[wide], "narrow": costs[narrow]},
        rows=(
            ("extra loss without the division, nats per letter", *(f"seed {seed}" for seed in SEEDS)),
            *(
                (f"d_k = {d_k}", *(f"{round(cost, 2) + 0:.2f}".replace("-", "−") for cost in costs[d_model]))
                for d_model, d_k in ((wide, wide), (narrow, 4))
            ),
        ),
        because="It depends on the width of the heads and on the length of training. With four times as many steps, "
        "wide heads need the division for every seed.",
    )


def share_query_and_key(model: DecoderOnly) -> None:
    """Use the same matrix for queries and keys: W_K is W_Q."""
    for block in model.blocks:
        block.attention.k_proj = block.attention.q_proj


def look_elsewhere(model: DecoderOnly) -> None:
    """Hide every token from itself, except the first, which has no other token to attend to."""

    def hide(module, inputs, given):
        T = inputs[0].shape[1]
        mask = causal_mask(T) & ~torch.eye(T, dtype=torch.bool)
        mask[0, 0] = True
        return inputs, given | {"mask": mask, "is_causal": False}

    for block in model.blocks:
        block.attention.register_forward_pre_hook(hide, with_kwargs=True)


def share_as_published(model: DecoderOnly) -> None:
    """Use one matrix for both as Kitaev et al. 2020 do: all keys have length 1, and no token attends to itself."""

    def one_length(d_k: int) -> Callable:
        def normalize(module, inputs, keys):  # (B, T, H · d_k)
            heads = keys.unflatten(-1, (-1, d_k))
            return (math.sqrt(d_k) * F.normalize(heads, dim=-1)).flatten(-2)

        return normalize

    for block in model.blocks:
        attention = block.attention
        attention.add_module("k_proj", nn.Sequential(attention.q_proj))  # the same matrix; the hook is on the keys
        attention.k_proj.register_forward_hook(one_length(attention.d_model // attention.n_heads))
    look_elsewhere(model)


def one_matrix_verdict(plain: list[float], published: list[float]) -> str:
    """Measure what one matrix for queries and keys costs, in nats per letter, each at its best rate.

    confirmed: at most 0.1 for every seed, both with nothing else changed and as published
    depends: at most 0.1 for every seed in only one of the two forms
    not at this size: more than 0.1 for some seed in both forms; the paper is about larger models, trained for longer
    """
    same = [max(costs) <= HARM for costs in (plain, published)]
    return "confirmed" if all(same) else "depends" if any(same) else "not at this size"


@experiment(
    "attention.one_matrix",
    claim="sharing QK does not affect the performance of Transformer, even if we additionally normalize the length of "
    "the keys K",
    source=Source(
        "Kitaev et al. 2020",
        "Reformer: The Efficient Transformer",
        "https://arxiv.org/abs/2001.04451",
        place="§ 2",
        quote="It turns out that sharing QK does not affect the performance of Transformer, even if we additionally "
        "normalize the length of the keys K, as we show in the experimental Section 5.",
    ),
    control="the same model, letters, steps and seeds with two matrices, each at its own best rate; one matrix with "
    "nothing else changed, and as in the paper, with keys of equal length and no token looking at itself",
    verdict=one_matrix_verdict,
    seeds=SEEDS,
)
def one_matrix(size: Size) -> Measurement:
    """Train two blocks on letters, to measure the cost of W_K = W_Q: with nothing else changed, and as published."""

    def train(rate: float, seed: int, prepare) -> float:
        steps, d_model = size.steps(100), size.width(32)
        return train_on_letters(seed, steps, d_model=d_model, n_layers=2, peak=rate, prepare=prepare)[1]

    two, one, as_published = (
        at_best_rate(partial(train, prepare=prepare), RATES, SEEDS).losses
        for prepare in (None, share_query_and_key, share_as_published)
    )
    plain, published = ([loss - other for loss, other in zip(each, two)] for each in (one, as_published))
    return Measurement(
        measured=f"one matrix costs {statistics.fmean(plain):.2f} nats per letter with nothing else changed, and "
        f"{round(statistics.fmean(published), 2) + 0:.2f} if keys have equal length and no token attends to itself",
        values=plain,
        figures={"plain": plain, "published": published},
        because="It depends on the form. With nothing else changed, a token's own key tends to fit its query best. "
        "In the paper's form no token attends to itself. There, one matrix costs half as much, and nothing with four "
        "times as many steps.",
    )
