"""Chapter 2's claims: what scores do as heads grow wider, what a weight answers to, what attention is and costs."""

import math
import statistics

import torch

from course_lib.attention import scaled_dot_product_attention
from course_lib.claims.letters import train_on_letters
from course_lib.claims.registry import Finding, experiment
from course_lib.config import TransformerConfig
from course_lib.counting import attention_matrix_bytes
from course_lib.gpt import DecoderOnly

SEEDS = (0, 1, 2)
D_KS = (4, 16, 64, 256, 1024)


def drawn(seed: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """Unit-normal tensors of these shapes, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


# ---------------------------------------------------------------------------------------------------------- why √d_k
@experiment("attention.spread", claim="Scores grow with d_k, and dividing by √d_k undoes exactly that.")
def spread() -> Finding:
    """Slope of the spread of q · k over d_k, both as logarithms (½ is a square root), and the spread once divided."""
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
    """Size of the gradient of an attention output (one feature) at its query, for 500 queries over 64 keys: (500,)."""
    q, k, v = drawn(seed, (500, d_k), (64, d_k), (64, 1))
    q.requires_grad_()
    weights = (q @ k.T / (math.sqrt(d_k) if scaled else 1)).softmax(dim=-1)  # (500, 64)
    (gradient,) = torch.autograd.grad((weights @ v).sum(), q)
    return gradient.norm(dim=-1)


@experiment("attention.vanishing", claim="Without the scaling by √d_k the gradients vanish.")
def vanishing() -> Finding:
    """The middle of the gradients at d_k = 1024, and the 95th of 100, each relative to the same with scaling."""
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
    """The next larger of 1 %, 10 %, 100 %, in words that do not depend on the last digits."""
    return "a hundredth" if value < 0.01 else "a tenth" if value < 0.1 else "all"


# -------------------------------------------------------------------------------------------- what a weight answers to
@experiment("attention.soft_dictionary", claim="Attention is a soft dictionary look-up.")
def soft_dictionary() -> Finding:
    """Scores times 0 and times a million: how far from the plain average, and from the best key's value."""
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


NOTES_TOKENS = ("cat", "sat", "mat", "it", "tired")
NOTES_VECTORS = torch.tensor(  # the course notes': query, key and value at once
    [[1, 0.1, 0, 0.9], [0, 0.8, 0.2, 0.1], [0.1, 0.2, 0.9, 0], [0.9, 0.1, 0, 0.8], [0, 0.1, 0, 0.9]],
    dtype=torch.float64,
)


@experiment("attention.resemblance", claim="The word “it” gives “cat” the largest weight, as cat resembles it most.")
def resemblance() -> Finding:
    """The notes' five vectors; then the same directions, all of one length."""
    cat, it = NOTES_TOKENS.index("cat"), NOTES_TOKENS.index("it")
    directions = torch.nn.functional.normalize(NOTES_VECTORS, dim=-1)
    rows = [scaled_dot_product_attention(x, x, x)[1][it] for x in (NOTES_VECTORS, directions)]  # (5,) each
    first = [NOTES_TOKENS[int(row.argmax())] for row in rows]
    return Finding(
        measured=f"weights of “it”: cat {rows[0][cat]:.3f}, itself {rows[0][it]:.3f}; with all vectors of one length "
        f"“{first[1]}” comes first",
        values=(rows[0][cat].item(), rows[0][it].item()),
        verdict="refuted" if first == ["cat", "it"] else "confirmed",
        because="A dot product counts length as well as direction: nothing is more like “it” than itself, but “cat” is "
        "the longer vector.",
    )


# -------------------------------------------------------------------------------------------- what it is, what it costs
@experiment("attention.linear", claim="Attention is linear: nothing but weighted sums.")
def linear() -> Finding:
    """Relative difference of A(2x) and 2 A(x): as a function of x, and with the weights of x held fixed."""
    free, fixed = [], []
    for seed in SEEDS:
        x, W_Q, W_K, W_V = drawn(seed, (12, 8), (8, 8), (8, 8), (8, 8))

        def attend(x, W_Q=W_Q, W_K=W_K, W_V=W_V):
            return scaled_dot_product_attention(x @ W_Q, x @ W_K, x @ W_V)

        (once, weights), (twice, _) = attend(x), attend(2 * x)
        free.append(((twice - 2 * once).norm() / (2 * once).norm()).item())
        fixed.append(((weights @ (2 * x @ W_V) - 2 * once).norm() / (2 * once).norm()).item())
    return Finding(
        measured=f"x doubled: with the weights held the output doubles (error {max(fixed):.1f}); really it is off by "
        f"{100 * min(free):.0f} % or more",
        values=tuple(free),
        verdict="refuted" if min(free) > 0.05 else "confirmed",
        because="The output is linear in the values for given weights, but the input decides the weights, too.",
    )


@experiment("attention.score_memory", claim="The memory of the scores grows as n² · d_model.")
def score_memory() -> Finding:
    """Bytes of one head's scores for n = 2048, made from 64 features and from 1024; and the closed form."""
    n = 2048
    made = [(torch.zeros(n, d) @ torch.zeros(n, d).T).nbytes for d in (64, 1024)]
    config = TransformerConfig(vocab_size=1, d_model=768, n_heads=1, n_layers=1, max_seq_len=n)
    return Finding(
        measured=f"n = {n:,}: {made[0] / 1e6:.1f} MB per head from 64 features, {made[1] / 1e6:.1f} MB from 1024",
        values=tuple(map(float, [*made, attention_matrix_bytes(config, n)])),
        verdict="refuted" if made[0] == made[1] else "confirmed",
        because="Features are summed away in q · k. What remains is one number for each pair of tokens, in each head.",
    )


# ------------------------------------------------------------------------------------ what a model in training needs
def leave_out_scale(model: DecoderOnly) -> None:
    """Multiply every query by √d_k, which cancels the division of the scores."""
    for block in model.blocks:
        root = math.sqrt(block.attention.d_model // block.attention.n_heads)
        block.attention.q_proj.register_forward_hook(lambda module, inputs, query, root=root: query * root)


@experiment("attention.unscaled_training", claim="Without the division by √d_k a model trains badly.")
def unscaled_training() -> Finding:
    """128 features, letters, 150 steps: what leaving out the division costs one wide head, and 32 of 4 features."""

    def cost(n_heads: int, seeds: tuple[int, ...]) -> list[float]:
        losses = [
            [train_on_letters(seed, 150, d_model=128, n_heads=n_heads, prepare=each)[1] for seed in seeds]
            for each in (leave_out_scale, None)
        ]
        return [without - divided for without, divided in zip(*losses)]

    wide, narrow = cost(1, SEEDS), cost(32, SEEDS[:2])
    harmed = min(wide) > 0.1
    return Finding(
        measured=f"without it the loss ends {'over' if min(wide) > 0.25 else 'under'} 0.25 nats per letter higher at "
        f"d_k = 128, {'over' if max(narrow) > 0.1 else 'under'} 0.1 at d_k = 4",
        values=tuple(wide),
        verdict="depends" if harmed and max(narrow) < 0.1 else "confirmed" if harmed else "refuted",
        because="Wide heads start with scores that saturate the softmax; narrow ones do not, and learn as well.",
    )


def share_query_and_key(model: DecoderOnly) -> None:
    """One matrix for both: W_K is W_Q."""
    for block in model.blocks:
        block.attention.k_proj = block.attention.q_proj


@experiment("attention.one_matrix", claim="A token needs separate matrices W_Q and W_K.")
def one_matrix() -> Finding:
    """Two blocks on letters, 150 steps: what W_K = W_Q costs."""
    cost = []
    for seed in SEEDS:
        shared, separate = (
            train_on_letters(seed, 150, n_layers=2, prepare=each)[1] for each in (share_query_and_key, None)
        )
        cost.append(shared - separate)
    return Finding(
        measured=f"with W_K = W_Q the loss ends {statistics.fmean(cost):.1f} nats per letter higher",
        values=tuple(cost),
        verdict="confirmed" if min(cost) > 0.5 else "depends" if min(cost) > 0.03 else "refuted",
        because="One matrix makes two tokens score each other alike, apart from where they stand; that costs, and the "
        "model learns nonetheless.",
    )
