"""The clock of all programs: one moment, in the units that each of them counts in."""

import time

import pytest
from typing_extensions import override

from kvstack.component.clock import Clock, SystemClock


class TwoUnits(Clock):
    @override
    def monotonic_ns(self) -> int:
        return 1_500_000_000

    @override
    def unix_ms(self) -> int:
        return 1_700_000_000_999


def test_a_clock_of_two_units_has_all() -> None:
    clock = TwoUnits()
    assert clock.monotonic_s() == 1.5
    assert clock.unix_s() == 1_700_000_000
    assert clock.now_s() == 1_700_000_000.999


def test_the_clocks_of_the_machine_agree_in_all_units() -> None:
    clock = SystemClock()
    before_ns = time.monotonic_ns()
    assert before_ns <= clock.monotonic_ns() <= time.monotonic_ns()
    assert before_ns <= round(clock.monotonic_s() * 1e9) + 1000
    assert clock.unix_s() == pytest.approx(clock.now_s(), abs=60)
    assert clock.unix_ms() / 1000 == pytest.approx(clock.now_s(), abs=60)
