"""Classroom 50's file, held to the rules by which it takes one."""

import json
import re

import pytest
from hypothesis import given

from course_lib.classroom.export.classroom50 import classroom50_fields, write_classroom50
from tests.drawn_results import ENVIRON, classes, few


def classroom50_reads(content):
    """The rules by which Classroom 50 takes a result; owner and assignment_type are stamped by its runner."""
    assert content["schema"] == "classroom50/result/v1"
    assert (content["classroom"], content["assignment"]) == ("transformers", "measured")
    assert content["submission"].startswith("submit/")
    for field in ("commit", "release", "review", "datetime"):
        assert isinstance(content[field], str)
        assert content[field]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", content["datetime"])
    for part in (content, *content["tests"]):
        assert type(part["score"]) is type(part["max-score"]) is int
        assert 0 <= part["score"] <= part["max-score"]
    for test in content["tests"]:
        assert set(test) == {"test-name", "passed", "score", "max-score"}
        assert isinstance(test["passed"], bool)
        assert test["test-name"]
    assert sum(test["score"] for test in content["tests"]) == content["score"]
    return content["score"]


@few
@given(classes)
def test_classroom50_takes_every_result(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("results")
    paths = write_classroom50(drawn, folder, ENVIRON)
    by_place = sorted(drawn, key=lambda each: (each.name, each.digest))
    for path, each in zip(paths, by_place, strict=True):
        content = json.loads(path.read_bytes().decode("utf-8"))
        assert classroom50_reads(content) == each.earned
        assert content["datetime"] == "2026-06-01T14:32:05Z", "the moment of submission, not of grading"
        assert content["review"] == ENVIRON["REVIEW_URL"]


def test_without_a_review_the_commit_is_reviewed():
    environ = {name: value for name, value in ENVIRON.items() if name != "REVIEW_URL"}
    assert classroom50_fields(environ)["review"] == ENVIRON["COMMIT_URL"]


def test_a_missing_variable_of_classroom50_is_named():
    with pytest.raises(ValueError, match=r"ASSIGNMENT, COMMIT_URL must be set"):
        classroom50_fields(ENVIRON | {"COMMIT_URL": "", "ASSIGNMENT": ""})
    with pytest.raises(ValueError, match=r"SUBMISSION_TAG='v1' must begin"):
        classroom50_fields(ENVIRON | {"SUBMISSION_TAG": "v1"})
