"""The catalogue proves itself: references pass, every misconception fails and is named, no hint tells the answer.

Generic over all exercises: a chapter's author adds a module to `course_lib/grading/catalogue` and its ids to IDS below.
The last line of a run says how many misconceptions there are and how many of them fail as they should.
"""

import inspect
import math
import re
from collections.abc import Mapping

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from course_lib import attention as library
from course_lib.grading import EXERCISES, grade
from course_lib.grading.engine import PUBLIC_SEED

SEEDS = (PUBLIC_SEED, 1, 20_26)

IDS = {  # chapter: the exercises it must have, with their kinds; it may have more
    "embeddings": {
        "lookup": "code",
        "one_hot": "code",
        "nearest": "code",
        "analogy": "code",
        "parameters": "number",
        "gradient_rows": "choice",
    },
    "attention": {
        "softmax": "code",
        "scaled_dot_product": "code",
        "worked_example": "code",
        "score_variance": "experiment",
        "saturation": "code",
        "why_scale": "reflect",
        "memory": "number",
        "who_is_it": "code",
    },
    "counting": {
        "gpt2": "number",
        "bert_layer": "number",
        "bert": "number",
        "llama7b": "number",
        "transformer_512": "number",
        "function": "code",
        "memory": "code",
        "flops": "code",
    },
    "sampling": {
        "temperature": "code",
        "top_k": "code",
        "top_p": "code",
        "next_token": "code",
        "generate": "code",
        "compare": "experiment",
    },
}

ALL = list(EXERCISES.values())
CALLED = [exercise for exercise in ALL if exercise.kind in ("code", "experiment")]
GRADED = [exercise for exercise in ALL if exercise.points]
WRONG = [
    pytest.param(exercise, misconception, id=f"{exercise.id}: {misconception.name}")
    for exercise in ALL
    for misconception in exercise.misconceptions
]
WRONG_OPTIONS = [
    pytest.param(exercise, option, id=f"{exercise.id}: {option.key}")
    for exercise in ALL
    for option in exercise.options
    if not option.right
]


def each(exercises):
    return pytest.mark.parametrize("exercise", exercises, ids=[exercise.id for exercise in exercises])


def right_answer(exercise):
    if exercise.kind == "choice":
        return {option.key for option in exercise.options if option.right}
    return "words " * exercise.min_words if exercise.kind == "reflect" else exercise.reference


def complete(exercise, wrong):
    """A misconception's answer in full: the parts that it does not name are right."""
    named = isinstance(exercise.reference, Mapping) and isinstance(wrong, Mapping)
    return {**exercise.reference, **wrong} if named else wrong


# --- the catalogue ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chapter", IDS)
def test_the_catalogue_holds_every_exercise_of_the_built_chapters(chapter):
    found = {exercise.id.partition(".")[2]: exercise.kind for exercise in ALL if exercise.id.startswith(f"{chapter}.")}
    assert {name: found.get(name) for name in IDS[chapter]} == IDS[chapter]


def test_exercises_come_in_chapter_order():
    chapters = [exercise.chapter for exercise in ALL]
    assert chapters == sorted(chapters)


@each(ALL)
def test_enough_hints_and_misconceptions_to_learn_from(exercise):
    assert len(exercise.hints) >= 3
    assert exercise.why
    least = {"code": 4, "experiment": 2, "number": 2, "shapes": 2, "choice": 0, "reflect": 0}[exercise.kind]
    assert len(exercise.misconceptions) >= least


@each(ALL)
def test_prose_keeps_the_house_style(exercise):
    prose = [exercise.title, exercise.why, exercise.model_answer, *exercise.hints, *exercise.rubric]
    prose += [misconception.sentence for misconception in exercise.misconceptions]
    prose += [option.why for option in exercise.options] + [stage.__doc__ for stage in exercise.stages]
    for text in prose:
        assert not re.search(r"\b(simply|obviously|just|trivial(ly)?|of course)\b|!(?!=)", text, re.IGNORECASE), text


@each(GRADED)
def test_no_hint_gives_the_answer_away(exercise):
    hints = squeezed(" ".join(exercise.hints))
    for secret in secrets(exercise):
        assert squeezed(secret) not in hints, f"a hint of {exercise.id} contains {secret!r}"


def squeezed(text):
    return re.sub(r"[\s,_`]", "", text)


def secrets(exercise):
    """What must not stand in a hint: the figures, the shapes, the right options, any telling line of the reference."""
    if exercise.kind == "choice":
        return [option.text for option in exercise.options if option.right]
    if exercise.kind in ("number", "shapes"):
        values = exercise.reference.values() if isinstance(exercise.reference, Mapping) else [exercise.reference]
        return [str(value) for value in values if len(str(value)) > 1]
    lines = [line.split("#")[0].strip() for line in inspect.getsource(exercise.reference).splitlines()]
    lines = [line.removeprefix("return ") for line in lines if not line.startswith(("def ", "class ", '"""'))]
    return [line for line in lines if len(line) > 12]


# --- right and wrong --------------------------------------------------------------------------------------------------


@each(ALL)
def test_the_reference_passes_with_full_points(exercise):
    for seed in SEEDS:
        result = grade(exercise.id, right_answer(exercise), seed)
        assert result.passed, f"seed {seed}: {result}"
        assert result.earned == exercise.points


@pytest.mark.parametrize(("exercise", "misconception"), WRONG)
def test_misconception_fails_and_is_named(exercise, misconception):
    tries = [(misconception.wrong, seed) for seed in SEEDS] + [(wrong, PUBLIC_SEED) for wrong in misconception.also]
    for number, (wrong, seed) in enumerate(tries):
        result = grade(exercise.id, complete(exercise, wrong), seed)
        where = f"try {number}, seed {seed}"
        assert not result.passed, f"{where}: this wrong answer passes"
        assert result.earned == 0
        assert result.misconception == misconception.name, f"{where}: {result}"
        assert misconception.sentence in result.feedback


@pytest.mark.parametrize(("exercise", "option"), WRONG_OPTIONS)
def test_wrong_option_gives_its_own_reason_and_no_other(exercise, option):
    result = grade(exercise.id, option.key, PUBLIC_SEED)
    assert not result.passed
    assert result.misconception == option.text
    assert option.why in result.feedback
    assert not any(other.why in result.feedback for other in exercise.options if other is not option)


@each(CALLED)
def test_the_untouched_stub_is_not_answered_yet(exercise):
    def stub(*args, **kwargs):
        raise NotImplementedError

    class Stub:
        def __init__(self, *args, **kwargs):
            raise NotImplementedError

    result = grade(exercise.id, Stub if exercise.module else stub, PUBLIC_SEED)
    assert (result.status, result.earned, result.passed) == ("unanswered", 0, False)


@each(ALL)
def test_dots_are_not_answered_yet(exercise):
    assert grade(exercise.id, ..., PUBLIC_SEED).status == "unanswered"
    if isinstance(exercise.reference, Mapping):
        started = dict(exercise.reference) | {next(iter(exercise.reference)): ...}
        assert grade(exercise.id, started, PUBLIC_SEED).status == "unanswered"


@each(CALLED)
def test_returning_nothing_fails(exercise):
    result = grade(exercise.id, (lambda *args: None) if not exercise.module else type("Empty", (), {}), PUBLIC_SEED)
    assert result.status == "failed"


@each(CALLED)
def test_the_verdict_is_the_same_every_time(exercise):
    wrong = exercise.misconceptions[0].wrong
    assert repr(grade(exercise.id, wrong, 3)) == repr(grade(exercise.id, wrong, 3))


# --- right answers in other styles ------------------------------------------------------------------------------------


def softmax_by_log(x, dim):
    return (x - x.logsumexp(dim, keepdim=True)).exp()


def softmax_by_rows(x, dim):
    out = x.movedim(dim, -1).clone(memory_format=torch.contiguous_format)
    for row in out.view(-1, out.shape[-1]).split(1):
        row -= row.max()
        row.exp_()
        row /= row.sum()
    return out.movedim(-1, dim)


def softmax_in_numpy(x, dim):
    e = np.exp(x.numpy() - x.numpy().max(dim, keepdims=True))
    return e / e.sum(dim, keepdims=True)


def attention_by_einsum(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) * q.size(-1) ** -0.5
    if mask is not None:
        scores = torch.where(mask, scores, torch.tensor(-math.inf, dtype=q.dtype))
    weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("...ts,...sv->...tv", weights, v), weights


def attention_by_loops(q, k, v, mask=None):
    scores_shape = (*q.shape[:-1], k.shape[-2])
    allowed = torch.ones(scores_shape, dtype=torch.bool) if mask is None else mask.expand(scores_shape)
    weights = q.new_zeros(scores_shape)
    for place in np.ndindex(*q.shape[:-1]):
        keys = allowed[place].nonzero().flatten()
        if len(keys):
            scores = k[(*place[:-1], keys)] @ q[place] / math.sqrt(q.shape[-1])
            weights[(*place, keys)] = scores.softmax(0)
    return weights @ v, weights


def entropy_by_log_softmax(scores, d_k, scaled):
    log_weights = (scores / d_k**0.5 if scaled else scores).log_softmax(-1)
    return -(log_weights.exp() * log_weights.clamp(min=torch.finfo(scores.dtype).min)).sum(-1)


def variance_pair_by_pair(d_k, n_pairs):
    scores = np.array([np.random.randn(d_k) @ np.random.randn(d_k) for _ in range(n_pairs)])
    return scores.var(), (scores / d_k**0.5).var()


def most_attended_by_matrix(tokens, embeddings, query_token):
    _, weights = attention_by_einsum(embeddings, embeddings, embeddings)
    row = weights[tokens.index(query_token)]
    return [max(zip(row.tolist(), tokens))[1], row]


RIGHT = {
    "attention.softmax": [softmax_by_log, softmax_by_rows, softmax_in_numpy],
    "attention.scaled_dot_product": [
        attention_by_einsum,
        attention_by_loops,
        lambda q, k, v, mask=None: library.scaled_dot_product_attention(q, k, v, mask),
    ],
    "attention.worked_example": [
        lambda Q, K: attention_by_einsum(Q, K, K)[1],
        lambda Q, K: F.softmax(F.linear(Q, K) / len(Q[0]) ** 0.5, dim=1),
    ],
    "attention.score_variance": [variance_pair_by_pair],
    "attention.saturation": [
        entropy_by_log_softmax,
        lambda scores, d_k, scaled: torch.special.entr((scores / d_k ** (scaled / 2)).softmax(-1)).sum(-1),
    ],
    "attention.memory": [16_777_216.0, np.int64(16_777_216), torch.tensor(16_777_216), torch.zeros(2048, 2048).nbytes],
    "attention.who_is_it": [most_attended_by_matrix],
}


@pytest.mark.parametrize(
    ("exercise_id", "answer"), [(exercise_id, answer) for exercise_id in RIGHT for answer in RIGHT[exercise_id]]
)
def test_right_answers_in_other_styles_pass(exercise_id, answer):
    for seed in SEEDS:
        result = grade(exercise_id, answer, seed)
        assert result.passed, f"seed {seed}: {result}"


# --- references against PyTorch ---------------------------------------------------------------------------------------


def cases(exercise_id):
    exercise = EXERCISES[exercise_id]
    return [case.args for seed in SEEDS for stage in exercise.stages for case in stage(seed)]


def test_softmax_reference_equals_pytorch():
    for x, dim in cases("attention.softmax"):
        torch.testing.assert_close(EXERCISES["attention.softmax"].reference(x, dim), torch.softmax(x, dim))


def test_attention_reference_equals_pytorch_and_gives_zeros_where_nothing_may_be_seen():
    for q, k, v, *mask in cases("attention.scaled_dot_product"):
        output, weights = EXERCISES["attention.scaled_dot_product"].reference(q, k, v, *mask)
        seen = torch.ones_like(weights, dtype=torch.bool) if not mask else mask[0].expand_as(weights)
        expected = F.scaled_dot_product_attention(q, k, v, *mask)
        torch.testing.assert_close(output, expected.masked_fill(~seen.any(-1, keepdim=True), 0.0))
        torch.testing.assert_close(weights.sum(-1), seen.any(-1).to(weights))
        assert not weights[~seen].any()


def test_entropy_reference_equals_pytorch():
    for scores, d_k, scaled in cases("attention.saturation"):
        expected = torch.distributions.Categorical(logits=scores.clamp(min=-1e5) / (math.sqrt(d_k) if scaled else 1))
        torch.testing.assert_close(EXERCISES["attention.saturation"].reference(scores, d_k, scaled), expected.entropy())


def test_the_worked_figures_of_the_chapter():
    weights = EXERCISES["attention.worked_example"].reference(*cases("attention.worked_example")[0])
    printed = [[0.308, 0.145, 0.308, 0.24], [0.246, 0.316, 0.192, 0.246], [0.192, 0.316, 0.246, 0.246]]
    torch.testing.assert_close(weights[:3], torch.tensor(printed), atol=6e-4, rtol=0)
    token, weights = EXERCISES["attention.who_is_it"].reference(*cases("attention.who_is_it")[0])
    assert token == "cat"
    assert [round(weight, 3) for weight in weights.tolist()] == [0.285, 0.137, 0.133, 0.262, 0.182]
    assert EXERCISES["attention.memory"].reference == torch.empty(2048, 2048).nbytes == 16_777_216


# --- the last line of the run -----------------------------------------------------------------------------------------
