"""Days late: calendar days by the clock of the course's time zone, on both nights of the year, for any zone."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.classroom.mark.policy import Policy
from course_lib.classroom.term import read_policy

MINUTE = timedelta(minutes=1)


def days_late(zone: str, due: datetime, handed_in: datetime, **options) -> int:
    return Policy(due={2: due}, percent_per_day=10, zone=zone, **options).left(2, handed_in)[1]


def at(zone: str, year: int, *rest: int, fold: int = 0) -> datetime:
    """A moment in UTC, as a clock in the zone shows it."""
    return datetime(year, *rest, tzinfo=ZoneInfo(zone), fold=fold).astimezone(UTC)


@pytest.mark.parametrize(
    ("zone", "due", "handed_in", "days"),
    [
        ("Europe/Berlin", (2026, 10, 24, 23, 59), (2026, 10, 25, 23, 58), 1),  # 24 hours and 59 minutes later
        ("Europe/Berlin", (2026, 10, 24, 23, 59), (2026, 10, 25, 23, 59), 1),
        ("Europe/Berlin", (2026, 10, 24, 23, 59), (2026, 10, 26, 0, 0), 2),
        ("Europe/Berlin", (2026, 3, 28, 23, 59), (2026, 3, 29, 23, 59), 1),  # 23 hours later
        ("Europe/Berlin", (2026, 3, 28, 23, 59), (2026, 3, 30, 0, 30), 2),  # 23 hours and 31 minutes later
        ("Europe/Berlin", (2026, 3, 28, 2, 30), (2026, 3, 29, 3, 30), 1),  # half past two does not come that night
        ("Europe/Berlin", (2026, 3, 28, 2, 30), (2026, 3, 29, 3, 31), 2),
        ("America/New_York", (2026, 10, 31, 23, 59), (2026, 11, 1, 23, 59), 1),
        ("Australia/Lord_Howe", (2026, 4, 4, 23, 59), (2026, 4, 5, 23, 59), 1),  # 24 hours and a half
        ("Australia/Lord_Howe", (2026, 10, 3, 23, 59), (2026, 10, 5, 0, 15), 2),  # 23 hours and a half, and more
        ("Asia/Kolkata", (2026, 10, 24, 23, 59), (2026, 10, 26, 0, 0), 2),
        ("", (2026, 10, 24, 23, 59), (2026, 10, 26, 0, 0), 2),  # no zone is named: a day is 24 hours
    ],
    ids=str,
)
def test_a_day_late_ends_when_the_clock_shows_the_due_time_again(zone, due, handed_in, days):
    clock = zone or "UTC"
    assert days_late(zone, at(clock, *due), at(clock, *handed_in)) == days


def test_in_the_hour_that_comes_twice_a_day_ends_at_its_second_coming():
    due = at("Europe/Berlin", 2026, 10, 24, 2, 30)
    first, second = (at("Europe/Berlin", 2026, 10, 25, 2, 30, fold=fold) for fold in (0, 1))
    assert second - first == timedelta(hours=1)
    assert [days_late("Europe/Berlin", due, each) for each in (first, first + MINUTE, second, second + MINUTE)] == [
        1,
        1,
        1,
        2,
    ]


def test_work_that_is_due_in_the_hour_that_comes_twice_is_due_at_its_second_coming(tmp_path):
    path = tmp_path / "course.toml"
    path.write_text(
        '[grading]\ntime_zone = "Europe/Berlin"\n[grading.due]\n2 = 2026-10-25T02:30:00\n3 = 2026-03-29T02:30:00\n'
        "4 = 2026-10-25T02:30:00+02:00\n",
        encoding="utf-8",
    )
    assert read_policy(path).due == {
        2: at("Europe/Berlin", 2026, 10, 25, 2, 30, fold=1),
        3: at("Europe/Berlin", 2026, 3, 29, 3, 30),
        4: at("Europe/Berlin", 2026, 10, 25, 2, 30),
    }


ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "UTC"]
MOMENTS = st.datetimes(datetime(2009, 1, 1), datetime(2037, 1, 1)).map(lambda each: each.replace(second=0, tzinfo=UTC))


def counted(zone: str, due: datetime, handed_in: datetime) -> int:
    """Days begun, one after the other: the first whose last moment, by the clock of the zone, is not before."""
    clock, day = due.astimezone(ZoneInfo(zone)).replace(tzinfo=None), 0
    while True:
        shown = (clock + timedelta(days=day)).replace(tzinfo=ZoneInfo(zone))
        ends = max(shown.replace(fold=fold).astimezone(UTC) for fold in (0, 1)) if day else due
        if handed_in <= ends:
            return day
        day += 1


@given(st.sampled_from(ZONES), MOMENTS, st.integers(-100, 20_000))
def test_in_any_zone_the_days_are_those_that_a_calendar_counts(zone, due, minutes):
    handed_in = due + minutes * MINUTE
    assert days_late(zone, due, handed_in) == counted(zone, due, handed_in)
    assert days_late(zone, due, handed_in) <= days_late(zone, due, handed_in + MINUTE), "later is never sooner"
    grace = timedelta(minutes=15)
    assert days_late(zone, due, handed_in + grace, grace=grace) == days_late(zone, due, handed_in)


def test_a_time_at_the_end_of_all_calendars_stops_no_run(tmp_path):
    path = tmp_path / "course.toml"
    for time in ("9999-12-31T23:59:00Z", "0001-01-01T00:00:00Z"):
        path.write_text(
            f'[grading]\ntime_zone = "America/New_York"\n[grading.due]\n2 = {time}\n[grading.handed_in]\nada = {time}\n'
        )
        with pytest.raises(ValueError, match=r"line 4.*must be a date and time"):
            read_policy(path)
