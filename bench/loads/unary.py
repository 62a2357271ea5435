"""One body sent over and over by h2load: what it is, and how it is checked that it was done.

    play_unary(server, Unary("put", "Put", body, True, 0, shapes), (100, 10), 1, dir) → Result

h2load knows nothing of gRPC, so before a load counts, puts must have moved the revision and ranges
must have brought all the bytes. RuntimeError if not.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from bench.loads import h2, kvload
from bench.loads.client import Client
from bench.procfs import Meter
from tests.support.servers import Server

Shape = tuple[int, int]  # connections, requests in flight on each
Targets = tuple[float | None, float | None]  # of the ratios of rate and of CPU per call
NO_TARGETS: Final[Targets] = (None, None)
_KV: Final = "/etcdserverpb.KV"


class Result(NamedTuple):
    """What one load came to, whoever made it."""

    calls: int
    rate: float
    p50_ms: float
    p99_ms: float
    server_cpu_s: float  # of all processes that were watched
    first_cpu_s: float  # of the first of them


class Unary(NamedTuple):
    """One body, by h2load."""

    name: str
    method: str
    message: bytes
    is_write: bool
    answer_bytes_min: int
    shapes: dict[Shape, Targets]


def play_unary(
    server: Server,
    load: Unary,
    shape: Shape,
    seconds: int,
    scratch: Path,
    pids: Sequence[int] = (),
) -> Result:
    """Send it for so many whole seconds; pids: whose CPU counts, none: the server's."""
    connections, in_flight = shape
    with Client(server.endpoint) as client:
        revision = client.revision()
        meter = Meter(pids or (server.pid,))
        found = h2.run(
            f"{server.client_url}{_KV}/{load.method}",
            load.message,
            connections=connections,
            in_flight=in_flight,
            seconds=seconds,
            scratch=scratch,
        )
        used_s = meter.used_s()
        revisions = client.revision() - revision
    if load.is_write and revisions < found.requests:
        raise RuntimeError(f"{load.name}: {found.requests} calls made {revisions} revisions")
    if found.data_bytes < found.requests * load.answer_bytes_min:
        raise RuntimeError(f"{load.name}: {found.requests} answers of {found.data_bytes} bytes")
    return Result(found.requests, found.rate, found.p50_ms, found.p99_ms, sum(used_s), used_s[0])


def of_kvload(found: kvload.Loaded) -> Result:
    """Return what kvload found as a Result."""
    return Result(
        found.done, found.rate, found.p50_ms, found.p99_ms, found.server_cpu_s, found.first_cpu_s
    )
