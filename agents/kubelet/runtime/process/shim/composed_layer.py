"""The layer of a container above the files of its image, or above those of the machine.

    overlay("/images/web", upper, work, merged, flags)
    compose(upper, work, merged, flags)      the lowest is /, in a user namespace; its mounts

Who is not root of the machine may make no overlay above a directory below which it has mounted
something: what is covered there would come to light. So / is put together from its parts: those
without mounts are overlays, of all others the entries are looked at in turn. Proc, sys and dev are
left empty, and so is what cannot be read.
"""

import contextlib
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.shim import host_layer, mounts, user_namespaces
from kvstack.agents.kubelet.runtime.process.shim.syscalls import (
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_RDONLY,
    mount,
)

_OWN: Final = frozenset(("/proc", "/sys", "/dev"))
_FILES_MAX: Final = 200
"""Files beside mounts that are shown, each by a mount; the rest is left out."""


def overlay(lower: str, upper: str, work: str, merged: str, flags: int) -> None:
    """Mount a layer above a directory; OSError."""
    paths = {"lowerdir": lower, "upperdir": upper, "workdir": work}
    options = ",".join(f"{name}={_escaped(path)}" for name, path in paths.items())
    more = ",userxattr" if user_namespaces.is_restricted() else ""
    mount("overlay", merged, "overlay", flags, f"{options}{more}")


def _escaped(path: str) -> str:
    """Return a path as options of an overlay take it: names of images have colons."""
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def compose(upper: str, work: str, merged: str, flags: int) -> list[str]:
    """Show the machine's files with a layer above them; return the mounts that do; OSError.

    upper: as `host_layer` fills it.
    """
    points = mounts.mount_points()
    mount(merged, merged, "", MS_BIND)
    composition = _Composition(upper, work, merged, flags, points)
    composition.show("")
    return [merged, *composition.made]


class _Composition:
    """One container's view of the machine."""

    def __init__(
        self, upper: str, work: str, merged: str, flags: int, points: Collection[str]
    ) -> None:
        self._upper = upper
        self._work = work
        self._merged = merged
        self._flags = flags
        self._points = points
        self._files = 0
        self.made: Final[list[str]] = []

    def show(self, path: str) -> None:
        """Show a directory of the machine, with what is mounted below it; path: / is empty."""
        target = self._merged + path
        if path:
            os.makedirs(target, exist_ok=True)
        if path in _OWN:
            return
        if self._is_opaque(path):
            mount(self._upper + path, target, "", MS_BIND)
            self.made.append(target)
        elif not any(each.startswith(f"{path}/") for each in self._points if each != "/"):
            self._overlay(path, target)
        else:
            with contextlib.suppress(PermissionError):  # not readable: shown as empty
                os.chmod(target, stat.S_IMODE(os.stat(path or "/").st_mode))
                for entry in sorted(os.listdir(path or "/")):
                    self._entry(f"{path}/{entry}")

    def _overlay(self, path: str, target: str) -> None:
        work = f"{self._work}/{len(self.made)}"
        os.makedirs(work)
        upper = self._upper + path
        if not os.path.isdir(upper):
            os.makedirs(upper)
            with contextlib.suppress(PermissionError):
                os.chmod(upper, stat.S_IMODE(os.stat(path).st_mode))
        overlay(path, upper, work, target, self._flags)
        self.made.append(target)

    def _entry(self, path: str) -> None:
        """Show what is beside mounts."""
        try:
            status = os.lstat(path)
        except OSError:
            return  # it went meanwhile, or cannot be reached
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(path), self._merged + path)
        elif stat.S_ISDIR(status.st_mode):
            self.show(path)
        elif stat.S_ISREG(status.st_mode) and self._files < _FILES_MAX:
            self._files += 1
            target = self._merged + path
            Path(target).touch()
            if not os.path.lexists(self._upper + path):  # it is not hidden
                mount(path, target, "", MS_BIND)
                mounts.set_flags(target, MS_RDONLY | MS_NOSUID | MS_NODEV)

    def _is_opaque(self, path: str) -> bool:
        if not path or not os.path.isdir(self._upper + path):
            return False
        try:
            return os.getxattr(self._upper + path, host_layer.opaque()) == b"y"
        except OSError:
            return False
