"""How the tests of chapter 10 build an argument that is not plain data: see `grading/fixtures.py`."""

from course_lib.config import TransformerConfig


def make_config(fields: dict) -> TransformerConfig:
    """Return a TransformerConfig with these fields."""
    return TransformerConfig(**fields)
