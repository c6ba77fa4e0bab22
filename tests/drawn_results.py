"""Classes of drawn and of plain results, with everything that a learner might write, for tests of exports."""

import re
import unicodedata

from hypothesis import settings
from hypothesis import strategies as st

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.grading.page.catalogue import EXERCISES
from course_lib.grading.result import Result

HOSTILE = [
    '=HYPERLINK("http://localhost/","you won")',
    " \t '+1+1",
    "-2+3",
    "@SUM(1,1)",
    "＝1+1",
    "\r=1",
    "first line\n=1+1\n\nlast line",
    'cut here;=1+1;"=2',
    "\x1b[31mred\x1b[0m \x1b]8;;http://localhost\x07link\x1b]8;;\x07 \x9b2J",
    "\x00\x08\x0b\x7f\x85 \ud800 \ufffe \uffff \U0001f600",
    "\u202egpj.exe\u2066",
    "</failure></testcase><testcase name='won'/>]]>&amp;<!--",
    "<script>alert(1)</script><img src=x onerror=alert(1)> &lt;= &",
    "ends in a backslash\\",
    '\\",0,0\\"\n1,2,3',
    "../../etc/passwd",
    "CON",
    "nul.txt",
    "a" * 400,
    "李小龙",
    "e\u0301 Zoe\u0308",
    "",
    ".",
]
# Escapes are in the list above: what else a drawn one would take along, nobody can say without being the terminal.
characters = st.characters(exclude_characters="\x1b\x9b\x9d")
texts = st.one_of(st.sampled_from(HOSTILE), st.text(characters, max_size=60))
few = settings(max_examples=60, deadline=None)


@st.composite
def results(draw, exercise_id="attention.softmax"):
    status = draw(st.sampled_from(["passed", "failed", "unanswered", "written"]))
    points = 0 if status == "written" else draw(st.integers(0, 5))
    sentences = tuple(draw(st.lists(texts, max_size=2)))
    mistake = draw(st.one_of(st.none(), texts)) if status == "failed" else None
    case = draw(texts)
    return Result(
        exercise_id, draw(texts), status, points, sentences, draw(texts), mistake, 'Stuck? hint("x")', case=case
    )


@st.composite
def submissions(draw, name=texts):
    ids = draw(st.lists(st.sampled_from([*EXERCISES][:30]), unique=True, min_size=1, max_size=4))
    marks = tuple(draw(results(id)) for id in ids)
    written = {each.exercise_id: draw(texts) for each in marks if each.status == "written"}
    troubles = tuple(draw(st.lists(texts, max_size=2)))
    saved = tuple(draw(st.lists(texts, max_size=2)))
    digest = f"{draw(st.integers(0, 2**32)):064x}"
    return GradedSubmission(draw(name), digest, marks, troubles, written, salvaged=saved)


classes = st.lists(submissions(), max_size=4)


def result(exercise_id, status, points, misconception=None, sentences=("Because.",), title=None):
    title = title or EXERCISES[exercise_id].title
    closing = f'Stuck? hint("{exercise_id}")' if status == "failed" else ""
    return Result(exercise_id, title, status, points, tuple(sentences), "", misconception, closing)


def marked(name, earned=(True, False), **changes):
    """A submission of two exercises, of 3 and of 2 points."""
    marks = [
        result(id, "passed" if right else "failed", points, None if right else "mask inverted")
        for id, points, right in zip(("attention.softmax", "masks.causal"), (3, 2), earned)
    ]
    return GradedSubmission(name, "0" * 64, tuple(marks), **changes)


def spoken(text):
    """What a program must show of a text, whatever it does with the rest: letters and digits, outside of escapes."""
    text = re.sub(r"\x1b\[[^m]*m|\x1b\]8;;[^\x07]*\x07|\x9b2J", "", text)
    return [each for each in text if each.isalnum() and each.isascii()]


def feedback_of(result):
    return "\n".join(part for part in (*result.sentences, result.case, result.evidence, result.sketch) if part)


def has_no_controls(text):
    return not any(unicodedata.category(each) in ("Cc", "Cs") for each in text if each not in "\n\t") and not re.search(
        "[\u202a-\u202e\u2066-\u2069]", text
    )


def begins_a_formula(text):
    """Would a spreadsheet calculate this cell? Also after it has cut the cell where another separator stands."""
    parts = [text, *re.split(r"[;\n\t]", text)]
    return text[:1] in ("\t", "\n", "\r") or any(
        part.lstrip(" \t\n\"'\xa0")[:1] in tuple("=+-@＝＋－＠") and not part.startswith("'") for part in parts if part
    )


ENVIRON = {  # as Classroom 50's runner sets it
    "CLASSROOM": "transformers",
    "ASSIGNMENT": "measured",
    "SUBMISSION_TAG": "submit/2026-06-01T14-32-05Z-a1b2c3d",
    "COMMIT_URL": "https://git.example/commit/a1b2c3d",
    "RELEASE_URL": "https://git.example/releases/1",
    "REVIEW_URL": "https://git.example/compare/0...1",
}
