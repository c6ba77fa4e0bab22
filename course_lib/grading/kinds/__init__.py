"""The kinds of exercises, each with its own fields and its own way to judge."""

from .base import Exercise
from .choice import Choice
from .code import Code, Experiment
from .number import Number
from .reflection import Reflection
from .shapes import Shapes

KINDS = {kind.kind: kind for kind in (Code, Experiment, Number, Shapes, Choice, Reflection)}

__all__ = ["KINDS", "Choice", "Code", "Exercise", "Experiment", "Number", "Reflection", "Shapes"]
