"""The notebooks as files: run in order, complete, portable; and the exercises are what the solutions generate."""

import ast
import re
import subprocess
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbval.plugin import get_sanitize_patterns

from course_lib.course.contents import BY_SLUG, CHAPTERS, TITLES
from course_lib.grading import EXERCISES
from course_lib.grading.page.notebooks import TOOLS, solutions
from course_lib.grading.page.run_notebooks import BEGIN, END, exercise_text, guide
from course_lib.live.page import VIEW, WAKE, picture
from tests import warm

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
SOLUTIONS = sorted(ROOT.glob("solutions/*.ipynb"))
RUN = [*NOTEBOOKS, *SOLUTIONS]

# The calls that prose may name.
CALLS = ("check", "hint", "progress", "explore")
LARGEST = 2_500_000  # bytes
LONGEST_TEXT = 120  # words in one markdown cell
LONGEST_LINE = 88  # characters of code: what fits a window of 1280 pixels next to the list of files, and a projector


def read(path):
    return nbformat.read(path, as_version=4)


def name(path):
    return f"{path.parent.name}/{path.name}"


def untouched(path):
    """The exercise notebook as learners get it: in exercises/ there may be answers by now."""
    return nbformat.reads(exercise_text(path), as_version=4)


def committed(path):
    """A file as it stands in the last commit; None in a copy without git."""
    name = path.relative_to(ROOT).as_posix()
    seen = subprocess.run(["git", "show", f"HEAD:{name}"], capture_output=True, text=True, encoding="utf-8", cwd=ROOT)
    return None if seen.returncode else seen.stdout


def stale(made, there, committed):
    """Is an exercise notebook other than its solution makes it? Not where a learner's answers are the difference: then
    the last commit holds what the solution makes. `there` and `committed`: its text now, and then (None: no git)."""
    return made not in (there, committed)


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_an_exercise_notebook_ends_with_the_command_that_grades_it(path):
    last = untouched(path).cells[-1].source
    assert f"```\npython -m course_lib grade exercises/{path.name}\n```" in last


def test_a_stale_exercise_notebook_is_told_from_one_with_answers():
    assert not stale("made", there="made", committed="made")
    assert not stale("made", there="solved", committed="made"), "a learner wrote answers"
    assert not stale("made anew", there="made anew", committed="made"), "an author changed the solution and refreshed"
    assert stale("made anew", there="made", committed="made"), "an author forgot to refresh"
    assert stale("made anew", there="made", committed=None)


@pytest.mark.parametrize("path", RUN, ids=name)
def test_every_notebook_imports_what_its_kernel_begins_with(path):
    """So that it misses nothing in a kernel that begins with nothing: only the tests' kernels are warm."""
    code = [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    imported = set(re.findall(r"^(?:from|import) ([\w.]+)", "\n".join(code), flags=re.MULTILINE))
    if "course_lib.grading" in imported:
        imported.add("torch")  # it comes with it
    assert imported.issuperset(warm.BEFOREHAND)


def plain_texts(notebook):
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return [output.get("data", {}).get("text/plain", "") for output in outputs]


def test_there_are_notebooks_to_look_at():
    assert [int(path.name[:2]) for path in NOTEBOOKS] == list(TITLES)
    assert [path.name for path in SOLUTIONS] == [path.name for path in sorted(ROOT.glob("exercises/*.ipynb"))]
    assert {*CALM_IN_EVERY_RUN} <= {path.stem[3:] for path in SOLUTIONS}


@pytest.mark.parametrize("path", RUN, ids=name)
class TestEveryNotebook:
    def test_was_run_from_top_to_bottom(self, path):
        counts = [cell.execution_count for cell in read(path).cells if cell.cell_type == "code"]
        assert counts == list(range(1, len(counts) + 1))

    def test_has_outputs_and_no_errors(self, path):
        code = [cell for cell in read(path).cells if cell.cell_type == "code"]
        assert sum(bool(cell.outputs) for cell in code) >= len(code) / 2, "most cells show something"
        for cell in code:
            for output in cell.outputs:
                assert output.output_type != "error", cell.source
                assert output.get("name") != "stderr", cell.source

    def test_is_compared_whole(self, path):
        for cell in read(path).cells:
            assert not [tag for tag in cell.metadata.get("tags", []) if "nbval" in tag or tag == "raises-exception"]
            assert "NBVAL_" not in cell.source

    def test_tells_nothing_of_the_machine_that_ran_it(self, path):
        # Without pixels: among a million of their letters something looks like an address by chance.
        text = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "data:image/png", path.read_text(encoding="utf-8"))
        for pattern in (r"/home/\w", r"/Users/\w", r"/root/", r"/tmp/", r"/usr/lib", r"[A-Z]:\\\\", r"0x[0-9a-f]{8,}"):
            assert not re.search(pattern, text), f"{pattern} occurs in {path.name}"

    def test_is_small(self, path):
        assert path.stat().st_size < LARGEST

    def test_is_no_wall_of_text(self, path):
        for cell in read(path).cells:
            if cell.cell_type == "markdown":
                assert len(cell.source.split()) <= LONGEST_TEXT, cell.source[:80]

    def test_no_line_of_code_wraps(self, path):
        cells = (untouched(path) if path in SOLUTIONS else read(path)).cells
        lines = [line for cell in cells if cell.cell_type == "code" for line in cell.source.splitlines()]
        assert not [line for line in lines if len(line) > LONGEST_LINE]

    def test_links_lead_somewhere(self, path):
        for cell in read(path).cells:
            if cell.cell_type == "markdown":
                for link in re.findall(r"\]\(([^)#:\s]+)\)", cell.source):
                    assert (path.parent / link).exists(), link

    def test_pictures_have_words(self, path):
        """As the alt of an image, which JupyterLab and exported pages show; and as text, which is compared, too."""
        for cell in read(path).cells:
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                assert not [kind for kind in data if kind.startswith("image/")], (
                    f"no page shows its words: {cell.source}"
                )
                images = re.findall("<img[^>]*>", data.get("text/html", ""))
                words = [" ".join(re.findall(r' alt="([^"]*)"', image)) for image in images]
                assert all(len(said.split()) >= 5 for said in words), cell.source
                assert not images or len(data["text/plain"].split()) >= 5, cell.source

    def test_holds_no_view_of_a_widget(self, path):
        for cell in read(path).cells:
            folded = cell.metadata.get("jupyter", {}).get("outputs_hidden", False)
            for output in cell.get("outputs", [])[folded:]:  # where outputs are folded, the first is empty
                assert output.get("data") != {}
                assert VIEW not in output.get("data", {})

    def test_says_of_each_live_figure_how_it_comes_to_life(self, path):
        for cell in read(path).cells:
            for output in cell.get("outputs", []):
                data = output.get("data", {})
                if re.match(r"\[live (?!curve)|\[glass|Predict:", data.get("text/plain", "")):
                    assert data["text/html"].endswith(f"{WAKE}</div>"), cell.source


@pytest.fixture
def compared(pytestconfig):
    """What nbval compares of a text."""
    left_out = get_sanitize_patterns((ROOT / pytestconfig.option.nbval_sanitize_with).read_text("utf-8"))

    def of(text):
        for pattern, instead in left_out:
            text = re.sub(pattern, instead, text)
        return text

    return of


def test_of_a_picture_all_but_its_pixels_is_compared(compared):
    one = compared(picture(b"\x00 one machine's", 3, 2, "A bar of 2."))
    assert one == compared(picture(b"another \xff machine's", 3, 2, "A bar of 2."))
    assert one != compared(picture(b"\x00 one machine's", 3, 2, "A bar of 3."))
    assert one != compared(picture(b"\x00 one machine's", 3, 4, "A bar of 2."))


def test_of_a_time_all_but_its_figures_is_compared(compared):
    one = compared("512 tokens     1.74 ms\n1,024 tokens     6.42 ms\np = 1.9\n")
    assert one == compared("512 tokens    91.74 ms\n1,024 tokens   106.42 ms\np = 0.1\n")
    assert one != compared("512 words     1.74 ms\n1,024 tokens     6.42 ms\np = 1.9\n")
    assert one != compared("512 tokens     1.74 ms\np = 1.9\n")
    assert compared("token 32   0.58 ms   0.84 ms\n") == compared("token 32   5.58 ms  10.84 ms\n")
    assert compared("token 32   0.58 ms   0.84 ms\n") != compared("32 others  0.58 ms   0.84 ms\n")
    assert compared("a loss of 1.74 ms\n") == "a loss of 1.74 ms\n", "no other time is left out"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_every_chapter_can_be_moved_and_checked(path):
    source = "\n".join(cell.source for cell in read(path).cells)
    texts = plain_texts(read(path))
    assert any("[live" in text for text in texts), "a chapter has at least one live figure"
    assert "minutes" in read(path).cells[0].source
    if (ROOT / "exercises" / path.name).exists():
        assert f"../exercises/{path.name}" in source, "a chapter leads to its exercises"
    following = [each.name for each in NOTEBOOKS if each.name > path.name][:1]
    assert all(f"]({each})" in read(path).cells[-1].source for each in following), "a chapter leads to the next"
    if path.name[:2] != "00":
        assert any(text.startswith("Predict:") for text in texts), "a chapter asks for a guess"


@pytest.mark.parametrize("path", RUN, ids=name)
def test_what_is_shown_ends_its_cell(path):
    """`show` returns a picture, and a notebook displays only what the last line of a cell returns."""
    lost = []
    for cell in read(path).cells:
        lines = ast.parse(cell.source).body if cell.cell_type == "code" else []
        calls = [line.value for line in lines[:-1] if isinstance(line, ast.Expr) and isinstance(line.value, ast.Call)]
        lost += [ast.unparse(call)[:60] for call in calls if ast.unparse(call.func) in ("show", "source", "climb")]
    assert not lost, f"{name(path)}: never displayed: {lost}"


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
class TestTheOrderOfTheChapters:
    """What the notebooks say of it is what `chapters.toml` says."""

    def test_its_title_and_sections_bear_its_number(self, chapter):
        cells = read(ROOT / "notebooks" / chapter.notebook).cells
        assert cells[0].source.startswith(f"# {chapter.number} · {chapter.title}\n")
        text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
        sections = re.findall(r"^## (\d+\.\d+)", text, flags=re.MULTILINE)
        assert sections == [f"{chapter.number}.{section}" for section in range(1, len(sections) + 1)]

    def test_what_is_needed_before_stands_in_earlier_chapters(self, chapter):
        first = read(ROOT / "notebooks" / chapter.notebook).cells[0].source
        needed = "".join(re.findall(r"(?:\bBefore|You need)\b.*", first))
        assert needed or chapter.number == 0
        numbers = [int(number) for number in re.findall(r"(?<![\d.])\d+(?!\.\d|\d)", needed)]
        assert all(0 < number < chapter.number for number in numbers), needed
        for word, number in re.findall(r"([\w-]+) \((?:chapter )?(\d+)\)", needed):  # "masks (3)"
            named = BY_SLUG.get(word.replace("-", "_"))
            assert not named or named.number == int(number), f"{word} is chapter {named.number}"

    def test_it_ends_with_the_chapter_that_follows(self, chapter):
        last = read(ROOT / "notebooks" / chapter.notebook).cells[-1].source
        links = re.findall(r"\[([^]]*)\]\((\d\d_\w+\.ipynb)\)", last)
        following = CHAPTERS[chapter.number + 1 : chapter.number + 2]
        assert [link for _, link in links] == [each.notebook for each in following]
        if chapter.number:
            assert [name for name, _ in links] == [f"{each.number} · {each.title}" for each in following]


def test_sections_that_are_named_exist():
    text = "\n".join(cell.source for path in NOTEBOOKS for cell in read(path).cells)
    sections = set(re.findall(r"^## (\d+\.\d+)", text, flags=re.MULTILINE))
    named = re.findall(r"(?<!\d \()\b(?:[Ss]ections?|[Ii]n) (\d+\.\d+)\b", text)  # but not "et al. 2017 (section 3.4)"
    assert len(named) > 5
    assert set(named) <= sections


CODE = re.compile(r"```.*?```|`[^`\n]*`|\$[^$]*\$|<[^>]*>|\]\([^)]*\)", re.DOTALL)  # formulas, tags and addresses, too


def test_prose_has_the_quotation_marks_of_what_the_course_prints():
    straight = [
        (path.name, line)
        for path in NOTEBOOKS
        for cell in read(path).cells
        if cell.cell_type == "markdown"
        for line in CODE.sub("", cell.source).splitlines()
        if '"' in line
    ]
    assert straight == []


def test_the_readme_lists_every_chapter_with_its_title_and_minutes():
    rows = re.findall(
        r"^\| (\d+) \| ([^|]+) \|.*\| (\d+) \| \[read\]\((\S+)\)", (ROOT / "README.md").read_text("utf-8"), re.M
    )
    assert [ROOT / row[3] for row in rows] == NOTEBOOKS
    for number, title, minutes, link in rows:
        first = read(ROOT / link).cells[0].source
        assert title == TITLES[int(number)]
        assert re.search(rf"\b{minutes} minutes", first), f"{link} says otherwise than the README's {minutes} minutes"


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
class TestEverySolution:
    def test_comes_from_the_pages_of_its_chapter(self, path):
        made = solutions(CHAPTERS[int(path.name[:2])].slug)
        there = [(cell.cell_type, cell.id, cell.source) for cell in read(path).cells]
        made = [(cell.cell_type, cell.id, cell.source) for cell in made.cells]
        assert there == made, f"run `python -m course_lib refresh solutions/{path.name}`"

    def test_generates_the_exercises(self, path):
        exercise = ROOT / "exercises" / path.name
        there = exercise.read_text(encoding="utf-8")
        if stale(exercise_text(path), there, kept := committed(exercise)) and kept is None:
            pytest.skip("a copy without git: answers in an exercise notebook cannot be told from a stale one")
        assert not stale(exercise_text(path), there, kept), f"run `python -m course_lib refresh solutions/{path.name}`"

    def test_checks_every_exercise_of_its_chapter_and_passes(self, path):
        notebook = read(path)
        source = "\n".join(cell.source for cell in notebook.cells)
        chapter = [exercise.id for exercise in EXERCISES.values() if exercise.chapter == int(path.name[:2])]
        for exercise_id in chapter:
            assert f'check("{exercise_id}"' in source, f"{exercise_id} is not checked"
        verdicts = [text for text in plain_texts(notebook) if re.search(r"^[✓✗○✎] ", text)]
        assert len(verdicts) == len(chapter)
        assert all(verdict[0] in "✓✎" for verdict in verdicts), "a reference answer does not pass"

    def test_leaks_no_answer(self, path):
        notebook = read(path)
        exercise = exercise_text(path)
        assert BEGIN not in exercise
        assert END not in exercise
        for cell in notebook.cells:
            answer = re.findall(f"{BEGIN}\n(.*?){END}", cell.source, flags=re.DOTALL)
            for line in "\n".join(answer).splitlines():
                if len(line.strip()) > 25:
                    assert line.strip() not in exercise.replace('\\"', '"'), line

    def test_exercises_have_no_outputs(self, path):
        for cell in untouched(path).cells:
            assert not cell.get("outputs")
            assert cell.get("execution_count") is None

    def test_begins_and_ends_as_all_do(self, path):
        number, cells = int(path.name[:2]), untouched(path).cells
        exercises = [exercise for exercise in EXERCISES.values() if exercise.chapter == number]
        assert cells[0].source.startswith(f"# Exercises {number} · {TITLES[number]}\n")
        assert f"The chapter: [{number} · {TITLES[number]}](../notebooks/{path.name})" in cells[0].source
        assert f" exercises, {sum(exercise.points for exercise in exercises)} points, about " in cells[0].source
        without = ["check"] if any(exercise.called for exercise in exercises) else ["check", "explore"]
        assert [name for name in CALLS if f"`{name}(" not in cells[0].source] == without
        assert next(cell for cell in cells if cell.cell_type == "code").source == TOOLS
        for following in NOTEBOOKS[number + 1 : number + 2]:
            assert f"[{number + 1} · {TITLES[number + 1]}](../notebooks/{following.name})" in cells[-1].source


CALM_IN_EVERY_RUN = ("attention", "masks")  # chapters with code, live figures, numbers, choices, reflections


@pytest.mark.parametrize(
    "path",
    [path if path.stem[3:] in CALM_IN_EVERY_RUN else pytest.param(path, marks=pytest.mark.proof) for path in SOLUTIONS],
    ids=name,
)
def test_untouched_exercises_run_calmly(path):
    """A learner who runs all cells first meets "not answered yet" at every exercise, and no traceback; and every call
    that the prose names can be copied into a cell."""
    notebook = untouched(path)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    named = re.findall(rf"`((?:{'|'.join(CALLS)})\([^`]*\))`", prose)
    assert named
    written = [nbformat.v4.new_code_cell(f"assert {call} is not None") for call in dict.fromkeys(named)]
    notebook.cells += written
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT / "exercises")}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    verdicts = [text for text in plain_texts(notebook) if re.search(r"^[✓✗○✎] ", text)]
    assert len(verdicts) == sum(exercise.chapter == int(path.name[:2]) for exercise in EXERCISES.values())
    assert all(verdict.startswith("○ Not answered yet") for verdict in verdicts)


def test_the_instructors_guide_lists_the_catalogue_as_it_is():
    text = (ROOT / "solutions" / "README.md").read_text(encoding="utf-8")
    assert guide(text) == text, "run `python -m course_lib refresh --exercises-only`"
