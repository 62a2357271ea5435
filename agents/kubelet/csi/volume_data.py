"""Directories and records of CSI volumes on the node's disk.

    ROOT/plugins/kubernetes.io/csi/<driver>/<sha256 of the handle>/{globalmount, vol_data.json}
    ROOT/pods/<uid>/volumes/kubernetes.io~csi/<volume>/{mount, vol_data.json}

and of block devices

    ROOT/plugins/kubernetes.io/csi/volumeDevices/staging/<volume>
    ROOT/plugins/kubernetes.io/csi/volumeDevices/publish/<volume>/<uid>
    ROOT/plugins/kubernetes.io/csi/volumeDevices/<volume>/data/vol_data.json
    ROOT/pods/<uid>/volumeDevices/kubernetes.io~csi/<volume>    a link to what is published

These are a kubelet's own paths and files, so that another kubelet can take over the directory. A
file is written before its driver is asked, and goes after the driver has undone it. Nothing of a
volume is ever removed here but empty directories: a driver that is late cannot lose data by it.
"""

import errno
import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from kvstack.agents.kubelet.csi.volume import PERSISTENT, Volume, checked_driver_name
from kvstack.agents.kubelet.disk.mount_table import points_below
from kvstack.agents.kubelet.disk.removal import remove_tree
from kvstack.apimachinery.objects.core.attachments import attachment_name

DATA_FILE: Final = "vol_data.json"
PLUGIN: Final = "kubernetes.io~csi"
_MODE: Final = 0o750
_BYTES_MAX: Final = 64 << 10
_KEYS: Final = ("driverName", "volumeHandle")


@dataclass(frozen=True, slots=True)
class Published:
    """A volume that a pod has, or may have."""

    uid: str
    volume: str
    """Its name: of the PersistentVolume, or of the pod's volume if it is inline."""
    driver: str
    handle: str
    lifecycle: str = PERSISTENT
    is_block: bool = False


@dataclass(frozen=True, slots=True)
class Staged:
    """A volume that is ready on the node, or may be."""

    driver: str
    handle: str
    device: str = ""
    """The name of a volume that is a block device; empty: it is none."""


class VolumePaths:
    """The paths of one node; what writes and removes waits for the disk."""

    def __init__(self, root: Path, node: str) -> None:
        """root: of the node, which is named."""
        self._pods = root / "pods"
        self._plugins = root / "plugins" / "kubernetes.io" / "csi"
        self._devices = self._plugins / "volumeDevices"
        self._node = node

    def staging(self, volume: Staged) -> Path:
        """Return where a volume is staged."""
        if volume.device:
            return self._devices / "staging" / volume.device
        digest = hashlib.sha256(volume.handle.encode()).hexdigest()
        return self._plugins / volume.driver / digest / "globalmount"

    def target(self, volume: Published) -> Path:
        """Return where a volume is published."""
        if volume.is_block:
            return self._devices / "publish" / volume.volume / volume.uid
        return self._of_pod(volume.uid, "volumes") / volume.volume / "mount"

    def link(self, volume: Published) -> Path:
        """Return the link to a block device in the directory of its pod."""
        return self._of_pod(volume.uid, "volumeDevices") / volume.volume

    def _of_pod(self, uid: str, folder: str) -> Path:
        return self._pods / uid / folder / PLUGIN

    def _data_of_device(self, name: str) -> Path:
        return self._devices / name / "data" / DATA_FILE

    # What is written before a driver is asked.

    def note_staged(self, volume: Staged) -> None:
        """Make the path for staging a volume, and note that it may be staged; OSError."""
        path = self.staging(volume)
        path.mkdir(mode=_MODE, parents=True, exist_ok=True)
        data = {"volumeHandle": volume.handle, "driverName": volume.driver}
        if volume.device:
            self._note_device(volume)
        else:
            _write(path.parent / DATA_FILE, data)

    def note_published(self, volume: Published) -> None:
        """Note that a pod may have a volume; OSError."""
        target = self.target(volume)
        target.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
        if volume.is_block:
            self._note_device(Staged(volume.driver, volume.handle, volume.volume))
            link = self.link(volume)
            link.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(target)
            return
        data = self._all_of(volume.volume, volume.driver, volume.handle)
        _write(target.parent / DATA_FILE, {**data, "volumeLifecycleMode": volume.lifecycle})

    def _note_device(self, volume: Staged) -> None:
        path = self._data_of_device(volume.device)
        path.parent.mkdir(mode=_MODE, parents=True, exist_ok=True)
        _write(path, self._all_of(volume.device, volume.driver, volume.handle))

    def _all_of(self, name: str, driver: str, handle: str) -> dict[str, str]:
        return {
            "specVolID": name,
            "volumeHandle": handle,
            "driverName": driver,
            "nodeName": self._node,
            "attachmentID": attachment_name(driver, handle, self._node),
        }

    # What goes after a driver has undone it.

    def forget_staged(self, volume: Staged) -> None:
        """Remove what is left of a staged volume; OSError: it is still mounted, or not empty."""
        path = self.staging(volume)
        if not volume.device:
            _remove(path)
            (path.parent / DATA_FILE).unlink(missing_ok=True)
            _remove(path.parent)
            return
        _check_unmounted(path)
        remove_tree(path)  # drivers keep files of their own there; a device is not a file system
        _remove_if_empty(self._devices / "publish" / volume.device)
        data = self._data_of_device(volume.device)
        data.unlink(missing_ok=True)
        _remove_if_empty(data.parent)
        _remove_if_empty(data.parent.parent)

    def forget_published(self, volume: Published) -> None:
        """Remove what is left of a published volume; OSError: it is still mounted, or not empty."""
        target = self.target(volume)
        if not volume.is_block:
            _remove(target)
            (target.parent / DATA_FILE).unlink(missing_ok=True)
            _remove(target.parent)
            _remove_if_empty(target.parent.parent)
            return
        _check_unmounted(target)
        if target.is_dir() and not target.is_symlink():
            _remove(target)
        else:
            target.unlink(missing_ok=True)  # the driver should have done so
        self.link(volume).unlink(missing_ok=True)
        _remove_if_empty(self.link(volume).parent)

    # What an earlier kubelet left.

    def all_published(self, problems: list[str]) -> Iterator[Published]:
        """Yield the volumes that pods may have; problems: gets unreadable files."""
        for path in self._pods.glob(f"*/volumes/{PLUGIN}/*/{DATA_FILE}"):
            if data := _read(path, problems):
                mode = data.get("volumeLifecycleMode", PERSISTENT)
                uid, name = path.parents[3].name, path.parent.name
                yield Published(uid, name, data["driverName"], data["volumeHandle"], mode)
        for link in self._pods.glob(f"*/volumeDevices/{PLUGIN}/*"):
            if data := _read(self._data_of_device(link.name), problems):
                uid, driver = link.parents[2].name, data["driverName"]
                yield Published(uid, link.name, driver, data["volumeHandle"], is_block=True)

    def all_staged(self, problems: list[str]) -> Iterator[Staged]:
        """Yield the volumes that may be staged; problems: gets unreadable files."""
        for path in self._plugins.glob(f"*/*/{DATA_FILE}"):
            if data := _read(path, problems):
                volume = Staged(data["driverName"], data["volumeHandle"])
                if self.staging(volume).parent == path.parent:
                    yield volume
                else:
                    problems.append(f"{path}: its directory is not that of the volume it names")
        for path in self._devices.glob(f"*/data/{DATA_FILE}"):
            if data := _read(path, problems):
                yield Staged(data["driverName"], data["volumeHandle"], path.parents[1].name)


def published_of(uid: str, volume: Volume) -> Published:
    """Return what the disk knows of a volume of a pod."""
    return Published(
        uid, volume.name, volume.driver, volume.handle, volume.lifecycle, volume.is_block
    )


def staged_of(volume: Published) -> Staged:
    """Return what is staged for a volume of a pod."""
    return Staged(volume.driver, volume.handle, volume.volume if volume.is_block else "")


def _check_unmounted(path: Path) -> None:
    if points_below(path):
        raise OSError(errno.EBUSY, "it is still mounted", str(path))


def _remove(path: Path) -> None:
    """Remove an empty directory, if it is there; OSError."""
    with suppress(FileNotFoundError):
        path.rmdir()


def _remove_if_empty(path: Path) -> None:
    """Remove a directory, if it is there and has no other volume in it; OSError."""
    try:
        _remove(path)
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise


def _write(path: Path, data: dict[str, str]) -> None:
    fresh = path.with_name(f"{path.name}.new")
    with open(fresh, "wb", opener=_private) as file:
        file.write(orjson.dumps(data))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_TRUNC | os.O_CLOEXEC, 0o600)


def _read(path: Path, problems: list[str]) -> dict[str, str]:
    """Return the contents of a file about a volume; empty: unreadable, and added to problems."""
    try:
        with path.open("rb") as file:
            data = orjson.loads(file.read(_BYTES_MAX))
        return _checked(data)
    except (OSError, ValueError) as error:
        problems.append(f"{path}: {error}")
        return {}


def _checked(data: object) -> dict[str, str]:
    """Return what a file says; ValueError: it names no volume."""
    if not isinstance(data, dict) or not all(isinstance(data.get(each), str) for each in _KEYS):
        raise ValueError("it has no driverName and volumeHandle")
    checked_driver_name(data["driverName"])
    return data
