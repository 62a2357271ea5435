"""What the proxy reads in EndpointSlices: the endpoints of a Service, by the name of its port.

    endpoints_of(slice, "node-1", 4)     {("http", "TCP"): (Endpoint(10.244.0.3:8080), …)}
    merged([one, other])                 of several slices of a Service, in order of their text

The port of a slice is the one that pods listen on; a Service's port is found by its name. A slice
with more endpoints times ports than ENDPOINTS_MAX is a ValueError.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kvstack.agents.proxy.services import FAMILIES, Family, address_of
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import HEADLESS_LABEL, SERVICE_NAME_LABEL

ENDPOINTS_MAX: Final = 100_000
"""Of one slice, once for each of its ports; the API would allow 20 million."""
_PORT_MAX: Final = 65_535


class Endpoint(NamedTuple):
    """One address and port, and the state of the pod behind it."""

    ip: str
    port: int
    is_ready: bool = True
    is_serving: bool = True
    is_terminating: bool = False
    is_local: bool = False
    """Whether it is on this node."""
    zones: tuple[str, ...] = ()
    """That a hint gives it to."""
    nodes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """As rules have it: 10.244.0.3:8080, [fd00::3]:8080."""
        return f"[{self.ip}]:{self.port}" if ":" in self.ip else f"{self.ip}:{self.port}"

    @property
    def drains(self) -> bool:
        """Whether it ends, and still answers."""
        return self.is_serving and self.is_terminating


PortKey: TypeAlias = tuple[str, str]
"""Name of a port (empty: none) and protocol."""
Endpoints: TypeAlias = Mapping[PortKey, tuple[Endpoint, ...]]


def service_of(slice_: Object, family: Family) -> str:
    """Return the Service of a slice as `namespace/name`; empty: it is none of a family."""
    meta = slice_["metadata"]
    labels = meta.get("labels") or {}
    name = labels.get(SERVICE_NAME_LABEL, "")
    if not name or HEADLESS_LABEL in labels or slice_.get("addressType") != FAMILIES[family]:
        return ""
    return f"{meta['namespace']}/{name}"


def endpoints_of(slice_: Object, node: str) -> Endpoints:
    """Return the endpoints of a slice; node: the name of this one. Raises ValueError."""
    found: dict[PortKey, tuple[Endpoint, ...]] = {}
    ports, endpoints = len(slice_.get("ports") or ()), len(slice_.get("endpoints") or ())
    if ports * endpoints > ENDPOINTS_MAX:
        raise ValueError(f"{endpoints} endpoints with {ports} ports: above {ENDPOINTS_MAX} in all")
    for port in slice_.get("ports") or ():
        name, number = port.get("name"), port.get("port")
        if name is None or not number:
            continue
        if not isinstance(number, int) or not 0 < number <= _PORT_MAX:
            raise ValueError(f"port {number!r}: a number from 1 to {_PORT_MAX}")
        key = (name, port.get("protocol") or "TCP")
        each = (_endpoint(one, number, node) for one in slice_.get("endpoints") or ())
        found[key] = found.get(key, ()) + tuple(one for one in each if one is not None)
    return found


def merged(slices: Iterable[Endpoints], key: PortKey) -> tuple[Endpoint, ...]:
    """Return the endpoints of one port in several slices, sorted by their text.

    Of two with one address (a pod that ends, and its successor) the one that does not end counts.
    """
    found: dict[str, Endpoint] = {}
    for each in slices:
        for one in each.get(key, ()):
            text = one.text
            known = found.get(text)
            if known is None or (known.is_terminating and not one.is_terminating):
                found[text] = one
    return tuple(found[text] for text in sorted(found))


def _endpoint(given: Object, port: int, node: str) -> Endpoint | None:
    addresses = given.get("addresses") or ()
    if not addresses:
        return None
    conditions = given.get("conditions") or {}
    hints = given.get("hints") or {}
    return Endpoint(
        str(address_of(addresses[0])),
        port,
        conditions.get("ready") is not False,
        _or_ready(conditions),
        conditions.get("terminating") is True,
        bool(node) and given.get("nodeName") == node,
        tuple(each.get("name", "") for each in hints.get("forZones") or ()),
        tuple(each.get("name", "") for each in hints.get("forNodes") or ()),
    )


def _or_ready(conditions: Object) -> bool:
    return conditions.get("serving") is not False
