"""The limit on the keys of rows, and the error that names it; the same in both backends.

A key in LMDB has 1 to 511 bytes. etcd's row keys are far shorter (17 or 18 bytes for revisions, 8
for leases), except those that are names of users and roles. A client's key is never a row's key: it
is part of the value. Values are bounded by the largest request, not here.
"""

from typing import Final

from kvstore.backend import BUCKETS, Table
from kvstore.errors import DataDirError

KEY_BYTES_MAX: Final = 511


def key_refused(table: Table, key: bytes) -> DataDirError:
    """Return the error for a key that no row can have."""
    return DataDirError(
        f"table {BUCKETS[table].decode()}: a row key of {len(key)} bytes (starts with "
        f"{key[:16]!r}) cannot be stored; keys are 1 to {KEY_BYTES_MAX} bytes"
    )


def key_fits(key: bytes) -> bool:
    """Return whether a row can have this key."""
    return 0 < len(key) <= KEY_BYTES_MAX
