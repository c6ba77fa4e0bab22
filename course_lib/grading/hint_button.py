"""A button with the next hint of an exercise, below the feedback in a notebook. The hints taken are counted."""

from course_lib.grading.kinds import Exercise
from course_lib.grading.learner_progress import next_hint
from course_lib.grading.page.catalogue import EXERCISES, get
from course_lib.live.page import publish


def show_button(exercise_id: str) -> None:
    """Show the button if a kernel can answer it; elsewhere, show nothing, because the feedback mentions `hint`."""
    from IPython import get_ipython

    if getattr(get_ipython(), "kernel", None) is None or exercise_id not in EXERCISES:
        return
    try:
        box = hint_button(get(exercise_id))
    except ImportError:  # ipywidgets is not installed
        return
    _, place = box.children
    # A page that is read later shows the hints taken, and no button, because it would not work.
    keep = publish(box, "", "")
    place.observe(lambda change: keep(change.new, ""), names="value")


def hint_button(exercise: Exercise):
    """Return a button and an area below it. Each press adds the next hint there."""
    from ipywidgets import HTML, Button, Layout, VBox

    button = Button(description="Next hint", layout=Layout(width="max-content"))
    place = HTML()

    shown: set[int] = set()

    def press(_) -> None:
        hint = next_hint(exercise)
        while hint.number in shown and hint.number < hint.of:  # it was shown out of turn
            hint = next_hint(exercise)
        if hint.number not in shown:
            place.value += f'<div style="line-height: 1.45; margin-top: 4px;">{hint._repr_html_()}</div>'
        shown.add(hint.number)
        if not hint.in_turn:  # the others are still there
            return
        left = set(range(hint.number + 1, hint.of + 1)) - shown
        button.description = f"Next hint ({len(left)} left)"
        if not left:
            button.description, button.disabled = "That was the last hint", True

    button.on_click(press)
    return VBox([button, place])
