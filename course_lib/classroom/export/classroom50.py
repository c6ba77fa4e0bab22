"""Write `result.json`, the file that Classroom 50 reads from a grader, with values from its runner's environment."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.text import one_line, sanitized, save_one_each

VARIABLES = {  # field of result.json -> environment variable set by Classroom 50's runner
    "classroom": "CLASSROOM",
    "assignment": "ASSIGNMENT",
    "submission": "SUBMISSION_TAG",
    "commit": "COMMIT_URL",
    "release": "RELEASE_URL",
}


def classroom50_fields(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return a submission's fields from environment variables. COMMIT_URL replaces a missing REVIEW_URL.

    `datetime` is the time of submission in the tag ("submit/2026-06-01T14-32-05Z-a1b2c3d"), so grading again does not
    change it.

    Errors: ValueError that lists the missing variables, or for a tag without a time. Otherwise Classroom 50 would
        reject an empty field later, when it collects scores, and the learner would seem not to have submitted.
    """
    if missing := sorted(name for name in VARIABLES.values() if not environ.get(name)):
        raise ValueError(
            f"{', '.join(missing)} must be set for Classroom 50's result.json: its runner sets them. "
            "Elsewhere, ask for another format."
        )
    fields = {field: environ[name] for field, name in VARIABLES.items()}
    when = re.match(r"submit/(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)Z", fields["submission"])
    if not when:
        raise ValueError(
            f"SUBMISSION_TAG={fields['submission']!r} must begin as submit/2026-06-01T14-32-05Z does: "
            "let Classroom 50's workflow make the tag"
        )
    day, *clock = when.groups()
    review = environ.get("REVIEW_URL") or fields["commit"]
    return {**fields, "review": review, "datetime": f"{day}T{':'.join(clock)}Z"}


def classroom50_result(marked: GradedSubmission, fields: Mapping[str, str]) -> dict:
    """Return the content of `result.json`. fields: from `classroom50_fields`.

    Classroom 50 takes whole points up to the maximum, so a policy's points are rounded to a fraction of these.
    Source: schemas/result-v1.schema.json of foundation50/classroom50. Its runner adds owner, assignment_type and
        author.
    """
    earned, points = marked.final
    return {
        "schema": "classroom50/result/v1",
        **fields,
        "score": round(earned * marked.points / points) if points else 0,
        "max-score": marked.points,
        "tests": [
            {
                "test-name": f"{sanitized(each.exercise_id)} · {one_line(each.title)}",
                "passed": each.passed,
                "score": each.earned,
                "max-score": each.points,
            }
            for each in marked.results
        ],
    }


def write_classroom50(
    marked: Sequence[GradedSubmission], folder: Path, environ: Mapping[str, str] = os.environ
) -> list[Path]:
    """Write `classroom50/NAME/result.json` for each submission. Errors: as in `classroom50_fields`."""
    fields = classroom50_fields(environ)
    return save_one_each(marked, folder / "classroom50", "result.json", lambda each: classroom50_result(each, fields))
