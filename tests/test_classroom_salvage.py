"""What is salvaged before anything runs: files and archives that are not as they should be, and hostile ones."""

import json
import tracemalloc
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

import course_lib
from course_lib.classroom.mark.marking import compared
from course_lib.classroom.read import salvage as reading
from course_lib.classroom.read import submission_reader
from course_lib.classroom.read.folders import OUTSIDE
from course_lib.classroom.read.notebook_reader import Cell
from course_lib.classroom.read.salvage import (
    MOST_CONFLICTS,
    cells_of_markdown,
    cells_of_org,
    cells_of_page,
    cells_of_script,
    defines_answer,
    newer_syntax,
    newest,
    python_version,
    sides,
    versions,
)
from course_lib.classroom.read.submission_reader import Notebook, Submission
from course_lib.classroom.read.submissions import find_handed_in
from tests.grading.archives import packed
from tests.grading.corpus import notebook
from tests.grading.salvaged import page_cell
from tests.handed_in import TEXT, about, lay_out, said

ANSWER = "attention_memory = 4\n"


def the_one(folder, files, **options):
    [submission] = find_handed_in([lay_out(folder, files)], **options).submissions
    return submission


# --- archives ---------------------------------------------------------------------------------------------------------
BACKSLASHES = packed(("work\\02_attention.ipynb", TEXT), ("work\\lib\\helper.py", "x = 1"), ("work\\data\\", ""))


def test_an_archive_with_backslashes_is_read_as_folders_and_that_is_said(tmp_path):
    submission = the_one(tmp_path / "class", {"ada.zip": BACKSLASHES}, one_each=True)
    assert [book.path for book in submission.notebooks] == ["work/02_attention.ipynb"]
    assert submission.files == {"work/lib/helper.py": "x = 1"}
    assert submission.troubles == ()
    assert "packed with backslashes" in submission.salvaged[0]
    strict = the_one(tmp_path / "class", {"ada.zip": BACKSLASHES}, one_each=True, salvage=False)
    assert strict.notebooks == strict.salvaged == ()
    assert OUTSIDE in strict.troubles[0]
    assert strict.digest != submission.digest, "the one is not taken for the other when a run is resumed"


def test_of_a_class_whose_archive_has_backslashes_it_is_said_of_each_submission(tmp_path):
    data = packed(("class\\ada.ipynb", TEXT), ("class\\bo.ipynb", about(3)))
    (tmp_path / "class.zip").write_bytes(data)
    found = find_handed_in([tmp_path / "class.zip"]).submissions
    assert [each.name for each in found] == ["ada", "bo"]
    assert all("class.zip was packed with backslashes" in each.salvaged[0] for each in found)
    [strict] = find_handed_in([tmp_path / "class.zip"], salvage=False).submissions
    assert strict.notebooks == ()


def test_where_every_backslash_led_out_nothing_was_salvaged(tmp_path):
    data = packed(("..\\x.ipynb", "{}"), ("02_attention.ipynb", TEXT))
    submission = the_one(tmp_path / "class", {"ada.zip": data}, one_each=True)
    assert submission.salvaged == ()
    assert OUTSIDE in "".join(submission.troubles)


@pytest.mark.parametrize(
    "name", ["..\\02_attention.ipynb", "a\\..\\..\\x.ipynb", "C:\\x.ipynb", "\\\\host\\share\\x.ipynb", "\\x.ipynb"]
)
def test_a_backslash_leads_no_further_out_than_a_slash(tmp_path, name):
    submission = the_one(tmp_path / "class", {"ada.zip": packed((name, TEXT))}, one_each=True)
    assert submission.notebooks == ()
    assert any(OUTSIDE in trouble for trouble in submission.troubles)


def test_two_spellings_of_one_place_are_one_name_and_neither_is_taken(tmp_path):
    data = packed(("work/02_attention.ipynb", TEXT), ("work\\02_attention.ipynb", about(3)))
    submission = the_one(tmp_path / "class", {"ada.zip": data}, one_each=True)
    assert not any(book.cells for book in submission.notebooks)
    assert "twice" in "".join(submission.all_troubles)


# --- a crowd of other files -------------------------------------------------------------------------------------------
def test_twelve_thousand_files_of_data_do_not_hide_the_notebook_behind_them(tmp_path):
    data = packed(*((f"data/{i:05}.csv", "") for i in range(12_000)), ("work/02_attention.ipynb", TEXT))
    submission = the_one(tmp_path / "class", {"ada.zip": data}, one_each=True)
    assert [book.path for book in submission.notebooks] == ["work/02_attention.ipynb"]
    assert submission.troubles == ()


def test_of_a_boundless_crowd_the_rest_is_not_looked_at_and_that_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(submission_reader, "MOST_LISTED", 30)
    files = {f"ada/{i:02}.csv": "" for i in range(40)}
    submission = the_one(tmp_path / "class", files, one_each=True)
    assert "more than 30 files: the rest was not looked at" in submission.troubles[0]


# --- loose files in a class -------------------------------------------------------------------------------------------
PAGE = page_cell("attention_memory = 4")
LOOSE = {
    "ada.ipynb": TEXT,
    "bo.py": ANSWER,
    "cy.ipynb.txt": TEXT,
    "dee.IPYNB.json": TEXT,
    "ed.ipynb.html": PAGE,
    "flo.md": f"```python\n{ANSWER}```\n",
    "guy.qmd": f"```{{python}}\n#| echo: false\n{ANSWER}```\n",
    "hed.org": f"* Masks\n  #+BEGIN_SRC python :session\n  {ANSWER}  #+END_SRC\n",
}
TOLD = {
    "eve.py": "defines no answer of the course",
    "fay.html": "printed page",
    "gil.pdf": "printed page",
    "hal.md": "Markdown",
    "jan.qmd": "Markdown",
    "kim.org": "Org",
    "ida.ipynb.txt": "no notebook that can be read",
    "ada.py": "next to a submission of the same name",
}
OPEN = "attention_memory = ...  # your answer\ndef softmax(x, dim):\n    raise NotImplementedError\n"


def test_loose_files_that_hold_answers_are_hand_ins_and_of_others_the_remedy_is_said(tmp_path):
    folder = lay_out(tmp_path / "class", {**LOOSE, **dict.fromkeys(TOLD, "x = 1\n"), "ada.py": ANSWER})
    found, left, _ = find_handed_in([folder])
    assert {each.name: len(each.salvaged) for each in found} == {
        "ada": 0,
        "bo": 1,
        "cy": 1,
        "dee": 1,
        "ed": 1,
        "flo": 1,
        "guy": 1,
        "hed": 1,
    }
    assert all(book.cells for each in found for book in each.notebooks)
    assert {each.name: TOLD[each.name] in each.why for each in left} == dict.fromkeys(TOLD, True)
    assert all(".ipynb" in each.why for each in left if each.name != "ada.py"), "what is wanted"
    found, left, _ = find_handed_in([folder], salvage=False)
    assert [each.name for each in found] == ["ada"]
    assert len(left) == len(LOOSE) - 1 + len(TOLD)


@pytest.mark.parametrize("name", ["x.py", "x.html", "x.md"])
def test_an_assignment_with_its_answers_open_is_nobodys_hand_in(tmp_path, name):
    text = {"x.py": OPEN, "x.html": page_cell(OPEN), "x.md": f"```python\n{OPEN}```\n"}[name]
    found, left, _ = find_handed_in([lay_out(tmp_path / "class", {"ada.ipynb": TEXT, name: text, "bo.ipynb": TEXT})])
    assert [each.name for each in found] == ["ada", "bo"]
    assert [each.name for each in left] == [name]


@pytest.mark.parametrize("place", ["course_lib/normalization.py", "normalization.py", "mine/layers.py"])
def test_a_module_of_the_library_answers_nothing(tmp_path, place):
    text = Path(course_lib.__file__).with_name("normalization.py").read_text(encoding="utf-8")
    submission = the_one(tmp_path / "class", {f"ada/{place}": text.replace("\n", "\r\n")}, one_each=True)
    assert submission.notebooks == ()
    assert "There is no notebook in it, but" in submission.troubles[-1]


def test_a_script_can_be_named_alone_and_is_refused_where_nothing_is_salvaged(tmp_path):
    folder = lay_out(tmp_path, {"ada.py": ANSWER, "notes.py": "x = 1\n"})
    [submission] = find_handed_in([folder / "ada.py"]).submissions
    assert (submission.name, submission.troubles) == ("ada", ())
    for path, salvage in ((folder / "ada.py", False), (folder / "notes.py", True)):
        with pytest.raises(ValueError, match="is no submission: name a notebook"):
            find_handed_in([path], salvage=salvage)


def test_what_was_read_as_a_notebook_is_no_helper_that_cannot_be_imported(tmp_path):
    files = {"02_attention.py": "from own import *\n" + ANSWER, "own.py": "x = 1\n", "more.py": ANSWER}
    laid = {f"ada/{name}": text for name, text in files.items()}
    submission = the_one(tmp_path / "class", laid, one_each=True)
    assert [book.path for book in submission.notebooks] == ["02_attention.py", "more.py"]
    assert submission.files == {"own.py": "x = 1\n", "more.py": ANSWER}, "one may import the other"
    assert submission.troubles == ()


@pytest.mark.parametrize("name", ["02_attention.py", "02_attention.html", "02_attention.qmd"])
def test_a_file_in_place_of_a_notebook_that_is_too_large_is_named_once(tmp_path, monkeypatch, name):
    monkeypatch.setattr(reading, "LARGEST_HELPER", 1_000_000)
    monkeypatch.setattr(reading, "LARGEST_NOTEBOOK", 1_000_000)
    files = {f"ada/{name}": ANSWER + "#" * 1_000_000, "ada/more.py": ANSWER}
    for laid in (files, {f"ada/{name}": files[f"ada/{name}"]}):
        submission = the_one(tmp_path / str(len(laid)), laid, one_each=True)
        assert [book.path for book in submission.notebooks] == [each.partition("/")[2] for each in [*laid][1:]]
        assert said(submission).count(f"{name} is larger than 1 MB") == 1
    left = find_handed_in([lay_out(tmp_path / "loose", {"zoe.ipynb": TEXT, name: files[f"ada/{name}"]})]).left
    assert [each.why.partition(":")[0] for each in left] == ["is larger than 1 MB"]


def test_where_there_is_a_notebook_a_script_is_what_it_imports(tmp_path):
    submission = the_one(tmp_path / "class", {"ada/02_attention.ipynb": TEXT, "ada/a.py": ANSWER}, one_each=True)
    assert len(submission.notebooks) == 1
    assert submission.files == {"a.py": ANSWER}
    assert submission.salvaged == ()


def test_the_cells_of_a_script_are_those_of_the_percent_format():
    assert cells_of_script("x = 1\n") == [("code", "x = 1")]
    text = "import a\n# %% [markdown]\n# Words's\n#%%\ny = 2\n\n# %% [raw]\nz\n# %%\n\n"
    assert cells_of_script(text) == [("code", "import a"), ("raw", "# Words's"), ("code", "y = 2"), ("raw", "z")]


def test_the_cells_of_a_script_are_those_that_jupyter_and_jupytext_mark():
    assert cells_of_script("a\n# In[1]:\nb\n# In[ ]:\n\n\nc\n") == [("code", each) for each in "abc"]
    light = "# ---\n#       format_name: light\n# ---\nx = 1\n\n# + a title\ny = 2\n# -\nz = 3\n"
    assert [source for _, source in cells_of_script(light)][1:] == ["y = 2", "z = 3"]
    assert len(cells_of_script("x = 1\n# + 2\n# -\ny = 3\n")) == 1, "in no other script do these mark a cell"
    assert cells_of_script("# %% [md]\n# a\n# %% [markdown] tags=[]\n# b\n") == [("raw", "# a"), ("raw", "# b")]


SOURCES = ["a = 1 < 2 & 3", 's = "</pre><b>&amp;"', "def f(x):\n    return x\n\n\n# ä", "%matplotlib inline\n!ls"]


@pytest.mark.proof
@pytest.mark.parametrize("template", ["lab", "classic", "basic"])
def test_a_page_that_jupyter_makes_gives_every_cell_back(template):
    exporters = pytest.importorskip("nbconvert.exporters")
    text = notebook([("markdown", "```python\nx = 1\n```"), *(("code", each) for each in SOURCES), ("raw", "y = 1")])
    book = json.loads(text)
    shown = {"output_type": "display_data", "metadata": {}, "data": {"text/html": page_cell("z = 1").split("<div>")[1]}}
    book["cells"][1]["outputs"] = [shown, {"output_type": "stream", "name": "stdout", "text": "x = 1\n"}]
    page, _ = exporters.HTMLExporter(template_name=template).from_notebook_node(nbformat.reads(json.dumps(book), 4))
    assert cells_of_page(page.encode()) == [("code", source) for source in SOURCES]


@pytest.mark.parametrize(
    ("page", "sources"),
    [
        (page_cell("a = 1 < 2"), ["a = 1 < 2"]),
        ("<html><pre>a = 1</pre><div class='highlight hl-ipython3'><pre>a = 1</pre></div>", []),
        (page_cell("a").replace("jp-InputArea", "jp-OutputArea"), []),
        (page_cell("a").partition("</pre>")[0], []),
        (page_cell("&#" + "9" * 5_000 + ";").replace("&amp;", "&") + page_cell("b"), ["b"]),
        (page_cell("&#xffffffff;&#0;").replace("&amp;", "&"), ["��"]),
        ('<div class="jp-CodeCell"' * 500_000, []),
        ('<div class="jp-CodeCell"><div class="highlight hl-x">' * 200_000, []),
        ('<div class="' * 500_000 + "<" * 500_000 + "&" * 500_000, []),
    ],
    ids=range(9),
)
def test_of_a_page_only_cells_are_read_whatever_else_it_holds(page, sources):
    assert [source for _, source in cells_of_page(page.encode())] == sources


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("```python\na\n```\n~~~py\nb\n~~~\n``` {code-cell} ipython3\nc\n```\n", ["a", "b", "c"]),
        ("````python\na\n```\nb\n````\n", ["a\n```\nb"]),
        ("```{python}\n#| a: 1\nb\n```\n```{{python}}\nc\n```\n```{.python .x}\nd\n```\n", ["#| a: 1\nb", "d"]),
        ("```\na\n```\n```bash\nb\n```\n    a\n`a`\n", []),
        ("```markdown\n```python\na\n```\n", []),
        ("```python\nnever closed\n", []),
        ("``` ```\na\n```python\nb\n```\n", ["b"]),
        ("```" * 300_000 + "\n" + "~~~\n" * 300_001, []),
    ],
    ids=range(8),
)
def test_of_markdown_only_fences_that_say_python_are_read(text, sources):
    assert [source for _, source in cells_of_markdown(text)] == sources


@pytest.mark.parametrize(
    ("text", "sources"),
    [
        ("#+begin_src python\na\n#+end_src\n#+BEGIN_SRC jupyter-python :session x\nb\n#+END_SRC\n", ["a", "b"]),
        ("  #+begin_src python\n  def a():\n      b\n  #+end_src\n", ["def a():\n    b"]),
        ("#+begin_src emacs-lisp\na\n#+end_src\n#+begin_src pythonic\nb\n#+end_src\n: c\n", []),
        ("#+begin_example\n#+end_example\n#+begin_src python\nnever closed\n", []),
        ("#+end_src\n" * 300_000 + "#+begin_src python\n" * 300_001, []),
    ],
    ids=range(5),
)
def test_of_org_only_blocks_that_say_python_are_read(text, sources):
    assert [source for _, source in cells_of_org(text)] == sources


MARIMO = f"""import marimo

app = marimo.App()


@app.cell
def _():
    def softmax(x, dim):
        return x.exp() / x.exp().sum(dim, keepdim=True)
    {ANSWER}    return attention_memory, softmax
"""


@pytest.mark.parametrize("where", ["ada/02_attention.py", "ada.py"])
def test_of_a_marimo_notebook_it_is_said_what_it_is_and_which_command_makes_a_notebook_of_it(tmp_path, where):
    found, left, _ = find_handed_in([lay_out(tmp_path / "class", {"zoe.ipynb": TEXT, where: MARIMO})])
    told = said(found[0]) if len(found) == 2 else f"{left[0].name} {left[0].why}"
    assert f"{where.partition('/')[2] or where} is a marimo notebook, whose cells are functions" in told
    assert "`marimo export ipynb`" in told
    assert all(book.path.endswith(".ipynb") for each in found for book in each.notebooks)


def test_a_script_that_only_speaks_of_marimo_is_read(tmp_path):
    submission = the_one(tmp_path / "class", {"ada/a.py": f"# import marimo\n{ANSWER}"}, one_each=True)
    assert [book.path for book in submission.notebooks] == ["a.py"]


# --- merges -----------------------------------------------------------------------------------------------------------
line = st.binary(max_size=5).map(lambda text: text.replace(b"\n", b"")).filter(lambda text: text[:1] not in b"<=>|")
block = st.lists(line, max_size=3)


@given(st.lists(st.tuples(block, block, block, st.booleans()), min_size=1, max_size=4), block)
def test_both_sides_of_a_merge_come_back_as_they_were(hunks, end):
    merged, ours, theirs = [b""], [b""], [b""]
    for before, one, other, with_base in hunks:
        base = [b"||||||| 1a2b", *one] if with_base else []
        merged += [*before, b"<<<<<<< HEAD", *one, *base, b"=======", *other, b">>>>>>> main"]
        ours += [*before, *one]
        theirs += [*before, *other]
    texts = [b"".join(line + b"\n" for line in [*lines, *end]) for lines in (merged, ours, theirs)]
    assert sides(texts[0]) == texts[1:]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"x\n=======\ny",  # a heading in Markdown
        b"<<<<<<< a\nx\n",  # never ends
        b"<<<<<<< a\n<<<<<<< b\n=======\n>>>>>>> b\n=======\n>>>>>>> a\n",  # one inside another
        b"<<<<<<< a\n>>>>>>> a\n",
        b"<<<<<<< a\n=======\n||||||| b\n",
        b"<<<<<<< a\n=======\n>>>>>>> a\n" * (MOST_CONFLICTS + 1),
        b"\n<<<<<<< " * 500_000,
    ],
    ids=range(9),
)
def test_what_is_no_merge_or_a_broken_one_is_left_as_it_is(data):
    assert sides(data) == []


def test_marks_of_a_merge_inside_of_a_cell_are_its_text(tmp_path):
    source = "a = '''\n<<<<<<< HEAD\n=======\n>>>>>>> main\n'''"
    submission = the_one(tmp_path / "class", {"ada.ipynb": notebook([("code", source)])}, one_each=True)
    assert [cell.source for cell in submission.notebooks[0].cells] == [source]
    assert submission.salvaged == ()


def test_both_sides_of_an_archived_merge_keep_to_the_limits_of_one_submission(tmp_path, monkeypatch):
    monkeypatch.setattr(submission_reader, "LARGEST_TEXT", 1_500)
    whole = notebook([("code", f"x = '{'y' * 1_000}'")])
    found = next(each for each in whole.splitlines(keepends=True) if "x = " in each)
    both = whole.replace(found, f"<<<<<<< a\n{found}=======\n{found.replace('x =', 'z =')}>>>>>>> b\n")
    submission = the_one(tmp_path / "class", {"ada.ipynb": both}, one_each=True)
    assert sum(len(cell.source) for book in submission.notebooks for cell in book.cells) <= 1_500
    assert "1,500 characters" in "".join(submission.all_troubles)


def test_a_merge_of_millions_of_lines_is_cut_at_its_marks_alone():
    data = b"<<<<<<< a\n" + b"ab\n" * 500_000 + b"=======\n>>>>>>> b\n" + b"\n" * 500_000
    tracemalloc.start()
    try:
        ours, theirs = sides(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(ours), len(theirs)) == (2_000_000, 500_000)
    assert peak < 3 * len(data), f"{peak:,} bytes for {len(data):,}"


def test_a_merge_that_cannot_be_told_apart_is_named_and_so_is_one_that_nobody_salvages(tmp_path):
    merge = notebook([("code", ANSWER)]).replace('   "metadata"', '<<<<<<< a\n=======\n>>>>>>> b\n   "metadata"', 1)
    for text, salvage in ((merge, False), (merge.replace("=======\n", ""), True)):
        submission = the_one(tmp_path / "class", {"ada.ipynb": text}, one_each=True, salvage=salvage)
        assert "marks of a merge that was not finished" in "".join(submission.all_troubles)
        assert submission.salvaged == ()


# --- versions ---------------------------------------------------------------------------------------------------------
def test_versions_of_one_notebook_are_told_by_what_copies_are_called():
    paths = ["a.ipynb", "a (1).ipynb", "a-Copy1.ipynb", "a.ipynb (theirs)", "a-2.ipynb", "a(3).ipynb"]
    assert versions(paths) == [[0, 1, 2, 3, 4, 5]]
    assert versions(["x/a.ipynb", "y/a.ipynb", "b.ipynb", "x/a_final.ipynb"]) == [[0], [1], [2], [3]]


def test_the_version_of_python_is_read_and_whatever_stands_there_instead_is_none():
    info = {"codemirror_mode": {"name": "ipython", "version": 3}, "name": "python", "version": "3.12.4"}
    for indent in (None, 1):
        text = json.dumps({"metadata": {"kernelspec": {"version": "9.9"}, "language_info": info}}, indent=indent)
        assert python_version(text.encode()) == (3, 12)
    for version in ("", "three", "3", "99999.1", None, ["3.12"]):
        assert python_version(json.dumps({"language_info": {"version": version}}).encode()) == ()
    assert python_version(b'"language_info": {' * 100_000) == ()


def book(path: str, source: str) -> Notebook:
    return Notebook(path, (Cell(1, "code", source),))


def test_the_newest_versions_are_compared_and_the_others_answer_what_is_open_still():
    books = [book(f"02_attention-{i}.ipynb", f"x = {i}") for i in range(1, 6)]
    copy, other = book("02_attention-Copy1.ipynb", "x = 5"), book("03_masks (1).ipynb", "y = 1")
    submission = Submission("ada", (*books, copy, other), {}, (), "")
    assert [[each.path for each in group] for group in compared(submission)] == [
        ["02_attention-3.ipynb", "02_attention-4.ipynb", "02_attention-Copy1.ipynb"],
        ["03_masks (1).ipynb"],
        ["02_attention-1.ipynb"],
        ["02_attention-2.ipynb"],
    ]


def test_equal_cells_are_equal_submissions_whatever_python_wrote_them(tmp_path):
    texts = [notebook([("code", ANSWER)], language_info={"name": "python", "version": f"3.{i}.1"}) for i in (11, 12)]
    found = find_handed_in(
        [lay_out(tmp_path, {"ada.ipynb": texts[0], "bo.ipynb": texts[1]})], one_each=True
    ).submissions
    assert found[0].digest == found[1].digest


# --- %run, names, a newer Python --------------------------------------------------------------------------------------
def test_what_runs_a_notebook_finds_it_and_a_million_blank_lines_find_nothing():
    sources = {"a.ipynb": "  %run  helpers.ipynb", "b.ipynb": "# %run helpers.ipynb", "c.ipynb": "\n" * 1_000_000}
    books = [*(book(path, source) for path, source in sources.items()), book("helpers.ipynb", "x = 1")]
    submission = Submission("ada", tuple(books), {"own.py": ""}, (), "")
    seen = {each.path: sorted(submission.beside(each)) for each in books[:3]}
    assert seen == {
        "a.ipynb": ["b.ipynb", "c.ipynb", "helpers.ipynb", "own.py"],
        "b.ipynb": ["own.py"],
        "c.ipynb": ["own.py"],
    }
    assert [submission.runs(each) for each in books[:3]] == [
        ["it runs helpers.ipynb, which was also handed in"],
        [],
        [],
    ]


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        (ANSWER, True),
        ("attention_memory: int = 4", True),
        ("class A:\n    def softmax(self, x):\n        return x", True),
        ("attention_memory == 4\nprint(attention_memory)", False),
        (OPEN, False),
        (OPEN + ANSWER, True),
        ("class RMSNorm:\n    def forward(self, x):\n        raise NotImplementedError\n", False),
        ("x = 1\n    def softmax(): ...\n" * 50_000, False),
        ("    def softmax(): pass\n" * 50_000 + "    raise NotImplementedError", False),
    ],
    ids=range(9),
)
def test_code_answers_where_it_gives_a_name_of_the_course_more_than_a_stub(text, answers):
    assert defines_answer(text) is answers


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def first[T](x: T) -> T: ...", "type parameters, which came with 3.12"),
        ("class Stack[T]: ...", "type parameters"),
        ("type Pair[T] = tuple[T, T]", "`type` statement"),
        ("type Ids = list[int]", "`type` statement"),
        ("""print(f"{row["id"]}")""", "quotes inside of an f-string"),
        ("""print(f"{x} {{y}} {row["id"]}")""", "quotes inside of an f-string"),
        (r"""print(rf"{x}: {'\n'.join(rows)}")""", "a backslash inside of an f-string's braces"),
        ("def f(:", ""),
        ("type(x) == int; types = 1", ""),
        ("""print(f"{x}" + "{y}", f'{x["a"]}', f"{{" "a")""", ""),
        (r"""print(f"{x}\n{y}\t" + "{'\n'}", f"\{x}", rb"\x{", "don't")""", ""),
        ("\n" * 300_000 + "def" + " " * 300_000 + "f'{{" * 100_000 + "f'{x}" * 100_000, ""),
    ],
    ids=range(12),
)
def test_a_newer_pythons_syntax_is_named(source, why):
    assert why in newer_syntax(source, (), (3, 11))
    assert bool(why) == bool(newer_syntax(source, (), (3, 11)))
    assert newer_syntax(source, (), (3, 12)) == ""
    assert newest(source, ()) == ((3, 12) if why else ())
    assert "was written with Python 3.13" in newer_syntax(source, (3, 13), (3, 12))
    assert newer_syntax(source, (3, 9), (3, 12)) == ""


@pytest.mark.parametrize(
    ("source", "why", "since"),
    [
        ("def first[T = int](x: T) -> T: ...", "defaults of type parameters, which came with 3.13", (3, 13)),
        ("type Pair[T = int] = tuple[T, T]", "defaults of type parameters", (3, 13)),
        ('html(t"<p>{x}")', "a t-string, which came with 3.14", (3, 14)),
        ("x = rt'{x}' + T'{y}'", "a t-string", (3, 14)),
        ("""x = "can't, t" 't' "x t", at"x", t = ''  # t''""", "", ()),
        ("'''\\" * 200_000 + "'\\\n" * 200_000, "", ()),
    ],
    ids=range(6),
)
def test_what_came_with_a_later_python_is_named_to_one_that_lacks_it(source, why, since):
    assert why in newer_syntax(source, (), (3, 12))
    assert newest(source, ()) == since
    assert newest(source, (3, 20)) == (3, 20)
    assert newer_syntax(source, (), (3, 14)) == ""
