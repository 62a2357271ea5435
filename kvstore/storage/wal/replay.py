"""From the bytes of the segments back to what raft must know.

    segments ──► records ──► Replay(metadata, hard state, entries after the start, snapshots)

The law: entries come back in the order they were written; one at a position that is already taken
replaces it and all behind it (a conflict of logs), one past the end is a gap. State: the last
wins. Metadata: one value in all segments. The start snapshot must be recorded, with its term.

The checksum covers neither the type of a record nor the sense of the log, so what no raft can have
written is refused too: a state in any but its one encoding, a term that goes back, an entry that
is replaced once committed or by one of the same term, a commit past the last entry.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from kvstore.errors import CorruptionError, DataDirError
from kvstore.raft.model import EMPTY_HARD_STATE, Entry, EntryType, HardState
from kvstore.storage.files import Files, OsFiles
from kvstore.storage.wal.record import (
    CRC,
    ENTRY,
    METADATA,
    SNAPSHOT,
    STATE,
    Fault,
    SegmentReader,
    WalSnapshot,
    decode_snapshot_body,
)
from kvstore.storage.wal.repair import is_torn_tail
from kvstore.storage.wal.segment import check_sequence, list_segments, read_segment
from kvstore.wire.raft_codec import decode_entry, decode_hard_state, encode_hard_state
from kvstore.wire.varint import WireError

TERM_MAX: Final = (1 << 48) - 1  # one election a term: out of reach; a member id is mostly above

_OS_FILES: Final = OsFiles()


class Repair(NamedTuple):
    """A torn tail that was cut off."""

    path: Path
    offset: int  # where the segment was cut
    text: str  # what was found there
    broken_path: Path  # the copy of the segment as it was


@dataclass(slots=True)
class Replay:
    """What the log holds after the start snapshot."""

    metadata: bytes = b""
    hard_state: HardState = EMPTY_HARD_STATE
    entries: list[Entry] = field(default_factory=list)
    snapshots: list[WalSnapshot] = field(default_factory=list)  # with index <= commit
    last_index: int = 0  # of the last entry or snapshot written; names the next segment
    repair: Repair | None = None


class Replayer:
    """Takes segments one after another and builds the Replay."""

    __slots__ = ("_found", "_has_metadata", "_path", "_start", "_term_at_start", "crc", "replay")

    def __init__(self, start: WalSnapshot) -> None:
        self._start = start
        self._found = False
        self._has_metadata = False
        self._term_at_start = 0  # of the entry at the start's index, as last read; 0: none
        self._path = Path()
        self.crc = 0
        self.replay = Replay()

    def take(self, path: Path, data: bytes, size_bytes: int) -> tuple[int, Fault | None]:
        """Read one segment; return (the end of its last good record, the fault there or None).

        Raises CorruptionError for what a good record says but a good log cannot.
        """
        self._path = path
        reader = SegmentReader(data, size_bytes, self.crc)
        start_index, entries, replay = self._start.index, self.replay.entries, self.replay
        has_metadata = False
        for offset, kind, body in reader:
            try:
                if kind == ENTRY:
                    entry = decode_entry(body)
                    replay.last_index = entry.index
                    if entry.index > start_index:
                        if entry.index != start_index + len(entries) + 1:
                            self._replace(entry, offset)
                        if not (entries[-1].term if entries else 1) <= entry.term <= TERM_MAX:
                            self._refuse_term(entry, offset)
                        entries.append(entry)
                    else:
                        # Whatever is written takes the place of all that stood from there on.
                        entries.clear()
                        self._term_at_start = entry.term if entry.index == start_index else 0
                elif kind == STATE:
                    self._set_state(body, offset)
                elif kind == METADATA:
                    has_metadata = True
                    self._set_metadata(body, offset)
                elif kind == SNAPSHOT:
                    self._add_snapshot(decode_snapshot_body(body), offset)
            except WireError as error:
                self._refuse(offset, f"record of type {kind} is unreadable: {error}")
            if not has_metadata and kind != CRC:
                self._refuse(offset, f"expected metadata in front, found type {kind}")
        if not has_metadata:
            missing = Fault(reader.offset, "the segment ends before its metadata")
            raise corruption(path, reader.fault or missing)
        self.crc = reader.crc
        return reader.offset, reader.fault

    def finish(self) -> Replay:
        """Return what was read, once the last segment was taken."""
        replay, start = self.replay, self._start
        if not self._found:
            self._refuse(0, f"no snapshot at index {start.index}, term {start.term} from here on")
        commit, last = replay.hard_state.commit, start.index + len(replay.entries)
        if commit > last:
            self._refuse(0, f"index {commit} was committed, the log ends at {last}")
        replay.snapshots = [snapshot for snapshot in replay.snapshots if snapshot.index <= commit]
        return replay

    def _replace(self, entry: Entry, offset: int) -> None:
        entries, start_index = self.replay.entries, self._start.index
        expected = start_index + len(entries) + 1
        if entry.index > expected:
            self._refuse(offset, f"expected entry {expected}, found {entry.index}: a gap")
        if entry.index <= self.replay.hard_state.commit:
            self._refuse(offset, f"entry {entry.index} was committed and is written again")
        position = entry.index - start_index - 1
        # A later leader's entry may well be of an earlier term: what counts is how its log ended.
        # etcd's --force-new-cluster puts changes of members in the place of entries of its term.
        is_forced = entry.type == EntryType.CONF_CHANGE
        if entry.term == entries[position].term and entry != entries[position] and not is_forced:
            self._refuse(offset, f"entry {entry.index} is replaced by one of term {entry.term}")
        del entries[position:]

    def _set_state(self, body: bytes, offset: int) -> None:
        state = decode_hard_state(body)
        if encode_hard_state(state) != body:
            self._refuse(offset, f"expected a state, found {body[:32].hex()}")
        if not self.replay.hard_state.term <= state.term <= TERM_MAX:
            self._refuse(offset, f"term {state.term} after term {self.replay.hard_state.term}")
        self.replay.hard_state = state

    def _set_metadata(self, body: bytes, offset: int) -> None:
        if self._has_metadata and body != self.replay.metadata:
            self._refuse(
                offset, f"metadata was {self.replay.metadata.hex()}, found {body.hex()}: a conflict"
            )
        self._has_metadata = True
        self.replay.metadata = body

    def _add_snapshot(self, snapshot: WalSnapshot, offset: int) -> None:
        start, replay = self._start, self.replay
        if snapshot.index == start.index:
            if snapshot.term != start.term:
                self._refuse(
                    offset,
                    f"the snapshot at index {start.index} has term {snapshot.term}, not "
                    f"{start.term}",
                )
            if not self._found and self._term_at_start not in (0, start.term):
                # Received: the log before it was another one, and what it held beyond is no part.
                replay.entries.clear()
            self._found = True
        replay.snapshots.append(snapshot)
        replay.last_index = max(replay.last_index, snapshot.index)

    def _refuse_term(self, entry: Entry, offset: int) -> NoReturn:
        before = self.replay.entries[-1].term if self.replay.entries else 0
        self._refuse(offset, f"entry {entry.index} of term {entry.term} follows term {before}")

    def _refuse(self, offset: int, text: str) -> NoReturn:
        raise corruption(self._path, Fault(offset, text))


def corruption(path: Path, fault: Fault) -> CorruptionError:
    """Return the error that names a segment, an offset and what is wrong there."""
    return CorruptionError(f"{path}: corrupt at offset {fault.offset}: {fault.text}")


def read_snapshots(directory: Path, files: Files = _OS_FILES) -> list[WalSnapshot]:
    """Return the snapshots the log records up to the last commit, oldest first.

    Takes no lock and changes nothing. Raises CorruptionError, or DataDirError if there is no log.
    """
    return _valid_snapshots(_newest_first(directory, files), newest_only=False)


def read_last_snapshot(directory: Path, files: Files = _OS_FILES) -> WalSnapshot | None:
    """Return the last of read_snapshots; reads only the segments from its own on."""
    found = _valid_snapshots(_newest_first(directory, files), newest_only=True)
    return found[-1] if found else None


_Summary = tuple[list[WalSnapshot], HardState | None]  # of one segment


def _valid_snapshots(segments: Iterator[_Summary], *, newest_only: bool) -> list[WalSnapshot]:
    found: list[WalSnapshot] = []
    commit: int | None = None
    for snapshots, state in segments:
        found = snapshots + found
        if commit is None and state is not None:
            commit = state.commit
        if newest_only and commit is not None and any(s.index <= commit for s in found):
            break
    return [snapshot for snapshot in found if snapshot.index <= (commit or 0)]


def _newest_first(directory: Path, files: Files) -> Iterator[_Summary]:
    segments = list_segments(files, directory)
    if not segments:
        raise DataDirError(f"{directory}: no write-ahead log segment here")
    check_sequence(segments)
    next_crc: int | None = None
    for segment in reversed(segments):
        handle = files.open(segment.path)
        try:
            data, size_bytes = read_segment(files, handle)
        finally:
            files.close(handle)
        reader = SegmentReader(data, size_bytes, 0)
        summary = _summarize(segment.path, reader)
        fault = reader.fault
        is_last = next_crc is None
        if fault and not (is_last and is_torn_tail(data, size_bytes, fault.offset)):
            raise corruption(segment.path, fault)
        if next_crc is not None and next_crc != reader.crc:
            text = f"the records end with crc {reader.crc:08x}, the next segment has {next_crc:08x}"
            raise corruption(segment.path, Fault(reader.offset, text))
        next_crc = reader.opening_crc
        yield summary


def _summarize(path: Path, reader: SegmentReader) -> _Summary:
    snapshots: list[WalSnapshot] = []
    state_body: bytes | None = None
    for offset, kind, body in reader:
        if kind == STATE:
            state_body = body
        elif kind == SNAPSHOT:
            try:
                snapshots.append(decode_snapshot_body(body))
            except WireError as error:
                raise corruption(path, Fault(offset, f"unreadable snapshot: {error}")) from error
    return snapshots, None if state_body is None else decode_hard_state(state_body)
