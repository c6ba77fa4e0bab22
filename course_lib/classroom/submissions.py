"""What was handed in: which files are one submission, and what was not taken.

What each holds is read by `submission_reader`.
"""

import os
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

from course_lib.grading.show import printable

from .file_names import COURSE_FILE, downloads
from .folders import (
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
from .submission_reader import NO_NOTEBOOK, Reading, Submission, chapters_in_name, read_submission


def find_submissions(paths: Sequence[Path]) -> list[Submission]:
    """Return the submissions of `find_submissions_and_rest`, without what was not taken."""
    return find_submissions_and_rest(paths)[0]


def find_submissions_and_rest(paths: Sequence[Path]) -> tuple[list[Submission], list[LeftOut]]:
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

    What Canvas or Moodle says by its file names to be of one learner is one submission. If in doubt, two files are two
    submissions: what was split is seen, and what was merged is not.

    Two submissions of one name are told apart by the folder around them, or by a number.

    Errors: ValueError for a path that is not there or can hold no submission, and if there is none at all. What a
        learner handed in raises nothing: see `troubles`.
    """
    if not paths:
        raise ValueError("paths is empty: name the notebooks, zip files or folders to be graded")
    places = sorted({Path(os.path.abspath(path)) for path in paths}, key=lambda place: natural(str(place)))
    for place in places:
        if not os.path.lexists(place):
            raise ValueError(f"{place} is not there: name a notebook (.ipynb), a zip file or a folder of them")
        if os.path.isfile(place) and ending(place.name) not in (".ipynb", ".zip"):
            raise ValueError(f"{place} is no submission: name a notebook (.ipynb), a zip file or a folder of them")
    with ExitStack() as until:
        if len(places) == 1:
            [place] = places
            # The teacher's own link to a folder is followed; one inside of it is not.
            alone = Folder(place.name, lambda: items_of(place)) if os.path.isdir(place) else on_disk(place)
            handed_in = [(item, place.name) for item in _split(alone, until)]
            is_class = handed_in[0:1] != [(alone, place.name)]
        else:
            handed_in = [(on_disk(place), place.parent.name) for place in places]
            is_class = False
        found, left = _by_learner(handed_in)
        submissions = []
        for name, (item, _) in zip(_names(found), found):
            submission = read_submission(name, item)
            links = [trouble for trouble in submission.all_troubles if trouble.endswith(LINK)]
            empty = not any(notebook.cells for notebook in submission.notebooks)
            if is_class and links and empty and f"{NO_NOTEBOOK}, but" not in "".join(submission.troubles):
                left.append(LeftOut(name, f"holds no notebook that can be read: {links[0]}"))
            else:
                submissions.append(submission)
    if not submissions:
        why = "; ".join(f"{each.name} {each.why}" for each in left[:5])
        raise ValueError(
            f"{places[0]} holds no submission: neither a notebook nor a zip file nor a folder{why and f' ({why})'}"
        )
    return sorted(submissions, key=lambda submission: natural(submission.name)), left


def _split(item: Item, until: ExitStack) -> list[Item]:
    """Return what lies in a class that is given alone; the item itself if it is one submission."""
    folder = item
    if isinstance(item, File) and ending(item.name) == ".zip":
        with suppress(Refused):
            folder = unpacked(item, lambda size: None, until)
    if not isinstance(folder, Folder):
        return [item]
    items = _handed_in(folder)
    if folder is not item and len(visible := _visible(items)) == 1 and isinstance(visible[0], Folder):
        items = [each for each in items if each is not visible[0]] + _handed_in(visible[0])  # the archive of a folder
    visible = _visible(items)
    names = {each.name for each in visible if isinstance(each, Folder)}
    if "exercises" in names and names & {"course_lib", "notebooks"}:  # a copy of the course, whatever else lies in it
        return [item]
    is_empty_archive = folder is not item and not any(map(_is_submission, visible))
    return [item] if is_empty_archive or _is_one_learners(visible) else items


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


def _is_one_learners(items: Sequence[Item]) -> bool:
    """Say whether what lies side by side is surely of one learner: see `find_submissions_and_rest`."""
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
    others_work = any(map(_may_hold_notebook, others))
    return len(chapters) == len(originals) == len(set().union(*chapters)) and not others_work


def _may_hold_notebook(item: Item) -> bool:
    """Say whether a folder or an archive holds a notebook; an archive that cannot be opened may."""
    reading = Reading()
    with ExitStack() as until:
        reading.look(item, until)
    return bool(reading.found[".ipynb"] or reading.notebooks or (isinstance(item, File) and reading.troubles))


def _by_learner(handed_in: Sequence[tuple[Item, str]]) -> tuple[list[tuple[Item, str]], list[LeftOut]]:
    """Return the submissions, each with the folder around it, and the rest. A learner's files of a download are one."""
    together = defaultdict(list)
    for i, (item, around) in enumerate(handed_in):
        meant = downloads(item.name)
        together[meant[0][:2] if len(meant) == 1 else i].append((item, around))
    found: list[tuple[Item, str]] = []
    left: list[LeftOut] = []
    for files in together.values():
        numbers = Counter(each.file for item, _ in files for each in downloads(item.name)[:1] if each.file)
        if len(files) == 1 or any(count > 1 for count in numbers.values()):  # Canvas gives each file its own
            groups = [[file] for file in files]
        else:
            groups = [files]
        for group in groups:
            items = [item for item, _ in group]
            if not any(map(_is_submission, items)):
                left += map(_not_taken, items)
            else:
                found.append(group[0] if len(group) == 1 else (_joined(items), group[0][1]))
    return found, left


def _not_taken(item: Item) -> LeftOut:
    why = item.why if isinstance(item, LeftOut) else "is neither a notebook (.ipynb) nor a zip file nor a folder"
    return LeftOut(printable(item.name), why)


def _joined(items: Sequence[Item]) -> Folder:
    """Return one learner's files as a folder, in which each bears the name that it had before it was handed in."""
    rests = [downloads(item.name)[0].rest for item in items]
    names = [rest if rest and not ignored(rest) else item.name for item, rest in zip(items, rests)]
    if len(set(names)) < len(names):
        names = [f"{number} {item.name}" for number, item in enumerate(items, start=1)]
    inside = [replace(item, name=name) for item, name in zip(items, names)]
    return Folder(
        _stem(next(filter(_is_submission, items))), lambda: sorted(inside, key=lambda each: natural(each.name))
    )


def _names(found: Sequence[tuple[Item, str]]) -> list[str]:
    """Return a name of its own for each item, given the folder around it."""
    own = [_name(item) for item, _ in found]
    counts = Counter(own)
    around = defaultdict(set)
    for name, (_, folder) in zip(own, found):
        around[name].add(folder)
    taken = {name for name in own if counts[name] == 1}
    names = []
    for name, (_, folder) in zip(own, found):
        if counts[name] > 1:
            label = f"{name} ({_clean(folder)})" if len(around[name]) > 1 else name
            numbered = (f"{label} ({number})" for number in range(2, len(found) + 2))
            name = next(each for each in (label, *numbered) if each not in taken)
            taken.add(name)
        names.append(name)
    return names


def _name(item: Item) -> str:
    return _clean(_stem(item))


def _stem(item: Item) -> str:
    stem, suffix = os.path.splitext(item.name)
    is_file = not isinstance(item, Folder) and suffix.lower() in (".ipynb", ".zip", *OTHER_ARCHIVES)
    return stem if is_file else item.name


def _clean(name: str) -> str:
    return printable(unicodedata.normalize("NFC", name), 300).strip() or "(without a name)"
