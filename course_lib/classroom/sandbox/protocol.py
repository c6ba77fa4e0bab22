"""The messages between grader and worker: JSON followed by raw arrays, over a private socket.

A frame is the length of its JSON, the JSON, and the bytes of its arrays. Nothing in it is executable. Values that are
not plain data are sent as `Given`, the name of an object in a `fixtures.py` with its data, and only to the worker. The
grader trusts nothing from a worker: it limits every length before reading and checks every type. An invalid message
raises `Broken`, never another error.
"""

import contextlib
import importlib
import json
import math
import os
import select
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import course_lib
from course_lib.grading.exercise import Given
from course_lib.grading.judge.call import Call, Failure, Outcome
from course_lib.grading.judge.values import MOST_BITS, MOST_ENTRIES, Foreign

MOST_TEXT = 4 << 20  # bytes of JSON in one frame to the grader
MOST_ARRAYS = 64 << 20  # bytes of arrays in one frame to the grader
MOST_AXES = 64  # per tensor
IDLE = 0.2  # seconds
DEEPEST = 12  # nesting depth of a value, including tags
SENTENCE = 2000  # characters in a worker's text on an answer
TEXTS = {"forbidden": 100, "printed": SENTENCE, "library": 100}  # of an outcome, with the maximum number of characters
KINDS = ("unanswered", "raised", "exit", "time", "signature", "type")
DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    )
}


GONE, LATE = "the other side is gone", "the other side is silent or too slow"
# A worker writes this into the troubles of a notebook, and the grader looks for it there (`marking`).
ABOVE = "Python runs nothing of a cell with a syntax error, so {names}, which are complete above it, did not run"


class Broken(Exception):
    """The other side violates the protocol or is gone."""


# --- Values -----------------------------------------------------------------------------------------------------------


class Packer:
    """Packs a value as JSON and collects the bytes of its tensors in `arrays`.

    Args:
        strides: keep the strides of a tensor, because some mistakes only appear with them. Answers have none.

    Errors: TypeError for a value that is neither plain nor `Given`.
    """

    def __init__(self, strides: bool = False):
        self.arrays: list[bytes] = []
        self.strides = strides

    def value(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, int):
            return int(value)
        if isinstance(value, float):
            return value if math.isfinite(value) else {"is": "float", "of": repr(value)}
        if isinstance(value, list):
            return [self.value(part) for part in value]
        if isinstance(value, Tensor):
            return self._tensor(value)
        if value is Ellipsis:
            return {"is": "dots"}
        if isinstance(value, complex):
            return {"is": "complex", "of": [repr(value.real), repr(value.imag)]}
        if isinstance(value, Foreign):
            return {"is": "foreign", "of": value.type_name[:SENTENCE]}
        if isinstance(value, tuple):
            return {"is": "tuple", "of": [self.value(part) for part in value]}
        if isinstance(value, frozenset):
            return {"is": "set", "of": [self.value(part) for part in value]}
        if isinstance(value, dict):
            return {"is": "dict", "of": [[self.value(key), self.value(part)] for key, part in value.items()]}
        if isinstance(value, Given):
            return {"is": "given", "of": [_name_of(value.make), value.says, self.value(value.data)]}
        raise TypeError(f"a {type(value).__name__} cannot be sent to a worker: send its data, or a Given")

    def _tensor(self, value: Tensor) -> Any:
        name = str(value.dtype).removeprefix("torch.")
        if name not in DTYPES:
            return {"is": "foreign", "of": f"tensor of dtype {name}"}
        told: dict[str, Any] = {"is": "tensor", "dtype": name, "shape": list(value.shape)}
        if value.device.type == "meta":
            return {**told, "on": "meta"}
        if value.requires_grad:
            told["grad"] = True
        value = value.detach().cpu().resolve_conj().resolve_neg()
        if self.strides and value.numel() and not value.is_contiguous():
            told["stride"] = list(value.stride())
            value = value.as_strided((_reach(value.shape, value.stride()),), (1,))
        self.arrays.append(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        return told


def _reach(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Return how many elements a tensor with these strides spans in memory."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride))


def _fixtures() -> dict[str, ModuleType]:
    """Import every module that a worker may have to call, before learners' code runs. Return modules by name."""
    library = Path(course_lib.__file__).parent
    paths = [library / "grading/fixtures.py", *sorted(library.glob("chapters/*/fixtures.py"))]
    names = [".".join(path.relative_to(library.parent).with_suffix("").parts) for path in paths]
    return {name: importlib.import_module(name) for name in names}


FIXTURES = _fixtures()


def _name_of(function: Callable) -> str:
    home, name = getattr(function, "__module__", ""), getattr(function, "__name__", "")
    if home not in FIXTURES or getattr(FIXTURES[home], name, None) is not function:
        raise TypeError(f"{name or function} does not stand in a fixtures.py: a worker would not find it")
    return f"{home}.{name}"


def _function(name: str) -> Callable:
    home, _, own = name.rpartition(".")
    found: Any = getattr(FIXTURES.get(home), own, None)
    _require(getattr(found, "__module__", None) == home, "a function does not stand in a fixtures.py")
    return found


class Unpacker:
    """Turns JSON and arrays back into a value. from_worker: whether to check everything.

    Errors: Broken for anything that `Packer` would not have written.
    """

    def __init__(self, arrays: memoryview, from_worker: bool):
        self.arrays, self.place, self.from_worker = arrays, 0, from_worker

    def value(self, data: Any, depth: int = 0) -> Any:
        if depth > DEEPEST:
            raise Broken("a value is nested too deeply")
        if data is None or type(data) is bool:
            return data
        if type(data) is str:
            return _require_text(data, MOST_TEXT)
        if type(data) is int:
            _require(data.bit_length() <= MOST_BITS, "an integer is too large")
            return data
        if type(data) is float:
            return data
        if type(data) is list:
            return self._parts(data, depth)
        _require(type(data) is dict, "a value has no known form")
        what, of = data.get("is"), data.get("of")
        if what == "tensor":
            return self._tensor(data)
        if what == "dots":
            return ...
        if what == "float":
            _require(of in ("nan", "inf", "-inf"), "a float is none")
            return float(of)
        if what == "complex":
            _require(
                type(of) is list and len(of) == 2 and all(type(x) is str and len(x) < 40 for x in of), "no complex"
            )
            try:
                return complex(float(of[0]), float(of[1]))
            except ValueError as error:
                raise Broken("a complex number is none") from error
        if what == "foreign":
            return Foreign(_require_text(of))
        if what == "given" and not self.from_worker:
            return Given(_function(of[0]), *self.value(of[2]), says=of[1])
        _require(type(of) is list, "a value has no known form")
        if what == "tuple":
            return tuple(self._parts(of, depth))
        if what == "set":
            return frozenset(map(_require_hashable, self._parts(of, depth)))
        if what == "dict":
            _require(all(type(pair) is list and len(pair) == 2 for pair in of), "a dictionary is none")
            return {_require_hashable(key): part for key, part in (self._parts(pair, depth) for pair in of)}
        raise Broken("a value has no known form")

    def _parts(self, data: list, depth: int) -> list:
        _require(not self.from_worker or len(data) <= MOST_ENTRIES, "a list is too long")
        return [self.value(part, depth + 1) for part in data]

    def _tensor(self, data: dict) -> Tensor:
        name, shape = data.get("dtype"), data.get("shape")
        dtype = DTYPES.get(name) if type(name) is str else None
        if dtype is None:
            raise Broken("a tensor has no known dtype")
        if type(shape) is not list or len(shape) > MOST_AXES:
            raise Broken("a tensor has no shape")
        _require(all(type(size) is int and 0 <= size < 1 << 40 for size in shape), "a tensor has no shape")
        numel = math.prod(shape)
        if data.get("on") == "meta":
            _require(math.prod(max(size, 1) for size in shape) < 1 << 50, "a tensor is too large")
            return torch.empty(shape, dtype=dtype, device="meta")
        if "stride" in data and not self.from_worker:
            tensor = self._flat(_reach(shape, data["stride"]), dtype).as_strided(shape, data["stride"])
        else:
            tensor = self._flat(numel, dtype).reshape(shape)
        return tensor.requires_grad_(bool(data.get("grad")) and not self.from_worker)

    def _flat(self, numel: int, dtype: torch.dtype) -> Tensor:
        size = numel * dtype.itemsize
        _require(size <= len(self.arrays) - self.place, "an array is shorter than its shape says")
        if not size:
            return torch.empty(numel, dtype=dtype)
        raw = torch.frombuffer(bytearray(self.arrays[self.place : self.place + size]), dtype=torch.uint8)
        self.place += size
        return raw != 0 if dtype == torch.bool else raw.view(dtype)


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise Broken(problem)


def _require_hashable(key: Any) -> Any:
    try:
        hash(key)
    except TypeError as error:
        raise Broken("a key cannot be one") from error
    return key


def _require_text(value: Any, most: int = SENTENCE) -> str:
    _require(type(value) is str, "a text is none")
    return value[:most].encode("utf-8", "replace").decode()  # no lone surrogates, because it will be written to files


# --- Calls and outcomes -----------------------------------------------------------------------------------------------


def pack_call(call: Call) -> tuple[dict[str, Any], list[bytes]]:
    """Return a `Call` as JSON, and its arrays. Errors: TypeError if its probe or an argument has no name."""
    pack = Packer(strides=True)
    told = {
        "signature": call.signature,
        "args": pack.value(call.args),
        "names": list(call.names),
        "seed": call.seed,
        "init": pack.value(call.init),
        "weights": pack.value(call.weights),
        "probe": _name_of(call.probe) if call.probe else "",
        "forbidden": list(call.forbidden),
        "may_change": list(call.may_change),
        "library": list(call.library),
    }
    return told, pack.arrays


def unpack_call(data: dict, arrays: memoryview) -> Call:
    """Read the output of `pack_call`, on the worker's side."""
    unpack = Unpacker(arrays, from_worker=False).value
    return Call(
        data["signature"],
        unpack(data["args"]),
        tuple(data["names"]),
        data["seed"],
        unpack(data["init"]),
        unpack(data["weights"]),
        _function(data["probe"]) if data["probe"] else None,
        tuple(data["forbidden"]),
        tuple(data["may_change"]),
        tuple(data["library"]),
    )


def pack_outcome(outcome: Outcome) -> tuple[dict[str, Any], list[bytes]]:
    """Return an `Outcome` as JSON and arrays. A value too large for a frame becomes its type's name."""
    pack = Packer()
    value = pack.value(outcome.value)
    if len(json.dumps(value)) > MOST_TEXT // 2 or sum(map(len, pack.arrays)) > MOST_ARRAYS:
        shape = f" of shape {tuple(outcome.value.shape)}" if isinstance(outcome.value, Tensor) else ""
        pack, value = Packer(), {"is": "foreign", "of": f"very large {type(outcome.value).__name__}{shape}"}
    failure = outcome.failure and [outcome.failure.kind, outcome.failure.sentence, outcome.failure.behaviour]
    told = {"value": value, "failure": failure, "changed": list(outcome.changed), "forbidden": outcome.forbidden}
    texts = {"printed": outcome.printed, "library": outcome.library}
    return {**told, **texts, "from_numpy": outcome.from_numpy}, pack.arrays


def unpack_outcome(data: Any, arrays: memoryview) -> Outcome:
    """Read a worker's message on one call and check it strictly. Errors: Broken."""
    _require(type(data) is dict, "an outcome has no known form")
    failure, changed = data.get("failure"), data.get("changed")
    if failure is not None:
        _require(type(failure) is list and len(failure) == 3 and failure[0] in KINDS, "a failure has no known form")
        failure = Failure(failure[0], _require_text(failure[1]), _require_text(failure[2]))
    _require(type(changed) is list and len(changed) <= 100, "an outcome has no known form")
    value = Unpacker(arrays, from_worker=True).value(data.get("value"))
    names = tuple(_require_text(name, 100) for name in changed)
    forbidden, printed, library = (_require_text(data.get(name), most) for name, most in TEXTS.items())
    return Outcome(value, failure, names, forbidden, printed, library, data.get("from_numpy") is True)


# --- Frames -----------------------------------------------------------------------------------------------------------


def frame(message: dict[str, Any], arrays: Sequence[bytes] = ()) -> bytes:
    """Return a message with its arrays as bytes."""
    text = json.dumps({**message, "arrays": sum(map(len, arrays))}, allow_nan=False).encode()
    return struct.pack(">I", len(text)) + text + b"".join(arrays)


class Channel:
    """One end of a connection.

    Args:
        reader, writer: file descriptors of one socket or two pipes; `close` closes them.
        from_worker: whether to limit and check everything read.
        idle: called several times a second while this end waits for the other.
        clock: the clock used for waiting.
        latest: the time.monotonic() value at which waiting stops, whatever the clock shows.

    Errors: Broken if the other end is gone, is silent for too long, or sends an invalid frame.
    """

    def __init__(self, reader: int, writer: int, from_worker: bool, idle: Callable[[], None] = lambda: None):
        self.reader, self.writer, self.from_worker = reader, writer, from_worker
        self.clock: Callable[[], float] = time.monotonic
        self.latest = math.inf
        self.idle, self._next_idle = idle, time.monotonic() + IDLE
        for fd in {reader, writer}:
            os.set_blocking(fd, False)

    def close(self) -> None:
        for fd in {self.reader, self.writer}:
            os.close(fd)

    def announce(self, message: dict[str, Any]) -> None:
        """Send a small message in one step, so that the sender cannot be stopped halfway."""
        with contextlib.suppress(OSError):
            os.write(self.writer, frame(message))

    def send(self, data: bytes, seconds: float = math.inf) -> None:
        deadline, view = self.clock() + seconds, memoryview(data)
        while view:
            self._wait(self.writer, select.POLLOUT, deadline)
            try:
                view = view[os.write(self.writer, view[: 1 << 20]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise Broken(GONE) from error

    def receive(self, seconds: float = math.inf) -> tuple[dict[str, Any], memoryview]:
        """Return the next message and its arrays."""
        deadline = self.clock() + seconds
        length = struct.unpack(">I", self._exactly(4, deadline))[0]
        _require(not self.from_worker or length <= MOST_TEXT, "a message is too long")
        try:
            message = json.loads(self._exactly(length, deadline), parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise Broken("a message is no JSON") from error
        _require(type(message) is dict, "a message has no known form")
        size = message.get("arrays")
        _require(type(size) is int and size >= 0, "a message has no known form")
        _require(not self.from_worker or size <= MOST_ARRAYS, "a message is too long")
        return message, memoryview(self._exactly(size, deadline))

    def _exactly(self, count: int, deadline: float) -> bytes:
        return b"".join(self._pieces(count, deadline))

    def _pieces(self, count: int, deadline: float) -> Iterator[bytes]:
        while count:
            self._wait(self.reader, select.POLLIN, deadline)
            try:
                piece = os.read(self.reader, min(count, 1 << 20))
            except BlockingIOError:
                continue
            except OSError as error:
                raise Broken(GONE) from error
            _require(piece != b"", GONE)
            count -= len(piece)
            yield piece

    def _wait(self, fd: int, event: int, deadline: float) -> None:
        """Wait until reading or writing is possible. The deadline holds even if single bytes keep arriving."""
        events = select.poll()
        events.register(fd, event)
        while True:
            ready = events.poll(100)
            if (now := time.monotonic()) > self._next_idle:
                self.idle()
                self._next_idle = now + IDLE
            _require(self.clock() <= deadline and now <= self.latest, LATE)
            if ready:
                return


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
