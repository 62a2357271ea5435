"""The list cache: lists that were just asked for, kept as joined JSON for the next request.

    cached = lists.find(ListRange(collection, start, end, limit))           None: read it
    cached = lists.keep(range_, records, total, is_cut=True)                None: not worth it
    cached.items()                      the JSON of its objects, with commas

A range is kept when it is asked for again while nothing of its collection has changed, so a client
that pages through everything once leaves nothing behind. A cached list is valid until its
collection changes; `forget_changed` drops those that are not. Lists are small (`RECORDS_MAX`), and
all together are bounded in bytes (`BYTES_MAX`); the least recently used goes first.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.record import Record

RECORDS_MAX: Final = 500
BYTES_MAX: Final = 16 << 20
ASKED_MAX: Final = 1024
"""Ranges that were asked for once and are remembered."""


class ListRange(NamedTuple):
    """Which records of a collection: from start on and before end, so many at most (0: all)."""

    collection: Collection
    start: str
    end: str | None
    limit: int


class CachedList:
    """The objects of a range, as they were at a version of their collection."""

    __slots__ = ("_items", "is_cut", "records", "total", "version")

    def __init__(self, version: int, records: list[Record], total: int, *, is_cut: bool) -> None:
        """Hold records; total: how many there are in the range; is_cut: there are more."""
        self.version: Final = version
        self.records: Final = records
        self.total: Final = total
        self.is_cut: Final = is_cut
        self._items: bytes | None = None

    def items(self) -> bytes:
        """Return the bodies as they stand in a JSON list, between its brackets."""
        if self._items is None:
            self._items = b"{" + b",{".join([each.body for each in self.records])
        return self._items


class ListCache:
    """The cached lists of all collections."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        """Hold none."""
        self._bytes_max: Final = bytes_max
        self._kept: OrderedDict[ListRange, tuple[CachedList, int]] = OrderedDict()
        """With the size of each in bytes, the one used last at the end."""
        self._asked: OrderedDict[ListRange, int] = OrderedDict()
        """At which version of its collection a range was asked for."""
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._kept)

    def find(self, range_: ListRange) -> CachedList | None:
        """Return the cached list of a range as it is now."""
        found = self._kept.get(range_)
        if found is None:
            return None
        if found[0].version != range_.collection.version:
            self._drop(range_)
            return None
        self._kept.move_to_end(range_)
        return found[0]

    def keep(
        self, range_: ListRange, records: list[Record], total: int, *, is_cut: bool
    ) -> CachedList | None:
        """Keep what was just read of a range, if it is worth it; None: it is not."""
        version = range_.collection.version
        if not records or len(records) > RECORDS_MAX:
            return None
        if self._asked.pop(range_, None) != version:
            self._asked[range_] = version
            if len(self._asked) > ASKED_MAX:
                self._asked.popitem(last=False)
            return None
        size = sum(len(each.body) for each in records)
        if size > self._bytes_max // 4:
            return None
        cached = CachedList(version, records, total, is_cut=is_cut)
        self._kept[range_] = cached, size
        self._bytes += size
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._kept)))
        return cached

    def forget_changed(self) -> None:
        """Drop the lists whose collections have changed; nobody will get them."""
        for range_, (cached, _) in list(self._kept.items()):
            if cached.version != range_.collection.version:
                self._drop(range_)
        for range_, version in list(self._asked.items()):
            if version != range_.collection.version:
                del self._asked[range_]

    def _drop(self, range_: ListRange) -> None:
        self._bytes -= self._kept.pop(range_)[1]
