"""Print a class in a terminal: a line per submission, and a summary of the class."""

import unicodedata
from collections import defaultdict
from collections.abc import Sequence

from course_lib.classroom.graded_submission import GradedSubmission, rounded
from course_lib.classroom.mark import statistics
from course_lib.classroom.text import chapter_of, in_order, one_line, told_points
from course_lib.grading.judge.show import plural
from course_lib.grading.result import SIGNS


def terminal_table(marked: Sequence[GradedSubmission], width: int = 100) -> str:
    """Return a line per submission, sorted by name, and the class's summary.

    A line has points, a bar, a percentage, the final points under a policy, and the most important remark.

    Args:
        width: the terminal's width in cells, at least 60.
    """
    if not marked:
        return "no submissions"
    width = max(width, 60)
    rows = [(one_line(each.name), f"{each.earned} of {each.points}", each) for each in in_order(marked)]
    names = min(max(7, *(_cells(name) for name, _, _ in rows)), width // 4)
    amounts = max(6, *(len(amount) for _, amount, _ in rows))
    bar = 20 if width >= 90 else 10
    counts = [_counts(each) for _, _, each in rows] if any(each.counted for each in marked) else []
    counted = max(map(len, ["counts", *counts]))
    head = f"{'learner':<{names}}  {'points':>{amounts}}  {'':<{bar}}  share"
    lines = [f"{head}  {'counts':>{counted}}" if counts else head]
    for i, (name, amount, each) in enumerate(rows):
        share = statistics.share_of_points(each)
        start = f"{_fitted(name, names)}  {amount:>{amounts}}  {_bar(share, bar)}  {share:>5.0%}  "
        start += f"{counts[i]:>{counted}}  " if counts else ""
        lines.append((start + _fitted(_telling(each), width - _cells(start))).rstrip())
    mean, median = statistics.average(marked)
    lines += ["", f"{plural(len(marked), 'submission')} · mean {mean:.0%} · median {median:.0%}"]
    if hardest := statistics.hardest(marked, 5):
        lines.append("hardest, by share of points of those who tried:")
        lines += [
            _fitted(f"  {share:>4.0%} of {tried:>3}  {id} · {one_line(title)}", width).rstrip()
            for id, title, share, tried in hardest
        ]
    elif any(result.points and result.status != "unanswered" for each in marked for result in each.results):
        easy = "no exercise was hard: in each, those who tried earned at least two thirds of the points"
        lines.append(_fitted(easy, width).rstrip())
    if mistakes := statistics.misconceptions(marked, 5):
        lines.append("most common misconceptions:")
        lines += [_fitted(f"  {count:>4} ×  {id} · {one_line(name)}", width).rstrip() for id, name, count in mistakes]
    return "\n".join(lines)


def terminal_answers(marked: GradedSubmission) -> str:
    """Return a line per exercise, with the first sentence of the feedback if the answer is wrong."""
    lines = []
    for result in marked.results:
        score = f"{result.earned}/{result.points}" if result.points else "–"
        sign, word, _ = SIGNS[result.status]
        lines.append(f"{sign} {result.exercise_id:<32}{score:>6}  {one_line(result.misconception or '')}".rstrip())
        if not result.passed:
            lines.append(f"      {word if result.status == 'unanswered' else one_line(result.sentences[0])}")
    lines += [f"  ! {one_line(said)}" for said in (*marked.troubles, *marked.salvaged)]
    return "\n".join([*lines, *map(one_line, told_points(marked))])


def _counts(marked: GradedSubmission) -> str:
    """Return a submission's final points as text."""
    earned, points = marked.final
    is_excused = marked.counted is not None and bool(marked.counted.excused)
    return f"{rounded(earned)} of {rounded(points)}" if points else "excused" if is_excused else ""


def _telling(marked: GradedSubmission) -> str:
    """Return the first trouble, or else the chapter with the lowest fraction of its points."""
    if marked.troubles:
        more = f" (and {len(marked.troubles) - 1} more)" if len(marked.troubles) > 1 else ""
        return one_line(marked.troubles[0]) + more
    chapters = defaultdict(list)
    for result in marked.results:
        if result.points:
            chapter = chapter_of(result.exercise_id)
            chapters[f"chapter {chapter}" if chapter is not None else result.exercise_id.partition(".")[0]].append(
                result
            )
    worst = min(chapters, key=lambda name: statistics.share_of_points(chapters[name]), default=None)
    if worst is None or statistics.share_of_points(chapters[worst]) == 1:
        return ""
    earned, points = (sum(getattr(each, what) for each in chapters[worst]) for what in ("earned", "points"))
    return f"least in {worst}: {earned} of {points}"


def _bar(share: float, cells: int) -> str:
    """Draw a bar that is full only at 1 and empty only at 0."""
    full = round(share * cells)
    full = min(max(full, 1 if share else 0), cells if share == 1 else cells - 1)
    return "█" * full + "░" * (cells - full)


def _cells(text: str) -> int:
    """Return the width of text in a terminal: Chinese characters take two cells, combining marks none."""
    return sum(_cell_width(each) for each in text)


def _cell_width(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _fitted(text: str, cells: int) -> str:
    """Return text of exactly this width, padded or cut with "…"."""
    width = _cells(text)
    if width > cells:
        kept, width = "", 0
        for each in text:
            if width + _cell_width(each) > cells - 1:
                break
            kept, width = kept + each, width + _cell_width(each)
        text, width = kept + "…", width + 1
    return text + " " * (cells - width)
