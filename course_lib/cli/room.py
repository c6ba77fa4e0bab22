"""`python -m course_lib room`: a live room for a class."""

import argparse
import socket
from pathlib import Path

from course_lib.room import PORT


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "room",
        help="teachers: see a class's guesses together, live, before the measurement is shown",
        description=(
            "Opens a room on your machine. Its projector page shows a guess of the course, an address and a code. "
            "Learners join by choice and without names: with a phone at that address, or in a notebook with "
            '`from course_lib.room import join` and `join("ADDRESS", "CODE")`; then the guesses that they commit, and '
            "the names of the mistakes that check recognises, arrive here, and nothing else. You see the histogram "
            "grow; reveal closes the votes and shows what was measured, and why. A second view shows the most frequent "
            "mistakes by exercise."
        ),
        epilog=(
            "Example: python -m course_lib room attention --host 192.168.1.20. Keys on the projector page: ← → another "
            "question, R reveal, M mistakes, B hide the bars. Counts vanish when the room closes, unless --out names "
            "a file. A room for a conversation, not an election: whoever has the code can vote by phone and notebook."
        ),
    )
    parser.add_argument(
        "chapters", nargs="*", metavar="CHAPTER", help="number or name, such as 2 or attention (default: all)"
    )
    parser.add_argument(
        "--host", default="127.0.0.1",
        help="address of this machine that learners reach (default: %(default)s, which only this machine does)",
    )  # fmt: skip
    parser.add_argument("--port", type=int, default=PORT, help="where the room answers (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the counts, as JSON, at each reveal and the end")
    parser.set_defaults(run=run, remedy="choose another --port, --host or --out")


def run(arguments: argparse.Namespace) -> int:
    """Keep the room open until Ctrl-C."""
    import asyncio

    from course_lib.contents import CHAPTERS
    from course_lib.files import save_json
    from course_lib.room.server import serve
    from course_lib.room.tally import Tally

    out, wanted = arguments.out, [name.lower() for name in arguments.chapters]
    for name in wanted:
        if not any(name in (str(chapter.number), chapter.slug) for chapter in CHAPTERS):
            slugs = ", ".join(chapter.slug for chapter in CHAPTERS)
            raise ValueError(f"CHAPTER {name!r} is none of the course: 0 to {CHAPTERS[-1].number}, or one of {slugs}")
    if not 0 <= arguments.port <= 65535:
        raise ValueError(f"port must be between 0 and 65535, got {arguments.port}")
    if out and out.exists():
        raise ValueError(f"{out} is there already: name another file with --out")
    chosen = [chapter for chapter in CHAPTERS if chapter.slug in wanted or str(chapter.number) in wanted]
    tally = Tally(chosen or CHAPTERS)

    def keep() -> None:
        if out:
            save_json(out, tally.summary())

    def ready(port: int) -> None:
        keep()  # a file that cannot be written is told now
        print("\n".join(welcome(tally.code, tally.key, arguments.host, port, out)), flush=True)

    try:
        asyncio.run(serve(tally, arguments.host, port=arguments.port, ready=ready, keep=keep))
    except KeyboardInterrupt:
        keep()
    told = tally.summary()
    votes = sum(sum(counts.values()) for counts in told["guesses"].values())
    kept = f"kept in {out}" if out else "not kept"
    print(f"\nThe room is closed. Learners: {told['learners']}; votes: {votes}; {kept}.")
    return 0


def welcome(code: str, key: str, host: str, port: int, out: Path | None) -> list[str]:
    """Return what the terminal shows of an open room, a line each."""
    everywhere = host in ("0.0.0.0", "::", "")
    reached = local_address() if everywhere else host
    address = f"{f'[{reached}]' if ':' in reached else reached}:{port}"
    lines = [
        f"The room is open: {address}, code {code}",
        f"  your projector:      http://{address}/projector#{key}  (keep this link to yourself: it can reveal)",
        f"  learners' phones:    http://{address}/",
        f'  learners\' notebooks: from course_lib.room import join; join("{address}", "{code}")',
    ]
    if reached.startswith("127.") or reached in ("localhost", "::1"):
        lines.append(
            "Nobody but this machine reaches it. To open it to your class, in its network: "
            f"python -m course_lib room --host {local_address()}"
        )
    kept = f"The counts go to {out}." if out else "Nothing is written."
    return [*lines, f"Votes are counted without names and addresses. {kept} Ctrl-C closes the room."]


def local_address() -> str:
    """Return this machine's address in its network, as far as it knows; nothing is sent to find it."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect(("10.255.255.255", 1))
            return probe.getsockname()[0]
    except OSError:
        return "ADDRESS"
