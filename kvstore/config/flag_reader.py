"""Typed access to the values of flags.

read = FlagReader(values)
read.text("name")   read.seconds("grpc-keepalive-timeout", when_zero_s=20.0)
"""

from collections.abc import Mapping
from typing import Final

from kvstack.component.units import SECOND_NS
from kvstore.config.values import Value


class FlagReader:
    """Reads values of flags as the types of their kinds."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = values
        self.names_read: Final[set[str]] = set()

    def _read(self, name: str) -> Value:
        self.names_read.add(name)
        return self._values[name]

    def text(self, name: str) -> str:
        """Return a text."""
        value = self._read(name)
        assert isinstance(value, str), name
        return value

    def switch(self, name: str) -> bool:
        """Return a boolean."""
        value = self._read(name)
        assert isinstance(value, bool), name
        return value

    def number(self, name: str, when_zero: int = 0) -> int:
        """Return a whole number; when_zero for 0."""
        value = self._read(name)
        assert isinstance(value, int), name
        return value or when_zero

    def seconds(self, name: str, when_zero_s: float = 0.0) -> float:
        """Return a duration; when_zero_s for 0."""
        return self.number(name) / SECOND_NS or when_zero_s

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list; its empty items are left out."""
        value = self._read(name)
        assert isinstance(value, tuple), name
        return tuple(filter(None, value))

    def gates(self, name: str) -> dict[str, bool]:
        """Return all feature gates."""
        value = self._read(name)
        assert isinstance(value, dict), name
        return value
