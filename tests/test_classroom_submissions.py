"""What learners hand in is read whole where it can be, said where it cannot, and never followed, unpacked or run."""

import json
import os
import socket
import tracemalloc
import unicodedata
import zipfile
from pathlib import Path, PurePosixPath

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom import folders, submission_reader
from course_lib.classroom.notebook_reader import read_cells
from course_lib.classroom.submission_reader import chapters_of
from course_lib.classroom.submissions import find_submissions, find_submissions_and_rest
from course_lib.grading.show import printable
from tests.grading.archives import ARCHIVES, EARNS, HONEST, NOT_TAKEN, packed
from tests.grading.corpus import notebook

ROOT = Path(__file__).parent.parent
CELLS = [("markdown", "# Attention"), ("code", "def softmax(x, dim):\n    return x.softmax(dim)"), ("raw", "")]
TEXT = notebook(CELLS)


def about(chapter: int) -> str:
    """A notebook whose content says its chapter."""
    checks = {3: "attention.softmax", 4: "masks.causal", 5: "heads.split"}
    return notebook([("code", f'check("{checks[chapter]}", answer)')])


def lay_out(folder: Path, files: dict[str, str | bytes | None]) -> Path:
    """Files by path; None makes an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name
        if content is None:
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def read(folder: Path, data: bytes | str) -> submission_reader.Submission:
    """The submission that is one notebook file."""
    lay_out(folder, {HONEST: data})
    [submission] = find_submissions([folder / HONEST])
    return submission


def sources(submission: submission_reader.Submission) -> list[tuple[str, str]]:
    return [(cell.kind, cell.source) for book in submission.notebooks for cell in book.cells]


def names(paths: list[Path]) -> list[str]:
    return [submission.name for submission in find_submissions(paths)]


def not_taken(paths: list[Path]) -> dict[str, str]:
    return {left.name: left.why for left in find_submissions_and_rest(paths)[1]}


def said(submission: submission_reader.Submission) -> str:
    return "\n".join(submission.all_troubles)


# --------------------------------------------------------------------------------------------------------------- layout
def test_a_notebook_is_a_submission_named_after_its_file(tmp_path):
    submission = read(tmp_path, TEXT)
    assert submission.name == "02_attention"
    assert sources(submission) == CELLS
    assert [cell.number for cell in submission.notebooks[0].cells] == [1, 2, 3]
    assert submission.all_troubles == ()


def test_a_folder_of_notebooks_about_different_chapters_is_one_submission(tmp_path):
    own = ["02_attention.ipynb", "03_masks (1).ipynb", "04_heads.ipynb"]
    others = {"helper.py": "x = 1", "notes.txt": "", "data/table.csv": "1,2"}
    [submission] = find_submissions([lay_out(tmp_path / "ada", dict.fromkeys(own, TEXT) | others)])
    assert submission.name == "ada"
    assert [book.path for book in submission.notebooks] == own
    assert chapters_of(submission) == {3, 4, 5}


def test_a_folder_of_notebooks_about_one_chapter_is_a_class(tmp_path):
    folder = lay_out(tmp_path / "class", {f"{name}.ipynb": about(3) for name in ("ada", "bo", "cy")})
    assert names([folder]) == ["ada", "bo", "cy"]


def test_a_notebook_that_cannot_be_read_does_not_join_that_of_a_neighbour(tmp_path):
    folder = lay_out(tmp_path / "class", {"ada.ipynb": about(3), "bo.ipynb": b"\0\1 no notebook"})
    assert names([folder]) == ["ada", "bo"]


def test_a_copy_that_jupyterlab_made_belongs_to_its_original_and_follows_it(tmp_path):
    files = {"02_attention-Copy1.ipynb": about(3), "02_attention.ipynb": about(3), "03_masks.ipynb": about(4)}
    [submission] = find_submissions([lay_out(tmp_path / "ada", files)])
    assert [book.path for book in submission.notebooks] == [
        "02_attention.ipynb",
        "02_attention-Copy1.ipynb",
        "03_masks.ipynb",
    ]
    del files["03_masks.ipynb"]
    assert names([lay_out(tmp_path / "bo", files)]) == ["bo"]


def test_a_folder_of_folders_and_archives_is_a_class_and_an_empty_one_is_not_lost(tmp_path):
    files = {
        "ada/02_attention/02_attention.ipynb": TEXT,  # as nbgrader collects
        "bo.zip": packed(("homework/02_attention.ipynb", TEXT)),
        "cy": None,
        "dee/notes.txt": "I was ill",
        "eve.tar.gz": b"\x1f\x8b",
        "roster.csv": "ada,bo",
        ".hidden/02_attention.ipynb": TEXT,
        "__MACOSX/x.ipynb": TEXT,
    }
    found = find_submissions([lay_out(tmp_path / "class", files)])
    assert [submission.name for submission in found] == ["ada", "bo", "cy", "dee", "eve.tar"]
    assert [len(submission.notebooks) for submission in found] == [1, 1, 0, 0, 0]
    assert "no notebook" in said(found[2])
    assert "no notebook in it, but notes.txt" in said(found[3])
    assert "archive that is not opened" in said(found[4])


def test_a_download_of_notebooks_and_archives_side_by_side_is_a_class(tmp_path):
    files = {"doe_1_2_02_attention.ipynb": about(3), "roe_3_4_work.zip": packed((HONEST, TEXT))}
    assert names([lay_out(tmp_path / "one", files)]) == ["doe_1_2_02_attention", "roe_3_4_work"]
    files |= {"poe.zip": b"broken", "sue/02_attention.ipynb": TEXT, "data/table.csv": "1,2"}
    assert names([lay_out(tmp_path / "two", files)]) == ["data", "doe_1_2_02_attention", "poe", "roe_3_4_work", "sue"]


@pytest.mark.parametrize("loose", ["ada.ipynb", HONEST])
def test_a_folder_with_a_notebook_beside_a_notebook_may_be_another_learner(tmp_path, loose):
    """An older state of the same learner looks the same: what was split is seen, what was merged is not."""
    assert names([lay_out(tmp_path / "class", {loose: TEXT, "bo/02_attention.ipynb": TEXT})]) == sorted(
        ["bo", loose.removesuffix(".ipynb")], key=folders.natural
    )


def test_a_notebook_that_lies_among_the_folders_of_a_class_does_not_swallow_them(tmp_path):
    files = {"template.ipynb": TEXT, "ada/x.ipynb": TEXT, "bo/x.ipynb": TEXT}
    assert names([lay_out(tmp_path / "class", files)]) == ["ada", "bo", "template"]


def test_of_several_paths_each_is_one_submission(tmp_path):
    lay_out(tmp_path, {"ada/a.ipynb": about(3), "ada/b.ipynb": about(3), "bo/x/y/z.ipynb": TEXT, "cy": None})
    found = find_submissions([tmp_path / "bo", tmp_path / "ada", tmp_path / "cy", tmp_path / "ada"])
    assert [(submission.name, len(submission.notebooks)) for submission in found] == [("ada", 2), ("bo", 1), ("cy", 0)]


@pytest.mark.parametrize("wrapper", ["", "download/"])
def test_an_archive_of_a_class_is_read_as_its_folder(tmp_path, wrapper):
    inner = packed(("03_masks.ipynb", TEXT))
    data = packed((f"{wrapper}Ada_1_file/02_attention.ipynb", TEXT), (f"{wrapper}Bo.zip", inner), (f"{wrapper}Cy/", ""))
    found = find_submissions([lay_out(tmp_path, {"all.zip": data}) / "all.zip"])
    assert [(submission.name, len(submission.notebooks)) for submission in found] == [
        ("Ada_1_file", 1),
        ("Bo", 1),
        ("Cy", 0),
    ]


def test_an_archive_of_one_folder_with_notebooks_is_one_submission_named_after_the_archive(tmp_path):
    lay_out(tmp_path, {"ada.zip": packed(("my work/02_attention.ipynb", TEXT), ("my work/03_masks.ipynb", TEXT))})
    [submission] = find_submissions([tmp_path / "ada.zip"])
    assert submission.name == "ada"
    assert [book.path for book in submission.notebooks] == ["my work/02_attention.ipynb", "my work/03_masks.ipynb"]


def test_a_copy_of_the_whole_course_is_one_submission(tmp_path):
    [submission] = find_submissions(
        [lay_out(tmp_path / "ada", {"exercises/a.ipynb": about(3), "notebooks/b.ipynb": about(3)})]
    )
    assert submission.name == "ada"


def test_equal_names_are_told_apart_by_their_folders_or_by_a_number(tmp_path):
    lay_out(tmp_path, {"a/x.ipynb": TEXT, "b/x.ipynb": TEXT, "c/y.ipynb": TEXT})
    assert names([tmp_path / name for name in ("a/x.ipynb", "b/x.ipynb", "c/y.ipynb")]) == ["x (a)", "x (b)", "y"]
    folder = lay_out(
        tmp_path / "class", {"ada/x.ipynb": TEXT, "ada.zip": packed((HONEST, TEXT)), "ada (2)/x.ipynb": TEXT}
    )
    assert sorted(names([folder])) == ["ada", "ada (2)", "ada (3)"]


def test_names_come_in_natural_order_and_composed(tmp_path):
    learners = ["group 10", "group 2", "Zoë", "ada", unicodedata.normalize("NFD", "émile"), "Bo"]
    found = names([lay_out(tmp_path, {f"{name}/x.ipynb": TEXT for name in learners})])
    assert found == ["ada", "Bo", "group 2", "group 10", "Zoë", "émile"]


def test_a_path_that_the_teacher_got_wrong_is_named_with_the_remedy(tmp_path):
    lay_out(tmp_path, {"notes.txt": "", "class/notes.txt": ""})
    for paths, problem in [
        ([], "paths is empty"),
        ([tmp_path / "nowhere"], r"nowhere is not there: name a notebook \(.ipynb\), a zip file or a folder"),
        ([tmp_path / "notes.txt"], r"notes.txt is no submission: name a notebook"),
        ([tmp_path / "class"], "class holds no submission"),
    ]:
        with pytest.raises(ValueError, match=problem):
            find_submissions(paths)


def test_a_link_that_the_teacher_gives_alone_is_followed_and_one_of_a_learner_is_not(tmp_path):
    lay_out(tmp_path, {"real/ada/x.ipynb": TEXT, "real/bo/x.ipynb": TEXT})
    (tmp_path / "class").symlink_to(tmp_path / "real")
    assert names([tmp_path / "class"]) == ["ada", "bo"]
    (tmp_path / "real" / "cy").symlink_to(tmp_path / "real" / "ada")
    assert names([tmp_path / "class"]) == ["ada", "bo"]
    assert not_taken([tmp_path / "class"]) == {"cy": folders.LINK}


# ------------------------------------------------------------------------------------------------------ nobody vanishes
NO_SUBMISSION = "is neither a notebook (.ipynb) nor a zip file nor a folder"


def test_a_folder_without_a_notebook_beside_loose_notebooks_is_a_submission(tmp_path):
    files = {"ada.ipynb": about(3), "bo.ipynb": about(3), "cy/answers.py": "x = 1", "dee": None}
    found = find_submissions([lay_out(tmp_path / "class", files)])
    assert [submission.name for submission in found] == ["ada", "bo", "cy", "dee"]
    assert said(found[2]) == "There is no notebook in it, but answers.py"


def test_hand_ins_of_another_kind_are_listed_and_not_lost(tmp_path):
    files = {"ada.ipynb": about(3), "bo.ipynb": about(3), "cy.zip": packed((HONEST, TEXT))}
    others = {"dee.py": "x = 1", "eve.ipynb.txt": about(3), "fay.html": "<p>"}
    litter = {
        ".DS_Store": "",
        "._ada.ipynb": "",
        "__MACOSX/x": "",
        "Thumbs.db": "",
        ".ipynb_checkpoints/ada.ipynb": TEXT,
    }
    folder = lay_out(tmp_path / "class", {**files, **others, **litter, ".gil/x.ipynb": TEXT, "venv/x.ipynb": TEXT})
    assert names([folder]) == ["ada", "bo", "cy"]
    hidden = dict.fromkeys([".gil", "venv"], "is hidden or no work of a learner")
    assert not_taken([folder]) == dict.fromkeys(others, NO_SUBMISSION) | hidden


def test_nobody_joins_a_single_notebook_that_bears_a_name(tmp_path):
    folder = lay_out(tmp_path / "class", {"ada.ipynb": about(3), "bo.py": "x = 1"})
    assert names([folder]) == ["ada"]
    assert not_taken([folder]) == {"bo.py": NO_SUBMISSION}


def test_a_folder_called_exercises_does_not_swallow_its_neighbours(tmp_path):
    files = {f"{name}/02_attention.ipynb": TEXT for name in ("ada", "bo", "cy", "exercises")}
    assert names([lay_out(tmp_path / "class", files)]) == ["ada", "bo", "cy", "exercises"]


def test_notebooks_about_different_chapters_are_one_learners_by_their_names_alone(tmp_path):
    files = {"ada.ipynb": about(3), "bo.ipynb": about(4), "cy.ipynb": about(5)}
    assert names([lay_out(tmp_path / "one", files)]) == ["ada", "bo", "cy"]
    files = {"ada_02_attention.ipynb": TEXT, "bo_03_masks.ipynb": TEXT}
    assert names([lay_out(tmp_path / "two", files)]) == ["ada_02_attention", "bo_03_masks"]


def test_links_are_not_taken_and_are_no_zeros(tmp_path):
    lay_out(tmp_path / "real", {"ada/x.ipynb": TEXT, "bo.ipynb": TEXT})
    lay_out(tmp_path / "class", {"dee/x.ipynb": TEXT, "eve": None})
    (tmp_path / "class" / "ada").symlink_to(tmp_path / "real" / "ada")
    (tmp_path / "class" / "bo.ipynb").symlink_to(tmp_path / "real" / "bo.ipynb")
    (tmp_path / "class" / "eve" / "x.ipynb").symlink_to(tmp_path / "real" / "bo.ipynb")
    assert names([tmp_path / "class"]) == ["dee"]
    within = f"holds no notebook that can be read: x.ipynb: it {folders.LINK}"
    assert not_taken([tmp_path / "class"]) == {"ada": folders.LINK, "bo.ipynb": folders.LINK, "eve": within}
    one_by_one = sorted((tmp_path / "class").iterdir())
    assert not_taken(one_by_one) == {"ada": folders.LINK, "bo.ipynb": folders.LINK}
    for alone in (ARCHIVES["symlinked_folder"](tmp_path / "alone", TEXT), tmp_path / "class" / "bo.ipynb"):
        with pytest.raises(ValueError, match=r"holds no submission.*is a symbolic link"):
            find_submissions([alone])


def test_a_member_that_leads_out_of_the_archive_of_a_class_is_listed(tmp_path):
    data = packed(("ada/x.ipynb", TEXT), ("bo/x.ipynb", TEXT), ("..\\cy\\x.ipynb", TEXT))
    path = lay_out(tmp_path, {"class.zip": data}) / "class.zip"
    assert names([path]) == ["ada", "bo"]
    assert not_taken([path]) == {"..\\cy\\x.ipynb": folders.OUTSIDE}


CANVAS = {
    "doejane_LATE_12345_678_02_attention.ipynb": about(3),
    "doejane_LATE_12345_679_03_masks-1.ipynb": about(4),
    "doejane_LATE_12345_680_helper.py": "x = 1",
    "roe_12346_681_02_attention.ipynb": about(3),
}
MOODLE = {
    "Ada Lovelace_12345_assignsubmission_file/02_attention.ipynb": TEXT,
    "Ada Lovelace_12345_assignsubmission_onlinetext/onlinetext.html": "<p>",
    "Ada Lovelace_12347_assignsubmission_file/02_attention.ipynb": TEXT,
}
FLAT_MOODLE = {
    "Ada Lovelace_12345_assignsubmission_file_02_attention.ipynb": TEXT,
    "Ada Lovelace_12345_assignsubmission_file_helper.py": "x = 1",
    "Bo_12346_assignsubmission_file_work.zip": packed((HONEST, TEXT)),
}


@pytest.mark.parametrize(
    ("files", "learners"),
    [
        (CANVAS, {"doejane_LATE_12345_678_02_attention": 2, "roe_12346_681_02_attention": 1}),
        (MOODLE, {"Ada Lovelace_12345_assignsubmission_file": 1, "Ada Lovelace_12347_assignsubmission_file": 1}),
        (
            FLAT_MOODLE,
            {"Ada Lovelace_12345_assignsubmission_file_02_attention": 1, "Bo_12346_assignsubmission_file_work": 1},
        ),
    ],
    ids=["Canvas", "Moodle", "Moodle, flat"],
)
def test_all_files_of_one_number_of_a_learning_platform_are_one_submission(tmp_path, files, learners):
    folder = lay_out(tmp_path / "class", files)
    found, left = find_submissions_and_rest([folder])
    assert {submission.name: len(submission.notebooks) for submission in found} == learners
    assert left == []
    if "onlinetext" not in str(files):
        assert found[0].files == {"helper.py": "x = 1"}, "under the name by which the notebook imports it"
    several = [path for path in folder.iterdir() if path.suffix in ("", ".ipynb", ".zip")]
    assert [each.name for each in find_submissions(several)] == [*learners]


def test_files_of_different_names_or_numbers_of_a_learning_platform_are_never_merged(tmp_path):
    apart = {
        "one": ["doe_11_201_a.ipynb", "roe_12_202_b.ipynb", "poe_13_203_c.ipynb"],  # about different chapters
        "two": ["doe_11_201_a.ipynb", "roe_11_202_b.ipynb"],
        "three": ["hw_1_2_ada.ipynb", "hw_1_2_bo.ipynb", "hw_1_3_cy.ipynb"],  # no numbers of files: one stands twice
        "four": ["doe_11_201_x.ipynb", "doe_11_7_103_9_x.ipynb"],  # the profile "doe_11_7", or the file "103_9_x"
        "five": [
            "Ada_11_assignsubmission_file_x.ipynb",
            "Ada_11_assignsubmission_file_12_assignsubmission_file_x.ipynb",
        ],
    }
    for name, files in apart.items():
        folder = lay_out(tmp_path / name, {file: about(3 + i) for i, file in enumerate(files)})
        assert sorted(names([folder])) == sorted(file.removesuffix(".ipynb") for file in files)
        assert {len(each.notebooks) for each in find_submissions([folder])} == {1}


def test_one_file_of_a_learning_platform_keeps_the_name_that_says_whose_it_is(tmp_path):
    assert names([lay_out(tmp_path / "class", {"doe_11_201_x.ipynb": TEXT})]) == ["doe_11_201_x"]


def test_a_number_with_no_notebook_is_listed_file_by_file(tmp_path):
    files = {"doe_11_201_a.ipynb": TEXT, "roe_12_202_b.ipynb.txt": TEXT, "roe_12_203_c.html": ""}
    folder = lay_out(tmp_path / "class", files)
    assert names([folder]) == ["doe_11_201_a"]
    assert not_taken([folder]) == dict.fromkeys(["roe_12_202_b.ipynb.txt", "roe_12_203_c.html"], NO_SUBMISSION)


@given(
    st.dictionaries(
        st.sampled_from(
            ["ada", "bo", "doe_1_2_x", "doe_1_3_y", "exercises", "02_attention", "03_masks", ".hid", "venv"]
        ),
        st.sampled_from([".ipynb", ".py", ".ipynb.txt", ".zip", ".rar", "/x.ipynb", "/x.txt", "/"]),
    )
)
def test_all_that_lies_in_a_class_is_in_a_submission_or_listed(tmp_path_factory, drawn):
    """Whose it is, each notebook says in a cell: no two learners' are in one submission."""
    folder = lay_out(tmp_path_factory.mktemp("any"), {"yan.ipynb": TEXT, "zoe.ipynb": TEXT})
    for name, kind in drawn.items():
        whose = name.partition("_1_")[0]
        text = notebook([("code", f"whose = '{whose}'")])
        content = packed((HONEST, text)) if kind == ".zip" else text
        lay_out(folder, {(name + kind).rstrip("/"): None if kind == "/" else content})
    found, left = find_submissions_and_rest([folder])
    found_names, left_names = [each.name for each in found], [each.name for each in left]
    assert {"yan", "zoe"} <= {*found_names}
    for name, kind in drawn.items():
        as_one_of_two = [each for each in found_names if name[:6] == each[:6] == "doe_1_"]
        assert name in found_names or name + kind.partition("/")[0] in left_names or as_one_of_two
    for each in found:
        assert len({cell.source for book in each.notebooks for cell in book.cells}) <= (
            3 if each.name in "yanzoe" else 1
        )
    assert len(found) + len(left) >= 2 + len(drawn) - ("doe_1_2_x" in drawn and "doe_1_3_y" in drawn)


@pytest.mark.parametrize("number", range(1, 16))
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

    assert chapters('check("masks.causal", mask)', "def softmax(x, dim): ...") == {4}
    assert chapters("check( 'heads.split', f)", 'check("no.such", f)') == {5}
    assert chapters("def softmax(x, dim): ...", "class RMSNorm: ...", "masks_patterns = ['a']") == {3, 4, 7}
    assert chapters("softmax(x, 0)", "y = causal_mask(3)", "if gelu == 3: pass") == set()


# ------------------------------------------------------------------------------------------------------------ notebooks
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
    assert chapters_of(submission) == {3}


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
    monkeypatch.setattr("course_lib.classroom.notebook_reader.MOST_CELLS", 3)
    many = read(tmp_path, notebook([("code", str(number)) for number in range(9)]))
    assert [source for _, source in sources(many)] == ["0", "1", "2"]
    assert said(many).count("only its first 3 cells") == 1
    monkeypatch.setattr(submission_reader, "LARGEST_NOTEBOOK", 100)
    large = read(tmp_path, TEXT)
    assert sources(large) == []
    assert "larger than" in said(large)


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


# ------------------------------------------------------------------------------------------------------------- archives
@pytest.mark.parametrize("name", sorted(ARCHIVES.keys() - NOT_TAKEN))
def test_of_a_hostile_archive_only_the_honest_notebook_is_read(tmp_path, name):
    path = ARCHIVES[name](tmp_path / "in", TEXT)
    before = {each: each.lstat().st_mtime_ns for each in tmp_path.rglob("*")}
    [submission] = find_submissions([path])
    assert sources(submission) == (CELLS if EARNS[name] else [])
    assert EARNS[name] or submission.all_troubles
    for text in (submission.name, *submission.all_troubles, *(book.path for book in submission.notebooks)):
        assert printable(text, most=len(text) + 2) == text
    assert {each: each.lstat().st_mtime_ns for each in tmp_path.rglob("*")} == before
    assert ARCHIVES[name].__doc__


REASONS = {
    "duplicate_names": "twice",
    "file_and_folder": "twice",
    "symlink_member": "machine is a symbolic link",
    "symlinked_notebook": "symbolic link",
    "fifo_as_notebook": "no ordinary file",
    "fifo_member": "no ordinary file",
    "bomb_by_ratio": "times its size",
    "bomb_by_count": "more than 10,000 files",
    "nested": "an archive too many",
    "deep_folders": "32 folders deep",
    "encrypted": "without a password",
    "wrong_checksum": "damaged",
    "unusual_packing": "unusual way",
    "claims_to_be_a_zip": "no zip archive",
    "deep_json_behind": "brackets",
    "planted_modules": "course_lib/grading/judge.py was not read",
}


@pytest.mark.parametrize("name", REASONS)
def test_what_is_left_out_is_said_with_its_reason(tmp_path, name):
    assert REASONS[name] in said(*find_submissions([ARCHIVES[name](tmp_path, TEXT)]))


@pytest.mark.parametrize(
    "name",
    [
        "../x.ipynb",
        "a/../x.ipynb",
        "a/../../x.ipynb",
        "/x.ipynb",
        "//x.ipynb",
        "..\\x.ipynb",
        "a\\x.ipynb",
        "C:x.ipynb",
    ],
)
def test_a_member_whose_name_leads_out_is_not_read_and_is_no_place(tmp_path, name):
    [submission] = find_submissions([lay_out(tmp_path, {"any.zip": packed((name, TEXT), (HONEST, TEXT))}) / "any.zip"])
    assert [book.path for book in submission.notebooks] == [HONEST]
    assert submission.troubles == (f"{name} has a name that leads out of the archive",)


@pytest.mark.parametrize("name", sorted(ARCHIVES))
def test_a_hostile_archive_takes_nothing_from_its_neighbours(tmp_path, name):
    path = ARCHIVES[name](tmp_path / "in", TEXT)
    lay_out(tmp_path / "ada", {HONEST: TEXT})
    found = find_submissions([tmp_path / "ada", path])
    assert sorted(submission.name == "ada" for submission in found) == [False, True]
    assert [sources(submission) for submission in found if submission.name == "ada"] == [CELLS]


def test_there_are_enough_hostile_archives_and_each_is_small(tmp_path):
    assert len(ARCHIVES) >= 12
    for name, build in ARCHIVES.items():
        build(tmp_path / name, TEXT)
        assert sum(each.lstat().st_size for each in (tmp_path / name).rglob("*")) < 4_000_000, name


def test_a_bomb_is_left_when_it_goes_too_far(tmp_path, monkeypatch):
    """Each piece is a megabyte: no more than one beyond the limit is ever unpacked."""
    unpacked = []
    real = zipfile.ZipExtFile.read
    monkeypatch.setattr(
        zipfile.ZipExtFile, "read", lambda self, n=-1: unpacked.append(len(data := real(self, n))) or data
    )
    lay_out(tmp_path, {"bomb.zip": packed((HONEST, bytes(90_000_000)))})
    [submission] = find_submissions([tmp_path / "bomb.zip"])
    assert "unpacks to more than 500 times its size" in said(submission)
    assert sum(unpacked) < 50_000_000
    assert max(unpacked) <= folders.PIECE
    monkeypatch.setattr(folders, "MOST_RATIO", 2_000)
    unpacked.clear()
    assert "larger than 64 MB" in said(*find_submissions([tmp_path / "bomb.zip"]))
    assert sum(unpacked) <= 65_000_000


def test_all_files_of_a_submission_share_one_allowance(tmp_path, monkeypatch):
    monkeypatch.setattr(submission_reader, "MOST_READ", 3 * len(TEXT) + 10)
    lay_out(tmp_path, {f"class/ada/{number:02}_x.ipynb": TEXT for number in range(6)})
    [submission] = find_submissions([tmp_path / "class"])
    assert [len(book.cells) for book in submission.notebooks] == [3, 3, 3, 0, 0, 0]
    assert "together" in said(submission)


def test_an_archive_that_lists_too_much_is_not_listed(tmp_path, monkeypatch):
    lay_out(tmp_path, {"many.zip": packed(*((f"{number}.txt", b"") for number in range(300)))})
    monkeypatch.setattr(folders, "LARGEST_LIST", 10_000)
    assert "lists too many members" in said(*find_submissions([tmp_path / "many.zip"]))


def test_counts_have_limits(tmp_path, monkeypatch):
    for limit in ("MOST_NOTEBOOKS", "MOST_HELPERS", "MOST_ARCHIVES"):
        monkeypatch.setattr(submission_reader, limit, 2)
    files = {
        f"{kind}/{number}{ending}": data
        for kind, ending, data in (("a", ".ipynb", TEXT), ("a", ".zip", packed((HONEST, TEXT))))
        for number in range(4)
    }
    files |= {f"a/h{number}.py": "x = 1" for number in range(4)}
    [submission] = find_submissions([lay_out(tmp_path / "class" / "ada", files).parent])
    assert len([book for book in submission.notebooks if book.cells]) == 2
    assert sorted(submission.files) == ["a/h0.py", "a/h1.py"]
    for reason in ("2 notebooks are", "2 helper files are", "an archive too many"):
        assert reason in said(submission)


def test_a_folder_of_too_many_files_is_looked_at_from_the_top(tmp_path, monkeypatch):
    monkeypatch.setattr(submission_reader, "MOST_FILES", 20)
    files = {f"a/{number}.txt": "" for number in range(60)} | {HONEST: TEXT, "a/z.ipynb": TEXT}
    [submission] = find_submissions([lay_out(tmp_path / "ada", files)])
    assert sources(submission) == CELLS
    assert "more than 20 files" in said(submission)


def test_a_folder_that_lies_too_deep_is_not_looked_into(tmp_path):
    [submission] = find_submissions([lay_out(tmp_path / "ada", {HONEST: TEXT, "a/" * 40 + "x.ipynb": TEXT})])
    assert sources(submission) == CELLS
    assert "32 folders deep" in said(submission)


def test_names_in_an_archive_that_does_not_say_its_encoding_are_read_as_utf_8(tmp_path):
    data = packed(("Zo##/02_attention.ipynb", TEXT), ("Bo/02_attention.ipynb", TEXT))
    lay_out(tmp_path, {"class.zip": data.replace(b"Zo##", "Zoë".encode())})
    assert names([tmp_path / "class.zip"]) == ["Bo", "Zoë"]


def test_a_socket_is_no_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(lay_out(tmp_path / "ada", {HONEST: TEXT}))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("03_masks.ipynb")
        [submission] = find_submissions([tmp_path / "ada"])
    assert sources(submission) == CELLS
    assert "no ordinary file" in said(submission)


def test_a_file_that_becomes_a_link_or_a_pipe_after_it_was_seen_is_not_opened(tmp_path):
    lay_out(tmp_path, {"secret.ipynb": TEXT, "work/02_attention.ipynb": TEXT})
    path = tmp_path / "work" / HONEST
    for swap in (lambda: path.symlink_to(tmp_path / "secret.ipynb"), lambda: os.mkfifo(path)):
        item = folders.on_disk(path)
        path.unlink()
        swap()
        with pytest.raises(folders.Refused):
            item.read(10_000, lambda size: None)
        path.unlink()
        path.write_text(TEXT)


@given(
    st.lists(
        st.text(min_size=1, max_size=12)
        | st.sampled_from(["../x.ipynb", "/x.ipynb", "a\\..\\x.py", "C:x.ipynb", "a//./b.ipynb", "..", "x/"]),
        max_size=5,
    )
)
def test_no_name_of_a_member_leads_out_of_its_archive(tmp_path_factory, members):
    members = [name for name in members if name.isascii() or not any(0xD800 <= ord(each) < 0xE000 for each in name)]
    folder = tmp_path_factory.mktemp("any")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zipfile.ZipFile, "_writecheck", lambda self, info: None)  # it warns of names that stand twice
        data = packed((HONEST, TEXT), *((name, TEXT) for name in members))
    lay_out(folder, {"any.zip": data})
    for submission in find_submissions([folder / "any.zip"]):
        for name in (*(book.path for book in submission.notebooks), *submission.files):
            parts = PurePosixPath(name).parts
            assert parts, name
            assert not PurePosixPath(name).is_absolute(), name
            assert not {"..", "C:"} & set(parts), name
            assert "\\" not in name
            assert "\0" not in name


@given(st.data())
def test_an_archive_with_damage_anywhere_raises_nothing(tmp_path_factory, data):
    damaged = bytearray(packed((HONEST, TEXT), ("helper.py", "x = 1"), ("a/b.zip", packed((HONEST, TEXT)))))
    for _ in range(data.draw(st.integers(1, 6))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    folder = tmp_path_factory.mktemp("any")
    assert find_submissions([lay_out(folder, {"any.zip": bytes(damaged)}) / "any.zip"])


def test_no_file_stays_open(tmp_path):
    for name, build in ARCHIVES.items():
        if name != "million_outputs":
            build(tmp_path / name, TEXT)
    before = os.listdir("/proc/self/fd")
    find_submissions(sorted(path for path in tmp_path.glob("*/*")))
    assert os.listdir("/proc/self/fd") == before


# --------------------------------------------------------------------------------------------------------- helper files
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


# --------------------------------------------------------------------------------------------------------------- digest
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


# ------------------------------------------------------------------------------------------------------------- printing
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


@pytest.mark.parametrize(
    "names",
    [
        ("notebook_20251122_101500_ada", "notebook_20251122_111500_bo", "notebook_20251122_121500_cy"),  # dates
        ("group_3_1_ada", "group_3_2_bo"),
    ],
)
def test_numbers_that_are_no_learning_platforms_merge_nobody(tmp_path, names):
    submissions = find_submissions([lay_out(tmp_path / "class", {f"{name}.ipynb": about(3) for name in names})])
    assert [submission.name for submission in submissions] == sorted(names)


def test_a_copy_of_the_course_is_one_submission_whatever_else_lies_in_it(tmp_path):
    copy = {"course_lib/__init__.py": "", "exercises/02_attention.ipynb": about(3), "runs/model/recipe.json": "{}"}
    copy |= {"transformers_measured.egg-info/PKG-INFO": "", "Untitled.ipynb": about(4)}
    assert len(find_submissions([lay_out(tmp_path / "copy", copy)])) == 1


def test_a_notebook_that_begins_as_the_courses_keeps_what_it_imports(tmp_path):
    files = {"02_attention_final.ipynb": about(3), "helpers.py": "x = 1", "02_attention_final (1).ipynb": about(3)}
    submissions, left = find_submissions_and_rest([lay_out(tmp_path / "ada", files)])
    assert [len(each.notebooks) for each in submissions] == [2]
    assert submissions[0].files == {"helpers.py": "x = 1"}
    assert left == []


def test_a_file_that_would_be_passed_by_without_its_learners_name_keeps_that_name(tmp_path):
    files = {"doe_12345_678_02_attention.ipynb": about(3), "doe_12345_680_.secret.ipynb": about(4)}
    [submission] = find_submissions([lay_out(tmp_path / "class", files)])
    assert len(submission.notebooks) == 2
