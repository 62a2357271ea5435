"""Ports that are chosen before they are bound belong to one test process."""

import socket
import subprocess
import sys

from tests.support.network.ports import free_ports


def test_ports_are_this_process_s_own() -> None:
    ours = set(free_ports(3)) | set(free_ports(3))
    assert len(ours) == 6
    program = "from tests.support.network.ports import free_ports; print(*free_ports(500))"
    other = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert not ours & set(map(int, other.stdout.split()))


def test_a_port_that_is_taken_is_passed_over() -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port + 1)):
        assert free_ports(1)[0] > port + 1
