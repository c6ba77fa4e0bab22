"""Interventions: what would the model have predicted if one thing had been different?

Attention weights show what a part attends to; they do not show its effect. `swap` replaces a token of the text, and
`patch` replaces one part's activations with those from another text. Both return the change of every logit. Change only
one thing between the two texts, so that you know the cause.
"""

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from course_lib.heads import MultiHeadAttention
from course_lib.trace import evaluating


def swap(model: nn.Module, ids: Int[Tensor, "B T"], position: int, token: int) -> Float[Tensor, "B T ..."]:
    """Return how every logit changes when you replace the token at one position: new − old, (B, T, V).

    Choose a token that fits the context: a name for a name, a number for a number. A sentence unlike the training data
    only shows you how the model handles nonsense.

    Args:
        position: from 0, or from the end if negative. token: the id of the new token.
    Errors: ValueError if the position lies outside the text.
    """
    _require_ids(ids=ids)
    if not -ids.shape[1] <= position < ids.shape[1]:
        raise ValueError(f"position={position} is outside the text, which has {ids.shape[1]} tokens")
    other = ids.clone()
    other[:, position] = token
    with evaluating(model):
        return model(other) - model(ids)


def patch(
    model: nn.Module,
    ids: Int[Tensor, "B T"],
    source: Int[Tensor, "B T"],
    at: str,
    positions: Sequence[int] | Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B T ..."]:
    """Return how every logit changes when one part of the run on `ids` is taken from a run on `source`: (B, T, V).

    Activation patching (Meng et al. 2022, "Locating and Editing Factual Associations in GPT"; Wang et al. 2023,
    "Interpretability in the Wild"). The rest of the model continues with the replaced values. The change therefore
    measures how much of the difference between the two texts passes through this part.

    Args:
        source: another text of the same shape, in which each position t has the same role as in `ids`.
        at: a module, such as "blocks.2" (the residual stream after it), "blocks.2.attention" or "token_embedding"; a
            head, "blocks.2.attention.head.3" (its output before W_O); or a hidden unit, "blocks.2.feed_forward.unit.7".
        positions: the positions to replace; all unless given. A boolean mask (B, T) chooses positions for each text of
            the batch separately, so that one run can try many positions.
    Errors: ValueError if the texts differ in shape, a position lies outside them, or there is no such part.
    """
    _require_ids(ids=ids, source=source)
    if ids.shape != source.shape:
        raise ValueError(
            f"ids have the shape {tuple(ids.shape)} and source {tuple(source.shape)}: both texts need the same length, "
            "because position t of one run replaces position t of the other"
        )
    if isinstance(positions, Tensor):
        if positions.dtype != torch.bool or positions.shape != ids.shape:
            raise ValueError(
                f"positions must be a boolean mask with the shape of ids, {tuple(ids.shape)}, got "
                f"{positions.dtype} of shape {tuple(positions.shape)}"
            )
        taken_over = positions
    else:
        T = ids.shape[1]
        chosen = range(T) if positions is None else positions
        if outside := [t for t in chosen if not -T <= t < T]:
            raise ValueError(
                f"positions={outside} are outside the texts, which have {T} tokens: choose from {-T} to {T - 1}"
            )
        taken_over = torch.zeros_like(ids, dtype=torch.bool)  # (B, T)
        taken_over[:, list(chosen)] = True
    module, columns = _part(model, at)
    run: list[Tensor] = []  # the part's value in the run on source

    def keep(value: Tensor) -> Tensor:
        run.append(value)
        return value

    def exchange(value: Tensor) -> Tensor:
        # (B, T, …): the chosen positions get their values from the run on source
        return torch.where(taken_over[..., None], run[-1], value)

    with evaluating(model):
        before = model(ids)
        with _watched(module, columns, keep):
            model(source)
        with _watched(module, columns, exchange):
            return model(ids) - before


def _require_ids(**texts: Tensor) -> None:
    for name, ids in texts.items():
        if ids.ndim != 2:
            raise ValueError(f"{name} must have shape (B, T), got {tuple(ids.shape)}: write ids[None] for one text")


def _part(model: nn.Module, at: str) -> tuple[nn.Module, slice | None]:
    """Return the module where a part can be replaced: in its output, or in the given columns of its input."""
    modules = dict(model.named_modules())
    owner, _, number = at.rpartition(".")
    owner, _, kind = owner.rpartition(".")
    if kind in ("head", "unit") and owner in modules and number.isdecimal():
        module = modules[owner]
        if kind == "head" and isinstance(module, MultiHeadAttention):
            count, size, entered = module.n_heads, module.d_model // module.n_heads, module.out_proj
        elif kind == "unit" and isinstance(getattr(module, "down_proj", None), nn.Linear):
            count, size, entered = module.down_proj.in_features, 1, module.down_proj
        else:
            raise ValueError(f"at={at!r}: {owner!r} is a {type(module).__name__} and has no {kind}s")
        if int(number) >= count:
            raise ValueError(f"at={at!r}: there are {count} {kind}s, 0 to {count - 1}")
        return entered, slice(int(number) * size, (int(number) + 1) * size)
    if not at or at not in modules:
        near = difflib.get_close_matches(at, filter(None, modules), n=3, cutoff=0.3)
        raise ValueError(f"at={at!r} is not a part of this model. Nearest: {', '.join(near) or 'see print(model)'}")
    return modules[at], None


@contextmanager
def _watched(module: nn.Module, columns: slice | None, change: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Replace a module's output, or these columns of its input, by change(value) while the block runs."""

    def entering(_: nn.Module, inputs: tuple) -> tuple:
        x = inputs[0].clone()  # (B, T, size of the input)
        x[..., columns] = change(x[..., columns])
        return x, *inputs[1:]

    def leaving(_: nn.Module, inputs: tuple, output: Tensor) -> Tensor:
        return change(output)

    handle = module.register_forward_hook(leaving) if columns is None else module.register_forward_pre_hook(entering)
    try:
        yield
    finally:
        handle.remove()
