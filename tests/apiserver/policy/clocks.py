"""A clock that tests set."""

from dataclasses import dataclass

from typing_extensions import override

from kvstack.component.clock import Clock

BEGAN_S = 1_800_000_000


@dataclass
class FakeClock(Clock):
    """Both clocks go on together, from an agreed moment."""

    seconds: float = BEGAN_S

    @override
    def monotonic_ns(self) -> int:
        return int((self.seconds - BEGAN_S) * 1e9)

    @override
    def unix_ms(self) -> int:
        return int(self.seconds * 1000)
