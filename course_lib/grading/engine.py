"""From an answer to a Result: run it, judge it, find the mistake, say it."""

import inspect
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from . import record
from .button import show_button
from .catalogue import get
from .exercise import Exercise, Misconception, Option
from .judge import as_number, compare, differences, kind_of, rounded, same
from .limits import inside_an_answer, undisturbed
from .picture import as_html, as_text
from .result import Hint, Result, show_below
from .run import Outcome, is_the_librarys, read, run
from .show import DIGITS, MOST_SHOWN, digits_apart, number, plural, show
from .trials import Trial, mistaken, prepare, summed_up

PUBLIC_SEED = 0
LESS_EXACT = (
    "A note: of a float64 input not all sixteen digits are right. Something on the way is less exact: a step or a "
    "constant in float32, a constant with few digits, a small number added for safety. That is right enough here."
)
LONGEST = 4000  # characters of a sentence: some hold what an answer returned
_one_at_a_time = threading.Lock()
show_below(show_button)


def check(exercise_id: str, answer: Any) -> Result:
    """Check an answer and keep the result in your progress. In a notebook the result shows itself.

    Args:
        exercise_id: as in the heading of the exercise, "attention.softmax".
        answer: your function, class, number, shapes, option or text, as the exercise asks.
    Errors: KeyError for an unknown id, with the nearest ids. Never an error from the answer, whatever it does.
    """
    result = grade(exercise_id, answer, PUBLIC_SEED)
    record.keep(result)
    return result


def grade(exercise_id: str, answer: Any, seed: int) -> Result:
    """Judge an answer on the cases that `seed` draws; nothing is kept.

    Returns: Result, with .passed .earned .points .feedback .misconception
    Errors: KeyError for an unknown id, with the nearest ids. Never an error from the answer, whatever it does.
    """
    exercise = get(exercise_id)
    if inside_an_answer():
        return verdict(exercise, "unanswered", ["An answer cannot check itself: call check outside your function."])
    if exercise.kind not in ("code", "experiment"):
        with _one_at_a_time, undisturbed():
            outcome = read(answer, exercise.time_limit)
        return judge_value(exercise, outcome)
    if answer is Ellipsis:
        return _unanswered(exercise)
    if is_the_librarys(answer):
        sentence = f"This is the library's own `{answer.__name__}`, and the exercise asks for yours."
        return verdict(exercise, "unanswered", [sentence, "What you have read there you may use."])
    trials = ready_trials(exercise, seed)
    with _one_at_a_time, undisturbed():
        outcomes = run(answer, [trial.call for trial in trials], exercise.time_limit)
    return judge_calls(exercise, trials, outcomes)


def ready_trials(exercise: Exercise, seed: int) -> tuple[Trial, ...]:
    """The cases of an exercise that is code, with what the reference makes of them."""
    with _one_at_a_time, undisturbed():
        return prepare(exercise, seed)


def judge_value(exercise: Exercise, outcome: Outcome) -> Result:
    """The verdict on an answer that is a value, read in this process or in another."""
    if outcome.failure:
        return verdict(exercise, "failed", [outcome.failure.sentence])
    value = outcome.value
    if value is Ellipsis or (isinstance(value, dict) and any(part is ... for part in value.values())):
        return _unanswered(exercise)
    return _JUDGES[exercise.kind](exercise, value)


def judge_calls(exercise: Exercise, trials: Sequence[Trial], outcomes: list[Outcome]) -> Result:
    """The verdict on what the trials' calls did, in this process or in another."""
    with _one_at_a_time, undisturbed():
        summed = [summed_up(trial, outcome) for trial, outcome in zip(trials, outcomes)]
        return _judge_calls(exercise, trials, [*summed, *outcomes[len(summed) :]])


def hint(exercise_id: str) -> Hint:
    """The next hint of an exercise. How many you have seen is kept with your progress; the last one repeats.

    Errors: KeyError for an unknown id, with the nearest ids.
    """
    return record.next_hint(get(exercise_id))


# --- code and experiment ----------------------------------------------------------------------------------------------


def _judge_calls(exercise: Exercise, trials: Sequence[Trial], outcomes: list[Outcome]) -> Result:
    if all(outcome.failure and outcome.failure.kind == "unanswered" for outcome in outcomes):
        return _unanswered(exercise)
    problems = [problem_of(exercise, trial, outcome) for trial, outcome in zip(trials, outcomes)]
    failing = next((i for i, problem in enumerate(problems) if problem is not None), None)
    if failing is None and len(outcomes) == len(trials) > 0:
        notes = [LESS_EXACT] if _lost_digits(exercise, trials, outcomes) else []
        return verdict(exercise, "passed", [f"Right in {plural(len(trials), 'case')}.", *notes])
    if failing is None:  # a worker that is not to be trusted may leave some out
        return verdict(exercise, "failed", [f"{len(outcomes)} of {plural(len(trials), 'case')} were answered."])
    trial, outcome, problem = trials[failing], outcomes[failing], problems[failing]
    if outcome.failure and outcome.failure.kind in ("type", "signature"):
        return verdict(exercise, "failed", [problem])
    evidence, pictures = _evidence(exercise, trial, outcome), _pictures(exercise, trial, outcome)
    mistake = _diagnosis(exercise, trials, outcomes, failing)
    sentences = [mistake.sentence if mistake else problem, f"The case: {trial.stage}"]
    return verdict(exercise, "failed", sentences, evidence, mistake.name if mistake else None, pictures)


def _lost_digits(exercise: Exercise, trials: Sequence[Trial], outcomes: list[Outcome]) -> bool:
    """Is a float64 right by the usual tolerance, and no more than that? An exercise with its own leaves room anyway."""
    if exercise.kind != "code" or exercise.rtol is not None or exercise.atol is not None:
        return False
    return any(
        compare(trial.expected, outcome.value) is None and rounded(trial.expected, outcome.value)
        for trial, outcome in zip(trials, outcomes)
    )


def problem_of(exercise: Exercise, trial: Trial, outcome: Outcome) -> str | None:
    """What is wrong with one outcome, in a sentence; None if nothing is."""
    if outcome.failure:
        return outcome.failure.sentence
    if outcome.forbidden:
        return f"You use torch's own `{outcome.forbidden}`. Here the point is to do without it."
    if exercise.judge:
        try:
            problem = exercise.judge(trial.case, trial.expected, outcome.value)
        except Exception:  # it met a value of a form that its author did not think of
            problem = f"Your result has not the form that is asked for; it is {kind_of(outcome.value)}."
    else:
        problem = compare(trial.expected, outcome.value, exercise.rtol, exercise.atol, exercise.returns)
    if problem is None and outcome.changed:
        names = ", ".join(f"`{name}`" for name in outcome.changed)
        return f"Your result is right, but your function changes its input {names}. Work on a copy."
    return problem


def _diagnosis(
    exercise: Exercise, trials: Sequence[Trial], outcomes: list[Outcome], failing: int
) -> Misconception | None:
    """The misconception that does what the answer does, on every case; the failing one is tried first."""
    ended = ("time", "exit")  # no misconception of ours does that
    if any(outcome.forbidden or (outcome.failure and outcome.failure.kind in ended) for outcome in outcomes):
        return None
    pairs = list(zip(trials, outcomes))
    pairs.insert(0, pairs.pop(failing))
    for misconception in exercise.misconceptions:
        for wrong in misconception.variants:
            if all(_alike(exercise, mistaken(wrong, trial), outcome) for trial, outcome in pairs):
                return misconception
    return None


def _alike(exercise: Exercise, one: Outcome, other: Outcome) -> bool:
    if one.failure or other.failure:
        return bool(one.failure and other.failure) and (
            (one.failure.kind, one.failure.behaviour) == (other.failure.kind, other.failure.behaviour)
        )
    return one.changed == other.changed and same(one.value, other.value, exercise.rtol, exercise.atol)


def _evidence(exercise: Exercise, trial: Trial, outcome: Outcome) -> str:
    """The failing case: input, expected, got, where they differ."""
    names = list(inspect.signature(exercise.reference).parameters)
    given = trial.case.init if exercise.module else trial.case.args
    lines = [_entry(name, value) for name, value in zip(names, given)]
    if exercise.module:
        lines += [_entry("input", value) for value in trial.case.args]
    if not outcome.failure:
        lines += _pair(exercise, trial.expected, outcome.value)
    if outcome.printed:
        lines.append(_entry("printed", outcome.printed.rstrip()))
    return "\n".join(lines)


def _pair(exercise: Exercise, expected: Any, got: Any) -> list[str]:
    """Expected beside got, and where they differ."""
    name, expected, got = _differing(exercise, expected, got)
    digits = _digits(exercise, expected, got)
    lines = [_entry(f"expected{name}", expected, digits), _entry(f"got{name}", got, digits)]
    return [*lines, *_first_difference(exercise, expected, got)]


def _digits(exercise: Exercise, expected: Any, got: Any) -> int:
    """So many that wherever `got` is wrong, it looks wrong: of a tensor that is too large to be printed, the usual."""
    if isinstance(expected, dict) and isinstance(got, dict):
        shared = [key for key in expected if key in got]
        return max((_digits(exercise, expected[key], got[key]) for key in shared), default=DIGITS)
    if _alike_tensors(expected, got):
        if not expected.is_floating_point() or not got.is_floating_point() or expected.numel() > MOST_SHOWN:
            return DIGITS
        wrong = differences(expected, got, exercise.rtol, exercise.atol)
        return max(map(digits_apart, expected[wrong].tolist(), got[wrong].tolist()), default=DIGITS)
    e, g = as_number(expected), as_number(got)
    return DIGITS if e is None or g is None else digits_apart(e, g)


def _differing(exercise: Exercise, expected: Any, got: Any) -> tuple[str, Any, Any]:
    """Of a tuple the first part that differs, with its name; anything else as it is."""
    if isinstance(expected, tuple) and isinstance(got, (tuple, list)) and len(expected) == len(got):
        for i, (e, g) in enumerate(zip(expected, got)):
            if compare(e, g, exercise.rtol, exercise.atol):
                return f" {exercise.returns[i]}" if exercise.returns else f" [{i}]", e, g
    return "", expected, got


def _pictures(exercise: Exercise, trial: Trial, outcome: Outcome) -> tuple[str, str]:
    """Target beside answer, as HTML and as text, if both are matrices."""
    if outcome.failure:
        return "", ""
    _, expected, got = _differing(exercise, trial.expected, outcome.value)
    return tuple(show_as(expected, got, exercise.rtol, exercise.atol) for show_as in (as_html, as_text))


def _first_difference(exercise: Exercise, expected: Any, got: Any) -> list[str]:
    if not _alike_tensors(expected, got) or expected.ndim == 0:
        return []
    wrong = differences(expected, got, exercise.rtol, exercise.atol)
    if wrong.numel() == 1 or not wrong.any():
        return []
    place = tuple(wrong.nonzero()[0].tolist())
    e, g = expected[place].item(), got[place].item()
    digits = digits_apart(e, g) if isinstance(e, float) and isinstance(g, float) else DIGITS
    return [f"first difference at {list(place)}: expected {show(e, digits)}, got {show(g, digits)}"]


def _alike_tensors(expected: Any, got: Any) -> bool:
    both = isinstance(expected, Tensor) and isinstance(got, Tensor)
    return both and expected.shape == got.shape and expected.device == got.device


def _entry(name: str, value: Any, digits: int = DIGITS) -> str:
    text = value if name == "printed" else show(value, digits)
    return f"{name}: {text}" if "\n" not in text else f"{name}: " + text.replace("\n", "\n  ")


# --- number, shapes, choice, reflect ----------------------------------------------------------------------------------


def _judge_number(exercise: Exercise, answer: Any) -> Result:
    reference = exercise.reference
    if not isinstance(reference, Mapping):
        problem = _number_problem(exercise, "", reference, answer)
        return _unless(exercise, [problem] if problem else [], lambda wrong, rtol: _is_number(answer, wrong, rtol))
    parts, problem = _by_name(reference, answer)
    if problem:
        return verdict(exercise, "failed", [problem])
    problems = [_number_problem(exercise, name, reference[name], parts[name]) for name in reference]

    def made(wrong: Mapping, rtol: float) -> bool:
        return all(_is_number(parts[name], wrong[name], rtol) for name in wrong)

    return _unless(exercise, [problem for problem in problems if problem], made)


def _number_problem(exercise: Exercise, name: str, expected: float, got: Any) -> str | None:
    what = f"`{name}`" if name else "Your answer"
    value = as_number(got)
    if isinstance(got, str):
        return f"{what} is text. Write the number itself, without quotes or commas."
    if value is None:
        return f"{what} should be a number; it is {kind_of(got).removesuffix(' (is there a `return`?)')}."
    if value != value:
        return f"{what} is NaN, which is no number. Look for a 0 / 0 on the way."
    if _is_number(value, expected, exercise.rtol or 0.0):
        return None
    if value * expected <= 0:
        return f"{what} is not {number(value)}."
    if abs(value) > 10 * abs(expected) or abs(expected) > 10 * abs(value):
        size = "large" if abs(value) > abs(expected) else "small"
        return f"{what} is not {number(value)}: that is more than ten times too {size}."
    return f"{what} is not {number(value)}, though that is the right order of magnitude."


def _is_number(value: Any, wanted: float, rtol: float) -> bool:
    value = as_number(value)
    return value is not None and (value == wanted or abs(value - wanted) <= rtol * abs(wanted))


def _judge_shapes(exercise: Exercise, answer: Any) -> Result:
    reference = exercise.reference
    if _is_shape(reference):
        problem = _shape_problem("Your shape", reference, answer)
        return _unless(exercise, [problem] if problem else [], lambda wrong, rtol: _as_shape(answer) == tuple(wrong))
    named = reference if isinstance(reference, Mapping) else dict(enumerate(reference))
    parts, problem = _by_name(named, answer)
    if problem:
        return verdict(exercise, "failed", [problem])
    labels = {key: f"`{key}`" if isinstance(key, str) else f"Shape {key + 1}" for key in named}
    problems = [_shape_problem(labels[key], named[key], parts[key]) for key in named]

    def made(wrong: Any, rtol: float) -> bool:
        wrong = wrong if isinstance(wrong, Mapping) else dict(enumerate(wrong))
        return all(_as_shape(parts[key]) == tuple(wrong[key]) for key in wrong)

    return _unless(exercise, [problem for problem in problems if problem], made)


def _shape_problem(label: str, expected: tuple, got: Any) -> str | None:
    shape = _as_shape(got)
    if shape is None:
        return f"{label} should be a tuple of whole numbers such as (2, 3); it is {kind_of(got)}."
    if shape == tuple(expected):
        return None
    if len(shape) != len(expected):
        return f"{label} is not {shape}: {len(shape)} is not the number of its axes."
    wrong = [str(i) for i, (a, b) in enumerate(zip(shape, expected)) if a != b]
    return f"{label} is not {shape}: it has the right number of axes, and the wrong size on axis {', '.join(wrong)}."


def _is_shape(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(type(size) is int for size in value)


def _as_shape(value: Any) -> tuple | None:
    return tuple(value) if _is_shape(value) else None


def _by_name(reference: Mapping, answer: Any) -> tuple[dict, str | None]:
    """The parts of an answer by name: a dictionary with these names, or a sequence in their order."""
    names = ", ".join(map(str, reference))
    if isinstance(answer, (tuple, list)) and len(answer) == len(reference):
        return dict(zip(reference, answer)), None
    if isinstance(answer, (tuple, list)):
        return {}, f"Expected {plural(len(reference), 'part')}, and got {len(answer)}."
    if not isinstance(answer, dict):
        wanted = f"a dictionary with the keys {names}" if isinstance(next(iter(reference)), str) else "a list"
        return {}, f"Your answer should be {wanted}; it is {kind_of(answer)}."
    missing = [str(name) for name in reference if name not in answer]
    extra = [repr(name) for name in answer if name not in reference]
    if missing:
        return {}, f"Your answer lacks {', '.join(missing)}."
    return answer, f"Your answer has the key {extra[0]}; expected only {names}." if extra else None


def _judge_choice(exercise: Exercise, answer: Any) -> Result:
    options = {option.key: option for option in exercise.options}
    picks = (
        [answer] if isinstance(answer, str) else list(answer) if isinstance(answer, (tuple, list, frozenset)) else []
    )
    if not picks or not all(isinstance(pick, str) for pick in picks):
        return verdict(
            exercise, "failed", [f"Answer with the key of an option, or several in braces: {_keys(options)}."]
        )
    unknown = sorted({pick for pick in picks if pick not in options})
    if unknown:
        return verdict(exercise, "failed", [f"There is no option {unknown[0]!r}. Choose from {_keys(options)}."])
    picked = [option for option in exercise.options if option.key in picks]
    wrong: list[Option] = [option for option in picked if not option.right]
    if wrong:
        reasons = [f"{option.key}: {option.text} — {option.why}" for option in wrong]
        return verdict(exercise, "failed", reasons, misconception=wrong[0].text)
    if len(picked) < sum(option.right for option in exercise.options):
        return verdict(exercise, "failed", ["Nothing that you picked is wrong, but something is missing."])
    return verdict(exercise, "passed", [f"{option.key}: {option.text} — {option.why}" for option in picked])


def _keys(options: Mapping) -> str:
    return ", ".join(map(repr, options))


def _judge_reflect(exercise: Exercise, answer: Any) -> Result:
    if not isinstance(answer, str):
        return verdict(exercise, "unanswered", [f"Write your thoughts as text; this is {kind_of(answer)}."])
    words = len(answer.split())
    if words < exercise.min_words:
        sentence = f"Write a little more first: {plural(words, 'word')} so far, of {exercise.min_words} or more."
        return verdict(exercise, "unanswered", [sentence, "Then you will see a model answer to compare with."])
    points = [f"□ {point}" for point in exercise.rubric]
    return verdict(
        exercise, "written", [f"A model answer: {exercise.model_answer}", "Compare. Does yours say:", *points]
    )


_JUDGES = {"number": _judge_number, "shapes": _judge_shapes, "choice": _judge_choice, "reflect": _judge_reflect}


# --- results ----------------------------------------------------------------------------------------------------------


def _unless(exercise: Exercise, problems: list[str], made: Any) -> Result:
    """Passed without problems; otherwise the misconception that `made` recognises, or the problems."""
    if not problems:
        return verdict(exercise, "passed", ["Right."])
    for misconception in exercise.misconceptions:
        if any(made(wrong, misconception.rtol) for wrong in misconception.variants):
            return verdict(exercise, "failed", [misconception.sentence], misconception=misconception.name)
    return verdict(exercise, "failed", problems)


def _unanswered(exercise: Exercise) -> Result:
    asked = f"Write {exercise.signature}" if exercise.signature else "Put your answer in place of the dots"
    return verdict(exercise, "unanswered", [f"{asked}, then run this cell again."])


def verdict(
    exercise: Exercise,
    status: str,
    sentences: Sequence[str],
    evidence: str = "",
    misconception: str | None = None,
    pictures: tuple[str, str] = ("", ""),
) -> Result:
    """A `Result` of this exercise."""
    closing = f'Stuck? hint("{exercise.id}")' if status == "failed" else ""
    named = (exercise.id, exercise.title, status, exercise.points)
    sentences = tuple(sentence[:LONGEST] for sentence in sentences)
    return Result(*named, sentences, evidence[: 4 * LONGEST], misconception, closing, *pictures)
