"""The bench: its arithmetic is right, its peers compute what ours computes, and it refuses what means nothing. No test
says how fast anything is."""

import asyncio
import contextlib
import json
import math
import os
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from course_lib.__main__ import main
from course_lib.bench import (
    PARTS,
    attention,
    course,
    decoding,
    grading,
    imports,
    live,
    machine,
    memory,
    rounds,
    run,
    training,
)  # fmt: skip
from course_lib.bench.apart import apart
from course_lib.bench.peers import PlainLoop, same_weights
from course_lib.bench.report import Point, Report, Row, duration, readme, recorded, roofline
from course_lib.bench.rounds import Contest, Spread, in_turns, spread
from course_lib.config import TransformerConfig
from course_lib.counting import forward_flops
from course_lib.course.contents import CHAPTERS
from course_lib.sampling import generate
from tests import contestants

ROOT = Path(__file__).parent.parent
SMALL = TransformerConfig(vocab_size=37, d_model=16, n_heads=2, n_layers=2, max_seq_len=20, activation="gelu_tanh")


@pytest.fixture(scope="module")
def models():
    return same_weights(SMALL)


# --- peers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", ["nanoGPT-shaped", "nn.TransformerEncoder", "transformers"])
def test_a_peer_computes_the_same_logits_loss_and_gradients(models, peer):
    ids, targets = training.a_batch(SMALL, 2, 11)
    (logits, loss), (theirs, their_loss) = (models[name].train()(ids, targets) for name in ("ours", peer))
    torch.testing.assert_close(theirs, logits, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(their_loss, loss)
    squares = [
        sum((p.grad**2).sum() for p in models[name].parameters() if p.grad is not None)
        for name, value in (("ours", loss), (peer, their_loss))
        if not models[name].zero_grad() and not value.backward()
    ]
    torch.testing.assert_close(squares[1], squares[0], rtol=1e-4, atol=1e-6)


def test_peers_have_as_many_weights_as_ours(models):
    counts = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    assert len(set(counts.values())) == 1, counts


def test_updates_train_a_peer_as_they_train_ours(models):
    batch = training.a_batch(SMALL, 2, 11)
    for model in models.values():
        before = model.train()(*batch)[1].item()
        training.updates(model, batch, 3)()
        assert model(*batch)[1].item() < before
    after = [model(*batch)[1].item() for model in models.values()]
    assert max(after) - min(after) < 1e-3


def test_the_loop_without_a_cache_writes_what_generate_writes(models):
    ids = torch.tensor([[3, 1]])
    ours = models["ours"].eval()
    assert torch.equal(PlainLoop(ours)(ids, 9), generate(ours, ids, 9, temperature=0))


def test_a_draft_that_is_told_the_text_says_it(models):
    text = torch.tensor([[3, 1, 4, 1, 5]])
    draft = decoding.Told(SMALL, text)
    cache = draft.new_cache()
    assert draft(text[:, :2], cache=cache).argmax(-1).tolist() == [[1, 4]]
    assert draft(text[:, 2:3], cache=cache).argmax(-1).tolist() == [[1]]


def test_both_attentions_agree():
    ours, theirs = attention.pair(16, 4)
    x = torch.randn(2, 7, 16)
    mask = torch.ones(7, 7, dtype=torch.bool).triu(1)
    torch.testing.assert_close(ours(x, is_causal=True), theirs(x, x, x, attn_mask=mask, need_weights=False)[0])


def test_the_bare_weights_are_every_matrix_once():
    model = same_weights(SMALL)["ours"]
    d, V = SMALL.d_model, SMALL.vocab_size
    assert decoding.BareWeights(model).bytes == 4 * (SMALL.n_layers * 12 * d * d + V * d)


# --- arithmetic -------------------------------------------------------------------------------------------------------


def test_a_ratio_is_taken_within_each_round():
    contest = Contest({"ours": [1.0, 10.0, 2.0], "theirs": [2.0, 20.0, 2.0]})
    assert contest.times_as_fast("ours", "theirs") == Spread(2.0, 1.5, 2.0)
    assert contest.of("ours") == 2.0


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=9))
def test_quartiles_are_numpys(numbers):
    low, median, high = np.percentile(numbers, [25, 50, 75])
    assert spread(numbers) == pytest.approx((median, low, high))


def test_everybody_is_called_in_the_same_order_and_the_first_round_is_left_out(monkeypatch):
    called = []
    ticks = iter(range(1000))
    monkeypatch.setattr(rounds, "time", type("Clock", (), {"perf_counter": staticmethod(lambda: next(ticks))}))
    contest = in_turns({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, rounds=2)
    assert called == ["a", "b"] * 3
    assert contest.seconds == {"a": [1, 1], "b": [1, 1]}


def test_who_is_warmed_is_called_once_more_and_timed_once(monkeypatch):
    called = []
    ticks = iter(range(1000))
    monkeypatch.setattr(rounds, "time", type("Clock", (), {"perf_counter": staticmethod(lambda: next(ticks))}))
    contest = in_turns({"a": lambda: called.append(next(ticks)), "b": lambda: None}, rounds=2, warm=True)
    assert len(called) == 1 + 2 * 2
    assert contest.seconds == {"a": [2, 2], "b": [1, 1]}


def test_shares_of_the_matmul_rate_are_of_its_arithmetic():
    """Three updates of half a product's operations in 2 s, beside that product in 1 s: three quarters of its rate."""
    contest = Contest({name: [2.0] for name in ("ours", *training.PEERS)} | {"matmul": [1.0]})
    flops = machine.Matmul.flops / 2
    found = {row.beside: row for row in training.rows("x", contest, 3, flops, dict.fromkeys(training.PEERS))}
    assert found["the matmul rate"].ratio.median == pytest.approx(0.75)
    assert found["transformers"].ratio.median == 1.0
    assert found["transformers"].seconds == pytest.approx(2 / 3)
    assert training.training_flops(SMALL, 2, 8) == 6 * forward_flops(SMALL, 8)


def test_a_contestant_apart_runs_in_a_process_of_its_own_that_then_ends(tmp_path):
    files = {name: str(tmp_path / name) for name in ("a", "b")}
    with apart({name: (contestants.pid, file) for name, file in files.items()}) as started:
        in_turns(started, rounds=1)
    said = [Path(file).read_text(encoding="utf-8").split() for file in files.values()]
    ids = {int(number) for number, _ in said}
    assert len({os.getpid(), *ids}) == 3
    assert {threads for _, threads in said} == {str(torch.get_num_threads())}
    assert not any(map(psutil.pid_exists, ids))


def test_a_contestant_that_cannot_be_made_says_why():
    with pytest.raises(RuntimeError, match="ValueError: no weights"), apart({"a": (contestants.failing, "no weights")}):
        pass


# --- machine ----------------------------------------------------------------------------------------------------------


def test_what_others_take_is_what_is_busy_and_not_our_own(monkeypatch):
    clock = iter([100.0, 110.0, 110.0])
    monkeypatch.setattr(machine, "time", type("Clock", (), {"monotonic": staticmethod(lambda: next(clock))}))
    monkeypatch.setattr(machine.os, "cpu_count", lambda: 2)
    busy, own = iter([50.0, 62.0, 62.0]), iter([5.0, 13.0, 13.0])
    monkeypatch.setattr(machine, "_busy", lambda: next(busy))
    monkeypatch.setattr(machine, "_own", lambda: next(own))
    watch = machine.Watch()
    assert watch.others() == pytest.approx(4 / 20)  # 12 s of work in 10 s on two cores, of which 8 s were ours
    with pytest.raises(machine.TooBusy, match=r"20%.*--anyway"):
        machine.require_quiet(watch, "while measuring")


def test_a_busy_machine_is_refused_before_anything_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(machine.Watch, "others", lambda self: 0.5)
    monkeypatch.setattr(machine, "LOOK", 0.0)
    monkeypatch.setattr(run.importlib, "import_module", lambda name: pytest.fail("it measures"))
    assert main(["bench", "attention"]) == 2
    assert "50%" in capsys.readouterr().err


# --- what is shown ----------------------------------------------------------------------------------------------------

ROWS = [
    Row("train", "a size", "transformers", Spread(1.234, 1.2, 1.3), 0.0021, "per update", least=1.2),
    Row("train", "a size", "the matmul rate", Spread(0.66, 0.6, 0.7), 0.0021, "per update", least=0.75, note="so far"),
    Row("import", "check", "import torch", Spread(0.05, 0.04, 0.06), most=0.1, sign="s"),
    Row("course", "time", "2 … 8", Spread(1.0, 0.9, 1.1)),
]


def test_the_table_shows_every_row_with_its_goal():
    report = Report({"processor": "x", "cores": 2}, list(ROWS), others=0.03)
    text = report.table()
    assert "other programs took 3%" in text
    lines = {line.split()[0]: line for line in text.splitlines() if line.startswith("  ")}
    assert "1.23" in text
    assert "1.20–1.30" in text
    assert "≥ 1.2" in text
    assert "2.1 ms per update" in text
    assert "not reached" in text
    assert "* a size: so far" in text
    assert "50 ms" in lines["check"]
    assert "reached" not in lines["time"]  # no goal
    assert [row.reached for row in ROWS] == [True, False, True, None]


def test_the_file_holds_what_the_table_shows(tmp_path):
    report = Report({"cores": 2}, list(ROWS), [Point("p", 1.0, 2.0, 3.0)], {"flops": 1e9, "bytes": 1e9})
    report.write(tmp_path / "bench.json")
    read = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert read["rows"][0]["ratio"] == {"median": 1.234, "low": 1.2, "high": 1.3}
    assert [row["reached"] for row in read["rows"]] == [True, False, True, None]
    assert read["points"] == [{"name": "p", "flops": 1.0, "bytes": 2.0, "seconds": 3.0}]


def test_what_was_written_is_read_again(tmp_path):
    report = Report({"cores": 2}, list(ROWS), [Point("p", 1.0, 2.0, 3.0)], {"flops": 1e9, "bytes": 1e9}, 0.02)
    report.write(tmp_path / "bench.json")
    assert Report.read(tmp_path / "bench.json") == report


def test_the_readme_shows_the_recorded_figures():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme(text, recorded()) == text
    assert all(f"{row.ratio.median:.2f}" in text for row in recorded().rows if row.goal)
    with pytest.raises(ValueError, match="needs the lines"):
        readme("nothing", recorded())


@pytest.mark.parametrize(("seconds", "text"), [(2.0, "2 s"), (0.0123, "12.3 ms"), (4.5e-6, "4.5 µs"), (1.0, "1 s")])
def test_a_duration_is_said_in_the_unit_that_suits_it(seconds, text):
    assert duration(seconds) == text


def test_the_roofline_has_its_ridge_where_both_limits_meet():
    limits = {"flops": 100e9, "bytes": 20e9}
    figure = roofline([Point("writing", 1e9, 2e9, 0.2), Point("training", 1e12, 1e9, 20.0)], limits)
    roof, writing, trained = figure.axes[0].lines
    assert [tuple(point) for point in roof.get_xydata()][1] == pytest.approx((5.0, 100.0))
    assert writing.get_xydata()[0] == pytest.approx((0.5, 5.0))
    assert trained.get_xydata()[0] == pytest.approx((1000.0, 50.0))
    assert {text.get_text() for text in figure.axes[0].texts} >= {"writing", "training", "memory\nbandwidth,\n20 GB/s"}


# --- the command ------------------------------------------------------------------------------------------------------


def no_compiler(device):
    """Compiling takes a minute."""
    raise ValueError("there is no compiler")


@pytest.mark.proof
def test_a_small_run_of_the_whole_way(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(training, "SHAPES", {"a tiny size": (SMALL, 2, 8, 1)})
    monkeypatch.setattr(run, "READ", 1000)
    monkeypatch.setattr(training, "require_compiler", no_compiler)
    json_file, picture = tmp_path / "b.json", tmp_path / "roofline.png"
    command = ["bench", "train", "--rounds", "1", "--anyway", "--json", str(json_file), "--picture", str(picture)]
    assert main(command) == 0
    assert "a tiny size" in capsys.readouterr().out
    read = json.loads(json_file.read_text(encoding="utf-8"))
    assert {row["beside"] for row in read["rows"]} >= {"transformers", "the matmul rate"}
    assert all(math.isfinite(row["ratio"]["median"]) and row["ratio"]["median"] > 0 for row in read["rows"])
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.proof
def test_writing_is_measured_at_a_small_size(models, monkeypatch):
    monkeypatch.setitem(decoding.PRESETS, "gpt2", SMALL)
    monkeypatch.setattr(decoding, "TOKENS", 8)
    monkeypatch.setattr(decoding, "FEW", 4)
    monkeypatch.setattr(decoding, "READ", 9)
    monkeypatch.setattr(decoding, "PROMPT", torch.tensor([[3]]))
    found = list(decoding.measure(rounds=1))
    assert {row.beside for row in found if isinstance(row, Row)} >= {"transformers", "the bare weights", "one text"}
    assert "GPT-2 small, first token after 9" in {row.what for row in found if isinstance(row, Row)}
    assert {point.name for point in found if isinstance(point, Point)} >= {"writing, float32", "writing, int8"}


def test_moves_of_a_live_figure_are_timed_in_turns_with_a_ready_picture(monkeypatch):
    figures = live.live_figures()
    assert len(figures) > 20
    ours, nothing = asyncio.run(live.moves_of(figures["attention.soft_dictionary"], 2))
    assert len(ours) == len(nothing) == 2
    with pytest.raises(ValueError, match=r"moves must be .* at least 1, got 0"):
        asyncio.run(live.moves_of(figures["attention.soft_dictionary"], 0))
    monkeypatch.setattr(live, "live_figures", lambda: {"one": figures["attention.soft_dictionary"]})
    assert [row.what for row in live.measure(1)] == ["one", "a slider with a ready picture"]


def test_what_an_entry_adds_is_taken_within_each_round(monkeypatch):
    contest = Contest({"torch": [1.0, 2.0, 1.5], "ours": [1.25, 2.0, 2.5]})
    assert imports.added(contest, "ours", "torch") == Spread(0.25, 0.125, 0.625)
    monkeypatch.setattr(imports, "starter", lambda code: lambda: None)
    assert [row.what for row in imports.measure(1)] == list(imports.ENTRIES)


@pytest.mark.proof
def test_a_class_is_graded_anew_in_every_round_and_its_points_are_looked_at(tmp_path):
    grading.hand_in(tmp_path / "class", 1)
    grade = grading.grader(tmp_path / "class", tmp_path, 1)
    grade()
    path = tmp_path / "class" / "learner0" / grading.NOTEBOOK
    notebook = nbformat.read(path, as_version=4)
    notebook.cells = notebook.cells[:2]
    nbformat.write(notebook, path)
    with pytest.raises(RuntimeError, match="did not pass"):
        grade()


@pytest.mark.proof
def test_notebooks_are_run_as_they_are_and_left_so(monkeypatch, tmp_path):
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "notebooks" / CHAPTERS[0].notebook
    cells = [nbformat.v4.new_code_cell("open('here', 'a').write('.')")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    before = path.read_bytes()
    monkeypatch.setattr(course, "HOME", tmp_path)
    rows = list(course.measure(1))
    assert [row.what for row in rows] == [path.name, "all, 1 at a time", "all, 2 at a time", "two at a time"]
    assert (tmp_path / "notebooks" / "here").read_text() == ".."
    assert path.read_bytes() == before


def test_the_memory_of_a_kernel_is_the_most_that_its_notebook_held(tmp_path, monkeypatch):
    """The kernel is this very process."""
    space, path = {}, tmp_path / "a.ipynb"
    client = SimpleNamespace(
        setup_kernel=contextlib.nullcontext,
        km=SimpleNamespace(provisioner=SimpleNamespace(pid=os.getpid())),
        execute_cell=lambda cell, number: exec(cell.source, space),
    )
    monkeypatch.setattr(memory, "NotebookClient", lambda notebook, **options: client)
    most = {}
    for code in ("a = 1", "a = b'1' * 200_000_000"):
        cells = [nbformat.v4.new_code_cell(each) for each in (code, "del a", "1")]
        nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
        most[code], own = memory.kernel_bytes(path)
        assert 10e6 < own <= most[code]
    assert most["a = b'1' * 200_000_000"] - most["a = 1"] > 150e6, "though it was given back"


def test_bytes_are_shown_as_megabytes():
    row = Row("memory", "a server", "", Spread(93e6, 93e6, 1_250e6), sign="B")
    assert "a server          93 MB  93 MB–1,250 MB" in Report({}, [row]).table()


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["swim"], "choose from train"),
        (["train", "--rounds", "0"], "rounds"),
        (["train", "--json", "nowhere/at/all.json"], "there is no folder"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments, wrong, capsys):
    assert main(["bench", *arguments]) == 2
    assert wrong in capsys.readouterr().err


def test_every_part_has_a_module_that_measures():
    for part in PARTS:
        module = run.importlib.import_module(f"course_lib.bench.{run.MODULES.get(part, part)}")
        assert callable(module.measure), part
