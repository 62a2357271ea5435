"""Cluster IPs as addresses of this machine, where no rules can lead to endpoints instead.

    ranges = LocalRanges(4, logger)
    ranges.use(("10.96.0.0/12",))      like `ip route add local 10.96.0.0/12 dev lo`
    ranges.has("10.96.0.10")           True: a socket can listen there

It needs CAP_NET_ADMIN. A cluster IP that nothing listens on refuses connections, as with rules.
Sockets that listen on every address of the machine answer on cluster IPs, too.
"""

import os
from ipaddress import ip_address, ip_network
from typing import Final

from kvstack.agents.proxy.services import FAMILIES, Family
from kvstack.component.logger import Logger
from kvstack.component.net.netlink import Netlink, Network

_LENGTH_MIN: Final[dict[Family, int]] = {4: 8, 6: 48}
"""The shortest prefix of a range; a shorter one would take the machine's network away."""


class LocalRanges:
    """The ranges of cluster IPs of one family that are local on this machine."""

    def __init__(self, family: Family, logger: Logger) -> None:
        """No range is local before `use`."""
        self._family = family
        self._logger = logger
        self._ranges: frozenset[Network] = frozenset()

    def use(self, texts: tuple[str, ...]) -> bool:
        """Make these ranges local, and others no longer; return whether that changed any."""
        ranges = frozenset(each for each in map(ip_network, texts) if each.version == self._family)
        if ranges == self._ranges:
            return False
        before, self._ranges = self._ranges, frozenset(self._changed(ranges))
        return self._ranges != before

    def has(self, ip: str) -> bool:
        """Whether an address is in a range that is local."""
        address = ip_address(ip)
        return any(address in each for each in self._ranges)

    def close(self) -> None:
        """Make no range local."""
        self._ranges = frozenset(self._changed(frozenset()))

    def _changed(self, ranges: frozenset[Network]) -> list[Network]:
        """Bring the kernel's local ranges to these; return those that are local then."""
        try:
            with Netlink() as links:
                return self._bring(links, ranges)
        except OSError as error:
            if ranges:
                self._warn(ranges, str(error))
            return []

    def _bring(self, links: Netlink, ranges: frozenset[Network]) -> list[Network]:
        # Those that a killed process left are taken over, or removed.
        there = {each for each in links.local_ranges() if each.version == self._family}
        for each in there - ranges:
            links.remove_local_range(each)
        local: list[Network] = []
        for each in ranges:
            if reason := self._problem(links, each):
                self._warn(frozenset((each,)), reason)
                continue
            if each not in there:
                links.add_local_range(each)
            local.append(each)
        return local

    def _problem(self, links: Netlink, network: Network) -> str:
        """Return why a range would take the machine's networks away; empty: it would not."""
        if network.prefixlen < _LENGTH_MIN[self._family]:
            return f"it is wider than /{_LENGTH_MIN[self._family]}"
        if network.is_loopback:
            return "it is loopback"
        for route in links.routes() if self._family == 4 else links.routes_of_ipv6():
            if route.network.prefixlen and route.network.overlaps(network):
                return f"it overlaps with the route to {route.network}"
        return ""

    def _warn(self, ranges: frozenset[Network], reason: str) -> None:
        self._logger.warning(
            "cluster IPs are not served: their range cannot be made local",
            family=FAMILIES[self._family],
            ranges=", ".join(sorted(map(str, ranges))),
            reason=reason if os.geteuid() == 0 else f"{reason} (not root)",
        )


def remove_local_ranges() -> None:
    """Remove the ranges of all families that a proxy has left; OSError if that is not allowed."""
    with Netlink() as links:
        for each in links.local_ranges():
            links.remove_local_range(each)
