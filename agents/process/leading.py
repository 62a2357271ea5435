"""The work of a process while it holds the lease: until it is stopped, or the lease is lost.

    async with lease_events(api, "kube-scheduler", clock, random, log) as report:
        election = LeaderElection(…, on_change=tell)
        await lead_until(stop, work, election)      election None: work at once

`work` runs until it is cancelled. A process whose lease is lost must end: LeaseLostError.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from socket import gethostname
from typing import Final, TypeAlias
from uuid import uuid4

from kvstack.agents.client.api import Api
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.leader_election import LeaderElection
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, labels

Work: TypeAlias = Callable[[], Awaitable[None]]

WATCHDOG_S: Final = 20.0
"""A leader is unwell that has not renewed its lease so long after its end."""

_LAST_EVENT_S: Final = 1.0
"""So long is waited for the last event to be written."""


class LeaseLostError(ConfigError):
    """Another leads now: this process must end."""


async def lead_until(stop: asyncio.Event, work: Work, election: LeaderElection | None) -> None:
    """Work once the lease is held, until stopped; LeaseLostError, or what the work raises."""
    doing = asyncio.ensure_future(work() if election is None else election.run(work))
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait((doing, stopping), return_when=asyncio.FIRST_COMPLETED)
    finally:
        is_ended = doing.done()
        stopping.cancel()
        doing.cancel()
        await asyncio.wait((doing,))
    if is_ended:
        doing.result()
        if stop.is_set():
            return
        raise LeaseLostError("leader election lost")
    with suppress(asyncio.CancelledError):
        doing.result()


@asynccontextmanager
async def lease_events(
    api: Api, component: str, clock: Clock, random: Callable[[], float], log: Logger
) -> AsyncGenerator[Callable[[str, Object], None]]:
    """Return a recorder of Events about a Lease: who became leader, and who stopped leading."""
    recorder = EventRecorder(api, component, clock, random, log)

    def tell(text: str, lease: Object) -> None:
        recorder.record(lease, "Normal", "LeaderElection", text)

    try:
        yield tell
    finally:
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_EVENT_S):
                await recorder.flushed()
        await recorder.close()


def new_identity() -> str:
    """Return a name that no other process has, under which one may hold a lease."""
    return f"{gethostname()}_{uuid4()}"


def election_checks(election: LeaderElection | None) -> dict[str, Callable[[], bool]]:
    """Return the health check of the lease; none without election."""
    if election is None:
        return {}

    def is_renewed() -> bool:
        return election.seconds_since_renewal < election.terms.duration_s + WATCHDOG_S

    return {"leaderElection": is_renewed}


def election_metrics(election: LeaderElection | None, name: str) -> FamilySamples:
    """Return upstream's metric of who leads."""
    is_leader = election is None or election.is_leader
    return (
        "leader_election_master_status",
        FamilyKind.GAUGE,
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup,"
        " 1 indicates master. 'name' is the string used to identify the lease. Please make sure"
        " to group by name.",
        {labels(name=name): int(is_leader)},
    )
