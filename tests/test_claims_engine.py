"""The engine of claims: what it refuses, how a verdict follows, the rate of an arm, other sizes, the record."""

import math
from dataclasses import replace

import pytest

from course_lib.__main__ import main
from course_lib.claims import Finding, Measurement, Size, Source, Tried, at_best_rate, experiments, record, registry
from course_lib.claims.findings import record_tried, recorded
from course_lib.claims.stress import tried_at_other_sizes
from course_lib.training import TrainingDiverged

SOURCE = Source("Author 2020", "A title", "https://example.org", "§ 1", "We find that it may be larger … than before.")


def by_gap(gap: float) -> str:
    """Compare two losses.

    confirmed: the gap is above 1,
        in every seed
    depends: it is above 0

    This sentence states nothing.
    refuted: it is 0 or less
    """
    return "confirmed" if gap > 1 else "depends" if gap > 0 else "refuted"


def stated(**changes):
    """What an experiment states; a name that is not among the course's."""
    return {
        "id": "masks.invented",
        "claim": "It may be larger.",
        "source": SOURCE,
        "control": "the same without it",
        "verdict": by_gap,
    } | changes


@pytest.fixture
def invented(monkeypatch):
    """Register experiments that are gone after the test."""
    experiments()
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))
    return lambda run, **changes: registry.experiment(**stated(**changes))(run)


def measured(gap: float) -> Measurement:
    return Measurement(f"a gap of {gap:.1f}", (gap,), {"gap": gap}, "It is only a test.")


# ----------------------------------------------------------------------------------------------- what a claim states
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"control": "none"}, "masks.invented: control must be a sentence, got 'none'"),
        ({"claim": "Yes."}, "masks.invented: claim must be a sentence, got 'Yes.'"),
        (
            {"seeds": (0, 1)},
            r"masks.invented: seeds=\(0, 1\) are too few: give at least three, or none if nothing is random",
        ),
        ({"source": replace(SOURCE, quote="")}, "masks.invented: source.quote is missing: give the author's words"),
        ({"source": replace(SOURCE, place="")}, "masks.invented: source.place is missing"),
        ({"verdict": lambda gap: "confirmed"}, "the docstring of <lambda> states no outcome"),
        ({"id": "masks.leak"}, "there are two experiments 'masks.leak': choose another id"),
    ],
)
def test_a_claim_that_leaves_something_out_is_refused(invented, changes, told):
    with pytest.raises(ValueError, match=told):
        invented(lambda: measured(1.0), **changes)
    assert "masks.invented" not in registry._REGISTERED


@pytest.mark.parametrize("given", [("", "A title", "https://a.b"), ("A", "", "https://a.b"), ("A", "B", "a.b")])
def test_a_source_is_an_author_a_title_and_a_link(given):
    with pytest.raises(ValueError, match="an author, a title and a link that begins with https://"):
        Source(*given)


def test_the_outcomes_are_the_lines_of_the_verdict_functions_docstring(invented):
    each = invented(lambda: measured(1.0))
    assert each.outcomes == {
        "confirmed": "the gap is above 1, in every seed",
        "depends": "it is above 0",
        "refuted": "it is 0 or less",
    }
    assert each.could_fail


@pytest.mark.parametrize(("gap", "verdict"), [(1.5, "confirmed"), (0.5, "depends"), (-1.0, "refuted")])
def test_the_verdict_follows_from_the_figures(invented, gap, verdict):
    finding = invented(lambda: measured(gap))()
    assert (finding.verdict, finding.measured, finding.figures) == (verdict, f"a gap of {gap:.1f}", {"gap": gap})


def test_a_verdict_that_no_line_states_is_refused(invented):
    def always(gap: float) -> str:
        """confirmed: the gap is large"""
        return "refuted"

    with pytest.raises(ValueError, match="always returns 'refuted', but its docstring states only confirmed"):
        invented(lambda: measured(1.0), verdict=always)()


def test_only_the_authors_own_words_are_in_quotation_marks(invented):
    theirs = invented(lambda: measured(1.0), claim="it may be larger")
    assert (theirs.stated, theirs.by) == ("“it may be larger”", "Author 2020")
    for claim in ("It is larger.", "it may be large", "may be larger than before"):  # a word, an end, what was cut out
        ours = invented(lambda: measured(1.0), id=f"masks.{len(claim)}", claim=claim)
        assert (ours.stated, ours.by) == (claim, "after Author 2020")
        assert any("the wording above is ours" in line for line in ours.told(ours()))
    assert not any("wording above" in line for line in theirs.told(theirs()))


def test_a_finding_has_a_known_verdict_and_figures():
    with pytest.raises(ValueError, match="choose one of confirmed, depends, refuted, not at this size, by construct"):
        Finding("1", (1.0,), "true", "it is so")
    with pytest.raises(ValueError, match="one for each seed"):
        Finding("1", (), "confirmed", "it is so")
    for rows in ((("model", "loss"),), (("model", "loss"), ("small",))):
        with pytest.raises(ValueError, match="is not a table"):
            Finding("1", (1.0,), "confirmed", "it is so", rows=rows)


# ------------------------------------------------------------------------------------------------ the rate of an arm
def valley(lowest: float):
    """A training whose loss is least at one rate, and a little higher for each seed."""
    return lambda rate, seed: abs(math.log(rate / lowest)) + 0.01 * seed


def test_an_arm_gets_the_best_of_its_rates_and_every_seed_is_trained_there():
    best = at_best_rate(valley(0.01), (0.003, 0.01, 0.03), (0, 1, 2))
    assert best.rate == 0.01
    assert best.losses == pytest.approx((0, 0.01, 0.02))
    assert [*best.tried] == [0.003, 0.01, 0.03]


@pytest.mark.parametrize("lowest", [0.01 / 9, 0.03 * 9])
def test_the_grid_grows_where_the_best_rate_is_at_its_edge(lowest):
    best = at_best_rate(valley(lowest), (0.01 / 3, 0.01, 0.03), (0, 1, 2))
    assert best.rate == pytest.approx(lowest if lowest > 0.01 else 0.01 / 9)
    assert best.rate in best.tried
    assert len(best.tried) > 3


def test_the_grid_grows_twice_at_most():
    assert len(at_best_rate(valley(1e9), (1, 2, 4), (0,)).tried) == 5


@pytest.mark.parametrize("bad", ["raise", math.nan, math.inf])
def test_a_rate_that_diverges_is_never_the_best(bad):
    def train(rate, seed):
        if rate > 0.02:
            if bad == "raise":
                raise TrainingDiverged("the loss is nan")
            return bad, "a model"
        return rate, "a model"

    best = at_best_rate(train, (0.003, 0.01, 0.03), (0, 1))
    assert best.losses == (best.rate, best.rate)
    assert best.results[0][1] == "a model"
    assert math.isinf(best.tried[0.03])


def test_rates_that_are_too_few_or_diverge_altogether_are_refused():
    for rates in ((0.1, 0.2), (0.3, 0.2, 0.1), (0.1, 0.1, 0.2)):
        with pytest.raises(ValueError, match="at least three, in ascending order"):
            at_best_rate(valley(0.1), rates, (0,))
    with pytest.raises(ValueError, match="seeds is empty"):
        at_best_rate(valley(0.1), (0.1, 0.2, 0.3), ())
    with pytest.raises(ValueError, match=r"diverged at every rate of 0\.1, 0\.2, 0\.3"):
        at_best_rate(lambda rate, seed: math.nan, (0.1, 0.2, 0.3), (0,))


# --------------------------------------------------------------------------------------------------------- other sizes
def trains(gap_at):
    """An experiment whose gap depends on the factors of its steps and of its width."""

    def run(size: Size) -> Measurement:
        return measured(gap_at(size.steps(1), size.width(1)))

    return run


def test_a_trained_claim_is_tried_at_four_times_the_steps_and_twice_the_width(invented):
    each = invented(trains(lambda steps, width: 2.0 if width > 1 else 2.0 / steps))
    assert each.trained
    assert each().verdict == "confirmed"
    assert [(at.steps, at.width, at.verdict) for at in tried_at_other_sizes(each)] == [
        (4, 1, "depends"), (1, 2, "confirmed")
    ]  # fmt: skip


def test_twice_the_width_is_left_out_where_it_would_take_too_long_or_means_nothing(invented, monkeypatch):
    each = invented(trains(lambda steps, width: 2.0))
    monkeypatch.setattr("course_lib.claims.stress.WORTH", 0.0)
    assert [at.steps for at in tried_at_other_sizes(each)] == [4]
    monkeypatch.undo()
    no_width = registry.Experiment(**{**vars(each), "run": lambda size: measured(size.steps(1))})
    assert [at.steps for at in tried_at_other_sizes(no_width)] == [4]


def test_a_size_that_is_never_asked_is_refused(invented):
    each = invented(lambda size: measured(1.0))
    with pytest.raises(ValueError, match="does not use its size"):
        tried_at_other_sizes(each)
    still = registry.Experiment(**{**vars(each), "run": lambda: measured(1.0)})
    with pytest.raises(ValueError, match="trains no model, so it has no size"):
        still(Size(of_steps=4))


@pytest.mark.parametrize(
    ("verdict", "other", "turned"),
    [("confirmed", "depends", True), ("refuted", "confirmed", True), ("confirmed", "confirmed", False),
     ("depends", "confirmed", False), ("not at this size", "confirmed", False)],
)  # fmt: skip
def test_only_a_firm_verdict_can_turn(verdict, other, turned):
    finding = Finding("1", (1.0,), verdict, "it is so", tried=(Tried(4, 1, other, "2"),))
    assert bool(finding.turned) == turned


# ---------------------------------------------------------------------------------------------------------- the record
@pytest.fixture
def empty_record(monkeypatch, tmp_path):
    """A record of the test's own, with a folder for each chapter."""
    for slug in ("masks", "heads"):
        (tmp_path / slug).mkdir()
    monkeypatch.setattr("course_lib.claims.findings.CHAPTERS_FOLDER", tmp_path)
    return tmp_path


def test_the_record_keeps_what_was_tried_while_the_measurement_says_the_same(empty_record, invented):
    each = invented(trains(lambda steps, width: 2.0 / steps))
    with pytest.raises(ValueError, match=r"not recorded yet: .*claims --record masks\.invented"):
        record_tried(each.id, [])
    record({each.id: each()})
    record_tried(each.id, tried_at_other_sizes(each))
    assert [at.steps for at in recorded()[each.id].tried] == [4, 1]
    record({each.id: each()})
    assert len(recorded()[each.id].tried) == 2
    record({each.id: replace(each(), measured="something else")})
    assert recorded()[each.id].tried == ()


def test_the_record_drops_experiments_that_are_gone(empty_record, invented):
    each = invented(lambda: measured(1 / 3))
    record({each.id: each(), "masks.gone": each()})
    assert [*recorded()] == [each.id]
    assert recorded()[each.id].figures == {"gap": 0.333333}


def test_stress_records_each_claim_continues_and_ends_with_1_if_a_verdict_turned(empty_record, invented, capsys):
    holds = invented(trains(lambda steps, width: 2.0), id="masks.holds")
    turns = invented(trains(lambda steps, width: 2.0 / steps), id="masks.turns")
    assert main(["claims", "--stress", holds.id]) == 0
    assert "1 trained claims tried at other sizes; 0 verdicts changed" in capsys.readouterr().out
    assert main(["claims", "--stress", holds.id, turns.id]) == 1
    said = capsys.readouterr().out
    assert "1 of 2 trained claims are recorded at other sizes already" in said
    assert "masks.turns: make its verdict “depends” and say on what" in said
    assert "tried at 4 times the steps: depends (a gap of 0.5)" in said
    assert main(["claims", "--stress", holds.id, turns.id]) == 1, "what is recorded already counts as well"


def test_what_was_recorded_says_which_notebooks_show_it(empty_record, invented, capsys):
    each = invented(lambda: measured(1.0))
    assert main(["claims", "--record", each.id]) == 0
    said = capsys.readouterr().out
    assert "python -m course_lib refresh notebooks/03_masks.ipynb notebooks/17_claims.ipynb" in said
    assert main(["claims", "--about", each.id]) == 0
    assert "when refuted: it is 0 or less" in capsys.readouterr().out
