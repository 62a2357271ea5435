"""The rows that a member in memory begins with: a state of another store, at its own revisions.

    FirstRows(records, revision=48211, readable_from=48211, leases={7: 3600})

    records          KeyValues in the order of their revisions; version 0 is a deletion
    revision         the store's current one
    readable_from    the first revision that can be read; below it, everything is compacted
    leases           the TTL in seconds of each lease that a record names

Records may be a history: of each key, then, the newest at or before `readable_from`, and all after.
Without a history `readable_from` is `revision`. Records of one revision are one transaction.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from kvstore.backend import Backend, Row, Table
from kvstore.client.values import KeyValue
from kvstore.errors import DataDirError
from kvstore.lease.lessor import TTL_MAX_S
from kvstore.lease.row import encode_row, row_key
from kvstore.mvcc.compaction import FINISHED, SCHEDULED
from kvstore.mvcc.revision import MARK, SEPARATOR, pack, revision_key
from kvstore.wire.splice import encode_kv, encode_tombstone

REVISION_MAX: Final = (1 << 63) - 1


class FirstRows(NamedTuple):
    """A state to begin with; see the module's text."""

    records: Iterable[KeyValue]
    revision: int
    readable_from: int
    leases: Mapping[int, int] = {}


def lay(rows: FirstRows, backend: Backend) -> None:
    """Put rows into an empty backend and commit; DataDirError names an invalid row."""
    if not 1 <= rows.readable_from <= rows.revision <= REVISION_MAX:
        raise DataDirError(
            f"a store at revision {rows.revision} cannot be read from {rows.readable_from} on: "
            f"1 to {REVISION_MAX}, and the second not above the first"
        )
    for lease_id, ttl_s in rows.leases.items():
        if not 0 < ttl_s <= TTL_MAX_S:
            raise DataDirError(
                f"lease {lease_id:x}: TTL {ttl_s} s is not between 1 and {TTL_MAX_S}"
            )
        backend.put(Table.LEASE, row_key(lease_id), encode_row(lease_id, ttl_s, 0))
    backend.append(Table.KEY, _records(rows))
    last = backend.last(Table.KEY)
    is_behind = last is None or last[0][:8] < revision_key(rows.revision)[:8]
    if is_behind and rows.readable_from < rows.revision:
        raise DataDirError(
            f"no record has revision {rows.revision}, but earlier revisions are readable: the "
            "state at that revision is not known"
        )
    mark = revision_key(rows.readable_from)
    backend.put(Table.META, SCHEDULED, mark)
    backend.put(Table.META, FINISHED, mark)
    backend.commit()


def _records(rows: FirstRows) -> Iterator[Row]:
    main = sub = 0
    for key, value, create, mod, version, lease in rows.records:
        if mod == main:
            sub += 1
        elif main < mod <= rows.revision:
            main, sub = mod, 0
        else:
            raise DataDirError(
                f"key {key!r} has revision {mod}, after one of {main} and in a store at "
                f"{rows.revision}"
            )
        if not key:
            raise DataDirError(f"a record of revision {mod} has no key")
        revkey = pack(main, SEPARATOR, sub)
        if not version:
            yield revkey + MARK, encode_tombstone(key)
            continue
        if not 0 < create <= mod:
            raise DataDirError(
                f"key {key!r} has create revision {create}, not from 1 to mod revision {mod}"
            )
        if lease and lease not in rows.leases:
            raise DataDirError(f"key {key!r} has lease {lease:x}, which is not among the leases")
        yield revkey, encode_kv(key, create, mod, version, value, lease)
