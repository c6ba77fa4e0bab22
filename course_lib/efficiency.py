"""Efficiency: train in less memory, and generate text faster.

Chapter 14. In training, the logits of all tokens can take more memory than the model: a loss in chunks never holds them
all. Generating one token at a time is limited by reading the weights from memory, not by arithmetic. There are two
remedies: store each weight in one byte, or let a small model guess several tokens that the large model then checks in a
single pass.
"""

import copy
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Int8
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from course_lib import checks
from course_lib.gpt import IGNORED
from course_lib.layers import Layer
from course_lib.sampling import next_token_distribution, sample_next_token
from course_lib.trace import evaluating

KERNEL_ROW = 32  # how many numbers PyTorch's int8 kernel reads at once
LARGEST = 127  # the largest int8; −128 is not used, so that the range is symmetric around zero


def chunked_loss(
    hidden: Float[Tensor, "B T d_model"], output: nn.Linear, targets: Int[Tensor, "B T"], chunk: int = 1024
) -> Float[Tensor, ""]:
    """Compute `next_token_loss(output(hidden), targets)` without holding the logits of all tokens at once.

    Only one chunk of tokens has logits at any time. The backward pass computes them again, so the output layer costs
    one more product.

    Args:
        hidden: (B, T, d_model), the input of the output layer. output: the layer that computes the V logits.
        targets: (B, T); −100 is ignored. chunk: tokens per chunk.
    Errors: ValueError if the shapes do not fit, chunk < 1, a target is outside the vocabulary, or all are −100.
    Source: Chen et al. 2016 (recomputation). Wijmans et al. 2024, "Cut Your Losses in Large-Vocabulary Language
        Models", do it in one kernel.
    """
    _require_chunks(hidden, output, targets, chunk)
    total = hidden.new_zeros(())
    for rows, wanted in zip(hidden.flatten(0, 1).split(int(chunk)), targets.flatten().long().split(int(chunk))):
        total = total + checkpoint(_loss_of_chunk, rows, output, wanted, use_reentrant=False)
    return _require_real_loss(total / (targets != IGNORED).sum(), hidden)


def _loss_of_chunk(rows: Tensor, output: nn.Linear, wanted: Tensor) -> Tensor:
    return F.cross_entropy(output(rows), wanted, ignore_index=IGNORED, reduction="sum")  # logits (chunk, V)


def _require_chunks(hidden: Tensor, output: nn.Linear, targets: Tensor, chunk: int) -> None:
    """Raise ValueError or TypeError unless each hidden state has a target of the output layer's vocabulary."""
    checks.require_kind(nn.Linear, output=output)
    checks.require_tensors(targets=targets)
    checks.require_last_size(hidden, output.in_features, name="hidden")
    checks.require_alike(hidden=hidden, weight=output.weight)
    checks.require_device_of(hidden, targets=targets)
    checks.require_at_least_one(chunk=chunk)
    if hidden.ndim != 3 or targets.shape != hidden.shape[:2]:
        raise ValueError(
            f"hidden must be (B, T, d_model) and targets (B, T), got {tuple(hidden.shape)} and {tuple(targets.shape)}"
        )
    if checks.occurs((targets == IGNORED).all()):
        raise ValueError(f"all targets are {IGNORED}: at least one position must have a token to predict")
    checks.require_ids(targets.masked_fill(targets == IGNORED, 0), output.out_features, name="targets")


def _require_real_loss(loss: Tensor, hidden: Tensor) -> Tensor:
    """Return the loss. Raise ValueError if it is NaN, except in training: `train` reports the step that diverged."""
    if not hidden.requires_grad and checks.occurs(loss.isnan()):
        raise ValueError("hidden contains NaN or infinite numbers: the model that made it has diverged")
    return loss


def quantize_int8(weight: Float[Tensor, "O I"]) -> tuple[Int8[Tensor, "O I"], Float[Tensor, "O"]]:
    """Round a matrix to integers from −127 to 127, with one scale per output row: weight ≈ scale · q.

    scale = max |row| / 127,   q = round(row / scale);   no entry changes by more than scale / 2

    A row of zeros gets scale 1, to avoid dividing by zero.

    Errors: ValueError if weight is not a matrix of finite numbers.
    Source: Dettmers et al. 2022, "LLM.int8()", section 2.1 (absmax quantization, row by row).
    """
    _require_matrix(weight)
    largest = weight.abs().amax(dim=1)  # (O,)
    scale = torch.where(largest > 0, largest / LARGEST, 1.0)
    return (weight / scale[:, None]).round().to(torch.int8), scale


def int8_linear(
    x: Float[Tensor, "*batch I"], q: Int8[Tensor, "O I"], scale: Float[Tensor, "O"]
) -> Float[Tensor, "*batch O"]:
    """Multiply x by the quantized matrix: y = (x qᵀ) · scale. One scale per output row, so it is applied to the sum."""
    _require_quantized(x, q, scale)
    return x @ q.to(x.dtype).T * scale.to(x.dtype)


def _require_quantized(x: Tensor, q: Tensor, scale: Tensor) -> None:
    """Raise ValueError unless the shapes and dtypes are those of `int8_linear`; TypeError for a non-tensor."""
    checks.require_tensors(x=x, q=q, scale=scale)
    if q.dtype != torch.int8 or q.ndim != 2 or q.is_meta:
        raise ValueError(f"q must be int8 of shape (O, I), from quantize_int8, got {q.dtype}, {tuple(q.shape)}")
    checks.require_fractions(x, q.shape[1])
    checks.require_device_of(q, x=x, scale=scale)
    if not scale.is_floating_point() or scale.shape != q.shape[:1]:
        raise ValueError(f"scale must hold floats, shape ({len(q)},), got {scale.dtype}, {tuple(scale.shape)}")


class Int8Linear(Layer):
    """Replace a linear layer by one that stores each weight in one byte instead of four.

    `by_hand` computes the formula. It first converts the entire matrix to the dtype of x, which costs more than it
    saves. `forward` uses PyTorch's kernel, which converts the bytes during the multiplication and so reads a quarter of
    the memory. The kernel runs on a CPU, takes x in bfloat16, and requires I to be a multiple of 32. On other devices,
    for other sizes and for x in float64, `forward` uses the formula.

    Parameters: none to train; buffers `q` (O, I), `scale` (O,) and `bias` (O,) or None.
    Shapes: x (…, I) → (…, O).
    """

    q: Tensor
    scale: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear):
        super().__init__()
        checks.require_kind(nn.Linear, linear=linear)
        q, scale = quantize_int8(linear.weight.detach())
        self.register_buffer("q", q)
        self.register_buffer("scale", scale)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach())

    def forward(self, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        checks.require_fractions(x, self.q.shape[1])
        # If the row length is not a multiple of 32, the kernel reads memory beyond the matrix (torch 2.13).
        if x.device.type != "cpu" or x.dtype == torch.float64 or self.q.shape[1] % KERNEL_ROW:
            return self.by_hand(x)
        rows = x.reshape(-1, x.shape[-1]).bfloat16()
        y = torch._weight_int8pack_mm(rows, self.q, self.scale.bfloat16()).view(*x.shape[:-1], -1).to(x.dtype)
        return y if self.bias is None else y + self.bias

    def by_hand(self, x: Float[Tensor, "*batch I"]) -> Float[Tensor, "*batch O"]:
        """Compute the formula: `int8_linear`, plus the bias."""
        y = int8_linear(x, self.q, self.scale)
        return y if self.bias is None else y + self.bias


def to_int8(model: nn.Module) -> nn.Module:
    """Return a copy of a model with every linear layer replaced by an `Int8Linear`, for generating, not for training.

    Embeddings and norms are not quantized: a lookup reads only a few rows of an embedding table.
    """
    checks.require_module(model=model)
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
    """Continue a text as `model` would, with a small `draft` model that guesses tokens in advance.

    1. The draft samples k tokens, one after the other, each from its distribution q.
    2. The model reads them all in one pass, which takes about as long as one token, and computes its distribution p.
    3. Each guess is kept with probability min(1, p / q). The first rejected guess is replaced by a token sampled from
       max(0, p − q), rescaled to sum to 1, and the later guesses are dropped. If all are kept, one more token is
       sampled from p.

    Every token is therefore sampled exactly from p. A bad draft costs time but does not reduce the quality.

    Args:
        model, draft: two `DecoderOnly` with the same vocabulary. ids: the prompt (1, T). Only one row is possible,
            because several rows would keep different numbers of guesses.
        max_new_tokens: T + max_new_tokens must not exceed the max_seq_len of either model.
        k: guesses per pass.
        generator: a seeded torch.Generator.
        settings: temperature, top_k, top_p and min_p, as in `next_token_distribution`, used in both models.
    Returns: ids (1, T + max_new_tokens), and the number of guesses kept in each pass.
    Errors: ValueError for an invalid setting.
    Source: Leviathan et al. 2023; Chen et al. 2023.
    """
    _require_speculation(model, draft, ids, max_new_tokens, k)
    checks.require_generator(generator)
    caches, kept = (model.new_cache(), draft.new_cache()), []
    end = ids.shape[1] + max_new_tokens
    with evaluating(model), evaluating(draft):
        while (T := ids.shape[1]) < end:
            guessed, q = ids, []
            for _ in range(min(k, end - T - 1)):  # the model always samples the last token itself
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
                block[0].keep(min(len(block[0]), T + n))  # drop the cached rejected guesses
    return ids, kept


def left_over(p: Float[Tensor, "V"], q: Float[Tensor, "V"]) -> Float[Tensor, "V"]:
    """Return the distribution that replaces a rejected guess: max(0, p − q), rescaled to sum to 1.

    A token is guessed and kept with probability min(p, q), and sampled as a replacement with probability max(0, p − q).
    The two sum to p.
    """
    _require_probabilities(p=p, q=q)
    rest = (p - q).clamp(min=0)
    return rest / rest.sum() if rest.any() else p  # p = q up to rounding, and no guess is rejected


def _keeps(p: Tensor, q: Tensor, guess: Tensor, generator: torch.Generator | None) -> bool:
    u = torch.rand((), dtype=torch.float64, generator=generator, device=generator.device if generator else "cpu")
    return bool(u.item() * q[guess].item() < p[guess].item())


def _read(model: Any, ids: Tensor, cache: Any) -> Tensor:
    """Return the logits after each of the n tokens that are not yet in the cache, (n, V)."""
    return model(ids[:, len(cache[0][0]) :], cache=cache)[0]


def _draw(probabilities: Tensor, generator: torch.Generator | None) -> Tensor:
    """Sample one token from probabilities (V,) with `sample_next_token`; return its id, (1,)."""
    return sample_next_token(probabilities.log()[None], generator=generator)


def _require_probabilities(**given: Tensor) -> None:
    """Raise ValueError unless every named tensor is a distribution (V,) over the same tokens."""
    checks.require_alike(**given)
    shapes = {tuple(p.shape) for p in given.values()}
    for name, p in given.items():
        if len(shapes) > 1 or p.ndim != 1 or p.is_meta or checks.occurs(~(p >= 0) | ((p.sum() - 1).abs() >= 0.01)):
            raise ValueError(f"{name} must be probabilities (V,) that sum to 1, got shape {tuple(p.shape)}: {p!s:.80}")


def _require_matrix(weight: Tensor) -> None:
    """Raise ValueError unless weight is a matrix of finite numbers; TypeError for a non-tensor."""
    checks.require_tensors(weight=weight)
    if (
        weight.ndim != 2
        or weight.is_meta
        or not weight.numel()
        or not weight.is_floating_point()
        or checks.occurs(~weight.isfinite())
    ):
        raise ValueError(f"weight must be a matrix (O, I) of finite numbers, got {tuple(weight.shape)}, {weight.dtype}")


def _require_speculation(model: Any, draft: Any, ids: Tensor, max_new_tokens: int, k: int) -> None:
    """Raise ValueError unless the draft can guess for the model from this prompt; TypeError for a non-tensor."""
    checks.require_model(model=model, draft=draft)
    checks.require_at_least_one(k=k)
    checks.require_count(max_new_tokens=max_new_tokens)
    if (V := model.config.vocab_size) != draft.config.vocab_size:
        raise ValueError(f"model and draft need the same vocabulary, got {V} and {draft.config.vocab_size} tokens")
    checks.require_prompts(model.config.family, ids, None, None, None)
    checks.require_ids(ids, V)
    if len(ids) != 1:
        raise ValueError(f"ids must be one prompt (1, T), got {len(ids)} rows: continue them one by one")
    room = min(model.config.max_seq_len, draft.config.max_seq_len)
    if ids.shape[1] + max_new_tokens > room:
        raise ValueError(
            f"{ids.shape[1]} tokens of the prompt and max_new_tokens={max_new_tokens} do not fit into "
            f"max_seq_len={room}: ask for at most {max(0, room - ids.shape[1])}"
        )
