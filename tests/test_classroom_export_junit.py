"""JUnit's file, read back with another parser and held to pytest's schema."""

import xml.etree.ElementTree as ElementTree

from hypothesis import given

from course_lib.classroom.export.results import write_junit
from tests.drawn_results import classes, feedback_of, few, spoken

# pytest's published schema (junit-10): children and attributes that it knows, and those that must be there.
KNOWN = {
    "testsuites": ({"testsuite"}, {"name", "time", "tests", "failures", "errors"}, set()),
    "testsuite": (
        {"testsuite", "properties", "testcase", "system-out", "system-err"},
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp", "hostname"},
        {"name", "tests", "failures", "errors"},
    ),
    "properties": ({"property"}, set(), set()),
    "property": (set(), {"name", "value"}, {"name", "value"}),
    "testcase": ({"skipped", "failure", "system-out", "system-err"}, {"name", "time", "classname"}, {"name"}),
    "failure": (set(), {"type", "message"}, set()),
    "skipped": (set(), {"type", "message"}, set()),
    "system-err": (set(), set(), set()),
}


@few
@given(classes)
def test_junit_follows_pytests_schema_and_its_properties_hold_the_points(tmp_path_factory, drawn):
    folder = tmp_path_factory.mktemp("results")
    (path,) = write_junit(drawn, folder)
    root = ElementTree.fromstring(path.read_bytes())
    assert root.tag == "testsuites"
    for element in root.iter():
        children, attributes, needed = KNOWN[element.tag]
        assert {child.tag for child in element} <= children
        assert needed <= {*element.keys()} <= attributes
    by_place = sorted(drawn, key=lambda each: (each.name, each.digest))
    for suite, each in zip(root, by_place, strict=True):
        points = {item.get("name"): int(item.get("value")) for item in suite.find("properties")}
        assert (points.pop("earned"), points.pop("points")) == (each.earned, each.points)
        assert points == {
            f"{mark.exercise_id}.{what}": getattr(mark, what) for mark in each.results for what in ("earned", "points")
        }
        cases = suite.findall("testcase")
        assert [f"{case.get('classname')}.{case.get('name')}" for case in cases] == [
            mark.exercise_id for mark in each.results
        ]
        for case, mark in zip(cases, each.results):
            assert (case.find("failure") is not None) == (not mark.passed and mark.points > 0)
            assert (case.find("skipped") is not None) == (not mark.passed and mark.points == 0)
            for outcome in case:
                assert spoken(outcome.text or "") == spoken(feedback_of(mark))
        assert suite.get("tests") == str(len(cases))
        assert suite.get("failures") == str(len(suite.findall("testcase/failure")))
        assert suite.get("skipped") == str(len(suite.findall("testcase/skipped")))
