"""Write `junit.xml`, for programs that read test results."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission, rounded
from course_lib.classroom.text import COURSE, feedback, in_order, one_line, sanitized, save_text
from course_lib.grading.result import SIGNS


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
