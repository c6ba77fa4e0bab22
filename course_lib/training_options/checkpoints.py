"""Checkpoints: save a training run in one file, so that it can resume as if it had not been interrupted.

Chapter 12. Weights and optimizer state are stored complete and under the plain model's parameter names, whether the run
used one process or many, shards or compiled blocks. Any kind of run can therefore resume from the file of any other.
"""

from pathlib import Path

import torch
from torch import Generator, nn

from course_lib import checks
from course_lib.course.files import write_whole
from course_lib.training_options import processes


def save_checkpoint(
    path: str | Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: Generator | None = None,
    history: dict | None = None,
) -> None:
    """Write a checkpoint; an interruption never leaves an incomplete file. All processes have to call this function:
    the first one writes, the others wait.

    Args:
        generator: the generator that samples the batches, if its state should be saved.
        history: plain values by name, such as losses; `load_checkpoint` returns them.
    Errors: ValueError if the folder does not exist; TypeError for an argument of the wrong type.
    """
    _require_checkpoint(path, model, optimizer, generator, history)
    state = {
        "model": processes.whole(model.state_dict()),
        "optimizer": processes.whole(optimizer.state_dict()),
        "history": history or {},
        "generator": generator.get_state() if generator else None,
        "torch": processes.gather(torch.get_rng_state()),  # the state that dropout uses, (processes, bytes)
    }
    if processes.rank() == 0:
        write_whole(Path(path), lambda part: torch.save(state, part))
    processes.gather(torch.zeros(1))


def load_checkpoint(
    path: str | Path, model: nn.Module, optimizer: torch.optim.Optimizer, generator: Generator | None = None
) -> dict:
    """Restore model, optimizer and random state from a checkpoint; return the saved history.

    Errors: ValueError for a file that is missing or damaged, contains numbers that are not finite, or belongs to
        another model; TypeError for an argument of the wrong type.
    """
    _require_checkpoint(path, model, optimizer, generator, None)
    try:
        state = torch.load(path, weights_only=True, map_location="cpu")
        checks.require_finite({n: state["model"][n] for n, _ in model.named_parameters() if n in state["model"]})
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        if generator and state["generator"] is not None:
            generator.set_state(state["generator"])
        own = torch.get_rng_state()
        drawn_from = state["torch"].view(-1, len(own))  # (processes, bytes)
        if processes.rank() < len(drawn_from):  # an additional process keeps its own state
            torch.set_rng_state(drawn_from[processes.rank()].clone())  # PyTorch would read row 0 of a view
        return state["history"]
    except Exception as error:
        raise ValueError(
            f"cannot resume from {path}: {type(error).__name__}: {str(error).splitlines()[0]}. "
            "The file is missing or damaged, or is of another model. Move it away to start again, or name another file."
        ) from error


def _require_checkpoint(path: object, model: object, optimizer: object, generator: object, history: object) -> None:
    """Raise TypeError or ValueError unless these can be written to a checkpoint or restored from one."""
    checks.require_path(path=path)
    checks.require_module(model=model)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TypeError(f"optimizer must be a torch optimizer, as make_optimizer makes it, got {optimizer!r:.80}")
    checks.require_generator(generator)
    if not isinstance(history, dict | None):
        raise TypeError(f"history must be a dictionary of plain values, got {history!r:.80}: write {{'losses': …}}")
    if not Path(str(path)).parent.is_dir():
        raise ValueError(f"path={str(path)!r}: there is no folder {Path(str(path)).parent}: make it first")
