"""Calling a learner's answer: nothing that it does may break, hang or change the notebook around it.

The call runs in a thread of its own, in this process (`limited`). It may raise, exit, recurse, loop for ever, ask
for a terabyte, print a million lines or turn torch's settings upside down: `call` makes an `Outcome` of it, and
`undisturbed` puts things back. This guards against accidents. It is no wall against malice: grading strangers needs
a second process.
"""

import builtins
import contextlib
import ctypes
import functools
import inspect
import io
import linecache
import os
import random
import re
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, no_type_check

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .exercise import Case, Exercise
from .show import plural, without_addresses
from .values import changed, fresh, plain

MEMORY = 4 << 30  # bytes that an answer may take beyond what the process has
PATIENCE = 2.0  # seconds in which a thread is asked to stop
BUSY = 3  # an answer that computes may take so many times its limit by the clock on the wall, if the machine is busy
PRINTED = 2000  # characters of what an answer prints that are kept


@dataclass(frozen=True)
class Failure:
    """A call that gave no value. kind: unanswered, raised, exit, time, signature, type."""

    kind: str
    sentence: str
    behaviour: str = ""  # what tells one failure from another of its kind, without line numbers and sizes


@dataclass(frozen=True)
class Outcome:
    """What one call did: its value as plain data or its failure; inputs it changed; a forbidden operation it used."""

    value: Any = None
    failure: Failure | None = None
    changed: tuple[str, ...] = ()
    forbidden: str = ""
    printed: str = ""


@dataclass(frozen=True)
class Trial:
    """A case made ready: the reference's value, its weights where the answer is a class, what mistakes do with it."""

    stage: str
    case: Case
    expected: Any
    weights: dict | None
    seed: int
    mistakes: dict = field(
        default_factory=dict, compare=False
    )  # id of a wrong answer -> its Outcome, once it was needed


# --- one call ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def prepare(exercise: Exercise, seed: int) -> tuple[Trial, ...]:
    """Every case of every stage in the order in which they are tried, with what the reference makes of it.

    Kept, because a learner checks the same exercise again and again, and a class is graded with one seed.
    """
    trials = []
    _settle(seed)
    for stage in exercise.stages:
        for case in sorted(stage(seed), key=_size):
            _settle(seed)
            function, weights = exercise.reference, None
            if exercise.module:
                function = _moved(exercise.reference(*fresh(case.init)), seed)
                weights = fresh(function.state_dict())
                function = _ready(function, weights, case)
            _settle(seed)
            value = plain(_apply(exercise, function, fresh(case.args)))
            trials.append(Trial(inspect.cleandoc(stage.__doc__), case, value, weights, seed))
    return tuple(trials)


def call(exercise: Exercise, answer: Any, trial: Trial) -> Outcome:
    """What `answer` does with one case. Raises nothing but Stop, which `limited` throws into it."""
    watch = _Watch(exercise.forbidden)
    paper = _Paper()
    args = fresh(trial.case.args)
    _settle(trial.seed)
    value, failure = None, None
    try:
        with paper, watch if exercise.forbidden else contextlib.nullcontext():
            function = answer
            failure = _misfit(exercise, answer, trial.case)
            if exercise.module and not failure:
                function = answer(*fresh(trial.case.init))
                failure = _unlike(function, trial.weights)
                function = function if failure else _ready(function, trial.weights, trial.case)
            if not failure:
                value = _apply(exercise, function, args)
        value = plain(value)
        if value is Ellipsis:
            failure = Failure("unanswered", "Your function returns ... here: this case is not answered yet.")
        altered = [name for name, b, a in zip(_names(exercise), trial.case.args, args) if changed(b, a)]
    except Stop:
        raise
    except BaseException as error:
        failure = _explain(error)
    if failure:
        return Outcome(failure=failure, printed=paper.text)
    altered = tuple(name for name in altered if name not in exercise.may_change)
    return Outcome(value, None, altered, watch.used, paper.text)


def mistaken(exercise: Exercise, wrong: Any, trial: Trial) -> Outcome:
    """What one of the exercise's own misconceptions does with one case."""
    if id(wrong) not in trial.mistakes:
        trial.mistakes[id(wrong)] = call(exercise, wrong, trial)
    return trial.mistakes[id(wrong)]


def _apply(exercise: Exercise, function: Callable, args: tuple) -> Any:
    return exercise.probe(function, *args) if exercise.probe else function(*args)


def _settle(seed: int) -> None:
    """The same state before every call, whoever is called."""
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)


def _misfit(exercise: Exercise, answer: Any, case: Case) -> Failure | None:
    """Does the answer take the arguments that the exercise names?"""
    wanted = exercise.signature
    if not callable(answer):
        return Failure("type", f"The answer should be {'the class' if exercise.module else 'the function'} {wanted}.")
    if exercise.module and not isinstance(answer, type):
        return Failure("type", f"The answer should be the class {wanted} itself, not something made from it.")
    if exercise.probe and not exercise.module:
        return None
    try:
        signature = inspect.signature(answer)
    except (ValueError, TypeError):  # built in C, without one
        return None
    given = case.init if exercise.module else case.args
    try:
        signature.bind(*given)
    except TypeError as error:
        return Failure("signature", f"It cannot be called as {wanted}: {error}.", str(error))
    return None


def _moved(module: nn.Module, seed: int) -> nn.Module:
    """Every parameter off its initial value, so that no gain of 1 and no bias of 0 hides a mistake."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=rng).to(parameter))
    return module


def _ready(module: nn.Module, weights: dict, case: Case) -> nn.Module:
    """In evaluation mode, in the dtype of its input, with the reference's weights."""
    dtypes = [x.dtype for x in case.args if isinstance(x, torch.Tensor) and x.is_floating_point()]
    module.load_state_dict(weights, strict=False)  # `_unlike` has looked; buffers of the learner's own stay
    return module.to(dtypes[0] if dtypes else torch.float32).eval()


def _unlike(module: Any, weights: dict) -> Failure | None:
    """Has the learner's module the reference's parameters, by name and shape?"""
    if not isinstance(module, nn.Module):
        return Failure("type", f"The class should be an nn.Module; it makes a {type(module).__name__}.")
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


def _names(exercise: Exercise) -> list[str]:
    function = exercise.reference.forward if exercise.module else exercise.reference
    names = list(inspect.signature(function).parameters)
    return names[1:] if exercise.module else names


def _size(case: Case) -> int:
    return sum(x.numel() for x in case.args if isinstance(x, torch.Tensor))


# --- what went wrong, in a sentence -----------------------------------------------------------------------------------


def _explain(error: BaseException) -> Failure:
    name, message, where = type(error).__name__, _message(error), _where(error)
    if isinstance(error, NotImplementedError) and (
        not message or "raise NotImplementedError" in where
    ):  # torch raises it, too
        return Failure("unanswered", "Your function raises NotImplementedError here: this case is not answered yet.")
    if isinstance(error, (SystemExit, _Exit)):
        return Failure("exit", f"Your function ends the program. Return the result instead.{where}")
    if isinstance(error, RecursionError):
        return Failure("raised", f"Your function calls itself without end. When should it stop?{where}", "recursion")
    if isinstance(error, MemoryError) or "allocate memory" in message or "Storage size" in message:
        sentence = f"Your function asks for more memory than there is. Which shape grows so large?{where}"
        return Failure("raised", sentence, "memory")
    behaviour = f"{name} {re.sub(r'[0-9]+', '#', message)}"
    return Failure("raised", f"Your function raised {name}{f': {message}' if message else ''}{where}", behaviour)


def _message(error: BaseException) -> str:
    try:
        text = str(error)
    except Stop:
        raise
    except BaseException:  # an exception whose message cannot be made
        text = ""
    text = without_addresses(text.strip())
    return text if len(text) <= 500 else text[:500] + " …"


def _where(error: BaseException) -> str:
    """The deepest line that is the learner's own: not ours, not torch's, not Python's."""
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
    str(Path(__file__).parents[1]) + os.sep,
    str(Path(torch.__file__).parent) + os.sep,
    "<frozen",
)


class _Exit(BaseException):
    """Raised instead of ending the process."""


def _no_exit(*_: Any, **__: Any) -> None:
    raise _Exit


def _no_input(*_: Any, **__: Any) -> None:
    raise RuntimeError("there is nobody to answer input() while an answer is checked")


# --- the watch on operations, the paper for prints --------------------------------------------------------------------


class _Watch(TorchFunctionMode):
    """Notes the first forbidden torch operation. It does not interfere: an answer cannot catch what is not raised."""

    def __init__(self, forbidden: Any):
        self.forbidden = set(forbidden)
        self.used = ""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if not self.used:
            name = getattr(function, "__name__", "")
            self.used = name if name in self.forbidden else ""
        return function(*args, **(kwargs or {}))


class _Paper(io.TextIOBase):
    """Takes what an answer prints and keeps its beginning. What it says on stderr (warnings) is dropped."""

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


# --- limits -----------------------------------------------------------------------------------------------------------


@no_type_check  # here and below: wrappers that check annotations would stand between us and the learner's frames
class Stop(BaseException):
    """Thrown into a thread whose time is up.

    A bare `except:` in the learner's loop catches it. So its birth puts a trap into the learner's frames: the next line
    that runs there, already outside that `try`, raises another one.
    """

    def __init__(self):
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != __file__:
            frame.f_trace = _trap
            frame = frame.f_back
        sys.settrace(_no_trace)


@no_type_check
def _no_trace(frame, event, argument):
    """No traps in functions that are called from now on: those of the way out are ours."""


@no_type_check
def _trap(frame, event, argument):
    if event == "line":
        raise Stop
    return _trap


def limited(job: Callable[[], None], seconds: float) -> str:
    """Run `job` in a thread of its own. Returns "done", "stopped" (its time was up) or "lost" (it would not stop).

    `seconds` are the thread's own where the system counts them, so that a busy machine fails nobody.
    """

    def work():
        if _COUNTED:
            clocks.append(time.pthread_getcpuclockid(threading.get_ident()))
        try:
            try:
                job()
                finished.append(True)
            finally:
                sys.settrace(None)
        except Stop:  # a second one may arrive on the way out: it must not reach the end of the thread
            pass

    finished: list[bool] = []
    clocks: list[int] = []  # of the worker
    worker = threading.Thread(target=work, name=WORKER, daemon=True)
    worker.start()
    try:
        end = time.monotonic() + seconds * (BUSY if _COUNTED else 1)
        while worker.is_alive() and time.monotonic() < end and _seconds_used(clocks) < seconds:
            worker.join(0.05)
    finally:  # an interrupt from the keyboard comes this way, too
        stopped = _stop(worker)
    return "done" if finished else "stopped" if stopped else "lost"


WORKER = "a learner's answer"


def inside_an_answer() -> bool:
    """Is this thread one that runs an answer? Then the answer called `check`."""
    return threading.current_thread().name == WORKER


_COUNTED = hasattr(time, "pthread_getcpuclockid")  # Linux


def _seconds_used(clocks: list[int]) -> float:
    """The time that a thread has computed, sleeping and waiting left out; 0 where the system does not tell."""
    try:
        return time.clock_gettime(clocks[0]) if clocks else 0.0
    except OSError:  # the thread has ended
        return 0.0


def _stop(worker: threading.Thread) -> bool:
    end = time.monotonic() + PATIENCE
    while worker.is_alive() and time.monotonic() < end:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(worker.ident), ctypes.py_object(Stop))
        worker.join(0.02)
    return not worker.is_alive()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Whatever an answer does to the process, afterwards it is as before: exits, streams, settings, random states."""
    settings = torch.get_default_dtype(), torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()
    streams, limit, folder = (sys.stdout, sys.stderr), sys.getrecursionlimit(), os.getcwd()
    on_the_cpu = contextlib.nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
    try:
        with _exits_closed(), _memory_limited(), on_the_cpu, torch.enable_grad():
            yield
    finally:
        sys.stdout, sys.stderr = streams
        sys.setrecursionlimit(limit)
        os.chdir(folder)
        torch.set_default_dtype(settings[0])
        if torch.get_num_threads() != settings[1]:
            torch.set_num_threads(settings[1])
        if torch.are_deterministic_algorithms_enabled() != settings[2]:
            torch.use_deterministic_algorithms(settings[2])
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])
        random.setstate(states[2])


@contextlib.contextmanager
def _exits_closed() -> Iterator[None]:
    """os._exit, exit() and quit() (IPython's own too) raise, and input() does not wait."""
    doors = [(os, "_exit", _no_exit), (os, "abort", _no_exit), (builtins, "input", _no_input)]
    doors += [(builtins, name, _no_exit) for name in ("exit", "quit")]
    if "IPython.core.autocall" in sys.modules:
        autocall = sys.modules["IPython.core.autocall"]
        doors += [(kind, "__call__", _no_exit) for kind in (autocall.ExitAutocall, autocall.ZMQExitAutocall)]
    absent = object()
    before = [(place, name, getattr(place, name, absent)) for place, name, _ in doors]
    for place, name, replacement in doors:
        setattr(place, name, replacement)
    try:
        yield
    finally:
        for place, name, original in before:
            delattr(place, name) if original is absent else setattr(place, name, original)


@contextlib.contextmanager
def _memory_limited() -> Iterator[None]:
    """An absurd allocation becomes a MemoryError instead of the end of the kernel (on Linux)."""
    try:
        import resource

        if torch.cuda.is_available():  # a GPU's driver maps far more addresses than it uses memory
            raise OSError
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    except (ImportError, OSError):  # Windows, macOS, a GPU
        yield
        return
    room = taken + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (room if soft == resource.RLIM_INFINITY else min(room, soft), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def time_is_up(seconds: float, stopped: bool) -> Failure:
    """The sentence for an answer that was still running."""
    sentence = f"Your function was still running after {plural(int(seconds), 'second')}"
    if stopped:
        return Failure("time", f"{sentence} and was stopped. Is there a loop that never ends?")
    return Failure("time", f"{sentence} and could not be stopped: restart the kernel before you go on.")
