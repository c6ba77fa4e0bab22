"""The room's file: every vote is in it before it is acknowledged, no signal loses one, and the same command goes on."""

import json
import os
import queue
import signal
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.__main__ import main
from course_lib.cli import room as command
from course_lib.room.tally import Refused, Tally, require_summary
from tests.test_room import CHAPTERS, GUESS, MISTAKEN, ROOT, VOTE, ask, opened, token

ALL_SIGNALS = [pytest.param(getattr(signal, name, None), id=name) for name in ("SIGINT", "SIGTERM", "SIGHUP")]


def told(answer: str = VOTE["answer"], **more: int) -> dict:
    return {GUESS: {answer: 1} | more}


def sent(address: str, path: str, i: int, message: dict) -> int:
    return ask(address, path, json.dumps(message).encode(), token(i))[0]


@pytest.fixture
def visited(monkeypatch):
    """Open a room by its command in this process; `visit` is called with its address and code once it is open, in a
    thread. Returns the status that the command ended with."""

    def run(arguments: list[str], visit) -> int:
        opening: queue.Queue = queue.Queue()

        def welcome(code, key, host, port, out):
            opening.put((f"{host}:{port}", code))
            return ["open"]

        monkeypatch.setattr(command, "welcome", welcome)
        failed: list[BaseException] = []

        def visiting():
            try:
                visit(*opening.get(timeout=60))
            except BaseException as error:
                failed.append(error)
                os.kill(os.getpid(), signal.SIGTERM)

        thread = threading.Thread(target=visiting, daemon=True)
        thread.start()
        status = main(["room", "2", "--port", "0", *arguments])
        thread.join(timeout=60)
        assert failed == []
        return status

    return run


def heard(number, request) -> None:
    """Let a signal be heard: below `nohup` the tests inherit that SIGHUP is ignored, and so would a room."""
    before = signal.signal(number, signal.SIG_DFL)
    request.addfinalizer(lambda: signal.signal(number, before))


@pytest.mark.parametrize("number", ALL_SIGNALS)
def test_each_vote_is_in_the_file_before_it_is_acknowledged_and_a_signal_ends_the_room_in_order(
    number, visited, tmp_path, capsys, request
):
    if number is None:
        pytest.skip("this system has no such signal")
    out = tmp_path / "votes.json"
    if number != signal.SIGINT:
        heard(number, request)
    asleep = signal.getsignal(number)

    def visit(address, code):
        assert sent(address, "join", 1, {"code": code, "token": token(1)}) == 200
        assert json.loads(out.read_text("utf-8"))["learners"] == 1
        assert sent(address, "vote", 1, VOTE) == 200
        assert json.loads(out.read_text("utf-8"))["guesses"] == told()  # as kill -9 would leave it
        assert sent(address, "mistake", 1, dict(zip(("exercise", "name"), MISTAKEN))) == 200
        assert json.loads(out.read_text("utf-8"))["mistakes"] == {MISTAKEN[0]: {MISTAKEN[1]: 1}}
        os.kill(os.getpid(), number)

    status = visited(["--out", str(out)], visit)
    assert status == (0 if number == signal.SIGINT else 128 + number)
    assert "Learners: 1; votes: 1; kept in" in capsys.readouterr().out
    assert json.loads(out.read_text("utf-8"))["guesses"] == told()
    assert signal.getsignal(number) == asleep


def test_the_same_command_goes_on_with_its_file(visited, tmp_path, capsys):
    out = tmp_path / "votes.json"
    codes = []

    def visit(address, code):
        codes.append(code)
        i = len(codes)
        assert sent(address, "join", i, {"code": codes[0], "token": token(i)}) == 200  # a phone that still has it
        assert sent(address, "vote", i, VOTE) == 200
        os.kill(os.getpid(), signal.SIGTERM)

    for _ in range(3):
        visited(["--out", str(out)], visit)
    said = capsys.readouterr().out
    assert said.count(f"{out} exists. The room continues with its counts and its code") == 2
    assert json.loads(out.read_text("utf-8"))["guesses"] == told(**{VOTE["answer"]: 3})
    assert len(set(codes)) == 1


def test_a_room_that_goes_on_shows_the_counts_of_before_and_keeps_what_was_revealed():
    first = Tally(CHAPTERS)
    for i in range(3):
        first.join(first.code, token(i))
        first.vote(token(i), GUESS, first.questions[GUESS].answer, 1)
        first.mistake(token(i), *MISTAKEN)
    first.vote(token(0), "attention.score_size", "It doubles", 1)
    first.reveal(GUESS)
    kept = json.loads(json.dumps(first.summary()))
    second = Tally(CHAPTERS, earlier=require_summary(kept))
    assert second.summary() == kept
    assert second.code == first.code
    assert (second.for_teacher()["votes"], second.for_teacher()["right"], second.for_teacher()["id"]) == (3, 3, GUESS)
    second.join(second.code, token(9))
    with pytest.raises(Refused, match="closed"):
        second.vote(token(9), GUESS, VOTE["answer"], 1)
    second.vote(token(9), "attention.score_size", "It doubles", 1)
    second.mistake(token(9), *MISTAKEN)
    assert second.summary()["guesses"]["attention.score_size"] == {"It doubles": 2}
    assert second.summary()["mistakes"] == {MISTAKEN[0]: {MISTAKEN[1]: 4}}
    assert second.summary()["learners"] == 3


def test_counts_of_chapters_that_are_not_asked_now_stay_in_the_file():
    kept = {"learners": 1, "guesses": {"elsewhere.guess": {"yes": 4}}, "mistakes": {"elsewhere.task": {"slip": 2}}}
    tally = Tally(CHAPTERS, earlier=require_summary(kept))
    assert tally.for_teacher()["mistakes"] == []
    told = tally.summary()
    assert (told["guesses"], told["mistakes"]) == (kept["guesses"], kept["mistakes"])


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[" * 100_000, b"\xff", b"[]", b"{}", b'"learners"',
        b'{"learners": 1}',
        b'{"learners": true, "guesses": {}, "mistakes": {}}',
        b'{"learners": -1, "guesses": {}, "mistakes": {}}',
        b'{"learners": 1, "guesses": {"a": {"b": "c"}}, "mistakes": {}}',
        b'{"learners": 1, "guesses": [], "mistakes": {}}',
        b'{"learners": 1, "guesses": {}, "mistakes": {"a": 1}}',
        b'{"learners": 1, "guesses": {}, "mistakes": {}, "name": "Ada"}',
        b'{"learners": 1, "guesses": {}, "mistakes": {}, "code": "A"}',
        b'{"learners": 1, "guesses": {}, "mistakes": {}, "code": 7, "revealed": [1]}',
    ],
)  # fmt: skip
def test_a_file_that_is_not_a_rooms_is_refused_and_stays_as_it_is(content, tmp_path, capsys):
    out = tmp_path / "notes.json"
    out.write_bytes(content)
    assert main(["room", "2", "--port", "0", "--out", str(out)]) == 2
    assert f"{out} exists already and is not a room's file: name another file" in capsys.readouterr().err
    assert out.read_bytes() == content
    assert [*tmp_path.iterdir()] == [out]


def test_two_rooms_do_not_write_to_one_file(visited, tmp_path, capsys):
    out = tmp_path / "votes.json"

    def visit(address, code):
        assert main(["room", "2", "--port", "0", "--out", str(out)]) == 2
        os.kill(os.getpid(), signal.SIGTERM)

    visited(["--out", str(out)], visit)
    assert f"another room uses {out}" in capsys.readouterr().err


def test_a_vote_that_cannot_be_written_is_not_acknowledged_and_counts_once_it_can():
    tally, full, written = Tally(CHAPTERS), [True], []

    def keep():
        if full:
            raise OSError(28, "No space left on device")
        written.append(tally.summary()["guesses"])

    with opened(tally, keep) as address:
        tally.join(tally.code, token(1))
        status, said = ask(address, "vote", json.dumps(VOTE).encode(), token(1))
        assert (status, "cannot save" in said) == (503, True)
        full.clear()
        assert sent(address, "vote", 1, VOTE) == 200
    assert written == [told()]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=30))
def test_what_is_kept_bears_no_token(votes):
    tally = Tally(CHAPTERS)
    for i in range(5):
        tally.join(tally.code, token(0xABC0 + i))
    for n, (who, which) in enumerate(votes):
        tally.vote(token(0xABC0 + who), GUESS, tally.questions[GUESS].shown[which % 3], n)
    text = json.dumps(tally.summary())
    assert "abc" not in text.lower().replace(tally.code.lower(), "")
    assert sum(tally.summary()["guesses"].get(GUESS, {}).values()) == len({who for who, _ in votes})


@pytest.mark.proof
@pytest.mark.parametrize("number", [9, *ALL_SIGNALS[1:]])
def test_a_room_that_is_killed_has_kept_its_votes(number, tmp_path, request):
    if number is None:
        pytest.skip("this system has no such signal")
    if number != 9:
        heard(number, request)
    words = [sys.executable, "-m", "course_lib", "room", "2", "--port", "0", "--out", str(tmp_path / "votes.json")]
    for votes in (1, 2):
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
            opening = next(line for line in process.stdout if line.startswith("The room is open: "))
            address, code = opening.removeprefix("The room is open: ").strip().split(", code ")
            assert sent(address, "join", votes, {"code": code, "token": token(votes)}) == 200
            assert sent(address, "vote", votes, VOTE) == 200
            process.send_signal(number)
            try:
                _, err = process.communicate(timeout=60)
            finally:
                process.kill()  # one that did not end would be waited for without end
        assert (process.returncode, err) == (-9 if number == 9 else 128 + number, "")
        assert json.loads((tmp_path / "votes.json").read_text("utf-8"))["guesses"] == told(**{VOTE["answer"]: votes})
