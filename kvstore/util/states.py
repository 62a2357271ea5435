"""States to read: an open database file, an open commit of ours, and either with rows changed.

    with open_state(place, timeout_s) as state:  state.buckets(), state.scan(bucket)

    Altered(state, replaced={bucket: rows}, appended={bucket: rows})      read as if it were so

A conversion reads an Altered and writes what it reads, so the same alteration serves both formats
and the source is never touched.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

from kvstore.errors import CorruptionError, DataDirError
from kvstore.mvcc.backend import BUCKETS, Row, Table
from kvstore.storage.etcd_db.etcd_db import EtcdDbReader
from kvstore.storage.lmdb.backend import ReadSnapshot, open_reader
from kvstore.storage.row_source import RowSource
from kvstore.util import mapped_file
from kvstore.util.places import Kind, Place, patiently

CONSISTENT_INDEX: Final = b"consistent_index"
TERM: Final = b"term"

_TABLES: Final = {name: Table(number) for number, name in enumerate(BUCKETS)}


class LmdbState:
    """A commit of ours as a RowSource."""

    def __init__(self, snapshot: ReadSnapshot, path: Path) -> None:
        self._snapshot = snapshot
        self.path = path

    @property
    def size_bytes(self) -> int:
        """Pages ever used times page size."""
        return self._snapshot.size_bytes

    def buckets(self) -> list[bytes]:
        """Return the names of the tables, ascending."""
        return list(BUCKETS)

    def scan(self, bucket: bytes) -> Iterator[Row]:
        """Yield the rows of a table."""
        return self._snapshot.scan(_TABLES[bucket])


class Altered:
    """A state with the rows of some buckets replaced, or followed by more."""

    def __init__(
        self,
        source: RowSource,
        *,
        replaced: Mapping[bytes, Sequence[Row]],
        appended: Mapping[bytes, Sequence[Row]] | None = None,
    ) -> None:
        """Rows are ascending by key; those appended are greater than all of their bucket."""
        self._source = source
        self._replaced = replaced
        self._appended = appended or {}

    @property
    def path(self) -> Path:
        """Where the source was found."""
        return self._source.path

    @property
    def size_bytes(self) -> int:
        """The size of the source."""
        return self._source.size_bytes

    def buckets(self) -> list[bytes]:
        """Return the names of the buckets, ascending; all of etcd's are among them."""
        return sorted({*self._source.buckets(), *BUCKETS})

    def scan(self, bucket: bytes) -> Iterator[Row]:
        """Yield the rows of a bucket, altered."""
        rows = self._replaced.get(bucket)
        if rows is not None:
            return iter(rows)
        if bucket not in self._source.buckets():
            return iter(self._appended.get(bucket, ()))
        return chain(self._source.scan(bucket), self._appended.get(bucket, ()))


@contextmanager
def open_state(place: Place, timeout_s: float) -> Iterator[RowSource]:
    """Open the state of a place for reading.

    Raises DataDirError if another process has it for longer than timeout_s (0: no limit),
    CorruptionError if it is damaged.
    """
    if place.kind is Kind.KVSTORE:
        data_path = place.db / "data.mdb"
        _refuse_empty(data_path)
        mapped_file.note(data_path)
        with open_reader(place.member) as snapshot:
            yield LmdbState(snapshot, data_path)
    else:
        with patiently(lambda: EtcdDbReader(place.db), timeout_s) as reader:
            yield reader


def _refuse_empty(data_path: Path) -> None:
    try:
        size_bytes = data_path.stat().st_size
    except OSError as error:
        raise DataDirError(f"{data_path}: {error.strerror}") from error
    if size_bytes == 0:
        raise CorruptionError(f"{data_path}: offset 0: expected an LMDB file, the file is empty")
