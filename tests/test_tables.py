"""`table` prints figures in columns that a reader can follow."""

import pytest
import torch

from course_lib.live import table


def test_numbers_are_aligned_right_under_their_names(capsys):
    table([("attention", 2362368, 0.5), ("feed-forward", 47, torch.tensor(12.345))], ("part", "weights", "ratio"))
    head, rule, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == ["attention", "2,362,368", "0.50"]
    assert second.split() == ["feed-forward", "47", f"{12.345:.2f}"]
    assert {len(line) for line in (head, rule, first, second)} == {len(rule)}
    assert [line.startswith(name) for line, name in ((head, "part"), (first, "attention"))] == [True, True]
    ends = [line.index(cell) + len(cell) for line, cell in ((head, "weights"), (first, "2,362,368"), (second, " 47"))]
    assert len(set(ends)) == 1, "numbers end where the name of their column does"


def test_text_stays_as_it_is_and_a_table_needs_no_head(capsys):
    table([("0.930", "1e3"), ("yes", True)], digits=1)
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["0.930", "1e3"], ["yes", "True"]]


@pytest.mark.parametrize(
    ("rows", "head", "said"), [([], (), "no rows"), ([(1, 2), (1,)], (), "1, 2"), ([(1, 2)], ("one",), "1, 2")]
)
def test_a_gap_is_refused(rows, head, said):
    with pytest.raises(ValueError, match=said):
        table(rows, head)
