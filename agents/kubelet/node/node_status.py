"""Registers a node, and keeps its status up to date.

A status is computed every few seconds, and written when it differs from what was written, or five
minutes after it was written last. Changes of conditions are recorded as events.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import NODES
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.node import node
from kvstack.agents.kubelet.runtime.runtime import Image, Runtime, StartError
from kvstack.apimachinery.objects.core.node_status import READY
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

_NAMES_MAX: Final = 5
_WAITS_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 7.0)
_READY_EVERY_S: Final = 0.1
_READY_WITHIN_S: Final = 120.0
"""A node that has never been ready is looked at so often, for so long."""


@dataclass(frozen=True, slots=True)
class StatusOptions:
    """Settings of a node's status."""

    every_s: float = 10.0
    report_every_s: float = 300.0
    labels: dict[str, str] = field(default_factory=dict)
    taints: Sequence[Object] = ()
    provider_id: str = ""
    registers: bool = True
    images_max: int = 50
    """The maximum number of images in the status; -1: all."""


class NodeStatus:
    """The node's object in the API."""

    def __init__(
        self,
        api: Api,
        runtime: Runtime,
        machine: node.Machine,
        clock: Clock,
        logger: Logger,
        recorder: EventRecorder,
        options: StatusOptions,
        pressures: Callable[[], Sequence[str]],
    ) -> None:
        """pressures: the types of conditions that hold."""
        self._api = api
        self._runtime = runtime
        self._machine = machine
        self._clock = clock
        self._logger = logger
        self._recorder = recorder
        self._options = options
        self._pressures = pressures
        self._own: node.Self | None = None
        self._written_s = 0.0
        self._written: Object = {}
        self._changed = asyncio.Event()
        self._ranges: Sequence[str] | None = None
        """The pod CIDRs that were passed to the runtime; None: none yet."""
        self._range_problem = ""
        self._was_ready = False
        self._said = ""
        self.extended: Callable[[], Mapping[str, tuple[int, int]]] = dict
        """Devices of plugins by resource: all, and those that pods may have."""
        self.volumes_in_use: Callable[[], Sequence[str]] = tuple
        """Unique names of what has to stay attached."""
        self.object: Object = {}
        """The node as it was read or written last."""

    async def register(self, own: node.Self) -> None:
        """Make the node, or take the one that is there; and say how it is."""
        self._own = own
        waits = iter(_WAITS_S)
        while True:
            try:
                self.object = await self._make(own)
                break
            except (ApiError, UnreachableError) as error:
                wait_s = next(waits, _WAITS_S[-1])
                self._logger.warning(
                    "failed to register the node", error=str(error), again_in_s=wait_s
                )
                await asyncio.sleep(wait_s)
        self._recorder.record(self.object, "Normal", "Starting", "Starting kubelet.")
        self._tell_restart()
        await self._use_ranges()
        await self._write_or_tell()

    def _tell_restart(self) -> None:
        """Record an event if the machine was rebooted since the last status."""
        info = (self.object.get("status") or {}).get("nodeInfo") or {}
        known, boot_id = info.get("bootID"), self._machine.boot_id
        if known and boot_id and known != boot_id:
            name = self.object["metadata"]["name"]
            text = f"Node {name} has been rebooted, boot id: {boot_id}"
            self._recorder.record(self.object, "Warning", "Rebooted", text)

    async def _make(self, own: node.Self) -> Object:
        options = self._options
        fresh = node.new_node(
            own.name, self._machine, options.labels, options.taints, options.provider_id
        )
        if not options.registers:
            return await self._api.get(NODES, "", own.name)
        try:
            return await self._api.create(NODES, "", fresh)
        except ApiError as error:
            if not (error.is_conflict or error.is_forbidden):  # it exists, or may not be created
                raise
        node_object = await self._api.get(NODES, "", own.name)
        missing = node.asserted(fresh, node_object)
        if missing:
            body = orjson.dumps({"metadata": missing})
            path = NODES.path("", own.name)
            node_object = await self._api.call(
                "PATCH", path, None, body, media_type=STRATEGIC_MERGE_PATCH
            )
        return node_object

    async def read(self) -> None:
        """Read the node again; raises ApiError, UnreachableError."""
        self.object = await self._api.get(NODES, "", self.object["metadata"]["name"])

    def say(self, problem: str) -> None:
        """Be not ready from now on."""
        self._said = problem
        self.look_again()

    def look_again(self) -> None:
        """Schedule an update: a part of the status has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Keep the status true until cancelled."""
        begun_s = self._clock.monotonic_s()
        while True:
            is_young = self._clock.monotonic_s() - begun_s < _READY_WITHIN_S
            waits_for_ready = not self._was_ready and is_young
            try:
                async with asyncio.timeout(
                    _READY_EVERY_S if waits_for_ready else self._options.every_s
                ):
                    await self._changed.wait()
            except TimeoutError:
                self._logger.debug("updating the node's status")
            self._changed.clear()
            try:
                before = self.object
                await self.read()
                self._tell_schedulable(before)
                await self._use_ranges()
            except (ApiError, UnreachableError) as error:
                self._logger.warning("failed to read the node's status", error=str(error))
                continue
            await self._write_or_tell()

    async def _use_ranges(self) -> None:
        """Pass the node's pod CIDRs to the runtime, at first and when they change."""
        spec = self.object.get("spec") or {}
        ranges = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
        if self._ranges is None or (ranges and ranges != self._ranges):
            try:
                await self._runtime.use_ranges(ranges)
            except StartError as error:  # with the next look at the node's status, too
                if error.message != self._range_problem:
                    text = "the network of pods cannot be made"
                    self._logger.warning(text, reason=error.message)
                self._range_problem = error.message
                return
            self._ranges, self._range_problem = ranges, ""

    async def _write_or_tell(self) -> None:
        """Write the status; failures are logged, and retried with the next update."""
        try:
            await self._write()
        except (ApiError, UnreachableError) as error:
            self._logger.warning("failed to write the node's status", error=str(error))

    async def _write(self) -> None:
        """Write the status if it has changed, or was written long ago."""
        assert self._own is not None, "the node is registered"
        node_object, now_s = self.object, self._clock.now_s()
        old = node_object.get("status") or {}
        problem = self._said or self._runtime.problem()
        if not self._was_ready and not problem:
            self._was_ready = True
            self._logger.info("the node is ready for pods", pod_ranges=list(self._ranges or ()))
        images = sorted(await self._runtime.images(), key=lambda each: -each.size_bytes)
        conditions = node.conditions(old.get("conditions") or (), self._pressures(), problem, now_s)
        most = self._options.images_max
        shown = [_image(each) for each in (images if most < 0 else images[:most])]
        abilities = self._runtime.abilities()
        status = node.status(self._machine, self._own, shown, conditions, abilities)
        for name, (whole, usable) in self.extended().items():
            status["capacity"][name], status["allocatable"][name] = str(whole), str(usable)
        in_use = list(self.volumes_in_use())
        if in_use or old.get("volumesInUse"):
            status["volumesInUse"] = in_use or None
        is_due = now_s - self._written_s >= self._options.report_every_s
        if not is_due and node.same(status, self._written) and _is_kept(old, conditions):
            return
        meta = node_object["metadata"]
        patch = {**status, "addresses": [*status["addresses"], {"$patch": "replace"}]}
        body = orjson.dumps({"metadata": {"uid": meta["uid"]}, "status": patch})
        path = NODES.path("", meta["name"], "status")
        await self._api.call("PATCH", path, None, body, media_type=STRATEGIC_MERGE_PATCH)
        self._tell_changes(old.get("conditions") or (), conditions)
        self._written, self._written_s = status, now_s
        self.object = {**node_object, "status": {**old, **status}}

    def _tell_schedulable(self, before: Object) -> None:
        """Record an event if the node was cordoned or uncordoned."""
        now = _is_cordoned(self.object)
        if now != _is_cordoned(before):
            reason = "NodeNotSchedulable" if now else "NodeSchedulable"
            self._record(reason)

    def _tell_changes(self, old: Sequence[Object], new: Sequence[Object]) -> None:
        for reason in changed(old, new):
            self._record(reason)

    def _record(self, reason: str) -> None:
        text = f"Node {self.object['metadata']['name']} status is now: {reason}"
        self._recorder.record(self.object, "Normal", reason, text)


def changed(old: Sequence[Object], new: Sequence[Object]) -> Iterator[str]:
    """Yield the reasons of events for conditions that are others than before.

    A new node has not become ready or unready: it was neither.
    """
    before = {each["type"]: each["status"] for each in old}
    for each in new:
        type_, value = each["type"], each["status"]
        if before.get(type_) == value:
            continue
        if type_ != READY:
            yield each["reason"].replace("Kubelet", "Node", 1)
        elif type_ in before:
            yield "NodeReady" if value == "True" else "NodeNotReady"


def _is_cordoned(found: Object) -> bool:
    return bool((found.get("spec") or {}).get("unschedulable"))


def _is_kept(old: Object, conditions: Sequence[Object]) -> bool:
    """Whether the API's conditions are still those that were written."""
    values = {each["type"]: each["status"] for each in old.get("conditions") or ()}
    return all(values.get(each["type"]) == each["status"] for each in conditions)


def _image(image: Image) -> Object:
    return {"names": list(image.names[:_NAMES_MAX]), "sizeBytes": image.size_bytes}
