"""Gradescope's file, read as its documentation says that Gradescope reads it."""

import json

from hypothesis import given

from course_lib.classroom.export.gradescope import gradescope_failure, gradescope_result, write_gradescope
from tests.drawn_results import classes, feedback_of, few, has_no_controls, marked, spoken

FORMATS, VISIBILITIES = {"text", "html", "simple_format", "md", "ansi"}, {"hidden", "after_due_date", "after_published"}
VISIBILITIES |= {"visible"}
KINDS = {
    "score": (int, float),
    "execution_time": (int, float),
    "output": str,
    "output_format": FORMATS,
    "visibility": VISIBILITIES,
    "stdout_visibility": VISIBILITIES,
    "extra_data": dict,
    "tests": list,
}
TEST_KINDS = {
    "score": (int, float),
    "max_score": (int, float),
    "status": {"passed", "failed"},
    "name": str,
    "name_format": FORMATS,
    "number": str,
    "output": str,
    "output_format": FORMATS,
    "tags": list,
    "visibility": VISIBILITIES,
    "extra_data": dict,
}


def fits(content, kinds):
    assert content.keys() <= kinds.keys()
    for name, value in content.items():
        kind = kinds[name]
        assert value in kind if isinstance(kind, set) else isinstance(value, kind), (name, value)


def gradescope_score(content):
    """The score that Gradescope gives, or None where it says that the autograder failed."""
    fits(content, KINDS)
    for test in content.get("tests", []):
        fits(test, TEST_KINDS)
    if "score" in content:
        return content["score"]
    return sum(test["score"] for test in content["tests"]) if content.get("tests") else None


@few
@given(classes)
def test_gradescope_gives_the_points_and_interprets_nothing(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("results")
    paths = write_gradescope(drawn, folder)
    by_place = sorted(drawn, key=lambda each: (each.name, each.digest))
    assert len(set(paths)) == len(drawn)
    for path, each in zip(paths, by_place, strict=True):
        assert path.name == "results.json"
        assert path.parent.parent == folder / "gradescope", "a name is never a path"
        content = json.loads(path.read_bytes().decode("utf-8"))
        assert gradescope_score(content) == each.earned
        assert sum(test["score"] for test in content["tests"]) == each.earned
        assert sum(test["max_score"] for test in content["tests"]) == each.points
        assert content["output_format"] == "text"
        for test, mark in zip(content["tests"], each.results, strict=True):
            assert test["output_format"] == test["name_format"] == "text"
            assert (test["status"] == "passed") == mark.passed
            written = each.texts.get(mark.exercise_id, "")
            said = f"What was written: {written}" if written else ""
            assert spoken(test["output"]) == spoken(said) + spoken(feedback_of(mark))
            assert has_no_controls(test["output"] + test["name"])


def test_a_fault_of_ours_is_no_score_for_gradescope():
    content = gradescope_failure("the sandbox \x1b[31mdid not start")
    assert gradescope_score(content) is None
    assert "the sandbox did not start" in content["output"]


def test_gradescope_may_be_told_how_long_it_took():
    content = gradescope_result(marked("Ada"), seconds=12.345)
    assert gradescope_score(content) == 3
    assert content["execution_time"] == 12.3
