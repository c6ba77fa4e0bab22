"""Chapter 8, residuals and blocks: six exercises.

Shapes: x (B, T, d_model). attention, ffn, norm1 and norm2 are functions of x that keep its shape.
"""

import copy
import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

from ..exercise import Case, Exercise, Given, Misconception, generator
from ..given import (
    affine,
    also_in_training,
    feed_forward,
    own_layer_norm,
    self_attention,
    small_stack,
    trained_both,
)

# --- blocks.pre_norm, blocks.post_norm --------------------------------------------------------------------------------


def pre_norm_block(x, attention, ffn, norm1, norm2):
    x = x + attention(norm1(x))
    return x + ffn(norm2(x))


def post_norm_block(x, attention, ffn, norm1, norm2):
    x = norm1(x + attention(x))
    return norm2(x + ffn(x))


def normed_branches(x, attention, ffn, norm1, norm2):
    x = x + norm1(attention(x))
    return x + norm2(ffn(x))


def pre_norm_in_place(x, attention, ffn, norm1, norm2):
    x += attention(norm1(x))
    x += ffn(norm2(x))
    return x


def post_norm_in_place(x, attention, ffn, norm1, norm2):
    x += attention(x)
    return post_norm_second(norm1(x), ffn, norm2)


def post_norm_second(x, ffn, norm2):
    return norm2(x + ffn(x))


def same(x):
    return x


def in_two_steps(first, second):
    """A block of two branches, each joined to the stream by a function (x, branch, norm)."""
    return lambda x, attention, ffn, norm1, norm2: second(first(x, attention, norm1), ffn, norm2)


def pre(x, branch, norm):
    return x + branch(norm(x))


def post(x, branch, norm):
    return norm(x + branch(x))


def with_parts(block, change):
    """A right block that is given other parts: change(attention, ffn, norm1, norm2) -> the four it gets."""
    return lambda x, *parts: block(x, *change(*parts))


def read_from_the_start(x, attention, ffn, norm1, norm2):
    return x + ffn(norm2(x + attention(norm1(x))))


def side_by_side(x, attention, ffn, norm1, norm2):
    return x + attention(norm1(x)) + ffn(norm2(x))


def chained(x, attention, ffn, norm1, norm2):
    return x + ffn(norm2(attention(norm1(x))))


def post_from_the_start(x, attention, ffn, norm1, norm2):
    return norm2(x + ffn(norm1(x + attention(x))))


def post_side_by_side(x, attention, ffn, norm1, norm2):
    return norm2(norm1(x + attention(x) + ffn(x)))


def post_chained(x, attention, ffn, norm1, norm2):
    return norm2(x + ffn(norm1(attention(x))))


def norms_at_the_end(x, attention, ffn, norm1, norm2):
    x = x + attention(x)
    return norm2(norm1(x + ffn(x)))


def second_sum_before_the_norm(x, attention, ffn, norm1, norm2):
    x = x + attention(x)
    return norm2(x + ffn(norm1(x)))


PART_MISTAKES = {
    "norms exchanged": (
        lambda attention, ffn, norm1, norm2: (attention, ffn, norm2, norm1),
        "You exchanged the norms: norm1 belongs to the attention, norm2 to the feed-forward network. Each has a γ "
        "and β "
        "of its own.",
    ),
    "branches exchanged": (
        lambda attention, ffn, norm1, norm2: (ffn, attention, norm1, norm2),
        "You run the feed-forward network first. In a block the tokens exchange first, and then each works by itself: "
        "attention, then ffn.",
    ),
    "no norms": (
        lambda attention, ffn, norm1, norm2: (attention, ffn, same, same),
        "You never call the norms. Without them the stream grows by a factor in every block.",
    ),
    "first norm missing": (
        lambda attention, ffn, norm1, norm2: (attention, ffn, same, norm2),
        "You never call norm1. Each of the two branches has a norm.",
    ),
    "second norm missing": (
        lambda attention, ffn, norm1, norm2: (attention, ffn, norm1, same),
        "You never call norm2. Each of the two branches has a norm.",
    ),
}


def part_mistakes(block):
    """The mistakes in which the wiring is right and a part is not."""
    made = [
        Misconception(name, with_parts(block, change), sentence) for name, (change, sentence) in PART_MISTAKES.items()
    ]
    twice = (
        "You use one norm in both places. The two have parameters of their own: norm1 for the attention, norm2 for ffn."
    )
    first = with_parts(block, lambda attention, ffn, norm1, norm2: (attention, ffn, norm1, norm1))
    second = with_parts(block, lambda attention, ffn, norm1, norm2: (attention, ffn, norm2, norm2))
    return [*made, Misconception("one norm for both", first, twice, also=[second])]


def paper(x, attention, ffn, norm1, norm2):
    """A case of functions x · scale + shift, which one can follow on paper."""
    names = ("attention", "ffn", "norm1", "norm2")
    functions = [
        Given(affine, scale, shift, says=f"{name}(x) = {scale:g} · x + {shift:g}")
        for name, (scale, shift) in zip(names, (attention, ffn, norm1, norm2))
    ]
    return Case(torch.tensor([[[float(x)]]]), *functions)


def by_hand(seed):
    "One token with one feature and functions for paper. First with norms that change nothing, then with others."
    return [
        paper(1, (2, 0), (1, 1), (1, 0), (1, 0)),
        paper(1, (2, 0), (1, 1), (3, 0), (1, 10)),
        paper(2, (-1, 4), (0.5, 0), (0.5, 1), (-2, 3)),
    ]


def silent_branches(seed):
    "Branches that say nothing, first both, then one of the two: what is left is the path from x to x."
    return [
        paper(5, (0, 0), (0, 0), (3, 1), (7, -2)),
        paper(5, (2, 1), (0, 0), (3, 1), (7, -2)),
        paper(5, (0, 0), (2, 1), (3, 1), (7, -2)),
    ]


def parts(rng, B, T, d_model, scale=1.0, dtype=torch.float64):
    draw = partial(torch.randn, generator=rng, dtype=torch.float64)
    attention = [(draw(d_model, d_model) / math.sqrt(d_model)).to(dtype) for _ in range(3)]
    ffn = [(draw(*shape) / math.sqrt(d_model)).to(dtype) for shape in ((d_model, 3 * d_model), (3 * d_model, d_model))]
    norms = [((0.5 + draw(d_model).abs()).to(dtype), draw(d_model).to(dtype)) for _ in range(2)]
    return Case(
        (scale * draw(B, T, d_model)).to(dtype),
        Given(self_attention, *attention, None, False, says="an attention, (B, T, d_model) to the same"),
        Given(feed_forward, *ffn, says="a feed-forward network, (..., d_model) to the same"),
        Given(own_layer_norm, *norms[0], says="a LayerNorm with γ and β of its own"),
        Given(own_layer_norm, *norms[1], says="a LayerNorm with another γ and β"),
    )


def real_parts(seed):
    "Attention, a feed-forward network and two LayerNorms with drawn weights: one token, batches, small and large x."
    rng = generator(seed)
    sizes = [(1, 1, 3), (1, 4, 2), (3, 3, 3), (2, 5, 4)]
    cases = [parts(rng, *size, dtype=torch.float32) for size in sizes]
    cases += [parts(rng, 2, 3, 4, scale, torch.float32) for scale in (1e-2, 1e3)]
    turned = parts(rng, 2, 3, 5, dtype=torch.float32)
    return [*cases, Case(turned.args[0].transpose(0, 1), *turned.args[1:])]


def double_parts(seed):
    "float64 in, float64 out."
    return [parts(generator(seed), 2, 3, 4)]


PRE_NORM = Exercise(
    id="blocks.pre_norm",
    chapter=8,
    title="The pre-norm block",
    kind="code",
    points=2,
    difficulty=2,
    minutes=10,
    signature="pre_norm_block(x, attention, ffn, norm1, norm2)",
    why="Two lines: the block of GPT-2, LLaMA and nearly every model since. Everything is in where the brackets stand.",
    reference=pre_norm_block,
    stages=[by_hand, silent_branches, real_parts, double_parts],
    hints=[
        "If both branches said 0, what should come out? Then what must stand alone on one side of the plus sign?",
        "In pre-norm, who reads a normalized copy: the branch, or the stream?",
        "One line per branch: the stream becomes itself plus what the branch says. The second line begins with what "
        "the "
        "first has left, not with the x that came in.",
    ],
    misconceptions=[
        Misconception(
            "post-norm",
            post_norm_block,
            "This is post-norm: you normalize the stream after each addition. In pre-norm the norm stands in front of "
            "the branch, and nothing stands on the path from x to x.",
        ),
        Misconception(
            "norm behind the branch",
            normed_branches,
            "You normalize what the branch says. In pre-norm the norm comes before: the branch reads a normalized "
            "copy.",
        ),
        Misconception(
            "no residual",
            in_two_steps(lambda x, branch, norm: branch(norm(x)), lambda x, branch, norm: branch(norm(x))),
            "The plus sign is missing: you return what the branches say. A branch is a correction, and has to be added "
            "to the stream.",
        ),
        Misconception(
            "first residual missing",
            in_two_steps(lambda x, branch, norm: branch(norm(x)), pre),
            "The first branch replaces the stream. Add what the attention says to x, as you do for ffn.",
        ),
        Misconception(
            "second residual missing",
            in_two_steps(pre, lambda x, branch, norm: branch(norm(x))),
            "The second branch replaces the stream, and all before it is lost. Add what ffn says to the stream.",
        ),
        Misconception(
            "added to the normalized copy",
            in_two_steps(
                lambda x, branch, norm: norm(x) + branch(norm(x)), lambda x, branch, norm: norm(x) + branch(norm(x))
            ),
            "You overwrite x with its normalized copy and add to that. The copy is for the branch alone: the stream "
            "itself goes on unnormalized.",
        ),
        Misconception(
            "the first input added again",
            read_from_the_start,
            "Your second sum starts from the x that came in, so the attention's correction is lost to the stream. It "
            "is "
            "the nesting formula of the course notes. Add to what the first branch has left.",
        ),
        Misconception(
            "side by side",
            side_by_side,
            "Both branches read the x that came in. GPT-J is wired like that; in this block ffn reads what the "
            "attention has left.",
        ),
        Misconception(
            "one branch behind the other",
            chained,
            "You send the attention's answer straight into ffn and add once. There are two branches, and two sums.",
        ),
        Misconception(
            "a norm at the end",
            lambda x, attention, ffn, norm1, norm2: norm2(pre_norm_block(x, attention, ffn, norm1, norm2)),
            "You normalize the result. A pre-norm block hands on the bare stream; one last norm stands behind the "
            "whole "
            "stack, not in the block.",
        ),
        *part_mistakes(pre_norm_block),
        Misconception(
            "input overwritten",
            pre_norm_in_place,
            "The result is right, but `x += …` writes into the tensor that the caller still holds. x = x + … makes a "
            "new "
            "one.",
        ),
    ],
)

POST_NORM = Exercise(
    id="blocks.post_norm",
    chapter=8,
    title="The post-norm block",
    kind="code",
    points=2,
    difficulty=2,
    minutes=8,
    signature="post_norm_block(x, attention, ffn, norm1, norm2)",
    why="The 2017 original and BERT. One of the course notes draws this block and programs the other.",
    reference=post_norm_block,
    stages=[by_hand, silent_branches, real_parts, double_parts],
    hints=[
        "'Add & Norm' is written on the box in the paper's figure. In which order?",
        "What does a branch read here: x, or a normalized copy of it?",
        "Read your line from the inside out: branch, sum, norm. And the second line starts from the result of the "
        "first.",
    ],
    misconceptions=[
        Misconception(
            "pre-norm",
            pre_norm_block,
            "This is pre-norm: the branch reads a normalized copy, and the stream goes on bare. In post-norm the "
            "stream "
            "itself is normalized, after each addition.",
        ),
        Misconception(
            "norm inside the sum",
            normed_branches,
            "You normalize what the branch says and then add. The norm belongs around the whole sum: first add, then "
            "normalize.",
        ),
        Misconception(
            "no residual",
            in_two_steps(lambda x, branch, norm: norm(branch(x)), lambda x, branch, norm: norm(branch(x))),
            "The plus sign is missing: you normalize what the branch says alone. Add it to x first.",
        ),
        Misconception(
            "first residual missing",
            in_two_steps(lambda x, branch, norm: norm(branch(x)), post),
            "What the attention says replaces the stream. Add it to x, then normalize, as you do for ffn.",
        ),
        Misconception(
            "second residual missing",
            in_two_steps(post, lambda x, branch, norm: norm(branch(x))),
            "What ffn says replaces the stream. Add it to the stream, then normalize.",
        ),
        Misconception(
            "norm before and behind",
            in_two_steps(
                lambda x, branch, norm: norm(x + branch(norm(x))), lambda x, branch, norm: norm(x + branch(norm(x)))
            ),
            "You use each norm twice, in front of its branch and behind the sum. Post-norm has it behind only: the "
            "branch reads x as it is.",
        ),
        Misconception(
            "sum before the norm kept",
            second_sum_before_the_norm,
            "ffn reads the normalized stream, but you add its answer to the one before norm1. After norm1 that one is "
            "gone: both ffn and the second sum start from the normalized stream.",
        ),
        Misconception(
            "both norms at the end",
            norms_at_the_end,
            "You add both branches and normalize afterwards. Each sum is followed by its own norm: ffn reads what "
            "norm1 "
            "returns.",
        ),
        Misconception(
            "the first input added again",
            post_from_the_start,
            "Your second sum starts from the x that came in. It starts from what norm1 returns.",
        ),
        Misconception(
            "side by side",
            post_side_by_side,
            "Both branches read the x that came in. ffn reads what the first half of the block returns.",
        ),
        Misconception(
            "one branch behind the other",
            post_chained,
            "You send the attention's answer into ffn and add once. There are two branches, and two sums.",
        ),
        *part_mistakes(post_norm_block),
        Misconception(
            "input overwritten",
            post_norm_in_place,
            "The result is right, but `x += …` writes into the tensor that the caller still holds. x = x + … makes a "
            "new "
            "one.",
        ),
    ],
)

# --- blocks.encoder ---------------------------------------------------------------------------------------------------


class SelfAttention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(d_model, d_model))

    def forward(self, x, mask=None):
        B, T, d_model = x.shape
        q, k, v = (
            project(x).view(B, T, self.n_heads, -1).transpose(1, 2)  # (B, H, T, D)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B, H, T, T)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf)
        mixed = scores.softmax(-1) @ v  # (B, H, T, D)
        return self.out_proj(mixed.transpose(1, 2).reshape(B, T, d_model))


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up_proj = nn.Linear(d_model, d_ff)
        self.down_proj = nn.Linear(d_ff, d_model)

    def forward(self, x):
        return self.down_proj(F.gelu(self.up_proj(x)))


class EncoderBlock(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.attention = SelfAttention(d_model, n_heads)
        self.norm1 = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.norm2 = nn.LayerNorm(d_model)

    def forward(self, x, mask=None):
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.feed_forward(x))


def causal(mask, x):
    lower = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
    return lower if mask is None else mask & lower


def split(x, n_heads):
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


def root_of_head(d_head, d_model):
    return math.sqrt(d_head)


def wrong_encoder(
    *,
    wire=post_norm_block,
    mask_for=lambda mask, x: mask,
    block=lambda scores, mask: scores.masked_fill(~mask, -torch.inf),
    divisor=root_of_head,
    over=-1,
    heads=lambda n_heads: n_heads,
    split=split,
    merge=merge,
    project_out=lambda project, x: project(x),
    activation=F.gelu,
):
    """A class like EncoderBlock whose steps are replaced."""

    class Wrong(EncoderBlock):
        def forward(self, x, mask=None):
            mask, a = mask_for(mask, x), self.attention

            def attention(h):
                q, k, v = (split(project(h), heads(a.n_heads)) for project in (a.q_proj, a.k_proj, a.v_proj))
                scores = q @ k.mT / divisor(q.shape[-1], h.shape[-1])
                scores = scores if mask is None else block(scores, mask)
                return project_out(a.out_proj, merge(scores.softmax(over) @ v).reshape(h.shape))

            def ffn(h):
                return self.feed_forward.down_proj(activation(self.feed_forward.up_proj(h)))

            return wire(x, attention, ffn, self.norm1, self.norm2)

    return Wrong


def with_dropout(x, attention, ffn, norm1, norm2):
    x = norm1(x + F.dropout(attention(x), 0.1, norm1.training))
    return norm2(x + F.dropout(ffn(x), 0.1, norm2.training))


def texts(rng, B, T, d_model, dtype=torch.float32):
    return torch.randn(B, T, d_model, generator=rng, dtype=dtype)


def one_token(seed):
    "One token, no mask: it can only attend to itself, so all weights are 1."
    return [Case(texts(generator(seed), 1, 1, 4), init=(4, 2, 8))]


def every_token_sees_all(seed):
    "Texts without a mask: every token attends to every token, later ones included."
    rng = generator(seed)
    return [
        Case(texts(rng, 1, 3, 4), init=(4, 1, 6)),
        Case(texts(rng, 2, 3, 4), init=(4, 2, 16)),
        Case(texts(rng, 4, 4, 4), init=(4, 4, 4)),
        Case(texts(rng, 3, 5, 6), init=(6, 3, 7)),
        Case(texts(rng, 5, 3, 8).transpose(0, 1), init=(8, 2, 8)),
        Case(100 * texts(rng, 2, 4, 6), init=(6, 2, 5)),
    ]


def padded(seed):
    "Texts of different lengths: the mask (B, 1, 1, T) is False at the padding, to which nobody may attend."
    rng = generator(seed)
    lengths = torch.tensor([3, 1, 5])
    mask = (torch.arange(5) < lengths[:, None])[:, None, None]  # (B, 1, 1, T)
    return [
        Case(texts(rng, 1, 3, 4), mask[:1, ..., 1:4], init=(4, 2, 6)),
        Case(texts(rng, 3, 5, 6), mask, init=(6, 3, 10)),
    ]


def any_mask(seed):
    "A mask of its own for every head and every token, True = may attend."
    rng = generator(seed)
    mask = (torch.rand(2, 3, 4, 4, generator=rng) < 0.5) | torch.eye(4, dtype=torch.bool)
    return [Case(texts(rng, 2, 4, 6), mask, init=(6, 3, 9))]


def double_texts(seed):
    "float64 in, float64 out."
    return [Case(texts(generator(seed), 2, 3, 4, torch.float64), init=(4, 2, 6))]


def in_training_mode(seed):
    "In training mode, in which dropout would act: there is none, so that nothing changes."
    rng = generator(seed)
    return [Case(texts(rng, 3, 6, 8).requires_grad_(), init=(8, 2, 16))]


ENCODER = Exercise(
    id="blocks.encoder",
    chapter=8,
    title="The block of an encoder, as a module",
    kind="code",
    points=4,
    difficulty=4,
    minutes=30,
    signature="EncoderBlock(d_model, n_heads, d_ff)",
    why="Twelve of these, with an embedding in front, are BERT-base. You have all the parts: now wire them.",
    reference=EncoderBlock,
    module=True,
    probe=also_in_training,
    stages=[one_token, every_token_sees_all, padded, any_mask, double_texts, in_training_mode],
    hints=[
        "List the parts first: an attention, a feed-forward network, and two norms. What does each constructor need?",
        "You have written the wiring already, in `post_norm_block`. What are its four functions here?",
        "The mask concerns one of the four parts only. In the library's MultiHeadAttention the second argument is a "
        "`context`: pass the mask by its name.",
        "Writing the attention yourself? Heads are cut out of the features, so split d_model first and bring the heads "
        "to the front; on the way back do the opposite.",
    ],
    misconceptions=[
        Misconception(
            "pre-norm",
            wrong_encoder(wire=pre_norm_block),
            "This is a pre-norm block. The encoder of the original and of BERT is post-norm: the norm comes after the "
            "addition.",
        ),
        Misconception(
            "norm inside the sum",
            wrong_encoder(wire=normed_branches),
            "You normalize what the branch says and then add. First add, then normalize.",
        ),
        Misconception(
            "no residual",
            wrong_encoder(
                wire=in_two_steps(lambda x, branch, norm: norm(branch(x)), lambda x, branch, norm: norm(branch(x)))
            ),
            "The plus signs are missing: without them, attention averages the tokens into one another until none can "
            "be "
            "told from the next.",
        ),
        Misconception(
            "no norms",
            wrong_encoder(wire=with_parts(post_norm_block, PART_MISTAKES["no norms"][0])),
            "The norms are there and never called. After each addition comes its own.",
        ),
        Misconception(
            "norms exchanged",
            wrong_encoder(wire=with_parts(post_norm_block, PART_MISTAKES["norms exchanged"][0])),
            "You exchanged norm1 and norm2: with equal parameters nobody would notice, with trained ones it is wrong.",
        ),
        Misconception(
            "one norm for both",
            wrong_encoder(wire=with_parts(post_norm_block, lambda a, f, norm1, norm2: (a, f, norm1, norm1))),
            "You use norm1 twice, and norm2 never. Each sum has its own.",
        ),
        Misconception(
            "the first input added again",
            wrong_encoder(wire=post_from_the_start),
            "Your second sum starts from the x that came in. It starts from what norm1 returns.",
        ),
        Misconception(
            "feed-forward first",
            wrong_encoder(wire=with_parts(post_norm_block, PART_MISTAKES["branches exchanged"][0])),
            "You run the feed-forward network first. The tokens exchange first, then each works by itself.",
        ),
        Misconception(
            "causal",
            wrong_encoder(mask_for=causal),
            "You hide later tokens. That is a decoder's mask: in an encoder every token may read the whole text.",
        ),
        Misconception(
            "mask ignored",
            wrong_encoder(mask_for=lambda mask, x: None),
            "Right as long as there is no mask. With one, your tokens still attend to the padding.",
        ),
        Misconception(
            "mask inverted",
            wrong_encoder(mask_for=lambda mask, x: None if mask is None else ~mask),
            "Your tokens attend exactly where they must not: True means *may attend*.",
        ),
        Misconception(
            "mask added",
            wrong_encoder(block=torch.add),
            "You add the mask to the scores: an allowed token gains 1, and the others stay in. Put −inf where it is "
            "False.",
        ),
        Misconception(
            "ReLU",
            wrong_encoder(activation=F.relu),
            "You use ReLU, as the 2017 original does. This block is BERT's and uses GELU.",
        ),
        Misconception(
            "the tanh approximation",
            wrong_encoder(activation=partial(F.gelu, approximate="tanh")),
            "You use the tanh approximation of GELU, as GPT-2 does. It is off in the fourth digit; here the exact "
            "one is "
            "asked for.",
        ),
        Misconception(
            "no activation",
            wrong_encoder(activation=same),
            "Nothing bends between the two layers of the feed-forward network, so that both together are one matrix. "
            "GELU belongs there.",
        ),
        Misconception(
            "not scaled",
            wrong_encoder(divisor=lambda d_head, d_model: 1),
            "The scores are not scaled. Divide them by √D, where D = d_model / n_heads.",
        ),
        Misconception(
            "scaled by d_model",
            wrong_encoder(divisor=lambda d_head, d_model: math.sqrt(d_model)),
            "You divide by √d_model. A score is a sum over the features of one head: divide by √(d_model / n_heads).",
        ),
        Misconception(
            "one head",
            wrong_encoder(heads=lambda n_heads: 1),
            "You have one head, whatever n_heads says.",
        ),
        Misconception(
            "heads cut across the tokens",
            wrong_encoder(split=lambda x, n_heads: x.reshape(x.shape[0], n_heads, x.shape[1], -1)),
            "Your `view` cuts straight to (B, H, T, D), which mixes tokens with features. Cut d_model into (H, D) "
            "first, "
            "then exchange the axes T and H.",
        ),
        Misconception(
            "heads not brought back",
            wrong_encoder(merge=lambda x: x.reshape(x.shape[0], x.shape[2], -1)),
            "You flatten (B, H, T, D) as it stands, so that each token gets numbers of other tokens. Exchange H and T "
            "first.",
        ),
        Misconception(
            "softmax over the queries",
            wrong_encoder(over=-2),
            "Your columns sum to 1. Each query shares its attention among the keys: the last axis.",
        ),
        Misconception(
            "dropout",
            wrong_encoder(wire=with_dropout),
            "Right in evaluation mode. In training mode your block has dropout, and this one has none.",
        ),
        Misconception(
            "out_proj not used",
            wrong_encoder(project_out=lambda project, x: x),
            "out_proj is there and never used. It mixes what the heads have found before it goes to the stream.",
        ),
    ],
)

# --- blocks.gradient_norms --------------------------------------------------------------------------------------------


def gradient_norms(weights, biases, x):
    norms = []
    for skip in (False, True):
        start = x.detach().requires_grad_()  # (B, D)
        stream = start
        for weight, bias in zip(weights, biases):
            branch = torch.tanh(stream @ weight.T + bias)  # (B, D)
            stream = stream + branch if skip else branch
        (gradient,) = torch.autograd.grad(stream.sum(), start)
        norms.append(gradient.norm())
    return tuple(norms)


def adds(stream, branch, start):
    return stream + branch


def replaces(stream, branch, start):
    return branch


def the_gradient(loss, start, streams, weights):
    return torch.autograd.grad(loss, start)[0]


def wrong_gradients(
    weights,
    biases,
    x,
    *,
    linear=lambda x, weight, bias: x @ weight.T + bias,
    bend=torch.tanh,
    join=adds,
    finish=lambda stream, start, skip: stream,
    loss=torch.sum,
    differentiate=the_gradient,
    size=torch.norm,
    hand_in=lambda without, with_skip: (without, with_skip),
):
    norms = []
    for skip in (False, True):
        start = x.detach().clone().requires_grad_()
        own = [weight.detach().clone().requires_grad_() for weight in weights]
        streams = [start]
        for weight, bias in zip(own, biases):
            branch = bend(linear(streams[-1], weight, bias))
            streams.append((join if skip else replaces)(streams[-1], branch, start))
        end = finish(streams[-1], start, skip)
        norms.append(size(differentiate(loss(end), start, streams, own)))
    return hand_in(*norms)


def gradients_added_up(weights, biases, x):
    x = x.detach().clone().requires_grad_()
    norms = []
    for skip in (False, True):
        stream = x
        for weight, bias in zip(weights, biases):
            branch = torch.tanh(stream @ weight.T + bias)
            stream = stream + branch if skip else branch
        stream.sum().backward()
        norms.append(x.grad.norm())
    return tuple(norms)


def typed_in(weights, biases, x):
    return 3.2e-12, 91.9


def tanh_layers(rng, depth, B, D, dtype=torch.float32):
    """Weights and biases as `nn.Linear` starts them, and inputs."""
    bound = 1 / math.sqrt(D)
    weights = (2 * torch.rand(depth, D, D, generator=rng, dtype=torch.float64) - 1) * bound
    biases = (2 * torch.rand(depth, D, generator=rng, dtype=torch.float64) - 1) * bound
    x = torch.randn(B, D, generator=rng, dtype=torch.float64)
    return Case(weights.to(dtype), biases.to(dtype), x.to(dtype))


def one_layer(seed):
    "One layer with two features: small enough for paper."
    return [tanh_layers(generator(seed), 1, 1, 2)]


def a_few_layers(seed):
    "Two to five layers of odd sizes, and several rows of inputs."
    rng = generator(seed)
    return [
        tanh_layers(rng, 2, 1, 3),
        tanh_layers(rng, 3, 4, 5),
        tanh_layers(rng, 4, 4, 4),
        tanh_layers(rng, 5, 2, 7, torch.float64),
    ]


def fifty_layers(seed):
    "Fifty layers with 64 features, as in the chapter."
    return [tanh_layers(generator(seed), 50, 1, 64)]


GRADIENT_NORMS = Exercise(
    id="blocks.gradient_norms",
    chapter=8,
    title="What reaches the first of fifty layers",
    kind="experiment",
    points=3,
    difficulty=3,
    minutes=20,
    signature="gradient_norms(weights, biases, x)",
    why="Thirteen powers of ten lie between the two figures that you will measure, and one plus sign.",
    reference=gradient_norms,
    returns=["without skips", "with skips"],
    stages=[one_layer, a_few_layers, fifty_layers],
    # Weights and x come as arguments, so the figures are exact but for rounding: float32 and float64 differ by less
    # than 1e-4 over 20 seeds. From stack to stack they differ by up to a factor of ten, so figures typed in fail.
    rtol=1e-3,
    atol=0.0,
    hints=[
        "Build the stack twice from the same weights: once the layer's result replaces the stream, once it is added.",
        "The loss is the sum of the last stream. Which tensor do you ask for its gradient, and what must you tell "
        "PyTorch about it before the first layer?",
        "Two backward passes into the same tensor add up. Make a fresh copy of x for the second stack.",
        "A vector's size is its norm: the root of the sum of the squares, over all rows and features.",
    ],
    misconceptions=[
        Misconception(
            "results swapped",
            partial(wrong_gradients, hand_in=lambda without, with_skip: (with_skip, without)),
            "You return (with, without). The order is (without skips, with skips).",
        ),
        Misconception(
            "gradients added up",
            gradients_added_up,
            "Your first figure is right, and the second holds both: `backward` adds to x.grad. Start the second stack "
            "with a fresh copy of x, or clear the gradient.",
        ),
        Misconception(
            "mean as loss",
            partial(wrong_gradients, loss=torch.mean),
            "Your loss is the mean of the output. The sum is asked for: its gradient sets out as a 1 for each number.",
        ),
        Misconception(
            "squares as loss",
            partial(wrong_gradients, loss=lambda end: end.pow(2).sum()),
            "Your loss is the sum of the squares. It is the plain sum of the output.",
        ),
        Misconception(
            "norm of the output as loss",
            partial(wrong_gradients, loss=torch.norm),
            "You take the gradient of the output's norm. The loss is the plain sum; the norm is taken of the gradient.",
        ),
        Misconception(
            "norm squared",
            partial(wrong_gradients, size=lambda gradient: gradient.pow(2).sum()),
            "You return the sum of the squares. Its root is the norm.",
        ),
        Misconception(
            "largest entry",
            partial(wrong_gradients, size=lambda gradient: gradient.abs().max()),
            "You return the largest entry of the gradient. The norm takes all of them: root of the sum of the squares.",
        ),
        Misconception(
            "sum of the entries",
            partial(wrong_gradients, size=torch.sum),
            "You add up the gradient's entries, so that opposite signs cancel. Take the norm.",
        ),
        Misconception(
            "sum of the sizes",
            partial(wrong_gradients, size=lambda gradient: gradient.abs().sum()),
            "You add up the sizes of the gradient's entries. The norm adds up their squares, and takes the root.",
        ),
        Misconception(
            "mean of the entries",
            partial(wrong_gradients, size=lambda gradient: gradient.abs().mean()),
            "You average the gradient's entries. Take the norm: root of the sum of the squares.",
            also=[partial(wrong_gradients, size=torch.mean)],
        ),
        Misconception(
            "no tanh",
            partial(wrong_gradients, bend=same),
            "The tanh is missing: each layer is tanh of the linear map.",
        ),
        Misconception(
            "tanh around the sum",
            partial(wrong_gradients, join=lambda stream, branch, start: torch.tanh(stream + branch)),
            "With the skip you take tanh of the whole sum. The path from x to x must be free: add x outside of the "
            "tanh.",
        ),
        Misconception(
            "skip inside the tanh",
            partial(
                wrong_gradients,
                join=lambda stream, branch, start: torch.tanh(stream + torch.atanh(branch)),
            ),
            "You add x before the tanh. The path from x to x must be free: add x to what the tanh returns.",
        ),
        Misconception(
            "one skip around all",
            partial(
                wrong_gradients, join=replaces, finish=lambda stream, start, skip: stream + start if skip else stream
            ),
            "You add x once, around the whole stack. Every layer has a skip of its own.",
        ),
        Misconception(
            "the first input added again",
            partial(wrong_gradients, join=lambda stream, branch, start: start + branch),
            "Every layer of yours adds the first input again, as the nesting formula of the course notes does. A layer "
            "adds to what the layer before has left.",
        ),
        Misconception(
            "weights not transposed",
            partial(wrong_gradients, linear=lambda x, weight, bias: x @ weight + bias),
            "You compute x @ W. These are weights as `nn.Linear` has them, (out, in): x @ W.T.",
        ),
        Misconception(
            "no bias",
            partial(wrong_gradients, linear=lambda x, weight, bias: x @ weight.T),
            "You leave the biases out.",
        ),
        Misconception(
            "gradient of the weights",
            partial(
                wrong_gradients,
                differentiate=lambda loss, start, streams, weights: torch.autograd.grad(loss, weights[0])[0],
            ),
            "You measure the gradient of the first layer's weights. The question is the gradient of the input x.",
        ),
        Misconception(
            "input of the last layer",
            partial(
                wrong_gradients,
                differentiate=lambda loss, start, streams, weights: torch.autograd.grad(loss, streams[-2])[0],
            ),
            "You measure the gradient at the last layer's input. It has fifty layers to go back to: ask at the first.",
        ),
        Misconception(
            "layers in reverse",
            lambda weights, biases, x: gradient_norms(weights.flip(0), biases.flip(0), x),
            "You apply the layers from the last to the first. The gradient goes backwards by itself.",
        ),
        Misconception(
            "typed in",
            typed_in,
            "These are the figures of another stack. The weights come as arguments: measure this one.",
        ),
    ],
)

# --- blocks.pre_or_post -----------------------------------------------------------------------------------------------


def compare_orders(pre, post, inputs, targets, learning_rate):
    return losses_of(pre, inputs, targets, learning_rate), losses_of(post, inputs, targets, learning_rate)


def losses_of(model, inputs, targets, learning_rate):
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    losses = []
    for ids, wanted in zip(inputs, targets):
        _, loss = model(ids, wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_wrongly(
    model,
    inputs,
    targets,
    learning_rate,
    *,
    rate=lambda learning_rate, step, steps: learning_rate,
    make=torch.optim.AdamW,
    renew=False,
    clear=lambda optimizer: optimizer.zero_grad(),
    clip=lambda parameters: None,
    update=lambda optimizer: optimizer.step(),
    batch=lambda inputs, targets, step: (inputs[step], targets[step]),
):
    optimizer, losses = make(model.parameters(), lr=learning_rate), []
    for step in range(len(inputs)):
        if renew:
            optimizer = make(model.parameters(), lr=learning_rate)
        for group in optimizer.param_groups:
            group["lr"] = rate(learning_rate, step, len(inputs))
        _, loss = model(*batch(inputs, targets, step))
        clear(optimizer)
        loss.backward()
        clip(model.parameters())
        update(optimizer)
        losses.append(loss.item())
    return losses


def both(train):
    """A wrong answer that trains both models in the same wrong way."""
    return lambda pre, post, *rest: (train(pre, *rest), train(post, *rest))


def untouched(optimizer):
    return None


def warming_up(learning_rate, step, steps):
    return learning_rate * min(1.0, (step + 1) / (steps / 2))


SIZES = {"vocab_size": 12, "d_model": 24, "n_blocks": 12}


def twelve_blocks(seed):
    "Two untrained models of twelve blocks, one of each order, Xavier's weights; 16 batches; learning rate 0.01."
    rng = generator(seed)
    follows = torch.randperm(12, generator=rng)
    inputs = torch.randint(12, (16, 4, 8), generator=rng)  # (steps, B, T)
    models = [
        Given(small_stack, SIZES | {"pre_norm": pre_norm}, seed, says=f"a {name} model of twelve blocks")
        for name, pre_norm in (("pre-norm", True), ("post-norm", False))
    ]
    return [Case(*models, inputs, follows[inputs], 0.01)]


# Over 20 seeds the pre-norm model ends at 0.7 to 1.3; the post-norm model, stuck at chance (ln 12 = 2.48), at 2.48 to
# 2.62. Adam instead of AdamW, or float64, moves the first four losses by less than 0.001, the last three by less than
# 0.01. Every mistake below that moves the models moves one of the two by more than twice the room.
def near_the_reference(case, expected, got):
    if not isinstance(got, dict):
        return "Expected two lists of numbers: the losses of the pre-norm model, and those of the post-norm model."
    for name in ("pre", "post"):
        right, own = (
            {key: value for key, value in each.items() if key.startswith(f"{name}:")} for each in (expected, got)
        )
        (steps, early, late, moved, _), (own_steps, own_early, own_late, own_moved, altered) = (
            each.values() for each in (right, own)
        )
        if own_steps != steps:
            return f"Expected {steps} losses of the {name}-norm model, one per step; got {own_steps}."
        if moved != own_moved:
            return f"No parameter of the {name}-norm model that you were given has moved."
        for step, (one, other) in enumerate(zip(early, own_early, strict=True)):
            if not abs(one - other) < 0.01:
                return f"Loss {step} of the {name}-norm model is {other:.2f}; expected {one:.2f}."
        if not abs(late - own_late) < 0.1:
            return f"The last losses of the {name}-norm model are about {own_late:.2f}; expected {late:.2f}."
        if altered:
            return (
                f"The {name}-norm model's gradients are altered between `backward` and the step: do without clipping."
            )
    return None


PRE_OR_POST = Exercise(
    id="blocks.pre_or_post",
    chapter=8,
    title="Pre-norm against post-norm, without a warm-up",
    kind="experiment",
    points=3,
    difficulty=4,
    minutes=25,
    signature="compare_orders(pre, post, inputs, targets, learning_rate)",
    why="Same parts, same data, same optimizer. Only the place of the norm differs, and one of the two does not learn.",
    reference=compare_orders,
    probe=trained_both,
    may_change=("pre", "post"),
    judge=near_the_reference,
    stages=[twelve_blocks],
    rtol=0.0,
    atol=0.02,
    time_limit=30.0,
    hints=[
        "Both models are treated alike: write one training loop, and call it twice.",
        "One optimizer per model, made before the loop. Which of torch's, and with which rate, stands in the task.",
        "In the loop: the loss of this step's batch, clear, backward, step; and note the loss as a number.",
        "There is no schedule. The first step is taken at the full learning rate: that is the experiment.",
    ],
    misconceptions=[
        Misconception(
            "results swapped",
            lambda *given: compare_orders(*given)[::-1],
            "You return (post, pre). The order is (pre, post).",
        ),
        Misconception(
            "warm-up",
            both(partial(train_wrongly, rate=warming_up)),
            "Your learning rate rises over the first steps. That is the cure which post-norm is given; here you are to "
            "see the illness: the full rate from the first step.",
        ),
        Misconception(
            "clipping",
            both(partial(train_wrongly, clip=partial(nn.utils.clip_grad_norm_, max_norm=1.0))),
            "You clip the gradients, or alter them in another way, between `backward` and the step. AdamW divides by "
            "their size, so that little of it shows; but the task is to do without, and then the comparison is fair.",
            also=[
                both(partial(train_wrongly, clip=partial(nn.utils.clip_grad_norm_, max_norm=0.5))),
                both(partial(train_wrongly, clip=partial(nn.utils.clip_grad_value_, clip_value=0.01))),
            ],
        ),
        Misconception(
            "learning rate ignored",
            both(lambda model, inputs, targets, rate: losses_of(model, inputs, targets, 1e-3)),
            "You use a learning rate of your own: AdamW's default is 0.001. Give it `learning_rate`.",
        ),
        Misconception(
            "SGD",
            both(partial(train_wrongly, make=torch.optim.SGD)),
            "You use plain gradient descent, whose steps are far too short here. The task says AdamW.",
        ),
        Misconception(
            "gradients not cleared",
            both(partial(train_wrongly, clear=untouched)),
            "The gradients of all earlier steps are still in: `backward` adds to what is there. Clear them in every "
            "step.",
        ),
        Misconception(
            "a new optimizer in every step",
            both(partial(train_wrongly, renew=True)),
            "You make the optimizer inside the loop, so that AdamW forgets its averages after every step. Make it "
            "once.",
        ),
        Misconception(
            "no step",
            both(partial(train_wrongly, update=untouched)),
            "No parameter moves: the optimizer's step is missing, or the gradients are cleared between `backward` "
            "and it.",
        ),
        Misconception(
            "copies are trained",
            lambda pre, post, *rest: compare_orders(copy.deepcopy(pre), copy.deepcopy(post), *rest),
            "Your losses fall, and the models that you were given are as they were. Train the ones that came.",
        ),
        Misconception(
            "one model only",
            lambda pre, post, *rest: (lambda losses: (losses, losses))(losses_of(pre, *rest)),
            "You trained the pre-norm model and report it twice. Train each of the two.",
        ),
        Misconception(
            "one batch again and again",
            both(partial(train_wrongly, batch=lambda inputs, targets, step: (inputs[0], targets[0]))),
            "Every step sees the first batch. Step i takes inputs[i] and targets[i].",
        ),
        Misconception(
            "inputs as targets",
            both(lambda model, inputs, targets, rate: losses_of(model, inputs, inputs, rate)),
            "You gave the inputs as targets, so the models learn to repeat. Give them `targets`.",
        ),
        Misconception(
            "only the last loss",
            lambda *given: tuple(losses[-1] for losses in compare_orders(*given)),
            "You return the last loss of each. Return the loss of every step: two lists.",
        ),
        Misconception(
            "typed in",
            lambda pre, post, inputs, targets, learning_rate: (
                [2.5 - 0.1 * step for step in range(len(inputs))],
                [2.48] * len(inputs),
            ),
            "These are not the losses of these models: none of their parameters has moved. Train them.",
        ),
    ],
)

# --- blocks.no_residual -----------------------------------------------------------------------------------------------

NO_RESIDUAL = Exercise(
    id="blocks.no_residual",
    chapter=8,
    title="What if the residuals were removed?",
    kind="reflect",
    points=0,
    difficulty=3,
    minutes=10,
    why="The usual answer, vanishing gradients, is right for fifty tanh layers and wrong for blocks with norms.",
    hints=[
        "Say first what you would see: how does the loss of eight blocks behave without `x +`, and where does it stop?",
        "What reaches the first of fifty tanh layers? And what did the chapter measure in blocks that have norms?",
        "What does attention do to tokens, eight times in a row, if nothing carries a token past it?",
        "What does the plus sign guarantee, and what does it not? Think of F(x) = −x.",
    ],
    model_answer=(
        "A deep Transformer without residual connections does not learn: in the chapter eight blocks stopped at the "
        "loss "
        "of somebody who knows how frequent each word is, while the same blocks with residuals learned on. In a plain "
        "stack of fifty tanh layers the reason is the gradient: each layer passes on a fraction, and the product is "
        "about "
        "10⁻¹². In blocks with norms it is another one: the first block even gets more gradient than with residuals, "
        "but "
        "every attention averages the tokens, and after eight averages all positions hold the same vector. Then "
        "nothing "
        "tells them apart, and the best guess is the same for all. The residual carries each token's own vector past "
        "every branch, so that a branch has to learn a correction only, and a branch that says nothing does no harm. "
        "It "
        "is no guarantee: the gradient is multiplied by I + J in each layer, which may grow, and with F(x) = −x it "
        "is 0. "
        "A model of one or two blocks may do without."
    ),
    rubric=[
        "What one would see: a deep model stops learning, at about the frequencies of words; a shallow one may still "
        "work.",
        "In plain deep stacks the gradient is a product of many factors, and vanishes.",
        "In blocks with norms the tokens become alike: attention averages, and no path carries a token past it.",
        "With the residual each branch learns a correction to a stream that passes by.",
        "Extra: the gradient is neither unchanged nor guaranteed; I + J can grow, or be 0.",
    ],
)

EXERCISES = [PRE_NORM, POST_NORM, ENCODER, GRADIENT_NORMS, PRE_OR_POST, NO_RESIDUAL]
