"""The room's door: a right code gets in whatever wrong ones arrive, a crowd gets in one after the other, and a new code
sends away those that never voted."""

import heapq
import json
import random

import pytest

from course_lib.room import client
from course_lib.room.tally import BURST, JOINS_A_SECOND, LETTERS, MOST_LEARNERS, Refused, Tally
from tests.test_room import CHAPTERS, GUESS, MISTAKEN, ask, opened, token

ANSWERS_A_SECOND = 20_000  # ten times what the server was seen to answer on one core
LESSON = 3 * 3600  # seconds


def at(now: list[float]) -> Tally:
    """A room whose clock is the test's."""
    return Tally(CHAPTERS, clock=lambda: now[0])


def asked(tally: Tally, i: int) -> float:
    """After how many seconds a learner with the right code has to ask again; 0 once in."""
    try:
        tally.join(tally.code, token(i))
        return 0
    except Refused as refused:
        return refused.after if refused.status == 429 else pytest.fail(str(refused))


def test_wrong_codes_shut_the_door_to_nobody():
    now = [0.0]
    tally = at(now)
    for i in range(BURST):
        for _ in range(500):  # strangers try between any two learners, and the clock does not move
            with pytest.raises(Refused) as refused:
                tally.join("????", token(10_000 + i))
            assert refused.value.status == 403
        tally.join(tally.code, token(i))
    assert tally.summary()["learners"] == BURST


def test_no_code_is_found_by_trying_at_any_rate_that_the_server_answers():
    codes = [Tally(CHAPTERS[:1]).code for _ in range(20)]
    assert len(set(codes)) == len(codes)
    letters = {len(code.replace(" ", "")) for code in codes}
    assert len(letters) == 1
    codes_there_are = len(LETTERS) ** letters.pop()
    assert codes_there_are > 1000 * ANSWERS_A_SECOND * LESSON


@pytest.mark.parametrize("form", [str, str.lower, "  {}\n".format, lambda code: code.replace(" ", "-"), "".join])
def test_a_code_may_be_typed_with_and_without_its_gap(form):
    tally = Tally(CHAPTERS[:1])
    tally.join(form(tally.code), token(1))
    tally.join(tally.code.replace(" ", ""), token(2))
    assert tally.summary()["learners"] == 2


def test_a_script_with_the_code_takes_seats_no_faster_than_a_class_joins():
    now = [0.0]
    tally = at(now)
    got = 0
    for tick in range(100):  # ten seconds, in each of which it sends 1,000 joins
        now[0] = tick / 10
        got += sum(asked(tally, tick * 100 + i) == 0 for i in range(100))
    assert got <= BURST + 10 * JOINS_A_SECOND < MOST_LEARNERS


def test_a_class_of_400_that_joins_at_once_waits_a_moment_and_gets_in_to_the_last():
    now, draw = [0.0], random.Random(4)
    tally = at(now)
    due = [(0.0, i) for i in range(MOST_LEARNERS)]  # when each asks; one that has to wait asks again, as the pages do
    times = 0
    while due:
        now[0], i = heapq.heappop(due)
        times += 1
        if after := asked(tally, i):
            heapq.heappush(due, (now[0] + after * draw.uniform(1, 2), i))
    assert tally.summary()["learners"] == MOST_LEARNERS
    assert now[0] < (MOST_LEARNERS - BURST) / JOINS_A_SECOND + 5
    assert times < 30 * MOST_LEARNERS


def test_whoever_is_in_may_send_the_join_again_at_any_pace():
    tally = at([0.0])
    for _ in range(10 * BURST):
        tally.join(tally.code, token(1))
    assert tally.summary()["learners"] == 1


def test_the_answer_says_how_long_to_wait():
    tally = at([0.0])
    with opened(tally) as address:
        for i in range(BURST):
            tally.join(tally.code, token(i))
        body = {"code": tally.code, "token": token(BURST)}
        assert client.post(f"http://{address}/join", body) == (429, 1.0)
        assert client.post(f"http://{address}/join", body | {"code": "????"}) == (403, 0.0)


def test_a_notebook_that_is_told_to_wait_waits_as_long_and_is_not_lost():
    answers = iter([client.Answer(429, 7.0)] * 250 + [client.Answer(200)])  # more often than it tries where nobody is
    rests = []
    seat = client.Seat("127.0.0.1:1", "ABCD", token(1), lambda *_: next(answers), rest=rests.append)
    seat.answered.wait()
    seat.leave()
    assert seat.status == 200
    assert len(rests) == 250
    assert all(7 <= each <= 14 for each in rests)


# ------------------------------------------------------------------------------------------------------- a new code
def voted(tally: Tally, i: int) -> None:
    tally.join(tally.code, token(i))
    tally.vote(token(i), GUESS, tally.questions[GUESS].answer, 1)


def test_a_new_code_keeps_those_that_voted_and_sends_away_the_others():
    now = [0.0]
    tally = at(now)
    for i in range(MOST_LEARNERS):
        now[0] += 1
        voted(tally, i) if i < 3 else tally.join(tally.code, token(i))
    tally.mistake(token(5), *MISTAKEN)
    with pytest.raises(Refused, match="full"):
        tally.join(tally.code, token(1000))
    told, old = tally.for_teacher(), tally.code
    assert (told["learners"], told["seats"], told["silent"]) == (MOST_LEARNERS, MOST_LEARNERS, MOST_LEARNERS - 3)
    before = tally.summary()["guesses"], tally.summary()["mistakes"]
    tally.renew()
    assert tally.code != old
    assert (tally.for_teacher()["learners"], tally.for_teacher()["silent"]) == (3, 0)
    assert (tally.summary()["guesses"], tally.summary()["mistakes"]) == before
    now[0] += 1
    tally.for_learner(token(0))
    tally.vote(token(0), GUESS, tally.questions[GUESS].shown[0], 2)
    with pytest.raises(Refused) as refused:
        tally.for_learner(token(5))
    assert refused.value.status == 401
    with pytest.raises(Refused) as refused:
        tally.join(old, token(5))
    assert refused.value.status == 403
    tally.join(tally.code, token(5))


def test_only_the_teacher_draws_a_new_code():
    tally = Tally(CHAPTERS)
    with opened(tally) as address:
        voted(tally, 1)
        tally.join(tally.code, token(2))
        old = tally.code
        assert ask(address, "code", b"{}", token(1))[0] == 403
        assert tally.code == old
        assert ask(address, "code", b'{"guess": 1}', tally.key)[0] == 422
        status, body = ask(address, "code", b"{}", tally.key)
    assert (status, json.loads(body)["code"], json.loads(body)["learners"]) == (200, tally.code, 1)
    assert tally.code != old


def test_a_notebook_that_was_sent_away_is_told_to_join_again(capsys):
    refused = iter([client.Answer(200), client.Answer(401), client.Answer(403)])
    seat = client.Seat("127.0.0.1:1", "ABCD", token(1), lambda *_: next(refused), rest=lambda seconds: None)
    seat.answered.wait()
    seat.tell("guess", GUESS, "an answer")
    seat.waiting.join()
    seat.tell("guess", GUESS, "another answer")
    seat.tell("guess", GUESS, "another answer")
    assert capsys.readouterr().out == (
        "The room at 127.0.0.1:1 no longer knows you, so nothing is sent. Join again with the code that is on "
        "the projector now.\n"
    )
