"""Runs containers with a container engine; see the package.

runtime = CriRuntime(CriOptions("unix:///run/containerd/containerd.sock", root), clock, on_change)

What the engine has is listed every second, and after each change that is made here.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from google.protobuf.message import Message

from kvstack.agents.kubelet.runtime import selinux
from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.cri import answers, specs, streams
from kvstack.agents.kubelet.runtime.cri.client import CriClient, CriError
from kvstack.agents.kubelet.runtime.cri.gen import api_pb2 as cri
from kvstack.agents.kubelet.runtime.cri.image_mounts import image_mount_problem
from kvstack.agents.kubelet.runtime.cri.images import EngineImages
from kvstack.agents.kubelet.runtime.pod_groups import CGROUPFS, SYSTEMD, PodGroups
from kvstack.agents.kubelet.runtime.runtime import (
    Abilities,
    ConnectError,
    Container,
    ContainerConfig,
    Limits,
    Sandbox,
    StartError,
    Stream,
    UpdateError,
    Usage,
)
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger

_LIST_EVERY_S: Final = 1.0
_DOWN_AFTER_S: Final = 30.0
_SANDBOX_S: Final = 240.0
_STOP_MORE_S: Final = 120.0
_GONE: Final = "NOT_FOUND"
_UNKNOWN_CALL: Final = "UNIMPLEMENTED"
_NOT_HONOURED: Final = ("hostUsers", "appArmorProfile", "procMount")
_LABELS: Final = "seLinuxOptions"


@dataclass(frozen=True, slots=True)
class CriOptions:
    """Settings of a runtime."""

    endpoint: str
    root: Path
    """The node's directory."""
    logs: Path
    image_endpoint: str = ""
    """Empty: the same."""
    cgroup: str = "kubepods"
    """Under which pods are."""
    limits: Limits | None = None
    """The limits of all pods together; None: set by others."""
    cgroup_driver: str = CGROUPFS
    """The cgroup driver of an engine that does not report its own."""


class _Sandbox:
    """The newest sandbox of a pod."""

    __slots__ = ("addresses", "attempt", "config", "id", "is_ready")

    def __init__(self, number: str, attempt: int, *, is_ready: bool) -> None:
        self.id = number
        self.attempt = attempt
        self.is_ready = is_ready
        self.addresses: tuple[str, ...] = ()
        self.config: cri.PodSandboxConfig | None = None


class CriRuntime(EngineImages):
    """Runs containers; all of it belongs to one loop."""

    pulls_images: Final = True
    has_network: Final = True

    def __init__(
        self,
        options: CriOptions,
        clock: Clock,
        logger: Logger,
        on_change: Callable[[str], None],
    ) -> None:
        """on_change: called with the uid of a pod one of whose containers changed."""
        self._options = options
        self._clock = clock
        self._on_change = on_change
        self._client = CriClient(options.endpoint)
        own = CriClient(options.image_endpoint) if options.image_endpoint else self._client
        super().__init__(own, logger)
        self._containers: dict[str, Container] = {}
        self._sandboxes: dict[str, list[_Sandbox]] = {}  # by uid, the newest last
        self._removed: set[str] = set()  # sandboxes that a list may still have
        self._made: set[str] = set()  # sandboxes and containers that the last list may not have
        self._listed_s = 0.0
        self._problem = "container runtime status check may not have completed yet"
        self._abilities = Abilities({}, None)
        cgroups = Cgroups()
        self._is_unified = cgroups.version == 2
        self._driver = options.cgroup_driver
        self._groups = PodGroups(cgroups, options.cgroup)
        self._tasks: list[asyncio.Task[None]] = []
        self.name = ""
        self.version = ""

    async def open(self) -> None:
        """Read the engine's version, and its containers; raises ConfigError."""
        try:
            await self._read_version()
            await self._look()
            await self._check()
            self._driver = await self._reported_driver()
        except CriError as error:
            raise ConfigError(f"the container engine does not answer: {error.text}") from error
        if self._driver == SYSTEMD:
            self._logger.warning("systemd makes control groups: a pod as a whole has no limits")
        else:
            await self._groups.open(self._options.limits)
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._keep_looking(), name="containers of the engine")]

    async def _read_version(self) -> None:
        request = cri.VersionRequest(version="0.1.0")
        answer = await self._client.call("Version", request, cri.VersionResponse)
        self.name, self.version = answer.runtime_name, answer.runtime_version

    async def _reported_driver(self) -> str:
        """Return what makes the engine's control groups; as in the settings if it is silent."""
        request = cri.RuntimeConfigRequest()
        try:
            answer = await self._client.call("RuntimeConfig", request, cri.RuntimeConfigResponse)
        except CriError as error:
            if error.code != _UNKNOWN_CALL:
                raise
            return self._options.cgroup_driver
        if not answer.HasField("linux"):
            return self._options.cgroup_driver
        return SYSTEMD if answer.linux.cgroup_driver == cri.SYSTEMD else CGROUPFS

    async def close(self) -> None:
        """Disconnect; containers go on."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()
        await self.close_images()

    def problem(self) -> str:
        """Return why the node is not ready because of the engine."""
        if self._clock.monotonic_s() - self._listed_s > _DOWN_AFTER_S:
            return "container runtime is down"
        return self._problem

    def unsupported(self, field: str) -> bool:
        """Whether a field of pods cannot be honoured."""
        if field == "supplementalGroupsPolicy":
            return not self._abilities.keeps_to_groups
        if field == "recursiveReadOnly":
            of_default = self._abilities.handlers.get("", {})
            return not of_default.get("recursiveReadOnlyMounts", False)
        if field == _LABELS:
            return selinux.is_enabled()
        return field in _NOT_HONOURED

    def abilities(self) -> Abilities:
        """Return what the engine said of itself last."""
        return self._abilities

    def pod_uids(self) -> Collection[str]:
        """Return the pods of which there is anything."""
        return {*self._sandboxes, *(each.pod_uid for each in self._containers.values())}

    def of_pod(self, uid: str) -> Sequence[Container]:
        """Return the containers of a pod, oldest first."""
        found = [each for each in self._containers.values() if each.pod_uid == uid]
        return sorted(found, key=lambda each: (each.name, each.attempt))

    def addresses(self, uid: str) -> Sequence[str]:
        """Return the addresses of a pod."""
        known = self._sandboxes.get(uid)
        return known[-1].addresses if known else ()

    def has_sandbox(self, uid: str) -> bool:
        """Whether a sandbox of a pod is ready."""
        known = self._sandboxes.get(uid)
        return known is not None and known[-1].is_ready

    async def use_ranges(self, ranges: Sequence[str]) -> None:
        """Pass the pod CIDRs of the node to the engine."""
        if not ranges:
            return
        network = cri.NetworkConfig(pod_cidr=",".join(ranges))
        request = cri.UpdateRuntimeConfigRequest(
            runtime_config=cri.RuntimeConfig(network_config=network)
        )
        await self._quietly("UpdateRuntimeConfig", request, cri.UpdateRuntimeConfigResponse())

    # What the engine has.

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(_LIST_EVERY_S)
            try:
                await self._look()
                await self._check()
            except CriError as error:
                self._logger.warning("the container engine does not answer", error=error.text)

    async def _check(self) -> None:
        answer = await self._client.call("Status", cri.StatusRequest(), cri.StatusResponse)
        self._abilities = answers.abilities_of(answer)
        self._problem = answers.problem_of(answer.status)

    async def _look(self) -> None:
        """List what the engine has, and report pods that have changed."""
        self._made.clear()
        sandboxes = await self._client.call(
            "ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse
        )
        listed = await self._client.call(
            "ListContainers", cri.ListContainersRequest(), cri.ListContainersResponse
        )
        self._listed_s = self._clock.monotonic_s()
        changed = await self._take_sandboxes(sandboxes.items)
        current_ids = set()
        for each in listed.containers:
            uid = each.labels.get(specs.POD_UID)
            if not uid or specs.CONTAINER_NAME not in each.labels:
                continue
            current_ids.add(each.id)
            known = self._containers.get(each.id)
            runs = each.state == cri.CONTAINER_RUNNING
            if each.state == cri.CONTAINER_CREATED and known is None:
                continue  # it is about to start, or never will
            if known is None or known.is_running is not runs:
                await self._refresh(each.id)
                changed.add(uid)
        current_ids |= self._made
        for number in [each for each in self._containers if each not in current_ids]:
            changed.add(self._containers.pop(number).pod_uid)
        for uid in changed:
            self._on_change(uid)

    async def _take_sandboxes(self, listed: Sequence[cri.PodSandbox]) -> set[str]:
        fresh: dict[str, list[_Sandbox]] = {}
        changed = set()
        for each in sorted(listed, key=lambda one: one.created_at):
            uid = each.labels.get(specs.POD_UID)
            if not uid or each.id in self._removed:
                continue
            is_ready = each.state == cri.SANDBOX_READY
            known = next((one for one in self._sandboxes.get(uid, ()) if one.id == each.id), None)
            if known is None:
                known = _Sandbox(each.id, each.metadata.attempt, is_ready=is_ready)
                if is_ready:
                    await self._read_address(known)
            if known.is_ready is not is_ready:
                known.is_ready = is_ready
                changed.add(uid)
            fresh.setdefault(uid, []).append(known)
        for uid, found in self._sandboxes.items():  # with those that came while this waited…
            made = {each.id: each for each in found if each.id in self._made}
            others = [each for each in fresh.get(uid, ()) if each.id not in made]
            if made:
                fresh[uid] = [*others, *made.values()]
        kept = {  # …and without those that went
            uid: [each for each in found if each.id not in self._removed]
            for uid, found in fresh.items()
        }
        self._sandboxes = {uid: found for uid, found in kept.items() if found}
        self._removed &= {each.id for each in listed}
        return changed

    async def _read_address(self, sandbox: _Sandbox) -> None:
        request = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox.id)
        with contextlib.suppress(CriError):  # it went meanwhile
            answer = await self._client.call(
                "PodSandboxStatus", request, cri.PodSandboxStatusResponse
            )
            network = answer.status.network
            every = (network.ip, *(each.ip for each in network.additional_ips))
            sandbox.addresses = tuple(filter(None, every))

    async def _refresh(self, number: str) -> Container | None:
        """Read the status of a container; None: it does not exist."""
        request = cri.ContainerStatusRequest(container_id=number)
        try:
            answer = await self._client.call(
                "ContainerStatus", request, cri.ContainerStatusResponse
            )
        except CriError as error:
            if error.code != _GONE:
                raise
            return None
        status = answer.status
        container = self._containers.get(number)
        if container is None:
            container = self._containers[number] = answers.container_of(status)
            self._made.add(number)
        container.is_running = status.state == cri.CONTAINER_RUNNING
        if status.started_at:
            container.started_s = status.started_at / 1e9
        if not container.is_running:
            container.exit_code, container.reason = status.exit_code, status.reason
            container.finished_s = (status.finished_at or status.created_at) / 1e9
            container.message = (
                await asyncio.to_thread(answers.termination_message_of, status) or status.message
            )
        return container

    # Sandboxes.

    async def make_sandbox(self, sandbox: Sandbox) -> bool:
        """Run a sandbox, unless one is ready; raises StartError."""
        sandboxes = self._sandboxes.get(sandbox.uid, [])
        if sandboxes and sandboxes[-1].is_ready:
            if sandboxes[-1].config is None:
                sandboxes[-1].config = specs.sandbox_config(
                    sandbox, sandboxes[-1].attempt, self._driver
                )
            return False
        attempt = sandboxes[-1].attempt + 1 if sandboxes else 0
        config = specs.sandbox_config(sandbox, attempt, self._driver)
        await self._groups.make(sandbox.cgroup, sandbox.limits)
        await asyncio.to_thread(os.makedirs, sandbox.log_directory, 0o755, exist_ok=True)
        request = cri.RunPodSandboxRequest(config=config, runtime_handler=sandbox.handler)
        try:
            answer = await self._client.call(
                "RunPodSandbox", request, cri.RunPodSandboxResponse, _SANDBOX_S
            )
        except CriError as error:
            raise StartError("FailedCreatePodSandBox", error.text) from error
        made = _Sandbox(answer.pod_sandbox_id, attempt, is_ready=True)
        made.config = config
        self._made.add(made.id)
        await self._read_address(made)
        self._sandboxes[sandbox.uid] = [*self._sandboxes.get(sandbox.uid, ()), made]
        return bool(sandboxes)

    # Containers.

    async def start(self, config: ContainerConfig) -> Container:
        """Start a container in its pod's sandbox; raises StartError."""
        uid = config.sandbox.uid
        sandboxes = self._sandboxes.get(uid)
        if not sandboxes:  # the engine lost it meanwhile
            raise StartError("CreateContainerError", "the pod has no sandbox")
        sandbox = sandboxes[-1]
        message = self._options.root / "pods" / uid / "containers" / config.name
        message /= f"{config.attempt:08x}"
        logs = Path(config.sandbox.log_directory) / config.name
        await asyncio.to_thread(_make_paths, message, logs)
        request = cri.CreateContainerRequest(
            pod_sandbox_id=sandbox.id,
            config=specs.container_config(
                config,
                str(message),
                recursive=not self.unsupported("recursiveReadOnly"),
                unified=self._is_unified,
            ),
            sandbox_config=sandbox.config,
        )
        try:
            await self._check_image_mounts(config)
            made = await self._client.call("CreateContainer", request, cri.CreateContainerResponse)
        except CriError as error:
            raise StartError("CreateContainerError", error.text) from error
        number = made.container_id
        begin = cri.StartContainerRequest(container_id=number)
        try:
            await self._client.call("StartContainer", begin, cri.StartContainerResponse)
        except CriError as error:
            await self._refresh(number)
            raise StartError("RunContainerError", error.text) from error
        found = await self._refresh(number)
        if found is None:
            raise StartError("RunContainerError", "the container is gone")
        return found

    async def _check_image_mounts(self, config: ContainerConfig) -> None:
        """Raise StartError if the engine is too old for the images that a container mounts."""
        images = [each for each in config.mounts if each.image]
        if images:
            await self._read_version()  # the engine may have been upgraded since
            has_sub_path = any(each.source for each in images)
            if problem := image_mount_problem(self.name, self.version, has_sub_path=has_sub_path):
                raise StartError("CreateContainerError", problem)

    async def stop(self, container_id: str, grace_s: float) -> None:
        """Stop a container."""
        request = cri.StopContainerRequest(container_id=container_id, timeout=int(grace_s))
        try:
            await self._client.call(
                "StopContainer", request, cri.StopContainerResponse, grace_s + _STOP_MORE_S
            )
            await self._refresh(container_id)
        except CriError as error:
            if error.code != _GONE:
                self._logger.warning("failed to stop a container", error=error.text)

    async def update(self, container_id: str, limits: Limits) -> None:
        """Change the limits of a container; raises UpdateError."""
        request = cri.UpdateContainerResourcesRequest(
            container_id=container_id, linux=specs.resources(limits, unified=self._is_unified)
        )
        answer = cri.UpdateContainerResourcesResponse
        try:
            await self._client.call("UpdateContainerResources", request, answer)
        except CriError as error:
            raise UpdateError(error.text) from error

    async def limit_pod(self, cgroup: str, limits: Limits) -> None:
        """Give a pod as a whole other limits, where its group is this node's; UpdateError."""
        await self._groups.limit(cgroup, limits)

    async def exec(
        self, container_id: str, command: Sequence[str], *, tty: bool
    ) -> streams.EngineSession:
        """Run a command in a container; raises StartError."""
        request = cri.ExecRequest(
            container_id=container_id,
            cmd=list(command),
            tty=tty,
            stdin=True,
            stdout=True,
            stderr=not tty,
        )
        try:
            answer = await self._client.call("Exec", request, cri.ExecResponse)
        except CriError as error:
            raise StartError("ExecFailed", error.text) from error
        return await streams.open_command(answer.url, tty=tty)

    async def attach(self, container_id: str) -> streams.EngineSession:
        """Talk to a container's first process; raises StartError."""
        known = self._containers.get(container_id)
        tty = known is not None and known.has_tty
        request = cri.AttachRequest(
            container_id=container_id, stdin=True, stdout=True, stderr=not tty, tty=tty
        )
        try:
            answer = await self._client.call("Attach", request, cri.AttachResponse)
        except CriError as error:
            raise StartError("NotRunning", error.text) from error
        return await streams.open_command(answer.url, tty=tty)

    async def connect(self, uid: str, port: int) -> Stream:
        """Connect with a port of a pod; raises ConnectError."""
        known = self._sandboxes.get(uid)
        if not known:
            raise ConnectError("the pod has no sandbox")
        request = cri.PortForwardRequest(pod_sandbox_id=known[-1].id, port=[port])
        try:
            answer = await self._client.call("PortForward", request, cri.PortForwardResponse)
        except CriError as error:
            raise ConnectError(error.text) from error
        return await streams.open_port(answer.url, port)

    async def usage(self) -> Sequence[Usage]:
        """Return what the containers that run use."""
        answer = await self._client.call(
            "ListContainerStats", cri.ListContainerStatsRequest(), cri.ListContainerStatsResponse
        )
        found = []
        for each in answer.stats:
            container = self._containers.get(each.attributes.id)
            if container is None or not container.is_running:
                continue
            found.append(answers.usage_of(container, each))
        return found

    async def reopen_log(self, container_id: str) -> None:
        """Reopen a container's log after rotation."""
        request = cri.ReopenContainerLogRequest(container_id=container_id)
        with contextlib.suppress(CriError):  # it ended meanwhile
            await self._client.call("ReopenContainerLog", request, cri.ReopenContainerLogResponse)

    async def remove_container(self, container_id: str) -> None:
        """Forget a container that has ended."""
        request = cri.RemoveContainerRequest(container_id=container_id)
        await self._quietly("RemoveContainer", request, cri.RemoveContainerResponse())
        self._containers.pop(container_id, None)

    async def stop_sandbox(self, uid: str) -> None:
        """Stop the sandboxes of a pod; its control group goes, with what the engine left there."""
        for each in self._sandboxes.get(uid, ()):
            if each.is_ready:
                request = cri.StopPodSandboxRequest(pod_sandbox_id=each.id)
                await self._quietly("StopPodSandbox", request, cri.StopPodSandboxResponse())
                each.is_ready = False
        await self._groups.remove(uid)

    async def remove_pod(self, uid: str) -> None:
        """Remove the containers and sandboxes of a pod of which nothing runs."""
        for container in self.of_pod(uid):
            await self.remove_container(container.id)
        for each in self._sandboxes.pop(uid, ()):
            request = cri.RemovePodSandboxRequest(pod_sandbox_id=each.id)
            self._removed.add(each.id)  # first: a list may come meanwhile
            if not await self._quietly("RemovePodSandbox", request, cri.RemovePodSandboxResponse()):
                self._removed.discard(each.id)

    async def _quietly(self, method: str, request: Message, answer: Message) -> bool:
        """Make a call that is made again where it fails: at the next look; return how it went."""
        try:
            await self._client.call(method, request, type(answer))
        except CriError as error:
            if error.code != _GONE:
                self._logger.warning("the container engine refuses", call=method, error=error.text)
                return False
        return True


def _make_paths(message: Path, logs: Path) -> None:
    logs.mkdir(mode=0o755, parents=True, exist_ok=True)
    message.parent.mkdir(parents=True, exist_ok=True)
    message.touch()
    message.chmod(0o666)
