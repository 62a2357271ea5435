"""Runs containers as processes of this machine; see the package.

runtime = ProcessRuntime(ProcessOptions(root, logs), images, clock, on_change)
await runtime.open()

ROOT/pods/<uid>/containers/<name>/<attempt>/
    launch.json     what its shim starts        socket     how the shim is spoken to
    record.json     what is known of it         exit.json  how it ended
    layer/          what it wrote               message    its last words

What the containers of a pod share is in `sandboxes`.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kvstack.agents.client.timing import Clock
from kvstack.agents.kubelet.runtime.last_words import last_words
from kvstack.agents.kubelet.runtime.process import sessions, shims
from kvstack.agents.kubelet.runtime.process.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.process.images import Images, StoredImage
from kvstack.agents.kubelet.runtime.process.layer_sizes import size_of
from kvstack.agents.kubelet.runtime.process.network.pod_network import STATE, PodNetwork
from kvstack.agents.kubelet.runtime.process.presence import Presence, Record
from kvstack.agents.kubelet.runtime.process.sandboxes import Sandboxes, probe_network
from kvstack.agents.kubelet.runtime.process.shim.container import StartError as UnknownUserError
from kvstack.agents.kubelet.runtime.process.shim.container import identity
from kvstack.agents.kubelet.runtime.process.shim.main import EXIT
from kvstack.agents.kubelet.runtime.process.shim.privileges import granted
from kvstack.agents.kubelet.runtime.runtime import (
    Abilities,
    Container,
    Image,
    ImageMissingError,
    Limits,
    Mount,
    Sandbox,
    StartError,
    Stream,
    Usage,
    User,
    Wanted,
)
from kvstore.errors import ConfigError

_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RECORD: Final = "record.json"
_MESSAGE: Final = "message"
_NAMES: Final = "resolv.conf"
_PAUSE: Final = "POD"
"""Name of the container that holds the process namespace of a pod, as no other can be named."""
_KILLED: Final = 137
_RECURSIVE_SINCE: Final = (5, 12)
"""Of Linux: the version that lets all that is mounted below a mount only be read."""
_NOT_HONOURED: Final = (
    *("hostUsers", "runtimeClassName", "seLinuxOptions", "appArmorProfile"),
    *("procMount", "hugepages", "Localhost"),
)
_NEEDS_CGROUPS: Final = "limits"
_NEEDS_NETWORK: Final = "sysctls"
_NO_RANGE: Final = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady "
    "message:the node has no range of addresses for pods (spec.podCIDR)"
)
SHARED, BRIDGE, AUTOMATIC = "host", "bridge", "auto"
"""How pods are connected: they share the node's network; each has its own; its own if it can be."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Settings of a runtime."""

    root: Path
    ends_with_node: bool = True
    """Whether containers end when this process does, however it ends."""
    cgroup: str = "kubepods"
    """Under which containers are."""
    limits: Limits | None = None
    """Of all pods together; None: of others' making."""
    node_ip: str = ""
    """The address of pods that share the node's network."""
    network: str = SHARED
    state: Path = STATE
    """What nodes of this machine have in common."""


class _Running:
    """A container whose shim runs."""

    def __init__(self, container: Container, spec: Mapping[str, Any], pid: int) -> None:
        self.container = container
        self.spec = spec
        self.pid = pid
        self.ended = asyncio.Event()
        self.task: asyncio.Task[None] | None = None


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
    ) -> None:
        """on_change: called with the uid of a pod one of whose containers ended."""
        self._options = options
        self._images = images
        self._clock = clock
        self._on_change = on_change
        self.cgroups: Final = cgroups or Cgroups()
        self._containers: dict[str, list[Container]] = {}
        self._running: dict[str, _Running] = {}
        self._pauses: dict[str, Container] = {}
        self._groups: dict[str, str] = {}  # of control, by uid of the pod
        self._lifeline = (-1, -1)
        self._network = PodNetwork(str(options.root), options.state)
        self._sandboxes = Sandboxes(
            options.root / "pods",
            options.state,
            self._network,
            outlives_node=not options.ends_with_node,
        )
        self._may_connect = False
        record = Record(
            self._network.bridge, str(options.root), options.ends_with_node, options.cgroup
        )
        self._presence = Presence(options.state, record)

    async def open(self) -> None:
        """Find the containers that were started before; ConfigError: none can be made here."""
        await asyncio.to_thread(shims.probe)
        await asyncio.to_thread(self._presence.begin)
        if self._options.network != SHARED:
            problem = await asyncio.to_thread(probe_network)
            if problem and self._options.network == BRIDGE:
                raise ConfigError(f"networks for pods cannot be made here: {problem}")
            self._may_connect = not problem
        await asyncio.to_thread(self._sandboxes.open)
        cgroup, all_of_them = self._options.cgroup, self._options.limits
        await asyncio.to_thread(self.cgroups.probe, cgroup)
        if self.cgroups.is_usable and all_of_them is not None:
            await asyncio.to_thread(self.cgroups.limit, cgroup, all_of_them)
        if self._options.ends_with_node:
            self._lifeline = os.pipe()
        for file in sorted((self._options.root / "pods").glob(f"*/containers/*/*/{_RECORD}")):
            await self._adopt(file.parent, json.loads(file.read_text()))
        for each in self._containers.values():
            each.sort(key=lambda found: found.started_s)

    async def close(self) -> None:
        """Kill all containers if they end with the node; else let them be."""
        running = list(self._running.values())
        if self._options.ends_with_node:
            for each in running:
                await self._signal(each, signal.SIGKILL)
            for each in running:
                await each.ended.wait()
        for each in running:
            if each.task is not None:
                each.task.cancel()
        await asyncio.gather(
            *(each.task for each in running if each.task is not None), return_exceptions=True
        )
        for descriptor in self._lifeline:
            if descriptor >= 0:
                os.close(descriptor)
        self._lifeline = (-1, -1)
        await asyncio.to_thread(self._sandboxes.close)
        await asyncio.to_thread(self._presence.end)

    def problem(self) -> str:
        """Return why the node is not ready because of it."""
        is_missing = self._options.network == BRIDGE and self._network.network is None
        return _NO_RANGE if is_missing else ""

    def unsupported(self, field: str) -> bool:
        """Whether a field of pods cannot be honoured."""
        if field == _NEEDS_CGROUPS:
            return not self.cgroups.is_usable
        if field == _NEEDS_NETWORK:
            return not self._may_connect
        if field == "recursiveReadOnly":
            return not _can_cover_all()
        return field in _NOT_HONOURED

    def abilities(self) -> Abilities:
        """Return what it can do: it has one handler."""
        features = {"recursiveReadOnlyMounts": _can_cover_all(), "userNamespaces": False}
        return Abilities({"": features}, keeps_to_groups=True)

    async def use_ranges(self, ranges: Sequence[str]) -> None:
        """Take the ranges of the node from which pods have addresses."""
        self._network.use_ranges(ranges)

    @property
    def has_network(self) -> bool:
        """Whether pods have addresses of their own."""
        return self._may_connect and self._network.network is not None

    def pod_uids(self) -> Collection[str]:
        """Return the pods of which there is anything."""
        try:
            on_disk = os.listdir(self._options.root / "pods")
        except FileNotFoundError:
            on_disk = []
        return {*self._containers, *self._pauses, *on_disk}

    def of_pod(self, uid: str) -> Sequence[Container]:
        """Return the containers of a pod, oldest first."""
        return self._containers.get(uid, ())

    def address(self, uid: str) -> str:
        """Return the address of a pod; empty: it has no sandbox."""
        held = self._sandboxes.get(uid)
        return "" if held is None else held.address or self._options.node_ip

    def has_sandbox(self, uid: str) -> bool:
        """Whether what a pod's containers share is there."""
        return self._sandboxes.get(uid) is not None

    async def make_sandbox(self, sandbox: Sandbox) -> bool:
        """Make the namespaces of a pod; raises StartError."""
        lost = await self._sandboxes.make(sandbox, has_network=self.has_network)
        if sandbox.cgroup and self.cgroups.is_usable:
            try:
                await asyncio.to_thread(self.cgroups.make, sandbox.cgroup, sandbox.limits)
                await asyncio.to_thread(self.cgroups.weigh_classes, self._options.cgroup)
            except OSError as error:
                raise StartError("FailedCreatePodSandBox", str(error)) from error
            self._groups[sandbox.uid] = sandbox.cgroup
        if sandbox.shares_pids and not sandbox.has_host_pids:
            known = self._pauses.get(sandbox.uid)
            if known is None or not known.is_running:
                lost = lost or known is not None
                attempt = 0 if known is None else known.attempt + 1
                await self._start(Wanted(sandbox, _PAUSE, attempt, _PAUSE), None)
        return lost

    # Images.

    async def find_image(self, name: str) -> Image:
        """Return an image of the node's folder; raises ImageMissingError, StartError."""
        return _shown(await asyncio.to_thread(self._images.find, name))

    async def pull_image(self, name: str, credentials: Sequence[Mapping[str, str]]) -> Image:
        """Return an image of the node's folder: there is nowhere else to get it from."""
        try:
            return await self.find_image(name)
        except ImageMissingError as error:
            raise StartError("ErrImagePull", str(error)) from error

    async def images(self) -> Sequence[Image]:
        """Return the images of the node's folder."""
        return [_shown(each) for each in await asyncio.to_thread(self._images.all)]

    async def image_place(self) -> Path | None:
        """Return the node's folder."""
        place = self._images.directory
        return place if await asyncio.to_thread(place.is_dir) else None

    async def remove_image(self, image_id: str) -> None:
        """Do nothing: the folder is its owner's."""

    # Containers.

    async def start(self, wanted: Wanted) -> Container:
        """Start a container; raises StartError."""
        try:
            image = await asyncio.to_thread(self._images.find, wanted.image)
        except ImageMissingError as error:
            raise StartError("ErrImagePull", str(error)) from error
        return await self._start(wanted, image)

    async def _start(self, wanted: Wanted, image: StoredImage | None) -> Container:
        uid = wanted.sandbox.uid
        directory = self._directory(uid, wanted.name, wanted.attempt)
        held = self._sandboxes.get(uid)
        if held is None:
            raise StartError("RunContainerError", "the pod has no sandbox")
        namespaces = held.flags()
        spec = {**await self._spec(wanted, image, directory), "namespaces": namespaces}
        try:
            await asyncio.to_thread(self._prepare, directory, wanted, spec)
        except OSError as error:
            raise StartError("CreateContainerError", str(error)) from error
        descriptors = [each for each, _ in namespaces]
        process, pid = await shims.launch(directory, spec, self._lifeline[0], descriptors)
        container = Container(
            f"{uid}-{wanted.name}-{wanted.attempt}",
            uid,
            wanted.name,
            wanted.attempt,
            image.name if image else _PAUSE,
            image.id if image else _PAUSE,
            self._clock.now_s(),
            log=Path(spec["log"]),
            has_tty=wanted.has_tty,
            spec_image=wanted.image,
            user=await asyncio.to_thread(_user, spec) if image else None,
        )
        record = {"container": _record_of(container), "pid": pid}
        (directory / _RECORD).write_text(json.dumps(record))
        self._add(container)
        await self._follow(_Running(container, spec, pid), directory, process)
        return container

    def _add(self, container: Container) -> None:
        if container.name == _PAUSE:
            self._pauses[container.pod_uid] = container
        else:
            self._containers.setdefault(container.pod_uid, []).append(container)

    async def _spec(
        self, wanted: Wanted, image: StoredImage | None, directory: Path
    ) -> dict[str, Any]:
        sandbox, security = wanted.sandbox, wanted.security
        argv = _argv(image, wanted) if image else [_PAUSE]
        if not argv:
            raise StartError("CreateContainerError", "no command specified")
        own = image.environment if image else {}
        environment = {
            "PATH": _PATH,
            **({"TERM": "xterm"} if wanted.has_tty else {}),
            **own,
            "HOSTNAME": sandbox.hostname or socket.gethostname(),
            **wanted.environment,
        }
        mounts: list[dict[str, Any]] = [
            {
                "source": await self._source(each) if each.image else each.source,
                "target": each.target,
                "read_only": each.is_read_only,
                "propagation": each.propagation,
                "below": each.is_below or bool(each.image),
                "no_programs": bool(each.image),
                "recursive": each.is_recursive and _can_cover_all(),
            }
            for each in wanted.mounts
        ]
        mounts.append(
            {
                "source": str(self._options.root / "pods" / sandbox.uid / _NAMES),
                "target": "/etc/resolv.conf",
                "read_only": False,
                "propagation": "None",
            }
        )
        message = {"source": str(directory / _MESSAGE), "target": wanted.termination_path}
        user = str(security.user) if security.user is not None else ""
        if image and not user:
            user = image.user
        if security.group is not None:
            user = f"{user.partition(':')[0] or '0'}:{security.group}"
        capabilities = sorted(granted(security.added, security.dropped))
        log = Path(sandbox.log_directory) / wanted.name / f"{wanted.attempt}.log"
        return {
            "argv": argv,
            "environment": environment,
            "directory": wanted.directory or (image.directory if image else ""),
            "root": str(image.root) if image else "",
            "scratch": str(directory / "layer"),
            "log": str(log if image else directory / "log"),
            "mounts": [*mounts, {**message, "read_only": False, "propagation": "None"}],
            "hostname": sandbox.hostname,
            "user": user,
            "groups": list(security.groups),
            "image_groups": not security.is_strict,
            "tty": wanted.has_tty,
            "stdin": wanted.has_stdin,
            "stdin_once": wanted.has_stdin_once,
            "is_first": True,
            "is_privileged": security.is_privileged,
            "capabilities": None if security.is_privileged else capabilities,
            "no_new_privileges": security.no_new_privileges,
            "filters_calls": security.seccomp != "Unconfined" and not security.is_privileged,
            "read_only_root": security.has_read_only_root,
            "host_pids": sandbox.has_host_pids,
            "shm": "/dev/shm" if sandbox.has_host_ipc else str(self._sandboxes.shm(sandbox.uid)),
            "pid_of": self._pid_of(wanted),
            "pauses": image is None,
            "cgroups": [],
            "cgroup": f"{sandbox.cgroup}/{wanted.name}-{wanted.attempt}" if sandbox.cgroup else "",
            "oom_score": wanted.limits.oom_score,
            "stop_signal": image.stop_signal if image else "SIGKILL",
            "falls_back_to_logs": wanted.falls_back_to_logs,
        }

    async def _source(self, mount: Mount) -> str:
        """Return where the files of an image are that is mounted; raises StartError."""
        try:
            image = await asyncio.to_thread(self._images.find, mount.image)
        except ImageMissingError as error:
            raise StartError("ErrImagePull", str(error)) from error
        return await asyncio.to_thread(_place_in, image, mount.source)

    def _pid_of(self, wanted: Wanted) -> int:
        """Return the process whose namespace a container enters; 0: it gets its own."""
        if wanted.target:
            running = self._running.get(wanted.target)
            if running is None:
                raise StartError(
                    "CreateContainerConfigError",
                    f"unable to find target container {wanted.target}",
                )
            return running.pid
        pause = self._pauses.get(wanted.sandbox.uid)
        if wanted.name == _PAUSE or pause is None or pause.id not in self._running:
            return 0
        return self._running[pause.id].pid

    def _prepare(self, directory: Path, wanted: Wanted, spec: dict[str, Any]) -> None:
        shutil.rmtree(directory, ignore_errors=True)  # of a start that failed
        (directory / "layer").mkdir(parents=True)
        Path(spec["log"]).parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        sandbox = wanted.sandbox
        lines = [f"search {' '.join(sandbox.searches)}"] if sandbox.searches else []
        lines += [f"nameserver {each}" for each in sandbox.servers]
        lines += [f"options {' '.join(sandbox.options)}"] if sandbox.options else []
        names = self._options.root / "pods" / sandbox.uid / _NAMES
        names.write_text("".join(f"{line}\n" for line in lines))
        message = directory / _MESSAGE
        message.touch()
        message.chmod(0o666)
        if spec["cgroup"] and self.cgroups.is_usable:
            spec["cgroups"] = self.cgroups.make(spec["cgroup"], wanted.limits)

    async def stop(self, container_id: str, grace_s: float) -> None:
        """Ask a container to end, and kill it after grace_s."""
        running = self._running.get(container_id)
        if running is None:
            return
        own = signal.Signals.__members__.get(running.spec["stop_signal"], signal.SIGTERM)
        await self._signal(running, own)
        try:
            async with asyncio.timeout(grace_s):
                await running.ended.wait()
        except TimeoutError:
            await self._signal(running, signal.SIGKILL)
            await running.ended.wait()

    async def exec(
        self, container_id: str, command: Sequence[str], *, tty: bool
    ) -> sessions.CommandSession:
        """Run a command in a container; raises StartError."""
        running = self._still_running(container_id)
        environment = {**running.spec["environment"], **({"TERM": "xterm"} if tty else {})}
        spec = {"argv": list(command), "tty": tty, "environment": environment}
        return await sessions.start_command(self._place(running.container), spec, tty=tty)

    async def attach(self, container_id: str) -> sessions.AttachedSession:
        """Talk to a container's first process; raises StartError."""
        return await sessions.attach(self._place(self._still_running(container_id).container))

    def _still_running(self, container_id: str) -> _Running:
        running = self._running.get(container_id)
        if running is None:
            raise StartError("NotRunning", f"container {container_id} is not running")
        return running

    async def connect(self, uid: str, port: int) -> Stream:
        """Connect with a port of a pod's loopback; raises ConnectError."""
        return await self._sandboxes.connect(uid, port)

    async def usage(self) -> Sequence[Usage]:
        """Return what the containers that run use; nothing without control groups."""
        running = [each for each in self._running.values() if each.container.name != _PAUSE]
        return await asyncio.to_thread(self._usage, running)

    def _usage(self, running: Sequence[_Running]) -> list[Usage]:
        found = []
        for each in running:
            if not each.spec["cgroups"]:
                continue
            used = self.cgroups.usage(each.spec["cgroup"])
            if used is None:
                continue
            size = size_of(Path(each.spec["scratch"]) / "upper")
            found.append(
                Usage(
                    each.container,
                    used.cpu_ns,
                    used.memory_bytes,
                    max(used.memory_bytes - used.inactive_file_bytes, 0),
                    used.rss_bytes,
                    used.page_faults,
                    used.major_page_faults,
                    size.bytes,
                    size.inodes,
                    used.processes,
                )
            )
        return found

    async def reopen_log(self, container_id: str) -> None:
        """Let a container's log go on in a new file."""
        running = self._running.get(container_id)
        if running is not None:
            await sessions.tell(self._place(running.container), [{"do": "reopen"}])

    async def remove_container(self, container_id: str) -> None:
        """Forget a container that has ended, and its files."""
        for uid, containers in self._containers.items():
            for each in containers:
                if each.id == container_id:
                    await asyncio.to_thread(shutil.rmtree, self._place(each), True)
                    self._containers[uid] = [one for one in containers if one is not each]
                    return

    async def stop_sandbox(self, uid: str) -> None:
        """End what held the process namespace, and the others."""
        if (pause := self._pauses.get(uid)) is not None:
            await self.stop(pause.id, 0)
        if self._sandboxes.get(uid) is not None:
            await asyncio.to_thread(self._sandboxes.remove, uid)

    async def remove_pod(self, uid: str) -> None:
        """Forget a pod of which nothing runs, and its files."""
        await self.stop_sandbox(uid)
        await asyncio.to_thread(self._sandboxes.remove, uid)
        self._containers.pop(uid, None)
        self._pauses.pop(uid, None)
        if (group := self._groups.pop(uid, "")) and self.cgroups.is_usable:
            await asyncio.to_thread(self.cgroups.remove, group)
            await asyncio.to_thread(self.cgroups.weigh_classes, self._options.cgroup)
        await asyncio.to_thread(_remove_files, self._options.root / "pods" / uid)

    # A container's life.

    async def _adopt(self, directory: Path, record: Mapping[str, Any]) -> None:
        """Take a container that was started before: it runs, or it has ended."""
        kept = record["container"]
        user = User(*kept["user"]) if kept["user"] else None
        container = Container(**{**kept, "log": Path(kept["log"]), "user": user})
        self._add(container)
        spec = json.loads((directory / "launch.json").read_text())
        await self._follow(_Running(container, spec, record["pid"]), directory, None)

    async def _follow(
        self, running: _Running, directory: Path, process: asyncio.subprocess.Process | None
    ) -> None:
        """Wait for a container's end, meanwhile."""
        container = running.container
        if running.spec["cgroup"]:
            self._groups[container.pod_uid] = running.spec["cgroup"].rpartition("/")[0]
        try:
            reader, writer = await shims.ask(directory, {"do": "watch"})
        except OSError:  # it has ended already
            self._ended(running, directory)
            if process is not None:
                await process.wait()
            return
        self._running[container.id] = running

        async def follow() -> None:
            try:
                with contextlib.suppress(ConnectionResetError):  # it ended before it took this
                    await reader.read()
            finally:
                writer.close()
            if process is not None:
                await process.wait()
            await asyncio.to_thread(self._ended, running, directory)
            del self._running[container.id]
            running.ended.set()
            self._on_change(container.pod_uid)

        loop = asyncio.get_running_loop()
        running.task = loop.create_task(follow(), name=f"container {container.id}")

    def _ended(self, running: _Running, directory: Path) -> None:
        """Say how a container ended, from what its shim wrote."""
        container, spec = running.container, running.spec
        try:
            written = json.loads((directory / EXIT).read_text())
        except FileNotFoundError:  # its shim was killed, and so was it
            now_ns = int(self._clock.now_s() * 1e9)
            written = {"code": _KILLED, "finished_ns": now_ns}
        container.exit_code = written["code"]
        container.finished_s = written["finished_ns"] / 1e9
        container.reason = "Completed" if container.exit_code == 0 else "Error"
        if spec["cgroups"]:
            if container.exit_code and self.cgroups.out_of_memory(spec["cgroup"]):
                container.reason = "OOMKilled"
            self.cgroups.remove(spec["cgroup"])
        container.message = last_words(
            directory / _MESSAGE,
            Path(spec["log"]),
            falls_back=bool(spec["falls_back_to_logs"] and container.exit_code),
        )
        container.is_running = False
        record = {"container": _record_of(container), "pid": 0}
        (directory / _RECORD).write_text(json.dumps(record))

    async def _signal(self, running: _Running, number: signal.Signals) -> None:
        request = {"do": "signal", "number": int(number)}
        await sessions.tell(self._place(running.container), [request])

    def _place(self, container: Container) -> Path:
        return self._directory(container.pod_uid, container.name, container.attempt)

    def _directory(self, uid: str, name: str, attempt: int) -> Path:
        return self._options.root / "pods" / uid / "containers" / name / str(attempt)


def _remove_files(directory: Path) -> None:
    """Remove what this runtime has of a pod; nothing else of its directory, as volumes are."""
    shutil.rmtree(directory / "containers", ignore_errors=True)
    (directory / _NAMES).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # there are volumes, or it is gone
        directory.rmdir()


def _place_in(image: StoredImage, path: str) -> str:
    """Return where a place in an image is; raises StartError."""
    root = os.path.realpath(image.root)
    found = Path(os.path.realpath(Path(root, path)))
    if not found.is_relative_to(root) or not found.exists():
        raise StartError("CreateContainerError", f"image {image.name} has no place {path}")
    return str(found)


def _user(spec: Mapping[str, Any]) -> User | None:
    """Return as whom a container runs; None: its image does not know, and it does not start."""
    try:
        user, group, groups, _ = identity(dict(spec), spec["root"].rstrip("/"))
    except UnknownUserError:
        return None
    return User(user, group, groups)


def _can_cover_all() -> bool:
    """Whether the kernel can let only be read what is mounted below a mount."""
    words = os.uname().release.split(".")
    return (int(words[0]), int(words[1].partition("-")[0])) >= _RECURSIVE_SINCE


def _shown(image: StoredImage) -> Image:
    return Image(image.id, [image.name], image.size_bytes, image.user, is_pinned=True)


def _record_of(container: Container) -> dict[str, Any]:
    return {**dataclasses.asdict(container), "log": str(container.log)}


def _argv(image: StoredImage, wanted: Wanted) -> list[str]:
    if wanted.command:
        return [*wanted.command, *wanted.arguments]
    return [*image.entrypoint, *(wanted.arguments or image.command)]
