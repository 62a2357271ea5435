"""Endpoints and the addresses they may have."""

from typing import Any

import pytest

from kvstack.apiserver.kinds.core.endpoints import ENDPOINTS
from tests.apiserver.kinds.hooks import (
    change_refusals,
    prepared_object,
    refusals,
    warnings_of,
    warnings_of_change,
)


def endpoints(*addresses: str, **members: Any) -> dict[str, Any]:
    """Return Endpoints with one subset."""
    subset = {"addresses": [{"ip": each} for each in addresses], **members}
    return {"metadata": {"name": "e"}, "subsets": [subset]}


def test_protocol_is_tcp_by_default() -> None:
    """Of each port."""
    given = endpoints("10.0.0.1", ports=[{"port": 1}, {"port": 2, "protocol": "UDP"}])
    ports = prepared_object(ENDPOINTS, given)["subsets"][0]["ports"]
    assert [each["protocol"] for each in ports] == ["TCP", "UDP"]


@pytest.mark.parametrize(
    ("address", "detail"),
    [
        ("10.0.0.1", ""),
        ("fd00::1", ""),
        ("ff0e::1", ""),
        ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ("::", "may not be unspecified (::)"),
        ("127.1.2.3", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("::1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
        ("169.254.1.1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("fe80::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        ("febf::1", "may not be in the link-local range (169.254.0.0/16, fe80::/10)"),
        (
            "224.0.0.9",
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        ),
        ("ff02::1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
        ("ff12::1", "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ],
)
def test_addresses(address: str, detail: str) -> None:
    """Traffic cannot be sent to some."""
    path = "subsets[0].addresses[0].ip"
    expected = [f'{path}: Invalid value: "{address}": {detail}'] if detail else []
    assert refusals(ENDPOINTS, endpoints(address)) == expected


def test_text_that_is_no_address() -> None:
    """It is told twice, as two rules look at it."""
    path = "subsets[0].addresses[0].ip"
    assert refusals(ENDPOINTS, endpoints("x")) == [
        f'{path}: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or'
        " 2001:db8::ffff)",
        f'{path}: Invalid value: "x": must be a valid IP address',
    ]


def test_subsets() -> None:
    """They need addresses; of several ports each needs a name."""
    assert refusals(ENDPOINTS, endpoints()) == [
        "subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"
    ]
    ports = [{"port": 1}, {"port": 0, "name": "a", "protocol": "X", "appProtocol": "/b"}]
    assert refusals(ENDPOINTS, endpoints("10.0.0.1", ports=ports)) == [
        "subsets[0].ports[0].name: Required value",
        "subsets[0].ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
        'subsets[0].ports[1].protocol: Unsupported value: "X":'
        ' supported values: "SCTP", "TCP", "UDP"',
        'subsets[0].ports[1].appProtocol: Invalid value: "/b": prefix part must be non-empty',
    ]


def test_what_is_wrong_may_stay() -> None:
    """But only as a whole."""
    old = endpoints("127.0.0.1")
    assert change_refusals(ENDPOINTS, old, old) == []
    assert len(change_refusals(ENDPOINTS, endpoints("127.0.0.1", "10.0.0.1"), old)) == 1


def test_warnings_of_addresses_in_bad_form() -> None:
    """Not of those a controller wrote."""
    given = endpoints("010.0.0.1")
    path = "subsets[0].addresses[0].ip"
    warning = f'{path}: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"'
    assert warnings_of(ENDPOINTS, given) == [warning]
    assert warnings_of_change(ENDPOINTS, given, given) == [warning]
    given["metadata"]["labels"] = {"endpoints.kubernetes.io/managed-by": "endpoint-controller"}
    assert warnings_of(ENDPOINTS, given) == []
