"""What answers of chapter 10 are given that is no plain data, and how they are used: see `grading/fixtures.py`."""

import sys

from course_lib import counting
from course_lib.config import TransformerConfig


def make_config(fields: dict) -> TransformerConfig:
    """Return a TransformerConfig."""
    return TransformerConfig(**fields)


def counted_by_hand(answer, config):
    """Return the count; or in a sentence, that the library counted."""
    seen, before = [], sys.getprofile()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename == counting.__file__:
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        count = answer(config)
    finally:
        sys.setprofile(before)
    return f"counted by the library's own `{seen[0]}`" if seen else count
