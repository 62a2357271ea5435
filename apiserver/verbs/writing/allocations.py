"""Allocations of a Service: cluster IPs and node ports.

    claims = await for_new(call, service)          the service gets its addresses and ports
    writes.create(…, also=claims)                  stored in one transaction with what it claims

Each address is an IPAddress object, all node ports are one bitmap. If another client claims the
same at the same time the transaction fails, and the write starts again with what is free then.
Other kinds claim nothing.
"""

from collections.abc import Callable
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects import metadata, status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.load import built_in_types
from kvstack.apimachinery.schema.protobuf.codec import from_protobuf
from kvstack.apimachinery.schema.protobuf.envelope import MAGIC, unwrap
from kvstack.apiserver.allocators.cluster_ips import (
    AddressRange,
    ip_address_object,
    service_ranges,
)
from kvstack.apiserver.allocators.node_ports import decode_bitmap, encode_bitmap
from kvstack.apiserver.apply import update as managers
from kvstack.apiserver.kinds.network.services.allocation import (
    Allocation,
    Pools,
    allocate_create,
    allocate_update,
    release_all,
)
from kvstack.apiserver.registry import errors
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.registry.watch_cache import BehindError
from kvstack.apiserver.registry.writes import Also
from kvstack.apiserver.verbs.call import Call
from kvstack.component.net.port_range import PortRange
from kvstore.client.errors import StoreError

SERVICES: Final = GroupResource("", "services")
ATTEMPTS_MAX: Final = 10
"""Limit of attempts when other clients claim the same."""

_ADDRESSES: Final = GroupResource("networking.k8s.io", "ipaddresses")
_RANGES: Final = GroupResource("networking.k8s.io", "servicecidrs")
_PORTS_KEY: Final = "ranges/servicenodeports"
_RANGE_ALLOCATION: Final = "io.k8s.api.core.v1.RangeAllocation"
_MANAGER: Final = "kube-apiserver"
_WITH_PORTS: Final = frozenset(("NodePort", "LoadBalancer"))


async def for_new(call: Call, obj: Object, *, is_dry_run: bool) -> list[Also]:
    """Allocate for a new Service; return the claims. Raises ApiError."""
    if not concerns(call):
        return []
    return await _allocate(
        call, obj, None, lambda pools: allocate_create(obj, pools, is_dry_run=is_dry_run)
    )


async def for_changed(call: Call, new: Object, old: Object, *, is_dry_run: bool) -> list[Also]:
    """Allocate for a changed Service; return claims and releases."""
    if not concerns(call):
        return []
    return await _allocate(
        call, new, old, lambda pools: allocate_update(new, old, pools, is_dry_run=is_dry_run)
    )


async def for_gone(call: Call, obj: Object) -> list[Also]:
    """Return what a deleted Service releases."""
    if call.endpoint.resource != SERVICES:
        return []
    return await _allocate(call, obj, None, lambda pools: release_all(obj, pools))


def concerns(call: Call) -> bool:
    """Return whether writes of this endpoint may allocate."""
    return call.endpoint.resource == SERVICES and not call.endpoint.subresource


async def begin_again(call: Call) -> None:
    """Wait until the claims of other clients are in the cache."""
    copy = call.env.registry.watch_cache
    try:
        await copy.latest(call.env.settings.catch_up_s)
    except BehindError:
        raise status.timeout(errors.TIMED_OUT) from None
    except StoreError as error:
        raise errors.api_error(error, call.endpoint.resource, "update") from error


async def _allocate(
    call: Call, obj: Object, old: Object | None, allocate: Callable[[Pools], Allocation]
) -> list[Also]:
    settings = call.env.settings
    needs_ports = _has_ports(obj) or (old is not None and _has_ports(old))
    revision, taken_ports = await _taken_ports(call, settings.node_ports) if needs_ports else (0, 0)
    addresses = call.env.registry.collection(_ADDRESSES)
    pools = Pools(
        families=list(dict.fromkeys(each.family for each in settings.service_ranges)) or ["IPv4"],
        ranges=_ranges(call),
        taken_addresses=_ClaimedAddresses(addresses),
        port_range=settings.node_ports,
        taken_ports=taken_ports,
        random_below=call.env.random.randrange,
    )
    allocation = allocate(pools)
    found = _address_changes(call, obj, addresses, allocation)
    if allocation.ports.claimed or allocation.ports.released:
        found.append(_port_change(call, settings.node_ports, revision, allocation.ports.result()))
    return found


def _has_ports(obj: Object) -> bool:
    spec = obj.get("spec") or {}
    return spec.get("type") in _WITH_PORTS or any(
        each.get("nodePort") for each in spec.get("ports") or ()
    )


def _ranges(call: Call) -> list[AddressRange]:
    """Return the address ranges: those of the flags until there are ServiceCIDRs."""
    found = service_ranges(call.env.registry.view.list(_RANGES))
    return found or list(call.env.settings.service_ranges)


class _ClaimedAddresses:
    """The allocated addresses, as far as this server knows."""

    def __init__(self, addresses: Collection) -> None:
        self._addresses = addresses

    def __contains__(self, address: object) -> bool:
        return isinstance(address, str) and self._addresses.guess(address) is not None


def _address_changes(
    call: Call, obj: Object, addresses: Collection, allocation: Allocation
) -> list[Also]:
    prefixes, meta = call.env.registry.watch_cache.prefixes, obj["metadata"]
    changes: list[Also] = []
    for address in allocation.claimed_addresses:
        made = ip_address_object(address, meta.get("namespace", ""), meta.get("name", ""))
        metadata.fill_system_fields(made["metadata"], call.env.identifiers.new_uid(), call.now)
        endpoint = call.env.endpoints.find(_ADDRESSES.group, "v1", _ADDRESSES.resource, "")
        if endpoint is not None:
            managers.on_create(endpoint.fields, made, _MANAGER, call.now)
        value = addresses.value(address, addresses.codec.to_body(made))
        changes.append(Also(prefixes.key(addresses.prefix, address), 0, value))
    for address in allocation.released_addresses:
        record = addresses.guess(address)
        if record is not None:
            key = prefixes.key(addresses.prefix, address)
            changes.append(Also(key, record.revision, None))
    return changes


async def _taken_ports(call: Call, port_range: PortRange) -> tuple[int, int]:
    """Return the revision of the stored bitmap of node ports, and the bitmap."""
    registry = call.env.registry
    try:
        kv = (await registry.store.get(ports_key(call.env.registry))).kv
    except StoreError as error:
        raise errors.api_error(error, call.endpoint.resource, "get") from error
    if kv is None:
        return 0, 0
    stored = range_allocation(kv.value)
    if stored.get("range") != port_range.text:
        raise status.internal_error("the provided port range does not match the current port range")
    return kv.mod_revision, decode_bitmap(stored.get("data") or "")


def range_allocation(value: bytes) -> dict[str, Any]:
    """Return the RangeAllocation of a stored value, in either encoding."""
    if value.startswith(MAGIC):
        return from_protobuf(unwrap(value).content, built_in_types()[_RANGE_ALLOCATION])
    found: dict[str, Any] = orjson.loads(value)
    return found


def _port_change(call: Call, port_range: PortRange, revision: int, bitmap: int) -> Also:
    stored = {
        "kind": "RangeAllocation",
        "apiVersion": "v1",
        "metadata": {},
        "range": port_range.text,
        "data": encode_bitmap(bitmap),
    }
    return Also(ports_key(call.env.registry), revision, orjson.dumps(stored))


def ports_key(registry: Registry) -> bytes:
    """Return the store's key of the bitmap of node ports."""
    return f"{registry.watch_cache.prefixes.root}{_PORTS_KEY}".encode()
