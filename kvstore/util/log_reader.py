"""Reading a log without becoming its server: no repair, no sync, nothing is written.

    read(directory)     the whole chain, and what raft would find in it after the last snapshot
    records(directory)  every record one by one, up to the first fault

Both read all segments that are there, the oldest first: its opening checksum is taken, from there
on the chain must hold. Whether a bad end is a torn tail (a server cuts it off) or corruption is
told as wal_repair tells it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kvstore.errors import CorruptionError, DataDirError
from kvstore.storage.files import Files, OsFiles
from kvstore.storage.wal.record import INITIAL_SNAPSHOT, Fault, SegmentReader
from kvstore.storage.wal.repair import is_torn_tail
from kvstore.storage.wal.replay import Replayer, corruption
from kvstore.storage.wal.segment import SegmentFile, check_sequence, list_segments, read_segment
from kvstore.storage.wal.wal import Replay, WalSnapshot, read_last_snapshot

_OS_FILES = OsFiles()


class Log(NamedTuple):
    """What a log holds."""

    segments: list[SegmentFile]
    start: WalSnapshot  # the last one; (0, 0) for none
    replay: Replay  # what is after start
    torn: Fault | None  # in the last segment

    @property
    def last_index(self) -> int:
        """The index of the last entry, or of the snapshot if nothing follows it."""
        return self.start.index + len(self.replay.entries)


class Record(NamedTuple):
    """One record as it stands in a segment."""

    path: Path
    offset: int
    kind: int
    body: bytes
    crc: int  # of the chain, after it


def read(directory: Path) -> Log:
    """Read a whole log; raise DataDirError if there is none, CorruptionError at any fault."""
    segments = _segments(directory)
    start = read_last_snapshot(directory, _OS_FILES) or INITIAL_SNAPSHOT
    replayer = Replayer(start)
    torn: Fault | None = None
    for segment in segments:
        data, size_bytes = _bytes_of(segment.path)
        _, fault = replayer.take(segment.path, data, size_bytes)
        if fault is not None:
            if segment is not segments[-1] or not is_torn_tail(data, size_bytes, fault.offset):
                raise corruption(segment.path, fault)
            torn = fault
    return Log(segments, start, replayer.finish(), torn)


def records(directory: Path) -> Iterator[Record]:
    """Yield every record; raise CorruptionError at the first fault, torn or not."""
    crc = 0
    for segment in _segments(directory):
        data, size_bytes = _bytes_of(segment.path)
        reader = SegmentReader(data, size_bytes, crc)
        for offset, kind, body in reader:
            yield Record(segment.path, offset, kind, body, reader.crc)
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
