"""The keys this proxy owns and what they hold: the part of leasing that decides and does no IO.

    acquire ─► begin_acquiring ─► acquired(create revision, row) ─► readable ─┐
                    └─ lost meanwhile: not installed                          │
    write   ─► writing(spans) ─► committed(revision, rows) ─► readable again ─┤
                    └─ failed: lost, for it may yet be carried out            │
    REVOKE, deletion, no room ─► lose ─► not acquired again for a pause ◄─────┘

Law: what `readable` returns is what the cluster holds, as long as the leasing key that was created
at `created` exists and every writer minds it. Hence a key is not readable while a write of ours is
under way, and what was lost is never taken back: only a new leasing key makes an owner again.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from kvstore.wire.gen import kv_pb2

KEYS_MAX: Final = 65_536
BYTES_MAX: Final = 256 << 20
PAUSE_S: Final = 2.0  # before a key that was lost may be acquired again; etcd's
_OPEN_END: Final = b"\0"

Span = tuple[bytes, bytes]  # key and range end; no end: the one key


class Owned:
    """One key."""

    __slots__ = ("created", "key", "revision", "row", "writes")

    def __init__(
        self, key: bytes, created: int, revision: int, row: kv_pb2.KeyValue | None
    ) -> None:
        self.key: Final = key
        self.created: Final = created  # create revision of the leasing key
        self.revision = revision  # row is what the key held then, and holds since
        self.row = row  # None: there is no such key
        self.writes = 0  # under way

    @property
    def size_bytes(self) -> int:
        return len(self.key) + (0 if self.row is None else len(self.row.value))


class Acquisition:
    """An attempt to own a key that is under way."""

    __slots__ = ("is_lost", "key")

    def __init__(self, key: bytes) -> None:
        self.key: Final = key
        self.is_lost = False


class Writing:
    """A write of ours that is under way, and the owned keys it may touch."""

    def __init__(self, owner: "OwnedKeys", singles: list[Owned], within: list[Owned]) -> None:
        self._owner = owner
        self.singles: Final = singles  # written by their name, at most once each
        self.within: Final = within  # in a range that is deleted
        self.is_settled = False

    def refused(self) -> None:
        """Note that nothing was written: a guard did not hold."""
        self.is_settled = True

    def committed(
        self, revision: int, rows: Sequence[kv_pb2.KeyValue | None], deleted: Iterable[Span]
    ) -> None:
        """Take what the singles hold now, in their order, and the ranges that were deleted."""
        for entry, row in zip(self.singles, rows, strict=True):
            self._owner.update(entry, revision, row)
        named = set(self.singles)
        spans = list(deleted)
        for entry in self.within:
            if entry not in named and any(is_within(entry.key, span) for span in spans):
                self._owner.update(entry, revision, None)
        self.is_settled = True


class OwnedKeys:
    """All of them, the least recently read first."""

    def __init__(
        self,
        now_s: Callable[[], float],
        on_loss: Callable[[Owned], None],
        *,
        keys_max: int = KEYS_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """Call on_loss with what this side gives up, whose leasing key is to be deleted."""
        self._now_s = now_s
        self._on_loss = on_loss
        self._keys_max: Final = keys_max
        self._bytes_max: Final = bytes_max
        self._entries: OrderedDict[bytes, Owned] = OrderedDict()
        self._acquisitions: dict[bytes, Acquisition] = {}
        self._lost_s: OrderedDict[bytes, float] = OrderedDict()
        self._size_bytes = 0

    def __len__(self) -> int:
        """Return how many keys are owned."""
        return len(self._entries)

    def get(self, key: bytes) -> Owned | None:
        """Return an owned key, readable or not."""
        return self._entries.get(key)

    def readable(self, key: bytes) -> Owned | None:
        """Return an owned key that no write of ours is changing."""
        entry = self._entries.get(key)
        if entry is None or entry.writes:
            return None
        self._entries.move_to_end(key)
        return entry

    # Acquiring.

    def may_acquire(self, key: bytes) -> bool:
        """Tell whether to try: it is not owned, not being acquired and not lost just now."""
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
        """Own the key by a leasing key that was created at revision, unless it is lost again."""
        entry = Owned(acquisition.key, revision, revision, row)
        if acquisition.is_lost:
            self._on_loss(entry)
            return
        self._entries[entry.key] = entry
        self._size_bytes += entry.size_bytes
        self._make_room()

    def end_acquiring(self, acquisition: Acquisition) -> None:
        """Note that an attempt is over, whatever came of it."""
        if self._acquisitions.get(acquisition.key) is acquisition:
            del self._acquisitions[acquisition.key]

    # Writing.

    @contextmanager
    def writing(self, spans: Sequence[Span]) -> Iterator[Writing]:
        """Hold back reads of what a write may touch; what it leaves unsettled is lost."""
        keys = dict.fromkeys(key for key, end in spans if not end)
        ranges = [span for span in spans if span[1]]
        singles = [self._entries[key] for key in keys if key in self._entries]
        within = self._within(ranges) if ranges else []
        for each in self._acquisitions.values() if ranges else ():
            if any(is_within(each.key, span) for span in ranges):
                each.is_lost = True
        touched = dict.fromkeys((*singles, *within))
        for entry in touched:
            entry.writes += 1
        write = Writing(self, singles, within)
        try:
            yield write
        finally:
            for entry in touched:
                entry.writes -= 1
                if not write.is_settled:
                    self.give_up(entry)

    def _within(self, ranges: Sequence[Span]) -> list[Owned]:
        entries = self._entries.values()
        return [each for each in entries if any(is_within(each.key, span) for span in ranges)]

    def update(self, entry: Owned, revision: int, row: kv_pb2.KeyValue | None) -> None:
        """Take what a key holds since a write at revision, unless something newer is known."""
        if self._entries.get(entry.key) is not entry or revision <= entry.revision:
            return
        self._size_bytes -= entry.size_bytes
        entry.revision, entry.row = revision, row
        self._size_bytes += entry.size_bytes
        if row is not None and row.lease:
            self.give_up(entry)  # when its lease ends, nobody asks the owner
        self._make_room()

    # Losing.

    def lose(self, key: bytes, *, created: int = 0, before: int = 0) -> None:
        """Forget a key: the one created then, or created before a revision; with neither, any."""
        acquisition = self._acquisitions.get(key)
        if acquisition is not None:
            acquisition.is_lost = True
        entry = self._entries.get(key)
        if entry is None or (created and entry.created != created):
            return
        if not before or entry.created < before:
            self._forget(entry)

    def give_up(self, entry: Owned) -> None:
        """Own a key no more, and say so."""
        if self._entries.get(entry.key) is entry:
            self._forget(entry)
            self._on_loss(entry)

    def clear(self) -> None:
        """Forget all keys, and those being acquired: they are not owned by any name of ours."""
        for acquisition in self._acquisitions.values():
            acquisition.is_lost = True
        self._entries.clear()
        self._size_bytes = 0

    def _forget(self, entry: Owned) -> None:
        del self._entries[entry.key]
        self._size_bytes -= entry.size_bytes
        now_s = self._now_s()
        while self._lost_s and now_s - next(iter(self._lost_s.values())) >= PAUSE_S:
            self._lost_s.popitem(last=False)
        self._lost_s[entry.key] = now_s
        self._lost_s.move_to_end(entry.key)

    def _make_room(self) -> None:
        while len(self._entries) > self._keys_max or self._size_bytes > self._bytes_max:
            self.give_up(next(iter(self._entries.values())))


def is_within(key: bytes, span: Span) -> bool:
    """Tell whether a key lies in a span."""
    start, end = span
    if not end:
        return key == start
    return start <= key and (end == _OPEN_END or key < end)


def do_meet(one: Span, other: Span) -> bool:
    """Tell whether two ranges share a key."""
    (start, end), (other_start, other_end) = one, other
    is_first_open, is_other_open = end == _OPEN_END, other_end == _OPEN_END
    return (is_first_open or other_start < end) and (is_other_open or start < other_end)
