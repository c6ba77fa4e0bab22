"""The seeds of an exercise's cases. All cases of a run follow from its secret, and no answer can compute that secret.

Scheme 2: a keyed hash of the secret makes one seed for each stage of an exercise, and another for the random numbers
during its calls. The secret, or the seed of another stage, cannot be computed from any of them. Each stage needs its
own seed: torch keeps only 32 bits of a CPU generator's seed. After seeing a few random values, an answer could try all
seeds and then know everything else generated from the same one.

Scheme 1: every stage uses the seed itself. Public seeds and the runs of earlier versions use this scheme.
"""

import hmac
import secrets
from typing import Any

import torch

from course_lib.grading.exercise import generator

PUBLIC_SEED = 0  # the seed of the cases that `check` shows to all learners
SECRET = 1 << 126  # the smallest secret of scheme 2; the seeds of earlier versions had 62 bits
NEAR = 1 << 20  # stages add small numbers to their seed


def new_secret() -> int:
    """Return the seed of a new run: 126 bits of the system's own randomness."""
    return SECRET | secrets.randbits(126)


def scheme_of(seed: int) -> int:
    """Return the scheme by which a run's seed generates its cases."""
    return 2 if seed >= SECRET else 1


def hashed(seed: int, *purpose: object) -> int:
    """Return the 62-bit seed derived from `seed` for a purpose; neither `seed` nor another derived seed follows from
    it."""
    told = "\0".join(map(str, purpose)).encode()
    return int.from_bytes(hmac.digest(str(seed).encode(), told, "sha256")[:8], "big") >> 2


def seed_of_stage(seed: int, exercise_id: str, stage: str) -> int:
    """Return the seed of a stage's cases in the run with `seed`."""
    return seed if scheme_of(seed) == 1 else hashed(seed, "cases", exercise_id, stage)


def seed_of_call(seed: int, exercise_id: str, stage: int) -> int:
    """Return the seed of the global random numbers for each call of an answer in a stage, given by its index.

    It is the same for all answers, so that all random draws agree. The public seed is used as it is.
    """
    return seed if seed == PUBLIC_SEED else hashed(seed, "call", exercise_id, stage)


def without_seed(value: Any, seed: int) -> Any:
    """Return an argument of a case that reveals nothing about the stage's seed. Each generator, and each number that is
    the seed or near it, is replaced by a hashed one.

    Objects made for the answer (`Given`) stay, because the rest of the case fits them. Their data may be a seed near
    the stage's own, which reveals only the cases of this stage.
    """
    if isinstance(value, torch.Generator):
        return generator(hashed(value.initial_seed(), "generator"))
    if isinstance(value, int) and abs(value - seed) < NEAR:
        return hashed(value, "number")
    if isinstance(value, dict):
        return {key: without_seed(part, seed) for key, part in value.items()}
    return type(value)(without_seed(part, seed) for part in value) if type(value) in (list, tuple) else value
