"""Figures and live figures.

`figures` holds pure functions, one module per chapter: data in, `matplotlib.figure.Figure` out. `widgets` puts sliders
in front of them. Importing `course_lib` imports none of this: `from course_lib import viz` does.
"""

from course_lib.viz.live import LiveFigure, Predict, show, source
from course_lib.viz.widgets import explorable, explore

__all__ = ["LiveFigure", "Predict", "explorable", "explore", "show", "source"]
