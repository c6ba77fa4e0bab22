"""Every exercise of the course, one module per chapter, named as the chapter. To write one: `grading/exercise.py`."""

import difflib
import importlib
import pkgutil

from ..exercise import Exercise


def _collect() -> dict[str, Exercise]:
    """The `EXERCISES` of every module in this folder, in chapter order."""
    found: list[Exercise] = []
    for module in pkgutil.iter_modules(__path__):
        chapter = importlib.import_module(f"{__name__}.{module.name}").EXERCISES
        for exercise in chapter:
            if not exercise.id.startswith(f"{module.name}."):
                raise ValueError(
                    f"exercise {exercise.id!r} stands in catalogue/{module.name}.py: its id must begin {module.name}."
                )
        found.extend(chapter)
    found.sort(key=lambda exercise: exercise.chapter)  # stable: within a chapter the order of the file
    exercises = {exercise.id: exercise for exercise in found}
    if len(exercises) != len(found):
        raise ValueError(f"two exercises share an id among {sorted(exercise.id for exercise in found)}")
    return exercises


EXERCISES = _collect()


def get(exercise_id: str) -> Exercise:
    """The exercise with this id. Errors: KeyError for an unknown id, with the nearest ids."""
    if isinstance(exercise_id, str) and exercise_id in EXERCISES:
        return EXERCISES[exercise_id]
    nearest = difflib.get_close_matches(str(exercise_id), EXERCISES, n=3, cutoff=0.5)
    advice = f"Did you mean {' or '.join(map(repr, nearest))}?" if nearest else "progress() lists every exercise."
    raise KeyError(f"there is no exercise {exercise_id!r}. {advice}")
