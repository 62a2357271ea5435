"""Locks of the running nodes of this machine, and clean-up after killed ones.

    STATE/nodes/<name>      a file that a node keeps locked while it lives; it says where it is
    STATE/shm/<name>/…      and more that is the node's (`sandboxes`, `pod_network`)

    record = Record("kv-1", "/data/node", ends_with_node=True, cgroup="kubepods")
    lock = NodeLock(state, record, cgroups)
    lock.begin(); …; lock.end()
    problems = clean(state, cgroups)        at the start of any node

A node whose containers outlive it is left alone as long as its directory is there, and one of which
something still runs.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.disk import mount_table
from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.pod_groups import paths_of
from kvstack.agents.kubelet.runtime.process.network.pod_network import PodNetwork
from kvstack.agents.kubelet.runtime.process.user_ids import release_all
from kvstack.agents.network_policy.nftables.program import remove as remove_policies
from kvstack.component.net.nft import NftError

_OF_DRIVERS: Final = "kubernetes.io~csi"
_NODES: Final = "nodes"
_SHM: Final = "shm"


@dataclass(frozen=True, slots=True)
class Record:
    """The record of a node for its successors."""

    name: str
    """The name of its bridge, which identifies the node."""
    root: str
    ends_with_node: bool
    """Whether its containers end when it does, however it ends."""
    cgroup: str


def shm_of(state: Path, name: str) -> Path:
    """Return where a node has the file systems in memory that containers of its pods share."""
    return state / _SHM / name


class NodeLock:
    """One node that lives."""

    def __init__(self, state: Path, record: Record, cgroups: Cgroups) -> None:
        self._state = state
        self._cgroups = cgroups
        self._file = state / _NODES / record.name
        self._record = record
        self._lock = -1

    def begin(self) -> None:
        """Live from now on; OSError."""
        self._file.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        while self._lock < 0:
            held = os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(held, fcntl.LOCK_SH)  # another node may be cleaning up
            if _is_there(self._file, held):
                self._lock = held
            else:
                os.close(held)
        self._file.write_text(json.dumps(asdict(self._record)))

    def end(self) -> None:
        """Release the lock; nothing is left, or its pods go on for a later start. OSError."""
        if self._lock < 0:
            return
        if self._record.ends_with_node:
            _let_go(self._record, self._cgroups)
            shared = shm_of(self._state, self._record.name)
            if shared.is_dir() and not os.listdir(shared):
                shared.rmdir()
            self._file.unlink(missing_ok=True)
        os.close(self._lock)
        self._lock = -1


def _is_there(file: Path, descriptor: int) -> bool:
    """Whether an open file still has its name."""
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def lives(state: Path, name: str) -> bool:
    """Whether the node whose bridge has a name is running on this machine; OSError."""
    try:
        descriptor = os.open(state / _NODES / name, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def clean(state: Path, cgroups: Cgroups) -> list[str]:
    """Clean up after killed nodes; return what could not be removed, and why."""
    problems = []
    directory = state / _NODES
    for file in sorted(directory.iterdir()) if directory.is_dir() else ():
        try:
            with _abandoned(file) as record:
                if record is not None and _take_away(state, record, cgroups):
                    file.unlink()
        except (OSError, ValueError, TypeError) as error:
            problems.append(f"{file}: {error}")
    return problems


@contextmanager
def _abandoned(file: Path) -> Iterator[Record | None]:
    """Yield the record of a node that has ended; None: it is running."""
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
            return
        content = file.read_text() if _is_there(file, descriptor) else ""
        yield Record(**json.loads(content)) if content else None  # it is about to write it
    finally:
        os.close(descriptor)


def _take_away(state: Path, record: Record, cgroups: Cgroups) -> bool:
    """Clean up after a node; return whether nothing is left. OSError."""
    if not record.ends_with_node and Path(record.root).exists():
        return False
    if not PodNetwork(record.root, state).remove_idle_bridge(record.name):
        return False  # its containers are just ending
    with suppress(NftError):  # without the program there is no table
        remove_policies(record.name)
    release_all(state, record.name)
    shared = shm_of(state, record.name)
    mount_table.take_away(shared)
    if shared.is_dir():
        shutil.rmtree(shared)
    _let_go(record, cgroups)
    return True


def _let_go(record: Record, cgroups: Cgroups) -> None:
    """Remove the mounts of volumes and the control groups of pods without processes.

    Those of CSI drivers stay: they know what they have mounted, and are asked for it (`csi`).
    """
    pods = Path(record.root, "pods")
    mount_table.take_away(pods, spares=_OF_DRIVERS)
    for uid in os.listdir(pods) if pods.is_dir() else ():
        for path in paths_of(record.cgroup, uid):
            cgroups.remove(path)
