"""Runs the pods of one node.

    kubelet = Kubelet(api, runtime, machine, clock, chance, logger, options)
    await kubelet.start(); …; await kubelet.stop()

    its pods (a watch; files) ─► pod_sync: worker.step ─► the runtime starts and stops containers
                                       ▲                        │
                                       └── what ended ◄─────────┘        status_writer ─► API

One pod is never worked on twice at a time. `node_status` tells how the node is, `housekeeping`
cleans up after its pods.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from kvstack.agents.client.api import Api
from kvstack.agents.client.back_off import FailureBackOff
from kvstack.agents.client.built_in import PODS, RUNTIME_CLASSES, SERVICES
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.informer import Informer
from kvstack.agents.client.timing import Clock
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.client.work_queue import QueueClosedError, WorkQueue
from kvstack.agents.kubelet import node
from kvstack.agents.kubelet.eviction.eviction_manager import HARD_GRACE_S
from kvstack.agents.kubelet.housekeeping import Housekeeping, KeepingOptions
from kvstack.agents.kubelet.image_manager import ImageManager
from kvstack.agents.kubelet.leases import DURATION_S, Leases
from kvstack.agents.kubelet.log_links import LogLinks
from kvstack.agents.kubelet.lost import lost_containers
from kvstack.agents.kubelet.node_status import NodeStatus, StatusOptions
from kvstack.agents.kubelet.pod_sync import PodRecord, PodSync, Tools
from kvstack.agents.kubelet.pods.admission import (
    NODE_AFFINITY,
    OUT_OF,
    Refusal,
    refusal,
    victims,
)
from kvstack.agents.kubelet.pods.environment import Addresses
from kvstack.agents.kubelet.pods.restarts import MAX_S
from kvstack.agents.kubelet.pods.sandboxes import NodeNames, NodeSettings, is_critical
from kvstack.agents.kubelet.pods.status import refused_status
from kvstack.agents.kubelet.pods.worker import is_ended
from kvstack.agents.kubelet.preparation import Preparation
from kvstack.agents.kubelet.prober import Prober
from kvstack.agents.kubelet.runtime.process.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.runtime import Runtime, StartError
from kvstack.agents.kubelet.static_pods import (
    StaticPods,
    StaticSettings,
    is_mirror,
    is_mirror_of,
    mirror_of,
)
from kvstack.agents.kubelet.status_writer import StatusWriter
from kvstack.agents.kubelet.volumes import directories
from kvstack.agents.kubelet.volumes.pod_volumes import PodVolumes
from kvstack.apiserver.objects.status import ApiError
from kvstore.logger import Logger

Object: TypeAlias = dict[str, Any]

_WORKERS: Final = 32
_BY_UID: Final = "uid"
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_LEASE_PART: Final = 0.25
"""Of the time that a lease lasts: after so much it is renewed."""
_PLACE_S: Final = 0.5
_MIRROR_S: Final = 5.0
_CGROUP_V1: Final = "cgroup v1 support is in maintenance mode, please migrate to cgroup v2"
_PREEMPTED: Final = "Preempted in order to admit critical pod"


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """Settings of one node."""

    name: str
    ip: str
    root: Path
    port: int = 10250
    pods_max: int = 110
    ignores_limits: bool = False
    logs: Path | None = None
    """Of pods; None: in the node's own directory."""
    cgroup_root: str = "kubepods"
    names: NodeNames = field(default_factory=NodeNames)
    seccomp_default: bool = False
    pids_max: int = -1
    """Processes of a pod; -1: as many as it likes."""
    back_off_max_s: float = MAX_S
    """Of containers that crash."""
    static: StaticSettings = field(default_factory=StaticSettings)
    static_every_s: float = 20.0
    reserved: dict[str, str] = field(default_factory=dict)
    status: StatusOptions = field(default_factory=StatusOptions)
    keeping: KeepingOptions = field(default_factory=KeepingOptions)
    log_links: Path | None = None
    """Where all logs are linked to; None: nowhere."""
    allowed_sysctls: Sequence[str] = ()
    """Besides those that are safe."""
    lease_s: int = DURATION_S
    """How long the node counts as alive after its last renewal."""


class Kubelet:
    """One node; all of it belongs to one loop."""

    def __init__(
        self,
        api: Api,
        runtime: Runtime,
        machine: node.Machine,
        clock: Clock,
        chance: Callable[[], float],
        logger: Logger,
        options: KubeletOptions,
    ) -> None:
        """Run nothing yet; `container_ended` is to be told of containers that end."""
        self.options: Final = options
        self.runtime: Final = runtime
        self.machine: Final = machine
        self._api = api
        self._clock = clock
        self._logger = logger
        fields = f"spec.nodeName={options.name}"
        self._informer = Informer(api, PODS, clock, chance, logger, fields=fields)
        self._informer.store.add_index(_BY_UID, lambda pod: (pod["metadata"]["uid"],))
        self._services = Informer(api, SERVICES, clock, chance, logger)
        self._static = StaticPods(options.static, options.name, _page)
        self._recorder = EventRecorder(api, "kubelet", clock, chance, logger, host=options.name)
        settings = NodeSettings(
            str(options.logs or options.root / "logs"),
            machine.memory_kib * 1024,
            options.cgroup_root,
            options.names,
            options.seccomp_default,
            options.pids_max,
            str(options.root / "seccomp"),
        )
        hard = options.keeping.evictions.hard
        allocatable = node.allocatable(machine, options.pods_max, options.reserved, hard)
        self.prober: Final = Prober(runtime, clock, chance, self._warn)
        self._images = ImageManager(api, runtime, clock, self._event)
        self._volumes = PodVolumes(api, clock, chance, allocatable)
        self.links: Final = LogLinks(options.log_links)
        self._queue: WorkQueue[str] = WorkQueue(clock, FailureBackOff(clock, 0.05, 10.0))
        self._sync = PodSync(
            Tools(
                runtime,
                clock,
                self._images,
                self._volumes,
                Preparation(self._services.store, settings, allocatable),
                self.prober,
                self._recorder,
                settings,
                options.ip,
                self.pod_directory,
                self._queue.add,
                self._handler,
                self.links,
            )
        )
        self._writer = StatusWriter(api)
        self.keeping: Final = Housekeeping(self, settings, clock, chance, logger, self._recorder)
        self.node: Final = NodeStatus(
            api,
            runtime,
            machine,
            clock,
            logger,
            self._recorder,
            options.status,
            self.keeping.pressures,
        )
        self._leases = Leases(
            api, clock, chance, logger, options.lease_s * _LEASE_PART, options.lease_s
        )
        self._records: dict[str, PodRecord] = {}  # by uid
        self._tasks: list[asyncio.Task[None]] = []
        self._knows_all = False
        """Whether it is known which pods the API has; before, none is unwanted."""
        self.port = options.port
        self.started_s = clock.now_s()

    async def start(self, port: int = 0) -> None:
        """Register the node, and return once it is ready and its pods are known.

        port: of its HTTPS API, if it is another than that of the options.
        """
        self.port = port or self.port
        options = self.options
        runtime = f"{self.runtime.name}://{self.runtime.version}"
        own = node.Self(
            options.name,
            options.ip,
            self.port,
            options.pods_max,
            runtime,
            options.reserved,
            options.keeping.evictions.hard,
        )
        spawn = asyncio.get_running_loop().create_task
        if self._static.is_used:  # which run also while there is no API server: it may be one
            await self._read_static()
            self._begin_work()
        await self.node.register(own)
        self._leases.keep(self.node.object)
        if Cgroups().version == 1:
            self._recorder.record(self.node.object, "Warning", "CgroupV1", _CGROUP_V1)
        self._tasks += [
            spawn(self._informer.run(), name="informer of the node's pods"),
            spawn(self._services.run(), name="informer of services"),
            spawn(self._leases.run(), name="lease of the node"),
            spawn(self.node.run(), name="status of the node"),
        ]
        await self._informer.synced()
        await self._services.synced()
        self._knows_all = True
        if self._static.is_used:
            await self._read_static()
            for uid in self._static.pods:
                self._queue.add(uid)  # their mirrors
            self._tasks.append(spawn(self._keep_static(), name="static pods"))
        self._informer.on_change(self._pod_changed)
        for uid in self.runtime.pod_uids():
            self._queue.add(uid)  # what an earlier kubelet left may be wanted no more
        if not self._static.is_used:
            self._begin_work()
        self._tasks.append(spawn(self.keeping.run(), name="housekeeping"))

    def _begin_work(self) -> None:
        spawn = asyncio.get_running_loop().create_task
        self._tasks += [spawn(self._work(), name=f"pods {number}") for number in range(_WORKERS)]

    async def stop(self) -> None:
        """Let everything be; whether containers go on is their runtime's decision."""
        self._queue.close()
        tasks = list(self._tasks)
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(done, BaseException) and not isinstance(done, asyncio.CancelledError):
                raise done
        await self._sync.close()
        await self.prober.stop()
        await self._recorder.close()

    def container_ended(self, uid: str) -> None:
        """Look at the pod of a container that ended."""
        self._queue.add(uid)

    def pod_directory(self, uid: str) -> Path:
        """Return the directory of a pod."""
        return self.options.root / "pods" / uid

    def pods(self) -> list[Object]:
        """Return the pods of the node; static ones with the status of their mirrors."""
        found = [each for each in self._informer.store if not is_mirror(each)]
        return [*found, *(self._with_status(each) for each in self._static.pods.values())]

    def admitted(self) -> list[Object]:
        """Return the pods that the node has taken."""
        known = self._records
        return [
            pod
            for pod in self.pods()
            if (record := known.get(pod["metadata"]["uid"])) is not None and not record.is_refused
        ]

    def pod(self, namespace: str, name: str) -> Object | None:
        """Return a pod of the node."""
        for each in self._static.pods.values():
            if (each["metadata"]["namespace"], each["metadata"]["name"]) == (namespace, name):
                return self._with_status(each)
        return self._informer.store.get(f"{namespace}/{name}")

    def pod_of(self, uid: str) -> Object | None:
        """Return a pod of the node by its uid; None: it is wanted no more."""
        if (static := self._static.pods.get(uid)) is not None:
            return self._with_status(static)
        found = self._informer.store.by_index(_BY_UID, uid)
        return found[0] if found and not is_mirror(found[0]) else None

    def record_of(self, uid: str) -> PodRecord | None:
        """Return what is known of a pod; None: nothing yet."""
        return self._records.get(uid)

    def end(self, uid: str, reason: str, message: str, grace_s: float, *, disrupts: bool) -> None:
        """End a pod for the node's sake."""
        record = self._records.get(uid)
        if record is None:
            return
        memory = record.memory
        memory.has_failed, memory.is_disrupted = True, disrupts
        memory.reason, memory.message, memory.grace_s = reason, message, grace_s
        record.ending.set()
        self._queue.add(uid)

    async def renew_volumes(self, pod: Object) -> None:
        """Write what changed of what the API holds of a pod's volumes."""
        meta = pod["metadata"]
        status = pod.get("status") or {}
        addresses = Addresses(self.options.ip, status.get("podIP", ""))
        await self._volumes.renew(pod, self.pod_directory(meta["uid"]), addresses)

    def _with_status(self, static: Object) -> Object:
        """Return a static pod with what the API knows of it."""
        meta = static["metadata"]
        mirror = self._informer.store.get(f"{meta['namespace']}/{meta['name']}")
        if mirror is None or not is_mirror_of(mirror, static):
            return static
        return {**static, "status": mirror.get("status") or static["status"]}

    # Pods.

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        for pod in (old, new):
            if pod is None:
                continue
            uid = pod["metadata"]["uid"]
            if is_mirror(pod):
                uid = (pod["metadata"]["annotations"]).get("kubernetes.io/config.hash", uid)
            record = self._records.get(uid)
            is_ending = new is None or new["metadata"].get("deletionTimestamp")
            if record is not None and is_ending and not is_mirror(pod):
                record.ending.set()
            self._queue.add(uid)

    async def _work(self) -> None:
        while True:
            try:
                uid = await self._queue.get()
            except QueueClosedError:
                return
            try:
                await self._look_at(uid)
                self._queue.forget(uid)
            except (ApiError, UnreachableError) as error:
                self._queue.add_rate_limited(uid)
                is_usual = isinstance(error, ApiError) and error.code in (_NOT_FOUND, _CONFLICT)
                say = self._logger.debug if is_usual else self._logger.warning
                say("a pod was not synced", pod=uid, error=str(error))
            except Exception as error:
                self._queue.add_rate_limited(uid)
                self._logger.error("a pod was not synced", pod=uid, error=repr(error))
            finally:
                self._queue.done(uid)

    async def _look_at(self, uid: str) -> None:
        pod = self.pod_of(uid)
        record = self._records.get(uid)
        if pod is None:
            if self._knows_all:
                await self._clear(uid, record)
            return
        if record is None and self._takes_place(pod):
            self._queue.add_after(uid, _PLACE_S)
            return
        shown: Object | None = pod
        if uid in self._static.pods:
            shown = await self._mirror(pod)
            if shown is None:
                self._queue.add_after(uid, _MIRROR_S)
        if record is None:
            record = await self._admit(pod)
        record.pod = pod
        if record.is_refused:
            await self._look_at_refused(shown, record)
            return
        if record.told is None:
            await self._tell(pod, shown, record)
        next_s = await self._sync.run(pod, record)
        await self._tell(pod, shown, record)
        if record.is_over and pod["metadata"].get("deletionTimestamp"):
            await self._writer.finish(pod)
        elif next_s is not None:
            self._queue.add_after(uid, next_s)

    def _takes_place(self, pod: Object) -> bool:
        """Whether a static pod is still ending whose place another one takes."""
        meta = pod["metadata"]
        if meta["uid"] not in self._static.pods:
            return False
        return any(
            before["metadata"]["name"] == meta["name"]
            and before["metadata"]["namespace"] == meta["namespace"]
            for each in self._records.values()
            if (before := each.pod) is not None and each.uid not in self._static.pods
        )

    async def _tell(self, pod: Object, shown: Object | None, record: PodRecord) -> None:
        if shown is None:
            return
        status = self._sync.status(pod, record)
        record.told = await self._writer.write(shown, record.told, status)

    async def _admit(self, pod: Object) -> PodRecord:
        uid = pod["metadata"]["uid"]
        lost = lost_containers(pod, self._clock.now_s())
        runs_already = {each.id for each in self.runtime.of_pod(uid)}
        told = [each for each in lost if each.id not in runs_already]
        record = PodRecord(uid, told, self.options.back_off_max_s)
        refused = None
        if not runs_already and not is_ended(pod) and not pod["metadata"].get("deletionTimestamp"):
            refused = self._refusal(pod)
            if refused is not None and refused[0] == NODE_AFFINITY:
                await self.node.read()  # its labels may be newer than what is known of them
                refused = self._refusal(pod)
            if refused is not None and refused[0].startswith(OUT_OF) and is_critical(pod):
                refused = self._make_room(pod, refused)
        self._records[uid] = record
        if refused is not None:
            record.is_refused = True
            record.memory.reason, record.memory.message = refused
            self._recorder.record(pod, "Warning", *refused)
        elif runs_already:
            self._sync.resume(pod, record)
        return record

    def _refusal(self, pod: Object) -> Refusal | None:
        return refusal(
            pod,
            self.node.object,
            self._active(),
            self.runtime.unsupported,
            ignores_limits=self.options.ignores_limits,
            allowed_sysctls=self.options.allowed_sysctls,
        )

    def _active(self) -> list[Object]:
        """Return the pods that take of the node's resources, or are about to end."""
        known = self._records
        return [
            each for each in self.admitted() if not known[each["metadata"]["uid"]].memory.has_failed
        ]

    def _make_room(self, pod: Object, refused: Refusal) -> Refusal | None:
        """End pods in favour of a critical one; return why it is refused nevertheless."""
        found = victims(pod, self.node.object, self._active())
        if found is None:
            return refused
        for each in found:
            self._recorder.record(each, "Warning", "Preempting", _PREEMPTED)
            self.end(each["metadata"]["uid"], "Preempting", _PREEMPTED, HARD_GRACE_S, disrupts=True)
        return self._refusal(pod)

    async def _look_at_refused(self, pod: Object | None, record: PodRecord) -> None:
        memory = record.memory
        if pod is None:
            return
        if record.told is None:
            status = refused_status(pod, memory.reason, memory.message, self._clock.now_s())
            record.told = await self._writer.write(pod, None, status)
        if pod["metadata"].get("deletionTimestamp"):
            await self._writer.finish(pod)

    async def _clear(self, uid: str, record: PodRecord | None) -> None:
        """End what is left of a pod that is wanted no more."""
        record = record or self._records.setdefault(uid, PodRecord(uid, []))
        record.ending.set()
        if not await self._sync.kill(record):
            return
        await self.runtime.stop_sandbox(uid)
        # First of all what is mounted, so that nothing is removed but what is the pod's own.
        await asyncio.to_thread(directories.forget, self.pod_directory(uid))
        await self.runtime.remove_pod(uid)
        await asyncio.to_thread(directories.remove, self.pod_directory(uid))
        self._volumes.forget(uid)
        self._images.forget(uid)
        self._writer.forget(uid)
        self._records.pop(uid, None)

    async def _handler(self, pod: Object) -> str:
        """Return the handler of a pod's RuntimeClass; StartError."""
        name = pod["spec"].get("runtimeClassName")
        if not name:
            return ""
        try:
            found = await self._api.get(RUNTIME_CLASSES, "", name)
        except ApiError as error:
            if error.code != _NOT_FOUND:
                raise
            text = f"failed to get sandbox runtime: {error.message}"
            raise StartError("FailedCreatePodSandBox", text) from error
        handler: str = found["handler"]
        return handler

    # Static pods.

    async def _keep_static(self) -> None:
        while True:
            await asyncio.sleep(self.options.static_every_s)
            await self._read_static()

    async def _read_static(self) -> None:
        before = dict(self._static.pods)
        known_problems = self._static.problems
        await self._static.read()
        for uid in {*before, *self._static.pods}:
            if uid not in self._static.pods and (record := self._records.get(uid)) is not None:
                record.ending.set()
            if uid not in before or uid not in self._static.pods:
                self._queue.add(uid)
        for problem in self._static.problems:
            if problem not in known_problems:
                self._logger.warning("a static pod cannot be read", problem=problem)
        if not self._knows_all:
            return
        wanted = {
            (each["metadata"]["namespace"], each["metadata"]["name"])
            for each in self._static.pods.values()
        }
        for each in list(self._informer.store):
            meta = each["metadata"]
            if is_mirror(each) and (meta["namespace"], meta["name"]) not in wanted:
                await self._writer.finish(each)

    async def _mirror(self, pod: Object) -> Object | None:
        """Return how the API shows a static pod; None: it does not yet, and the pod runs anyway."""
        if not self._knows_all:
            return None
        try:
            return await self._made_mirror(pod)
        except (ApiError, UnreachableError) as error:
            name = pod["metadata"]["name"]
            self._logger.warning("a static pod is not shown", pod=name, error=str(error))
            return None

    async def _made_mirror(self, pod: Object) -> Object:
        """Return how the API shows a static pod; made, or made anew, if need be."""
        meta = pod["metadata"]
        found = self._informer.store.get(f"{meta['namespace']}/{meta['name']}")
        if found is not None and is_mirror_of(found, pod):
            return found
        if found is not None:
            await self._writer.finish(found)
        if (record := self._records.get(meta["uid"])) is not None:
            record.told = None
        try:
            return await self._api.create(PODS, meta["namespace"], mirror_of(pod, self.node.object))
        except ApiError as error:
            if error.code != _CONFLICT:
                raise
        return await self._api.get(PODS, meta["namespace"], meta["name"])

    # Events.

    def _warn(self, pod: Object, name: str, reason: str, text: str) -> None:
        self._sync.event(pod, name, "Warning", reason, text)

    def _event(self, pod: Object, name: str, type_: str, reason: str, text: str) -> None:
        self._sync.event(pod, name, type_, reason, text)


async def _page(url: str) -> bytes:
    """Return a page of a server; raises OSError."""
    # Loaded by the first page, since most nodes never ask for one.
    import aiohttp

    timeout = aiohttp.ClientTimeout(10)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            answer.raise_for_status()
            return await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        raise OSError(str(error)) from error
