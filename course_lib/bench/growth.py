"""How time and memory grow: with the text, the width, the depth, the batch. An exponent of 1 means: twice the size,
twice the time."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from course_lib.attention import fused_attention, scaled_dot_product_attention
from course_lib.bench.report import Row
from course_lib.bench.rounds import Spread, in_turns, spread
from course_lib.config import TransformerConfig
from course_lib.gpt import DecoderOnly
from course_lib.sampling import generate

BASE: dict[str, Any] = {"vocab_size": 343, "d_model": 256, "n_heads": 4, "n_layers": 2, "max_seq_len": 4096}


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """Return the slope of the line through log(values) against log(sizes), by least squares: value ∝ size^exponent.

    Errors: ValueError for fewer than two sizes, or a number that is not positive.
    """
    if len(set(sizes)) < 2 or len(sizes) != len(values) or min(*sizes, *values) <= 0:
        raise ValueError(f"need two different sizes and positive numbers, got sizes {sizes} and values {values}")
    x, y = ([math.log(number) for number in numbers] for numbers in (sizes, values))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y)) / sum((a - mean_x) ** 2 for a in x)


def bytes_kept(function: Callable[[], Tensor]) -> int:
    """Return the bytes that a forward pass keeps for its backward pass, each tensor's memory counted once."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = function()  # alive until all is counted: memory that is given back would be counted again
    del result
    return sum(kept.values())


def model_pass(B: int = 1, T: int = 256, **changes: int) -> Callable[[], Tensor]:
    """Return a function that makes one forward pass of a model of this shape and returns its logits."""
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(**(BASE | changes)))
    ids = torch.randint(BASE["vocab_size"], (B, T))
    return lambda: model(ids)


def attention_pass(attend: Callable, T: int) -> Callable[[], Tensor]:
    """Return a function that attends once, (1, 4, T, 64)."""
    query, key, value = torch.randn(3, 1, 4, T, 64, requires_grad=True).unbind()

    def once() -> Tensor:
        output = attend(query, key, value)
        return output[0] if isinstance(output, tuple) else output

    return once


def writing(T: int) -> Callable[[], object]:
    """Return a function that writes 16 tokens after a text of T."""
    torch.manual_seed(0)
    model = DecoderOnly(TransformerConfig(**BASE)).eval()
    ids = torch.randint(BASE["vocab_size"], (1, T))
    return lambda: generate(model, ids, 16, temperature=0)


SERIES: Mapping[str, tuple[Sequence[int], Callable[[int], Callable[[], Tensor]]]] = {
    "attention in plain steps, with T": ((512, 1024, 2048), lambda T: attention_pass(scaled_dot_product_attention, T)),
    "fused attention, with T": ((512, 1024, 2048), lambda T: attention_pass(fused_attention, T)),
    "a model, with d_model": ((256, 512, 1024), lambda d: model_pass(d_model=d)),
    "a model, with n_layers": ((2, 4, 8), lambda n: model_pass(n_layers=n)),
    "a model, with the batch": ((2, 4, 8), lambda B: model_pass(B)),
}


def measure(rounds: int) -> Iterator[Row]:
    """Measure every series: the exponent of time, and of the bytes kept for the backward pass."""
    for name, (sizes, make) in SERIES.items():
        functions = {str(size): make(size) for size in sizes}
        contest = in_turns(functions, rounds, f"growth of {name}")
        yield Row("growth", f"time of {name}", f"{sizes[0]} … {sizes[-1]}", by_round(sizes, contest.seconds))
        kept = exponent(sizes, [bytes_kept(function) for function in functions.values()])
        yield Row("growth", f"memory of {name}", f"{sizes[0]} … {sizes[-1]}", spread([kept]))


def by_round(sizes: Sequence[int], seconds: Mapping[str, Sequence[float]]) -> Spread:
    """Return the exponents of the rounds, as a spread."""
    return spread([exponent(sizes, taken) for taken in zip(*seconds.values(), strict=True)])
