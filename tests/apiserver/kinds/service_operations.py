"""Writes of Services, which take addresses and ports, for the replay of recorded requests.

Which ones are free cannot be seen in a recording, but which were chosen can: all others are taken.
"""

from collections.abc import Container
from functools import partial
from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.allocators.cluster_ips import address_range
from kvstack.apiserver.allocators.node_ports import DEFAULT_RANGE, bitmap
from kvstack.apiserver.kinds.network.services.allocation import (
    Pools,
    allocate_create,
    allocate_update,
)
from tests.apiserver.kinds.replay import Operations, Reply, Request, create, update

RANGE: Final = address_range("10.0.0.0/16")


class AllBut:
    """Everything but some addresses."""

    def __init__(self, free: Container[str]) -> None:
        """Contain all but `free`."""
        self._free = free

    def __contains__(self, address: object) -> bool:
        """Return whether the address is taken."""
        return address not in self._free


def pools_of(answer: Object) -> Pools:
    """Return what was free when a Service with this answer was written."""
    spec = answer.get("spec") or {}
    chosen = [each.get("nodePort", 0) for each in spec.get("ports") or ()]
    chosen.append(spec.get("healthCheckNodePort", 0))
    size = DEFAULT_RANGE.last - DEFAULT_RANGE.first + 1
    return Pools(
        families=["IPv4"],
        ranges=[RANGE],
        taken_addresses=AllBut(spec.get("clusterIPs") or ()) if spec else {"10.0.0.1"},
        port_range=DEFAULT_RANGE,
        taken_ports=(1 << size) - 1 & ~bitmap(DEFAULT_RANGE, chosen) if spec else 0,
        random_below=lambda n: 0,
    )


def write_service(request: Request) -> Reply | None:
    """Answer a POST or PUT of a Service."""
    if request.step["status"] not in {200, 201, 422}:
        return None
    pools = pools_of(request.step["answer"])
    is_dry_run = "dryRun" in request.target.query
    admit = partial(_allocate, pools, is_dry_run=is_dry_run)
    if request.step["method"] == "POST":
        return create(request, admit)
    return None if request.stored is None else update(request, admit)


def _allocate(pools: Pools, service: Object, old: Object | None, *, is_dry_run: bool) -> None:
    if old is None:
        allocate_create(service, pools, is_dry_run=is_dry_run)
    else:
        allocate_update(service, old, pools, is_dry_run=is_dry_run)


SERVICE_OPERATIONS: Final[Operations] = {("", "services", ""): write_service}
