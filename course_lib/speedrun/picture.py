"""The picture of the speedrun: how far each file ends above the entropy, against the arithmetic of its training."""

from collections.abc import Mapping, Sequence

from matplotlib.figure import Figure

from course_lib.live.drawing import new_figure
from course_lib.live.palette import BLUE, FONT, GREY, INK, ORANGE, WIDE
from course_lib.speedrun.judge import Run, entropy
from course_lib.speedrun.rules import WITHIN
from course_lib.speedrun.table import Record

SMALLEST = 5e-4  # nats: what is closer to the entropy is drawn here


def draw(records: Sequence[Record], own: Mapping[str, Sequence[Run]]) -> Figure:
    """Draw each record, and your own files, as points, one for each seed."""
    figure, axes = new_figure(WIDE, 3.4)
    line = WITHIN * entropy()
    axes.axhline(line, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.text(0.995, line, "within 1% of the entropy", transform=axes.get_yaxis_transform(), ha="right", va="bottom",
              fontsize=FONT - 1.5, color=INK)  # fmt: skip
    shown = {record.name: (record.runs, BLUE) for record in records} | {
        name: (runs, ORANGE) for name, runs in own.items()
    }
    for name, (runs, color) in shown.items():
        x = [run.arithmetic / 1e12 for run in runs]
        y = [max(run.above, SMALLEST) for run in runs]
        axes.plot(x, y, "o", color=color, markersize=5)
        axes.annotate(
            name, (x[0], max(y)), textcoords="offset points", xytext=(0, 6), ha="center", fontsize=FONT - 2, color=color
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("arithmetic of training, in 10¹² operations")
    axes.set_ylabel("nats per token above the grammar")
    axes.tick_params(colors=GREY)
    return figure
