"""How the tests of chapter 14 build arguments that are not plain data, and use an answer: see `grading/fixtures.py`."""

import random
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from course_lib.grading.judge.compare import kind_of
from course_lib.grading.judge.values import plain
from course_lib.grading.judge.watch import Dispatched


class _TiringClock:
    """Return the seconds that pretended layers have taken. As on a real machine, times vary by 1%, and everything slows
    down, by the fraction `tires` with every reading."""

    def __init__(self, seed, tires):
        self.now, self.readings, self.tires, self.rng = 0.0, 0, tires, random.Random(seed)

    def __call__(self):
        self.readings += 1
        return self.now

    def spend(self, seconds):
        self.now += seconds * (1 + self.tires * self.readings) * (1 + 0.01 * self.rng.random())


class _PretendAttention:
    """Return x (batch, T, features), and move a clock forward by overhead + cost · batch · T^power seconds.

    The first call with a length takes longer, and so does one in five, as after an interruption.
    """

    def __init__(self, overhead, cost, power):
        self.overhead, self.cost, self.power = overhead, cost, power
        self.clock = _TiringClock(0, 0.0)
        self.calls: Counter[int] = Counter()

    def __call__(self, x):
        if x.ndim != 3 or not x.numel():
            raise ValueError(f"x has shape {tuple(x.shape)}; it should be (batch, T, features)")
        batch, T = x.shape[:2]
        self.calls[T] += 1
        extra = 0.02 if self.calls[T] == 1 else 0.05 if self.calls[T] % 5 == 3 else 0.0
        self.clock.spend(extra + self.overhead + self.cost * batch * T**self.power)
        return x


class _PretendStep:
    """Do one step of a recurrent layer: the new state counts the steps since a state of zeros, and a clock moves
    forward.

    The first sequence takes longer, and so does one in five, as after an interruption.
    """

    def __init__(self, overhead, cost):
        self.overhead, self.cost = overhead, cost
        self.clock = _TiringClock(0, 0.0)
        self.walked: Counter[int] = Counter()

    def __call__(self, token, state):
        if not isinstance(state, Tensor) or token.ndim != 2 or state.shape != token.shape:
            kinds = f"{kind_of(plain(token))} and {kind_of(plain(state))}"
            raise ValueError(f"token and state should both be (batch, features); they are {kinds}")
        steps = int(state[0, 0]) + 1
        self.walked[steps] += 1
        disturbed = steps == 1 and (self.walked[1] == 1 or self.walked[1] % 5 == 3)
        self.clock.spend(0.05 * disturbed + self.overhead + self.cost * len(token))
        return torch.full_like(state, steps)


def pretend_attention(overhead: float, cost: float, power: float) -> Callable:
    """Return a function of x (batch, T, features) that takes a known time on a pretended clock."""
    return _PretendAttention(overhead, cost, power)


def pretend_step(overhead: float, cost: float) -> Callable:
    """Return a function of token and state, (batch, features) each, that takes a known time on a pretended clock."""
    return _PretendStep(overhead, cost)


def tiring_clock(seed: int, tires: float) -> Callable:
    """Return a clock that only the pretended layers move."""
    return _TiringClock(seed, tires)


# products: the argument whose last axis is summed over
_SUMMED = {"mm": 0, "bmm": 0, "mv": 0, "dot": 0, "vdot": 0, "addmm": 1, "addmv": 1, "baddbmm": 1}


class _Held(Dispatched):
    """Record the largest number of elements in all of torch's tensors at one time, the products, and the operations."""

    def __init__(self, *inputs):
        super().__init__()
        self.inputs = {x.untyped_storage()._cdata for x in inputs}
        self.alive, self.most, self.products, self.operations = {}, 0, 0, 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        result = operation(*args, **(kwargs or {}))
        self.operations += 1
        name = operation.overloadpacket.__name__
        for made in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(made, Tensor):
                if name in _SUMMED:
                    self.products += made.numel() * args[_SUMMED[name]].shape[-1]
                storage = made.untyped_storage()
                if storage._cdata not in self.inputs:
                    numbers = storage.nbytes() // made.element_size()
                    self.alive[storage._cdata] = StorageWeakRef(storage), numbers
        self.alive = {key: value for key, value in self.alive.items() if not value[0].expired()}
        self.most = max(self.most, sum(numbers for _, numbers in self.alive.values()))
        return result


def held_while_reading(answer, q, k, v, block_size):
    """Return the output, and for a long text also the memory and the work.

    For 100 keys or more, the result has by name: the output; whether at some time torch's tensors had T · S numbers or
    more for each head; whether there were many more products than one pass over the keys needs; whether smaller blocks
    mean more operations.
    """
    T, S = q.shape[-2], k.shape[-2]
    if S < 100:
        return answer(q, k, v, block_size)
    heads = q.shape[:-2].numel()
    with _Held(q, k, v) as held:
        output = answer(q, k, v, block_size)
    operations = []
    for size in (2, 4, 8, 16):
        few = q[..., :3, :].clone(), k[..., :32, :].clone(), v[..., :32, :].clone()
        with _Held(*few) as seen:
            answer(*few, size)
        operations.append(seen.operations)
    return {
        "output": output,
        "held T × S": held.most >= heads * T * S,
        "second pass": held.products > 1.3 * heads * T * S * (q.shape[-1] + v.shape[-1]),
        "in blocks": sorted(set(operations), reverse=True) == operations,
    }


def timed_alone(answer, attention, lengths, rounds, clock):
    """Return the result of an answer with a pretended clock, or a sentence that says why it measured nothing."""
    attention.clock = clock
    figure = answer(attention, list(lengths), rounds, clock)
    return _not_timed(attention.calls, clock, lengths, rounds) or figure


def timed_beside(answer, step, attention, lengths, batch, rounds, clock):
    """Do the same as timed_alone for two layers, and return the results by name, with times as lists of numbers."""
    step.clock = attention.clock = clock
    figures = answer(step, attention, list(lengths), batch, rounds, clock)
    steps, whole = step.walked.total(), step.walked[max(lengths)]
    problem = _not_timed(attention.calls, clock, lengths, rounds)
    if problem or not steps:
        return problem or "your function never calls the recurrent layer"
    if steps <= 2 * rounds * len(lengths) and step.walked.keys() == {1}:  # none had a step before it
        return "your function takes only single steps of the recurrent layer"
    if steps < rounds * sum(lengths):
        return "your function takes too few steps of the recurrent layer"
    if whole < rounds:
        return "your function does not pass the state on to the end of the text"
    figures = plain(figures)
    if not isinstance(figures, dict):
        return figures
    return {name: part.tolist() if isinstance(part, Tensor) else part for name, part in figures.items()}


def _not_timed(calls, clock, lengths, rounds):
    """Return the reason why a result cannot be a measurement in a few words, or None if it can."""
    if not calls:
        return "your function never calls the attention"
    if not clock.readings:
        return "your function never reads the clock"
    missing = [T for T in lengths if not calls[T]]
    if missing:
        return f"your function never calls the attention with T = {missing[0]:,} tokens"
    return "your function measures too few rounds" if min(calls[T] for T in lengths) < rounds else None


class _Recall:
    """A model that you can follow on paper: its logits are row (sum of the tokens so far mod rows) of a table."""

    def __init__(self, table):
        self.table, self.passes = table, 0

    def __call__(self, ids):
        if not isinstance(ids, Tensor) or ids.ndim != 2 or not ids.numel() or ids.is_floating_point():
            raise ValueError(f"a model reads ids of shape (1, T); it was given {kind_of(plain(ids))}")
        self.passes += 1
        return self.table[ids.cumsum(1) % len(self.table)]  # (1, T, V)


def recalling(table: Tensor) -> Callable:
    """Return a model whose next logits depend on the sum of all tokens so far: a row of a table (rows, V)."""
    return _Recall(table)


AGAIN = 12  # steps that are repeated from the same state of the generator


def steps_speculated(answer, target, draft, ids, k, generator, runs):
    """Return the results of many steps, each from the same text.

    By name: each step's text (runs, T + k + 1), filled up with −1; how often each step called the target (runs,); and
    the first steps again from the same state of the generator. If a result is not a text, return the reason in a few
    words.
    """
    state, texts, passes = generator.get_state(), [], []
    for i in range(runs + min(runs, AGAIN)):
        if i == runs:
            generator.set_state(state)
        target.passes = 0
        text = plain(answer(target, draft, ids.clone(), k, generator))
        problem = _no_step(text, ids, k)
        if problem:
            return problem
        passes.append(target.passes)
        texts.append(torch.nn.functional.pad(text[0], (0, ids.shape[1] + k + 1 - text.shape[1]), value=-1))
    return {
        "texts": torch.stack(texts[:runs]),
        "passes": torch.tensor(passes[:runs]),
        "again": torch.stack(texts[runs:]),
    }


def _no_step(text, ids, k):
    """Return the reason why a result is not the text with 1 to k + 1 more tokens, or None if it is."""
    if not isinstance(text, Tensor) or text.is_floating_point() or text.ndim != 2 or len(text) != 1:
        return f"no ids of shape (1, …) but {kind_of(text)}"
    if text.shape[1] <= ids.shape[1] or not torch.equal(text[:, : ids.shape[1]], ids):
        return "no text that begins with ids and goes on"
    return "more than k + 1 new tokens" if text.shape[1] > ids.shape[1] + k + 1 else None
