"""The device of a notebook: what is made there, where random numbers come from, and what a name may be."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from helpers import V, build, small
from nbval.plugin import get_sanitize_patterns
from torch import nn

from course_lib.device import chosen, computes_on, find_device, on, use_device
from course_lib.grading import grade
from course_lib.live.glass import html
from course_lib.live.glass.pack import pack
from course_lib.pretrained import load_pretrained
from course_lib.tinytown import Batches, WordTokenizer
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
    "an embedding": lambda: nn.Embedding(4, 3).weight.detach(),
    "nn.init": lambda: nn.init.trunc_normal_(torch.ones(2, 2)) + nn.init.xavier_uniform_(torch.ones(2, 2)),
    "multinomial": lambda: torch.multinomial(torch.tensor([0.1, 0.2, 0.7]), 5, replacement=True),
    "bernoulli": lambda: torch.bernoulli(torch.full((9,), 0.5)),
    "dropout": lambda: F.dropout(torch.ones(3, 4), 0.3),
    "dropout of attention": lambda: F.scaled_dot_product_attention(*torch.ones(3, 2, 4, 6, 6), None, 0.5),
    "dropout of attention, causal": lambda: F.scaled_dot_product_attention(
        *torch.ones(3, 2, 4, 6, 6), dropout_p=0.5, is_causal=True, scale=2.0
    ),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_random_numbers_are_made_on_the_device_and_are_those_of_the_cpu(device, draw):
    torch.manual_seed(0)
    expected = draw()
    torch.manual_seed(0)
    with on(torch.device(device)):
        drawn = draw()
    assert drawn.device.type == device
    torch.testing.assert_close(drawn.cpu(), expected)


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


@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "rope", "alibi"])
def test_the_glass_model_of_a_device_is_byte_for_byte_that_of_the_cpu(positions, device):
    tokenizer = WordTokenizer([f"word{i}" for i in range(V - 3)])
    model = build(small(positions=positions))
    packed = [pack(model, tokenizer, bits) for bits in (16, 8)]
    page = html(model, tokenizer, "word1 word2", "0.head.1")
    with on(torch.device(device)):
        model.to(device)
        assert [pack(model, tokenizer, bits) for bits in (16, 8)] == packed
        assert html(model, tokenizer, "word1 word2", "0.head.1") == page


def test_weights_that_are_tied_stay_so_on_the_way_to_the_device(device):
    both = nn.ModuleDict({"one": nn.Linear(3, 3), "other": nn.Linear(3, 3)})
    both["other"].weight = both["one"].weight
    both.to(device)
    assert both["other"].weight is both["one"].weight
    assert both["one"].bias is not both["other"].bias


# What a GPU refuses and allows where x, tensors of the CPU, meet y, its own. PyTorch documents it in "CUDA semantics",
# and its sources have the details. TensorIterator.cpp: one number of the CPU may take part in arithmetic, but is not
# written to. TensorAdvancedIndexing.cpp: an index may be on the CPU. Operations that are not marked with
# `device_check: NoCheck` in native_functions.yaml take tensors of one device only.
REFUSED = {
    "arithmetic": lambda x, y: x.three + y.three,
    "arithmetic of the CPU's tensor with one number": lambda x, y: x.three * y.one,
    "comparison": lambda x, y: x.three == y.three,
    "in place": lambda x, y: x.three.add_(y.three),
    "in place, numbers": lambda x, y: x.one.add_(y.one),
    "matrix product": lambda x, y: y.three @ x.three,
    "the CPU's tensor at an index of the device": lambda x, y: x.three[y.index],
    "the CPU's tensor at a condition of the device": lambda x, y: x.three[y.condition],
    "values for an index": lambda x, y: y.three.__setitem__(y.index, x.three[:2]),
    "where, condition": lambda x, y: torch.where(x.condition, y.three, 0.0),
    "where, values": lambda x, y: torch.where(y.condition, x.three, y.three),
    "masked_fill": lambda x, y: y.three.masked_fill(x.condition, 0.0),
    "masked_fill of the CPU's tensor": lambda x, y: x.three.masked_fill(y.condition, 0.0),
    "index_select": lambda x, y: y.three.index_select(0, x.index),
    "gather": lambda x, y: y.three.gather(0, x.index),
    "scatter": lambda x, y: y.three.scatter(0, x.index, 1.0),
    "scatter in place": lambda x, y: x.three.scatter_(0, y.index, y.three),
    "cat": lambda x, y: torch.cat([x.three, y.three]),
    "stack of numbers": lambda x, y: torch.stack([x.one, y.one]),
    "embedding": lambda x, y: F.embedding(x.index, y.three[:, None]),
    "layer_norm": lambda x, y: F.layer_norm(y.three, (3,), x.three),
    "cross_entropy": lambda x, y: F.cross_entropy(y.three[None], x.index[:1]),
    "a layer": lambda x, y: F.linear(y.three, x.three[None]),
}
ALLOWED = {
    "a number of the CPU": lambda x, y: x.one * y.three,
    "a number of each": lambda x, y: x.one + y.one,
    "the device's tensor at an index of the CPU": lambda x, y: y.three[x.index],
    "the device's tensor at a condition of the CPU": lambda x, y: y.three[x.condition],
    "a number for an index": lambda x, y: y.three.index_put((x.index,), x.one),
    "where, a number": lambda x, y: torch.where(y.condition, x.one, y.three),
    "masked_fill, a number": lambda x, y: y.three.masked_fill(y.condition, x.one),
    "copy_ to the device": lambda x, y: y.three.copy_(x.three),
    "copy_ to the CPU": lambda x, y: x.three.copy_(y.three),
    "float": lambda x, y: torch.tensor(float(y.one)),
    "tolist": lambda x, y: torch.tensor(y.three.tolist()),
    "the index of a list": lambda x, y: torch.tensor([5, 6, 7][y.index[0]]),
}


def given_on(device):
    three = torch.arange(3.0, device=device)
    index = torch.tensor([0, 2], device=device)
    return SimpleNamespace(three=three, one=torch.tensor(2.0, device=device), index=index, condition=three > 0.5)


@pytest.fixture
def other(device):
    """A device that is not the CPU."""
    return device if device != "cpu" else pytest.skip("there is one device only")


@pytest.mark.parametrize("call", REFUSED.values(), ids=REFUSED)
def test_tensors_of_two_devices_do_not_mix(call, other):
    call(given_on(other), given_on(other))
    with pytest.raises(RuntimeError, match="device"):
        call(given_on("cpu"), given_on(other))


@pytest.mark.parametrize("call", ALLOWED.values(), ids=ALLOWED)
def test_numbers_indices_and_copies_may_cross(call, other):
    assert torch.equal(call(given_on("cpu"), given_on(other)).cpu(), call(given_on("cpu"), given_on("cpu")))


@pytest.mark.parametrize("convert", [lambda x: x.numpy(), np.asarray, np.exp], ids=["numpy", "asarray", "exp"])
def test_numpy_takes_no_tensor_of_a_device(convert, other):
    with pytest.raises(TypeError, match=r"Tensor.cpu\(\)"):
        convert(given_on(other).three)


def test_a_device_takes_no_generator_of_the_cpu_and_draws_numbers_of_its_own(other):
    with pytest.raises(RuntimeError, match="device type for generator but found 'cpu'"):
        torch.rand(9, generator=torch.Generator(), device=other)
    torch.manual_seed(0)
    first, expected = torch.rand(9, device=other), torch.rand(9)
    torch.manual_seed(0)
    assert torch.equal(torch.rand(9, device=other), first)
    assert not torch.equal(first.cpu(), expected)


PRINTED = {
    "a number": lambda: torch.tensor(2.0),
    "two rows, integers": lambda: torch.arange(40).reshape(2, 20),
    "of another dtype": lambda: torch.tensor([1, 2], dtype=torch.int32),
    "long lines": lambda: torch.rand(2, 17).half(),
    "to be learned": lambda: torch.rand(2, 8, requires_grad=True),
    "empty": lambda: torch.zeros(0, 3),
    "in a list": lambda: [torch.ones(1), 3],
}


@pytest.mark.parametrize("make", PRINTED.values(), ids=PRINTED)
def test_a_printed_tensor_names_its_device_and_the_comparison_of_outputs_leaves_it_out(make, other):
    torch.manual_seed(0)
    expected = repr(make())
    torch.manual_seed(0)
    with on(torch.device(other)):
        printed = repr(make())
    assert f"device='{other}:0'" in printed
    for regex, text in get_sanitize_patterns(Path(__file__).with_name("pixels.cfg").read_text()):
        printed, expected = re.sub(regex, text, printed), re.sub(regex, text, expected)
    assert printed == expected


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
