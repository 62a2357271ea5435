"""When schedules are due."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.agents.controllers.workloads.jobs.due_times import NeverDueError, due, next_s
from kvstack.apimachinery.objects.cron_schedules import parse


def _s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "expected", "zone"),
    [
        ("* * * * *", "2026-11-22T10:00:00+00:00", "2026-11-22T10:01:00+00:00", "UTC"),
        ("* * * * *", "2026-11-22T10:00:30+00:00", "2026-11-22T10:01:00+00:00", "UTC"),
        ("*/15 * * * *", "2026-11-22T10:50:00+00:00", "2026-11-22T11:00:00+00:00", "UTC"),
        ("30 2 * * *", "2026-11-22T02:30:00+00:00", "2026-11-23T02:30:00+00:00", "UTC"),
        ("0 0 1 1 *", "2026-11-22T00:00:00+00:00", "2027-01-01T00:00:00+00:00", "UTC"),
        ("0 0 29 2 *", "2025-03-01T00:00:00+00:00", "2028-02-29T00:00:00+00:00", "UTC"),
        # Either of two restricted fields of days is enough.
        ("0 12 13 * fri", "2026-11-01T00:00:00+00:00", "2026-11-06T12:00:00+00:00", "UTC"),
        ("0 12 * * fri", "2026-11-22T00:00:00+00:00", "2026-11-27T12:00:00+00:00", "UTC"),
        ("@every 90s", "2026-11-22T10:00:00.7+00:00", "2026-11-22T10:01:30+00:00", "UTC"),
        ("0 9 * * *", "2026-11-22T00:00:00+00:00", "2026-11-22T08:00:00+00:00", "Europe/Paris"),
        # At half past two of that night the clocks are put forward: the day has none.
        ("30 2 * * *", "2026-03-28T12:00:00+00:00", "2026-03-30T00:30:00+00:00", "Europe/Paris"),
        # This half past one comes twice.
        ("30 2 * * *", "2026-10-25T00:30:00+00:00", "2026-10-25T01:30:00+00:00", "Europe/Paris"),
    ],
)
def test_the_next_time(schedule: str, after: str, expected: str, zone: str) -> None:
    assert next_s(parse(schedule), _s(after), ZoneInfo(zone)) == _s(expected)


def test_what_never_comes_is_given_up() -> None:
    assert next_s(parse("0 0 31 2 *"), _s("2026-01-01T00:00:00+00:00"), UTC) is None
    with pytest.raises(NeverDueError):
        due(parse("0 0 31 2 *"), UTC, 0.0, 1.0)


@given(
    st.sampled_from(["*/7 * * * *", "5 */3 * * *", "0 0 * * mon", "15 10 1,15 * *"]),
    st.integers(0, 2_000_000_000),
)
def test_a_time_is_after_the_last_and_fits(text: str, after: int) -> None:
    schedule = parse(text)
    moment = next_s(schedule, after, UTC)
    assert moment is not None
    assert moment > after
    local = datetime.fromtimestamp(moment, UTC)
    assert local.second == 0
    assert local.minute in schedule.minutes
    assert local.hour in schedule.hours


def test_what_is_due() -> None:
    schedule = parse("*/10 * * * *")
    start = _s("2026-11-22T10:00:00+00:00")
    assert due(schedule, UTC, start, start + 599) == (None, 0)
    assert due(schedule, UTC, start, start + 600) == (start + 600, 0)
    assert due(schedule, UTC, start, start + 1199) == (start + 600, 0)
    assert due(schedule, UTC, start, start + 1800) == (start + 1800, 3)
    found = due(schedule, UTC, start, start + 600 * 500 + 5)
    assert found == (start + 600 * 500, 500)
