"""Runs the pods of one node.

    kubelet = Kubelet(api, runtime, machine, clock, random, logger, options)
    await kubelet.start(); …; await kubelet.stop()

    its pods (a watch; files) ─► pod_sync: worker.step ─► the runtime starts and stops containers
                                       ▲                        │
                                       └── what ended ◄─────────┘        status_writer ─► API

One pod is never worked on twice at a time. `pod_admission` says which pods the node takes,
`static/mirrors` shows those of its own, `node_status` tells how the node is, and `housekeeping`
cleans up after its pods.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from kvstack.agents.client.activity import Activity, Due, Moving
from kvstack.agents.client.api import Api
from kvstack.agents.client.back_off import FailureBackOff
from kvstack.agents.client.built_in import PODS, SERVICES
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.informer import Informer
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.client.work_queue import QueueClosedError, WorkQueue
from kvstack.agents.kubelet.csi.csi_node import CsiNode
from kvstack.agents.kubelet.device_plugins.node_devices import NodeDevices
from kvstack.agents.kubelet.housekeeping import Housekeeping
from kvstack.agents.kubelet.images.image_manager import ImageManager
from kvstack.agents.kubelet.lifecycle.prober import Prober
from kvstack.agents.kubelet.logs.log_links import LogLinks
from kvstack.agents.kubelet.logs.pod_logs import PodLogs
from kvstack.agents.kubelet.node import node
from kvstack.agents.kubelet.node.leases import Leases
from kvstack.agents.kubelet.node.node_status import NodeStatus
from kvstack.agents.kubelet.node_shutdown import NodeShutdown
from kvstack.agents.kubelet.options import KubeletOptions
from kvstack.agents.kubelet.pods.environment import Addresses, ConfigurationError
from kvstack.agents.kubelet.pods.lost import lost_containers
from kvstack.agents.kubelet.pods.sandboxes import NodeSettings
from kvstack.agents.kubelet.pods.status import refused_status
from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.runtime import Runtime
from kvstack.agents.kubelet.static.mirrors import Mirrors
from kvstack.agents.kubelet.static.pages import page
from kvstack.agents.kubelet.static.static_pods import StaticPods, is_mirror
from kvstack.agents.kubelet.sync.allocations import Allocations
from kvstack.agents.kubelet.sync.pod_admission import PodAdmission
from kvstack.agents.kubelet.sync.pod_sync import PodRecord, PodSync, Tools
from kvstack.agents.kubelet.sync.preparation import Preparation
from kvstack.agents.kubelet.sync.runtime_classes import RuntimeClasses
from kvstack.agents.kubelet.sync.start_times import StartTimes
from kvstack.agents.kubelet.sync.status_writer import StatusWriter
from kvstack.agents.kubelet.volumes import directories
from kvstack.agents.kubelet.volumes.pod_volumes import PodVolumes, VolumeError
from kvstack.agents.kubelet.volumes.volume_stats import VolumeStats
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.well_known import CONFIG_HASH_ANNOTATION
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

_WORKERS: Final = 32
_BY_UID: Final = "uid"
_LEASE_PART: Final = 0.25
"""The part of a lease's duration after which it is renewed."""
_REPLACED_POD_S: Final = 0.5
_MIRROR_S: Final = 5.0
_CGROUP_V1: Final = "cgroup v1 support is in maintenance mode, please migrate to cgroup v2"


class Kubelet:
    """One node; all of it belongs to one loop."""

    def __init__(
        self,
        api: Api,
        runtime: Runtime,
        machine: node.Machine,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        options: KubeletOptions,
        isolate: Callable[[Object], Awaitable[None]] | None = None,
    ) -> None:
        """`container_ended` must be called when a container ends.

        isolate: applies the policies of a pod before any of its containers runs; StartError.
        """
        self.options: Final = options
        self.runtime: Final = runtime
        self.machine: Final = machine
        self._api = api
        self._clock = clock
        self._logger = logger
        fields = f"spec.nodeName={options.name}"
        self._informer = Informer(api, PODS, clock, random, logger, fields=fields)
        self._informer.store.add_index(_BY_UID, lambda pod: (pod["metadata"]["uid"],))
        self._services = Informer(api, SERVICES, clock, random, logger)
        self._static = StaticPods(options.static, options.name, page)
        self._recorder = EventRecorder(api, "kubelet", clock, random, logger, host=options.name)
        settings = options.for_pods(machine.memory_kib)
        hard = options.keeping.evictions.hard
        allocatable = node.allocatable(machine, options.pods_max, options.reserved, hard)
        self.prober: Final = Prober(runtime, clock, random, self._warn)
        self._images = ImageManager(api, runtime, clock, self._event)
        self.links: Final = LogLinks(options.log_links)
        self.logs: Final = PodLogs(options.root / "pod-logs")
        self._queue: WorkQueue[str] = WorkQueue(clock, FailureBackOff(clock, 0.05, 10.0))
        self.csi: Final = self._csi(random)
        self._volumes = self._pod_volumes(random, allocatable)
        self._devices = self._node_devices()
        self._sync = PodSync(self._tools(settings, allocatable, isolate or _isolate_nothing))
        self._writer = StatusWriter(api)
        self._mirrors = Mirrors(api, self._informer.store, self._writer, logger)
        self._admission = PodAdmission(self, self._recorder)
        self._allocations = Allocations(
            self, self._admission, self._recorder, clock, logger, settings, self._queue.add
        )
        self.keeping: Final = Housekeeping(self, settings, clock, random, logger, self._recorder)
        self.node: Final[NodeStatus] = NodeStatus(
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
            api, clock, random, logger, options.lease_s * _LEASE_PART, options.lease_s
        )
        self._records: dict[str, PodRecord] = {}  # by uid
        self._tasks: list[asyncio.Task[None]] = []
        self._knows_all = False
        """Whether the list of the API's pods is known; before, no pod is removed."""
        self._shutdown = NodeShutdown(self, self._recorder, clock, logger, options.shutdown)
        self.port = options.port
        self.started_s = clock.now_s()
        self.start_times = StartTimes(self.started_s)
        self.evictions: Counter[str] = Counter()
        """Pods that were evicted, by the signal that was the cause."""

    def _node_devices(self) -> NodeDevices:
        plugins, pods = self.options.device_plugins, self.options.root / "pods"
        return NodeDevices(plugins, pods, lambda: self.node.look_again(), self._logger)

    def _csi(self, random: Callable[[], float]) -> CsiNode:
        """Return what mounts the volumes of CSI drivers; the node's object comes later."""
        return CsiNode(
            self._api,
            self._clock,
            random,
            self._logger,
            self._recorder,
            self.options.name,
            self.options.root,
            node=lambda: self.node.object,
            again=self._queue.add,
            report=lambda: self.node.look_again(),
            call_s=self.options.csi_call_s,
        )

    def _pod_volumes(
        self, random: Callable[[], float], allocatable: Mapping[str, str]
    ) -> PodVolumes:
        """Return the volumes of all pods."""
        return PodVolumes(
            self._api,
            self._clock,
            random,
            self._logger,
            allocatable,
            lambda: self.node.object,
            self._queue.add,
            self.csi,
        )

    def _tools(
        self,
        settings: NodeSettings,
        allocatable: Mapping[str, str],
        isolate: Callable[[Object], Awaitable[None]],
    ) -> Tools:
        """Return with what pods are brought forward."""
        return Tools(
            self.runtime,
            self._clock,
            self._images,
            self._volumes,
            Preparation(self._services.store, settings, allocatable),
            self.prober,
            self._recorder,
            settings,
            self.options.ips,
            self.pod_directory,
            self._queue.add,
            RuntimeClasses(self._api).handler,
            self.links,
            self.logs,
            self._devices.needs,
            isolate,
        )

    async def start(self, port: int = 0) -> None:
        """Register the node, and return once it is ready and its pods are known.

        port: of its HTTPS API, if it is another than that of the options.
        """
        self.port = port or self.port
        options = self.options
        runtime = f"{self.runtime.name}://{self.runtime.version}"
        own = node.Self(
            options.name,
            options.ips,
            self.port,
            options.pods_max,
            runtime,
            options.reserved,
            options.keeping.evictions.hard,
        )
        spawn = asyncio.get_running_loop().create_task
        await self._devices.start()
        self.node.extended = self._devices.amounts
        await self.csi.open()
        self.node.volumes_in_use = self.csi.volumes.in_use
        if self._static.is_used:  # they run even without an API server: it may be one of them
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
        for uid in {*self.runtime.pod_uids(), *self.csi.volumes.uids()}:
            self._queue.add(uid)  # what an earlier kubelet left may be obsolete
        self.csi.start()
        if not self._static.is_used:
            self._begin_work()
        self._tasks.append(spawn(self.keeping.run(), name="housekeeping"))

    def _begin_work(self) -> None:
        spawn = asyncio.get_running_loop().create_task
        self._tasks += [spawn(self._work(), name=f"pods {number}") for number in range(_WORKERS)]

    @property
    def is_shutting_down(self) -> bool:
        """Whether its pods end with it, and new ones are refused."""
        return self._shutdown.has_begun

    async def shut_down(self) -> None:
        """End all pods in order, as the options say; nothing of them is taken away."""
        await self._shutdown.run()

    async def stop(self, *, leaves_volumes: bool = False) -> None:
        """Stop; whether containers go on is their runtime's decision.

        leaves_volumes: `csi` is ended by the caller, once containers have.
        """
        self._queue.close()
        tasks = list(self._tasks)
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        for done in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(done, BaseException) and not isinstance(done, asyncio.CancelledError):
                raise done
        await self._devices.stop()
        await self._sync.close()
        if not leaves_volumes:
            await self.csi.close()
        await self._volumes.close()
        await self.prober.stop()
        await self._recorder.close()

    def add_activity(self, activity: Activity) -> None:
        """Add what is done for pods, and what is due; probes and leases come all the time."""
        for uid, is_worked_on in self._queue.in_hand():
            why = "is worked on" if is_worked_on else "waits to be worked on"
            activity.moving.append(Moving("kubelet", self._describe_pod(uid), why))
        if not self._recorder.is_idle:
            activity.moving.append(Moving("kubelet", "", "writes events"))
        for uid, in_s in self._queue.due():
            activity.due.append(Due("kubelet", self._describe_pod(uid), in_s))

    def _describe_pod(self, uid: str) -> str:
        pod = self.pod_of(uid)
        return f"pod {key_of(pod)}" if pod is not None else f"pod {uid}"

    def container_ended(self, uid: str) -> None:
        """Look at the pod of a container that ended."""
        self._queue.add(uid)

    def pod_directory(self, uid: str) -> Path:
        """Return the directory of a pod."""
        return self.options.root / "pods" / uid

    def pods(self) -> list[Object]:
        """Return the pods of the node; static ones with the status of their mirrors."""
        found = [each for each in self._informer.store if not is_mirror(each)]
        return [*found, *(self._mirrors.with_status(each) for each in self._static.pods.values())]

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
                return self._mirrors.with_status(each)
        return self._informer.store.get(f"{namespace}/{name}")

    def pod_of(self, uid: str) -> Object | None:
        """Return a pod of the node by its uid; None: it is obsolete."""
        if (static := self._static.pods.get(uid)) is not None:
            return self._mirrors.with_status(static)
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

    def volume_stats(self, uid: str) -> list[VolumeStats]:
        """Return how full the volumes of a pod are that are claimed, or a driver's."""
        return self._volumes.stats(uid)

    async def renew_volumes(self, pod: Object) -> None:
        """Rewrite a pod's volumes whose objects have changed."""
        meta = pod["metadata"]
        status = pod.get("status") or {}
        pod_ips = tuple(each["ip"] for each in status.get("podIPs") or ())
        addresses = Addresses(self.options.ips, pod_ips)
        await self._volumes.renew(pod, self.pod_directory(meta["uid"]), addresses)
        now = self.pod_of(meta["uid"])
        if now is not None and self._volumes.is_stale(now):
            self._queue.add(meta["uid"])  # it changed meanwhile

    # Pods.

    def _pod_changed(self, old: Object | None, new: Object | None) -> None:
        for pod in (old, new):
            if pod is None:
                continue
            uid = pod["metadata"]["uid"]
            if is_mirror(pod):
                uid = (pod["metadata"]["annotations"]).get(CONFIG_HASH_ANNOTATION, uid)
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
                is_usual = isinstance(error, ApiError) and (error.is_not_found or error.is_conflict)
                say = self._logger.debug if is_usual else self._logger.warning
                say("failed to sync a pod", pod=uid, error=str(error))
            except Exception as error:  # noqa: BLE001 - logged and tried again; other pods go on
                self._queue.add_rate_limited(uid)
                self._logger.error("failed to sync a pod", pod=uid, error=repr(error))
            finally:
                self._queue.done(uid)

    async def _look_at(self, uid: str) -> None:
        pod = self.pod_of(uid)
        record = self._records.get(uid)
        if pod is None:
            if self._knows_all:
                await self._clear(uid, record)
            return
        if record is None and self._replaces_static_pod(pod):
            self._queue.add_after(uid, _REPLACED_POD_S)
            return
        api_pod: Object | None = pod
        if uid in self._static.pods:
            api_pod = await self._mirror(pod, record)
            if api_pod is None:
                self._queue.add_after(uid, _MIRROR_S)
        if record is None:
            record = await self._admit(pod)
        if not record.is_refused:
            pod = await self._allocations.look(pod, record)
        record.pod = pod
        if record.is_refused:
            await self._look_at_refused(api_pod, record)
            return
        if record.written_status is None:
            await self._write_status(pod, api_pod, record)
        await self._renew_stale(pod, record)
        next_s = await self._sync.run(pod, record)
        retry_s = await self._allocations.apply(pod, record)
        next_s = min((each for each in (next_s, retry_s) if each is not None), default=None)
        await self._write_status(pod, api_pod, record)
        if record.is_over:
            if not self.csi.volumes.release(uid):
                return  # it is looked at again when its drivers have unmounted them
            # Before its object goes, so that nothing of a pod outlives it.
            await asyncio.to_thread(directories.remove_volumes, self.pod_directory(uid))
            self._volumes.forget(uid)
            self._allocations.forget(uid)
            self._devices.take_back(uid)
            if pod["metadata"].get("deletionTimestamp"):
                await self._writer.finish(pod)
        elif next_s is not None:
            self._queue.add_after(uid, next_s)

    async def _renew_stale(self, pod: Object, record: PodRecord) -> None:
        """Rewrite stale volumes of a running pod."""
        is_running = record.memory.has_sandbox and not record.ending.is_set()
        if not is_running or not self._volumes.is_stale(pod):
            return
        try:
            await self.renew_volumes(pod)
        except VolumeError as error:
            self._recorder.record(pod, "Warning", error.reason, str(error))
        except ConfigurationError as error:
            self._recorder.record(pod, "Warning", "FailedMount", str(error))

    def _replaces_static_pod(self, pod: Object) -> bool:
        """Whether the static pod that another one replaces is still ending."""
        meta = pod["metadata"]
        if meta["uid"] not in self._static.pods:
            return False
        return any(
            before["metadata"]["name"] == meta["name"]
            and before["metadata"]["namespace"] == meta["namespace"]
            for each in self._records.values()
            if (before := each.pod) is not None and each.uid not in self._static.pods
        )

    async def _write_status(self, pod: Object, shown: Object | None, record: PodRecord) -> None:
        if shown is None:
            return
        status, before = self._sync.status(pod, record), record.written_status
        record.written_status = await self._writer.write(shown, before, status)
        now_s = self._clock.now_s()
        written = record.written_status
        self.start_times.observe(shown, before, written, record.pulling_s, now_s)

    async def _admit(self, pod: Object) -> PodRecord:
        uid = pod["metadata"]["uid"]
        lost = lost_containers(pod, self._clock.now_s())
        runs_already = {each.id for each in self.runtime.of_pod(uid)}
        only_reported = [each for each in lost if each.id not in runs_already]
        record = PodRecord(uid, only_reported, self.options.back_off_max_s)
        refused = None
        if not runs_already and not is_ended(pod) and not pod["metadata"].get("deletionTimestamp"):
            refused = await self._admission.refusal(pod)
            if refused is None:
                refused = await self._devices.give(pod)
        self._records[uid] = record
        if refused is not None:
            record.is_refused = True
            record.memory.reason, record.memory.message = refused
            self._recorder.record(pod, "Warning", *refused)
        elif runs_already:
            self._sync.resume(pod, record)
        return record

    async def _look_at_refused(self, pod: Object | None, record: PodRecord) -> None:
        memory = record.memory
        if pod is None:
            return
        if record.written_status is None:
            status = refused_status(pod, memory.reason, memory.message, self._clock.now_s())
            record.written_status = await self._writer.write(pod, None, status)
        if pod["metadata"].get("deletionTimestamp"):
            await self._writer.finish(pod)

    async def _clear(self, uid: str, record: PodRecord | None) -> None:
        """End what is left of an obsolete pod."""
        record = record or self._records.setdefault(uid, PodRecord(uid, []))
        record.ending.set()
        if not await self._sync.kill(record):
            return
        await self.runtime.stop_sandbox(uid)
        if not self.csi.volumes.release(uid):
            return
        # First of all what is mounted, so that nothing is removed but what is the pod's own.
        await asyncio.to_thread(directories.remove_volumes, self.pod_directory(uid))
        await self.runtime.remove_pod(uid)
        await asyncio.to_thread(directories.remove, self.pod_directory(uid))
        self._volumes.forget(uid)
        self._allocations.forget(uid)
        self._devices.take_back(uid)
        self._images.forget(uid)
        self._writer.forget(uid)
        self.prober.forget(uid)
        self._records.pop(uid, None)

    # Static pods.

    async def _keep_static(self) -> None:
        while True:
            await asyncio.sleep(self.options.static_every_s)
            await self._read_static()

    async def _read_static(self) -> None:
        known_problems = self._static.problems
        for uid in await self._static.read():
            record = self._records.get(uid)
            if uid not in self._static.pods and record is not None:
                record.ending.set()
            self._queue.add(uid)
        for problem in self._static.problems:
            if problem not in known_problems:
                self._logger.warning("a static pod cannot be read", problem=problem)
        if self._knows_all:
            await self._mirrors.remove_others(self._static.pods.values())

    async def _mirror(self, pod: Object, record: PodRecord | None) -> Object | None:
        """Return how the API shows a static pod; None: it does not yet, and the pod runs anyway."""
        if not self._knows_all:
            return None
        return await self._mirrors.show(pod, self.node.object, record)

    # Events.

    def _warn(self, pod: Object, name: str, reason: str, text: str) -> None:
        self._sync.event(pod, name, "Warning", reason, text)

    def _event(self, pod: Object, name: str, type_: str, reason: str, text: str) -> None:
        self._sync.event(pod, name, type_, reason, text)


async def _isolate_nothing(_pod: Object) -> None:
    """Apply no policies: others do, or none does."""
