"""The room over HTTP, built on Tornado: it serves the pages and takes messages from phones, projector and notebooks.

Every request is small and short, and uses a separate connection. Nothing is logged, and no address is stored.
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
MOST_OPEN = 150  # connections: below every system's limit for one process
LIMITS = {
    "max_body_size": 2048,
    "max_header_size": 8192,
    "max_buffer_size": 65536,
    "idle_connection_timeout": 10.0,
    "body_timeout": 5.0,
}
NOTHING: Callable[[], None] = lambda: None  # noqa: E731


class Doors(HTTPServer):
    """Limit the open connections: if MOST_OPEN are open, the oldest is closed for the next one.

    So a client that keeps connections open loses them, and short requests are still served.
    """

    def initialize(self, *args: Any, **kwargs: Any) -> None:
        super().initialize(*args, **kwargs)
        self._open: list = []

    def handle_stream(self, stream, address) -> None:
        """Serve a new connection."""
        self._open = [each for each in self._open if not each.closed()]
        for oldest in self._open[: len(self._open) + 1 - MOST_OPEN]:
            oldest.close()
        self._open.append(stream)
        return super().handle_stream(stream, address)


class Handler(RequestHandler):
    """Add headers to every answer, answer errors with a sentence, and log nothing."""

    def initialize(self, tally: Tally, keep: Callable[[], None]) -> None:
        self.tally, self.keep = tally, keep

    def set_default_headers(self) -> None:
        """Set headers so that a page loads only our files, and is not cached or framed."""
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
        """Save the change and then answer, so that every acknowledged vote is in the file."""
        try:
            self.keep()
        except OSError:
            raise Refused(
                503, "The teacher's machine cannot save the counts at the moment. Your vote will be sent again."
            ) from None
        self.finish(found)

    def log_exception(self, *args: Any) -> None:
        """Log nothing, because Tornado would log the client's address."""

    def message(self, **fields: type) -> dict[str, Any]:
        """Return the message. Errors: Refused unless it is JSON with exactly these fields and types."""
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
        """Return the learner's token or the teacher's key from the request."""
        return self.request.headers.get("Authorization", "").removeprefix("Bearer ")


class File(Handler):
    """Serve the pages, their styles and their scripts."""

    def get(self, name: str) -> None:
        """Answer with a file."""
        file, kind = FILES[name]
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self.finish((PAGES / file).read_bytes())


class Learner(Handler):
    """Answer learners' requests, and take their messages."""

    def get(self, what: str) -> None:
        """Answer with the content of the phone's page."""
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
    """Answer the projector's page, which sends the teacher's key."""

    def prepare(self) -> None:
        """Refuse a request without the key."""
        if not secrets.compare_digest(self.token.encode("utf-8", "replace"), self.tally.key.encode()):
            raise Refused(403, "This page is for the teacher: open it at the address that the terminal shows.")

    def get(self) -> None:
        """Answer with the content of the projector's page."""
        self.finish(self.tally.for_teacher())

    def post(self) -> None:
        """Show a question, or reveal its answer."""
        asked = self.message(guess=str, reveal=bool)
        (self.tally.reveal if asked["reveal"] else self.tally.show)(asked["guess"])
        self.answer(self.tally.for_teacher())


class Renewed(Teacher):
    """Take the request of the button for a new code."""

    def get(self) -> None:
        """Refuse."""
        raise Refused(405, "This address takes messages only.")

    def post(self) -> None:
        """Draw a new code."""
        self.message()
        self.tally.renew()
        self.answer(self.tally.for_teacher())


def application(tally: Tally, keep: Callable[[], None] = NOTHING) -> Application:
    """Return the room as a Tornado application. keep: called to save each change before it is acknowledged."""
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
    """Refuse every other address."""

    def prepare(self) -> None:
        """Refuse."""
        raise Refused(404, "There is nothing here.")


async def serve(
    tally: Tally, host: str, port: int, ready: Callable[[int], None], keep: Callable[[], None] = NOTHING
) -> None:
    """Keep a room open until it is cancelled.

    Args:
        port: 0 for any free port. ready: called with the port when learners can join. keep: as in `application`.

    Errors: OSError if the host or port is not available.
    """
    logging.getLogger("tornado").setLevel(logging.CRITICAL)  # its warnings contain addresses
    sockets = bind_sockets(port, host)
    server = Doors(application(tally, keep), no_keep_alive=True, **LIMITS)
    try:
        server.add_sockets(sockets)
        ready(sockets[0].getsockname()[1])
        await asyncio.Event().wait()
    finally:
        server.stop()
        await server.close_all_connections()
