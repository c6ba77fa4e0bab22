"""Our attention compared with `nn.MultiheadAttention`: forward and backward, for short and long texts."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from course_lib.bench.report import Row
from course_lib.bench.rounds import in_turns
from course_lib.heads import MultiHeadAttention

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
D_MODEL, N_HEADS = 256, 4


def pair(d_model: int = D_MODEL, n_heads: int = N_HEADS) -> tuple[MultiHeadAttention, nn.MultiheadAttention]:
    """Return our attention layer and PyTorch's, with the same weights."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
    ours = MultiHeadAttention(d_model, n_heads)
    weights = {
        f"{name}_proj.{kind}": part
        for kind in ("weight", "bias")
        for name, part in zip("qkv", getattr(theirs, f"in_proj_{kind}").chunk(3))
    }
    ours.load_state_dict(weights | {f"out_proj.{name}": part for name, part in theirs.out_proj.state_dict().items()})
    return ours, theirs


def passes(T: int) -> dict[str, Callable[[], Tensor]]:
    """Return a forward and backward pass over T tokens for each of the two layers, both causal."""
    ours, theirs = pair()
    x = torch.randn(1, T, D_MODEL, requires_grad=True)
    mask = nn.Transformer.generate_square_subsequent_mask(T)

    def ours_once() -> Tensor:
        ours(x, is_causal=True).sum().backward()
        return x

    def theirs_once() -> Tensor:
        theirs(x, x, x, attn_mask=mask, is_causal=True, need_weights=False)[0].sum().backward()
        return x

    return {"ours": ours_once, "theirs": theirs_once}


def repeated(function: Callable[[], object], n: int) -> Callable[[], object]:
    """Return a function that calls another n times, because a single short call is hard to time."""
    return lambda: [function() for _ in range(n)]


def measure(rounds: int) -> Iterator[Row]:
    """Measure every length, with four times the runs for short texts."""
    for T in LENGTHS:
        repeats = max(1, 4096 // T)
        contest = in_turns(
            {name: repeated(function, repeats) for name, function in passes(T).items()}, rounds, f"attention, T = {T}"
        )
        seconds = contest.of("ours") / repeats
        ratio = contest.times_as_fast("ours", "theirs")
        yield Row("attention", f"T = {T:,}", "nn.MultiheadAttention", ratio, seconds, "per pass", least=1.0)
