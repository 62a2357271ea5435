"""States to read: an etcd database file, an LMDB commit, and either of them with changed rows.

    with open_state(location, timeout_s) as state:  state.buckets(), state.scan(bucket)

    AlteredState(state, replaced={bucket: rows}, appended={bucket: rows})      a view with changes

A conversion reads an AlteredState and writes what it reads. So the same changes work for both
formats, and the source is never changed.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Final

from kvstore.backend import BUCKETS, Row, Table
from kvstore.errors import CorruptionError, DataDirError
from kvstore.storage.etcd_db.reader import EtcdDbReader
from kvstore.storage.lmdb.readers import ReadSnapshot, open_reader
from kvstore.storage.row_source import RowSource
from kvstore.util import mapped_file
from kvstore.util.locations import DataFormat, Location, retry_while_locked

CONSISTENT_INDEX: Final = b"consistent_index"
TERM: Final = b"term"

TABLES: Final = {name: Table(number) for number, name in enumerate(BUCKETS)}


class LmdbState:
    """An LMDB commit as a RowSource."""

    def __init__(self, snapshot: ReadSnapshot, path: Path) -> None:
        self._snapshot = snapshot
        self.path = path

    @property
    def has_checksums(self) -> bool:
        """Whether its rows have checksums."""
        return self._snapshot.has_checksums

    @property
    def size_bytes(self) -> int:
        """The number of pages ever used times the page size."""
        return self._snapshot.size_bytes

    def buckets(self) -> list[bytes]:
        """Return the names of the tables, ascending."""
        return list(BUCKETS)

    def scan(self, bucket: bytes) -> Iterator[Row]:
        """Yield the rows of a table."""
        return self._snapshot.scan(TABLES[bucket])


class AlteredState:
    """A state with the rows of some buckets replaced, or followed by more."""

    def __init__(
        self,
        source: RowSource,
        *,
        replaced: Mapping[bytes, Sequence[Row]],
        appended: Mapping[bytes, Sequence[Row]] | None = None,
    ) -> None:
        """Rows are in ascending order; those appended are greater than all of their bucket."""
        self._source = source
        self._replaced = replaced
        self._appended = appended or {}

    @property
    def path(self) -> Path:
        """The path of the source."""
        return self._source.path

    @property
    def size_bytes(self) -> int:
        """The size of the source."""
        return self._source.size_bytes

    def buckets(self) -> list[bytes]:
        """Return the names of the buckets, ascending; they include all of etcd's."""
        return sorted({*self._source.buckets(), *BUCKETS})

    def scan(self, bucket: bytes) -> Iterator[Row]:
        """Yield the rows of a bucket, with the changes."""
        rows = self._replaced.get(bucket)
        if rows is not None:
            return iter(rows)
        if bucket not in self._source.buckets():
            return iter(self._appended.get(bucket, ()))
        return chain(self._source.scan(bucket), self._appended.get(bucket, ()))


@contextmanager
def open_state(location: Location, timeout_s: float) -> Iterator[RowSource]:
    """Open a state for reading.

    Raises DataDirError if another process locks it for longer than timeout_s (0: no limit),
    CorruptionError if it is damaged.
    """
    if location.format is DataFormat.KVSTORE:
        data_path = location.db / "data.mdb"
        _refuse_empty(data_path)
        mapped_file.note(data_path)
        with open_reader(location.member) as snapshot:
            yield LmdbState(snapshot, data_path)
    else:
        with retry_while_locked(lambda: EtcdDbReader(location.db), timeout_s) as reader:
            yield reader


def _refuse_empty(data_path: Path) -> None:
    try:
        size_bytes = data_path.stat().st_size
    except OSError as error:
        raise DataDirError(f"{data_path}: {error.strerror}") from error
    if size_bytes == 0:
        raise CorruptionError(f"{data_path}: offset 0: expected an LMDB file, the file is empty")
