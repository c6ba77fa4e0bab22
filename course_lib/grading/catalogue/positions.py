"""Chapter 5, positions: seven exercises.

A hand is a pair of features (sine, cosine) that turns by 1 / 10000^(2i / d_model) radians per token.
"""

import math
from functools import partial

import torch

from ..exercise import Case, Exercise, Given, Misconception, generator
from ..given import measured_with_shuffles, self_attention
from ..judge import compare

# --- positions.sinusoidal ---------------------------------------------------------------------------------------------


def sinusoidal_encoding(max_seq_len, d_model):
    position = torch.arange(max_seq_len, dtype=torch.float64)[:, None]  # (max_seq_len, 1)
    feature = torch.arange(d_model, dtype=torch.float64)  # (d_model,)
    angle = position / 10000 ** (2 * (feature // 2) / d_model)  # (max_seq_len, d_model)
    return torch.where(feature % 2 == 0, angle.sin(), angle.cos()).float()


def by_pair(feature, d_model):
    return 2 * (feature // 2) / d_model


def angles(positions, features, d_model, exponent=by_pair, base=10000.0, start=0, turn=1.0):
    """turn · position / base^exponent: (positions, features), float64."""
    position = torch.arange(start, start + positions, dtype=torch.float64)[:, None]
    return turn * position / base ** exponent(features.double(), d_model)


def wrong_table(max_seq_len, d_model, *, even=torch.sin, odd=torch.cos, **steps):
    """The table with one step replaced."""
    feature = torch.arange(d_model)
    angle = angles(max_seq_len, feature, d_model, **steps)
    return torch.where(feature % 2 == 0, even(angle), odd(angle)).float()


def usual_table(max_seq_len, d_model, *, even=torch.sin, odd=torch.cos, **steps):
    """The same as most people write it: it has no room for the cosines of an odd d_model."""
    angle = angles(max_seq_len, torch.arange(0, d_model, 2), d_model, **steps)
    table = torch.zeros(max_seq_len, d_model)
    table[:, 0::2] = even(angle)
    table[:, 1::2] = odd(angle)
    return table


def stacked_table(max_seq_len, d_model):
    """Pairs stacked and laid flat: one feature too many where d_model is odd."""
    angle = angles(max_seq_len, torch.arange(0, d_model, 2), d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()


def cut_table(max_seq_len, d_model):
    return stacked_table(max_seq_len, d_model)[:, : d_model // 2 * 2]


def rounded_up(max_seq_len, d_model):
    return sinusoidal_encoding(max_seq_len, d_model + d_model % 2)[:, :d_model]


def two_halves(max_seq_len, d_model):
    angle = angles(max_seq_len, torch.arange(0, d_model, 2), d_model)
    return torch.cat([angle.sin(), angle.cos()[:, : d_model // 2]], dim=1).float()


def to_the_full_base(feature, d_model):
    return (feature // 2) / max(1, (d_model + 1) // 2 - 1)


def by_even_width(feature, d_model):
    return 2 * (feature // 2) / (d_model - d_model % 2 or 1)


def both_ways(name, sentence, also=(), **steps):
    """A mistake, made by a learner who is careful with an odd d_model and by one who is not."""
    variants = [partial(usual_table, **steps), *also]
    return Misconception(name, partial(wrong_table, **steps), sentence, also=variants)


def first_position(seed):
    "Position 0: every angle is 0, so every sine is 0 and every cosine 1."
    return [Case(1, 2), Case(1, 6)]


def one_hand(seed):
    "One hand, d_model = 2: it turns by one radian per token."
    return [Case(2, 2), Case(4, 2)]


def the_chapters_table(seed):
    "Four hands, d_model = 8: the table of the chapter. Row 10 repeats row 1, one hand further on."
    return [Case(2, 8), Case(11, 8)]


def other_tables(seed):
    "Other sizes: more features than positions, more positions than features, and as many."
    rng = generator(seed)
    drawn = [2 * int(torch.randint(3, 17, (1,), generator=rng)) for _ in range(2)]
    return [Case(6, 6), Case(3, 64), Case(19, drawn[0]), Case(2 * drawn[1], drawn[1])]


def odd_tables(seed):
    "An odd d_model: the slowest hand has a sine, and no cosine."
    return [Case(4, 1), Case(3, 5), Case(7, 7)]


def far_tables(seed):
    "A long table: 2,000 positions."
    return [Case(2000, 4), Case(2000, 9)]


def as_exact_as_float32(case, expected, got):
    """A float32 angle of 2,000 radians is known to 0.0001: computing in float32 is a right way, and loses that much."""
    furthest = abs(case.args[0])
    return compare(expected, got, atol=1e-5 + 3e-7 * furthest)


SINUSOIDAL = Exercise(
    id="positions.sinusoidal",
    chapter=5,
    title="The table of sinusoids",
    kind="code",
    points=3,
    difficulty=2,
    minutes=15,
    signature="sinusoidal_encoding(max_seq_len, d_model)",
    why="The first answer to 'where does this token stand?', and the clock hands in it live on in RoPE.",
    reference=sinusoidal_encoding,
    stages=[first_position, one_hand, the_chapters_table, other_tables, odd_tables, far_tables],
    judge=as_exact_as_float32,
    atol=2e-3,
    hints=[
        "One hand first. By how many radians has hand i turned at position p? Which two numbers of the row tell where "
        "it points?",
        "All positions as a column (max_seq_len, 1), one divisor per hand as a row: what shape has the one divided by "
        "the other?",
        "The features 0, 2, 4 … are sines, the features 1, 3, 5 … cosines of the *same* angles. A slice with a step, "
        "`table[:, 0::2]`, takes every second column.",
        "With an odd d_model there is one sine more than there are cosines. Count the columns of `table[:, 1::2]`, and "
        "leave out the cosine that has no place.",
    ],
    misconceptions=[
        Misconception(
            "halves",
            two_halves,
            "You put all sines first and all cosines after them. Here each sine stands beside the cosine of the same "
            "hand: features 0 and 1 are hand 0, features 2 and 3 are hand 1. (Some libraries do use halves; weights "
            "trained with one order cannot read the other.)",
            also=[
                lambda max_seq_len, d_model: torch.cat(
                    [f(angles(max_seq_len, torch.arange(0, d_model, 2), d_model)) for f in (torch.sin, torch.cos)], 1
                ).float()
            ],
        ),
        both_ways(
            "exponent without the 2",
            "Your hands are too fast: the exponent is 2i / d_model, and yours is i / d_model. The slowest hand then "
            "has a divisor near 100 instead of one near 10,000.",
            exponent=lambda feature, d_model: (feature // 2) / d_model,
        ),
        both_ways(
            "feature taken for hand",
            "Your hands slow down twice too fast: you put the number of the feature, 0, 2, 4 …, where the number of "
            "the hand, 0, 1, 2 …, belongs. Either 2i with i = 0, 1, 2 …, or the features themselves: not both.",
            also=[partial(wrong_table, exponent=lambda feature, d_model: 2 * feature / d_model)],
            exponent=lambda feature, d_model: 4 * (feature // 2) / d_model,
        ),
        Misconception(
            "cosines with a speed of their own",
            partial(wrong_table, exponent=lambda feature, d_model: feature / d_model),
            "Your cosines turn at another speed than their sines: the exponent of feature 2i + 1 is 2i / d_model, too. "
            "Sine and cosine are two views of one hand, with one angle.",
        ),
        both_ways(
            "slowest divisor exactly 10,000",
            "You spread the speeds so that the last hand has the divisor 10,000. With 2i / d_model the last exponent "
            "stays a little below 1: divide by the number of hands, not by one less.",
            exponent=to_the_full_base,
        ),
        both_ways(
            "sine and cosine exchanged",
            "Your cosines stand where the sines belong: look at position 0, which should read 0, 1, 0, 1, … Even "
            "features are sines.",
            even=torch.cos,
            odd=torch.sin,
        ),
        both_ways(
            "no cosines",
            "All your features are sines. A sine alone does not say where a hand points (it has the same value on the "
            "way up and on the way down): the odd features are cosines.",
            odd=torch.sin,
        ),
        both_ways(
            "multiplied",
            "You multiply the position by 10000^(2i / d_model), so that the later hands whirl. Divide: they should go "
            "slower and slower.",
            exponent=lambda feature, d_model: -by_pair(feature, d_model),
        ),
        both_ways(
            "counting from one",
            "Your first row is position 1. Positions count from 0, and the row of position 0 is 0, 1, 0, 1, …",
            start=1,
        ),
        both_ways(
            "degrees",
            "You take the angles for degrees and convert them. The formula's angles are radians, which is what sin and "
            "cos expect.",
            turn=math.pi / 180,
        ),
        both_ways(
            "turns",
            "You multiply the angle by 2π. The formula has no π: hand 0 turns by one radian per token, so a full turn "
            "takes 2π tokens.",
            turn=2 * math.pi,
        ),
        both_ways(
            "another base",
            "Your hands have another base than 10,000. Other bases work as well, but the speeds must be the ones that "
            "the model was trained with: here the base is 10,000.",
            also=[partial(kind, base=base) for base in (1024.0, 1e5) for kind in (wrong_table, usual_table)],
            base=1000.0,
        ),
        Misconception(
            "position as a share of the length",
            lambda max_seq_len, d_model: wrong_table(max_seq_len, d_model, turn=1 / max_seq_len),
            "You divide the position by the length of the table, so that a step is smaller in a longer text. Position "
            "5 must have the same code in every table.",
            also=[lambda max_seq_len, d_model: usual_table(max_seq_len, d_model, turn=1 / max_seq_len)],
        ),
        Misconception(
            "rows and columns exchanged",
            lambda max_seq_len, d_model: sinusoidal_encoding(max_seq_len, d_model).T,
            "Your table lies on its side: (d_model, max_seq_len). A position is a row, as a token is in the table of "
            "embeddings.",
            also=[lambda max_seq_len, d_model: usual_table(max_seq_len, d_model).T],
        ),
        Misconception(
            "a batch axis",
            lambda max_seq_len, d_model: sinusoidal_encoding(max_seq_len, d_model)[None],
            "Your table has an axis more, of size 1, for a batch. Return (max_seq_len, d_model): broadcasting adds "
            "that axis by itself when the table meets x.",
            also=[lambda max_seq_len, d_model: usual_table(max_seq_len, d_model)[None]],
        ),
        Misconception(
            "odd d_model fails",
            usual_table,
            "Right for every even d_model. An odd one has a sine more than cosines: the last cosine finds no column. "
            "Leave that one out.",
        ),
        Misconception(
            "odd d_model gets the wrong width",
            stacked_table,
            "Right for every even d_model. For an odd one the table must still be d_model wide: the slowest hand keeps "
            "its sine, and its cosine is left out.",
            also=[cut_table],
        ),
        Misconception(
            "odd d_model rounded up",
            rounded_up,
            "Right for every even d_model. For an odd one you take the speeds of d_model + 1. The formula divides by "
            "d_model itself, odd or not.",
            also=[lambda max_seq_len, d_model: wrong_table(max_seq_len, d_model, exponent=by_even_width)],
        ),
    ],
)


# --- positions.wavelength ---------------------------------------------------------------------------------------------

SLOWEST = 10000 ** (510 / 512)  # the divisor of the last of 256 hands

WAVELENGTH = Exercise(
    id="positions.wavelength",
    chapter=5,
    title="How long is the slowest turn?",
    kind="number",
    points=1,
    difficulty=2,
    minutes=5,
    why="It says up to where no two positions look alike, and the course notes' figure is six times too small.",
    reference=2 * math.pi * SLOWEST,
    rtol=1e-3,
    hints=[
        "d_model = 512 makes 256 hands. Which number has the last one, if the first has number 0?",
        "Put that number into 10000^(2i / d_model). By how many radians does this hand turn at each token?",
        "A full turn is 2π radians. How many tokens does it take at that speed?",
    ],
    misconceptions=[
        Misconception(
            "the divisor",
            SLOWEST,
            "That is the divisor of the slowest hand: after so many tokens it has turned by one radian. A full turn "
            "has 2π of them.",
            also=[9_650, 9_600],
            rtol=1e-3,
        ),
        Misconception(
            "the notes' figure",
            10_000,
            "The course notes say 10,000. That is the base of the formula; after 10,000 tokens the slowest hand has "
            "turned by about one radian, a sixth of the way round.",
        ),
        Misconception(
            "a hand too many",
            2 * math.pi * 10000,
            "That is 2π · 10,000, the limit that the hands come near. The last of 256 hands has number 255, because "
            "the first has number 0: its exponent is a little below 1.",
            rtol=1e-3,
        ),
        Misconception(
            "feature 511",
            2 * math.pi * 10000 ** (511 / 512),
            "You put feature 511 into the exponent. It is the cosine of the last hand, and has the angle of its sine: "
            "the exponent is 2i / d_model, with 2i = 510.",
            rtol=1e-3,
        ),
        Misconception(
            "exponent without the 2",
            2 * math.pi * 10000 ** (255 / 512),
            "Your exponent is i / d_model. The formula has 2i / d_model, and the last hand is i = 255.",
            also=[2 * math.pi * 10000 ** (256 / 512)],
            rtol=1e-3,
        ),
        Misconception(
            "the hand before",
            2 * math.pi * 10000 ** (508 / 512),
            "That is the last hand but one. There are 256 hands, numbered from 0.",
            rtol=1e-3,
        ),
        Misconception(
            "half a turn",
            math.pi * SLOWEST,
            "That is half a turn. A full one has 2π radians.",
            rtol=1e-3,
        ),
        Misconception(
            "degrees",
            360 * SLOWEST,
            "You take 360 for a full turn. The divisor belongs to angles in radians, and a full turn has 2π of those.",
            rtol=1e-3,
        ),
        Misconception(
            "the fastest hand",
            2 * math.pi,
            "That is the fastest hand, i = 0. The question is about the last one.",
            also=[6.28, 6],
            rtol=1e-3,
        ),
        Misconception(
            "divided by 2π",
            SLOWEST / (2 * math.pi),
            "You divide by 2π. After one radian there are some more radians to go: a full turn takes longer, not "
            "shorter.",
            rtol=1e-3,
        ),
        Misconception(
            "turns per token",
            1 / (2 * math.pi * SLOWEST),
            "That is the part of a turn that it makes per token. Turn it round: tokens per turn.",
            also=[1 / SLOWEST, 2 * math.pi / SLOWEST],
            rtol=2e-2,
        ),
        Misconception(
            "rounded",
            60_000,
            "Right in size. Give it to the token: the question is about one hand, whose divisor you can compute.",
            also=[61_000, 60_500],
            rtol=1e-4,
        ),
    ],
)

# --- positions.shift_matrix -------------------------------------------------------------------------------------------


def shift_matrix(k, d_model):
    turn = k / 10000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (d_model / 2,)
    blocks = torch.stack([turn.cos(), turn.sin(), -turn.sin(), turn.cos()], dim=-1)  # (d_model / 2, 4)
    return torch.block_diag(*blocks.view(-1, 2, 2)).float()


def hand_turns(k, d_model):
    return k * angles(2, torch.arange(0, d_model, 2), d_model)[1]  # (d_model / 2,): radians in k tokens


def on_sine_and_cosine(turn):
    c, s = turn.cos(), turn.sin()
    return torch.stack([c, s, -s, c], dim=-1).view(-1, 2, 2)


def wrong_shift(k, d_model, *, turns=hand_turns, blocks=on_sine_and_cosine, assemble=torch.block_diag):
    """The matrix with one step replaced."""
    return assemble(*blocks(turns(k, d_model))).float()


def in_halves(*blocks):
    blocks = torch.stack(blocks)  # (d_model / 2, 2, 2)
    rows = [torch.cat([blocks[:, i, j].diag() for j in (0, 1)], dim=1) for i in (0, 1)]
    return torch.cat(rows)


def without_a_minus(turn):
    c, s = turn.cos(), turn.sin()
    return torch.stack([c, s, s, c], dim=-1).view(-1, 2, 2)


def cosines_only(turn):
    return turn.cos()[:, None, None] * torch.eye(2, dtype=turn.dtype)


def from_position_zero(k, d_model):
    """A matrix of rank one that takes position 0 to position k, and no other where it should."""
    zero = sinusoidal_encoding(1, d_model)[0].double()
    angle = hand_turns(k, d_model)
    there = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten()
    return (torch.outer(there, zero) / (zero @ zero)).float()


def no_step(seed):
    "k = 0: who does not move keeps the code, so the matrix is the identity."
    return [Case(0, 2), Case(0, 6)]


def one_hand_moves(seed):
    "One hand, d_model = 2: one token on, two tokens on."
    return [Case(1, 2), Case(2, 2)]


def the_chapters_step(seed):
    "Five tokens on with d_model = 8, as in the chapter: four hands, each with a turn of its own."
    return [Case(1, 4), Case(5, 8)]


def back(seed):
    "A negative k goes back: three tokens before me."
    return [Case(-1, 2), Case(-3, 6)]


def other_steps(seed):
    "Other steps and widths; k as large as d_model, and far beyond."
    rng = generator(seed)
    k, half = (int(torch.randint(low, 20, (1,), generator=rng)) for low in (6, 5))
    return [Case(k, 2 * half), Case(-k, 2 * half + 2), Case(6, 6), Case(700, 16)]


SHIFT_MATRIX = Exercise(
    id="positions.shift_matrix",
    chapter=5,
    title="A step is a matrix",
    kind="code",
    points=3,
    difficulty=3,
    minutes=20,
    signature="shift_matrix(k, d_model)",
    why="One matrix for all positions: this is how a learned projection can ask for 'three tokens before me'.",
    reference=shift_matrix,
    stages=[no_step, one_hand_moves, the_chapters_step, back, other_steps],
    judge=as_exact_as_float32,
    atol=2e-3,
    hints=[
        "One hand first. At position p it reads (sin a, cos a), k tokens later (sin (a + b), cos (a + b)). What is b?",
        "The addition formulas from school: sin (a + b) = sin a cos b + cos a sin b, and cos (a + b) = cos a cos b − "
        "sin a sin b. Read off the four numbers of a 2 × 2 matrix that acts on (sin a, cos a).",
        "Hands do not mix: the whole matrix has one 2 × 2 block per hand along the diagonal, and zeros elsewhere. "
        "`torch.block_diag` lays blocks along a diagonal.",
        "Test it before you check: take two rows of your table, k apart, and multiply.",
    ],
    misconceptions=[
        Misconception(
            "turned back",
            partial(wrong_shift, blocks=lambda turn: on_sine_and_cosine(turn).mT),
            "Your matrix leads from p to p − k. The rotation matrix from school acts on (cos, sin); here the sine "
            "comes first, so the minus sign sits in the other corner. (The same happens if you write PE[p] @ M: the "
            "matrix stands on the left of the column PE[p].)",
            also=[lambda k, d_model: shift_matrix(-k, d_model)],
        ),
        Misconception(
            "sign missing",
            partial(wrong_shift, blocks=without_a_minus),
            "Both your sines have the same sign, so that the block stretches the hand instead of turning it. In a turn "
            "one of the two is negative.",
        ),
        Misconception(
            "both sines negative",
            partial(
                wrong_shift,
                blocks=lambda turn: without_a_minus(-turn),
            ),
            "Both your sines are negative, so that the block stretches the hand instead of turning it. In a turn one "
            "of the two is positive.",
        ),
        Misconception(
            "cosines on the diagonal only",
            partial(wrong_shift, blocks=cosines_only),
            "You have the cosines on the diagonal and nothing beside them. The new sine needs the old cosine as well: "
            "sin (a + b) = sin a cos b + cos a sin b.",
        ),
        Misconception(
            "one turn for all hands",
            partial(wrong_shift, turns=lambda k, d_model: torch.full((d_model // 2,), float(k), dtype=torch.float64)),
            "All your blocks turn by k radians. Each hand has its own speed: in k tokens hand i turns by k / "
            "10000^(2i / d_model).",
        ),
        Misconception(
            "exponent without the 2",
            partial(
                wrong_shift,
                turns=lambda k, d_model: (
                    k * angles(2, torch.arange(0, d_model, 2), d_model, lambda feature, d: feature / 2 / d)[1]
                ),
            ),
            "Your hands are too fast: the exponent is 2i / d_model, and yours is i / d_model.",
        ),
        Misconception(
            "feature taken for hand",
            partial(
                wrong_shift,
                turns=lambda k, d_model: (
                    k * angles(2, torch.arange(0, d_model, 2), d_model, lambda feature, d: 2 * feature / d)[1]
                ),
            ),
            "You put 0, 2, 4 … in for i and double it once more. The hands count 0, 1, 2, …",
        ),
        Misconception(
            "halves",
            partial(wrong_shift, assemble=in_halves),
            "Your matrix expects all sines first and all cosines after them. In this table they alternate, so the "
            "2 × 2 blocks stand along the diagonal.",
        ),
        Misconception(
            "always one step",
            lambda k, d_model: shift_matrix(1, d_model),
            "You always go one token on. In k tokens each hand turns k times as far.",
        ),
        Misconception(
            "never back",
            lambda k, d_model: shift_matrix(abs(k), d_model),
            "Your matrix goes on where k is negative. The sign of k is the direction: k = −3 asks for three tokens "
            "before.",
        ),
        Misconception(
            "no step for a negative k",
            lambda k, d_model: shift_matrix(max(0, k), d_model),
            "For a negative k your matrix is the identity: a product of k one-step matrices has no factors there. "
            "Turning by a negative angle goes back.",
        ),
        Misconception(
            "right for position 0 alone",
            from_position_zero,
            "Your matrix takes PE[0] to PE[k], and no other position to where it belongs. It must not depend on p: "
            "what turns every hand by the same angle, wherever it stands?",
            also=[
                lambda k, d_model: torch.outer(
                    shift_matrix(k, d_model) @ sinusoidal_encoding(1, d_model)[0], sinusoidal_encoding(1, d_model)[0]
                )
            ],
        ),
        Misconception(
            "features moved",
            lambda k, d_model: torch.eye(d_model).roll(k, 0),
            "Your matrix moves the features k places down. It is the hands that move on: each turns, and stays at its "
            "place in the vector.",
            also=[lambda k, d_model: torch.eye(d_model).roll(k, 1)],
        ),
        Misconception(
            "degrees",
            partial(wrong_shift, turns=lambda k, d_model: hand_turns(k, d_model) * math.pi / 180),
            "You take the angles for degrees and convert them. The formula's angles are radians.",
        ),
    ],
)

# --- positions.rotary -------------------------------------------------------------------------------------------------


def apply_rotary(x, positions, theta):
    D = x.shape[-1]
    speed = theta ** (-torch.arange(0, D, 2, dtype=x.dtype) / D)  # (D / 2,), radians per token
    angle = positions[:, None] * speed  # (T, D / 2)
    first, second = x[..., : D // 2], x[..., D // 2 :]  # (B, H, T, D / 2) each
    turned = [first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()]
    return torch.cat(turned, dim=-1)


def speeds(x, theta):
    return theta ** (-torch.arange(0, x.shape[-1], 2, dtype=x.dtype) / x.shape[-1])


def by_place(positions, speed):
    return positions[:, None] * speed


def turn_halves(x, angle):
    first, second = x.chunk(2, dim=-1)
    return torch.cat(turned_pair(first, second, angle), dim=-1)


def turned_pair(first, second, angle):
    return first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()


def turn_neighbours(x, angle):
    return torch.stack(turned_pair(x[..., 0::2], x[..., 1::2], angle), dim=-1).flatten(-2)


def wrong_rotary(x, positions, theta, *, speed=speeds, angle=by_place, turn=turn_halves):
    """Rotary positions whose three steps can be replaced one by one."""
    return turn(x, angle(positions, speed(x, theta)))


def both_plus(x, angle):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * angle.cos() + second * angle.sin(), first * angle.sin() + second * angle.cos()], dim=-1)


def second_from_the_new_first(x, angle):
    first, second = x.chunk(2, dim=-1)
    first = first * angle.cos() - second * angle.sin()
    return torch.cat([first, first * angle.sin() + second * angle.cos()], dim=-1)


def angles_of_neighbours(x, angle):
    """Pairs of halves, with the angles in the order of neighbours."""
    angle = angle.repeat_interleave(2, dim=-1)  # (T, D)
    first, second = x.chunk(2, dim=-1)
    return x * angle.cos() + torch.cat([-second, first], dim=-1) * angle.sin()


def halves_reversed(x, angle):
    first, second = x.chunk(2, dim=-1)
    return torch.cat(turned_pair(second, first, angle), dim=-1)


def first_half_only(x, angle):
    first, second = x.chunk(2, dim=-1)
    return torch.cat([turned_pair(first, second, angle)[0], second], dim=-1)


def added_hands(x, angle):
    return x + torch.cat([angle.sin(), angle.cos()], dim=-1)


def drawn_x(rng, B, H, T, D, dtype=torch.float32):
    return torch.randn(B, H, T, D, generator=rng, dtype=torch.float64).to(dtype)


def at_the_start(seed):
    "One token at position 0: nothing is turned."
    rng = generator(seed)
    start = torch.tensor([0])
    return [Case(drawn_x(rng, 1, 1, 1, 4), start, 10000.0), Case(drawn_x(rng, 2, 1, 1, 6, torch.float64), start, 100.0)]


def one_pair(seed):
    "One pair of features, turned by one radian per token: (1, 0) at position 1 becomes (cos 1, sin 1)."
    x = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    rng = generator(seed)
    return [Case(x, torch.tensor([1]), 10000.0), Case(drawn_x(rng, 1, 1, 3, 2), torch.arange(3), 10000.0)]


def two_pairs(seed):
    "Two pairs, features 0 and 2, 1 and 3. With theta = 100 the second turns by a tenth of a radian per token."
    rng = generator(seed)
    return [
        Case(torch.tensor([1.0, 0.0, 0.0, 0.0]).view(1, 1, 1, 4), torch.tensor([2]), 100.0),
        Case(drawn_x(rng, 1, 1, 1, 4), torch.tensor([3]), 100.0),
        Case(drawn_x(rng, 1, 1, 3, 6), torch.arange(3), 10000.0),
    ]


def batch_and_heads(seed):
    "A batch of several heads. A position belongs to axis 2, whatever the other axes are, and x may be a view."
    rng = generator(seed)
    view = drawn_x(rng, 2, 5, 3, 4).transpose(1, 2)  # (2, 3, 5, 4)
    return [
        Case(drawn_x(rng, 2, 3, 4, 6), torch.arange(4), 10000.0),
        Case(drawn_x(rng, 4, 4, 4, 4), torch.arange(4), 10000.0),
        Case(view, torch.arange(5), 500000.0),
    ]


def elsewhere(seed):
    "Positions that do not begin at 0, have gaps or come twice, as with a cache, and another theta."
    rng = generator(seed)
    apart = torch.randint(20, 60, (3,), generator=rng)
    return [
        Case(drawn_x(rng, 1, 2, 1, 4), torch.tensor([7]), 10000.0),
        Case(drawn_x(rng, 2, 1, 3, 8), torch.tensor([5, 6, 7]), 50.0),
        Case(drawn_x(rng, 1, 2, 4, 10), torch.cat([apart, apart[:1]]), 500000.0),
    ]


def double_and_far(seed):
    "float64 in, float64 out; positions in the thousands; large numbers in x."
    rng = generator(seed)
    return [
        Case(drawn_x(rng, 1, 2, 3, 4, torch.float64), torch.tensor([0, 1, 2]), 10000.0),
        Case(100 * drawn_x(rng, 1, 1, 2, 6), torch.tensor([1000, 4000]), 10000.0),
    ]


def angles_in_float32(case, expected, got):
    """Turning in float32 is a right way, whatever the dtype of x: at position 4,000 an angle is known to 0.0005."""
    x, positions, _ = case.args
    furthest, largest = int(positions.max()), float(x.abs().max())
    return compare(expected, got, rtol=1e-6, atol=1e-6 * (1 + furthest) * (1 + largest))


ROTARY = Exercise(
    id="positions.rotary",
    chapter=5,
    title="RoPE: turn the queries and the keys",
    kind="code",
    points=4,
    difficulty=3,
    minutes=25,
    signature="apply_rotary(x, positions, theta)",
    why="Most open models since LLaMA tell positions this way, and the order of the pairs is a classic trap.",
    reference=apply_rotary,
    stages=[at_the_start, one_pair, two_pairs, batch_and_heads, elsewhere, double_and_far],
    judge=angles_in_float32,
    atol=1e-3,
    hints=[
        "D features make D / 2 pairs. Which feature is the partner of feature 0, if the pairs are half-split?",
        "Pair i turns by `position` times theta^(−2i / D). Positions as a column and speeds as a row give all angles "
        "at once, (T, D / 2). Does that broadcast against (B, H, T, D / 2)?",
        "A turn of (a, b) by an angle: the new a is a cos − b sin, the new b is a sin + b cos, both from the *old* a "
        "and b.",
        "Take x apart into its two halves, turn, and lay the halves end to end again with `torch.cat`.",
    ],
    misconceptions=[
        Misconception(
            "not turned",
            lambda x, positions, theta: x.clone(),
            "Your x comes back as it went in. Only at position 0 is that right.",
            also=[lambda x, positions, theta: x],
        ),
        Misconception(
            "neighbours paired",
            partial(wrong_rotary, turn=turn_neighbours),
            "You pair features 2i and 2i + 1 (interleaved, as in the paper). Here feature i goes with i + D / 2 "
            "(half-split, as in Hugging Face's Llama). Both keep every length; weights trained with one are noise "
            "to the other.",
        ),
        Misconception(
            "turned backwards",
            partial(wrong_rotary, angle=lambda positions, speed: -by_place(positions, speed)),
            "You turn the other way round: (1, 0) must go to (cos, sin). The score of two such vectors is the same, "
            "but a key turned one way and a query turned the other no longer know their distance.",
        ),
        Misconception(
            "positions ignored",
            partial(
                wrong_rotary,
                angle=lambda positions, speed: by_place(torch.arange(len(positions)), speed),
            ),
            "You count the tokens of x from 0. They stand where `positions` says: behind a cache the first of them may "
            "be number 1,000.",
        ),
        Misconception(
            "positions from one",
            partial(wrong_rotary, angle=lambda positions, speed: by_place(positions + 1, speed)),
            "You add 1 to the positions. At position 0 nothing is turned.",
        ),
        Misconception(
            "one position for all",
            partial(wrong_rotary, angle=lambda positions, speed: by_place(positions[:1], speed)),
            "You turn all tokens by the angle of the first. Then no score depends on any distance: each token turns by "
            "its own position.",
            also=[partial(wrong_rotary, angle=lambda positions, speed: by_place(positions[-1:], speed))],
        ),
        Misconception(
            "theta ignored",
            lambda x, positions, theta: apply_rotary(x, positions, 10000.0),
            "You always take 10,000. `theta` is an argument, because models differ in it: Llama 3 has 500,000.",
        ),
        Misconception(
            "one speed for all pairs",
            partial(wrong_rotary, speed=lambda x, theta: torch.ones(x.shape[-1] // 2, dtype=x.dtype)),
            "All your pairs turn by one radian per token. Pair i has its own speed, theta^(−2i / D): the first is the "
            "fastest.",
        ),
        Misconception(
            "exponent without the 2",
            partial(wrong_rotary, speed=lambda x, theta: speeds(x, theta) ** 0.5),
            "Your pairs are too fast: the exponent is −2i / D, with i = 0 … D / 2 − 1, and yours is −i / D.",
        ),
        Misconception(
            "exponent doubled",
            partial(wrong_rotary, speed=lambda x, theta: speeds(x, theta) ** 2),
            "Your pairs slow down twice too fast. Either 2i with i = 0, 1, 2 … or the numbers 0, 2, 4 … themselves, "
            "divided by D: not both, and not by D / 2.",
        ),
        Misconception(
            "exponent of the wrong sign",
            partial(wrong_rotary, speed=lambda x, theta: 1 / speeds(x, theta)),
            "Your later pairs turn faster and faster: the exponent is negative, so that they turn slower.",
        ),
        Misconception(
            "sign missing",
            partial(wrong_rotary, turn=both_plus),
            "Both your sines have a plus. Then the lengths change, and a turn changes no length: the first half is "
            "a cos − b sin.",
        ),
        Misconception(
            "second half from the new first",
            partial(wrong_rotary, turn=second_from_the_new_first),
            "You overwrite the first half and then use it for the second. Both halves of the result come from the old "
            "ones: keep them until both are done.",
        ),
        Misconception(
            "angles in the order of neighbours",
            partial(wrong_rotary, turn=angles_of_neighbours),
            "Your pairs are half-split, but you repeat the angles for neighbours: a, a, b, b, … Partner features stand "
            "D / 2 apart here, so the row of angles is laid down twice, one after the other: a, b, …, a, b, …",
        ),
        Misconception(
            "halves exchanged",
            partial(wrong_rotary, turn=halves_reversed),
            "You have exchanged the two halves: even at position 0 your result is not x.",
        ),
        Misconception(
            "second half left as it is",
            partial(wrong_rotary, turn=first_half_only),
            "You turn the first half and leave the second. A turn moves both numbers of a pair.",
        ),
        Misconception(
            "positions along the heads",
            lambda x, positions, theta: turn_halves(x.transpose(1, 2), by_place(positions, speeds(x, theta))).transpose(
                1, 2
            ),
            "Your angles run along the heads, axis 1. That fits x of shape (B, T, H, D); here x is (B, H, T, D), and "
            "the tokens lie on axis 2.",
            also=[
                lambda x, positions, theta: turn_halves(x, by_place(positions, speeds(x, theta))[:, None]),
            ],
        ),
        Misconception(
            "added",
            partial(wrong_rotary, turn=added_hands),
            "You add sines and cosines to x, as the 2017 model does with its table. RoPE adds nothing: it turns what "
            "is there.",
        ),
        Misconception(
            "always float32",
            lambda x, positions, theta: apply_rotary(x.float(), positions, theta),
            "You return float32 whatever comes in. Leave the dtype of x as it is.",
        ),
    ],
)

# --- positions.equivariance -------------------------------------------------------------------------------------------


def equivariance_error(f, x, n_shuffles):
    largest, plain = 0.0, f(x)
    for _ in range(n_shuffles):
        order = torch.randperm(x.shape[1])
        largest = max(largest, (f(x[:, order]) - plain[:, order]).abs().max().item())
    return largest


def wrong_error(f, x, n_shuffles, *, shuffle=None, follow=None, size=lambda d: d.abs().max(), over=max, axis=1):
    """The measurement with one step replaced: what goes in, what it is held against, how large, over all shuffles."""

    def reorder(text, order):
        return text.index_select(axis, order)

    shuffle, follow = shuffle or reorder, follow or reorder
    plain, sizes = f(x), []
    for _ in range(n_shuffles):
        order = torch.randperm(x.shape[axis])
        sizes.append(size(f(shuffle(x, order)) - follow(plain, order)).item())
    return over(sizes)


def back_and_forth(f, x, n_shuffles):
    """Shuffles the tokens, applies f, and shuffles once more where it should put them back."""
    plain, largest = f(x), 0.0
    for _ in range(n_shuffles):
        order = torch.randperm(x.shape[1])
        largest = max(largest, (f(x[:, order])[:, order] - plain).abs().max().item())
    return largest


def mean(values):
    return sum(values) / len(values)


def drawn_text(rng, B, T, D, *, sign=1, added=False, causal=False, dtype=torch.float64):
    """A case: attention with drawn weights and a text, and so many shuffles that every order of T tokens comes."""
    W_Q, W_K, W_V = (torch.randn(D, D, generator=rng, dtype=dtype) for _ in range(3))
    places = torch.randn(T, D, generator=rng, dtype=dtype) if added else None
    says = "attention" + (" with positions" if added else " without positions") + (", causal" if causal else "")
    x = torch.randn(B, T, D, generator=rng, dtype=dtype)
    return Given(self_attention, W_Q, W_K, sign * W_V, places, causal, says=says), x, {2: 24, 3: 100, 4: 400}[T]


def two_tokens(seed):
    "Two tokens, which can only be exchanged, and attention with positions: the outputs do not follow."
    return [Case(*drawn_text(generator(seed), 1, 2, 3, added=True))]


def without_positions(seed):
    "Attention without positions: nothing is left but rounding, in float32 and in float64."
    rng = generator(seed)
    return [
        Case(*drawn_text(rng, 1, 3, 4, dtype=torch.float32)),
        Case(*drawn_text(rng, 2, 3, 4)),
        Case(*drawn_text(rng, 3, 3, 3)),
    ]


def with_positions(seed):
    "Attention with positions, in a batch: the largest deviation over all entries and shuffles, of either sign."
    rng = generator(seed)
    state = rng.get_state()
    here = Case(*drawn_text(rng, 2, 3, 5, added=True))
    rng.set_state(state)
    return [here, Case(*drawn_text(rng, 2, 3, 5, sign=-1, added=True)), Case(*drawn_text(rng, 4, 4, 4, added=True))]


def behind_a_mask(seed):
    "Causal attention without positions: it matters who came before."
    rng = generator(seed)
    return [Case(*drawn_text(rng, 1, 3, 4, causal=True)), Case(*drawn_text(rng, 2, 4, 3, causal=True))]


EQUIVARIANCE = Exercise(
    id="positions.equivariance",
    chapter=5,
    title="Does it follow a shuffle?",
    kind="experiment",
    points=3,
    difficulty=3,
    minutes=20,
    signature="equivariance_error(f, x, n_shuffles)",
    why="Two of the course notes call attention invariant. One number tells equivariant from invariant, and from both.",
    reference=equivariance_error,
    probe=measured_with_shuffles,
    returns=["largest deviation", "shuffled texts that f was asked about"],
    stages=[two_tokens, without_positions, with_positions, behind_a_mask],
    # 24 orders of four tokens, and 400 draws: one order stays unseen in fewer than one run in a million, so that the
    # largest deviation is the same for every way of drawing. What is left is rounding: 1e-6 in float32.
    rtol=1e-4,
    atol=1e-5,
    hints=[
        "There are two ways to f(x) in another order: shuffle first and then apply f, or the other way round. Write "
        "both down for one order.",
        "`torch.randperm(T)` draws an order, and indexing with it reorders an axis. Which axis of x (B, T, D) holds "
        "the tokens? The output must be reordered by the same order.",
        "Subtract, take absolute values, and keep the largest number that you have seen, over all entries and all "
        "shuffles.",
    ],
    misconceptions=[
        Misconception(
            "invariance measured",
            partial(wrong_error, follow=lambda plain, order: plain),
            "You compare f(Px) with f(x) itself. That asks whether the outputs stay at their places (invariant). The "
            "question is whether they move along: compare with f(x) reordered in the same way.",
        ),
        Misconception(
            "two different orders",
            partial(wrong_error, follow=lambda plain, order: plain[:, order.argsort()]),
            "You reorder f(x) by another order than x: by the inverse one, or by one drawn anew. (With two tokens the "
            "inverse is the same; with three it is not.) What goes in at place t comes out at place t: draw one order "
            "and use it on both sides.",
            also=[
                back_and_forth,
                partial(wrong_error, follow=lambda plain, order: plain[:, torch.randperm(plain.shape[1])]),
            ],
        ),
        Misconception(
            "features shuffled",
            partial(wrong_error, axis=2),
            "You shuffle the last axis, the features. The tokens lie on axis 1 of (B, T, D).",
        ),
        Misconception(
            "tokens not shuffled",
            partial(wrong_error, axis=0),
            "Your deviation is 0 for every f, because the tokens stay at their places. Reorder axis 1 of x (B, T, D) "
            "before you apply f. (Axis 0 holds the texts of the batch, and they never meet.)",
            also=[partial(wrong_error, shuffle=lambda x, order: x, follow=lambda plain, order: plain)],
        ),
        Misconception(
            "n_shuffles ignored",
            lambda f, x, n_shuffles: equivariance_error(f, x, 1000),
            "You try a number of shuffles of your own. `n_shuffles` says how many: the caller knows what a call costs.",
            also=[lambda f, x, n_shuffles: equivariance_error(f, x, 100)],
        ),
        Misconception(
            "one shuffle",
            lambda f, x, n_shuffles: equivariance_error(f, x, 1),
            "You try one shuffle. It may be the identity, or a harmless one: try `n_shuffles` of them and keep the "
            "largest deviation.",
        ),
        Misconception(
            "the last shuffle",
            partial(wrong_error, over=lambda sizes: sizes[-1]),
            "You return the deviation of the last shuffle. Keep the largest of all.",
            also=[partial(wrong_error, over=lambda sizes: sizes[0])],
        ),
        Misconception(
            "mean over the shuffles",
            partial(wrong_error, over=mean),
            "You average over the shuffles. The question is the largest deviation: one order that fails is enough.",
        ),
        Misconception(
            "sum over the shuffles",
            partial(wrong_error, over=sum),
            "You add the deviations of all shuffles up. Keep the largest.",
        ),
        Misconception(
            "mean over the entries",
            partial(wrong_error, size=lambda d: d.abs().mean()),
            "You average over the entries of the output. A deviation in one of them counts in full: take the largest.",
        ),
        Misconception(
            "sign kept",
            partial(wrong_error, size=lambda d: d.max()),
            "You take the largest difference with its sign. A large negative one counts as well: absolute values "
            "first.",
        ),
        Misconception(
            "norm",
            partial(wrong_error, size=lambda d: d.norm()),
            "You take the norm of the whole difference, which grows with the size of the text. Take the largest "
            "absolute entry.",
            also=[partial(wrong_error, size=lambda d: d.norm(dim=-1).max())],
        ),
        Misconception(
            "squared",
            partial(wrong_error, size=lambda d: d.square().max()),
            "You return the square of the largest deviation. Take absolute values instead.",
        ),
        Misconception(
            "f not asked",
            lambda f, x, n_shuffles: 0.0,
            "You return 0 without asking f about a shuffled text. That is the theory, and only for attention without "
            "positions: shuffle the tokens, apply f to what you have shuffled, and measure.",
            also=[lambda f, x, n_shuffles: wrong_error(lambda text: text, x, n_shuffles)],
        ),
        Misconception(
            "a verdict",
            lambda f, x, n_shuffles: wrong_error(f, x, n_shuffles) < 1e-4,
            "You return True or False. Return the number itself: how large is the deviation?",
        ),
    ],
)


# --- positions.learned_parameters -------------------------------------------------------------------------------------

LEARNED_PARAMETERS = Exercise(
    id="positions.learned_parameters",
    chapter=5,
    title="The price of a learned table",
    kind="number",
    points=1,
    difficulty=1,
    minutes=3,
    why="Positions cost little beside the words. This is the figure to hold against the sinusoids, which cost nothing.",
    reference=512 * 512,
    hints=[
        "How many rows does the table need, and how many numbers are in a row?",
        "Does looking up a row add anything that is learned, such as a bias?",
        "Is the table shared by all layers, or does each have its own? Look where x + PE stands in the model.",
    ],
    misconceptions=[
        Misconception(
            "added",
            512 + 512,
            "You added rows and columns. Every position has a row of its own with a number per feature: multiply.",
        ),
        Misconception(
            "one row",
            512,
            "That is one row. Each of the 512 positions has its own.",
        ),
        Misconception(
            "with a bias",
            512 * 512 + 512,
            "You count a bias. A table is looked up, not multiplied and shifted: there is none.",
        ),
        Misconception(
            "nothing",
            0,
            "Sinusoids have no parameters: they are computed. In a learned table every number is trained.",
        ),
        Misconception(
            "the token table",
            30_000 * 512,
            "That is the table of the 30,000 words. Positions need a row for each place, whatever word stands there.",
        ),
        Misconception(
            "words and positions",
            30_000 * 512 + 512 * 512,
            "That is both tables together. The question is about positions alone.",
        ),
        Misconception(
            "one table per layer",
            6 * 512 * 512,
            "You count a table for each of six layers. Positions are added once, before the first layer.",
        ),
        Misconception(
            "bytes",
            512 * 512 * 4,
            "Those are the bytes in float32. The question asks for the number of parameters.",
        ),
        Misconception(
            "half of it",
            512 * 256,
            "You count 256 hands. Those are the sinusoids; a learned row has a number for each of its 512 features.",
        ),
        Misconception(
            "BERT's",
            512 * 768,
            "That is BERT's table, with 768 features. This model has 512.",
        ),
        Misconception(
            "rounded",
            262_000,
            "That is the right size, rounded. Give all its digits: it is a product of two whole numbers.",
            also=[260_000, 0.26e6, 262, 0.262],
            rtol=1e-3,
        ),
    ],
)

# --- positions.no_positions -------------------------------------------------------------------------------------------

NO_POSITIONS = Exercise(
    id="positions.no_positions",
    chapter=5,
    title="What is lost without positions?",
    kind="reflect",
    points=0,
    difficulty=2,
    minutes=10,
    why="'Without positions there is no order' is said everywhere. You have measured when it is true.",
    hints=[
        "Take 'dog bites man' and 'man bites dog'. What goes into attention, and what comes out at each word?",
        "What is the difference between outputs that stay at their places and outputs that move along with their "
        "words? Which of the two is attention without positions?",
        "A causal mask hides what comes later. Does the second token then see as much as the third? What can a second "
        "layer make of that?",
    ],
    model_answer=(
        "Attention takes a set of vectors. Every query asks every key, and nothing in a score says where either "
        "stands. If the words are shuffled, each keeps its output, and the outputs are shuffled along: f(Px) = P f(x), "
        "equivariant. So in a model where all tokens see all, 'dog bites man' and 'man bites dog' give every word the "
        "same vector, and any average over the words is the same for both: who bit whom is lost, as is 'not' before "
        "this verb or that one, while which words there are is kept. More layers do not help, because the "
        "feed-forward works on each token alone and is equivariant, too. A causal mask changes this. Token 1 sees one "
        "token, token 2 sees two, so from the second layer on the tokens carry traces of their different pasts, and "
        "small models learn the order from that alone. Told positions spare them the work, and they tell distances "
        "directly, which the mask does not."
    ),
    rubric=[
        "Attention sees a set: a score depends on two vectors and not on where they stand.",
        "Equivariant, not invariant: the outputs move along with the words; an average of them is invariant.",
        "An example of what is lost (who bit whom) and of what is kept (which words there are).",
        "A causal mask breaks the symmetry: with two layers or more order can be learned without positions.",
        "Extra: the feed-forward does not help, because it works on each token alone.",
    ],
)

EXERCISES = [SINUSOIDAL, WAVELENGTH, SHIFT_MATRIX, ROTARY, EQUIVARIANCE, LEARNED_PARAMETERS, NO_POSITIONS]
