"""Port ranges in the syntax of Kubernetes' flags."""

from typing import NamedTuple


class PortRange(NamedTuple):
    """Ports, both ends included."""

    first: int
    last: int

    @property
    def text(self) -> str:
        """Return the range as text, as stored and as in errors."""
        return f"{self.first}-{self.last}"

    def has(self, port: int) -> bool:
        """Return whether the port lies in the range."""
        return self.first <= port <= self.last


def parse_range(text: str) -> PortRange:
    """Return the range of `30000-32767`, `30000+2767` or `30000`; ValueError if it is invalid."""
    first, plus, more = text.partition("+")
    if plus:
        low = int(first)
        found = PortRange(low, low + int(more))
    else:
        first, _, last = text.partition("-")
        found = PortRange(int(first), int(last or first))
    if not 0 < found.first <= found.last <= 65535:
        raise ValueError(
            f"invalid port range {text!r}: must be within 1-65535, the smaller port first"
        )
    return found
