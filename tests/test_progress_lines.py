"""Progress where no terminal shows it: whole lines, rarely, and nothing that only a terminal understands."""

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tqdm import tqdm

from course_lib.__main__ import main
from course_lib.claims import registry
from course_lib.cli.lines import Lines, whole_lines
from tests.test_interrupted import three_claims  # noqa: F401 (a fixture)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def logged(seconds, count=100, **options):
    """What a log holds of a bar over `count` things, each of which takes so many seconds."""
    log, clock = io.StringIO(), Clock()
    for _ in tqdm(range(count), file=Lines(log, clock), desc="grading", mininterval=0, miniters=1, **options):
        clock.now += seconds
    return log.getvalue()


def test_a_long_command_writes_a_line_every_half_minute_and_its_end():
    lines = logged(1.4).splitlines()
    assert len(lines) == 140 // 30 + 1
    assert all(line.startswith("grading:") for line in lines)
    assert lines[-1].startswith("grading: 100%")
    assert len({line.partition("|")[0] for line in lines}) == len(lines), "no line says what another said"


def test_a_short_command_writes_its_end_only():
    [line] = logged(0.01).splitlines()
    assert line.startswith("grading: 100%")


def test_a_bar_that_is_taken_away_leaves_no_line():
    assert logged(0.01, leave=False) == ""


@given(
    st.lists(
        st.sampled_from(["\r", "\n", "\x1b[A", "a 50%", "    ", "words", "\rgrading: 10%", "\rgrading: 20%  "]),
        max_size=12,
    )
)
def test_no_sign_for_a_terminal_reaches_a_log(parts):
    log = io.StringIO()
    stream = Lines(log, Clock())
    for part in parts:
        stream.write(part)
    assert "\r" not in log.getvalue()
    assert "\x1b" not in log.getvalue()


@given(st.text(st.characters(exclude_characters="\r\x1b")))
def test_what_is_no_progress_is_written_as_it_is(text):
    log = io.StringIO()
    Lines(log, Clock()).write(text)
    assert log.getvalue() == text


def test_a_message_above_a_bar_stands_on_a_line_of_its_own():
    log = io.StringIO()
    stream = Lines(log, Clock())
    with tqdm(total=2, file=stream, desc="grading") as bar:
        bar.update()
        bar.write("a message", file=stream)
        bar.update()
    assert "a message" in log.getvalue().splitlines()
    assert "\n\n" not in log.getvalue()


def test_a_terminal_keeps_its_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with whole_lines():
        assert sys.stderr is terminal


@pytest.mark.usefixtures("three_claims")
def test_a_command_writes_whole_lines_into_a_log(capsys):
    ids = [*registry.experiments()]
    before = sys.stderr
    main(["claims", *[each.id for each in registry.in_order()[:2]]])
    assert ids
    assert sys.stderr is before
    said = capsys.readouterr().err
    assert "\r" not in said
    assert [line.partition(":")[0] for line in said.splitlines()] == ["measuring"]
