"""Careless answers: what people do to a right function without noticing, tried on every reference.

    python -m tests.careless attention masks      # chapters, or exercises: attention.softmax
    python -m tests.careless --all                # every code exercise and experiment: some minutes

`mutants.py` changes one token of a reference's source. Here its behaviour is changed, by the slips of
`careless_slips.py`, `careless_values.py` and `careless_inside.py`, wherever they change anything on some case. Each is
graded like an answer. One that passes either behaves as the reference does on every input that the statement allows,
and then stands in EQUIVALENT with the reason, or shows a case that the exercise lacks.
"""

import argparse
import fnmatch
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from course_lib.grading import EXERCISES, Exercise
from course_lib.grading.cases import prepare
from course_lib.grading.judge.call import call
from course_lib.grading.judge.limits import undisturbed
from course_lib.grading.judge.values import fresh, plain
from tests import careless_inside, careless_values  # noqa: F401  their slips put themselves on the list
from tests.careless_slips import SLIPS, Recorder, Seen
from tests.mutants import chosen, passes

LOW = "no score that is legal, or that anybody meets, is so low: −1e9 for −inf is a right way, as in tests/right"
BOUNDED = "a cosine is never below −1"
AS_STATED = "the statement bounds the numbers: none is so low"
LOGARITHM = "the reference's logits are logarithms of probabilities by then, and not far below 0"
SAME_FOR_ALL = "it adds the same number to every score of a query, which softmax takes off again"
CLEARED = "rows in which nothing may be seen are set to zero afterwards"
SHIFTED = "all numbers of the row are equal, whatever they are: the result is the same"
ROOM = "a measurement has room, and what is lost stays within it"
FREE = "what is drawn, and how often, is the answer's choice: the figure is one of many that are right"
MORE = "more rounds than asked for are as good"
COUNT = "one pair more or less of so many does not show in a variance"
ORDER = "the result does not depend on the order"
TIES = "it decides between equal numbers, where either order is right"
SWITCH = "the model has no dropout: its mode makes no difference"
COPY = "a copy of the list is handed over: nobody else sees the change"
BLOCKS = "the size of the blocks changes nothing in the result, and who reads one key more keeps no table either"
ORDINARY = "made for vectors that one can follow on paper: the suite takes exp without care as right here"
TEN_BYTES = "both recipes take 10 bytes, which is the point of the exercise"
COUNTED = "no parameter depends on it"
ALIKE = "neither the template nor the user is learned: which of the two it is makes no difference"
NORMED = "behind a norm no score exceeds √D times the gains, here 16, so that exp(−100) beside them is 0"
DRAWN = "frequencies of so many draws do not show the third digit of a probability"

HEADS = ("attention.self_attention", "heads.module", "blocks.encoder")

# (exercise, slip and place, why no legal input shows the slip); * stands for anything
EQUIVALENT = [
    *[
        ("embeddings.*", f"low number for minus infinity: {low}", BOUNDED)
        for low in ("-1e+09", "-3.40282e+38", "-10000", "-100")
    ],
    *[("*", f"low number for minus infinity: {low}", LOW) for low in ("-1e+09", "-3.40282e+38")],
    *[
        (exercise, f"minus infinity: * by {low}", LOW)
        for exercise in ("attention.softmax", "attention.saturation", "training.cross_entropy", "sampling.t*")
        for low in ("-1e+09", "-3.40282e+38")
    ],
    ("sampling.temperature", "minus infinity: logits by -10000", AS_STATED),
    *[("sampling.next_token", f"low number for minus infinity: {low}", LOGARITHM) for low in ("-10000", "-100")],
    ("embeddings.analogy", "arguments exchanged: a and c", "a − b + c is c − b + a"),
    ("counting.flops", "arguments exchanged: n_params and n_tokens", "a product does not mind the order"),
    ("counting.memory", "argument *: mixed_precision*", TEN_BYTES),
    *[("counting.function", f"argument ignored: config.{name} *", COUNTED) for name in ("rope_theta", "norm_eps")],
    *[(exercise, "parameter ignored: *k_proj.bias*", SAME_FOR_ALL) for exercise in HEADS],
    *[(exercise, "hidden rows: even", CLEARED) for exercise in ("attention.s*", "heads.module")],
    ("attention.saturation", "rows of zeros: scores by 1.0", SHIFTED),
    ("normalization.layer_norm", "rows of zeros: x by 1.0", SHIFTED),
    ("blocks.gradient_norms", "less exact: *float16", ROOM),
    ("blocks.gradient_norms", "axis of one squeezed: x", "a norm does not mind the shape"),
    *[(exercise, "softmax otherwise: naive", ORDINARY) for exercise in ("attention.wo*", "attention.who_is_it")],
    (
        "feed_forward.ablate_fact",
        "softmax otherwise: naive",
        "no model that anybody cuts has logits whose exp overflows",
    ),
    ("attention.score_variance", "one off: n_pairs *", COUNT),
    ("attention.score_variance", "result of another kind: float64", "two numbers are asked for, of any dtype"),
    ("attention.score_variance", "rounded result: *", ROOM),
    ("*", "generator otherwise: drawn twice", FREE),
    ("*", "seeded by itself: 0", FREE),
    *[(exercise, "generator otherwise: seeded in every draw", FREE) for exercise in ("*speed", "efficiency.*")],
    ("sampling.[ngc]*", "softmax otherwise: bfloat16", DRAWN),
    *[(f"sampling.{name}", "ties the other way: torch", TIES) for name in ("top_k", "top_p", "next_token")],
    *[(exercise, "rounded result: numbers *", ROOM) for exercise in ("heads.how_many", "positions.equivariance")],
    *[(exercise, "rounded result: numbers *", ROOM) for exercise in ("*speed", "blocks.pre_or_post", "training.*")],
    *[(exercise, "rounded result: numbers *", ROOM) for exercise in ("sampling.compare", "efficiency.quadratic")],
    *[("heads.how_many", f"order assumed: {name} *", ORDER) for name in ("heads", "seeds")],
    ("feed_forward.ablate_fact", "order assumed: candidates *", ORDER),
    ("efficiency.quadratic", "order assumed: lengths *", ORDER),
    ("training.clip", "order assumed: parameters backwards", ORDER),
    ("training.scaling_law", "order assumed: runs *", ORDER),
    ("training.scaling_law", "argument cut short: runs, *", ROOM),
    *[("training.scaling_law", f"one off: {name} *", ROOM) for name in "ND"],
    ("efficiency.quantize", "rows of zeros: W by nan", "NaN is not above 0, either, and becomes 0 as an int8"),
    ("efficiency.int8_linear", "axis of one squeezed: scale", "one number is multiplied with all outputs of one row"),
    ("efficiency.speculative", "softmax otherwise: naive", ORDINARY),
    ("efficiency.speculative", "softmax otherwise: bfloat16", DRAWN),
    *[("pretrained.qk_norm", f"low number for minus infinity: {low}", NORMED) for low in ("-10000", "-100")],
    ("pretrained.qk_norm", "softmax otherwise: naive", NORMED),
    ("pretrained.qk_norm", "rows of zeros: angles by 1.0", "queries and keys rotated alike keep their products"),
    ("pretrained.patch", "arguments exchanged: answer and other", "both parts of the fraction change their sign"),
    ("pretrained.patch", "result of another kind: float*", "numbers are asked for, of any dtype"),
    ("training.accumulate", "order assumed: micro_batches backwards", "a sum over the parts does not mind their order"),
    ("masks.documents", "one off: document_ids *", "ids are only compared with each other"),
    ("positions.equivariance", "one off: n_shuffles +1", MORE),
    *[(exercise, "one off: rounds +1", MORE) for exercise in ("*speed", "efficiency.*")],
    ("efficiency.rnn_or_attention", "argument ignored: rounds is 10", MORE),
    *[(exercise, "input changed: *", COPY) for exercise in ("*speed", "efficiency.*", "sampling.compare")],
    ("efficiency.online_softmax", "one off: block_size +1", BLOCKS),
    ("your_gpt.parity", "arguments exchanged: theirs and yours", "a distance does not mind the order"),
    ("your_gpt.loss", "arguments exchanged: grammar_log_probs and story_nats", "nor does a sum"),
    ("your_gpt.loss", "axis of one squeezed: *", "the sum of one number is that number"),
    ("your_gpt.loss", "order assumed: story_tokens sorted", ORDER),
    ("your_gpt.writes", "order assumed: stories *", ORDER),
    ("assistant.answer_mask", "range of numbers: roles at least 1", ALIKE),
    *[
        ("assistant.dpo_loss", f"arguments exchanged: {pair}", "the two enter with the same sign")
        for pair in ("chosen and ref_rejected", "ref_chosen and rejected")
    ],
    ("assistant.dpo_loss", "axis of one squeezed: *", "one number is broadcast to the others"),
    ("assistant.group_advantage", "rows of zeros: rewards by 1.0", SHIFTED),
    ("assistant.frontier", "less exact: *float16", ROOM),
    ("assistant.frontier", "rounded result: numbers *", ROOM),
    ("*", "mode of a model: no switch heard", SWITCH),
]


@dataclass(frozen=True)
class Careless:
    """One slip with one reference. name: of the slip, and where it is put; may_act: could a case show it?"""

    name: str
    answer: Any
    may_act: bool


def seen_of(exercise: Exercise, seed: int) -> Seen:
    """Return what the calls of the reference are on the cases of a seed, also those that a probe makes."""
    seen = Seen(exercise.reference, exercise.module)

    def note(before: dict) -> dict:
        seen.calls.append({name: kept(value) for name, value in before.items()})
        seen.results.append(None)  # it stays where the call ends in an error
        return before

    def note_result(value):
        seen.results[-1] = plain(value)
        return value

    def note_built(before: dict) -> dict:
        seen.built.append(dict(before))
        return before

    watched = seen.altered(note, note_result, lambda: Recorder(seen.torch), note_built)
    trials = prepare(exercise, seed)
    with undisturbed():
        for trial in trials:
            call(watched, trial.call)
    return seen


def kept(value: Any) -> Any:
    return fresh(value) if isinstance(value, (torch.Tensor, list, tuple, dict)) else value


def careless(exercise: Exercise, seed: int) -> Iterator[Careless]:
    """Every slip of the list that may concern this exercise."""
    seen = seen_of(exercise, seed)
    for slip in SLIPS:
        for (label, answer), (_, another) in zip(slip(seen), slip(seen)):  # one to look at, for some have a memory
            yield Careless(f"{slip.__name__.replace('_', ' ')}: {label}", answer, seen.may_act(another))


@dataclass
class Run:
    """What came of the slips with one exercise. tried: how many changed anything; silent: which never did."""

    tried: int = 0
    alive: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)


def run(exercise_id: str, seed: int = 0) -> Run:
    """Try every slip with one exercise."""
    exercise, found = replace(EXERCISES[exercise_id], misconceptions=()), Run()
    for each in careless(exercise, seed):
        passed = not each.may_act or passes(exercise, each.answer, seed)
        if passed and not each.answer.acted:
            found.silent.append(each.name)
            continue
        found.tried += 1
        if passed:
            found.alive.append(each.name)
    return found


def fits(row: tuple[str, str, str], exercise_id: str, name: str) -> bool:
    """Is this line of EQUIVALENT about this slip with this exercise?"""
    return fnmatch.fnmatch(exercise_id, row[0]) and fnmatch.fnmatch(name, row[1])


def explained(exercise_id: str, name: str) -> str | None:
    """Why a survivor is no wrong answer, if EQUIVALENT knows it."""
    return next((row[2] for row in EQUIVALENT if fits(row, exercise_id, name)), None)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.careless", description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="exercises, or chapters such as attention")
    parser.add_argument("--all", action="store_true", help="every code exercise and experiment")
    parser.add_argument("--seed", type=int, default=0, help="decides the cases (default: those of check)")
    parser.add_argument("--silent", action="store_true", help="name the slips that no case gives a chance, too")
    arguments = parser.parse_args()
    if not arguments.ids and not arguments.all:
        parser.error("name exercises, or --all")
    torch.set_num_threads(1)
    totals, used = [0, 0, 0], set()
    print(f"{'exercise':<34}{'tried':>8}{'alike':>8}{'survive':>8}")
    for exercise_id in chosen([] if arguments.all else arguments.ids):
        found = run(exercise_id, arguments.seed)
        alike = [name for name in found.alive if explained(exercise_id, name)]
        row = [found.tried, len(alike), len(found.alive) - len(alike)]
        totals = [total + each for total, each in zip(totals, row)]
        print(f"{exercise_id:<34}{row[0]:>8}{row[1]:>8}{row[2]:>8}", flush=True)
        used |= {row for row in EQUIVALENT for name in found.alive if fits(row, exercise_id, name)}
        for name in found.alive:
            reason = explained(exercise_id, name) or "PASSES: a case is missing, or a line in EQUIVALENT"
            print(f"    {name}\n        {reason}")
        for name in found.silent if arguments.silent else ():
            print(f"    silent: {name}")
    print(f"{'all':<34}{totals[0]:>8}{totals[1]:>8}{totals[2]:>8}")
    for row in EQUIVALENT if arguments.all else ():
        if row not in used:
            print(f"EQUIVALENT holds a line that fits no survivor: {row[0]}, {row[1]}")
    return int(totals[2] > 0)


if __name__ == "__main__":
    sys.exit(main())
