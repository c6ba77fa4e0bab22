"""Archives and odd files are never followed or unpacked, and take nothing from their neighbours."""

import os
import socket
import zipfile
from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.read import folders, submission_reader
from course_lib.classroom.read.submissions import find_submissions
from course_lib.grading.judge.show import printable
from tests.grading.archives import ARCHIVES, EARNS, HONEST, NOT_TAKEN, packed
from tests.handed_in import CELLS, TEXT, lay_out, names, said, sources


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
    "planted_modules": "course_lib/grading/judge/compare.py were not read",
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
    files = {f"a/{number}.py": "" for number in range(60)} | {HONEST: TEXT, "a/z.ipynb": TEXT}
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
