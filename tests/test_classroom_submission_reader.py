"""What one submission holds: its chapters, its helper files, its digest."""

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.read import submission_reader
from course_lib.classroom.read.submission_reader import chapters_of
from course_lib.classroom.read.submissions import find_submissions
from course_lib.grading.judge.show import printable
from tests.grading.archives import HONEST, packed
from tests.grading.corpus import notebook
from tests.handed_in import TEXT, lay_out, said

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("number", range(1, 17))
def test_the_chapter_stands_in_the_file_name_whatever_others_put_around_it(number):
    [stem] = [path.stem for path in (ROOT / "exercises").glob(f"{number:02}_*.ipynb")]
    for name in (
        stem,
        f"{stem} (1)",
        f"{stem}-Copy2",
        f"doejane_LATE_12345_67890_{stem}-1",
        f"Jane 07_{stem.upper()}",
        stem[1:] if number < 10 else stem,
    ):
        assert submission_reader.Notebook(f"{name}.ipynb", ()).chapters == {number}, name
    for name in (f"1{stem}", f"{stem}s", stem[3:], f"{number:02}_assignsubmission_file", f"{stem}/Untitled"):
        assert submission_reader.Notebook(f"{name}.ipynb", ()).chapters == set(), name


def test_without_a_telling_name_the_checks_say_the_chapter_and_without_checks_the_names_defined(tmp_path):
    def chapters(*cells: str) -> set[int]:
        lay_out(tmp_path, {"Untitled.ipynb": notebook([("code", cell) for cell in cells])})
        return chapters_of(*find_submissions([tmp_path / "Untitled.ipynb"]))

    assert chapters('check("masks.causal", mask)', "def softmax(x, dim): ...") == {3}
    assert chapters("check( 'heads.split', f)", 'check("no.such", f)') == {4}
    assert chapters("def softmax(x, dim): ...", "class RMSNorm: ...", "masks_patterns = ['a']") == {2, 3, 7}
    assert chapters("softmax(x, 0)", "y = causal_mask(3)", "if gelu == 3: pass") == set()


def test_helper_files_are_those_beside_and_below_a_notebook(tmp_path):
    files = {
        "hw/02_attention.ipynb": TEXT,
        "hw/helper.py": "\ufeffx = 1\r\ny = 2",
        "hw/tools/__init__.py": "",
        "hw/my-script.py": "x = 1",
        "hw/.hidden.py": "x = 1",
        "hw/__pycache__/helper.py": "x = 1",
        "hw/data.csv": "1,2",
        "above.py": "x = 1",
        "elsewhere/other.py": "x = 1",
        "hw/latin.py": "name = 'Zoë'".encode("latin-1"),
        "hw/large.py": "#" * 1_000_001,
    }
    [submission] = find_submissions([lay_out(tmp_path / "class" / "ada", files).parent])
    assert submission.files == {
        "hw/helper.py": "x = 1\ny = 2",
        "hw/tools/__init__.py": "",
        "hw/latin.py": "name = 'Zo�'",
    }
    assert set(submission.beside(submission.notebooks[0])) == {"helper.py", "tools/__init__.py", "latin.py"}
    assert "my-script.py was not read" in said(submission)
    assert "large.py is larger than 1 MB" in said(submission)


def test_a_notebook_that_is_handed_in_alone_brings_none_of_the_files_beside_it(tmp_path):
    lay_out(tmp_path, {HONEST: TEXT, "ada.ipynb": TEXT, "secret_solutions.py": "x = 1"})
    assert [
        submission.files for submission in (*find_submissions([tmp_path / HONEST]), *find_submissions([tmp_path]))
    ] == [{}, {}, {}]


def test_a_script_alone_is_no_notebook(tmp_path):
    [submission] = find_submissions([lay_out(tmp_path, {"ada/02_attention.py": "# %%\nx = 1"})])
    assert (submission.notebooks, submission.files) == ((), {})
    assert "no notebook" in said(submission)


def test_the_digest_is_that_of_the_content_alone(tmp_path):
    run = json.loads(TEXT)
    run["cells"][1] |= {"execution_count": 7, "outputs": [{"output_type": "stream", "name": "stdout", "text": "hi"}]}
    same = {"ada_1_02_attention.ipynb": TEXT, "bo_2_02_attention (1).ipynb": json.dumps(run)}
    other = {"cy_02_attention.ipynb": TEXT.replace("softmax", "soft_max"), "dee_03_masks.ipynb": TEXT}
    digests = {
        each.name[:2]: each.digest
        for each in find_submissions([lay_out(tmp_path / "class", {**same, **other, "x.zip": packed()})])
    }
    assert digests["ad"] == digests["bo"]
    assert len(set(digests.values())) == 4
    assert all(len(digest) == 64 for digest in digests.values())


def test_equal_submissions_of_one_digest_say_the_same_troubles(tmp_path):
    broken = {
        "ada_1_02_attention.ipynb": TEXT[:-40],
        "bo_2_02_attention.ipynb": TEXT[:-40],
        "cy.zip": b"x",
        "dee.zip": b"x",
    }
    ada, bo, cy, dee = find_submissions([lay_out(tmp_path, broken)])
    assert ada.digest == bo.digest != cy.digest == dee.digest
    assert ada.all_troubles == bo.all_troubles != ()
    assert cy.all_troubles == dee.all_troubles != ()


def test_the_digest_counts_a_helper_file_and_a_kind_of_cell(tmp_path):
    variants = [
        {HONEST: TEXT},
        {HONEST: TEXT, "h.py": "x = 1"},
        {HONEST: TEXT, "h.py": "x = 2"},
        {HONEST: TEXT.replace('"raw"', '"markdown"')},
    ]
    found = find_submissions([lay_out(tmp_path / f"v{number}", files) for number, files in enumerate(variants)])
    assert len({submission.digest for submission in found}) == 4


@given(st.text(max_size=300))
def test_printable_text_is_one_short_line_without_control_characters(text):
    shown = printable(text, 100)
    assert len(shown) <= 100
    assert all(unicodedata.category(each) not in ("Cc", "Cs", "Zl", "Zp") for each in shown)
    assert all(unicodedata.category(each) != "Cf" or each in "\u200c\u200d" for each in shown)
    assert printable(shown, 100) == shown
    if len(text) <= 100 and text.isprintable():
        assert shown == text


def test_printable_replaces_what_acts_on_a_terminal_and_keeps_how_names_are_spelled():
    assert printable("a\x1b[31m\u202eb\nc\td\ud800") == "a�[31m�b c d�"
    assert printable("Zoë नमस्ते می‌خواهم 👩‍👩‍👧") == "Zoë नमस्ते می‌خواهم 👩‍👩‍👧"
    assert printable("x" * 300) == "x" * 198 + " …"
    assert printable("") == ""


# --- data beside a notebook -------------------------------------------------------------------------------------------
READS = notebook(
    [("code", 'open("data.csv"); np.load(f"saved/{name}.NPY"); open("notes/LICENCE")'), ("markdown", ".png")]
)
BYTES = bytes(range(256))


def with_data(folder: Path, files: dict, text: str = READS) -> submission_reader.Submission:
    [submission] = find_submissions(
        [lay_out(folder / "class" / "ada", {"hw/02_attention.ipynb": text, **files}).parent]
    )
    return submission


def test_small_files_that_the_code_names_come_with_the_notebook_byte_for_byte(tmp_path):
    submission = with_data(tmp_path, {"hw/data.csv": BYTES, "hw/saved/a.npy": b"\x93NUMPY", "hw/notes/LICENCE": "MIT"})
    assert submission.data == {"hw/data.csv": BYTES, "hw/notes/LICENCE": b"MIT", "hw/saved/a.npy": b"\x93NUMPY"}
    seen = submission.beside(submission.notebooks[0])
    assert seen == {"data.csv": BYTES, "notes/LICENCE": b"MIT", "saved/a.npy": b"\x93NUMPY"}
    assert submission.all_troubles == ()


@pytest.mark.parametrize("code", ["pd.read_csv(folder / name)", "# %run x\nos.listdir()", "list(Path().glob('*'))"])
def test_what_no_code_names_stays_behind_and_is_no_trouble_unless_the_code_lists_a_folder(tmp_path, code):
    files = {"hw/report.pdf": b"%PDF" * 500_000, "hw/data.csv": "1,2"}
    submission = with_data(tmp_path, files, notebook([("code", code), ("markdown", "see data.csv")]))
    lists = "listdir" in code or "glob" in code
    assert set(submission.data) == ({"hw/data.csv"} if lists else set())
    assert ("report.pdf" in said(submission)) == lists


def test_a_helper_names_data_for_the_notebook_that_imports_it(tmp_path):
    files = {"hw/load.py": 'rows = open("rows.tsv")', "hw/rows.tsv": "1\t2", "hw/words.txt": "a"}
    assert set(with_data(tmp_path, files, TEXT).data) == {"hw/rows.tsv"}


def test_data_that_does_not_travel_is_named_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(submission_reader, "LARGEST_DATA", 3_000_000)
    files = {f"hw/data/{i}.csv": b"x" * 1_000_000 for i in range(4)}
    files |= {"hw/big.csv": b"x" * 1_000_001, "hw/torch.so": b"\x7fELF", "hw/course_lib/words.csv": "a"}
    files |= {"above.csv": "1", "hw/new\nline.csv": "1", f"hw/{'n' * 190}/{'m' * 20}.csv": "1"}
    submission = with_data(tmp_path, files, notebook([("code", 'open(".csv"), ctypes.CDLL("torch.so")')]))
    assert sorted(submission.data) == [f"hw/data/{i}.csv" for i in range(3)]
    told = said(submission)
    for name, why in {
        "hw/big.csv": "it is larger than 1 MB",
        "hw/data/3.csv": "it is too much: the data files of a submission may have 3 MB together",
        "hw/torch.so": "it could be taken for a module",
        "hw/new line.csv": "it has a name that",
        "m …": "it has a name that",
    }.items():
        assert f"{name} was handed in and is not given to notebooks: {why}" in told, name
    assert "words.csv" not in told, "the course's own"
    assert "above.csv" not in told, "no notebook stands beside it or above it"


def test_a_link_among_the_data_is_not_followed_and_said(tmp_path):
    (tmp_path / "secret.csv").write_text("1")
    lay_out(tmp_path / "class" / "ada" / "hw", {})
    (tmp_path / "class" / "ada" / "hw" / "data.csv").symlink_to(tmp_path / "secret.csv")
    submission = with_data(tmp_path, {})
    assert submission.data == {}
    assert "data.csv is a symbolic link" in said(submission)


def test_of_very_many_data_files_the_first_ones_travel(tmp_path, monkeypatch):
    monkeypatch.setattr(submission_reader, "MOST_DATA", 5)
    submission = with_data(tmp_path, {f"hw/{i}.csv": "1" for i in range(7)})
    assert sorted(submission.data) == [f"hw/{i}.csv" for i in range(5)]
    assert "hw/6.csv was handed in and is not given to notebooks: it is one too many" in said(submission)


def test_the_digest_counts_data_that_travels_and_no_other_file(tmp_path):
    variants = [{"hw/data.csv": "1"}, {"hw/data.csv": "2"}, {}, {"hw/thoughts.txt": "1"}]
    digests = [with_data(tmp_path / str(i), files).digest for i, files in enumerate(variants)]
    assert len(set(digests)) == 3
    assert digests[2] == digests[3]
