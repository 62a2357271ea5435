"""Any state that can be read from its first row to its last: a database file, or a commit of ours.

Conversions, hashes and checks are written against this, so that they need not know which of the
two they read. Rows come bucket by bucket, names and keys ascending: etcd's own order.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from kvstore.mvcc.backend import BUCKETS, Row, Table


class RowSource(Protocol):
    """A state standing still."""

    @property
    def path(self) -> Path:
        """Where it was found; errors name it."""
        ...

    @property
    def size_bytes(self) -> int:
        """Pages ever used times page size."""
        ...

    def buckets(self) -> list[bytes]:
        """Return the names of the buckets, ascending."""
        ...

    def scan(self, bucket: bytes) -> Iterator[Row]:
        """Yield (key, value) of a bucket, keys ascending; KeyError if there is no such bucket."""
        ...


def small_rows(source: RowSource, table: Table) -> dict[bytes, bytes]:
    """Return all rows of a small table, none if the source lacks it."""
    name = BUCKETS[table]
    return dict(source.scan(name)) if name in source.buckets() else {}
