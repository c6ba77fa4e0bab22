"""The process that runs a file: it trains the file's model, counts the arithmetic, and answers questions about logits.

It knows no stories but those of the training text. Messages are JSON, logits raw float32: the judge unpacks nothing
that could run.
"""

import json
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from course_lib.speedrun.rules import Entry
from course_lib.speedrun.text import Text


class _Enough(BaseException):
    """The run was only for its time per step."""


def attention(query: Any, key: Any, value: Any, *args: Any, out_shape: Any = None, **options: Any) -> int:
    """Count attention on the CPU, which torch's counter leaves out: shapes in, operations out."""
    return sdpa_flop_count(query, key, value)


def attention_backward(grad: Any, query: Any, key: Any, value: Any, *args: Any, out_shape: Any = None, **options: Any):
    """Count its backward pass."""
    return sdpa_backward_flop_count(grad, query, key, value)


ON_CPU = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: attention_backward,
}


def serve(line: Connection, path: str, source: str, ids: Tensor, vocab_size: int, seed: int, most: int | None) -> None:
    """Train, say so, and answer until there are no more questions.

    most: stop training after so many steps, to measure the time of one.
    """
    torch.set_num_threads(2)
    say = _sayer(line)
    began = 0.0

    def on_step(done: int, total: int) -> None:
        say(step=done, total=total, seconds=time.perf_counter() - began)
        if most is not None and done >= most:
            raise _Enough

    try:
        train = Entry(Path(path), source).train()
        counter = FlopCounterMode(display=False, custom_mapping=ON_CPU)
        began = time.perf_counter()
        with counter:
            model = train(Text(ids, vocab_size, on_step=on_step), seed)
        if not isinstance(model, nn.Module):
            raise TypeError(f"train returned a {type(model).__name__}: return the trained model, an nn.Module")
        model.eval()
        say(trained=True, arithmetic=counter.get_total_flops(), seconds=time.perf_counter() - began)
        _answer(line, model, vocab_size)
    except _Enough:
        say(trained=True, arithmetic=counter.get_total_flops(), seconds=time.perf_counter() - began)
    except Exception:
        say(error=_shortened(path))


def _sayer(line: Connection):
    last = [0.0]

    def say(**message: Any) -> None:
        now = time.perf_counter()
        if "step" not in message or now - last[0] > 0.2 or message["step"] == message["total"]:
            last[0] = now
            line.send_bytes(json.dumps(message).encode())

    return say


def _answer(line: Connection, model: nn.Module, vocab_size: int) -> None:
    """Answer prefixes (N, t) with the logits of the next token (N, V), until an empty message."""
    while question := line.recv_bytes():
        rows, length = json.loads(question)
        ids = torch.frombuffer(bytearray(line.recv_bytes()), dtype=torch.int64).view(rows, length)
        with torch.no_grad():
            out = model(ids)
        logits = (out[0] if isinstance(out, tuple) else out)[:, -1]  # (N, V)
        if logits.shape != (rows, vocab_size):
            raise ValueError(f"the model returned logits (N, V) = {tuple(logits.shape)}, not {(rows, vocab_size)}")
        line.send_bytes(b"")
        line.send_bytes(logits.float().contiguous().numpy().tobytes())


def _shortened(path: str) -> str:
    """Return the current error in one line, with the last line of the file that it passed through."""
    import sys

    kind, error, trace = sys.exc_info()
    where = [frame.lineno for frame in traceback.extract_tb(trace) if frame.filename == path]
    line = f"{Path(path).name}, line {where[-1]}: " if where else ""
    return f"{line}{kind.__name__}: {error}" if kind else line
