"""`python -m course_lib room`: a live room for a class."""

import argparse
import errno
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from course_lib.room import PORT

if TYPE_CHECKING:
    from course_lib.classroom.report.console import Console
    from course_lib.room.tally import Tally

ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]  # Windows has no SIGHUP


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "room",
        help="teachers: show a class's guesses live, before the measurement",
        description=(
            "Opens a room on your machine. Its projector page shows a guess of the course, an address and a code. "
            "Learners join voluntarily and anonymously: by phone at that address, or in a notebook with "
            '`from course_lib.room import join` and `join("ADDRESS", "CODE")`. Then your machine receives their '
            "committed guesses and the names of the mistakes that check recognizes, and nothing else. You see how many "
            "have voted. Reveal ends the vote and shows the histogram, the measurement and the reason. A second view "
            "shows the most frequent mistakes by exercise."
        ),
        epilog=(
            "Example: python -m course_lib room attention --host 192.168.1.20. Keys on the projector page: ← → another "
            "question, R reveal, M mistakes, B show the bars before the reveal. Counts are lost when the room closes, "
            "unless --out names a file; then the same command continues with that file, also after a crash. If "
            "strangers take seats, New code disconnects everyone who has not voted. A room is meant for discussion, "
            "not for elections: a learner with the code can vote both by phone and in a notebook."
        ),
    )
    parser.add_argument(
        "chapters", nargs="*", metavar="CHAPTER", help="number or name, such as 2 or attention (default: all)"
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="this machine's address for learners (default: %(default)s, which only this machine can reach)",
    )
    parser.add_argument("--port", type=int, default=PORT, help="the room's port (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the counts in a JSON file as they arrive")
    parser.set_defaults(run=run, remedy="choose another --port, --host or --out")


def run(arguments: argparse.Namespace) -> int:
    """Keep the room open until Ctrl-C, SIGTERM or SIGHUP."""
    import sys

    from course_lib.classroom.report.console import Console
    from course_lib.course.contents import CHAPTERS
    from course_lib.room.tally import Tally

    out, wanted = arguments.out, [name.lower() for name in arguments.chapters]
    for name in wanted:
        if not any(name in (str(chapter.number), chapter.slug) for chapter in CHAPTERS):
            slugs = ", ".join(chapter.slug for chapter in CHAPTERS)
            raise ValueError(
                f"CHAPTER {name!r} is not a chapter of the course: choose 0 to {CHAPTERS[-1].number}, or one of {slugs}"
            )
    if not 0 <= arguments.port <= 65535:
        raise ValueError(f"port must be between 0 and 65535, got {arguments.port}")
    chosen = [chapter for chapter in CHAPTERS if chapter.slug in wanted or str(chapter.number) in wanted]
    console = Console(sys.stdout)  # so that a closed terminal does not stop an orderly end
    with ExitStack() as stack:
        earlier = stack.enter_context(only_room(out)) if out else None
        tally = Tally(chosen or CHAPTERS, earlier=earlier)
        if earlier:
            print(
                f"{out} exists. The room continues with its counts and its code, and revealed answers stay revealed.",
                file=console,
            )
        number = until_ended(tally, arguments.host, arguments.port, out, console)
    told = tally.summary()
    votes = sum(sum(counts.values()) for counts in told["guesses"].values())
    kept = f"kept in {out}, and the same command continues with it" if out else "not kept"
    print(f"\nThe room is closed. Learners: {told['learners']}; votes: {votes}; {kept}.", file=console, flush=True)
    return 128 + number if number else 0


@contextmanager
def only_room(out: Path) -> Iterator[dict[str, Any] | None]:
    """Yield the content of this file, as from `read`, and keep other rooms from writing to it in the meantime.

    Errors: ValueError if another room uses the file, or if it is not a room's file; OSError if the folder does not
        exist or cannot be written.
    """
    import filelock

    if not out.parent.is_dir():  # filelock would create it
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(out.parent))
    read(out)  # raises before there is a lock next to a file that is not a room's
    lock = filelock.FileLock(out.with_name(f".{out.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ValueError(f"another room uses {out}: close that room, or name another file with --out") from None
    try:
        yield read(out)
    finally:
        lock.release()


def read(out: Path) -> dict[str, Any] | None:
    """Return a room's content from this file; None if there is no such file.

    Errors: ValueError for any other file, which stays unchanged.
    """
    from course_lib.course.files import parsed
    from course_lib.room.tally import require_summary

    if not os.path.lexists(out):
        return None
    try:
        return require_summary(parsed(out.read_text(encoding="utf-8")))
    except (ValueError, IsADirectoryError, FileNotFoundError) as error:
        raise ValueError(f"{out} exists already and is not a room's file: name another file with --out") from error


def until_ended(tally: "Tally", host: str, port: int, out: Path | None, console: "Console") -> int:
    """Run a room and save its counts as they change; return the number of the signal that ended it, 0 for Ctrl-C."""
    import asyncio

    from course_lib.course.files import save_json
    from course_lib.room.server import serve

    saved: dict[str, Any] = {}
    ended: list[int] = []

    def keep() -> None:
        nonlocal saved
        if out and (told := tally.summary()) != saved:
            try:
                save_json(out, told)
            except OSError as error:
                print(
                    f"{out} cannot be written ({error.strerror}): votes wait until this works again.",
                    file=console,
                    flush=True,
                )
                raise
            saved = told

    def ready(port: int) -> None:
        keep()  # reports an unwritable file at once
        print("\n".join(welcome(tally.code, tally.key, host, port, out)), file=console, flush=True)

    async def open_room() -> None:
        here, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task

        def end(number: int) -> None:
            ended.append(number)
            task.cancel()

        for number in ENDING:
            if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` ignores SIGHUP
                with suppress(NotImplementedError):  # on Windows
                    here.add_signal_handler(number, end, number)
        await serve(tally, host, port=port, ready=ready, keep=keep)

    try:
        asyncio.run(open_room())
    except (KeyboardInterrupt, asyncio.CancelledError):
        keep()
    return ended[0] if ended else 0


def welcome(code: str, key: str, host: str, port: int, out: Path | None) -> list[str]:
    """Return the lines that the terminal shows for an open room."""
    everywhere = host in ("0.0.0.0", "::", "")
    reached = local_address() if everywhere else host
    address = f"{f'[{reached}]' if ':' in reached else reached}:{port}"
    lines = [
        f"The room is open: {address}, code {code}",
        f"  your projector:      http://{address}/projector#{key}  (keep this link secret: its page reveals answers)",
        f"  learners' phones:    http://{address}/",
        f'  learners\' notebooks: from course_lib.room import join; join("{address}", "{code}")',
    ]
    if reached.startswith("127.") or reached in ("localhost", "::1"):
        lines.append(
            "Only this machine can reach the room. To open it to your class, in your network: "
            f"python -m course_lib room --host {local_address()}"
        )
    kept = f"The counts are saved in {out}." if out else "Nothing is written."
    return [*lines, f"Votes are counted without names and addresses. {kept} Ctrl-C closes the room."]


def local_address() -> str:
    """Return this machine's address in its network, as far as it knows; this sends nothing."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("10.255.255.255", 1))
            return probe.getsockname()[0]
    except OSError:
        return "ADDRESS"
