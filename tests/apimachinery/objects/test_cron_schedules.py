"""Schedules of CronJobs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects.cron_schedules import LOCAL, ScheduleError, parse
from kvstack.apimachinery.objects.time_zones import NAMES, is_known

MINUTES = frozenset(range(60))


def test_fields() -> None:
    """Lists of numbers, ranges, names and steps."""
    schedule = parse("*/15,7 8-10 1,15 jan-mar SUN")
    assert schedule.minutes == {0, 7, 15, 30, 45}
    assert schedule.hours == {8, 9, 10}
    assert schedule.days == {1, 15}
    assert schedule.months == {1, 2, 3}
    assert schedule.weekdays == {0}
    assert (schedule.every_day, schedule.every_weekday) == (False, False)
    assert (schedule.zone, schedule.every) == (LOCAL, 0)


@pytest.mark.parametrize(
    ("field", "minutes"),
    [
        ("*", MINUTES),
        ("?", MINUTES),
        ("*/1", MINUTES),
        ("*/20", {0, 20, 40}),
        ("5/20", {5, 25, 45}),
        ("5-30/20", {5, 25}),
        ("07", {7}),
        (",", set()),
        ("1,*", MINUTES),
    ],
)
def test_ranges(field: str, minutes: set[int]) -> None:
    """A single number with a step runs to the end."""
    assert parse(f"{field} * * * *").minutes == minutes


@pytest.mark.parametrize(
    ("field", "has_star"), [("*", True), ("?", True), ("*/1", True), ("*/2", False), ("1,*", True)]
)
def test_stars(field: str, has_star: bool) -> None:  # noqa: FBT001
    """A step of more than one takes the star away."""
    schedule = parse(f"* * {field} * {field}")
    assert (schedule.every_day, schedule.every_weekday) == (has_star, has_star)


@pytest.mark.parametrize(
    ("word", "fields"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_words(word: str, fields: str) -> None:
    assert parse(word) == parse(fields)


@pytest.mark.parametrize(
    ("text", "seconds"), [("1h30m", 5400), ("1500ms", 1), ("1ms", 1), ("2.9s", 2)]
)
def test_intervals(text: str, seconds: int) -> None:
    """Whole seconds, and at least one."""
    assert parse(f"@every {text}").every == seconds * 1_000_000_000


@pytest.mark.parametrize(
    ("prefix", "zone"),
    [
        ("TZ=Europe/Paris", "Europe/Paris"),
        ("CRON_TZ=UTC", "UTC"),
        ("TZ=", "UTC"),
        ("TZ=Local", "Local"),
    ],
)
def test_zones(prefix: str, zone: str) -> None:
    assert parse(f"{prefix} 1 * * * *").zone == zone


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty spec string"),
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("@never", "unrecognized descriptor: @never"),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("3-1 * * * *", "beginning of range (3) beyond end of range (1): 3-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("*/-1 * * * *", "negative number (-1) not allowed: -1"),
        ("TZ=0", "invalid schedule format: runtime error: slice bounds out of range [:-1]"),
        ("TZ=No/Where * * * * *", "provided bad location No/Where: unknown time zone No/Where"),
        ("TZ=../x * * * * *", "provided bad location ../x: time: invalid location name"),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        parse(text)
    assert str(caught.value) == message


@given(st.integers(0, 59), st.integers(0, 59), st.integers(1, 70))
def test_ranges_are_ranges(start: int, end: int, step: int) -> None:
    """A range with a step holds what Python's has."""
    text = f"{start}-{end}/{step} * * * *"
    if start > end:
        with pytest.raises(ScheduleError):
            parse(text)
    else:
        assert parse(text).minutes == set(range(start, end + 1, step))


@given(st.text(max_size=20))
def test_any_text_is_a_schedule_or_refused(text: str) -> None:
    try:
        schedule = parse(text)
    except ScheduleError:
        return
    assert schedule.every or schedule.minutes <= MINUTES


def test_time_zones() -> None:
    """Names are case-sensitive, and old ones are names still."""
    assert is_known("Europe/Paris")
    assert is_known("Etc/GMT+5")
    assert is_known("US/Pacific")
    assert not is_known("europe/paris")
    assert not is_known("Europe")
    assert len(NAMES) > 500
