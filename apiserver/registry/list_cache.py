"""The list cache: recent lists as joined JSON.

    cached = lists.find(ListRange(collection, start, end, limit))           None: read it
    cached = lists.keep(range_, records, total, is_cut=True)                None: not worth it
    cached.items()                      the JSON of its objects, with commas

A range is cached at its second request while its collection has not changed, so a client that pages
through everything once leaves nothing behind. A cached list is valid until its collection changes;
`forget_changed` drops the others. Lists are small (`RECORDS_MAX`), and their total size is bounded
(`BYTES_MAX`); the least recently used is evicted first.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.record import Record

RECORDS_MAX: Final = 500
BYTES_MAX: Final = 16 << 20
ASKED_MAX: Final = 1024
"""Number of ranges whose first request is remembered."""


class ListRange(NamedTuple):
    """A range of a collection: [start, end), at most `limit` records (0: all)."""

    collection: Collection
    start: str
    end: str | None
    limit: int


class CachedList:
    """The objects of a range at a version of their collection."""

    __slots__ = ("_items", "is_cut", "records", "total", "version")

    def __init__(self, version: int, records: list[Record], total: int, *, is_cut: bool) -> None:
        """total: number of records in the range; is_cut: there are more."""
        self.version: Final = version
        self.records: Final = records
        self.total: Final = total
        self.is_cut: Final = is_cut
        self._items: bytes | None = None

    def items(self) -> bytes:
        """Return the bodies as in a JSON list, between its brackets."""
        if self._items is None:
            self._items = b"{" + b",{".join([each.body for each in self.records])
        return self._items


class ListCache:
    """The cached lists of all collections."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max: Final = bytes_max
        self._kept: OrderedDict[ListRange, tuple[CachedList, int]] = OrderedDict()
        """Lists with their size in bytes, the most recently used at the end."""
        self._asked: OrderedDict[ListRange, int] = OrderedDict()
        """The version of its collection at which a range was requested."""
        self._bytes = 0

    def __len__(self) -> int:
        """Return the number of lists."""
        return len(self._kept)

    def find(self, range_: ListRange) -> CachedList | None:
        """Return the cached list of a range, if it is current."""
        cached = self._kept.get(range_)
        if cached is None:
            return None
        if cached[0].version != range_.collection.version:
            self._drop(range_)
            return None
        self._kept.move_to_end(range_)
        return cached[0]

    def keep(
        self, range_: ListRange, records: list[Record], total: int, *, is_cut: bool
    ) -> CachedList | None:
        """Cache what was just read of a range, if it is worthwhile; None: it is not."""
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
        """Drop the lists whose collections have changed."""
        for range_, (cached, _) in list(self._kept.items()):
            if cached.version != range_.collection.version:
                self._drop(range_)
        for range_, version in list(self._asked.items()):
            if version != range_.collection.version:
                del self._asked[range_]

    def _drop(self, range_: ListRange) -> None:
        self._bytes -= self._kept.pop(range_)[1]
