"""One or several of the options, each with its reason."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..exercise import Option
from ..result import Result
from .base import Exercise


@dataclass(frozen=True, kw_only=True, eq=False)
class Choice(Exercise):
    """Options of which some are right: the answer is the key of one, or several in braces."""

    kind = "choice"
    options: Sequence[Option] = ()

    def __post_init__(self):
        super().__post_init__()
        keys = [option.key for option in self.options]
        self.require(len(keys) == len(set(keys)), f"option keys must differ, got {keys}")
        self.require(len({option.right for option in self.options}) == 2, "options need a right one and a wrong one")

    def judge_value(self, answer: Any) -> Result:
        """Return the verdict, with the reason of every wrong option that was picked, or of every right one."""
        keys = ", ".join(repr(option.key) for option in self.options)
        known = {option.key for option in self.options}
        picks = (
            [answer]
            if isinstance(answer, str)
            else list(answer)
            if isinstance(answer, (tuple, list, frozenset))
            else []
        )
        if not picks or not all(isinstance(pick, str) for pick in picks):
            return self.verdict("failed", [f"Answer with the key of an option, or several in braces: {keys}."])
        unknown = sorted({pick for pick in picks if pick not in known})
        if unknown:
            return self.verdict("failed", [f"There is no option {unknown[0]!r}. Choose from {keys}."])
        picked = [option for option in self.options if option.key in picks]
        wrong = [option for option in picked if not option.right]
        if wrong:
            reasons = [f"{option.key}: {option.text} — {option.why}" for option in wrong]
            return self.verdict("failed", reasons, misconception=wrong[0].text)
        if len(picked) < sum(option.right for option in self.options):
            return self.verdict("failed", ["Nothing that you picked is wrong, but something is missing."])
        return self.verdict("passed", [f"{option.key}: {option.text} — {option.why}" for option in picked])
