"""The colours and sizes of all figures, so that a thing looks the same in every chapter."""

# After Okabe & Ito's palette, which stays distinct for colour-blind readers, its lighter colours darkened until they can
# be read on white: contrast 4.5 to 1 as words, 3 to 1 as lines and marks for ORANGE and SKY, which no word is written in.
# YELLOW fills areas that have an edge. Meaning never rides on colour alone.
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
