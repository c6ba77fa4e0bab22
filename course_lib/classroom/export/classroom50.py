"""What Classroom 50 reads of a grader: `result.json`, with what its runner says in environment variables."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.text import one_line, sanitized, save_one_each

VARIABLES = {  # field of result.json -> environment variable, as Classroom 50's runner sets it
    "classroom": "CLASSROOM",
    "assignment": "ASSIGNMENT",
    "submission": "SUBMISSION_TAG",
    "commit": "COMMIT_URL",
    "release": "RELEASE_URL",
}


def classroom50_fields(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return what environment variables say of a submission. Without REVIEW_URL, COMMIT_URL stands for it.

    `datetime` is the moment of submission, which the tag tells ("submit/2026-06-01T14-32-05Z-a1b2c3d"): it is the same
    however often the submission is graded.

    Errors: ValueError that names the variables that are missing, or a tag without a time. An empty field would only be
    turned down later, when Classroom 50 collects the scores, and the learner would seem not to have submitted.
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
    """Return what Classroom 50 reads from `result.json`. fields: those of `classroom50_fields`.

    It takes whole points, and not more than there are: what a policy makes of them is rounded to a share of these.
    Source: its schema, schemas/result-v1.schema.json of foundation50/classroom50; its runner stamps owner,
    assignment_type and who pushed.
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
    """Write `classroom50/NAME/result.json` for each submission. Errors: as `classroom50_fields`."""
    fields = classroom50_fields(environ)
    return save_one_each(marked, folder / "classroom50", "result.json", lambda each: classroom50_result(each, fields))
