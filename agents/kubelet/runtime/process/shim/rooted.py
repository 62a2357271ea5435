"""Paths below a directory that others may change meanwhile: of a container, or of a volume.

    root = open_root("/run/merged")
    descriptor = find(root, "/etc/passwd")            what is there, as O_PATH
    descriptor = make(root, "/a/b", is_file=True)     the same, made where it is missing
    data = read(root, "/etc/passwd", bytes_max)       of a regular file

A symbolic link is followed within the root: "/x" is ROOT/x, and ".." of the root is the root. With
`beneath` a link or ".." that leads out of the root is an error (EXDEV) instead. Links that the
kernel makes up (/proc/PID/root, …/cwd, …/fd/N) are refused with ELOOP: they lead anywhere.

A path is followed by openat2. Where the kernel has none, and to make what is missing, one component
after another is opened below the descriptor of the one before, without following links, so that
nothing that is renamed or replaced meanwhile leads out.
"""

import errno
import os
import stat
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import syscalls

_LINKS_MAX: Final = 40
"""The kernel's limit."""
_PROC_ROOT_INODE: Final = 1
_NO_OPENAT2: Final = (errno.ENOSYS, errno.EPERM, errno.EAGAIN)
"""No such call; a filter of system calls; something was renamed meanwhile."""
_PATH: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_root(path: str) -> int:
    """Return the descriptor of a directory; OSError."""
    return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)


def find(root: int, path: str, *, beneath: bool = False) -> int:
    """Return the O_PATH descriptor of what is at a path below a root; OSError."""
    scope = syscalls.RESOLVE_BENEATH if beneath else syscalls.RESOLVE_IN_ROOT
    try:
        return syscalls.open_at(
            root, path.lstrip("/") or ".", os.O_PATH, scope | syscalls.RESOLVE_NO_MAGICLINKS
        )
    except OSError as error:
        if error.errno not in _NO_OPENAT2:
            raise
    return walk(root, path, beneath=beneath)


def make(
    root: int, path: str, *, is_file: bool = False, mode: int = 0o755, beneath: bool = False
) -> int:
    """Return what is at a path below a root as `find` does, made where it is missing; OSError.

    is_file: whether its last component is made as an empty file; mode: of directories.
    """
    try:
        return find(root, path, beneath=beneath)
    except FileNotFoundError:
        return walk(root, path, beneath=beneath, is_made=True, is_file=is_file, mode=mode)


def read(root: int, path: str, bytes_max: int) -> bytes | None:
    """Return what is in a regular file below a root; None: there is none. OSError: it is larger."""
    try:
        held = find(root, path)
    except OSError:
        return None
    try:
        return read_held(held, path, bytes_max)
    finally:
        os.close(held)


def read_held(held: int, path: str, bytes_max: int) -> bytes | None:
    """Return what is in a file of which this is an O_PATH descriptor; None: it is not regular."""
    if not stat.S_ISREG(os.fstat(held).st_mode):
        return None  # to open a pipe or a device has effects, or does not end
    with open(reopen(held, os.O_RDONLY), "rb") as file:
        data = file.read(bytes_max + 1)
    if len(data) > bytes_max:
        raise OSError(errno.EFBIG, f"{path} is larger than {bytes_max} bytes")
    return data


def reopen(held: int, flags: int) -> int:
    """Open the file of an O_PATH descriptor; OSError."""
    return os.open(path_of(held), flags | os.O_CLOEXEC)


def path_of(held: int) -> str:
    """Return a path that leads to what a descriptor of this process stands for."""
    return f"/proc/self/fd/{held}"


def walk(
    root: int,
    path: str,
    *,
    beneath: bool = False,
    is_made: bool = False,
    is_file: bool = False,
    mode: int = 0o755,
) -> int:
    """Emulate `find` and `make` without openat2."""
    waiting = path.split("/")
    above = [os.dup(root)]  # the directories that lead here, the root first
    links = 0
    try:
        while waiting:
            part = waiting.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                _go_up(above, path, beneath=beneath)
                continue
            found = _open(above[-1], part, is_made, is_file and not any(waiting), mode)
            if not stat.S_ISLNK(os.fstat(found).st_mode):
                above.append(found)
                continue
            aim = _aim(found, above[-1], path)
            links += 1
            if links > _LINKS_MAX:
                raise OSError(errno.ELOOP, f"{path}: more than {_LINKS_MAX} links")
            if aim.startswith("/"):
                if beneath:
                    raise OSError(errno.EXDEV, f"{path} leads out")
                _close_all(above, 1)
            waiting = aim.split("/") + waiting
        return above.pop()
    finally:
        _close_all(above, 0)


def _go_up(above: list[int], path: str, *, beneath: bool) -> None:
    if len(above) > 1:
        os.close(above.pop())
    elif beneath:
        raise OSError(errno.EXDEV, f"{path} leads out")


def _close_all(above: list[int], kept: int) -> None:
    while len(above) > kept:
        os.close(above.pop())


def _open(directory: int, name: str, is_made: bool, is_file: bool, mode: int) -> int:  # noqa: FBT001
    try:
        return os.open(name, _PATH, dir_fd=directory)
    except FileNotFoundError:
        if not is_made:
            raise
    try:
        if is_file:
            flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o644, dir_fd=directory))
        else:
            os.mkdir(name, mode, dir_fd=directory)
    except FileExistsError:
        return os.open(name, _PATH, dir_fd=directory)  # created by another process
    made = os.open(name, _PATH, dir_fd=directory)
    found = os.fstat(made)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
        os.chmod(path_of(made), mode)  # whatever the umask
    return made


def _aim(link: int, directory: int, path: str) -> str:
    """Return what a link has in it, and close it; OSError: the kernel makes it up."""
    try:
        if (
            syscalls.file_system(link) == syscalls.PROC_MAGIC
            and os.fstat(directory).st_ino != _PROC_ROOT_INODE
        ):
            raise OSError(errno.ELOOP, f"{path} leads over a link that the kernel makes up")
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)
