"""The first process of a container: namespaces, files, user, and then its program.

    become(spec)     namespaces and mounts, then `execute`
    join(spec, …)    the namespaces of a container that runs, then `execute`

Both return only by an error. After the root has changed, modules can no longer be imported.
"""

import contextlib
import os
import signal
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import (
    cgroup_view,
    composed_layer,
    device_files,
    host_layer,
    mounts,
    privileges,
    rooted,
    seccomp,
    syscalls,
    terminals,
    user_namespaces,
)
from kvstack.agents.kubelet.runtime.process.shim.launch_spec import LaunchSpec, MountSpec
from kvstack.agents.kubelet.runtime.process.shim.mounts import Stage
from kvstack.agents.kubelet.runtime.process.shim.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    mount,
)

_MOUNTS: Final = "SYS_ADMIN"
_NULL_DEVICE: Final = os.makedev(1, 3)
_USERS, _GROUPS = "/etc/passwd", "/etc/group"
_ACCOUNTS_BYTES_MAX: Final = 4 << 20
"""The maximum size of /etc/passwd and /etc/group of an image."""
_MASKED: Final = (
    *(f"/proc/{name}" for name in ("acpi", "asound", "interrupts", "kcore", "keys", "scsi")),
    *("/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug"),
    *("/sys/firmware", "/sys/devices/virtual/powercap"),
)
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
_BOTH_WAYS: Final = "Bidirectional"
_PROPAGATION: Final = {
    "HostToContainer": syscalls.MS_SLAVE,
    _BOTH_WAYS: syscalls.MS_SHARED,
}
_KERNEL_FLAGS: Final = MS_NOSUID | MS_NODEV | MS_NOEXEC
"""Mount flags of file systems of the kernel, and of shared memory."""
_COVERED_PROC: Final = frozenset(
    f"/proc/{name}"
    for name in (
        *("cpuinfo", "diskstats", "loadavg", "meminfo", "net/dev", "slabinfo", "stat", "swaps"),
        *("uptime", "sys/kernel/ns_last_pid", "sys/crypto/fips_enabled"),
    )
)
"""Files below /proc that may be replaced, e.g. by LXCFS: what they show is of no consequence."""


class StartError(Exception):
    """The program of a container cannot be started."""


def become(spec: LaunchSpec) -> None:
    """Turn this process into the container; it is the first of its process namespace."""
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    _enter_groups(spec)
    with contextlib.suppress(PermissionError):  # only some may lower it
        Path("/proc/self/oom_score_adj").write_text(str(spec.oom_score))
    for descriptor, kind in spec.namespaces:  # of its pod
        syscalls.setns(descriptor, kind)
    # After the container's control groups were entered: they are the roots of the namespace.
    own_groups = 0 if spec.is_privileged else cgroup_view.namespace_flag()
    syscalls.unshare(syscalls.CLONE_NEWNS | own_groups)
    os.setsid()
    _make_files(spec)
    if spec.tty:
        terminals.take_terminal(is_console=not spec.is_privileged)
    execute(spec)


def join(spec: LaunchSpec, descriptor: int) -> None:
    """Run a program beside the container's first process, of which this is a descriptor."""
    _enter_groups(spec)
    flags = syscalls.CLONE_NEWNS | syscalls.CLONE_NEWUTS | syscalls.CLONE_NEWIPC
    flags |= syscalls.CLONE_NEWNET | cgroup_view.namespace_flag()
    syscalls.setns(descriptor, flags)
    os.setsid()
    if spec.tty:
        terminals.take_terminal(is_console=False)
    execute(spec)


def execute(spec: LaunchSpec) -> None:
    """Switch to the container's user and privileges, and run its program; StartError, OSError."""
    root = rooted.open_root("/")
    user, group, groups, home = identity(spec, root)
    if spec.user_namespace < 0 and user_namespaces.is_restricted():
        groups = _known_groups(user, group, groups)
    if spec.hidden is not None:
        home = host_layer.home_of(home)
    for each in range(3):
        if stat.S_ISFIFO(os.fstat(each).st_mode) or os.isatty(each):
            os.fchown(each, spec.first_id + user, -1)  # the program may open it by its name
    if spec.user_namespace >= 0:
        _enter_user_namespace(spec.user_namespace, (user, group, *groups))
        if spec.is_first and _may_mount(spec):
            # One that is the user namespace's own; what is mounted in it cannot be taken apart.
            syscalls.unshare(syscalls.CLONE_NEWNS)
            root = rooted.open_root("/")
    _enter_directory(root, spec.directory or "/")
    environment = {"HOME": home, **spec.environment}
    # Found before the user changes: a missing program is reported as missing, not as forbidden.
    path = _program(spec.argv[0], environment)
    capabilities = spec.capabilities
    if spec.no_new_privileges:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if capabilities is not None:
        privileges.limit_capabilities(capabilities)
    if spec.filters_calls:
        seccomp.load(capabilities or ())
    if groups:  # the own one at least, unless the kernel lets this node set none
        os.setgroups(groups)
    os.setgid(group)
    os.setuid(user)
    if spec.is_first:  # another user begins without it
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    os.umask(0o022)
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except OSError:
                continue  # the C library keeps some for itself
    syscalls.close_on_exec()
    try:
        os.execve(path, spec.argv, environment)
    except OSError as error:
        raise StartError(f'exec: "{spec.argv[0]}": {_lower(error)}') from error


def _enter_user_namespace(namespace: int, ids: Sequence[int]) -> None:
    """Become root of the pod's user namespace; StartError: it does not have all of some ids."""
    for each in ids:
        if each >= user_namespaces.IDS:
            raise StartError(
                f"id {each} is not in the user namespace of the pod, which has the ids from 0 to "
                f"{user_namespaces.IDS - 1} (hostUsers: false)"
            )
    user_namespaces.enter(namespace)


def _known_groups(user: int, group: int, groups: Sequence[int]) -> list[int]:
    """Return the groups that can be set in the node's own user namespace; StartError."""
    unknown = [f"user {user}"] if not user_namespaces.has_id(user) else []
    unknown += [f"group {e}" for e in (group, *groups) if not user_namespaces.has_id(e, "gid")]
    if unknown:
        raise StartError(
            f"{unknown[0]} is not mapped on this node, which runs without root: its user has too"
            " few subordinate ids (/etc/subuid, /etc/subgid)"
        )
    return list(groups) if user_namespaces.may_set_groups() else []


def _may_mount(spec: LaunchSpec) -> bool:
    return spec.capabilities is None or _MOUNTS in spec.capabilities


def _enter_directory(root: int, directory: str) -> None:
    """Enter the working directory, made where it is missing; StartError, OSError.

    Not over links of /proc: they lead to what a descriptor or another process has, which may be a
    directory of the node.
    """
    held = rooted.make(root, directory)
    os.fchdir(held)
    os.close(held)
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise StartError(f"working directory {directory} is not in the container") from error


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


def _enter_groups(spec: LaunchSpec) -> None:
    """Enter the control groups of the container."""
    for path in spec.cgroup_files:
        # Version 1 can move the thread that writes, the only one here, without stopping all
        # processes of the machine, which takes milliseconds a group.
        thread = Path(path).with_name("tasks")
        (thread if thread.exists() else Path(path)).write_text("0")


# Users.


def identity(spec: LaunchSpec, root: int) -> tuple[int, int, list[int], str]:
    """Return user, group, other groups and home, from the container's own files.

    root: descriptor of the directory below which those are. Raises StartError, OSError.
    """
    name, _, group_name = str(spec.user).partition(":")
    row = _row(_rows(root, _USERS), name or "0")
    if row is None and not name.isdecimal() and name:
        raise StartError(f"unable to find user {name}: no matching entries in passwd file")
    user = int(row[2]) if row else int(name or 0)
    group = int(row[3]) if row else 0
    home = row[5] if row and len(row) > 5 and row[5] else "/"
    if group_name:
        found = _row(_rows(root, _GROUPS), group_name)
        if found is None and not group_name.isdecimal():
            raise StartError(
                f"unable to find group {group_name}: no matching entries in group file"
            )
        group = int(found[2]) if found else int(group_name)
    groups = list(spec.groups)
    if row is not None and spec.image_groups:
        members = _rows(root, _GROUPS)
        groups += [int(each[2]) for each in members if row[0] in each[3].split(",")]
    return user, group, sorted({*groups, group}), home


def _rows(root: int, path: str) -> list[list[str]]:
    data = rooted.read(root, path, _ACCOUNTS_BYTES_MAX)
    if data is None:
        return []  # not every image has such a file
    rows = [line.split(":") for line in data.decode("utf-8", "replace").splitlines()]
    return [row for row in rows if len(row) >= 4 and row[2].isdecimal()]


def _row(rows: list[list[str]], name: str) -> list[str] | None:
    return next((row for row in rows if name in (row[0], row[2])), None)


# Files.


def _make_files(spec: LaunchSpec) -> None:
    """Mount the image, with a layer of the container's own, and make it the root."""
    # Before the node's mounts are cut off: what is mounted in these is to be seen by the node.
    both_ways = {
        number: syscalls.copied_tree(each.source)
        for number, each in enumerate(spec.mounts)
        if each.propagation == _BOTH_WAYS and not each.idmap and not each.below
    }
    mount("none", "/", "", MS_REC | syscalls.MS_SLAVE)
    scratch, is_privileged = spec.scratch, spec.is_privileged
    flags = 0 if is_privileged else MS_NODEV
    try:
        merged, *parts = _overlay(spec, flags)
    except OSError:  # no overlay above this file system: the layer is kept in memory
        mount("tmpfs", scratch, "tmpfs", MS_NODEV, "mode=700")
        merged, *parts = _overlay(spec, flags)
    stage, root = Stage(scratch), rooted.open_root(merged)
    mount("proc", stage.empty(), "proc", _KERNEL_FLAGS)
    _move_to_top(stage, root, "proc")
    _make_sys(spec, stage.empty())
    _move_to_top(stage, root, "sys")
    device_files.make(stage.empty(), spec)
    _move_to_top(stage, root, "dev")
    for number, each in enumerate(spec.mounts):
        if number in both_ways:
            _join(root, stage, each, both_ways[number])
            continue
        namespace = spec.user_namespace if each.idmap else -1
        _bind(root, stage, each, namespace, is_privileged=is_privileged)
    if not is_privileged:
        _cover(root, stage)
    os.close(root)
    if spec.read_only_root:
        for part in (merged, *parts):
            mounts.set_flags(part, MS_RDONLY)
    _change_root(merged)


def _move_to_top(stage: Stage, root: int, name: str) -> None:
    """Move a directory of the stage to one at the top of the container; StartError, OSError."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=root)
    target = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    if not stat.S_ISDIR(os.fstat(target).st_mode):
        raise StartError(f"/{name} of the image is not a directory")
    stage.move(stage.empty(), target)
    os.close(target)


def _make_sys(spec: LaunchSpec, directory: str) -> None:
    is_privileged = spec.is_privileged
    is_own = any(kind == syscalls.CLONE_NEWNET for _, kind in spec.namespaces)
    if is_own or user_namespaces.is_restricted():
        # One of its own shows its network; what is mounted in the node's is shown as there.
        mount("sysfs", directory, "sysfs", _KERNEL_FLAGS)
        if is_privileged and os.path.isdir("/sys/fs/cgroup"):
            mount("/sys/fs/cgroup", f"{directory}/fs/cgroup", "", MS_BIND | MS_REC)
    else:
        mount("/sys", directory, "", MS_BIND | (MS_REC if is_privileged else 0))
    if not is_privileged:
        mounts.set_flags(directory, MS_RDONLY | _KERNEL_FLAGS)
        cgroup_view.mount_own(directory, spec.cgroup_view)


def _overlay(spec: LaunchSpec, flags: int) -> list[str]:
    """Mount the layer of a container above its image; StartError, OSError.

    Return where, and the mounts below it of which it consists.
    """
    scratch, lower, first = spec.scratch, spec.root, spec.first_id
    upper, work, merged = (f"{scratch}/{name}" for name in ("upper", "work", "merged"))
    for each in (upper, work, merged):
        os.makedirs(each, exist_ok=True)
    os.chmod(upper, 0o755)
    if spec.hidden is not None:  # the machine's files stay their owners'
        _fill_host_layer(upper, spec.hidden, spec)
    elif first:
        os.chown(upper, first, first)
        lower = f"{scratch}/lower"
        os.makedirs(lower, exist_ok=True)
        held = user_namespaces.idmapped(spec.root, spec.user_namespace, is_recursive=False)
        user_namespaces.attach(held, lower)
    if spec.hidden is not None and user_namespaces.is_restricted():
        return composed_layer.compose(upper, work, merged, flags)
    composed_layer.overlay(lower, upper, work, merged, flags)
    return [merged]


def _fill_host_layer(upper: str, hidden: Sequence[str], spec: LaunchSpec) -> None:
    root = rooted.open_root("/")
    user, group, _, home = identity(spec, root)
    os.close(root)
    if spec.user_namespace < 0 and user_namespaces.is_restricted():
        _known_groups(user, group, ())
    first = spec.first_id
    owners = (first, first + user) if first else (user, user)
    host_layer.fill(upper, hidden, home, spec.directory, owners)


def _cover(root: int, stage: Stage) -> None:
    """Hide information about the machine, and make settings of the kernel read-only."""
    null = os.open("/dev/null", os.O_PATH | os.O_CLOEXEC)
    found = os.fstat(null)
    if not stat.S_ISCHR(found.st_mode) or found.st_rdev != _NULL_DEVICE:
        raise StartError("/dev/null of the node is not the null device")
    for path in _MASKED:
        target = _kernel_file(root, path)
        if target is None:
            continue
        if stat.S_ISDIR(os.fstat(target).st_mode):
            mount("tmpfs", rooted.path_of(target), "tmpfs", MS_RDONLY | _KERNEL_FLAGS)
        else:
            mount(rooted.path_of(null), rooted.path_of(target), "", MS_BIND)
        os.close(target)
    for path in _READ_ONLY:
        target = _kernel_file(root, path)
        if target is not None:
            bound = stage.bind(target)
            mounts.set_flags(bound, MS_RDONLY | _KERNEL_FLAGS)
            stage.move(bound, target)
            os.close(target)
    os.close(null)


def _kernel_file(root: int, path: str) -> int | None:
    """Return a descriptor of a path of /proc or /sys; None: this kernel has none. StartError."""
    try:
        held = rooted.find(root, path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if syscalls.file_system(held) not in (syscalls.PROC_MAGIC, syscalls.SYSFS_MAGIC):
        raise StartError(f"{path} cannot be hidden: something else is mounted there")
    return held


def _bind(
    root: int, stage: Stage, spec: MountSpec, user_namespace: int, *, is_privileged: bool
) -> None:
    """Mount a file or directory of the node in the container; StartError, OSError.

    user_namespace: a descriptor of that which its owners are mapped into; -1: they are not.
    """
    path = spec.source
    source = _open(path) if spec.below else os.open(path, os.O_PATH | os.O_CLOEXEC)
    status = os.fstat(source)
    target = rooted.make(root, spec.target, is_file=not stat.S_ISDIR(status.st_mode))
    if not is_privileged:
        _check_target(target, spec.target)
    bound = stage.bind(source, user_namespace)
    os.close(source)
    mount("none", bound, "", MS_REC | _PROPAGATION.get(spec.propagation, MS_PRIVATE))
    if not is_privileged and spec.device != (stat.S_IFMT(status.st_mode), status.st_rdev):
        mounts.set_flags(bound, MS_NODEV, is_recursive=True)
    if spec.read_only:
        more = MS_NOEXEC if spec.no_programs else 0
        mounts.set_flags(bound, MS_RDONLY | more, is_recursive=spec.recursive)
    stage.move(bound, target)
    os.close(target)


def _join(root: int, stage: Stage, spec: MountSpec, copy: int) -> None:
    """Mount a directory with shared propagation; StartError, OSError.

    Only privileged containers may have that.
    """
    is_directory = stat.S_ISDIR(os.fstat(copy).st_mode)
    target = rooted.make(root, spec.target, is_file=not is_directory)
    joined = stage.attach(copy, is_directory=is_directory)
    if not mounts.is_shared(os.path.realpath(joined)):
        text = "is on a mount that is not shared, as mountPropagation: Bidirectional needs it"
        raise StartError(f"{spec.source} {text} (mount --make-rshared)")
    if spec.read_only:
        mounts.set_flags(joined, MS_RDONLY, is_recursive=spec.recursive)
    stage.move(joined, target)
    os.close(target)


def _check_target(target: int, path: str) -> None:
    """Refuse what would hide from the runtime what it covers; StartError."""
    is_kernels = syscalls.file_system(target) == syscalls.PROC_MAGIC
    if is_kernels and str(PurePosixPath(path)) not in _COVERED_PROC:
        raise StartError(f"nothing can be mounted at {path}: it is inside /proc")


def _open(path: str) -> int:
    """Return a descriptor of a path without links, safe against concurrent changes."""
    descriptor = os.open("/", os.O_PATH | os.O_CLOEXEC)
    for part in path.split("/"):
        if not part:
            continue
        try:
            found = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = found
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise StartError(f"subPath: {path} leads over a link")
    return descriptor


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
