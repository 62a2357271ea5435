"""A clock that a test moves."""


class FixedClock:
    """A clock that a test moves."""

    def __init__(self, now_s: int) -> None:
        self.now_s = now_s

    def monotonic_ns(self) -> int:
        return self.now_s * 1_000_000_000

    def unix_ms(self) -> int:
        return self.now_s * 1000
