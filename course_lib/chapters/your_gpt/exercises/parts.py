from course_lib.chapters.your_gpt.fixtures import gathered as probe
from course_lib.grading.exercise import Case, stage
from course_lib.grading.judge.compare import compare


def gather_parts(fetch, exercises, library):
    """Return (parts, lent): every part by name, and the names of lent ones."""
    parts, lent = {}, []
    for name, exercise in exercises.items():
        try:
            parts[name] = fetch(exercise)
        except ValueError:
            parts[name] = library[name]
            lent.append(name)
    return parts, lent


RAISED = "Your function raises a KeyError, although all ids in this case exist. What do you pass to `fetch`?"


def judge(case, expected, got):
    told, wanted = (parts[0] if isinstance(parts, tuple) and parts else None for parts in (got, expected))
    if wanted == "KeyError" and isinstance(told, dict):
        return "`fetch` raised a KeyError, and your function caught it. Do not catch this error."
    if isinstance(told, str) and told != wanted:
        return RAISED if told == "KeyError" else f"`parts` should be a dictionary; it is the text {told!r}."
    return compare(expected, got, names=("parts", "lent"))


TABLE = {
    "norm": "normalization.layer_norm",
    "mask": "masks.causal",
    "block": "blocks.pre_norm",
    "draw": "sampling.top_k",
}


def some(*names):
    return {name: TABLE[name] for name in names}


@stage
def one_part(seed):
    "One part, which may or may not have been handed in."
    return [Case(["masks.causal"], some("mask")), Case([], some("norm"))]


@stage
def several_parts(seed):
    "Several parts: some were handed in, and the library lends the others, listed in order."
    return [
        Case(["normalization.layer_norm"], some("norm", "mask")),
        Case(["masks.causal", "sampling.top_k"], TABLE),
        Case([], some("norm", "mask", "block")),
        Case(list(TABLE.values()), TABLE),
        Case([], TABLE),  # four names: sorted, backwards and by their ids they have four orders
    ]


@stage
def unknown_exercise(seed):
    "An id that does not exist: the KeyError is not caught."
    return [Case(["masks.causal"], {"mask": "masks.causal", "norm": "norms.no_such"})]
