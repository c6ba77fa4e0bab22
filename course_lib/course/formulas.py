"""Formulas in the texts of the course, such as $\\sqrt{d_k}$: drawn on a page, readable where there is only text."""

import re
from collections.abc import Callable

IN_TEXT = re.compile(r"\$(?!\s)([^$\n]+?)(?<!\s)\$")
FUNCTION = r"\\(?:ln|exp|sin|cos)\b"
# What to replace, in this order, where only text can be shown: on a button, in a terminal.
AS_TEXT = (
    (r"\\sqrt\{([^{}]*)\}", r"√\1"),
    (r"\\text\{([^{}]*)\}", r"\1"),
    (r"\^\{?\\top\}?", "ᵀ"),
    (r"\^2", "²"),
    (r"\\cdot", "·"),
    (r"\\times", "×"),
    (r"\\theta", "θ"),
    (r"\\pi", "π"),
    (r"\\(ln|exp|sin|cos)", r"\1"),
    (r"\^\{([^{}]*)\}", r"^(\1)"),
    (r"[{}]", ""),
)


def text_of(tex: str) -> str:
    r"""Return a formula as plain text: `\sqrt{d_k}` is √d_k."""
    for pattern, instead in AS_TEXT:
        tex = re.sub(pattern, instead, tex)
    return tex


def html_of(tex: str) -> str:
    """Return a formula as MathML, which browsers draw without MathJax: widgets and reports have none."""
    from latex2mathml.converter import convert  # only where a formula is shown: it takes 30 ms

    # The thin spaces around a function's name, which TeX sets by itself: cos a sin b.
    tex = re.sub(rf"(?<=\w) *(?={FUNCTION})", r"\\,", tex)
    tex = re.sub(rf"({FUNCTION})(?= *[\w\\])", r"\1\\,", tex)
    return convert(tex)


def replaced(text: str, formula: Callable[[str], str]) -> str:
    """Return the text with each formula replaced by `formula`, such as `text_of`. Code between backticks stays."""
    parts = re.split(r"(`[^`\n]*`)", text)  # code has an odd number
    return "".join(
        part if i % 2 else IN_TEXT.sub(lambda found: formula(found[1]), part) for i, part in enumerate(parts)
    )
