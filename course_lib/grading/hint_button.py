"""The next hint of an exercise on a button, below the feedback in a notebook. Hints taken are counted."""

from course_lib.grading.kinds import Exercise
from course_lib.grading.learner_progress import next_hint
from course_lib.grading.page.catalogue import EXERCISES, get
from course_lib.live.page import publish


def show_button(exercise_id: str) -> None:
    """Show the button where there is a kernel that can answer it; elsewhere nothing: the feedback names `hint`."""
    from IPython import get_ipython

    if getattr(get_ipython(), "kernel", None) is None or exercise_id not in EXERCISES:
        return
    try:
        box = hint_button(get(exercise_id))
    except ImportError:  # ipywidgets is not there
        return
    _, place = box.children
    # A page that is read later shows the hints that were taken, and no trace of a button that cannot be pressed.
    keep = publish(box, "", "")
    place.observe(lambda change: keep(change.new, ""), names="value")


def hint_button(exercise: Exercise):
    """A button and a place below it, where each press adds the next hint."""
    from ipywidgets import HTML, Button, Layout, VBox

    button = Button(description="Next hint", layout=Layout(width="max-content"))
    place = HTML()

    shown: set[int] = set()

    def press(_) -> None:
        hint = next_hint(exercise)
        while hint.number in shown and hint.number < hint.of:  # it came before its turn
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
