"""Find the submissions: decide which files form one submission, and list the items not taken.

`submission_reader` reads the content of each.
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
from course_lib.classroom.read.platforms import COURSE_FILE, Told, downloads, told_beside
from course_lib.classroom.read.roster import TWICE, Learner, Owner, Roster, people_of, shown_names
from course_lib.classroom.read.salvage import (
    ENDINGS,
    FORMS,
    MARIMO,
    TELLS,
    TEXT_NOTEBOOK,
    WANTED,
    cells_of_form,
    exercise_of_file,
)
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
    """The items found.

    Fields:
        left: the items not taken.
        unknown: name of a submission -> why it matches no row of the roster.
    """

    submissions: list[Submission]
    left: list[LeftOut]
    unknown: dict[str, str]


def find_submissions(paths: Sequence[Path]) -> list[Submission]:
    """Return the submissions of `find_handed_in`, without the items not taken."""
    return find_handed_in(paths).submissions


def find_handed_in(
    paths: Sequence[Path],
    learners: Sequence[Learner] = (),
    one_each: bool = False,
    salvage: bool = True,
    unfinished: bool = False,
) -> HandedIn:
    """Return every submission among `paths`, in natural order of their names, and the items not taken with the reasons.

    A notebook or a zip file is one submission, named after itself. A single folder is one submission
      - if it is a copy of the course;
      - if it contains only one notebook;
      - if its notebooks have the course's own file names, each for a different chapter, and no folder or archive in it
        contains a notebook (02_attention-Copy1.ipynb counts as 02_attention.ipynb);
      - if the name of its only notebook begins like the course's (02_attention_final.ipynb, with helper files).

    Any other folder is a class: each notebook, archive and folder in it is a submission, even without a notebook, which
    earns no points. So `submitted/NAME/ASSIGNMENT/x.ipynb` works. Other items are reported as not taken.

    A single zip file is read like such a folder. If there are several paths, each is one submission. Notebooks are
    found at any depth and inside zip files. Names that begin with a dot, `__MACOSX` and installed packages are skipped.

    Items that a learning platform assigns to one learner, by file name or in its own files (`platforms`), form one
    submission; a group's items form one for each member. In doubt, two files are two submissions, because a wrong split
    is visible and a wrong merge is not. Two submissions with one name are distinguished by their folder or a number.

    Args:
        learners: the learners on a roster (`read_roster`). A single folder is then a class. All items of one learner
            form one submission under the learner's name; an item that fits no learner, or several, is one by itself,
            and unknown.
        one_each: treat each item of a class as one submission, whatever its content and name.
        salvage: read damaged files and other formats as far as possible (`salvage`).
        unfinished: run the complete statements above a syntax error in a cell, which Python does not.

    Errors: ValueError for a path that does not exist or cannot contain a submission, and if there is no submission at
        all. The content of a submission never raises an error: see `troubles`.
    """
    if not paths:
        raise ValueError("paths is empty: name the notebooks, zip files or folders to be graded")
    places = sorted({Path(os.path.abspath(path)) for path in paths}, key=lambda place: natural(str(place)))
    for place in places:
        if not os.path.lexists(place):
            raise ValueError(f"{place} is not there: name a notebook (.ipynb), a zip file or a folder of them")
        usual = (
            ending(place.name) in (".ipynb", ".zip")
            or exercise_of_file(place.name)
            or (salvage and _is_salvageable(on_disk(place)))
        )
        if os.path.isfile(place) and not usual:
            raise ValueError(f"{place} is no submission: name a notebook (.ipynb), a zip file or a folder of them")
    told: dict[str, Told] = {}
    with ExitStack() as until:
        if len(places) == 1:
            [place] = places
            # Follow the teacher's own link to a folder, but no link inside it.
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
    """Return whether these are the course's own notebooks, which must not be compared with themselves."""
    return any(place.is_relative_to(COURSE / name) for name in ("notebooks", "exercises")) or place == COURSE


def _split(item: Item, until: ExitStack, is_class: object, salvage: bool) -> tuple[list[Item], str]:
    """Return the items of a single class folder, or the item itself if it is one submission.

    The second value says what was salvaged from the class's own archive.
    """
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
    if "exercises" in names and names & {"course_lib", "notebooks"}:  # a copy of the course, whatever else it contains
        return [item]
    is_empty_archive = folder is not item and not any(map(_is_submission, visible))
    return [item] if is_empty_archive or _is_one_learners(visible, salvage) else items


def _handed_in(folder: Folder) -> list[Item]:
    """Return the items of a folder except files left by the operating system. Skipped items are reported elsewhere."""
    items = [each for each in folder.items() if each.name not in LITTER and not each.name.startswith("._")]
    return [LeftOut(each.name, "is hidden or no work of a learner") if ignored(each.name) else each for each in items]


def _visible(items: Sequence[Item]) -> list[Item]:
    """Return the items whose names are visible and valid paths in an archive."""
    return [each for each in items if not (ignored(each.name) or getattr(each, "why", "") in NOWHERE)]


def _is_notebook(item: Item) -> bool:
    return ending(item.name) == ".ipynb" and not isinstance(item, Folder)


def _is_submission(item: Item) -> bool:
    named = ending(item.name) in (".ipynb", ".zip", *OTHER_ARCHIVES) or bool(exercise_of_file(item.name))
    return isinstance(item, Folder) or (isinstance(item, File) and named)


def _is_salvageable(item: Item) -> bool:
    """Return whether a loose file contains answers: a renamed notebook, or a Python file that defines some."""
    if isinstance(item, File):
        with suppress(Refused):
            if TEXT_NOTEBOOK.search(item.name):
                return bool(read_cells(read_notebook(item, lambda size: None))[0])
            if exercise_of_file(item.name):
                return True
            if ending(item.name) in FORMS:
                return bool(cells_of_form(item, lambda size: None))
    return False


def _refused(item: Item) -> str:
    """Return why a notebook in another format cannot be read; "" if it can, or if the item is not one."""
    try:
        if isinstance(item, File) and ending(item.name) in FORMS:
            cells_of_form(item, lambda size: None)
    except Refused as refused:
        return str(refused)
    return ""


def _is_one_learners(items: Sequence[Item], salvage: bool) -> bool:
    """Return whether these items certainly belong to one learner: see `find_handed_in`."""
    notebooks = [each for each in items if _is_notebook(each)]
    others = [each for each in items if not _is_notebook(each) and _is_submission(each)]
    others = [each for each in others if not exercise_of_file(each.name)]
    if not notebooks:
        return False
    copied = re.compile(r"-Copy[0-9]+$| \([0-9]+\)$")  # JupyterLab's copies, and a browser's repeated downloads
    originals = {copied.sub("", os.path.splitext(notebook.name)[0]) for notebook in notebooks}
    if len(originals) == 1 and len(notebooks) == len(items):
        return not downloads(notebooks[0].name)
    if len(originals) == 1 and not others and re.match(COURSE_FILE, next(iter(originals))):
        return True  # 02_attention_final.ipynb, with the files that it imports
    chapters = [chapters_in_name(name) for name in originals if re.fullmatch(rf"({COURSE_FILE})( \([0-9]+\))?", name)]
    others_work = any(_may_hold_notebook(each, salvage) for each in others)
    return len(chapters) == len(originals) == len(set().union(*chapters)) and not others_work


def _may_hold_notebook(item: Item, salvage: bool) -> bool:
    """Return whether a folder or archive may contain a notebook. An archive that cannot be opened may contain one."""
    reading = Reading(salvage)
    with ExitStack() as until:
        reading.look(item, until)
    return bool(reading.found[".ipynb"] or reading.notebooks or (isinstance(item, File) and reading.troubles))


class _Group(NamedTuple):
    """The items of one submission.

    Fields:
        around: the folder that contains them.
        names: the items' own names.
        owner: the row of the roster, if there is one.
    """

    item: Item
    around: str
    names: tuple[str, ...]
    owner: Owner = Owner(None)

    def learner(self, learners: Sequence[Learner]) -> str:
        """Return the learner's id: from the roster, or without one the number in a download's name, if any."""
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
    """Return the groups of items that form one submission each, and the items left out.

    All items that the roster, or a download, assigns to one learner form one submission.
    """
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
        if len(files) == 1 or any(count > 1 for count in numbers.values()):  # Canvas gives each file its own number
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
    """Return the owners of an item in a class: one learner, or each member of a group."""
    if not roster or ignored(item.name):
        return [Owner(None)]
    if item.name not in told or not (people := told[item.name].people):
        return [roster.owner(item.name, at_an_end=True)]
    # Learners may choose their names: if the roster has the platform's logins, only logins count.
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
    """Return one learner's files as a folder with their original names."""
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
    """Return a unique name for each group: the roster's or the file's, with the folder added where two share a name."""
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
