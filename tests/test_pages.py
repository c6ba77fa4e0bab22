"""Exercises as pages: what a page says becomes an exercise, and a wrong page is refused with file, line, remedy."""

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from small_pages import CHOICE, MODULE, NUMBER, PAGE, REFLECT

from course_lib.grading import EXERCISES, slips
from course_lib.grading.cases import prepare
from course_lib.grading.judge.trials import mistaken
from course_lib.grading.kinds import KINDS
from course_lib.grading.mistakes import bare
from course_lib.grading.page import catalogue
from course_lib.grading.page.catalogue import Exercises, Folder
from course_lib.grading.page.format import PageError
from course_lib.grading.page.notebooks import solutions
from course_lib.grading.page.run_notebooks import student_version
from course_lib.grading.page.sealed import NAME, Sealed, seal

ROOT = Path(__file__).parent.parent


@pytest.fixture
def written(tmp_path):
    """Write pages into a teacher's folder of the chapter on masks, and read them."""

    def write(text, name="toy", module=MODULE):
        folder = tmp_path / "masks"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
        if module is not None:
            (folder / f"{name}.py").write_text(module, encoding="utf-8")
        exercises = Exercises()
        exercises.add(Folder(tmp_path))
        return exercises[f"masks.{name}"]

    return write


def does(exercise, wrong):
    """What an answer returns for 4 and 5."""
    return wrong(torch.tensor(4.0), 5).item()


# --- what a page becomes ----------------------------------------------------------------------------------------------


def test_a_page_of_code_with_its_module_is_an_exercise(written):
    exercise = written(PAGE)
    assert (exercise.id, exercise.title, exercise.kind, exercise.points) == ("masks.toy", "Scaled", "code", 2)
    assert exercise.why == "Everything is scaled somewhere."
    assert list(exercise.hints) == ["How often, and what is left of it?", "Which operator?", "Which order?"]
    assert (exercise.answer_name, exercise.rtol, exercise.forbidden) == ("scaled", 1e-3, ("softmax",))
    assert [stage.__name__ for stage in exercise.stages] == ["small", "drawn"]
    assert [type(form).__name__ for m in exercise.misconceptions for form in m.forms] == [
        "Change", "Change", "Expression", "Change", "Expression", "Definition", "Lines", "Change",
    ]  # fmt: skip
    made = {m.name: [does(exercise, wrong) for wrong in m.variants] for m in exercise.misconceptions}
    assert made == {
        "added": [4.5], "twice whatever times says": [4.0, 4.0], "not halved": [20.0], "negative": [-10.0],
        "twice as large": [20.0], "in between": [pytest.approx(20 / 3)], "everything by three": [pytest.approx(20 / 3)],
    }  # fmt: skip
    assert exercise.misconceptions[0].sentence == "You add where you should multiply: `times` is a factor."
    assert does(exercise, exercise.reference) == 10.0, "the reference itself stays as it is"


def test_a_mistake_that_is_recognized_is_the_one_that_the_page_names(written, monkeypatch):
    exercise = written(PAGE)
    monkeypatch.setitem(catalogue.EXERCISES, "masks.toy", exercise)
    from course_lib.grading import grade

    assert grade("masks.toy", lambda x, times=2: x + times - (x + times) / 2, 0).misconception == "added"
    assert grade("masks.toy", lambda x, times=2: x * times / 2, 0).passed


def test_mistakes_are_made_when_they_are_first_needed(written):
    exercise = written(PAGE)
    assert not any("variants" in vars(mistake) for mistake in exercise.misconceptions)


def test_a_page_of_numbers(written):
    exercise = written(NUMBER, "table", None)
    assert exercise.reference == {"rows": 30, "all": 15_360}
    assert [(m.name, m.variants, m.rtol) for m in exercise.misconceptions] == [
        ("added", [{"all": 542}], 1e-9),
        ("roughly", [{"all": 15_000}, {"rows": 31}], 0.05),
    ]


def test_a_figure_of_its_own_stands_in_the_front_matter(written):
    text = NUMBER.replace("minutes: 3", "minutes: 3\nreference: \"{'rows': 30, 'all': 2 * 7680}\"")
    text = text.replace("rows + 512", "30 + 512").replace("rows = 30", "raise SystemExit")
    assert written(text, "table", None).reference == {"rows": 30, "all": 15_360}


def test_the_heading_of_a_mistake_may_name_the_hint_that_helps_with_it(written):
    negative = written(PAGE.replace("### negative", "### negative (hint 2)")).misconceptions[3]
    assert (negative.name, negative.hint) == ("negative", 2)
    assert {mistake.hint for mistake in written(PAGE).misconceptions} == {0}


def test_a_page_of_options(written):
    exercise = written(CHOICE, "which", None)
    assert [(o.key, o.text, o.right, o.why) for o in exercise.options] == [
        ("a", "This one, with a text that is right.", True, "Right: it is this one."),
        ("b", "Not that one.", False, "It is not."),
    ]
    tight = CHOICE.replace("text\n  that is right.\n\n", "text that is right.\n").replace("one.\n\n  It", "one.\n  It")
    assert written(tight, "which", None).options == exercise.options


def test_a_page_of_reflection(written):
    exercise = written(REFLECT, "why", None)
    assert exercise.model_answer == "Because of this and that.\n\nAnd more."
    assert (list(exercise.rubric), exercise.min_words) == (["Says this.", "Says that."], 5)


def test_comments_and_docstrings_are_no_place_for_a_change():
    source = 'def f(x):\n    """x / 2, like √2."""\n    return "# x / 2"  # x / 2\n'
    assert bare(source).count("x / 2") == 1
    assert [len(line) for line in bare(source).splitlines()] == [len(line) for line in source.splitlines()]


# --- what is refused --------------------------------------------------------------------------------------------------

FAULTS = {
    "no front matter": (PAGE, "---\nplace: 1", "place: 1", 1, "must begin with its front matter"),
    "no yaml": (PAGE, "title: Scaled", "title: [Scaled", None, "not valid YAML"),
    "unknown key": (PAGE, "forbidden:", "forbiden:", 9, "did you mean 'forbidden'"),
    "another kind's key": (PAGE, "rtol: 1.0e-3", "min_words: 3", 10, "a page of kind code has no 'min_words'"),
    "missing key": (PAGE, "minutes: 3\n", "", 1, "lacks minutes"),
    "no number": (PAGE, "points: 2", "points: two", 5, "points: 'two' must be a whole number"),
    "unknown kind": (PAGE, "kind: code", "kind: coda", 4, "did you mean 'code'"),
    "no signature": (PAGE, "signature: scaled(x, times=2)\n", "", 1, "lacks signature"),
    "no such signature": (PAGE, "signature: scaled(x, times=2)", "signature: scaled(x, times", 1, "is not a signature"),
    "missing part": (PAGE, "## Why\nEverything is scaled\nsomewhere.\n", "", 1, "lacks ## Why"),
    "unknown part": (PAGE, "## Hints", "## Hint", 18, "did you mean 'Hints'"),
    "part twice": (PAGE, "## Hints", "## Why", 18, "a second part 'Why'"),
    "part of nothing": (PAGE, "## Why", "### Why", 14, "belongs to no section"),
    "no statement": (PAGE, "Write `scaled(x, times=2)`.\n", "", 1, "the statement is missing"),
    "two hints": (PAGE, "3. Which order?\n", "", 18, "at least 3 hints, and this has 2"),
    "hints alike": (PAGE, "Which order?", "Which operator?", 18, "two hints are the same"),
    "too few mistakes": (PAGE, PAGE[PAGE.index("### negative") :], "", 24, "at least 4 mistakes, and this has 3"),
    "no such hint": (
        PAGE,
        "### negative",
        "### negative (hint 4)",
        39,
        "'negative' names hint 4: the page has hints 1 to 3",
    ),
    "name twice": (PAGE, "### negative", "### added", 39, "a second mistake named 'added'"),
    "no form": (PAGE, "`-scaled(x, times)`\n", "", 39, "'negative' has no form"),
    "no sentence": (PAGE, "A sign too many.\n", "", 39, "'negative' has no sentence"),
    "no expression": (PAGE, "`-scaled(x, times)`", "`-scaled(x, times`", 40, "this is not valid Python"),
    "no definition": (
        PAGE,
        "def wrong(x, times=2):\n    return 2 * scaled(x, times)",
        "y = 3",
        44,
        "end with the def",
    ),
    "not there": (
        PAGE,
        "`x * times` → `x + times`",
        "`x / times` → `x`",
        26,
        "`x / times` does not occur in `scaled` or",
    ),
    "not once": (PAGE, "`/ 2` → nothing", "`2` → nothing", 36, "occurs 2 times"),
    "no python then": (PAGE, "`/ 2` → nothing", "`/ 2` → `/`", 36, "this is not valid Python"),
    "no change": (PAGE, "`/ 2` → nothing", "`/ 2` → something", 35, "has no form"),
    "half a change": (PAGE, "`/ 2` → nothing", "`/ 2` →", 36, "a change is written"),
    "diff of nothing": (PAGE, "-    return halved(twice)", "-    return halved(x)", 51, "do not occur"),
    "no value": (NUMBER, "rows + 512", "row + 512", 27, "has no value: NameError"),
    "unknown parts": (NUMBER, '{"all": rows + 512}', '{"al": 1}', 26, "wrong parts, with keys from all, rows"),
    "no answer": (NUMBER, "masks_table", "masks_tables", 15, "should assign the answer: `masks_table = …`"),
    "no block": (NUMBER, "```python", "```text", 14, "## Answer must have one python block"),
    "no option": (CHOICE, "- [x] `a`: This", "- [x] a: This", 15, "an option is written"),
    "key twice": (CHOICE, "`b`", "`a`", 15, "a second option 'a'"),
    "none is wrong": (CHOICE, "- [ ] `b`", "- [x] `b`", 1, "a right one and a wrong one"),
    "points to think": (REFLECT, "points: 0", "points: 1", 1, "a reflect exercise has no points"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_page_is_refused_with_file_line_and_remedy(written, fault):
    text, old, new, line, remedy = FAULTS[fault]
    assert text.count(old) == 1 or old in ("---\nplace: 1",), "the test means one place"
    name = {NUMBER: "table", CHOICE: "which", REFLECT: "why"}.get(text, "toy")
    with pytest.raises(PageError) as error:
        written(text.replace(old, new, 1), name, MODULE if text == PAGE else None)
    said = str(error.value)
    assert re.search(rf"masks/{name}\.md:{r'[0-9]+' if line is None else line}: ", said), said
    assert remedy in said, said


@pytest.mark.parametrize(
    ("old", "new", "line", "remedy"),
    [
        ("def scaled(", "def scale(", 1, "the reference is missing: define `scaled`"),
        ("@stage\n", "", 1, "no function is marked with @stage"),
        ('    "Two numbers."\n', "", 22, "the stage `small` needs a docstring"),
    ],
)
def test_a_faulty_module_is_refused_with_file_line_and_remedy(written, old, new, line, remedy):
    with pytest.raises(PageError, match=rf"masks/toy\.py:{line}: .*{re.escape(remedy)}"):
        written(PAGE, module=MODULE.replace(old, new))


def test_a_page_of_code_without_its_module_is_refused(written):
    with pytest.raises(PageError, match=r"masks/toy\.py is missing"):
        written(PAGE, module=None)


# --- where pages are found --------------------------------------------------------------------------------------------


def test_a_teachers_folder_is_added_and_an_id_that_exists_is_refused(written, tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "EXERCISES", Exercises())
    written(PAGE)
    catalogue.add_catalogue(tmp_path)
    assert catalogue.get("masks.toy").title == "Scaled"
    with pytest.raises(PageError, match=r"masks/toy\.md:1: the exercise masks\.toy exists already.*choose another"):
        catalogue.add_catalogue(tmp_path)
    with pytest.raises(ValueError, match="is not a folder"):
        catalogue.add_catalogue(tmp_path / "nothing")


def test_a_folder_that_is_no_chapter_is_refused(tmp_path):
    (tmp_path / "mask").mkdir()
    (tmp_path / "mask" / "toy.md").write_text(PAGE)
    with pytest.raises(PageError, match=r"there is no chapter 'mask': choose from .*masks"):
        Exercises().add(Folder(tmp_path))


def test_the_environment_names_a_teachers_folder(written, tmp_path):
    written(PAGE)
    code = "from course_lib.grading import EXERCISES; print(EXERCISES['masks.toy'].reference(8.0, 3))"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env={"COURSE_CATALOGUE": str(tmp_path)}
    )
    assert run.stdout == "12.0\n", run.stderr


def test_exercises_come_by_chapter_then_place_and_lists_read_no_page(monkeypatch):
    entries = list(EXERCISES.entries.values())
    assert [(e.chapter, e.place) for e in entries] == sorted((e.chapter, e.place) for e in entries)
    assert list(EXERCISES) == [entry.id for entry in entries]
    fresh = Exercises()
    monkeypatch.setattr(catalogue, "exercise_of", lambda *given: pytest.fail("a page was read"))
    fresh.add(Folder(catalogue.CHAPTERS, "exercises"))
    assert {e.kind for e in fresh.entries.values()} == set(KINDS)


def test_every_page_is_read_with_all_its_forms():
    for exercise in EXERCISES.values():
        assert exercise.hints, exercise.id


def test_sealed_pages_are_the_same_exercises_and_tell_no_source(tmp_path, monkeypatch):
    names = ("masks/toy.md", "masks/toy.py", "masks/_shared.py")
    module = MODULE.replace(
        "import torch\n", "import torch\n\nfrom sealed_toys.masks.exercises._shared import TIMES\n", 1
    )
    texts = (PAGE, module.replace("times=2", "times=TIMES", 1), "TIMES = 2\n")
    (tmp_path / NAME).write_bytes(seal(dict(zip(names, texts))))
    top = ModuleType("sealed_toys")
    top.__path__ = []
    monkeypatch.setitem(sys.modules, "sealed_toys", top)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    sealed = Sealed(tmp_path / NAME, "sealed_toys")
    assert sealed in sys.meta_path
    made = importlib.import_module("sealed_toys.masks.exercises.toy")
    assert made.scaled(3.0) == 3.0
    assert not Path(made.__spec__.origin, "masks").exists()
    with pytest.raises(ImportError):
        importlib.import_module("sealed_toys.masks.exercises.other")


# --- slips ------------------------------------------------------------------------------------------------------------


def test_generic_slips_do_what_their_names_say():
    def doubled(x, more=None):
        return {"twice": [2 * x], "rows": more}

    x = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert slips.in_float32(doubled)(x)["twice"][0].dtype == torch.float32
    assert slips.losing_dtype(doubled)(x, more=torch.tensor([3]))["rows"].dtype == torch.int64
    assert not slips.detached(doubled)(x)["twice"][0].requires_grad
    y = torch.ones(2)
    assert slips.changing_input(doubled, "x")(y)["twice"][0].tolist() == [2, 2]
    assert y.tolist() == [0, 0]
    with pytest.raises(ValueError, match="'z' is not a parameter of doubled: choose from x, more"):
        slips.changing_input(doubled, "z")


# --- notebooks --------------------------------------------------------------------------------------------------------


def test_a_chapters_solutions_come_from_its_pages_and_stay_the_same():
    made, again = solutions("masks"), solutions("masks")
    assert made == again, "ids of cells stay"
    assert len({cell.id for cell in made.cells}) == len(made.cells)
    text = "\n".join(cell.source for cell in student_version(made).cells)
    for exercise in (each for each in EXERCISES.values() if each.id.startswith("masks.")):
        assert f"## {exercise.id} · {exercise.title}" in text
        assert f'check("{exercise.id}", {exercise.answer_name})' in text
        if exercise.called:
            assert f"def {exercise.signature.partition('(')[0]}" in text or f"class {exercise.answer_name}" in text
    assert "raise NotImplementedError" in text
    assert "SOLUTION" not in text


@pytest.mark.parametrize("slug", list(dict.fromkeys(exercise_id.partition(".")[0] for exercise_id in EXERCISES)))
def test_the_opening_says_how_long_its_exercises_take_together(slug):
    exercises = [EXERCISES[each] for each in EXERCISES if each.startswith(f"{slug}.")]
    points, minutes = sum(each.points for each in exercises), sum(each.minutes for each in exercises)
    assert f"exercises, {points} points, about {minutes} minutes." in solutions(slug).cells[0].source


def test_a_mistake_does_the_same_every_time_it_is_made():
    exercise = EXERCISES["masks.causal"]
    trial = prepare(exercise, 0)[-1]
    for mistake in exercise.misconceptions:
        one, other = (mistake.forms[0].made(mistake.reference) for _ in range(2))
        assert exercise.alike(mistaken(one, trial), mistaken(other, trial))
