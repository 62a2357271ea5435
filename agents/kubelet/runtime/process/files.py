"""The files of a node about pods that run as processes.

    ROOT/pods/<uid>/resolv.conf                     names that its containers look up
    ROOT/pods/<uid>/containers/<name>/<attempt>/
        launch.json     what its shim starts        socket     on which the shim listens
        record.json     what is known of it         exit.json  how it ended
        layer/          what it wrote               message    its termination message

Volumes of a pod are beside its containers, and are not touched. What containers of a pod share is
in `sandboxes`.
"""

import contextlib
import dataclasses
import json
import os
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.agents.kubelet.disk.removal import remove_tree
from kvstack.agents.kubelet.runtime.process.shim.launch_spec import (
    LaunchSpec,
    SpecError,
    decode_launch,
)
from kvstack.agents.kubelet.runtime.process.shim.main import EXIT, LAUNCH
from kvstack.agents.kubelet.runtime.runtime import Container, ContainerConfig, Sandbox, User
from kvstack.component.errors import ConfigError

LAYER: Final = "layer"
MESSAGE: Final = "message"
_PODS_MODE: Final = 0o750
_RECORD: Final = "record.json"
_NAMES: Final = "resolv.conf"


class ExitRecord(NamedTuple):
    """The exit status of a container."""

    code: int
    finished_s: float


class KnownContainer(NamedTuple):
    """The record of a container that was started before."""

    container: Container
    spec: LaunchSpec
    pid: int


class PodFiles:
    """The files of pods and their containers."""

    def __init__(self, root: Path) -> None:
        """root: of all pods."""
        self._root = root

    def open(self) -> None:
        """Create the directories, closed to others: containers may leave setuid files; OSError."""
        self._root.mkdir(mode=_PODS_MODE, parents=True, exist_ok=True)
        self._root.chmod(_PODS_MODE)

    def uids(self) -> list[str]:
        """Return the pods of which there is anything."""
        try:
            return os.listdir(self._root)
        except FileNotFoundError:
            return []

    def of_containers(self) -> list[Path]:
        """Return the directories of all containers that were started."""
        return self._with(_RECORD)

    def unrecorded(self) -> list[Path]:
        """Return the directories of containers whose start was not finished."""
        return [each for each in self._with(LAUNCH) if not (each / _RECORD).exists()]

    def _with(self, name: str) -> list[Path]:
        return [each.parent for each in sorted(self._root.glob(f"*/containers/*/*/{name}"))]

    def of_container(self, uid: str, name: str, attempt: int) -> Path:
        """Return the directory of a container."""
        return self._root / uid / "containers" / name / str(attempt)

    def names(self, uid: str) -> Path:
        """Return the resolv.conf of a pod."""
        return self._root / uid / _NAMES

    def prepare(self, directory: Path, config: ContainerConfig, log: Path) -> None:
        """Make what a container finds; OSError."""
        remove_tree(directory)  # of a start that failed
        (directory / LAYER).mkdir(parents=True)
        log.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        names = self.names(config.sandbox.uid)
        names.write_text(_resolv_conf(config.sandbox))
        names.chmod(0o644)  # whatever the umask is: users in containers read it
        message = directory / MESSAGE
        message.touch()
        message.chmod(0o666)

    def remove(self, uid: str) -> None:
        """Remove what the runtime has of a pod, and its directory unless there are volumes."""
        remove_tree(self._root / uid / "containers")
        self.names(uid).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there are volumes, or it is gone
            (self._root / uid).rmdir()


def _resolv_conf(sandbox: Sandbox) -> str:
    lines = [f"search {' '.join(sandbox.searches)}"] if sandbox.searches else []
    lines += [f"nameserver {each}" for each in sandbox.servers]
    lines += [f"options {' '.join(sandbox.options)}"] if sandbox.options else []
    return "".join(f"{line}\n" for line in lines)


def write_record(directory: Path, container: Container, pid: int) -> None:
    """Write the record of a container; pid: of its first process, 0: it has ended."""
    shown = {**dataclasses.asdict(container), "log": str(container.log)}
    waiting = directory / f"{_RECORD}.new"  # a kubelet may be killed at any time
    waiting.write_text(json.dumps({"container": shown, "pid": pid}))
    waiting.rename(directory / _RECORD)


def read_record(directory: Path) -> KnownContainer:
    """Return what is known of a container that was started before; raises ConfigError."""
    record = json.loads((directory / _RECORD).read_text())
    kept = record["container"]
    user = User(*kept["user"]) if kept["user"] else None
    container = Container(**{**kept, "log": Path(kept["log"]), "user": user})
    try:
        spec = decode_launch((directory / LAUNCH).read_text())
    except SpecError as error:
        raise ConfigError(
            f"{directory / LAUNCH}: {error}; start the version of the kubelet that wrote it, or "
            "end its container"
        ) from error
    return KnownContainer(container, spec, record["pid"])


def read_exit(directory: Path) -> ExitRecord | None:
    """Return how a container ended; None: its shim could not say."""
    try:
        written = json.loads((directory / EXIT).read_text())
    except FileNotFoundError:
        return None
    return ExitRecord(written["code"], written["finished_ns"] / 1e9)
