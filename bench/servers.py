"""The two contenders as processes on empty directories of one disk, and how they start.

Both sync every write to disk before they answer, and both get the flags of FLAGS: a snapshot of the
log every 10 000 entries is etcd 3.7's default and ours; etcd 3.5 would keep ten times as many
entries in memory.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import grpc

from bench.loads.client import Client
from bench.reporting.figures import CONTENDERS, OURS, PEER
from tests.support.servers import Server, etcd, ours

Pair = dict[str, Server]

FLAGS: Final = ("--snapshot-count=10000", "--quota-backend-bytes=8589934592", "--log-level=warn")
START_TIMEOUT_S: Final = 300.0
_POLL_S: Final = 0.002
MAKERS: Final = {OURS: ours, PEER: etcd}


@contextmanager
def pair(directory: Path) -> Iterator[Pair]:
    """Run both contenders on fresh directories; end them whatever happens."""
    servers: Pair = {}
    directory.mkdir(parents=True, exist_ok=True)
    try:
        for name in CONTENDERS:
            servers[name] = MAKERS[name](directory / name, extra=FLAGS)
            servers[name].start()
        yield servers
    finally:
        for server in servers.values():
            if server.process is not None:
                server.kill()


def start_to_first_read_s(server: Server) -> float:
    """Start a stopped server; return the time until it answered a linearizable read."""
    begin = time.perf_counter()
    server.start(wait=False)
    while time.perf_counter() - begin < START_TIMEOUT_S:
        process = server.process
        if process is None or process.poll() is not None:
            raise RuntimeError(f"the server ended while starting:\n{server.log()}")
        if listens(server.endpoint):
            try:
                with Client(server.endpoint) as client:
                    client.get(b"any", timeout_s=10.0)
            except grpc.RpcError:
                pass  # it listens, but cannot answer yet
            else:
                return time.perf_counter() - begin
        time.sleep(_POLL_S)
    raise RuntimeError(f"no answer within {START_TIMEOUT_S:g} s:\n{server.log()}")


def listens(endpoint: str) -> bool:
    """Tell whether somebody accepts connections at HOST:PORT now."""
    host, _, port = endpoint.rpartition(":")
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, int(port))) == 0
