"""The digest at the end of a snapshot file.

    snapshot file = database file | SHA-256 of it (32 bytes)

Pages are multiples of 512 bytes, so a size of 32 modulo 512 means that the digest is there.
"""

import hashlib
import os
from pathlib import Path
from typing import Final

from kvstore.errors import CorruptionError

DIGEST_SIZE: Final = hashlib.sha256().digest_size

_SECTOR_BYTES: Final = 512


def has_digest(path: Path) -> bool:
    """Tell by its size whether a snapshot file ends in its digest."""
    return path.stat().st_size % _SECTOR_BYTES == DIGEST_SIZE


def digest(path: Path, size_bytes: int) -> bytes:
    """Return the SHA-256 of the first size_bytes of a file; CorruptionError if it is shorter."""
    sha = hashlib.sha256()
    left = size_bytes
    buffer = bytearray(1 << 18)
    with path.open("rb", buffering=0) as file:
        while left:
            got = file.readinto(memoryview(buffer)[: min(left, len(buffer))])
            if not got:
                raise CorruptionError(f"{path}: ends {left} bytes before offset {size_bytes}")
            sha.update(memoryview(buffer)[:got])
            left -= got
    return sha.digest()


def append_digest(path: Path) -> bytes:
    """Append its SHA-256 to a database file, synced, which makes it a snapshot file; return it."""
    value = digest(path, path.stat().st_size)
    with path.open("ab") as file:
        file.write(value)
        file.flush()
        os.fsync(file.fileno())
    return value


def check_digest(path: Path) -> None:
    """Raise CorruptionError unless a snapshot file ends in the SHA-256 of all before it."""
    size = path.stat().st_size
    if not has_digest(path):
        raise CorruptionError(f"{path}: a snapshot file of {size} bytes carries no digest")
    body = size - DIGEST_SIZE
    with path.open("rb") as file:
        file.seek(body)
        stored = file.read(DIGEST_SIZE)
    actual = digest(path, body)
    if stored != actual:
        text = f"digest {stored.hex()} is not that of the content, {actual.hex()}"
        raise CorruptionError(f"{path}: at offset {body}: {text}")
