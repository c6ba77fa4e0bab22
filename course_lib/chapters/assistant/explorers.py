"""The live figure of chapter 16 that a learner's own `best_policy` drives."""

from collections.abc import Callable

import ipywidgets
import numpy as np
import torch
from torch import Tensor

from course_lib.assistant import best_policy
from course_lib.live.attempts import attempt_numbers
from course_lib.live.figure import LiveFigure
from course_lib.live.shared_figures import NextToken

# Five stories that a base model tells, with their rewards. It never tells the last one.
STORIES = ["reward 0", "reward 1", "reward 2", "reward 3", "reward 4, never told"]
BASE, REWARD = torch.tensor([[0.45, 0.30, 0.20, 0.05, 0.0], [0.0, 1.0, 2.0, 3.0, 4.0]])
BETAS = (0.001, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 100.0)


def policy_explorer(function: Callable) -> LiveFigure:
    """Show your `best_policy(base, reward, beta)` as bars, the library's as diamonds, and the base."""

    def yours(beta: float) -> tuple[Tensor | None, str]:
        return attempt_numbers(function, BASE.clone(), REWARD.clone(), beta, shape=(len(STORIES),))

    def draw(beta: float) -> NextToken:
        got, _ = yours(beta)
        shown = np.zeros(len(STORIES)) if got is None else got.double().cpu().numpy().clip(0, 1)
        expected = best_policy(BASE, REWARD, beta).cpu().numpy()
        return NextToken(
            STORIES,
            BASE.cpu().numpy(),
            shown,
            expected,
            model_name="the base",
            now_name="yours",
            truth_name="the library",
            title=f"β = {beta:g}: the best policy has a mean reward of {expected @ REWARD.cpu().numpy():.2f}",
        )

    def describe(beta: float) -> str:
        got, problem = yours(beta)
        if got is None:
            return problem
        if abs(got.sum().item() - 1) > 1e-3:
            return f"Your probabilities sum to {got.sum().item():.3f}; they should sum to 1."
        gap = (got - best_policy(BASE, REWARD, beta)).abs()
        if gap.max() < 1e-5:
            return f"Your function and the library agree for β = {beta:g}."
        return f"Your function differs from the library by up to {gap.max():.3f} for β = {beta:g}."

    options = [(f"{beta:g}", beta) for beta in BETAS]
    controls = {"beta": ipywidgets.SelectionSlider(options=options, value=1.0, description="β, price of a nat")}
    return LiveFigure(draw, controls, describe)


EXPLORERS = {"assistant.optimum": policy_explorer}
