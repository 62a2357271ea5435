"""The objects of one resource in memory, in the order of their keys, and what changed lately.

    collection.get("a/web")                      → Record or None
    collection.between("a/", "a0", at=None)      records in order
    collection.apply([(9, "a/web", record)])     what the store's watch brings

`listeners` are called after each batch that changed something, on the event loop; they may not
fail. The watch cache (watch_cache.py) is the only writer.

What this server has just stored is known here before the watch brings it (`stored`): it is the
first guess of the next write of the same object, and spares reading it again.

Objects that expire by themselves are many and seldom read: they are compressed once they have left
the window of changes, and by `pack` if nothing changes.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple, cast

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.registry.codec import Codec
from kvstack.apiserver.registry.record import NOT_TRANSFORMABLE, PackedRecords, Record
from kvstack.apiserver.registry.sorted_keys import SortedKeys
from kvstack.apiserver.registry.transformer import Transformer, TransformError
from kvstack.apiserver.registry.window import Change, Window
from kvstack.component.packing import Packed, Packing

Listener = Callable[[Sequence[Change]], None]

STORED_MAX: Final = 10_000
PACKED_AT_ONCE: Final = 32
"""Records, which takes a millisecond or two."""
TOGETHER: Final = 32
"""Records that are held together once they are packed."""


class OwnWrite(NamedTuple):
    """What this server stored: the record, or None if it was deleted, and when."""

    revision: int
    record: Record | None


class Extent(NamedTuple):
    """Objects in order, and how many they are."""

    records: Iterable[Record]
    size: int


class Collection:
    """The objects of one resource."""

    def __init__(
        self,
        resource: GroupResource,
        prefix: str,
        make_codec: Callable[[], Codec],
        *,
        is_namespaced: bool,
    ) -> None:
        """Begin empty; make_codec is called when somebody reads or writes an object."""
        self.resource: Final = resource
        """As errors name it."""
        self.prefix: Final = prefix
        """Of its keys, below the root."""
        self._make_codec = make_codec
        self.is_namespaced: Final = is_namespaced
        self.listeners: list[Listener] = []
        self.on_reset: list[Callable[[], None]] = []
        """Called when the watch cache was read anew, before the listeners."""
        self.window = Window(0)
        self.version = 0
        """Raised by each batch that changed something."""
        self.revision = 0
        """Of the last change."""
        self.transformer: Transformer | None = None
        """How values are encrypted; None: they are not."""
        self.broken: dict[str, Record] = {}
        """Those that cannot be read."""
        self._records: dict[str, Record | PackedRecords] = {}
        self._keys = SortedKeys()
        self._own: dict[str, OwnWrite] = {}
        self._held_bytes = 0
        """What the objects take in memory, about."""
        self._packing = Packing()
        self._expiring: deque[tuple[int, str]] = deque()
        """Revisions and keys of what expires and is not packed, the oldest first."""
        self._expires = False
        """Whether there were objects that expire."""

    @cached_property
    def codec(self) -> Codec:
        """What reads and writes its values; made when it is first asked for.

        Most clusters have objects of few kinds, and what a kind needs takes long to load.
        """
        return self._make_codec()

    def remake_codec(self, make_codec: Callable[[], Codec]) -> None:
        """Read and write by another codec from now on; what was read has to be read anew."""
        self._make_codec = make_codec
        self.__dict__.pop("codec", None)

    def read(self, key: str, value: bytes, revision: int, lease: int = 0) -> Record:
        """Return the record of a stored value; one with an error if it cannot be read."""
        if self.transformer is not None:
            try:
                value = self.transformer.from_storage(key, value).value
            except TransformError as error:
                head = self.codec.head
                text = f"{NOT_TRANSFORMABLE}{error}"
                return Record(key, revision, head, b"", -1, lease=lease, error=text)
        return self.codec.read(key, value, revision, lease)

    def value(self, key: str, body: bytes) -> bytes:
        """Return a body as it is stored; raises ApiError if it cannot be encrypted."""
        plain = self.codec.value(body)
        if self.transformer is None:
            return plain
        try:
            return self.transformer.to_storage(key, plain)
        except TransformError as error:
            raise status.internal_error(str(error)) from error

    def __len__(self) -> int:
        """Return how many objects there are."""
        return len(self._records)

    def get(self, key: str) -> Record | None:
        """Return an object."""
        found = self._records.get(key)
        return found.record(key) if isinstance(found, PackedRecords) else found

    def guess(self, key: str) -> Record | None:
        """Return an object as this server last saw or stored it, whichever is newer."""
        own = self._own.get(key)
        return self.get(key) if own is None else own.record

    def count(self, start: str = "", end: str | None = None) -> int:
        """Return how many keys there are from start on and before end."""
        return self._keys.count(start, end)

    def between(self, start: str = "", end: str | None = None) -> Iterator[Record]:
        """Iterate over the objects from start on and before end, in order of their keys."""
        keys = self._keys.between(start, end)
        if self._expires:
            return map(self._at, keys)
        records = cast("dict[str, Record]", self._records)  # only what expires is packed
        return map(records.__getitem__, keys)

    def _at(self, key: str) -> Record:
        found = self._records[key]
        return found.record(key) if isinstance(found, PackedRecords) else found

    def between_at(self, revision: int, start: str, end: str | None) -> "Extent":
        """Return the objects as they were at a revision; ForgottenError."""
        if revision >= self.revision:
            return Extent(self.between(start, end), self.count(start, end))
        past = {
            key: record
            for key, record in self.window.past(revision).items()
            if key >= start and (end is None or key < end)
        }
        size = self.count(start, end)
        size += sum((each is not None) - (key in self._records) for key, each in past.items())
        return Extent(self._merged(past, start, end), size)

    def _merged(
        self, past: dict[str, Record | None], start: str, end: str | None
    ) -> Iterator[Record]:
        """Iterate over the objects of now, with those of the past in their places."""
        removed = sorted(
            key for key, record in past.items() if record is not None and key not in self._records
        )
        gone = iter(removed)
        next_gone = next(gone, None)
        for key in self._keys.between(start, end):
            while next_gone is not None and next_gone < key:
                yield self._past(past, next_gone)
                next_gone = next(gone, None)
            if key not in past:
                yield self._at(key)
            elif past[key] is not None:
                yield self._past(past, key)
        while next_gone is not None:
            yield self._past(past, next_gone)
            next_gone = next(gone, None)

    @staticmethod
    def _past(past: dict[str, Record | None], key: str) -> Record:
        record = past[key]
        assert record is not None, "only keys that had an object are read"
        return record

    # The watch cache's side.

    def stored(self, key: str, revision: int, record: Record | None) -> None:
        """Note what this server stored and the watch has not brought; None: it deleted it."""
        known = self._own.get(key)
        if known is None:
            if len(self._own) < STORED_MAX:
                self._own[key] = OwnWrite(revision, record)
        elif known.revision < revision:
            self._own[key] = OwnWrite(revision, record)

    def own(self, key: str, revision: int) -> Record | None:
        """Return what this server stored at a revision, if it is known."""
        found = self._own.get(key)
        return found.record if found is not None and found.revision == revision else None

    def apply(self, arrived: Sequence[tuple[int, str, Record | None]]) -> None:
        """Take what changed: revision, key, and the object or None; tell the listeners."""
        changes: list[Change] = []
        records = self._records
        for revision, key, record in arrived:
            found = records.get(key)
            previous = found.alone(key) if isinstance(found, PackedRecords) else found
            own = self._own.get(key)
            if own is not None and own.revision <= revision:
                del self._own[key]
            if record is not None:
                self._held_bytes += record.held_bytes
                if record.lease:
                    self._expires = True
                    self._expiring.append((revision, key))
                if previous is None:
                    key = record.key  # held once
                    self._keys.add(key)
                else:
                    key = record.key = previous.key  # held once
                    if record.labels == previous.labels:
                        record.labels = previous.labels
                records[key] = record
                if record.error:
                    self.broken[key] = record
                elif self.broken:
                    self.broken.pop(key, None)
            elif previous is not None:
                del records[key]
                self._keys.remove(key)
                self.broken.pop(key, None)
            else:
                continue
            if previous is not None:
                self._held_bytes -= previous.held_bytes
            if isinstance(found, PackedRecords) and found.leave():
                self._pack_again(found)
            changes.append(Change(revision, key, record, previous))
        if changes:
            self._changed(changes)

    def _changed(self, changes: list[Change]) -> None:
        self.version += 1
        self.revision = changes[-1].revision
        self.window.fit(self._held_bytes, expires=self._expires)
        self.window.add(changes)
        for each in self.listeners:
            each(changes)
        waiting = self._expiring
        if len(waiting) > PACKED_AT_ONCE and waiting[PACKED_AT_ONCE][0] <= self.window.since:
            self.pack(self.window.since, PACKED_AT_ONCE)

    def pack(self, revision: int, most: int) -> int:
        """Compress what expires and is as old as a revision; return how many were looked at."""
        looked = 0
        records: list[Record] = []
        bodies: list[Packed] = []
        while looked < most and self._expiring and self._expiring[0][0] <= revision:
            stored_at, key = self._expiring.popleft()
            record = self._records.get(key)
            if not isinstance(record, Record) or record.revision != stored_at:
                continue
            looked += 1
            body = None if record.error else self._packing.of(record.body)
            if body is not None:
                records.append(record)
                bodies.append(body)
        for at in range(0, len(records), TOGETHER):
            packed = PackedRecords(records[at : at + TOGETHER], bodies[at : at + TOGETHER])
            self._records |= dict.fromkeys(packed.keys, packed)
            self._held_bytes += packed.held_bytes
        self._held_bytes -= sum(each.held_bytes for each in records)
        return looked

    def _pack_again(self, packed: PackedRecords) -> None:
        """Hold what is left of some records without those that have changed or gone."""
        left = [key for key in packed.keys if self._records.get(key) is packed]
        if left:
            again = PackedRecords.of([packed.record(key) for key in left])
            self._records |= dict.fromkeys(left, again)

    def fill(self, records: Iterable[Record], revision: int) -> None:
        """Replace everything by what was read at a revision; listeners get the differences."""
        before = {each.key: each for each in self.between()}
        found = {each.key: each for each in records}
        self._records = {**found}
        self._keys = SortedKeys(found)
        self.broken = {key: each for key, each in found.items() if each.error}
        self._own.clear()
        self._held_bytes = sum(each.held_bytes for each in found.values())
        expiring = sorted((each.revision, key) for key, each in found.items() if each.lease)
        self._expiring = deque(expiring)
        self._expires = bool(expiring)
        self.window = Window(revision)
        self.window.fit(self._held_bytes, expires=self._expires)
        self.version += 1
        self.revision = revision
        for begin_again in self.on_reset:
            begin_again()
        changes = [
            Change(revision, key, record, before.get(key))
            for key, record in found.items()
            if before.get(key) is None or before[key].revision != record.revision
        ]
        changes += [
            Change(revision, key, None, record)
            for key, record in before.items()
            if key not in found
        ]
        if changes:
            for each in self.listeners:
                each(changes)
