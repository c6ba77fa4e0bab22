"""Test whether an answer can find the seed of the run: a test answer looks everywhere a seed may appear.

It looks from inside the sandbox. Its findings are searched outside, because the seed is never sent inside.
"""

import random
import re
from collections.abc import Mapping, Sequence

from course_lib.grading.cases import prepare
from course_lib.grading.exercise import Case, Given, generator
from course_lib.grading.fixtures import drawn_decoder
from course_lib.grading.judge.seeds import scheme_of, seed_of_stage
from course_lib.grading.judge.trials import Trial
from course_lib.grading.kinds import Code

GUESSABLE = 32  # bits: a seed this small was chosen by hand, and other numbers may equal it by chance
HOUR = 3600
SMALL = {"vocab_size": 3, "d_model": 4, "n_heads": 1, "n_layers": 1, "max_seq_len": 2}
SOURCE = """
def seen(*given):
    import glob, os, random, sys, time
    import numpy, torch

    def words(rng):
        return [rng.initial_seed(), *rng.get_state()[: 5056 // 8 * 8].view(torch.int64).tolist()]

    def numbers(start):
        told, todo, known = [], [start], set()
        while todo and len(known) < 20_000:
            value = todo.pop(0)
            if id(value) in known:
                continue
            known.add(id(value))
            if isinstance(value, torch.Generator):
                told += words(value)
            elif isinstance(value, int):
                told.append(int(value))
            elif isinstance(value, dict):
                todo += [*value.keys(), *value.values()]
            elif isinstance(value, (list, tuple)):
                todo += value[:]  # to go through the calls themselves would announce them
            elif isinstance(value, (set, frozenset)):
                todo += value
            elif hasattr(value, "__dict__") and not callable(value):
                todo += vars(value).values()
        return told

    def content(*patterns):
        told = ""
        for path in [path for pattern in patterns for path in glob.glob(pattern)]:
            try:
                with open(path, "rb") as file:
                    told += file.read(20_000).decode("latin-1") + " "
            except OSError:
                pass
        return told[:500_000]

    def callers():
        frame, told = sys._getframe(2), []
        while frame is not None:
            told.append(dict(frame.f_locals))
            frame = frame.f_back
        return numbers(told)

    return {
        "torch.initial_seed()": str(torch.initial_seed()),
        "the state of torch's generator": str(words(torch.default_generator)),
        "the state of `random`": str(random.getstate()),
        "the state of `numpy.random`": str(numpy.random.get_state()[1].tolist()),
        "what it is given": str([numbers(given), given]),
        "the frames that call it": str(callers()),
        "Python's hashes": f"{os.environ.get('PYTHONHASHSEED')} {sys.flags} {hash('seed')}",
        "the environment": str(dict(os.environ)),
        "the command line": str([sys.argv, sys.orig_argv]),
        "/proc": content("/proc/*/cmdline", "/proc/*/environ", "/proc/self/stat*"),
        "its files": content("*", "/tmp/*", "/dev/shm/*"),
        "the clock": str(time.time_ns()),
    }
"""


def call_with_everything(seed: int) -> Sequence[Trial]:
    """Return a call with every kind of argument that depends on a seed, prepared like all calls of the run with `seed`.

    Under scheme 1 it has no arguments: the cases of such an earlier run do contain its seed, and must not change.
    """

    def everything(drawn: int) -> list[Case]:
        "Return a case with every kind of argument."
        if scheme_of(seed) == 1:
            return [Case()]
        model = Given(drawn_decoder, SMALL, drawn + 2)
        return [Case(generator(drawn), [drawn + 1], {"seed": drawn}, model)]

    return prepare(
        Code(
            id="wall.seed",
            chapter=0,
            title="What an answer sees",
            points=1,
            difficulty=1,
            minutes=1,
            hints=["None."],
            signature="seen(*given)",
            reference=lambda *given: None,
            stages=[everything],
        ),
        seed,
    )


def told_by(seen: Mapping[str, str], seed: int) -> list[str]:
    """Return the findings that contain the seed of a run or of a stage, in full or its low bits."""
    if seed.bit_length() <= GUESSABLE:
        return []
    secrets = {seed, seed % 2**64, seed % 2**32, seed_of_stage(seed, "wall.seed", "everything")}
    secrets |= {random.Random(each).getstate()[1][1] for each in secrets}  # `random`'s state shows this, not a seed
    telling = []
    for place, text in seen.items():
        numbers = {*map(int, re.findall(r"\d+", text))}
        numbers |= {int(each, 16) for each in re.findall(r"[0-9a-fA-F]{6,}", text)}
        if place == "the clock":
            now = int(text)
            numbers |= {seed for unit in (1, 10**3, 10**6, 10**9) if abs(seed - now * unit // 10**9) < HOUR * unit}
        if numbers & secrets:
            telling.append(place)
    return telling
