"""The live room: every vote counts once, whatever the network does, and what may not come in stays out."""

import asyncio
import contextlib
import json
import queue
import random
import secrets
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.__main__ import main
from course_lib.course import record
from course_lib.course.contents import BY_SLUG
from course_lib.grading import check
from course_lib.live import guess
from course_lib.room import client, join, leave
from course_lib.room.server import FILES, MOST_OPEN, NOTHING, serve
from course_lib.room.tally import MOST_BARS, MOST_LEARNERS, Refused, Tally, _ranges

ROOT = Path(__file__).parent.parent
CHAPTERS = (BY_SLUG["attention"], BY_SLUG["heads"])
GUESS, MISTAKEN = "attention.sharpness", ("attention.softmax", "no maximum subtracted")


def token(i: int) -> str:
    return f"{i:032x}"


@contextlib.contextmanager
def opened(tally: Tally, keep=NOTHING):
    """The room, served on this machine by a thread as long as the block lasts: gives its address."""
    found: queue.Queue = queue.Queue()

    async def serving():
        here = asyncio.get_running_loop(), asyncio.current_task()
        await serve(tally, "127.0.0.1", 0, lambda port: found.put((port, *here)), keep)

    def run():
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(serving())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    port, loop, task = found.get(timeout=30)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(timeout=30)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def room():
    """One room for all tests that need not be its only visitors: its tally and its address."""
    tally = Tally(CHAPTERS)
    with opened(tally) as address:
        yield tally, address


@pytest.fixture
def seated(room):
    """A learner of that room: a token, which is in."""
    tally, _ = room
    mine = secrets.token_hex(16)
    tally.join(tally.code, mine)
    return mine


def ask(address: str, path: str, body: bytes | None = None, bearer: str = "", kind: str = "application/json"):
    """Return status and answer of a request."""
    headers = {"Authorization": f"Bearer {bearer}"} | ({"Content-Type": kind} if body is not None else {})
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://{address}/{path}", body, headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


# ------------------------------------------------------------------------------------------------------- a whole class
def rough(seed: int):
    """A network that loses a message, or its answer, brings it twice, or again after newer ones."""
    draw, late = random.Random(seed), []

    def send(url, message, token):
        if late and draw.random() < 0.5:
            client.post(*late.pop(0))
        fate = draw.choice(("lost", "unanswered", "late", "twice", "well", "well", "well"))
        if fate == "lost":
            return client.Answer(0)
        if fate == "late":  # the sender hears nothing and sends again; this one arrives after it
            late.append((url, message, token))
            return client.Answer(0)
        answer = client.post(url, message, token)
        if fate == "twice":
            answer = client.post(url, message, token)
        return client.Answer(0) if fate == "unanswered" else answer

    return send, late


@pytest.mark.parametrize("learners", [20, pytest.param(200, marks=pytest.mark.proof)])
def test_a_class_on_a_bad_network_loses_no_vote_and_counts_none_twice(learners):
    tally = Tally(CHAPTERS)
    draw = random.Random(learners)
    asked = [tally.questions[id] for id in (GUESS, "attention.score_size", "attention.rung")]
    last: dict[str, Counter] = {question.id: Counter() for question in asked}
    mistaken: Counter = Counter()
    with opened(tally) as address:
        # A seat gives up after a number of tries; pauses this long are patience enough for a slow machine.
        networks = [rough(seed) for seed in range(learners)]
        sit = lambda i: client.Seat(address, tally.code, token(i), networks[i][0], pause=0.1)  # noqa: E731
        seats = [sit(i) for i in range(learners)]
        for question in asked:
            for i, seat in enumerate(seats):
                said = draw.choices(question.shown or ("1.2", "1.1", "3"), k=draw.choice((0, 1, 1, 2)))
                for answer in said:  # some change their minds, some say nothing
                    seat.tell("guess", question.id, answer)
                last[question.id].update(said[-1:])
                if draw.random() < 0.3:
                    seat.tell("mistake", *MISTAKEN)
                    mistaken[i] += 1
            for i, seat in enumerate(seats):
                seat.waiting.join()
                if draw.random() < 0.3:  # a kernel that joins again
                    seat.leave()
                    seats[i] = sit(i)
        for seat in seats:
            seat.answered.wait()
            seat.leave()
        for _, late in networks:
            for message in late:
                client.post(*message)
    told = tally.summary()
    assert told["guesses"] == {id: counts for id, counts in last.items() if counts}
    assert told["mistakes"] == {MISTAKEN[0]: {MISTAKEN[1]: len(mistaken)}}
    assert told["learners"] == learners


# ------------------------------------------------------------------------------------------------------- in a notebook
def softmax(x, dim):
    return torch.exp(x) / torch.exp(x).sum(dim, keepdim=True)


def commit(id: str, answer: str) -> None:
    asked = guess(id)
    asked.choices.value, asked.sure.value = answer, 70
    asked.commit()


@pytest.fixture
def outside(monkeypatch):
    """A learner with an empty record who is in no room, and afterwards in none again."""
    monkeypatch.setattr(record, "_memory", {})
    yield
    client._go()


def test_a_notebook_that_joined_sends_guesses_and_mistakes_and_nothing_else(room, outside, capsys, monkeypatch):
    tally, address = room
    sent = []
    monkeypatch.setattr(
        client.Seat.__init__, "__defaults__", (lambda *it: sent.append(it) or client.post(*it), 0.01, None)
    )
    commit(GUESS, "19.5 °C, the plain average of the four")  # before: nobody's business
    join(f"http://{address}/", f" {tally.code.lower()} ")
    said = capsys.readouterr().out
    assert said.startswith(f"You are in the room at {address}. ")
    assert said.count("\n") == 1
    commit("attention.rung", "1.2")
    commit("attention.score_size", "It doubles")
    assert check(MISTAKEN[0], softmax).misconception == MISTAKEN[1]
    check(MISTAKEN[0], torch.softmax)
    client._seats[0].waiting.join()
    leave()
    assert capsys.readouterr().out == f"You have left the room at {address}: nothing is sent.\n"
    commit("attention.doubled", "It doubles: attention is linear")
    assert tally.votes[GUESS] == tally.votes["attention.doubled"] == {}
    assert [answer for _, answer in tally.votes["attention.score_size"].values()] == ["It doubles"]
    assert len(tally.mistakes[MISTAKEN[0]][MISTAKEN[1]]) == 1
    fields = {url.rpartition("/")[2]: set(message) for url, message, _ in sent}
    assert fields == {"join": {"code", "token"}, "vote": {"guess", "answer", "n"}, "mistake": {"exercise", "name"}}
    leave()
    assert capsys.readouterr().out == "You are not in a room.\n"


def test_who_joins_again_in_the_same_kernel_is_the_same_learner(room, outside):
    tally, address = room
    join(address, tally.code)
    before = tally.summary()["learners"]
    for _ in range(3):
        join(address, tally.code)
    assert tally.summary()["learners"] == before
    assert len(record.watchers) == 1


def test_a_wrong_code_and_an_address_where_nobody_is_are_told_in_a_sentence(room, outside, capsys, monkeypatch):
    _, address = room
    join(address, "0000")
    assert "did not let you in" in capsys.readouterr().out
    assert record.watchers == []
    monkeypatch.setattr(client, "WAIT", 0.05)
    with socket.socket() as deaf:  # takes connections and never answers
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        join(f"127.0.0.1:{deaf.getsockname()[1]}", "ABCD")
        assert capsys.readouterr().out.startswith("There is no answer from 127.0.0.1:")
        commit(GUESS, "20.0 °C, only east")  # goes on as always
    assert record.entries("guesses")[GUESS]["right"] == 1


@pytest.mark.parametrize(
    ("address", "code", "told"),
    [
        ("my room", "K7QF 3MXW", "such as"),
        ("https://somewhere.example/path", "K7QF 3MXW", "such as"),
        ("127.0.0.1:99999", "K7QF 3MXW", "such as"),
        (8890, "K7QF 3MXW", "such as"),
        ("127.0.0.1", "K7QF, please", "code"),
        ("127.0.0.1", "- -", "code"),
        ("127.0.0.1", 7, "code"),
    ],
)
def test_what_is_no_address_or_no_code_is_refused_with_an_example(address, code, told):
    with pytest.raises(ValueError, match=told):
        join(address, code)


def test_a_room_that_is_opened_anew_is_joined_again(room):
    tally, address = room
    seat = client.Seat(address, tally.code, token(7), pause=0.01)
    seat.answered.wait()
    del tally._paces[token(7)]  # as after a restart
    seat.tell("guess", "attention.shift", tally.questions["attention.shift"].shown[0])
    seat.waiting.join()
    seat.leave()
    assert token(7) in tally.votes["attention.shift"]


# ------------------------------------------------------------------------------------------------------- votes, reveal
def test_a_vote_may_change_until_the_reveal_and_an_older_one_changes_nothing():
    tally = Tally(CHAPTERS)
    tally.join(tally.code, token(1))
    first, second, *_ = tally.questions[GUESS].shown
    tally.vote(token(1), GUESS, first, 5)
    tally.vote(token(1), GUESS, second, 9)
    tally.vote(token(1), GUESS, first, 5)
    tally.show(GUESS)
    assert tally.for_learner(token(1)) | {"mine": second, "open": True} == tally.for_learner(token(1))
    assert dict(tally.for_teacher()["bars"])[second] == 1
    assert not {"answer", "reason"} & (set(tally.for_learner(token(1))) | set(tally.for_teacher()))
    tally.reveal(GUESS)
    with pytest.raises(Refused, match="closed"):
        tally.vote(token(1), GUESS, first, 10)
    assert tally.for_learner(token(1))["answer"] == tally.questions[GUESS].answer
    assert "its weight is 1" in tally.for_teacher()["reason"]


@given(st.lists(st.floats(-1e15, 1e15) | st.sampled_from([0.0, 1.0, 1.5, 2.0, 1e9]), max_size=60))
def test_every_number_stands_in_one_bar_and_the_bars_are_few(values):
    answers = [f"{value:.6g}" for value in values]
    bars = _ranges(answers)
    assert sum(count for _, count in bars) == len(answers)
    assert len(bars) <= MOST_BARS
    assert len({name for name, _ in bars}) == len(bars)


def test_a_file_of_counts_holds_no_learner():
    tally = Tally(CHAPTERS)
    for i in range(3):
        tally.join(tally.code, token(i))
        tally.vote(token(i), GUESS, tally.questions[GUESS].answer, 1)
        tally.mistake(token(i), *MISTAKEN)
    told = json.loads(json.dumps(tally.summary()))
    assert told == {
        "code": tally.code,
        "shown": tally.current,
        "revealed": [],
        "learners": 3,
        "guesses": {GUESS: {tally.questions[GUESS].answer: 3}},
        "mistakes": {MISTAKEN[0]: {MISTAKEN[1]: 3}},
    }


# ----------------------------------------------------------------------------------------------------- hostile clients
VOTE = {"guess": GUESS, "answer": "20.0 °C, only east", "n": 1}


@pytest.mark.parametrize(
    ("path", "message", "status"),
    [
        ("vote", VOTE | {"guess": "attention.none"}, 404),
        ("vote", VOTE | {"guess": "../../etc/passwd"}, 404),
        ("vote", VOTE | {"answer": "<script>alert(1)</script>"}, 422),
        ("vote", VOTE | {"answer": "x" * 500}, 422),
        ("vote", VOTE | {"answer": "\ud800"}, 422),
        ("vote", VOTE | {"n": -1}, 422),
        ("vote", VOTE | {"n": 10**300}, 422),
        ("vote", VOTE | {"n": True}, 422),
        ("vote", VOTE | {"n": 1.0}, 422),
        ("vote", VOTE | {"name": "Ada"}, 422),
        ("vote", {"guess": GUESS}, 422),
        ("vote", {"guess": "attention.rung", "answer": "<b>1</b>", "n": 1}, 422),
        ("vote", {"guess": "attention.rung", "answer": "nan", "n": 1}, 422),
        ("vote", {"guess": "attention.rung", "answer": "1e300", "n": 1}, 422),
        ("vote", [VOTE], 422),
        ("vote", None, 422),
        ("mistake", {"exercise": MISTAKEN[0], "name": "<img src=x onerror=alert(1)>"}, 422),
        ("mistake", {"exercise": "attention.none", "name": MISTAKEN[1]}, 404),
        ("mistake", {"exercise": [], "name": MISTAKEN[1]}, 422),
        ("join", {"code": "K7QF 3MXW", "token": "<script>"}, 403),
        ("now", {}, 405),
        ("class", {"guess": GUESS, "reveal": True}, 403),
        ("elsewhere", {}, 404),
    ],
)
def test_what_no_page_would_send_is_refused_and_leaves_no_trace(room, seated, path, message, status):
    tally, address = room
    before = json.dumps(tally.summary()), tally.current, set(tally.revealed)
    answered, body = ask(address, path, json.dumps(message).encode(), seated)
    assert answered == status
    assert set(json.loads(body)) == {"error"}
    assert not set("<>") & set(body)
    assert (json.dumps(tally.summary()), tally.current, tally.revealed) == before


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"{", "application/json", 400),
        (b"[" * 2000, "application/json", 400),
        (b"\xff", "application/json", 400),
        (b"", "application/json", 400),
        (json.dumps(VOTE).encode(), "text/plain", 415),  # a form of another site could send this
        (b"x" * 3000, "application/json", 400),
    ],
)
def test_a_body_that_is_no_message_is_refused(room, seated, body, kind, status):
    assert ask(room[1], "vote", body, seated, kind)[0] == status


def raw(address: str, text: str) -> socket.socket:
    host, _, port = address.partition(":")
    made = socket.create_connection((host, int(port)), timeout=30)
    made.sendall(text.replace("\n", "\r\n").encode())
    return made


@pytest.mark.parametrize(
    "head",
    [
        "POST /vote HTTP/1.1\nHost: x\nContent-Length: 10000000000\n\n",
        "POST /vote HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\nFFFFFF\n" + "x" * 5000,
        "GET / HTTP/1.1\nHost: x\nCookie: " + "x" * 20_000 + "\n\n",
        "GET /now HTTP/1.1\nHost: x\nUpgrade: websocket\nConnection: Upgrade\nSec-WebSocket-Version: 13\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\n\n",
        "nonsense\n\n",
    ],
    ids=["long body", "endless body", "long header", "websocket", "nonsense"],
)
def test_a_request_that_would_not_end_is_ended_by_the_room(room, head):
    with raw(room[1], head) as made:
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while part := made.recv(65536):  # until the room closes
                answer += part
    assert b" 101 " not in answer
    assert b" 200 " not in answer


def test_connections_held_open_keep_nobody_out(room, seated):
    tally, address = room
    upgrade = "GET /now HTTP/1.1\nHost: x\nUpgrade: websocket\n"  # and never the empty line that ends it
    with contextlib.ExitStack() as held:
        for _ in range(MOST_OPEN + 30):
            held.enter_context(raw(address, upgrade))
        assert ask(address, "vote", json.dumps(VOTE).encode(), seated)[0] == 200
    assert seated in tally.votes[GUESS]


def test_who_is_too_fast_waits_and_nobody_else_does():
    now = [0.0]
    tally = Tally(CHAPTERS, clock=lambda: now[0])
    for i in (1, 2):
        tally.join(tally.code, token(i))
    for n in range(30):
        tally.vote(token(1), GUESS, tally.questions[GUESS].answer, n)
    with pytest.raises(Refused, match="Too many messages"):
        tally.vote(token(1), GUESS, tally.questions[GUESS].answer, 1000)
    tally.vote(token(2), GUESS, tally.questions[GUESS].answer, 1)
    now[0] += 1
    tally.vote(token(1), GUESS, tally.questions[GUESS].answer, 1001)


def test_a_room_takes_no_more_learners_than_a_large_class():
    now = [0.0]
    tally = Tally(CHAPTERS, clock=lambda: now[0])
    for i in range(MOST_LEARNERS):
        now[0] += 1
        tally.join(tally.code, token(i))
    tally.join(tally.code, token(0))
    with pytest.raises(Refused, match="full"):
        tally.join(tally.code, token(MOST_LEARNERS))


def test_without_the_code_nothing_is_told(room):
    _, address = room
    for path in ("now", "class"):
        status, body = ask(address, path)
        assert status in (401, 403)
        assert set(json.loads(body)) == {"error"}


def test_pages_load_nothing_from_elsewhere_and_nothing_is_logged(room, capfd):
    tally, address = room
    for name in FILES:
        status, text = ask(address, name)
        assert status == 200
        assert "//" not in text.replace("// ", "")
        assert tally.code not in text
    ask(address, "vote", b"{", "?")
    raw(address, "nonsense\n\n").close()
    assert capfd.readouterr() == ("", "")


# ------------------------------------------------------------------------------------------------------- the command
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "'nowhere' is not a chapter of the course"),
        (["--port", "70000"], "port must be between 0 and 65535"),
        (["--out", "README.md"], "README.md exists already and is not a room's file"),
        (["--out", "no/such/folder.json"], "--out"),
        (["--port", "{taken}"], "already in use: choose another --port"),
    ],
)
def test_a_room_that_cannot_be_opened_says_why(arguments, told, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["room", *(each.format(taken=taken.getsockname()[1]) for each in arguments)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("room: ")
    assert told in said
    assert said.count("\n") == 1


@pytest.mark.proof
def test_ctrl_c_closes_the_room_and_its_counts_are_in_the_file(tmp_path):
    command = [sys.executable, "-m", "course_lib", "room", "2", "--port", "0", "--out", str(tmp_path / "votes.json")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        welcome = [process.stdout.readline() for _ in range(6)]
        address, code = welcome[0].removeprefix("The room is open: ").strip().split(", code ")
        assert address.startswith("127.0.0.1:")
        assert ask(address, "join", json.dumps({"code": code, "token": token(1)}).encode())[0] == 200
        assert ask(address, "vote", json.dumps(VOTE).encode(), token(1))[0] == 200
        process.send_signal(2)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "--host" in welcome[4]
    assert "Ctrl-C" in welcome[5]
    assert "Learners: 1; votes: 1; kept in" in out
    told = json.loads((tmp_path / "votes.json").read_text(encoding="utf-8"))
    counts = {"learners": 1, "guesses": {GUESS: {VOTE["answer"]: 1}}, "mistakes": {}}
    assert told == {"code": code, "shown": told["shown"], "revealed": []} | counts
