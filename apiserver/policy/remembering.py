"""A cache with expiry and a limited size."""

from typing import Final, Generic, TypeVar

from kvstack.component.clock import Clock

K = TypeVar("K")
V = TypeVar("V")


class Remembered(Generic[K, V]):
    """Values by key, each with its own expiry. The oldest are evicted when there are too many."""

    def __init__(self, count_max: int, clock: Clock) -> None:
        self._count_max: Final = count_max
        self._clock: Final = clock
        self._values: Final[dict[K, tuple[V, int]]] = {}

    def __len__(self) -> int:
        """Return the number of values, including expired ones."""
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return a value; None: unknown or expired."""
        entry = self._values.get(key)
        if entry is None:
            return None
        if self._clock.monotonic_ns() >= entry[1]:
            del self._values[key]
            return None
        return entry[0]

    def put(self, key: K, value: V, lasts_ns: int) -> None:
        """Store a value for some nanoseconds; 0: not at all."""
        if lasts_ns <= 0:
            return
        values = self._values
        values.pop(key, None)
        if len(values) >= self._count_max:
            # Dicts keep insertion order: this is the oldest.
            del values[next(iter(values))]
        values[key] = value, self._clock.monotonic_ns() + lasts_ns

    def clear(self) -> None:
        """Remove all values."""
        self._values.clear()
