"""The control groups of a node's pods: one each, below that of its class.

    groups = PodGroups(cgroups, "kubepods")
    await groups.open(limits_of_all)
    await groups.make("kubepods/burstable/poduid", limits)
    await groups.remove("uid")

A machine that lets none be made has none: all of these then do nothing.
"""

import asyncio
import contextlib
import errno
import os
import signal
from typing import Final

from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.runtime import Limits, StartError, UpdateError

CGROUPFS: Final = "cgroupfs"
SYSTEMD: Final = "systemd"
CGROUP_DRIVERS: Final = (CGROUPFS, SYSTEMD)
"""Who creates the control groups of a container engine."""

_CLASSES: Final = ("", "burstable/", "besteffort/")
_TRIES: Final = 40
_PAUSE_S: Final = 0.05


def paths_of(root: str, uid: str) -> list[str]:
    """Return where the group of a pod may be: in that of any class."""
    return [f"{root}/{each}pod{uid}" for each in _CLASSES]


def slice_of(path: str) -> str:
    """Return where systemd has a group: "a/b-c" is /a.slice/a-b_c.slice."""
    names = [each.replace("-", "_") for each in path.split("/")]
    return "".join(f"/{'-'.join(names[:end])}.slice" for end in range(1, len(names) + 1))


class PodGroups:
    """The groups of one node's pods."""

    def __init__(self, cgroups: Cgroups, root: str) -> None:
        """root: under which all of them are; nothing is made yet."""
        self._cgroups = cgroups
        self._root = root

    async def open(self, limits: Limits | None) -> None:
        """Find out whether groups can be made; limit all pods together. OSError."""
        await asyncio.to_thread(self._cgroups.probe, self._root)
        if self._cgroups.is_usable and limits is not None:
            await asyncio.to_thread(self._cgroups.limit, self._root, limits)

    async def make(self, path: str, limits: Limits) -> None:
        """Make the group of a pod; empty: it has none. StartError."""
        if not path or not self._cgroups.is_usable:
            return
        try:
            await asyncio.to_thread(self._cgroups.make, path, limits)
            await asyncio.to_thread(self._cgroups.weigh_classes, self._root)
        except OSError as error:
            raise StartError("FailedCreatePodSandBox", str(error)) from error

    async def limit(self, path: str, limits: Limits) -> None:
        """Give a pod other limits; empty: it has no group. UpdateError."""
        if not path or not self._cgroups.is_usable:
            return
        try:
            await asyncio.to_thread(self._cgroups.limit, path, limits)
            await asyncio.to_thread(self._cgroups.weigh_classes, self._root)
        except OSError as error:
            raise UpdateError(str(error)) from error

    async def remove(self, uid: str) -> None:
        """Remove the group of a pod that has ended; what still runs in it is killed. OSError."""
        if not self._cgroups.is_usable:
            return
        for path in paths_of(self._root, uid):
            await self._remove(path)
        await asyncio.to_thread(self._cgroups.weigh_classes, self._root)

    async def _remove(self, path: str) -> None:
        for _ in range(_TRIES):
            if await asyncio.to_thread(self._cgroups.remove, path):
                return
            for pid in await asyncio.to_thread(self._cgroups.processes, path):
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(_PAUSE_S)  # the kernel does not say when one has gone
        raise OSError(errno.EBUSY, "the control group cannot be removed", path)
