"""The room over HTTP: pages for phones and for the projector, and what they and notebooks send. Built on Tornado.

Every request is small, is over at once, and has a connection of its own; nothing of it is logged, no address is kept.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from course_lib.course.files import parsed
from course_lib.room.tally import Refused, Tally

PAGES = Path(__file__).parent / "page"
FILES = {
    "": ("phone.html", "text/html"),
    "projector": ("projector.html", "text/html"),
    "room.css": ("room.css", "text/css"),
    "room.js": ("room.js", "text/javascript"),
    "phone.js": ("phone.js", "text/javascript"),
    "projector.js": ("projector.js", "text/javascript"),
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
MOST_OPEN = 150  # connections: fits what any system lets a process open
LIMITS = {
    "max_body_size": 2048,
    "max_header_size": 8192,
    "max_buffer_size": 65536,
    "idle_connection_timeout": 10.0,
    "body_timeout": 5.0,
}
NOTHING: Callable[[], None] = lambda: None  # noqa: E731


class Doors(HTTPServer):
    """A server of few connections: where MOST_OPEN are open, the oldest makes room for the next. Whoever holds
    connections open loses them; whoever asks and goes is served."""

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        super().initialize(*args, **kwargs)
        self._open: list = []

    def handle_stream(self, stream, address) -> None:
        """Serve a connection that has come in."""
        self._open = [each for each in self._open if not each.closed()]
        for oldest in self._open[: len(self._open) + 1 - MOST_OPEN]:
            oldest.close()
        self._open.append(stream)
        return super().handle_stream(stream, address)


class Handler(RequestHandler):
    """What all answers share: headers, errors in a sentence, and no line in any log."""

    def initialize(self, tally: Tally, keep: Callable[[], None]) -> None:
        self.tally, self.keep = tally, keep

    def set_default_headers(self) -> None:
        """Let a page load nothing but its own files, and nobody keep or frame it."""
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Content-Security-Policy", POLICY)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with a sentence, never with a traceback."""
        error = kwargs.get("exc_info", (None, None))[1]
        if isinstance(error, Refused):
            self.set_status(error.status)
            if error.after:
                self.set_header("Retry-After", f"{error.after:.0f}")
        self.finish({"error": str(error) if isinstance(error, Refused) else self._reason})

    def answer(self, found: dict[str, Any]) -> None:
        """Answer once what has changed is kept: what a learner is told was counted is in the file."""
        try:
            self.keep()
        except OSError:
            raise Refused(
                503, "The teacher's machine cannot save the counts at the moment. Your vote will be sent again."
            ) from None
        self.finish(found)

    def log_exception(self, *args: Any) -> None:
        """Log nothing: Tornado's line names the address of who asked."""

    def message(self, **fields: type) -> dict[str, Any]:
        """Return what was sent. Refused unless it is JSON with these fields, of these types, and no others."""
        if self.request.headers.get("Content-Type", "").partition(";")[0] != "application/json":
            raise Refused(415, "A message must be JSON.")
        try:
            found = parsed(self.request.body)
        except ValueError:
            raise Refused(400, "That is not JSON.") from None
        if not isinstance(found, dict) or {name: type(value) for name, value in found.items()} != fields:
            raise Refused(422, f"A message here must have {' and '.join(fields)}, and nothing else.")
        return found

    @property
    def token(self) -> str:
        """The token of the learner, or the key of the teacher, who asks."""
        return self.request.headers.get("Authorization", "").removeprefix("Bearer ")


class File(Handler):
    """The pages, and what they are made of."""

    def get(self, name: str) -> None:
        """Answer with a file."""
        file, kind = FILES[name]
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.finish((PAGES / file).read_bytes())


class Learner(Handler):
    """What learners ask and send."""

    def get(self, what: str) -> None:
        """Answer with what a phone shows."""
        if what != "now":
            raise Refused(405, "This address takes messages only.")
        self.finish(self.tally.for_learner(self.token))

    def post(self, what: str) -> None:
        """Take a message."""
        if what == "join":
            self.tally.join(**self.message(code=str, token=str))
        elif what == "vote":
            self.tally.vote(self.token, **self.message(guess=str, answer=str, n=int))
        elif what == "mistake":
            self.tally.mistake(self.token, **self.message(exercise=str, name=str))
        else:
            raise Refused(405, "This address can only be read.")
        self.answer({})


class Teacher(Handler):
    """What the projector's page asks and does, with its key."""

    def prepare(self) -> None:
        """Refuse whoever has not the key."""
        if not secrets.compare_digest(self.token.encode("utf-8", "replace"), self.tally.key.encode()):
            raise Refused(403, "This page is the teacher's: open it at the address that the terminal shows.")

    def get(self) -> None:
        """Answer with what the projector shows."""
        self.finish(self.tally.for_teacher())

    def post(self) -> None:
        """Show a question, or reveal it."""
        asked = self.message(guess=str, reveal=bool)
        (self.tally.reveal if asked["reveal"] else self.tally.show)(asked["guess"])
        self.answer(self.tally.for_teacher())


class Renewed(Teacher):
    """The button for a new code."""

    def get(self) -> None:
        """Refuse."""
        raise Refused(405, "This address takes messages only.")

    def post(self) -> None:
        """Draw a new code."""
        self.message()
        self.tally.renew()
        self.answer(self.tally.for_teacher())


def application(tally: Tally, keep: Callable[[], None] = NOTHING) -> Application:
    """Return the room as Tornado serves it. keep: called before whatever has changed is acknowledged."""
    given = {"tally": tally, "keep": keep}
    names = "|".join(FILES).replace(".", r"\.")
    return Application(
        [
            (rf"/({names})", File, given),
            (r"/(now|join|vote|mistake)", Learner, given),
            (r"/class", Teacher, given),
            (r"/code", Renewed, given),
        ],
        default_handler_class=Nowhere,
        default_handler_args=given,
        log_function=lambda handler: None,
    )


class Nowhere(Handler):
    """Every other address."""

    def prepare(self) -> None:
        """Refuse."""
        raise Refused(404, "There is nothing here.")


async def serve(
    tally: Tally, host: str, port: int, ready: Callable[[int], None], keep: Callable[[], None] = NOTHING
) -> None:
    """Keep a room open until it is cancelled.

    Args:
        port: 0 takes any that is free. ready: called with the port once learners can come in. keep: as `application`.
    Errors: OSError where host or port cannot be had.
    """
    logging.getLogger("tornado").setLevel(logging.CRITICAL)  # its warnings name addresses
    sockets = bind_sockets(port, host)
    server = Doors(application(tally, keep), no_keep_alive=True, **LIMITS)
    try:
        server.add_sockets(sockets)
        ready(sockets[0].getsockname()[1])
        await asyncio.Event().wait()
    finally:
        server.stop()
        await server.close_all_connections()
