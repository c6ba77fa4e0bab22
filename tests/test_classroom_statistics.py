"""The class's figures, counted again by other means."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark import statistics
from course_lib.grading.page.catalogue import EXERCISES
from tests.drawn_results import marked, result


def test_the_hardest_exercise_is_the_one_that_cost_most_of_those_who_tried():
    def handed(*statuses):
        ids = ("attention.softmax", "masks.causal", "normalization.layer_norm", "normalization.rms_norm")
        return GradedSubmission("x", "0" * 64, tuple(result(id, status, 4) for id, status in zip(ids, statuses)))

    drawn = [
        handed("passed", "failed", "unanswered", "passed"),
        handed("failed", "failed", "unanswered", "passed"),
        handed("unanswered", "passed", "unanswered", "passed"),
    ]
    titles = {id: EXERCISES[id].title for id in ("masks.causal", "attention.softmax")}
    assert statistics.hardest(drawn) == [
        ("masks.causal", titles["masks.causal"], pytest.approx(1 / 3), 3),
        ("attention.softmax", titles["attention.softmax"], 0.5, 2),
    ]
    assert len(statistics.hardest(drawn, 1)) == 1
    written = GradedSubmission(
        "x", "0" * 64, (result("normalization.layer_norm", "unanswered", 0), result("masks.causal", "written", 0))
    )
    assert statistics.hardest([written]) == []
    easy = [handed("passed")] * 2
    assert statistics.hardest([*easy, handed("failed")]) == [], "two thirds solved it"
    assert len(statistics.hardest([*easy, handed("failed"), handed("failed")])) == 1


def test_misconceptions_are_counted_once_for_each_who_fell_for_them():
    both = [
        marked("a", (False, False)),
        marked("b", (False, True)),
        marked("c", (True, False)),
        marked("d", (False, True)),
    ]
    assert statistics.misconceptions(both) == [
        ("attention.softmax", "mask inverted", 3),
        ("masks.causal", "mask inverted", 2),
    ]
    assert statistics.misconceptions(both, 1) == [("attention.softmax", "mask inverted", 3)]
    assert statistics.misconceptions([]) == []


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=30), st.integers(1, 12))
def test_every_submission_stands_in_the_bin_of_its_share(pairs, bins):
    drawn = [
        GradedSubmission(
            "x", "0" * 64, (result("attention.softmax", "passed", right), result("masks.causal", "failed", wrong))
        )
        for right, wrong in pairs
    ]
    table = statistics.distribution(drawn, bins)
    assert [low for low, _, _ in table] == pytest.approx([i / bins for i in range(bins)])
    assert [high for _, high, _ in table] == pytest.approx([(i + 1) / bins for i in range(bins)])
    for i, (_, _, count) in enumerate(table):
        inside = [
            i * (right + wrong) <= right * bins < (i + 1) * (right + wrong) or (wrong == 0 and i == bins - 1)
            for right, wrong in pairs
            if right + wrong
        ]
        assert count == sum(inside) + (i == 0) * sum(right + wrong == 0 for right, wrong in pairs)


def test_a_share_on_a_border_stands_in_the_upper_bin():
    each = GradedSubmission(
        "x", "0" * 64, (result("attention.softmax", "passed", 29), result("masks.causal", "failed", 71))
    )
    counts = [count for _, _, count in statistics.distribution([each], 100)]
    assert counts.index(1) == 29, "0.29 × 100 is 28.999… in binary"


def test_mean_and_median_are_of_shares():
    drawn = [marked("a", (True, True)), marked("b", (True, False)), marked("c", (False, False))]
    assert statistics.average(drawn) == pytest.approx(((1 + 0.6 + 0) / 3, 0.6))
    assert statistics.share_of_points(drawn[1]) == pytest.approx(0.6)
    with pytest.raises(ValueError, match="marked is empty"):
        statistics.average([])
    with pytest.raises(ValueError, match="bins must be at least 1, got 0"):
        statistics.distribution(drawn, 0)
