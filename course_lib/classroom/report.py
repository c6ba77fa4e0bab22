"""Reports for people: a page for the class, and a page for each learner that can be handed out by itself.

Plain HTML, whole in one file: no script, no request, and a policy in its head that forbids both. Names, feedback and
troubles are text that a learner may have written: all of it is escaped, and what would turn the text around it or
steer a terminal is replaced. Only `Result.picture` is set as it is: the trusted side draws it, from numbers.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from course_lib.classroom.export.text import COURSE, sanitized
from course_lib.files import write_whole
from course_lib.grading.catalogue import get
from course_lib.grading.result import SIGNS, Result
from course_lib.grading.show import plural

from .file_names import downloads, file_name
from .folders import LeftOut
from .graded import GradedSubmission
from .statistics import average, distribution, hardest, misconceptions, share_of_points

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
LONGEST = 20_000  # characters of one text; what is cut off is said
HARDEST, MISTAKES = 10, 15  # how many the class page lists
TROUBLES = 50  # how many a learner's page lists


def write_reports(
    marked: Sequence[GradedSubmission],
    folder: Path,
    *,
    titles: Mapping[int, str],
    about: Mapping[str, Any],
    left: Sequence[LeftOut] = (),
) -> list[Path]:
    """Write `report/index.html` for the class and `report/learners/NAME.html` for each learner, below `folder`.

    A learner's page says nothing of the others and links to no page, so it can be handed out. Equal results give equal
    bytes, in whatever order they come. Pages of an earlier run are replaced; none is removed.

    Args:
        titles: of the chapters, by number.
        about: what stands at the foot of the class page, {"sandbox": "bwrap"}.
        left: what was handed in and has no results; the class page says so.
    Returns: the files, the class page first.
    Errors: KeyError for an exercise that the catalogue does not hold.
    """
    taken: set[str] = set()
    in_order = sorted(marked, key=lambda each: (each.name, each.digest))  # as `formats` gives out its names
    named = [(each, f"learners/{file_name(each.name, taken)}.html") for each in in_order]
    named.sort(key=lambda pair: _place(pair[0]))
    paths = [_save(folder / "report" / "index.html", _class_page(named, titles, about, left))]
    return paths + [_save(folder / "report" / link, _learner_page(each, titles)) for each, link in named]


def _save(path: Path, page: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda part: part.write_bytes(page.encode()))
    return path


def _place(marked: GradedSubmission) -> str:
    """Where a learner stands in a list: by name, É beside E."""
    letters = unicodedata.normalize("NFKD", marked.name)
    return "".join(letter for letter in letters if not unicodedata.combining(letter)).casefold()


# --- the class --------------------------------------------------------------------------------------------------------


def _class_page(
    named: Sequence[tuple[GradedSubmission, str]],
    titles: Mapping[int, str],
    about: Mapping[str, Any],
    left: Sequence[LeftOut],
) -> str:
    marked = [each for each, _ in named]
    results = {result.exercise_id: result for each in marked for result in each.results}
    points = sum(result.points for result in results.values())
    counts = [plural(len(marked), "submission"), plural(len(results), "exercise"), plural(points, "point")]
    head = f'<p class="course">{COURSE}</p><h1>Class report</h1><p>{" · ".join(counts)}</p>'
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in about.items())
    foot = f'<footer><dl class="about">{facts}</dl></footer>\n' if facts else ""
    missing = [("left", f"⚠ Not taken: {len(left):,}", _left(left))] if left else []
    if not marked:
        body = "".join(_section(*section) for section in missing) or "<p>Nothing was handed in.</p>"
        return _page("Class report", head, body, foot)
    people = [f'<a href="{quote(link)}">{_name(each)}</a>' for each, link in named]
    sections = [
        *missing,
        ("points", "Points", _spread(marked)),
        ("hardest", "Hardest exercises", _hardest(marked)),
        ("mistakes", "Most common mistakes", _mistakes(marked, people)),
        ("learners", "Learners", _learners(marked, people)),
        ("chapters", "Chapter by chapter", _matrix(marked, people, titles)),
        ("same", "Equal submissions", _same(marked, people)),
    ]
    jumps = "".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _ in sections)
    nav = f'<nav aria-label="On this page"><ul>{jumps}</ul></nav>'
    return _page("Class report", head + nav, "".join(_section(*section) for section in sections), foot)


def _left(left: Sequence[LeftOut]) -> str:
    items = "".join(f"<li><bdi>{_text(each.name)}</bdi> {_text(each.why)}</li>" for each in left)
    return f'<p>This was handed in, or lay there, and has no results.</p><ul class="text">{items}</ul>'


def _spread(marked: Sequence[GradedSubmission]) -> str:
    """Mean, median, and how the shares of points are spread."""
    mean, median = average(marked)
    bins = distribution(marked, 10)
    troubled = sum(bool(each.troubles) for each in marked)
    tiles = [
        ("Mean", f"{100 * mean:.1f} %"),
        ("Median", f"{100 * median:.1f} %"),
        ("With notes on reading", f"{troubled:,}"),
    ]
    shown = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in tiles)
    rows = [f"<tr><td>{_bin(low, high)}</td>{_number(count)}</tr>" for low, high, count in bins]
    table = _table("Submissions by share of points", ["Share of the points", "Submissions"], rows)
    half = f"{int(100 * median + 1e-9)} % of the points or more" if median else "no points"
    return (
        f'<dl class="tiles">{shown}</dl><figure><figcaption>At least half of the class earned {half}.</figcaption>'
        f"{_histogram(bins)}<details><summary>The same figures as a table</summary>{table}</details></figure>"
    )


def _bin(low: float, high: float) -> str:
    return f"{100 * low:.0f} – {100 * high:.0f} %"


def _histogram(bins: Sequence[tuple[float, float, int]]) -> str:
    width, height, left, top = 46, 150, 10, 24  # of a bar at most; where the first begins
    most, base = max(count for *_, count in bins), top + height
    bars, ticks = [], []
    for i, (low, _, count) in enumerate(bins):
        x, tall = left + i * width, round(height * count / most, 1)
        bars.append(f'<rect x="{x + 2}" y="{base - tall}" width="{width - 4}" height="{tall}" class="fill"></rect>')
        if count:
            bars.append(f'<text x="{x + width / 2}" y="{base - tall - 6}">{count}</text>')
        ticks.append(f'<text x="{x}" y="{base + 20}" class="tick">{100 * low:.0f}</text>')
    end = left + len(bins) * width
    ticks.append(f'<text x="{end}" y="{base + 20}" class="tick">{100 * bins[-1][1]:.0f}</text>')
    said = ", ".join(f"{_bin(low, high)}: {count}" for low, high, count in bins if count)
    return (
        f'<svg role="img" aria-label="Bar chart: how many submissions earned which share of the points. {said}." '
        f'viewBox="0 0 {end + 20} {base + 46}"><g>{"".join(bars)}'
        f'<line x1="{left}" x2="{end}" y1="{base}" y2="{base}"></line>{"".join(ticks)}'
        f'<text x="{(left + end) / 2}" y="{base + 42}" class="tick">% of the points</text></g></svg>'
    )


def _hardest(marked: Sequence[GradedSubmission]) -> str:
    rows = [
        f'<tr><th scope="row">{_text(title)} {_id(key)}</th>'
        f"<td>{_bar(part)}</td>{_number(f'{tried} of {len(marked)}')}</tr>"
        for key, title, part, tried in hardest(marked, HARDEST)
    ]
    if not rows:
        return "<p>Every exercise that was answered is solved.</p>"
    said = "Share of the points that those who answered earned; the lowest first."
    return _table(said, ["Exercise", "Earned", "Answered by"], rows)


def _mistakes(marked: Sequence[GradedSubmission], people: Sequence[str]) -> str:
    fell, names = defaultdict(list), {}
    for each, person in zip(marked, people):
        for result in each.results:
            names[result.exercise_id] = result.title
            if result.misconception:
                fell[result.exercise_id, result.misconception].append(person)
    items = [
        f"<li><p><strong>{_text(mistake)}</strong> · {_text(names[key])} {_id(key)}</p>"
        f"<p>{_prose(_sentence(key, mistake))}</p>"
        f"<details><summary>{count} of {plural(len(marked), 'submission')}</summary>"
        f"<p>{', '.join(fell[key, mistake])}</p></details></li>"
        for key, mistake, count in misconceptions(marked, MISTAKES)
    ]
    return f'<ol class="mistakes">{"".join(items)}</ol>' if items else "<p>No known mistake was recognised.</p>"


def _sentence(exercise_id: str, mistake: str) -> str:
    """What the exercise's author says to a learner who makes the mistake."""
    exercise = get(exercise_id)
    said = {option.text: option.why for option in exercise.options}
    said |= {misconception.name: misconception.sentence for misconception in exercise.misconceptions}
    return said.get(mistake, "")


def _learners(marked: Sequence[GradedSubmission], people: Sequence[str]) -> str:
    rows = []
    for each, person in zip(marked, people):
        note = f'<span class="note">⚠ {plural(len(each.troubles), "note")}</span>' if each.troubles else ""
        rows.append(
            f'<tr><th scope="row">{person} {note}</th>{_number(f"{each.earned} / {each.points}")}'
            f"<td>{_bar(share_of_points(each))}</td></tr>"
        )
    said = "<p>⚠: the page of the learner says what was noticed when the notebook was read and run.</p>"
    return said + _table("By name", ["Learner", *_POINTS], rows, "sticky")


def _matrix(marked: Sequence[GradedSubmission], people: Sequence[str], titles: Mapping[int, str]) -> str:
    """Learners by chapters: the points, on a ground that is the stronger the larger their share is."""
    by_chapter = [_by_chapter(each) for each in marked]
    chapters = sorted({chapter for each in by_chapter for chapter in each})
    most = {c: max(_points(each[c]) for each in by_chapter if c in each) for c in chapters}
    heads = [f'<span class="up">{_chapter(c, titles)}</span><span>{most[c] or "–"}</span>' for c in chapters]
    together = {c: [result for each in by_chapter for result in each.get(c, ())] for c in chapters}
    counts = {c: sum(c in each for each in by_chapter) for c in chapters}
    means = "".join(_cell(together[c], f"{_earned(together[c]) / counts[c]:.1f}") for c in chapters)
    rows = [f'<tr class="mean"><th scope="row">Mean</th>{means}</tr>']
    for person, each in zip(people, by_chapter):
        cells = "".join(_cell(each.get(c, ()), str(_earned(each.get(c, ())))) for c in chapters)
        rows.append(f'<tr><th scope="row">{person}</th>{cells}</tr>')
    steps = "".join(f'<span class="h{level}">{word}</span>' for level, word in enumerate(_LEVELS))
    table = _table("Points earned", ["Learner", *heads], rows, "matrix")
    key = f'<p>Below a title stand the points that the chapter has.</p><p class="key">Share of them: {steps}</p>'
    return f'{key}<div class="scroll" tabindex="0" role="region" aria-label="Learners by chapters">{table}</div>'


_LEVELS = ("none", "below ¼", "below ½", "below ¾", "¾ and more", "all")


def _cell(results: Sequence[Result], shown: str) -> str:
    points, earned = _points(results), _earned(results)
    if not points:
        return "<td>–</td>"
    level = 0 if not earned else 5 if earned == points else 1 + 4 * earned // points
    return f'<td class="h{level}">{shown}</td>'


def _same(marked: Sequence[GradedSubmission], people: Sequence[str]) -> str:
    alike = defaultdict(list)
    for each, person in zip(marked, people):
        alike[each.digest].append(person)
    groups = [group for digest, group in alike.items() if digest and len(group) > 1]
    if not groups:
        return "<p>No two submissions are word for word the same.</p>"
    items = "".join(f"<li>{', '.join(group)}</li>" for group in groups)
    return (
        "<p>These hold word for word the same cells. That can have good reasons: work in pairs, notebooks handed in as "
        f"they were given out, or empty ones.</p><ul>{items}</ul>"
    )


# --- a learner --------------------------------------------------------------------------------------------------------


def _learner_page(marked: GradedSubmission, titles: Mapping[int, str]) -> str:
    meant = downloads(marked.name)
    learner, number = _shown(marked), ""
    if len(meant) == 1 and meant[0].learner:
        learner, number = meant[0].learner, f'<p class="course">number {_text(meant[0].number)}</p>'
    results = marked.results
    counts = [(sum(result.status == status for result in results), *SIGNS[status]) for status in SIGNS]
    said = " · ".join(f"<span>{sign} {word}: {count}</span>" for count, sign, word, _ in counts if count)
    head = (
        f'<p class="course">{COURSE}</p><h1><bdi>{_text(learner)}</bdi></h1>{number}'
        f'<p class="score">{_score(results)} {_bar(share_of_points(marked))}</p><p class="counts">{said}</p>'
    )
    body = _section("notes", "⚠ Notes on your notebook", _troubles(marked)) if marked.troubles else ""
    chapters = _by_chapter(marked)
    rows = [
        f'<tr><th scope="row"><a href="#chapter-{c}">{_chapter(c, titles)}</a></th>'
        f"{_number(f'{_earned(each)} / {_points(each)}')}<td>{_bar(share_of_points(each)) if _points(each) else '–'}</td></tr>"
        for c, each in chapters.items()
    ]
    if rows:
        body += _section("chapters", "Points", _table("By chapter", ["Chapter", *_POINTS], rows))
    for c, each in chapters.items():
        body += _section(f"chapter-{c}", _chapter(c, titles), _answers(each))
    return _page(_text(learner), head, body, "")


def _troubles(marked: GradedSubmission) -> str:
    troubles = [_prose(trouble) for trouble in marked.troubles[:TROUBLES]]
    if more := len(marked.troubles) - len(troubles):
        troubles.append(f"… and {more:,} more.")
    items = "".join(f"<li>{trouble}</li>" for trouble in troubles)
    return (
        "<p>Seen when your notebook was read and run. An exercise that needs one of these places may count as not "
        "answered. Open the notebook again, restart the kernel, run all cells from the top, and look at these places "
        "first.</p>"
        f'<ul class="text">{items}</ul>'
    )


def _answers(results: Sequence[Result]) -> str:
    """What was answered, in full; what was not, in a line each at the end."""
    answered = "".join(_answer(result) for result in results if result.status != "unanswered")
    missing = [result for result in results if result.status == "unanswered"]
    items = "".join(
        f"<li>{_heading(result)}{''.join(f' <span>· {_prose(sentence)}</span>' for sentence in result.sentences)}</li>"
        for result in missing
    )
    return answered + (f'<p>{_badge("unanswered")}</p><ul class="missing">{items}</ul>' if missing else "")


def _answer(result: Result) -> str:
    sentences = "".join(f'<p class="text">{_prose(sentence)}</p>' for sentence in result.sentences)
    mistake, evidence = "", ""
    if result.misconception and not get(result.exercise_id).options:  # of an option the sentence says it all
        mistake = f"<p>Recognised mistake: <strong>{_text(result.misconception)}</strong></p>"
    if text := "\n".join(part for part in (result.evidence, "" if result.picture else result.sketch) if part):
        label = f"The case: {_text(result.title)}"
        evidence = f'<pre class="scroll" tabindex="0" role="region" aria-label="{label}">{_text(text)}</pre>'
    return (
        f'<article class="{result.status}"><h3>{_badge(result.status)} {_heading(result)}</h3>'
        f"{mistake}{sentences}{evidence}{result.picture}</article>"
    )


def _heading(result: Result) -> str:
    return (
        f'<bdi>{_text(result.title)}</bdi> {_id(result.exercise_id)} <span class="points">· {_score([result])}</span>'
    )


# --- parts of a page --------------------------------------------------------------------------------------------------


def _page(title: str, head: str, body: str, foot: str) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title} · {COURSE}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>{head}</header>\n"
        f"<main>{body}</main>\n{foot}</body>\n</html>\n"
    )


def _section(key: str, title: str, body: str) -> str:
    return f'\n<section id="{key}" aria-labelledby="{key}-title"><h2 id="{key}-title">{title}</h2>\n{body}</section>'


def _table(caption: str, heads: Sequence[str], rows: Iterable[str], kind: str = "") -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    body = "\n".join(rows)
    return (
        f'<table class="{kind}"><caption>{caption}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


_POINTS = ('<span class="number">Points</span>', "Share")


def _number(shown: object) -> str:
    return f'<td class="number">{shown}</td>'


def _bar(part: float) -> str:
    percent = _percent(part)
    width = percent.removesuffix(" %")
    return (
        f'<span class="share"><span class="bar" aria-hidden="true"><span style="width: {width}%"></span></span> '
        f"{percent}</span>"
    )


def _percent(part: float) -> str:
    """Rounded, and yet 100 % means all."""
    return f"{min(round(100 * part), 99 if part < 1 else 100)} %"


def _badge(status: str) -> str:
    sign, word, _ = SIGNS[status]
    return f'<span class="badge {status}">{sign} {word}</span>'


def _score(results: Sequence[Result]) -> str:
    points = _points(results)
    return f"{_earned(results)} of {plural(points, 'point')}" if points else "no points"


def _points(results: Sequence[Result]) -> int:
    return sum(result.points for result in results)


def _earned(results: Sequence[Result]) -> int:
    return sum(result.earned for result in results)


def _by_chapter(marked: GradedSubmission) -> dict[int, list[Result]]:
    found = defaultdict(list)
    for result in marked.results:
        found[get(result.exercise_id).chapter].append(result)
    return dict(sorted(found.items()))


def _chapter(number: int, titles: Mapping[int, str]) -> str:
    return f"{number} · {_text(titles[number])}" if number in titles else f"Chapter {number}"


def _id(exercise_id: str) -> str:
    """As code that may break between its words."""
    return "<code>" + re.sub(r"([._])", r"\1<wbr>", _text(exercise_id)) + "</code>"


def _name(marked: GradedSubmission) -> str:
    return f"<bdi>{_text(_shown(marked))}</bdi>"


def _shown(marked: GradedSubmission) -> str:
    """The name, or what stands for one that cannot be seen."""
    seen = any(unicodedata.category(letter)[0] not in "CMZ" for letter in marked.name)
    return marked.name if seen else "(no name)"


# --- text that anyone may have written --------------------------------------------------------------------------------


def _text(value: object) -> str:
    """Any text as text: escaped, for an element or an attribute."""
    text = str(value)
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]} … ({len(text) - LONGEST:,} more characters)"
    return escape(sanitized(text))


def _prose(text: str) -> str:
    """The same, with `names` set as code."""
    return re.sub(r"`([^`\n]+)`", r"<code>\1</code>", _text(text))


STYLE = """
:root { color-scheme: light dark; --ground: #ffffff; --text: #1f2328; --soft: #57606a; --line: #d0d7de;
  --panel: #f6f8fa; --link: #0550ae; --fill: #2171b5; --warn: #7d4e00;
  --g1: #e3eef9; --g2: #b7d4ea; --g3: #7fb8dc; --g4: #2171b5; --g5: #08306b; --t3: #10202f; --t4: #ffffff; }
@media screen and (prefers-color-scheme: dark) { :root { --ground: #0d1117; --text: #e6edf3; --soft: #9da7b3;
  --line: #3d444d; --panel: #161b22; --link: #79b8ff; --fill: #5fa8d3; --warn: #f0b849;
  --g1: #12283c; --g2: #17405f; --g3: #1b5a86; --g4: #6db3dc; --g5: #d3eafa; --t3: #ffffff; --t4: #10202f; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 16px; max-width: 1120px; background: var(--ground); color: var(--text);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
bdi, .text { overflow-wrap: anywhere; }
a { color: var(--link); }
h1 { margin: 0; font-size: 1.9rem; line-height: 1.2; }
h2 { margin: 2.2rem 0 .6rem; font-size: 1.3rem; border-bottom: 1px solid var(--line); }
h3 { margin: 0; font-size: 1rem; }
p { margin: .4rem 0; max-width: 70ch; }
code, pre { font: .9em/1.4 ui-monospace, monospace; }
h3 code, th code, li code:not(p code) { color: var(--soft); font-weight: normal; }
pre { margin: .6rem 0; padding: 8px 12px; background: var(--panel); border: 1px solid var(--line);
  width: max-content; max-width: 100%; }
.course, .points, caption, .missing span, .key { color: var(--soft); font-weight: normal; }
.course { margin: 0; }
.score { display: flex; flex-wrap: wrap; gap: 0 20px; font-size: 1.4rem; font-weight: bold; }
.score .bar { width: min(320px, 50vw); }
.counts span { white-space: nowrap; }
.text { white-space: pre-wrap; }
nav ul { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 1rem 0 0; padding: 0; list-style: none; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 0 0 1rem; }
.tiles div { flex: 1 1 8rem; padding: 8px 14px; background: var(--panel); border: 1px solid var(--line); }
.tiles dt { color: var(--soft); } .tiles dd { margin: 0; font-size: 1.5rem; font-weight: bold; }
figure { margin: 0; max-width: 520px; } figcaption { font-weight: bold; }
svg { display: block; width: 100%; fill: var(--text); font-size: 16px; text-anchor: middle; }
svg .fill { fill: var(--fill); } svg .tick { fill: var(--soft); } svg line { stroke: var(--soft); }
table { border-collapse: collapse; }
caption { text-align: left; padding-bottom: 6px; }
th, td { padding: 4px 16px 4px 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: baseline; }
tbody th { font-weight: normal; }
thead .number { display: block; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.share { display: inline-flex; align-items: center; gap: 8px; white-space: nowrap; font-variant-numeric: tabular-nums; }
.bar { display: inline-block; width: 110px; height: 12px; border: 1px solid var(--soft); }
.bar span { display: block; height: 100%; background: var(--fill); }
.note { white-space: nowrap; color: var(--warn); }
.sticky thead th { position: sticky; top: 0; background: var(--ground); }
.scroll { overflow: auto; max-height: 85vh; }
div.scroll { width: max-content; max-width: 100%; border: 1px solid var(--line); }
.matrix { border-collapse: separate; border-spacing: 0; font-variant-numeric: tabular-nums; }
.matrix th, .matrix td { padding: 2px 6px; text-align: center; border-bottom: 1px solid var(--line); min-width: 2.6em; }
.matrix thead th { position: sticky; top: 0; z-index: 1; background: var(--ground); vertical-align: bottom; }
.matrix th:first-child { position: sticky; left: 0; text-align: left; min-width: 7em; max-width: 15em;
  background: var(--ground); }
.matrix thead th:first-child { z-index: 2; }
.matrix thead span { display: block; font-weight: normal; }
.up { writing-mode: vertical-rl; transform: rotate(180deg); white-space: nowrap; margin: 0 auto 6px; }
.mean th, .mean td { font-weight: bold; }
.key span { display: inline-block; padding: 0 8px; border: 1px solid var(--line); }
.h0 { color: var(--soft); } .h1 { background: var(--g1); } .h2 { background: var(--g2); }
.h1, .h2 { color: var(--text); } .h3 { background: var(--g3); color: var(--t3); }
.h4 { background: var(--g4); color: var(--t4); } .h5 { background: var(--g5); color: var(--t4); }
.bar, .bar span, [class^="h"], .badge { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
article p { margin: .2rem 0; }
article { margin: .6rem 0; padding: 2px 12px; border-left: 4px solid var(--line); }
.badge { padding: 1px 8px; border-radius: 3px; color: #ffffff; font-size: .9rem; font-weight: bold;
  white-space: nowrap; }
.missing { margin: .4rem 0; padding-left: 1.4rem; }
.about { display: grid; grid-template-columns: max-content 1fr; gap: 2px 16px; margin-top: 3rem; color: var(--soft); }
.about dd { margin: 0; }
@media (max-width: 600px) { .bar { width: 56px; } th, td { padding-right: 10px; } }
@media print { body { max-width: none; padding: 0; } nav { display: none; }
  .scroll { overflow: visible; max-height: none; }
  article, tr, li, figure { break-inside: avoid; } h2, h3 { break-after: avoid; } .matrix { font-size: .75em; }
  .matrix th { position: static !important; } }
""" + "".join(
    f".badge.{status} {{ background: {colour}; }} article.{status} {{ border-color: {colour}; }}\n"
    for status, (_, _, colour) in SIGNS.items()
)
