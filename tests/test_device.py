"""The device of a notebook: what is made there, where random numbers come from, and what a name may be."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from course_lib.device import chosen, computes_on, find_device, on, use_device
from course_lib.grading import grade
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Batches
from tests import crossings

DRAWS = {
    "rand": lambda: torch.rand(5),
    "randn, with a generator": lambda: torch.randn(2, 3, generator=torch.Generator().manual_seed(1)),
    "randn, to be learned": lambda: torch.randn(3, requires_grad=True).detach(),
    "randint": lambda: torch.randint(100, (7,)),
    "randperm": lambda: torch.randperm(9),
    "like another": lambda: torch.randn_like(torch.zeros(4)),
    "in place": lambda: torch.zeros(6).normal_(1.0, 2.0),
    "a layer": lambda: nn.Linear(4, 3).weight.detach(),
    "multinomial": lambda: torch.multinomial(torch.tensor([0.1, 0.2, 0.7]), 5, replacement=True),
    "bernoulli": lambda: torch.bernoulli(torch.full((9,), 0.5)),
    "dropout": lambda: F.dropout(torch.ones(3, 4), 0.3),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_random_numbers_are_made_on_the_device_and_are_those_of_the_cpu(device, draw):
    torch.manual_seed(0)
    expected = draw()
    torch.manual_seed(0)
    with on(torch.device(device)):
        drawn = draw()
    assert drawn.device.type == device
    assert torch.equal(drawn.cpu(), expected)


def test_a_model_is_loaded_to_the_device_and_predicts_what_it_does_on_the_cpu(device):
    ids = torch.tensor([[3, 14, 15, 9, 2]])
    model, _ = load_pretrained("tinytown")
    with on(torch.device(device)), torch.no_grad():
        other, _ = load_pretrained("tinytown")
        logits = other(ids.to(device))
    assert logits.device.type == device
    torch.testing.assert_close(logits.cpu(), model(ids).detach(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("start_id", [None, 7])
def test_batches_are_on_the_device_of_their_ids_and_those_of_the_cpu(device, start_id):
    ids = torch.arange(200) % 10
    expected = next(Batches(ids, 4, 5, torch.Generator().manual_seed(0), start_id))
    for default in ("cpu", device):
        with on(torch.device(default)):
            drawn = next(Batches(ids.to(device), 4, 5, torch.Generator().manual_seed(0), start_id))
        assert {part.device.type for part in drawn} == {device}
        assert all(torch.equal(part.cpu(), own) for part, own in zip(drawn, expected, strict=True))


def test_a_crossing_is_counted_for_the_line_of_the_course_that_asks_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv(crossings.FILE, str(tmp_path / "02_attention"))
    for file, ways in {"course_lib/gpt.py": ["out", "out", "in"], "course_lib/checks.py": ["out"]}.items():
        for way in ways:
            exec(compile(f"\n\ncount({way!r})", f"/anywhere/{file}", "exec"), {"count": crossings.count})
    head, line = crossings.table(tmp_path)
    assert head.split()[-6:] == ["in", "out", "most", "of", "them", "at"]
    assert line.split() == ["02_attention", "1", "2", "gpt.py:3", "3"]


def test_weights_that_are_tied_stay_so_on_the_way_to_the_device(device):
    both = nn.ModuleDict({"one": nn.Linear(3, 3), "other": nn.Linear(3, 3)})
    both["other"].weight = both["one"].weight
    both.to(device)
    assert both["other"].weight is both["one"].weight
    assert both["one"].bias is not both["other"].bias


def test_tensors_of_two_devices_do_not_mix(device):
    here, there = torch.ones(3), torch.ones(3, device=device)
    if device == "cpu":
        assert torch.equal(here, there)
    else:
        with pytest.raises(RuntimeError, match=r"on the same device|on two devices|be on"):
            here + there


def test_what_was_made_the_default_ends_with_the_block(device):
    before = torch.get_default_device()
    with on(torch.device(device)):
        assert torch.zeros(2).device.type == device
    assert torch.get_default_device() == before


@pytest.mark.parametrize("name", ["cuda:99", "nowhere", "", "meta"])
def test_a_device_that_is_not_there_is_refused_and_those_that_are_there_named(name):
    with pytest.raises(ValueError, match=r"this machine has cpu.*auto for the fastest"):
        find_device(name)


def test_of_several_devices_those_that_are_there_have_numbers(device, monkeypatch):
    assert find_device(f"{device}:0") == torch.device(device, 0)
    with pytest.raises(ValueError, match=f"no device '{device}:99': this machine has cpu"):
        find_device(f"{device}:99")
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    assert find_device("auto") == torch.device("cuda")
    assert find_device("cuda:1") == torch.device("cuda", 1)
    with pytest.raises(ValueError, match=r"no device 'cuda:2': this machine has cpu and cuda:0 to cuda:1\."):
        find_device("cuda:2")


def test_beside_times_the_device_is_named_and_the_threads_of_the_cpu(device):
    use_device(device)
    try:
        said = computes_on()
        torch.set_num_threads(2)
        assert {said, computes_on()} == ({"cpu, 1 thread", "cpu, 2 threads"} if device == "cpu" else {device})
    finally:
        torch.set_num_threads(1)
        use_device("cpu")


def test_the_environment_decides_and_without_it_the_cpu(monkeypatch, device):
    monkeypatch.setenv("COURSE_DEVICE", device)
    try:
        assert use_device().type == chosen().type == device
        assert torch.zeros(1).device.type == device
    finally:
        monkeypatch.delenv("COURSE_DEVICE")
        assert use_device() == torch.device("cpu")
    assert torch.zeros(1).device.type == "cpu"


def softmax_then(change):
    def softmax(x, dim):
        exp = (x - x.amax(dim, keepdim=True)).exp()
        return change(exp / exp.sum(dim, keepdim=True))

    return softmax


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda y: y, None),
        (lambda y: y + torch.zeros(y.shape), None),  # made on the notebook's device
        (lambda y: y.cpu(), "device=x.device"),
        (lambda y: y + torch.zeros(y.shape, device="cpu"), "device=x.device"),
        (lambda y: torch.from_numpy(y.numpy()), "NumPy computes on the CPU only"),
    ],
    ids=["right", "made there", "moved", "mixed", "numpy"],
)
def test_an_answer_is_checked_on_the_notebooks_device_and_told_what_it_does_on_the_cpu(device, change, told):
    use_device(device)
    try:
        result = grade("attention.softmax", softmax_then(change), seed=0)
    finally:
        use_device("cpu")
    assert result.passed == (device == "cpu" or told is None), result.feedback
    assert told is None or device == "cpu" or told in result.feedback
