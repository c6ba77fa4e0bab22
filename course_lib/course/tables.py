"""Tables as lines of text, aligned in the same way in every chapter and on every card."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]], head: Sequence[str] = ()) -> str:
    """Return rows of cells as text, the first column aligned left and all others right; below the head is a rule."""
    from tabulate import tabulate  # only the extra "notebooks" has it

    align = ("left", *["right"] * (len(rows[0]) - 1))
    return tabulate(rows, head, tablefmt="simple" if head else "plain", colalign=align, disable_numparse=True)
