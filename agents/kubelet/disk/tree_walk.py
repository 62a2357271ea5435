"""Walks directories that containers write to, while they do.

    for held, name, status in entries_below(top): …      held: descriptor of the directory of `name`

Directories may be nested as deep as a container likes: one descriptor is open at a time, and the
way back up is `..`, which is checked to be the directory that the walk came from.
"""

import errno
import os
import stat
from collections.abc import Iterator
from typing import Final, TypeAlias

Entry: TypeAlias = tuple[int, str, os.stat_result]

_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def entries_below(top: int, *, crosses_mounts: bool = True) -> Iterator[Entry]:
    """Give all that is below a directory, given as descriptor; no link is followed.

    What goes meanwhile is left out. OSError ESTALE: a directory was moved while it was walked.
    crosses_mounts: whether what is mounted below is walked, too.
    """
    descriptor = os.open(".", _FLAGS, dir_fd=top)
    device = os.fstat(descriptor).st_dev
    below: list[str] = []
    way = [(_identity(descriptor), below)]
    """The path from the top: each directory, and its entries that are still to be walked."""
    try:
        yield from _entries(descriptor, below)
        while way:
            if way[-1][1]:
                inner = _enter(descriptor, way[-1][1].pop(), None if crosses_mounts else device)
                if inner < 0:
                    continue
                os.close(descriptor)
                descriptor, below = inner, []
                way.append((_identity(descriptor), below))
                yield from _entries(descriptor, below)
                continue
            way.pop()
            if way:
                outer = os.open("..", _FLAGS, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = outer
                if _identity(descriptor) != way[-1][0]:
                    raise OSError(errno.ESTALE, "a directory was moved while it was walked")
    finally:
        os.close(descriptor)


def _entries(descriptor: int, below: list[str]) -> Iterator[Entry]:
    """Give what is in a directory, and note which of it are directories."""
    with os.scandir(descriptor) as entries:
        for each in entries:
            try:
                status = os.stat(each.name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if stat.S_ISDIR(status.st_mode):
                below.append(each.name)
            yield descriptor, each.name, status


def _enter(held: int, name: str, device: int | None) -> int:
    """Open a directory; -1: it is gone, another file now, or on another device than this."""
    try:
        inner = os.open(name, _FLAGS, dir_fd=held)
    except (FileNotFoundError, NotADirectoryError):
        return -1
    if device is not None and os.fstat(inner).st_dev != device:
        os.close(inner)
        return -1
    return inner


def _identity(held: int) -> tuple[int, int]:
    status = os.fstat(held)
    return status.st_dev, status.st_ino
