import torch
from torch import Tensor

from course_lib.grading.exercise import Case, generator, stage
from course_lib.grading.judge.compare import compare


def from_gpt2(state_dict):
    """GPT-2's tensors under our names, as (out, in)."""
    outside = {"wte": "token_embedding", "wpe": "positions", "ln_f": "final_norm"}
    inside = {"ln_1": "norm1", "attn.c_proj": "attention.out_proj", "ln_2": "norm2"}
    inside |= {"mlp.c_fc": "feed_forward.up_proj", "mlp.c_proj": "feed_forward.down_proj"}
    ours = {}
    for name, tensor in state_dict.items():
        first, *rest, kind = name.split(".")
        if first in outside:
            ours[f"{outside[first]}.{kind}"] = tensor
            continue
        block, part = f"blocks.{rest[0]}", ".".join(rest[1:])
        turned = tensor.t()  # (out, in); a vector stays a vector
        if part == "attn.c_attn":
            for letter, piece in zip("qkv", turned.chunk(3)):
                ours[f"{block}.attention.{letter}_proj.{kind}"] = piece
        else:
            ours[f"{block}.{inside[part]}.{kind}"] = turned
    return ours


def checkpoint(rng, d, d_ff, blocks=1, V=11, T=6, dtype=torch.float32):
    """Return a random checkpoint with GPT-2's names and shapes."""
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


@stage
def one_block(seed):
    "Every tensor of a model with one block, under our names, as (out, in)."
    rng = generator(seed)
    return [Case(checkpoint(rng, 2, 5)), Case(checkpoint(rng, 4, 7))]


@stage
def everything_square(seed):
    "d_ff = d_model: every matrix of a block but c_attn is square, so no shape shows whether you transposed it."
    return [Case(checkpoint(generator(seed), 3, 3))]


@stage
def shapes_that_agree(seed):
    "d_ff = 3 · d_model: c_attn and c_fc have the same shape, and so do some of the norms and biases."
    return [Case(checkpoint(generator(seed), 3, 9, blocks=2))]


@stage
def many_blocks(seed):
    "Thirteen blocks, with their names in any order: block 10 is not block 1."
    rng = generator(seed)
    tensors = checkpoint(rng, 2, 3, blocks=13)
    order = torch.randperm(len(tensors), generator=rng).tolist()
    names = list(tensors)
    return [Case(tensors), Case({names[i]: tensors[names[i]] for i in order})]


@stage
def other_dtypes(seed):
    "A checkpoint in float64 or float16: the numbers keep their dtype."
    rng = generator(seed)
    return [Case(checkpoint(rng, 4, 6, dtype=torch.float64)), Case(checkpoint(rng, 4, 6, dtype=torch.float16))]


def judge(case, expected, got):
    """Require equal numbers, because they are only moved. The output head is the token table, so it is optional."""
    if isinstance(got, dict) and isinstance(got.get("output.weight"), Tensor):
        if compare(expected["token_embedding.weight"], got["output.weight"], 0.0, 0.0):
            return "`output.weight` should equal the table of tokens: GPT-2 ties the two."
        got = {name: tensor for name, tensor in got.items() if name != "output.weight"}
    return compare(expected, got, rtol=0.0, atol=0.0)
