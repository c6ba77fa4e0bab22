"""Errors that need no traceback: a notebook shows only their message, and a program can catch them as usual."""


class _Told:
    """Show only the message: IPython calls `_render_traceback_` instead of printing a traceback."""

    def __str__(self) -> str:
        return " ".join(map(str, getattr(self, "args", ())))  # KeyError would quote the message

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class UnknownId(_Told, KeyError):
    """Raised if no exercise or guess has the given id."""


class NoId(_Told, TypeError):
    """Raised if the argument is not an id, or not an answer."""


class NothingKept(_Told, ValueError):
    """Raised if no answer to an exercise is stored."""
