"""File names made of learners' names: safe, different and readable on every file system."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.text import file_name
from tests.drawn_results import HOSTILE


@given(st.lists(st.text(st.characters(codec=None), max_size=120) | st.sampled_from([*HOSTILE, "Ada", "ADA", "ada-2"])))
def test_file_names_are_safe_and_differ_on_every_file_system(names):
    taken: set[str] = set()
    given_out = [file_name(name, taken) for name in names]
    assert len({name.casefold() for name in given_out}) == len(names)
    for name in given_out:
        assert 1 <= len(name) <= 80
        assert len(f"{name}.html.part".encode()) <= 255
        assert not re.search(r"[\s/\\:*?\"<>|.%#&;$`'~\0-\x1f\x7f-\x9f\u200b-\u206f\ud800-\udfff]", name)
        assert not name.startswith("-")


@pytest.mark.parametrize("name", ["con", "NUL", "Aux.txt", "com1", "LPT9.html", "ＣＯＮ", "com¹", "prn.", "..con"])
def test_names_that_windows_keeps_for_devices_are_changed(name):
    devices = {"con", "prn", "aux", "nul", *(f"{port}{i}" for port in ("com", "lpt") for i in range(10))}
    assert file_name(name, set()).split(".")[0].lower() not in devices


def test_names_that_can_be_told_apart_by_eye_stay_readable():
    names = ["Łukasz Żak", "李雷", "हिन्दी", "anna-lena_1", "O'Brien, Zoë_12345_assignsubmission_file"]
    assert [file_name(name, set()) for name in names] == [
        "Łukasz_Żak",
        "李雷",
        "हिन्दी",
        "anna-lena_1",
        "O_Brien_Zoë_12345_assignsubmission_file",
    ]


def test_one_name_in_two_spellings_of_its_letters_makes_two_files(tmp_path):
    taken: set[str] = set()
    names = [file_name(name, taken) for name in ("Zo\u00eb", "Zoe\u0308", "ZOË", "Zoë-2")]
    assert names[0] == "Zoë"
    for name in names:
        (tmp_path / name).write_text(name, encoding="utf-8")
    assert len(list(tmp_path.iterdir())) == 4
