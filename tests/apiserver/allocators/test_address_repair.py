"""Repair of cluster IPs."""

from typing import Any

import pytest

from kvstack.apiserver.allocators.address_repair import (
    Repair,
    repair_address,
    repair_service,
)
from kvstack.apiserver.allocators.cluster_ips import address_range, ip_address_object
from tests.apiserver.kinds.hooks import NOW, SECONDS

RANGES = [address_range("10.0.0.0/24"), address_range("fd00::/112")]
EARLIER = "2026-01-02T03:00:00Z"


def service(name: str, *addresses: str, **spec: Any) -> dict[str, Any]:
    """Return a Service of the namespace `ns`."""
    return {
        "metadata": {"namespace": "ns", "name": name, "creationTimestamp": EARLIER},
        "spec": {"clusterIP": (*addresses, "")[0], "clusterIPs": list(addresses), **spec},
    }


def claim(address: str, name: str, **metadata: Any) -> dict[str, Any]:
    """Return the IPAddress of a Service."""
    made = ip_address_object(address, "ns", name)
    made["metadata"] |= {"creationTimestamp": NOW, **metadata}
    return made


def of_service(
    given: dict[str, Any], claims: list[dict[str, Any]], *others: dict[str, Any]
) -> Repair:
    """Return the repair of a Service in a small world."""
    by_address = {each["metadata"]["name"]: each for each in claims}
    by_name = {each["metadata"]["name"]: each for each in (given, *others)}
    return repair_service(given, RANGES, by_address.get, lambda _, name: by_name.get(name))


def of_claim(given: dict[str, Any], after: float, *services: dict[str, Any]) -> Repair:
    """Return the repair of an IPAddress some seconds after it was made."""
    by_name = {each["metadata"]["name"]: each for each in services}
    return repair_address(given, lambda _, name: by_name.get(name), SECONDS + after)


def findings_of(repair: Repair) -> list[str]:
    """Return reason and message of what was found."""
    return [f"{each.reason}: {each.message}" for each in repair.findings]


@pytest.mark.parametrize(
    "given",
    [service("a"), service("a", "None"), service("a", "10.0.0.5", "fd00::5")],
)
def test_service_that_is_right(given: dict[str, Any]) -> None:
    """Nothing is done."""
    claims = [claim("10.0.0.5", "a"), claim("fd00::5", "a")]
    assert of_service(given, claims) == Repair()


def test_missing_claim_is_made() -> None:
    """It is told, too."""
    repair = of_service(service("a", "10.0.0.5"), [])
    assert findings_of(repair) == [
        "ClusterIPNotAllocated: Cluster IP [IPv4]: 10.0.0.5 is not allocated; repairing"
    ]
    assert repair.created == [ip_address_object("10.0.0.5", "ns", "a")]
    assert repair.deleted == []


def test_bad_addresses_are_only_reported() -> None:
    """The Service must be made anew."""
    repair = of_service(service("a", "x", "10.1.0.1", "fd00::"), [])
    assert findings_of(repair) == [
        "ClusterIPNotValid: Cluster IP <nil> is not a valid IP; please recreate Service",
        "ClusterIPOutOfRange: Cluster IP [IPv4]: 10.1.0.1 is not within any configured Service"
        " CIDR; please recreate service",
        "ClusterIPOutOfRange: Cluster IP [IPv6]: fd00:: is not within any configured Service"
        " CIDR; please recreate service",
    ]
    assert (repair.created, repair.deleted) == ([], [])


@pytest.mark.parametrize(
    "parent",
    [
        {"resource": "services", "namespace": "ns", "name": "gone"},
        {"group": "example.com", "resource": "services", "namespace": "ns", "name": "a"},
        {"resource": "gateways", "namespace": "ns", "name": "a"},
    ],
)
def test_claim_of_something_else_is_made_anew(parent: dict[str, str]) -> None:
    """A cluster IP belongs to its Service."""
    wrong = claim("10.0.0.5", "a")
    wrong["spec"]["parentRef"] = parent
    repair = of_service(service("a", "10.0.0.5"), [wrong])
    assert findings_of(repair) == [
        "ClusterIPNotAllocated: the ClusterIP [IPv4]: 10.0.0.5 for Service ns/a has a wrong"
        " reference; repairing"
    ]
    assert repair.deleted == ["10.0.0.5"]
    assert repair.created == [ip_address_object("10.0.0.5", "ns", "a")]


def test_two_services_with_one_address() -> None:
    """The one that has it keeps it."""
    one, other = service("a", "10.0.0.5"), service("b", "10.0.0.5")
    repair = of_service(other, [claim("10.0.0.5", "a")], one)
    assert findings_of(repair) == [
        "ClusterIPAlreadyAllocated: Cluster IP [IPv4]:10.0.0.5 was assigned to multiple services;"
        " please recreate service"
    ]
    assert (repair.created, repair.deleted) == ([], [])


def test_labels_are_put_right() -> None:
    """Without a word."""
    wrong = claim("fd00::5", "a", labels={"ipaddress.kubernetes.io/ip-family": "IPv4"})
    repair = of_service(service("a", "fd00::5"), [wrong])
    assert findings_of(repair) == []
    assert repair.deleted == ["fd00::5"]
    assert repair.created == [ip_address_object("fd00::5", "ns", "a")]


def test_claim_that_is_right() -> None:
    """Nothing is done, however old it is."""
    assert of_claim(claim("10.0.0.5", "a"), 1000, service("a", "10.0.0.5")) == Repair()


def test_claims_of_others_are_not_looked_at() -> None:
    """Who made them looks after them."""
    assert of_claim(claim("10.0.0.5", "gone", labels={}), 1000) == Repair()


def test_changed_claim_is_deleted() -> None:
    """One the allocator made refers to a Service."""
    wrong = claim("10.0.0.5", "a")
    wrong["spec"]["parentRef"] = {"group": "g", "resource": "r", "name": "n"}
    repair = of_claim(wrong, 0)
    assert findings_of(repair) == [
        "IPAddressNotAllocated: IPAddress 10.0.0.5 appears to have been modified, not referencing"
        " a Service &ParentReference{Group:g,Resource:r,Namespace:,Name:n,}: cleaning up"
    ]
    assert repair.deleted == ["10.0.0.5"]


def test_claim_without_a_service_waits_a_minute() -> None:
    """Its Service may be on its way."""
    assert of_claim(claim("10.0.0.5", "a"), 20) == Repair(retry_seconds=40)
    repair = of_claim(claim("10.0.0.5", "a"), 61)
    assert findings_of(repair) == [
        "IPAddressNotAllocated: IPAddress: 10.0.0.5 for Service ns/a appears to have leaked:"
        " cleaning up"
    ]
    assert repair.deleted == ["10.0.0.5"]


def test_claim_of_a_service_with_another_address() -> None:
    """It goes, but not while a refused write may just be undone."""
    other = service("a", "10.0.0.6")
    assert of_claim(claim("10.0.0.5", "a"), 2, other) == Repair(retry_seconds=5)
    repair = of_claim(claim("10.0.0.5", "a"), 6, other)
    assert findings_of(repair) == [
        "IPAddressWrongReference: IPAddress: 10.0.0.5 for Service ns/a has a wrong reference;"
        " cleaning up"
    ]
    assert repair.deleted == ["10.0.0.5"]
    older = claim("10.0.0.5", "a", creationTimestamp="2026-01-02T02:59:59Z")
    assert of_claim(older, -245, other).deleted == ["10.0.0.5"]


def test_claim_of_an_external_name_waits_a_minute() -> None:
    """The Service may be about to get its address."""
    external = service("a", type="ExternalName")
    assert of_claim(claim("10.0.0.5", "a"), 20, external) == Repair(retry_seconds=40)
    assert of_claim(claim("10.0.0.5", "a"), 60, external).deleted == ["10.0.0.5"]
