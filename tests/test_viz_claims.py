"""Chapter 17's figures and the record of findings: every claim has its sign, every experiment its finding."""

import html
import itertools
import re
import subprocess
import sys

import numpy as np
import pytest
from matplotlib.colors import to_rgba
from sliders import too_wide

from course_lib.chapters.claims import figures, own
from course_lib.chapters.claims.widgets import (
    HEADLINES,
    ClaimsTable,
    card,
    claim_explorer,
    could_have_failed,
    headline_rows,
)
from course_lib.claims import VERDICTS, Finding, Settled, experiments, find, in_order, recorded, settle
from course_lib.course.contents import BY_SLUG


def test_every_experiment_has_a_finding_on_record_and_no_other():
    assert recorded().keys() == experiments().keys()


def test_claims_are_sentences_of_a_chapter():
    for each in in_order():
        assert 1 <= each.chapter <= 16, each.id
        assert "." in each.id
        assert len(each.claim.split()) >= 3, each.id
        found = recorded()[each.id]
        assert len(found.because.split()) >= 5, each.id
        assert found.measured, each.id


def test_a_chapters_experiments_alone_and_in_order():
    everything = in_order()
    assert [each.chapter for each in everything] == sorted(each.chapter for each in everything)
    first = everything[0].chapter
    assert {each.chapter for each in in_order([first])} == {first}


def opened_by(statement: str) -> set[str]:
    """The chapters whose claims a fresh process has imported after this statement."""
    code = f"""import sys
from course_lib.claims import experiments, find, in_order
{statement}
names = [name.split(".") for name in sys.modules if name.startswith("course_lib.chapters.")]
print(*[name[2] for name in names if name[3:] == ["claims"]])"""
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize(
    ("statement", "chapters"),
    [
        ("find('masks.leak'), find('heads.slice')", {"masks", "heads"}),
        *(
            pytest.param(*each, marks=pytest.mark.proof)
            for each in (
                ("find('counting.gpt2_117m')", {"counting"}),
                (f"in_order([{BY_SLUG['gpt'].number}])", {"gpt"}),
                ("experiments()", {each.id.partition(".")[0] for each in in_order()}),
            )
        ),
    ],
)
def test_only_the_chapters_that_are_asked_for_are_opened(statement, chapters):
    assert opened_by(statement) == chapters


@pytest.mark.parametrize("unknown", ["gpt.nothing_like_it", "nowhere.leak", "leak", ""])
def test_an_unknown_experiment_is_refused_whatever_its_id_begins_with(unknown):
    with pytest.raises(ValueError, match=r"there is no experiment .*\. Nearest: \w+\.\w+, \w+\.\w+, \w+\.\w+$"):
        find(unknown)


def test_an_unknown_experiment_names_its_neighbours():
    known = next(iter(experiments()))
    with pytest.raises(ValueError, match=known.replace(".", r"\.")):
        find(known[:-1])


def test_a_settled_claim_in_a_notebook_unfolds_the_words_the_figures_and_the_code():
    each = find("masks.leak")
    folded = Settled(each, recorded()["masks.leak"])._repr_html_().partition("<details>")[2]
    assert f'<a href="{each.source.link}" style="text-decoration:underline">' in folded, "told by more than its colour"
    assert "def leak(" in folded
    assert f"def {each.decide.__name__}(" in folded


@pytest.mark.parametrize("id", sorted(recorded()))
def test_a_settled_claim_shows_what_was_found_and_folds_how(id):
    each, found = find(id), recorded()[id]
    page = Settled(each, found)._repr_html_()
    seen, _, folded = page.partition("<details>")
    lines = [html.unescape(re.sub("<[^>]+>", "", line)) for line in re.findall("<div>(.*?)</div>", seen)]
    drawn = [f"{len(each.seeds)} seeds"] if each.seeds else []
    drawn += [f"timed on {found.timed_on}"] if each.timed else []
    how = f" ({'; '.join(drawn)})" if drawn else ""
    assert lines == [f"{each.stated} ({each.by})", f"{found.verdict}: {found.measured}{how}", found.because]
    assert seen.count("<b>") == 1, "only the verdict's word is bold"
    stated = (each.source.author, each.source.link, each.source.quote, each.source.place, each.control)
    for said in (*stated, *each.outcomes.values(), *map(str, found.tried)):
        assert html.escape(said) in folded
    assert len(found.because) < 230, "about two lines on a page of 1280 pixels"


def test_a_claim_shows_its_further_figures_as_a_table():
    rows = (("model", "loss"), ("3 < 4 layers", "1.25"), ("a long name of a model", "11.5"))
    settled = Settled(find("masks.leak"), Finding("one", (1.0,), "depends", "It depends.", rows=rows))
    page = settled._repr_html_().partition("<details>")[0]
    found = [
        tuple(html.unescape(each) for each in re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row))
        for row in re.findall("<tr>(.*?)</tr>", page)
    ]
    assert tuple(found) == rows
    lines = repr(settled).splitlines()
    shown = [line for line in lines if line.endswith(("loss", "1.25", "11.5"))]
    assert len({len(line) for line in shown}) == 1, "columns of numbers end at one edge"
    assert len(shown) == len(rows)


@pytest.mark.parametrize("id", sorted(recorded()))
def test_a_sentence_of_a_claim_holds_few_numbers(id):
    said = re.sub(r"10\^", "", recorded()[id].measured)
    numbers = re.findall(r"\d+(?:[.,]\d+)*", said)
    assert len(numbers) <= 5, f"{id}: move all but the deciding figures into rows"
    assert len(said) <= 190, f"{id}: one sentence is enough"
    assert not said.endswith(":"), f"{id}: the sentence must be complete without its rows"


def test_a_settled_claim_in_text_is_the_claim_the_verdict_and_where_the_rest_is(capsys):
    known = {"masks.leak": Finding("3 of 4 tokens " + "leak " * 40, (3.0,), "depends", "The mask has holes.")}
    settle("masks.leak", findings=known)
    said = capsys.readouterr().out
    assert find("masks.leak").claim in said.replace("\n", " ")
    assert "depends: 3 of 4 tokens" in said
    assert "The mask has holes." in said
    assert "claims --about masks.leak" in said
    assert max(map(len, said.splitlines())) <= 100
    settle("masks.leak")
    assert "confirmed: " in capsys.readouterr().out or find("masks.leak").outcomes.keys() == {"by construction"}


def test_mean_and_spread_over_the_seeds():
    found = Finding("2", (1.0, 2.0, 3.0), "confirmed", "it is so")
    assert (found.mean, found.spread) == (2.0, 1.0)
    assert Finding("2", (2.0,), "confirmed", "it is so").spread == 0


def test_the_title_counts_every_verdict():
    title = figures.overview_title(["confirmed", "refuted", "refuted"])
    assert title == "3 popular claims: 1 confirmed, 2 refuted"
    assert figures.overview_title(VERDICTS) == (
        "5 popular claims: 1 confirmed, 1 depending on conditions, 1 refuted, 1 undecided at this size, "
        "1 by construction"
    )
    assert tuple(figures.MARKS) == VERDICTS


@pytest.mark.proof
def test_every_card_fits_its_page_and_a_second_draw_equals_a_fresh_one():
    findings = recorded()
    moved = None
    for id, found in findings.items():
        fresh = card(find(id), found)
        moved = moved or card(find(id), found).draw()
        moved.update(**fresh.data)
        for one, other in zip(moved.figure.axes[0].texts, fresh.figure.axes[0].texts, strict=True):
            assert one.get_text() == other.get_text()
        renderer, whole = moved.figure.canvas.get_renderer(), moved.figure.bbox
        boxes = [text.get_window_extent(renderer) for text in moved.texts.values()]
        assert max(box.x1 for box in boxes) < 0.99 * whole.width, id
        for upper, lower in itertools.pairwise(boxes):
            assert upper.y0 > lower.y1, id
        assert boxes[-1].y0 > moved.word.get_window_extent(renderer).y1, id
        assert to_rgba(moved.mark.get_color()) == to_rgba(figures.MARKS[found.verdict][0])


def test_a_card_says_who_says_it_how_it_was_tested_and_with_how_many_seeds():
    experiment = find("sampling.circles")
    drawn = card(experiment, recorded()[experiment.id]).draw()
    said = {part: text.get_text().replace("\n", " ") for part, text in drawn.texts.items()}
    assert said["source"] == str(experiment.source)
    assert (said["control"], said["quote"]) == (experiment.control, f"“{experiment.source.quote}”")
    assert all(when in said["outcomes"] for when in experiment.outcomes.values())
    assert said["measured"].endswith("(3 seeds)")
    counted = find("efficiency.cache_bytes")
    assert "seeds" not in card(counted, recorded()[counted.id]).draw().texts["measured"].get_text()


@pytest.mark.usefixtures("no_pixels")
def test_the_explorer_shows_every_claim_with_its_verdict():
    findings = recorded()
    explorer = claim_explorer(findings)
    assert too_wide(explorer) == []
    for id, found in findings.items():
        explorer.render(claim=id)
        assert f"claims {id}" in explorer.also_text
        assert ("authors' machine" in explorer.also_text) == find(id).timed
        assert f"{found.verdict.capitalize()}: {found.measured}" in explorer.text
        assert found.because[1:].removesuffix(".") in explorer.text
        ours = explorer.text.replace(find(id).source.quote, "")
        assert not re.search(r"[.?]”?[).]*\.( |$)", ours), "one full stop ends a sentence"
    with pytest.raises(ValueError, match="at least one"):
        claim_explorer({})


@pytest.mark.usefixtures("no_pixels")
def test_below_a_card_stands_only_what_it_does_not_say_and_a_screen_reader_hears_it_whole():
    explorer = claim_explorer(recorded())
    for id in ("sampling.circles", "efficiency.cache_time"):
        explorer._controls["claim"].value = id
        found, parts = recorded()[id], find(id)
        _, _, spoken, seen = explorer.children
        whole = (parts.claim, str(parts.source), parts.control, parts.source.quote, found.measured, found.because)
        for said in whole:
            assert html.escape(said.removesuffix(".")) in spoken.value
            assert html.escape(said.removesuffix(".")) not in seen.value
        assert 'role="status"' in spoken.value
        assert "clip-path" in spoken.value
        alt, _, caption = explorer.still.partition("<figcaption>")
        assert html.escape(found.because.removesuffix(".")) in alt
        assert f"claims {id}" in caption
        assert found.verdict not in caption


# --------------------------------------------------------------------------------------------- the list to be filtered
@pytest.fixture
def table():
    return ClaimsTable(recorded())


def test_the_list_filters_by_verdict_chapter_and_words_together(table):
    findings = recorded()
    assert table.chosen == [each.id for each in in_order() if each.id in findings]
    for verdict in VERDICTS:
        table.verdict.value = verdict
        assert set(table.chosen) == {id for id, found in findings.items() if found.verdict == verdict}
    table.verdict.value = "refuted"
    table.chapter.value = find("gpt.tying").chapter
    assert table.chosen == [], "no claim of chapter 9 is refuted"
    assert "No claim passes" in table._list.value
    table.verdict.value, table.chapter.value = "", find("blocks.vanishing").chapter
    table.words.value = "Gradient VANISH"
    assert set(table.chosen) == {
        "blocks.vanishing", "blocks.guarantee", "blocks.post_norm_gradient", "blocks.why_residual"
    }  # fmt: skip
    table.chapter.value, table.words.value = 0, "vaswani"
    authors = {each.id for each in in_order() if "Vaswani" in each.source.author}
    assert len(authors) > 5
    assert authors <= set(table.chosen), "a search finds authors"


def test_a_filtered_list_holds_what_it_counts_and_escapes_what_it_shows(table):
    table.words.value = "heads"
    chosen = table.chosen
    assert table._list.value.count("<tr>") == len(chosen) + 1, "and a row of headings"
    assert f"{len(chosen)} of {len(recorded())} claims" in table._list.value
    odd = {"masks.leak": Finding("a < b & c", (1.0,), "depends", "It depends <here>.")}
    assert "a &lt; b &amp; c" in ClaimsTable(odd)._list.value
    assert "&lt;here&gt;" in ClaimsTable(odd).still


def test_the_table_says_what_could_have_failed(table):
    for each in in_order():
        said = could_have_failed(each)
        if each.outcomes.keys() == {"by construction"}:
            assert said == "no: it holds by construction"
        else:
            assert [verdict in said for verdict in each.outcomes] == [True] * len(each.outcomes)
        assert said in table._list.value


def test_the_list_is_short_in_print_and_whole_in_the_fold(table):
    findings = recorded()
    text, (short, _, folded) = repr(table), table.still.partition("<details>")
    assert len(text.splitlines()) < 80
    assert text.startswith(f"[live table] {figures.overview_title([each.verdict for each in findings.values()])}")
    for title in {chapter.title for chapter in BY_SLUG.values() if chapter.number in {e.chapter for e in in_order()}}:
        assert title in text
    assert short.count("<tr>") - 1 == len(HEADLINES) == 12
    assert folded.count("<tr>") - 1 == len(findings)
    assert too_wide(table) == []
    with pytest.raises(ValueError, match="at least one"):
        ClaimsTable({})


def test_the_dozen_is_drawn_with_its_signs_and_no_text_meets_another():
    rows = headline_rows(recorded())
    figure = figures.headlines(rows, "A dozen")
    (axes,) = figure.axes
    signs = [line.get_marker() for line in axes.lines if line.get_marker() not in ("None", None, "")]
    assert signs[: len(rows)] == [figures.MARKS[verdict][1] for verdict, _, _ in rows]
    figure.draw_without_rendering()
    renderer = figure.canvas.get_renderer()
    boxes = [text.get_window_extent(renderer) for text in axes.texts if text.get_text()]
    for one, other in itertools.combinations(boxes, 2):
        assert not one.overlaps(other)
    assert max(box.x1 for box in boxes) <= figure.bbox.width


def test_the_way_to_a_verdict_marks_the_threshold_and_every_seed():
    figure = figures.way_to_a_verdict("It holds.", "beside", "under 1", (2.0, 3.0, 2.5), 0.0, 1.0, "nats", "refuted")
    (axes,) = figure.axes
    seeds = next(line for line in axes.lines if len(line.get_xdata()) == 3)
    threshold = next(line for line in axes.lines if line.get_linewidth() == 2)
    assert min(seeds.get_xdata()) > threshold.get_xdata()[0]
    ratio = np.array(seeds.get_xdata()) / threshold.get_xdata()[0]
    np.testing.assert_allclose(ratio, [2.0, 3.0, 2.5])
    assert "3 seeds: 2.00, 3.00, 2.50" in [text.get_text() for text in axes.texts]
    assert "refuted" in [text.get_text() for text in axes.texts]


# -------------------------------------------------------------------------------------------------- your own experiment
def nothing_yet(*_):
    """
    confirmed: …
    refuted: …
    """


def test_the_finished_experiment_lacks_nothing_and_refutes_its_claim(capsys):
    assert own.still_to_write(own.decide, own.measure, own.control) == []
    own.try_experiment(own.decide, own.measure, own.control)
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "refuted: it is at least 2 for every seed"
    assert said[2] == "control: 1.0"
    own.try_experiment(own.decide, lambda seed: own.measure(seed, std=0.1), own.control)
    assert capsys.readouterr().out.startswith("confirmed: "), "the claim depends on how far apart the scores are"


def test_an_experiment_is_told_what_it_lacks_part_by_part(capsys):
    own.try_experiment(nothing_yet, nothing_yet, nothing_yet)
    said = capsys.readouterr().out
    assert [line.partition(":")[0] for line in said.splitlines()] == [
        "still to write", "- the docstring of decide", "- measure", "- control"
    ]  # fmt: skip


def always(largest):
    """
    confirmed: below 2
    refuted: from 2 on
    """
    return "confirmed"


def unsure(largest):
    """
    confirmed: below 2
    refuted: above 50
    """
    return "confirmed" if max(largest) < 2 else "refuted" if min(largest) > 50 else "depends"


def test_a_verdict_that_no_outcome_states_is_told_with_the_remedy(capsys):
    assert own.still_to_write(unsure, own.measure, own.control) == []
    own.try_experiment(unsure, own.measure, own.control)
    said = "decide returns 'depends' for these numbers, but its docstring does not state that outcome: add it there"
    assert capsys.readouterr().out.splitlines() == [said]


def test_an_experiment_that_cannot_fail_or_ignores_its_seed_is_not_finished():
    (said,) = own.still_to_write(always, own.measure, own.control)
    assert said.startswith("decide:")
    (said,) = own.still_to_write(own.decide, lambda seed: 3.0, own.control)
    assert "generator" in said
