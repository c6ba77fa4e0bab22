"""The notebooks as files: run in order, complete, portable; and the exercises are what the solutions generate."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbval.plugin import get_sanitize_patterns

from course_lib.experiments import CHAPTERS
from course_lib.grading import EXERCISES
from course_lib.grading.notebook import BEGIN, END, guide, student_version
from course_lib.page import VIEW, picture

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted(ROOT.glob("notebooks/*.ipynb"))
SOLUTIONS = sorted(ROOT.glob("solutions/*.ipynb"))
RUN = [*NOTEBOOKS, *SOLUTIONS]

# Cells whose output may differ, as "notebook: beginning of the cell" -> the reason. None is needed so far.
RELAXED: dict[str, str] = {}
LARGEST = 2_500_000  # bytes
LONGEST_TEXT = 120  # words in one markdown cell


def read(path):
    return nbformat.read(path, as_version=4)


def name(path):
    return f"{path.parent.name}/{path.name}"


def plain_texts(notebook):
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", []))
    return [output.get("data", {}).get("text/plain", "") for output in outputs]


def test_there_are_notebooks_to_look_at():
    assert [int(path.name[:2]) for path in NOTEBOOKS] == list(CHAPTERS)
    assert [path.name for path in SOLUTIONS] == [path.name for path in sorted(ROOT.glob("exercises/*.ipynb"))]


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
            tags = [tag for tag in cell.metadata.get("tags", []) if "nbval" in tag or tag == "raises-exception"]
            if tags or "NBVAL_" in cell.source:
                assert any(key == f"{name(path)}: {cell.source.splitlines()[0]}" for key in RELAXED), cell.source

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
        outputs = [output for cell in read(path).cells for output in cell.get("outputs", [])]
        assert not [output for output in outputs if output.get("data") == {} or VIEW in output.get("data", {})]


def test_of_a_picture_all_but_its_pixels_is_compared(pytestconfig):
    def compared(*arguments):
        text = picture(*arguments)
        for pattern, instead in get_sanitize_patterns(
            (ROOT / pytestconfig.option.nbval_sanitize_with).read_text("utf-8")
        ):
            text = re.sub(pattern, instead, text)
        return text

    one = compared(b"\x00 one machine's", 3, 2, "A bar of 2.")
    assert one == compared(b"another \xff machine's", 3, 2, "A bar of 2.")
    assert one != compared(b"\x00 one machine's", 3, 2, "A bar of 3.")
    assert one != compared(b"\x00 one machine's", 3, 4, "A bar of 2.")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name)
def test_every_chapter_can_be_moved_and_checked(path):
    source = "\n".join(cell.source for cell in read(path).cells)
    texts = plain_texts(read(path))
    assert any("[live" in text for text in texts), "a chapter has at least one live figure"
    assert "minutes" in read(path).cells[0].source
    if (ROOT / "exercises" / path.name).exists():
        assert f"../exercises/{path.name}" in source, "a chapter leads to its exercises"
    if path.name[:2] != "00":
        assert any(text.startswith("Predict:") for text in texts), "a chapter asks for a guess"


def test_the_readme_lists_every_chapter_with_its_title_and_minutes():
    rows = re.findall(
        r"^\| (\d+) \| ([^|]+) \|.*\| (\d+) \| \[read\]\((\S+)\)", (ROOT / "README.md").read_text("utf-8"), re.M
    )
    assert [ROOT / row[3] for row in rows] == NOTEBOOKS
    for number, title, minutes, link in rows:
        first = read(ROOT / link).cells[0].source
        assert title == CHAPTERS[int(number)]
        assert re.search(rf"\b{minutes} minutes", first), f"{link} says otherwise than the README's {minutes} minutes"


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
class TestEverySolution:
    def test_generates_the_exercises(self, path):
        generated = nbformat.writes(student_version(read(path)), version=4) + "\n"
        committed = (ROOT / "exercises" / path.name).read_text(encoding="utf-8")
        assert generated == committed, f"run `python -m course_lib refresh solutions/{path.name}`"

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
        exercise = (ROOT / "exercises" / path.name).read_text(encoding="utf-8")
        assert BEGIN not in exercise
        assert END not in exercise
        for cell in notebook.cells:
            answer = re.findall(f"{BEGIN}\n(.*?){END}", cell.source, flags=re.DOTALL)
            for line in "\n".join(answer).splitlines():
                if len(line.strip()) > 25:
                    assert line.strip() not in exercise.replace('\\"', '"'), line

    def test_exercises_have_no_outputs(self, path):
        for cell in read(ROOT / "exercises" / path.name).cells:
            assert not cell.get("outputs")
            assert cell.get("execution_count") is None


@pytest.mark.parametrize("path", SOLUTIONS, ids=name)
def test_untouched_exercises_run_calmly(path):
    """A learner who runs all cells first meets "not answered yet" at every exercise, and no traceback."""
    notebook = read(ROOT / "exercises" / path.name)
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT / "exercises")}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]
    verdicts = [text for text in plain_texts(notebook) if re.search(r"^[✓✗○✎] ", text)]
    assert len(verdicts) == sum(exercise.chapter == int(path.name[:2]) for exercise in EXERCISES.values())
    assert all(verdict.startswith("○ Not answered yet") for verdict in verdicts)


def test_the_instructors_guide_lists_the_catalogue_as_it_is():
    text = (ROOT / "solutions" / "README.md").read_text(encoding="utf-8")
    assert guide(text) == text, "run `python -m course_lib refresh --exercises-only`"
