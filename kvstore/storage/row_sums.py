"""The checksum of a row in the database: how it is added, checked and removed.

    stored = value | sum          sum = CRC-32C of key | value, begun at RESIDUE; 4 bytes, LE

A CRC-32C over bytes that are followed by their own CRC is always RESIDUE, whatever it began at. As
it begins at RESIDUE here, any number of rows are checked at once: key | stored | key | stored | …
gives RESIDUE if all are intact, and a damaged row changes it whatever follows. The key is part of
it: a value that is read under another row's key is damage, too.

A `RowSums` is these functions for one database. UNSUMMED is for databases of the older format,
whose rows have no checksum; a mark in the database (`environment`) decides which one applies, never
a guess from the rows. `kvstore.transport.native` has the same functions in Rust.

Functions that check return None if a row is not what was written. `first_damaged` says which.
"""

import struct
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, Protocol

from google_crc32c import extend

from kvstore.backend import Row
from kvstore.wire.fields import fields_of

SUM_BYTES: Final = 4
RESIDUE: Final = 0x48674BC7

_pack: Final = struct.Struct("<I").pack


class RowSums(Protocol):
    """The encoding of the rows of one database; keys and stored have the same length."""

    def seal(self, rows: Sequence[Row]) -> Sequence[Row]:
        """Return rows of keys and values as they are stored."""
        ...

    def value(self, key: bytes, stored: bytes) -> bytes | None:
        """Return the value of one row."""
        ...

    def values(self, keys: Sequence[bytes], stored: Sequence[bytes]) -> list[bytes] | None:
        """Return the values of rows."""
        ...

    def rows(self, rows: Sequence[Row]) -> list[Row] | None:
        """Return rows of keys and values."""
        ...

    def fields(
        self, keys: Sequence[bytes], stored: Sequence[bytes], head: bytes, tail: bytes
    ) -> bytes | None:
        """Return head, the values of rows, each as field 2 of a protobuf message, and tail."""
        ...


class PythonSums:
    """RowSums of rows with checksums, without the crate."""

    def seal(self, rows: Sequence[Row]) -> Sequence[Row]:
        """See RowSums."""
        return [(key, each + _pack(extend(RESIDUE, key + each))) for key, each in rows]

    def value(self, key: bytes, stored: bytes) -> bytes | None:
        """See RowSums."""
        return stored[:-SUM_BYTES] if extend(RESIDUE, key + stored) == RESIDUE else None

    def values(self, keys: Sequence[bytes], stored: Sequence[bytes]) -> list[bytes] | None:
        """See RowSums."""
        if not _are_intact(zip(keys, stored, strict=True)):
            return None
        return [each[:-SUM_BYTES] for each in stored]

    def rows(self, rows: Sequence[Row]) -> list[Row] | None:
        """See RowSums."""
        return [(key, each[:-SUM_BYTES]) for key, each in rows] if _are_intact(rows) else None

    def fields(
        self, keys: Sequence[bytes], stored: Sequence[bytes], head: bytes, tail: bytes
    ) -> bytes | None:
        """See RowSums."""
        values = self.values(keys, stored)
        return None if values is None else fields_of(values, head, tail)


def _are_intact(rows: Iterable[Row]) -> bool:
    """Return whether all of these keys with what is stored of them are what was written."""
    found: int = extend(RESIDUE, b"".join(chain.from_iterable(rows)))
    return found == RESIDUE


class _Unsummed:
    """RowSums of rows without checksums."""

    def seal(self, rows: Sequence[Row]) -> Sequence[Row]:
        return rows

    def value(self, key: bytes, stored: bytes) -> bytes | None:
        return stored

    def values(self, keys: Sequence[bytes], stored: Sequence[bytes]) -> list[bytes] | None:
        return list(stored)

    def rows(self, rows: Sequence[Row]) -> list[Row] | None:
        return list(rows)

    def fields(
        self, keys: Sequence[bytes], stored: Sequence[bytes], head: bytes, tail: bytes
    ) -> bytes | None:
        return fields_of(stored, head, tail)


PYTHON_SUMS: Final = PythonSums()
UNSUMMED: Final = _Unsummed()


def first_damaged(keys: Sequence[bytes], stored: Sequence[bytes]) -> int:
    """Return the position of the first row that is not what was written; -1 if all are."""
    for at, (key, each) in enumerate(zip(keys, stored, strict=True)):
        if PYTHON_SUMS.value(key, each) is None:
            return at
    return -1
