"""Slides from a notebook: what the room sees, what waits for a key, what is for the presenter alone."""

import json
import re
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from course_lib.__main__ import main
from course_lib.course.contents import BY_SLUG
from course_lib.live.guesses import questions
from course_lib.site import links
from course_lib.site import slides as made

ROOT = Path(__file__).parent.parent
STYLES = (ROOT / "web" / "slides.css").read_text(encoding="utf-8")
CHAPTER = BY_SLUG["heads"]
ID, QUESTION = next((id, question) for id, question in questions("heads").items() if question.options)
TITLE = new_markdown_cell("# 4 · Multi-head attention\n\n*Minutes.*\n\nA question. Why? Afterwards you can\n\n- do it.")


def of(*cells, draw=lambda figure: f"<figure>{figure.call}</figure>", slug="heads"):
    """The slides of a notebook after its title."""
    notebook = new_notebook(cells=[TITLE, new_code_cell("import math"), *cells])
    return made._Maker(BY_SLUG[slug], notebook, draw).slides()[1:]


def printing(source, text):
    return new_code_cell(source, outputs=[new_output("stream", text=text)])


def seen(slide):
    """What the room sees before a key is pressed."""
    return re.sub(r'<div class="fragment.*?</div>|<aside.*?</aside>', "", slide.as_html(), flags=re.DOTALL)


def test_a_guess_is_followed_by_its_measurement_and_then_by_the_verdict_that_waits():
    cells = [new_code_cell(f'guess("{ID}")'), printing("x = 3\nx", "0.31 nats"), new_code_cell(f'reveal("{ID}")')]
    asked, measured, verdict = of(
        *cells, new_markdown_cell("<details><summary>What happened</summary>\n\nThis.\n\n</details>")
    )
    assert all(made.html.escape(option) in asked.body for option in QUESTION.shown)
    assert asked.body.count("<li>") == verdict.body.count("<li") == len(QUESTION.options)
    assert 'class="right"' not in asked.body
    assert "fragment" not in asked.body
    assert "0.31 nats" in measured.body
    reason = made.markdown(QUESTION.reply(QUESTION.answer))
    assert reason in verdict.body
    assert reason not in seen(verdict)
    assert "This." in verdict.body
    assert "This." not in seen(verdict)


def test_a_guess_without_a_measurement_keeps_its_answer_on_the_same_slide():
    (slide,) = of(new_code_cell(f'guess("{ID}")'), new_code_cell(f'reveal("{ID}")'))
    assert slide.kind == "verdict"
    assert slide.body.count('class="right"') == 1


def test_prose_is_for_the_presenter_and_a_heading_keeps_its_first_words():
    long = " ".join(["This sentence has six words altogether."] * 20)
    (slide,) = of(new_markdown_cell(f"## 4.1 Why?\n\n{long}"))
    assert slide.as_html().count("<h2>4.1 Why?</h2>") == 1
    assert 20 < len(re.sub("<.*?>", "", slide.body).split()) <= made.LEAD
    assert long in "".join(slide.notes)


def test_formulas_and_tables_are_seen_and_links_into_the_repository_are_text():
    first, second = of(
        new_markdown_cell("## 4.1 Why?\n\nSee [4](04_heads.ipynb) and [x](https://example.org).\n\n$$a < b$$"),
        printing("1", "one"),
        new_markdown_cell("Now the other.\n\n| a | b |\n|---|---|\n| 1 | 2 |"),
    )[::2]
    assert "\\[a &lt; b\\]" in first.body
    assert "04_heads" not in first.body
    assert 'href="https://example.org"' in first.body
    assert "<table>" in second.body


def test_of_code_a_class_is_shown_and_long_output_is_not():
    source = "import math\n\n\nclass Head:\n    def forward(self):\n        return 1\n\n\nprint(Head().forward())"
    (slide,) = of(printing(source, "1"))
    assert "Head" in slide.body
    assert "import" not in slide.body
    assert of(printing("for i in x:\n    print(i)", "\n".join(map(str, range(40))))) == []


def test_a_recorded_figure_and_a_settled_claim_have_slides_of_their_own():
    figure, claim = of(
        new_code_cell("soft_dictionary()"), new_code_cell('settle("attention.vanishing")'), slug="attention"
    )
    assert figure.body == "<figure>soft_dictionary</figure>"
    assert "extremely small gradients" in seen(claim)
    assert "confirmed" not in seen(claim)


def test_only_an_authors_own_words_stand_in_quotation_marks():
    """The claim says itself whether it is quoted; the styles add no marks."""
    assert "content:" not in "".join(re.findall(r"blockquote[^{]*\{[^}]*\}", STYLES))


def test_a_page_holds_the_teachers_notes_beside_the_slides_and_asks_no_server(tmp_path):
    note = "<details><summary>For the teacher</summary>\n\n- minutes: 9\n- ask: Shall we?\n\n</details>"
    notebook = nbformat.v4.new_notebook(
        cells=[
            TITLE, new_code_cell("import math"), new_markdown_cell("## 4.1 Why?\n\nIt is $x$."),
            new_markdown_cell(note, metadata={"tags": ["teacher"]}),
        ]
    )  # fmt: skip
    nbformat.write(notebook, tmp_path / CHAPTER.notebook)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / CHAPTER.notebook).rename(tmp_path / "notebooks" / CHAPTER.notebook)
    (tmp_path / "web").symlink_to(ROOT / "web")
    page = made.slides(tmp_path, CHAPTER)
    more = json.loads(re.search(r'id="more">(.*?)</script>', page)[1])
    assert "Shall we?" in more["notes"]["4.1 Why?"]
    assert "Shall we?" not in page.partition('id="more"')[0]
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text(page, encoding="utf-8")
    assert [said for said in links.problems(tmp_path / "site") if "another server" in said] == []
    assert page.count("<section class=") == 2


def test_a_missing_package_and_a_file_that_is_there_are_sentences(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    (tmp_path / "mine.html").write_text("precious")
    assert main(["slides", "heads", "--out", str(tmp_path / "mine.html")]) == 2
    assert "--force" in capsys.readouterr().err
    assert (tmp_path / "mine.html").read_text() == "precious"
    monkeypatch.setattr(made, "find_spec", lambda name: None if name == "sphinx_revealjs" else True)
    assert main(["slides", "heads", "--out", str(tmp_path / "other.html")]) == 2
    assert (
        "sphinx_revealjs is not installed here: run `python -m pip install -r requirements.txt`"
        in capsys.readouterr().err
    )
