"""Errors whose message says all: a notebook shows the sentence without a traceback, and a program can catch them."""


class _Told:
    """What such an error has beside its kind. `_render_traceback_` is what IPython asks for in place of a traceback."""

    def __str__(self) -> str:
        return " ".join(map(str, getattr(self, "args", ())))  # a KeyError would put it in quotes

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class UnknownId(_Told, KeyError):
    """An exercise or a guess that there is not."""


class NoId(_Told, TypeError):
    """Something else where an id, or an answer, is asked for."""


class NothingKept(_Told, ValueError):
    """An exercise of which no answer is kept."""
