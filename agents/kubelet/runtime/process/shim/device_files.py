"""The contents of a container's /dev.

    others        the devices of DEVICES, bound from the machine
    privileged    a copy of every device file that the machine has when the container starts

Both have a directory, terminals, message queues and shared memory of their own: what a container
makes, replaces or removes in /dev is not made, replaced or removed on the machine.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import mounts, user_namespaces
from kvstack.agents.kubelet.runtime.process.shim.launch_spec import LaunchSpec
from kvstack.agents.kubelet.runtime.process.shim.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    mount,
)

DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
MACHINE: Final = "/dev"
COPIED_MAX: Final = 10_000
"""Device files and links that are copied."""
_TERMINALS: Final = 5
"""The group of terminals (tty)."""
_OWN: Final = frozenset(
    ("console", "core", "fd", "mqueue", "ptmx", "pts", "shm", "stderr", "stdin", "stdout")
)
"""Entries of /dev that each container has of its own, or not at all."""


def make(dev: str, spec: LaunchSpec) -> None:
    """Mount /dev at a directory; OSError."""
    first = spec.first_id
    # A device that is made here can be opened only where the control group says which may be.
    flags = MS_NOSUID if spec.limits_devices or spec.is_privileged else MS_NOSUID | MS_NODEV
    mount("tmpfs", dev, "tmpfs", flags, f"mode=755,size=65536k,uid={first},gid={first}")
    if spec.is_privileged:
        copy(MACHINE, dev)
    else:
        for name in DEVICES:
            _bind_file(f"{MACHINE}/{name}", f"{dev}/{name}")
    group = f",gid={first + _TERMINALS}" if user_namespaces.has_id(_TERMINALS, "gid") else ""
    for name, kind, options, more in (
        ("pts", "devpts", f"newinstance,ptmxmode=0666,mode=0620{group}", 0),
        ("mqueue", "mqueue", "", MS_NODEV),
    ):
        os.mkdir(f"{dev}/{name}")
        mount(kind, f"{dev}/{name}", kind, MS_NOSUID | MS_NOEXEC | more, options)
    os.mkdir(f"{dev}/shm")
    if os.path.isdir(spec.shm):  # what the containers of a pod, or all of the node, share
        mount(spec.shm, f"{dev}/shm", "", MS_BIND)
        mounts.set_flags(f"{dev}/shm", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    os.symlink("pts/ptmx", f"{dev}/ptmx")
    os.symlink("/proc/self/fd", f"{dev}/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{dev}/{name}")


def copy(source: str, target: str) -> None:
    """Make the device files of a directory, and links among them, in another one; OSError."""
    for count, (name, status) in enumerate(_devices(source)):
        if count == COPIED_MAX:
            raise OSError(f"{source} has more than {COPIED_MAX} device files")
        path = f"{target}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(f"{source}/{name}"), path)
            continue
        try:
            os.mknod(path, status.st_mode, status.st_rdev)
        except PermissionError:  # in a container that may make none
            _bind_file(f"{source}/{name}", path)
            continue
        os.chmod(path, stat.S_IMODE(status.st_mode))
        os.chown(path, status.st_uid, status.st_gid)


def _devices(source: str) -> Iterator[tuple[str, os.stat_result]]:
    """Give device files and links below a directory, on its own file system, by their paths."""
    device = os.stat(source).st_dev
    waiting = [""]
    while waiting:
        directory = waiting.pop()
        with os.scandir(f"{source}/{directory}") as entries:
            for each in entries:
                name = f"{directory}/{each.name}" if directory else each.name
                if name in _OWN:
                    continue
                try:
                    status = each.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # a device that has just gone
                kind = stat.S_IFMT(status.st_mode)
                if kind == stat.S_IFDIR and status.st_dev == device:
                    waiting.append(name)
                elif kind in (stat.S_IFBLK, stat.S_IFCHR, stat.S_IFLNK):
                    yield name, status


def _bind_file(source: str, target: str) -> None:
    Path(target).touch()
    mount(source, target, "", MS_BIND)
