"""Write every result for other programs: `results.json`, `results.csv`, and `junit.xml` for readers of test results."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission, rounded
from course_lib.classroom.mark import statistics
from course_lib.classroom.read.folders import LeftOut
from course_lib.classroom.read.manifest import Line
from course_lib.classroom.spreadsheets import csv_text, points_of, spreadsheet_cell
from course_lib.classroom.text import COURSE, chapter_of, feedback, in_order, one_line, sanitized, save_json, save_text
from course_lib.grading.result import SIGNS, Result

COUNTS = ("chapter counts", "chapter of", "total counts", "total of")


def write_json(
    marked: Sequence[GradedSubmission],
    folder: Path,
    left: Sequence[LeftOut] = (),
    manifest: Sequence[Line] = (),
    about: Mapping[str, str] | None = None,
) -> list[Path]:
    """Write `results.json`, one object with these parts:

    schema         "transformers-measured/results/1".
    about          the run: chapters; sandbox (its level of isolation, if any); grader (its version); cases (the scheme
                   that draws them from the run's secret seed); wall (the measurements of the sandbox before the first
                   submission, those of several runs separated by " | ").
    submissions    by name: name; learner (the id, "" if unknown); counted (the final points under the course's policy:
                   earned, points, chapters, notes, excused [chapter]; null without a policy); digest; earned; points;
                   troubles [text]; salvaged [text] (repairs made in order to read or run it); asks [text] (points that
                   a teacher should check, because answers may be lost); results.
      results      in the course's order: exercise, chapter (null if no longer in the course), title, status (passed,
                   failed, unanswered, written), earned, points, misconception (text or null), feedback, text (of a
                   reflection, otherwise null).
    manifest       the learners and items that were found, missing or not taken, as in manifest.csv.
    not_taken      the items without results: name, why (the end of a sentence that begins with the name).
    summary        of all: submissions, mean and median fraction of points (null without submissions), hardest
                   [exercise, title, fraction, attempts], misconceptions [exercise, name, count].
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

    Further columns give the chapter's and the total final points and maxima; without a policy these are the grader's.
    The last column lists repairs. An item that was not taken has one row, with only a status and the reason as
    feedback.
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
    # The byte order mark tells Excel that this is UTF-8. Without it, Excel shows "Zoë" as "ZoÃ«".
    return [save_text(folder / "results.csv", csv_text(rows), "utf-8-sig")]


def write_junit(marked: Sequence[GradedSubmission], folder: Path, about: Mapping[str, str] | None = None) -> list[Path]:
    """Write `junit.xml` in pytest's format (xunit2): a test suite per learner, a test case per exercise.

    A suite's properties contain facts about the run (`about`, such as the sandbox's level) and the points: "earned" and
    "points", and "EXERCISE.earned" and "EXERCISE.points", because the schema does not allow them in a test case. With a
    policy, "counts.earned" and "counts.points" are added. An answer without points is a failure, and so is a missing
    one. A missing answer to an exercise without points is skipped.
    """
    root = ElementTree.Element("testsuites", name=COURSE)
    for each in in_order(marked):
        suite = ElementTree.SubElement(root, "testsuite", name=one_line(each.name) or "(no name)", errors="0")
        properties = ElementTree.SubElement(suite, "properties")
        own = {"learner": one_line(each.learner)} if each.learner else {}
        amounts: dict[str, object] = {**(about or {}), **own, "earned": each.earned, "points": each.points}
        if each.counted:
            amounts |= {"counts.earned": rounded(each.counted.earned), "counts.points": rounded(each.counted.points)}
        outcomes = {"failure": 0, "skipped": 0}
        for result in each.results:
            id = sanitized(result.exercise_id)
            amounts |= {f"{id}.earned": result.earned, f"{id}.points": result.points}
            chapter, _, name = id.rpartition(".")
            case = ElementTree.SubElement(suite, "testcase", classname=chapter, name=name)
            if not result.passed:
                outcome = "failure" if result.points else "skipped"
                outcomes[outcome] += 1
                message = one_line(result.misconception or SIGNS[result.status][1])
                ElementTree.SubElement(case, outcome, message=message, type=result.status).text = sanitized(
                    feedback(result)
                )
        for name, value in amounts.items():
            ElementTree.SubElement(properties, "property", name=name, value=str(value))
        if each.troubles:
            ElementTree.SubElement(suite, "system-err").text = sanitized("\n".join(each.troubles))
        suite.attrib |= {"tests": str(len(each.results)), "failures": str(outcomes["failure"])}
        suite.set("skipped", str(outcomes["skipped"]))
    ElementTree.indent(root, " ")
    text = ElementTree.tostring(root, encoding="unicode")
    return [save_text(folder / "junit.xml", f'<?xml version="1.0" encoding="utf-8"?>\n{text}\n')]
