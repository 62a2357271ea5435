"""The replicated log of one member: a list of entries with an offset, and three indexes into it.

         compacted │ in memory
    1 … offset     │ offset+1 … applied … committed … last
                   │            stable: saved up to here, anywhere from offset to last

Invariants: applied <= committed <= last; committed never decreases; a committed entry is never
replaced; an entry that is not stable is neither applied nor acknowledged. stable may be less than
committed (a quorum of others has saved the entry, this member has not yet).

A received snapshot replaces everything: the list then starts empty after the snapshot's index, and
nothing is applied before the snapshot is (`pending_snapshot`).

The log knows no terms except those of its entries, and no roles; it writes no files.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from kvstore.raft.model import Entry, EntryType, RaftError, Snapshot

# An upper bound for the encoded type, term, index and lengths in realistic logs; limits by
# entry_size need no exact size.
ENTRY_OVERHEAD_BYTES: Final = 24


def entry_size(entry: Entry) -> int:
    """Return the size of an entry that counts against limits, in bytes."""
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
        """The first index in memory (there may be no entry there yet)."""
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
        """Return the term of the entry at index; None if it is compacted or does not exist."""
        position = index - self.offset - 1
        if position >= 0:
            return self.entries[position].term if position < len(self.entries) else None
        return self.offset_term if position == -1 else None

    def matches(self, index: int, term: int) -> bool:
        """Return whether the entry at index is known and has this term."""
        return self.term_at(index) == term

    def is_up_to_date(self, last_index: int, last_term: int) -> bool:
        """Return whether a log with this last entry is as up-to-date as this one (Raft 5.4.1)."""
        own_term = self.last_term
        if last_term != own_term:
            return last_term > own_term
        return last_index >= self.last_index

    # Reading.

    def bounded(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Return entries first..last up to bytes_max, but at least one if there is any."""
        offset = self.offset + 1
        entries = self.entries[first - offset : last + 1 - offset]
        size_bytes = 0
        for count, entry in enumerate(entries):
            size_bytes += len(entry.data) + ENTRY_OVERHEAD_BYTES
            if size_bytes > bytes_max and count:
                return entries[:count]
        return entries

    def unstable(self) -> list[Entry]:
        """Return the entries that are not saved yet."""
        if self.stable >= self.offset + len(self.entries):
            return []
        return self.entries[self.stable - self.offset :]

    @property
    def applicable_index(self) -> int:
        """The last index that may be applied now: committed, saved, and no snapshot pending."""
        if self.pending_snapshot is not None:
            return self.applied
        return min(self.committed, self.stable)

    def has_unapplied_conf_change(self) -> bool:
        """Return whether a committed configuration change is not applied yet."""
        lo, hi = self.applied - self.offset, self.committed - self.offset
        return any(entry.type != EntryType.NORMAL for entry in self.entries[lo:hi])

    def conflict_hint(self, index: int, term: int) -> tuple[int, int]:
        """Return the last (index', term') with index' <= index and term' <= term.

        It is the last position where this log can agree with a log that has term at index, since
        terms never decrease along a log. The term is 0 if it is not known.
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
        """Append a leader's own entries, numbered by the caller from last_index + 1."""
        self.entries += entries

    def find_conflict(self, entries: Sequence[Entry]) -> int:
        """Return the position in entries of the first one that this log does not have."""
        offset, own, own_count = self.offset + 1, self.entries, len(self.entries)
        for count, entry in enumerate(entries):
            position = entry.index - offset
            if position >= own_count:
                return count
            if position >= 0 and own[position].term != entry.term:
                return count
        return len(entries)

    def replace_from(self, entries: list[Entry]) -> None:
        """Replace everything from the first entry's index on; committed entries must not be."""
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
        """Advance committed to index; return whether it changed."""
        if index <= self.committed:
            return False
        if index > self.last_index:
            raise RaftError(f"cannot commit {index}: the log ends at {self.last_index}")
        self.committed = index
        return True

    # Progress of the caller.

    def saved(self, index: int, term: int) -> None:
        """Note that everything up to (index, term) is saved, unless it was replaced meanwhile."""
        if index > self.stable and self.matches(index, term):
            self.stable = index

    def applied_to(self, index: int) -> None:
        """Note that everything up to index is applied."""
        if not self.applied <= index <= self.committed:
            raise RaftError(
                f"applied {index} is not between {self.applied} and committed {self.committed}"
            )
        term = self.term_at(index)
        if term is not None:  # else a snapshot has replaced the log, and is applied next
            self.applied, self.applied_term = index, term

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole log by a received snapshot, which is to be saved and applied."""
        metadata = snapshot.metadata
        self.offset, self.offset_term = metadata.index, metadata.term
        self.entries = []
        self.stable = self.committed = metadata.index
        self.pending_snapshot = snapshot

    def snapshot_applied(self, snapshot: Snapshot) -> None:
        """Note that a received snapshot is saved and applied."""
        metadata = snapshot.metadata
        if metadata.index > self.applied:
            self.applied, self.applied_term = metadata.index, metadata.term
        if self.pending_snapshot is snapshot:
            self.pending_snapshot = None

    def compact(self, index: int, bytes_max: int | None = None) -> int:
        """Drop entries up to index, which must be applied and saved; its term stays known.

        Stops after the entry that reaches bytes_max, if given. Returns the bytes of their data.
        """
        if index <= self.offset:
            return 0
        limit = min(self.applied, self.stable)
        if index > limit:
            raise RaftError(f"cannot compact to {index}: only {limit} is applied and saved")
        count = index - self.offset
        sizes = list(accumulate(len(entry.data) for entry in self.entries[:count]))
        if bytes_max is not None and sizes[-1] > bytes_max:
            count = bisect_left(sizes, bytes_max) + 1
        self.offset_term = self.entries[count - 1].term
        del self.entries[:count]
        self.offset += count
        return sizes[count - 1]
