"""Two mistakes of a page in one answer: the answer of a learner who makes both, and the sentences about them.

No page describes a pair. Two changes of the reference are applied one after the other. An expression or a definition
that calls the reference, `x + causal_self_attention(x, …)`, calls the version with the other mistake.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import combinations
from typing import Any

from course_lib.grading.exercise import Misconception
from course_lib.grading.mistakes import Along, Change, Definition, Expression, Lines, Reference, WrittenMistake

MOST_LATER = 300  # pairs with a form that comes after "also"
Written = Change | Lines | Expression | Definition


SENTENCE = re.compile(r"(?<=[.!?])\s+")
APPROVED = re.compile(
    r"(?P<what>[^.,;:]*?)\s(?:is|are) right(?P<link>[,;] (?:and |but )?| and | but |[.!]?$)", re.DOTALL
)
ASIDE = re.compile(r", which (?:is|are) right(?:, |(?=[.;:]))")
UNFINISHED = re.compile(
    r"(^(?:[^.:;,(]|\([^)]*\))*? (?:is|are) not)(?=[.:;,])"
)  # "The unit is not: …", after a clause about a right part
RIGHT_FOR = re.compile(r"^Right,? (?=\w)")


def in_company(text: str) -> str:
    """Return the sentence about a mistake for an answer that makes another mistake as well. It omits the sentences and
    clauses that call a part right, because the other mistake may be in that part.

    "The mask is right. You keep …" becomes "You keep …", and "The size is right, the unit is not: …" becomes "The unit
    is not right: …". "Right for small scores, but …" applies to only one of the mistakes, so the new sentence says
    "This part is right for …".
    """
    kept: list[str] = []
    for sentence in SENTENCE.split(text.strip()):
        rest = RIGHT_FOR.sub("This part is right ", ASIDE.sub(" ", sentence))
        if found := APPROVED.match(rest):
            rest = rest[found.end() :]
            if found["link"] == " and " and not re.match(r"(?:the|you|your|a|an|it|that|what|so|`)\b", rest):
                rest = f"{found['what']} {rest}"
            rest = "" if re.match(r"so (?:is|are)\b", rest) else UNFINISHED.sub(r"\1 right", rest)
        kept.append(rest if rest == sentence else f"{rest[:1].upper()}{rest[1:]}")
        if len(kept) > 1 and not kept[-2]:
            after = kept[-1].removeprefix("But ")
            kept[-1] = f"{after[:1].upper()}{after[1:]}"
    return " ".join(filter(None, kept))


class Pairs:
    """The pairs of an exercise's mistakes. Each is made on first use and then cached."""

    def __init__(self, mistakes: Sequence[Misconception | WrittenMistake]):
        self._made: list[tuple[WrittenMistake, WrittenMistake, Callable]] = []
        self._rest = _all(mistakes)

    def __iter__(self) -> Iterator[tuple[WrittenMistake, WrittenMistake, Callable]]:
        """Yield the two mistakes, in the order of the page, and the answer with both."""
        yield from self._made
        for found in self._rest:
            self._made.append(found)
            yield found


@cache
def pairs_of(exercise: Any) -> Pairs:
    """Return the pairs of an exercise's mistakes, the same object each time."""
    return Pairs(exercise.misconceptions)


def _all(mistakes: Sequence[Any]) -> Iterator[tuple[WrittenMistake, WrittenMistake, Callable]]:
    """Yield first the pairs of first forms, which are the most common, then the pairs with a form that comes after
    "also"."""
    written = [mistake for mistake in mistakes if isinstance(mistake, WrittenMistake) and mistake.reference]
    later: list[tuple[WrittenMistake, WrittenMistake, Written, Written]] = []
    for one, other in combinations(written, 2):
        first, *others = ([form for form in mistake.forms if isinstance(form, Written)] for mistake in (one, other))
        second = others[0]
        if first and second and (made := _both(first[0], second[0], one.reference)):
            yield one, other, made
        later += [(one, other, first[0], form) for form in second[1:] if first]
        later += [(one, other, form, second[0]) for form in first[1:] if second]
    for one, other, form, another in later[:MOST_LATER]:
        if made := _both(form, another, one.reference):
            yield one, other, made


def _both(one: Written, other: Written, reference: Reference | None) -> Callable | None:
    """Return the reference with both forms applied, the second last if possible; None if neither order works."""
    assert reference is not None  # every form here is a change of one, or calls one
    for below, above in ((one, other), (other, one)):
        try:
            if isinstance(below, (Change, Lines)) and isinstance(above, (Change, Lines)):
                both = Along(below, above)
                both.require_sound(reference)
                return both.made(reference)
            if isinstance(above, (Expression, Definition)) and re.search(rf"\b{reference.name}\b", above.text):
                return above.made(reference, **{reference.name: below.made(reference)})
        except Exception:  # one form removes text or a name that the other needs
            continue
    return None
