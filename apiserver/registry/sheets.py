"""Lists that were just asked for, kept as they are joined, for who asks for the same.

    sheet = sheets.find(collection, start, end, limit)      None: read it
    sheet = sheets.keep(collection, start, end, limit, records, is_cut=True)
    sheet.items()                                           the JSON of its objects, with commas

A range is kept when it is asked for again while nothing of its collection has changed: who pages
through everything once leaves nothing behind. A sheet is good until something of the collection
changes. Sheets are small (`RECORDS_MAX`), and all together are bounded in bytes (`BYTES_MAX`); the
one that was not used for the longest time goes first.
"""

from collections import OrderedDict
from typing import Final, NamedTuple

from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.record import Record

RECORDS_MAX: Final = 500
BYTES_MAX: Final = 16 << 20
ASKED_MAX: Final = 1024
"""Ranges that were asked for once and are remembered."""


class Place(NamedTuple):
    """Which records of a collection: from start on and before end, so many at most (0: all)."""

    collection: Collection
    start: str
    end: str | None
    limit: int


class Sheet:
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


class Sheets:
    """The sheets of all collections."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        """Hold none."""
        self._bytes_max: Final = bytes_max
        self._kept: OrderedDict[Place, tuple[Sheet, int]] = OrderedDict()
        """With the size of each in bytes, the one used last at the end."""
        self._asked: OrderedDict[Place, int] = OrderedDict()
        """At which version of its collection a place was asked for."""
        self._bytes = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._kept)

    def find(self, place: Place) -> Sheet | None:
        """Return the sheet of a place as it is now."""
        found = self._kept.get(place)
        if found is None:
            return None
        if found[0].version != place.collection.version:
            self._drop(place)
            return None
        self._kept.move_to_end(place)
        return found[0]

    def keep(
        self, place: Place, records: list[Record], total: int, *, is_cut: bool
    ) -> Sheet | None:
        """Keep what was just read of a place, if it is worth it; None: it is not."""
        version = place.collection.version
        if not records or len(records) > RECORDS_MAX:
            return None
        if self._asked.pop(place, None) != version:
            self._asked[place] = version
            if len(self._asked) > ASKED_MAX:
                self._asked.popitem(last=False)
            return None
        size = sum(len(each.body) for each in records)
        if size > self._bytes_max // 4:
            return None
        sheet = Sheet(version, records, total, is_cut=is_cut)
        self._kept[place] = sheet, size
        self._bytes += size
        while self._bytes > self._bytes_max:
            self._drop(next(iter(self._kept)))
        return sheet

    def _drop(self, place: Place) -> None:
        self._bytes -= self._kept.pop(place)[1]
