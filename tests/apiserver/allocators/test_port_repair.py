"""Repair of node ports."""

from typing import Any

import pytest

from kvstack.apiserver.allocators.node_ports import bitmap, ports_of
from kvstack.apiserver.allocators.port_repair import PortRepair, node_ports_of
from kvstack.component.net.port_range import PortRange

RANGE = PortRange(30000, 30099)


def service(*ports: int | tuple[int, str], health: int = 0) -> dict[str, Any]:
    """Return a Service with node ports, of TCP if not said otherwise."""
    pairs = [(each, "TCP") if isinstance(each, int) else each for each in ports]
    spec: dict[str, Any] = {
        "ports": [{"nodePort": port, "protocol": protocol} for port, protocol in pairs]
    }
    if health:
        spec["healthCheckNodePort"] = health
    return {"metadata": {"name": "s"}, "spec": spec}


def repaired(repair: PortRepair, stored: list[int], *services: Any) -> tuple[list[int], list[str]]:
    """Return the ports after a round, and what is told."""
    bits, findings = repair.round(bitmap(RANGE, stored), services)
    return list(ports_of(RANGE, bits)), [f"{each.reason}: {each.message}" for each in findings]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (service(), []),
        (service(0, 1), [1]),
        (service(1, (1, "UDP")), [1]),
        (service(1, 1), [1, 1]),
        (service(1, (1, "UDP"), (1, "UDP")), [1, 1]),
        (service(1, health=2), [1, 2]),
        (service(1, health=1), [1, 1]),
        (service((1, "UDP"), health=1), [1]),
    ],
)
def test_claimed_ports(given: dict[str, Any], expected: list[int]) -> None:
    """Protocols may share a port; one protocol may not have it twice."""
    assert list(node_ports_of(given)) == expected


def test_nothing_to_repair() -> None:
    """The bitmap stays as it is."""
    assert repaired(PortRepair(RANGE), [30001], service(30001)) == ([30001], [])


def test_missing_port_is_added() -> None:
    """Only once, however many Services want it."""
    ports, told = repaired(PortRepair(RANGE), [], service(30001), service(30001), service(80))
    assert ports == [30001]
    assert told == [
        "PortNotAllocated: Port 30001 is not allocated; repairing",
        "PortAlreadyAllocated: Port 30001 was assigned to multiple services;"
        " please recreate service",
        "PortOutOfRange: Port 80 is not within the port range 30000-30099; please recreate service",
    ]


def test_leak_is_freed_in_the_third_round() -> None:
    """Until then its Service may appear."""
    repair = PortRepair(RANGE)
    rounds = [repaired(repair, [30001, 30002], service(30002))[0] for _ in range(3)]
    assert rounds == [[30001, 30002], [30001, 30002], [30002]]
    assert repair.counts_leaks
    repaired(repair, [30002], service(30002))
    assert not repair.counts_leaks


def test_leak_that_was_none_is_counted_anew() -> None:
    """A round in which the port is used, or free, ends the count."""
    repair = PortRepair(RANGE)
    for _ in range(2):
        repaired(repair, [30001])
    assert repaired(repair, [30001], service(30001)) == ([30001], [])
    assert repaired(repair, [30001]) == ([30001], [])
    assert repaired(repair, []) == ([], [])
    assert repaired(repair, [30001]) == ([30001], [])
