"""HashKV: the hash by which members compare their records.

HashKV(R) of a store compacted at C (-1: never) is CRC-32C over the bytes "key" and then over
revision key and KeyValue of each of these records, in revision order:

    C < main <= R     all
    main <= C         those in keep(R): the value each key had at R. If keep(R) is empty: all.
                      Never a tombstone at C (members before 3.5.16 have removed it)

A compaction to K computes the same hash for R = K while it removes records: there C is the revision
compacted before, and keep is what the compaction keeps, tombstones at K included. The ten newest
of these are cached and answer HashKV(K) from then on, with that older C.

So one state can have two hashes: if the last keys were deleted at R itself, keep(R) is empty, but
not what a compaction at R keeps, and records up to C count in one and not in the other. Which one a
member returns depends on whether it has compacted at R. A result therefore contains both.

This is only the computation; compaction and hashing feed it the records.
"""

from operator import attrgetter
from typing import Final, NamedTuple

from google_crc32c import extend

from kvstore.backend import BUCKETS, Table
from kvstore.mvcc.revision import MARK, revision_key

CACHED_HASHES_MAX: Final = 10


class HashResult(NamedTuple):
    """A hash and what it covers; revision is the store's when the hash was requested."""

    hash: int
    compact_revision: int
    hash_revision: int
    revision: int
    alternative: int | None = (
        None  # the hash of a member that has compacted there and this one not, or the reverse
    )


class RecordHash:
    """The running hash of records fed in revision order.

    Whether keep is empty is known only later, so until the first kept record there are two sums:
    one without the records that are not kept, and one with all records. Tombstones at the hashed
    revision, which only compactions keep, do not end that.
    """

    __slots__ = (
        "_all_parts",
        "_crc",
        "_crc_all",
        "_is_bare",
        "_last",
        "_parts",
        "_saw_last",
        "_tombstones",
        "floor",
        "keep_is_empty",
    )

    def __init__(self, compact_revision: int, revision: int) -> None:
        """Hash up to revision; below 0 means 0, as there is no record."""
        self._crc = self._crc_all = extend(0, BUCKETS[Table.KEY])
        self._parts: list[bytes] = []
        self._all_parts: list[bytes] = []
        self.floor = revision_key(
            max(compact_revision + 1, 0)
        )  # revision keys below may be skipped
        self._tombstones = revision_key(max(compact_revision, 0))[:9]
        self.keep_is_empty = True  # so far
        self._is_bare = True  # so far only tombstones at the hashed revision are kept
        self._last = revision_key(max(revision, 0))[:9]
        self._saw_last = False  # a tombstone at the hashed revision

    def add(self, revkey: bytes, kv: bytes, is_kept: bool) -> None:  # noqa: FBT001
        """Add the next record; kept is used only if revkey < floor or keep_is_empty."""
        if self._is_bare:
            is_last = revkey[17:] == MARK and revkey.startswith(self._last)
            self._saw_last |= is_last
            self._is_bare = is_last or not is_kept
        if is_kept:
            self.keep_is_empty = False
        if revkey < self.floor:
            if revkey[17:] == MARK and revkey.startswith(self._tombstones):
                return
            if not is_kept:
                if self._is_bare:
                    self._all_parts += (revkey, kv)
                return
        self._parts += (revkey, kv)
        if self._is_bare:
            self._all_parts += (revkey, kv)

    def flush(self) -> None:
        """Hash the records added since the last flush and release them."""
        self._crc = extend(self._crc, b"".join(self._parts))
        if self._is_bare:
            self._crc_all = extend(self._crc_all, b"".join(self._all_parts))
        self._parts.clear()
        self._all_parts.clear()

    def value(self) -> int:
        """Return the hash of everything added."""
        self.flush()
        result: int = self._crc_all if self.keep_is_empty else self._crc
        return result

    def alternative(self) -> int | None:
        """Return the other hash of the same state; None if there is only one."""
        if not (self._is_bare and self._saw_last):
            return None
        self.flush()
        result: int = self._crc if self.keep_is_empty else self._crc_all
        return None if result == self.value() else result


class HashCache:
    """The hashes of the newest compactions, in memory only."""

    __slots__ = ("_results",)

    def __init__(self) -> None:
        self._results: list[HashResult] = []  # ascending by hash_revision

    def add(self, result: HashResult) -> None:
        """Add the hash of a finished compaction."""
        self._results.append(result)
        self._results.sort(key=attrgetter("hash_revision"))
        del self._results[:-CACHED_HASHES_MAX]

    def get(self, hash_revision: int) -> HashResult | None:
        """Return the cached hash of a revision."""
        for result in self._results:
            if result.hash_revision == hash_revision:
                return result
        return None

    def newest_first(self) -> list[HashResult]:
        """Return all cached hashes, the newest first."""
        return self._results[::-1]
