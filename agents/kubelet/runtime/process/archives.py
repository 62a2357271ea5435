"""Unpacks images: archives of `docker save`, and OCI layouts, as directories or archives.

    unpack(source, target)     target/rootfs and target/config.json, put in place whole

The last layer wins; `.wh.NAME` takes away NAME of the layers below, `.wh..wh..opq` all of its
directory. Devices are left out.
"""

import json
import lzma
import os
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, Final, Protocol

from kvstack.agents.kubelet.runtime.process.shim import rooted

JSON_BYTES_MAX: Final = 4 << 20
"""The maximum size of a manifest, an index or a configuration."""
_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_WRONG: Final = (
    *(KeyError, ValueError, IndexError, TypeError, AttributeError, RecursionError, EOFError),
    *(tarfile.TarError, zlib.error, lzma.LZMAError),
)
"""Exceptions that malformed images lead to."""


class ArchiveError(Exception):
    """A malformed image."""


class _Source(Protocol):
    def open(self, name: str) -> IO[bytes]:
        """Return a member; KeyError: there is none."""
        ...


class _Directory:
    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, name: str) -> IO[bytes]:
        root = rooted.open_root(str(self._path))
        try:
            descriptor = rooted.find(root, name, beneath=True)
        except FileNotFoundError as error:
            raise KeyError(name) from error
        finally:
            os.close(root)
        try:
            return open(rooted.reopen(descriptor, os.O_RDONLY), "rb")
        finally:
            os.close(descriptor)


class _Archive:
    def __init__(self, file: tarfile.TarFile) -> None:
        self._file = file

    def open(self, name: str) -> IO[bytes]:
        found = self._file.extractfile(name)
        if found is None:
            raise KeyError(name)
        return found


def unpack(source: Path, target: Path) -> None:
    """Unpack an image; raises ArchiveError and OSError."""
    waiting = target.with_name(f"{target.name}.new")
    shutil.rmtree(waiting, ignore_errors=True)
    (waiting / "rootfs").mkdir(parents=True)
    try:
        if source.is_dir():
            _unpack(_Directory(source), waiting)
        else:
            with tarfile.open(source) as file:
                _unpack(_Archive(file), waiting)
    except _WRONG as error:
        raise ArchiveError(f"{source} is not an image: {error}") from error
    else:
        waiting.replace(target)
    finally:  # of a half there is nothing left: it would keep a full disk full
        shutil.rmtree(waiting, ignore_errors=True)


def _unpack(source: _Source, target: Path) -> None:
    config_name, layers = _parts(source)
    config = _json(source, config_name).get("config") or {}
    for layer in layers:
        with source.open(layer) as data, tarfile.open(fileobj=data, mode="r:*") as file:
            _apply(file, target / "rootfs")
    (target / "config.json").write_text(json.dumps(config))


def _parts(source: _Source) -> tuple[str, list[str]]:
    """Return the names of the configuration and of the layers, the lowest first."""
    try:
        manifest = _json(source, "manifest.json")[0]
    except KeyError:
        manifest = _json(source, _blob(_json(source, "index.json")["manifests"][0]))
        if "manifests" in manifest:  # of several platforms
            manifest = _json(source, _blob(manifest["manifests"][0]))
        return _blob(manifest["config"]), [_blob(each) for each in manifest["layers"]]
    return manifest["Config"], manifest["Layers"]


def _blob(descriptor: dict[str, Any]) -> str:
    kind, _, digest = descriptor["digest"].partition(":")
    return f"blobs/{kind}/{digest}"


def _json(source: _Source, name: str) -> Any:  # noqa: ANN401
    with source.open(name) as file:
        data = file.read(JSON_BYTES_MAX + 1)
    if len(data) > JSON_BYTES_MAX:
        raise ValueError(f"{name} is larger than {JSON_BYTES_MAX} bytes")
    return json.loads(data)


def _apply(layer: tarfile.TarFile, root: Path) -> None:
    layer.extraction_filter = lambda member, _path: member  # what is unsafe is refused here
    root = root.resolve()
    members = list(layer)
    for path, is_opaque in _whiteouts(members):
        inside = _inside(root, path)
        if is_opaque:
            for each in list(inside.iterdir()) if _is_directory(inside) else ():
                _remove(each)
        else:
            _remove(inside)
    for member in members:
        if PurePosixPath(member.name).name.startswith(_WHITEOUT) or member.isdev():
            continue
        target = _inside(root, member.name)
        source = _inside(root, member.linkname) if member.islnk() else None
        if target not in (root, source) and not (member.isdir() and _is_directory(target)):
            _remove(target)
        if source is None:
            layer.extract(member, root, numeric_owner=True)
        elif source != target:
            _link(source, target)


def _link(source: Path, target: Path) -> None:
    """Give a file another name; ValueError: it is missing.

    Not by `extract`, which sets a mode by the new name: of what a link leads to, if it is one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except FileNotFoundError as error:
        raise ValueError(
            f"{target.name} is a hard link to {source.name}, which is missing"
        ) from error


def _inside(root: Path, name: str) -> Path:
    """Return a path under a root; ValueError: links on the way lead out of it."""
    path = root / name
    if path != root and not path.parent.resolve().is_relative_to(root):
        raise ValueError(f"{name} leads out of the image")
    return path


def _whiteouts(members: list[tarfile.TarInfo]) -> Iterator[tuple[str, bool]]:
    """Give what a layer takes away: a path, and whether it is all that is in it."""
    for member in members:
        path = PurePosixPath(member.name)
        if ".." in path.parts or path.is_absolute():
            raise ValueError(f"{member.name} leads out of the image")
        if path.name == _OPAQUE:
            yield str(path.parent), True
        elif path.name.startswith(_WHITEOUT):
            yield str(path.with_name(path.name.removeprefix(_WHITEOUT))), False


def _is_directory(path: Path) -> bool:
    """Whether a path is a directory and not a link, which may lead out of the image."""
    return path.is_dir() and not path.is_symlink()


def _remove(path: Path) -> None:
    if _is_directory(path):
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
