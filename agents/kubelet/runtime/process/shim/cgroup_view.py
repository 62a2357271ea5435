"""The control groups that a container sees: a namespace of its own, with only its own groups.

    version 1    /sys/fs/cgroup/memory  /cpu  …    its group of each controller that it has one of
    version 2    /sys/fs/cgroup                    its group

All are mounted only to be read, so that it changes neither its own limits nor another's. Privileged
containers have none of this: they see those of the machine.
"""

import os
from collections.abc import Mapping
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import mounts, syscalls
from kvstack.agents.kubelet.runtime.process.shim.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_RDONLY,
    mount,
)

_NAMESPACE: Final = "/proc/self/ns/cgroup"
_FLAGS: Final = MS_NOSUID | MS_NODEV | MS_NOEXEC


def namespace_flag() -> int:
    """Return the flag of a namespace of control groups; 0: this kernel has none."""
    return syscalls.CLONE_NEWCGROUP if os.path.exists(_NAMESPACE) else 0


def mount_own(sys_directory: str, groups: Mapping[str, str]) -> None:
    """Mount a container's groups in a /sys that is being made; OSError.

    groups: directories of the node by the name below /sys/fs/cgroup; "" is that itself.
    """
    target = f"{sys_directory}/fs/cgroup"
    if not groups or not os.path.isdir(target):
        return
    if "" not in groups:
        mount("tmpfs", target, "tmpfs", _FLAGS, "mode=755,size=64k")
    for name, group in groups.items():
        place = f"{target}/{name}" if name else target
        if name:
            os.mkdir(place)
        mount(group, place, "", MS_BIND)
        mounts.set_flags(place, MS_RDONLY | _FLAGS)
    if "" not in groups:
        mounts.set_flags(target, MS_RDONLY | _FLAGS)
