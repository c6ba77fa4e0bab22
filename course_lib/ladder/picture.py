"""The picture of the ladder: the loss of each rung, and the entropy, which no honest predictor can beat."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from course_lib.ladder.rungs import Height, Rung
from course_lib.live.drawing import new_figure
from course_lib.live.palette import BLUE, FONT, GREY, INK, LIGHT, ORANGE, RED, WIDE

END = 2.25  # nats; larger losses are shown at the edge, with their number


@dataclass(frozen=True)
class Ladder:
    """Hold the content of the picture.

    Fields: rungs, from the lowest; heights, the recorded results by id; yours, your own results by id; here, the
    chapter whose rungs are highlighted.
    """

    rungs: Sequence[Rung]
    heights: Mapping[str, Height]
    yours: Mapping[str, Height]
    here: str = ""

    @property
    def title(self) -> str:
        """Return the title of the picture, which is its message."""
        above = {rung.id: self.heights[rung.id].above for rung in self.rungs if rung.id in self.heights}
        if min(above.values()) < 0:
            return "One model is below the entropy, which no honest predictor can beat"
        first, *_, last = [self.heights[rung.id] for rung in self.rungs if not rung.aside and rung.honest] * 2
        if len(above) == 1:
            return f"The lowest rung: {first.above:.2f} nats above the entropy"
        return f"The loss falls from {first.mean:.2f} to {last.mean:.2f} nats, {last.above:.2f} above the entropy"

    def lines(self) -> list[str]:
        """Return the picture as text, one line for each rung."""
        known = [rung for rung in self.rungs if rung.id in self.heights]
        width = max(len(rung.label) for rung in known)
        return [f"{rung.label:<{width}}  {told(self.heights[rung.id])}" for rung in known]


def told(height: Height) -> str:
    """Return a height as text: nats, the difference from the entropy, and the value for each seed."""
    side = "above" if height.above >= 0 else "BELOW"
    digits = height.digits
    seeds = ", ".join(f"{nats:.{digits}f}" for nats in height.nats)
    each = f" (seeds: {seeds})" if len(height.nats) > 1 else ""
    return f"{height.mean:.{digits}f} nats, {abs(height.above):.{digits}f} {side} the entropy{each}"


def draw(ladder: Ladder) -> Figure:
    """Draw the rungs from top to bottom, the lowest first."""
    rungs = [rung for rung in ladder.rungs if rung.id in ladder.heights]
    figure, axes = new_figure(WIDE, 1.35 + 0.265 * len(rungs))
    figure.suptitle(ladder.title, fontsize=FONT + 1.5, x=0.01, ha="left")
    grammar = next(iter(ladder.heights.values())).grammar
    axes.plot([grammar] * 2, [-0.6, len(rungs) - 0.4], color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
    axes.text(grammar, -0.68, f"entropy {grammar:.2f}", ha="center", va="bottom", fontsize=FONT - 1.5, color=INK)
    for row, rung in enumerate(rungs):
        height = ladder.heights[rung.id]
        here = rung.chapter == ladder.here
        color = RED if rung.aside else BLUE
        if here:
            axes.axhspan(row - 0.5, row + 0.5, color=LIGHT, zorder=0, linewidth=0)
        axes.plot([grammar, min(height.mean, END)], [row, row], color=color, linewidth=2.5 if here else 1.5, zorder=2)
        within = [nats for nats in height.nats if nats <= END]
        axes.plot(within, [row] * len(within), "|", color=color, markersize=9, zorder=3)
        marker = "D" if rung.aside else "o"
        beyond = len(height.nats) - len(within)
        if height.mean <= END:
            face = color if rung.honest else "white"
            axes.plot(height.mean, row, marker, color=color, markerfacecolor=face, markersize=7, zorder=4)
        note = f"{height.mean:.{height.digits}f}"
        if beyond:
            note = f"{beyond} of {len(height.nats)} at {max(height.nats):.2f} →"
        right = min(max(height.mean, *height.nats, grammar) if not beyond else END, END)
        if yours := ladder.yours.get(rung.id):
            right = max(right, min(yours.mean, END))
            axes.plot(min(yours.mean, END), row, "*", color=ORANGE, markeredgecolor=INK, markersize=13, zorder=5)
            note += f"   ★ yours {yours.mean:.2f}" + (", own parts" if yours.own else "")
        x, side = (END + 0.05, "right") if beyond else (right + 0.05, "left")
        text = axes.text(x, row + 0.02, note, ha=side, va="center", fontsize=FONT - 1, color=INK, zorder=6)
        if beyond:  # keep the text readable on the line that leaves the picture
            text.set_bbox({"facecolor": LIGHT if here else "white", "edgecolor": "none", "pad": 1.5})
    axes.set_yticks(range(len(rungs)), [rung.label for rung in rungs], fontsize=FONT - 0.5)
    for label, rung in zip(axes.get_yticklabels(), rungs):
        label.set_color(GREY if rung.aside else INK)
        label.set_fontstyle("italic" if rung.aside else "normal")
        label.set_fontweight("bold" if rung.chapter == ladder.here and not rung.aside else "normal")
    axes.set_ylim(len(rungs) - 0.4, -0.75)
    axes.set_xlim(0, END + 0.1)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    caption = "nats per token on held-out stories, one mark | for each seed"
    if not all(rung.honest for rung in rungs):
        # Chapters 0 and 2 leave the reason open; chapter 3 explains it.
        riddle = ladder.here in ("", "attention")
        why = "chapter 3 says why it does not count" if riddle else "it sees later tokens, so it is no honest predictor"
        caption += f"\nhollow: {why}"
    axes.set_xlabel(caption, fontsize=FONT - 1.5, x=0.35)
    return figure
