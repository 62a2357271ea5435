"""When what is served is made true, and what the health pages say meanwhile."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import orjson
import pytest
from typing_extensions import override

from kvstack.agents.client.api import Api, Event
from kvstack.agents.client.built_in import ENDPOINT_SLICES, NODES, SERVICE_CIDRS, SERVICES
from kvstack.agents.client.informer import Informer
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.proxy.backend import Backend, BackendError
from kvstack.agents.proxy.choice import Here
from kvstack.agents.proxy.cluster_view import Changes, ClusterView
from kvstack.agents.proxy.health import Health
from kvstack.agents.proxy.health_checks import HealthChecks, answer_of
from kvstack.agents.proxy.proxier import Proxier, ProxierOptions, Sources
from kvstack.component.clock import SystemClock
from kvstack.component.line_log.line_logger import LineLogger
from tests.agents.proxy.objects import endpoint, endpoint_slice, service
from tests.support.list_log import ListLog
from tests.support.network.ports import free_ports

WAIT_S = 30.0


class Written(Backend):
    """A backend that keeps what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.failures = 0
        self.is_kept = True
        self.changed = asyncio.Event()

    @property
    @override
    def mode(self) -> str:
        return "kept"

    @override
    async def write(self, changes: Changes, view: ClusterView) -> None:
        self._tell(" ".join(sorted(name.service for name in changes)))

    @override
    async def write_all(self, view: ClusterView) -> None:
        every = sorted(each.port.name.service for each in view.served())
        self._tell(f"all: {' '.join(every)}")

    @override
    def use_service_ranges(self, ranges: tuple[str, ...]) -> bool:
        return bool(ranges)

    @override
    async def is_there(self) -> bool:
        return self.is_kept

    @override
    async def tidy(self) -> None:
        if self.calls and self.calls[-1] != "tidy":
            self.calls.append("tidy")

    @override
    async def close(self) -> None:
        self.calls.append("closed")

    def _tell(self, text: str) -> None:
        if self.failures:
            self.failures -= 1
            raise BackendError("it fails")
        self.calls.append(text)
        self.changed.set()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(WAIT_S):
            while text not in self.calls:
                self.changed.clear()
                await self.changed.wait()


class World:
    """A proxy whose informers are told by hand."""

    def __init__(self, backend: Written | None = None) -> None:
        self.services = informer(SERVICES)
        self.slices = informer(ENDPOINT_SLICES)
        self.nodes = informer(NODES)
        self.ranges = informer(SERVICE_CIDRS)
        self.backend = backend or Written()
        self.proxier = Proxier(
            Sources(self.services, self.slices, self.nodes, self.ranges),
            ProxierOptions("here", min_gap_s=0.01, look_every_s=0.01, health_hosts=("127.0.0.1",)),
            {4: self.backend},
            SystemClock(),
            LineLogger([], "fatal"),
        )

    def fill(self, *services: dict[str, Any]) -> None:
        self.services.replace(list(services), "1")
        self.slices.replace([], "1")
        self.nodes.replace([node()], "1")
        self.ranges.replace([], "1")


def informer(resource: ResourceType) -> Informer:
    nowhere = cast("Api", None)  # it is never run
    return Informer(nowhere, resource, SystemClock(), lambda: 0.5, LineLogger([], "fatal"))


def node(version: str = "1", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "here", "uid": "n", "resourceVersion": version}, "spec": spec}


def story(tell: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World()
        try:
            await tell(world)
        finally:
            await world.proxier.close()
        assert world.backend.calls[-1] == "closed"

    asyncio.run(run())


def test_nothing_is_written_before_all_is_known() -> None:
    async def tell(world: World) -> None:
        starting = asyncio.create_task(world.proxier.start())
        world.services.replace([service()], "1")
        for _ in range(10):
            await asyncio.sleep(0)
        assert world.backend.calls == []
        assert not world.proxier.health.is_well
        world.fill(service())
        await starting
        assert world.backend.calls == ["all: web"]
        assert world.proxier.health.is_well

    story(tell)


def test_one_that_never_began_ends() -> None:
    async def tell(world: World) -> None:
        world.fill(service())

    story(tell)


def test_changes_that_come_together_are_written_together() -> None:
    async def tell(world: World) -> None:
        world.fill(service())
        await world.proxier.start()
        running = asyncio.create_task(world.proxier.run())
        for name in ("a", "b"):
            world.services.apply([Event("ADDED", service(name))])
        world.slices.apply([Event("ADDED", endpoint_slice(endpoint("10.0.0.1")))])
        await world.backend.until("a b web")
        running.cancel()

    story(tell)


def test_after_a_failure_all_is_written() -> None:
    async def tell(world: World) -> None:
        world.fill(service())
        await world.proxier.start()
        world.backend.failures = 1
        running = asyncio.create_task(world.proxier.run())
        world.services.apply([Event("ADDED", service("a"))])
        await world.backend.until("all: a web")
        assert world.proxier.counts.partial_failures == {4: 1}
        assert world.proxier.counts.failures == {}
        assert world.proxier.health.is_well
        running.cancel()

    story(tell)


def test_what_somebody_took_away_is_written_again() -> None:
    async def tell(world: World) -> None:
        world.fill(service())
        await world.proxier.start()
        world.backend.calls.clear()
        world.backend.is_kept = False
        running = asyncio.create_task(world.proxier.run())
        await world.backend.until("all: web")
        running.cancel()

    story(tell)


def test_ranges_that_change_have_all_written() -> None:
    async def tell(world: World) -> None:
        world.fill(service())
        await world.proxier.start()
        world.backend.calls.clear()
        running = asyncio.create_task(world.proxier.run())
        given = {
            "metadata": {"name": "kubernetes", "uid": "k", "resourceVersion": "2"},
            "spec": {"cidrs": ["10.96.0.0/16"]},
        }
        world.ranges.apply([Event("ADDED", given)])
        await world.backend.until("all: web")
        running.cancel()

    story(tell)


def test_health_checks_of_a_service() -> None:
    async def tell(world: World) -> None:
        (port,) = free_ports(1)
        world.fill(
            service(type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=port)
        )
        await world.proxier.start()
        assert await get(port) == 503
        running = asyncio.create_task(world.proxier.run())
        world.slices.apply([Event("ADDED", endpoint_slice(endpoint("10.0.0.1")))])
        async with asyncio.timeout(WAIT_S):
            while await get(port) != 200:
                pass  # each asks the port
        running.cancel()

    story(tell)


def test_a_health_check_without_an_address_is_reported() -> None:
    """It is not served everywhere instead."""
    failures: list[tuple[int, str]] = []

    async def run() -> None:
        (port,) = free_ports(1)
        checks = HealthChecks(
            (), lambda: True, ListLog(), lambda _name, at, why: failures.append((at, why))
        )
        view = ClusterView(4, Here("here"))
        view.set_service(
            None,
            service(type="LoadBalancer", externalTrafficPolicy="Local", healthCheckNodePort=port),
        )
        await checks.follow(view.take_changes())
        assert failures == [(port, "the node has no address that serves node ports")]
        with pytest.raises(ConnectionRefusedError):
            await get(port)
        await checks.close()

    asyncio.run(run())


async def get(port: int) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    status = await reader.readline()
    writer.close()
    return int(status.split()[1])


def test_the_answer_to_a_health_check() -> None:
    code, headers, body = answer_of("ns", "svc", 1, is_well=True)
    assert body.decode() == (
        '{\n\t"service": {\n\t\t"namespace": "ns",\n\t\t"name": "svc"\n\t},\n'
        '\t"localEndpoints": 1,\n\t"serviceProxyHealthy": true\n}'
    )
    assert code == 200
    assert ("X-Load-Balancing-Endpoint-Weight", "1") in headers
    for count, is_well in ((0, True), (1, False)):
        code, _, body = answer_of("ns", "svc", count, is_well=is_well)
        assert code == 503
        assert json.loads(body)["localEndpoints"] == count


def test_what_waits_for_too_long_is_reported() -> None:
    now = [1000.0]
    health = Health((4,), 30.0, lambda: now[0])
    assert health.report(asks_eligible=False)[0] == 503
    health.synced(4)
    assert health.report(asks_eligible=True)[0] == 200
    health.queued()
    now[0] += 60
    assert health.report(asks_eligible=True)[0] == 200
    now[0] += 1
    code, body = health.report(asks_eligible=True)
    assert code == 503
    assert orjson.loads(body) == {
        "lastUpdated": "1970-01-01T00:16:40Z",
        "currentTime": "1970-01-01T00:17:41Z",
        "nodeEligible": True,
        "healthy": False,
        "status": {"IPv4": {"lastUpdated": "1970-01-01T00:16:40Z", "healthy": False}},
    }
    health.synced(4)
    health.is_eligible = False
    assert health.report(asks_eligible=True)[0] == 503
    assert health.report(asks_eligible=False)[0] == 200


def test_balancers_are_notified_of_a_node_that_goes() -> None:
    async def tell(world: World) -> None:
        world.fill()
        await world.proxier.start()
        told = [world.proxier.health.is_eligible]
        taints = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
        world.nodes.apply([Event("MODIFIED", node("2", taints=taints))])
        told.append(world.proxier.health.is_eligible)
        world.nodes.apply([Event("MODIFIED", node("3"))])
        told.append(world.proxier.health.is_eligible)
        world.nodes.apply([Event("DELETED", node("4"))])
        told.append(world.proxier.health.is_eligible)
        assert told == [True, False, True, False]

    story(tell)
