"""The replicated log of one member: a list with an offset, and four marks on it.

         compacted │ kept in memory
    1 … offset     │ offset+1 … applied … committed … last
                   │            stable: saved up to here, anywhere from offset to last

The laws: applied <= committed <= last; committed never falls; what is committed is never replaced;
an entry that is not stable is neither applied nor acknowledged. stable may lie before committed (a
quorum of others has the entry, our disk not yet).

A received snapshot replaces everything: the list is then empty from the snapshot's index on, and
nothing is applied before the snapshot is (`pending_snapshot`).

It does not know terms beyond those of its entries, nor who leads; it writes nothing anywhere.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from kvstore.raft.model import Entry, EntryType, RaftError, Snapshot

# An upper bound for type, term, index and lengths around the data in realistic logs; the limits
# built on entry_size need no exact count.
ENTRY_OVERHEAD_BYTES: Final = 24


def entry_size(entry: Entry) -> int:
    """Return what an entry counts for against limits, in bytes."""
    return len(entry.data) + ENTRY_OVERHEAD_BYTES


@dataclass(slots=True)
class Log:
    """Entries after `offset`, and how far they are saved, committed and applied."""

    offset: int = 0
    offset_term: int = 0
    entries: list[Entry] = field(default_factory=list)
    stable: int = 0
    committed: int = 0
    applied: int = 0
    applied_term: int = 0
    pending_snapshot: Snapshot | None = None

    @property
    def first_index(self) -> int:
        """The first index still in memory (there may be no entry there yet)."""
        return self.offset + 1

    @property
    def last_index(self) -> int:
        """The index of the last entry, or the offset."""
        return self.offset + len(self.entries)

    @property
    def last_term(self) -> int:
        """The term of the last entry."""
        return self.entries[-1].term if self.entries else self.offset_term

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at index, or None if it is compacted or not there."""
        position = index - self.offset - 1
        if position >= 0:
            return self.entries[position].term if position < len(self.entries) else None
        return self.offset_term if position == -1 else None

    def matches(self, index: int, term: int) -> bool:
        """Tell whether the entry at index is known and of this term."""
        return self.term_at(index) == term

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Tell whether a log that ends so is at least as up-to-date as this one (Raft 5.4.1)."""
        own_term = self.last_term
        if last_term != own_term:
            return last_term > own_term
        return last_index >= self.last_index

    # Reading.

    def bounded(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Return entries first..last, cut after bytes_max; at least one if there is any."""
        offset = self.offset + 1
        entries = self.entries[first - offset : last + 1 - offset]
        size_bytes = 0
        for count, entry in enumerate(entries):
            size_bytes += len(entry.data) + ENTRY_OVERHEAD_BYTES
            if size_bytes > bytes_max and count:
                return entries[:count]
        return entries

    def unstable(self) -> list[Entry]:
        """Return the entries that are still to be saved."""
        if self.stable >= self.offset + len(self.entries):
            return []
        return self.entries[self.stable - self.offset :]

    @property
    def applicable_index(self) -> int:
        """How far entries may be applied now: committed, saved, and no snapshot before them."""
        if self.pending_snapshot is not None:
            return self.applied
        return min(self.committed, self.stable)

    def has_unapplied_conf_change(self) -> bool:
        """Tell whether a committed configuration change waits to be applied."""
        lo, hi = self.applied - self.offset, self.committed - self.offset
        return any(entry.type != EntryType.NORMAL for entry in self.entries[lo:hi])

    def conflict_hint(self, index: int, term: int) -> tuple[int, int]:
        """Return the last (index', term') with index' <= index and term' <= term.

        It is the furthest place where this log can still agree with one that holds term at index:
        terms only ever grow along a log. The term is 0 where it is not known.
        """
        while index > 0:
            own_term = self.term_at(index)
            if own_term is None:
                return index, 0
            if own_term <= term:
                return index, own_term
            index -= 1
        return 0, 0

    # Growing.

    def append(self, entries: list[Entry]) -> None:
        """Add a leader's own entries; the caller numbered them from last_index + 1."""
        self.entries += entries

    def find_conflict(self, entries: Sequence[Entry]) -> int:
        """Return the position in entries of the first that this log does not hold."""
        offset, own, own_count = self.offset + 1, self.entries, len(self.entries)
        for count, entry in enumerate(entries):
            position = entry.index - offset
            if position >= own_count:
                return count
            if position >= 0 and own[position].term != entry.term:
                return count
        return len(entries)

    def replace_from(self, entries: list[Entry]) -> None:
        """Put entries in the place of all from their first index on; nothing committed may go."""
        first = entries[0].index
        if not self.committed < first <= self.last_index + 1:
            raise RaftError(
                f"entries from {first} on cannot follow committed {self.committed}"
                f" and last {self.last_index}"
            )
        del self.entries[first - self.offset - 1 :]
        self.entries += entries
        self.stable = min(self.stable, first - 1)

    def commit_to(self, index: int) -> bool:
        """Move committed forward to index; tell whether it moved."""
        if index <= self.committed:
            return False
        if index > self.last_index:
            raise RaftError(f"cannot commit {index}: the log ends at {self.last_index}")
        self.committed = index
        return True

    # What the caller has done with it.

    def saved(self, index: int, term: int) -> None:
        """Take note that all up to (index, term) is saved, unless it was replaced meanwhile."""
        if index > self.stable and self.matches(index, term):
            self.stable = index

    def applied_to(self, index: int) -> None:
        """Take note that all up to index is applied."""
        if not self.applied <= index <= self.committed:
            raise RaftError(
                f"applied {index} is not between {self.applied} and committed {self.committed}"
            )
        term = self.term_at(index)
        if term is not None:  # else a snapshot has replaced the log since, and will be applied next
            self.applied, self.applied_term = index, term

    def restore(self, snapshot: Snapshot) -> None:
        """Let a received snapshot replace the whole log; it waits to be saved and applied."""
        metadata = snapshot.metadata
        self.offset, self.offset_term = metadata.index, metadata.term
        self.entries = []
        self.stable = self.committed = metadata.index
        self.pending_snapshot = snapshot

    def snapshot_applied(self, snapshot: Snapshot) -> None:
        """Take note that a received snapshot is saved and applied."""
        metadata = snapshot.metadata
        if metadata.index > self.applied:
            self.applied, self.applied_term = metadata.index, metadata.term
        if self.pending_snapshot is snapshot:
            self.pending_snapshot = None

    def compact(self, index: int) -> None:
        """Forget entries up to index, which must be applied and saved; its term stays known."""
        if index <= self.offset:
            return
        limit = min(self.applied, self.stable)
        if index > limit:
            raise RaftError(f"cannot compact to {index}: only {limit} is applied and saved")
        count = index - self.offset
        self.offset_term = self.entries[count - 1].term
        del self.entries[:count]
        self.offset = index
