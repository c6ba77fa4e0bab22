"""Whose it is: the people of a class, read from what an LMS exports, and whose name or number a text bears.

Nothing is guessed: what may mean two people means nobody.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from course_lib.classroom.file_names import STEMS, Download, downloads
from course_lib.classroom.graded_submission import GradedSubmission, rounded
from course_lib.classroom.spreadsheets import Sheet, csv_text, spreadsheet_cell
from course_lib.classroom.text import in_order, one_line, sanitized, save_text

# The columns of Canvas, Moodle (worksheet, participants, gradebook), Blackboard, Brightspace, Gradescope, GitHub
# Classroom, and of lists made by hand, in the order in which they are asked; compared without capitals and signs.
IDS = (
    "id",
    "orgdefinedid",
    "identifier",
    "sisuserid",
    "userid",
    "studentid",
    "idnumber",
    "sid",
    "number",
    "identifikationsnummer",
)
NAMES = ("student", "name", "fullname", "studentname", "displayname")
FIRST, LAST = ("firstname", "first", "givenname"), ("lastname", "last", "surname", "familyname")
LOGINS = (
    *("sisloginid", "login", "loginid", "username", "githubusername", "rosteridentifier", "sisuserid"),
    *("studentid", "idnumber", "sid", "identifier", "email", "emailaddress", "mail"),
)
NO_ONE = re.compile(r"Points Possible|Student, Test|Test Student", re.IGNORECASE)  # called so by Canvas, and nobody
# One letter of an alphabet; a sign of Chinese, Japanese or Korean is a whole word.
LETTER = r"[^\W\d_\u2e80-\U0010ffff]"
# What stands at an end of many a file's name and means no person: a counter, a letter, the course's own words.
WEAK = re.compile(rf"[0-9]{{1,3}}|{LETTER}|{'|'.join(word for stem in STEMS for word in stem.split('_'))}")
APOSTROPHES = "'\u2019\u2018\u201b`\u00b4\u2032\u02b9\u02bb\u02bc\u02c8\u055a\u05f3\ua78c\uff07"
# What nobody sees: soft hyphens, zero widths, signs that turn the reading order; variation selectors.
UNSEEN = re.compile(r"[\u034f\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
ROLE, LEARNERS = "role", ("", "student", "learner", "studentenrollment")  # Gradescope lists those who teach, too


TWICE = "another submission fits the same row"


class Learner(NamedTuple):
    """One row of a roster. also: all else by which this learner may be named. row: its line in the file, from 1."""

    id: str
    name: str
    also: tuple[str, ...] = ()
    row: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.id, self.name, *self.also)


def read_roster(path: Path) -> list[Learner]:
    """Return the learners of a CSV file, whichever LMS exported it.

    Who has no number of the LMS's own is known by the login, the address or the name.
    Errors: ValueError for a file that names nobody, or two people by one id.
    """
    sheet = Sheet(path, "a roster")
    heads = [re.sub(r"[^a-z]", "", head.casefold()) for head in sheet.header]
    marks = "'#" if "endoflineindicator" in heads else "'"  # Brightspace keeps spreadsheets from numbers with a #

    def cells(row: Sequence[str], wanted: Iterable[str]) -> list[str]:
        return [row[heads.index(each)].strip().lstrip(marks) for each in wanted if each in heads]

    if not {*IDS, *NAMES, *LAST, *LOGINS} & {*heads}:
        raise ValueError(
            f"{path} has the columns {', '.join(sheet.header) or '(none)'}, and none of them says who the learner is: "
            "a roster needs one such as ID, Student, Name, Username or Email, as Canvas, Moodle, Gradescope and "
            "GitHub write it"
        )
    learners = []
    for number, row in enumerate(sheet.rows[1:], start=2):
        teaches = any(role.casefold() not in LEARNERS for role in cells(row, [ROLE]))
        first, last = (" ".join(cells(row, names)[:1]) for names in (FIRST, LAST))
        given = [each for each in cells(row, NAMES) if each]
        is_no_one = any(map(NO_ONE.fullmatch, (*given, first, last, f"{first} {last}")))
        if teaches or is_no_one or not any(map(str.strip, row)):
            continue
        full = [f"{first} {last}".strip(), f"{last} {first}".strip()]
        commas = [f"{last}, {first}"] if first and last else []
        for name in given:
            family, comma, rest = name.partition(",")
            full += [f"{rest.strip()} {family.strip()}"] if comma else []
        name = next(filter(None, [*full[2:], *given, full[0]]), "")
        logins = [each for each in cells(row, LOGINS) if each]
        logins += [each.partition("@")[0] for each in logins if "@" in each]
        ids = [re.sub(r"^Participant (?=\d+$)", "", each) for each in cells(row, IDS) if each]
        if not (id := next(iter([*ids, *logins, name]), "")):
            raise ValueError(f"line {number} of {path} has neither an id nor a name: add one, or delete it")
        also = dict.fromkeys(filter(None, [*ids, *logins, *given, *full, *commas]))
        learners.append(Learner(id, name or id, tuple(each for each in also if each not in (id, name)), number))
    if not learners:
        raise ValueError(f"{path} lists no learners: export the roster again")
    lines = defaultdict(list)
    for each in learners:
        lines[comparable(each.id)].append(each)
    for same in lines.values():
        if len(same) > 1:
            where = " and ".join(str(each.row) for each in same)
            raise ValueError(f"lines {where} of {path} have one id, {same[0].id}: one learner is one row")
    return learners


def plain_signs(text: str, unseen: str = "") -> str:
    """Return a name with one kind of apostrophe, dash and space, letters composed, and nothing that nobody sees.

    unseen: what stands for signs that nobody sees: a soft hyphen, or a space of no width, may part two words.
    """
    text = sanitized("".join(_sign(each, unseen) for each in text))
    return " ".join("".join(_sign(each, unseen) for each in unicodedata.normalize("NFKC", text)).split())


def comparable(text: str, unseen: str = "") -> str:
    """Return what is equal for what people take for the same name: "Ada_Lovelace", "ada lovelace"."""
    text = plain_signs(text, unseen).replace("_", " ").casefold()
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _sign(each: str, unseen: str) -> str:
    if each in APOSTROPHES:
        return "'"
    kind = unicodedata.category(each)
    if kind == "Pd" or each == "\u2212":  # a minus
        return "-"
    return unseen if kind == "Cf" or UNSEEN.match(each) else each


def _letters(text: str) -> str:
    """Return the same without spaces and signs, of which Canvas leaves none in the name of a download."""
    return "".join(filter(str.isalnum, comparable(text)))


def _words(text: str, unseen: str = "") -> tuple[str, ...]:
    """Return the words of a name: letters with the marks above and below them, which vowels of many scripts are."""
    text = comparable(text, unseen)
    return tuple("".join(each if unicodedata.category(each)[0] in "LMN" else " " for each in text).split())


@dataclass(frozen=True)
class Owner:
    """Whose a name is: the row, or None and why."""

    row: int | None
    why: str = ""


class Roster:
    """Rows of a class, found by the name of what was handed in.

    Args:
        rows: for each row its number there (the LMS's own, which stands in the names of downloaded submissions), and
            everything else by which a submission may be named: logins, addresses, the person's name.
        kinds: how that number stands in the name of a download (`file_names.downloads`); by default in any known way.
    """

    def __init__(self, rows: Mapping[int, tuple[str, Sequence[str]]], *kinds: re.Pattern):
        self._kinds = kinds
        self._numbers, self._names = defaultdict(set), defaultdict(set)
        self._words: dict[tuple[str, ...], set[int]] = defaultdict(set)
        self._letters = {row: {_letters(name) for name in names} - {""} for row, (_, names) in rows.items()}
        for row, (id, names) in rows.items():
            if id.strip():
                self._numbers[id.strip()].add(row)
            for name in (id, *names):
                if key := comparable(name):
                    if not re.fullmatch(LETTER, key):  # a whole name of two letters, X Æ, is somebody's
                        self._names[key].add(row)
                    for unseen in ("", " "):
                        self._words[_words(name, unseen)].add(row)
        self._words.pop((), None)

    @classmethod
    def of(cls, learners: Sequence[Learner]) -> "Roster":
        return cls({row: (each.id, each.names) for row, each in enumerate(learners)})

    def owner(self, name: str, *, at_an_end: bool = False) -> Owner:
        """Say whose row a name fits.

        at_an_end: a name that no platform gave may also begin or end with one learner's name in whole words, as do
        `ada_02_attention` and `homework-ada`. Of names that begin (or end) it, the longest counts: `Anna Lane` is not
        `anna`. A counter, a single letter, or a word of the course, that is a name by chance, can bring doubt and never
        decide. What follows a platform's number is of the learner's own choice, and says nothing.
        """
        rows, meant = self._rows(name), downloads(name, *self._kinds)
        if at_an_end and len(meant) > 1 and not self._is_surely_one(meant):
            return Owner(None, "its name can be read as a download of several learners")
        if at_an_end and not rows and not meant:
            ends = self._ends(_words(_stem(name))) or self._ends(_words(_stem(name), " "))
            rows = {row for end in ends for row in self._words.get(end, ())}
            sure = {row for end in ends if not all(map(WEAK.fullmatch, end)) for row in self._words.get(end, ())}
            if rows and not sure:
                return Owner(None, "its name has a number, letter or word of the roster, perhaps by chance")
        if len(rows) == 1:
            return Owner(next(iter(rows)))
        return Owner(None, "it fits several rows" if rows else "no row has this name or number")

    def _ends(self, words: tuple[str, ...]) -> list[tuple[str, ...]]:
        """Return the longest name with which words begin, and with which they end; if they are one name, only that."""
        lengths = range(len(words), 0, -1)
        first = next((words[:length] for length in lengths if words[:length] in self._words), ())
        last = next((words[-length:] for length in lengths if words[-length:] in self._words), ())
        return [end for end in dict.fromkeys([first, last]) if end]

    def knows(self, id: str) -> set[int]:
        """Return the rows of which a number, a login or an address is exactly one."""
        return self._numbers.get(id.strip(), set()) | self._names.get(comparable(id), set())

    def of_person(self, ids: Sequence[str], name: str = "") -> Owner:
        """Say whose row a person's is, by what a platform knows of them; a name counts where no id is known."""
        rows = set().union(*map(self.knows, ids)) or self.knows(name)
        if len(rows) == 1:
            return Owner(next(iter(rows)))
        return Owner(None, "it fits several rows" if rows else "no row has this name or number")

    def row_of_id(self, id: str) -> int | None:
        """Return the row of a learner's id: the LMS's own number first, for a profile may be called as a number is."""
        rows = self._numbers.get(id.strip(), set())
        return next(iter(rows)) if len(rows) == 1 else self.owner(id).row if id else None

    def _is_surely_one(self, meant: Sequence[Download]) -> bool:
        """Say whether only the first number is anybody's, and stands behind that person's name. On Moodle, whose mark
        stands in no name by chance, it never is."""
        first, *others = meant
        rows = self._numbers.get(first.number, set())
        named = any(_letters(first.learner) in self._letters[row] for row in rows)
        return bool(first.file) and named and not any(each.number in self._numbers for each in others)

    def _rows(self, name: str) -> set[int]:
        named = self._names.get(comparable(name), set()) | self._names.get(comparable(_stem(name)), set())
        meant = downloads(name, *self._kinds)
        named = named.union(*(self._names.get(comparable(each.called), ()) for each in meant))
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
        known = [(each, self.row_of_id(each.learner)) for each in in_order(marked)]
        taken = {row for _, row in known}
        for each, row in known:
            owner = self.owner(each.name) if row is None else Owner(row)
            if owner.row is None:
                left.append((each, owner.why))
            elif row is None and owner.row in taken:  # whose id it is, is surer than whose name
                left.append((each, TWICE))
            else:
                claims[owner.row].append(each)
        for claimants in claims.values():
            if len(claimants) > 1:
                left += [(each, TWICE) for each in claimants]
        return {row: claimants[0] for row, claimants in claims.items() if len(claimants) == 1}, left


def _stem(name: str) -> str:
    return re.sub(r"\.(?:ipynb|zip)$", "", name, flags=re.IGNORECASE)


def shown_names(learners: Sequence[Learner]) -> list[str]:
    """Return a name of its own for each learner, with the id where two have one name."""
    counts = Counter(comparable(each.name) for each in learners)
    return [f"{each.name} ({each.id})" if counts[comparable(each.name)] > 1 else each.name for each in learners]


def save_unmatched(path: Path, left: Sequence[tuple[GradedSubmission, str]]) -> list[Path]:
    """Write a table of the submissions that found no row, if there are any; one of an earlier run is removed."""
    if not left:
        path.unlink(missing_ok=True)
        return []
    rows: list[Sequence[object]] = [["submission", "earned", "points", "not entered because"]]
    rows += [[spreadsheet_cell(one_line(each.name)), *map(rounded, each.final), why] for each, why in left]
    return [save_text(path, csv_text(rows), "utf-8-sig")]
