"""A term of three weeks, from the first release to the grades, through the commands that a teacher and learners use."""

import csv
import io
import shutil
from pathlib import Path

import nbformat
import pytest

from course_lib.__main__ import main
from course_lib.cli import start
from tests.small_class import RIGHT, ROOT, WRONG
from tests.with_git import git, without_settings

EXERCISES = ("attention.softmax", "masks.causal")
ANSWERS = {"02_attention.ipynb": "softmax", "03_masks.ipynb": "causal_mask"}
MASK = "def causal_mask(T, S=None):\n    S = S or T\n    return torch.ones(T, S, dtype=torch.bool).tril(S - T)"
COURSE = """
[course]
platform = "canvas"
gradebook = "book.csv"

[course.chapters]
0 = 2020-11-02
attention = 2020-11-09
masks = 2020-11-16

[grading]
time_zone = "Europe/Berlin"

[grading.due]
3 = 2020-11-22T23:59:00

[grading.late]
percent_per_day = 10

[grading.handed_in]
101 = 2020-11-22T20:00:00
102 = 2020-11-22T20:00:00
103 = 2020-11-24T09:00:00
"""
BOOK = (
    "Student,ID,SIS Login ID,Section,Scaled dot-product attention (71),Causal masking (72)\n"
    "    Points Possible,,,,10,10\n" + "".join(f"learner0{i},10{i},learner0{i},A,,\n" for i in range(1, 5))
)
SHEET = "Identifier,Full name,Grade,Maximum Grade,Last modified (grade),Feedback comments\n" + "".join(
    f"Participant 10{i},learner0{i},,100,,\n" for i in range(1, 5)
)
WORD = """
[[grading.override]]
learner = "103"
chapter = 3
on_time = true
"""


class Term:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys):
        self.folder, self.monkeypatch, self.capsys = folder, monkeypatch, capsys
        self.course, self.package = folder / "course", folder / "package"
        for name in ("course_lib", "notebooks", "solutions"):
            shutil.copytree(ROOT / name, self.course / name, ignore=shutil.ignore_patterns("__pycache__", "glass"))
        for name in ("LICENSE", "README.md", "requirements.txt", "pyproject.toml"):
            shutil.copy(ROOT / name, self.course / name)
        for name, text in (("course.toml", COURSE), ("book.csv", BOOK), ("sheet.csv", SHEET)):
            (self.course / name).write_text(text, encoding="utf-8")
        git(folder, "init", "--quiet", "--bare", "--initial-branch=main", "far.git")
        git(folder, "init", "--quiet", "--initial-branch=main", "package")
        git(self.package, "remote", "add", "origin", "../far.git")

    def teacher(self, *words: str) -> str:
        """What a command says in the course's folder."""
        self.monkeypatch.chdir(self.course)
        assert main([*words]) == 0, self.capsys.readouterr().err
        return self.capsys.readouterr().out

    def release(self, day: str, *more: str) -> str:
        said = self.teacher("release", "../package", "--on", day, *more)
        git(self.package, "add", "--all")
        git(self.package, "commit", "--quiet", "-m", day)
        git(self.package, "push", "--quiet", "--set-upstream", "origin", "main")
        return said

    def start(self, learner: str, *more: str) -> str:
        """What `start` says to a learner, in the clone of the course."""
        self.monkeypatch.setattr(start, "COURSE", self.folder / learner)
        assert main(["start", "--no-lab", "--folder", str(self.folder / learner / "my"), *more]) == 0
        return self.capsys.readouterr().out

    def grades(self, file: str, column: str) -> list[str]:
        text = (self.course / "results" / file).read_text("utf-8")
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        return [row[column] for row in rows if row.get("Student") != "    Points Possible"]


def answer(path: Path, source: str) -> None:
    """Write an answer where the exercise asks for it."""
    notebook, wanted = nbformat.read(path, as_version=4), f"def {ANSWERS[path.name]}("
    cell = next(each for each in notebook.cells if each.cell_type == "code" and wanted in each.source)
    cell.source = f"import torch\n{source}"
    nbformat.write(notebook, path)


@pytest.mark.proof
def test_a_term_of_three_weeks(tmp_path, monkeypatch, capsys):
    """learner01 works in my/, learner02 and 03 in the clone itself; learner04 clones, and never hands in."""
    without_settings(monkeypatch)
    term = Term(tmp_path, monkeypatch, capsys)
    said = term.release("2020-11-02")
    assert "it has chapter 0, as course.toml says" in said
    assert "to come: chapter 2 on 9 November 2020, chapter 3 on 16 November 2020" in said
    for learner in ("learner01", "learner02", "learner03", "learner04"):
        git(tmp_path, "clone", "--quiet", "far.git", learner)
    term.start("learner01")
    page = nbformat.read(tmp_path / "learner01/my/notebooks/02_attention.ipynb", as_version=4)
    assert "on 9 November 2020" in page.cells[0].source

    assert "it has chapters 0, 2, as" in term.release("2020-11-09", "--update")
    mine = {"learner01": tmp_path / "learner01/my/exercises"}
    mine |= {each: tmp_path / each / "exercises" for each in ("learner02", "learner03")}
    for learner, folder in mine.items():
        assert "Fetched " in term.start(learner, "--pull")
        answer(folder / "02_attention.ipynb", WRONG if learner == "learner03" else RIGHT)

    solution = term.course / "solutions/02_attention.ipynb"
    notebook = nbformat.read(solution, as_version=4)
    notebook.cells.append(nbformat.v4.new_markdown_cell("Asked in class.", id="asked-in-class"))
    nbformat.write(notebook, solution)
    term.release("2020-11-16", "--update")
    assert "The newer version is next to it, as 02_attention.new.ipynb" in term.start("learner01", "--pull")
    assert "your changes stay, and the new parts were added" in term.start("learner02", "--pull")
    term.start("learner03", "--pull")
    class_ = term.course / "class"
    for learner, folder in mine.items():
        cells = nbformat.read(folder / "02_attention.ipynb", as_version=4).cells
        assert any((WRONG if learner == "learner03" else RIGHT) in cell.source for cell in cells), learner
        assert (cells[-1].source == "Asked in class.") == (learner != "learner01")
        answer(folder / "03_masks.ipynb", MASK)
        (class_ / learner).mkdir(parents=True)
        for name in ANSWERS:
            shutil.copy(folder / name, class_ / learner / name)

    grade = ("grade", "class", "--out", "results", "--jobs", "2", "--exercises", *EXERCISES)
    assert "MISSING    learner04" in term.teacher(*grade)
    assert term.grades("canvas.csv", "Scaled dot-product attention (71)") == ["10", "10", "5", ""]
    assert term.grades("canvas.csv", "Causal masking (72)") == ["10", "10", "8", ""], "two days begun"
    marks = (term.course / "results/marks.jsonl").read_bytes()

    moodle = COURSE.replace('"canvas"\ngradebook = "book.csv"', '"moodle"\ngradebook = "sheet.csv"')
    (term.course / "course.toml").write_text(moodle + WORD, encoding="utf-8")
    assert "3 were graded before and stay as they are" in term.teacher(*grade, "--resume")
    assert term.grades("moodle.csv", "Grade") == ["100", "100", "75", ""], "3 of 4 points: the word counts"
    assert (term.course / "results/marks.jsonl").read_bytes() == marks
