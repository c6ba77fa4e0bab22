"""The fast linear layer computes what PyTorch's own does."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from course_lib import linear
from course_lib.fast import fast
from course_lib.gpt import DecoderOnly
from course_lib.linear import WORTH_SPLITTING, FastLinear
from tests.helpers import small


@pytest.fixture(autouse=True)
def on_any_processor(monkeypatch):
    """The split is tested on every machine, also where PyTorch uses all cores without it."""
    monkeypatch.setattr(linear, "SPLITS", True)


def test_where_pytorch_uses_all_cores_nothing_is_split(monkeypatch):
    monkeypatch.setattr(linear, "SPLITS", False)
    ours, theirs = pair(512, 512)
    monkeypatch.setattr(ours, "split_rows", lambda x: pytest.fail("it splits"))
    x = torch.randn(1, 512)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x))


@pytest.mark.parametrize(
    ("processor", "mkl", "one_core"),
    [("Intel Xeon", True, False), ("Intel Xeon", False, True), ("AMD EPYC", True, True), (None, True, True)],
)
def test_only_intels_library_on_intels_processors_uses_all_cores(monkeypatch, processor, mkl, one_core):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": processor} if processor else {})
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: mkl)
    assert linear.one_core_per_vector() == one_core


def pair(inputs, outputs, bias=True, dtype=torch.float32):
    torch.manual_seed(0)
    theirs = nn.Linear(inputs, outputs, bias, dtype=dtype)
    return FastLinear(theirs), theirs


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("shape", [(512,), (1, 512), (1, 1, 512), (2, 3, 512), (16, 1, 512), (17, 512), (0, 512)])
@pytest.mark.parametrize(("outputs", "bias"), [(512, True), (513, True), (1031, False)])
def test_a_few_tokens_are_computed_as_by_pytorch(threads, shape, outputs, bias):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        ours, theirs = pair(512, outputs, bias)
        assert ours.weight.numel() >= WORTH_SPLITTING
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("bias", [True, False])
def test_in_bfloat16_one_token_is_as_exact_as_by_pytorch_and_its_settings_stay(bias):
    ours, theirs = pair(512, 515, bias, torch.bfloat16)
    x = torch.randn(1, 1, 512).bfloat16()
    before = torch.backends.mkldnn.enabled
    with torch.no_grad():
        exact = copy.deepcopy(theirs).double()(x.double())
        torch.testing.assert_close(ours(x).double(), exact, rtol=1e-2, atol=2e-2)
    assert torch.backends.mkldnn.enabled == before


def test_few_tokens_are_shared_out_and_everything_else_is_pytorchs(monkeypatch):
    shared = []
    monkeypatch.setattr(torch, "bmm", lambda a, b, bmm=torch.bmm: shared.append(a.shape) or bmm(a, b))
    ours, theirs = pair(512, 512)
    wide, _ = pair(512, 512, dtype=torch.float64)
    with torch.no_grad():
        ours(torch.randn(17, 512))
        wide(torch.randn(1, 512).double())
        assert shared == []
        ours(torch.randn(1, 512))
        assert len(shared) == 1
    x = torch.randn(1, 512, requires_grad=True)
    got, expected = (torch.autograd.grad(layer(x).square().sum(), x)[0] for layer in (ours, theirs))
    torch.testing.assert_close(got, expected)
    assert len(shared) == 1  # what is differentiated is left alone


def test_a_token_that_does_not_lie_in_one_piece_is_read_all_the_same():
    ours, theirs = pair(512, 512)
    x = torch.randn(512, 2)[:, :1].t()  # (1, 512), every second number
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-5, atol=1e-5)


def test_a_fast_model_computes_the_same_with_the_same_weights():
    torch.manual_seed(0)
    model = DecoderOnly(small(d_model=512, n_heads=4, d_ff=1024, n_layers=1, tie_weights=True)).eval()
    ids = torch.randint(model.config.vocab_size, (1, 3))
    with torch.no_grad():
        expected, names = model(ids), list(model.state_dict())
        assert fast(model) is model
        torch.testing.assert_close(model(ids), expected, rtol=1e-4, atol=1e-4)
    assert list(model.state_dict()) == names
    assert model.output.weight is model.token_embedding.weight
    for layer in (module for module in model.modules() if isinstance(module, nn.Linear)):
        assert isinstance(layer, FastLinear) == (layer.weight.numel() >= WORTH_SPLITTING)
    assert isinstance(model.blocks[0].feed_forward.up_proj, FastLinear)


def test_a_fast_model_learns_like_any_other():
    torch.manual_seed(0)
    plain = DecoderOnly(small(d_model=512, n_heads=4, d_ff=1024, n_layers=1))
    quick = fast(copy.deepcopy(plain))
    ids = torch.randint(plain.config.vocab_size, (2, 3))
    for model in (plain, quick):
        model(ids, ids)[1].backward()
    for (name, ours), theirs in zip(quick.named_parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=name)


def test_only_one_thread_at_a_time_changes_the_setting_of_the_process(monkeypatch):
    layer, _ = pair(512, 512, dtype=torch.bfloat16)
    x, inside, most = torch.randn(1, 512).bfloat16(), [], []

    def forward(self, x, plain=nn.Linear.forward):
        inside.append(1)
        most.append(len(inside))
        y = plain(self, x)
        inside.pop()
        return y

    def write(_):
        with torch.no_grad():
            return layer(x)

    monkeypatch.setattr(nn.Linear, "forward", forward)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(400)))
    assert len(most) == 400
    assert max(most) == 1
    assert torch.backends.mkldnn.enabled
