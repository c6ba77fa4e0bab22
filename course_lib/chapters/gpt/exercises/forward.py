import math

import torch

from course_lib.chapters.gpt.fixtures import decoder_parts
from course_lib.chapters.gpt.fixtures import logits_or_refusal as probe
from course_lib.grading.exercise import Case, Given, generator, stage
from course_lib.grading.judge.compare import compare


def gpt_forward(parts, ids):
    """Return logits (B, T, V) of the next token at every position: ids (B, T),
    T at most len(parts.position_table)."""
    T, max_seq_len = ids.shape[1], len(parts.position_table)
    if max_seq_len < T:
        raise ValueError(f"ids have {T} tokens per row, more than max_seq_len={max_seq_len}: shorten them")
    x = parts.token_table[ids] + parts.position_table[:T]  # (B, T, d_model)
    mask = torch.ones(T, T, dtype=torch.bool).tril()  # (T, T): row t is True up to column t
    for block in parts.blocks:
        x = block(x, mask)  # (B, T, d_model)
    return parts.final_norm(x) @ parts.output_table.T  # (B, T, V)


SMALL = {"vocab_size": 7, "d_model": 4, "n_heads": 2, "max_seq_len": 5}


ODD = {"vocab_size": 11, "d_model": 6, "n_heads": 3, "max_seq_len": 9}


SQUARE = {"vocab_size": 4, "d_model": 4, "n_heads": 2, "max_seq_len": 4}


LLAMA = {"vocab_size": 13, "d_model": 8, "n_heads": 4, "n_kv_heads": 2, "max_seq_len": 6, "norm": "rms"}


def text_for(rng, sizes, B, T, n_blocks, **more):
    """Return parts of these sizes, and B texts of T tokens."""
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


@stage
def no_block(seed):
    "No blocks: look tokens up, add the vectors of their positions, normalize, compare with the output table."
    rng = generator(seed)
    return [text_for(rng, SMALL, 1, 1, 0), text_for(rng, SMALL, 1, 3, 0), text_for(rng, ODD, 2, 4, 0)]


@stage
def one_block(seed):
    "One block: a token sees itself and the tokens before it, nothing else."
    rng = generator(seed)
    return [text_for(rng, SMALL, 1, 2, 1), text_for(rng, SMALL, 3, 4, 1)]


@stage
def several_blocks(seed):
    "Several blocks, in order: each reads the output of the previous one."
    rng = generator(seed)
    return [text_for(rng, ODD, 1, 3, 2), text_for(rng, ODD, 2, 5, 3), text_for(rng, LLAMA, 2, 3, 2)]


@stage
def tied_tables(seed):
    "The output table is the token table."
    return [text_for(generator(seed), ODD, 3, 2, 2, tied=True)]


@stage
def whole_context(seed):
    "The number of tokens equals the number of positions."
    rng = generator(seed)
    return [text_for(rng, SMALL, 2, 5, 1), text_for(rng, SQUARE, 4, 4, 2)]


@stage
def other_ids(seed):
    "ids are a transposed view, or have the dtype int32."
    rng = generator(seed)
    one, other = (text_for(rng, ODD, 3, T, 2) for T in (2, 4))
    parts, ids = one.args
    return [Case(parts, ids.T), Case(other.args[0], other.args[1].int())]


@stage
def double_parts(seed):
    "float64 in, float64 out."
    return [text_for(generator(seed), SMALL, 2, 3, 2, dtype="float64")]


@stage
def too_long(seed):
    "A text has more tokens than there are positions: raise a ValueError."
    rng = generator(seed)
    return [text_for(rng, SMALL, 1, 6, 1), text_for(rng, dict(SMALL, max_seq_len=1), 2, 3, 0)]


def judge(case, expected, got):
    if not isinstance(expected, str):
        return compare(expected, got)
    if got == expected:
        return None
    does = f"ends in {got}" if isinstance(got, str) else "continues as if nothing were wrong"
    return f"This text has more tokens than there are positions. Raise a ValueError; your function {does}."
