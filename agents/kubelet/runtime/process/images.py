"""Images of this node: directories, and the node's own files if allowed.

    DIR/<name, / as %2F>/rootfs/        the files
    DIR/<name, / as %2F>/config.json    Entrypoint, Cmd, Env, WorkingDir

    DIR/<name, / as %2F>.tar            what `docker save` writes, or an OCI layout in an archive
    DIR/<name, / as %2F>/index.json     an OCI layout; both are unpacked into DIR/.unpacked, once

Nothing is pulled. The pseudo image `host:latest` is the node's file system; what containers write
stays theirs.
"""

import contextlib
import json
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from kvstack.agents.kubelet.runtime.process.archives import ArchiveError, unpack
from kvstack.agents.kubelet.runtime.process.layer_sizes import size_of
from kvstack.agents.kubelet.runtime.runtime import ImageMissingError, StartError

HOST_IMAGE: Final = "host:latest"
_MACHINE: Final = Path("/")


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image that can be run."""

    name: str
    id: str
    root: Path
    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: str = ""
    user: str = ""
    stop_signal: str = "SIGTERM"
    size_bytes: int = 0

    @property
    def is_machine(self) -> bool:
        """Whether it is the node's own files."""
        return self.root == _MACHINE


class Images:
    """The images of a directory."""

    def __init__(self, directory: Path, *, has_host: bool) -> None:
        """has_host: whether the node's own files may be an image."""
        self.directory: Final = directory
        self.has_host: Final = has_host
        self._lock = threading.Lock()

    def find(self, name: str) -> StoredImage:
        """Return an image; ImageMissingError, StartError. It may take a while, in any thread."""
        full = _full(name)
        if full == HOST_IMAGE and self.has_host:
            return StoredImage(full, f"{HOST_IMAGE}@node", _MACHINE, command=("sh",))
        found = self._unpacked(full, self.directory / quote(full, safe=":@.-_"))
        if not (found / "rootfs").is_dir():
            raise ImageMissingError(
                f'image "{full}" is not in this node\'s image store ({self.directory}); '
                "this runtime does not pull"
            )
        return _image(full, found)

    def all(self) -> list[StoredImage]:
        """Return the usable images; errors of others are reported when a container needs them."""
        names = {HOST_IMAGE} if self.has_host else set()
        if self.directory.is_dir():
            for place in self.directory.iterdir():
                if not place.name.startswith("."):
                    names.add(unquote(place.name.removesuffix(".tar")))
        found = []
        for name in sorted(names):
            with contextlib.suppress(ImageMissingError, StartError):
                found.append(self.find(name))
        return found

    def _unpacked(self, name: str, directory: Path) -> Path:
        """Return where an image's files are; an archive or a layout is unpacked first."""
        archive = directory.with_name(f"{directory.name}.tar")
        if archive.is_file():
            source = archive
        elif (directory / "index.json").is_file():
            source = directory
        else:
            return directory
        made_ns = source.stat().st_mtime_ns
        target = self.directory / ".unpacked" / f"{directory.name}.{made_ns}"
        with self._lock:
            if not target.is_dir():
                try:
                    # Images may have setuid programs of root: other users have no access.
                    target.parent.mkdir(mode=0o700, exist_ok=True)
                    target.parent.chmod(0o700)
                    unpack(source, target)
                except (ArchiveError, OSError) as error:
                    raise StartError(
                        "ImageInspectError", f'image "{name}" cannot be used: {error}'
                    ) from error
        return target


def is_host(name: str) -> bool:
    """Whether this is a name of the node's own files."""
    return _full(name) == HOST_IMAGE


def _full(name: str) -> str:
    return name if ":" in name.rpartition("/")[2] or "@" in name else f"{name}:latest"


def _image(name: str, directory: Path) -> StoredImage:
    file = directory / "config.json"
    try:
        config = json.loads(file.read_text()) if file.exists() else {}
    except (OSError, ValueError) as error:
        raise StartError("ImageInspectError", f'image "{name}" cannot be used: {error}') from error
    pairs = (each.partition("=") for each in config.get("Env") or ())
    return StoredImage(
        name,
        f"{name}@node",
        directory / "rootfs",
        tuple(config.get("Entrypoint") or ()),
        tuple(config.get("Cmd") or ()),
        {key: value for key, _, value in pairs},
        config.get("WorkingDir") or "",
        config.get("User") or "",
        _signal_name(config.get("StopSignal") or ""),
        _size(directory),
    )


def _signal_name(text: str) -> str:
    """Return the name of a signal that an image names with or without SIG, or by its number."""
    if text.isdecimal():
        return signal.Signals(int(text)).name
    return text if not text or text.startswith("SIG") else f"SIG{text}"


def _size(directory: Path) -> int:
    """Return what an image takes; it is counted once."""
    file = directory / ".size"
    if file.exists():
        return int(file.read_text())
    found = size_of(directory / "rootfs").bytes
    file.write_text(str(found))
    return found
