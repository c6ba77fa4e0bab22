"""One run shared by several processes, over gloo: it ends where one process ends with batches as large as all of
theirs; killed, it goes on; alone or together, whole or in shards."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from course_lib.pretrained import load_pretrained
from course_lib.training import train
from course_lib.training_options import processes
from tests.shared_run import Uneven, make_model

ROOT = Path(__file__).parent.parent
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def start(folder: Path, count: int = 2, **settings) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *TORCHRUN, str(count), "tests/shared_run.py", str(folder), json.dumps(settings)],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def together(folder: Path, count: int = 2, **settings) -> list[dict]:
    """What each process of a shared run has seen and learnt."""
    ended = start(folder, count, **settings)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = [torch.load(folder / f"{rank}.pt") for rank in range(count)]
    for other in found[1:]:
        assert_same(other, found[0], rtol=0, atol=0)
    return found


def alone(**settings) -> dict:
    model = make_model(settings.pop("dropout", 0.0))
    history = train(model, Uneven(), warmup=2, peak=1e-2, max_norm=0.5, progress=False, **settings)
    return {"losses": history.losses, "norms": history.gradient_norms, "weights": model.state_dict()}


def assert_same(found: dict, expected: dict, **tolerance) -> None:
    tolerance = tolerance or CLOSE
    for name in ("losses", "norms"):
        torch.testing.assert_close(torch.tensor(found[name]), torch.tensor(expected[name]), **tolerance)
    for name, weight in expected["weights"].items():
        torch.testing.assert_close(found["weights"][name], weight, **tolerance, msg=lambda said, name=name: name + said)


@pytest.mark.proof
def test_two_processes_are_one_with_the_doubled_batch_and_their_checkpoint_is_anyones(tmp_path):
    checkpoint = tmp_path / "run.pt"
    both = together(tmp_path, steps=6, checkpoint=str(checkpoint), checkpoint_every=3)
    assert_same(both[0], alone(steps=6, accumulate=2))

    expected = alone(steps=9, accumulate=2)  # its rates differ: steps says how long the cosine is
    state = torch.load(checkpoint)
    assert state["torch"].shape[0] == 2, "each process's own random numbers"
    assert set(state["model"]) == set(expected["weights"]), "the names of the plain model"
    gone_on = alone(steps=9, accumulate=2, checkpoint=checkpoint)
    assert gone_on["losses"][:6] == both[0]["losses"]
    assert len(gone_on["losses"]) == 9


@pytest.mark.proof
def test_shards_end_where_one_process_does(tmp_path):
    options = {"checkpoint_activations": True, "accumulate": 3}
    expected = alone(steps=3, **options | {"accumulate": 6})
    assert_same(together(tmp_path, steps=3, shard=True, **options)[0], expected)


@pytest.mark.proof
def test_a_run_that_is_killed_goes_on_as_if_it_had_never_stopped(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    settings = {"steps": 5, "dropout": 0.3, "checkpoint_every": 2, "shard": True}
    expected = together(whole, **settings)[0]
    settings["checkpoint"] = str(killed / "run.pt")
    assert start(killed, **settings, kill_at=4).returncode != 0
    assert len(torch.load(killed / "run.pt")["history"]["losses"]) == 2
    assert_same(together(killed, **settings)[0], expected, rtol=0, atol=0)


@pytest.mark.proof
def test_a_run_goes_on_with_shards_or_without(tmp_path):
    """Begun without them, gone on with them, and ended without. What comes before the end is killed, since `steps`
    decides the rates."""
    settings = {"steps": 6, "checkpoint": str(tmp_path / "run.pt"), "checkpoint_every": 2}
    for shard, done in ((False, 2), (True, 4)):
        start(tmp_path, **settings, shard=shard, kill_at=done + 1)
        assert len(torch.load(tmp_path / "run.pt")["history"]["losses"]) == done
    assert_same(together(tmp_path, **settings)[0], alone(steps=6, accumulate=2))


@pytest.mark.proof
def test_shards_in_other_bits_are_one_process_with_them(tmp_path):
    """Without shards autocast is that of one process."""
    options = {"precision": "bf16", "steps": 4} if any_bf16() else {"steps": 4}
    expected = alone(**options, accumulate=2)
    assert_same(together(tmp_path, **options, shard=True)[0], expected, rtol=2e-2, atol=2e-2)


def any_bf16() -> bool:
    return any(able for name, able in torch.cpu.get_capabilities().items() if name.endswith("bf16"))


@pytest.mark.proof
def test_the_command_trains_in_two_processes_and_the_first_alone_reports(tmp_path):
    options = ["--steps", "2", "--batch-size", "2", "--stories", "50", "--threads", "1"]
    ended = subprocess.run(
        [sys.executable, *TORCHRUN, "2", "-m", "course_lib", "train", *options, "--out", str(tmp_path / "own")],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert ended.stdout.count("Training the Tinytown model for 2 steps on cpu, 1 thread in 2 processes") == 1
    assert ended.stdout.count("on held-out stories") == 1
    assert load_pretrained(tmp_path / "own")
    assert not (tmp_path / "own" / "training.pt").exists()


@pytest.mark.proof
def test_processes_that_draw_other_batches_are_told(tmp_path):
    ended = start(tmp_path, steps=3, own_seeds=True)
    assert ended.returncode != 0
    assert "the processes differ in their batches" in ended.stderr
    assert "Give each the same texts and the same seed" in ended.stderr


# -------------------------------------------------------------------------------------------------------- alone
def test_a_script_that_python_started_is_alone(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    assert processes.join_processes() == torch.device("cpu")
    assert (processes.rank(), processes.count()) == (0, 1)
    assert processes.gather(torch.arange(3)).tolist() == [[0, 1, 2]]


def test_more_processes_than_gpus_are_refused_with_the_number_that_fits(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "2")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=r"process 2 of this machine finds only 2 GPUs.*--nproc-per-node 2"):
        processes.join_processes()


def test_shards_need_somebody_to_share_with():
    with pytest.raises(ValueError, match=r"shard=True .* there is only one.*join_processes.*torchrun"):
        train(make_model(), Uneven(), 2, shard=True, progress=False)
