"""Repair of cluster IPs: each has one IPAddress that refers to its Service, and no others remain.

    Service 10.0.0.5  ⇄  IPAddress 10.0.0.5 of it          nothing to do
    Service 10.0.0.5     no IPAddress                      is made
    Service 10.0.0.5     IPAddress of something else       is made anew
    Service 10.0.0.5     IPAddress of a Service with the   only reported: one of them must go
                         same cluster IP
                         IPAddress of no Service           is deleted after a while

An IPAddress without its Service is kept for a while because the Service may be about to be written,
or because a refused one is just being undone. Only IPAddresses of the allocator are checked for a
missing Service.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from kvstack.apimachinery.objects.addresses import format_ip, parse_ip
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import parse_time
from kvstack.apimachinery.well_known import IP_ADDRESS_MANAGED_BY_LABEL
from kvstack.apiserver.allocators.cluster_ips import (
    FAMILY_LABEL,
    MANAGER,
    AddressRange,
    contains,
    family_of,
    ip_address_object,
)
from kvstack.apiserver.allocators.findings import Finding

GRACE_SECONDS: Final = 60
"""How long the Service of a new IPAddress may take."""
UNDO_SECONDS: Final = 5
"""How long an IPAddress that is newer than its Service may exist without belonging to it."""

FindService = Callable[[str, str], Object | None]
"""(namespace, name): returns the Service, None if it does not exist."""


@dataclass(slots=True)
class Repair:
    """The required changes; deletions precede creations."""

    findings: list[Finding] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    """Names of IPAddresses to delete."""
    created: list[Object] = field(default_factory=list)
    """IPAddresses to create."""
    retry_seconds: float = 0
    """When to check again, if it is too early to decide; 0: never."""


def repair_service(
    service: Object,
    ranges: Iterable[AddressRange],
    find_address: Callable[[str], Object | None],
    find_service: FindService,
) -> Repair:
    """Return the repair of a Service's IPAddresses."""
    repair = Repair()
    spec = service.get("spec") or {}
    if spec.get("clusterIP", "") in {"", "None"}:
        return repair
    ranges = list(ranges)
    for text in _cluster_ips(service):
        parsed = parse_ip(text)
        if parsed is None:
            message = "Cluster IP <nil> is not a valid IP; please recreate Service"
            finding = Finding(service, "ClusterIPNotValid", "ClusterIPValidation", message)
            repair.findings.append(finding)
            continue
        address = format_ip(parsed)
        if any(contains(each, address) for each in ranges):
            _repair_cluster_ip(repair, service, address, find_address(address), find_service)
        else:
            message = "is not within any configured Service CIDR; please recreate service"
            _tell(repair, service, "ClusterIPOutOfRange", f"{_ip_text(address)} {message}")
    return repair


def _repair_cluster_ip(
    repair: Repair,
    service: Object,
    address: str,
    claim: Object | None,
    find_service: FindService,
) -> None:
    metadata = service["metadata"]
    ip_claim = ip_address_object(address, metadata["namespace"], metadata["name"])
    if claim is None:
        message = f"{_ip_text(address)} is not allocated; repairing"
        _tell(repair, service, "ClusterIPNotAllocated", message)
        repair.created.append(ip_claim)
        return
    other = _service_of(claim, service, find_service)
    if other is None:
        message = (
            f"the ClusterIP [{family_of(address)}]: {address} for Service"
            f" {metadata['namespace']}/{metadata['name']} has a wrong reference; repairing"
        )
        _tell(repair, service, "ClusterIPNotAllocated", message)
    elif other is not service and address in _cluster_ips(other):
        message = (
            f"{_ip_text(address, '')} was assigned to multiple services; please recreate service"
        )
        _tell(repair, service, "ClusterIPAlreadyAllocated", message)
    labels = claim["metadata"].get("labels") or {}
    wanted = ip_claim["metadata"]["labels"]
    has_labels = all(
        labels.get(name) == wanted[name] for name in (FAMILY_LABEL, IP_ADDRESS_MANAGED_BY_LABEL)
    )
    if other is None or not has_labels:
        repair.deleted.append(address)
        repair.created.append(ip_claim)


def repair_address(claim: Object, find_service: FindService, now: float) -> Repair:
    """Return the repair of an IPAddress; now: seconds since 1970."""
    repair = Repair()
    metadata = claim["metadata"]
    name = metadata["name"]
    if (metadata.get("labels") or {}).get(IP_ADDRESS_MANAGED_BY_LABEL) != MANAGER:
        return repair
    parent = _parent(claim)
    if not _is_of_service(parent):
        shown = "".join(f"{shown}:{parent.get(each, '')}," for shown, each in _PARENT_FIELDS)
        message = "appears to have been modified, not referencing a Service"
        text = f"IPAddress {name} {message} &ParentReference{{{shown}}}: cleaning up"
        _clean_up(repair, claim, "IPAddressNotAllocated", text)
        return repair
    service_key = f"{parent.get('namespace', '')}/{parent.get('name', '')}"
    service = find_service(parent.get("namespace", ""), parent.get("name", ""))
    if service is not None and name in _cluster_ips(service):
        return repair
    created = _created(claim)
    lifetime = now - created
    # A Service that is changed from ExternalName gets its address before it is written.
    if (service is None and lifetime <= GRACE_SECONDS) or (
        service is not None and _is_external(service) and lifetime < GRACE_SECONDS
    ):
        repair.retry_seconds = max(GRACE_SECONDS - lifetime, 1)
    elif service is None:
        message = f"IPAddress: {name} for Service {service_key} appears to have leaked: cleaning up"
        _clean_up(repair, claim, "IPAddressNotAllocated", message)
    elif created > _created(service) and lifetime < UNDO_SECONDS:
        repair.retry_seconds = UNDO_SECONDS
    else:
        message = f"IPAddress: {name} for Service {service_key} has a wrong reference; cleaning up"
        _clean_up(repair, claim, "IPAddressWrongReference", message)
    return repair


_PARENT_FIELDS: Final = (
    ("Group", "group"),
    ("Resource", "resource"),
    ("Namespace", "namespace"),
    ("Name", "name"),
)


def _parent(claim: Object) -> dict[str, str]:
    return (claim.get("spec") or {}).get("parentRef") or {}


def _is_of_service(parent: dict[str, str]) -> bool:
    return not parent.get("group") and parent.get("resource") == "services"


def _service_of(claim: Object, service: Object, find_service: FindService) -> Object | None:
    """Return the Service of the IPAddress, None if it does not exist; likely the given one."""
    parent, metadata = _parent(claim), service["metadata"]
    if not _is_of_service(parent):
        return None
    service_key = parent.get("namespace", ""), parent.get("name", "")
    return (
        service
        if service_key == (metadata["namespace"], metadata["name"])
        else find_service(*service_key)
    )


def _cluster_ips(service: Object) -> list[str]:
    """Return the cluster IPs of a Service."""
    return (service.get("spec") or {}).get("clusterIPs") or []


def _is_external(service: Object) -> bool:
    return bool((service.get("spec") or {}).get("type") == "ExternalName")


def _created(obj: Object) -> int:
    return parse_time(obj["metadata"]["creationTimestamp"]).seconds


def _ip_text(address: str, space: str = " ") -> str:
    return f"Cluster IP [{family_of(address)}]:{space}{address}"


def _tell(repair: Repair, service: Object, reason: str, message: str) -> None:
    repair.findings.append(Finding(service, reason, "ClusterIPAllocation", message))


def _clean_up(repair: Repair, claim: Object, reason: str, message: str) -> None:
    repair.findings.append(Finding(claim, reason, "IPAddressAllocation", message))
    repair.deleted.append(claim["metadata"]["name"])
