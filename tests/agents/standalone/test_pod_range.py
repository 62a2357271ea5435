"""From which ranges pods have their addresses, and which addresses their node has."""

from ipaddress import IPv6Network, ip_network
from pathlib import Path

import pytest

from kvstack.agents.standalone.agent_settings import node_ips
from kvstack.agents.standalone.pod_range import parse, unique_local
from kvstack.agents.standalone.stack_settings import split_own
from kvstack.component.flags.command_line import UsageError
from kvstack.component.net import hosts


def test_what_a_flag_asks_for() -> None:
    assert parse("none") == ()
    assert parse("10.7.0.0/16") == (ip_network("10.7.0.0/16"),)
    both = parse("fd00:7::/48, 10.7.0.0/16")
    assert [str(each) for each in both] == ["fd00:7::/48", "10.7.0.0/16"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("10.7.0.0/25", "10.7.0.0/25: each node gets a /24 of it"),
        ("fd00::/65", "fd00::/65: each node gets a /64 of it"),
        ("fd00::/47", "fd00::/47: /48 is the largest"),
        ("0.0.0.0/7", "0.0.0.0/7: /8 is the largest"),
        ("10.7.0.0/16,10.8.0.0/16", "at most one of each family"),
        ("10.7.0.1/16", "10.7.0.1/16: 10.7.0.1/16 has host bits set"),
        ("x", "x: 'x' does not appear"),
    ],
)
def test_what_cannot_be_asked_for(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        split_own([f"--cluster-cidr={text}"])


def test_a_range_of_ipv6_is_the_data_directorys_own(tmp_path: Path) -> None:
    one, other = (unique_local(tmp_path / each) for each in ("one", "other"))
    assert one != other
    assert one == unique_local(tmp_path / "one")
    assert all(each.subnet_of(IPv6Network("fd00::/8")) for each in (one, other))
    assert one.prefixlen == 48


def test_addresses_of_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    six, four = ip_network("fd00::/112"), ip_network("10.96.0.0/16")
    given, _ = split_own(["--node-ip=192.0.2.1,fd00::9"])
    assert node_ips(given, (), (six,)) == ("192.0.2.1", "fd00::9")
    own, _ = split_own([])
    known = {4: "192.0.2.1", 6: "2001:db8::1"}
    monkeypatch.setattr("kvstack.component.net.hosts.own_address", known.__getitem__)
    assert node_ips(own, (), ()) == ("192.0.2.1",)
    assert node_ips(own, (), (six, four)) == ("2001:db8::1", "192.0.2.1")
    assert node_ips(own, (six,), (four,)) == ("192.0.2.1", "2001:db8::1")
    known[6] = "::1"  # it has none
    assert node_ips(own, (), (six, four)) == ("192.0.2.1",)
    assert node_ips(own, (), (six,)) == ("::1",)


def test_addresses_are_of_two_families_at_most() -> None:
    with pytest.raises(UsageError, match=r"--node-ip .*at most one of each family"):
        split_own(["--node-ip=192.0.2.1,192.0.2.2"])
    assert hosts.of_families("", ip_network) == ()
