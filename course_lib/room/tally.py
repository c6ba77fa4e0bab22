"""What a room knows: who is in it (a token each, no name), their votes, and how often each mistake was made.

A vote is the latest of one learner on one guess, until the reveal: each bears a number that grows, so that one that
arrives twice, or late, changes nothing. A mistake counts once for each learner. Everything that comes in is held
against the course's own pages, so that no text of a learner's is ever kept or shown, but for numbers.

What a file keeps is `summary`, counts without tokens; a room that is opened with `earlier` goes on from there.
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
from course_lib.live.guesses import MARKDOWN, Question, questions
from course_lib.room import EXAMPLE, letters_of

LETTERS = "ABCDEFGHJKMNPQRTUVWXY346789"  # none is taken for another
CODE = 8  # letters, shown in two halves: 3·10¹¹ codes, and a server that answers 2,000 requests a second
BURST, JOINS_A_SECOND = 40, 10  # learners that are let in: a class of 400 waits for half a minute
CODES = re.compile(f"[{LETTERS}]{{{CODE // 2}}} [{LETTERS}]{{{CODE // 2}}}")
TOKEN = re.compile(r"[0-9a-f]{32}")  # learners draw their own, so that a join that is sent twice is one
MOST_LEARNERS = 400
LONGEST = 200  # characters of an answer
LARGEST = 1e15  # a guess of a number
MOST_BARS = 6


class Refused(Exception):
    """What is not taken: an HTTP status, why in a sentence, and after how many seconds it may be asked again."""

    def __init__(self, status: int, why: str, after: float = 0):
        super().__init__(why)
        self.status, self.after = status, after


@dataclass
class Pace:
    """How often something may happen: `burst` times at once, then `per_second`."""

    burst: float
    per_second: float
    clock: Callable[[], float] = time.monotonic
    _left: float = field(init=False)
    _since: float = field(init=False)

    def __post_init__(self) -> None:
        self._left, self._since = self.burst, self.clock()

    def require(self, why: str) -> None:
        """Count it. Refused if it may not happen now."""
        now = self.clock()
        self._left, self._since = min(self.burst, self._left + (now - self._since) * self.per_second), now
        if self._left < 1:
            raise Refused(429, why, after=math.ceil((1 - self._left) / self.per_second))
        self._left -= 1


class Tally:
    """A room's members, votes and mistakes, with what its pages are told of them.

    earlier: the `summary` of a room that was closed. Its counts and its code are kept, and its reveals.
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
            raise ValueError("these chapters ask no guesses: name others, or none for the whole course")
        earlier = earlier or {}
        self.code = earlier.get("code") or _drawn()
        self.key = secrets.token_urlsafe(16)  # of the teacher's page
        shown = earlier.get("shown", "")
        self.current = shown if shown in self.questions else next(iter(self.questions))
        self.revealed: set[str] = set(earlier.get("revealed", ()))
        self.votes: dict[str, dict[str, tuple[int, str]]] = {id: {} for id in self.questions}  # by guess and token
        self.mistakes: dict[str, dict[str, set[str]]] = {}  # by exercise and name: the tokens
        # Of before, whose tokens nobody knows: learners, answers by guess, mistakes by exercise.
        self._learners: int = earlier.get("learners", 0)
        self._answers = {id: Counter(counts) for id, counts in earlier.get("guesses", {}).items()}
        self._mistaken = {id: Counter(counts) for id, counts in earlier.get("mistakes", {}).items()}
        self._clock = clock
        self._paces: dict[str, Pace] = {}  # by token
        self._joins = Pace(BURST, JOINS_A_SECOND, clock)

    # --- what learners do ---

    def join(self, code: str, token: str) -> None:
        """Let a learner in, who has drawn this token. Wrong codes change nothing: the code is too long to be found by
        trying, so the right one always passes, one learner after the other."""
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
        """Take a vote, if it is newer than the one that is there."""
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
        """Count a mistake that the learner's `check` has named."""
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

    # --- what the teacher does ---

    def show(self, guess: str) -> None:
        """Make this the question that the pages show."""
        if guess not in self.questions:
            raise Refused(404, "This room has no such guess.")
        self.current = guess

    def reveal(self, guess: str) -> None:
        """Close the votes on this guess, and show what was measured."""
        self.show(guess)
        self.revealed.add(guess)

    def renew(self) -> None:
        """Draw a new code, and send away those that never voted: a stranger with the old code holds no seat."""
        self.code = _drawn()
        voted = self._voted()
        self._paces = {token: pace for token, pace in self._paces.items() if token in voted}

    def _voted(self) -> set[str]:
        return set().union(*self.votes.values())

    # --- what pages are told ---

    def for_learner(self, token: str) -> dict[str, Any]:
        """Return what a phone shows: the current question, its own vote, and once it is revealed the measurement."""
        self._require_learner(token)
        n, answer = self.votes[self.current].get(token, (0, None))
        return self._question() | {"mine": answer, "n": n}

    def for_teacher(self) -> dict[str, Any]:
        """Return what the projector shows: the question with its bars, how many are in the room, the mistakes."""
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
                "silent": len(self._paces.keys() - self._voted()),  # a new code sends them away
                "questions": list(self.questions),
                "mistakes": [
                    {"exercise": id, "title": EXERCISES.entries[id].title, "names": counts.most_common(3)}
                    for id, counts in sorted(known, key=lambda each: -each[1].total())[:4]
                ],
            }
        )

    def summary(self) -> dict[str, Any]:
        """Return what a file keeps, which identifies nobody: the code, what is shown and what is revealed, how many
        learners there are (or were before), answers by guess, mistakes by exercise."""
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
            "text": _html(question.text),
            "options": question.shown,
            "unit": question.number.unit if question.number else None,
            "open": open,
        }
        return told if open else told | {"answer": question.answer, "reason": _html(question.reply(question.answer))}

    def _counted(self) -> dict[str, Counter[str]]:
        now = {id: Counter({name: len(made) for name, made in names.items()}) for id, names in self.mistakes.items()}
        ids = [*self._mistaken, *(id for id in now if id not in self._mistaken)]
        return {id: now.get(id, Counter()) + self._mistaken.get(id, Counter()) for id in ids}


def require_summary(found: object) -> dict[str, Any]:
    """Return what was read from a file if it is the `summary` of a room. Only counts have to be there: earlier versions
    kept nothing else. Errors: ValueError otherwise."""
    beside = {"code": EXAMPLE, "shown": "", "revealed": []}
    if not isinstance(found, dict) or found.keys() - beside.keys() != {"learners", "guesses", "mistakes"}:
        raise ValueError("it does not hold what a room keeps")
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
        raise ValueError("what it holds is not what a room counts")
    return found


def _drawn() -> str:
    letters = "".join(secrets.choice(LETTERS) for _ in range(CODE))
    return f"{letters[: CODE // 2]} {letters[CODE // 2 :]}"


def _html(markdown: str) -> str:
    return MARKDOWN.renderInline(markdown).replace("\n", " ")


def _ranges(answers: list[str]) -> list[tuple[str, int]]:
    """Return bars for guesses of a number: a bar for each where they are few, otherwise ranges of one width between
    the tenth part that is lowest and the tenth that is highest, which stand in the outermost bars."""
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
