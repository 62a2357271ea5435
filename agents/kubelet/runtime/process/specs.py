"""The LaunchSpec of a container, from the pod and the node.

    argv = argv_of(config, image)
    spec = spec_of(config, image, argv, ContainerPaths(directory, names, shm, sources), pid)

A container without an image is the one that holds the process namespace of a pod. Its control
groups are added once they are made (`limit_devices`, `process_runtime`).
"""

import os
import posixpath
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.devices.groups import DeviceGroups
from kvstack.agents.kubelet.runtime.process.devices.rules import DEFAULT, rule_of
from kvstack.agents.kubelet.runtime.process.files import LAYER, MESSAGE
from kvstack.agents.kubelet.runtime.process.images import StoredImage
from kvstack.agents.kubelet.runtime.process.shim.container import StartError as UnknownUserError
from kvstack.agents.kubelet.runtime.process.shim.container import identity
from kvstack.agents.kubelet.runtime.process.shim.launch_spec import LaunchSpec, MountSpec
from kvstack.agents.kubelet.runtime.process.shim.privileges import granted
from kvstack.agents.kubelet.runtime.process.shim.rooted import open_root
from kvstack.agents.kubelet.runtime.runtime import (
    ContainerConfig,
    Mount,
    Security,
    StartError,
    User,
)
from kvstack.component.net.descriptors import original_limit

PAUSE: Final = "POD"
"""Name of the container that holds the process namespace of a pod, as no other can be named."""
_NAMES: Final = "/etc/resolv.conf"
_MAKES_DEVICES: Final = "MKNOD"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RECURSIVE_SINCE: Final = (5, 12)
"""The version of Linux with recursive read-only mounts."""


@dataclass(frozen=True, slots=True)
class ContainerPaths:
    """Paths of a container on the node."""

    directory: Path
    """The directory of the container."""
    names: Path
    """The resolv.conf of the pod."""
    shm: Path
    """The file system in memory that the containers of the pod share."""
    sources: Sequence[str]
    """The source of each mount of the container."""
    user_namespace: int = -1
    """A descriptor of the pod's; -1: it has none."""
    first_id: int = 0
    """The id of the machine that is root of its user namespace."""
    hidden: Sequence[str] | None = None
    """Hidden paths of the machine, whose files the image is; None: it is another image."""
    namespaces: Sequence[tuple[int, int]] = ()
    """The pod's namespaces: descriptors with the flag of their kind."""
    filters_by_default: bool = True
    """Whether the default seccomp profile applies if the pod does not set one."""


def argv_of(config: ContainerConfig, image: StoredImage | None) -> list[str]:
    """Return the command of a container; raises StartError."""
    if image is None:
        return [PAUSE]
    if config.command:
        return [*config.command, *config.arguments]
    argv = [*image.entrypoint, *(config.arguments or image.command)]
    if not argv:
        raise StartError("CreateContainerError", "no command specified")
    return argv


def spec_of(
    config: ContainerConfig,
    image: StoredImage | None,
    argv: Sequence[str],
    paths: ContainerPaths,
    pid: int,
) -> LaunchSpec:
    """Return what a shim runs; pid: whose process namespace is entered, 0: a new one is made."""
    sandbox, security = config.sandbox, config.security
    log = Path(sandbox.log_directory) / config.name / f"{config.attempt}.log"
    return LaunchSpec(
        argv=tuple(argv),
        environment=_environment(config, image),
        directory=config.directory or (image.directory if image else ""),
        mounts=_mounts(config, paths),
        root=str(image.root) if image else "",
        scratch=str(paths.directory / LAYER),
        log=str(log if image else paths.directory / "log"),
        user=_user(security, image),
        groups=tuple(security.groups),
        image_groups=not security.is_strict,
        is_privileged=security.is_privileged,
        capabilities=_capabilities(security),
        no_new_privileges=security.no_new_privileges,
        filters_calls=_filters_calls(security, by_default=paths.filters_by_default),
        read_only_root=security.has_read_only_root,
        tty=config.has_tty,
        stdin=config.has_stdin,
        stdin_once=config.has_stdin_once,
        is_first=True,
        hostname=sandbox.hostname,
        host_pids=sandbox.has_host_pids,
        shm="/dev/shm" if sandbox.has_host_ipc else str(paths.shm),
        user_namespace=paths.user_namespace,
        first_id=paths.first_id,
        hidden=None if paths.hidden is None else tuple(paths.hidden),
        pid_of=pid,
        pauses=image is None,
        namespaces=tuple(paths.namespaces),
        cgroup_path=f"{sandbox.cgroup}/{config.name}-{config.attempt}" if sandbox.cgroup else "",
        cgroup_files=(),
        cgroup_view={},
        limits_devices=False,
        oom_score=config.limits.oom_score,
        stop_signal=image.stop_signal if image else "SIGKILL",
        falls_back_to_logs=config.falls_back_to_logs,
        descriptors=original_limit(),  # the raised limit of a node is not its containers'
    )


def _environment(config: ContainerConfig, image: StoredImage | None) -> dict[str, str]:
    return {
        "PATH": _PATH,
        **({"TERM": "xterm"} if config.has_tty else {}),
        **(image.environment if image else {}),
        "HOSTNAME": config.sandbox.hostname or socket.gethostname(),
        **config.environment,
    }


def _mounts(config: ContainerConfig, paths: ContainerPaths) -> tuple[MountSpec, ...]:
    covers_all = can_cover_all()
    mounts = [
        MountSpec(
            source,
            each.target,
            each.is_read_only,
            each.propagation,
            _is_idmapped(each, config, paths),
            below=each.is_below or bool(each.image),
            no_programs=bool(each.image),
            recursive=each.is_recursive and covers_all,
        )
        for each, source in zip(config.mounts, paths.sources, strict=True)
    ]
    own = [(paths.directory / MESSAGE, config.termination_path)]
    if all(posixpath.normpath(each.target) != _NAMES for each in config.mounts):
        own.insert(0, (paths.names, _NAMES))
    mounts += [
        MountSpec(
            str(source), target, read_only=False, propagation="None", idmap=bool(paths.first_id)
        )
        for source, target in own
    ]
    return tuple(mounts)


def _is_idmapped(mount: Mount, config: ContainerConfig, paths: ContainerPaths) -> bool:
    """Whether root of the pod's user namespace has root's rights over the files of a mount.

    Over what a pod names of the machine only if the pod itself asked for the namespace, and is not
    of the machine's files: for that image the namespace is there to keep it from such power.
    """
    if not paths.first_id:
        return False
    is_asked_for = config.sandbox.host_users is False and paths.hidden is None
    return is_asked_for or not mount.is_host_path


def _user(security: Security, image: StoredImage | None) -> str:
    """Return as whom a container runs, by number or by a name of its image."""
    user = str(security.user) if security.user is not None else ""
    if image and not user:
        user = image.user
    if security.group is not None:
        user = f"{user.partition(':')[0] or '0'}:{security.group}"
    return user


def _capabilities(security: Security) -> tuple[str, ...] | None:
    if security.is_privileged:
        return None
    return tuple(sorted(granted(security.added, security.dropped)))


def _filters_calls(security: Security, *, by_default: bool) -> bool:
    is_filtered = by_default if not security.seccomp else security.seccomp != "Unconfined"
    return is_filtered and not security.is_privileged


def limit_devices(spec: LaunchSpec, groups: DeviceGroups) -> LaunchSpec:
    """Limit the devices of a container whose control groups are made; OSError.

    Where that cannot be done it may make no device files, and nothing but /dev has any.
    """
    if spec.capabilities is None:  # it is privileged
        return spec
    if not spec.cgroup_files or groups.problem:
        left = tuple(each for each in spec.capabilities if each != _MAKES_DEVICES)
        return spec._replace(capabilities=left)
    rules, mounts = [*DEFAULT], list(spec.mounts)
    for number, mount in enumerate(spec.mounts):
        # What a volume is itself, not what containers may have put into one.
        rule = None if mount.below else rule_of(mount.source, is_read_only=mount.read_only)
        if rule is not None:
            rules.append(rule)
            mounts[number] = mount._replace(device=rule.file)
    files = (*spec.cgroup_files, *groups.limit(spec.cgroup_path, rules))
    return spec._replace(mounts=tuple(mounts), cgroup_files=files, limits_devices=True)


def user_of(spec: LaunchSpec) -> User | None:
    """Return as whom a container runs; None: its image does not know, and it does not start."""
    root = open_root(spec.root)
    try:
        user, group, groups, _ = identity(spec, root)
    except (UnknownUserError, OSError):
        return None
    finally:
        os.close(root)
    return User(user, group, groups)


def path_in_image(image: StoredImage, path: str) -> str:
    """Return the path on the node of a path in an image; raises StartError."""
    root = os.path.realpath(image.root)
    found = Path(os.path.realpath(Path(root, path)))
    if not found.is_relative_to(root) or not found.exists():
        raise StartError("CreateContainerError", f"image {image.name} has no place {path}")
    return str(found)


def can_cover_all() -> bool:
    """Whether the kernel supports recursive read-only mounts."""
    words = os.uname().release.split(".")
    return (int(words[0]), int(words[1].partition("-")[0])) >= _RECURSIVE_SINCE
