"""A newcomer's visit to some chapters; `python -m tests.browser.newcomer` visits all of them and prints a table."""

import pytest

from tests.browser.newcomer import visit


@pytest.mark.parametrize("name", ["00_start_here.ipynb", "02_attention.ipynb"])
def test_every_control_of_a_chapter_answers_and_the_page_is_whole_when_it_is_opened_again(lab, name):
    seen = visit(lab, name)
    assert seen.wrong == []
    assert seen.controls >= seen.figures > 0
    assert seen.moves > seen.controls
