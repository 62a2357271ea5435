"""What packets of pods do: with every program that writes rules, in every combination of families.

One machine with a neighbour, each in a network namespace.
"""

import functools
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from kvstack.agents.kubelet.runtime.process.network import translator
from kvstack.agents.kubelet.runtime.process.network.pod_network import pair_name
from kvstack.agents.kubelet.runtime.runtime import Port
from kvstack.component.net import iptables, nft
from tests.agents.support.namespaces import has_namespaces
from tests.support.network.pods import (
    CLIENT,
    CLIENT_ADDRESSES,
    NODE_ADDRESSES,
    Pods,
    pods_of,
)
from tests.support.network.routed import Answer, RefusedError
from tests.support.programs import path_of

pytestmark = pytest.mark.skipif(not has_namespaces(), reason="interfaces need root and namespaces")

RANGES: Final = {4: "10.9.8.0/24", 6: "fd00:9:8::/64"}
WHOLE: Final = {4: "10.9.0.0/16", 6: "fd00:9::/32"}
LOOPBACK: Final = {4: "127.0.0.1", 6: "::1"}
PORT, HOST_PORT = 80, 8080


DATAGRAMS: Final = {
    4: functools.partial(socket.socket, socket.AF_INET, socket.SOCK_DGRAM),
    6: functools.partial(socket.socket, socket.AF_INET6, socket.SOCK_DGRAM),
}


class Variant(NamedTuple):
    """What writes rules, and the families of the pods, the first one first."""

    program: str
    families: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.program}-{'-'.join(map(str, self.families))}"


VARIANTS: Final = (
    Variant("nft", (4,)),
    Variant("nft", (6,)),
    Variant("nft", (4, 6)),
    Variant("iptables", (4, 6)),
    Variant("iptables-legacy", (6, 4)),
)


class Node(NamedTuple):
    """The pods of a node, and what they are like."""

    pods: Pods
    variant: Variant

    @property
    def families(self) -> tuple[int, ...]:
        return self.variant.families


def use(variant: Variant, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the machine have one program alone."""
    if variant.program == "nft":
        if not nft.is_installed():
            pytest.skip("the program nft is not installed")
        return
    if shutil.which(variant.program) is None:
        pytest.skip(f"there is no {variant.program}")
    tools = [
        f"{tool}{end}" for tool in ("iptables", "ip6tables") for end in ("", "-restore", "-save")
    ]
    instead = {}
    if variant.program == "iptables-legacy":
        instead = dict.fromkeys((each.replace("-", "_") for each in tools), "iptables-legacy")
    monkeypatch.setenv("PATH", path_of(directory, "ip", *tools, **instead))


@pytest.fixture(params=VARIANTS, ids=lambda each: each.name)
def node(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Node]:
    variant: Variant = request.param
    use(variant, tmp_path, monkeypatch)
    assert translator.program() == variant.program.removesuffix("-legacy")
    families = variant.families
    ranges, whole = ([each[f] for f in families] for each in (RANGES, WHOLE))
    with pods_of(ranges, tmp_path / "state", whole) as pods:
        yield Node(pods, variant)


def test_addresses(node: Node) -> None:
    first = {4: "10.9.8.2", 6: "fd00:9:8::2"}
    assert node.pods.add("one") == tuple(first[each] for each in node.families)
    assert [str(each) for each in node.pods.network.networks] == [RANGES[f] for f in node.families]


def test_pods_reach_each_other_from_their_own_addresses_and_the_world_from_the_nodes(
    node: Node,
) -> None:
    pods = node.pods
    pods.add("one")
    pods.add("two")
    pods.serve("two", PORT)
    pods.serve(CLIENT, PORT)
    for family in node.families:
        one, two = (pods.address(each, family) for each in ("one", "two"))
        assert pods.ask("one", two, PORT) == Answer("two", one)
        assert pods.ask("", two, PORT).name == "two"
        answer = pods.ask("one", CLIENT_ADDRESSES[family], PORT)
        assert answer == Answer(CLIENT, NODE_ADDRESSES[family])


def test_pods_of_other_nodes_see_the_pods_address(node: Node) -> None:
    pods = node.pods
    pods.add("one")
    pods.serve(CLIENT, PORT)
    other = {4: "10.9.9.1", 6: "fd00:9:9::1"}  # of the client, as if it was a pod of a node there
    for family in node.families:
        bits = 32 if family == 4 else 128
        more = () if family == 4 else ("nodad",)
        pods.ip(CLIENT, "address", "add", f"{other[family]}/{bits}", "dev", "eth0", *more)
        way = (f"-{family}", "route", "add", f"{other[family]}/{bits}")
        pods.ip("", *way, "via", CLIENT_ADDRESSES[family])
        one = pods.address("one", family)
        assert pods.ask("one", other[family], PORT) == Answer(CLIENT, one)


def test_nobody_sends_from_an_address_of_another(node: Node) -> None:
    pods = node.pods
    pods.add("one")
    pods.add("two")
    pods.serve("two", PORT)
    pods.serve("", PORT)
    for family in node.families:
        foreign = {4: "10.9.8.77", 6: "fd00:9:8::77"}[family]
        more = () if family == 4 else ("nodad",)
        pods.ip("one", "address", "add", foreign, "dev", "eth0", *more)
        two = pods.address("two", family)
        assert pods.is_silent("one", two, PORT, source=foreign)
        assert pods.is_silent("one", NODE_ADDRESSES[family], PORT, source=foreign)
        assert pods.ask("one", two, PORT).name == "two"


def test_a_pod_does_not_reach_what_the_node_has_on_loopback(node: Node) -> None:
    pods = node.pods
    pods.add("one")
    pods.serve("", PORT)
    if 4 in node.families:
        # The pod is its own root: loopback's addresses are behind its node.
        setting = Path("/proc/sys/net/ipv4/conf/eth0/route_localnet")
        pods.run("one", lambda: setting.write_text("1"))
        pods.ip("one", "address", "delete", "127.0.0.1/8", "dev", "lo")
        pods.ip("one", "route", "add", "127.0.0.0/8", "via", "10.9.8.1", "dev", "eth0")
        assert pods.is_silent("one", "127.0.0.1", PORT, source=pods.address("one", 4))
    if 6 in node.families:
        # By the link alone, past all routes, it finds its node and no more.
        pods.ip("one", "address", "add", "fe80::77/64", "dev", "eth0", "nodad")
        assert pods.is_silent("one", "fe80::1%eth0", PORT, source="fe80::77%eth0")
        assert pods.ask("one", NODE_ADDRESSES[6], PORT).name == ""


def test_a_family_that_pods_lack_is_not_on_their_link(node: Node) -> None:
    pods = node.pods
    pods.add("one")
    pods.serve("", PORT)
    shown = f"/proc/sys/net/ipv6/conf/{pair_name('one')}/disable_ipv6"
    disabled = pods.run("", lambda: Path(shown).read_text().strip())
    assert disabled == ("0" if 6 in node.families else "1")


def test_ports_of_the_node(node: Node) -> None:
    pods = node.pods
    ports = [Port(PORT, HOST_PORT)]
    ports += [Port(PORT, 8081, host_ip=NODE_ADDRESSES[each]) for each in node.families]
    pods.add("one", *ports)
    pods.serve("one", PORT)
    pods.add("two")
    for family in node.families:
        where = NODE_ADDRESSES[family]
        for port in (HOST_PORT, 8081):
            answer = pods.ask(CLIENT, where, port)
            assert answer == Answer("one", CLIENT_ADDRESSES[family])
            assert pods.ask("", where, port).name == "one"
            assert pods.ask("two", where, port) == Answer("one", pods.address("two", family))
            assert pods.ask("one", where, port).name == "one"  # by way of its node
    if 4 in node.families:
        assert pods.ask("", "127.0.0.1", HOST_PORT).name == "one"
        with pytest.raises(RefusedError):
            pods.ask("", "127.0.0.1", 8081)
    pods.run("", lambda: pods.network.disconnect("one"))
    for family in node.families:
        with pytest.raises(RefusedError):
            pods.ask(CLIENT, NODE_ADDRESSES[family], HOST_PORT)


def test_udp_of_the_node(node: Node) -> None:
    pods = node.pods
    pods.add("one", Port(53, 5353, "UDP"))
    for family in node.families:
        server, client = (pods.run(each, DATAGRAMS[family]) for each in ("one", CLIENT))
        with server, client:
            server.bind((pods.address("one", family), 53))
            server.settimeout(30)
            client.sendto(b"hello", (NODE_ADDRESSES[family], 5353))
            data, (address, *_) = server.recvfrom(100)
            assert (data, address) == (b"hello", CLIENT_ADDRESSES[family])


def test_nothing_is_left_in_the_end(node: Node) -> None:
    pods = node.pods
    pods.add("one", Port(PORT, HOST_PORT))
    pods.run("", lambda: pods.network.disconnect("one"))
    pods.run("", pods.network.close)
    assert pods.run("", rules) == []
    shown = pods.run("", lambda: subprocess.check_output(["ip", "-br", "link"], text=True))
    assert not [line for line in shown.splitlines() if line.startswith("kv")]


def rules() -> list[str]:
    """Return what is left of rules that name the node's network."""
    found = nft.run("list", "ruleset") if nft.is_installed() else ""
    found += "".join(iptables.saved(each) for each in (4, 6) if iptables.is_installed(each))
    return [line for line in found.splitlines() if "kv" in line]
