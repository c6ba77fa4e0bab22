"""The web edition: pages that need no kernel and no other server, and a checker that sees what is broken."""

import base64
import gzip
import inspect
import json
import re
from pathlib import Path

import nbformat
import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from packaging.requirements import Requirement
from safetensors.torch import load

from course_lib.__main__ import main
from course_lib.claims import in_order, recorded
from course_lib.course.contents import BY_SLUG, CHAPTERS
from course_lib.grading.page.catalogue import EXERCISES
from course_lib.live.glass import HEADINGS, OF_A_MODEL
from course_lib.live.glass.pack import pack
from course_lib.live.guesses import questions
from course_lib.live.page import VIEW, WAKE
from course_lib.pretrained import load_pretrained
from course_lib.site import build, elsewhere, links, pages, states
from course_lib.tinytown import WordTokenizer

ROOT = Path(__file__).parent.parent
PNG = base64.b64encode(b"as good as a picture").decode()
NO_FIGURES: dict[str, str] = {}


def page(folder, cells, slug="heads", figures=NO_FIGURES):
    """The cells of a chapter's notebook as its page has them."""
    return pages.prepared(new_notebook(cells=cells), BY_SLUG[slug], folder, figures).cells


def html_of(cell) -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)


# ------------------------------------------------------------------------------------------------------- the notebooks
def test_a_widget_leaves_its_still_and_nothing_that_needs_a_kernel(tmp_path):
    image = f'<img alt="a head" src="data:image/png;base64,{PNG}">'
    still = f'<div class="course-still">{image}<div>words</div>{WAKE}</div>'
    outputs = [
        new_output(
            "display_data", {"text/html": still + "<style>a{}</style>\n<script>x()</script>", "text/plain": "t"}
        ),
        new_output("display_data", {VIEW: {"model_id": "1"}}),
        new_output("display_data", {}),
        new_output("display_data", {"text/html": '<div class="course-still"></div><style>a{}</style>'}),
    ]
    (cell,) = page(tmp_path, [new_code_cell("explore(1)", outputs=outputs)])
    assert len(cell.outputs) == 1
    shown = html_of(cell)
    assert "<script" not in shown
    assert "<style" not in shown
    assert "data:" not in shown
    assert 'alt="a head"' in shown
    assert "words" in shown
    assert WAKE not in shown, "here no cell can be run"
    assert shown.startswith(pages.STANDS)
    (name,) = re.findall(r'src="\.\./pictures/([^"]+)"', shown)
    assert (tmp_path / name).read_bytes() == b"as good as a picture"


def test_a_guess_shows_its_options_and_its_verdict_is_folded_below_the_measurement(tmp_path):
    id, question = next((i, q) for i, q in questions("heads").items() if q.options)
    told = new_output("display_data", {"text/html": f"<b>{question.answer}</b>"})
    folded = {"jupyter": {"outputs_hidden": True}}
    asked, verdict = page(
        tmp_path,
        [new_code_cell(f'guess("{id}")'), new_code_cell(f'reveal("{id}")', outputs=[told], metadata=folded)],
    )
    assert html_of(asked).count("<li>") == len(question.options)
    assert question.reply(question.answer) not in html_of(asked), "the answer follows the measurement"
    assert question.answer in html_of(verdict)
    assert set(verdict.metadata["tags"]) == {"hide-output", "remove-input"}


def test_the_teachers_notes_stay_out_of_the_page(tmp_path):
    note = new_markdown_cell("ask this", metadata={"tags": ["teacher"]})
    kept = page(tmp_path, [new_markdown_cell("## 4.1"), note, new_code_cell("1")])
    assert [cell.source for cell in kept] == ["## 4.1", "1"]


def test_what_jupyter_keeps_folded_is_folded_on_the_page(tmp_path):
    folded = new_code_cell(
        "2", metadata={"jupyter": {"outputs_hidden": True}}, outputs=[new_output("stream", text="4")]
    )
    _, cell, other = page(tmp_path, [new_code_cell("1"), folded, new_code_cell("3")])
    assert "hide-output" in cell.metadata["tags"]
    assert "hide-output" not in other.metadata["tags"]


def test_a_recorded_figure_takes_the_place_of_its_still(tmp_path):
    made = {"split_here": "not used", "soft_dictionary": "<figure>the slider</figure>"}
    outputs = [new_output("display_data", {"text/html": "<b>still</b>"})]
    (cell,) = page(tmp_path, [new_code_cell("x = 1\nsoft_dictionary()", outputs=outputs)], "attention", made)
    assert html_of(cell) == f"{pages.MOVES}<figure>the slider</figure>"
    assert "<b>still" not in html_of(cell)


def test_a_chapter_shows_the_glass_model_itself(tmp_path):
    said = {
        "text/html": "<b>a sentence in its place</b>",
        "text/plain": "[glass model] “the dog” … the next word: sat 9%. Open: 2.head.3.",
    }
    source = 'print(1)\nglass(text=SENTENCE, part=f"{layer}.head.{head}")'
    (cell,) = page(tmp_path, [new_code_cell(source, outputs=[new_output("display_data", said)])])
    assert '<iframe class="glass" src="../glass.html#text=the+dog&amp;part=2.head.3"' in html_of(cell)
    assert "in its place" not in html_of(cell)
    (cell,) = page(tmp_path, [new_code_cell("glass()")])
    assert '<iframe class="glass" src="../glass.html"' in html_of(cell)


def test_a_chapter_shows_its_own_model_in_the_glass(tmp_path):
    source = 'glass(beginner, tokenizer, text="<user> the cow said what ? <assistant>")'
    said = {"text/plain": "[glass model] “<user> the cow said what ? <assistant>” … the next word: . 99%."}
    (cell,) = page(
        tmp_path / "pictures", [new_code_cell(source, outputs=[new_output("display_data", said)])], "assistant"
    )
    (name,) = re.findall(r'<iframe class="glass" src="\.\./([\w-]+\.html)#text=%3Cuser%3E', html_of(cell))
    (made,) = tmp_path.rglob(name)
    model, tokenizer = widgets_of("assistant").GLASSES["beginner"]()
    assert base64.b64encode(pack(model, tokenizer)).decode() in made.read_text(encoding="utf-8")
    assert model.config.vocab_size == len(tokenizer) == len(WordTokenizer()) + 2


SHIPPED = {"theirs"}  # equal to the model that ships with the course


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.slug)
def test_a_model_that_a_chapter_shows_in_the_glass_is_made_for_the_pages(chapter):
    cells = nbformat.read(ROOT / "notebooks" / chapter.notebook, as_version=4).cells
    shown = {name for cell in cells for name in re.findall(r"^glass\((\w+),", cell.source, re.MULTILINE)}
    remedy = f"add it to GLASSES in chapters/{chapter.slug}/widgets.py, or pages and slides show another model"
    assert shown - SHIPPED == getattr(widgets_of(chapter.slug), "GLASSES", {}).keys(), remedy


def test_the_pages_fine_tune_the_assistant_with_the_settings_of_its_notebook():
    cells = nbformat.read(ROOT / "notebooks" / BY_SLUG["assistant"].notebook, as_version=4).cells
    (in_notebook,) = re.findall(r"^tuned = measure\.tuned\(beginner, (.*)\)$", cells_as_text(cells), re.MULTILINE)
    (on_pages,) = re.findall(r"tuned\(beginner\(\)\[0\], (.*)\), CHAT", inspect.getsource(widgets_of("assistant")))
    assert in_notebook == on_pages


def cells_as_text(cells) -> str:
    return "\n".join(cell.source for cell in cells)


def widgets_of(slug: str):
    return BY_SLUG[slug].part("widgets")


def test_links_into_notebooks_name_the_anchors_of_their_headings(tmp_path):
    link = new_markdown_cell("[x](04_heads.ipynb#4.9-What-is-this-head-for%3F), [y](03_masks.ipynb)")
    cell, _ = page(tmp_path, [link, new_code_cell("1")])
    assert f"(04_heads.ipynb#{pages.anchor('4.9 What is this head for?')})" in cell.source
    assert "(03_masks.ipynb)" in cell.source


@pytest.mark.parametrize("path", sorted((ROOT / "exercises").glob("*.ipynb")), ids=lambda path: path.stem)
def test_an_exercises_page_has_all_hints_folded_and_no_answer(path, tmp_path):
    slug = path.stem.partition("_")[2]
    notebook = nbformat.read(path, as_version=4)
    text = "\n".join(cell.source for cell in page(tmp_path, notebook.cells, slug))
    wanted = [hint for id in EXERCISES if id.startswith(f"{slug}.") for hint in EXERCISES[id].hints]
    assert text.count("<details><summary>Hint") == len(wanted) > 0
    assert all(hint in text for hint in wanted)
    assert "BEGIN SOLUTION" not in text


def test_a_link_to_a_file_goes_to_the_repository_or_is_text():
    text = "see [the map](../course_lib/README.md), [4](../notebooks/04_heads.ipynb) and [x](https://example.org)"
    assert pages.relinked(text) == text.replace("[the map](../course_lib/README.md)", "the map")
    file = "https://github.com/some/course/blob/main/course_lib/README.md"
    assert pages.relinked(text, "some/course") == text.replace("../course_lib/README.md", file)


def test_a_picture_gets_a_frame_once(tmp_path):
    image = f'<img alt="a" src="data:image/png;base64,{PNG}">'
    framed = f'<figure style="margin: 0;">{image}<figcaption>words</figcaption></figure>'
    for text in (image, framed):
        assert pages.tidy(text, tmp_path).count('<figure class="picture">') == 1


# ---------------------------------------------------------------------------------------------------- recorded states
@pytest.mark.parametrize("recorded", states.recorded_figures(), ids=lambda each: f"{each.slug}-{each.call}")
def test_each_recorded_figure_stands_in_its_notebook_once(recorded):
    notebook = nbformat.read(ROOT / "notebooks" / BY_SLUG[recorded.slug].notebook, as_version=4)
    assert sum(recorded.shown_by(cell.source) for cell in notebook.cells if cell.cell_type == "code") == 1


def test_the_slider_shows_the_figures_own_states(tmp_path):
    recorded = next(each for each in states.recorded_figures() if each.call == "piece_builder")
    made = states.draw(recorded, ROOT / "notebooks", tmp_path)
    told = json.loads(re.search(r'application/json">(.*?)</script>', made)[1])
    figure = states.build(recorded, ROOT / "notebooks" / BY_SLUG[recorded.slug].notebook)
    control = figure._controls[recorded.control]
    assert [state["value"] for state in told] == [str(n) for n in range(control.min, control.max + 1)]
    for value in (control.min, control.max):
        figure.render(**{recorded.control: value})
        assert told[value - control.min]["words"][0] == figure.text
    assert len({state["file"] for state in told}) == len(told)
    assert {path.name for path in tmp_path.iterdir()} == {state["file"] for state in told}
    assert f'value="{control.value - control.min}"' in made
    assert 'aria-label="' in made


@pytest.mark.parametrize(
    ("n", "keep"), [(3, 1), (21, 20), (22, 0), (343, 342), (100, 37), (72, 6), (343, 5), (343, 340)]
)
def test_a_sliders_stops_are_few_and_hold_both_ends_and_the_default(n, keep):
    chosen = states._spread(n, keep)
    assert len(chosen) == min(n, states.MOST)
    assert chosen == sorted(set(chosen))
    assert {0, keep, n - 1} <= set(chosen)


# --------------------------------------------------------------------------------------------------------------- claims
def test_every_recorded_claim_has_a_page_with_all_that_settles_it():
    findings = recorded()
    for each in in_order():
        finding = findings[each.id]
        text = pages.claim(each, finding)
        stated = (each.claim, each.control, each.source.quote, finding.measured.removesuffix("."), finding.because)
        for part in (*stated, *each.outcomes.values()):
            assert pages.literal(part) in text
        assert finding.verdict in text
        assert f"course_lib claims {each.id}" in text
        assert CHAPTERS[each.chapter].notebook in text


def test_a_colab_link_is_there_if_and_only_if_the_project_names_its_address(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert pages.repository_of(tmp_path) == ""
    (tmp_path / "pyproject.toml").write_text("[project.urls]\nRepository = 'https://github.com/some/course.git'\n")
    assert pages.repository_of(tmp_path) == "some/course"
    linked = pages._run_it("notebooks/04_heads.ipynb", "some/course")
    assert "/github/some/course/blob/elsewhere/notebooks/04_heads.ipynb" in linked
    assert "welcome?src=https://github.com/some/course/blob/elsewhere/notebooks/04_heads.ipynb" in linked
    assert "Colab" not in pages._run_it("notebooks/04_heads.ipynb", "")


def test_a_page_that_names_commands_says_which_python_they_mean(tmp_path):
    told = "in another one, write"
    assert told not in pages._run_it("notebooks/04_heads.ipynb", "")
    assert told in pages._run_it("notebooks/04_heads.ipynb", "", commands=True)


@pytest.fixture
def with_address(tmp_path):
    """A repository of two notebooks that names its address."""
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8").partition("[build-system]")[2]
    address = "[project.urls]\nRepository = 'https://github.com/some/course.git'\n\n[build-system]"
    (tmp_path / "pyproject.toml").write_text(address + project, encoding="utf-8")
    cells = [new_markdown_cell("# A"), new_code_cell("import course_lib", outputs=[new_output("stream", text="!")])]
    for part in ("notebooks", "exercises"):
        (tmp_path / part).mkdir()
        nbformat.write(new_notebook(cells=cells), tmp_path / part / "02_attention.ipynb")
    return tmp_path


def test_notebooks_for_elsewhere_install_the_course_first_and_are_otherwise_the_same(with_address, tmp_path):
    written = elsewhere.write_elsewhere(with_address, tmp_path / "out")
    assert [path.relative_to(tmp_path / "out").as_posix() for path in written] == [
        "notebooks/02_attention.ipynb",
        "exercises/02_attention.ipynb",
    ]
    for path in written:
        title, install, *rest = nbformat.read(path, as_version=4).cells
        assert (title.source, rest[0].source, rest[0].outputs[0].text) == ("# A", "import course_lib", "!")
        (line,) = re.findall(r"^    %pip install --quiet (.*)$", install.source, flags=re.M)
        names = [Requirement(each).name for each in re.findall(r'"([^"]+)"', line)]
        assert names[0] == "transformers-measured"
        assert {"anywidget", "matplotlib"} <= set(names)
        assert not {"jupyterlab", "ipython", "torch"} & set(names), "the service's own stay as they are"
    before = [path.read_bytes() for path in written]
    elsewhere.write_elsewhere(with_address, tmp_path / "out")
    assert [path.read_bytes() for path in written] == before


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [(True, True, "The course is installed."), (False, True, "is not kept"), (False, False, "could not be installed")],
    ids=["there already", "installed", "failed"],
)
def test_that_cell_installs_once_and_says_what_became_of_it(with_address, monkeypatch, capsys, before, after, said):
    shell, asked = InteractiveShell(), []
    shell.register_magic_function(asked.append, "line", "pip")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: (after if asked else before) or None)
    assert shell.run_cell(elsewhere.install_cell(with_address).source).success
    assert said in capsys.readouterr().out
    assert len(asked) == (not before)


def test_without_an_address_there_is_nothing_to_install_from(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(ValueError, match=r"has no address.*\[project.urls\]"):
        elsewhere.write_elsewhere(tmp_path, tmp_path / "out")


# ------------------------------------------------------------------------------------------------------ the first page
def test_the_first_page_has_every_chapter_and_the_glass_model(tmp_path, monkeypatch):
    (tmp_path / "_extra").mkdir()
    monkeypatch.setattr(pages.weights, "state", lambda name: "not here")
    text = pages.first_page(ROOT, tmp_path)
    assert all(f"(notebooks/{path.name})" in text for path in (ROOT / "notebooks").glob("*.ipynb"))
    assert all(f"(exercises/{path.name})" in text for path in (ROOT / "exercises").glob("*.ipynb"))
    assert '<iframe class="glass" name="glass" src="glass.html"' in text
    assert [path.name for path in (tmp_path / "_extra").iterdir()] == ["glass.html"]
    assert "in English" not in text, "its weights were not fetched"


def test_a_model_in_english_lies_beside_the_first_page_once_its_weights_are_here(tmp_path, monkeypatch):
    (tmp_path / "_extra").mkdir()
    tinytown = load_pretrained("tinytown")
    monkeypatch.setattr(pages.weights, "state", lambda name: "here")
    monkeypatch.setattr(pages, "load_pretrained", lambda name: tinytown)  # in place of 60 MB
    text = pages.first_page(ROOT, tmp_path)
    (page,) = re.findall(r'href="(\w+\.html)" target="glass">a model of 15 million weights', text)
    (file,) = re.findall(r'fetched\("([\w.]+)"\)', (tmp_path / "_extra" / page).read_text(encoding="utf-8"))
    packed = (tmp_path / "_extra" / file).read_bytes()
    found, expected = load(gzip.decompress(packed)), load(pack(*tinytown))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in found)
    assert f"{len(packed) / 1e6:.1f} MB when you ask for it" in text


def test_the_large_model_is_on_the_first_page_if_and_only_if_it_is_asked_for(tmp_path, monkeypatch):
    (tmp_path / "_extra").mkdir()
    tinytown, loaded = load_pretrained("tinytown"), []
    monkeypatch.setattr(pages.weights, "state", lambda name: "here")
    monkeypatch.setattr(pages, "load_pretrained", lambda name: (loaded.append(name), tinytown)[1])
    assert "135" not in pages.first_page(ROOT, tmp_path)
    assert loaded == ["stories15m"], "what is on the disk of whoever builds is not yet meant for all"
    text = pages.first_page(ROOT, tmp_path, large=True)
    assert re.findall(r'href="([\w.-]+\.html)" target="glass"', text) == [
        "glass.html", "stories15m.html", "smollm2-135m.html",
    ]  # fmt: skip
    size = (tmp_path / "_extra" / "smollm2-135m.bin").stat().st_size
    assert f"</a>, {size / 1e6:.1f} MB when you ask for it, and 0.8 GB of memory: for a laptop" in text
    page = (tmp_path / "_extra" / "smollm2-135m.html").read_text(encoding="utf-8")
    assert HEADINGS["smollm2-135m"] in page
    assert OF_A_MODEL["smollm2-135m"][1] in page


def test_without_its_weights_the_large_model_is_refused_with_the_command_that_fetches_them(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COURSE_WEIGHTS", str(tmp_path / "none"))
    assert main(["site", "--large", "--out", str(tmp_path / "site")]) == 2
    assert "python -m course_lib weights smollm2-135m" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(ValueError, match="--out"):
        build.build(ROOT, tmp_path, 1)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


# ---------------------------------------------------------------------------------------------------------- the checker
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ('<a href="other.html#here">x</a><a href="https://example.org">x</a><a href="#top">x</a>', None),
        ('<a href="missing.html">x</a>', "does not exist"),
        ('<a href="other.html#nowhere">x</a>', "no such place"),
        ('<a href="#nowhere">x</a>', "no such place"),
        ('<iframe src="other.html#text=here"></iframe>', "no such place"),
        ('<iframe src="#text=here"></iframe><script>show(location.hash)</script>', None),
        ('<img src="lost.png">', "does not exist"),
        ('<img src="https://example.org/a.png">', "another server"),
        ('<img srcset="https://example.org/a.png 2x">', "another server"),
        ('<script src="//example.org/a.js"></script>', "another server"),
        ('<link rel="stylesheet" href="https://example.org/a.css">', "another server"),
        ('<iframe src="https://example.org"></iframe>', "another server"),
        ('<p style="background: url(https://example.org/a.png)">x</p>', "another server"),
        ("<style>@import 'https://example.org/a.css';</style>", "another server"),
        ('<script type="module">import x from "https://example.org/a.js"</script>', "another server"),
        ('<script>fetch("https://example.org/a.json")</script>', "another server"),
    ],
)
def test_the_checker_names_what_leads_nowhere_or_to_another_server(body, said, tmp_path):
    (tmp_path / "index.html").write_text(f'<body id="top">{body}</body>')
    (tmp_path / "other.html").write_text('<p id="here">x</p>')
    found = links.problems(tmp_path)
    assert (found == []) if said is None else (len(found) == 1 and said in found[0])


def test_the_checker_reads_styles_and_scripts_in_files(tmp_path):
    (tmp_path / "a.css").write_text("@font-face { src: url('https://example.org/font.woff2') }")
    (tmp_path / "a.js").write_text(
        'const page = "https://example.org/a-link-to-click"; import("https://example.org/b.js")'
    )
    assert [said.split()[0] for said in links.problems(tmp_path)] == ["a.css", "a.js"]
