"""A notebook is read whole where it can be, and what cannot be read is said."""

import json
import tracemalloc
from pathlib import Path

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.read import folders, notebook_reader, submission_reader
from course_lib.classroom.read.notebook_reader import read_cells, without_outputs
from course_lib.classroom.read.submission_reader import chapters_of
from course_lib.classroom.read.submissions import find_submissions
from tests.grading.archives import HONEST
from tests.grading.corpus import notebook
from tests.handed_in import CELLS, TEXT, read, said, sources

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("path", sorted((ROOT / "solutions").glob("*.ipynb")), ids=lambda path: path.stem)
def test_cells_are_those_that_nbformat_reads(path):
    [submission] = find_submissions([path])
    cells = nbformat.read(path, as_version=4).cells
    assert sources(submission) == [(cell.cell_type, cell.source) for cell in cells]
    assert submission.all_troubles == ()


def test_nbformat_3_is_read_as_nbformat_converts_it(tmp_path):
    v3 = nbformat.v3
    cells = [
        v3.new_code_cell(input="x = 1\ny = 2"),
        v3.new_text_cell("markdown", source="*why*"),
        v3.new_heading_cell("Title", level=2),
    ]
    text = nbformat.v3.writes_json(v3.new_notebook(worksheets=[v3.new_worksheet(cells=cells)]))
    converted = nbformat.reads(text, as_version=4).cells
    assert [(kind, source) for kind, source in sources(read(tmp_path, text))][:2] == [
        (c.cell_type, c.source) for c in converted
    ][:2]
    assert sources(read(tmp_path, text))[2] == ("markdown", "Title")


def test_nbformat_2_and_unknown_formats_are_said(tmp_path):
    old = read(tmp_path, '{"nbformat": 2, "worksheets": [{"cells": [{"cell_type": "code", "input": "x = 1"}]}]}')
    assert sources(old) == []
    assert "nbformat 2" in said(old)
    for version in ("5", '"four"', "null", "1" * 5_000, "[4]", "NaN"):
        new = read(tmp_path, f'{{"cells": [{{"cell_type": "code", "source": "x = 1"}}], "nbformat": {version}}}')
        assert sources(new) == [("code", "x = 1")]
        assert "known nbformat" in said(new)


@pytest.mark.parametrize(
    "data",
    [
        b"\xef\xbb\xbf" + TEXT.encode(),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-be"),
        TEXT.encode("utf-32"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace(": ", ":").replace("\n", "").encode(),
        json.dumps(json.loads(TEXT), ensure_ascii=True, sort_keys=True).encode() + b"\n\n\0\0\0",
        TEXT.replace(
            '"nbformat":', '"big": 1' + "0" * 10_000 + ', "odd": [NaN, -Infinity, 1e999], "nbformat":'
        ).encode(),
        TEXT.replace('"id":', '"ID":').encode(),
        TEXT.replace("python3", "ai-course-env").encode(),
        json.dumps({**json.loads(TEXT), "metadata": None}).encode(),
    ],
    ids=[
        "BOM",
        "UTF-16",
        "UTF-16-BE",
        "UTF-32",
        "CRLF",
        "one line",
        "padded",
        "numbers",
        "no ids",
        "kernel name",
        "no metadata",
    ],
)
def test_the_same_notebook_in_another_guise_reads_the_same(tmp_path, data):
    submission = read(tmp_path, data)
    assert sources(submission) == CELLS
    assert submission.all_troubles == ()
    assert submission.digest == read(tmp_path, TEXT).digest


@pytest.mark.parametrize(
    ("metadata", "language"),
    [
        ({"language_info": {"name": "R"}}, "R"),
        ({"kernelspec": {"language": "julia", "name": "python3"}}, "julia"),
        ({"kernelspec": {"name": "ir"}}, "ir"),
        ({"kernelspec": {"language": "\x1b[31m<b>"}}, "�[31m<b>"),
    ],
)
def test_another_language_is_said_and_the_cells_are_used(tmp_path, metadata, language):
    submission = read(tmp_path, json.dumps({**json.loads(TEXT), "metadata": metadata}))
    assert sources(submission) == CELLS
    assert f"speaks {language}:" in said(submission)


def test_line_ends_and_halves_of_characters_become_what_python_can_compile(tmp_path):
    cells = [
        {"cell_type": "code", "source": ["a = 1\r\n", "b = 2\r", "c = '\\ud800'\n", "d = '\ud800\U0001f600\x1b\0'"]}
    ]
    submission = read(tmp_path, json.dumps({"cells": cells, "nbformat": 4}))
    assert sources(submission) == [("code", "a = 1\nb = 2\nc = '\\ud800'\nd = '�\U0001f600\x1b\0'")]


def test_control_characters_that_stand_unescaped_in_a_source_are_kept(tmp_path):
    assert sources(read(tmp_path, '{"cells": [{"cell_type": "code", "source": "a = 1\nb = 2\t"}], "nbformat": 4}')) == [
        ("code", "a = 1\nb = 2\t")
    ]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"\0" * 100, "empty"),
        (b"[]", "no notebook"),
        (b"PK\3\4...", "zip file under the name"),
        (b"\n <!DOCTYPE html>", "web page"),
        (b"%PDF-1.7", "PDF"),
        (b"version https://git-lfs.github.com/spec/v1", "Git LFS"),
        (b'{"nbformat": 4}', "no cells"),
        (b'{"cells": {"a": 1}, "nbformat": 4}', "no cells"),
        (b'{"cells": [], "cells": [], "nbformat": 4}', "twice"),
        (b"{" + b'"a": [' * 100_000, "brackets"),
        (b'{"a" "b"}', "damaged"),
        (b'{"a": ]}', "damaged"),
        (b'{"a": "\\', "damaged"),
        (b"\xff\xfe{\0", "damaged"),
        (b"\x93NUMPY", "no notebook"),
    ],
)
def test_what_is_no_notebook_is_said_and_still_handed_in(tmp_path, data, reason):
    submission = read(tmp_path, data)
    [book] = submission.notebooks
    assert book.cells == ()
    assert reason in said(submission)
    assert chapters_of(submission) == {2}


def test_odd_cells_cost_only_themselves(tmp_path):
    odd = [
        {"cell_type": "code", "source": "a = 1", "outputs": "none", "metadata": None},
        "no cell",
        {"cell_type": "code"},
        {"cell_type": "code", "source": 5},
        {"cell_type": "code", "source": ["a", ["b"]]},
        {"cell_type": "Code", "source": "b = 2"},
        {"source": "c = 3"},
        {"cell_type": ["code"], "source": "d = 4"},
        {"cell_type": "code", "source": [], "input": "e = 5"},
        {"cell_type": "code", "source": "f = 6"},
    ]
    submission = read(tmp_path, json.dumps({"nbformat": 4, "cells": odd}))
    read_cells = {cell.number: (cell.kind, cell.source) for cell in submission.notebooks[0].cells}
    raw = {6: ("raw", "b = 2"), 7: ("raw", "c = 3"), 8: ("raw", "d = 4")}
    assert read_cells == {1: ("code", "a = 1"), **raw, 9: ("code", ""), 10: ("code", "f = 6")}
    for number in (2, 3, 4, 5):
        assert f"cell {number} was left out" in said(submission)


def test_what_stands_before_the_damage_is_used(tmp_path):
    submission = read(tmp_path, TEXT[: TEXT.index('"raw"')])
    assert sources(submission) == CELLS[:2]
    assert "damaged at byte" in said(submission)


def test_a_notebook_within_a_conflict_of_git_says_where_it_is_damaged(tmp_path):
    submission = read(tmp_path, TEXT.replace(' "metadata": {}', "<<<<<<< HEAD\n", 1))
    assert "damaged at byte" in said(submission)


def test_limits_cost_what_is_beyond_them_and_no_more(tmp_path, monkeypatch):
    cells = [("code", "a = 1"), ("code", "#" + "x" * 1_000_000), ("code", "b = 2")]
    assert sources(read(tmp_path, notebook(cells))) == [cells[0], cells[2]]
    monkeypatch.setattr(submission_reader, "LARGEST_TEXT", 8)
    short = read(tmp_path, notebook([("code", "a = 1"), ("code", "c = 333"), ("code", "b=2")]))
    assert sources(short) == [("code", "a = 1"), ("code", "b=2")]
    assert "cell 2 was left out" in said(short)
    monkeypatch.setattr("course_lib.classroom.read.notebook_reader.MOST_CELLS", 3)
    many = read(tmp_path, notebook([("code", str(number)) for number in range(9)]))
    assert [source for _, source in sources(many)] == ["0", "1", "2"]
    assert said(many).count("only its first 3 cells") == 1
    monkeypatch.setattr(notebook_reader, "LARGEST_NOTEBOOK", 100)
    large = read(tmp_path, TEXT)
    assert sources(large) == []
    assert "larger than 0 MB without its outputs" in said(large)


def test_troubles_are_counted_where_there_are_too_many_to_say(tmp_path):
    submission = read(tmp_path, json.dumps({"nbformat": 4, "cells": [{"cell_type": "?", "source": "x"}] * 400}))
    assert len(submission.notebooks[0].cells) == 400
    assert len(submission.all_troubles) == submission_reader.MOST_TROUBLES + 1
    assert "350 more" in said(submission)


def test_outputs_take_no_memory(tmp_path):
    line = '{"name": "stdout", "output_type": "stream", "text": ["x\\n"]},'
    data = TEXT.replace('"outputs": []', '"outputs": [' + line * 100_000 + "0]").encode()
    tracemalloc.start()
    cells, troubles = read_cells(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [(cell.kind, cell.source) for cell in cells] == CELLS
    assert troubles == []
    assert peak < 200_000  # of 6 MB, which would be 60 as Python's objects


# --- more than is kept: outputs are stepped over as the file is read --------------------------------------------------
PLOT = {"output_type": "display_data", "metadata": {}, "data": {"image/png": 'iVBOR\n"w0KGgo' * 9_000}}


def with_outputs(outputs: list, **more) -> str:
    whole = json.loads(TEXT)
    whole["cells"][1]["outputs"] = outputs
    whole["cells"][0]["attachments"] = {"a.png": {"image/png": "x" * 100_000}}
    return json.dumps({**whole, **more}, indent=1)


def test_a_large_notebook_whose_outputs_make_it_large_is_read_and_they_take_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(notebook_reader, "LARGEST_NOTEBOOK", 1_000_000)
    monkeypatch.setattr(folders, "PIECE", 100_000)
    path = tmp_path / HONEST
    path.write_text(with_outputs([PLOT] * 100, metadata={"widgets": {"state": ["x" * 1_000_000]}}))
    assert path.stat().st_size > 14_000_000
    tracemalloc.start()
    [submission] = find_submissions([path])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sources(submission) == CELLS
    assert submission.all_troubles == ()
    assert peak < 3_000_000, f"{peak:,} bytes"
    assert submission.digest == read(tmp_path / "small", TEXT).digest


def test_beyond_its_outputs_a_large_notebook_has_the_limit_that_every_one_has(tmp_path, monkeypatch):
    monkeypatch.setattr(notebook_reader, "LARGEST_NOTEBOOK", 1_000_000)
    text = notebook([("code", "x"), *(("code", "#" + "y" * 90_000) for _ in range(20))])
    assert "larger than 1 MB without its outputs" in said(read(tmp_path, text))
    unfinished = with_outputs([PLOT] * 9).partition('"execution_count"')[0] + ', "outputs": ["' + "x" * 3_000_000
    assert sources(read(tmp_path, unfinished)) == CELLS[:1]
    assert "damaged" in said(read(tmp_path, unfinished))
    assert "larger than 1 MB" in said(read(tmp_path, with_outputs([PLOT] * 9).encode("utf-16")))


def test_no_file_is_read_beyond_what_one_submission_may_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(notebook_reader, "LARGEST_NOTEBOOK", 100_000)
    monkeypatch.setattr(notebook_reader, "LARGEST_FILE", 2_000_000)
    assert "larger than 2 MB" in said(read(tmp_path, with_outputs([PLOT] * 20)))


@given(
    st.lists(st.tuples(st.sampled_from(["code", "markdown"]), st.text() | st.lists(st.text())), max_size=4),
    st.recursive(
        st.none() | st.integers() | st.text(alphabet='"\\[]{}:, outputs\n'),
        lambda part: st.lists(part) | st.dictionaries(st.sampled_from(["outputs", "cells", '"outputs":[']), part),
    ),
    st.sampled_from([None, 1, "\t"]),
    st.integers(1, 200),
)
def test_without_its_outputs_a_notebook_reads_the_same_wherever_its_pieces_end(cells, value, indent, size):
    made = [{"metadata": value, "cell_type": kind, "outputs": [value], "source": text} for kind, text in cells]
    whole = {"x": value, "cells": made, "metadata": {"widgets": value}, "nbformat": 4}
    data = json.dumps(whole, indent=indent).encode()
    kept = b"".join(without_outputs(data[at : at + size] for at in range(0, len(data), size)))
    assert read_cells(kept) == read_cells(data)
    assert not cells or b'"outputs": []' in kept


@given(st.binary(max_size=300) | st.text(alphabet='"\\[]{}:outps ').map(str.encode), st.integers(1, 50))
def test_of_any_bytes_only_some_are_left_out(data, size):
    kept = b"".join(without_outputs(data[at : at + size] for at in range(0, len(data), size)))
    rest = iter(data)
    assert all(byte in rest for byte in kept), "what is kept comes in its order"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda part: st.lists(part) | st.dictionaries(st.text(), part),
)


@given(
    st.lists(st.tuples(st.sampled_from(["code", "markdown", "raw"]), st.text() | st.lists(st.text())), max_size=4),
    values,
    st.dictionaries(st.text(), values, max_size=3),
    st.sampled_from([None, 1, "\t"]),
    st.booleans(),
)
def test_a_cell_reads_as_any_reader_of_json_reads_it_whatever_stands_around_it(
    tmp_path_factory, cells, value, more, indent, ascii
):
    made = [{"metadata": value, "cell_type": kind, "outputs": [value], "source": text} for kind, text in cells]
    more = {key: value for key, value in more.items() if key not in ("cells", "worksheets", "metadata", "nbformat")}
    text = json.dumps(
        {**more, "cells": made, "metadata": {"x": value}, "nbformat": 4}, indent=indent, ensure_ascii=ascii
    )
    read_cells = sources(read(tmp_path_factory.mktemp("any"), text.encode(errors="surrogatepass")))
    joined = ["".join(cell["source"]) for cell in json.loads(text)["cells"]]
    lines = [text.replace("\r\n", "\n").replace("\r", "\n") for text in joined]
    expected = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in lines]
    assert read_cells == list(zip((kind for kind, _ in cells), expected))


@given(st.binary(max_size=300) | values.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_notebook_that_raises_nothing(tmp_path_factory, data):
    submission = read(tmp_path_factory.mktemp("any"), data)
    assert sources(submission) or submission.all_troubles


@given(st.integers(0, len(TEXT)), st.integers(0, 40), st.binary(max_size=20))
def test_a_notebook_with_damage_anywhere_raises_nothing(tmp_path_factory, at, length, instead):
    data = TEXT.encode()
    submission = read(tmp_path_factory.mktemp("any"), data[:at] + instead + data[at + length :])
    assert len(submission.notebooks) == 1
