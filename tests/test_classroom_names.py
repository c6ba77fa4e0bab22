"""Whose a folder is: whole names, whatever signs they are written with; a single letter is nobody's name."""

import unicodedata
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.graded_submission import GradedSubmission
from course_lib.classroom.mark.policy import Override, Policy, apply_policy
from course_lib.classroom.read.roster import Learner, Roster, read_roster
from tests.test_classroom_policy import marked

APOSTROPHES = "'\u2019\u02bc\u2018`\u00b4\uff07"
DASHES = "-\u2010\u2011\u2012\u2013\u2014\u2212\uff0d"
# A soft hyphen, zero widths, a byte order mark, variation selectors, and what turns the reading order.
INVISIBLE = "\u00ad\u200b\u200c\u200d\u2060\ufeff\ufe0f\ufe00\U000e0101\u034f"
DIRECTIONS = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
HARD = [
    *("O\u2019Brien Seán", "D'Angelo Renée", "Anna-Lena Müller", "\u0623\u062d\u0645\u062f \u0639\u0644\u064a"),
    *("Ana María Nuñez", "Zoë Łukasz", "王小明", "\u05d3\u05e0\u05d4 \u05dc\u05d5\u05d9"),
    *("ह\u093fन\u094dद\u0940 शर\u094dम\u093e", "Nguyễn Thị Hồng", "José Ángel", "Straße Groß"),
    *("Đorđe Živković", "Mary Ann Smith", "Анна Іваненко", "François-Xavier d\u2019Aoust"),
]  # fmt: skip
LETTERS = st.characters(categories=["Lu", "Ll", "Lo"], max_codepoint=0x2FFF).filter(
    lambda each: unicodedata.normalize("NFKC", each) == each and each.upper().casefold() == each.casefold() != ""
)
WORDS = st.text(LETTERS, min_size=2, max_size=8)
DRAWN = st.builds(
    lambda words, signs: "".join(word + sign for word, sign in zip(words, [*signs, *" " * 4])).strip(),
    st.lists(WORDS, min_size=2, max_size=4),
    st.lists(st.sampled_from(" -'"), min_size=1, max_size=3),
)


def of(*names: str) -> Roster:
    return Roster.of([Learner(str(1000 + i), name) for i, name in enumerate(names)])


@st.composite
def decorated(draw, name: str) -> str:
    """The same name as another keyboard, another program or another file system writes it."""
    signs = []
    for sign in name:
        for kind in (APOSTROPHES, DASHES):
            sign = draw(st.sampled_from(kind)) if sign in kind else sign
        signs.append(sign)
        signs.append(draw(st.sampled_from(["", "", "", *INVISIBLE, *DIRECTIONS])))
    text = draw(st.sampled_from(["", *DIRECTIONS, "\ufeff"])) + "".join(signs)
    text = draw(st.sampled_from([text, text.upper() if text.upper().casefold() == text.casefold() else text]))
    return unicodedata.normalize(draw(st.sampled_from(["NFC", "NFD"])), text)


@given(st.data(), st.lists(st.sampled_from(HARD) | DRAWN, min_size=2, max_size=4, unique_by=str.casefold))
def test_a_folder_that_bears_exactly_a_name_is_that_rows_however_its_signs_are_written(data, names):
    keys = {frozenset(filter(str.isalnum, name.casefold())) for name in names}
    if len(keys) < len(names):
        return  # two names of the same letters are another test's
    for row, name in enumerate(names):
        folder = data.draw(decorated(name))
        for written in (folder, f"{folder}.ipynb", f"{folder}_02_attention.ipynb", f"hw2 {folder}.zip"):
            assert of(*names).owner(written, at_an_end=True).row == row, f"{name} in {names}: {written!a}"


@given(st.data(), st.sampled_from(HARD) | DRAWN)
def test_two_rows_that_differ_in_such_signs_only_are_never_told_apart_by_guessing(data, name):
    other, folder = data.draw(decorated(name)), data.draw(decorated(name))
    owner = of(name, other).owner(folder, at_an_end=True)
    assert (owner.row, owner.why) == (None, "it fits several rows")


def test_a_soft_hyphen_or_a_zero_width_space_may_part_words_or_nothing():
    for sign in "\u00ad\u200b\u200c":
        for name in ("Ana María", "Ana-María", "AnaMaría"):
            assert of(name, "Bo Roe").owner(f"Ana{sign}María", at_an_end=True).row == 0, ascii((sign, name))
    both = of("Ana María", "AnaMaría")
    assert [both.owner(each).row for each in ("Ana María", "AnaMaría")] == [0, 1]


def test_signs_that_belong_to_a_letter_are_a_part_of_the_name():
    """Vowels of Hindi are marks above and below the consonants; so are accents that no composed letter has."""
    names = ["द\u0940न\u093e", "द\u093eन\u0940", "M\u030ca"]
    assert [of(*names).owner(f"{each}_02_attention.ipynb", at_an_end=True).row for each in names] == [0, 1, 2]
    assert of("द\u0940न\u093e").owner("द\u093eन\u0940_hw.ipynb", at_an_end=True).row is None
    assert of("M\u030ca").owner("Ma_hw.ipynb", at_an_end=True).row is None


def rows_of(tmp_path, text: str) -> Roster:
    path = tmp_path / "roster.csv"
    path.write_text(text, encoding="utf-8")
    return Roster.of(read_roster(path))


@pytest.mark.parametrize(
    "name",
    [
        *("hw_a.ipynb", "group a.ipynb", "a_hw.ipynb", "a.ipynb", "A", "a (2).ipynb", "2_a_attention.ipynb"),
        *("hw b.ipynb", "b", "ö.zip", "hw_ö.zip", "a\u200d.ipynb", "a_b hw.ipynb", "a.b.ipynb", "hw a-b"),
    ],
)
def test_nobody_is_found_by_single_letters(tmp_path, name):
    roster = rows_of(tmp_path, "name,email\nAda Lane,a@x.org\nBo Roe,b@x.org\nO Poe,ö@x.org\nA. B.,\n")
    assert roster.owner(name, at_an_end=True).row is None
    assert roster.owner("hw_Ada Lane.ipynb", at_an_end=True).row == 0
    assert roster.owner("O Poe.ipynb", at_an_end=True).row == 2
    whole = rows_of(tmp_path, "name,email\nX Æ,x20@x.org\nAda Lane,a@x.org\n")
    assert [whole.owner(each, at_an_end=True).row for each in ("X Æ", "x_æ.ipynb", "X", "hw x.ipynb")] == [
        0,
        0,
        None,
        None,
    ]


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("Anna Müller - 02_attention.ipynb", 0),
        ("02_attention Anna Müller.ipynb", 0),
        ("hw_Anna Müller", 0),
        ("Müller, Anna - hw.ipynb", 0),
        ("anna_hw.ipynb", 1),
        ("hw müller.ipynb", 2),
        ("Anna Müller & Anna Zeta.ipynb", None),  # one begins it, the other ends it
        ("anna Müller Bo Roe.ipynb", None),
        ("Anna Müller 7.ipynb", None),  # a counter, or another learner's number: it may be either
        ("al-b_02_attention.ipynb", 5),
        ("al_02_attention.ipynb", 4),
    ],
)
def test_of_names_within_each_other_the_longer_one_counts(tmp_path, name, row):
    roster = rows_of(
        tmp_path,
        "id,first name,last name,email\n1001,Anna,Müller,mueller@x.org\n1002,Anna,Zeta,anna@x.org\n"
        "1003,Eva,Meier,müller@x.org\n7,Bo,Roe,bo.roe@x.org\n1005,Al,Low,al@x.org\n1006,Albert,High,al-b@x.org\n",
    )
    assert roster.owner(name, at_an_end=True).row == row


def test_a_persons_word_and_a_time_find_a_learner_whatever_signs_the_name_is_written_with():
    policy = Policy(
        overrides=[Override("O'Brien Sea\u0301n", chapter=2, excused=True)],
        due={2: datetime(2026, 10, 5, tzinfo=UTC)},
        handed_in={"O\u00b4Brien Seán": datetime(2026, 10, 4, tzinfo=UTC)},
    )
    [done], doubts = apply_policy(policy, [marked("O\u2019Brien Seán", "")])
    assert (done.counted.excused, doubts) == ((2,), [])
    twins = [marked("O\u2019Brien Seán", "1"), marked("O'Brien Seán", "2")]
    assert all("fits 2 submissions" in doubt for doubt in apply_policy(policy, twins)[1][:2])


def test_a_mark_finds_its_row_whatever_signs_the_gradebook_writes():
    class_ = [GradedSubmission(name, "", ()) for name in ("O'Brien Seán", "Anna\u2013Lena Müller", "a")]
    rows, left = Roster({7: ("", ["O\u2019Brien Seán"]), 8: ("", ["Anna-Lena Müller"]), 9: ("a", [])}).assign(class_)
    assert {row: each.name for row, each in rows.items()} == {7: "O'Brien Seán", 8: "Anna\u2013Lena Müller"}
    assert [each.name for each, _ in left] == ["a"]
