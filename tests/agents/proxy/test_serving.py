"""When a proxy of its own process ends, and what it tells of listeners that cannot be had.

It runs in a network namespace, in the mode without rules.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from copy import deepcopy
from typing import Any, Final, cast

import orjson
import pytest
from typing_extensions import override

from kvstack.agents.client.api import Api, Options
from kvstack.agents.client.series_recorder import SeriesRecorder
from kvstack.agents.proxy import serving
from kvstack.agents.proxy.configuration import DEFAULTS
from kvstack.agents.proxy.serving import Serving
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from tests.agents.proxy.objects import balanced
from tests.agents.support.scripted import Answered, Request, Scripted
from tests.support.list_log import ListLog
from tests.support.network.routed import routed
from tests.support.waiting import eventually

WAIT_S: Final = 60.0
NODES: Final = "/api/v1/nodes"
SERVICES: Final = "/api/v1/services"


class Watched(Answered):
    """Tells of what is there, then of changes as they come."""

    def __init__(self, objects: Sequence[Object]) -> None:
        super().__init__(200)
        self._there = [{"type": "ADDED", "object": each} for each in objects]
        self.changes: asyncio.Queue[Object] = asyncio.Queue()

    @override
    async def pieces(self) -> AsyncIterator[bytes]:
        annotations = {"k8s.io/initial-events-end": "true"}
        end = {"metadata": {"resourceVersion": "1", "annotations": annotations}}
        for each in (*self._there, {"type": "BOOKMARK", "object": end}):
            yield orjson.dumps(each) + b"\n"
        while True:
            yield orjson.dumps(await self.changes.get()) + b"\n"


class Cluster:
    """An API server of a node and Services."""

    def __init__(self, *nodes: Object, services: Sequence[Object] = ()) -> None:
        self._objects = {NODES: nodes, SERVICES: services}
        self._watches: dict[str, Watched] = {}
        self.events: list[Object] = []

    def answer(self, request: Request) -> Answered:
        if request.method == "POST":
            self.events.append(request.body)
            return Answered(201, request.body)
        assert request.query.get("watch") == "true", request
        found = Watched(self._objects.get(request.path, ()))
        self._watches[request.path] = found
        return found

    def tell(self, type_: str, node: Object) -> None:
        self._watches[NODES].changes.put_nowait({"type": type_, "object": node})

    def reasons(self) -> list[str]:
        return [each["reason"] for each in self.events]


def node(version: int = 1, *addresses: str, **spec: Any) -> Object:
    given = [{"type": "InternalIP", "address": each} for each in addresses or ("127.0.0.1",)]
    meta = {"name": "here", "uid": "n", "resourceVersion": str(version)}
    return {"metadata": meta, "spec": spec, "status": {"addresses": given}}


def run(
    cluster: Cluster,
    story: Callable[[Serving, SeriesRecorder], Awaitable[None]],
    log: ListLog | None = None,
    **configuration: Any,
) -> None:
    """Tell a story in a namespace of its own."""
    told = {**deepcopy(DEFAULTS), "mode": "userspace", **configuration}

    async def tell() -> None:
        api = Api(cast("Any", Scripted(cluster.answer)), Options())
        clock, logger = SystemClock(), log or ListLog()
        recorder = SeriesRecorder(api, "kube-proxy", "kube-proxy-here", clock, logger)
        served = Serving(api, recorder, "here", told, clock, logger)
        try:
            async with asyncio.timeout(WAIT_S):
                await story(served, recorder)
        finally:
            await served.stop()
            await recorder.close()

    with routed(()) as network:
        network.run("", lambda: asyncio.run(tell()))


@pytest.mark.parametrize(
    ("mode", "type_", "after", "reason"),
    [
        ("ClusterCIDR", "DELETED", node(2), "node here was deleted"),
        ("ClusterCIDR", "MODIFIED", node(2, "127.0.0.2"), "addresses of node here changed"),
        (
            "NodeCIDR",
            "MODIFIED",
            node(2, podCIDRs=["10.244.1.0/24"]),
            "ranges of pods of node here changed",
        ),
    ],
)
def test_it_ends_when_its_node_becomes_another(
    mode: str, type_: str, after: Object, reason: str
) -> None:
    before = node(podCIDRs=["10.244.0.0/24"])
    if mode == "ClusterCIDR" and type_ == "MODIFIED":
        after["spec"] = before["spec"]
    cluster = Cluster(before)

    async def story(served: Serving, recorder: SeriesRecorder) -> None:
        await served.start()
        labelled = deepcopy(before)
        labelled["metadata"] |= {"resourceVersion": "1a", "labels": {"a": "b"}}
        cluster.tell("MODIFIED", labelled)  # is no reason
        cluster.tell(type_, after)
        with pytest.raises(ConfigError, match=reason):
            await served.ended()
        await recorder.flushed()
        assert cluster.reasons() == ["Starting"]

    run(cluster, story, detectLocalMode=mode)


def test_other_changes_of_its_node_are_no_reason_to_end() -> None:
    cluster = Cluster(node(podCIDRs=["10.244.0.0/24"]))

    async def story(served: Serving, _: SeriesRecorder) -> None:
        await served.start()
        assert served.proxier is not None
        taints = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
        # In another mode than NodeCIDR the range is of no interest.
        cluster.tell("MODIFIED", node(2, podCIDRs=["10.244.1.0/24"], taints=taints))
        await eventually(
            lambda: served.proxier is not None and not served.proxier.health.is_eligible
        )
        ended = asyncio.ensure_future(served.ended())
        await asyncio.sleep(0)
        assert not ended.done()
        ended.cancel()

    run(cluster, story)


def test_a_range_that_never_comes_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "RANGE_S", 0.01)

    async def story(served: Serving, _: SeriesRecorder) -> None:
        with pytest.raises(ConfigError, match=r'timeout waiting for PodCIDR .* on node "here"'):
            await served.start()

    run(Cluster(node()), story, detectLocalMode="NodeCIDR")


def test_a_range_that_comes_late_is_waited_for() -> None:
    cluster = Cluster(node())

    async def story(served: Serving, _: SeriesRecorder) -> None:
        starting = asyncio.ensure_future(served.start())
        await eventually(lambda: NODES in cluster._watches)
        cluster.tell("MODIFIED", node(2, podCIDRs=["10.244.0.0/24"]))
        await starting
        assert served.proxier is not None
        assert served.proxier.mode == "userspace"

    run(cluster, story, detectLocalMode="NodeCIDR")


def test_a_node_that_is_not_there_is_served_on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "NODE_S", 0.01)
    log = ListLog()

    async def story(served: Serving, _: SeriesRecorder) -> None:
        await served.start()
        assert ("the node is not in the API", {"node": "here"}) in log.of("warning")

    run(Cluster(), story, log)


def occupied(port: int) -> socket.socket:
    found = socket.socket()
    found.bind(("127.0.0.1", port))
    found.listen()
    return found


PAGES: Final[dict[str, Any]] = {
    "healthzBindAddress": "127.0.0.1:10256",
    "metricsBindAddress": "127.0.0.1:10249",
}


def test_listeners_that_cannot_be_had_are_events() -> None:
    local = {"externalTrafficPolicy": "Local", "healthCheckNodePort": 32_000}
    cluster = Cluster(node(), services=[balanced("192.0.2.7", **local)])

    async def story(served: Serving, recorder: SeriesRecorder) -> None:
        with occupied(10256), occupied(10249), occupied(32_000):
            await served.start()
        await recorder.flushed()
        assert sorted(cluster.reasons()) == [
            "FailedToStartMetricServer",
            "FailedToStartProxierHealthcheck",
            "FailedToStartServiceHealthcheck",
            "Starting",
        ]
        (check,) = (e for e in cluster.events if e["reason"] == "FailedToStartServiceHealthcheck")
        assert check["type"] == "Warning"
        assert check["regarding"]["name"] == "web"
        assert check["note"].startswith(
            'node here failed to start healthcheck "ns/web" on port 32000: '
        )

    run(cluster, story, None, **PAGES)


def test_listeners_that_must_be_had_end_the_start() -> None:
    async def story(served: Serving, _: SeriesRecorder) -> None:
        with (
            occupied(10249),
            pytest.raises(ConfigError, match=r"metricsBindAddress: 127\.0\.0\.1:"),
        ):
            await served.start()

    run(Cluster(node()), story, None, **PAGES, bindAddressHardFail=True)
