"""Nothing that is said of an answer is untrue of it: of two mistakes, of types, of what is returned without work."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from course_lib.grading import EXERCISES, grade, mine
from course_lib.grading.engine import ready_trials
from course_lib.grading.exercise import Given
from course_lib.grading.judge.compare import compare
from course_lib.grading.judge.show import show
from course_lib.grading.pairs import in_company
from course_lib.live import explore, guess, reveal

CALLED = [exercise for exercise in EXERCISES.values() if exercise.kind in ("code", "experiment")]
# "… is right", unless it says for what, or only of the part that has the mistake; and a word of praise for a part.
PRAISE = re.compile(r"(?<!This part )\b(?:is|are) (?:right|correct)\b(?! (?:only|if|for|at|until|without|where|as)\b)")
PRAISED = re.compile(r"\bthe right (?:tokens|logits|units|order)\b|\brightly\b|\bis what it should be\b")


# --- two mistakes at once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exercise", CALLED, ids=lambda each: each.id)
def test_beside_a_second_mistake_no_sentence_of_a_page_calls_anything_right(exercise):
    for mistake in exercise.misconceptions:
        said = in_company(mistake.sentence)
        assert not PRAISE.search(said.replace("not right", "")), said
        assert not PRAISED.search(said), said
        assert said[0] == mistake.sentence[0] or said[0].isupper() or said[0] == "`", said
        assert len(said.split()) >= 3, said


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("The mask is right. You keep too many keys.", "You keep too many keys."),
        ("The output is right. But `x` is lost.", "`x` is lost."),
        ("Your norm is right, and the gradients are too long.", "The gradients are too long."),
        ("The entries are right; the shape (B, S) is not.", "The shape (B, S) is not right."),
        ("The size is right, the unit is not: that is in GB.", "The unit is not right: that is in GB."),
        ("You apply it here, which is right, and there as well.", "You apply it here and there as well."),
        ("`a` is right, and so is `b`. But `b` wrote into x.", "`b` wrote into x."),
        ("Right for small scores, but exp overflows.", "This part is right for small scores, but exp overflows."),
        ("That is right only if there is one.", "That is right only if there is one."),
    ],
)  # fmt: skip
def test_what_is_dropped_leaves_whole_sentences(text, left):
    assert in_company(text) == left


def test_a_pair_is_told_without_the_sentence_that_the_rest_is_right():
    """The mask is wrong as well: each query sees one key too many."""

    def sliding(T, S, window):
        queries, keys = torch.arange(S - T, S)[:, None], torch.arange(S)
        return (keys <= queries) & (keys >= queries - window), S

    result = grade("efficiency.sliding_window", sliding, 0)
    assert len(result.mistakes) == 2
    assert "is right" not in result.feedback


@pytest.mark.parametrize(
    ("exercise_id", "answer", "said"),
    [
        ("attention.softmax", lambda x, dim: x, "In every case your function returns `x` unchanged."),
        ("heads.merge", lambda x: x.clone(), "In every case your function returns `x` unchanged."),
        ("sampling.top_p", lambda logits, p: logits, "In every case your function returns `logits` unchanged."),
        ("counting.flops", lambda *of: 0, "In every case your function returns 0, whatever the input."),
    ],
)
def test_an_answer_without_work_is_described_and_no_pair_of_mistakes_is_named(exercise_id, answer, said):
    result = grade(exercise_id, answer, 0)
    assert result.sentences[0] == said
    assert result.misconception is None
    assert ", the result of" not in result.evidence


def test_a_mistake_of_the_page_that_returns_its_input_keeps_its_name():
    assert grade("positions.rotary", lambda x, positions, base=10_000.0: x, 0).misconception == "not rotated"


def test_something_else_is_wrong_only_where_another_part_fails_or_the_same_in_another_way():
    """The scale is right in float64 as well; q is wrong there by its dtype, as everywhere."""

    def quantize(weight):
        q, scale = EXERCISES["efficiency.quantize"].reference(weight)
        return q.float(), scale

    result = grade("efficiency.quantize", quantize, 0)
    assert result.mistakes == ["q in float32"]
    assert "Something else" not in result.feedback


# --- what stands in place of a result ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expected", "got", "names", "said"),
    [
        ([], 0, (), "Your result should be an empty list; it is 0."),
        ([1, 2], frozenset({1}), (), "Your result should be a list of 2 parts; it is a set."),
        (("a", 0.5), (None, None), ("name", "largest"), "`name` should be the text 'a'; it is None."),
        ((1.0, 0.5), (1.0, None), ("name", "largest"), "`largest` should be a number; it is None."),
        (1.0, None, (), "Your result should be a number; it is None (is there a `return`?)."),
        ({"a": 1}, [], (), "Your result should be a dictionary; it is an empty list."),
        ((1, 2), [1], (), "Your result should be a tuple of 2 parts; it has 1 part."),
    ],
)
def test_a_result_of_another_kind_is_told_in_a_whole_sentence(expected, got, names, said):
    assert compare(expected, got, names=names) == said


def test_an_argument_that_was_changed_is_named():
    def gather(fetch, exercises, library):
        for name in exercises:
            library[name] = "mine"
        return library, []

    feedback = grade("your_gpt.parts", gather, 0).feedback
    assert "Your function changes its argument `library`. Work on a copy." in feedback
    assert "the text 'changed'" not in feedback


# --- types ------------------------------------------------------------------------------------------------------------


def in_numpy(x, dim):
    e = np.exp(x.numpy() - x.numpy().max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


@pytest.mark.parametrize(
    ("exercise_id", "answer", "said"),
    [
        ("attention.softmax", in_numpy, "You return a NumPy array instead of a tensor. Your answer counts."),
        (
            "training.learning_rate",
            lambda *of: torch.tensor(EXERCISES["training.learning_rate"].reference(*of)),
            "You return a tensor instead of a number. Your answer counts.",
        ),
        (
            "embeddings.nearest",
            lambda *of: EXERCISES["embeddings.nearest"].reference(*of).tolist(),
            "You return a list instead of a tensor. Your answer counts.",
        ),
    ],
)
def test_what_counts_though_another_type_is_asked_for_is_said_once(exercise_id, answer, said):
    result = grade(exercise_id, answer, 0)
    assert result.passed
    assert result.earned == result.points
    assert result.feedback.count("Your answer counts.") == 1
    assert said in result.feedback


def test_of_the_type_that_is_asked_for_nothing_is_said():
    for exercise_id in ("attention.softmax", "training.learning_rate", "embeddings.nearest", "training.clip"):
        result = grade(exercise_id, EXERCISES[exercise_id].reference, 0)
        assert "Your answer counts" not in result.feedback


def test_a_loss_without_a_gradient_is_refused_and_no_mistake_is_named():
    def loss(logits, targets, ignore_index=-100):
        return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=ignore_index).item()

    result = grade("training.cross_entropy", loss, 0)
    assert (result.passed, result.misconception) == (False, None)
    assert result.sentences[0].endswith("Return a tensor of shape (): a number has no gradient.")


# --- dtypes -----------------------------------------------------------------------------------------------------------


def test_a_case_says_of_a_module_in_float64_that_it_is():
    shown = {show(each) for trial in ready_trials(EXERCISES["pretrained.lora"], 0) for each in trial.case.init}
    assert "nn.Linear(6, 5, dtype=torch.float64)" in shown
    assert any(re.fullmatch(r"nn\.Linear\(\d+, \d+\)", each) for each in shown), "float32 is usual"
    assert show(torch.nn.Linear(2, 3).double()) == "(a Linear, in float64)"
    assert show(Given(torch.nn.Identity, says="a layer in float64")) == "a layer in float64"


# --- ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "said"),
    [
        (lambda: mine(["a"]), TypeError, 'Which exercise? Write its id in quotes, as in mine("'),
        (lambda: mine(), TypeError, "Which exercise?"),
        (lambda: mine("attention.softmaxx"), KeyError, "There is no exercise 'attention.softmaxx'. Did you mean"),
        (lambda: mine("heads.parameters"), ValueError, "heads.parameters does not ask for a function"),
        (lambda: guess("attention.sharpnes"), KeyError, "There is no guess 'attention.sharpnes': did you mean"),
        (lambda: reveal("attention.sharpnes"), KeyError, "There is no guess 'attention.sharpnes': did you mean"),
        (lambda: guess(3), TypeError, "Which guess? Write its id in quotes"),
        (lambda: explore("x.y", abs), KeyError, "No live figure belongs to 'x.y'; these exercises have one:"),
    ],
)
def test_a_wrong_id_is_answered_in_a_sentence_which_a_program_can_catch(call, kind, said):
    with pytest.raises(kind) as raised:
        call()
    (shown,) = raised.value._render_traceback_()  # what IPython shows in place of a traceback
    assert shown == str(raised.value)
    assert shown.startswith(said)
    assert shown.endswith((".", "?"))
