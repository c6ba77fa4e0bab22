"""The linear layer that shares its rows out computes what PyTorch's own does."""

import pytest
import torch
from torch import nn

from course_lib.linear import WORTH_SPLITTING, Linear


def pair(inputs, outputs, bias=True, dtype=torch.float32):
    torch.manual_seed(0)
    theirs, ours = nn.Linear(inputs, outputs, bias, dtype=dtype), Linear(inputs, outputs, bias, dtype=dtype)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


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
        exact = theirs.double()(x.double())
        torch.testing.assert_close(ours(x).double(), exact, rtol=1e-2, atol=2e-2)
    assert torch.backends.mkldnn.enabled == before


def test_few_tokens_are_shared_out_and_everything_else_is_pytorchs(monkeypatch):
    shared = []
    monkeypatch.setattr(torch, "bmm", lambda a, b, bmm=torch.bmm: shared.append(a.shape) or bmm(a, b))
    ours, theirs = pair(512, 512)
    small, _ = pair(64, 64)
    wide, _ = pair(512, 512, dtype=torch.float64)
    with torch.no_grad():
        small(torch.randn(1, 64))
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
