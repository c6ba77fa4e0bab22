"""Every result, as JSON and as a table: `results.json` and `results.csv`."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission, rounded
from course_lib.classroom.mark import statistics
from course_lib.classroom.read.folders import LeftOut
from course_lib.classroom.read.manifest import Line
from course_lib.classroom.spreadsheets import csv_text, points_of, spreadsheet_cell
from course_lib.classroom.text import chapter_of, feedback, in_order, one_line, save_json, save_text
from course_lib.grading.result import Result

COUNTS = ("chapter counts", "chapter of", "total counts", "total of")


def write_json(
    marked: Sequence[GradedSubmission],
    folder: Path,
    left: Sequence[LeftOut] = (),
    manifest: Sequence[Line] = (),
    about: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write `results.json`, everything in one object:

    schema         "transformers-measured/results/1"
    about          of the run: chapters, sandbox (which wall there was, or that there was none), grader (its version),
                   cases (by which scheme the run's secret seed draws them), wall (what was measured of it before the
                   first submission; of several runs all, " | " between)
    submissions    by name: name, learner (the id, "" if it is not known), counted (with the course's policy: earned,
                   points, chapters, notes, excused [chapter]; null without one), digest, earned, points, troubles
                   [text], salvaged [text] (what was read or run although it is not as it should be), asks [text] (what
                   a teacher should look at, because answers may be lost), and results, in the course's order: exercise,
                   chapter (null if the course no longer has it), title, status (passed, failed, unanswered, written),
                   earned, points, misconception (text or null), feedback, text (of a reflection what was written,
                   otherwise null)
    manifest       whoever and whatever was found, missing or not taken, as in manifest.csv
    not_taken      what was handed in and has no results: name, why (the end of a sentence that begins with the name)
    summary        of all: submissions, mean and median share of points (null without submissions), hardest
                   [exercise, title, share, tried], misconceptions [exercise, name, count]
    """
    mean, median = statistics.average(marked) if marked else (None, None)
    content = {
        "schema": "transformers-measured/results/1",
        "about": dict(about or {}),
        "submissions": [
            {
                "name": each.name,
                "learner": each.learner,
                "counted": asdict(each.counted) if each.counted else None,
                "digest": each.digest,
                "earned": each.earned,
                "points": each.points,
                "troubles": list(each.troubles),
                "salvaged": list(each.salvaged),
                "asks": list(each.asks),
                "results": [_as_object(result, each.texts) for result in each.results],
            }
            for each in in_order(marked)
        ],
        "manifest": [line.as_dict() for line in manifest],
        "not_taken": [{"name": each.name, "why": each.why} for each in left],
        "summary": {
            "submissions": len(marked),
            "mean": mean,
            "median": median,
            "hardest": statistics.hardest(marked),
            "misconceptions": statistics.misconceptions(marked),
        },
    }
    return [save_json(folder / "results.json", content)]


def _as_object(result: Result, texts: Mapping[str, str]) -> dict:
    return {
        "exercise": result.exercise_id,
        "chapter": chapter_of(result.exercise_id),
        "title": result.title,
        "status": result.status,
        "earned": result.earned,
        "points": result.points,
        "misconception": result.misconception,
        "feedback": feedback(result),
        "text": texts.get(result.exercise_id),
    }


def write_csv(marked: Sequence[GradedSubmission], folder: Path, left: Sequence[LeftOut] = ()) -> list[Path]:
    """Write `results.csv`, a row for every exercise of every submission.

    The columns behind them say what the chapter and all count in the course, of how much: what the policy makes of
    them, and without one the same as the grader gave; and, last, what was salvaged of the submission. What was not
    taken has one row: the status says so, the feedback says why, and all else is empty.
    """
    heads = ["exercise", "chapter", "title", "status", "earned", "points", "misconception", "feedback", "text"]
    rows = [["learner", *heads, "id", *COUNTS, "salvaged"]]
    for each in in_order(marked):
        learner = spreadsheet_cell(one_line(each.name))
        for result in each.results:
            row = _as_object(result, each.texts)
            rows.append(
                [learner]
                + [spreadsheet_cell(value) if isinstance(value, str) else value for value in row.values()]
                + [spreadsheet_cell(one_line(each.learner))]
                + (["", ""] if row["chapter"] is None else [*map(rounded, points_of(each, row["chapter"]))])
                + [*map(rounded, each.final)]
                + [spreadsheet_cell(" · ".join(each.salvaged))]
            )
    rows += [
        [spreadsheet_cell(one_line(each.name)), "", "", "", "not taken", "", "", "", spreadsheet_cell(each.why), "", ""]
        + [""] * (len(COUNTS) + 1)
        for each in left
    ]
    # The byte order mark tells Excel that this is UTF-8: without it, it shows "Zoë" as "ZoÃ«".
    return [save_text(folder / "results.csv", csv_text(rows), "utf-8-sig")]
