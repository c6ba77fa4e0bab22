"""An open question: the learner writes an answer, then compares it with a model answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from course_lib.grading.judge.show import plural
from course_lib.grading.kinds.base import Exercise, kind_of_value
from course_lib.grading.result import Result


@dataclass(frozen=True, kw_only=True, eq=False)
class Reflection(Exercise):
    """A question without points. After writing, the learner sees the model answer and the rubric."""

    kind = "reflect"
    model_answer: str = ""
    rubric: Sequence[str] = ()
    min_words: int = 20

    def __post_init__(self):
        super().__post_init__()
        self.require(self.model_answer and self.rubric, "a reflect exercise needs model_answer and rubric")

    def require_points(self) -> None:
        """Raise an error if there are any points."""
        self.require(self.points == 0, "a reflect exercise has no points")

    def judge_value(self, answer: Any) -> Result:
        """Return the model answer with its rubric, once the learner has written enough words."""
        if not isinstance(answer, str):
            return self.verdict("unanswered", [f"Write your thoughts as text; this is {kind_of_value(answer)}."])
        words = len(answer.split())
        if words < self.min_words:
            sentence = (
                f"Write a little more first: you have {plural(words, 'word')}, and need at least {self.min_words}."
            )
            return self.verdict("unanswered", [sentence, "Then you will see a model answer to compare with."])
        points = [f"□ {point}" for point in self.rubric]
        return self.verdict(
            "written", [f"A model answer: {self.model_answer}", "Compare it with your text. Does yours say:", *points]
        )
