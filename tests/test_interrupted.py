"""What a command says when it is interrupted: it promises what it kept, and nothing else."""

import importlib
from dataclasses import replace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from course_lib import __main__
from course_lib.__main__ import main
from course_lib.claims import Measurement, in_order, recorded, registry
from course_lib.cli import start
from course_lib.course import handout
from course_lib.ladder import rungs

NOTHING = "Interrupted. This run saved nothing."
NEEDED = {  # the arguments without which a command does not begin
    "release": ["a"],
    "autograder": ["a.zip", "--chapters", "3"],
    "workflow": ["a.yml", "--chapters", "3", "--course", "OWNER/NAME@REF"],
    "grade": ["a"],
    "slides": ["2"],
    "room": ["attention"],
    "new": ["exercise", "a/heads/count"],
}


def interrupt(*_, **__):
    raise KeyboardInterrupt


def then_interrupt(function, times=1):
    """The function, which is interrupted when it is called once more than `times`."""
    calls = iter(range(times))

    def called(*arguments, **keywords):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return function(*arguments, **keywords)

    return called


def said(capsys):
    return capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize("command", __main__.COMMANDS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_a_command_that_has_finished_nothing_says_so(command, monkeypatch, capsys):
    name = command.__name__.rpartition(".")[2]
    monkeypatch.setattr(getattr(command, "command", command), "run", interrupt)  # of grade it is in the classroom
    assert main([name, *NEEDED.get(name, [])]) == 130
    assert said(capsys) == NOTHING


def decide() -> str:
    """depends: always"""
    return "depends"


@pytest.fixture
def three_claims(monkeypatch, tmp_path):
    """Three claims of the course, the third of which is interrupted; a record of the tests' own."""
    ids = [each.id for each in in_order()[:3]]
    for number, id in enumerate(ids):
        found = Measurement(f"{number} of a thing", (float(number),), {}, "it is only a test")
        run = interrupt if number == 2 else lambda found=found: found
        monkeypatch.setitem(registry._REGISTERED, id, replace(registry._REGISTERED[id], run=run, decide=decide))
    monkeypatch.setattr("course_lib.claims.findings.CHAPTERS_FOLDER", tmp_path)
    (tmp_path / ids[0].partition(".")[0]).mkdir()
    monkeypatch.setattr("course_lib.chapters.claims.widgets.picture", lambda: "a picture")
    return ids


def test_claims_prints_each_finding_as_it_comes(three_claims, capsys):
    assert main(["claims", *three_claims]) == 130
    seen = capsys.readouterr()
    assert [f"depends: {number} of a thing" in seen.out for number in range(3)] == [True, True, False]
    assert "Interrupted. This run measured 2 of 3 claims and printed their findings; it recorded nothing." in seen.err
    assert not recorded()


def test_claims_records_what_was_measured_before_it_was_interrupted(three_claims, capsys):
    assert main(["claims", "--record", *three_claims]) == 130
    assert said(capsys) == "Interrupted. This run measured 2 of 3 claims and recorded them."
    assert [*recorded()] == three_claims[:2]


def test_claims_as_json_keeps_nothing_that_nobody_sees(three_claims, capsys):
    assert main(["claims", "--json", *three_claims]) == 130
    seen = capsys.readouterr()
    assert seen.out == ""
    assert NOTHING in seen.err


@pytest.mark.parametrize("record", [False, True])
def test_ladder_keeps_the_rungs_that_it_recorded(record, monkeypatch, tmp_path, capsys):
    height = rungs.Height((1.0,), 0.6)
    path = tmp_path / "ladder.json"
    monkeypatch.setattr(rungs, "recorded", dict)
    monkeypatch.setattr(rungs, "train_rung", then_interrupt(lambda *_, **__: (None, height), times=3))
    monkeypatch.setattr(rungs, "write_record", lambda found: path.write_text(" ".join(found)))
    monkeypatch.setattr(importlib.import_module("course_lib.ladder.climb"), "draw_record", lambda: "a picture")
    assert main(["ladder", "masks", "heads", *(["--record"] if record else [])]) == 130
    assert said(capsys) == f"Interrupted. This run trained 1 of 2 rungs and recorded {'them' if record else 'nothing'}."
    assert (path.read_text() if path.exists() else "") == ("masks" if record else "")


def test_refresh_keeps_the_notebooks_that_were_run_to_their_end(monkeypatch, tmp_path, capsys):
    from course_lib.grading.page import run_notebooks as notebook

    for folder in ("notebooks", "solutions"):
        (tmp_path / folder).mkdir()
    for name in "ab":
        nbformat.write(new_notebook(cells=[new_code_cell("1 + 1")]), tmp_path / "notebooks" / f"{name}.ipynb")
    monkeypatch.chdir(tmp_path)
    before = (tmp_path / "notebooks/b.ipynb").read_bytes()
    monkeypatch.setattr(notebook, "refresh", then_interrupt(notebook.refresh))
    assert main(["refresh", "notebooks/a.ipynb", "notebooks/b.ipynb"]) == 130
    assert said(capsys).startswith("Interrupted. This run refreshed 1 of 2 notebooks;")
    assert nbformat.read(tmp_path / "notebooks/a.ipynb", as_version=4).cells[0].outputs
    assert (tmp_path / "notebooks/b.ipynb").read_bytes() == before


@pytest.mark.parametrize("checkpoint", [False, True])
def test_train_promises_a_checkpoint_only_where_there_is_one(checkpoint, monkeypatch, tmp_path, capsys):
    def train(folder, *_):
        folder.mkdir()
        if checkpoint:
            (folder / "training.pt").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr("course_lib.claims.train_tinytown", train)
    assert main(["train", "--out", str(tmp_path / "run")]) == 130
    goes_on = f"Interrupted. The same command continues from the last checkpoint, {tmp_path / 'run' / 'training.pt'}."
    assert said(capsys) == (goes_on if checkpoint else NOTHING)


def test_weights_keeps_what_was_fetched_whole(monkeypatch, capsys):
    monkeypatch.setattr("course_lib.hub.fetch.fetch", then_interrupt(lambda *_: "here"))
    assert main(["weights", "tinyshakespeare", "minilm"]) == 130
    assert said(capsys) == "Interrupted. tinyshakespeare is here; the same command continues with the rest."


def test_start_goes_on_where_it_was_interrupted(monkeypatch, tmp_path, capsys):
    with monkeypatch.context() as broken:
        broken.setattr(handout, "hand", then_interrupt(handout.hand, times=3))
        assert main(["start", "--no-lab", "--folder", str(tmp_path / "my")]) == 130
    assert said(capsys) == "Interrupted. The files that were copied are kept; the same command continues with the rest."
    for folder in ("my", "whole"):
        assert main(["start", "--no-lab", "--folder", str(tmp_path / folder)]) == 0
    names = [sorted(path.name for path in (tmp_path / folder).rglob("*.ipynb")) for folder in ("my", "whole")]
    assert names[0] == names[1] != []


def test_release_goes_on_where_it_was_interrupted(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(start.COURSE)
    folder = tmp_path / "package"
    with monkeypatch.context() as broken:
        broken.setattr(handout, "hand", then_interrupt(handout.hand, times=3))
        assert main(["release", str(folder), "--chapters", "0"]) == 130
    assert (
        said(capsys) == "Interrupted. The files that were written are kept; the same command with --update continues."
    )
    assert main(["release", str(folder), "--chapters", "0", "--update"]) == 0
    assert (folder / "notebooks/00_start_here.ipynb").exists()
