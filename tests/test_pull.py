"""A teacher's package as a git repository, a learner's clone of it: what is released arrives, what is written stays."""

import json
import shutil
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

from course_lib.cli import start
from course_lib.course.handout import EARLIER, hand_out, hand_package
from course_lib.course.pull import fetch_newer
from tests.with_git import git, without_settings

ONE, TWO, LIBRARY = "exercises/01_embeddings.ipynb", "notebooks/02_attention.ipynb", "course_lib/attention.py"


def notebook(path: Path, *cells: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = [new_code_cell(text, id=text.split()[0]) for text in cells]
    path.write_text(nbformat.writes(new_notebook(cells=made)) + "\n", encoding="utf-8")


def texts(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells]


def change(path: Path, place: int, text: str) -> None:
    """What JupyterLab does when somebody writes into a cell, runs it and saves."""
    content = nbformat.read(path, as_version=4)
    content.cells[place].source = text
    content.cells[place].outputs, content.cells[place].execution_count = [new_output("stream", text="4\n")], 1
    nbformat.write(content, path)


def save(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


class School:
    """A teacher's source, the package made of it, the repository that it is pushed to, and a learner's clone."""

    def __init__(self, folder: Path):
        self.source, self.package, self.clone = (folder / name for name in ("source", "package", "clone"))
        notebook(self.source / ONE, "first = ...", "middle", "last = ...")
        notebook(self.source / TWO, "placeholder")
        save(self.source / LIBRARY, "one\ntwo\nthree\n")
        save(self.source / "README.md", "read me\n")
        save(self.source / "texts/größe.md", "groß\n")
        save(self.source / "assets/figure.bin", "\0figure")
        save(self.source / ".gitignore", "my/\n.earlier/\n*.lock\n")
        self.package.mkdir()
        git(self.package, "init", "--quiet", "--initial-branch=main")
        git(folder, "init", "--quiet", "--bare", "--initial-branch=main", "far.git")
        git(self.package, "remote", "add", "origin", "../far.git")
        self.release()
        git(folder, "clone", "--quiet", "far.git", "clone")

    def release(self) -> list[str]:
        """Bring the package up to date and push it; returns what was left beside somebody's work."""
        handed = hand_package(self.source, self.package)
        git(self.package, "add", "--all")
        git(self.package, "commit", "--quiet", "-m", "A week")
        git(self.package, "push", "--quiet", "--set-upstream", "origin", "main")
        return [each.name for each in handed if each.done == "beside"]


@pytest.fixture
def school(tmp_path, monkeypatch):
    without_settings(monkeypatch)
    return School(tmp_path)


def pull(school: School) -> dict[str, str]:
    return {each.name: each.done for each in fetch_newer(school.clone)}


def test_new_chapters_and_cells_arrive_and_answers_in_the_clone_survive(school):
    """The learner wrote into the clone itself and committed some of it, as nobody told them not to."""
    change(school.clone / ONE, 0, "first = 'my answer'")
    git(school.clone, "add", "--all")
    git(school.clone, "commit", "--quiet", "-m", "my answer")
    save(school.clone / "notes.txt", "mine")
    notebook(school.source / ONE, "first = ...", "middle", "last = ...", "new_question = ...")
    notebook(school.source / TWO, "the chapter")
    save(school.source / "notebooks/03_masks.ipynb", "{}")
    school.release()
    assert pull(school) == {
        ONE: "merged",
        TWO: "renewed",
        "notebooks/03_masks.ipynb": "renewed",
        ".course.json": "renewed",
    }
    assert texts(school.clone / ONE) == ["first = 'my answer'", "middle", "last = ...", "new_question = ..."]
    assert texts(school.clone / TWO) == ["the chapter"]
    assert (school.clone / "notes.txt").read_text() == "mine"
    assert git(school.clone, "status", "--porcelain") == "?? notes.txt\n"
    assert pull(school) == {}, "nothing is newer"


def test_where_both_changed_a_cell_the_learners_stands_and_the_newer_version_comes_beside_it(school):
    change(school.clone / ONE, 0, "first = 'my answer'")
    save(school.clone / LIBRARY, "one\ntwo, and a print\nthree\n")
    for week in ("a", "b"):
        notebook(school.source / ONE, f"first = {week}", "middle", "last = ...")
        save(school.source / LIBRARY, f"one\ntwo {week}\nthree\n")
        school.release()
        done = pull(school)
        assert (done[ONE], done[LIBRARY]) == ("beside", "beside")
        assert texts(school.clone / ONE) == ["first = 'my answer'", "middle", "last = ..."]
        assert texts(school.clone / "exercises/01_embeddings.new.ipynb")[0] == f"first = {week}"
        assert (school.clone / LIBRARY).read_text() == "one\ntwo, and a print\nthree\n"
    assert sorted(path.name for path in (school.clone / "exercises").iterdir()) == [
        "01_embeddings.ipynb", "01_embeddings.new.ipynb",
    ]  # fmt: skip
    assert "<<<<<<<" not in "".join(path.read_text() for path in school.clone.rglob("*.ipynb"))


@pytest.mark.proof
def test_what_was_only_run_gives_way_to_the_newer_version_and_its_outputs_are_kept_aside(school):
    change(school.clone / TWO, 0, "placeholder")
    notebook(school.source / TWO, "the chapter")
    school.release()
    assert pull(school)[TWO] == "renewed"
    assert texts(school.clone / TWO) == ["the chapter"]
    assert "4\\n" in (school.clone / EARLIER / TWO).read_text()


@pytest.mark.proof
def test_a_file_that_the_learner_has_already_under_that_name_stays(school):
    notebook(school.clone / "notebooks/03_masks.ipynb", "my own")
    notebook(school.source / "notebooks/03_masks.ipynb", "the chapter")
    school.release()
    assert pull(school)["notebooks/03_masks.ipynb"] == "beside"
    assert texts(school.clone / "notebooks/03_masks.ipynb") == ["my own"]
    assert texts(school.clone / "notebooks/03_masks.new.ipynb") == ["the chapter"]


@pytest.mark.proof
def test_what_the_learner_deleted_comes_again_and_what_the_teacher_took_away_goes_unless_it_was_edited(school):
    (school.clone / ONE).unlink()
    change(school.clone / TWO, 0, "mine")
    (school.source / TWO).unlink()
    (school.source / LIBRARY).unlink()
    notebook(school.source / ONE, "anew")
    school.release()
    assert not (school.package / TWO).exists()
    assert pull(school)[TWO] == "kept"
    assert texts(school.clone / ONE) == ["anew"]
    assert texts(school.clone / TWO) == ["mine"]
    assert not (school.clone / LIBRARY).exists()


@pytest.mark.proof
def test_plain_git_pull_does_for_whoever_works_in_a_folder_of_their_own(school):
    hand_out(school.clone, school.clone / "my")
    change(school.clone / "my" / ONE, 0, "first = 'my answer'")
    notebook(school.source / ONE, "first = 1", "middle", "last = ...")
    notebook(school.source / TWO, "the chapter")
    school.release()
    git(school.clone, "pull", "--quiet", "--ff-only")
    done = {each.name: each.done for each in hand_out(school.clone, school.clone / "my")}
    assert done == {ONE: "beside", TWO: "renewed"}
    assert texts(school.clone / "my" / ONE)[0] == "first = 'my answer'"


@pytest.mark.proof
def test_a_package_that_somebody_worked_in_is_updated_around_their_work(school):
    change(school.package / ONE, 0, "first = 'tried out'")
    notebook(school.source / ONE, "first = 1", "middle", "last = ...")
    save(school.source / LIBRARY, "four\n")
    assert school.release() == [ONE]
    assert texts(school.package / ONE)[0] == "first = 'tried out'"
    assert (school.package / LIBRARY).read_text() == "four\n"
    assert not (school.package / EARLIER / LIBRARY).exists()


def test_without_the_other_repository_the_day_goes_on_and_without_a_clone_it_is_said(school, monkeypatch, tmp_path):
    monkeypatch.setattr(start, "COURSE", school.clone)
    assert start.pulled() == ["Nothing newer has been released."]
    (tmp_path / "far.git").rename(tmp_path / "gone.git")
    [said] = start.pulled()
    assert said.startswith("Nothing could be fetched (")
    assert said.endswith("continuing with the files that are here.")
    with pytest.raises(ValueError, match="was not cloned with git"):
        fetch_newer(school.source)
    git(school.clone, "remote", "remove", "origin")
    with pytest.raises(ValueError, match="follows no other repository"):
        fetch_newer(school.clone)


@pytest.mark.proof
def test_a_repository_that_was_begun_anew_is_refused_if_git_kept_no_log_and_nothing_is_lost(school):
    """Otherwise the log says what was fetched last: `tests/test_histories.py`."""
    git(school.clone, "config", "core.logAllRefUpdates", "false")
    change(school.clone / ONE, 0, "first = 'my answer'")
    shutil.rmtree(school.package / ".git")
    git(school.package, "init", "--quiet", "--initial-branch=main")
    git(school.package, "remote", "add", "origin", "../far.git")
    git(school.package, "add", "--all")
    git(school.package, "commit", "--quiet", "-m", "anew")
    git(school.package, "push", "--quiet", "--force", "--set-upstream", "origin", "main")
    before = (school.clone / ONE).read_bytes()
    with pytest.raises(ValueError, match="no commit in common"):
        fetch_newer(school.clone)
    assert (school.clone / ONE).read_bytes() == before
    assert json.loads(before)["cells"][0]["source"] == ["first = 'my answer'"]
