"""How the tests of chapter 1 use an answer if one call is not enough: see `grading/fixtures.py`."""

import torch


def rows_and_gradient(answer, weight, ids):
    """Return the rows and, if the table requires a gradient, the gradient of their weighted sum."""
    rows = answer(weight, ids)
    if not weight.requires_grad:
        return rows
    if not (isinstance(rows, torch.Tensor) and rows.requires_grad):
        return rows, torch.zeros_like(weight)
    importance = torch.arange(1.0, rows.numel() + 1, dtype=rows.dtype).view(rows.shape)
    (rows * importance).sum().backward()
    return rows, torch.zeros_like(weight) if weight.grad is None else weight.grad
