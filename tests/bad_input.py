"""Bad input for every argument of a function, and the verdict on what the function made of it.

A call that is right is repeated with one argument spoiled. What may come of it is a clear error, or the value that the
same argument gives in its plain form, or a value that ACCEPTED of test_bad_input.py has a reason for. What may not: a
raw error from deep inside, a value that nobody vouches for, numbers that are none, a call that does not end.
"""

import inspect
import itertools
import linecache
import math
import resource
import signal
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from course_lib.config import TransformerConfig
from course_lib.training import TrainingDiverged

NOTHING = object()  # no plain form: a value that comes back needs a reason
SECONDS = 3.0  # of the processor, after which a call is held to be endless
ROOM = (
    6 << 30
)  # bytes that the calls may take beside what is there: a huge size fails at once instead of filling memory


class Endless(BaseException):
    """Not an Exception: nothing in the library may catch it."""


@dataclass(frozen=True)
class Outcome:
    """What one spoiled call came to. kind: "clear", "same" as in plain form, "value", "raw" or "silent"."""

    function: str
    argument: str
    label: str
    kind: str
    told: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.function}({self.argument}: {self.label}): {self.told}"


# ------------------------------------------------------------------------------------------------------ the bad values
def anything() -> Iterator[tuple[str, Any, Any]]:
    """What is bad for nearly every argument."""
    yield "an object", object(), NOTHING
    yield "a word", "word", NOTHING
    yield "a dictionary", {"a": 1}, NOTHING
    yield "a list of words", ["word"], NOTHING
    yield "a complex number", 1j, NOTHING
    yield "bytes", b"word", NOTHING
    yield "nan", math.nan, NOTHING
    yield "two truths", torch.tensor([True, False]), NOTHING
    yield "two numbers of numpy", np.array([1, 2]), NOTHING


def numbers(value: float) -> Iterator[tuple[str, Any, Any]]:
    yield from (("inf", math.inf, NOTHING), ("-inf", -math.inf, NOTHING))
    yield from (
        ("-1", -1, NOTHING),
        ("zero", 0, NOTHING),
        ("huge", 10**18, NOTHING),
        ("2 ** 40", 2**40, NOTHING),
        ("tiny", 1e-300, NOTHING),
    )
    yield from (("a half", 0.5, NOTHING), ("-huge", -(10**18), NOTHING), ("beyond a float", 10**400, NOTHING))
    yield from (("True", True, NOTHING), ("a digit", "1", NOTHING), ("in a list", [value], NOTHING))
    yield "numpy's int", np.int64(value), int(value)
    yield "numpy's float", np.float64(value), float(value)
    yield "numpy's nan", np.float32(math.nan), NOTHING
    yield "a tensor", torch.tensor(value), value
    yield "a tensor on meta", torch.tensor(value, device="meta"), NOTHING
    yield "a float", float(value), value
    yield "empty", torch.empty(0), NOTHING


def switches(value: bool) -> Iterator[tuple[str, Any, Any]]:
    yield from (("two", 2, NOTHING), ("no", "no", NOTHING), ("one", 1, True), ("numpy's", np.bool_(value), value))
    yield "a tensor", torch.tensor(value), value


def words(value: str) -> Iterator[tuple[str, Any, Any]]:
    yield from (("empty", "", NOTHING), ("a number", 5, NOTHING), ("capitals", value.upper(), NOTHING))
    yield from (("in a list", [value], NOTHING), ("spaces", "  ", NOTHING), ("the null byte", "\0", NOTHING))


def tensors(x: Tensor) -> Iterator[tuple[str, Any, Any]]:
    yield from (("a number", 1, NOTHING), ("True", True, NOTHING), ("its list", x.tolist(), x))
    yield from (("numpy's", x.numpy(), x), ("on meta", x.to("meta"), NOTHING), ("0-d", x.flatten()[0], NOTHING))
    yield from (
        ("empty", x.new_empty(0), NOTHING),
        ("no row", x[:0], NOTHING),
        ("one more dimension", x[None], NOTHING),
    )
    yield from (("no last", x[..., :0], NOTHING), ("one dimension less", x[0], NOTHING))
    yield from (("one more last", torch.cat([x, x[..., :1]], -1), NOTHING), ("one less last", x[..., :-1], NOTHING))
    yield from (
        ("one more row", torch.cat([x, x[:1]]), NOTHING),
        ("two rows more", torch.cat([x, x[:1], x[:1]]), NOTHING),
    )
    if x.ndim > 1:
        yield from (("one less second", x[:, :-1], NOTHING), ("transposed", x.transpose(-1, -2), NOTHING))
    if x.dtype == torch.bool:
        yield from (
            ("zeros and ones", x.int(), NOTHING),
            ("floats", x.float(), NOTHING),
            ("all False", x & ~x, NOTHING),
        )
    elif x.is_floating_point():
        spoiled = {"one nan": math.nan, "one inf": math.inf, "one -inf": -math.inf, "one of 1e38": 1e38}
        for label, number in spoiled.items():
            flat = x.detach().clone().flatten()
            flat[0] = number
            yield label, flat.view(x.shape), NOTHING
        yield from (("all nan", x * math.nan, NOTHING), ("all -inf", torch.full_like(x, -math.inf), NOTHING))
        for dtype in (torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64):
            yield str(dtype).removeprefix("torch."), x.to(dtype), NOTHING
    else:
        for label, number in {"one -1": -1, "one huge": 10**18, "one -100": -100, "one 10,000": 10_000}.items():
            flat = x.clone().flatten()
            flat[-1] = min(number, torch.iinfo(x.dtype).max)
            yield label, flat.view(x.shape), NOTHING
        yield from (("int32", x.int(), x), ("int16", x.short(), NOTHING), ("uint8", x.to(torch.uint8), NOTHING))
        yield from (("floats", x.float(), NOTHING), ("booleans", x.bool(), NOTHING))


def lists(value: list | tuple) -> Iterator[tuple[str, Any, Any]]:
    kind = type(value)
    yield from (("empty", kind(), NOTHING), ("a number", 5, NOTHING), ("nested", kind([value]), NOTHING))
    yield from (("a nan in it", kind([math.nan, *value[1:]]), NOTHING), ("None in it", kind([None, *value]), NOTHING))
    yield from (("a -1 in it", kind([-1, *value[1:]]), NOTHING), ("a huge in it", kind([10**18, *value[1:]]), NOTHING))
    yield from (("an empty in it", kind([kind(), *value[1:]]), NOTHING), ("a word in it", kind(["x", *value]), NOTHING))
    yield from (("one more", kind([*value, value[0]]), NOTHING), ("one less", value[:-1], NOTHING))
    yield "a half in it", kind([0.5, *value[1:]]), NOTHING


def models(model: nn.Module) -> Iterator[tuple[str, Any, Any]]:
    yield from (("its class", type(model), NOTHING), ("a layer", nn.Linear(2, 2), NOTHING), ("a number", 5, NOTHING))
    yield "a list", [model], NOTHING
    if getattr(model, "config", None) is not None:
        yield "its config", model.config, NOTHING


def paths(path: Path) -> Iterator[tuple[str, Any, Any]]:
    yield from (
        ("a number", 5, NOTHING),
        ("no such folder", path / "none" / "none", NOTHING),
        ("a string", str(path), path),
    )
    yield from (("a folder", path.parent, NOTHING), ("the null byte", "\0", NOTHING), ("a list of it", [path], NOTHING))


def spoiled(value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Bad values in place of a good one, each with its label and, where it is another form of the good one, that."""
    kinds: tuple[tuple[Any, Callable], ...] = (
        (bool, switches), (int | float, numbers), (str, words), (Tensor, tensors), (list | tuple, lists),
        (nn.Module, models), (Path, paths),
    )  # fmt: skip
    own = next((bad for kind, bad in kinds if isinstance(value, kind)), lambda _: [])
    labels = set()
    for label, bad, plain in itertools.chain(own(value), anything()):
        if label not in labels:
            labels.add(label)
            yield label, bad, plain


# ------------------------------------------------------------------------------------------------------------- verdicts
def optional(function: Callable, name: str) -> bool:
    """Whether None is what the argument has anyway."""
    called = function.forward if isinstance(function, nn.Module) else function
    parameter = inspect.signature(called).parameters.get(name)
    return parameter is not None and parameter.default is None


@contextmanager
def bounded() -> Iterator[None]:
    """Within it memory has an end, and `ended` can end a call."""

    def end(*_):
        raise Endless

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + ROOM, hard))
    before = signal.signal(signal.SIGPROF, end)
    (torch.empty(2, 2, device="meta") @ torch.empty(2, 2, device="meta"))[:, :1].add(1)  # what this imports takes long
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def result_of(function: Callable, arguments: dict) -> Any:
    """What comes back, an iterator run to its end."""
    torch.default_generator.manual_seed(0)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        result = function(**arguments)
        return list(itertools.islice(result, 50)) if isinstance(result, Iterator) else result
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def verdicts(name: str, function: Callable, arguments: Callable[[], dict], aliases: dict) -> Iterator[Outcome]:
    """Spoil each argument of a right call in turn."""
    right = result_of(function, arguments())
    wrong = not_numbers(right)
    assert not wrong, f"{name}: the right call gives {wrong}"
    for argument, value in arguments().items():
        none = [] if optional(function, argument) else [("None", None, NOTHING)]
        for label, bad, plain in [*none, *spoiled(value)]:
            given = arguments() | {argument: bad}
            try:
                result = result_of(function, given)
            except Endless:
                yield Outcome(name, argument, label, "raw", "did not end")
                continue
            except BaseException as error:  # a package in Rust may panic, which is no Exception
                if isinstance(error, KeyboardInterrupt):
                    raise
                kind, told = judged(error, bad, [alias for name in given for alias in (name, *aliases.get(name, ()))])
                yield Outcome(name, argument, label, kind, told)
                continue
            if wrong := not_numbers(result):
                yield Outcome(name, argument, label, "silent", wrong)
            elif plain is not NOTHING and same(result, result_of(function, arguments() | {argument: plain})):
                yield Outcome(name, argument, label, "same", "")
            else:
                yield Outcome(name, argument, label, "value", f"{result!r:.90}".replace("\n", " "))


def judged(error: BaseException, bad: Any, names: list[str]) -> tuple[str, str]:
    """ "clear" for an error that the library raises itself, of a kind that it promises, naming the argument."""
    told = f"{type(error).__name__}: {error}".splitlines()[0][:160]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    raised = linecache.getline(frame.filename, frame.lineno or 0).strip().startswith("raise ")
    ours = "course_lib" in Path(frame.filename).parts and raised
    if not ours or not isinstance(error, ValueError | TypeError | TrainingDiverged):
        return "raw", f"{told}  [{Path(frame.filename).name}:{frame.lineno}]"
    quoted = repr(bad) in str(error) or (isinstance(bad, Path) and str(bad) in str(error))  # it says what was given
    if not quoted and not any(name in str(error) for name in names):
        return "raw", f"names none of {', '.join(names)}: {told}"
    return "clear", told


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, nn.Module):
        yield from value.state_dict().values()
    elif isinstance(value, dict):
        yield from itertools.chain.from_iterable(map(leaves, value.values()))
    elif isinstance(value, list | tuple):
        yield from itertools.chain.from_iterable(map(leaves, value))
    elif isinstance(value, torch.optim.Optimizer):
        yield from leaves(value.state_dict())
    elif hasattr(value, "to_str"):  # a tokenizer of the `tokenizers` package
        yield value.to_str()
    elif isinstance(value, TransformerConfig):
        yield from leaves(value.to_dict())
    elif hasattr(value, "__dict__") and type(value).__module__.startswith("course_lib"):
        yield from leaves(vars(value))
    else:
        yield value


def not_numbers(result: Any) -> str:
    """What is wrong with a result by itself: NaN, or a tensor that has no numbers though all arguments had."""
    for leaf in leaves(result):
        if isinstance(leaf, Tensor) and leaf.is_meta:
            return "a tensor on meta"
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()) and leaf.isnan().any():
            return "NaN"
        if isinstance(leaf, float) and math.isnan(leaf):
            return "NaN"
    return ""


def same(result: Any, plain: Any) -> bool:
    ours, theirs = list(leaves(result)), list(leaves(plain))
    return len(ours) == len(theirs) and all(map(_equal, ours, theirs))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and bool((a == b).all())
    if isinstance(a, torch.Generator) or callable(a):
        return type(a) is type(b)
    return bool(a == b)
