"""Mark one submission: give a result for every expected exercise, whatever was submitted.

A submission to be marked is a job: plain data that can be sent anywhere, and tried again if the machine fails. A job
that failed through no fault of its learner never counts as a zero.
"""

import re
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.read.salvage import MOST_VERSIONS, newer_syntax, newest, versions
from course_lib.classroom.read.submission_reader import Notebook, Submission
from course_lib.classroom.sandbox.protocol import ABOVE
from course_lib.classroom.sandbox.quotas import Quotas
from course_lib.classroom.sandbox.remote import Ended, Fault, Worker
from course_lib.classroom.sandbox.session import Found, Session
from course_lib.classroom.sandbox.stage import SandboxError
from course_lib.grading.engine import judge_calls, judge_value, ready_trials
from course_lib.grading.judge.call import Failure, Outcome
from course_lib.grading.judge.limits import Stop
from course_lib.grading.judge.show import plural
from course_lib.grading.kinds import Exercise
from course_lib.grading.page.catalogue import EXERCISES, get
from course_lib.grading.result import Result

MOST_ASKS = 20  # per submission
MOST_TEXT = 10_000  # kept characters of a reflection; a longer one is cut with a note
ABOVE_ERROR = re.compile(r"cell (\d+): " + ABOVE.format(names="((?:`\\w+`(?:, )?)+)"))
CALLED = ("code", "experiment", "file")
WANTED = {each.answer_name: each.kind in CALLED for each in EXERCISES.entries.values()}
TRIES = 3  # per submission, when workers fail
SHORTEST = 1.0  # seconds that must remain for a second run when both runs share one time limit
SECOND = (
    "A first run of this answer was ended by time, memory or a signal; a second run, alone, passed. That one counts."
)
DIFFERS = (
    "A first run of this answer was ended by time, memory or a signal, and a second run, alone, earned other points. "
    "That one counts."
)


def mark(
    submission: Submission, expected: Sequence[Exercise], worker: Worker, seed: int, seconds: float | None = None
) -> GradedSubmission:
    """Grade one submission on cases drawn from `seed`, and return a result for every expected exercise, in order.

    `worker.doubted` contains the exercises failed by time, memory or a signal.

    An answer may be in any notebook. If several contain one, notebooks of its chapter come first, and then the earliest
    notebook. Among versions of one notebook, the best as a whole counts first, and the others fill its gaps. In a
    notebook, the last answer counts. A notebook only runs if it may answer an open exercise.

    Args:
        seconds: a time limit for the submission, shorter than the worker's.

    Errors: Fault if the machine failed: then nothing is known of the submission, and it should be tried again.
    """
    deadline = time.monotonic() + (worker.quotas.timeout if seconds is None else seconds)
    worker.doubted = set()
    all_answers = _Answers()
    troubles, salvaged = list(submission.all_troubles), list(submission.salvaged)
    run: list[tuple[Notebook, Sequence[_Newer], Sequence[str]]] = []  # and the messages about its cells
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
                answers.take(session, asked_of(notebook, expected), seed, notebook.chapters)
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
            tried.sort(key=lambda each: each[1].worth, reverse=True)  # among equal ones, the newest stays first
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
    """Results by exercise. own: from a notebook of the exercise's chapter. elsewhere: from another one."""

    def __init__(self) -> None:
        self.own: dict[str, Marked] = {}
        self.elsewhere: dict[str, Marked] = {}

    @property
    def answered(self) -> dict[str, "Marked"]:
        return {id: marked for id, marked in {**self.elsewhere, **self.own}.items() if not _is_open(marked)}

    @property
    def worth(self) -> int:
        """Return the points for code, which decide between versions.

        Other answers may be guesses. The last one in a notebook counts, and the newest among versions: counting the
        best one would reward guessing.
        """
        return sum(each.result.earned for id, each in self.answered.items() if WANTED[EXERCISES[id].answer_name])

    def take(self, session: Session, expected: Sequence[Exercise], seed: int, chapters: set[int]) -> None:
        """Grade the open exercises in one notebook."""
        cells = session.doubts
        for exercise in expected:
            place = self.own if not chapters or exercise.chapter in chapters else self.elsewhere
            before = session.doubts
            if _is_open(place.get(exercise.id)) and (marked := _graded(session, exercise, seed)):
                place[exercise.id] = marked
            if cells or session.doubts > before:
                session.worker.doubted.add(exercise.id)

    def needed(self, notebooks: Sequence[Notebook], expected: Sequence[Exercise]) -> list[Notebook]:
        """Return the notebooks that may answer an open exercise."""
        return [each for each in notebooks if may_define(each, self._open(asked_of(each, expected), each.chapters))]

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
        """Fill the open exercises from another notebook's results."""
        for mine, its in ((self.own, other.own), (self.elsewhere, other.elsewhere)):
            mine |= {id: marked for id, marked in its.items() if _is_open(mine.get(id))}


def asked_of(notebook: Notebook, expected: Sequence[Exercise]) -> Sequence[Exercise]:
    """Return the exercises that a notebook may answer; my_gpt.py answers a single one, whatever names are in it."""
    return [each for each in expected if notebook.answers in ("", each.id)]


def compared(submission: Submission) -> list[list[Notebook]]:
    """Return the notebooks in grading order, with versions of one notebook in one list.

    Of many versions, only the last few are compared. The others come at the end and can still fill gaps. A notebook
    with the same cells as another is not a version.
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


# Code that may define a name without writing it out: then the notebook runs.
DYNAMIC = re.compile(
    r"import\s*\*|%\s*(?:run|load|macro)|\b(?:exec|eval|globals|locals|vars|setattr|get_ipython)\b|__dict__"
)


def may_define(notebook: Notebook, names: set[str]) -> bool:
    """Return whether any cell could define one of these names. In doubt, it could.

    Definitions, assignments and imports write the name out. Everything else is `DYNAMIC`, or does not contain the name.
    """
    code = "\n".join(cell.source for cell in notebook.cells)  # a fence in a text cell may also contain an answer
    words = re.findall(r"\w+", unicodedata.normalize("NFKC", code))  # as Python reads names
    return bool(names) and (not names.isdisjoint(words) or bool(DYNAMIC.search(code)))


def _which(tried: Sequence[tuple[str, _Answers]]) -> list[str]:
    """Return notes on which version of a notebook, best first, counts where several answer the same exercise."""
    times = Counter(id for _, answers in tried for id in answers.answered)
    if max(times.values(), default=0) < 2:
        return []
    first, *others = [f"{path} ({plural(answers.worth, 'point')})" for path, answers in tried]
    rule = "Of versions of one notebook the one with the best code counts, and of equal ones the newest"
    return [f"{rule}: {first}, before {', '.join(others)}"]


class _Newer(NamedTuple):
    """A cell that cannot be read because it, or a helper file, needs a newer Python."""

    cell: int
    why: str
    version: str


def _newer(notebook: Notebook, troubles: Sequence[str], files: Mapping[str, str]) -> list[_Newer]:
    """Return the failed cells that show signs of a newer Python."""
    sources = {cell.number: cell.source for cell in notebook.cells}
    found = []
    for failed in filter(None, (re.match(r"cell (\d+): (?:Syntax|Indentation)Error", each) for each in troubles)):
        helpers = [text for path, text in files.items() if f"({path.rpartition('/')[2]}, line " in failed.string]
        source = "\n".join([sources.get(int(failed[1]), ""), *helpers])
        if why := newer_syntax(source, notebook.python):
            found.append(_Newer(int(failed[1]), why, ".".join(map(str, newest(source, notebook.python)))))
    return found


def _asks(notebook: Notebook, newer: Sequence[_Newer], troubles: Sequence[str], lost: Set[str]) -> list[str]:
    """Return the questions for a teacher where answers were lost because they did not run. lost: the answers' names."""
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
    """A result and, for a reflection, its text."""

    result: Result
    text: str = ""


def _is_open(marked: Marked | None) -> bool:
    return marked is None or marked.result.status == "unanswered"


def _missing(exercise: Exercise, submission: Submission) -> Result:
    if not submission.notebooks:
        return exercise.verdict("unanswered", ["No notebook was handed in."])
    return exercise.verdict("unanswered", [f"No cell that could be run defines `{exercise.answer_name}`."])


def _graded(session: Session, exercise: Exercise, seed: int) -> Marked | None:
    """Return the result of an exercise in one notebook; None if the notebook does not contain it."""
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
        if exercise.kind not in CALLED:
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
    """Return the text of a reflection to be kept, cut at a maximum length."""
    more = len(written) - MOST_TEXT
    return written if more <= 0 else f"{written[:MOST_TEXT]} … ({more:,} more characters)"


def _judged(judge, exercise: Exercise) -> Result:
    """Return a result without the line on hints. An answer that cannot be judged for any reason is wrong."""
    try:
        result = judge()
    except (Ended, Stop):
        raise
    except Exception as error:
        result = exercise.verdict("failed", [f"Your result could not be compared ({type(error).__name__})."])
    return replace(result, closing="")


@dataclass(frozen=True)
class Job:
    """A submission to be graded, with everything needed to grade it on any machine."""

    key: str
    submission: Submission
    exercises: tuple[str, ...]
    seed: int
    sandbox: str
    quotas: Quotas


@dataclass(frozen=True)
class Done:
    """The result of a job: its marks, or why there are none.

    Fields:
        seconds: the time it took.
        peak: memory in bytes.
        doubted: exercises failed by time, memory or a signal; they run again alone before the failure counts.
    """

    key: str
    marked: GradedSubmission | None
    fault: str = ""
    seconds: float = 0.0
    peak: int = 0
    doubted: frozenset[str] = frozenset()


def do_job(job: Job, worker: Worker, closing: Callable[[], bool] = lambda: False, seconds: float | None = None) -> Done:
    """Grade a submission with a worker; after a fault, try again with a fresh one. seconds: as in `mark`.

    Any error in the grader itself is a fault as well: the rest of the class is graded without this submission.
    """
    torch.set_num_threads(1)
    began, fault = time.monotonic(), "the run was ended"
    for _ in range(TRIES):
        if closing():
            break
        worker.peak, worker.doubted = 0, set()
        less = {} if seconds is None else {"seconds": seconds}
        try:
            marked = mark(job.submission, [get(each) for each in job.exercises], worker, job.seed, **less)
            doubted = frozenset(worker.doubted)
            return Done(job.key, marked, seconds=time.monotonic() - began, peak=worker.peak, doubted=doubted)
        except Exception as error:
            fault = f"{error if isinstance(error, Fault) else repr(error)} ({TRIES} tries)"
        if not closing():
            try:
                worker.restart()
            except SandboxError as error:
                fault = f"{error} ({TRIES} tries)"
    return Done(job.key, None, fault)


def do_again(
    job: Job, first: Done, worker: Worker, closing: Callable[[], bool] = lambda: False, was_alone: bool = False
) -> Done:
    """Run the doubted exercises again, with no other submission running at the same time.

    The second run counts. If it earned different points, the result says so, and the report asks a person to check it.

    Args:
        was_alone: whether the same was true of the first run. Then the second one only gets the remaining time.
    """
    left = job.quotas.timeout - first.seconds if was_alone else None
    if left is not None and left < SHORTEST:
        return replace(first, doubted=frozenset())
    # All answers together decide which version of a notebook counts.
    whole = any(len(versions) > 1 for versions in compared(job.submission))
    names = tuple(name for name in job.exercises if whole or name in first.doubted)
    second = do_job(replace(job, exercises=names), worker, closing, left)
    if not second.marked:
        return second
    assert first.marked is not None  # doubted exercises have been marked
    results = {result.exercise_id: result for result in first.marked.results}
    for result in second.marked.results:
        before = results[result.exercise_id]
        differs = result.earned != before.earned or result.passed != before.passed
        note = ((SECOND,) if result.passed else (DIFFERS,)) if differs else ()
        results[result.exercise_id] = replace(result, sentences=(*result.sentences, *note))
    texts = {**first.marked.texts, **second.marked.texts}
    marked = replace(second.marked, results=tuple(results.values()), texts=texts, asks=first.marked.asks)
    seconds, peak = first.seconds + second.seconds, max(first.peak, second.peak)
    return Done(job.key, marked, seconds=seconds, peak=peak)
