"""Which clients may ask, and their rate limits.

    clients = Clients(networks, per_second); clients.begin(now_s)
    clients.admits("10.244.0.7")

Other addresses get no answer at all, so that the server is invisible to them, and cannot be used to
send answers to forged addresses. They are not counted either: forged queries cannot use up the
limit of a client.
"""

from collections.abc import Callable, Iterable
from ipaddress import IPv4Network, IPv6Network, ip_address
from typing import Final, TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network

PER_SECOND: Final = 5000
KNOWN_MAX: Final = 65_536
"""Clients of one second; more are not answered in it."""


class Clients:
    """Counts queries, for one second after the other."""

    def __init__(
        self,
        networks: Iterable[Network],
        per_second: int = PER_SECOND,
        is_own: Callable[[str], bool] | None = None,
    ) -> None:
        """networks: of those who may ask; is_own: whether an address is of this machine."""
        self._is_own = is_own
        self._fixed = tuple(networks)
        self._networks = self._fixed
        self._per_second = per_second
        self._left: dict[str, int] = {}
        self._allowed: dict[str, bool] = {}
        self._ends_s = 0.0
        self.refused = 0

    def add(self, networks: Iterable[Network]) -> None:
        """Set the ranges that may ask, besides the initial ones."""
        found = (*self._fixed, *networks)
        if found != self._networks:
            self._networks = found
            self._allowed.clear()
            self._left.clear()

    def begin(self, now_s: float) -> None:
        """Set the current time, of a monotonic clock."""
        if now_s >= self._ends_s:
            self._ends_s = now_s + 1
            self._left.clear()

    def admits(self, host: str) -> bool:
        """Count a query; return whether it is answered."""
        left = self._left.get(host)
        if left is None and self.allows(host) and len(self._left) < KNOWN_MAX:
            left = self._per_second
        if not left:
            self.refused += 1
            return False
        self._left[host] = left - 1
        return True

    def allows(self, host: str) -> bool:
        """Whether an address may ask."""
        is_allowed = self._allowed.get(host)
        if is_allowed is None:
            if len(self._allowed) >= KNOWN_MAX:
                self._allowed.clear()
            address = ip_address(host.partition("%")[0])
            is_allowed = any(
                address in each for each in self._networks if each.version == address.version
            )
            if not is_allowed and self._is_own is not None:
                is_allowed = self._is_own(host)
            self._allowed[host] = is_allowed
        return is_allowed
