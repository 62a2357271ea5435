"""A pod does not reach what listens on its node's loopback, whatever packets it makes."""

import socket
import subprocess
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process.network import translation
from tests.support.network.routed import Routed, routed

POD, BRIDGE, PORT = "pod", "to0", 9999


@pytest.fixture
def network() -> Iterator[Routed]:
    with routed((POD,)) as found:
        yield found


def _ip(network: Routed, name: str, *arguments: str) -> None:
    subprocess.run(["ip", "-n", network.namespace(name), *arguments], check=True)


@pytest.mark.skipif(not translation.is_available(), reason="the program nft is not installed")
def test_packets_of_a_pod_to_the_nodes_loopback_are_dropped(network: Routed) -> None:
    def let_route(interface: str) -> None:
        Path(f"/proc/sys/net/ipv4/conf/{interface}/route_localnet").write_text("1")

    network.run("", lambda: let_route(BRIDGE))  # as for ports of the node
    # The pod is its own root: loopback's addresses are behind its node.
    network.run(POD, lambda: let_route("eth0"))
    _ip(network, POD, "address", "delete", "127.0.0.1/8", "dev", "lo")
    _ip(network, POD, "route", "add", "127.0.0.0/8", "via", network.gateway(POD))
    with (
        network.socket("", socket.SOCK_DGRAM) as server,
        network.socket(POD, socket.SOCK_DGRAM) as client,
    ):
        server.bind(("127.0.0.1", PORT))
        server.settimeout(0.5)
        client.sendto(b"let me in", ("127.0.0.1", PORT))
        assert server.recv(100) == b"let me in"  # what the rule is for
        text = translation.rules(
            "kv-1", BRIDGE, IPv4Network("10.201.1.0/24"), {}, IPv4Network("10.201.0.0/16")
        )
        network.run("", lambda: translation.apply(text))
        client.sendto(b"let me in", ("127.0.0.1", PORT))
        with pytest.raises(TimeoutError):
            server.recv(100)
