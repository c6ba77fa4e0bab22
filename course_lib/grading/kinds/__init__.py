"""The kinds of exercises, each with its own fields and its own way to judge."""

from course_lib.grading.kinds.base import Exercise
from course_lib.grading.kinds.choice import Choice
from course_lib.grading.kinds.code import Code, Experiment
from course_lib.grading.kinds.file import File
from course_lib.grading.kinds.number import Number
from course_lib.grading.kinds.reflection import Reflection
from course_lib.grading.kinds.shapes import Shapes

KINDS = {kind.kind: kind for kind in (Code, Experiment, File, Number, Shapes, Choice, Reflection)}

__all__ = ["KINDS", "Choice", "Code", "Exercise", "Experiment", "File", "Number", "Reflection", "Shapes"]
