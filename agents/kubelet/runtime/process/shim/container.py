"""What the first process of a container does: namespaces, files, user, and then its program.

    become(spec)     namespaces and mounts, then `execute`
    join(spec, …)    the namespaces of a container that runs, then `execute`

Both return only by an error. After the root has changed nothing can be imported any more.
"""

import contextlib
import fcntl
import os
import signal
import socket
import stat
import struct
import termios
from pathlib import Path
from typing import Any, Final, TypeAlias

from kvstack.agents.kubelet.runtime.process.shim import privileges, syscalls
from kvstack.agents.kubelet.runtime.process.shim.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_REMOUNT,
    mount,
)

Spec: TypeAlias = dict[str, Any]

DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty")
_UNLOCK, _NUMBER = 0x40045431, 0x80045430
"""Requests about a terminal: TIOCSPTLCK, TIOCGPTN."""
_LINKS_MAX: Final = 40
_MASKED: Final = (
    *(f"/proc/{name}" for name in ("acpi", "asound", "interrupts", "kcore", "keys", "scsi")),
    *("/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug"),
    *("/sys/firmware", "/sys/devices/virtual/powercap"),
)
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_PROPAGATION: Final = {
    "HostToContainer": syscalls.MS_SLAVE,
    "Bidirectional": syscalls.MS_SHARED,
}
_REMOUNTED: Final = MS_NOSUID | MS_NODEV | MS_NOEXEC


class StartError(Exception):
    """The program of a container cannot be started."""


def become(spec: Spec) -> None:
    """Turn this process into the container; it is the first of its process namespace."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    _enter_groups(spec)
    with contextlib.suppress(PermissionError):  # only some may lower it
        Path("/proc/self/oom_score_adj").write_text(str(spec["oom_score"]))
    for descriptor, kind in spec["namespaces"]:  # of its pod
        syscalls.setns(descriptor, kind)
    syscalls.unshare(syscalls.CLONE_NEWNS)
    os.setsid()
    _make_files(spec)
    if spec["tty"]:
        _take_terminal()
    execute(spec)


def join(spec: Spec, descriptor: int) -> None:
    """Run a program beside the container's first process, of which this is a descriptor."""
    _enter_groups(spec)
    flags = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC
    syscalls.setns(descriptor, flags | syscalls.CLONE_NEWNET)
    os.setsid()
    if spec["tty"]:
        _take_terminal()
    execute(spec)


def _take_terminal() -> None:
    """Open a terminal of the container's own, so that it has a name there.

    What stands at 0 is a socket, through which its other side is handed over.
    """
    ours = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    fcntl.ioctl(ours, _UNLOCK, struct.pack("i", 0))
    (number,) = struct.unpack("i", fcntl.ioctl(ours, _NUMBER, bytes(4)))
    terminal = os.open(f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    with socket.socket(fileno=os.dup(0)) as way:
        socket.send_fds(way, [b"t"], [ours])
    os.close(ours)
    for each in range(3):
        os.dup2(terminal, each)
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def execute(spec: Spec) -> None:
    """Take the container's user and rights, and run its program; StartError, OSError."""
    directory = spec["directory"] or "/"
    os.makedirs(directory, exist_ok=True)
    os.chdir(directory)
    user, group, groups, home = identity(spec)
    if spec["tty"]:
        os.fchown(0, user, -1)  # so that the program may open it again by its name
    environment = {"HOME": home, **spec["environment"]}
    # Found before the user changes: what is missing is told as missing, not as forbidden.
    path = _program(spec["argv"][0], environment)
    capabilities = spec["capabilities"]
    if spec["no_new_privileges"]:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if capabilities is not None:
        privileges.limit_capabilities(capabilities)
    if spec["filters_calls"]:
        privileges.filter_calls(capabilities or ())
    os.setgroups(groups)
    os.setgid(group)
    os.setuid(user)
    if spec["is_first"]:  # another user begins without it
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.umask(0o022)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except OSError:
                continue  # the C library keeps some for itself
    try:
        os.execve(path, spec["argv"], environment)
    except OSError as error:
        raise StartError(f'exec: "{spec["argv"][0]}": {_lower(error)}') from error


def _program(name: str, environment: dict[str, str]) -> str:
    """Return the path of a program; StartError."""
    if "/" in name:
        try:
            os.stat(name)
        except OSError as error:
            raise StartError(f'exec: "{name}": stat {name}: {_lower(error)}') from error
        return name
    for directory in environment.get("PATH", "").split(":"):
        path = f"{directory or '.'}/{name}"
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    raise StartError(f'exec: "{name}": executable file not found in $PATH')


def _lower(error: OSError) -> str:
    text = error.strerror or str(error)
    return text[:1].lower() + text[1:]


def _enter_groups(spec: Spec) -> None:
    """Enter the control groups of the container."""
    for path in spec["cgroups"]:
        Path(path).write_text("0")


# Users.


def identity(spec: Spec, root: str = "") -> tuple[int, int, list[int], str]:
    """Return user, group, other groups and home, as the container's own files tell them.

    root: where those are, seen from here. Raises StartError.
    """
    users, all_groups = f"{root}/etc/passwd", f"{root}/etc/group"
    name, _, group_name = str(spec["user"]).partition(":")
    row = _row(users, name or "0")
    if row is None and not name.isdecimal() and name:
        raise StartError(f"unable to find user {name}: no matching entries in passwd file")
    user = int(row[2]) if row else int(name or 0)
    group = int(row[3]) if row else 0
    home = row[5] if row and len(row) > 5 and row[5] else "/"
    if group_name:
        found = _row(all_groups, group_name)
        if found is None and not group_name.isdecimal():
            raise StartError(
                f"unable to find group {group_name}: no matching entries in group file"
            )
        group = int(found[2]) if found else int(group_name)
    groups = list(spec["groups"])
    if row is not None and spec["image_groups"]:
        members = _rows(all_groups)
        groups += [int(each[2]) for each in members if row[0] in each[3].split(",")]
    return user, group, sorted({*groups, group}), home


def _rows(path: str) -> list[list[str]]:
    try:
        lines = Path(path).read_text(errors="replace").splitlines()
    except OSError:
        return []  # not every image has such a file
    rows = [line.split(":") for line in lines]
    return [row for row in rows if len(row) >= 4 and row[2].isdecimal()]


def _row(path: str, name: str) -> list[str] | None:
    rows = _rows(path)
    return next((row for row in rows if name in (row[0], row[2])), None)


# Files.


def _make_files(spec: Spec) -> None:
    """Mount the image, with a layer of the container's own, and make it the root."""
    mount("none", "/", "", MS_REC | syscalls.MS_SLAVE)
    scratch = spec["scratch"]
    try:
        root = _overlay(spec["root"], scratch)
    except OSError:  # no overlay above this file system: the layer is kept in memory
        mount("tmpfs", scratch, "tmpfs", 0, "mode=700")
        root = _overlay(spec["root"], scratch)
    is_privileged = spec["is_privileged"]
    mount("proc", _inside(root, "/proc"), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    sys_dir = _inside(root, "/sys")
    if any(kind == syscalls.CLONE_NEWNET for _, kind in spec["namespaces"]):
        # One of its own shows its network; what is mounted in the node's is shown as there.
        mount("sysfs", sys_dir, "sysfs", _REMOUNTED)
        if os.path.isdir("/sys/fs/cgroup"):
            mount("/sys/fs/cgroup", f"{sys_dir}/fs/cgroup", "", MS_BIND | MS_REC)
    else:
        mount("/sys", sys_dir, "", MS_BIND | MS_REC)
    if not is_privileged:
        mount("none", sys_dir, "", MS_BIND | MS_REMOUNT | MS_RDONLY | _REMOUNTED)
    _make_devices(root, spec["shm"], is_privileged=is_privileged)
    for each in spec["mounts"]:
        _bind(root, each)
    if not is_privileged:
        _cover(root)
    if spec["read_only_root"]:
        mount("none", root, "", MS_BIND | MS_REMOUNT | MS_RDONLY)
    _change_root(root)


def _overlay(lower: str, scratch: str) -> str:
    upper, work, merged = (f"{scratch}/{name}" for name in ("upper", "work", "merged"))
    for each in (upper, work, merged):
        os.makedirs(each, exist_ok=True)
    os.chmod(upper, 0o755)
    places = {"lowerdir": lower, "upperdir": upper, "workdir": work}
    options = ",".join(f"{name}={_escaped(path)}" for name, path in places.items())
    mount("overlay", merged, "overlay", 0, options)
    return merged


def _escaped(path: str) -> str:
    """Return a path as options of an overlay take it: names of images have colons."""
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _make_devices(root: str, shm: str, *, is_privileged: bool) -> None:
    dev = _inside(root, "/dev")
    if is_privileged:
        mount("/dev", dev, "", MS_BIND | MS_REC)
        _share_memory(dev, shm)
        return
    mount("tmpfs", dev, "tmpfs", MS_NOSUID, "mode=755,size=65536k")
    for name in DEVICES:
        Path(dev, name).touch()
        mount(f"/dev/{name}", f"{dev}/{name}", "", MS_BIND)
    for name, kind, options in (
        ("pts", "devpts", "newinstance,ptmxmode=0666,mode=0620,gid=5"),
        ("mqueue", "mqueue", ""),
    ):
        os.mkdir(f"{dev}/{name}")
        mount(kind, f"{dev}/{name}", kind, MS_NOSUID | MS_NOEXEC, options)
    os.mkdir(f"{dev}/shm")
    _share_memory(dev, shm)
    os.symlink("pts/ptmx", f"{dev}/ptmx")
    os.symlink("/proc/self/fd", f"{dev}/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{dev}/{name}")


def _share_memory(dev: str, shm: str) -> None:
    """Show what the containers of a pod, or all of the node, share in memory."""
    if os.path.isdir(shm) and os.path.isdir(f"{dev}/shm"):
        mount(shm, f"{dev}/shm", "", MS_BIND)


def _cover(root: str) -> None:
    """Hide what tells of the machine, and let the rest of it not be changed."""
    for path in _MASKED:
        inside = f"{root}{path}"
        if os.path.isdir(inside):
            mount("tmpfs", inside, "tmpfs", MS_RDONLY)
        elif os.path.exists(inside):
            mount("/dev/null", inside, "", MS_BIND)
    for path in _READ_ONLY:
        inside = f"{root}{path}"
        if os.path.exists(inside):
            mount(inside, inside, "", MS_BIND | MS_REC)
            mount("none", inside, "", MS_BIND | MS_REMOUNT | MS_RDONLY | _REMOUNTED)


def _bind(root: str, given: dict[str, Any]) -> None:
    """Show a file or directory of the node in the container."""
    source = given["source"]
    inside = _inside(root, given["target"], is_file=not os.path.isdir(source))
    if given.get("below"):
        held = _opened(source)
        mount(f"/proc/self/fd/{held}", inside, "", MS_BIND | MS_REC)
        os.close(held)
    else:
        mount(source, inside, "", MS_BIND | MS_REC)
    if propagation := _PROPAGATION.get(given["propagation"]):
        mount("none", inside, "", MS_REC | propagation)
    else:
        mount("none", inside, "", MS_REC | MS_PRIVATE)
    if given["read_only"]:
        more = MS_NOEXEC if given.get("no_programs") else 0
        flags = MS_BIND | MS_REMOUNT | MS_RDONLY | _locked_flags(inside) | more
        mount("none", inside, "", flags)
        if given.get("recursive"):
            syscalls.read_only_below(inside)


def _opened(path: str) -> int:
    """Return a descriptor of a place whose path has no links, whoever changes it meanwhile."""
    held = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for part in path.split("/"):
        if not part:
            continue
        try:
            found = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
        finally:
            os.close(held)
        held = found
        if stat.S_ISLNK(os.fstat(held).st_mode):
            os.close(held)
            raise StartError(f"subPath: {path} leads over a link")
    return held


def _locked_flags(path: str) -> int:
    """Return the flags that a mount must keep."""
    found = os.statvfs(path).f_flag
    return sum(flag for flag in (MS_NOSUID, MS_NODEV, MS_NOEXEC) if found & flag)


def _change_root(root: str) -> None:
    """Make a mount the root; what was there before is out of reach."""
    os.chdir(root)
    try:
        syscalls.pivot_root(".", ".")
    except OSError:  # the node itself runs from its first root
        mount(".", "/", "", syscalls.MS_MOVE)
        os.chroot(".")
    else:
        syscalls.unmount(".", syscalls.MNT_DETACH)
    os.chdir("/")


def _inside(root: str, path: str, *, is_file: bool = False) -> str:
    """Return a path under a root, with its links followed inside, made where it is missing."""
    waiting = [part for part in path.split("/") if part]
    found: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop(0)
        if part == ".":
            continue
        if part == "..":
            found = found[:-1]
            continue
        here = "/".join([root, *found, part])
        if os.path.islink(here):
            links += 1
            if links > _LINKS_MAX:
                raise OSError(f"too many links in {path}")
            aim = os.readlink(here)
            if aim.startswith("/"):
                found = []
            waiting = [each for each in aim.split("/") if each] + waiting
            continue
        if not os.path.lexists(here):
            if is_file and not waiting:
                Path(here).touch()
            else:
                os.mkdir(here)
        found.append(part)
    return "/".join([root, *found])
