"""Addresses and networks: read, written, and judged by old and new rules."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apimachinery.objects import addresses


@given(st.ip_addresses())
def test_what_python_writes_is_canonical(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    parsed = addresses.parse_ip(str(address))
    assert parsed is not None
    mapped = getattr(address, "ipv4_mapped", None)
    assert addresses.format_ip(parsed) == str(mapped or address)


@given(st.ip_addresses(v=6))
def test_the_long_form_is_read_too(address: ipaddress.IPv6Address) -> None:
    assert addresses.parse_ip(address.exploded) == addresses.parse_ip(str(address))


@given(st.ip_addresses(v=6), st.integers(0, 128))
def test_networks(address: ipaddress.IPv6Address, prefix: int) -> None:
    network = addresses.parse_cidr(f"{address}/{prefix}")
    assert network is not None
    if not network.address.is_mapped:
        expected = ipaddress.ip_network(f"{address}/{prefix}", strict=False)
        assert addresses.format_cidr(network) == str(expected)


@given(st.text(alphabet="01f:./%é", max_size=12))
def test_no_text_is_too_odd(text: str) -> None:
    addresses.parse_ip(text)
    addresses.parse_cidr(text)


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        ("10.0.0.1", None),
        ("fd00:0::1", None),
        ("010.0.0.1", "must not have leading 0s"),
        ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
        ("10.0.0", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
        ("10.0.0.1:80", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
    ],
)
def test_addresses_of_old_fields(value: str, detail: str | None) -> None:
    found = [str(each) for each in addresses.validate_legacy_ip("x", value)]
    assert found == ([f'x: Invalid value: "{value}": {detail}'] if detail else [])


def test_what_is_stored_already_may_stay() -> None:
    assert addresses.validate_legacy_ip("x", "010.0.0.1", accepted=("010.0.0.1",)) == []
    assert addresses.validate_legacy_cidr("x", "10.0.0.1/8", accepted={"10.0.0.1/8"}) == []


def test_new_fields_want_the_canonical_form() -> None:
    (error,) = addresses.validate_ip("x", "FD00::1")
    assert error.body == 'Invalid value: "FD00::1": must be in canonical form ("fd00::1")'
    (error,) = addresses.validate_cidr("x", "10.0.0.1/8")
    assert error.body.endswith("must not have bits set beyond the prefix length")
    assert addresses.validate_interface_address("x", "10.0.0.1/8") == []


def test_warnings() -> None:
    assert addresses.ip_warnings("p", "010.0.0.1") == [
        'p: non-standard IP address "010.0.0.1" is invalid: use "10.0.0.1"'
    ]
    assert addresses.ip_warnings("p", "FD00::1") == [
        'p: IPv6 address "FD00::1" should be in RFC 5952 canonical format ("fd00::1")'
    ]
    assert addresses.cidr_warnings("p", "10.0.0.1/8") == [
        'p: CIDR value "10.0.0.1/8" is ambiguous in this context'
        ' (should be "10.0.0.0/8" or "10.0.0.1/32"?)'
    ]
    assert addresses.ip_warnings("p", "10.0.0.1") == []
