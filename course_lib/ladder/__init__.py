"""The ladder: one model grows through the course, and stands after each chapter beside the entropy of its world.

`model` is the model, a switch for each chapter; `rungs` trains and measures it; `picture` draws the ladder; `climb` is
what a chapter shows at its end.

    from course_lib.ladder import climb

    climb("heads")                                      # the ladder up to here, and a button that trains this rung
    climb("masks", mask=mine("masks.causal"))           # with your own part in place of the library's
"""

import importlib

_HOMES = {"RUNGS": "rungs", "climb": "climb", "ladder": "climb", "recorded": "rungs", "train_rung": "rungs"}
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found  # importing the submodule `climb` would put the module in the function's place
    return found
