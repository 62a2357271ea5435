"""How far virtual time may be at a moment of real time."""

import math

import pytest

from kvstack.component.virtual_time.timeline import (
    AT_ONCE,
    RATE_MAX,
    REAL,
    STANDING,
    RateError,
    Timeline,
)


def test_time_that_stands_is_where_it_was() -> None:
    line = Timeline(STANDING, now_s=5.0, real_s=100.0)
    assert line.limit_s(1000.0) == 5.0
    assert line.real_wait_s(5.0, 1000.0) == 0.0
    assert line.real_wait_s(5.1, 1000.0) is None


def test_time_goes_so_many_times_as_fast() -> None:
    line = Timeline(100.0, now_s=5.0, real_s=100.0)
    assert line.limit_s(100.5) == 55.0
    assert line.real_wait_s(105.0, 100.5) == pytest.approx(0.5)
    assert line.real_wait_s(math.inf, 100.5) is None
    assert not line.is_real


def test_time_may_go_at_once() -> None:
    line = Timeline(AT_ONCE)
    assert line.limit_s(0.0) == math.inf
    assert line.real_wait_s(1e9, 0.0) == 0.0


def test_a_new_rate_counts_from_the_moment_it_was_set() -> None:
    line = Timeline(REAL, now_s=0.0, real_s=10.0)
    line.now_s = line.limit_s(13.0)
    line.set_rate(10.0, 13.0)
    assert line.limit_s(14.0) == pytest.approx(13.0)
    line.now_s = 13.0
    line.set_rate(STANDING, 14.0)
    assert line.limit_s(99.0) == 13.0


def test_time_goes_by_at_once_up_to_a_moment_and_then_at_its_rate() -> None:
    line = Timeline(REAL, real_s=10.0)
    assert line.is_real
    line.free_until(60.0)
    assert not line.is_real
    assert line.limit_s(10.0) == 60.0
    assert line.real_wait_s(61.0, 10.0) is None
    line.now_s = 60.0
    line.bind(11.0)
    assert line.is_real
    assert line.limit_s(12.0) == pytest.approx(61.0)


def test_time_never_goes_back() -> None:
    line = Timeline(REAL, now_s=50.0, real_s=10.0)
    assert line.limit_s(5.0) == 50.0
    line.free_until(20.0)
    assert line.limit_s(5.0) == 50.0


@pytest.mark.parametrize("rate", [-1.0, math.nan, RATE_MAX * 2, -math.inf])
def test_a_rate_that_cannot_be_is_named(rate: float) -> None:
    with pytest.raises(RateError, match=r"invalid rate .*: must be from 0 to 1e\+06"):
        Timeline(rate)
