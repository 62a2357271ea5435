"""IPAddresses, ServiceCIDRs, and the blocks of NetworkPolicies."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.network.ip_addresses import IP_ADDRESSES
from kvstack.apiserver.kinds.network.network_policies import NETWORK_POLICIES
from kvstack.apiserver.kinds.network.service_cidrs import SERVICE_CIDRS
from tests.apiserver.kinds.hooks import (
    cells_of,
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
)

STATUS = SERVICE_CIDRS.subresources["status"]


def ip_address(**parent: str) -> dict[str, Any]:
    """Return an IPAddress of a Service, if nothing else is said."""
    parent = {"resource": "services", "namespace": "ns", "name": "s"} | parent
    return {"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": parent}}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("10.0.0.1", []),
        ("fd00::1", []),
        ("010.0.0.1", ["must not have leading 0s"]),
        ("FD00::1", ['must be in canonical form ("fd00::1")']),
        ("x", ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]),
    ],
)
def test_names_of_ip_addresses(name: str, expected: list[str]) -> None:
    """They are the addresses, canonical."""
    assert IP_ADDRESSES.check_name is not None
    assert IP_ADDRESSES.check_name(name, False) == expected


def test_parents_of_ip_addresses() -> None:
    """They are needed and stay."""
    assert refusals(IP_ADDRESSES, ip_address()) == []
    assert refusals(IP_ADDRESSES, {"metadata": {"name": "10.0.0.1"}, "spec": {}}) == [
        "spec.parentRef: Required value"
    ]
    assert refusals(IP_ADDRESSES, ip_address(resource="", name="")) == [
        "spec.parentRef.resource: Required value",
        "spec.parentRef.name: Required value",
    ]
    found = refusals(IP_ADDRESSES, ip_address(group="A", resource="a/b", namespace=".."))
    assert [each.partition(": ")[0] for each in found] == [
        f"spec.parentRef.{each}" for each in ("group", "resource", "namespace")
    ]
    assert change_refusals(IP_ADDRESSES, ip_address(namespace="x"), ip_address()) == [
        "spec.parentRef: Invalid value: null: field is immutable"
    ]


@pytest.mark.parametrize(
    ("parent", "expected"),
    [
        ({}, "services/ns/s"),
        ({"group": "Example.com", "namespace": ""}, "services.example.com/s"),
    ],
)
def test_rows_of_ip_addresses(parent: dict[str, str], expected: str) -> None:
    """One cell more than there are columns, as in Kubernetes."""
    assert cells_of(IP_ADDRESSES, ip_address(**parent)) == ["10.0.0.1", expected, "3m"]
    assert cells_of(IP_ADDRESSES, {"metadata": {"name": "a"}})[1] == "<none>"


def service_cidr(*cidrs: str) -> dict[str, Any]:
    """Return a ServiceCIDR."""
    return {"metadata": {"name": "c"}, "spec": {"cidrs": list(cidrs)}, "status": {}}


DUAL = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"


@pytest.mark.parametrize(
    ("cidrs", "expected"),
    [
        (["10.0.0.0/24"], []),
        (["10.0.0.0/24", "fd00::/64"], []),
        ([], ["spec.cidrs: Required value: at least one CIDR required"]),
        (
            ["10.0.0.0/24", "fd00::/64", "fd01::/64"],
            [
                'spec.cidrs: Invalid value: {"CIDRs":["10.0.0.0/24","fd00::/64","fd01::/64"]}:'
                " may only hold up to 2 values"
            ],
        ),
        (
            ["fd00::/64", "fd01::/64"],
            [f'spec.cidrs: Invalid value: ["fd00::/64","fd01::/64"]: {DUAL}'],
        ),
        (
            ["10.0.0.1/24"],
            [
                'spec.cidrs[0]: Invalid value: "10.0.0.1/24":'
                " must not have bits set beyond the prefix length"
            ],
        ),
    ],
)
def test_service_cidrs(cidrs: list[str], expected: list[str]) -> None:
    """One of each family."""
    assert refusals(SERVICE_CIDRS, service_cidr(*cidrs)) == expected


def test_change_of_service_cidrs() -> None:
    """A second family may come, nothing else."""
    one, other = service_cidr("10.0.0.0/24"), service_cidr("10.1.0.0/24")
    both = service_cidr("10.0.0.0/24", "fd00::/64")
    assert change_refusals(SERVICE_CIDRS, both, one) == []
    assert change_refusals(SERVICE_CIDRS, other, one) == [
        'spec.cidrs[0]: Invalid value: "10.1.0.0/24": field is immutable'
    ]
    assert change_refusals(SERVICE_CIDRS, service_cidr("10.0.0.0/24", "10.1.0.0/24"), one) == [
        f'spec.cidrs: Invalid value: ["10.0.0.0/24","10.1.0.0/24"]: {DUAL}'
    ]
    assert change_refusals(SERVICE_CIDRS, one, both) == [
        'spec.cidrs: Invalid value: ["10.0.0.0/24"]: field is immutable'
    ]
    assert change_refusals(SERVICE_CIDRS, service_cidr(), both) == [
        "spec.cidrs: Invalid value: null: field is immutable"
    ]


def test_status_of_service_cidrs() -> None:
    """It has its endpoint, which changes no metadata."""
    old = service_cidr("10.0.0.0/24")
    new = patched(
        old,
        {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"cidrs": ["10.1.0.0/24"]},
            "status": {"conditions": [{"type": "Ready"}]},
        },
    )
    assert prepared_object(SERVICE_CIDRS, new)["status"] == {}
    assert changed(SERVICE_CIDRS, new, old)["status"] == {}
    found = changed(STATUS, new, old)
    assert found == old | {"status": new["status"]}


def test_rows_of_service_cidrs() -> None:
    """All ranges in one cell."""
    given = service_cidr("10.0.0.0/24", "fd00::/64")
    assert cells_of(SERVICE_CIDRS, given) == ["c", "10.0.0.0/24,fd00::/64", "3m"]


def policy(block: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """Return a NetworkPolicy with a block of addresses."""
    rules = [{"from": [{"ipBlock": block}]}]
    return {"metadata": {"name": "p"}, "spec": {"podSelector": {}, "ingress": rules, **spec}}


def test_policy_types() -> None:
    """Egress is one by default where there are such rules."""
    assert prepared_object(NETWORK_POLICIES, policy({}))["spec"]["policyTypes"] == ["Ingress"]
    both = prepared_object(NETWORK_POLICIES, policy({}, egress=[{}]))["spec"]["policyTypes"]
    assert both == ["Ingress", "Egress"]


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}, []),
        ({}, [".cidr: Required value"]),
        (
            {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/8"]},
            ['.except[0]: Invalid value: "10.0.0.0/8": must be a strict subset of `cidr`'],
        ),
    ],
)
def test_blocks(block: dict[str, Any], expected: list[str]) -> None:
    """What is excepted lies within."""
    paths = [f"spec.ingress[0].from[0].ipBlock{each}" for each in expected]
    assert refusals(NETWORK_POLICIES, policy(block)) == paths
