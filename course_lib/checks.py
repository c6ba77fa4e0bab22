"""Checks that all modules share: an error names the wrong argument where it enters, not ten calls later."""

import math
from collections.abc import Mapping
from numbers import Integral, Real
from operator import index
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

LARGEST = 10**15  # tokens, bytes or FLOPs that we only calculate with
LARGEST_FLOAT = 10**300  # larger whole numbers are treated as too large for a float
WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
ROOM = 1 << 35  # the most numbers in one tensor: 128 GiB in float32


def require_at_least_one(**sizes: object) -> None:
    """Raise ValueError unless every named size is a whole number of at least 1."""
    for name, value in sizes.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if int(value) > LARGEST:
            raise ValueError(f"{name} must be at most {LARGEST:,}, more than any real model needs, got {value!r:.40}")


def require_sizes(**sizes: Any) -> None:
    """Raise ValueError unless the sizes are whole numbers of at least 1 and their tensor is not too large."""
    require_at_least_one(**sizes)
    numbers = 1
    for size in sizes.values():  # math.prod would stop torch.compile
        numbers *= size
    if numbers > ROOM:
        said = " · ".join(f"{name}={value}" for name, value in sizes.items())
        raise ValueError(f"{said} makes a tensor of {numbers:,} numbers, more than {ROOM:,}: give smaller sizes")


def require_switches(**switches: object) -> None:
    """Raise TypeError unless every named switch is True or False."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r:.80}")


def is_number(value: object) -> TypeGuard[float]:
    """Return whether value is a real number, from any library. True and False do not count as numbers."""
    return (
        isinstance(value, Real)
        and not isinstance(value, bool)
        and not (isinstance(value, int) and abs(value) > LARGEST_FLOAT)
    )


def is_truth(value: object) -> bool:
    """Return whether value is True or False, from any library: used as a number, it would be 1 or 0."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def occurs(wrong: Tensor) -> bool:
    """Return whether a tensor contains True. Return False where tensors have no values: on the meta device, while
    torch.compile or torch.export traces the calls, and under torch.vmap.

    Shapes are therefore always checked, and values only where they exist.
    """
    if wrong.is_meta or torch.compiler.is_compiling():
        return False
    try:
        return bool(wrong.any())
    except RuntimeError:  # vmap forbids reading values, and PyTorch has no public way to detect it
        return False


def require_at_least_zero(**numbers: object) -> None:
    """Raise ValueError unless every named number is finite and 0 or more."""
    for name, value in numbers.items():
        if not is_number(value) or not 0 <= value < float("inf"):
            raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")


def require_tensors(**given: object) -> None:
    """Raise TypeError unless every named argument is a tensor. Code that runs often tests isinstance first."""
    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor, got {type(value).__name__}: write torch.tensor({name})")


def require_finite(weights: Mapping[str, Tensor], source: str = "") -> Mapping[str, Tensor]:
    """Return the weights. Raise ValueError that names the first tensor with NaN or an infinite number."""
    for name, tensor in weights.items():
        if tensor.is_floating_point() and not tensor.isfinite().all():
            raise ValueError(f"{source}{name} holds NaN or infinite numbers: the file is damaged, or training diverged")
    return weights


def require_one_of(allowed: tuple, **choices: object) -> None:
    """Raise ValueError unless every named choice is one of the allowed values."""
    for name, value in choices.items():
        if not any(value is choice or (type(value) is type(choice) and value == choice) for choice in allowed):
            raise ValueError(f"{name}={value!r} is not known: choose one of {', '.join(map(repr, allowed))}")


def require_positive(**numbers: object) -> None:
    """Raise ValueError unless every named number is above 0 and finite."""
    for name, value in numbers.items():
        if not is_number(value) or not 0 < value < float("inf"):
            raise ValueError(f"{name} must be a positive number, got {value!r}")


def require_share(**shares: object) -> None:
    """Raise ValueError unless every named number is in (0, 1]."""
    for name, value in shares.items():
        if not is_number(value) or not 0 < value <= 1:
            raise ValueError(f"{name} must be in (0, 1], got {value!r}")


def require_rope_scaling(numbers: object) -> tuple[float, ...]:
    """Return the four numbers. Raise ValueError unless factor ≥ 1, 0 < low < high and original > 0."""
    if (
        not isinstance(numbers, (tuple, list))
        or len(numbers) != 4
        or not all(is_number(number) and number is not True for number in numbers)
    ):
        raise ValueError(f"rope_scaling must be four numbers, (factor, low, high, original), got {numbers!r}")
    factor, low, high, original = numbers
    if not (1 <= factor < float("inf") and 0 < low < high < float("inf") and 0 < original < float("inf")):
        raise ValueError(f"rope_scaling needs factor ≥ 1, 0 < low < high and original > 0, got {numbers!r}")
    return factor, low, high, original


def require_seed(seed: object) -> int:
    """Return the seed. Raise TypeError unless it is an integer."""
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise TypeError(f"seed must be an integer, got {seed!r}")
    return seed


def require_dropout(dropout: object) -> None:
    """Raise ValueError unless dropout is a probability below 1: at 1 everything would be dropped."""
    if not is_number(dropout) or isinstance(dropout, bool) or not 0 <= dropout < 1:
        raise ValueError(f"dropout must be a number in [0, 1), got {dropout!r}")


def require_heads(
    d_model: int,
    n_heads: int,
    n_kv_heads: int | None = None,
    d_head: int | None = None,
    qk_norm: float | None = None,
) -> None:
    """Raise ValueError unless n_heads divides d_model and n_kv_heads divides n_heads.

    d_head: features of a head, if not d_model / n_heads. qk_norm: eps of a norm on queries and keys.
    """
    if qk_norm is not None:
        require_positive(qk_norm=qk_norm)
    require_sizes(d_model=d_model, n_heads=n_heads, head_dim=1 if d_head is None else d_head)
    if d_head is None and d_model % n_heads:
        fitting = ", ".join(str(h) for h in range(1, min(d_model, 10_000) + 1) if d_model % h == 0)
        raise ValueError(
            f"d_model={d_model} cannot be shared among n_heads={n_heads} heads: each takes d_model / n_heads features. "
            f"Choose n_heads from {fitting}"
        )
    if n_kv_heads is None:
        return
    require_at_least_one(n_kv_heads=n_kv_heads)
    if n_heads % n_kv_heads:
        raise ValueError(
            f"n_kv_heads={n_kv_heads} must divide n_heads={n_heads}: each key-value head serves "
            "the same number of query heads"
        )


def require_experts(n_experts: int, experts_per_token: int) -> None:
    """Raise ValueError unless a token can have this many different experts."""
    require_at_least_one(n_experts=n_experts, experts_per_token=experts_per_token)
    if experts_per_token > n_experts:
        raise ValueError(f"experts_per_token={experts_per_token} must be at most n_experts={n_experts}")


def require_broadcast(x: Tensor, shape: tuple[int, ...], name: str, advice: str = "") -> None:
    """Raise ValueError unless x broadcasts to exactly this shape, not a larger one; TypeError if it is not a tensor."""
    if not isinstance(x, Tensor):
        require_tensors(**{name: x})
    # torch.broadcast_shapes checks the same, but it imports symbolic shapes and takes ten times as long.
    fits = all(own in (1, wanted) for own, wanted in zip(reversed(x.shape), reversed(shape)))
    if x.ndim > len(shape) or not fits:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, which does not broadcast to {tuple(shape)}{advice}")


def require_last_size(x: Tensor, d_model: int, name: str = "x") -> None:
    """Raise ValueError unless the last dimension of x is d_model; TypeError if x is not a tensor."""
    if not isinstance(x, Tensor):
        require_tensors(**{name: x})
    if x.ndim == 0 or x.shape[-1] != d_model:
        raise ValueError(f"{name} has shape {tuple(x.shape)}, but its last dimension must be d_model={d_model}")


def require_ids(
    ids: Tensor, vocab_size: int, name: str = "ids", size: str = "vocab_size", like: Tensor | None = None
) -> None:
    """Raise ValueError that names the first wrong id unless ids are whole numbers (int32, int64) in 0 … vocab_size − 1.
    size: the model's name for their number, if they are not tokens. like: a tensor that ids must share a device with.

    On a GPU a wrong id causes an error that ends the process, so the check is worth its microseconds.
    """
    if not isinstance(ids, Tensor):
        require_tensors(**{name: ids})
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} must be whole numbers (torch.int64 or torch.int32), got {ids.dtype}")
    if like is not None and ids.device != like.device:  # PyTorch reads arbitrary memory for ids on the meta device
        raise ValueError(f"{name} are on {ids.device}, but the weights on {like.device}: write {name}.to(device)")
    outside = (ids < 0) | (ids >= vocab_size)
    if occurs(outside):
        wrong, range_ = ids[outside][0].item(), f"run from 0 to {vocab_size - 1}"
        if size != "vocab_size":
            raise ValueError(f"{name} contain {wrong}, but with {size}={vocab_size} they {range_}")
        raise ValueError(
            f"{name} contain {wrong}, which is outside the vocabulary: with vocab_size={vocab_size} ids {range_}"
        )


def require_bias(score_bias: Tensor) -> None:
    """Raise ValueError unless score_bias holds real numbers: True and False belong in a mask."""
    if score_bias.dtype == torch.bool or score_bias.is_complex():
        raise ValueError(f"score_bias must hold real numbers, got {score_bias.dtype}: pass a boolean tensor as a mask")


def require_count(**counts: Any) -> None:
    """Raise ValueError unless every named count is a whole number from 0 to a billion."""
    for name, value in counts.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or not 0 <= int(value) <= 10**9:
            raise ValueError(f"{name} must be a whole number from 0 to a billion, got {value!r:.60}")


def require_model(**models: Any) -> None:
    """Raise TypeError unless every named model is a torch module with the config of a language model."""
    require_module(**models)
    for name, model in models.items():
        if not hasattr(model, "config"):
            raise TypeError(
                f"{name} must have a .config with vocab_size and max_seq_len, as DecoderOnly has, got {type(model)}"
            )


def require_called(model: torch.nn.Module, batch: tuple) -> Any:
    """Return model(*batch). Raise ValueError if the model does not take such a batch."""
    try:
        return model(*batch)
    except (TypeError, RuntimeError) as error:
        if type(error) not in (TypeError, RuntimeError):  # such as out of memory: pass it on
            raise
        given = ", ".join(str(tuple(x.shape)) if isinstance(x, Tensor) else str(x) for x in batch)
        raise ValueError(f"model={type(model).__name__} cannot be called with a batch of {given}: {error}") from error


def require_mapping(**given: object) -> None:
    """Raise TypeError unless every named argument is a dictionary or another mapping."""
    for name, value in given.items():
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be a dictionary, got {value!r:.80}")


def require_theta(**bases: object) -> None:
    """Raise ValueError unless every named base of RoPE's speeds is a number whose powers fit into float32."""
    require_positive(**bases)
    for name, value in bases.items():
        if not 1e-30 <= value <= 1e30:  # type: ignore[operator]
            raise ValueError(f"{name} must be a positive number from 1e-30 to 1e30, got {value!r}")


def require_fractions(x: Tensor, size: int) -> None:
    """Raise ValueError unless x holds floats and its last dimension is `size`; TypeError if it is not a tensor."""
    require_last_size(x, size)
    if not x.is_floating_point():
        raise ValueError(f"x must hold floats, got {x.dtype}: write x.float()")


def require_real(loss: Tensor, logits: Tensor) -> Tensor:
    """Return the loss. Raise ValueError if it is NaN, except in training: `train` reports the step that diverged."""
    if not logits.requires_grad and occurs(loss.isnan()):
        raise ValueError("logits contain NaN or +inf: the model that made them has diverged, or its input was NaN")
    return loss


def require_whole(ids: Any, name: str) -> list[int]:
    """Return the ids as a list. Raise ValueError unless they are a collection of whole numbers."""
    try:
        whole = [index(each) for each in ids if not is_truth(each)]
        if len(whole) == len(ids) and all(abs(each) < LARGEST for each in whole):
            return whole
    except (TypeError, RuntimeError):
        pass
    raise ValueError(f"{name} must be whole numbers, got {ids!r:.80}")


def require_device(device: Any) -> None:
    """Raise ValueError unless device is None, a device, or the name of one."""
    try:
        torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError):
        raise ValueError(
            f"device must be a torch.device or its name, such as 'cpu' or 'cuda', got {device!r}"
        ) from None


def require_alike(**given: Tensor) -> None:
    """Raise ValueError unless all named tensors have the same float dtype and device; TypeError for a non-tensor."""
    require_tensors(**given)
    kinds = {name: (x.dtype, x.device) for name, x in given.items()}
    if len(set(kinds.values())) > 1 or not next(iter(given.values())).is_floating_point():
        said = ", ".join(f"{name} {dtype} on {device}" for name, (dtype, device) in kinds.items())
        raise ValueError(f"{' and '.join(given)} must hold floats of one dtype on one device, got {said}")


def require_device_of(x: Tensor, /, **others: Tensor | None) -> None:
    """Raise ValueError unless every named tensor that is given is on the device of x."""
    for name, other in others.items():
        if isinstance(other, Tensor) and other.device != x.device:
            raise ValueError(
                f"{name} is on {other.device}, but the other tensors on {x.device}: write {name}.to(device)"
            )


def require_prompts(
    family: str, ids: Tensor, left_padding: Tensor | None, source_ids: Tensor | None, source_mask: Tensor | None
) -> None:
    """Raise ValueError unless a model of this family can continue these prompts; TypeError for a non-tensor."""
    optional = {"left_padding": left_padding, "source_ids": source_ids, "source_mask": source_mask}
    require_tensors(ids=ids, **{name: given for name, given in optional.items() if given is not None})
    for name, given in {"ids": ids, "left_padding": left_padding, "source_ids": source_ids}.items():
        if given is not None and (given.dtype not in WHOLE or given.is_meta):
            raise ValueError(f"{name} must hold whole numbers, got {given.dtype} on {given.device}")
    if ids.ndim != 2 or ids.numel() == 0:
        raise ValueError(
            f"ids must be prompts of shape (B, T) with at least one token each, got shape {tuple(ids.shape)}: "
            "if a prompt is empty, give the start token"
        )
    if family == "encoder":
        raise ValueError("an encoder does not predict a next token: give a decoder or an encoder-decoder")
    translates = family == "encoder-decoder"
    if translates != (source_ids is not None) or (source_mask is not None and not translates):
        raise ValueError(
            f"an encoder-decoder needs source_ids, and other models take no source: this model's family is {family}"
        )
    if translates and left_padding is not None:
        raise ValueError("left_padding is only for a decoder: begin every target with the same number of tokens")
    require_device_of(ids, **optional)
    B, T = ids.shape
    S = source_ids.shape[-1] if source_ids is not None and source_ids.ndim else None
    needed = (
        ("left_padding", left_padding, (B,)),
        ("source_ids", source_ids, (B, S)),
        ("source_mask", source_mask, (B, 1, 1, S)),
    )
    for name, given, shape in needed:
        if given is not None and given.shape != shape:
            raise ValueError(f"{name} must have shape {shape}, one row per prompt, got {tuple(given.shape)}")
    if left_padding is not None and occurs((left_padding < 0) | (left_padding >= T)):
        raise ValueError(
            f"left_padding must leave at least one of T={T} tokens: give 0 to {T - 1}, got {left_padding.tolist()}"
        )


def require_max_norm(max_norm: float | None) -> None:
    """Raise ValueError unless max_norm is a positive number, or None."""
    if max_norm is None or (is_number(max_norm) and max_norm == math.inf):
        return
    try:
        require_positive(max_norm=max_norm)
    except ValueError as error:
        raise ValueError(f"{error}; give None to leave gradients as they are") from None


def require_one_meaning(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError if a mask of three dimensions could be per row or per head: broadcasting would assume heads."""
    if mask.ndim == 3 and len(shape) == 4 and mask.shape[0] == shape[0] == shape[1] > 1:
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} fits both {shape[0]} rows of the batch and {shape[1]} heads: write "
            "mask[:, None] for one mask per row, mask[None] for one mask per head"
        )


def require_boolean(mask: Tensor) -> None:
    """Raise ValueError unless the mask is boolean: with numbers, 1 could mean "attend" or "hide"."""
    require_tensors(mask=mask)
    if mask.dtype != torch.bool:
        raise ValueError(
            f"a mask must be boolean with True = may attend, got {mask.dtype}. Write `mask == 1` for a mask of ones "
            "and zeros where 1 = may attend, `mask == 0` for one that is added to the scores (0 or −inf)"
        )


def require_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless the mask is boolean and broadcasts to `shape`, (…, T, S), without ambiguity."""
    require_boolean(mask)
    advice = (
        ", the shape of the scores. A mask per query and key is (T, S); one per row of the batch is (B, 1, 1, S), as "
        "padding_mask makes it"
    )
    require_broadcast(mask, shape, "mask", advice)
    require_one_meaning(mask, shape)


def require_text(text: object, **switches: object) -> None:
    """Raise TypeError unless text is a string and every named switch True or False; ValueError for a lone surrogate."""
    require_switches(**switches)
    if not isinstance(text, str):
        raise TypeError(f"text must be a string, got {type(text).__name__}: encode one text at a time")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"text holds {text[error.start]!r} at position {error.start}, a lone surrogate, which is half a character "
            "and cannot be written. Read the file with errors='replace', or remove this character"
        ) from None


def require_texts(**given: object) -> None:
    """Raise TypeError unless every argument is iterable and not a single string, which would be read letter by
    letter. The items of a list or tuple must be strings."""
    for name, texts in given.items():
        if isinstance(texts, (str, bytes, Mapping)) or not hasattr(texts, "__iter__") or hasattr(texts, "dtype"):
            raise TypeError(f"{name} must be an iterable of strings, such as a list, got {texts!r:.80}: write [text]")
        for each in texts if isinstance(texts, list | tuple) else ():
            if not isinstance(each, str):
                raise TypeError(f"{name} must contain only strings, got {each!r:.80} among them")


def require_path(**paths: object) -> None:
    """Raise TypeError unless every named path is a string or a Path."""
    for name, path in paths.items():
        if not isinstance(path, (str, Path)):
            raise TypeError(f"{name} must be a path, a string or a pathlib.Path, got {path!r:.80}")
        if "\0" in str(path) or Path(path).is_dir():
            raise ValueError(f"{name}={str(path)!r} is not a file name: give a file in a folder that exists")


def require_kind(kind: Any, **given: object) -> None:
    """Raise TypeError unless every named argument is an instance of this class."""
    for name, value in given.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {getattr(kind, '__name__', kind)}, got {value!r:.80}")


def require_callable(**functions: object) -> None:
    """Raise TypeError unless every named function can be called, or is None."""
    for name, function in functions.items():
        if function is not None and not callable(function):
            raise TypeError(f"{name} must be a function, got {function!r:.80}")


def require_module(**models: object) -> None:
    """Raise TypeError unless every named model is a torch module, not a class."""
    for name, model in models.items():
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"{name} must be a model, a torch.nn.Module such as DecoderOnly(config), got {model!r:.80}")


def require_generator(generator: object) -> None:
    """Raise TypeError unless generator is a torch.Generator or None."""
    if not isinstance(generator, torch.Generator | None):
        raise TypeError(
            f"generator must be a torch.Generator, such as torch.Generator().manual_seed(0), or None, got "
            f"{generator!r:.80}"
        )
