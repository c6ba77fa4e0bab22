"""What the tests of live figures share: every value that a control can take."""


def values(control) -> list:
    """The options of a list, both states of a checkbox, or every stop of a slider."""
    if hasattr(control, "options"):
        return [option[1] if isinstance(option, tuple) else option for option in control.options]
    if isinstance(control.value, bool):
        return [False, True]
    stops = round((control.max - control.min) / control.step) + 1
    return [type(control.value)(control.min + i * control.step) for i in range(stops)]
