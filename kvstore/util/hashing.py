"""HashKV of a stored state, in two passes: one builds the key index, one computes the hash.

The hash and the index are the store's own code. A compaction that was scheduled and not finished
counts as finished: the records that it would remove are skipped, and the file is not changed.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from kvstore.backend import BUCKETS, Row, Table
from kvstore.errors import CorruptionError, DataDirError
from kvstore.mvcc.compaction import FINISHED, SCHEDULED
from kvstore.mvcc.key_index import KeyIndex
from kvstore.mvcc.rebuild import Leases, rebuild_from
from kvstore.mvcc.record_hash import HashResult, RecordHash
from kvstore.mvcc.revision import parse_revision_key, revision_key
from kvstore.mvcc.store import FIRST_REVISION, NEVER_COMPACTED
from kvstore.storage.row_source import RowSource, small_rows
from kvstore.util.progress import bar, tracked
from kvstore.wire.splice import kv_key
from kvstore.wire.varint import WireError

ROWS_PER_PAGE: Final = 1000
_KEY: Final = BUCKETS[Table.KEY]


class Index(NamedTuple):
    """The key index that a server would build at its start, and what belongs to it."""

    keys: KeyIndex
    leases: Leases
    revision: int
    compacted: int  # the revision of the last scheduled compaction; -1: never
    is_swept: bool  # whether that compaction has removed its records


def read_index(source: RowSource) -> Index:
    """Build the key index; CorruptionError if the records contradict each other."""
    if _KEY not in source.buckets():
        raise DataDirError(f"{source.path} is not an etcd database: it has no bucket 'key'")
    with bar("reading keys", source.size_bytes) as advance:
        try:
            keys, leases, last = rebuild_from(_pages(tracked(source.scan(_KEY), advance)))
        except (CorruptionError, WireError) as error:
            raise CorruptionError(f"{source.path}: bucket key: {error}") from error
    meta = small_rows(source, Table.META)
    finished = _compaction(source, meta, FINISHED)
    scheduled = _compaction(source, meta, SCHEDULED)
    compacted = max(finished, scheduled)
    revision = max(FIRST_REVISION, last, compacted)
    return Index(keys, leases, revision, compacted, is_swept=scheduled <= finished)


def hash_kv(source: RowSource, revision: int) -> HashResult:
    """Return HashKV at a revision, 0 for the current one.

    Raises DataDirError for a revision that is compacted or in the future, or a state without
    records; CorruptionError if the records contradict each other.
    """
    index = read_index(source)
    if not (revision == 0 or max(1, index.compacted) <= revision <= index.revision):
        is_future = revision > index.revision
        text = "is a future revision" if is_future else "has been compacted"
        raise DataDirError(
            f"mvcc: required revision {text}: requested {revision}, {source.path} has "
            f"{max(1, index.compacted)} to {index.revision}"
        )
    revision = revision or index.revision
    hasher = RecordHash(index.compacted, revision)
    end = revision_key(revision + 1)
    with bar("hashing", source.size_bytes) as advance:
        for rows in _pages(tracked(source.scan(_KEY), advance)):
            _feed(hasher, index, revision, [row for row in rows if row[0] < end])
            if rows[-1][0] >= end:
                break
    value, other = hasher.value(), hasher.alternative()
    return HashResult(value, index.compacted, revision, index.revision, other)


def _feed(hasher: RecordHash, index: Index, revision: int, rows: list[Row]) -> None:
    keys, compacted = index.keys, index.compacted
    for revkey, kv in rows:
        below = revkey < hasher.floor
        key = kv_key(kv) if below or hasher.keep_is_empty else b""
        if below and not index.is_swept and keys.compact_key(key, compacted) != revkey:
            continue  # the unfinished compaction removes it
        needs_check = below or hasher.keep_is_empty
        hasher.add(revkey, kv, needs_check and keys.revkey_at(key, revision) == revkey)
    hasher.flush()


def _pages(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while page := list(islice(rows, ROWS_PER_PAGE)):
        yield page


def _compaction(source: RowSource, meta: dict[bytes, bytes], name: bytes) -> int:
    row = meta.get(name)
    if row is None:
        return NEVER_COMPACTED
    try:
        return parse_revision_key(row)[0]
    except CorruptionError as error:
        raise CorruptionError(f"{source.path}: bucket meta: {name.decode()}: {error}") from error
