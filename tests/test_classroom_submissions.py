"""Which files are one submission: nobody is lost, nobody is merged, and what is not taken is said."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.read import folders
from course_lib.classroom.read.submission_reader import chapters_of
from course_lib.classroom.read.submissions import find_handed_in, find_submissions
from tests.grading.archives import ARCHIVES, HONEST, packed
from tests.grading.corpus import notebook
from tests.handed_in import CELLS, TEXT, about, lay_out, names, not_taken, read, said, sources


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
    assert chapters_of(submission) == {2, 3, 4}


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


NO_SUBMISSION = "is neither a notebook (.ipynb) nor a zip file nor a folder"


def test_a_folder_without_a_notebook_beside_loose_notebooks_is_a_submission(tmp_path):
    files = {"ada.ipynb": about(3), "bo.ipynb": about(3), "cy/answers.py": "x = 1", "dee": None}
    found = find_submissions([lay_out(tmp_path / "class", files)])
    assert [submission.name for submission in found] == ["ada", "bo", "cy", "dee"]
    assert said(found[2]) == "There is no notebook in it, but answers.py"


def test_hand_ins_of_another_kind_are_listed_and_not_lost(tmp_path):
    files = {"ada.ipynb": about(3), "bo.ipynb": about(3), "cy.zip": packed((HONEST, TEXT))}
    others = {"dee.txt": "x = 1", "eve.docx": about(3), "fay.png": "<p>"}
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
    folder = lay_out(tmp_path / "class", {"ada.ipynb": about(3), "bo.txt": "x = 1"})
    assert names([folder]) == ["ada"]
    assert not_taken([folder]) == {"bo.txt": NO_SUBMISSION}


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
    found, left, _ = find_handed_in([folder])
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
    files = {"doe_11_201_a.ipynb": TEXT, "roe_12_202_b.txt": TEXT, "roe_12_203_c.docx": ""}
    folder = lay_out(tmp_path / "class", files)
    assert names([folder]) == ["doe_11_201_a"]
    assert not_taken([folder]) == dict.fromkeys(["roe_12_202_b.txt", "roe_12_203_c.docx"], NO_SUBMISSION)


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
    found, left, _ = find_handed_in([folder])
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
    submissions, left, _ = find_handed_in([lay_out(tmp_path / "ada", files)])
    assert [len(each.notebooks) for each in submissions] == [2]
    assert submissions[0].files == {"helpers.py": "x = 1"}
    assert left == []


def test_a_file_that_would_be_passed_by_without_its_learners_name_keeps_that_name(tmp_path):
    files = {"doe_12345_678_02_attention.ipynb": about(3), "doe_12345_680_.secret.ipynb": about(4)}
    [submission] = find_submissions([lay_out(tmp_path / "class", files)])
    assert len(submission.notebooks) == 2
