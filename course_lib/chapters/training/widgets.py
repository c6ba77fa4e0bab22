"""Live figures of chapter 12: the schedule with sliders, and a loss curve that grows during training."""

import html
import math
from collections.abc import Callable

import ipywidgets as widgets
from matplotlib.figure import Figure
from torch import Tensor

from course_lib.chapters.training import claims as training
from course_lib.chapters.training import figures
from course_lib.chapters.training.records import recorded
from course_lib.live.attempts import UNWRITTEN, went_wrong
from course_lib.live.figure import NARROW, LiveFigure, as_html, as_widget, png, slider
from course_lib.live.page import publish
from course_lib.tinytown import Tinytown, WordTokenizer
from course_lib.training import learning_rate, make_optimizer

# The web edition records these figures: call -> the control whose values it records one by one.
RECORDED = {"schedule_sliders": "warmup", "ability_slider": "at"}

HIGHEST = 0.01


def schedule_sliders() -> LiveFigure:
    """Show sliders for the peak, warm-up, length and floor of the schedule, and its value at one step."""

    def rates(peak, warmup, total, floor):
        """Return (the drawn steps, the rate at each): at most 300 steps, including the last one."""
        steps = sorted({*range(0, total + 1, max(1, total // 200)), warmup, total})
        return steps, [learning_rate(step, peak, warmup, total, floor * peak) for step in steps]

    def read(peak, warmup, total, floor, at):
        warmup, step = min(warmup, total - 1), round(at * total / 100)
        return warmup, step, learning_rate(step, peak, warmup, total, floor * peak)

    def draw(peak, warmup, total, floor, at):
        warmup, step, rate = read(peak, warmup, total, floor, at)
        steps, drawn = rates(peak, warmup, total, floor)
        return figures.Schedule(steps, drawn, warmup, step, rate, HIGHEST)

    def describe(peak, warmup, total, floor, at):
        held = " (all the steps there are)" * (warmup >= total)
        warmup, step, rate = read(peak, warmup, total, floor, at)
        mean = (
            warmup / 2 + (total - warmup) * (1 + floor) / 2
        ) / total  # a triangle, then half a cosine above the floor
        return (
            f"{total} steps, warm-up {warmup}{held}: the rate climbs to {peak:.4f} and ends at {floor * peak:.4f}. "
            f"Step {step}: {rate:.4f}. Mean over the run: {mean:.0%} of the peak."
        )

    controls = {
        "peak": slider("peak", 0.003, 0.0005, HIGHEST, 0.0005),
        "warmup": slider("warm-up steps", 100, 0, 500, 25),
        "total": slider("total steps", 1000, 100, 3000, 100),
        "floor": slider("floor (fraction of peak)", 0.0, 0.0, 1.0, 0.05),
        "at": slider("look at (% of the steps)", 30, 0, 100, 5),
    }
    controls["peak"].readout_format = ".4f"
    for control in controls.values():
        control.layout.width = "410px"  # two of them side by side
    return LiveFigure(draw, controls, describe)


def ability_slider(seed: int = 0) -> LiveFigure:
    """Show the abilities of a recorded training run at each step, next to its loss; the seed is one of the record's."""
    record, entropy = recorded("abilities"), Tinytown().entropy()
    steps, run = record["steps"], record[f"seed {seed}"]

    def draw(at):
        return figures.Abilities(steps, run["loss"], run["right"], entropy, steps.index(at))

    def describe(at):
        i = steps.index(at)
        shares = ", ".join(f"{name} {shares[i]:.0%}" for name, shares in run["right"].items())
        return f"After {at:,} steps the loss is {run['loss'][i]:.2f} nats. Correct: {shares}."

    at = widgets.SelectionSlider(options=steps, value=steps[len(steps) // 2], description="training step")
    return LiveFigure(draw, {"at": at}, describe)


class LiveCurve(widgets.VBox):
    """Show a loss curve and a progress bar that grow during training: show them, then call `add(step, loss)` from
    `on_step`.

    Args:
        entropy: the loss in nats per token that no model can beat.
        guessing: ln V, where an untrained model starts.
        total: steps of the training run.
    """

    def __init__(self, entropy: float, guessing: float, total: int):
        self._limits = entropy, total, guessing
        self.steps: list[int] = []
        self.losses: list[float] = []
        self.drawing = figures.LossCurve(self.steps, self.losses, *self._limits).draw()
        self._image = as_widget(png(self.figure), self.figure)
        width = self._image.layout.width
        bar = widgets.Layout(width=width, max_width=NARROW)
        self._bar = widgets.IntProgress(max=total, description="training", layout=bar)
        self._caption = widgets.HTML()
        self._write()
        super().__init__([self._image, self._bar, self._caption])

    def add(self, step: int, loss: float) -> None:
        """Add one point, and draw it at once."""
        self.steps.append(step)
        self.losses.append(loss)
        self.drawing.update(steps=self.steps, losses=self.losses)
        self._image.value = png(self.figure)
        self._bar.value = step
        self._write()

    @property
    def figure(self) -> Figure:
        """Return the figure, which is the same object at every step."""
        return self.drawing.figure

    @property
    def text(self) -> str:
        """Return what the curve shows now in words, for readers who do not see it."""
        return self.drawing.headline.get_text()

    def _write(self) -> None:
        self._caption.value = f'<div role="status">{html.escape(self.text)}</div>'

    def __repr__(self) -> str:
        entropy, total, guessing = self._limits
        return f"[live curve: {total} steps] It starts near {guessing:.1f} nats per token; the limit is {entropy:.2f}."

    @property
    def still(self) -> str:
        """Return the curve and the words under it as HTML that needs no kernel."""
        return as_html(self._image.value, self.figure, repr(self), self._caption.value)

    def _ipython_display_(self) -> None:
        publish(self, self.still, repr(self))


# ---------------------------------------------------------------------------------- the learner's own schedule and step
def schedule_explorer(function: Callable) -> LiveFigure:
    """Show your `learning_rate(step, peak, warmup, total, floor)` as a line, with the library's behind it, dashed."""

    def measure(peak, warmup, total, floor, at):
        """Return (steps, your rates, correct rates, the marked step, your rate there, what went wrong)."""
        warmup, read = min(warmup, total - 1), round(at * total / 100)
        steps = sorted({*range(0, total + 1, max(1, total // 200)), warmup, total, read})
        right = [learning_rate(step, peak, warmup, total, floor * peak) for step in steps]
        yours, problem = [], ""
        for step in steps:
            rate, said = _number(function, step, peak, warmup, total, floor * peak)
            yours.append(rate)
            problem = problem or _at(step, said)
        return steps, yours, right, read, yours[steps.index(read)], problem

    def draw(peak, warmup, total, floor, at):
        steps, yours, right, read, rate, _ = measure(peak, warmup, total, floor, at)
        drawn = any(map(math.isfinite, yours))
        title = f"{'Your schedule (line) and the' if drawn else 'No schedule of yours yet: the'} library's (dashed)"
        return figures.Schedule(steps, yours, min(warmup, total - 1), read, rate, HIGHEST, right, title)

    def describe(peak, warmup, total, floor, at):
        steps, yours, right, read, rate, problem = measure(peak, warmup, total, floor, at)
        if problem:
            return problem
        apart = [step for step, one, other in zip(steps, yours, right) if abs(one - other) > 1e-6 * peak]
        here = f"Step {read}: yours is {rate:.4g}, the library's {right[steps.index(read)]:.4g}."
        if not apart:
            return f"{here} The two agree at all steps."
        return f"{here} They differ at {len(apart)} of the {len(steps)} steps drawn, first at step {apart[0]}."

    controls = {
        "peak": slider("peak", 0.003, 0.0005, HIGHEST, 0.0005),
        "warmup": slider("warm-up steps", 100, 0, 500, 25),
        "total": slider("total steps", 1000, 100, 3000, 100),
        "floor": slider("floor (fraction of peak)", 0.2, 0.0, 1.0, 0.05),
        "at": slider("look at (% of the steps)", 30, 0, 100, 5),
    }
    controls["peak"].readout_format = ".4f"
    return LiveFigure(draw, controls, describe)


STEPS = 40


def step_explorer(function: Callable) -> LiveFigure:
    """Show forty of your `training_step(model, ids, targets, optimizer, max_norm)` on Tinytown, once per setting."""
    entropy, guessing = Tinytown().entropy(), math.log(len(WordTokenizer()))
    trained: dict[tuple, tuple] = {}

    def measure(rate, max_norm):
        """Return (measured steps, losses on new stories, losses that your function returned, what went wrong)."""
        if (rate, max_norm) not in trained:
            model, batches = training.small_model(d_model=16), training.story_batches(8)
            optimizer = make_optimizer(model)
            for group in optimizer.param_groups:
                group["lr"] = rate
            at, new, losses, problem = [0], [training.held_out_loss(model, 20)], [], ""
            for step in range(1, STEPS + 1):
                loss, problem = _number(function, model, *next(batches), optimizer, max_norm)
                if problem:
                    problem = _at(step, problem)
                    break
                losses.append(loss)
                if step % 10 == 0:
                    at.append(step)
                    new.append(training.held_out_loss(model, 20))
            trained[rate, max_norm] = at, new, losses, problem
        return trained[rate, max_norm]

    def draw(rate, max_norm):
        at, new, losses, _ = measure(rate, max_norm)
        return figures.LossCurve(at, new, entropy, STEPS, guessing, losses)

    def describe(rate, max_norm):
        _, new, losses, problem = measure(rate, max_norm)
        if problem:
            return problem
        text = f"{STEPS} of your steps, learning rate {rate:g}, gradients clipped to {max_norm:g}: "
        if not math.isfinite(new[-1]):
            return f"{text}the loss on new stories is no longer a number."
        if abs(losses[0] - new[0]) > 0.5:
            return f"{text}the first loss that you return, {losses[0]:.1f}, is not the model's, about {new[0]:.1f}."
        if new[-1] == new[0]:
            return f"{text}the loss on new stories has not changed: no parameter has moved."
        moved = "fell" if new[-1] < new[0] else "rose"
        return f"{text}the loss on new stories {moved} from {new[0]:.1f} to {new[-1]:.1f} nats per token."

    controls = {
        "rate": widgets.SelectionSlider(
            options=[0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3], value=0.01, description="learning rate"
        ),
        "max_norm": widgets.SelectionSlider(
            options=[0.001, 0.01, 0.1, 1.0, 10.0, 100.0], value=1.0, description="max_norm"
        ),
    }
    return LiveFigure(draw, controls, describe)


def _at(step: int, said: str) -> str:
    """Return what went wrong and at which step, or an empty text."""
    return f"At step {step}: {said}" if said and said != UNWRITTEN else said


def _number(function: Callable, *args) -> tuple[float, str]:
    """Return (the result of the learner's function, "") or (NaN, what happened instead)."""
    try:
        value = function(*args)
    except Exception as error:
        return math.nan, went_wrong(error)
    try:
        number = float(value.detach() if isinstance(value, Tensor) else value)
    except Exception:
        return math.nan, f"Your function should return a number; it returned one {type(value).__name__}."
    return (number, "") if math.isfinite(number) else (math.nan, f"Your function returned {number}.")


EXPLORERS = {"training.learning_rate": schedule_explorer, "training.step": step_explorer}
