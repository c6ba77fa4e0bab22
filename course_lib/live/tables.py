"""Figures as a table of text: whole words, aligned in the same way in every chapter."""

from collections.abc import Iterable, Sequence
from typing import Any

from course_lib.course.tables import aligned


def table(rows: Iterable[Sequence[Any]], head: Sequence[str] = (), digits: int = 2) -> None:
    """Print rows in columns, the first column aligned left and all others right.

    Args:
        rows: the cells of each row. Text stays as it is, whole numbers get a comma between thousands, and other numbers
            are rounded. A tensor of one element is a number.
        head: a name for each column.
        digits: digits after the point.

    Errors: ValueError if there are no rows, or if a row has more or fewer cells than the others.
    """
    cells = [[_text(cell, digits) for cell in row] for row in rows]
    widths = {len(row) for row in [*cells, *([head] if head else [])]}
    if not cells or len(widths) > 1:
        found = f"rows of {', '.join(map(str, sorted(widths)))} cells" if cells else "no rows"
        raise ValueError(f"a table needs rows with one cell for each column, got {found}; fill gaps with ''")
    print(aligned(cells, head))


def _text(cell: Any, digits: int) -> str:
    number = cell.item() if hasattr(cell, "item") else cell
    if isinstance(number, int) and not isinstance(number, bool):
        return f"{number:,}"
    return f"{number:.{digits}f}" if isinstance(number, float) else str(number)
