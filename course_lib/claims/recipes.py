"""Recipes: how each model that ships with the course was trained, so that anybody can train it again.

A recipe is a function recipe(folder, progress) that trains from nothing and writes the model to the folder. It is
resumable, or takes less than two minutes.
"""

from collections.abc import Callable
from pathlib import Path

from course_lib.claims.experiments import load_claims

_RECIPES: dict[str, Callable[[Path, bool], object]] = {}


def recipes() -> dict[str, Callable[[Path, bool], object]]:
    """Return every recipe, by the name of the model that it trains: those of the chapters too."""
    load_claims()
    return _RECIPES


def recipe(name: str) -> Callable[[Callable], Callable]:
    """Decorator: the function below trains the shipped model of that name (`load_pretrained(name)`).

    Errors: ValueError if the name is taken.
    """

    def register(train: Callable) -> Callable:
        if name in _RECIPES:
            raise ValueError(f"there are two recipes for {name!r}: choose another name")
        _RECIPES[name] = train
        return train

    return register
