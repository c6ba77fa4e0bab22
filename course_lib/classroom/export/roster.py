"""Whose row it is: the rows of a gradebook, found by the names of submissions. Nothing is guessed."""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_lib.classroom.export.spreadsheets import csv_text, spreadsheet_cell
from course_lib.classroom.export.text import in_order, one_line, sanitized, save_text

from ..file_names import downloads
from ..graded import GradedSubmission


def _comparable(text: str) -> str:
    """Return what is equal for what people take for the same name: "Ada_Lovelace", "ada lovelace"."""
    return " ".join(unicodedata.normalize("NFKC", sanitized(text)).replace("_", " ").casefold().split())


def _letters(text: str) -> str:
    """Return the same without spaces and signs, of which Canvas leaves none in the name of a download."""
    return "".join(filter(str.isalnum, _comparable(text)))


class Roster:
    """Rows of a gradebook, found by the name of a submission.

    Args:
        rows: for each row its number there (the LMS's own, which stands in the names of downloaded submissions), and
            everything else by which a submission may be named: logins, addresses, the person's name.
        number: how that number stands in the name of a download (`file_names.downloads`).
    """

    def __init__(self, rows: Mapping[int, tuple[str, Sequence[str]]], number: re.Pattern):
        self._number = number
        self._numbers, self._names = defaultdict(set), defaultdict(set)
        self._letters = {row: {_letters(name) for name in names} - {""} for row, (_, names) in rows.items()}
        for row, (id, names) in rows.items():
            if id.strip():
                self._numbers[id.strip()].add(row)
            for name in (id, *names):
                if key := _comparable(name):
                    self._names[key].add(row)

    def _rows(self, name: str) -> set[int]:
        stem = re.sub(r"\.(?:ipynb|zip)$", "", name, flags=re.IGNORECASE)
        named = self._names.get(_comparable(name), set()) | self._names.get(_comparable(stem), set())
        meant = downloads(name, self._number)
        numbered = [(row, each.learner) for each in meant for row in self._numbers.get(each.number, ())]
        rows = named | {row for row, _ in numbered}
        if len(rows) > 1 or len(meant) > 1:  # a profile, or a file, may be called as somebody else's download is
            agreed = {row for row, learner in numbered if _letters(learner) in self._letters[row]}
            rows = agreed or (rows if len(rows) > 1 else named)
        return rows

    def assign(
        self, marked: Sequence[GradedSubmission]
    ) -> tuple[dict[int, GradedSubmission], list[tuple[GradedSubmission, str]]]:
        """Return the submission of each row, and the submissions without one, with the reason. Nothing is guessed."""
        claims, left = defaultdict(list), []
        for each in in_order(marked):
            rows = self._rows(each.name)
            if len(rows) == 1:
                claims[next(iter(rows))].append(each)
            else:
                left.append((each, "it fits several rows" if rows else "no row has this name or number"))
        for claimants in claims.values():
            if len(claimants) > 1:
                left += [(each, "another submission fits the same row") for each in claimants]
        return {row: claimants[0] for row, claimants in claims.items() if len(claimants) == 1}, left


def save_unmatched(path: Path, left: Sequence[tuple[GradedSubmission, str]]) -> list[Path]:
    """Write a table of the submissions that found no row, if there are any; one of an earlier run is removed."""
    if not left:
        path.unlink(missing_ok=True)
        return []
    rows: list[Sequence[object]] = [["submission", "earned", "points", "not entered because"]]
    rows += [[spreadsheet_cell(one_line(each.name)), each.earned, each.points, why] for each, why in left]
    return [save_text(path, csv_text(rows), "utf-8-sig")]
