"""Reads the segments of a log from the newest back: each once, and only those that are needed.

    oldest … │ entries after the snapshot begin here │ … │ the last snapshot │ … newest
                                        ◄── read_to(its index)   ◄── last_snapshot()

The last snapshot that counts is known only after the newest records, because one past the last
commit does not count. So the way is back from the end; what was read on it is kept, and the log is
replayed from it without reading the files again.

With lock, segments are locked as they are read and stay so until `close`. Nothing is changed.
"""

from collections import deque
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kvstore.errors import CorruptionError, DataDirError, StorageFatalError
from kvstore.storage.files import Files, OsFiles
from kvstore.storage.wal.record import (
    SNAPSHOT,
    STATE,
    Fault,
    SegmentReader,
    WalSnapshot,
    decode_snapshot_body,
)
from kvstore.storage.wal.repair import is_torn_tail
from kvstore.storage.wal.segment import (
    SegmentFile,
    check_sequence,
    list_segments,
    read_segment,
)
from kvstore.wire.raft_codec import decode_hard_state
from kvstore.wire.varint import WireError

_OS_FILES: Final = OsFiles()


class ScannedSegment:
    """The records of one segment in order, and how they end (see SegmentReader)."""

    __slots__ = ("crc", "data", "fault", "file", "handle", "offset", "records", "size_bytes")

    def __init__(
        self, file: SegmentFile, handle: int, reader: SegmentReader, data: bytes, size_bytes: int
    ) -> None:
        self.file = file
        self.handle = handle  # -1: closed
        self.records = list(reader)
        self.offset = reader.offset
        self.crc = reader.crc
        self.fault = reader.fault
        self.data = data if reader.fault is not None else b""  # for the repair
        self.size_bytes = size_bytes

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (offset of the frame, kind, body)."""
        return iter(self.records)


class LogScan:
    """The segments of one log, read from the newest back as far as needed.

    Every method raises CorruptionError, DataDirError (no log, locked by another process) and
    StorageFatalError (the disk fails).
    """

    def __init__(self, directory: Path, files: Files = _OS_FILES, *, lock: bool = False) -> None:
        self._directory = directory
        self._files = files
        self._lock = lock
        self._unread: list[SegmentFile] | None = None  # oldest first; None: not listed yet
        self._next_crc: int | None = None  # what the segment after the next one read begins with
        self.segments: deque[ScannedSegment] = deque()  # those read, oldest first

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close and unlock the segments that are still here."""
        while self.segments:
            self._close(self.segments.popleft())

    def last_snapshot(self) -> WalSnapshot | None:
        """Return the last snapshot up to the last commit; read back to where it is recorded."""
        found = self._valid_snapshots(newest_only=True)
        return found[-1] if found else None

    def snapshots(self) -> list[WalSnapshot]:
        """Return the snapshots up to the last commit, oldest first; read everything."""
        return self._valid_snapshots(newest_only=False)

    def read_to(self, index: int) -> None:
        """Leave in `segments` just those that hold the log after index."""
        unread, segments = self._listed(), self.segments
        listed = [*unread, *(segment.file for segment in segments)]
        first = len(listed) - 1
        while first > 0 and listed[first].first_index > index:
            first -= 1
        if listed[first].first_index > index:
            raise CorruptionError(
                f"{listed[first].path}: the oldest segment begins at index "
                f"{listed[first].first_index}, the log is needed from {index} on"
            )
        check_sequence(listed[first:])
        while len(unread) > first:
            self._read_older()
        while len(segments) > len(listed) - first:
            self._close(segments.popleft())

    def _valid_snapshots(self, *, newest_only: bool) -> list[WalSnapshot]:
        unread = self._listed()
        check_sequence(unread)
        all_snapshots: list[WalSnapshot] = []
        commit: int | None = None
        while unread:
            snapshots, segment_commit = _summarize(self._read_older())
            all_snapshots = snapshots + all_snapshots
            if commit is None:
                commit = segment_commit
            if newest_only and commit is not None and any(s.index <= commit for s in all_snapshots):
                break
        return [snapshot for snapshot in all_snapshots if snapshot.index <= (commit or 0)]

    def _listed(self) -> list[SegmentFile]:
        if self._unread is None:
            try:
                self._unread = list_segments(self._files, self._directory)
            except OSError as error:
                raise self._unreadable(error) from error
            if not self._unread:
                raise DataDirError(f"{self._directory}: no write-ahead log segment here")
        return self._unread

    def _read_older(self) -> ScannedSegment:
        """Read the newest segment that was not read yet."""
        file = self._listed().pop()
        try:
            segment, opening_crc = self._read(file)
        except OSError as error:
            raise self._unreadable(error) from error
        self.segments.appendleft(segment)
        fault = segment.fault
        if fault is not None and (
            self._next_crc is not None
            or not is_torn_tail(segment.data, segment.size_bytes, fault.offset)
        ):
            raise corruption(file.path, fault)
        if self._next_crc is not None and self._next_crc != segment.crc:
            text = (
                f"the records end with crc {segment.crc:08x}, the next segment has "
                f"{self._next_crc:08x}"
            )
            raise corruption(file.path, Fault(segment.offset, text))
        self._next_crc = opening_crc
        return segment

    def _read(self, file: SegmentFile) -> tuple[ScannedSegment, int]:
        files = self._files
        handle = files.open(file.path, write=self._lock)
        if self._lock and not files.try_lock(handle):
            files.close(handle)
            raise DataDirError(f"{file.path}: locked by another process")
        try:
            data, size_bytes = read_segment(files, handle)
        except BaseException:
            files.close(handle)
            raise
        if not self._lock:
            files.close(handle)
            handle = -1
        reader = SegmentReader(data, size_bytes, 0)
        return ScannedSegment(file, handle, reader, data, size_bytes), reader.opening_crc

    def _close(self, segment: ScannedSegment) -> None:
        if segment.handle >= 0:
            self._files.close(segment.handle)

    def _unreadable(self, error: OSError) -> StorageFatalError:
        text = error.strerror or error
        return StorageFatalError(f"cannot read the write-ahead log {self._directory}: {text}")


def read_snapshots(directory: Path, files: Files = _OS_FILES) -> list[WalSnapshot]:
    """Return the snapshots the log records up to the last commit, oldest first; takes no lock."""
    return LogScan(directory, files).snapshots()


def read_last_snapshot(directory: Path, files: Files = _OS_FILES) -> WalSnapshot | None:
    """Return the last of read_snapshots; reads only the segments from its own on."""
    return LogScan(directory, files).last_snapshot()


def corruption(path: Path, fault: Fault) -> CorruptionError:
    """Return the error that names a segment, an offset and the fault there."""
    return CorruptionError(f"{path}: corrupt at offset {fault.offset}: {fault.text}")


def _summarize(segment: ScannedSegment) -> tuple[list[WalSnapshot], int | None]:
    """Return (the snapshots, the commit index of the last state; None without a state)."""
    snapshots: list[WalSnapshot] = []
    state_body: bytes | None = None
    for offset, kind, body in segment.records:
        if kind == STATE:
            state_body = body
        elif kind == SNAPSHOT:
            try:
                snapshots.append(decode_snapshot_body(body))
            except WireError as error:
                fault = Fault(offset, f"unreadable snapshot: {error}")
                raise corruption(segment.file.path, fault) from error
    return snapshots, None if state_body is None else decode_hard_state(state_body).commit
