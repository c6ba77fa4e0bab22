"""Chapter 10, parameter counting: nine exercises.

In formulas: V = vocab_size, d = d_model, d_kv = n_kv_heads · d_head. A config is a `TransformerConfig`.
"""

from dataclasses import asdict, replace

import torch

from course_lib import counting as accounting
from course_lib.config import PRESETS, TransformerConfig

from .. import given
from ..exercise import Case, Exercise, Given, Misconception, Option, generator
from ..judge import compare

# --- counting.gpt2 ----------------------------------------------------------------------------------------------------

GPT2_TABLE, GPT2_POSITIONS = 50257 * 768, 1024 * 768
BASE_ATTENTION = 4 * (768 * 768 + 768)  # one layer of GPT-2 small, and of BERT-base
BASE_FFN = 768 * 3072 + 3072 + 3072 * 768 + 768
BASE_NORM = 2 * 768
BASE_BLOCK = BASE_ATTENTION + BASE_FFN + 2 * BASE_NORM
BASE_BIASES = 12 * (4 * 768 + 3072 + 768)  # of all linear layers in twelve blocks
GPT2_TOTAL = GPT2_TABLE + GPT2_POSITIONS + 12 * BASE_BLOCK + BASE_NORM

GPT2 = Exercise(
    id="counting.gpt2",
    chapter=10,
    title="GPT-2 small, to the last parameter",
    kind="number",
    points=2,
    difficulty=3,
    minutes=15,
    why="If your sum equals the number in the published file, you know where every part of a GPT is.",
    reference=GPT2_TOTAL,
    hints=[
        "Make a list before you multiply: two tables, what is in a block, what stands after the last block.",
        "In a block: four projections of attention, two of the feed-forward, two norms. Which of them have biases, "
        "and how long is each bias?",
        "The output head shares the token table. Does it add anything? And what happens to the stream between the "
        "last block and the head?",
    ],
    misconceptions=[
        Misconception(
            "the label 117M",
            117_000_000,
            "That is the label from the first announcement, and OpenAI corrected it: 117 million is what GPT-1 has, "
            "and what this model would have with GPT-1's vocabulary. Add up the parts of GPT-2.",
            also=[116_534_784, 116_929_536, 116_500_000, 117],
        ),
        Misconception(
            "untied",
            GPT2_TOTAL + GPT2_TABLE,
            "You count the table of 50,257 × 768 twice, once as the output head. In GPT-2 the two are one tensor. "
            "Counting both is the most common mistake about this model.",
        ),
        Misconception(
            "final norm forgotten",
            GPT2_TOTAL - BASE_NORM,
            "You are 1,536 short, a single LayerNorm: there is one more after the last block, before the head.",
        ),
        Misconception(
            "position table forgotten",
            GPT2_TOTAL - GPT2_POSITIONS,
            "You left out the position table. GPT-2 learns one vector of 768 features for each of its 1,024 positions.",
            also=[GPT2_TOTAL - GPT2_POSITIONS - BASE_NORM],
        ),
        Misconception(
            "positions of BERT",
            GPT2_TOTAL - 512 * 768,
            "You count 512 positions. GPT-2 has a context of 1,024.",
        ),
        Misconception(
            "biases forgotten",
            GPT2_TOTAL - BASE_BIASES,
            "The matrices are right and the biases of the linear layers are missing: 768 for each of four attention "
            "projections, 3,072 and 768 in the feed-forward, in every block.",
            also=[
                GPT2_TOTAL - BASE_BIASES - 25 * 768,
                GPT2_TOTAL - BASE_BIASES - BASE_NORM,
                GPT2_TOTAL - 12 * 4 * 768,
                GPT2_TOTAL - 12 * (3072 + 768),
            ],
        ),
        Misconception(
            "norms forgotten",
            GPT2_TOTAL - 25 * BASE_NORM,
            "The norms are missing: two in each block and one after the last, each with a gain and a bias of 768.",
        ),
        Misconception(
            "norms without bias",
            GPT2_TOTAL - 25 * 768,
            "You gave each norm 768 parameters. A LayerNorm has a gain and a bias, so twice that.",
        ),
        Misconception(
            "one norm per block",
            GPT2_TOTAL - 12 * BASE_NORM,
            "You count one norm per block. There are two: one before attention, one before the feed-forward.",
            also=[GPT2_TOTAL - 13 * BASE_NORM],
        ),
        Misconception(
            "tables forgotten",
            12 * BASE_BLOCK,
            "That is the twelve blocks. The token table and the position table come on top, and one more norm.",
            also=[12 * BASE_BLOCK + BASE_NORM],
        ),
        Misconception(
            "heads multiply attention",
            GPT2_TOTAL + 11 * 12 * BASE_ATTENTION,
            "You multiplied attention by its twelve heads. The heads share the 768 features: each projection is 768 × "
            "768 however many there are.",
        ),
        Misconception(
            "one block",
            GPT2_TABLE + GPT2_POSITIONS + BASE_BLOCK + BASE_NORM,
            "That is GPT-2 with a single block. It has twelve.",
        ),
        Misconception(
            "rounded",
            124_000_000,
            "That is right as a size and not as a count. The question asks for all nine digits.",
            also=[124_400_000, 124_440_000, 124_439_000, 124, 124.4, 124.44, 124.439808],
        ),
    ],
)

# --- counting.bert_layer ----------------------------------------------------------------------------------------------

BERT_LAYER = Exercise(
    id="counting.bert_layer",
    chapter=10,
    title="One layer of BERT-base, in five parts",
    kind="number",
    points=3,
    difficulty=3,
    minutes=15,
    why="The course notes reach the right layer by two mistakes that cancel. Yours should be right part by part.",
    reference={
        "q_head": 768 * 64 + 64,
        "attention": BASE_ATTENTION,
        "ffn": BASE_FFN,
        "layer": BASE_BLOCK,
        "all_layers": 12 * BASE_BLOCK,
    },
    hints=[
        "The query projection of one head maps 768 features to 768 / 12 of them. A linear layer has as many biases as "
        "outputs.",
        "All twelve heads together are one projection of 768 to 768. Attention has four of those; the feed-forward "
        "goes 768 → 3,072 → 768.",
        "A layer has two LayerNorms. Each holds a gain and a bias, one of each per feature.",
    ],
    misconceptions=[
        Misconception(
            "biases forgotten",
            {"attention": 4 * 768 * 768},
            "These are the weights without the biases, as the course notes count them. BERT's linear layers have one "
            "bias per output.",
            also=[
                {"q_head": 768 * 64},
                {"ffn": 2 * 768 * 3072},
                {"layer": 4 * 768 * 768 + 2 * 768 * 3072},
                {"layer": 4 * 768 * 768 + 2 * 768 * 3072 + 2 * BASE_NORM},
            ],
        ),
        Misconception(
            "3,072 short",
            {"layer": BASE_BLOCK - 3072},
            "Your layer is 3,072 short. Two things weigh exactly that here: the two LayerNorms together, and the four "
            "attention biases together. Which of them did you leave out? (In the course notes this coincidence hides "
            "a mistake.)",
            also=[{"all_layers": 12 * (BASE_BLOCK - 3072)}],
        ),
        Misconception(
            "norms doubled",
            {"layer": BASE_BLOCK + 3072},
            "Your layer is 3,072 too heavy. Its two LayerNorms hold 2 × 768 each, 3,072 together; the course notes "
            "write 6,144.",
            also=[{"all_layers": 12 * (BASE_BLOCK + 3072)}],
        ),
        Misconception(
            "one norm",
            {"layer": BASE_BLOCK - BASE_NORM},
            "Your layer has one LayerNorm too few: one belongs to attention, one to the feed-forward. If it has two, "
            "each lacks its bias.",
            also=[{"all_layers": 12 * (BASE_BLOCK - BASE_NORM)}],
        ),
        Misconception(
            "all heads for one",
            {"q_head": 768 * 768 + 768},
            "That is the query projection of all twelve heads. One head makes 768 / 12 features.",
            also=[{"q_head": 768 * 768}],
        ),
        Misconception(
            "no output projection",
            {"attention": 3 * (768 * 768 + 768)},
            "You count queries, keys and values. The fourth projection, W_O, mixes what the heads bring back.",
            also=[{"attention": 3 * 768 * 768}],
        ),
        Misconception(
            "heads multiply attention",
            {"attention": 12 * BASE_ATTENTION},
            "You multiply by the twelve heads. They share the 768 outputs of each projection, so their number changes "
            "nothing.",
            also=[{"attention": 12 * 4 * 768 * 768}],
        ),
        Misconception(
            "one matrix in the feed-forward",
            {"ffn": 768 * 3072 + 3072},
            "That is the way up, 768 → 3,072. The way down has a matrix of its own.",
            also=[{"ffn": 768 * 3072}],
        ),
        Misconception(
            "both biases d_ff long",
            {"ffn": 2 * (768 * 3072 + 3072)},
            "You give both biases 3,072 entries. A bias is as long as its layer's output: the second has 768.",
        ),
        Misconception(
            "tables included",
            {"all_layers": 12 * BASE_BLOCK + (30522 + 512 + 2) * 768 + BASE_NORM},
            "That is the whole of BERT-base. The question asks for its twelve layers, without the embeddings.",
        ),
        Misconception(
            "rounded",
            {"layer": 7_090_000},
            "That is rounded, and twelve times a rounded number is further off. Give every digit.",
            also=[
                {"layer": 7_088_000},
                {"layer": 7_100_000},
                {"all_layers": 85_000_000},
                {"all_layers": 85_080_000},
                {"all_layers": 85_100_000},
            ],
        ),
    ],
)

# --- counting.bert ----------------------------------------------------------------------------------------------------

BERT_EMBEDDINGS = (30522 + 512 + 2) * 768 + BASE_NORM
BERT_TOTAL = BERT_EMBEDDINGS + 12 * BASE_BLOCK
BERT_POOLER = 768 * 768 + 768

BERT = Exercise(
    id="counting.bert",
    chapter=10,
    title="BERT-base without its pooler",
    kind="number",
    points=2,
    difficulty=3,
    minutes=10,
    why=(
        "BERT is not a GPT with other numbers: it has a third table, its norms stand elsewhere, and it has no output "
        "head."
    ),
    reference=BERT_TOTAL,
    hints=[
        "Its twelve layers you have already counted. What stands in front of them?",
        "Three tables are added up: tokens, positions, and segments, which say whether a token belongs to the first "
        "or the second sentence.",
        "BERT is post-norm: every norm follows the sum that it normalises. So no norm is missing after the last "
        "layer; but the sum of the three tables is a sum, too.",
    ],
    misconceptions=[
        Misconception(
            "pooler included",
            BERT_TOTAL + BERT_POOLER,
            "That is BERT-base with its pooler, a linear layer of 768 × 768 on top of the first token. The question "
            "leaves it out.",
            also=[BERT_TOTAL + BERT_POOLER - BASE_NORM, BERT_TOTAL + 768 * 768],
        ),
        Misconception(
            "a vocabulary of 30,000",
            BERT_TOTAL - 522 * 768,
            "You took the course notes' vocabulary of 30,000. BERT's has 30,522 word pieces.",
            also=[BERT_TOTAL - 522 * 768 + BERT_POOLER],
        ),
        Misconception(
            "1,536 short",
            BERT_TOTAL - 1536,
            "You are 1,536 short. Two things weigh exactly that: the table of the 2 segments, and the LayerNorm after "
            "the embeddings. Which did you leave out?",
        ),
        Misconception(
            "neither segments nor their norm",
            BERT_TOTAL - 3072,
            "You are 3,072 short: the table of the 2 segments is missing, and the LayerNorm after the embeddings.",
        ),
        Misconception(
            "a norm too many",
            BERT_TOTAL + BASE_NORM,
            "You count one LayerNorm too many. BERT is post-norm: one follows the embeddings, two are in each layer, "
            "none comes after the last.",
        ),
        Misconception(
            "position table forgotten",
            BERT_TOTAL - 512 * 768,
            "The position table is missing: 512 positions of 768 features. BERT learns it.",
        ),
        Misconception(
            "positions of GPT-2",
            BERT_TOTAL + 512 * 768,
            "You count 1,024 positions, as in GPT-2. BERT reads at most 512 tokens.",
        ),
        Misconception(
            "an output head",
            BERT_TOTAL + 30522 * 768,
            "You added an output head of 30,522 × 768. BERT the encoder ends with vectors, 768 features a token: it "
            "has no head of its own.",
        ),
        Misconception(
            "the masked-word head",
            BERT_TOTAL + BERT_POOLER + BASE_NORM + 30522,
            "You added the head with which BERT was trained to fill blanks. The question asks for the encoder alone.",
        ),
        Misconception(
            "layers only",
            12 * BASE_BLOCK,
            "Those are the twelve layers. The tables in front of them are missing.",
        ),
        Misconception(
            "biases forgotten",
            BERT_TOTAL - BASE_BIASES,
            "The biases of the linear layers are missing: 4 × 768 in attention, 3,072 + 768 in the feed-forward, in "
            "each layer.",
            also=[BERT_TOTAL - 12 * 4 * 768],
        ),
        Misconception(
            "the label 110M",
            110_000_000,
            "That is the label, for BERT with its pooler, rounded. The question asks for every digit.",
            also=[109_000_000, 108_900_000, 108_890_000, 110, 109, 108.9, 108.891648],
        ),
    ],
)

# --- counting.llama7b -------------------------------------------------------------------------------------------------

LLAMA_TABLE = 32000 * 4096
LLAMA_MATRIX = 4096 * 11008  # one of the feed-forward's
LLAMA_TOTAL = 2 * LLAMA_TABLE + 32 * (4 * 4096**2 + 3 * LLAMA_MATRIX + 2 * 4096) + 4096
LLAMA_3_TOTAL = 2 * 128256 * 4096 + 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096

LLAMA7B = Exercise(
    id="counting.llama7b",
    chapter=10,
    title="LLaMA-7B, to the last parameter",
    kind="number",
    points=2,
    difficulty=3,
    minutes=10,
    why="Four things changed between GPT-2 and LLaMA. Each of them leaves a mark on the bill.",
    reference=LLAMA_TOTAL,
    hints=[
        "Go through a GPT-2 bill line by line and ask of each line whether LLaMA has it: positions, biases, norms, "
        "feed-forward, head.",
        "SwiGLU multiplies two projections of x before it goes back down. How many matrices is that?",
        "An RMSNorm never moves the mean, so what does it not have? And which of the two tables at the ends can be "
        "saved by tying, if LLaMA tied them?",
    ],
    misconceptions=[
        Misconception(
            "tied",
            LLAMA_TOTAL - LLAMA_TABLE,
            "You count one table of 32,000 × 4,096. LLaMA does not tie: the output head is a second one.",
        ),
        Misconception(
            "two matrices in SwiGLU",
            LLAMA_TOTAL - 32 * LLAMA_MATRIX,
            "You give the feed-forward two matrices. SwiGLU has three: the gate, what it lets through, and the way "
            "back down.",
        ),
        Misconception(
            "d_ff = 4 · d_model",
            LLAMA_TOTAL + 32 * 3 * 4096 * (16384 - 11008),
            "You took d_ff = 16,384, four times d_model. LLaMA's is 11,008, because it has three matrices of that "
            "width instead of two.",
            also=[LLAMA_TOTAL + 32 * (2 * 4096 * 16384 - 3 * LLAMA_MATRIX)],
        ),
        Misconception(
            "RMSNorm with a bias",
            LLAMA_TOTAL + 65 * 4096,
            "You are 65 × 4,096 too high, one vector per norm: you gave RMSNorm a bias. It has a gain only.",
            also=[LLAMA_TOTAL + 64 * 4096],
        ),
        Misconception(
            "final norm forgotten",
            LLAMA_TOTAL - 4096,
            "You are 4,096 short, a single RMSNorm: there is one more after the last block.",
        ),
        Misconception(
            "norms forgotten",
            LLAMA_TOTAL - 65 * 4096,
            "The norms are missing: two in each of 32 blocks and one after the last, 4,096 each.",
        ),
        Misconception(
            "biases",
            LLAMA_TOTAL + 32 * (4 * 4096 + 2 * 11008 + 4096),
            "You count biases of the linear layers. LLaMA has none.",
            also=[LLAMA_TOTAL + 32 * 4 * 4096, LLAMA_TOTAL + 32 * (2 * 11008 + 4096)],
        ),
        Misconception(
            "a position table",
            LLAMA_TOTAL + 2048 * 4096,
            "You count a position table. RoPE turns queries and keys by angles that a formula gives: nothing is "
            "learned, nothing is stored.",
            also=[LLAMA_TOTAL + 4096 * 4096],
        ),
        Misconception(
            "grouped heads",
            LLAMA_TOTAL - 32 * 2 * (4096**2 - 4096 * 1024),
            "You let 8 key-value heads serve 32 queries, as in Llama 3. LLaMA-7B has as many key-value heads as query "
            "heads.",
        ),
        Misconception(
            "another model",
            LLAMA_3_TOTAL,
            "That is Llama-3-8B: a larger vocabulary, a wider feed-forward, grouped heads. The question asks for "
            "LLaMA-7B.",
        ),
        Misconception(
            "blocks only",
            32 * (4 * 4096**2 + 3 * LLAMA_MATRIX + 2 * 4096),
            "Those are the 32 blocks. The token table, the output head and the final norm are missing.",
        ),
        Misconception(
            "heads multiply attention",
            LLAMA_TOTAL + 31 * 32 * 4 * 4096**2,
            "You multiply attention by its 32 heads. They share the 4,096 features of each projection.",
        ),
        Misconception(
            "rounded",
            7_000_000_000,
            "That is the name, not the count. The question asks for all ten digits.",
            also=[6_700_000_000, 6_740_000_000, 6_738_000_000, 6_738_400_000, 7, 6.7, 6.74, 6.738],
        ),
    ],
)

# --- counting.transformer_512 -----------------------------------------------------------------------------------------

D512_TABLE = 30000 * 512
D512 = {
    "token_embedding": D512_TABLE,
    "position_embedding": 512 * 512,
    "attention": 6 * 4 * (512 * 512 + 512),
    "feed_forward": 6 * (512 * 2048 + 2048 + 2048 * 512 + 512),
    "norms": 13 * 2 * 512,
}
D512_TIED = sum(D512.values())

TRANSFORMER_512 = Exercise(
    id="counting.transformer_512",
    chapter=10,
    title="The course notes' model, and their table put right",
    kind="number",
    points=3,
    difficulty=3,
    minutes=15,
    why="A table that does not sum to the model is a table with a part missing. Find it by counting, not by looking.",
    reference={**D512, "untied_total": D512_TIED + D512_TABLE, "tied_total": D512_TIED},
    hints=[
        "Six blocks: first one block, then times six. Every projection has biases.",
        "The norms: how many are in a block, how many blocks are there, and is that all of them? The model is "
        "pre-norm.",
        "The tied total has one table of 30,000 × 512. The untied total has two, the second as the output head, "
        "without a bias.",
    ],
    misconceptions=[
        Misconception(
            "the notes' table",
            {"norms": 12 * 1024},
            "That is the course notes' row of twelve norms, two per block. A pre-norm model has one more, after the "
            "last block: without it the head would read an unnormalised stream.",
            also=[
                {"untied_total": D512_TIED + D512_TABLE - 1024},
                {"tied_total": D512_TIED - 1024},
            ],
        ),
        Misconception(
            "rounded",
            {"tied_total": 35_000_000},
            'The course notes say "about" 35 and 50 million. Nothing about a count is approximate: give every digit.',
            also=[{"untied_total": 50_000_000}, {"tied_total": 34_500_000}, {"untied_total": 49_900_000}],
        ),
        Misconception(
            "totals swapped",
            {"tied_total": D512_TIED + D512_TABLE, "untied_total": D512_TIED},
            "Your two totals are exchanged. Tied means that the head shares the token table, so the tied model is the "
            "smaller one.",
        ),
        Misconception(
            "tied counted twice",
            {"tied_total": D512_TIED + D512_TABLE},
            "Your tied total holds the table of 30,000 × 512 twice. Tied means that input and output use one and the "
            "same tensor.",
        ),
        Misconception(
            "untied counted once",
            {"untied_total": D512_TIED},
            "Your untied total holds the table of 30,000 × 512 once. Untied, the output head is a second table of "
            "that size.",
        ),
        Misconception(
            "one block",
            {"attention": D512["attention"] // 6},
            "That is one block. The model has six.",
            also=[{"feed_forward": D512["feed_forward"] // 6}, {"norms": 2 * 1024}, {"norms": 3 * 1024}],
        ),
        Misconception(
            "biases forgotten",
            {"attention": 6 * 4 * 512 * 512},
            "Those are the weights alone. Every linear layer here has a bias, as long as its output.",
            also=[{"feed_forward": 6 * 2 * 512 * 2048}],
        ),
        Misconception(
            "heads multiply attention",
            {"attention": 8 * D512["attention"]},
            "You multiply by the eight heads. They share the 512 features: their number changes no parameter.",
            also=[{"attention": 8 * D512["attention"] // 6}],
        ),
        Misconception(
            "norms without bias",
            {"norms": 13 * 512},
            "You give each norm 512 parameters. A LayerNorm has a gain and a bias.",
            also=[{"norms": 12 * 512}],
        ),
        Misconception(
            "no output projection",
            {"attention": 6 * 3 * (512 * 512 + 512)},
            "You count three projections. Attention has four: queries, keys, values, and W_O.",
        ),
        Misconception(
            "one matrix in the feed-forward",
            {"feed_forward": 6 * (512 * 2048 + 2048)},
            "You count the way up, 512 → 2,048. The way down has as many weights.",
        ),
        Misconception(
            "no positions",
            {"position_embedding": 0},
            "The model learns its positions: one vector of 512 features for each of 512 places. Sinusoids would cost "
            "nothing.",
        ),
    ],
)

# --- counting.function ------------------------------------------------------------------------------------------------


def count_parameters(config):
    return sum(bill(config).values())


def bill(config):
    """Every parameter of a pre-norm decoder, in pieces so small that a misconception forgets or adds whole ones."""
    d, d_ff, L, V = config.d_model, config.d_ff, config.n_layers, config.vocab_size
    d_kv = config.n_kv_heads * (d // config.n_heads)
    ups = 2 if config.activation == "swiglu" else 1
    layer_norm = config.norm == "layer"
    return {
        "token table": V * d,
        "position table": config.max_seq_len * d if config.positions == "learned" else 0,
        "queries": L * d * d,
        "keys": L * d * d_kv,
        "values": L * d * d_kv,
        "W_O": L * d * d,
        "attention biases": L * (2 * d + 2 * d_kv) if config.bias else 0,
        "up": L * ups * d * d_ff,
        "down": L * d_ff * d,
        "ffn biases": L * (ups * d_ff + d) if config.bias else 0,
        "gains in blocks": 2 * L * d,
        "final gain": d,
        "shifts in blocks": 2 * L * d if layer_norm and config.bias else 0,
        "final shift": d if layer_norm and config.bias else 0,
        "head": 0 if config.tie_weights else V * d,
    }


def without(*pieces):
    return lambda config: count_parameters(config) - sum(bill(config)[piece] for piece in pieces)


def as_if(**fields):
    """The count of the config with other values in some fields; a callable is given the config."""

    def count(config):
        values = {name: value(config) if callable(value) else value for name, value in fields.items()}
        return count_parameters(replace(config, **values))

    return count


def plus(extra):
    return lambda config: count_parameters(config) + extra(config)


def linear_biases(config):
    with_bias = bill(replace(config, bias=True))
    return with_bias["attention biases"] + with_bias["ffn biases"]


PLAIN = TransformerConfig(
    vocab_size=11, d_model=8, n_heads=2, n_layers=1, d_ff=20, max_seq_len=5, norm="rms", positions="rope", bias=False
)


def told(config):
    """A config told as data."""
    return Given(given.config, asdict(config), says=repr(config))


def one_block(seed):
    "One block without biases, with RMSNorm and RoPE, tied: matrices and gains only."
    return [Case(told(PLAIN))]


def several_blocks(seed):
    "Three blocks, and a d_ff that is not 4 · d_model."
    return [Case(told(replace(PLAIN, n_layers=3))), Case(told(replace(PLAIN, n_layers=3, d_ff=7)))]


def positions(seed):
    "Other positions: which of the five schemes has parameters?"
    return [Case(told(replace(PLAIN, positions=scheme))) for scheme in ("none", "sinusoidal", "alibi", "learned")]


def layer_norms(seed):
    "LayerNorm, without and with biases; with `bias` every linear layer in a block has one, too."
    return [Case(told(replace(PLAIN, norm="layer"))), Case(told(replace(PLAIN, norm="layer", bias=True, n_layers=2)))]


def untied(seed):
    "An output head with a table of its own."
    return [
        Case(told(replace(PLAIN, tie_weights=False))),
        Case(told(replace(PLAIN, tie_weights=False, bias=True, norm="layer"))),
    ]


def swiglu(seed):
    "SwiGLU, without and with biases."
    return [
        Case(told(replace(PLAIN, activation="swiglu"))),
        Case(told(replace(PLAIN, activation="swiglu", bias=True, norm="layer"))),
    ]


def grouped_heads(seed):
    "Fewer key-value heads than query heads."
    wide = replace(PLAIN, d_model=24, n_heads=6, n_kv_heads=6)
    return [
        Case(told(replace(wide, n_kv_heads=2))),
        Case(told(replace(wide, n_kv_heads=1))),
        Case(told(replace(wide, n_kv_heads=3, bias=True, norm="layer"))),
    ]


def rms_with_biases(seed):
    "RMSNorm in a model whose linear layers have biases."
    return [Case(told(replace(PLAIN, bias=True)))]


def drawn(seed):
    "Drawn configs, odd sizes."
    rng = generator(seed)

    def number(low, high):
        return int(torch.randint(low, high + 1, (), generator=rng))

    def one_of(*options):
        return options[number(0, len(options) - 1)]

    cases = []
    for activation in ("relu", "gelu", "gelu_tanh", "swiglu", "swiglu"):
        n_kv_heads, group, d_head = number(1, 3), number(1, 4), 2 * number(1, 5)
        n_heads = n_kv_heads * group
        config = TransformerConfig(
            vocab_size=number(3, 999),
            d_model=n_heads * d_head,
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            n_layers=number(1, 9),
            d_ff=number(1, 99),
            max_seq_len=number(1, 300),
            activation=activation,
            norm=one_of("layer", "rms"),
            positions=one_of("none", "sinusoidal", "learned", "rope", "alibi"),
            tie_weights=one_of(True, False),
            bias=one_of(True, False),
        )
        cases.append(Case(told(config)))
    return cases


def published(seed):
    "Published models: GPT-2, LLaMA-7B, Llama-3-8B."
    return [Case(told(PRESETS[name])) for name in ("gpt2", "llama-7b", "llama-3-8b")]


def same_count(case, expected, got):
    if isinstance(got, str):
        return f"This is {got}: read it, and write one of your own."
    return compare(expected, got)


FUNCTION = Exercise(
    id="counting.function",
    chapter=10,
    title="A counter for every decoder",
    kind="code",
    points=5,
    difficulty=5,
    minutes=30,
    signature="count_parameters(config)",
    why="Twenty lines that count GPT-2 and Llama 3 alike: you then know what each field of a config buys.",
    reference=count_parameters,
    probe=given.counted_by_hand,
    judge=same_count,
    stages=[
        one_block,
        several_blocks,
        positions,
        layer_norms,
        untied,
        swiglu,
        grouped_heads,
        rms_with_biases,
        drawn,
        published,
    ],
    hints=[
        "Begin with the smallest case: a token table, and in every block four projections, a way up, a way down and "
        "two gains. One more gain stands after the last block.",
        "Of the five position schemes one has a table. Which fields tell you its two sizes?",
        "With `bias`, each linear layer in a block gets as many biases as it has outputs, and each LayerNorm one more "
        "vector. Which norm never has one? Which linear layer never?",
        "Keys and values are n_kv_heads · d_head wide, queries n_heads · d_head. Which of the four projections does "
        "that change? Its bias, too.",
    ],
    misconceptions=[
        Misconception(
            "the library counts",
            lambda config: accounting.count_parameters(config).total,
            "You let the library's own counter do it. What you have read there you may use; the count is yours to "
            "write.",
        ),
        Misconception(
            "output head forgotten",
            without("head"),
            "Right for tied models. When tie_weights is False, the output head has a table of its own: vocab_size × "
            "d_model more.",
        ),
        Misconception(
            "output head counted twice",
            as_if(tie_weights=False),
            "You always add an output head. When tie_weights is True, it *is* the token table: one tensor, counted "
            "once.",
        ),
        Misconception(
            "tie_weights inverted",
            as_if(tie_weights=lambda config: not config.tie_weights),
            "You add the head when the weights are tied and leave it out when they are not. Tied means shared, so "
            "nothing is added.",
        ),
        Misconception(
            "head with a bias",
            plus(lambda config: config.vocab_size if config.bias else 0),
            "You give the output head a bias of vocab_size. It has none, whatever `bias` says: tied, it is a table, "
            "and tables have no bias.",
            also=[plus(lambda config: config.vocab_size if config.bias and not config.tie_weights else 0)],
        ),
        Misconception(
            "biases forgotten",
            without("attention biases", "ffn biases"),
            "Right without biases. When `bias` is True, every linear layer in a block has one more number per output.",
            also=[
                without("attention biases", "ffn biases", "shifts in blocks", "final shift"),
                without("attention biases"),
                without("ffn biases"),
            ],
        ),
        Misconception(
            "biases always",
            plus(lambda config: 0 if config.bias else linear_biases(config)),
            "You always count the biases of the linear layers. `bias` says whether there are any: LLaMA has none.",
            also=[as_if(bias=True)],
        ),
        Misconception(
            "equal biases",
            plus(lambda config: config.n_layers * (config.d_ff - config.d_model) if config.bias else 0),
            "You give the feed-forward's last layer a bias of d_ff. A bias is as long as its layer's output, and that "
            "output is d_model wide.",
        ),
        Misconception(
            "position table forgotten",
            without("position table"),
            "Right until the positions are learned: then there is a table of max_seq_len × d_model.",
        ),
        Misconception(
            "a table for every scheme",
            as_if(positions="learned"),
            "You count a position table for every scheme. Only learned positions have one; sinusoids, RoPE and ALiBi "
            "are formulas.",
        ),
        Misconception(
            "final norm forgotten",
            without("final gain", "final shift"),
            "You are short by exactly one norm. In a pre-norm decoder one more stands after the last block, before "
            "the output head.",
        ),
        Misconception(
            "one norm per block",
            lambda config: (
                count_parameters(config) - (bill(config)["gains in blocks"] + bill(config)["shifts in blocks"]) // 2
            ),
            "You count one norm per block. There are two: one before attention, one before the feed-forward.",
        ),
        Misconception(
            "norms forgotten",
            without("gains in blocks", "final gain", "shifts in blocks", "final shift"),
            "You left out the norms: two in each block and one after the last.",
        ),
        Misconception(
            "norms without bias",
            without("shifts in blocks", "final shift"),
            "You give every norm d_model parameters. A LayerNorm has a bias as well as a gain, unless `bias` is False.",
        ),
        Misconception(
            "LayerNorm always with bias",
            plus(
                lambda config: (
                    (2 * config.n_layers + 1) * config.d_model if config.norm == "layer" and not config.bias else 0
                )
            ),
            "You always give LayerNorm two vectors. When `bias` is False it keeps its gain and loses its bias.",
        ),
        Misconception(
            "RMSNorm with a bias",
            plus(
                lambda config: (2 * config.n_layers + 1) * config.d_model if config.norm == "rms" and config.bias else 0
            ),
            "You give RMSNorm a bias. It never has one, whatever `bias` says: it only rescales.",
            also=[plus(lambda config: (2 * config.n_layers + 1) * config.d_model if config.norm == "rms" else 0)],
        ),
        Misconception(
            "SwiGLU with two matrices",
            as_if(activation="gelu"),
            "You count two matrices in every feed-forward. SwiGLU has three: the gate, what it lets through, and the "
            "way back down.",
            also=[
                lambda config: (
                    count_parameters(config) - (bill(config)["up"] // 2 if config.activation == "swiglu" else 0)
                )
            ],
        ),
        Misconception(
            "three matrices for every activation",
            as_if(activation="swiglu"),
            "You count three matrices in every feed-forward. Only SwiGLU has a gate; with ReLU and GELU there are two.",
        ),
        Misconception(
            "n_kv_heads ignored",
            as_if(n_kv_heads=lambda config: config.n_heads),
            "You give keys and values as many heads as the queries. They have n_kv_heads of d_head features: smaller "
            "matrices, shorter biases.",
        ),
        Misconception(
            "only the keys are grouped",
            plus(lambda config: bill(as_full(config))["values"] - bill(config)["values"]),
            "You shrink the keys and not the values. With grouped heads both have n_kv_heads heads.",
        ),
        Misconception(
            "all four projections shrink",
            lambda config: (
                count_parameters(config)
                - (1 - config.n_kv_heads / config.n_heads) * (bill(config)["queries"] + bill(config)["W_O"])
            ),
            "You shrink the queries and W_O together with keys and values. All n_heads query heads stay, and W_O "
            "takes what they bring.",
        ),
        Misconception(
            "heads multiply attention",
            plus(
                lambda config: (
                    (config.n_heads - 1) * sum(bill(config)[name] for name in ("queries", "keys", "values", "W_O"))
                )
            ),
            "You multiply attention by n_heads. The heads share the d_model features of each projection: more heads, "
            "each smaller, same count.",
            also=[
                plus(
                    lambda config: (
                        (config.n_heads - 1)
                        * sum(bill(config)[name] for name in ("queries", "keys", "values", "W_O", "attention biases"))
                    )
                )
            ],
        ),
        Misconception(
            "no output projection",
            without("W_O"),
            "You count queries, keys and values. Attention has a fourth projection, W_O, which mixes the heads.",
            also=[
                lambda config: (
                    count_parameters(config)
                    - bill(config)["W_O"]
                    - (config.n_layers * config.d_model if config.bias else 0)
                )
            ],
        ),
        Misconception(
            "one block",
            as_if(n_layers=1),
            "You count a single block, whatever n_layers says.",
        ),
        Misconception(
            "d_ff = 4 · d_model",
            as_if(d_ff=lambda config: 4 * config.d_model),
            "You take 4 · d_model for the width of the feed-forward. It is a habit, not a law: config.d_ff says what "
            "it is.",
        ),
    ],
)


def as_full(config):
    return replace(config, n_kv_heads=config.n_heads)


# --- counting.memory --------------------------------------------------------------------------------------------------


def training_bytes(n_params, mixed_precision=False):
    compute = 2 if mixed_precision else 4
    weights = gradients = compute * n_params
    moments = 2 * 4 * n_params
    master_copy = 4 * n_params if mixed_precision else 0
    return weights + gradients + moments + master_copy


def per_parameter(float32, mixed):
    """What somebody finds who counts that many bytes per parameter."""
    return lambda n_params, mixed_precision=False: (mixed if mixed_precision else float32) * n_params


def one_parameter(seed):
    "A single parameter, trained in float32."
    return [Case(1), Case(1, False)]


def one_parameter_mixed(seed):
    "A single parameter, trained in mixed precision."
    return [Case(1, True)]


def whole_models(seed):
    "Whole models: a drawn size, GPT-2 small, LLaMA-7B."
    sizes = [int(torch.randint(2, 10**6, (), generator=generator(seed))), GPT2_TOTAL, LLAMA_TOTAL]
    return [Case(size, mixed) for size in sizes for mixed in (False, True)]


MEMORY = Exercise(
    id="counting.memory",
    chapter=10,
    title="What AdamW keeps of each parameter",
    kind="code",
    points=2,
    difficulty=2,
    minutes=10,
    signature="training_bytes(n_params, mixed_precision=False)",
    why='"It runs on my machine" and "it trains on my machine" are far apart. This is by how much.',
    reference=training_bytes,
    rtol=1e-12,
    stages=[one_parameter, one_parameter_mixed, whole_models],
    hints=[
        "For one parameter in float32, list what has to exist while AdamW takes a step. The number itself is only the "
        "first item.",
        "AdamW remembers two running averages of every gradient: of the gradient, and of its square.",
        "In the mixed precision of this exercise weights and gradients have 16 bits. The moments do not, and one thing "
        "is added, so that small updates are not rounded away.",
    ],
    misconceptions=[
        Misconception(
            "weights only",
            per_parameter(4, 2),
            "Those are the weights, which is what it takes to run the model. Training also holds a gradient and "
            "AdamW's two moments.",
        ),
        Misconception(
            "moments forgotten",
            per_parameter(8, 8),
            "You count weights and gradients. AdamW keeps two more float32 numbers for each parameter, its moments.",
            also=[per_parameter(8, 4)],
        ),
        Misconception(
            "gradients forgotten",
            per_parameter(12, 14),
            "You count weights and moments. The gradient of each parameter has to be somewhere, too, until the step "
            "is taken.",
        ),
        Misconception(
            "one moment",
            per_parameter(12, 12),
            "You give AdamW one moment. It has two: the average of the gradients and the average of their squares.",
        ),
        Misconception(
            "half of everything",
            per_parameter(16, 8),
            "You halve everything in mixed precision. The moments stay in float32, and a float32 copy of the weights "
            "is added.",
        ),
        Misconception(
            "12 bytes when mixed",
            per_parameter(16, 12),
            "You find 12 bytes per parameter in mixed precision. Either the float32 master copy is missing, or the "
            "moments have only 16 bits: they keep 32.",
        ),
        Misconception(
            "16-bit weights forgotten",
            per_parameter(16, 14),
            "You find 14 bytes in mixed precision. The float32 master copy does not replace the 16-bit weights: the "
            "model computes with those.",
        ),
        Misconception(
            "float32 gradients when mixed",
            per_parameter(16, 18),
            "You keep the gradients in float32. `torch.autocast` does, and the weights with them; in the recipe of "
            "this exercise both have 16 bits.",
        ),
        Misconception(
            "a master copy always",
            per_parameter(20, 16),
            "You count a master copy in float32 training, too. There the weights are float32 already.",
            also=[per_parameter(20, 20)],
        ),
        Misconception(
            "bits",
            per_parameter(128, 128),
            "Those are bits. A byte has eight.",
        ),
        Misconception(
            "gigabytes",
            per_parameter(16e-9, 16e-9),
            "The size is right and the unit is not: that is in gigabytes. Give bytes.",
            also=[per_parameter(16 / 2**30, 16 / 2**30)],
        ),
    ],
)

# --- counting.flops ---------------------------------------------------------------------------------------------------


def train_flops(n_params, n_tokens):
    return 6 * n_params * n_tokens


def one_of_each(seed):
    "One parameter, one token."
    return [Case(1, 1)]


def small_numbers(seed):
    "Sizes small enough to check by hand."
    return [Case(10, 3), Case(7, 100)]


def whole_runs(seed):
    "Whole training runs: a drawn one, and GPT-3's 175 billion parameters on 300 billion tokens."
    rng = generator(seed)
    drawn = [int(torch.randint(1000, 10**6, (), generator=rng)) for _ in range(2)]
    return [Case(*drawn), Case(175 * 10**9, 300 * 10**9)]


FLOPS = Exercise(
    id="counting.flops",
    chapter=10,
    title="What a training run costs",
    kind="code",
    points=1,
    difficulty=1,
    minutes=5,
    signature="train_flops(n_params, n_tokens)",
    why="One multiplication tells whether a plan takes an afternoon or a data centre.",
    reference=train_flops,
    rtol=1e-9,
    stages=[one_of_each, small_numbers, whole_runs],
    hints=[
        "In a matrix product, what happens to one weight for one token? It is multiplied once, and the product is "
        "added once.",
        "The backward pass computes two gradients for every matrix product of the forward pass: one for its weights, "
        "one for its input.",
        "Add forward and backward for one weight and one token. Then: how many weights, how many tokens?",
    ],
    misconceptions=[
        Misconception(
            "forward only",
            lambda n_params, n_tokens: 2 * n_params * n_tokens,
            "That is the forward pass, the cost of reading the tokens. Training also goes backward, which costs twice "
            "as much again.",
        ),
        Misconception(
            "backward only",
            lambda n_params, n_tokens: 4 * n_params * n_tokens,
            "That is one of: the backward pass alone, or a backward pass as cheap as the forward one. It needs two "
            "products for each forward one, and the forward pass comes on top.",
        ),
        Misconception(
            "multiply-adds",
            lambda n_params, n_tokens: 3 * n_params * n_tokens,
            "You count a multiplication and its addition as one operation. By the usual convention a FLOP is one of "
            "them, so that a multiply-add is two.",
        ),
        Misconception(
            "one each",
            lambda n_params, n_tokens: n_params * n_tokens,
            "You count one operation per weight and token. Forward there are two, a multiplication and an addition; "
            "then comes the backward pass.",
        ),
        Misconception(
            "recomputed activations",
            lambda n_params, n_tokens: 8 * n_params * n_tokens,
            "That is training with activation checkpointing, where the forward pass is run twice. The plain rule "
            "counts it once.",
        ),
        Misconception(
            "tokens forgotten",
            lambda n_params, n_tokens: 6 * n_params,
            "That is the cost of one token. The run has n_tokens of them.",
        ),
        Misconception(
            "parameters forgotten",
            lambda n_params, n_tokens: 6 * n_tokens,
            "You never use n_params. Every token passes every weight.",
        ),
        Misconception(
            "sum for product",
            lambda n_params, n_tokens: 6 * (n_params + n_tokens),
            "You add the two numbers. Each token passes each weight: multiply.",
        ),
    ],
)

# --- counting.changes -------------------------------------------------------------------------------------------------

CHANGES = Exercise(
    id="counting.changes",
    chapter=10,
    title="Which change alters the count?",
    kind="choice",
    points=1,
    difficulty=2,
    minutes=5,
    why="Half of the settings of a model cost no parameter at all. It is worth knowing which half.",
    hints=[
        "For each change ask: which tensor gets another shape?",
        "Some settings change what is computed, or how much memory an input takes, and no tensor that is learned.",
        "Three of the eight give a tensor another shape or add one. Look at the tables first, then at the projections.",
    ],
    options=[
        Option(
            "a",
            "24 heads instead of 12, at the same d_model",
            False,
            "each head gets half as many features, and the projections keep their shape of d_model × d_model.",
        ),
        Option(
            "b",
            "a context of 2,048 instead of 1,024, with learned positions",
            True,
            "the position table has one row per position, so it doubles.",
        ),
        Option(
            "c",
            "a context of 2,048 instead of 1,024, with RoPE",
            False,
            "RoPE computes its angles: no table grows. Memory for the cache does, and that is another bill.",
        ),
        Option(
            "d",
            "an output head of its own instead of a tied one",
            True,
            "vocab_size × d_model numbers are added, for GPT-2 small almost a third of the model.",
        ),
        Option(
            "e",
            "dropout 0.1 instead of 0",
            False,
            "dropout sets activations to zero at random. It learns nothing and stores nothing.",
        ),
        Option(
            "f",
            "3 key-value heads for 12 query heads",
            True,
            "keys and values are then a quarter as wide, so two of the four projections shrink.",
        ),
        Option(
            "g",
            "GELU instead of ReLU",
            False,
            "both are formulas without parameters. SwiGLU would be another matter: it has a third matrix.",
        ),
        Option(
            "h",
            "a batch of 64 instead of 8",
            False,
            "a batch is how many sequences share the weights. Activations grow with it, parameters do not.",
        ),
    ],
)

EXERCISES = [GPT2, TRANSFORMER_512, BERT_LAYER, BERT, LLAMA7B, CHANGES, FUNCTION, MEMORY, FLOPS]
