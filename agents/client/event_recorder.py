"""Writes Events about objects, in the background, correlated and dropped as upstream does.

    recorder = EventRecorder(api, "deployment-controller", clock, random, logger)
    recorder.record(deployment, "Normal", "ScalingReplicaSet", "Scaled up …")
    await recorder.flushed()

Recording never blocks: the newest are dropped when a thousand wait. What the server refuses is
not tried again; without an answer an event is tried twelve times.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final
from uuid import UUID

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import EVENTS
from kvstack.agents.client.event_correlation import Correlated, EventCorrelator
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_subdomain
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import format_time
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

_WAITING_MAX: Final = 1000
_TRIES: Final = 12
_AGAIN_S: Final = 10.0
_COUNTED: Final = ("count", "lastTimestamp", "message")


class EventRecorder:
    """Records events of one component."""

    def __init__(
        self,
        api: Api,
        component: str,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        *,
        host: str = "",
    ) -> None:
        """host: the node of a kubelet."""
        self._api = api
        self._component = component
        self._clock = clock
        self._random = random
        self._logger = logger
        self._host = host
        self._correlator = EventCorrelator()
        self._waiting: deque[Object] = deque()
        self._task: asyncio.Task[None] | None = None
        self._last_ns = 0

    def record(
        self,
        about: Object,
        type_: str,
        reason: str,
        message: str,
        *,
        field_path: str = "",
        annotations: dict[str, str] | None = None,
    ) -> None:
        """Record an event about an object, or (without metadata) about a reference."""
        if len(self._waiting) >= _WAITING_MAX:
            self._logger.warning("an event was dropped", reason=reason, limit=_WAITING_MAX)
            return
        reference = reference_to(about)
        if field_path:
            reference["fieldPath"] = field_path
        self._waiting.append(self._event(reference, type_, reason, message, annotations))
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all(), name="events")

    @property
    def is_idle(self) -> bool:
        """Whether all recorded events are written, or dropped."""
        return self._task is None or self._task.done()

    async def flushed(self) -> None:
        """Wait until what was recorded is written, or given up."""
        while self._task is not None and not self._task.done():
            await asyncio.wait((self._task,))

    async def close(self) -> None:
        """Give up what waits."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    def _event(
        self,
        reference: Object,
        type_: str,
        reason: str,
        message: str,
        annotations: dict[str, str] | None,
    ) -> Object:
        now_s = self._clock.now_s()
        # Names must differ even if the clock does not advance.
        self._last_ns = max(int(now_s * 1e9), self._last_ns + 1)
        now = format_time(now_s)
        namespace = reference.get("namespace") or "default"
        meta: Object = {"name": self._name(reference["name"]), "namespace": namespace}
        if annotations:
            meta["annotations"] = annotations
        source = {"component": self._component}
        if self._host:
            source["host"] = self._host
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": meta,
            "involvedObject": reference,
            "reason": reason,
            "message": message,
            "source": source,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": type_,
            "reportingComponent": self._component,
            "reportingInstance": self._host,
        }

    def _name(self, about: str) -> str:
        """Return the name of an event; of what may not begin one (`system:node`), another."""
        name = f"{about}.{self._last_ns:x}"
        if not name_is_dns_subdomain(name, False):
            return name
        return str(UUID(int=int(self._random() * 2**53) << 75 | self._last_ns, version=4))

    async def _write_all(self) -> None:
        while self._waiting:
            event = self._waiting.popleft()
            correlated = self._correlator.correlate(event, self._clock.now_s())
            if correlated is not None:
                await self._write(correlated)

    async def _write(self, correlated: Correlated) -> None:
        is_patch = correlated.is_patch
        event = correlated.event
        meta = event["metadata"]
        for attempt in range(_TRIES):
            try:
                if is_patch:
                    counted = {name: event[name] for name in _COUNTED}
                    await self._api.patch(
                        EVENTS, meta["namespace"], meta["name"], counted, STRATEGIC_MERGE_PATCH
                    )
                else:
                    await self._api.create(EVENTS, meta["namespace"], event)
            except ApiError as error:
                if is_patch and error.is_not_found:
                    is_patch = False
                    continue
                self._logger.debug("the API server refused an event", error=error.message)
                return
            except UnreachableError as error:
                self._logger.debug("failed to write an event", error=str(error))
                await asyncio.sleep(_AGAIN_S * (self._random() if attempt == 0 else 1.0))
            else:
                return


def reference_to(obj: Object) -> Object:
    """Return the ObjectReference of an object; a reference is returned as it is, copied."""
    if "metadata" not in obj:
        return dict(obj)
    meta = obj["metadata"]
    reference: Object = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"]}
    for target, source in (
        ("namespace", "namespace"),
        ("uid", "uid"),
        ("resourceVersion", "resourceVersion"),
    ):
        if meta.get(source):
            reference[target] = meta[source]
    return reference
