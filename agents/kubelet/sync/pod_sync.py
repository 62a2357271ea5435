"""One sync of a pod: executes what its worker plans.

    next_s = await sync.run(pod, record)        when to look again; None: when something changes

    plan ─► stops (with hooks, meanwhile) ─► volumes ─► sandbox ─► image ─► start ─► hook

One pod is never worked on twice at a time; what takes long is broken off when its pod is to end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.kubelet.cancellation import until_done
from kvstack.agents.kubelet.csi.uses import PendingError
from kvstack.agents.kubelet.images.image_manager import ImageManager
from kvstack.agents.kubelet.lifecycle.hooks import run_hook
from kvstack.agents.kubelet.lifecycle.prober import Prober
from kvstack.agents.kubelet.logs.log_links import LogLinks
from kvstack.agents.kubelet.logs.pod_logs import PodLogs
from kvstack.agents.kubelet.pods.environment import Addresses, ConfigurationError, Objects
from kvstack.agents.kubelet.pods.probes import (
    LIVENESS,
    READINESS,
    STARTUP,
)
from kvstack.agents.kubelet.pods.restarts import MAX_S, BackOff
from kvstack.agents.kubelet.pods.sandboxes import (
    NodeSettings,
    containers_of,
    hostname_problem,
    image_volumes,
    names_of,
    root_problem,
    sandbox_of,
)
from kvstack.agents.kubelet.pods.status import status_of
from kvstack.agents.kubelet.pods.worker import (
    GRACE_MIN_S,
    Memory,
    Plan,
    not_started,
    step,
)
from kvstack.agents.kubelet.pods.worker import (
    grace_s as grace_of,
)
from kvstack.agents.kubelet.runtime.runtime import (
    Container,
    DeviceNeeds,
    Image,
    Runtime,
    StartError,
)
from kvstack.agents.kubelet.sync.preparation import Preparation
from kvstack.agents.kubelet.volumes.pod_volumes import PodVolumes, VolumeError, VolumePaths
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.clock import Clock

_T = TypeVar("_T")

_RETRY_S: Final = 10.0
_UNKNOWN_S: Final = 1.0
"""The grace period of containers whose pod is unknown."""
_MOUNT_RETRY_S: Final = 0.5
_MOUNT_RETRY_MAX_S: Final = 122.0
_THREADS: Final = 4
_OF_OTHERS: Final = ("persistentVolumeClaim", "ephemeral", "csi")
"""Volumes whose file systems may be anywhere."""
_GROUPS: Final = {
    "initContainers": "spec.initContainers",
    "containers": "spec.containers",
    "ephemeralContainers": "spec.ephemeralContainers",
}


class Stopping(NamedTuple):
    """A container that is being stopped."""

    task: asyncio.Task[None]
    until_s: float
    """Monotonic seconds, at which it is killed."""


class PodRecord:
    """The state of a pod besides its object."""

    def __init__(self, uid: str, lost: list[Container], back_off_max_s: float = MAX_S) -> None:
        """lost: containers of an earlier kubelet, known from the status only."""
        self.uid = uid
        self.memory = Memory(BackOff(back_off_max_s))
        self.lost = lost
        self.stopping: dict[str, Stopping] = {}
        self.written_status: Object | None = None
        self.pod: Object | None = None
        """The last seen object."""
        self.is_refused = False
        self.is_over = False
        self.ending = asyncio.Event()
        """Whether its pod is to end."""
        self.mount_wait_s = 0.0
        self.pulling_s = 0.0
        """For so long it has waited for images."""


class _EndingError(Exception):
    """The pod is to end: what was begun for it is broken off."""


class _LaterError(Exception):
    """A pod cannot go on now."""

    def __init__(self, after_s: float) -> None:
        super().__init__("later")
        self.after_s = after_s


class Tools(NamedTuple):
    """The parts of the kubelet that a sync uses."""

    runtime: Runtime
    clock: Clock
    images: ImageManager
    volumes: PodVolumes
    preparation: Preparation
    prober: Prober
    recorder: EventRecorder
    settings: NodeSettings
    node_ips: tuple[str, ...]
    directory: Callable[[str], Path]
    """The directory of a pod, by its uid."""
    again: Callable[[str], None]
    """Look at a pod, by its uid, soon."""
    handler: Callable[[Object], Awaitable[str]]
    """The handler of a pod's RuntimeClass; StartError."""
    links: LogLinks
    logs: PodLogs
    devices: Callable[[str, str], Awaitable[DeviceNeeds]]
    """A container's needs for devices of plugins, by uid and name; StartError."""
    isolate: Callable[[Object], Awaitable[None]]
    """Put the policies of a pod in place, before anything of it runs; StartError."""


class _Prepared(NamedTuple):
    """The prepared volumes and addresses of a pod, for its containers."""

    directory: Path
    volumes: VolumePaths
    objects: Objects
    addresses: Addresses
    handler: str = ""


class PodSync:
    """Brings the pods of one node forward."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._stops: set[asyncio.Task[None]] = set()
        # Of their own: a file system that hangs holds up neither the loop nor other threads.
        self._threads = ThreadPoolExecutor(_THREADS, "paths in volumes")

    async def run(self, pod: Object, record: PodRecord) -> float | None:
        """Do the next step of an admitted pod; raises ApiError, UnreachableError."""
        runtime = self._tools.runtime
        containers = [*record.lost, *runtime.of_pod(record.uid)]
        now_s, has_sandbox = self._tools.clock.now_s(), runtime.has_sandbox(record.uid)
        record.memory.has_sandbox = has_sandbox
        record.memory.had_sandbox |= has_sandbox
        plan = step(pod, containers, record.memory, now_s, has_sandbox=has_sandbox)
        for event in plan.events:
            self.event(pod, event.container, event.type, event.reason, event.message)
        self._stop_all(pod, record, plan)
        next_s = plan.again_s
        if plan.starts:
            try:
                await self._start_all(pod, record, plan)
            except _LaterError as error:
                next_s = error.after_s
            except _EndingError:
                next_s = 0.0
        record.is_over = plan.is_over
        if plan.is_over:
            record.memory.has_sandbox = False
            await runtime.stop_sandbox(record.uid)
        return next_s

    def status(self, pod: Object, record: PodRecord) -> Object:
        """Return the status of a pod that was admitted."""
        tools = self._tools
        containers = [*record.lost, *tools.runtime.of_pod(record.uid)]
        return status_of(
            pod,
            containers,
            record.memory,
            Addresses(tools.node_ips, self._pod_ips(pod) if record.memory.has_sandbox else ()),
            tools.runtime.name,
            tools.clock.now_s(),
            is_over=record.is_over,
        )

    def resume(self, pod: Object, record: PodRecord) -> None:
        """Go on with containers that an earlier kubelet started."""
        results, before = record.memory.results, _statuses(pod)
        running = [each for each in self._tools.runtime.of_pod(record.uid) if each.is_running]
        by_name = {each["name"]: each for each in containers_of(pod)}
        record.memory.has_sandbox = self._tools.runtime.has_sandbox(record.uid)
        for found in running:
            container, previous = by_name.get(found.name), before.get(found.name) or {}
            if container is None:
                continue
            results[found.id, STARTUP] = bool(previous.get("started"))
            results[found.id, READINESS] = bool(previous.get("ready"))
            if not previous.get("started"):
                del results[found.id, STARTUP]
            results.setdefault((found.id, LIVENESS), True)
            self._probe(pod, record, container, found, is_found=True)

    async def kill(self, record: PodRecord) -> bool:
        """Stop what runs of a pod that is gone; return whether nothing does."""
        pod = record.pod
        own_s = _UNKNOWN_S if pod is None else grace_of(pod)
        running = [each for each in self._tools.runtime.of_pod(record.uid) if each.is_running]
        for container in running:
            self._stop(pod, record, container, own_s)
        return not running

    async def close(self) -> None:
        """Wait for nothing more; containers are left as they are."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for task in self._stops:
            task.cancel()
        for done in await asyncio.gather(*self._stops, return_exceptions=True):
            if isinstance(done, BaseException) and not isinstance(done, asyncio.CancelledError):
                raise done

    def _pod_ips(self, pod: Object) -> tuple[str, ...]:
        if pod["spec"].get("hostNetwork"):
            return self._tools.node_ips
        own = self._tools.runtime.addresses(pod["metadata"]["uid"])
        return tuple(own) or (() if self._tools.runtime.has_network else self._tools.node_ips)

    def _pod_ip(self, pod: Object) -> str:
        """Return the first address of a pod; empty: it has none."""
        return next(iter(self._pod_ips(pod)), "")

    # Ends.

    def _stop_all(self, pod: Object, record: PodRecord, plan: Plan) -> None:
        for container, grace_s, why in plan.stops:
            if container.id not in record.stopping:
                text = "" if record.ending.is_set() else why
                text = text or f"Stopping container {container.name}"
                self.event(pod, container.name, "Normal", "Killing", text)
            self._stop(pod, record, container, grace_s)

    def _stop(
        self, pod: Object | None, record: PodRecord, container: Container, grace_s: float
    ) -> None:
        """Stop a container meanwhile; a shorter time to end than before counts."""
        until_s = self._tools.clock.monotonic_s() + grace_s
        before = record.stopping.get(container.id)
        if before is not None:
            if before.until_s <= until_s + 1.0:
                return
            before.task.cancel()
        has_hook = before is None and pod is not None
        work = self._end(pod if has_hook else None, record, container, grace_s)
        task = asyncio.get_running_loop().create_task(work, name=f"stop {container.id}")
        record.stopping[container.id] = Stopping(task, until_s)
        self._stops.add(task)
        task.add_done_callback(self._stops.discard)

    async def _end(
        self, pod: Object | None, record: PodRecord, container: Container, grace_s: float
    ) -> None:
        clock, runtime = self._tools.clock, self._tools.runtime
        begun = clock.monotonic_s()
        spec = None
        if pod is not None:
            found = (each for each in containers_of(pod) if each["name"] == container.name)
            spec = next(found, None)
        handler = ((spec or {}).get("lifecycle") or {}).get("preStop")
        if pod is not None and spec is not None and handler:
            try:
                async with asyncio.timeout(grace_s):
                    failure = await run_hook(runtime, handler, spec, container, self._pod_ip(pod))
            except TimeoutError:
                failure = "timeout"
            if failure:
                name = container.name
                self.event(pod, name, "Warning", "FailedPreStopHook", "PreStopHook failed")
        rest_s = grace_s - (clock.monotonic_s() - begun)
        await runtime.stop(container.id, max(rest_s, GRACE_MIN_S))
        record.stopping.pop(container.id, None)
        self._tools.again(record.uid)

    # Starts.

    async def _start_all(self, pod: Object, record: PodRecord, plan: Plan) -> None:
        tools = self._tools
        problem = tools.runtime.problem()
        if problem and not pod["spec"].get("hostNetwork"):
            text = f"network is not ready: {problem}"
            tools.recorder.record(pod, "Warning", "NetworkNotReady", text)
            raise _LaterError(1.0)
        directory = tools.directory(record.uid)
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        # Volumes first; again when a sandbox has brought the address that they may contain.
        prepared = await self._prepare(pod, record, directory)
        handler = await self._make_sandbox(pod, record)
        if self._pod_ips(pod) != prepared.addresses.pods:
            prepared = await self._prepare(pod, record, directory)
        for spec, attempt in plan.starts:
            if record.ending.is_set():
                raise _EndingError
            await self._start(pod, record, spec, attempt, prepared._replace(handler=handler))
        tools.again(record.uid)  # what comes next may be due at once

    async def _make_sandbox(self, pod: Object, record: PodRecord) -> str:
        """Make what containers share; return the handler of their runtime."""
        tools = self._tools
        try:
            handler = await tools.handler(pod)
            _check_hostname(pod, tools.settings)
            sandbox = sandbox_of(pod, tools.settings, handler)
            if not tools.runtime.has_sandbox(record.uid):
                for reason, text in names_of(pod, tools.settings.names).problems:
                    tools.recorder.record(pod, "Warning", reason, text)
            tools.logs.claim(Path(sandbox.log_directory))
            if await tools.runtime.make_sandbox(sandbox):
                text = "Pod sandbox changed, it will be killed and re-created."
                tools.recorder.record(pod, "Normal", "SandboxChanged", text)
            await _unless_ending(record, tools.isolate(pod))
        except (StartError, OSError) as error:
            reason = error.message if isinstance(error, StartError) else str(error)
            text = f"Failed to create pod sandbox: {reason}"
            tools.recorder.record(pod, "Warning", "FailedCreatePodSandBox", text)
            raise _LaterError(_RETRY_S) from error
        record.memory.has_sandbox = record.memory.had_sandbox = True
        return handler

    async def _prepare(self, pod: Object, record: PodRecord, directory: Path) -> "_Prepared":
        """Set up the volumes of a pod."""
        tools = self._tools
        addresses = Addresses(tools.node_ips, self._pod_ips(pod))
        objects = await tools.volumes.objects(pod)
        try:
            volumes = await tools.volumes.set_up(pod, directory, addresses, objects)
        except PendingError as error:
            raise _LaterError(error.after_s) from error
        except VolumeError as error:
            tools.recorder.record(pod, "Warning", error.reason, str(error))
            wait_s = min(max(record.mount_wait_s * 2, _MOUNT_RETRY_S), _MOUNT_RETRY_MAX_S)
            record.mount_wait_s = wait_s
            raise _LaterError(wait_s) from error
        record.mount_wait_s = 0.0
        return _Prepared(directory, volumes, objects, addresses)

    async def _start(
        self,
        pod: Object,
        record: PodRecord,
        container: Object,
        attempt: int,
        prepared: "_Prepared",
    ) -> None:
        tools, name = self._tools, container["name"]
        begun_s = tools.clock.now_s()
        try:
            image = await _unless_ending(record, tools.images.ensure(pod, container))
            volumes = await self._volume_images(pod, record, container)
            record.pulling_s += tools.clock.now_s() - begun_s
        except StartError as error:
            record.pulling_s += tools.clock.now_s() - begun_s
            not_started(record.memory, name, error.reason, error.message, tools.clock.now_s())
            return
        try:
            started = await self._run(pod, record, container, attempt, prepared, image, volumes)
        except (StartError, ConfigurationError, OSError) as error:
            reason = error.reason if isinstance(error, StartError) else "CreateContainerConfigError"
            message = error.message if isinstance(error, StartError) else str(error)
            not_started(record.memory, name, reason, message, tools.clock.now_s())
            self.event(pod, name, "Warning", "Failed", f"Error: {message}")
            return
        record.memory.resize.applied.pop(name, None)  # it began with what it was given
        self.event(pod, name, "Normal", "Created", "Container created")
        self.event(pod, name, "Normal", "Started", "Container started")
        await asyncio.to_thread(tools.links.make, pod, started)
        self._probe(pod, record, container, started)
        if hook := (container.get("lifecycle") or {}).get("postStart"):
            await self._after_start(pod, record, container, started, hook)

    async def _volume_images(
        self, pod: Object, record: PodRecord, container: Object
    ) -> dict[str, tuple[str, str]]:
        """Return reference and id of what images a container mounts, by volume; StartError."""
        sources = image_volumes(pod)
        images: dict[str, tuple[str, str]] = {}
        for mount in container.get("volumeMounts") or ():
            if (source := sources.get(mount["name"])) and mount["name"] not in images:
                spec = {
                    "name": container["name"],
                    "image": source["reference"],
                    "imagePullPolicy": source.get("pullPolicy"),
                }
                image = await _unless_ending(record, self._tools.images.ensure(pod, spec))
                images[mount["name"]] = (source["reference"], image.id)
        return images

    async def _run(
        self,
        pod: Object,
        record: PodRecord,
        container: Object,
        attempt: int,
        prepared: "_Prepared",
        image: Image,
        volumes: Mapping[str, tuple[str, str]],
    ) -> Container:
        tools = self._tools
        if problem := root_problem(pod, container, image.user):
            raise ConfigurationError(problem)
        prepare = partial(
            tools.preparation.container_config,
            pod,
            container,
            attempt,
            prepared.directory,
            prepared.volumes,
            prepared.objects,
            prepared.addresses,
            image_id=image.id,
            target=self._target(record, container),
            handler=prepared.handler,
            images=volumes,
            devices=await tools.devices(record.uid, container["name"]),
            services=tools.preparation.seen_services(pod),
        )
        if _looks_into_volumes(pod, container):
            config = await asyncio.get_running_loop().run_in_executor(self._threads, prepare)
        else:
            config = prepare()
        return await until_done(tools.runtime.start(config))

    def _target(self, record: PodRecord, container: Object) -> str:
        """Return the container whose processes an ephemeral one sees; StartError."""
        name = container.get("targetContainerName")
        if not name:
            return ""
        for each in reversed(self._tools.runtime.of_pod(record.uid)):
            if each.name == name and each.is_running:
                return each.id
        raise StartError("CreateContainerConfigError", f"unable to find target container {name}")

    async def _after_start(
        self, pod: Object, record: PodRecord, container: Object, started: Container, hook: Object
    ) -> None:
        tools, name = self._tools, container["name"]
        work = run_hook(tools.runtime, hook, container, started, self._pod_ip(pod))
        failure = await _unless_ending(record, work)
        if failure and started.is_running:
            self.event(pod, name, "Warning", "FailedPostStartHook", "PostStartHook failed")
            self.event(pod, name, "Normal", "Killing", "FailedPostStartHook")
            await tools.runtime.stop(started.id, GRACE_MIN_S)
            now_s = tools.clock.now_s()
            not_started(record.memory, name, "PostStartHookError", failure, now_s)

    def _probe(
        self,
        pod: Object,
        record: PodRecord,
        container: Object,
        running: Container,
        *,
        is_found: bool = False,
    ) -> None:
        tools = self._tools
        results, host = record.memory.results, self._pod_ip(pod)
        again = tools.again
        uid = record.uid
        tools.prober.begin(
            pod,
            container,
            running,
            results,
            host,
            lambda: again(uid),
            is_found=is_found,
            is_ending=record.ending.is_set,
        )

    # Events.

    def event(self, pod: Object, name: str, type_: str, reason: str, message: str) -> None:
        """Record an event of a container; name: empty: of the pod."""
        path = next(
            (
                f"{shown}{{{name}}}"
                for group, shown in _GROUPS.items()
                if any(each["name"] == name for each in pod["spec"].get(group) or ())
            ),
            "",
        )
        self._tools.recorder.record(pod, type_, reason, message, field_path=path)


def _check_hostname(pod: Object, settings: NodeSettings) -> None:
    if problem := hostname_problem(pod, settings.names.cluster_domain):
        raise StartError("FailedCreatePodSandBox", problem)


def _looks_into_volumes(pod: Object, container: Object) -> bool:
    """Whether a container has parts of volumes whose file systems may hang."""
    volumes = pod["spec"].get("volumes") or ()
    others = {each["name"] for each in volumes if any(kind in each for kind in _OF_OTHERS)}
    mounts = container.get("volumeMounts") or ()
    return any(
        each["name"] in others and (each.get("subPath") or each.get("subPathExpr"))
        for each in mounts
    )


async def _unless_ending(record: PodRecord, work: Awaitable[_T]) -> _T:
    """Wait for something, but no longer than its pod is to run; _EndingError."""
    loop = asyncio.get_running_loop()
    doing = asyncio.ensure_future(work)
    ending = loop.create_task(record.ending.wait(), name="end of a pod")
    try:
        await asyncio.wait((doing, ending), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        raise _EndingError
    finally:
        ending.cancel()
        doing.cancel()


def _statuses(pod: Object) -> dict[str, Object]:
    status = pod.get("status") or {}
    fields = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return {each["name"]: each for field in fields for each in status.get(field) or ()}
