"""How answers of chapter 1 are used, where one call is not enough: see `grading/fixtures.py`."""

import torch


def rows_and_gradient(answer, weight, ids):
    """The rows; and where the table asks for a gradient, what their weighted sum sends back to it."""
    rows = answer(weight, ids)
    if not weight.requires_grad:
        return rows
    if not (isinstance(rows, torch.Tensor) and rows.requires_grad):
        return rows, torch.zeros_like(weight)
    importance = torch.arange(1.0, rows.numel() + 1, dtype=rows.dtype).view(rows.shape)
    (rows * importance).sum().backward()
    return rows, torch.zeros_like(weight) if weight.grad is None else weight.grad
