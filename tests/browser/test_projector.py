"""JupyterLab as `start --projector` opens it: type and figures that can be read from the last row."""

from course_lib.cli.start import LARGE_TYPE

THEMES = "@jupyterlab/apputils-extension:themes"
FIGURE = """import os
if large: os.environ["COURSE_ENLARGED"] = "1.45"
from course_lib.live import show
from course_lib.live.drawing import new_figure
show(new_figure(5, 2)[0], "Nothing is drawn on these axes, which are empty.")"""


def sizes(lab, name):
    """The type of code, and the width of a figure, in pixels."""
    large = name == "large.ipynb"
    page = lab.open(lab.write(name, f"large = {large}", FIGURE))
    lab.run(page)
    code = page.locator(".cm-content").first.evaluate("(box) => parseFloat(getComputedStyle(box).fontSize)")
    width = page.locator(".jp-OutputArea img").first.bounding_box()["width"]
    page.close()
    return code, width


def test_type_and_figures_are_larger(lab):
    code, width = sizes(lab, "usual.ipynb")
    lab.set(THEMES, overrides=LARGE_TYPE)
    try:
        large_code, large_width = sizes(lab, "large.ipynb")
    finally:
        lab.set(THEMES)
    assert large_code == float(LARGE_TYPE["code-font-size"].removesuffix("px")) > 1.4 * code
    assert large_width > 1.4 * width
