"""The write-ahead log on disk: etcd's segments, written by one thread.

    save         ──► one buffer ──► one write ──► one fdatasync   (group commit: a turn, a sync)
    start_save   ──► one buffer ──► one write ──┐ the disk works, and so does the caller
    finish_save  ───────────────────────────────┴► one fdatasync
                                                      └─ past segment_bytes: on in the next segment

Invariant: what `save` or `save_snapshot` synced is in the log after any crash, in order. A write or
sync that fails is fatal: it is never retried (the kernel may have dropped the pages), and the log
refuses everything after it. The format is in `record`; `scan`, `replay` and `repair` define what is
refused when a log is opened.

A segment is preallocated with zeros, so that a sync need not write the length of the file, nor any
write need space that others may take. The next one is preallocated by the first save to the current
one, so a full disk is noticed while a whole segment is left. Entries that do not fit into what is
left of a segment begin the next one. Reserving blocks takes well under a tenth of a millisecond
where the file system supports it, too little for a background thread to be worth it. If it fails,
`preallocation_error` has the reason; `make_room` and the cut try again.

Segments are locked as etcd locks them: from the one that holds the start snapshot to the last, so
that neither a second process nor a purge touches what is needed.
"""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns
from typing import Final, NamedTuple, NoReturn

from kvstack.component.metrics.histograms import DISK_BOUNDS, NANOSECOND_S, Histogram
from kvstore.errors import DataDirError, StorageFatalError
from kvstore.failpoints import hit
from kvstore.raft.model import EMPTY_HARD_STATE, Entry, HardState
from kvstore.storage.files import EXHAUSTED, Files, OsFiles, write_all, write_file
from kvstore.storage.wal.record import (
    INITIAL_SNAPSHOT,
    METADATA,
    SNAPSHOT,
    STATE,
    Fault,
    WalSnapshot,
    encode_crc,
    encode_entries,
    encode_records,
    encode_snapshot_body,
)
from kvstore.storage.wal.replay import Repair, Replay, Replayer
from kvstore.storage.wal.scan import LogScan, ScannedSegment
from kvstore.storage.wal.segment import (
    BROKEN_SUFFIX,
    SUFFIX,
    TEMPORARY_SUFFIX,
    SegmentFile,
    list_segments,
    segment_path,
)
from kvstore.wire.raft_codec import encode_hard_state

SEGMENT_BYTES: Final = 64_000_000  # etcd's: not 64 MiB
NEAR_END_BYTES: Final = 16 << 20  # of a segment: more than most saves write
RECORD_BYTES_MAX: Final = 64  # of an entry's record, without its data
OPENING_BYTES_MAX: Final = 4096  # of the records that a segment begins with

_OS_FILES: Final = OsFiles()
_LEFTOVERS: Final = (TEMPORARY_SUFFIX, BROKEN_SUFFIX)


class _Segment(NamedTuple):
    file: SegmentFile
    handle: int


class Wal:
    """A log ready to append; made by `create` or `open`.

    Attributes to read: written_bytes, write_seconds, sync_count, sync_ns, sync_seconds,
    last_sync_ns, tail_path, tail_offset, preallocation_error (text, or None). To set: keeps_next.
    """

    def __init__(
        self, directory: Path, files: Files, segment_bytes: int, metadata: bytes = b""
    ) -> None:
        """Called by create and open only."""
        self._directory = directory
        self._files = files
        self._segment_bytes = segment_bytes
        self._metadata = metadata
        self._segments: list[_Segment] = []
        self._next: tuple[Path, int] | None = None  # the preallocated segment
        self._handle = -1  # of the tail, the last of the segments
        self._crc = 0
        self._hard_state = EMPTY_HARD_STATE
        self._unwritten_state: HardState | None = None  # written with the next save
        self._tail_is_reserved = True  # up to segment_bytes
        self._begun_ns: int | None = None  # spent on the sync that start_save began, if it did
        self._last_index = 0
        self._refusal: str | None = None
        # May be replaced by a faster function that returns the same bytes.
        self.encode_entries: Callable[[list[Entry], bytes, int], tuple[bytes, int]] = encode_entries
        self.tail_path = Path()
        self.tail_offset = 0
        self.written_bytes = 0
        self.sync_count = 0
        self.last_sync_ns = 0
        self.sync_ns = 0
        self.sync_seconds = Histogram(DISK_BOUNDS)
        self.write_seconds = Histogram(DISK_BOUNDS)
        self.preallocation_error: str | None = None
        self.keeps_next = False

    @staticmethod
    def exists(directory: Path, files: Files = _OS_FILES) -> bool:
        """Return whether directory holds a log."""
        if not files.exists(directory):
            return False
        return any(name.endswith(SUFFIX) for name in files.list_directory(directory))

    @classmethod
    def create(
        cls,
        directory: Path,
        metadata: bytes,
        files: Files = _OS_FILES,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> "Wal":
        """Make a log with metadata and the initial snapshot.

        It is built beside directory and renamed, so a crash leaves all of it or none. Raises
        DataDirError if directory is not empty, StorageFatalError if the disk fails.
        """
        wal = cls(directory, files, segment_bytes, metadata)
        try:
            wal._create()
        except BaseException:
            wal._release_handles()
            raise
        return wal

    @classmethod
    def open(
        cls,
        directory: Path,
        start: WalSnapshot,
        files: Files = _OS_FILES,
        segment_bytes: int = SEGMENT_BYTES,
        scan: LogScan | None = None,
    ) -> tuple["Wal", Replay]:
        """Read the log after start, repair a torn tail, and make it ready to append.

        scan is a locked scan of the same log, which has read some of it already. Everything in the
        Replay is durable on return. Raises DataDirError if there is no log or another process has
        locked it, CorruptionError naming segment and offset if it is not what was written,
        StorageFatalError if the disk fails.
        """
        wal = cls(directory, files, segment_bytes)
        with scan or LogScan(directory, files, lock=True) as log:
            try:
                return wal, wal._open(start, log)
            except BaseException:
                wal._release_handles()
                raise

    def save(self, hard_state: HardState | None, entries: Sequence[Entry], sync: bool) -> None:  # noqa: FBT001 - part of the storage interface
        """Append entries, then the state unless it is None or empty: one write, one fdatasync.

        With sync, or with entries, they are durable on return. A state alone without sync is
        written with the next save: a write of its own would cost a lone put more than its record.
        Raises StorageFatalError; then nothing since the last save may be acknowledged.
        """
        if self._refusal is not None:
            self._refuse()
        if not entries and not sync:
            if hard_state is not None and hard_state != EMPTY_HARD_STATE:
                self._unwritten_state = self._hard_state = hard_state
            return
        self._append(hard_state, entries)
        self._make_durable()

    def start_save(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        """Begin a save with sync; nothing is durable before finish_save returns."""
        if self._refusal is not None:
            self._refuse()
        offset, handle = self.tail_offset, self._handle
        self._append(hard_state, entries)
        if handle != self._handle:  # of the next segment
            offset = 0
        began_ns = monotonic_ns()
        self._files.begin_writeback(self._handle, offset, self.tail_offset - offset)
        self._begun_ns = monotonic_ns() - began_ns

    def finish_save(self) -> None:
        """Make durable what start_save began; raises as save does."""
        if self._refusal is not None:
            self._refuse()
        if self._begun_ns is not None:
            self._make_durable()

    def save_snapshot(self, snapshot: WalSnapshot) -> None:
        """Record that the database holds the state up to snapshot; durable on return.

        Raises ValueError if a snapshot after the initial one has no configuration, and
        StorageFatalError.
        """
        if self._refusal is not None:
            self._refuse()
        # The state first: a snapshot counts only if its index is committed.
        self._write(self._take_unwritten_state() + self._snapshot_record(snapshot))
        self._last_index = max(self._last_index, snapshot.index)
        self._sync()

    @property
    def room_bytes(self) -> int:
        """How many more bytes fit into blocks that the log already has."""
        tail_bytes = max(self._segment_bytes - self.tail_offset, 0) if self._tail_is_reserved else 0
        return tail_bytes + (0 if self._next is None else self._segment_bytes)

    def make_room(self) -> str:
        """Try again to preallocate the next segment if that failed; return the reason if it fails.

        Empty if the segment is preallocated.
        """
        if self._refusal is not None:
            return ""
        if not self._tail_is_reserved:
            with self._fatal(f"cannot preallocate {self.tail_path}"):
                self._reserve_tail()
        if self.preallocation_error is not None:
            self.preallocation_error = None
            self._preallocate()
        return self._missing()

    def _missing(self) -> str:
        if not self._tail_is_reserved:
            return f"cannot preallocate {self.tail_path}: {os.strerror(errno.ENOSPC)}"
        return self.preallocation_error or ""

    def _reserve_tail(self) -> None:
        """Give the tail the blocks of a whole segment; it was cut short or copied without them."""
        try:
            self._files.allocate(self._handle, self._segment_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._tail_is_reserved = False
        else:
            self._tail_is_reserved = True

    def release_to(self, index: int) -> None:
        """Unlock the segments that hold nothing after index, so that they may be purged.

        The last one whose first index is below index stays locked; those before it are unlocked.
        """
        keep = len(self._segments) - 1
        while keep > 0 and self._segments[keep].file.first_index >= index:
            keep -= 1
        for segment in self._segments[:keep]:
            self._files.close(segment.handle)
        del self._segments[:keep]

    def purge(self, max_wals: int) -> list[Path]:
        """Remove the oldest segments beyond max_wals (0: none) up to the first locked one.

        Returns what was removed: nothing, or only some, if the process has no descriptor left.
        Raises StorageFatalError if the disk fails.
        """
        removed: list[Path] = []
        if max_wals <= 0:
            return removed
        files = self._files
        handles: list[int] = []
        try:
            with self._fatal(f"cannot purge {self._directory}", unless=EXHAUSTED):
                for segment in list_segments(files, self._directory)[:-max_wals]:
                    handle = self._remove_unlocked(segment.path)
                    if handle is None:
                        break
                    handles.append(handle)
                    removed.append(segment.path)
        finally:
            files.close_removed(handles)
        return removed

    def _remove_unlocked(self, path: Path) -> int | None:
        """Remove a segment that is not locked; return its handle, None if it is locked."""
        files = self._files
        handle = files.open(path, write=True)
        is_removed = False
        try:
            if files.try_lock(handle):
                files.remove(path)
                is_removed = True
        finally:
            if not is_removed:
                files.close(handle)
        return handle if is_removed else None

    def close(self) -> None:
        """Sync, remove the preallocated segment and unlock all; a second call does nothing.

        With keeps_next that segment stays for the next process, which may find the disk full.

        After a failure nothing is synced.
        """
        if not self._segments:
            return
        try:
            if self._refusal is None:
                if self._unwritten_state is not None:
                    self._write(self._take_unwritten_state())
                self._sync()
                self._refusal = f"{self._directory}: the write-ahead log is closed"
            if self._next is not None and not self.keeps_next:
                with self._fatal(f"cannot remove {self._next[0]}"):
                    self._files.remove(self._next[0])
        finally:
            self._release_handles()

    def _create(self) -> None:
        files, directory = self._files, self._directory
        building = directory.with_name(directory.name + TEMPORARY_SUFFIX)
        first = segment_path(building, 0, 0)
        with self._fatal(f"cannot create {first}"):
            _refuse_foreign(directory, files)
            files.remove_tree(building)
            files.make_directory(building)
            self._use(SegmentFile(first, 0, 0), self._allocate(first))
        self._write(self._opening_records() + self._snapshot_record(INITIAL_SNAPSHOT))
        with self._fatal(f"cannot create {directory}"):
            files.sync(self._handle)
            files.sync_directory(building)
            files.remove_tree(directory)
            files.rename(building, directory)
            files.sync_directory(directory.parent)
        self._rename_tail(segment_path(directory, 0, 0))

    def _open(self, start: WalSnapshot, log: LogScan) -> Replay:
        files, replayer = self._files, Replayer(start)
        log.read_to(start.index)
        while True:
            segment = log.segments.popleft()
            self._use(segment.file, segment.handle)
            replayer.read(segment.file.path, segment)
            if not log.segments:
                break
        self.tail_offset = segment.offset
        replay = replayer.finish()
        with self._fatal(f"cannot make {self.tail_path} ready"):
            if segment.fault is not None:  # a torn tail, or the scan had refused it
                replay.repair = self._repair(segment, segment.fault)
            files.sync(self._handle)  # what was read may never have been synced
            files.sync_directory(self._directory)
            self._reserve_tail()
        self._metadata = replay.metadata
        self._hard_state = replay.hard_state
        self._last_index = replay.last_index
        self._crc = replayer.crc
        return replay

    def _repair(self, segment: ScannedSegment, fault: Fault) -> Repair:
        """Copy the tail as it is, then cut it at the fault."""
        files = self._files
        broken = self.tail_path.with_name(self.tail_path.name + BROKEN_SUFFIX)
        try:
            write_file(files, broken, segment.data, segment.size_bytes)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._remove_preallocated()
            write_file(files, broken, segment.data, segment.size_bytes)
        files.sync_directory(self._directory)
        files.truncate(self._handle, fault.offset)
        return Repair(self.tail_path, fault.offset, fault.text, broken)

    def _remove_preallocated(self) -> None:
        """Remove the segment that a killed process had preallocated: it contains no records."""
        for name in self._files.list_directory(self._directory):
            if name.endswith(TEMPORARY_SUFFIX):
                self._files.remove(self._directory / name)

    def _append(self, hard_state: HardState | None, entries: Sequence[Entry]) -> None:
        """Write entries, then the state unless it is None or empty."""
        if entries and self.tail_offset + NEAR_END_BYTES > self._segment_bytes:
            self._cut_before(entries)
        data = self._take_unwritten_state()
        crc, state = self._crc, b""
        if hard_state is not None and hard_state != EMPTY_HARD_STATE:
            self._hard_state, state = hard_state, encode_hard_state(hard_state)
        if entries or state:
            records, crc = self.encode_entries(list(entries), state, crc)
            data = data + records if data else records
        if data:
            self._write(data)
            self._crc = crc
        if entries:
            self._last_index = entries[-1].index

    def _cut_before(self, entries: Sequence[Entry]) -> None:
        """Continue in the next segment if entries have blocks there, and not in this one."""
        size_bytes = sum(RECORD_BYTES_MAX + len(entry.data) for entry in entries)
        fits_here = self.tail_offset + size_bytes <= self._segment_bytes
        fits_there = OPENING_BYTES_MAX + size_bytes <= self._segment_bytes
        if not fits_here and fits_there and self._next is not None:
            self._cut()

    def _make_durable(self) -> None:
        """Sync the written bytes, and continue in the next segment if this one is full."""
        if self.tail_offset >= self._segment_bytes:
            self._cut()
        else:
            self._sync()
        if self._next is None:
            self._preallocate()

    def _cut(self) -> None:
        """End the current segment where its records end and continue in the next one."""
        files, old, end = self._files, self.tail_path, self.tail_offset
        with self._fatal(f"cannot end segment {old} at {end} bytes"):
            files.truncate(self._handle, end)
        self._sync()
        if self._next is None:
            with self._fatal(f"cannot preallocate {self._next_path()}"):
                self._next = self._next_path(), self._allocate(self._next_path())
        temporary, handle = self._next
        sequence, first_index = self._segments[-1].file.sequence + 1, self._last_index + 1
        self._next = None
        self._use(SegmentFile(temporary, sequence, first_index), handle)
        data = self._opening_records()
        if self._hard_state != EMPTY_HARD_STATE:
            state = encode_hard_state(self._hard_state)
            record, self._crc = encode_records(STATE, (state,), self._crc)
            data += record
        self._write(data)
        path = segment_path(self._directory, sequence, first_index)
        with self._fatal(f"cannot begin segment {path}"):
            files.sync(handle)
            files.rename(temporary, path)
            files.sync_directory(self._directory)
        self._rename_tail(path)
        self.preallocation_error = None

    def _preallocate(self) -> None:
        if self.preallocation_error is not None:
            return  # tried already; make_room and the cut try again
        path = self._next_path()
        try:
            self._next = path, self._allocate(path)
        except OSError as error:
            self.preallocation_error = f"cannot preallocate {path}: {error.strerror}"

    def _next_path(self) -> Path:
        sequence = self._segments[-1].file.sequence
        return self._directory / f"{sequence % 2}{TEMPORARY_SUFFIX}"

    def _allocate(self, path: Path) -> int:
        """Make a locked file of zeros, of the blocks of a file of this name if there is one."""
        files = self._files
        handle = files.open(path, create=True)
        try:
            _reserve(files, handle, self._segment_bytes)
        except BaseException:
            files.close(handle)
            raise
        return handle

    def _use(self, file: SegmentFile, handle: int) -> None:
        """Append to this segment from now on, from its start."""
        self._segments.append(_Segment(file, handle))
        self._handle = handle
        self._tail_is_reserved = True
        self.tail_path = file.path
        self.tail_offset = 0

    def _rename_tail(self, path: Path) -> None:
        file, handle = self._segments[-1]
        self._segments[-1] = _Segment(file._replace(path=path), handle)
        self.tail_path = path

    def _opening_records(self) -> bytes:
        metadata, crc = encode_records(METADATA, (self._metadata,), self._crc)
        data = encode_crc(self._crc) + metadata
        self._crc = crc
        return data

    def _take_unwritten_state(self) -> bytes:
        """Return the record of the state not written yet, if any; it must be written next."""
        if self._unwritten_state is None:
            return b""
        body = encode_hard_state(self._unwritten_state)
        record, self._crc = encode_records(STATE, (body,), self._crc)
        self._unwritten_state = None
        return record

    def _snapshot_record(self, snapshot: WalSnapshot) -> bytes:
        record, self._crc = encode_records(SNAPSHOT, (encode_snapshot_body(snapshot),), self._crc)
        return record

    def _write(self, data: bytes) -> None:
        offset = self.tail_offset
        began_ns = monotonic_ns()
        try:
            written = self._files.write(self._handle, offset, data)
            if written != len(data):
                write_all(self._files, self._handle, offset + written, data[written:])
        except OSError as error:
            self._fail(
                f"cannot write {len(data)} bytes to {self.tail_path} at offset {offset}", error
            )
        self.tail_offset = offset + len(data)
        self.written_bytes += len(data)
        self.write_seconds.add((monotonic_ns() - began_ns) * NANOSECOND_S)

    def _sync(self) -> None:
        hit("walBeforeSync")
        begun_ns, self._begun_ns = self._begun_ns or 0, None
        began_ns = monotonic_ns()
        try:
            self._files.sync_data(self._handle)
        except OSError as error:
            self._fail(f"cannot sync {self.tail_path}", error)
        self.last_sync_ns = took_ns = begun_ns + monotonic_ns() - began_ns
        self.sync_ns += took_ns
        self.sync_count += 1
        self.sync_seconds.add(took_ns * NANOSECOND_S)
        hit("walAfterSync")

    @contextmanager
    def _fatal(self, action: str, unless: frozenset[int] = frozenset()) -> Iterator[None]:
        """Make an error fatal; those whose numbers are in unless only end the block."""
        try:
            yield
        except OSError as error:
            if error.errno not in unless:
                self._fail(action, error)

    def _fail(self, action: str, error: OSError) -> NoReturn:
        self._refusal = f"{action}: {error.strerror or error}"
        raise StorageFatalError(self._refusal) from error

    def _refuse(self) -> NoReturn:
        raise StorageFatalError(f"the write-ahead log accepts no more writes: {self._refusal}")

    def _release_handles(self) -> None:
        handles = [segment.handle for segment in self._segments]
        if self._next is not None:
            handles.append(self._next[1])
        self._segments.clear()
        self._next = None
        for handle in handles:
            self._files.close(handle)


def _refuse_foreign(directory: Path, files: Files) -> None:
    """Raise DataDirError if the directory holds anything but leftovers of a log."""
    if not files.exists(directory):
        return
    for name in files.list_directory(directory):
        if not name.endswith(_LEFTOVERS):
            raise DataDirError(f"{directory}: cannot create a write-ahead log beside {name}")


def _reserve(files: Files, handle: int, size_bytes: int) -> None:
    if not files.try_lock(handle):
        raise BlockingIOError(errno.EAGAIN, "locked by another process")
    if files.size_bytes(handle) != size_bytes or files.data_end(handle) != 0:
        files.truncate(handle, 0)  # else a killed process left it, with blocks as good as new
    try:
        files.allocate(handle, size_bytes)
    except OSError:
        files.truncate(handle, 0)  # on a full disk: give back what was reserved
        raise
