"""Repair of node ports: the stored bitmap is made consistent with the Services.

    Service has it, bitmap has it not    PortNotAllocated, added
    two Services have it                 PortAlreadyAllocated
    Service has it, range has it not     PortOutOfRange
    bitmap has it, no Service has it     a leak, freed when it is seen for the third time

A leak is kept at first because the Service that took the port may be about to be written. The
caller lists the Services after it has read the bitmap, and stores the new one if the old is
unchanged.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.allocators.findings import Finding
from kvstack.apiserver.allocators.node_ports import bitmap, ports_of
from kvstack.component.net.port_range import PortRange

PERIOD_SECONDS: Final = 180
LEAK_ROUNDS: Final = 3
"""The number of successive rounds after which a leak is freed."""

_RECREATE: Final = "please recreate service"


class PortRepair:
    """Rounds of repair, which count the leaks they see."""

    def __init__(self, port_range: PortRange) -> None:
        self._range = port_range
        self._leaks: dict[int, int] = {}
        """The number of rounds that saw each leaked port."""

    @property
    def counts_leaks(self) -> bool:
        """Whether the last round saw leaks."""
        return bool(self._leaks)

    def round(self, stored: int, services: Iterable[Object]) -> tuple[int, list[Finding]]:
        """Return the bitmap to store instead of `stored`, and the findings."""
        rebuilt, unseen = 0, stored
        findings: list[Finding] = []
        for service in services:
            for port in node_ports_of(service):
                bit = 1 << port - self._range.first if self._range.has(port) else 0
                if not bit:
                    reason = f"is not within the port range {self._range.text}; {_RECREATE}"
                    findings.append(_finding(service, "PortOutOfRange", port, reason))
                elif rebuilt & bit:
                    reason = f"was assigned to multiple services; {_RECREATE}"
                    findings.append(_finding(service, "PortAlreadyAllocated", port, reason))
                elif not stored & bit:
                    reason = "is not allocated; repairing"
                    findings.append(_finding(service, "PortNotAllocated", port, reason))
                rebuilt |= bit
                unseen &= ~bit
        self._leaks = {port: self._leaks.get(port, 0) + 1 for port in ports_of(self._range, unseen)}
        kept = (port for port, rounds in self._leaks.items() if rounds < LEAK_ROUNDS)
        return rebuilt | bitmap(self._range, kept), findings


def node_ports_of(service: Object) -> Iterator[int]:
    """Yield the node ports of a Service, the health check's last.

    A port that two protocols share is one claim; a duplicate within a protocol is two.
    """
    spec = service.get("spec") or {}
    protocols: dict[int, set[str]] = {}
    for each in spec.get("ports") or ():
        port, protocol = each.get("nodePort", 0), each.get("protocol", "")
        if not port:
            continue
        seen = protocols.setdefault(port, set())
        if not seen or protocol in seen:
            yield port
        seen.add(protocol)
    health_check = spec.get("healthCheckNodePort", 0)
    if health_check and "TCP" in protocols.get(health_check, {"TCP"}):
        yield health_check


def _finding(service: Object, reason: str, port: int, problem: str) -> Finding:
    return Finding(service, reason, "PortAllocation", f"Port {port} {problem}")
