"""Subsets of Endpoints: ports with the same addresses go together.

    repacked([{addresses: [a], ports: [p]}, {addresses: [a], ports: [q]}])
        → [{addresses: [a], ports: [p, q]}]

An address that is ready in one subset and not in another is not ready.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from kvstack.agents.controllers.network.port_order import in_order
from kvstack.apimachinery.objects.json_object import Object

ADDRESSES_MAX: Final = 1000

_KINDS: Final = (("addresses", True), ("notReadyAddresses", False))
_PortKey: TypeAlias = tuple[object, ...]
_AddressKey: TypeAlias = tuple[str, str]


def repacked(subsets: Iterable[Object]) -> list[Object]:
    """Return subsets in the one form that says the same."""
    addresses: dict[_AddressKey, Object] = {}
    ports: dict[_PortKey, Object | None] = {}
    ready_by_port: dict[_PortKey, dict[_AddressKey, bool]] = {}
    for subset in subsets:
        for port in subset.get("ports") or (None,):
            port_key = _port_key(port)
            ports[port_key] = port
            ready_of = ready_by_port.setdefault(port_key, {})
            for name, is_ready in _KINDS:
                for address in subset.get(name) or ():
                    key = _address_key(address)
                    addresses.setdefault(key, address)
                    ready_of[key] = is_ready and ready_of.get(key, True)
    grouped: dict[tuple[tuple[_AddressKey, bool], ...], list[Object]] = {}
    for port_key, ready_of in ready_by_port.items():
        group = grouped.setdefault(tuple(sorted(ready_of.items())), [])
        port = ports[port_key]
        if port is not None:
            group.append(port)
    packed = [_subset(states, found, addresses) for states, found in grouped.items()]
    return sorted(packed, key=_subset_key)


def _subset(
    states: Iterable[tuple[_AddressKey, bool]],
    ports: Sequence[Object],
    addresses: dict[_AddressKey, Object],
) -> Object:
    made: Object = {}
    for name, wanted in _KINDS:
        if found := [addresses[key] for key, is_ready in states if is_ready is wanted]:
            made[name] = found
    if ports:
        made["ports"] = in_order(ports)
    return made


def _port_key(port: Object | None) -> _PortKey:
    if port is None:
        return ()
    return tuple(port.get(name) for name in ("name", "port", "protocol", "appProtocol"))


def _address_key(address: Object) -> _AddressKey:
    return address["ip"], (address.get("targetRef") or {}).get("uid", "")


def _subset_key(subset: Object) -> tuple[object, ...]:
    return tuple(
        (port.get("name", ""), port["port"], port.get("protocol", ""))
        for port in subset.get("ports") or ()
    )


def are_equal(left: Iterable[Object], right: Iterable[Object]) -> bool:
    """Whether subsets are the same, except for versions of pods."""
    return [_bare(each) for each in left] == [_bare(each) for each in right]


def _bare(subset: Object) -> Object:
    bare: Object = dict(subset)
    for name, _ in _KINDS:
        if subset.get(name):
            bare[name] = [_bare_address(address) for address in subset[name]]
    return bare


def _bare_address(address: Object) -> Object:
    target = address.get("targetRef")
    if not target or "resourceVersion" not in target:
        return address
    rest = {name: value for name, value in target.items() if name != "resourceVersion"}
    return {**address, "targetRef": rest}


def count_addresses(subsets: Iterable[Object]) -> int:
    """Return the number of addresses, ready or not."""
    return sum(len(subset.get(name) or ()) for subset in subsets for name, _ in _KINDS)


def truncated(subsets: Sequence[Object]) -> list[Object]:
    """Return subsets with as many addresses as fit, in proportion; those ready come first."""
    ready = sum(len(subset.get("addresses") or ()) for subset in subsets)
    if count_addresses(subsets) <= ADDRESSES_MAX:
        return list(subsets)
    is_ready_cut = ready > ADDRESSES_MAX
    name = "addresses" if is_ready_cut else "notReadyAddresses"
    room = ADDRESSES_MAX if is_ready_cut else ADDRESSES_MAX - ready
    total = sum(len(subset.get(name) or ()) for subset in subsets)
    left = room
    cut: list[Object] = []
    for subset in subsets:
        found = subset.get(name) or []
        kept = found[: min(math.ceil(len(found) / total * room), left)]
        left -= len(kept)
        rest = {key: value for key, value in subset.items() if key != name}
        if is_ready_cut:
            rest.pop("notReadyAddresses", None)
        cut.append({**rest, name: kept} if kept else rest)
    return cut
