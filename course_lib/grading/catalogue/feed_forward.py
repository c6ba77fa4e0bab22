"""Chapter 6, feed-forward: nine exercises.

Shapes: x (..., d_model); W1, W_gate, W_up (d_model, d_ff); W2, W_down (d_ff, d_model): everything is applied as x @ W.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F

from course_lib.chapters.feed_forward.claims import ASKED, capital_questions, contributions, strongest
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import CAPITALS, Tinytown

from .. import given
from ..exercise import Case, Exercise, Given, Misconception, generator
from ..judge import compare
from ..show import plural

# --- feed_forward.forward ---------------------------------------------------------------------------------------------

BENDS = {"relu": F.relu, "gelu": F.gelu}


def ffn(x, W1, b1, W2, b2, activation):
    hidden = BENDS[activation](x @ W1 + b1)  # (..., d_ff)
    return hidden @ W2 + b2  # (..., d_model)


def in_float32(function):
    """The same function made in float32 whatever comes in, and handed back so."""

    def there(*args):
        return function(*[a.float() if isinstance(a, torch.Tensor) else a for a in args])

    return there


def weights_as_in_linear(x, W1, b1, W2, b2, activation):
    return F.linear(BENDS[activation](F.linear(x, W1, b1)), W2, b2)


def transposed_weights(x, W1, b1, W2, b2, activation):
    return BENDS[activation](x @ W1.mT + b1) @ W2.mT + b2


def layers(rng, *leading, d_model, d_ff, dtype=torch.float32, size=1.0):
    """x, W1, b1, W2, b2."""
    shapes = (*leading, d_model), (d_model, d_ff), (d_ff,), (d_ff, d_model), (d_model,)
    x, *weights = (torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes)
    return size * x, *weights


def a_token_of_zeros(seed):
    "A token of zeros: nothing but the biases is left."
    x, *weights = layers(generator(seed), 3, d_model=3, d_ff=5)
    return [Case(torch.zeros_like(x), *weights, activation) for activation in BENDS]


def one_token(seed):
    "One token, once with each activation."
    rng = generator(seed)
    by_hand = [[1.0, -1.0], [[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]], [0.0, 0.5, 0.0], [[1.0, 0.0], [5.0, 5.0], [0.0, 2.0]]]
    by_hand = [torch.tensor(part) for part in (*by_hand, [0.5, 0.0])]
    return [Case(*args, activation) for args in (by_hand, layers(rng, 4, d_model=4, d_ff=7)) for activation in BENDS]


def a_sentence(seed):
    "A sentence, and a batch of them: every token by itself, all with the same weights."
    rng = generator(seed)
    return [
        Case(*layers(rng, 5, d_model=3, d_ff=8), "relu"),
        Case(*layers(rng, 5, d_model=3, d_ff=8), "gelu"),
        Case(*layers(rng, 1, 4, d_model=5, d_ff=2), "relu"),
        Case(*layers(rng, 2, 3, d_model=6, d_ff=9), "gelu"),
    ]


def all_sizes_equal(seed):
    "As many tokens as features as hidden units: no shape tells you which is which."
    rng = generator(seed)
    return [Case(*layers(rng, 4, d_model=4, d_ff=4), activation) for activation in BENDS]


def views(seed):
    "Transposed views of other tensors, and more leading axes."
    rng = generator(seed)
    x, W1, b1, W2, b2 = layers(rng, 3, 2, 4, d_model=3, d_ff=5)
    x, W1, W2 = x.transpose(0, 2), W1.T.contiguous().T, W2.T.contiguous().T
    return [Case(x, W1, b1, W2, b2, activation) for activation in BENDS]


def double_and_large(seed):
    "float64 in, float64 out, and numbers in the thousands."
    rng = generator(seed)
    double = partial(layers, rng, 2, 3, d_model=5, d_ff=7, dtype=torch.float64)
    return [Case(*double(), "gelu"), Case(*double(), "relu"), Case(*double(size=1000.0), "gelu")]


def wrong_ffn(x, W1, b1, W2, b2, activation, *, bend=lambda name: BENDS[name], before=True, inner=1, outer=1):
    """bend: from the name of an activation to what is done; inner, outer: how much of each bias is added."""
    hidden = bend(activation)(x @ W1 + inner * b1) if before else x @ W1 + inner * b1
    return hidden @ W2 + outer * b2


def quick_gelu(z):
    return z * (1.702 * z).sigmoid()


def tanh_gelu(z):
    return F.gelu(z, approximate="tanh")


def bends_with(**other):
    return partial(wrong_ffn, bend=lambda name: (BENDS | other)[name])


FORWARD = Exercise(
    id="feed_forward.forward",
    chapter=6,
    title="Expand, bend, contract",
    kind="code",
    points=3,
    difficulty=2,
    minutes=15,
    signature="ffn(x, W1, b1, W2, b2, activation)",
    why="Two thirds of the parameters of every block go through these three steps.",
    reference=ffn,
    stages=[a_token_of_zeros, one_token, a_sentence, all_sizes_equal, views, double_and_large],
    hints=[
        "Write the shapes in a row: (…, d_model), then (…, d_ff), then (…, d_model). Which matrix makes which step?",
        "Each matrix is followed by its own bias. Only one place in the row is bent: which one, so that the two "
        "matrices do not melt into one?",
        "`activation` is text. A dictionary from text to function, or an `if`, chooses the bend; 'gelu' is the exact "
        "one, with Φ.",
        "Four steps: product with W1, plus b1; the bend; product with W2, plus b2. `@` carries leading axes along.",
    ],
    misconceptions=[
        Misconception(
            "always ReLU",
            bends_with(gelu=F.relu),
            "You use ReLU whatever `activation` says. With 'gelu', a negative score is made small, not 0.",
        ),
        Misconception(
            "always GELU",
            bends_with(relu=F.gelu),
            "You use GELU whatever `activation` says. With 'relu', a negative score becomes exactly 0.",
        ),
        Misconception(
            "no activation",
            bends_with(relu=lambda z: z, gelu=lambda z: z),
            "You left the bend out. Two matrices in a row are one matrix: the hidden units are then wasted.",
        ),
        Misconception(
            "bent at the end",
            lambda *args: BENDS[args[-1]](wrong_ffn(*args, before=False)),
            "You bend the result of the second matrix. The bend belongs between the two, on the hidden units: without "
            "it there they melt into one matrix.",
        ),
        Misconception(
            "bent twice",
            lambda *args: BENDS[args[-1]](ffn(*args)),
            "You bend the hidden units, which is right, and then the output as well. The output may be negative: "
            "after W2 nothing is bent.",
        ),
        Misconception(
            "bent before the expansion",
            lambda x, W1, b1, W2, b2, activation: wrong_ffn(
                BENDS[activation](x), W1, b1, W2, b2, activation, before=False
            ),
            "You bend the token before the first matrix. The bend acts on the scores of the hidden units, after W1.",
        ),
        Misconception(
            "inner bias forgotten",
            partial(wrong_ffn, inner=0),
            "b1 is missing. It shifts the score at which each hidden unit begins to fire.",
        ),
        Misconception(
            "outer bias forgotten",
            partial(wrong_ffn, outer=0),
            "b2 is missing: a token of zeros shows it best. It is added after the second matrix.",
        ),
        Misconception(
            "both biases forgotten",
            partial(wrong_ffn, inner=0, outer=0),
            "Both biases are missing. For a token of zeros yours gives zeros; the formula gives what b1 and b2 make.",
        ),
        Misconception(
            "bias after the bend",
            lambda x, W1, b1, W2, b2, activation: (BENDS[activation](x @ W1) + b1) @ W2 + b2,
            "You add b1 after the bend. It belongs inside: it moves the place of the kink, not the height.",
        ),
        Misconception(
            "the other GELU",
            bends_with(gelu=tanh_gelu),
            "Your 'gelu' is the tanh approximation, up to 0.0005 off for each hidden unit. Here it is the exact one: "
            "z · Φ(z).",
            also=[bends_with(gelu=quick_gelu)],
        ),
        Misconception(
            "SiLU for GELU",
            bends_with(gelu=F.silu),
            "Your 'gelu' multiplies the score by its sigmoid: that is SiLU. GELU multiplies by Φ, the chance that a "
            "normal number lies below the score.",
        ),
        Misconception(
            "weights as in nn.Linear",
            weights_as_in_linear,
            "You use the matrices as nn.Linear stores them, (out, in), and so transpose them. Here W1 is "
            "(d_model, d_ff): apply it as x @ W1.",
            also=[transposed_weights],
        ),
        Misconception(
            "residual added",
            lambda x, *rest: x + ffn(x, *rest),
            "You add x at the end. That is the residual connection: it belongs to the block around the feed-forward "
            "network.",
        ),
        Misconception(
            "always float32",
            in_float32(ffn),
            "You return float32 whatever comes in, and a float64 input loses half its digits. Leave the dtype "
            "as it is.",
        ),
    ],
)

# --- feed_forward.gelu ------------------------------------------------------------------------------------------------


def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def landmarks(seed):
    "The number 0.5, without an axis, and the scores 0, 1, −1."
    return [Case(torch.tensor([0.0, 1.0, -1.0])), Case(torch.tensor(0.5))]


def from_minus_four_to_four(seed):
    "Scores from −4 to 4, where the approximations differ."
    return [Case(torch.linspace(-4, 4, 33)), Case(4 * torch.rand(3, 7, generator=generator(seed)) - 2)]


def far_out(seed):
    "Far out: a large score passes as it is, a very negative one becomes 0."
    return [Case(torch.tensor([-1e4, -100.0, -10.0, -6.0, 6.0, 10.0, 100.0, 1e4]))]


def any_shape(seed):
    "Any shape, and a transposed view."
    rng = generator(seed)
    return [Case(torch.randn(1, 5, generator=rng)), Case(torch.randn(2, 3, 4, generator=rng).transpose(0, 2))]


def double_scores(seed):
    "float64 in, float64 out."
    return [Case(2 * torch.randn(4, 5, generator=generator(seed), dtype=torch.float64))]


def to_a_millionth(case, expected, got):
    """The two GELUs differ by 0.0005 at most: 1e-4, the usual tolerance of float32, would be too coarse."""
    return compare(expected, got, 1e-6, 1e-6)


ALONG_A_LINE = [landmarks, from_minus_four_to_four, far_out, any_shape, double_scores]

GELU = Exercise(
    id="feed_forward.gelu",
    chapter=6,
    title="GELU from its formula",
    kind="code",
    points=2,
    difficulty=1,
    minutes=10,
    signature="gelu(x)",
    why="The bend of GPT-2 and BERT. It never switches a unit off, which no one believes before having computed it.",
    reference=gelu,
    stages=ALONG_A_LINE,
    judge=to_a_millionth,
    hints=[
        "GELU is the score times a number between 0 and 1. What is that number for a score of 0, and for a very large "
        "one?",
        "Φ(x) is the chance that a standard normal number lies below x. torch has the error function erf, which runs "
        "from −1 to 1: how do you move it to 0 to 1?",
        "erf belongs to a normal distribution of variance ½. To come from there to variance 1, divide its input by "
        "√2; then add 1, halve, and multiply by the score.",
    ],
    misconceptions=[
        Misconception(
            "tanh approximation",
            tanh_gelu,
            "That is the tanh approximation: near, but up to 0.0005 off. The exact one has erf inside.",
        ),
        Misconception(
            "sigmoid approximation",
            quick_gelu,
            "That is x · σ(1.702 x), a rough approximation, up to 0.02 off. The exact one has erf inside.",
        ),
        Misconception(
            "SiLU",
            F.silu,
            "You multiply by the sigmoid of the score: that is SiLU. GELU multiplies by Φ, which rises faster.",
        ),
        Misconception(
            "ReLU",
            F.relu,
            "That is ReLU: negative scores become exactly 0. GELU(−1) is about −0.16.",
        ),
        Misconception(
            "√2 forgotten",
            lambda x: x * 0.5 * (1 + torch.erf(x)),
            "Inside erf the score must be divided by √2: erf(x) belongs to a normal distribution of variance ½.",
        ),
        Misconception(
            "divided by 2 inside",
            lambda x: x * 0.5 * (1 + torch.erf(x / 2)),
            "Inside erf you divide by 2. It is √2: the variance is doubled, so the spread grows by its root.",
        ),
        Misconception(
            "times √2",
            lambda x: x * 0.5 * (1 + torch.erf(x * 2**0.5)),
            "Inside erf you multiply by √2, which makes the step steeper. Divide.",
        ),
        Misconception(
            "not halved",
            lambda x: x * (1 + torch.erf(x / 2**0.5)),
            "1 + erf runs from 0 to 2, so your large scores come out doubled. Halve it: a chance is at most 1.",
        ),
        Misconception(
            "the 1 forgotten",
            lambda x: x * 0.5 * torch.erf(x / 2**0.5),
            "Without the 1, your factor runs from −½ to ½, and negative scores come out positive. Φ runs from 0 to 1.",
        ),
        Misconception(
            "1 − erf",
            lambda x: x * 0.5 * (1 - torch.erf(x / 2**0.5)),
            "You take 1 − erf, the chance that a normal number lies *above* the score: so large scores vanish and "
            "very negative ones pass. It is the other way round.",
        ),
        Misconception(
            "the chance alone",
            lambda x: 0.5 * (1 + torch.erf(x / 2**0.5)),
            "That is Φ(x), a number between 0 and 1. GELU is the score times it.",
        ),
        Misconception(
            "density",
            lambda x: x * (-x * x / 2).exp() / (2 * math.pi) ** 0.5,
            "You multiply by the density of the normal distribution, the bell. It needs the area under the bell to "
            "the left of the score.",
            also=[lambda x: x * (-x * x / 2).exp()],
        ),
        Misconception(
            "always float32",
            in_float32(gelu),
            "You return float32 whatever comes in, and a float64 input loses half its digits. Leave the dtype "
            "as it is.",
        ),
    ],
)

# --- feed_forward.gelu_tanh -------------------------------------------------------------------------------------------

ROOT = math.sqrt(2 / math.pi)


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def half_of_one_plus_tanh(u):
    return 0.5 * (1 + u.tanh())


def wrong_tanh(inner, step=half_of_one_plus_tanh):
    """x · step(inner(x)): the inside of the tanh, or what is made of it, can be replaced."""
    return lambda x: x * step(inner(x))


def bent_line(x):
    return ROOT * (x + 0.044715 * x**3)


def tanh_by_exponentials(u):
    return 0.5 * (1 + ((2 * u).exp() - 1) / ((2 * u).exp() + 1))


GELU_TANH = Exercise(
    id="feed_forward.gelu_tanh",
    chapter=6,
    title="The GELU of GPT-2",
    kind="code",
    points=2,
    difficulty=2,
    minutes=10,
    signature="gelu_tanh(x)",
    why="GPT-2 was trained with this approximation. Run its weights with the exact GELU and every block is a bit off.",
    reference=gelu_tanh,
    stages=ALONG_A_LINE,
    judge=to_a_millionth,
    hints=[
        "From the outside it looks like the exact GELU: the score, times a half, times 1 plus something between −1 "
        "and 1. What takes the place of erf?",
        "Inside the tanh stands a slightly bent line: the score plus a small share of its cube. The root in front "
        "belongs to both.",
        "Mind the brackets: the cube is added to the score first, with weight 0.044715; then the whole sum is "
        "multiplied by the root of 2/π; then comes tanh.",
    ],
    misconceptions=[
        Misconception(
            "exact GELU",
            gelu,
            "That is the exact GELU with erf. It differs from the approximation by up to 0.0005: GPT-2 needs the one "
            "with tanh.",
        ),
        Misconception(
            "sigmoid approximation",
            quick_gelu,
            "That is x · σ(1.702 x), the other approximation of GELU. GPT-2 uses the one with tanh and the cube.",
        ),
        Misconception(
            "no cube",
            wrong_tanh(lambda x: ROOT * x),
            "The cube is missing inside the tanh. Without it the step is too gentle away from 0.",
            also=[wrong_tanh(lambda x: ROOT * (x + 0.044715 * x))],
        ),
        Misconception(
            "squared",
            wrong_tanh(lambda x: ROOT * (x + 0.044715 * x**2)),
            "You take the square where the formula has the cube. A square has no sign, so your step is lopsided.",
        ),
        Misconception(
            "cube taken away",
            wrong_tanh(lambda x: ROOT * (x - 0.044715 * x**3)),
            "You subtract the cube. It is added: the inside grows faster than a straight line.",
        ),
        Misconception(
            "cube outside the bracket",
            wrong_tanh(lambda x: ROOT * x + 0.044715 * x**3),
            "√(2/π) multiplies the score only. It belongs to the whole bracket, the cube included.",
        ),
        Misconception(
            "√(2/π) forgotten",
            wrong_tanh(lambda x: x + 0.044715 * x**3),
            "√(2/π) in front of the bracket is missing: about 0.8, so your step is too steep.",
        ),
        Misconception(
            "no root",
            wrong_tanh(lambda x: 2 / math.pi * (x + 0.044715 * x**3)),
            "You multiply by 2/π. It is the root of it, about 0.8.",
        ),
        Misconception(
            "π/2",
            wrong_tanh(lambda x: (math.pi / 2) ** 0.5 * (x + 0.044715 * x**3)),
            "You multiply by √(π/2), about 1.25. It is the other way up: √(2/π), about 0.8.",
        ),
        Misconception(
            "another constant",
            wrong_tanh(lambda x: ROOT * (x + 0.04715 * x**3)),
            "Your constant before the cube is not 0.044715: a digit is lost, doubled or rounded away.",
            also=[wrong_tanh(lambda x, c=c: ROOT * (x + c * x**3)) for c in (0.44715, 0.0044715, 0.0447, 0.04471)],
        ),
        Misconception(
            "not halved",
            wrong_tanh(bent_line, lambda u: 1 + u.tanh()),
            "1 + tanh runs from 0 to 2, so your large scores come out doubled. The half is missing.",
        ),
        Misconception(
            "the 1 forgotten",
            wrong_tanh(bent_line, lambda u: 0.5 * u.tanh()),
            "Without the 1, your factor runs from −½ to ½, and negative scores come out positive.",
        ),
        Misconception(
            "sigmoid of the same",
            wrong_tanh(bent_line, torch.sigmoid),
            "½ (1 + tanh u) is the sigmoid of 2u, not of u: your step is too gentle by a factor of 2.",
        ),
        Misconception(
            "the factor alone",
            lambda x: half_of_one_plus_tanh(bent_line(x)),
            "That is the factor between 0 and 1. GELU is the score times it.",
        ),
        Misconception(
            "tanh overflows",
            wrong_tanh(bent_line, tanh_by_exponentials),
            "Your own tanh divides one exponential by another, and far out that is inf / inf. torch.tanh does not "
            "overflow.",
        ),
        Misconception(
            "always float32",
            in_float32(gelu_tanh),
            "You return float32 whatever comes in, and a float64 input loses half its digits. Leave the dtype "
            "as it is.",
        ),
    ],
)

# --- feed_forward.swiglu ----------------------------------------------------------------------------------------------


def swiglu(x, W_gate, W_up, W_down):
    gate = x @ W_gate  # (..., d_ff)
    return (gate * torch.sigmoid(gate) * (x @ W_up)) @ W_down  # (..., d_model)


def wrong_swiglu(x, W_gate, W_up, W_down, *, join=torch.mul, gate=F.silu, proposal=lambda z: z):
    return join(gate(x @ W_gate), proposal(x @ W_up)) @ W_down


def linear_swiglu(x, W_gate, W_up, W_down):
    return F.linear(F.silu(F.linear(x, W_gate)) * F.linear(x, W_up), W_down)


def gates(rng, *leading, d_model, d_ff, dtype=torch.float32):
    """x, W_gate, W_up, W_down."""
    shapes = (*leading, d_model), (d_model, d_ff), (d_model, d_ff), (d_ff, d_model)
    return tuple(torch.randn(shape, generator=rng, dtype=dtype) for shape in shapes)


def one_unit(seed):
    "One feature and one hidden unit: four numbers."
    drawn = generator(seed)
    return [
        Case(*(torch.tensor(part) for part in ([2.0], [[1.0]], [[3.0]], [[0.5]]))),
        Case(*gates(drawn, 1, d_model=1, d_ff=1)),
    ]


def token_with_units(seed):
    "One token with several features and hidden units."
    return [Case(*gates(generator(seed), 3, d_model=3, d_ff=5))]


def gated_sentences(seed):
    "A sentence, and a batch of them: every token by itself."
    rng = generator(seed)
    return [
        Case(*gates(rng, 4, d_model=3, d_ff=7)),
        Case(*gates(rng, 1, 5, d_model=6, d_ff=2)),
        Case(*gates(rng, 2, 3, d_model=5, d_ff=8)),
        Case(*gates(rng, 4, d_model=4, d_ff=4)),
    ]


def gated_views(seed):
    "Transposed views of other tensors."
    x, *weights = gates(generator(seed), 3, 2, d_model=4, d_ff=5)
    return [Case(x.transpose(0, 1), *(W.T.contiguous().T for W in weights))]


def far_open(seed):
    "Gates far open and far shut, scores of ±200: what passes is the score itself, or nothing."
    x = torch.tensor([[10.0, -10.0], [10.0, 10.0]])
    W_gate = torch.tensor([[10.0, -20.0, 1.0], [-10.0, 0.0, 1.0]])
    W_up, W_down = (torch.randn(shape, generator=generator(seed)) for shape in ((2, 3), (3, 2)))
    return [Case(x, W_gate, W_up, W_down)]


def gated_double(seed):
    "float64 in, float64 out."
    return [Case(*gates(generator(seed), 2, 3, d_model=3, d_ff=5, dtype=torch.float64))]


SWIGLU = Exercise(
    id="feed_forward.swiglu",
    chapter=6,
    title="A gate: SwiGLU",
    kind="code",
    points=3,
    difficulty=2,
    minutes=10,
    signature="swiglu(x, W_gate, W_up, W_down)",
    why="The feed-forward network of LLaMA and of most open models since.",
    reference=swiglu,
    stages=[one_unit, token_with_units, gated_sentences, gated_views, far_open, gated_double],
    hints=[
        "Two of the three matrices look at the token side by side. Which sizes have their results, and how can they "
        "be joined without changing that size?",
        "One look proposes, the other says how far each proposal is let through. Only one of the two is bent.",
        "SiLU is a score times its own sigmoid; torch has it as F.silu. It is taken of the gate alone.",
        "Unit by unit, multiply the bent gate by the proposal, with `*` and not with `@`. W_down comes last.",
    ],
    misconceptions=[
        Misconception(
            "gate and proposal exchanged",
            lambda x, W_gate, W_up, W_down: swiglu(x, W_up, W_gate, W_down),
            "You bend the proposal, x W_up, and leave the gate straight. SiLU is taken of x W_gate. With trained "
            "weights the two are not interchangeable.",
        ),
        Misconception(
            "sigmoid gate",
            partial(wrong_swiglu, gate=torch.sigmoid),
            "Your gate is the sigmoid of its score: the older GLU. SiLU is the score times that sigmoid, so a gate "
            "may exceed 1.",
        ),
        Misconception(
            "no activation",
            partial(wrong_swiglu, gate=lambda z: z),
            "You multiply two straight looks at the token. The gate must be bent: take its SiLU.",
        ),
        Misconception(
            "GELU gate",
            partial(wrong_swiglu, gate=F.gelu),
            "Your gate is bent by GELU: that variant is called GEGLU. In SwiGLU it is SiLU, the score times its "
            "sigmoid.",
            also=[partial(wrong_swiglu, gate=tanh_gelu)],
        ),
        Misconception(
            "ReLU gate",
            partial(wrong_swiglu, gate=F.relu),
            "Your gate is bent by ReLU: that variant is called ReGLU. In SwiGLU it is SiLU.",
        ),
        Misconception(
            "tanh gate",
            partial(wrong_swiglu, gate=torch.tanh),
            "Your gate is a tanh, which ends at −1 and 1. SiLU is the score times its sigmoid.",
        ),
        Misconception(
            "softmax gate",
            partial(wrong_swiglu, gate=lambda z: z.softmax(-1)),
            "You share 1 among the gates. Each gate opens by itself, whatever the others do: SiLU, unit by unit.",
        ),
        Misconception(
            "both bent",
            partial(wrong_swiglu, proposal=F.silu),
            "You bend both looks. The proposal, x W_up, stays straight.",
        ),
        Misconception(
            "bent after the product",
            lambda x, W_gate, W_up, W_down: F.silu((x @ W_gate) * (x @ W_up)) @ W_down,
            "You multiply first and bend the product. SiLU comes before the product, and only on the gate.",
        ),
        Misconception(
            "added",
            partial(wrong_swiglu, join=torch.add),
            "You add gate and proposal. A gate multiplies: where it is 0, nothing of the proposal passes.",
        ),
        Misconception(
            "proposal left out",
            lambda x, W_gate, W_up, W_down: F.silu(x @ W_gate) @ W_down,
            "W_up is never used: that is a plain network with SiLU. Multiply the bent gate by x W_up.",
        ),
        Misconception(
            "gate left out",
            lambda x, W_gate, W_up, W_down: F.silu(x @ W_up) @ W_down,
            "W_gate is never used: that is a plain network with SiLU. The gate decides how far x W_up passes.",
            also=[lambda x, W_gate, W_up, W_down: x @ W_up @ W_down],
        ),
        Misconception(
            "weights as in nn.Linear",
            linear_swiglu,
            "You use the matrices as nn.Linear stores them, (out, in), and so transpose them. Here W_gate and W_up "
            "are (d_model, d_ff): apply them as x @ W.",
            also=[lambda x, W_gate, W_up, W_down: swiglu(x, W_gate.mT, W_up.mT, W_down.mT)],
        ),
        Misconception(
            "sigmoid overflows",
            partial(wrong_swiglu, gate=lambda z: z * z.exp() / (1 + z.exp())),
            "Your sigmoid is exp(z) / (1 + exp(z)), and above 88 that is inf / inf. Write 1 / (1 + exp(−z)), or use "
            "torch.sigmoid.",
        ),
        Misconception(
            "always float32",
            in_float32(swiglu),
            "You return float32 whatever comes in, and a float64 input loses half its digits. Leave the dtype "
            "as it is.",
        ),
    ],
)

# --- feed_forward.swiglu_width ----------------------------------------------------------------------------------------


def swiglu_hidden(d_model, multiple_of):
    return -(-8 * d_model // (3 * multiple_of)) * multiple_of


def rounded_up(width, multiple_of):
    return math.ceil(width / multiple_of) * multiple_of


def small_widths(seed):
    "Small numbers, to follow on paper."
    return [Case(3, 8), Case(6, 8), Case(4, 8), Case(8, 16), Case(40, 32)]


def known_widths(seed):
    "Sizes of models that exist, rounded up to a multiple of 256; and one large size with a small multiple."
    return [*(Case(d_model, 256) for d_model in (64, 96, 512, 768, 4096, 5120)), Case(8194, 8)]


def drawn_widths(seed):
    "Drawn sizes, rounded up to multiples of 8, 24, 64, 128 and 1,024."
    drawn = torch.randint(10, 9000, (5,), generator=generator(seed)).tolist()
    return [Case(d_model, multiple_of) for d_model, multiple_of in zip(drawn, (8, 24, 64, 128, 1024))]


SWIGLU_WIDTH = Exercise(
    id="feed_forward.swiglu_width",
    chapter=6,
    title="How wide is a SwiGLU?",
    kind="code",
    points=2,
    difficulty=2,
    minutes=10,
    signature="swiglu_hidden(d_model, multiple_of)",
    why="The 11,008 in LLaMA's configuration looks like a typing error. It is two thirds, rounded up.",
    reference=swiglu_hidden,
    stages=[small_widths, known_widths, drawn_widths],
    hints=[
        "Two matrices of 4 · d_model hidden units are replaced by three. How wide may the three be, for the same "
        "number of weights?",
        "8/3 · d_model is hardly ever a multiple of what the hardware likes. Which is the smallest multiple that is "
        "not below it? If it is a multiple already, it stays.",
        "Count how many pieces of `multiple_of` are needed, with the last one perhaps not full: divide, round up, and "
        "multiply by the size of a piece.",
    ],
    misconceptions=[
        Misconception(
            "rounded to the nearest",
            lambda d_model, multiple_of: multiple_of * round(8 * d_model / 3 / multiple_of),
            "You round to the *nearest* multiple, as the course notes say in words. Their code, and LLaMA's, rounds "
            "up: the width never falls below 8/3 · d_model.",
        ),
        Misconception(
            "rounded down",
            lambda d_model, multiple_of: 8 * d_model // 3 // multiple_of * multiple_of,
            "You round down. A small model then has no hidden units at all: at d_model = 64 and 256 you get 0.",
        ),
        Misconception(
            "not rounded to a multiple",
            lambda d_model, multiple_of: int(8 * d_model / 3),
            "That is 8/3 · d_model as a whole number, and `multiple_of` is not used. Round it up to a multiple.",
            also=[
                lambda d_model, multiple_of: 8 * d_model / 3,
                lambda d_model, multiple_of: round(8 * d_model / 3),
                lambda d_model, multiple_of: math.ceil(8 * d_model / 3),
            ],
        ),
        Misconception(
            "always 256",
            lambda d_model, multiple_of: swiglu_hidden(d_model, 256),
            "You always round to a multiple of 256. `multiple_of` says to which.",
        ),
        Misconception(
            "the two thirds forgotten",
            lambda d_model, multiple_of: rounded_up(4 * d_model, multiple_of),
            "That is 4 · d_model, the width of two matrices. Three matrices of that width hold half as much again: "
            "take two thirds of it.",
        ),
        Misconception(
            "the four forgotten",
            lambda d_model, multiple_of: rounded_up(2 * d_model / 3, multiple_of),
            "You take two thirds of d_model. Take two thirds of 4 · d_model.",
        ),
        Misconception(
            "three halves",
            lambda d_model, multiple_of: rounded_up(6 * d_model, multiple_of),
            "You make it wider by 3/2. With more matrices each must become narrower: 2/3.",
        ),
        Misconception(
            "three quarters",
            lambda d_model, multiple_of: rounded_up(3 * d_model, multiple_of),
            "That is 3 · d_model. The widths must satisfy 3 · d_model · width = 2 · d_model · 4 d_model.",
        ),
        Misconception(
            "whole-number division",
            lambda d_model, multiple_of: rounded_up(8 // 3 * d_model, multiple_of),
            "8 // 3 is 2: the remainder is lost before you multiply. Multiply by 8 first, then divide.",
        ),
        Misconception(
            "8/3 as a short decimal",
            lambda d_model, multiple_of: rounded_up(2.67 * d_model, multiple_of),
            "You write 8/3 as a decimal with a few digits. Times a large d_model the missing digits are whole units, "
            "and may cost or save a multiple: divide by 3.",
            also=[
                lambda d_model, multiple_of: rounded_up(2.666 * d_model, multiple_of),
                lambda d_model, multiple_of: rounded_up(2.7 * d_model, multiple_of),
            ],
        ),
        Misconception(
            "one multiple too many",
            lambda d_model, multiple_of: (8 * d_model // 3 // multiple_of + 1) * multiple_of,
            "You always go on to the next multiple. At d_model = 96 and 256 the width is a multiple already: it stays.",
        ),
        Misconception(
            "d_model rounded first",
            lambda d_model, multiple_of: rounded_up(8 / 3 * rounded_up(d_model, multiple_of), multiple_of),
            "You round d_model up before you multiply, and the width grows with it. Round the width, once, at the end.",
        ),
        Misconception(
            "power of two",
            lambda d_model, multiple_of: 2 ** math.ceil(math.log2(8 * d_model / 3)),
            "You go up to the next power of two. A multiple is enough: 11,008 is 43 · 256.",
        ),
    ],
)

# --- feed_forward.parameters ------------------------------------------------------------------------------------------

FFN_512 = 512 * 2048 + 2048 + 2048 * 512 + 512
FFN_4096 = 4096 * 16384 + 16384 + 16384 * 4096 + 4096
SWIGLU_4096 = 3 * 4096 * 11008

PARAMETERS = Exercise(
    id="feed_forward.parameters",
    chapter=6,
    title="What the two networks weigh",
    kind="number",
    points=2,
    difficulty=2,
    minutes=10,
    why="One of the course notes says that SwiGLU costs half as much again. Its own code counts something else.",
    reference={"ffn": FFN_512, "ratio": SWIGLU_4096 / FFN_4096},
    rtol=1e-12,
    hints=[
        "Which four tensors does a feed-forward network with biases have, and how long is each bias?",
        "For the ratio you need two totals at d_model = 4096. How many matrices has a SwiGLU, how wide are they, and "
        "has it biases?",
        "The width of the SwiGLU is what `feed_forward.swiglu_width` gives for 4096 and multiples of 256; the plain "
        "network is 4 · 4096 wide. Let Python divide the one total by the other, and do not round.",
    ],
    misconceptions=[
        Misconception(
            "biases forgotten",
            {"ffn": 2 * 512 * 2048},
            "The two matrices are right, and the biases are missing: one number per hidden unit, one per feature.",
        ),
        Misconception(
            "outer bias forgotten",
            {"ffn": FFN_512 - 512},
            "You are 512 short: the second layer has a bias, too, one number per feature.",
        ),
        Misconception(
            "inner bias forgotten",
            {"ffn": FFN_512 - 2048},
            "You are 2,048 short: the first layer has a bias, too, one number per hidden unit.",
        ),
        Misconception(
            "two biases of one length",
            {"ffn": 2 * 512 * 2048 + 2 * 512},
            "Your two biases are equally long. A bias is as long as what its layer puts out: 2,048, then 512.",
            also=[{"ffn": 2 * 512 * 2048 + 2 * 2048}],
        ),
        Misconception(
            "one layer",
            {"ffn": 512 * 2048},
            "That is one of two layers: up to the hidden units, and back.",
            also=[{"ffn": 512 * 2048 + 2048}, {"ffn": 512 * 2048 + 512}],
        ),
        Misconception(
            "square matrices",
            {"ffn": 2 * 2048**2},
            "You count matrices of 2,048 × 2,048. One side of each is d_model, 512.",
            also=[{"ffn": 2 * 512**2}, {"ffn": 2048**2}, {"ffn": 2 * 2048**2 + 2048 + 512}],
        ),
        Misconception(
            "three matrices",
            {"ffn": 3 * 512 * 2048},
            "You count three matrices, as in a SwiGLU. The plain network has two.",
        ),
        Misconception(
            "with the attention",
            {"ffn": FFN_512 + 4 * (512 * 512 + 512)},
            "You added the attention of the same block. The question asks for the feed-forward network alone.",
            also=[{"ffn": FFN_512 + 4 * 512 * 512}],
        ),
        Misconception(
            "all six blocks",
            {"ffn": 6 * FFN_512},
            "That is six blocks together. The question asks for one.",
        ),
        Misconception(
            "rounded count",
            {"ffn": 2_100_000},
            "That is the right size, rounded. The exact figure is a sum of whole numbers: give all its digits.",
            also=[{"ffn": 2.1}, {"ffn": 2_099_700}],
        ),
        Misconception(
            "the comment's 1.5",
            {"ratio": 1.5},
            "That is the comment in the course notes: three matrices instead of two, all of one width. But the width "
            "is cut to two thirds. Count the weights.",
            also=[{"ratio": 3 * 4096 * 16384 / FFN_4096}],
            rtol=1e-4,
        ),
        Misconception(
            "no biases in the plain network",
            {"ratio": SWIGLU_4096 / (2 * 4096 * 16384)},
            "You left the biases of the plain network out, 16,384 and 4,096. The SwiGLU has none, the plain one has "
            "two.",
            rtol=1e-6,
        ),
        Misconception(
            "width not rounded up",
            {"ratio": 1.0},
            "Two thirds of the width, three matrices: that is equal, before the width is rounded up to a multiple of "
            "256.",
            also=[{"ratio": 2 * 4096 * 16384 / FFN_4096}, {"ratio": 3 * 4096 * 10922 / FFN_4096}],
            rtol=1e-4,
        ),
        Misconception(
            "rounded down to a multiple",
            {"ratio": 3 * 4096 * 10752 / FFN_4096},
            "You took a width of 10,752, the multiple of 256 below. The width is rounded up.",
            rtol=1e-4,
        ),
        Misconception(
            "upside down",
            {"ratio": FFN_4096 / SWIGLU_4096},
            "You divided the plain network by the SwiGLU. The question asks for SwiGLU to plain.",
            rtol=1e-4,
        ),
        Misconception(
            "two of three matrices",
            {"ratio": 2 * 4096 * 11008 / FFN_4096},
            "You counted two matrices of the SwiGLU. It has three: gate, up and down.",
            rtol=1e-4,
        ),
        Misconception(
            "rounded ratio",
            {"ratio": 1.0077},
            "That is right, rounded. Write the division itself and let Python keep the digits.",
            also=[{"ratio": 1.01}, {"ratio": 1.008}, {"ratio": 1.00766}],
            rtol=2e-3,
        ),
    ],
)

# --- feed_forward.sparsity --------------------------------------------------------------------------------------------

TINY = {"vocab_size": 23, "d_model": 6, "n_heads": 2, "n_layers": 2, "d_ff": 11, "max_seq_len": 12}


def active_shares(model, ids, pad_id):
    """Counted, not drawn: the same model and ids give the same shares to the last digit, so no room for noise."""
    real = ids != pad_id  # (B, T)
    return [(scores[real] > 0).double().mean() for scores in seen_at(model, ids)]


def seen_at(model, ids, part="feed_forward.up_proj", evaluate=True):
    """What this part of every block puts out: list of (B, T, size). Every call has its own model: hooks may stay."""
    outputs = []
    for block in model.blocks:
        block.get_submodule(part).register_forward_hook(lambda _, inputs, output: outputs.append(output))
    if evaluate:
        model.eval()
    with torch.no_grad():
        model(ids)
    return outputs


def hidden_at(model, ids):
    """The hidden units after the bend: list of (B, T, d_ff)."""
    bend = BENDS[model.config.activation]
    return [bend(scores) for scores in seen_at(model, ids)]


def wrong_shares(model, ids, pad_id, *, look=seen_at, fires=lambda z: z > 0, share=lambda f: f.double().mean().item()):
    return [share(fires(z[ids != pad_id])) for z in look(model, ids)]


def text_by_text(model, ids, pad_id):
    """The mean of the texts' means."""
    fires = [scores > 0 for scores in seen_at(model, ids)]
    return [torch.stack([f[i, ids[i] != pad_id].double().mean() for i in range(len(ids))]).mean() for f in fires]


def small_model(seed, dropout=0.0, activation="relu", mute=0, **config):
    config = TINY | {"activation": activation, "dropout": dropout} | config
    says = f"a small decoder with {plural(config['n_layers'], 'block')} of {config['d_ff']} units ({activation})"
    return Given(given.lively_decoder, config, seed, mute, says=says)


def drawn_ids(rng, *lengths):
    """(B, T) ids of which 0 pads the end of the shorter texts."""
    ids = torch.randint(1, TINY["vocab_size"], (len(lengths), max(lengths)), generator=rng)
    return ids.masked_fill(torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None], 0)


def one_token_in(seed):
    "One token: how many of eleven units fire, in each of two blocks."
    return [Case(small_model(seed), drawn_ids(generator(seed), 1), 0)]


def a_text_in(seed):
    "One text: the mean over its tokens; two blocks, then three."
    rng = generator(seed)
    return [
        Case(small_model(seed), drawn_ids(rng, 7), 0),
        Case(small_model(seed + 1, n_layers=3, d_ff=7), drawn_ids(rng, 9), 0),
    ]


def gelu_units(seed):
    "GELU units: one fires if its score is above 0, though the others are not exactly 0; then some that were cut."
    ids = drawn_ids(generator(seed), 8, 8)
    return [Case(small_model(seed, activation="gelu", mute=mute), ids, 0) for mute in (0, 3)]


def padded_texts(seed):
    "Texts of different lengths, filled up with `pad_id`: padding does not count."
    rng = generator(seed)
    ids = drawn_ids(rng, 9, 4, 2)
    return [
        Case(small_model(seed), ids, 0),
        Case(small_model(seed, activation="gelu"), (ids - 1) % TINY["vocab_size"], TINY["vocab_size"] - 1),
    ]


def with_dropout(seed):
    "A model that comes in training mode, with dropout: measure without it."
    return [Case(small_model(seed, dropout=0.4), drawn_ids(generator(seed), 9, 6), 0)]


def before_and_after_training(seed):
    "The course's Tinytown model, untrained and trained, on stories that it has not seen, cut at 32, 25, 18 and 11."
    model, tokenizer = load_pretrained("tinytown")
    stories = [tokenizer.encode(story)[: 32 - 7 * i] for i, story in enumerate(Tinytown(50_000 + seed).sample(4))]
    ids = torch.tensor([story + [tokenizer.pad_id] * (32 - len(story)) for story in stories])
    untrained = Given(given.drawn_decoder, model.config.to_dict(), seed, says="an untrained model like Tinytown's")
    return [Case(untrained, ids, tokenizer.pad_id), Case(Given(given.tinytown), ids, tokenizer.pad_id)]


SPARSITY = Exercise(
    id="feed_forward.sparsity",
    chapter=6,
    title="How many units fire?",
    kind="experiment",
    points=4,
    difficulty=3,
    minutes=20,
    signature="active_shares(model, ids, pad_id)",
    why="The course notes print one figure for it. It is a moment in the life of a model, and you can measure when.",
    reference=active_shares,
    probe=given.as_row,
    rtol=1e-4,
    stages=[one_token_in, a_text_in, gelu_units, padded_texts, with_dropout, before_and_after_training],
    hints=[
        "Where in a block do the hidden units' scores exist, and for how long? What would you have to keep while the "
        "model runs?",
        '`trace(model, "*.hidden")` from course_lib.trace keeps the hidden units of every block, (B, T, d_ff). A '
        "forward hook on each up_proj does, too.",
        "A unit fires where its score is above 0; GELU leaves the sign as it is. Which tokens are no tokens at all, "
        "and must be left out before the mean?",
        "Run the model inside `evaluating(model)`. For each block pick the real tokens with a mask of shape (B, T), "
        "compare with 0, and take the mean of the ones and zeros.",
    ],
    misconceptions=[
        Misconception(
            "silent units",
            partial(wrong_shares, fires=lambda z: z <= 0),
            "You count the units that stay silent. Those that fire are the rest.",
        ),
        Misconception(
            "whatever is not 0",
            partial(wrong_shares, look=hidden_at, fires=lambda z: z != 0),
            "You count what is not 0. That works for ReLU; GELU makes negative scores small, never 0, so that every "
            "unit seems to fire. Ask whether it is above 0.",
            also=[
                partial(wrong_shares, look=hidden_at, fires=lambda z: z.abs() > 1e-6),
                partial(wrong_shares, look=hidden_at, fires=lambda z: z.abs() > 1e-3),
            ],
        ),
        Misconception(
            "zero counted",
            partial(wrong_shares, look=hidden_at, fires=lambda z: z >= 0),
            "You count 0 as firing, and ReLU gives exactly 0 for every silent unit. A unit fires above 0.",
        ),
        Misconception(
            "padding counted",
            lambda model, ids, pad_id: active_shares(model, ids, -1),
            "You count padding as tokens. What the model does there is of no use to anyone: leave these places out "
            "before the mean.",
        ),
        Misconception(
            "padding counted as silent",
            lambda model, ids, pad_id: [
                ((scores > 0) & (ids != pad_id)[..., None]).double().mean().item() for scores in seen_at(model, ids)
            ],
            "You set the padding to silent and still divide by its number. Leave it out of the count and out of what "
            "you divide by.",
        ),
        Misconception(
            "pad_id taken as 0",
            lambda model, ids, pad_id: active_shares(model, ids, 0),
            "You take 0 for padding, whatever `pad_id` says. Another tokenizer pads with another id.",
        ),
        Misconception(
            "dropout left on",
            lambda model, ids, pad_id: [
                (z[ids != pad_id] > 0).double().mean().item() for z in seen_at(model, ids, evaluate=False)
            ],
            "The model came in training mode, and you left its dropout on: you measured the noise as well. "
            "`evaluating(model)`, or model.eval(), switches it off.",
        ),
        Misconception(
            "firing for any token",
            partial(wrong_shares, share=lambda f: f.any(0).double().mean().item()),
            "You count a unit that fires for some token of the batch. The question is what share fires for *one* "
            "token, on average over tokens.",
        ),
        Misconception(
            "firing for every token",
            partial(wrong_shares, share=lambda f: f.all(0).double().mean().item()),
            "You count the units that fire for every token. The question is what share fires for *one* token, on "
            "average over tokens.",
        ),
        Misconception(
            "last token only",
            lambda model, ids, pad_id: [(z[:, -1] > 0).double().mean().item() for z in seen_at(model, ids)],
            "You look at the last place of each text only, which may even be padding. Take the mean over all tokens.",
        ),
        Misconception(
            "texts weighted alike",
            text_by_text,
            "You take a mean for each text and then the mean of these: a token in a short text then counts more. Take "
            "one mean over all tokens.",
        ),
        Misconception(
            "after the second matrix",
            partial(wrong_shares, look=partial(seen_at, part="feed_forward")),
            "You look at what the feed-forward network puts out, d_model features. The hidden units are inside it, "
            "d_ff of them, before the second matrix.",
        ),
        Misconception(
            "the stream",
            partial(wrong_shares, look=partial(seen_at, part="")),
            "You look at the residual stream after each block, d_model features. The hidden units are inside the "
            "feed-forward network.",
        ),
        Misconception(
            "one figure for all blocks",
            lambda *args: sum(active_shares(*args)) / len(active_shares(*args)),
            "You return one figure for the whole model. Blocks differ a great deal: return one share for each.",
            also=[lambda *args: [sum(active_shares(*args)) / len(active_shares(*args))]],
        ),
        Misconception(
            "number of units",
            partial(wrong_shares, share=lambda f: f.double().sum(-1).mean().item()),
            "You return how many units fire per token. Divide by d_ff: the question asks for the share.",
        ),
        Misconception(
            "per cent",
            lambda *args: [100 * share for share in active_shares(*args)],
            "You return per cent. A share lies between 0 and 1.",
        ),
        Misconception(
            "the notes' figure",
            lambda model, ids, pad_id: [0.4] * len(model.blocks),
            "You return the figure of the course notes, whatever the model. Measure it: before training it is larger, "
            "after it much smaller.",
            also=[lambda model, ids, pad_id: [0.5] * len(model.blocks)],
        ),
    ],
)

# --- feed_forward.ablate_fact -----------------------------------------------------------------------------------------


def top_units(model, ids, answer, candidates, k):
    """Exact up to rounding in float64, so the order is one: no room for noise."""
    before = chance(model, ids, answer)
    drops = [before - without(model, layer, unit, chance, ids, answer) for layer, unit in candidates]
    return pairs(candidates, drops, k)


def chance(model, ids, answer):
    """The probability of `answer` after the last token."""
    model.eval()
    with torch.no_grad():
        return model(ids).softmax(-1)[:, -1, answer]


def without(model, layer, unit, measure, *args, hold=lambda h: 0.0, places=slice(None)):
    """measure(model, *args) while one hidden unit is held at hold(hidden): 0, at all places."""

    def silence(_, inputs):
        (hidden,) = inputs  # (B, T, d_ff)
        there = torch.zeros_like(hidden, dtype=torch.bool)
        there[:, places, unit] = True
        return (torch.where(there, hold(hidden[:, :, unit]), hidden),)

    handle = model.blocks[layer].feed_forward.down_proj.register_forward_pre_hook(silence)
    value = measure(model, *args)
    handle.remove()
    return value


def pairs(candidates, drops, k):
    """The k candidates with the largest drops, strongest first: (k, 2)."""
    order = sorted(range(len(candidates)), key=lambda i: -drops[i])
    return torch.tensor([candidates[i] for i in order[:k]])


def wrong_units(
    model, ids, answer, candidates, k, *, measure=chance, score=lambda before, after: before - after, **how
):
    before = measure(model, ids, answer)
    drops = [score(before, without(model, *unit, measure, ids, answer, **how)) for unit in candidates]
    return pairs(candidates, drops, k)


def logit(model, ids, answer):
    model.eval()
    with torch.no_grad():
        return model(ids)[:, -1, answer]


def chance_everywhere(model, ids, answer):
    model.eval()
    with torch.no_grad():
        return model(ids).softmax(-1)[:, :, answer].mean()


def chance_at_first(model, ids, answer):
    model.eval()
    with torch.no_grad():
        return model(ids).softmax(-1)[:, 0, answer]


def noisy_chance(model, ids, answer):
    with torch.no_grad():
        return model(ids).softmax(-1)[:, -1, answer]


def of_the_favourite(model, ids, answer, candidates, k):
    model.eval()
    return top_units(model, ids, int(model(ids)[0, -1].argmax()), candidates, k)


def never_put_back(model, ids, answer, candidates, k):
    drops, before = [], chance(model, ids, answer)
    for layer, unit in candidates:
        model.blocks[layer].feed_forward.down_proj.weight.data[:, unit] = 0
        drops.append(before - chance(model, ids, answer))
    return pairs(candidates, drops, k)


def hooks_left(model, ids, answer, candidates, k):
    drops, before = [], chance(model, ids, answer)
    for layer, unit in candidates:
        mask = torch.ones(model.config.d_ff, dtype=torch.float64)
        mask[unit] = 0
        model.blocks[layer].feed_forward.down_proj.register_forward_pre_hook(lambda _, x, mask=mask: (x[0] * mask,))
        drops.append(before - chance(model, ids, answer))
    return pairs(candidates, drops, k)


def row_zeroed(model, ids, answer, candidates, k):
    """The weights with which the unit looks are 0; its bias stays."""
    drops, before = [], chance(model, ids, answer)
    for layer, unit in candidates:
        row = model.blocks[layer].feed_forward.up_proj.weight.data[unit]
        kept = row.clone()
        row.zero_()
        drops.append(before - chance(model, ids, answer))
        row.copy_(kept)
    return pairs(candidates, drops, k)


def by_activation(model, ids, answer, candidates, k, *, size=lambda h: h[0, -1]):
    hidden = hidden_at(model, ids)
    return pairs(candidates, [size(hidden[layer])[unit].item() for layer, unit in candidates], k)


def by_gradient(model, ids, answer, candidates, k, *, of=lambda logits, answer: logits.softmax(-1)[answer]):
    """activation × gradient, summed over places."""
    model.eval()
    hidden = []
    handles = [
        block.feed_forward.down_proj.register_forward_pre_hook(lambda _, inputs: hidden.append(inputs[0]))
        for block in model.blocks
    ]
    gradients = torch.autograd.grad(of(model(ids)[0, -1], answer), hidden)
    for handle in handles:
        handle.remove()
    drops = [(hidden[layer] * gradients[layer])[0, :, unit].sum().item() for layer, unit in candidates]
    return pairs(candidates, drops, k)


def by_place(model, ids, answer, candidates, k):
    chosen = top_units(model, ids, answer, candidates, k)
    return torch.stack([torch.tensor(candidates).eq(pair).all(1).nonzero()[0, 0] for pair in chosen])


def in_the_order_of_the_list(model, ids, answer, candidates, k):
    return torch.tensor(candidates)[by_place(model, ids, answer, candidates, k).sort().values]


def one_block(layer):
    """All units looked for in one block, whatever the pair says."""

    def wrong(model, ids, answer, candidates, k):
        before = chance(model, ids, answer)
        drops = [before - without(model, layer, unit, chance, ids, answer) for _, unit in candidates]
        return pairs(candidates, drops, k)

    return wrong


def cut(model, ids, answer, k, units):
    """A case whose candidates are told apart: no two of them change the chance of the answer alike.

    Two ReLU units that never fire change it by exactly as much; and who keeps float32 figures is right, too.
    """
    built, kept = model.make(*model.data), {}
    for layer, unit in units:
        left = without(built, layer, unit, chance, ids, answer)
        if all(abs(left - other) > 1e-6 for other in kept.values()):
            kept[layer, unit] = left
    return Case(model, ids, answer, list(kept), min(k, len(kept)))


def all_units(rng, n_layers, d_ff):
    """Every (layer, unit) of a small model, in drawn order."""
    units = [(layer, unit) for layer in range(n_layers) for unit in range(d_ff)]
    return [units[i] for i in torch.randperm(len(units), generator=rng)]


def one_block_three_units(seed):
    "One block, three units, and the one that matters most."
    rng = generator(seed)
    model = small_model(seed, n_layers=1, d_ff=3, activation="gelu")
    return [cut(model, drawn_ids(rng, 4), 5, 1, all_units(rng, 1, 3))]


def all_units_of_two_blocks(seed):
    "All units of two blocks: the five that matter most to one token, then to another."
    rng = generator(seed)
    model = small_model(seed + 1, activation="gelu", d_ff=8)
    ids, units = drawn_ids(rng, 9), all_units(rng, 2, 8)
    return [cut(model, ids, answer, 5, units) for answer in torch.randperm(23, generator=rng)[:2].tolist()]


def all_of_them_ranked(seed):
    "ReLU units of three blocks, all of them in order."
    rng = generator(seed)
    return [cut(small_model(seed + 2, n_layers=3, d_ff=6), drawn_ids(rng, 7), 0, 99, all_units(rng, 3, 6))]


def training_mode(seed):
    "A model that comes in training mode, with dropout: measure without it."
    rng = generator(seed)
    model = small_model(seed + 3, dropout=0.3, activation="gelu", d_ff=8)
    return [cut(model, drawn_ids(rng, 6), 7, 8, all_units(rng, 2, 8))]


def one_capital(seed):
    "The trained Tinytown model and one capital: ten units that push it, and five drawn ones."
    model, tokenizer = load_pretrained("tinytown")
    rng = generator(seed)
    ids, answers = capital_questions(tokenizer, ASKED)
    country = int(torch.randint(len(CAPITALS), (), generator=rng))
    pushing = strongest(contributions(model, ids, answers)[country], 10)  # (layers, d_ff)
    units = (pushing | strongest(torch.rand(pushing.shape, generator=rng), 5)).nonzero()
    units = [tuple(units[i].tolist()) for i in torch.randperm(len(units), generator=rng)]
    model = Given(given.tinytown, "float64", says="the trained Tinytown model, in float64")
    return [cut(model, ids[[country]], int(answers[country]), 6, units)]


ABLATE_FACT = Exercise(
    id="feed_forward.ablate_fact",
    chapter=6,
    title="Which units carry a capital?",
    kind="experiment",
    points=5,
    difficulty=4,
    minutes=25,
    signature="top_units(model, ids, answer, candidates, k)",
    why="Cut, and see what breaks: the oldest experiment on brains, and the clearest one on networks.",
    reference=top_units,
    rtol=1e-6,
    stages=[one_block_three_units, all_units_of_two_blocks, all_of_them_ranked, training_mode, one_capital],
    hints=[
        "What do you measure once, before you remove anything, and what do you measure again for every candidate?",
        "A unit speaks through one vector: its value. Where in `feed_forward.down_proj.weight` (d_model, d_ff) does "
        "it stand, and what happens to the unit's share if that vector is 0?",
        "Only one unit may be missing at a time. What must happen before you go on to the next candidate?",
        "Keep a copy of the column, set it to 0, measure the probability of `answer` after the last token, put the "
        "copy back. Sort the candidates by how far the probability fell, and return the first k pairs.",
    ],
    misconceptions=[
        Misconception(
            "sign turned round",
            partial(wrong_units, score=lambda before, after: after - before),
            "You return the units whose removal makes the answer *more* probable. Those that carry it are at the other "
            "end: their removal makes it less probable.",
        ),
        Misconception(
            "size of the change",
            partial(wrong_units, score=lambda before, after: abs(after - before)),
            "You rank by the size of the change, whatever its sign. A unit whose removal helps the answer does not "
            "carry it.",
        ),
        Misconception(
            "logit",
            partial(wrong_units, measure=logit),
            "You rank by the logit of the answer. If the other logits fall with it, its probability has not changed: "
            "take the softmax.",
        ),
        Misconception(
            "all places",
            partial(wrong_units, measure=chance_everywhere),
            "You take the mean probability over all places. The answer is due after the last token: read it there.",
        ),
        Misconception(
            "first place",
            partial(wrong_units, measure=chance_at_first),
            "You read the probability after the first token. The answer is due after the last one.",
        ),
        Misconception(
            "removed at the last token only",
            partial(wrong_units, places=slice(-1, None)),
            "You remove the unit at the last token only. At earlier tokens it still speaks, and attention brings what "
            "it said: hold it at 0 everywhere.",
        ),
        Misconception(
            "held at its mean",
            partial(wrong_units, hold=lambda h: h.mean()),
            "You hold the unit at its mean. That is another experiment; here it is removed: held at 0.",
        ),
        Misconception(
            "not put back",
            never_put_back,
            "You do not put a unit back before you remove the next: from the second candidate on, several are missing "
            "at once, and whoever comes last seems to matter most.",
            also=[hooks_left],
        ),
        Misconception(
            "bias left",
            row_zeroed,
            "You set the weights with which the unit looks to 0, but its bias still makes it fire. Silence it after "
            "the bend, or set its column of down_proj to 0.",
        ),
        Misconception(
            "of the favourite",
            of_the_favourite,
            "You measure what happens to the model's favourite token. Measure the token `answer`, favourite or not.",
        ),
        Misconception(
            "ranked by activation",
            by_activation,
            "You rank by how strongly a unit fires. That does not say what it speaks for: remove it and see.",
            also=[
                partial(by_activation, size=lambda h: h[0].mean(0)),
                partial(by_activation, size=lambda h: h[0].amax(0)),
                partial(by_activation, size=lambda h: h[0, -1].abs()),
                partial(by_activation, size=lambda h: h[0].abs().mean(0)),
            ],
        ),
        Misconception(
            "estimated by the gradient",
            by_gradient,
            "You estimate the effect as activation × gradient. That is a good first guess, and the widget of the "
            "chapter uses it; here each candidate is really to be removed.",
            also=[partial(by_gradient, of=lambda logits, answer: logits.log_softmax(-1)[answer])],
        ),
        Misconception(
            "first block only",
            one_block(0),
            "You look for every unit in the first block. A candidate is a pair: its block, and its number there.",
        ),
        Misconception(
            "last block only",
            one_block(-1),
            "You look for every unit in the last block. A candidate is a pair: its block, and its number there.",
        ),
        Misconception(
            "dropout left on",
            partial(wrong_units, measure=noisy_chance),
            "The model came in training mode, and you left its dropout on: what you ranked is noise. "
            "`evaluating(model)`, or model.eval(), switches it off.",
        ),
        Misconception(
            "order lost",
            in_the_order_of_the_list,
            "The right units, in the order of the list. Return the strongest first.",
        ),
        Misconception(
            "weakest first",
            lambda *args: top_units(*args).flip(0),
            "The right units, the other way round. Return the strongest first.",
        ),
        Misconception(
            "places in the list",
            by_place,
            "You return where the units stand in `candidates`. Return the candidates themselves: (block, unit).",
        ),
    ],
)

# --- feed_forward.why_expand ------------------------------------------------------------------------------------------

WHY_EXPAND = Exercise(
    id="feed_forward.why_expand",
    chapter=6,
    title="Why four times as wide, and where is the knowledge?",
    kind="reflect",
    points=0,
    difficulty=3,
    minutes=10,
    why="Both questions have a popular answer that says more than has been measured. Yours should say which is which.",
    min_words=40,
    hints=[
        "What can many hidden units do that few cannot? Think of the kinks in the curve, and of keys and values.",
        "Does anything in the formula, or in the losses that you measured, single out the factor 4?",
        "You cut 96 units and one capital was gone. And what did the model do that never had a feed-forward network?",
    ],
    model_answer=(
        "Each hidden unit adds a bend, and can be read as a key with a value: it looks for one pattern and adds one "
        "vector. More units mean a finer function and more patterns, so the network is widened before it is bent. "
        "Without the bend the width would be wasted, because two matrices are then one. Nothing singles out the 4: it "
        "worked in the first Transformer and stayed. In our small models the loss keeps falling beyond it, without a "
        "kink; what a width costs is parameters and time, so it must be compared with depth at an equal budget. "
        "SwiGLU models take 8/3 with three matrices, which is the same budget. As to knowledge: in the trained model, "
        "silencing 96 of 2,048 units deletes one capital and spares the others, so this model uses these units for "
        "it. That does not show that facts must live there. A model whose feed-forward networks give 0 learns 300 "
        "random facts by heart, in its embeddings and its attention. Use is shown, exclusive storage is not."
    ),
    rubric=[
        "Width gives more bends, or more keys and values; it needs the activation between the two matrices.",
        "4 is a convention: nothing in the formula singles it out, and the measured loss has no kink there.",
        "Width costs parameters and time: a fair comparison is at an equal budget (SwiGLU: 8/3, three matrices).",
        "Cutting a few units deletes one fact and spares others: this model uses them for it.",
        "That is not proof of exclusive storage: without feed-forward networks facts are learned elsewhere.",
    ],
)

EXERCISES = [FORWARD, GELU, GELU_TANH, SWIGLU, SWIGLU_WIDTH, PARAMETERS, SPARSITY, ABLATE_FACT, WHY_EXPAND]
