"""The reports for people: what learners wrote stays text, the numbers are those of the results, every link leads on."""

import re
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from report_pages import ABOUT, HOSTILE, TITLES, Page, pages, rows, small_class

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.read.folders import LeftOut
from course_lib.classroom.report.pages import STYLE, TEMPLATES, write_reports
from course_lib.grading import EXERCISES
from course_lib.grading.result import SIGNS, Result


@pytest.fixture(scope="module")
def graded() -> list[GradedSubmission]:
    return small_class()


# --- the page itself --------------------------------------------------------------------------------------------------


def test_a_page_asks_for_nothing_and_forbids_every_script(tmp_path, graded):
    for page in pages(graded, tmp_path).values():
        tags = {tag for tag, _ in page.elements}
        assert not tags & {"script", "link", "iframe", "object", "embed", "base", "form", "audio", "video", "use"}
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
        assert all(source.startswith("data:image/png;base64,") for source in page.attributes("src"))
        policies = [
            given["content"] for tag, given in page.elements if "Security-Policy" in given.get("http-equiv", "")
        ]
        assert [rule.strip() for rule in policies[0].split(";")][:3] == [
            "default-src 'none'",
            "style-src 'unsafe-inline'",
            "img-src data:",
        ]
        # The set of characters is declared within the first 1,024 bytes, and the policy before any content.
        assert [next(iter(given)) for tag, given in page.elements if tag == "meta"][:2] == ["charset", "http-equiv"]
    assert "url(" not in STYLE
    assert "@import" not in STYLE


def test_a_page_can_be_read_by_ear_and_by_keyboard(tmp_path, graded):
    for page in pages(graded, tmp_path).values():
        counts = Counter(tag for tag, _ in page.elements)
        assert (counts["main"], counts["h1"], counts["title"]) == (1, 1, 1)
        ids = page.attributes("id")
        assert len(ids) == len(set(ids))
        assert set(page.attributes("aria-labelledby")) <= set(ids)
        assert counts["caption"] == counts["table"]
        for tag, attributes in page.elements:
            if tag == "th":
                assert attributes["scope"] in ("row", "col")
            if tag == "img":
                assert attributes["alt"]
            if tag == "svg":
                assert (attributes["role"], bool(attributes["aria-label"])) == ("img", True)
            if "scroll" in attributes.get("class", ""):
                assert (attributes["tabindex"], attributes["role"]) == ("0", "region")
                assert attributes["aria-label"]


def luminance(colour: str) -> float:
    """Relative luminance of "#rrggbb", WCAG 2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_stands_out_from_its_ground(scheme):
    """WCAG 2 AA: a contrast of at least 4.5 to 1; of a bar, which is not text, 3 to 1."""
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.S)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", light))
    if scheme == "dark":
        colours |= dict(re.findall(r"--(\w+): (#\w{6})", dark))
    pairs = [("text", "ground"), ("soft", "ground"), ("link", "ground"), ("warn", "ground"), ("text", "panel")]
    pairs += [("soft", "panel"), ("text", "g1"), ("text", "g2"), ("t3", "g3"), ("t4", "g4"), ("t4", "g5")]
    for text, ground in [*pairs, ("fill", "ground")]:
        bright, dim = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= (3 if text == "fill" else 4.5), (text, ground)


def test_the_templates_are_packed_with_the_library():
    root = Path(__file__).parent.parent
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packed = {
        path for pattern in settings["package-data"]["course_lib"] for path in (root / "course_lib").glob(pattern)
    }
    assert {path.name for path in TEMPLATES.iterdir()} >= {"page.html", "class.html", "learner.html", "style.css"}
    assert {*TEMPLATES.iterdir()} <= packed


def test_every_link_leads_to_a_file_or_a_place_that_exists(tmp_path, graded):
    names = [*HOSTILE, "Ada", "ADA", "ada", "a/b", "", "   ", "con", "x" * 300, "李" * 200, "100 % #1?.html", "\u200b"]
    marked = [GradedSubmission(name, str(i), graded[0].results) for i, name in enumerate(names)]
    found = pages(marked, tmp_path)
    index, *learners = found
    assert index == tmp_path / "report" / "index.html"
    linked = set()
    for path, page in found.items():
        for target in page.attributes("href"):
            if target.startswith("#"):
                assert target[1:] in page.attributes("id")
            else:
                linked.add(path.parent / unquote(target))
    assert linked == set(learners)
    assert len(linked) == len(names)
    assert all(path.parent == tmp_path / "report" / "learners" and path.is_file() for path in linked)


def test_equal_results_give_equal_bytes_in_whatever_order_they_come(tmp_path, graded):
    twins = [*graded, replace(graded[1], name=graded[0].name)]
    one = write_reports(twins, tmp_path / "a", titles=TITLES, about=ABOUT)
    other = write_reports(twins[::-1], tmp_path / "b", titles=TITLES, about=ABOUT)
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]
    assert not list(tmp_path.rglob("*.part"))


# --- what the class page says -----------------------------------------------------------------------------------------


def test_learners_stand_by_name_with_their_points(tmp_path, graded):
    index, *_ = write_reports(graded, tmp_path, titles=TITLES, about=ABOUT)
    by_name = {each.name: each for each in graded}
    found = rows(index, "By name")
    for name, points, percent in found:
        assert points == f"{by_name[name].earned} / {by_name[name].points}"
        assert percent.strip() == f"{round(100 * by_name[name].earned / by_name[name].points)}%"
    assert sum(each.earned for each in graded) > 0
    assert "⚠ 1 note<" in index.read_text(encoding="utf-8")


def test_learners_stand_by_name_and_an_accent_changes_no_place(tmp_path):
    marked = [GradedSubmission(name, "", ()) for name in ("zoé", "Eva", "ada", "Émile", "Ede", "Łukasz")]
    page = next(iter(pages(marked, tmp_path).values()))
    places = [page.text().index(name) for name in ("ada", "Ede", "Émile", "Eva", "zoé")]
    assert places == sorted(places)


def test_the_matrix_holds_the_points_of_every_learner_in_every_chapter(tmp_path, graded):
    index, *_ = write_reports(graded, tmp_path, titles=TITLES, about=ABOUT)
    mean, *found = rows(index, "Points earned")
    by_name = {each.name: each for each in graded}
    for name, *cells in found:
        wanted = [sum(r.earned for r in by_name[name].results if r.exercise_id.startswith(prefix))
                  for prefix in ("attention.", "masks.")]  # fmt: skip
        assert [int(cell) for cell in cells] == wanted
    columns = list(zip(*[[int(cell) for cell in cells] for _, *cells in found]))
    assert mean[1:] == [f"{sum(column) / 3:.1f}" for column in columns]


def test_the_ground_of_the_matrix_tells_the_share_and_a_chapter_that_was_not_graded_stays_empty(tmp_path):
    ids = ("attention.softmax", "masks.causal")
    results = {key: [Result(key, "t", status, 1, ()) for status in ("passed", "failed")] for key in ids}
    marked = [
        GradedSubmission(str(k), str(k), (*[results[ids[0]][0]] * k, *[results[ids[0]][1]] * (8 - k))) for k in range(9)
    ]
    marked.append(GradedSubmission("other", "o", (results[ids[1]][0],)))
    index, *_ = write_reports(marked, tmp_path, titles=TITLES, about=ABOUT)
    html = index.read_text(encoding="utf-8").split("<caption>Points earned")[1].split("</table>")[0]
    cells = re.findall(r"<td( class=\"h\d\")?>([^<]*)</td>", html)
    levels = [level[-2:-1] for level, _ in cells]
    assert [shown for _, shown in cells[:2]] == ["4.0", "1.0"]  # the mean of those who have the chapter
    assert levels[2::2] == [*"012233445", ""]  # k of 8 points: none, below ¼, from ¼, … all
    assert [shown for _, shown in cells[2:]] == [x for k in range(9) for x in (str(k), "–")] + ["–", "1"]


def test_a_share_of_one_hundred_percent_means_all(tmp_path):
    exercise = EXERCISES["attention.softmax"]
    right = [Result(exercise.id, "t", "passed", 1, ())] * 399
    almost = GradedSubmission("almost", "1", (*right, Result(exercise.id, "t", "failed", 1, ())))
    every = GradedSubmission("every", "2", (*right, right[0]))
    index, *_ = write_reports([almost, every], tmp_path, titles={}, about={})
    assert [row[2].strip() for row in rows(index, "By name")] == ["99%", "100%"]


def test_common_mistakes_come_with_their_count_their_learners_and_the_teachers_sentence(tmp_path, graded):
    index = next(iter(pages(graded, tmp_path).values()))
    items = index.text("ol")
    causal, softmax = EXERCISES["masks.causal"], EXERCISES["attention.softmax"]
    assert items.startswith(f"{causal.misconceptions[0].name} · {causal.title}")  # two fell for it: the most
    assert causal.misconceptions[0].sentence.replace("`", "") in items
    assert "2 of 3 submissionsÉmile, Zoë" in items
    assert softmax.misconceptions[0].sentence.replace("`", "") in items
    wrong = next(option for option in EXERCISES["masks.patterns"].options if not option.right)
    assert wrong.why.replace("`", "") in items
    assert items.count("1 of 3 submissionsÉmile") == 2


def test_hardest_exercises_come_with_the_share_of_those_who_tried(tmp_path, graded):
    index, *_ = write_reports(graded, tmp_path, titles=TITLES, about=ABOUT)
    found = {cells[0].rpartition(" ")[2]: [cell.strip() for cell in cells[1:]] for cells in rows(index, "The share of")}
    assert found == {
        "masks.causal": ["0%", "2 of 3"],
        "masks.patterns": ["0%", "1 of 3"],
        "attention.softmax": ["50%", "3 of 3"],
    }


def test_the_histogram_and_its_table_count_every_submission(tmp_path, graded):
    index, *_ = write_reports(graded, tmp_path, titles=TITLES, about=ABOUT)
    shares = [each.earned / each.points for each in graded]
    wanted = [sum(min(int(share * 10 + 1e-9), 9) == i for share in shares) for i in range(10)]
    assert [int(count) for _, count in rows(index, "Submissions by")] == wanted
    page = Page(index.read_text(encoding="utf-8"))
    label = next(attributes["aria-label"] for tag, attributes in page.elements if tag == "svg")
    assert sum(int(count) for count in re.findall(r"%: (\d+)", label)) == 3


def test_the_histogram_says_what_the_better_half_earned(tmp_path, graded):
    index = next(iter(pages(graded, tmp_path / "a").values()))
    share = sorted(each.earned / each.points for each in graded)[1]
    assert index.text("figcaption") == f"At least half of the class earned {int(100 * share)}% of the points or more."
    index = next(iter(pages([GradedSubmission("a", "", graded[2].results)], tmp_path / "b").values()))
    assert index.text("figcaption") == "At least half of the class earned no points."


def test_equal_submissions_stand_beside_each_other_and_a_missing_digest_equals_nothing(tmp_path, graded):
    alike = [replace(graded[0], name=name, digest=digest) for name, digest in
             [("Ada", "x"), ("Ben", "y"), ("Cem", "x"), ("Dan", ""), ("Eva", "")]]  # fmt: skip
    page = next(iter(pages(alike, tmp_path).values()))
    assert "have exactly the same cells" in page.text()
    assert "Ada, Cem" in page.text("ul")
    assert "Dan, Eva" not in page.text("ul")


def test_an_empty_class_and_an_empty_submission_have_their_pages(tmp_path):
    (index,) = pages([], tmp_path / "a").values()
    assert "Nothing was handed in." in index.text()
    index, learner = pages([GradedSubmission("Ada", "", (), ("There is no notebook.",))], tmp_path / "b").values()
    assert "no points" in learner.text()
    assert "There is no notebook." in learner.text("main")


def test_the_class_page_says_what_was_not_taken_and_why(tmp_path, graded):
    left = [LeftOut("eve.ipynb.txt", "is no notebook"), LeftOut(HOSTILE[0], HOSTILE[1])]
    for marked in (graded, []):
        index, *learners = write_reports(marked, tmp_path, titles=TITLES, about=ABOUT, left=left)
        page = Page(index.read_text(encoding="utf-8"))
        assert "Not taken: 2" in page.text("h2")
        assert "eve.ipynb.txt is no notebook" in page.text("li")
        assert "<script" not in index.read_text(encoding="utf-8")
        assert not any("eve.ipynb" in path.read_text(encoding="utf-8") for path in learners)
    index, *_ = write_reports(graded, tmp_path, titles=TITLES, about=ABOUT)
    assert "Not taken" not in index.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "heading", "number"),
    [
        ("Ada Lovelace_1234567_assignsubmission_file", "Ada Lovelace", "1234567"),
        ("Participant_1234567_assignsubmission_file_x", "Participant", "1234567"),
        ("doejane_LATE_12345_678_02_attention", "doejane", "12345"),
        ("_12345_assignsubmission_file", "_12345_assignsubmission_file", ""),
        (
            "Ada_1_assignsubmission_file_2_assignsubmission_file",
            "Ada_1_assignsubmission_file_2_assignsubmission_file",
            "",
        ),
        ("ada_02_attention", "ada_02_attention", ""),
    ],
)
def test_a_learners_page_is_headed_by_the_name_and_not_by_that_of_the_download(tmp_path, name, heading, number):
    _, page = pages([GradedSubmission(name, "", ())], tmp_path).values()
    assert page.text("h1") == heading
    assert page.text("title").startswith(f"{heading} ·")
    assert (f"number {number}" in page.text("header")) == bool(number)


@pytest.mark.proof
def test_the_class_page_of_five_hundred_stays_small(tmp_path, graded):
    one_each = {exercise.chapter: exercise for exercise in EXERCISES.values()}
    results = tuple(Result(e.id, e.title, "failed", e.points, ("No.",), misconception="m") for e in one_each.values())
    marked = [GradedSubmission(f"Learner number {i:03}", str(i), results, ("Cell 3 fails.",)) for i in range(500)]
    index, *learners = write_reports(marked, tmp_path, titles=TITLES, about=ABOUT)
    assert len(learners) == 500
    assert index.stat().st_size < 2_000_000


# --- what a learner's page says ---------------------------------------------------------------------------------------


def test_a_learner_reads_every_result_and_no_line_on_hints(tmp_path, graded):
    found = {path.stem: page for path, page in pages(graded, tmp_path).items()}
    for each in graded:
        page = found[each.name]
        text, articles = page.text(), page.text("article")
        assert page.text("h1") == each.name
        assert f"{each.earned} of {each.points} points" in text
        for result in each.results:
            assert result.title in text
            shown = articles if result.status != "unanswered" else page.text("ul")
            for sentence in result.sentences:
                assert sentence.replace("`", "") in shown
            assert result.case.replace("`", "") in articles
            assert result.evidence in articles
        for status, (sign, word, _) in SIGNS.items():
            count = sum(result.status == status for result in each.results)
            assert (f"{sign} {word}: {count}" in text) == bool(count)
        assert "hint(" not in text
        pictures = sum(result.picture.count("<img") for result in each.results)
        assert sum(tag == "img" for tag, _ in page.elements) == pictures
    assert any(result.picture for each in graded for result in each.results)
    known = EXERCISES["masks.causal"].misconceptions[0].name
    assert f"Recognized mistake: {known}" in found["Zoë"].text()


def test_a_learner_reads_the_points_of_every_chapter(tmp_path, graded):
    for path in write_reports(graded, tmp_path, titles=TITLES, about=ABOUT)[1:]:
        (each,) = [each for each in graded if each.name == path.stem]
        wanted = []
        for title, prefix in (("2 · Attention", "attention."), ("3 · Masks", "masks.")):
            results = [result for result in each.results if result.exercise_id.startswith(prefix)]
            wanted.append([title, f"{sum(r.earned for r in results)} / {sum(r.points for r in results)}"])
        assert [cells[:2] for cells in rows(path, "By chapter")] == wanted


def test_the_map_in_text_stands_only_where_there_is_no_picture(tmp_path):
    result = Result("masks.causal", "t", "failed", 2, ("No.",), sketch="in text")
    drawn = replace(result, picture="<p>drawn</p>")
    marked = [GradedSubmission("a", "1", (result,)), GradedSubmission("b", "2", (drawn,))]
    _, text, picture = pages(marked, tmp_path).values()
    assert ("in text" in text.text(), "drawn" in text.text()) == (True, False)
    assert ("in text" in picture.text(), "drawn" in picture.text()) == (False, True)


def test_troubles_stand_above_the_points(tmp_path, graded):
    text = {path.stem: page.text("main") for path, page in pages(graded, tmp_path).items()}
    assert 0 < text["Émile"].index("Cell 3 fails.") < text["Émile"].index("By chapter")
    assert "Notes on your notebook" not in text["Zoë"]


def test_what_was_salvaged_stands_in_both_reports(tmp_path, graded):
    text = {path.stem: page.text("main") for path, page in pages(graded, tmp_path).items()}
    for name, others in (("index", "Zoë"), ("Émile", "Ada")):
        assert "Faulty, but used" in text[name]
        assert "a.zip was packed <b>oddly</b>" in text[name], "as text, not as markup"
        assert "Faulty, but used" not in text[others]
    assert "Faulty, but used" not in pages(graded[:1], tmp_path)[tmp_path / "report" / "index.html"].text("html")


def test_a_learners_page_says_nothing_of_the_others(tmp_path, graded):
    for path, page in pages(graded, tmp_path).items():
        if path.stem != "index":
            others = {each.name for each in graded} - {path.stem}
            assert not [name for name in others if name in page.text("html")]
            assert all(target.startswith("#chapter-") for target in page.attributes("href"))
