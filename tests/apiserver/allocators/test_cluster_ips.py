"""Which cluster IPs can be had, and which one is given out."""

from ipaddress import ip_address
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.allocators.cluster_ips import (
    ALLOCATED,
    MISMATCHED,
    NOT_READY,
    AddressRange,
    address_range,
    choose_address,
    contains,
    dry_address,
    ip_address_object,
    refuse_address,
    refuse_address_dry,
    service_ranges,
)

SMALL = address_range("10.0.0.0/29")
IPV6 = address_range("fd00::/120")


def first_of(_size: int) -> int:
    """Be a random number that is always the least."""
    return 0


def service_cidr(*cidrs: str, **members: object) -> dict[str, object]:
    """Return a ServiceCIDR."""
    return {"metadata": {"name": "c"}, "spec": {"cidrs": list(cidrs)}, **members}


def test_range_of_ipv4_is_without_network_and_broadcast() -> None:
    """Both are no addresses of hosts."""
    expected = ("10.0.0.0/24", "10.0.0.1", "10.0.0.254", 16)
    block = address_range("10.0.0.7/24")
    shown = (block.cidr, str(ip_address(block.first)), str(ip_address(block.last)), block.offset)
    assert shown == expected


def test_range_of_ipv6_has_its_last_address() -> None:
    """There is no broadcast in IPv6."""
    assert str(ip_address(IPV6.last)) == "fd00::ff"
    assert str(ip_address(IPV6.first)) == "fd00::1"


def test_wide_ipv6_range_is_refused() -> None:
    """As nothing is ever full there, and the table of numbers too large."""
    with pytest.raises(ValueError, match="shortest allowed prefix length for service CIDR is 64"):
        address_range("fd00::/63")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.0", False),
        ("10.0.0.1", True),
        ("10.0.0.6", True),
        ("10.0.0.7", False),
        ("10.0.1.1", False),
        ("::10.0.0.1", False),
    ],
)
def test_contains(address: str, expected: bool) -> None:  # noqa: FBT001
    """The addresses that can be given out, of the same family."""
    assert contains(SMALL, address) is expected


def test_chosen_from_the_upper_band_first() -> None:
    """A /24 keeps 10.0.0.1 … 10.0.0.16 for those who ask."""
    block = address_range("10.0.0.0/24")
    assert choose_address([block], "IPv4", set(), first_of) == "10.0.0.17"
    taken = {f"10.0.0.{each}" for each in range(17, 255)}
    assert choose_address([block], "IPv4", taken, first_of) == "10.0.0.1"


def test_chosen_from_the_next_range_when_one_is_full_or_not_ready() -> None:
    """Ranges are asked in order, those of the family."""
    closed = address_range("10.9.0.0/24", is_ready=False)
    full = {str(ip_address(each)) for each in range(SMALL.first, SMALL.last + 1)}
    other = address_range("10.1.0.0/30")
    assert choose_address([closed, IPV6, SMALL, other], "IPv4", full, first_of) == "10.1.0.1"
    assert choose_address([closed, IPV6, SMALL], "IPv4", full, first_of) is None
    assert choose_address([closed, IPV6, SMALL], "IPv6", full, first_of) == "fd00::11"


@given(st.sets(st.integers(0, 63)), st.integers(0, 2**32), st.sampled_from([26, 28, 30]))
def test_chosen_is_free_and_within(taken: set[int], seed: int, prefix: int) -> None:
    """And there is none only if all are taken."""
    block = address_range(f"10.0.0.0/{prefix}")
    names = {f"10.0.0.{each}" for each in taken}
    chosen = choose_address([block], "IPv4", names, Random(seed).randrange)
    if chosen is None:
        assert all(str(ip_address(each)) in names for each in range(block.first, block.last + 1))
    else:
        assert chosen not in names
        assert contains(block, chosen)


@given(st.integers(0, 2**32))
def test_ipv6_text_is_canonical(seed: int) -> None:
    """Names of IPAddresses are."""
    for cidr in ("fd00::/64", "::/64", "::ffff:0:0/112"):
        chosen = choose_address([address_range(cidr)], "IPv6", set(), Random(seed).randrange)
        assert chosen is not None
        assert chosen == str(ip_address(chosen))


def test_asked_address() -> None:
    """It may lie in any ready range and in any band."""
    closed = address_range("10.9.0.0/24", is_ready=False)
    assert refuse_address([closed, SMALL], "10.0.0.1", set()) == ""
    assert refuse_address([closed, SMALL], "10.0.0.1", {"10.0.0.1"}) == ALLOCATED
    assert refuse_address([closed, SMALL], "10.0.0.7", set()) == MISMATCHED
    assert refuse_address([closed, SMALL], "10.9.0.1", set()) == MISMATCHED
    assert refuse_address([IPV6], "fd00:0::1", {"fd00::1"}) == ALLOCATED


def test_dry_run_looks_at_the_first_range_of_the_family() -> None:
    """What is taken does not matter to it."""
    ranges = [SMALL, IPV6]
    assert dry_address(ranges, "IPv4") == "10.0.0.0"
    assert dry_address(ranges, "IPv6") == "fd00::"
    assert refuse_address_dry(ranges, "10.0.0.3") == ""
    assert refuse_address_dry(ranges, "10.0.0.8") == (
        "the provided IP (10.0.0.8) is not in the valid range."
        " The range of valid IPs is 10.0.0.0/29"
    )


@pytest.mark.parametrize("ranges", [[], [address_range("10.0.0.0/29", is_ready=False)]])
def test_dry_run_without_a_ready_range(ranges: list[AddressRange]) -> None:
    """There is no address to show."""
    assert dry_address(ranges, "IPv4") is None
    assert refuse_address_dry(ranges, "10.0.0.3") == NOT_READY


def test_ranges_of_service_cidrs() -> None:
    """A CIDR is ready when one of its objects is: not deleted, and not said to be unready."""
    not_ready = {"conditions": [{"type": "Ready", "status": "False"}]}
    ready = {"conditions": [{"type": "Other"}, {"type": "Ready", "status": "True"}]}
    deleted = {"name": "c", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    found = service_ranges(
        [
            service_cidr("10.0.0.0/24", "fd00::/112", status=ready),
            service_cidr("10.1.0.0/24", status=not_ready),
            service_cidr("10.2.0.0/24", metadata=deleted),
            service_cidr("10.2.0.0/24"),
        ]
    )
    assert [(each.cidr, each.is_ready) for each in found] == [
        ("10.0.0.0/24", True),
        ("fd00::/112", True),
        ("10.1.0.0/24", False),
        ("10.2.0.0/24", True),
    ]


def test_ip_address_object() -> None:
    """Its labels say which family it is and who made it."""
    made = ip_address_object("fd00::1", "ns", "web")
    assert made["metadata"] == {
        "name": "fd00::1",
        "labels": {
            "ipaddress.kubernetes.io/ip-family": "IPv6",
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
        },
    }
    assert made["spec"]["parentRef"] == {"resource": "services", "namespace": "ns", "name": "web"}
