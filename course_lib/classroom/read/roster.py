"""Match names to learners: read the roster that an LMS exports, and find the learner whose name or number a text has.

Nothing is guessed: a name that fits two people is assigned to no one.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from course_lib.classroom.graded_submission import GradedSubmission, rounded
from course_lib.classroom.read.platforms import STEMS, Download, Told, downloads
from course_lib.classroom.spreadsheets import Sheet, csv_text, spreadsheet_cell
from course_lib.classroom.text import in_order, one_line, sanitized, save_text

# The columns of Canvas, Moodle (worksheet, participants, gradebook), Blackboard, Brightspace, Gradescope and GitHub
# Classroom, and of handmade lists, in the order in which they are tried. Case and punctuation are ignored.
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
NO_ONE = re.compile(r"Points Possible|Student, Test|Test Student", re.IGNORECASE)  # Canvas's test rows, not learners
# One letter of an alphabet. A single Chinese, Japanese or Korean character is an entire word.
LETTER = r"[^\W\d_\u2e80-\U0010ffff]"
# Frequent beginnings and ends of file names that do not identify a person: a counter, a letter, words of the course.
WEAK = re.compile(rf"[0-9]{{1,3}}|{LETTER}|{'|'.join(word for stem in STEMS for word in stem.split('_'))}")
APOSTROPHES = "'\u2019\u2018\u201b`\u00b4\u2032\u02b9\u02bb\u02bc\u02c8\u055a\u05f3\ua78c\uff07"
# Invisible characters: soft hyphens, zero-width characters, marks of text direction, variation selectors.
UNSEEN = re.compile(r"[\u034f\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef]")
ROLE, LEARNERS = "role", ("", "student", "learner", "studentenrollment")  # Gradescope also lists the teachers


TWICE = "another submission fits the same row"


class Learner(NamedTuple):
    """One row of a roster. also: everything else that identifies this learner. row: its line in the file (from 1)."""

    id: str
    name: str
    also: tuple[str, ...] = ()
    row: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return (self.id, self.name, *self.also)


def read_roster(path: Path) -> list[Learner]:
    """Return the learners in a CSV file exported by any LMS.

    A learner without an LMS number is identified by login, address or name.
    Errors: ValueError for a file without learners, or with two people under one id.
    """
    sheet = Sheet(path, "a roster")
    heads = [re.sub(r"[^a-z]", "", head.casefold()) for head in sheet.header]
    marks = "'#" if "endoflineindicator" in heads else "'"  # Brightspace's # keeps spreadsheets from changing numbers

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
    """Return a name with one kind of apostrophe, dash and space, composed letters, and no invisible characters.

    Args:
        unseen: the replacement for invisible characters: a soft hyphen or a zero-width space may separate two words.
    """
    text = sanitized("".join(_sign(each, unseen) for each in text))
    return " ".join("".join(_sign(each, unseen) for each in unicodedata.normalize("NFKC", text)).split())


def comparable(text: str, unseen: str = "") -> str:
    """Return a form that is equal for spellings of the same name: "Ada_Lovelace", "ada lovelace"."""
    text = plain_signs(text, unseen).replace("_", " ").casefold()
    return " ".join(unicodedata.normalize("NFKC", text).split())


def _sign(each: str, unseen: str) -> str:
    if each in APOSTROPHES:
        return "'"
    kind = unicodedata.category(each)
    if kind == "Pd" or each == "\u2212":  # a minus sign
        return "-"
    return unseen if kind == "Cf" or UNSEEN.match(each) else each


def _letters(text: str) -> str:
    """Return the letters and digits only, because Canvas removes all other characters from names of downloads."""
    return "".join(filter(str.isalnum, comparable(text)))


def _words(text: str, unseen: str = "") -> tuple[str, ...]:
    """Return the words of a name. Combining marks belong to their letters, since many scripts write vowels as marks."""
    text = comparable(text, unseen)
    return tuple("".join(each if unicodedata.category(each)[0] in "LMN" else " " for each in text).split())


@dataclass(frozen=True)
class Owner:
    """The owner of a name: the row, or None and the reason."""

    row: int | None
    why: str = ""


class Roster:
    """The rows of a class, found by the name of a submission.

    Args:
        rows: for each row, its LMS number (which appears in names of downloads), and everything else that may identify
            a submission: logins, addresses, the person's name.
        kinds: the patterns of the number in a download's name (`platforms.downloads`); by default all known patterns.
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
                    if not re.fullmatch(LETTER, key):  # unless the learner's full name has two letters, such as X Æ
                        self._names[key].add(row)
                    for unseen in ("", " "):
                        self._words[_words(name, unseen)].add(row)
        self._words.pop((), None)

    @classmethod
    def of(cls, learners: Sequence[Learner]) -> "Roster":
        return cls({row: (each.id, each.names) for row, each in enumerate(learners)})

    def owner(self, name: str, *, at_an_end: bool = False) -> Owner:
        """Return the row that a name fits.

        A name that is a number, a single letter or a word of the course by chance can cause doubt, but never decides.
        The text after a platform's number is chosen by the learner and is ignored.

        Args:
            at_an_end: whether a name not given by a platform may also begin or end with one learner's name in full
                words, as in `ada_02_attention` and `homework-ada`. The longest name counts: `Anna Lane` is not `anna`.
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
        """Return the longest known names at the beginning and at the end; one entry if they are the same."""
        lengths = range(len(words), 0, -1)
        first = next((words[:length] for length in lengths if words[:length] in self._words), ())
        last = next((words[-length:] for length in lengths if words[-length:] in self._words), ())
        return [end for end in dict.fromkeys([first, last]) if end]

    def knows(self, id: str) -> set[int]:
        """Return the rows that have exactly this number, login or address."""
        return self._numbers.get(id.strip(), set()) | self._names.get(comparable(id), set())

    def of_person(self, ids: Sequence[str], name: str = "") -> Owner:
        """Return the row of a person as a platform describes them. The name only counts if no id is known."""
        rows = set().union(*map(self.knows, ids)) or self.knows(name)
        if len(rows) == 1:
            return Owner(next(iter(rows)))
        return Owner(None, "it fits several rows" if rows else "no row has this name or number")

    def row_of_id(self, id: str) -> int | None:
        """Return the row of a learner's id. LMS numbers come first, because a profile's name may look like one."""
        rows = self._numbers.get(id.strip(), set())
        return next(iter(rows)) if len(rows) == 1 else self.owner(id).row if id else None

    def _is_surely_one(self, meant: Sequence[Download]) -> bool:
        """Return whether only the first number is known and it follows the name of its learner.

        For Moodle the answer is always False, because its marker does not occur in names by chance.
        """
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
        if len(rows) > 1 or len(meant) > 1:  # a profile or file name may imitate another download
            agreed = {row for row, learner in numbered if _letters(learner) in self._letters[row]}
            rows = agreed or (rows if len(rows) > 1 else named)
        return rows

    def assign(
        self, marked: Sequence[GradedSubmission]
    ) -> tuple[dict[int, GradedSubmission], list[tuple[GradedSubmission, str]]]:
        """Return the submission of each row, and the submissions without a row, with the reason. Nothing is guessed."""
        claims, left = defaultdict(list), []
        known = [(each, self.row_of_id(each.learner)) for each in in_order(marked)]
        taken = {row for _, row in known}
        for each, row in known:
            owner = self.owner(each.name) if row is None else Owner(row)
            if owner.row is None:
                left.append((each, owner.why))
            elif row is None and owner.row in taken:  # a match by id is more certain than one by name
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
    """Return a unique name for each learner: the id is added where two share a name."""
    counts = Counter(comparable(each.name) for each in learners)
    return [f"{each.name} ({each.id})" if counts[comparable(each.name)] > 1 else each.name for each in learners]


def save_unmatched(path: Path, left: Sequence[tuple[GradedSubmission, str]]) -> list[Path]:
    """Write a table of the submissions that match no row, if there are any, and remove an earlier run's table."""
    if not left:
        path.unlink(missing_ok=True)
        return []
    rows: list[Sequence[object]] = [["submission", "earned", "points", "not entered because"]]
    rows += [[spreadsheet_cell(one_line(each.name)), *map(rounded, each.final), why] for each, why in left]
    return [save_text(path, csv_text(rows), "utf-8-sig")]


def people_of(told: dict[str, Told]) -> list[Learner]:
    """Return everyone whom a platform lists, as if its list were a roster."""
    people = dict.fromkeys(person for each in told.values() for person in each.people)
    return [Learner(next(iter(each.ids), each.name), each.name, each.ids[1:]) for each in people]
