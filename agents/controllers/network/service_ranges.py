"""ServiceCIDRs: ready once they are protected, and kept while addresses need them.

A range that is deleted goes when another one contains it, or when none of the addresses in use is
in it alone; and not before API servers have had time to see that it goes.
"""

import ipaddress
from collections.abc import Generator, Iterable, Sequence
from typing import Final, TypeAlias

from kvstack.agents.client.built_in import IP_ADDRESSES, SERVICE_CIDRS
from kvstack.agents.client.object_store import key_of
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.workloads.pod_rules import seconds_of
from kvstack.agents.reconcile.plan import (
    Again,
    BackOff,
    BaseController,
    Identity,
    Outcome,
    Patch,
    Plan,
    Record,
    Step,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.core import conditions
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.schema.resource import APPLY_PATCH, STRATEGIC_MERGE_PATCH
from kvstack.apimachinery.well_known import IP_ADDRESS_MANAGED_BY_LABEL

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_FINALIZER: Final = "networking.k8s.io/service-cidr-finalizer"
_NAME: Final = "service-cidr-controller"
_ALLOCATOR: Final = "ipallocator.k8s.io"
_GRACE_S: Final = 10.0
_READY: Final = ("True", "", "Kubernetes Service CIDR is ready")
_TERMINATING: Final = (
    "False",
    "Terminating",
    "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new"
    " ServiceCIDR",
)


class ServiceRanges(BaseController):
    """Looks after ServiceCIDRs."""

    back_off = BackOff(retries_max=15)

    def __init__(self) -> None:
        """Watch ranges and addresses."""
        self.identity: Identity = Identity(_NAME, "service-cidrs-controller", _NAME)
        self.watches: Sequence[Watch] = (
            Watch(SERVICE_CIDRS, _keys_of_range),
            Watch(IP_ADDRESSES, _keys_of_address),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one range."""
        service_cidr = view.get(SERVICE_CIDRS, key)
        if service_cidr is None:
            return None
        is_protected = _FINALIZER in (service_cidr["metadata"].get("finalizers") or ())
        if is_deleting(service_cidr):
            if _is_needed(service_cidr, view):
                yield from _set_ready(service_cidr, _TERMINATING, now_s)
                return None
            deleted_s = seconds_of(service_cidr["metadata"]["deletionTimestamp"]) or 0.0
            if now_s < deleted_s + _GRACE_S:
                return Again(deleted_s + _GRACE_S - now_s)
            if is_protected:
                yield from _patch(key, {"$deleteFromPrimitiveList/finalizers": [_FINALIZER]})
            return None
        if not is_protected:
            yield from _patch(key, {"finalizers": [_FINALIZER]})
        try:
            yield from _set_ready(service_cidr, _READY, now_s)
        except ApiError:
            text = "The ServiceCIDR Status can not be set to Ready=True"
            yield [Record(service_cidr, "Warning", "KubernetesServiceCIDRError", text)]
            raise
        return None


def _patch(name: str, metadata: Object) -> Generator[Step, list[Outcome], None]:
    body = {"metadata": metadata}
    [outcome] = yield [Patch(SERVICE_CIDRS, "", name, body, STRATEGIC_MERGE_PATCH)]
    if not outcome.is_not_found:
        outcome.result()


def _set_ready(
    address: Object, new_condition: tuple[str, str, str], now_s: float
) -> Generator[Step, list[Outcome], None]:
    """Set the condition Ready."""
    status, reason, message = new_condition
    known = conditions.find((address.get("status") or {}).get("conditions"), "Ready")
    if known is not None and new_condition == (
        known["status"],
        known.get("reason", ""),
        known.get("message", ""),
    ):
        return
    condition = {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": format_time(now_s),
    }
    name = address["metadata"]["name"]
    applied = {
        "apiVersion": SERVICE_CIDRS.api_version,
        "kind": SERVICE_CIDRS.kind,
        "metadata": {"name": name},
        "status": {"conditions": [condition]},
    }
    yield from do(Patch(SERVICE_CIDRS, "", name, applied, APPLY_PATCH, "status", _NAME, force=True))


def _networks(found: Object) -> list[Network]:
    return [ipaddress.ip_network(each, strict=False) for each in found["spec"].get("cidrs") or ()]


def _is_needed(ip_address: Object, view: View) -> bool:
    """Whether an address in use is in this range alone."""
    others = [
        network
        for each in view.list(SERVICE_CIDRS)
        if each["metadata"]["name"] != ip_address["metadata"]["name"] and not is_deleting(each)
        for network in _networks(each)
    ]
    own = [
        network
        for network in _networks(ip_address)
        if not any(_contains(other, network) for other in others)
    ]
    if not own:
        return False
    for each in view.list(IP_ADDRESSES):
        if (each["metadata"].get("labels") or {}).get(IP_ADDRESS_MANAGED_BY_LABEL) != _ALLOCATOR:
            continue
        address = ipaddress.ip_address(each["metadata"]["name"])
        if any(address in network for network in own) and not any(
            address in network for network in others
        ):
            return True
    return False


def _contains(outer: Network, inner: Network) -> bool:
    return (
        outer.version == inner.version
        and int(outer.network_address) <= int(inner.network_address)
        and int(inner.broadcast_address) <= int(outer.broadcast_address)
    )


# Which ranges a change concerns.


def _keys_of_range(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    """Give a range, and those that overlap with it: it may be what keeps them."""
    changed = new or old or {}
    networks = _networks(changed)
    for each in view.list(SERVICE_CIDRS):
        if key_of(each) == key_of(changed) or any(
            mine.version == other.version and mine.overlaps(other)
            for mine in networks
            for other in _networks(each)
        ):
            yield key_of(each)


def _keys_of_address(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if old is None:
        return
    address = ipaddress.ip_address(old["metadata"]["name"])
    for each in view.list(SERVICE_CIDRS):
        if any(address in network for network in _networks(each)):
            yield key_of(each)
