"""From the records of the segments to raft's initial state.

    segments ──► records ──► Replay(metadata, hard state, entries after the start, snapshots)

Rules: entries come in the order they were written. An entry at an index that is already there
replaces that entry and all after it (a conflict of logs); one past the end is a gap. Of the states
the last counts. Metadata has one value in all segments. The start snapshot must be recorded, with
its term.

The checksum covers neither the type of a record nor the meaning of the log. So whatever raft cannot
have written is refused too: a state in another encoding than its only one, a term that goes back,
an entry that is replaced after it was committed or by one of the same term, a commit past the last
entry.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, NoReturn, Protocol

from kvstore.raft.model import EMPTY_HARD_STATE, Entry, EntryType, HardState
from kvstore.storage.wal.record import (
    CRC,
    ENTRY,
    METADATA,
    SNAPSHOT,
    STATE,
    Fault,
    WalSnapshot,
    decode_snapshot_body,
)
from kvstore.storage.wal.scan import corruption
from kvstore.wire.raft_codec import decode_entry, decode_hard_state, encode_hard_state
from kvstore.wire.varint import WireError

TERM_MAX: Final = (1 << 48) - 1  # no cluster holds so many elections; member ids are mostly above


class Records(Protocol):
    """The records of one segment: a SegmentReader, or a ScannedSegment."""

    offset: int  # the end of the last good record, once all were read
    crc: int  # the checksum there
    fault: Fault | None  # what follows it, None for nothing but zeros

    def __iter__(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield (offset of the frame, kind, body)."""
        ...


class Repair(NamedTuple):
    """A torn tail that was cut off."""

    path: Path
    offset: int  # where the segment was cut
    text: str  # the fault there
    broken_path: Path  # the copy of the segment as it was


@dataclass(slots=True)
class Replay:
    """The contents of the log after the start snapshot."""

    metadata: bytes = b""
    hard_state: HardState = EMPTY_HARD_STATE
    entries: list[Entry] = field(default_factory=list)
    snapshots: list[WalSnapshot] = field(default_factory=list)  # with index <= commit
    last_index: int = 0  # of the last entry or snapshot written; names the next segment
    repair: Repair | None = None


class Replayer:
    """Reads segments one after another, the oldest first, and builds the Replay."""

    __slots__ = ("_found", "_has_metadata", "_path", "_start", "_term_at_start", "crc", "replay")

    def __init__(self, start: WalSnapshot) -> None:
        self._start = start
        self._found = False
        self._has_metadata = False
        self._term_at_start = 0  # of the entry at the start's index, as last read; 0: none
        self._path = Path()
        self.crc = 0
        self.replay = Replay()

    def read(self, path: Path, records: Records) -> None:
        """Read the next segment; `records.fault` is for the caller to judge.

        Raises CorruptionError where the records are good and the log they make is not.
        """
        self._path = path
        start_index, entries, replay = self._start.index, self.replay.entries, self.replay
        has_metadata = False
        for offset, kind, body in records:
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
                        # An entry replaces all from its index on.
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
            missing = Fault(records.offset, "the segment ends before its metadata")
            raise corruption(path, records.fault or missing)
        self.crc = records.crc

    def finish(self) -> Replay:
        """Return the Replay after the last segment."""
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
        # A later leader's entry may be of an earlier term: what decides is how its log ended.
        # etcd's --force-new-cluster replaces entries of its own term by changes of members.
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
                # Received from a leader: the log before it was another one and is dropped.
                replay.entries.clear()
            self._found = True
        replay.snapshots.append(snapshot)
        replay.last_index = max(replay.last_index, snapshot.index)

    def _refuse_term(self, entry: Entry, offset: int) -> NoReturn:
        before = self.replay.entries[-1].term if self.replay.entries else 0
        self._refuse(offset, f"entry {entry.index} of term {entry.term} follows term {before}")

    def _refuse(self, offset: int, text: str) -> NoReturn:
        raise corruption(self._path, Fault(offset, text))
