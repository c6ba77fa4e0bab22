"""What makes an update cheaper: each option against the same training without it, and what the machine cannot do."""

import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from course_lib.blocks import TransformerBlock
from course_lib.gpt import IGNORED
from course_lib.tinytown import Batches, Tinytown, WordTokenizer, encode_stories
from course_lib.training import train
from course_lib.training_options import gradients, memory
from tests.shared_run import Uneven, make_model

ROOT = Path(__file__).parent.parent
HAS_BF16 = any(able for name, able in torch.cpu.get_capabilities().items() if name.endswith("bf16"))
needs_bf16 = pytest.mark.skipif(not HAS_BF16, reason="this processor multiplies no bfloat16")


def assert_same_weights(found, expected, **tolerance):
    for (name, p), q in zip(found.named_parameters(), expected.parameters()):
        torch.testing.assert_close(p, q, **tolerance, msg=lambda said, name=name: f"{name}: {said}")


# --------------------------------------------------------------------------------------------------------- accumulation
class Joined:
    """n batches of another supply as one of n-fold size."""

    def __init__(self, supply, n):
        self.supply, self.n = supply, n

    def __iter__(self):
        return self

    def __next__(self):
        return tuple(torch.cat(parts) for parts in zip(*(next(self.supply) for _ in range(self.n))))


@pytest.mark.parametrize("n", [2, 3])
def test_accumulated_batches_are_one_batch_of_their_joint_size(n):
    """Some batches predict twice as many tokens as others: a mean of means would not be the mean."""
    counts = [gradients.predicted(batch) for batch in itertools.islice(Uneven(), 6)]
    assert len(set(counts)) > 2
    pieces, whole = make_model(), make_model()
    settings = {"steps": 8, "warmup": 2, "peak": 1e-2, "max_norm": 0.5, "progress": False}
    found = train(pieces, Uneven(), accumulate=n, **settings)
    expected = train(whole, Joined(Uneven(), n), **settings)
    torch.testing.assert_close(torch.tensor(found.losses), torch.tensor(expected.losses), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        torch.tensor(found.gradient_norms), torch.tensor(expected.gradient_norms), rtol=1e-5, atol=1e-5
    )
    assert_same_weights(pieces, whole, rtol=1e-5, atol=1e-5)


def test_batches_that_run_out_within_an_update_are_told():
    with pytest.raises(ValueError, match="batches ran out at step 1 of 5"):
        train(make_model(), itertools.islice(Uneven(), 3), 5, accumulate=2, progress=False)


@pytest.mark.parametrize("last", [None, torch.ones(4, 8), torch.ones(4, 8, dtype=torch.bool)])
def test_batches_without_targets_cannot_be_weighed(last):
    batches = itertools.repeat((torch.ones(4, 8, dtype=torch.long), last))
    with pytest.raises(ValueError, match="the last tensor of each must be its targets"):
        train(make_model(), batches, 2, accumulate=2, progress=False)


# ---------------------------------------------------------------------------------------------- recomputed activations
def test_recomputed_activations_change_nothing_dropout_included():
    plain, recomputed = make_model(dropout=0.3), make_model(dropout=0.3)
    torch.manual_seed(5)
    expected = train(plain, Uneven(), 6, progress=False)
    torch.manual_seed(5)
    found = train(recomputed, Uneven(), 6, checkpoint_activations=True, progress=False)
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)
    assert_same_weights(recomputed, plain, rtol=1e-5, atol=1e-5)


def kept(model, recomputed):
    """How many numbers a forward pass keeps for the backward pass."""
    held = []
    inputs, targets = next(Uneven())
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda each: held.append(each.numel()) or each, lambda each: each)
    with gradients.block_options(model, False, recomputed), hooks:
        model(inputs, targets)
    return sum(held)


def test_recomputing_keeps_less_for_the_backward_pass():
    assert kept(make_model(), True) < kept(make_model(), False) / 3


def test_a_model_that_is_evaluated_between_updates_takes_its_plain_steps():
    """So it may write with a cache, whose shapes change, also where training steps are compiled."""
    assert kept(make_model().eval(), True) == kept(make_model().eval(), False)


def test_blocks_are_as_before_when_training_ends_even_by_an_error():
    model = make_model()
    with pytest.raises(ValueError, match="ran out"):
        train(model, itertools.islice(Uneven(), 2), 5, checkpoint_activations=True, progress=False)
    assert not any("forward" in vars(module) for module in model.modules())
    assert all(type(block) is TransformerBlock for block in model.blocks)


# ------------------------------------------------------------------------------------------------------------- resuming
OPTIONS = [
    {"accumulate": 2}, {"checkpoint_activations": True},
    pytest.param({"precision": "bf16"}, marks=needs_bf16),
    pytest.param({"precision": "bf16", "accumulate": 3, "checkpoint_activations": True}, marks=needs_bf16),
]  # fmt: skip


@pytest.mark.parametrize("options", OPTIONS)
def test_with_every_option_a_run_goes_on_as_if_it_had_never_stopped(tmp_path, options):
    settings = {"steps": 9, "warmup": 2, "checkpoint_every": 4, "progress": False} | options

    class Interrupted(Exception):
        pass

    def stop(step, _):
        if step == 6:
            raise Interrupted

    whole = make_model(dropout=0.3)
    expected = train(whole, Uneven(), checkpoint=tmp_path / "whole.pt", **settings)
    with pytest.raises(Interrupted):
        train(make_model(dropout=0.3), Uneven(), checkpoint=tmp_path / "half.pt", on_step=stop, **settings)
    resumed = make_model(dropout=0.3, seed=99)
    assert train(resumed, Uneven(seed=98), checkpoint=tmp_path / "half.pt", **settings) == expected
    assert_same_weights(resumed, whole, rtol=0, atol=0)


# ------------------------------------------------------------------------------------------------------------ precision
def story_run(precision, steps, **settings):
    tokenizer = WordTokenizer()
    ids = encode_stories(Tinytown(0).sample(300), tokenizer) % 20
    batches = Batches(ids, 8, 16, torch.Generator().manual_seed(0))
    return train(make_model(), batches, steps, peak=1e-2, warmup=10, precision=precision, progress=False, **settings)


@pytest.mark.proof
@needs_bf16
def test_sixteen_bits_train_as_well_within_a_percent():
    model_bits, exact = story_run("bf16", 150), story_run("float32", 150)
    assert model_bits.losses != exact.losses, "it was computed in other bits"
    ends = [statistics.fmean(history.losses[-20:]) for history in (model_bits, exact)]
    assert ends[0] == pytest.approx(ends[1], rel=0.01)
    assert ends[1] < exact.losses[0] - 0.2, "both have learnt"


@needs_bf16
def test_in_sixteen_bits_weights_moments_and_loss_stay_float32(tmp_path):
    model, seen = make_model(), []
    model.blocks[0].attention.q_proj.register_forward_hook(lambda module, given, y: seen.append(y.dtype))
    train(model, Uneven(), 2, precision="bf16", checkpoint=tmp_path / "run.pt", progress=False)
    assert set(seen) == {torch.bfloat16}
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    state = torch.load(tmp_path / "run.pt")
    assert {n.dtype for numbers in state["optimizer"]["state"].values() for n in numbers.values()} == {torch.float32}


def test_a_processor_without_bfloat16_is_told_instead_of_imitating_it(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "avx512_bf16": False}, raising=False)
    with pytest.raises(ValueError, match=r'precision="bf16" needs a device.*avx512_bf16.*precision="float32"'):
        train(make_model(), Uneven(), 2, precision="bf16", progress=False)


@pytest.mark.usefixtures("as_a_learner")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": "fp8"}, "precision='fp8' is not known: choose one of 'float32', 'bf16'"),
        ({"accumulate": 0}, "accumulate must be a whole number of at least 1, got 0"),
        ({"accumulate": 1.5}, r"accumulate must be a whole number of at least 1, got 1\.5"),
    ],
)
def test_an_option_that_makes_no_sense_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        train(make_model(), Uneven(), 2, progress=False, **options)


@pytest.mark.parametrize("option", ["compile", "checkpoint_activations"])
def test_a_model_without_blocks_is_told_that_nothing_would_happen(option):
    with pytest.raises(ValueError, match="need TransformerBlocks, and this model has none"):
        train(torch.nn.Linear(2, 2), Uneven(), 2, progress=False, **{option: True})


# -------------------------------------------------------------------------------------------------------------- compile
COMPILED = """
import sys, json, torch
torch.set_num_threads(1)
from course_lib.training import train
from tests.shared_run import Uneven, make_model
settings = json.loads(sys.argv[2])
model = make_model(n_layers=1)
history = train(model, Uneven(), 6, warmup=2, progress=False, checkpoint=sys.argv[1], **settings)
assert not any("forward" in vars(module) for module in model.modules())
print(json.dumps(history.losses))
"""


def compiled(tmp_path, environment=None, script=COMPILED, **settings):
    """In a process of its own: the checks of shapes that the tests put into every function cannot be compiled."""
    own = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "run.pt"), json.dumps(settings)],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, **own, **(environment or {})},
    )  # fmt: skip


@pytest.mark.proof
@pytest.mark.parametrize("options", [{"checkpoint_activations": True, "accumulate": 2}])  # the next test has none
def test_compiled_blocks_learn_the_same_and_their_checkpoint_is_that_of_a_plain_model(tmp_path, options):
    ended = compiled(tmp_path, compile=True, **options)
    assert ended.returncode == 0, ended.stderr[-3000:]
    plain = make_model(n_layers=1)
    expected = train(plain, Uneven(), 6, warmup=2, progress=False, **options)
    assert json.loads(ended.stdout) == pytest.approx(expected.losses, rel=1e-5)
    state = torch.load(tmp_path / "run.pt")["model"]
    for name, weight in plain.state_dict().items():
        torch.testing.assert_close(state[name], weight, rtol=1e-4, atol=1e-5)
    assert len(train(make_model(n_layers=1), Uneven(), 8, checkpoint=tmp_path / "run.pt", progress=False)) == 8


RESUMED = """
import sys, torch
torch.set_num_threads(1)
from course_lib.training import train
from tests.shared_run import Uneven, make_model
settings = {"steps": 6, "compile": True, "checkpoint_every": 2, "progress": False}
whole, half = make_model(dropout=0.3, n_layers=1), make_model(dropout=0.3, n_layers=1)
torch.manual_seed(1)
expected = train(whole, Uneven(), **settings)
def stop(step, model):
    if step == 5: raise KeyboardInterrupt
torch.manual_seed(1)
try: train(half, Uneven(), checkpoint=sys.argv[1], on_step=stop, **settings)
except KeyboardInterrupt: torch.manual_seed(2)
resumed = make_model(dropout=0.3, seed=9, n_layers=1)
assert train(resumed, Uneven(seed=9), checkpoint=sys.argv[1], **settings) == expected
assert all(torch.equal(p, q) for p, q in zip(whole.parameters(), resumed.parameters()))
"""


@pytest.mark.proof
def test_a_compiled_run_goes_on_as_if_it_had_never_stopped_dropout_included(tmp_path):
    ended = compiled(tmp_path, script=RESUMED)
    assert ended.returncode == 0, ended.stderr[-3000:]


@pytest.mark.proof
def test_without_a_compiler_nothing_falls_back_unseen(tmp_path):
    ended = compiled(tmp_path, {"CXX": "no-such-compiler"}, compile=True)
    assert ended.returncode != 0
    assert "ValueError: compile=True cannot compile for cpu" in ended.stderr
    assert "CXX=no-such-compiler" in ended.stderr
    assert not (tmp_path / "run.pt").exists()


def test_a_target_that_is_not_predicted_is_not_counted():
    targets = torch.tensor([[1, IGNORED, 3], [IGNORED, IGNORED, 0]])
    assert gradients.predicted((targets.abs(), targets)) == 3


# --------------------------------------------------------------------------------------------------------- kept memory
HELD = """
import psutil
{before}
held = lambda: psutil.Process().memory_info().rss
before = held()
large = [b"x" * (1 << 24) for _ in range(4)]  # Python takes them from the C library, as PyTorch does
del large
print((held() - before) >> 20)
"""
KEEPING = "from course_lib.training_options.memory import keep_freed_memory; keep_freed_memory()"


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told to keep freed memory")
@pytest.mark.parametrize(
    ("before", "setting", "environment", "kept"),
    [
        ("", None, False, False),
        (KEEPING, None, False, True),
        (KEEPING, "0", False, False),
        ("", None, True, True),
        ("", "0", True, False),
    ],
)
def test_a_process_that_is_told_so_keeps_the_memory_that_it_frees(monkeypatch, before, setting, environment, kept):
    monkeypatch.delenv(memory.SETTING, raising=False)
    if setting is not None:
        monkeypatch.setenv(memory.SETTING, setting)
    started_with = os.environ | (memory.keeping_freed_memory() if environment else {})
    script = [sys.executable, "-c", HELD.format(before=before)]
    done = subprocess.run(script, env=started_with, cwd=ROOT, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 50 if kept else int(done.stdout) < 10  # of 64 MiB


def test_training_keeps_freed_memory(monkeypatch):
    told = []
    monkeypatch.setattr("course_lib.training.keep_freed_memory", lambda: told.append(True))
    train(make_model(), Uneven(), steps=1, progress=False)
    assert told
