"""The interface of container runtimes.

    make_sandbox ─► find_image ─► start ─► running ─► exited     a record each
                                             │  ▲
                                         stop│  └ exec, attach, logs

A record never becomes running again: a restart is a new container with the next attempt. Records
are kept until they are removed; a runtime that is opened again finds those of before.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeAlias

"""Called with the uid of a pod when one of its containers has changed on its own."""
Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


ID: Final = "id "
"""Begins a field of pods that is an id of a user or group: `unsupported(f"{ID}1000")`."""


class StartError(Exception):
    """A container could not be started."""

    def __init__(self, reason: str, message: str) -> None:
        """reason: as `state.waiting.reason` has it."""
        super().__init__(message)
        self.reason = reason
        self.message = message


class ImageMissingError(Exception):
    """An image is not on the node."""


class UpdateError(Exception):
    """A container cannot have other limits now."""


class ConnectError(Exception):
    """A port of a pod is not reached."""


class User(NamedTuple):
    """The numeric user and groups of a container."""

    user: int
    group: int
    groups: Sequence[int]

    def to_status(self) -> dict[str, object]:
        """Return it as `status.user.linux` has it."""
        return {"uid": self.user, "gid": self.group, "supplementalGroups": list(self.groups)}


@dataclass(slots=True)
class Container:
    """The state of a container."""

    id: str
    pod_uid: str
    name: str
    attempt: int
    image: str
    image_id: str
    started_s: float
    """Since 1970."""
    is_running: bool = True
    finished_s: float = 0.0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    """The contents of its terminationMessagePath."""
    log: Path = Path()
    """Its log, in CRI's format."""
    has_tty: bool = False
    spec_image: str = ""
    """The image as the pod names it."""
    user: User | None = None
    """None: unknown."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or directory of the node that a container sees."""

    source: str
    target: str
    is_read_only: bool = False
    propagation: str = "None"
    """None, HostToContainer or Bidirectional."""
    is_below: bool = False
    """Whether it is a path in a volume, at which containers may have put a link meanwhile."""
    is_recursive: bool = False
    """Whether mounts below it are read-only, too, if the runtime supports that."""
    image: str = ""
    """An image whose files are mounted instead, as the pod names it; `source` is a path in it."""
    image_id: str = ""
    """The id of that image; empty: it is found by its name."""
    is_host_path: bool = False
    """Whether it is a hostPath."""


class DeviceFile(NamedTuple):
    """A device of the machine that a container has."""

    source: str
    target: str
    access: str
    """Some of r, w and m."""
    is_volume: bool = False
    """Whether it is a volume of the pod, over which the pod's root has all rights."""


class DeviceNeeds(NamedTuple):
    """What a container needs for devices of plugins."""

    variables: Mapping[str, str] = {}
    mounts: Sequence[Mount] = ()
    files: Sequence[DeviceFile] = ()
    annotations: Mapping[str, str] = {}
    names: Sequence[str] = ()
    """Names of CDI devices."""


NO_DEVICES: Final = DeviceNeeds()


@dataclass(frozen=True, slots=True)
class Security:
    """The rights of a container."""

    user: int | None = None
    """None: as the image says."""
    group: int | None = None
    groups: Sequence[int] = ()
    is_strict: bool = False
    """Whether the groups that the image gives the user are left out."""
    is_privileged: bool = False
    added: Sequence[str] = ()
    """Capabilities."""
    dropped: Sequence[str] = ()
    no_new_privileges: bool = False
    has_read_only_root: bool = False
    seccomp: str = ""
    """Unconfined, RuntimeDefault, or the path of a profile; empty: the runtime decides."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The resource limits of a container; 0: no limit."""

    cpu_shares: int = 2
    cpu_quota_us: int = 0
    """The quota in each period of 100 ms."""
    memory_bytes: int = 0
    oom_score: int = 0
    processes: int = 0
    kills_all: bool = False
    """Whether the kernel kills all processes if it kills one for its memory."""


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a container that its node shows."""

    number: int
    host_port: int
    protocol: str = "TCP"
    host_ip: str = ""


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What the containers of a pod share."""

    uid: str
    name: str
    namespace: str
    hostname: str = ""
    log_directory: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cgroup: str = ""
    """The pod's control group, as a path under the root of control groups."""
    limits: Limits = field(default_factory=Limits)
    servers: Sequence[str] = ()
    """The addresses of name servers."""
    searches: Sequence[str] = ()
    options: Sequence[str] = ()
    ports: Sequence[Port] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    security: Security = field(default_factory=Security)
    handler: str = ""
    """The handler of its RuntimeClass."""
    has_host_network: bool = False
    has_host_pids: bool = False
    has_host_ipc: bool = False
    shares_pids: bool = False
    host_users: bool | None = None
    """False: its ids are its own (a user namespace); None: the runtime decides."""
    images: Sequence[str] = ()
    """The images of all its containers, as the pod names them."""
    asks_for_root: bool = False
    """Whether a container requests user 0, or is privileged."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image of the node."""

    id: str
    names: Sequence[str]
    size_bytes: int = 0
    user: str = ""
    """The user in the image: a name or number, and perhaps a group behind a colon."""
    is_pinned: bool = False


@dataclass(frozen=True, slots=True)
class ContainerConfig:
    """A container that is to be started."""

    sandbox: Sandbox
    name: str
    attempt: int
    image: str
    image_id: str = ""
    command: Sequence[str] = ()
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    mounts: Sequence[Mount] = ()
    security: Security = field(default_factory=Security)
    limits: Limits = field(default_factory=Limits)
    has_tty: bool = False
    has_stdin: bool = False
    has_stdin_once: bool = False
    target: str = ""
    """Id of the container whose processes it sees."""
    termination_path: str = "/dev/termination-log"
    falls_back_to_logs: bool = False
    annotations: Mapping[str, str] = field(default_factory=dict)
    devices: DeviceNeeds = NO_DEVICES


class Counts(NamedTuple):
    """What the kernel counts of a container's control group besides; None: it does not."""

    cpu_periods: int | None = None
    """In which it ran, of those by which the kernel limits processors."""
    throttled_periods: int | None = None
    throttled_ns: int | None = None
    memory_max_bytes: int | None = None
    """The most that it has used."""
    cache_bytes: int | None = None
    limit_hits: int | None = None
    """How often its memory was at the limit."""
    oom_kills: int | None = None
    swap_bytes: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None


NO_COUNTS: Final = Counts()


@dataclass(frozen=True, slots=True)
class Usage:
    """The resource usage of a container."""

    container: Container
    cpu_ns: int
    """Since it started."""
    memory_bytes: int
    working_set_bytes: int
    rss_bytes: int = 0
    page_faults: int = 0
    major_page_faults: int = 0
    files_bytes: int = 0
    """In its own layer."""
    files_inodes: int = 0
    processes: int = 0
    counts: Counts = NO_COUNTS


class Abilities(NamedTuple):
    """Optional abilities of a runtime."""

    handlers: Mapping[str, Mapping[str, bool]]
    """Features (recursiveReadOnlyMounts, userNamespaces) by handler; the default's is empty."""
    keeps_to_groups: bool | None
    """Whether supplementalGroupsPolicy is honoured; None: unknown."""


class Session(Protocol):
    """An attached process."""

    async def write(self, data: bytes) -> None:
        """Give it input."""
        ...

    def close_input(self) -> None:
        """Close standard input."""
        ...

    def resize(self, columns: int, rows: int) -> None:
        """Its terminal has another size; nothing happens if it has none."""
        ...

    async def read(self) -> tuple[int, bytes]:
        """Return stream (1: output, 2: errors) and what it wrote; (0, b"") at the end."""
        ...

    async def wait(self) -> int:
        """Return its exit code once it has ended; StartError: it could not be run."""
        ...

    def close(self) -> None:
        """End it, or stop listening to it."""
        ...


class Runtime(Protocol):
    """Runs containers; all of it belongs to one loop."""

    @property
    def name(self) -> str:
        """The prefix of container ids: `name://…`."""
        ...

    @property
    def version(self) -> str:
        """The version in the node's status."""
        ...

    @property
    def pulls_images(self) -> bool:
        """Whether images can be pulled."""
        ...

    async def open(self) -> None:
        """Find what runs already; ConfigError: it cannot be used."""
        ...

    async def close(self) -> None:
        """Close the runtime."""
        ...

    def problem(self) -> str:
        """Return why the node is not ready because of it; empty: nothing is wrong."""
        ...

    def unsupported(self, field: str) -> bool:
        """Whether a field of pods (as `admission` names them) cannot be honoured."""
        ...

    def abilities(self) -> Abilities:
        """Return what it can do of what not every runtime can."""
        ...

    def pod_uids(self) -> Collection[str]:
        """Return the pods of which there is anything."""
        ...

    def of_pod(self, uid: str) -> Sequence[Container]:
        """Return the containers of a pod, oldest first."""
        ...

    def addresses(self, uid: str) -> Sequence[str]:
        """Return the addresses of a pod, one of a family; none: it has none of its own."""
        ...

    @property
    def has_network(self) -> bool:
        """Whether pods have addresses of their own."""
        ...

    async def use_ranges(self, ranges: Sequence[str]) -> None:
        """Use the ranges of the node (podCIDRs) for pod addresses.

        Called when the node is registered (empty: it has none yet), and when they change. Raises
        StartError if the pods' network cannot be made from them now; it may be called again then.
        """
        ...

    def has_sandbox(self, uid: str) -> bool:
        """Whether the sandbox of a pod exists."""
        ...

    async def make_sandbox(self, sandbox: Sandbox) -> bool:
        """Make what containers of a pod share, unless it is there; raises StartError.

        Returns whether it takes the place of one that was lost.
        """
        ...

    async def find_image(self, name: str) -> Image:
        """Return an image that is on the node; raises ImageMissingError, StartError."""
        ...

    async def pull_image(self, name: str, credentials: Sequence[Mapping[str, str]]) -> Image:
        """Get an image; credentials: tried in turn, none: without any. Raises StartError."""
        ...

    async def images(self) -> Sequence[Image]:
        """Return the images of the node."""
        ...

    async def image_directory(self) -> Path | None:
        """Return a place on the disk where images are; None: it is not known."""
        ...

    async def remove_image(self, image_id: str) -> None:
        """Remove an image."""
        ...

    async def start(self, config: ContainerConfig) -> Container:
        """Start a container in an existing sandbox; raises StartError."""
        ...

    async def stop(self, container_id: str, grace_s: float) -> None:
        """Send the stop signal, and kill it after grace_s; returns when it has ended."""
        ...

    async def update(self, container_id: str, limits: Limits) -> None:
        """Give a container other limits while it runs; raises UpdateError."""
        ...

    async def limit_pod(self, cgroup: str, limits: Limits) -> None:
        """Give a pod as a whole other limits, by its control group; raises UpdateError."""
        ...

    async def exec(self, container_id: str, command: Sequence[str], *, tty: bool) -> Session:
        """Run a command in a container; raises StartError."""
        ...

    async def attach(self, container_id: str) -> Session:
        """Talk to a container's first process; raises StartError."""
        ...

    async def connect(self, uid: str, port: int) -> Stream:
        """Connect with a port of a pod; raises ConnectError."""
        ...

    async def usage(self) -> Sequence[Usage]:
        """Return what the containers that run use."""
        ...

    async def reopen_log(self, container_id: str) -> None:
        """Reopen a container's log; the old file has another name now."""
        ...

    async def remove_container(self, container_id: str) -> None:
        """Forget a container that has ended, and its files; its log stays."""
        ...

    async def stop_sandbox(self, uid: str) -> None:
        """End what the containers of a pod shared, once none runs; OSError.

        Its control group goes, with all that is still in it.
        """
        ...

    async def remove_pod(self, uid: str) -> None:
        """Forget a pod of which nothing runs, and its containers; their logs stay."""
        ...
