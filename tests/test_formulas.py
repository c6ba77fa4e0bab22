"""Formulas of guesses and hints: drawn as MathML that a parser reads, and as text without a sign of TeX."""

import re
from xml.etree import ElementTree

import pytest

from course_lib.course.formulas import html_of, replaced, text_of
from course_lib.grading import EXERCISES
from course_lib.grading.result import Hint


@pytest.mark.parametrize(
    ("tex", "tags", "text"),
    [
        (r"\sqrt{d_k}", "math mrow msqrt mrow msub mi mi", "√d_k"),
        (r"W_\text{up}", "math mrow msub mi mtext", "W_up"),
        (r"H \cdot T^2", "math mrow mi mo msup mi mn", "H · T²"),
        (r"p \ln p", "math mrow mi mspace mi mspace mi", "p ln p"),
        (r"10000^{2i/d}", "math mrow msup mn mrow mn mi mo mi", "10000^(2i/d)"),
    ],
)
def test_a_formula_is_drawn_and_readable_as_text(tex, tags, text):
    drawn = ElementTree.fromstring(html_of(tex))
    assert " ".join(each.tag.rpartition("}")[2] for each in drawn.iter()) == tags
    assert text_of(tex) == text


def test_code_and_lone_dollars_stay_as_they_are():
    assert replaced("`$x$` costs $5, and $d_k$ is “$ 5 $”", text_of) == "`$x$` costs $5, and d_k is “$ 5 $”"


def test_a_hint_draws_its_formulas_and_sets_its_code():
    hint = Hint("masks.causal", 1, 2, r"Is $p < q$, and `a < b`? Divide by $\sqrt{D}$.")
    assert repr(hint).endswith("\nIs p < q, and `a < b`? Divide by √D.")
    page = hint._repr_html_()
    assert page.count("<math") == 2
    assert "<code>a &lt; b</code>" in page
    ElementTree.fromstring(page)  # nothing is left open, and no sign of TeX is a tag


@pytest.mark.parametrize("id", EXERCISES)
def test_no_hint_reaches_a_learner_as_tex(id):
    hints = EXERCISES[id].hints
    for number, text in enumerate(hints, 1):
        hint = Hint(id, number, len(hints), text)
        code = re.compile(r"`[^`]*`|<code>.*?</code>")
        assert not re.search(r"\$|\\[a-z]", code.sub("", repr(hint)))
        assert "$" not in code.sub("", hint._repr_html_())
