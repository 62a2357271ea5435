"""The interface of a state that is read from its first row to its last.

It is either etcd's database file or a commit in LMDB. Conversions, hashes and checks read both
through this. Rows come bucket by bucket, names and keys ascending: etcd's own order.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from kvstore.backend import BUCKETS, Row, Table


class RowSource(Protocol):
    """A state that does not change while it is read."""

    @property
    def path(self) -> Path:
        """Its path, which errors name."""
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
