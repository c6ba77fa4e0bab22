"""The live room: a class commits its guesses together, and sees all its votes before it sees the measurement.

`tally` counts the votes and the mistakes, and refuses invalid messages. `server` runs on the teacher's machine and
offers the tally over HTTP. Its pages for the projector and for phones are in `page/`. `client` sends the messages of a
notebook.

`python -m course_lib room` opens a room. A notebook sends nothing unless the learner joins, and never a name.
"""

import importlib

_HOMES = {"join": "client", "leave": "client"}
PORT = 8890
EXAMPLE = "K7QF 3MXW"  # an example of a code, in the format of the projector
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def letters_of(code: str) -> str:
    """Return the letters of a code in capitals, without spaces and hyphens."""
    return "".join(code.split()).replace("-", "").upper()
