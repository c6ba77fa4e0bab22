"""The live room: a class commits its guesses together, and sees what it believes before it sees what is measured.

tally    what has arrived, counted: votes on guesses, names of mistakes; what may not is refused
server   the same over HTTP, on the teacher's machine; `page/` holds the pages for the projector and for phones
client   the learner's side, in a notebook: `join`, `leave`

`python -m course_lib room` opens one. Nothing is sent unless a learner joins; what is sent has no name.
"""

import importlib

_HOMES = {"join": "client", "leave": "client"}
PORT = 8890
EXAMPLE = "K7QF 3MXW"  # of a code, as the projector shows one
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def letters_of(code: str) -> str:
    """Return the letters of a code, however they were typed: capitals, gaps and hyphens do not matter."""
    return "".join(code.split()).replace("-", "").upper()
