"""Call a learner's answer so that nothing it does can break, hang or change the notebook around it.

This is the only interface between an answer and its judges: `run` takes an answer and `Call`s, and returns an `Outcome`
for each. Both are plain data, and nothing here knows the right answer. An answer can therefore run in another process,
which imports this module and the `fixtures.py` but never the catalogue.

The call runs in its own thread, in this process (`limited`). It may raise, exit, recurse, loop forever, allocate a
terabyte, print a million lines or change torch's settings. `call` turns each of these into an `Outcome`, and
`undisturbed` restores the process. This protects against accidents, not against malice: grading strangers needs a
second process.
"""

import builtins
import contextlib
import difflib
import inspect
import io
import linecache
import os
import random
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import nn

from course_lib.grading.exercise import ArgumentChanged
from course_lib.grading.judge.limits import Exit, Stop, inside_an_answer, limited, told
from course_lib.grading.judge.show import plural, without_addresses
from course_lib.grading.judge.values import changed, fresh, holds_an_array, plain
from course_lib.grading.judge.watch import LibraryWatch, Watch

PRINTED = 2000  # characters of an answer's printed output that are kept
RESTART = "restart the kernel before you continue"  # only for a learner's kernel: grading a class uses none


@dataclass(frozen=True, eq=False)
class Call:
    """How to call an answer once.

    Fields:
        signature: as the exercise states it.
        args, names: the arguments, plain data or `Given`, and their names.
        seed: for the global random numbers.
        init, weights: for a class, its constructor's arguments and the parameters it then receives.
        probe: a function of a `fixtures.py` that makes the calls.
        forbidden: parts of operations' names.
        may_change: names of arguments.
        library: names of the library's own functions that are the answer.
    """

    signature: str
    args: tuple
    names: tuple[str, ...]
    seed: int
    init: tuple | None = None
    weights: dict | None = None
    probe: Callable | None = None
    forbidden: tuple[str, ...] = ()
    may_change: tuple[str, ...] = ()
    library: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A call without a value. kind: unanswered, raised, exit, time, signature, type."""

    kind: str
    sentence: str
    behaviour: str = ""  # distinguishes failures of one kind, without line numbers and sizes


@dataclass(frozen=True)
class Outcome:
    """The result of one call: its value as plain data, or its failure.

    It also records the changed inputs, the forbidden operation or library function that was used, the printed text, and
    whether the value contained a NumPy array.
    """

    value: Any = None
    failure: Failure | None = None
    changed: tuple[str, ...] = ()
    forbidden: str = ""
    printed: str = ""
    library: str = ""
    from_numpy: bool = False


def run(answer: Any, calls: Sequence[Call], seconds: float) -> list[Outcome]:
    """Return the outcome of `answer` for each call. If the time runs out, the list ends with a failure of kind
    "time"."""
    outcomes: list[Outcome] = []

    def all_calls():
        for each in calls:
            outcomes.append(call(answer, each))

    ended = limited(all_calls, seconds, lambda: f"{len(outcomes)} of {plural(len(calls), 'case')}")
    done = outcomes[: len(calls)]  # a copy, because a thread that could not be stopped may still add to the list
    return done if ended == "done" else [*done, Outcome(failure=_time_is_up(seconds, ended == "stopped"))]


def read(answer: Any, seconds: float) -> Outcome:
    """Return an answer that is a value. It is read like the result of a call, because reading it can run the learner's
    code."""
    values: list[Any] = []

    def look():
        try:
            values.append(plain(answer))
        except Exception:
            values.append(plain(object()))

    ended = limited(look, seconds)
    return Outcome(values[0]) if values else Outcome(failure=_time_is_up(seconds, ended == "stopped"))


def is_the_librarys(answer: Any) -> bool:
    """Return whether this is an unchanged function or class of the course's library, and therefore not a learner's
    answer."""
    if type(answer) not in (type, FunctionType):  # reading the attributes of these two types runs no other code
        return False
    module, name = answer.__module__, answer.__name__
    if type(module) is not str or type(name) is not str:
        return False
    holder = sys.modules.get(module) if module.startswith("course_lib.") else None
    graders = module.startswith("course_lib.grading.") or ".exercises." in module or module.endswith(".fixtures")
    if type(holder) is not ModuleType or graders:
        return False
    return vars(holder).get(name) is answer  # a wrapper copies only the names


# --- one call ---------------------------------------------------------------------------------------------------------


def call(answer: Any, how: Call) -> Outcome:
    """Return the outcome of one call of `answer`. It raises only Stop, which `limited` throws into it."""
    watch, library = Watch(how.forbidden), LibraryWatch(how.library)
    paper = _Paper()
    args = fresh(how.args)
    settle(how.seed)
    value, failure, from_numpy = None, None, False
    try:
        with paper, watch, library:
            function = answer
            failure = _misfit(answer, how)
            if how.init is not None and not failure:
                function = answer(*fresh(how.init))
                weights = how.weights or {}
                failure = _unlike(function, weights)
                function = function if failure else ready(function, weights, how.args)
            if not failure:
                value = how.probe(function, *args) if how.probe else function(*args)
        from_numpy, value = holds_an_array(value), plain(value)
        if value is Ellipsis:
            failure = Failure("unanswered", "Your function returns ... here: this case is not answered yet.")
        altered = [name for name, before, after in zip(how.names, how.args, args) if changed(before, after)]
    except Stop:
        raise
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and not inside_an_answer():
            raise  # a known mistake was running, not a learner's answer
        failure = _explain(error)
    if failure:
        return Outcome(failure=failure, printed=paper.text)
    wrongly = tuple(name for name in altered if name not in how.may_change)
    return Outcome(value, None, wrongly, watch.used, paper.text, library.used, from_numpy)


def settle(seed: int) -> None:
    """Set the same state before every call, whichever function is called."""
    torch.set_deterministic_debug_mode("warn")  # `torch.empty` then contains NaN instead of old values
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def ready(module: nn.Module, weights: dict, args: tuple) -> nn.Module:
    """Return the module in evaluation mode, in the dtype of its input, with the reference's weights."""
    dtypes = [x.dtype for x in args if isinstance(x, torch.Tensor) and x.is_floating_point()]
    module.load_state_dict(weights, strict=False)  # `_unlike` has checked the names; the learner's own buffers stay
    return module.to(dtypes[0] if dtypes else torch.float32).eval()


def _misfit(answer: Any, how: Call) -> Failure | None:
    """Return a failure if the answer does not accept the arguments that the exercise names."""
    wanted, module = how.signature, how.init is not None
    if not callable(answer):
        return Failure("type", f"The answer should be {'the class' if module else 'the function'} {wanted}.")
    if module and not isinstance(answer, type):
        return Failure("type", f"The answer should be the class {wanted} itself, not an object of the class.")
    if how.probe and not module:
        return None
    try:
        signature = inspect.signature(answer)
    except (ValueError, TypeError):  # a function built in C has no signature
        return None
    try:
        signature.bind(*(how.args if how.init is None else how.init))
    except TypeError as error:
        return Failure("signature", f"Your answer cannot be called as {wanted}: {error}.", str(error))
    return None


def _unlike(module: Any, weights: dict) -> Failure | None:
    """Return a failure if the learner's module does not have the reference's parameters, by name and shape."""
    if not isinstance(module, nn.Module):
        return Failure("type", f"An object of the class should be an nn.Module; it is a {type(module).__name__}.")
    own = module.state_dict()
    missing = [name for name in weights if name not in own]
    if missing:
        has = ", ".join(own) or "no parameters"
        return Failure("type", f"Your module lacks the parameter {missing[0]}; it has {has}.", f"lacks {missing}")
    extra = [name for name, _ in module.named_parameters() if name not in weights]
    if extra:
        return Failure("type", f"Your module has a parameter that should not be there: {extra[0]}.", f"extra {extra}")
    for name, weight in weights.items():
        if own[name].shape != weight.shape:
            sentence = f"The parameter {name} has shape {tuple(own[name].shape)}; expected {tuple(weight.shape)}."
            return Failure("type", sentence, f"shape {name}")
    return None


# --- what went wrong, in a sentence -----------------------------------------------------------------------------------


def _explain(error: BaseException) -> Failure:
    name, message, where = type(error).__name__, _message(error), _where(error)
    if isinstance(error, NotImplementedError) and (
        not message or "raise NotImplementedError" in where
    ):  # torch also raises it
        return Failure("unanswered", "Your function raises NotImplementedError here: this case is not answered yet.")
    if isinstance(error, ArgumentChanged):
        return Failure("raised", f"Your function changes its argument `{error.name}`. Work on a copy.", error.name)
    if isinstance(error, (SystemExit, Exit)):
        return Failure("exit", f"Your function ends the program. Return the result instead.{where}")
    if isinstance(error, RecursionError):
        return Failure("raised", f"Your function calls itself without end. When should it stop?{where}", "recursion")
    if isinstance(error, MemoryError) or "allocate memory" in message or "Storage size" in message:
        sentence = f"Your function needs more memory than there is. Which shape grows so large?{where}"
        return Failure("raised", sentence, "memory")
    behaviour = f"{name} {re.sub(r'[0-9]+', '#', message)}"
    sentence = f"Your function raised {name}{f': {message}' if message else ''}{where}"
    return Failure("raised", sentence + _advice(error, message), behaviour)


def _advice(error: BaseException, message: str) -> str:
    """Return a sentence with advice if the error message has none, otherwise ""."""
    if "only one element tensors can be converted" in message:
        return "\n`torch.tensor` takes numbers. `torch.stack` makes one tensor from a list of tensors."
    if "on the same device" in message:
        return "\nOne of the tensors was made on the CPU: `device=x.device` makes it on the device of an input x."
    if "device type tensor to numpy" in message:
        return "\nNumPy computes on the CPU only. Use PyTorch, or `.cpu()` before and `.to(x.device)` after."
    trace = error.__traceback__
    if type(error) is not NameError or trace is None:
        return ""
    while trace.tb_next:
        trace = trace.tb_next
    names = [*trace.tb_frame.f_locals, *trace.tb_frame.f_globals, *vars(builtins)]
    near = difflib.get_close_matches(str(error.name), names, n=1, cutoff=0.75)
    return f"\nDid you mean `{near[0]}`?" if near else ""


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Stop:
        raise
    except BaseException:  # an exception whose message raises an error itself
        text = ""
    text = without_addresses(text.strip())
    return text if len(text) <= 500 else text[:500] + " …"


def _where(error: BaseException) -> str:
    """Return the deepest line in the learner's own code: not the course's, not torch's, not Python's."""
    frames = [
        f for f in traceback.extract_tb(error.__traceback__, limit=-2000) if not f.filename.startswith(_NOT_THEIRS)
    ]
    if not frames:
        return ""
    frame = frames[-1]
    line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
    return f"\n  line {frame.lineno}, in {frame.name}: {line}"


_NOT_THEIRS = (
    *{str(Path(path)) + os.sep for path in map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib"))},
    str(Path(__file__).parents[2]) + os.sep,
    str(Path(torch.__file__).parent) + os.sep,
    "<frozen",
)


# --- printed output ---------------------------------------------------------------------------------------------------


class _Paper(io.TextIOBase):
    """A stream that stores the beginning of an answer's printed output. Standard error (warnings) is dropped."""

    def __init__(self):
        self.text = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.text += text[: max(0, PRINTED - len(self.text))]
        return len(text)

    def __enter__(self):
        self._redirects = contextlib.ExitStack()
        self._redirects.enter_context(contextlib.redirect_stdout(self))
        self._redirects.enter_context(contextlib.redirect_stderr(io.StringIO()))
        return self

    def __exit__(self, *error):
        self._redirects.close()


def _time_is_up(seconds: float, stopped: bool) -> Failure:
    """Return the failure for an answer that was still running."""
    limit, uncounted = told(seconds)
    sentence = f"Your function was still running at the limit ({limit})"
    ending = "and was stopped. Is there a loop that never ends?" if stopped else f"and could not be stopped: {RESTART}."
    return Failure("time", f"{sentence} {ending}" + (f"\n{uncounted}" if uncounted else ""))
