"""Reading ranges of keys: which keys, at which revision, and how many.

    range_end   b""   the single key      b"\\0"   every key >= key      else   key <= k < range_end

At the current revision only live keys are read, and the count needs only the two ends of the range.
At an older one the history of every key of the range is read. Its count is cheaper if little has
happened since: the current count, corrected by the keys changed since. Without this, paging through
a large range at a pinned revision would be too slow.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kvstore.mvcc.key_index import KeyIndex
from kvstore.mvcc.records import PAGE_ROWS_MAX, Records
from kvstore.mvcc.revision import revision_key
from kvstore.wire.splice import encode_kv, kv_key, parse_kv

CHANGED_COST: Final = 4  # reading a record costs about as much as reading so many histories


class RangeResult(NamedTuple):
    """Encoded KeyValues ascending by key, the number of keys in the range, the store's revision."""

    kvs: list[bytes]
    count: int  # type: ignore[assignment]  # hides tuple.count
    revision: int


class RangeReader:
    """Reads ranges at revisions that are known to be readable."""

    __slots__ = ("_index", "_records")

    def __init__(self, records: Records, index: KeyIndex) -> None:
        self._records = records
        self._index = index

    def keys_now(self, key: bytes, range_end: bytes, limit: int = 0) -> list[bytes]:
        """Return the live keys of a range, up to limit (0: all)."""
        if not range_end:
            return [key] if key in self._index.live else []
        return self._index.keys(key, _bound(range_end), limit)

    def count_now(self, key: bytes, range_end: bytes) -> int:
        """Return the number of live keys of a range."""
        if not range_end:
            return int(key in self._index.live)
        return self._index.count(key, _bound(range_end))

    def kvs_now(self, key: bytes, range_end: bytes, limit: int) -> list[bytes]:
        """Return the KeyValues of the live keys of a range, up to limit (0: all)."""
        if not range_end:
            revkey = self._index.current_revkey(key)
            return [] if revkey is None else [self._records.get_indexed(revkey)]
        keys = self._index.keys(key, _bound(range_end), limit)
        return self._records.get_many_indexed(self._index.current_revkeys(keys))

    def fields_now(self, keys: list[bytes], head: bytes, tail: bytes) -> bytes:
        """Return head, the KeyValues of live keys as fields 2 of a message, and tail."""
        return self._records.get_fields_indexed(self._index.current_revkeys(keys), head, tail)

    def keys_only_now(self, key: bytes, range_end: bytes, limit: int) -> list[bytes]:
        """Return the same as kvs_now, but without value and lease, from the index alone."""
        current = self._index.current_of_live
        found: list[bytes] = []
        for each in self.keys_now(key, range_end, limit):
            create, mod, version, _ = current(each)
            found.append(encode_kv(each, create, mod, version, b"", 0))
        return found

    def kvs_at(self, key: bytes, range_end: bytes, main: int, limit: int) -> list[bytes]:
        """Return the KeyValues of a range as they were at main, up to limit (0: all)."""
        revkey_at = self._index.revkey_at
        revkeys: list[bytes] = []
        for each in self._keys_ever(key, range_end):
            revkey = revkey_at(each, main)
            if revkey is not None:
                revkeys.append(revkey)
                if len(revkeys) == limit:
                    break
        return self._records.get_many_indexed(revkeys)

    def keys_only_at(self, key: bytes, range_end: bytes, main: int, limit: int) -> list[bytes]:
        """Return the same as kvs_at, but without value and lease."""
        found: list[bytes] = []
        for kv in self.kvs_at(key, range_end, main, limit):
            each, create, mod, version, _, _ = parse_kv(kv)
            found.append(encode_kv(each, create, mod, version, b"", 0))
        return found

    def count_at(self, key: bytes, range_end: bytes, main: int, now: int) -> int:
        """Return the number of keys of a range as it was at main; now: the newest main."""
        if not range_end:
            return int(self._index.revkey_at(key, main) is not None)
        bound = _bound(range_end)
        records_max = self._index.count_with_dead(key, bound) // CHANGED_COST
        if now - main < records_max:
            count = self._count_back(key, bound, main, records_max)
            if count is not None:
                return count
        return self._index.count_at(key, bound, main)

    def _keys_ever(self, key: bytes, range_end: bytes) -> Iterable[bytes]:
        if not range_end:
            return (key,)
        return self._index.walk_with_dead(key, _bound(range_end))

    def _count_back(
        self, start: bytes, bound: bytes | None, main: int, records_max: int
    ) -> int | None:
        """Return the current count corrected by changes after main; None above records_max."""
        index = self._index
        changed: set[bytes] = set()
        pager = self._records.pager(revision_key(main + 1), None)
        seen = 0
        while rows := pager.page(PAGE_ROWS_MAX):
            seen += len(rows)
            if seen > records_max:
                return None
            changed.update(kv_key(kv) for _, kv in rows)
        count = index.count(start, bound)
        for key in changed:
            if start <= key and (bound is None or key < bound):
                count += (index.revkey_at(key, main) is not None) - (key in index.live)
        return count


def _bound(range_end: bytes) -> bytes | None:
    return None if range_end == b"\0" else range_end
