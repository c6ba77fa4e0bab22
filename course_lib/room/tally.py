"""The data of a room: its learners (a token each, no name), their votes, and the number of learners per mistake.

A learner's latest vote on a guess counts, until the reveal. Votes are numbered in increasing order, so a vote that
arrives twice or late changes nothing. A mistake counts once per learner. Every message is checked against the course's
own guesses and exercises, so the room never stores or shows a learner's text, except numbers.

A file stores only the `summary`: counts without tokens. A room opened with `earlier` continues from such counts.
"""

import math
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from course_lib.course.contents import CHAPTERS, Chapter
from course_lib.grading import EXERCISES
from course_lib.live.guesses import Question, inline_html, questions
from course_lib.room import EXAMPLE, letters_of

LETTERS = "ABCDEFGHJKMNPQRTUVWXY346789"  # without letters that look alike
CODE = 8  # letters, in two halves: 3·10¹¹ codes, too many to try at 2,000 requests a second
BURST, JOINS_A_SECOND = 40, 10  # limits for joining: a class of 400 joins in about half a minute
CODES = re.compile(f"[{LETTERS}]{{{CODE // 2}}} [{LETTERS}]{{{CODE // 2}}}")
TOKEN = re.compile(r"[0-9a-f]{32}")  # chosen by the learner's device, so that a repeated join counts once
MOST_LEARNERS = 400
LONGEST = 200  # characters in an answer
LARGEST = 1e15  # the largest number that can be guessed
MOST_BARS = 6


class Refused(Exception):
    """Raised if a message is refused: an HTTP status, the reason as a sentence, and the seconds until the next try."""

    def __init__(self, status: int, why: str, after: float = 0):
        super().__init__(why)
        self.status, self.after = status, after


@dataclass
class Pace:
    """Limit how often something can happen: `burst` times at once, then `per_second`."""

    burst: float
    per_second: float
    clock: Callable[[], float] = time.monotonic
    _left: float = field(init=False)
    _since: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._since = self.burst, self.clock()

    def require(self, why: str) -> None:
        """Count one event. Errors: Refused, with the reason `why`, if the limit is reached."""
        now = self.clock()
        self._left, self._since = min(self.burst, self._left + (now - self._since) * self.per_second), now
        if self._left < 1:
            raise Refused(429, why, after=math.ceil((1 - self._left) / self.per_second))
        self._left -= 1


class Tally:
    """Hold a room's learners, votes and mistakes, and return the content of its pages.

    Args:
        earlier: the `summary` of a closed room, whose counts, code and reveals are kept.

    Errors: ValueError if these chapters have no guesses.
    """

    def __init__(
        self,
        chapters: Iterable[Chapter] = CHAPTERS,
        clock: Callable[[], float] = time.monotonic,
        earlier: Mapping[str, Any] | None = None,
    ):
        self.questions: dict[str, Question] = {}
        for chapter in chapters:
            self.questions |= questions(chapter.slug)
        if not self.questions:
            raise ValueError("these chapters have no guesses: name other chapters, or none for the whole course")
        earlier = earlier or {}
        self.code = earlier.get("code") or _drawn()
        self.key = secrets.token_urlsafe(16)  # for the teacher's page
        shown = earlier.get("shown", "")
        self.current = shown if shown in self.questions else next(iter(self.questions))
        self.revealed: set[str] = set(earlier.get("revealed", ()))
        self.votes: dict[str, dict[str, tuple[int, str]]] = {id: {} for id in self.questions}  # by guess and token
        self.mistakes: dict[str, dict[str, set[str]]] = {}  # exercise -> name -> tokens
        # Counts from before, without tokens: learners, answers by guess, mistakes by exercise.
        self._learners: int = earlier.get("learners", 0)
        self._answers = {id: Counter(counts) for id, counts in earlier.get("guesses", {}).items()}
        self._mistaken = {id: Counter(counts) for id, counts in earlier.get("mistakes", {}).items()}
        self._clock = clock
        self._paces: dict[str, Pace] = {}  # by token
        self._joins = Pace(BURST, JOINS_A_SECOND, clock)

    # ----------------------------------------------------------------------------------------------- learners' messages

    def join(self, code: str, token: str) -> None:
        """Let in the learner with this token. Errors: Refused.

        Wrong codes are not limited, because the code is too long to guess. So a stranger who tries codes cannot keep
        the class out.
        """
        given, wanted = letters_of(code).encode("utf-8", "replace"), letters_of(self.code).encode()
        if not secrets.compare_digest(given, wanted):
            raise Refused(403, "That is not the room's code. The code is on the projector.")
        if not TOKEN.fullmatch(token):
            raise Refused(422, "A token is 32 hexadecimal digits.")
        if token not in self._paces:
            if len(self._paces) >= MOST_LEARNERS:
                raise Refused(409, f"The room is full: it has {MOST_LEARNERS} learners.")
            self._joins.require("Many learners are joining. You will be let in soon.")
            self._paces[token] = Pace(30, 5, self._clock)

    def vote(self, token: str, guess: str, answer: str, n: int) -> None:
        """Store a vote if it is newer than the stored one. Errors: Refused."""
        self._require_learner(token)
        question = self.questions.get(guess)
        if question is None:
            raise Refused(404, "This room has no such guess.")
        if guess in self.revealed:
            raise Refused(409, "The measurement has been shown, so voting on this guess is closed.")
        if len(answer) > LONGEST or not question.accepts(answer) or not 0 <= n < 2**53:
            raise Refused(422, "That is not an answer to this guess: choose an option, or type a number.")
        if question.number:
            if abs(float(answer)) > LARGEST:
                raise Refused(422, f"The number must not be larger than {LARGEST:g}.")
            answer = f"{float(answer):.6g}"
        before, _ = self.votes[guess].get(token, (-1, ""))
        if n > before:
            self.votes[guess][token] = n, answer

    def mistake(self, token: str, exercise: str, name: str) -> None:
        """Count a mistake that the learner's `check` has recognized. Errors: Refused."""
        self._require_learner(token)
        if exercise not in EXERCISES:
            raise Refused(404, "There is no such exercise.")
        known = EXERCISES[exercise]
        names = {each.name for each in getattr(known, "misconceptions", ())}
        names |= {option.text for option in getattr(known, "options", ()) if not option.right}
        if name not in names:
            raise Refused(422, "No mistake of this exercise has that name.")
        self.mistakes.setdefault(exercise, {}).setdefault(name, set()).add(token)

    def _require_learner(self, token: str) -> None:
        if token not in self._paces:
            raise Refused(401, "The room does not know you. Join with its code.")
        self._paces[token].require("Too many messages: try again in a second.")

    # -------------------------------------------------------------------------------------------- the teacher's actions

    def show(self, guess: str) -> None:
        """Show this guess on all pages."""
        if guess not in self.questions:
            raise Refused(404, "This room has no such guess.")
        self.current = guess

    def reveal(self, guess: str) -> None:
        """Close the votes on this guess, and show its measurement."""
        self.show(guess)
        self.revealed.add(guess)

    def renew(self) -> None:
        """Choose a new code, and remove learners who never voted, so that strangers with the old code take no seats."""
        self.code = _drawn()
        voted = self._voted()
        self._paces = {token: pace for token, pace in self._paces.items() if token in voted}

    def _voted(self) -> set[str]:
        return set().union(*self.votes.values())

    # --------------------------------------------------------------------------------------------- content of the pages

    def for_learner(self, token: str) -> dict[str, Any]:
        """Return the content of a phone: the current question, the learner's vote and, once revealed, the result."""
        self._require_learner(token)
        n, answer = self.votes[self.current].get(token, (0, None))
        return self._question() | {"mine": answer, "n": n}

    def for_teacher(self) -> dict[str, Any]:
        """Return the content of the projector: the question with its bars, the number of learners, and the mistakes."""
        question, answers = self.questions[self.current], [*self._counts(self.current).elements()]
        open = self.current not in self.revealed
        known = [(id, counts) for id, counts in self._counted().items() if id in EXERCISES.entries]
        bars = _ranges(answers) if question.number else [(each, answers.count(each)) for each in question.shown]
        return (
            self._question()
            | {
                "bars": bars,
                "votes": len(answers),
                "right": None if open else sum(map(question.right, answers)),
                "code": self.code,
                "learners": len(self._paces),
                "seats": MOST_LEARNERS,
                "silent": len(self._paces.keys() - self._voted()),  # a new code removes them
                "questions": list(self.questions),
                "mistakes": [
                    {"exercise": id, "title": EXERCISES.entries[id].title, "names": counts.most_common(3)}
                    for id, counts in sorted(known, key=lambda each: -each[1].total())[:4]
                ],
            }
        )

    def summary(self) -> dict[str, Any]:
        """Return the room's data for a file. It identifies no learner.

        It contains the code, the current guess, the revealed guesses, the largest number of learners, the answers by
        guess and the mistakes by exercise.
        """
        ids = [*self.votes, *(id for id in self._answers if id not in self.votes)]
        counts = {id: self._counts(id) for id in ids}
        return {
            "code": self.code,
            "shown": self.current,
            "revealed": sorted(self.revealed),
            "learners": max(self._learners, len(self._paces)),
            "guesses": {id: counted for id, counted in counts.items() if counted},
            "mistakes": self._counted(),
        }

    def _counts(self, guess: str) -> Counter[str]:
        return Counter(answer for _, answer in self.votes.get(guess, {}).values()) + self._answers.get(guess, Counter())

    def _question(self) -> dict[str, Any]:
        question, open = self.questions[self.current], self.current not in self.revealed
        told = {
            "id": question.id,
            "text": inline_html(question.text),
            "options": question.shown,
            "unit": question.number.unit if question.number else None,
            "open": open,
        }
        return (
            told if open else told | {"answer": question.answer, "reason": inline_html(question.reply(question.answer))}
        )

    def _counted(self) -> dict[str, Counter[str]]:
        now = {id: Counter({name: len(made) for name, made in names.items()}) for id, names in self.mistakes.items()}
        ids = [*self._mistaken, *(id for id in now if id not in self._mistaken)]
        return {id: now.get(id, Counter()) + self._mistaken.get(id, Counter()) for id in ids}


def require_summary(found: object) -> dict[str, Any]:
    """Return the data read from a file. Errors: ValueError unless it is the `summary` of a room.

    Only the counts are required, because earlier versions stored nothing else.
    """
    beside = {"code": EXAMPLE, "shown": "", "revealed": []}
    if not isinstance(found, dict) or found.keys() - beside.keys() != {"learners", "guesses", "mistakes"}:
        raise ValueError("it does not have the contents of a room's file")
    told, parts = beside | found, [found["guesses"], found["mistakes"]]
    tables = [table for part in parts if isinstance(part, dict) for table in part.values()]
    counts = [count for table in tables if isinstance(table, dict) for count in table.values()]
    right = [
        *(isinstance(each, dict) for each in parts + tables),
        *(type(count) is int and count >= 0 for count in [told["learners"], *counts]),
        isinstance(told["revealed"], list) and all(isinstance(each, str) for each in told["revealed"]),
        isinstance(told["shown"], str) and CODES.fullmatch(str(told["code"])),
    ]
    if not all(right):
        raise ValueError("its contents are not what a room counts")
    return found


def _drawn() -> str:
    letters = "".join(secrets.choice(LETTERS) for _ in range(CODE))
    return f"{letters[: CODE // 2]} {letters[CODE // 2 :]}"


def _ranges(answers: list[str]) -> list[tuple[str, int]]:
    """Return the bars for guesses of a number. Each number has a bar if there are only a few different ones.

    Otherwise the bars are ranges of equal width from the 10th to the 90th percentile, with the rest in the two outer
    bars.
    """
    values = sorted(map(float, answers))
    counts = Counter(values)
    if len(counts) <= MOST_BARS:
        return [(f"{value:,.6g}", count) for value, count in counts.items()]
    low, high = values[len(values) // 10], values[-1 - len(values) // 10]
    edges = sorted({float(f"{low + (high - low) * i / (MOST_BARS - 2):.3g}") for i in range(MOST_BARS - 1)})
    names = [f"under {edges[0]:,.6g}", *(f"{a:,.6g} to {b:,.6g}" for a, b in pairwise(edges))]
    names.append(f"{edges[-1]:,.6g} and more")
    placed = Counter(sum(value >= edge for edge in edges) for value in values)
    return [(name, placed[i]) for i, name in enumerate(names)]
