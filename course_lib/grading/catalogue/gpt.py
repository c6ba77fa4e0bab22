"""Chapter 9, the GPT model: five exercises.

Shapes: ids (B, T), tables (V, d_model) and (max_seq_len, d_model), logits (B, T, V). mask: True = may attend.
"""

import copy
import math
from functools import partial

import torch
from torch import nn

from ..exercise import Case, Exercise, Given, Misconception, generator
from ..given import decoder_parts, drawn_decoder, logits_or_refusal, tied
from ..judge import compare

# --- gpt.forward ------------------------------------------------------------------------------------------------------


def gpt_forward(parts, ids):
    T, longest = ids.shape[1], len(parts.position_table)
    if longest < T:
        raise ValueError(f"ids have {T} tokens per row, the model has positions for {longest}: shorten them")
    x = parts.token_table[ids] + parts.position_table[:T]  # (B, T, d_model)
    mask = torch.ones(T, T, dtype=torch.bool).tril()  # (T, T): a token sees itself and what came before
    for block in parts.blocks:
        x = block(x, mask)
    return parts.final_norm(x) @ parts.output_table.T  # (B, T, V)


def one_by_one(blocks, x, mask):
    for block in blocks:
        x = block(x, mask)
    return x


def sliced(table, ids):
    return table[: ids.shape[1]]


def indexed(table, ids):
    return table[torch.arange(ids.shape[1])]


def forward_with(
    parts,
    ids,
    *,
    refuse=True,
    tokens=lambda parts, ids: parts.token_table[ids],
    positions=sliced,
    mask=lambda T: torch.ones(T, T, dtype=torch.bool).tril(),
    run=one_by_one,
    norm=lambda parts, x: parts.final_norm(x),
    head=lambda parts, x: x @ parts.output_table.T,
):
    """The way from ids to logits whose steps can be replaced one by one: most misconceptions below."""
    if refuse and ids.shape[1] > len(parts.position_table):
        raise ValueError("too long")
    x = tokens(parts, ids) + positions(parts.position_table, ids)
    return head(parts, norm(parts, run(parts.blocks, x, mask(ids.shape[1]))))


def mistaken(*otherwise, **steps):
    """The same mistake by a learner who refuses a text that is too long, and by those who do not.

    otherwise: other steps, in which it shows too.
    """
    ways = [steps, *otherwise]
    careless = [partial(forward_with, refuse=False, **way) for way in ways]
    careless += [
        partial(forward_with, refuse=False, positions=indexed, **way) for way in ways if "positions" not in way
    ]
    return {"wrong": partial(forward_with, **steps), "also": careless + [partial(forward_with, **o) for o in otherwise]}


def each_reads_the_start(blocks, x, mask):
    for block in blocks:
        out = block(x, mask)
    return out if len(blocks) else x


def added_again(blocks, x, mask):
    for block in blocks:
        x = x + block(x, mask)
    return x


def first_for_all(blocks, x, mask):
    for _ in blocks:
        x = blocks[0](x, mask)
    return x


def norm_behind_every_block(parts, ids, refuse=True):
    def run(blocks, x, mask):
        for block in blocks:
            x = parts.final_norm(block(x, mask))
        return x

    return forward_with(parts, ids, refuse=refuse, run=run)


def norm_behind_every_block_only(parts, ids, refuse=True):
    def run(blocks, x, mask):
        for block in blocks:
            x = parts.final_norm(block(x, mask))
        return x

    return forward_with(parts, ids, refuse=refuse, run=run, norm=lambda parts, x: x)


def norm_in_front(parts, ids, refuse=True):
    def run(blocks, x, mask):
        return one_by_one(blocks, parts.final_norm(x), mask)

    return forward_with(parts, ids, refuse=refuse, run=run, norm=lambda parts, x: x)


def positions_in_every_block(parts, ids, refuse=True):
    def run(blocks, x, mask):
        for i, block in enumerate(blocks):
            x = block(x if i == 0 else x + sliced(parts.position_table, ids), mask)
        return x

    return forward_with(parts, ids, refuse=refuse, run=run)


def batch_for_length(parts, ids, refuse=True):
    B = ids.shape[0]
    if refuse == "by B" and len(parts.position_table) < B:
        raise ValueError("too long")
    return forward_with(
        parts,
        ids,
        refuse=refuse is True,
        positions=lambda table, ids: table[:B],
        mask=lambda T: torch.ones(B, B, dtype=torch.bool).tril(),
    )


def sometimes_careless(wrong):
    return {"wrong": wrong, "also": [partial(wrong, refuse=False)]}


def cut_to_the_longest(parts, ids, keep=slice(None)):
    longest = len(parts.position_table)
    return gpt_forward(parts, ids[:, -longest:] if keep == "last" else ids[:, :longest])


def asserted(parts, ids):
    assert ids.shape[1] <= len(parts.position_table), "too long"
    return gpt_forward(parts, ids)


SMALL = {"vocab_size": 7, "d_model": 4, "n_heads": 2, "max_seq_len": 5}
ODD = {"vocab_size": 11, "d_model": 6, "n_heads": 3, "max_seq_len": 9}
SQUARE = {"vocab_size": 4, "d_model": 4, "n_heads": 2, "max_seq_len": 4}
LLAMA = {"vocab_size": 13, "d_model": 8, "n_heads": 4, "n_kv_heads": 2, "max_seq_len": 6, "norm": "rms"}


def text_for(rng, sizes, B, T, n_blocks, **more):
    """Parts of these sizes, and B texts of T tokens."""
    blocks = "one block" if n_blocks == 1 else f"{n_blocks} blocks" if n_blocks else "no block"
    says = ", ".join(f"{name} = {size}" for name, size in sizes.items() if name in ("vocab_size", "d_model"))
    seed = int(torch.randint(2**31, (), generator=rng))
    parts = Given(
        decoder_parts,
        dict(sizes, activation="swiglu" if sizes.get("norm") else "gelu", d_ff=2 * sizes["d_model"]),
        n_blocks,
        seed,
        more.get("dtype", "float32"),
        more.get("tied", False),
        says=f"(the parts of a model: {blocks}, {says}, max_seq_len = {sizes['max_seq_len']})",
    )
    return Case(parts, torch.randint(sizes["vocab_size"], (B, T), generator=rng))


def one_token(seed):
    "One token and no block at all: look it up, add the vector of place 0, normalise, compare with the output table."
    return [text_for(generator(seed), SMALL, 1, 1, 0)]


def several_places(seed):
    "Several tokens, still no block: each place has a vector of its own, the same in every text."
    rng = generator(seed)
    return [text_for(rng, SMALL, 1, 3, 0), text_for(rng, ODD, 2, 4, 0)]


def one_block(seed):
    "One block: a token sees itself and what came before, nothing else."
    rng = generator(seed)
    return [text_for(rng, SMALL, 1, 2, 1), text_for(rng, SMALL, 3, 4, 1)]


def several_blocks(seed):
    "Several blocks, in their order: each reads what the one before has made."
    rng = generator(seed)
    return [text_for(rng, ODD, 1, 3, 2), text_for(rng, ODD, 2, 5, 3), text_for(rng, LLAMA, 2, 3, 2)]


def whole_context(seed):
    "As many tokens as there are positions; and B = T = V = d_model."
    rng = generator(seed)
    return [text_for(rng, SMALL, 2, 5, 1), text_for(rng, SQUARE, 4, 4, 2)]


def tied_tables(seed):
    "The output table is the token table; and ids that are a transposed view, or of the type int32."
    rng = generator(seed)
    one, other = (text_for(rng, ODD, 3, T, 2, tied=tied) for T, tied in ((2, True), (4, False)))
    parts, ids = one.args
    return [one, Case(parts, ids.T), Case(other.args[0], other.args[1].int())]


def double_parts(seed):
    "float64 in, float64 out."
    return [text_for(generator(seed), SMALL, 2, 3, 2, dtype="float64")]


def too_long(seed):
    "A text with more tokens than there are positions: refuse it with a ValueError."
    rng = generator(seed)
    return [text_for(rng, SMALL, 1, 6, 1), text_for(rng, dict(SMALL, max_seq_len=1), 2, 3, 0)]


def logits_or_a_refusal(case, expected, got):
    if not isinstance(expected, str) or got == expected:
        return compare(expected, got)
    does = f"ends in {got}" if isinstance(got, str) else "goes on as if nothing were wrong"
    return f"Here there are more tokens than positions. Refuse that with a ValueError; your function {does}."


FORWARD = Exercise(
    id="gpt.forward",
    chapter=9,
    title="From ids to logits",
    kind="code",
    points=5,
    difficulty=3,
    minutes=20,
    signature="gpt_forward(parts, ids)",
    why="The whole of GPT in a few lines. Whoever has written them can read any language model's code.",
    reference=gpt_forward,
    stages=[
        one_token,
        several_places,
        one_block,
        several_blocks,
        whole_context,
        tied_tables,
        double_parts,
        too_long,
    ],
    probe=logits_or_refusal,
    judge=logits_or_a_refusal,
    hints=[
        "Which shape has the stream before the first block, and which part of each table do T tokens need? Only then "
        "think about blocks.",
        "A table indexed with ids (B, T) gives their rows, (B, T, d_model). Places 0 to T − 1 are the first T rows of "
        "the other table; adding (T, d_model) to (B, T, d_model) uses them for every text.",
        "The blocks here do not know that they belong to a decoder. Tell them who may look at whom: row t of a (T, T) "
        "boolean mask is True up to column t. A lower triangle of ones does it.",
        "What comes out of one block goes into the next. Behind the last one: the norm, then a dot product of every "
        "place with every row of the output table, a matrix product with its transpose.",
        "Compare T with the number of rows of the position table before you use it, and raise a ValueError that says "
        "both numbers.",
    ],
    misconceptions=[
        Misconception(
            "no positions",
            **mistaken(positions=lambda table, ids: 0.0),
            sentence="You never add the position vectors, so a token has the same vector wherever it stands. Add row t "
            "of the position table to the token at place t.",
        ),
        Misconception(
            "place 0 for all",
            **mistaken(positions=lambda table, ids: table[0]),
            sentence="You add the first row of the position table to every token, so that all stand at place 0. Place "
            "t gets row t.",
        ),
        Misconception(
            "position looked up by id",
            **mistaken(positions=lambda table, ids: table[ids]),
            sentence="You look positions up with the ids. A token's id says which word it is; its place, 0 to T − 1, "
            "says where it stands.",
        ),
        Misconception(
            "places from 1",
            **mistaken(
                {"positions": lambda table, ids: table[torch.arange(1, ids.shape[1] + 1)]},
                positions=lambda table, ids: table[1 : ids.shape[1] + 1],
            ),
            sentence="Your places begin at 1. The first token stands at place 0 and gets the first row; otherwise the "
            "last row is missing when the text fills the context.",
        ),
        Misconception(
            "whole position table",
            **mistaken(positions=lambda table, ids: table),
            sentence="You add the whole position table. A text of T tokens needs its first T rows.",
        ),
        Misconception(
            "tokens times √d_model",
            **mistaken(tokens=lambda parts, ids: parts.token_table[ids] * math.sqrt(parts.token_table.shape[1])),
            sentence="You multiply the token vectors by √d_model, as the original Transformer does. GPT adds both "
            "tables as they are.",
        ),
        Misconception(
            "no mask",
            **mistaken(mask=lambda T: None),
            sentence="Your blocks get no mask, and these do not bring one: every token sees later ones, and with them "
            "the token that it should predict.",
        ),
        Misconception(
            "mask inverted",
            **mistaken(mask=lambda T: torch.ones(T, T, dtype=torch.bool).triu(1)),
            sentence="Your mask is inverted: it allows what comes later and blocks the rest. Here True means "
            "*may attend*.",
        ),
        Misconception(
            "mask transposed",
            **mistaken(mask=lambda T: torch.ones(T, T, dtype=torch.bool).triu()),
            sentence="Your mask is the upper triangle: each token sees itself and what comes later. Rows are queries; "
            "row t is True up to column t, the lower triangle.",
        ),
        Misconception(
            "blind to itself",
            **mistaken(mask=lambda T: torch.ones(T, T, dtype=torch.bool).tril(-1)),
            sentence="Your mask leaves the diagonal out, so that no token sees itself and the first one sees nothing. "
            "A token may attend to itself: it is the next one that it must not know.",
        ),
        Misconception(
            "one token too far",
            **mistaken(mask=lambda T: torch.ones(T, T, dtype=torch.bool).tril(1)),
            sentence="Your mask reaches one token too far: every place sees the token that it should predict. Row t is "
            "True up to column t, itself included, and no further.",
        ),
        Misconception(
            "mask of numbers",
            **mistaken(mask=lambda T: torch.full((T, T), -torch.inf).triu(1)),
            sentence="Your mask holds numbers: 1 and 0, or 0 and −inf. These blocks take a boolean mask, True = may "
            "attend: give it the dtype torch.bool.",
        ),
        Misconception(
            "blocks backwards",
            **mistaken(run=lambda blocks, x, mask: one_by_one(list(blocks)[::-1], x, mask)),
            sentence="You run the blocks from the last to the first. Block 0 reads the embeddings; the last one writes "
            "what the norm reads.",
        ),
        Misconception(
            "the first block only",
            **mistaken(run=lambda blocks, x, mask: one_by_one(list(blocks)[:1], x, mask)),
            sentence="Only your first block has an effect. Is there a `return` inside the loop?",
        ),
        Misconception(
            "the last block only",
            **mistaken(run=each_reads_the_start),
            sentence="Only your last block has an effect: each of them reads the embeddings, and the results of the "
            "others are lost. Feed each block with what the one before has returned.",
        ),
        Misconception(
            "one block for all",
            **mistaken(run=first_for_all),
            sentence="You run the first block again and again. Every block has weights of its own: use each once.",
        ),
        Misconception(
            "blocks skipped",
            **mistaken(run=lambda blocks, x, mask: x),
            sentence="Your blocks have no effect on the result. A block returns the new stream; it does not change x "
            "itself.",
        ),
        Misconception(
            "added to the stream again",
            **mistaken(run=added_again),
            sentence="You add x to what a block returns. The block has done that inside: it takes the stream in and "
            "gives the stream back.",
        ),
        Misconception(
            "positions in every block",
            **sometimes_careless(positions_in_every_block),
            sentence="You add the positions again in front of every block. In GPT they enter once, at the start; the "
            "stream carries them along.",
        ),
        Misconception(
            "no final norm",
            **mistaken(norm=lambda parts, x: x),
            sentence="The final norm is missing. Every block has added to the stream, and nothing has yet brought it "
            "to a steady size: that is what the output expects.",
        ),
        Misconception(
            "norm in front of the blocks",
            **sometimes_careless(norm_in_front),
            sentence="You normalise before the blocks and not behind them. The final norm is the last thing before the "
            "output table.",
        ),
        Misconception(
            "norm behind every block",
            norm_behind_every_block,
            "You apply the final norm behind every block. Blocks have their norms inside; this one comes once, behind "
            "the last of them.",
            also=[
                partial(norm_behind_every_block, refuse=False),
                norm_behind_every_block_only,
                partial(norm_behind_every_block_only, refuse=False),
            ],
        ),
        Misconception(
            "token table for output table",
            **mistaken(head=lambda parts, x: x @ parts.token_table.T),
            sentence="You compare with the token table. That is right only where the two are tied; use "
            "`parts.output_table`, which is the token table in that case.",
        ),
        Misconception(
            "the last place only",
            **mistaken(head=lambda parts, x: (x @ parts.output_table.T)[:, -1]),
            sentence="You return the logits of the last place. Writing needs only these; a forward pass gives them for "
            "every place, (B, T, V), and training uses all.",
        ),
        Misconception(
            "hidden states",
            **mistaken(head=lambda parts, x: x),
            sentence="You stop before the last step: these are the normalised vectors (B, T, d_model). Compare each of "
            "them with all V rows of the output table.",
        ),
        Misconception(
            "probabilities",
            **mistaken(head=lambda parts, x: (x @ parts.output_table.T).softmax(-1)),
            sentence="These are probabilities. The model's output are the logits; whoever needs it takes the softmax, "
            "and the loss works with logits.",
        ),
        Misconception(
            "log-probabilities",
            **mistaken(head=lambda parts, x: (x @ parts.output_table.T).log_softmax(-1)),
            sentence="These are the logarithms of the probabilities. The model's output are the logits themselves.",
        ),
        Misconception(
            "predicted ids",
            **mistaken(head=lambda parts, x: (x @ parts.output_table.T).argmax(-1)),
            sentence="You return the most probable token of each place. The model's output are all V logits; choosing "
            "comes later.",
        ),
        Misconception(
            "B taken for T",
            batch_for_length,
            also=[partial(batch_for_length, refuse=False), partial(batch_for_length, refuse="by B")],
            sentence="You take the number of texts for their length. ids have the shape (B, T): the tokens lie along "
            "axis 1.",
        ),
        Misconception(
            "too long a text fails inside",
            partial(forward_with, refuse=False),
            "Right, as long as the text fits. One that is too long ends in an error from deep inside that says nothing "
            "of positions, or, if there is a single position, gives logits that are wrong without a word. Compare T "
            "with the number of positions first, and raise a ValueError.",
            also=[partial(forward_with, refuse=False, positions=indexed)],
        ),
        Misconception(
            "too long a text is cut",
            cut_to_the_longest,
            "Right, as long as the text fits. A longer one you cut without a word, and return logits for fewer places "
            "than were asked for. Raise a ValueError: whoever called should decide what to drop.",
            also=[partial(cut_to_the_longest, keep="last")],
        ),
        Misconception(
            "positions stretched",
            partial(
                forward_with,
                refuse=False,
                positions=lambda table, ids: table[torch.arange(ids.shape[1]).clamp(max=len(table) - 1)],
            ),
            "Right, as long as the text fits. In a longer one you use some positions twice, which no training has "
            "prepared the model for. Raise a ValueError.",
            also=[
                partial(
                    forward_with,
                    refuse=False,
                    positions=lambda table, ids: table[torch.arange(ids.shape[1]) % len(table)],
                )
            ],
        ),
        Misconception(
            "assert",
            asserted,
            "Right, but `assert` is for what can never happen, and vanishes when Python runs with -O. For a wrong "
            "argument raise a ValueError.",
        ),
    ],
)

# --- gpt.initial_loss -------------------------------------------------------------------------------------------------

INITIAL_LOSS = Exercise(
    id="gpt.initial_loss",
    chapter=9,
    title="The loss before the first step",
    kind="number",
    points=1,
    difficulty=1,
    minutes=5,
    why="Whoever knows this number sees in the first line of a training log whether something is wrong.",
    reference=math.log(50_257),
    rtol=0.02,
    hints=[
        "What does a model say that knows nothing? How much probability does each of the V tokens get?",
        "The loss is −ln of the probability that the right token was given. Here it is the same for every token.",
        "With p = 1 / V, what is −ln p? The logarithm is the natural one: `math.log`.",
    ],
    misconceptions=[
        Misconception(
            "bits",
            math.log2(50_257),
            "That is the logarithm to the base 2: the loss in bits. The course counts in nats, with the natural "
            "logarithm.",
            rtol=0.02,
        ),
        Misconception(
            "base 10",
            math.log10(50_257),
            "That is the logarithm to the base 10. The loss is defined with the natural one.",
            rtol=0.02,
        ),
        Misconception(
            "perplexity",
            50_257,
            "That is V, the perplexity: among how many tokens the model wavers. The loss is its natural logarithm.",
        ),
        Misconception(
            "the probability itself",
            1 / 50_257,
            "That is the probability of each token. The loss is −ln of it.",
            rtol=0.02,
        ),
        Misconception(
            "sign missing",
            -math.log(50_257),
            "That is ln p. The loss is −ln p: a surprise is never negative.",
            rtol=0.02,
        ),
        Misconception(
            "vocabulary of 30,000",
            math.log(30_000),
            "That is ln 30,000, for the vocabulary in the course notes. Here V is 50,257.",
            rtol=0.003,
        ),
        Misconception(
            "Tinytown's",
            math.log(343),
            "That is ln 343, for the course's own small model. Here V is 50,257.",
            rtol=0.01,
        ),
        Misconception(
            "no loss yet",
            0.0,
            "A loss of 0 is perfect knowledge: probability 1 for the right token every time. Before training there is "
            "none.",
        ),
        Misconception(
            "1 − p",
            1 - 1 / 50_257,
            "You take 1 − p as the loss. It is −ln p, which tells p = 0.01 from p = 0.0001.",
            rtol=1e-3,
            also=[1.0],
        ),
        Misconception(
            "right or wrong",
            math.log(2),
            "That is ln 2, the surprise of a coin: as if there were two tokens to choose from. There are 50,257.",
            rtol=0.02,
        ),
        Misconception(
            "width for vocabulary",
            math.log(768),
            "That is ln 768, of the width. The width says how long a vector is; the model guesses among V tokens.",
            rtol=0.02,
            also=[math.log(1024)],
        ),
        Misconception(
            "a table from N(0, 1)",
            350.0,
            "A loss in the hundreds is no even guess. A model that is sure and wrong has one, such as one with a tied "
            "table drawn from N(0, 1); or it is a sum over many tokens. Asked is the loss per token of a model that "
            "guesses evenly.",
            rtol=0.45,
        ),
    ],
)

# --- gpt.tie_weights --------------------------------------------------------------------------------------------------


def tie(model):
    model.output.weight = model.token_embedding.weight


def values_copied(model):
    with torch.no_grad():
        model.output.weight.copy_(model.token_embedding.weight)


def clone_as_parameter(model):
    model.output.weight = nn.Parameter(model.token_embedding.weight.clone())


def wrong_way_round(model):
    model.token_embedding.weight = model.output.weight


def same_storage(model):
    model.output.weight.data = model.token_embedding.weight.data


def second_parameter(model):
    model.output.weight = nn.Parameter(model.token_embedding.weight)


def tensor_for_parameter(model):
    model.output.weight = model.token_embedding.weight.data


def module_for_weight(model):
    model.output = model.token_embedding


def transposed(model):
    model.output.weight = nn.Parameter(model.token_embedding.weight.T)


def plain_transposed(model):
    model.output.weight.data = model.token_embedding.weight.data.T


def tied_copy(model):
    model = copy.deepcopy(model)
    tie(model)
    return model


def mean_of_both(model):
    with torch.no_grad():
        model.token_embedding.weight.add_(model.output.weight).div_(2)
    tie(model)


def frozen(model):
    tie(model)
    model.output.weight.requires_grad_(False)


def frozen_output(model):
    model.output.weight = nn.Parameter(model.token_embedding.weight, requires_grad=False)


def scaled_down(model):
    with torch.no_grad():
        model.token_embedding.weight.div_(model.token_embedding.weight.shape[1] ** 0.5)
    tie(model)


def drawn_anew(model, std=0.02):
    model.token_embedding.weight = model.output.weight = nn.Parameter(std * torch.randn_like(model.output.weight))


def drawn_in_place(model, std=0.02):
    tie(model)
    nn.init.normal_(model.output.weight, std=std)


def model_for(rng, V, d_model, T, n_layers=1, dtype="float32", tied=False):
    """An untied model, if not said otherwise, and two texts of T tokens with their targets."""
    sizes = {"vocab_size": V, "d_model": d_model, "n_heads": 2, "n_layers": n_layers, "max_seq_len": 8, "d_ff": 8}
    says = f"(a GPT, {'tied' if tied else 'untied'}: vocab_size = {V}, d_model = {d_model})"
    seed = int(torch.randint(2**31, (), generator=rng))
    model = Given(drawn_decoder, dict(sizes, tie_weights=tied), seed, dtype, says=says)
    return Case(model, *torch.randint(V, (2, 2, T), generator=rng).unbind())


def small_model(seed):
    "A small model: are both tables one tensor, with the values of the token table? Then one step of training."
    return [model_for(generator(seed), 7, 4, 3)]


def other_sizes(seed):
    "Other sizes: fewer tokens than features, as many as features, more blocks, float64."
    rng = generator(seed)
    return [
        model_for(rng, 5, 8, 4),
        model_for(rng, 6, 6, 2, n_layers=2),
        model_for(rng, 9, 4, 5, dtype="float64"),
    ]


def tied_already(seed):
    "A model that is tied already: it stays as it is."
    return [model_for(generator(seed), 8, 6, 3, tied=True)]


TIE_WEIGHTS = Exercise(
    id="gpt.tie_weights",
    chapter=9,
    title="One table, two uses",
    kind="code",
    points=2,
    difficulty=2,
    minutes=10,
    signature="tie(model)",
    why="One line saves GPT-2 small 38 million parameters. Nearly the same line saves none, and looks the same.",
    reference=tie,
    stages=[small_model, other_sizes, tied_already],
    probe=tied,
    may_change=["model"],
    hints=[
        "Two tables that hold equal numbers, and one table with two names: after one step of training, how can you "
        "tell which of the two you have?",
        "A parameter is an attribute of its module, and an attribute can be assigned. Which module is to get which "
        "other one's parameter?",
        "Assign the Parameter object itself, not its `.data`, not a copy, not a new Parameter made from it. "
        "`nn.Linear` keeps its weight as (out, in): is that the shape of the token table, or its transpose?",
    ],
    misconceptions=[
        Misconception(
            "values copied",
            values_copied,
            "The two tables are equal now, and go their own ways from the first step on: you copied numbers. Tying "
            "means one tensor with two names.",
            also=[clone_as_parameter],
        ),
        Misconception(
            "two parameters on one memory",
            same_storage,
            "The two share their memory, and are still two parameters: each has its own gradient, they are counted "
            "twice, and the optimizer moves the same numbers twice. Assign the Parameter itself.",
            also=[second_parameter],
        ),
        Misconception(
            "the wrong way round",
            wrong_way_round,
            "They are one tensor, but it is the output's: the values of the token table are lost. Keep the token "
            "table, and let the output use it.",
        ),
        Misconception(
            "nothing has happened",
            lambda model: None,
            "The model that you were given is as it was. Change that one: a local variable, a copy or a new attribute "
            "elsewhere does not tie it.",
            also=[tied_copy],
        ),
        Misconception(
            "a tensor is no parameter",
            tensor_for_parameter,
            "You assign the tensor that is inside (`.data` or `.detach`). A module's weight must be a Parameter: "
            "assign the token table's own.",
            also=[lambda model: setattr(model.output, "weight", model.token_embedding.weight.detach())],
        ),
        Misconception(
            "modules exchanged",
            module_for_weight,
            "You put the embedding in the place of the output. An embedding looks rows up by id; the output multiplies "
            "vectors by a matrix. They share the weight; they remain two modules.",
        ),
        Misconception(
            "transposed",
            transposed,
            "You transpose. A linear layer keeps its weight as (out, in) and transposes by itself: for the output that "
            "is (V, d_model), the shape of the token table.",
            also=[plain_transposed],
        ),
        Misconception(
            "mean of both tables",
            mean_of_both,
            "You average the two tables. Before training the output's numbers mean nothing: keep the token table's.",
        ),
        Misconception(
            "no longer trained",
            frozen,
            "Tied, and frozen: the table gets no gradient and never changes. It is a parameter like any other; both "
            "uses send it their gradient.",
        ),
        Misconception(
            "output frozen",
            frozen_output,
            "The output reads the token table, but sends no gradient back. A tied table learns from both of its uses.",
        ),
        Misconception(
            "scaled",
            scaled_down,
            "You divide the table by √d_model as well. That is another decision; tying alone leaves the numbers alone.",
        ),
        Misconception(
            "drawn anew",
            drawn_anew,
            "Tied, but to a table with new numbers: what the token table held is lost. In a trained model that would "
            "be all that it knows of words.",
            also=[drawn_in_place, partial(drawn_anew, std=1.0), partial(drawn_in_place, std=1.0)],
        ),
    ],
)

# --- gpt.shape_trace --------------------------------------------------------------------------------------------------

SHAPE_TRACE = Exercise(
    id="gpt.shape_trace",
    chapter=9,
    title="Every shape on the way",
    kind="shapes",
    points=3,
    difficulty=2,
    minutes=15,
    why="Most errors in a model are a wrong shape. Who can say the right ones without running it finds them.",
    reference={
        "token_vectors": (3, 10, 48),
        "position_vectors": (10, 48),
        "stream": (3, 10, 48),
        "query": (3, 6, 10, 8),
        "scores": (3, 6, 10, 10),
        "head_outputs": (3, 6, 10, 8),
        "attention_output": (3, 10, 48),
        "hidden": (3, 10, 192),
        "logits": (3, 10, 500),
        "last_logits": (3, 500),
        "loss": (),
    },
    hints=[
        "Which sizes describe the texts (how many, how long), and which the model? max_seq_len says what would fit: "
        "does it appear in any tensor of this pass?",
        "The stream has one shape from its start to the final norm. Attention and feed-forward leave it for a while "
        "and come back to it.",
        "Inside attention a token's features are shared out among the heads, and the axis of heads stands in front of "
        "the tokens: batch, heads, tokens, features. A score belongs to a pair of tokens.",
        "The output compares every place with every token of the vocabulary. A loss is one number: how many axes has "
        "a tensor that holds a single number, as `mean` returns it?",
    ],
    misconceptions=[
        Misconception(
            "one-hot vectors",
            {"token_vectors": (3, 10, 500)},
            "That would be one-hot vectors, one entry per token of the vocabulary. Looking up a row gives d_model "
            "features.",
        ),
        Misconception(
            "as many positions as fit",
            {"position_vectors": (64, 48)},
            "That is the whole position table. Ten tokens stand at places 0 to 9 and need ten of its rows.",
            also=[{"position_vectors": (64, 48), "stream": (3, 64, 48)}],
        ),
        Misconception(
            "position vectors for every text",
            {"position_vectors": (3, 10, 48)},
            "The rows are taken once. They are the same for all three texts: addition repeats them along the batch.",
        ),
        Misconception(
            "position vectors with an axis of texts",
            {"position_vectors": (1, 10, 48)},
            "Added to the token vectors these would give the same. But ten rows of the table have no axis for the "
            "texts, and the addition needs none: it repeats them along the batch by itself.",
        ),
        Misconception(
            "positions appended",
            {"stream": (3, 10, 96)},
            "You put position vectors beside the token vectors. They are added, so the width stays d_model.",
        ),
        Misconception(
            "heads behind the places",
            {"query": (3, 10, 6, 8)},
            "Right after the cut into heads it looks like that, and then the two axes change places: each head needs "
            "a matrix of tokens by features of its own.",
        ),
        Misconception(
            "full width in every head",
            {"query": (3, 6, 10, 48)},
            "Every head would work on all d_model features. The heads share them out: each has d_model / n_heads.",
            also=[{"query": (3, 6, 10, 48), "head_outputs": (3, 6, 10, 48)}],
        ),
        Misconception(
            "no heads",
            {"query": (3, 10, 48)},
            "That is the projection before it is cut into heads. The query that attention works with has an axis for "
            "them.",
        ),
        Misconception(
            "one table of scores for all heads",
            {"scores": (3, 10, 10)},
            "Each head has scores of its own: there is one T × T table per head.",
        ),
        Misconception(
            "scores with features",
            {"scores": (3, 6, 10, 8)},
            "The dot product sums over the features: they are gone. A score belongs to a pair of tokens.",
        ),
        Misconception(
            "scores between heads",
            {"scores": (3, 10, 6, 6)},
            "That is what comes out if heads and tokens did not change places: heads compared with heads. Tokens "
            "compare themselves with tokens.",
        ),
        Misconception(
            "places up to the limit",
            {"scores": (3, 6, 64, 64)},
            "max_seq_len says what would fit. This text has ten tokens, so a head's table is 10 × 10.",
            also=[{"scores": (3, 6, 10, 64)}],
        ),
        Misconception(
            "heads not merged",
            {"attention_output": (3, 6, 10, 8)},
            "Those are the heads before they are merged. What attention adds to the stream must have the stream's "
            "shape.",
        ),
        Misconception(
            "feed-forward keeps its width",
            {"hidden": (3, 10, 48)},
            "The feed-forward widens first: its hidden units number d_ff. It is back at d_model afterwards.",
        ),
        Misconception(
            "logits of the last place only",
            {"logits": (3, 500)},
            "Those are the logits of one place. A forward pass gives them for all ten.",
        ),
        Misconception(
            "logits over features",
            {"logits": (3, 10, 48)},
            "That is the stream. The output compares each place with every token of the vocabulary.",
        ),
        Misconception(
            "whole batch as one prediction",
            {"last_logits": (500,)},
            "One text would have such a row. Each of the three texts has a last place.",
            also=[{"last_logits": (1, 500)}],
        ),
        Misconception(
            "the axis of places kept",
            {"last_logits": (3, 1, 500)},
            "`logits[:, -1:]` would keep an axis of one place. `logits[:, -1]` names a single place, and its axis is "
            "gone.",
        ),
        Misconception(
            "a loss for every place",
            {"loss": (3, 10)},
            "Those are the surprises of the thirty places. The loss is their mean: one number.",
            also=[{"loss": (30,)}, {"loss": (3,)}],
        ),
        Misconception(
            "a list of one loss",
            {"loss": (1,)},
            "A tensor of shape (1,) has an axis, with one entry. A mean over everything has no axis left.",
        ),
    ],
)

# --- gpt.why_effective ------------------------------------------------------------------------------------------------

WHY_EFFECTIVE = Exercise(
    id="gpt.why_effective",
    chapter=9,
    title="Why does this design work so well?",
    kind="reflect",
    points=0,
    difficulty=3,
    minutes=15,
    why="The course notes ask it. Say what the design gives, what the mask has to do with it, and what is belief.",
    hints=[
        "How many predictions does one text of T tokens give in one pass, and who had to write down the answers?",
        "What would the loss tell if a place could see the token that it should predict? What happens to the earlier "
        "logits when the last token is exchanged?",
        "Writing a text multiplies probabilities of one token after another. Which rule of probability makes that the "
        "probability of the whole text?",
        "Which of your reasons were measured in this course, and which are about models that you have not trained?",
    ],
    model_answer=(
        "The probability of a text is a product: the first token, times the second given the first, and so on. So a "
        "model that predicts the next token well is a model of whole texts, and any text is its own answer sheet: "
        "nobody has to label anything. The causal mask sets every score of a later token to −inf before the softmax, "
        "in every block, so its weight is exactly 0, and what a place computes cannot depend on what comes later; "
        "changing the last token changes no earlier logit. That makes the T predictions of one pass honest, and all "
        "of them can be learned from at once, on hardware that likes large matrix products; and it makes training "
        "match writing, where later tokens do not exist yet. Attention lets every place reach every earlier one in a "
        "single step, with weights that depend on the content, and the residual stream lets many blocks refine one "
        "draft. To predict well the model has to pick up more than grammar: in Tinytown who bit whom, capitals, "
        "copying. What remains belief here: that it is the best design. Attention costs T² per pass, writing is one "
        "pass per token, and the reasons for its success at scale are partly data, hardware and habit."
    ),
    rubric=[
        "The chain rule: a text's probability is a product of next-token probabilities, and no labels are needed.",
        "The mask: later tokens get weight exactly 0, so no place can see what it should predict.",
        "One pass teaches at every place, in parallel; writing takes a pass per token.",
        "Attention reaches any earlier token in one step, by content; blocks refine a shared stream.",
        "A limit, or a claim that was not measured here: T² cost, scale, data.",
    ],
    min_words=40,
)

EXERCISES = [FORWARD, INITIAL_LOSS, TIE_WEIGHTS, SHAPE_TRACE, WHY_EFFECTIVE]
