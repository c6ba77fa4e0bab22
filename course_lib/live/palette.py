"""The colours and sizes of all figures, so that the same thing looks the same in every chapter."""

from typing import Any

from matplotlib.colors import to_rgb

# The palette of Okabe & Ito, which colour-blind readers can tell apart, darkened so that it is legible on white.
# BLUE, GREEN, RED, PURPLE and GREY are for words and marks (contrast 4.5 to 1), ORANGE and SKY only for marks (3 to 1).
# YELLOW fills shapes that have an edge. Colour is never the only carrier of meaning.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW = (
    "#0072B2",
    "#C88600",
    "#0B8651",
    "#BC4B00",
    "#955C8F",
    "#409BCE",
    "#F0E442",
)
GREY, LIGHT, INK = "#737373", "#E4E4E4", "#222222"
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"

FONT, TITLE = 11, 12.5  # points
WIDE = 8.4  # inches: fits a 1280-pixel JupyterLab with its file browser open


def ink_on(ground: Any) -> str:
    """Return the colour of words on a background: black or white, whichever has more contrast, at least 4.5 to 1.

    ground: any matplotlib colour. Source: relative luminance and contrast as WCAG 2.2 defines them.
    """
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(ground)]
    luminance = sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear))
    return "black" if luminance > 0.179 else "white"  # where (luminance + 0.05)² = 0.05 · 1.05, the two are equal
