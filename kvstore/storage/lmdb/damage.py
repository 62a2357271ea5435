"""The error about a damaged row: the file, the page if it can be found, the row, the remedy.

The page is searched for in the file itself, since LMDB does not say where a row is. That reads the
whole file in the worst case; the process ends anyway.
"""

import mmap
from pathlib import Path
from typing import Final

from kvstore.backend import BUCKETS, Table
from kvstore.errors import CorruptionError
from kvstore.mvcc.revision import parse_revision_key

PAGE_BYTES: Final = 4096
_OVERFLOW_HEAD_BYTES: Final = 16  # of a page that begins a value which needs pages of its own
_HINT: Final = "a member of a cluster gets intact data from the others by --rebuild-from-peers"


def damaged_row(data_path: Path, table: Table, key: bytes, stored: bytes) -> CorruptionError:
    """Return the error for a row that is not what was written; stored includes its checksum."""
    page = page_of(data_path, key, stored)
    where = "page unknown" if page is None else f"page {page}"
    return CorruptionError(
        f"{data_path}: {where}: table {BUCKETS[table].decode()}: {_name(table, key)}: its checksum "
        f"does not match the {len(stored)} stored bytes: they are damaged; {_HINT}"
    )


def _name(table: Table, key: bytes) -> str:
    if table == Table.KEY:
        try:
            main, sub, _ = parse_revision_key(key)
        except CorruptionError:
            return f"row {key.hex()}"
        return f"row {key.hex()} (revision {main}, change {sub})"
    return f"row {key!r}"


def page_of(data_path: Path, key: bytes, stored: bytes) -> int | None:
    """Return the number of the page that holds a row, None if it is not found."""
    try:
        with data_path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            at = data.find(key + stored)  # in a leaf the value follows the key
            while at < 0:
                position = data.find(stored, -at)
                if position < 0:
                    return None
                if position % PAGE_BYTES == _OVERFLOW_HEAD_BYTES:
                    at = position
                else:
                    at = -(position + 1)
    except (OSError, ValueError):
        return None
    return at // PAGE_BYTES
