"""Runs hollow nodes: registers them, renews their leases, and simulates their pods.

    nodes = HollowNodes(api, informers, clock, random, logger, HollowOptions(nodes.named(100)))
    await nodes.start(); …; await nodes.stop()

One informer of nodes and one of pods serve all nodes; a few workers carry out what is due. Leases
have a task of their own, so that no number of pods makes nodes look dead. What runs on a node is
known to its `HollowRuntime`, what pods do is decided in `pods`. The user must be allowed to write
all nodes, leases and pods.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Final

import orjson

from kvstack.agents.client.activity import Activity, Due, Moving
from kvstack.agents.client.api import Api
from kvstack.agents.client.back_off import FailureBackOff
from kvstack.agents.client.built_in import NODES, PODS
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.client.work_queue import QueueClosedError, WorkQueue
from kvstack.agents.kubelet.hollow import nodes, pods
from kvstack.agents.kubelet.hollow.hollow_runtime import HollowRuntime, container_of
from kvstack.agents.kubelet.hollow.loads import IDLE, load_of
from kvstack.agents.kubelet.hollow.pod_ranges import range_of
from kvstack.agents.kubelet.node.leases import DURATION_S, Leases
from kvstack.agents.kubelet.runtime.runtime import StartError, Usage
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

LEASES_TO_MISS: Final = 4
"""A lease lasts for so many renewals, as kubelet's does."""
_NODE: Final = "node"
_POD: Final = "pod"
_WORKERS: Final = 8
_BY_NODE: Final = "spec.nodeName"
_BACK_OFF_BASE_S: Final = 0.01
_BACK_OFF_MAX_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class HollowOptions:
    """The hollow nodes of a process."""

    names: Sequence[str] = ()
    """The nodes that are created at the start."""
    adopts: bool = True
    """Whether nodes of others with the label are run too."""
    found: Sequence[str] = ()
    """Nodes of a copied cluster: what their objects say stays as it is, and so do the pods that had
    begun on them, until they are deleted."""
    lease_every_s: float = 10.0
    ready_after_s: float = 0.0
    """How long pods run before they are ready, except those that end on their own."""


class _Node:
    """A node that is run here."""

    __slots__ = ("ip", "is_found", "is_written", "keeps_status", "number", "runtime", "uid")

    def __init__(
        self,
        number: int,
        uid: str,
        ip: str,
        runtime: HollowRuntime,
        *,
        is_found: bool,
        keeps_status: bool,
    ) -> None:
        self.number = number
        self.uid = uid
        self.ip = ip
        self.runtime = runtime
        self.is_found = is_found
        """Whether it is a node of a copied cluster."""
        self.keeps_status = keeps_status
        """Whether its object already has the node's status."""
        self.is_written = keeps_status
        """Whether its status was written."""


class _Memory:
    """The state that is kept of a pod."""

    __slots__ = ("is_ended", "node", "ready", "running_since_s", "uid")

    def __init__(self, uid: str, node: _Node) -> None:
        self.uid = uid
        self.node = node
        self.is_ended = False
        self.ready: bool | None = None
        self.running_since_s: float | None = None  # monotonic


class HollowNodes:
    """Many nodes; all of it belongs to one loop."""

    def __init__(
        self,
        api: Api,
        informers: Informers,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        options: HollowOptions,
    ) -> None:
        """random: spreads the first renewals of leases."""
        self._api = api
        self._informers = informers
        self._clock = clock
        self._logger = logger
        self._options = options
        self._found: Final = frozenset(options.found)
        self._own: Final = {name: number for number, name in enumerate(options.names, start=1)}
        self._last_number = len(self._own)
        self._nodes: dict[str, _Node] = {}
        self._memories: dict[str, _Memory] = {}  # by key of the pod
        back_off = FailureBackOff(clock, _BACK_OFF_BASE_S, _BACK_OFF_MAX_S)
        self._queue: WorkQueue[tuple[str, str]] = WorkQueue(clock, back_off)
        lasts_s = max(DURATION_S, round(LEASES_TO_MISS * options.lease_every_s))
        self._leases = Leases(api, clock, random, logger, options.lease_every_s, lasts_s)
        self._tasks: list[asyncio.Task[None]] = []
        self._is_running = False
        self._untold = len(self._own)
        self._all_written = asyncio.Event()

    @property
    def names(self) -> Sequence[str]:
        """The nodes that are run now."""
        return tuple(self._nodes)

    def runs(self, name: str) -> bool:
        """Whether a node is run here."""
        return name in self._nodes

    def usage(self, name: str) -> list[tuple[Object, Sequence[Usage]]]:
        """Return what the pods of a node use; none for a node that is not run here."""
        node = self._nodes.get(name)
        if node is None:
            return []
        found = []
        for pod in self._pod_store.by_index(_BY_NODE, name):
            used = node.runtime.usage_of(pod["metadata"]["uid"])
            if used:
                found.append((pod, used))
        return found

    def add_activity(self, found: Activity) -> None:
        """Add what nodes do for themselves and their pods; leases are renewed all the time."""
        for (kind, key), is_worked_on in self._queue.in_hand():
            why = "is worked on" if is_worked_on else "waits to be worked on"
            found.moving.append(Moving("kubelet", f"{kind} {key}", why))
        for (kind, key), in_s in self._queue.due():
            found.due.append(Due("kubelet", f"{kind} {key}", in_s))

    async def start(self) -> None:
        """Create the requested nodes, and return once all of them are ready."""
        self._is_running = True
        node_informer, pod_informer = self._informers.of(NODES), self._informers.of(PODS)
        pod_informer.store.add_index(_BY_NODE, _node_of_pod)
        self._node_store, self._pod_store = node_informer.store, pod_informer.store
        await node_informer.synced()
        await pod_informer.synced()
        loop = asyncio.get_running_loop()
        node_informer.on_change(self._node_changed)
        pod_informer.on_change(self._pod_changed)
        self._tasks.append(loop.create_task(self._leases.run(), name="leases of hollow nodes"))
        for number in range(_WORKERS):
            task = loop.create_task(self._work(), name=f"worker {number} of hollow nodes")
            self._tasks.append(task)
        for name in self._own:
            if self._node_store.get(name) is None:
                self._queue.add((_NODE, name))
        if self._own:
            await self._all_written.wait()

    async def stop(self) -> None:
        """Stop all nodes; work under way is cancelled."""
        self._is_running = False
        self._queue.close()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(done, BaseException) and not isinstance(done, asyncio.CancelledError):
                raise done

    # What changes.

    def _node_changed(self, _old: Object | None, new: Object | None) -> None:
        if not self._is_running:
            return
        if new is None:
            if _old is not None:
                self._forget_node(_old["metadata"]["name"])
            return
        name = new["metadata"]["name"]
        node = self._nodes.get(name)
        if node is None and self._is_run(new, name):
            self._adopt(new)
            return
        if node is None:
            return
        # The cluster may give a node its range only now.
        node.runtime.use_network(_range(node.number, new))
        if node.is_written and nodes.is_given_up(new):
            node.is_written = False
            self._queue.add((_NODE, name))

    def _is_run(self, node: Object, name: str) -> bool:
        return (
            name in self._own
            or name in self._found
            or (self._options.adopts and nodes.is_hollow(node))
        )

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        pod = new or old
        if not self._is_running or pod is None or _node_of_pod(pod)[0] not in self._nodes:
            return
        if new is None:
            self._forget_pod(key_of(pod), pod["metadata"]["uid"])
        else:
            self._see_readiness(old, new)
            if old is None or _annotations(old) != _annotations(new):
                self._see_load(new)
            self._queue.add((_POD, key_of(pod)))

    def _see_readiness(self, old: Object | None, new: Object) -> None:
        """Notice that a pod was marked not ready, as while its node was silent."""
        memory = self._memories.get(key_of(new))
        if memory is None or not memory.ready or old is None:
            return
        if pods.says_ready(old.get("status") or {}) and not pods.says_ready(
            new.get("status") or {}
        ):
            memory.ready = None  # the pod's object counts, not what was written last

    def _see_load(self, pod: Object) -> None:
        """Set the load of a pod by its annotations."""
        memory = self._memories.get(key_of(pod))
        if memory is None or memory.uid != pod["metadata"]["uid"]:
            return
        try:
            load = load_of(_annotations(pod))
        except ValueError as error:
            load = IDLE
            self._logger.warning("a pod uses little", key=key_of(pod), error=str(error))
        memory.node.runtime.use_load(memory.uid, load)

    def _adopt(self, obj: Object) -> None:
        meta = obj["metadata"]
        name = meta["name"]
        own = self._own.get(name)
        if own is None:
            self._last_number += 1
        number = own or self._last_number
        is_found = name in self._found
        keeps_status = is_found and nodes.has_conditions(obj)
        ip = nodes.address(number, is_own=own is not None)
        if keeps_status:
            ip = nodes.internal_ip(obj) or ip
        runtime = HollowRuntime(_range(number, obj), self._clock, name)
        node = _Node(number, meta["uid"], ip, runtime, is_found=is_found, keeps_status=keeps_status)
        self._nodes[name] = node
        self._leases.keep(obj)
        self._queue.add((_NODE, name))
        for pod in self._pod_store.by_index(_BY_NODE, name):
            self._remember(key_of(pod), pod, node)
            self._queue.add((_POD, key_of(pod)))

    def _forget_node(self, name: str) -> None:
        node = self._nodes.pop(name, None)
        if node is None:
            return
        self._leases.drop(name)
        for key in [key for key, each in self._memories.items() if each.node is node]:
            del self._memories[key]
        if self._untold:  # it went while the nodes were being made
            self._queue.add((_NODE, name))

    def _remember(self, key: str, pod: Object, node: _Node) -> _Memory:
        """Return what is known of a pod; one that runs already keeps its address."""
        uid = pod["metadata"]["uid"]
        memory = self._memories.get(key)
        if memory is not None and memory.uid == uid and memory.node is node:
            return memory
        if memory is not None:
            self._forget_pod(key, memory.uid)
        memory = self._memories[key] = _Memory(uid, node)
        address = (pod.get("status") or {}).get("podIP", "")
        if address:
            node.runtime.keep(uid, "" if pods.is_on_host_network(pod) else address)
            for name, number, image, started_s in pods.running_containers(pod):
                node.runtime.restore(container_of(uid, name, number, image, started_s))
            self._see_load(pod)
        return memory

    def _forget_pod(self, key: str, uid: str) -> None:
        memory = self._memories.get(key)
        if memory is not None and memory.uid == uid:
            del self._memories[key]
            memory.node.runtime.forget(uid)

    # What is done.

    async def _work(self) -> None:
        while True:
            try:
                item = await self._queue.get()
            except QueueClosedError:
                return
            kind, key = item
            try:
                await (self._sync_node(key) if kind == _NODE else self._sync_pod(key))
                self._queue.forget(item)
            except (ApiError, UnreachableError, StartError) as error:
                self._failed(item, error)
            except Exception as error:  # noqa: BLE001 - logged and tried again; other nodes go on
                self._logger.error("a hollow node failed", key=key, error=repr(error))
                self._queue.add_rate_limited(item)
            finally:
                self._queue.done(item)

    def _failed(self, item: tuple[str, str], error: Exception) -> None:
        """Try again; what changed meanwhile or is gone needs no word."""
        wait_s = self._queue.add_rate_limited(item)
        is_usual = isinstance(error, ApiError) and (error.is_not_found or error.is_conflict)
        say = self._logger.debug if is_usual else self._logger.warning
        kind, key = item
        say("a write failed", what=kind, key=key, error=str(error), again_in_s=round(wait_s, 3))

    async def _sync_node(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            if name in self._own and self._node_store.get(name) is None and self._untold:
                await self._register(name)
            return
        if node.is_written:
            return
        now_s = self._clock.now_s()
        if node.keeps_status:
            status: Object = {"conditions": nodes.conditions(now_s)}
        else:
            status = nodes.status(node.ip, now_s)
        await self._patch_status(NODES.path("", name, "status"), node.uid, status)
        node.is_written = True
        if name in self._own and self._untold:
            self._untold -= 1
            if not self._untold:
                self._all_written.set()

    async def _register(self, name: str) -> None:
        """Make a node; the informer then brings it here."""
        try:
            await self._api.create(NODES, "", nodes.new_node(name, self._own[name]))
        except ApiError as error:
            if not error.is_conflict:
                raise

    async def _sync_pod(self, key: str) -> None:
        pod = self._pod_store.get(key)
        node = None if pod is None else self._nodes.get(_node_of_pod(pod)[0])
        if pod is None or node is None:
            return
        memory = self._remember(key, pod, node)
        if node.is_found and memory.running_since_s is None and pods.has_begun(pod):
            return
        running_s = None
        if memory.running_since_s is not None:
            running_s = self._clock.monotonic_s() - memory.running_since_s
        ready_after_s = self._ready_after_s(pod)
        step = pods.next_step(
            pod, running_s, written_ready=memory.ready, ready_after_s=ready_after_s
        )
        match step:
            case pods.Start():
                await self._start(key, pod, memory)
            case pods.Finish():
                if not memory.is_ended:
                    await self._patch_pod(pod, pods.ended_status(pod, self._clock.now_s()))
                    _end(pod, node.runtime)
                    memory.is_ended = True
            case pods.SetReady(is_ready):
                status = pods.ready_status(pod, self._clock.now_s(), is_ready=is_ready)
                await self._patch_pod(pod, status)
                memory.ready = is_ready
            case pods.Remove():
                meta = pod["metadata"]
                await self._remove(meta["namespace"], meta["name"], meta["uid"])
            case pods.Wait(seconds):
                self._queue.add_after((_POD, key), seconds)
            case None:
                pass

    def _ready_after_s(self, pod: Object) -> float:
        return 0.0 if pods.ends(pod) else self._options.ready_after_s

    async def _start(self, key: str, pod: Object, memory: _Memory) -> None:
        if memory.running_since_s is not None:
            return  # written, but not seen yet
        runtime, uid = memory.node.runtime, memory.uid
        address = runtime.connect_pod(uid, is_on_host=pods.is_on_host_network(pod))
        containers = {each.name: each for each in runtime.of_pod(uid)}  # of a write that failed
        for wanted, exit_code in pods.containers_to_start(pod):
            name = wanted["name"]
            if name not in containers:
                found = containers[name] = runtime.begin(uid, name, 0, wanted["image"])
                if exit_code is not None:
                    runtime.end(found, exit_code)
        self._see_load(pod)
        now_s = self._clock.now_s()
        delay_s = self._ready_after_s(pod)
        status = pods.starting_status(
            pod, memory.node.ip, address, containers, now_s, may_be_ready=delay_s <= 0
        )
        await self._patch_pod(pod, status)
        memory.running_since_s = self._clock.monotonic_s()
        memory.ready = pods.wants_ready(pod) and delay_s <= 0
        if delay_s > 0:
            self._queue.add_after((_POD, key), delay_s)
        if pods.ends(pod):
            self._queue.add_after((_POD, key), pods.RUNS_S)

    async def _remove(self, namespace: str, name: str, uid: str) -> None:
        try:
            await self._api.delete(PODS, namespace, name, uid=uid, grace_s=0)
        except ApiError as error:
            if not (error.is_not_found or error.is_conflict):  # gone, or another of the same name
                raise

    async def _patch_pod(self, pod: Object, status: Object) -> None:
        meta = pod["metadata"]
        path = PODS.path(meta["namespace"], meta["name"], "status")
        try:
            await self._patch_status(path, meta["uid"], status)
        except ApiError as error:
            if not error.is_not_found:  # it is gone: nothing is to be said of it
                raise

    async def _patch_status(self, path: str, uid: str, status: Object) -> None:
        body = orjson.dumps({"metadata": {"uid": uid}, "status": status})
        await self._api.call("PATCH", path, None, body, media_type=STRATEGIC_MERGE_PATCH)


def _annotations(pod: Object) -> dict[str, str]:
    return pod["metadata"].get("annotations") or {}


def _range(number: int, node: Object) -> IPv4Network:
    return range_of(number, (node.get("spec") or {}).get("podCIDR", ""))


def _end(pod: Object, runtime: HollowRuntime) -> None:
    """End the containers of a pod as its annotations say; its sidecars end well."""
    code, sidecars = pods.exit_code(pod), pods.sidecar_names(pod)
    for each in runtime.of_pod(pod["metadata"]["uid"]):
        runtime.end(each, 0 if each.name in sidecars else code)


def _node_of_pod(pod: Object) -> tuple[str]:
    return (pod["spec"].get("nodeName", ""),)
