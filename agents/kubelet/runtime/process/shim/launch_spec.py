"""What a shim runs: its fields, and their one encoding in launch.json and on the shim's socket.

    launch.json        {"version": 1, "argv": […], "mounts": [{…}], …}     LaunchSpec
    a command in it    {"argv": […], "tty": true, "environment": {…}}      CommandSpec

A shim outlives its kubelet, and a later one reads the launch.json of a container that it finds.
Files without a version are of kubelets before version 1: they name `cgroup_path` cgroup,
`cgroup_files` cgroups, and lack what is in `_UNVERSIONED`. The three fields of a command never
changed, so that shims and kubelets of different versions understand one another.

Named tuples: the import of dataclasses would add to the start of each container.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

VERSION: Final = 1
"""The version of the encoding; it grows with every change of a field."""
_RENAMED: Final = {"cgroup": "cgroup_path", "cgroups": "cgroup_files"}
_UNVERSIONED: Final[Mapping[str, Any]] = {
    "cgroup_view": {},
    "limits_devices": False,
    "user_namespace": -1,
    "first_id": 0,
    "hidden": None,
}


class SpecError(ValueError):
    """An encoded specification cannot be read."""


class MountSpec(NamedTuple):
    """A file or directory of the node that a container sees."""

    source: str
    target: str
    read_only: bool
    propagation: str
    """HostToContainer, Bidirectional or None, as in the API."""
    idmap: bool = False
    """Whether its owners are mapped into the pod's user namespace."""
    below: bool = False
    """Whether the source is part of a volume: then no link is followed in its path."""
    no_programs: bool = False
    device: tuple[int, int] | None = None
    """Type and number of the device that the container may use by it."""
    recursive: bool = False
    """Whether mounts below it are read-only, too."""


class LaunchSpec(NamedTuple):
    """A container, as its shim starts it."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    directory: str
    """The working directory; empty: the root."""
    mounts: tuple[MountSpec, ...]
    root: str
    """Directory of the image; empty for the process that holds a pod's process namespace."""
    scratch: str
    """Directory of the layer that the container writes."""
    log: str
    user: str
    """USER or USER:GROUP, each a number or a name of the image."""
    groups: tuple[int, ...]
    image_groups: bool
    """Whether the user also has the groups that the image gives it."""
    is_privileged: bool
    capabilities: tuple[str, ...] | None
    """None: all."""
    no_new_privileges: bool
    filters_calls: bool
    read_only_root: bool
    tty: bool
    stdin: bool
    stdin_once: bool
    is_first: bool
    """Whether it is the container's first process, not a command beside it."""
    hostname: str
    host_pids: bool
    shm: str
    user_namespace: int
    """Descriptor; -1: there is none."""
    first_id: int
    """The id of the node that is root of the user namespace; 0: no user namespace."""
    hidden: tuple[str, ...] | None
    """Paths of the node that are not shown, if its files are the image; None: they are not."""
    pid_of: int
    """Process whose process namespace is entered; 0: a new one is made."""
    pauses: bool
    """Whether it only holds the process namespace of a pod."""
    namespaces: tuple[tuple[int, int], ...]
    """The pod's namespaces: descriptors with the flag (CLONE_NEW…) of their kind."""
    cgroup_path: str
    """Name of its control group, below the root of each hierarchy; empty: it has none."""
    cgroup_files: tuple[str, ...]
    """The cgroup.procs files that its processes enter; empty: no control group was made."""
    cgroup_view: dict[str, str]
    """Directories of its control groups by their name below /sys/fs/cgroup; "" is that itself."""
    limits_devices: bool
    """Whether a control group limits devices."""
    oom_score: int
    stop_signal: str
    falls_back_to_logs: bool
    descriptors: int
    """Soft limit of open files."""

    def for_command(self, command: "CommandSpec") -> "LaunchSpec":
        """Return what runs a command beside the container's first process."""
        return self._replace(**command._asdict(), is_first=False)


class CommandSpec(NamedTuple):
    """A command in a container that runs."""

    argv: tuple[str, ...]
    tty: bool
    environment: dict[str, str]


def encode_launch(spec: LaunchSpec) -> str:
    """Return the contents of a launch.json."""
    mounts = [each._asdict() for each in spec.mounts]
    return json.dumps({"version": VERSION, **spec._asdict(), "mounts": mounts})


def decode_launch(text: str) -> LaunchSpec:
    """Decode a launch.json, of an older kubelet, too; raises SpecError."""
    try:
        values = json.loads(text)
    except ValueError as error:
        raise SpecError(f"no JSON: {error}") from error
    if not isinstance(values, dict):
        raise SpecError(f"an object is needed, not {type(values).__name__}")
    version = values.pop("version", 0)
    if version == 0:
        values = {**_UNVERSIONED, **{_RENAMED.get(key, key): values[key] for key in values}}
    elif version != VERSION:
        raise SpecError(f"version {version!r} is unknown: this kubelet reads versions to {VERSION}")
    _check_fields(values, LaunchSpec._fields)
    mounts = tuple(_mount(each) for each in values["mounts"])
    namespaces = tuple((fd, kind) for fd, kind in values["namespaces"])
    return LaunchSpec(**{**_frozen(values), "mounts": mounts, "namespaces": namespaces})


def _mount(values: dict[str, Any]) -> MountSpec:
    complete = {**MountSpec._field_defaults, **values}
    _check_fields(complete, MountSpec._fields)
    return MountSpec(**_frozen(complete))


def encode_command(command: CommandSpec) -> dict[str, Any]:
    """Return a command as part of a request to a shim."""
    return command._asdict()


def decode_command(values: Mapping[str, Any]) -> CommandSpec:
    """Decode the command of a request; raises SpecError."""
    _check_fields(values, CommandSpec._fields)
    return CommandSpec(**_frozen(values))


def _check_fields(values: Mapping[str, Any], fields: tuple[str, ...]) -> None:
    if missing := sorted({*fields} - values.keys()):
        raise SpecError(f"missing fields: {', '.join(missing)}")
    if unknown := sorted(values.keys() - {*fields}):
        raise SpecError(f"unknown fields: {', '.join(unknown)}")


def _frozen(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with lists as tuples."""
    return {key: tuple(each) if isinstance(each, list) else each for key, each in values.items()}
