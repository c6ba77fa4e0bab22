"""Live figures of chapter 16: the best model for each price, and a learned reward next to the true one."""

from collections.abc import Sequence

import ipywidgets as widgets
import numpy as np
from torch import Tensor

from course_lib.assistant import add_tokens
from course_lib.chapters.assistant import figures
from course_lib.chapters.assistant.claims import CHAT, tuned
from course_lib.chapters.assistant.explorers import EXPLORERS as EXPLORERS
from course_lib.chapters.assistant.methods import TOKENIZER, Reward, base_model, frontier, good
from course_lib.gpt import DecoderOnly
from course_lib.live.figure import LiveFigure
from course_lib.tinytown import WordTokenizer

# The web edition records these figures: call -> the control whose values it records one by one.
RECORDED = {"live.price": "beta"}


def beginner() -> tuple[DecoderOnly, WordTokenizer]:
    """Return the base model with the two tokens of the chat template, and its tokenizer."""
    return add_tokens(base_model(), 2), CHAT


def fine_tuned() -> tuple[DecoderOnly, WordTokenizer]:
    """Return the model that the chapter fine-tunes on dialogues, and its tokenizer."""
    return tuned(beginner()[0], steps=60, rate=3e-4, seed=0), CHAT


# It shows these models in the glass: name in the notebook -> function that makes the model and its tokenizer.
GLASSES = {"beginner": beginner, "tuned": fine_tuned}

RATE = 0.1  # of the base's stories are good, in round numbers
BETAS = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)


def price() -> LiveFigure:
    """Show the best model for a price of β per nat, when a tenth of the base's stories are good."""

    def draw(beta):
        return figures.Price(RATE, beta)

    def describe(beta):
        share, nats = frontier(RATE, beta)
        return (
            f"The reward is {share:.3f} and the price {beta:g} · {nats:.3f} = {beta * nats:.3f}: "
            f"reward minus price is {share - beta * nats:.3f}."
        )

    options = [(f"{beta:g}", beta) for beta in BETAS]
    controls = {"beta": widgets.SelectionSlider(options=options, value=0.3, description="β, price of a nat")}
    return LiveFigure(draw, controls, describe)


def two_rewards(stories: Sequence[Tensor], reward: Reward) -> LiveFigure:
    """Show what a model told at each step of its training on a reward, and the true reward.

    stories: for each step, the ids (N, T) of its stories.
    """
    earned = np.array([reward(told).mean().item() for told in stories])
    true = np.array([good(told).mean().item() for told in stories])
    texts = [TOKENIZER.decode([i for i in told[0].tolist() if i > TOKENIZER.eos_id]) for told in stories]

    def draw(step):
        return figures.TwoRewards(earned, true, step)

    def describe(step):
        words = texts[step - 1].split()
        cut = " …" if len(words) > 45 else ""
        return f"Its first text at step {step}: {' '.join(words[:45])}{cut}"

    slider = widgets.IntSlider(value=len(stories), min=1, max=len(stories), description="step", continuous_update=True)
    return LiveFigure(draw, {"step": slider}, describe)
