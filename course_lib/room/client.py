"""The learner's side of the room: `join("192.168.1.20:8890", "K7QF 3MXW")` and `leave()` in a notebook.

A joined notebook sends only the answer of each committed guess and the name of each mistake that `check` recognizes.
A background thread sends them and retries after errors, so the notebook never waits.
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
WAIT = 3.0  # seconds that `join` waits for the room's answer
MOST_WAITING = 1000  # messages waiting to be sent
PAUSE, TRIES = 0.5, 100  # first pause in seconds, growing up to 20-fold; all tries take a quarter of an hour
LONGEST_REST = 60.0  # the longest Retry-After that we follow, in seconds
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy could not reach the local network


class Answer(NamedTuple):
    """Hold a room's answer: its HTTP status (0 without an answer), and the seconds to wait before the next request."""

    status: int
    after: float = 0.0


Post = Callable[[str, dict, str], Answer]


def post(url: str, message: dict, token: str = "") -> Answer:
    """Send a message to a room and return its answer."""
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {token}"}
    try:
        request = urllib.request.Request(url, json.dumps(message).encode(), headers)
        with _DIRECT.open(request, timeout=5) as answer:
            return Answer(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            after = error.headers.get("Retry-After", "")
            return Answer(error.code, min(float(after), LONGEST_REST) if after.isdecimal() else 0.0)
    except Exception:  # another server can answer anything, and a notebook must not show it
        return Answer(0)


class Seat:
    """Hold a learner's seat in a room: an anonymous token, the waiting messages, and the thread that sends them."""

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
        self.heard = 0  # the latest status, including 429 (wait)
        self._rest = rest or self.left.wait
        self._told = False
        threading.Thread(target=self._serve, name="room", daemon=True).start()

    def tell(self, kind: str, id: str, text: str) -> None:
        """Queue the answer of a guess or the name of a mistake for the room."""
        if self.left.is_set():
            self._tell_why()
        if self.left.is_set() or self.waiting.qsize() >= MOST_WAITING:
            return
        if kind == "guess":
            self.waiting.put(("/vote", {"guess": id, "answer": text, "n": next(_number)}))
        elif kind == "mistake":
            self.waiting.put(("/mistake", {"exercise": id, "name": text}))

    def leave(self) -> None:
        """Stop sending, and drop the waiting messages."""
        self.left.set()
        self.waiting.put(("", {}))  # wakes the thread, which then ends

    def _tell_why(self) -> None:
        """Print once that the room no longer knows the learner, because its code has changed."""
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
        """Send a message until the room answers, and return the status. Without an answer, leave and return 0."""
        pause, tries = self._pause, TRIES
        while tries and not self.left.is_set():
            status, after = self._post(f"http://{self.address}{path}", message, self._token)
            self.heard = status
            if status == 401 and path != "/join":  # the room was opened again and does not know the token
                if not self._joined():
                    return status
            elif status == 429 and after:  # the room is busy but reachable: wait without counting a try
                self._rest(after * random.uniform(1, 2))  # random, so that a class does not retry all at once
                continue
            elif status and status != 429 and status < 500:
                return status
            self._rest(pause * random.uniform(0.5, 1))
            pause, tries = min(2 * pause, 20 * self._pause), tries - 1
        self.left.set()
        return 0


_number = count(1)  # numbers the votes, because the latest one counts
_tokens: dict[tuple[str, str], str] = {}  # by address and code, so that joining again keeps the seat
_seats: list[Seat] = []  # at most one


def join(address: str, code: str) -> None:
    """Join a class's live room by the address and code on the projector: `join("192.168.1.20:8890", "K7QF 3MXW")`.

    Until `leave()`, your notebook sends the room the answer of each guess that you commit and the name of each mistake
    that `check` recognizes. It sends nothing else, and not your name. If the room does not answer, you can continue to
    work, and the notebook sends the messages later.

    Errors: ValueError if `address` is not an address or `code` is not a code.
    """
    found = ADDRESS.fullmatch(address.strip()) if isinstance(address, str) else None
    if not found or int(found[2] or PORT) > 65535:
        raise ValueError(
            f'an address must be written as on the projector, such as "192.168.1.20:{PORT}", got {address!r}'
        )
    if not isinstance(code, str) or not re.fullmatch(r"\w{1,12}", letters_of(code)):
        raise ValueError(
            f'a code must be the letters and digits on the projector, in quotes, such as "{EXAMPLE}", got {code!r}'
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
    """Leave the room: nothing more is sent, including the waiting messages."""
    seat = _go()
    print(f"You have left the room at {seat.address}: nothing is sent." if seat else "You are not in a room.")


def _go() -> Seat | None:
    if not _seats:
        return None
    seat = _seats.pop()
    seat.leave()
    record.watchers.remove(seat.tell)
    return seat
