"""Node ports: free ports of the range, and the stored bitmap of allocated ones.

    30000-32767  →  chosen from 30086 upwards, 30000 … 30085 last

The allocated ports are one object for all Services, a RangeAllocation at /registry/ranges/
servicenodeports: the text of the range and a bitmap, the bit of a port being its distance from the
first. A `PortClaims` collects what one write of a Service allocates and releases; the caller stores
both in the transaction that writes the Service.
"""

import base64
from collections.abc import Iterable, Iterator
from typing import Final

from kvstack.apiserver.allocators.bands import RandomBelow, band, candidates
from kvstack.component.net.port_range import PortRange

FULL: Final = "range is full"
ALLOCATED: Final = "provided port is already allocated"

DRY_PORT: Final = 32769
"""The first port that a dry run shows for one to be chosen."""


DEFAULT_RANGE: Final = PortRange(30000, 32767)


def static_band(ports: PortRange) -> int:
    """Return how many ports from the first on are chosen last."""
    return band(ports.last - ports.first + 1, least=16, most=128, step=32)


class PortClaims:
    """Allocations and releases of one write of a Service."""

    __slots__ = ("_random_below", "_range", "_taken", "claimed", "is_dry_run", "released")

    def __init__(
        self,
        port_range: PortRange,
        taken: int,
        random_below: RandomBelow,
        *,
        is_dry_run: bool = False,
    ) -> None:
        """taken: the stored bitmap, which is not changed."""
        self._range = port_range
        self._taken = taken
        self._random_below = random_below
        self.is_dry_run = is_dry_run
        self.claimed: list[int] = []
        """The ports allocated by this write, in order."""
        self.released: list[int] = []
        """The ports released once the write is committed."""

    def claim(self, port: int) -> str:
        """Allocate the requested port; return why it cannot be (empty: it is allocated)."""
        if not self.is_dry_run and not self._range.has(port):
            return (
                "provided port is not in the valid range."
                f" The range of valid ports is {self._range.text}"
            )
        if self._is_taken(port):
            return ALLOCATED
        self.claimed.append(port)
        return ""

    def claim_any(self) -> int | None:
        """Allocate a free port and return it; None: there is none. A dry run makes up a number."""
        if self.is_dry_run:
            port: int | None = max(self.claimed, default=DRY_PORT - 1) + 1
        else:
            port = next((each for each in self._candidates() if not self._is_taken(each)), None)
        if port is not None:
            self.claimed.append(port)
        return port

    def release(self, port: int) -> None:
        """Release the port when the write is committed."""
        self.released.append(port)

    def result(self) -> int:
        """Return the bitmap to store with the Service."""
        bits = self._taken
        for port in self.claimed:
            if self._range.has(port):  # a dry run accepts any number
                bits |= 1 << port - self._range.first
        for port in self.released:
            if self._range.has(port):
                bits &= ~(1 << port - self._range.first)
        return bits

    def _candidates(self) -> Iterator[int]:
        return candidates(
            self._range.first, static_band(self._range), self._range.last, self._random_below
        )

    def _is_taken(self, port: int) -> bool:
        if port in self.claimed:
            return True
        return self._range.has(port) and bool(self._taken >> port - self._range.first & 1)


def encode_bitmap(bits: int) -> str:
    """Return `data` of a RangeAllocation: the bitmap as big-endian bytes, base64."""
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8)).decode()


def decode_bitmap(data: str) -> int:
    """Return the bitmap of `data` of a RangeAllocation."""
    return int.from_bytes(base64.b64decode(data))


def bitmap(port_range: PortRange, ports: Iterable[int]) -> int:
    """Return the bitmap of ports; those out of the range are left out."""
    bits = 0
    for port in ports:
        if port_range.has(port):
            bits |= 1 << port - port_range.first
    return bits


def ports_of(port_range: PortRange, bits: int) -> Iterator[int]:
    """Yield the ports of a bitmap, ascending."""
    while bits:
        low = bits & -bits
        yield port_range.first + low.bit_length() - 1
        bits ^= low
