"""A class that hands in my_gpt.py: next to a notebook, alone, pasted, renamed by a browser; wrong and hostile files."""

import json

import pytest

from course_lib.__main__ import main
from course_lib.classroom.read.salvage import exercise_of_file
from course_lib.classroom.read.submissions import find_handed_in
from course_lib.course.files import ASSETS
from tests.grading.corpus import notebook
from tests.handed_in import lay_out
from tests.small_class import needs_bwrap
from tests.your_gpt_faults import FILLED, with_fault, written_otherwise

SKELETON = (ASSETS / "my_gpt.txt").read_text(encoding="utf-8")
BILL = notebook([("code", "your_gpt_bill = 228_160")])
LENT_NORM = FILLED.replace("import parts", "import lent, parts").replace(
    "return P.norm(x, self.weight, self.bias, self.eps)", "return lent(self, x)"
)
TWO_FAULTS = with_fault(with_fault(FILLED, "no bias in the norm"), "the first position")
READS_THE_SOLUTION = """\
import pathlib
import course_lib
root = pathlib.Path(course_lib.__file__).parents[1]
found = [*root.rglob("exercises/file.py"), *root.rglob("filled_my_gpt.py"), *root.rglob("solutions/18*")]
exec(found[0].read_text())
"""
LOOPS = with_fault(FILLED, "greedy").replace("for _ in range(n_tokens):", "while True:")
OF_THE_LIBRARY = f"from course_lib.gpt import DecoderOnly\n\n{FILLED}\n\nclass MyGPT(DecoderOnly):\n    pass\n"

# learner -> the files, and the points of your_gpt.file
CLASS = {
    "ada": ({"18_your_gpt.ipynb": BILL, "my_gpt.py": FILLED}, 9),
    "bo": ({"my_gpt.py": written_otherwise(FILLED, "one layer for q, k and v")}, 9),
    "cy": ({"exercises/18_your_gpt.ipynb": BILL, "notebooks/my_gpt (1).py": written_otherwise(FILLED, "einsum")}, 9),
    "dan": ({"18_your_gpt.ipynb": notebook([("code", FILLED), ("code", "your_gpt_bill = 228_160")])}, 9),
    "eve": ({"my_gpt.py": with_fault(FILLED, "clipping at 5")}, 8),
    "flo": ({"18_your_gpt.ipynb": BILL, "my_gpt.py": TWO_FAULTS}, 7),
    "gus": ({"my_gpt.py": LENT_NORM}, 8),
    "hal": ({"my_gpt.py": READS_THE_SOLUTION}, 0),
    "ivy": ({"my_gpt.py": LOOPS}, 8),
    "jo": ({"my_gpt.py": OF_THE_LIBRARY}, 0),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The results of the class by learner: of your_gpt.file, and of your_gpt.bill."""
    folder = tmp_path_factory.mktemp("file")
    for name, (files, _) in CLASS.items():
        lay_out(folder / "class" / name, files)
    options = ["--exercises", "your_gpt.file", "your_gpt.bill", "--seconds", "8"]
    assert main(["grade", str(folder / "class"), "--out", str(folder / "out"), *options]) == 0
    marks = [json.loads(line)["marked"] for line in (folder / "out/marks.jsonl").read_text("utf-8").splitlines()]
    found = {each["name"]: {one["exercise_id"]: one for one in each["results"]} for each in marks}
    pages = "".join(path.read_text("utf-8") for path in (folder / "out/report").rglob("*.html"))
    return found, pages


@needs_bwrap
@pytest.mark.parametrize("name", CLASS)
def test_a_file_earns_a_point_for_every_stage_that_is_right(graded, name):
    result = graded[0][name]["your_gpt.file"]
    points = result["points"] if result["status"] == "passed" else result["part"]
    assert points == CLASS[name][1], result["sentences"]


@needs_bwrap
def test_the_report_names_the_mistake_and_has_the_stages(graded):
    found, pages = graded
    eve = found["eve"]["your_gpt.file"]
    assert eve["misconception"] == "clipping at norm 5"
    assert eve["sentences"][0].startswith("training_step: `loss of step 2` at a gradient far above norm 1")
    assert eve["sentences"][-1] == "8 of 9 stages passed: ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✗ ✓: 8 points"
    assert "8 of 9 stages passed: ✓ ✓ ✓ ✓ ✓ ✓ ✓ ✗ ✓" in pages
    assert found["flo"]["your_gpt.file"]["misconception"] == "the norm's bias missing"
    assert "Norm is lent by the library" in found["gus"]["your_gpt.file"]["sentences"][0].replace("`", "").replace(
        "Norm: ", ""
    )


@needs_bwrap
def test_what_a_hostile_file_does_is_said_and_harms_nobody(graded):
    found, _ = graded
    assert "No cell that could be run defines `MyGPT`" in found["hal"]["your_gpt.file"]["sentences"][0]
    assert "gpt.DecoderOnly" in found["jo"]["your_gpt.file"]["sentences"][0]
    assert found["ivy"]["your_gpt.file"]["misconception"] is None
    assert found["ada"]["your_gpt.bill"]["status"] == found["dan"]["your_gpt.bill"]["status"] == "passed"


@needs_bwrap
def test_the_file_answers_no_other_exercise(graded):
    assert graded[0]["eve"]["your_gpt.bill"]["status"] == "unanswered"


@pytest.mark.parametrize(
    ("name", "is_answer"),
    [("my_gpt.py", True), ("my_gpt (1).py", True), ("my_gpt-1.py", True), ("ada_my_gpt.py", True), ("My_GPT.py", True),
     ("my_gpt.txt", False), ("filled_my_gptx.py", False), ("dummy_gpt.py", False), ("my_gpt.ipynb", False)],
)  # fmt: skip
def test_a_file_is_known_by_its_name(name, is_answer):
    assert exercise_of_file(name) == ("your_gpt.file" if is_answer else "")


@pytest.mark.parametrize("salvage", [True, False])
@pytest.mark.parametrize("text", [FILLED, SKELETON, "x = 1\n", "def broken(:\n"])
def test_a_file_of_that_name_is_always_taken(tmp_path, text, salvage):
    files = {"ada/my_gpt.py": text, "bo_my_gpt.py": text, "cy/18_your_gpt.ipynb": BILL, "cy/my_gpt.py": text}
    found = find_handed_in([lay_out(tmp_path / "class", files)], salvage=salvage)
    assert len(found.submissions) == 3
    assert not found.left
    for submission in found.submissions:
        assert any(each.answers == "your_gpt.file" and each.chapters == {18} for each in submission.notebooks)
        assert not submission.troubles
        assert not submission.salvaged
