"""How long keys wait after slow plans, and that those that are gone are forgotten."""

from typing_extensions import override

from kvstack.agents.reconcile.throttle import Throttle
from tests.sim.stack.timing import SimClock


class Clock(SimClock):
    """A time that the test sets."""

    now = 0.0

    @override
    def monotonic_s(self) -> float:
        """Return the time."""
        return self.now


def test_a_key_waits_nine_times_as_long_as_its_plan_took() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    throttle.took("a", 0.005)
    throttle.took("quick", 0.0009)
    throttle.took("slow", 60.0)
    assert round(throttle.rest_s("a"), 6) == 0.045
    assert throttle.rest_s("quick") == throttle.rest_s("other") == 0.0
    assert throttle.rest_s("slow") == 1.0
    clock.now = 0.05
    assert throttle.rest_s("a") == 0.0
    throttle.took("slow", 0.0001)
    assert throttle.rest_s("slow") == 0.0


def test_keys_that_are_never_asked_for_again_are_forgotten() -> None:
    """Their waits are over; those in force stay, however many."""
    clock = Clock()
    throttle = Throttle(clock)
    for number in range(10_000):
        clock.now += 0.1
        throttle.took(f"default/{number}", 1.0)
    assert len(throttle) <= 1001
    for number in range(5000):
        throttle.took(f"now/{number}", 1.0)
    assert all(throttle.rest_s(f"now/{number}") == 1.0 for number in range(5000))
    clock.now += 2.0
    for number in range(6000):
        throttle.took(f"later/{number}", 1.0)
    assert len(throttle) <= 12_000
