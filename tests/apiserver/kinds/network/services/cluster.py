"""A cluster with two families of addresses, and Services in it, for tests."""

from collections.abc import Container
from copy import deepcopy
from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.allocators.cluster_ips import address_range
from kvstack.apiserver.allocators.node_ports import bitmap
from kvstack.apiserver.kinds.network.services.allocation import (
    Allocation,
    Pools,
    allocate_create,
    allocate_update,
)
from kvstack.apiserver.kinds.network.services.preparation import default
from kvstack.component.net.port_range import PortRange
from tests.apiserver.kinds.hooks import patched

PORTS: Final = PortRange(30000, 30099)
HTTP: Final = {"name": "http", "port": 80, "protocol": "TCP", "targetPort": 80}
HTTPS: Final = {"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443}


def service(**spec: Any) -> Object:
    """Return a Service with defaults."""
    spec = deepcopy({"ports": [HTTP], **spec})
    made: Object = {"metadata": {"name": "s"}, "spec": spec, "status": {}}
    default(made)
    return made


def pools(
    *cidrs: str, taken: Container[str] = frozenset(), ports: list[int] | None = None
) -> Pools:
    """Return what a cluster with these ranges can give; the first one's family is the default."""
    ranges = [address_range(each) for each in cidrs or ("10.0.0.0/24", "fd00::/112")]
    return Pools(
        families=list(dict.fromkeys(each.family for each in ranges)),
        ranges=ranges,
        taken_addresses=taken,
        port_range=PORTS,
        taken_ports=bitmap(PORTS, ports or []),
        random_below=lambda n: 0,
    )


SINGLE: Final = pools("10.0.0.0/24")
DUAL: Final = pools("10.0.0.0/24", "fd00::/112")


def stored(given: Pools = DUAL, /, **spec: Any) -> Object:
    """Return a Service as it is stored once it was created."""
    made = service(**spec)
    allocate_create(made, given)
    return made


def update(old: Object, patch: Object, given: Pools = DUAL) -> tuple[Object, Allocation]:
    """Return a Service with a patch of its spec, and what that claims and releases."""
    new, kept = patched(old, {"spec": patch}), deepcopy(old)
    default(new)
    allocation = allocate_update(new, old, given)
    assert old == kept, "others read what is stored"
    return new, allocation
