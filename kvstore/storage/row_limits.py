"""What a row may be: the one limit both backends share, and the error that names it.

LMDB keys are 1 to 511 bytes. etcd's own keys are far below that (17/18 bytes for revisions, 8 for
leases, names of users and roles otherwise); a client's key is never a row's key, it sits inside
the value. Values are bounded by the largest request, not here.
"""

from typing import Final

from kvstore.errors import DataDirError
from kvstore.mvcc.backend import BUCKETS, Table

KEY_BYTES_MAX: Final = 511


def key_refused(table: Table, key: bytes) -> DataDirError:
    """Return the error for a key that no row can have."""
    return DataDirError(
        f"table {BUCKETS[table].decode()}: a row key of {len(key)} bytes (starts with "
        f"{key[:16]!r}) cannot be stored; keys are 1 to {KEY_BYTES_MAX} bytes"
    )


def key_fits(key: bytes) -> bool:
    """Tell whether a row can have this key."""
    return 0 < len(key) <= KEY_BYTES_MAX
