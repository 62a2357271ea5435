"""Device files of a container's own, for volumes that are block devices.

    mounts = mounts_of(directory, config)     what the container mounts; devices of plugins as well
    make(directory, config)                   the files, once the directory is made; OSError

The machine's own file of a device belongs to the machine's root. The container's own file
belongs to the container's user, also in a user namespace, and only that user has access.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.runtime import ContainerConfig, DeviceFile, Mount

_FOLDER: Final = "devices"
_MODE: Final = 0o660


def mounts_of(directory: Path, config: ContainerConfig) -> list[Mount]:
    """Return the mounts of a container's devices; directory: of the container."""
    own = {device.target: str(path) for path, device in _own(directory, config)}
    return [
        Mount(
            own.get(each.target, each.source),
            each.target,
            "w" not in each.access,
            is_host_path=each.target not in own,
        )
        for each in config.devices.files
    ]


def make(directory: Path, config: ContainerConfig) -> None:
    """Make the files of the container's own; OSError."""
    for path, device in _own(directory, config):
        found = os.stat(device.source)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        os.mknod(path, stat.S_IFMT(found.st_mode), found.st_rdev)
        os.chown(path, config.security.user or 0, config.security.group or 0)
        path.chmod(_MODE)


def _own(directory: Path, config: ContainerConfig) -> Iterator[tuple[Path, DeviceFile]]:
    """Give the files that are made; none where devices cannot be opened at all (`nodev`)."""
    existing = next(each for each in (directory, *directory.parents) if each.is_dir())
    if os.statvfs(existing).f_flag & os.ST_NODEV:
        return
    for number, device in enumerate(config.devices.files):
        if device.is_volume:
            yield directory / _FOLDER / str(number), device
