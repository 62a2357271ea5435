"""A clock that tests set."""

from dataclasses import dataclass

BEGAN_S = 1_800_000_000


@dataclass
class FakeClock:
    """Both clocks go on together, from an agreed moment."""

    seconds: float = BEGAN_S

    def monotonic_ns(self) -> int:
        return int((self.seconds - BEGAN_S) * 1e9)

    def unix_ms(self) -> int:
        return int(self.seconds * 1000)
