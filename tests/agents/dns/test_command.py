"""The program `kvstack dns` beside an API server: it answers, tells that it is ready, and ends."""

import asyncio
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from urllib.error import HTTPError, URLError

import pytest
from dns.message import from_wire, make_query

from tests.agents.dns.given import over_udp
from tests.agents.standalone.test_stack import lines_of, up
from tests.agents.support.cluster import eventually
from tests.support.network.ports import free_ports


@pytest.mark.e2e
@pytest.mark.slow
def test_the_program(tmp_path: Path) -> None:
    api, port, health, ready, metrics = free_ports(5)
    with up(tmp_path / "data", f"--secure-port={api}", "--without=node,dns") as process:
        lines_of(process)
        words = [
            f"--kubeconfig={tmp_path / 'data' / 'kubernetes' / 'admin.conf'}", f"--port={port}",
            f"--health-address=127.0.0.1:{health}", f"--ready-address=127.0.0.1:{ready}",
            f"--metrics-address=127.0.0.1:{metrics}", "--forward=none", "--ttl=7",
        ]  # fmt: skip
        log = (tmp_path / "dns-log").open("wb")
        program = subprocess.Popen([sys.executable, "-m", "kvstack", "dns", *words], stderr=log)
        try:
            asyncio.run(_until_ready(ready))
            assert _page(health, "/health") == b"OK"
            name = "kubernetes.default.svc.cluster.local"
            wire = asyncio.run(over_udp(port, make_query(name, "A").to_wire()))
            (answer,) = from_wire(wire).answer
            assert (answer[0].to_text(), answer.ttl) == ("10.96.0.1", 7)
            assert b"coredns_dns_requests_total" in _page(metrics, "/metrics")
            program.send_signal(signal.SIGTERM)
            assert program.wait(30) == 0, (tmp_path / "dns-log").read_text()
        finally:
            program.kill()
            program.wait()
            log.close()


async def _until_ready(port: int) -> None:
    await eventually(lambda: _page(port, "/ready") == b"OK", every_s=0.2)


def _page(port: int, path: str) -> bytes:
    """Return a page; empty: it is not there, or not well."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            body: bytes = answer.read()
    except HTTPError as error:
        error.close()
        return b""
    except URLError:
        return b""
    return body
