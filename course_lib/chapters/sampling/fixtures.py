"""What answers of chapter 13 are given that is no plain data, and how they are used: see `grading/fixtures.py`."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from course_lib.grading.judge.compare import kind_of


class _SumOfAll(nn.Module):
    """A model that one can follow on paper: after the tokens so far, the next one is (their sum + their number) mod V.

    It sees no more than `limit` tokens, as a model with positions up to max_seq_len does.
    """

    def __init__(self, vocab_size, limit):
        super().__init__()
        self.vocab_size, self.limit = vocab_size, limit
        self.config = SimpleNamespace(vocab_size=vocab_size, max_seq_len=limit)

    def forward(self, ids):
        if ids.shape[1] > self.limit:
            raise ValueError(f"ids have {ids.shape[1]} tokens per row, more than max_seq_len={self.limit}")
        favourite = (ids + 1).cumsum(1) % self.vocab_size  # (B, T)
        return 4.0 * nn.functional.one_hot(favourite, self.vocab_size).float()  # (B, T, V)


class _Chain(nn.Module):
    """A model that knows the last token only: its logits are row `last token` of a table (V, V)."""

    def __init__(self, table, max_seq_len=8):
        super().__init__()
        self.table: Tensor
        self.register_buffer("table", table)
        self.config = SimpleNamespace(vocab_size=len(table), max_seq_len=max_seq_len)

    def forward(self, ids):
        if ids.shape[1] > self.config.max_seq_len:
            raise ValueError(f"ids have {ids.shape[1]} tokens per row, more than max_seq_len={self.config.max_seq_len}")
        return self.table[ids]  # (B, T, V)


def sum_of_all(vocab_size: int, limit: int) -> nn.Module:
    """Return a model whose next token is (the sum of all before + their number) mod V."""
    return _SumOfAll(vocab_size, limit)


def chain(table: Tensor) -> nn.Module:
    """Return a model that knows the last token only."""
    return _Chain(table)


DRAWS = 10_000  # a frequency of so many draws misses its probability by less than 0.02 (four standard errors)
DRAWS_OF_A_ROW = 1_500  # by less than 0.08 (six), and an answer that loops over rows is done in a few seconds
FEW = 32  # draws that show whether a seed repeats them: by chance no two such runs agree


def drawn_many_times(function, logits, temperature, top_k, top_p, generator):
    """Return the ids at temperature 0; otherwise how often each token comes, and what the generator does."""
    if temperature == 0:
        return function(logits, temperature, top_k, top_p, generator)
    rows = logits.repeat_interleave(DRAWS_OF_A_ROW, 0)  # (B · DRAWS_OF_A_ROW, V)
    few, again = logits.repeat_interleave(FEW // len(logits), 0), generator.clone_state()
    first, then = (function(few, temperature, top_k, top_p, generator) for _ in range(2))
    ids = function(rows, temperature, top_k, top_p, generator)  # (B · DRAWS_OF_A_ROW,)
    repeated = function(few, temperature, top_k, top_p, again)
    problem = not_ids(ids, logits.shape[-1], len(rows))
    if problem:
        return problem, _alike(first, repeated), not _alike(first, then)
    each_row = ids.long().view(len(logits), DRAWS_OF_A_ROW)
    frequency = nn.functional.one_hot(each_row, logits.shape[-1]).float().mean(1)  # (B, V)
    return frequency, torch.equal(first, repeated), not torch.equal(first, then)


def followed(function, model, ids, max_new_tokens, max_seq_len, temperature, generator):
    """Return the ids at temperature 0; otherwise how often each pair of new tokens comes, and what the generator
    does."""
    if temperature == 0:
        return function(model, ids, max_new_tokens, max_seq_len, temperature, generator)
    rows, vocab_size = ids.repeat_interleave(DRAWS, 0), model.config.vocab_size
    again = generator.clone_state()
    first, then = (function(model, rows[:FEW], max_new_tokens, max_seq_len, temperature, generator) for _ in range(2))
    out = function(model, rows, max_new_tokens, max_seq_len, temperature, generator)  # (DRAWS, T + 2)
    repeated = function(model, rows[:FEW], max_new_tokens, max_seq_len, temperature, again)
    problem = not_ids(out, vocab_size, len(rows), ids.shape[1] + max_new_tokens)
    if problem and (not isinstance(out, Tensor) or out.ndim != 2 or not_ids(out[:, -2:], vocab_size, len(rows), 2)):
        return problem, _alike(first, repeated)
    pairs = out[:, -2] * vocab_size + out[:, -1]
    frequency = torch.bincount(pairs, minlength=vocab_size**2).view(vocab_size, vocab_size) / DRAWS
    seen = frequency, _alike(first, repeated), not _alike(first, then)
    return (problem, *seen) if problem else seen  # of a text that is too short or too long, its end still tells much


def as_two_rows(function, model, ids, n_tokens, temperatures, generator):
    """Return both lists as tensors (tuples and tensors will do), whether a few texts repeat with the same seed, and
    whether one of the next calls draws others (a single one may give equal counts by chance); where nothing is drawn,
    none does."""
    result = function(model, ids, n_tokens, list(temperatures), generator)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        return result
    state = generator.get_state()
    few = [function(model, ids[:20], n_tokens, list(temperatures), generator.set_state(state)) for _ in range(2)]
    few += [function(model, ids[:20], n_tokens, list(temperatures), generator) for _ in range(4)]
    try:
        result, one, two, *later = (
            [torch.as_tensor(part, dtype=torch.float64).detach() for part in each] for each in (result, *few)
        )
    except (TypeError, ValueError, RuntimeError):
        return result
    is_new = any(not all(map(torch.equal, one, then)) for then in later)
    return (*result, all(map(torch.equal, one, two)), is_new)


def _alike(one, other):
    """Say whether two results are equal tensors."""
    return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)


def not_ids(ids, vocab_size, *shape):
    """Say what keeps a result from being ids of this shape, in a sentence; None if nothing does."""
    if not isinstance(ids, torch.Tensor) or ids.shape != torch.Size(shape):
        return f"For {shape[0]:,} rows the result should be ids of shape {shape}; it is {kind_of(ids)}."
    if ids.is_floating_point():
        return f"Ids are whole numbers; your result has the dtype {str(ids.dtype).removeprefix('torch.')}."
    if bool(((ids < 0) | (ids >= vocab_size)).any()):
        return f"With {vocab_size} tokens the ids are 0 to {vocab_size - 1}; yours go from {ids.min()} to {ids.max()}."
    return None
