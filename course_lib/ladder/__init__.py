"""The ladder: one model that grows through the course, compared with the entropy of Tinytown after each chapter.

`model` defines the model, with a switch for each chapter. `rungs` trains and measures it, `picture` draws the ladder,
and `climb` is the widget at the end of a chapter.

    from course_lib.ladder import climb

    climb("heads")                                      # the ladder up to here, and a button that trains this rung
    climb("masks", mask=mine("masks.causal"))           # with your own part instead of the library's
"""

import importlib

_HOMES = {"RUNGS": "rungs", "climb": "climb", "ladder": "climb", "recorded": "rungs", "train_rung": "rungs"}
__all__ = list(_HOMES)


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found  # or importing the submodule `climb` would replace the function by the module
    return found
