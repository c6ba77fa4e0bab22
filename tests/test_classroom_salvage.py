"""What is salvaged before anything runs: files and archives that are not as they should be, and hostile ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom import submission_reader
from course_lib.classroom.folders import OUTSIDE
from course_lib.classroom.other_forms import cells_of_script
from course_lib.classroom.salvage import MOST_CONFLICTS, python_version, sides, versions
from course_lib.classroom.submissions import find_handed_in
from tests.grading.archives import packed
from tests.grading.corpus import notebook
from tests.handed_in import TEXT, about, lay_out

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
LOOSE = {"ada.ipynb": TEXT, "bo.py": ANSWER, "cy.ipynb.txt": TEXT, "dee.IPYNB.json": TEXT}
TOLD = {
    "eve.py": "defines no answer of the course",
    "fay.html": "printed page",
    "gil.pdf": "printed page",
    "hal.md": "Markdown",
}


def test_loose_files_that_hold_answers_are_hand_ins_and_of_others_the_remedy_is_said(tmp_path):
    folder = lay_out(tmp_path / "class", {**LOOSE, **dict.fromkeys(TOLD, "x = 1\n")})
    found, left, _ = find_handed_in([folder])
    assert {each.name: len(each.salvaged) for each in found} == {
        "ada": 0,
        "bo": 1,
        "cy": 1,
        "dee": 1,
    }
    assert all(book.cells for each in found for book in each.notebooks)
    assert {each.name: TOLD[each.name] in each.why for each in left} == dict.fromkeys(TOLD, True)
    assert all(".ipynb" in each.why or "JupyterLab" in each.why for each in left), "what is wanted"
    found, left, _ = find_handed_in([folder], salvage=False)
    assert [each.name for each in found] == ["ada"]
    assert len(left) == len(LOOSE) - 1 + len(TOLD)


def test_where_there_is_a_notebook_a_script_is_what_it_imports(tmp_path):
    submission = the_one(tmp_path / "class", {"ada/02_attention.ipynb": TEXT, "ada/a.py": ANSWER}, one_each=True)
    assert len(submission.notebooks) == 1
    assert submission.files == {"a.py": ANSWER}
    assert submission.salvaged == ()


def test_the_cells_of_a_script_are_those_of_the_percent_format():
    assert cells_of_script("x = 1\n") == [("code", "x = 1")]
    text = "import a\n# %% [markdown]\n# Words's\n#%%\ny = 2\n\n# %% [raw]\nz\n# %%\n\n"
    assert cells_of_script(text) == [("code", "import a"), ("raw", "# Words's"), ("code", "y = 2"), ("raw", "z")]


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
