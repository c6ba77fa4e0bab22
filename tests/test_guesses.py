"""The chapters' guesses: a page is read whole or refused with file, line and remedy; a committed guess stays."""

import html
import re
from collections import Counter
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_notebook, new_output

from course_lib.chapters.sampling.widgets import LOGITS
from course_lib.claims import recorded
from course_lib.course import record
from course_lib.course.contents import CHAPTERS
from course_lib.grading import progress
from course_lib.grading.page.run_notebooks import _portable
from course_lib.live import guess, reveal
from course_lib.live.guesses import Guess, Option, Question, Revealed, plain, questions, read_questions
from course_lib.live.page import VIEW, WAKE
from course_lib.live.saved import STILL
from course_lib.pretrained import embeddings_by_step
from course_lib.sampling import next_token_distribution, top_p_filter
from course_lib.tinytown import Tinytown, WordTokenizer

ROOT = Path(__file__).parent.parent
EVERY = {id: question for chapter in CHAPTERS for id, question in questions(chapter.slug).items()}

PAGE = """## coin
Heads or `tails` \\<b>,
says *she*?

- [ ] heads & 1 < 2
  It was *biased*. Throw it
  again.
- [x] tails, `x[0]`

  Look at the coin.

All coins fall.

## second
Why?
- [x] because
  So it is.
- [ ] not
  It is so.
"""


# ---------------------------------------------------------------------------------------------------------------- pages
def test_a_page_is_read_in_its_order_with_all_that_it_says():
    read = read_questions(PAGE, "toy", "toy/guesses.md")
    assert list(read) == ["toy.coin", "toy.second"]
    assert read["toy.coin"] == Question(
        "toy.coin",
        "Heads or `tails` \\<b>,\nsays *she*?",
        (
            Option("heads & 1 < 2", False, "It was *biased*. Throw it\nagain."),
            Option("tails, x[0]", True, "Look at the coin."),
        ),
        "All coins fall.",
    )
    assert read["toy.coin"].answer == "tails, x[0]"
    assert read["toy.second"].closing == ""
    assert read_questions("", "toy", "toy/guesses.md") == {}


def test_what_is_said_after_the_options_is_said_to_everybody_and_may_be_all_there_is():
    page = "## coin\nHeads?\n- [x] yes\n- [ ] no\n  Look.\n\nIt was biased.\n"
    question = read_questions(page, "toy", "guesses.md")["toy.coin"]
    assert plain(question.reply("yes")) == "It was biased."
    assert plain(question.reply("no")) == "Look. It was biased."


GOOD = "## coin\nHeads?\n\n- [x] yes\n  It was.\n- [ ] no\n  Look.\n"


@pytest.mark.parametrize(
    ("page", "line", "remedy"),
    [
        ("Heads?\n\n" + GOOD, 1, "must begin with the name"),
        ("# Guesses\n" + GOOD, 1, "a part that no guess has"),
        (GOOD + "\n### Why\nIt was.\n", 9, "a part that no guess has"),
        (GOOD + "\n```python\n1\n```\n", 9, "a part that no guess has"),
        (GOOD + "\nOnce.\n\nTwice.\n", 11, "a part that no guess has"),
        (GOOD.replace("Heads?", "Heads?\n\nOr not?"), 4, "a part that no guess has"),
        (GOOD.replace("- [x]", "1. [x]"), 4, "a part that no guess has"),
        (GOOD.replace("  Look.", "  - Look."), 7, "an option must be one line"),
        (GOOD.replace("coin", "Coin toss"), 1, "small letters"),
        (GOOD + GOOD, 8, "another name"),
        (GOOD.replace("Heads?\n", ""), 1, "the question is missing"),
        (GOOD.replace("- [ ] no\n  Look.\n", ""), 1, "fewer than two options"),
        ("## coin\nHeads?\n", 1, "fewer than two options"),
        (GOOD.replace("[x]", "[ ]"), 4, "0 options are marked as right"),
        (GOOD.replace("[ ]", "[x]"), 4, "2 options are marked as right"),
        (GOOD.replace("[ ] no", "[ ] yes"), 4, "say how they differ"),
        (GOOD.replace("[ ] no", "no"), 6, r"must begin with - \[ \]"),
        (GOOD.replace("[ ] no", "[]"), 6, r"must begin with - \[ \]"),
        (GOOD.replace("[x]", "[X]"), 4, r"must begin with - \[ \]"),
        (GOOD.replace("  Look.\n", ""), 4, "the option 'no' has no reason"),
    ],
)
def test_a_page_that_is_wrong_is_refused_with_file_line_and_remedy(page, line, remedy):
    assert list(read_questions(GOOD, "toy", "x/guesses.md")) == ["toy.coin"]
    with pytest.raises(ValueError, match=rf"^x/guesses\.md:{line}: .*{remedy}"):
        read_questions(page, "toy", "x/guesses.md")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
def test_no_formula_reaches_a_learner_as_tex(chapter):
    for asked in questions(chapter.slug).values():
        for said in (asked.text, asked.closing, *(option.text + "\n" + option.reason for option in asked.options)):
            assert not re.search(r"[\\$]", plain(said)), said


def test_an_unknown_guess_is_refused_with_the_nearest():
    with pytest.raises(KeyError, match=r"did you mean 'attention\.sharpness'"):
        guess("attention.sharpnes")
    with pytest.raises(KeyError, match=r"did you mean .*'attention\.sharpness'"):
        guess("attenton.sharpness")
    with pytest.raises(KeyError, match=r"guesses\.md"):
        guess("?")


# ------------------------------------------------------------------------------------------------- the course's guesses
@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
def test_a_chapter_asks_each_of_its_guesses_once_in_the_order_of_its_page_and_shows_it(chapter):
    cells = nbformat.read(ROOT / "notebooks" / chapter.notebook, as_version=4).cells
    asked = {cell.source: cell.outputs for cell in cells if re.search(r"\bguess\(", cell.source)}
    assert list(asked) == [f'guess("{id}")' for id in questions(chapter.slug)]
    for id, outputs in zip(questions(chapter.slug), asked.values()):
        shown = guess(id)
        assert [output.data["text/plain"] for output in outputs] == [repr(shown)]
        assert [output.data["text/html"] for output in outputs] == [f'<div class="{STILL}">{shown.still}{WAKE}</div>']


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
def test_nothing_shows_the_outcome_of_a_guess_before_it_is_made(chapter):
    """From a guess to its verdict all outputs are folded, and so is the text that says what happened."""
    cells = nbformat.read(ROOT / "notebooks" / chapter.notebook, as_version=4).cells
    sources = [cell.source for cell in cells]
    for id in questions(chapter.slug):
        asked, told = sources.index(f'guess("{id}")'), sources.index(f'reveal("{id}")')
        assert asked < told, f"{id}: the verdict comes after the guess"
        between = [cell for cell in cells[asked + 1 : told + 1] if not cell.source.startswith("guess(")]
        for cell in between:
            shown = cell.get("outputs") and not cell.metadata.get("jupyter", {}).get("outputs_hidden")
            assert not shown, f"{id}: the output of a cell below is open: {cell.source[:60]!r}"
            if cell.get("outputs"):  # JupyterLab shows the first line of the first output where it has folded them
                assert cell.outputs[0].get("data") == {}, f"{id}: the folded output shows its first line"
            assert EVERY[id].answer not in (cell.source if cell.cell_type == "markdown" else ""), id
            in_words = cell.source.partition("alt=")[2]  # read before the picture is: its numbers are computed
            assert not re.search(r"\d\.\d", in_words), f"{id}: the alt text of a picture below gives its numbers"
        after = next((cell for cell in cells[told + 1 :] if not cell.source.startswith("reveal(")), None)
        if after and after.cell_type == "markdown":
            assert after.source.startswith(("#", "<details>")), f"{id}: the text after the verdict stands open"
            folded = after.source.partition("</details>")[0] if after.source.startswith("<details>") else ""
            assert "\n#" not in folded, f"{id}: a new section is folded with what happened"


def test_the_output_of_a_cell_that_answers_the_one_above_it_is_folded_again_after_every_run():
    shown = [new_output("stream", text="the answer")]
    one = new_code_cell("answer()", metadata={"tags": ["folded"]}, outputs=shown)
    other = new_code_cell("question()", outputs=shown)
    folded, stays = _portable(new_notebook(cells=[one, other])).cells
    assert folded.metadata == {"tags": ["folded"], "jupyter": {"outputs_hidden": True}}
    assert folded.outputs[0].data == {}, "JupyterLab shows the first line of the first output"
    assert "jupyter" not in stays.metadata
    finished = nbformat.read(ROOT / "notebooks" / "17_claims.ipynb", as_version=4).cells
    assert [cell.source for cell in finished if "folded" in cell.metadata.get("tags", [])] == [
        "try_experiment(own.decide, own.measure, own.control)\nsource(own.decide, own.measure, own.control)"
    ]


def test_no_place_among_the_options_tells_which_is_right():
    """Always to take the first, second or last one shown is right in 40 of 100 at most, whatever the author's order."""
    chosen = [question for question in EVERY.values() if question.options]  # a number has no place
    places = Counter(question.shown.index(question.answer) for question in chosen)
    from_the_end = Counter(len(question.shown) - question.shown.index(question.answer) for question in chosen)
    for counted in (places, from_the_end):
        assert max(counted.values()) <= 0.4 * len(chosen), counted
    assert all(sorted(question.shown) == sorted(option.text for option in question.options) for question in chosen)


def test_the_order_of_the_options_is_drawn_from_the_id_alone():
    page = GOOD.replace("- [ ] no\n  Look.\n", "") + "- [ ] no\n  Look.\n- [ ] perhaps\n  Look.\n"
    drawn = {name: read_questions(page.replace("coin", name), "toy", "")[f"toy.{name}"] for name in "abcdefgh"}
    assert len({question.shown for question in drawn.values()}) > 2, "another id, another order"
    again = read_questions(page.replace("coin", "a"), "toy", "")["toy.a"]
    assert again.shown == drawn["a"].shown
    assert list(Guess(again).choices.options) == list(again.shown)


def test_guesses_quote_what_is_measured_elsewhere():
    """Numbers that the code knows, and the pages quote."""
    vocabulary, entropy = len(WordTokenizer()), Tinytown().entropy()
    assert f"trained for {max(embeddings_by_step()):,} steps" in EVERY["embeddings.kinds"].text
    assert f"tables of {vocabulary} rows" in plain(EVERY["embeddings.tied_rows"].text)
    assert f"vocabulary of {vocabulary} tokens" in plain(EVERY["training.untrained"].text)
    assert EVERY["training.untrained"].answer == f"About ln {vocabulary}"
    assert f"entropy of the text ({entropy:.2f})" in plain(EVERY["training.memorized"].text)


@pytest.mark.parametrize("id", [id for id, question in EVERY.items() if question.number])
def test_a_number_that_is_to_be_guessed_is_what_the_cells_below_print(id):
    """To as many digits as the answer has; a product such as 6 × 64 is multiplied out."""
    chapter = next(each for each in CHAPTERS if each.slug == id.partition(".")[0])
    cells = nbformat.read(ROOT / "notebooks" / chapter.notebook, as_version=4).cells
    sources = [cell.source for cell in cells]
    between = cells[sources.index(f'guess("{id}")') + 1 : sources.index(f'reveal("{id}")')]
    measured = next(cell for cell in between if cell.get("outputs") and not cell.source.startswith("guess("))
    printed = " ".join(each.get("text", "") + each.get("data", {}).get("text/plain", "") for each in measured.outputs)
    numbers = [float(number) for number in re.findall(r"\d+(?:\.\d+)?", printed)]
    numbers += [float(one) * float(other) for one, other in re.findall(r"(\d+) × (\d+)", printed)]
    answer = f"{EVERY[id].number.value:g}"
    digits = len(answer.replace(".", "").rstrip("0"))
    assert float(answer) in [float(f"{number:.{digits}g}") for number in numbers], printed


def test_the_answer_on_the_share_of_confirmed_claims_is_on_record():
    found = [finding.verdict for finding in recorded().values()]
    share = {verdict: found.count(verdict) / len(found) for verdict in ("confirmed", "depends")}
    asked = EVERY["claims.share"]
    assert asked.number is not None
    assert asked.number.value == round(100 * share["confirmed"])
    assert 0.55 < share["depends"] < 0.65
    assert asked.closing.startswith("Six in ten hold under a condition")


def test_the_answer_on_the_ratio_at_temperature_two_is_measured():
    p = next_token_distribution(LOGITS, temperature=2.0)
    assert EVERY["sampling.ratio"].answer == f"about {round(float(p[0] / p[-1]), 1)} times as often"


def test_the_answer_on_the_order_of_steps_is_measured():
    cooled_first = next_token_distribution(LOGITS, temperature=0.5, top_p=0.9)
    filtered_first = next_token_distribution(top_p_filter(LOGITS, 0.9), temperature=0.5)
    assert (cooled_first > 0).sum() < (filtered_first > 0).sum()
    assert EVERY["sampling.order"].answer == "no"


# --------------------------------------------------------------------------------------------------------------- widget
@pytest.fixture
def memory(monkeypatch):
    """A record of its own."""
    kept: dict = {}
    monkeypatch.setattr(record, "_memory", {(record.IN_MEMORY, "guesses"): kept})
    return kept


def commit(guessed: Guess, answer: str, sure: int) -> None:
    guessed.choices.value, guessed.sure.value = answer, sure
    guessed.button.click()


def revealed(guessed: Guess) -> Revealed:
    return Revealed(guessed.question, guessed.chosen, guessed.confidence)


@pytest.fixture
def coin(memory):
    return Guess(read_questions(PAGE, "toy", "toy/guesses.md")["toy.coin"])


def test_an_answer_and_how_sure_are_wanted_before_a_guess_is_kept(coin):
    coin.button.click()
    assert "Pick one first" in coin.reply.value
    coin.choices.value = "tails, x[0]"
    coin.button.click()
    assert "How sure are you" in coin.reply.value
    assert not coin.choices.disabled
    assert record.entries("guesses") == {}


@pytest.mark.parametrize(
    ("choice", "sign", "reason", "other"),
    [
        ("heads & 1 < 2", "✗", "It was <em>biased</em>. Throw it again.", "Look"),
        ("tails, x[0]", "✓", "Look at", "biased"),
    ],
)
def test_a_committed_guess_stays_and_its_reason_comes_after_the_measurement(coin, choice, sign, reason, other):
    commit(coin, choice, 70)
    assert html.escape(f"Kept: “{choice}”, 70% sure.") in coin.reply.value
    assert not re.search("biased|Look|fall|✓|✗", coin.reply.value + repr(coin) + coin.still)
    assert coin.choices.disabled
    assert coin.sure.disabled
    assert coin.button.disabled
    assert f"(•) {choice}" in repr(coin)
    for told in (revealed(coin)._repr_html_(), repr(revealed(coin))):
        assert sign in told
        assert "70% sure" in told
        assert "All coins fall." in told
        assert other not in told
    assert reason in revealed(coin)._repr_html_()


def test_a_guess_that_is_shown_again_after_its_verdict_says_what_came_of_it(memory):
    committed = guess("attention.sharpness")
    for answer, sign in ((committed.question.shown[0], ""), (committed.question.answer, "✓")):
        memory.clear()
        commit(committed := guess("attention.sharpness"), answer, 70)
        assert "Now measure" in guess("attention.sharpness").reply.value
        told = reveal("attention.sharpness")
        again = guess("attention.sharpness")
        for shown in (html.unescape(again.reply.value), repr(again), html.unescape(again.still)):
            assert told.verdict in shown
            assert told.verdict.startswith(sign)
            assert "Now measure" not in shown
        record._memory.pop((record.IN_MEMORY, "outcomes"))


def test_a_verdict_that_was_read_before_a_guess_was_made_is_no_outcome_of_it(memory):
    reveal("attention.sharpness")
    commit(guess("attention.sharpness"), guess("attention.sharpness").question.answer, 70)
    assert "Now measure" in guess("attention.sharpness").reply.value


def test_without_a_guess_the_answer_is_revealed_and_a_learner_is_told_so(coin, monkeypatch, tmp_path):
    assert repr(revealed(coin)) == "Measured: tails, x[0]. Look at the coin. All coins fall."
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "of_a_learner"))
    assert repr(revealed(coin)).startswith("You made no guess. Measured: tails, x[0]. Look")


def test_the_first_guess_counts_and_is_there_again_after_a_restart(coin):
    commit(coin, "heads & 1 < 2", 90)
    again = Guess(coin.question)
    assert again.choices.value == "heads & 1 < 2"
    assert again.button.disabled
    again.choices.value = "tails, x[0]"
    again.commit()
    assert record.entries("guesses") == {"toy.coin": {"answer": "heads & 1 < 2", "confidence": 90, "right": 0}}
    assert repr(revealed(coin)).startswith("✗ You said “heads & 1 < 2”, 90% sure. Measured: tails, x[0].")


def test_a_record_that_somebody_else_wrote_breaks_no_page(coin, memory):
    memory["toy.coin"] = {"answer": "tails, x[0]", "confidence": 71, "right": 1}
    assert Guess(coin.question).choices.disabled
    memory["toy.coin"]["answer"] = "an option of an older page"
    assert not Guess(coin.question).choices.disabled


NUMBER_PAGE = "## loss\nHow large is the loss?\n\n= 5.6 ± 0.3 nats\n\nIt is ln V.\n"


@pytest.mark.parametrize(
    ("asked", "right", "wrong"),
    [
        ("= 5.6 ± 0.3 nats", ["5.6", " 5.9 ", "5.30"], ["5.95", "-5.6"]),
        ("= 4000 ×÷ 2 tokens", ["4000", "2e3", "8000"], ["1999", "8001", "0", "-4000"]),
        ("= -1 ± 0.5", ["-1.5", "-0.5"], ["1"]),
    ],
)
def test_a_number_is_right_within_what_the_page_allows(asked, right, wrong, memory):
    question = read_questions(NUMBER_PAGE.replace("= 5.6 ± 0.3 nats", asked), "toy", "guesses.md")["toy.loss"]
    for typed in [*right, *wrong]:
        guessed = Guess(question)
        commit(guessed, typed, 50)
        kept = record.entries("guesses")["toy.loss"]
        assert kept == {"answer": typed.strip(), "confidence": 50, "right": int(typed in right)}, typed
        memory.clear()


@pytest.mark.parametrize("typed", ["", "many", "nan", "inf", "1,5"])
def test_what_is_no_number_is_not_kept(typed, memory):
    guessed = Guess(read_questions(NUMBER_PAGE, "toy", "guesses.md")["toy.loss"])
    commit(guessed, typed, 50)
    assert "Type a number" in guessed.reply.value
    assert not guessed.button.disabled
    assert repr(revealed(guessed)) == "Measured: 5.6 nats. It is ln V."


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        ("= 5.6", "write a number as"),
        ("= 5.6 ± x", "write a number as"),
        ("= 5.6.1 ± 1", "write a number as"),
        ("= 5.6 ± 0", "above 0"),
        ("= 5.6 ×÷ 1", "above 1"),
        ("= -5.6 ×÷ 2", "above 0"),
    ],
)
def test_a_number_that_cannot_be_read_is_refused(number, remedy):
    with pytest.raises(ValueError, match=rf"^x:4: .*{remedy}"):
        read_questions(NUMBER_PAGE.replace("= 5.6 ± 0.3 nats", number), "toy", "x")
    with pytest.raises(ValueError, match=r"^x:1: the number has no explanation"):
        read_questions(NUMBER_PAGE.replace("\nIt is ln V.\n", ""), "toy", "x")


def test_progress_says_how_well_confidence_and_being_right_agree(memory):
    page = "".join(GOOD.replace("coin", f"coin_{letter}") + "\n" for letter in "abcde")
    questions = read_questions(page, "toy", "guesses.md").values()
    for question, sure, answer in zip(questions, (90, 90, 90, 50, 50), ("yes", "yes", "no", "no", "yes")):
        commit(Guess(question), answer, sure)
    for told in (repr(progress()), progress()._repr_html_()):
        assert "50% sure: right in 1 of 2 (50%)" in told
        assert "90% sure: right in 2 of 3 (67%)" in told


def test_a_question_can_be_read_without_a_kernel_and_hides_its_answer(coin):
    text = repr(coin)
    assert text == "Predict: Heads or tails <b>, says she?\n  ( ) heads & 1 < 2\n  ( ) tails, x[0]"
    assert "<b>Heads or <code>tails</code> &lt;b&gt;, says <em>she</em>?</b>" in coin.still
    assert "– heads &amp; 1 &lt; 2" in coin.still
    assert "○" not in coin.still, "nothing there can be clicked"
    commit(coin, "tails, x[0]", 50)
    assert "◉ tails, x[0]" in coin.still
    assert not re.search("biased|Look|fall|✓|✗", text + coin.still)


CELLS = {
    "asked": 'question = guess("start_here.crown")\nquestion',
    "empty": "question.commit()",
    "committed": "question.choices.value = question.question.options[0].text\nquestion.sure.value = 70\n"
    "question.button.click()",
    "again": "question",
    "after": 'reveal("start_here.crown")',
}


def test_a_committed_guess_is_kept_wherever_its_question_was_asked():
    first = new_code_cell("from course_lib.live import guess, reveal")
    notebook = new_notebook(cells=[first, *(new_code_cell(source) for source in CELLS.values())])
    NotebookClient(notebook).execute()
    page = dict(zip(CELLS, (cell.outputs for cell in notebook.cells[1:])))
    assert not page["empty"]
    assert not page["committed"]
    asked = EVERY["start_here.crown"]
    assert not asked.options[0].right
    for still, view in (page["asked"], page["again"]):
        assert set(view.data) == {VIEW}, "the still is an output of its own, which a lost widget cannot take with it"
        assert set(still.data) == {"text/html", "text/plain"}
        assert still.data["text/plain"].startswith(f"Predict: {asked.text[:20]}")
        for kind, chosen in (("text/html", "◉ "), ("text/plain", "(•) ")):
            assert chosen + asked.options[0].text in still.data[kind]
            assert "70% sure" in still.data[kind]
            assert "Measured: " in still.data[kind], "since it has been revealed"
            assert "Now measure" not in still.data[kind]
            assert plain(asked.options[0].reason) not in still.data[kind]
    (told,) = page["after"]
    chosen = asked.options[0].text.replace("“", "‘").replace("”", "’")  # within others
    assert told.data["text/plain"].startswith(f"✗ You said “{chosen}”, 70% sure.")
    assert plain(asked.options[0].reason) in told.data["text/plain"]
    assert plain(asked.options[1].reason) not in told.data["text/plain"]


def test_a_picture_that_is_kept_is_small_and_looks_the_same():
    import base64
    import io

    import numpy as np
    from PIL import Image

    from course_lib.grading.page.run_notebooks import _small
    from course_lib.live.drawing import new_figure
    from course_lib.live.figure import png

    figure, axes = new_figure(6, 3)
    axes.imshow(np.random.default_rng(0).random((8, 20)), aspect="auto")
    axes.set_title("weights")
    before = png(figure)
    after = base64.b64decode(_small(base64.b64encode(before).decode()))
    assert len(after) < len(before)
    seen = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB"), float) for data in (before, after)]
    assert np.abs(seen[0] - seen[1]).mean() < 1  # of 255
