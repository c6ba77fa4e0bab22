"""Efficiency: the same text from the same model, sooner and in less memory.

Chapter 14. A model that writes one token at a time waits for its weights, not for arithmetic. Two ways out: weights of
one byte each, and a small model that guesses ahead, whose guesses the large one checks all at once.
"""

import copy
from typing import Any

import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor, nn

from course_lib import checks
from course_lib.arguments import require_arguments
from course_lib.linear import Layer
from course_lib.sampling import next_token_distribution, sample_next_token
from course_lib.trace import evaluating

KERNEL_ROW = 32  # numbers: PyTorch's int8 kernel reads so many at once
LARGEST = 127  # of an int8; −128 stays unused, so that the range is the same on both sides of zero


def quantize_int8(weight: Float[Tensor, "O I"]) -> tuple[Int8[Tensor, "O I"], Float[Tensor, "O"]]:
    """Round a matrix to whole numbers from −127 to 127, with one scale per output row: weight ≈ scale · q.

    scale = max |row| / 127,   q = round(row / scale);   no entry moves by more than half a scale

    A row of zeros has scale 1, so that nothing is divided by zero.

    Errors: ValueError if weight is not a matrix of finite numbers.
    Source: Dettmers et al. 2022, "LLM.int8()", section 2.1 (absmax quantization, row by row).
    """
    checks.require_matrix(weight)
    largest = weight.abs().amax(dim=1)  # (O,)
    scale = torch.where(largest > 0, largest / LARGEST, 1.0)
    return (weight / scale[:, None]).round().to(torch.int8), scale


def int8_linear(
    x: Float[Tensor, "*batch I"], q: Int8[Tensor, "O I"], scale: Float[Tensor, "O"]
) -> Float[Tensor, "*batch O"]:
    """Multiply x with the matrix that q and scale stand for: y = (x qᵀ) · scale. The scale comes after the sum."""
    require_arguments(int8_linear, locals())
    return x @ q.to(x.dtype).T * scale.to(x.dtype)


class Int8Linear(Layer):
    """Do what a linear layer does, from weights of one byte instead of four.

    `by_hand` is the formula; it first writes the whole matrix out in x's format, which costs more than it saves.
    `forward` uses PyTorch's kernel, which widens the bytes on their way into the sum: a quarter of the memory to read.
    The kernel takes x in bfloat16, and whole rows of 32 numbers: what does not suit it goes by the formula.

    Parameters: none to train; buffers `q` (O, I), `scale` (O,) and `bias` (O,) or None.
    Shapes: x (…, I) → (…, O).
    """

    q: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear):
        require_arguments(Int8Linear.__init__, locals())
        super().__init__()
        q, scale = quantize_int8(linear.weight.detach())
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach())

    def forward(self, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        checks.require_fractions(x, self.q.shape[1])
        # With rows of any other size, the kernel reads memory beyond their end (torch 2.13).
        if x.device.type != "cpu" or x.dtype == torch.float64 or self.q.shape[1] % KERNEL_ROW:
            return self.by_hand(x)
        rows = x.reshape(-1, x.shape[-1]).bfloat16()
        y = torch._weight_int8pack_mm(rows, self.q, self.scale.bfloat16()).view(*x.shape[:-1], -1).to(x.dtype)
        return y if self.bias is None else y + self.bias

    def by_hand(self, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        """Compute the formula."""
        require_arguments(Int8Linear.by_hand, locals())
        y = int8_linear(x, self.q, self.scale)
        return y if self.bias is None else y + self.bias


def to_int8(model: nn.Module) -> nn.Module:
    """Return a copy of a model in which every linear layer is an `Int8Linear`: for generating, not for training.

    Embeddings and norms stay as they are: of a table only the rows that are asked for are read.
    """
    require_arguments(to_int8, locals())
    model = copy.deepcopy(model).eval()
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Int8Linear(child))
    return model.requires_grad_(False)


def speculate(
    model: Any,
    draft: Any,
    ids: Int[Tensor, "1 T"],
    max_new_tokens: int,
    k: int = 4,
    generator: torch.Generator | None = None,
    **settings: Any,
) -> tuple[Int[Tensor, "1 T_new"], list[int]]:
    """Continue a text as `model` would, while a small `draft` model guesses ahead.

    The draft draws k tokens, one after the other. The model then reads them all in one pass, which takes about as long
    as one token, and keeps each guess with probability min(1, p / q), where p is its own distribution and q the
    draft's. The first that is not kept is drawn anew from max(0, p − q), rescaled; if all are kept, one more is drawn
    from p. A token is thus drawn from p exactly, whatever the draft: a bad draft costs time, never quality.

    Args:
        model, draft: two `DecoderOnly` of one vocabulary. ids: the prompt (1, T); rows would differ in what is kept.
        max_new_tokens: T + max_new_tokens must fit into the max_seq_len of both.
        k: guesses per pass. settings: temperature, top_k, top_p, min_p, of `next_token_distribution`, for both models.
        generator: a seeded torch.Generator.
    Returns: ids (1, T + max_new_tokens), and of each pass how many guesses were kept.
    Errors: ValueError for a setting that makes no sense.
    Source: Leviathan et al. 2023; Chen et al. 2023.
    """
    checks.require_speculation(model, draft, ids, max_new_tokens, k)
    checks.require_generator(generator)
    caches, kept = (model.new_cache(), draft.new_cache()), []
    end = ids.shape[1] + max_new_tokens
    with evaluating(model), evaluating(draft):
        while (T := ids.shape[1]) < end:
            guessed, q = ids, []
            for _ in range(min(k, end - T - 1)):  # the last token is always the model's own
                q.append(next_token_distribution(_read(draft, guessed, caches[1])[-1], **settings))  # (V,)
                guessed = torch.cat([guessed, _draw(q[-1], generator)[None]], dim=1)
            p = next_token_distribution(_read(model, guessed, caches[0])[-len(q) - 1 :], **settings)  # (n + 1, V)
            n = 0
            while n < len(q) and _keeps(p[n], q[n], guessed[0, T + n], generator):
                n += 1
            new = _draw(p[n] if n == len(q) else left_over(p[n], q[n]), generator)  # (1,)
            ids = torch.cat([guessed[:, : T + n], new[None]], dim=1)
            kept.append(n)
            for block in (*caches[0], *caches[1]):
                block[0].keep(min(len(block[0]), T + n))  # what was read of the guesses that were not kept
    return ids, kept


def left_over(p: Float[Tensor, "V"], q: Float[Tensor, "V"]) -> Float[Tensor, "V"]:
    """Return what is drawn from when a guess is not kept: max(0, p − q), rescaled to sum to 1.

    A token's two chances, to be guessed and kept, min(p, q), and to be drawn afterwards, max(0, p − q), sum to p.
    """
    checks.require_probabilities(p=p, q=q)
    rest = (p - q).clamp(min=0)
    return rest / rest.sum() if rest.any() else p  # p = q up to rounding: a guess is then as good as kept


def _keeps(p: Tensor, q: Tensor, guess: Tensor, generator: torch.Generator | None) -> bool:
    u = torch.rand((), dtype=torch.float64, generator=generator, device=generator.device if generator else "cpu")
    return bool(u.item() * q[guess].item() < p[guess].item())


def _read(model: Any, ids: Tensor, cache: Any) -> Tensor:
    """Return the logits after each token that the cache has not seen, (n, V)."""
    return model(ids[:, len(cache[0][0]) :], cache=cache)[0]


def _draw(probabilities: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw one token from (V,), as `sample_next_token` does: (1,)."""
    return sample_next_token(probabilities.log()[None], generator=generator)
