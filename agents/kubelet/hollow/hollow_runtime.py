"""Simulated containers, behind the protocol of all runtimes.

    runtime = HollowRuntime(network, clock, node)
    await runtime.make_sandbox(sandbox); found = await runtime.start(wanted)
    runtime.end(found, 3)            as if its program had ended by itself

A container runs until it is stopped, or until its end is simulated, and uses what annotations
of its pod say (`loads`). Nothing of it is on the machine: no process, no file, no log; what is
there is forgotten with this object. Images are there by their names, but for those that begin with
`missing/`. It is small, since thousands of nodes of one process have one each.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.hollow.loads import IDLE, Load, load_of
from kvstack.agents.kubelet.runtime.pod_addresses import NoAddressError, PodAddresses
from kvstack.agents.kubelet.runtime.runtime import (
    Abilities,
    ConnectError,
    Container,
    ContainerConfig,
    Counts,
    Image,
    ImageMissingError,
    Limits,
    Sandbox,
    Session,
    StartError,
    Stream,
    Usage,
)
from kvstack.component.clock import Clock

NAME: Final = "hollow"
MISSING: Final = "missing/"
"""The prefix of images that cannot be pulled."""
_KILLED: Final = 137
_ABILITIES: Final = Abilities({}, None)
_COUNTS: Final = Counts(*(0,) * len(Counts._fields))


def container_of(uid: str, name: str, attempt: int, image: str, now_s: float) -> Container:
    """Return a container that has just started."""
    number = f"{uid}/{name}" if attempt == 0 else f"{uid}/{name}/{attempt}"
    image_id = sys.intern(f"{image}@{NAME}")  # thousands of pods have the same
    return Container(number, uid, name, attempt, image, image_id, now_s, spec_image=image)


class _Pod:
    """The state of a pod; its address is None without a sandbox, and empty for the node's."""

    __slots__ = ("address", "containers", "load", "meters")

    def __init__(self, address: str | None) -> None:
        self.address = address
        self.containers: tuple[Container, ...] = ()
        self.load: Load = IDLE
        self.meters: dict[str, tuple[float, int]] | None = None
        """By id of the container: until when its CPU time was counted, and the nanoseconds."""


def _nobody(_uid: str) -> None:
    """Ignore an event: the caller drives the pods itself."""


class HollowRuntime:
    """The containers of one node."""

    name: Final = NAME
    version: Final = "1.0"
    pulls_images: Final = True
    has_network: Final = True
    __slots__ = ("_addresses", "_clock", "_node", "_on_change", "_pods")

    def __init__(
        self,
        network: IPv4Network,
        clock: Clock,
        node: str,
        on_change: Callable[[str], None] = _nobody,
    ) -> None:
        """network: from which pods have addresses; node: its name.

        on_change: called with the uid of a pod when one of its containers has ended on its own.
        """
        self._addresses = PodAddresses(network)
        self._clock = clock
        self._node = node
        self._on_change = on_change
        self._pods: dict[str, _Pod] = {}

    # What there is.

    async def open(self) -> None:
        """Find nothing: what was before is forgotten."""

    async def close(self) -> None:
        """Do nothing: nothing is open."""

    def problem(self) -> str:
        """Return that nothing is wrong."""
        return ""

    def unsupported(self, field: str) -> bool:
        """Return False: without processes, every field can be honoured."""
        return False

    def abilities(self) -> Abilities:
        """Return nothing: capabilities of simulated pods are unknown."""
        return _ABILITIES

    def pod_uids(self) -> Collection[str]:
        """Return the pods of which there is anything."""
        return self._pods.keys()

    def of_pod(self, uid: str) -> Sequence[Container]:
        """Return the containers of a pod, oldest first."""
        pod = self._pods.get(uid)
        return () if pod is None else pod.containers

    def addresses(self, uid: str) -> Sequence[str]:
        """Return the address of a pod; none: it has none of its own."""
        pod = self._pods.get(uid)
        return (pod.address,) if pod is not None and pod.address else ()

    def has_sandbox(self, uid: str) -> bool:
        """Whether a pod has a sandbox."""
        pod = self._pods.get(uid)
        return pod is not None and pod.address is not None

    # Sandboxes.

    async def use_ranges(self, ranges: Sequence[str]) -> None:
        """Use the first range of IPv4."""
        for each in ranges:
            if ":" not in each:
                self.use_network(IPv4Network(each))
                return

    def use_network(self, network: IPv4Network) -> None:
        """Use a range, unless pods have addresses of another."""
        if self._addresses.is_unused and network != self._addresses.network:
            self._addresses = PodAddresses(network)

    def keep(self, uid: str, address: str) -> None:
        """Remember the address of an existing pod."""
        self._pods.setdefault(uid, _Pod(None)).address = address
        if address:
            self._addresses.keep(address, uid)

    async def make_sandbox(self, sandbox: Sandbox) -> bool:
        """Give a pod an address; raises StartError."""
        try:
            load = load_of(sandbox.annotations)
        except ValueError as error:
            raise StartError("FailedCreatePodSandBox", str(error)) from error
        self.connect_pod(sandbox.uid, is_on_host=sandbox.has_host_network)
        self.use_load(sandbox.uid, load)
        return False

    def connect_pod(self, uid: str, *, is_on_host: bool) -> str:
        """Return the address of a pod, given now if it has none yet; raises StartError."""
        pod = self._pods.get(uid)
        if pod is None:
            pod = self._pods[uid] = _Pod(None)
        if pod.address is None:
            try:
                pod.address = "" if is_on_host else self._addresses.of(uid)
            except NoAddressError as error:
                raise StartError("FailedCreatePodSandBox", str(error)) from error
        return pod.address

    async def stop_sandbox(self, uid: str) -> None:
        """Free the address of a pod."""
        self._free(uid)

    async def remove_pod(self, uid: str) -> None:
        """Forget a pod."""
        self.forget(uid)

    def forget(self, uid: str) -> None:
        """Forget a pod, whatever runs of it."""
        self._free(uid)
        self._pods.pop(uid, None)

    def _free(self, uid: str) -> None:
        pod = self._pods.get(uid)
        if pod is not None:
            if pod.address:
                self._addresses.free(pod.address, uid)
            pod.address = None

    # Images.

    async def find_image(self, name: str) -> Image:
        """Return an image; raises ImageMissingError."""
        if name.startswith(MISSING):
            raise ImageMissingError(name)
        return Image(f"{name}@{NAME}", (name,))

    async def pull_image(self, name: str, credentials: Sequence[Mapping[str, str]]) -> Image:
        """Return an image; raises StartError."""
        try:
            return await self.find_image(name)
        except ImageMissingError as error:
            raise StartError("ErrImagePull", f'image "{name}" is nowhere') from error

    async def images(self) -> Sequence[Image]:
        """Return the images of the containers that there are."""
        used = {each.image for pod in self._pods.values() for each in pod.containers}
        return [await self.find_image(each) for each in sorted(used)]

    async def image_directory(self) -> Path | None:
        """Return that there is none."""
        return None

    async def remove_image(self, image_id: str) -> None:
        """Do nothing: images use no disk."""

    # Containers.

    async def start(self, config: ContainerConfig) -> Container:
        """Pretend to start a container; raises StartError."""
        uid = config.sandbox.uid
        if not self.has_sandbox(uid):
            raise StartError("RunContainerError", "the pod has no sandbox")
        return self.begin(uid, config.name, config.attempt, config.image)

    def begin(self, uid: str, name: str, attempt: int, image: str) -> Container:
        """Pretend to start a container of a pod that has a sandbox."""
        found = container_of(uid, name, attempt, image, self._clock.now_s())
        pod = self._pods[uid]
        pod.containers = (*pod.containers, found)
        return found

    def end(self, container: Container, exit_code: int) -> None:
        """End a container, as if its program did."""
        if not container.is_running:
            return
        container.is_running = False
        container.exit_code = exit_code
        container.reason = "Error" if exit_code else "Completed"
        container.finished_s = self._clock.now_s()
        self._on_change(container.pod_uid)

    def _find(self, container_id: str) -> Container | None:
        uid = container_id.partition("/")[0]
        return next((each for each in self.of_pod(uid) if each.id == container_id), None)

    async def stop(self, container_id: str, grace_s: float) -> None:
        """End a container at once, as if it was killed."""
        found = self._find(container_id)
        if found is not None:
            self.end(found, _KILLED)

    async def update(self, container_id: str, limits: Limits) -> None:
        """Do nothing: there are no processes to limit."""

    async def limit_pod(self, cgroup: str, limits: Limits) -> None:
        """Do nothing: there are no processes to limit."""

    async def remove_container(self, container_id: str) -> None:
        """Forget a container that has ended."""
        uid = container_id.partition("/")[0]
        if (pod := self._pods.get(uid)) is not None:
            pod.containers = tuple(each for each in pod.containers if each.id != container_id)

    def use_load(self, uid: str, load: Load) -> None:
        """Change the load of a pod from now on; past usage stays."""
        pod = self._pods.get(uid)
        if pod is not None and pod.load != load:
            self._usage_of(pod, self._clock.now_s())
            pod.load = load

    def restore(self, container: Container) -> None:
        """Remember a container that was started before this process."""
        pod = self._pods.get(container.pod_uid)
        if pod is not None:
            pod.containers = (*pod.containers, container)

    async def usage(self) -> Sequence[Usage]:
        """Return what containers seem to use."""
        now_s = self._clock.now_s()
        return [each for pod in self._pods.values() for each in self._usage_of(pod, now_s)]

    def usage_of(self, uid: str) -> Sequence[Usage]:
        """Return what the containers of a pod seem to use."""
        pod = self._pods.get(uid)
        return () if pod is None else self._usage_of(pod, self._clock.now_s())

    def _usage_of(self, pod: _Pod, now_s: float) -> list[Usage]:
        running = [each for each in pod.containers if each.is_running]
        before, pod.meters = pod.meters or {}, {}
        usages: list[Usage] = []
        for each in running:
            counted_s, cpu_ns = before.get(each.id, (each.started_s, 1))  # 0: not measured
            begin_s, end_s = counted_s - each.started_s, now_s - each.started_s
            if end_s > begin_s:
                cpu_ns += int(pod.load.cpu.between(begin_s, end_s) * 1e9) // len(running)
                counted_s = now_s
            pod.meters[each.id] = (counted_s, cpu_ns)
            memory = max(int(pod.load.memory.at(end_s)) // len(running), 1)
            counts = _COUNTS._replace(memory_max_bytes=memory)
            usages.append(Usage(each, cpu_ns, memory, memory, memory, processes=1, counts=counts))
        return usages

    async def reopen_log(self, container_id: str) -> None:
        """Do nothing: there is no log."""

    # What needs a process.

    async def exec(self, container_id: str, command: Sequence[str], *, tty: bool) -> Session:
        """Refuse; raises StartError."""
        raise StartError("NotRunning", f"node {self._node} is simulated: exec is not available")

    async def attach(self, container_id: str) -> Session:
        """Refuse; raises StartError."""
        raise StartError("NotRunning", f"node {self._node} is simulated: attach is not available")

    async def connect(self, uid: str, port: int) -> Stream:
        """Refuse; raises ConnectError."""
        raise ConnectError(f"node {self._node} is simulated: connect: connection refused")
