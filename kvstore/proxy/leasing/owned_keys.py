"""The keys that this proxy owns, with their rows: the state of leasing, without IO.

    acquire ─► begin_acquiring ─► acquired(create revision, row) ─► readable ─┐
                    └─ lost meanwhile: not added                              │
    write   ─► writing(spans) ─► committed(revision, rows) ─► readable again ─┤
                    └─ failed: lost, because it may still be carried out      │
    REVOKE, deletion, no room ─► lose ─► not acquired again for a pause ◄─────┘

Invariant: a row that `readable` returns is the cluster's, as long as the leasing key with create
revision `created` exists and all writers use guards. Therefore a key is not readable while a write
of ours is in flight, and a lost key is owned again only with a new leasing key.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kvstore.proxy.key_ranges import KeyRange, contains
from kvstore.wire.gen import kv_pb2

KEYS_MAX: Final = 65_536
BYTES_MAX: Final = 256 << 20
PAUSE_S: Final = 2.0  # before a lost key is acquired again; etcd's


class OwnedKey:
    """One key, with its row."""

    __slots__ = ("created", "key", "revision", "row", "writes")

    def __init__(
        self, key: bytes, created: int, revision: int, row: kv_pb2.KeyValue | None
    ) -> None:
        self.key: Final = key
        self.created: Final = created  # create revision of the leasing key
        self.revision = revision  # the row has been the current one since then
        self.row = row  # None: there is no such key
        self.writes = 0  # in flight

    @property
    def size_bytes(self) -> int:
        return len(self.key) + (0 if self.row is None else len(self.row.value))


class Acquisition:
    """An attempt to own a key that is in flight."""

    __slots__ = ("is_lost", "key")

    def __init__(self, key: bytes) -> None:
        self.key: Final = key
        self.is_lost = False


class PendingWrite:
    """A write of ours that is in flight, and the owned keys that it may change."""

    def __init__(self, owner: "OwnedKeys", singles: list[OwnedKey], within: list[OwnedKey]) -> None:
        self._owner = owner
        self.singles: Final = singles  # those it names, each once
        self.within: Final = within  # those in a range that it deletes
        self.is_resolved = False

    def refused(self) -> None:
        """Note that nothing was written: a guard did not hold."""
        self.is_resolved = True

    def committed(
        self, revision: int, rows: Sequence[kv_pb2.KeyValue | None], deleted: Iterable[KeyRange]
    ) -> None:
        """Update the keys from the rows of the singles, in their order, and the deleted ranges."""
        for entry, row in zip(self.singles, rows, strict=True):
            self._owner.update(entry, revision, row)
        named = set(self.singles)
        spans = list(deleted)
        for entry in self.within:
            if entry not in named and any(contains(span, entry.key) for span in spans):
                self._owner.update(entry, revision, None)
        self.is_resolved = True


class OwnedKeys:
    """All owned keys, the least recently read first."""

    def __init__(
        self,
        now_s: Callable[[], float],
        on_loss: Callable[[OwnedKey], None],
        *,
        keys_max: int = KEYS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """Call on_loss with each key that this side releases; its leasing key is to be deleted."""
        self._now_s = now_s
        self._on_loss = on_loss
        self._keys_max: Final = keys_max
        self._bytes_max: Final = bytes_max
        self._entries: OrderedDict[bytes, OwnedKey] = OrderedDict()
        self._acquisitions: dict[bytes, Acquisition] = {}
        self._lost_s: OrderedDict[bytes, float] = OrderedDict()
        self._size_bytes = 0

    def __len__(self) -> int:
        """Return how many keys are owned."""
        return len(self._entries)

    def get(self, key: bytes) -> OwnedKey | None:
        """Return an owned key, readable or not."""
        return self._entries.get(key)

    def readable(self, key: bytes) -> OwnedKey | None:
        """Return an owned key that no write of ours may be changing."""
        entry = self._entries.get(key)
        if entry is None or entry.writes:
            return None
        self._entries.move_to_end(key)
        return entry

    # Acquiring.

    def may_acquire(self, key: bytes) -> bool:
        """Return whether a key is not owned, not being acquired and was not lost just now."""
        lost_s = self._lost_s.get(key)
        if lost_s is not None and self._now_s() - lost_s < PAUSE_S:
            return False
        return key not in self._entries and key not in self._acquisitions

    def begin_acquiring(self, key: bytes) -> Acquisition:
        """Note an attempt; end_acquiring() must follow."""
        self._acquisitions[key] = acquisition = Acquisition(key)
        return acquisition

    def acquired(
        self, acquisition: Acquisition, revision: int, row: kv_pb2.KeyValue | None
    ) -> None:
        """Own a key, whose leasing key was created at revision, unless it was lost meanwhile."""
        entry = OwnedKey(acquisition.key, revision, revision, row)
        if acquisition.is_lost:
            self._on_loss(entry)
            return
        self._entries[entry.key] = entry
        self._size_bytes += entry.size_bytes
        self._make_room()

    def end_acquiring(self, acquisition: Acquisition) -> None:
        """Note that an attempt has ended."""
        if self._acquisitions.get(acquisition.key) is acquisition:
            del self._acquisitions[acquisition.key]

    # Writing.

    @contextmanager
    def writing(self, spans: Sequence[KeyRange]) -> Iterator[PendingWrite]:
        """Make keys that a write may change unreadable; they are released unless it is resolved."""
        keys = dict.fromkeys(key for key, end in spans if not end)
        ranges = [span for span in spans if span[1]]
        singles = [self._entries[key] for key in keys if key in self._entries]
        within = self._within(ranges) if ranges else []
        for each in self._acquisitions.values() if ranges else ():
            if any(contains(span, each.key) for span in ranges):
                each.is_lost = True
        touched = dict.fromkeys((*singles, *within))
        for entry in touched:
            entry.writes += 1
        write = PendingWrite(self, singles, within)
        try:
            yield write
        finally:
            for entry in touched:
                entry.writes -= 1
                if not write.is_resolved:
                    self.release(entry)

    def _within(self, ranges: Sequence[KeyRange]) -> list[OwnedKey]:
        entries = self._entries.values()
        return [each for each in entries if any(contains(span, each.key) for span in ranges)]

    def update(self, entry: OwnedKey, revision: int, row: kv_pb2.KeyValue | None) -> None:
        """Set a key's row since a write at revision, unless a newer row is known."""
        if self._entries.get(entry.key) is not entry or revision <= entry.revision:
            return
        self._size_bytes -= entry.size_bytes
        entry.revision, entry.row = revision, row
        self._size_bytes += entry.size_bytes
        if row is not None and row.lease:
            self.release(entry)  # the end of its lease will not ask the owner
        self._make_room()

    # Losing.

    def lose(self, key: bytes, *, created: int = 0, before: int = 0) -> None:
        """Forget a key whose leasing key was created at a revision, or before one; default: any."""
        acquisition = self._acquisitions.get(key)
        if acquisition is not None:
            acquisition.is_lost = True
        entry = self._entries.get(key)
        if entry is None or (created and entry.created != created):
            return
        if not before or entry.created < before:
            self._forget(entry)

    def release(self, entry: OwnedKey) -> None:
        """Forget a key and call on_loss."""
        if self._entries.get(entry.key) is entry:
            self._forget(entry)
            self._on_loss(entry)

    def clear(self) -> None:
        """Forget all keys, and those being acquired: the session that owned them has ended."""
        for acquisition in self._acquisitions.values():
            acquisition.is_lost = True
        self._entries.clear()
        self._size_bytes = 0

    def _forget(self, entry: OwnedKey) -> None:
        del self._entries[entry.key]
        self._size_bytes -= entry.size_bytes
        now_s = self._now_s()
        while self._lost_s and now_s - next(iter(self._lost_s.values())) >= PAUSE_S:
            self._lost_s.popitem(last=False)
        self._lost_s[entry.key] = now_s
        self._lost_s.move_to_end(entry.key)

    def _make_room(self) -> None:
        while len(self._entries) > self._keys_max or self._size_bytes > self._bytes_max:
            self.release(next(iter(self._entries.values())))
