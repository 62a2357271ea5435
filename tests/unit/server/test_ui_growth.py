"""The forecast of the database's growth."""

import pytest

from kvstore.server.ui.growth import SAMPLE_MS, SAMPLES_MAX, SHOWN_MAX, Growth

MIB = 1 << 20
HOUR_MS = 3_600_000


def grown(minutes: int, bytes_a_minute: float, *, saw: int = 0) -> Growth:
    """saw: bytes that come and go every ten minutes, as compactions do."""
    growth = Growth()
    for minute in range(minutes):
        size = 100 * MIB + round(minute * bytes_a_minute) + saw * (minute % 10) // 10
        growth.add(minute * SAMPLE_MS, size)
    return growth


def test_nothing_is_said_too_early() -> None:
    assert Growth().forecast(MIB) is None
    assert Growth().graph_points() == []
    assert grown(10, MIB).forecast(1 << 30) is None
    assert grown(11, MIB).forecast(1 << 30) is not None


def test_a_straight_line_is_continued() -> None:
    found = grown(61, MIB).forecast(1024 * MIB)
    assert found is not None
    assert found.bytes_per_day == 24 * 60 * MIB
    # 160 MiB are used after an hour, a MiB a minute is added.
    assert found.full_in_s == pytest.approx((1024 - 160) * 60)
    assert found.span_s == 3600


def test_what_compactions_free_again_does_not_count_as_growth() -> None:
    found = grown(600, 0, saw=50 * MIB).forecast(1024 * MIB)
    assert found is not None
    assert abs(found.bytes_per_day) < 2 * MIB


@pytest.mark.parametrize(("slope", "quota"), [(0, 1 << 30), (-MIB, 1 << 30), (MIB, 0)])
def test_what_does_not_grow_or_has_no_quota_is_never_full(slope: int, quota: int) -> None:
    found = grown(30, slope).forecast(quota)
    assert found is not None
    assert found.full_in_s is None


def test_what_is_full_is_full_now() -> None:
    found = grown(30, MIB).forecast(MIB)
    assert found is not None
    assert found.full_in_s == 0


def test_samples_are_bounded_and_the_newest_is_shown() -> None:
    growth = grown(2 * SAMPLES_MAX, 1)
    found = growth.forecast(0)
    assert found is not None
    assert found.span_s == (SAMPLES_MAX - 1) * SAMPLE_MS / 1000
    shown = growth.graph_points()
    assert SHOWN_MAX // 2 < len(shown) <= SHOWN_MAX
    assert shown[-1] == (0, 100 * MIB + 2 * SAMPLES_MAX - 1)
    growth.add(2 * SAMPLES_MAX * SAMPLE_MS - 1, 7)  # not a minute later
    assert growth.graph_points()[-1] == shown[-1]
