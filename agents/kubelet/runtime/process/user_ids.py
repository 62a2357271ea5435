"""The ids of this machine for user namespaces of pods, 65536 for each.

    ids = UserIds(state, "kv-1")
    first = ids.take("<uid of a pod>")      1879048192, 1879113728, …
    ids.release("<uid of a pod>")

    STATE/ids/<number> -> <node>/<uid>      a link for each block that is taken

A link is made at once or not at all, so that no two nodes of a machine take the same block. All
links are gone after a reboot, and with them what had such ids; those of a node that was killed go
with `release_all`. The blocks are where neither /etc/subuid, nor systemd, nor people have ids.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim.user_namespaces import IDS

FIRST: Final = 0x70000000
"""Up to it systemd has ranges of its own; above 2**31 ids are negative to some programs."""
BLOCKS_MAX: Final = (1 << 31 >> 16) - (FIRST >> 16)
_DIRECTORY: Final = "ids"


class NoIdsError(Exception):
    """All blocks are taken."""


class UserIds:
    """The blocks of one node's pods."""

    def __init__(self, state: Path, node: str) -> None:
        """state: the directory that nodes of this machine share; node: the name of this one."""
        self._directory = state / _DIRECTORY
        self._node = node
        self._taken: dict[str, int] = {}

    def open(self, kept: Collection[str]) -> None:
        """Find the blocks of before; those of other pods than these are released. OSError."""
        for number, uid in _of_node(self._directory, self._node):
            if uid in kept:
                self._taken[uid] = number
            else:
                (self._directory / str(number)).unlink(missing_ok=True)

    def first(self, uid: str) -> int:
        """Return which id of the machine is id 0 of a pod; 0: the pod has no block."""
        number = self._taken.get(uid)
        return 0 if number is None else FIRST + number * IDS

    def take(self, uid: str) -> int:
        """Give a pod a block, unless it has one; return its first id. NoIdsError, OSError."""
        if uid not in self._taken:
            self._taken[uid] = self._link(uid)
        return self.first(uid)

    def _link(self, uid: str) -> int:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = set(os.listdir(self._directory))
        for number in range(BLOCKS_MAX):
            if str(number) in taken:
                continue
            try:
                os.symlink(f"{self._node}/{uid}", self._directory / str(number))
            except FileExistsError:
                continue  # another node was faster
            return number
        raise NoIdsError(
            f"all {BLOCKS_MAX} blocks of ids for user namespaces are taken: {self._directory}"
        )

    def release(self, uid: str) -> None:
        """Free a pod's block of ids, if it has one; OSError."""
        number = self._taken.pop(uid, None)
        if number is not None:
            (self._directory / str(number)).unlink(missing_ok=True)


def release_all(state: Path, node: str) -> None:
    """Free the blocks of a node without running processes; OSError."""
    directory = state / _DIRECTORY
    for number, _ in _of_node(directory, node):
        (directory / str(number)).unlink(missing_ok=True)


def _of_node(directory: Path, node: str) -> list[tuple[int, str]]:
    """Return the blocks that are a node's, each with its pod."""
    if not directory.is_dir():
        return []
    blocks = []
    for name in os.listdir(directory):
        try:
            owner, _, uid = os.readlink(directory / name).rpartition("/")
        except FileNotFoundError:
            continue  # another node has just released it
        if owner == node:
            blocks.append((int(name), uid))
    return blocks
