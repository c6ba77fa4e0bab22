"""Write `results.json`, the file that Gradescope reads from an autograder."""

from collections.abc import Sequence
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.text import feedback, one_line, sanitized, save_one_each, told_points
from course_lib.grading.result import Result


def gradescope_result(marked: GradedSubmission, seconds: float | None = None) -> dict:
    """Return the content of Gradescope's `results.json`. seconds: the grading time, if it should be shown.

    All text is plain, and Gradescope shows it unchanged.
    """
    result = {
        "score": round(marked.final[0], 2),
        "output": "\n".join(map(sanitized, [*told_points(marked), *marked.troubles, *marked.salvaged])),
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "extra_data": {"digest": marked.digest, "learner": sanitized(marked.learner)},
        "tests": [
            {
                "score": each.earned,
                "max_score": each.points,
                "status": "passed" if each.passed else "failed",
                "name": one_line(each.title),
                "name_format": "text",
                "number": sanitized(each.exercise_id),
                "output": _output(each, marked.texts.get(each.exercise_id, "")),
                "output_format": "text",
                "tags": [sanitized(each.exercise_id).partition(".")[0]],
                "visibility": "visible",
                "extra_data": {"answer": each.status},
            }
            for each in marked.results
        ],
    }
    return result if seconds is None else {**result, "execution_time": round(seconds, 1)}


def _output(result: Result, text: str) -> str:
    """Return the feedback; for a reflection, the learner's text followed by the criteria to tick."""
    said = feedback(result)
    return sanitized(f"What was written:\n\n{text}\n\n{said}" if text else said)


def gradescope_failure(reason: str) -> dict:
    """Return the content of `results.json` for a submission that could not be graded through no fault of the learner.

    It has no score and no tests. Gradescope then reports a failed autograder and leaves the submission ungraded: an
    error of the grader is not a zero.
    """
    return {
        "output": f"This submission could not be graded, and that is not its fault: {sanitized(reason)}",
        "output_format": "text",
        "visibility": "visible",
        "stdout_visibility": "hidden",
        "extra_data": {},
        "tests": [],
    }


def write_gradescope(marked: Sequence[GradedSubmission], folder: Path) -> list[Path]:
    """Write `gradescope/NAME/results.json` for each submission."""
    return save_one_each(marked, folder / "gradescope", "results.json", gradescope_result)
