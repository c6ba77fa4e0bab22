"""Times in a list of when each handed in: as spreadsheets and learning platforms write them, and never guessed."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.read.times import read_times

BERLIN = "Europe/Berlin"


def times(tmp_path, *texts: str, zone: str = BERLIN) -> list[datetime]:
    path = tmp_path / "times.csv"
    rows = "".join(f'{number},"{text}"\n' for number, text in enumerate(texts, start=11))
    path.write_text(f"id,handed in\n{rows}", encoding="utf-8")
    return [time for _, time in read_times(path, zone)]


@pytest.mark.parametrize(
    "text",
    [
        *("10/5/2026 11:59 PM", "10/05/2026 23:59", "10/5/2026 11:59:00 PM", "5.10.2026 23:59", "05.10.2026 23:59:00"),
        *("Oct 5, 2026 11:59 PM", "October 5, 2026 11:59 PM", "5 Oct 2026 23:59", "5 October, 2026 11:59 PM"),
        *("2026-10-05 23:59", "2026/10/05 23:59", "2026/10/5 11:59 PM", "Oct 5, 2026 9:59 PM UTC"),
        *("Monday, October 5, 2026 11:59:00 PM CEST", "Monday, 5 October 2026 23:59:00 o'clock CEST"),
        *("2026-10-05 14:59:00 -0700", "2026-10-05T21:59:00Z", "2026-10-05 23:59:00 CEST"),
        *("2026-10-05 21:59 UTC", "Mon, Oct 5, 2026, 11:59 p.m."),
    ],
)  # fmt: skip
def test_a_time_is_read_as_a_spreadsheet_or_a_platform_writes_it(tmp_path, text):
    settled = ["10/25/2026 8:00 AM"] if text.startswith("10/") else []  # month first, as this other row says
    assert times(tmp_path, text, *settled)[0] == datetime(2026, 10, 5, 21, 59, tzinfo=UTC)


@pytest.mark.parametrize("texts", [("10/5/2026 23:59",), ("10/5/2026 11:59 PM", "7/7/2026 8:00 AM", "5.10.2026 8:00")])
def test_a_date_that_may_be_of_two_months_is_refused_where_nothing_settles_it(tmp_path, texts):
    with pytest.raises(ValueError, match=r"line 2 .*5 October 2026.*10 May 2026.*2026-10-05 23:59"):
        times(tmp_path, *texts)


def test_another_row_settles_which_number_is_the_month(tmp_path):
    assert [each.month for each in times(tmp_path, "10/5/2026 12:00", "31/5/2026 12:00")] == [5, 5]
    assert [each.month for each in times(tmp_path, "10/5/2026 12:00", "5/31/2026 12:00", "1/1/2026 12:00")] == [
        10,
        5,
        1,
    ]
    assert [each.month for each in times(tmp_path, "7/7/2026 12:00", "8-8-2026 12:00")] == [7, 8], "the same both ways"
    with pytest.raises(ValueError, match=r"line 2 .*line 3 .*2026-10-05 23:59"):
        times(tmp_path, "31/5/2026 12:00", "5/31/2026 12:00")


@given(st.lists(st.datetimes(datetime(2020, 1, 1), datetime(2035, 1, 1)), min_size=1, max_size=5), st.booleans())
def test_a_list_is_read_as_it_was_written_or_refused(tmp_path_factory, moments, is_month_first):
    moments = [each.replace(second=0, microsecond=0) for each in moments]
    order = "{0.month}/{0.day}" if is_month_first else "{0.day}/{0.month}"
    texts = [f"{order.format(each)}/{each.year} {each:%I:%M %p}" for each in moments]
    is_plain = any(each.day > 12 for each in moments) or all(each.day == each.month for each in moments)
    folder = tmp_path_factory.mktemp("times")
    if is_plain:
        assert times(folder, *texts, zone="UTC") == [each.replace(tzinfo=UTC) for each in moments]
    else:
        with pytest.raises(ValueError, match="may be"):
            times(folder, *texts, zone="UTC")


def test_letters_of_a_zone_count_where_the_courses_clocks_show_them(tmp_path):
    twice = times(tmp_path, "Oct 25, 2026 2:30 AM CEST", "Oct 25, 2026 2:30 AM CET")
    assert twice == [datetime(2026, 10, 25, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    for text in ("Oct 5, 2026 11:59 PM CET", "Oct 5, 2026 11:59 PM EST", "2026-10-05 23:59 IST"):
        with pytest.raises(ValueError, match=r"line 2 .*Europe/Berlin"):
            times(tmp_path, text)
    with pytest.raises(ValueError, match=r"line 2 .*time_zone"):
        times(tmp_path, "Oct 5, 2026 11:59 PM CEST", zone="")
    assert times(tmp_path, "Oct 5, 2026 9:59 PM UTC", zone="") == [datetime(2026, 10, 5, 21, 59, tzinfo=UTC)]


@pytest.mark.parametrize(
    "text",
    [
        *("10/5/26 11:59 PM", "13/13/2026 12:00", "2/30/2026 12:00", "5/10/2026", "10/5/2026 25:00", "13:00 PM"),
        *("32.1.2026 12:00", "Oct 5, 2026", "Okt 5, 2026 23:59", "46300.99", "2026-10-05", "2026/13/05 12:00"),
        "0/5/2026 12:00",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"line 2 .*must be"):
        times(tmp_path, text)
