"""Runs containers as processes of this machine; see the package.

runtime = ProcessRuntime(ProcessOptions(root), images, clock, on_change)
await runtime.open()

What is on the disk is in `files`, what a shim is to start in `specs`, what the containers of a pod
share in `sandboxes`, what becomes of a container in `containers`.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.cancellation import until_done
from kvstack.agents.kubelet.runtime import selinux
from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.pod_groups import PodGroups
from kvstack.agents.kubelet.runtime.process import features, files, sessions, shims, specs
from kvstack.agents.kubelet.runtime.process.containers import Containers, RunningContainer
from kvstack.agents.kubelet.runtime.process.devices import nodes
from kvstack.agents.kubelet.runtime.process.devices.groups import DeviceGroups
from kvstack.agents.kubelet.runtime.process.features import Features
from kvstack.agents.kubelet.runtime.process.host_image import NOBODY, HostImage
from kvstack.agents.kubelet.runtime.process.host_ports import HostPorts
from kvstack.agents.kubelet.runtime.process.images import Images, StoredImage
from kvstack.agents.kubelet.runtime.process.interpreter import Interpreter
from kvstack.agents.kubelet.runtime.process.network import translator
from kvstack.agents.kubelet.runtime.process.network.pod_network import PodNetwork
from kvstack.agents.kubelet.runtime.process.node_lock import NodeLock, Record, lives
from kvstack.agents.kubelet.runtime.process.options import (
    AUTOMATIC,
    BRIDGE,
    SHARED,
    ProcessOptions,
)
from kvstack.agents.kubelet.runtime.process.sandboxes import HeldSandbox, Sandboxes, probe_network
from kvstack.agents.kubelet.runtime.process.shim import user_namespaces
from kvstack.agents.kubelet.runtime.process.shim.launch_spec import CommandSpec, LaunchSpec
from kvstack.agents.kubelet.runtime.process.specs import PAUSE
from kvstack.agents.kubelet.runtime.runtime import (
    ID,
    Abilities,
    Container,
    ContainerConfig,
    Image,
    ImageMissingError,
    Limits,
    Mount,
    Sandbox,
    StartError,
    Stream,
    UpdateError,
    Usage,
)
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError

_NOT_HONOURED: Final = (
    *("runtimeClassName", "appArmorProfile"),
    *("procMount", "hugepages", "Localhost"),
)
_CHANGEABLE: Final = "containers that run as root of the machine may change the interpreter"
_NEEDS_CGROUPS: Final = "limits"
_NEEDS_NETWORK: Final = "sysctls"
_LABELS: Final = "seLinuxOptions"
_NOT_READY: Final = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:"
)
_NO_RANGE: Final = f"{_NOT_READY}the node has no range of addresses for pods (spec.podCIDR)"
_RANGE_WITHIN_S: Final = 10.0
"""The time from a node's registration until pods share its address if they may (`auto`)."""


class ProcessRuntime:
    """Runs containers; all of it belongs to one loop."""

    name: Final = "process"
    version: Final = "1.0"
    pulls_images: Final = False

    def __init__(
        self,
        options: ProcessOptions,
        images: Images,
        clock: Clock,
        on_change: Callable[[str], None],
        cgroups: Cgroups | None = None,
        devices: DeviceGroups | None = None,
    ) -> None:
        """on_change: called with the uid of a pod one of whose containers ended."""
        self._options = options
        self._images = images
        self._clock = clock
        self.cgroups: Final = cgroups or Cgroups()
        self.devices: Final = devices or DeviceGroups(self.cgroups.root)
        self.interpreter: Final = Interpreter()
        self._groups: Final = PodGroups(self.cgroups, options.cgroup)
        self._lifeline = (-1, -1)
        self._files = files.PodFiles(options.root / "pods")
        self._containers = Containers(self._files, self.cgroups, clock, on_change)
        self._network = PodNetwork(
            str(options.root),
            options.state,
            options.cluster_ranges,
            lambda name: lives(options.state, name),
        )
        self._sandboxes = Sandboxes(
            options.root / "pods",
            options.state,
            self._network,
            outlives_node=not options.ends_with_node,
        )
        self._host_ports = HostPorts()
        self._unserved: list[str] = []
        """Ports of the node that pods of before had, and why they are not served."""
        self._may_connect = False
        self._bridge_problem = ""
        """Why the range that the node has is not in use yet."""
        self._range_until_s: float | None = None
        self.features = Features()
        """The features of this machine's kernel, once this is open."""
        self._host_image = HostImage()
        record = Record(
            self._network.bridge, str(options.root), options.ends_with_node, options.cgroup
        )
        self._node_lock = NodeLock(options.state, record, self.cgroups)

    async def open(self) -> None:
        """Find the containers that were started before; ConfigError: none can be made here."""
        await asyncio.to_thread(shims.probe)
        self.interpreter.open()
        await asyncio.to_thread(self._node_lock.begin)
        await asyncio.to_thread(self._files.open)
        self.features = await asyncio.to_thread(features.look, self._options.root)
        self._host_image = self._rules()
        if self._options.network != SHARED:
            problem = await asyncio.to_thread(probe_network)
            if problem and self._options.network == BRIDGE:
                raise ConfigError(f"networks for pods cannot be made here: {problem}")
            self._may_connect = not problem
        await asyncio.to_thread(self._sandboxes.open)
        for uid in self._sandboxes.uids():
            try:
                await self._listen_for(uid)
            except StartError as error:
                self._unserved.append(f"pod {uid} is not reached: {error.message}")
        await self._groups.open(self._options.limits)
        if self.cgroups.is_usable:
            await asyncio.to_thread(self.devices.probe, self._options.cgroup)
        if self._options.ends_with_node:
            self._lifeline = os.pipe()
        for directory in self._files.unrecorded():
            await shims.end_unrecorded(directory)
        for directory in self._files.of_containers():
            await self._containers.adopt(directory)
        self._containers.sort()

    def _rules(self) -> HostImage:
        options, found = self._options, self.features
        problem = found.user_namespaces or found.idmapped_mounts
        hidden = (options.root, *options.hidden)
        return HostImage(
            options.host_root_namespaces,
            hidden,
            has_user_namespaces=not problem,
            is_there=self._images.has_host,
            nobody=NOBODY if user_namespaces.has_id(NOBODY) else 0,
        )

    def enforced(self) -> tuple[str, list[str]]:
        """Return in one line what this node enforces, and what pods lack therefore; once open."""
        return self.features.summary(), [
            *([] if self.cgroups.is_usable else ["pods have no limits: no control groups"]),
            *([f"devices are not limited: {self.devices.problem}"] if self.devices.problem else []),
            *([f"{_CHANGEABLE}: {problem}"] if (problem := self.interpreter.problem) else []),
            *self.features.consequences(),
            *self._unserved,
        ]

    async def close(self) -> None:
        """Kill all containers if they end with the node; else let them be."""
        await self._containers.close(kills=self._options.ends_with_node)
        for descriptor in self._lifeline:
            if descriptor >= 0:
                os.close(descriptor)
        self._lifeline = (-1, -1)
        async with contextlib.AsyncExitStack() as ends:  # the later ones even if one before fails
            ends.push_async_callback(asyncio.to_thread, self._node_lock.end)
            if self._may_connect:
                ends.push_async_callback(asyncio.to_thread, self._network.close)
            ends.push_async_callback(asyncio.to_thread, self._sandboxes.close)
            ends.callback(self._host_ports.close)
            ends.callback(self.interpreter.close)
            ends.callback(self.devices.close)

    def problem(self) -> str:
        """Return why the node is not ready because of it."""
        if self._bridge_problem:
            return f"{_NOT_READY}{self._bridge_problem}"
        if self._network.networks:
            return ""
        network = self._options.network
        return _NO_RANGE if network == BRIDGE or self._waits_for_range() else ""

    def _waits_for_range(self) -> bool:
        """Whether a range may still come: a pod that starts before gets the node's address."""
        if self._range_until_s is None or self._options.network != AUTOMATIC:
            return False
        return self._may_connect and self._clock.monotonic_s() < self._range_until_s

    def unsupported(self, field: str) -> bool:
        """Whether a field of pods cannot be honoured."""
        if field == _NEEDS_CGROUPS:
            return not self.cgroups.is_usable
        if field == _NEEDS_NETWORK:
            return not self._may_connect
        if field == _LABELS:
            return selinux.is_enabled()
        if field == "hostUsers":
            return not self._host_image.has_user_namespaces
        if field.startswith(ID):
            return not user_namespaces.has_id(int(field.removeprefix(ID)))
        if field == "hostPID":
            return user_namespaces.is_restricted()
        if field == "RuntimeDefault":
            return bool(self.features.seccomp)
        if field == "recursiveReadOnly":
            return not specs.can_cover_all()
        return field in _NOT_HONOURED

    def abilities(self) -> Abilities:
        """Return what it can do: it has one handler."""
        found = {
            "recursiveReadOnlyMounts": specs.can_cover_all(),
            "userNamespaces": self._host_image.has_user_namespaces,
        }
        return Abilities({"": found}, keeps_to_groups=True)

    async def use_ranges(self, ranges: Sequence[str]) -> None:
        """Use the node's ranges for pod addresses; empty: it has none yet.

        Raises StartError if their network cannot be made now; it is tried again with each pod.
        """
        if self._range_until_s is None:
            self._range_until_s = self._clock.monotonic_s() + _RANGE_WITHIN_S
        try:
            self._network.use_ranges(ranges)
            if self.has_network:
                await until_done(asyncio.to_thread(self._network.open))
        except StartError as error:
            self._bridge_problem = error.message
            raise
        self._bridge_problem = ""

    @property
    def has_network(self) -> bool:
        """Whether pods have addresses of their own."""
        return self._may_connect and bool(self._network.networks)

    def pod_uids(self) -> Collection[str]:
        """Return the pods of which there is anything."""
        return {*self._containers.pod_uids(), *self._files.uids()}

    def of_pod(self, uid: str) -> Sequence[Container]:
        """Return the containers of a pod, oldest first."""
        return self._containers.of_pod(uid)

    def addresses(self, uid: str) -> Sequence[str]:
        """Return the addresses of a pod; none: it has no sandbox."""
        held = self._sandboxes.get(uid)
        return () if held is None else held.addresses or self._options.node_ips

    def own_addresses(self, uid: str) -> Sequence[str]:
        """Return the addresses that are a pod's own; none: it has those of its node, or is over."""
        held = self._sandboxes.get(uid)
        return () if held is None else held.addresses

    @property
    def families(self) -> tuple[int, ...]:
        """The families of pods' own addresses: 4, 6 or both."""
        return tuple(each.version for each in self._network.networks)

    @property
    def bridge(self) -> str:
        """The name of the bridge of its pods; empty: none can be made, or none is to be."""
        return self._network.bridge if self._may_connect else ""

    def has_sandbox(self, uid: str) -> bool:
        """Whether the sandbox of a pod exists."""
        return self._sandboxes.get(uid) is not None

    async def make_sandbox(self, sandbox: Sandbox) -> bool:
        """Make the namespaces of a pod; raises StartError."""
        is_new = self._sandboxes.get(sandbox.uid) is None
        lost = await self._sandboxes.make(
            sandbox,
            has_network=self.has_network,
            has_users=self._host_image.wants_users(sandbox),
        )
        try:
            await self._listen_for(sandbox.uid)
        except StartError:
            if is_new:
                await until_done(asyncio.to_thread(self._sandboxes.remove, sandbox.uid))
            raise
        await self._groups.make(sandbox.cgroup, sandbox.limits)
        if sandbox.shares_pids and not sandbox.has_host_pids:
            known = self._containers.pause_of(sandbox.uid)
            if known is None or not known.is_running:
                lost = lost or known is not None
                attempt = 0 if known is None else known.attempt + 1
                await self._start(ContainerConfig(sandbox, PAUSE, attempt, PAUSE), None)
        return lost

    async def _listen_for(self, uid: str) -> None:
        """Listen on ports of the node for a pod, where no rules lead to it; raises StartError."""
        held = self._sandboxes.get(uid)
        if held is not None and held.ports and held.addresses and not translator.program():
            await self._host_ports.serve(uid, held.addresses, held.ports)

    # Images.

    async def find_image(self, name: str) -> Image:
        """Return an image of the node's folder; raises ImageMissingError, StartError."""
        return _image_of(await asyncio.to_thread(self._images.find, name))

    async def pull_image(self, name: str, credentials: Sequence[Mapping[str, str]]) -> Image:
        """Return an image of the node's folder: there is nowhere else to get it from."""
        try:
            return await self.find_image(name)
        except ImageMissingError as error:
            raise StartError("ErrImagePull", str(error)) from error

    async def images(self) -> Sequence[Image]:
        """Return the images of the node's folder."""
        return [_image_of(each) for each in await asyncio.to_thread(self._images.all)]

    async def image_directory(self) -> Path | None:
        """Return the node's folder."""
        directory = self._images.directory
        return directory if await asyncio.to_thread(directory.is_dir) else None

    async def remove_image(self, image_id: str) -> None:
        """Do nothing: the directory of images belongs to the user."""

    # Containers.

    async def start(self, config: ContainerConfig) -> Container:
        """Start a container; raises StartError."""
        try:
            image = await asyncio.to_thread(self._images.find, config.image)
        except ImageMissingError as error:
            raise StartError("ErrImagePull", str(error)) from error
        return await self._start(config, image)

    async def _start(self, config: ContainerConfig, image: StoredImage | None) -> Container:
        uid = config.sandbox.uid
        directory = self._files.of_container(uid, config.name, config.attempt)
        sandbox = self._sandboxes.get(uid)
        if sandbox is None:
            raise StartError("RunContainerError", "the pod has no sandbox")
        devices = nodes.mounts_of(directory, config)
        config = replace(config, mounts=[*config.mounts, *devices])
        if image is not None and image.is_machine and not sandbox.first_id:
            security = self._host_image.limited(config.security, config.sandbox)
            config = replace(config, security=security)
        spec = await self._spec(config, image, directory, sandbox)
        try:
            spec = await asyncio.to_thread(self._prepare, directory, config, spec)
        except OSError as error:
            raise StartError("CreateContainerError", str(error)) from error
        user = await asyncio.to_thread(specs.user_of, spec) if image else None
        descriptors = list(sandbox.namespaces.values())
        process, pid = await shims.launch(
            directory, spec, self._lifeline[0], descriptors, self.interpreter.path
        )
        container = Container(
            f"{uid}-{config.name}-{config.attempt}",
            uid,
            config.name,
            config.attempt,
            image.name if image else PAUSE,
            image.id if image else PAUSE,
            self._clock.now_s(),
            log=Path(spec.log),
            has_tty=config.has_tty,
            spec_image=config.image,
            user=user,
        )
        files.write_record(directory, container, pid)
        running = RunningContainer(container, spec, pid)
        await self._containers.follow(running, directory, process)
        return container

    async def _spec(
        self,
        config: ContainerConfig,
        image: StoredImage | None,
        directory: Path,
        sandbox: HeldSandbox,
    ) -> LaunchSpec:
        uid = config.sandbox.uid
        argv = specs.argv_of(config, image)
        if config.devices.names:
            text = f"devices by their names in CDI: {', '.join(config.devices.names)}: not known"
            raise StartError("CreateContainerConfigError", text)
        sources = [await self._source(each) for each in config.mounts]
        names, shm = self._files.names(uid), self._sandboxes.shm(uid)
        is_of_host = image is not None and image.is_machine
        paths = specs.ContainerPaths(
            directory,
            names,
            shm,
            sources,
            sandbox.user_namespace,
            sandbox.first_id,
            await asyncio.to_thread(self._host_image.secrets) if is_of_host else None,
            sandbox.flags(),
            filters_by_default=not self.features.seccomp,
        )
        return specs.spec_of(config, image, argv, paths, self._pid_of(config))

    async def _source(self, mount: Mount) -> str:
        """Return what a mount shows: a place of the node, or in an image; raises StartError."""
        if not mount.image:
            return mount.source
        try:
            image = await asyncio.to_thread(self._images.find, mount.image)
        except ImageMissingError as error:
            raise StartError("ErrImagePull", str(error)) from error
        if image.is_machine:  # nothing would be hidden there
            text = f"image {mount.image} cannot be a volume: it is the machine's own files"
            raise StartError("CreateContainerConfigError", text)
        return await asyncio.to_thread(specs.path_in_image, image, mount.source)

    def _pid_of(self, config: ContainerConfig) -> int:
        """Return the process whose namespace a container enters; 0: it gets its own."""
        if config.target:
            running = self._containers.running(config.target)
            if running is None:
                raise StartError(
                    "CreateContainerConfigError",
                    f"unable to find target container {config.target}",
                )
            return running.pid
        return 0 if config.name == PAUSE else self._containers.pid_of_pause(config.sandbox.uid)

    def _prepare(self, directory: Path, config: ContainerConfig, spec: LaunchSpec) -> LaunchSpec:
        """Make files and control groups of a container; return it with these; OSError."""
        self._files.prepare(directory, config, Path(spec.log))
        nodes.make(directory, config)
        if spec.cgroup_path and self.cgroups.is_usable:
            made = self.cgroups.make(spec.cgroup_path, config.limits)
            spec = spec._replace(cgroup_files=tuple(made))
        if spec.pauses:
            return spec
        spec = specs.limit_devices(spec, self.devices)
        return spec._replace(cgroup_view=self.cgroups.view(spec.cgroup_files))

    async def stop(self, container_id: str, grace_s: float) -> None:
        """Send the stop signal to a container, and kill it after grace_s."""
        await self._containers.stop(container_id, grace_s)

    async def update(self, container_id: str, limits: Limits) -> None:
        """Give a container other limits while it runs; raises UpdateError."""
        running = self._containers.running(container_id)
        if running is None or not running.spec.cgroup_files:
            return  # it ended, or nothing limits it
        try:
            await asyncio.to_thread(self.cgroups.limit, running.spec.cgroup_path, limits)
        except OSError as error:
            if files.read_exit(self._containers.directory_of(running.container)) is not None:
                return  # it ended, and its group is removed before it is forgotten
            raise UpdateError(str(error)) from error

    async def limit_pod(self, cgroup: str, limits: Limits) -> None:
        """Give a pod as a whole other limits; raises UpdateError."""
        await self._groups.limit(cgroup, limits)

    async def exec(
        self, container_id: str, command: Sequence[str], *, tty: bool
    ) -> sessions.CommandSession:
        """Run a command in a container; raises StartError."""
        running = self._containers.still_running(container_id)
        environment = {**running.spec.environment, **({"TERM": "xterm"} if tty else {})}
        spec = CommandSpec(tuple(command), tty, environment)
        return await sessions.start_command(self._containers.directory_of(running.container), spec)

    async def attach(self, container_id: str) -> sessions.AttachedSession:
        """Talk to a container's first process; raises StartError."""
        return await sessions.attach(
            self._containers.directory_of(self._containers.still_running(container_id).container)
        )

    async def connect(self, uid: str, port: int) -> Stream:
        """Connect with a port of a pod's loopback; raises ConnectError."""
        return await self._sandboxes.connect(uid, port)

    async def usage(self) -> Sequence[Usage]:
        """Return what the containers that run use; nothing without control groups."""
        return await self._containers.usage()

    async def reopen_log(self, container_id: str) -> None:
        """Reopen a container's log after rotation."""
        await self._containers.reopen_log(container_id)

    async def remove_container(self, container_id: str) -> None:
        """Forget a container that has ended, and its files."""
        await self._containers.remove(container_id)

    async def stop_sandbox(self, uid: str) -> None:
        """End what held the process namespace, and the others; its control group goes."""
        if (pause := self._containers.pause_of(uid)) is not None:
            await self._containers.stop(pause.id, 0)
        self._host_ports.drop(uid)
        if self._sandboxes.get(uid) is not None:
            await until_done(asyncio.to_thread(self._sandboxes.remove, uid))
        await self._groups.remove(uid)

    async def remove_pod(self, uid: str) -> None:
        """Forget a pod of which nothing runs, and its files."""
        await self.stop_sandbox(uid)
        await until_done(asyncio.to_thread(self._sandboxes.remove, uid))
        self._containers.forget_pod(uid)
        await asyncio.to_thread(self._files.remove, uid)


def _image_of(image: StoredImage) -> Image:
    return Image(image.id, [image.name], image.size_bytes, image.user, is_pinned=True)
