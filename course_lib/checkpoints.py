"""Checkpoints: all that a training run needs to go on as if it had never stopped, in one file.

Chapter 12. Weights and optimizer are kept whole and under the names of the plain model, whatever the run was made of:
one process or many, shards, compiled blocks. So each kind of run goes on from the file of any other.
"""

from pathlib import Path

import torch
from torch import Generator, nn

from course_lib import checks, processes
from course_lib.files import write_whole


def save_checkpoint(
    path: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer,
    generator: Generator | None = None, history: dict | None = None,
) -> None:  # fmt: skip
    """Write a checkpoint, whole or not at all. All processes call it; the first writes, the others wait for it.

    Args:
        generator: what draws the batches, if it is to go on where it stands. history: plain values by name, such as
            losses; `load_checkpoint` returns them.
    Errors: ValueError if there is no such folder; TypeError for another kind of argument.
    """
    checks.require_checkpoint(path, model, optimizer, generator, history)
    state = {
        "model": processes.whole(model.state_dict()), "optimizer": processes.whole(optimizer.state_dict()),
        "history": history or {}, "generator": generator.get_state() if generator else None,
        "torch": processes.gather(torch.get_rng_state()),  # what dropout draws from, (processes, bytes)
    }  # fmt: skip
    if processes.rank() == 0:
        write_whole(Path(path), lambda part: torch.save(state, part))
    processes.gather(torch.zeros(1))


def load_checkpoint(
    path: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer, generator: Generator | None = None
) -> dict:
    """Bring model, optimizer and random numbers to where a checkpoint was written; return the history until then.

    Errors: ValueError for a file that is damaged, holds numbers that are not finite, or belongs to another model;
        TypeError for another kind of argument.
    """
    checks.require_checkpoint(path, model, optimizer, generator, None)
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        checks.require_finite({n: state["model"][n] for n, _ in model.named_parameters() if n in state["model"]})
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if generator and state["generator"] is not None:
            generator.set_state(state["generator"])
        own = torch.get_rng_state()
        drawn_from = state.get("torch", own).view(-1, len(own))  # an older file has one, or none
        if processes.rank() < len(drawn_from):  # one process more than before goes on with what it has
            torch.set_rng_state(drawn_from[processes.rank()].clone())  # of a view PyTorch reads the first row
        return state["history"]
    except Exception as error:
        raise ValueError(
            f"cannot resume from {path}: {type(error).__name__}: {str(error).splitlines()[0]}. "
            "It belongs to another model, or is missing or damaged. Move it away to start again, or name another one."
        ) from error
