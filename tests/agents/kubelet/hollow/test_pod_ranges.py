"""Ranges of hollow nodes."""

import pytest

from kvstack.agents.kubelet.hollow.pod_ranges import range_of


@pytest.mark.parametrize(
    ("number", "cidr", "first"),
    [
        (1, "", "10.244.1.1"),
        (300, "", "10.245.44.1"),
        (3071, "", "10.255.255.1"),
        (3072, "", "100.64.0.1"),
        (7, "10.9.8.0/24", "10.9.8.1"),
        (7, "fd00::/64", "10.244.7.1"),
    ],
)
def test_ranges(number: int, cidr: str, first: str) -> None:
    assert str(range_of(number, cidr)[1]) == first
