"""The server tells systemd that it is ready when clients are served, and not before."""

import socket
from pathlib import Path

import pytest

from tests.support.servers import etcdctl, ours, running

pytestmark = pytest.mark.e2e


def test_the_server_tells_when_it_is_ready(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(address))
        listener.settimeout(30)
        server = ours(tmp_path / "d", env={"NOTIFY_SOCKET": str(address)})
        with running(server.start(wait=False)):
            assert listener.recv(100) == b"READY=1"
            assert etcdctl(server, "endpoint", "health").returncode == 0
