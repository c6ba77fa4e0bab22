"""Which seed draws what: the cases of a run follow from its secret, and nothing beside an answer tells that secret.

Scheme 2: a keyed hash of the secret makes one seed for each stage of an exercise, and another for the random numbers
beside its calls. Nobody can compute the secret, or the seed of another stage, from any of them. A stage needs a seed of
its own: torch keeps only 32 bits of a CPU generator's seed, so that someone who has seen a few values drawn from it can
try all of them, and then knows everything else that was drawn from the same seed.

Scheme 1: every stage draws from the seed itself. Seeds that are public do so, and the runs of earlier versions.
"""

import hmac
import secrets
from typing import Any

import torch

from course_lib.grading.exercise import generator

PUBLIC_SEED = 0  # of the cases that `check` shows to everybody
SECRET = 1 << 126  # no secret of scheme 2 is smaller; the seeds of earlier versions had 62 bits
NEAR = 1 << 20  # stages add small numbers to their seed


def new_secret() -> int:
    """Return the seed of a new run: 126 bits of the system's own randomness."""
    return SECRET | secrets.randbits(126)


def scheme_of(seed: int) -> int:
    """Return by which scheme a run's seed draws its cases."""
    return 2 if seed >= SECRET else 1


def hashed(seed: int, *purpose: object) -> int:
    """Return the seed of 62 bits that `seed` has for a purpose; no other one follows from it, nor `seed` itself."""
    told = "\0".join(map(str, purpose)).encode()
    return int.from_bytes(hmac.digest(str(seed).encode(), told, "sha256")[:8], "big") >> 2


def seed_of_stage(seed: int, exercise_id: str, stage: str) -> int:
    """Return the seed from which a stage draws its cases in the run with `seed`."""
    return seed if scheme_of(seed) == 1 else hashed(seed, "cases", exercise_id, stage)


def seed_of_call(seed: int, exercise_id: str, stage: int) -> int:
    """Return the seed of the global random numbers for each call of an answer in a stage, by its place. It is equal for
    all, so that an answer that draws blindly draws alike. That of `check` is known anyway."""
    return seed if seed == PUBLIC_SEED else hashed(seed, "call", exercise_id, stage)


def without_seed(value: Any, seed: int) -> Any:
    """Return an argument of a case that tells nothing of the stage's seed: each generator, and each number that is the
    seed or near it, gives way to one that is hashed from it.

    What is made for the answer (`Given`) stays: the stage has chosen the rest of the case to fit it. Its data may be a
    seed near the stage's own, which tells the cases of this stage and nothing else.
    """
    if isinstance(value, torch.Generator):
        return generator(hashed(value.initial_seed(), "generator"))
    if isinstance(value, int) and abs(value - seed) < NEAR:
        return hashed(value, "number")
    if isinstance(value, dict):
        return {key: without_seed(part, seed) for key, part in value.items()}
    return type(value)(without_seed(part, seed) for part in value) if type(value) in (list, tuple) else value
