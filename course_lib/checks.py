"""Checks that all modules share: an error names the wrong argument where it enters, not ten calls later."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
            raise ValueError(f"{name} must be at most {LARGEST:,}, which nothing real exceeds, got {value!r:.40}")


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
            raise ValueError(f"{source}{name} holds NaN or infinite numbers: it is damaged, or its training diverged")
    return weights


def require_float(weights: Mapping[str, Tensor], source: str = "") -> None:
    """Raise ValueError that names the first tensor with a dtype that our models do not support."""
    allowed = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    for name, tensor in weights.items():
        if tensor.dtype not in allowed:
            raise ValueError(
                f"{source}{name} holds {tensor.dtype}, but weights must be {', '.join(map(str, allowed))}: packed ones "
                "are not supported, give the original model"
            )


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


def require_last_queries(T: int, S: int) -> None:
    """Raise ValueError unless T queries can be the last of S positions."""
    require_sizes(T=T, S=S)
    if S < T:
        raise ValueError(f"S={S} keys are fewer than T={T} queries: the queries are the last T of the S positions")


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
    d_model: int, n_heads: int, n_kv_heads: int | None = None, d_head: int | None = None, qk_norm: float | None = None,
) -> None:  # fmt: skip
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


def require_features(x: Tensor, weight: Tensor) -> None:
    """Raise ValueError unless a norm with this weight can process x; TypeError if x is not a tensor."""
    if not isinstance(x, Tensor):
        require_tensors(x=x)
    if x.shape[-1:] != weight.shape:
        require_last_size(x, len(weight))
    if not x.is_floating_point() or x.device != weight.device:
        raise ValueError(f"x must hold floats and be on {weight.device}, like the weights, got {x.dtype} on {x.device}")


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


def require_rows(weight: Tensor, *rows: int) -> list[int]:
    """Return the rows. Raise ValueError or TypeError unless each is in the table and the table is finite."""
    require_tensors(weight=weight)
    if weight.ndim != 2 or not weight.is_floating_point() or weight.is_meta or not weight.numel():
        raise ValueError(
            f"weight must be a table of numbers of shape (V, d_model), got shape {tuple(weight.shape)}, {weight.dtype} "
            f"on {weight.device}"
        )
    if occurs(~weight.isfinite()):  # NaN would rank as the nearest
        row = (~weight.isfinite()).any(dim=1).nonzero()[0].item()
        raise ValueError(f"row {row} of weight holds NaN or infinite numbers: its training has diverged")
    for row in rows:
        try:
            wrong = isinstance(row, bool) or not 0 <= index(row) < len(weight)
        except (TypeError, RuntimeError):
            raise TypeError(f"a token must be given by its id, a whole number, got {row!r}") from None
        if wrong:
            raise ValueError(f"token {row} is outside the table: its {len(weight)} rows are 0 … {len(weight) - 1}")
    return [index(row) for row in rows]


def require_left(k: int, available: int) -> None:
    """Raise ValueError unless k is a whole number from 1 to the number of available tokens."""
    require_at_least_one(k=k)
    if k > available:
        raise ValueError(f"k={k} is too large: only {available} tokens remain when the inputs are excluded")


def require_tokens(
    ids: Tensor,
    offset: int,
    max_seq_len: int,
    segment_ids: Tensor | None = None,
    n_segments: int = 0,
    left_padding: Tensor | None = None,
) -> None:
    """Raise ValueError unless ids are rows of tokens that fit after `offset` others; TypeError for a non-tensor.

    Each token may have a segment, and each row a number of padding tokens.
    """
    if segment_ids is not None and n_segments == 0:
        raise ValueError("segment_ids were given, but n_segments=0: the model cannot tell segments apart")
    optional = {"segment_ids": segment_ids, "left_padding": left_padding}
    require_tensors(ids=ids, **{name: given for name, given in optional.items() if given is not None})
    if ids.ndim != 2:
        raise ValueError(f"ids must have shape (B, T), got {tuple(ids.shape)}; add a batch dimension with ids[None]")
    B, T = ids.shape
    if B == 0 or T == 0:
        raise ValueError(f"ids of shape {(B, T)} contain no token: give at least one, such as the start token")
    if max_seq_len < offset + T:
        cached = f" after {offset} in the cache" if offset else ""
        raise ValueError(f"ids have {T} tokens per row{cached}, more than max_seq_len={max_seq_len}: shorten them")
    if segment_ids is not None:
        if segment_ids.shape != (B, T):
            raise ValueError(f"segment_ids must have the shape of ids, {(B, T)}, got {tuple(segment_ids.shape)}")
        require_ids(segment_ids, n_segments, name="segment_ids", size="n_segments")
    if left_padding is None:
        return
    if left_padding.shape != (B,):
        raise ValueError(f"left_padding must be one count per row, shape {(B,)}, got {tuple(left_padding.shape)}")
    if left_padding.is_floating_point():
        raise ValueError(f"left_padding counts tokens, so it holds whole numbers, got {left_padding.dtype}")
    if occurs((left_padding < 0) | (left_padding >= max_seq_len)):
        least, most = left_padding.min().item(), left_padding.max().item()
        wrong = f"at least 0, got {least}" if least < 0 else f"less than max_seq_len={max_seq_len}, got {most}"
        raise ValueError(f"left_padding counts tokens, so it must be {wrong}")


def require_context(context: Tensor | None, cross_attention: bool) -> None:
    """Raise ValueError if a block with cross-attention gets no context, or a block without it gets one."""
    if cross_attention and context is None:
        raise ValueError("this block has a cross-attention and needs a context to attend to: give context")
    if not cross_attention and context is not None:
        raise ValueError("this block has no cross-attention to read a context: build it with cross_attention=True")


def require_sequences(
    x: Tensor, context: Tensor | None, d_model: int, is_causal: bool, rotary: Tensor | None, need_weights: bool
) -> None:
    """Raise ValueError unless x and context have d_model features; with a context, is_causal and rotary are errors."""
    if type(is_causal) is not bool or type(need_weights) is not bool:
        require_switches(is_causal=is_causal, need_weights=need_weights)
    require_last_size(x, d_model)
    if context is None:
        return
    require_last_size(context, d_model, name="context")
    if is_causal or rotary is not None:
        raise ValueError("is_causal and rotary apply to a single sequence: leave them out when a context is given")


def require_bias(score_bias: Tensor) -> None:
    """Raise ValueError unless score_bias holds real numbers: True and False belong in a mask."""
    if score_bias.dtype == torch.bool or score_bias.is_complex():
        raise ValueError(f"score_bias must be numbers, got {score_bias.dtype}: pass True = may attend as a mask")


def require_fitting(query: Tensor, key: Tensor, mask: Tensor | None, score_bias: Tensor | None) -> None:
    """Raise ValueError unless queries and keys have the same batch size and the mask, if given, fits the scores."""
    if isinstance(score_bias, Tensor):
        require_bias(score_bias)
    if key.shape[0] != query.shape[0]:  # len(key) would fix the batch of an exported model
        raise ValueError(
            f"x has {len(query)} rows, but the context or its cache has {len(key)}: give one for each row of ids"
        )
    if mask is not None:
        require_device_of(query, mask=mask)
        require_mask(mask, (*query.shape[:-1], key.shape[-2]))


def require_targets(logits: Tensor, targets: Tensor, ignored: int) -> None:
    """Raise ValueError unless each row of logits has a target in the vocabulary, and not all targets are ignored."""
    require_tensors(logits=logits, targets=targets)
    if logits.ndim != 3 or not logits.is_floating_point() or logits.device != targets.device:
        kind = f"{tuple(logits.shape)}, {logits.dtype} on {logits.device}"
        raise ValueError(f"logits must be floats of shape (B, T, V) on the device of targets, got {kind}")
    if targets.shape != logits.shape[:2]:
        raise ValueError(f"targets must have the shape of ids, {tuple(logits.shape[:2])}, got {tuple(targets.shape)}")
    if occurs((targets == ignored).all()):
        raise ValueError(f"all targets are {ignored}: there is nothing to predict, and the mean of nothing is NaN")
    require_ids(targets.masked_fill(targets == ignored, 0), logits.shape[-1], name="targets")


def require_wide(dtype: object) -> None:
    """Raise ValueError unless dtype is float32 or float64."""
    if not isinstance(dtype, torch.dtype) or dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype!r:.80}")


def require_pairs(x: Tensor, angles: Tensor, interleaved: bool) -> None:
    """Raise ValueError unless there is an angle for each pair of features of x; TypeError for a non-tensor."""
    require_tensors(x=x, angles=angles)
    if not isinstance(interleaved, bool):
        require_switches(interleaved=interleaved)
    if (
        min(x.ndim, angles.ndim) < 2
        or not x.is_floating_point()
        or x.device != angles.device
        or not angles.is_floating_point()
    ):
        said = ", ".join(f"{tuple(each.shape)}, {each.dtype} on {each.device}" for each in (x, angles))
        raise ValueError(f"x (…, T, D) and angles (…, T, D / 2) must be float tensors on one device, got {said}")
    if x.shape[-1] != 2 * angles.shape[-1]:
        raise ValueError(
            f"x has D={x.shape[-1]} features, but {angles.shape[-1]} angles rotate {2 * angles.shape[-1]}: "
            "make the angles with rotary_angles(positions, d_head=D)"
        )
    require_broadcast(angles, (*x.shape[:-1], angles.shape[-1]), "angles")


def require_betas(betas: tuple[float, ...]) -> None:
    """Raise ValueError unless AdamW's two betas are numbers in [0, 1)."""
    pair = isinstance(betas, tuple | list) and len(betas) == 2
    if not pair or not all(is_number(beta) and 0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas must be two numbers in [0, 1), got {betas!r:.80}")


def require_count(**counts: Any) -> None:
    """Raise ValueError unless every named count is a whole number from 0 to a billion."""
    for name, value in counts.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or not 0 <= int(value) <= 10**9:
            raise ValueError(f"{name} must be a whole number ≥ 0, at most a billion, got {value!r:.60}")


def require_model(**models: Any) -> None:
    """Raise TypeError unless every named model is a torch module with the config of a language model."""
    require_module(**models)
    for name, model in models.items():
        if not hasattr(model, "config"):
            raise TypeError(
                f"{name} must have a .config with vocab_size and max_seq_len, as DecoderOnly has, got {type(model)}"
            )


def require_modules(model: Any) -> None:
    """Raise TypeError unless model is a torch module or a list of modules."""
    if isinstance(model, torch.nn.Module):
        return
    if not isinstance(model, list) or not all(isinstance(part, torch.nn.Module) for part in model[:1]):
        raise TypeError(f"model must be a torch.nn.Module or a list of its modules, got {model!r:.80}")


def require_called(model: torch.nn.Module, batch: tuple) -> Any:
    """Return model(*batch). Raise ValueError if the model does not take such a batch."""
    try:
        return model(*batch)
    except (TypeError, RuntimeError) as error:
        if type(error) not in (TypeError, RuntimeError):  # such as out of memory: pass it on
            raise
        given = ", ".join(str(tuple(x.shape)) if isinstance(x, Tensor) else str(x) for x in batch)
        raise ValueError(f"model={type(model).__name__} does not take a batch of {given}: {error}") from error


def require_trainable(model: torch.nn.Module) -> list[Tensor]:
    """Return the trainable parameters. Raise ValueError if there are none: training would change nothing."""
    require_module(model=model)
    parameters: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise ValueError(
            f"no parameter of {type(model).__name__} requires a gradient, so there is nothing to train: call "
            "requires_grad_(True) on the model, or on the part that should learn"
        )
    return parameters


def require_loss(model: torch.nn.Module, batch: tuple) -> Tensor:
    """Return the loss of model(*batch) -> (logits, loss). Raise ValueError if the model returns something else, or if
    its loss depends on no trainable parameter."""
    result = require_called(model, batch)
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], Tensor) or result[1].numel() != 1:
        raise ValueError(f"model(*batch) must return (logits, loss), the loss one number, got {result!r:.80}")
    if not result[1].requires_grad:
        raise ValueError(
            f"the loss of {type(model).__name__} does not depend on a parameter that requires a gradient: compute it "
            "from the logits, without detach() and no_grad()"
        )
    return result[1]


def require_caching(model: Any, use_cache: object) -> None:
    """Raise TypeError unless use_cache is a switch or None; ValueError if the model has no cache to use."""
    if use_cache is not None:
        require_switches(use_cache=use_cache)
    if use_cache and not hasattr(model, "new_cache"):
        raise ValueError(f"use_cache=True needs model.new_cache(), which {type(model).__name__} does not have")


def require_folder(folder: Any) -> Path:
    """Return the folder, created if necessary. Raise TypeError or ValueError if that is impossible."""
    if not isinstance(folder, str | Path):
        raise TypeError(f"folder must be a path, a string or a pathlib.Path, got {folder!r:.80}")
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"folder={str(folder)!r} cannot be made: {error}") from error
    return Path(folder)


def require_hf_config(config: object) -> None:
    """Raise TypeError unless config is a dictionary, or a transformers configuration with to_dict()."""
    if not isinstance(config, Mapping) and (not hasattr(config, "to_dict") or isinstance(config, type)):
        raise TypeError(f"config must be the reference's configuration or its dictionary, got {config!r:.80}")


def require_hf_settings(quantization_config: object, **rope: object) -> None:
    """Raise ValueError unless RoPE's setting is a dictionary and the weights are not quantized."""
    for name, value in rope.items():
        if not isinstance(value, Mapping):
            raise ValueError(f"{name}={value!r:.80} must be a dictionary, such as {{'rope_type': 'default'}}")
    if quantization_config:
        raise ValueError(
            f"quantization_config={quantization_config!r:.80}: packed weights are not supported. Give the original "
            "model, in float16, bfloat16 or float32"
        )


def require_mapping(**given: object) -> None:
    """Raise TypeError unless every named argument is a dictionary or another mapping."""
    for name, value in given.items():
        if not isinstance(value, Mapping):
            raise TypeError(f"{name} must be a dictionary, got {value!r:.80}")


def require_penalty(penalty: object) -> None:
    """Raise ValueError unless a repetition penalty is a positive number that keeps usual logits finite."""
    require_positive(repetition_penalty=penalty)
    if penalty is True or not 1e-9 <= penalty <= 1e9:  # type: ignore[operator]
        raise ValueError(f"repetition_penalty must be from 1e-9 to 1e9 (1 changes nothing), got {penalty!r}")


def require_theta(**bases: object) -> None:
    """Raise ValueError unless every named base of RoPE's speeds is a number whose powers fit into float32."""
    require_positive(**bases)
    for name, value in bases.items():
        if not 1e-30 <= value <= 1e30:  # type: ignore[operator]
            raise ValueError(f"{name} must be a positive number from 1e-30 to 1e30, got {value!r}")


def require_speeds(speeds: Tensor) -> None:
    """Raise ValueError unless the speeds are finite numbers; TypeError if they are not a tensor."""
    require_alike(speeds=speeds)
    if occurs(~speeds.isfinite()):
        raise ValueError("speeds must be finite numbers, got NaN or infinite ones")


def require_positions(positions: Tensor, x: Tensor) -> None:
    """Raise ValueError unless positions has a whole number for each token, on the device of x."""
    require_broadcast(positions, x.shape[:-1], "positions")
    require_device_of(x, positions=positions)
    if positions.dtype not in (torch.int64, torch.int32):  # PyTorch would read uint8 as a mask
        raise ValueError(f"positions must be whole numbers (torch.int64 or torch.int32), got {positions.dtype}")


def require_whole_numbers(positions: Tensor) -> None:
    """Raise ValueError unless positions are whole numbers; TypeError if they are not a tensor."""
    require_tensors(positions=positions)
    if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
        raise ValueError(f"positions must be whole numbers, got {positions.dtype}")


def require_fractions(x: Tensor, size: int) -> None:
    """Raise ValueError unless x holds floats and its last dimension is `size`; TypeError if it is not a tensor."""
    require_last_size(x, size)
    if not x.is_floating_point():
        raise ValueError(f"x must hold floats, got {x.dtype}: write x.float()")


def require_probabilities(**given: Tensor) -> None:
    """Raise ValueError unless every named tensor is a distribution (V,) over the same tokens."""
    require_alike(**given)
    shapes = {tuple(p.shape) for p in given.values()}
    for name, p in given.items():
        if len(shapes) > 1 or p.ndim != 1 or p.is_meta or occurs(~(p >= 0) | ((p.sum() - 1).abs() >= 0.01)):
            raise ValueError(f"{name} must be probabilities (V,) that sum to 1, got shape {tuple(p.shape)}: {p!s:.80}")


def require_real(loss: Tensor, logits: Tensor) -> Tensor:
    """Return the loss. Raise ValueError if it is NaN, except in training: `train` reports the step that diverged."""
    if not logits.requires_grad and occurs(loss.isnan()):
        raise ValueError("logits contain NaN or +inf: the model that made them has diverged, or its input was NaN")
    return loss


def require_temperature(temperature: object) -> None:
    """Raise ValueError unless temperature is a finite number of at least 0."""
    if not is_number(temperature) or temperature is True or not 0 <= temperature < math.inf:
        raise ValueError(f"temperature must be a finite number ≥ 0 (0 = greedy), got {temperature!r}")


def require_whole(ids: Any, name: str) -> list[int]:
    """Return the ids as a list. Raise ValueError unless they are a collection of whole numbers."""
    try:
        whole = [index(each) for each in ids if not is_truth(each)]
        if len(whole) == len(ids) and all(abs(each) < LARGEST for each in whole):
            return whole
    except (TypeError, RuntimeError):
        pass
    raise ValueError(f"{name} must be whole numbers, got {ids!r:.80}")


def require_prompt_rows(prompts: Any, pad_id: object) -> list[Tensor]:
    """Return each prompt as a tensor. Raise ValueError unless each is a non-empty row of ids and pad_id is an id."""
    try:
        rows = [torch.as_tensor(prompt) for prompt in prompts]
    except (TypeError, ValueError, RuntimeError):
        rows = []
    if not rows or any(row.ndim != 1 or len(row) == 0 or row.dtype not in (torch.int64, torch.int32) for row in rows):
        raise ValueError(
            f"prompts must be lists of ids, at least one id in each, got {prompts!r:.200}: "
            "begin with the start token if there is nothing else"
        )
    if not isinstance(pad_id, Integral) or isinstance(pad_id, bool) or abs(int(pad_id)) > LARGEST:
        raise ValueError(f"pad_id must be a whole number, got {pad_id!r:.80}")
    return rows


def require_lengths(lengths: object, S: int) -> Tensor:
    """Return the lengths as a tensor. Raise ValueError unless they are one whole number per row, in 0 … S."""
    try:
        given = torch.as_tensor(lengths)
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(f"lengths must be one whole number per row, got {lengths!r:.80}") from None
    if given.ndim != 1 or given.is_floating_point() or given.is_complex() or given.dtype == torch.bool or given.is_meta:
        kind = f"shape {tuple(given.shape)}, {given.dtype} on {given.device}"
        raise ValueError(f"lengths must be one whole number per row, got {kind}")
    require_sizes(S=S, rows=max(1, len(given)))
    wrong = (given < 0) | (given > S)
    if occurs(wrong):
        raise ValueError(f"lengths contain {given[wrong][0].item()}, but a row of S={S} keys has a length of 0 to {S}")
    return given


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


def require_attention_sizes(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, mask: Tensor | None, score_bias: Tensor | None
) -> None:
    """Raise ValueError unless query, key and value fit together (features, number of keys, batch and heads), and mask
    and score_bias fit their scores."""
    require_alike(query=query, key=key, value=value)
    require_device_of(query, mask=mask, score_bias=score_bias)
    if isinstance(score_bias, Tensor):
        require_bias(score_bias)
    if not is_number(dropout_p) or isinstance(dropout_p, bool) or not 0 <= dropout_p <= 1:
        raise ValueError(f"dropout_p must be a number in [0, 1], got {dropout_p!r}")
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)}, value {tuple(value.shape)}"
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise ValueError(f"query, key and value need at least two dimensions (tokens, features), got {shapes}")
    if query.shape[-1] != key.shape[-1]:
        raise ValueError(f"query and key must have the same number of features (the last dimension), got {shapes}")
    if key.shape[-2] != value.shape[-2]:
        raise ValueError(f"each key needs one value: key and value must have the same S, got {shapes}")
    try:
        torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        scores = (*torch.broadcast_shapes(query.shape[:-2], key.shape[:-2]), query.shape[-2], key.shape[-2])
    except RuntimeError:
        raise ValueError(f"the leading dimensions (batch, heads) do not fit together: {shapes}") from None
    if score_bias is not None:
        require_broadcast(score_bias, scores, "score_bias")
    if mask is not None:
        require_mask(mask, scores)


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
            "begin with the start token if there is nothing else"
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
        raise ValueError(f"left_padding must leave a token: 0 to {T - 1} of T={T}, got {left_padding.tolist()}")


def require_matrix(weight: Tensor) -> None:
    """Raise ValueError unless weight is a matrix of finite numbers; TypeError for a non-tensor."""
    require_tensors(weight=weight)
    if (
        weight.ndim != 2
        or weight.is_meta
        or not weight.numel()
        or not weight.is_floating_point()
        or occurs(~weight.isfinite())
    ):
        raise ValueError(f"weight must be a matrix (O, I) of finite numbers, got {tuple(weight.shape)}, {weight.dtype}")


def require_speculation(model: Any, draft: Any, ids: Tensor, max_new_tokens: int, k: int) -> None:
    """Raise ValueError unless the draft can guess for the model from this prompt; TypeError for a non-tensor."""
    require_model(model=model, draft=draft)
    require_at_least_one(k=k)
    require_count(max_new_tokens=max_new_tokens)
    if (V := model.config.vocab_size) != draft.config.vocab_size:
        raise ValueError(f"model and draft need the same vocabulary, got {V} and {draft.config.vocab_size} tokens")
    require_prompts(model.config.family, ids, None, None, None)
    require_ids(ids, V)
    if len(ids) != 1:
        raise ValueError(f"ids must be one prompt (1, T), got {len(ids)} rows: they would grow to different lengths")
    room = min(model.config.max_seq_len, draft.config.max_seq_len)
    if ids.shape[1] + max_new_tokens > room:
        raise ValueError(
            f"{ids.shape[1]} tokens of the prompt and max_new_tokens={max_new_tokens} do not fit into "
            f"max_seq_len={room}: ask for at most {max(0, room - ids.shape[1])}"
        )


def require_schedule(step: float, peak: float, warmup: float, total: float, floor: float) -> None:
    """Raise ValueError unless the learning rate of this step can be computed."""
    numbers = {"step": step, "warmup": warmup, "total": total, "peak": peak, "floor": floor}
    if wrong := [name for name, value in numbers.items() if not is_number(value) or value is True]:
        raise ValueError(f"{wrong[0]} must be a number, got {numbers[wrong[0]]!r:.80}")
    if not (step >= 0 and 0 <= warmup < total):
        raise ValueError(f"need step ≥ 0 and 0 ≤ warmup < total, got step={step}, warmup={warmup}, total={total}")
    if not 0 <= floor <= peak < math.inf:
        raise ValueError(f"need 0 ≤ floor ≤ peak, both finite, got floor={floor}, peak={peak}")


def require_training_run(
    batches: object, steps: int, max_norm: float | None, checkpoint: str | Path | None, checkpoint_every: int,
    accumulate: int,
) -> None:  # fmt: skip
    """Raise ValueError or TypeError unless a training run can begin and its checkpoint can be written."""
    require_at_least_one(steps=steps, checkpoint_every=checkpoint_every, accumulate=accumulate)
    require_max_norm(max_norm)
    if checkpoint is not None:
        require_path(checkpoint=checkpoint)
    if checkpoint and not Path(checkpoint).parent.is_dir():
        raise ValueError(
            f"checkpoint={str(checkpoint)!r} cannot be written: there is no folder {Path(checkpoint).parent}"
        )
    if not hasattr(batches, "__next__"):
        raise TypeError(
            f"batches must be an iterator, such as Batches, got {type(batches).__name__}: write iter(batches), or "
            "itertools.cycle(batches) to begin again after the last one"
        )


def require_max_norm(max_norm: float | None) -> None:
    """Raise ValueError unless max_norm is a positive number, or None."""
    if max_norm is None or (is_number(max_norm) and max_norm == math.inf):
        return
    try:
        require_positive(max_norm=max_norm)
    except ValueError as error:
        raise ValueError(f"{error}; give None for gradients that are never scaled down") from None


def require_next(batches: Iterator, step: int, steps: int) -> tuple:
    """Return the next batch. Raise ValueError if there is none before the end of training."""
    if (batch := next(batches, None)) is not None:
        return batch
    fewer = f", or ask for at most {step} steps" if step else ""
    raise ValueError(f"the batches ran out at step {step} of {steps}: give an endless supply such as Batches{fewer}")


def require_stories(stories: list[list[int]], batch_size: int) -> None:
    """Raise ValueError unless there is a story, each has a token to predict, and batch_size is at least 1."""
    require_at_least_one(batch_size=batch_size)
    rows = stories if isinstance(stories, list) else []
    whole = all(isinstance(row, list) and len(row) > 1 and all(isinstance(i, int) for i in row) for row in rows)
    if not rows or not whole:
        raise ValueError(f"stories must be lists of at least two ids, and at least one story, got {stories!r:.80}")


def require_one_meaning(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise ValueError if a mask of three dimensions could be per row or per head: broadcasting would assume heads."""
    if mask.ndim == 3 and len(shape) == 4 and mask.shape[0] == shape[0] == shape[1] > 1:
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} fits both {shape[0]} rows of the batch and {shape[1]} heads: write "
            "mask[:, None] if there is one per row, mask[None] if there is one per head"
        )


def require_kept(length: object, held: int) -> None:
    """Raise ValueError unless length is a whole number from 0 to the number of cached tokens."""
    if not isinstance(length, Integral) or isinstance(length, bool) or not 0 <= int(length) <= held:
        raise ValueError(f"length must be from 0 to the {held} tokens that the cache holds, got {length!r:.60}")


def require_rows_kept(rows: Tensor, key: Tensor | None) -> None:
    """Raise ValueError unless rows are indices into the batch of a cache; TypeError for a non-tensor."""
    require_tensors(rows=rows)
    if rows.ndim != 1:
        raise ValueError(f"rows must be a one-dimensional tensor of batch indices, got shape {tuple(rows.shape)}")
    if key is not None:
        require_ids(rows, len(key), name="rows", size="B", like=key)


def require_some(**given: Any) -> None:
    """Raise ValueError if any named collection is empty."""
    for name, collection in given.items():
        require_kind(Sequence, **{name: collection})
        if not len(collection):
            raise ValueError(f"{name} is empty: give at least one")


def require_shape(x: Tensor, shape: str) -> None:
    """Raise ValueError unless x has the dimensions that the shape names; TypeError if it is not a tensor."""
    require_tensors(x=x)
    if x.ndim != len(shape.split(",")) or not x.shape[-1]:
        raise ValueError(f"x must have shape {shape}, got {tuple(x.shape)}")


def require_generating(family: str) -> None:
    """Raise ValueError for a family that does not generate and therefore has no cache."""
    if family == "encoder":
        raise ValueError("family='encoder' does not generate, so it has no cache: use a decoder")


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
            "and cannot be written. Read the file with errors='replace', or take it out"
        ) from None


def require_texts(**given: object) -> None:
    """Raise TypeError unless every argument is iterable and not a single string, which would be read letter by
    letter. What a list or tuple holds must be strings, too."""
    for name, texts in given.items():
        if isinstance(texts, (str, bytes, Mapping)) or not hasattr(texts, "__iter__") or hasattr(texts, "dtype"):
            raise TypeError(f"{name} must be several strings, one after another, got {texts!r:.80}: write [text]")
        for each in texts if isinstance(texts, list | tuple) else ():
            if not isinstance(each, str):
                raise TypeError(f"{name} must be strings, got {each!r:.80} among them")


def require_special_tokens(special_tokens: object, alphabet: set[str]) -> list[str]:
    """Return the special tokens. Raise TypeError or ValueError unless they are distinct, non-empty strings that
    the byte alphabet cannot produce."""
    if isinstance(special_tokens, (str, bytes, Mapping)) or not isinstance(special_tokens, Iterable):
        raise TypeError(f"special_tokens must be a list of strings, got {special_tokens!r}: write [special_token]")
    special = list(special_tokens)
    if not all(isinstance(token, str) for token in special):
        raise TypeError(f"special_tokens must be a list of strings, got {special!r}")
    if "" in special or len(set(special)) < len(special):
        raise ValueError(f"special_tokens must be different from each other and not empty, got {special!r}")
    for token in special:
        require_text(token)
    for token in special:
        if alphabet.issuperset(token) and (len(token) == 1 or not token.isascii()):
            raise ValueError(
                f"special_tokens must not hold {token!r}: the byte alphabet uses its characters for bytes, so that "
                "texts could change when decoded. Take at least two ASCII characters, such as '<|end|>'"
            )
    return special


def require_checkpoint(path: object, model: object, optimizer: object, generator: object, history: object) -> None:
    """Raise TypeError or ValueError unless these can be written to a checkpoint or restored from one."""
    require_path(path=path)
    require_module(model=model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch optimizer, as make_optimizer makes it, got {optimizer!r:.80}")
    require_generator(generator)
    if not isinstance(history, dict | None):
        raise TypeError(f"history must be a dictionary of plain values, got {history!r:.80}: write {{'losses': …}}")
    if not Path(str(path)).parent.is_dir():
        raise ValueError(f"path={str(path)!r}: there is no folder {Path(str(path)).parent}, make it first")


def require_path(**paths: object) -> None:
    """Raise TypeError unless every named path is a string or a Path."""
    for name, path in paths.items():
        if not isinstance(path, (str, Path)):
            raise TypeError(f"{name} must be a path, a string or a pathlib.Path, got {path!r:.80}")
        if "\0" in str(path) or Path(path).is_dir():
            raise ValueError(f"{name}={str(path)!r} is not a file name: give one in a folder that exists")


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


def require_known_ids(ids: Iterable[int] | Tensor, vocab_size: int) -> list[int]:
    """Return the ids as a list. Raise TypeError unless they are whole numbers in a row; ValueError outside [0, V)."""
    try:
        row = [index(i) for i in ids]
        if isinstance(ids, bytes) or any(map(is_truth, ids)):
            raise TypeError
    except (TypeError, RuntimeError):
        raise TypeError(f"ids must be one row of whole numbers, got {ids!r}") from None
    for i in row:
        if not 0 <= i < vocab_size:
            raise ValueError(f"id {i} is outside the vocabulary: ids run from 0 to {vocab_size - 1}")
    return row
