"""One hundred thousand leases: granting them, memory, restart. `rates` has the keep-alives."""

import asyncio
from functools import partial
from typing import Final

from bench.loads.load import Tell, call_all
from bench.reporting.figures import Better, Measure
from bench.restarts import measure_restarts, note_memory, seconds_of
from bench.run import Run, Scenario
from bench.servers import pair
from kvstore.wire.gen import rpc_pb2 as pb
from tests.support.servers import Server

_LEASES: Final = 100_000
_TTL_S: Final = 36_000
_IN_FLIGHT: Final = 64
_GRANT: Final = Measure("grant, 1 x 64", "calls/s", Better.HIGHER)


def play(run: Run) -> None:
    """Grant, then restart in turns."""
    leases = run.size(_LEASES, 500)
    with pair(run.directory) as servers:
        for name, server in servers.items():
            with run.step(f"{name}: grant {leases} leases", leases) as tell:
                seconds = seconds_of(partial(_grant, server, leases, tell))
                run.figures.add(_GRANT, name, leases / seconds)
            note_memory(run, name, server, "after granting")
        measure_restarts(run, servers, read=False)
    run.note("The Python client that grants is itself near its limit.")


def _grant(server: Server, leases: int, tell: Tell) -> None:
    requests = (pb.LeaseGrantRequest(ID=number, TTL=_TTL_S) for number in range(1, leases + 1))
    asyncio.run(call_all(server.endpoint, "Lease", "LeaseGrant", requests, _IN_FLIGHT, tell))


SCENARIO: Final = Scenario("leases", "100,000 leases", "TTL of 10 hours, no keys attached", 3, play)
