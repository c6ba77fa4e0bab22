"""What was handed in: which files are one submission, and what was not taken.

What each holds is read by `submission_reader`.
"""

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from course_lib.classroom.file_names import COURSE_FILE, downloads
from course_lib.classroom.read.folders import (
    LINK,
    LITTER,
    NOWHERE,
    OTHER_ARCHIVES,
    File,
    Folder,
    Item,
    LeftOut,
    Refused,
    ending,
    ignored,
    items_of,
    natural,
    on_disk,
    unpacked,
)
from course_lib.classroom.read.notebook_reader import read_cells, read_notebook
from course_lib.classroom.read.other_formats import FORMS, MARIMO, cells_of_form
from course_lib.classroom.read.platforms import Told, people_of, told_beside
from course_lib.classroom.read.repair import ENDINGS, TELLS, TEXT_NOTEBOOK, WANTED
from course_lib.classroom.read.roster import TWICE, Learner, Owner, Roster, shown_names
from course_lib.classroom.read.submission_reader import (
    NO_NOTEBOOK,
    Reading,
    Submission,
    chapters_in_name,
    read_submission,
)
from course_lib.course.files import COURSE
from course_lib.grading.judge.show import printable


class HandedIn(NamedTuple):
    """What lay there. left: what was not taken · unknown: name of a submission -> why it fills no row of the roster."""

    submissions: list[Submission]
    left: list[LeftOut]
    unknown: dict[str, str]


def find_submissions(paths: Sequence[Path]) -> list[Submission]:
    """Return the submissions of `find_handed_in`, without what was not taken."""
    return find_handed_in(paths).submissions


def find_handed_in(
    paths: Sequence[Path],
    learners: Sequence[Learner] = (),
    one_each: bool = False,
    salvage: bool = True,
    unfinished: bool = False,
) -> HandedIn:
    """Return every submission among `paths`, in the natural order of their names; and what was not taken, and why.

    A notebook or a zip file is a submission, named after itself. A folder that is given alone is
      - one submission, if it holds nothing but one notebook, or if its notebooks bear the course's own file names, each
        of another chapter (02_attention-Copy1.ipynb is no other notebook than 02_attention.ipynb), and no folder or
        archive in it holds a notebook; or if its only notebook's name begins as the course's (02_attention_final.ipynb,
        with helper files beside it); so is a copy of the course;
      - otherwise a class: each notebook, archive and folder in it is a submission. One without a notebook is one too,
        of no points. So `submitted/NAME/ASSIGNMENT/x.ipynb` works. What else is in it, is told as not taken.
    A zip file that is given alone is read as such a folder. Of several paths each is one submission. A submission's
    notebooks are looked for at any depth, and in zip files within it; names that begin with a dot, `__MACOSX` and
    installed packages are passed by.

    What a learning platform says by its file names, or by what it lays beside the files (`platforms`), to be of one
    learner is one submission; of a group, one for each. If in doubt, two files are two submissions: what was split is
    seen, and what was merged is not.

    Two submissions of one name are told apart by the folder around them, or by a number.

    Args:
        learners: of a roster (`read_roster`). A folder that is given alone is then a class. All that fits one learner
            is one submission, under the learner's name; what fits nobody, or several, is one by itself, and unknown.
        one_each: each item of a class is one submission, whatever it holds and whatever its name says.
        salvage: read what can be read of what is damaged or in another form (`repair`).
        unfinished: run what is complete above a syntax error in its cell, which Python does not.

    Errors: ValueError for a path that is not there or can hold no submission, and if there is none at all. What a
        learner handed in raises nothing: see `troubles`.
    """
    if not paths:
        raise ValueError("paths is empty: name the notebooks, zip files or folders to be graded")
    places = sorted({Path(os.path.abspath(path)) for path in paths}, key=lambda place: natural(str(place)))
    for place in places:
        if not os.path.lexists(place):
            raise ValueError(f"{place} is not there: name a notebook (.ipynb), a zip file or a folder of them")
        usual = ending(place.name) in (".ipynb", ".zip") or (salvage and _is_salvageable(on_disk(place)))
        if os.path.isfile(place) and not usual:
            raise ValueError(f"{place} is no submission: name a notebook (.ipynb), a zip file or a folder of them")
    told: dict[str, Told] = {}
    with ExitStack() as until:
        if len(places) == 1:
            [place] = places
            # The teacher's own link to a folder is followed; one inside of it is not.
            alone = Folder(place.name, lambda: items_of(place)) if os.path.isdir(place) else on_disk(place)
            items, note = _split(alone, until, learners or one_each, salvage)
            items, told = told_beside(items)
            handed_in = [(item, place.name) for item in items]
            is_class = handed_in[0:1] != [(alone, place.name)]
        else:
            handed_in, note = [(on_disk(place), place.parent.name) for place in places], ""
            is_class = False
        known = learners or people_of(told)
        groups, left = _by_learner(handed_in, Roster.of(known) if known else None, told, one_each, salvage)
        submissions, unknown = [], {}
        for name, group in zip(_names(groups, known), groups):
            submission = read_submission(name, group.item, salvage, own=not any(map(_is_the_course, places)))
            links = [trouble for trouble in submission.all_troubles if trouble.endswith(LINK)]
            empty = not any(notebook.cells for notebook in submission.notebooks)
            if is_class and links and empty and f"{NO_NOTEBOOK}, but" not in "".join(submission.troubles):
                left.append(LeftOut(name, f"holds no notebook that can be read: {links[0]}"))
                continue
            if is_class and note:
                submission = replace(submission, salvaged=(note, *submission.salvaged))
            times = tuple(told[each].time if each in told else "" for each in group.names)
            learner = group.learner(known)
            submission = replace(submission, learner=learner, handed_in=group.names, times=times, unfinished=unfinished)
            submissions.append(submission)
            if learners and group.owner.row is None:
                unknown[name] = group.owner.why
    if not submissions:
        why = "; ".join(f"{each.name} {each.why}" for each in left[:5])
        raise ValueError(
            f"{places[0]} holds no submission: neither a notebook nor a zip file nor a folder{why and f' ({why})'}"
        )
    return HandedIn(sorted(submissions, key=lambda submission: natural(submission.name)), left, unknown)


def _is_the_course(place: Path) -> bool:
    """Say whether these are the course's own notebooks, so that a comparison with them would say nothing."""
    return any(place.is_relative_to(COURSE / name) for name in ("notebooks", "exercises")) or place == COURSE


def _split(item: Item, until: ExitStack, is_class: object, salvage: bool) -> tuple[list[Item], str]:
    """Return what lies in a class that is given alone, or the item itself if it is one submission; and what of the
    class's own archive was salvaged."""
    folder = item
    if isinstance(item, File) and ending(item.name) == ".zip":
        with suppress(Refused):
            folder = unpacked(item, lambda size: None, until, salvage)
    if not isinstance(folder, Folder):
        return [item], ""
    note = folder.note and f"{item.name} {folder.note}"
    return _parts(item, folder, is_class, salvage), note


def _parts(item: Item, folder: Folder, is_class: object, salvage: bool) -> list[Item]:
    items = _handed_in(folder)
    if folder is not item and len(visible := _visible(items)) == 1 and isinstance(visible[0], Folder):
        items = [each for each in items if each is not visible[0]] + _handed_in(visible[0])  # the archive of a folder
    visible = _visible(items)
    if is_class and visible:
        return items
    names = {each.name for each in visible if isinstance(each, Folder)}
    if "exercises" in names and names & {"course_lib", "notebooks"}:  # a copy of the course, whatever else lies in it
        return [item]
    is_empty_archive = folder is not item and not any(map(_is_submission, visible))
    return [item] if is_empty_archive or _is_one_learners(visible, salvage) else items


def _handed_in(folder: Folder) -> list[Item]:
    """Return all but what systems leave in a folder. What is passed by says so."""
    items = [each for each in folder.items() if each.name not in LITTER and not each.name.startswith("._")]
    return [LeftOut(each.name, "is hidden or no work of a learner") if ignored(each.name) else each for each in items]


def _visible(items: Sequence[Item]) -> list[Item]:
    """Leave out what is no place in an archive, too."""
    return [each for each in items if not (ignored(each.name) or getattr(each, "why", "") in NOWHERE)]


def _is_notebook(item: Item) -> bool:
    return ending(item.name) == ".ipynb" and not isinstance(item, Folder)


def _is_submission(item: Item) -> bool:
    named = ending(item.name) in (".ipynb", ".zip", *OTHER_ARCHIVES)
    return isinstance(item, Folder) or (isinstance(item, File) and named)


def _is_salvageable(item: Item) -> bool:
    """Say whether a loose file holds answers: a notebook under another ending, or a Python file that defines some."""
    if isinstance(item, File):
        with suppress(Refused):
            if TEXT_NOTEBOOK.search(item.name):
                return bool(read_cells(read_notebook(item, lambda size: None))[0])
            if ending(item.name) in FORMS:
                return bool(cells_of_form(item, lambda size: None))
    return False


def _refused(item: Item) -> str:
    """Return why a notebook in another form is not read, "" if it is, or is none."""
    try:
        if isinstance(item, File) and ending(item.name) in FORMS:
            cells_of_form(item, lambda size: None)
    except Refused as refused:
        return str(refused)
    return ""


def _is_one_learners(items: Sequence[Item], salvage: bool) -> bool:
    """Say whether what lies side by side is surely of one learner: see `find_handed_in`."""
    notebooks = [each for each in items if _is_notebook(each)]
    others = [each for each in items if not _is_notebook(each) and _is_submission(each)]
    if not notebooks:
        return False
    copied = re.compile(r"-Copy[0-9]+$| \([0-9]+\)$")  # JupyterLab's own, and a browser's second download
    originals = {copied.sub("", os.path.splitext(notebook.name)[0]) for notebook in notebooks}
    if len(originals) == 1 and len(notebooks) == len(items):
        return not downloads(notebooks[0].name)
    if len(originals) == 1 and not others and re.match(COURSE_FILE, next(iter(originals))):
        return True  # 02_attention_final.ipynb, with what it imports
    chapters = [chapters_in_name(name) for name in originals if re.fullmatch(rf"({COURSE_FILE})( \([0-9]+\))?", name)]
    others_work = any(_may_hold_notebook(each, salvage) for each in others)
    return len(chapters) == len(originals) == len(set().union(*chapters)) and not others_work


def _may_hold_notebook(item: Item, salvage: bool) -> bool:
    """Say whether a folder or an archive holds a notebook; an archive that cannot be opened may."""
    reading = Reading(salvage)
    with ExitStack() as until:
        reading.look(item, until)
    return bool(reading.found[".ipynb"] or reading.notebooks or (isinstance(item, File) and reading.troubles))


class _Group(NamedTuple):
    """What becomes one submission. around: the folder in which it lay · names: of what lay there · owner: of a row of
    the roster, where there is one."""

    item: Item
    around: str
    names: tuple[str, ...]
    owner: Owner = Owner(None)

    def learner(self, learners: Sequence[Learner]) -> str:
        """Return the id of whose it is: the roster's, or without one the number in the name of a download, if any."""
        if learners:
            return learners[self.owner.row].id if self.owner.row is not None else ""
        numbers = {meant[0].number if len(meant := downloads(name)) == 1 else "" for name in self.names}
        return numbers.pop() if len(numbers) == 1 else ""


def _by_learner(
    handed_in: Sequence[tuple[Item, str]],
    roster: Roster | None,
    told: Mapping[str, Told],
    one_each: bool,
    salvage: bool,
) -> tuple[list[_Group], list[LeftOut]]:
    """Return what is one submission each, and the rest. All that a roster, or a download, gives one learner is one."""
    together = defaultdict(list)
    for i, (item, around) in enumerate(handed_in):
        meant = downloads(item.name)
        for owner in _owners(item, roster, told):
            alone = one_each or (owner.row is None if roster else len(meant) != 1)
            key = (i, owner.row) if alone else owner.row if roster else meant[0][:2]
            together[key, alone].append((item, around, owner))
    found: list[_Group] = []
    left: list[LeftOut] = []
    named = {_stem(item) for item, _ in handed_in if _is_submission(item)}
    for files in together.values():
        numbers = Counter(each.file for item, _, _ in files for each in downloads(item.name)[:1] if each.file)
        if len(files) == 1 or any(count > 1 for count in numbers.values()):  # Canvas gives each file its own
            groups = [[file] for file in files]
        else:
            groups = [files]
        for group in groups:
            items = [item for item, _, _ in group]
            salvageable = salvage and any(_is_salvageable(each) and _stem(each) not in named for each in items)
            if salvageable or any(map(_is_submission, items)):
                _, around, owner = group[0]
                item = items[0] if len(items) == 1 else _joined(items)
                found.append(_Group(item, around, tuple(each.name for each in items), owner))
            else:
                left += [_not_taken(each, named, salvage) for each in items]
    rows = Counter(each.owner.row for each in found)
    twice = Owner(None, TWICE)
    return [
        each._replace(owner=twice) if each.owner.row is not None and rows[each.owner.row] > 1 else each
        for each in found
    ], left


def _owners(item: Item, roster: Roster | None, told: Mapping[str, Told]) -> list[Owner]:
    """Return whose a thing in a class is: of one learner, or of each of a group."""
    if not roster or ignored(item.name):
        return [Owner(None)]
    if item.name not in told or not (people := told[item.name].people):
        return [roster.owner(item.name, at_an_end=True)]
    # A name may be of its bearer's choice: where the roster has the platform's logins, only these count.
    has_ids = any(roster.knows(id) for each in told.values() for person in each.people for id in person.ids)
    return list(dict.fromkeys(roster.of_person(person.ids, "" if has_ids else person.name) for person in people))


def _not_taken(item: Item, named: set[str], salvage: bool) -> LeftOut:
    why = "is neither a notebook (.ipynb) nor a zip file nor a folder"
    if isinstance(item, LeftOut):
        why = item.why
    elif salvage and _is_salvageable(item) and _stem(item) in named:
        why = "is next to a submission of the same name, which counts"
    elif salvage and (refused := _refused(item)):
        why = refused if refused == MARIMO else refused + WANTED
    elif salvage and TEXT_NOTEBOOK.search(item.name):
        why = f"is no notebook that can be read{WANTED}"
    elif salvage and ending(item.name) in TELLS:
        why = TELLS[ending(item.name)] + WANTED
    return LeftOut(printable(item.name), why)


def _joined(items: Sequence[Item]) -> Folder:
    """Return one learner's files as a folder, in which each bears the name that it had before it was handed in."""
    meant = [downloads(item.name) for item in items]
    rests = [each[0].rest if len(each) == 1 else "" for each in meant]
    names = [rest if rest and not ignored(rest) else item.name for item, rest in zip(items, rests)]
    if len(set(names)) < len(names):
        names = [f"{number} {item.name}" for number, item in enumerate(items, start=1)]
    inside = [replace(item, name=name) for item, name in zip(items, names)]
    return Folder(
        _stem(next(filter(_is_submission, items), items[0])),
        lambda: sorted(inside, key=lambda each: natural(each.name)),
    )


def _names(found: Sequence[_Group], learners: Sequence[Learner]) -> list[str]:
    """Return a name of its own for each: the roster's or the file's, with the folder around it where two have one."""
    known = shown_names(learners)
    own = [_clean(known[each.owner.row]) if each.owner.row is not None else _name(each.item) for each in found]
    counts = Counter(own)
    around = defaultdict(set)
    for name, group in zip(own, found):
        around[name].add(group.around)
    taken = {name for name in own if counts[name] == 1}
    names = []
    for name, group in zip(own, found):
        if counts[name] > 1:
            label = f"{name} ({_clean(group.around)})" if len(around[name]) > 1 else name
            numbered = (f"{label} ({number})" for number in range(2, len(found) + 2))
            name = next(each for each in (label, *numbered) if each not in taken)
            taken.add(name)
        names.append(name)
    return names


def _name(item: Item) -> str:
    return _clean(_stem(item))


def _stem(item: Item) -> str:
    stem, suffix = os.path.splitext(item.name)
    if isinstance(item, Folder):
        return item.name
    return stem if suffix.lower() in (".zip", *OTHER_ARCHIVES) else ENDINGS.sub("", item.name)


def _clean(name: str) -> str:
    return printable(unicodedata.normalize("NFC", name), 300).strip() or "(without a name)"
