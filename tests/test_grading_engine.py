"""The engine of the graded exercises: nothing that an answer does breaks, hangs or fools it."""

import base64
import builtins
import functools
import io
import json
import math
import os
import pickle
import random
import re
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook
from PIL import Image
from torch import nn

from course_lib import masks
from course_lib.grading import (
    EXERCISES,
    Case,
    Given,
    Misconception,
    Option,
    check,
    fixtures,
    generator,
    grade,
    hint,
    progress,
)
from course_lib.grading.cases import prepare
from course_lib.grading.hint_button import hint_button
from course_lib.grading.judge import call as run
from course_lib.grading.judge import compare as judge
from course_lib.grading.judge import limits, picture
from course_lib.grading.judge.compare import compare
from course_lib.grading.judge.values import Foreign, plain
from course_lib.grading.page import catalogue
from course_lib.grading.result import Progress, Row
from course_lib.live.page import VIEW
from tests.toy_exercise import a_table, declared, two_numbers

ROOT = Path(__file__).parent.parent


def failed(answer, exercise_id="toy.double"):
    """The feedback of an answer that must fail, by check and by grade alike."""
    result = check(exercise_id, answer)
    assert repr(grade(exercise_id, answer, 0)) == repr(result)
    assert not result.passed
    assert result.earned < result.points == 2
    return said(result)


def said(result):
    """The feedback before its lines are broken."""
    return "\n".join((*result.sentences, result.closing, result.case, result.evidence, result.sketch))


# --- right, wrong, named ----------------------------------------------------------------------------------------------


def test_a_right_answer_earns_all_points(toy):
    toy()
    result = grade("toy.double", lambda x: x + x, 5)
    assert (result.passed, result.earned, result.points, result.misconception) == (True, 2, 2, None)


def test_the_first_failing_stage_gives_the_case_that_is_shown(toy):
    toy()
    feedback = failed(lambda x: 2 * x if x.ndim == 1 else x)
    assert "A drawn table." in feedback
    assert "Two numbers." not in feedback
    assert "expected: float32 (3, 4)" in feedback
    assert "first difference at [0, 0]" in feedback


def test_the_smallest_failing_case_of_a_stage_is_shown(toy):
    def large_then_small(seed):
        "Two sizes."
        return [Case(torch.ones(50)), Case(torch.ones(2))]

    toy(stages=[large_then_small])
    assert "x: float32 (2,)" in failed(lambda x: 3 * x)


def test_shape_dtype_and_number_of_parts_are_said_before_values(toy):
    toy()
    assert "Your result has shape (1, 2); expected (2,)." in failed(lambda x: 2 * x[None])
    assert "Your result has dtype float64; expected float32." in failed(lambda x: 2 * x.double())
    assert "should be a tensor of shape (2,); it is a tuple of 2 parts" in failed(lambda x: (x, x))


def test_who_has_a_list_of_tensors_is_told_how_to_make_one_of_them(toy):
    toy()
    assert "`torch.stack` makes one tensor from many." in failed(lambda x: [2 * row for row in x])
    assert "`torch.stack` makes one." in failed(lambda x: torch.tensor([row.expand(2) for row in x]))
    assert "torch.stack" not in failed(lambda x: [1.0, 2.0])


def test_a_misspelt_name_is_told_with_the_name_that_was_meant(toy):
    toy()

    def misspelt(weights):
        return 2 * weigths

    assert "name 'weigths' is not defined" in failed(misspelt)
    assert "Did you mean `weights`?" in failed(misspelt)

    def unheard_of(weights):
        return quux

    assert "Did you mean" not in failed(unheard_of)


def test_a_tuple_is_judged_part_by_part_and_named(toy):
    toy(reference=lambda x: (2 * x, x.sum()), returns=["twice", "total"])
    assert grade("toy.double", lambda x: [2 * x, x.sum()], 0).passed
    assert "`total` has the right shape and dtype; its value is wrong." in failed(lambda x: (2 * x, x.mean()))
    assert "Your result should be (twice, total); it is a tensor of shape (2,)." in failed(lambda x: 2 * x)


def test_a_misconception_is_named_only_if_it_fits_every_case(toy):
    halves = Misconception("halved", lambda x: x / 2, "You halve.")
    toy(misconceptions=[halves])
    assert grade("toy.double", lambda x: x * 0.5, 0).misconception == "halved"
    assert grade("toy.double", lambda x: x * 0.5 if x.ndim == 1 else x, 0).misconception is None


def test_a_misconception_that_raises_is_recognized_by_its_error(toy):
    toy(misconceptions=[Misconception("matrix product", lambda x: x @ torch.ones(9, 9), "That is @.")])
    assert grade("toy.double", lambda x: x.matmul(torch.ones(9, 9)), 0).misconception == "matrix product"
    assert grade("toy.double", lambda x: x + torch.ones(9), 0).misconception is None


def test_another_way_to_the_same_mistake_has_the_same_name(toy):
    toy(misconceptions=[Misconception("halved", lambda x: x / 2, "You halve.", also=[lambda x: x / 2 + 1])])
    assert grade("toy.double", lambda x: x / 2 + 1, 0).misconception == "halved"


def test_grade_draws_its_cases_from_the_seed(toy):
    toy(stages=[a_table])
    seen = []
    for seed in (0, 0, 1):
        grade("toy.double", lambda x: seen.append(x.clone()), seed)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])


def test_check_always_uses_the_same_cases(toy):
    toy(stages=[a_table])
    seen = []
    for _ in range(2):
        check("toy.double", lambda x: seen.append(x.clone()))
    assert torch.equal(*seen)


@pytest.mark.parametrize("function", [lambda name: grade(name, 1, 0), catalogue.get, catalogue.meant])
def test_an_unknown_id_lists_the_nearest(as_a_learner, function):
    with pytest.raises(KeyError, match=r"no exercise 'attention\.sofmax'.*'attention\.softmax'"):
        function("attention.sofmax")
    with pytest.raises(KeyError, match="no exercise None"):
        function(None)


# --- what a tensor may be replaced by ---------------------------------------------------------------------------------


def test_arrays_count_as_tensors_and_lists_of_numbers_do_not(toy):
    toy()
    assert grade("toy.double", lambda x: 2 * x.numpy(), 0).passed
    assert grade("toy.double", lambda x: nn.Parameter(2 * x), 0).passed
    assert grade("toy.double", lambda x: (2 * x).requires_grad_(), 0).passed
    assert grade("toy.double", lambda x: (2 * x).to_sparse(), 0).passed
    assert "it is a list of 2 parts" in failed(lambda x: (2 * x).tolist())
    assert "dtype float64" in failed(lambda x: 2 * x.numpy().astype(float))


def test_a_list_of_ids_counts_as_an_integer_tensor(toy):
    toy(reference=lambda x: x.argsort())
    assert grade("toy.double", lambda x: x.argsort().tolist(), 0).passed
    assert grade("toy.double", lambda x: x.argsort().int(), 0).passed
    assert "dtype float32; expected int64" in failed(lambda x: x.argsort().float())


def test_a_number_may_come_as_tensor_scalar_or_python_number(toy):
    toy(reference=lambda x: float(x.sum()))
    for form in (float, torch.tensor, np.float64, lambda total: np.array([total])):
        assert grade("toy.double", lambda x, form=form: form(x.double().sum().item()), 0).passed
    assert "should be a number; it is True" in failed(lambda x: True)
    assert "should be a number; it is the text '3'" in failed(lambda x: "3")


def test_tolerance_follows_the_dtype():
    one = torch.ones(1, dtype=torch.float64)
    assert judge.compare(one, one + 1e-6) is None
    assert judge.compare(one, one + 3e-5) is not None
    assert judge.compare(one.float(), one.float() + 1e-5) is None
    assert judge.compare(one.float(), one.float() + 1e-2) is not None
    assert judge.compare(one.bfloat16(), one.bfloat16() + 1e-2) is None


@pytest.mark.parametrize("size", [1e-12, 1.0, 1e6])
def test_a_float64_is_measured_by_its_largest_number(size):
    expected = size * torch.tensor([0.0, 1e-3, -1.0, -float("inf")], dtype=torch.float64)
    off = size * torch.tensor([1.0, -1.0, 1.0, 0.0], dtype=torch.float64)
    room = 1e-10 / size  # absolute, for what should be 0
    assert judge.compare(expected, expected + 1e-6 * off) is None
    assert "3 of 4" in judge.compare(expected, expected + (3e-5 + room) * off)
    assert judge.compare(torch.zeros(3, dtype=torch.float64), torch.full((3,), 1e-9, dtype=torch.float64)) is not None


def test_float32_inside_passes_with_a_note_and_a_lost_dtype_does_not(toy):
    def in_double(seed):
        "A float64."
        return [Case(torch.randn(5, generator=generator(seed), dtype=torch.float64))]

    toy(reference=lambda x: x * math.sqrt(2), stages=[two_numbers, in_double])
    for answer in (
        lambda x: x * torch.sqrt(torch.tensor(2.0)),
        lambda x: (x.float() * math.sqrt(2)).type_as(x),
        lambda x: x.numpy() * x.numpy().dtype.type(np.sqrt(np.float32(2))),
    ):
        result = grade("toy.double", answer, 0)
        assert result.passed
        assert "with float64 input, your result does not have all sixteen digits right" in said(result)
    exact = grade("toy.double", lambda x: math.sqrt(2) * x, 0)
    assert exact.passed
    assert "float32" not in exact.feedback
    assert "has dtype float32; expected float64" in failed(lambda x: x.float() * math.sqrt(2))
    assert "values are wrong" in failed(lambda x: (x.half() * math.sqrt(2)).type_as(x))


@pytest.mark.parametrize("wrong", [[1.0, 0.0], [-float("inf"), 1.0], [float("inf"), float("nan")], [1e30, 0.0]])
def test_infinities_must_stand_where_they_belong(wrong):
    expected = torch.tensor([-float("inf"), 0.0])
    assert judge.compare(expected, torch.tensor([-float("inf"), 1e-9])) is None
    assert judge.compare(expected, torch.tensor(wrong)) is not None


# --- answers that misbehave -------------------------------------------------------------------------------------------


def forever(x):
    while True:
        pass


def forever_catching_everything(x):
    while True:
        try:
            x.sum()
        except:  # noqa: E722
            continue


def forever_catching_in_a_loop(x):
    while True:
        try:
            while True:
                time.sleep(0)
        except BaseException:
            continue


def recurse(x):
    return recurse(x)


class Liar:
    """Equal to everything, of every class, with every attribute."""

    __class__ = torch.Tensor
    shape, dtype, device = (2,), torch.float32, torch.device("cpu")

    def __eq__(self, other):
        return True

    def __getattr__(self, name):
        return lambda *args, **kwargs: self

    __hash__ = None


class FalseTensor(torch.Tensor):
    """A tensor that answers every question with yes."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True

    def __eq__(self, other):
        return True


class Unspeakable(Exception):
    def __str__(self):
        raise SystemExit


def raise_(error):
    raise error


MISBEHAVED = {
    "not callable": (3, "The answer should be the function double(x)."),
    "text": ("double", "The answer should be the function double(x)."),
    "None": (None, "The answer should be the function double(x)."),
    "a liar": (Liar(), "The answer should be the function double(x)."),
    "wrong arguments": (lambda: 1, "Your answer cannot be called as double(x): too many positional arguments."),
    "too many arguments": (
        lambda x, y: x,
        "Your answer cannot be called as double(x): missing a required argument: 'y'.",
    ),
    "a class": (type("Double", (), {"__init__": lambda self, x: None}), "it is of type Double"),
    "raises": (lambda x: x + torch.ones(7), "Your function raised RuntimeError: The size of tensor a (2) must match"),
    "raises without a message": (lambda x: raise_(ValueError), "Your function raised ValueError\n"),
    "raises the unspeakable": (lambda x: raise_(Unspeakable()), "Your function raised Unspeakable"),
    "interrupts": (lambda x: raise_(KeyboardInterrupt()), "Your function raised KeyboardInterrupt"),
    "sys.exit": (lambda x: sys.exit(0), "Your function ends the program. Return the result instead."),
    "quit": (lambda x: builtins.quit(), "Your function ends the program. Return the result instead."),
    "exit": (lambda x: builtins.exit(), "Your function ends the program. Return the result instead."),
    "os._exit": (lambda x: os._exit(0), "Your function ends the program. Return the result instead."),
    "os.abort": (lambda x: os.abort(), "Your function ends the program. Return the result instead."),
    "asks for input": (lambda x: input("?"), "there is nobody to answer input()"),
    "returns None": (lambda x: None, "it is None (is there a `return`?)"),
    "returns text": (lambda x: "2x", "it is the text '2x'"),
    "returns an object": (lambda x: object(), "it is of type object"),
    "returns a liar": (lambda x: Liar(), "it is of type Liar"),
    "returns a false tensor": (lambda x: x.as_subclass(FalseTensor), "your function returns `x` unchanged"),
    "returns NaN": (lambda x: x * float("nan"), "Your result contains NaN"),
    "returns another device": (lambda x: x.to("meta"), "Your result is on the device meta; expected cpu"),
    "returns a huge integer": (lambda x: 10**5000, "it is of type huge integer"),
    "returns a list without end": (lambda x: (lambda a: a.append(a) or a)([]), "it is a list of 1 part"),
    "returns an array of objects": (lambda x: np.array([None, x], dtype=object), "array of text or objects"),
    "returns itself": (lambda x: failed, "it is of type function"),
    "is a generator": (lambda x: (y for y in x), "it is of type generator"),
    "changes its input": (lambda x: x.mul_(2), "changes its input `x`. Work on a copy."),
    "changes the shape of its input": (lambda x: (2 * x, x.unsqueeze_(0))[0], "changes its input `x`"),
    "recurses": (recurse, "Your function calls itself without end"),
    "allocates absurdly": (lambda x: torch.ones(10**13), "needs more memory than there is"),
    "allocates in Python": (lambda x: [0] * 10**11, "needs more memory than there is"),
    "allocates in numpy": (lambda x: np.ones(10**13), "needs more memory than there is"),
    "overflows a shape": (lambda x: torch.ones(10**18, 10**18), "Your function"),
    "checks itself": (lambda x: check("toy.double", forever), "it is of type Result"),
}


@pytest.mark.parametrize(("answer", "sentence"), MISBEHAVED.values(), ids=MISBEHAVED)
def test_a_misbehaving_answer_gets_a_plain_sentence(toy, answer, sentence):
    toy()
    assert sentence in failed(answer)


@pytest.mark.parametrize("loop", [forever, forever_catching_everything, forever_catching_in_a_loop])
def test_a_loop_without_end_is_stopped(toy, loop):
    toy(time_limit=0.2)
    before = threading.active_count()
    result = check("toy.double", loop)
    assert "was still running at the limit (0.2 seconds" in said(result)
    assert "and was stopped. Is there a loop that never ends?" in said(result)
    assert threading.active_count() == before


@pytest.mark.parametrize("counted", [True, False])
def test_the_limit_is_told_as_it_is_counted(toy, monkeypatch, counted):
    """Where the system counts what a thread computes, a busy machine makes it longer by the clock: that is said."""
    toy(time_limit=0.2)
    if counted and not limits._COUNTED:
        pytest.skip("this system does not tell what a thread has computed")
    monkeypatch.setattr(limits, "_COUNTED", counted)
    told = said(check("toy.double", forever))
    assert ("0.2 seconds of computing, or 0.6 with waiting" in told) == counted
    assert ("other programs used the processor does not count" in told) == counted
    assert ("at the limit (0.2 seconds) and was stopped" in told) != counted


def test_what_cannot_be_stopped_is_left_behind_with_the_advice_to_restart(toy, monkeypatch):
    toy(time_limit=0.2)
    monkeypatch.setattr(limits, "PATIENCE", 0.2)
    release = threading.Event()
    try:
        result = check("toy.double", lambda x: release.wait())
        assert "could not be stopped: restart the kernel" in said(result)
        assert grade("toy.double", lambda x: 2 * x, 0).passed, "the next check works all the same"
    finally:
        release.set()


def test_ipythons_own_quit_does_not_end_the_kernel(toy):
    from IPython.core.autocall import ExitAutocall, ZMQExitAutocall

    class Shell:
        left = False

        def ask_exit(self):
            self.left = True

    toy()
    for kind in (ExitAutocall, ZMQExitAutocall):
        shell = Shell()
        quit_cell = kind()
        quit_cell.set_ip(shell)
        assert "ends the program" in failed(lambda x, quit_cell=quit_cell: quit_cell())
        assert not shell.left
        quit_cell()
        assert shell.left, "outside of a check it works as ever"


def test_the_doors_are_open_again_afterwards(toy):
    toy()
    before = os._exit, os.abort, builtins.input, builtins.quit, builtins.exit, sys.stdout, sys.stderr
    failed(lambda x: os._exit(0))
    assert (os._exit, os.abort, builtins.input, builtins.quit, builtins.exit, sys.stdout, sys.stderr) == before


def test_an_error_shows_the_line_of_the_learner(toy):
    toy()

    def mine(x):
        y = x[:, None]
        return torch.stack([y, torch.nn.functional.linear(y, torch.ones(5, 9))])

    feedback = failed(mine)
    assert "Your function raised RuntimeError" in feedback
    assert "in mine: return torch.stack([y, torch.nn.functional.linear(y, torch.ones(5, 9))])" in feedback


def test_feedback_holds_no_addresses(toy):
    toy()
    assert "0x" not in failed(lambda x: raise_(ValueError(f"bad {object()}")))


def test_half_an_answer_is_told_from_none(toy):
    toy()

    def half(x):
        if x.ndim > 1:
            raise NotImplementedError
        return 2 * x

    assert "raises NotImplementedError here" in failed(half)
    assert check("toy.double", lambda x: ...).status == "unanswered"


def test_memory_that_was_never_written_is_the_same_garbage_every_time(toy):
    """`torch.empty` holds what was there before: a wrong answer would look right now and then."""
    toy()

    def unfinished(x):
        spoilt = torch.full((1000, 1000), 7.0)
        del spoilt
        return torch.empty_like(x)

    assert "nan" in failed(unfinished)
    mode = torch.get_deterministic_debug_mode()
    torch.use_deterministic_algorithms(True)
    try:
        failed(unfinished)
        assert torch.get_deterministic_debug_mode() == 2, "the notebook's own setting is put back"
    finally:
        torch.set_deterministic_debug_mode(mode)


def test_the_librarys_own_function_is_nobodys_answer(toy, monkeypatch):
    """It is imported to be used, under the name that an answer has: what is open must stay open."""
    toy(reference=lambda T: masks.causal_mask(T), signature="causal_mask(T)", stages=[two_lengths])
    result = check("toy.double", masks.causal_mask)
    assert (result.status, result.earned) == ("unanswered", 0)
    assert "library's own `causal_mask`" in said(result)
    assert check("toy.double", lambda T: masks.causal_mask(T)).passed
    assert check("toy.double", functools.wraps(masks.causal_mask)(lambda T: masks.causal_mask(T))).passed

    def causal_mask(T, kept=masks.causal_mask):
        return kept(T)

    monkeypatch.setattr(masks, "causal_mask", causal_mask)
    assert check("toy.double", causal_mask).passed, "it is the learner's, though the library uses it now"


@pytest.mark.parametrize("field", ["__module__", "__name__"])
def test_names_that_run_code_are_not_asked_whether_they_are_the_librarys(toy, field):
    class Name(str):
        def __hash__(self):
            raise KeyError("caught you")

        startswith = __eq__ = __hash__

    def double(x):
        return 2 * x

    toy()
    double.__module__ = "course_lib.masks"
    setattr(double, field, Name("course_lib.masks"))
    assert check("toy.double", double).passed


def two_lengths(seed):
    "Two lengths."
    return [Case(2), Case(3)]


def test_an_operation_that_torch_lacks_is_no_stub(toy):
    toy()
    assert "Your function raised NotImplementedError: Cannot" in failed(lambda x: x.to_sparse().untyped_storage())


@pytest.mark.filterwarnings("ignore:careful")
def test_printing_a_lot_and_warning_cost_nothing(toy, capfd):
    toy()

    def noisy(x):
        for i in range(10_000):
            print(i, "lines")
        warnings.warn("careful", stacklevel=1)
        print("careful", file=sys.stderr)
        return 2 * x

    assert check("toy.double", noisy).passed
    assert capfd.readouterr() == ("", "")


def test_what_was_printed_is_shown_with_the_failing_case(toy):
    toy()
    assert "printed: halving 1.0" in failed(lambda x: print("halving", x[0].item()) if x.ndim == 1 else 2 * x)


def test_every_answer_meets_the_same_untouched_input(toy):
    toy(misconceptions=[Misconception("spoils", lambda x: x.zero_(), "You spoil x.")])
    assert grade("toy.double", lambda x: x.fill_(0), 0).misconception == "spoils"
    assert "x: float32 (2,)\n  [ 1  -2]" in failed(lambda x: x.zero_() + 1)


def test_an_input_may_change_where_the_exercise_says_so(toy):
    toy(may_change=["x"])
    assert grade("toy.double", lambda x: x.mul_(2), 0).passed


def test_global_state_is_put_back(toy):
    toy()
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    expected = torch.rand(3), np.random.rand(), random.random()
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    threads, recursion, folder = torch.get_num_threads(), sys.getrecursionlimit(), os.getcwd()

    def vandal(x):
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(threads + 1)
        torch.set_grad_enabled(False)
        torch.manual_seed(99), np.random.seed(99), random.seed(99)
        sys.setrecursionlimit(recursion + 7)
        os.chdir("/")
        sys.stdout = None
        return 2 * x

    assert grade("toy.double", vandal, 0).passed
    assert torch.equal(torch.rand(3), expected[0])
    assert (np.random.rand(), random.random()) == expected[1:]
    assert (torch.get_default_dtype(), torch.get_num_threads()) == (torch.float32, threads)
    assert torch.is_grad_enabled()
    assert (sys.getrecursionlimit(), os.getcwd()) == (recursion, folder)
    assert sys.stdout is not None


def test_the_verdict_does_not_depend_on_the_notebooks_own_settings(toy):
    toy(stages=[a_table])
    expected = repr(grade("toy.double", lambda x: x, 4))
    torch.set_default_dtype(torch.float64)
    try:
        with torch.no_grad():
            assert repr(grade("toy.double", lambda x: x, 4)) == expected
            assert not torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_an_answer_computes_with_one_thread_whatever_the_notebook_has(toy):
    toy()
    before, seen = torch.get_num_threads(), []
    torch.set_num_threads(3)
    try:
        assert grade("toy.double", lambda x: seen.append(torch.get_num_threads()) or 2 * x, 0).passed
        assert set(seen) == {1}
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_what_an_answer_alters_in_a_model_that_is_made_shows_in_every_call(toy):
    """Of what is made, the weights are kept to compare with: neither the answer nor an earlier call reaches them."""

    def a_model(seed):
        "A model and ids."
        return [Case(Given(fixtures.drawn_decoder, CONFIG, seed), torch.tensor([[0, 1]]))]

    def meddler(model, ids):
        logits = model(ids)[0]
        with torch.no_grad():
            next(model.parameters()).add_(1)
        return logits

    toy(stages=[a_model], reference=lambda model, ids: model(ids)[0])
    for _ in range(2):
        result = grade("toy.double", meddler, 0)
        assert not result.passed
        assert "changes its input `model`" in said(result)
        assert grade("toy.double", lambda model, ids: model(ids)[0], 0).passed


def test_answers_that_draw_are_given_the_same_random_numbers(toy):
    toy(reference=lambda x: x + torch.rand(x.shape) + float(np.random.rand()) + random.random())
    assert grade("toy.double", lambda x: torch.rand(x.shape) + x + float(np.random.rand()) + random.random(), 0).passed


# --- forbidden operations, probes, judges -----------------------------------------------------------------------------


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # learners' notebooks still have it
    scripted_relu = torch.jit.script(nn.ReLU())


def apart_from_functions(function, x):
    with torch._C.DisableTorchFunction():
        return function(x)


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: torch.mul(x, 2).relu() - (-2 * x).relu(),
        lambda x: nn.ReLU()(2 * x) - torch.relu(-2 * x),
        lambda x: torch.nn.functional.relu(2 * x) - torch.nn.functional.relu(-2 * x),
        lambda x: torch.relu_(2 * x) - torch.ops.aten.relu(-2 * x),
        lambda x: torch.ops.aten.relu.default(2 * x) - torch.ops.aten.relu.default(-2 * x),
        lambda x: apart_from_functions(torch.relu, 2 * x) - apart_from_functions(torch.relu, -2 * x),
        lambda x: scripted_relu(2 * x) - scripted_relu(-2 * x),
        lambda x: nn.Sequential(nn.ReLU())(2 * x) - torch.vmap(torch.relu)(-2 * x),
    ],
)
def test_a_forbidden_operation_is_noticed_in_every_spelling(toy, answer):
    toy(forbidden=["relu"])
    assert "You use torch's own `relu`. Here the point is to do without it." in failed(answer)
    assert grade("toy.double", lambda x: (2 * x).clamp(min=0) + (2 * x).clamp(max=0), 0).passed


def test_a_forbidden_operation_is_noticed_inside_of_others(toy):
    toy(reference=lambda x: x.log_softmax(-1), forbidden=["softmax"])
    n = torch.nn.functional

    def sly(x):
        places = torch.arange(x.shape[-1])
        return torch.stack([-n.cross_entropy(x, place.expand(x.shape[:-1]), reduction="none") for place in places], -1)

    assert "You use torch's own `log_softmax`." in failed(sly)
    assert grade("toy.double", lambda x: x - x.logsumexp(-1, keepdim=True), 0).passed


def test_a_forbidden_operation_cannot_be_hidden_by_catching(toy):
    toy(forbidden=["relu"])

    def sly(x):
        try:
            return x.relu() + x.relu() - 2 * (-x).relu()
        except:  # noqa: E722
            return 2 * x

    assert "`relu`" in failed(sly)


def test_forbidden_operations_stay_allowed_outside(toy):
    toy(forbidden=["relu"])
    grade("toy.double", lambda x: x.relu(), 0)
    assert torch.ones(1).relu() == 1


def test_a_judge_replaces_the_comparison(toy):
    toy(judge=lambda case, expected, got: None if got.sum() > expected.sum() else "Not more.")
    assert grade("toy.double", lambda x: 2 * x + 1, 0).passed
    assert "Not more." in failed(lambda x: x - 100)


def test_a_probe_decides_how_the_answer_is_used(toy):
    toy(probe=lambda answer, x: torch.stack([answer(x), answer(-x)]))
    assert grade("toy.double", lambda x: 2 * x, 0).passed
    assert "first difference at [1" in failed(lambda x: (2 * x).abs() if x[0].sum() < 0 else 2 * x)


def test_an_experiment_leaves_room_for_noise(toy):
    toy(kind="experiment", reference=lambda x: 1.0, rtol=0.1)
    assert grade("toy.double", lambda x: 1.05, 0).passed
    assert "Your result is 1.2; expected 1." in failed(lambda x: 1.2)


# --- classes ----------------------------------------------------------------------------------------------------------


class Affine(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.gain, self.shift = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))

    def forward(self, x):
        return self.gain * x + self.shift


def test_a_class_is_built_given_the_reference_weights_and_called(toy):
    toy(reference=Affine, module=True, signature="Affine(d)", stages=[three_features])

    class Same(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.shift, self.gain = nn.Parameter(torch.zeros(d)), nn.Parameter(torch.ones(d))
            self.register_buffer("seen", torch.zeros(1))

        def forward(self, x):
            return torch.addcmul(self.shift, x, self.gain)

    class Forgets(Affine):
        def forward(self, x):
            return self.gain * x

    class Renamed(nn.Module):
        def __init__(self, d):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(d))

    class Wide(Affine):
        def __init__(self, d):
            super().__init__(2 * d)

    class More(Affine):
        def __init__(self, d):
            super().__init__(d)
            self.more = nn.Parameter(torch.ones(d))

    assert grade("toy.double", Same, 0).passed
    assert "all its values are wrong" in failed(Forgets)
    assert "Your module lacks the parameter gain; it has weight." in failed(Renamed)
    assert "The parameter gain has shape (6,); expected (3,)." in failed(Wide)
    assert "Your module has a parameter that should not be there: more." in failed(More)
    assert "should be the class Affine(d) itself" in failed(Affine(3))
    assert "should be an nn.Module; it is a Plain." in failed(type("Plain", (), {"__init__": lambda self, d: None}))
    assert "Your answer cannot be called as Affine(d)" in failed(type("Empty", (), {}))


def three_features(seed):
    "Three features, in float32 and float64."
    x = torch.randn(2, 3, generator=generator(seed))
    return [Case(x, init=(3,)), Case(x.double(), init=(3,))]


# --- what is no plain data is made where the answer runs --------------------------------------------------------------

CONFIG = {"vocab_size": 5, "d_model": 4, "n_heads": 2, "n_layers": 1, "d_ff": 6, "max_seq_len": 8}


def a_small_model(seed):
    "A small model and some ids."
    return [Case(Given(fixtures.drawn_decoder, CONFIG, seed, says="a model of one block"), torch.tensor([[1, 2, 3]]))]


def logits_of(model, ids):
    return model(ids)


@pytest.fixture
def asks_a_model(toy):
    wrong = Misconception("no model", lambda model, ids: torch.zeros(1, 3, 5), "You do not ask the model.")
    toy(stages=[a_small_model], signature="logits_of(model, ids)", reference=logits_of, misconceptions=[wrong])


def test_every_call_meets_a_model_of_its_own(asks_a_model):
    seen = []

    def spoils_the_next(model, ids):
        seen.append(model)
        logits = model(ids)
        model.embedding = None
        return logits

    for _ in range(2):
        grade("toy.double", spoils_the_next, 0)
    assert len(seen) == 2
    assert seen[0] is not seen[1]
    assert grade("toy.double", logits_of, 0).passed


def test_a_model_that_comes_back_altered_is_noticed(asks_a_model):
    def trains(model, ids):
        logits = model(ids)
        with torch.no_grad():
            next(model.parameters()).add_(1.0)
        return logits

    assert "changes its input `model`. Work on a copy." in failed(trains)


def test_feedback_says_what_the_model_is(asks_a_model):
    assert "model: a model of one block" in failed(lambda model, ids: 2 * model(ids))
    assert grade("toy.double", lambda model, ids: torch.zeros(1, 3, 5), 0).misconception == "no model"


def test_given_tells_itself_by_its_maker_and_travels_by_name():
    made = Given(fixtures.drawn_decoder, CONFIG, {})
    assert repr(made) == "A decoder with weights drawn from a seed, in training mode."
    back = pickle.loads(pickle.dumps(Given(fixtures.drawn_decoder, CONFIG, 3, says="a model")))
    assert (back.make, back.data, repr(back)) == (fixtures.drawn_decoder, (CONFIG, 3), "a model")


def test_given_data_may_hold_another_given(toy):
    def nested(seed):
        "A model in a list."
        return [Case([Given(fixtures.drawn_decoder, CONFIG, seed)], torch.tensor([[0, 1]]))]

    toy(stages=[nested], signature="first(models, ids)", reference=lambda models, ids: models[0](ids))
    assert grade("toy.double", lambda models, ids: models[0](ids), 0).passed
    assert not grade("toy.double", lambda models, ids: ids, 0).passed


# --- the door ---------------------------------------------------------------------------------------------------------


@pytest.mark.proof
def test_a_call_and_its_outcome_travel_to_another_process_and_back(tmp_path):
    """The other process knows neither the catalogue nor a reference: it has an answer, and calls it as it is told."""
    trials = prepare(catalogue.get("attention.softmax"), 3)
    (tmp_path / "calls").write_bytes(pickle.dumps([trial.call for trial in trials]))
    worker = (
        "import pickle, sys, torch\n"
        "from course_lib.grading import fixtures\nfrom course_lib.grading.judge import call as run\n"
        "calls = pickle.load(open('calls', 'rb'))\n"
        "outcomes = run.run(lambda x, dim: x.exp() / x.exp().sum(dim, keepdim=True), calls, 10.0)\n"
        "pickle.dump(outcomes, open('outcomes', 'wb'))\n"
        "answers = ('.exercises', 'grading.page', 'grading.mistakes')\n"
        "assert not [name for name in sys.modules if any(each in name for each in answers)]\n"
    )
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    subprocess.run([sys.executable, "-c", worker], cwd=tmp_path, env=environment, check=True)
    outcomes = pickle.loads((tmp_path / "outcomes").read_bytes())
    assert len(outcomes) == len(trials)
    right = [judge.compare(trial.expected, outcome.value) is None for trial, outcome in zip(trials, outcomes)]
    assert any(right), "small scores come out right without subtracting the maximum"
    assert not all(right), "large ones do not"


def test_an_answer_that_runs_out_of_time_ends_the_list_of_outcomes(toy):
    calls = [trial.call for trial in prepare(toy(), 0)]
    outcomes = run.run(lambda x: x if x.ndim == 1 else forever(x), calls, 0.2)
    assert [outcome.failure and outcome.failure.kind for outcome in outcomes] == [None, "time"]


# --- number, shapes, choice, reflect ----------------------------------------------------------------------------------

MEGA = Misconception("mega", 1.0, "That is in millions.", rtol=0.01)


@pytest.mark.parametrize("right", [1_000_000, 1e6, np.float32(1e6), np.int64(10**6), torch.tensor(10**6)])
def test_a_number_passes_in_any_form(toy, right):
    toy(kind="number", reference=1_000_000)
    assert grade("toy.double", right, 0).passed


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("1,000,000", "Your answer is text. Write the number itself, without quotes or commas."),
        (None, "Your answer should be a number; it is None."),
        (float("nan"), "Your answer is NaN"),
        (float("inf"), "more than ten times too large"),
        (True, "Your answer should be a number; it is True."),
        ([10**6], "Your answer should be a number; it is a list of 1 part."),
        ((30, 512), "Your answer should be a number; it is a tuple of 2 parts. A comma makes a tuple: write 30000"),
        (1j, "Your answer should be a number; it is 1j."),
        (torch.ones(2), "it is a tensor of shape (2,)."),
        (Liar(), "it is of type Liar."),
        (lambda: 10**6, "it is of type function."),
        (1.003, "That is in millions."),
        (999_999, "not 999,999, though it is less than 1% away."),
        (1_999_999.0, "not 1,999,999, though that is the right order of magnitude."),
        (2**900, "not 8.453e+270: that is more than ten times too large."),
        (0, "Your answer is not 0."),
        (-(10**6), "Your answer is not -1,000,000."),
        pytest.param(10**5000, "it is of type huge integer.", id="huge"),
    ],
)
def test_a_wrong_number_gets_a_plain_sentence(toy, answer, sentence):
    toy(kind="number", reference=1_000_000, misconceptions=[MEGA])
    assert sentence in failed(answer)


def test_a_number_may_have_a_tolerance(toy):
    toy(kind="number", reference=10.8, rtol=0.02)
    assert grade("toy.double", 10.9, 0).passed
    assert not grade("toy.double", 11.1, 0).passed


def test_named_numbers_say_which_is_wrong(toy):
    halved = Misconception("halved", {"b": 10}, "b is halved.")
    toy(kind="number", reference={"a": 1, "b": 20}, misconceptions=[halved])
    assert grade("toy.double", {"b": 20, "a": 1}, 0).passed
    assert grade("toy.double", (1, 20), 0).passed
    assert grade("toy.double", {"a": 7, "b": 10}, 0).misconception == "halved"
    assert "`a` is not 2, though" in failed({"a": 2, "b": 20})
    assert "Your answer lacks `b`." in failed({"a": 1})
    assert "Your answer has the key `c`" in failed({"a": 1, "b": 20, "c": 1})
    assert "a dictionary with the keys `a`, `b`; it is 3." in failed(3)
    assert "Expected 2 parts, got 1." in failed([1])


def test_shapes_say_which_entry_is_wrong_and_not_what_is_right(toy):
    swapped = Misconception("swapped", {"scores": (2, 4, 8)}, "Queries and features are swapped.")
    toy(kind="shapes", reference={"q": (2, 8), "scores": (2, 8, 4)}, misconceptions=[swapped])
    assert grade("toy.double", {"q": torch.Size([2, 8]), "scores": [2, 8, 4]}, 0).passed
    assert grade("toy.double", {"q": (1,), "scores": (2, 4, 8)}, 0).misconception == "swapped"
    feedback = failed({"q": (2, 8), "scores": (2, 8, 5)})
    assert "`scores` is not (2, 8, 5): it has the right number of axes, and the wrong size on axis 2." in feedback
    assert "4" not in feedback.replace("(2, 8, 5)", "")
    assert "the number of axes is not 3" in failed({"q": (2, 8, 1), "scores": (2, 8, 4)})
    assert "should be a tuple of whole numbers such as (2, 3); it is the text 'x'" in failed({"q": "x", "scores": ()})


@pytest.mark.parametrize("reference", [(2, 3), [(2, 3), (4,)]])
def test_shapes_may_be_one_or_a_list(toy, reference):
    toy(kind="shapes", reference=reference)
    assert grade("toy.double", reference, 0).passed
    assert not grade("toy.double", (3, 2), 0).passed
    assert not grade("toy.double", None, 0).passed


OPTIONS = [
    Option("a", "the used rows", True, "They were looked up."),
    Option("b", "all rows", False, "Rows that were not looked up do not enter the loss."),
    Option("c", "repeated rows", True, "They are summed."),
    Option("d", "no row", False, "A lookup is differentiable in the table."),
]


@pytest.mark.parametrize("answer", [{"a", "c"}, ["c", "a"], ("a", "c", "a"), frozenset("ca")])
def test_all_right_options_and_no_other_pass(toy, answer):
    toy(kind="choice", options=OPTIONS)
    assert grade("toy.double", answer, 0).passed


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ({"a", "b", "c"}, "Rows that were not looked up do not enter the loss."),
        ("a", "Nothing that you picked is wrong, and 1 right option is missing."),
        ("e", 'There is no option "e". Choose from "a", "b", "c", "d".'),
        (set(), "Answer with the key of an option"),
        (1, "Answer with the key of an option"),
        ({"a": 1}, "Answer with the key of an option"),
        (None, "Answer with the key of an option"),
        (Liar(), "Answer with the key of an option"),
    ],
)
def test_a_wrong_pick_shows_its_reason_and_never_which_is_right(toy, answer, sentence):
    toy(kind="choice", options=OPTIONS)
    feedback = grade("toy.double", answer, 0).feedback
    assert sentence in feedback
    assert "They" not in feedback


def test_a_reflection_is_compared_and_never_wrong(toy):
    toy(kind="reflect", points=0, model_answer="Because.", rubric=["Says why."], min_words=5)
    short = check("toy.double", "too short")
    assert (short.status, short.passed) == ("unanswered", False)
    assert "Because." not in short.feedback
    written = check("toy.double", "now these are five words")
    assert (written.status, written.passed, written.earned) == ("written", True, 0)
    assert "Because." in written.feedback
    assert "Says why." in written.feedback
    assert check("toy.double", None).status == "unanswered"
    assert check("toy.double", Liar()).status == "unanswered"


# --- declarations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"id": "Nonsense"}, "id must read chapter.name"),
        ({"points": 0}, "points=0 must be positive"),
        ({"difficulty": 6}, "difficulty=6 must be 1, 2, 3, 4 or 5"),
        ({"minutes": 0}, "minutes=0 must be positive"),
        ({"hints": []}, "hints must be a list"),
        ({"title": ""}, "title is missing"),
        ({"stages": []}, "stages is empty"),
        ({"stages": [lambda seed: []]}, "every stage needs a docstring"),
        ({"reference": 3}, "reference must be a function"),
        ({"signature": ""}, "signature is missing"),
        ({"misconceptions": [MEGA]}, "every misconception must be callable"),
        ({"kind": "experiment"}, "an experiment needs rtol or judge"),
        ({"kind": "number"}, "reference is missing"),
        ({"kind": "number", "reference": {"a": 1}, "misconceptions": [MEGA]}, "keys of the reference"),
        ({"kind": "choice", "options": OPTIONS[:1]}, "a right one and a wrong one"),
        ({"kind": "choice", "options": [*OPTIONS, OPTIONS[0]]}, "option keys must differ"),
        ({"kind": "reflect"}, "a reflect exercise has no points"),
        ({"kind": "reflect", "points": 0}, "needs model_answer and rubric"),
        ({"kind": "number", "reference": 1, "misconceptions": [MEGA, MEGA]}, "names of misconceptions must differ"),
        ({"kind": "number", "reference": 1, "misconceptions": [replace(MEGA, hint=4)]}, "misconceptions name hints"),
    ],
)
def test_a_faulty_declaration_is_refused_with_the_field_named(fields, problem):
    with pytest.raises(ValueError, match=problem):
        declared(**fields)


# --- plain data -------------------------------------------------------------------------------------------------------


def test_plain_data_keeps_no_door_to_the_answer():
    shared = torch.ones(2, requires_grad=True)
    copy = plain({"a": [shared, np.float32(2.5)]})
    with torch.no_grad():
        shared.zero_()
    assert copy["a"][0].tolist() == [1, 1]
    assert not copy["a"][0].requires_grad
    assert copy["a"][1] == 2.5
    assert plain(lambda: 1) == Foreign("function")
    assert type(plain(FalseTensor([1.0]))) is torch.Tensor


# --- display ----------------------------------------------------------------------------------------------------------


def test_a_result_says_in_words_and_signs_what_its_colour_says(toy):
    toy()
    right, wrong = check("toy.double", lambda x: 2 * x), check("toy.double", lambda x: x)
    for text in (repr(right), right._repr_html_()):
        assert "✓ Passed" in text
        assert "2 of 2 points" in text
    for text in (repr(wrong), wrong._repr_html_()):
        assert "✗ Not yet" in text
        assert "0 of 2 points" in text
    assert "○ Not answered yet" in repr(check("toy.double", ...))


def test_html_is_escaped(toy):
    toy(title="<b>bold</b>")
    html = check("toy.double", lambda x: raise_(ValueError("<script>alert(1)</script>")))._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "<b>bold</b>" not in html


def test_a_result_is_the_same_however_often_it_is_asked_for(toy):
    toy()
    first, second = (check("toy.double", lambda x: x) for _ in range(2))
    assert repr(first) == repr(second)
    assert first._repr_html_() == second._repr_html_()


def test_large_tensors_are_summed_up_and_small_ones_printed(toy):
    def much(seed):
        "Much."
        return [Case(torch.arange(1000.0))]

    toy(stages=[much])
    feedback = failed(lambda x: torch.where(x > 700, 0.0, 2 * x))
    assert "x: float32 (1000,), from 0 to 999" in feedback
    assert "first difference at [701]: expected 1402, got 0" in feedback
    assert "299 of 1,000 values are wrong" in feedback


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (-0.672111, -0.672149),
        (1234.5678, 1234.5679),
        (25.0, 25.0000001),
        (3, 3.0000001),
        (0.1, 0.1 + 2**-50),
        (1e-9, 1.00001e-9),
        (2_000_000.5, 2_000_000.25),
    ],
)
@pytest.mark.parametrize("form", [lambda x: x, lambda x: torch.tensor([x, 1.0], dtype=torch.float64)])
def test_numbers_that_differ_are_never_shown_as_equal(toy, expected, got, form):
    toy(reference=lambda x: form(expected), stages=[two_numbers], rtol=0.0, atol=0.0)
    feedback = failed(lambda x: form(got))
    pairs = [
        re.findall(pattern, feedback)
        for pattern in (r"expected ([-\d.e+,]+), got ([-\d.e+,]+)", r"is ([-\d.e+,]+); expected ([-\d.e+,]+)\.\n")
    ]
    pairs = [pair for found in pairs for pair in found]
    assert pairs
    assert all(one != other for one, other in pairs), feedback
    lines = dict(re.findall(r"^ *(expected|got): ((?:.|\n  )+?)$(?!\n  )", feedback, re.MULTILINE))
    assert lines["expected"] != lines["got"], feedback


def test_numbers_that_differ_by_much_keep_four_digits(toy):
    toy(reference=lambda x: x / 3)
    assert "first difference at [0]: expected 0.3333, got 0.5" in failed(lambda x: x / 2)


# --- target against yours ---------------------------------------------------------------------------------------------


def pixels_in(html):
    """Every picture of a page: (its words, its pixels (height, width, 3))."""
    found = []
    for words, code in re.findall(r'<img alt="([^"]+)"[^>]* src="data:image/png;base64,([^"]+)">', html):
        image = Image.open(io.BytesIO(base64.b64decode(code)))
        found.append((words, torch.from_numpy(np.array(image.convert("RGB"))).int()))
    return found


def cell(pixels, shape, row, column):
    height, width = pixels.shape[0] // shape[0], pixels.shape[1] // shape[1]
    return pixels[row * height : (row + 1) * height, column * width : (column + 1) * width]


def test_matrices_are_shown_side_by_side_and_what_differs_is_outlined():
    expected = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    got = expected.clone()
    got[1, 0] = 0.0
    (words, left), (other_words, right) = pixels_in(picture.as_html(expected, got))
    assert left.shape == right.shape == (2 * 28, 3 * 28, 3)
    assert "expected 2 × 3" in words
    assert "1 entry of 6 differ, the first at [1, 0]" in other_words
    grey = [float(cell(left, (2, 3), *place)[14, 14].sum()) for place in np.ndindex(2, 3)]
    assert grey == sorted(grey, reverse=True), "larger is darker, in colour and in grey"
    for row, column in np.ndindex(2, 3):
        edge = cell(right, (2, 3), row, column)[:2, 5].sum(-1).tolist()
        outlined = edge == [3 * 255, 0]
        assert outlined == ((row, column) == (1, 0)), "white outside, black inside: seen on light and on dark cells"


def test_the_picture_of_more_axes_is_the_first_slice_that_differs():
    expected = torch.zeros(2, 3, 4, 5)
    got = expected.clone()
    got[1, 2, 3, 4] = 1.0
    html = picture.as_html(expected, got)
    assert "slice [1, 2]" in html
    assert "slice [1, 2]" in picture.as_text(expected, got)
    assert pixels_in(html)[0][1].shape == (4 * 28, 5 * 28, 3)


def test_nan_and_infinities_are_crossed():
    expected = torch.tensor([[0.0, 1.0], [2.0, -float("inf")]])
    html = picture.as_html(expected, torch.tensor([[float("nan"), 1.0], [2.0, -float("inf")]]))
    assert "A cross: NaN or infinite." in html
    _, right = pixels_in(html)[1]
    diagonal = [cell(right, (2, 2), *place)[5, 5].sum() == 0 for place in np.ndindex(2, 2)]
    assert diagonal == [True, False, False, True]


def test_the_largest_matrix_stays_a_small_page_and_larger_ones_have_no_picture():
    expected = torch.randn(64, 64)
    html = picture.as_html(expected, torch.where(expected > 0, expected, 0.0))
    assert len(html) < 100_000
    assert len(pixels_in(html)) == 2
    assert picture.as_html(torch.zeros(65, 2), torch.ones(65, 2)) == ""


@pytest.mark.parametrize(
    "other", [None, 3, torch.zeros(2), torch.zeros(2, 3), torch.zeros(3, 2), torch.zeros(2, 3) + 1j]
)
def test_what_is_no_pair_of_different_matrices_has_no_picture(other):
    assert picture.as_html(torch.zeros(2, 3), other) == ""
    assert picture.as_text(torch.zeros(2, 3), other) == ""


def test_a_terminal_shows_the_same_in_signs(toy):
    toy(stages=[a_table])
    result = check("toy.double", lambda x: torch.where(torch.arange(4) == 2, x, 2 * x))
    assert result.feedback.count("  · · ✗ ·") == 3
    assert "✗ ·" not in result._repr_html_(), "there the picture shows it"
    assert len(pixels_in(result._repr_html_())) == 2


def test_the_verdict_and_what_to_do_next_stand_before_the_case(toy):
    toy(stages=[a_table])
    result = check("toy.double", lambda x: 3 * x)
    for text in (result.feedback, result._repr_html_()):
        order = ("values are wrong", "Stuck?", "The case", "expected", "first difference")
        places = [text.index(part) for part in order]
        assert places == sorted(places)


def test_a_long_case_is_folded_below_its_sentence_and_a_short_one_is_open(toy):
    toy(stages=[two_numbers, a_table])
    short, long = (check("toy.double", answer)._repr_html_() for answer in (lambda x: 3 * x, only_numbers))
    assert "<details open" in short
    assert "<details style" in long
    assert "<summary" in long.partition("The case (stage 2)")[0]
    folded = long.partition("<details")[2].partition("</details>")[0]
    assert "first difference" in folded
    assert "<figure" in folded


def only_numbers(x):
    return 2 * x if x.ndim == 1 else 3 * x


# --- the next hint on a button ----------------------------------------------------------------------------------------


def test_the_button_gives_one_hint_after_the_other_and_counts_them(toy):
    exercise = toy()
    hint("toy.double")
    button, place = hint_button(exercise).children
    assert place.value == ""
    button.click()
    assert "Hint 2 of 3" in place.value
    assert button.description == "Next hint (1 left)"
    button.click()
    assert "Hint 3 of 3" in place.value
    assert exercise.hints[1] in place.value, "the one before stays"
    assert button.disabled
    assert hint("toy.double").number == 3


def test_feedback_in_a_notebook_stays_without_its_button(tmp_path):
    """The verdict is an output of its own: text and HTML that need no kernel. The button follows where it may help."""
    cells = [
        "from course_lib.grading import check, hint_button",
        "make, boxes = hint_button.hint_button, []\n"
        "hint_button.hint_button = lambda exercise: boxes.append(make(exercise)) or boxes[-1]",
        'check("attention.memory", 2048 * 2048)',
        'check("attention.memory", 2048 * 2048 * 4)',
        "boxes[0].children[0].click()",
    ]
    notebook = new_notebook(cells=[new_code_cell(source) for source in cells])
    NotebookClient(notebook, resources={"metadata": {"path": str(ROOT)}}).execute()
    wrong, right = ([set(output.data) for output in cell.outputs] for cell in notebook.cells[2:4])
    assert wrong == [{"text/plain", "text/html"}, {"text/plain", "text/html"}, {VIEW}]
    assert right == [{"text/plain", "text/html"}]
    feedback, below, _ = (output.data for output in notebook.cells[2].outputs)
    assert feedback["text/plain"].startswith("✗ Not yet · attention.memory")
    assert below["text/plain"] == ""
    assert "Hint 1 of" in below["text/html"], "a hint that was taken stays on the page, too"
    assert "Next hint" not in below["text/html"], "of a button that cannot be pressed there is no trace"


# --- progress ---------------------------------------------------------------------------------------------------------


def test_progress_is_grouped_by_chapter_and_opens_what_was_begun(toy):
    toy()
    last = ["passed"] * 8 + ["failed"] + [""] * 84
    rows = tuple(
        Row(f"part.number_{i}", i // 6, f"Title {i}", 2, 2 * (word == "passed"), int(word != ""), word)
        for i, word in enumerate(last)
    )
    shown = Progress(rows, {0: "The first", 1: "The second"})
    text, html = repr(shown), shown._repr_html_()
    assert "16 of 186 points" in text
    assert "0 · The first" in text
    assert all(row.exercise_id.partition(".")[2] in text for row in rows)
    assert len(text.splitlines()) < 50, "a chapter that was not begun takes two lines"
    assert html.count("<details") == 16
    assert html.count("<details open") == 1, "begun and not finished: the second"
    assert all(row.exercise_id in html and row.title in html for row in rows)


@pytest.mark.parametrize("folder", ["notebooks", "exercises"])
def test_progress_leads_to_each_exercise_from_wherever_the_notebook_stands(folder, monkeypatch):
    monkeypatch.chdir(ROOT / folder)
    links = re.findall(r'href="([^"#]+)#([^"]+)"', progress()._repr_html_())
    assert len(links) == len(EXERCISES)
    for page in sorted({page for page, _ in links}):
        cells = json.loads(Path(page).read_text("utf-8"))["cells"]
        begins = {f"cell-id={cell['id']}" for cell in cells if "".join(cell["source"]).startswith("## ")}
        assert {to for where, to in links if where == page} <= begins


def test_progress_without_notebooks_has_no_links(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "href" not in progress()._repr_html_()


def test_a_float32_is_as_exact_as_the_largest_number_beside_it():
    expected = torch.tensor([1000.0, 0.0])
    assert compare(expected, expected + torch.tensor([0.0, 1e-3])) is None
    assert compare(expected, expected + torch.tensor([0.0, 1e-2])) is not None
    assert compare(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 1e-5])) is not None
    assert compare(expected.double(), expected.double() + 1e-1) is not None
    assert compare(expected, expected + torch.tensor([0.0, 1e-3]), rtol=0.0, atol=1e-6) is not None


@pytest.mark.parametrize("expected", [math.inf, -math.inf])
def test_an_infinity_is_met_by_itself_alone(expected):
    """A share of it is infinite, too: within that, every number would be near."""
    for wrong in (0.0, 3, -1e300, -expected, math.nan, torch.tensor(1.0)):
        assert compare(expected, wrong)
        assert compare((1.0, expected), (1.0, wrong))
        assert compare(wrong if not isinstance(wrong, torch.Tensor) else 1.0, expected)
    assert compare(expected, expected) is None
    assert compare(expected, torch.tensor(expected)) is None
