"""Chapter 15, pretrained models: three exercises.

Shapes: GPT-2 stores linear layers as (in, out), we as (out, in). Attention weights (L, B, H, T, T), rows are queries.
"""

from functools import partial

import torch
from torch import Tensor

from ..exercise import Case, Exercise, Given, Misconception, Option, generator
from ..given import restless_decoder, stored_weights
from ..judge import compare

# --- pretrained.map_gpt2 ----------------------------------------------------------------------------------------------

OUTSIDE = {"wte": "token_embedding", "wpe": "positions", "ln_f": "final_norm"}
INSIDE = {
    "ln_1": "norm1",
    "attn.c_proj": "attention.out_proj",
    "ln_2": "norm2",
    "mlp.c_fc": "feed_forward.up_proj",
    "mlp.c_proj": "feed_forward.down_proj",
}


def from_gpt2(state_dict):
    ours = {}
    for name, tensor in state_dict.items():
        first, *path, kind = name.split(".")
        if first in OUTSIDE:
            ours[f"{OUTSIDE[first]}.{kind}"] = tensor
            continue
        block, *part = path
        if part == ["attn", "c_attn"]:
            for letter, piece in zip("qkv", tensor.chunk(3, dim=-1)):  # (d, d) or (d,) each
                ours[f"blocks.{block}.attention.{letter}_proj.{kind}"] = piece.t()
        else:
            ours[f"blocks.{block}.{INSIDE['.'.join(part)]}.{kind}"] = tensor.t()  # a vector stays a vector
    return ours


def from_gpt2_with(
    state_dict,
    *,
    turn=lambda part, tensor: tensor.t(),
    split=lambda tensor: tensor.chunk(3, dim=-1),
    letters="qkv",
    number=lambda path: path[1],
    inside=INSIDE,
    table=lambda tensor: tensor,
    kept=lambda name: True,
):
    """The mapping with its steps replaceable one by one: most misconceptions below."""
    ours = {}
    for name, tensor in state_dict.items():
        if not kept(name):
            continue
        *path, kind = name.split(".")
        part = ".".join(path[2:])
        if path[0] in OUTSIDE:
            ours[f"{OUTSIDE[path[0]]}.{kind}"] = table(tensor)
        elif part == "attn.c_attn":
            for letter, piece in zip(letters, split(tensor)):
                ours[f"blocks.{number(path)}.attention.{letter}_proj.{kind}"] = turn(part, piece)
        else:
            ours[f"blocks.{number(path)}.{inside[part]}.{kind}"] = turn(part, tensor)
    return ours


def turned_if_not_square(part, tensor):
    return tensor if tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1] else tensor.t()


def turned_if_the_whole_is_not_square(part, tensor):
    """As above, by someone who turns c_attn before the split."""
    return tensor.t() if part == "attn.c_attn" else turned_if_not_square(part, tensor)


def split_inputs(tensor):
    return tensor.t().chunk(3, dim=-1) if tensor.dim() == 2 else tensor.chunk(3)


def split_turned(tensor):
    return [piece.t() for piece in split_inputs(tensor)]


def bias_not_split(tensor):
    return tensor.chunk(3, dim=-1) if tensor.dim() == 2 else [tensor] * 3


def swapped(one, other):
    return INSIDE | {one: INSIDE[other], other: INSIDE[one]}


def always_float32(state_dict):
    return {name: tensor.float() for name, tensor in from_gpt2(state_dict).items()}


def twelve_blocks(state_dict):
    for block in range(12):
        state_dict[f"h.{block}.ln_1.weight"]
    return from_gpt2(state_dict)


def checkpoint(rng, d, d_ff, blocks=1, V=11, T=6, dtype=torch.float32):
    """A checkpoint in GPT-2's names and shapes, drawn."""
    shapes = {"wte.weight": (V, d), "wpe.weight": (T, d)}
    for i in range(blocks):
        shapes |= {
            f"h.{i}.ln_1.weight": (d,),
            f"h.{i}.ln_1.bias": (d,),
            f"h.{i}.attn.c_attn.weight": (d, 3 * d),
            f"h.{i}.attn.c_attn.bias": (3 * d,),
            f"h.{i}.attn.c_proj.weight": (d, d),
            f"h.{i}.attn.c_proj.bias": (d,),
            f"h.{i}.ln_2.weight": (d,),
            f"h.{i}.ln_2.bias": (d,),
            f"h.{i}.mlp.c_fc.weight": (d, d_ff),
            f"h.{i}.mlp.c_fc.bias": (d_ff,),
            f"h.{i}.mlp.c_proj.weight": (d_ff, d),
            f"h.{i}.mlp.c_proj.bias": (d,),
        }
    shapes |= {"ln_f.weight": (d,), "ln_f.bias": (d,)}
    return {name: torch.randn(shape, generator=rng).to(dtype) for name, shape in shapes.items()}


def one_block(seed):
    "One block: d_model = 2, d_ff = 5. Every tensor of a model with one block, under our names, as (out, in)."
    rng = generator(seed)
    return [Case(checkpoint(rng, 2, 5)), Case(checkpoint(rng, 4, 7))]


def everything_square(seed):
    "d_ff = d_model: now every matrix of the block is square, and no shape tells whether it was turned."
    return [Case(checkpoint(generator(seed), 3, 3))]


def shapes_that_agree(seed):
    "d_ff = 3 · d_model: c_attn and c_fc have one shape, and so have norms and biases."
    return [Case(checkpoint(generator(seed), 3, 9, blocks=2))]


def many_blocks(seed):
    "Twelve blocks and more: block 10 is another block than block 1."
    rng = generator(seed)
    tensors = checkpoint(rng, 2, 3, blocks=13)
    order = torch.randperm(len(tensors), generator=rng).tolist()
    names = list(tensors)
    return [Case(tensors), Case({names[i]: tensors[names[i]] for i in order})]


def other_dtypes(seed):
    "Checkpoints in float64 and float16: the numbers keep their dtype."
    rng = generator(seed)
    return [Case(checkpoint(rng, 4, 6, dtype=torch.float64)), Case(checkpoint(rng, 4, 6, dtype=torch.float16))]


def renamed(case, expected, got):
    """The numbers are only moved, so they must be equal. The output head is the token table: welcome, not asked for."""
    if isinstance(got, dict) and isinstance(got.get("output.weight"), Tensor):
        if compare(expected["token_embedding.weight"], got["output.weight"], 0.0, 0.0):
            return "`output.weight` should be the table of tokens: GPT-2 ties the two."
        got = {name: tensor for name, tensor in got.items() if name != "output.weight"}
    return compare(expected, got, rtol=0.0, atol=0.0)


MAP_GPT2 = Exercise(
    id="pretrained.map_gpt2",
    chapter=15,
    title="GPT-2's tensors under our names",
    kind="code",
    points=4,
    difficulty=3,
    minutes=25,
    signature="from_gpt2(state_dict)",
    why="With these lines, weights that took months to train run in your own model.",
    reference=from_gpt2,
    judge=renamed,
    stages=[one_block, everything_square, shapes_that_agree, many_blocks, other_dtypes],
    rtol=0.0,
    atol=0.0,
    hints=[
        "Take a name apart at its dots: what is the number of the block, what is the part, what is left at the end?",
        "Which tensors have two axes and are no table? These are stored as (in, out). In which order of axes does "
        "nn.Linear keep its weight?",
        "c_attn makes query, key and value at once. Its outputs are its columns: the first d_model of them belong to "
        "the query. `chunk` or `split` cuts; the bias is cut as well.",
        "A small table, a dictionary from their part to ours, does the rest: one line per part.",
    ],
    misconceptions=[
        Misconception(
            "nothing turned",
            partial(from_gpt2_with, turn=lambda part, tensor: tensor),
            "You rename and leave every matrix as it was: (in, out). Ours are (out, in), as in nn.Linear: turn them.",
        ),
        Misconception(
            "reshaped, not turned",
            partial(from_gpt2_with, turn=lambda part, tensor: tensor.reshape(tensor.shape[::-1])),
            "You give the matrices the right shape with reshape or view, which leaves the numbers in their old order. "
            "A transpose moves them.",
        ),
        Misconception(
            "square ones not turned",
            partial(from_gpt2_with, turn=turned_if_not_square),
            "You turn only what would not fit otherwise. A square matrix fits either way, and is wrong the one way: no "
            "error will ever tell.",
            also=[partial(from_gpt2_with, turn=turned_if_the_whole_is_not_square)],
        ),
        Misconception(
            "output projection not turned",
            partial(from_gpt2_with, turn=lambda part, tensor: tensor if part == "attn.c_proj" else tensor.t()),
            "attn.c_proj.weight is as it was. It is square, so nothing complains; it is stored as (in, out) like the "
            "others.",
        ),
        Misconception(
            "only c_attn turned",
            partial(from_gpt2_with, turn=lambda part, tensor: tensor.t() if part == "attn.c_attn" else tensor),
            "You turn the fused projection only. In GPT-2 every linear layer is stored as (in, out).",
        ),
        Misconception(
            "c_attn not turned",
            partial(from_gpt2_with, turn=lambda part, tensor: tensor if part == "attn.c_attn" else tensor.t()),
            "Query, key and value are square after the cut, so they fit as they are; but they are still (in, out). "
            "Turn them, too.",
        ),
        Misconception(
            "tables turned",
            partial(from_gpt2_with, table=lambda tensor: tensor.t()),
            "You turn wte and wpe as well. They are tables with one row per token or place, in both libraries.",
        ),
        Misconception(
            "cut along the inputs",
            partial(
                from_gpt2_with,
                split=split_inputs,
                turn=lambda part, tensor: tensor if part == "attn.c_attn" else tensor.t(),
            ),
            "You cut c_attn along its inputs. Each of the three has all d_model inputs and a third of the outputs.",
            also=[
                partial(from_gpt2_with, split=split_turned),
                partial(from_gpt2_with, split=lambda tensor: tensor.chunk(3)),
            ],
        ),
        Misconception(
            "every third",
            partial(from_gpt2_with, split=lambda tensor: [tensor[..., i::3] for i in range(3)]),
            "You deal the columns of c_attn out in turn. They stand in three blocks: all of the query's, all of the "
            "key's, all of the value's.",
        ),
        Misconception(
            "key before query",
            partial(from_gpt2_with, letters="kqv"),
            "Query and key are exchanged. In c_attn the order is query, key, value.",
        ),
        Misconception(
            "value before key",
            partial(from_gpt2_with, letters="qvk"),
            "Key and value are exchanged. In c_attn the order is query, key, value.",
        ),
        Misconception(
            "backwards",
            partial(from_gpt2_with, letters="vkq"),
            "Value, key, query: you took the three in reverse. In c_attn the order is query, key, value.",
        ),
        Misconception(
            "fused bias not cut",
            partial(from_gpt2_with, split=bias_not_split),
            "You cut the fused weight and give all three the whole bias. It has 3 · d_model numbers: a third for each.",
        ),
        Misconception(
            "always 768",
            partial(from_gpt2_with, split=lambda tensor: [tensor[..., i * 768 : (i + 1) * 768] for i in range(3)]),
            "You cut at 768, which is GPT-2 small's d_model. Other sizes have other widths: take a third of what is "
            "there.",
        ),
        Misconception(
            "norms exchanged",
            partial(from_gpt2_with, inside=swapped("ln_1", "ln_2")),
            "ln_1 and ln_2 are exchanged. The first stands before attention, our norm1.",
        ),
        Misconception(
            "feed-forward exchanged",
            partial(from_gpt2_with, inside=swapped("mlp.c_fc", "mlp.c_proj")),
            "c_fc and c_proj of the mlp are exchanged: c_fc makes d_model wide to d_ff, our up_proj.",
        ),
        Misconception(
            "exchanged for turned",
            partial(
                from_gpt2_with,
                inside=swapped("mlp.c_fc", "mlp.c_proj"),
                turn=lambda part, tensor: tensor if part.startswith("mlp") else tensor.t(),
            ),
            "In the feed-forward you exchanged the two matrices instead of turning them. The shapes fit; the numbers "
            "are each other's.",
        ),
        Misconception(
            "one digit of the block",
            partial(from_gpt2_with, number=lambda path: path[1][0]),
            "You read one digit of the block's number, so that block 10 overwrites block 1. Split at the dots.",
        ),
        Misconception(
            "blocks counted from one",
            partial(from_gpt2_with, number=lambda path: int(path[1]) + 1),
            "You count blocks from 1. Both libraries count from 0.",
        ),
        Misconception(
            "always twelve blocks",
            twelve_blocks,
            "You expect twelve blocks, which GPT-2 small has. Take those that are there.",
        ),
        Misconception(
            "biases forgotten",
            partial(from_gpt2_with, kept=lambda name: name.endswith("weight")),
            "You carry over the weights and no bias. GPT-2 has them everywhere, norms included.",
        ),
        Misconception(
            "final norm forgotten",
            partial(from_gpt2_with, kept=lambda name: not name.startswith("ln_f")),
            "The norm behind the last block is missing: ln_f is our final_norm.",
        ),
        Misconception(
            "positions forgotten",
            partial(from_gpt2_with, kept=lambda name: not name.startswith("wpe")),
            "The table of positions is missing: wpe is our positions.",
        ),
        Misconception(
            "always float32",
            always_float32,
            "You make everything float32. The numbers move; they should not change, nor should their dtype.",
        ),
    ],
)

# --- pretrained.head_roles --------------------------------------------------------------------------------------------


def head_roles(model, ids):
    weights = torch.stack(model.attention_weights(ids)).mean(1)  # (L, H, T, T)
    n = ids.shape[1] // 2
    second = torch.arange(n, 2 * n)
    return {
        "previous": weights.diagonal(-1, -2, -1).mean(-1),
        "first": weights[..., 1:, 0].mean(-1),
        "induction": weights[..., second, second - n + 1].mean(-1),
    }


def diagonal(weights, offset):
    """The weights from each place to the one `offset` further: (L, B, H, number of such places)."""
    return weights.diagonal(offset, -2, -1)


def copied(weights, offset):
    """From each place of the second half to the place n earlier, plus offset."""
    n = weights.shape[-1] // 2
    second = torch.arange(n, 2 * n)
    return weights[..., second, second - n + offset]


def roles_with(
    model,
    ids,
    *,
    previous=lambda weights: diagonal(weights, -1),
    first=lambda weights: weights[..., 1:, 0],
    induction=lambda weights: copied(weights, 1),
    reduce=lambda scores: scores.mean(dim=(1, 3)),
    seen=lambda weights: weights,
):
    """The three scores with their steps replaceable one by one: most misconceptions below."""
    weights = seen(torch.stack(model.attention_weights(ids)))
    return {
        "previous": reduce(previous(weights)),
        "first": reduce(first(weights)),
        "induction": reduce(induction(weights)),
    }


def largest_counted(weights):
    """1 where a weight is the largest of its row, else 0."""
    return (weights == weights.amax(-1, keepdim=True)).to(weights.dtype)


def over_all_places(scores_of):
    """The scores added up and divided by the number of all places."""
    return lambda weights: scores_of(weights).sum(-1, keepdim=True) / weights.shape[-1]


def random_words_twice(rng, B, n, V=50):
    words = torch.randint(V, (B, n), generator=rng)
    return torch.cat([words, words], dim=1)  # (B, 2n)


def causal_weights(rng, B, H, T):
    allowed = torch.ones(T, T, dtype=torch.bool).tril()
    return (2 * torch.randn(B, H, T, T, generator=rng)).masked_fill(~allowed, -torch.inf).softmax(-1)


def of_stored_weights(seed, B, n, L, H):
    rng = generator(seed + 100 * n + B)
    weights = [causal_weights(rng, B, H, 2 * n) for _ in range(L)]
    return Case(Given(stored_weights, weights, says=f"a model with {L} × {H} heads"), random_words_twice(rng, B, n))


def known_heads(seed):
    "One block, four known heads: they look at the place before, the first, what followed last time, and evenly."
    n = 4
    T, places = 2 * n, torch.arange(2 * n)
    rows = torch.eye(T)
    even = torch.ones(T, T).tril() / (places + 1)[:, None]
    copying = torch.where((places >= n)[:, None], rows[(places - n + 1).clamp(min=0)], even)
    weights = torch.stack([rows[(places - 1).clamp(min=0)], rows[0].expand(T, T), copying, even])[None]  # (1, H, T, T)
    ids = random_words_twice(generator(seed), 1, n)
    return [Case(Given(stored_weights, [weights], says="a model of one block with four known heads"), ids)]


def drawn_heads(seed):
    "Drawn attention weights: several blocks, several texts, a number of words that is odd."
    return [
        of_stored_weights(seed, 1, 3, 2, 3),
        of_stored_weights(seed, 4, 5, 3, 2),
        of_stored_weights(seed, 2, 7, 1, 5),
    ]


def real_decoders(seed):
    "Decoders whose weights are drawn: their heads look where the words and the places send them."
    rng = generator(seed)
    cases = []
    for layers, heads, B, n in ((2, 3, 3, 6), (3, 2, 1, 9)):
        config = {"vocab_size": 50, "d_model": 12, "n_heads": heads, "n_layers": layers, "max_seq_len": 20}
        model = Given(restless_decoder, config, seed + layers, says=f"a decoder with {layers} × {heads} heads")
        cases.append(Case(model, random_words_twice(rng, B, n)))
    return cases


HEAD_ROLES = Exercise(
    id="pretrained.head_roles",
    chapter=15,
    title="What does each head do?",
    kind="experiment",
    points=4,
    difficulty=3,
    minutes=25,
    signature="head_roles(model, ids)",
    why="'This head copies' is a claim with a number behind it. Here you make the number.",
    reference=head_roles,
    stages=[known_heads, drawn_heads, real_decoders],
    rtol=1e-3,  # the words are given, so that nothing is left to chance but rounding
    atol=1e-5,
    hints=[
        "Draw the table of weights of one head for T = 6, rows are queries. Colour the entries that each of the three "
        "scores is about.",
        "A place's own weight stands on the diagonal, the place before it one to the left: look up `diagonal` with an "
        "offset.",
        "Induction: the word at place t stood at t − n before. Where stood the word that came after it then? Only "
        "places of the second half have a 'then'.",
        "The mean goes over texts and places that count; layers and heads stay. Which places have no choice, or no "
        "place before them? Leave these out.",
    ],
    misconceptions=[
        Misconception(
            "rows for columns",
            partial(roles_with, seen=lambda weights: weights.transpose(-1, -2)),
            "You read the table the other way round: what looks *at* a place instead of what it looks at. Rows are "
            "queries, the second-last axis.",
        ),
        Misconception(
            "itself for the place before",
            partial(roles_with, previous=lambda weights: diagonal(weights, 0)),
            "Your `previous` is the weight of a place on itself. The place before stands one to the left of the "
            "diagonal.",
        ),
        Misconception(
            "the place after",
            partial(roles_with, previous=lambda weights: diagonal(weights, 1)),
            "Your `previous` asks how much a place looks at the next one. In a causal model that is 0, always.",
        ),
        Misconception(
            "two places before",
            partial(roles_with, previous=lambda weights: diagonal(weights, -2)),
            "Your `previous` looks two places back.",
        ),
        Misconception(
            "previous over all places",
            partial(roles_with, previous=over_all_places(lambda weights: diagonal(weights, -1))),
            "In `previous` you divide by T. Place 0 has nothing before it: there are T − 1 places that count.",
        ),
        Misconception(
            "first place counted",
            partial(roles_with, first=lambda weights: weights[..., 0]),
            "You count place 0 in `first`. It has no choice: its whole weight is on itself. Leave it out, or every "
            "head gets a part of its score for nothing.",
        ),
        Misconception(
            "last query only",
            partial(roles_with, first=lambda weights: weights[..., -1:, 0]),
            "Your `first` asks the last place only. Take the mean over all places from 1 on.",
        ),
        Misconception(
            "what the first place looks at",
            partial(roles_with, first=lambda weights: weights[..., 0, 1:]),
            "Your `first` is the row of the first place: what *it* looks at. Asked for is its column.",
        ),
        Misconception(
            "the same word",
            partial(roles_with, induction=lambda weights: copied(weights, 0)),
            "Your `induction` looks for the earlier occurrence of the same word, n places back. An induction head "
            "looks one place further: at what came *after* it then, for that is what comes next now.",
        ),
        Misconception(
            "before the same word",
            partial(roles_with, induction=lambda weights: diagonal(weights, -(weights.shape[-1] // 2) - 1)),
            "Your `induction` looks at the word *before* the earlier occurrence. The one after it is what comes next.",
            also=[partial(roles_with, induction=lambda weights: copied(weights, -1))],
        ),
        Misconception(
            "one place too many",
            partial(roles_with, induction=lambda weights: diagonal(weights, 1 - weights.shape[-1] // 2)),
            "The whole side diagonal has one entry more than asked for: that of place n − 1, the last of the first "
            "half. Its word has not occurred before. Begin at place n.",
        ),
        Misconception(
            "one place too few",
            partial(roles_with, induction=lambda weights: copied(weights, 1)[..., 1:]),
            "You begin one place too late: place n, the first of the second half, repeats place 0 and counts.",
            also=[partial(roles_with, induction=lambda weights: copied(weights, 1)[..., :-1])],
        ),
        Misconception(
            "induction over all places",
            partial(roles_with, induction=over_all_places(lambda weights: copied(weights, 1))),
            "In `induction` you divide by T. The n places of the second half count, for the others have nothing to "
            "repeat.",
        ),
        Misconception(
            "length for its half",
            partial(roles_with, induction=lambda weights: diagonal(weights, 1 - weights.shape[-1])),
            "You took n for the number of all places. The words are given twice: n is half of T.",
        ),
        Misconception(
            "sum over the places",
            partial(roles_with, reduce=lambda scores: scores.sum(-1).mean(1)),
            "You add up the places. The score is their mean: 1 for a head that does nothing else.",
        ),
        Misconception(
            "sum over the texts",
            partial(roles_with, reduce=lambda scores: scores.mean(-1).sum(1)),
            "You add up the texts. The score is their mean.",
        ),
        Misconception(
            "one text",
            partial(roles_with, reduce=lambda scores: scores[:, 0].mean(-1)),
            "You use the first text only. Take the mean over all of them.",
        ),
        Misconception(
            "best place",
            partial(roles_with, reduce=lambda scores: scores.mean(1).amax(-1)),
            "You take the place with the highest weight. One place proves little: take the mean.",
            also=[partial(roles_with, reduce=lambda scores: scores.amax((1, 3)))],
        ),
        Misconception(
            "heads averaged",
            partial(roles_with, reduce=lambda scores: scores.mean((1, 2, 3))),
            "You average over the heads of a layer. Each head gets a score of its own: (L, H).",
        ),
        Misconception(
            "layers averaged",
            partial(roles_with, reduce=lambda scores: scores.mean((0, 1, 3))),
            "You average over the layers. Each head of each layer gets a score of its own: (L, H).",
        ),
        Misconception(
            "heads by layers",
            partial(roles_with, reduce=lambda scores: scores.mean((1, 3)).T),
            "Your tables are (H, L). Layers first: (L, H).",
        ),
        Misconception(
            "largest weight counted",
            partial(roles_with, seen=largest_counted),
            "You count how often the place in question has the largest weight. Asked for is the weight itself: a head "
            "that spreads is not told from one that decides.",
        ),
        Misconception(
            "above an even share",
            partial(
                roles_with,
                seen=lambda weights: weights - 1 / torch.arange(1, weights.shape[-1] + 1)[:, None],
            ),
            "You subtract what a head that looks evenly would have. A good thought for reading the scores; asked for "
            "are the scores themselves.",
        ),
    ],
)

# --- pretrained.proof -------------------------------------------------------------------------------------------------

PROOF = Exercise(
    id="pretrained.proof",
    chapter=15,
    title="Is it loaded right?",
    kind="choice",
    points=1,
    difficulty=2,
    minutes=5,
    why="Most loading mistakes raise no error. Which checks would have found them?",
    hints=[
        "For each mistake of the chapter (a square matrix, the number of heads, the activation, a missing tensor) ask "
        "which check would notice it.",
        "Two of these speak about the numbers that come out, or about every tensor that goes in. The others speak "
        "about something that also holds for a wrong model.",
        "What do you have that a stranger's model has, too: the same ids to put in.",
    ],
    options=[
        Option(
            "a",
            "All names and shapes fit",
            False,
            "A square matrix turned, query and key exchanged, another number of heads: every name and shape stays.",
        ),
        Option(
            "b",
            "For the same ids the logits equal those of the original, to rounding",
            True,
            "A parity test: it sees a turned matrix, an exchanged head and a wrong activation at once.",
        ),
        Option(
            "c",
            "The text that it writes makes sense",
            False,
            "Small mistakes cost a little quality. With eight heads for four the Tinytown model still tells stories.",
        ),
        Option(
            "d",
            "load_state_dict(…, strict=False) raised no error",
            False,
            "strict=False was told not to. A tensor that is missing stays as it was drawn: random.",
        ),
        Option(
            "e",
            "The number of parameters is that of the original",
            False,
            "A random model of the same shape has it, too.",
        ),
        Option(
            "f",
            "The loss on new text is far below that of guessing",
            False,
            "So it is with a wrong activation, which raised the loss by 0.02 only. What is learned shows through most "
            "mistakes.",
        ),
        Option(
            "g",
            "Every tensor of the file was used, and every part of the model was filled",
            True,
            "It does not prove that each is in its right place, but it finds the hole that `strict=False` hides.",
        ),
    ],
)

EXERCISES = [MAP_GPT2, HEAD_ROLES, PROOF]
