"""A learner's side of the room: `join("192.168.1.20:8890", "K7QF 3MXW")` in a notebook, `leave()`.

After joining, the answer of each guess that is committed and the name of each mistake that `check` recognizes go to the
room, and nothing else. A thread of its own sends them, and tries again where it fails: a notebook waits for none of it.
"""

import json
import queue
import random
import re
import secrets
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from itertools import count
from typing import NamedTuple

from course_lib.course import record
from course_lib.room import EXAMPLE, PORT, letters_of

ADDRESS = re.compile(r"(?:http://)?([\w.-]+|\[[\da-fA-F:.]+\])(?::(\d{1,5}))?/?")
WAIT = 3.0  # seconds that `join` gives the room to answer
MOST_WAITING = 1000  # messages
PAUSE, TRIES = 0.5, 100  # seconds at first, 20 times as long in the end: a quarter of an hour, then the room is gone
LONGEST_REST = 60.0  # seconds that a room may ask for
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy leads to the machine beside you


class Answer(NamedTuple):
    """What a room answers: an HTTP status (0: nothing answers), and after how many seconds it may be asked again."""

    status: int
    after: float = 0.0


Post = Callable[[str, dict, str], Answer]


def post(url: str, message: dict, token: str = "") -> Answer:
    """Return what a room answers to a message."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    try:
        request = urllib.request.Request(url, json.dumps(message).encode(), headers)
        with _DIRECT.open(request, timeout=5) as answer:
            return Answer(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            after = error.headers.get("Retry-After", "")
            return Answer(error.code, min(float(after), LONGEST_REST) if after.isdecimal() else 0.0)
    except Exception:  # whatever answers there may answer anything, and no notebook shall see it
        return Answer(0)


class Seat:
    """One learner's seat in a room: a token that says nobody's name, messages that wait, the thread that sends them."""

    def __init__(
        self,
        address: str,
        code: str,
        token: str,
        post: Post = post,
        pause: float = PAUSE,
        rest: Callable[[float], object] | None = None,
    ):
        self.address, self._code, self._token, self._post, self._pause = address, code, token, post, pause
        self.waiting: queue.Queue[tuple[str, dict]] = queue.Queue()
        self.left, self.answered, self.status = threading.Event(), threading.Event(), 0
        self.heard = 0  # the latest status, also of an answer that was to wait
        self._rest = rest or self.left.wait
        self._told = False
        threading.Thread(target=self._serve, name="room", daemon=True).start()

    def tell(self, kind: str, id: str, text: str) -> None:
        """Send the answer of a guess, or the name of a mistake, as soon as the room takes it."""
        if self.left.is_set():
            self._tell_why()
        if self.left.is_set() or self.waiting.qsize() >= MOST_WAITING:
            return
        if kind == "guess":
            self.waiting.put(("/vote", {"guess": id, "answer": text, "n": next(_number)}))
        elif kind == "mistake":
            self.waiting.put(("/mistake", {"exercise": id, "name": text}))

    def leave(self) -> None:
        """Send nothing from now on, nor what still waits."""
        self.left.set()
        self.waiting.put(("", {}))  # so that the thread looks up

    def _tell_why(self) -> None:
        """Say once that a room which had let the learner in does not know them any more."""
        if self.heard == 403 and not self._told:
            self._told = True
            print(
                f"The room at {self.address} no longer knows you, so nothing is sent. Join again with the code "
                "that is on the projector now."
            )

    def _serve(self) -> None:
        self._joined()
        path = "/join"
        while path:
            path, message = self.waiting.get()
            self._sent(path, message)
            self.waiting.task_done()

    def _joined(self) -> bool:
        self.status = self._sent("/join", {"code": self._code, "token": self._token})
        if self.status != 200:
            self.left.set()
        self.answered.set()
        return self.status == 200

    def _sent(self, path: str, message: dict) -> int:
        """Send until the room has answered, whatever it says; leave it where it is gone."""
        pause, tries = self._pause, TRIES
        while tries and not self.left.is_set():
            status, after = self._post(f"http://{self.address}{path}", message, self._token)
            self.heard = status
            if status == 401 and path != "/join":  # it was opened anew
                if not self._joined():
                    return status
            elif status == 429 and after:  # it is there, and this one's turn comes
                self._rest(after * random.uniform(1, 2))  # not all of a class at once
                continue
            elif status and status != 429 and status < 500:
                return status
            self._rest(pause * random.uniform(0.5, 1))
            pause, tries = min(2 * pause, 20 * self._pause), tries - 1
        self.left.set()
        return 0


_number = count(1)  # of a vote: a later one counts
_tokens: dict[tuple[str, str], str] = {}  # by address and code: who joins again is the same learner
_seats: list[Seat] = []  # one at most


def join(address: str, code: str) -> None:
    """Join the live room of a class: `join("192.168.1.20:8890", "K7QF 3MXW")`, as on the projector; `leave()` ends it.

    From then on the answer of each guess that you commit, and the name of each mistake that `check` recognizes, go to
    the room: without your name, and nothing else. Where nobody answers, you go on as always, and what waits is sent
    later.

    Errors: ValueError for what is no address or no code.
    """
    found = ADDRESS.fullmatch(address.strip()) if isinstance(address, str) else None
    if not found or int(found[2] or PORT) > 65535:
        raise ValueError(f'an address is written as on the projector, such as "192.168.1.20:{PORT}", got {address!r}')
    if not isinstance(code, str) or not re.fullmatch(r"\w{1,12}", letters_of(code)):
        raise ValueError(
            f'a code is the letters and digits on the projector in quotes, such as "{EXAMPLE}", got {code!r}'
        )
    _go()
    place = f"{found[1]}:{found[2] or PORT}", letters_of(code)
    seat = Seat(*place, token=_tokens.setdefault(place, secrets.token_hex(16)))
    seat.answered.wait(WAIT)
    if seat.answered.is_set() and seat.status != 200:
        seat.leave()
        print(f"The room at {seat.address} did not let you in: check the address and the code on the projector.")
        return
    if seat.status == 200:
        said = f"You are in the room at {seat.address}"
    elif seat.heard == 429:
        said = f"Many learners are joining the room at {seat.address}. Your notebook waits in the background"
    else:
        said = f"There is no answer from {seat.address} yet. Your notebook keeps trying in the background"
    _seats.append(seat)
    record.watchers.append(seat.tell)
    print(
        f"{said}. Until leave(), the answers that you commit and the names of mistakes that check recognizes are sent "
        "to the room, without your name."
    )


def leave() -> None:
    """Leave the room: from now on nothing is sent, nor what still waits."""
    seat = _go()
    print(f"You have left the room at {seat.address}: nothing is sent." if seat else "You are not in a room.")


def _go() -> Seat | None:
    if not _seats:
        return None
    seat = _seats.pop()
    seat.leave()
    record.watchers.remove(seat.tell)
    return seat
