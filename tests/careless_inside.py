"""Slips inside of a computation: what torch's functions and models do is replaced while a reference runs. And between
calls: what an earlier one has left."""

import inspect
import sys
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from course_lib.grading.judge.values import plain
from tests.careless_slips import INF, Instead, Labelled, Seen, differs, slip, tensors_in
from tests.careless_values import modules

# --- −inf and softmax -------------------------------------------------------------------------------------------------


@slip
def low_number_for_minus_infinity(seen: Seen) -> Labelled:
    """−inf is written as −1e9, as the smallest float, as −10,000, as −100."""
    for low in (-1e9, torch.finfo(torch.float32).min, -1e4, -100.0):

        def lower(function, args, kwargs, v=low):
            if not any(isinstance(each, float) and each == -INF for each in (*args, *kwargs.values())):
                return NotImplemented
            args = [v if isinstance(each, float) and each == -INF else each for each in args]
            kwargs = {name: v if isinstance(each, float) and each == -INF else each for name, each in kwargs.items()}
            return function(*args, **kwargs)

        names = ("masked_fill", "masked_fill_", "where", "full", "full_like", "new_full", "fill_", "__setitem__")
        yield f"{low:g}", seen.altered(around=lambda f=lower, n=names: Instead(**dict.fromkeys(n, f)))


@slip
def softmax_otherwise(seen: Seen) -> Labelled:
    """Softmax without its largest exponent taken off, in half precision, or over the first axis or the one before the
    last."""

    def naive(function, args, kwargs):
        x, dim = args[0], args[1] if len(args) > 1 else kwargs["dim"]
        raised = x.exp()
        return raised / raised.sum(dim, keepdim=True)

    def half(function, args, kwargs):
        return function(args[0].bfloat16(), *args[1:], **kwargs).to(args[0].dtype)

    yield "naive", seen.altered(around=lambda: Instead(softmax=naive))
    yield "bfloat16", seen.altered(around=lambda: Instead(softmax=half, log_softmax=half))
    for axis in (0, -2):

        def over(function, args, kwargs, a=axis):
            return function(args[0], a) if args[0].ndim > 1 else NotImplemented

        yield f"axis {axis}", seen.altered(around=lambda f=over: Instead(softmax=f, log_softmax=f))


@slip
def hidden_rows(seen: Seen) -> Labelled:
    """A row of which every score is −inf is left NaN, or gets even shares."""

    def even(function, args, kwargs):
        x, dim = args[0], args[1] if len(args) > 1 else kwargs["dim"]
        nothing = (x == -INF).all(dim, keepdim=True)
        return function(x.masked_fill(nothing, 0.0), *args[1:], **kwargs) if nothing.any() else NotImplemented

    def left(function, args, kwargs):
        return args[0] if isinstance(args[0], Tensor) and args[0].isnan().any() else NotImplemented

    yield "left NaN", seen.altered(around=lambda: Instead(nan_to_num=left, masked_fill=left))
    yield "even", seen.altered(around=lambda: Instead(softmax=even))


@slip
def no_eps_in_lengths(seen: Seen) -> Labelled:
    """Lengths are divided by without care for zeros."""

    def cosine(function, args, kwargs):
        a, b = args[:2]
        return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))

    def unit(function, args, kwargs):
        return args[0] / args[0].norm(dim=-1, keepdim=True)

    yield "cosine", seen.altered(around=lambda: Instead(cosine_similarity=cosine, normalize=unit))


# --- order ------------------------------------------------------------------------------------------------------------


@slip
def ties_the_other_way(seen: Seen) -> Labelled:
    """Of equal numbers the last is taken for the first."""

    def axis_of(args, kwargs, place, default):
        return args[place] if len(args) > place else kwargs.get("dim", default)

    def flipped(function, args, kwargs, place=1, default=-1):
        x, dim = args[0], axis_of(args, kwargs, place, default)
        if dim is None or not x.ndim:
            return NotImplemented
        found = function(x.flip(dim), *args[1:], **kwargs)
        last = x.shape[dim] - 1
        return last - found if isinstance(found, Tensor) else type(found)((found[0], last - found[1]))

    def kth(function, args, kwargs):
        return flipped(function, args, kwargs, place=2)

    def whole(function, args, kwargs):
        x = args[0]
        if len(args) > 1 or kwargs:
            return flipped(function, args, kwargs)
        return x.numel() - 1 - function(x.flatten().flip(0))

    replaced = {"argsort": flipped, "sort": flipped, "topk": kth, "argmax": whole, "argmin": whole}
    yield "torch", seen.altered(around=lambda: Instead(**replaced))
    yield "Python", seen.altered(around=lambda: Backwards(seen.reference.__module__))


class Backwards:
    """Has a module's `sorted`, `max` and `min` read from the end. acted: has it made a difference?"""

    def __init__(self, module: str):
        self.acted = False
        self.patch = mock.patch.dict(
            vars(sys.modules[module]), {f.__name__: self.turned(f) for f in (sorted, max, min)}
        )

    def turned(self, function):
        def backwards(first, *more, **how):
            first = list(first) if not more else first
            value = function(first, *more, **how)
            other = function(first[::-1], **how) if not more else value
            self.acted |= differs(plain(value), plain(other))
            return other

        return backwards

    def __enter__(self):
        self.patch.start()
        return self

    def __exit__(self, *error):
        self.patch.stop()


def noted(answer):
    """Return an answer of which nobody can see whether the slip shows: it counts as if it did."""
    answer.acted.append("around")
    return answer


# --- randomness -------------------------------------------------------------------------------------------------------

DRAWING = ("randn", "rand", "randint", "randperm", "multinomial", "normal", "bernoulli", "randn_like", "rand_like")


@slip
def generator_otherwise(seen: Seen) -> Labelled:
    """The generator is not used, made anew with a seed in every call, drawn from once too often; nothing is drawn."""

    def dropped(function, args, kwargs):
        kwargs = {name: value for name, value in kwargs.items() if name != "generator"}
        return function(*args, **kwargs)

    def seeded(function, args, kwargs):
        rng = torch.Generator().manual_seed(0)
        return (
            function(*args, **{**kwargs, "generator": rng})
            if not function.__name__.endswith("like")
            else NotImplemented
        )

    def twice(function, args, kwargs):
        function(*args, **kwargs)
        return function(*args, **kwargs)

    def most_probable(function, args, kwargs):
        return args[0].argmax(-1, keepdim=True)

    given = seen.of_kind(torch.Generator)
    for name, other in (("ignored", dropped), ("seeded in every draw", seeded), ("drawn twice", twice)):
        if given or other is not dropped:
            yield name, seen.altered(around=lambda f=other: Instead(True, **dict.fromkeys(DRAWING, f)))
    yield "the most probable", seen.altered(around=lambda: Instead(True, multinomial=most_probable))
    for name in given:
        yield "seeded in every call", seen.on(name, lambda rng: torch.Generator().manual_seed(0), torch.Generator)
        yield "None", seen.on(name, lambda rng: None)


@slip
def seeded_by_itself(seen: Seen) -> Labelled:
    """Every call begins with torch.manual_seed(0): what is measured is one draw, again and again."""

    class Seeded(Instead):
        def draw(self, function, args, kwargs):
            if not self.acted:
                torch.manual_seed(0)
            return function(*args, **kwargs)

        def __init__(self):
            super().__init__(True, **dict.fromkeys(DRAWING, self.draw))

    if not seen.of_kind(torch.Generator):
        yield "0", seen.altered(around=Seeded)


# --- views, gradients, modes ------------------------------------------------------------------------------------------


@slip
def views_not_copied(seen: Seen) -> Labelled:
    """`view` for `reshape` and no `contiguous`: what is no plain block of memory is refused."""

    def view(function, args, kwargs):
        x, *shape = args
        return NotImplemented if x.is_contiguous() else x.view(*shape)

    yield "view", seen.altered(around=lambda: Instead(reshape=view, contiguous=lambda f, args, kwargs: args[0]))


@slip
def gradient_cut(seen: Seen) -> Labelled:
    """The result is detached, or everything computed without a gradient: nothing can be learnt through it."""
    if any(v.requires_grad for call in seen.calls for v in call.values() if isinstance(v, Tensor)) or seen.is_class:
        yield "detached", noted(seen.on_result(Tensor.detach))
        yield "no_grad", noted(seen.altered(around=torch.no_grad))


@slip
def dropout_active(seen: Seen) -> Labelled:
    """Dropout acts, in training mode or always."""
    if not seen.is_class:
        return
    base = seen.reference

    class InTraining(base):
        acted = ("dropout",)

        def forward(self, *args, **kwargs):
            return nn.functional.dropout(base.forward(self, *args, **kwargs), 0.1, self.training)

    yield "in training", InTraining
    yield "always", noted(seen.on_result(lambda x: nn.functional.dropout(x, 0.1)))


@slip
def mode_of_a_model(seen: Seen) -> Labelled:
    """A model that was given is used in the mode in which it comes: nobody calls `eval`."""

    def deaf(model, mode=True):
        return model

    if modules(seen):
        yield "no switch heard", noted(seen.altered(around=lambda: mock.patch.object(nn.Module, "train", deaf)))


# --- what an earlier call has left ------------------------------------------------------------------------------------


def shapes(value: Any) -> Any:
    """Return what a cache by shape takes for its key."""
    if isinstance(value, (list, tuple)):
        return tuple(map(shapes, value))
    return tuple(value.shape) if isinstance(value, Tensor) else type(value)


@slip
def result_cached(seen: Seen) -> Labelled:
    """The result of an earlier call is given again, where the inputs have the same shapes."""
    kept, key = {}, []

    def given(arguments):
        key[:] = [tuple(map(shapes, arguments.values()))]
        return arguments

    yield "by shape", seen.altered(given, lambda value: kept.setdefault(key[0], value))


@slip
def argument_kept(seen: Seen) -> Labelled:
    """The value that an argument had in the first call is kept: for good, or for inputs of the same shape."""
    for name in seen.names:
        kept = {}
        yield f"{name}, for good", seen.on(name, lambda x, k=kept: k.setdefault(0, x))
        if name in seen.tensors():
            by_shape = {}
            yield f"{name}, by shape", seen.on(name, lambda x, k=by_shape: k.setdefault(x.shape, x), Tensor)


@slip
def default_kept(seen: Seen) -> Labelled:
    """An optional argument that is left out has the value of the last call in which it was not."""
    for name in seen.names:
        if seen.signature.parameters[name].default is inspect.Parameter.empty:
            continue
        kept: dict = {}
        yield name, seen.altered(lambda arguments, n=name, k=kept: remembered(arguments, n, k))


def remembered(arguments: dict, name: str, kept: dict) -> dict:
    if arguments.get(name) is not None:
        kept[name] = arguments[name]
    return kept | arguments if arguments.get(name) is None else arguments


@slip
def results_pile_up(seen: Seen) -> Labelled:
    """A list that is a mutable default: what earlier calls have put in is still there."""
    if any(isinstance(result, (list, dict)) for result in seen.results):
        piled: list = []
        entries: dict = {}
        yield "list", seen.altered(result=lambda x: (piled.extend(x), list(piled))[1] if isinstance(x, list) else x)
        yield "dict", seen.altered(result=lambda x: (entries.update(x), dict(entries))[1] if isinstance(x, dict) else x)


@slip
def one_buffer(seen: Seen) -> Labelled:
    """Results of one shape are views of one buffer, which the next call fills anew."""
    buffers: dict = {}

    def into(x):
        buffer = buffers.setdefault((x.shape, x.dtype), torch.empty_like(x))
        return buffer.copy_(x.detach())

    if any(tensors_in(result) for result in seen.results):
        yield "by shape", seen.on_result(into)
