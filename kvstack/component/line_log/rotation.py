"""A log file that is rotated when it is full, as etcd does.

    etcd.log ──full──► etcd-2026-01-02T03-04-05.000.log ──► ….log.gz ──old or too many──► deleted

The settings are those of --log-rotation-config-json. A file is full when the next line would make
it larger than maxsize MiB; a line is never split. Rotating is one rename. A thread compresses and
deletes backups, so that no log call waits for it. It touches only files named as above.
"""

import contextlib
import gzip
import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Final

from kvstack.component.line_log.log_rotation import Rotation

_DAY_S: Final = 86_400
_STAMP: Final = r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}"


class RotatedFile:
    """Appends lines to a file and rotates it when it is full; may be used from any thread."""

    def __init__(self, path: Path, rotation: Rotation) -> None:
        """Open the file; OSError if that fails."""
        self._path = path
        self._rotation = rotation
        self._lock = threading.Lock()
        self._descriptor = _open(path, 0o600)
        self._size_bytes = os.fstat(self._descriptor).st_size
        self._cleaning: threading.Thread | None = None
        self._needs_cleaning = False

    def write(self, line: bytes) -> None:
        """Append a line; OSError if that fails."""
        with self._lock:
            if self._size_bytes and self._size_bytes + len(line) > self._rotation.size_max_bytes:
                self._rotate()
            os.write(self._descriptor, line)
            self._size_bytes += len(line)

    def close(self) -> None:
        """Close the file, and wait for the thread that compresses and deletes backups."""
        with self._lock:
            os.close(self._descriptor)
            cleaning = self._cleaning
        if cleaning is not None:
            cleaning.join()

    def _rotate(self) -> None:
        mode = os.fstat(self._descriptor).st_mode & 0o777
        os.rename(self._path, self._backup_path(time.time_ns()))
        fresh = _open(self._path, mode)
        os.close(self._descriptor)
        self._descriptor = fresh
        self._size_bytes = 0
        self._needs_cleaning = True
        if self._cleaning is None:
            self._cleaning = threading.Thread(target=self._clean_all, name="log-rotation")
            self._cleaning.start()

    def _backup_path(self, unix_ns: int) -> Path:
        """Return an unused name: two files may become full within a millisecond."""
        while True:
            seconds, rest_ns = divmod(unix_ns, 1_000_000_000)
            when = (time.localtime if self._rotation.in_local_time else time.gmtime)(seconds)
            stamp = f"{time.strftime('%Y-%m-%dT%H-%M-%S', when)}.{rest_ns // 1_000_000:03d}"
            path = self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}")
            if not path.exists() and not path.with_name(f"{path.name}.gz").exists():
                return path
            unix_ns += 1_000_000

    def _clean_all(self) -> None:
        while True:
            with self._lock:
                if not self._needs_cleaning:
                    self._cleaning = None
                    return
                self._needs_cleaning = False
            # A backup that cannot be deleted or compressed is tried again after the next rotation.
            with contextlib.suppress(OSError):
                self._clean()

    def _clean(self) -> None:
        rotation = self._rotation
        backups = self._backups()
        kept = backups[: rotation.backups_max] if rotation.backups_max else backups
        if rotation.age_max_days:
            oldest_s = time.time_ns() // 10**9 - rotation.age_max_days * _DAY_S
            kept = [each for each in kept if each.stat().st_mtime >= oldest_s]
        for path in backups:
            if path not in kept:
                path.unlink(missing_ok=True)
        if rotation.compress:
            for path in kept:
                if path.suffix != ".gz":
                    _compress(path)

    def _backups(self) -> list[Path]:
        """Return the rotated files, the newest first."""
        stem, suffix = re.escape(self._path.stem), re.escape(self._path.suffix)
        name = re.compile(rf"{stem}-({_STAMP}){suffix}(\.gz)?")
        found = [each for each in self._path.parent.iterdir() if name.fullmatch(each.name)]
        return sorted(found, key=lambda each: each.name.removesuffix(".gz"), reverse=True)


def _open(path: Path, mode: int) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, mode)


def _compress(path: Path) -> None:
    """Replace a file by its gzip, with its times; after an interruption the file is still there."""
    packed = path.with_name(f"{path.name}.gz")
    part = path.with_name(f"{path.name}.gz.part")
    state = path.stat()
    with path.open("rb") as source, gzip.open(part, "wb") as target:
        shutil.copyfileobj(source, target)
    os.chmod(part, state.st_mode & 0o777)
    os.utime(part, ns=(state.st_atime_ns, state.st_mtime_ns))
    os.rename(part, packed)
    path.unlink()
