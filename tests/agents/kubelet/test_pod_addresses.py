"""Addresses of pods."""

from ipaddress import IPv4Network

import pytest

from kvstack.agents.kubelet.runtime.pod_addresses import NoAddressError, PodAddresses


def test_addresses_are_of_the_node_and_given_in_turn() -> None:
    addresses = PodAddresses(IPv4Network("10.244.2.0/24"))
    assert [addresses.of("a"), addresses.of("b")] == ["10.244.2.1", "10.244.2.2"]
    addresses.free("10.244.2.1", "a")
    assert addresses.of("c") == "10.244.2.3"


def test_those_that_pods_have_are_left_out() -> None:
    addresses = PodAddresses(IPv4Network("10.244.1.0/24"))
    addresses.keep("10.244.1.1", "old")
    assert addresses.of("new") == "10.244.1.2"
    addresses.free("10.244.1.1", "another")
    taken = {addresses.of(str(number)) for number in range(252)}
    assert "10.244.1.1" not in taken
    with pytest.raises(NoAddressError, match=r"all 254 addresses of 10\.244\.1\.0/24 are taken"):
        addresses.of("one too many")
    addresses.free("10.244.1.1", "old")
    assert addresses.of("one more") == "10.244.1.1"
