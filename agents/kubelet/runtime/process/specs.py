"""What a shim is told of a container: the contents of its launch.json.

    argv = argv_of(wanted, image)
    spec = spec_of(wanted, image, argv, Places(directory, names, shm, sources), pid)

A container without an image is the one that holds the process namespace of a pod. Which groups of
control and namespaces a container enters is added by who starts it.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from kvstack.agents.kubelet.runtime.process.files import LAYER, MESSAGE
from kvstack.agents.kubelet.runtime.process.images import StoredImage
from kvstack.agents.kubelet.runtime.process.shim.container import StartError as UnknownUserError
from kvstack.agents.kubelet.runtime.process.shim.container import identity
from kvstack.agents.kubelet.runtime.process.shim.privileges import granted
from kvstack.agents.kubelet.runtime.runtime import Security, StartError, User, Wanted

Spec: TypeAlias = dict[str, Any]

PAUSE: Final = "POD"
"""Name of the container that holds the process namespace of a pod, as no other can be named."""
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_RECURSIVE_SINCE: Final = (5, 12)
"""Of Linux: the version that lets all that is mounted below a mount only be read."""


@dataclass(frozen=True, slots=True)
class Places:
    """Where the node has what a container is given."""

    directory: Path
    """Of the container."""
    names: Path
    """The resolv.conf of the pod."""
    shm: Path
    """The file system in memory that the containers of the pod share."""
    sources: Sequence[str]
    """What each mount of the container shows."""


def argv_of(wanted: Wanted, image: StoredImage | None) -> list[str]:
    """Return the command of a container; raises StartError."""
    if image is None:
        return [PAUSE]
    if wanted.command:
        return [*wanted.command, *wanted.arguments]
    argv = [*image.entrypoint, *(wanted.arguments or image.command)]
    if not argv:
        raise StartError("CreateContainerError", "no command specified")
    return argv


def spec_of(
    wanted: Wanted, image: StoredImage | None, argv: Sequence[str], places: Places, pid: int
) -> Spec:
    """Return what a shim is told; pid: whose process namespace is entered, 0: a new one is made."""
    sandbox = wanted.sandbox
    return {
        "argv": list(argv),
        "environment": _environment(wanted, image),
        "mounts": _mounts(wanted, places),
        **_files(wanted, image, places.directory),
        **_identity(wanted.security, image),
        **_privileges(wanted.security),
        "tty": wanted.has_tty,
        "stdin": wanted.has_stdin,
        "stdin_once": wanted.has_stdin_once,
        "is_first": True,
        "hostname": sandbox.hostname,
        "host_pids": sandbox.has_host_pids,
        "shm": "/dev/shm" if sandbox.has_host_ipc else str(places.shm),
        "pid_of": pid,
        "pauses": image is None,
        "cgroups": [],
        "cgroup": f"{sandbox.cgroup}/{wanted.name}-{wanted.attempt}" if sandbox.cgroup else "",
        "oom_score": wanted.limits.oom_score,
        "stop_signal": image.stop_signal if image else "SIGKILL",
        "falls_back_to_logs": wanted.falls_back_to_logs,
    }


def _environment(wanted: Wanted, image: StoredImage | None) -> dict[str, str]:
    return {
        "PATH": _PATH,
        **({"TERM": "xterm"} if wanted.has_tty else {}),
        **(image.environment if image else {}),
        "HOSTNAME": wanted.sandbox.hostname or socket.gethostname(),
        **wanted.environment,
    }


def _mounts(wanted: Wanted, places: Places) -> list[Spec]:
    covers_all = can_cover_all()
    mounts: list[Spec] = [
        {
            "source": source,
            "target": each.target,
            "read_only": each.is_read_only,
            "propagation": each.propagation,
            "below": each.is_below or bool(each.image),
            "no_programs": bool(each.image),
            "recursive": each.is_recursive and covers_all,
        }
        for each, source in zip(wanted.mounts, places.sources, strict=True)
    ]
    own = (
        (places.names, "/etc/resolv.conf"),
        (places.directory / MESSAGE, wanted.termination_path),
    )
    mounts += [
        {"source": str(source), "target": target, "read_only": False, "propagation": "None"}
        for source, target in own
    ]
    return mounts


def _files(wanted: Wanted, image: StoredImage | None, directory: Path) -> Spec:
    """Return where a container begins, and what is written of it."""
    log = Path(wanted.sandbox.log_directory) / wanted.name / f"{wanted.attempt}.log"
    return {
        "directory": wanted.directory or (image.directory if image else ""),
        "root": str(image.root) if image else "",
        "scratch": str(directory / LAYER),
        "log": str(log if image else directory / "log"),
    }


def _identity(security: Security, image: StoredImage | None) -> Spec:
    """Return as whom a container runs, by number or by a name of its image."""
    user = str(security.user) if security.user is not None else ""
    if image and not user:
        user = image.user
    if security.group is not None:
        user = f"{user.partition(':')[0] or '0'}:{security.group}"
    return {
        "user": user,
        "groups": list(security.groups),
        "image_groups": not security.is_strict,
    }


def _privileges(security: Security) -> Spec:
    capabilities = sorted(granted(security.added, security.dropped))
    return {
        "is_privileged": security.is_privileged,
        "capabilities": None if security.is_privileged else capabilities,
        "no_new_privileges": security.no_new_privileges,
        "filters_calls": security.seccomp != "Unconfined" and not security.is_privileged,
        "read_only_root": security.has_read_only_root,
    }


def user_of(spec: Mapping[str, Any]) -> User | None:
    """Return as whom a container runs; None: its image does not know, and it does not start."""
    try:
        user, group, groups, _ = identity(dict(spec), spec["root"].rstrip("/"))
    except UnknownUserError:
        return None
    return User(user, group, groups)


def place_in(image: StoredImage, path: str) -> str:
    """Return where a place in an image is; raises StartError."""
    root = os.path.realpath(image.root)
    found = Path(os.path.realpath(Path(root, path)))
    if not found.is_relative_to(root) or not found.exists():
        raise StartError("CreateContainerError", f"image {image.name} has no place {path}")
    return str(found)


def can_cover_all() -> bool:
    """Whether the kernel can let only be read what is mounted below a mount."""
    words = os.uname().release.split(".")
    return (int(words[0]), int(words[1].partition("-")[0])) >= _RECURSIVE_SINCE
