"""The secret of a run: nothing beside an answer tells it, and nothing that is handed out holds it."""

import hashlib
import json
import random
import re
import time

import pytest
import torch

from course_lib.__main__ import main
from course_lib.classroom.mark import journal
from course_lib.classroom.sandbox import probe
from course_lib.classroom.sandbox import stage as sandbox
from course_lib.classroom.sandbox.probe import require_isolation
from course_lib.classroom.sandbox.protocol import Packer, pack_call
from course_lib.classroom.sandbox.remote import Worker
from course_lib.classroom.sandbox.stage import SandboxError
from course_lib.grading import cases as preparing
from course_lib.grading.cases import prepare
from course_lib.grading.engine import PUBLIC_SEED, grade
from course_lib.grading.exercise import Given, generator
from course_lib.grading.fixtures import drawn_decoder
from course_lib.grading.judge import seeds
from course_lib.grading.page.catalogue import EXERCISES
from tests.grading.corpus import notebook
from tests.pretended_worker import pretend, run, submitted
from tests.small_class import EXERCISE, LIMITS, needs_bwrap

SECRET = seeds.SECRET | 0x0123_4567_89AB_CDEF_0123_4567_89AB
OLD = 253_954_414_150_219_050  # as earlier versions drew them
WITH_SEEDS = ("training.get_batch", "training.step", "heads.how_many", "efficiency.quadratic")  # in their arguments


# --- how seeds are made -----------------------------------------------------------------------------------------------


def test_a_new_secret_is_one_of_scheme_2_and_never_the_same():
    drawn = {seeds.new_secret() for _ in range(20)}
    assert len(drawn) == 20
    assert {seeds.scheme_of(seed) for seed in drawn} == {2}
    assert len({seed >> 64 for seed in drawn}) == len({seed % 2**32 for seed in drawn}) == 20


def test_every_stage_and_every_call_has_a_seed_of_its_own_that_is_none_of_the_runs():
    stages = {seeds.seed_of_stage(SECRET, each, name) for each in ("a.b", "a.c") for name in ("one", "two")}
    calls = {seeds.seed_of_call(SECRET, each, number) for each in ("a.b", "a.c") for number in range(3)}
    others = {seeds.seed_of_stage(SECRET + 1, "a.b", "one"), seeds.seed_of_call(SECRET + 1, "a.b", 0)}
    drawn = stages | calls | others
    assert len(drawn) == len({seed % 2**32 for seed in drawn}) == 4 + 6 + 2
    assert all(0 <= seed < 2**62 for seed in drawn), "as the stages have always had them"
    assert seeds.seed_of_stage(SECRET, "a.bc", "one") != seeds.seed_of_stage(SECRET, "a.b", "cone")


def test_a_scheme_draws_the_same_for_ever():
    """A run is gone on with, and marked again, by a later version."""
    assert seeds.seed_of_stage(SECRET, "attention.softmax", "one_row") == 4_298_489_375_405_762_253
    assert seeds.seed_of_call(SECRET, "attention.softmax", 0) == 509_933_636_016_658_150


def test_torch_keeps_32_bits_of_a_seed_and_so_each_stage_has_its_own():
    """Someone who has seen a few values can try all of them. With one seed for a run that would tell every case."""
    one, other = (torch.randn(20, generator=generator(seed)) for seed in (OLD, OLD % 2**32))
    assert torch.equal(one, other)


# --- the cases --------------------------------------------------------------------------------------------------------


CASES = {
    "training.get_batch": "afbbfe55acbff54dd1df175efeb50e24529f7f1340130b592aad496f6f260154",
    "heads.how_many": "e4ca46fc2de64203f593542bfb3d5484ac295ae2b8ab17e4fbb65c974fc02d0b",
    "efficiency.quadratic": "6de68bae6cd3240bb3e7b3b05aaaa2f85ace91b7de1da7208d08ae6e6cc6183f",
}


@pytest.mark.parametrize("id", CASES)
def test_an_old_run_goes_on_with_the_cases_that_it_had(id):
    digest = hashlib.sha256()
    for trial in prepare(EXERCISES[id], OLD):
        pack = Packer(strides=True)
        digest.update(json.dumps([pack.value(trial.call.args), pack.value(trial.call.init)]).encode())
        for array in pack.arrays:
            digest.update(array)
    assert digest.hexdigest() == CASES[id], "recorded before runs had schemes"


def test_the_random_numbers_beside_an_answer_are_those_of_check_or_a_hash_of_the_seed():
    for seed in (OLD, SECRET, 7):
        calls = [trial.call.seed for trial in prepare(EXERCISES["attention.softmax"], seed)]
        assert len(set(calls)) == len(EXERCISES["attention.softmax"].stages), "one for each stage"
        assert not any(abs(each - seed) < 2**40 for each in calls)
    assert {trial.call.seed for trial in prepare(EXERCISES["attention.softmax"], PUBLIC_SEED)} == {PUBLIC_SEED}


def numbers_in(told, arrays) -> set[int]:
    """Every whole number in what is sent to a worker: in the text, and in arrays of eight bytes, at any place."""
    found = {*map(int, re.findall(r"\d+", json.dumps(told)))}
    for array in arrays:
        if len(array) % 8 == 0:
            found |= {*torch.frombuffer(bytearray(array), dtype=torch.int64).tolist()} if array else set()
    return found


def near(numbers: set[int], seed: int) -> list[int]:
    return [number for number in numbers if abs(number - seed) < seeds.NEAR]


@pytest.mark.parametrize("id", WITH_SEEDS)
def test_no_call_of_a_run_holds_its_seed_or_that_of_another_stage(id):
    exercise = EXERCISES[id]
    stages = [seeds.seed_of_stage(SECRET, id, each.__name__) for each in exercise.stages]
    for trial in prepare(exercise, SECRET):
        numbers = numbers_in(*pack_call(trial.call))
        assert not near(numbers, SECRET) + near(numbers, SECRET % 2**64), trial.stage
        assert sum(bool(near(numbers, seed)) for seed in stages) <= 1, "what is made for the answer may hold its own"


def test_a_wrong_answer_is_told_no_seed_of_the_run_where_seeds_are_arguments():
    """The sentence of this exercise names a seed that was left out."""
    exercise = EXERCISES["heads.how_many"]
    result = grade(
        exercise.id, lambda make_model, heads, batches, held_out, lr, seeds: dict.fromkeys(heads, 0.0), SECRET
    )
    numbers = {*map(int, re.findall(r"\d+", repr(result)))}
    [number] = {number for number in numbers if number >> 40}
    for stage in exercise.stages:
        assert not near({number}, seeds.seed_of_stage(SECRET, exercise.id, stage.__name__))


def test_what_a_case_holds_is_replaced_wherever_it_holds_a_seed():
    drawn = seeds.seed_of_stage(SECRET, "a.b", "one")
    model = Given(drawn_decoder, {"d_model": 4}, drawn + 1, says="a model")
    rng = generator(drawn)
    case = (rng, [drawn + 5, 12, True, "x"], {"seed": (drawn,)}, model, generator(drawn), None, 2.5)
    told = seeds.without_seed(case, drawn)
    assert told[0].initial_seed() == told[4].initial_seed() != drawn, "equal ones stay equal"
    assert not near({told[0].initial_seed(), told[1][0], told[2]["seed"][0]}, drawn)
    assert told[1][1:] == [12, True, "x"]
    assert told[3] is model, "the case was chosen to fit it"
    assert told[5:] == (None, 2.5)


@pytest.mark.proof
@pytest.mark.parametrize("id", [id for id, each in EXERCISES.entries.items() if each.kind in ("code", "experiment")])
def test_every_stage_draws_from_its_seed_only_and_tells_it_to_no_call(id):
    for stage in EXERCISES[id].stages:
        seed, told = seeds.seed_of_stage(SECRET, id, stage.__name__), []
        for other in (1, 2):  # of the global random numbers
            torch.manual_seed(other)
            pack = Packer(strides=True)
            cases = [seeds.without_seed((case.args, case.init), seed) for case in stage(seed)]
            told.append((json.dumps([pack.value(tuple(map(preparing._told, case))) for case in cases]), pack.arrays))
        assert told[0] == told[1], stage.__name__
        assert '"given"' in told[0][0] or not near(numbers_in(*told[0]), seed), stage.__name__


# --- the probe --------------------------------------------------------------------------------------------------------


NOTHING = dict.fromkeys(("torch.initial_seed()", "the environment", "the state of `random`"), "0 1 2")
LEAKS = {
    "whole": lambda seed: f"[{seed}, 1]",
    "64 bits": lambda seed: str(seed % 2**64),
    "the 32 bits that torch and NumPy keep": lambda seed: f"(1, {seed % 2**32})",
    "in hexadecimal digits": lambda seed: f"id-{seed:x}",
    "the seed of a stage": lambda seed: str(seeds.seed_of_stage(seed, "wall.seed", "everything")),
    "what `random` makes of it": lambda seed: str(random.Random(seed).getstate()),
}


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("seed", [SECRET, OLD])
def test_a_seed_is_found_in_what_was_seen(leak, seed):
    assert probe.told_by({**NOTHING, "the clock": str(time.time_ns())}, seed) == []
    assert probe.told_by({**NOTHING, "its files": LEAKS[leak](seed)}, seed) == ["its files"]


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_a_seed_that_the_clock_tells_is_found(unit):
    now = 1_795_843_021_125_494_357
    seed = now // (10**9 // unit) - 60 * unit
    found = probe.told_by({"the clock": str(now)}, seed)
    assert found == (["the clock"] if seed.bit_length() > probe.GUESSABLE else []), "a small one was chosen by hand"


def refused(worker: Worker, seed: int) -> set[str]:
    """From what the probe says that the seed can be learned."""
    worker.seed = seed
    with pytest.raises(SandboxError, match=r"does not hold here: .*Nothing was graded") as error:
        require_isolation(worker)
    return {*re.findall(r"learns the seed of the run from (.*?)(?:;|\. Nothing)", str(error.value))}


@needs_bwrap
def test_the_probe_sees_a_seed_in_the_environment_the_command_line_and_pythons_hashes(monkeypatch):
    variables = {**sandbox.ENVIRONMENT, "PYTHONHASHSEED": str(OLD % 2**32), "COURSE": f"{OLD:x}"}
    monkeypatch.setattr(sandbox, "ENVIRONMENT", variables)
    monkeypatch.setattr(sandbox, "START", f"{sandbox.START}  # {OLD}")
    with Worker("bwrap", LIMITS, slot=57) as worker:
        assert refused(worker, OLD) == {"the environment", "the command line", "Python's hashes", "/proc"}


@needs_bwrap
def test_the_probe_sees_a_seed_in_every_generator_and_in_what_an_answer_is_given(worker_at, monkeypatch):
    worker = worker_at("bwrap")
    monkeypatch.setattr(worker, "seed", None)
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "seed_of_call", lambda seed, *of: seed)
        assert refused(worker, OLD) == {
            *("torch.initial_seed()", "the state of torch's generator", "the state of `random`"),
            *("the state of `numpy.random`", "the frames that call it"),
        }
    with monkeypatch.context() as patch:
        patch.setattr(preparing, "without_seed", lambda value, seed: value)
        assert refused(worker, SECRET) == {"what it is given", "the frames that call it"}
    assert refused(worker, time.time_ns()) == {"the clock"}


@needs_bwrap
@pytest.mark.parametrize("seed", [SECRET, OLD, 7, 0, -1])
def test_the_probe_finds_no_seed_of_a_run(worker_at, monkeypatch, seed):
    worker = worker_at("bwrap")
    monkeypatch.setattr(worker, "seed", None)
    tried = require_isolation(worker).tried
    monkeypatch.setattr(worker, "seed", seed)
    wall = require_isolation(worker)
    assert (wall.holes, wall.tried) == ((), tried + 12)


# --- a run ------------------------------------------------------------------------------------------------------------


FINDS = """
import gc, os, random, sys
import numpy, torch

def found(*given):
    frame, told = sys._getframe(1), [torch.initial_seed(), os.getpid()]
    while frame is not None:
        told += [getattr(value, "seed", value) for value in frame.f_locals.values()]
        frame = frame.f_back
    told += [value for each in gc.get_objects() if type(each) is dict for value in list(each.values())]
    told += [part.initial_seed() for part in given if isinstance(part, torch.Generator)]
    told += [numpy.random.get_state()[1][0].item(), random.getstate()[1][0]]
    whole = {number for number in told if type(number) is int and number >> 33}
    raise RuntimeError(f"seeds: {torch.initial_seed()} {sorted(whole, reverse=True)[:20]}")

def softmax(x, dim):
    found(x)

def get_batch(ids, batch_size, T, generator):
    found(generator)

def loss_by_heads(make_model, heads, batches, held_out, lr, seeds):
    return dict.fromkeys(heads, 0.0) if len(seeds) > 1 else found(make_model, *seeds)
"""


@needs_bwrap
def test_what_is_handed_out_holds_no_seed_of_the_run_however_an_answer_looks_for_it(tmp_path, capsys):
    (tmp_path / "class" / "eve").mkdir(parents=True)
    (tmp_path / "class" / "eve" / "answers.ipynb").write_text(notebook([("code", FINDS)]), encoding="utf-8")
    out, ids = tmp_path / "out", (EXERCISE, "training.get_batch", "heads.how_many")
    forms = ("--json", "--csv", "--junit", "--gradescope", "--jobs", "1")
    main(["grade", str(tmp_path / "class"), "--out", str(out), "--exercises", *ids, *forms])
    said = "".join(capsys.readouterr())
    told = json.loads((out / journal.RUN).read_text(encoding="utf-8"))
    seed = told["seed"]
    hidden = {seed, seed % 2**64, seed % 2**32}
    for id in ids:
        hidden |= {seeds.seed_of_stage(seed, id, stage.__name__) for stage in EXERCISES[id].stages}
    files = {path.relative_to(out): path.read_text("utf-8") for path in out.rglob("*") if path.is_file()}
    page = next(text for path, text in files.items() if path.parent.name == "learners")
    seen = {*map(int, re.findall(r"seeds: (\d+)", page))}
    assert seen >= {seeds.seed_of_call(seed, id, 0) for id in ids[:2]}, "it did look, and its page says what it saw"
    for path, text in {**files, "the terminal": said}.items():
        numbers = {*map(int, re.findall(r"\d+", text))}
        leaked = [number for number in numbers for each in hidden if abs(number - each) < 100]
        assert bool(leaked) == (str(path) == journal.RUN), path
    assert told["scheme"] == 2
    assert "scheme 2: a keyed hash of the run" in files[next(path for path in files if path.name == "index.html")]


def test_a_run_says_by_which_scheme_it_draws_and_an_old_one_goes_on(monkeypatch, tmp_path):
    pretended = pretend(monkeypatch)
    for seed, scheme in ((None, 2), (OLD, 1)):
        out = tmp_path / str(scheme)
        seed = run(out, seed=seed).seed
        told = json.loads((out / journal.RUN).read_text())
        assert (told["seed"], told["scheme"]) == (seed, scheme)
        assert journal.scheme_told(out).startswith(f"scheme {scheme}")
    del told["scheme"]  # the first versions did not write it
    (out / journal.RUN).write_text(json.dumps(told))
    assert journal.scheme_told(out) == ""
    pretended.seeds.clear()
    assert run(out, submitted("late"), resume=True, seed=None).seed == OLD
    assert pretended.seeds == {OLD}
    assert json.loads((out / journal.RUN).read_text())["scheme"] == 1


@pytest.mark.parametrize(("seed", "scheme"), [(OLD, 3), (OLD, 2), (SECRET, 1), (SECRET, "x")])
def test_a_run_of_a_scheme_that_is_not_known_is_not_gone_on_with(monkeypatch, tmp_path, seed, scheme):
    pretend(monkeypatch)
    run(tmp_path, seed=seed)
    told = json.loads((tmp_path / journal.RUN).read_text())
    (tmp_path / journal.RUN).write_text(json.dumps({**told, "scheme": scheme}))
    with pytest.raises(ValueError, match=rf"draws its cases by scheme {scheme!r}.*go on with the version that began"):
        run(tmp_path, resume=True, seed=None)
