"""Subsets of Endpoints in the one form."""

from hypothesis import given
from hypothesis import strategies as st

from kvstack.agents.controllers.network.port_order import hash_of
from kvstack.agents.controllers.network.subsets import (
    ADDRESSES_MAX,
    count_addresses,
    repacked,
    truncated,
)
from kvstack.apimachinery.objects.json_object import Object


def port(number: int) -> Object:
    return {"name": f"p{number}", "port": number, "protocol": "TCP"}


def address(number: int) -> Object:
    return {"ip": f"10.0.{number // 250}.{number % 250}"}


def test_ports_of_the_same_addresses_go_together() -> None:
    subsets = [
        {"addresses": [address(1)], "ports": [port(80)]},
        {"addresses": [address(1)], "ports": [port(81)]},
    ]
    [found] = repacked(subsets)
    assert found["addresses"] == [address(1)]
    assert sorted(each["port"] for each in found["ports"]) == [80, 81]


def test_not_ready_wins() -> None:
    subsets = [
        {"addresses": [address(1)], "ports": [port(80)]},
        {"notReadyAddresses": [address(1)], "ports": [port(80)]},
    ]
    assert repacked(subsets) == [{"notReadyAddresses": [address(1)], "ports": [port(80)]}]


def test_without_ports() -> None:
    assert repacked([{"addresses": [address(1)]}]) == [{"addresses": [address(1)]}]


def test_truncation_keeps_those_ready() -> None:
    subsets = [
        {"addresses": [address(each) for each in range(900)], "ports": [port(80)]},
        {"notReadyAddresses": [address(each) for each in range(900, 1200)], "ports": [port(81)]},
    ]
    cut = truncated(subsets)
    assert count_addresses(cut) == ADDRESSES_MAX
    assert len(cut[0]["addresses"]) == 900
    assert len(cut[1]["notReadyAddresses"]) == 100


def test_hash() -> None:
    """The vectors are those of FNV-1a of 128 bits."""
    assert hash_of("") == 0x6C62272E07BB014262B821756295C58D
    assert hash_of("a") == 0xD228CB696F1A8CAF78912B704E4A8964


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(80, 83), st.booleans()), max_size=12))
def test_repacking_twice_changes_nothing(rows: list[tuple[int, int, bool]]) -> None:
    subsets = [
        {"addresses" if ready else "notReadyAddresses": [address(ip)], "ports": [port(number)]}
        for ip, number, ready in rows
    ]
    once = repacked(subsets)
    assert repacked(once) == once
    pairs = {
        (found["ip"], each["port"])
        for subset in once
        for name in ("addresses", "notReadyAddresses")
        for found in subset.get(name, ())
        for each in subset["ports"]
    }
    assert pairs == {(address(ip)["ip"], number) for ip, number, _ in rows}
