"""Whether the disk of a member has the space that its log and its database keep back.

    the log        its next segment is preallocated                        (Wal.make_room)
    the database   64 MiB beyond the pages in use are reserved             (LmdbBackend.make_room)
    both           FREE_BYTES_MIN are free for small files; FREE_BYTES_AGAIN end a shortage

With that, nothing that was acknowledged needs space that may be missing. The caller decides what
follows from a shortage; `kvstore.node.maintenance.disk_alarm` does for a member.

One byte in <member>/disk-alarm says whether this member has raised its NOSPACE alarm because of the
disk. It has to survive a restart: the alarm itself does not record its reason. The file is made
while there is space, and is written in place.
"""

import os
from pathlib import Path
from typing import Final

from kvstack.component.logger import Logger
from kvstore.storage.lmdb.backend import LmdbBackend
from kvstore.storage.lmdb.files import free_bytes
from kvstore.storage.wal.wal import Wal

FREE_BYTES_MIN: Final = 4 << 20
FREE_BYTES_AGAIN: Final = 16 << 20
MARK_NAME: Final = "disk-alarm"
_NO, _YES = b"0", b"1"


class DiskRoom:
    """`node.ports.DiskRoom` for a data directory."""

    def __init__(self, member_dir: Path, wal: Wal, backend: LmdbBackend, logger: Logger) -> None:
        """Start to keep space back."""
        self._directory = member_dir
        self._wal = wal
        self._backend = backend
        self._logger = logger
        self._mark = member_dir / MARK_NAME
        self._has_raised = self._read_mark()
        self.shortage = ""
        backend.keep_ahead()
        self.check()

    @property
    def is_short(self) -> bool:
        """Whether there was too little space at the last check, or log or database got none since.

        Otherwise a fast client could use up the reserved space before the next check.
        """
        has_room = self._backend.has_room and self._wal.preallocation_error is None
        return bool(self.shortage) or not has_room

    @property
    def log_bytes(self) -> int:
        """By how much the log may grow within the space that is reserved for it."""
        return self._wal.room_bytes

    @property
    def rows_bytes(self) -> int:
        """By how much the rows may grow within reserved space, as of the database's last commit."""
        return self._backend.room_bytes()

    @property
    def has_raised(self) -> bool:
        """Whether this member's NOSPACE alarm was raised because of the disk."""
        return self._has_raised

    def note_raised(self, has_raised: bool) -> None:  # noqa: FBT001 - a setter
        """Set has_raised, durably if the disk takes it."""
        if has_raised == self._has_raised:
            return
        self._has_raised = has_raised
        try:
            self._write_mark(_YES if has_raised else _NO)
        except OSError as error:
            self._logger.warning("cannot write", path=str(self._mark), error=str(error))

    def check(self) -> bool:
        """Try to reserve the missing space again; return is_short."""
        missing = (self._backend.make_room(), self._wal.make_room(), self._free_shortage())
        self.shortage = "; ".join(text for text in missing if text)
        self._wal.keeps_next = self.is_short
        return self.is_short

    def _free_shortage(self) -> str:
        needed_bytes = FREE_BYTES_AGAIN if self.shortage else FREE_BYTES_MIN
        has_bytes = free_bytes(self._directory)
        if has_bytes >= needed_bytes:
            return ""
        return f"{self._directory} has {has_bytes} bytes free, {needed_bytes} are needed"

    def _read_mark(self) -> bool:
        try:
            return self._mark.read_bytes() == _YES
        except FileNotFoundError:
            pass
        try:
            self._write_mark(_NO)
        except OSError as error:
            self._logger.warning("cannot write", path=str(self._mark), error=str(error))
        return False

    def _write_mark(self, content: bytes) -> None:
        descriptor = os.open(self._mark, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.pwrite(descriptor, content, 0)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
