"""How a learner calls the grader: slips of the pen, a check that takes long, and one that is stopped."""

import io
import re
import sys
import threading
from types import SimpleNamespace

import nbformat
import pytest
from nbclient import NotebookClient

from course_lib.course import record
from course_lib.grading import check, grade, hint, waiting
from course_lib.grading.hint_button import show_button
from course_lib.grading.judge import limits
from course_lib.grading.result import Hint, Result

SOFTMAX = "attention.softmax"


pytestmark = pytest.mark.usefixtures("own_record")


def softmax(x, dim):
    e = (x - x.amax(dim, keepdim=True)).exp()
    return e / e.sum(dim, keepdim=True)


def spoils_everything(self, *arguments):
    raise RuntimeError("asked for its name")


class Hostile:
    """Neither its text nor its name can be asked for."""

    __repr__ = __str__ = __eq__ = __hash__ = __getattr__ = spoils_everything


# --- slips of the pen -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("attention.sofmax", softmax), "There is no exercise 'attention.sofmax'. Did you mean 'attention.softmax'?"),
        (("softmax", softmax), "Did you mean 'attention.softmax'?"),
        (("", softmax), "There is no exercise ''."),
        (("?" * 10_000, softmax), "progress() lists every exercise."),
        (("\x1b[31m\n", softmax), "There is no exercise '�[31m '."),
        ((softmax, SOFTMAX), 'The id comes first, then your answer: check("attention.softmax", softmax).'),
        ((SOFTMAX,), 'Your answer is missing. Write check("attention.softmax", softmax).'),
        ((softmax,), 'Write its id in quotes, as in check("attention.softmax", softmax).'),
        ((softmax, softmax), 'Write its id in quotes, as in check("attention.softmax", softmax).'),
        ((3, 4), 'Which exercise? Write its id in quotes, as in check("embeddings.'),
        ((None, None), "Which exercise?"),
        ((), "Which exercise?"),
        ((Hostile(), Hostile()), "Which exercise?"),
        ((["attention.softmax"], softmax), "Which exercise?"),
    ],
)
def test_a_call_that_names_no_exercise_is_answered_in_a_sentence(arguments, sentence):
    for result in (check(*arguments), hint(*arguments[:1])) if len(arguments) == 2 else (check(*arguments),):
        assert isinstance(result, Result)
        assert (result.status, result.passed, result.earned) == ("unanswered", False, 0)
        assert max(map(len, repr(result).splitlines())) <= 110
        assert len(repr(result).splitlines()) <= 4
        assert result._repr_html_()
    assert sentence in " ".join(check(*arguments).feedback.split())
    assert not record.entries("exercises"), "nothing is kept"


@pytest.mark.parametrize(
    "said", [" attention.softmax", "Attention.Softmax", "attention. softmax\n", "ATTENTION.SOFTMAX"]
)
def test_capitals_and_spaces_in_an_id_do_not_matter(said):
    assert check(said, softmax).passed
    assert hint(said).exercise_id == SOFTMAX
    assert record.entries("exercises").keys() == {SOFTMAX}
    with pytest.raises(KeyError):  # what programs call takes ids as they are
        grade(said, softmax, 0)


def test_a_dash_in_an_id_counts_as_its_underscore():
    assert isinstance(hint("attention.why-scale"), Hint)


def test_no_button_stands_below_what_is_no_exercise(monkeypatch):
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(kernel=True))
    show_button("attention.sofmax")


# --- while it runs ----------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds that the test sets, for the line that says that a check still runs."""
    time = SimpleNamespace(now=100.0)
    time.monotonic = lambda: time.now
    monkeypatch.setattr(waiting, "time", time)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(waiting, "_kernel", lambda: None)
    return time


def test_after_two_seconds_a_line_says_how_far_it_is_and_goes_when_it_ends(clock, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with waiting.told_while_it_runs(SOFTMAX):
        tell = limits.still_running
        clock.now += 1.9
        tell(20, "1 of 11 cases")
        assert terminal.getvalue() == ""
        clock.now += 0.2
        tell(20, "2 of 11 cases")
        first = "Checking attention.softmax for 2 s: 2 of 11 cases so far, at most 20 s of computing. Ctrl+C stops it."
        assert terminal.getvalue() == waiting.CLEAR + first
        clock.now += 0.5
        tell(20, "3 of 11 cases")
        assert terminal.getvalue() == waiting.CLEAR + first, "not at every turn"
        clock.now += 0.6
        tell(20, "4 of 11 cases")
        assert "for 3 s: 4 of 11 cases" in terminal.getvalue()
    assert terminal.getvalue().endswith(waiting.CLEAR)
    limits.still_running(20, "nobody listens any more")


def test_in_a_narrow_terminal_the_line_is_cut(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    waiting._in_the_terminal(terminal)("x" * 200)
    assert terminal.getvalue() == waiting.CLEAR + "x" * 39


def test_a_quick_check_and_one_that_nobody_watches_say_nothing(clock, monkeypatch, capfd):
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert check(SOFTMAX, softmax).passed
    assert terminal.getvalue() == ""
    monkeypatch.undo()
    monkeypatch.setattr(waiting, "PATIENCE", -1.0)
    assert check(SOFTMAX, softmax).passed
    assert capfd.readouterr() == ("", "")


def test_the_line_reaches_the_terminal_while_the_answers_own_output_is_caught(clock, monkeypatch):
    terminal, shown, line = Terminal(), threading.Event(), waiting.line
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr(waiting, "PATIENCE", -1.0)
    monkeypatch.setattr(waiting, "line", lambda *arguments: shown.set() or line(*arguments))

    def talkative(x, dim):
        print("said by the answer", file=sys.stderr)
        shown.wait()
        return softmax(x, dim)

    assert check(SOFTMAX, talkative).passed
    assert re.search(
        r"Checking attention.softmax for 0 s: \d of \d+ cases so far, at most 20 s of computing.", terminal.getvalue()
    )
    assert "said by the answer" not in terminal.getvalue()
    assert terminal.getvalue().endswith(waiting.CLEAR)


def test_a_line_that_cannot_be_shown_spoils_no_check(clock, monkeypatch):
    monkeypatch.setattr(waiting, "PATIENCE", -1.0)
    monkeypatch.setattr(waiting, "_place", spoils_everything)
    assert check(SOFTMAX, softmax).passed


def test_whoever_waits_is_told_how_far_the_job_is():
    told, heard = [], threading.Event()

    def tell(most, so_far):
        told.append((most, so_far))
        heard.set()

    with limits.tell_while_waiting(tell):
        assert limits.limited(heard.wait, 7, lambda: "2 of 11 cases") == "done"
    count = len(told)
    limits.limited(lambda: None, 7)
    assert told == [(7, "2 of 11 cases")] * count


def test_in_a_notebook_the_line_is_an_output_that_begins_and_ends_empty(tmp_path):
    code = (
        "import threading\nfrom course_lib.grading import check, waiting\n"
        "waiting.PATIENCE, line, shown = -1, waiting.line, threading.Event()\n"
        "def told(*arguments):\n    shown.set()\n    return line(*arguments)\n"
        "waiting.line = told\n"
        "def softmax(x, dim):\n    shown.wait()\n    e = (x - x.amax(dim, keepdim=True)).exp()\n"
        f'    return e / e.sum(dim, keepdim=True)\ncheck("{SOFTMAX}", softmax)'
    )
    seen = []

    class Watched(NotebookClient):
        def process_message(self, msg, cell, cell_index):
            if msg["msg_type"] in ("display_data", "update_display_data"):
                seen.append((msg["msg_type"], dict(msg["content"]["data"])))
            return super().process_message(msg, cell, cell_index)

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    Watched(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    kinds, shown = zip(*seen)
    assert kinds[0] == "display_data"
    assert set(kinds[1:]) == {"update_display_data"}, "what compares outputs looks at the first"
    assert shown[0] == shown[-1] == {}
    assert any("■ (interrupt) stops it." in data.get("text/plain", "") for data in shown)
    line, result = notebook.cells[0].outputs
    assert line["data"] == {}
    assert "Passed" in result["data"]["text/plain"]


# --- stopped by whoever waits -----------------------------------------------------------------------------------------


@pytest.fixture
def pressed(monkeypatch):
    """A key that is pressed once, as soon as the answer runs."""
    runs, seconds = threading.Event(), limits._seconds_used
    presses = iter([KeyboardInterrupt()])

    def look(clocks):
        runs.wait()
        if error := next(presses, None):
            raise error
        return seconds(clocks)

    monkeypatch.setattr(limits, "_seconds_used", look)
    return runs


def test_an_interrupt_ends_the_check_and_the_next_one_works(pressed):
    threads = []

    def endless(x, dim):
        threads.append(threading.current_thread())
        pressed.set()
        while True:
            pass

    result = check(SOFTMAX, endless)
    assert result.status == "unanswered"
    assert "You stopped the check before it had finished, so nothing was saved." in result.feedback
    assert [thread.is_alive() for thread in threads] == [False]
    assert not record.entries("exercises")
    assert check(SOFTMAX, softmax).passed


def test_an_answer_that_no_interrupt_reaches_is_left_behind_with_the_advice_to_restart(pressed, monkeypatch):
    monkeypatch.setattr(limits, "PATIENCE", 0.1)
    release = threading.Event()

    def deaf(x, dim):
        pressed.set()
        release.wait()

    try:
        assert "could not be stopped: restart the kernel before you continue." in check(SOFTMAX, deaf).feedback
        assert check(SOFTMAX, softmax).passed
    finally:
        release.set()


def test_a_second_press_does_not_leave_the_answer_running(pressed, monkeypatch):
    joined = []

    class Impatient(threading.Thread):
        def join(self, timeout=None):
            joined.append(self)
            if len(joined) == 1:  # the first press has been noticed, and the thread is asked to stop
                raise KeyboardInterrupt
            super().join(timeout)

    monkeypatch.setattr(threading, "Thread", Impatient)

    def endless(x, dim):
        pressed.set()
        while True:
            pass

    assert "You stopped the check" in check(SOFTMAX, endless).feedback
    assert len({*joined}) == 1
    assert not joined[0].is_alive()


def test_what_passed_stays_passed_if_its_keeping_is_stopped(monkeypatch):
    calls = []
    real = grade

    def once(exercise_id, answer, seed):
        calls.append(answer)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(exercise_id, answer, seed)

    monkeypatch.setattr("course_lib.grading.engine.grade", once)
    result = check(SOFTMAX, softmax)
    assert result.passed
    assert "not kept: you stopped" in result.feedback
    assert record.entries("exercises")[SOFTMAX]["last"] == "passed"
