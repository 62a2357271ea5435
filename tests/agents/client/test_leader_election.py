"""Who of several leads: what is written to the Lease, when it is lost, and what is told."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kvstack.agents.client.api import Api
from kvstack.agents.client.leader_election import LeaderElection, LeaseName, Terms
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.process.leading import lease_events
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.support.scripted import Answered, Request, Scripted, refused
from tests.apiserver.support.virtual_time import run
from tests.sim.stack.timing import SimClock
from tests.support.list_log import ListLog

NAME = LeaseName("kube-system", "test")


class Leases:
    """A server of one Lease."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.version = 0
        self.failing: Callable[[Request], Any] = lambda request: None
        self.events: list[str] = []

    def __call__(self, request: Request) -> Any:
        if request.path.endswith("/events"):
            self.events.append(request.body["message"])
            assert request.body["involvedObject"]["kind"] == "Lease"
            return Answered(201, request.body)
        failure = self.failing(request)
        if failure is not None:
            return failure
        if request.method == "GET":
            return refused(404) if self.lease is None else Answered(200, self.lease)
        if request.method == "POST" and self.lease is not None:
            return refused(409)
        given = request.body["metadata"].get("resourceVersion")
        if request.method == "PUT" and given != str(self.version):
            return refused(409)
        return Answered(200, self.set(request.body["spec"]))

    def set(self, spec: Object) -> Object:
        self.version += 1
        meta = {"name": "test", "namespace": "kube-system", "resourceVersion": str(self.version)}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": meta}
        self.lease = {**lease, "spec": spec}
        return self.lease

    @property
    def spec(self) -> Object:
        assert self.lease is not None
        found: Object = self.lease["spec"]
        return found


def candidate(
    server: Leases, name: str, tell: Callable[[str, Object], None] | None = None
) -> LeaderElection:
    api = Api(Scripted(server))
    return LeaderElection(api, NAME, name, SimClock(), lambda: 0.0, ListLog(), Terms(), tell)


async def forever() -> None:
    await asyncio.Event().wait()


def time() -> float:
    return asyncio.get_running_loop().time()


def held_by(name: str, seconds: int = 15, **more: object) -> Object:
    return {
        "holderIdentity": name,
        "leaseDurationSeconds": seconds,
        "acquireTime": "2020-01-01T00:00:00.000000Z",
        "renewTime": "2020-01-01T00:00:00.000000Z",
        "leaseTransitions": 4,
        **more,
    }


def test_a_lease_that_is_not_there_is_made_and_renewed() -> None:
    async def body() -> None:
        server = Leases()
        election = candidate(server, "me")
        running = asyncio.ensure_future(election.run(forever))
        await asyncio.sleep(0.5)
        first = server.spec
        assert (first["holderIdentity"], first["leaseTransitions"]) == ("me", 0)
        assert first["acquireTime"] == first["renewTime"]
        assert first["leaseDurationSeconds"] == 15
        await asyncio.sleep(60)
        assert election.is_leader
        assert server.spec["acquireTime"] == first["acquireTime"]
        assert server.spec["renewTime"] > first["renewTime"]
        assert server.spec["leaseTransitions"] == 0
        assert server.version == 31  # made, and renewed every two seconds
        running.cancel()
        await asyncio.wait((running,))
        assert (server.spec["holderIdentity"], server.spec["leaseDurationSeconds"]) == ("", 1)

    run(body())


@pytest.mark.parametrize(
    ("spec", "waits_s", "transitions"),
    [
        # Another's lease is over by the time it was seen here, whatever its times say.
        (held_by("other"), 15.0, 5),
        (held_by("other", 40), 40.0, 5),
        (held_by(""), 0.0, 5),
        # What is ours is gone on with.
        (held_by("me"), 0.0, 4),
    ],
)
def test_when_a_lease_that_is_there_is_taken(
    spec: Object, waits_s: float, transitions: int
) -> None:
    async def body() -> None:
        server = Leases()
        server.set(spec)
        started: list[float] = []

        async def lead() -> None:
            started.append(time())
            await forever()

        running = asyncio.ensure_future(candidate(server, "me").run(lead))
        await asyncio.sleep(60)
        assert waits_s <= started[0] <= waits_s + 2.0
        assert server.spec["leaseTransitions"] == transitions
        is_kept = server.spec["acquireTime"] == spec["acquireTime"]
        assert is_kept == (spec["holderIdentity"] == "me")
        running.cancel()
        await asyncio.wait((running,))

    run(body())


def test_a_lease_that_is_renewed_is_not_taken() -> None:
    async def body() -> None:
        server = Leases()
        first = asyncio.ensure_future(candidate(server, "first").run(forever))
        await asyncio.sleep(1)
        second = candidate(server, "second")
        waiting = asyncio.ensure_future(second.run(forever))
        await asyncio.sleep(300)
        assert second.holder == "first"
        assert not second.is_leader
        first.cancel()
        await asyncio.sleep(3)
        assert second.is_leader  # it was given back: nobody waits for its end
        waiting.cancel()
        await asyncio.wait((first, waiting))

    run(body())


def hanging(request: Request) -> Any:
    return asyncio.Event().wait()


FAILURES = [lambda request: refused(500), lambda request: UnreachableError("x"), hanging]


@pytest.mark.parametrize("failing", FAILURES, ids=["refused", "unreachable", "no answer"])
def test_a_leader_that_cannot_renew_ends_after_ten_seconds(
    failing: Callable[[Request], Any],
) -> None:
    async def body() -> None:
        server = Leases()
        election = candidate(server, "me")
        running = asyncio.ensure_future(election.run(forever))
        await asyncio.sleep(1)
        server.failing = failing
        await running
        assert 10.0 <= time() <= 13.0
        assert not election.is_leader

    run(body())


def test_one_request_that_gets_no_answer_does_not_cost_the_lease() -> None:
    async def body() -> None:
        server = Leases()
        election = candidate(server, "me")
        running = asyncio.ensure_future(election.run(forever))
        await asyncio.sleep(1)
        lost = [1]
        server.failing = lambda request: hanging(request) if lost and lost.pop() else None
        await asyncio.sleep(60)
        assert election.is_leader
        running.cancel()
        await asyncio.wait((running,))

    run(body())


def test_who_waits_for_the_lease_does_not_wait_for_an_answer_for_ever() -> None:
    async def body() -> None:
        server = Leases()
        lost = [1]
        server.failing = lambda request: hanging(request) if lost and lost.pop() else None
        election = candidate(server, "me")
        running = asyncio.ensure_future(election.run(forever))
        await asyncio.sleep(8)
        assert election.is_leader
        running.cancel()
        await asyncio.wait((running,))

    run(body())


def test_a_leader_whose_lease_another_took_ends_at_once() -> None:
    async def body() -> None:
        server = Leases()
        running = asyncio.ensure_future(candidate(server, "me").run(forever))
        await asyncio.sleep(1)
        server.set(held_by("other"))
        await running
        assert time() <= 3.0
        assert server.spec["holderIdentity"] == "other"

    run(body())


def test_events_tell_who_leads() -> None:
    async def body() -> None:
        server = Leases()
        api = Api(Scripted(server))
        async with lease_events(api, "c", SimClock(), lambda: 0.5, ListLog()) as tell:
            running = asyncio.ensure_future(candidate(server, "me", tell).run(forever))
            await asyncio.sleep(1)
            running.cancel()
            await asyncio.wait((running,))
        assert server.events == ["me became leader", "me stopped leading"]

    run(body())


@pytest.mark.parametrize("terms", [(10, 10.0, 2.0), (15, 2.4, 2.0), (15, 2.0, 2.0)])
def test_terms_under_which_two_could_lead_are_refused(terms: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="must be longer"):
        Terms(*terms)
