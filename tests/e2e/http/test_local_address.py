"""The address that a member dials the others from: the gate SetMemberLocalAddr."""

import socket
import threading
from pathlib import Path

import pytest

from kvstore.config.parse import configure
from kvstore.config.sources import read_command_line
from kvstore.peers.http_client import PeerRequestError, dial
from kvstore.peers.tls import PeerTls
from kvstore.server.boot.member_address import local_address_of
from tests.support.servers import free_ports, ours, running

pytestmark = pytest.mark.e2e

GATE = "--feature-gates=SetMemberLocalAddr=true"
WAIT_S = 60.0


def own_address() -> str:
    """Return an address of this machine that is no loopback's."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            pytest.skip("this machine has no address but loopback's")
        return str(probe.getsockname()[0])


def test_the_source_of_a_connection_is_the_address_asked_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        for asked, seen in (("127.0.0.2", "127.0.0.2"), ("", "127.0.0.1")):
            connection = dial(url, PeerTls(local_address=asked), WAIT_S)
            with connection.socket, listening.accept()[0] as accepted:
                assert accepted.getpeername()[0] == seen
        with pytest.raises(PeerRequestError, match="cannot connect to"):
            dial(url, PeerTls(local_address="192.0.2.1"), WAIT_S)


@pytest.mark.parametrize(
    ("urls", "chosen"),
    [
        ("http://10.0.0.7:1,http://10.0.0.8:1", "10.0.0.7"),
        ("http://member:1,http://127.0.0.1:1,http://0.0.0.0:1,http://[fd00::7]:1", "fd00::7"),
        ("http://[::1]:1,http://[::ffff:127.0.0.1]:1,http://[::]:1,unix://a:1", ""),
    ],
)
def test_the_first_address_a_machine_can_have_is_chosen(urls: str, chosen: str) -> None:
    given = [f"--initial-advertise-peer-urls={urls}", "--listen-peer-urls=http://127.0.0.1:1"]
    named = "--initial-cluster=" + ",".join(f"default={url}" for url in urls.split(","))
    assert local_address_of(configure(read_command_line([*given, named, GATE]), {})) == chosen
    assert local_address_of(configure(read_command_line([*given, named]), {})) == ""


def asked_from(peer_url: str, gate: str, tmp_path: Path) -> str:
    """Return whence a member that joins asks the cluster named to it."""
    tmp_path.mkdir()
    seen: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as cluster:
        cluster.settimeout(WAIT_S)

        def accept() -> None:
            accepted, peer = cluster.accept()
            seen.append(peer[0])
            accepted.close()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        server = ours(tmp_path / "data", name="a")
        server.extra = [
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=a={peer_url},b=http://127.0.0.1:{cluster.getsockname()[1]}",
            gate,
        ]
        try:
            server.start(wait=False)
            accepting.join(WAIT_S)
        finally:
            server.kill()
    assert seen, server.log()
    return seen[0]


def test_a_member_dials_from_its_advertised_address(tmp_path: Path) -> None:
    address, [port] = own_address(), free_ports(1)
    url = f"http://{address}:{port}"
    assert asked_from(url, GATE, tmp_path / "on") == address
    assert asked_from(url, "--pre-vote=true", tmp_path / "off") == "127.0.0.1"


def test_a_member_without_such_an_address_says_so_and_serves(tmp_path: Path) -> None:
    with running(ours(tmp_path / "data", extra=[GATE])) as server:
        said = [str(record["msg"]) for record in server.log_records()]
    assert any(each.startswith("unable to set a member local address") for each in said)
