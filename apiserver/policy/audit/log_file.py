"""A rotated log file: audit.log → audit-2026-11-22T10-00-00.000.log.

Rotated files are optionally compressed, and removed when there are too many of them or they are too
old. Lines are written at once, unbuffered.
"""

import contextlib
import gzip
import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Thread
from typing import BinaryIO, Final, NamedTuple

MEGABYTE: Final = 1024 * 1024
_TIME: Final = "%Y-%m-%dT%H-%M-%S"
_MODE: Final = 0o600


class Rotation(NamedTuple):
    """When files are rotated and removed; 0: never."""

    megabytes: int = 100
    backups: int = 100
    days: int = 366
    compresses: bool = False


class LogFile:
    """The file."""

    def __init__(self, path: Path, rotation: Rotation, unix_ms: Callable[[], int]) -> None:
        """Open a file for appending, creating it with its directories; raises OSError."""
        self._path: Final = path
        self._rotation: Final = rotation
        self._unix_ms: Final = unix_ms
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = self._open()
        self._size = path.stat().st_size
        self._tidying: Thread | None = None

    def write(self, data: bytes) -> None:
        """Append lines; raises OSError."""
        limit = self._rotation.megabytes * MEGABYTE
        if limit and self._size and self._size + len(data) > limit:
            self._put_aside()
        self._file.write(data)
        self._size += len(data)

    def close(self) -> None:
        """Close the file."""
        if self._tidying is not None:
            self._tidying.join()
        self._file.close()

    def _open(self) -> BinaryIO:
        return os.fdopen(
            os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, _MODE), "ab", buffering=0
        )

    def _put_aside(self) -> None:
        self._file.close()
        milliseconds = self._unix_ms()
        moment = datetime.fromtimestamp(milliseconds // 1000, UTC)
        path = self._path
        stamp = f"{moment:{_TIME}}.{milliseconds % 1000:03}"
        path.rename(path.with_name(f"{path.stem}-{stamp}{path.suffix}"))
        self._file = self._open()
        self._size = 0
        if self._tidying is not None:
            self._tidying.join()
        self._tidying = Thread(target=self._tidy, args=(moment,), name="audit log", daemon=True)
        self._tidying.start()

    def _tidy(self, now: datetime) -> None:
        """Compress and remove rotated files; failures are retried the next time."""
        rotated: list[tuple[datetime, Path]] = []
        for each in self._path.parent.iterdir():
            moment = self._moment_of(each)
            if moment is not None:
                rotated.append((moment, each))
        rotated.sort(reverse=True)
        rotation = self._rotation
        for position, (moment, each) in enumerate(rotated):
            is_surplus = rotation.backups and position >= rotation.backups
            is_old = rotation.days and moment < now - timedelta(days=rotation.days)
            with contextlib.suppress(OSError):
                if is_surplus or is_old:
                    each.unlink()
                elif rotation.compresses and each.suffix != ".gz":
                    _compress(each)

    def _moment_of(self, path: Path) -> datetime | None:
        name = path.name.removesuffix(".gz")
        start, end = f"{self._path.stem}-", self._path.suffix
        if not (name.startswith(start) and name.endswith(end)):
            return None
        text = name[len(start) : len(name) - len(end)]
        try:
            return datetime.strptime(text, f"{_TIME}.%f").replace(tzinfo=UTC)
        except ValueError:
            return None


def _compress(path: Path) -> None:
    with path.open("rb") as plain, gzip.open(f"{path}.gz", "wb") as packed:
        shutil.copyfileobj(plain, packed)
    path.unlink()
