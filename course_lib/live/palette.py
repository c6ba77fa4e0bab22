"""The colours and sizes of all figures, so that a thing looks the same in every chapter."""

# Okabe & Ito's palette, which stays distinct for colour-blind readers; meaning never rides on colour alone.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#D55E00",
    "#CC79A7",
    "#56B4E9",
    "#F0E442",
)
GREY, LIGHT, INK = "#7F7F7F", "#E4E4E4", "#222222"
SEQUENTIAL, DIVERGING = "viridis", "RdBu_r"

FONT, TITLE = 11, 12.5  # points
WIDE = 8.4  # inches: fits a 1280-pixel JupyterLab with its file browser open
