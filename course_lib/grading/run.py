"""Calling a learner's answer: nothing that it does may break, hang or change the notebook around it.

The call runs in a thread of its own, in this process (`limited`). It may raise, exit, recurse, loop for ever, ask
for a terabyte, print a million lines or turn torch's settings upside down: `call` makes an `Outcome` of it, and
`undisturbed` puts things back. This guards against accidents. It is no wall against malice: grading strangers needs
a second process.
"""

import contextlib
import functools
import inspect
import io
import linecache
import os
import random
import re
import sysconfig
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from .exercise import Case, Exercise
from .limits import Exit, Stop
from .show import plural, without_addresses
from .values import changed, fresh, plain

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
    if isinstance(error, (SystemExit, Exit)):
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


def time_is_up(seconds: float, stopped: bool) -> Failure:
    """The sentence for an answer that was still running."""
    sentence = f"Your function was still running after {plural(int(seconds), 'second')}"
    if stopped:
        return Failure("time", f"{sentence} and was stopped. Is there a loop that never ends?")
    return Failure("time", f"{sentence} and could not be stopped: restart the kernel before you go on.")
