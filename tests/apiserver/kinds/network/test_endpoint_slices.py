"""What EndpointSlices may be."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.network.endpoint_slices import ENDPOINT_SLICES
from tests.apiserver.kinds.hooks import (
    cells_of,
    change_refusals,
    changed,
    patched,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)


def endpoint_slice(*addresses: str, kind: str = "IPv4", **members: Any) -> dict[str, Any]:
    """Return an EndpointSlice with one endpoint."""
    endpoints = [{"addresses": list(addresses), **members}]
    return {"metadata": {"name": "e"}, "addressType": kind, "endpoints": endpoints}


def with_ports(*ports: dict[str, Any]) -> dict[str, Any]:
    """Return an EndpointSlice with ports."""
    return endpoint_slice("10.0.0.1") | {"ports": list(ports)}


@pytest.mark.parametrize(
    ("kind", "address", "expected"),
    [
        ("IPv4", "10.0.0.1", []),
        ("IPv6", "fd00::1", []),
        ("FQDN", "a.b", []),
        (
            "IPv4",
            "fd00::1",
            ['endpoints[0].addresses: Invalid value: "fd00::1": must be an IPv4 address'],
        ),
        (
            "IPv6",
            "10.0.0.1",
            ['endpoints[0].addresses: Invalid value: "10.0.0.1": must be an IPv6 address'],
        ),
        (
            "IPv4",
            "127.0.0.1",
            [
                'endpoints[0].addresses[0]: Invalid value: "127.0.0.1":'
                " may not be in the loopback range (127.0.0.0/8, ::1/128)"
            ],
        ),
        (
            "IPv6",
            "fe80::1",
            [
                'endpoints[0].addresses[0]: Invalid value: "fe80::1":'
                " may not be in the link-local range (169.254.0.0/16, fe80::/10)"
            ],
        ),
        (
            "IPv6",
            "FD00::1",
            [
                'endpoints[0].addresses[0]: Invalid value: "FD00::1":'
                ' must be in canonical form ("fd00::1")'
            ],
        ),
        (
            "FQDN",
            "a",
            [
                'endpoints[0].addresses[0]: Invalid value: "a":'
                " should be a domain with at least two segments separated by dots"
            ],
        ),
        (
            "X",
            "a",
            ['addressType: Unsupported value: "X": supported values: "FQDN", "IPv4", "IPv6"'],
        ),
        ("", "a", ["addressType: Required value"]),
    ],
)
def test_addresses(kind: str, address: str, expected: list[str]) -> None:
    """All are of the slice's type."""
    assert refusals(ENDPOINT_SLICES, endpoint_slice(address, kind=kind)) == expected


def test_numbers_of_things() -> None:
    """Each has a most."""
    many = endpoint_slice("10.0.0.1")
    many["endpoints"] *= 1001
    assert refusals(ENDPOINT_SLICES, many) == [
        "endpoints: Too many: 1001: must have at most 1000 items"
    ]
    assert refusals(ENDPOINT_SLICES, endpoint_slice(*["10.0.0.1"] * 101)) == [
        "endpoints[0].addresses: Too many: 101: must have at most 100 items"
    ]
    assert refusals(ENDPOINT_SLICES, endpoint_slice()) == ["endpoints[0].addresses: Required value"]
    zones = [{"name": f"z{each}"} for each in range(9)]
    hinted = endpoint_slice("10.0.0.1", hints={"forZones": zones, "forNodes": zones})
    assert refusals(ENDPOINT_SLICES, hinted) == [
        "endpoints[0].hints.forZones: Too many: 9: must have at most 8 items"
    ]
    assert refusals(ENDPOINT_SLICES, with_ports(*[{}] * 20001)) == [
        "ports: Too many: 20001: must have at most 20000 items"
    ]


def test_endpoints() -> None:
    """Names of nodes, hosts and zones."""
    given = endpoint_slice(
        "10.0.0.1",
        nodeName="A",
        hostname="a.b",
        hints={"forZones": [{"name": "z"}, {"name": "z"}], "forNodes": [{"name": "N"}]},
    )
    found = [each.partition(": ")[0] for each in refusals(ENDPOINT_SLICES, given)]
    assert found == [
        f"endpoints[0].{each}"
        for each in ("nodeName", "hostname", "hints.forZones[1].name", "hints.forNodes[0].name")
    ]


def test_ports() -> None:
    """Names are unique, also the empty one."""
    assert prepared_object(ENDPOINT_SLICES, with_ports({}))["ports"] == [
        {"name": "", "protocol": "TCP"}
    ]
    given = with_ports({}, {}, {"name": "A", "protocol": "X", "appProtocol": "/a"})
    found = refusals(ENDPOINT_SLICES, given)
    assert found[0] == 'ports[1].name: Duplicate value: ""'
    assert found[1].startswith('ports[2].name: Invalid value: "A": a lowercase RFC 1123 label')
    assert found[2:] == [
        'ports[2].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"',
        'ports[2].appProtocol: Invalid value: "/a": prefix part must be non-empty',
    ]


def test_topology_is_not_taken() -> None:
    """Only the node that an unchanged name stood for is kept."""
    labels = {"kubernetes.io/hostname": "n1", "x": "y"}
    given = endpoint_slice("10.0.0.1", deprecatedTopology=labels)
    assert prepared_object(ENDPOINT_SLICES, given)["endpoints"] == [{"addresses": ["10.0.0.1"]}]
    assert changed(ENDPOINT_SLICES, given, given)["endpoints"] == given["endpoints"]
    new = endpoint_slice("10.0.0.2", deprecatedTopology=labels)
    assert changed(ENDPOINT_SLICES, new, given)["endpoints"] == [
        {"addresses": ["10.0.0.2"], "nodeName": "n1"}
    ]
    other = endpoint_slice("10.0.0.2", deprecatedTopology={"kubernetes.io/hostname": "n2"})
    assert changed(ENDPOINT_SLICES, other, given)["endpoints"] == [{"addresses": ["10.0.0.2"]}]
    named = patched(new, {"endpoints": [new["endpoints"][0] | {"nodeName": "n3"}]})
    assert changed(ENDPOINT_SLICES, named, given)["endpoints"][0]["nodeName"] == "n3"


def test_topology_that_is_stored() -> None:
    """It is checked where it came through."""
    labels = {f"a{each}": "b" for each in range(16)} | {"topology.kubernetes.io/zone": "/"}
    given = endpoint_slice("10.0.0.1", deprecatedTopology=labels)
    found = ENDPOINT_SLICES.validate(given, None)  # type: ignore[arg-type]
    path = "endpoints[0].deprecatedTopology"
    assert str(found[0]) == f"{path}: Too many: 17: must have at most 16 items"
    assert str(found[1]).startswith(f'{path}: Invalid value: "/": a valid label must be')
    assert str(found[2]) == (
        f"{path}[topology.kubernetes.io/zone]: Internal error:"
        " reserved key was not removed in conversion"
    )


def test_change() -> None:
    """The type stays; endpoints that were wrong may."""
    bad = endpoint_slice("127.0.0.1")
    relabelled = patched(bad, {"metadata": {"labels": {"a": "b"}}})
    assert change_refusals(ENDPOINT_SLICES, relabelled, bad) == []
    other = endpoint_slice("fd00::1", kind="IPv6")
    assert change_refusals(ENDPOINT_SLICES, other, endpoint_slice("10.0.0.1")) == [
        "addressType: Invalid value: null: field is immutable"
    ]


def test_generation() -> None:
    """Endpoints and labels raise it, other metadata does not."""
    old = prepared_object(ENDPOINT_SLICES, endpoint_slice("10.0.0.1"))
    for patch, expected in (
        ({}, 1),
        ({"metadata": {"annotations": {"a": "b"}}}, 1),
        ({"metadata": {"labels": {"a": "b"}}}, 2),
        ({"ports": [{"port": 1}]}, 2),
    ):
        found = changed(ENDPOINT_SLICES, patched(old, patch), old)
        assert found["metadata"]["generation"] == expected


def test_warnings() -> None:
    """Of addresses in bad form that no controller wrote, and of names when they are new."""
    given = endpoint_slice("010.0.0.1")
    warning = (
        'endpoints[0].addresses[0]: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"'
    )
    assert warnings_of(ENDPOINT_SLICES, given) == [warning]
    assert warnings_of_change(ENDPOINT_SLICES, given, given) == [warning]
    label = {"endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
    assert warnings_of(ENDPOINT_SLICES, patched(given, {"metadata": {"labels": label}})) == []
    named = endpoint_slice("a.b", kind="FQDN")
    assert warnings_of(ENDPOINT_SLICES, named) == [
        "spec.addressType: FQDN endpoints are deprecated"
    ]
    assert warnings_of_change(ENDPOINT_SLICES, named, named) == []


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ([], "<unset>"),
        ([{"port": 80}, {"name": "a"}, {}], "80,a,"),
        ([{"port": 1}, {"port": 2}, {"port": 3}, {"port": 4}], "1,2,3 + 1 more..."),
    ],
)
def test_rows(ports: list[dict[str, Any]], expected: str) -> None:
    """Three ports and three addresses at most."""
    given = with_ports(*ports)
    assert cells_of(ENDPOINT_SLICES, given) == ["e", "IPv4", expected, "10.0.0.1", "3m"]
    several = given | {"endpoints": given["endpoints"] * 5}
    assert cells_of(ENDPOINT_SLICES, several)[3] == "10.0.0.1,10.0.0.1,10.0.0.1 + 2 more..."
    assert cells_of(ENDPOINT_SLICES, given | {"endpoints": []})[3] == "<unset>"
