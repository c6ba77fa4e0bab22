"""How the tests of chapter 13 build arguments that are not plain data, and use an answer: see `grading/fixtures.py`."""

from types import SimpleNamespace

import torch
from torch import Tensor, nn

from course_lib.grading.judge.compare import kind_of


class _SumOfAll(nn.Module):
    """A model that you can follow on paper. The next token is (the sum of the tokens so far + their number) mod V.

    It sees at most `limit` tokens, like a model with positions up to max_seq_len.
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
    """A model that knows only the last token: its logits are row `last token` of a table (V, V)."""

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
    """Return a model whose next token is (the sum of all tokens before + their number) mod V."""
    return _SumOfAll(vocab_size, limit)


def chain(table: Tensor) -> nn.Module:
    """Return a model that knows only the last token."""
    return _Chain(table)


DRAWS = 10_000  # a frequency over this many samples is within 0.02 of its probability (four standard errors)
DRAWS_OF_A_ROW = 1_500  # within 0.08 (six), and an answer that loops over rows takes only a few seconds
FEW = 32  # enough samples to show whether a seed repeats them; two such runs never agree by chance


def drawn_many_times(function, logits, temperature, top_k, top_p, generator):
    """Return the ids at temperature 0; otherwise the frequency of each token, and what the generator does."""
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
    """Return the ids at temperature 0; otherwise the frequency of each pair of new tokens, and what the generator
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
    return (problem, *seen) if problem else seen  # the end of a text that is too short or too long is still informative


def as_two_rows(function, model, ids, n_tokens, temperatures, generator):
    """Return both lists as tensors, from tuples or tensors too, and what the generator does.

    That is: whether a few texts repeat with the same seed, and whether one of the next calls samples other texts. A
    single call may give equal counts by chance. If nothing is random, no call differs."""
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
    """Return whether two results are equal tensors."""
    return isinstance(one, Tensor) and isinstance(other, Tensor) and torch.equal(one, other)


def not_ids(ids, vocab_size, *shape):
    """Return the reason why a result is not ids of this shape as a sentence, or None if it is."""
    if not isinstance(ids, torch.Tensor) or ids.shape != torch.Size(shape):
        return f"For {shape[0]:,} rows the result should be ids of shape {shape}; it is {kind_of(ids)}."
    if ids.is_floating_point():
        return f"Ids are whole numbers; your result has the dtype {str(ids.dtype).removeprefix('torch.')}."
    if bool(((ids < 0) | (ids >= vocab_size)).any()):
        return f"With {vocab_size} tokens the ids are 0 to {vocab_size - 1}; yours go from {ids.min()} to {ids.max()}."
    return None
