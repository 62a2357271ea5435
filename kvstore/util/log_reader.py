"""Reading a log that no server uses: nothing is repaired, synced or written.

    read_log(directory)      the whole chain, and what raft would restore after the last snapshot
    read_records(directory)  every record one by one, up to the first error

Both read all segments, the oldest first. The first segment's initial checksum is trusted; from
there on the chain must hold. `wal.repair` decides whether an invalid end is a torn tail, which a
server cuts off, or corruption.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kvstore.errors import CorruptionError, DataDirError
from kvstore.storage.files import Files, OsFiles
from kvstore.storage.wal.record import INITIAL_SNAPSHOT, Fault, SegmentReader, WalSnapshot
from kvstore.storage.wal.repair import is_torn_tail
from kvstore.storage.wal.replay import Replay, Replayer
from kvstore.storage.wal.scan import corruption, read_last_snapshot
from kvstore.storage.wal.segment import SegmentFile, check_sequence, list_segments, read_segment

_OS_FILES = OsFiles()


class LogContents(NamedTuple):
    """The contents of a log."""

    segments: list[SegmentFile]
    start: WalSnapshot  # the last snapshot record; (0, 0) without one
    replay: Replay  # the records after start
    torn: Fault | None  # the torn tail in the last segment

    @property
    def last_index(self) -> int:
        """The index of the last entry, or of the snapshot if no entry follows it."""
        return self.start.index + len(self.replay.entries)


class LogRecord(NamedTuple):
    """One record of a segment."""

    path: Path
    offset: int
    kind: int
    body: bytes
    crc: int  # of the chain, after this record


def read_log(directory: Path) -> LogContents:
    """Read a whole log; DataDirError if there is none, CorruptionError if it is damaged."""
    segments = _segments(directory)
    start = read_last_snapshot(directory, _OS_FILES) or INITIAL_SNAPSHOT
    replayer = Replayer(start)
    torn: Fault | None = None
    for segment in segments:
        data, size_bytes = _bytes_of(segment.path)
        reader = SegmentReader(data, size_bytes, replayer.crc)
        replayer.read(segment.path, reader)
        fault = reader.fault
        if fault is not None:
            if segment is not segments[-1] or not is_torn_tail(data, size_bytes, fault.offset):
                raise corruption(segment.path, fault)
            torn = fault
    return LogContents(segments, start, replayer.finish(), torn)


def read_records(directory: Path) -> Iterator[LogRecord]:
    """Yield every record; CorruptionError at the first error, a torn tail included."""
    crc = 0
    for segment in _segments(directory):
        data, size_bytes = _bytes_of(segment.path)
        reader = SegmentReader(data, size_bytes, crc)
        for offset, kind, body in reader:
            yield LogRecord(segment.path, offset, kind, body, reader.crc)
        if reader.fault is not None:
            raise corruption(segment.path, reader.fault)
        crc = reader.crc


def _segments(directory: Path) -> list[SegmentFile]:
    try:
        segments = list_segments(_OS_FILES, directory)
    except OSError as error:
        raise DataDirError(f"{directory}: {error.strerror}") from error
    if not segments:
        raise DataDirError(f"{directory}: no write-ahead log segment here")
    check_sequence(segments)
    return segments


def _bytes_of(path: Path, files: Files = _OS_FILES) -> tuple[bytes, int]:
    try:
        handle = files.open(path)
        try:
            data, size_bytes = read_segment(files, handle)
        finally:
            files.close(handle)
    except OSError as error:
        raise CorruptionError(f"{path}: offset 0: cannot be read: {error.strerror}") from error
    if size_bytes == 0:
        raise CorruptionError(f"{path}: offset 0: expected a CRC record, the file is empty")
    return data, size_bytes
