"""One submission: a result for every expected exercise, whatever was handed in."""

import re
import time
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import NamedTuple

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.read.repair import ABOVE, MOST_VERSIONS, newer_syntax, newest, versions
from course_lib.classroom.read.submission_reader import Notebook, Submission
from course_lib.classroom.sandbox.remote import Ended, Worker
from course_lib.classroom.sandbox.session import Found, Session
from course_lib.grading.engine import judge_calls, judge_value, ready_trials
from course_lib.grading.judge.call import Failure, Outcome
from course_lib.grading.judge.limits import Stop
from course_lib.grading.judge.show import plural
from course_lib.grading.kinds import Exercise
from course_lib.grading.page.catalogue import EXERCISES
from course_lib.grading.result import Result

MOST_ASKS = 20  # of one submission
MOST_TEXT = 10_000  # characters of a reflection that are kept; what is cut off is said
ABOVE_ERROR = re.compile(r"cell (\d+): " + ABOVE.format(names="((?:`\\w+`(?:, )?)+)"))
WANTED = {each.answer_name: each.kind in ("code", "experiment") for each in EXERCISES.entries.values()}


def mark(
    submission: Submission, expected: Sequence[Exercise], worker: Worker, seed: int, seconds: float | None = None
) -> GradedSubmission:
    """Grade one submission on cases that `seed` draws. A result for every expected exercise, in the course's order.

    `worker.doubted` names those that failed by time, memory or a signal. seconds: less than the worker's for all of it.

    An answer may stand in any notebook. If several hold one, those of its chapter come first, and of these the first
    that answers; of versions of one notebook the best as a whole, and then what it leaves open of the others. In a
    notebook, the last answer counts. A notebook is run only if it may answer what is still open.
    Errors: Fault if the machine failed: then nothing is known of the submission, and it should be tried again.
    """
    deadline = time.monotonic() + (worker.quotas.timeout if seconds is None else seconds)
    worker.doubted = set()
    all_answers = _Answers()
    troubles, salvaged = list(submission.all_troubles), list(submission.salvaged)
    run: list[tuple[Notebook, Sequence[_Newer], Sequence[str]]] = []  # and what is said of its cells
    chapters = {exercise.chapter for exercise in expected}
    for notebooks in sorted(compared(submission), key=lambda group: not chapters & group[0].chapters):
        tried: list[tuple[str, _Answers]] = []
        for notebook in all_answers.needed(notebooks, expected):
            answers = _Answers() if len(notebooks) > 1 else all_answers
            session = Session(
                worker,
                notebook,
                submission.beside(notebook),
                WANTED,
                deadline,
                salvage=submission.salvage,
                unfinished=submission.unfinished,
            )
            try:
                answers.take(session, expected, seed, notebook.chapters)
            finally:
                session.close()
            troubles += [f"{notebook.path}: {trouble}" for trouble in session.found.troubles]
            newer = _newer(notebook, session.found.troubles, submission.files)
            troubles += [f"{notebook.path}: cell {each.cell} may need a newer Python: {each.why}" for each in newer]
            run.append((notebook, newer, session.found.troubles))
            saved = (*submission.runs(notebook), *session.found.salvaged)
            salvaged += [f"{notebook.path}: {each}" for each in saved]
            tried.insert(0, (notebook.path, answers))
        if len(tried) > 1:
            tried.sort(key=lambda each: each[1].worth, reverse=True)  # of equal ones the newest stays first
            salvaged += _which(tried)
            for _, answers in tried:
                all_answers.add(answers)
    results, elsewhere = all_answers.own, all_answers.elsewhere
    graded = []
    for exercise in expected:
        own, other = results.get(exercise.id), elsewhere.get(exercise.id)
        graded.append((other if _is_open(own) else own) or own or Marked(_missing(exercise, submission)))
    marks = tuple(marked.result for marked in graded)
    texts = {marked.result.exercise_id: marked.text for marked in graded if marked.text}
    worker.doubted -= {result.exercise_id for result in marks if result.passed}
    lost = {each.answer_name for each, result in zip(expected, marks) if not result.passed}
    asks = [ask for notebook, newer, told in run for ask in _asks(notebook, newer, told, lost)]
    return GradedSubmission(
        submission.name,
        submission.digest,
        marks,
        tuple(troubles),
        texts,
        submission.learner,
        tuple(salvaged),
        asks=tuple(asks[:MOST_ASKS]),
    )


class _Answers:
    """Results by exercise. own: of a notebook of the exercise's chapter · elsewhere: of another."""

    def __init__(self) -> None:
        self.own: dict[str, Marked] = {}
        self.elsewhere: dict[str, Marked] = {}

    @property
    def answered(self) -> dict[str, "Marked"]:
        return {id: marked for id, marked in {**self.elsewhere, **self.own}.items() if not _is_open(marked)}

    @property
    def worth(self) -> int:
        """Return the points by which versions are compared: those for code. Other answers may be guesses, of which the
        last counts in a notebook, and the newest of versions: the best would be given away."""
        return sum(each.result.earned for id, each in self.answered.items() if WANTED[EXERCISES[id].answer_name])

    def take(self, session: Session, expected: Sequence[Exercise], seed: int, chapters: set[int]) -> None:
        """Grade what is open still, in one notebook."""
        cells = session.doubts
        for exercise in expected:
            place = self.own if not chapters or exercise.chapter in chapters else self.elsewhere
            before = session.doubts
            if _is_open(place.get(exercise.id)) and (marked := _graded(session, exercise, seed)):
                place[exercise.id] = marked
            if cells or session.doubts > before:
                session.worker.doubted.add(exercise.id)

    def needed(self, notebooks: Sequence[Notebook], expected: Sequence[Exercise]) -> list[Notebook]:
        """Return those of the notebooks that may answer what is open still."""
        return [each for each in notebooks if may_define(each, self._open(expected, each.chapters))]

    def _open(self, expected: Sequence[Exercise], chapters: set[int]) -> set[str]:
        """Return the names of the answers for which a notebook of these chapters could count."""
        names = set()
        for exercise in expected:
            is_own = not chapters or exercise.chapter in chapters
            places = (self.own,) if is_own else (self.own, self.elsewhere)
            if all(_is_open(place.get(exercise.id)) for place in places):
                names.add(exercise.answer_name)
        return names

    def add(self, other: "_Answers") -> None:
        """Take what is open still from another notebook's."""
        for mine, its in ((self.own, other.own), (self.elsewhere, other.elsewhere)):
            mine |= {id: marked for id, marked in its.items() if _is_open(mine.get(id))}


def compared(submission: Submission) -> list[list[Notebook]]:
    """Return the notebooks in the order in which they are graded, versions of one in one list.

    Of many versions the last few are compared, and the others come at the end: there they answer what is open still.
    One of the same cells as another is none.
    """
    notebooks = submission.notebooks
    if not submission.salvage:
        return [[notebook] for notebook in notebooks]
    groups, rest = [], []
    for places in versions([notebook.path for notebook in notebooks]):
        group = list({notebooks[place].cells: notebooks[place] for place in places}.values())
        if len(group) > 1 and set.intersection(*(notebook.chapters for notebook in group)):
            groups.append(group[-MOST_VERSIONS:])
            rest += [[notebook] for notebook in group[:-MOST_VERSIONS]]
        else:
            groups += [[notebook] for notebook in group]
    return groups + rest


# Code that may define what it does not name: then the notebook is run.
DYNAMIC = re.compile(
    r"import\s*\*|%\s*(?:run|load|macro)|\b(?:exec|eval|globals|locals|vars|setattr|get_ipython)\b|__dict__"
)


def may_define(notebook: Notebook, names: set[str]) -> bool:
    """Say whether any of its cells could give one of these names a value. If in doubt, it could.

    A definition, an assignment and an import write the name out; everything else is `DYNAMIC`, or mentions no name.
    """
    code = "\n".join(cell.source for cell in notebook.cells)  # a fence in a cell of prose may hold an answer, too
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", code))  # as Python reads names
    return bool(names) and (not names.isdisjoint(words) or bool(DYNAMIC.search(code)))


def _which(tried: Sequence[tuple[str, _Answers]]) -> list[str]:
    """Say which of the versions of a notebook, the best first, counts where several answer the same."""
    times = Counter(id for _, answers in tried for id in answers.answered)
    if max(times.values(), default=0) < 2:
        return []
    first, *others = [f"{path} ({plural(answers.worth, 'point')})" for path, answers in tried]
    rule = "Of versions of one notebook the one with the best code counts, and of equal ones the newest"
    return [f"{rule}: {first}, before {', '.join(others)}"]


class _Newer(NamedTuple):
    """A cell that cannot be read because it, or a helper file, is written for a newer Python."""

    cell: int
    why: str
    version: str


def _newer(notebook: Notebook, troubles: Sequence[str], files: Mapping[str, str]) -> list[_Newer]:
    """Return the cells that failed and show that they need a newer Python."""
    sources = {cell.number: cell.source for cell in notebook.cells}
    found = []
    for failed in filter(None, (re.match(r"cell (\d+): (?:Syntax|Indentation)Error", each) for each in troubles)):
        helpers = [text for path, text in files.items() if f"({path.rpartition('/')[2]}, line " in failed.string]
        source = "\n".join([sources.get(int(failed[1]), ""), *helpers])
        if why := newer_syntax(source, notebook.python):
            found.append(_Newer(int(failed[1]), why, ".".join(map(str, newest(source, notebook.python)))))
    return found


def _asks(notebook: Notebook, newer: Sequence[_Newer], troubles: Sequence[str], lost: Set[str]) -> list[str]:
    """Return what a teacher should look at where answers are lost that did not run. lost: their names."""
    asks = [
        f"cell {each.cell} did not run: {each.why}. Grade it with Python {each.version} or newer." for each in newer
    ]
    for found in filter(None, map(ABOVE_ERROR.match, troubles)):
        names = [f"`{name}`" for name in re.findall(r"`(\w+)`", found[2]) if name in lost]
        if names and not any(each.cell == int(found[1]) for each in newer):
            what = ABOVE.format(names=", ".join(names))
            asks.append(f"cell {found[1]}: {what}. With `--salvage unfinished` they run and count.")
    return [f"{notebook.path}: {ask}" for ask in asks] if lost else []


class Marked(NamedTuple):
    """A result, and of a reflection what was written."""

    result: Result
    text: str = ""


def _is_open(marked: Marked | None) -> bool:
    return marked is None or marked.result.status == "unanswered"


def _missing(exercise: Exercise, submission: Submission) -> Result:
    if not submission.notebooks:
        return exercise.verdict("unanswered", ["No notebook was handed in."])
    return exercise.verdict("unanswered", [f"No cell that could be run defines `{exercise.answer_name}`."])


def _graded(session: Session, exercise: Exercise, seed: int) -> Marked | None:
    """Return the result of an exercise in one notebook; None if it does not stand there."""
    name = exercise.answer_name
    found: Found = session.found
    marked = None
    if name in found.open:
        marked = Marked(exercise.verdict("unanswered", ["Left open."]))
    for which in reversed(range(found.answers.get(name, 0))):
        marked = _one(session, exercise, name, which, seed)
        if not _is_open(marked):
            return marked
    return marked


def _one(session: Session, exercise: Exercise, name: str, which: int, seed: int) -> Marked:
    seconds = session.worker.quotas.exercise_timeout or exercise.time_limit
    try:
        if exercise.kind not in ("code", "experiment"):
            read = session.read(name, which, seconds)
            result = _judged(lambda: judge_value(exercise, read), exercise)
            return Marked(result, _text(read.value) if result.status == "written" else "")
        trials = ready_trials(exercise, seed)
        try:
            outcomes = session.run(name, which, trials, seconds)
        except Ended as error:
            trials = trials[error.call : error.call + 1]
            outcomes = [Outcome(failure=Failure("exit", error.sentence))]
        return Marked(_judged(lambda: judge_calls(exercise, trials, outcomes), exercise))
    except Ended as error:
        return Marked(exercise.verdict("failed", [error.sentence]))


def _text(written: str) -> str:
    """Return what was written in a reflection, to be kept: cut where nobody reads on."""
    more = len(written) - MOST_TEXT
    return written if more <= 0 else f"{written[:MOST_TEXT]} … ({more:,} more characters)"


def _judged(judge, exercise: Exercise) -> Result:
    """Return a result without the line on hints. What cannot be judged, whatever it is, is not right."""
    try:
        result = judge()
    except (Ended, Stop):
        raise
    except Exception as error:
        result = exercise.verdict("failed", [f"Your result could not be compared ({type(error).__name__})."])
    return replace(result, closing="")
