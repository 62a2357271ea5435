"""Removes directories that containers have written to.

    remove_tree(Path("/…/volumes/kubernetes.io~empty-dir/data"))

Directories may be nested as deep as a container likes: those below are moved up to the top before
they are emptied, so that neither recursion nor open descriptors grow with the depth. No link is
followed, and no path of more than one name is opened below the top.
"""

import itertools
import os
import secrets
from pathlib import Path
from typing import Final

_BATCH: Final = 1000
_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(directory: Path) -> None:
    """Remove a directory and all that is below it, if it is there; OSError.

    A file or a link in its place is removed alone.
    """
    try:
        top = os.open(directory, _FLAGS)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        directory.unlink()
        return
    try:
        _empty(top)
    finally:
        os.close(top)
    os.rmdir(directory)


def _empty(top: int) -> None:
    token = secrets.token_hex(4)
    numbers = itertools.count()
    while names := _remove_files(top):
        for name in names:
            descriptor = os.open(name, _FLAGS, dir_fd=top)
            try:
                while below := _remove_files(descriptor):
                    for each in below:
                        new = f".{token}-{next(numbers)}"
                        os.rename(each, new, src_dir_fd=descriptor, dst_dir_fd=top)
            finally:
                os.close(descriptor)
            os.rmdir(name, dir_fd=top)


def _remove_files(descriptor: int) -> list[str]:
    """Remove files until there are directories, or nothing; return some of the directories."""
    while batch := _entries(descriptor):
        directories = []
        for name, is_directory in batch:
            if is_directory:
                directories.append(name)
            else:
                os.unlink(name, dir_fd=descriptor)
        if directories:
            return directories
    return []


def _entries(held: int) -> list[tuple[str, bool]]:
    """Return some names with whether each is a directory."""
    with os.scandir(held) as entries:
        batch = itertools.islice(entries, _BATCH)
        return [(each.name, each.is_dir(follow_symlinks=False)) for each in batch]
