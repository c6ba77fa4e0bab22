"""Summarize a class's results, for the terminal and the report. All functions are pure.

Fractions of points are between 0 and 1. Ties have a fixed order, so that equal runs give equal output.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.grading.result import Result

EASY = 2 / 3  # with this fraction of points or more, an exercise is not called hard


def share_of_points(of: GradedSubmission | Sequence[Result]) -> float:
    """Return the points earned over the maximum points; 0 if the maximum is 0."""
    results = of.results if isinstance(of, GradedSubmission) else of
    points = sum(result.points for result in results)
    return sum(result.earned for result in results) / points if points else 0.0


def average(marked: Sequence[GradedSubmission]) -> tuple[float, float]:
    """Return the mean and the median fraction of points. Errors: ValueError for an empty class."""
    if not marked:
        raise ValueError("marked is empty: there is no mean of no submissions")
    shares = [share_of_points(each) for each in marked]
    return fmean(shares), median(shares)


def distribution(marked: Sequence[GradedSubmission], bins: int = 10) -> list[tuple[float, float, int]]:
    """Count the submissions by fraction of points: return (low, high, count) for each of `bins` bins.

    A submission on the border of two bins belongs to the upper one. Full points belong to the last bin.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    # Whole numbers: 3 of 10 points are in the bin from 0.3, whatever 0.3 is in binary.
    counts = Counter(min(each.earned * bins // max(each.points, 1), bins - 1) for each in marked)
    return [(i / bins, (i + 1) / bins, counts[i]) for i in range(bins)]


def hardest(marked: Sequence[GradedSubmission], n: int = 10) -> list[tuple[str, str, float, int]]:
    """Return the hardest exercises: (id, title, fraction of points earned, number of attempts), hardest first.

    The fraction is over the submissions that answered: an exercise that no one reached is not hard. Exercises without
    attempts, without points, or with a fraction of at least `EASY` are left out.
    """
    tried = defaultdict(list)
    for each in marked:
        for result in each.results:
            if result.points and result.status != "unanswered":
                tried[result.exercise_id].append(result)
    rows = [(id, results[0].title, share_of_points(results), len(results)) for id, results in tried.items()]
    return sorted((row for row in rows if row[2] < EASY), key=lambda row: (row[2], -row[3], row[0]))[:n]


def misconceptions(marked: Sequence[GradedSubmission], n: int = 10) -> list[tuple[str, str, int]]:
    """Return the most common mistakes: (exercise id, name of the mistake, number of submissions), most common first.

    An answer with two mistakes counts for each of them.
    """
    results = (result for each in marked for result in each.results)
    counts = Counter((result.exercise_id, mistake) for result in results for mistake in result.mistakes)
    rows = [(exercise, name, count) for (exercise, name), count in counts.items()]
    return sorted(rows, key=lambda row: (-row[2], row[0], row[1]))[:n]
