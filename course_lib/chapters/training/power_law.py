"""Chapter 12's law of loss over size and tokens, and the recorded runs for fitting it."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from course_lib.config import preset
from course_lib.counting import count_parameters
from course_lib.course.files import ASSETS, read_json
from course_lib.pretrained import shipped_figures
from course_lib.tinytown import Tinytown

RECORD = ASSETS / "training.json"
SCALES = (8, 16, 32)  # d_model of the models for fitting a law


def recorded(name: str) -> Any:
    """Return one of the records that `records.py` writes."""
    return read_json(RECORD)[name]


@dataclass(frozen=True)
class Run:
    """Hold the size of a trained model, its number of training tokens, and its held-out loss in nats per token."""

    parameters: int
    tokens: int
    loss: float


def law_runs(seed: int | None = None) -> tuple[list[Run], list[Run], float]:
    """Return the recorded runs for fitting a law, the runs that it has to predict, and the grammar's own loss.

    seed: use only the runs of this seed.
    """
    record = recorded("scaling")
    runs: dict[bool, list[Run]] = {True: [], False: []}
    for run in record["runs"]:
        if seed is not None and run["seed"] != seed:
            continue
        runs[run["d_model"] in SCALES].append(Run(run["parameters"], run["tokens"], run["loss"]))
    return runs[True], runs[False], record["grammar"]


@cache
def shipped_run() -> Run:
    """Return the model that ships with the course. On average it saw a hundred times more tokens than the small
    models."""
    kept, config = shipped_figures("tinytown"), preset("tinytown")
    recipe = kept["recipe"]
    tokens = recipe["steps"] * recipe["batch_size"] * config.max_seq_len
    return Run(count_parameters(config).total, tokens, kept["figures"]["loss"])


@dataclass(frozen=True)
class PowerLaw:
    """A power law: loss = floor + A · parameters^−a + B · tokens^−b. The floor is the entropy, or 0 for a law without
    one.

    Source: Hoffmann et al. 2022, eq. 2. They also fit the floor; here it is known.
    """

    A: float
    a: float
    B: float
    b: float
    floor: float

    @staticmethod
    def fitted(runs: Sequence[Run], floor: float) -> "PowerLaw":
        """Return the law with the smallest mean square of relative errors in the loss above the floor. The exponents
        are found by trying, A and B by least squares."""
        parameters, tokens, losses = torch.tensor(
            [[run.parameters, run.tokens, run.loss] for run in runs], dtype=torch.float64
        ).T
        exponents = torch.arange(1, 251, dtype=torch.float64) / 100  # (E,)
        # Relative errors: each term is divided by the loss above the floor, so the two should add up to 1.
        columns = [sizes[:, None] ** -exponents / (losses - floor)[:, None] for sizes in (parameters, tokens)]
        lengths = [column.norm(dim=0) for column in columns]  # (E,) each
        x, y = (column / length for column, length in zip(columns, lengths))  # (runs, E) of unit length
        together = x.T @ y  # (E, E): one exponent down, the other across
        to_x, to_y = x.sum(dim=0)[:, None], y.sum(dim=0)[None]
        apart = 1 - together**2
        along_x, along_y = (to_x - together * to_y) / apart, (to_y - together * to_x) / apart  # least squares of two
        error = len(runs) - along_x * to_x - along_y * to_y
        error[(along_x < 0) | (along_y < 0) | (apart < 1e-9)] = math.inf
        i, j = divmod(int(error.argmin()), len(exponents))
        if not error[i, j].isfinite():
            raise ValueError("no power law fits: the loss must fall with more parameters or with more tokens")
        A, B = (along_x[i, j] / lengths[0][i]).item(), (along_y[i, j] / lengths[1][j]).item()
        return PowerLaw(A, exponents[i].item(), B, exponents[j].item(), floor)

    def best_size(self, compute: float) -> tuple[float, float]:
        """Return (parameters, tokens) with the lowest loss among those that cost 6 · parameters · tokens = compute.

        Source: Hoffmann et al. 2022, eq. 4.
        """
        ratio = (self.a * self.A / (self.b * self.B)) ** (1 / (self.a + self.b))
        parameters = ratio * (compute / 6) ** (self.b / (self.a + self.b))
        return parameters, compute / 6 / parameters

    def __call__(self, parameters: float, tokens: float) -> float:
        return self.floor + self.A * parameters**-self.a + self.B * tokens**-self.b


@dataclass(frozen=True)
class Predicted:
    """Hold a model that was not used for fitting a law, with its loss and the law's prediction."""

    name: str
    parameters: int
    tokens: int
    loss: float
    predicted: float


def unseen(law: PowerLaw) -> list[Predicted]:
    """Return the two models that the law has not seen: one of 64 features, and the one that ships with the course.

    The second was measured on other stories than the runs. So its loss is moved to the law's floor, and its difference
    from the entropy stays the same.
    """
    _, same, _ = law_runs()
    wider = Run(same[0].parameters, same[0].tokens, statistics.fmean(run.loss for run in same))
    shipped = shipped_run()
    above = shipped.loss - Tinytown().entropy()
    return [
        Predicted(name, run.parameters, run.tokens, loss, law(run.parameters, run.tokens))
        for name, run, loss in (("64 features", wider, wider.loss), ("shipped model", shipped, law.floor + above))
    ]


def by_width(runs: Sequence[Run], law: PowerLaw) -> tuple[dict[str, list], dict[str, list]]:
    """Return the runs of each width as (tokens, loss), and the law's line for the same width."""
    points, lines = {}, {}
    for d_model, n in zip(SCALES, sorted({run.parameters for run in runs})):
        points[f"d_model {d_model}"] = [(run.tokens, run.loss) for run in runs if run.parameters == n]
        lines[f"d_model {d_model}"] = [(t, law(n, t)) for t in (60_000 * 2**i for i in range(5))]
    return points, lines


Plane = tuple[list[float], list[float], list[list[float]]]


def plane(law: PowerLaw) -> Plane:
    """Return parameters (n), tokens (m), and the law's prediction for each pair above its floor (n, m), for a map."""
    sizes, tokens = ([10 ** (low + i / 12) for i in range(12 * 4)] for low in (3, 4.5))
    return sizes, tokens, [[law(n, t) - law.floor for t in tokens] for n in sizes]
