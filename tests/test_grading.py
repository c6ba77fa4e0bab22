"""The pages prove themselves: references pass, every misconception fails and is named, no hint tells the answer.

Generic over all exercises: a chapter's author adds a page to `course_lib/chapters/<slug>/exercises`, and right answers
in other styles to `tests/right`. The last lines of a run are a table: how many there are of each, and how many do as
they should.
"""

import importlib
import inspect
import io
import math
import pickle
import re
from collections.abc import Mapping
from pathlib import Path

import nbformat
import pytest
import torch
import torch.nn.functional as F

from course_lib.grading import EXERCISES, grade
from course_lib.grading.cases import prepare
from course_lib.grading.engine import PUBLIC_SEED
from course_lib.grading.judge.call import call
from course_lib.grading.judge.seeds import SECRET
from course_lib.grading.judge.trials import summed_up
from course_lib.grading.judge.values import fresh
from tests.confusion import SLOW, confusion, late

pytestmark = pytest.mark.usefixtures("as_a_learner")  # the verdicts are those that learners get
ROOT = Path(__file__).parent.parent
A_CLASSES = SECRET | 20_26  # by it each stage draws from a seed of its own
SEEDS = (PUBLIC_SEED, 1, A_CLASSES)
WRONG_SEEDS = (PUBLIC_SEED, A_CLASSES)  # for wrong answers: a mistake is one whatever the numbers
MORE_SEEDS = (*range(20), A_CLASSES)  # for right answers: a class is graded with a seed that nobody has tried
EVERY_RUN, IN_PROOFS = "the public seed", "more seeds"
by_part = pytest.mark.parametrize("part", [EVERY_RUN, pytest.param(IN_PROOFS, marks=pytest.mark.proof)])

IDS = {  # chapter: the exercises it must have, with their kinds; it may have more
    "embeddings": {
        "code": ["lookup", "one_hot", "nearest", "analogy", "merge_table"],
        "number": ["parameters"],
        "choice": ["gradient_rows"],
    },
    "positions": {
        "code": ["sinusoidal", "shift_matrix", "rotary", "interpolate"],
        "number": ["wavelength", "learned_parameters"],
        "experiment": ["equivariance"],
        "reflect": ["no_positions"],
    },
    "attention": {
        "code": ["softmax", "scaled_dot_product", "self_attention", "worked_example", "saturation", "who_is_it"],
        "experiment": ["score_variance"],
        "number": ["memory"],
        "reflect": ["why_scale"],
    },
    "masks": {"code": ["causal", "padding", "documents", "masked_attention", "leak_test"], "choice": ["patterns"]},
    "heads": {
        "code": ["split", "merge", "loop", "module", "grouped"],
        "shapes": ["shape_trace"],
        "number": ["parameters"],
        "choice": ["d_k_tradeoff"],
        "reflect": ["output_projection"],
        "experiment": ["how_many"],
    },
    "feed_forward": {
        "code": ["forward", "gelu", "gelu_tanh", "swiglu", "swiglu_width", "router"],
        "number": ["parameters"],
        "experiment": ["sparsity", "ablate_fact"],
        "reflect": ["why_expand"],
    },
    "normalization": {
        "code": ["layer_norm", "rms_norm"],
        "choice": ["batch_vs_layer"],
        "number": ["worked_example", "parameters"],
        "experiment": ["speed"],
    },
    "blocks": {
        "code": ["pre_norm", "post_norm", "encoder"],
        "experiment": ["gradient_norms", "pre_or_post"],
        "reflect": ["no_residual"],
    },
    "gpt": {
        "code": ["forward", "tie_weights"],
        "number": ["initial_loss"],
        "shapes": ["shape_trace"],
        "reflect": ["why_effective"],
    },
    "counting": {
        "number": ["gpt2", "bert_layer", "bert", "llama7b", "transformer_512", "active", "find_the_error"],
        "code": ["function", "memory", "flops"],
    },
    "encoder_decoder": {"code": ["attention", "decoder_block"], "shapes": ["shape_trace"], "choice": ["families"]},
    "training": {
        "code": ["cross_entropy", "get_batch", "learning_rate", "step", "clip", "muon"],
        "experiment": ["overfit"],
        "number": ["limit"],
    },
    "sampling": {
        "code": ["temperature", "top_k", "top_p", "next_token", "generate"],
        "experiment": ["compare"],
    },
    "efficiency": {
        "code": ["kv_cache", "online_softmax"],
        "number": ["kv_cache_bytes"],
        "experiment": ["quadratic", "rnn_or_attention"],
    },
    "pretrained": {"code": ["map_gpt2"], "experiment": ["head_roles", "patch"]},
    "assistant": {
        "code": ["answer_mask", "optimum", "dpo_loss", "group_advantage"],
        "number": ["best_of_n"],
        "experiment": ["frontier"],
    },
    "claims": {"choice": ["audit_1", "audit_2", "audit_3", "audit_4", "audit_5"]},
    "your_gpt": {"code": ["parts", "parity", "loss", "writes"], "number": ["bill"], "file": ["file"]},
}

BUILT = [chapter for chapter in IDS if any((ROOT / f"course_lib/chapters/{chapter}/exercises").glob("*.md"))]


def answers_in(room, table):
    """{exercise: answers} of all modules in a folder beside this file, which may share an exercise."""
    found = {}
    for path in sorted((Path(__file__).parent / room).glob("[a-z]*.py")):
        for exercise_id, answers in getattr(importlib.import_module(f"{room}.{path.stem}"), table, {}).items():
            found.setdefault(exercise_id, []).extend(answers)
    return found


RIGHT = answers_in("right", "RIGHT")  # right answers in other styles
STRANGERS = answers_in("strangers", "STRANGERS")  # and as they stand in well-known places
OF_THE_LIBRARY = answers_in("right", "OF_THE_LIBRARY")  # answers that leave the work to the library
DOUBLES = answers_in("doubles", "DOUBLES")  # careless answers with two mistakes at once, and which
ALL = list(EXERCISES.values())
CALLED = [exercise for exercise in ALL if exercise.kind in ("code", "experiment")]
GRADED = [exercise for exercise in ALL if exercise.points]
WRONG = [
    pytest.param(exercise, misconception, id=f"{exercise.id}: {misconception.name}", marks=late(exercise))
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


by_mistake = pytest.mark.parametrize("exercise", [pytest.param(each, id=each.id, marks=late(each)) for each in CALLED])


def of_part(part, seeds):
    """The seeds of a part of the tests: the public one in every run, the others in the proofs."""
    return seeds[:1] if part == EVERY_RUN else seeds[1:]


def right_answer(exercise):
    if exercise.kind == "choice":
        return {option.key for option in exercise.options if option.right}
    return "words " * exercise.min_words if exercise.kind == "reflect" else exercise.reference


@pytest.fixture(autouse=True)
def counted(request, record_property):
    """The kind of the exercise under test, for the table at the end."""
    exercise = getattr(request.node, "callspec", None) and request.node.callspec.params.get("exercise")
    if exercise:
        record_property("kind", exercise.kind)


# --- the catalogue ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chapter", IDS)
def test_the_catalogue_holds_every_exercise_of_the_chapter(chapter):
    assert chapter in BUILT, f"chapters/{chapter}/exercises has no pages"
    expected = {f"{chapter}.{name}": kind for kind, names in IDS[chapter].items() for name in names}
    assert {name: EXERCISES[name].kind for name in expected if name in EXERCISES} == expected


def test_every_page_belongs_to_a_chapter_of_which_exercises_are_asked_for():
    assert sum(len(names) for kinds in IDS.values() for names in kinds.values()) == 120
    assert {exercise.id.partition(".")[0] for exercise in ALL} == set(BUILT)


def test_exercises_come_in_chapter_order():
    chapters = [exercise.chapter for exercise in ALL]
    assert chapters == sorted(chapters)


@each(ALL)
def test_enough_hints_and_misconceptions_to_learn_from(exercise):
    assert len(exercise.hints) >= 3
    assert len(set(exercise.hints)) == len(exercise.hints)
    assert exercise.why
    least = {"code": 4, "experiment": 4, "file": 4, "number": 2, "shapes": 2, "choice": 0, "reflect": 0}[exercise.kind]
    assert len(exercise.misconceptions) >= least
    if exercise.kind == "choice":
        assert len({option.why for option in exercise.options}) == len(exercise.options) >= 3
    if exercise.kind == "reflect":
        assert 3 <= len(exercise.rubric) <= 5


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


@by_part
@each(ALL)
def test_the_reference_passes_with_full_points(exercise, part):
    for seed in of_part(part, SEEDS if exercise.id in SLOW else MORE_SEEDS):
        result = grade(exercise.id, right_answer(exercise), seed)
        assert result.passed, f"seed {seed}: {result}"
        assert result.earned == exercise.points


@by_part
@pytest.mark.parametrize(("exercise", "misconception"), WRONG)
def test_misconception_fails_and_is_named(exercise, misconception, part):
    """In every run its first form, in the proofs that with other seeds, and all of its other forms; of a slow exercise
    all in the proofs."""
    for seed in of_part(part, WRONG_SEEDS):
        fails_and_is_named(exercise, misconception, 0, seed)
    if part == IN_PROOFS:
        for number in range(1, len(misconception.variants)):
            fails_and_is_named(exercise, misconception, number, PUBLIC_SEED)


def fails_and_is_named(exercise, misconception, number, seed):
    result = confusion(exercise, seed, first=number == 0)[misconception.name, number]
    where = f"form {number}, seed {seed}"
    assert not result.passed, f"{where}: this wrong answer passes"
    assert result.earned < exercise.points
    assert result.misconception == misconception.name, f"{where}: {result}"
    assert misconception.sentence in result.sentences
    assert_fits_the_page(result)


def assert_fits_the_page(result):
    """Thirty lines of a hundred columns at most."""
    lines = repr(result).splitlines()
    assert len(lines) <= 30, result
    assert max(map(len, lines)) <= 100, result


@pytest.mark.parametrize(("exercise", "option"), WRONG_OPTIONS)
def test_wrong_option_gives_its_own_reason_and_no_other(exercise, option):
    picked = {option.key}
    if exercise.numbered and option in exercise.same_for_all:  # then a finding says which number is meant
        picked |= {each.key for each in exercise.options if each.right and each not in exercise.same_for_all}
    result = grade(exercise.id, picked, PUBLIC_SEED)
    assert not result.passed
    assert result.misconception == option.text
    said = "\n".join(result.sentences)
    assert option.why in said
    assert_fits_the_page(result)
    assert not any(other.why in said for other in exercise.options if other is not option)


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


@by_mistake
def test_returning_nothing_fails(exercise):
    result = grade(exercise.id, (lambda *args: None) if not exercise.module else type("Empty", (), {}), PUBLIC_SEED)
    assert result.status == "failed"


@by_part
@by_mistake
def test_the_verdict_is_the_same_every_time(exercise, part):
    mistake = exercise.misconceptions[0]
    for seed in of_part(part, (PUBLIC_SEED, 3)):
        found = grade(exercise.id, mistake.wrong, seed)
        before = confusion(exercise, seed, first=True)[mistake.name, 0] if part == EVERY_RUN else None
        assert repr(found) == repr(before or grade(exercise.id, mistake.wrong, seed))


# --- the narrow door --------------------------------------------------------------------------------------------------


class Narrow(pickle.Unpickler):
    """Reads plain data, tensors and functions of a `fixtures.py`, and nothing else."""

    def find_class(self, module, name):
        ours = re.fullmatch(r"course_lib\.(grading\.judge\.call|(grading|chapters\.\w+)\.fixtures)", module)
        ours = ours or name in ("Given", "Foreign")
        assert ours or module.split(".")[0] in ("torch", "collections", "numpy", "builtins"), f"{module}.{name}"
        return super().find_class(module, name)


def sent(value):
    return Narrow(io.BytesIO(pickle.dumps(value))).load()


@each(CALLED)
def test_calls_and_outcomes_are_plain_data_that_another_process_can_be_sent(exercise):
    """A model comes as Given, a probe stands in a fixtures.py, and what comes back holds no object of the answer's."""
    for trial in prepare(exercise, PUBLIC_SEED):
        outcome = sent(call(exercise.reference, sent(trial.call)))
        assert outcome.failure is None
        assert exercise.problem_of(trial, summed_up(trial, outcome)) is None


# --- right answers in other styles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("chapter", BUILT)
def test_every_code_exercise_has_two_right_answers_in_other_styles(chapter):
    """Written by other means than the reference, and by two of them: an experiment has one."""
    for exercise in CALLED:
        if exercise.id.startswith(f"{chapter}."):
            strangers = 4 if exercise.kind == "code" else 2
            assert RIGHT.get(exercise.id), f"tests/right/{chapter}.py: {exercise.id}"
            assert len(STRANGERS.get(exercise.id, [])) >= strangers, f"tests/strangers/{chapter}.py: {exercise.id}"


def test_answers_belong_to_exercises():
    assert set(RIGHT) | set(STRANGERS) | set(OF_THE_LIBRARY) | set(DOUBLES) <= set(EXERCISES)


def each_answer(table):
    """Parameters: every answer of a table with its exercise."""
    return pytest.mark.parametrize(
        ("exercise", "answer"),
        [
            pytest.param(EXERCISES[exercise_id], answer, id=f"{exercise_id}: {getattr(answer, '__name__', number)}")
            for exercise_id, answers in table.items()
            for number, answer in enumerate(answers)
        ],
    )


@by_part
@each_answer(RIGHT)
def test_right_answers_in_other_styles_pass(exercise, answer, part):
    passes_with_full_points(exercise, answer, of_part(part, SEEDS if exercise.id in SLOW else MORE_SEEDS))


@pytest.mark.proof
@each_answer(STRANGERS)
def test_strangers_answers_pass(exercise, answer):
    passes_with_full_points(exercise, answer, SEEDS[:1] if exercise.id in SLOW else SEEDS)


def passes_with_full_points(exercise, answer, seeds):
    for seed in seeds:
        result = grade(exercise.id, answer, seed)
        assert result.passed, f"seed {seed}: {result}"
        assert result.earned == exercise.points


@each_answer(OF_THE_LIBRARY)
def test_what_leaves_the_work_to_the_library_is_nobodys_answer(exercise, answer):
    result = grade(exercise.id, answer, PUBLIC_SEED)
    assert (result.status, result.earned) == ("unanswered", 0)
    assert any(f"`{name}`" in result.feedback for name in exercise.library)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("exercise", "answer", "made"),
    [
        pytest.param(EXERCISES[exercise_id], answer, made, id=f"{exercise_id}: {answer.__name__}")
        for exercise_id, doubles in DOUBLES.items()
        for answer, made in doubles
    ],
)
def test_of_two_mistakes_at_once_nothing_is_said_that_is_not_true(exercise, answer, made, record_property):
    result = grade(exercise.id, answer, PUBLIC_SEED)
    assert not result.passed
    assert set(result.mistakes) <= set(made), result
    record_property("named", len(result.mistakes))
    assert_fits_the_page(result)


@pytest.mark.parametrize("exercise_id", ["sampling.next_token", "sampling.generate"])
def test_a_loop_over_rows_is_far_from_the_time_limit(exercise_id):
    """Rows are counted, not seconds: a loop in Python takes about 0.1 ms for each, at most a third of the limit."""
    exercise, rows = EXERCISES[exercise_id], 0

    def counting(logits_or_model, *args):
        nonlocal rows
        generates = exercise_id == "sampling.generate"
        rows += len(args[0]) * args[1] if generates else len(logits_or_model)
        return exercise.reference(logits_or_model, *args)

    assert grade(exercise_id, counting, PUBLIC_SEED).passed
    assert rows * 1e-4 < exercise.time_limit / 3


def test_what_is_rounding_for_the_leak_test_stays_below_the_limit_that_it_gives():
    """Whatever an honest test of a causal model changes or cuts off. And it shows, or nothing would be rounded."""
    (stage,) = [stage for stage in EXERCISES["masks.leak_test"].stages if "last digit" in stage.__doc__]
    for seed in range(40):
        ((model, ids),) = (case.args for case in stage(seed))
        model, T = fresh(model), ids.shape[1]
        before, V = model(ids), model(ids).shape[-1]
        moved = []
        for first in range(1, T):
            one = ids.clone()
            one[:, first] = (one[:, first] + 1) % V
            tails = [(ids[:, first:] + step) % V for step in range(1, V)]
            tails += [torch.full_like(ids[:, first:], token) for token in range(V)]
            others = [ids[:, :first], one, *(torch.cat([ids[:, :first], tail], 1) for tail in tails)]
            moved += [(model(other)[:, :first] - before[:, :first]).abs().max().item() for other in others]
        assert 0 < max(moved) < 1e-5, f"seed {seed}"


# --- the page that the learner reads ----------------------------------------------------------------------------------


@each(ALL)
def test_the_box_above_an_exercise_says_what_the_catalogue_says(exercise):
    pages = list(ROOT.glob(f"solutions/{exercise.chapter:02d}_*.ipynb"))
    assert len(pages) == 1, f"solutions/ has no notebook of chapter {exercise.chapter}"
    cells = [cell.source for cell in nbformat.read(pages[0], as_version=4).cells if cell.cell_type == "markdown"]
    boxes = [cell for cell in cells if cell.startswith(f"## {exercise.id} · {exercise.title}\n")]
    assert len(boxes) == 1, f"{pages[0].name} needs one cell that begins ## {exercise.id} · {exercise.title}"
    points = f"{exercise.points} point{'' if exercise.points == 1 else 's'}" if exercise.points else "No points"
    signs = "●" * exercise.difficulty + "○" * (5 - exercise.difficulty)
    assert f"{points} · {signs} · {exercise.minutes} minute" in boxes[0]
    assert re.search(r"\*[^*\n]{20,}\*", boxes[0]), "why it matters stands there in italics"


# --- references against PyTorch ---------------------------------------------------------------------------------------


def cases(exercise_id):
    exercise = EXERCISES[exercise_id]
    return [case.args for seed in SEEDS[:2] for stage in exercise.stages for case in stage(seed)]


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
