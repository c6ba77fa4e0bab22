"""Write HTML reports: a page for the class, and a separate page for each learner to receive.

Each page is one plain HTML file without scripts or requests, and its content policy forbids both. The Jinja2 templates
are in `templates`. Learners may have written names, feedback and troubles, so templates escape all text and replace
characters that change text direction or control terminals. Only `Result.picture` is inserted as it is: the trusted side
draws it from numbers.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from course_lib.classroom.graded_submission import GradedSubmission, rounded
from course_lib.classroom.mark.marking import DIFFERS, SECOND
from course_lib.classroom.mark.statistics import average, distribution, hardest, misconceptions, share_of_points
from course_lib.classroom.read.folders import LeftOut
from course_lib.classroom.read.manifest import Line
from course_lib.classroom.read.platforms import downloads
from course_lib.classroom.spreadsheets import csv_text, spreadsheet_cell
from course_lib.classroom.text import COURSE, file_name, in_order, one_line, sanitized, save_text
from course_lib.grading.judge.show import plural
from course_lib.grading.page.catalogue import EXERCISES, get
from course_lib.grading.result import SIGNS, Result

TEMPLATES = Path(__file__).parent / "templates"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
LONGEST = 20_000  # characters of one text; a longer one is cut with a note
HARDEST, MISTAKES = 10, 15  # listed on the class page
TROUBLES = 50  # listed on a learner's page
SALVAGED = 10  # per learner on the class page
EXCERPT = 2000  # characters of a reflection on the class page
LEVELS = ("none", "below ¼", "below ½", "below ¾", "¾ and more", "all")  # of points, in the matrix of chapters
SECTIONS = {
    "points": "Points",
    "hardest": "Hardest exercises",
    "mistakes": "Most common mistakes",
    "learners": "Learners",
    "salvaged": "Faulty, but used",
    "chapters": "Chapter by chapter",
    "reflections": "Reflections",
    "same": "Equal submissions",
}
STYLE = (TEMPLATES / "style.css").read_text(encoding="utf-8") + "".join(
    f".badge.{status} {{ background: {colour}; }} article.{status} {{ border-color: {colour}; }}\n"
    for status, (_, _, colour) in SIGNS.items()
)


def write_reports(
    marked: Sequence[GradedSubmission],
    folder: Path,
    *,
    titles: Mapping[int, str],
    about: Mapping[str, Any],
    left: Sequence[LeftOut] = (),
    manifest: Sequence[Line] = (),
) -> list[Path]:
    """Write `report/index.html` for the class and `report/learners/NAME.html` for each learner, below `folder`.

    A learner's page does not mention the others or link to any page, so you can give it to the learner. Equal results
    give equal bytes, in any order.

    Args:
        titles: the chapters' titles, by number.
        about: the facts at the foot of the class page, such as {"sandbox": "bwrap"}.
        left: the items without results, listed on the class page.
        manifest: the class page lists its missing and unknown learners.

    Returns: the files, the class page first.
    Errors: KeyError for an exercise that the catalogue does not contain.
    """
    taken: set[str] = set()
    learners = [_Learner(each, f"learners/{file_name(each.name, taken)}.html") for each in in_order(marked)]
    learners.sort(key=lambda learner: _alphabetical(learner.marked.name))
    report = folder / "report"
    paths = [save_text(report / "index.html", _class_page(learners, titles, about, left, manifest))]
    return paths + [save_text(report / learner.page, _learner_page(learner.marked, titles)) for learner in learners]


def is_page(path: Path) -> bool:
    """Return whether this module wrote the page, and not a teacher who chose a similar name."""
    with path.open("rb") as file:
        return escape(POLICY).encode() in file.read(1000)


def write_reflections(marked: Sequence[GradedSubmission], folder: Path) -> list[Path]:
    """Write `report/reflections.html` and `reflections.csv`; nothing if there are no reflections.

    The page lists a class's texts under each question with its criteria, to be read and printed. It has no script and
    cannot save ticks. The table, with a row for each text and a column for each criterion, is there to be filled in.
    """
    learners = sorted(marked, key=lambda each: (_alphabetical(each.name), each.digest))
    paths = [folder / "report" / "reflections.html", folder / "reflections.csv"]
    questions = [
        (get(id), [(_shown(each), each.texts[id]) for each in learners if each.texts.get(id)])
        for id in EXERCISES
        if any(each.texts.get(id) for each in learners)
    ]
    if not questions:
        for path in paths:
            path.unlink(missing_ok=True)  # from an earlier class
        return []
    most = max(len(exercise.rubric) for exercise, _ in questions)
    rows = [["learner", "name", "exercise", "title", "text", *(f"criterion {i}" for i in range(1, most + 1))]]
    for exercise, _ in questions:
        boxes = [f"☐ {criterion}" for criterion in exercise.rubric]
        for each in learners:
            if text := each.texts.get(exercise.id):
                row = [each.learner, one_line(each.name), exercise.id, exercise.title, text, *boxes]
                rows.append([spreadsheet_cell(cell) for cell in row] + [""] * (most - len(boxes)))
    save_text(paths[0], _page("reflections.html", questions=questions, learners=len(learners)))
    save_text(paths[1], csv_text(rows), "utf-8-sig")
    return paths


def _alphabetical(name: str) -> str:
    """Return a sort key for names in which É is next to E."""
    letters = unicodedata.normalize("NFKD", name)
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


# --- Content of the pages ---------------------------------------------------------------------------------------------


class _Learner:
    """One line of the class page. page: the path of the learner's own page, below the report."""

    def __init__(self, marked: GradedSubmission, page: str):
        self.marked, self.page, self.shown = marked, page, _shown(marked)
        self.results, self.troubles, self.chapters = marked.results, marked.troubles, _by_chapter(marked.results)


@dataclass(frozen=True)
class _Chapter:
    """A chapter's results, of one learner or of all. points, mean: over the learners who have the chapter."""

    number: int
    title: str
    results: Sequence[Result]
    points: int = 0
    mean: str = ""


def _class_page(
    learners: Sequence[_Learner],
    titles: Mapping[int, str],
    about: Mapping[str, Any],
    left: Sequence[LeftOut],
    manifest: Sequence[Line],
) -> str:
    missing, unknown = ([line for line in manifest if line.state == state] for state in ("missing", "unknown"))
    look = _look(learners)
    first: dict[str, tuple[str, Sequence]] = {"left": ("⚠ Not taken", left)}
    asks = [(each, ask) for each in learners for ask in each.marked.asks]
    first |= {"look": ("Please look at these", [*look, *asks])}
    first |= {"unknown": ("⚠ In no row", unknown), "missing": ("Missing", missing)}
    sections = {key: f"{title}: {len(which):,}" for key, (title, which) in first.items() if which} | SECTIONS
    if not any(each.marked.texts for each in learners):
        del sections["reflections"]
    if not any(each.marked.salvaged for each in learners):
        del sections["salvaged"]
    exercises = list({result.exercise_id: result for each in learners for result in each.results}.values())
    shown = {
        "learners": learners,
        "exercises": exercises,
        "left": left,
        "missing": missing,
        "unknown": unknown,
        "look": look,
        "asks": asks,
        "about": about,
        "sections": sections,
        "most_salvaged": SALVAGED,
    }
    return _page("class.html", **shown, **(_class_results(learners, titles) if learners else {}))


def _class_results(learners: Sequence[_Learner], titles: Mapping[int, str]) -> dict[str, Any]:
    marked = [each.marked for each in learners]
    mean, median = average(marked)
    bins = [
        {"low": f"{100 * low:.0f}", "span": f"{100 * low:.0f} – {100 * high:.0f}%", "count": count}
        for low, high, count in distribution(marked, 10)
    ]
    return {
        "mean": mean,
        "median": median,
        "half": f"{int(100 * median + 1e-9)}% of the points or more" if median else "no points",
        "bins": bins,
        "troubled": f"{sum(bool(each.troubles) for each in learners):,}",
        "hardest": hardest(marked, HARDEST),
        "mistakes": _mistakes(learners),
        "chapters": _chapters_of_all(learners, titles),
        "reflections": _reflections(learners),
        "same": _same(learners),
    }


def _mistakes(learners: Sequence[_Learner]) -> list[dict[str, Any]]:
    """Return the most common mistakes, each with its learners and the exercise's feedback on it."""
    made, titles = defaultdict(list), {}
    for each in learners:
        for result in each.results:
            titles[result.exercise_id] = result.title
            for mistake in result.mistakes:
                made[result.exercise_id, mistake].append(each)
    shown = []
    for id, name, count in misconceptions([each.marked for each in learners], MISTAKES):
        exercise = get(id)
        said = {option.text: option.why for option in exercise.options}
        said |= {misconception.name: misconception.sentence for misconception in exercise.misconceptions}
        shown.append(
            {
                "exercise": id,
                "title": titles[id],
                "name": name,
                "sentence": said.get(name, ""),
                "count": count,
                "learners": made[id, name],
            }
        )
    return shown


def _chapters_of_all(learners: Sequence[_Learner], titles: Mapping[int, str]) -> list[_Chapter]:
    shown = []
    for number in sorted({number for each in learners for number in each.chapters}):
        own = [each.chapters[number] for each in learners if number in each.chapters]
        results = [result for results in own for result in results]
        mean = f"{_earned(results) / len(own):.1f}"
        shown.append(_Chapter(number, _title(number, titles), results, max(map(_points, own)), mean))
    return shown


def _look(learners: Sequence[_Learner]) -> list[tuple[_Learner, Result]]:
    """Return the results for which two runs of the same answer disagreed."""
    return [(each, result) for each in learners for result in each.results if {SECOND, DIFFERS} & {*result.sentences}]


def _same(learners: Sequence[_Learner]) -> list[list[_Learner]]:
    """Return the groups of submissions with exactly the same cells."""
    alike = defaultdict(list)
    for each in learners:
        alike[each.marked.digest].append(each)
    return [group for digest, group in alike.items() if digest and len(group) > 1]


def _reflections(learners: Sequence[_Learner]) -> list[tuple[str, str, list[tuple[_Learner, str]]]]:
    """Return the reflections in the course's order: id, title, and the writers with the beginning of each text."""
    written, titles = defaultdict(list), {}
    for each in learners:
        for result in each.results:
            if text := each.marked.texts.get(result.exercise_id):
                titles[result.exercise_id] = result.title
                written[result.exercise_id].append((each, _beginning(text)))
    return [(id, titles[id], written[id]) for id in EXERCISES if id in written]


def _beginning(text: str) -> str:
    return text if len(text) <= EXCERPT else f"{text[:EXCERPT]} … ({len(text) - EXCERPT:,} more characters)"


def _learner_page(marked: GradedSubmission, titles: Mapping[int, str]) -> str:
    meant = downloads(marked.name)
    platform = meant[0] if len(meant) == 1 and meant[0].learner else None
    return _page(
        "learner.html",
        name=(platform.called or platform.learner) if platform else _shown(marked),
        number_of=platform.number if platform else "",
        results=marked.results,
        counts=Counter(result.status for result in marked.results),
        texts=marked.texts,
        troubles=marked.troubles,
        salvaged=marked.salvaged,
        counted=marked.counted,
        most_troubles=TROUBLES,
        chapters=[
            _Chapter(number, _title(number, titles), results) for number, results in _by_chapter(marked.results).items()
        ],
    )


def _by_chapter(results: Iterable[Result]) -> dict[int, list[Result]]:
    found = defaultdict(list)
    for result in results:
        found[get(result.exercise_id).chapter].append(result)
    return dict(sorted(found.items()))


def _title(number: int, titles: Mapping[int, str]) -> str:
    return f"{number} · {titles[number]}" if number in titles else f"Chapter {number}"


def _shown(marked: GradedSubmission) -> str:
    """Return the name, or a substitute if it is invisible."""
    seen = any(unicodedata.category(letter)[0] not in "CMZ" for letter in marked.name)
    return marked.name if seen else "(no name)"


# --- The templates ----------------------------------------------------------------------------------------------------


def _page(template: str, **shown: Any) -> str:
    return _TEMPLATES.get_template(template).render(shown)


def _cleaned(value: object) -> Any:
    """Return any text as harmless text of limited length, still to be escaped; our own markup stays as it is."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} … ({len(text) - LONGEST:,} more characters)"
    return sanitized(text)


def _prose(text: str) -> Markup:
    """Return text with `names` set as code."""
    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(_cleaned(text)))))


def _code(exercise_id: str) -> Markup:
    """Return an id as code that may break between its words."""
    return Markup("<code>" + re.sub(r"([._])", r"\1<wbr>", str(escape(_cleaned(exercise_id)))) + "</code>")


def _case(result: Result) -> str:
    """Return the failed case, with the map as text if there is no picture of it."""
    return "\n".join(part for part in (result.evidence, "" if result.picture else result.sketch) if part)


def _percent(share: float) -> int:
    """Return a rounded percentage that is 100 only for full points."""
    return min(round(100 * share), 99 if share < 1 else 100)


def _level(results: Sequence[Result]) -> int:
    """Return the index in `LEVELS` for the fraction of points in these results."""
    points, earned = _points(results), _earned(results)
    return 0 if not earned else 5 if earned == points else 1 + 4 * earned // points


def _points(results: Iterable[Result]) -> int:
    return sum(result.points for result in results)


def _earned(results: Iterable[Result]) -> int:
    return sum(result.earned for result in results)


def _recognized(result: Result) -> bool:
    """Return whether the mistake has a name. For a wrong option, the sentence is enough."""
    return bool(result.misconception) and not get(result.exercise_id).options


_TEMPLATES = Environment(
    loader=FileSystemLoader(TEMPLATES),
    autoescape=True,
    finalize=_cleaned,  # applied to every value in a template, so that none can be forgotten
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals |= {
    "course": COURSE,
    "policy": POLICY,
    "style": Markup(STYLE),
    "signs": SIGNS,
    "levels": LEVELS,
}
_TEMPLATES.filters |= {
    "case": _case,
    "code": _code,
    "earned": _earned,
    "level": _level,
    "percent": _percent,
    "plural": plural,
    "points": _points,
    "prose": _prose,
    "rounded": rounded,
    "share": share_of_points,
}
_TEMPLATES.tests["recognized"] = _recognized
