"""The pictures that other sites show next to a link: one for each chapter, one for each claim, one for all other pages.

`Card` has the words, `draw` draws them. The name of a card's file follows from its words and from this module, so
`draw_cards` takes a card that has not changed from the site that was built before.
"""

import hashlib
import io
import shutil
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from PIL import Image

from course_lib.course.contents import BY_SLUG
from course_lib.live.palette import BLUE, GREY, INK, LIGHT

WIDTH, HEIGHT = 1200, 630  # pixels, which Facebook, LinkedIn, Mastodon and Slack show without cutting
DPI = 100
LEFT, RIGHT = 90, 1110  # pixels between which the words are
TOP, BETWEEN = 130, 24  # pixels above the title, and between the title and the words below it
SIZES = (38, 34, 30, 27, 24, 21)  # points, of which the words get the largest that leaves them enough room
COLOURS = 32  # enough for letters with smooth edges
MOTIF = 6  # rows of the causal mask in the corner


@dataclass(frozen=True)
class Card:
    """The words of a card.

    above: the line above the title. title: the claim, or the title of a chapter. below: the question or the source.
    verdict: of a claim; "" for every other page.
    """

    above: str
    title: str
    below: str
    verdict: str = ""

    @property
    def file(self) -> str:
        """Return the name of the picture's file, which changes whenever the picture does."""
        code = Path(__file__).read_bytes()
        return hashlib.sha256(repr(astuple(self)).encode() + code).hexdigest()[:16] + ".png"

    @property
    def alt(self) -> str:
        """Return the words of the picture."""
        verdict = self.verdict and f"verdict: {self.verdict}"
        parts = (part.rstrip(".") for part in (self.above, self.title, self.below, verdict) if part)
        return ". ".join(part[0].upper() + part[1:] for part in parts) + "."


def draw_cards(cards: Iterable[Card], folder: Path, before: Path) -> int:
    """Write the pictures of all cards into an existing folder, and return how many were drawn.

    before: a folder, which may be missing, from which cards that have not changed are copied.
    """
    drawn = 0
    for card in cards:
        target = folder / card.file
        if target.is_file():
            continue
        if (before / card.file).is_file():
            shutil.copy(before / card.file, target)
        else:
            target.write_bytes(draw(card))
            drawn += 1
    return drawn


def draw(card: Card) -> bytes:
    """Return the picture of a card as PNG bytes, 1200 × 630 pixels."""
    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    colour, mark = _marks().get(card.verdict, (BLUE, ""))
    figure.add_artist(Rectangle((0, 0), 28 / WIDTH, 1, color=colour))
    _write(figure, LEFT, 72, card.above, 20, GREY)
    size, title, below = _fitted(canvas.get_renderer(), card, room(card))
    after = _write(figure, LEFT, TOP, title, size, INK, weight="bold")
    _write(figure, LEFT, after + BETWEEN, below, _below(size), GREY)
    if card.verdict:
        figure.add_artist(_line(LEFT, 520, RIGHT, 520))
        spot = Line2D([(LEFT + 20) / WIDTH], [1 - 575 / HEIGHT], marker=mark, color=colour, markersize=22)
        figure.add_artist(spot)
        _write(figure, LEFT + 56, 556, f"verdict: {card.verdict}", 28, INK, weight="bold")
    else:
        _mask(figure)
    buffer = io.BytesIO()
    canvas.print_png(buffer)
    image = Image.open(buffer).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    small = io.BytesIO()
    image.save(small, "png", optimize=True)
    return small.getvalue()


def room(card: Card) -> int:
    """Return how many pixels the title and the words below it may take."""
    return (500 if card.verdict else 360) - TOP


def _marks() -> dict[str, tuple[str, str]]:
    """Return verdict -> its colour and its mark, as in the figures of the chapter on claims."""
    return BY_SLUG["claims"].part("figures").MARKS  # type: ignore[union-attr]


def _below(size: int) -> int:
    return max(18, round(0.62 * size))


def _fitted(renderer: RendererAgg, card: Card, height: int) -> tuple[int, list[str], list[str]]:
    """Return the largest size in points at which title and the words below it fit into the height, and their lines."""
    for size in SIZES:
        title = _lines(renderer, card.title, size, "bold")
        below = _lines(renderer, card.below, _below(size), "normal")
        if _height(size, title, below) <= height:
            break
    return size, title, below


def _height(size: int, title: list[str], below: list[str]) -> float:
    return len(title) * _step(size) + BETWEEN + len(below) * _step(_below(size))


def _lines(renderer: RendererAgg, text: str, size: int, weight: str) -> list[str]:
    """Return the text as lines that are no wider than the card."""
    font = FontProperties(size=size, weight=weight)
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and renderer.get_text_width_height_descent(longer, font, False)[0] <= RIGHT - LEFT:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def _step(size: int) -> float:
    """Return the distance of two lines in pixels."""
    return 1.3 * size * DPI / 72


def _write(
    figure: Figure, x: float, y: float, lines: str | list[str], size: int, colour: str, weight: str = "normal"
) -> float:
    """Write lines from the pixel (x, y) downwards, and return the pixel below them."""
    for line in [lines] if isinstance(lines, str) else lines:
        spot = (x / WIDTH, 1 - y / HEIGHT)
        figure.text(*spot, line, fontsize=size, color=colour, weight=weight, va="top", parse_math=False)
        y += _step(size)
    return y


def _line(x: float, y: float, right: float, below: float) -> Line2D:
    return Line2D([x / WIDTH, right / WIDTH], [1 - y / HEIGHT, 1 - below / HEIGHT], color=LIGHT, linewidth=2)


def _mask(figure: Figure) -> None:
    """Draw a small causal mask in the lower right corner: each row of squares has one more than the row above it."""
    side, gap = 30, 6
    for row in range(MOTIF):
        for column in range(MOTIF):
            x = RIGHT - (MOTIF - column) * (side + gap)
            y = HEIGHT - 40 - (MOTIF - row) * (side + gap)
            alpha = 0.25 + 0.75 * (column + 1) / (row + 1) if column <= row else 1.0
            spot = (x / WIDTH, 1 - (y + side) / HEIGHT)
            seen = {"color": BLUE, "alpha": alpha} if column <= row else {"color": LIGHT}
            figure.add_artist(Rectangle(spot, side / WIDTH, side / HEIGHT, linewidth=0, **seen))
