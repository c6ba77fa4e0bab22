"""Chapter 7, normalization: six exercises.

Shapes: x (..., d_model), gamma, beta and weight (d_model,). Statistics are those of one token.
"""

import statistics
import time
from functools import partial

import torch
from torch import nn

from ..exercise import Case, Exercise, Given, Misconception, Option, generator
from ..given import pretend_clock, pretend_norm, started_and_called, timed_with
from ..judge import compare

# --- normalization.layer_norm -----------------------------------------------------------------------------------------


def layer_norm(x, gamma, beta, eps):
    centred = x - x.mean(-1, keepdim=True)  # (..., d_model)
    variance = centred.pow(2).mean(-1, keepdim=True)  # (..., 1)
    return centred / torch.sqrt(variance + eps) * gamma + beta


def of_a_token(x, dim=-1, keepdim=True, correction=0):
    """Mean and variance over one axis."""
    return x.mean(dim, keepdim=keepdim), x.var(dim, correction=correction, keepdim=keepdim)


def of_everything(x):
    return x.mean(), x.var(correction=0)


def of_all_tokens(x):
    axes = tuple(range(max(x.ndim - 1, 1)))
    return x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)


def of_all_but_the_batch(x):
    axes = tuple(range(min(1, x.ndim - 1), x.ndim))
    return x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)


def without_centring(x):
    return x.mean(-1, keepdim=True), x.pow(2).mean(-1, keepdim=True)


def by_cancellation(x):
    mean = x.mean(-1, keepdim=True)
    return mean, x.pow(2).mean(-1, keepdim=True) - mean.pow(2)


def by_absolute_deviation(x):
    mean = x.mean(-1, keepdim=True)
    return mean, (x - mean).abs().mean(-1, keepdim=True).pow(2)


def root(variance, eps):
    return torch.sqrt(variance + eps)


def eps_outside(variance, eps):
    return variance.sqrt() + eps


def rescaled(normalized, gamma, beta):
    return normalized * gamma + beta


def wrong_layer_norm(
    x, gamma, beta, eps, *, measure=of_a_token, centre=torch.sub, deviation=root, rescale=rescaled, use=lambda eps: eps
):
    """LayerNorm whose steps can be replaced one by one: most misconceptions below."""
    mean, variance = measure(x)
    return rescale(centre(x, mean) / deviation(variance, use(eps)), gamma, beta)


def always_float32(x, gamma, beta, eps):
    return layer_norm(x.float(), gamma.float(), beta.float(), eps)


def drawn_token(rng, *shape, dtype=torch.float32):
    """x, gamma, beta: no gain is 1, no shift is 0."""
    x = 2 * torch.randn(shape, generator=rng, dtype=dtype) + 1
    gamma = 0.5 + torch.rand(shape[-1], generator=rng, dtype=dtype)
    beta = torch.randn(shape[-1], generator=rng, dtype=dtype)
    return x, gamma, beta


def the_pencil_token(seed):
    "The token of the chapter, [10, 20, 30, 40]: mean 25, variance 125. First with γ = 1 and β = 0, then with others."
    x = torch.tensor([10.0, 20.0, 30.0, 40.0])
    gamma, beta = torch.tensor([1.0, 2.0, 0.5, 1.5]), torch.tensor([0.0, 1.0, -0.5, 0.0])
    return [Case(x, torch.ones(4), torch.zeros(4), 1e-6), Case(x, gamma, beta, 1e-6)]


def equal_features(seed):
    "A token whose features are all equal: nothing is left after centring, so the result is β. eps keeps 0 / 0 away."
    _, gamma, beta = drawn_token(generator(seed), 4)
    return [Case(torch.full((4,), 8.0), gamma, beta, 1e-5), Case(torch.zeros(2, 4), gamma, beta, 1e-5)]


def quiet_and_loud(seed):
    "eps in all sizes: a token of tiny numbers, where eps decides, an eps of 0.5, and a token in the tens of thousands."
    rng = generator(seed)
    x, gamma, beta = drawn_token(rng, 6)
    return [
        Case(x * 1e-3, gamma, beta, 1e-6),
        Case(x, gamma, beta, 0.5),
        Case(x * 2e4, gamma, beta, 1e-5),
        Case(torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.0]), 3.0),
    ]


def many_tokens(seed):
    "Any leading axes: each token is normalized by itself. Two of these tensors have equal sizes on every axis."
    rng = generator(seed)
    x, gamma, beta = drawn_token(rng, 5, 4, 3)
    return [
        Case(*drawn_token(rng, 3, 5), 1e-5),
        Case(*drawn_token(rng, 1, 4), 1e-5),
        Case(*drawn_token(rng, 4, 4), 1e-5),
        Case(*drawn_token(rng, 2, 3, 7), 1e-5),
        Case(*drawn_token(rng, 3, 3, 3), 1e-5),
        Case(*drawn_token(rng, 2, 2, 3, 6), 1e-5),
        Case(x.transpose(0, 1), gamma, beta, 1e-5),
    ]


def far_from_zero(seed):
    "Tokens whose features lie near 5,000 and differ by a few units: subtract first, then square."
    rng = generator(seed)
    _, gamma, beta = drawn_token(rng, 8)
    steps = torch.randint(-8, 9, (4, 8), generator=rng).float()
    return [Case(5001.0 + steps, gamma, beta, 1e-5)]


def double_norm(seed):
    "float64 in, float64 out."
    return [Case(*drawn_token(generator(seed), 2, 3, 5, dtype=torch.float64), 1e-5)]


def forgiving_far_from_zero(case, expected, got):
    """PyTorch's kernel computes x · a − mean · a, and near 5,000 loses what a float32 loses there."""
    return compare(expected, got, atol=1e-3 if 1e3 < case.args[0].abs().max() < 1e4 else None)


LAYER_NORM = Exercise(
    id="normalization.layer_norm",
    chapter=7,
    title="LayerNorm from its formula",
    kind="code",
    points=3,
    difficulty=2,
    minutes=15,
    signature="layer_norm(x, gamma, beta, eps)",
    why="It stands twice in every block. Hand-written ones are often off by a factor that nobody notices.",
    reference=layer_norm,
    stages=[the_pencil_token, equal_features, quiet_and_loud, many_tokens, far_from_zero, double_norm],
    judge=forgiving_far_from_zero,
    hints=[
        "Which axis of x belongs to one token? Its mean and its variance must keep that axis, with length 1, so that "
        "they line up with x again.",
        "The variance is the mean of the squared deviations. By how many numbers do you divide for a token of four? "
        "Compare with what `x.var()` does unless told otherwise.",
        "eps joins the variance before the root is taken.",
        "The last step is one multiplication and one addition per feature. Which comes first, and with which vector?",
    ],
    misconceptions=[
        Misconception(
            "sample variance",
            partial(wrong_layer_norm, measure=partial(of_a_token, correction=1)),
            "You divided by d_model − 1, as `var` and `std` do unless told otherwise. LayerNorm treats the features as "
            "the whole population: divide by d_model, or say correction=0.",
        ),
        Misconception(
            "std() + eps",
            partial(wrong_layer_norm, measure=partial(of_a_token, correction=1), deviation=eps_outside),
            "You divide by x.std() + eps, which is off twice: std divides by d_model − 1, and eps belongs inside the "
            "root, with the variance.",
        ),
        Misconception(
            "eps outside the root",
            partial(wrong_layer_norm, deviation=eps_outside),
            "You add eps after taking the root, as one of the course notes does. It belongs inside: for a token of "
            "nearly equal features the difference is a factor of hundreds.",
        ),
        Misconception(
            "no eps",
            partial(wrong_layer_norm, use=lambda eps: 0.0),
            "You leave eps out. A token whose features are all equal then gives 0 / 0, and one NaN spreads through "
            "the whole model.",
        ),
        Misconception(
            "eps of one's own",
            partial(wrong_layer_norm, use=lambda eps: 1e-5),
            "You use an eps of your own and ignore the one that is given. Models differ in it, and a model must be "
            "run with the eps that it was trained with.",
            also=[partial(wrong_layer_norm, use=lambda eps, own=own: own) for own in (1e-6, 1e-8, 1e-12)],
        ),
        Misconception(
            "eps squared",
            partial(wrong_layer_norm, use=lambda eps: eps**2),
            "You add eps² to the variance. It is eps itself that joins the variance.",
        ),
        Misconception(
            "no root",
            partial(wrong_layer_norm, deviation=torch.add),
            "You divide by the variance. Divide by its root, the standard deviation: only then has the result "
            "variance 1.",
        ),
        Misconception(
            "mean absolute deviation",
            partial(wrong_layer_norm, measure=by_absolute_deviation),
            "You divide by the mean distance from the mean. LayerNorm uses the standard deviation: square, average, "
            "take the root.",
        ),
        Misconception(
            "not centred",
            partial(wrong_layer_norm, centre=lambda x, mean: x),
            "You divide by the standard deviation, but the mean is still in there. Subtract it first.",
        ),
        Misconception(
            "RMSNorm",
            partial(wrong_layer_norm, measure=without_centring, centre=lambda x, mean: x),
            "This is RMSNorm: you divide by the root mean square and never subtract the mean.",
        ),
        Misconception(
            "divided by the root mean square",
            partial(wrong_layer_norm, measure=without_centring),
            "You centre the token, but divide by the root mean square of what it was before. Square the deviations "
            "from the mean, not x.",
        ),
        Misconception(
            "the mean of the squares minus the square of the mean",
            partial(wrong_layer_norm, measure=by_cancellation),
            "You take the variance as mean(x²) − mean(x)². On paper that is the same. In float32 two large numbers are "
            "subtracted, and for tokens far from 0 nothing but rounding is left. Subtract the mean first, then square.",
        ),
        Misconception(
            "no γ, no β",
            partial(wrong_layer_norm, rescale=lambda normalized, gamma, beta: normalized),
            "Your token has mean 0 and variance 1, and there you stop. γ and β come last, feature by feature.",
        ),
        Misconception(
            "no β",
            partial(wrong_layer_norm, rescale=lambda normalized, gamma, beta: normalized * gamma),
            "β is missing: after the multiplication by γ each feature is shifted by its own β.",
        ),
        Misconception(
            "no γ",
            partial(wrong_layer_norm, rescale=lambda normalized, gamma, beta: normalized + beta),
            "γ is missing: each feature is multiplied by its own γ before β is added.",
        ),
        Misconception(
            "β before γ",
            partial(wrong_layer_norm, rescale=lambda normalized, gamma, beta: (normalized + beta) * gamma),
            "You add β first and multiply afterwards, so that β is stretched by γ. Multiply, then add.",
        ),
        Misconception(
            "γ and β exchanged",
            partial(wrong_layer_norm, rescale=lambda normalized, gamma, beta: normalized * beta + gamma),
            "You multiply by β and add γ. γ (gamma) is the gain and multiplies; β (beta) is the shift.",
        ),
        Misconception(
            "over the positions",
            partial(wrong_layer_norm, measure=partial(of_a_token, dim=-2)),
            "You average over the tokens of a text, one feature at a time: later tokens then reach earlier ones. Each "
            "token is normalized over its own features, the last axis.",
            also=[partial(wrong_layer_norm, measure=partial(of_a_token, dim=1))],
        ),
        Misconception(
            "over the first axis",
            partial(wrong_layer_norm, measure=partial(of_a_token, dim=0)),
            "You average over the first axis, so that a text depends on its company in the batch. Each token is "
            "normalized over its own features, the last axis.",
        ),
        Misconception(
            "BatchNorm",
            partial(wrong_layer_norm, measure=of_all_tokens),
            "This is BatchNorm: each feature is normalized over all tokens of all texts. LayerNorm stays within one "
            "token.",
        ),
        Misconception(
            "over the whole tensor",
            partial(wrong_layer_norm, measure=of_everything),
            "You take one mean and one variance of the whole tensor. Every token has its own: name the axis.",
        ),
        Misconception(
            "over each text",
            partial(wrong_layer_norm, measure=of_all_but_the_batch),
            "You take one mean and one variance per text, over its positions and features. Every token has its own: "
            "the last axis alone.",
        ),
        Misconception(
            "no keepdim",
            partial(wrong_layer_norm, measure=partial(of_a_token, keepdim=False)),
            "Mean and variance lose their axis, so that broadcasting lines them up with the wrong one: an error for "
            "most shapes, and for a square one token 0's mean is silently subtracted from feature 0. Keep the axis.",
        ),
        Misconception(
            "always float32",
            always_float32,
            "You return float32 whatever comes in, and a float64 input loses half its digits. Leave the dtype "
            "of x as it is.",
        ),
    ],
)

# --- normalization.rms_norm -------------------------------------------------------------------------------------------


class RMSNorm(nn.Module):
    def __init__(self, d_model, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))

    def forward(self, x):
        mean_square = x.pow(2).mean(-1, keepdim=True)  # (..., 1)
        return x / torch.sqrt(mean_square + self.eps) * self.weight


def wrong_rms_norm(
    *,
    default=1e-6,
    use=lambda eps: eps,
    start=torch.ones,
    keep=nn.Parameter,
    measure=lambda x: x.pow(2).mean(-1, keepdim=True),
    centre=lambda x: x,
    divisor=root,
    rescale=torch.mul,
):
    """A class like RMSNorm whose steps are replaced."""

    class Wrong(nn.Module):
        def __init__(self, d_model, eps=default):
            super().__init__()
            self.eps = use(eps)
            made = keep(start(d_model))
            if isinstance(made, nn.Parameter):
                self.weight = made
            else:
                self.register_buffer("weight", made)

        def forward(self, x):
            x = centre(x)
            return rescale(x / divisor(measure(x), self.eps), self.weight)

    return Wrong


def rows(rng, *shape, dtype=torch.float32):
    return 2 * torch.randn(shape, generator=rng, dtype=dtype) + 1


def one_token(seed):
    "One token: the mean square of [1, 7] is 25, that of [2, 4, 4, 8], too: divided by 5, multiplied by the weight."
    return [Case(torch.tensor([1.0, 7.0]), init=(2,)), Case(torch.tensor([2.0, 4.0, 4.0, 8.0]), init=(4,))]


def zero_token(seed):
    "A token of zeros stays zero: eps keeps 0 / 0 away."
    return [Case(torch.zeros(3), init=(3,)), Case(torch.zeros(2, 3), init=(3, 1e-5))]


def sizes_of_eps(seed):
    "eps in all sizes: left to its default of 1e-6 for a token of tiny numbers, given as 1e-3, given as 2."
    x = rows(generator(seed), 6)
    return [Case(x * 1e-3, init=(6,)), Case(x * 0.1, init=(6, 1e-3)), Case(x, init=(6, 2.0)), Case(x * 2e4, init=(6,))]


def more_rows(seed):
    "Any leading axes: each token is divided by its own root mean square. Two of these have equal sizes on every axis."
    rng = generator(seed)
    shapes = [(3, 5), (1, 4), (4, 4), (2, 3, 7), (3, 3, 3), (2, 2, 3, 6)]
    return [
        *(Case(rows(rng, *shape), init=(shape[-1],)) for shape in shapes),
        Case(rows(rng, 5, 4, 3).transpose(0, 1), init=(3,)),
    ]


def double_rows(seed):
    "float64 in, float64 out."
    return [Case(rows(generator(seed), 2, 3, 5, dtype=torch.float64), init=(5,))]


RMS_NORM = Exercise(
    id="normalization.rms_norm",
    chapter=7,
    title="RMSNorm as a module",
    kind="code",
    points=3,
    difficulty=3,
    minutes=15,
    signature="RMSNorm(d_model, eps=1e-6)",
    why="The norm of LLaMA and most open models since: half the parameters of LayerNorm, and no mean.",
    reference=RMSNorm,
    module=True,
    probe=started_and_called,
    returns=["output", "the parameters of a new module", "gradient of the weight"],
    stages=[one_token, zero_token, sizes_of_eps, more_rows, double_rows],
    hints=[
        "What must a module keep between calls, and which of it is trained? A tensor becomes trainable when it is "
        "wrapped in `nn.Parameter`.",
        "Root, mean, square: read the name from right to left, over the features of one token.",
        "An untrained norm should do the bare arithmetic. Which starting value of the weight changes nothing?",
        "eps joins the mean of the squares before the root is taken, and `self.eps` remembers it from `__init__`.",
    ],
    misconceptions=[
        Misconception(
            "centred",
            wrong_rms_norm(centre=lambda x: x - x.mean(-1, keepdim=True)),
            "You subtract the mean, and so you have LayerNorm without a shift. RMSNorm leaves the mean where it is: it "
            "forgets the scale of a token, not its offset.",
        ),
        Misconception(
            "variance instead of mean square",
            wrong_rms_norm(measure=lambda x: x.var(-1, correction=0, keepdim=True)),
            "You divide by the standard deviation, which measures distances from the mean. RMSNorm squares x itself.",
            also=[wrong_rms_norm(measure=lambda x: x.var(-1, keepdim=True))],
        ),
        Misconception(
            "sum of the squares",
            wrong_rms_norm(measure=lambda x: x.pow(2).sum(-1, keepdim=True)),
            "You divide by the length of the vector, the root of the *sum* of its squares, so that wide tokens come "
            "out small. Take the mean of the squares.",
            also=[
                wrong_rms_norm(
                    measure=lambda x: x.norm(dim=-1, keepdim=True), divisor=lambda norm, eps: norm.clamp(min=1e-12)
                )
            ],
        ),
        Misconception(
            "no root",
            wrong_rms_norm(divisor=torch.add),
            "You divide by the mean square. Its root is missing: with it, the result has root mean square 1.",
        ),
        Misconception(
            "mean of the absolute values",
            wrong_rms_norm(measure=lambda x: x.abs().mean(-1, keepdim=True).pow(2)),
            "You divide by the mean of |x|. Square, average, take the root: large features count more that way.",
        ),
        Misconception(
            "eps outside the root",
            wrong_rms_norm(divisor=eps_outside),
            "You add eps after taking the root. It belongs inside, with the mean of the squares: with tiny numbers the "
            "difference is large.",
        ),
        Misconception(
            "no eps",
            wrong_rms_norm(use=lambda eps: 0.0),
            "You leave eps out, and a token of zeros gives 0 / 0, which is NaN.",
        ),
        Misconception(
            "eps of one's own",
            wrong_rms_norm(use=lambda eps: 1e-6),
            "You use an eps of your own, whatever is given. Keep the one that `__init__` gets, in `self.eps`.",
            also=[wrong_rms_norm(use=lambda eps: 1e-5)],
        ),
        Misconception(
            "another default",
            wrong_rms_norm(default=1e-5),
            "Right when eps is given. When it is not, the signature says 1e-6, and yours is another.",
            also=[wrong_rms_norm(default=1e-8), wrong_rms_norm(default=1e-12)],
        ),
        Misconception(
            "weight not used",
            wrong_rms_norm(rescale=lambda normalized, weight: normalized + 0 * weight),
            "Your weight is there, and `forward` does not use it. Each feature is multiplied by its own weight.",
        ),
        Misconception(
            "weight added",
            wrong_rms_norm(rescale=torch.add),
            "You add the weight. It is a gain: each feature is multiplied by its own.",
        ),
        Misconception(
            "one plus the weight",
            wrong_rms_norm(start=torch.zeros, rescale=lambda normalized, weight: normalized * (1 + weight)),
            "You multiply by 1 + weight, with a weight that starts at 0. Gemma does that, and it trains as well. But "
            "the weights of LLaMA are gains that start at 1: loaded into yours, they would count one too many.",
            also=[wrong_rms_norm(rescale=lambda normalized, weight: normalized * (1 + weight))],
        ),
        Misconception(
            "weight starts at 0",
            wrong_rms_norm(start=torch.zeros),
            "Your weight starts at 0, so a new module returns nothing but zeros, and all before it gets no gradient. "
            "Start with ones.",
        ),
        Misconception(
            "weight drawn at random",
            wrong_rms_norm(start=torch.randn),
            "Your weight starts at random numbers, so a new module already turns some features up and others round. "
            "Start with ones.",
            also=[wrong_rms_norm(start=torch.rand)],
        ),
        Misconception(
            "weight is not trained",
            wrong_rms_norm(keep=lambda tensor: tensor),
            "Your weight is a buffer: it is saved with the model, and no optimizer will ever change it. Wrap it in "
            "nn.Parameter.",
        ),
        Misconception(
            "gradient cut",
            wrong_rms_norm(rescale=lambda normalized, weight: normalized * weight.detach()),
            "Your result is right, but no gradient reaches the weight: `.data`, `.detach()` or `no_grad` cuts it off, "
            "and the weight stays at 1 for ever.",
        ),
        Misconception(
            "over the whole tensor",
            wrong_rms_norm(measure=lambda x: x.pow(2).mean()),
            "You divide all tokens by one number. Every token has its own root mean square: name the axis.",
        ),
        Misconception(
            "over the positions",
            wrong_rms_norm(measure=lambda x: x.pow(2).mean(-2, keepdim=True)),
            "You average over the tokens of a text, one feature at a time. Average over the features of one token, the "
            "last axis.",
            also=[wrong_rms_norm(measure=lambda x: x.pow(2).mean(1, keepdim=True))],
        ),
        Misconception(
            "over the first axis",
            wrong_rms_norm(measure=lambda x: x.pow(2).mean(0, keepdim=True)),
            "You average over the first axis, so that a text depends on its company. Average over the last axis.",
        ),
        Misconception(
            "no keepdim",
            wrong_rms_norm(measure=lambda x: x.pow(2).mean(-1)),
            "The mean loses its axis, so that broadcasting lines it up with the wrong one: an error for most shapes, "
            "and silently wrong for a square one. Keep the axis.",
        ),
        Misconception(
            "always float32",
            wrong_rms_norm(rescale=lambda normalized, weight: (normalized * weight).float()),
            "You return float32 whatever comes in. Computing in float32 is good practice for half precision; then "
            "bring the result back to the dtype of x.",
            also=[
                wrong_rms_norm(
                    centre=lambda x: x.float(), rescale=lambda normalized, weight: normalized * weight.float()
                )
            ],
        ),
    ],
)

# --- normalization.batch_vs_layer -------------------------------------------------------------------------------------

BATCH_VS_LAYER = Exercise(
    id="normalization.batch_vs_layer",
    chapter=7,
    title="Which numbers share a mean?",
    kind="choice",
    points=2,
    difficulty=2,
    minutes=8,
    why="The formula is the same. Over which axes it runs decides whether a model may see its own future.",
    hints=[
        "Several are true. Draw a box with the axes B, T and d_model, and colour the numbers that share one mean.",
        "For each norm: how many means does it compute for the whole tensor? That number names the axes that are left.",
        "For the sentences about other tokens ask: would the coloured numbers contain them?",
    ],
    options=[
        Option(
            "a",
            "LayerNorm computes one mean per token: B · T of them, each over d_model numbers",
            True,
            "Only the last axis is averaged away. No other token has a say.",
        ),
        Option(
            "b",
            "LayerNorm computes one mean per text: B of them, each over T · d_model numbers",
            False,
            "nn.LayerNorm((T, d_model)) would do that. A Transformer names d_model alone: with the positions in the "
            "mean, later tokens would reach earlier ones.",
        ),
        Option(
            "c",
            "BatchNorm, while training, computes one mean per feature: d_model of them, each over B · T numbers",
            True,
            "Each feature is averaged over all positions of all texts, as in image networks over all pixels of all "
            "images.",
        ),
        Option(
            "d",
            "BatchNorm, while training, computes T · d_model means, each over the B texts",
            False,
            "That would be one mean per position and feature. BatchNorm takes the positions together with the batch, "
            "as PyTorch's BatchNorm1d does for (B, d_model, T).",
        ),
        Option(
            "e",
            "RMSNorm takes its root mean square over the same numbers as LayerNorm its mean",
            True,
            "One token's features. What it does with them differs: it squares them without centring.",
        ),
        Option(
            "f",
            "With a single text in the batch, BatchNorm and LayerNorm give the same",
            False,
            "BatchNorm then still averages over the T positions of each feature, LayerNorm over the features of each "
            "position.",
        ),
        Option(
            "g",
            "With BatchNorm in training, a token's result depends on tokens that come after it",
            True,
            "All positions are in the mean. A causal mask in the attention does not help: the leak is in the norm.",
        ),
        Option(
            "h",
            "Padding tokens change what LayerNorm makes of the real ones",
            False,
            "Each token is alone with its features. In BatchNorm the padding would count.",
        ),
        Option(
            "i",
            "LayerNorm behaves differently in training and in use",
            False,
            "That is BatchNorm: in use it takes remembered means. LayerNorm remembers nothing.",
        ),
    ],
)

# --- normalization.worked_example -------------------------------------------------------------------------------------

PENCIL = {"y1": -1.341641, "y2": 0.105573, "y3": -0.276393, "y4": 2.012461, "std_before": 12.909944}
PENCIL["std_after"] = 1.154701


def pencil(*y, **more):
    """The wrong parts of an answer, by name."""
    return dict(zip(("y1", "y2", "y3", "y4"), y)) | more


WORKED_EXAMPLE = Exercise(
    id="normalization.worked_example",
    chapter=7,
    title="LayerNorm with a pencil, and the printed std",
    kind="number",
    points=2,
    difficulty=2,
    minutes=12,
    why="Two of the figures that the course notes list under this example cannot come out of their code.",
    reference=PENCIL,
    rtol=0.005,
    hints=[
        "The mean is 25. How far is each feature from it, and what is the mean of the squares of these distances?",
        "Divide the four distances by the root of that variance. Then γ multiplies and β shifts, feature by feature.",
        "`Tensor.std` takes the numbers for a sample. By what does it divide the sum of the squares, for four numbers?",
        "The normalized token has population deviation 1. Its sample deviation is larger, by the root of a simple "
        "fraction made of 4 and 3.",
    ],
    misconceptions=[
        Misconception(
            "sample deviation throughout",
            pencil(-1.161895, 0.225403, -0.306351, 1.742843, std_after=1.0),
            "You divided the token by its sample deviation, 12.9. LayerNorm divides by the population's, the root of "
            "125; only the two printed figures are those of a sample.",
            also=[pencil(-1.161895, 0.225403, -0.306351, 1.742843)],
            rtol=0.004,
        ),
        Misconception(
            "the figures of the notes",
            {"std_before": 11.18034, "std_after": 1.0},
            "The example itself is right. The two deviations are those of the course notes, of the whole population, "
            "and `std()` prints others: it divides by n − 1 unless told otherwise.",
            also=[{"std_before": 11.2, "std_after": 1.0}],
            rtol=0.004,
        ),
        Misconception(
            "population deviation before",
            {"std_before": 11.18034},
            "That is the root of the variance, 125, and what LayerNorm divides by. `x.std()` divides by 3, not by 4.",
            also=[{"std_before": 11.2}],
            rtol=0.004,
        ),
        Misconception(
            "population deviation after",
            {"std_after": 1.0},
            "Measured over the whole population it is 1. `std()` prints more than that: it divides by 3, not by 4.",
            rtol=0.004,
        ),
        Misconception(
            "no γ, no β",
            pencil(-1.341641, -0.447214, 0.447214, 1.341641),
            "This is the normalized token. Now multiply each feature by its γ and add its β.",
            rtol=0.004,
        ),
        Misconception(
            "no β",
            pencil(-1.341641, -0.894427, 0.223607, 2.012461),
            "γ is in, β is not: add it, feature by feature.",
            rtol=0.004,
        ),
        Misconception(
            "no γ",
            pencil(-1.341641, 0.552786, -0.052786, 1.341641),
            "β is in, γ is not: multiply each feature by its γ before you add.",
            rtol=0.004,
        ),
        Misconception(
            "β before γ",
            pencil(-1.341641, 1.105573, -0.026393, 2.012461),
            "You added β first, and γ then stretched it. Multiply, then add.",
            rtol=0.004,
        ),
        Misconception(
            "not centred",
            pencil(0.894427, 4.577709, 0.841641, 5.366563),
            "You divided by the deviation without subtracting the mean. The first two features lie below 25, so their "
            "normalized values are negative.",
            rtol=0.004,
        ),
        Misconception(
            "RMSNorm",
            pencil(0.365148, 2.460593, 0.047723, 2.19089),
            "You divided by the root mean square, 27.4: that is RMSNorm. LayerNorm subtracts the mean first.",
            rtol=0.004,
        ),
        Misconception(
            "divided by the variance",
            pencil(-0.12, 0.92, -0.48, 0.18),
            "You divided by the variance, 125. Divide by its root.",
            rtol=0.004,
        ),
        Misconception(
            "deviation of the output",
            {"std_after": 1.382636},
            "That is std() of the output y. The question is std() of the normalized token, before γ and β.",
            also=[{"std_after": 1.197397}],
            rtol=0.004,
        ),
        Misconception(
            "variance instead of deviation",
            {"std_before": 166.666667},
            "That is `x.var()`. The deviation is its root.",
            also=[{"std_before": 125.0}, {"std_before": 166.666667, "std_after": 1.333333}],
            rtol=0.004,
        ),
    ],
)

# --- normalization.speed ----------------------------------------------------------------------------------------------


def compare_speed(rms_norm, layer_norm, widths, rounds, clock):
    ratios = []
    for width in widths:
        x = torch.randn(128, width)
        rms, layer = [], []
        for _ in range(rounds):
            for norm, times in ((rms_norm, rms), (layer_norm, layer)):
                start = clock()
                norm(x)
                times.append(clock() - start)
        ratios.append(min(rms) / min(layer))
    return ratios


def in_turns(rms_norm, layer_norm, x, rounds, clock):
    """The times of both, as the reference takes them."""
    pairs = [(stopped(rms_norm, x, clock), stopped(layer_norm, x, clock)) for _ in range(rounds)]
    return tuple(zip(*pairs))


def one_after_the_other(rms_norm, layer_norm, x, rounds, clock):
    return tuple([stopped(norm, x, clock) for _ in range(rounds)] for norm in (rms_norm, layer_norm))


def stopped(norm, x, clock):
    start = clock()
    norm(x)
    return clock() - start


def compare_speed_with(
    rms_norm,
    layer_norm,
    widths,
    rounds,
    clock,
    *,
    take=in_turns,
    sum_up=min,
    relate=lambda rms, layer: rms / layer,
    hand_in=lambda ratios: ratios,
):
    ratios = []
    for width in widths:
        rms, layer = take(rms_norm, layer_norm, torch.randn(128, width), rounds, clock)
        ratios.append(relate(sum_up(rms), sum_up(layer)))
    return hand_in(ratios)


def without_the_clock(rms_norm, layer_norm, widths, rounds, clock):
    return compare_speed(rms_norm, layer_norm, widths, rounds, time.perf_counter)


def one_long_reading(rms_norm, layer_norm, widths, rounds, clock):
    def total(norm, x):
        start = clock()
        for _ in range(rounds):
            norm(x)
        return clock() - start

    return [total(rms_norm, x) / total(layer_norm, x) for x in (torch.randn(128, width) for width in widths)]


def pretended(seed):
    "A clock and two norms whose costs are drawn, three widths, 30 rounds. Some calls are slow, and the machine tires."
    rng = generator(seed)
    one, other = torch.rand(2, 2, generator=rng)
    costs = [(3 + 5 * one[0], 0.004 + 0.004 * one[1]), (1 + 1.5 * other[0], 0.009 + 0.006 * other[1])]
    makers = [
        Given(pretend_norm, a, b, stumbles, says=f"a function that takes {a:.1f} + {b:.4f} · width microseconds")
        for (a, b), stumbles in zip([(float(a), float(b)) for a, b in costs], (seed % 3 == 0, seed % 3 != 0))
    ]
    makers, order = (makers[::-1], [64, 256, 1024]) if seed % 2 else (makers, [1024, 64, 256])
    return [Case(*makers, order, 30, Given(pretend_clock, says="a function: the time in seconds"))]


SPEED = Exercise(
    id="normalization.speed",
    chapter=7,
    title="Is RMSNorm faster? Measure it fairly",
    kind="experiment",
    points=3,
    difficulty=4,
    minutes=20,
    signature="compare_speed(rms_norm, layer_norm, widths, rounds, clock)",
    why="'10–15 % faster' is written everywhere. Timing two functions fairly is an art, and machines differ.",
    reference=compare_speed,
    probe=timed_with,
    stages=[pretended],
    # The pretended machine tires by 1/60 per call and wavers by 1 %. Over 60 seeds shortest times and medians, whoever
    # goes first, lie within 8 % of the reference; every mistake below is off by 25 % or more at some width.
    rtol=0.12,
    hints=[
        "One measurement is one call between two readings of the clock. How many of them do you take per norm and "
        "width?",
        "The machine grows tired while you measure. Who suffers if you measure all of one norm before the other? Let "
        "them take turns.",
        "The first call is slow, and now and then something else gets in the way. Which summary of 30 times does not "
        "care about a few that are far too long?",
        "One ratio per width, in the order of `widths`, RMSNorm above and LayerNorm below the line.",
    ],
    misconceptions=[
        Misconception(
            "mean time",
            partial(compare_speed_with, sum_up=statistics.fmean),
            "You average the times, or add them up. A call that something got in the way of takes forty times as long, "
            "and drags both along. Take the shortest time, or the median.",
            also=[partial(compare_speed_with, sum_up=sum)],
        ),
        Misconception(
            "the total of all rounds",
            one_long_reading,
            "You measure all rounds of one norm, then all of the other, and compare totals or means. What gets in the "
            "way of a few calls is in them. Keep the time of every call, take the shortest or the median, and let the "
            "two take turns.",
            also=[partial(compare_speed_with, take=one_after_the_other, sum_up=statistics.fmean)],
        ),
        Misconception(
            "one after the other",
            partial(compare_speed_with, take=one_after_the_other),
            "You measure all rounds of one norm, then all of the other. A machine that grows warm or busy in between "
            "punishes the second. Let them take turns, round by round.",
            also=[partial(compare_speed_with, take=one_after_the_other, sum_up=statistics.median)],
        ),
        Misconception(
            "upside down",
            partial(compare_speed_with, relate=lambda rms, layer: layer / rms),
            "Your fractions stand on their heads: time of LayerNorm over time of RMSNorm. Below 1 should mean that "
            "RMSNorm is faster.",
        ),
        Misconception(
            "difference",
            partial(compare_speed_with, relate=lambda rms, layer: rms - layer),
            "You return differences in seconds. A ratio can be compared between machines and widths; seconds cannot.",
            also=[partial(compare_speed_with, relate=lambda rms, layer: layer - rms)],
        ),
        Misconception(
            "share saved",
            partial(compare_speed_with, relate=lambda rms, layer: 1 - rms / layer),
            "You return what is saved, 1 − ratio. Return the ratio of the times itself.",
        ),
        Misconception(
            "too few rounds",
            lambda rms_norm, layer_norm, widths, rounds, clock: compare_speed(rms_norm, layer_norm, widths, 1, clock),
            "For some norm and width there are fewer than `rounds` calls. A first call is slow for reasons of its own; "
            "one measurement is none.",
            also=[
                lambda rms_norm, layer_norm, widths, rounds, clock: compare_speed(
                    rms_norm, layer_norm, widths, 10, clock
                )
            ],
        ),
        Misconception(
            "slowest call",
            partial(compare_speed_with, sum_up=max),
            "You compare the first calls, which are the slowest: memory is fetched, caches are empty. They tell what "
            "got in the way, not what the norm costs. Take the shortest time, or the median.",
            also=[partial(compare_speed_with, sum_up=lambda times: times[0])],
        ),
        Misconception(
            "last time",
            partial(compare_speed_with, sum_up=lambda times: times[-1]),
            "You keep the time of the last round only: is the list overwritten in the loop? One measurement is none.",
        ),
        Misconception(
            "another clock",
            without_the_clock,
            "You read the clock that is given less than twice, so you measured something else. Call `clock()` before "
            "and after.",
        ),
        Misconception(
            "typed in",
            lambda rms_norm, layer_norm, widths, rounds, clock: [0.87 for _ in widths],
            "These are not measurements: the norms were never called. The figure of the course notes is what you test.",
        ),
        Misconception(
            "one width for all",
            lambda rms_norm, layer_norm, widths, rounds, clock: compare_speed(
                rms_norm, layer_norm, widths[:1] * len(widths), rounds, clock
            ),
            "You measure one width and report it for all. Make a new x for every width.",
        ),
        Misconception(
            "one figure for all",
            partial(compare_speed_with, hand_in=statistics.fmean),
            "You return one figure for all widths. The ratio changes with the width: return one for each.",
        ),
    ],
)

# --- normalization.parameters -----------------------------------------------------------------------------------------

PARAMETERS = Exercise(
    id="normalization.parameters",
    chapter=7,
    title="The two norms of a BERT layer",
    kind="number",
    points=1,
    difficulty=1,
    minutes=4,
    why="The smallest part of the model, and the course notes still count it wrong: a good place to learn to count.",
    reference=2 * 2 * 768,
    hints=[
        "What does one LayerNorm learn? Write down the shapes of γ and β.",
        "BERT-base has 768 features per token. Does a norm's size depend on the number of tokens or heads?",
        "One norm belongs to the attention, the other to the feed-forward network. Multiply three small numbers.",
    ],
    misconceptions=[
        Misconception(
            "the figure of the notes",
            6144,
            "The course notes print this. It would be four numbers per feature and norm, and a LayerNorm has γ and β "
            "only.",
        ),
        Misconception(
            "one norm",
            2 * 768,
            "That is one LayerNorm, γ and β; or two norms without β. The layer has two norms, and each has both.",
        ),
        Misconception(
            "one vector",
            768,
            "That is a single vector of 768 numbers. There are γ and β, and there are two norms.",
        ),
        Misconception(
            "three norms",
            3 * 2 * 768,
            "That is three norms. A layer of an encoder has two: a third one, for cross-attention, is the decoder's.",
        ),
        Misconception(
            "the whole model",
            12 * 2 * 2 * 768,
            "That is all twelve layers. The question asks for one.",
            also=[(12 * 2 + 1) * 2 * 768],
        ),
        Misconception(
            "width 512",
            2 * 2 * 512,
            "That is for 512 features, the width of the 2017 original. BERT-base has 768.",
        ),
        Misconception(
            "width of the feed-forward network",
            2 * 768 + 2 * 3072,
            "You gave the second norm the width of the hidden layer. Both norms act on the stream, which has 768 "
            "features.",
            also=[2 * 2 * 3072],
        ),
        Misconception(
            "one per position",
            2 * 2 * 768 * 512,
            "You count the norms anew at each of 512 positions. The same γ and β serve every token.",
        ),
        Misconception(
            "a matrix",
            2 * (768 * 768 + 768),
            "You gave each norm a matrix. γ is a vector: it multiplies feature by feature.",
            also=[2 * 768 * 768],
        ),
    ],
)

EXERCISES = [LAYER_NORM, RMS_NORM, BATCH_VS_LAYER, WORKED_EXAMPLE, SPEED, PARAMETERS]
