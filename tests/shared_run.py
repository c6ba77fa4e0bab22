"""One process of a training run that several share: what the tests of `train` start with torchrun, or alone.

    torchrun --nproc-per-node 2 tests/shared_run.py FOLDER '{"steps": 5, …}'

Each process leaves its history and its weights in FOLDER. Settings are those of `train`, and a few of its own.
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch

from course_lib.config import preset
from course_lib.gpt import IGNORED, DecoderOnly
from course_lib.tinytown import Batches
from course_lib.training import train
from course_lib.training_options import processes

SMALL = replace(
    preset("tinytown"), vocab_size=20, d_model=16, n_heads=2, n_layers=2, d_ff=32, max_seq_len=16,
    n_kv_heads=2,
)  # fmt: skip


class Uneven:
    """Batches in which some targets are not predicted: in each row others, and in each batch another number."""

    def __init__(self, batch_size: int = 4, seed: int = 0):
        ids = torch.randint(20, (300,), generator=torch.Generator().manual_seed(1))
        self.batches = Batches(ids, batch_size, 8, torch.Generator().manual_seed(seed))
        self.generator = self.batches.generator

    def __iter__(self):
        return self

    def __next__(self):
        inputs, targets = next(self.batches)
        return inputs, torch.where((inputs + targets) % 5 < 2, IGNORED, targets)


def make_model(dropout: float = 0.0, seed: int = 0, n_layers: int = 2) -> DecoderOnly:
    torch.manual_seed(seed)
    return DecoderOnly(replace(SMALL, dropout=dropout, n_layers=n_layers))


def main(folder: Path, dropout=0.0, kill_at=None, own_seeds=False, **settings) -> None:
    processes.join_processes()
    rank = processes.rank()
    model = make_model(dropout, seed=rank)  # whose weights differ: those of the first are taken

    def die(step, model):
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    supply = Uneven(seed=rank if own_seeds else 0)
    history = train(model, supply, warmup=2, peak=1e-2, max_norm=0.5, on_step=die, **settings)
    torch.save({"losses": history.losses, "norms": history.gradient_norms, "weights": model.state_dict()},
               folder / f"{rank}.pt")  # fmt: skip


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
