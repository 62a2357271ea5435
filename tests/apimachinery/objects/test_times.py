"""Times, durations and ages."""

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects import durations, times

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(st.datetimes(timezones=st.just(UTC)))
def test_times_come_back(moment: datetime) -> None:
    text = moment.strftime("%Y").rjust(4, "0") + moment.strftime("-%m-%dT%H:%M:%SZ")
    seconds = (moment.replace(microsecond=0) - EPOCH) // timedelta(seconds=1)
    assert times.parse_time(text) == (seconds, 0)
    assert times.format_time(seconds) == text


@given(st.integers(-(10**13), 10**13))
def test_years_of_any_number_of_digits(seconds: int) -> None:
    text = times.format_time(seconds)
    assert text.endswith("Z")
    if 0 <= seconds < 253_402_300_800:
        assert times.parse_time(text).seconds == seconds


@given(st.text(alphabet="0123456789-T:Z.+ ", max_size=30))
def test_no_time_is_too_odd(text: str) -> None:
    with suppress(times.TimeError):
        times.parse_time(text)


def test_zones_and_fractions() -> None:
    assert times.canonical_time("2024-05-01T12:00:00.9+02:00") == "2024-05-01T10:00:00Z"
    assert times.canonical_micro_time("2024-05-01T12:00:00.000001-01:00") == (
        "2024-05-01T13:00:00.000001Z"
    )


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-01T12:00:00.000001Z",
        "2024-05-01T12:00:00.123456z",
        "2024-05-01T12:00:00,123456Z",
        "2024-05-01t12:00:00.123456Z",
        "2024-05-01T12:00:00.12345\u0663Z",
        "2024-02-30T12:00:00.000000Z",
        "2024-05-01T24:00:00.000000Z",
        "0001-01-01T00:00:00.000000Z",
        "0001-01-01T00:00:00.000001Z",
        "2024-05-01T12:00:00.0000001",
    ],
)
def test_micro_times_in_the_usual_form_are_as_others(text: str) -> None:
    def read_whole() -> str | None:
        moment = times.parse_micro_time(text)
        return None if moment.is_zero else times.format_micro_time(moment)

    assert _outcome(lambda: times.canonical_micro_time(text)) == _outcome(read_whole)


def _outcome(read: Callable[[], str | None]) -> str | None:
    try:
        return read()
    except times.TimeError as error:
        return f"refused: {error}"


def test_the_zero_time_is_none() -> None:
    assert times.canonical_time("0001-01-01T00:00:00Z") is None
    assert times.canonical_micro_time("0001-01-01T00:00:00.000000Z") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", 'parsing time "x" as "2006-01-02T15:04:05Z07:00": cannot parse "x" as "2006"'),
        ("2024-13-01T00:00:00Z", 'parsing time "2024-13-01T00:00:00Z": month out of range'),
        ("2023-02-29T00:00:00Z", 'parsing time "2023-02-29T00:00:00Z": day out of range'),
        ("2024-01-01T24:00:00Z", 'parsing time "2024-01-01T24:00:00Z": hour out of range'),
        ("2024-01-01T00:00:00Z!", 'parsing time "2024-01-01T00:00:00Z!": extra text: "!"'),
    ],
)
def test_what_is_said_of_other_texts(text: str, message: str) -> None:
    with pytest.raises(times.TimeError) as caught:
        times.parse_time(text)
    assert str(caught.value) == message


def test_a_micro_time_has_six_digits() -> None:
    with pytest.raises(times.TimeError, match=r'cannot parse "Z" as "\.000000"'):
        times.parse_micro_time("2024-01-01T00:00:00Z")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-2, "<invalid>"), (-1, "0s"), (0.9, "0s"), (119, "119s"), (120, "2m"), (200, "3m20s"),
        (600, "10m"), (10_799, "179m"), (10_800, "3h"), (10_860, "3h1m"), (28_800, "8h"),
        (172_799, "47h"), (172_800, "2d"), (176_400, "2d1h"), (691_200, "8d"),
        (63_071_999, "729d"), (63_072_000, "2y"), (63_158_400, "2y1d"), (252_288_000, "8y"),
    ],
)  # fmt: skip
def test_ages(seconds: float, text: str) -> None:
    assert times.human_duration(seconds) == text


def test_the_age_of_an_object() -> None:
    assert times.age("1970-01-01T00:00:10Z", 130.7) == "2m"
    assert times.age(None, 130.7) == "<unknown>"
    assert times.age("0001-01-01T00:00:00Z", 130.7) == "<unknown>"


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_durations_come_back(nanoseconds: int) -> None:
    # Fractions are computed in floats: below a microsecond's share nothing is lost.
    text = durations.text(nanoseconds)
    assert abs(durations.parse(text) - nanoseconds) <= 1


@given(st.text(alphabet="0123456789hmsunµ.-+", max_size=12))
def test_no_duration_is_too_odd(text: str) -> None:
    with suppress(durations.DurationError):
        durations.parse(text)


@pytest.mark.parametrize(
    ("text", "written"),
    [("1h", "1h0m0s"), ("90s", "1m30s"), ("1.5ms", "1.5ms"), ("1us", "1\u00b5s"), ("0", "0s"),
     ("-1m", "-1m0s"), ("999ns", "999ns")],
)  # fmt: skip
def test_canonical_durations(text: str, written: str) -> None:
    assert durations.canonical(text) == written


@pytest.mark.parametrize(
    ("text", "message"),
    [("", 'time: invalid duration ""'), ("1", 'time: missing unit in duration "1"'),
     ("1x", 'time: unknown unit "x" in duration "1x"'),
     ("9999999h", 'time: invalid duration "9999999h"')],
)  # fmt: skip
def test_what_is_said_of_other_durations(text: str, message: str) -> None:
    with pytest.raises(durations.DurationError) as caught:
        durations.parse(text)
    assert str(caught.value) == message
