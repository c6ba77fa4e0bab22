"""The audits of chapter 17: the check that the grader names reveals the false finding of each number, and no other."""

import collections
import functools
import math
import re
import statistics
import sys

import pytest
import torch

from course_lib.chapters.claims.audits import LETTERS, answer, audit
from course_lib.chapters.claims.audits import five as computed
from course_lib.config import TransformerConfig
from course_lib.counting import kv_cache_bytes
from course_lib.grading import EXERCISES, check, grade
from course_lib.grading.engine import PUBLIC_SEED
from course_lib.grading.kinds.choice import LAST_NUMBER
from course_lib.ladder import recorded as rungs

IDS = [f"claims.audit_{place}" for place in range(1, 6)]
NUMBERS = range(1, 41)
five = functools.cache(computed)
each_audit = pytest.mark.parametrize("exercise_id", IDS)


def findings(exercise_id):
    """All findings of many numbers."""
    return [finding for number in NUMBERS for finding in five(exercise_id, number).values()]


# --- one of five ------------------------------------------------------------------------------------------------------


@each_audit
def test_one_finding_of_each_number_is_false_and_none_has_the_letter_or_subject_of_most(exercise_id):
    letters, titles = collections.Counter(), collections.Counter()
    for number in range(1, 81):
        found = five(exercise_id, number)
        assert list(found) == list(LETTERS)
        assert len({finding.title for finding in found.values()}) == 5
        ((letter, false),) = [(letter, finding) for letter, finding in found.items() if finding.check]
        assert answer(exercise_id, number) == (f"{number}{letter}", false.check)
        letters[letter] += 1
        titles[false.title] += 1
    assert min(letters[letter] for letter in LETTERS) > 5
    assert len(titles) >= 5, "every finding can be the false one"


@each_audit
def test_a_number_always_prints_the_same_and_another_number_something_else(exercise_id, capsys):
    printed = []
    for number in (8, 8, 9):
        data = audit(exercise_id, number)
        assert list(data) == list(LETTERS)
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]
    assert max(map(len, "".join(printed).splitlines())) <= 100
    assert [line[:2] for line in printed[0].splitlines() if " · " in line] == [f"8{letter}" for letter in LETTERS]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (("claims.audit_6", 1), "exercise_id must be one of"),
        (("claims.audit_1", 0), "number"),
        (("claims.audit_1", 1000), "from 1 to 999"),
        (("claims.audit_1", "7"), "number"),
    ],
)
def test_another_exercise_or_number_is_refused(wrong, said):
    with pytest.raises((ValueError, TypeError), match=said):
        audit(*wrong)


def test_where_exercises_are_missing_nothing_fails_and_nothing_is_revealed(monkeypatch, capsys):
    """As in the sandbox in which a class's notebooks run."""
    module = "course_lib.chapters.claims.exercises.audit_1"
    monkeypatch.setitem(sys.modules, module, None)
    assert audit("claims.audit_1", 3) == {}
    assert "cannot be printed here" in capsys.readouterr().out
    with pytest.raises(ModuleNotFoundError):
        answer("claims.audit_1", 3)


# --- the check reveals it ---------------------------------------------------------------------------------------------


def wrong_sum(finding):
    """A row of weights that does not sum to 1, or parts that do not sum to their total."""
    if finding.title == "the attention weights":
        return any(abs(sum(map(float, row[1:])) - 1) > 0.002 for row in finding.rows)
    if finding.title == "the parameter count":
        *parts, total = [number for _, number in finding.rows]
        return sum(parts) != total
    return False


def wrong_order(finding):
    """Weights in another order than the scores."""
    if finding.title != "the largest weights":
        return False
    ranked = sorted(finding.rows, key=lambda row: float(row[1]))
    return ranked != sorted(finding.rows, key=lambda row: float(row[2]))


def wrong_unit(finding):
    """An entropy above that of a uniform distribution, or a memory that the library computes otherwise."""
    data = finding.data
    if finding.title == "the entropies":
        return max(float(row[1]) for row in finding.rows) > math.log(data["probabilities"].shape[1])
    if finding.title == "the cache":
        heads, features = data["heads"], data["features"]
        config = TransformerConfig(
            vocab_size=10, d_model=heads * features, n_heads=heads, n_layers=data["layers"], d_ff=8, max_seq_len=9000
        )
        memory = kv_cache_bytes(config, data["tokens"], bytes_per_element=2)
        return abs(finding.rows[1][1] - memory / 1e6) > 0.01
    return False


def test_of_the_numbers_arithmetic_reveals_the_false_one_and_no_other():
    revealed = {"sums": wrong_sum, "order": wrong_order, "units": wrong_unit}
    for finding in findings("claims.audit_1"):
        found = {name for name, wrong in revealed.items() if wrong(finding)}
        assert found == ({finding.check} if finding.check else set()), finding


def test_every_weight_but_the_exchanged_ones_is_the_softmax_of_the_scores():
    for finding in findings("claims.audit_1"):
        if finding.title == "the largest weights":
            weights = finding.data["scores"].softmax(0)
            differ = int((weights - finding.data["printed weights"]).abs().gt(1e-6).sum())
            assert differ == (2 if finding.check else 0)


def test_the_false_demonstration_computes_its_result_from_what_it_shows():
    """Its scores are multiples of each other, its logits equal, its groups the nearest; the true ones are not."""
    for finding in findings("claims.audit_2"):
        data, false = finding.data, bool(finding.check)
        if finding.title == "the scaled scores":
            first, last = list(data.values())[:: len(data) - 1]
            ratios = last / first
            assert (ratios.std() < 1e-3) == false
        if finding.title == "the first loss":
            spreads = [made.std(1).max().item() for name, made in data.items() if name.startswith("logits")]
            assert (max(spreads) < 1e-6) == false
        if finding.title == "the groups of words":
            vectors, groups = data["vectors"], data["groups"]
            nearest = (vectors @ vectors.T)[:, :3].argmax(1)
            assert torch.equal(nearest, groups) == false
        if finding.title in ("the order of the tokens", "the causal mask"):
            measured, control = (row[1] for row in finding.rows)
            assert measured < 1e-5 < 0.01 < control
        assert finding.check in ("", "construction")


def test_a_conclusion_about_seeds_is_false_where_students_t_contradicts_it():
    for finding in findings("claims.audit_3"):
        first, second = (list(each) for each in finding.data.values())
        differences = [b - a for a, b in zip(first, second)]
        size = abs(statistics.mean(differences)) / (statistics.stdev(differences) / math.sqrt(3))
        assert size < 2 or size > 4.3, "neither a hint nor close to the limit"
        says_clear = "clearly lower" in finding.says
        assert says_clear != ("no effect" in finding.says)
        assert bool(finding.check) == (says_clear != (size > 4.3)), finding
        if says_clear:
            lower, higher = re.search(r"lower with “(.+?)” than with “(.+?)”", finding.says).groups()
            if not finding.check:
                assert statistics.mean(finding.data[lower]) < statistics.mean(finding.data[higher])


def test_the_losses_of_the_audits_are_on_record():
    known = {loss for rung in rungs().values() for loss in rung.nats}
    for finding in findings("claims.audit_3"):
        if "ladder" in finding.says:
            assert known.issuperset(loss for losses in finding.data.values() for loss in losses)


def unfair(finding):
    """Are the cases that are reported among those that were fitted or chosen?"""
    data, says = finding.data, finding.says
    if finding.title == "the pairs of words":
        return bool(set(data["training stories"]) & set(data["test stories"]))
    if finding.title == "the best seed":
        return "other questions" not in says
    if finding.title == "the probe":
        fitted, start = re.search(r"to lines 0 to (\d+) and tested it on lines (\d+)", says).groups()
        return int(start) <= int(fitted)
    if finding.title == "the power law":
        return any(run["d_model"] == 64 for run in data["fitted to"])
    return "picked" in says


def test_a_test_is_unfair_where_its_cases_were_fitted_or_picked():
    for finding in findings("claims.audit_4"):
        assert unfair(finding) == bool(finding.check), finding


def test_a_fair_test_supports_its_conclusion():
    for finding in findings("claims.audit_4"):
        if finding.title == "the best seed" and not finding.check:
            assert 0.45 <= float(finding.rows[2][2].rstrip("%")) / 100 <= 0.55
        if finding.title == "the probe" and not finding.check:
            assert float(finding.rows[1][1].rstrip("%")) > 70
        if finding.title == "the pairs of words":
            assert float(finding.rows[1][2]) > float(finding.rows[0][2])


def reversed_somewhere(finding):
    """Does a row go the other way than the conclusion, or do two rows differ in more than what is named?"""
    rows, says = finding.rows, finding.says
    if finding.title in ("the schedule", "the learning rate"):
        signs = {row[2] > row[1] for row in rows if row[0] != "average"}
        return len(signs) == 2 and "depends" not in says
    if finding.title == "the questions":
        parts = [[int(a) / int(b) for a, b in (cell.split(" of ") for cell in row[1:])] for row in rows]
        assert all(later > earlier for earlier, later in parts[:2])
        assert parts[2][1] < parts[2][0]
        return "worse" in says
    if finding.title == "the width":
        return rows[0][1] != rows[1][1]
    return rows[0][1] != rows[1][1]


def test_a_conclusion_is_false_where_a_row_contradicts_it_or_a_second_cause_differs():
    causes = ("the width", "the feed-forward networks")
    for finding in findings("claims.audit_5"):
        assert reversed_somewhere(finding) == bool(finding.check), finding
        if finding.check:
            assert finding.check == ("control" if finding.title in causes else "condition")


# --- graded -----------------------------------------------------------------------------------------------------------


@each_audit
def test_of_all_pairs_of_a_finding_and_a_check_one_passes(exercise_id):
    exercise = EXERCISES[exercise_id]
    checks = [option.key for option in exercise.same_for_all]
    assert len(checks) == 8
    pairs = [{f"{LAST_NUMBER}{letter}", name} for letter in LETTERS for name in checks]
    passed = [pair for pair in pairs if grade(exercise_id, pair, PUBLIC_SEED).passed]
    assert passed == [set(answer(exercise_id, LAST_NUMBER))]


@each_audit
def test_each_option_of_each_number_has_a_reason(exercise_id):
    exercise = EXERCISES[exercise_id]
    for number in NUMBERS:
        made = exercise.numbered(number)
        assert len({option.why for option in made}) == len(made) == 13
        assert sum(option.right for option in made) == 2


@each_audit
def test_an_answer_of_another_number_does_not_become_right_with_ones_own(exercise_id):
    """A letter that is passed on with another number in front of it is right only by chance."""
    theirs = [answer(exercise_id, number) for number in range(1, 21)]
    passed = [grade(exercise_id, {f"700{key[-1]}", name}, PUBLIC_SEED).passed for key, name in theirs]
    assert 0 < sum(passed) < len(passed) / 2


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"c", "order"}, "in front of the letter"),
        ("order", "in front of the letter"),
        ({"17c", "18c", "order"}, "different numbers"),
        ({"0c", "order"}, "from 1 to 999"),
        ({"1000c", "order"}, "from 1 to 999"),
        ({"9" * 5000 + "c", "order"}, "from 1 to 999"),
        ({"17f", "order"}, "no option"),
        ({"17c", "sum"}, "no option"),
        ({"17"}, "in front of the letter"),
        (set(), "Answer with the key"),
        (17, "Answer with the key"),
    ],
)
def test_a_key_in_another_form_is_explained(wrong, said):
    result = grade("claims.audit_1", wrong, PUBLIC_SEED)
    assert not result.passed
    assert said in result.feedback


@pytest.mark.usefixtures("as_a_learner")
def test_check_first_counts_and_then_gives_reasons_for_ones_own_number():
    right = set(answer("claims.audit_1", 23))
    letter = next(key for key in right if key.startswith("23"))
    other = next(f"23{each}" for each in LETTERS if f"23{each}" != letter)
    name = next(key for key in right if key != letter)
    first = check("claims.audit_1", {other, name})
    assert "1 of your 2 picks is right" in first.feedback
    second = check("claims.audit_1", {other, "seeds"})
    assert f"{other}: " in second.feedback
    assert check("claims.audit_1", right).passed
